//! Reading: single keys, ranges from both ends, prefixes, cursors.

use std::collections::BTreeMap;
use std::ops::Bound;

use turbidite::{Cursor, Range, Slice};

use super::state::{everywhere, in_order, outcome, probes, varied};
use crate::setup::{assert_no_order, contents};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn own((key, value): (Slice, Slice)) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

fn forward(range: Range) -> Pairs {
    range.map(|item| own(item.unwrap())).collect()
}

fn backward(range: Range) -> Pairs {
    let mut pairs: Pairs = range.rev().map(|item| own(item.unwrap())).collect();
    pairs.reverse();
    pairs
}

#[test]
fn every_key_is_found_and_no_other() {
    let writes = varied();
    let expected = outcome(&writes);
    everywhere(&writes, |case| {
        let keyspace = &case.keyspace;
        let snapshot = case.database.snapshot();
        let mut keys: Vec<&[u8]> = writes.iter().map(|(key, _)| &key[..]).collect();
        let probes = probes();
        keys.extend(probes.iter().map(|key| &key[..]));
        let found = keyspace.multi_get(&keys).unwrap();
        let seen = snapshot.multi_get(keyspace, &keys).unwrap();
        for ((key, found), seen) in keys.iter().zip(found).zip(seen) {
            let expected = expected.get(*key).map(|value| &value[..]);
            assert_eq!(found.as_deref(), expected, "{case}: {key:?}");
            assert_eq!(seen.as_deref(), expected, "{case}: {key:?}");
            assert_eq!(keyspace.get(key).unwrap().as_deref(), expected, "{case}: {key:?}");
            assert_eq!(keyspace.contains(key).unwrap(), expected.is_some(), "{case}: {key:?}");
            assert_eq!(snapshot.get(keyspace, key).unwrap().as_deref(), expected);
            assert_eq!(snapshot.contains(keyspace, key).unwrap(), expected.is_some());
        }
        assert_eq!(keyspace.multi_get([[0_u8; 0]; 0]).unwrap().len(), 0);
        assert_eq!(keyspace.count().unwrap(), expected.len() as u64, "{case}");
        assert_eq!(snapshot.count(keyspace).unwrap(), expected.len() as u64, "{case}");
    });
}

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// All pairs of bounds over the probes, the senseless ones included.
fn bounds(probes: &[Vec<u8>]) -> Vec<Bounds> {
    let mut ends = vec![Bound::Unbounded];
    for probe in probes {
        ends.push(Bound::Included(probe.clone()));
        ends.push(Bound::Excluded(probe.clone()));
    }
    ends.iter().flat_map(|a| ends.iter().map(move |b| (a.clone(), b.clone()))).collect()
}

fn within(map: &Map, bounds: &Bounds) -> Pairs {
    use std::ops::RangeBounds;
    let inside = |(key, _): &(&Vec<u8>, &Vec<u8>)| bounds.contains(*key);
    map.iter().filter(inside).map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[test]
fn ranges_keep_their_bounds_from_both_ends() {
    let writes = varied();
    let map = outcome(&writes);
    let cases: Vec<_> =
        bounds(&probes()).into_iter().map(|bounds| (within(&map, &bounds), bounds)).collect();
    in_order(&writes, |case| {
        let keyspace = &case.keyspace;
        let snapshot = case.database.snapshot();
        let all = within(&map, &(Bound::Unbounded, Bound::Unbounded));
        assert_eq!(forward(keyspace.iter()), all, "{case}");
        assert_eq!(backward(snapshot.iter(keyspace)), all, "{case}");
        for (expected, bounds) in &cases {
            assert_eq!(&forward(keyspace.range(bounds.clone())), expected, "{case}: {bounds:?}");
            let seen = backward(snapshot.range(keyspace, bounds.clone()));
            assert_eq!(&seen, expected, "{case}: {bounds:?}");
        }
    });
}

#[test]
fn prefixes_end_where_they_should() {
    let writes = varied();
    let map = outcome(&writes);
    in_order(&writes, |case| {
        let keyspace = &case.keyspace;
        let snapshot = case.database.snapshot();
        for prefix in [&b""[..], b"a", b"a\xff", b"key0", b"key0001", b"\xff", b"\xff\xff", b"zz"] {
            let expected: Pairs = map
                .iter()
                .filter(|(key, _)| key.starts_with(prefix))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            assert_eq!(forward(keyspace.prefix(prefix)), expected, "{case}: {prefix:?}");
            assert_eq!(backward(keyspace.prefix(prefix)), expected, "{case}: {prefix:?}");
            assert_eq!(forward(snapshot.prefix(keyspace, prefix)), expected, "{case}: {prefix:?}");
        }
    });
}

#[test]
fn the_two_ends_of_a_range_meet_once() {
    let writes = varied();
    let map = outcome(&writes);
    in_order(&writes, |case| {
        // A bit of the pattern says which end is taken next.
        for pattern in [0b1_u32, 0b10, 0b110, 0b11_1000, 0b1011_0010, 0b1000_0000] {
            for bounds in [(&b"key001"[..], &b"key0013"[..]), (b"", b"\xff\xff\xff\xff")] {
                let expected: Pairs = map
                    .range(bounds.0.to_vec()..bounds.1.to_vec())
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                let mut range = case.keyspace.range(bounds.0..bounds.1);
                let (mut front, mut back) = (Vec::new(), Vec::new());
                for step in 0.. {
                    let at_front = pattern >> (step % 8) & 1 == 1;
                    let item = if at_front { range.next() } else { range.next_back() };
                    let Some(item) = item else { break };
                    let list = if at_front { &mut front } else { &mut back };
                    list.push(own(item.unwrap()));
                }
                assert!(range.next().is_none() && range.next_back().is_none(), "{case}");
                front.extend(back.into_iter().rev());
                assert_eq!(front, expected, "{case}: {pattern:b}");
            }
        }
    });
}

/// What a cursor stands on.
fn place(cursor: &Cursor) -> Option<(Vec<u8>, Vec<u8>)> {
    cursor.is_valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec()))
}

