//! `turbidite keyspaces`

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::arguments::DatabaseArguments;
use crate::failure::Result;
use crate::options;
use crate::output::{self, Figure, Figures};

/// List the keyspaces
///
/// With the options of each that are not the default.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  turbidite keyspaces fruits.db --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    figures: Figures,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let database = self.database.open_to_read()?;
        let mut out = output::stdout();
        let mut table = Figure::new(&["keyspace", "engine", "file", "logged", "options"], 5);
        for info in database.keyspaces() {
            let (engine, file) = (info.engine.to_string(), info.layer.to_string());
            if self.figures.json {
                let line = json!({
                    "keyspace": info.name, "engine": engine, "file": file, "logged": info.logged,
                    "options": options::as_json(&info.options),
                });
                writeln!(out, "{line}")?;
            } else {
                let logged = if info.logged { "yes" } else { "no" };
                let options = options::as_text(&info.options);
                table.row(vec![info.name, engine, file, logged.to_owned(), options]);
            }
        }
        if !self.figures.json {
            table.write(&mut out)?;
        }
        Ok(out.flush()?)
    }
}
