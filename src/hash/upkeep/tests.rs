//! Pieces of upkeep one by one, in an order that the test chooses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock, Weak};

use super::super::index::{Address, Entry, Found as Candidates};
use super::super::segment::Segment;
use super::super::store::{Store, lock};
use super::{Deferred, PAIRS, PASSED_OVER, Pair, Tombstones, checkpoint, round_of};
use crate::base::hash::hash64;
use crate::base::{Kind, ReadPoint, Seqno, Slice};
use crate::contract::testing::{Log, context};
use crate::contract::{Context, Engine, Host, Write};
use crate::error::{Error, ErrorKind, Result};
use crate::vfs::MemoryFs;

/// A store whose upkeep is the test's.
struct Rig {
    /// The thread for upkeep is busy until this is dropped, which comes first.
    _upkeep: Sender<()>,
    fs: MemoryFs,
    store: Arc<Store>,
    last: Seqno,
}

impl Rig {
    fn new(fs: MemoryFs, open: fn(Context) -> Result<Arc<Store>>) -> Self {
        Self::with(Arc::new(Log::default()), fs, open)
    }

    fn with(host: Arc<dyn Host>, fs: MemoryFs, open: fn(Context) -> Result<Arc<Store>>) -> Self {
        let context = context(Arc::new(fs.clone()), host);
        let (upkeep, ended) = channel::<()>();
        context.background.compaction.submit(&Arc::default(), move || _ = ended.recv());
        let store = open(context.clone()).unwrap();
        store.make_writable().unwrap();
        let last = store.persisted();
        context.visibility.publish(last);
        Self { _upkeep: upkeep, fs, store, last }
    }

    fn create() -> Self {
        Self::new(MemoryFs::new(), Store::create)
    }

    /// What a kill leaves, opened.
    fn after_a_kill(&self) -> Self {
        Self::new(self.fs.fork(), Store::open)
    }

    fn write(&mut self, kind: Kind, key: &[u8], value: &[u8]) {
        self.last += 1;
        self.store.apply_alone(&Write { seqno: self.last, kind, key, value });
        self.store.context.visibility.publish(self.last);
    }

    fn put(&mut self, key: &str, value: &str) {
        self.write(Kind::Put, key.as_bytes(), value.as_bytes());
    }

    fn delete(&mut self, key: &str) {
        self.write(Kind::Delete, key.as_bytes(), b"");
    }

    fn get(&self, key: &str) -> Option<String> {
        let value = self.store.get(key.as_bytes(), ReadPoint::At(self.last)).unwrap();
        value.map(|value| String::from_utf8(value.to_vec()).unwrap())
    }

    /// Has all that was written in files; gives the last segment of them.
    fn persist(&self) -> Arc<Segment> {
        self.store.cut(self.last);
        self.store.persist().unwrap();
        self.store.slots.load().segments().pop().unwrap()
    }

    /// Does all that is due.
    fn tend(&self) {
        for _ in 0..1000 {
            if !self.store.is_upkeep_due() {
                return;
            }
            self.store.tend().unwrap();
            self.persist();
        }
        panic!("there is no end of it");
    }

    /// As if other keyspaces took all that there is for indexes.
    fn leave_nothing_for_indexes(&self) {
        let budget = &self.store.context.budget;
        budget.resize_index(0, budget.total);
    }

    fn checkpoint(&self) -> Option<u64> {
        lock(&self.store.files).manifest.contents.checkpoint.map(|checkpoint| checkpoint.id)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.store.stop();
    }
}

#[test]
fn a_tombstone_is_not_forgotten_for_one_that_had_its_place() {
    let mut rig = Rig::create();
    rig.put("key", "first");
    rig.persist();
    rig.delete("key");
    let deleted = rig.persist();
    rig.store.resolve(&deleted).unwrap();
    // The tombstone is seen to be alone.
    rig.store.write_checkpoint().unwrap();
    rig.store.wait_for_deferred().unwrap();
    rig.put("key", "second");
    let second = rig.persist();
    rig.store.resolve(&second).unwrap();
    rig.store.reclaim(&deleted).unwrap();
    rig.delete("key");
    // The next checkpoint has the second value: the tombstone is in memory.
    rig.store.write_checkpoint().unwrap();
    let again = rig.persist();
    assert_eq!((again.base, again.used()), (deleted.base, deleted.used()), "it has its place");
    rig.store.resolve(&again).unwrap();
    rig.store.forget_tombstones();
    rig.store.reclaim(&again).unwrap();
    rig.persist();
    assert_eq!(rig.get("key"), None);
    assert_eq!(rig.after_a_kill().get("key"), None);
}

