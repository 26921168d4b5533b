//! Many threads: batches are seen whole or not at all, and no counter ever goes backwards.

use std::sync::atomic::{AtomicBool, Ordering};

use turbidite::{Database, Durability, EngineKind, Keyspace, Layer, Slice, Snapshot};

use crate::setup::{Setup, options};

const WRITERS: u64 = 3;
const BATCHES: u64 = 1500;

fn number(value: Option<Slice>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()))
}

fn counter(writer: u64) -> String {
    format!("counter {writer}")
}

/// Writes the same counters to all keyspaces, and to the first one a record for each batch.
fn write(database: &Database, keyspaces: &[Keyspace], writer: u64) {
    for count in 1..=BATCHES {
        let durability = if count % 100 == 0 { Durability::Sync } else { Durability::Os };
        let mut batch = database.batch().durability(durability);
        let shared = [count.to_le_bytes(), writer.to_le_bytes()].concat();
        for keyspace in keyspaces {
            batch.put(keyspace, counter(writer), count.to_le_bytes());
            batch.put(keyspace, "shared", &shared);
        }
        batch.put(&keyspaces[0], format!("record {writer} {count:06}"), vec![1; 2500]);
        batch.delete(&keyspaces[1], "never");
        batch.commit().unwrap();
        let own = keyspaces[0].get(counter(writer)).unwrap();
        assert_eq!(number(own), count, "a writer reads its own writes");
    }
}

/// Checks that a snapshot shows whole batches; gives the counters.
fn check(snapshot: &Snapshot, keyspaces: &[Keyspace]) -> Vec<u64> {
    let values = |key: &str| -> Vec<Option<Slice>> {
        keyspaces.iter().map(|keyspace| snapshot.get(keyspace, key).unwrap()).collect()
    };
    let shared = values("shared");
    assert!(shared.iter().all(|value| *value == shared[0]), "{shared:?}");
    (0..WRITERS)
        .map(|writer| {
            let counts: Vec<u64> = values(&counter(writer)).into_iter().map(number).collect();
            assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
            counts[0]
        })
        .collect()
}

/// Reads until the writers are done.
fn read(database: &Database, keyspaces: &[Keyspace], done: &AtomicBool) {
    let (mut seen, mut latest) = (vec![0; WRITERS as usize], 0);
    let mut last = false;
    while !last {
        last = done.load(Ordering::Acquire);
        let now = number(keyspaces[1].get(counter(0)).unwrap());
        assert!(now >= latest, "the counter went from {latest} back to {now}");
        latest = now;
        let snapshot = database.snapshot();
        let counts = check(&snapshot, keyspaces);
        assert!(seen.iter().zip(&counts).all(|(old, new)| old <= new), "{seen:?}, {counts:?}");
        assert!(counts[0] >= latest);
        for (writer, count) in counts.iter().enumerate() {
            let mut records = snapshot.prefix(&keyspaces[0], format!("record {writer} "));
            let newest = records.next_back().map(|item| item.unwrap().0);
            let expected = (*count > 0).then(|| format!("record {writer} {count:06}"));
            assert_eq!(newest.as_deref(), expected.as_deref().map(str::as_bytes));
        }
        seen = counts;
    }
    assert_eq!(seen, [BATCHES; WRITERS as usize]);
}

#[test]
fn readers_see_whole_batches_in_their_order() {
    let hash = Setup::memory().layer(Layer::Block { block_size: 4096 }).engine(EngineKind::Hash);
    let tree = Setup::memory().engine(EngineKind::Btree);
    let mapped_tree = Setup::disk(Layer::Mmap).engine(EngineKind::Btree);
    let skip = Setup::memory().engine(EngineKind::Skip);
    let mapped_skip = Setup::disk(Layer::Mmap).engine(EngineKind::Skip);
    let lsm = [Setup::memory(), Setup::disk(Layer::Mmap)];
    for setup in lsm.into_iter().chain([hash, tree, mapped_tree, skip, mapped_skip]) {
        let open = || {
            let database = setup.open();
            let keyspaces = ["one", "two", "unlogged"].map(|name| {
                // The records of the first one are read in order.
                let is_possible = name != "one" || setup.is_ordered();
                let engine = if is_possible { setup.engine } else { EngineKind::Lsm };
                database.keyspace(name, options(engine).log(name != "unlogged")).unwrap()
            });
            (database, keyspaces)
        };
        let (database, keyspaces) = open();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (database, keyspaces, done) = (&database, &keyspaces, &done);
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| scope.spawn(move || write(database, keyspaces, writer)))
                .collect();
            for _ in 0..2 {
                scope.spawn(move || read(database, keyspaces, done));
            }
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    keyspaces[1].compact().unwrap();
                    keyspaces[2].persist().unwrap();
                }
            });
            let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            done.store(true, Ordering::Release);
            assert!(outcomes.iter().all(Result::is_ok), "{setup}");
        });
        assert!(keyspaces[0].stats().flushes > 0, "{setup}");
        drop(keyspaces);
        database.close().unwrap();
        let (database, keyspaces) = open();
        let counts = check(&database.snapshot(), &keyspaces);
        assert_eq!(counts, [BATCHES; WRITERS as usize], "{setup}");
        assert_eq!(keyspaces[0].prefix("record ").count() as u64, WRITERS * BATCHES);
    }
}
