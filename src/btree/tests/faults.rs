//! What fails is tried again, and nothing is lost by it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Dice, Model, check, check_clean, value_of};
use crate::base::Kind;
use crate::btree::Store;
use crate::contract::testing::{Log, context};
use crate::contract::{Engine, Write};
use crate::vfs::{Effect, Errno, Fault, FaultFs, Fs, Layer, MemoryFs, Operation, PowerCut, Times};
use crate::{Database, Error, ErrorKind, Keyspace, KeyspaceOptions, RecoveryMode, VerifyReport};

const EIO: Errno = Errno::Raw(5);
const ENOSPC: Errno = Errno::Raw(28);

fn open(fs: &FaultFs) -> Database {
    let fs = Arc::new(fs.clone());
    Database::builder("/db").file_system(fs).memory_budget(8 << 20).open().unwrap()
}

fn keyspace(db: &Database) -> Keyspace {
    db.keyspace("tree", KeyspaceOptions::btree()).unwrap()
}

fn fault(operation: Operation, times: Times, effect: Effect) -> Fault {
    Fault { name_contains: "tree".into(), times, ..Fault::new(operation, effect) }
}

/// Waits until `done`.
fn wait_until(done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Memtables that wait behind one that has been written must not go with it when something fails afterwards.
#[test]
fn nothing_is_lost_when_the_file_cannot_be_cut_off() {
    let memory = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(memory.clone()));
    let db = open(&faults);
    let keyspace = keyspace(&db);
    for number in 0..4000u32 {
        keyspace.put(number.to_be_bytes(), [1; 1000]).unwrap();
    }
    keyspace.persist().unwrap();
    db.settle().unwrap();
    let before = keyspace.stats().disk_bytes;
    faults.arm(fault(Operation::Truncate, Times::Always, Effect::Fail(EIO)));
    for number in 0..4000u32 {
        keyspace.delete(number.to_be_bytes()).unwrap();
    }
    // There are always some on their way when one of them fails. Whoever waits for one that is lost waits for ever.
    let kept = |number: u32| [b"kept".as_slice(), &number.to_be_bytes()].concat();
    let persist = |number| {
        keyspace.put(kept(number), "value").unwrap();
        let keyspace = keyspace.clone();
        std::thread::sleep(Duration::from_millis(2));
        std::thread::spawn(move || keyspace.persist())
    };
    let persists: Vec<_> = (0..40).map(persist).collect();
    std::thread::sleep(Duration::from_millis(100));
    for number in 0..40 {
        assert!(keyspace.get(kept(number)).unwrap().is_some(), "{number} is lost");
    }
    assert!(faults.fired() > 0);
    faults.disarm();
    persists.into_iter().for_each(|persist| drop(persist.join().unwrap()));
    keyspace.persist().unwrap();
    assert_eq!(keyspace.count().unwrap(), 40);
    keyspace.persist().unwrap();
    keyspace.compact().unwrap();
    assert!(keyspace.stats().disk_bytes < before / 4);
    check_clean(&db);
    db.close().unwrap();
    let db = open(&faults);
    assert_eq!(self::keyspace(&db).count().unwrap(), 40);
}

