//! A file system that panics, at every call of a workload that it takes part in: in a caller's thread or in the background.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use turbidite::vfs::{Effect, Fault, FaultFs, Fs, MemoryFs, Operation, PowerCut, Times};
use turbidite::{
    Database, Durability, EngineKind, ErrorKind, Keyspace, KeyspaceOptions, Layer, Result,
};

use super::{PATH, caught, watched};
use crate::setup::{ENGINES, NAME, options};

/// So many records are loaded at once, where that is possible.
const LOADED: usize = 50;

#[derive(Clone, Copy, Debug)]
struct Setting {
    engine: EngineKind,
    layer: Layer,
    logged: bool,
}

impl Setting {
    fn open(self, fs: Arc<dyn Fs>) -> Result<(Database, Keyspace)> {
        let builder = Database::builder(PATH).memory_budget(8 << 20).background_threads(1);
        let db = builder.file_system(fs).log_layer(self.layer).open()?;
        let options = options(self.engine).layer(self.layer).log(self.logged);
        let keyspace = db.keyspace(NAME, options)?;
        Ok((db, keyspace))
    }
}

/// A workload under way, and what it knows to be there.
struct Run {
    setting: Setting,
    memory: MemoryFs,
    fs: FaultFs,
    /// What was acknowledged, and the key whose write may be there or not.
    acknowledged: BTreeMap<String, Vec<u8>>,
    open: Vec<String>,
    has_ended_badly: bool,
}

impl Run {
    fn new(setting: Setting) -> Self {
        let memory = MemoryFs::traced();
        let fs = FaultFs::new(Arc::new(memory.clone()));
        let (acknowledged, open) = (BTreeMap::new(), Vec::new());
        Self { setting, memory, fs, acknowledged, open, has_ended_badly: false }
    }

    /// What a call gives, if it comes to its end without trouble. What is told otherwise is that of a panic.
    fn tried<T>(&mut self, what: &str, call: impl FnOnce() -> Result<T>) -> Option<T> {
        match caught(call) {
            Some(Ok(done)) => return Some(done),
            Some(Err(error)) => assert_eq!(error.kind(), ErrorKind::Poisoned, "{what}: {error}"),
            None => {}
        }
        self.has_ended_badly = true;
        None
    }

    /// The same for a call that changes what is there: if it ends badly, nothing is written any more.
    fn changed<T>(
        &mut self,
        what: &str,
        keyspace: &Keyspace,
        call: impl FnOnce() -> Result<T>,
    ) -> Option<T> {
        let done = self.tried(what, call);
        if done.is_none() {
            let refused = caught(|| keyspace.put("late", "refused"));
            let is_refused = refused.is_some_and(super::is_poisoned);
            assert!(is_refused, "{what} has panicked, and writes are not refused");
        }
        done
    }

    fn put(&mut self, keyspace: &Keyspace, number: usize, durability: Durability) {
        let (key, value) = (format!("key {number:04}"), vec![number as u8; 100 + number * 7]);
        match self.changed("put", keyspace, || keyspace.put_with(&key, &value, durability)) {
            Some(()) => _ = self.acknowledged.insert(key, value),
            None => self.open.push(key),
        }
    }

    fn load(&mut self, keyspace: &Keyspace, first: usize) {
        let records = (0..LOADED)
            .map(|number| (format!("load {:04}", first + number), vec![number as u8; 200]));
        let records: Vec<_> = records.collect();
        match self.tried("load", || keyspace.load_sorted(records.clone())) {
            Some(_) => self.acknowledged.extend(records),
            None => self.open.extend(records.into_iter().map(|(key, _)| key)),
        }
    }

    /// Has every kind of call made by somebody, and the database closed. Gives a handle that is left, unless it could not even
    /// be opened.
    fn work(&mut self) -> Option<Keyspace> {
        let setting = self.setting;
        let fs = Arc::new(self.fs.clone());
        let (db, keyspace) = self.tried("open", || setting.open(fs))?;
        for round in 0..2 {
            for number in 0..12 {
                let durability = [Durability::Os, Durability::Sync];
                // A key of the first round is put again in the second.
                self.put(&keyspace, 9 * round + number, durability[number % 2]);
            }
            self.tried("persist", || keyspace.persist());
            if matches!(setting.engine, EngineKind::Lsm | EngineKind::Skip) {
                self.load(&keyspace, round * LOADED);
            }
            self.changed("persist all", &keyspace, || db.persist());
            let (name, options) = (["second", "third"][round], KeyspaceOptions::hash());
            let made = self.tried("create", || db.keyspace(name, options.clone()));
            let refused = made.is_none().then(|| db.keyspace("fourth", options));
            assert!(refused.is_none_or(super::is_poisoned), "the catalog is changed again");
            self.tried("compact", || keyspace.compact());
        }
        self.put(&keyspace, 100, Durability::Sync);
        self.check(&keyspace);
        self.tried("close", || db.close());
        Some(keyspace)
    }

