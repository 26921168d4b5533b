//! `turbidite man`

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::failure::{EXIT_CODES, Failure, Result};
use crate::output;

/// What every page is part of.
const SOURCE: &str = concat!("turbidite ", env!("CARGO_PKG_VERSION"));

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
        let mut command = super::Cli::command().disable_help_subcommand(true);
        command.build();
        let Some(dir) = &self.dir else {
            let mut out = output::stdout();
            write_page(&command, &mut out)?;
            return Ok(out.flush()?);
        };
        write_all(&command, dir)
            .map_err(|error| Failure::io("write the manual pages into", dir, &error))
    }
}

fn write_all(command: &Command, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for command in std::iter::once(command).chain(command.get_subcommands()) {
        let mut page = Vec::new();
        write_page(command, &mut page)?;
        fs::write(dir.join(Man::new(command.clone()).get_filename()), page)?;
    }
    Ok(())
}

/// Writes the page of one command. What its help says behind the options becomes sections.
fn write_page(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or("turbidite").to_uppercase();
    let man = Man::new(command.clone()).title(name).manual("Turbidite").source(SOURCE);
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut sections = Roff::new();
    help.split("\n\n").for_each(|text| push_section(&mut sections, text));
    if help != EXIT_CODES {
        push_section(&mut sections, EXIT_CODES);
    }
    sections.to_writer(out)
}

/// Adds a section of the help: a line with its name and a colon, then lines to be kept as they are.
fn push_section(page: &mut Roff, text: &str) {
    let mut lines = text.lines();
    let name = lines.next().unwrap_or_default().trim_end_matches(':').to_uppercase();
    page.control("SH", [name.as_str()]).control("nf", []);
    for line in lines {
        page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    page.control("fi", []);
}