/// A checkpoint that fails for want of room, at each of its calls, leaves everything as it was, and is done later.
#[test]
fn what_fails_before_the_meta_page_is_undone() {
    let kinds = [
        (Operation::Write, Effect::Fail(ENOSPC)),
        (Operation::Write, Effect::FailShort(1000, EIO)),
        (Operation::Allocate, Effect::Fail(ENOSPC)),
        (Operation::Read, Effect::Fail(EIO)),
    ];
    for (operation, effect) in kinds {
        let memory = MemoryFs::new();
        let faults = FaultFs::new(Arc::new(memory.clone()));
        let db = open(&faults);
        let keyspace = db.keyspace("tree", KeyspaceOptions::btree().max_cached_pages(16)).unwrap();
        let (mut model, mut dice) = (Model::new(), Dice::new(1));
        let mut snapshots = Vec::new();
        let mut change = |keyspace: &Keyspace, model: &mut Model| {
            for _ in 0..300 {
                let (key, value) = (dice.below(3000).to_be_bytes().to_vec(), value_of(&mut dice));
                keyspace.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        };
        for _ in 0..10 {
            change(&keyspace, &mut model);
        }
        keyspace.persist().unwrap();
        for after in 0..12 {
            snapshots.push((db.snapshot(), model.clone()));
            change(&keyspace, &mut model);
            // The first writes of a checkpoint are those of nodes and values; a meta page has 512 bytes.
            faults.arm(Fault { after: after / 4, ..fault(operation, Times::Once, effect) });
            let persisted = keyspace.persist();
            faults.disarm();
            if let Err(error) = persisted {
                if error.kind() == ErrorKind::Poisoned {
                    break;
                }
                keyspace.persist().unwrap();
            }
            check(&keyspace, &model);
            check_clean(&db);
            let (snapshot, seen) = &snapshots[snapshots.len() / 2];
            super::expect_same(snapshot.iter(&keyspace), seen.iter());
            if after % 5 == 4 {
                snapshots.clear();
                keyspace.compact().unwrap();
                check_clean(&db);
            }
        }
        drop((snapshots, keyspace));
        drop(db);
        let db = open(&faults);
        check(&self::keyspace(&db), &model);
        check_clean(&db);
    }
}

#[test]
fn after_a_failed_sync_nothing_is_written_any_more() {
    let memory = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(memory.clone()));
    for after in [0, 1] {
        let db = open(&faults);
        let keyspace = keyspace(&db);
        keyspace.put("a", vec![after; 5000]).unwrap();
        faults.arm(Fault {
            after: u64::from(after),
            ..fault(Operation::Sync, Times::Once, Effect::Fail(EIO))
        });
        keyspace.persist().unwrap_err();
        faults.disarm();
        let error = keyspace.put("b", "c").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert_eq!(keyspace.get("a").unwrap().unwrap(), vec![after; 5000]);
        wait_until(|| keyspace.persist().is_err());
        check_clean(&db);
        drop(keyspace);
        drop(db);
        let db = open(&faults);
        let keyspace = self::keyspace(&db);
        assert_eq!(keyspace.get("a").unwrap().unwrap(), vec![after; 5000]);
        assert_eq!(keyspace.get("b").unwrap(), None);
        check_clean(&db);
    }
}

#[test]
fn a_failed_sync_while_the_layer_changes_is_not_passed_over() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let db = open(&faults);
    let keyspace = keyspace(&db);
    keyspace.put("a", "b").unwrap();
    keyspace.persist().unwrap();
    faults.arm(fault(Operation::Sync, Times::Once, Effect::Fail(EIO)));
    assert!(db.keyspace("tree", KeyspaceOptions::btree().layer(Layer::Mmap)).is_err());
    faults.disarm();
    assert_eq!(keyspace.put("b", "c").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(keyspace.get("a").unwrap().unwrap(), *b"b");
}

/// At every moment of a history with checkpoints in steps the power may fail: all that had been made safe is there, and
/// the tree is whole.
#[test]
fn power_may_fail_at_any_moment() {
    let fs = MemoryFs::traced();
    let open = |fs: &MemoryFs| {
        let fs = Arc::new(fs.clone());
        Database::builder("/db").file_system(fs).memory_budget(8 << 20).open().unwrap()
    };
    let db = open(&fs);
    let keyspace = self::keyspace(&db);
    let (mut dice, mut safe) = (Dice::new(5), Vec::new());
    let mut model = Model::new();
    for round in 0..6u64 {
        for _ in 0..500 {
            let (key, value) = (dice.below(700).to_be_bytes().to_vec(), dice.bytes(600));
            keyspace.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        keyspace.put("round", round.to_be_bytes()).unwrap();
        model.insert(b"round".to_vec(), round.to_be_bytes().to_vec());
        keyspace.persist().unwrap();
        if round == 3 {
            keyspace.compact().unwrap();
        }
        safe.push((fs.operations(), model.clone()));
    }
    let end = fs.operations();
    drop((keyspace, db));
    for at in (safe[0].0..end).step_by(11) {
        for cut in [PowerCut::DropUnsynced, PowerCut::Random(dice.below(1 << 40))] {
            let image = fs.image(at, cut);
            let db = open(&image);
            let keyspace = self::keyspace(&db);
            let (_, model) = safe.iter().rev().find(|(operations, _)| *operations <= at).unwrap();
            let round = keyspace.get("round").unwrap().unwrap();
            assert!(round[..] >= model[&b"round"[..]][..]);
            if at == safe[0].0 {
                check(&keyspace, model);
            }
            check_clean(&db);
            keyspace.put("more", "of it").unwrap();
            keyspace.persist().unwrap();
            check_clean(&db);
        }
    }
}

/// What the process reserved behind the tree's end before it was killed is cut off by the next clean close.
#[test]
fn what_was_reserved_before_a_kill_is_given_back() {
    let memory = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(memory.clone()));
    let db = open(&faults);
    let keyspace = keyspace(&db);
    for number in 0..2000u32 {
        keyspace.put(number.to_be_bytes(), [1; 500]).unwrap();
    }
    keyspace.persist().unwrap();
    let killed = memory.fork();
    drop((keyspace, db));
    let len = |fs: &MemoryFs| {
        let is_tree = |path: &Path| path.file_name().is_some_and(|name| name == "tree");
        fs.files().into_iter().find(|(path, _)| is_tree(path)).unwrap().1.len()
    };
    assert!(len(&killed) > len(&memory));
    let fs: Arc<dyn Fs> = Arc::new(killed.clone());
    let db = Database::builder("/db").file_system(fs).memory_budget(8 << 20).open().unwrap();
    db.close().unwrap();
    assert_eq!(len(&killed), len(&memory));
}

