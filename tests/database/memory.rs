//! The memory budget is a bound on what a process takes: measured by the system, in a process of its own for each
//! engine.
//!
//! The parent starts this test binary again as the child, which writes ten times the budget while others read, and says
//! how much memory of its own it had at most: what is mapped from files is the system's to take back and does not
//! count.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use turbidite::{Database, EngineKind, Keyspace, KeyspaceOptions};

use crate::choices;
use crate::setup::{is_ordered, options};

/// Tells the child the budget, the engine, the seed of options or "default", and the database.
const CHILD: &str = "TURBIDITE_MEMORY_CHILD";
/// In front of what the child says.
const SAYS: &str = "most bytes ";

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 16 * MIB;
/// What a process may take besides: about 2 MiB that it has before a database is open; stacks of its dozen threads, each
/// a few pages; runs of blocks that scans read ahead, which are the scans' own; what is known page by page of the file of
/// a B+ tree, 40 bytes for each; and what the allocator keeps of what was given back to it, which is the most: the C library's
/// has an arena for each thread, and gives back only from an arena's end.
const ALLOWANCE: u64 = 32 * MIB;
/// What training dictionaries takes besides, in the library for Zstandard: tables of some 10 MiB for each of the two threads that may
/// write tables at the same time, and what they learn from.
const TRAINING: u64 = 24 * MIB;
const VALUE: usize = 1000;
const RECORDS: u64 = 10 * BUDGET / VALUE as u64;

/// The memory of this process that is no file's, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Keys in no order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// What the child process runs; nothing without a parent that asks for it.
#[test]
fn child_that_writes_ten_times_its_budget() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let [budget, engine, seed, path] = task.splitn(4, ' ').collect::<Vec<_>>()[..] else {
        unreachable!()
    };
    let engine: EngineKind = engine.parse().unwrap();
    let options = chosen(engine, seed.parse().ok());
    let most = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(resident_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        work(budget.parse().unwrap(), engine, options, Path::new(path));
        over.store(true, Ordering::Relaxed);
    });
    println!("\n{SAYS}{}", most.into_inner());
}

/// The options of a seed, or those that users have who choose nothing.
fn chosen(engine: EngineKind, seed: Option<u64>) -> KeyspaceOptions {
    seed.map_or_else(|| options(engine), |seed| choices::options(engine, seed, 0))
}

fn work(budget: usize, engine: EngineKind, options: KeyspaceOptions, path: &Path) {
    let db = Database::builder(path).memory_budget(budget).open().unwrap();
    let keyspace = db.keyspace("main", options).unwrap();
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (keyspace, written) = (&keyspace, &written);
            scope.spawn(move || read(keyspace, written, reader, is_ordered(engine)));
        }
        for number in 0..RECORDS {
            keyspace.put(key(number), [number as u8; VALUE]).unwrap();
            written.store(number + 1, Ordering::Relaxed);
            if number == RECORDS / 2 {
                keyspace.compact().unwrap();
            }
        }
    });
    keyspace.compact().unwrap();
    db.settle().unwrap();
    assert_eq!(keyspace.iter().count() as u64, RECORDS);
    for number in 0..RECORDS {
        assert_eq!(keyspace.get(key(number)).unwrap().unwrap()[0], number as u8);
    }
    drop(keyspace);
    db.close().unwrap();
}

/// Gets and scans until all is written.
fn read(keyspace: &Keyspace, written: &AtomicU64, reader: u64, ordered: bool) {
    for round in reader.. {
        let written = written.load(Ordering::Relaxed);
        if written == RECORDS {
            return;
        }
        for step in 0..50_u64 {
            let number = (round * 7919 + step * 104_729) % written.max(1);
            let found = keyspace.get(key(number)).unwrap();
            assert!(found.is_some_and(|value| value[0] == number as u8) || written == 0);
        }
        let from = key(round * 31);
        match ordered {
            true => keyspace.range(from..).take(200).for_each(|item| drop(item.unwrap())),
            false => keyspace.iter().take(200).for_each(|item| drop(item.unwrap())),
        }
    }
}

/// The most memory that a child took.
fn most_bytes(budget: u64, engine: EngineKind, seed: Option<u64>) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let seed = seed.map_or("default".into(), |seed| seed.to_string());
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::child_that_writes_ten_times_its_budget", "--nocapture"])
        .env(CHILD, format!("{budget} {engine} {seed} {}", path.display()))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{engine}, {seed}");
    let said = String::from_utf8_lossy(&output.stdout);
    let most = said.lines().find_map(|line| line.strip_prefix(SAYS)).unwrap().parse().unwrap();
    println!("{engine}, {seed}: {most} bytes with a budget of {budget}");
    most
}

fn stays_within_the_budget(engine: EngineKind, seed: Option<u64>) {
    let most = most_bytes(BUDGET, engine, seed);
    let trains = format!("{:?}", chosen(engine, seed)).contains("dictionary: true");
    let training = if trains { TRAINING } else { 0 };
    assert!(most <= BUDGET + ALLOWANCE + training, "{engine}: {most} bytes");
    assert!(most >= BUDGET / 4, "{engine}: {most} bytes, which cannot be");
}

#[test]
fn an_lsm_tree_stays_within_the_budget() {
    stays_within_the_budget(EngineKind::Lsm, None);
}

#[test]
fn an_lsm_tree_of_anything_stays_within_the_budget() {
    stays_within_the_budget(EngineKind::Lsm, Some(choices::seed()));
}

#[test]
fn a_hash_keyspace_stays_within_the_budget() {
    stays_within_the_budget(EngineKind::Hash, None);
}

#[test]
fn a_tree_stays_within_the_budget() {
    stays_within_the_budget(EngineKind::Btree, None);
}

#[test]
fn a_skip_keyspace_stays_within_the_budget() {
    stays_within_the_budget(EngineKind::Skip, None);
}

#[test]
fn what_is_measured_would_show_more() {
    let most = most_bytes(16 * BUDGET, EngineKind::Lsm, None);
    assert!(most > BUDGET + ALLOWANCE, "{most} bytes");
}
