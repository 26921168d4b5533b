//! Tests of whole tables, written to and read from a file in memory.

mod damage;
mod file;
mod model;
mod ranges;
mod reading;
mod whole;

use std::sync::Arc;

use file::TestFile;
use proptest::prelude::*;

use super::{Kept, Table, TableBuilder, TableOptions, TableSummary};
use crate::base::{Kind, Trailer};
use crate::cache::{BlockCache, Handle};
use crate::error::Result;
use crate::options::{Compression, FilterKind, KeyFile};

/// That of a table, and a point index if keys stay.
fn kept(key_file: KeyFile) -> Kept {
    Kept { key_file, points: usize::MAX }
}

/// A user key, its trailer and its value.
type Entry = (Vec<u8>, Trailer, Vec<u8>);

const IDENTITY: u64 = 0x1234_5678;

fn options(block_size: usize, filter_bits: u32) -> TableOptions {
    TableOptions { block_size, filter_bits, ..TableOptions::default() }
}

/// The compressions that are compiled in.
fn compressions() -> Vec<Compression> {
    let zstd = |level, dictionary| Compression::Zstd { level, dictionary };
    let all = [
        Compression::None,
        Compression::Lz4,
        Compression::Snappy,
        zstd(1, false),
        zstd(3, true),
        zstd(19, true),
    ];
    let is_present =
        |wanted: &Compression| wanted.codec().is_none_or(|codec| codec.check().is_ok());
    all.into_iter().filter(is_present).collect()
}

/// Options of all kinds, with blocks of few bytes or many.
fn any_options() -> impl Strategy<Value = TableOptions> {
    let filters =
        [FilterKind::None, FilterKind::Bloom, FilterKind::BlockedBloom, FilterKind::Ribbon];
    (
        prop_oneof![Just(0usize), 40..300usize, Just(4096)],
        prop::sample::select(filters.to_vec()),
        prop_oneof![Just(0u32), Just(10), 1..33u32],
        prop::sample::select(compressions()),
        prop::sample::select(vec![None, Some(false), Some(true)]),
    )
        .prop_map(|(block_size, filter, filter_bits, compression, points)| TableOptions {
            block_size,
            filter,
            filter_bits,
            compression,
            points,
        })
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
    let slack = 1200 + 2 * (properties.smallest.len() + properties.largest.len()) as u64;
    assert!(summary.len <= estimated + slack + 8 * blocks, "{estimated} {}", summary.len);
    if options.compression == Compression::None {
        assert!(estimated <= summary.len + slack + 8 * blocks, "{estimated} {}", summary.len);
    }
    (bytes, summary)
}

/// How a table is reached.
#[derive(Clone, Copy, Debug)]
struct Reach {
    lends: bool,
    caches: bool,
    kept: KeyFile,
}

const REACHES: [Reach; 8] = [
    Reach { lends: false, caches: false, kept: KeyFile::KeysAndFilter },
    Reach { lends: false, caches: true, kept: KeyFile::KeysAndFilter },
    Reach { lends: true, caches: true, kept: KeyFile::KeysAndFilter },
    Reach { lends: false, caches: false, kept: KeyFile::None },
    Reach { lends: false, caches: true, kept: KeyFile::None },
    Reach { lends: true, caches: true, kept: KeyFile::None },
    Reach { lends: false, caches: true, kept: KeyFile::Keys },
    Reach { lends: true, caches: false, kept: KeyFile::Filter },
];

fn open(bytes: &[u8], reach: Reach) -> Result<Arc<Table>> {
    let file = Handle::staying(TestFile::new(bytes.to_vec(), reach.lends));
    let cache = reach.caches.then(|| Arc::new(BlockCache::new(1 << 20)));
    Table::open(file, IDENTITY, bytes.len() as u64, cache, kept(reach.kept)).map(Arc::new)
}
