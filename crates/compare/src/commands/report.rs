//! `report`: makes pages of results.

use std::path::PathBuf;

use clap::Args;

use super::run::print;
use crate::failure::Result;
use crate::report;
use crate::run::results::Results;

#[derive(Args, Debug)]
#[command(after_help = "\
Each table is shown as one directory has it, at one scale: where the largest share of its rows was run, at the larger scale if
that is the same, and in the directory that was given last. Directories may be of different machines.")]
pub(crate) struct Arguments {
    /// The directories that `run` kept results in
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Where the pages are written, created if it is missing [default: the first directory]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let results = self.dirs.iter().map(|dir| Results::open(dir));
        let results = results.collect::<Result<Vec<_>>>()?;
        let pages = report::write(&results, self.to.as_ref().unwrap_or(&self.dirs[0]))?;
        pages.iter().try_for_each(|page| print(&format!("{}\n", page.display())))
    }
}
