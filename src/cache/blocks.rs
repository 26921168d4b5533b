//! The block cache: blocks of files, read and checked, under one budget of bytes.
//!
//! A file that is open has a slot for each of its blocks, so that a hit costs one look at the slot, not a
//! search in a table of all blocks. The cache itself is a queue of the slots that are filled. When the
//! budget is passed, the slot at the front of the queue is emptied, unless it was used since it was queued;
//! then it goes to the back once more (the CLOCK algorithm). A scan that reads past the cache drives nothing
//! out, and a block that is read once goes before those that are read again.
//!
//! Thread safety: all methods may be called from any thread; a hit locks the one slot for an instant. The
//! locks of slots and of the queue are never held at the same time, but for emptying and sweeping: queue, then slot.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use crate::base::View;
use crate::base::prefetch::prefetch;
use crate::sync::{Mutex, MutexGuard};

/// What a cached block costs beside its bytes: its view, its place in the queue, and its owner.
const OVERHEAD: u64 = 112;

/// So many places in the queue are looked at when one is taken while too many hold nothing.
const SWEPT: usize = 8;

/// Hits and misses are counted in so many places, so that threads seldom share one.
const STRIPES: usize = 8;

#[derive(Default)]
#[repr(align(64))]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The cache of a database.
pub(crate) struct BlockCache {
    capacity: AtomicU64,
    used: AtomicU64,
    /// How many slots are filled.
    filled: AtomicU64,
    counts: [Counts; STRIPES],
    queue: Mutex<Queue>,
}

/// A slot, by its file and number.
type Place = (Weak<FileBlocks>, u32);

/// The slots that are filled, and some that were: those of closed files, and those whose block was dropped.
#[derive(Default)]
struct Queue {
    places: VecDeque<Place>,
    /// Where sweeping goes on.
    swept: usize,
}

/// The blocks of one open file that are cached. They leave the cache when this is dropped.
pub(crate) struct FileBlocks {
    cache: Arc<BlockCache>,
    slots: Box<[Slot]>,
}

#[derive(Default)]
struct Slot {
    /// In a box: most blocks of a large file are not here, and an empty slot is to be small.
    block: Mutex<Option<Box<View>>>,
    /// Whether the block was asked for since it was queued.
    used: AtomicBool,
    /// Whether the slot is in the queue: it may have been emptied since. Changed under the block's lock.
    queued: AtomicBool,
}

impl BlockCache {
    /// A cache that holds up to `capacity` bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity: AtomicU64::new(capacity),
            used: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            counts: Default::default(),
            queue: Mutex::default(),
        }
    }

    /// A cache that holds up to `count` blocks of `bytes` each.
    pub(crate) fn of_blocks(count: u64, bytes: usize) -> Self {
        Self::new(count * (bytes as u64 + OVERHEAD))
    }

    /// Holds up to `capacity` bytes from now on. Cost: what has to be evicted.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
        self.evict(&mut self.queue());
    }

    /// The bytes held now.
    pub(crate) fn memory(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How many times a block was there when it was asked for.
    pub(crate) fn hits(&self) -> u64 {
        self.counts.iter().map(|counts| counts.hits.load(Ordering::Relaxed)).sum()
    }

    /// How many times it was not.
    pub(crate) fn misses(&self) -> u64 {
        self.counts.iter().map(|counts| counts.misses.load(Ordering::Relaxed)).sum()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note that a slot was filled, which may be in the queue still, and makes room.
    fn filled(&self, file: &Arc<FileBlocks>, block: u32, bytes: u64, is_queued: bool) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        let filled = self.filled.fetch_add(1, Ordering::Relaxed) + 1;
        let mut queue = self.queue();
        if !is_queued {
            queue.places.push_back((Arc::downgrade(file), block));
        }
        if queue.places.len() as u64 > 2 * filled + 1024 {
            queue.sweep();
        }
        self.evict(&mut queue);
    }

    fn emptied(&self, block: &View) {
        self.used.fetch_sub(weight(block), Ordering::Relaxed);
        self.filled.fetch_sub(1, Ordering::Relaxed);
    }

    fn evict(&self, queue: &mut Queue) {
        while self.memory() > self.capacity.load(Ordering::Relaxed) {
            let Some((file, block)) = queue.places.pop_front() else { return };
            let Some(open) = file.upgrade() else { continue };
            let slot = &open.slots[block as usize];
            if slot.used.swap(false, Ordering::Relaxed) {
                queue.places.push_back((file, block));
            } else {
                let mut held = slot.lock();
                slot.queued.store(false, Ordering::Relaxed);
                held.take().iter().for_each(|block| self.emptied(block));
            }
        }
    }
}

