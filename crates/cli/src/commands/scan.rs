//! `turbidite scan`

use std::io::Write;

use clap::Args;
use turbidite::Slice;

use crate::arguments::{DatabaseArguments, KeyspaceArguments};
use crate::failure::Result;
use crate::hex::Notation;
use crate::output;
use crate::selection::Selection;

/// Print keys and values
///
/// One entry a line: the key, a tab, the value. With --hex no key or value can break a line.
///
/// Entries come in the order of the keys' bytes, unless the keyspace has the engine hash: its keys have
/// no order, so all entries come in any order, and --prefix, --from, --to and --reverse are refused with
/// exit code 2.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite scan fruits.db --prefix a
  turbidite scan fruits.db --from apple --to pear --keys-only
  turbidite scan fruits.db --reverse --limit 10")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    selection: Selection,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Stop after this many entries
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Leave out the values
    #[arg(long)]
    keys_only: bool,
    #[command(flatten)]
    keyspace: KeyspaceArguments,
    #[command(flatten)]
    notation: Notation,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let database = self.database.open_to_read()?;
        let keyspace = self.keyspace.open(&database)?;
        let entries = self.selection.entries(&keyspace, self.notation)?;
        if self.reverse { self.write(entries.rev()) } else { self.write(entries) }
    }

    fn write(
        &self,
        entries: impl Iterator<Item = turbidite::Result<(Slice, Slice)>>,
    ) -> Result<()> {
        let mut out = output::stdout();
        for entry in entries.take(self.limit.unwrap_or(usize::MAX)) {
            let (key, value) = entry?;
            self.notation.write(&key, &mut out)?;
            if !self.keys_only {
                out.write_all(b"\t")?;
                self.notation.write(&value, &mut out)?;
            }
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }
}
