//! Tests of the tree by itself, whose commit path and background threads are the test's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::tree::Tree;
use super::version::TableFile;
use crate::base::{Kind, Seqno};
use crate::contract::testing::{Log, background, context};
use crate::contract::{Background, Context, Engine, Write};
use crate::error::ErrorKind;
use crate::options::KeyspaceOptions;
use crate::sync::thread;
use crate::vfs::{Effect, Fault, FaultFs, Layer, MemoryFs, Operation, Times};
use crate::workers::Workers;

struct Rig {
    files: MemoryFs,
    faults: FaultFs,
    context: Context,
    tree: Arc<Tree>,
}

impl Rig {
    /// A new tree, with so many threads for compactions.
    fn new(threads: usize) -> Self {
        let files = MemoryFs::new();
        let faults = FaultFs::new(Arc::new(files.clone()));
        let context = context(Arc::new(faults.clone()), Arc::new(Log::default()));
        let others = background(|panic| panic!("{panic}"));
        let compaction = Workers::start("upkeep", threads, |panic| panic!("{panic}")).unwrap();
        let background = Background { compaction, compaction_threads: threads, ..others };
        let context = Context { background: Arc::new(background), ..context };
        let tree = Tree::create(context.clone(), KeyspaceOptions::lsm().lsm).unwrap();
        Self { files, faults, context, tree }
    }

    fn next(&self) -> Seqno {
        self.context.visibility.published() + 1
    }

    /// Has all that there is cleared.
    fn clear(&self) {
        let seqno = self.next();
        self.tree.as_clear().unwrap().clear(seqno - 1, seqno);
        self.context.visibility.publish(seqno);
    }

    /// Puts keys, which become a table.
    fn flush(&self) {
        self.flush_from(0);
    }

    /// Puts keys from a number on, which become a table.
    fn flush_from(&self, first: u32) {
        for number in first..first + 1500 {
            let (seqno, key) = (self.next(), number.to_be_bytes());
            self.tree.apply(&Write { seqno, kind: Kind::Put, key: &key, value: &[7; 100] });
            self.context.visibility.publish(seqno);
        }
        self.tree.cut(self.context.visibility.published());
        self.tree.persist().unwrap();
    }

    /// The table of the deepest level that has a key.
    fn deepest_table(&self, key: u32) -> Arc<TableFile> {
        let (state, key) = (self.tree.state(), key.to_be_bytes());
        let table = state.version.runs().iter().rev().find_map(|run| run.table_for(&key));
        Arc::clone(table.unwrap())
    }

    /// Waits until there is nothing that could be done.
    fn rest(&self) {
        let begun = Instant::now();
        while !self.tree.jobs().is_idle() || self.tree.is_compaction_due() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it never comes to rest");
            thread::yield_now();
        }
    }

    /// As many tables as make a compaction due, which takes so long to begin its own; gives when it has got there.
    fn begin_compaction(&self, time: Duration) {
        let slow = Fault::new(Operation::Create, Effect::Delay(time));
        self.faults.arm(Fault { name_contains: ".table".into(), after: 4, ..slow });
        (0..4).for_each(|_| self.flush());
        while self.faults.fired() == 0 {
            thread::yield_now();
        }
    }
}

#[test]
fn a_compaction_keeps_no_memtable() {
    let rig = Rig::new(1);
    rig.begin_compaction(Duration::from_secs(1));
    let memtable = Arc::downgrade(&rig.tree.state().memtables.active);
    rig.flush();
    // The flush may hold it a moment longer than it takes to be persisted.
    while memtable.strong_count() > 0 {
        thread::yield_now();
    }
    assert_eq!(rig.tree.stats().compactions, 0, "it stayed until the compaction had ended");
    rig.tree.settle().unwrap();
    assert!(rig.tree.stats().compactions > 0);
    rig.tree.stop();
}

#[test]
fn what_a_clear_took_away_is_in_no_compactions_way() {
    let rig = Rig::new(2);
    let (time, begun) = (Duration::from_secs(4), Instant::now());
    rig.begin_compaction(time);
    rig.clear();
    (0..4).for_each(|_| rig.flush());
    while rig.tree.stats().compactions == 0 {
        assert!(begun.elapsed() < time, "the compaction of what was cleared has to end first");
        thread::yield_now();
    }
    // That one ends before it has written anything.
    let syncs = rig.faults.calls(Operation::Sync);
    rig.tree.settle().unwrap();
    assert!(begun.elapsed() >= time);
    assert_eq!((rig.faults.calls(Operation::Sync), rig.tree.stats().compactions), (syncs, 1));
    rig.tree.stop();
}

