//! What memtables hold, against a sorted map.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

use super::*;

with_every_kind! {
    random_histories,
    keys_that_differ_late,
    prefixes_and_keys_between_them,
    a_hot_key,
    ascending_and_descending_keys,
    empty_keys,
    nothing,
}

fn run<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value)) {
    let cases = if cfg!(miri) { 3 } else { cases };
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let test = |value| {
        test(value);
        Ok(())
    };
    runner.run(&strategy, test).unwrap_or_else(|error| panic!("{error}"));
}

/// Puts with looks in between, by cursors that stay and by new ones; then all that a snapshot at each number sees.
fn random_histories(kind: MemtableKind) {
    let keys = prop::collection::vec("[abc]{0,6}", 1..150);
    let looks = prop::collection::vec(any::<Index>(), 0..4);
    run(40, ("[ab]{0,3}", keys, any::<bool>(), looks), |(prefix, keys, ascending, looks)| {
        let mut checked = Checked::new(kind);
        let mut keys: Vec<_> = keys.iter().map(|key| format!("{prefix}{key}")).collect();
        if ascending {
            keys.sort();
        }
        let looks: Vec<_> = looks.iter().map(|look| look.index(keys.len())).collect();
        let mut cursor = checked.table.cursor();
        for (i, key) in keys.iter().enumerate() {
            checked.put(key.as_bytes());
            checked.check_get(key.as_bytes(), checked.last);
            if looks.contains(&i) {
                checked.check_order(&mut cursor, keys[i / 2].as_bytes(), i as u64 / 2);
            }
        }
        checked.check_order(&mut cursor, keys[0].as_bytes(), checked.last);
        checked.check_order(&mut checked.table.cursor(), b"b", 0);
        for at in 0..=checked.last {
            keys.iter().for_each(|key| checked.check_get(key.as_bytes(), at));
            checked.check_get(b"c", at);
        }
    });
}

fn keys_that_differ_late(kind: MemtableKind) {
    let parts = prop::collection::vec((0usize..40, 0usize..3, 0u8..3), 1..200);
    run(25, (parts, 1usize..4), |(parts, rounds)| {
        let mut checked = Checked::new(kind);
        for part in parts.chunks(parts.len().div_ceil(rounds)) {
            for &(same, zeros, last) in part {
                let mut key = vec![b'k'; same];
                key.resize(same + zeros, 0);
                key.extend((last > 0).then_some(last));
                checked.put(&key);
            }
            let (cursor, at) = (&mut checked.table.cursor(), checked.last);
            checked.check_order(cursor, b"kkkkkkkkkkkk", at);
            checked.check_order(cursor, b"k", at / 2);
        }
    });
}

/// Cursors placed at, before and behind each key of many prefixes, some of them of many keys, are where they must be.
fn prefixes_and_keys_between_them(kind: MemtableKind) {
    let mut checked = Checked::new(kind);
    let mut rng = crate::base::rng::Rng::new(3);
    let count = if cfg!(miri) { 60 } else { 600 };
    for _ in 0..count {
        let group = rng.next() % 8;
        let keys = if group < 2 { 200 } else { 3 };
        checked.put(format!("p{group}/{}", rng.next() % keys).as_bytes());
    }
    checked.put(b"p");
    checked.put(b"p2");
    let expected = checked.expected();
    let mut cursor = checked.table.cursor();
    for (at, (key, seqno, _)) in expected.iter().enumerate() {
        let trailer = Trailer::new(*seqno, Kind::Put);
        for (way, steps) in [(1, 12), (-1, 12)] {
            cursor.seek(key, trailer).unwrap();
            check_walk(&mut cursor, &expected, Some(at), way, steps);
            cursor.seek_before(key, trailer).unwrap();
            check_walk(&mut cursor, &expected, at.checked_sub(1), way, steps);
        }
        cursor.seek(key, Trailer::OLDEST).unwrap();
        let behind = expected.partition_point(|entry| entry.0 <= *key);
        check_walk(&mut cursor, &expected, Some(behind), 1, 3);
    }
    for key in [&b"p1"[..], b"p1/", b"p1/9999", b"p9", b"o", b"q", b""] {
        checked.check_order(&mut cursor, key, checked.last);
    }
}

/// Thousands of versions of one key, among others.
fn a_hot_key(kind: MemtableKind) {
    let versions = if cfg!(miri) { 100 } else { 100_000u64 };
    let mut checked = Checked::new(kind);
    for number in 1..=versions {
        checked.put(b"hot");
        if number.is_multiple_of(10) {
            checked.put(&number.to_be_bytes());
        }
    }
    for at in (0..=checked.last).step_by(if cfg!(miri) { 1 } else { 97 }) {
        checked.check_get(b"hot", at);
        checked.check_get(b"hos", at);
    }
    let mut cursor = checked.table.cursor();
    let mut seen = 0u64;
    cursor.seek(b"hot", Trailer::visible_at(checked.last / 2)).unwrap();
    while cursor.is_valid() && cursor.key() == b"hot" {
        seen += 1;
        cursor.next().unwrap();
    }
    assert!(seen.abs_diff(versions / 2) < 2, "{seen}");
    assert_eq!(all(&mut cursor), checked.expected());
}

fn ascending_and_descending_keys(kind: MemtableKind) {
    let count = if cfg!(miri) { 100 } else { 3_000u64 };
    for descending in [false, true] {
        let mut checked = Checked::new(kind);
        let key = |number: u64| format!("{:010}", if descending { count - number } else { number });
        for number in 0..count {
            checked.put(key(number).as_bytes());
            if number % (count / 10) == 1 {
                checked.check_order(
                    &mut checked.table.cursor(),
                    key(number / 2).as_bytes(),
                    number,
                );
            }
        }
        checked.check_order(&mut checked.table.cursor(), key(count / 3).as_bytes(), 0);
        (0..count).for_each(|number| checked.check_get(key(number).as_bytes(), number + 1));
        (0..count).for_each(|number| checked.check_get(key(number).as_bytes(), number));
    }
}

fn empty_keys(kind: MemtableKind) {
    let mut checked = Checked::new(kind);
    for key in [&b""[..], &[0], &[0, 0, 0, 0], b"", &[255; 9], b"", &[0]] {
        checked.put(key);
        checked.check_order(&mut checked.table.cursor(), b"", checked.last);
        checked.check_order(&mut checked.table.cursor(), &[0], checked.last);
        checked.check_order(&mut checked.table.cursor(), &[255; 10], 0);
    }
    (0..=checked.last).for_each(|at| checked.check_get(b"", at));
}

fn nothing(kind: MemtableKind) {
    let checked = Checked::new(kind);
    checked.check_get(b"key", 7);
    checked.table.prefetch(b"key");
    assert!(checked.table.is_empty() && checked.table.oldest().is_none());
    checked.check_order(&mut checked.table.cursor(), b"key", 7);
    assert!(checked.table.is_empty());
}
