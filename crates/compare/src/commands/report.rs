//! `report`: makes pages of results.

use std::path::PathBuf;

use clap::Args;

use super::run::print;
use crate::failure::Result;
use crate::report;
use crate::run::results::Results;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The directory that `run` kept results in
    dir: PathBuf,
    /// Where the pages are written, created if it is missing [default: the directory of the results]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let results = Results::open(&self.dir)?;
        let pages = report::write(&results, self.to.as_ref().unwrap_or(&self.dir))?;
        pages.iter().try_for_each(|page| print(&format!("{}\n", page.display())))
    }
}
