//! A table against a sorted vector.

use proptest::prelude::*;

use super::super::{ReadMode, TableCursor};
use super::*;
use crate::base::hash::hash64;
use crate::base::key::compare;
use crate::base::{Seqno, Slice};
use crate::iter::{Approach, EntryCursor};

/// Keys that share long prefixes, are empty, or are prefixes of each other.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let bytes =
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xff)], 0..6);
    prop_oneof![
        bytes.clone(),
        bytes.prop_map(|tail| [&b"a long prefix shared by many keys "[..], &tail].concat()),
    ]
}

/// Up to 300 entries of few keys, so that many are versions of one; values of all lengths.
pub(super) fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let value = prop_oneof![
        4 => 0usize..50,
        1 => 100usize..900,
    ];
    let one = (key(), 1u64..400, any::<bool>(), value);
    proptest::collection::vec(one, 0..300).prop_map(|drawn| {
        let mut entries: Vec<Entry> = Vec::new();
        for (i, (key, seqno, deleted, value)) in drawn.into_iter().enumerate() {
            let kind = if deleted { Kind::Delete } else { Kind::Put };
            let value = if deleted { Vec::new() } else { vec![i as u8; value] };
            entries.push((key, Trailer::new(seqno, kind), value));
        }
        entries.sort_by(|a, b| compare((&a.0, a.1), (&b.0, b.1)));
        entries.dedup_by(|a, b| a.0 == b.0 && a.1.seqno() == b.1.seqno());
        entries
    })
}

fn get(entries: &[Entry], key: &[u8], at: Seqno) -> Option<(Trailer, Slice)> {
    entries
        .iter()
        .find(|entry| entry.0 == key && entry.1.seqno() <= at)
        .map(|entry| (entry.1, Slice::from(&entry.2[..])))
}

/// A get as those make it who make many at once.
fn get_in_steps(table: &Table, key: &[u8], at: Seqno) -> Option<(Trailer, Slice)> {
    let hash = hash64(key);
    table.prefetch(hash);
    let place = table.place_of(key, hash, at).expect("whole")?;
    table.prefetch_slot(place.block);
    table.prefetch_place(place);
    if at.is_multiple_of(2) {
        return table.try_find_at(place, key, at).expect("whole").expect("nothing to wait for");
    }
    let request = table.request(place.block).expect("whole");
    let stored = request.file.view(request.range).expect("whole");
    let plain = table.take_in(place.block, &stored).expect("whole");
    table.find_in(&plain, place, key, at).expect("whole")
}

fn assert_at(cursor: &TableCursor, expected: Option<&Entry>) {
    let found = cursor
        .is_valid()
        .then(|| (cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec()));
    assert_eq!(found.as_ref(), expected);
    if let Some((_, _, value)) = found {
        assert_eq!(cursor.value_slice(), value);
    }
}

/// Walks from a position to both ends and back.
fn walk(cursor: &mut TableCursor, entries: &[Entry], mut at: usize, steps: &[bool]) {
    for &forward in steps {
        if !cursor.is_valid() {
            return;
        }
        if forward {
            cursor.next().expect("whole");
            at += 1;
        } else {
            cursor.prev().expect("whole");
            at = at.wrapping_sub(1);
        }
        assert_at(cursor, entries.get(at));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn reads_like_a_sorted_vector(
        entries in entries(),
        options in any_options(),
        probes in proptest::collection::vec((key(), 0u64..420), 1..40),
        steps in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let (bytes, summary) = write(&entries, &options);
        let probes: Vec<_> = probes
            .into_iter()
            .chain(entries.iter().map(|entry| (entry.0.clone(), entry.1.seqno())))
            .chain(entries.iter().map(|entry| (entry.0.clone(), entry.1.seqno() - 1)))
            .collect();
        for reach in REACHES {
            let table = open(&bytes, reach).expect("whole");
            prop_assert_eq!(table.properties(), &summary.properties);
            table.verify(&mut |_, _| {}).expect("whole");
            for (key, at) in &probes {
                let found = table.get(key, hash64(key), *at).expect("whole");
                prop_assert_eq!(found, get(&entries, key, *at));
            }
            let table = open(&bytes, reach).expect("whole");
            for (key, at) in &probes {
                prop_assert_eq!(get_in_steps(&table, key, *at), get(&entries, key, *at));
            }
            for mode in [ReadMode::Point, ReadMode::Sequential] {
                let mut cursor = table.cursor(mode);
                prop_assert!(!cursor.is_valid());
                for (key, at) in probes.iter().take(60) {
                    let target = (&key[..], Trailer::visible_at(*at));
                    let place = entries.partition_point(|e| compare((&e.0, e.1), target).is_lt());
                    // In one go, and in parts.
                    for parts in [&[][..], &Approach::ALL] {
                        let approach = |cursor: &mut TableCursor| {
                            parts.iter().for_each(|&part| cursor.approach(part, target.0, target.1));
                        };
                        approach(&mut cursor);
                        cursor.seek(target.0, target.1).expect("whole");
                        assert_at(&cursor, entries.get(place));
                        walk(&mut cursor, &entries, place, &steps);
                        approach(&mut cursor);
                        cursor.seek_before(target.0, target.1).expect("whole");
                        assert_at(&cursor, place.checked_sub(1).map(|place| &entries[place]));
                        walk(&mut cursor, &entries, place.wrapping_sub(1), &steps);
                        // What was approached and not sought leaves nothing behind.
                        approach(&mut cursor);
                        cursor.seek_to_last().expect("whole");
                        cursor.seek(b"", Trailer::NEWEST).expect("whole");
                        assert_at(&cursor, entries.first());
                    }
                }
            }
        }
    }

    #[test]
    fn walks_from_end_to_end(entries in entries(), options in any_options(), limit in key()) {
        let (bytes, _) = write(&entries, &options);
        for reach in REACHES {
            let table = open(&bytes, reach).expect("whole");
            for mode in [ReadMode::Point, ReadMode::Sequential] {
                let mut cursor = table.cursor(mode);
                cursor.seek_to_first().expect("whole");
                let (mut before, mut last_ones) = (0_usize, 0);
                for (at, entry) in entries.iter().enumerate() {
                    assert_at(&cursor, Some(entry));
                    let behind = &entries[at + 1..];
                    let seen = cursor.count_below(None);
                    prop_assert!(seen <= behind.len());
                    // It is what is left of the block.
                    prop_assert!(before == 0 || seen == before - 1);
                    last_ones += usize::from(seen == 0);
                    before = seen;
                    for limit in [&limit, &entry.0, &[&entry.0[..], &[0]].concat()] {
                        let below = behind.iter().take_while(|(key, ..)| key < limit).count();
                        prop_assert_eq!(cursor.count_below(Some(limit)), below.min(seen));
                    }
                    cursor.next().expect("whole");
                }
                assert_at(&cursor, None);
                prop_assert_eq!(last_ones, cursor.blocks());
                cursor.seek_to_last().expect("whole");
                for entry in entries.iter().rev() {
                    assert_at(&cursor, Some(entry));
                    cursor.prev().expect("whole");
                }
                assert_at(&cursor, None);
            }
        }
    }
}
