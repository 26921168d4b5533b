//! The cache of open files: what they keep in memory (indexes, filters) is bounded, and so is the number of descriptors.
//! They share their memory with the block cache, which gets what they and the memtables leave.
//!
//! When the memory is short, files that were not used since they were last looked at are closed, in the order
//! they were opened (the CLOCK algorithm). A closed file is opened again by its next reader; readers that
//! hold it are not disturbed. When descriptors are short, those that can do without theirs for a while let go of it, and keep
//! what they have in memory: to open a file is a hundredth of what it takes to read and check what leads into it.
//!
//! Thread safety: any thread may report; the lock is held while files are closed, never while one is read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use super::BlockCache;
use crate::budget::Budget;
use crate::sync::Mutex;

/// As many files have something in memory at most, whether they have a descriptor or not: each may be a map, of which Linux
/// gives 65,530 to a process.
const MOST_KEPT: usize = 1 << 15;

/// A file that can be closed and opened again.
pub(crate) trait Closable: Send + Sync {
    /// Whether it was used since this was last asked.
    fn was_used(&self) -> bool;

    /// Closes it; gives the bytes that it kept in memory, 0 if it was not open.
    fn close(&self) -> usize;

    /// Lets go of its descriptor, unless it was used since this was last asked.
    fn rest(&self) -> Rest {
        if self.was_used() { Rest::Kept } else { Rest::Closed(self.close()) }
    }
}

/// What came of having a file rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// It keeps what it has in memory.
    Kept,
    /// It was closed, and had kept so many bytes.
    Closed(usize),
}

/// A descriptor among those that are counted.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The open files of a database.
pub(crate) struct OpenFiles {
    used: AtomicUsize,
    budget: Arc<Budget>,
    blocks: Arc<BlockCache>,
    /// How many descriptors there are.
    places: Arc<AtomicUsize>,
    /// The most that there are to be.
    most_places: usize,
    /// The most bytes of the block cache.
    most_blocks: usize,
    queue: Mutex<Queue>,
}

/// The files that keep something in memory, and places that files have left behind.
#[derive(Default)]
struct Queue {
    files: VecDeque<Weak<dyn Closable>>,
    /// How many there were when it was last rid of those that are gone.
    live: usize,
}

impl OpenFiles {
    /// Keeps within the budget's part for tables what open files hold in memory, but for the file opened
    /// last.
    pub(crate) fn new(budget: Arc<Budget>, blocks: Arc<BlockCache>) -> Self {
        let (most_places, most_blocks) = (usize::MAX, usize::MAX);
        let (used, places, queue) = (AtomicUsize::new(0), Arc::default(), Mutex::default());
        Self { used, budget, blocks, places, most_places, most_blocks, queue }
    }

