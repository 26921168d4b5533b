//! Closing: what other handles say then, and what is there at the next opening.

use turbidite::{ErrorKind, Keyspace, Result};
use turbidite_torture::model::{assert_closed, remove_all};

use crate::setup::Setup;

fn closed<T>(result: Result<T>) {
    assert_eq!(result.err().map(|error| error.kind()), Some(ErrorKind::Closed));
}

#[test]
fn other_handles_give_closed() {
    for setup in Setup::all() {
        let (database, keyspace) = setup.start();
        keyspace.put("k", "v").unwrap();
        let (other, snapshot) = (database.clone(), database.snapshot());
        let mut range = keyspace.iter();
        let mut cursor = setup.is_ordered().then(|| keyspace.cursor().unwrap());
        cursor.iter_mut().for_each(|cursor| cursor.seek_to_first().unwrap());
        let read = keyspace.get("k").unwrap().unwrap();
        database.close().unwrap();
        assert_closed(&other, &keyspace);
        closed(snapshot.get(&keyspace, "k"));
        closed(snapshot.count(&keyspace));
        if let Some(cursor) = &mut cursor {
            closed(cursor.next());
            closed(cursor.seek("k"));
        }
        closed(range.next().unwrap());
        assert!(range.next().is_none(), "after an error a range ends");
        assert_eq!(read, "v");
        assert_eq!(other.path(), setup.path);
        let mut standing = Some((range, cursor));
        if setup.lends_what_changes() {
            let refused = setup.builder().open().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Locked, "{setup}");
            standing = None;
        }
        // Other handles of the closed database do not stand in the way of the next one.
        let (_database, again) = setup.start();
        assert_eq!(again.get("k").unwrap().unwrap(), "v", "{setup}");
        closed(keyspace.get("k"));
        drop(standing);
    }
}

#[test]
fn what_a_cursor_shows_stays_whoever_opens_the_database_next() {
    for setup in Setup::all().into_iter().filter(Setup::is_ordered) {
        let value = |key: u32, round: u32| vec![(key + round) as u8; 100];
        let put = |keyspace: &Keyspace, round: u32| {
            (0..500_u32)
                .for_each(|key| keyspace.put(key.to_be_bytes(), value(key, round)).unwrap());
            keyspace.persist().unwrap();
        };
        let (database, keyspace) = setup.start();
        put(&keyspace, 0);
        let mut cursor = keyspace.cursor().unwrap();
        cursor.seek(250_u32.to_be_bytes()).unwrap();
        database.close().unwrap();
        if setup.lends_what_changes() {
            assert_eq!(setup.builder().open().unwrap_err().kind(), ErrorKind::Locked, "{setup}");
            assert_eq!(cursor.value(), value(250, 0), "{setup}");
            continue;
        }
        let (database, again) = setup.start();
        (1..5).for_each(|round| put(&again, round));
        again.range(100_u32.to_be_bytes()..).for_each(|entry| {
            again.delete(entry.unwrap().0).unwrap();
        });
        again.compact().unwrap();
        assert_eq!(cursor.value(), value(250, 0), "{setup}");
        closed(cursor.next());
        assert_eq!(again.count().unwrap(), 100, "{setup}");
        drop(database);
    }
}

/// What was held back for the files of a database that is closed does not reach those of the one that is opened next.
#[test]
fn handles_that_are_dropped_late_change_nothing() {
    for setup in Setup::all() {
        for is_dropped_late in [false, true] {
            let (database, keyspace) = setup.start();
            keyspace.put("first", "v").unwrap();
            drop(keyspace);
            database.close().unwrap();
            // Its files are written to, though nothing is put.
            let (database, old) = setup.start();
            database.close().unwrap();
            let (database, keyspace) = setup.start();
            for number in 0..100_u32 {
                keyspace.put(number.to_be_bytes(), vec![number as u8; 1000]).unwrap();
            }
            keyspace.persist().unwrap();
            let old = Some(old).filter(|_| is_dropped_late);
            keyspace.put("last", "v").unwrap();
            drop(keyspace);
            database.close().unwrap();
            drop(old);
            let (database, keyspace) = setup.start();
            let report = database.verify().unwrap();
            assert!(report.problems.is_empty(), "{setup}: {:?}", report.problems);
            assert_eq!(keyspace.count().unwrap(), 102, "{setup}");
            keyspace.iter().for_each(|entry| {
                keyspace.delete(entry.unwrap().0).unwrap();
            });
        }
    }
}

