//! The `turbidite` command: looks into, loads, checks and measures databases.
//!
//! Every subcommand is one file in `commands`. What it prints for programs goes to standard output,
//! everything else to standard error; the exit codes are in [`failure`].

#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod durability;
mod engine;
mod failure;
mod hex;
mod options;
mod output;
mod picture;
mod progress;
mod records;
mod selection;
mod size;
mod trace;
mod workload;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match commands::Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
