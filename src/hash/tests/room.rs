//! Room in the index: it comes back, and is refused only when there is none.

use super::*;
use crate::ErrorKind;

/// What the index may take of 8 MiB, and what a segment's worth of entries adds before the budget is told.
const MOST_INDEX: u64 = (4 << 20) + (1 << 20);

fn index_bytes(db: &Database, keyspace: &Keyspace) -> u64 {
    keyspace.persist().unwrap();
    db.settle().unwrap();
    keyspace.stats().memory_bytes
}

/// Puts fresh keys until there is no room for more; gives how many there was room for.
fn fill(keyspace: &Keyspace, from: u64) -> u64 {
    for number in from..from + 1_000_000 {
        if let Err(error) = keyspace.put(number.to_be_bytes(), "") {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            return number - from;
        }
    }
    panic!("there is no end of it");
}

#[test]
fn keys_that_come_and_go_leave_no_tombstones_behind_for_good() {
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    for number in 0..400_000_u128 {
        keyspace.put(number.to_be_bytes(), "").unwrap();
        keyspace.delete(number.to_be_bytes()).unwrap();
    }
    assert_eq!(keyspace.count().unwrap(), 0);
    let bytes = index_bytes(&db, &keyspace);
    assert!(bytes < MOST_INDEX, "{bytes} bytes");
    let entries = keyspace.stats().entries;
    assert!(entries < 60_000, "{entries} tombstones");
}

#[test]
fn tombstones_are_forgotten_with_many_keys_beside_them() {
    const KEYS: u64 = 150_000;
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = self::keyspace(&db);
    (0..KEYS).for_each(|number| keyspace.put(number.to_be_bytes(), "").unwrap());
    for number in KEYS..3 * KEYS {
        keyspace.put(number.to_be_bytes(), "").unwrap();
        keyspace.delete(number.to_be_bytes()).unwrap();
    }
    let bytes = index_bytes(&db, &keyspace);
    assert!(bytes < MOST_INDEX, "{bytes} bytes");
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(self::keyspace(&db).count().unwrap(), KEYS);
}

#[test]
fn room_that_a_snapshot_took_comes_back() {
    const KEYS: u64 = 150_000;
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    (0..KEYS).for_each(|number| keyspace.put(number.to_be_bytes(), "").unwrap());
    keyspace.persist().unwrap();
    let snapshot = db.snapshot();
    let refused = (0..KEYS).find_map(|number| keyspace.put(number.to_be_bytes(), "new").err());
    assert_eq!(refused.expect("there is no room for twice as many").kind(), ErrorKind::Invalid);
    drop(snapshot);
    keyspace.compact().unwrap();
    (0..KEYS).for_each(|number| keyspace.put(number.to_be_bytes(), "newer").unwrap());
    let bytes = index_bytes(&db, &keyspace);
    assert!(bytes < MOST_INDEX, "{bytes} bytes");
    assert_eq!(keyspace.count().unwrap(), KEYS);
}

#[test]
fn a_full_index_takes_deletes_and_then_as_many_keys() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = self::keyspace(&db);
    let first = fill(&keyspace, 0);
    assert!(first > 150_000, "{first} keys");
    let (alone, together) = (0..first / 4, first / 4..first / 2);
    alone.for_each(|number| keyspace.delete(number.to_be_bytes()).unwrap());
    for number in together {
        let mut batch = db.batch();
        batch.delete(&keyspace, number.to_be_bytes());
        batch.commit().unwrap();
    }
    let second = fill(&keyspace, first);
    assert!(second > first / 3, "{second} of {first}");
    let bytes = index_bytes(&db, &keyspace);
    assert!(bytes < MOST_INDEX, "{bytes} bytes");
    assert_eq!(keyspace.count().unwrap(), first - first / 2 + second);
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(self::keyspace(&db).count().unwrap(), first - first / 2 + second);
}
