//! Tests of the room: blocks, whole files, and the store they make up.

mod blocks;
mod descriptors;
mod files;
mod hostile;
mod interrupted;
mod merges;
mod races;
mod reads;
pub(super) mod rig;
mod space;
mod upkeep;
mod whole;

use std::sync::Arc;

use proptest::prelude::*;

use super::file::{Room, SortedFile};
use super::writer::{Shape, Writer};
use crate::base::{Kind, Seqno, Trailer};
use crate::cache::{BlockCache, Handle};
use crate::error::Result;
use crate::vfs::File;
use whole::Whole;

/// A key, its trailer and its value.
type Entry = (Vec<u8>, Trailer, Vec<u8>);

const IDENTITY: u64 = 0x1234_5678;
/// What records count as that have no trailers.
const SEQNO: Seqno = 77;
const UNIFORM: Trailer = Trailer::new(SEQNO, Kind::Put);

/// Keys that share long prefixes, are empty, or are prefixes of each other.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let bytes =
        proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(b'a'), Just(0xff)], 0..7);
    prop_oneof![
        bytes.clone(),
        bytes.clone().prop_map(|tail| [&b"a prefix of many keys "[..], &tail].concat()),
        bytes.prop_map(|tail| [&[b'p'; 500][..], &tail].concat()),
    ]
}

/// Writes a file of `entries` to `file`.
fn write_to(file: Arc<dyn File>, entries: &[Entry], shape: Shape) -> (Arc<dyn File>, u64) {
    let mut writer = Writer::new(file, IDENTITY, shape, 1 << 14);
    for (key, trailer, value) in entries {
        writer.push(key, *trailer, value).unwrap();
        assert_eq!(writer.last_key(), Some(&key[..]));
    }
    assert_eq!(writer.records(), entries.len() as u64);
    let (file, len, footer) = writer.finish().unwrap();
    let is_tombstone = |entry: &&Entry| entry.1.kind() == Kind::Delete;
    let bytes: usize = entries.iter().map(|(key, _, value)| key.len() + value.len()).sum();
    let tombstones = entries.iter().filter(is_tombstone).count();
    assert_eq!((footer.tombstones, footer.bytes), (tombstones as u64, bytes as u64));
    assert_eq!(file.len().unwrap(), len);
    (file, len)
}

/// The bytes of a file of `entries`.
fn write(entries: &[Entry], shape: Shape) -> Vec<u8> {
    let (file, len) = write_to(Whole::new(Vec::new(), false), entries, shape);
    file.view(0..len).unwrap().to_vec()
}

/// How a file is reached.
#[derive(Clone, Copy, Debug)]
struct Reach {
    lends: bool,
    /// Bytes that cached blocks may take. If that is nothing, there is no place for any.
    cache: u64,
    /// Bytes that links in memory may take.
    most_links: usize,
}

const REACHES: [Reach; 4] = [
    Reach { lends: false, cache: 1 << 20, most_links: usize::MAX },
    Reach { lends: false, cache: 0, most_links: 0 },
    Reach { lends: true, cache: 0, most_links: usize::MAX },
    Reach { lends: true, cache: 0, most_links: 0 },
];

/// Opens a file that has these bytes.
fn open(bytes: &[u8], reach: Reach) -> Result<Arc<SortedFile>> {
    let file = Whole::new(bytes.to_vec(), reach.lends);
    open_file(file, reach)
}

fn open_file(file: Arc<dyn File>, reach: Reach) -> Result<Arc<SortedFile>> {
    let cache = Arc::new(BlockCache::new(reach.cache));
    let slots = if reach.cache > 0 { usize::MAX } else { 0 };
    let room = Room { links: reach.most_links, slots };
    let len = file.len().unwrap();
    SortedFile::open(Handle::staying(file), IDENTITY, len, SEQNO, &cache, room).map(Arc::new)
}
