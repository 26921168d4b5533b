//! Typed keyspaces do what untyped ones do, against a map of the same types.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;
use turbidite::typed::{
    Buffer, Compressed, DecodeError, EncodeValue, TypedKeyspace, TypedRange, ValueCodec,
};
use turbidite::vfs::MemoryFs;
use turbidite::{
    Database, Durability, EngineKind, Error, ErrorKind, KeyspaceOptions, Reducer, Result, Slice,
};

use crate::setup::{ENGINES, NAME, Setup, is_ordered, options};

/// Of every kind that matters: text in front of other parts, one turned round, one that may be missing.
type Key = (String, Reverse<i16>, Option<u8>);
type Map = BTreeMap<Key, String>;

fn open(setup: &Setup) -> (Database, TypedKeyspace<Key, String>) {
    let db = setup.open();
    let keyspace = db.typed_keyspace(NAME, setup.options.clone()).unwrap();
    (db, keyspace)
}

fn collect(range: impl Iterator<Item = Result<(Key, String)>>) -> Vec<(Key, String)> {
    range.collect::<Result<_>>().unwrap()
}

fn keys() -> impl Strategy<Value = Key> {
    let text = prop::sample::select(vec!["", "\0", "a", "a\0", "a\u{1}", "ab", "\u{10ffff}"]);
    (text, -2..2_i16, prop::option::of(0..3_u8))
        .prop_map(|(text, number, some)| (text.into(), Reverse(number), some))
}

fn decode_error(result: Result<impl std::fmt::Debug>, parts: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    let text = error.to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// What is put comes back, in order, and ranges, prefixes and cursors find what they find in a map.
    #[test]
    fn like_a_map(
        records in prop::collection::vec((keys(), "[a-c]{0,70}"), 0..60),
        deleted in prop::collection::vec(keys(), 0..10),
        ends in (keys(), keys()),
        persist: bool,
    ) {
        for engine in ENGINES.into_iter().filter(|&engine| is_ordered(engine)) {
            let setup = Setup::memory().engine(engine);
            let (db, keyspace) = open(&setup);
            let mut map = Map::new();
            for (key, value) in &records {
                keyspace.put(key, value).unwrap();
                map.insert(key.clone(), value.clone());
            }
            if persist {
                keyspace.inner().persist().unwrap();
            }
            let (before, map_before) = (db.snapshot(), map.clone());
            for key in &deleted {
                keyspace.delete(key).unwrap();
                map.remove(key);
            }
            check(&keyspace, &map, &ends);
            if engine == EngineKind::Lsm {
                keyspace.delete_range(&ends.0..&ends.1).unwrap();
                map.retain(|key, _| !(&ends.0..&ends.1).contains(&key));
                check(&keyspace, &map, &ends);
                let mut batch = db.batch();
                batch.delete_prefix_typed(&keyspace, (&ends.0.0,));
                batch.delete_range_typed(&keyspace, &ends.1..);
                batch.commit().unwrap();
                map.retain(|key, _| key.0 != ends.0.0 && *key < ends.1);
                check(&keyspace, &map, &ends);
            }
            check_snapshot(&keyspace.at(&before), &map_before, &ends.0);
        }
    }
}

