//! Loads many small records into a skip keyspace, in no order, and tells how it gets on: a set far larger than memory, built
//! with sequential writes.
//!
//! ```text
//! cargo run --release --example load -- DIRECTORY [RECORDS [MEMORY_BUDGET]]
//! ```
//! By default a hundred million records of 8 + 8 bytes, with a memory budget of 512 MiB. The directory must not exist.
//! At the end it prints what the process took at most, as Linux tells it.

use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use turbidite::{Database, Keyspace, KeyspaceOptions};

/// Odd, and so prime to any power of two.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("name a directory that does not exist")?);
    let records: u64 = arguments.next().map_or(Ok(100_000_000), |text| text.parse())?;
    let budget: usize = arguments.next().map_or(Ok(512 << 20), |text| text.parse())?;
    if directory.exists() {
        return Err(format!("{} exists", directory.display()).into());
    }
    let db = Database::builder(&directory).memory_budget(budget).open()?;
    // Without the log: what is loaded is safe when it is persisted, at the end.
    let keyspace = db.keyspace("numbers", KeyspaceOptions::skip().log(false))?;
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| tell(&keyspace, &done, &is_over, records));
        let loaded = load(&keyspace, &done, records);
        is_over.store(true, Ordering::Relaxed);
        loaded
    })?;
    // Every key is there once, and a few are looked at.
    assert_eq!(keyspace.count()?, records);
    for number in (0..records).step_by(1 + records as usize / 1000) {
        let (key, value) = record(number);
        assert_eq!(keyspace.get(key)?.as_deref(), Some(&value[..]));
    }
    if let Ok(status) = std::fs::read_to_string("/proc/self/status")
        && let Some(peak) = status.lines().find(|line| line.starts_with("VmHWM"))
    {
        println!("{peak}");
    }
    db.close()?;
    Ok(())
}

/// Record `number`: a key that no other has, and its value.
fn record(number: u64) -> ([u8; 8], [u8; 8]) {
    (number.wrapping_mul(STRIDE).to_be_bytes(), number.to_be_bytes())
}

fn load(keyspace: &Keyspace, done: &AtomicU64, records: u64) -> turbidite::Result<()> {
    let start = Instant::now();
    for number in 0..records {
        let (key, value) = record(number);
        keyspace.put(key, value)?;
        done.store(number + 1, Ordering::Relaxed);
    }
    let put = start.elapsed().as_secs_f64();
    keyspace.persist()?;
    let all = start.elapsed().as_secs_f64();
    let rate = records as f64 / all;
    println!("{records} records put in {put:.1} s, and persisted after {all:.1} s: {rate:.0}/s");
    Ok(())
}

/// Tells every second how far it has come.
fn tell(keyspace: &Keyspace, done: &AtomicU64, is_over: &AtomicBool, records: u64) {
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_secs(1));
        let percent = 100 * done.load(Ordering::Relaxed) / records.max(1);
        let skip = keyspace.stats().skip.unwrap_or_default();
        let merged = 100 * skip.merge_done / skip.merge_total.max(1);
        println!("{percent} % put; {} runs; a merge has done {merged} %", skip.runs);
    }
}
