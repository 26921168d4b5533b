//! Bringing data into every place in which an engine may hold it.

use std::collections::BTreeMap;
use std::fmt;

use turbidite::{Database, Keyspace};

use crate::setup::Setup;

/// A write: the key, and its value or a deletion.
pub(super) type Write = (Vec<u8>, Option<Vec<u8>>);

/// Where the data is when it is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// In memory, as written.
    Memory,
    /// In files, as they were first written: the tables of level 0.
    Flushed,
    /// In files as small as can be: on the deepest level.
    Compacted,
    /// The first third compacted, the second one flushed, the last one in memory.
    Spread,
    /// Closed and opened again.
    Reopened,
}

impl Place {
    const ALL: [Self; 5] =
        [Self::Memory, Self::Flushed, Self::Compacted, Self::Spread, Self::Reopened];
}

/// A database that holds what was asked for.
pub(super) struct Case {
    setup: Setup,
    place: Place,
    pub(super) database: Database,
    pub(super) keyspace: Keyspace,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.setup, self.place)
    }
}

impl Case {
    pub(super) fn is_ordered(&self) -> bool {
        self.setup.is_ordered()
    }
}

/// Runs `check` with `writes` in every place of every kind of database.
pub(super) fn everywhere(writes: &[Write], check: impl Fn(&Case)) {
    bring_to(Setup::all, writes, check);
}

/// The same, where keyspaces have an order.
pub(super) fn in_order(writes: &[Write], check: impl Fn(&Case)) {
    bring_to(Setup::ordered, writes, check);
}

fn bring_to(setups: impl Fn() -> Vec<Setup>, writes: &[Write], check: impl Fn(&Case)) {
    for place in Place::ALL {
        for setup in setups() {
            let case = bring(setup, place, writes);
            println!("{case}");
            check(&case);
            assert!(case.database.verify().unwrap().problems.is_empty(), "{case}");
            case.database.close().unwrap();
        }
    }
}

fn bring(setup: Setup, place: Place, writes: &[Write]) -> Case {
    let (database, keyspace) = setup.start();
    let third = writes.len() / 3;
    for (index, (key, value)) in writes.iter().enumerate() {
        match value {
            Some(value) => keyspace.put(key, value).unwrap(),
            None => keyspace.delete(key).unwrap(),
        }
        if matches!(place, Place::Spread) {
            if index == third {
                keyspace.compact().unwrap();
            } else if index == 2 * third {
                keyspace.persist().unwrap();
            }
        }
    }
    match place {
        Place::Memory | Place::Spread => {}
        Place::Flushed => keyspace.persist().unwrap(),
        Place::Compacted => keyspace.compact().unwrap(),
        Place::Reopened => {
            drop(keyspace);
            database.close().unwrap();
            let (database, keyspace) = setup.start();
            return Case { setup, place, database, keyspace };
        }
    }
    Case { setup, place, database, keyspace }
}

/// What is there after the writes.
pub(super) fn outcome(writes: &[Write]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut map = BTreeMap::new();
    for (key, value) in writes {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
    map
}

/// Writes that leave keys of many kinds: empty, binary, long, overwritten, deleted, deleted and there
/// again; enough for several blocks.
pub(super) fn varied() -> Vec<Write> {
    let put = |key: &[u8], value: &[u8]| (key.to_vec(), Some(value.to_vec()));
    let mut writes = vec![
        put(b"", b"the empty key"),
        put(b"empty value", b""),
        put(b"\0", b"zero"),
        put(b"a", b"1"),
        put(b"a\0", b"2"),
        put(b"a\xff", b"3"),
        put(b"a\xff\xff", b"4"),
        put(b"a\xff\xffz", b"5"),
        put(b"b", b"6"),
        put(b"\xff", b"7"),
        put(b"\xff\xff", b"8"),
        put(b"\xff\xff\xff\x01", b"9"),
        put(&vec![b'L'; turbidite::MAX_KEY_LEN], b"a key as long as can be"),
        put(b"large", &vec![7; 200_000]),
    ];
    for number in 0..300_u32 {
        writes.push(put(format!("key{number:05}").as_bytes(), &[number as u8; 90]));
    }
    for number in (0..300_u32).step_by(7) {
        writes.push(put(format!("key{number:05}").as_bytes(), b"overwritten"));
        writes.push((format!("key{:05}", number + 1).into_bytes(), None));
    }
    writes.push((b"never there".to_vec(), None));
    writes.push((b"a\xff".to_vec(), None));
    writes.push(put(b"a\xff", b"there again"));
    writes.push((b"b".to_vec(), None));
    writes
}

/// Keys to look for: those of [`varied`] that are special, and some that are not there.
pub(super) fn probes() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = [
        &b""[..],
        b"a",
        b"a\xff",
        b"b",
        b"key00000",
        b"key00001",
        b"key0014",
        b"key00150",
        b"key00299x",
        b"\xff\xff",
        b"\xff\xff\xff\xff",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    keys.push(vec![b'L'; turbidite::MAX_KEY_LEN - 1]);
    keys
}
