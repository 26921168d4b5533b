//! How an entry lies in a memtable's arena.
//!
//! ```text
//! entry := trailer u64, key length u32 (its top bit: the value is out of line), value length u32, key, value
//! ```
//! Aligned to 16. A value too large for a chunk of the arena is replaced by its address.
//!
//! Thread safety: an entry is written before its place is known to anyone, and never changed.

use std::ptr::NonNull;

use super::arena::{Arena, Kind, Pen, Place};
use crate::base::Trailer;

const HEADER: usize = 16;
const ALIGN: usize = 16;
const OUT_OF_LINE: u32 = 1 << 31;
/// Values above this many bytes have memory of their own.
pub(super) const LARGE: usize = Arena::largest() / 4;

/// An entry of an arena that is borrowed.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    start: NonNull<u8>,
    arena: std::marker::PhantomData<&'a Arena>,
}

impl<'a> Entry<'a> {
    /// Writes an entry; gives its place.
    pub(super) fn write(
        arena: &Arena,
        pen: &mut Pen,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
    ) -> Place {
        let large = value.len() > LARGE;
        let kept = large.then(|| arena.keep_large(pen, value).as_ptr() as usize);
        let value_room = if large { size_of::<usize>() } else { value.len() };
        let (place, start) =
            arena.allocate(pen, Kind::Entry, HEADER + key.len() + value_room, ALIGN);
        let flag = if large { OUT_OF_LINE } else { 0 };
        // SAFETY: the piece has room for all that is written, is aligned to 16, and is not yet shared.
        unsafe {
            let at = start.as_ptr();
            at.cast::<u64>().write(trailer.bits());
            at.add(8).cast::<u32>().write(key.len() as u32 | flag);
            at.add(12).cast::<u32>().write(value.len() as u32);
            at.add(HEADER).copy_from_nonoverlapping(key.as_ptr(), key.len());
            let value_at = at.add(HEADER + key.len());
            match kept {
                Some(address) => value_at.cast::<usize>().write_unaligned(address),
                None => value_at.copy_from_nonoverlapping(value.as_ptr(), value.len()),
            }
        }
        place
    }

    /// The entry at `place`.
    ///
    /// # Safety
    /// The place was given by [`write`](Self::write) with this arena, and reached this thread through a
    /// release store and an acquire load.
    #[inline]
    pub(super) unsafe fn at(arena: &'a Arena, place: Place) -> Self {
        // SAFETY: as the caller promises.
        Self { start: unsafe { arena.resolve(place) }, arena: std::marker::PhantomData }
    }

    #[inline]
    pub(super) fn trailer(self) -> Trailer {
        // SAFETY: an entry starts with its trailer, aligned.
        let bits = unsafe { self.start.cast::<u64>().read() };
        Trailer::from_bits(bits).expect("the memtable stores what it was given")
    }

    #[inline]
    fn key_len_and_flag(self) -> u32 {
        // SAFETY: the second field of the header, aligned.
        unsafe { self.start.add(8).cast::<u32>().read() }
    }

    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        let len = (self.key_len_and_flag() & !OUT_OF_LINE) as usize;
        // SAFETY: the key lies behind the header, is that long, and never changes.
        unsafe { std::slice::from_raw_parts(self.start.add(HEADER).as_ptr(), len) }
    }

    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let key = self.key();
        // SAFETY: the last field of the header; the value, or its address, lies behind the key, and the
        // arena keeps both unchanged as long as it lives.
        unsafe {
            let len = self.start.add(12).cast::<u32>().read() as usize;
            let at = key.as_ptr().add(key.len());
            if self.key_len_and_flag() & OUT_OF_LINE == 0 {
                return std::slice::from_raw_parts(at, len);
            }
            let address = at.cast::<*const u8>().read_unaligned();
            std::slice::from_raw_parts(address, len)
        }
    }
}
