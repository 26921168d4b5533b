//! The heads of many lists, in an arena.
//!
//! ```text
//! head := levels u32, entries u32, a link for each level
//! ```
//! A head is never made higher: a list that grows out of its levels gets another head, and readers go on with either.
//!
//! Thread safety: one thread makes them; any thread looks at them, by places it got by an acquiring load. The number
//! of entries is the writer's.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::budget::Budget;
use crate::memtable::arena::{Arena, Kind, Pen, Place};
use crate::memtable::sync::{AtomicU32, AtomicU64, Ordering, Witness};

const ALIGN: usize = 16;

#[repr(C)]
struct Header {
    levels: u32,
    entries: AtomicU32,
    witness: Witness,
}

/// All heads.
pub(super) struct Heads {
    arena: Arena,
}

/// One of them.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    header: &'a Header,
    pub(super) links: &'a [AtomicU64],
}

impl Head<'_> {
    /// How many entries the list has, and that it gets one more.
    pub(super) fn count_one(self) -> u32 {
        let count = self.header.entries.load(Ordering::Relaxed);
        self.header.entries.store(count.saturating_add(1), Ordering::Relaxed);
        count
    }
}

impl Heads {
    /// None so far, and the part for who makes them. It owns the memory.
    pub(super) fn new(budget: &Arc<Budget>) -> (Self, Pen) {
        (Self { arena: Arena::new() }, Pen::new(budget))
    }

    /// Bytes they take.
    pub(super) fn allocated(&self) -> usize {
        self.arena.allocated()
    }

    /// Makes the head of a list of so many entries.
    pub(super) fn add(&self, pen: &mut Pen, entries: u32, links: &[u64]) -> Place {
        let len = size_of::<Header>() + size_of::<AtomicU64>() * links.len();
        let (place, start) = self.arena.allocate(pen, Kind::Head, len, ALIGN);
        let levels = links.len() as u32;
        let header =
            Header { levels, entries: AtomicU32::new(entries), witness: Witness::written() };
        // SAFETY: the piece has room for the header and the links, is aligned for both, and is not yet shared.
        unsafe {
            start.cast::<Header>().write(header);
            for (level, &link) in links.iter().enumerate() {
                links_behind(start).add(level).write(AtomicU64::new(link));
            }
        }
        place
    }

    /// The head at `place`.
    ///
    /// # Safety
    /// The place was given by [`add`](Self::add), and reached this thread through a release store and an acquire
    /// load; the pen is alive as long as what is given.
    #[inline]
    pub(super) unsafe fn at(&self, place: Place) -> Head<'_> {
        // SAFETY: as the caller promises; a head has a header and behind it as many links as that says.
        unsafe {
            let start = self.arena.resolve(place);
            let header = start.cast::<Header>().as_ref();
            header.witness.read();
            let links =
                std::slice::from_raw_parts(links_behind(start).as_ptr(), header.levels as usize);
            Head { header, links }
        }
    }
}

/// Where the links of the head at `start` lie.
///
/// # Safety
/// There is a header at `start`, or room for one.
#[inline]
unsafe fn links_behind(start: NonNull<u8>) -> NonNull<AtomicU64> {
    // SAFETY: as the caller promises.
    unsafe { start.add(size_of::<Header>()).cast() }
}
