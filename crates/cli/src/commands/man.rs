//! `turbidite man`

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_mangen::Man;

use crate::failure::{Failure, Result};
use crate::output;

/// Print the manual page, or write all pages into a directory
///
/// Without DIR the page of the program goes to standard output. With DIR, it and a page for each
/// subcommand are written there; the directory is created if it is missing.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite man | man -l -
  turbidite man ~/.local/share/man/man1")]
pub(crate) struct Arguments {
    /// Where to write all pages
    dir: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let command = super::Cli::command();
        let Some(dir) = &self.dir else {
            let mut out = output::stdout();
            Man::new(command).render(&mut out)?;
            return Ok(out.flush()?);
        };
        fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(command, dir))
            .map_err(|error| Failure::io("write the manual pages into", dir, &error))
    }
}
