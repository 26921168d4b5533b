//! `list`: what can be run.

use std::fmt::Write;

use super::run::print;
use crate::failure::Result;
use crate::systems;
use crate::tables::{self, Scale};

pub(super) fn run() -> Result<()> {
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
