//! One fault at every call of a workload: errors, full disks, failed syncs.
//!
//! Whatever fails, what was acknowledged stays readable, survives the reopening, and survives a power loss if
//! it was synced; a write that failed is there whole or not at all.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, MemoryFs, Operation, PowerCut, Times};
use turbidite::{Database, Durability, EngineKind, Error, ErrorKind};

use crate::history::{self, Change, Dice, Fingerprint, History, PARTS};

const EIO: Errno = Errno::Raw(5);
const NO_SPACE: Errno = Errno::Raw(28);
/// At most so many calls of one operation get a fault each.
const MOST_CALLS: u64 = 400;

/// What the workload does at each step.
#[derive(Clone, Copy, Debug)]
enum Step {
    Create(&'static str),
    /// Opens the keyspace with other options.
    Choose(&'static str),
    /// So many small commits.
    Commit(usize),
    /// A commit of so many bytes.
    Large(usize),
    PersistKeyspace(&'static str),
    Persist,
    Compact(&'static str),
    Reopen,
}

const WORKLOAD: &[Step] = &[
    Step::Create("alpha"),
    Step::Create("unlogged"),
    Step::Commit(4),
    Step::Create("beta"),
    Step::Create("loose"),
    Step::Create("gamma"),
    Step::Create("stray"),
    Step::Create("delta"),
    Step::Create("apart"),
    Step::Large(90_000),
    Step::Large(90_000),
    Step::Commit(3),
    Step::PersistKeyspace("alpha"),
    Step::Commit(2),
    Step::Persist,
    Step::Large(150_000),
    Step::PersistKeyspace("alpha"),
    Step::PersistKeyspace("beta"),
    Step::PersistKeyspace("loose"),
    Step::PersistKeyspace("gamma"),
    Step::PersistKeyspace("stray"),
    Step::PersistKeyspace("delta"),
    Step::PersistKeyspace("apart"),
    Step::Commit(2),
    Step::Compact("alpha"),
    Step::Compact("beta"),
    Step::Compact("gamma"),
    Step::Compact("delta"),
    Step::Reopen,
    Step::Choose("alpha"),
    Step::Choose("unlogged"),
    Step::Commit(4),
    Step::PersistKeyspace("unlogged"),
    Step::Compact("unlogged"),
    Step::PersistKeyspace("stray"),
    Step::PersistKeyspace("gamma"),
    Step::PersistKeyspace("delta"),
    Step::Compact("loose"),
    Step::Compact("apart"),
    Step::Large(200_000),
    Step::Compact("beta"),
    Step::Commit(3),
];

/// The workload under way, over a file system with faults.
struct Run {
    memory: MemoryFs,
    faulty: FaultFs,
    db: Option<Database>,
    history: History,
    dice: Dice,
    /// A commit failed and it is unknown whether it is there.
    unsure: bool,
    /// What went wrong, to be told with a failure of the test.
    told: Vec<String>,
}

impl Run {
    fn new() -> Self {
        let memory = MemoryFs::traced();
        let faulty = FaultFs::new(Arc::new(memory.clone()));
        let (history, dice) = (History::new(), Dice::new(3));
        Self { memory, faulty, db: None, history, dice, unsure: false, told: Vec::new() }
    }

    fn tell(&mut self, what: &str, error: &Error) {
        let text = format!("{what}: {error:?}");
        assert!(!text.contains("panic"), "{text}");
        self.told.push(text);
    }

    /// Opens the database; a single fault fails at most one attempt.
    fn open(&mut self) {
        if self.db.is_some() {
            return;
        }
        let faulty = self.faulty.clone();
        let open = || history::builder(Arc::new(faulty.clone())).open();
        let db = match open() {
            Ok(db) => db,
            Err(error) => {
                self.tell("open", &error);
                open().unwrap_or_else(|error| panic!("the second opening fails too: {error:?}"))
            }
        };
        let state = Fingerprint::of(&db);
        self.db = Some(db);
        self.check_recovered(state);
    }

    /// A reopened database has all that was acknowledged.
    fn check_recovered(&mut self, state: turbidite::Result<Fingerprint>) {
        let state = match state {
            Ok(state) => state,
            Err(error) => {
                self.tell("read after opening", &error);
                Fingerprint::of(self.db.as_ref().unwrap()).unwrap()
            }
        };
        let promised = self.history.promised();
        let found = self.history.find(state, 0, promised.needed(true));
        let found = found.unwrap_or_else(|p| panic!("{p}; {:#?}", self.told));
        // From here on the history is what was found.
        if found != [self.history.commits(); PARTS] {
            let model = self.read_model();
            self.history = History::new();
            self.history.begin(0, &model);
        }
        // Recovery makes what it shows safe before it shows it.
        self.promise_all();
        self.unsure = false;
    }

    fn read_model(&self) -> Vec<Change> {
        let db = self.db.as_ref().unwrap();
        let mut all = Vec::new();
        for (name, ..) in history::KEYSPACES {
            let Ok(keyspace) = db.open_keyspace(name) else { continue };
            for entry in keyspace.iter() {
                let (key, value) = entry.unwrap();
                all.push((name, key.to_vec(), Some(value.to_vec())));
            }
        }
        all
    }

    fn promise_all(&mut self) {
        let commits = self.history.commits();
        self.history.promise(0, |promise| promise.all(commits));
    }

    /// What the open handle shows is what was acknowledged, with or without the commit that failed.
    fn check_handle(&mut self, before: &Fingerprint) {
        let db = self.db.as_ref().unwrap();
        let state = Fingerprint::of(db).or_else(|error| {
            self.told.push(format!("read: {error:?}"));
            Fingerprint::of(db)
        });
        let state = state.unwrap_or_else(|e| panic!("unreadable: {e:?}; {:#?}", self.told));
        let expected = self.history.model.fingerprint;
        assert!(state == expected || (self.unsure && state == *before), "{:#?}", self.told);
    }

    fn commit(&mut self, changes: &[Change], durability: Durability) {
        let before = self.history.model.clone();
        self.history.begin(0, changes);
        let outcome = history::commit(self.db.as_ref().unwrap(), changes, durability);
        match outcome {
            Ok(()) => {
                let commits = self.history.commits();
                self.history.promise(0, |promise| {
                    promise.handed_over = commits;
                    if durability == Durability::Sync {
                        promise.synced = commits;
                    }
                });
            }
            // Nothing was written, and the handle goes on.
            Err(error) if matches!(error.kind(), ErrorKind::NoSpace) => {
                self.tell("commit", &error);
                self.history.withdraw(before.clone());
                self.check_handle(&before.fingerprint);
            }
            Err(error) => {
                self.tell("commit", &error);
                self.unsure = true;
                self.check_handle(&before.fingerprint);
                self.expect_poisoned();
                self.drop_and_open();
            }
        }
    }

    fn expect_poisoned(&self) {
        let db = self.db.as_ref().unwrap();
        let error = db.open_keyspace("alpha").and_then(|alpha| alpha.put("x", "y")).unwrap_err();
        let kinds = [ErrorKind::Poisoned, ErrorKind::UnknownKeyspace];
        assert!(kinds.contains(&error.kind()), "{error:?} after {:#?}", self.told);
    }

    fn drop_and_open(&mut self) {
        if let Err(error) = self.db.take().expect("it is open").close() {
            self.tell("close", &error);
        }
        self.open();
    }

    /// Runs a call that is no write. If it fails it is tried again, after reopening if writes are refused.
    fn call(&mut self, what: Step, call: impl Fn(&Database) -> turbidite::Result<()>) {
        for _ in 0..3 {
            match call(self.db.as_ref().unwrap()) {
                Ok(()) => return,
                Err(error) => {
                    self.tell(&format!("{what:?}"), &error);
                    let state = self.history.model.fingerprint;
                    self.check_handle(&state);
                    let probe = self.db.as_ref().unwrap().persist();
                    if probe.is_err_and(|error| error.kind() == ErrorKind::Poisoned) {
                        self.drop_and_open();
                    }
                }
            }
        }
        panic!("{what:?} does not succeed although there was but one fault: {:#?}", self.told);
    }

    fn changes(&mut self) -> Vec<Change> {
        let db = self.db.as_ref().unwrap();
        let names: Vec<_> = history::KEYSPACES.iter().map(|&(name, ..)| name).collect();
        let known: Vec<_> = names.into_iter().filter(|n| db.open_keyspace(n).is_ok()).collect();
        let mut changes = Vec::new();
        for _ in 0..3 {
            let keyspace = known[self.dice.roll(known.len())];
            let key = format!("key {}", self.dice.roll(12)).into_bytes();
            let value = (self.dice.roll(4) > 0).then(|| self.dice.bytes(100));
            changes.push((keyspace, key, value));
        }
        // A logged one is always among them, so that every commit leaves a trace in the log.
        changes.push(("alpha", b"count".to_vec(), Some(self.dice.bytes(8))));
        changes
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Create(name) => self.call(step, |db| history::create(db, name, 0)),
            Step::Choose(name) => self.call(step, |db| history::create(db, name, 1)),
            Step::Commit(count) => {
                for number in 0..count {
                    let changes = self.changes();
                    let durability = [Durability::Os, Durability::Sync][number % 2];
                    self.commit(&changes, durability);
                }
            }
            Step::Large(bytes) => {
                let value = self.dice.bytes(bytes);
                self.commit(&[("alpha", b"large".to_vec(), Some(value))], Durability::Os);
            }
            Step::PersistKeyspace(name) => {
                self.call(step, |db| db.open_keyspace(name)?.persist());
                let commits = self.history.commits();
                if !history::is_logged(name) {
                    let part = history::part_of(name);
                    self.history.promise(0, |promise| promise.persisted[part] = commits);
                }
            }
            Step::Persist => {
                self.call(step, Database::persist);
                self.promise_all();
            }
            Step::Compact(name) => self.call(step, |db| db.open_keyspace(name)?.compact()),
            Step::Reopen => {
                let closed = self.db.take().expect("it is open").close();
                match closed {
                    Ok(()) => self.promise_all(),
                    Err(error) => self.tell("close", &error),
                }
                self.open();
            }
        }
    }

    fn run(&mut self, before_step: impl Fn(usize, &MemoryFs)) {
        before_step(0, &self.memory);
        self.open();
        for (index, &step) in WORKLOAD.iter().enumerate() {
            before_step(index + 1, &self.memory);
            self.step(step);
        }
    }

    /// The end: without faults everything is there, after a kill and after a power loss.
    fn finish(mut self) {
        drop(self.db.take());
        self.faulty.disarm();
        let promised = self.history.promised();
        let at = self.memory.operations();
        for cut in [PowerCut::KeepAll, PowerCut::DropUnsynced, PowerCut::Random(at as u64)] {
            let image = self.memory.image(at, cut);
            let db = history::open(&image)
                .unwrap_or_else(|error| panic!("{cut:?}: {error:?} after {:#?}", self.told));
            let state = Fingerprint::of(&db).unwrap();
            let needed = promised.needed(cut == PowerCut::KeepAll);
            let found = self.history.find(state, 0, needed);
            found.unwrap_or_else(|problem| panic!("{cut:?}: {problem} after {:#?}", self.told));
            let report = db.verify().unwrap();
            assert!(report.problems.is_empty(), "{:?} after {:#?}", report.problems, self.told);
        }
    }
}

/// Runs `cases` on as many threads as there are processors.
fn in_parallel<T: Send + std::fmt::Debug>(cases: Vec<T>, run: impl Fn(&T) + Sync) {
    let cases = Mutex::new(cases.into_iter());
    let running = || {
        loop {
            let case = cases.lock().unwrap().next();
            let Some(case) = case else { return };
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&case)));
            assert!(told.is_ok(), "with {case:?}");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, |n| n.get()) {
            scope.spawn(running);
        }
    });
}

