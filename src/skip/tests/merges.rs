//! The engine as a whole, through the database, against a map: spills, loads, merges and reopening at random, under
//! snapshots that go on seeing what they saw.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::rng::Rng;
use crate::vfs::{Fs, MemoryFs};
use crate::{
    Database, ErrorKind, Keyspace, KeyspaceOptions, MIN_MEMORY_BUDGET, Reducer, SkipStats, Snapshot,
};

/// The values that were put under each key since it was deleted.
pub(super) type Model = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// The function that is registered: the largest value.
const LARGEST: &str = "largest";

pub(super) fn open(fs: &Arc<dyn Fs>) -> Database {
    let largest = |_: &[u8], values: &[&[u8]]| values.iter().max().map_or(vec![], |v| v.to_vec());
    let builder = Database::builder("/db").file_system(Arc::clone(fs)).reducer(LARGEST, largest);
    builder.memory_budget(MIN_MEMORY_BUDGET).open().unwrap()
}

/// Writes what is in memory to a run, whatever the size of the keyspace.
pub(super) fn spill(keyspace: &Keyspace) -> crate::Result<()> {
    keyspace.database().cut(keyspace.target())?;
    keyspace.target().engine.persist()
}

pub(super) fn figures(keyspace: &Keyspace) -> SkipStats {
    keyspace.stats().skip.expect("it is a skip keyspace")
}

