//! The engine as a whole, through the database, against a map.

mod hostile;
mod room;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::rng::Rng;
use crate::vfs::{Effect, Errno, Fault, FaultFs, Fs, Layer, MemoryFs, Operation, Times};
use crate::{Database, Keyspace, KeyspaceOptions, Snapshot};

type Model = HashMap<Vec<u8>, Vec<u8>>;

/// Random numbers.
struct Dice(Rng);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0.next() % limit
    }
}

fn open(fs: &MemoryFs) -> Database {
    let fs = Arc::new(fs.clone());
    Database::builder("/db").file_system(fs).memory_budget(8 << 20).open().unwrap()
}

fn keyspace(db: &Database) -> Keyspace {
    db.keyspace("hash", KeyspaceOptions::hash()).unwrap()
}

fn contents(keyspace: &Keyspace) -> Model {
    let mut found = Model::new();
    for item in keyspace.iter() {
        let (key, value) = item.unwrap();
        assert!(found.insert(key.to_vec(), value.to_vec()).is_none(), "{key:?} comes twice");
    }
    found
}

fn contents_at(snapshot: &Snapshot, keyspace: &Keyspace) -> Model {
    let items = snapshot.iter(keyspace).map(|item| item.unwrap());
    items.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn check(keyspace: &Keyspace, model: &Model) {
    assert_eq!(contents(keyspace), *model);
    assert_eq!(keyspace.count().unwrap(), model.len() as u64);
}

fn key_of(rng: &mut Dice, keys: u64) -> Vec<u8> {
    format!("key {:06}", rng.below(keys)).into_bytes()
}

fn value_of(rng: &mut Dice) -> Vec<u8> {
    let len = match rng.below(40) {
        0 => rng.below(20_000),
        1..8 => 0,
        8..20 => 100,
        _ => rng.below(200),
    };
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ len as u8).collect()
}

struct World {
    fs: MemoryFs,
    db: Option<Database>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    rng: Dice,
    keys: u64,
}

impl World {
    fn new(seed: u64, keys: u64) -> Self {
        let fs = MemoryFs::new();
        let db = Some(open(&fs));
        let rng = Dice::new(seed);
        Self { fs, db, model: Model::new(), snapshots: Vec::new(), rng, keys }
    }

    fn keyspace(&self) -> Keyspace {
        keyspace(self.db.as_ref().unwrap())
    }

    fn step(&mut self) {
        let keyspace = self.keyspace();
        match self.rng.below(2000) {
            0 => keyspace.persist().unwrap(),
            1 => keyspace.compact().unwrap(),
            2 => self.reopen(),
            3..6 => self.snapshots.push((self.db.as_ref().unwrap().snapshot(), self.model.clone())),
            6..9 if !self.snapshots.is_empty() => {
                let at = self.rng.below(self.snapshots.len() as u64) as usize;
                let (snapshot, model) = self.snapshots.swap_remove(at);
                assert_eq!(contents_at(&snapshot, &keyspace), model);
                for _ in 0..20 {
                    let key = key_of(&mut self.rng, self.keys);
                    let found = snapshot.get(&keyspace, &key).unwrap();
                    assert_eq!(found.as_deref(), model.get(&key).map(|value| &value[..]));
                }
            }
            9..20 => {
                let keys: Vec<_> =
                    (0..self.rng.below(100)).map(|_| key_of(&mut self.rng, self.keys)).collect();
                let found = keyspace.multi_get(&keys).unwrap();
                for (key, value) in keys.iter().zip(found) {
                    assert_eq!(value.as_deref(), self.model.get(key).map(|value| &value[..]));
                }
            }
            20..30 => {
                let mut batch = self.db.as_ref().unwrap().batch();
                for _ in 0..self.rng.below(200) {
                    let key = key_of(&mut self.rng, self.keys);
                    if self.rng.below(4) == 0 {
                        batch.delete(&keyspace, &key);
                        self.model.remove(&key);
                    } else {
                        let value = value_of(&mut self.rng);
                        batch.put(&keyspace, &key, &value);
                        self.model.insert(key, value);
                    }
                }
                batch.commit().unwrap();
            }
            30..400 => {
                let key = key_of(&mut self.rng, self.keys);
                keyspace.delete(&key).unwrap();
                self.model.remove(&key);
            }
            400..1000 => {
                let key = key_of(&mut self.rng, self.keys);
                let found = keyspace.get(&key).unwrap();
                assert_eq!(found.as_deref(), self.model.get(&key).map(|value| &value[..]));
            }
            _ => {
                let key = key_of(&mut self.rng, self.keys);
                let value = value_of(&mut self.rng);
                keyspace.put(&key, &value).unwrap();
                self.model.insert(key, value);
            }
        }
    }

