//! `multi_get` gives what as many gets give, wherever the keys are, and however their blocks are reached.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use turbidite::vfs::{
    Access, Dir, Effect, Errno, Fault, FaultFs, File, Fs, Hint, LockGuard, MemoryFs, Operation,
    PathKind, Times,
};
use turbidite::{Database, ErrorKind, IoStats, Keyspace, Layer, Result, Slice, Snapshot, View};

use crate::setup::Setup;

/// A file system that never has anything at hand, so that every read of a batch is one for the threads.
#[derive(Debug)]
struct ColdFs(MemoryFs);

#[derive(Debug)]
struct ColdFile(Arc<dyn File>);

impl Fs for ColdFs {
    fn open(&self, path: &Path, access: Access, layer: Layer) -> Result<Arc<dyn File>> {
        Ok(Arc::new(ColdFile(self.0.open(path, access, layer)?)))
    }
    fn create(&self, path: &Path, layer: Layer) -> Result<Arc<dyn File>> {
        Ok(Arc::new(ColdFile(self.0.create(path, layer)?)))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.0.create_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.0.remove_dir(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.0.list(dir)
    }
    fn kind(&self, path: &Path) -> Result<Option<PathKind>> {
        self.0.kind(path)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.0.sync_dir(dir)
    }
    fn open_dir(&self, dir: &Path) -> Result<Box<dyn Dir>> {
        self.0.open_dir(dir)
    }
    fn lock(&self, path: &Path, access: Access) -> Result<LockGuard> {
        self.0.lock(path, access)
    }
    fn stats(&self) -> IoStats {
        self.0.stats()
    }
}

impl File for ColdFile {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.0.truncate(len)
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.0.allocate(len)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.0.write_vectored_at(offset, parts)
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn advise(&self, range: Range<u64>, hint: Hint) {
        self.0.advise(range, hint);
    }
    fn view(&self, range: Range<u64>) -> Result<View> {
        self.0.view(range)
    }
    fn try_view(&self, _: Range<u64>) -> Result<Option<View>> {
        Ok(None)
    }
    fn stats(&self) -> IoStats {
        self.0.stats()
    }
}

/// On every file system and layer that reaches blocks in a way of its own.
fn setups() -> [Setup; 4] {
    let cold = Setup::on(Arc::new(ColdFs(MemoryFs::new())));
    [Setup::memory(), cold, Setup::disk(Layer::Positional), Setup::disk(Layer::Mmap)]
}

fn key(number: u16) -> Vec<u8> {
    format!("key {number:03}").into_bytes()
}

#[derive(Clone, Debug)]
enum Step {
    /// The first key, how many, and the length of their values.
    Put(u16, u16, usize),
    Delete(u16, u16),
    Persist,
    Compact,
    Snapshot,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..400_u16, 1..200_u16, 0..600_usize).prop_map(|(a, n, len)| Step::Put(a, n, len)),
        3 => (0..400_u16, 1..60_u16).prop_map(|(a, n)| Step::Delete(a, n)),
        4 => Just(Step::Persist),
        1 => Just(Step::Compact),
        2 => Just(Step::Snapshot),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..14)
}

struct World {
    setup: Setup,
    database: Database,
    keyspace: Keyspace,
    snapshots: Vec<Snapshot>,
    writes: usize,
}