/// What readers of a closed database still need is not removed from the one that is in its place when they are gone.
#[test]
fn handles_that_are_dropped_late_remove_nothing_of_another_database() {
    for setup in Setup::all().into_iter().filter(|setup| !setup.lends_what_changes()) {
        let fill = |keyspace: &Keyspace| {
            for number in 0..500_u32 {
                keyspace.put(number.to_be_bytes(), vec![7; 100]).unwrap();
            }
            keyspace.persist().unwrap();
        };
        let (database, keyspace) = setup.start();
        let mut ranges = Vec::new();
        for _ in 0..3 {
            fill(&keyspace);
            let mut range = keyspace.iter();
            range.next().unwrap().unwrap();
            ranges.push((range, database.snapshot()));
        }
        keyspace.compact().unwrap();
        database.close().unwrap();
        remove_all(&*setup.fs, &setup.path);
        let (database, another) = setup.start();
        fill(&another);
        drop((ranges, keyspace));
        drop(another);
        database.close().unwrap();
        let (database, another) = setup.start();
        let report = database.verify().unwrap();
        assert!(report.problems.is_empty(), "{setup}: {:?}", report.problems);
        assert_eq!(another.count().unwrap(), 500, "{setup}");
    }
}

#[test]
fn a_keyspace_keeps_the_database_open() {
    for setup in Setup::all() {
        let (database, keyspace) = setup.start();
        drop(database);
        keyspace.put("k", "v").unwrap();
        let range = keyspace.iter();
        drop(keyspace);
        assert_eq!(setup.builder().open().unwrap_err().kind(), ErrorKind::Locked, "{setup}");
        assert_eq!(range.count(), 1);
        let (_database, keyspace) = setup.start();
        assert_eq!(keyspace.count().unwrap(), 1, "{setup}");
    }
}

#[test]
fn closing_while_others_write_ends_in_closed_and_keeps_what_was_acknowledged() {
    for setup in Setup::all() {
        let (database, keyspace) = setup.start();
        let acknowledged: Vec<u32> = std::thread::scope(|scope| {
            let write = |thread: u32| {
                let keyspace = keyspace.clone();
                move || {
                    for number in 0.. {
                        let key = format!("{thread} {number}");
                        if let Err(error) = keyspace.put(key, vec![1; 100]) {
                            assert_eq!(error.kind(), ErrorKind::Closed);
                            return number;
                        }
                    }
                    unreachable!()
                }
            };
            let writers: Vec<_> = (0..3).map(|thread| scope.spawn(write(thread))).collect();
            std::thread::sleep(std::time::Duration::from_millis(20));
            database.clone().close().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        drop((database, keyspace));
        let (_database, keyspace) = setup.start();
        for (thread, count) in acknowledged.into_iter().enumerate() {
            for number in 0..count {
                let key = format!("{thread} {number}");
                assert!(keyspace.contains(&key).unwrap(), "{setup}: {key} of {count} is lost");
            }
        }
    }
}

#[test]
fn closing_while_others_compact_and_create_leaves_one_owner() {
    for setup in Setup::all() {
        for round in 0..3 {
            let (database, keyspace) = setup.start();
            for number in 0..500_u32 {
                keyspace.put((number * 7 + round).to_le_bytes(), vec![round as u8; 1000]).unwrap();
            }
            std::thread::scope(|scope| {
                let (others, compacted) = (database.clone(), keyspace.clone());
                let options = setup.other();
                scope.spawn(move || while compacted.compact().is_ok() {});
                scope.spawn(move || {
                    for number in 0..10 {
                        let name = format!("{round} {number}");
                        if others.keyspace(&name, options.clone()).is_err() {
                            return;
                        }
                    }
                });
                std::thread::sleep(std::time::Duration::from_millis(2 * u64::from(round)));
                database.clone().close().unwrap();
                let next = setup.builder().open().unwrap();
                let report = next.verify().unwrap();
                assert!(report.problems.is_empty(), "{setup}: {:?}", report.problems);
            });
        }
    }
}
