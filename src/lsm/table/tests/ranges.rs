//! Tables with range tombstones: what they hide, what the table says of them, and what becomes of damage.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::ReadMode;
use super::super::footer::Part;
use super::super::properties::Properties;
use super::*;
use crate::base::hash::hash64;
use crate::base::ranges::sample;
use crate::base::{Fragments, RangeTombstone, Seqno, Span};
use crate::error::ErrorKind;
use crate::iter::EntryCursor;

fn fragments(tombstones: &[RangeTombstone]) -> Fragments {
    let all =
        |covering: &BTreeSet<Seqno>, kept: &mut Vec<Seqno>| kept.extend(covering.iter().rev());
    Fragments::of(tombstones, all)
}

fn write_with(entries: &[Entry], ranges: &Fragments) -> (Vec<u8>, TableSummary) {
    let (file, options) = (TestFile::empty(), options(120, 10));
    let mut builder = TableBuilder::new(file.clone(), IDENTITY, &options).expect("compiled in");
    for (key, trailer, value) in entries {
        builder.add(key, *trailer, value).expect("in order");
    }
    builder.set_ranges(ranges.clone());
    let summary = builder.finish().expect("written");
    (file.bytes(), summary)
}

/// Entries with even numbers, one for some keys, and what a reader finds of a key.
fn entries(seqnos: &[Seqno]) -> Vec<Entry> {
    let keys = sample::keys().into_iter().zip(seqnos);
    keys.filter(|(_, seqno)| **seqno > 0)
        .map(|(key, seqno)| entry(&key, *seqno, b"value"))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn tables_hide_what_their_range_tombstones_cover(
        tombstones in sample::tombstones(8),
        seqnos in proptest::collection::vec(0..12_u64, 85),
    ) {
        let (entries, ranges) = (entries(&seqnos), fragments(&tombstones));
        let (bytes, summary) = write_with(&entries, &ranges);
        prop_assert_eq!(bytes[bytes.len() - 12], if ranges.is_empty() { 2 } else { 3 });
        prop_assert_eq!(summary.properties.ranges, ranges.seqnos().len() as u64);
        for reach in REACHES {
            let table = open(&bytes, reach).expect("whole");
            prop_assert_eq!(table.properties(), &summary.properties);
            prop_assert_eq!(table.ranges().map(|own| &**own), (!ranges.is_empty()).then_some(&ranges));
            table.verify(&mut |_, _| {}).expect("whole");
            for key in sample::keys() {
                for at in [0, 3, 7, 12] {
                    let deleted = sample::newest(&tombstones, &key, at);
                    let put = entries.iter().find(|(own, ..)| *own == key).map(|(_, trailer, _)| *trailer);
                    let put = put.filter(|trailer| trailer.seqno() <= at && trailer.seqno() >= deleted);
                    let found = table.get(&key, hash64(&key), at).expect("whole").map(|(trailer, _)| trailer);
                    prop_assert_eq!(found, put.or((deleted > 0).then(|| Trailer::new(deleted, Kind::Delete))));
                    if deleted > 0 {
                        let Properties { smallest, largest, smallest_seqno, largest_seqno, .. } = table.properties();
                        prop_assert!(*smallest <= key && key <= *largest);
                        prop_assert!((*smallest_seqno..=*largest_seqno).contains(&deleted));
                    }
                }
            }
            let mut cursor = table.cursor(ReadMode::Point);
            cursor.seek_to_first().expect("whole");
            prop_assert_eq!(cursor.is_valid(), !entries.is_empty());
            cursor.seek_to_last().expect("whole");
            prop_assert_eq!(cursor.is_valid(), !entries.is_empty());
        }
    }
}

#[test]
fn every_flip_is_found_when_the_table_is_opened_or_verified() {
    let span = |start, end| Span { start, end };
    let tombstones = [
        RangeTombstone::new(span(b"b", Some(b"f")), 20),
        RangeTombstone::new(span(b"d", None), 21),
    ];
    for entries in [vec![], vec![entry(b"a", 3, b"value"), entry(b"e", 22, b"value")]] {
        let (whole, _) = write_with(&entries, &fragments(&tombstones));
        let ranges = open(&whole, REACHES[0]).expect("whole").parts.footer.range(Part::Ranges);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            for reach in REACHES {
                let opened = open(&bytes, reach);
                let is_found = match &opened {
                    Ok(table) => table.verify(&mut |_, _| {}).is_err(),
                    Err(_) => true,
                };
                assert!(is_found, "bit {bit}");
                if ranges.contains(&(bit as u64 / 8)) {
                    assert_eq!(opened.expect_err("it is read").kind(), ErrorKind::Corruption);
                }
            }
        }
    }
}

#[test]
fn properties_take_in_what_is_covered_and_nothing_else_fits() {
    let tombstone = RangeTombstone::new(Span { start: b"b", end: Some(b"f\0") }, 20);
    let ranges = fragments(&[tombstone]);
    let mut properties = Properties::default();
    properties.count(b"c", Trailer::new(9, Kind::Put), 1);
    properties.largest = b"c".to_vec();
    assert!(!properties.fits(&ranges) && properties.fits(&Fragments::default()));
    properties.cover(&ranges);
    assert_eq!((&properties.smallest[..], &properties.largest[..]), (&b"b"[..], &b"f"[..]));
    assert_eq!(
        (properties.smallest_seqno, properties.largest_seqno, properties.ranges),
        (9, 20, 1)
    );
    assert!(properties.fits(&ranges) && !properties.fits(&Fragments::default()));
    let wrong: [fn(&mut Properties); 5] = [
        |properties| properties.ranges = 2,
        |properties| properties.smallest = b"c".to_vec(),
        |properties| properties.largest = b"e".to_vec(),
        |properties| properties.largest_seqno = 19,
        |properties| (properties.smallest_seqno, properties.largest_seqno) = (21, 30),
    ];
    for change in wrong {
        let mut changed = properties.clone();
        change(&mut changed);
        assert!(!changed.fits(&ranges), "{changed:?}");
    }
}
