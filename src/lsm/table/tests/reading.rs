//! Single properties of writing and reading: limits, what is read when, and what memory is taken.

use super::super::footer::{Footer, Part};
use super::super::properties::Properties;
use super::super::{ReadMode, stored};
use super::*;
use crate::base::View;
use crate::base::hash::hash64;
use crate::codec::Codec;
use crate::error::ErrorKind;
use crate::iter::EntryCursor;

fn numbered(count: u64) -> Vec<Entry> {
    (0..count).map(|i| entry(format!("key{i:08}").as_bytes(), i + 1, &[i as u8; 100])).collect()
}

fn table_of(
    entries: &[Entry],
    lends: bool,
    cache: Option<Arc<BlockCache>>,
) -> (Arc<TestFile>, Arc<Table>) {
    table_with(entries, &options(4096, 10), lends, cache, KeyFile::default())
}

fn table_with(
    entries: &[Entry],
    options: &TableOptions,
    lends: bool,
    cache: Option<Arc<BlockCache>>,
    kept: KeyFile,
) -> (Arc<TestFile>, Arc<Table>) {
    let (bytes, summary) = write(entries, options);
    let file = TestFile::new(bytes, lends);
    let handle = Handle::staying(file.clone());
    let table =
        Table::open(handle, IDENTITY, summary.len, cache, super::kept(kept)).expect("whole");
    (file, Arc::new(table))
}

