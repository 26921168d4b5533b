//! The memtable: the newest entries of a keyspace, in memory, to be read by key or in order. Engines that keep keys in
//! order write to it first.
//!
//! There are several kinds, behind one trait. All keep entries in an [`arena`], in the order they come, and are charged for it;
//! they differ in how entries are found:
//!
//! | kind | a put | a get | a cursor |
//! |---|---|---|---|
//! | [`tagged`] | a slot of the hash table of [`tags`] | the same | the [`order`], made when it is needed |
//! | [`skiplist`] | a search in the [`list`] | the same | the list |
//! | [`vector`] | nothing more | the order | the order |
//! | [`hashed`] | a slot for the list of a prefix, and a search in that | the same | the list, or else the order |
//!
//! Keys that are deleted by the range stand beside the entries, in the same way for all kinds, in [`ranges`].
//!
//! Thread safety: one writer at a time, any number of readers beside it that never wait for it, nor it for them; see
//! [`table`]. Readers see whole entries only, and all that were put before what they know of was published.

mod account;
mod arena;
mod cursor;
mod entry;
mod hashed;
mod list;
#[cfg(loom)]
pub(crate) mod models;
mod order;
mod ranges;
mod skiplist;
mod stack;
mod sync;
mod table;
mod tagged;
mod tags;
#[cfg(test)]
mod tests;
mod vector;

use std::fmt::Debug;
use std::sync::Arc;

pub(crate) use self::cursor::MemtableCursor;
use self::hashed::{Hashed, Lists};
pub(crate) use self::ranges::Ranges;
use self::skiplist::Skiplist;
pub(crate) use self::stack::{Frozen, Memtables};
use self::table::Table;
use self::tagged::Tagged;
use self::vector::Vector;
use crate::base::{Seqno, Slice, Span, Trailer};
use crate::budget::Budget;
use crate::options::MemtableKind;

/// The most memory that one batch may ask of the memtables it is applied to, which then has room in one that is nearly full.
pub(crate) const LARGEST_BATCH: usize = 2 << 30;

/// A set of entries that grows, and can be walked over in order.
pub(crate) trait Memtable: Debug + Send + Sync {
    /// Adds an entry. It must be newer than those of its key that are there.
    fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]);
    /// Deletes the keys of `span`: a range tombstone, newer than all that is there.
    fn delete_range(&self, span: Span<'_>, seqno: Seqno);
    /// The range tombstones there are now; `None` if there are none.
    fn ranges(&self) -> Option<Arc<Ranges>>;
    /// Asks for the memory that an insertion of `key` will look at, if that is known.
    fn prefetch(&self, key: &[u8]);
    /// The newest entry of `key` that a reader at `at` sees: a tombstone, if a range tombstone is newer.
    fn get(&self, key: &[u8], at: Seqno) -> Option<(Trailer, Slice)>;
    /// A cursor over all entries, also those that range tombstones cover, there are when it is placed by a seek; those added later may or may not show.
    fn cursor(&self) -> MemtableCursor;
    /// How many entries there are; range tombstones are none.
    fn entries(&self) -> u64;
    /// Whether there are neither entries nor range tombstones.
    fn is_empty(&self) -> bool;
    /// The first write added, if any.
    fn oldest(&self) -> Option<Seqno>;
    /// Bytes of memory it takes.
    fn memory(&self) -> usize;
    /// Takes note that its entries are in a table now: what readers still hold of it no longer counts
    /// against the writers' share of the budget.
    fn set_flushed(&self);
}

/// An empty memtable.
pub(crate) fn new(kind: MemtableKind, budget: &Arc<Budget>) -> Arc<dyn Memtable> {
    let own = Arc::clone(budget);
    let hashed = |lists| Hashed::new(budget, lists);
    match kind {
        MemtableKind::Tagged => Table::new(Tagged::new(budget), own),
        MemtableKind::Skiplist => Table::new(Skiplist::new(), own),
        MemtableKind::Vector => Table::new((Vector::default(), ()), own),
        MemtableKind::HashSkiplist { prefix } => Table::new(hashed(Lists::skip(prefix)), own),
        MemtableKind::HashLinklist { prefix } => Table::new(hashed(Lists::linked(prefix)), own),
    }
}