#[test]
fn any_single_fault_loses_nothing_that_was_acknowledged() {
    let mut plain = Run::new();
    plain.run(|_, _| {});
    assert!(plain.told.is_empty(), "{:#?}", plain.told);
    let calls = Operation::ALL.map(|operation| (operation, plain.faulty.calls(operation)));
    plain.finish();
    let mut faults = Vec::new();
    for (operation, count) in calls {
        let step = count.div_ceil(MOST_CALLS).max(1);
        for after in (0..count).step_by(step as usize) {
            let mut effects =
                vec![Effect::Fail(EIO), Effect::Fail(NO_SPACE), Effect::FailDone(EIO)];
            if matches!(operation, Operation::Read | Operation::Write) {
                effects.extend([Effect::FailShort(37, EIO), Effect::FailShort(37, NO_SPACE)]);
            }
            let fault = |effect| Fault { after, ..Fault::new(operation, effect) };
            faults.extend(effects.into_iter().map(fault));
        }
    }
    let (count, fired) = (faults.len(), AtomicUsize::new(0));
    in_parallel(faults, |fault| {
        let mut run = Run::new();
        run.faulty.arm(fault.clone());
        run.run(|_, _| {});
        fired.fetch_add(run.faulty.fired() as usize, Ordering::Relaxed);
        run.finish();
    });
    println!("{count} faults, {} of them met", fired.into_inner());
}