impl Queue {
    /// Rids the next few places of those that hold nothing. Called for each slot that is filled while more than half are like that,
    /// it keeps pace with them, and nobody waits for all to be looked at.
    fn sweep(&mut self) {
        for _ in 0..SWEPT {
            match self.places.get(self.swept) {
                // The front comes here in its stead.
                Some(place) if is_vacant(place) => drop(self.places.swap_remove_front(self.swept)),
                Some(_) => self.swept += 1,
                None => self.swept = 0,
            }
        }
    }
}

/// Whether the slot holds nothing. It counts as not queued then.
fn is_vacant((file, block): &Place) -> bool {
    let Some(open) = file.upgrade() else { return true };
    let slot = &open.slots[*block as usize];
    let held = slot.lock();
    let is_vacant = held.is_none();
    if is_vacant {
        slot.queued.store(false, Ordering::Relaxed);
    }
    is_vacant
}

impl FileBlocks {
    /// The slots of a file of `count` blocks.
    pub(crate) fn new(cache: Arc<BlockCache>, count: usize) -> Arc<Self> {
        Arc::new(Self { cache, slots: (0..count).map(|_| Slot::default()).collect() })
    }

    /// Block `block`, if it is here.
    #[inline]
    pub(crate) fn get(&self, block: usize) -> Option<View> {
        let slot = &self.slots[block];
        let found = slot.lock().as_deref().cloned();
        let counts = &self.cache.counts[block % STRIPES];
        if found.is_some() {
            if !slot.used.load(Ordering::Relaxed) {
                slot.used.store(true, Ordering::Relaxed);
            }
            counts.hits.fetch_add(1, Ordering::Relaxed);
        } else {
            counts.misses.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Asks ahead for what [`get`](Self::get) will look at.
    #[inline]
    pub(crate) fn prefetch(&self, block: usize) {
        prefetch(&self.slots[block]);
    }

    /// Asks ahead for what taking and searching block `block` will look at, if it is here. Is no use of it.
    #[inline]
    pub(crate) fn prefetch_block(&self, block: usize) {
        if let Some(view) = &*self.slots[block].lock() {
            view.prefetch();
        }
    }

    /// Takes block `block` in. It may be dropped at any time.
    pub(crate) fn insert(self: &Arc<Self>, block: usize, bytes: View) {
        let weight = weight(&bytes);
        if weight > self.cache.capacity.load(Ordering::Relaxed) {
            return;
        }
        let slot = &self.slots[block];
        let mut held = slot.lock();
        if held.is_none() {
            *held = Some(Box::new(bytes));
            let is_queued = slot.queued.swap(true, Ordering::Relaxed);
            drop(held);
            self.cache.filled(self, block as u32, weight, is_queued);
        }
    }

    /// Block `block`, if it is here. Is no use of it.
    pub(crate) fn peek(&self, block: usize) -> Option<View> {
        self.slots[block].lock().as_deref().cloned()
    }

    /// Whether block `block` is here. Is no use of it.
    pub(crate) fn contains(&self, block: usize) -> bool {
        self.slots[block].lock().is_some()
    }

    /// Drops block `block`, whose bytes in the file are going to be others.
    pub(crate) fn remove(&self, block: usize) {
        if let Some(block) = self.slots[block].lock().take() {
            self.cache.emptied(&block);
        }
    }

    /// Bytes of memory the slots take, without the blocks.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&self.slots[..])
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Box<View>>> {
        self.block.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FileBlocks {
    fn drop(&mut self) {
        for slot in &self.slots {
            if let Some(block) = slot.lock().take() {
                self.cache.emptied(&block);
            }
        }
    }
}

fn weight(block: &View) -> u64 {
    block.len() as u64 + OVERHEAD
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache")
            .field("capacity", &self.capacity)
            .field("used", &self.used)
            .field("hits", &self.hits())
            .field("misses", &self.misses())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FileBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileBlocks({} slots)", self.slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> View {
        View::from(vec![byte; 4000])
    }

    #[test]
    fn what_is_used_stays_and_the_budget_is_kept() {
        let cache = Arc::new(BlockCache::new(100 * (4000 + OVERHEAD)));
        let file = FileBlocks::new(Arc::clone(&cache), 1000);
        assert!(file.get(0).is_none());
        for i in 0..1000 {
            file.insert(i, block(i as u8));
            assert!(file.get(0).is_some(), "block 0 is used all the time");
        }
        assert_eq!(file.get(0).as_deref(), Some(&[0; 4000][..]));
        assert_eq!(file.get(999).as_deref(), Some(&[231; 4000][..]));
        assert!(file.get(500).is_none());
        assert_eq!(cache.memory(), 100 * (4000 + OVERHEAD));
        assert_eq!((cache.hits(), cache.misses()), (1002, 2));
        cache.set_capacity(10 * (4000 + OVERHEAD));
        assert_eq!(cache.memory(), 10 * (4000 + OVERHEAD));
        cache.set_capacity(100);
        file.insert(5, block(5));
        assert!(file.get(5).is_none() && cache.memory() == 0, "too large for the cache");
    }

    #[test]
    fn a_closed_file_leaves_the_cache() {
        let cache = Arc::new(BlockCache::new(1 << 30));
        for _ in 0..100 {
            let file = FileBlocks::new(Arc::clone(&cache), 100);
            (0..100).for_each(|i| file.insert(i, block(1)));
            file.insert(7, block(2));
            assert_eq!(file.get(7).as_deref(), Some(&[1; 4000][..]), "the first one stays");
            assert_eq!(cache.memory(), 100 * (4000 + OVERHEAD));
        }
        assert_eq!(cache.memory(), 0);
        assert!(cache.queue().places.len() < 2000, "places of closed files are given up");
    }

    #[test]
    fn blocks_that_are_dropped_and_come_again_are_queued_once() {
        let cache = Arc::new(BlockCache::of_blocks(10, 4000));
        let file = FileBlocks::new(Arc::clone(&cache), 100);
        for round in 0..100 {
            for i in 0..5 {
                file.insert(i, block(round));
                assert_eq!(file.peek(i).as_deref(), Some(&[round; 4000][..]));
                file.remove(i);
                assert!(!file.contains(i));
            }
            assert_eq!((cache.memory(), cache.queue().places.len()), (0, 5));
        }
        (0..100).for_each(|i| file.insert(i, block(1)));
        assert_eq!((cache.memory(), cache.queue().places.len()), (10 * (4000 + OVERHEAD), 10));
    }

    /// A tree that writes its pages anew drops them where they were.
    #[test]
    fn places_of_dropped_blocks_are_given_up_with_little_work_each_time() {
        let cache = Arc::new(BlockCache::new(1 << 30));
        let file = FileBlocks::new(Arc::clone(&cache), 100_000);
        (0..50_000).for_each(|i| file.insert(i, block(1)));
        (100..50_000).for_each(|i| file.remove(i));
        assert_eq!(cache.queue().places.len(), 50_000);
        for i in 50_000..57_000 {
            let before = cache.queue().places.len();
            file.insert(i, block(2));
            let queued = cache.queue().places.len();
            assert!(queued <= before + 1 && queued + SWEPT >= before, "{before} become {queued}");
            file.remove(i);
        }
        assert!(cache.queue().places.len() < 2000, "{}", cache.queue().places.len());
        // What is there still is in the queue, and what comes again is, too, once.
        (0..200).for_each(|i| file.insert(i, block(3)));
        assert!((0..200).all(|i| file.contains(i)));
        cache.set_capacity(0);
        assert_eq!((cache.memory(), cache.queue().places.len()), (0, 0));
    }

    #[test]
    fn many_threads_keep_the_books() {
        let cache = Arc::new(BlockCache::new(50 * (4000 + OVERHEAD)));
        let file = FileBlocks::new(Arc::clone(&cache), 200);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    let mut rng = crate::base::rng::Rng::new(seed);
                    for _ in 0..20_000 {
                        let i = (rng.next() % 200) as usize;
                        match file.get(i) {
                            Some(found) => assert_eq!(found[0], i as u8),
                            None => file.insert(i, block(i as u8)),
                        }
                    }
                });
            }
        });
        assert!(cache.memory() <= 50 * (4000 + OVERHEAD));
        let held = (0..200).filter(|&i| file.get(i).is_some()).count() as u64;
        assert_eq!(cache.memory(), held * (4000 + OVERHEAD));
    }
}
