//! Sorted files of every shape against a vector of records.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::base::Slice;
use crate::base::key::compare;
use crate::base::rng::Rng;
use crate::iter::EntryCursor;
use crate::skip::cursor::FileCursor;
use crate::skip::verify::verify;
use crate::vfs::{BatchReader, DiskFs, Fs, Layer, LayeredFs, MemoryFs};

/// A place in a file: a key and a trailer.
pub(super) type At = (Vec<u8>, Trailer);

pub(super) fn shape(step_unit: u32, max_level: u32, has_trailers: bool) -> Shape {
    Shape { step_unit, max_level, has_trailers }
}

/// Puts entries in the order of a file of this shape: without trailers there is one record of a key.
pub(super) fn sorted(mut entries: Vec<Entry>, has_trailers: bool) -> Vec<Entry> {
    if !has_trailers {
        entries.iter_mut().for_each(|entry| entry.1 = UNIFORM);
    }
    entries.sort_by(|a, b| compare((&a.0, a.1), (&b.0, b.1)));
    entries.dedup_by(|a, b| a.0 == b.0 && a.1.seqno() == b.1.seqno());
    entries
}

/// Long keys whose links are long too, so that few records make many blocks of links: each bit of a number is many
/// bytes, and neighbours share much that others do not.
pub(super) fn stretched(count: u64) -> Vec<Entry> {
    let entry = |number: u64| {
        let bits = (0..10).rev().map(|bit| if number >> bit & 1 == 1 { b'b' } else { b'a' });
        let key = bits.flat_map(|byte| [byte; 70]).collect();
        let kind = if number % 9 == 4 { Kind::Delete } else { Kind::Put };
        (key, Trailer::new(1 + number % 50, kind), vec![number as u8; number as usize % 5])
    };
    (0..count).map(entry).collect()
}

/// So many versions of one key, between its neighbours.
fn versions(count: u64, len: usize) -> Vec<Entry> {
    let version = |seqno: u64| {
        let kind = if seqno.is_multiple_of(7) { Kind::Delete } else { Kind::Put };
        (b"key".to_vec(), Trailer::new(seqno, kind), vec![seqno as u8; len])
    };
    let neighbours = [&b"kex"[..], b"key\0", b"kez"].into_iter().enumerate();
    let neighbours = neighbours
        .map(|(at, key)| (key.to_vec(), Trailer::new(3 + at as u64, Kind::Put), vec![1; 3000]));
    (1..=count).map(version).chain(neighbours).collect()
}

/// Records of all sizes; few keys have many versions.
fn mixed() -> impl Strategy<Value = Vec<Entry>> {
    let len = prop_oneof![
        10 => Just(0_usize),
        40 => 0..60_usize,
        20 => 300..1500_usize,
        5 => 3500..9000_usize,
        1 => 60_000..200_000_usize,
    ];
    let record = (key(), 1..400_u64, any::<bool>(), len);
    proptest::collection::vec(record, 0..200).prop_map(|drawn| {
        let entry = |(at, (key, seqno, is_put, len)): (usize, (Vec<u8>, u64, bool, usize))| {
            let kind = if is_put { Kind::Put } else { Kind::Delete };
            (key, Trailer::new(seqno, kind), vec![at as u8; len])
        };
        drawn.into_iter().enumerate().map(entry).collect()
    })
}

/// What is looked for: the place of each record, and what is next to it.
pub(super) fn probes(entries: &[Entry]) -> Vec<At> {
    let mut probes = vec![(Vec::new(), Trailer::NEWEST), (vec![0xff; 9], Trailer::OLDEST)];
    for (key, trailer, _) in entries {
        let before = Trailer::visible_at(trailer.seqno().saturating_sub(1));
        for trailer in [Trailer::visible_at(trailer.seqno()), before, Trailer::NEWEST] {
            probes.push((key.clone(), trailer));
        }
        probes.push(([&key[..], b"\0"].concat(), Trailer::visible_at(SEQNO)));
        if let Some((last, front)) = key.split_last() {
            probes.push((front.to_vec(), Trailer::OLDEST));
            probes.push(([front, &[last.wrapping_add(1)]].concat(), *trailer));
        }
    }
    probes
}

/// How many entries are in front of a place.
fn before(entries: &[Entry], (key, trailer): &At) -> usize {
    entries.partition_point(|entry| compare((&entry.0, entry.1), (key, *trailer)).is_lt())
}

