//! How long the torture lasts, with what, and how it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::Write;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Map, Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use turbidite::Layer;
use turbidite_torture::{Engines, Report, Setting, Violation, setting, watch, workers};

use crate::failure::{Failure, Result};
use crate::output::{self, Figures};
use crate::size::Count;

/// The file layers, by name, and `all`.
const ALL: &str = "all";
/// How many of the violations are told.
const MOST_TOLD: usize = 20;
/// A line about how far it is, so often.
const INTERVAL: Duration = Duration::from_secs(10);
/// Signals that come within this time are one: it may be sent to the process and to its group.
const ONE_SIGNAL: Duration = Duration::from_millis(500);
/// How long it lasts if nothing is said.
const MINUTES: f64 = 1.0;

/// How long, and with what.
#[derive(Args, Debug)]
pub(super) struct Course {
    /// Go on with the next seed until so many minutes are over; one is begun at least. If it is not given: 1, for `mutants` 60
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,
    /// The first seed
    #[arg(long, default_value_t = 1, value_name = "S")]
    pub(super) seed: u64,
    /// End when so many seeds were tried as a whole, however long that takes; with --minutes what comes first. Not for `mutants`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The engine of all keyspaces: lsm, hash, btree, skip, or all for keyspaces on each of them
    #[arg(long, default_value = ALL, value_name = "ENGINE")]
    pub(super) engine: String,
    /// The layer of files: mmap, pos, pos-block, pos-block-cache, pos-direct, pos-direct-cache, or all
    #[arg(long, default_value = ALL, value_name = "LAYER")]
    pub(super) file: String,
    #[command(flatten)]
    pub(super) figures: Figures,
}

/// As a usage error.
pub(super) fn usage(error: impl Display) -> Failure {
    Failure::usage(error.to_string())
}

/// An option that is a time in minutes.
pub(super) fn minutes(option: &str, minutes: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| {
        Failure::usage(format!("{option} must be a number of minutes from 0 to 10^15"))
    })
}

impl Course {
    /// How long it lasts, `default` minutes if it is not said.
    pub(super) fn time(&self, default: f64) -> Result<Duration> {
        minutes("--minutes", self.minutes.unwrap_or(default))
    }

    /// An error that says what to do if a number of seeds is asked for, of which the mode knows nothing.
    pub(super) fn expect_no_seeds(&self, instead: &str) -> Result<()> {
        match self.seeds {
            Some(_) => Err(Failure::usage(format!("--seeds is not for this mode: {instead}"))),
            None => Ok(()),
        }
    }

    pub(super) fn engines(&self) -> Result<Engines> {
        self.engine.parse().map_err(usage)
    }

    pub(super) fn layers(&self) -> Result<Vec<Layer>> {
        Ok(match &*self.file {
            ALL => setting::layers(),
            name => vec![setting::layer(name).map_err(|error| usage(format!("{error}, {ALL}")))?],
        })
    }

    fn begin(&self) -> Result<Clock> {
        let (engines, layers) = (self.engines()?, self.layers()?);
        let time = match (self.minutes, self.seeds) {
            (None, Some(_)) => Duration::MAX,
            _ => self.time(MINUTES)?,
        };
        let last = self.seeds.map_or(u64::MAX, |count| self.seed.saturating_add(count - 1));
        let is_stopped = stopped_by_signals()?;
        let begun = Instant::now();
        let told = Mutex::new(begun);
        Ok(Clock { engines, layers, seeds: self.seed..=last, time, begun, is_stopped, told })
    }

    /// Tries one setting after the other.
    pub(super) fn run(
        &self,
        mode: &'static str,
        attempt: impl Fn(Setting, &Clock) -> Result<Report>,
    ) -> Result<()> {
        self.run_and_shorten(mode, attempt, |_| None)
    }

