//! Limits: what is too large is refused before anything is done, and what is just small enough works.

use turbidite::{
    ErrorKind, KeyspaceOptions, MAX_KEY_LEN, MAX_VALUE_LEN, MIN_MEMORY_BUDGET, Result,
};

use crate::setup::{Setup, contents};

fn refused(result: Result<()>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn too_large_is_refused_before_any_io() {
    let key = vec![1; MAX_KEY_LEN + 1];
    let value = vec![0; MAX_VALUE_LEN + 1];
    for setup in Setup::all() {
        let (database, keyspace) = setup.start();
        keyspace.put("before", "x").unwrap();
        database.persist().unwrap();
        // Whatever was drawn, nothing is left to be compacted, which would read and write.
        database.settle().unwrap();
        let (io, last) = (database.stats().io, database.stats().last_seqno);
        refused(keyspace.put(&key, "v"));
        refused(keyspace.delete(&key));
        refused(keyspace.put("k", &value));
        for (key, value) in [(&key[..], &b"v"[..]), (b"k", &value)] {
            let mut batch = database.batch();
            batch.put(&keyspace, "first", "v").put(&keyspace, key, value).delete(&keyspace, "z");
            refused(batch.commit());
        }
        let mut batch = database.batch();
        batch.delete(&keyspace, &key);
        refused(batch.commit());
        assert_eq!((database.stats().io, database.stats().last_seqno), (io, last), "{setup}");
        assert_eq!(keyspace.get(&key).unwrap().as_deref(), None, "{setup}");
        assert_eq!(keyspace.count().unwrap(), 1, "{setup}");
        keyspace.put("after", "x").unwrap();
    }
}

#[test]
fn the_largest_key_and_a_value_beyond_the_memtables_work() {
    let (key, value) = (vec![0xff; MAX_KEY_LEN], vec![3; MIN_MEMORY_BUDGET + 5]);
    for setup in Setup::all() {
        let (database, keyspace) = setup.start();
        keyspace.put(&key, &value).unwrap();
        keyspace.put("small", "v").unwrap();
        assert!(keyspace.get(&key).unwrap().unwrap() == value, "{setup}");
        drop(keyspace);
        database.close().unwrap();
        let (database, keyspace) = setup.start();
        assert!(keyspace.get(&key).unwrap().unwrap() == value, "{setup}");
        keyspace.compact().unwrap();
        let expected = [(key.clone(), value.clone()), (b"small".to_vec(), b"v".to_vec())];
        assert!(contents(keyspace.iter()) == expected.into(), "{setup}");
        keyspace.delete(&key).unwrap();
        assert_eq!(keyspace.count().unwrap(), 1, "{setup}");
        database.settle().unwrap();
    }
}

#[test]
fn names_of_keyspaces_have_limits() {
    let setup = Setup::memory();
    let database = setup.open();
    let open = |name: &str| database.keyspace(name, KeyspaceOptions::lsm());
    for name in ["", &"x".repeat(256)] {
        refused(open(name).map(drop));
    }
    for name in ["../up", "a/b", "ü", "x\0", &"x".repeat(255)] {
        open(name).unwrap().put("k", name).unwrap();
    }
    let names: Vec<String> = database.keyspaces().into_iter().map(|info| info.name).collect();
    assert_eq!(names.len(), 5);
    assert!(names.is_sorted());
    assert_eq!(database.open_keyspace("nobody").unwrap_err().kind(), ErrorKind::UnknownKeyspace);
    database.close().unwrap();
    let database = setup.open();
    for name in names {
        let keyspace = database.open_keyspace(&name).unwrap();
        assert_eq!(
            (keyspace.name(), keyspace.get("k").unwrap().unwrap()),
            (&name[..], name[..].as_bytes().into())
        );
    }
}

#[test]
fn a_budget_too_small_is_refused_and_creates_nothing() {
    let setup = Setup::memory();
    let small = setup.builder().memory_budget(MIN_MEMORY_BUDGET - 1);
    refused(small.open().map(drop));
    assert_eq!(setup.fs.kind(&setup.path).unwrap(), None);
}
