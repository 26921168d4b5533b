//! The steps of a load: prepared before the clock starts, checked while it runs.

use std::sync::Mutex;
use std::time::Instant;

use turbidite_workload::clock::{self, Clock, Times};
use turbidite_workload::{Part, Start, Values, draws};

use super::job::{Act, Inside, Load, Order, Step};
use super::keys;
use super::mix;
use crate::failure::{Failure, Result};
use crate::systems::{Reader, System};

/// How many parts of a step have the moment of their end kept.
const MARKS: usize = 256;

/// What is done, and what is known about the contents of the system.
pub(super) struct Steps {
    pub(super) load: Load,
    pub(super) values: Values,
    /// The value of every record; `None` if the record is not stored.
    pub(super) contents: Vec<Option<Start>>,
    /// How many steps ran.
    pub(super) done: u32,
}

/// What a step gave.
pub(super) struct Done {
    pub(super) times: Times,
    pub(super) marks: Vec<f64>,
    /// Bytes of keys and values that were written.
    pub(super) user_bytes: u64,
}

impl Steps {
    pub(super) fn new(load: Load) -> Self {
        let values = Values::new(load.value_size as usize, load.entropy, load.seed);
        let contents = vec![None; load.records as usize];
        Self { load, values, contents, done: 0 }
    }

    /// The bytes of keys and values that can be read.
    pub(super) fn live_bytes(&self) -> u64 {
        self.contents.iter().flatten().count() as u64 * self.load.record_bytes()
    }

    pub(super) fn run(&mut self, step: &Step, system: &dyn System) -> Result<Done> {
        self.done += 1;
        match step.act {
            Act::Put => self.put(step, system),
            Act::Get => self.get(step, system, 0),
            Act::Miss => self.get(step, system, 1),
            Act::Half => self.half(step, system),
            Act::Scan => self.scan(system, false),
            Act::Reverse => self.scan(system, true),
            Act::Delete => self.delete(step, system),
            Act::Ycsb(mix) => mix::run(self, mix, step, system),
            Act::Reopen => Err(Failure::other("a step reopens what it does not own")),
        }
    }

    /// The records of a step, in the order of their use.
    fn draw(&self, step: &Step) -> Vec<u32> {
        let Load { records, seed, .. } = self.load;
        let stream = u64::from(self.done);
        let count = step.operations.unwrap_or(records);
        let mut drawn = match step.order {
            Order::Sequential => (0..records).collect(),
            Order::Shuffled => draws::shuffled(records, seed, stream),
            Order::Study => draws::study_order(records),
            Order::Replaced => draws::with_replacement(records, seed, stream),
            Order::Uniform => draws::uniform(records, count, seed, stream),
            Order::Hot => draws::hot_range(records, count, seed, stream),
            Order::Skewed => draws::skewed(records, count, seed, stream),
        };
        drawn.truncate(count as usize);
        drawn
    }

    fn put(&mut self, step: &Step, system: &dyn System) -> Result<Done> {
        let records = self.draw(step);
        // Threads that put the same record at the same time put the same value: either may be the last.
        let starts: Vec<Start> =
            records.iter().map(|&record| self.values.start(record, self.done)).collect();
        for (&record, &start) in records.iter().zip(&starts) {
            self.contents[record as usize] = Some(start);
        }
        let values = &self.values;
        let one = |key: &[u8], start: Start, _: &mut Held<'_>| system.put(key, values.at(start));
        let many = |group: Part<'_, Start>, _: &mut Held<'_>| {
            system.put_many(&mut group.iter().map(|(key, start)| (key, values.at(start))))
        };
        let numbers = records.iter().copied().map(number).collect();
        let work = Work { step, numbers, payloads: starts, read: None };
        let mut done = self.each(work, one, many)?;
        if step.persists {
            let start = Instant::now();
            system.persist()?;
            done.times.seconds += start.elapsed().as_secs_f64();
        }
        done.user_bytes = done.times.latencies.len() * self.load.record_bytes();
        Ok(done)
    }

