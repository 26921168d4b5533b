//! What fuzzers do with the parts of a table: any bytes are given to what reads a part, and what it makes of them is used
//! for all that it is for. It may refuse the bytes and may give wrong answers; it may not panic, go on for ever, read
//! elsewhere or take much more memory than the bytes.
//!
//! Checksums are in the way of that, so bytes are read once as they are and once with a checksum that is right.

use std::path::Path;
use std::sync::Arc;

use super::block::Block;
use super::block_cursor::BlockCursor;
use super::cursor::ReadMode;
use super::footer::{Footer, Part};
use super::index::Index;
use super::points::{Lookup, PointIndex};
use super::properties::Properties;
use super::reader::{Kept, Table};
use super::stored::Unpacker;
use super::{ranges, stored};
use crate::base::hash::hash64;
use crate::base::key::MAX_SEQNO;
use crate::base::{End, Trailer, View, varint};
use crate::cache::{BlockCache, Handle};
use crate::codec::Codec;
use crate::iter::EntryCursor;
use crate::options::KeyFile;
use crate::vfs::{Access, Fs, Layer, MemoryFs};

const IDENTITY: u64 = 7;
/// The most keys that are looked for.
const KEYS: usize = 20;
/// The most places of a block where an entry is looked for.
const STARTS: usize = 200;
const TRAILERS: [Trailer; 2] = [Trailer::NEWEST, Trailer::OLDEST];
/// Keys that are looked for in a whole table.
const WANTED: [&[u8]; 5] = [b"", b"record 0007", b"record 0020x", b"k", b"\xff\xff\xff"];
/// The most entries that are walked over in one.
const STEPS: usize = 1 << 14;
/// Bytes of the cache that its blocks are in.
const CACHE: u64 = 64 << 10;

/// A part with its codec and checksum, or one that is given them.
fn stored_part(bytes: &[u8]) {
    let _ = stored::check(bytes, IDENTITY, 0);
    if let Ok(content) = stored::content(bytes) {
        assert_eq!(content, &bytes[..bytes.len() - stored::TRAILER]);
    }
    let mut sealed = bytes.to_vec();
    stored::seal(&mut sealed, IDENTITY, 0);
    assert!(stored::check(&sealed, IDENTITY, 0).is_ok());
    assert_eq!(stored::content(&sealed), Ok(bytes));
}

/// A data block.
pub(crate) fn block(bytes: &[u8]) {
    stored_part(bytes);
    let Ok(block) = Block::parse(bytes) else { return };
    let mut keys = vec![Vec::new(), bytes[..bytes.len().min(KEYS)].to_vec()];
    for index in 0..block.count() {
        let Ok(entry) = block.entry(index) else { continue };
        assert!(entry.value.start <= entry.value.end && entry.value.end <= block.entries_len());
        if keys.len() < KEYS {
            keys.push([block.prefix(), entry.suffix].concat());
        }
    }
    let mut cursor = BlockCursor::new();
    cursor.set(View::from(bytes.to_vec())).expect("its tail was read");
    for key in &keys {
        for trailer in TRAILERS {
            block_search(block, &mut cursor, key, trailer);
        }
    }
    if cursor.seek_to_first().is_ok() {
        walk(&mut cursor, block.count(), BlockCursor::next);
    }
    if cursor.seek_to_last().is_ok() {
        walk(&mut cursor, block.count(), BlockCursor::prev);
    }
}

fn block_search(block: Block<'_>, cursor: &mut BlockCursor, key: &[u8], trailer: Trailer) {
    if let Ok(place) = block.lower_bound(key, trailer) {
        assert!(place <= block.count());
    }
    if let Ok(Some(entry)) = block.find(key, trailer) {
        assert_eq!([block.prefix(), entry.suffix].concat(), key);
    }
    // A point index may lead anywhere.
    for start in 0..=block.entries_len().min(STARTS) {
        if let Ok(Some(entry)) = block.entry_of(key, start) {
            assert_eq!([block.prefix(), entry.suffix].concat(), key);
        }
    }
    if cursor.seek(key, trailer).is_ok() && cursor.is_valid() {
        assert_eq!(cursor.value_slice(), cursor.value());
    }
    if cursor.seek_before(key, trailer).is_ok() && cursor.is_valid() {
        assert!(cursor.key().starts_with(block.prefix()));
    }
}