/// The newest entry of `key` up to `at`.
fn newest(entries: &[Entry], key: &[u8], at: Seqno) -> Option<(Trailer, Slice)> {
    let found = entries.get(before(entries, &(key.to_vec(), Trailer::visible_at(at))));
    found.filter(|entry| entry.0 == key).map(|entry| (entry.1, Slice::from(&entry.2[..])))
}

/// Compares where the cursor stands with the entry that should be there.
fn assert_at(cursor: &FileCursor, expected: Option<&Entry>) {
    let found = cursor.is_valid().then(|| {
        assert_eq!(cursor.value_slice(), *cursor.value());
        (cursor.key(), cursor.trailer(), cursor.value())
    });
    let expected = expected.map(|(key, trailer, value)| (&key[..], *trailer, &value[..]));
    assert!(found == expected, "{:?} in place of {:?}", found.map(|e| e.0), expected.map(|e| e.0));
}

/// Looks for single places.
pub(super) fn check_points(file: &Arc<SortedFile>, entries: &[Entry], probes: &[At]) {
    let mut cursor = file.cursor(None);
    for probe in probes {
        let (key, trailer) = probe;
        let place = before(entries, probe);
        assert_eq!(file.rank(key, *trailer).unwrap(), place as u64);
        let at = trailer.seqno();
        assert_eq!(file.get(key, at).unwrap(), newest(entries, key, at), "{key:?} at {at}");
        cursor.seek(key, *trailer).unwrap();
        assert_at(&cursor, entries.get(place));
        cursor.seek_before(key, *trailer).unwrap();
        assert_at(&cursor, place.checked_sub(1).map(|place| &entries[place]));
    }
}

/// Looks for all of them together, of a few states.
pub(super) fn check_together(file: &SortedFile, entries: &[Entry], probes: &[At]) {
    let reader = BatchReader::new(2);
    let keys: Vec<&[u8]> = probes.iter().map(|probe| &probe.0[..]).collect();
    for at in [0, 5, SEQNO, 1 << 40] {
        let found = file.multi_get(&keys, at, &reader).unwrap();
        assert_eq!(found.len(), keys.len());
        for (key, found) in keys.iter().zip(found) {
            assert_eq!(found, newest(entries, key, at), "{key:?} at {at}");
        }
    }
}

pub(super) fn check_positions(file: &Arc<SortedFile>, entries: &[Entry], step: usize) {
    let mut cursor = file.cursor(None);
    for position in (0..entries.len()).step_by(step) {
        let (number, target) = file.find_record(position as u64).unwrap();
        assert!(target.block == number as u64 && target.record <= position as u64);
        cursor.seek_to_record(position as u64).unwrap();
        assert_at(&cursor, Some(&entries[position]));
    }
    for behind in [entries.len() as u64, u64::MAX] {
        cursor.seek_to_record(behind).unwrap();
        assert_at(&cursor, None);
    }
}

/// Walks from end to end, and then about.
fn check_walks(file: &Arc<SortedFile>, entries: &[Entry], run: Option<u64>, seed: u64) {
    let mut cursor = file.cursor(run);
    assert_at(&cursor, None);
    cursor.seek_to_first().unwrap();
    for entry in entries {
        assert_at(&cursor, Some(entry));
        cursor.next().unwrap();
    }
    assert_at(&cursor, None);
    cursor.seek_to_last().unwrap();
    for entry in entries.iter().rev() {
        assert_at(&cursor, Some(entry));
        cursor.prev().unwrap();
    }
    assert_at(&cursor, None);
    let mut rng = Rng::new(seed);
    let mut place = 0;
    for _ in 0..if entries.is_empty() { 0 } else { 60 } {
        if !cursor.is_valid() {
            place = rng.next() as usize % entries.len();
            cursor.seek_to_record(place as u64).unwrap();
        }
        let is_forward = rng.next().is_multiple_of(2);
        for _ in 0..rng.next() % 30 {
            if !cursor.is_valid() {
                break;
            }
            match is_forward {
                true => cursor.next().unwrap(),
                false => cursor.prev().unwrap(),
            }
            place = if is_forward { place + 1 } else { place.wrapping_sub(1) };
            assert_at(&cursor, entries.get(place));
        }
    }
}

/// All that a file can be asked.
fn check_all(file: &Arc<SortedFile>, entries: &[Entry], seed: u64) {
    verify(file).unwrap();
    let probes = probes(entries);
    check_points(file, entries, &probes);
    check_together(file, entries, &probes);
    check_positions(file, entries, 1);
    for run in [None, Some(1), Some(1 << 20)] {
        check_walks(file, entries, run, seed);
    }
}

