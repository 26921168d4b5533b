//! The memtable: entries in an arena, under an index that keeps them sorted.
//!
//! Thread safety: one writer at a time (a lock inside sees to it), any number of readers beside it that
//! never wait. Entries are never changed and never freed before the memtable.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::arena::{Arena, Pen};
use super::entry::Entry;
use super::index::{Index, Position, Side, Target};
use crate::base::key::head_behind;
use crate::base::{Seqno, Slice, Trailer, View};
use crate::budget::Budget;
use crate::error::Result;
use crate::iter::EntryCursor;

/// Values of up to this many bytes are copied out by readers; longer ones pin the memtable.
const COPIED: usize = 4096;

/// A sorted set of entries that grows.
#[derive(Debug)]
pub(crate) struct Memtable {
    prefix: Box<[u8]>,
    index: Index,
    arena: Arena,
    entries: AtomicU64,
    /// The first write, 0 if there is none.
    oldest: AtomicU64,
    /// Owns the memory that `arena` resolves places in.
    pen: Mutex<Pen>,
    budget: Arc<Budget>,
    charged: AtomicUsize,
    flushed: AtomicBool,
}

impl Memtable {
    /// An empty memtable. Its keys are expected, not required, to start with `prefix`.
    pub(crate) fn new(prefix: &[u8], budget: Arc<Budget>) -> Self {
        let arena = Arena::new();
        let mut pen = Pen::default();
        // What an empty one takes is charged with its first entry: an idle keyspace asks for no memory.
        Self {
            prefix: prefix.into(),
            index: Index::new(&arena, &mut pen),
            arena,
            entries: AtomicU64::new(0),
            oldest: AtomicU64::new(0),
            pen: Mutex::new(pen),
            budget,
            charged: AtomicUsize::new(0),
            flushed: AtomicBool::new(false),
        }
    }

    /// Adds an entry. No entry with the same key and trailer may be there.
    pub(crate) fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let mut pen = self.pen.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Entry::write(&self.arena, &mut pen, key, trailer, value);
        self.index.insert(&self.arena, &mut pen, self.target(key, trailer), place);
        if self.entries.fetch_add(1, Ordering::Relaxed) == 0 {
            self.oldest.store(trailer.seqno(), Ordering::Relaxed);
        }
        self.charge();
    }

    /// The newest entry of `key` that a reader at `at` sees.
    pub(crate) fn get(self: &Arc<Self>, key: &[u8], at: Seqno) -> Option<(Trailer, Slice)> {
        let target = self.target(key, Trailer::visible_at(at));
        let entry = self.index.find(&self.arena, target)?;
        Some((entry.trailer(), self.slice(entry.value())))
    }

    /// A cursor over all entries there are when it is moved; those added later may or may not show.
    pub(crate) fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor { table: Arc::clone(self), position: None }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// The first write added, if any.
    pub(crate) fn oldest(&self) -> Option<Seqno> {
        Some(self.oldest.load(Ordering::Relaxed)).filter(|&seqno| seqno != 0)
    }

    /// Takes over the first write from the memtable this one is a copy of.
    pub(crate) fn set_oldest(&self, oldest: Option<Seqno>) {
        self.oldest.store(oldest.unwrap_or(0), Ordering::Relaxed);
    }

    /// Bytes of memory it takes.
    pub(crate) fn memory(&self) -> usize {
        self.arena.allocated()
    }

    /// The prefix its keys were expected to start with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The smallest and the largest key.
    pub(crate) fn ends(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let key = |side| Some(self.index.end(&self.arena, side)?.entry(&self.arena).key().to_vec());
        Some((key(Side::First)?, key(Side::Last)?))
    }

    /// Takes note that its entries are in a table now: what readers still hold of it no longer counts
    /// against the writers' share of the budget.
    pub(crate) fn set_flushed(&self) {
        if !self.flushed.swap(true, Ordering::Relaxed) {
            self.budget.shrink_memtables(self.charged.load(Ordering::Relaxed));
        }
    }

    /// Brings the budget up to date with the memory taken.
    fn charge(&self) {
        let now = self.arena.allocated();
        let before = self.charged.load(Ordering::Relaxed);
        if now != before {
            self.charged.store(now, Ordering::Relaxed);
            self.budget.grow_memtables(now - before);
        }
    }

    fn slice(self: &Arc<Self>, value: &[u8]) -> Slice {
        if value.len() <= COPIED {
            return Slice::from(value);
        }
        let owner = Arc::clone(self);
        // SAFETY: a node's value never changes and lives as long as the memtable, which the view holds.
        unsafe { View::from_raw(NonNull::from(value).cast(), value.len(), owner) }.into()
    }

    fn target<'a>(&self, key: &'a [u8], trailer: Trailer) -> Target<'a> {
        Target { head: head_behind(&self.prefix, key), key, trailer }
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        self.set_flushed();
    }
}

