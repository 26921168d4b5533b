//! `child`: what `run` starts for each system.

use std::io;
use std::path::PathBuf;

use clap::Args;

use super::run::print;
use crate::failure::{Failure, Result};
use crate::run::{child, process};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Where the system has its files; removed at the end
    data: PathBuf,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        process::end_with_parent()?;
        let job = serde_json::from_reader(io::stdin().lock())
            .map_err(|error| Failure::usage(format!("the job cannot be read: {error}")))?;
        let outcome = child::run(&job, &self.data)?;
        print(&format!("{}\n", serde_json::to_string(&outcome).expect("plain data")))
    }
}