#[test]
fn what_is_damaged_is_put_off_and_all_else_is_compacted() {
    let rig = Rig::new(1);
    let (mine, other) = (0, 1 << 30);
    let settled = || rig.tree.settle().map_err(|error| error.kind());
    for first in [mine, other] {
        (0..4).for_each(|_| rig.flush_from(first));
        settled().unwrap();
    }
    let table = rig.deepest_table(mine);
    assert!(table.meta.largest < other.to_be_bytes().to_vec(), "it has all there is");
    let (path, middle) = (table.path(), table.meta.len / 2);
    rig.files.corrupt(&path, middle, 1).unwrap();
    let of = |operation| rig.faults.calls(operation);
    (0..6).for_each(|_| rig.flush_from(mine));
    rig.rest();
    assert_eq!(settled(), Err(ErrorKind::Corruption));
    // Nothing is read again and again only to find the same.
    let reads = of(Operation::Read);
    (0..3).for_each(|_| rig.flush_from(mine));
    rig.rest();
    assert_eq!(settled(), Err(ErrorKind::Corruption));
    assert_eq!(of(Operation::Read), reads);
    // What has nothing to do with it goes on.
    let compactions = rig.tree.stats().compactions;
    (0..6).for_each(|_| rig.flush_from(other));
    rig.rest();
    assert!(rig.tree.stats().compactions > compactions);
    assert_eq!(settled(), Err(ErrorKind::Corruption));
    assert_eq!(rig.tree.compact().map_err(|error| error.kind()), Err(ErrorKind::Corruption));
    rig.rest();
    // Who has mended it says so.
    rig.files.corrupt(&path, middle, 1).unwrap();
    rig.tree.compact().unwrap();
    settled().unwrap();
    assert!(rig.tree.trouble().is_none());
    rig.tree.stop();
}

#[test]
fn writers_that_wait_for_what_is_damaged_are_told() {
    let rig = Rig::new(1);
    (0..4).for_each(|_| rig.flush());
    rig.tree.settle().unwrap();
    let table = rig.deepest_table(0);
    rig.files.corrupt(&table.path(), table.meta.len / 2, 1).unwrap();
    (0..60).for_each(|_| rig.flush());
    rig.rest();
    assert_eq!(rig.tree.pressure(), 1000);
    assert_eq!(rig.tree.trouble().map(|error| error.kind()), Some(ErrorKind::Corruption));
    let waited = rig.tree.wait_for_compactions();
    assert_eq!(waited.map_err(|error| error.kind()), Err(ErrorKind::Corruption));
    rig.tree.stop();
}

/// What is just being opened by the layer of before would keep the page cache, or the mapping, of that.
#[test]
fn what_is_opened_while_the_layer_changes_follows() {
    for name in [".table", ".values"] {
        let faults = FaultFs::new(Arc::new(MemoryFs::new()));
        let builder = crate::Database::builder("/db").file_system(Arc::new(faults.clone()));
        let db = builder.memory_budget(8 << 20).open().unwrap();
        let keyspace = db.keyspace("main", KeyspaceOptions::lsm().separate_values(100)).unwrap();
        let value = [7; 1000];
        keyspace.put("key", value).unwrap();
        keyspace.persist().unwrap();
        db.settle().unwrap();
        let set_layer = |layer| keyspace.target().engine.set_layer(layer).unwrap();
        set_layer(Layer::Mmap);
        let slow = Fault::new(Operation::Open, Effect::Delay(Duration::from_millis(300)));
        faults.arm(Fault { name_contains: name.into(), ..slow });
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| keyspace.get("key").unwrap());
            while faults.fired() == 0 {
                std::thread::yield_now();
            }
            set_layer(Layer::Positional);
            reading.join().unwrap();
        });
        faults.disarm();
        let seen = Fault::new(Operation::Open, Effect::Delay(Duration::ZERO));
        faults.arm(Fault { name_contains: name.into(), times: Times::Always, ..seen });
        let opened = faults.fired();
        for _ in 0..2 {
            assert_eq!(keyspace.get("key").unwrap().unwrap(), value);
            assert_eq!(faults.fired(), opened + 1, "{name} is open as before");
        }
    }
}
