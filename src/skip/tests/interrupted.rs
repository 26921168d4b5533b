//! Spills, merges, persisting and loads that are cut off at any of their calls: nothing that was acknowledged is lost,
//! trying again succeeds, and no file stays behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::merges::{check_clean, expect_files, figures, open, spill};
use crate::vfs::{Effect, Errno, Fault, FaultFs, Fs, MemoryFs, Operation, PowerCut};
use crate::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Result, Slice};

const EIO: Errno = Errno::Raw(5);
const ENOSPC: Errno = Errno::Raw(28);

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn keyspace(db: &Database) -> Keyspace {
    db.keyspace("main", KeyspaceOptions::skip()).unwrap()
}

fn contents(keyspace: &Keyspace) -> Model {
    let own = |(key, value): (Slice, Slice)| (key.to_vec(), value.to_vec());
    keyspace.iter().map(|item| own(item.unwrap())).collect()
}

/// So many records under a name, of which each has the round as its value.
fn records(name: &str, count: u64, round: u64) -> Model {
    let key = |number: u64| format!("{name} {number:03}").into_bytes();
    (0..count).map(|number| (key(number), round.to_be_bytes().to_vec())).collect()
}

fn put(keyspace: &Keyspace, model: &mut Model, records: Model) {
    for (key, value) in records {
        keyspace.put(&key, &value).unwrap();
        model.insert(key, value);
    }
}

/// Every file of the keyspace is one that is used.
fn check_files(db: &Database, fs: &MemoryFs) {
    db.settle().unwrap();
    let stats = figures(&db.open_keyspace("main").unwrap());
    expect_files(fs, stats.runs as usize + usize::from(stats.records > 0));
}

/// What is interrupted.
#[derive(Clone, Copy, Debug)]
enum Action {
    Spill,
    /// Runs that a merge in the background is due for.
    Merge,
    Persist,
    Load,
}

impl Action {
    const ALL: [Self; 4] = [Self::Spill, Self::Merge, Self::Persist, Self::Load];

    fn records(self, round: u64) -> Model {
        records("loaded", 20, round)
    }

    fn run(self, db: &Database, keyspace: &Keyspace, round: u64) -> Result<()> {
        match self {
            Self::Spill => spill(keyspace),
            Self::Merge => {
                // The merge that is due begins at once, so that the cut is part of what is interrupted.
                keyspace.database().cut(keyspace.target())?;
                db.settle()
            }
            Self::Persist => keyspace.persist(),
            Self::Load => keyspace.load_sorted(self.records(round)).map(drop),
        }
    }
}

/// A keyspace with a base, some runs, and something in memory.
fn prepare(action: Action) -> (MemoryFs, Model) {
    let fs = MemoryFs::new();
    let db = open(&(Arc::new(fs.clone()) as Arc<dyn Fs>));
    let (keyspace, mut model) = (keyspace(&db), Model::new());
    put(&keyspace, &mut model, records("base", 50, 0));
    keyspace.persist().unwrap();
    let runs = if matches!(action, Action::Merge) { 8 } else { 3 };
    for round in 0..runs {
        put(&keyspace, &mut model, records(["base", "run"][round as usize % 2], 10, round));
        spill(&keyspace).unwrap();
    }
    put(&keyspace, &mut model, records("run", 5, 99));
    // As a kill leaves it: what is in memory is in the log.
    (fs.fork(), model)
}

/// Tries again for as long as background work that failed has not been tried again itself.
fn retry(action: impl Fn() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    loop {
        match action() {
            Err(error) if error.kind() != ErrorKind::Poisoned => {
                assert!(start.elapsed() < Duration::from_secs(20), "it does not get on: {error}");
                std::thread::sleep(Duration::from_millis(1));
            }
            outcome => return outcome,
        }
    }
}

