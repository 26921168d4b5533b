//! What memtables of all kinds have in common: entries in an arena, in the order they came, and an index of its own kind
//! that finds them.
//!
//! Thread safety: one writer at a time (a lock inside sees to it), any number of readers beside it that
//! never wait for it, nor it for them. Entries are not freed before the memtable. An entry is made known to
//! readers by the release store of its place in the index, and then by that of the number of entries.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, Weak};

use super::Memtable;
use super::account::Account;
use super::arena::{Arena, Pen};
use super::cursor::{MemtableCursor, Seek, Steps, Way};
use super::entry::{Entry, New};
use super::ranges::{Ranges, SharedRanges};
use super::sync::{AtomicU64, Ordering};
use crate::base::{Kind, RangeTombstone, Seqno, Slice, Span, Trailer, View};
use crate::budget::Budget;
use crate::planted::{Bug, planted};
use crate::sync::Mutex;

/// Values of up to this many bytes are copied out by readers; longer ones pin the memtable.
pub(super) const COPIED: usize = 4096;

/// How a kind of memtable finds its entries. Where it is given entries, they are always those of one memtable.
pub(super) trait Index: Send + Sync + Sized + 'static {
    /// What only the writer may touch. The memory that the index has is owned here.
    type Pen: Send;
    /// Where a cursor is.
    type Walk: Default + Send;

    /// Bytes it takes, but for what it charges itself.
    fn allocated(&self) -> usize;
    /// Asks for the memory that adding an entry of `key` will look at.
    fn prefetch(&self, key: &[u8]);
    /// Writes an entry to the arena of `entries`, and makes it known.
    fn insert(&self, pens: &mut Pens<Self>, entries: &Entries, new: New<'_>);
    /// The newest entry of `key` that is not before `trailer`.
    fn get<'a>(&'a self, entries: &'a Entries, key: &[u8], trailer: Trailer) -> Option<Entry<'a>>;
    /// Places a cursor.
    fn seek<'a>(
        &'a self,
        entries: &'a Entries,
        walk: &mut Self::Walk,
        to: Seek<'_>,
    ) -> Option<Entry<'a>>;
    /// Moves a cursor that is on an entry to the one beside it.
    fn step<'a>(
        &'a self,
        entries: &'a Entries,
        walk: &mut Self::Walk,
        way: Way,
    ) -> Option<Entry<'a>>;
}

/// The entries of a memtable, in the order they came.
pub(super) struct Entries {
    arena: Arena,
    count: AtomicU64,
    /// The first write, of a range tombstone too; 0 if there is none.
    oldest: AtomicU64,
    account: Arc<Account>,
}

impl Entries {
    #[inline]
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// How many there are, all of which this thread may look at.
    #[inline]
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Takes note of a write, which is the first if there was none before.
    fn note(&self, seqno: Seqno) {
        if self.oldest.load(Ordering::Relaxed) == 0 {
            self.oldest.store(seqno, Ordering::Relaxed);
        }
    }

    /// Whom memory that comes and goes is charged to.
    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

/// What only the writer may touch.
pub(super) struct Pens<I: Index> {
    /// Owns the memory of the entries.
    pub(super) entries: Pen,
    pub(super) index: I::Pen,
    charged: usize,
}

/// A set of entries that grows, and can be walked over in order.
pub(super) struct Table<I: Index> {
    index: I,
    entries: Entries,
    ranges: SharedRanges,
    /// Own the memory of `index` and `entries`.
    pens: Mutex<Pens<I>>,
    this: Weak<Self>,
}

impl<I: Index> Table<I> {
    /// An empty memtable with an empty index.
    pub(super) fn new((index, pen): (I, I::Pen), budget: Arc<Budget>) -> Arc<Self> {
        // What an empty one takes is charged with its first entry: an idle keyspace asks for no memory.
        let pens = Pens { entries: Pen::new(&budget), index: pen, charged: 0 };
        let entries = Entries {
            arena: Arena::new(),
            count: AtomicU64::new(0),
            oldest: AtomicU64::new(0),
            account: Arc::new(Account::new(budget)),
        };
        let pens = Mutex::new(pens);
        let ranges = SharedRanges::default();
        Arc::new_cyclic(|this| Self { index, entries, ranges, pens, this: this.clone() })
    }

