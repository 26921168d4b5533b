//! The keyspace beside an imported one that tells how the file was put together.
//!
//! It is named `<keyspace>.order` and is written in the same atomic batches as the records. It describes
//! the latest import only. Its keys are positions, eight bytes, big endian, from 1:
//!
//! ```text
//! position  -> kind:u8 rest
//!              0  rest is text of the file that is no record, verbatim
//!              1  rest is the key of a record that is followed by nothing
//!              2  ... that is followed by a line feed
//!              3  ... that is followed by a carriage return and a line feed
//! 0         -> (empty) the import went through to the end of the file
//! ```
//!
//! Invariants: positions have no gaps; position 0 is removed before anything else of an older import is,
//! and comes with the last batch of the new one.

use turbidite::{Database, Error, ErrorKind, Keyspace};
use turbidite_records::Ending;

use crate::durability::LogArguments;
use crate::engine::{self, Engine, EngineArguments};
use crate::failure::{Failure, Result};

const SUFFIX: &str = ".order";

/// The position whose presence says that the import is complete.
const COMPLETE: u64 = 0;

/// A piece of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry<'a> {
    /// Text that is no record.
    Verbatim(&'a [u8]),
    /// The record with this key, and what follows it.
    Record(&'a [u8], Ending),
}

impl<'a> Entry<'a> {
    fn encode(self) -> Vec<u8> {
        let (kind, rest) = match self {
            Self::Verbatim(text) => (0, text),
            Self::Record(key, Ending::None) => (1, key),
            Self::Record(key, Ending::LineFeed) => (2, key),
            Self::Record(key, Ending::CarriageReturnLineFeed) => (3, key),
        };
        let mut bytes = Vec::with_capacity(1 + rest.len());
        bytes.push(kind);
        bytes.extend_from_slice(rest);
        bytes
    }

    fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            0 => Some(Self::Verbatim(rest)),
            1 => Some(Self::Record(rest, Ending::None)),
            2 => Some(Self::Record(rest, Ending::LineFeed)),
            3 => Some(Self::Record(rest, Ending::CarriageReturnLineFeed)),
            _ => None,
        }
    }

    /// Reads a stored entry.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self> {
        Self::decode(bytes).ok_or_else(|| {
            Failure::damaged("the order of the imported lines is damaged; `export --by-key` is not")
        })
    }
}

/// The keyspace with the order of another one.
#[derive(Clone)]
pub(crate) struct Order(Keyspace);

impl Order {
    /// An error if the keyspace `name` cannot have an order beside it.
    pub(crate) fn check_name(name: &str) -> Result<()> {
        if name.ends_with(SUFFIX) {
            return Err(Failure::usage(format!(
                "names that end with {SUFFIX} are kept for the order of imported lines"
            )));
        }
        Ok(())
    }

    /// The order beside `name`, created if it is missing, in an engine that keeps it.
    pub(crate) fn open_or_create(
        database: &Database,
        name: &str,
        log: &LogArguments,
    ) -> Result<Self> {
        let (name, parts) = (format!("{name}{SUFFIX}"), EngineArguments::default());
        engine::open_or_create(database, &name, Some(Engine::Lsm), &parts, log).map(Self)
    }

    /// The order beside `name`, if it was filled by an import.
    pub(crate) fn open(database: &Database, name: &str) -> Result<Option<Self>> {
        match database.open_keyspace(&format!("{name}{SUFFIX}")) {
            Ok(keyspace) => Ok(Some(Self(keyspace))),
            Err(error) if error.kind() == ErrorKind::UnknownKeyspace => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets the latest import, from its end, `step` positions in one batch: what a break-off leaves
    /// is a beginning without gaps.
    pub(crate) fn clear(&self, database: &Database, step: usize) -> Result<()> {
        self.0.delete(COMPLETE.to_be_bytes())?;
        // Each search starts below what was deleted before, and need not step over it again.
        let mut end = u64::MAX.to_be_bytes().to_vec();
        loop {
            let below = self.0.range(..&end[..]).rev().take(step);
            let last: Vec<_> = below.collect::<Result<_, Error>>()?;
            let Some((lowest, _)) = last.last() else { return Ok(()) };
            end = lowest.to_vec();
            let mut batch = database.batch();
            for (position, _) in last {
                batch.delete(&self.0, position);
            }
            batch.commit()?;
        }
    }

    /// Adds a piece to a batch. Positions count from 1.
    pub(crate) fn put(&self, batch: &mut turbidite::Batch, position: u64, entry: Entry<'_>) {
        batch.put(&self.0, position.to_be_bytes(), entry.encode());
    }

    /// Says in `batch` that the import is complete.
    pub(crate) fn put_complete(&self, batch: &mut turbidite::Batch) {
        batch.put(&self.0, COMPLETE.to_be_bytes(), b"");
    }

    /// Whether the latest import went through to the end.
    pub(crate) fn is_complete(&self) -> Result<bool> {
        Ok(self.0.contains(COMPLETE.to_be_bytes())?)
    }

    /// The stored entries in the order of the file, for [`Entry::read`].
    pub(crate) fn entries(
        &self,
    ) -> impl Iterator<Item = turbidite::Result<turbidite::Slice>> + use<> {
        self.0.range((COMPLETE + 1).to_be_bytes()..).map(|entry| entry.map(|(_, value)| value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_as_written() {
        let endings = [Ending::None, Ending::LineFeed, Ending::CarriageReturnLineFeed];
        let mut entries = endings.map(|ending| Entry::Record(b"key", ending)).to_vec();
        entries.push(Entry::Verbatim(b"id,name\r\n"));
        for entry in entries {
            assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        }
        assert_eq!(Entry::decode(b""), None);
        assert_eq!(Entry::decode(b"\x04key"), None);
    }
}
