//! What a read needs, and what it leaves alone.

use std::sync::Arc;

use super::merges::{open, spill};
use crate::options::MIN_MEMORY_BUDGET;
use crate::vfs::MemoryFs;
use crate::{Database, ErrorKind, Keyspace, KeyspaceOptions, Reducer, Result, Slice};

type Record = (Slice, Slice);

/// A keyspace whose function is not there, with a key that cannot be read without it between others that can.
fn without_its_function() -> (Database, Keyspace) {
    let fs = MemoryFs::new();
    let options = KeyspaceOptions::skip().reducer(Reducer::Custom("largest".into()));
    let db = open(&(Arc::new(fs.clone()) as Arc<_>));
    db.keyspace("main", options.clone()).unwrap();
    db.close().unwrap();
    let builder = Database::builder("/db").file_system(Arc::new(fs));
    let db = builder.memory_budget(MIN_MEMORY_BUDGET).open().unwrap();
    let keyspace = db.keyspace("main", options).unwrap();
    for (key, value) in [("a", "1"), ("a0", "1"), ("b", "1"), ("b", "2"), ("c", "3")] {
        keyspace.put(key, value).unwrap();
    }
    keyspace.delete("a0").unwrap();
    (db, keyspace)
}

fn is_unsupported<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported)
}

/// The only record there is; nothing comes behind it, and no error.
fn only(items: impl Iterator<Item = Result<Record>>) -> (String, String) {
    let text = |slice: Slice| String::from_utf8(slice.to_vec()).unwrap();
    let items: Vec<_> =
        items.map(|item| item.map(|(key, value)| (text(key), text(value)))).collect();
    assert_eq!(items.len(), 1, "{items:?}");
    items.into_iter().next().unwrap().unwrap()
}

#[test]
fn the_value_of_a_key_is_no_matter_of_its_neighbours() {
    let (db, keyspace) = without_its_function();
    for is_spilled in [false, true] {
        if is_spilled {
            spill(&keyspace).unwrap();
        }
        let snapshot = db.snapshot();
        for (key, value) in [("a", Some("1")), ("a0", None), ("bb", None), ("c", Some("3"))] {
            let value = value.map(str::as_bytes);
            assert_eq!(keyspace.get(key).unwrap().as_deref(), value, "{key}");
            assert_eq!(snapshot.get(&keyspace, key).unwrap().as_deref(), value, "{key}");
            assert_eq!(keyspace.contains(key).unwrap(), value.is_some(), "{key}");
            let all = keyspace.get_all(key).unwrap();
            assert_eq!(
                all.iter().map(|value| &value[..]).collect::<Vec<_>>(),
                Vec::from_iter(value)
            );
        }
        assert!(is_unsupported(&keyspace.get("b")));
        assert_eq!(keyspace.multi_get(["a", "a0", "c"]).unwrap().len(), 3);
        let (a, c) = (("a".into(), "1".into()), ("c".into(), "3".into()));
        let nth = |position| keyspace.nth(position).map(|found| found.unwrap());
        assert_eq!((only([nth(0)].into_iter()), only([nth(2)].into_iter())), (a, c));
        assert!(is_unsupported(&nth(1)));
    }
}

#[test]
fn a_range_does_not_read_beyond_its_ends() {
    let (_db, keyspace) = without_its_function();
    let (a, c): ((String, String), _) = (("a".into(), "1".into()), ("c".into(), "3".into()));
    assert_eq!(only(keyspace.range("a"..="a")), a);
    assert_eq!(only(keyspace.range("a".."b")), a);
    assert_eq!(only(keyspace.range("c"..="c").rev()), c);
    assert_eq!(only(keyspace.prefix("a")), a);
    assert_eq!(only(keyspace.prefix("c").rev()), c);
    // Where the ends meet, neither goes on.
    let mut range = keyspace.range("a"..="a");
    assert!(range.next().unwrap().is_ok() && range.next_back().is_none());
    // What is in the way is an error, and the end.
    for backward in [false, true] {
        let mut range = keyspace.iter();
        let mut next = || if backward { range.next_back() } else { range.next() };
        assert!(next().unwrap().is_ok() && is_unsupported(&next().unwrap()) && next().is_none());
    }
    // Who asks for keys alone needs no function.
    let keys = |keys: &mut dyn Iterator<Item = Result<Slice>>| {
        keys.map(|key| key.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(
        keys(&mut keyspace.iter().keys()),
        ["a", "b", "c"].map(|key| Slice::from(key.as_bytes()))
    );
    assert_eq!(keys(&mut keyspace.iter().keys().rev()).len(), 3);
    assert_eq!(keyspace.count().unwrap(), 3);
    let mut cursor = keyspace.cursor().unwrap();
    cursor.seek("a").unwrap();
    assert_eq!(cursor.value(), b"1");
    assert!(is_unsupported(&cursor.next()));
}
