//! Slabs: the memory of cached blocks, which all threads share.
//!
//! Memory is taken from the system in regions, of which each has a number of slabs. A slab is divided into a number of equal frames, of which each holds one
//! block: no more than a 15th of a frame is empty for blocks of 1 to 8 KiB, a fifth for the longest. When the last block of a slab is gone, the system has its memory
//! back. (Slabs are Bonwick's, 1994; here they are not for objects of one type but for blocks of about one length.)
//!
//! What all blocks *count for* is at least the memory of the slabs they fill: a slab's bytes are shared among its frames, none is left over.
//!
//! Each frame knows what its block is, a *place*; so a hand that goes round over all frames finds the blocks to evict, one slab after the other.
//!
//! Thread safety: [`Slabs`] is for one thread at a time, behind a lock. Frames may be dropped by any thread at any time: they are put on a list, from which
//! [`Slabs::reclaim`] takes them back.

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
/// The lengths of blocks are rounded up to a multiple of this, and it is the smallest frame.
pub(super) const SMALLEST: usize = 256;
/// The largest frame. A larger block is left to the allocator.
const LARGEST: usize = SLAB / 4;
/// Frames begin at a multiple of this: what a processor's cache reads at once.
const LINE: usize = 64;
/// How many slabs are looked at for one that can be left.
const EMPTIEST: usize = 8;
/// How many blocks without a frame are counted together, as if they were in a slab.
const STRAYS: usize = 32;
/// So many dropped frames find room on the list without asking the allocator.
const MOST_TAKEN_BACK: usize = 1024;
/// So many slabs that were left keep their memory, lest one comes and goes with each block.
const KEPT: usize = 2;

/// What a block costs beside its bytes, in bytes: its view in a box, the frame that owns it, and its place, as an allocator gives them.
pub(super) const OVERHEAD: u64 = 48 + 64 + 36;

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

/// A slab: for frames of one kind, until all are free again.
struct Slab<P> {
    /// Its region, and where it begins in it; none if its blocks are with the allocator.
    home: Option<(Arc<Region>, usize)>,
    kind: Kind,
    frames: Vec<Option<Occupied<P>>>,
    free: Vec<u32>,
}

/// How many frames a slab is divided into; [`STRAY`] if it has no memory for them.
type Kind = usize;

const STRAY: Kind = 0;

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
    /// Those with a free frame.
    partial: BTreeMap<Kind, BTreeSet<u32>>,
    /// How many slabs have memory.
    resident: usize,
    /// The frame that the hand looks at next.
    hand: FrameId,
    occupied: usize,
    /// What all blocks count for, and of that what is with the allocator.
    live: u64,
    strayed: u64,
    dropped: Dropped,
    /// What was on that list, while it is taken back; empty otherwise.
    taken_back: Vec<FrameId>,
}

/// A frame that is not filled yet.
pub(super) struct Blank {
    frame: Frame,
    start: NonNull<u8>,
    len: usize,
}

/// Which slabs a block of `len` bytes is in.
fn kind_for(len: usize) -> Kind {
    let step = (len.max(1).next_power_of_two() / 32).max(SMALLEST);
    let rounded = len.max(1).next_multiple_of(step);
    if rounded > LARGEST { STRAY } else { SLAB / rounded }
}

