//! `turbidite rank`

use std::ffi::OsString;

use clap::Args;

use crate::arguments::{DatabaseArguments, KeyspaceArguments};
use crate::failure::Result;
use crate::hex::Notation;
use crate::output;

/// Print how many records are before a key
///
/// That is its position for `nth`, or the one it would have: the key itself need not be there. Only
/// keyspaces with the engine skip know positions: others end the command with exit code 2.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite rank words.db apple
  turbidite rank words.db --hex 00ff")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    #[command(flatten)]
    keyspace: KeyspaceArguments,
    #[command(flatten)]
    notation: Notation,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let key = self.notation.read(&self.key)?;
        let database = self.database.open_to_read()?;
        output::print(self.keyspace.open(&database)?.rank(key)?)
    }
}