    /// Closes the database, or lets the process be killed.
    fn reopen(&mut self) {
        self.snapshots.clear();
        if self.rng.below(2) == 0 {
            self.db.take().unwrap().close().unwrap();
        } else {
            self.fs = self.fs.fork();
            self.db = None;
        }
        self.db = Some(open(&self.fs));
        check(&self.keyspace(), &self.model);
        let report = self.db.as_ref().unwrap().verify().unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

#[test]
fn it_does_what_a_map_does() {
    for (seed, keys) in [(1, 50), (2, 2000), (3, 20_000), (4, 500)] {
        let mut world = World::new(seed, keys);
        for _ in 0..20_000 {
            world.step();
        }
        world.reopen();
        check(&world.keyspace(), &world.model);
    }
}

#[test]
fn space_comes_back() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = keyspace(&db);
    let disk = || keyspace.stats().disk_bytes;
    let round = |seed: u8| {
        for number in 0..20_000u32 {
            keyspace.put(number.to_be_bytes(), [seed; 100]).unwrap();
        }
    };
    (0..10).for_each(round);
    db.settle().unwrap();
    let live = 20_000 * 128;
    assert!(disk() < 2 * live + (2 << 20), "{} bytes for {live}", disk());
    let snapshot = db.snapshot();
    (10..14).for_each(round);
    db.settle().unwrap();
    assert_eq!(snapshot.get(&keyspace, 7u32.to_be_bytes()).unwrap().unwrap(), [9; 100]);
    drop(snapshot);
    keyspace.compact().unwrap();
    assert!(disk() < live + (live / 2), "{} bytes for {live}", disk());
    for number in 0..20_000u32 {
        keyspace.delete(number.to_be_bytes()).unwrap();
    }
    assert_eq!(keyspace.count().unwrap(), 0);
    keyspace.compact().unwrap();
    assert_eq!(keyspace.stats().entries, 0, "tombstones stay");
    assert!(disk() < 200 << 10, "{} bytes for nothing", disk());
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(self::keyspace(&db).count().unwrap(), 0);
}

#[test]
fn keys_that_are_overwritten_take_little_room() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = keyspace(&db);
    for number in 0..100_000u32 {
        keyspace.put((number % 100).to_be_bytes(), number.to_be_bytes()).unwrap();
    }
    keyspace.persist().unwrap();
    let stats = keyspace.stats();
    assert!(stats.disk_bytes < 20_000, "{} bytes", stats.disk_bytes);
    assert!(stats.entries <= 101, "{} entries", stats.entries);
}

