//! `turbidite verify`

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::arguments::DatabaseArguments;
use crate::failure::{Failure, Result};
use crate::output::{self, Figures};
use crate::size::{Bytes, Count};

/// Read everything and check every checksum and order
///
/// Prints each problem on a line. Ends with exit code 3 if there are any.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  turbidite verify fruits.db && cp -r fruits.db backup/")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    figures: Figures,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let report = self.database.open_to_read()?.verify()?;
        let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        let mut out = output::stdout();
        if self.figures.json {
            let line = json!({
                "files": report.files, "bytes": report.bytes, "entries": report.entries,
                "problems": problems,
            });
            writeln!(out, "{line}")?;
        } else {
            for problem in &problems {
                writeln!(out, "{problem}")?;
            }
            writeln!(
                out,
                "{} files, {}, {} entries, {} problems",
                Count(report.files),
                Bytes(report.bytes),
                Count(report.entries),
                problems.len()
            )?;
        }
        out.flush()?;
        if problems.is_empty() {
            return Ok(());
        }
        Err(Failure::damaged(format!("{} problems were found", problems.len())))
    }
}
