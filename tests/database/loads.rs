//! Sorted loads among other writes: wherever the power fails, what is left is a prefix of what was written, and has all
//! that was promised.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, Fs, MemoryFs, Operation, PowerCut, Times};
use turbidite::{Database, Durability, EngineKind, ErrorKind, KeyspaceOptions, Result};

use crate::setup::options;

const PATH: &str = "/data/loads.db";
/// One that is loaded, one that is written to meanwhile.
const NAMES: [&str; 2] = ["loaded", "written"];
/// Records of a load: enough for several blocks.
const RECORDS: usize = 200;

fn open(fs: Arc<dyn Fs>) -> Result<Database> {
    Database::builder(PATH).memory_budget(8 << 20).file_system(fs).open()
}

/// What was done, with where the trace stood when it began and when it was promised.
#[derive(Default)]
struct History {
    begun: Vec<usize>,
    /// So many steps survive a kill, and power loss, from that place of the trace on.
    promises: Vec<(usize, usize, usize)>,
}

struct Work {
    fs: MemoryFs,
    faults: FaultFs,
    db: Database,
    history: History,
}

impl Work {
    fn new(engine: EngineKind) -> Self {
        let fs = MemoryFs::traced();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let db = open(Arc::new(faults.clone())).unwrap();
        db.keyspace(NAMES[0], options(engine)).unwrap();
        db.keyspace(NAMES[1], KeyspaceOptions::lsm()).unwrap();
        let mut history = History::default();
        history.promises.push((fs.operations(), 0, 0));
        Self { fs, faults, db, history }
    }

    /// Takes the next step, which gives the durability that it is promised.
    fn step(&mut self, step: impl FnOnce(&Database, usize) -> Option<Durability>) {
        let number = self.history.begun.len() + 1;
        self.history.begun.push(self.fs.operations());
        let durability = step(&self.db, number);
        let &(_, killed, cut) = self.history.promises.last().unwrap();
        let promise = match durability {
            Some(Durability::Sync) => (number, number),
            Some(Durability::Os) => (number, cut),
            _ => (killed, cut),
        };
        self.history.promises.push((self.fs.operations(), promise.0, promise.1));
    }

    fn put(&mut self, name: &str, durability: Durability) {
        self.step(|db, number| {
            let keyspace = db.open_keyspace(name).unwrap();
            keyspace.put_with(key(number), value(number), durability).unwrap();
            Some(durability)
        });
    }

    fn load(&mut self) {
        self.step(|db, number| {
            load(db, number).unwrap();
            Some(Durability::Sync)
        });
    }

    /// A load that becomes visible, and that the manifest has no room for.
    fn load_without_room(&mut self) {
        let fault = Fault::new(Operation::Write, Effect::Fail(Errno::Raw(28)));
        let name_contains = "manifest".into();
        self.faults.arm(Fault { name_contains, times: Times::Always, ..fault });
        self.step(|db, number| {
            assert_eq!(load(db, number).unwrap_err().kind(), ErrorKind::NoSpace);
            None
        });
    }
}

/// All that a step writes begins with its number.
fn key(number: usize) -> Vec<u8> {
    format!("{number:03}").into_bytes()
}

fn value(number: usize) -> Vec<u8> {
    vec![number as u8; 100]
}

fn load(db: &Database, number: usize) -> Result<u64> {
    let records =
        (0..RECORDS).map(|at| ([key(number), at.to_be_bytes().to_vec()].concat(), value(number)));
    db.open_keyspace(NAMES[0]).unwrap().load_sorted(records)
}

/// How many steps there are in a database that has a prefix of them.
fn steps_in(db: &Database) -> std::result::Result<usize, String> {
    let mut found = Vec::new();
    for name in NAMES {
        let keyspace = db.open_keyspace(name).map_err(|error| error.to_string())?;
        for item in keyspace.iter() {
            let (key, held) = item.map_err(|error| error.to_string())?;
            let number: usize = std::str::from_utf8(&key[..3]).unwrap().parse().unwrap();
            assert_eq!(*held, value(number));
            found.push(number);
        }
    }
    found.sort_unstable();
    let records: Vec<_> = found.chunk_by(|a, b| a == b).map(|of| (of[0], of.len())).collect();
    for (at, &(number, count)) in records.iter().enumerate() {
        if number != at + 1 {
            return Err(format!("step {} is lost, but step {number} is there", at + 1));
        }
        if count != 1 && count != RECORDS {
            return Err(format!("{count} records of step {number} are left"));
        }
    }
    Ok(records.len())
}