/// Compacting a large tree takes long: what is written meanwhile does not wait for the end of it.
#[test]
fn checkpoints_go_on_while_all_is_compacted() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let db = open(&faults);
    let keyspace = keyspace(&db);
    for number in 0..8000u32 {
        keyspace.put(number.to_be_bytes(), [1; 1000]).unwrap();
    }
    keyspace.persist().unwrap();
    let slow = Effect::Delay(Duration::from_millis(5));
    faults.arm(fault(Operation::Write, Times::Always, slow));
    let compacted = {
        let keyspace = keyspace.clone();
        std::thread::spawn(move || keyspace.compact())
    };
    wait_until(|| faults.fired() > 3);
    keyspace.put("more", "of it").unwrap();
    keyspace.persist().unwrap();
    assert!(!compacted.is_finished());
    faults.disarm();
    compacted.join().unwrap().unwrap();
    assert_eq!(keyspace.count().unwrap(), 8001);
    check_clean(&db);
}

/// Closing may give the engine up while a checkpoint waits for the log. What readers are told from then on is no tree to build on.
#[test]
fn a_checkpoint_that_a_stop_overtakes_loses_nothing() {
    let memory = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(memory.clone()));
    let db = open(&faults);
    let keyspace = keyspace(&db);
    (0..1000u32).for_each(|number| keyspace.put(number.to_be_bytes(), [7; 100]).unwrap());
    keyspace.persist().unwrap();
    let slow = Effect::Delay(Duration::from_millis(300));
    let slow = Fault { times: Times::Always, ..Fault::new(Operation::Sync, slow) };
    faults.arm(Fault { name_contains: ".log".into(), ..slow });
    keyspace.put("more", "v").unwrap();
    let engine = &keyspace.target().engine;
    let syncs = faults.calls(Operation::Sync);
    engine.cut(db.stats().last_seqno);
    wait_until(|| faults.calls(Operation::Sync) > syncs);
    engine.stop();
    assert_eq!(keyspace.get("more").unwrap().unwrap(), "v", "it is in memory");
    assert_eq!(keyspace.get(7u32.to_be_bytes()).unwrap_err().kind(), ErrorKind::Closed);
    std::thread::sleep(Duration::from_millis(600));
    faults.disarm();
    drop(keyspace);
    let _ = db.close();
    let db = open(&FaultFs::new(Arc::new(memory.fork())));
    check_clean(&db);
    assert_eq!(db.open_keyspace("tree").unwrap().count().unwrap(), 1001);
}

/// What a panic interrupts is undone in memory, too: nothing that is on the disk is damaged by it.
#[test]
fn after_a_panic_nothing_counts_as_damaged() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let db = open(&faults);
    let keyspace = keyspace(&db);
    keyspace.put("a", "b").unwrap();
    keyspace.persist().unwrap();
    keyspace.put("b", vec![7; 5000]).unwrap();
    faults.arm(Fault { after: 1, ..fault(Operation::Write, Times::Once, Effect::Panic) });
    assert_eq!(keyspace.persist().unwrap_err().kind(), ErrorKind::Poisoned);
    faults.disarm();
    check_clean(&db);
}

