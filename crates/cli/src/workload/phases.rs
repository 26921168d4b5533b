//! The phases of a benchmark, one after the other over the same keyspace.

use std::ops::Bound;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use turbidite::{Error, Slice};
use turbidite_workload::clock::{self, Clock, Times};
use turbidite_workload::{Operations, Part, Start, Values, machine, push_key};

use super::counters::Counters;
use super::keys::absent;
use super::report::Measurement;
use super::skip::Skip;
use super::tree::Tree;
use super::{Phase, Plan, Reopening, Store, name};
use crate::failure::{Failure, Result};
use crate::progress::Progress;

/// How many records of a scan share one look at the clock, which would cost more than the step itself.
const SCAN_RUN: u64 = 64;

/// What is done, and what is known about the contents of the database.
pub(crate) struct Bench {
    plan: Plan,
    values: Values,
    /// The value of every record; `None` if the record is not stored.
    contents: Vec<Option<Start>>,
    /// How many phases ran.
    phases: u32,
    /// Whether the last one wrote.
    written: bool,
}

impl Bench {
    /// Prepares for the phases over an empty database.
    pub(crate) fn new(plan: Plan) -> Self {
        let values = Values::new(plan.value_size, plan.value_entropy, plan.seed);
        let contents = vec![None; plan.records as usize];
        Self { plan, values, contents, phases: 0, written: false }
    }

    /// Whether the database has to be opened anew before `phase`.
    pub(crate) fn reopens_before(&self, phase: Phase) -> bool {
        self.plan.reopen && self.written && !phase.writes()
    }

    /// Runs a phase, has what it wrote persisted if that is asked for, lets the database settle, and tells what it
    /// cost. `reopening` came before it.
    pub(crate) fn run(
        &mut self,
        phase: Phase,
        store: &Store,
        reopening: Reopening,
    ) -> Result<Measurement> {
        self.phases += 1;
        self.written = phase.writes();
        let before = store.database.stats();
        let hidden = self.plan.progress;
        let progress = if hidden { ProgressBar::hidden() } else { bar(phase, self.plan.records) };
        let telling = hidden.then(|| {
            let done = progress.clone();
            Progress::start(name(phase), store.keyspace.clone(), move || done.position())
        });
        let done = match phase {
            Phase::Fill | Phase::Overwrite => self.put(phase, store, &progress),
            Phase::Get | Phase::Miss => self.get(phase, store, &progress),
            Phase::Scan | Phase::Reverse => self.scan(phase, store, &progress),
            Phase::Delete => self.delete(store, &progress),
            Phase::Count => self.count(store, &progress),
        };
        progress.finish_and_clear();
        let Done { times, found } = done?;
        let persists = self.plan.persist && phase.writes();
        let persist_seconds = if persists { persist(store)? } else { 0.0 };
        let settle_seconds = if phase.writes() { settle(store)? } else { 0.0 };
        drop(telling);
        let stats = store.database.stats();
        let operations = times.latencies.len();
        Ok(Measurement {
            phase,
            operations,
            found,
            user_bytes: self.moved_bytes(phase, operations, found),
            seconds: times.seconds + persist_seconds,
            persist_seconds,
            settle_seconds,
            reopening,
            latencies: times.latencies,
            counters: Counters::of(&stats).since(Counters::of(&before)),
            tree: Tree::of(&stats, &before, self.plan.record_bytes()),
            skip: Skip::of(&stats, &before),
            space_bytes: stats.disk_bytes,
            keyspace_bytes: stats.keyspaces.iter().map(|keyspace| keyspace.disk_bytes).sum(),
            live_bytes: self.live().count() as u64 * self.plan.record_bytes(),
            peak_rss_bytes: machine::peak_resident_bytes(),
        })
    }