/// A position in a memtable.
#[derive(Debug)]
pub(crate) struct MemtableCursor {
    table: Arc<Memtable>,
    position: Option<Position>,
}

impl MemtableCursor {
    fn entry(&self) -> Entry<'_> {
        let position = self.position.expect("the cursor must be on an entry");
        position.entry(&self.table.arena)
    }

    fn here(&self) -> Target<'_> {
        let entry = self.entry();
        self.table.target(entry.key(), entry.trailer())
    }
}

impl EntryCursor for MemtableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.position = self.table.index.end(&self.table.arena, Side::First);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.position = self.table.index.end(&self.table.arena, Side::Last);
        Ok(())
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let target = self.table.target(key, trailer);
        self.position = self.table.index.lower_bound(&self.table.arena, target);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let target = self.table.target(key, trailer);
        self.position = self.table.index.before(&self.table.arena, target);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let position = self.position.expect("the cursor must be on an entry");
        self.position = position.next().or_else(|| {
            let table = &self.table;
            table.index.after(&table.arena, self.here())
        });
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let position = self.position.expect("the cursor must be on an entry");
        self.position = position.prev().or_else(|| {
            let table = &self.table;
            table.index.before(&table.arena, self.here())
        });
        Ok(())
    }

    fn is_valid(&self) -> bool {
        self.position.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.entry().key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.entry().trailer()
    }

    fn value(&self) -> &[u8] {
        self.entry().value()
    }

    fn value_slice(&self) -> Slice {
        self.table.slice(self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::LARGE;
    use super::*;
    use crate::base::Kind;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn table(prefix: &[u8]) -> Arc<Memtable> {
        Arc::new(Memtable::new(prefix, Arc::new(Budget::new(64 << 20))))
    }

    fn all(cursor: &mut MemtableCursor) -> Vec<(Vec<u8>, Seqno, Vec<u8>)> {
        let mut entries = Vec::new();
        cursor.seek_to_first().unwrap();
        while cursor.is_valid() {
            let entry = (cursor.key().to_vec(), cursor.trailer().seqno(), cursor.value().to_vec());
            entries.push(entry);
            cursor.next().unwrap();
        }
        entries
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(
            prefix in "[ab]{0,3}",
            keys in proptest::collection::vec("[abc]{0,6}", 1..200),
            ascending in any::<bool>(),
        ) {
            let table = table(prefix.as_bytes());
            let mut keys = keys;
            if ascending {
                keys.sort();
            }
            let mut model = BTreeMap::new();
            for (i, key) in keys.iter().enumerate() {
                let seqno = i as u64 + 1;
                let value = format!("{i}");
                table.insert(key.as_bytes(), Trailer::new(seqno, Kind::Put), value.as_bytes());
                model.insert((key.clone().into_bytes(), u64::MAX - seqno), value.into_bytes());
            }
            let expected: Vec<_> = model
                .iter()
                .map(|((key, seqno), value)| (key.clone(), u64::MAX - seqno, value.clone()))
                .collect();
            let mut cursor = table.cursor();
            prop_assert_eq!(all(&mut cursor), expected.clone());
            cursor.seek_to_last().unwrap();
            for entry in expected.iter().rev() {
                prop_assert_eq!((cursor.key(), cursor.trailer().seqno()), (&entry.0[..], entry.1));
                cursor.prev().unwrap();
            }
            prop_assert!(!cursor.is_valid());
            for at in 0..=keys.len() as u64 {
                for key in &keys {
                    let newest = expected.iter().find(|(k, s, _)| k == key.as_bytes() && *s <= at);
                    let got = table.get(key.as_bytes(), at);
                    prop_assert_eq!(got.map(|(_, v)| v.to_vec()), newest.map(|(_, _, v)| v.clone()));
                }
            }
            let (first, last) = table.ends().unwrap();
            prop_assert_eq!((&first, &last), (&expected[0].0, &expected[expected.len() - 1].0));
        }
    }

    #[test]
    fn large_values_and_keys() {
        let table = table(b"");
        let sizes = [0, 1, COPIED + 1, LARGE, LARGE + 1, 3 << 20];
        for (i, &size) in sizes.iter().enumerate() {
            let key = vec![i as u8; 64 << 10];
            table.insert(&key, Trailer::new(i as u64 + 1, Kind::Put), &vec![i as u8; size]);
        }
        let slices: Vec<_> = (0..sizes.len())
            .map(|i| table.get(&vec![i as u8; 64 << 10], 100).expect("there").1)
            .collect();
        drop(table);
        for (i, &size) in sizes.iter().enumerate() {
            assert_eq!(slices[i], vec![i as u8; size], "a slice outlives the table");
        }
    }

    #[test]
    fn budget_is_charged_and_given_back() {
        let budget = Arc::new(Budget::new(64 << 20));
        let table = Arc::new(Memtable::new(b"", Arc::clone(&budget)));
        table.insert(b"k", Trailer::new(1, Kind::Put), &vec![0; 1 << 20]);
        assert!(budget.memtables_used() > 1 << 20);
        assert_eq!(budget.memtables_used(), table.memory());
        drop(table);
        assert_eq!(budget.memtables_used(), 0);
    }

    #[test]
    fn what_was_inserted_is_found_beside_the_writer() {
        let entries = if cfg!(miri) { 200 } else { 200_000u64 };
        // Spread over the keys, so that nodes are split everywhere.
        let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let table = table(b"");
        let inserted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=entries {
                    let key = key(number);
                    table.insert(&key, Trailer::new(number, Kind::Put), &key);
                    inserted.store(number, Ordering::Release);
                }
            });
            for reader in 0..2 {
                let (table, inserted) = (&table, &inserted);
                scope.spawn(move || {
                    let mut rng = crate::base::rng::Rng::new(reader);
                    let mut done = 0;
                    while done < entries {
                        done = inserted.load(Ordering::Acquire);
                        let number = 1 + rng.next() % done.max(1);
                        let key = key(number);
                        if number <= done {
                            assert!(table.get(&key, done).is_some(), "{number} of {done} by get");
                            let mut cursor = table.cursor();
                            cursor.seek_before(&key, Trailer::new(0, Kind::Delete)).unwrap();
                            assert!(
                                cursor.is_valid() && cursor.key() == key,
                                "{number} from above"
                            );
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn readers_beside_the_writer_see_whole_entries() {
        let table = table(b"0000");
        let entries = if cfg!(miri) { 100 } else { 20_000u64 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = crate::base::rng::Rng::new(1);
                for seqno in 1..=entries {
                    let key = format!("{:016}", rng.next() % 100_000);
                    table.insert(key.as_bytes(), Trailer::new(seqno, Kind::Put), key.as_bytes());
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut seen = 0;
                    while seen < entries as usize {
                        let found = all(&mut table.cursor());
                        assert!(found.len() >= seen, "entries do not vanish");
                        seen = found.len();
                        assert!(found.iter().all(|(key, _, value)| key == value));
                        assert!(
                            found.is_sorted_by(
                                |a, b| (&a.0, u64::MAX - a.1) < (&b.0, u64::MAX - b.1)
                            )
                        );
                    }
                });
            }
        });
    }
}
