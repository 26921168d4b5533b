//! How long one large merge takes, by how many threads, on which device: `cargo bench --bench compaction`.
//!
//! A tree of eight runs of random keys is made once for each kind of values, and then compacted again and again from copies of
//! its files, in turn by one thread, two and four. Devices are modelled: each call that reads or writes a table, or syncs one,
//! takes so much longer, as the file layer's faults can have it. Values are half random bytes, half zeros.
//!
//! Printed is the median of all rounds in MB of tables read for each second, and the milliseconds of processor time that a MB
//! costs one thread, with those who read and write for it. `cargo bench --bench compaction -- [DEVICE...]`: all if none is named.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use turbidite::vfs::{DiskFs, Effect, Fault, FaultFs, Operation, Times};
use turbidite::{Compression, Database, DatabaseBuilder, KeyspaceOptions, Policy};

const ROUNDS: usize = 3;
const BYTES: usize = 48 << 20;
const RUNS: usize = 8;
const BUDGET: usize = 128 << 20;
const TABLE: u64 = 2 << 20;

/// What a call takes longer: a read or write of a table, and a sync.
const DEVICES: [(&str, u64, u64); 3] =
    [("as-is", 0, 0), ("fast", 200, 1000), ("slow", 2000, 10_000)];
const VALUES: [usize; 2] = [100, 1000];
const PACKED: [(&str, Compression); 2] = [("plain", Compression::None), ("lz4", Compression::Lz4)];

/// Xorshift (Marsaglia, 2003).
fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

fn builder(dir: &Path) -> DatabaseBuilder {
    Database::builder(dir).memory_budget(BUDGET)
}

/// One long run below, and short ones above it.
fn fill(dir: &Path, value: usize, compression: Compression) {
    let db = builder(dir).open().expect("a new database");
    let options = KeyspaceOptions::lsm().log(false).table_size(TABLE).compression(&[compression]);
    let options = options.policy(Policy::Tiered { runs: 64 });
    let keyspace = db.keyspace("main", options).expect("a new keyspace");
    let mut random = 88_172_645_463_325_252;
    let records = BYTES / (value + 16);
    let put = |number: u64, random: &mut u64| {
        let key = format!("{number:016}");
        let mut bytes = vec![0; value];
        let noise = bytes.iter_mut().take(value / 2);
        noise.for_each(|byte| *byte = (next(random) >> 32) as u8);
        keyspace.put(key, bytes).expect("a put");
    };
    (0..records as u64).for_each(|number| put(10 * number, &mut random));
    keyspace.compact().expect("one run");
    for _ in 0..RUNS {
        for _ in 0..records / RUNS / 10 {
            let number = next(&mut random) % (10 * records as u64);
            put(number, &mut random);
        }
        keyspace.persist().expect("one more run");
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(std::fs::copy(&path, &target).expect("a copy")),
        }
    }
}

/// The milliseconds of processor time that this process has taken, as far as the kernel tells.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<f64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    ticks.iter().sum::<f64>() * 10.0
}

/// MB of tables that are read in a second, and milliseconds of processor time for each.
fn measure(filled: &Path, to: &Path, threads: usize, (call, sync): (u64, u64)) -> [f64; 2] {
    copy(filled, to);
    let faults = FaultFs::new(Arc::new(DiskFs::new()));
    let db = builder(to).background_threads(threads).file_system(Arc::new(faults.clone()));
    let db = db.open().expect("the copy");
    let keyspace = db.open_keyspace("main").expect("its keyspace");
    let bytes = keyspace.stats().disk_bytes;
    let delays = [(Operation::Read, call), (Operation::Write, call), (Operation::Sync, sync)];
    for (operation, micros) in delays.into_iter().filter(|(_, micros)| *micros > 0) {
        let delay = Fault::new(operation, Effect::Delay(Duration::from_micros(micros)));
        faults.arm(Fault { name_contains: ".table".into(), times: Times::Always, ..delay });
    }
    let (begun, before) = (Instant::now(), processor_time());
    keyspace.compact().expect("a compaction");
    let (taken, processor) = (begun.elapsed(), processor_time() - before);
    drop((keyspace, db));
    std::fs::remove_dir_all(to).expect("the copy goes");
    let megabytes = bytes as f64 / 1e6;
    [megabytes / taken.as_secs_f64(), processor / megabytes]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let named: Vec<String> =
        std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let dir = tempfile::tempdir().expect("a directory");
    println!("value  blocks  device  1 thread  2 threads  4 threads MB/s  1 thread ms/MB");
    for value in VALUES {
        for (packed, compression) in PACKED {
            let filled: PathBuf = dir.path().join(format!("{value}-{packed}"));
            fill(&filled, value, compression);
            for (device, call, sync) in DEVICES {
                if !named.is_empty() && !named.iter().any(|name| name == device) {
                    continue;
                }
                let figures = [1, 2, 4].map(|threads| {
                    let round =
                        |_| measure(&filled, &dir.path().join("copy"), threads, (call, sync));
                    (0..ROUNDS).map(round).collect::<Vec<_>>()
                });
                let [one, two, four] = [0, 1, 2]
                    .map(|at| median(figures[at].iter().map(|[speed, _]| *speed).collect()));
                let cost = median(figures[0].iter().map(|[_, cost]| *cost).collect());
                println!(
                    "{value:<5}  {packed:<6}  {device:<6}  {one:<8.0}  {two:<9.0}  {four:<14.0}  {cost:.2}"
                );
            }
        }
    }
}