    /// The records that are stored, ascending.
    fn live(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.contents).filter(|(_, value)| value.is_some()).map(|(record, _)| record)
    }

    /// The user's bytes that the operations of a phase moved.
    fn moved_bytes(&self, phase: Phase, operations: u64, found: u64) -> u64 {
        let values = match phase {
            Phase::Get | Phase::Miss => found,
            Phase::Delete => 0,
            _ => operations,
        };
        operations * self.plan.key_size as u64 + values * self.plan.value_size as u64
    }

    fn draw(&self, phase: Phase) -> Vec<u32> {
        self.plan.keys.draw(&self.plan, phase, self.phases)
    }

    /// An operation for each of `records`, with the key `number` gives for it.
    fn operations<T: Copy>(
        &self,
        records: &[u32],
        number: impl Fn(u32) -> u64,
        payloads: Vec<T>,
    ) -> Operations<T> {
        let numbers = records.iter().map(|&record| number(record));
        Operations::new(numbers, self.plan.key_size, payloads)
    }

    /// Runs `one` for every operation, or, with batches, `many` for each batch of them.
    fn each<T: Copy + Sync>(
        &self,
        operations: &Operations<T>,
        progress: &ProgressBar,
        one: impl Fn(&[u8], T) -> Result<()> + Sync,
        many: impl Fn(Part<'_, T>) -> Result<()> + Sync,
    ) -> Result<Times> {
        let Plan { threads, records, batch, latency_run, .. } = self.plan;
        let told = |count| progress.inc(count);
        clock::run(threads, records as usize, latency_run, &told, |part, clock| {
            let part = operations.part(part);
            if batch > 1 {
                return part.groups(batch).try_for_each(|group| {
                    many(group)?;
                    clock.laps(group.len() as u64);
                    Ok(())
                });
            }
            part.iter().try_for_each(|(key, payload)| {
                one(key, payload)?;
                clock.lap();
                Ok(())
            })
        })
    }

    fn put(&mut self, phase: Phase, store: &Store, progress: &ProgressBar) -> Result<Done> {
        let records = self.draw(phase);
        // Threads that put the same record at the same time put the same value: either may be the last.
        let shared = self.plan.threads > 1;
        let number = |(i, &record)| if shared { record } else { i };
        let starts: Vec<Start> = (0..)
            .zip(&records)
            .map(|operation| self.values.start(number(operation), self.phases))
            .collect();
        for (&record, &start) in records.iter().zip(&starts) {
            self.contents[record as usize] = Some(start);
        }
        let operations =
            self.operations(&records, |record| self.plan.keys.of_record(record), starts);
        drop(records);
        let values = &self.values;
        let one = |key: &[u8], start| Ok(store.keyspace.put(key, values.at(start))?);
        let many = |group: Part<'_, Start>| {
            let mut batch = store.database.batch();
            for (key, start) in group.iter() {
                batch.put(&store.keyspace, key, values.at(start));
            }
            Ok(batch.commit()?)
        };
        Ok(self.each(&operations, progress, one, many)?.into())
    }

    fn get(&self, phase: Phase, store: &Store, progress: &ProgressBar) -> Result<Done> {
        let records = self.draw(phase);
        let stored = phase == Phase::Get;
        let expected =
            records.iter().map(|&record| self.contents[record as usize].filter(|_| stored));
        let expected: Vec<_> = expected.collect();
        let found = expected.iter().flatten().count() as u64;
        let number =
            |record| if stored { self.plan.keys.of_record(record) } else { absent(record) };
        let operations = self.operations(&records, number, expected);
        drop(records);
        let one = |key: &[u8], expected| self.check(key, expected, store.keyspace.get(key)?);
        let many = |group: Part<'_, Option<Start>>| {
            let values = store.keyspace.multi_get(group.keys())?;
            if values.len() != group.len() {
                let (values, keys) = (values.len(), group.len());
                return Err(Failure::damaged(format!(
                    "wrong answer of {}: {values} values for {keys} keys",
                    name(phase)
                )));
            }
            let mut answers = group.iter().zip(values);
            answers.try_for_each(|((key, expected), value)| self.check(key, expected, value))
        };
        let times = self.each(&operations, progress, one, many)?;
        Ok(Done { times, found })
    }

    /// Whether `value` is what a get of `key` has to give.
    #[inline]
    fn check(&self, key: &[u8], expected: Option<Start>, value: Option<Slice>) -> Result<()> {
        match (value, expected) {
            (None, None) => Ok(()),
            (Some(value), Some(start)) if self.values.matches(&value, start) => Ok(()),
            (Some(_), Some(_)) => Err(wrong("get", key, "a value that was not put")),
            (None, Some(_)) => Err(wrong("get", key, "nothing, the key was put")),
            (Some(_), None) => Err(wrong("get", key, "a value, the key is not there")),
        }
    }

    fn delete(&mut self, store: &Store, progress: &ProgressBar) -> Result<Done> {
        let records = self.draw(Phase::Delete);
        records.iter().for_each(|&record| self.contents[record as usize] = None);
        let nothing = vec![(); records.len()];
        let operations =
            self.operations(&records, |record| self.plan.keys.of_record(record), nothing);
        drop(records);
        let one = |key: &[u8], ()| Ok(store.keyspace.delete(key)?);
        let many = |group: Part<'_, ()>| {
            let mut batch = store.database.batch();
            for key in group.keys() {
                batch.delete(&store.keyspace, key);
            }
            Ok(batch.commit()?)
        };
        Ok(self.each(&operations, progress, one, many)?.into())
    }

    /// Every thread walks over its part of the keys. The first has no lower bound and the last no upper one,
    /// so that they also meet what should not be there.
    fn scan(&self, phase: Phase, store: &Store, progress: &ProgressBar) -> Result<Done> {
        let Plan { threads, key_size, keys, .. } = self.plan;
        let numbers: Vec<u64> = self.live().map(|record| keys.of_record(record)).collect();
        let key = |i: usize| {
            let mut key = Vec::with_capacity(key_size);
            push_key(&mut key, numbers[i], key_size);
            key
        };
        let run = self.plan.latency_run.max(SCAN_RUN);
        let told = |count| progress.inc(count);
        let times = clock::run(threads, numbers.len(), run, &told, |part, clock| {
            let from = match part.start {
                0 => Bound::Unbounded,
                start => Bound::Included(key(start)),
            };
            let to = match part.end {
                end if end == numbers.len() => Bound::Unbounded,
                end => Bound::Excluded(key(end)),
            };
            let range = store.keyspace.range((from, to));
            let expected = numbers[part].iter().copied();
            match phase {
                Phase::Reverse => walk(range.rev(), expected.rev(), clock, key_size),
                _ => walk(range, expected, clock, key_size),
            }
        })?;
        Ok(times.into())
    }

    fn count(&self, store: &Store, progress: &ProgressBar) -> Result<Done> {
        let live = self.live().count();
        let told = |count| progress.inc(count);
        let times = clock::run(1, live, 1, &told, |_, clock| {
            let counted = store.keyspace.count()?;
            clock.laps(counted);
            if counted == live as u64 {
                return Ok(());
            }
            Err(Failure::damaged(format!("wrong answer of count: {counted} instead of {live}")))
        })?;
        Ok(times.into())
    }
}

