//! Keyspaces that are emptied: at once for readers to come, never for those from before, and wherever the power fails, what
//! is left is a prefix of what was done.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use turbidite::vfs::{
    Access, Dir, Effect, Errno, Fault, FaultFs, File, Fs, LockGuard, MemoryFs, Operation, PathKind,
    PowerCut, Times,
};
use turbidite::{Database, Durability, EngineKind, ErrorKind, IoStats, Keyspace, Layer, Slice};

use crate::setup::{ENGINES, NAME, Setup, options};

const PATH: &str = "/data/clears.db";

fn cleared_engines() -> impl Iterator<Item = EngineKind> {
    ENGINES.into_iter().filter(|&engine| engine != EngineKind::Hash)
}

fn fill(keyspace: &Keyspace, numbers: std::ops::Range<u32>) {
    for number in numbers {
        keyspace.put(number.to_be_bytes(), vec![number as u8; 3000]).unwrap();
    }
}

fn keys(items: impl Iterator<Item = turbidite::Result<(Slice, Slice)>>) -> Vec<u32> {
    let number = |key: Slice| u32::from_be_bytes(key[..].try_into().unwrap());
    items.map(|item| number(item.unwrap().0)).collect()
}

fn all(numbers: std::ops::Range<u32>) -> Vec<u32> {
    numbers.collect()
}