#[test]
fn readers_see_whole_values_and_every_key_while_all_moves() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = keyspace(&db);
    let keys = 500u32;
    let value =
        |round: u32, number: u32| vec![(round ^ number) as u8; 60 + (round % 5 * 20) as usize];
    let put =
        |round, number: u32| keyspace.put(number.to_be_bytes(), value(round, number)).unwrap();
    (0..keys).for_each(|number| put(0, number));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (keyspace, done) = (&keyspace, &done);
            scope.spawn(move || {
                let mut rng = Dice::new(reader);
                while !done.load(Ordering::Relaxed) {
                    let number = rng.below(u64::from(keys)) as u32;
                    let found =
                        keyspace.get(number.to_be_bytes()).unwrap().expect("it is always there");
                    assert!(found.iter().all(|&byte| byte == found[0]) && found.len() >= 60);
                    if rng.below(200) == 0 {
                        assert_eq!(contents(keyspace).len(), keys as usize);
                    }
                }
            });
        }
        let mut rng = Dice::new(9);
        for round in 1..300_000 {
            put(round, rng.below(u64::from(keys)) as u32);
            match round % 60_000 {
                0 => keyspace.compact().unwrap(),
                30_000 => keyspace.persist().unwrap(),
                _ => {}
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A few keys are overwritten by batches as fast as it goes, while all is moved to files and about in them: their places
/// change hands all the time. No reader may see a key go back, or a batch in part.
#[test]
fn no_version_is_taken_for_the_newest_that_is_not() {
    const KEYS: u64 = 3;
    const BATCHES: u64 = 30_000;
    let number = |value: Option<crate::Slice>| {
        value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()))
    };
    let keys: Vec<_> = (0..KEYS).map(u64::to_be_bytes).collect();
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, keyspace, done, keys) = (&db, &keyspace, &done, &keys);
        let keep_moving = scope.spawn(move || {
            for round in 0.. {
                if done.load(Ordering::Acquire) {
                    break;
                }
                keyspace.persist().unwrap();
                if round % 4 == 0 {
                    keyspace.compact().unwrap();
                }
            }
        });
        let readers = [0, 1].map(|_| {
            scope.spawn(move || {
                let mut latest = 0;
                while !done.load(Ordering::Acquire) {
                    for key in keys {
                        let now = number(keyspace.get(key).unwrap());
                        assert!(now >= latest, "from {latest} back to {now}");
                        latest = now;
                    }
                    let snapshot = db.snapshot();
                    let together = snapshot.multi_get(keyspace, keys).unwrap();
                    let first = number(together[0].clone());
                    assert!(first >= latest, "from {latest} back to {first}");
                    for (key, value) in keys.iter().zip(together) {
                        assert_eq!(number(value), first);
                        assert_eq!(number(snapshot.get(keyspace, key).unwrap()), first);
                    }
                    let scanned = contents_at(&snapshot, keyspace);
                    assert_eq!(scanned.len() as u64, if first == 0 { 0 } else { KEYS });
                    assert!(scanned.values().all(|value| value[..8] == first.to_le_bytes()));
                    latest = first;
                }
            })
        });
        for count in 1..=BATCHES {
            let mut batch = db.batch();
            for key in keys {
                // Nobody sees this one.
                batch.put(keyspace, key, u64::MAX.to_le_bytes());
                batch.put(keyspace, key, count.to_le_bytes());
            }
            batch.commit().unwrap();
        }
        done.store(true, Ordering::Release);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        keep_moving.join().unwrap();
    });
    for key in keys {
        assert_eq!(number(keyspace.get(key).unwrap()), BATCHES);
    }
}

#[test]
fn memory_is_given_back_when_segments_are_in_files() {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    for number in 0..50_000u32 {
        keyspace.put(number.to_be_bytes(), [1; 100]).unwrap();
    }
    keyspace.put("large", vec![1; 3 << 20]).unwrap();
    keyspace.persist().unwrap();
    // The flush thread lets go of it a moment after it has been persisted.
    let start = std::time::Instant::now();
    while db.stats().memory.memtables > 0 {
        assert!(start.elapsed().as_secs() < 10, "{:?}", db.stats().memory);
        std::thread::yield_now();
    }
}

