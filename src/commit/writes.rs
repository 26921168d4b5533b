//! What is committed at once: one write, or a batch of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::entry::{self, Change};
use super::pace::STOP;
use crate::base::{Kind, Seqno, Span};
use crate::contract::{Engine, Write};
use crate::error::Result;
use crate::options::Durability;

/// A keyspace as the commit path sees it.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) id: u32,
    /// Whether its writes go through the log.
    pub(crate) logged: bool,
    pub(crate) engine: Arc<dyn Engine>,
    /// What the engine says of itself, here because every put asks.
    checks_writes: bool,
}

impl Target {
    pub(crate) fn new(id: u32, logged: bool, engine: Arc<dyn Engine>) -> Self {
        let checks_writes = engine.checks_writes();
        Self { id, logged, engine, checks_writes }
    }

    /// An error if the write is not one that the engine can take.
    #[inline]
    pub(crate) fn check(&self, kind: Kind, key: &[u8], value: &[u8]) -> Result<()> {
        if self.checks_writes && kind == Kind::Put {
            self.engine.check_write(key, value)
        } else {
            Ok(())
        }
    }
}

/// So many targets are looked through, one by one.
const FEW: usize = 8;

/// The keyspaces that writes go to, each once, in the order in which they were added.
#[derive(Clone, Default)]
pub(crate) struct Targets {
    all: Vec<Target>,
    /// Where each of them is, by the number of its keyspace, if they are more than a few: a batch may write to thousands in turn.
    places: HashMap<u32, usize>,
}

impl Targets {
    /// Where the keyspace `id` is, which is looked for at `hint` first: as a rule writes follow one another in one keyspace.
    #[inline]
    fn find(&self, id: u32, hint: usize) -> Option<usize> {
        match self.all.get(hint) {
            Some(target) if target.id == id => Some(hint),
            _ => self.search(id),
        }
    }

    fn search(&self, id: u32) -> Option<usize> {
        match self.all.len() {
            ..=FEW => self.all.iter().position(|target| target.id == id),
            _ => self.places.get(&id).copied(),
        }
    }

    /// Adds a keyspace that is not there.
    fn push(&mut self, target: &Target) {
        self.all.push(target.clone());
        if self.all.len() > FEW {
            let added = self.all.iter().enumerate().skip(self.places.len());
            self.places.extend(added.map(|(at, target)| (target.id, at)));
        }
    }
}

/// Writes that are committed together, encoded. Those of unlogged keyspaces are kept apart; within a
/// keyspace the order is kept.
#[derive(Clone, Default)]
pub(crate) struct EncodedWrites {
    pub(crate) logged: Vec<u8>,
    pub(crate) logged_count: u64,
    pub(crate) unlogged: Vec<u8>,
    pub(crate) unlogged_count: u64,
    targets: Targets,
    /// Where the last write goes.
    last: usize,
    /// Whether any of them does not only delete.
    has_puts: bool,
}

impl EncodedWrites {
    /// Adds a write.
    pub(crate) fn push(&mut self, target: &Target, kind: Kind, key: &[u8], value: &[u8]) {
        self.has_puts |= kind != Kind::Delete;
        let out = self.next(target);
        entry::put_head(out, target.id, kind, key, value.len());
        out.extend_from_slice(value);
    }

    /// Adds a write that deletes the keys of `span`, in an engine that can.
    pub(crate) fn push_delete_range(&mut self, target: &Target, span: Span<'_>) {
        entry::put_delete_range(self.next(target), target.id, span);
    }

    /// Counts one more write to `target`, and gives where it is encoded.
    fn next(&mut self, target: &Target) -> &mut Vec<u8> {
        self.last = self.targets.find(target.id, self.last).unwrap_or_else(|| {
            self.targets.push(target);
            self.targets.all.len() - 1
        });
        let (out, count) = if target.logged {
            (&mut self.logged, &mut self.logged_count)
        } else {
            (&mut self.unlogged, &mut self.unlogged_count)
        };
        *count += 1;
        out
    }

    pub(crate) fn len(&self) -> u64 {
        self.logged_count + self.unlogged_count
    }

    /// Bytes of keys and values and what stands between them.
    pub(crate) fn bytes(&self) -> usize {
        self.logged.len() + self.unlogged.len()
    }
}