/// Verify may go on while another handle closes the database.
#[test]
fn a_tree_that_is_closed_is_not_damaged() {
    let db = open(&FaultFs::new(Arc::new(MemoryFs::new())));
    let keyspace = keyspace(&db);
    keyspace.put("a", "b").unwrap();
    keyspace.persist().unwrap();
    let engine = &keyspace.target().engine;
    engine.stop();
    let mut report = VerifyReport::default();
    engine.verify(&mut report);
    let kinds: Vec<_> = report.problems.iter().map(Error::kind).collect();
    assert_eq!(kinds, [ErrorKind::Closed]);
}

/// What a checkpoint wrote that was given up is not what the next one writes to the same page, though its checksum is right.
#[test]
fn a_page_of_a_checkpoint_that_failed_does_not_pass_for_one_of_the_next() {
    let memory = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(memory.clone()));
    let db = open(&faults);
    let keyspace = keyspace(&db);
    keyspace.put("a", "old").unwrap();
    keyspace.persist().unwrap();
    faults.arm(Fault { after: 1, ..fault(Operation::Write, Times::Once, Effect::Fail(ENOSPC)) });
    assert_eq!(keyspace.compact().unwrap_err().kind(), ErrorKind::NoSpace);
    faults.disarm();
    let tree = |fs: &MemoryFs| {
        let is_tree = |path: &Path| path.file_name().is_some_and(|name| name == "tree");
        fs.files().into_iter().find(|(path, _)| is_tree(path)).unwrap()
    };
    let (_, failed) = tree(&memory);
    keyspace.put("a", "new").unwrap();
    keyspace.persist().unwrap();
    drop(keyspace);
    db.close().unwrap();
    let (path, written) = tree(&memory);
    let mut found = 0;
    for at in (2 * 4096..written.len()).step_by(4096) {
        let page = at..at + 4096;
        if written[page.clone()] != failed[page.clone()] {
            let image = memory.fork();
            let bytes = [&written[..at], &failed[page], &written[at + 4096..]].concat();
            image.write_file(&path, &bytes).unwrap();
            let db = Database::builder("/db").file_system(Arc::new(image)).memory_budget(8 << 20);
            let found_there = db.open().and_then(|db| db.open_keyspace("tree")?.get("a"));
            match found_there {
                Ok(value) => assert_eq!(value.unwrap(), *b"new", "the page at {at}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption);
                    found += 1;
                }
            }
        }
    }
    assert!(found > 0, "both were written to the same pages");
}

/// Over a page cache most of a checkpoint reaches the system only when it is synced. That there is no room for it says nothing of what is
/// safe.
#[test]
fn a_full_disk_under_a_page_cache_is_no_failed_sync() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let layer = Layer::BlockCache { block_size: 16 << 10, pages: 16 };
    let cached = || KeyspaceOptions::btree().layer(layer);
    let db = open(&faults);
    let keyspace = db.keyspace("tree", cached()).unwrap();
    for round in 0..4u8 {
        keyspace.put("a", vec![round; 5000]).unwrap();
        faults.arm(fault(Operation::Write, Times::Always, Effect::Fail(ENOSPC)));
        assert_eq!(keyspace.persist().unwrap_err().kind(), ErrorKind::NoSpace);
        check_clean(&db);
        faults.disarm();
        keyspace.persist().unwrap();
    }
    // What confirms the checkpoint is still in the cache.
    faults.arm(fault(Operation::Write, Times::Always, Effect::Fail(ENOSPC)));
    let changed = db.keyspace("tree", KeyspaceOptions::btree().layer(Layer::Positional));
    assert_eq!(changed.unwrap_err().kind(), ErrorKind::NoSpace);
    faults.disarm();
    keyspace.put("b", "c").unwrap();
    keyspace.persist().unwrap();
    check_clean(&db);
    drop(keyspace);
    db.close().unwrap();
    let db = open(&faults);
    let keyspace = db.open_keyspace("tree").unwrap();
    assert_eq!(keyspace.get("a").unwrap().unwrap(), vec![3; 5000]);
    assert_eq!(keyspace.get("b").unwrap().unwrap(), *b"c");
}