#[test]
fn a_scan_gives_a_record_once_that_was_moved_before_it_and_is_moved_again() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = keyspace(&db);
    let persist = |keys: &[&str], value: &str| {
        keys.iter().for_each(|key| keyspace.put(key, value).unwrap());
        keyspace.persist().unwrap();
    };
    persist(&["first"], "old");
    persist(&["moved", "held"], "old");
    let snapshot = db.snapshot();
    persist(&["first", "held"], "new");
    // What the snapshot holds stays where it is, and with it a copy of what is moved.
    keyspace.compact().unwrap();
    keyspace.persist().unwrap();
    let mut scan = snapshot.iter(&keyspace).map(|item| item.unwrap().0.to_vec());
    assert_eq!(scan.next().unwrap(), b"first");
    keyspace.compact().unwrap();
    keyspace.persist().unwrap();
    let mut rest: Vec<_> = scan.collect();
    rest.sort();
    assert_eq!(rest, [b"held".to_vec(), b"moved".to_vec()]);
}

#[test]
fn large_values_have_segments_of_their_own() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = keyspace(&db);
    let value = |number: u32| vec![number as u8; 700_000 * (number as usize % 5 + 1)];
    for number in 0..12u32 {
        keyspace.put(number.to_be_bytes(), value(number)).unwrap();
        keyspace.put([number as u8], "small").unwrap();
    }
    let check = |keyspace: &Keyspace| {
        for number in 0..12u32 {
            assert_eq!(keyspace.get(number.to_be_bytes()).unwrap().unwrap(), value(number));
        }
        assert_eq!(keyspace.count().unwrap(), 24);
    };
    check(&keyspace);
    keyspace.compact().unwrap();
    check(&keyspace);
    db.close().unwrap();
    let db = open(&fs);
    check(&self::keyspace(&db));
}

#[test]
fn what_needs_an_order_is_unsupported() {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    keyspace.put("a", "b").unwrap();
    let unsupported = |error: crate::Error| assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
    unsupported(keyspace.cursor().err().unwrap());
    unsupported(keyspace.range("a"..).next().unwrap().unwrap_err());
    unsupported(keyspace.prefix("a").next().unwrap().unwrap_err());
    unsupported(keyspace.iter().next_back().unwrap().unwrap_err());
    assert_eq!(keyspace.iter().count(), 1);
    assert_eq!(keyspace.prefix("").count(), 1);
}

#[test]
fn a_scan_gives_every_key_once_while_all_is_moved() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = keyspace(&db);
    for round in 0..3u8 {
        for number in 0..20_000u32 {
            if round == 0 || number % 3 == 0 {
                keyspace.put(number.to_be_bytes(), [round; 100]).unwrap();
            }
        }
        keyspace.compact().unwrap();
        let mut scan = keyspace.iter();
        let first: Vec<_> = scan.by_ref().take(5_000).map(|item| item.unwrap().0).collect();
        for number in 0..20_000u32 {
            keyspace.put(number.to_be_bytes(), [9; 100]).unwrap();
        }
        keyspace.compact().unwrap();
        let mut keys: Vec<_> = first.into_iter().chain(scan.map(|item| item.unwrap().0)).collect();
        assert_eq!(keys.len(), 20_000, "some come twice");
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 20_000);
        assert_eq!(contents(&keyspace).len(), 20_000);
    }
}

#[test]
fn a_count_is_exact_at_any_moment() {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    for round in 0..4u8 {
        for number in 0..30_000u32 {
            keyspace.put(number.to_be_bytes(), [round; 60]).unwrap();
        }
        keyspace.persist().unwrap();
        for _ in 0..20 {
            assert_eq!(keyspace.count().unwrap(), 30_000);
        }
    }
}

#[test]
fn files_that_a_failed_flush_left_are_replaced() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = keyspace(&db);
    keyspace.put("a", "b").unwrap();
    let path = std::path::Path::new("/db/keyspaces/1/000001.data");
    fs.create(path, Layer::Positional).unwrap();
    keyspace.persist().unwrap();
    db.close().unwrap();
    assert_eq!(self::keyspace(&open(&fs)).get("a").unwrap().unwrap(), "b");
}

