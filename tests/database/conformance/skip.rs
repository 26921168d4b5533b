//! What is particular to skip keyspaces: what they are made of, reducers, positions and figures; and what other
//! engines answer to the same questions.

use std::collections::BTreeMap;
use std::sync::Arc;

use turbidite::vfs::MemoryFs;
use turbidite::{
    Database, EngineKind, ErrorKind, Keyspace, KeyspaceOptions, Layer, Reducer, Result, SkipStats,
    Snapshot,
};

use crate::history::Dice;
use crate::setup::{ENGINES, NAME, Setup, is_ordered, options};

/// The function that tests register: the largest value.
const LARGEST: &str = "largest";

fn largest(_: &[u8], values: &[&[u8]]) -> Vec<u8> {
    values.iter().max().map_or(Vec::new(), |value| value.to_vec())
}

fn custom() -> Reducer {
    Reducer::Custom(LARGEST.into())
}

fn reducers() -> [Reducer; 6] {
    [Reducer::Last, Reducer::First, Reducer::KeepAll, Reducer::Concat, Reducer::Sum, custom()]
}

fn refused<T>(result: Result<T>, text: &str) {
    let error = result.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

fn is_unsupported<T>(result: Result<T>) {
    assert_eq!(result.err().map(|error| error.kind()), Some(ErrorKind::Unsupported));
}

fn skip(setup: Setup) -> Setup {
    setup.engine(EngineKind::Skip)
}

/// Opens with the function registered.
fn open(setup: &Setup) -> Database {
    setup.builder().reducer(LARGEST, largest).open().unwrap()
}

fn figures(keyspace: &Keyspace) -> SkipStats {
    keyspace.stats().skip.expect("it is a skip keyspace")
}

fn assert_whole(database: &Database) {
    let problems = database.verify().unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_created() {
    let setup = Setup::memory();
    let database = setup.open();
    let before = setup.fs.list(&setup.path).unwrap();
    let make = |options| database.keyspace(NAME, options);
    for wrong in [0, 1, 65, u32::MAX] {
        refused(make(KeyspaceOptions::skip().step_unit(wrong)), "from 2 to 64");
    }
    refused(make(KeyspaceOptions::skip().max_level(13)), "from 0 to 12");
    refused(make(KeyspaceOptions::skip().page_size(4096)), "for B+ trees");
    let unnamed = Reducer::Custom(String::new());
    refused(make(KeyspaceOptions::skip().reducer(unnamed)), "1 to 255 bytes");
    let unknown = KeyspaceOptions::skip().reducer(custom());
    refused(make(unknown.clone()), "register it with DatabaseBuilder::reducer");
    for engine in ENGINES.into_iter().filter(|&engine| engine != EngineKind::Skip) {
        refused(make(options(engine).step_unit(4)), "for skip keyspaces");
        refused(make(options(engine).max_level(12)), "for skip keyspaces");
        refused(make(options(engine).reducer(Reducer::Last)), "for skip keyspaces");
    }
    assert!(database.keyspaces().is_empty());
    assert_eq!(setup.fs.list(&setup.path).unwrap(), before);
    drop(database);
    refused(setup.builder().reducer("", largest).open(), "1 to 255 bytes");
    open(&setup).keyspace(NAME, unknown).unwrap();
}

#[test]
fn what_a_keyspace_is_made_of_is_fixed_when_it_is_created() {
    for layer in [Layer::Positional, Layer::Mmap] {
        for (index, reducer) in reducers().into_iter().enumerate() {
            let setup = skip(Setup::memory().layer(layer));
            let (step_unit, max_level) = (2 + index as u32, index as u32);
            let made = |step_unit, max_level, reducer| {
                let options = KeyspaceOptions::skip().step_unit(step_unit);
                options.max_level(max_level).reducer(reducer)
            };
            let database = open(&setup);
            let same = made(step_unit, max_level, reducer.clone());
            database.keyspace(NAME, same.clone()).unwrap().put("k", [1; 8]).unwrap();
            let check = |database: &Database| {
                let again = |options| database.keyspace(NAME, options);
                let other = KeyspaceOptions::skip;
                refused(again(other().step_unit(40)), &format!("step unit {step_unit}, and"));
                refused(again(other().max_level(9)), &format!("largest level {max_level}, and"));
                let different = if reducer == Reducer::Sum { Reducer::First } else { Reducer::Sum };
                refused(again(other().reducer(different)), &format!("reducer {reducer}, and"));
                refused(again(other().step_unit(1)), "from 2 to 64");
                // What is not asked for stays as it is.
                let keyspace = again(other()).unwrap();
                assert_eq!(figures(&keyspace).step_unit, step_unit);
                again(same.clone()).unwrap();
            };
            check(&database);
            database.close().unwrap();
            check(&open(&setup));
        }
    }
    // Without being asked, they are the defaults.
    let (database, keyspace) = skip(Setup::memory()).start();
    let defaults = KeyspaceOptions::skip().step_unit(4).max_level(12).reducer(Reducer::Last);
    database.keyspace(NAME, defaults).unwrap();
    assert_eq!(figures(&keyspace).step_unit, 4);
}

/// What the values that were put under a key since it was deleted become, by the reducer's own definition.
fn reduced(reducer: &Reducer, values: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let one = match (reducer, values) {
        (Reducer::KeepAll, _) | (_, []) => return values.to_vec(),
        (Reducer::Last, [.., last]) => last.clone(),
        (Reducer::First, [first, ..]) => first.clone(),
        (Reducer::Concat, _) => values.concat(),
        (Reducer::Sum, _) => {
            let number = |value: &Vec<u8>| i64::from_be_bytes(value[..].try_into().unwrap());
            let sum = values.iter().map(number).fold(0_i64, i64::wrapping_add);
            sum.to_be_bytes().to_vec()
        }
        (Reducer::Custom(_), _) => values.iter().max().cloned().unwrap(),
        (reducer, _) => panic!("{reducer} is a new one"),
    };
    vec![one]
}

/// The values that were put under each key since it was last deleted.
type Puts = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// Who answers: the keyspace as it is, or as a snapshot sees it.
struct Reader<'a> {
    keyspace: &'a Keyspace,
    snapshot: Option<&'a Snapshot>,
}

impl Reader<'_> {
    fn get_all(&self, key: &[u8]) -> Vec<Vec<u8>> {
        let all = match self.snapshot {
            Some(snapshot) => snapshot.get_all(self.keyspace, key),
            None => self.keyspace.get_all(key),
        };
        all.unwrap().iter().map(|value| value.to_vec()).collect()
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let value = match self.snapshot {
            Some(snapshot) => snapshot.get(self.keyspace, key),
            None => self.keyspace.get(key),
        };
        value.unwrap().map(|value| value.to_vec())
    }

    fn nth(&self, position: u64) -> Option<(Vec<u8>, Vec<u8>)> {
        let record = match self.snapshot {
            Some(snapshot) => snapshot.nth(self.keyspace, position),
            None => self.keyspace.nth(position),
        };
        record.unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()))
    }

    fn rank(&self, key: &[u8]) -> u64 {
        match self.snapshot {
            Some(snapshot) => snapshot.rank(self.keyspace, key),
            None => self.keyspace.rank(key),
        }
        .unwrap()
    }

    fn records(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let range = match self.snapshot {
            Some(snapshot) => snapshot.iter(self.keyspace),
            None => self.keyspace.iter(),
        };
        range.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
    }

    /// Compares all answers with what was put.
    fn check(&self, reducer: &Reducer, puts: &Puts, what: &str) {
        let mut expected = Vec::new();
        for (key, values) in puts {
            let values = reduced(reducer, values);
            assert_eq!(self.get_all(key), values, "{what}, {reducer}: {key:?}");
            if *reducer != Reducer::KeepAll {
                assert_eq!(self.get(key).as_ref(), values.first(), "{what}, {reducer}: {key:?}");
            }
            assert_eq!(self.get(key).is_some(), !values.is_empty(), "{what}, {reducer}: {key:?}");
            expected.extend(values.into_iter().map(|value| (key.clone(), value)));
        }
        assert_eq!(self.records(), expected, "{what}, {reducer}");
        for (position, record) in expected.iter().enumerate().step_by(7) {
            assert_eq!(self.nth(position as u64).as_ref(), Some(record), "{what}, {reducer}");
        }
        for behind in [expected.len() as u64, u64::MAX] {
            assert_eq!(self.nth(behind), None, "{what}, {reducer}");
        }
        let probes =
            puts.keys().step_by(5).flat_map(|key| [key.clone(), [key, &b"\0"[..]].concat()]);
        for key in probes.chain([Vec::new(), vec![0xff; 9]]) {
            let below = expected.partition_point(|(other, _)| *other < key) as u64;
            assert_eq!(self.rank(&key), below, "{what}, {reducer}: {key:?}");
        }
    }
}

