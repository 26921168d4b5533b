//! The phases of a benchmark, one after the other over the same keyspace.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use turbidite::{Database, Error, Keyspace, Slice};

use super::clock::{self, Clock, Times};
use super::operations::{Operations, absent, present, push_key};
use super::report::Measurement;
use super::values::Values;
use super::{Phase, Plan, draws, name};
use crate::failure::{Failure, Result};
use crate::machine;

/// How many records of a scan share one look at the clock, which would cost more than the step itself.
const SCAN_RUN: usize = 64;

/// A database under test, and what is known about its contents.
pub(crate) struct Bench {
    plan: Plan,
    database: Database,
    keyspace: Keyspace,
    values: Values,
    /// Which version of its value every record has; empty while there are no records.
    versions: Vec<u32>,
    /// How many phases ran.
    phases: u32,
}

impl Bench {
    /// Prepares for the phases over an empty database.
    pub(crate) fn new(plan: Plan, database: Database) -> Result<Self> {
        let keyspace = database.keyspace("bench", plan.keyspace_options())?;
        let values = Values::new(plan.value_size, plan.value_entropy, plan.seed);
        Ok(Self { plan, database, keyspace, values, versions: Vec::new(), phases: 0 })
    }

    /// Runs a phase, lets the database settle, and tells what it cost.
    pub(crate) fn run(&mut self, phase: Phase) -> Result<Measurement> {
        self.phases += 1;
        let before = self.database.stats().io.written_bytes;
        let progress = progress(phase, u64::from(self.plan.records));
        let times = match phase {
            Phase::Fill | Phase::Overwrite => self.put(phase, &progress),
            Phase::Get => self.get(&progress),
            Phase::Miss => self.miss(&progress),
            Phase::Scan | Phase::Reverse => self.scan(phase, &progress),
            Phase::Delete => self.delete(&progress),
        };
        progress.finish_and_clear();
        let times = times?;
        let start = Instant::now();
        if phase.writes() {
            self.database.settle()?;
        }
        let settle_seconds = start.elapsed().as_secs_f64();
        let stats = self.database.stats();
        let operations = times.latencies.len();
        Ok(Measurement {
            phase,
            operations,
            user_bytes: operations * self.operation_bytes(phase),
            seconds: times.seconds,
            settle_seconds,
            latencies: times.latencies,
            written_bytes: stats.io.written_bytes - before,
            space_bytes: stats.disk_bytes,
            live_bytes: self.live() as u64 * self.plan.record_bytes(),
            peak_rss_bytes: machine::peak_resident_bytes(),
        })
    }

    /// How many records there are.
    fn live(&self) -> usize {
        self.versions.len()
    }

    /// The user's bytes that an operation moves.
    fn operation_bytes(&self, phase: Phase) -> u64 {
        match phase {
            Phase::Miss | Phase::Delete => self.plan.key_size as u64,
            _ => self.plan.record_bytes(),
        }
    }

    fn draw(&self, phase: Phase) -> Vec<u32> {
        let plan = &self.plan;
        draws::records(plan.order, phase, plan.records, plan.seed, u64::from(self.phases))
    }

    fn operations(&self, records: &[u32], number: fn(u32) -> u64) -> Operations {
        Operations::new(records, self.plan.key_size, number, |record| {
            self.values.start(record, self.versions.get(record as usize).copied().unwrap_or(0))
        })
    }

    /// Runs `work` for every operation.
    fn each(
        &self,
        operations: &Operations,
        progress: &ProgressBar,
        work: impl Fn(&[u8], u32) -> Result<()> + Sync,
    ) -> Result<Times> {
        clock::run(self.plan.threads, self.plan.records as usize, progress, |part, clock| {
            for i in part {
                work(operations.key(i), operations.start(i))?;
                clock.lap();
            }
            Ok(())
        })
    }