/// Upkeep that is faster than the disk must not turn each short segment into another one that is as short, for ever.
#[test]
fn short_segments_are_merged_and_then_there_is_rest() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let slow = Fault::new(Operation::Sync, Effect::Delay(std::time::Duration::from_millis(1)));
    faults.arm(Fault { times: Times::Always, ..slow });
    let fs: Arc<dyn Fs> = Arc::new(faults);
    let db = Database::builder("/db").file_system(fs).memory_budget(8 << 20).open().unwrap();
    let keyspace = keyspace(&db);
    for number in 0..60u32 {
        keyspace.put(number.to_be_bytes(), "value").unwrap();
        keyspace.persist().unwrap();
    }
    db.settle().unwrap();
    let flushes = keyspace.stats().flushes;
    assert!(flushes < 300, "{flushes} flushes of 60 records");
    assert_eq!(contents(&keyspace).len(), 60);
}

#[test]
fn closing_does_not_wait_for_upkeep_that_does_not_get_on() {
    let memory = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(memory.clone()));
    let fs: Arc<dyn Fs> = Arc::new(faults.clone());
    let db = Database::builder("/db").file_system(fs).memory_budget(8 << 20).open().unwrap();
    let keyspace = keyspace(&db);
    let put = |round: u8| {
        (0..20_000u32).for_each(|n| keyspace.put(n.to_be_bytes(), [round; 100]).unwrap());
    };
    put(0);
    keyspace.persist().unwrap();
    let fault = Fault::new(Operation::Read, Effect::Fail(Errno::Raw(5)));
    faults.arm(Fault { name_contains: ".data".into(), times: Times::Always, ..fault });
    put(1);
    keyspace.persist().unwrap();
    drop(keyspace);
    db.close().unwrap();
    assert_eq!(self::keyspace(&open(&memory)).count().unwrap(), 20_000);
}

/// Upkeep that waits for its limit is pressing when there is much of it, though no piece of it ends.
#[test]
fn a_low_limit_gives_way_before_the_disk_is_full() {
    let fs = MemoryFs::new();
    let db = Database::builder("/db")
        .file_system(Arc::new(fs.clone()))
        .memory_budget(8 << 20)
        .background_rate(64 << 10)
        .open()
        .unwrap();
    let keyspace = keyspace(&db);
    let value = [7; 1000];
    for round in 0..32 {
        for key in 0..2000_u32 {
            keyspace.put(key.to_be_bytes(), value).unwrap();
        }
        keyspace.persist().unwrap();
        let stats = keyspace.stats();
        assert!(stats.disk_bytes < 20 << 20, "in round {round}: {stats:?}");
    }
}

/// What kept a segment from being worked on for a moment must not keep it from that for as long as some snapshot lives.
#[test]
fn space_comes_back_after_a_scan_while_there_is_a_snapshot_of_before() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = keyspace(&db);
    let _snapshot = db.snapshot();
    for number in 0..6_000u32 {
        keyspace.put(number.to_be_bytes(), [1; 100]).unwrap();
    }
    keyspace.persist().unwrap();
    // What supersedes two thirds of it is not in files before there is a scan, so nothing is reclaimed before.
    for number in 0..4_000u32 {
        keyspace.put(number.to_be_bytes(), [2; 100]).unwrap();
    }
    let mut scan = keyspace.iter();
    scan.next().unwrap().unwrap();
    keyspace.compact().unwrap();
    let live = 6_000 * 120;
    let before = keyspace.stats().disk_bytes;
    assert!(before > live * 3 / 2, "{before} bytes while there is a scan");
    drop(scan);
    keyspace.compact().unwrap();
    let disk = keyspace.stats().disk_bytes;
    assert!(disk < live * 5 / 4, "{disk} bytes for {live}");
}