#[test]
fn a_failed_sync_is_never_followed_by_an_acknowledgement_that_is_lost() {
    let tables = [".table", ".values"];
    let others = [".log", "catalog", "manifest", ".data", ".index", "tree", ".sorted"];
    let names = [&tables[..], &others].concat();
    let steps = 0..=WORKLOAD.len();
    let cases: Vec<_> =
        steps.flat_map(|step| names.iter().map(move |&name| (step, name))).collect();
    in_parallel(cases, |&(step, name)| {
        let mut run = Run::new();
        run.run(|at, memory| {
            if at == step {
                memory.lose_sync(name);
            }
        });
        run.finish();
    });
}

/// A keyspace of each engine.
const EACH_ENGINE: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

/// A database with some keys of a keyspace in its files and some in the log.
fn filled(fs: &MemoryFs, name: &str) -> Database {
    let put = |db: &Database, numbers: Range<u32>| {
        let keyspace = db.keyspace(name, history::options(name)).unwrap();
        for number in numbers {
            keyspace.put(format!("{number:04}"), vec![number as u8; 2000]).unwrap();
        }
    };
    let db = history::open(fs).unwrap();
    put(&db, 0..31);
    // Afterwards no file has room in reserve.
    db.close().unwrap();
    let db = history::open(fs).unwrap();
    put(&db, 31..50);
    db
}

