//! The memory budget: how the bytes the user gave are divided, and who has how many of them.
//!
//! | part | share | what happens at its limit |
//! |---|---|---|
//! | memtables | up to 3/8 | writers are slowed down, then wait for a flush |
//! | open tables (index, filter) | up to 1/4 | tables not lately used are closed |
//! | block cache | what memtables, indexes and open tables leave | blocks are evicted |
//! | indexes of hash keyspaces | up to 1/2 | writes are refused |
//! | the rest: buffers of the log, of flushes and of compactions | 1/16 | nothing: they come and go |

use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest size at which a memtable is frozen.
const LARGEST_MEMTABLE: usize = 128 << 20;

/// The division of a database's memory.
#[derive(Debug)]
pub(crate) struct Budget {
    /// All of it, in bytes.
    pub(crate) total: usize,
    /// A memtable that takes this many bytes is frozen.
    pub(crate) memtable: usize,
    /// All memtables together, of all keyspaces, frozen ones included.
    pub(crate) memtables: usize,
    /// All indexes and filters of open tables.
    pub(crate) tables: usize,
    used_by_memtables: AtomicUsize,
    used_by_indexes: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Self {
        let memtables = total / 8 * 3;
        Self {
            total,
            memtable: (memtables / 3).min(LARGEST_MEMTABLE),
            memtables,
            tables: total / 4,
            used_by_memtables: AtomicUsize::new(0),
            used_by_indexes: AtomicUsize::new(0),
        }
    }

    /// Notes that a memtable has grown.
    pub(crate) fn grow_memtables(&self, bytes: usize) {
        self.used_by_memtables.fetch_add(bytes, Ordering::Relaxed);
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

    /// Whether indexes of hash keyspaces take all that they may.
    pub(crate) fn indexes_are_full(&self) -> bool {
        self.indexes_used() >= self.total / 2
    }

    /// Bytes that open tables and the block cache may take together now: what memtables and indexes leave, with
    /// room for one more memtable to grow before this is asked again.
    pub(crate) fn for_reads(&self) -> usize {
        let writes = (self.memtables_used() + self.memtable).min(self.memtables);
        (self.total / 16 * 15).saturating_sub(writes + self.indexes_used())
    }

    /// Bytes that all memtables take.
    pub(crate) fn memtables_used(&self) -> usize {
        self.used_by_memtables.load(Ordering::Relaxed)
    }
}