fn assert_whole(db: &Database) {
    let problems = db.verify().unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn a_clear_takes_away_all_there_is_and_nothing_that_comes() {
    for setup in Setup::all().into_iter().filter(|setup| setup.engine != EngineKind::Hash) {
        let (db, keyspace) = setup.start();
        // In files, in memtables that wait, and in the one that is written to.
        fill(&keyspace, 0..1500);
        keyspace.persist().unwrap();
        fill(&keyspace, 1000..2500);
        let (snapshot, mut range) = (db.snapshot(), keyspace.iter());
        let mut cursor = keyspace.cursor().unwrap();
        cursor.seek_to_first().unwrap();
        keyspace.clear().unwrap();
        let check = |expected: std::ops::Range<u32>| {
            assert_eq!(keys(keyspace.iter()), all(expected.clone()), "{setup}");
            assert_eq!(keyspace.count().unwrap(), expected.len() as u64);
            for number in [0_u32, 999, 2000, 2499] {
                let key = number.to_be_bytes();
                let is_there = expected.contains(&number);
                assert_eq!(keyspace.get(key).unwrap().is_some(), is_there);
                assert_eq!(keyspace.multi_get([key]).unwrap()[0].is_some(), is_there);
            }
            assert_eq!(keys(snapshot.iter(&keyspace)), all(0..2500), "{setup}");
            assert_eq!(snapshot.count(&keyspace).unwrap(), 2500);
            for number in [0_u32, 999, 2499] {
                let key = number.to_be_bytes();
                assert!(snapshot.get(&keyspace, key).unwrap().is_some());
                assert!(snapshot.multi_get(&keyspace, [key]).unwrap()[0].is_some());
            }
            assert_whole(&db);
        };
        check(0..0);
        fill(&keyspace, 0..5);
        let later = db.snapshot();
        check(0..5);
        keyspace.persist().unwrap();
        check(0..5);
        keyspace.clear().unwrap();
        keyspace.clear().unwrap();
        check(0..0);
        db.settle().unwrap();
        keyspace.compact().unwrap();
        check(0..0);
        assert_eq!(keys(later.iter(&keyspace)), all(0..5));
        fill(&keyspace, 2000..2600);
        check(2000..2600);
        keyspace.compact().unwrap();
        check(2000..2600);
        assert_eq!((cursor.key(), range.next_back().is_some()), (&[0; 4][..], true));
        assert_eq!(keys(range.by_ref()), all(0..2499));
        drop((snapshot, later, range, cursor, keyspace));
        db.close().unwrap();
        let db = setup.open();
        assert_eq!(keys(db.open_keyspace(NAME).unwrap().iter()), all(2000..2600), "{setup}");
        assert_whole(&db);
    }
}

#[test]
fn what_nobody_sees_any_more_is_given_back() {
    for engine in cleared_engines() {
        let setup = Setup::memory().engine(engine);
        let (db, keyspace) = setup.start();
        fill(&keyspace, 0..2000);
        keyspace.persist().unwrap();
        let snapshot = db.snapshot();
        keyspace.clear().unwrap();
        keyspace.persist().unwrap();
        db.settle().unwrap();
        let bytes = || {
            setup
                .fs
                .list(&setup.path.join("keyspaces/1"))
                .unwrap()
                .into_iter()
                .map(|name| {
                    let path = setup.path.join("keyspaces/1").join(name);
                    let layer = turbidite::Layer::Positional;
                    // It may go meanwhile.
                    let file = setup.fs.open(&path, turbidite::vfs::Access::Read, layer);
                    file.map_or(0, |file| file.len().unwrap())
                })
                .sum::<u64>()
        };
        assert!(bytes() > 5_000_000, "{engine}: what a snapshot sees is gone");
        assert_eq!(snapshot.count(&keyspace).unwrap(), 2000);
        drop(snapshot);
        let start = Instant::now();
        while engine != EngineKind::Btree && bytes() > 200_000 {
            assert!(start.elapsed() < Duration::from_secs(20), "{engine}: it is kept");
            std::thread::sleep(Duration::from_millis(1));
        }
        // A tree gives back what is at the end of its file when it is written to.
        keyspace.put("k", "v").unwrap();
        keyspace.compact().unwrap();
        db.settle().unwrap();
        assert!(bytes() < 200_000, "{engine}: {} bytes are left", bytes());
    }
}

#[test]
fn what_came_after_a_clear_is_not_kept_for_snapshots_from_before() {
    let setup = Setup::memory().engine(EngineKind::Skip);
    let (db, keyspace) = setup.start();
    fill(&keyspace, 0..100);
    keyspace.persist().unwrap();
    let snapshot = db.snapshot();
    keyspace.clear().unwrap();
    keyspace.load_sorted((0..100_u32).map(|number| (number.to_be_bytes(), "loaded"))).unwrap();
    keyspace.persist().unwrap();
    db.settle().unwrap();
    let names = setup.fs.list(&setup.path.join("keyspaces/1")).unwrap();
    let files: Vec<_> = names.iter().filter(|name| name.ends_with(".sorted")).collect();
    assert_eq!(files.len(), 2, "not the one from before and the one there is: {files:?}");
    assert_eq!(snapshot.count(&keyspace).unwrap(), 100);
}

/// A file system in memory that takes its time to remove files of keyspaces, once it is told to.
#[derive(Debug)]
struct SlowFs {
    inner: MemoryFs,
    is_shut: AtomicBool,
    removals: AtomicUsize,
}

impl Fs for SlowFs {
    fn open(&self, path: &Path, access: Access, layer: Layer) -> turbidite::Result<Arc<dyn File>> {
        self.inner.open(path, access, layer)
    }
    fn create(&self, path: &Path, layer: Layer) -> turbidite::Result<Arc<dyn File>> {
        self.inner.create(path, layer)
    }
    fn remove(&self, path: &Path) -> turbidite::Result<()> {
        if path.parent().is_some_and(|dir| dir.ends_with("keyspaces/1")) {
            self.removals.fetch_add(1, Ordering::SeqCst);
            while self.is_shut.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.inner.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> turbidite::Result<()> {
        self.inner.rename(from, to)
    }
    fn create_dir(&self, path: &Path) -> turbidite::Result<()> {
        self.inner.create_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> turbidite::Result<()> {
        self.inner.remove_dir(path)
    }
    fn list(&self, dir: &Path) -> turbidite::Result<Vec<String>> {
        self.inner.list(dir)
    }
    fn kind(&self, path: &Path) -> turbidite::Result<Option<PathKind>> {
        self.inner.kind(path)
    }
    fn sync_dir(&self, dir: &Path) -> turbidite::Result<()> {
        self.inner.sync_dir(dir)
    }
    fn open_dir(&self, dir: &Path) -> turbidite::Result<Box<dyn Dir>> {
        self.inner.open_dir(dir)
    }
    fn lock(&self, path: &Path, access: Access) -> turbidite::Result<LockGuard> {
        self.inner.lock(path, access)
    }
    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}

#[test]
fn writers_do_not_wait_for_files_that_go() {
    for engine in [EngineKind::Lsm, EngineKind::Skip] {
        let (inner, is_shut) = (MemoryFs::new(), AtomicBool::new(false));
        let fs = Arc::new(SlowFs { inner, is_shut, removals: AtomicUsize::new(0) });
        let setup = Setup::on(Arc::clone(&fs)).engine(engine);
        let (db, keyspace) = setup.start();
        fill(&keyspace, 0..100);
        keyspace.persist().unwrap();
        db.settle().unwrap();
        let snapshot = db.snapshot();
        keyspace.clear().unwrap();
        keyspace.persist().unwrap();
        db.settle().unwrap();
        fs.is_shut.store(true, Ordering::SeqCst);
        let before = fs.removals.load(Ordering::SeqCst);
        drop(snapshot);
        let settling = std::thread::spawn({
            let db = db.clone();
            move || db.settle()
        });
        let (done, outcome) = mpsc::channel();
        let fs_too = Arc::clone(&fs);
        std::thread::spawn(move || {
            while fs_too.removals.load(Ordering::SeqCst) == before {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Enough to freeze a memtable.
            fill(&keyspace, 0..1000);
            keyspace.clear().unwrap();
            done.send(()).unwrap();
        });
        let outcome = outcome.recv_timeout(Duration::from_secs(20));
        fs.is_shut.store(false, Ordering::SeqCst);
        outcome.unwrap_or_else(|_| panic!("{engine}: a write waits for a file to be removed"));
        settling.join().unwrap().unwrap();
        assert_whole(&db);
    }
}

#[test]
fn a_hash_keyspace_says_that_it_cannot_be_cleared() {
    let (_, keyspace) = Setup::memory().engine(EngineKind::Hash).start();
    keyspace.put("k", "v").unwrap();
    let error = keyspace.clear().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("delete its keys"), "{error}");
    assert!(keyspace.contains("k").unwrap());
}

#[test]
fn clears_go_on_beside_writers_flushes_and_compactions() {
    for engine in cleared_engines() {
        let setup = Setup::memory().engine(engine);
        let (db, keyspace) = setup.start();
        let is_written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..6).for_each(|_| fill(&keyspace, 0..1500));
                is_written.store(true, Ordering::Release);
            });
            let compactor = scope.spawn(|| {
                while !is_written.load(Ordering::Acquire) {
                    keyspace.compact().unwrap();
                }
            });
            let mut clears = 0;
            while !compactor.is_finished() {
                let snapshot = db.snapshot();
                let before = snapshot.count(&keyspace).unwrap();
                keyspace.clear().unwrap();
                clears += 1;
                assert!(keyspace.count().unwrap() <= 1500);
                assert_eq!(snapshot.count(&keyspace).unwrap(), before, "{engine}");
            }
            assert!(clears > 3, "{engine}");
        });
        keyspace.clear().unwrap();
        fill(&keyspace, 7..9);
        db.settle().unwrap();
        assert_eq!(keys(keyspace.iter()), [7, 8], "{engine}");
        assert_whole(&db);
        drop((keyspace, db));
        let db = setup.open();
        assert_eq!(keys(db.open_keyspace(NAME).unwrap().iter()), [7, 8], "{engine}");
        assert_whole(&db);
    }
}

