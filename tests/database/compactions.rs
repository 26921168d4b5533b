//! Compactions of LSM-trees as they are done: in parts by several threads, with faults at each of their calls, and with the
//! power cut in their midst.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, MemoryFs, Operation, PowerCut, Times};
use turbidite::{
    CompactionLock, Database, Durability, ErrorKind, Event, JobKind, Keyspace, KeyspaceOptions,
    Level, LevelLimit, Policy, Snapshot,
};

use crate::history::Dice;

const PATH: &str = "/data/compactions.db";
const NAME: &str = "main";
const EIO: Errno = Errno::Raw(5);
const NO_SPACE: Errno = Errno::Raw(28);
/// At most so many calls of one operation get a fault each.
const MOST_CALLS: u64 = 40;
/// The keys there are.
const KEYS: usize = 3000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(fs: Arc<dyn turbidite::vfs::Fs>, threads: usize) -> Database {
    let builder = Database::builder(PATH).memory_budget(8 << 20).background_threads(threads);
    builder.file_system(fs).open().unwrap()
}

fn options() -> KeyspaceOptions {
    KeyspaceOptions::lsm().table_size(64 << 10).separate_values(2500)
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number:07}").into_bytes()
}

/// Puts and deletes at random, also in a model. Some values are long enough to be kept apart.
fn write(keyspace: &Keyspace, model: &mut Model, dice: &mut Dice, count: usize) {
    for _ in 0..count {
        let key = key(dice.roll(KEYS));
        if dice.roll(6) == 0 {
            keyspace.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = vec![dice.roll(256) as u8; 200 + dice.roll(3000)];
            keyspace.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

/// Deletes a range at random, also in a model: it may reach over many tables, and over the ends of parts.
fn delete_some(keyspace: &Keyspace, model: &mut Model, dice: &mut Dice) {
    let (from, len) = (dice.roll(KEYS), dice.roll(KEYS / 5));
    let bounds = match dice.roll(8) {
        0 => (Bound::Unbounded, Bound::Included(key(len))),
        1 => (Bound::Excluded(key(KEYS - len)), Bound::Unbounded),
        _ => (Bound::Included(key(from)), Bound::Excluded(key(from + len))),
    };
    keyspace.delete_range(bounds.clone()).unwrap();
    model.retain(|key, _| !bounds.contains(key));
}

fn content(keyspace: &Keyspace) -> Model {
    let records = keyspace.iter().map(|record| record.unwrap());
    records.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn assert_whole(db: &Database) {
    let report = db.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// The names of the files of tables and values.
fn files(fs: &MemoryFs) -> BTreeSet<PathBuf> {
    let is_data = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "table" || extension == "values")
    };
    fs.files().into_iter().map(|(path, _)| path).filter(is_data).collect()
}

/// How many files a keyspace knows of.
fn known(keyspace: &Keyspace) -> u64 {
    let stats = keyspace.stats();
    stats.levels.iter().map(|level| level.tables).sum::<u64>() + stats.values.files
}

/// A tree of several runs, all of which a full compaction merges: nothing is due in it.
fn runs(dice: &mut Dice) -> (MemoryFs, Model) {
    let fs = MemoryFs::new();
    let db = open(Arc::new(fs.clone()), 1);
    let policy = Policy::Tiered { runs: 64 };
    let keyspace = db.keyspace(NAME, options().policy(policy)).unwrap();
    let mut model = Model::new();
    for _ in 0..4 {
        write(&keyspace, &mut model, dice, 900);
        delete_some(&keyspace, &mut model, dice);
        write(&keyspace, &mut model, dice, 30);
        keyspace.persist().unwrap();
    }
    drop(keyspace);
    db.close().unwrap();
    (fs, model)
}

#[test]
fn a_large_merge_in_parts_keeps_what_one_in_a_whole_keeps() {
    for threads in [1, 2, 4] {
        let fs = MemoryFs::new();
        let db = open(Arc::new(fs.clone()), threads);
        let keyspace = db.keyspace(NAME, options()).unwrap();
        let (mut model, mut dice) = (Model::new(), Dice::new(11));
        let mut held = Vec::new();
        for _ in 0..4 {
            write(&keyspace, &mut model, &mut dice, 1500);
            held.push((db.snapshot(), model.clone()));
            keyspace.compact().unwrap();
            assert!(content(&keyspace) == model, "{threads} threads");
        }
        for (snapshot, model) in held.drain(..) {
            assert!(content_of(&snapshot, &keyspace) == model, "{threads} threads");
        }
        keyspace.put("one more", "value").unwrap();
        keyspace.compact().unwrap();
        let entries: u64 = keyspace.stats().levels.iter().map(|level| level.entries).sum();
        assert_eq!(entries, model.len() as u64 + 1, "{threads} threads: nothing old is left");
        assert_eq!(keyspace.stats().values.garbage, 0);
        db.settle().unwrap();
        assert_eq!(files(&fs).len() as u64, known(&keyspace), "{threads} threads");
        assert_whole(&db);
    }
}

/// What is in a snapshot.
fn content_of(snapshot: &Snapshot, keyspace: &Keyspace) -> Model {
    let records = snapshot.iter(keyspace).map(|record| record.unwrap());
    records.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn ranges_that_are_deleted_are_gone_in_all_parts_and_tables() {
    for threads in [1, 2, 4] {
        let (fs, what) = (MemoryFs::new(), format!("{threads} threads"));
        let (mut model, mut dice) = (Model::new(), Dice::new(30 + threads as u64));
        for _ in 0..2 {
            let db = open(Arc::new(fs.clone()), threads);
            let keyspace = db.keyspace(NAME, options()).unwrap();
            assert!(content(&keyspace) == model, "{what}: it is as it was");
            let mut held = Vec::new();
            for round in 0..6 {
                for _ in 0..6 {
                    write(&keyspace, &mut model, &mut dice, 200);
                    delete_some(&keyspace, &mut model, &mut dice);
                }
                if round % 2 == 0 {
                    held.push((db.snapshot(), model.clone()));
                }
                match round % 3 {
                    0 => keyspace.compact().unwrap(),
                    1 => keyspace.persist().unwrap(),
                    _ => db.settle().unwrap(),
                }
                assert!(content(&keyspace) == model, "{what}, round {round}");
                for (snapshot, model) in &held {
                    assert!(content_of(snapshot, &keyspace) == *model, "{what}, round {round}");
                }
                for number in (round..KEYS).step_by(11) {
                    let found = keyspace.get(key(number)).unwrap();
                    assert_eq!(found.as_deref(), model.get(&key(number)).map(|value| &value[..]));
                }
                assert_whole(&db);
            }
            drop(held);
            keyspace.put("one more", "value").unwrap();
            model.insert(b"one more".to_vec(), b"value".to_vec());
            keyspace.compact().unwrap();
            let entries: u64 = keyspace.stats().levels.iter().map(|level| level.entries).sum();
            assert_eq!(entries, model.len() as u64, "{what}: nothing old is left");
            db.settle().unwrap();
            assert_eq!(files(&fs).len() as u64, known(&keyspace), "{what}");
            write(&keyspace, &mut model, &mut dice, 100);
            delete_some(&keyspace, &mut model, &mut dice);
            drop(keyspace);
            db.close().unwrap();
        }
    }
}

/// A tree that is written to while several threads compact it, what it must hold, and what it tells of its jobs.
struct Beside {
    fs: MemoryFs,
    threads: usize,
    lock: CompactionLock,
    options: KeyspaceOptions,
    events: Arc<Mutex<Vec<Event>>>,
    model: Model,
    dice: Dice,
}

impl Beside {
    fn open(&self) -> (Database, Keyspace) {
        let events = Arc::clone(&self.events);
        let builder = Database::builder(PATH).memory_budget(8 << 20);
        let builder = builder.background_threads(self.threads).compaction_lock(self.lock);
        let listener = move |event: &Event| events.lock().unwrap().push(event.clone());
        let fs = Arc::new(self.fs.clone());
        let db = builder.listener(Arc::new(listener)).file_system(fs).open().unwrap();
        let keyspace = db.keyspace(NAME, self.options.clone()).unwrap();
        (db, keyspace)
    }

    /// Fills the deepest level.
    fn fill(&mut self) {
        let (db, keyspace) = self.open();
        for number in 0..KEYS {
            let (key, value) = (key(number), vec![number as u8; 300 + self.dice.roll(600)]);
            keyspace.put(&key, &value).unwrap();
            self.model.insert(key, value);
        }
        keyspace.compact().unwrap();
        drop(keyspace);
        db.close().unwrap();
    }

    /// Flushes again and again, with ranges of all lengths, while others compact; gives the database up as a kill would.
    fn write(&mut self, rounds: usize) {
        let (db, keyspace) = self.open();
        assert!(content(&keyspace) == self.model, "it is as it was");
        let mut held: Vec<(Snapshot, Model)> = Vec::new();
        for round in 0..rounds {
            for _ in 0..1 + self.dice.roll(4) {
                for _ in 0..150 {
                    let (key, len) = (key(self.dice.roll(KEYS)), 300 + self.dice.roll(600));
                    let value = vec![round as u8; len];
                    keyspace.put(&key, &value).unwrap();
                    self.model.insert(key, value);
                }
                let longest =
                    [3, 30, KEYS / 8, KEYS / 2][[0, 0, 0, 1, 1, 2, 2, 3][self.dice.roll(8)]];
                let from = self.dice.roll(KEYS);
                let bounds = key(from)..key(from + 1 + self.dice.roll(longest));
                keyspace.delete_range(bounds.clone()).unwrap();
                self.model.retain(|key, _| !bounds.contains(key));
            }
            if self.dice.roll(4) == 0 {
                self.load(&keyspace, round);
            }
            match self.dice.roll(8) {
                0 if held.len() < 3 => held.push((db.snapshot(), self.model.clone())),
                1 if !held.is_empty() => drop(held.swap_remove(0)),
                _ => keyspace.persist().unwrap(),
            }
            for _ in 0..40 {
                let key = key(self.dice.roll(KEYS));
                let now = (keyspace.get(&key).unwrap(), self.model.get(&key));
                assert_eq!(now.0.as_deref(), now.1.map(|value| &value[..]), "round {round}");
                for (snapshot, model) in &held {
                    let then = (snapshot.get(&keyspace, &key).unwrap(), model.get(&key));
                    assert_eq!(then.0.as_deref(), then.1.map(|value| &value[..]), "round {round}");
                }
            }
            if round % 10 == 9 {
                assert!(content(&keyspace) == self.model, "round {round}");
                for (snapshot, model) in &held {
                    assert!(content_of(snapshot, &keyspace) == *model, "round {round}");
                }
                assert_whole(&db);
            }
        }
    }

    /// Loads records in order, over what is there and what was deleted: they have no numbers of their own.
    fn load(&mut self, keyspace: &Keyspace, round: usize) {
        let (first, step) = (self.dice.roll(KEYS / 2), 1 + self.dice.roll(9));
        let numbers = (first..KEYS).step_by(step).take(150);
        let records: Vec<_> = numbers.map(|number| (key(number), vec![round as u8; 600])).collect();
        keyspace.load_sorted(records.iter().map(|(key, value)| (key, value))).unwrap();
        self.model.extend(records);
    }

    /// Compacts all there is: nothing is left of what was deleted, nor of what deleted it.
    fn end(&mut self) {
        let (db, keyspace) = self.open();
        assert!(content(&keyspace) == self.model, "it is as it was");
        db.settle().unwrap();
        assert!(content(&keyspace) == self.model);
        keyspace.put(key(0), "the last").unwrap();
        self.model.insert(key(0), b"the last".to_vec());
        keyspace.compact().unwrap();
        assert!(content(&keyspace) == self.model);
        let stats = keyspace.stats();
        assert_eq!(stats.entries, self.model.len() as u64, "nothing old is left");
        let tombstones: u64 = stats.levels.iter().map(|level| level.range_tombstones).sum();
        assert_eq!(tombstones, 0, "nothing older is left");
        assert_eq!(files(&self.fs).len() as u64, known(&keyspace));
        assert_whole(&db);
    }
}

/// Whether a merge is one of a column of level 0: its tables are a part of the keys there are.
fn is_of_a_column(event: &Event) -> bool {
    let from_level_0 = event.inputs.iter().filter(|range| range.level == 0);
    let mut of_part = from_level_0
        .filter(|range| range.largest < key(2 * KEYS / 3) || range.smallest > key(KEYS / 3));
    event.kind == JobKind::Merge && of_part.next().is_some()
}

#[test]
fn ranges_over_columns_and_parts_while_threads_compact_side_by_side() {
    let table = 64 << 10;
    let levels = vec![
        Level::Tiering(LevelLimit::Count(2)),
        Level::Levelling(LevelLimit::Bytes(300_000)),
        Level::Levelling(LevelLimit::Bytes(700_000)),
    ];
    let policies = [Policy::Levelled { size_ratio: 10 }, Policy::Levels(levels)];
    for (case, (threads, policy)) in [2, 4]
        .into_iter()
        .flat_map(|threads| policies.clone().map(|policy| (threads, policy)))
        .enumerate()
    {
        let what = format!("{threads} threads, {policy:?}");
        println!("{what}");
        let has_columns = matches!(policy, Policy::Levelled { .. });
        let apart = if case % 2 == 0 { 0 } else { 700 };
        let mut beside = Beside {
            fs: MemoryFs::new(),
            threads,
            lock: if case == 3 { CompactionLock::Range } else { CompactionLock::RangeLevel },
            options: KeyspaceOptions::lsm().policy(policy).table_size(table).separate_values(apart),
            events: Arc::default(),
            model: Model::new(),
            dice: Dice::new(100 + case as u64),
        };
        beside.fill();
        beside.events.lock().unwrap().clear();
        (0..3).for_each(|_| beside.write(40));
        let events = std::mem::take(&mut *beside.events.lock().unwrap());
        let bytes = |event: &Event| event.inputs.iter().map(|range| range.bytes).sum::<u64>();
        // A part is as large as four tables at least.
        let in_parts = |event: &&Event| event.kind == JobKind::Merge && bytes(event) >= 8 * table;
        assert!(events.iter().filter(in_parts).count() > 3, "{what}: no merge was large");
        assert!(events.iter().any(|event| event.together > 1), "{what}: none were side by side");
        if has_columns {
            let is_cut = |event: &Event| {
                event.kind == JobKind::Flush && event.outputs.iter().any(|range| range.tables > 1)
            };
            assert!(events.iter().any(is_cut), "{what}: no flush ended tables where columns do");
            assert!(events.iter().any(is_of_a_column), "{what}: no column was compacted by itself");
        }
        beside.end();
    }
}

#[test]
fn a_table_that_is_moved_takes_its_range_tombstones_along() {
    let levels =
        vec![Level::Tiering(LevelLimit::Count(1)), Level::Levelling(LevelLimit::Bytes(1 << 30))];
    let mut tree = Beside {
        fs: MemoryFs::new(),
        threads: 2,
        lock: CompactionLock::default(),
        options: KeyspaceOptions::lsm().policy(Policy::Levels(levels)).table_size(64 << 10),
        events: Arc::default(),
        model: Model::new(),
        dice: Dice::new(3),
    };
    tree.fill();
    let (db, keyspace) = tree.open();
    let snapshot = (db.snapshot(), tree.model.clone());
    tree.events.lock().unwrap().clear();
    // Each flush has keys of its own, and deletes what lies deepest between them.
    for first in (0..KEYS).step_by(KEYS / 6) {
        let bounds = key(first + 10)..key(first + KEYS / 6 - 10);
        keyspace.delete_range(bounds.clone()).unwrap();
        tree.model.retain(|key, _| !bounds.contains(key));
        for number in (first..first + KEYS / 6).step_by(5) {
            let value = vec![first as u8; 800];
            keyspace.put(key(number), &value).unwrap();
            tree.model.insert(key(number), value);
        }
        keyspace.persist().unwrap();
        db.settle().unwrap();
        assert!(content(&keyspace) == tree.model);
    }
    let moves = |event: &&Event| event.kind == JobKind::Move && event.outputs[0].level == 1;
    assert!(tree.events.lock().unwrap().iter().filter(moves).count() > 1, "none is moved");
    let of_level_1 = keyspace.stats().levels.into_iter().find(|level| level.level == 1).unwrap();
    assert!(of_level_1.range_tombstones > 1, "{of_level_1:?}");
    assert!(content_of(&snapshot.0, &keyspace) == snapshot.1);
    assert_whole(&db);
    drop((snapshot, keyspace, db));
    tree.end();
}

#[test]
fn a_large_merge_is_shared_among_threads() {
    let (fs, model) = runs(&mut Dice::new(5));
    let time = |threads| {
        let faults = FaultFs::new(Arc::new(fs.fork()));
        let db = open(Arc::new(faults.clone()), threads);
        let keyspace = db.open_keyspace(NAME).unwrap();
        // Waiting for the device is what all of the time is spent on.
        let slow = Effect::Delay(Duration::from_millis(20));
        let slow = Fault { times: Times::Always, ..Fault::new(Operation::Sync, slow) };
        faults.arm(Fault { name_contains: ".table".into(), ..slow });
        let begun = Instant::now();
        keyspace.compact().unwrap();
        let taken = begun.elapsed();
        assert!(content(&keyspace) == model);
        taken
    };
    let (alone, shared) = (time(1), time(4));
    assert!(shared < alone * 3 / 4, "{alone:?} alone, {shared:?} with others");
}

#[test]
fn a_merge_that_fails_anywhere_leaves_all_as_it_was() {
    let (fs, model) = runs(&mut Dice::new(6));
    let compact = |threads, fault: Option<Fault>, operation| {
        let fs = fs.fork();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let db = open(Arc::new(faults.clone()), threads);
        let keyspace = db.open_keyspace(NAME).unwrap();
        keyspace.persist().unwrap();
        let (inputs, before) = (files(&fs), faults.calls(operation));
        let what = format!("{threads} threads, {fault:?}");
        fault.into_iter().for_each(|fault| faults.arm(fault));
        let outcome = keyspace.compact();
        let calls = faults.calls(operation) - before;
        faults.disarm();
        if let Err(error) = &outcome {
            assert!(!error.to_string().contains("panic"), "{what}: {error:?}");
            assert!(files(&fs).is_superset(&inputs), "{what}");
        }
        assert!(content(&keyspace) == model, "{what}");
        let is_poisoned = keyspace.put("one more", "value").is_err();
        if outcome.is_err() && !is_poisoned {
            assert!(files(&fs) == inputs, "{what}: what was written is removed");
        }
        let db = match is_poisoned {
            true => {
                drop((keyspace, db));
                open(Arc::new(fs.clone()), threads)
            }
            false => db,
        };
        let keyspace = db.open_keyspace(NAME).unwrap();
        keyspace.delete("one more").unwrap();
        keyspace.compact().unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert!(content(&keyspace) == model, "{what}");
        assert_eq!(files(&fs).len() as u64, known(&keyspace), "{what}");
        assert_whole(&db);
        (calls, outcome.is_err())
    };
    let mut failed = 0;
    for operation in
        [Operation::Read, Operation::Write, Operation::Create, Operation::Sync, Operation::SyncDir]
    {
        for threads in [1, 4] {
            let (calls, _) = compact(threads, None, operation);
            let step = (calls * 2 / MOST_CALLS).max(1) as usize;
            for after in (0..calls).step_by(step) {
                let errno = if (after / step as u64).is_multiple_of(2) { EIO } else { NO_SPACE };
                let fault = Fault { after, ..Fault::new(operation, Effect::Fail(errno)) };
                failed += u64::from(compact(threads, Some(fault), operation).1);
            }
        }
    }
    assert!(failed > 50, "{failed} compactions failed");
}

#[test]
fn a_merge_that_fails_in_the_background_is_done_again() {
    for threads in [1, 4] {
        for (operation, errno) in [
            (Operation::Read, EIO),
            (Operation::Write, EIO),
            (Operation::Write, NO_SPACE),
            (Operation::Create, NO_SPACE),
        ] {
            let fs = MemoryFs::new();
            let faults = FaultFs::new(Arc::new(fs.clone()));
            let db = open(Arc::new(faults.clone()), threads);
            let keyspace = db.keyspace(NAME, options().log(false)).unwrap();
            let (mut model, mut dice) = (Model::new(), Dice::new(8));
            for round in 0..8 {
                write(&keyspace, &mut model, &mut dice, 700);
                let fault = Fault::new(operation, Effect::Fail(errno));
                let after = 5 * round;
                faults.arm(Fault { name_contains: ".table".into(), after, ..fault });
                // Those who wait are told of trouble while it lasts.
                let patience = Instant::now() + Duration::from_secs(30);
                while let Err(error) = keyspace.persist().and_then(|()| db.settle()) {
                    let kind = error.kind();
                    assert!(matches!(kind, ErrorKind::Io | ErrorKind::NoSpace), "{error:?}");
                    assert!(Instant::now() < patience, "{error:?}");
                }
                faults.disarm();
            }
            assert!(faults.fired() > 0 && keyspace.stats().compactions > 0);
            assert!(content(&keyspace) == model, "{operation:?}");
            assert_eq!(files(&fs).len() as u64, known(&keyspace), "{operation:?}");
            assert_whole(&db);
        }
    }
}

/// What was put, in its order, and how far it was safe after so many operations.
#[derive(Default)]
struct Acknowledged {
    puts: Vec<(usize, usize)>,
    safe: Vec<(usize, usize)>,
}

impl Acknowledged {
    /// How many puts were safe when so many operations had been done.
    fn safe_at(&self, operations: usize) -> usize {
        let known = self.safe.partition_point(|(at, _)| *at <= operations);
        known.checked_sub(1).map_or(0, |last| self.safe[last].1)
    }

    /// The values after so many puts: the number of the last put of each key.
    fn state(&self, count: usize) -> BTreeMap<usize, usize> {
        self.puts[..count].iter().map(|&(number, key)| (key, number)).collect()
    }
}

/// The value of a put: long enough for tables to fill up, and now and then for a file of values.
fn numbered(number: usize) -> Vec<u8> {
    let mut value = vec![number as u8; if number.is_multiple_of(9) { 3000 } else { 900 }];
    value[..8].copy_from_slice(&(number as u64).to_le_bytes());
    value
}

/// Puts without a pause, some of them safe when they return, while compactions run beside each other: until there have been some, and
/// there are two levels, which comes late where threads are slow.
fn overwrite(fs: &MemoryFs, threads: usize) -> Acknowledged {
    let db = open(Arc::new(fs.clone()), threads);
    let keyspace = db.keyspace(NAME, options()).unwrap();
    let (mut done, mut dice) = (Acknowledged::default(), Dice::new(threads as u64));
    let is_enough = || {
        let stats = keyspace.stats();
        stats.compactions > 3 && stats.levels.len() > 1
    };
    for number in 0..90_000 {
        if number >= 9000 && is_enough() {
            break;
        }
        let key = dice.roll(KEYS);
        let durability = if number % 50 == 49 { Durability::Sync } else { Durability::Buffered };
        done.puts.push((number, key));
        let mut batch = db.batch().durability(durability);
        batch.put(&keyspace, self::key(key), numbered(number));
        batch.commit().unwrap();
        if durability == Durability::Sync {
            done.safe.push((fs.operations(), number + 1));
        }
    }
    assert!(is_enough(), "{:?}", keyspace.stats());
    done
}

/// Opens an image, which must hold all of the first so many puts, those that were safe among them.
fn check_image(image: &MemoryFs, done: &Acknowledged, needed: usize, what: &str) {
    let db = open(Arc::new(image.clone()), 2);
    let Ok(keyspace) = db.open_keyspace(NAME) else {
        assert_eq!(needed, 0, "{what}: the keyspace is lost");
        return;
    };
    let number_of = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap()) as usize;
    let mut found = BTreeMap::new();
    for record in keyspace.iter() {
        let (key, value) = record.unwrap();
        let number = number_of(&value);
        assert_eq!(*value, numbered(number), "{what}");
        found.insert(key.to_vec(), number);
    }
    let count = found.values().max().map_or(0, |last| last + 1);
    assert!(count >= needed, "{what}: {count} puts are left of {needed}");
    let expected = done.state(count);
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(key, number)| (self::key(key), number)).collect();
    assert!(found == expected, "{what}: the state is none that there was");
    assert_whole(&db);
    db.settle().unwrap();
    assert_eq!(files(image).len() as u64, known(&keyspace), "{what}: leftovers");
}

#[test]
fn power_cuts_amid_compactions_side_by_side_lose_nothing_that_was_safe() {
    for threads in 2..=4 {
        let fs = MemoryFs::traced();
        let done = overwrite(&fs, threads);
        let step = (fs.operations() / 24).max(1);
        for at in (threads..=fs.operations()).step_by(step) {
            let needed = done.safe_at(at);
            let random = PowerCut::Random(at as u64);
            for cut in [PowerCut::DropUnsynced, PowerCut::KeepAll, random] {
                let what = format!("{threads} threads, after {at} operations, {cut:?}");
                check_image(&fs.image(at, cut), &done, needed, &what);
            }
        }
    }
}
