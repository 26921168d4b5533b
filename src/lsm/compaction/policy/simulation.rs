//! Trees without files, for tests of policies: what tables hold is kept aside.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::{Choice, Into, Policy, Shape, Work, next};
use crate::base::Seqno;
use crate::lsm::compaction::claims::{Claim, Claims, Wanted};
use crate::lsm::version::{Home, LEVELS, Place, TableFile, TableMeta, Version, sample};
use crate::options::CompactionLock;

pub(super) const SHAPE: Shape = Shape { flush_bytes: 250, base_bytes: 1000, table_bytes: 100 };

/// A table: level and run, number, keys, bytes. Those with larger numbers are newer.
pub(super) type Row<'a> = ((usize, u64), u64, (&'a [u8], &'a [u8]), u64);

pub(super) fn version(rows: &[Row]) -> Version {
    let home = sample::home();
    let table = |&((level, run), id, keys, len): &Row| {
        (Place { level, run }, sample::table(&home, id, keys, len, id))
    };
    Version::default().with(&[], &rows.iter().map(table).collect::<Vec<_>>()).unwrap()
}

pub(super) fn ids(choice: &Choice) -> Vec<u64> {
    choice.inputs.iter().map(|table| table.meta.id).collect()
}

/// So many bytes are counted for an entry.
pub(super) const ENTRY: u64 = 10;

/// Writes of these keys count as tombstones. They never go.
const DELETED: std::ops::Range<u16> = 400..700;

/// What a table holds: the newest write of each key.
type Content = BTreeMap<u16, Seqno>;

/// What comes to a tree at once.
#[derive(Clone, Debug)]
pub(super) struct Flush {
    keys: Vec<u16>,
    /// Whether it is a load, of several tables.
    is_load: bool,
    /// Whether all that is due is done then.
    settles: bool,
}

/// Keys that lie close together, so that some flushes overlap nothing.
pub(super) fn flushes() -> impl Strategy<Value = Vec<Flush>> {
    let offsets = proptest::collection::vec(0..100_u16, 1..40);
    let flush = (0..1000_u16, offsets, prop::bool::weighted(0.15), any::<bool>());
    let flush = flush.prop_map(|(start, offsets, is_load, settles)| {
        let keys = offsets.iter().map(|offset| start + offset).collect();
        Flush { keys, is_load, settles }
    });
    proptest::collection::vec(flush, 0..60)
}

/// Flushes of keys from all over.
pub(super) fn fill(count: u16) -> Vec<Flush> {
    let keys = |number: u16| (0..40).map(move |key: u16| (key * 251 + number * 97) % 2000);
    let flush = |number| Flush { keys: keys(number).collect(), is_load: false, settles: false };
    (0..count).map(flush).collect()
}

pub(super) struct Tree {
    home: Arc<Home>,
    pub(super) version: Version,
    contents: BTreeMap<u64, Content>,
    written: Content,
    seqno: Seqno,
    next_id: u64,
    /// Entries that flushes wrote, and that merges wrote.
    pub(super) flushed: u64,
    pub(super) merged: u64,
}