#[test]
fn a_snapshot_sees_all_it_saw_though_only_newer_runs_were_merged_before_a_clear() {
    let setup = Setup::memory().engine(EngineKind::Skip);
    let (db, keyspace) = setup.start();
    fill(&keyspace, 0..2000);
    keyspace.compact().unwrap();
    let first = db.snapshot();
    let load = |numbers: std::ops::Range<u32>| {
        keyspace.load_sorted(numbers.map(|number| (number.to_be_bytes(), [7; 3000]))).unwrap();
    };
    // One run that is not merged, and some behind it that are.
    load(2000..2100);
    (0..4).for_each(|number| load(3000 + number..3001 + number));
    let second = db.snapshot();
    (4..8).for_each(|number| load(3000 + number..3001 + number));
    db.settle().unwrap();
    assert_eq!(keyspace.stats().skip.unwrap().runs, 2, "nothing was merged");
    let check = || {
        assert_eq!(first.count(&keyspace).unwrap(), 2000);
        assert_eq!(keys(first.iter(&keyspace)), all(0..2000));
        assert_eq!(second.count(&keyspace).unwrap(), 2104);
        assert!(first.get(&keyspace, 5_u32.to_be_bytes()).unwrap().is_some());
    };
    check();
    keyspace.clear().unwrap();
    check();
    db.settle().unwrap();
    keyspace.persist().unwrap();
    check();
    assert_eq!(keyspace.count().unwrap(), 0);
}

#[test]
fn what_a_compaction_in_vain_has_read_stays_until_the_manifest_has_the_clear() {
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let mut setup = Setup::on(Arc::new(faults.clone()));
    setup.options = setup.options.separate_values(1000);
    let (db, keyspace) = setup.start();
    // Four flushes make a compaction due. It is slow to begin its table.
    let slow = Effect::Delay(std::time::Duration::from_millis(300));
    let fault = Fault::new(Operation::Create, slow);
    faults.arm(Fault { name_contains: ".table".into(), after: 4, ..fault });
    for _ in 0..4 {
        fill(&keyspace, 0..50);
        keyspace.persist().unwrap();
    }
    while faults.fired() == 0 {
        std::thread::yield_now();
    }
    let full = Fault::new(Operation::Write, Effect::Fail(Errno::Raw(28)));
    faults.arm(Fault { name_contains: "manifest".into(), times: Times::Always, ..full });
    let removed = faults.calls(Operation::Remove);
    keyspace.clear().unwrap();
    // What it has written is of no use.
    while faults.calls(Operation::Remove) == removed {
        std::thread::yield_now();
    }
    assert_eq!(keyspace.stats().compactions, 0);
    drop(keyspace);
    db.close().unwrap();
    faults.disarm();
    let db = setup.open();
    let keyspace = db.open_keyspace(NAME).unwrap();
    assert_eq!(keyspace.count().unwrap(), 0);
    db.settle().unwrap();
    assert_whole(&db);
}

