//! Memtables of all kinds, behind a database.

use std::collections::BTreeMap;

use turbidite::{Keyspace, KeyspaceOptions, MemtableKind};

use crate::setup::{NAME, Setup};

const KINDS: [MemtableKind; 6] = [
    MemtableKind::Tagged,
    MemtableKind::Skiplist,
    MemtableKind::Vector,
    MemtableKind::HashSkiplist { prefix: 4 },
    MemtableKind::HashLinklist { prefix: 4 },
    MemtableKind::HashLinklist { prefix: 100 },
];

fn with(kind: MemtableKind) -> KeyspaceOptions {
    KeyspaceOptions::lsm().memtable(kind)
}

fn stored(keyspace: &Keyspace) -> u64 {
    keyspace.stats().levels.iter().map(|level| level.entries).sum()
}

#[test]
fn a_flush_writes_of_each_key_what_somebody_sees() {
    const KEYS: u64 = 40;
    for kind in KINDS {
        let setup = Setup::memory();
        let database = setup.open();
        let keyspace = database.keyspace(NAME, with(kind)).unwrap();
        let round = |round: u32| {
            for key in 0..KEYS {
                keyspace.put(format!("{key:03}"), round.to_le_bytes()).unwrap();
            }
        };
        (0..20).for_each(round);
        keyspace.persist().unwrap();
        assert_eq!(stored(&keyspace), KEYS, "{kind}: one of 20 versions");
        (20..30).for_each(round);
        let snapshot = database.snapshot();
        (30..40).for_each(round);
        keyspace.persist().unwrap();
        assert_eq!(stored(&keyspace), 3 * KEYS, "{kind}: and two of 20 with a snapshot between");
        for key in (0..KEYS).map(|key| format!("{key:03}")) {
            assert_eq!(keyspace.get(&key).unwrap().unwrap(), 39u32.to_le_bytes(), "{kind}");
            let seen = snapshot.get(&keyspace, &key).unwrap().unwrap();
            assert_eq!(seen, 29u32.to_le_bytes(), "{kind}");
        }
    }
}

/// Writes go on in memtables of all kinds, which take turns: while the database is open, with what the log brings back, and
/// with memtables of another kind that wait for their flush.
#[test]
fn the_kind_may_change_with_each_opening() {
    let setup = Setup::memory();
    let mut model = BTreeMap::new();
    let mut number = 0u32;
    let mut put = |keyspace: &Keyspace, model: &mut BTreeMap<Vec<u8>, Vec<u8>>| {
        for _ in 0..400 {
            number += 1;
            let key = format!("k{:05}", number.wrapping_mul(0x9e37_79b9) % 3000).into_bytes();
            if number.is_multiple_of(5) {
                keyspace.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = [&number.to_le_bytes()[..], &[7; 200]].concat();
                keyspace.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
    };
    for (round, kind) in KINDS.into_iter().cycle().take(3 * KINDS.len()).enumerate() {
        let database = setup.open();
        let keyspace = database.keyspace(NAME, with(kind)).unwrap();
        put(&keyspace, &mut model);
        if round % 3 == 1 {
            keyspace.persist().unwrap();
            put(&keyspace, &mut model);
        }
        // Once more, of another kind from the next memtable on.
        let next = KINDS[(round + 2) % KINDS.len()];
        let keyspace = database.keyspace(NAME, with(next)).unwrap();
        put(&keyspace, &mut model);
        let all: Vec<_> = keyspace.iter().map(Result::unwrap).collect();
        let expected: Vec<_> = model.iter().collect();
        assert_eq!(all.len(), expected.len(), "{kind}, round {round}");
        assert!(all.iter().zip(&expected).all(|(a, b)| a.0 == *b.0 && a.1 == *b.1), "{kind}");
        for key in (0..3000).step_by(7).map(|key| format!("k{key:05}").into_bytes()) {
            let got = keyspace.get(&key).unwrap().map(|value| value.to_vec());
            assert_eq!(got.as_ref(), model.get(&key), "{kind}, round {round}");
        }
        if round % 2 == 0 {
            drop(keyspace);
            database.close().unwrap();
        }
    }
}
