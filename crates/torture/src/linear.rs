//! Linearizability: what threads that read and write at the same time see is what they would have seen one after the other, each call
//! at some moment between its beginning and its end; batches, and reads of one moment, as a whole.
//!
//! Some threads write and read a few cells, keys of two keyspaces, with puts, deletes, batches over both, gets, reads of several
//! keys, snapshots and scans, while another one flushes and compacts. Each call is noted with its beginning and end; then an order of all calls is
//! looked for that explains what was read. That is strict serializability of batches, and linearizability of single keys.
//!
//! *Source:* the search is that of Wing and Gong (1993), with the states that were met before kept in mind as by Lowe (2017).

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use turbidite::vfs::MemoryFs;
use turbidite::{Database, Durability, EngineKind, Keyspace, Range, Result, Slice};

use crate::choices::{self, mix};
use crate::history;
use crate::report::Report;
use crate::setting::Setting;
use crate::threads::{Work, together};
use crate::watch::watched;
use crate::{Dice, panics, simulated_in_peace};

/// Threads that write and read,
const THREADS: usize = 4;
/// and what each of them does in a history.
const CALLS: usize = 40;
/// Histories of one database.
const HISTORIES: u64 = 12;
/// Keys of each keyspace.
const KEYS: usize = 3;
/// Cells of both keyspaces: the keys of one behind those of the other.
const CELLS: usize = 2 * KEYS;
/// Bytes of the longest value.
const LONGEST: usize = 3000;

/// What cells hold: the number of the write, 0 for nothing.
type State = [u32; CELLS];

/// A call, with the moments between which it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Call {
    begun: u64,
    ended: u64,
    is_write: bool,
    /// What was written or read.
    cells: Vec<(usize, u32)>,
}

impl Call {
    /// The state behind the call, if it can be made in `state`.
    fn after(&self, mut state: State) -> Option<State> {
        for &(cell, number) in &self.cells {
            if self.is_write {
                state[cell] = number;
            } else if state[cell] != number {
                return None;
            }
        }
        Some(state)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { begun, ended, is_write, cells } = self;
        write!(f, "{begun}-{ended} {}", if *is_write { "writes" } else { "reads" })?;
        cells.iter().try_for_each(|(cell, number)| write!(f, " {cell}={number}"))
    }
}

/// How many calls of each thread were made.
type Front = [u8; THREADS];

/// The calls of a history, those of each thread in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Threads([Vec<Call>; THREADS]);

impl Threads {
    /// Finds an order of all calls that explains them, from `first` on; gives the state at its end.
    fn explain(&self, first: State, last: State) -> bool {
        let mut met = HashSet::from([(Front::default(), first)]);
        let mut open = vec![(Front::default(), first)];
        while let Some((front, state)) = open.pop() {
            if self.next(front).all(|call| call.is_none()) && state == last {
                return true;
            }
            // What has ended before another one begins comes before it.
            let ends = self.next(front).flatten().map(|call| call.ended);
            let limit = ends.min().unwrap_or(u64::MAX);
            for (thread, call) in self.next(front).enumerate() {
                let Some(call) = call.filter(|call| call.begun <= limit) else { continue };
                if let Some(state) = call.after(state) {
                    let mut front = front;
                    front[thread] += 1;
                    if met.insert((front, state)) {
                        open.push((front, state));
                    }
                }
            }
        }
        false
    }

    /// Leaves out cells, and then reads, for as long as no order explains the others, which none does now. What is left is wrong by itself: an order
    /// of all calls would be one of those, too.
    fn shorten(&mut self, first: &mut State, last: &mut State) {
        for cell in 0..CELLS {
            let fewer = self.without_cell(cell);
            let (mut before, mut behind) = (*first, *last);
            (before[cell], behind[cell]) = (0, 0);
            if !fewer.explain(before, behind) {
                (*self, *first, *last) = (fewer, before, behind);
            }
        }
        for thread in 0..THREADS {
            for at in (0..self.0[thread].len()).rev() {
                let call = self.0[thread].remove(at);
                if call.is_write || self.explain(*first, *last) {
                    self.0[thread].insert(at, call);
                }
            }
        }
    }