// ---- power cuts ----

/// One that is cleared, one that is written to meanwhile, one without the log.
const NAMES: [&str; 3] = ["cleared", "written", "unlogged"];

type State = [BTreeSet<usize>; NAMES.len()];

/// What was done, with where the trace stood when it began and when it was promised.
struct Work {
    fs: MemoryFs,
    faults: FaultFs,
    db: Database,
    engine: EngineKind,
    /// After each step, and where it began.
    states: Vec<(usize, State)>,
    /// So many steps survive a kill, and power loss, from that place of the trace on.
    promises: Vec<(usize, usize, usize)>,
    /// The same for the keyspace without the log, by power loss.
    unlogged: Vec<(usize, usize)>,
}

fn open(fs: Arc<dyn Fs>, read_only: bool) -> turbidite::Result<Database> {
    Database::builder(PATH).memory_budget(8 << 20).file_system(fs).read_only(read_only).open()
}

fn key(number: usize) -> String {
    format!("{number:03}")
}

impl Work {
    fn new(engine: EngineKind) -> Self {
        let fs = MemoryFs::traced();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let db = open(Arc::new(faults.clone()), false).unwrap();
        for name in NAMES {
            let engine = if name == NAMES[1] { EngineKind::Lsm } else { engine };
            db.keyspace(name, options(engine).log(name != NAMES[2])).unwrap();
        }
        let states = vec![(0, State::default())];
        let (promises, unlogged) = (vec![(fs.operations(), 0, 0)], vec![(fs.operations(), 0)]);
        Self { fs, faults, db, engine, states, promises, unlogged }
    }

    /// Takes a step that changes a keyspace.
    fn step(
        &mut self,
        at: usize,
        durability: Durability,
        step: impl FnOnce(&Keyspace, usize),
        change: impl FnOnce(&mut BTreeSet<usize>, usize),
    ) {
        let number = self.states.len();
        let mut next = self.states.last().unwrap().1.clone();
        change(&mut next[at], number);
        self.states.push((self.fs.operations(), next));
        step(&self.db.open_keyspace(NAMES[at]).unwrap(), number);
        let &(_, killed, cut) = self.promises.last().unwrap();
        let promise = match durability {
            _ if at == 2 => (killed, cut),
            Durability::Sync => (number, number),
            Durability::Os => (number, cut),
            Durability::Buffered => (killed, cut),
        };
        self.promises.push((self.fs.operations(), promise.0, promise.1));
    }

    fn put(&mut self, at: usize, durability: Durability) {
        self.step(
            at,
            durability,
            |keyspace, number| keyspace.put_with(key(number), vec![7; 900], durability).unwrap(),
            |state, number| _ = state.insert(number),
        );
    }

    fn clear(&mut self, at: usize, durability: Durability) {
        self.step(
            at,
            durability,
            |keyspace, _| keyspace.clear_with(durability).unwrap(),
            |state, _| state.clear(),
        );
    }

    fn load(&mut self, at: usize) {
        if self.engine == EngineKind::Btree {
            return self.put(at, Durability::Sync);
        }
        self.step(
            at,
            Durability::Sync,
            |keyspace, number| {
                keyspace.load_sorted([(key(number), vec![8; 900])]).unwrap();
            },
            |state, number| _ = state.insert(number),
        );
        if at == 2 {
            self.unlogged_is_safe();
        }
    }

    fn persist(&mut self, at: usize) {
        self.db.open_keyspace(NAMES[at]).unwrap().persist().unwrap();
        if at == 2 {
            self.unlogged_is_safe();
        }
    }

    fn unlogged_is_safe(&mut self) {
        self.unlogged.push((self.fs.operations(), self.states.len() - 1));
    }

    /// From now on files that tell of others have no room.
    fn fill_disk(&self) {
        let fault = Fault::new(Operation::Write, Effect::Fail(Errno::Raw(28)));
        let names = if self.engine == EngineKind::Btree { "tree" } else { "manifest" };
        self.faults.arm(Fault { name_contains: names.into(), times: Times::Always, ..fault });
    }