/// Steps on until there is nothing more or an entry is malformed.
fn walk<E>(
    cursor: &mut BlockCursor,
    count: usize,
    step: impl Fn(&mut BlockCursor) -> Result<(), E>,
) {
    let mut steps = 0;
    while cursor.is_valid() {
        steps += 1;
        assert!(steps <= count, "there are no more entries");
        assert_eq!(cursor.value_slice().len(), cursor.value().len());
        if step(cursor).is_err() {
            break;
        }
    }
}

/// An index, behind the bytes that the data blocks take, as a `u64`.
pub(crate) fn index(bytes: &[u8]) {
    stored_part(bytes);
    let Some((data_len, bytes)) = bytes.split_first_chunk() else { return };
    let data_len = u64::from_le_bytes(*data_len);
    let Ok(index) = Index::decode(bytes, data_len) else { return };
    assert!(index.memory() <= 100 * bytes.len() + 1000);
    let mut end = 0;
    for block in 0..index.len() {
        let range = index.range(block);
        assert_eq!(range.start, end);
        end = range.end;
        let (key, trailer) = index.separator(block);
        assert_eq!(index.find(key, trailer), block);
        let (on, back) = (index.run_from(block, 1 << 20), index.run_up_to(block, 1 << 20));
        assert!(on.start == block && on.end > block && on.end <= index.len());
        assert!(back.end == block + 1 && back.start <= block);
        assert!(index.range_of(back).end <= index.range_of(on).end);
    }
    assert_eq!(end, data_len);
    for key in [&[][..], &bytes[..bytes.len().min(KEYS)], &[0xff; 100]] {
        for trailer in TRAILERS {
            assert!(index.find(key, trailer) <= index.len());
        }
    }
}

/// A point index, behind the hash of a key, as a `u64`.
pub(crate) fn points(bytes: &[u8]) {
    stored_part(bytes);
    let Some((hash, bytes)) = bytes.split_first_chunk() else { return };
    let hash = u64::from_le_bytes(*hash);
    for lent in [false, true] {
        let Ok(points) = PointIndex::decode(View::from(bytes.to_vec()), lent) else { return };
        assert!(points.memory() <= bytes.len());
        for hash in [hash, !hash, hash.rotate_left(32), 0, u64::MAX] {
            points.prefetch(hash);
            if let Lookup::At(position) = points.find(hash) {
                assert!(position.block < 1 << 16);
                assert!(position.start.is_none_or(|start| start < (1 << 12) - 1));
            }
        }
    }
}

/// Range tombstones.
pub(crate) fn range_tombstones(bytes: &[u8]) {
    stored_part(bytes);
    let Ok(fragments) = ranges::decode(bytes) else { return };
    assert!(!fragments.is_empty() && fragments.len() <= fragments.seqnos().len());
    assert!(fragments.memory() + fragments.key_bytes() <= 100 * bytes.len() + 1000);
    assert_eq!(ranges::decode(&ranges::encode(&fragments)), Ok(fragments.clone()));
    let mut last = End::new(Some(&[]));
    for fragment in fragments.iter() {
        assert!(!last.is_above(fragment.start) && fragment.end.is_above(fragment.start));
        assert!(ranges::last_below(fragment.end) >= fragment.start.to_vec());
        assert_eq!(fragments.newest(fragment.start, u64::MAX), fragment.seqnos[0]);
        let stretch = fragments.stretch(fragment.start, fragment.seqnos[0] - 1);
        assert!(stretch.holds(fragment.start) && stretch.newest < fragment.seqnos[0]);
        last = fragment.end.clone();
    }
    let (start, end) =
        (bytes[..bytes.len().min(KEYS) / 2].into(), End::new(Some(&bytes[bytes.len() / 2..])));
    assert!(fragments.clip(&start, &end).len() <= fragments.len());
}

/// The footer.
pub(crate) fn footer(bytes: &[u8]) {
    for parts in [4, 6, 7] {
        let Some(start) = bytes.len().checked_sub(8 * parts + 24) else { return };
        let bytes = &bytes[start..];
        let lengths = bytes.as_chunks::<8>().0[..parts].iter();
        let offset = lengths.fold(0_u64, |sum, len| sum.wrapping_add(u64::from_le_bytes(*len)));
        let mut sealed = bytes.to_vec();
        Footer::seal(&mut sealed, IDENTITY, offset);
        for bytes in [bytes, &sealed] {
            footer_at(bytes, offset);
        }
    }
}

