//! Writing: batches over several keyspaces, durability, persisting, and coming back.

use turbidite::{Batch, Database, Durability, EngineKind, ErrorKind, Keyspace, LevelStats, Policy};

use crate::setup::Setup;

fn pair(database: &Database, setup: &Setup) -> (Keyspace, Keyspace) {
    (setup.keyspace(database), database.keyspace("other", setup.other().log(false)).unwrap())
}

#[test]
fn a_batch_takes_effect_in_its_order_and_over_keyspaces() {
    for setup in Setup::all() {
        let database = setup.open();
        let (main, other) = pair(&database, &setup);
        main.put("gone", "x").unwrap();
        let mut batch = database.batch();
        assert!(batch.is_empty());
        batch.put(&main, "k", "1").delete(&main, "k").put(&main, "k", "2");
        batch.put(&other, "k", "3").delete(&main, "gone").put(&main, "", "");
        batch.put(&other, "z", "4").delete(&other, "z");
        assert_eq!(batch.len(), 8);
        assert_eq!(main.get("k").unwrap().as_deref(), None, "{setup}: not committed");
        let before = database.stats().last_seqno;
        batch.commit().unwrap();
        assert_eq!(database.stats().last_seqno, before + 8);
        let check = |main: &Keyspace, other: &Keyspace| {
            assert_eq!(main.get("k").unwrap().as_deref(), Some(&b"2"[..]), "{setup}");
            assert_eq!(main.get("").unwrap().as_deref(), Some(&b""[..]), "{setup}");
            assert_eq!(other.get("k").unwrap().as_deref(), Some(&b"3"[..]), "{setup}");
            assert_eq!((main.count().unwrap(), other.count().unwrap()), (2, 1), "{setup}");
        };
        check(&main, &other);
        database.close().unwrap();
        let database = setup.open();
        let (main, other) = pair(&database, &setup);
        check(&main, &other);
    }
}

#[test]
fn a_batch_that_is_dropped_or_empty_writes_nothing() {
    let setup = Setup::memory();
    let (database, keyspace) = setup.start();
    let before = database.stats().last_seqno;
    let mut batch = database.batch();
    batch.put(&keyspace, "k", "v");
    drop(batch);
    for durability in [Durability::Buffered, Durability::Os, Durability::Sync] {
        database.batch().durability(durability).commit().unwrap();
    }
    assert_eq!(database.stats().last_seqno, before);
    assert_eq!(keyspace.count().unwrap(), 0);
}

#[test]
fn a_keyspace_of_another_database_is_refused() {
    let (here, there) = (Setup::memory(), Setup::memory());
    let (database, keyspace) = here.start();
    let (_other, foreign) = there.start();
    let refused = |result: turbidite::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
    };
    let mut batch = database.batch();
    batch.put(&keyspace, "k", "v").put(&foreign, "k", "v");
    refused(batch.commit());
    assert_eq!(keyspace.count().unwrap() + foreign.count().unwrap(), 0);
    let snapshot = database.snapshot();
    refused(snapshot.get(&foreign, "k").map(drop));
    refused(snapshot.contains(&foreign, "k").map(drop));
    refused(snapshot.multi_get(&foreign, ["k"]).map(drop));
    refused(snapshot.cursor(&foreign).map(drop));
    refused(snapshot.count(&foreign).map(drop));
    for mut range in
        [snapshot.iter(&foreign), snapshot.range(&foreign, "a".."b"), snapshot.prefix(&foreign, "")]
    {
        refused(range.next().unwrap().map(drop));
        assert!(range.next().is_none() && range.next_back().is_none());
    }
}

#[test]
fn every_durability_survives_a_clean_close_and_a_drop() {
    for setup in Setup::all() {
        for close in [true, false] {
            for durability in [Durability::Buffered, Durability::Os, Durability::Sync] {
                let database = setup.builder().durability(durability).open().unwrap();
                let keyspace = setup.keyspace(&database);
                keyspace.put(format!("{durability} {close}"), "default").unwrap();
                let mut batch: Batch = database.batch().durability(durability);
                batch.put(&keyspace, format!("{durability} {close} batch"), "batch");
                batch.commit().unwrap();
                drop(keyspace);
                if close {
                    database.close().unwrap();
                }
            }
        }
        let (_database, keyspace) = setup.start();
        assert_eq!(keyspace.count().unwrap(), 12, "{setup}");
    }
}