#[test]
fn order_is_enforced() {
    let mut builder =
        TableBuilder::new(TestFile::empty(), IDENTITY, &options(0, 10)).expect("plain");
    let put = |seqno| Trailer::new(seqno, Kind::Put);
    builder.add(b"b", put(5), b"").expect("first");
    for (key, seqno) in [(&b"a"[..], 9), (b"b", 5), (b"b", 6), (b"", 1)] {
        let error = builder.add(key, put(seqno), b"").expect_err("out of order");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    builder.add(b"b", put(4), b"").expect("older");
    builder.add(b"c", put(9), b"").expect("behind");
    assert_eq!(builder.finish().expect("written").properties.entries, 3);
}

#[test]
fn blocks_keep_their_size() {
    let (bytes, _) = write(&numbered(1000), &options(4096, 0));
    let table = open(&bytes, REACHES[0]).expect("whole");
    let index = &table.parts.index;
    let sizes: Vec<_> = (0..index.len()).map(|block| index.range(block)).collect();
    assert!(sizes.iter().all(|range| range.end - range.start <= 4096));
    let full = &sizes[..sizes.len() - 1];
    assert!(full.iter().all(|range| range.end - range.start > 3900), "{sizes:?}");
    let stripped = 1000 * (1 + 3 + 1 + 3 + 100 + 4 + 2) + 40 * sizes.len() as u64;
    assert!(index.range_of(0..index.len()).end <= stripped, "prefixes are not stripped");
}

#[test]
fn a_block_ends_before_its_whole_keys_take_much_memory() {
    let key = |number: u32| [&[b'k'; 60 << 10][..], &number.to_be_bytes()].concat();
    let entries: Vec<_> = (0..200).map(|number| entry(&key(number), 1, b"v")).collect();
    let (bytes, _) = write(&entries, &options(1 << 20, 0));
    let table = open(&bytes, REACHES[0]).expect("whole");
    let blocks = table.parts.index.len();
    assert!((3..=4).contains(&blocks), "{blocks} blocks of 4 MiB with whole keys");
    table.verify(&mut |_, _| {}).expect("whole");
}

#[test]
fn a_short_value_does_not_keep_a_block_that_is_in_no_cache() {
    let entries = [entry(b"long", 1, &[1; 9000]), entry(b"short", 1, &[2; 1000])];
    let (bytes, _) = write(&entries, &options(16 << 10, 0));
    let table = open(&bytes, REACHES[0]).expect("whole");
    let range = table.parts.index.range(0);
    for (key, _, value) in &entries {
        let block = View::from(bytes[range.start as usize..range.end as usize].to_vec());
        let place = table.place_of(key, hash64(key), 1).expect("whole").expect("there");
        let found = table.find_in(&block, place, key, 1).expect("whole").expect("there").1;
        assert_eq!(found, value);
        assert_eq!(block.is_shared(), value.len() == 9000);
        // Another one has it anyway.
        let other = block.clone();
        let found = table.find_in(&block, place, key, 1).expect("whole").expect("there").1;
        drop((block, other));
        assert_eq!(found, value);
    }
}

#[test]
fn entries_may_be_larger_than_blocks() {
    let mut entries = numbered(10);
    for (i, entry) in entries.iter_mut().enumerate() {
        entry.2 = vec![i as u8; 100_000 * (i % 3)];
    }
    entries.push(entry(&[0xff; 1 << 16], 77, b"behind a long key"));
    let (bytes, _) = write(&entries, &options(300_000, 10));
    let table = open(&bytes, REACHES[1]).expect("whole");
    table.verify(&mut |_, _| {}).expect("whole");
    for (key, trailer, value) in &entries {
        let found = table.get(key, hash64(key), 100).expect("whole");
        assert_eq!(found.expect("there"), (*trailer, value[..].into()));
    }
}

#[test]
fn the_cache_spares_reads_and_lent_bytes_need_none() {
    let entries = numbered(500);
    let cache = Arc::new(BlockCache::new(1 << 20));
    let (file, table) = table_of(&entries, false, Some(cache.clone()));
    let after_open = file.views();
    for _ in 0..2 {
        for (key, ..) in &entries {
            assert!(table.get(key, hash64(key), 1000).expect("whole").is_some());
        }
    }
    assert_eq!(file.views() - after_open, table.parts.index.len() as u64);
    assert_eq!(cache.misses(), table.parts.index.len() as u64);
    assert!(cache.memory() >= table.parts.index.range_of(0..1).end);

    let cache = Arc::new(BlockCache::new(1 << 20));
    let (file, table) = table_of(&entries, true, Some(cache.clone()));
    let after_open = file.views();
    for (key, ..) in &entries {
        assert!(table.get(key, hash64(key), 1000).expect("whole").is_some());
    }
    assert_eq!(file.views(), after_open);
    assert_eq!((cache.memory(), cache.misses()), (0, 0));
}

#[test]
fn scans_read_ahead_in_few_calls() {
    let entries = numbered(20_000);
    for (mode, backward, most) in [
        (ReadMode::Point, false, 25),
        (ReadMode::Point, true, 25),
        (ReadMode::Sequential, false, 5),
        (ReadMode::Sequential, true, 5),
    ] {
        let cache = Arc::new(BlockCache::new(1 << 24));
        let (file, table) = table_of(&entries, false, Some(cache.clone()));
        let after_open = file.views();
        let mut cursor = table.cursor(mode);
        let mut seen = 0;
        if backward {
            cursor.seek_to_last().expect("whole");
        } else {
            cursor.seek_to_first().expect("whole");
        }
        while cursor.is_valid() {
            seen += 1;
            if backward { cursor.prev() } else { cursor.next() }.expect("whole");
        }
        assert_eq!(seen, entries.len());
        let reads = file.views() - after_open;
        assert!(reads <= most, "{mode:?}: {reads} reads");
        if mode == ReadMode::Point {
            assert!(cache.blocks() <= 3, "{} blocks", cache.blocks());
        } else {
            assert_eq!((cache.memory(), cache.misses()), (0, 0));
        }
    }
}

#[test]
fn memory_is_counted() {
    let (_, table) = table_of(&numbered(20_000), false, None);
    let filter = 20_000 * 10 / 8;
    let index = table.parts.index.len() * 40;
    let points = 20_000 * 64 / 10;
    let most = filter + points + index * 2;
    assert!((filter + points + index / 2..most).contains(&table.memory()), "{}", table.memory());
}

#[test]
fn what_does_not_stay_takes_no_memory_and_is_read_once() {
    let entries = numbered(5000);
    // A point index that does not lie at a multiple of its lines is copied, which depends on where the file is in memory.
    let options =
        |block_size, bits| TableOptions { points: Some(false), ..options(block_size, bits) };
    let memory = |kept| table_with(&entries, &options(4096, 10), true, None, kept).1.memory();
    let [none, filter, keys, both] =
        [KeyFile::None, KeyFile::Filter, KeyFile::Keys, KeyFile::KeysAndFilter].map(memory);
    assert!(none < 2500 && filter - none >= 5000 * 10 / 8, "{none} {filter}");
    assert!(keys - none >= 120 * 20, "{none} {keys}");
    assert_eq!(both - keys, filter - none);
    for kept in [KeyFile::None, KeyFile::Filter, KeyFile::Keys] {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let (file, table) =
            table_with(&entries, &options(4096, 10), false, Some(cache.clone()), kept);
        let after_open = file.views();
        for (key, ..) in &entries {
            assert!(table.get(key, hash64(key), 9000).expect("whole").is_some());
        }
        let parts = if kept == KeyFile::None { 2 } else { 1 };
        assert_eq!(file.views() - after_open, table.parts.index.len() as u64 + parts);
    }
}

#[test]
fn the_cache_has_compressed_blocks_plain() {
    let entries = numbered(2000);
    for compression in compressions() {
        let options = TableOptions { compression, ..TableOptions::default() };
        for lends in [false, true] {
            let cache = Arc::new(BlockCache::new(1 << 24));
            let (file, table) =
                table_with(&entries, &options, lends, Some(cache.clone()), KeyFile::default());
            let is_packed = table.properties().codec.is_some();
            assert_eq!(is_packed, compression != Compression::None);
            let after_open = file.views();
            for _ in 0..2 {
                for (key, trailer, value) in &entries {
                    let found = table.get(key, hash64(key), 3000).expect("whole");
                    assert_eq!(found, Some((*trailer, value[..].into())));
                }
            }
            let blocks = table.parts.index.len() as u64;
            assert_eq!(file.views() - after_open, if lends { 0 } else { blocks });
            let plain: u64 = 2000 * 110;
            let cached = cache.memory();
            assert_eq!(cached > plain, !lends || is_packed, "{compression} {cached}");
            assert_eq!(table.len() < plain / 2, is_packed, "{compression} {}", table.len());
            let (hits, memory) = (cache.hits(), cache.memory());
            let mut cursor = table.cursor(ReadMode::Sequential);
            cursor.seek_to_first().expect("whole");
            (1..entries.len()).for_each(|_| cursor.next().expect("whole"));
            assert_eq!((cursor.key(), cache.hits()), (&entries[1999].0[..], hits));
            assert_eq!(cache.memory(), memory);
        }
    }
}

/// Blocks that would not get smaller stand as they are between those that do.
#[test]
fn tables_may_be_mixed() {
    let mut rng = crate::base::rng::Rng::new(5);
    let mut entries = numbered(400);
    for noisy in entries.chunks_mut(80).step_by(2).flatten() {
        noisy.2 = (0..100).map(|_| rng.next() as u8).collect();
    }
    for compression in compressions() {
        let options = TableOptions { compression, ..TableOptions::default() };
        let (bytes, _) = write(&entries, &options);
        for reach in REACHES {
            let table = open(&bytes, reach).expect("whole");
            table.verify(&mut |_, _| {}).expect("whole");
            for _ in 0..2 {
                for (key, trailer, value) in &entries {
                    let found = table.get(key, hash64(key), 900).expect("whole");
                    assert_eq!(found, Some((*trailer, value[..].into())));
                }
            }
        }
    }
}

#[cfg(feature = "zstd")]
#[test]
fn a_dictionary_is_trained_with_the_first_blocks() {
    let record = |i: u64| {
        let id = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!(r#"{{"account":"{id:016x}","state":"open","currency":"EUR","limit":{}}}"#, id % 977)
    };
    let count = 60_000;
    let entries: Vec<_> = (0..count)
        .map(|i| entry(format!("{i:08}").as_bytes(), i + 1, record(i).as_bytes()))
        .collect();
    let sizes = [false, true].map(|dictionary| {
        let compression = Compression::Zstd { level: 3, dictionary };
        let options = TableOptions { block_size: 600, compression, ..options(600, 0) };
        let (bytes, summary) = write(&entries, &options);
        let table = open(&bytes, REACHES[1]).expect("whole");
        let len = table.parts.footer.range(Part::Dictionary);
        assert_eq!(!len.is_empty(), dictionary);
        assert!(len.end - len.start <= (16 << 10) + stored::TRAILER as u64);
        table.verify(&mut |_, _| {}).expect("whole");
        for (key, trailer, value) in entries.iter().step_by(97) {
            let found = table.get(key, hash64(key), u64::MAX >> 8).expect("whole");
            assert_eq!(found, Some((*trailer, value[..].into())));
        }
        summary.len
    });
    assert!(sizes[1] * 10 < sizes[0] * 9, "{sizes:?}");
}

#[test]
fn what_was_not_compiled_in_is_not_taken_for_damage() {
    for codec in [Codec::Snappy, Codec::Zstd].into_iter().filter(|codec| codec.check().is_err()) {
        let mut properties = Properties { codec: Some(codec), ..Properties::default() }.encode();
        let mut bytes = Vec::new();
        stored::seal(&mut bytes, IDENTITY, 0);
        let mut footer = Footer::new();
        footer.set(Part::Index, bytes.len() as u64);
        stored::seal(&mut properties, IDENTITY, bytes.len() as u64);
        footer.set(Part::Properties, properties.len() as u64);
        let bytes = [bytes, properties, footer.encode(IDENTITY)].concat();
        let error = open(&bytes, REACHES[0]).expect_err("not compiled in");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(&format!("feature `{codec}`")), "{error}");
        let compression = match codec {
            Codec::Snappy => Compression::Snappy,
            _ => Compression::Zstd { level: 1, dictionary: false },
        };
        let options = TableOptions { compression, ..TableOptions::default() };
        let builder = TableBuilder::new(TestFile::empty(), IDENTITY, &options);
        assert_eq!(builder.expect_err("not compiled in").kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn a_newer_version_is_named() {
    let (mut bytes, _) = write(&numbered(3), &options(4096, 10));
    let version = bytes.len() - 12;
    bytes[version] = 4;
    let error = open(&bytes, REACHES[0]).expect_err("newer");
    assert_eq!(error.kind(), ErrorKind::NewerFormat);
}

#[test]
fn another_place_or_identity_is_refused() {
    let (bytes, summary) = write(&numbered(3), &options(4096, 10));
    let open = |identity, len| {
        let file = Handle::staying(TestFile::new(bytes.clone(), false));
        Table::open(file, identity, len, None, super::kept(KeyFile::default()))
            .map(|_| ())
            .map_err(|error| error.kind())
    };
    assert_eq!(open(IDENTITY, summary.len), Ok(()));
    assert_eq!(open(IDENTITY + 1, summary.len), Err(ErrorKind::Corruption));
    assert_eq!(open(IDENTITY, summary.len + 1), Err(ErrorKind::Corruption));
    assert_eq!(open(IDENTITY, 0), Err(ErrorKind::Corruption));
}
