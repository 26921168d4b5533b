//! The memory budget: how the bytes the user gave are divided, and who has how many of them.
//!
//! | part | share | what happens at its limit |
//! |---|---|---|
//! | memtables, with memory that waits for the next ones | up to 3/8 | writers are slowed down, then wait for a flush |
//! | page caches of file layers and of B+ trees | as much as the user gives them; up to 1/2 with indexes of hash keyspaces | a larger one is refused |
//! | indexes of hash keyspaces, with tombstones that are to be forgotten | what page caches leave of 1/2, and 1/16 at least; of which 1/64 is for deletes | they grow no more: writes wait for places in them, or are refused |
//! | inner nodes that B+ trees keep beside the block cache | up to 1/8 of what is left, of which a tree takes no more than it leaves to others | they are looked up in the block cache |
//! | open tables (index, filter) | up to 7/8 of what is left then | tables not lately used are closed |
//! | block cache | what the others leave | blocks are evicted |
//! | the rest: buffers of the log, of flushes, of compactions and of batches of reads | 1/16 | nothing: they come and go |

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use crate::base::pages::{PAGE, Pages};
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// The largest size at which a memtable is frozen.
const LARGEST_MEMTABLE: usize = 128 << 20;

/// What is read of each input of a merge at once, in bytes.
const MERGE_BUFFERS: RangeInclusive<usize> = 16 << 10..=1 << 20;

/// The most bytes of a chunk.
pub(crate) const LARGEST_CHUNK: usize = 1 << 20;
/// The fewest.
const SMALLEST_CHUNK: usize = 64 << 10;
/// A memtable has so many chunks at least, if they may be small enough: it is frozen with the last one hardly begun.
const CHUNKS: usize = 8;

/// Of the memory for indexes this part of all memory is for tombstones: what is full must take deletes.
const INDEXES_FOR_DELETES: usize = 64;
/// This part of all memory is for indexes however much page caches have.
const INDEXES_AT_LEAST: usize = 16;

/// How many chunks are got ready ahead of memtables that grow.
const READY: usize = 4;

/// The division of a database's memory.
#[derive(Debug)]
pub(crate) struct Budget {
    /// All of it, in bytes.
    pub(crate) total: usize,
    /// A memtable that takes this many bytes is frozen.
    pub(crate) memtable: usize,
    /// The bytes of a chunk, which is what memtables take memory in. It is not given back to the system at once, because the first touch of a page costs
    /// more than writing an entry to it: chunks of memtables that are gone wait for the next ones.
    pub(crate) chunk: usize,
    /// All memtables together, of all keyspaces, frozen ones included.
    pub(crate) memtables: usize,
    used_by_memtables: AtomicUsize,
    used_by_indexes: AtomicUsize,
    page_caches: AtomicUsize,
    /// Whether all keyspaces that there were have been opened.
    is_open: AtomicBool,
    used_by_nodes: AtomicUsize,
    /// No more than one memtable takes, and all memtables have room for.
    spare: Spare,
}

/// Chunks that wait.
#[derive(Default)]
struct Spare {
    chunks: Mutex<Vec<Pages>>,
    count: AtomicUsize,
    /// What memtables took when chunks were got ready.
    seen: AtomicUsize,
}

impl fmt::Debug for Spare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spare").field(&self.count).finish()
    }
}

impl Spare {
    /// Changes the chunks, of which only this thread knows meanwhile.
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Pages>) -> T) -> T {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut chunks);
        self.count.store(chunks.len(), Ordering::Relaxed);
        changed
    }
}

/// The part of the budget that a page cache has; given back when dropped.
#[derive(Debug)]
pub(crate) struct PageMemory {
    budget: Arc<Budget>,
    bytes: usize,
}

impl PageMemory {
    /// The part of a page cache that takes `bytes`.
    ///
    /// # Errors
    /// `Invalid` if page caches would take more than half of the budget; together with indexes, but for those that there were when the
    /// database was opened.
    pub(crate) fn new(budget: &Arc<Budget>, bytes: usize) -> Result<Self> {
        let mut memory = Self { budget: Arc::clone(budget), bytes: 0 };
        memory.resize(bytes)?;
        Ok(memory)
    }

