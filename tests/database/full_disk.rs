//! A disk that is really full, under a log that is mapped: an error, and no signal. And one that has no space for what has been
//! reserved, as where files are copied on write: an error, and no end of all writes.
//!
//! The parent starts this test binary again as the child, in a mount of its own with a small file system.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, MemoryFs, Operation, Times};
use turbidite::{Database, Durability, EngineKind, ErrorKind, KeyspaceOptions, Layer};

use crate::setup::options;

/// Names an engine and the small file system to the child.
const CHILD: &str = "TURBIDITE_FULL_DISK_CHILD";
/// Mounts a file system of 3 MiB at the first argument and runs the others.
const MOUNT: &str = r#"mount -t tmpfs -o size=3m none "$1" && shift && exec "$@""#;

/// What the child process runs; nothing without a parent that asks for it.
#[test]
fn child_that_fills_its_disk() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let (engine, dir) = task.split_once(' ').expect("the engine and the directory");
    let engine = engine.parse().expect("it is an engine");
    let path = Path::new(dir).join("db");
    // What others have on the disk, until they take it away.
    let other = Path::new(dir).join("other");
    std::fs::write(&other, vec![1; 1 << 20]).unwrap();
    // Nothing is flushed while the disk fills up: a table that gives back the log, or takes what the log needs, would make
    // what happens depend on when it is written.
    let open = || Database::builder(&path).memory_budget(64 << 20).log_layer(Layer::Mmap).open();
    let options = KeyspaceOptions::lsm().layer(Layer::Mmap);
    let db = open().unwrap();
    let keyspace = db.keyspace("main", options).unwrap();
    let mut written = 0_u64;
    // Overwritten in turn, so that all of it stays in memory and only the log grows.
    let error = loop {
        match keyspace.put((written % 100).to_be_bytes(), written.to_le_bytes().repeat(100)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1_000_000, "the disk never fills up");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(written > 1000, "{written}");
    let check = |db: &Database| {
        let keyspace = db.open_keyspace("main").unwrap();
        for number in written - 100..written {
            let value = keyspace.get((number % 100).to_be_bytes()).unwrap().unwrap();
            assert_eq!(value, number.to_le_bytes().repeat(100));
        }
    };
    check(&db);
    drop((keyspace, db));
    let db = open().unwrap();
    check(&db);
    println!("{written} writes, then {error}");
    std::fs::remove_file(&other).unwrap();
    fill_with(&db, engine);
    drop(db);
    check(&open().unwrap());
}

/// Fills what is left of the disk.
fn fill_with(db: &Database, engine: EngineKind) {
    let options = options(engine).layer(Layer::Mmap).log(false);
    let keyspace = db.keyspace("more", options).unwrap();
    let mut written = 0_u32;
    let error = loop {
        for _ in 0..10 {
            keyspace.put(written.to_be_bytes(), [written as u8; 1000]).unwrap();
            written += 1;
        }
        match keyspace.persist() {
            Ok(()) => assert!(written < 10_000, "the disk never fills up"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(written > 100, "{written}");
    for number in 0..written {
        assert_eq!(keyspace.get(number.to_be_bytes()).unwrap().unwrap(), [number as u8; 1000]);
    }
    for number in 0..written {
        keyspace.delete(number.to_be_bytes()).unwrap();
    }
    println!("{written} writes with engine {engine}, then {error}");
}

/// What is refused for want of space leaves the log as it was, whatever waits in it.
#[test]
fn a_write_behind_one_that_there_is_no_space_for_yet_is_only_refused() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let open = || {
        let builder = Database::builder("/db").log_layer(Layer::Positional).manual_log_flush();
        builder.file_system(Arc::new(faults.clone())).open().unwrap()
    };
    let db = open();
    let keyspace = db.keyspace("main", KeyspaceOptions::lsm()).unwrap();
    keyspace.put_with("buffered", "value", Durability::Buffered).unwrap();
    let full = Fault::new(Operation::Write, Effect::Fail(Errno::Raw(28)));
    faults.arm(Fault { name_contains: ".log".into(), times: Times::Always, ..full });
    // More than is left of the segment: what waits is written out first.
    for _ in 0..2 {
        let error = keyspace.put("large", vec![1; 200_000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    }
    faults.disarm();
    keyspace.put("later", "value").unwrap();
    drop(keyspace);
    db.close().unwrap();
    let db = open();
    let keyspace = db.open_keyspace("main").unwrap();
    assert_eq!(keyspace.get("large").unwrap(), None);
    for key in ["buffered", "later"] {
        assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&b"value"[..]), "{key}");
    }
}

#[test]
fn a_mapped_log_on_a_full_disk_is_an_error_and_no_signal() {
    [EngineKind::Btree, EngineKind::Skip].into_iter().for_each(fill_a_disk);
}

/// Has a child fill a disk of its own with the log, and then with a keyspace on `engine`.
fn fill_a_disk(engine: EngineKind) {
    let dir = tempfile::tempdir().unwrap();
    let unshare = |command: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh"]);
        unshare.arg(dir.path()).args(command).stdin(Stdio::null());
        unshare
    };
    if !unshare(&["true"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("left out: no file system can be mounted here");
        return;
    }
    let binary = std::env::current_exe().unwrap();
    let child = ["--exact", "full_disk::child_that_fills_its_disk", "--nocapture"];
    let output = unshare(&[&[binary.to_str().unwrap()], &child[..]].concat())
        .env(CHILD, format!("{engine} {}", dir.path().display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}: {said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("no space left"), "{said}");
}

/// Where nothing is written over, there may be no space for what only says that writes were synced: they are synced all the same.
#[test]
fn a_write_is_synced_though_there_is_no_space_to_say_so() {
    let layers = [Layer::Positional, Layer::Mmap, Layer::Block { block_size: 4096 }];
    // It may have been written all the same, in front of what the next segment is linked to.
    let effects = [Effect::Fail(Errno::Raw(28)), Effect::FailDone(Errno::Raw(28))];
    for (layer, effect) in
        layers.into_iter().flat_map(|layer| effects.map(|effect| (layer, effect)))
    {
        let memory = MemoryFs::new();
        let faults = FaultFs::new(Arc::new(memory.clone()));
        let fs = Arc::new(faults.clone());
        let db = Database::builder("/db").log_layer(layer).file_system(fs).open().unwrap();
        let keyspace = db.keyspace("main", KeyspaceOptions::lsm()).unwrap();
        for number in 0..40_u32 {
            // The first write is the record; where files are mapped, records go to the tail first.
            let no_space = Fault::new(Operation::Write, effect);
            faults.arm(Fault { name_contains: "000001.log".into(), after: 1, ..no_space });
            let done = keyspace.put_with(number.to_be_bytes(), "value", Durability::Sync);
            done.unwrap_or_else(|error| panic!("{layer}: {error}"));
            faults.disarm();
            let (name, value) = (format!("large {number}"), vec![1; 300_000]);
            keyspace.put_with(name, value, Durability::Sync).unwrap();
            keyspace.put(number.to_le_bytes(), "value").unwrap();
        }
        assert!(layer == Layer::Mmap || faults.fired() > 0, "{layer}: no write has failed");
        let found = Database::builder("/db").file_system(Arc::new(memory.fork())).open().unwrap();
        assert_eq!(found.open_keyspace("main").unwrap().count().unwrap(), 119);
    }
}
