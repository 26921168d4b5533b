//! `turbidite put`

use std::ffi::OsString;

use clap::Args;

use crate::arguments::{DatabaseArguments, NewKeyspaceArguments};
use crate::durability::LogArguments;
use crate::failure::Result;
use crate::hex::Notation;

/// Store a value under a key
///
/// A value that is there already is replaced, unless the keyspace has the engine skip and a reducer that
/// says otherwise. The database and the keyspace are created if they are missing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite put fruits.db apple red
  turbidite put fruits.db --keyspace prices --durability sync apple 0.40
  turbidite put fruits.db --keyspace stock --engine btree apple 120
  turbidite put fruits.db --keyspace notes --compression lz4 --policy tiered:4 apple tart
  turbidite put fruits.db --keyspace names --engine skip --reducer concat apple pippin
  turbidite put fruits.db --hex 00ff cafe")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// The value
    #[arg(allow_negative_numbers = true)]
    value: OsString,
    #[command(flatten)]
    keyspace: NewKeyspaceArguments,
    #[command(flatten)]
    notation: Notation,
    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let (key, value) = (self.notation.read(&self.key)?, self.notation.read(&self.value)?);
        let database = self.database.open_or_create(&self.log)?;
        self.keyspace.open_or_create(&database, &self.log)?.put(key, value)?;
        Ok(database.close()?)
    }
}