#[test]
fn verify_keeps_no_memtable() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let context = context(Arc::new(faults.clone()), Arc::new(Log::default()));
    let store = Store::create(context.clone(), KeyspaceOptions::btree().tree).unwrap();
    let write = |seqno: u64| {
        let (key, kind) = (seqno.to_be_bytes(), Kind::Put);
        store.apply(&Write { seqno, kind, key: &key, value: &[7; 1000] });
        context.visibility.publish(seqno);
    };
    let persist = |seqno| {
        store.cut(seqno);
        store.persist().unwrap();
    };
    (1..=1000).for_each(write);
    persist(1000);
    let memtable = store.memtable();
    faults.arm(fault(Operation::Read, Times::Always, Effect::Delay(Duration::from_millis(5))));
    let mut report = VerifyReport::default();
    let fired = std::thread::scope(|scope| {
        let verifying = scope.spawn(|| store.verify(&mut report));
        wait_until(|| faults.fired() > 5);
        write(1001);
        persist(1001);
        wait_until(|| memtable.strong_count() == 0);
        let fired = faults.fired();
        verifying.join().unwrap();
        fired
    });
    assert!(fired < faults.fired(), "it stayed until all {fired} reads were made");
    assert_eq!(report.problems.len(), 0, "{report:?}");
    store.stop();
    context.background.flush.stop();
    context.background.compaction.stop();
}

/// The file is left in the middle of a checkpoint in steps, and of the log the end is damaged, which had all of its writes. What
/// the file has of them is a selection, by keys: tolerant recovery must not take it for a state.
#[test]
fn tolerant_recovery_takes_no_part_of_a_checkpoint_for_a_state() {
    const KEYS: u64 = 1000;
    const CHANGES: u64 = 200;
    let key = |number: u64| (number % KEYS).to_be_bytes();
    let changed = |number: u64| key(number * 37);
    let setup = MemoryFs::new();
    let db = open(&FaultFs::new(Arc::new(setup.clone())));
    let tree = keyspace(&db);
    (0..KEYS).for_each(|number| tree.put(key(number), [255; 1000]).unwrap());
    tree.persist().unwrap();
    (1..=CHANGES).for_each(|number| tree.put(changed(number), [number as u8; 1000]).unwrap());
    db.persist().unwrap();
    // A clean close would write them to the tree.
    let killed = setup.fork();
    drop((tree, db));
    let (mut torn, mut whole) = (0, 0);
    for after in 0.. {
        let memory = killed.fork();
        let faults = FaultFs::new(Arc::new(memory.clone()));
        let db = open(&faults);
        let broken = fault(Operation::Sync, Times::Always, Effect::Fail(EIO));
        let fired = faults.fired();
        faults.arm(Fault { after, ..broken });
        let persisted = keyspace(&db).persist();
        if faults.fired() == fired {
            persisted.unwrap();
            break;
        }
        drop(db);
        let image = memory.fork();
        // A record near the end, wherever the log has it: it may have been written more than once.
        for (path, bytes) in image.files() {
            let is_log = path.parent().is_some_and(|dir| dir.ends_with("log"));
            let damaged = [CHANGES as u8 - 10; 100];
            let found = bytes.windows(damaged.len()).position(|bytes| bytes == damaged);
            if let Some(at) = found.filter(|_| is_log) {
                image.corrupt(&path, at as u64, 1).unwrap();
            }
        }
        let fs = Arc::new(image.clone());
        let builder = Database::builder("/db").file_system(fs).memory_budget(8 << 20);
        match builder.recovery(RecoveryMode::Tolerant).open() {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                assert!(error.to_string().contains("some of the writes"), "{error}");
                torn += 1;
            }
            Ok(db) => {
                let tree = keyspace(&db);
                let is_there = |number: &u64| {
                    tree.get(changed(*number)).unwrap().unwrap() == [*number as u8; 1000]
                };
                let count = (1..=CHANGES).filter(is_there).count() as u64;
                assert!((1..=count).all(|number| is_there(&number)), "{count} after {after} syncs");
                whole += 1;
            }
        }
    }
    assert!(torn > 0 && whole > 0, "{torn} torn, {whole} whole");
}
