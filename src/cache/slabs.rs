//! Slabs: the memory of cached blocks, which all threads share.
//!
//! Memory is taken from the system in regions, of which each has a number of slabs. A slab is divided into frames of one size, and a frame holds one block;
//! sizes are close enough to each other that a 16th of a frame is empty at most. When the last block of a slab is gone, the system has its memory
//! back. (Slabs are Bonwick's, 1994; here they are not for objects of one type but for blocks of about one length.)
//!
//! Each frame knows what its block is, a *place*; so a hand that goes round over all frames finds the blocks to evict, one slab after the other.
//!
//! Thread safety: [`Slabs`] is for one thread at a time, behind a lock. Frames may be dropped by any thread at any time: they are put on a list, from which they
//! are taken back with the next change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use crate::base::View;
use crate::base::pages::Pages;
use crate::sync::Mutex;

/// The bytes of a slab.
pub(super) const SLAB: usize = 128 << 10;
/// How many slabs the system is asked for at once. They take memory when they are first used.
const SLABS_IN_REGION: usize = 32;
/// The smallest frame, of which all are a multiple.
const SMALLEST: usize = 256;
/// The largest frame. A larger block is left to the allocator.
const LARGEST: usize = SLAB / 4;
/// How many blocks without a frame are counted together, as if they were in a slab.
const STRAYS: usize = 32;
/// So many slabs that were left keep their memory, lest one comes and goes with each block.
const KEPT: usize = 2;

/// What a block costs beside its bytes, in bytes: its view, the owner of that, and its place.
pub(super) const OVERHEAD: u64 = 128;

/// Which frame it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameId {
    slab: u32,
    frame: u32,
}

/// Frames that nobody has a view of any more.
type Dropped = Arc<Mutex<Vec<FrameId>>>;

/// What keeps a block where it is.
struct Frame {
    id: FrameId,
    memory: Memory,
    dropped: Dropped,
}

enum Memory {
    Region { _kept: Arc<Region> },
    Allocator(Vec<u8>),
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
    }
}

/// Slabs that lie one behind the other.
struct Region {
    pages: Pages,
    start: NonNull<u8>,
}

// SAFETY: the pointer is to the pages, which the region owns; `Slabs` decides who may touch which bytes.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// A slab: for frames of one size, until all are free again.
struct Slab<P> {
    /// Its region, and where it begins in it; none if its blocks are with the allocator.
    home: Option<(Arc<Region>, usize)>,
    /// The bytes of a frame; 0 while it has none.
    size: usize,
    frames: Vec<Option<Occupied<P>>>,
    free: Vec<u32>,
}

struct Occupied<P> {
    place: P,
    /// What it counts for.
    bytes: u64,
}

impl<P> Slab<P> {
    fn occupied(&self) -> usize {
        self.frames.len() - self.free.len()
    }
}

/// All slabs of a cache, of blocks with places `P`.
pub(super) struct Slabs<P> {
    slabs: Vec<Slab<P>>,
    /// Those without frames that have memory, and those that have none.
    kept: BTreeSet<u32>,
    vacant: BTreeSet<u32>,
    vacant_strays: Vec<u32>,
    /// Those with a free frame, by the size of frames; 0 for those of strays.
    partial: BTreeMap<usize, BTreeSet<u32>>,
    /// How many slabs have memory.
    resident: usize,
    /// The frame that the hand looks at next.
    hand: FrameId,
    occupied: usize,
    /// What all blocks count for, and of that what is with the allocator.
    live: u64,
    strayed: u64,
    dropped: Dropped,
}

/// A frame that is not filled yet.
pub(super) struct Blank {
    frame: Frame,
    start: NonNull<u8>,
    len: usize,
}

/// The bytes of the frame that a block of `len` has.
fn frame_size(len: usize) -> usize {
    let step = (len.max(1).next_power_of_two() / 32).max(SMALLEST);
    len.max(1).next_multiple_of(step)
}

/// What a block of `len` bytes counts for.
pub(super) fn weight(len: usize) -> u64 {
    (if frame_size(len) > LARGEST { len } else { frame_size(len) }) as u64 + OVERHEAD
}

