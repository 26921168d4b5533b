//! `turbidite torture`

use std::cell::Cell;
use std::io::Write;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;
use turbidite::Layer;
use turbidite_torture::crash::{self, CaseId, Effort, Outcome, Violation};
use turbidite_torture::model::{self, Figures as Played};

use crate::failure::{Failure, Result};
use crate::output::{self, Figures};
use crate::size::Count;

/// The file layers, by name, and `all`.
const ALL: &str = "all";
/// How many of the violations are told.
const MOST_TOLD: usize = 20;
/// A line about how far it is, so often.
const INTERVAL: Duration = Duration::from_secs(10);

/// Try the promises of the store: cut the power everywhere and see what is left, compare answers with a model's
///
/// All is done in memory: no file is touched. Ends with exit code 1 if a promise was not kept; the name of the case that is
/// told then is for `torture replay`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  turbidite torture crash --minutes 5 --seed 1")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand, Debug)]
enum Mode {
    Crash(Crash),
    Model(Model),
    Replay(Replay),
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.mode {
            Mode::Crash(crash) => crash.run(),
            Mode::Model(model) => model.run(),
            Mode::Replay(replay) => replay.run(),
        }
    }
}

/// How long, and with what.
#[derive(Args, Debug)]
struct Course {
    /// Go on with the next seed until so many minutes are over; one is begun at least
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    minutes: f64,
    /// The first seed
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// The layer of files: mmap, pos, pos-block, pos-block-cache, pos-direct, pos-direct-cache, or all
    #[arg(long, default_value = ALL, value_name = "LAYER")]
    file: String,
    #[command(flatten)]
    figures: Figures,
}

impl Course {
    fn begin(&self) -> Result<Clock> {
        let all = crash::layers();
        let chosen = |layer: &Layer| [ALL, &layer.to_string()].contains(&&*self.file);
        let layers: Vec<_> = all.iter().copied().filter(chosen).collect();
        if layers.is_empty() {
            let names = all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let what = format!("unknown file layer {:?}: one of {names}, or {ALL}", self.file);
            return Err(Failure::usage(what));
        }
        let time = Duration::try_from_secs_f64(self.minutes * 60.0)
            .map_err(|_| Failure::usage("--minutes must be a number that is not negative"))?;
        let begun = Instant::now();
        Ok(Clock { layers, time, begun, told: Cell::new(begun) })
    }

    /// The seeds, and the layers that each is tried with, until the time is over.
    fn cases<'a>(&'a self, clock: &'a Clock) -> impl Iterator<Item = (u64, Layer)> + 'a {
        let seeds = self.seed..=u64::MAX;
        let all = seeds.flat_map(|seed| clock.layers.iter().map(move |&layer| (seed, layer)));
        all.enumerate().take_while(|(at, _)| *at == 0 || !clock.is_over()).map(|(_, case)| case)
    }
}

/// How far it is.
struct Clock {
    layers: Vec<Layer>,
    time: Duration,
    begun: Instant,
    told: Cell<Instant>,
}

impl Clock {
    fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.time
    }

    /// Tells now and then where it is.
    fn tell(&self, seed: u64, layer: Layer) {
        if self.told.get().elapsed() >= INTERVAL {
            self.told.set(Instant::now());
            let minutes = self.begun.elapsed().as_secs_f64() / 60.0;
            anstream::eprintln!("turbidite: {minutes:.1} min, seed {seed}, {layer}");
        }
    }
}