    /// Gets the keys of records, or, with a distance of 1, those behind them, which are never there.
    fn get(&self, step: &Step, system: &dyn System, distance: u64) -> Result<Done> {
        let records = self.draw(step);
        let there = step.act == Act::Get;
        let expected: Vec<Option<Start>> = records
            .iter()
            .map(|&record| self.contents[record as usize].filter(|_| there))
            .collect();
        let numbers = records.iter().map(|&record| number(record) + distance).collect();
        self.look(Work { step, numbers, payloads: expected, read: Some(system) })
    }

    /// Every number from 0 on: the even ones are there.
    fn half(&self, step: &Step, system: &dyn System) -> Result<Done> {
        let payloads = self.contents.iter().flat_map(|&start| [start, None]).collect();
        let numbers = (0..2 * u64::from(self.load.records)).collect();
        self.look(Work { step, numbers, payloads, read: Some(system) })
    }

    fn look(&self, work: Work<'_, Option<Start>>) -> Result<Done> {
        let one = |key: &[u8], expected, reader: &mut Held<'_>| {
            self.check(reader_of(reader)?, key, expected)
        };
        let many = |group: Part<'_, Option<Start>>, reader: &mut Held<'_>| {
            self.check_many(reader_of(reader)?, group)
        };
        self.each(work, one, many)
    }

    /// Gets `key`, whose value must be the one that starts there.
    #[inline]
    fn check(&self, reader: &mut dyn Reader, key: &[u8], expected: Option<Start>) -> Result<()> {
        let mut right = true;
        let mut seen = |value: &[u8]| {
            right = expected.is_some_and(|start| self.values.matches(value, start));
        };
        let found = reader.get(key, &mut seen)?;
        if right && found == expected.is_some() {
            return Ok(());
        }
        Err(Failure::wrong(format!("a get of {} gave a wrong answer", key.escape_ascii())))
    }

    fn check_many(&self, reader: &mut dyn Reader, group: Part<'_, Option<Start>>) -> Result<()> {
        let mut expected = group.iter().filter_map(|(_, start)| start);
        let mut right = true;
        let mut seen = |value: &[u8]| {
            right &= expected.next().is_some_and(|start| self.values.matches(value, start));
        };
        let found = reader.get_many(&mut group.keys(), &mut seen)?;
        if right && found == group.iter().filter_map(|(_, start)| start).count() as u64 {
            return Ok(());
        }
        Err(Failure::wrong("a get of several keys gave a wrong answer"))
    }

    fn delete(&mut self, step: &Step, system: &dyn System) -> Result<Done> {
        let records = self.draw(step);
        records.iter().for_each(|&record| self.contents[record as usize] = None);
        let nothing = vec![(); records.len()];
        let one = |key: &[u8], (), _: &mut Held<'_>| system.delete(key);
        let many = |group: Part<'_, ()>, _: &mut Held<'_>| system.delete_many(&mut group.keys());
        let numbers = records.iter().copied().map(number).collect();
        let mut done =
            self.each(Work { step, numbers, payloads: nothing, read: None }, one, many)?;
        done.user_bytes = records.len() as u64 * self.load.keys.size() as u64;
        Ok(done)
    }

    fn scan(&self, system: &dyn System, backwards: bool) -> Result<Done> {
        let live = self.contents.iter().flatten().count();
        let times = clock::run(1, live, 64, &|_| {}, |_, clock| {
            let mut reader = system.reader()?;
            let mut last: Vec<u8> = Vec::new();
            let (mut count, mut ordered) = (0_usize, true);
            reader.scan(b"", backwards, &mut |key, value| {
                let is_next = (key < &last[..]) == backwards;
                ordered &= (is_next || count == 0) && value.len() == self.load.value_size as usize;
                last.clear();
                last.extend_from_slice(key);
                count += 1;
                clock.lap();
                true
            })?;
            match ordered && count == live {
                true => Ok(()),
                false => Err(Failure::wrong(format!(
                    "a scan gave {count} records instead of {live}, {} order",
                    if ordered { "in" } else { "out of" }
                ))),
            }
        })?;
        Ok(Done { times, marks: Vec::new(), user_bytes: 0 })
    }

    /// Runs `one` for every operation, or, with batches, `many` for each batch of them. Threads that read have a reader
    /// each. A single thread keeps marks if the step is to have them.
    fn each<T: Copy + Sync>(
        &self,
        work: Work<'_, T>,
        one: impl Fn(&[u8], T, &mut Held<'_>) -> Result<()> + Sync,
        many: impl Fn(Part<'_, T>, &mut Held<'_>) -> Result<()> + Sync,
    ) -> Result<Done> {
        let Load { keys, inside, latency_run, .. } = self.load;
        let Work { step, numbers, payloads, read } = work;
        let (count, threads) = (numbers.len(), step.threads as usize);
        let formats = inside != Inside::Nothing && step.batch == 1;
        let ready = if formats { &[][..] } else { &numbers[..] };
        let payloads_ready = if formats { Vec::new() } else { payloads.clone() };
        let operations = keys::operations(keys, ready.iter().copied(), payloads_ready);
        let marks = Mutex::new(Vec::new());
        let times = clock::run(threads, count, u64::from(latency_run), &|_| {}, |part, clock| {
            let mut reader = read.map(System::reader).transpose()?;
            let mut marker = Marker::new(if threads == 1 && step.course { count } else { 0 });
            if formats {
                let mut key = Vec::with_capacity(keys.size());
                for i in part {
                    keys::push(&mut key, keys, numbers[i]);
                    one(&key, payloads[i], &mut reader)?;
                    marker.lap(clock, 1);
                }
            } else if step.batch > 1 {
                for group in operations.part(part).groups(step.batch as usize) {
                    many(group, &mut reader)?;
                    marker.lap(clock, group.len());
                }
            } else {
                for (key, payload) in operations.part(part).iter() {
                    one(key, payload, &mut reader)?;
                    marker.lap(clock, 1);
                }
            }
            if threads == 1 {
                *marks.lock().expect("no thread panics with it") = marker.marks;
            }
            Ok::<(), Failure>(())
        })?;
        let marks = marks.into_inner().expect("no thread panics with it");
        Ok(Done { times, marks, user_bytes: 0 })
    }
}

