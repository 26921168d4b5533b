//! How an entry lies in a memtable's arena.
//!
//! ```text
//! entry := trailer u64, key length u32 (its eight top bits are flags), value length u32, tower, key, value, links
//! tower := a word for each level of the list that the entry is in; nothing if it is in none
//! links := nothing, or older u32, or older u32, jump u32, rank u32
//! ```
//! Aligned to 16. A value too large for a chunk of the arena is replaced by its address. The flags are: value out of line,
//! older, jump, and five bits with the number of words in the tower, which [`list`](super::list) fills.
//!
//! *Older* is the place of the next older entry of the same chain: as a rule, of the same key. Entries that have many
//! older ones also have a *jump*, far down the chain, so that one as of an earlier time is found in a logarithmic
//! number of steps (the jump pointers of Myers, *An applicative random-access stack*, 1983). Their *rank* counts
//! those that have a jump.
//!
//! Thread safety: an entry is written before its place is known to anyone, and never changed but for its tower, which is
//! made of atomics.

use std::ptr::NonNull;

use super::arena::{Arena, Kind, Pen, Place};
use super::sync::{AtomicU64, Witness};
use crate::base::Trailer;

const HEADER: usize = 16 + size_of::<Witness>();
const MOST_LINKS: usize = 12;
const ALIGN: usize = 16;
const OUT_OF_LINE: u32 = 1 << 31;
const HAS_OLDER: u32 = 1 << 30;
const HAS_JUMP: u32 = 1 << 29;
/// Where the number of words in the tower stands.
const HEIGHT_SHIFT: u32 = 24;
const HEIGHT_BITS: u32 = 5;
const KEY_LEN: u32 = (1 << HEIGHT_SHIFT) - 1;
/// The most words a tower may have.
pub(super) const MAX_HEIGHT: usize = (1 << HEIGHT_BITS) - 1;
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

// SAFETY: it is a reference to bytes that do not change, and to atomics.
unsafe impl Send for Entry<'_> {}

/// What an entry is to say.
#[derive(Clone, Copy)]
pub(super) struct New<'a> {
    pub(super) key: &'a [u8],
    pub(super) trailer: Trailer,
    pub(super) value: &'a [u8],
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
    /// Those of an entry that comes in front of the one at `older`, if there is one; with a jump if that has `many` others
    /// behind it.
    #[inline]
    pub(super) fn in_front_of(arena: &Arena, older: Option<Place>, many: bool) -> Self {
        match older {
            None => Self::None,
            Some(older) if many => Self::with_jump(arena, older),
            Some(older) => Self::Older(older),
        }
    }

    /// Those of an entry that comes in front of the one at `older`, with a jump.
    fn with_jump(arena: &Arena, older: Place) -> Self {
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
    /// Writes all of an entry but its links, at the end of the arena. `tower` are the words of its tower.
    #[inline]
    pub(super) fn new(arena: &Arena, pen: &mut Pen, tower: &[u64], new: New<'_>) -> Self {
        let New { key, trailer, value } = new;
        debug_assert!(tower.len() <= MAX_HEIGHT && key.len() <= KEY_LEN as usize);
        let large = value.len() > LARGE;
        let kept = large.then(|| arena.keep_large(pen, value));
        let flags = if large { OUT_OF_LINE } else { 0 } | (tower.len() as u32) << HEIGHT_SHIFT;
        let links_at = links_at(flags, key.len(), value.len());
        let (place, start) = arena.allocate(pen, Kind::Entry, links_at + MOST_LINKS, ALIGN);
        let key_len_and_flags = key.len() as u32 | flags;
        // SAFETY: the piece has room for all that is written, is aligned to 16, and is not yet shared.
        unsafe {
            let at = start.as_ptr();
            at.cast::<u64>().write(trailer.bits());
            at.add(8).cast::<u32>().write(key_len_and_flags);
            at.add(12).cast::<u32>().write(value.len() as u32);
            let words = at.add(HEADER).cast::<AtomicU64>();
            for (level, &word) in tower.iter().enumerate() {
                words.add(level).write(AtomicU64::new(word));
            }
            let key_at = words.add(tower.len()).cast::<u8>();
            key_at.copy_from_nonoverlapping(key.as_ptr(), key.len());
            let value_at = key_at.add(key.len());
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
            witness(self.start).write(Witness::written());
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
        // SAFETY: as the caller promises. An entry has a witness.
        unsafe {
            let start = arena.resolve(place);
            witness(start).as_ref().read();
            Self { start, arena: std::marker::PhantomData }
        }
    }

    /// The same entry, for longer than is known of its arena.
    ///
    /// # Safety
    /// It is not used after the arena.
    #[inline]
    pub(super) unsafe fn for_long(self) -> Entry<'static> {
        Entry { start: self.start, arena: std::marker::PhantomData }
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
        (self.key_len_and_flags() & KEY_LEN) as usize
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
        let flags = self.key_len_and_flags();
        let len = (flags & KEY_LEN) as usize;
        // SAFETY: the key lies behind the tower, is that long, and never changes.
        unsafe { std::slice::from_raw_parts(self.start.add(key_at(flags)).as_ptr(), len) }
    }

    /// The words that lists go by.
    #[inline]
    pub(super) fn tower(self) -> &'a [AtomicU64] {
        let height = height(self.key_len_and_flags());
        // SAFETY: behind the header there are so many, aligned, and they live as long as the entry.
        unsafe { std::slice::from_raw_parts(self.start.add(HEADER).cast().as_ptr(), height) }
    }

    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let flags = self.key_len_and_flags();
        let len = self.value_len();
        // SAFETY: the value, or its address, lies behind the key, and the arena keeps both unchanged as long
        // as it lives.
        unsafe {
            let at = self.start.add(key_at(flags) + (flags & KEY_LEN) as usize).as_ptr();
            if flags & OUT_OF_LINE == 0 {
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

#[inline]
fn height(flags: u32) -> usize {
    (flags >> HEIGHT_SHIFT) as usize & MAX_HEIGHT
}

/// Where the key of an entry lies.
#[inline]
fn key_at(flags: u32) -> usize {
    HEADER + height(flags) * size_of::<AtomicU64>()
}

/// Where the witness of the entry at `start` stands.
#[inline]
fn witness(start: NonNull<u8>) -> NonNull<Witness> {
    // SAFETY: every entry has a whole header, whose end it is.
    unsafe { start.add(HEADER - size_of::<Witness>()).cast() }
}

/// Where the links of an entry lie.
#[inline]
fn links_at(flags: u32, key: usize, value: usize) -> usize {
    key_at(flags) + key + if flags & OUT_OF_LINE == 0 { value } else { size_of::<NonNull<u8>>() }
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
