//! `turbidite nth`

use std::io::Write;

use clap::Args;

use crate::arguments::{DatabaseArguments, KeyspaceArguments};
use crate::failure::{Exit, Failure, Result};
use crate::hex::Notation;
use crate::output;

/// Print the record at a position
///
/// Positions count from 0 in the order of the keys. Only keyspaces with the engine skip know them: others
/// end the command with exit code 2. The key and the value are printed like those of `scan`. Ends with exit
/// code 1 if there are not so many records.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite nth words.db 1000
  turbidite nth words.db --keyspace names 0 --hex")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// How many records are before it
    position: u64,
    #[command(flatten)]
    keyspace: KeyspaceArguments,
    #[command(flatten)]
    notation: Notation,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let database = self.database.open_to_read()?;
        let Some((key, value)) = self.keyspace.open(&database)?.nth(self.position)? else {
            let what = format!("there is no record at position {}", self.position);
            return Err(Failure::new(Exit::Negative, what));
        };
        let mut out = output::stdout();
        self.notation.write(&key, &mut out)?;
        out.write_all(b"\t")?;
        self.notation.write(&value, &mut out)?;
        out.write_all(b"\n")?;
        Ok(out.flush()?)
    }
}
