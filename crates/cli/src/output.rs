//! Standard output, buffered, and the tables printed on it.
//!
//! Nothing here panics when the reader of a pipe goes away: writing gives an error, which ends the
//! command quietly (see [`crate::failure`]).

use std::io::{self, BufWriter, StdoutLock, Write};

use clap::Args;
use comfy_table::{CellAlignment, Table};
use serde_json::Value;

use crate::failure::Result;

/// How figures are printed.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Print figures as JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Standard output, taken for the rest of the command. What is still buffered must be flushed.
pub(crate) fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

/// Prints one JSON value on a line of its own.
pub(crate) fn print_json(value: &Value) -> Result<()> {
    print(format_args!("{value}"))
}

/// Prints text and ends the line.
pub(crate) fn print(text: impl std::fmt::Display) -> Result<()> {
    let mut out = stdout();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// A plain table: names to the left, figures to the right.
pub(crate) struct Figure(Table);

impl Figure {
    /// A table whose first `names` columns hold words.
    pub(crate) fn new(header: &[&str], names: usize) -> Self {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(header.to_vec());
        for (i, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if i >= names {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self(table)
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.0.add_row(cells);
    }

    /// Writes the table without blanks at the ends of lines.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.0.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
    }
}
