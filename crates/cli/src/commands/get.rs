//! `turbidite get`

use std::ffi::OsString;
use std::io::Write;

use clap::Args;

use crate::arguments::{DatabaseArguments, KeyspaceArguments};
use crate::failure::{Exit, Failure, Result};
use crate::hex::Notation;
use crate::output;

/// Print the value of a key
///
/// The value is followed by a line feed. Ends with exit code 1 if the key is not there.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite get fruits.db apple
  turbidite get fruits.db --no-newline logo > logo.png")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// Print the bytes of the value and nothing else
    #[arg(long, short)]
    no_newline: bool,
    #[command(flatten)]
    keyspace: KeyspaceArguments,
    #[command(flatten)]
    notation: Notation,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let key = self.notation.read(&self.key)?;
        let database = self.database.open_to_read()?;
        let Some(value) = self.keyspace.open(&database)?.get(key)? else {
            let key = self.key.display();
            return Err(Failure::new(Exit::Negative, format!("there is no key {key:?}")));
        };
        let mut out = output::stdout();
        self.notation.write(&value, &mut out)?;
        if !self.no_newline {
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }
}