#[test]
fn files_of_every_shape_read_like_a_sorted_vector() {
    let entries = stretched(330);
    let with = sorted(entries.clone(), true);
    let without = sorted(entries, false);
    for step_unit in 2..=64 {
        for max_level in 0..=12 {
            let has_trailers = (step_unit + max_level) % 2 == 0;
            let entries = if has_trailers { &with } else { &without };
            let bytes = write(entries, shape(step_unit, max_level, has_trailers));
            let seed = u64::from(step_unit * 13 + max_level);
            for reach in REACHES {
                let file = open(&bytes, reach).unwrap();
                assert!(file.blocks() > 8 && (max_level < 2 || file.link_blocks().len() > 2));
                assert!(file.levels() <= max_level);
                let about: Vec<_> = probes(entries).into_iter().step_by(91).collect();
                check_points(&file, entries, &about);
                if reach.lends {
                    continue;
                }
                verify(&file).unwrap();
                check_together(&file, entries, &about);
                check_positions(&file, entries, 31);
                check_walks(&file, entries, (seed % 3 == 0).then_some(1 << 16), seed);
            }
        }
    }
}

/// Links without keys are so short that it takes many blocks to fill one with them.
#[test]
fn many_blocks_of_links_without_keys() {
    let entry = |number: u32| (number.to_be_bytes().to_vec(), UNIFORM, vec![number as u8; 4000]);
    let entries: Vec<Entry> = (0..1200).map(entry).collect();
    let about: Vec<_> = probes(&entries).into_iter().step_by(61).collect();
    for (step_unit, max_level) in [(2, 0), (2, 1), (17, 1), (64, 1)] {
        let bytes = write(&entries, shape(step_unit, max_level, max_level == 1));
        for reach in REACHES {
            let file = open(&bytes, reach).unwrap();
            assert!(file.link_blocks().len() > 2);
            check_points(&file, &entries, &about);
            check_together(&file, &entries, &about);
            check_positions(&file, &entries, 41);
            check_walks(&file, &entries, None, 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    #[test]
    fn files_of_any_records_read_like_a_sorted_vector(
        entries in prop_oneof![
            6 => mixed(),
            1 => (0..600_u64).prop_map(stretched),
            1 => (0..600_u64, 0..150_usize).prop_map(|(count, len)| versions(count, len)),
        ],
        step_unit in 2..=64_u32,
        max_level in 0..=12_u32,
        has_trailers in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let entries = sorted(entries, has_trailers);
        let bytes = write(&entries, shape(step_unit, max_level, has_trailers));
        for reach in REACHES {
            check_all(&open(&bytes, reach).unwrap(), &entries, seed);
        }
    }
}

#[test]
fn versions_of_one_key_go_over_many_blocks() {
    for max_level in [0, 1, 2, 3, 12] {
        let entries = sorted(versions(900, 90), true);
        let bytes = write(&entries, shape(3, max_level, true));
        for reach in REACHES {
            let file = open(&bytes, reach).unwrap();
            assert!(file.blocks() > 20);
            check_all(&file, &entries, 5);
        }
    }
}

#[test]
fn records_may_be_huge_or_nothing() {
    let lens = [0, 1 << 20, 0, 0, 70_000, 1, (1 << 20) + 4095, 5000];
    let entries: Vec<Entry> = (0_u8..)
        .zip(lens)
        .map(|(at, len)| (if at == 0 { vec![] } else { vec![at; 1 << at] }, UNIFORM, vec![at; len]))
        .chain([(vec![9; 65_535], UNIFORM, b"behind a long key".to_vec())])
        .collect();
    for max_level in [0, 2, 12] {
        for has_trailers in [false, true] {
            let bytes = write(&entries, shape(2, max_level, has_trailers));
            for reach in REACHES {
                check_all(&open(&bytes, reach).unwrap(), &entries, 3);
            }
        }
    }
    // Nor need there be any, or anything in them.
    for entries in [vec![], vec![(vec![], UNIFORM, vec![])]] {
        let bytes = write(&entries, shape(4, 12, false));
        for reach in REACHES {
            check_all(&open(&bytes, reach).unwrap(), &entries, 3);
        }
    }
}

/// Links must not take memory for all that is in their keys, or a file would be opened at the price of reading all of it.
#[test]
fn long_keys_that_have_much_in_common_take_little_memory() {
    for fronts in [&b"a"[..], b"abc"] {
        let entry = |number: usize| {
            let front = vec![fronts[number * fronts.len() / 300]; 60_000];
            ([&front[..], &number.to_be_bytes()].concat(), UNIFORM, vec![number as u8])
        };
        let entries: Vec<Entry> = (0..300).map(entry).collect();
        let about: Vec<_> = probes(&entries).into_iter().step_by(101).collect();
        for has_trailers in [false, true] {
            let bytes = write(&entries, shape(4, 12, has_trailers));
            for reach in [Reach { most_links: 1 << 20, ..REACHES[1] }, REACHES[3]] {
                let file = open(&bytes, reach).unwrap();
                assert!(file.memory() < 3 << 20, "{} bytes of {}", file.memory(), bytes.len());
                check_points(&file, &entries, &about);
            }
            verify(&open(&bytes, REACHES[1]).unwrap()).unwrap();
        }
    }
}

#[test]
fn it_does_through_every_layer() {
    let dir = tempfile::tempdir().unwrap();
    let systems: [(Arc<dyn Fs>, _); 2] =
        [(Arc::new(MemoryFs::new()), "/".into()), (Arc::new(DiskFs::new()), dir.path().to_owned())];
    for (fs, dir) in systems {
        let fs = LayeredFs::new(fs);
        let small = |layer: Layer| layer.with_page_cache_pages(20).unwrap_or(layer);
        for (at, layer) in Layer::ALL.into_iter().map(small).enumerate() {
            let entries = if at % 2 == 0 { versions(300, 60) } else { stretched(400) };
            let has_trailers = at % 3 > 0;
            let entries = sorted(entries, has_trailers);
            let path = dir.join(format!("{at}.sorted"));
            let Ok(file) = fs.create(&path, layer) else { continue };
            drop(write_to(file, &entries, shape(2 + at as u32, 12, has_trailers)));
            for reach in [REACHES[0], REACHES[1]] {
                let file = fs.open(&path, crate::vfs::Access::Read, layer).unwrap();
                check_all(&open_file(file, reach).unwrap(), &entries, at as u64);
            }
        }
    }
}

#[test]
fn links_in_memory_take_what_they_may() {
    let entries = sorted(stretched(600), true);
    let bytes = write(&entries, shape(4, 12, true));
    let with = |most_links| open(&bytes, Reach { most_links, ..REACHES[0] }).unwrap().memory();
    let (least, most) = (with(0), with(usize::MAX));
    assert!(most > least + 10_000);
    for most_links in [1000, 10_000, most - least - 1, most - least, most] {
        assert!(with(most_links) <= least + most_links);
    }
    assert_eq!((with(most - least), with(most - least - 1)), (most, least));
}

/// What the cache knows of each block is memory, too, for as long as the file is open.
#[test]
fn without_room_for_them_no_blocks_are_cached() {
    let entries = sorted(stretched(300), true);
    let bytes = write(&entries, shape(4, 12, true));
    let with = |slots| {
        let (file, cache) = (Whole::new(bytes.clone(), false), Arc::new(BlockCache::new(1 << 20)));
        let (len, room) = (bytes.len() as u64, Room { links: 0, slots });
        SortedFile::open(Handle::staying(file), IDENTITY, len, SEQNO, &cache, room).unwrap()
    };
    let least = with(0).memory();
    let slots = with(usize::MAX).memory() - least;
    assert!(slots > 0 && with(slots - 1).memory() == least);
    for (room, again) in [(slots - 1, true), (slots, false)] {
        let file = with(room);
        let keys: Vec<&[u8]> = entries.iter().map(|entry| &entry.0[..]).collect();
        let reads = || {
            let before = file.counters().1;
            assert_eq!(
                file.multi_get(&keys, SEQNO, &BatchReader::new(2)).unwrap().len(),
                keys.len()
            );
            file.counters().1 - before
        };
        assert!(reads() > 0);
        assert_eq!(reads() > 0, again);
    }
}

#[test]
fn blocks_are_read_once_and_a_search_reads_one() {
    let entries = sorted(stretched(500), false);
    let bytes = write(&entries, shape(4, 12, false));
    let file = open(&bytes, REACHES[0]).unwrap();
    for (key, ..) in &entries {
        assert!(file.get(key, SEQNO).unwrap().is_some());
    }
    assert_eq!(file.counters(), (entries.len() as u64, file.blocks() as u64));
    // Nothing is kept of what is read past the cache.
    let file = open(&bytes, REACHES[0]).unwrap();
    check_walks(&file, &entries, Some(1 << 20), 1);
    verify(&file).unwrap();
    let (_, reads) = file.counters();
    assert!(reads < file.blocks() as u64 / 2, "{reads}");
}