    /// Tries one setting after the other. Of the first violation it is tried to `shorten` the workload, or what was damaged.
    pub(super) fn run_and_shorten(
        &self,
        mode: &'static str,
        attempt: impl Fn(Setting, &Clock) -> Result<Report>,
        shorten: impl Fn(&Violation) -> Option<Violation>,
    ) -> Result<()> {
        let mut first = None;
        let (clock, telling) = (self.begin()?, Telling::begin(mode, self.figures));
        for setting in clock.settings() {
            clock.tell(&setting);
            match attempt(setting, &clock) {
                Ok(report) => {
                    let violation = report.violations.first().cloned();
                    telling.add(setting, report);
                    if let (None, Some(violation)) = (&first, violation) {
                        tell_shorter(shorten(first.insert(violation)));
                    }
                }
                // What was found before is not lost.
                Err(failure) => return telling.finish().and(Err(failure)),
            }
        }
        telling.finish()
    }

    /// Tries as many settings at a time as there are processors.
    pub(super) fn run_on_all_processors(
        &self,
        mode: &'static str,
        attempt: impl Fn(Setting) -> Report + Sync,
    ) -> Result<()> {
        let (clock, telling) = (self.begin()?, Telling::begin(mode, self.figures));
        workers::each(clock.settings(), |setting| {
            clock.tell(&setting);
            telling.add(setting, attempt(setting));
        });
        telling.finish()
    }
}

/// What becomes true when the process is asked to end, as by Ctrl-C, so that it tells what it has done by then. Who asks again later
/// does not wait for that.
fn stopped_by_signals() -> Result<Arc<AtomicBool>> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let (mut signals, stopped) = (Signals::new([SIGINT, SIGTERM])?, Arc::clone(&is_stopped));
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut first = None;
        for signal in signals.forever() {
            let first: &mut Instant = first.get_or_insert_with(Instant::now);
            if first.elapsed() > ONE_SIGNAL {
                low_level::exit(128 + signal);
            }
            stopped.store(true, Ordering::Relaxed);
        }
    })?;
    Ok(is_stopped)
}

/// Tells of a shorter workload, or of less damage, that fails like one that was told.
fn tell_shorter(shorter: Option<Violation>) {
    if let Some(Violation { case, problem }) = shorter {
        anstream::eprintln!("turbidite: the first one with less of it: {case}: {problem}");
    }
}

/// How far it is.
pub(super) struct Clock {
    engines: Engines,
    layers: Vec<Layer>,
    seeds: RangeInclusive<u64>,
    time: Duration,
    begun: Instant,
    /// Whether the process was asked to end.
    is_stopped: Arc<AtomicBool>,
    told: Mutex<Instant>,
}

impl Clock {
    pub(super) fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.time || self.is_stopped.load(Ordering::Relaxed)
    }

    /// Whether to go on with a setting or a case; tells now and then where it is.
    pub(super) fn goes_on(&self, next: &dyn Display) -> bool {
        self.tell(next);
        !self.is_over()
    }

    fn tell(&self, next: &dyn Display) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.elapsed() >= INTERVAL {
            *told = Instant::now();
            let minutes = self.begun.elapsed().as_secs_f64() / 60.0;
            anstream::eprintln!("turbidite: {minutes:.1} min, {next}");
        }
    }

    /// The seeds, and the layers that each is tried with, until the time is over.
    fn settings(&self) -> impl Iterator<Item = Setting> + Send {
        let engines = self.engines;
        let of_seed =
            move |seed| self.layers.iter().map(move |&layer| Setting { seed, engines, layer });
        let all = self.seeds.clone().flat_map(of_seed);
        all.enumerate().take_while(|(at, _)| *at == 0 || !self.is_over()).map(|(_, all)| all)
    }
}

/// What is told of a mode, also by whoever notices that a case hangs.
pub(super) struct Telling {
    mode: &'static str,
    figures: Figures,
    begun: Instant,
    sums: Mutex<Sums>,
}

/// What came of all settings.
#[derive(Default)]
struct Sums {
    report: Report,
    seeds: BTreeSet<u64>,
}

