//! The memtables of a keyspace: the one that takes writes, and those that wait to be written to files.

use std::sync::Arc;

use super::{Memtable, MemtableCursor, new};
use crate::base::key::MAX_SEQNO;
use crate::base::{Seqno, Slice, Trailer};
use crate::budget::Budget;
use crate::options::MemtableKind;
use crate::planted::{Bug, planted};

/// A memtable that takes no more writes and waits for its flush.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) memtable: Arc<dyn Memtable>,
    /// The state it was cut at: all writes up to here are in it or in what is older.
    pub(crate) last: Seqno,
}

/// The memtables at one moment. Never changed as a whole; only the active one grows.
#[derive(Clone, Debug)]
pub(crate) struct Memtables {
    pub(crate) active: Arc<dyn Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Frozen>,
}

impl Memtables {
    /// An empty active one of a kind.
    pub(crate) fn new(kind: MemtableKind, budget: &Arc<Budget>) -> Self {
        Self { active: new(kind, budget), frozen: Vec::new() }
    }

    /// All of them, newest first, but for empty ones.
    #[inline]
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Memtable>> {
        let frozen = self.frozen.iter().map(|frozen| &frozen.memtable);
        std::iter::once(&self.active).chain(frozen).filter(|memtable| !memtable.is_empty())
    }

    /// The newest entry of `key` that a reader at `at` sees.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], at: Seqno) -> Option<(Trailer, Slice)> {
        let at = if planted(Bug::MemtableIgnoresSnapshot) { MAX_SEQNO } else { at };
        self.all().find_map(|memtable| memtable.get(key, at))
    }

    /// A cursor over each.
    pub(crate) fn cursors(&self) -> impl Iterator<Item = MemtableCursor> {
        self.all().map(|memtable| memtable.cursor())
    }

    /// An empty memtable to go on with when the active one is frozen, which may be of another kind; `None` if that is
    /// empty.
    pub(crate) fn next(
        &self,
        kind: MemtableKind,
        budget: &Arc<Budget>,
    ) -> Option<Arc<dyn Memtable>> {
        (!self.active.is_empty()).then(|| new(kind, budget))
    }

    /// Freezes the active one at `last`, and goes on with `next`.
    pub(crate) fn freeze(&mut self, next: Arc<dyn Memtable>, last: Seqno) {
        let memtable = std::mem::replace(&mut self.active, next);
        self.frozen.insert(0, Frozen { memtable, last });
    }

    /// Takes note that none of them is to be written to files any more.
    pub(crate) fn set_flushed(&self) {
        self.all().for_each(|memtable| memtable.set_flushed());
    }

    /// The one to be flushed next.
    pub(crate) fn oldest_frozen(&self) -> Option<&Frozen> {
        self.frozen.last()
    }

    /// Those, newest first, that were frozen before `seqno`.
    pub(crate) fn frozen_before(&self, seqno: Seqno) -> &[Frozen] {
        let newer = self.frozen.partition_point(|frozen| frozen.last >= seqno);
        &self.frozen[newer..]
    }

    /// Those are gone that were frozen at `seqno` or before.
    pub(crate) fn forget_up_to(&mut self, seqno: Seqno) {
        self.frozen.retain(|frozen| frozen.last > seqno);
    }

    /// The first write in them.
    pub(crate) fn oldest(&self) -> Option<Seqno> {
        self.oldest_frozen().map_or(&self.active, |frozen| &frozen.memtable).oldest()
    }

    /// Entries of all.
    pub(crate) fn entries(&self) -> u64 {
        self.all().map(|memtable| memtable.entries()).sum()
    }

    /// Bytes of memory they take.
    pub(crate) fn memory(&self) -> usize {
        self.all().map(|memtable| memtable.memory()).sum()
    }

    /// Bytes of the active one.
    pub(crate) fn active_bytes(&self) -> usize {
        if self.active.is_empty() { 0 } else { self.active.memory() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Kind;

    #[test]
    fn newer_memtables_come_first_whatever_their_kinds() {
        let budget = Arc::new(Budget::new(8 << 20));
        let kinds = [MemtableKind::Vector, MemtableKind::Skiplist, MemtableKind::Tagged];
        let mut memtables = Memtables::new(MemtableKind::HashLinklist { prefix: 2 }, &budget);
        assert!(memtables.next(kinds[0], &budget).is_none() && memtables.oldest().is_none());
        for (seqno, kind) in (1..).zip(kinds) {
            let trailer = Trailer::new(seqno, Kind::Put);
            memtables.active.insert(b"same", trailer, &seqno.to_le_bytes());
            memtables.active.insert(&[b's', b'a', seqno as u8], trailer, b"");
            memtables.freeze(memtables.next(kind, &budget).unwrap(), seqno);
        }
        for at in 1..=3 {
            let (trailer, value) = memtables.get(b"same", at).unwrap();
            assert_eq!((trailer.seqno(), &*value), (at, &at.to_le_bytes()[..]));
        }
        assert!(memtables.get(b"same", 0).is_none());
        assert_eq!((memtables.oldest(), memtables.entries()), (Some(1), 6));
        assert_eq!(memtables.oldest_frozen().unwrap().last, 1);
        assert_eq!((memtables.cursors().count(), memtables.active_bytes()), (3, 0));
        let frozen = |before| memtables.frozen_before(before).iter().map(|frozen| frozen.last);
        assert!(frozen(Seqno::MAX).eq([3, 2, 1]) && frozen(3).eq([2, 1]) && frozen(1).eq([]));
        memtables.forget_up_to(2);
        assert!(memtables.frozen.iter().map(|frozen| frozen.last).eq([3]));
    }
}