fn check(
    history: &History,
    at: usize,
    image: MemoryFs,
    killed: bool,
) -> std::result::Result<(), String> {
    let open = |read_only| {
        let builder = Database::builder(PATH).memory_budget(8 << 20).read_only(read_only);
        builder.file_system(Arc::new(image.clone())).open().map_err(|error| error.to_string())
    };
    let begun = history.begun.partition_point(|&begun| begun <= at);
    let promise = history.promises.partition_point(|&(since, ..)| since <= at);
    let (_, kept, synced) = history.promises[promise - 1];
    let needed = if killed { kept } else { synced };
    let read = steps_in(&open(true)?)?;
    let db = open(false)?;
    let found = steps_in(&db)?;
    if found != read || found > begun || found < needed {
        return Err(format!(
            "{found} of {begun} steps are left, {needed} needed, {read} for readers"
        ));
    }
    // It goes on, and what was found stays.
    load(&db, found + 1).map_err(|error| error.to_string())?;
    db.persist().map_err(|error| error.to_string())?;
    let report = db.verify().map_err(|error| error.to_string())?;
    drop(db);
    let db = open(false)?;
    match (steps_in(&db)?, report.problems.first()) {
        (again, None) if again == found + 1 => Ok(()),
        (again, problem) => Err(format!("{again} steps of {found} and one, {problem:?}")),
    }
}

#[test]
fn every_power_cut_around_loads_of_a_skip_keyspace_leaves_a_prefix() {
    every_power_cut_leaves_a_prefix(EngineKind::Skip);
}

#[test]
fn every_power_cut_around_loads_of_an_lsm_tree_leaves_a_prefix() {
    every_power_cut_leaves_a_prefix(EngineKind::Lsm);
}

fn every_power_cut_leaves_a_prefix(engine: EngineKind) {
    let mut work = Work::new(engine);
    let from = work.fs.operations();
    for durability in [Durability::Buffered, Durability::Os, Durability::Sync] {
        work.put(NAMES[1], durability);
        work.put(NAMES[0], durability);
        work.load();
        work.put(NAMES[1], durability);
    }
    work.put(NAMES[0], Durability::Buffered);
    work.load_without_room();
    // What comes behind a load that the manifest does not have.
    work.put(NAMES[1], Durability::Sync);
    work.put(NAMES[0], Durability::Sync);
    work.load_without_room();
    work.put(NAMES[1], Durability::Sync);
    work.faults.disarm();
    work.load();
    work.put(NAMES[0], Durability::Sync);
    let Work { fs, db, history, .. } = work;
    db.close().unwrap();
    let mut problems = Vec::new();
    for at in from..=fs.operations() {
        for cut in [PowerCut::KeepAll, PowerCut::DropUnsynced, PowerCut::Random(at as u64)] {
            let killed = cut == PowerCut::KeepAll;
            if let Err(problem) = check(&history, at, fs.image(at, cut), killed) {
                problems.push(format!("at {at}, {cut:?}: {problem}"));
            }
        }
    }
    let shown = problems.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(problems.is_empty(), "{} of {} operations:\n{shown}", problems.len(), fs.operations());
}

/// Somebody else may have opened the database since, who gives the same numbers to files.
#[test]
fn a_load_that_is_under_way_when_the_database_is_closed_makes_no_more_files() {
    const COUNT: u32 = 20_000;
    let records = || (0..COUNT).map(|number| (number.to_be_bytes(), [7; 1000]));
    let faults = FaultFs::new(Arc::new(MemoryFs::new()));
    let db = open(Arc::new(faults.clone())).unwrap();
    let loaded = &db.keyspace(NAMES[0], KeyspaceOptions::lsm()).unwrap();
    let slow = Effect::Delay(Duration::from_millis(300));
    faults.arm(Fault { name_contains: ".table".into(), ..Fault::new(Operation::Sync, slow) });
    thread::scope(|scope| {
        let loading = scope.spawn(|| loaded.load_sorted(records()));
        while faults.fired() == 0 {
            thread::yield_now();
        }
        db.close().unwrap();
        let db = open(Arc::new(faults.clone())).unwrap();
        let created = faults.calls(Operation::Create);
        assert_eq!(loading.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(faults.calls(Operation::Create), created, "it has made a file");
        let keyspace = db.open_keyspace(NAMES[0]).unwrap();
        assert_eq!(keyspace.load_sorted(records()).unwrap(), u64::from(COUNT));
        assert_eq!(keyspace.count().unwrap(), u64::from(COUNT));
    });
}