/// The same in the background, which nobody asks to look again.
#[test]
fn the_background_goes_on_when_a_scan_or_a_snapshot_is_gone() {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    let _snapshot = db.snapshot();
    let live = 20_000 * 128;
    let shrinks = |what: &str| {
        let start = std::time::Instant::now();
        while keyspace.stats().disk_bytes > 2 * live + (1 << 20) {
            assert!(
                start.elapsed().as_secs() < 20,
                "{what}: {} bytes",
                keyspace.stats().disk_bytes
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    let round = |seed: u8| {
        for number in 0..20_000u32 {
            keyspace.put(number.to_be_bytes(), [seed; 100]).unwrap();
        }
        keyspace.persist().unwrap();
    };
    round(0);
    let mut scan = keyspace.iter();
    scan.next().unwrap().unwrap();
    (1..4).for_each(round);
    db.settle().unwrap();
    drop(scan);
    shrinks("after a scan");
    let young = db.snapshot();
    (4..8).for_each(round);
    db.settle().unwrap();
    drop(young);
    shrinks("after a snapshot");
}

#[test]
fn large_values_count_for_what_they_take() {
    const ROUNDS: u64 = 8;
    let fs = MemoryFs::new();
    let open = || {
        let fs = Arc::new(fs.clone());
        Database::builder("/db").file_system(fs).memory_budget(256 << 20).open().unwrap()
    };
    let db = open();
    let keyspace = self::keyspace(&db);
    let (large, small) = (13 << 20, 100 << 10);
    let round = |keyspace: &Keyspace, round: u64| {
        keyspace.put("large", vec![round as u8; large]).unwrap();
        for number in 0..30 {
            keyspace.put((30 * round + number).to_be_bytes(), vec![1; small]).unwrap();
        }
    };
    let check = |db: &Database, keyspace: &Keyspace, rounds: u64| {
        keyspace.persist().unwrap();
        db.settle().unwrap();
        let live = large as u64 + rounds * 30 * small as u64;
        let disk = keyspace.stats().disk_bytes;
        assert!(disk < 2 * live, "{disk} bytes for {live} after {rounds} rounds");
        let report = db.verify().unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    };
    (0..ROUNDS).for_each(|number| round(&keyspace, number));
    check(&db, &keyspace, ROUNDS);
    // Opening reads no records of segments that the checkpoint covers.
    db.close().unwrap();
    let db = open();
    let keyspace = self::keyspace(&db);
    keyspace.put("large", vec![9; large]).unwrap();
    check(&db, &keyspace, ROUNDS);
    assert_eq!(keyspace.get("large").unwrap().unwrap(), vec![9; large]);
}

#[test]
fn verify_takes_no_place_that_changes_hands_for_damage() {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, keyspace, done) = (&db, &keyspace, &done);
        let writer = scope.spawn(move || {
            let mut rng = Dice::new(1);
            while !done.load(Ordering::Relaxed) {
                match rng.below(3) {
                    0 => keyspace.delete("key").unwrap(),
                    _ => keyspace.put("key", "").unwrap(),
                }
            }
        });
        let start = std::time::Instant::now();
        let mut problems = Vec::new();
        while problems.is_empty() && start.elapsed().as_secs() < 4 {
            problems = db.verify().unwrap().problems;
        }
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert!(problems.is_empty(), "{problems:?}");
    });
}

/// Flushes and upkeep need what says which files there are.
#[test]
fn verify_reads_a_checkpoint_while_files_come_and_go() {
    let memory = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(memory.clone()));
    let open = || {
        let builder = Database::builder("/db").file_system(Arc::new(faults.clone()));
        builder.memory_budget(8 << 20).open().unwrap()
    };
    let db = open();
    let keys = keyspace(&db);
    (0..20_000_u32).for_each(|key| keys.put(key.to_be_bytes(), "value").unwrap());
    drop(keys);
    db.close().unwrap();
    let db = open();
    let keys = keyspace(&db);
    let slow = Fault::new(Operation::Read, Effect::Delay(Duration::from_millis(200)));
    faults.arm(Fault { times: Times::Always, name_contains: ".index".into(), ..slow });
    std::thread::scope(|scope| {
        let verifying = scope.spawn(|| db.verify().unwrap());
        while faults.fired() == 0 {
            std::thread::yield_now();
        }
        let _ = keys.stats();
        let fired = faults.fired();
        assert_eq!(verifying.join().unwrap().problems.len(), 0);
        let all = faults.fired();
        assert!(fired < all, "it was held until all of the {all} pieces had been read");
    });
}

