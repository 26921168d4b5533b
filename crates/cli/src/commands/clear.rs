//! `turbidite clear`

use clap::Args;

use crate::arguments::DatabaseArguments;
use crate::durability::LogArguments;
use crate::failure::{Failure, Result};

/// Empty a keyspace
///
/// All its records go at once, however many there are; their files are removed in the background. The
/// keyspace itself stays, with its engine and its options. Not for keyspaces with the engine hash.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  turbidite clear fruits.db prices --yes")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The keyspace to empty
    #[arg(value_name = "KEYSPACE")]
    keyspace: String,
    /// Do it: without this nothing is changed
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    log: LogArguments,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        if !self.yes {
            return Err(Failure::usage(format!(
                "this takes all records of keyspace {:?} away: say --yes if they are to go",
                self.keyspace
            )));
        }
        let database = self.database.open_to_change(&self.log)?;
        let keyspace = database.open_keyspace(&self.keyspace)?;
        self.log.check(&database, keyspace.name())?;
        keyspace.clear()?;
        // What nobody needs any more goes now, not at the next opening.
        keyspace.persist()?;
        drop(keyspace);
        Ok(database.close()?)
    }
}