#[test]
fn a_checkpoint_gets_its_turn_however_much_else_is_due() {
    let mut rig = Rig::create();
    let value = [7; 4000];
    let mut pieces = 0;
    for round in 0..60 {
        for _ in 0..2 {
            for key in 0..50_u32 {
                rig.write(Kind::Put, &(key + round % 7).to_be_bytes(), &value);
            }
            rig.persist();
        }
        if rig.store.is_checkpoint_due() {
            assert!(rig.store.unresolved().is_some() || !rig.store.victims().is_empty());
            pieces += 1;
        }
        rig.store.tend().unwrap();
        if rig.checkpoint().is_some() {
            return;
        }
    }
    panic!("no checkpoint in {pieces} pieces since one was due");
}

#[test]
fn writers_are_slowed_down_for_no_tombstones_that_nobody_is_going_to_forget() {
    let mut rig = Rig::create();
    rig.leave_nothing_for_indexes();
    (0..1000_u32).for_each(|key| rig.write(Kind::Put, &key.to_be_bytes(), b""));
    rig.persist();
    (0..200_u32).for_each(|key| rig.write(Kind::Delete, &key.to_be_bytes(), b""));
    rig.persist();
    rig.tend();
    rig.store.weigh();
    assert_eq!(lock(&rig.store.writer).tombstones, 200, "they are few");
    assert_eq!(rig.store.upkeep_pressure(), 0);
}

#[test]
fn writers_are_slowed_down_for_tombstones_until_checkpoints_have_them_forgotten() {
    const KEYS: u32 = 100_000;
    let mut rig = Rig::create();
    (0..KEYS).for_each(|key| rig.write(Kind::Put, &key.to_be_bytes(), b""));
    rig.persist();
    // More than a 16th, less than an eighth.
    (0..KEYS / 11).for_each(|key| rig.write(Kind::Delete, &key.to_be_bytes(), b""));
    rig.persist();
    rig.tend();
    assert_eq!(lock(&rig.store.writer).tombstones, u64::from(KEYS / 11));
    rig.leave_nothing_for_indexes();
    rig.store.weigh();
    assert!(rig.store.upkeep_pressure() > 0 && rig.store.is_checkpoint_due());
    rig.tend();
    rig.store.weigh();
    assert_eq!(rig.store.upkeep_pressure(), 0);
    assert_eq!(lock(&rig.store.writer).tombstones, 0);
}

#[test]
fn what_could_not_be_recorded_for_want_of_space_is_recorded_without_a_flush() {
    let mut rig = Rig::create();
    rig.put("key", "value");
    let covers = rig.persist().id;
    let id = lock(&rig.store.writer).take_id();
    let mut seen = Tombstones { covers, entries: Vec::new() };
    let meta = rig.store.write_entries(id, &mut seen, &mut 0).unwrap();
    rig.fs.quota(Some(0));
    let deferred = Deferred { after: covers, emptied: Vec::new(), checkpoint: Some(meta) };
    let refused = rig.store.defer(deferred).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    assert!(rig.store.is_upkeep_due());
    assert_eq!(rig.store.tend().unwrap_err().kind(), ErrorKind::NoSpace);
    rig.fs.quota(None);
    rig.store.tend().unwrap();
    assert_eq!(rig.checkpoint(), Some(id));
    assert!(!rig.store.is_upkeep_due());
}