impl Tree {
    pub(super) fn new() -> Self {
        let (version, contents, written) = Default::default();
        let home = sample::home();
        Self { home, version, contents, written, seqno: 0, next_id: 1, flushed: 0, merged: 0 }
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn table(&mut self, content: Content) -> Arc<TableFile> {
        let id = self.take_id();
        let key = |end: Option<(&u16, &Seqno)>| end.unwrap().0.to_be_bytes().to_vec();
        let meta = TableMeta {
            id,
            len: ENTRY * content.len() as u64,
            entries: content.len() as u64,
            tombstones: content.keys().filter(|key| DELETED.contains(key)).count() as u64,
            smallest: key(content.first_key_value()),
            largest: key(content.last_key_value()),
            smallest_seqno: *content.values().min().unwrap(),
            largest_seqno: *content.values().max().unwrap(),
            ranges: 0,
        };
        self.contents.insert(id, content);
        TableFile::new(meta, Arc::clone(&self.home))
    }

    fn place(&mut self, level: usize, into: Into) -> Place {
        match into {
            Into::Merged => Place::merged(level),
            Into::Newest => Place { level, run: self.take_id() },
            Into::Its(run) => Place { level, run },
        }
    }

    /// Takes a flush or a load, and settles if it is to.
    pub(super) fn take(&mut self, flush: &Flush, policy: &dyn Policy, shape: &Shape) {
        self.flush(flush, policy, shape);
        if flush.settles {
            self.settle(policy, shape);
        }
    }

    /// Takes a flush or a load.
    pub(super) fn flush(&mut self, flush: &Flush, policy: &dyn Policy, shape: &Shape) {
        self.take_beside(flush, policy, shape, &Claims::new(CompactionLock::RangeLevel));
    }

    /// Takes a flush or a load while others compact.
    fn take_beside(
        &mut self,
        flush: &Flush,
        policy: &dyn Policy,
        shape: &Shape,
        claims: &Arc<Claims>,
    ) {
        let mut content = Content::new();
        for &key in &flush.keys {
            self.seqno += 1;
            content.insert(key, self.seqno);
        }
        self.flushed += content.len() as u64;
        self.written.extend(&content);
        let (level, into, tables) = if flush.is_load {
            let tables = self.split(content, shape);
            let claimed = claims.claim(|_| {
                let (level, into) = policy.place(&self.version, &tables, shape);
                Some(((level, into), Wanted::place(level, &tables)))
            });
            let (level, into) = claimed.map_or((0, Into::Newest), |(found, _)| found);
            (level, into, tables)
        } else {
            (0, Into::Newest, self.split_at(content, policy.bounds(&self.version, shape)))
        };
        let place = self.place(level, into);
        let added: Vec<_> = tables.into_iter().map(|table| (place, table)).collect();
        self.version = self.version.with(&[], &added).expect("it overlaps nothing");
        self.check();
    }

    /// Takes flushes and loads while compactions run, which begin and end as `dice` fall; then does what is left. How many ran
    /// at once at most.
    pub(super) fn take_all(
        &mut self,
        flushes: &[Flush],
        dice: &[u8],
        policy: &dyn Policy,
        shape: &Shape,
        lock: CompactionLock,
    ) -> usize {
        let claims = Claims::new(lock);
        let mut running: Vec<(Choice, Claim)> = Vec::new();
        let (mut most, mut dice) = (0, dice.iter().cycle());
        let mut flushes = flushes.iter();
        loop {
            let roll = usize::from(*dice.next().unwrap());
            if roll % 3 == 0
                && let Some(flush) = flushes.next()
            {
                self.take_beside(flush, policy, shape, &claims);
            } else if roll % 3 == 1 && !running.is_empty() {
                let (choice, claim) = running.swap_remove(roll % running.len());
                self.apply(&choice, shape);
                drop(claim);
                self.check();
            } else if let Some(begun) =
                claims.claim(|held| next(policy, &self.version, shape, held))
            {
                running.push(begun);
                most = most.max(running.len());
            } else if running.is_empty() && flushes.len() == 0 {
                return most;
            }
        }
    }

    fn split_at(&mut self, mut content: Content, bounds: Vec<Vec<u8>>) -> Vec<Arc<TableFile>> {
        let key = |bound: Vec<u8>| u16::from_be_bytes(bound.try_into().expect("it is a key"));
        let mut parts: Vec<_> =
            bounds.into_iter().rev().map(|bound| content.split_off(&key(bound))).collect();
        parts.push(content);
        parts.retain(|part| !part.is_empty());
        parts.into_iter().rev().map(|part| self.table(part)).collect()
    }

    fn split(&mut self, content: Content, shape: &Shape) -> Vec<Arc<TableFile>> {
        let all: Vec<_> = content.into_iter().collect();
        let parts = all.chunks((shape.table_bytes / ENTRY).max(1) as usize);
        parts.map(|part| self.table(part.iter().copied().collect())).collect()
    }

    /// Does what a compaction would do.
    pub(super) fn apply(&mut self, choice: &Choice, shape: &Shape) {
        let place = self.place(choice.level, choice.into);
        let added = match choice.work {
            Work::Move => choice.inputs.clone(),
            Work::Drop => {
                for id in ids(choice) {
                    let gone = self.contents.remove(&id).unwrap();
                    self.written.retain(|key, seqno| gone.get(key) != Some(seqno));
                }
                Vec::new()
            }
            Work::Merge => {
                let mut merged = Content::new();
                for (&key, &seqno) in ids(choice).iter().flat_map(|id| &self.contents[id]) {
                    let newest = merged.entry(key).or_default();
                    *newest = seqno.max(*newest);
                }
                self.merged += merged.len() as u64;
                self.split(merged, shape)
            }
        };
        let added: Vec<_> = added.into_iter().map(|table| (place, table)).collect();
        self.version = self.version.with(&ids(choice), &added).expect("the runs are in order");
    }

    /// Whether each key is found with its last write, and newer writes in front of older ones.
    pub(super) fn check(&self) {
        let mut found = Content::new();
        let mut last = Content::new();
        for table in self.version.tables() {
            for (&key, &seqno) in &self.contents[&table.meta.id] {
                found.entry(key).or_insert(seqno);
                let newer = last.insert(key, seqno);
                assert!(newer.is_none_or(|newer| newer > seqno), "{key}: {newer:?}, {seqno}");
            }
        }
        assert_eq!(found, self.written);
    }

    /// Does what is due until nothing is.
    pub(super) fn settle(&mut self, policy: &dyn Policy, shape: &Shape) {
        // Each change takes an entry down, or takes away a run, so there is an end.
        let mut left = (self.seqno as usize + self.version.runs().len()) * LEVELS;
        while let Some(choice) = policy.pick(&self.version, shape) {
            assert!(choice.is_whole(&self.version), "{choice:?}");
            self.apply(&choice, shape);
            self.check();
            left = left.checked_sub(1).expect("it goes on for ever");
        }
    }

    /// Merges everything.
    pub(super) fn compact(&mut self, policy: &dyn Policy, shape: &Shape) {
        if let Some(choice) = policy.everything(&self.version) {
            assert!(choice.is_whole(&self.version), "{choice:?}");
            self.apply(&choice, shape);
            self.check();
        }
    }

    /// Flushes so many times so many keys, each above all before it.
    pub(super) fn fill_ascending(
        &mut self,
        len: usize,
        count: usize,
        policy: &dyn Policy,
        shape: &Shape,
    ) {
        for number in 0..count {
            let from = (number * len) as u16;
            let keys = (from..from + len as u16).collect();
            self.take(&Flush { keys, is_load: false, settles: true }, policy, shape);
        }
    }
}
