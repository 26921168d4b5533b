//! `turbidite compact`

use std::time::Instant;

use clap::Args;
use serde_json::json;

use crate::arguments::{DatabaseArguments, KeyspaceArguments};
use crate::durability::LogArguments;
use crate::failure::Result;
use crate::output::{self, Figures};
use crate::size::Bytes;

/// Rewrite a keyspace without replaced and deleted entries
///
/// Takes, for a while, as much more space as the keyspace has.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  turbidite compact fruits.db --keyspace prices")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    keyspace: KeyspaceArguments,
    #[command(flatten)]
    figures: Figures,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let database = self.database.open_to_change(&LogArguments::default())?;
        let keyspace = self.keyspace.open(&database)?;
        let before = database.stats().disk_bytes;
        let start = Instant::now();
        keyspace.compact()?;
        database.settle()?;
        let seconds = start.elapsed().as_secs_f64();
        let after = database.stats().disk_bytes;
        let name = keyspace.name().to_owned();
        drop(keyspace);
        database.close()?;
        if self.figures.json {
            return output::print_json(&json!({
                "keyspace": name, "seconds": seconds,
                "disk_bytes_before": before, "disk_bytes_after": after,
            }));
        }
        let (before, after) = (Bytes(before), Bytes(after));
        output::print(format_args!("{name}: {before} before, {after} after, {seconds:.3} s"))
    }
}
