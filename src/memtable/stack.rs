//! The memtables of a keyspace: the one that takes writes, and those that wait to be written to files.

use std::sync::Arc;

use super::{Memtable, MemtableCursor};
use crate::base::key::common_prefix_len;
use crate::base::{Seqno, Slice, Trailer};
use crate::budget::Budget;
use crate::iter::EntryCursor;

/// After so many entries in a new keyspace's first memtable, the prefix its keys share is known well enough.
pub(crate) const ENTRIES_TO_LEARN_FROM: u64 = 1024;

/// A memtable that takes no more writes and waits for its flush.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) memtable: Arc<Memtable>,
    /// The state it was cut at: all writes up to here are in it or in what is older.
    pub(crate) last: Seqno,
}

/// The memtables at one moment. Never changed as a whole; only the active one grows.
#[derive(Clone, Debug)]
pub(crate) struct Memtables {
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Frozen>,
}

impl Memtables {
    /// An empty active one, whose keys are expected to start with `prefix`.
    pub(crate) fn new(prefix: &[u8], budget: &Arc<Budget>) -> Self {
        let active = Arc::new(Memtable::new(prefix, Arc::clone(budget)));
        Self { active, frozen: Vec::new() }
    }

    /// All of them, newest first, but for empty ones.
    #[inline]
    fn all(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        let frozen = self.frozen.iter().map(|frozen| &frozen.memtable);
        std::iter::once(&self.active).chain(frozen).filter(|memtable| !memtable.is_empty())
    }

    /// The newest entry of `key` that a reader at `at` sees.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], at: Seqno) -> Option<(Trailer, Slice)> {
        self.all().find_map(|memtable| memtable.get(key, at))
    }

    /// A cursor over each.
    pub(crate) fn cursors(&self) -> impl Iterator<Item = MemtableCursor> {
        self.all().map(Memtable::cursor)
    }

    /// An empty memtable to go on with when the active one is frozen; `None` if that is empty.
    pub(crate) fn next(&self, budget: &Arc<Budget>) -> Option<Arc<Memtable>> {
        let prefix = self.active.common_prefix()?;
        Some(Arc::new(Memtable::new(&prefix, Arc::clone(budget))))
    }

    /// Freezes the active one at `last`, and goes on with `next`.
    pub(crate) fn freeze(&mut self, next: Arc<Memtable>, last: Seqno) {
        let memtable = std::mem::replace(&mut self.active, next);
        self.frozen.insert(0, Frozen { memtable, last });
    }

    /// The one to be flushed next.
    pub(crate) fn oldest_frozen(&self) -> Option<&Frozen> {
        self.frozen.last()
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

impl Memtable {
    /// What all its keys start with; `None` if it is empty.
    fn common_prefix(&self) -> Option<Vec<u8>> {
        let (mut first, last) = self.ends()?;
        first.truncate(common_prefix_len(&first, &last));
        Some(first)
    }

    /// A copy that has been built with the prefix that its keys turn out to share; `None` if that would gain nothing,
    /// or take long. Nothing may be inserted meanwhile.
    pub(crate) fn with_learned_prefix(self: &Arc<Self>, budget: &Arc<Budget>) -> Option<Self> {
        let prefix = self.common_prefix()?;
        if prefix.len() <= self.prefix().len() || self.entries() > 16 * ENTRIES_TO_LEARN_FROM {
            return None;
        }
        let learned = Self::new(&prefix, Arc::clone(budget));
        let mut cursor = self.cursor();
        let mut moved = cursor.seek_to_first();
        while moved.is_ok() && cursor.is_valid() {
            learned.insert(cursor.key(), cursor.trailer(), cursor.value());
            moved = cursor.next();
        }
        learned.set_oldest(self.oldest());
        Some(learned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Kind;

    #[test]
    fn newer_memtables_come_first_and_the_next_one_expects_the_prefix() {
        let budget = Arc::new(Budget::new(8 << 20));
        let mut memtables = Memtables::new(b"", &budget);
        assert!(memtables.next(&budget).is_none() && memtables.oldest().is_none());
        for seqno in 1..=3 {
            let trailer = Trailer::new(seqno, Kind::Put);
            memtables.active.insert(b"same", trailer, &seqno.to_le_bytes());
            memtables.active.insert(&[b's', b'a', seqno as u8], trailer, b"");
            memtables.freeze(memtables.next(&budget).unwrap(), seqno);
            assert_eq!(memtables.active.prefix(), b"sa");
        }
        for at in 1..=3 {
            let (trailer, value) = memtables.get(b"same", at).unwrap();
            assert_eq!((trailer.seqno(), &*value), (at, &at.to_le_bytes()[..]));
        }
        assert!(memtables.get(b"same", 0).is_none());
        assert_eq!((memtables.oldest(), memtables.entries()), (Some(1), 6));
        assert_eq!(memtables.oldest_frozen().unwrap().last, 1);
        assert_eq!((memtables.cursors().count(), memtables.active_bytes()), (3, 0));
    }

    #[test]
    fn a_prefix_is_learned_when_it_helps() {
        let budget = Arc::new(Budget::new(8 << 20));
        let memtable = Arc::new(Memtable::new(b"", Arc::clone(&budget)));
        for seqno in 1..=100 {
            let key = format!("prefix {seqno:03}");
            memtable.insert(key.as_bytes(), Trailer::new(seqno, Kind::Put), key.as_bytes());
        }
        let learned = Arc::new(memtable.with_learned_prefix(&budget).unwrap());
        assert_eq!((learned.prefix(), learned.oldest()), (&b"prefix "[..], Some(1)));
        let (mut old, mut new) = (memtable.cursor(), learned.cursor());
        old.seek_to_first().unwrap();
        new.seek_to_first().unwrap();
        while old.is_valid() {
            assert_eq!(
                (old.key(), old.trailer(), old.value()),
                (new.key(), new.trailer(), new.value())
            );
            old.next().unwrap();
            new.next().unwrap();
        }
        assert!(!new.is_valid() && learned.with_learned_prefix(&budget).is_none());
    }
}
