//! Tests of whole tables, written to and read from a file in memory.

mod damage;
mod file;
mod model;
mod reading;

use std::sync::Arc;

use file::TestFile;

use super::{Table, TableBuilder, TableOptions, TableSummary};
use crate::base::{Kind, Trailer};
use crate::cache::BlockCache;
use crate::error::Result;

/// A user key, its trailer and its value.
type Entry = (Vec<u8>, Trailer, Vec<u8>);

const IDENTITY: u64 = 0x1234_5678;

fn options(block_size: usize, filter_bits: u32) -> TableOptions {
    TableOptions { block_size, filter_bits, ..TableOptions::default() }
}

fn entry(key: &[u8], seqno: u64, value: &[u8]) -> Entry {
    (key.to_vec(), Trailer::new(seqno, Kind::Put), value.to_vec())
}

/// Writes a table and gives its bytes.
fn write(entries: &[Entry], options: &TableOptions) -> (Vec<u8>, TableSummary) {
    let file = TestFile::empty();
    let mut builder = TableBuilder::new(file.clone(), IDENTITY, options).expect("compiled in");
    for (key, trailer, value) in entries {
        builder.add(key, *trailer, value).expect("in order");
    }
    let estimated = builder.estimated_len();
    let summary = builder.finish().expect("written");
    let bytes = file.bytes();
    assert_eq!(summary.len, bytes.len() as u64);
    let properties = &summary.properties;
    let blocks = entries.len() as u64;
    let slack = 512 + 2 * (properties.smallest.len() + properties.largest.len()) as u64;
    assert!(estimated.abs_diff(summary.len) <= slack + 8 * blocks, "{estimated} {}", summary.len);
    (bytes, summary)
}

/// How a table is reached.
#[derive(Clone, Copy, Debug)]
struct Reach {
    lends: bool,
    caches: bool,
}

const REACHES: [Reach; 3] = [
    Reach { lends: false, caches: false },
    Reach { lends: false, caches: true },
    Reach { lends: true, caches: true },
];

fn open(bytes: &[u8], reach: Reach) -> Result<Arc<Table>> {
    let file = TestFile::new(bytes.to_vec(), reach.lends);
    let cache = reach.caches.then(|| Arc::new(BlockCache::new(1 << 20)));
    Table::open(file, IDENTITY, bytes.len() as u64, cache).map(Arc::new)
}
