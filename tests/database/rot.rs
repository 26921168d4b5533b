//! Bytes that change on the device after they were read and found whole.

use std::sync::Arc;

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, MemoryFs, Operation, Times};
use turbidite::{
    Database, Durability, EngineKind, ErrorKind, Keyspace, Layer, MIN_MEMORY_BUDGET, Result,
};

use crate::history::Dice;
use crate::setup::{ENGINES, options};

const KEYS: u32 = 3000;

fn open(fs: &MemoryFs) -> Result<Database> {
    let builder = Database::builder("/db").file_system(Arc::new(fs.clone()));
    builder.memory_budget(MIN_MEMORY_BUDGET).open()
}

/// Puts every key that is a multiple of `step` and no multiple of `but`; with values that cannot be compressed.
fn put(keyspace: &Keyspace, dice: &mut Dice, step: u32, but: u32) -> Result<()> {
    for number in (0..KEYS).step_by(step as usize).filter(|number| number % but > 0) {
        keyspace.put(number.to_be_bytes(), dice.bytes(200))?;
    }
    keyspace.persist()
}

/// What a mapped file shows is checked when it is first used. It is checked again before it gets into another file, with a checksum
/// that says that it is right.
#[test]
fn what_has_changed_since_it_was_read_gets_into_no_other_file() {
    for engine in ENGINES {
        let (fs, mut dice) = (MemoryFs::new(), Dice::new(7));
        let database = open(&fs).unwrap();
        let keyspace = database.keyspace("main", options(engine).layer(Layer::Mmap)).unwrap();
        put(&keyspace, &mut dice, 1, u32::MAX).unwrap();
        keyspace.compact().unwrap();
        let needle = 1500_u32.to_be_bytes();
        let value = keyspace.get(needle).unwrap().unwrap();
        assert_eq!(keyspace.iter().map(Result::unwrap).count() as u32, KEYS - 1);
        let found = fs.files().into_iter().find_map(|(path, bytes)| {
            let at = bytes.windows(value.len()).position(|window| *window == *value)?;
            path.to_str()?.contains("keyspaces").then_some((path, at as u64))
        });
        let (path, at) = found.unwrap_or_else(|| panic!("{engine} has not written it"));
        let value = value.to_vec();
        fs.corrupt(&path, at + 100, 1).unwrap();
        assert!(!database.verify().unwrap().problems.is_empty(), "{engine}: verify finds nothing");
        // Neighbours of the record are written anew, and it with them.
        let written = put(&keyspace, &mut dice, 2, 1500).and_then(|()| keyspace.compact());
        assert!(written.is_err_and(|error| error.kind() == ErrorKind::Corruption), "{engine}");
        // Nothing has been checked yet by who opens it next.
        let opened = open(&fs.fork());
        match opened.and_then(|database| database.open_keyspace("main")?.get(needle)) {
            Ok(found) => assert_eq!(found.unwrap(), value, "{engine}: a wrong value is given"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{engine}"),
        }
    }
}

/// What has been read before, and is kept in memory, says nothing of the device.
#[test]
fn verify_reads_again_what_is_cached() {
    for engine in ENGINES {
        let (fs, mut dice) = (MemoryFs::new(), Dice::new(7));
        let database = open(&fs).unwrap();
        let keyspace = database.keyspace("main", options(engine).layer(Layer::Positional)).unwrap();
        put(&keyspace, &mut dice, 1, u32::MAX).unwrap();
        keyspace.compact().unwrap();
        let value = keyspace.get(1500_u32.to_be_bytes()).unwrap().unwrap();
        let files =
            fs.files().into_iter().filter(|(path, _)| path.to_str().unwrap().contains("keyspaces"));
        let found = files.into_iter().find_map(|(path, bytes)| {
            let at = bytes.windows(value.len()).position(|window| *window == *value)?;
            Some((path, at as u64))
        });
        let (path, at) = found.unwrap_or_else(|| panic!("{engine} has not written it"));
        fs.corrupt(&path, at + 100, 1).unwrap();
        assert!(!database.verify().unwrap().problems.is_empty(), "{engine}: verify finds nothing");
    }
}

/// What the log has twice, in its segment and in its tail, is told of where either is damaged: of the tail nothing is left when the power fails.
#[test]
fn verify_finds_damage_to_what_the_tail_of_the_log_has_too() {
    let fs = MemoryFs::new();
    let database =
        Database::builder("/db").log_layer(Layer::Mmap).file_system(Arc::new(fs.clone()));
    let database = database.open().unwrap();
    let keyspace = database.keyspace("main", options(EngineKind::Lsm)).unwrap();
    for number in 0..10_u32 {
        keyspace.put(number.to_be_bytes(), b"a value that is only here").unwrap();
    }
    assert!(database.verify().unwrap().problems.is_empty());
    let places = |name: &str| {
        let mut files = fs.files().into_iter();
        let found =
            files.find(|(path, _)| path.ends_with(name)).unwrap_or_else(|| panic!("{name}"));
        let at = found.1.windows(25).position(|window| window == b"a value that is only here");
        (found.0, at)
    };
    assert!(places("tail.log").1.is_some(), "the tail does not have it");
    let (path, place) = places("000001.log");
    fs.corrupt(&path, place.expect("the segment has it") as u64, 1).unwrap();
    let problems = database.verify().unwrap().problems;
    assert!(problems.iter().any(|error| error.kind() == ErrorKind::Corruption), "{problems:?}");
}

/// Of a log of which nobody knows what it holds nothing is written any more, not by those either who look whether all is well.
#[test]
fn verify_of_a_poisoned_database_writes_nothing_and_finds_what_is_there_whole() {
    let memory = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(memory.clone()));
    let builder = Database::builder("/db").log_layer(Layer::Positional);
    let database = builder.file_system(Arc::new(faults.clone())).open().unwrap();
    let keyspace = database.keyspace("main", options(EngineKind::Lsm)).unwrap();
    keyspace.put_with("synced", "value", Durability::Sync).unwrap();
    let fault = Fault::new(Operation::Write, Effect::Fail(Errno::Raw(5)));
    faults.arm(Fault { name_contains: ".log".into(), times: Times::Always, ..fault });
    keyspace.put("refused", "value").unwrap_err();
    faults.disarm();
    let before = faults.calls(Operation::Write);
    let problems = database.verify().unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(faults.calls(Operation::Write), before);
    let found = Database::builder("/db").file_system(Arc::new(memory.fork())).open().unwrap();
    assert_eq!(found.open_keyspace("main").unwrap().count().unwrap(), 1);
}