/// What one call commits.
#[derive(Clone, Copy)]
pub(crate) enum Writes<'a> {
    /// One write, not encoded: the common case, for which nothing is allocated.
    One { target: &'a Target, kind: Kind, key: &'a [u8], value: &'a [u8] },
    /// A batch.
    Many(&'a EncodedWrites),
}

impl Writes<'_> {
    pub(crate) fn targets(&self) -> &[Target] {
        match self {
            Self::One { target, .. } => std::slice::from_ref(target),
            Self::Many(writes) => &writes.targets.all,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::One { key, value, .. } => key.len() + value.len(),
            Self::Many(writes) => writes.bytes(),
        }
    }

    /// How far these writes must be slowed down for one of their targets.
    pub(crate) fn pressure_on(&self, target: &Target) -> u32 {
        let pressure = target.engine.pressure();
        if pressure >= STOP && self.only_delete() {
            return target.engine.pressure_on_deletes();
        }
        pressure
    }

    fn only_delete(&self) -> bool {
        match self {
            Self::One { kind, .. } => *kind == Kind::Delete,
            Self::Many(writes) => !writes.has_puts,
        }
    }

    /// How many of the writes go through the log; they come first.
    pub(crate) fn logged_count(&self) -> u64 {
        match self {
            Self::One { target, .. } => u64::from(target.logged),
            Self::Many(writes) => writes.logged_count,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::One { .. } => 1,
            Self::Many(writes) => writes.len(),
        }
    }

    /// A copy that does not borrow.
    pub(crate) fn to_encoded(self) -> EncodedWrites {
        match self {
            Self::One { target, kind, key, value } => {
                let mut writes = EncodedWrites::default();
                writes.push(target, kind, key, value);
                writes
            }
            Self::Many(writes) => writes.clone(),
        }
    }

    /// Hands the writes, numbered from `first`, to their engines.
    pub(crate) fn apply(&self, first: Seqno) {
        match *self {
            Self::One { target, kind, key, value } => {
                target.engine.apply_alone(&Write { seqno: first, kind, key, value });
            }
            Self::Many(writes) => {
                let mut seqno = first;
                let mut target = 0;
                for mut bytes in [&writes.logged[..], &writes.unlogged[..]] {
                    let mut next = entry::take(&mut bytes);
                    while let Some(entry) = next {
                        next = entry::take(&mut bytes);
                        target =
                            writes.targets.find(entry.keyspace, target).expect("added by push");
                        let engine = &*writes.targets.all[target].engine;
                        if let Some(next) = next.filter(|next| next.keyspace == entry.keyspace)
                            && let Change::Key { key, .. } = next.change
                        {
                            engine.prefetch(key);
                        }
                        entry
                            .change
                            .apply(engine, seqno)
                            .expect("it was asked when this was added");
                        seqno += 1;
                    }
                }
                // Unlogged writes come last, and no log will ever hold their numbers.
                let logged_end = first + writes.logged_count;
                for target in &writes.targets.all {
                    let end = if target.logged { logged_end } else { seqno };
                    target.engine.end_batch(end - 1);
                }
            }
        }
    }
}

/// The durability that the writes can have.
pub(crate) fn effective(durability: Durability, writes: &Writes<'_>) -> Option<Durability> {
    (writes.logged_count() > 0).then_some(durability)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::testing::{Log, context};
    use crate::lsm::Tree;
    use crate::options::KeyspaceOptions;
    use crate::vfs::MemoryFs;

    #[test]
    fn targets_are_found_where_they_are_and_many_of_them_by_their_numbers() {
        let context = context(Arc::new(MemoryFs::new()), Arc::<Log>::default());
        let engine: Arc<dyn Engine> =
            Tree::create(context.clone(), KeyspaceOptions::lsm().lsm).unwrap();
        let mut writes = EncodedWrites::default();
        for count in 1..100 {
            // Each is written to again before the next one comes.
            for id in 0..count {
                let target = Target::new(7 * id, id % 2 == 0, Arc::clone(&engine));
                writes.push(&target, Kind::Put, b"key", b"value");
            }
            let Targets { all, places } = &writes.targets;
            let ids: Vec<u32> = all.iter().map(|target| target.id).collect();
            assert_eq!(ids, (0..count).map(|id| 7 * id).collect::<Vec<_>>());
            let by_number = if all.len() > FEW { all.len() } else { 0 };
            assert_eq!(places.len(), by_number);
            for hint in [0, 3, 1000] {
                let find = |id| writes.targets.find(id, hint);
                assert!(ids.iter().enumerate().all(|(at, &id)| find(id) == Some(at)));
                assert_eq!((find(1), find(7 * count)), (None, None));
            }
        }
        assert_eq!(writes.len(), 99 * 100 / 2);
        engine.stop();
        context.background.flush.stop();
        context.background.compaction.stop();
    }
}