    fn without_cell(&self, cell: usize) -> Self {
        let mut fewer = self.clone();
        for calls in &mut fewer.0 {
            calls.iter_mut().for_each(|call| call.cells.retain(|&(other, _)| other != cell));
            calls.retain(|call| !call.cells.is_empty());
        }
        fewer
    }

    /// The next call of each thread.
    fn next(&self, front: Front) -> impl Iterator<Item = Option<&Call>> {
        self.0.iter().zip(front).map(|(calls, made)| calls.get(usize::from(made)))
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (thread, calls) in self.0.iter().enumerate().filter(|(_, calls)| !calls.is_empty()) {
            write!(f, "; thread {thread}:")?;
            for (at, call) in calls.iter().enumerate() {
                write!(f, "{} {call}", if at == 0 { "" } else { "," })?;
            }
        }
        Ok(())
    }
}

/// The value of a write.
fn value(number: u32) -> Vec<u8> {
    let len = 4 + Dice::new(number.into()).roll(LONGEST);
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// The number of the write that made a value, all of which must be there.
fn number(found: Option<&[u8]>) -> u32 {
    let Some(bytes) = found else { return 0 };
    let number = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    assert!(number > 0 && *bytes == value(number), "a value that nobody wrote: {bytes:?}");
    number
}

fn key(at: usize) -> [u8; 1] {
    [b'a' + at as u8]
}

/// The database under way.
struct World {
    setting: Setting,
    db: Database,
    keyspaces: [Keyspace; 2],
    /// Ticks with each call.
    clock: AtomicU64,
    writes: AtomicU64,
    is_over: AtomicBool,
}

impl World {
    fn open(fs: &MemoryFs, setting: Setting, opening: u64) -> Result<Self> {
        let builder = history::builder(Arc::new(fs.clone())).log_layer(setting.layer);
        let db = choices::database(builder, setting.seed, opening).open()?;
        let keyspaces = setting.open_pair(&db, opening, |options, _, _| options)?;
        Ok(Self {
            setting,
            db,
            keyspaces,
            clock: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    fn keyspace_of(&self, cell: usize) -> &Keyspace {
        &self.keyspaces[cell / KEYS]
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// The cells of a keyspace as a scan finds them.
    fn scanned(&self, keyspace: usize, range: Range) -> Result<Vec<(usize, u32)>> {
        let found = range.collect::<Result<BTreeMap<Slice, Slice>>>()?;
        let cell = |at: usize| {
            let found = found.get(&key(at)[..]).map(|value| &value[..]);
            (keyspace * KEYS + at, number(found))
        };
        Ok((0..KEYS).map(cell).collect())
    }

    /// Reads all cells at one moment.
    fn snapshot(&self) -> Result<Vec<(usize, u32)>> {
        let snapshot = self.db.snapshot();
        let get = |cell: usize| {
            let found = snapshot.get(self.keyspace_of(cell), key(cell % KEYS))?;
            Ok((cell, number(found.as_deref())))
        };
        (0..CELLS).map(get).collect()
    }

    fn state(&self) -> Result<State> {
        let mut state = State::default();
        self.snapshot()?.into_iter().for_each(|(cell, number)| state[cell] = number);
        Ok(state)
    }

    /// A number for a write, or 0 for a deletion.
    fn some_number(&self, dice: &mut Dice) -> u32 {
        let number = self.writes.fetch_add(1, Ordering::Relaxed) as u32 + 1;
        if dice.roll(4) == 0 { 0 } else { number }
    }

    fn write(&self, cell: usize, number: u32) -> Result<()> {
        let (keyspace, key) = (self.keyspace_of(cell), key(cell % KEYS));
        if number == 0 { keyspace.delete(key) } else { keyspace.put(key, value(number)) }
    }

    fn write_batch(&self, cells: &[(usize, u32)], durability: Durability) -> Result<()> {
        let mut batch = self.db.batch().durability(durability);
        for &(cell, number) in cells {
            let (keyspace, key) = (self.keyspace_of(cell), key(cell % KEYS));
            match number {
                0 => batch.delete(keyspace, key),
                _ => batch.put(keyspace, key, value(number)),
            };
        }
        batch.commit()
    }

    /// Does something; tells whether it was a write, and what was written or read.
    fn call(&self, dice: &mut Dice) -> Result<(bool, Vec<(usize, u32)>)> {
        let cell = dice.roll(CELLS);
        let keyspace = cell / KEYS;
        match dice.roll(12) {
            0..3 => {
                let number = self.some_number(dice);
                self.write(cell, number)?;
                Ok((true, vec![(cell, number)]))
            }
            3..5 => {
                let cells: BTreeMap<_, _> = (0..2 + dice.roll(3))
                    .map(|_| (dice.roll(CELLS), self.some_number(dice)))
                    .collect();
                let cells: Vec<_> = cells.into_iter().collect();
                let how = [Durability::Buffered, Durability::Os, Durability::Sync][dice.roll(3)];
                self.write_batch(&cells, how)?;
                Ok((true, cells))
            }
            5 if self.setting.pair()[keyspace] == EngineKind::Lsm => {
                self.keyspaces[keyspace].delete_range(key(1)..)?;
                Ok((true, (1..KEYS).map(|at| (keyspace * KEYS + at, 0)).collect()))
            }
            5..9 => {
                let found = self.keyspace_of(cell).get(key(cell % KEYS))?;
                Ok((false, vec![(cell, number(found.as_deref()))]))
            }
            9 => {
                let found = self.keyspaces[keyspace].multi_get((0..KEYS).map(key))?;
                let cells = found.iter().enumerate();
                let cell = |(at, found): (usize, &Option<Slice>)| {
                    (keyspace * KEYS + at, number(found.as_deref()))
                };
                Ok((false, cells.map(cell).collect()))
            }
            10 => Ok((false, self.snapshot()?)),
            _ => Ok((false, self.scanned(keyspace, self.keyspaces[keyspace].iter())?)),
        }
    }

    /// What one thread does, call by call.
    fn calls(&self, seed: u64) -> Vec<Call> {
        let mut dice = Dice::new(seed);
        let call = |_| {
            let begun = self.tick();
            let (is_write, cells) = self.call(&mut dice).expect("nothing fails here");
            Call { begun, ended: self.tick(), is_write, cells }
        };
        (0..CALLS).map(call).collect()
    }

    /// Flushes and compacts until the others are done.
    fn disturb(&self, seed: u64) {
        let mut dice = Dice::new(seed);
        while !self.is_over.load(Ordering::Acquire) {
            let keyspace = &self.keyspaces[dice.roll(2)];
            let done = match dice.roll(4) {
                0 => keyspace.compact(),
                1 => self.db.flush_log(),
                _ => keyspace.persist(),
            };
            done.expect("nothing fails here");
        }
    }
}

/// Tells at its end that a thread is through, even if that is a panic, and the last one that all are.
struct Through {
    world: Arc<World>,
    left: Arc<AtomicU64>,
}

impl Drop for Through {
    fn drop(&mut self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.world.is_over.store(true, Ordering::Release);
        }
    }
}

/// Records a history.
fn record(world: &Arc<World>, seed: u64, in_simulation: bool) -> Threads {
    world.is_over.store(false, Ordering::Release);
    let left = Arc::new(AtomicU64::new(THREADS as u64));
    // What only disturbs makes no calls.
    let mut works: Vec<Work<Vec<Call>>> = Vec::new();
    for thread in 0..THREADS {
        let (world, left) = (Arc::clone(world), Arc::clone(&left));
        works.push(Box::new(move || {
            let through = Through { world, left };
            through.world.calls(mix(seed, thread))
        }));
    }
    let disturbing = Arc::clone(world);
    works.push(Box::new(move || {
        disturbing.disturb(seed);
        Vec::new()
    }));
    let calls = together(works, in_simulation);
    let mut calls = calls.into_iter();
    Threads(std::array::from_fn(|_| calls.next().expect("there is one for each thread")))
}

/// Plays the histories of a setting to one database, each by threads in an order that the seed decides, with the feature `simulation`, or by those
/// of the operating system.
fn play(setting: Setting, in_simulation: bool) -> std::result::Result<u64, String> {
    let fs = MemoryFs::new();
    let told = |error: turbidite::Error| format!("{error:?}");
    let world = Arc::new(World::open(&fs, setting, 0).map_err(told)?);
    let mut calls = 0;
    for number in 0..HISTORIES {
        let mut first = world.state().map_err(told)?;
        let mut threads = record(&world, mix(setting.seed, number), in_simulation);
        let mut last = world.state().map_err(told)?;
        if !threads.explain(first, last) {
            threads.shorten(&mut first, &mut last);
            return Err(format!(
                "no order explains these calls of history {number}, from {first:?} to {last:?}, each between two moments{threads}"
            ));
        }
        calls += threads.0.iter().map(|calls| calls.len() as u64).sum::<u64>();
    }
    let last = world.state().map_err(told)?;
    drop(world);
    let again = World::open(&fs, setting, 1).and_then(|world| world.state()).map_err(told)?;
    match again == last {
        true => Ok(calls),
        false => Err(format!("{last:?} is {again:?} after reopening")),
    }
}

/// Plays the histories of a setting twice: with the threads of the operating system, and, with the feature `simulation`, in an order that the
/// seed decides. Operations are calls to the store.
pub fn run(setting: Setting) -> Report {
    let mut sum = Report::default();
    for in_simulation in [false, true] {
        if in_simulation && cfg!(not(feature = "simulation")) {
            continue;
        }
        let name = format!("linear/{setting}");
        let played = panics::caught(|| {
            watched(name.clone(), || match in_simulation {
                true => simulated_in_peace(setting.seed, || play(setting, true)),
                false => play(setting, false),
            })
        });
        sum += match played.unwrap_or_else(Err) {
            Ok(operations) => Report { cases: HISTORIES, operations, ..Report::default() },
            Err(problem) => Report::of_violation(name, problem),
        };
    }
    sum
}

#[cfg(test)]
mod tests {
    use turbidite::Layer;

    use super::*;

    fn write(begun: u64, ended: u64, cells: &[(usize, u32)]) -> Call {
        Call { begun, ended, is_write: true, cells: cells.to_vec() }
    }

    fn read(begun: u64, ended: u64, cells: &[(usize, u32)]) -> Call {
        Call { is_write: false, ..write(begun, ended, cells) }
    }

    /// Whether the calls of two threads can be explained if nothing was there before them.
    fn is_explained(one: &[Call], two: &[Call], last: &[(usize, u32)]) -> bool {
        let threads = Threads([one.to_vec(), two.to_vec(), Vec::new(), Vec::new()]);
        let mut state = State::default();
        last.iter().for_each(|&(cell, number)| state[cell] = number);
        threads.explain(State::default(), state)
    }

    #[test]
    fn calls_at_the_same_time_may_come_in_any_order() {
        for found in [0, 1] {
            assert!(is_explained(
                &[write(0, 3, &[(0, 1)])],
                &[read(1, 2, &[(0, found)])],
                &[(0, 1)]
            ));
        }
        assert!(!is_explained(&[write(0, 3, &[(0, 1)])], &[read(1, 2, &[(0, 2)])], &[(0, 1)]));
    }

    #[test]
    fn what_has_ended_is_seen_and_not_lost_again() {
        let put = [write(0, 1, &[(0, 1)])];
        assert!(is_explained(&put, &[read(2, 3, &[(0, 1)])], &[(0, 1)]));
        assert!(!is_explained(&put, &[read(2, 3, &[(0, 0)])], &[(0, 1)]));
        assert!(!is_explained(&put, &[], &[]));
        // Seen once, and then no more.
        let slow = [write(0, 9, &[(0, 1)])];
        assert!(!is_explained(&slow, &[read(1, 2, &[(0, 1)]), read(3, 4, &[(0, 0)])], &[(0, 1)]));
        assert!(is_explained(&slow, &[read(1, 2, &[(0, 0)]), read(3, 4, &[(0, 1)])], &[(0, 1)]));
    }

    #[test]
    fn half_of_a_batch_is_never_seen() {
        let batch = [write(0, 9, &[(0, 1), (4, 2)])];
        let end = [(0, 1), (4, 2)];
        for (one, two, is_right) in [(0, 0, true), (1, 2, true), (1, 0, false), (0, 2, false)] {
            let snapshot = [read(1, 2, &[(0, one), (4, two)])];
            assert_eq!(is_explained(&batch, &snapshot, &end), is_right);
        }
    }

    #[test]
    fn what_is_told_is_what_is_wrong() {
        let mut threads = Threads([
            vec![write(0, 1, &[(0, 1), (3, 1)]), read(8, 9, &[(0, 1), (3, 1)])],
            vec![read(2, 3, &[(0, 1)]), write(4, 5, &[(3, 2)]), read(6, 7, &[(3, 2), (4, 0)])],
            vec![write(0, 9, &[(4, 7)])],
            Vec::new(),
        ]);
        let (mut first, mut last) = ([0; CELLS], [1, 0, 0, 2, 7, 0]);
        assert!(
            !threads.explain(first, last),
            "the first thread does not see what the second one wrote"
        );
        threads.shorten(&mut first, &mut last);
        assert_eq!(
            threads.to_string(),
            "; thread 0: 0-1 writes 3=1, 8-9 reads 3=1; thread 1: 4-5 writes 3=2"
        );
        assert_eq!((first, last), ([0; CELLS], [0, 0, 0, 2, 0, 0]));
        // Half of a batch, which takes two cells.
        let mut threads = Threads([
            vec![write(0, 9, &[(0, 1), (4, 2)]), write(10, 11, &[(1, 5)])],
            vec![read(1, 2, &[(0, 1), (1, 0), (4, 0)])],
            Vec::new(),
            Vec::new(),
        ]);
        let (mut first, mut last) = ([0; CELLS], [1, 5, 0, 0, 2, 0]);
        threads.shorten(&mut first, &mut last);
        assert_eq!(threads.0[0], [write(0, 9, &[(0, 1), (4, 2)])]);
        assert_eq!(threads.0[1], [read(1, 2, &[(0, 1), (4, 0)])]);
    }

    #[test]
    fn a_thread_that_panics_ends_the_history() {
        for in_simulation in [false, cfg!(feature = "simulation")] {
            let play = || {
                let fs = MemoryFs::new();
                let world = Arc::new(World::open(&fs, Setting::new(1, Layer::Mmap), 0).unwrap());
                // Nobody wrote that.
                for cell in 0..CELLS {
                    world.keyspace_of(cell).put(key(cell % KEYS), "?").unwrap();
                }
                record(&world, 1, in_simulation)
            };
            let panic = panics::caught(|| match in_simulation {
                true => crate::simulated(1, play),
                false => play(),
            });
            assert!(panic.is_err(), "it has ended, and without a panic");
        }
    }

    #[test]
    fn engines_are_linearizable() {
        for seed in 0..6 {
            let report = run(Setting::new(seed, Layer::Positional));
            assert!(report.violations.is_empty(), "{:?}", report.violations);
            assert!(report.operations >= HISTORIES * (THREADS * CALLS) as u64);
        }
    }

    /// Those of bugs that are mended.
    #[test]
    fn seeds_that_have_hung() {
        let report = run("82/all/pos-block-cache".parse().unwrap());
        assert!(report.violations.is_empty(), "{:?}", report.violations);
    }
}
