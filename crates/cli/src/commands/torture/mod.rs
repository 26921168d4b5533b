//! `turbidite torture`

mod course;
mod mutants;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use turbidite_torture::{Report, Setting, crash, faults, flip, kill, linear, model, soak};

use self::course::{Course, usage, violated};
use crate::failure::{Failure, Result};

/// Try the promises of the store: cut the power everywhere and see what is left, kill processes, have files and disks fail, compare answers with a
/// model's
///
/// All but `kill` and `soak` is done in memory: no file is touched. Ends with exit code 1 if a promise was not kept; the name of the case that is
/// told then is for `torture replay`, but for `kill` and `soak`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  turbidite torture crash --minutes 5 --seed 1
  turbidite torture faults --minutes 5 --engine btree --file mmap")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand, Debug)]
enum Mode {
    Crash(Crash),
    Kill(Kill),
    Faults(Faults),
    Flip(Flip),
    Model(Model),
    Linear(Linear),
    Mutants(mutants::Mutants),
    Soak(Soak),
    Replay(Replay),
    #[command(hide = true)]
    Write(Write),
    #[command(hide = true)]
    Mutant(mutants::Mutant),
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.mode {
            Mode::Crash(crash) => crash.run(),
            Mode::Kill(kill) => kill.run(),
            Mode::Faults(faults) => faults.run(),
            Mode::Flip(flip) => flip.run(),
            Mode::Model(model) => model.run(),
            Mode::Linear(linear) => linear.run(),
            Mode::Mutants(mutants) => mutants.run(),
            Mode::Mutant(mutant) => mutant.run(),
            Mode::Soak(soak) => soak.run(),
            Mode::Replay(replay) => replay.run(),
            Mode::Write(write) => write.run(),
        }
    }
}

/// Cut the power between any two I/O operations of a workload, and recover what may be left
///
/// Each seed is another workload with other options, on all engines, over files of each layer. At each boundary that is tried there is one image in which
/// nothing is left of what was not synced, one with all of it, some with one operation more or less, and some with any part, with torn
/// writes. Each is recovered and checked, written to and opened again; of some the recovery is cut off at each of its operations. Cases are images.
#[derive(Args, Debug)]
struct Crash {
    #[command(flatten)]
    course: Course,
    /// Cut at one boundary in so many, others with each seed
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    every: u16,
    /// Random images at each boundary
    #[arg(long, default_value_t = 2, value_name = "N")]
    randoms: usize,
}

impl Crash {
    fn run(&self) -> Result<()> {
        let effort = crash::Effort { step: self.every.into(), randoms: self.randoms };
        self.course
            .run("crash", |setting, clock| crash::run(setting, effort, || clock.goes_on(setting)))
    }
}

/// Have calls to the file system fail, each in every way, and damage what is read
///
/// A workload on all engines is run again and again: each call to the file system of each kind fails with each errno, once and until the disk is
/// repaired, in the middle of its bytes or although all was done; syncs fail and lose what they were to sync; what is read has a bit turned over or is from
/// another place; and there are storms in which any call may fail. Nothing that was acknowledged may be lost, and once the disk is repaired all must go on.
/// Cases are runs of the workload.
#[derive(Args, Debug)]
struct Faults {
    #[command(flatten)]
    course: Course,
    /// Try one case in so many, others with each seed; 1 is all of them
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
}

impl Faults {
    fn run(&self) -> Result<()> {
        let effort = faults::Effort { every: self.every as usize };
        self.course
            .run("faults", |setting, clock| faults::run(setting, effort, || clock.goes_on(setting)))
    }
}

/// Damage every bit of every file of a small database, and see whether anybody believes it
///
/// Each seed is another database, closed, and as its files are while it is open. Bits and bytes are flipped, files cut off, removed, swapped with each other and with
/// those of another database, sectors are lost or garbage. Each answer must be right or an error, an opening that fails changes nothing, and `verify` must tell of all
/// damage but where nothing depends on it. Cases are damaged databases. A case that hangs ends the process.
#[derive(Args, Debug)]
struct Flip {
    #[command(flatten)]
    course: Course,
    /// Flip one bit in so many, others with each seed; 1 is all of them
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
}

impl Flip {
    fn run(&self) -> Result<()> {
        let effort = flip::Effort { every: self.every as usize };
        self.course
            .run("flip", |setting, clock| flip::run(setting, effort, || clock.goes_on(setting)))
    }
}

/// Play random histories to a database and to a model, which must give the same answers
///
/// Each seed is another history, on all engines, with the log and without it, over files of each layer: writes, batches, loads, gets, ranges,
/// walks, snapshots, compactions, closing, kills and power cuts, with other options at each opening. A history that fails is made shorter
/// before it is told. Cases are histories.
#[derive(Args, Debug)]
struct Model {
    #[command(flatten)]
    course: Course,
}

impl Model {
    fn run(&self) -> Result<()> {
        self.course
            .run_on_all_processors("model", |setting| model::run(setting, None, model::SHORTER))
    }
}

/// Have threads write and read at the same time, and look for an order that explains what they saw
///
/// Each seed is another database: threads put, delete, commit batches, get, scan and read snapshots of a few keys of two keyspaces, while another
/// one flushes and compacts. All calls of a history must have an order, each between its beginning and its end, in which every one of them could have seen what it saw,
/// batches as a whole. Half of the histories are played by threads of the operating system, half in an order that the seed decides. Cases are histories.
#[derive(Args, Debug)]
struct Linear {
    #[command(flatten)]
    course: Course,
}

