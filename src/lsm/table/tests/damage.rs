//! Damaged and hostile tables: an error or right answers for the first, no panic for the second.

use proptest::prelude::*;

use super::super::footer::{Footer, Part};
use super::super::index::IndexBuilder;
use super::super::properties::Properties;
use super::super::{ReadMode, stored};
use super::*;
use crate::base::checksum;
use crate::base::hash::hash64;
use crate::codec::Codec;
use crate::error::ErrorKind;
use crate::iter::{Approach, EntryCursor};

fn small_table(options: &TableOptions) -> (Vec<Entry>, Vec<u8>) {
    let mut entries = Vec::new();
    for i in 0..12u64 {
        let key = format!("key-{}", i / 3);
        entries.push(entry(key.as_bytes(), 100 - i, &vec![i as u8; i as usize * 5]));
    }
    let (bytes, _) = write(&entries, options);
    (entries, bytes)
}

/// Tables of all kinds, small enough to try every bit.
fn small_tables() -> Vec<(Vec<Entry>, Vec<u8>)> {
    let filters = [FilterKind::BlockedBloom, FilterKind::Bloom, FilterKind::Ribbon];
    let of = |(filter, compression)| {
        small_table(&TableOptions {
            block_size: 120,
            filter,
            filter_bits: 10,
            compression,
            points: Some(true),
        })
    };
    filters.into_iter().cycle().zip(compressions()).map(of).collect()
}

/// All that the table has, read by a cursor.
fn scan(table: &Arc<Table>, mode: ReadMode) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    let mut cursor = table.cursor(mode);
    cursor.seek_to_first()?;
    while cursor.is_valid() {
        found.push((cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec()));
        cursor.next()?;
    }
    Ok(found)
}

#[test]
fn every_flip_is_an_error_or_harmless() {
    for (entries, whole) in small_tables() {
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            for reach in REACHES {
                every_way_finds_it(&entries, &bytes, reach, bit);
            }
        }
    }
}

/// The bytes with a bit that is flipped.
fn every_way_finds_it(entries: &[Entry], bytes: &[u8], reach: Reach, bit: usize) {
    let Ok(table) = open(bytes, reach) else { return };
    // A point index that does not stay is not read either.
    let is_unread = table.parts.points.is_none()
        && table.parts.footer.range(Part::Points).contains(&(bit as u64 / 8));
    for mode in [ReadMode::Sequential, ReadMode::Point] {
        match scan(&table, mode) {
            Ok(found) => {
                assert!(is_unread && found == entries, "bit {bit} is not seen by a cursor")
            }
            Err(_) => assert!(!is_unread, "bit {bit} is nothing to a cursor"),
        }
    }
    for (key, trailer, value) in entries {
        if let Ok(found) = table.get(key, hash64(key), trailer.seqno()) {
            assert_eq!(found, Some((*trailer, value[..].into())), "bit {bit}");
        }
    }
    assert!(table.verify(&mut |_, _| {}).is_err(), "bit {bit} is not seen by verify");
}