/// Many keys, of which few are put once only, and some deleted and put again.
fn write(keyspace: &Keyspace, puts: &mut Puts, dice: &mut Dice, writes: usize) {
    for _ in 0..writes {
        let key = format!("key {:03}", dice.roll(150)).into_bytes();
        if dice.roll(8) == 0 {
            keyspace.delete(&key).unwrap();
            puts.insert(key, Vec::new());
        } else {
            let value = dice.bytes(8);
            keyspace.put(&key, &value).unwrap();
            puts.entry(key).or_default().push(value);
        }
    }
}

/// Compares what is there now with what was put, and what an old snapshot sees.
fn check_all(
    keyspace: &Keyspace,
    reducer: &Reducer,
    puts: &Puts,
    old: Option<&(Snapshot, Puts)>,
    what: &str,
) {
    Reader { keyspace, snapshot: None }.check(reducer, puts, what);
    if let Some((snapshot, puts)) = old {
        Reader { keyspace, snapshot: Some(snapshot) }.check(reducer, puts, what);
    }
}

#[test]
fn reducers_make_one_value_of_several_wherever_they_are() {
    for (index, reducer) in reducers().into_iter().enumerate() {
        let layers = [Layer::Positional, Layer::Mmap];
        for (layer, logged) in layers.into_iter().flat_map(|layer| [(layer, true), (layer, false)])
        {
            let setup = skip(Setup::memory().layer(layer)).logged(logged);
            let options = setup.options.clone().reducer(reducer.clone()).step_unit(2);
            let mut database = open(&setup);
            let mut keyspace = database.keyspace(NAME, options.clone()).unwrap();
            let (mut puts, mut dice) = (Puts::new(), Dice::new(index as u64 + 1));
            let mut old: Option<(Snapshot, Puts)> = None;
            for round in 0..12 {
                write(&keyspace, &mut puts, &mut dice, 200);
                let what = format!("{setup}, round {round}");
                check_all(&keyspace, &reducer, &puts, old.as_ref(), &what);
                match round % 6 {
                    0 | 2 => keyspace.persist().unwrap(),
                    1 => old = Some((database.snapshot(), puts.clone())),
                    3 => keyspace.compact().unwrap(),
                    4 => {
                        old = None;
                        database.settle().unwrap();
                    }
                    _ => {
                        drop(keyspace);
                        database.close().unwrap();
                        database = open(&setup);
                        keyspace = database.keyspace(NAME, options.clone()).unwrap();
                    }
                }
                check_all(&keyspace, &reducer, &puts, old.as_ref(), &what);
                assert_whole(&database);
            }
            keyspace.compact().unwrap();
            check_all(&keyspace, &reducer, &puts, None, "compacted");
            let left: usize = puts.values().map(|values| reduced(&reducer, values).len()).sum();
            let SkipStats { records, runs, .. } = figures(&keyspace);
            assert_eq!((records, runs), (left as u64, 0), "{setup}, {reducer}");
        }
    }
}