/// Waits until all that was written is in the keyspace's own files, and tells for how many seconds.
fn persist(store: &Store) -> Result<f64> {
    let start = Instant::now();
    store.keyspace.persist()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Waits until the database has nothing left to do, and tells for how many seconds.
fn settle(store: &Store) -> Result<f64> {
    let start = Instant::now();
    store.database.settle()?;
    Ok(start.elapsed().as_secs_f64())
}

/// What the operations of a phase gave.
struct Done {
    times: Times,
    /// How many of the keys asked for were there.
    found: u64,
}

impl From<Times> for Done {
    fn from(times: Times) -> Self {
        Self { times, found: 0 }
    }
}

/// Walks over `entries`, whose keys must be the numbers `expected`.
fn walk(
    mut entries: impl Iterator<Item = Result<(Slice, Slice), Error>>,
    mut expected: impl ExactSizeIterator<Item = u64>,
    clock: &mut Clock<'_>,
    key_size: usize,
) -> Result<()> {
    entries.try_for_each(|entry| {
        let (key, _) = entry?;
        let number = number(&key).filter(|_| key.len() == key_size);
        if number.is_none() || number != expected.next() {
            return Err(wrong("scan", &key, "this key out of its place"));
        }
        clock.lap();
        Ok(())
    })?;
    match expected.len() {
        0 => Ok(()),
        missing => {
            Err(Failure::damaged(format!("wrong answer of scan: {missing} records too few")))
        }
    }
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
fn bar(phase: Phase, operations: u32) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:10} {wide_bar} {percent}% {per_sec} {eta} left")
        .expect("a template is a constant");
    ProgressBar::new(operations.into()).with_style(style).with_message(name(phase))
}

#[cfg(test)]
mod tests {
    use turbidite::Layer;

    use crate::engine::{Engine, EngineArguments};

    use super::super::{Keys, LogArguments, MemoryArguments, Order};
    use super::*;