    fn put(&mut self, phase: Phase, progress: &ProgressBar) -> Result<Times> {
        let records = self.draw(phase);
        self.versions.resize(self.plan.records as usize, 0);
        for &record in &records {
            self.versions[record as usize] = self.phases;
        }
        let operations = self.operations(&records, present);
        drop(records);
        self.each(&operations, progress, |key, start| {
            Ok(self.keyspace.put(key, self.values.at(start))?)
        })
    }

    fn get(&self, progress: &ProgressBar) -> Result<Times> {
        let operations = self.operations(&self.draw(Phase::Get), present);
        self.each(&operations, progress, |key, start| match self.keyspace.get(key)? {
            Some(value) if self.values.matches(&value, start) => Ok(()),
            Some(_) => Err(wrong("get", key, "a value that was not put")),
            None => Err(wrong("get", key, "nothing, the key was put")),
        })
    }

    fn miss(&self, progress: &ProgressBar) -> Result<Times> {
        let operations = self.operations(&self.draw(Phase::Miss), absent);
        self.each(&operations, progress, |key, _| match self.keyspace.get(key)? {
            None => Ok(()),
            Some(_) => Err(wrong("miss", key, "a value, the key was never put")),
        })
    }

    fn delete(&mut self, progress: &ProgressBar) -> Result<Times> {
        let operations = self.operations(&self.draw(Phase::Delete), present);
        self.versions = Vec::new();
        self.each(&operations, progress, |key, _| Ok(self.keyspace.delete(key)?))
    }

    /// Every thread walks over its part of the keys.
    fn scan(&self, phase: Phase, progress: &ProgressBar) -> Result<Times> {
        let key = |record: usize| {
            let mut key = Vec::with_capacity(self.plan.key_size);
            push_key(&mut key, 2 * record as u64, self.plan.key_size);
            key
        };
        clock::run(self.plan.threads, self.live(), progress, |part, clock| {
            let count = part.len();
            // With one thread the scan has no bounds, so that it also meets what should not be there.
            let range = match self.plan.threads {
                1 => self.keyspace.iter(),
                _ => self.keyspace.range(key(part.start)..key(part.end)),
            };
            match phase {
                Phase::Reverse => walk(range.rev(), part.rev(), count, clock, self.plan.key_size),
                _ => walk(range, part, count, clock, self.plan.key_size),
            }
        })
    }
}

/// Walks over `entries`, which must be the records of `expected`.
fn walk(
    entries: impl Iterator<Item = Result<(Slice, Slice), Error>>,
    mut expected: impl Iterator<Item = usize>,
    count: usize,
    clock: &mut Clock,
    key_size: usize,
) -> Result<()> {
    let mut seen = 0;
    for entry in entries {
        let (key, _) = entry?;
        let number = number(&key).filter(|_| key.len() == key_size);
        if number.is_none() || number != expected.next().map(|record| 2 * record as u64) {
            return Err(wrong("scan", &key, "this key out of its place"));
        }
        seen += 1;
        if seen % SCAN_RUN == 0 {
            clock.laps(SCAN_RUN as u64);
        }
    }
    if seen % SCAN_RUN > 0 {
        clock.laps((seen % SCAN_RUN) as u64);
    }
    if seen == count {
        return Ok(());
    }
    Err(Failure::damaged(format!("wrong answer of scan: {seen} records instead of {count}")))
}

/// The number that a key stands for.
fn number(key: &[u8]) -> Option<u64> {
    key.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then_some(())?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

fn wrong(operation: &str, key: &[u8], got: &str) -> Failure {
    let key = key.escape_ascii();
    Failure::damaged(format!("wrong answer of {operation} for key \"{key}\": got {got}"))
}

/// A bar on a terminal, nothing elsewhere.
fn progress(phase: Phase, operations: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:10} {wide_bar} {percent}% {per_sec} {eta} left")
        .expect("a template is a constant");
    ProgressBar::new(operations).with_style(style).with_message(name(phase))
}