#[test]
fn a_sum_takes_numbers_only() {
    let setup = skip(Setup::memory());
    let (database, other) = (setup.open(), "other");
    let sum = database.keyspace(NAME, KeyspaceOptions::skip().reducer(Reducer::Sum)).unwrap();
    let other = database.keyspace(other, KeyspaceOptions::lsm()).unwrap();
    sum.put("n", i64::MAX.to_be_bytes()).unwrap();
    let before = database.stats().last_seqno;
    for wrong in [&b""[..], b"1234567", b"123456789"] {
        refused(sum.put("n", wrong), "8 bytes");
        let mut batch = database.batch();
        batch.put(&other, "k", "v").put(&sum, "n", 1_i64.to_be_bytes()).put(&sum, "n", wrong);
        refused(batch.commit(), "8 bytes");
        other.put("k", wrong).unwrap();
    }
    assert_eq!(database.stats().last_seqno, before + 3, "nothing else was written");
    let mut batch = database.batch();
    batch.put(&sum, "n", 2_i64.to_be_bytes()).delete(&sum, "m").put(&sum, "m", [0; 8]);
    batch.commit().unwrap();
    let expected = i64::MAX.wrapping_add(2).to_be_bytes();
    assert_eq!(sum.get("n").unwrap().as_deref(), Some(&expected[..]), "it wraps around");
    sum.delete("n").unwrap();
    assert_eq!(sum.get("n").unwrap(), None);
}

