//! Tests of the tree by itself, whose commit path and background threads are the test's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::tree::Tree;
use crate::base::{Kind, Seqno};
use crate::contract::testing::{Log, background, context};
use crate::contract::{Background, Context, Engine, Write};
use crate::options::KeyspaceOptions;
use crate::sync::thread;
use crate::vfs::{Effect, Fault, FaultFs, MemoryFs, Operation};
use crate::workers::Workers;

struct Rig {
    faults: FaultFs,
    context: Context,
    tree: Arc<Tree>,
}

impl Rig {
    /// A new tree, with so many threads for compactions.
    fn new(threads: usize) -> Self {
        let faults = FaultFs::new(Arc::new(MemoryFs::new()));
        let context = context(Arc::new(faults.clone()), Arc::new(Log::default()));
        let others = background(|panic| panic!("{panic}"));
        let compaction = Workers::start("upkeep", threads, |panic| panic!("{panic}")).unwrap();
        let background = Background { compaction, compaction_threads: threads, ..others };
        let context = Context { background: Arc::new(background), ..context };
        let tree = Tree::create(context.clone(), KeyspaceOptions::lsm().lsm).unwrap();
        Self { faults, context, tree }
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
        for number in 0..1500_u32 {
            let (seqno, key) = (self.next(), number.to_be_bytes());
            self.tree.apply(&Write { seqno, kind: Kind::Put, key: &key, value: &[7; 100] });
            self.context.visibility.publish(seqno);
        }
        self.tree.cut(self.context.visibility.published());
        self.tree.persist().unwrap();
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
