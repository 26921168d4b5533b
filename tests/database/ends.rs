//! Ranges from both ends, and cursors, where a key has several values: in a skip keyspace that keeps all of them, wherever
//! its records lie.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use proptest::prelude::*;
use turbidite::{Cursor, Database, EngineKind, Keyspace, KeyspaceOptions, Range, Reducer};

use crate::setup::Setup;

type Key = Vec<u8>;
type Record = (Key, Vec<u8>);

/// Few of them, so that they have many values, and some that nothing is put under.
fn keys() -> impl Strategy<Value = Key> {
    proptest::collection::vec(b'a'..b'd', 0..3)
}

#[derive(Clone, Debug)]
enum Step {
    Put(Key, usize),
    Delete(Key),
    /// Each of the keys gets a value, in a run of their own.
    Load(Vec<Key>),
    /// What is in memory becomes a run, or the file if there is none.
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let loaded = proptest::collection::btree_set(keys(), 0..6);
    let step = prop_oneof![
        40 => (keys(), 0..300_usize).prop_map(|(key, len)| Step::Put(key, len)),
        3 => keys().prop_map(Step::Delete),
        2 => loaded.prop_map(|keys| Step::Load(keys.into_iter().collect())),
        2 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 0..150)
}

fn bounds() -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => keys().prop_map(Bound::Included),
        2 => keys().prop_map(Bound::Excluded),
    ]
}

/// A range, and from which end its records are taken in turn.
type Walk = ((Bound<Key>, Bound<Key>), Vec<bool>);

fn walks() -> impl Strategy<Value = Vec<Walk>> {
    let ends = proptest::collection::vec(any::<bool>(), 1..8);
    proptest::collection::vec(((bounds(), bounds()), ends), 1..8)
}

/// Where the records lie that are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Memory,
    /// With a file behind and a memtable in front.
    Runs,
    File,
}

/// A keyspace, and what was put there.
struct World {
    setup: Setup,
    open: Option<(Database, Keyspace)>,
    puts: BTreeMap<Key, Vec<Vec<u8>>>,
    count: usize,
}

impl World {
    fn new() -> Self {
        // Without the log, closing writes runs.
        let mut setup = Setup::memory().engine(EngineKind::Skip).logged(false);
        let options = KeyspaceOptions::skip().log(false).reducer(Reducer::KeepAll);
        setup.options = options.step_unit(2);
        Self { open: Some(setup.start()), setup, puts: BTreeMap::new(), count: 0 }
    }

    fn keyspace(&self) -> &Keyspace {
        &self.open.as_ref().expect("it is open").1
    }

    /// Makes a value that no other put has, and takes note of it.
    fn value(&mut self, key: &Key, len: usize) -> Vec<u8> {
        self.count += 1;
        let mut value = self.count.to_be_bytes().to_vec();
        value.resize(8 + len, b'v');
        self.puts.entry(key.clone()).or_default().push(value.clone());
        value
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Put(key, len) => {
                let value = self.value(key, *len);
                self.keyspace().put(key, value).unwrap();
            }
            Step::Delete(key) => {
                self.puts.remove(key);
                self.keyspace().delete(key).unwrap();
            }
            Step::Load(keys) => {
                let records: Vec<_> =
                    keys.iter().map(|key| (key.clone(), self.value(key, 20))).collect();
                self.keyspace().load_sorted(records).unwrap();
            }
            Step::Reopen => {
                let (database, keyspace) = self.open.take().expect("it is open");
                drop(keyspace);
                database.close().unwrap();
                self.open = Some(self.setup.start());
            }
        }
    }

    /// Takes those of the steps that leave records where they are to be.
    fn take_all(&mut self, steps: &[Step], place: Place) {
        for step in steps {
            if place == Place::Runs || matches!(step, Step::Put(..) | Step::Delete(_)) {
                self.take(step);
            }
        }
        if place == Place::File {
            self.keyspace().compact().unwrap();
        }
    }

    fn records(&self) -> Vec<Record> {
        let all = |(key, values): (&Key, &Vec<Vec<u8>>)| {
            values.iter().map(|value| (key.clone(), value.clone())).collect::<Vec<_>>()
        };
        self.puts.iter().flat_map(all).collect()
    }
}

