//! Closing: what other handles say then, and what is there at the next opening.

use turbidite::{Database, Durability, ErrorKind, Keyspace, Result};

use crate::setup::Setup;

fn closed<T>(result: Result<T>) {
    assert_eq!(result.err().map(|error| error.kind()), Some(ErrorKind::Closed));
}

fn all_is_refused(database: &Database, keyspace: &Keyspace) {
    closed(keyspace.put("k", "w"));
    closed(keyspace.delete("k"));
    closed(keyspace.get("k"));
    closed(keyspace.contains("k"));
    closed(keyspace.multi_get(["k"]));
    closed(keyspace.multi_get::<&str>([]));
    closed(keyspace.cursor());
    closed(keyspace.count());
    closed(keyspace.persist());
    closed(keyspace.compact());
    closed(keyspace.iter().next().unwrap());
    closed(keyspace.range("a".."z").next_back().unwrap());
    closed(keyspace.prefix("").next().unwrap());
    closed(database.keyspace("main", turbidite::KeyspaceOptions::lsm()));
    closed(database.open_keyspace("main"));
    closed(database.persist());
    closed(database.settle());
    closed(database.verify());
    closed(database.clone().close());
    let mut batch = database.batch().durability(Durability::Sync);
    batch.put(keyspace, "k", "w");
    closed(batch.commit());
    closed(database.batch().durability(Durability::Sync).commit());
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
        all_is_refused(&other, &keyspace);
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
        // Handles of the closed database do not stand in the way of the next one.
        let (_database, again) = setup.start();
        assert_eq!(again.get("k").unwrap().unwrap(), "v", "{setup}");
        closed(keyspace.get("k"));
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