/// What is just being opened by the layer of before would keep the page cache of that.
#[test]
fn a_segment_that_is_opened_while_the_layer_changes_follows() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let builder = Database::builder("/db").file_system(Arc::new(faults.clone()));
    let db = builder.memory_budget(8 << 20).open().unwrap();
    let keyspace = keyspace(&db);
    keyspace.put("key", "value").unwrap();
    keyspace.persist().unwrap();
    db.settle().unwrap();
    let slow = Fault::new(Operation::Open, Effect::Delay(Duration::from_millis(300)));
    faults.arm(Fault { name_contains: ".data".into(), ..slow });
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| keyspace.get("key").unwrap());
        while faults.fired() == 0 {
            std::thread::yield_now();
        }
        keyspace.target().engine.set_layer(Layer::Mmap).unwrap();
        reading.join().unwrap();
    });
    faults.disarm();
    // Openings of segments of the log are of no matter.
    let seen = Fault::new(Operation::Open, Effect::Delay(Duration::ZERO));
    faults.arm(Fault { name_contains: ".data".into(), times: Times::Always, ..seen });
    let opened = faults.fired();
    for _ in 0..2 {
        assert_eq!(keyspace.get("key").unwrap().unwrap(), "value");
        assert_eq!(faults.fired(), opened + 1, "it is open as before");
    }
}

/// What is written after a snapshot and overwritten goes, however long the snapshot lives.
#[test]
fn a_snapshot_keeps_what_it_sees_and_no_more() {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    let round = |seed: u8| {
        for number in 0..20_000_u32 {
            keyspace.put(number.to_be_bytes(), [seed; 100]).unwrap();
        }
        keyspace.persist().unwrap();
    };
    round(0);
    let snapshot = db.snapshot();
    (1..=10).for_each(round);
    db.settle().unwrap();
    let (live, disk) = (20_000 * 128, keyspace.stats().disk_bytes);
    assert!(disk < 3 * live + (2 << 20), "{disk} bytes for {live} twice");
    keyspace.compact().unwrap();
    let disk = keyspace.stats().disk_bytes;
    // With a checkpoint, and with what is dead beside versions that stay where they are: some move while nothing supersedes them yet.
    assert!(disk < 3 * live, "{disk} bytes for {live} twice");
    for number in (0..20_000_u32).step_by(77) {
        let key = number.to_be_bytes();
        assert_eq!(snapshot.get(&keyspace, key).unwrap().unwrap(), [0; 100]);
        assert_eq!(keyspace.get(key).unwrap().unwrap(), [10; 100]);
    }
}

#[test]
fn a_batch_of_one_key_takes_time_with_its_length() {
    const WRITES: u64 = 200_000;
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = keyspace(&db);
    keyspace.put("key", "before").unwrap();
    let _snapshot = db.snapshot();
    let mut batch = db.batch();
    for number in 0..WRITES {
        batch.put(&keyspace, "key", number.to_be_bytes());
    }
    let start = std::time::Instant::now();
    batch.commit().unwrap();
    keyspace.persist().unwrap();
    db.settle().unwrap();
    let took = start.elapsed();
    assert!(took.as_secs() < 20, "{took:?}");
    assert_eq!(keyspace.get("key").unwrap().unwrap(), (WRITES - 1).to_be_bytes());
    assert!(keyspace.stats().entries <= 2, "{:?}", keyspace.stats());
}