    /// Through the same handle: what was acknowledged is there, and writes are refused or go on.
    fn check(&mut self, keyspace: &Keyspace) {
        for (key, value) in self.acknowledged.clone() {
            // The panic may come here.
            let read = self.tried("get", || keyspace.get(&key));
            let read = read.or_else(|| self.tried("get", || keyspace.get(&key)));
            if !self.open.contains(&key) {
                assert_eq!(read.unwrap().as_deref(), Some(&value[..]), "{key}");
            }
        }
    }

    /// In a database that is opened again: all of that, at least as far as it was promised, and writes go on.
    fn check_reopened(&self, fs: MemoryFs) {
        let (db, keyspace) = self.setting.open(Arc::new(fs)).unwrap();
        for (key, value) in &self.acknowledged {
            let read = keyspace.get(key).unwrap();
            let may_be_other = self.open.contains(key) || !self.setting.logged;
            assert!(may_be_other || read.as_deref() == Some(&value[..]), "{key} is lost");
        }
        let is_known = |key: &str| {
            self.acknowledged.contains_key(key) || self.open.iter().any(|open| open == key)
        };
        for record in keyspace.iter() {
            assert!(is_known(std::str::from_utf8(&record.unwrap().0).unwrap()));
        }
        keyspace.put("it", "goes on").unwrap();
        keyspace.compact().unwrap();
        assert!(db.verify().unwrap().problems.is_empty());
        db.close().unwrap();
    }
}

/// Has the call of this kind panic that comes after so many others.
fn panic_at(setting: Setting, operation: Operation, after: u64) {
    let mut run = Run::new(setting);
    run.fs.arm(Fault { after, ..Fault::new(operation, Effect::Panic) });
    let left = run.work();
    let killed = run.memory.image(run.memory.operations(), PowerCut::KeepAll);
    run.check_reopened(killed);
    // Closing has let go of the lock, whatever came of it.
    run.check_reopened(run.memory.clone());
    // What an engine lets go of with its last handle is files, too.
    caught(|| drop(left));
}

/// How many calls of each kind a workload makes in which all is well.
fn calls(setting: Setting) -> [(Operation, u64); 13] {
    let mut run = Run::new(setting);
    assert!(run.work().is_some() && !run.has_ended_badly);
    Operation::ALL.map(|operation| (operation, run.fs.calls(operation)))
}

fn panic_everywhere(setting: Setting) {
    let calls = calls(setting);
    let count: u64 = calls.iter().map(|(_, calls)| calls).sum();
    assert!(count > 60, "{setting:?}: {count} calls");
    for (operation, calls) in calls {
        for after in 0..calls {
            let what = format!("{setting:?} with a panic after {after} calls of {operation}");
            watched(&what, move || panic_at(setting, operation, after));
        }
    }
}

#[test]
fn a_panic_of_the_file_system_loses_nothing_that_was_acknowledged() {
    for (engine, layer) in ENGINES.into_iter().zip([Layer::Mmap, Layer::Positional].repeat(2)) {
        panic_everywhere(Setting { engine, layer, logged: true });
    }
}

#[test]
fn a_panic_of_the_file_system_below_a_page_cache_hangs_nobody() {
    let layer = Layer::BlockCache { block_size: 4096, pages: 16 };
    for engine in ENGINES {
        panic_everywhere(Setting { engine, layer, logged: engine != EngineKind::Btree });
    }
}

/// Has a read or a write panic, after so many others, that a merge of much may have another thread make.
fn panic_beside_a_merge(operation: Operation, after: u64) {
    let fs = FaultFs::new(Arc::new(MemoryFs::new()));
    let builder = Database::builder(PATH).memory_budget(8 << 20).background_threads(1);
    let db = builder.file_system(Arc::new(fs.clone())).open().unwrap();
    let keyspace = db.keyspace(NAME, options(EngineKind::Lsm).layer(Layer::Positional)).unwrap();
    // Neither run lies between keys of the other.
    for odd in [0, 1] {
        let records = (0..6000_u32).map(|number| (2 * number + odd, vec![odd as u8; 1000]));
        let records = records.map(|(number, value)| (number.to_be_bytes(), value));
        keyspace.load_sorted(records).unwrap();
    }
    db.settle().unwrap();
    let within = Path::new(PATH).join("keyspaces");
    let before = fs.calls(operation);
    fs.arm(Fault { after, within: within.clone(), ..Fault::new(operation, Effect::Panic) });
    // Slow reads are made ahead.
    let slow = Fault::new(Operation::Read, Effect::Delay(Duration::from_millis(1)));
    fs.arm(Fault { times: Times::Always, within, ..slow });
    if let Some(merged) = caught(|| keyspace.compact()) {
        let error = merged.expect_err("it did not come so far");
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    }
    assert!(fs.calls(operation) > before + after);
    fs.disarm();
    super::check_poisoned(db, &keyspace, ("\0\0\0\0", std::str::from_utf8(&[0; 1000]).unwrap()));
}

#[test]
fn a_read_or_write_that_panics_beside_a_merge_poisons() {
    for (operation, after) in [(Operation::Read, 20), (Operation::Read, 60), (Operation::Write, 5)]
    {
        let what = format!("a panic after {after} calls of {operation}");
        watched(&what, move || panic_beside_a_merge(operation, after));
    }
}