/// What does not stay in memory is checked again when it is read.
#[test]
fn flips_behind_an_open_table_are_found() {
    for (entries, whole) in small_tables() {
        for part in [Part::Index, Part::Filter] {
            let cache = Some(Arc::new(BlockCache::new(1 << 20)));
            let (file, len) = (TestFile::new(whole.clone(), false), whole.len() as u64);
            let open = Table::open(
                Handle::staying(file.clone()),
                IDENTITY,
                len,
                cache,
                kept(KeyFile::None),
            );
            let table = open.expect("whole");
            let (key, trailer, value) = &entries[0];
            let get = || table.get(key, hash64(key), trailer.seqno());
            let place = table.parts.footer.range(part).start;
            file.flip(place);
            assert_eq!(get().expect_err("damaged").kind(), ErrorKind::Corruption);
            file.flip(place);
            assert_eq!(get().expect("whole"), Some((*trailer, value[..].into())));
            file.flip(place);
            assert_eq!(get().expect("in the cache"), Some((*trailer, value[..].into())));
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    let (_, whole) = small_table(&options(120, 10));
    for len in 0..whole.len() {
        let file = || Handle::staying(TestFile::new(whole[..len].to_vec(), len % 2 == 0));
        assert!(
            Table::open(file(), IDENTITY, whole.len() as u64, None, kept(KeyFile::default()))
                .is_err()
        );
        assert!(Table::open(file(), IDENTITY, len as u64, None, kept(KeyFile::default())).is_err());
    }
}

#[test]
fn swapped_blocks_are_seen() {
    let entries: Vec<_> = (0..8u64).map(|i| entry(&[b'a', i as u8], 1, &[7; 20])).collect();
    let (whole, _) = write(&entries, &options(0, 0));
    let table = open(&whole, REACHES[0]).expect("whole");
    let (a, b) = (table.parts.index.range(2), table.parts.index.range(5));
    let (a, b) = (a.start as usize..a.end as usize, b.start as usize..b.end as usize);
    assert_eq!(a.len(), b.len());
    let mut bytes = whole.clone();
    bytes[a.clone()].copy_from_slice(&whole[b.clone()]);
    bytes[b].copy_from_slice(&whole[a]);
    let table = open(&bytes, REACHES[0]).expect("index and footer are whole");
    assert!(table.get(&[b'a', 2], hash64(&[b'a', 2]), 9).is_err());
    assert!(table.get(&[b'a', 3], hash64(&[b'a', 3]), 9).is_ok());
    assert!(table.verify(&mut |_, _| {}).is_err());
}

/// Puts a table together from parts of any content, all with right checksums.
fn assemble(blocks: &[Vec<u8>], index: Vec<u8>, filter: Vec<u8>, properties: Vec<u8>) -> Vec<u8> {
    let blocks: Vec<_> = blocks.iter().map(|block| (0, block.clone())).collect();
    assemble_packed(&blocks, [index, filter, properties, Vec::new()])
}

/// The same, of blocks with their codecs, and the other parts up to the dictionary.
fn assemble_packed(blocks: &[(u8, Vec<u8>)], parts: [Vec<u8>; 4]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut append = |codec: u8, mut part: Vec<u8>| {
        part.push(codec);
        let sum = checksum::bound(IDENTITY, bytes.len() as u64, &part);
        part.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&part);
        part.len() as u64
    };
    let mut footer = Footer::new();
    footer.set(Part::Data, blocks.iter().map(|(codec, block)| append(*codec, block.clone())).sum());
    let names = [Part::Index, Part::Filter, Part::Properties, Part::Dictionary];
    for (name, part) in names.into_iter().zip(parts) {
        footer.set(name, append(0, part));
    }
    bytes.extend_from_slice(&footer.encode(IDENTITY));
    bytes
}

/// An index whose separators are `a`, `b`, `c`...
fn plain_index(blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut index = IndexBuilder::default();
    for (block, name) in blocks.iter().zip(b'a'..) {
        let last = (&[name][..], Trailer::new(1, Kind::Put));
        index.add(block.len() + stored::TRAILER, last, Some((&[name, 0], last.1)));
    }
    index.finish()
}

/// Does all that can be done with a table, whose answers may be wrong or errors, but must end.
fn exercise(bytes: &[u8]) {
    for reach in REACHES {
        let Ok(table) = open(bytes, reach) else { continue };
        // What is made of a dictionary has a size of its own.
        assert!(table.memory() <= 100 * bytes.len() + 50_000);
        let _ = table.verify(&mut |_, _| {});
        let keys: [&[u8]; 7] = [b"", b"a", b"a\0\0", b"b", b"bzzzzzzzzz", b"c", b"\xff\xff"];
        for key in keys {
            for at in [0, 1, 1 << 40, u64::MAX] {
                let _ = table.get(key, hash64(key), at);
            }
        }
        for mode in [ReadMode::Point, ReadMode::Sequential] {
            for key in keys {
                let mut cursor = table.cursor(mode);
                let _ = cursor.seek(key, Trailer::visible_at(7));
                (0..20).take_while(|_| cursor.is_valid() && cursor.next().is_ok()).count();
                for part in Approach::ALL {
                    cursor.approach(part, key, Trailer::visible_at(7));
                }
                let _ = cursor.seek_before(key, Trailer::visible_at(7));
                (0..20).take_while(|_| cursor.is_valid() && cursor.prev().is_ok()).count();
                let _ = cursor.seek_to_first();
                let _ = cursor.seek_to_last();
                if cursor.is_valid() {
                    assert_eq!(cursor.value_slice(), cursor.value());
                }
            }
        }
    }
}

fn random_bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..120)
}

