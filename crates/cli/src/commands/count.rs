//! `turbidite count`

use clap::Args;
use serde_json::json;

use crate::arguments::{DatabaseArguments, KeyspaceArguments};
use crate::failure::Result;
use crate::hex::Notation;
use crate::output::{self, Figures};
use crate::selection::Selection;

/// Count the keys
///
/// The count is exact. It reads every chosen key; a keyspace with the engine hash mostly knows its count,
/// and has no order to choose keys by: --prefix, --from and --to are refused with exit code 2.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite count fruits.db
  turbidite count fruits.db --prefix a --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    keyspace: KeyspaceArguments,
    #[command(flatten)]
    notation: Notation,
    #[command(flatten)]
    figures: Figures,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let database = self.database.open_to_read()?;
        let keyspace = self.keyspace.open(&database)?;
        let count = if self.selection.is_all() {
            keyspace.count()?
        } else {
            let mut entries = self.selection.entries(&keyspace, self.notation)?;
            entries.try_fold(0_u64, |count, entry| entry.map(|_| count + 1))?
        };
        if self.figures.json {
            return output::print_json(&json!({ "keyspace": keyspace.name(), "count": count }));
        }
        output::print(count)
    }
}
