//! `turbidite-compare`: the studies that Turbidite began with, side by side with other stores.
//!
//! [`systems`] has the stores behind one small trait, [`tables`] says what is run on them and drawn of it, [`run`] runs it,
//! each system in a process of its own, and keeps the results, and [`report`] makes pages of these.

#![cfg_attr(not(feature = "lmdb"), forbid(unsafe_code))]

mod commands;
mod failure;
mod report;
mod run;
mod systems;
mod tables;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match commands::Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
