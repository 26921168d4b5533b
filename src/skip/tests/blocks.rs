//! Blocks against a vector of records, and blocks of hostile bytes.

use proptest::prelude::*;

use super::{Entry, IDENTITY, UNIFORM, key};
use crate::base::key::{common_prefix_len, compare};
use crate::base::{Kind, Trailer, checksum};
use crate::skip::block::{Block, BlockBuilder, check};

const OFFSET: u64 = 12_345;

/// Records in order: many of few keys if they have trailers, else one of each.
fn records(has_trailers: bool) -> impl Strategy<Value = Vec<Entry>> {
    let value_len = prop_oneof![8 => Just(0_usize), 60 => 0..40_usize, 4 => 200..3000_usize, 1 => 60_000..90_000_usize];
    let record = (key(), 1_u64..9, any::<bool>(), value_len);
    proptest::collection::vec(record, 0..80).prop_map(move |drawn| {
        let entry = |(at, (key, seqno, is_put, len)): (usize, (Vec<u8>, u64, bool, usize))| {
            let kind = if is_put { Kind::Put } else { Kind::Delete };
            let trailer = if has_trailers { Trailer::new(seqno, kind) } else { UNIFORM };
            (key, trailer, vec![at as u8; len])
        };
        let mut records: Vec<Entry> = drawn.into_iter().enumerate().map(entry).collect();
        records.sort_by(|a, b| compare((&a.0, a.1), (&b.0, b.1)));
        records.dedup_by(|a, b| a.0 == b.0 && a.1.seqno() == b.1.seqno());
        records
    })
}

fn has_trailers_and_records() -> impl Strategy<Value = (bool, Vec<Entry>)> {
    any::<bool>().prop_flat_map(|has| (Just(has), records(has)))
}

fn step() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0_u32), Just(2), 2..=64_u32]
}

/// The bytes of a block of `records`, and what the builder said they would take at most.
fn build(records: &[Entry], step: u32, has_trailers: bool) -> (Vec<u8>, usize) {
    let mut builder = BlockBuilder::new(step, has_trailers);
    let mut most = 24;
    for (key, trailer, value) in records {
        most = builder.len_with(key, value.len());
        builder.push(key, *trailer, value);
    }
    let mut bytes = vec![7; 3];
    builder.finish(IDENTITY, OFFSET, 0, 0, &mut bytes);
    assert_eq!(builder.len(), 0);
    (bytes, most)
}

/// Gives the block the checksum that its bytes have.
fn seal(bytes: &mut [u8]) {
    if let Some((sum, covered)) = bytes.split_first_chunk_mut::<4>() {
        *sum = checksum::bound(IDENTITY, OFFSET, covered).to_le_bytes();
    }
}

/// What lies at `record` and next to it.
fn probes(record: &Entry) -> Vec<(Vec<u8>, Trailer)> {
    let (key, trailer, _) = record;
    let mut probes: Vec<_> = [*trailer, trailer.just_older(), Trailer::NEWEST, Trailer::OLDEST]
        .map(|trailer| (key.clone(), trailer))
        .into();
    probes.push(([&key[..], b"\0"].concat(), *trailer));
    if let Some((last, front)) = key.split_last() {
        probes.push((front.to_vec(), *trailer));
        probes.extend(last.checked_sub(1).map(|less| ([front, &[less]].concat(), *trailer)));
        probes.extend(last.checked_add(1).map(|more| ([front, &[more]].concat(), *trailer)));
    }
    probes
}