#[test]
fn cursors_seek_and_turn() {
    let writes = varied();
    let map = outcome(&writes);
    let list: Pairs = map.clone().into_iter().collect();
    in_order(&writes, |case| {
        let snapshot = case.database.snapshot();
        let both = [case.keyspace.cursor().unwrap(), snapshot.cursor(&case.keyspace).unwrap()];
        for mut cursor in both {
            assert_eq!(place(&cursor), None, "{case}: a new cursor is outside");
            for probe in probes() {
                let above = list.partition_point(|(key, _)| *key < probe);
                let upto = list.partition_point(|(key, _)| *key <= probe);
                cursor.seek(&probe).unwrap();
                assert_eq!(place(&cursor), list.get(above).cloned(), "{case}: {probe:?}");
                cursor.prev().unwrap();
                let before = (above < list.len()).then(|| above.checked_sub(1)).flatten();
                assert_eq!(place(&cursor), before.map(|at| list[at].clone()), "{case}: {probe:?}");
                cursor.seek_for_prev(&probe).unwrap();
                let at_or_below = upto.checked_sub(1).map(|at| list[at].clone());
                assert_eq!(place(&cursor), at_or_below, "{case}: {probe:?}");
                cursor.next().unwrap();
                let after = upto.checked_sub(1).and_then(|at| list.get(at + 1).cloned());
                assert_eq!(place(&cursor), after, "{case}: {probe:?}");
            }
            walk(&mut cursor, &list, &case.to_string());
        }
    });
}

/// Walks in steps of changing length and direction over the whole keyspace.
fn walk(cursor: &mut Cursor, list: &Pairs, case: &str) {
    cursor.seek_to_first().unwrap();
    let mut at = 0;
    for stretch in 0.. {
        let (ahead, back) = (3 + stretch % 11, 1 + stretch % 5);
        for _ in 0..ahead {
            cursor.next().unwrap();
            at += 1;
            if at == list.len() {
                assert!(!cursor.is_valid(), "{case}: past the last key");
                cursor.prev().unwrap();
                assert!(!cursor.is_valid(), "{case}: a step from outside stays there");
                cursor.seek_to_last().unwrap();
                assert_eq!(place(cursor), list.last().cloned(), "{case}");
                return;
            }
            assert_eq!(place(cursor).as_ref(), Some(&list[at]), "{case}");
        }
        for _ in 0..back {
            cursor.prev().unwrap();
            at -= 1;
            assert_eq!(place(cursor).as_ref(), Some(&list[at]), "{case}");
        }
    }
}

#[test]
fn an_empty_keyspace_is_empty_to_every_reader() {
    everywhere(&[], |case| {
        let keyspace = &case.keyspace;
        assert_eq!(keyspace.get("").unwrap(), None::<Slice>);
        assert_eq!(keyspace.count().unwrap(), 0);
        assert!(keyspace.iter().next().is_none() && keyspace.prefix("").next().is_none());
    });
    in_order(&[], |case| {
        let keyspace = &case.keyspace;
        assert!(keyspace.iter().next_back().is_none() && keyspace.prefix("").next_back().is_none());
        let mut cursor = keyspace.cursor().unwrap();
        for go in [Cursor::seek_to_first, Cursor::seek_to_last, Cursor::next, Cursor::prev] {
            go(&mut cursor).unwrap();
            assert!(!cursor.is_valid(), "{case}");
        }
        cursor.seek_for_prev("x").unwrap();
        assert!(!cursor.is_valid(), "{case}");
    });
}

#[test]
fn everything_is_given_once_in_any_order() {
    let writes = varied();
    let map = outcome(&writes);
    everywhere(&writes, |case| {
        let (keyspace, snapshot) = (&case.keyspace, case.database.snapshot());
        for range in [
            keyspace.iter(),
            keyspace.prefix(""),
            keyspace.range::<&[u8]>(..),
            snapshot.iter(keyspace),
            snapshot.prefix(keyspace, ""),
        ] {
            assert!(contents(range) == map, "{case}");
        }
        if !case.is_ordered() {
            assert_no_order(keyspace);
            assert!(
                snapshot.cursor(keyspace).is_err()
                    && snapshot.iter(keyspace).next_back().unwrap().is_err()
            );
        }
    });
}