/// Where memory is scarce, a tail is written out as soon as there is anything in it, as `tend` has it done here after each piece of work.
#[test]
fn short_segments_become_few_however_early_the_tail_is_written_out() {
    let mut rig = Rig::create();
    let keys: Vec<_> = (0..50).map(|number| format!("key {number}")).collect();
    for key in &keys {
        rig.put(key, "value");
        rig.persist();
    }
    rig.tend();
    assert!(rig.store.segments_in_files().len() < super::MANY_SHORT);
    assert!(keys.iter().all(|key| rig.get(key).as_deref() == Some("value")));
}

/// Writes `keys` twice, in two batches; what is superseded stays indexed.
fn write_twice(rig: &mut Rig, keys: u32) {
    for _ in 0..2 {
        for key in 0..keys {
            rig.last += 1;
            let (seqno, key) = (rig.last, &key.to_be_bytes());
            rig.store.apply(&Write { seqno, kind: Kind::Put, key, value: b"" });
        }
        rig.store.end_batch(rig.last);
        rig.store.context.visibility.publish(rig.last);
    }
    assert_eq!(rig.store.index.entries(), u64::from(2 * keys));
}

#[test]
fn what_a_large_batch_has_superseded_takes_no_memory_once_it_is_persisted() {
    let mut rig = Rig::create();
    let memory = |rig: &Rig| lock(&rig.store.writer).superseded_memory();
    write_twice(&mut rig, 10_000);
    assert!(memory(&rig) > 500_000);
    rig.persist();
    assert!(memory(&rig) < 100_000, "{} bytes stay", memory(&rig));
}

#[test]
fn an_index_is_not_full_of_what_has_been_superseded() {
    let mut rig = Rig::create();
    let keys = rig.store.index.capacity() / 2;
    write_twice(&mut rig, keys as u32);
    rig.leave_nothing_for_indexes();
    assert!(rig.store.is_full());
    assert!(rig.store.trouble().is_none());
    assert!(!rig.store.is_full());
    assert_eq!(rig.store.index.entries(), keys);
}

#[test]
fn compact_takes_out_what_has_been_superseded() {
    let mut rig = Rig::create();
    write_twice(&mut rig, 1000);
    rig.store.compact().unwrap();
    assert_eq!(rig.store.index.entries(), 1000);
}

#[test]
fn tombstones_that_are_forgotten_take_no_memory() {
    let mut rig = Rig::create();
    (0..1000_u32).for_each(|key| rig.write(Kind::Put, &key.to_be_bytes(), b""));
    rig.persist();
    (0..1000_u32).for_each(|key| rig.write(Kind::Delete, &key.to_be_bytes(), b""));
    rig.persist();
    rig.tend();
    for _ in 0..2 {
        rig.store.write_checkpoint().unwrap();
        rig.store.wait_for_deferred().unwrap();
    }
    let budget = &rig.store.context.budget;
    assert!(budget.indexes_used() >= rig.store.index.memory() + 2 * 16 * 1000);
    assert_eq!(rig.store.forget_tombstones(), 1000);
    assert_eq!(rig.store.index.entries(), 0);
    assert_eq!(budget.indexes_used(), rig.store.index.memory());
}

#[test]
fn a_segment_is_tried_again_when_either_of_two_states_is_gone() {
    for older_first in [true, false] {
        let mut rig = Rig::create();
        let visibility = Arc::clone(&rig.store.context.visibility);
        let held = ["a", "b"].map(|key| {
            rig.put(key, "old");
            let held = visibility.hold();
            rig.put(key, "new");
            held
        });
        let segment = rig.persist();
        rig.store.resolve(&segment).unwrap();
        assert!(rig.store.unresolved().is_none(), "both are held");
        let order = if older_first { [0, 1] } else { [1, 0] };
        for (left, which) in [3, 2].into_iter().zip(order) {
            assert!(visibility.release(held[which]));
            assert!(rig.store.unresolved().is_some());
            rig.store.resolve(&segment).unwrap();
            assert!(rig.store.unresolved().is_none());
            assert_eq!(rig.store.index.entries(), left);
        }
    }
}

/// The segments in which readers still look.
fn ids(rig: &Rig) -> Vec<u64> {
    rig.store.slots.load().segments().iter().map(|segment| segment.id).collect()
}