fn check_reads(bytes: &[u8], records: &[Entry]) {
    check(bytes, IDENTITY, OFFSET).unwrap();
    assert!(check(bytes, IDENTITY, OFFSET + 1).is_err());
    assert!(check(bytes, IDENTITY + 1, OFFSET).is_err());
    let block = Block::parse(bytes, UNIFORM).unwrap();
    block.check_whole().unwrap();
    assert_eq!(block.len(), records.len());
    if let (Some(first), Some(last)) = (records.first(), records.last()) {
        assert_eq!(block.prefix, &first.0[..common_prefix_len(&first.0, &last.0)]);
        assert_eq!(block.first(), Ok((first.0.clone(), first.1)));
    } else {
        assert!(block.first().is_err());
    }
    let mut walked = block.start();
    for (index, (key, trailer, value)) in records.iter().enumerate() {
        let place = block.place(index).unwrap();
        assert_eq!(place, walked);
        let record = block.record(place).unwrap();
        assert_eq!([block.prefix, record.suffix].concat(), *key);
        assert_eq!((record.trailer, block.bytes(record.value())), (*trailer, &value[..]));
        walked = record.next;
    }
    for behind in [records.len(), records.len() + 1, usize::MAX] {
        let place = block.place(behind).unwrap();
        assert!(block.is_end(place) && place == walked);
    }
    for (key, trailer) in records.iter().flat_map(probes).chain([(vec![], UNIFORM)]) {
        let expected = records
            .partition_point(|record| compare((&record.0, record.1), (&key, trailer)).is_lt());
        let place = block.lower_bound(&key, trailer).unwrap();
        assert_eq!(place, block.place(expected).unwrap(), "{key:?} {trailer:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn a_block_has_what_was_put_in((has_trailers, records) in has_trailers_and_records(), step in step()) {
        let (bytes, most) = build(&records, step, has_trailers);
        check_reads(&bytes, &records);
        // Behind 64 KiB, links are wide.
        if most <= usize::from(u16::MAX) {
            prop_assert!(bytes.len() <= most, "{} bytes where {most} were told", bytes.len());
        }
        // Nor with fewer records.
        for count in [1, records.len() / 2] {
            let (bytes, most) = build(&records[..count.min(records.len())], step, has_trailers);
            prop_assert!(bytes.len() <= most || most > usize::from(u16::MAX));
        }
    }

    #[test]
    fn zeros_fill_a_block_up(records in records(true), room in 0..4096_usize, most in 0..600_usize) {
        let (plain, _) = build(&records, 4, true);
        let mut builder = BlockBuilder::new(4, true);
        records.iter().for_each(|(key, trailer, value)| builder.push(key, *trailer, value));
        let mut bytes = Vec::new();
        builder.finish(IDENTITY, OFFSET, room, most, &mut bytes);
        let is_padded = room > plain.len() && room - plain.len() <= most;
        prop_assert_eq!(bytes.len(), if is_padded { room } else { plain.len() });
        check_reads(&bytes, &records);
    }
}

#[test]
fn wide_links_lead_far() {
    let values = [0, 70_000, 1, 200_000, 3, 0, 65_535];
    let records: Vec<Entry> = (0_u8..)
        .zip(values)
        .map(|(at, len)| (vec![b'k', at], Trailer::new(u64::from(at), Kind::Put), vec![at; len]))
        .collect();
    for step in [0, 2, 3, 64] {
        for has_trailers in [false, true] {
            let mut records = records.clone();
            if !has_trailers {
                records.iter_mut().for_each(|record| record.1 = UNIFORM);
            }
            check_reads(&build(&records, step, has_trailers).0, &records);
        }
    }
    // Long keys that share all but their ends are short in the block.
    let long = |at: u8| ([&[b'l'; 3000][..], &[at]].concat(), UNIFORM, Vec::new());
    let records: Vec<Entry> = (0..100).map(long).collect();
    let (bytes, most) = build(&records, 2, false);
    check_reads(&bytes, &records);
    assert!(bytes.len() <= most && most < 4000, "{} bytes where {most} were told", bytes.len());
}

/// Does all that can be done with a block: it may give any answer, but must end.
fn exercise(bytes: &[u8]) {
    let Ok(block) = Block::parse(bytes, UNIFORM) else { return };
    let _ = (block.check_whole(), block.first());
    let look = |place| {
        if let Ok(record) = block.record(place) {
            assert!(block.bytes(record.value()).len() <= bytes.len());
            let _ = block.record(record.next);
        }
    };
    for index in (0..20).chain([block.len() / 2, block.len().wrapping_sub(1), block.len()]) {
        block.place(index).into_iter().for_each(look);
    }
    for key in [&b""[..], b"a", b"key", b"key 3", b"key 7\0\0\0\0\0", b"\xff\xff\xff"] {
        for trailer in [Trailer::NEWEST, UNIFORM, Trailer::OLDEST] {
            block.lower_bound(key, trailer).into_iter().for_each(look);
        }
    }
}

#[test]
fn no_byte_makes_a_block_dangerous() {
    for (step, has_trailers) in [(0, false), (2, false), (2, true), (3, true), (64, true)] {
        let record = |at: u8| {
            let trailer = if has_trailers { Trailer::new(9, Kind::Put) } else { UNIFORM };
            (format!("key {at}").into_bytes(), trailer, vec![at; usize::from(at % 4)])
        };
        let records: Vec<Entry> = (0..10).map(record).collect();
        let (whole, _) = build(&records, step, has_trailers);
        for at in 4..whole.len() {
            for byte in (0..8).map(|bit| whole[at] ^ (1 << bit)).chain([0, 0x7f, 0x80, 0xff]) {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                assert!(byte == whole[at] || check(&bytes, IDENTITY, OFFSET).is_err());
                seal(&mut bytes);
                check(&bytes, IDENTITY, OFFSET).unwrap();
                exercise(&bytes);
            }
        }
        for len in 0..whole.len() {
            assert!(check(&whole[..len], IDENTITY, OFFSET).is_err());
            exercise(&whole[..len]);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_are_no_danger(
        prefix in 0..4_u16,
        flags in 0..4_u8,
        step in prop_oneof![0..4_u8, any::<u8>()],
        len in prop_oneof![0..12_u32, any::<u32>()],
        values in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        body in proptest::collection::vec(prop_oneof![0..9_u8, any::<u8>()], 0..150),
    ) {
        let total = 24 + body.len();
        let (a, b) = (values.0.index(total + 1), values.1.index(total + 1));
        let mut bytes = vec![0; 24];
        bytes.extend_from_slice(&body);
        bytes[4..8].copy_from_slice(&(total as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..16].copy_from_slice(&(a.min(b) as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&(a.max(b) as u32).to_le_bytes());
        bytes[20..22].copy_from_slice(&prefix.to_le_bytes());
        (bytes[22], bytes[23]) = (flags, step);
        exercise(&bytes);
    }
}