fn filled_keys(db: &Database, name: &str) -> usize {
    let keyspace = db.open_keyspace(name).unwrap();
    for number in 0..50 {
        let value = keyspace.get(format!("{number:04}")).unwrap().expect("it was acknowledged");
        assert_eq!(*value, vec![number as u8; 2000]);
    }
    keyspace
        .iter()
        .map(|entry| entry.map(drop))
        .collect::<turbidite::Result<Vec<_>>>()
        .unwrap()
        .len()
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    EACH_ENGINE.into_iter().for_each(fill_the_disk);
}

fn fill_the_disk(name: &str) {
    for room in [0, 100_000, 1_000_000] {
        let fs = MemoryFs::traced();
        let db = filled(&fs, name);
        let keyspace = db.open_keyspace(name).unwrap();
        let used: usize = fs.files().iter().map(|(_, bytes)| bytes.len()).sum();
        fs.quota(Some((used + room) as u64));
        let mut written = 0;
        let refused = loop {
            match keyspace.put(format!("more {written:06}"), vec![1; 30_000]) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 10_000, "the disk is never full");
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused:?}");
        assert_eq!(filled_keys(&db, name), 50 + written);

        // It opens on a full disk, too: after a kill, and with a torn tail.
        for cut in
            [PowerCut::KeepAll, PowerCut::DropUnsynced, PowerCut::Random(1), PowerCut::Random(2)]
        {
            let image = fs.image(fs.operations(), cut);
            image.quota(Some(0));
            let db = history::open(&image).unwrap_or_else(|error| panic!("{cut:?}: {error:?}"));
            if cut == PowerCut::KeepAll {
                assert_eq!(filled_keys(&db, name), 50 + written);
            }
        }

        fs.quota(None);
        keyspace.put("after", "there is space again").unwrap();
        keyspace.persist().unwrap();
        db.close().unwrap();
        let db = history::open(&fs).unwrap();
        assert_eq!(filled_keys(&db, name), 51 + written);
        assert!(db.verify().unwrap().problems.is_empty());
    }
}

#[test]
fn a_full_disk_stops_no_reader_and_flushes_resume() {
    EACH_ENGINE.into_iter().for_each(read_on_a_full_disk);
}