#[test]
fn writes_of_logged_and_unlogged_keyspaces_may_alternate() {
    // Numbers are shared: what a keyspace has persisted may lie beyond the log's last write.
    for setup in Setup::all() {
        for round in 0..4_u32 {
            let database = setup.open();
            let (main, other) = pair(&database, &setup);
            assert_eq!(main.count().unwrap(), 2 * u64::from(round), "{setup}");
            assert_eq!(other.count().unwrap(), 2 * u64::from(round), "{setup}");
            main.put(format!("{round} a"), "v").unwrap();
            other.put(format!("{round} a"), "v").unwrap();
            let mut batch = database.batch();
            batch.put(&other, format!("{round} b"), "v").put(&main, format!("{round} b"), "v");
            batch.commit().unwrap();
            match round {
                0 => main.persist().unwrap(),
                1 => other.persist().unwrap(),
                2 => main.compact().unwrap(),
                _ => database.persist().unwrap(),
            }
            assert_eq!(database.verify().unwrap().problems.len(), 0, "{setup}");
            drop((main, other));
            database.close().unwrap();
        }
    }
}

/// 5000 bytes of which compression makes no fewer.
fn incompressible(number: u8) -> Vec<u8> {
    let mut state = u64::from(number) + 1;
    let mut byte = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..5000).map(|_| byte()).collect()
}

#[test]
fn persist_and_settle_leave_nothing_to_do() {
    for setup in Setup::all() {
        let (database, keyspace) = setup.start();
        for number in 0..8 {
            keyspace.put("first", "overlaps").unwrap();
            keyspace.put(format!("{number}"), incompressible(number)).unwrap();
            keyspace.persist().unwrap();
        }
        database.persist().unwrap();
        database.settle().unwrap();
        let stats = keyspace.stats();
        assert!(stats.flushes >= 8, "{setup}: {stats:?}");
        assert_eq!((&stats.name[..], stats.engine), (crate::setup::NAME, setup.engine));
        if setup.engine == EngineKind::Lsm {
            let in_level_0 = |level: &LevelStats| level.level == 0 && level.tables > 4;
            // Limits of bytes are out of reach here.
            if !matches!(setup.policy(), Some(Policy::Fifo { .. } | Policy::Levels(_))) {
                assert!(stats.compactions > 0 && !stats.levels.iter().any(in_level_0), "{stats:?}");
            }
            let stored = stats.levels.iter().map(|level| level.entries).sum::<u64>();
            assert_eq!(stats.entries, stored);
        } else if let Some(skip) = stats.skip {
            assert_eq!(stats.entries, skip.records + skip.run_entries, "{setup}: {stats:?}");
        } else {
            // What is superseded is not in the index any more.
            assert_eq!(stats.entries, 9, "{setup}: {stats:?}");
        }
        keyspace.compact().unwrap();
        let report = database.verify().unwrap();
        let entries = if setup.merges() { 9 } else { 16 };
        assert!(report.problems.is_empty() && report.entries == entries, "{setup}: {report:?}");
        assert!(report.files >= 2 && report.bytes > 40_000, "{setup}: {report:?}");
    }
}

#[test]
fn compaction_drops_what_nobody_sees() {
    for setup in Setup::all().into_iter().filter(Setup::merges) {
        let (database, keyspace) = setup.start();
        for round in 0..4_u8 {
            for number in 0..200 {
                keyspace.put(format!("{number:04}"), vec![round; 500]).unwrap();
            }
            keyspace.persist().unwrap();
        }
        for number in 0..199 {
            keyspace.delete(format!("{number:04}")).unwrap();
        }
        keyspace.compact().unwrap();
        assert_eq!((keyspace.stats().entries, keyspace.count().unwrap()), (1, 1), "{setup}");
        keyspace.delete("0199").unwrap();
        keyspace.compact().unwrap();
        let stats = keyspace.stats();
        // What is left of a hash keyspace is a checkpoint of nothing, of a B+ tree its meta pages and a list, and of a skip
        // keyspace at most a file that says that it is empty.
        let left = match setup.engine {
            EngineKind::Btree => 4 * 4096,
            EngineKind::Skip => 4096,
            _ => 99,
        };
        assert!(stats.entries == 0 && stats.disk_bytes <= left, "{setup}: {stats:?}");
        database.close().unwrap();
        let (_database, keyspace) = setup.start();
        assert_eq!(keyspace.count().unwrap(), 0, "{setup}");
    }
}