/// Random bytes behind which a tail stands that often fits.
fn random_block() -> impl Strategy<Value = Vec<u8>> {
    (random_bytes(), 0u32..20, 0u32..20, prop_oneof![Just(2u8), Just(4), any::<u8>()]).prop_map(
        |(mut bytes, count, prefix, width)| {
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&prefix.to_le_bytes());
            bytes.push(width);
            bytes
        },
    )
}

/// A well-formed block of which some bytes were changed.
fn bent_block() -> impl Strategy<Value = Vec<u8>> {
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (1usize..6, changes).prop_map(|(count, changes)| {
        let mut builder = super::super::block_builder::BlockBuilder::default();
        for i in 0..count {
            builder.add(&[b'a', i as u8], Trailer::new(9, Kind::Put), &vec![0; i]);
        }
        let mut block = Vec::new();
        builder.finish(&mut block);
        for (at, byte) in changes {
            let at = at.index(block.len());
            block[at] = byte;
        }
        block
    })
}

/// A block that was compressed in some way, or was not, behind the length of its plain form, or another one.
fn packed_block() -> impl Strategy<Value = Vec<u8>> {
    let codec = prop::sample::select(&[Codec::Lz4, Codec::Snappy, Codec::Zstd]);
    let len = prop_oneof![4 => Just(None), 1 => (0u32..200).prop_map(Some), 1 => any::<u32>().prop_map(Some)];
    (bent_block(), random_bytes(), codec, len).prop_map(|(block, other, codec, len)| {
        let mut packed = len.unwrap_or(block.len() as u32).to_le_bytes().to_vec();
        match codec.compressor(3, &[]) {
            Ok(mut compressor) => assert!(compressor.compress(&block, &mut packed)),
            Err(_) => packed.extend_from_slice(&other),
        }
        packed
    })
}

proptest! {
    #[test]
    fn hostile_blocks_do_not_panic(
        blocks in proptest::collection::vec(
            prop_oneof![random_bytes(), random_block(), bent_block()], 1..4,
        ),
    ) {
        let filter = [vec![2, 7], vec![0xff; 64]].concat();
        exercise(&assemble(&blocks, plain_index(&blocks), filter, Properties::default().encode()));
    }

    #[test]
    fn hostile_compressed_blocks_do_not_panic(
        codec in 1u8..4,
        blocks in proptest::collection::vec((0u8..5, packed_block()), 1..4),
        dictionary in random_bytes(),
        named in any::<bool>(),
    ) {
        let plain: Vec<_> = blocks.iter().map(|(_, block)| block.clone()).collect();
        let dictionary = if named { [&[0x37, 0xa4, 0x30, 0xec][..], &dictionary].concat() } else { dictionary };
        let properties = Properties { codec: Codec::of(codec), ..Properties::default() }.encode();
        let filter = [vec![2, 7], vec![0xff; 64]].concat();
        exercise(&assemble_packed(&blocks, [plain_index(&plain), filter, properties, dictionary]));
    }

    #[test]
    fn hostile_parts_do_not_panic(
        index in random_bytes(),
        filter in random_bytes(),
        properties in random_bytes(),
        good in any::<[bool; 3]>(),
        block in bent_block(),
    ) {
        let blocks = [block];
        let index = if good[0] { plain_index(&blocks) } else { index };
        let filter = if good[1] { [vec![2, 1], vec![0xff; 64]].concat() } else { filter };
        let properties = if good[2] { Properties::default().encode() } else { properties };
        exercise(&assemble(&blocks, index, filter, properties));
    }

    #[test]
    fn hostile_footers_do_not_panic(
        data in any::<u64>(), index in any::<u64>(), rest in any::<u64>(), body in random_bytes(),
    ) {
        let len = body.len() as u64;
        for (data, index) in [(data, index), (len, 0), (data % (len + 1), len - data % (len + 1))] {
            let filter = len.wrapping_sub(data).wrapping_sub(index);
            for (filter, properties) in [(filter, 0), (filter.wrapping_sub(rest), rest)] {
                let mut footer = Footer::new();
                for (part, len) in
                    [Part::Data, Part::Index, Part::Filter, Part::Properties].into_iter().zip([data, index, filter, properties])
                {
                    footer.set(part, len);
                }
                if footer.parts_len() == Some(len) {
                    exercise(&[&body[..], &footer.encode(IDENTITY)].concat());
                }
            }
        }
    }
}