impl Telling {
    /// Tells of a case that hangs, too: that is a violation, and the end of the process.
    pub(super) fn begin(mode: &'static str, figures: Figures) -> Arc<Self> {
        let (begun, sums) = (Instant::now(), Mutex::default());
        let telling = Arc::new(Self { mode, figures, begun, sums });
        let of_hang = Arc::clone(&telling);
        watch::on_hang(watch::PATIENCE, move |Violation { case, problem }| {
            of_hang.note(Report::of_violation(case, problem));
            if let Err(failure) = of_hang.finish() {
                failure.report();
            }
            std::process::exit(1);
        });
        telling
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what came of a setting.
    fn add(&self, setting: Setting, report: Report) {
        self.sums().seeds.insert(setting.seed);
        self.note(report);
    }

    /// Adds a report, and tells the first violations.
    pub(super) fn note(&self, report: Report) {
        let mut sums = self.sums();
        let left = MOST_TOLD.saturating_sub(sums.report.violations.len());
        for violation in report.violations.iter().take(left) {
            anstream::eprintln!("turbidite: {}: {}", violation.case, violation.problem);
        }
        sums.report += report;
    }

    pub(super) fn finish(&self) -> Result<()> {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.sums().tell(self.mode, self.figures, seconds)
    }
}

impl Sums {
    fn tell(&self, mode: &str, figures: Figures, seconds: f64) -> Result<()> {
        let mut out = output::stdout();
        if figures.json {
            writeln!(out, "{}", self.json(mode, seconds))?;
        } else {
            for line in faults(&self.report.fired) {
                writeln!(out, "{line}")?;
            }
            writeln!(out, "{}", self.sentence(mode, seconds))?;
        }
        out.flush()?;
        match self.report.violations.len() {
            0 => Ok(()),
            violations => Err(violated(violations)),
        }
    }

    fn json(&self, mode: &str, seconds: f64) -> Value {
        let Report { cases, operations, fired, counts, most, violations } = &self.report;
        let mut line = json!({
            "mode": mode, "cases": cases, "operations": operations,
            "faults_fired": self.report.faults_fired(), "violations": violations.len(),
            "mutants_planted": 0, "mutants_caught": 0, "seconds": seconds, "seeds": self.seeds.len(),
        });
        let object = line.as_object_mut().expect("it is one");
        for (&name, &count) in counts.iter().chain(most) {
            object.insert(name.into(), count.into());
        }
        let fired: Map<_, _> =
            fired.iter().map(|(fault, &times)| (fault.clone(), times.into())).collect();
        object.insert("faults".into(), fired.into());
        let failed: Vec<Value> =
            violations.iter().map(|violation| violation.case.clone().into()).collect();
        object.insert("failed".into(), failed.into());
        line
    }

    fn sentence(&self, mode: &str, seconds: f64) -> String {
        let Report { cases, operations, counts, most, violations, .. } = &self.report;
        let counts = counts.iter().map(|(name, &count)| format!(", {} {name}", Count(count)));
        let most = most.iter().map(|(name, &there)| format!(", at most {} {name}", Count(there)));
        let others: String = counts.chain(most).collect();
        format!(
            "{mode}: {} cases, {} operations{others}, {} seeds, {:.1} min: {} violations",
            Count(*cases),
            Count(*operations),
            self.seeds.len(),
            seconds / 60.0,
            violations.len()
        )
    }
}

/// How often each fault had its effect: a line for each kind of call.
fn faults(fired: &BTreeMap<String, u64>) -> Vec<String> {
    let mut lines: BTreeMap<&str, String> = BTreeMap::new();
    for (fault, times) in fired {
        let (call, effect) = fault.split_once(' ').unwrap_or((fault, ""));
        let line = lines.entry(call).or_insert_with(|| format!("{call}:"));
        let blank = if effect.is_empty() { "" } else { " " };
        let comma = if line.ends_with(':') { "" } else { "," };
        *line += &format!("{comma}{blank}{effect} {}", Count(*times));
    }
    lines.into_values().collect()
}

pub(super) fn violated(count: usize) -> Failure {
    Failure::negative(format!("{count} promises were not kept"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_by_call() {
        let fired = [("kill", 3), ("read EIO", 1200), ("read flip", 1), ("write EIO", 2)];
        let fired = fired.map(|(fault, times)| (fault.to_owned(), times)).into();
        assert_eq!(faults(&fired), ["kill: 3", "read: EIO 1,200, flip 1", "write: EIO 2"]);
    }
}