/// Takes records from both ends until there are none, and compares each with what is left of `expected`.
fn walk(
    mut range: Range,
    mut expected: VecDeque<Record>,
    ends: &[bool],
) -> Result<(), TestCaseError> {
    for &from_back in ends.iter().cycle() {
        let (found, expected) = match from_back {
            false => (range.next(), expected.pop_front()),
            true => (range.next_back(), expected.pop_back()),
        };
        let found =
            found.map(|item| item.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec()));
        prop_assert_eq!(&found, &expected);
        if expected.is_none() {
            break;
        }
    }
    prop_assert!(range.next().is_none() && range.next_back().is_none(), "it has ended");
    Ok(())
}

/// Seeks `key` both ways, and goes from there to either end and back.
fn seek(cursor: &mut Cursor, records: &[Record], key: &Key) -> Result<(), TestCaseError> {
    let below = records.partition_point(|(other, _)| other < key);
    let passed = records.partition_point(|(other, _)| other <= key);
    cursor.seek(key).unwrap();
    for record in &records[below..] {
        prop_assert_eq!((cursor.key(), cursor.value()), (&record.0[..], &record.1[..]));
        cursor.next().unwrap();
    }
    prop_assert!(!cursor.is_valid());
    cursor.seek_for_prev(key).unwrap();
    for record in records[..passed].iter().rev() {
        prop_assert_eq!((cursor.key(), cursor.value()), (&record.0[..], &record.1[..]));
        cursor.prev().unwrap();
    }
    prop_assert!(!cursor.is_valid());
    // Across the place, from either side.
    cursor.seek(key).unwrap();
    cursor.prev().unwrap();
    let before = below.checked_sub(1).filter(|_| below < records.len()).map(|at| &records[at]);
    prop_assert_eq!(before.map(|record| &record.1[..]), cursor.is_valid().then(|| cursor.value()));
    cursor.seek_for_prev(key).unwrap();
    cursor.next().unwrap();
    let behind = records.get(passed).filter(|_| passed > 0);
    prop_assert_eq!(behind.map(|record| &record.1[..]), cursor.is_valid().then(|| cursor.value()));
    Ok(())
}

fn check(place: Place, steps: &[Step], walks: &[Walk]) -> Result<(), TestCaseError> {
    let mut world = World::new();
    world.take_all(steps, place);
    let records = world.records();
    let keyspace = world.keyspace();
    for ((lower, upper), ends) in walks {
        let range = (lower.as_ref(), upper.as_ref());
        let is_inside = |key: &Key| {
            let is_above = match lower {
                Bound::Unbounded => true,
                Bound::Included(lower) => key >= lower,
                Bound::Excluded(lower) => key > lower,
            };
            let is_below = match upper {
                Bound::Unbounded => true,
                Bound::Included(upper) => key <= upper,
                Bound::Excluded(upper) => key < upper,
            };
            is_above && is_below
        };
        let expected: VecDeque<_> =
            records.iter().filter(|(key, _)| is_inside(key)).cloned().collect();
        walk(keyspace.range::<Key>(range), expected.clone(), ends)?;
        walk(keyspace.range::<Key>(range), expected.clone(), &[false])?;
        walk(keyspace.range::<Key>(range), expected, &[true])?;
        if let Bound::Included(key) | Bound::Excluded(key) = lower {
            seek(&mut keyspace.cursor().unwrap(), &records, key)?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_value_is_met_once_in_memory(steps in steps(), walks in walks()) {
        check(Place::Memory, &steps, &walks)?;
    }

    #[test]
    fn each_value_is_met_once_in_runs(steps in steps(), walks in walks()) {
        check(Place::Runs, &steps, &walks)?;
    }

    #[test]
    fn each_value_is_met_once_in_a_file(steps in steps(), walks in walks()) {
        check(Place::File, &steps, &walks)?;
    }
}