    /// With at most `files` open, and at most `blocks` bytes for the block cache.
    pub(crate) fn bounded(self, files: usize, blocks: usize) -> Self {
        Self { most_places: files, most_blocks: blocks, ..self }
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

    /// Bytes that one more file may take before others have to be closed for it.
    pub(crate) fn room(&self) -> usize {
        self.budget.tables().saturating_sub(self.memory())
    }

    /// Bytes that open files hold.
    pub(crate) fn memory(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// A descriptor that is counted until this is dropped.
    pub(crate) fn place(&self) -> Place {
        self.places.fetch_add(1, Ordering::Relaxed);
        Place(Arc::clone(&self.places))
    }

    /// Notes that a file was opened and holds `memory` bytes, and has readers find it with `show`; closes others if it must.
    pub(crate) fn opened(&self, file: Weak<dyn Closable>, memory: usize, show: impl FnOnce()) {
        self.used.fetch_add(memory, Ordering::Relaxed);
        // Only then: as soon as it is shown it may be closed, by its owner or for the place it has from another time.
        show();
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.files.len() > 2 * queue.live + 64 {
            // Files that are gone leave their places behind.
            queue.files.retain(|file| file.strong_count() > 0);
            queue.live = queue.files.len();
        }
        // The new one is not looked at.
        self.make_room_in(&mut queue);
        queue.files.push_back(file);
        drop(queue);
        self.rebalance();
    }

    /// Has files rest, or closes them, if a bound is passed.
    pub(crate) fn make_room(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        self.make_room_in(&mut queue);
        drop(queue);
        self.rebalance();
    }

    fn make_room_in(&self, queue: &mut Queue) {
        // Each file is passed over at most once.
        for _ in 0..2 * queue.files.len() {
            let is_full = self.memory() > self.budget.tables() || queue.files.len() >= MOST_KEPT;
            if !is_full && self.places.load(Ordering::Relaxed) <= self.most_places {
                return;
            }
            let Some(next) = queue.files.pop_front() else { return };
            let Some(open) = next.upgrade() else { continue };
            let rested = match is_full {
                true if open.was_used() => Rest::Kept,
                true => Rest::Closed(open.close()),
                false => open.rest(),
            };
            match rested {
                Rest::Kept => queue.files.push_back(next),
                Rest::Closed(memory) => self.closed(memory),
            }
        }
    }

    /// Notes that a file that held `memory` bytes was closed.
    pub(crate) fn closed(&self, memory: usize) {
        self.used.fetch_sub(memory, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl OpenFiles {
    /// How many descriptors there are.
    pub(crate) fn places(&self) -> usize {
        self.places.load(Ordering::Relaxed)
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
        place: std::sync::Mutex<Option<Place>>,
        /// It keeps its memory while it rests.
        keeps: bool,
    }

    impl Closable for Open {
        fn was_used(&self) -> bool {
            self.used.swap(false, Ordering::Relaxed)
        }
        fn close(&self) -> usize {
            *self.place.lock().unwrap() = None;
            self.memory.swap(0, Ordering::Relaxed)
        }
        fn rest(&self) -> Rest {
            match self.was_used() {
                true => Rest::Kept,
                false if self.keeps => {
                    *self.place.lock().unwrap() = None;
                    Rest::Kept
                }
                false => Rest::Closed(self.close()),
            }
        }
    }

    impl Open {
        fn has_place(&self) -> bool {
            self.place.lock().unwrap().is_some()
        }
    }

    fn open(files: &OpenFiles, file: &Arc<Open>, memory: usize) {
        let weak: Weak<Open> = Arc::downgrade(file);
        *file.place.lock().unwrap() = Some(files.place());
        files.opened(weak, memory, || file.memory.store(memory, Ordering::Relaxed));
    }

    #[test]
    fn the_number_of_files_and_the_block_cache_are_bounded() {
        let blocks = Arc::new(BlockCache::new(1 << 20));
        let files = OpenFiles::new(Arc::new(Budget::new(1 << 20)), Arc::clone(&blocks));
        let files = files.bounded(3, 1000);
        let all: Vec<Arc<Open>> = (0..10).map(|_| Arc::default()).collect();
        all.iter().for_each(|file| open(&files, file, 1));
        let held: usize = all.iter().map(|file| file.memory.load(Ordering::Relaxed)).sum();
        assert_eq!((held, files.memory(), files.places()), (3, 3, 3));
        let cached = crate::cache::FileBlocks::new(Arc::clone(&blocks), 9);
        (0..9).for_each(|block| cached.insert(block, &[0; 200]));
        assert_eq!((0..9).filter(|&block| cached.contains(block)).count(), 2, "384 bytes each");
    }

    #[test]
    fn files_that_rest_keep_their_memory() {
        let files = OpenFiles::new(Arc::new(Budget::new(1 << 20)), Arc::new(BlockCache::new(0)));
        let files = files.bounded(3, 0);
        let all: Vec<Arc<Open>> =
            (0..10).map(|_| Arc::new(Open { keeps: true, ..Open::default() })).collect();
        all.iter().for_each(|file| open(&files, file, 7));
        assert_eq!((files.memory(), files.places()), (70, 3));
        // One that is opened again takes the place of one that was not used.
        let open_now = || all.iter().filter(|file| file.has_place()).collect::<Vec<_>>();
        let kept = open_now();
        kept[1..].iter().for_each(|file| file.used.store(true, Ordering::Relaxed));
        *all[0].place.lock().unwrap() = Some(files.place());
        all[0].used.store(true, Ordering::Relaxed);
        files.make_room();
        assert!(all[0].has_place() && !kept[0].has_place());
        assert_eq!((files.memory(), files.places(), open_now().len()), (70, 3, 3));
    }

    #[test]
    fn files_that_are_gone_are_not_counted() {
        let files = OpenFiles::new(Arc::new(Budget::new(1 << 20)), Arc::new(BlockCache::new(0)));
        let files = files.bounded(3, 0);
        let (first, second) = (Arc::default(), Arc::default());
        open(&files, &first, 1);
        for _ in 0..1000 {
            open(&files, &Arc::default(), 0);
        }
        open(&files, &second, 1);
        let held = |file: &Arc<Open>| file.memory.load(Ordering::Relaxed);
        assert_eq!((held(&first), held(&second), files.places()), (1, 1, 2));
        let left = files.queue.lock().unwrap_or_else(PoisonError::into_inner).files.len();
        assert!(left < 200, "{left} places are left behind");
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
        open(&files, &all[0], 40);
        open(&files, &all[1], 40);
        all[0].used.store(true, Ordering::Relaxed);
        open(&files, &all[2], 40);
        let held = |file: &Arc<Open>| file.memory.load(Ordering::Relaxed);
        assert_eq!((held(&all[0]), held(&all[1]), held(&all[2])), (40, 0, 40));
        open(&files, &all[3], 500);
        assert_eq!(files.memory(), 500, "the one opened last stays, however large");
    }
}