impl<P> Slabs<P> {
    pub(super) fn new() -> Self {
        Self {
            slabs: Vec::new(),
            kept: BTreeSet::new(),
            vacant: BTreeSet::new(),
            vacant_strays: Vec::new(),
            partial: BTreeMap::new(),
            resident: 0,
            hand: FrameId { slab: 0, frame: 0 },
            occupied: 0,
            live: 0,
            strayed: 0,
            dropped: Dropped::default(),
        }
    }

    /// What all blocks count for, those included that only readers have.
    pub(super) fn live(&mut self) -> u64 {
        self.reclaim();
        self.live
    }

    /// Bytes of memory that blocks and slabs take.
    pub(super) fn memory(&mut self) -> u64 {
        self.reclaim();
        let beside = self.occupied as u64 * OVERHEAD;
        (self.resident * SLAB) as u64 + self.strayed + beside
    }

    /// How much more memory slabs may take than their blocks: each size has one that is not full.
    pub(super) fn slack(&self) -> u64 {
        (self.partial.len() * SLAB) as u64
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self) -> usize {
        self.occupied
    }

    /// A frame for `len` bytes of the block at `place`, the nearest one behind the hand; not in the slab of `elsewhere`, if that is given.
    pub(super) fn take(&mut self, len: usize, place: P, elsewhere: Option<FrameId>) -> Blank {
        self.reclaim();
        let size = frame_size(len);
        let size = if size > LARGEST { 0 } else { size };
        let number = self.partial_of(size, elsewhere).unwrap_or_else(|| self.add(size));
        let slab = &mut self.slabs[number as usize];
        let frame = slab.free.pop().expect("the slab has a free frame");
        let bytes = weight(len);
        slab.frames[frame as usize] = Some(Occupied { place, bytes });
        let is_full = slab.free.is_empty();
        let (memory, start) = match &slab.home {
            Some((region, offset)) => {
                let offset = offset + frame as usize * size;
                // SAFETY: the frame lies in the slab, and that in the region.
                let start = unsafe { region.start.add(offset) };
                (Memory::Region { _kept: Arc::clone(region) }, start)
            }
            None => (Memory::Allocator(Vec::with_capacity(len)), NonNull::dangling()),
        };
        if is_full {
            self.forget_partial(size, number);
        }
        self.occupied += 1;
        self.live += bytes;
        self.strayed += if size == 0 { len as u64 } else { 0 };
        let id = FrameId { slab: number, frame };
        Blank { frame: Frame { id, memory, dropped: Arc::clone(&self.dropped) }, start, len }
    }

    /// Whether the block in this frame could be in another slab, so that this one is left at some time.
    pub(super) fn may_move(&self, id: FrameId) -> bool {
        let size = self.slabs[id.slab as usize].size;
        size > 0 && self.partial_of(size, Some(id)).is_some()
    }

    /// The next block that the hand comes to, and its place; none if there is no block.
    pub(super) fn next(&mut self) -> Option<(FrameId, &P)> {
        self.reclaim();
        if self.occupied == 0 {
            return None;
        }
        loop {
            let FrameId { slab, frame } = self.hand;
            let frames = self.slabs.get(slab as usize).map_or(&[][..], |slab| &slab.frames);
            let rest = frames.get(frame as usize..).unwrap_or_default();
            if let Some(found) = rest.iter().position(Option::is_some) {
                let id = FrameId { slab, frame: frame + found as u32 };
                self.hand.frame = id.frame + 1;
                let occupied = &self.slabs[slab as usize].frames[id.frame as usize];
                return occupied.as_ref().map(|occupied| (id, &occupied.place));
            }
            let next = if slab as usize + 1 < self.slabs.len() { slab + 1 } else { 0 };
            self.hand = FrameId { slab: next, frame: 0 };
        }
    }

    /// Gives back what is kept without blocks.
    pub(super) fn release_kept(&mut self) {
        while let Some(number) = self.kept.pop_first() {
            self.discard(number);
        }
    }

    /// The slab with a free frame that is nearest behind the hand.
    fn partial_of(&self, size: usize, elsewhere: Option<FrameId>) -> Option<u32> {
        let partial = self.partial.get(&size)?;
        let is_other = |number: &&u32| elsewhere.is_none_or(|id| id.slab != **number);
        let mut behind = partial.range(..=self.hand.slab).rev().chain(partial.iter().rev());
        behind.find(is_other).copied()
    }