/// Runs the action with a fault at one of its calls. Gives whether there was such a call.
fn interrupt(action: Action, prepared: &(MemoryFs, Model), fault: &Fault) -> bool {
    let what = format!("{action:?} with {fault:?}");
    let (memory, mut model) = (prepared.0.fork(), prepared.1.clone());
    let faults = FaultFs::new(Arc::new(memory.clone()));
    let fs: Arc<dyn Fs> = Arc::new(faults.clone());
    let db = open(&fs);
    let keyspace = keyspace(&db);
    db.settle().unwrap();
    if matches!(action, Action::Merge) {
        // The ninth run makes the merge due.
        put(&keyspace, &mut model, records("run", 3, 100));
    }
    let before = faults.fired();
    faults.arm(fault.clone());
    let mut outcome = action.run(&db, &keyspace, 7);
    faults.disarm();
    let has_fired = faults.fired() > before;
    assert!(has_fired || outcome.is_ok(), "{what}: {outcome:?}");
    let is_poisoned = || keyspace.delete("nothing").is_err();
    // A load that fails may have become visible.
    let mut later = model.clone();
    if matches!(action, Action::Load) {
        later.extend(action.records(7));
    }
    if outcome.is_err() && !is_poisoned() {
        let found = contents(&keyspace);
        assert!(found == model || found == later, "{what}: {outcome:?}");
        outcome = retry(|| action.run(&db, &keyspace, 7));
        assert!(outcome.is_ok() || is_poisoned(), "{what}: {outcome:?}");
    }
    if outcome.is_ok() {
        model.clone_from(&later);
        assert!(contents(&keyspace) == model, "{what}");
    }
    if !is_poisoned() {
        check_clean(&db);
        // What could not be removed stays until the next opening.
        let is_left = matches!(fault.effect, Effect::FailDone(_));
        if !is_left && fault.operation != Operation::Remove {
            check_files(&db, &memory);
        }
    }
    // The process is killed.
    let killed = memory.fork();
    drop(keyspace);
    drop(db);
    let db = open(&(Arc::new(killed.clone()) as Arc<dyn Fs>));
    let keyspace = self::keyspace(&db);
    let found = contents(&keyspace);
    assert!(found == model || (outcome.is_err() && found == later), "{what}: {outcome:?}");
    check_clean(&db);
    check_files(&db, &killed);
    action.run(&db, &keyspace, 7).unwrap();
    let is_load = matches!(action, Action::Load);
    assert!(contents(&keyspace) == if is_load { later } else { found }, "{what}");
    has_fired
}

/// With an error at each call of a kind.
fn interrupt_each(operation: Operation, effect: Effect) {
    for action in Action::ALL {
        let prepared = prepare(action);
        let fails =
            |after| interrupt(action, &prepared, &Fault { after, ..Fault::new(operation, effect) });
        let calls = (0..).take_while(|&after| fails(after)).count();
        assert!(calls < 40, "{action:?}: {calls}");
        if matches!(operation, Operation::Create | Operation::Write | Operation::Sync) {
            assert!(calls > 0, "{action:?} makes no such call: {operation:?}");
        }
    }
}

#[test]
fn what_cannot_be_created_or_opened() {
    interrupt_each(Operation::Create, Effect::Fail(EIO));
    interrupt_each(Operation::Open, Effect::Fail(EIO));
    interrupt_each(Operation::Create, Effect::FailDone(EIO));
}

#[test]
fn what_cannot_be_written() {
    interrupt_each(Operation::Write, Effect::Fail(ENOSPC));
    interrupt_each(Operation::Write, Effect::FailShort(100, EIO));
    interrupt_each(Operation::Truncate, Effect::Fail(EIO));
    interrupt_each(Operation::Allocate, Effect::Fail(ENOSPC));
}

#[test]
fn what_cannot_be_synced() {
    interrupt_each(Operation::Sync, Effect::Fail(EIO));
    interrupt_each(Operation::SyncDir, Effect::Fail(EIO));
}

#[test]
fn what_cannot_be_read_or_removed() {
    interrupt_each(Operation::Read, Effect::Fail(EIO));
    interrupt_each(Operation::Rename, Effect::Fail(EIO));
    interrupt_each(Operation::Remove, Effect::Fail(EIO));
    interrupt_each(Operation::Remove, Effect::FailDone(EIO));
}

/// What was done to a keyspace, commit by commit. Each counts itself in one of its records, so that the state that is
/// found tells which it is.
struct History {
    fs: MemoryFs,
    is_logged: bool,
    states: Vec<Model>,
    /// From which operation on which state is safe from a power cut, and from a kill.
    safe: Vec<(usize, usize)>,
    handed_over: Vec<(usize, usize)>,
}

const COUNT: &[u8] = b"count";

impl History {
    fn open(fs: &MemoryFs) -> Database {
        open(&(Arc::new(fs.clone()) as Arc<dyn Fs>))
    }

    fn keyspace(db: &Database, is_logged: bool) -> Keyspace {
        db.keyspace("main", KeyspaceOptions::skip().log(is_logged)).unwrap()
    }

    fn next(&self) -> (Model, Vec<u8>) {
        let count = self.states.len() as u64;
        (self.states[self.states.len() - 1].clone(), count.to_be_bytes().to_vec())
    }

    /// Puts records and deletes others, as one.
    fn write(&mut self, db: &Database, puts: &Model, deletes: &Model, durability: Durability) {
        let ((mut state, count), keyspace) = (self.next(), Self::keyspace(db, self.is_logged));
        let mut batch = db.batch();
        for key in deletes.keys() {
            batch.delete(&keyspace, key);
            state.remove(key);
        }
        for (key, value) in puts.iter().chain([(&COUNT.to_vec(), &count)]) {
            batch.put(&keyspace, key, value);
            state.insert(key.clone(), value.clone());
        }
        self.states.push(state);
        batch.durability(durability).commit().unwrap();
        self.acknowledge(self.is_logged, durability == Durability::Sync && self.is_logged);
    }

