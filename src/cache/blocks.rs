//! The block cache: blocks of files, read and checked, under one budget of bytes.
//!
//! A file that is open has a slot for each of its blocks, so that a hit costs one look at the slot, not a
//! search in a table of all blocks. The cache itself is the memory they are in, [`Slabs`], over which a hand goes round.
//! When the budget is passed, the block it comes to is evicted, unless it was used since the hand was there last (the CLOCK algorithm).
//! A scan that reads past the cache drives nothing
//! out, and a block that is read once goes before those that are read again.
//!
//! Memory is counted as the system gives it. Where blocks that stay are far apart, they are moved together. What readers hold on to
//! stays where it is, and with it its slab: for that, too, other blocks are evicted.
//!
//! Thread safety: all methods may be called from any thread; a hit locks the one slot for an instant. Who holds the lock of the slabs may
//! take that of a slot, not the other way round.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use super::slabs::{self, FrameId, Slabs};
use crate::base::prefetch::prefetch;
use crate::base::{View, room};
use crate::sync::{Mutex, MutexGuard};

/// At most twice so many blocks are looked at when one is to be taken in that is no larger than they are, and so many passed over because they were used.
const STEPS: usize = 64;

/// So many slabs are left for one block that comes in and is smaller than a slab.
const MOST_LEFT: usize = 2;

/// So many blocks of a closed file are given back at once; others wait for that.
const CLEARED: usize = 256;

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
    counts: [Counts; STRIPES],
    slabs: Mutex<Slabs<Place>>,
}

/// Which block it is: the slots of its file, and its number.
type Place = (Weak<[Slot]>, u32);

/// The blocks of one open file that are cached. They leave the cache when this is dropped.
pub(crate) struct FileBlocks {
    cache: Arc<BlockCache>,
    slots: Arc<[Slot]>,
}

#[derive(Default)]
struct Slot {
    /// In a box: most blocks of a large file are not here, and an empty slot is to be small.
    block: Mutex<Option<Box<Block>>>,
    /// Whether the block was asked for since the hand came to it.
    used: AtomicBool,
}

struct Block {
    view: View,
    frame: FrameId,
}