    /// Makes it the part of a page cache that takes `bytes`. After an error, which is that of
    /// [`new`](Self::new), it is what it was.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<()> {
        let indexes = self.budget.indexes_beside_page_caches();
        let most = (self.budget.total / 2).saturating_sub(indexes);
        let used = &self.budget.page_caches;
        let sum = |used: usize| (used - self.bytes).saturating_add(bytes);
        let fits = |used| Some(sum(used)).filter(|&sum| sum <= most || bytes <= self.bytes);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|used| {
            Error::Invalid(format!(
                "page caches of {} bytes in all are too large for a memory budget of {} bytes, of which they \
                 may take half together with indexes of {} bytes: give fewer pages, or a budget of at least {} bytes",
                sum(used),
                self.budget.total,
                indexes,
                sum(used).saturating_add(indexes).saturating_mul(2)
            ))
        })?;
        self.bytes = bytes;
        Ok(())
    }

    /// The bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        self.budget.page_caches.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Budget {
    pub(crate) fn new(total: usize) -> Self {
        let memtables = total / 8 * 3;
        let memtable = (memtables / 3).min(LARGEST_MEMTABLE);
        let share = (memtable / CHUNKS).clamp(SMALLEST_CHUNK, LARGEST_CHUNK);
        Self {
            total,
            memtable,
            chunk: 1 << share.ilog2(),
            memtables,
            used_by_memtables: AtomicUsize::new(0),
            used_by_indexes: AtomicUsize::new(0),
            page_caches: AtomicUsize::new(0),
            is_open: AtomicBool::new(false),
            used_by_nodes: AtomicUsize::new(0),
            spare: Spare::default(),
        }
    }

    /// How many bytes a merge of so many inputs may read of each at once: all together, in as many `threads` as may merge something,
    /// about a 32nd of the budget, if that is enough for something to be gained.
    pub(crate) fn merge_buffer(&self, inputs: usize, threads: usize) -> usize {
        let buffer = self.total / 32 / threads.max(1) / inputs.max(1);
        buffer.clamp(*MERGE_BUFFERS.start(), *MERGE_BUFFERS.end())
    }

    /// How many bytes of blocks one batch of reads may bring in.
    pub(crate) fn batch_of_reads(&self) -> u64 {
        self.total as u64 / 32
    }

    /// What may be kept of the keys of a table while it is written, until what finds them can be made, by each of so many
    /// `threads`.
    pub(crate) fn keys_of_a_table(&self, threads: usize) -> usize {
        self.total / threads.max(4) / 8
    }

    /// Memory for a memtable, with anything in it. Its owner notes that memtables have grown.
    pub(crate) fn take_chunk(&self) -> Pages {
        let spare = match self.spare.count.load(Ordering::Relaxed) {
            0 => None,
            _ => self.spare.change(Vec::pop),
        };
        spare.unwrap_or_else(|| Pages::new(self.chunk))
    }

    /// Gets chunks ready if memtables that are not small have grown since the last time: the first touch of their pages
    /// takes about as long as all else in a put, and is done here, by a background thread.
    pub(crate) fn prepare_chunks(&self) {
        let used = self.memtables_used();
        if self.spare.seen.swap(used, Ordering::Relaxed) >= used || used < self.chunk {
            return;
        }
        let ready = self.spare.count.load(Ordering::Relaxed);
        for _ in ready..READY.min(self.spare_room()) {
            let mut chunk = Pages::new(self.chunk);
            chunk.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
            self.give_chunk(chunk);
        }
    }

    /// Memory that a memtable no longer needs.
    pub(crate) fn give_chunk(&self, chunk: Pages) {
        let room = self.spare_room();
        // What finds no room is freed outside the lock.
        let mut chunk = Some(chunk);
        self.spare.change(|chunks| {
            if chunks.len() < room {
                chunks.extend(chunk.take());
            }
        });
    }

    /// How many chunks may wait.
    fn spare_room(&self) -> usize {
        self.memtable.min(self.memtables.saturating_sub(self.memtables_used())) / self.chunk
    }

    /// Notes that a memtable has grown.
    pub(crate) fn grow_memtables(&self, bytes: usize) {
        let used = self.used_by_memtables.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let spare = self.spare.count.load(Ordering::Relaxed) * self.chunk;
        let excess = (used + spare).saturating_sub(self.memtables).min(spare);
        if excess > 0 {
            let gone = self.spare.change(|chunks| {
                chunks.split_off(chunks.len().saturating_sub(excess.div_ceil(self.chunk)))
            });
            drop(gone);
        }
    }

    /// Notes that a memtable is gone.
    pub(crate) fn shrink_memtables(&self, bytes: usize) {
        self.used_by_memtables.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes that an index has gone from `before` to `now` bytes.
    pub(crate) fn resize_index(&self, before: usize, now: usize) {
        self.used_by_indexes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Bytes that all indexes of hash keyspaces take.
    pub(crate) fn indexes_used(&self) -> usize {
        self.used_by_indexes.load(Ordering::Relaxed)
    }

    /// From now on page caches have room beside indexes only.
    pub(crate) fn opened(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// What indexes take of the part that page caches have with them. While a database is opened that is nothing: its page caches have had their
    /// room beside the indexes that there were when they were chosen, and an index may have grown since. After a kill it has entries for what is
    /// superseded, too.
    fn indexes_beside_page_caches(&self) -> usize {
        if self.is_open.load(Ordering::Relaxed) { self.indexes_used() } else { 0 }
    }

    /// Bytes that indexes of hash keyspaces may take yet.
    pub(crate) fn indexes_left(&self) -> usize {
        let most = (self.total / 2).saturating_sub(self.page_caches());
        most.max(self.total / INDEXES_AT_LEAST).saturating_sub(self.indexes_used())
    }

    /// The same for what is not deleted: the last bytes are for that.
    pub(crate) fn indexes_left_for_puts(&self) -> usize {
        self.indexes_left().saturating_sub(self.total / INDEXES_FOR_DELETES)
    }

    /// Bytes that open tables and the block cache may take together now: what memtables, indexes and inner nodes leave, with
    /// room for one more memtable to grow before this is asked again.
    pub(crate) fn for_reads(&self) -> usize {
        let writes = (self.memtables_used() + self.memtable).min(self.memtables);
        let others = self.page_caches() + self.indexes_used() + self.nodes_used();
        (self.total / 16 * 15 - writes).saturating_sub(others)
    }

    /// What is left for reads whatever memtables take.
    fn left(&self) -> usize {
        let reads = self.total / 16 * 15 - self.memtables;
        reads.saturating_sub(self.page_caches() + self.indexes_used())
    }

    /// All inner nodes that B+ trees keep beside the block cache.
    fn nodes(&self) -> usize {
        self.left() / 8
    }

    /// What all trees have then, if one that has `own` bytes may have `bytes` more while all have `used`. It may as long as it leaves as
    /// much to the others: whichever is read first does not have all. Of very many trees those that are read last may have none.
    fn nodes_with(&self, used: usize, own: usize, bytes: usize) -> Option<usize> {
        let sum = used + bytes;
        let left = self.nodes().checked_sub(sum)?;
        (own + bytes <= left).then_some(sum)
    }

    /// Whether a tree that keeps inner nodes of `own` bytes may keep `bytes` more now.
    pub(crate) fn has_room_for_nodes(&self, own: usize, bytes: usize) -> bool {
        self.nodes_with(self.nodes_used(), own, bytes).is_some()
    }

    /// Takes memory for `bytes` more of inner nodes that a tree keeps, which has `own` already; false if there is none for it.
    pub(crate) fn take_nodes(&self, own: usize, bytes: usize) -> bool {
        let take = |used| self.nodes_with(used, own, bytes);
        self.used_by_nodes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Gives back memory that was taken for inner nodes.
    pub(crate) fn give_nodes(&self, bytes: usize) {
        self.used_by_nodes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that inner nodes take which B+ trees keep beside the block cache.
    pub(crate) fn nodes_used(&self) -> usize {
        self.used_by_nodes.load(Ordering::Relaxed)
    }

    /// All indexes and filters of open tables. To open a table again for a get costs more than many a block that is not in
    /// the cache, so that gets the rest. What memtables may take is theirs, so that tables fit when they do.
    pub(crate) fn tables(&self) -> usize {
        self.left().saturating_sub(self.nodes_used()) / 8 * 7
    }

    /// Bytes that page caches have been given.
    pub(crate) fn page_caches(&self) -> usize {
        self.page_caches.load(Ordering::Relaxed)
    }

    /// Bytes that all memtables take.
    pub(crate) fn memtables_used(&self) -> usize {
        self.used_by_memtables.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_chunks_stay_within_what_memtables_have() {
        let budget = Budget::new(64 << 20);
        let spare = || budget.spare.count.load(Ordering::Relaxed);
        let chunks: Vec<_> = (0..10).map(|_| budget.take_chunk()).collect();
        chunks.into_iter().for_each(|chunk| budget.give_chunk(chunk));
        assert_eq!(spare(), 8, "no more than one memtable takes");
        budget.grow_memtables(20 << 20);
        assert_eq!(spare(), 4);
        let taken = budget.take_chunk();
        assert_eq!(spare(), 3);
        budget.grow_memtables(4 << 20);
        assert_eq!(spare(), 0);
        budget.give_chunk(taken);
        assert_eq!(spare(), 0);
        budget.shrink_memtables(24 << 20);
        budget.give_chunk(budget.take_chunk());
        assert_eq!(spare(), 1);
        budget.prepare_chunks();
        assert_eq!(spare(), 1, "nothing has grown");
        budget.grow_memtables(2 << 20);
        budget.prepare_chunks();
        assert_eq!(spare(), READY);
    }

    #[test]
    fn buffers_of_all_merges_have_one_bound() {
        for (mebibytes, inputs, threads) in [(64, 5, 1), (64, 5, 4), (64, 1, 4), (1024, 8, 16)] {
            let budget = Budget::new(mebibytes << 20);
            let all = threads * inputs * budget.merge_buffer(inputs, threads);
            assert!(all <= budget.total / 32, "{inputs} inputs in {threads} threads: {all}");
        }
        let budget = Budget::new(8 << 20);
        assert_eq!(budget.merge_buffer(100, 4), 16 << 10, "less is not worth a read");
        assert_eq!(Budget::new(1 << 40).merge_buffer(2, 4), 1 << 20, "nor is more");
    }

    #[test]
    fn a_memtable_has_several_chunks() {
        let sizes = [1_usize, 8, 16, 17, 32, 64, 512, 1 << 20].map(|mebibytes| {
            let budget = Budget::new(mebibytes << 20);
            (budget.memtable >> 10, budget.chunk >> 10)
        });
        let first = [(128, 64), (1024, 128), (2048, 256), (2176, 256), (4096, 512), (8192, 1024)];
        assert_eq!(sizes[..6], first);
        assert_eq!(sizes[6..], [(65536, 1024), (131_072, 1024)]);
    }

    #[test]
    fn trees_keep_no_more_than_they_leave_to_others() {
        let budget = Arc::new(Budget::new(16 << 20));
        let (reads, tables) = (budget.for_reads(), budget.tables());
        let most = (9 << 20) / 8;
        let mut all = Vec::new();
        for tree in 1..=4 {
            let mut own = 0;
            while budget.has_room_for_nodes(own, 1000) {
                assert!(budget.take_nodes(own, 1000));
                own += 1000;
            }
            assert!(!budget.take_nodes(own, 1000));
            all.push(own);
            let left = most - budget.nodes_used();
            assert!(left >= own && left < own + 2000, "{left} are left by tree {tree}: {all:?}");
        }
        let used: usize = all.iter().sum();
        assert_eq!((budget.nodes_used(), budget.for_reads()), (used, reads - used));
        assert!(used <= most && budget.tables() < tables);
        // A page cache that comes later gets what it asks for, and trees keep no more.
        let cache = PageMemory::new(&budget, 8 << 20).unwrap();
        assert!(!budget.has_room_for_nodes(0, 1) && !budget.take_nodes(0, 1));
        assert!(budget.for_reads() > 0 && budget.tables() == 0);
        drop(cache);
        all.into_iter().for_each(|own| budget.give_nodes(own));
        assert_eq!((budget.nodes_used(), budget.for_reads()), (0, reads));
        assert!(!budget.take_nodes(0, most) && !budget.take_nodes(most, 1));
    }

    #[test]
    fn the_parts_are_no_more_than_the_whole() {
        for page_caches in [0, 1, 4, 7, 8] {
            let budget = Arc::new(Budget::new(16 << 20));
            budget.opened();
            let _cache = PageMemory::new(&budget, page_caches << 20).unwrap();
            budget.resize_index(0, budget.indexes_left());
            assert!(budget.indexes_used() >= budget.total / 16);
            let others = budget.page_caches() + budget.indexes_used();
            assert!(others + budget.memtables <= budget.total / 16 * 15, "{page_caches} MiB");
        }
    }

    #[test]
    fn page_caches_are_given_again_beside_indexes_that_have_grown() {
        let budget = Arc::new(Budget::new(16 << 20));
        budget.resize_index(0, 6 << 20);
        let there = PageMemory::new(&budget, 8 << 20).unwrap();
        assert_eq!(budget.indexes_left(), 0);
        budget.opened();
        let error = PageMemory::new(&budget, 1).unwrap_err().to_string();
        assert!(error.contains("indexes of 6291456 bytes"), "{error}");
        drop(there);
        assert!(PageMemory::new(&budget, 3 << 20).is_err());
        PageMemory::new(&budget, 2 << 20).unwrap();
    }

    #[test]
    fn page_caches_take_from_what_reads_have_and_give_it_back() {
        let budget = Arc::new(Budget::new(16 << 20));
        let (reads, tables) = (budget.for_reads(), budget.tables());
        assert_eq!((reads, tables), (13 << 20, 7 * (9 << 20) / 8));
        let mut one = PageMemory::new(&budget, 3 << 20).unwrap();
        let two = PageMemory::new(&budget, 4 << 20).unwrap();
        assert_eq!(budget.for_reads(), reads - (7 << 20));
        assert!(budget.tables() < tables);
        let error = one.resize((4 << 20) + 1).unwrap_err().to_string();
        for number in ["8388609", "16777216", "16777218"] {
            assert!(error.contains(number), "{error}");
        }
        assert_eq!((one.bytes(), budget.page_caches()), (3 << 20, 7 << 20));
        one.resize(4 << 20).unwrap();
        budget.grow_memtables(100 << 20);
        assert!(budget.for_reads() > 0);
        drop(two);
        one.resize(0).unwrap();
        assert_eq!(budget.page_caches(), 0);
        assert!(PageMemory::new(&budget, usize::MAX).is_err());
    }
}
