//! How long the torture lasts, with what, and how it is told.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Map, Value, json};
use turbidite::Layer;
use turbidite_torture::{Engines, Report, Setting, setting};

use crate::failure::{Failure, Result};
use crate::output::{self, Figures};
use crate::size::Count;

/// The file layers, by name, and `all`.
const ALL: &str = "all";
/// How many of the violations are told.
const MOST_TOLD: usize = 20;
/// A line about how far it is, so often.
const INTERVAL: Duration = Duration::from_secs(10);

/// How long, and with what.
#[derive(Args, Debug)]
pub(super) struct Course {
    /// Go on with the next seed until so many minutes are over; one is begun at least
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    minutes: f64,
    /// The first seed
    #[arg(long, default_value_t = 1, value_name = "S")]
    pub(super) seed: u64,
    /// The engine of all keyspaces: lsm, hash, btree, skip, or all for keyspaces on each of them
    #[arg(long, default_value = ALL, value_name = "ENGINE")]
    engine: String,
    /// The layer of files: mmap, pos, pos-block, pos-block-cache, pos-direct, pos-direct-cache, or all
    #[arg(long, default_value = ALL, value_name = "LAYER")]
    file: String,
    #[command(flatten)]
    pub(super) figures: Figures,
}

/// As a usage error.
pub(super) fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::usage(error.to_string())
}

impl Course {
    pub(super) fn begin(&self) -> Result<Clock> {
        let engines: Engines = self.engine.parse().map_err(usage)?;
        let layers = match &*self.file {
            ALL => setting::layers(),
            name => vec![setting::layer(name).map_err(|error| usage(format!("{error}, {ALL}")))?],
        };
        let time = Duration::try_from_secs_f64(self.minutes * 60.0)
            .map_err(|_| Failure::usage("--minutes must be a number that is not negative"))?;
        let begun = Instant::now();
        Ok(Clock { engines, layers, seed: self.seed, time, begun, told: Mutex::new(begun) })
    }

    /// Tries one setting after the other.
    pub(super) fn run(
        &self,
        mode: &'static str,
        attempt: impl Fn(Setting, &Clock) -> Report,
    ) -> Result<()> {
        let clock = self.begin()?;
        let mut teller = Teller::new(mode);
        for setting in clock.settings() {
            teller.add(setting, attempt(setting, &clock));
        }
        teller.finish(self.figures, &clock)
    }

    /// Tries as many settings at a time as there are processors.
    pub(super) fn run_on_all_processors(
        &self,
        mode: &'static str,
        attempt: impl Fn(Setting) -> Report + Sync,
    ) -> Result<()> {
        let clock = self.begin()?;
        let (settings, teller) = (Mutex::new(clock.settings()), Mutex::new(Teller::new(mode)));
        let work = || {
            loop {
                let setting = settings.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(setting) = setting else { return };
                clock.tell(setting);
                let report = attempt(setting);
                teller.lock().unwrap_or_else(PoisonError::into_inner).add(setting, report);
            }
        };
        let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get());
        std::thread::scope(|scope| {
            (0..threads).for_each(|_| _ = scope.spawn(work));
        });
        let teller = teller.into_inner().unwrap_or_else(PoisonError::into_inner);
        teller.finish(self.figures, &clock)
    }
}

/// How far it is.
pub(super) struct Clock {
    engines: Engines,
    layers: Vec<Layer>,
    seed: u64,
    time: Duration,
    begun: Instant,
    told: Mutex<Instant>,
}

impl Clock {
    pub(super) fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.time
    }

    /// Whether to go on with a setting; tells now and then where it is.
    pub(super) fn goes_on(&self, setting: Setting) -> bool {
        self.tell(setting);
        !self.is_over()
    }

    fn tell(&self, setting: Setting) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.elapsed() >= INTERVAL {
            *told = Instant::now();
            let minutes = self.begun.elapsed().as_secs_f64() / 60.0;
            anstream::eprintln!("turbidite: {minutes:.1} min, {setting}");
        }
    }

    /// The seeds, and the layers that each is tried with, until the time is over.
    fn settings(&self) -> impl Iterator<Item = Setting> + Send {
        let engines = self.engines;
        let of_seed =
            move |seed| self.layers.iter().map(move |&layer| Setting { seed, engines, layer });
        let all = (self.seed..=u64::MAX).flat_map(of_seed);
        all.enumerate().take_while(|(at, _)| *at == 0 || !self.is_over()).map(|(_, all)| all)
    }
}

/// What came of all settings.
pub(super) struct Teller {
    mode: &'static str,
    sum: Report,
    seeds: std::collections::BTreeSet<u64>,
}

impl Teller {
    pub(super) fn new(mode: &'static str) -> Self {
        Self { mode, sum: Report::default(), seeds: Default::default() }
    }

    /// Adds what came of a setting, and tells its first violations.
    pub(super) fn add(&mut self, setting: Setting, report: Report) {
        let left = MOST_TOLD.saturating_sub(self.sum.violations.len());
        for violation in report.violations.iter().take(left) {
            anstream::eprintln!("turbidite: {}: {}", violation.case, violation.problem);
        }
        self.seeds.insert(setting.seed);
        self.sum += report;
    }

    pub(super) fn finish(self, figures: Figures, clock: &Clock) -> Result<()> {
        let seconds = clock.begun.elapsed().as_secs_f64();
        let mut out = output::stdout();
        if figures.json {
            writeln!(out, "{}", self.json(seconds))?;
        } else {
            for line in faults(&self.sum.fired) {
                writeln!(out, "{line}")?;
            }
            writeln!(out, "{}", self.sentence(seconds))?;
        }
        out.flush()?;
        match self.sum.violations.len() {
            0 => Ok(()),
            violations => Err(violated(violations)),
        }
    }

    fn json(&self, seconds: f64) -> Value {
        let Report { cases, operations, fired, counts, most, violations } = &self.sum;
        let mut line = json!({
            "mode": self.mode, "cases": cases, "operations": operations,
            "faults_fired": self.sum.faults_fired(), "violations": violations.len(),
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

    fn sentence(&self, seconds: f64) -> String {
        let Report { cases, operations, counts, most, violations, .. } = &self.sum;
        let counts = counts.iter().map(|(name, &count)| format!(", {} {name}", Count(count)));
        let most = most.iter().map(|(name, &there)| format!(", at most {} {name}", Count(there)));
        let others: String = counts.chain(most).collect();
        format!(
            "{}: {} cases, {} operations{others}, {} seeds, {:.1} min: {} violations",
            self.mode,
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