    fn plan(keys: Keys, batch: usize) -> Plan {
        Plan {
            engine: Engine::Lsm,
            parts: EngineArguments::default(),
            file: Layer::Positional,
            log_file: Layer::Mmap,
            log: LogArguments::default(),
            memory: MemoryArguments::default(),
            keys,
            records: 200,
            key_size: 8,
            value_size: 40,
            value_entropy: 1.0,
            order: Order::Random,
            threads: 1,
            batch,
            latency_run: 16,
            reopen: true,
            persist: false,
            trace: None,
            progress: false,
            seed: 3,
        }
    }

    /// Whether `phase` answers rightly over a filled database that `harm` was done to.
    fn passes(
        plan: &Plan,
        phase: Phase,
        harm: impl Fn(&Store, &Bench) -> turbidite::Result<()>,
    ) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::create(&dir.path().join("db"), plan).unwrap();
        let mut bench = Bench::new(plan.clone());
        bench.run(Phase::Fill, &store, Reopening::default()).unwrap();
        assert!(bench.reopens_before(Phase::Get) && !bench.reopens_before(Phase::Overwrite));
        harm(&store, &bench).unwrap();
        (store, _) = store.reopen().unwrap();
        bench.run(phase, &store, Reopening::default()).is_ok()
    }

    /// The keys that a get in the next phase asks for, those that are there first.
    fn asked(bench: &Bench) -> (Vec<u8>, Option<Vec<u8>>) {
        let Plan { records, seed, keys, key_size, .. } = bench.plan;
        let drawn = match keys {
            Keys::Number => (0..records).collect(),
            Keys::Study => turbidite_workload::draws::with_replacement(records, seed, 2),
        };
        let (there, missing): (Vec<u32>, Vec<u32>) =
            drawn.into_iter().partition(|&record| bench.contents[record as usize].is_some());
        let key = |&record: &u32| {
            let mut key = Vec::new();
            push_key(&mut key, keys.of_record(record), key_size);
            key
        };
        (key(&there[0]), missing.first().map(key))
    }

    #[test]
    fn wrong_contents_are_noticed() {
        for (keys, batch) in
            [(Keys::Number, 1), (Keys::Number, 7), (Keys::Study, 1), (Keys::Study, 7)]
        {
            let plan = plan(keys, batch);
            for phase in [Phase::Get, Phase::Scan, Phase::Reverse, Phase::Count] {
                assert!(passes(&plan, phase, |_, _| Ok(())), "{plan:?}");
                let lost = |store: &Store, bench: &Bench| store.keyspace.delete(asked(bench).0);
                assert!(!passes(&plan, phase, lost), "{phase:?} {plan:?}");
            }
            let changed = |store: &Store, bench: &Bench| store.keyspace.put(asked(bench).0, "x");
            assert!(!passes(&plan, Phase::Get, changed), "{plan:?}");
            let more = |store: &Store, _: &Bench| store.keyspace.put("00000300x", "y");
            assert!(!passes(&plan, Phase::Scan, more), "{plan:?}");
            assert!(!passes(&plan, Phase::Count, more), "{plan:?}");
            if keys == Keys::Study {
                let more = |store: &Store, bench: &Bench| {
                    store.keyspace.put(asked(bench).1.expect("a key that is not there"), "x")
                };
                assert!(!passes(&plan, Phase::Get, more), "{plan:?}");
            }
        }
    }

    #[test]
    fn a_key_that_should_be_missing_is_noticed() {
        for batch in [1, 7] {
            let plan = plan(Keys::Number, batch);
            assert!(passes(&plan, Phase::Miss, |_, _| Ok(())));
            let more = |store: &Store, _: &Bench| store.keyspace.put("00000007", "x");
            assert!(!passes(&plan, Phase::Miss, more));
        }
    }

    #[test]
    fn an_overwritten_value_is_not_the_old_one() {
        for (keys, batch) in [(Keys::Number, 1), (Keys::Study, 7)] {
            let plan = plan(keys, batch);
            let dir = tempfile::tempdir().unwrap();
            let store = Store::create(&dir.path().join("db"), &plan).unwrap();
            let mut bench = Bench::new(plan);
            bench.run(Phase::Fill, &store, Reopening::default()).unwrap();
            let before = bench.contents.clone();
            bench.run(Phase::Overwrite, &store, Reopening::default()).unwrap();
            bench.run(Phase::Get, &store, Reopening::default()).unwrap();
            bench.contents = before;
            assert!(bench.run(Phase::Get, &store, Reopening::default()).is_err());
        }
    }
}