#[test]
fn a_snapshot_keeps_no_segment_that_was_written_after_it_and_is_dead() {
    for compacts in [false, true] {
        let mut rig = Rig::create();
        rig.put("key", "0");
        rig.persist();
        let held = rig.store.context.visibility.hold();
        rig.put("key", "1");
        let dead = rig.persist();
        rig.store.resolve(&dead).unwrap();
        rig.put("key", "2");
        let newest = rig.persist();
        rig.store.resolve(&newest).unwrap();
        assert_eq!(dead.figures.counted_live(), 0);
        if compacts {
            rig.store.compact().unwrap();
        } else {
            rig.tend();
        }
        assert!(!ids(&rig).contains(&dead.id));
        let seen = rig.store.get(b"key", ReadPoint::At(held)).unwrap().unwrap();
        assert_eq!((&*seen, rig.get("key").unwrap()), (&b"0"[..], "2".to_owned()));
    }
}

#[test]
fn what_is_newer_than_a_version_that_is_held_may_be_moved() {
    for compacts in [false, true] {
        let mut rig = Rig::create();
        rig.put("key", "old");
        rig.put("gone", "old");
        let pinned = rig.persist();
        let held = rig.store.context.visibility.hold();
        rig.put("key", "new");
        rig.delete("gone");
        (0..20_u32).for_each(|key| rig.write(Kind::Put, &key.to_be_bytes(), b"1"));
        let mostly_dead = rig.persist();
        rig.store.resolve(&mostly_dead).unwrap();
        (0..20_u32).for_each(|key| rig.write(Kind::Put, &key.to_be_bytes(), b"2"));
        rig.persist();
        if compacts {
            rig.store.compact().unwrap();
        } else {
            rig.tend();
        }
        rig.tend();
        assert!(!ids(&rig).contains(&mostly_dead.id) && ids(&rig).contains(&pinned.id));
        for (key, now) in [("key", Some("new")), ("gone", None)] {
            let before = rig.store.get(key.as_bytes(), ReadPoint::At(held)).unwrap();
            assert_eq!((&*before.unwrap(), rig.get(key).as_deref()), (&b"old"[..], now));
        }
        // What was moved is looked at again when the older version may go.
        assert!(rig.store.context.visibility.release(held));
        rig.tend();
        assert_eq!((rig.store.index.entries(), rig.store.count()), (22, Some(21)));
        let killed = rig.after_a_kill();
        assert_eq!((killed.get("key").as_deref(), killed.get("gone")), (Some("new"), None));
    }
}

/// Takes writes of a batch that has not ended.
fn apply(rig: &mut Rig, kind: Kind, key: &str, value: &[u8]) {
    rig.last += 1;
    rig.store.apply(&Write { seqno: rig.last, kind, key: key.as_bytes(), value });
}

#[test]
fn a_batch_keeps_of_each_key_what_it_writes_last() {
    let mut rig = Rig::create();
    rig.put("key", "before");
    let held = rig.store.context.visibility.hold();
    for round in 0..1000_u32 {
        apply(&mut rig, Kind::Put, "key", round.to_string().as_bytes());
        let comes_and_goes = if round % 2 == 0 { Kind::Put } else { Kind::Delete };
        apply(&mut rig, comes_and_goes, "other", b"");
        // Of several tails, and of other lengths each time.
        apply(&mut rig, Kind::Put, "large", &vec![1; (round % 50 * 1000) as usize]);
        if round == 500 {
            // Of the next batch of those that are published together.
            rig.store.end_batch(rig.last);
        }
        assert!(rig.store.index.entries() <= 4, "{} in {round}", rig.store.index.entries());
        let seen = rig.store.get(b"key", ReadPoint::At(held)).unwrap().unwrap();
        assert_eq!(&*seen, b"before");
    }
    assert_eq!(lock(&rig.store.writer).tombstones, 1);
    rig.store.end_batch(rig.last);
    rig.store.context.visibility.publish(rig.last);
    assert_eq!(rig.get("key").as_deref(), Some("999"));
    assert_eq!(&*rig.store.get(b"key", ReadPoint::At(held)).unwrap().unwrap(), b"before");
    rig.persist();
    rig.tend();
    let _ = rig.store.context.visibility.release(held);
    rig.tend();
    assert_eq!((rig.store.index.entries(), rig.store.count()), (3, Some(2)));
    let mut report = crate::stats::VerifyReport::default();
    rig.store.verify(&mut report);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let killed = rig.after_a_kill();
    assert_eq!((killed.get("key").as_deref(), killed.get("other")), (Some("999"), None));
    assert_eq!(killed.get("large").unwrap().len(), 999 % 50 * 1000);
}