fn read_on_a_full_disk(name: &str) {
    let fs = MemoryFs::new();
    let db = filled(&fs, name);
    let keyspace = db.open_keyspace(name).unwrap();
    let used: usize = fs.files().iter().map(|(_, bytes)| bytes.len()).sum();
    fs.quota(Some(used as u64 + 10));
    let error = keyspace.persist().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
    assert_eq!(filled_keys(&db, name), 50);
    fs.quota(None);
    keyspace.compact().unwrap();
    assert_eq!(filled_keys(&db, name), 50);
    assert_eq!(keyspace.stats().levels.len(), if name == "alpha" { 1 } else { 0 });
}

#[test]
fn a_read_only_file_system_is_read_and_not_changed() {
    EACH_ENGINE.into_iter().for_each(read_what_is_read_only);
}

fn read_what_is_read_only(name: &str) {
    let fs = MemoryFs::new();
    drop(filled(&fs, name));
    fs.write_file(&Path::new(history::PATH).join("log/999999.log"), b"").unwrap();
    let before = fs.files();
    fs.set_read_only(true);
    let error = history::open(&fs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
    let db = history::builder(Arc::new(fs.clone())).read_only(true).open().unwrap();
    assert_eq!(filled_keys(&db, name), 50);
    let keyspace = db.open_keyspace(name).unwrap();
    assert_eq!(keyspace.put("x", "y").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(keyspace.persist().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(db.verify().unwrap().problems.is_empty());
    db.close().unwrap();
    assert_eq!(fs.files(), before);

    let nothing = MemoryFs::new();
    let opened = history::builder(Arc::new(nothing.clone())).read_only(true).open();
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::NotADatabase);
    assert!(nothing.files().is_empty());
}

/// What is in the names of the files that hold a keyspace's data.
fn data_files(name: &str) -> &'static str {
    let (_, engine, _) = history::KEYSPACES.into_iter().find(|known| known.0 == name).unwrap();
    match engine {
        EngineKind::Lsm => ".table",
        EngineKind::Hash => ".data",
        EngineKind::Btree => "tree",
        _ => ".sorted",
    }
}

fn read_fault(files: &str, times: Times) -> Fault {
    Fault { times, name_contains: files.into(), ..Fault::new(Operation::Read, Effect::Fail(EIO)) }
}

#[test]
fn a_cursor_that_failed_stays_failed() {
    ["alpha", "gamma", "delta"].into_iter().for_each(fail_a_cursor);
}

fn fail_a_cursor(name: &str) {
    let fs = MemoryFs::new();
    let db = filled(&fs, name);
    db.open_keyspace(name).unwrap().persist().unwrap();
    db.close().unwrap();
    let faulty = FaultFs::new(Arc::new(fs));
    let db = history::builder(Arc::new(faulty.clone())).open().unwrap();
    let keyspace = db.open_keyspace(name).unwrap();
    let mut cursor = keyspace.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    faulty.arm(read_fault(data_files(name), Times::Once));
    let error = loop {
        match cursor.next() {
            Ok(()) => assert!(cursor.is_valid(), "the walk ended although a read failed"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(!cursor.is_valid());
    assert_eq!(cursor.next().unwrap_err().to_string(), error.to_string());
    assert_eq!(cursor.seek_to_first().unwrap_err().to_string(), error.to_string());
    assert_eq!(filled_keys(&db, name), 50);
}

#[test]
fn a_compaction_that_cannot_read_keeps_its_inputs() {
    EACH_ENGINE.into_iter().for_each(compact_without_reading);
}

fn compact_without_reading(name: &str) {
    let fs = MemoryFs::new();
    drop(filled(&fs, name));
    let faulty = FaultFs::new(Arc::new(fs.clone()));
    let db = history::builder(Arc::new(faulty.clone())).open().unwrap();
    let keyspace = db.open_keyspace(name).unwrap();
    keyspace.persist().unwrap();
    let files = data_files(name);
    let tables = || -> BTreeSet<_> {
        let files_there = fs.files().into_iter();
        files_there.filter(|(path, _)| path.to_string_lossy().ends_with(files)).collect()
    };
    let inputs = tables();
    let is_skip = files == ".sorted";
    if is_skip {
        // Its file is as compact as can be until something changes.
        keyspace.put("0000", vec![0; 2000]).unwrap();
    }
    faulty.arm(read_fault(files, Times::Always));
    assert_eq!(keyspace.compact().unwrap_err().kind(), ErrorKind::Io);
    match is_skip {
        true => assert!(tables().is_superset(&inputs), "{name}"),
        false => assert!(tables() == inputs, "{name}"),
    }
    faulty.disarm();
    assert_eq!(filled_keys(&db, name), 50);
    keyspace.compact().unwrap();
    assert_eq!(filled_keys(&db, name), 50);
    assert!(tables().is_disjoint(&inputs), "{name}");
}

#[test]
fn an_opening_that_cannot_read_changes_nothing() {
    EACH_ENGINE.into_iter().for_each(open_without_reading);
}

fn open_without_reading(name: &str) {
    let fs = MemoryFs::new();
    drop(filled(&fs, name));
    let before = fs.files();
    let counted = FaultFs::new(Arc::new(fs.fork()));
    drop(history::builder(Arc::new(counted.clone())).read_only(true).open().unwrap());
    let reads = [Operation::Read, Operation::Open, Operation::List];
    for (operation, calls) in reads.map(|operation| (operation, counted.calls(operation))) {
        for after in 0..calls {
            let fork = fs.fork();
            let faulty = FaultFs::new(Arc::new(fork.clone()));
            let failing = Effect::Fail(Errno::Kind(io::ErrorKind::Other));
            faulty.arm(Fault { after, ..Fault::new(operation, failing) });
            match history::builder(Arc::new(faulty)).open() {
                Ok(db) => assert_eq!(filled_keys(&db, name), 50),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
                    assert_eq!(fork.files(), before, "{operation:?} {after}: {error:?}");
                }
            }
        }
    }
}

#[test]
fn a_flush_that_finds_no_space_anywhere_is_done_again() {
    EACH_ENGINE.into_iter().for_each(flush_without_space);
}

fn flush_without_space(name: &str) {
    let taken = |fs: &MemoryFs| fs.files().iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
    let fs = MemoryFs::new();
    let db = filled(&fs, name);
    let before = taken(&fs);
    db.open_keyspace(name).unwrap().persist().unwrap();
    let needed = taken(&fs) - before;
    let mut refused = 0;
    let rooms: Vec<u64> = match data_files(name) {
        // Its file grows by more than is needed, if there is room.
        "tree" => (0..80_000).step_by(997).collect(),
        // The last bytes needed are those of the manifest.
        _ => (0..needed).step_by(9973).chain(needed - 160..=needed).collect(),
    };
    for room in rooms {
        let fs = MemoryFs::new();
        let db = filled(&fs, name);
        let keyspace = db.open_keyspace(name).unwrap();
        fs.quota(Some(taken(&fs) + room));
        if let Err(error) = keyspace.persist() {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{room} of {needed}: {error:?}");
            refused += 1;
        }
        fs.quota(None);
        keyspace.put("after", "there is space again").unwrap();
        keyspace.persist().unwrap_or_else(|error| panic!("{room} of {needed}: {error:?}"));
        db.close().unwrap();
        let db = history::open(&fs).unwrap();
        assert_eq!(filled_keys(&db, name), 51);
        assert!(db.verify().unwrap().problems.is_empty());
    }
    assert!(refused > 10, "the quota hit {refused} times only");
}

#[test]
fn one_keyspace_without_space_does_not_hang_the_others() {
    let fs = MemoryFs::new();
    let db = history::open(&fs).unwrap();
    let keyspaces = ["unlogged", "loose", "stray", "apart"]
        .map(|name| db.keyspace(name, history::options(name)).unwrap());
    fs.quota(Some(0));
    let fill = |keyspace: &turbidite::Keyspace| {
        let outcome = (0..100_000_u32).find_map(|n| keyspace.put(n.to_le_bytes(), [1; 5000]).err());
        outcome.expect("memory is full at some point")
    };
    for keyspace in &keyspaces {
        assert_eq!(fill(keyspace).kind(), ErrorKind::NoSpace, "{}", keyspace.name());
    }
    fs.quota(None);
    for keyspace in &keyspaces {
        while keyspace.put("after", "there is space again").is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    db.close().unwrap();
}