#[test]
fn without_its_function_a_keyspace_can_be_opened() {
    let fs = Arc::new(MemoryFs::new());
    let setup = skip(Setup::on(Arc::clone(&fs)));
    let options = KeyspaceOptions::skip().reducer(custom());
    let database = open(&setup);
    let keyspace = database.keyspace(NAME, options.clone()).unwrap();
    database.keyspace("other", KeyspaceOptions::lsm()).unwrap().put("k", "v").unwrap();
    keyspace.put("once", "1").unwrap();
    keyspace.put("twice", "1").unwrap();
    let snapshot = database.snapshot();
    keyspace.put("twice", "2").unwrap();
    keyspace.persist().unwrap();
    drop(snapshot);
    // As a kill leaves it.
    let setup = skip(Setup::on(Arc::new(fs.fork())));
    let database = setup.open();
    let keyspace = database.keyspace(NAME, options.clone()).unwrap();
    assert_eq!(database.open_keyspace("other").unwrap().get("k").unwrap().unwrap(), "v");
    keyspace.put("once more", "1").unwrap();
    keyspace.put("more", "3").unwrap();
    keyspace.put("more", "4").unwrap();
    for key in ["once", "once more"] {
        assert_eq!(keyspace.get(key).unwrap().unwrap(), "1");
    }
    let error = keyspace.get("more").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(LARGEST), "{error}");
    assert!(keyspace.iter().any(|item| item.is_err()));
    drop(keyspace);
    database.close().unwrap();
    let database = open(&setup);
    let keyspace = database.keyspace(NAME, options).unwrap();
    for (key, value) in [("once", "1"), ("once more", "1"), ("twice", "2"), ("more", "4")] {
        assert_eq!(keyspace.get(key).unwrap().unwrap(), value, "{key}");
    }
    keyspace.compact().unwrap();
    assert_eq!(keyspace.get("more").unwrap().unwrap(), "4");
    assert_whole(&database);
}

#[test]
fn other_engines_know_no_positions() {
    for engine in ENGINES.into_iter().filter(|&engine| engine != EngineKind::Skip) {
        let setup = Setup::memory().engine(engine);
        let (database, keyspace) = setup.start();
        keyspace.put("k", "v").unwrap();
        keyspace.put("k", "w").unwrap();
        let snapshot = database.snapshot();
        is_unsupported(keyspace.nth(0));
        is_unsupported(keyspace.rank("k"));
        is_unsupported(snapshot.nth(&keyspace, 0));
        is_unsupported(snapshot.rank(&keyspace, "k"));
        // A key has one value or none.
        keyspace.delete("k").unwrap();
        assert!(keyspace.get_all("k").unwrap().is_empty());
        assert_eq!(snapshot.get_all(&keyspace, "k").unwrap(), ["w"]);
        assert_eq!(keyspace.stats().skip, None);
        let foreign = Setup::memory().engine(engine).start();
        refused(snapshot.get_all(&foreign.1, "k"), "another database");
        refused(snapshot.nth(&foreign.1, 0), "another database");
        refused(snapshot.rank(&foreign.1, "k"), "another database");
        database.close().unwrap();
        assert_eq!(keyspace.get_all("k").unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(keyspace.nth(0).unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(keyspace.rank("k").unwrap_err().kind(), ErrorKind::Closed);
    }
    assert!(is_ordered(EngineKind::Skip));
}

#[test]
fn figures_tell_the_shape_of_the_sorted_file() {
    for setup in Setup::all().into_iter().filter(|setup| setup.engine == EngineKind::Skip) {
        let (database, keyspace) = setup.start();
        let SkipStats { step_unit, levels, records, runs, merge_total, .. } = figures(&keyspace);
        assert_eq!((step_unit, levels, records, runs, merge_total), (4, 0, 0, 0, 0), "{setup}");
        for number in 0..3000_u32 {
            keyspace.put(number.to_be_bytes(), [1; 100]).unwrap();
        }
        let SkipStats { records, run_entries, .. } = figures(&keyspace);
        assert_eq!((records, run_entries), (0, 0), "{setup}: it is in memory");
        keyspace.persist().unwrap();
        let SkipStats { records, run_entries, .. } = figures(&keyspace);
        assert_eq!(records + run_entries, 3000, "{setup}");
        keyspace.compact().unwrap();
        let SkipStats { levels, records, blocks, runs, run_entries, merges, .. } =
            figures(&keyspace);
        assert_eq!((records, runs, run_entries), (3000, 0, 0), "{setup}");
        // What came first was written to the file at once.
        assert!(levels > 0 && blocks > 0 && merges == 0, "{setup}: {:?}", figures(&keyspace));
        let tree = keyspace.stats().tree;
        assert!(tree.is_none() && keyspace.stats().levels.is_empty(), "{setup}");
        assert_eq!(keyspace.nth(1234).unwrap().unwrap().0, 1234_u32.to_be_bytes(), "{setup}");
        for number in 0..3000_u32 {
            keyspace.delete(number.to_be_bytes()).unwrap();
        }
        keyspace.compact().unwrap();
        let SkipStats { records, levels, merges, .. } = figures(&keyspace);
        assert_eq!((records, levels, merges), (0, 0, 1), "{setup}");
        assert_whole(&database);
    }
}
