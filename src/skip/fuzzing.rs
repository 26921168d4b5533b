//! What fuzzers do with the files of a skip keyspace.

use std::path::Path;
use std::sync::Arc;

use super::block::{self, Block, Damage, Place};
use super::file::{Room, SortedFile};
use super::footer::Footer;
use super::load::Loaded;
use super::manifest::Contents;
use super::verify::verify;
use crate::base::key::MAX_SEQNO;
use crate::base::{Kind, Trailer};
use crate::cache::{BlockCache, Handle};
use crate::iter::EntryCursor;
use crate::vfs::{Access, BatchReader, Fs, Layer, MemoryFs};

const IDENTITY: u64 = 7;
/// What records count as that have no trailers.
const SEQNO: u64 = 77;
const UNIFORM: Trailer = Trailer::new(SEQNO, Kind::Put);
const PATH: &str = "/file";
/// Keys that are looked for, beside those of the file.
const KEYS: [&[u8]; 5] = [b"", b"key 01", b"key 03", b"k", b"\xff\xff"];

/// What a manifest says, a snapshot or an edit.
pub(crate) fn manifest(bytes: &[u8]) {
    let Some(contents) = Contents::decode(bytes) else { return };
    assert_eq!(Contents::decode(&contents.encode()), Some(contents));
}

/// What the log says of a sorted load: what can be read is written and read again, and is the same.
pub(crate) fn load(bytes: &[u8]) {
    let Some(loaded) = Loaded::decode(bytes) else { return };
    assert_eq!(Loaded::decode(&loaded.encode()), Some(loaded));
    for seqno in [1, SEQNO, MAX_SEQNO] {
        let meta = loaded.meta(seqno);
        assert!((meta.id, meta.after + 1, meta.to) == (loaded.id, seqno, seqno) && !meta.is_base);
    }
}

/// A block.
pub(crate) fn block(bytes: &[u8]) {
    let _ = block::check(bytes, IDENTITY, 0);
    let Ok(block) = Block::parse(bytes, UNIFORM) else { return };
    let (mut place, mut records) = (block.start(), Vec::new());
    while !block.is_end(place) && records.len() <= bytes.len() {
        let Ok(record) = block.record(place) else { break };
        assert_eq!(block.bytes(record.value()).len(), record.value().len());
        records.push([block.prefix, record.suffix].concat());
        place = record.next;
    }
    assert!(records.len() <= bytes.len(), "a record takes a byte at least");
    for key in records.iter().map(|key| &key[..]).chain(KEYS) {
        for trailer in [Trailer::NEWEST, UNIFORM, Trailer::OLDEST] {
            used(&block, block.lower_bound(key, trailer));
        }
    }
    for index in [0, 1, 7, block.len() / 2, block.len(), usize::MAX] {
        used(&block, block.place(index));
    }
    let _ = (block.first(), block.check_whole());
}

/// Reads the record at a place that was found.
fn used(block: &Block<'_>, found: Result<Place, Damage>) {
    let Ok(place) = found else { return };
    if !block.is_end(place)
        && let Ok(record) = block.record(place)
    {
        assert!(block.bytes(record.value()).len() <= u32::MAX as usize);
    }
}

/// The footer.
pub(crate) fn footer(bytes: &[u8]) {
    let Some((bytes, _)) = bytes.split_first_chunk() else { return };
    let number = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| bytes[at + i]));
    for offset in [0, number(56).wrapping_add(number(64) & 0xffff_ffff)] {
        if let Ok(footer) = Footer::decode(bytes, Path::new(PATH), IDENTITY, offset) {
            let again = footer.encode(IDENTITY, offset);
            assert_eq!(again[..68], bytes[..68]);
        }
    }
}

/// A whole sorted file.
pub(crate) fn file(bytes: &[u8]) {
    let fs = MemoryFs::new();
    fs.write_file(Path::new(PATH), bytes).expect("memory takes it");
    for (layer, cache, most_links) in [
        (Layer::Mmap, 0, usize::MAX),
        (Layer::Mmap, 0, 0),
        (Layer::Positional, 1 << 20, usize::MAX),
        (Layer::Positional, 0, 0),
    ] {
        let cache = Arc::new(BlockCache::new(cache));
        let file = fs.open(Path::new(PATH), Access::Read, layer).expect("it is there");
        let len = bytes.len() as u64;
        let room = Room { links: most_links, slots: most_links };
        let Ok(file) = SortedFile::open(Handle::staying(file), IDENTITY, len, SEQNO, &cache, room)
        else {
            continue;
        };
        let file = Arc::new(file);
        assert!(file.memory() <= 20 * bytes.len() + 1000, "{} bytes", file.memory());
        searched(&file);
        for run in [None, Some(1 << 16)] {
            walked(&file, run, bytes.len());
        }
        let _ = (verify(&file), file.levels());
    }
}

