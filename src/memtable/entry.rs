//! How an entry lies in a memtable's arena.
//!
//! ```text
//! entry := trailer u64, key length u32 (its three top bits are flags), value length u32, key, value, links
//! links := nothing, or older u32, or older u32, jump u32, rank u32
//! ```
//! Aligned to 16. A value too large for a chunk of the arena is replaced by its address.
//!
//! *Older* is the place of the next older entry of the same chain: as a rule, of the same key. Entries that have many
//! older ones also have a *jump*, far down the chain, so that one as of an earlier time is found in a logarithmic
//! number of steps (the jump pointers of Myers, *An applicative random-access stack*, 1983). Their *rank* counts
//! those that have a jump.
//!
//! Thread safety: an entry is written before its place is known to anyone, and never changed.

use std::ptr::NonNull;

use super::arena::{Arena, Kind, Pen, Place};
use crate::base::Trailer;

const HEADER: usize = 16;
const MOST_LINKS: usize = 12;
const ALIGN: usize = 16;
const OUT_OF_LINE: u32 = 1 << 31;
const HAS_OLDER: u32 = 1 << 30;
const HAS_JUMP: u32 = 1 << 29;
const FLAGS: u32 = OUT_OF_LINE | HAS_OLDER | HAS_JUMP;
/// Values above this many bytes have memory of their own.
pub(super) const LARGE: usize = Arena::largest() / 4;

/// The entries that come behind a new one in its chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Links {
    None,
    Older(Place),
    Jump { older: Place, jump: Place, rank: u32 },
}

/// An entry of an arena that is borrowed.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    start: NonNull<u8>,
    arena: std::marker::PhantomData<&'a Arena>,
}

/// An entry that nobody knows yet. Its links come last: the memory where they are looked up is on its way while
/// the rest is written.
pub(super) struct Draft {
    place: Place,
    start: NonNull<u8>,
    key_len_and_flags: u32,
    links_at: usize,
}

impl Links {
    /// Those of an entry that comes in front of the one at `older`, with a jump.
    pub(super) fn with_jump(arena: &Arena, older: Place) -> Self {
        // The last one that has no jump counts as number 0, and as its own jump.
        let jump_and_rank = |place| match entry(arena, place).links() {
            Self::Jump { jump, rank, .. } => (jump, rank),
            _ => (place, 0),
        };
        let (first, rank) = jump_and_rank(older);
        let (second, first_rank) = jump_and_rank(first);
        let (_, second_rank) = jump_and_rank(second);
        let even = rank - first_rank == first_rank - second_rank;
        Self::Jump { older, jump: if even { second } else { older }, rank: rank + 1 }
    }

    /// The bytes they take.
    #[inline]
    fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Older(_) => 4,
            Self::Jump { .. } => MOST_LINKS,
        }
    }

    fn flags(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Older(_) => HAS_OLDER,
            Self::Jump { .. } => HAS_OLDER | HAS_JUMP,
        }
    }
}

impl Draft {
    /// Writes all of an entry but its links, at the end of the arena.
    pub(super) fn new(
        arena: &Arena,
        pen: &mut Pen,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
    ) -> Self {
        let large = value.len() > LARGE;
        let kept = large.then(|| arena.keep_large(pen, value));
        let flags = if large { OUT_OF_LINE } else { 0 };
        let links_at = links_at(flags, key.len(), value.len());
        let (place, start) = arena.allocate(pen, Kind::Entry, links_at + MOST_LINKS, ALIGN);
        let key_len_and_flags = key.len() as u32 | flags;
        // SAFETY: the piece has room for all that is written, is aligned to 16, and is not yet shared.
        unsafe {
            let at = start.as_ptr();
            at.cast::<u64>().write(trailer.bits());
            at.add(8).cast::<u32>().write(key_len_and_flags);
            at.add(12).cast::<u32>().write(value.len() as u32);
            at.add(HEADER).copy_from_nonoverlapping(key.as_ptr(), key.len());
            let value_at = at.add(HEADER + key.len());
            match kept {
                Some(kept) => value_at.cast::<NonNull<u8>>().write_unaligned(kept),
                None => value_at.copy_from_nonoverlapping(value.as_ptr(), value.len()),
            }
        }
        Self { place, start, key_len_and_flags, links_at }
    }

    /// Adds the links, with nothing given out by the arena since. Gives the entry's place.
    pub(super) fn finish(self, pen: &mut Pen, links: Links) -> Place {
        // SAFETY: there is room for the longest links, and the entry is not yet shared.
        unsafe {
            let link = self.start.add(self.links_at).as_ptr().cast::<u32>();
            match links {
                Links::None => {}
                Links::Older(older) => link.write_unaligned(older),
                Links::Jump { older, jump, rank } => {
                    link.cast::<[u32; 3]>().write_unaligned([older, jump, rank]);
                }
            }
            self.start.add(8).cast::<u32>().write(self.key_len_and_flags | links.flags());
        }
        let room = self.links_at + MOST_LINKS;
        Arena::trim(pen, Kind::Entry, room, self.links_at + links.len());
        self.place
    }
}