    /// A slab without blocks, for frames of `size`.
    fn add(&mut self, size: usize) -> u32 {
        let number = if size == 0 {
            self.vacant_strays.pop().unwrap_or_else(|| self.push(None))
        } else {
            let kept = self.kept.pop_first();
            kept.unwrap_or_else(|| {
                self.resident += 1;
                self.vacant.pop_first().unwrap_or_else(|| self.add_region())
            })
        };
        let count = SLAB.checked_div(size).unwrap_or(STRAYS);
        let slab = &mut self.slabs[number as usize];
        slab.size = size;
        slab.frames.resize_with(count, || None);
        slab.free.extend((0..count as u32).rev());
        self.partial.entry(size).or_default().insert(number);
        number
    }

    /// Gets slabs from the system; gives the first one, and the others are vacant.
    fn add_region(&mut self) -> u32 {
        let mut pages = Pages::new(SLABS_IN_REGION * SLAB);
        let start = pages.start();
        let region = Arc::new(Region { pages, start });
        let numbers =
            (0..SLABS_IN_REGION).map(|n| self.push(Some((Arc::clone(&region), n * SLAB))));
        let numbers: Vec<_> = numbers.collect();
        self.vacant.extend(&numbers[1..]);
        numbers[0]
    }

    fn push(&mut self, home: Option<(Arc<Region>, usize)>) -> u32 {
        self.slabs.push(Slab { home, size: 0, frames: Vec::new(), free: Vec::new() });
        self.slabs.len() as u32 - 1
    }

    /// Takes back the frames that were dropped.
    fn reclaim(&mut self) {
        let dropped = Arc::clone(&self.dropped);
        let mut dropped = dropped.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(id) = dropped.pop() {
            self.free(id);
        }
    }

    fn free(&mut self, id: FrameId) {
        let slab = &mut self.slabs[id.slab as usize];
        let size = slab.size;
        let Some(Occupied { bytes, .. }) = slab.frames[id.frame as usize].take() else {
            unreachable!("a frame is dropped once")
        };
        slab.free.push(id.frame);
        self.occupied -= 1;
        self.live -= bytes;
        self.strayed -= if size == 0 { bytes - OVERHEAD } else { 0 };
        if slab.occupied() > 0 {
            self.partial.entry(size).or_default().insert(id.slab);
            return;
        }
        (slab.size, slab.frames, slab.free) = (0, Vec::new(), Vec::new());
        self.forget_partial(size, id.slab);
        if size == 0 {
            self.vacant_strays.push(id.slab);
        } else if self.kept.len() < KEPT {
            self.kept.insert(id.slab);
        } else {
            self.discard(id.slab);
        }
    }

    /// Notes that a slab has no free frame, or no frames.
    fn forget_partial(&mut self, size: usize, number: u32) {
        if let Some(partial) = self.partial.get_mut(&size) {
            partial.remove(&number);
            if partial.is_empty() {
                self.partial.remove(&size);
            }
        }
    }

    /// Gives back the memory of a slab without blocks.
    fn discard(&mut self, number: u32) {
        if let Some((region, offset)) = &self.slabs[number as usize].home {
            // SAFETY: the slab lies in the region. None of its frames has a block that somebody has a view of, and none is
            // given out meanwhile.
            unsafe { region.pages.discard(*offset..*offset + SLAB) };
            self.resident -= 1;
            self.vacant.insert(number);
        }
    }
}

impl Blank {
    /// Has `bytes` in the frame, which are as many as it was taken for.
    pub(super) fn fill(self, bytes: &[u8]) -> (View, FrameId) {
        let Self { mut frame, mut start, len } = self;
        assert_eq!(bytes.len(), len, "the frame is for as many bytes");
        match &mut frame.memory {
            // SAFETY: the frame has room for the bytes. Nobody had a view of it when it was taken, and nobody else was given it
            // since.
            Memory::Region { .. } => unsafe {
                start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), len);
            },
            Memory::Allocator(own) => {
                own.extend_from_slice(bytes);
                start = NonNull::from(&own[..]).cast();
            }
        }
        let id = frame.id;
        // SAFETY: the bytes were written just now. They are not written to, or given to anybody else, before the frame is dropped,
        // which the view keeps from that, nor do they move with it.
        (unsafe { View::from_raw(start, len, Arc::new(frame)) }, id)
    }
}

impl<P> fmt::Debug for Slabs<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slabs({} blocks in {} slabs)", self.occupied, self.resident)
    }
}