impl BlockCache {
    /// A cache that holds up to `capacity` bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity: AtomicU64::new(capacity),
            counts: Default::default(),
            slabs: Mutex::new(Slabs::new()),
        }
    }

    /// A cache that holds up to `count` blocks of `bytes` each.
    pub(crate) fn of_blocks(count: u64, bytes: usize) -> Self {
        Self::new(count * slabs::weight(bytes))
    }

    /// Holds up to `capacity` bytes from now on. Cost: what has to be evicted.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        let before = self.capacity.swap(capacity, Ordering::Relaxed);
        if capacity < before {
            let mut slabs = self.slabs();
            let all = 2 * slabs.blocks() + 1;
            self.make_room(&mut slabs, 0, all, all);
        }
    }

    /// The bytes of memory it takes now: what blocks are in, and what belongs to them.
    pub(crate) fn memory(&self) -> u64 {
        self.slabs().memory()
    }

    /// How many times a block was there when it was asked for.
    pub(crate) fn hits(&self) -> u64 {
        self.counts.iter().map(|counts| counts.hits.load(Ordering::Relaxed)).sum()
    }

    /// How many times it was not.
    pub(crate) fn misses(&self) -> u64 {
        self.counts.iter().map(|counts| counts.misses.load(Ordering::Relaxed)).sum()
    }

    /// The slabs, with what was dropped taken back.
    fn slabs(&self) -> MutexGuard<'_, Slabs<Place>> {
        let mut slabs = self.slabs.lock().unwrap_or_else(PoisonError::into_inner);
        slabs.reclaim();
        slabs
    }

    /// How many blocks are here, or with readers.
    #[cfg(test)]
    pub(crate) fn blocks(&self) -> usize {
        self.slabs().blocks()
    }

    /// Evicts until there is room for `need` more bytes, for which it looks at no more than `most` blocks. Then has slabs left that are too much, no more than
    /// about `most_left`. Whether there is room.
    fn make_room(
        &self,
        slabs: &mut Slabs<Place>,
        need: u64,
        most: usize,
        most_left: usize,
    ) -> bool {
        let capacity = self.capacity.load(Ordering::Relaxed);
        let is_room = |slabs: &Slabs<Place>| slabs.live() + need <= capacity;
        Self::evict(slabs, most, is_room);
        let is_loose = |slabs: &Slabs<Place>| slabs.memory() + need > capacity + slabs.slack();
        for _ in 0..most_left {
            if is_loose(slabs) {
                slabs.release_kept();
            }
            if !is_loose(slabs) {
                break;
            }
            // If readers hold what keeps the slabs, others make room.
            let is_less = Self::leave_a_slab(slabs)
                || Self::evict(slabs, 2 * STEPS, |slabs| !is_loose(slabs)) > 0;
            if !is_less {
                break;
            }
        }
        is_room(slabs)
    }

    /// Evicts until `is_enough`, looking at no more than `most` blocks. How many it evicted.
    fn evict(
        slabs: &mut Slabs<Place>,
        most: usize,
        is_enough: impl Fn(&Slabs<Place>) -> bool,
    ) -> usize {
        let (mut passed, mut evicted) = (0, 0);
        for _ in 0..most {
            if is_enough(slabs) {
                break;
            }
            let Some((id, place)) = slabs.next() else { break };
            let place = place.clone();
            let gone = with_block(&place, id, |slot, held| {
                let was_used = slot.used.swap(false, Ordering::Relaxed) && passed < STEPS;
                passed += usize::from(was_used);
                if was_used { None } else { held.take() }
            });
            if gone.flatten().is_some() {
                evicted += 1;
                slabs.reclaim();
            }
        }
        evicted
    }

    /// Moves the blocks of a slab to others. Whether one is left.
    fn leave_a_slab(slabs: &mut Slabs<Place>) -> bool {
        for slab in slabs.emptiest() {
            let before = slabs.memory();
            for (id, place) in slabs.blocks_in(slab) {
                with_block(&place, id, |_, held| {
                    let block = held.as_mut().filter(|block| !block.view.is_shared())?;
                    let blank = slabs.take_elsewhere(slab, block.view.len(), place.clone())?;
                    let (view, frame) = blank.fill(&block.view)?;
                    **block = Block { view, frame };
                    Some(())
                });
            }
            slabs.reclaim();
            slabs.release_kept();
            if slabs.memory() < before {
                return true;
            }
        }
        false
    }
}

/// Gives the block at `place` to `call`, if it is there and in frame `id`: it may not be yet, or only readers have it.
fn with_block<R>(
    (slots, number): &Place,
    id: FrameId,
    call: impl FnOnce(&Slot, &mut Option<Box<Block>>) -> R,
) -> Option<R> {
    let slots = slots.upgrade()?;
    let slot = &slots[*number as usize];
    let mut held = slot.lock();
    let is_it = held.as_ref().is_some_and(|block| block.frame == id);
    is_it.then(|| call(slot, &mut held))
}

impl FileBlocks {
    /// Bytes of memory that the slots of `count` blocks take.
    pub(crate) fn memory_of(count: usize) -> usize {
        count.saturating_mul(size_of::<Slot>())
    }

    /// Whether there is memory for the slots of `count` blocks now.
    pub(crate) fn is_room_for(count: usize) -> bool {
        room::is_there_for::<Slot>(count)
    }

    /// The slots of a file of `count` blocks.
    pub(crate) fn new(cache: Arc<BlockCache>, count: usize) -> Arc<Self> {
        Arc::new(Self { cache, slots: (0..count).map(|_| Slot::default()).collect() })
    }

    /// Block `block`, if it is here.
    #[inline]
    pub(crate) fn get(&self, block: usize) -> Option<View> {
        let slot = &self.slots[block];
        let found = slot.view();
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
        if let Some(block) = &*self.slots[block].lock() {
            block.view.prefetch();
        }
    }