impl<'a> Entry<'a> {
    /// The entry at `place`.
    ///
    /// # Safety
    /// The place was given by [`Draft::finish`] with this arena, and reached this thread through a
    /// release store and an acquire load.
    #[inline]
    pub(super) unsafe fn at(arena: &'a Arena, place: Place) -> Self {
        // SAFETY: as the caller promises.
        Self { start: unsafe { arena.resolve(place) }, arena: std::marker::PhantomData }
    }

    /// Its first byte.
    #[inline]
    pub(super) fn start(self) -> *const u8 {
        self.start.as_ptr()
    }

    #[inline]
    pub(super) fn trailer(self) -> Trailer {
        // SAFETY: an entry starts with its trailer, aligned.
        let bits = unsafe { self.start.cast::<u64>().read() };
        Trailer::from_bits(bits).expect("the memtable stores what it was given")
    }

    #[inline]
    fn key_len_and_flags(self) -> u32 {
        // SAFETY: the second field of the header, aligned.
        unsafe { self.start.add(8).cast::<u32>().read() }
    }

    #[inline]
    fn value_len(self) -> usize {
        // SAFETY: the last field of the header, aligned.
        unsafe { self.start.add(12).cast::<u32>().read() as usize }
    }

    #[inline]
    fn key_len(self) -> usize {
        (self.key_len_and_flags() & !FLAGS) as usize
    }

    /// What comes behind it in its chain.
    #[inline]
    pub(super) fn links(self) -> Links {
        let flags = self.key_len_and_flags();
        let at = links_at(flags, self.key_len(), self.value_len());
        let link = self.start.as_ptr().wrapping_add(at).cast::<u32>();
        // SAFETY: the flags say which links lie behind the value.
        unsafe {
            if flags & HAS_OLDER == 0 {
                Links::None
            } else if flags & HAS_JUMP == 0 {
                Links::Older(link.read_unaligned())
            } else {
                let [older, jump, rank] = link.cast::<[u32; 3]>().read_unaligned();
                Links::Jump { older, jump, rank }
            }
        }
    }

    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        // SAFETY: the key lies behind the header, is that long, and never changes.
        unsafe { std::slice::from_raw_parts(self.start.add(HEADER).as_ptr(), self.key_len()) }
    }

    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let key = self.key();
        let len = self.value_len();
        // SAFETY: the value, or its address, lies behind the key, and the arena keeps both unchanged as long
        // as it lives.
        unsafe {
            let at = key.as_ptr().add(key.len());
            if self.key_len_and_flags() & OUT_OF_LINE == 0 {
                return std::slice::from_raw_parts(at, len);
            }
            let kept = at.cast::<NonNull<u8>>().read_unaligned();
            std::slice::from_raw_parts(kept.as_ptr(), len)
        }
    }

    /// The bytes it takes in the arena.
    #[inline]
    pub(super) fn len(self) -> usize {
        links_at(self.key_len_and_flags(), self.key_len(), self.value_len()) + self.links().len()
    }
}

/// Where the links of an entry lie.
#[inline]
fn links_at(flags: u32, key: usize, value: usize) -> usize {
    HEADER + key + if flags & OUT_OF_LINE == 0 { value } else { size_of::<NonNull<u8>>() }
}

/// The entry at a place that a chain names.
#[inline]
fn entry(arena: &Arena, place: Place) -> Entry<'_> {
    // SAFETY: links are places of entries that were written before the entry they are in, and so reach whoever
    // that reached.
    unsafe { Entry::at(arena, place) }
}

/// The newest entry of `key` that is not before `trailer`, in the chain that begins with `newest`.
#[inline]
pub(super) fn find_in_chain<'a>(
    arena: &'a Arena,
    newest: Entry<'a>,
    key: &[u8],
    trailer: Trailer,
) -> Option<Entry<'a>> {
    let mut here = newest;
    loop {
        let too_new = here.trailer() > trailer;
        if !too_new && here.key() == key {
            return Some(here);
        }
        here = match here.links() {
            Links::None => return None,
            Links::Older(older) => entry(arena, older),
            Links::Jump { older, jump, .. } => Some(entry(arena, jump))
                .filter(|jump| too_new && jump.trailer() > trailer)
                .unwrap_or_else(|| entry(arena, older)),
        };
    }
}