fn footer_at(bytes: &[u8], offset: u64) {
    let Some(len) = offset.checked_add(bytes.len() as u64) else { return };
    let decode = |len| Footer::decode(bytes, Path::new("fuzzed"), IDENTITY, len);
    if let Ok(footer) = decode(len) {
        assert!(footer.parts_len().is_some_and(|parts| parts < len));
        // All but the checksum.
        let again = footer.encode(IDENTITY);
        let (own, sum) = (&bytes[bytes.len() - again.len()..], again.len() - 16);
        assert_eq!((&again[..sum], &again[sum + 4..]), (&own[..sum], &own[sum + 4..]));
        assert!(footer.range(Part::Ranges).end < len);
        assert!(decode(len ^ 1).is_err());
    }
}

/// A data block as it is stored, behind the byte of its codec, and a dictionary with its length in front.
pub(crate) fn packed_block(bytes: &[u8]) {
    let Some((&codec, mut stored)) = bytes.split_first() else { return };
    let dictionary = varint::take_prefixed(&mut stored);
    let (Some(codec), Some(dictionary)) = (Codec::of(codec), dictionary) else { return };
    // A codec that is not compiled in reads nothing.
    let Ok(unpacker) = Unpacker::new(codec, dictionary) else { return };
    if let Ok(Some(plain)) = Unpacker::unpack(unpacker.as_ref(), stored) {
        assert!(plain.len() <= stored::MAX_COMPRESSED + stored::TRAILER);
        block(stored::content(&plain).expect("it is not compressed any more"));
    }
}

/// The properties, behind a byte that says the version of the format.
pub(crate) fn properties(bytes: &[u8]) {
    let Some((&version, bytes)) = bytes.split_first() else { return };
    let version = 1 + u32::from(version) % 3;
    let Ok(properties) = Properties::decode(bytes, version) else { return };
    // What has no range tombstones is written as in version 2.
    let version = if properties.ranges == 0 { 2 } else { 3 };
    assert_eq!(Properties::decode(&properties.encode(), version), Ok(properties));
}

/// A whole table.
pub(crate) fn file(bytes: &[u8]) {
    let (fs, path) = (MemoryFs::new(), Path::new("/table"));
    fs.write_file(path, bytes).expect("memory takes it");
    let reaches = [
        (Layer::Mmap, None, KeyFile::KeysAndFilter),
        (Layer::Positional, Some(CACHE), KeyFile::None),
        (Layer::Positional, None, KeyFile::Keys),
    ];
    for (layer, cache, key_file) in reaches {
        let file = fs.open(path, Access::Read, layer).expect("it is there");
        let (file, len) = (Handle::staying(file), bytes.len() as u64);
        let cache = cache.map(|bytes| Arc::new(BlockCache::new(bytes)));
        let kept = Kept { key_file, points: usize::MAX };
        let Ok(table) = Table::open(file, IDENTITY, len, cache, kept) else { continue };
        assert!(table.memory() <= 100 * bytes.len() + 40_000, "{} bytes", table.memory());
        used(&Arc::new(table));
    }
}

/// Does with a table all that it is for.
fn used(table: &Arc<Table>) {
    for key in WANTED {
        for at in [0, 1 << 20, MAX_SEQNO] {
            let _ = (table.get(key, hash64(key), at), table.deleted(key, at));
        }
    }
    for mode in [ReadMode::Point, ReadMode::Sequential] {
        let mut cursor = table.cursor(mode);
        if cursor.seek_to_first().is_ok() {
            table_walk(&mut cursor, EntryCursor::next);
        }
        if cursor.seek_to_last().is_ok() {
            table_walk(&mut cursor, EntryCursor::prev);
        }
        for key in WANTED {
            for trailer in TRAILERS {
                let _ = (cursor.seek(key, trailer), cursor.seek_before(key, trailer));
            }
        }
    }
    let _ = (table.verify(&mut |_, _| {}), table.samples(1000));
}

