//! LSM-trees with every policy: whatever the shape of their levels, they hold what was written; ascending keys are written
//! once; what is loaded takes its place; what a policy drops stays for those who see it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, Fs, MemoryFs, Operation, PathKind, Times};
use turbidite::{
    Compression, Database, ErrorKind, Keyspace, KeyspaceOptions, Level, LevelLimit, LevelStats,
    Policy, Snapshot,
};

use crate::history::Dice;

const PATH: &str = "/data/levels.db";
const NAME: &str = "main";
/// A table of these trees.
const TABLE: u64 = 64 << 10;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every policy that loses nothing.
fn policies() -> Vec<Policy> {
    vec![
        Policy::Levelled { size_ratio: 10 },
        Policy::Levelled { size_ratio: 2 },
        Policy::Tiered { runs: 2 },
        Policy::LazyLevelled { runs: 3 },
        Policy::Levels(vec![
            Level::Tiering(LevelLimit::Count(2)),
            Level::Levelling(LevelLimit::Count(8)),
            Level::Tiering(LevelLimit::Bytes(2 << 20)),
        ]),
        Policy::Levels(vec![Level::Levelling(LevelLimit::Bytes(1 << 20))]),
    ]
}

fn open(fs: &MemoryFs) -> Database {
    Database::builder(PATH).memory_budget(8 << 20).file_system(Arc::new(fs.clone())).open().unwrap()
}

fn options(policy: &Policy) -> KeyspaceOptions {
    KeyspaceOptions::lsm().policy(policy.clone()).table_size(TABLE)
}

/// A tree in memory, without the log.
fn start(policy: &Policy) -> (MemoryFs, Database, Keyspace) {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = db.keyspace(NAME, options(policy).log(false)).unwrap();
    (fs, db, keyspace)
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number:07}").into_bytes()
}

fn value(dice: &mut Dice) -> Vec<u8> {
    let first = dice.roll(256) as u8;
    vec![first; 200 + dice.roll(2000)]
}

