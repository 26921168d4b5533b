//! `turbidite torture`

mod course;
mod mutants;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use turbidite::Layer;
use turbidite_torture::{Report, Setting, crash, faults, flip, kill, linear, model, soak};

use self::course::{Course, Telling, usage};
use crate::failure::{Failure, Result};
use crate::output::Figures;

/// Try the promises of the store: cut the power everywhere and see what is left, kill processes, have files and disks fail, compare answers with a
/// model's
///
/// All but `kill`, `soak` and a part of `mutants` is done in memory: no file is touched. Ends with exit code 1 if a promise was not kept; the name of
/// the case that is told then is for `torture replay`, but for those of `kill` and `soak`, which are not played again. A case that hangs, for two minutes, is a promise that was not kept, too. Ctrl-C
/// ends all but `mutants` as if the time were over: what was tried is told. The second one ends it at once.
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

/// So long it is tried to find a shorter workload that fails.
const SHORTENING: Duration = Duration::from_secs(60);

/// Cut the power between any two I/O operations of a workload, and recover what may be left
///
/// Each seed is another workload with other options, on all engines, over files of each layer. At each boundary that is tried there is one image in which
/// nothing is left of what was not synced, one with all of it, some with one operation more or less, and some with any part, with torn
/// writes; the first of these wherever something has just been promised to survive power loss, too. Each is recovered and checked, written to and opened again; of some the recovery is cut off at each of its operations. Cases are images.
#[derive(Args, Debug)]
struct Crash {
    #[command(flatten)]
    course: Course,
    /// Cut at one boundary in so many, others with each seed
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    every: u16,
    /// Begin with the boundary behind so many operations, as where an earlier run has ended
    #[arg(long, default_value_t = 0, value_name = "N")]
    from: u32,
    /// Random images at each boundary
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(..=crash::MOST_RANDOMS as i64))]
    randoms: u16,
}

impl Crash {
    fn run(&self) -> Result<()> {
        let effort = crash::Effort {
            from: self.from as usize,
            randoms: self.randoms.into(),
            ..crash::Effort::one_in(self.every.into())
        };
        self.course.run_and_shorten(
            "crash",
            |setting, clock| {
                let mut report = crash::run(setting, effort, |case| clock.goes_on(case));
                if report.operations < self.from.into() && report.violations.is_empty() {
                    report.count("settings that end before --from", 1);
                }
                Ok(report)
            },
            |violation| crash::shorten(violation, SHORTENING),
        )
    }
}

/// Have calls to the file system fail, each in every way, and damage what is read
///
/// A workload on all engines is run again and again: each call to the file system of each kind fails with each errno, once and until the disk is
/// repaired, in the middle of its bytes or although all was done; the process is killed, or the power cut, when the store has told of that; syncs fail and lose what they were to sync; what is read has a bit turned over, is from
/// another place or was written over since, in recoveries, too; all calls of one kind about one kind of files fail; disks die, refuse changes or become full, or too many files are open; calls take long; and there are storms in which any call may fail. Nothing that was acknowledged may be lost, and once the disk is repaired all must go on.
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
        self.course.run_and_shorten(
            "faults",
            |setting, clock| Ok(faults::run(setting, effort, |case| clock.goes_on(case))),
            |violation| faults::shorten(violation, SHORTENING),
        )
    }
}

/// Damage the files of a small database, one bit in so many or every one, and see whether anybody believes it
///
/// Each seed is another database, closed, as its files are while it is open, and with commits at the end of its log that were not synced. Bits and bytes are flipped, files cut off, removed, swapped with each other and with
/// those of another database, sectors are lost, garbage, or those of another place. Each answer must be right or an error, also when the database was written to and
/// compacted, an opening that fails changes nothing, and `verify` must tell of all damage but where nothing depends on it. Cases are damaged databases.
#[derive(Args, Debug)]
struct Flip {
    #[command(flatten)]
    course: Course,
    /// Flip one bit in so many, others with each seed; 1 is all that are in use (of what two states of the database share, one sector in 16)
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
}

impl Flip {
    fn run(&self) -> Result<()> {
        let effort = flip::Effort { every: self.every as usize };
        self.course.run_and_shorten(
            "flip",
            |setting, clock| Ok(flip::run(setting, effort, |case| clock.goes_on(case))),
            |violation| flip::shorten(violation, SHORTENING),
        )
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
        self.course.run("linear", |setting, _| Ok(linear::run(setting)))
    }
}