#[test]
fn a_checkpoint_that_does_not_fit_does_not_keep_space_from_coming_back() {
    const KEYS: u32 = 120_000;
    for compacts in [false, true] {
        let mut rig = Rig::create();
        for round in 0..4_u32 {
            for key in 0..KEYS {
                rig.write(Kind::Put, &key.to_be_bytes(), &round.to_be_bytes());
            }
            rig.persist();
        }
        rig.write(Kind::Delete, &0_u32.to_be_bytes(), b"");
        rig.persist();
        let fs = rig.fs.clone();
        let used = || fs.files().iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        let before = used();
        // Room for a segment.
        rig.fs.quota(Some(before + u64::from(KEYS) * checkpoint::ENTRY as u64));
        if compacts {
            let refused = rig.store.compact().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NoSpace);
        } else {
            assert!(rig.store.is_checkpoint_due());
            lock(&rig.store.upkeep).passed_over = PASSED_OVER;
            for _ in 0..50 {
                if let Err(error) = rig.store.tend() {
                    assert_eq!(error.kind(), ErrorKind::NoSpace);
                }
                rig.store.cut(rig.last);
                let _ = rig.store.persist();
            }
        }
        let after = used();
        assert!(after < before / 2, "{after} bytes of {before}");
        rig.fs.quota(None);
        rig.store.compact().unwrap();
        assert_eq!(rig.store.count(), Some(u64::from(KEYS) - 1));
    }
}

