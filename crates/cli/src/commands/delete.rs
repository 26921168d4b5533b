//! `turbidite delete`

use std::ffi::OsString;

use clap::Args;

use crate::arguments::{DatabaseArguments, KeyspaceArguments};
use crate::durability::LogArguments;
use crate::failure::Result;
use crate::hex::Notation;
use crate::selection::Selection;

/// Delete keys, or all keys of a range
///
/// All keys go in one atomic batch. A key that is not there is no error.
///
/// With --prefix, --from and --to all keys that `scan` would print with them are deleted, at a cost that does not depend on how
/// many there are. Only the engine lsm can do it: with others they are refused with exit code 2. `clear` deletes all keys.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite delete fruits.db apple
  turbidite delete fruits.db --prefix a
  turbidite delete fruits.db --from apple --to pear
  turbidite delete fruits.db --keyspace prices apple pear plum")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The keys
    #[arg(
        value_name = "KEY",
        required_unless_present_any = ["prefix", "from", "to"],
        conflicts_with_all = ["prefix", "from", "to"],
        allow_negative_numbers = true
    )]
    keys: Vec<OsString>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    keyspace: KeyspaceArguments,
    #[command(flatten)]
    notation: Notation,
    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let keys: Result<Vec<_>> = self.keys.iter().map(|key| self.notation.read(key)).collect();
        let keys = keys?;
        let database = self.database.open_to_change(&self.log)?;
        let keyspace = self.keyspace.open(&database)?;
        self.log.check(&database, keyspace.name())?;
        let mut batch = database.batch();
        for key in keys {
            batch.delete(&keyspace, key);
        }
        if !self.selection.is_all() {
            self.selection.delete(&mut batch, &keyspace, self.notation)?;
        }
        batch.commit()?;
        drop(keyspace);
        Ok(database.close()?)
    }
}