fn searched(file: &Arc<SortedFile>) {
    for key in KEYS {
        for at in [0, SEQNO, u64::MAX >> 8] {
            let _ = file.get(key, at);
        }
        let _ = file.rank(key, UNIFORM);
    }
    let _ = file.multi_get(&KEYS, SEQNO, &BatchReader::new(1));
    let records = file.footer.records;
    for record in [0, 1, records / 2, records.saturating_sub(1)] {
        if record < records {
            let _ = file.find_record(record);
            let _ = file.cursor(None).seek_to_record(record);
        }
    }
}

/// Walks to both ends, from the other one and from keys.
fn walked(file: &Arc<SortedFile>, run: Option<u64>, bytes: usize) {
    let mut cursor = file.cursor(run);
    let seen = |cursor: &mut dyn EntryCursor, forwards: bool| {
        for _ in 0..=bytes {
            if !cursor.is_valid() {
                return;
            }
            assert_eq!(cursor.value_slice(), cursor.value());
            let moved = if forwards { cursor.next() } else { cursor.prev() };
            if moved.is_err() {
                return;
            }
        }
        panic!("there are more records than bytes");
    };
    if cursor.seek_to_first().is_ok() {
        seen(&mut cursor, true);
    }
    if cursor.seek_to_last().is_ok() {
        seen(&mut cursor, false);
    }
    for key in KEYS {
        if cursor.seek(key, UNIFORM).is_ok() {
            seen(&mut cursor, true);
        }
        if cursor.seek_before(key, UNIFORM).is_ok() {
            seen(&mut cursor, false);
        }
    }
}

/// Files and their parts as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::super::block::BlockBuilder;
    use super::super::part::PartMeta;
    use super::super::writer::{Shape, Writer};
    use super::*;
    use crate::base::varint;

    pub(crate) fn manifests() -> Vec<Vec<u8>> {
        let part = |id, is_base, after, to| PartMeta {
            id,
            len: 1000 * id,
            records: 10 * id,
            is_base,
            after,
            to,
        };
        let parts = [part(7, false, 60, 90), part(2, false, 40, 50), part(5, true, 0, 40)];
        let contents =
            |parts: &[PartMeta]| Contents { persisted: 95, next_id: 8, parts: parts.to_vec() };
        vec![contents(&[]).encode(), contents(&parts[2..]).encode(), contents(&parts).encode()]
    }

    pub(crate) fn loads() -> Vec<Vec<u8>> {
        let loads = [[7, 4000, 30], [300, 1 << 40, 1 << 30], [1, 0, 0]];
        let bytes = |load: [u64; 3]| {
            let mut out = Vec::new();
            load.into_iter().for_each(|number| varint::put(&mut out, number));
            out
        };
        loads.map(bytes).to_vec()
    }

    /// Records in order, two of each key if they have trailers.
    fn entries(count: u64, has_trailers: bool) -> impl Iterator<Item = (String, Trailer, Vec<u8>)> {
        (0..count).map(move |number| {
            if !has_trailers {
                return (format!("key {number:02}"), UNIFORM, vec![7; number as usize % 20]);
            }
            let kind = if number % 5 == 4 { Kind::Delete } else { Kind::Put };
            let value = if kind == Kind::Put { vec![7; number as usize % 20] } else { Vec::new() };
            (format!("key {:02}", number / 2), Trailer::new(100 - number, kind), value)
        })
    }

    pub(crate) fn blocks() -> Vec<Vec<u8>> {
        let block = |count, step, has_trailers| {
            let mut builder = BlockBuilder::new(step, has_trailers);
            for (key, trailer, value) in entries(count, has_trailers) {
                builder.push(key.as_bytes(), trailer, &value);
            }
            let mut out = Vec::new();
            builder.finish(IDENTITY, 0, 0, 0, &mut out);
            out
        };
        vec![block(1, 0, false), block(9, 4, false), block(40, 2, true), block(20, 0, true)]
    }

    pub(crate) fn files() -> Vec<Vec<u8>> {
        let file = |count, step_unit, max_level, has_trailers| {
            let fs = MemoryFs::new();
            let file = fs.create(Path::new(PATH), Layer::Positional).unwrap();
            let shape = Shape { step_unit, max_level, has_trailers };
            let mut writer = Writer::new(file, IDENTITY, shape, 1 << 14);
            for (key, trailer, value) in entries(count, has_trailers) {
                // Long values, so that there are several blocks.
                let value = value.repeat(20);
                writer.push(key.as_bytes(), trailer, &value).unwrap();
            }
            writer.finish().unwrap();
            fs.files().remove(0).1
        };
        vec![
            file(0, 4, 12, false),
            file(30, 4, 12, false),
            file(60, 2, 2, true),
            file(30, 2, 0, true),
        ]
    }

    pub(crate) fn footers() -> Vec<Vec<u8>> {
        let footer = |file: Vec<u8>| file[file.len() - Footer::LEN..].to_vec();
        files().into_iter().map(footer).collect()
    }
}