/// Steps on, but not for ever: a block that is compressed may have far more entries than bytes.
fn table_walk<C: EntryCursor>(cursor: &mut C, step: impl Fn(&mut C) -> crate::error::Result<()>) {
    for _ in 0..STEPS {
        if !cursor.is_valid() {
            break;
        }
        assert_eq!(cursor.value_slice(), cursor.value());
        if step(cursor).is_err() {
            break;
        }
    }
}

/// Parts as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::super::block_builder::BlockBuilder;
    use super::super::builder::{TableBuilder, TableOptions};
    use super::super::index::IndexBuilder;
    use super::super::points::PointsBuilder;
    use super::super::stored::Packer;
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::{Fragments, Kind, RangeTombstone, Span};
    use crate::options::{Compression, FilterKind};

    fn trailer(seqno: u64) -> Trailer {
        Trailer::new(seqno, if seqno % 5 == 4 { Kind::Delete } else { Kind::Put })
    }

    /// Keys of many kinds, in order.
    fn keys(kind: usize) -> Vec<Vec<u8>> {
        let text = |number: u32| format!("record {number:04}").into_bytes();
        match kind {
            0 => vec![Vec::new()],
            1 => (0..40).map(text).collect(),
            2 => (0..30_u8).map(|number| vec![0xff, number / 10, number]).collect(),
            3 => (0..12).map(|len| vec![b'a'; len * len]).collect(),
            4 => (0..50_u64).map(|number| (number << 33).to_be_bytes().to_vec()).collect(),
            _ => (0..3).map(|number| [vec![b'k'; 300], text(number)].concat()).collect(),
        }
    }

    const KINDS: usize = 6;

    pub(crate) fn blocks() -> Vec<Vec<u8>> {
        let mut blocks = Vec::new();
        for kind in 0..KINDS {
            for versions in [1, 3] {
                let mut builder = BlockBuilder::default();
                for (at, key) in keys(kind).iter().enumerate() {
                    for version in 0..versions {
                        let value = vec![at as u8; at * 7 % 30];
                        builder.add(key, trailer((1 << (at % 50)) - version.min(1)), &value);
                    }
                }
                let mut bytes = Vec::new();
                builder.finish(&mut bytes);
                blocks.push(bytes);
            }
        }
        blocks
    }

    pub(crate) fn indexes() -> Vec<Vec<u8>> {
        let mut indexes = Vec::new();
        for kind in 0..KINDS {
            for block_len in [20, 4096] {
                let (keys, mut builder, mut data_len) = (keys(kind), IndexBuilder::default(), 0);
                for (at, key) in keys.iter().enumerate() {
                    let next = keys.get(at + 1).map(|next| (&next[..], trailer(at as u64 + 2)));
                    builder.add(block_len + at, (key, trailer(at as u64)), next);
                    data_len += (block_len + at) as u64;
                }
                indexes.push([&data_len.to_le_bytes()[..], &builder.finish()].concat());
            }
        }
        indexes
    }

    pub(crate) fn point_indexes() -> Vec<Vec<u8>> {
        let mut indexes = Vec::new();
        for keys in [1, 12, 200_u64] {
            // All in one line; none in the same; far on in their block.
            for (scatter, step) in [(false, 20), (true, 20), (true, 300)] {
                let mut builder = PointsBuilder::default();
                let hash = |key: u64| if scatter { hash64(&key.to_le_bytes()) } else { key };
                (0..keys).for_each(|key| builder.add(key as usize, hash(key)));
                builder.end_block(&(0..keys as u32).map(|key| key * step).collect::<Vec<_>>());
                let bytes = builder.build(64).expect("they are few");
                indexes.push([&hash(keys / 2).to_le_bytes()[..], &bytes].concat());
            }
        }
        indexes
    }

    pub(crate) fn range_tombstones() -> Vec<Vec<u8>> {
        let covering = |most: usize| {
            move |covering: &BTreeSet<u64>, kept: &mut Vec<u64>| {
                kept.extend(covering.iter().rev().take(most));
            }
        };
        let mut parts = Vec::new();
        for kind in 1..KINDS {
            for most in [1, 3] {
                let keys = keys(kind);
                let tombstone = |(at, seqno): (usize, u64)| {
                    let end = keys.get(at + 1 + at % 4).map(|end| &end[..]);
                    RangeTombstone::new(Span { start: &keys[at], end }, seqno << (at % 40))
                };
                let tombstones: Vec<_> = (0..keys.len()).zip(1..).map(tombstone).collect();
                parts.push(ranges::encode(&Fragments::of(&tombstones, covering(most))));
            }
        }
        parts
    }

    pub(crate) fn packed_blocks() -> Vec<Vec<u8>> {
        let blocks = blocks();
        let samples: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
        let codecs = [Codec::Lz4, Codec::Snappy, Codec::Zstd];
        let mut packed = Vec::new();
        for codec in codecs.into_iter().filter(|codec| codec.check().is_ok()) {
            for dictionary in [Vec::new(), codec.train(&samples, 500)] {
                let mut packer = Packer::new(codec, 3, &dictionary).expect("it is compiled in");
                for block in blocks.iter().rev().take(4) {
                    let mut out = vec![codec as u8];
                    varint::put_prefixed(&mut out, &dictionary);
                    if let Some((stored, _)) = packer.pack(block, IDENTITY, 0) {
                        packed.push([&out[..], stored].concat());
                    }
                }
            }
        }
        packed
    }

    pub(crate) fn properties() -> Vec<Vec<u8>> {
        let full = Properties {
            entries: 300,
            tombstones: 7,
            smallest_seqno: 5,
            largest_seqno: 1 << 40,
            key_bytes: 3000,
            value_bytes: 90_000,
            smallest: b"a".to_vec(),
            largest: b"zz".to_vec(),
            codec: Some(Codec::Lz4),
            ranges: 4,
        };
        let plain = Properties { ranges: 0, codec: None, ..full.clone() };
        let of = |version: u8, properties: &Properties| {
            [&[version - 1][..], &properties.encode()].concat()
        };
        vec![of(2, &Properties::default()), of(2, &plain), of(3, &full)]
    }

    pub(crate) fn footers() -> Vec<Vec<u8>> {
        let lengths = [[0, 20, 0, 30], [4096, 100, 65, 50], [1 << 40, 1 << 30, 1 << 28, 1 << 10]];
        let mut footers = Vec::new();
        for [data, index, filter, properties] in lengths {
            for version in [1, 2, 3] {
                let mut footer = Footer::new();
                footer.version = version;
                footer.set(Part::Data, data);
                footer.set(Part::Index, index);
                footer.set(Part::Filter, filter);
                footer.set(Part::Properties, properties);
                if version > 1 {
                    footer.set(Part::Dictionary, data / 7);
                    footer.set(Part::Points, index / 3);
                }
                if version > 2 {
                    footer.set(Part::Ranges, index / 2);
                }
                footers.push(footer.encode(IDENTITY));
            }
        }
        footers
    }

    /// A table with these keys, of small blocks.
    fn file(keys: &[Vec<u8>], options: TableOptions, ranges: bool) -> Vec<u8> {
        let (fs, path) = (MemoryFs::new(), Path::new("/table"));
        let file = fs.create(path, Layer::Positional).expect("memory takes it");
        let mut builder = TableBuilder::new(file, IDENTITY, &options).expect("it is compiled in");
        for (at, key) in keys.iter().enumerate() {
            let trailer = trailer(at as u64 + 1);
            let value = if trailer.kind() == Kind::Put { vec![at as u8; at % 30] } else { vec![] };
            builder.add(key, trailer, &value).expect("in order");
        }
        if ranges {
            let span = Span { start: &keys[1], end: Some(&keys[3]) };
            let all = |covering: &BTreeSet<u64>, kept: &mut Vec<u64>| kept.extend(covering);
            builder.set_ranges(Fragments::of(&[RangeTombstone::new(span, 99)], all));
        }
        builder.finish().expect("memory takes it");
        fs.files().swap_remove(0).1
    }

    pub(crate) fn files() -> Vec<Vec<u8>> {
        let plain = TableOptions { block_size: 200, ..TableOptions::default() };
        let packed = TableOptions {
            compression: Compression::Lz4,
            filter: FilterKind::Ribbon,
            points: Some(true),
            ..plain.clone()
        };
        let without = TableOptions { filter_bits: 0, points: Some(false), ..plain.clone() };
        vec![
            file(&keys(0), plain.clone(), false),
            file(&keys(1), plain, true),
            file(&keys(1), packed, false),
            file(&keys(2), without, true),
        ]
    }
}
