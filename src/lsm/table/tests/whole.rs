//! Blocks of one table that go to another as they are.

use proptest::prelude::*;

use super::super::ReadMode;
use super::model::entries;
use super::*;
use crate::base::hash::hash64;
use crate::base::key::MAX_SEQNO;
use crate::iter::EntryCursor;

/// What the blocks of the copy are bound to.
const ANOTHER: u64 = 0x8765_4321;

/// Writes what a table has to another one, its blocks as they are where that can be, and between any two of them the entries
/// of `more` that belong there. How many blocks were not made anew.
fn copy(table: &Arc<Table>, more: &[Entry], options: &TableOptions) -> (Vec<u8>, usize) {
    let file = TestFile::empty();
    let mut builder = TableBuilder::new(file.clone(), ANOTHER, options).expect("compiled in");
    let mut cursor = table.cursor(ReadMode::Sequential);
    cursor.seek_to_first().expect("whole");
    let (mut more, mut last, mut copied) = (more.iter().peekable(), None, 0);
    while cursor.is_valid() {
        while let Some((key, trailer, value)) =
            more.next_if(|(key, ..)| key.as_slice() < cursor.key())
        {
            builder.add(key, *trailer, value).expect("in order");
        }
        let limit = more.peek().map(|(key, ..)| key.as_slice());
        if last.as_deref() != Some(cursor.key())
            && let Some(block) = cursor.block()
            && let Some((key, _)) = builder.add_block(&block, limit, 800).expect("whole")
        {
            last = Some(key);
            copied += 1;
            cursor.pass_block().expect("whole");
            continue;
        }
        builder.add(cursor.key(), cursor.trailer(), cursor.value()).expect("in order");
        last = Some(cursor.key().to_vec());
        cursor.next().expect("whole");
    }
    more.for_each(|(key, trailer, value)| builder.add(key, *trailer, value).expect("in order"));
    builder.finish().expect("written");
    (file.bytes(), copied)
}

/// The table in bytes of a copy.
fn open_copy(bytes: &[u8], lends: bool) -> Arc<Table> {
    let file = Handle::staying(TestFile::new(bytes.to_vec(), lends));
    let kept = kept(KeyFile::KeysAndFilter);
    Arc::new(Table::open(file, ANOTHER, bytes.len() as u64, None, kept).expect("whole"))
}

fn assert_has(table: &Arc<Table>, entries: &[Entry]) {
    table.verify(&mut |_, _| {}).expect("whole");
    let mut cursor = table.cursor(ReadMode::Point);
    cursor.seek_to_first().expect("whole");
    for (key, trailer, value) in entries {
        assert_eq!(
            (cursor.key(), cursor.trailer(), cursor.value()),
            (&key[..], *trailer, &value[..])
        );
        cursor.next().expect("whole");
    }
    assert!(!cursor.is_valid());
    for (key, ..) in entries {
        let newest = entries.iter().find(|entry| entry.0 == *key).expect("it is one of them");
        let found = table.get(key, hash64(key), MAX_SEQNO).expect("whole").expect("it is there");
        assert_eq!((found.0, &found.1[..]), (newest.1, &newest.2[..]));
        cursor.seek(key, newest.1).expect("whole");
        assert_eq!((cursor.key(), cursor.trailer()), (&key[..], newest.1));
    }
}

/// Entries of keys that are all different.
fn puts(count: u32, value: usize) -> Vec<Entry> {
    (0..count).map(|n| entry(&(10 * n).to_be_bytes(), 7, &vec![n as u8; value])).collect()
}

#[test]
fn blocks_that_overlap_nothing_are_not_made_anew() {
    for compression in compressions() {
        let alike = TableOptions { compression, ..options(1000, 10) };
        for (value, size) in [(0, 1000), (100, 1000), (700, 1000), (700, 500)] {
            let options = TableOptions { block_size: size, ..alike.clone() };
            let entries = puts(500, value);
            let (bytes, _) = write(&entries, &options);
            for lends in [false, true] {
                let reach = Reach { lends, caches: false, kept: KeyFile::KeysAndFilter };
                let table = open(&bytes, reach).expect("whole");
                let blocks = table.parts.index.len();
                let (copied, count) = copy(&table, &[], &options);
                let may_go = !matches!(compression, Compression::Zstd { .. });
                let expected = if may_go { blocks - 1..=blocks } else { 0..=0 };
                assert!(expected.contains(&count), "{compression:?} {value}: {count} of {blocks}");
                assert_has(&open_copy(&copied, lends), &entries);
            }
        }
    }
}

#[test]
fn blocks_go_only_where_they_would_be_made_like_that() {
    let packed = TableOptions { compression: Compression::Lz4, ..options(1000, 10) };
    let entries = puts(500, 100);
    let count = |from: &TableOptions, to: &TableOptions, more: &[Entry]| {
        let table = open(&write(&entries, from).0, REACHES[0]).expect("whole");
        copy(&table, more, to).1
    };
    let plain = options(1000, 10);
    assert!(count(&plain, &plain, &[]) > 30);
    assert_eq!(count(&plain, &packed, &[]) + count(&packed, &plain, &[]), 0);
    assert_eq!(count(&plain, &options(3000, 10), &[]), 0, "they would be small");
    assert_eq!(count(&plain, &options(700, 10), &[]), 0, "they would be large");
    // A key in the midst of each.
    let more: Vec<_> =
        (0..500_u32).map(|n| entry(&(10 * n + 5).to_be_bytes(), 9, b"new")).collect();
    assert_eq!(count(&plain, &plain, &more), 0);
    let one = count(&plain, &plain, &more[200..201]);
    assert!((20..count(&plain, &plain, &[])).contains(&one), "{one}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_copy_reads_like_what_it_is_of(
        entries in entries(),
        others in entries(),
        block_size in prop_oneof![Just(0usize), 40..300usize, Just(4096)],
        kinds in [any_options(), any_options()],
        is_alike in any::<bool>(),
        lends in any::<bool>(),
    ) {
        let mut others = others;
        others.retain(|other| entries.iter().all(|entry| entry.0 != other.0));
        let from = TableOptions { block_size, ..kinds[0].clone() };
        let to = if is_alike { from.clone() } else { kinds[1].clone() };
        let reach = Reach { lends, caches: false, kept: KeyFile::KeysAndFilter };
        let table = open(&write(&entries, &from).0, reach).expect("whole");
        let (bytes, _) = copy(&table, &others, &to);
        let mut all = [entries, others].concat();
        all.sort_by(|a, b| crate::base::key::compare((&a.0, a.1), (&b.0, b.1)));
        assert_has(&open_copy(&bytes, lends), &all);
    }
}
