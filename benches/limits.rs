//! What the machine allows a store to do at most, beside which its figures are to be read: `cargo bench --bench limits`.
//!
//! - A get of a hash table waits for memory twice: for a line of the index, which says where the record is, and for the
//!   record. A raw loop does just that, one get after the other and with as many at once as the processor manages, with an index and records as large as those of the study (a million draws of as
//!   many keys: 632,000 records of 128 bytes, 17 bytes of index for each), and no checks, versions or locks.
//! - A set touches a line of the index and appends the record. An overwrite touches the old record, too.
//! - Past the kernel's cache, a get waits for the device once.
//!
//! Each is printed as the median of all rounds, in operations per second of one thread.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use turbidite::vfs::{DiskFs, Fs, Layer, LayeredFs};

const RECORDS: usize = 632_000;
const RECORD: usize = 128;
const INDEX_BYTES_PER_RECORD: usize = 17;
const LINE: usize = 64;
const OPERATIONS: usize = 1_000_000;
const ROUNDS: usize = 7;
const BLOCK: usize = 4096;
const FILE: usize = 256 << 20;
const READS: usize = 2000;

/// Xorshift (Marsaglia, 2003).
fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// An index whose lines say where records are, and the records.
struct Table {
    index: Vec<[u64; LINE / 8]>,
    records: Vec<[u8; RECORD]>,
}

impl Table {
    fn new() -> Self {
        let mut random = 88_172_645_463_325_252;
        let lines = RECORDS * INDEX_BYTES_PER_RECORD / LINE;
        let place = |random: &mut u64| next(random) % RECORDS as u64;
        let index = (0..lines).map(|_| [(); LINE / 8].map(|()| place(&mut random))).collect();
        Self { index, records: vec![[7; RECORD]; RECORDS] }
    }

    fn line(&self, hash: u64) -> usize {
        (hash % self.index.len() as u64) as usize
    }

    /// Values are copied out of records that are looked up: if `waits`, each when the last one is there, as if the
    /// caller looked at it; otherwise the processor may begin several at once.
    fn gets(&self, waits: bool) {
        let mut random = 0x9e37_79b9;
        let mut last = 0;
        for _ in 0..OPERATIONS {
            let hash = next(&mut random) ^ last;
            let at = self.index[self.line(hash)][(hash >> 61) as usize];
            let value: [u8; 100] = self.records[at as usize][28..].try_into().expect("100 bytes");
            last = if waits { u64::from(black_box(value)[99] & 1) } else { 0 };
            black_box(value);
        }
    }

    /// Records are appended, and entered in the index: what is there is looked at first.
    fn sets(&mut self, overwrite: bool) {
        let mut random = 0x9e37_79b9;
        for at in 0..OPERATIONS {
            let hash = next(&mut random);
            let line = self.line(hash);
            let entry = (hash >> 61) as usize;
            let old = black_box(self.index[line])[entry];
            if overwrite {
                black_box(self.records[old as usize][0]);
            }
            self.records[at % RECORDS] = [at as u8; RECORD];
            self.index[line][entry] = (at % RECORDS) as u64;
        }
    }
}

/// Operations per second, the median of all rounds.
fn median(operations: usize, mut round: impl FnMut()) -> f64 {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    operations as f64 / times[ROUNDS / 2].as_secs_f64()
}

fn report(what: &str, per_second: f64) {
    println!("{what:<64} {per_second:>12.0} /s");
}

/// Random blocks of a file, one after the other, past the kernel's cache.
fn direct_reads() -> turbidite::Result<f64> {
    let dir = tempfile::tempdir_in(".").expect("a directory to measure in");
    let file = LayeredFs::new(Arc::new(DiskFs::new()))
        .create(&dir.path().join("file"), Layer::Direct { block_size: BLOCK as u32 })?;
    for at in (0..FILE).step_by(1 << 20) {
        file.write_at(at as u64, &vec![7; 1 << 20])?;
    }
    file.sync()?;
    let mut random = 0x9e37_79b9;
    Ok(median(READS, || {
        let mut buffer = vec![0; BLOCK];
        for _ in 0..READS {
            let at = next(&mut random) % (FILE / BLOCK) as u64 * BLOCK as u64;
            file.read_at(at, &mut buffer).expect("the file can be read");
            black_box(&buffer);
        }
    }))
}

fn main() {
    let mut table = Table::new();
    report("memory: an index line, then its record (get), one by one", {
        median(OPERATIONS, || table.gets(true))
    });
    report("memory: the same, as many at once as the processor can", {
        median(OPERATIONS, || table.gets(false))
    });
    report("memory: an index line, a record appended (set)", {
        median(OPERATIONS, || table.sets(false))
    });
    report("memory: the same with the old record read (overwrite)", {
        median(OPERATIONS, || table.sets(true))
    });
    match direct_reads() {
        Ok(reads) => report("device: a block of 4 KiB past the kernel's cache (get)", reads),
        Err(error) => println!("device: {error}"),
    }
}