    fn check(&self, at: usize, image: &MemoryFs, killed: bool) -> Result<(), String> {
        let fs = || Arc::new(image.clone());
        let read = |db: &Database| -> Result<State, String> {
            let mut state = State::default();
            for (name, found) in NAMES.iter().zip(&mut state) {
                let keyspace = db.open_keyspace(name).map_err(|error| error.to_string())?;
                for item in keyspace.iter() {
                    let (key, _) = item.map_err(|error| error.to_string())?;
                    found.insert(std::str::from_utf8(&key).unwrap().parse().unwrap());
                }
            }
            Ok(state)
        };
        let first = read(&open(fs(), true).map_err(|error| error.to_string())?)?;
        let db = open(fs(), false).map_err(|error| error.to_string())?;
        let found = read(&db)?;
        if found != first {
            return Err(format!("readers see {first:?}, not {found:?}"));
        }
        let begun = self.states.partition_point(|(begun, _)| *begun <= at);
        let last = |promises: &[(usize, usize)]| {
            promises[promises.partition_point(|(since, _)| *since <= at) - 1].1
        };
        let promised: Vec<_> =
            self.promises.iter().map(|&(at, k, c)| (at, if killed { k } else { c })).collect();
        let is_one = |from: usize, keyspaces: std::ops::Range<usize>| {
            let same = |state: &State| state[keyspaces.clone()] == found[keyspaces.clone()];
            self.states[from..begun].iter().any(|(_, state)| same(state))
        };
        if !is_one(last(&promised), 0..2) || !is_one(last(&self.unlogged), 2..3) {
            return Err(format!("{found:?} is not what was after any of the steps"));
        }
        let cleared = db.open_keyspace(NAMES[0]).unwrap();
        cleared.put("900", "v").map_err(|error| error.to_string())?;
        cleared.persist().map_err(|error| error.to_string())?;
        let problems = db.verify().map_err(|error| error.to_string())?.problems;
        drop((cleared, db));
        let again = read(&open(fs(), false).map_err(|error| error.to_string())?)?;
        match (again[0].len() == found[0].len() + 1, problems.first()) {
            (true, None) => Ok(()),
            (_, problem) => Err(format!("{again:?} after {found:?}: {problem:?}")),
        }
    }
}

fn every_power_cut_leaves_a_prefix(engine: EngineKind) {
    let mut work = Work::new(engine);
    let from = work.fs.operations();
    for durability in [Durability::Buffered, Durability::Os, Durability::Sync] {
        work.put(1, durability);
        work.put(0, durability);
        work.put(2, durability);
        work.persist(0);
        work.put(0, durability);
        work.clear(0, durability);
        work.put(1, durability);
        work.put(0, durability);
        work.clear(2, durability);
        work.put(2, durability);
    }
    work.persist(2);
    work.load(0);
    work.load(2);
    work.clear(0, Durability::Os);
    work.clear(0, Durability::Buffered);
    work.load(0);
    work.clear(2, Durability::Os);
    work.persist(2);
    // Clears that only the log has, among others.
    work.put(0, Durability::Os);
    work.fill_disk();
    work.clear(0, Durability::Os);
    work.put(0, Durability::Sync);
    work.put(1, Durability::Sync);
    work.clear(0, Durability::Sync);
    work.put(0, Durability::Os);
    work.faults.disarm();
    work.persist(0);
    work.put(0, Durability::Sync);
    let mut problems = Vec::new();
    let last = work.fs.operations();
    for at in from..=last {
        for cut in [PowerCut::KeepAll, PowerCut::DropUnsynced, PowerCut::Random(at as u64)] {
            let image = work.fs.image(at, cut);
            if let Err(problem) = work.check(at, &image, cut == PowerCut::KeepAll) {
                problems.push(format!("at {at}, {cut:?}: {problem}"));
            }
        }
    }
    let shown = problems.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(problems.is_empty(), "{} of {last} operations:\n{shown}", problems.len());
}

#[test]
fn every_power_cut_around_clears_of_an_lsm_tree_leaves_a_prefix() {
    every_power_cut_leaves_a_prefix(EngineKind::Lsm);
}

#[test]
fn every_power_cut_around_clears_of_a_skip_keyspace_leaves_a_prefix() {
    every_power_cut_leaves_a_prefix(EngineKind::Skip);
}

#[test]
fn every_power_cut_around_clears_of_a_btree_leaves_a_prefix() {
    every_power_cut_leaves_a_prefix(EngineKind::Btree);
}
