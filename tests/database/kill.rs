//! A real process, killed while it writes to real files.
//!
//! The parent starts this test binary again as the child, which writes and says on its standard output what
//! was acknowledged. What the parent has read from the pipe must be there afterwards.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use turbidite::{Database, KeyspaceOptions, Layer};

use crate::history::Dice;

/// Names the database to the child, and its log's layer.
const CHILD: &str = "TURBIDITE_KILLED_CHILD";
const ROUNDS: usize = 6;
const WRITERS: usize = 2;
/// In front of what the child says: the test harness says things too.
const SAYS: &str = "acknowledged ";

fn open(path: &Path, layer: &str) -> Database {
    let layer: Layer = layer.parse().unwrap();
    // A cache that is smaller than what the log writes between two syncs.
    let layer = layer.with_page_cache_pages(16).unwrap_or(layer);
    Database::builder(path).memory_budget(8 << 20).log_layer(layer).open().unwrap()
}

fn key(writer: usize, number: u64) -> String {
    format!("{writer} {number:08}")
}

/// The value of a write: every tenth one is large, so that memtables and segments fill up.
fn value(writer: usize, number: u64) -> Vec<u8> {
    let len = if number.is_multiple_of(10) { 6000 } else { 60 };
    Dice::new(number * 2 + writer as u64).bytes(len)
}

/// Whether a write goes to both keyspaces in one batch.
fn is_batch(number: u64) -> bool {
    number.is_multiple_of(3)
}

/// What the child process runs; nothing without a parent that asks for it.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let (layer, path) = task.split_once(' ').unwrap();
    let db = open(Path::new(path), layer);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let db = &db;
            scope.spawn(move || write_forever(db, writer));
        }
    });
}

fn write_forever(db: &Database, writer: usize) {
    let one = db.keyspace("one", KeyspaceOptions::lsm()).unwrap();
    let two = db.keyspace("two", KeyspaceOptions::lsm()).unwrap();
    let done = one.prefix(format!("{writer} ")).count() as u64;
    for number in done.. {
        let (key, value) = (key(writer, number), value(writer, number));
        if is_batch(number) {
            let mut batch = db.batch();
            batch.put(&one, &key, &value).put(&two, &key, &value);
            batch.commit().unwrap();
        } else {
            one.put(&key, &value).unwrap();
        }
        let said = format!("{SAYS}{writer} {number}\n");
        std::io::stdout().lock().write_all(said.as_bytes()).unwrap();
    }
}

/// Lets a child write for a while, kills it, and gives the last number each writer had acknowledged.
fn run_and_kill(path: &Path, layer: &str, time: Duration) -> BTreeMap<usize, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child_that_writes_until_it_is_killed", "--nocapture"])
        .env(CHILD, format!("{layer} {}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let mut acknowledged = BTreeMap::new();
        for line in said.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            // The harness does not end its own line before the child's first one.
            let Some((_, said)) = line.split_once(SAYS) else { continue };
            let (writer, number) = said.split_once(' ').expect("the writer and the number");
            acknowledged.insert(writer.parse().unwrap(), number.parse().unwrap());
        }
        acknowledged
    });
    std::thread::sleep(time);
    assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// Checks the recovered database against what was acknowledged; gives the number of writes found.
fn check(db: &Database, acknowledged: &BTreeMap<usize, u64>) -> u64 {
    let one = db.keyspace("one", KeyspaceOptions::lsm()).unwrap();
    let two = db.keyspace("two", KeyspaceOptions::lsm()).unwrap();
    let mut found = 0;
    for writer in 0..WRITERS {
        let mut next = 0;
        for entry in one.prefix(format!("{writer} ")) {
            let (stored, bytes) = entry.unwrap();
            assert_eq!(*stored, *key(writer, next).as_bytes(), "a write is missing");
            assert_eq!(*bytes, *value(writer, next));
            next += 1;
        }
        let promised = acknowledged.get(&writer).map_or(0, |last| last + 1);
        assert!(next >= promised, "writer {writer}: {next} of {promised} acknowledged writes");
        let batches = (0..next).filter(|&number| is_batch(number));
        let expected: Vec<_> = batches.map(|number| key(writer, number).into_bytes()).collect();
        let stored: Vec<_> =
            two.prefix(format!("{writer} ")).map(|entry| entry.unwrap().0.to_vec()).collect();
        assert_eq!(stored, expected, "a batch is there in part");
        found += next;
    }
    let report = db.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    found
}

fn kill_again_and_again(layer: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut dice = Dice::new(u64::from(std::process::id()));
    let mut found = 0;
    for _ in 0..ROUNDS {
        let time = Duration::from_millis(100 + dice.roll(900) as u64);
        let acknowledged = run_and_kill(&path, layer, time);
        let db = open(&path, layer);
        let now = check(&db, &acknowledged);
        assert!(now > found || acknowledged.is_empty());
        found = now;
        db.close().unwrap();
    }
    assert!(found > 0, "nothing was ever written");
    println!("{layer}: {found} writes survived {ROUNDS} kills");
}

#[test]
fn acknowledged_writes_survive_kills_with_a_mapped_log() {
    kill_again_and_again("mmap");
}

#[test]
fn acknowledged_writes_survive_kills_with_a_positional_log() {
    kill_again_and_again("pos");
}

fn kill_in_blocks(name: &str) {
    if crate::setup::layers().iter().any(|layer| layer.to_string() == name) {
        kill_again_and_again(name);
    }
}

#[test]
fn acknowledged_writes_survive_kills_with_a_log_in_blocks() {
    kill_in_blocks("pos-block");
    kill_in_blocks("pos-block-cache");
}

#[test]
fn acknowledged_writes_survive_kills_with_a_direct_log() {
    kill_in_blocks("pos-direct");
    kill_in_blocks("pos-direct-cache");
}