    fn this(&self) -> Arc<Self> {
        self.this.upgrade().expect("whoever calls has it")
    }

    fn slice(&self, value: &[u8]) -> Slice {
        if value.len() <= COPIED {
            return Slice::from(value);
        }
        // SAFETY: an entry's value never changes and lives as long as the memtable, which the view holds.
        unsafe { View::from_raw(NonNull::from(value).cast(), value.len(), self.this()) }.into()
    }
}

impl<I: Index> Memtable for Table<I> {
    fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let pens = &mut *self.pens.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = &self.entries;
        self.index.insert(pens, entries, New { key, trailer, value });
        let count = entries.count.load(Ordering::Relaxed);
        if count == 0 {
            entries.note(trailer.seqno());
        }
        entries.count.store(count + 1, Ordering::Release);
        let allocated = entries.arena.allocated() + self.index.allocated();
        if allocated != pens.charged {
            entries.account.grow(allocated - pens.charged);
            pens.charged = allocated;
        }
    }

    fn delete_range(&self, span: Span<'_>, seqno: Seqno) {
        let _one = self.pens.lock().unwrap_or_else(PoisonError::into_inner);
        // First: who sees that there is something asks for the oldest.
        self.entries.note(seqno);
        let account = &self.entries.account;
        match self.ranges.push(RangeTombstone::new(span, seqno)) {
            grown @ 0.. => account.grow(grown as usize),
            shrunk => account.shrink(shrunk.unsigned_abs()),
        }
    }

    fn ranges(&self) -> Option<Arc<Ranges>> {
        self.ranges.load()
    }

    fn prefetch(&self, key: &[u8]) {
        self.index.prefetch(key);
    }

    #[inline]
    fn get(&self, key: &[u8], at: Seqno) -> Option<(Trailer, Slice)> {
        let entry = self.index.get(&self.entries, key, Trailer::visible_at(at));
        let ignores = planted(Bug::MemtableIgnoresRanges);
        let deleted = if ignores { 0 } else { self.ranges.newest(key, at) };
        match entry {
            Some(entry) if entry.trailer().seqno() > deleted => {
                Some((entry.trailer(), self.slice(entry.value())))
            }
            _ if deleted > 0 => Some((Trailer::new(deleted, Kind::Delete), Slice::from(&[][..]))),
            _ => None,
        }
    }

    fn cursor(&self) -> MemtableCursor {
        MemtableCursor::new(Box::new(Walker { table: self.this(), walk: I::Walk::default() }))
    }

    fn entries(&self) -> u64 {
        self.entries.count()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.entries.count() == 0 && self.ranges.first() == 0
    }

    fn oldest(&self) -> Option<Seqno> {
        Some(self.entries.oldest.load(Ordering::Relaxed)).filter(|&seqno| seqno != 0)
    }

    fn memory(&self) -> usize {
        self.entries.account.bytes()
    }

    fn set_flushed(&self) {
        self.entries.account.close();
    }
}

impl<I: Index> fmt::Debug for Table<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable").field("entries", &self.entries.count()).finish_non_exhaustive()
    }
}

impl<I: Index> Drop for Table<I> {
    fn drop(&mut self) {
        self.set_flushed();
    }
}

/// Moves a cursor over a memtable.
struct Walker<I: Index> {
    table: Arc<Table<I>>,
    walk: I::Walk,
}

impl<I: Index> Steps for Walker<I> {
    fn seek(&mut self, to: Seek<'_>) -> Option<Entry<'_>> {
        self.table.index.seek(&self.table.entries, &mut self.walk, to)
    }

    #[inline]
    fn step(&mut self, way: Way) -> Option<Entry<'_>> {
        self.table.index.step(&self.table.entries, &mut self.walk, way)
    }

    fn slice(&self, value: &[u8]) -> Slice {
        self.table.slice(value)
    }
}