/// Kill processes in the middle of writing to real files, and see what is left
///
/// Each seed is another database in a directory of its own, which is removed afterwards unless something was wrong. Processes write to it, one after the other, and are killed at some moment of their first
/// 300 ms; after each the database is opened, and all that was acknowledged must be there. Cases are kills.
#[derive(Args, Debug)]
struct Kill {
    #[command(flatten)]
    course: Course,
    /// Where databases are made; the directory for temporary files if it is not given
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A directory within this one, or that for temporary files.
fn directory(within: Option<&Path>) -> Result<tempfile::TempDir> {
    let place = within.map_or_else(std::env::temp_dir, Path::to_path_buf);
    if place.to_str().is_none() {
        return Err(Failure::usage(format!("{} is not UTF-8: give --dir", place.display())));
    }
    let made = tempfile::Builder::new().prefix("turbidite-torture-").tempdir_in(&place);
    made.map_err(|error| {
        Failure::usage(format!("no directory can be made in {}: {error}", place.display()))
    })
}

impl Kill {
    fn run(&self) -> Result<()> {
        self.course.run("kill", |setting, _| kill_in(self.dir.as_deref(), setting, None))
    }
}

/// Kills processes that write to a database within `place`, in which a bug may be planted.
fn kill_in(place: Option<&Path>, setting: Setting, bug: Option<&str>) -> Result<Report> {
    let program = std::env::current_exe()?;
    let start = |task: &str| {
        let mut command = Command::new(&program);
        // Ctrl-C is for this process, not for those that it kills.
        command.process_group(0).args(["torture", "write", task]);
        bug.iter().for_each(|bug| _ = command.args(["--bug", bug]));
        command
    };
    in_directory(place, setting.layer, |dir| kill::run(setting, dir, &start))
}

/// Tries something in a new directory within `place`, if the layer can be had there. It is removed afterwards, unless something was wrong.
fn in_directory(
    place: Option<&Path>,
    layer: Layer,
    attempt: impl FnOnce(&Path) -> Report,
) -> Result<Report> {
    let dir = directory(place)?;
    if !kill::is_possible(layer, dir.path())? {
        let mut skipped = Report::default();
        skipped.count("settings without direct I/O", 1);
        return Ok(skipped);
    }
    let mut report = attempt(dir.path());
    if !report.violations.is_empty() {
        let kept = dir.keep();
        for violation in &mut report.violations {
            violation.problem += &format!(" (what is left is in {})", kept.display());
        }
    }
    Ok(report)
}

/// Have one database live long, on real files, and see whether it keeps to its bounds
///
/// Threads put, delete and get, all that they read is checked, and every few seconds the database is checked as a whole, closed or just let go, and opened again with
/// other options. Its directory is removed afterwards unless something was wrong. Memory, open files and space must stay within bounds for ever. Each seed is another pair of engines, and has its share of the time. Cases are openings.
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
        let each = course::minutes("--each", self.each)?;
        self.course.run("soak", |setting, clock| {
            let begun = Instant::now();
            in_directory(self.dir.as_deref(), setting.layer, |dir| {
                soak::run(setting, dir, || clock.goes_on(&setting) && begun.elapsed() < each)
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
/// The same seed is the same workload with threads in the same order; but the threads of what opens damaged files, and half of those of `linear`,
/// are in any order.
#[derive(Args, Debug)]
struct Replay {
    /// Such as crash/7/all/mmap/1200/keep-only:3, faults/7/all/mmap/write:120:once:EIO, flip/7/all/mmap/closed/catalog-000001/bit:12,
    /// model/7/all/mmap or linear/7/all/mmap
    #[arg(value_name = "ID")]
    case: String,
    #[command(flatten)]
    figures: Figures,
}

impl Replay {
    fn run(&self) -> Result<()> {
        let telling = Telling::begin("replay", self.figures);
        let report = self.attempt()?;
        telling.note(report);
        telling.finish()
    }

    fn attempt(&self) -> Result<Report> {
        let (mode, setting) = self.case.split_once('/').unwrap_or((&self.case, ""));
        // What is wrong without any damage or fault has the name of a setting alone.
        let whole = setting.parse::<Setting>();
        Ok(match (mode, whole) {
            ("crash", _) => crash::replay(self.case.parse().map_err(usage)?).map_err(usage)?,
            ("faults", Ok(setting)) => faults::run_without(setting),
            ("faults", _) => faults::replay(self.case.parse().map_err(usage)?).map_err(usage)?,
            ("flip", Ok(setting)) => flip::run_without(setting),
            ("flip", _) => flip::replay(self.case.parse().map_err(usage)?).map_err(usage)?,
            ("model", setting) => model::run(setting.map_err(usage)?, None, model::SHORTER),
            ("linear", setting) => linear::run(setting.map_err(usage)?),
            ("kill" | "soak", _) => {
                return Err(Failure::usage(format!(
                    "what `{mode}` does is up to chance: try its seed again with `torture {mode} --seed`"
                )));
            }
            _ => {
                return Err(Failure::usage(format!(
                    "{:?} is not the name of a case: one begins with crash, faults, flip, model or linear, as \
                     crash/7/all/mmap/1200/keep-only:3 does",
                    self.case
                )));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_what_was_wrong_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let files = || std::fs::read_dir(place.path()).unwrap().flatten().map(|entry| entry.path());
        let tried = |report: Report| {
            let attempt = |dir: &Path| {
                std::fs::write(dir.join("file"), "x").unwrap();
                report
            };
            in_directory(Some(place.path()), Layer::Positional, attempt).unwrap()
        };
        assert!(tried(Report::default()).violations.is_empty() && files().count() == 0);
        let report = tried(Report::of_violation("kill/7/all/pos", "lost".into()));
        let kept = files().next().unwrap();
        let problem = &report.violations[0].problem;
        assert!(
            problem.starts_with("lost") && problem.contains(kept.to_str().unwrap()),
            "{problem}"
        );
        assert!(kept.join("file").exists());
    }
}
