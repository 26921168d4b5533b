//! Ranges of keys deleted by one write: for all readers to come and for none from before, in memory, in files, and on the
//! way to the deepest level.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU32, Ordering};

use turbidite::{
    Database, EngineKind, ErrorKind, Keyspace, KeyspaceOptions, Policy, Slice, Snapshot,
};

use crate::choices;
use crate::history::Dice;
use crate::setup::{ENGINES, NAME, Setup, contents, layers};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn key(number: usize) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

/// From one number on and before another.
fn between(from: usize, to: usize) -> Bounds {
    (Bound::Included(key(from)), Bound::Excluded(key(to)))
}

fn assert_whole(db: &Database) {
    let problems = db.verify().unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

/// Compares all ways to read with what is expected, now or in a snapshot.
fn check(keyspace: &Keyspace, snapshot: Option<&Snapshot>, expected: &Map, numbers: &[usize]) {
    let range = || snapshot.map_or_else(|| keyspace.iter(), |snapshot| snapshot.iter(keyspace));
    assert!(contents(range()) == *expected);
    let backwards: Vec<Slice> = range().rev().map(|item| item.unwrap().0).collect();
    assert!(backwards.iter().eq(expected.keys().rev()));
    let keys: Vec<_> = numbers.iter().map(|&number| key(number)).collect();
    let found = match snapshot {
        Some(snapshot) => snapshot.multi_get(keyspace, &keys).unwrap(),
        None => keyspace.multi_get(&keys).unwrap(),
    };
    for (key, many) in keys.iter().zip(found) {
        let one = match snapshot {
            Some(snapshot) => snapshot.get(keyspace, key).unwrap(),
            None => keyspace.get(key).unwrap(),
        };
        let value = expected.get(key).map(|value| &value[..]);
        assert_eq!((one.as_deref(), many.as_deref()), (value, value), "{key:?}");
        let mut cursor = match snapshot {
            Some(snapshot) => snapshot.cursor(keyspace).unwrap(),
            None => keyspace.cursor().unwrap(),
        };
        cursor.seek(key).unwrap();
        let next = expected.range(key.clone()..).next();
        assert_eq!(
            cursor.is_valid().then(|| cursor.key().to_vec()),
            next.map(|(key, _)| key.clone())
        );
        cursor.seek_for_prev(key).unwrap();
        let before = expected.range(..=key.clone()).next_back();
        assert_eq!(
            cursor.is_valid().then(|| cursor.key().to_vec()),
            before.map(|(key, _)| key.clone())
        );
        if cursor.is_valid() {
            cursor.next().unwrap();
            assert_eq!(
                cursor.is_valid(),
                expected.range(key.clone()..).any(|(other, _)| other > key)
            );
        }
    }
}

/// A tree and what it must hold.
struct Work {
    keyspace: Keyspace,
    map: Map,
    snapshots: Vec<(Snapshot, Map)>,
    dice: Dice,
}

const KEYS: usize = 2000;

impl Work {
    fn put_some(&mut self, count: usize) {
        let first = self.dice.roll(KEYS);
        for number in first..first + count {
            let (key, len) = (key(number % KEYS), 1 + self.dice.roll(900));
            let value = self.dice.bytes(len);
            self.keyspace.put(&key, &value).unwrap();
            self.map.insert(key, value);
        }
    }

    fn bounds(&mut self) -> Bounds {
        let (from, len) = (self.dice.roll(KEYS), self.dice.roll(KEYS / 3));
        match self.dice.roll(8) {
            0 => (Bound::Unbounded, Bound::Included(key(from / 3))),
            1 => (Bound::Excluded(key(KEYS - from / 3)), Bound::Unbounded),
            2 => (Bound::Excluded(key(from)), Bound::Included(key(from + len))),
            _ => between(from, from + len),
        }
    }

    fn delete(&mut self, bounds: Bounds) {
        self.keyspace.delete_range(bounds.clone()).unwrap();
        self.map.retain(|key, _| !bounds.contains(key));
    }

    fn check(&mut self) {
        let numbers: Vec<_> = (0..40).map(|_| self.dice.roll(KEYS)).collect();
        check(&self.keyspace, None, &self.map, &numbers);
        for (snapshot, map) in &self.snapshots {
            check(&self.keyspace, Some(snapshot), map, &numbers);
        }
    }
}

#[test]
fn trees_of_every_kind_delete_ranges() {
    for case in 0..8 {
        let seed = choices::mix(choices::seed(), ("ranges", case));
        let setup = Setup::memory().drawn(seed);
        let open = |opening| {
            let db = setup.open();
            let options = choices::options(EngineKind::Lsm, seed, opening).log(case % 3 > 0);
            let keyspace = db.keyspace(NAME, options).unwrap();
            (db, keyspace)
        };
        let (mut db, keyspace) = open(0);
        let dice = Dice::new(seed);
        let mut work = Work { keyspace, map: Map::new(), snapshots: Vec::new(), dice };
        for round in 1..=24 {
            match work.dice.roll(8) {
                0..3 => work.put_some(400),
                3 => work.put_some(10),
                _ => {}
            }
            for _ in 0..work.dice.roll(4) {
                let bounds = work.bounds();
                work.delete(bounds);
                work.put_some(3);
            }
            match work.dice.roll(7) {
                0 => work.keyspace.persist().unwrap(),
                1 => work.keyspace.compact().unwrap(),
                2 => db.settle().unwrap(),
                3 => work.snapshots.push((db.snapshot(), work.map.clone())),
                4 if !work.snapshots.is_empty() => drop(work.snapshots.remove(0)),
                _ => {}
            }
            if round % 6 == 0 {
                work.check();
                assert_whole(&db);
            }
            if round % 12 == 0 {
                work.snapshots.clear();
                let (map, dice) = (std::mem::take(&mut work.map), work.dice.clone());
                drop(work);
                db.close().unwrap();
                let (reopened, keyspace) = open(round);
                db = reopened;
                work = Work { keyspace, map, snapshots: Vec::new(), dice };
                work.check();
            }
        }
        work.keyspace.compact().unwrap();
        work.check();
    }
}

#[test]
fn the_order_in_a_batch_counts_over_all_keyspaces() {
    let setup = Setup::memory();
    let (db, keyspace) = setup.start();
    let other = db.keyspace("other", KeyspaceOptions::lsm().log(false)).unwrap();
    keyspace.put("b", "old").unwrap();
    let mut batch = db.batch();
    batch.put(&keyspace, "a", "1").put(&other, "a", "1").put(&other, "c", "1");
    batch.delete_range(&keyspace, "a".."c").delete_range(&other, ..="b").put(&keyspace, "b", "2");
    batch.delete_prefix(&other, "d").put(&other, "d", "2").delete_range(&keyspace, "c".."c");
    assert_eq!(batch.len(), 8, "a range without keys is no write");
    batch.commit().unwrap();
    let held = |keyspace: &Keyspace| -> Vec<String> {
        let text = |bytes: Slice| String::from_utf8(bytes.to_vec()).unwrap();
        let item = |item: turbidite::Result<(Slice, Slice)>| item.unwrap();
        keyspace.iter().map(item).map(|(key, value)| text(key) + &text(value)).collect()
    };
    let expected = (vec!["b2".to_owned()], vec!["c1".to_owned(), "d2".to_owned()]);
    assert_eq!((held(&keyspace), held(&other)), expected);
    // Once more from the log, and from files.
    drop((keyspace, other));
    db.close().unwrap();
    let db = setup.open();
    let [keyspace, other] = [NAME, "other"].map(|name| db.open_keyspace(name).unwrap());
    assert_eq!((held(&keyspace), held(&other)), expected);
}

#[test]
fn other_engines_refuse_before_anything_is_written() {
    for engine in ENGINES.into_iter().filter(|&engine| engine != EngineKind::Lsm) {
        let (db, keyspace) = Setup::memory().engine(engine).start();
        let tree = db.keyspace("tree", KeyspaceOptions::lsm()).unwrap();
        keyspace.put("k", "v").unwrap();
        let error = keyspace.delete_range("a".."z").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{engine}");
        assert!(error.to_string().contains("only an LSM-tree"), "{error}");
        assert_eq!(keyspace.delete_range("z".."a").unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(keyspace.delete_prefix("k").unwrap_err().kind(), ErrorKind::Unsupported);
        let mut batch = db.batch();
        batch.put(&tree, "a", "1").delete_range(&tree, "b"..).delete_range(&keyspace, "a".."z");
        assert_eq!(batch.commit().unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!((tree.count().unwrap(), keyspace.count().unwrap()), (0, 1));
    }
}

#[test]
fn ranges_without_keys_and_ends_that_are_too_long() {
    let (db, keyspace) = Setup::memory().start();
    keyspace.put("", "empty").unwrap();
    let largest = vec![0xff_u8; turbidite::MAX_KEY_LEN];
    keyspace.put(&largest, "largest").unwrap();
    keyspace.delete_range("b".."b").unwrap();
    keyspace.delete_range("b".."a").unwrap();
    keyspace
        .delete_range((Bound::Excluded(b"b".to_vec()), Bound::Excluded(b"b\0".to_vec())))
        .unwrap();
    keyspace.delete_range(.."").unwrap();
    let too_long = vec![0_u8; turbidite::MAX_KEY_LEN + 2];
    assert_eq!(keyspace.delete_range(too_long..).unwrap_err().kind(), ErrorKind::Invalid);
    keyspace.delete_range((Bound::Excluded(largest.clone()), Bound::Unbounded)).unwrap();
    assert_eq!(keyspace.count().unwrap(), 2);
    keyspace.persist().unwrap();
    keyspace.delete_range(..=largest.clone()).unwrap();
    assert_eq!(keyspace.count().unwrap(), 0);
    keyspace.put(&largest, "again").unwrap();
    keyspace.persist().unwrap();
    assert_eq!(keyspace.get(&largest).unwrap().unwrap(), "again");
    keyspace.delete_range(largest.clone()..).unwrap();
    keyspace.persist().unwrap();
    assert!(keyspace.get(&largest).unwrap().is_none() && keyspace.iter().next().is_none());
    keyspace.compact().unwrap();
    assert!(keyspace.get("").unwrap().is_none());
    assert_whole(&db);
}

#[test]
fn a_memtable_of_nothing_but_range_tombstones_is_flushed() {
    for logged in [true, false] {
        let setup = Setup::memory().logged(logged);
        let (db, keyspace) = setup.start();
        (0..100).for_each(|number| keyspace.put(key(number), "v").unwrap());
        keyspace.persist().unwrap();
        let flushes = keyspace.stats().flushes;
        keyspace.delete_range(between(10, 90)).unwrap();
        keyspace.persist().unwrap();
        assert_eq!(keyspace.stats().flushes, flushes + 1);
        drop(keyspace);
        db.close().unwrap();
        let db = setup.open();
        let keyspace = db.open_keyspace(NAME).unwrap();
        assert_eq!((keyspace.count().unwrap(), keyspace.iter().count()), (20, 20));
        assert!(
            keyspace.get(key(89)).unwrap().is_none() && keyspace.get(key(90)).unwrap().is_some()
        );
        keyspace.compact().unwrap();
        assert_eq!(keyspace.count().unwrap(), 20);
        assert_eq!(keyspace.stats().entries, 20, "what is deleted is gone, and so are tombstones");
        assert_whole(&db);
    }
}

#[test]
fn room_is_given_back_also_that_of_values_apart() {
    for layer in layers().into_iter().take(2) {
        let setup = Setup::disk(layer);
        let db = setup.open();
        let options = KeyspaceOptions::lsm().separate_values(500).layer(layer);
        let keyspace = db.keyspace(NAME, options).unwrap();
        for number in 0..4000 {
            keyspace
                .put(key(number), vec![number as u8; if number % 2 == 0 { 1000 } else { 100 }])
                .unwrap();
        }
        keyspace.compact().unwrap();
        let full = keyspace.stats();
        let snapshot = db.snapshot();
        keyspace.delete_range(between(100, 3900)).unwrap();
        keyspace.compact().unwrap();
        assert_eq!(snapshot.count(&keyspace).unwrap(), 4000);
        assert_eq!(keyspace.count().unwrap(), 200);
        drop(snapshot);
        keyspace.put(key(0), "again").unwrap();
        keyspace.compact().unwrap();
        let stats = keyspace.stats();
        assert_eq!((stats.entries, keyspace.count().unwrap()), (200, 200));
        assert!(stats.disk_bytes < full.disk_bytes / 8, "{stats:?} of {full:?}");
        assert_eq!(stats.values.garbage, 0);
        assert_whole(&db);
    }
}

#[test]
fn many_ranges_and_long_runs_of_what_they_cover_cost_little() {
    let setup = Setup::memory();
    let db = setup.open();
    let options = KeyspaceOptions::lsm().policy(Policy::Levelled { size_ratio: 4 });
    let keyspace = db.keyspace(NAME, options).unwrap();
    (0..20_000).for_each(|number| keyspace.put(key(number), "v").unwrap());
    keyspace.persist().unwrap();
    // Each range ends where the next one begins: a queue whose front is eaten.
    for number in (0..19_000).step_by(10) {
        keyspace.delete_range(between(number, number + 10)).unwrap();
    }
    let left = |keyspace: &Keyspace| {
        let first = keyspace.iter().next().unwrap().unwrap().0;
        assert_eq!(first, key(19_000));
        assert_eq!(keyspace.range(..key(19_001)).next_back().unwrap().unwrap().0, key(19_000));
        assert!(keyspace.range(..key(19_000)).next_back().is_none());
        keyspace.count().unwrap()
    };
    assert_eq!(left(&keyspace), 1000);
    keyspace.persist().unwrap();
    assert_eq!(left(&keyspace), 1000);
    keyspace.compact().unwrap();
    assert_eq!((left(&keyspace), keyspace.stats().entries), (1000, 1000));
    assert_whole(&db);
}

#[test]
fn readers_beside_see_all_of_a_range_or_nothing() {
    let (db, keyspace) = Setup::memory().start();
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..300_u32 {
                let mut batch = db.batch();
                batch.delete_range(&keyspace, key(0)..key(KEYS));
                for number in 0..20 {
                    batch.put(
                        &keyspace,
                        key((number * 97 + round as usize) % KEYS),
                        vec![round as u8; 700],
                    );
                }
                batch.commit().unwrap();
                if round % 50 == 49 {
                    keyspace.persist().unwrap();
                }
            }
            done.store(1, Ordering::Release);
        });
        let mut last = false;
        while !last {
            last = done.load(Ordering::Acquire) == 1;
            let items: Vec<_> = keyspace.iter().map(|item| item.unwrap()).collect();
            assert!(items.is_empty() || items.len() == 20, "{}", items.len());
            assert!(items.iter().all(|(_, value)| *value == items[0].1));
            let snapshot = db.snapshot();
            let now = snapshot.iter(&keyspace).rev().map(|item| item.unwrap()).collect::<Vec<_>>();
            let keys: Vec<_> = now.iter().map(|(key, _)| key.clone()).collect();
            let values = snapshot.multi_get(&keyspace, &keys).unwrap();
            assert!(values.iter().zip(&now).all(|(value, item)| value.as_ref() == Some(&item.1)));
        }
    });
    assert_whole(&db);
}