#[test]
fn one_damaged_record_does_not_end_upkeep() {
    let mut rig = Rig::create();
    let round = |rig: &mut Rig, value: &str| {
        (0..100_u32).for_each(|key| rig.put(&format!("key {key}"), value));
        rig.persist()
    };
    rig.put("damaged", "old");
    let first = round(&mut rig, "0");
    let mut found = Candidates::new();
    rig.store.index.find(hash64(b"damaged"), &mut found);
    let at = first.offset(found.as_slice()[0].address()) * 8 + 17;
    rig.fs.corrupt(&first.file().unwrap().path(), at as u64, 1).unwrap();
    rig.put("damaged", "new");
    round(&mut rig, "1");
    assert!(rig.store.damage().is_none());
    for value in ["2", "3", "4"] {
        round(&mut rig, value);
    }
    let tend = |rig: &Rig| {
        for _ in 0..100 {
            if !rig.store.is_upkeep_due() {
                return;
            }
            if let Err(error) = rig.store.tend() {
                assert_eq!(error.kind(), ErrorKind::Corruption);
            }
            rig.persist();
        }
        panic!("there is no end of it");
    };
    tend(&rig);
    // Of the damaged key both versions are indexed.
    assert_eq!(rig.store.index.entries(), 102);
    assert_eq!(ids(&rig).len(), 3, "what is damaged, what superseded it, and the rest");
    assert_eq!(rig.store.damage().unwrap().kind(), ErrorKind::Corruption);
    assert_eq!(rig.get("damaged").as_deref(), Some("new"));
    // Who asks for it is told, and all else is done.
    round(&mut rig, "5");
    assert_eq!(rig.store.compact().unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(rig.store.index.entries(), 102);
    rig.fs.corrupt(&first.file().unwrap().path(), at as u64, 1).unwrap();
    rig.store.compact().unwrap();
    assert!(rig.store.damage().is_none());
    assert_eq!((rig.store.index.entries(), rig.store.count()), (101, Some(101)));
}

#[test]
fn what_is_read_together_has_a_bound() {
    let mut rig = Rig::create();
    rig.put("key", "value");
    let segment = rig.persist();
    let pairs = |units: u32| -> Vec<_> {
        let pair = || Pair {
            hash: 1,
            entry: Entry::new(Address::new(0, 9), 4, false),
            segment: Arc::clone(&segment),
            key: Slice::from(&b"key"[..]),
            seqno: 1,
            other: Entry::new(Address::new(1, 9), units, false),
            other_segment: Arc::clone(&segment),
        };
        (0..1000).map(|_| pair()).collect()
    };
    let round = |units| round_of(&pairs(units), 256 << 10);
    // Small ones, some of 8 KiB, the largest that are read ahead, and those that never are.
    assert_eq!([8, 1 << 10, 7 << 14, u32::MAX].map(round), [PAIRS, 32, 1, PAIRS]);
}

/// Values that are nearly a segment each, twice: none of what was read for one is needed for the next.
#[test]
fn large_versions_are_told_from_each_other_all_the_same() {
    let mut rig = Rig::create();
    for round in 0..2_u8 {
        for key in 0..20_u32 {
            rig.write(Kind::Put, &key.to_be_bytes(), &vec![round; 400_000 + key as usize * 40_000]);
        }
        rig.persist();
    }
    rig.tend();
    assert_eq!((rig.store.index.entries(), rig.store.count()), (20, Some(20)));
}

/// Deletes some keys each time that something is flushed.
#[derive(Default)]
struct Deleter {
    store: OnceLock<Weak<Store>>,
    deleted: AtomicU64,
}

impl Host for Deleter {
    fn sync_log(&self, _: Seqno) -> Result<()> {
        let Some(store) = self.store.get().and_then(Weak::upgrade) else { return Ok(()) };
        for _ in 0..20_000 {
            let number = self.deleted.fetch_add(1, Ordering::Relaxed);
            let seqno = store.context.visibility.published() + 1;
            let key = &number.to_be_bytes();
            store.apply_alone(&Write { seqno, kind: Kind::Delete, key, value: b"" });
            store.context.visibility.publish(seqno);
        }
        Ok(())
    }

    fn persisted(&self) {}

    fn trouble(&self, _: Option<Error>) {}

    fn poison(&self, error: &Error) {
        panic!("{error}");
    }

    fn check_poison(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn compact_ends_however_fast_keys_are_deleted() {
    let deleter = Arc::new(Deleter::default());
    let host: Arc<Deleter> = Arc::clone(&deleter);
    let mut rig = Rig::with(host, MemoryFs::new(), Store::create);
    (0..400_000_u64).for_each(|key| rig.write(Kind::Put, &key.to_be_bytes(), b""));
    rig.persist();
    rig.write(Kind::Delete, &399_999_u64.to_be_bytes(), b"");
    rig.persist();
    deleter.store.set(Arc::downgrade(&rig.store)).unwrap();
    rig.store.compact().unwrap();
    let deleted = deleter.deleted.load(Ordering::Relaxed);
    assert!(deleted < 200_000, "{deleted} keys");
}

#[test]
fn tombstones_that_a_snapshot_kept_company_are_forgotten_when_it_is_gone() {
    const KEYS: u32 = 10_000;
    let mut rig = Rig::create();
    rig.put("key", "value");
    (0..KEYS).for_each(|key| rig.write(Kind::Put, &key.to_be_bytes(), b""));
    rig.persist();
    let held = rig.store.context.visibility.hold();
    (0..KEYS).for_each(|key| rig.write(Kind::Delete, &key.to_be_bytes(), b""));
    rig.persist();
    rig.tend();
    rig.store.write_checkpoint().unwrap();
    rig.store.wait_for_deferred().unwrap();
    assert_eq!(rig.store.forgettable(), 0);
    rig.tend();
    assert_eq!(rig.store.index.entries(), u64::from(2 * KEYS) + 1);
    assert!(rig.store.context.visibility.release(held));
    rig.tend();
    assert_eq!(rig.store.index.entries(), 1);
}
