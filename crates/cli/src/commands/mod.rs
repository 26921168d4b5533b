//! The subcommands, each in a file named after it.

mod bench;
mod clear;
mod compact;
mod completions;
mod count;
mod delete;
mod export;
mod get;
mod import;
mod keyspaces;
mod man;
mod nth;
mod put;
mod rank;
mod scan;
mod stats;
#[cfg(feature = "torture")]
mod torture;
mod verify;
mod watch;

use clap::{Parser, Subcommand};

use crate::failure::{EXIT_CODES, Result};

/// Look into, load, check and measure Turbidite databases.
///
/// A database is a directory; in it, every keyspace maps keys to values, both any bytes: in the order of
/// the keys' bytes with the engines lsm, btree and skip, in no order with the engine hash. Commands that
/// only read open the database for reading and never create or change anything. Keys and values that start
/// with a dash go behind `--`.
#[derive(Parser, Debug)]
#[command(name = "turbidite", version, author, max_term_width = 100, after_help = EXIT_CODES)]
#[command(propagate_version = true, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Put(put::Arguments),
    Get(get::Arguments),
    Nth(nth::Arguments),
    Rank(rank::Arguments),
    Delete(delete::Arguments),
    Clear(clear::Arguments),
    Scan(scan::Arguments),
    Count(count::Arguments),
    Import(import::Arguments),
    Export(export::Arguments),
    Keyspaces(keyspaces::Arguments),
    Stats(stats::Arguments),
    Verify(verify::Arguments),
    Compact(compact::Arguments),
    Watch(watch::Arguments),
    Bench(bench::Arguments),
    #[cfg(feature = "torture")]
    Torture(torture::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

impl Command {
    pub(crate) fn run(&self) -> Result<()> {
        match self {
            Self::Put(arguments) => arguments.run(),
            Self::Get(arguments) => arguments.run(),
            Self::Nth(arguments) => arguments.run(),
            Self::Rank(arguments) => arguments.run(),
            Self::Delete(arguments) => arguments.run(),
            Self::Clear(arguments) => arguments.run(),
            Self::Scan(arguments) => arguments.run(),
            Self::Count(arguments) => arguments.run(),
            Self::Import(arguments) => arguments.run(),
            Self::Export(arguments) => arguments.run(),
            Self::Keyspaces(arguments) => arguments.run(),
            Self::Stats(arguments) => arguments.run(),
            Self::Verify(arguments) => arguments.run(),
            Self::Compact(arguments) => arguments.run(),
            Self::Watch(arguments) => arguments.run(),
            Self::Bench(arguments) => arguments.run(),
            #[cfg(feature = "torture")]
            Self::Torture(arguments) => arguments.run(),
            Self::Completions(arguments) => arguments.run(),
            Self::Man(arguments) => arguments.run(),
        }
    }
}
