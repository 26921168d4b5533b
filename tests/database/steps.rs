//! A checkpoint of a B+ tree that is so large that it is made in steps: what is read while it goes on, and what is
//! left when the power fails in the middle of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, Fs, MemoryFs, Operation, PowerCut};
use turbidite::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions};

const PATH: &str = "/data/steps.db";
/// Each value has a page of its own, and more of them than a step takes fit a memtable.
const PAGE: usize = 64 << 10;
const VALUE: usize = 17_000;
const RECORDS: u32 = 400;
const BUDGET: usize = 64 << 20;

fn open(fs: Arc<dyn Fs>) -> (Database, Keyspace) {
    let builder = Database::builder(PATH).memory_budget(BUDGET).file_system(fs);
    let db = builder.open().unwrap();
    let keyspace = db.keyspace("tree", KeyspaceOptions::btree().page_size(PAGE as u32)).unwrap();
    (db, keyspace)
}

/// Writes all records, so that they survive power loss.
fn write(db: &Database, keyspace: &Keyspace, round: u8) {
    for number in 0..RECORDS {
        keyspace.put(number.to_be_bytes(), vec![round; VALUE]).unwrap();
    }
    db.batch().durability(Durability::Sync).commit().unwrap();
}

fn check(keyspace: &Keyspace, round: u8) {
    let mut records = keyspace.iter();
    for number in 0..RECORDS {
        let (key, value) = records.next().unwrap().unwrap();
        assert_eq!(*key, number.to_be_bytes());
        assert!(value.len() == VALUE && value.iter().all(|&byte| byte == round), "{number}");
    }
    assert!(records.next().is_none());
}

/// How many checkpoints there have been.
fn checkpoints(fs: &MemoryFs) -> u64 {
    let path = Path::new(PATH).join("keyspaces/1/tree");
    let files = fs.files();
    let (_, bytes) = files.iter().find(|(other, _)| *other == path).unwrap();
    let generation =
        |page: usize| u64::from_le_bytes(bytes[page + 24..page + 32].try_into().unwrap());
    generation(0).max(generation(PAGE))
}

#[test]
fn what_was_synced_is_there_wherever_a_checkpoint_in_steps_ends() {
    let fs = MemoryFs::traced();
    let (db, keyspace) = open(Arc::new(fs.clone()));
    write(&db, &keyspace, 1);
    keyspace.persist().unwrap();
    write(&db, &keyspace, 2);
    let (begun, before) = (fs.operations(), checkpoints(&fs));
    keyspace.persist().unwrap();
    let (ended, steps) = (fs.operations(), checkpoints(&fs) - before);
    assert!((2..10).contains(&steps), "{steps} steps");
    for at in (begun..=ended).step_by((ended - begun) / 20) {
        for cut in [PowerCut::KeepAll, PowerCut::DropUnsynced, PowerCut::Random(at as u64)] {
            let image = fs.image(at, cut);
            let (db, keyspace) = open(Arc::new(image));
            check(&keyspace, 2);
            let problems = db.verify().unwrap().problems;
            assert!(problems.is_empty(), "{at}, {cut:?}: {problems:?}");
        }
    }
}

#[test]
fn readers_see_all_of_it_while_a_checkpoint_is_made_in_steps() {
    let fs = MemoryFs::new();
    let (db, keyspace) = open(Arc::new(fs.clone()));
    write(&db, &keyspace, 1);
    keyspace.persist().unwrap();
    let snapshot = db.snapshot();
    write(&db, &keyspace, 2);
    keyspace.persist().unwrap();
    assert!(snapshot.iter(&keyspace).all(|item| item.unwrap().1[0] == 1));
    drop(snapshot);
    write(&db, &keyspace, 3);
    let before = checkpoints(&fs);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                check(&keyspace, 3);
                let key = (RECORDS / 2).to_be_bytes();
                assert_eq!(keyspace.get(key).unwrap().unwrap()[0], 3);
            }
        });
        keyspace.persist().unwrap();
        done.store(true, Ordering::Release);
    });
    assert!(checkpoints(&fs) >= before + 2);
    // The pages of the first steps were used for the later ones.
    let size = keyspace.stats().disk_bytes;
    assert!(size < 3 * u64::from(RECORDS) * PAGE as u64, "{size} bytes");
}

#[test]
fn a_step_that_fails_is_made_again() {
    let memory = MemoryFs::new();
    let faulty = FaultFs::new(Arc::new(memory.clone()));
    let (db, keyspace) = open(Arc::new(faulty.clone()));
    write(&db, &keyspace, 1);
    keyspace.persist().unwrap();
    let mut round = 1;
    for after in [10, 300, 390] {
        round += 1;
        write(&db, &keyspace, round);
        faulty.arm(Fault {
            after,
            name_contains: "tree".into(),
            ..Fault::new(Operation::Write, Effect::Fail(Errno::Raw(28)))
        });
        // It may be made again before this looks.
        if let Err(error) = keyspace.persist() {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        }
        assert_eq!(faulty.fired(), u64::from(round) - 1, "after {after}");
        faulty.disarm();
        check(&keyspace, round);
        // As a kill leaves it.
        let (killed, there) = open(Arc::new(memory.fork()));
        check(&there, round);
        assert!(killed.verify().unwrap().problems.is_empty());
        keyspace.persist().unwrap();
        check(&keyspace, round);
        assert!(db.verify().unwrap().problems.is_empty());
    }
}
