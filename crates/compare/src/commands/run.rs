//! `run`: runs tables.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::failure::{Exit, Failure, Result};
use crate::report::summary;
use crate::run::driver::{self, Driver};
use crate::run::results::{self, Results};
use crate::run::selection::Selection;
use crate::tables::{self, Scale, Table};

/// Marks a directory that was given for data, so that a run that was cut short finds it again.
const DATA_MARKER: &str = "turbidite-compare.data";

#[derive(Args, Debug)]
#[command(after_help = "\
Each system runs in a process of its own; the systems of a row's workload take turns. Every run is kept in --dir as a line of
JSON, and what is there is not run again: a run that was cut short goes on with the same command. A row that has failed as often
as it is to be run is not tried again without --again. `report DIR` makes pages of what is there.

Examples:
  turbidite-compare run write-path --scale quick
  turbidite-compare run all --scale full --dir results --data /mnt/disk/scratch
  turbidite-compare run peers --only turbidite,rocksdb --json -
  turbidite-compare run write-path --scale full --rows shuffled-3M,sequential-3M")]
pub(crate) struct Arguments {
    /// The table, or `all`
    table: String,
    /// How much is run
    #[arg(long, value_enum, default_value = "quick")]
    scale: Scale,
    /// Only systems whose names start with one of these
    #[arg(long, value_name = "SYSTEM", value_delimiter = ',')]
    only: Vec<String>,
    /// Only rows whose names have one of these in them: `list TABLE` has the names
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    rows: Vec<String>,
    /// Write the medians as JSON to this file, one line for each step of each row; - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where results are kept: a new directory, or one of an earlier run
    #[arg(long, value_name = "DIR", default_value = "turbidite-compare")]
    dir: PathBuf,
    /// Where systems have their files while they run: on the device that is to be measured [default: data in --dir]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// End a run that takes longer than so many minutes: it counts as failed, and this command does not run its row again
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    limit: Option<Duration>,
    /// Try rows once more that have failed as often as they are to be run
    #[arg(long)]
    again: bool,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let names = match self.table.as_str() {
            "all" => tables::NAMES.to_vec(),
            name => vec![name],
        };
        let tables: Vec<_> =
            names.iter().map(|name| tables::table(name, self.scale)).collect::<Result<_>>()?;
        let selection = Selection { only: &self.only, rows: &self.rows };
        let list = format!("`list {} --scale {}`", self.table, self.scale.name());
        selection.check(&tables, &list)?;
        let results = Results::create(&self.dir)?;
        if !results.machine.optimised && self.scale != Scale::Smoke {
            anstream::eprintln!(
                "turbidite-compare: this build is not optimised, and its figures mean nothing: build with --release"
            );
        }
        let (data, _lock) = self.data()?.unzip();
        let data = data.unwrap_or_else(|| results.data());
        let medians = self.json.as_deref().map(Medians::open).transpose()?;
        let driver = Driver {
            results: &results,
            scale: self.scale,
            selection: &selection,
            data: &data,
            build: &driver::build()?,
            limit: self.limit,
            again: self.again,
        };
        let mut failures = Vec::new();
        let ended = tables.iter().try_for_each(|table| {
            failures.extend(driver.run(table)?);
            Ok(())
        });
        // What was measured is told however it ended.
        let told = medians.map_or(Ok(()), |medians| medians.write(&tables, &results, self.scale));
        ended.and(told)?;
        let is_wrong = failures.contains(&Exit::Wrong);
        match failures.len() {
            0 => Ok(()),
            count => Err(Failure::of_runs(count, if is_wrong { Exit::Wrong } else { Exit::Other })),
        }
    }

    /// The directory for files with its lock, if one was given: a new one, or what an earlier run has left of its own.
    fn data(&self) -> Result<Option<(PathBuf, File)>> {
        let Some(path) = &self.data else { return Ok(None) };
        fs::create_dir_all(path).map_err(|error| Failure::io("create", path, &error))?;
        let marker = path.join(DATA_MARKER);
        if !marker.exists() {
            let mut entries =
                fs::read_dir(path).map_err(|error| Failure::io("list", path, &error))?;
            if entries.next().is_some() {
                return Err(Failure::usage(format!(
                    "{} is not empty: give --data a new directory",
                    path.display()
                )));
            }
            fs::write(&marker, "").map_err(|error| Failure::io("write", &marker, &error))?;
        }
        let lock = results::lock(&marker, "--data")?;
        Ok(Some((path.clone(), lock)))
    }
}

/// A time in minutes, of which there may be parts.
fn minutes(text: &str) -> Result<Duration, String> {
    let is_possible = |minutes: &f64| *minutes > 0.0 && *minutes <= 10_000.0;
    let minutes = text.parse().ok().filter(is_possible);
    let minutes = minutes.ok_or("give minutes, above 0 and up to 10000, such as 30 or 0.5")?;
    Ok(Duration::from_secs_f64(60.0 * minutes))
}

/// Writes to standard output. That a reader has had enough is no error.
pub(super) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("write to", Path::new("standard output"), &error))
        }
        _ => Ok(()),
    }
}

/// Where medians go as JSON: opened before anything is run, so that it is known then that they can be written.
enum Medians {
    Out,
    File(PathBuf, File),
}

impl Medians {
    fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Out);
        }
        let file = File::create(path).map_err(|error| Failure::io("create", path, &error))?;
        Ok(Self::File(path.to_path_buf(), file))
    }

    fn write(self, tables: &[Table], results: &Results, scale: Scale) -> Result<()> {
        let lines = tables.iter().map(|table| summary::as_lines(table, results, scale));
        let lines: String = lines.collect::<Result<_>>()?;
        match self {
            Self::Out => print(&lines),
            Self::File(path, mut file) => file
                .write_all(lines.as_bytes())
                .map_err(|error| Failure::io("write", &path, &error)),
        }
    }
}