pub(super) fn check_clean(db: &Database) {
    let problems = db.verify().unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

/// The names of all sorted files.
pub(super) fn sorted_files(fs: &dyn Fs) -> Vec<String> {
    let names = fs.list(Path::new("/db/keyspaces/1")).unwrap();
    names.into_iter().filter(|name| name.ends_with(".sorted")).collect()
}

/// Waits until there are so many sorted files. A thread that has just looked at a state may be the last to hold it.
pub(super) fn expect_files(fs: &dyn Fs, count: usize) {
    let start = Instant::now();
    while sorted_files(fs).len() != count {
        let names = sorted_files(fs);
        assert!(start.elapsed() < Duration::from_secs(10), "{names:?} in place of {count}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a reader sees of the values of a key.
pub(super) fn reduced(reducer: &Reducer, values: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let number = |value: &Vec<u8>| i64::from_be_bytes(value[..].try_into().unwrap());
    let one = match reducer {
        _ if values.is_empty() => return Vec::new(),
        Reducer::KeepAll => return values.to_vec(),
        Reducer::Last => values[values.len() - 1].clone(),
        Reducer::First => values[0].clone(),
        Reducer::Concat => values.concat(),
        Reducer::Sum => values.iter().map(number).fold(0, i64::wrapping_add).to_be_bytes().to_vec(),
        Reducer::Custom(_) => values.iter().max().unwrap().clone(),
    };
    vec![one]
}

/// The records that a reader of the model sees.
fn records(reducer: &Reducer, model: &Model) -> Vec<(Vec<u8>, Vec<u8>)> {
    let of_key = |(key, values): (&Vec<u8>, &Vec<Vec<u8>>)| {
        let key = key.clone();
        reduced(reducer, values).into_iter().map(move |value| (key.clone(), value))
    };
    model.iter().flat_map(of_key).collect()
}

/// Who answers: the keyspace as it is, or as a snapshot sees it.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a Keyspace, Option<&'a Snapshot>);

impl Reader<'_> {
    fn range(&self) -> crate::Range {
        self.1.map_or_else(|| self.0.iter(), |snapshot| snapshot.iter(self.0))
    }

    /// Compares all answers with what the model says.
    fn check(&self, reducer: &Reducer, model: &Model, rng: &mut Rng) {
        let &Self(keyspace, snapshot) = self;
        let expected = records(reducer, model);
        let own = |(key, value): (crate::Slice, crate::Slice)| (key.to_vec(), value.to_vec());
        let found: Vec<_> = self.range().map(|item| own(item.unwrap())).collect();
        assert!(found == expected, "{reducer:?}: {} records, not {}", found.len(), expected.len());
        let mut found: Vec<_> = self.range().rev().map(|item| own(item.unwrap())).collect();
        found.reverse();
        assert!(found == expected, "{reducer:?}: backward");
        let keys: Vec<_> = (0..20).map(|_| key_of(rng, 300)).collect();
        let together = match snapshot {
            Some(snapshot) => snapshot.multi_get(keyspace, &keys),
            None => keyspace.multi_get(&keys),
        };
        for (key, one) in keys.iter().zip(together.unwrap()) {
            let right = model.get(key).map_or(Vec::new(), |values| reduced(reducer, values));
            let (get, all, rank) = match snapshot {
                Some(snapshot) => (
                    snapshot.get(keyspace, key),
                    snapshot.get_all(keyspace, key),
                    snapshot.rank(keyspace, key),
                ),
                None => (keyspace.get(key), keyspace.get_all(key), keyspace.rank(key)),
            };
            assert_eq!(all.unwrap(), right, "{reducer:?}");
            assert_eq!(get.unwrap().as_deref(), right.last().map(|value| &value[..]));
            assert_eq!(one.as_deref(), right.last().map(|value| &value[..]));
            let below = expected.partition_point(|(other, _)| other < key);
            assert_eq!(rank.unwrap(), below as u64);
        }
        for _ in 0..5 {
            let position = rng.next() % (expected.len() as u64 + 2);
            let found = match snapshot {
                Some(snapshot) => snapshot.nth(keyspace, position),
                None => keyspace.nth(position),
            };
            assert_eq!(found.unwrap().map(own).as_ref(), expected.get(position as usize));
        }
    }
}

fn key_of(rng: &mut Rng, keys: u64) -> Vec<u8> {
    let number = rng.next() % keys;
    let mut key = format!("{:02} key {number:04}", number % 7).into_bytes();
    match number % 40 {
        7 => key.resize(key.len() + number as usize, b'k'),
        9 => key.truncate(2 + (number % 9) as usize),
        _ => {}
    }
    key
}

struct World {
    fs: MemoryFs,
    db: Option<Database>,
    options: KeyspaceOptions,
    reducer: Reducer,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    rng: Rng,
}

impl World {
    fn new(seed: u64, reducer: Reducer, options: KeyspaceOptions) -> Self {
        let fs = MemoryFs::new();
        let options = options.reducer(reducer.clone());
        let db = Some(open(&(Arc::new(fs.clone()) as Arc<dyn Fs>)));
        let (model, snapshots) = (Model::new(), Vec::new());
        Self { fs, db, options, reducer, model, snapshots, rng: Rng::new(seed) }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("it is open")
    }

    fn keyspace(&self) -> Keyspace {
        self.db().keyspace("main", self.options.clone()).unwrap()
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.rng.next() % sides
    }

    fn value(&mut self) -> Vec<u8> {
        let (number, is_large) = (self.rng.next(), self.roll(300) == 0);
        let len = match self.reducer {
            Reducer::Sum => 8,
            Reducer::Concat => self.roll(10),
            _ => self.roll(if is_large { 200_000 } else { 40 }),
        };
        (0..len).map(|at| (number >> (at % 8 * 8)) as u8).collect()
    }

    fn put(&mut self, keyspace: &Keyspace) {
        let (key, value) = (key_of(&mut self.rng, 300), self.value());
        keyspace.put(&key, &value).unwrap();
        self.model.entry(key).or_default().push(value);
    }

    fn delete(&mut self, keyspace: &Keyspace) {
        let key = key_of(&mut self.rng, 300);
        keyspace.delete(&key).unwrap();
        self.model.remove(&key);
    }

    fn load(&mut self, keyspace: &Keyspace) {
        let count = self.roll(60);
        let records: BTreeMap<_, _> =
            (0..count).map(|_| (key_of(&mut self.rng, 300), self.value())).collect();
        assert_eq!(keyspace.load_sorted(&records).unwrap(), records.len() as u64);
        for (key, value) in records {
            self.model.entry(key).or_default().push(value);
        }
    }

    fn check(&mut self, keyspace: &Keyspace) {
        Reader(keyspace, None).check(&self.reducer, &self.model, &mut self.rng);
        check_clean(self.db());
    }

    fn check_snapshots(&mut self, keyspace: &Keyspace) {
        for (snapshot, model) in &self.snapshots {
            Reader(keyspace, Some(snapshot)).check(&self.reducer, model, &mut self.rng);
        }
    }

    /// Without snapshots there are no more files than those of the present state.
    fn check_files(&self, keyspace: &Keyspace) {
        self.db().settle().unwrap();
        let SkipStats { runs, records, .. } = figures(keyspace);
        expect_files(&self.fs, runs as usize + usize::from(records > 0));
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        if self.roll(2) == 0 {
            self.db.take().expect("it is open").close().unwrap();
        } else {
            // The process is killed: what it has not written is in no image, but a put has been handed over.
            self.fs = self.fs.fork();
            self.db = None;
        }
        self.db = Some(open(&(Arc::new(self.fs.clone()) as Arc<dyn Fs>)));
    }

    fn step(&mut self) {
        let mut keyspace = self.keyspace();
        match self.roll(400) {
            0..4 => keyspace.persist().unwrap(),
            4..6 => keyspace.compact().unwrap(),
            6..20 => spill(&keyspace).unwrap(),
            20..30 => self.load(&keyspace),
            30..38 => self.snapshots.push((self.db().snapshot(), self.model.clone())),
            38..42 => self.check_snapshots(&keyspace),
            42..50 if !self.snapshots.is_empty() => {
                let at = self.roll(self.snapshots.len() as u64) as usize;
                self.snapshots.swap_remove(at);
            }
            50..53 => {
                drop(keyspace);
                self.reopen();
                keyspace = self.keyspace();
                self.check(&keyspace);
                self.check_files(&keyspace);
            }
            53..55 => {
                self.snapshots.clear();
                self.check_files(&keyspace);
            }
            55 => self.db().settle().unwrap(),
            56..140 => self.delete(&keyspace),
            140..150 => Reader(&keyspace, None).check(&self.reducer, &self.model, &mut self.rng),
            _ => self.put(&keyspace),
        }
    }

    fn run(mut self, steps: u64) -> u64 {
        for _ in 0..steps {
            self.step();
        }
        let keyspace = self.keyspace();
        self.check(&keyspace);
        self.check_snapshots(&keyspace);
        keyspace.compact().unwrap();
        self.check(&keyspace);
        self.check_snapshots(&keyspace);
        self.snapshots.clear();
        self.check_files(&keyspace);
        let merges = figures(&keyspace).merges;
        drop(keyspace);
        self.reopen();
        let keyspace = self.keyspace();
        self.check(&keyspace);
        self.check_files(&keyspace);
        merges
    }
}

fn reducers() -> [Reducer; 6] {
    let custom = Reducer::Custom(LARGEST.into());
    [Reducer::Last, Reducer::First, Reducer::KeepAll, Reducer::Concat, Reducer::Sum, custom]
}

#[test]
fn it_does_what_a_map_does() {
    for (seed, reducer) in (1..).zip(reducers()) {
        let steps = if reducer == Reducer::Last { 4000 } else { 2000 };
        let options = KeyspaceOptions::skip().step_unit(2 + seed as u32);
        let merges = World::new(seed, reducer, options).run(steps);
        assert!(merges > 0);
    }
}

#[test]
fn it_does_with_few_levels_and_other_layers() {
    for (seed, max_level) in (20..).zip([0, 1, 2, 3]) {
        let layer = crate::Layer::ALL[max_level as usize + 2];
        let layer = layer.with_page_cache_pages(50).unwrap_or(layer);
        let options = KeyspaceOptions::skip().max_level(max_level).layer(layer);
        let reducer = reducers()[max_level as usize % 3].clone();
        World::new(seed, reducer, options).run(1000);
    }
}

#[test]
fn a_snapshot_keeps_its_state_through_every_kind_of_merge() {
    for reducer in reducers() {
        let mut world = World::new(50, reducer, KeyspaceOptions::skip());
        let keyspace = world.keyspace();
        for round in 0..40 {
            for _ in 0..20 {
                world.put(&keyspace);
                world.delete(&keyspace);
            }
            if round % 4 == 1 {
                world.load(&keyspace);
            }
            let snapshot = (world.db().snapshot(), world.model.clone());
            world.snapshots.push(snapshot);
            match round % 5 {
                0 | 1 => spill(&keyspace).unwrap(),
                2 => keyspace.persist().unwrap(),
                3 => world.db().settle().unwrap(),
                _ => world.load(&keyspace),
            }
            if round % 10 == 9 {
                world.check_snapshots(&keyspace);
            }
        }
        assert!(sorted_files(&world.fs).len() > 10);
        // They go in any order.
        while world.snapshots.len() > 1 {
            let at = world.roll(world.snapshots.len() as u64) as usize;
            world.snapshots.swap_remove(at);
            if world.snapshots.len().is_multiple_of(10) {
                keyspace.persist().unwrap();
                world.check_snapshots(&keyspace);
            }
        }
        world.snapshots.clear();
        keyspace.persist().unwrap();
        expect_files(&world.fs, 1);
        world.check(&keyspace);
    }
}

/// What comes and goes while a snapshot is held is not kept for it: it sees none of that.
#[test]
fn a_snapshot_keeps_nothing_that_came_after_it() {
    for has_base in [false, true] {
        let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
        let db = open(&fs);
        let keyspace = db.keyspace("main", KeyspaceOptions::skip()).unwrap();
        if has_base {
            keyspace.put("0", "base").unwrap();
            keyspace.persist().unwrap();
        }
        let snapshot = db.snapshot();
        for round in 0..20_u64 {
            let keys = ["a", "b", "c"];
            keyspace.load_sorted(keys.map(|key| (key, round.to_be_bytes()))).unwrap();
            keys.iter().for_each(|key| keyspace.delete(key).unwrap());
            keyspace.persist().unwrap();
            assert_eq!(snapshot.iter(&keyspace).count(), usize::from(has_base));
            // Those that the first merge has merged, and what the last one made.
            expect_files(&*fs, if has_base { 3 } else { 1 });
            if round % 5 == 4 {
                let newer = db.snapshot();
                keyspace.load_sorted([("d", round.to_be_bytes())]).unwrap();
                keyspace.persist().unwrap();
                assert_eq!(newer.iter(&keyspace).count(), usize::from(has_base));
                keyspace.delete("d").unwrap();
                keyspace.persist().unwrap();
            }
        }
        drop(snapshot);
        keyspace.persist().unwrap();
        expect_files(&*fs, usize::from(has_base));
    }
}

#[test]
fn a_load_out_of_order_leaves_nothing() {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
    let db = open(&fs);
    let keyspace = db.keyspace("main", KeyspaceOptions::skip()).unwrap();
    keyspace.load_sorted([("a", "old")]).unwrap();
    let before = (sorted_files(&*fs), db.stats().last_seqno);
    let long = "l".repeat(crate::MAX_KEY_LEN + 1);
    for wrong in
        [&["b", "a"][..], &["", ""], &["a", "b", "b"], &["a", "b", "c", "bb"], &["a", &long]]
    {
        let error = keyspace.load_sorted(wrong.iter().map(|key| (key, "new"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong:?}: {error}");
        assert_eq!((sorted_files(&*fs), db.stats().last_seqno), before, "{wrong:?}");
    }
    // Nor does one of nothing.
    assert_eq!(keyspace.load_sorted([("", ""); 0]).unwrap(), 0);
    assert_eq!((sorted_files(&*fs), db.stats().last_seqno), before);
    assert_eq!(keyspace.get("a").unwrap().unwrap(), *b"old");
    let sum = db.keyspace("sum", KeyspaceOptions::skip().reducer(Reducer::Sum)).unwrap();
    let error = sum.load_sorted([("a", [0; 8].to_vec()), ("b", vec![0; 7])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(sum.count().unwrap(), 0);
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(db.open_keyspace("main").unwrap().count().unwrap(), 1);
    assert_eq!(sorted_files(&*fs), before.0);
}

#[test]
fn a_merge_in_the_background_keeps_runs_few() {
    let mut world = World::new(70, Reducer::Last, KeyspaceOptions::skip());
    let keyspace = world.keyspace();
    for round in 0..60_u64 {
        let records = (0..50).map(|at| (format!("{at:03}"), round.to_be_bytes()));
        keyspace.load_sorted(records).unwrap();
        assert!(figures(&keyspace).runs <= 32);
    }
    world.db().settle().unwrap();
    assert!(figures(&keyspace).runs <= 8);
    let expected = (0..50).map(|at| format!("{at:03}").into_bytes());
    world.model = expected.map(|key| (key, vec![59_u64.to_be_bytes().to_vec()])).collect();
    world.check(&keyspace);
    world.check_files(&keyspace);
}
