//! Single properties of writing and reading: limits, what is read when, and what memory is taken.

use super::super::ReadMode;
use super::*;
use crate::base::hash::hash64;
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
    let (bytes, summary) = write(entries, &options(4096, 10));
    let file = TestFile::new(bytes, lends);
    let table = Table::open(file.clone(), IDENTITY, summary.len, cache).expect("whole");
    (file, Arc::new(table))
}

#[test]
fn order_is_enforced() {
    let mut builder = TableBuilder::new(TestFile::empty(), IDENTITY, &options(0, 10));
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
            assert!(cache.memory() <= 3 * 5000, "{}", cache.memory());
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
    assert!((filter + index / 2..filter + index * 2).contains(&table.memory()));
}

#[test]
fn a_newer_version_is_named() {
    let (mut bytes, _) = write(&numbered(3), &options(4096, 10));
    let version = bytes.len() - 12;
    bytes[version] = 2;
    let error = open(&bytes, REACHES[0]).expect_err("newer");
    assert_eq!(error.kind(), ErrorKind::NewerFormat);
}

#[test]
fn another_place_or_identity_is_refused() {
    let (bytes, summary) = write(&numbered(3), &options(4096, 10));
    let open = |identity, len| {
        let file = TestFile::new(bytes.clone(), false);
        Table::open(file, identity, len, None).map(|_| ()).map_err(|error| error.kind())
    };
    assert_eq!(open(IDENTITY, summary.len), Ok(()));
    assert_eq!(open(IDENTITY + 1, summary.len), Err(ErrorKind::Corruption));
    assert_eq!(open(IDENTITY, summary.len + 1), Err(ErrorKind::Corruption));
    assert_eq!(open(IDENTITY, 0), Err(ErrorKind::Corruption));
}