/// Cut the power between any two I/O operations of a workload, and recover what may be left
///
/// Each seed is another workload with other options, on all engines, over files of each layer. At each boundary that is tried there is one image in which
/// nothing is left of what was not synced, one with all of it, some with one operation more or less, and some with any part, with torn
/// writes. Each is recovered and checked, written to and opened again; of some the recovery is cut off at each of its operations.
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
        let clock = self.course.begin()?;
        let effort = Effort { step: self.every.into(), randoms: self.randoms };
        let (mut seeds, mut sum) = (0, Outcome::default());
        for (seed, layer) in self.course.cases(&clock) {
            seeds = seed - self.course.seed + 1;
            let outcome = crash::run(seed, layer, effort, || {
                clock.tell(seed, layer);
                !clock.is_over()
            });
            sum.images += outcome.images;
            sum.operations += outcome.operations;
            sum.commits += outcome.commits;
            let left = MOST_TOLD.saturating_sub(sum.violations.len());
            outcome.violations.iter().take(left).for_each(tell);
            sum.violations.extend(outcome.violations);
        }
        self.print(seeds, &sum, clock.begun.elapsed())?;
        if sum.violations.is_empty() { Ok(()) } else { Err(violated(sum.violations.len())) }
    }

    fn print(&self, seeds: u64, sum: &Outcome, taken: Duration) -> Result<()> {
        let Outcome { images, operations, commits, violations } = sum;
        let mut out = output::stdout();
        if self.course.figures.json {
            let cases: Vec<_> = violations.iter().map(|found| found.case.to_string()).collect();
            let line = json!({
                "mode": "crash", "cases": images, "operations": operations, "faults_fired": images,
                "violations": violations.len(), "mutants_planted": 0, "mutants_caught": 0,
                "seconds": taken.as_secs_f64(), "seeds": seeds, "commits": commits, "failed": cases,
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(
                out,
                "{} images of {} operations and {} commits, {seeds} seeds from {}, {:.1} min: {} violations",
                Count(*images),
                Count(*operations),
                Count(*commits),
                self.course.seed,
                taken.as_secs_f64() / 60.0,
                violations.len()
            )?;
        }
        Ok(out.flush()?)
    }
}

/// Play random histories to a database and to a model, which must give the same answers
///
/// Each seed is another history, on all engines, with the log and without it, over files of each layer: writes, batches, loads, gets, ranges,
/// walks, snapshots, compactions, closing, kills and power cuts, with other options at each opening. A history that fails is made shorter
/// before it is told.
#[derive(Args, Debug)]
struct Model {
    #[command(flatten)]
    course: Course,
}

impl Model {
    fn run(&self) -> Result<()> {
        let clock = self.course.begin()?;
        let (mut histories, mut sum, mut failed) = (0_u64, Played::default(), Vec::new());
        for (seed, layer) in self.course.cases(&clock) {
            clock.tell(seed, layer);
            histories += 1;
            match model::play(seed, layer, None) {
                Ok(played) => {
                    sum.operations += played.operations;
                    sum.flushes += played.flushes;
                    sum.compactions += played.compactions;
                    sum.reopenings += played.reopenings;
                }
                Err(violation) => {
                    let case = format!("model/{}/{}", violation.seed, violation.layer);
                    anstream::eprintln!("turbidite: {case}: {}", violation.problem);
                    failed.push(case);
                }
            }
        }
        let Played { operations, flushes, compactions, reopenings } = sum;
        let seconds = clock.begun.elapsed().as_secs_f64();
        let mut out = output::stdout();
        if self.course.figures.json {
            let line = json!({
                "mode": "model", "cases": histories, "operations": operations, "faults_fired": 0,
                "violations": failed.len(), "mutants_planted": 0, "mutants_caught": 0,
                "seconds": seconds, "flushes": flushes, "compactions": compactions,
                "reopenings": reopenings, "failed": failed,
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(
                out,
                "{} histories of {} operations from seed {}, with {} flushes, {} compactions and {} openings, {:.1} min: \
                 {} violations",
                Count(histories),
                Count(operations),
                self.course.seed,
                Count(flushes),
                Count(compactions),
                Count(reopenings),
                seconds / 60.0,
                failed.len()
            )?;
        }
        out.flush()?;
        if failed.is_empty() { Ok(()) } else { Err(violated(failed.len())) }
    }
}

/// Try one case again, by the name that was told of it
#[derive(Args, Debug)]
struct Replay {
    /// Such as crash/7/mmap/1200/keep-only:3 or model/7/mmap
    #[arg(value_name = "ID")]
    case: String,
}

impl Replay {
    fn run(&self) -> Result<()> {
        if let Some((seed, layer)) = self.history() {
            return model::play(seed, layer, None).map(drop).map_err(|violation| {
                anstream::eprintln!("turbidite: {}: {}", self.case, violation.problem);
                violated(1)
            });
        }
        let case: CaseId = self
            .case
            .parse()
            .map_err(|error: crash::NoCase| Failure::usage(format!("{error}, or model/7/mmap")))?;
        crash::replay(case).map_err(|violation| {
            tell(&violation);
            violated(1)
        })
    }

    /// Seed and layer of a history of the model.
    fn history(&self) -> Option<(u64, Layer)> {
        let (seed, layer) = self.case.strip_prefix("model/")?.split_once('/')?;
        let layer = crash::layers().into_iter().find(|known| known.to_string() == layer)?;
        Some((seed.parse().ok()?, layer))
    }
}

fn tell(Violation { case, problem }: &Violation) {
    anstream::eprintln!("turbidite: {case}: {problem}");
}

fn violated(count: usize) -> Failure {
    Failure::negative(format!("{count} promises were not kept"))
}