    fn load(&mut self, db: &Database, mut records: Model) {
        let (mut state, count) = self.next();
        records.insert(COUNT.to_vec(), count);
        state.extend(records.clone());
        self.states.push(state);
        Self::keyspace(db, self.is_logged).load_sorted(&records).unwrap();
        self.acknowledge(true, true);
    }

    fn acknowledge(&mut self, is_handed_over: bool, is_safe: bool) {
        let promise = (self.fs.operations(), self.states.len() - 1);
        if is_handed_over {
            self.handed_over.push(promise);
        }
        if is_safe {
            self.safe.push(promise);
        }
    }

    fn run(is_logged: bool) -> Self {
        let fs = MemoryFs::traced();
        let db = Self::open(&fs);
        let keyspace = Self::keyspace(&db, is_logged);
        let start = vec![(fs.operations(), 0)];
        let states = vec![Model::new()];
        let (safe, handed_over) = (start.clone(), start);
        let mut this = Self { fs, is_logged, states, safe, handed_over };
        let none = Model::new();
        for round in 0..6 {
            for part in 0..3 {
                let durability = if part == 1 { Durability::Sync } else { Durability::Os };
                this.write(&db, &records("put", 9, round), &records("loaded", part, 0), durability);
            }
            match round % 3 {
                0 => spill(&keyspace).unwrap(),
                1 => keyspace.persist().unwrap(),
                _ => keyspace.compact().unwrap(),
            }
            this.acknowledge(true, true);
            let held = (round % 2 == 0).then(|| db.snapshot());
            for part in 0..4 {
                this.load(&db, records("loaded", 12, 10 * round + part));
                this.write(&db, &records("put", 1, part), &none, Durability::Os);
            }
            drop(held);
            // There are enough runs for a merge in the background.
            db.settle().unwrap();
        }
        this.write(&db, &none, &records("put", 100, 0), Durability::Os);
        keyspace.persist().unwrap();
        this.acknowledge(true, true);
        assert!(figures(&keyspace).merges > 3);
        this
    }

    /// Opens what a cut leaves, finds it in the history and looks for leftovers.
    fn check(&self, at: usize, cut: PowerCut) {
        let what = format!("at {at} of {}, {cut:?}", self.fs.operations());
        let image = self.fs.image(at, cut);
        let db = Self::open(&image);
        let keyspace = Self::keyspace(&db, self.is_logged);
        let promises = if cut == PowerCut::KeepAll { &self.handed_over } else { &self.safe };
        let least = promises[promises.partition_point(|(since, _)| *since <= at) - 1].1;
        let found = contents(&keyspace);
        let count = found.get(COUNT).map_or(0, |count| {
            u64::from_be_bytes(count[..].try_into().expect("it is a number")) as usize
        });
        assert!(count >= least, "{what}: {count} commits are left of {least}");
        assert!(found == self.states[count], "{what}: not what {count} commits made");
        check_clean(&db);
        check_files(&db, &image);
        keyspace.persist().unwrap();
        expect_files(&image, usize::from(figures(&keyspace).records > 0));
        assert!(contents(&keyspace) == self.states[count], "{what}, persisted");
        check_clean(&db);
    }
}

#[test]
fn power_may_fail_and_processes_be_killed_at_any_moment() {
    for is_logged in [true, false] {
        let history = History::run(is_logged);
        for at in history.safe[0].0..=history.fs.operations() {
            history.check(at, PowerCut::DropUnsynced);
            history.check(at, PowerCut::Random(at as u64));
            if at % 3 == 0 {
                history.check(at, PowerCut::KeepAll);
                history.check(at, PowerCut::KeepOnly(at % 5));
            }
        }
    }
}

/// A power cut in the middle of an opening that clears away what another has left.
#[test]
fn clearing_away_may_be_interrupted_too() {
    let history = History::run(true);
    for at in (history.safe[0].0..history.fs.operations()).step_by(29) {
        let fs = history.fs.image_traced(at, PowerCut::KeepAll);
        drop(History::open(&fs));
        for again in 0..=fs.operations() {
            let image = fs.image(again, PowerCut::Random((at + again) as u64));
            let db = History::open(&image);
            check_clean(&db);
            check_files(&db, &image);
        }
    }
}

#[test]
fn what_is_poisoned_still_reads() {
    let (memory, model) = prepare(Action::Persist);
    let faults = FaultFs::new(Arc::new(memory));
    let db = open(&(Arc::new(faults.clone()) as Arc<dyn Fs>));
    let keyspace = keyspace(&db);
    let manifest = Fault {
        name_contains: "manifest".into(),
        ..Fault::new(Operation::Sync, Effect::Fail(EIO))
    };
    faults.arm(manifest);
    assert_eq!(keyspace.persist().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(keyspace.put("a", "b").unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(contents(&keyspace) == model);
    assert!(db.verify().unwrap().problems.is_empty());
}