/// Writes at random, into a model too.
fn write(keyspace: &Keyspace, model: &mut Map, dice: &mut Dice, count: usize) {
    for _ in 0..count {
        let key = key(dice.roll(2000));
        if dice.roll(5) == 0 {
            keyspace.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = value(dice);
            keyspace.put(&key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn check(keyspace: &Keyspace, snapshot: Option<&Snapshot>, model: &Map) {
    let all = match snapshot {
        Some(snapshot) => snapshot.iter(keyspace),
        None => keyspace.iter(),
    };
    let all: Map = all.map(|item| item.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert!(all == *model, "{} records, not {}", all.len(), model.len());
    let keys: Vec<_> = (0..2000).step_by(7).map(key).collect();
    let many = match snapshot {
        Some(snapshot) => snapshot.multi_get(keyspace, &keys).unwrap(),
        None => keyspace.multi_get(&keys).unwrap(),
    };
    for (key, found) in keys.iter().zip(many) {
        let expected = model.get(key).map(Vec::as_slice);
        assert_eq!(found.as_deref(), expected);
        let one = match snapshot {
            Some(snapshot) => snapshot.get(keyspace, key).unwrap(),
            None => keyspace.get(key).unwrap(),
        };
        assert_eq!(one.as_deref(), expected);
    }
}

fn assert_whole(db: &Database) {
    let report = db.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

fn shape(keyspace: &Keyspace) -> Vec<LevelStats> {
    keyspace.stats().levels
}

#[test]
fn trees_of_every_policy_hold_what_was_written() {
    for policy in policies() {
        let (fs, db, keyspace) = start(&policy);
        let (mut model, mut dice) = (Map::new(), Dice::new(7));
        let mut held = Vec::new();
        for _ in 0..4 {
            write(&keyspace, &mut model, &mut dice, 1500);
            held.push((db.snapshot(), model.clone()));
            keyspace.persist().unwrap();
            db.settle().unwrap();
            check(&keyspace, None, &model);
        }
        held.iter().for_each(|(snapshot, model)| check(&keyspace, Some(snapshot), model));
        let figures = keyspace.stats();
        assert!(figures.compactions > 0 && figures.flushes > 4, "{policy}: {figures:?}");
        drop(held);
        assert_whole(&db);
        drop((keyspace, db));
        let db = open(&fs);
        let keyspace = db.open_keyspace(NAME).unwrap();
        check(&keyspace, None, &model);
        keyspace.compact().unwrap();
        check(&keyspace, None, &model);
        let [only] = &shape(&keyspace)[..] else { panic!("{policy}: {:?}", shape(&keyspace)) };
        assert_eq!((only.runs, only.entries), (1, model.len() as u64), "{policy}");
        assert!(only.tables > 8, "{policy}: {only:?}");
        let other = KeyspaceOptions::lsm().log(false).policy(Policy::Tiered { runs: 77 });
        assert_eq!(db.keyspace(NAME, other).unwrap_err().kind(), ErrorKind::Invalid);
        db.keyspace(NAME, options(&policy).log(false)).unwrap();
        assert_whole(&db);
    }
}

#[test]
fn ascending_keys_are_written_once() {
    for policy in policies() {
        let (_, db, keyspace) = start(&policy);
        let mut bytes = 0;
        for number in 0..10_000 {
            keyspace.put(key(number), vec![number as u8; 1000]).unwrap();
            bytes += 1011;
        }
        keyspace.persist().unwrap();
        db.settle().unwrap();
        let written = db.stats().io.written_bytes;
        assert!(written < bytes + bytes / 8, "{policy}: {written} bytes written for {bytes}");
        let tables: u64 = shape(&keyspace).iter().map(|level| level.tables).sum();
        let most = keyspace.stats().flushes + bytes * 5 / 4 / TABLE;
        assert!(tables <= most, "{policy}: {most}, {:?}", shape(&keyspace));
        assert_eq!(keyspace.count().unwrap(), 10_000);
    }
}

#[test]
fn ascending_keys_are_compressed_as_their_level_says() {
    for policy in policies() {
        let db = open(&MemoryFs::new());
        let compression = [Compression::None, Compression::Lz4];
        let options = options(&policy).log(false).compression(&compression);
        let keyspace = db.keyspace(NAME, options).unwrap();
        for number in 0..10_000 {
            keyspace.put(key(number), vec![number as u8; 1000]).unwrap();
        }
        keyspace.persist().unwrap();
        db.settle().unwrap();
        let levels = shape(&keyspace);
        assert!(levels.iter().any(|level| level.level > 0), "{policy}: {levels:?}");
        for level in levels.iter().filter(|level| level.level > 0) {
            assert!(level.bytes < 200 * level.entries, "{policy}: {level:?}");
        }
        assert_eq!(keyspace.count().unwrap(), 10_000);
        assert_whole(&db);
    }
}

#[test]
fn tables_that_are_compressed_on_their_way_go_around_those_there() {
    for policy in policies() {
        let db = open(&MemoryFs::new());
        let compression = [Compression::None, Compression::Lz4];
        let options = options(&policy).log(false).compression(&compression);
        let keyspace = db.keyspace(NAME, options).unwrap();
        let mut count = 0;
        let mut fill = |from: usize| {
            (from..from + 300).for_each(|n| keyspace.put(key(n), vec![n as u8; 1000]).unwrap());
            keyspace.persist().unwrap();
            db.settle().unwrap();
            count += 300;
        };
        fill(50_000);
        keyspace.compact().unwrap();
        for round in 0..8 {
            fill(1000 * round);
            fill(99_000 - 1000 * round);
        }
        assert_eq!(keyspace.count().unwrap(), count);
        assert_whole(&db);
    }
}

#[test]
fn what_is_known_of_the_keys_of_a_table_bounds_it_too() {
    let db = open(&MemoryFs::new());
    let options = KeyspaceOptions::lsm().log(false).table_size(1 << 30).point_index(true);
    let keyspace = db.keyspace(NAME, options).unwrap();
    keyspace.load_sorted((0..200_000).map(|number| (key(number), b""))).unwrap();
    let tables = || shape(&keyspace).iter().map(|level| level.tables).sum::<u64>();
    // About 20 bytes are kept of each key until its table is complete.
    assert!((10..40).contains(&tables()), "{:?}", shape(&keyspace));
    keyspace.compact().unwrap();
    assert!((10..40).contains(&tables()), "{:?}", shape(&keyspace));
    assert_eq!(keyspace.count().unwrap(), 200_000);
}

#[test]
fn small_tables_do_not_pile_up() {
    for policy in policies() {
        let (_, db, keyspace) = start(&policy);
        for number in 0..120 {
            keyspace.put(key(number), [7; 500]).unwrap();
            keyspace.persist().unwrap();
            db.settle().unwrap();
        }
        let tables: u64 = shape(&keyspace).iter().map(|level| level.tables).sum();
        assert!(tables <= 16, "{policy}: {:?}", shape(&keyspace));
        assert_eq!(keyspace.count().unwrap(), 120);
    }
}

#[test]
fn what_is_due_is_done_when_a_database_is_opened_and_nobody_can_write() {
    let fs = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let db = Database::builder(PATH).memory_budget(8 << 20);
    let db = db.file_system(Arc::new(faults.clone())).open().unwrap();
    let keyspace = db.keyspace(NAME, KeyspaceOptions::lsm()).unwrap();
    // Flushes pile up while nothing can be merged, until writers would have to wait.
    let unread = Fault::new(Operation::Read, Effect::Fail(Errno::Raw(5)));
    faults.arm(Fault { name_contains: ".table".into(), times: Times::Always, ..unread });
    while keyspace.put("k", "v").is_ok() {
        keyspace.persist().unwrap();
    }
    assert!(shape(&keyspace)[0].runs >= 40);
    drop(keyspace);
    db.close().unwrap();
    let db = open(&fs);
    let (done, outcome) = mpsc::channel();
    let keyspace = db.open_keyspace(NAME).unwrap();
    std::thread::spawn(move || done.send(keyspace.put("k", "w")));
    outcome.recv_timeout(Duration::from_secs(20)).expect("it waits for ever").unwrap();
    db.settle().unwrap();
    assert!(shape(&db.open_keyspace(NAME).unwrap())[0].runs < 4);
}

#[test]
fn fifo_drops_the_oldest_and_keeps_what_snapshots_see() {
    let policy = Policy::Fifo { bytes: 2 << 20 };
    let (fs, db, keyspace) = start(&policy);
    let fill = |from: usize| {
        (from..from + 1000).for_each(|number| keyspace.put(key(number), [1; 1000]).unwrap());
        keyspace.persist().unwrap();
        db.settle().unwrap();
    };
    let tables = || fs.list(format!("{PATH}/keyspaces/1").as_ref()).unwrap().len();
    fill(0);
    let snapshot = db.snapshot();
    (1..10).for_each(|number| fill(1000 * number));
    let left = keyspace.count().unwrap();
    assert!((1000..3000).contains(&left), "{left} records are left");
    assert!(keyspace.get(key(9_999)).unwrap().is_some() && keyspace.get(key(0)).unwrap().is_none());
    let bytes: u64 = shape(&keyspace).iter().map(|level| level.bytes).sum();
    assert!(bytes <= 2 << 20, "{bytes} bytes");
    assert_eq!(snapshot.count(&keyspace).unwrap(), 1000);
    assert!(snapshot.get(&keyspace, key(0)).unwrap().is_some());
    assert!(snapshot.multi_get(&keyspace, [key(999)]).unwrap()[0].is_some());
    let held = tables();
    drop(snapshot);
    let start = Instant::now();
    while tables() >= held {
        assert!(start.elapsed() < Duration::from_secs(20), "what nobody sees any more stays");
        std::thread::sleep(Duration::from_millis(1));
    }
    keyspace.compact().unwrap();
    assert_eq!(keyspace.count().unwrap(), left);
    assert_whole(&db);
    drop((keyspace, db));
    let db = open(&fs);
    assert_eq!(db.open_keyspace(NAME).unwrap().count().unwrap(), left);
}

#[test]
fn fifo_keeps_what_snapshots_see_that_were_taken_between_two_drops() {
    for is_cleared in [false, true] {
        let (_, db, keyspace) = start(&Policy::Fifo { bytes: 2 << 20 });
        let fill = |round: usize| {
            let numbers = 1000 * round..1000 * (round + 1);
            numbers.for_each(|number| keyspace.put(key(number), [1; 1000]).unwrap());
            keyspace.persist().unwrap();
            db.settle().unwrap();
        };
        fill(0);
        let first = db.snapshot();
        // What is dropped here is kept for it; nobody sees what is dropped after that.
        (1..4).for_each(fill);
        let second = db.snapshot();
        let seen = second.count(&keyspace).unwrap();
        assert!((1000..3000).contains(&seen), "{seen} records are left");
        if is_cleared {
            keyspace.clear().unwrap();
            keyspace.persist().unwrap();
            db.settle().unwrap();
        } else {
            (4..6).for_each(fill);
            assert!(keyspace.get(key(3_999)).unwrap().is_none(), "nothing is dropped");
        }
        assert_eq!(second.count(&keyspace).unwrap(), seen);
        assert!(second.get(&keyspace, key(3_999)).unwrap().is_some());
        assert_eq!(first.count(&keyspace).unwrap(), 1000);
    }
}

#[test]
fn fifo_drops_nothing_from_snapshots_that_are_taken_meanwhile() {
    let fs = FaultFs::new(Arc::new(MemoryFs::new()));
    let open = Database::builder(PATH).memory_budget(8 << 20);
    let db = open.file_system(Arc::new(fs.clone())).open().unwrap();
    let options = KeyspaceOptions::lsm().log(false).policy(Policy::Fifo { bytes: 2 << 20 });
    let keyspace = db.keyspace(NAME, options).unwrap();
    let other = db.keyspace("other", KeyspaceOptions::lsm()).unwrap();
    let fill = |numbers: Range<usize>| {
        numbers.for_each(|number| keyspace.put(key(number), [1; 1000]).unwrap());
    };
    for round in 0..4 {
        fill(400 * round..400 * (round + 1));
        keyspace.persist().unwrap();
    }
    db.settle().unwrap();
    let slow = Effect::Delay(Duration::from_millis(100));
    let slow = Fault::new(Operation::Write, slow);
    fs.arm(Fault { times: Times::Always, name_contains: "manifest".into(), ..slow });
    let mut taken = Vec::new();
    std::thread::scope(|scope| {
        let persisting = scope.spawn(|| {
            fill(1600..2300);
            keyspace.persist().unwrap();
            db.settle().unwrap();
        });
        for number in 0.. {
            other.put(key(number), "v").unwrap();
            let snapshot = db.snapshot();
            let found = snapshot.get(&keyspace, key(0)).unwrap();
            taken.push((snapshot, found));
            if persisting.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert!(taken[0].1.is_some(), "it is dropped too early for this");
    assert!(keyspace.get(key(0)).unwrap().is_none(), "it is not dropped");
    for (number, (snapshot, found)) in taken.iter().enumerate() {
        assert_eq!(snapshot.get(&keyspace, key(0)).unwrap(), *found, "snapshot {number}");
    }
}

#[test]
fn fifo_counts_values_that_are_kept_apart() {
    let (_, db, _) = start(&Policy::default());
    let options = KeyspaceOptions::lsm().log(false).separate_values(100);
    let keyspace = db.keyspace("fifo", options.policy(Policy::Fifo { bytes: 2 << 20 })).unwrap();
    for round in 0..10 {
        (0..1000).for_each(|n| keyspace.put(key(1000 * round + n), [1; 1000]).unwrap());
        keyspace.persist().unwrap();
        db.settle().unwrap();
    }
    let bytes = keyspace.stats().disk_bytes;
    assert!((1 << 20..3 << 20).contains(&bytes), "{bytes} bytes");
    let left = keyspace.count().unwrap();
    assert!((1000..3000).contains(&left), "{left} records are left");
    assert_whole(&db);
}

/// Records for a load, every `step`th key.
fn records(from: usize, count: usize, step: usize) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    (0..count).map(move |number| (key(from + number * step), vec![(from + number) as u8; 500]))
}

#[test]
fn loads_take_their_place_among_writes() {
    for policy in policies() {
        let (fs, db, keyspace) = start(&policy);
        let (mut model, mut dice) = (Map::new(), Dice::new(9));
        for round in 0..4 {
            write(&keyspace, &mut model, &mut dice, 300);
            let before = (db.snapshot(), model.clone());
            let loaded: Vec<_> = records(round, 900, 2).collect();
            assert_eq!(keyspace.load_sorted(loaded.clone()).unwrap(), 900);
            model.extend(loaded);
            check(&keyspace, None, &model);
            check(&keyspace, Some(&before.0), &before.1);
            let behind = (db.snapshot(), model.clone());
            write(&keyspace, &mut model, &mut dice, 300);
            check(&keyspace, Some(&behind.0), &behind.1);
            keyspace.persist().unwrap();
            db.settle().unwrap();
            check(&keyspace, None, &model);
            check(&keyspace, Some(&before.0), &before.1);
            check(&keyspace, Some(&behind.0), &behind.1);
        }
        assert_whole(&db);
        drop((keyspace, db));
        let db = open(&fs);
        let keyspace = db.open_keyspace(NAME).unwrap();
        check(&keyspace, None, &model);
        keyspace.compact().unwrap();
        check(&keyspace, None, &model);
        assert_whole(&db);
    }
}

#[test]
fn loads_that_meet_nothing_go_to_the_deepest_level_at_once() {
    let (_, db, keyspace) = start(&Policy::default());
    keyspace.load_sorted(records(0, 2000, 1)).unwrap();
    keyspace.load_sorted(records(5000, 2000, 1)).unwrap();
    let [level] = &shape(&keyspace)[..] else { panic!("{:?}", shape(&keyspace)) };
    assert_eq!((level.level, level.runs, level.entries), (6, 1, 4000));
    assert!(level.tables > 20, "{level:?}");
    // One that meets keys stays above them.
    keyspace.load_sorted(records(1000, 2000, 1)).unwrap();
    let levels: Vec<_> = shape(&keyspace).iter().map(|level| level.level).collect();
    assert_eq!(levels, [5, 6]);
    assert_eq!(keyspace.stats().compactions, 0);
    assert_eq!(keyspace.count().unwrap(), 5000);
    assert_whole(&db);
}

#[test]
fn runs_that_many_seeks_come_to_are_merged_for_them() {
    let policies = [(Policy::default(), true), (Policy::Tiered { runs: 4 }, false)];
    for (policy, merges) in policies {
        let (_, db, keyspace) = start(&policy);
        let (mut model, mut dice) = (Map::new(), Dice::new(11));
        for _ in 0..3 {
            write(&keyspace, &mut model, &mut dice, 200);
            keyspace.persist().unwrap();
            db.settle().unwrap();
        }
        let waiting = || {
            let levels = shape(&keyspace);
            levels.iter().find(|level| level.level == 0).map_or(0, |level| level.runs)
        };
        assert_eq!((waiting(), keyspace.stats().compactions), (3, 0), "few runs wait for more");
        // Filters keep gets from most runs.
        (0..20_000).for_each(|number| drop(keyspace.get(key(number % 2000)).unwrap()));
        db.settle().unwrap();
        assert_eq!(waiting(), 3);
        let mut seek_often = || {
            let mut cursor = keyspace.cursor().unwrap();
            for _ in 0..3000 {
                let from = key(dice.roll(2000));
                cursor.seek(&from).unwrap();
                let next = model.range(from.clone()..).next();
                let found = cursor.is_valid().then(|| (cursor.key(), cursor.value()));
                assert_eq!(found, next.map(|(key, value)| (&key[..], &value[..])));
                cursor.seek_for_prev(&from).unwrap();
                let last = model.range(..=from).next_back();
                assert_eq!(cursor.is_valid().then(|| cursor.key()), last.map(|(key, _)| &key[..]));
            }
            db.settle().unwrap();
            (waiting(), keyspace.stats().compactions)
        };
        let merged = seek_often();
        assert_eq!(merged, if merges { (0, 1) } else { (3, 0) }, "{policy}");
        assert_eq!(seek_often(), merged, "there is nothing more to merge");
        check(&keyspace, None, &model);
        assert_whole(&db);
    }
}

#[test]
fn loads_that_fail_leave_nothing() {
    let (fs, db, keyspace) = start(&Policy::default());
    keyspace.put("k", "v").unwrap();
    keyspace.persist().unwrap();
    let names = || fs.list(format!("{PATH}/keyspaces/1").as_ref()).unwrap();
    let before = names();
    let out_of_order = records(0, 900, 1).chain(records(3, 1, 1));
    let error = keyspace.load_sorted(out_of_order).unwrap_err();
    assert!(error.to_string().contains("record 901"), "{error}");
    assert_eq!(keyspace.load_sorted(records(0, 0, 1)).unwrap(), 0);
    assert_eq!((names(), keyspace.count().unwrap()), (before.clone(), 1));
    fs.quota(Some(db.stats().disk_bytes + (100 << 10)));
    let error = keyspace.load_sorted(records(0, 900, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    fs.quota(None);
    assert_eq!((names(), keyspace.count().unwrap()), (before, 1));
    keyspace.load_sorted(records(0, 900, 1)).unwrap();
    assert_eq!(keyspace.count().unwrap(), 901);
    assert_whole(&db);
}

#[test]
fn tables_are_about_as_large_as_they_are_to_be_on_every_level() {
    for policy in policies().into_iter().chain([Policy::Fifo { bytes: 1 << 30 }]) {
        let (fs, db, keyspace) = start(&policy);
        let mut dice = Dice::new(7);
        for round in 0..6 {
            for _ in 0..300 {
                keyspace.put(key(dice.roll(20_000)), value(&mut dice)).unwrap();
            }
            keyspace.persist().unwrap();
            if round == 3 {
                db.settle().unwrap();
            }
            let dir = std::path::Path::new(PATH).join("keyspaces/1");
            for name in fs.list(&dir).unwrap().iter().filter(|name| name.ends_with(".table")) {
                // One of them may have been removed meanwhile.
                if let Some(PathKind::File { len }) = fs.kind(&dir.join(name)).unwrap() {
                    // What a table has beside its data comes on top of it.
                    assert!(len < 2 * TABLE, "{policy}: {name} has {len} bytes");
                }
            }
        }
    }
}

/// Keys that are put and soon deleted, in ascending order: what is left are tombstones, which hide nothing.
#[test]
fn a_queue_leaves_few_tombstones() {
    const KEYS: usize = 150_000;
    for policy in policies() {
        let (_fs, db, keyspace) = start(&policy);
        for number in 0..KEYS {
            keyspace.put(key(number), "").unwrap();
            if let Some(old) = number.checked_sub(100) {
                keyspace.delete(key(old)).unwrap();
            }
        }
        db.settle().unwrap();
        let stats = keyspace.stats();
        let entries: u64 = stats.levels.iter().map(|level| level.entries).sum();
        println!("{policy:?}: {entries}, {} flushes", stats.flushes);
        assert!(entries < KEYS as u64 / 3, "{policy:?}: {entries} entries");
        assert_eq!(keyspace.count().unwrap(), 100);
    }
}