/// The reader of a thread, if it has one.
type Held<'a> = Option<Box<dyn Reader + 'a>>;

/// The operations of a step.
struct Work<'a, T> {
    step: &'a Step,
    /// What their keys stand for.
    numbers: Vec<u64>,
    payloads: Vec<T>,
    /// What is read, if anything is.
    read: Option<&'a dyn System>,
}

/// The key of a record.
fn number(record: u32) -> u64 {
    2 * u64::from(record)
}

fn reader_of<'a, 'b>(reader: &'a mut Held<'b>) -> Result<&'a mut (dyn Reader + 'b)> {
    reader.as_deref_mut().ok_or_else(|| Failure::other("a step that reads has no reader"))
}

/// Keeps the moments at which equal parts of the operations have ended.
struct Marker {
    every: usize,
    left: usize,
    start: Instant,
    marks: Vec<f64>,
}

impl Marker {
    /// For `count` operations; for none it keeps no marks.
    fn new(count: usize) -> Self {
        let every = if count < MARKS { usize::MAX } else { count.div_ceil(MARKS) };
        Self { every, left: every, start: Instant::now(), marks: Vec::new() }
    }

    #[inline]
    fn lap(&mut self, clock: &mut Clock<'_>, count: usize) {
        clock.laps(count as u64);
        self.left = self.left.saturating_sub(count);
        if self.left == 0 {
            self.left = self.every;
            // To the microsecond, so that results stay short.
            self.marks.push((self.start.elapsed().as_secs_f64() * 1e6).round() / 1e6);
        }
    }
}
