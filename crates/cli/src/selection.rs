//! Which keys a command looks at: all, those with a prefix, or those in a range.

use std::ffi::OsString;
use std::ops::Bound;

use clap::Args;
use turbidite::{Batch, Keyspace, Range};

use crate::failure::{Failure, Result};
use crate::hex::Notation;

/// Both ends of a range.
type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A choice of keys. Keyspaces without order can only give all.
#[derive(Args, Debug)]
pub(crate) struct Selection {
    /// Only keys that start with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,

    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,

    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
}

impl Selection {
    /// Whether no key is left out.
    pub(crate) fn is_all(&self) -> bool {
        self.prefix.is_none() && self.from.is_none() && self.to.is_none()
    }

    /// The chosen entries.
    pub(crate) fn entries(&self, keyspace: &Keyspace, notation: Notation) -> Result<Range> {
        if let Some(prefix) = &self.prefix {
            return Ok(keyspace.prefix(notation.read(prefix)?));
        }
        Ok(keyspace.range(self.bounds(notation)?))
    }

    /// Has a batch delete the chosen keys.
    pub(crate) fn delete(
        &self,
        batch: &mut Batch,
        keyspace: &Keyspace,
        notation: Notation,
    ) -> Result<()> {
        match &self.prefix {
            Some(prefix) => batch.delete_prefix(keyspace, notation.read(prefix)?),
            None => batch.delete_range(keyspace, self.bounds(notation)?),
        };
        Ok(())
    }

    /// The ends of the range.
    fn bounds(&self, notation: Notation) -> Result<Ends> {
        let read =
            |end: &Option<OsString>| end.as_deref().map(|key| notation.read(key)).transpose();
        let (from, to) = (read(&self.from)?, read(&self.to)?);
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
        {
            return Err(Failure::usage("the key of --from is behind the key of --to"));
        }
        Ok((
            from.map_or(Bound::Unbounded, Bound::Included),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        ))
    }
}