    /// Takes a copy of block `block` in, if there is room for it. It may be dropped at any time.
    pub(crate) fn insert(&self, block: usize, bytes: &[u8]) {
        // Which one it is must be told by so many bits.
        let Ok(number) = u32::try_from(block) else { return };
        let weight = slabs::weight(bytes.len());
        if weight > self.cache.capacity.load(Ordering::Relaxed) || self.contains(block) {
            return;
        }
        let mut slabs = self.cache.slabs();
        // One large block may take the place of many small ones.
        let most = 2 * STEPS + bytes.len() / slabs::SMALLEST;
        let most_left = MOST_LEFT + bytes.len() / slabs::SLAB;
        if self.contains(block) || !self.cache.make_room(&mut slabs, weight, most, most_left) {
            return;
        }
        let place = (Arc::downgrade(&self.slots), number);
        let Some(blank) = slabs.take(bytes.len(), place) else { return };
        drop(slabs);
        let Some((view, frame)) = blank.fill(bytes) else { return };
        let slot = &self.slots[block];
        let mut held = slot.lock();
        if held.is_none() {
            *held = Some(Box::new(Block { view, frame }));
            slot.used.store(false, Ordering::Relaxed);
        }
    }

    /// Block `block`, if it is here. Is no use of it.
    pub(crate) fn peek(&self, block: usize) -> Option<View> {
        self.slots[block].view()
    }

    /// Whether block `block` is here. Is no use of it.
    pub(crate) fn contains(&self, block: usize) -> bool {
        self.slots[block].lock().is_some()
    }

    /// Drops block `block`, whose bytes in the file are going to be others.
    pub(crate) fn remove(&self, block: usize) {
        *self.slots[block].lock() = None;
    }

