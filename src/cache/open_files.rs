//! The cache of open files: what they keep in memory (indexes, filters) is bounded, and so is their number.
//! They share their memory with the block cache, which gets what they and the memtables leave.
//!
//! When a bound is passed, files that were not used since they were last looked at are closed, in the order
//! they were opened (the CLOCK algorithm). A closed file is opened again by its next reader; readers that
//! hold it are not disturbed.
//!
//! Thread safety: any thread may report; the lock is held while files are closed, never while one is read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use super::BlockCache;
use crate::budget::Budget;
use crate::sync::Mutex;

/// A file that can be closed and opened again.
pub(crate) trait Closable: Send + Sync {
    /// Whether it was used since this was last asked.
    fn was_used(&self) -> bool;
    /// Closes it; gives the bytes that it kept in memory, 0 if it was not open.
    fn close(&self) -> usize;
}

/// The open files of a database.
pub(crate) struct OpenFiles {
    used: AtomicUsize,
    budget: Arc<Budget>,
    blocks: Arc<BlockCache>,
    /// The most files that are open.
    most_files: usize,
    /// The most bytes of the block cache.
    most_blocks: usize,
    queue: Mutex<VecDeque<Weak<dyn Closable>>>,
}

impl OpenFiles {
    /// Keeps within the budget's part for tables what open files hold in memory, but for the file opened
    /// last.
    pub(crate) fn new(budget: Arc<Budget>, blocks: Arc<BlockCache>) -> Self {
        let (most_files, most_blocks) = (usize::MAX, usize::MAX);
        let (used, queue) = (AtomicUsize::new(0), Mutex::default());
        Self { used, budget, blocks, most_files, most_blocks, queue }
    }

    /// With at most `files` open, and at most `blocks` bytes for the block cache.
    pub(crate) fn bounded(self, files: usize, blocks: usize) -> Self {
        Self { most_files: files, most_blocks: blocks, ..self }
    }

    /// Gives the block cache what memtables and open files leave of the budget, as far as it may have it.
    pub(crate) fn rebalance(&self) {
        let left = self.budget.for_reads().saturating_sub(self.memory());
        self.blocks.set_capacity(left.min(self.most_blocks) as u64);
    }

    /// Bytes that what one more file can do without may take, a point index or links: it goes without, rather than have files
    /// closed that are in use. So half of what there is for files is left for what they cannot do without.
    pub(crate) fn room_for_extras(&self) -> usize {
        (self.budget.tables() / 2).saturating_sub(self.memory())
    }

    /// Bytes that open files hold.
    pub(crate) fn memory(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Notes that a file was opened and holds `memory` bytes, and has readers find it with `show`; closes others if it must.
    pub(crate) fn opened(&self, file: Weak<dyn Closable>, memory: usize, show: impl FnOnce()) {
        self.used.fetch_add(memory, Ordering::Relaxed);
        // Only then: as soon as it is shown it may be closed, by its owner or for the place it has from another time.
        show();
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() >= self.most_files {
            // Files that are gone leave their places behind.
            queue.retain(|file| file.strong_count() > 0);
        }
        // Each file is passed over at most once, and the new one is not looked at.
        let mut looks = 2 * queue.len();
        while looks > 0 && (self.memory() > self.budget.tables() || queue.len() >= self.most_files)
        {
            looks -= 1;
            let Some(next) = queue.pop_front() else { break };
            let Some(open) = next.upgrade() else { continue };
            if open.was_used() {
                queue.push_back(next);
            } else {
                self.closed(open.close());
            }
        }
        queue.push_back(file);
        drop(queue);
        self.rebalance();
    }

    /// Notes that a file that held `memory` bytes was closed.
    pub(crate) fn closed(&self, memory: usize) {
        self.used.fetch_sub(memory, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for OpenFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenFiles({} of {} bytes)", self.memory(), self.budget.tables())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[derive(Default)]
    struct Open {
        used: AtomicBool,
        memory: AtomicUsize,
    }

    impl Closable for Open {
        fn was_used(&self) -> bool {
            self.used.swap(false, Ordering::Relaxed)
        }
        fn close(&self) -> usize {
            self.memory.swap(0, Ordering::Relaxed)
        }
    }

    #[test]
    fn the_number_of_files_and_the_block_cache_are_bounded() {
        let blocks = Arc::new(BlockCache::new(1 << 20));
        let files = OpenFiles::new(Arc::new(Budget::new(1 << 20)), Arc::clone(&blocks));
        let files = files.bounded(3, 1000);
        let all: Vec<Arc<Open>> = (0..10).map(|_| Arc::default()).collect();
        for file in &all {
            let weak: Weak<Open> = Arc::downgrade(file);
            files.opened(weak, 1, || file.memory.store(1, Ordering::Relaxed));
        }
        let held: usize = all.iter().map(|file| file.memory.load(Ordering::Relaxed)).sum();
        assert_eq!((held, files.memory()), (3, 3));
        let cached = crate::cache::FileBlocks::new(Arc::clone(&blocks), 9);
        (0..9).for_each(|block| cached.insert(block, crate::base::View::from(vec![0; 200])));
        assert!((500..=1000).contains(&blocks.memory()), "{}", blocks.memory());
    }

    #[test]
    fn files_that_are_gone_are_not_counted() {
        let files = OpenFiles::new(Arc::new(Budget::new(1 << 20)), Arc::new(BlockCache::new(0)));
        let files = files.bounded(3, 0);
        let open = |file: &Arc<Open>| {
            let weak: Weak<Open> = Arc::downgrade(file);
            files.opened(weak, 1, || file.memory.store(1, Ordering::Relaxed));
        };
        let (first, second) = (Arc::default(), Arc::default());
        open(&first);
        (0..2).for_each(|_| open(&Arc::default()));
        open(&second);
        let held = |file: &Arc<Open>| file.memory.load(Ordering::Relaxed);
        assert_eq!((held(&first), held(&second)), (1, 1));
    }

    #[test]
    fn a_file_may_be_closed_as_soon_as_it_is_shown() {
        let files = OpenFiles::new(Arc::new(Budget::new(1 << 20)), Arc::new(BlockCache::new(0)));
        let file: Arc<Open> = Arc::default();
        let weak: Weak<Open> = Arc::downgrade(&file);
        files.opened(weak, 40, || {
            file.memory.store(40, Ordering::Relaxed);
            files.closed(file.close());
            assert_eq!(files.memory(), 0);
        });
        assert_eq!(files.memory(), 0);
    }

    #[test]
    fn what_was_not_used_is_closed_first() {
        let budget = Arc::new(Budget::new(208));
        assert_eq!(budget.tables(), 98);
        let files = OpenFiles::new(budget, Arc::new(BlockCache::new(1000)));
        let all: Vec<Arc<Open>> = (0..4).map(|_| Arc::default()).collect();
        let open = |file: &Arc<Open>, memory| {
            let weak: Weak<Open> = Arc::downgrade(file);
            files.opened(weak, memory, || file.memory.store(memory, Ordering::Relaxed));
        };
        open(&all[0], 40);
        open(&all[1], 40);
        all[0].used.store(true, Ordering::Relaxed);
        open(&all[2], 40);
        let held = |file: &Arc<Open>| file.memory.load(Ordering::Relaxed);
        assert_eq!((held(&all[0]), held(&all[1]), held(&all[2])), (40, 0, 40));
        open(&all[3], 500);
        assert_eq!(files.memory(), 500, "the one opened last stays, however large");
    }
}