fn check(keyspace: &TypedKeyspace<Key, String>, map: &Map, (low, high): &(Key, Key)) {
    let records = |range: &mut dyn Iterator<Item = (&Key, &String)>| -> Vec<(Key, String)> {
        range.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    assert_eq!(collect(keyspace.iter()), records(&mut map.iter()));
    assert_eq!(collect(keyspace.iter().rev()), records(&mut map.iter().rev()));
    assert_eq!(keyspace.count().unwrap(), map.len() as u64);
    assert_eq!(keyspace.first().unwrap(), records(&mut map.iter().take(1)).pop());
    assert_eq!(keyspace.last().unwrap(), records(&mut map.iter().rev().take(1)).pop());
    if low < high {
        assert_eq!(collect(keyspace.range(low..high)), records(&mut map.range(low..high)));
        let bounds = (Bound::Excluded(low.clone()), Bound::Included(high.clone()));
        assert_eq!(collect(keyspace.range(bounds.clone())), records(&mut map.range(bounds)));
    }
    assert_eq!(collect(keyspace.range(low..).rev()), records(&mut map.range(low..).rev()));
    check_prefixes(keyspace, map, low);
    let values: Vec<_> = [low, high].iter().map(|key| map.get(*key).cloned()).collect();
    assert_eq!(keyspace.multi_get([low, high]).unwrap(), values);
    // Borrowed forms of the same.
    let (text, number, some) = high;
    assert_eq!(keyspace.get((text.as_str(), number, some.as_ref())).unwrap(), values[1]);
    assert_eq!(keyspace.contains(low).unwrap(), values[0].is_some());
    check_cursor(keyspace, map, low);
}

fn check_prefixes(keyspace: &TypedKeyspace<Key, String>, map: &Map, key: &Key) {
    let begins = |parts: usize| -> Vec<Key> {
        let same = |other: &&Key| other.0 == key.0 && (parts < 2 || other.1 == key.1);
        map.keys().filter(same).cloned().collect()
    };
    let keys = |range: TypedRange<Key, String>| -> Vec<Key> {
        collect(range).into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(keys(keyspace.prefix((&*key.0,))), begins(1));
    assert_eq!(keys(keyspace.prefix((&key.0, key.1))), begins(2));
}

fn check_cursor(keyspace: &TypedKeyspace<Key, String>, map: &Map, key: &Key) {
    let mut cursor = keyspace.cursor().unwrap();
    assert!(!cursor.is_valid() && cursor.record().unwrap().is_none());
    cursor.seek(key).unwrap();
    for (key, value) in map.range(key..) {
        assert_eq!(cursor.record().unwrap(), Some((key.clone(), value.clone())));
        cursor.next().unwrap();
    }
    assert!(!cursor.is_valid());
    cursor.seek_for_prev(key).unwrap();
    for (key, value) in map.range(..=key).rev() {
        assert_eq!((&cursor.key().unwrap(), &cursor.value().unwrap()), (key, value));
        cursor.prev().unwrap();
    }
    assert!(!cursor.is_valid());
}

fn check_snapshot(
    snapshot: &turbidite::typed::TypedSnapshot<'_, Key, String>,
    map: &Map,
    key: &Key,
) {
    let all: Vec<_> = map.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert_eq!(collect(snapshot.iter()), all);
    assert_eq!(snapshot.get(key).unwrap().as_ref(), map.get(key));
    assert_eq!(snapshot.contains(key).unwrap(), map.contains_key(key));
    assert_eq!(snapshot.multi_get([key]).unwrap(), [map.get(key).cloned()]);
    assert_eq!(snapshot.range(key..).count(), map.range(key..).count());
    let same = map.keys().filter(|other| other.0 == key.0).count();
    assert_eq!(snapshot.prefix((&key.0,)).count(), same);
    assert_eq!(snapshot.count().unwrap(), map.len() as u64);
    assert_eq!(snapshot.first().unwrap().as_ref(), all.first());
    assert_eq!(snapshot.last().unwrap().as_ref(), all.last());
}

#[test]
fn without_order() {
    let setup = Setup::memory().engine(turbidite::EngineKind::Hash);
    let db = setup.open();
    let keyspace = db.typed_keyspace::<i32, Slice>(NAME, setup.options.clone()).unwrap();
    for number in -5..5_i32 {
        keyspace.put(number, [number as u8; 100]).unwrap();
    }
    assert_eq!(keyspace.get(-5).unwrap().unwrap(), [251; 100]);
    let mut all: Vec<i32> = keyspace.iter().map(|item| item.unwrap().0).collect();
    all.sort_unstable();
    assert_eq!(all, (-5..5).collect::<Vec<_>>());
    assert_eq!(keyspace.first().unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(keyspace.range(0..2).next().unwrap().unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn positions_reducers_and_loads() {
    let db = Setup::memory().open();
    let options = KeyspaceOptions::skip().reducer(Reducer::Sum);
    let sums = db.typed_keyspace::<(u32, Reverse<u8>), i64>("sums", options).unwrap();
    let loaded = sums.load_sorted((0..100_u32).map(|n| ((n / 2, Reverse(1 - (n % 2) as u8)), -1)));
    assert_eq!(loaded.unwrap(), 100);
    sums.put((7, Reverse(1)), i64::MAX).unwrap();
    assert_eq!(sums.get((7, Reverse(1))).unwrap(), Some(i64::MAX - 1));
    assert_eq!(sums.nth(15).unwrap(), Some(((7, Reverse(0)), -1)));
    assert_eq!(sums.rank((7, Reverse(0))).unwrap(), 15);
    let now = db.snapshot();
    assert_eq!(sums.at(&now).nth(15).unwrap().unwrap().0, (7, Reverse(0)));
    assert_eq!(sums.at(&now).rank((7, Reverse(0))).unwrap(), 15);
    let unsorted = sums.load_sorted([((300, Reverse(0)), 1), ((200, Reverse(0)), 1)]);
    assert_eq!(unsorted.unwrap_err().kind(), ErrorKind::Invalid);

    let options = KeyspaceOptions::skip().reducer(Reducer::KeepAll);
    let all = db.typed_keyspace::<char, String>("all", options).unwrap();
    all.put('a', "one").unwrap();
    let before = db.snapshot();
    all.put_with('a', "two", Durability::Sync).unwrap();
    assert_eq!(all.get_all('a').unwrap(), ["one", "two"]);
    assert_eq!(all.at(&before).get_all('a').unwrap(), ["one"]);
    all.delete_with('a', Durability::Buffered).unwrap();
    assert!(all.get_all('a').unwrap().is_empty());
}

/// A value that can be told not to be encodable.
#[derive(Debug)]
struct Fussy(u8);

impl EncodeValue<Self> for Fussy {
    fn encode(&self, out: &mut Buffer) -> Result<()> {
        if self.0 == 13 {
            return Err(Error::Invalid("not this one".into()));
        }
        out.extend(&[self.0]);
        Ok(())
    }
}

impl ValueCodec for Fussy {
    fn name() -> String {
        "fussy".into()
    }
    fn decode(bytes: Slice) -> std::result::Result<Self, DecodeError> {
        <u8 as ValueCodec>::decode(bytes).map(Self)
    }
}

#[test]
fn what_cannot_be_encoded_is_not_written() {
    let db = Setup::memory().open();
    let fussy = db.typed_keyspace::<u8, Fussy>(NAME, KeyspaceOptions::skip()).unwrap();
    let refused = |result: Result<()>| {
        assert!(matches!(result, Err(Error::Invalid(what)) if what == "not this one"));
    };
    refused(fussy.put(1, Fussy(13)));
    refused(fussy.put_with(1, Fussy(13), Durability::Sync));
    refused(fussy.load_sorted([(1, Fussy(1)), (2, Fussy(13)), (3, Fussy(3))]).map(drop));
    let mut batch = db.batch();
    batch.put_typed(&fussy, 1, Fussy(1)).put_typed(&fussy, 2, Fussy(13)).put_typed(
        &fussy,
        3,
        Fussy(3),
    );
    refused(batch.commit());
    assert_eq!(fussy.count().unwrap(), 0);
}

#[test]
fn batches() {
    let db = Setup::memory().open();
    let lsm = db.typed_keyspace::<u8, String>("lsm", KeyspaceOptions::lsm()).unwrap();
    let hash = db
        .typed_keyspace::<(String, u8), Compressed<Vec<u8>>>("hash", KeyspaceOptions::hash())
        .unwrap();
    let mut batch = db.batch();
    batch.put_typed(&lsm, 1, "one").put_typed(&lsm, 2, "two").delete_typed(&lsm, 1);
    batch.put_typed(&hash, ("a", 1), Compressed(&[7; 1000][..])).put(hash.inner(), "raw", "raw");
    assert_eq!(batch.len(), 5);
    batch.commit().unwrap();
    assert_eq!(lsm.multi_get([1, 2]).unwrap(), [None, Some("two".into())]);
    assert_eq!(hash.get(("a", 1)).unwrap(), Some(Compressed(vec![7; 1000])));
    let snapshot = Setup::memory().open().snapshot();
    assert_eq!(lsm.at(&snapshot).get(2).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn bytes_of_another_type_are_an_error_and_no_more() {
    let db = Setup::memory().open();
    let typed = db.typed_keyspace::<u32, String>("users", KeyspaceOptions::lsm()).unwrap();
    typed.put(1, "one").unwrap();
    typed.inner().put([0, 0, 0, 2], [0xff]).unwrap();
    typed.inner().put([0, 0, 0, 3, 4], "five bytes").unwrap();
    typed.put(4, "four").unwrap();
    typed.inner().put([9; 100], "").unwrap();
    let value = ["\"users\"", r#"value of the key b"\x00\x00\x00\x02""#, "str", "not UTF-8"];
    decode_error(typed.get(2), &value);
    decode_error(typed.multi_get([1, 2]), &value);
    decode_error(typed.get_all(2), &value);
    decode_error(typed.at(&db.snapshot()).get(2), &value);
    decode_error(
        typed.last(),
        &[r#"the key b"\t\t\t"#, r#"..." cannot"#, "u32", "96 bytes follow it"],
    );
    // A range goes on behind them, from both ends.
    let kinds = |range: &mut dyn Iterator<Item = Result<(u32, String)>>| -> Vec<Option<u32>> {
        range.map(|item| item.ok().map(|(key, _)| key)).collect()
    };
    assert_eq!(kinds(&mut typed.iter()), [Some(1), None, None, Some(4), None]);
    assert_eq!(kinds(&mut typed.iter().rev()), [None, Some(4), None, None, Some(1)]);
    let mut cursor = typed.cursor().unwrap();
    cursor.seek(2).unwrap();
    assert_eq!(cursor.key().unwrap(), 2);
    decode_error(cursor.value(), &value);
    decode_error(cursor.record(), &value);
    cursor.next().unwrap();
    decode_error(cursor.key(), &["1 bytes follow it"]);
    cursor.next().unwrap();
    assert_eq!(cursor.record().unwrap(), Some((4, "four".into())));
    assert_eq!(typed.count().unwrap(), 5);
}

#[test]
fn types_are_kept() {
    for engine in ENGINES {
        let setup = Setup::on(Arc::new(MemoryFs::new())).engine(engine);
        let open = |name| setup.open().typed_keyspace::<u64, String>(name, options(engine));
        open(NAME).unwrap().put(1, "one").unwrap();
        let db = setup.open();
        let other = db.typed_keyspace::<u64, Vec<u8>>(NAME, setup.options.clone()).unwrap_err();
        assert_eq!(
            other.to_string(),
            "keyspace \"main\" has keys of type u64 and values of type str, and cannot be opened \
             with keys of type u64 and values of type bytes"
        );
        // Without types it can be opened all the same, and made a typed one again.
        let untyped = db.keyspace(NAME, setup.options.clone()).unwrap();
        assert_eq!(untyped.typed::<i64, String>().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(untyped.typed::<u64, String>().unwrap().get(1).unwrap().unwrap(), "one");
        // Types are the name of what is stored, whatever they are in the program.
        let bytes = db.typed_keyspace::<Vec<u8>, Slice>("bytes", setup.options.clone()).unwrap();
        bytes.put(b"key", "value".as_bytes()).unwrap();
        drop((db, untyped, bytes));
        let db = setup.builder().read_only(true).open().unwrap();
        let bytes = db.typed_keyspace::<Slice, Vec<u8>>("bytes", options(engine)).unwrap();
        assert_eq!(bytes.get(b"key").unwrap().unwrap(), b"value");
        assert!(db.typed_keyspace::<u64, Vec<u8>>(NAME, options(engine)).is_err());
        assert_eq!(
            format!("{:?}", db.open_keyspace(NAME).unwrap().typed::<u64, String>().unwrap()),
            "TypedKeyspace(\"main\", u64 -> str)"
        );
    }
}

#[test]
fn a_keyspace_without_types_gets_them_once() {
    let setup = Setup::memory();
    let db = setup.open();
    let untyped = db.keyspace(NAME, setup.options.clone()).unwrap();
    untyped.put([1], [2]).unwrap();
    // A view of it says nothing about it.
    assert_eq!(untyped.typed::<u8, u8>().unwrap().get(1).unwrap(), Some(2));
    assert_eq!(untyped.typed::<i8, bool>().unwrap().count().unwrap(), 1);
    let typed = db.typed_keyspace::<u8, u8>(NAME, setup.options.clone()).unwrap();
    assert_eq!(typed.clone().first().unwrap(), Some((1, 2)));
    assert!(untyped.typed::<i8, bool>().is_err());
    // What options change is not changed for the wrong types.
    let wrong = setup.options.clone().memtable(turbidite::MemtableKind::Vector);
    assert!(db.typed_keyspace::<u8, u16>(NAME, wrong).is_err());
    db.close().unwrap();
    let db = setup.open();
    assert!(db.open_keyspace(NAME).unwrap().typed::<i8, bool>().is_err());
    assert_eq!(typed.get(1).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(typed.inner().typed::<u8, u8>().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn names_have_a_limit() {
    struct Long;
    impl EncodeValue<Self> for Long {
        fn encode(&self, _: &mut Buffer) -> Result<()> {
            Ok(())
        }
    }
    impl ValueCodec for Long {
        fn name() -> String {
            "long".repeat(1025)
        }
        fn decode(_: Slice) -> std::result::Result<Self, DecodeError> {
            Ok(Self)
        }
    }
    let db = Setup::memory().open();
    let refused = db.typed_keyspace::<u8, Long>(NAME, KeyspaceOptions::lsm());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(db.keyspaces().is_empty());
    assert!(db.typed_keyspace::<u8, Option<u8>>(NAME, KeyspaceOptions::lsm()).is_ok());
}
