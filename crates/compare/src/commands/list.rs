//! `list`: what can be run.

use std::fmt::Write;

use clap::Args;

use super::run::print;
use crate::failure::Result;
use crate::systems;
use crate::tables::{self, Scale};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Tell the rows of this table, or of `all`, as `run --rows` knows them
    table: Option<String>,
    /// The scale whose rows are told
    #[arg(long, value_enum, default_value = "quick", requires = "table")]
    scale: Scale,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        match self.table.as_deref() {
            None => overview(),
            Some("all") => tables::NAMES.iter().try_for_each(|name| rows(name, self.scale)),
            Some(name) => rows(name, self.scale),
        }
    }
}

fn rows(name: &str, scale: Scale) -> Result<()> {
    let table = tables::table(name, scale)?;
    let mut text = format!("{name}, {} scale: {}\n", scale.name(), table.title);
    let widest = table.rows.iter().map(|row| row.id.len()).max().unwrap_or(0);
    for row in &table.rows {
        writeln!(text, "  {:widest$}  {}: {}", row.id, row.workload, row.label)
            .expect("writing to a string");
    }
    print(&text)
}

fn overview() -> Result<()> {
    let mut text = String::from("Tables:\n");
    for name in tables::NAMES {
        let table = tables::table(name, Scale::Full)?;
        let runs: u32 = table.rows.iter().map(|row| row.rounds).sum();
        let rows = table.rows.len();
        writeln!(text, "  {name:12} {}: {rows} rows, {runs} runs at full scale", table.title)
            .expect("writing to a string");
    }
    text += "\nSystems:\n";
    for kind in systems::kinds() {
        let here = kind.missing().map_or(String::new(), |why| format!(" [{why}]"));
        writeln!(text, "  {:16} {}{here}", kind.name, kind.about).expect("writing to a string");
    }
    print(&text)
}
