//! The subcommands, one file each.

mod child;
mod list;
mod report;
mod run;
mod tool;

use clap::{Parser, Subcommand};

use crate::failure::{EXIT_CODES, Result};

/// The studies that Turbidite began with, side by side with other stores, on this machine
#[derive(Parser, Debug)]
#[command(name = "turbidite-compare", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// List the tables and the systems, and say which systems are missing here; or the rows of a table
    List(list::Arguments),
    /// Run a table, or go on with one that was cut short
    Run(run::Arguments),
    /// Make pages of HTML and Markdown of what was run
    Report(report::Arguments),
    /// Carry out the job on standard input: what `run` starts for each system
    #[command(hide = true)]
    Child(child::Arguments),
    /// Turn into a program that ends when its parent does
    #[command(hide = true)]
    Tool(tool::Arguments),
}

impl Command {
    pub(crate) fn run(&self) -> Result<()> {
        match self {
            Self::List(arguments) => arguments.run(),
            Self::Run(arguments) => arguments.run(),
            Self::Report(arguments) => arguments.run(),
            Self::Child(arguments) => arguments.run(),
            Self::Tool(arguments) => arguments.run(),
        }
    }
}