impl World {
    fn new(setup: Setup) -> Self {
        let (database, keyspace) = setup.start();
        Self { setup, database, keyspace, snapshots: Vec::new(), writes: 0 }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Put(first, count, len) => (first..first + count).for_each(|number| {
                self.writes += 1;
                let value = vec![self.writes as u8; len + usize::from(number) % 50];
                self.keyspace.put(key(number), value).unwrap();
            }),
            Step::Delete(first, count) => {
                (first..first + count).for_each(|n| self.keyspace.delete(key(n)).unwrap());
            }
            Step::Persist => self.keyspace.persist().unwrap(),
            Step::Compact => self.keyspace.compact().unwrap(),
            Step::Snapshot => self.snapshots.push(self.database.snapshot()),
            Step::Reopen => {
                self.snapshots.clear();
                self.database.clone().close().unwrap();
                self.database = self.setup.open();
                self.keyspace = self.setup.keyspace(&self.database);
            }
        }
    }

    fn check(&self, numbers: &[u16]) {
        let keys: Vec<Vec<u8>> = numbers.iter().copied().map(key).collect();
        let same = |found: Vec<Option<Slice>>, get: &dyn Fn(&[u8]) -> Option<Slice>| {
            let expected: Vec<_> = keys.iter().map(|key| get(key)).collect();
            assert!(found == expected, "{}: {numbers:?}", self.setup);
        };
        let keyspace = &self.keyspace;
        for snapshot in &self.snapshots {
            let found = snapshot.multi_get(keyspace, &keys).unwrap();
            same(found, &|key| snapshot.get(keyspace, key).unwrap());
        }
        same(keyspace.multi_get(&keys).unwrap(), &|key| keyspace.get(key).unwrap());
        // Once more, with what is cached now.
        same(keyspace.multi_get(&keys).unwrap(), &|key| keyspace.get(key).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn as_many_gets_give_the_same(
        steps in steps(),
        numbers in proptest::collection::vec(0..650_u16, 1..300),
    ) {
        for setup in setups() {
            let mut world = World::new(setup);
            steps.iter().for_each(|step| world.step(step));
            world.check(&numbers);
            world.check(&numbers[..1]);
        }
    }
}

/// Keys and their values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A keyspace with tables on two levels, and all it holds.
fn two_levels(setup: &Setup) -> (Database, Keyspace, Pairs) {
    let (database, keyspace) = setup.start();
    let value = |number: u16, round: u8| vec![round ^ number as u8; 300];
    (0..500).for_each(|number| keyspace.put(key(number), value(number, 1)).unwrap());
    keyspace.compact().unwrap();
    (0..500).step_by(3).for_each(|number| keyspace.put(key(number), value(number, 2)).unwrap());
    keyspace.persist().unwrap();
    let round = |number: u16| if number.is_multiple_of(3) { 2 } else { 1 };
    let all = (0..500).map(|number| (key(number), value(number, round(number)))).collect();
    (database, keyspace, all)
}

#[test]
fn blocks_are_read_once_and_the_order_is_that_of_the_keys() {
    for setup in setups() {
        let (database, keyspace, all) = two_levels(&setup);
        let keys = || all.iter().rev().chain(&all).map(|(key, _)| key);
        let before = database.stats().io;
        let found = keyspace.multi_get(keys()).unwrap();
        let reads = (database.stats().io - before).reads;
        for (found, (_, value)) in found.iter().zip(all.iter().rev().chain(&all)) {
            assert_eq!(found.as_deref(), Some(&value[..]), "{setup}");
        }
        // 200 KiB in blocks of 4 KiB, and the parts of two tables.
        assert!(reads <= 70, "{setup}: {reads} reads");
        database.close().unwrap();
    }
}

#[test]
fn large_blocks_are_read_a_few_at_a_time() {
    let faulty = FaultFs::new(Arc::new(ColdFs(MemoryFs::new())));
    let mut setup = Setup::on(Arc::new(faulty.clone()));
    setup.options = setup.options.data_block_size(64 << 10).table_size(8 << 20);
    let (_database, keyspace) = setup.start();
    // A block of each, of which four are a 32nd of the memory budget.
    (0..64).for_each(|number| keyspace.put(key(number), vec![number as u8; 60 << 10]).unwrap());
    keyspace.compact().unwrap();
    // The table is open then.
    assert_eq!(keyspace.stats().levels.iter().map(|level| level.tables).sum::<u64>(), 1);
    assert_eq!(keyspace.get("key 000x").unwrap(), None);
    let fault = Fault::new(Operation::Read, Effect::Fail(Errno::Raw(5)));
    faulty.arm(Fault { name_contains: ".table".into(), times: Times::Always, ..fault });
    let before = faulty.calls(Operation::Read);
    keyspace.multi_get((0..64).map(key)).unwrap_err();
    // A read of several blocks is made again for each of them.
    let reads = faulty.calls(Operation::Read) - before;
    assert!(reads <= 8, "{reads} reads before the first answer was looked at");
    faulty.disarm();
    let found = keyspace.multi_get((0..64).map(key)).unwrap();
    let values = found.iter().flatten().map(|value| value.to_vec());
    assert!(values.eq((0..64).map(|number| vec![number; 60 << 10])));
}

#[test]
fn a_failed_read_is_an_error_and_no_answer() {
    for cold in [true, false] {
        let memory = MemoryFs::new();
        let inner: Arc<dyn Fs> = if cold { Arc::new(ColdFs(memory)) } else { Arc::new(memory) };
        let faulty = FaultFs::new(inner);
        let setup = Setup::on(Arc::new(faulty.clone()));
        let (database, _, all) = two_levels(&setup);
        database.close().unwrap();
        let keys = || all.iter().map(|(key, _)| key);
        let mut failed = BTreeSet::new();
        for after in 0.. {
            let database = setup.open();
            let keyspace = setup.keyspace(&database);
            let name_contains = ".table".to_owned();
            let fault = Fault::new(Operation::Read, Effect::Fail(Errno::Raw(5)));
            let fired = faulty.fired();
            faulty.arm(Fault { name_contains, after, ..fault });
            let outcome = keyspace.multi_get(keys());
            faulty.disarm();
            let hit = faulty.fired() > fired;
            match outcome {
                // A read of several blocks is made again for each of them.
                Ok(found) => assert!(found.iter().flatten().eq(all.iter().map(|(_, v)| v))),
                Err(error) => {
                    assert!(hit && error.kind() == ErrorKind::Io, "{error:?}");
                    failed.insert(after);
                }
            }
            let found = keyspace.multi_get(keys()).unwrap();
            assert!(found.iter().flatten().eq(all.iter().map(|(_, value)| value)));
            keyspace.put("usable", "still").unwrap();
            database.close().unwrap();
            if !hit {
                break;
            }
        }
        assert!(!failed.is_empty(), "the faults were met");
    }
}

#[test]
fn a_damaged_block_is_an_error_and_no_answer() {
    let setup = Setup::disk(Layer::Positional);
    let (database, keyspace, all) = two_levels(&setup);
    drop(keyspace);
    database.close().unwrap();
    let keyspaces = setup.path.join("keyspaces");
    let tables = crate::setup::files_below(&keyspaces);
    let path = tables.keys().find(|path| path.extension().is_some_and(|name| name == "table"));
    let (path, bytes) = tables.get_key_value(path.expect("there are tables")).unwrap();
    let mut damaged = bytes.clone();
    damaged[5000] ^= 1;
    std::fs::write(path, damaged).unwrap();
    let database = setup.open();
    let keyspace = setup.keyspace(&database);
    let error = keyspace.multi_get(all.iter().map(|(key, _)| key)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    // Keys in other blocks are still there.
    let readable = all.iter().filter(|(key, _)| keyspace.multi_get([key]).is_ok()).count();
    assert!((400..500).contains(&readable), "{readable} keys are readable");
}