impl Linear {
    fn run(&self) -> Result<()> {
        self.course.run("linear", |setting, _| linear::run(setting))
    }
}

/// Kill processes in the middle of writing to real files, and see what is left
///
/// Each seed is another database in a directory of its own, which is removed afterwards. Processes write to it, one after the other, and are killed at some moment of their first
/// 300 ms; after each the database is opened, and all that was acknowledged must be there. Cases are kills.
#[derive(Args, Debug)]
struct Kill {
    #[command(flatten)]
    course: Course,
    /// Where databases are made; the directory for temporary files if it is not given
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A directory for one database, removed when it is dropped.
fn directory(within: Option<&Path>) -> Result<tempfile::TempDir> {
    let place = within.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let made = tempfile::Builder::new().prefix("turbidite-torture-").tempdir_in(&place);
    made.map_err(|error| {
        Failure::usage(format!("no directory can be made in {}: {error}", place.display()))
    })
}

impl Kill {
    fn run(&self) -> Result<()> {
        let place = directory(self.dir.as_deref())?;
        self.course.run("kill", |setting, clock| {
            clock.goes_on(setting);
            kill_in(place.path(), setting, None)
        })
    }
}

/// Kills processes that write to a database within `place`, in which a bug may be planted.
fn kill_in(place: &Path, setting: Setting, bug: Option<&str>) -> Report {
    let program = std::env::current_exe().unwrap_or_default();
    let start = |task: &str| {
        let mut command = Command::new(&program);
        command.args(["torture", "write", task]);
        bug.iter().for_each(|bug| _ = command.args(["--bug", bug]));
        command
    };
    in_directory(place, setting, "kill", |dir| kill::run(setting, dir, &start))
}

/// Tries a setting in a new directory within `place`, if the layer can be had there.
fn in_directory(
    place: &Path,
    setting: Setting,
    mode: &str,
    attempt: impl FnOnce(&Path) -> Report,
) -> Report {
    let tried = || -> Result<Report> {
        let dir = tempfile::tempdir_in(place)?;
        if kill::is_possible(setting.layer, dir.path())? {
            return Ok(attempt(dir.path()));
        }
        let mut skipped = Report::default();
        skipped.count("settings without direct I/O", 1);
        Ok(skipped)
    };
    tried().unwrap_or_else(|failure| {
        Report::of_violation(format!("{mode}/{setting}"), failure.message)
    })
}

/// Have one database live long, on real files, and see whether it keeps to its bounds
///
/// Threads put, delete and get, all that they read is checked, and every few seconds the database is checked as a whole, closed or just let go, and opened again with
/// other options. Memory, open files and space must stay within bounds for ever. Each seed is another pair of engines, and has its share of the time. Cases are openings.
#[derive(Args, Debug)]
struct Soak {
    #[command(flatten)]
    course: Course,
    /// Leave a database for the next one after so many minutes
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    each: f64,
    /// Where databases are made; the directory for temporary files if it is not given
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Soak {
    fn run(&self) -> Result<()> {
        let place = directory(self.dir.as_deref())?;
        let each = Duration::try_from_secs_f64(self.each * 60.0)
            .map_err(|_| Failure::usage("--each must be a number that is not negative"))?;
        self.course.run("soak", |setting, clock| {
            let begun = Instant::now();
            in_directory(place.path(), setting, "soak", |dir| {
                soak::run(setting, dir, || clock.goes_on(setting) && begun.elapsed() < each)
            })
        })
    }
}

/// What a process does that is to be killed
#[derive(Args, Debug)]
struct Write {
    task: String,
    #[arg(long)]
    bug: Option<String>,
}

impl Write {
    fn run(&self) -> Result<()> {
        if let Some(bug) = &self.bug {
            mutants::plant(bug)?;
        }
        kill::work(&self.task);
        Ok(())
    }
}

/// Try one case again, by the name that was told of it
///
/// The same seed is the same workload with threads in the same order; but the threads of what recovers an image of a power cut, and half of those of `linear`,
/// are in any order.
#[derive(Args, Debug)]
struct Replay {
    /// Such as crash/7/all/mmap/1200/keep-only:3, faults/7/all/mmap/write:120:once:EIO, flip/7/all/mmap/closed/catalog-000001/bit:12,
    /// model/7/all/mmap or linear/7/all/mmap
    #[arg(value_name = "ID")]
    case: String,
}

impl Replay {
    fn run(&self) -> Result<()> {
        let Report { violations, .. } = self.attempt()?;
        for violation in &violations {
            anstream::eprintln!("turbidite: {}: {}", violation.case, violation.problem);
        }
        if violations.is_empty() { Ok(()) } else { Err(violated(violations.len())) }
    }

    fn attempt(&self) -> Result<Report> {
        let (mode, setting) = self.case.split_once('/').unwrap_or((&self.case, ""));
        Ok(match mode {
            "crash" => crash::replay(self.case.parse().map_err(usage)?),
            "faults" => faults::replay(self.case.parse().map_err(usage)?),
            "flip" => flip::replay(self.case.parse().map_err(usage)?),
            "model" => model::run(setting.parse().map_err(usage)?, None, model::SHORTER),
            "linear" => linear::run(setting.parse().map_err(usage)?),
            "kill" => {
                return Err(Failure::usage(
                    "kills are up to chance: try them again with `torture kill --seed`",
                ));
            }
            _ => return Err(Failure::usage(format!("{:?} is not the name of a case", self.case))),
        })
    }
}
