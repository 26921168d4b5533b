//! `turbidite delete`

use std::ffi::OsString;

use clap::Args;

use crate::arguments::{DatabaseArguments, KeyspaceArguments};
use crate::durability::LogArguments;
use crate::failure::Result;
use crate::hex::Notation;

/// Delete keys
///
/// All keys go in one atomic batch. A key that is not there is no error.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite delete fruits.db apple
  turbidite delete fruits.db --keyspace prices apple pear plum")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The keys
    #[arg(value_name = "KEY", required = true, allow_negative_numbers = true)]
    keys: Vec<OsString>,
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
        batch.commit()?;
        drop(keyspace);
        Ok(database.close()?)
    }
}