/// What a block of `len` bytes counts for.
pub(super) fn weight(len: usize) -> u64 {
    let kind = kind_for(len);
    let bytes = if kind == STRAY { len } else { SLAB.div_ceil(kind) };
    bytes as u64 + OVERHEAD
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
            taken_back: Vec::new(),
        }
    }

    /// What all blocks count for, those included that only readers have.
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// Bytes of memory that blocks and slabs take.
    pub(super) fn memory(&self) -> u64 {
        let beside = self.occupied as u64 * OVERHEAD;
        (self.resident * SLAB) as u64 + self.strayed + beside
    }

    /// How much more memory slabs may take than their blocks count for: each kind has one that is not full.
    pub(super) fn slack(&self) -> u64 {
        let kinds = self.partial.len() - usize::from(self.partial.contains_key(&STRAY));
        (kinds * SLAB) as u64
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self) -> usize {
        self.occupied
    }

    /// A frame for `len` bytes of the block at `place`, the nearest one behind the hand. None if the system has no memory.
    pub(super) fn take(&mut self, len: usize, place: P) -> Option<Blank> {
        let kind = kind_for(len);
        let nearest = self.behind_the_hand(kind).next();
        let number = nearest.map_or_else(|| self.add(kind), Some)?;
        Some(self.take_from(number, kind, len, place))
    }

    /// The same for a block that is now in slab `own`: in another one. None if there is no such frame.
    pub(super) fn take_elsewhere(&mut self, own: u32, len: usize, place: P) -> Option<Blank> {
        let kind = kind_for(len);
        let number = self.behind_the_hand(kind).find(|&number| number != own)?;
        Some(self.take_from(number, kind, len, place))
    }

    fn take_from(&mut self, number: u32, kind: Kind, len: usize, place: P) -> Blank {
        let slab = &mut self.slabs[number as usize];
        let frame = slab.free.pop().expect("the slab has a free frame");
        let bytes = weight(len);
        slab.frames[frame as usize] = Some(Occupied { place, bytes });
        let is_full = slab.free.is_empty();
        let (memory, start) = match &slab.home {
            Some((region, offset)) => {
                let size = SLAB / kind / LINE * LINE;
                // SAFETY: the frame lies in the slab, and that in the region.
                let start = unsafe { region.start.add(offset + frame as usize * size) };
                (Memory::Region { _kept: Arc::clone(region) }, start)
            }
            None => (Memory::Allocator(Vec::new()), NonNull::dangling()),
        };
        if is_full {
            self.forget_partial(kind, number);
        }
        self.occupied += 1;
        self.live += bytes;
        self.strayed += if kind == STRAY { len as u64 } else { 0 };
        let id = FrameId { slab: number, frame };
        Blank { frame: Frame { id, memory, dropped: Arc::clone(&self.dropped) }, start, len }
    }

    /// Some slabs that have the fewest blocks, of kinds of which others have room for those: the emptiest one first. Cost: a look at each slab that is not full.
    pub(super) fn emptiest(&self) -> Vec<u32> {
        let slab = |number: &u32| &self.slabs[*number as usize];
        let free = |numbers: &BTreeSet<u32>| -> usize {
            numbers.iter().map(|number| slab(number).free.len()).sum()
        };
        let kinds = self.partial.range(STRAY + 1..);
        let with_room = kinds.filter(|&(&kind, numbers)| free(numbers) >= kind);
        let mut numbers: Vec<_> = with_room.flat_map(|(_, numbers)| numbers).copied().collect();
        numbers.sort_by_cached_key(|number| slab(number).occupied());
        numbers.truncate(EMPTIEST);
        numbers
    }

    /// The next block that the hand comes to, and its place; none if there is no block.
    pub(super) fn next(&mut self) -> Option<(FrameId, &P)> {
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

    /// The blocks in a slab, and their places.
    pub(super) fn blocks_in(&self, number: u32) -> Vec<(FrameId, P)>
    where
        P: Clone,
    {
        let frames = self.slabs[number as usize].frames.iter().zip(0..);
        let occupied = frames.filter_map(|(frame, n)| Some((n, frame.as_ref()?.place.clone())));
        occupied.map(|(frame, place)| (FrameId { slab: number, frame }, place)).collect()
    }

    /// Gives back what is kept without blocks.
    pub(super) fn release_kept(&mut self) {
        while let Some(number) = self.kept.pop_first() {
            self.discard(number);
        }
    }

    /// The slabs with a free frame, the nearest ones behind the hand first.
    fn behind_the_hand(&self, kind: Kind) -> impl Iterator<Item = u32> {
        let partial = self.partial.get(&kind);
        let (behind, ahead) = (..=self.hand.slab, self.hand.slab + 1..);
        let behind = partial.into_iter().flat_map(move |all| all.range(behind).rev());
        let ahead = partial.into_iter().flat_map(move |all| all.range(ahead.clone()).rev());
        behind.chain(ahead).copied()
    }

    /// A slab without blocks, for frames of `kind`. None if the system has no memory.
    fn add(&mut self, kind: Kind) -> Option<u32> {
        let number = if kind == STRAY {
            self.vacant_strays.pop().unwrap_or_else(|| self.push(None))
        } else if let Some(number) = self.kept.pop_first() {
            number
        } else {
            let vacant = self.vacant.pop_first();
            let number = vacant.map_or_else(|| self.add_region(), Some)?;
            self.resident += 1;
            number
        };
        let count = if kind == STRAY { STRAYS } else { kind };
        let slab = &mut self.slabs[number as usize];
        slab.kind = kind;
        slab.frames.resize_with(count, || None);
        slab.free.extend((0..count as u32).rev());
        self.partial.entry(kind).or_default().insert(number);
        Some(number)
    }

    /// Gets slabs from the system; gives the first one, and the others are vacant.
    fn add_region(&mut self) -> Option<u32> {
        let mut pages = Pages::try_new(SLABS_IN_REGION * SLAB)?;
        let start = pages.start();
        let region = Arc::new(Region { pages, start });
        let numbers =
            (0..SLABS_IN_REGION).map(|n| self.push(Some((Arc::clone(&region), n * SLAB))));
        let numbers: Vec<_> = numbers.collect();
        self.vacant.extend(&numbers[1..]);
        Some(numbers[0])
    }

    fn push(&mut self, home: Option<(Arc<Region>, usize)>) -> u32 {
        self.slabs.push(Slab { home, kind: STRAY, frames: Vec::new(), free: Vec::new() });
        self.slabs.len() as u32 - 1
    }

    /// Takes back the frames that were dropped.
    pub(super) fn reclaim(&mut self) {
        let mut ids = std::mem::take(&mut self.taken_back);
        std::mem::swap(&mut ids, &mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner));
        ids.drain(..).for_each(|id| self.free(id));
        ids.shrink_to(MOST_TAKEN_BACK);
        self.taken_back = ids;
    }

    fn free(&mut self, id: FrameId) {
        let slab = &mut self.slabs[id.slab as usize];
        let kind = slab.kind;
        let Some(Occupied { bytes, .. }) = slab.frames[id.frame as usize].take() else {
            unreachable!("a frame is dropped once")
        };
        slab.free.push(id.frame);
        self.occupied -= 1;
        self.live -= bytes;
        self.strayed -= if kind == STRAY { bytes - OVERHEAD } else { 0 };
        if slab.occupied() > 0 {
            self.partial.entry(kind).or_default().insert(id.slab);
            return;
        }
        (slab.frames, slab.free) = (Vec::new(), Vec::new());
        self.forget_partial(kind, id.slab);
        if kind == STRAY {
            self.vacant_strays.push(id.slab);
        } else if self.kept.len() < KEPT {
            self.kept.insert(id.slab);
        } else {
            self.discard(id.slab);
        }
    }

    /// Notes that a slab has no free frame, or no frames.
    fn forget_partial(&mut self, kind: Kind, number: u32) {
        if let Some(partial) = self.partial.get_mut(&kind) {
            partial.remove(&number);
            if partial.is_empty() {
                self.partial.remove(&kind);
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

impl<P> Drop for Slabs<P> {
    /// A region stays while a reader has a block in it: so what is left of it is given back here.
    fn drop(&mut self) {
        self.reclaim();
        self.release_kept();
    }
}

impl Blank {
    /// Has `bytes` in the frame, which are as many as it was taken for. None if the allocator has no memory for a block too large for slabs.
    pub(super) fn fill(self, bytes: &[u8]) -> Option<(View, FrameId)> {
        let Self { mut frame, mut start, len } = self;
        assert_eq!(bytes.len(), len, "the frame is for as many bytes");
        match &mut frame.memory {
            // SAFETY: the frame has room for the bytes. Nobody had a view of it when it was taken, and nobody else was given it
            // since.
            Memory::Region { .. } => unsafe {
                start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), len);
            },
            Memory::Allocator(own) => {
                own.try_reserve_exact(len).ok()?;
                own.extend_from_slice(bytes);
                start = NonNull::from(&own[..]).cast();
            }
        }
        let id = frame.id;
        // SAFETY: the bytes were written just now. They are not written to, or given to anybody else, before the frame is dropped,
        // which the view keeps from that, nor do they move with it.
        Some((unsafe { View::from_raw(start, len, Arc::new(frame)) }, id))
    }
}

impl<P> fmt::Debug for Slabs<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slabs({} blocks in {} slabs)", self.occupied, self.resident)
    }
}