    /// Bytes of memory the slots take, without the blocks.
    pub(crate) fn memory(&self) -> usize {
        Self::memory_of(self.slots.len())
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Box<Block>>> {
        self.block.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn view(&self) -> Option<View> {
        self.lock().as_ref().map(|block| block.view.clone())
    }
}

impl Drop for FileBlocks {
    fn drop(&mut self) {
        let held = self.slots.iter().filter_map(|slot| slot.lock().take());
        let mut cleared = 0;
        held.for_each(|block| {
            drop(block);
            cleared += 1;
            if cleared % CLEARED == 0 {
                drop(self.cache.slabs());
            }
        });
        if cleared > 0 {
            drop(self.cache.slabs());
        }
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache")
            .field("capacity", &self.capacity)
            .field("slabs", &self.slabs)
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
    use super::super::slabs::{OVERHEAD, SLAB};
    use super::*;

    const LEN: usize = 4096;
    const WEIGHT: u64 = LEN as u64 + OVERHEAD;

    fn block(byte: u8) -> Vec<u8> {
        vec![byte; LEN]
    }

    fn held(file: &FileBlocks) -> usize {
        (0..file.slots.len()).filter(|&i| file.contains(i)).count()
    }

    #[test]
    fn what_is_used_stays_and_the_budget_is_kept() {
        let cache = Arc::new(BlockCache::new(100 * WEIGHT));
        let file = FileBlocks::new(Arc::clone(&cache), 1000);
        assert!(file.get(0).is_none());
        for i in 0..1000 {
            file.insert(i, &block(i as u8));
            assert!(file.get(0).is_some(), "block 0 is used all the time");
            assert!(held(&file) == (i + 1).min(100));
        }
        assert_eq!(file.get(0).as_deref(), Some(&[0; LEN][..]));
        assert_eq!(file.get(999).as_deref(), Some(&[231; LEN][..]));
        assert!(file.get(500).is_none());
        assert!(cache.memory() < 100 * WEIGHT + SLAB as u64);
        assert_eq!((cache.hits(), cache.misses()), (1002, 2));
        cache.set_capacity(10 * WEIGHT);
        assert_eq!(held(&file), 10);
        assert!(cache.memory() < 10 * WEIGHT + SLAB as u64);
        cache.set_capacity(100);
        file.insert(5, &block(5));
        assert!(file.get(5).is_none() && cache.memory() == 0, "too large for the cache");
    }

    #[test]
    fn a_closed_file_leaves_the_cache() {
        let cache = Arc::new(BlockCache::new(1 << 30));
        for _ in 0..100 {
            let file = FileBlocks::new(Arc::clone(&cache), 100);
            (0..100).for_each(|i| file.insert(i, &block(1)));
            file.insert(7, &block(2));
            assert_eq!(file.get(7).as_deref(), Some(&[1; LEN][..]), "the first one stays");
            assert!((100 * WEIGHT..200 * WEIGHT).contains(&cache.memory()));
        }
        assert!(cache.memory() <= 2 * SLAB as u64, "two empty slabs may be kept");
        cache.set_capacity(1 << 29);
        cache.set_capacity(0);
        assert_eq!(cache.memory(), 0);
    }

    #[test]
    fn blocks_that_are_dropped_and_come_again_take_what_they_left() {
        let cache = Arc::new(BlockCache::of_blocks(10, LEN));
        let file = FileBlocks::new(Arc::clone(&cache), 100);
        for round in 0..100 {
            for i in 0..5 {
                file.insert(i, &block(round));
                assert_eq!(file.peek(i).as_deref(), Some(&[round; LEN][..]));
                file.remove(i);
                assert!(!file.contains(i));
            }
        }
        assert!(cache.memory() <= SLAB as u64);
        (0..100).for_each(|i| file.insert(i, &block(1)));
        assert_eq!(held(&file), 10);
    }

    #[test]
    fn what_a_reader_holds_stays_as_it_is_and_counts() {
        let cache = Arc::new(BlockCache::of_blocks(10, LEN));
        let file = FileBlocks::new(Arc::clone(&cache), 1000);
        file.insert(0, &block(77));
        let view = file.get(0).unwrap();
        file.remove(0);
        (1..1000).for_each(|i| file.insert(i, &block(1)));
        assert_eq!((&view[..], held(&file)), (&[77; LEN][..], 9));
        drop(file);
        assert_eq!(&view[..], &[77; LEN][..]);
        drop(view);
        cache.set_capacity(0);
        assert_eq!(cache.memory(), 0);
    }

    /// One block in eight is used again and again: those are in all slabs when the cache is to be smaller.
    #[test]
    fn memory_goes_back_though_blocks_that_stay_are_everywhere() {
        let count = 64 * SLAB / LEN;
        let cache = Arc::new(BlockCache::of_blocks(count as u64, LEN));
        let file = FileBlocks::new(Arc::clone(&cache), count);
        (0..count).for_each(|i| file.insert(i, &vec![i as u8; LEN]));
        assert_eq!((held(&file), cache.memory()), (count, count as u64 * WEIGHT));
        let hot = || (0..count).step_by(8);
        hot().for_each(|i| drop(file.get(i)));
        // As memtables grow, step by step.
        for share in (16..32).rev() {
            let capacity = count as u64 / 32 * WEIGHT * share;
            cache.set_capacity(capacity);
            assert!(cache.memory() <= capacity + SLAB as u64, "{share}: {}", cache.memory());
        }
        assert!(held(&file) >= count * 7 / 16, "{} of {count}", held(&file));
        assert!(hot().all(|i| file.peek(i).as_deref() == Some(&[i as u8; LEN][..])));
    }

    #[test]
    fn blocks_of_all_sizes_keep_the_budget() {
        let capacity = 8 << 20;
        let cache = Arc::new(BlockCache::new(capacity));
        let file = FileBlocks::new(Arc::clone(&cache), 10_000);
        let mut rng = crate::base::rng::Rng::new(1);
        // Not more than some sizes at a time: each has a slab that is not full.
        for sizes in [1..=3000, 4000..=4400, 9_000..=9_500, 30_000..=80_000_usize] {
            for _ in 0..20_000 {
                let number = (rng.next() % 10_000) as usize;
                let len = sizes.start() + (rng.next() as usize) % (sizes.end() - sizes.start());
                let bytes = vec![number as u8; len];
                match file.get(number) {
                    Some(found) => assert!(found.iter().all(|&byte| byte == number as u8)),
                    None => file.insert(number, &bytes),
                }
                if rng.next().is_multiple_of(4) {
                    file.remove((rng.next() % 10_000) as usize);
                }
            }
            let (memory, slack) = (cache.memory(), cache.slabs().slack() + 3 * SLAB as u64);
            assert!(memory <= capacity + slack, "{memory} with {sizes:?}");
        }
        drop(file);
        cache.set_capacity(0);
        assert_eq!((cache.memory(), cache.slabs().blocks()), (0, 0));
    }

    /// Lengths of which no number fills a slab: what is left of each is not room that blocks could be moved to.
    #[test]
    fn what_is_left_at_the_end_of_slabs_sets_nothing_in_motion() {
        for len in [3_300, 6_700, 13_400, 27_000] {
            let capacity = 32 << 20;
            let cache = Arc::new(BlockCache::new(capacity));
            let count = capacity as usize / len;
            let file = FileBlocks::new(Arc::clone(&cache), 3 * count);
            let hot = || (0..count / 2).step_by(8);
            (0..count / 2).for_each(|i| file.insert(i, &vec![1; len]));
            let places: Vec<_> = hot().map(|i| file.peek(i).unwrap().as_ptr()).collect();
            for i in count..3 * count {
                file.insert(i, &vec![2; len]);
                drop(file.get(i % (count / 2) / 8 * 8));
                let most = capacity + cache.slabs().slack() + 2 * SLAB as u64;
                assert!(cache.memory() <= most, "{} at {i} with {len}", cache.memory());
            }
            assert!(held(&file) >= count * 3 / 4, "{} of {count} with {len}", held(&file));
            let are = hot().map(|i| file.peek(i).map_or(std::ptr::null(), |view| view.as_ptr()));
            assert!(are.eq(places), "blocks of {len} were moved, though none was to be");
        }
    }

    #[test]
    fn large_blocks_among_small_ones_keep_the_budget() {
        for large in [20_000, 100_000, 1 << 20, 5 << 20] {
            let capacity = 32 << 20;
            let cache = Arc::new(BlockCache::new(capacity));
            let file = FileBlocks::new(Arc::clone(&cache), 20_000);
            for i in 0..8_000 {
                file.insert(i, &block(1));
                drop(file.get(i));
            }
            for i in 8_000..8_040 {
                file.insert(i, &vec![3; large]);
                let most = capacity + cache.slabs().slack() + 2 * SLAB as u64;
                assert!(cache.memory() <= most, "{} with {large}", cache.memory());
            }
            assert!((8_000..8_040).any(|i| file.contains(i)), "none of {large} was taken in");
            assert!(held(&file) > 4, "{} with {large}", held(&file));
        }
    }

    /// A slice of a block keeps its slab, so others have to make room.
    #[test]
    fn slabs_that_readers_hold_on_to_are_in_the_budget() {
        let (capacity, in_a_slab) = (32 << 20, SLAB / LEN);
        let cache = Arc::new(BlockCache::new(capacity));
        let file = FileBlocks::new(Arc::clone(&cache), 50_000);
        (0..7_000).for_each(|i| file.insert(i, &block(i as u8)));
        let slices: Vec<_> =
            (0..3_500).step_by(in_a_slab).map(|i| (i, file.get(i).unwrap())).collect();
        for i in 7_000..20_000 {
            file.insert(i, &[9; 9_000]);
        }
        let most = capacity + cache.slabs().slack() + 2 * SLAB as u64;
        assert!(cache.memory() <= most, "{} of {capacity}", cache.memory());
        assert!(held(&file) > 1_000, "{}", held(&file));
        assert!(slices.iter().all(|(i, slice)| slice[..] == block(*i as u8)[..]));
        drop(slices);
        (20_000..30_000).for_each(|i| file.insert(i, &[9; 9_000]));
        assert!(held(&file) > 3_000, "{} after the slices are gone", held(&file));
    }

    #[test]
    fn a_closed_file_gives_its_memory_back_at_once() {
        let cache = Arc::new(BlockCache::new(1 << 30));
        let file = FileBlocks::new(Arc::clone(&cache), 2_000);
        (0..2_000).for_each(|i| file.insert(i, &block(1)));
        let memory = || cache.slabs.lock().unwrap().memory();
        assert!(memory() >= 2_000 * LEN as u64);
        drop(file);
        assert!(memory() <= 2 * SLAB as u64, "{} bytes wait for the next block", memory());
    }

    #[test]
    fn a_cache_of_which_all_is_used_all_the_time_does_not_grow() {
        let cache = Arc::new(BlockCache::of_blocks(500, LEN));
        let file = FileBlocks::new(Arc::clone(&cache), 2000);
        for i in 0..2000 {
            file.insert(i, &block(1));
            (0..=i).for_each(|i| drop(file.get(i)));
            assert_eq!(held(&file), (i + 1).min(500));
        }
    }

    /// What a block holds: its number, and how often it was written, all over.
    fn stamped(number: usize, version: u8, len: usize) -> Vec<u8> {
        let stamp = [number as u8, (number >> 8) as u8, version];
        stamp.into_iter().cycle().take(len).collect()
    }

    #[test]
    fn views_stay_as_they_are_while_blocks_come_and_go_and_move() {
        let cache = Arc::new(BlockCache::new(2 << 20));
        // A file for each thread, whose blocks it writes anew and so drops, and which all read.
        let files: Vec<_> = (0..4).map(|_| FileBlocks::new(Arc::clone(&cache), 1000)).collect();
        let is_whole =
            |number: usize, view: &View| view[..] == stamped(number, view[2], view.len())[..];
        std::thread::scope(|scope| {
            for own in 0..4_usize {
                let (files, cache) = (&files, &cache);
                scope.spawn(move || {
                    let mut rng = crate::base::rng::Rng::new(own as u64);
                    let mut versions = vec![0_u8; 1000];
                    let mut held = Vec::new();
                    for turn in 0..30_000 {
                        let number = (rng.next() % 1000) as usize;
                        // Lengths of three kinds, and some too large for slabs.
                        let len = [900, 4100, 4300, 9000, 40_000][number % 5] + number % 50;
                        let from = (rng.next() % 4) as usize;
                        if from == own {
                            files[own].remove(number);
                            versions[number] = versions[number].wrapping_add(1);
                            files[own].insert(number, &stamped(number, versions[number], len));
                        } else if let Some(view) = files[from].get(number) {
                            assert!(is_whole(number, &view) && view.len() == len);
                            held.push((number, view));
                        }
                        if let Some(view) = files[own].get(number) {
                            assert_eq!(view[2], versions[number], "it is not the last one written");
                        }
                        match turn % 100 {
                            0 => cache.set_capacity((rng.next() % 8) << 18),
                            50 => held
                                .drain(..)
                                .for_each(|(number, view)| assert!(is_whole(number, &view))),
                            _ => {}
                        }
                    }
                });
            }
        });
        drop(files);
        cache.set_capacity(1);
        cache.set_capacity(0);
        assert_eq!((cache.memory(), cache.blocks()), (0, 0));
    }

    #[test]
    fn many_threads_keep_the_books() {
        let cache = Arc::new(BlockCache::new(50 * WEIGHT));
        let file = FileBlocks::new(Arc::clone(&cache), 200);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (file, cache) = (&file, &cache);
                scope.spawn(move || {
                    let mut rng = crate::base::rng::Rng::new(seed);
                    for n in 0..20_000 {
                        let i = (rng.next() % 200) as usize;
                        match file.get(i) {
                            Some(found) => assert_eq!(&found[..], &[i as u8; LEN][..]),
                            None => file.insert(i, &block(i as u8)),
                        }
                        match n % 50 {
                            0 => file.remove((rng.next() % 200) as usize),
                            1 => cache.set_capacity((rng.next() % 50) * WEIGHT),
                            2 => cache.set_capacity(50 * WEIGHT),
                            _ => {}
                        }
                    }
                });
            }
        });
        cache.set_capacity(50 * WEIGHT);
        assert!(cache.memory() <= 50 * WEIGHT + 2 * SLAB as u64);
        assert_eq!(cache.slabs().live(), held(&file) as u64 * WEIGHT);
    }
}
