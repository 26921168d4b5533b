//! Snapshots: one moment of all keyspaces, whatever happens after it.

use std::collections::BTreeMap;

use turbidite::{Database, Keyspace, KeyspaceOptions, Snapshot};

use crate::setup::{Setup, contents, is_ordered};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// All that a snapshot sees of a keyspace, read in several ways that must agree.
fn seen(snapshot: &Snapshot, keyspace: &Keyspace) -> Map {
    let map = contents(snapshot.iter(keyspace));
    if is_ordered(keyspace.stats().engine) {
        let reverse = snapshot.iter(keyspace).rev().map(|item| item.unwrap().0.to_vec());
        assert!(reverse.eq(map.keys().rev().cloned()));
    }
    assert_eq!(snapshot.count(keyspace).unwrap(), map.len() as u64);
    for (key, value) in &map {
        assert_eq!(snapshot.get(keyspace, key).unwrap().as_deref(), Some(&value[..]));
    }
    let found = snapshot.multi_get(keyspace, map.keys()).unwrap();
    assert!(found.iter().map(Option::as_deref).eq(map.values().map(|value| Some(&value[..]))));
    map
}

fn write(database: &Database, keyspaces: &[Keyspace], round: u32) {
    for (index, keyspace) in keyspaces.iter().enumerate() {
        for number in 0..60_u32 {
            let key = format!("{:03}", (number * 7 + round) % 100);
            if (number + round).is_multiple_of(4) {
                keyspace.delete(key).unwrap();
            } else {
                keyspace.put(key, format!("{round} {index} {number}")).unwrap();
            }
        }
    }
    let mut batch = database.batch();
    for keyspace in keyspaces {
        batch.put(keyspace, "round", round.to_le_bytes()).delete(keyspace, "050");
    }
    batch.commit().unwrap();
}

#[test]
fn snapshots_stay_through_overwrites_deletes_and_compaction() {
    for setup in Setup::all() {
        let database = setup.open();
        let second = database.keyspace("other", setup.other()).unwrap();
        let keyspaces = [setup.keyspace(&database), second];
        let empty = database.snapshot();
        let mut taken: Vec<(Snapshot, Vec<Map>)> = Vec::new();
        for round in 0..12 {
            write(&database, &keyspaces, round);
            let snapshot = database.snapshot();
            let maps: Vec<Map> = keyspaces.iter().map(|one| seen(&snapshot, one)).collect();
            for map in &maps {
                assert_eq!(map[&b"round"[..]], round.to_le_bytes(), "{setup}");
            }
            taken.push((snapshot.clone(), maps));
            match round % 4 {
                0 => keyspaces[0].persist().unwrap(),
                1 => keyspaces.iter().for_each(|one| one.compact().unwrap()),
                2 => database.settle().unwrap(),
                _ => drop(taken.swap_remove(round as usize % taken.len())),
            }
            for (snapshot, maps) in &taken {
                for (keyspace, map) in keyspaces.iter().zip(maps) {
                    assert_eq!(&seen(snapshot, keyspace), map, "{setup}, round {round}");
                }
            }
            assert!(seen(&empty, &keyspaces[0]).is_empty(), "{setup}");
        }
        let live: u64 = keyspaces.iter().map(|one| one.count().unwrap()).sum();
        drop((taken, empty));
        keyspaces.iter().for_each(|one| one.compact().unwrap());
        let kept: u64 = keyspaces.iter().map(|one| one.stats().entries).sum();
        assert!(
            kept == live || !setup.merges(),
            "{setup}: {kept} of {live}, but nothing is kept for snapshots that are gone"
        );
    }
}

#[test]
fn ranges_and_cursors_show_the_moment_they_were_made() {
    for setup in Setup::ordered() {
        let (database, keyspace) = setup.start();
        (0..500).for_each(|n| keyspace.put(format!("{n:04}"), format!("old {n}")).unwrap());
        let (mut range, mut cursor) = (keyspace.iter(), keyspace.cursor().unwrap());
        cursor.seek("0100").unwrap();
        let first = range.next().unwrap().unwrap();
        let clone = first.clone();
        for n in (0..500).step_by(2) {
            keyspace.delete(format!("{n:04}")).unwrap();
            keyspace.put(format!("{n:04} new"), "new").unwrap();
        }
        keyspace.compact().unwrap();
        for n in 1..500 {
            let (key, value) = range.next().unwrap().unwrap();
            assert_eq!(
                (key, value),
                (format!("{n:04}")[..].as_bytes().into(), format!("old {n}")[..].as_bytes().into())
            );
        }
        assert!(range.next().is_none());
        for n in 100..500 {
            assert_eq!(cursor.key(), format!("{n:04}").as_bytes(), "{setup}");
            assert_eq!(cursor.value(), format!("old {n}").as_bytes(), "{setup}");
            cursor.next().unwrap();
        }
        assert!(!cursor.is_valid());
        assert_eq!(first, clone, "what was read stays as it was");
        database.settle().unwrap();
    }
}

#[test]
fn a_range_without_order_shows_the_moment_it_was_made() {
    for setup in Setup::all() {
        let (database, keyspace) = setup.start();
        (0..500).for_each(|n| keyspace.put(format!("{n:04}"), format!("old {n}")).unwrap());
        let before = contents(keyspace.iter());
        let mut begun = keyspace.iter();
        let first = begun.next().unwrap().unwrap();
        let untouched = keyspace.iter();
        for n in (0..500).step_by(2) {
            keyspace.delete(format!("{n:04}")).unwrap();
            keyspace.put(format!("{n:04} new"), "new").unwrap();
            keyspace.put(format!("{:04}", n + 1), vec![1; 20_000]).unwrap();
        }
        keyspace.compact().unwrap();
        assert!(contents(untouched) == before, "{setup}");
        let mut rest = contents(begun);
        assert!(rest.insert(first.0.to_vec(), first.1.to_vec()).is_none(), "{setup}");
        assert!(rest == before, "{setup}");
        database.settle().unwrap();
    }
}

#[test]
fn a_keyspace_made_after_a_snapshot_is_empty_in_it() {
    let setup = Setup::memory();
    let (database, _) = setup.start();
    let snapshot = database.snapshot();
    let late = database.keyspace("late", KeyspaceOptions::lsm()).unwrap();
    late.put("k", "v").unwrap();
    assert_eq!(snapshot.count(&late).unwrap(), 0);
    assert!(!snapshot.contains(&late, "k").unwrap());
}