#[test]
fn changed_meaning_is_seen_by_verify() {
    let mut builder = super::super::block_builder::BlockBuilder::default();
    for name in [b"a", b"b"] {
        builder.add(name, Trailer::new(1, Kind::Put), b"value");
    }
    let mut block = Vec::new();
    builder.finish(&mut block);
    let mut properties = Properties::default();
    properties.count(b"a", Trailer::new(1, Kind::Put), 5);
    properties.count(b"b", Trailer::new(1, Kind::Put), 5);
    properties.largest = b"b".to_vec();
    let index = |name: &[u8]| {
        let mut index = IndexBuilder::default();
        index.add(block.len() + stored::TRAILER, (name, Trailer::new(1, Kind::Put)), None);
        index.finish()
    };
    let full = [vec![2, 1], vec![0xff; 64]].concat();
    let empty = [vec![2, 1], vec![0; 64]].concat();
    let verify = |block: &Vec<u8>, index, filter: &Vec<u8>, properties: &Properties| {
        let blocks = [block.clone()];
        let bytes = assemble(&blocks, index, filter.clone(), properties.encode());
        open(&bytes, REACHES[2]).expect("right checksums").verify(&mut |_, _| {})
    };
    verify(&block, index(b"b"), &full, &properties).expect("whole");
    assert!(verify(&block, index(b"a"), &full, &properties).is_err(), "separator");
    assert!(verify(&block, index(b"b"), &empty, &properties).is_err(), "filter");
    let fewer = Properties { entries: 1, ..properties.clone() };
    assert!(verify(&block, index(b"b"), &full, &fewer).is_err(), "properties");
    let heads = block.len() - 2 * (4 + 2) - 9;
    for (at, what) in [(1, "order"), (heads, "head"), (heads + 10, "slot")] {
        let mut bent = block.clone();
        bent[at] ^= 0x10;
        assert!(verify(&bent, index(b"b"), &full, &properties).is_err(), "{what}");
    }
}

/// Blocks that are read without an error and still are not what a builder writes.
#[test]
fn irregular_blocks_are_seen_by_verify() {
    let trailer = Trailer::new(1, Kind::Put);
    let verify = |names: [&[u8]; 2], bend: &dyn Fn(&mut Vec<u8>)| {
        let mut builder = super::super::block_builder::BlockBuilder::default();
        let mut properties = Properties::default();
        for name in names {
            builder.add(name, trailer, b"value");
            properties.count(name, trailer, 5);
        }
        properties.smallest = names[0].min(names[1]).to_vec();
        properties.largest = names[1].to_vec();
        let mut block = Vec::new();
        builder.finish(&mut block);
        bend(&mut block);
        let mut index = IndexBuilder::default();
        index.add(block.len() + stored::TRAILER, (b"c", trailer), None);
        let filter = [vec![2, 1], vec![0xff; 64]].concat();
        let bytes = assemble(&[block], index.finish(), filter, properties.encode());
        open(&bytes, REACHES[0]).expect("right checksums").verify(&mut |_, _| {})
    };
    let entry = 2 + 1 + 2 + 5;
    verify([b"a", b"b"], &|_| ()).expect("as a builder writes it");
    assert!(verify([b"b", b"b"], &|_| ()).is_err(), "the same entry twice");
    let behind = |block: &mut Vec<u8>| block.insert(2 * entry, 0);
    assert!(verify([b"a", b"b"], &behind).is_err(), "bytes behind the entries");
    let between = |block: &mut Vec<u8>| {
        block.insert(entry, 0);
        let slot = 2 * entry + 1 + 2 * 4 + 2;
        assert_eq!(block[slot], entry as u8);
        block[slot] += 1;
    };
    assert!(verify([b"a", b"b"], &between).is_err(), "bytes between the entries");
}
