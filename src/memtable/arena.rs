//! Memory that is given out piece by piece, and freed all at once.
//!
//! A piece is named by a [`Place`], which indexes keep in half a word. Memory is taken in chunks of at
//! most 1 MiB (the first ones are smaller, so that a small keyspace stays small). Full ones come from the budget, where
//! those of former memtables wait. Values too large for a chunk get memory of their own.
//!
//! An arena of entries has nothing else in it, and can be walked over in the order they came: behind the last
//! entry of a chunk that was left stands [`END`].
//!
//! Thread safety: one thread allocates, behind a lock that guards the pen; any thread resolves places it
//! got through an acquiring load of something the allocating one released.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::sync::{AtomicPtr, Ordering};
use crate::base::pages::{PAGE, Pages};
use crate::budget::{self, Budget};

/// Places are multiples of this many bytes, and so aligned.
const UNIT: usize = 16;
/// The largest alignment given.
const CHUNK_ALIGN: usize = 64;
/// How many bits a place has: 4096 chunks, 4 GiB.
pub(super) const PLACE_BITS: u32 = 28;
/// A chunk's units are named by this many bits of a place: 1 MiB.
const UNIT_BITS: u32 = 16;
const CHUNK: usize = UNIT << UNIT_BITS;
const _: () = assert!(CHUNK == budget::LARGEST_CHUNK && CHUNK_ALIGN <= PAGE);
const MAX_CHUNKS: usize = 1 << (PLACE_BITS - UNIT_BITS);
/// The size of a kind's first chunk; each next one is twice as large, up to what the budget has for one.
const FIRST_CHUNK: usize = 4 << 10;
/// More chunks than a memtable has that is frozen in time. One that a single batch makes larger, which may be as large as
/// any, has large ones from then on, so that there are enough of them.
const MANY_CHUNKS: usize = 256;

/// What a piece is for. Each kind has chunks of its own, so that what is searched through often lies close
/// together, on few pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(super) enum Kind {
    Entry,
    Segment,
    Leaf,
    Inner,
    Head,
}

const KINDS: usize = 5;

/// What stands where an entry would begin, when the next one is the first of the next chunk. No trailer looks
/// like it.
const END: u64 = u64::MAX;

/// The chunk a kind of piece is taken from.
#[derive(Clone, Copy, Default, Debug)]
struct Current {
    chunk: usize,
    used: usize,
    size: usize,
}

/// Where a piece lies. Place 0 is the first piece given out.
pub(super) type Place = u32;

/// The chunk pointers: a table that is replaced by a larger one when it is full. Old tables are kept until
/// the end, for readers that still look at them.
type Table = [AtomicPtr<u8>];

/// What only the allocating thread may touch. It owns all memory of the arena, by pointers that readers have
/// copies of; it is freed when this is dropped.
#[derive(Debug)]
pub(super) struct Pen {
    tables: Vec<NonNull<Table>>,
    chunks: Vec<Chunk>,
    large: Vec<NonNull<[u8]>>,
    current: [Current; KINDS],
    budget: Arc<Budget>,
}

/// Memory that pieces are given out from.
#[derive(Debug)]
struct Chunk {
    start: NonNull<u8>,
    memory: Memory,
}

/// Whom the memory of a chunk goes back to.
#[derive(Debug)]
enum Memory {
    Allocator(Layout),
    Budget(Pages),
}

impl Chunk {
    /// A chunk of at least `size` bytes.
    fn new(budget: &Budget, size: usize) -> Self {
        if size == budget.chunk {
            let mut memory = budget.take_chunk();
            return Self { start: memory.start(), memory: Memory::Budget(memory) };
        }
        let layout = Layout::from_size_align(size, CHUNK_ALIGN).expect("a valid layout");
        // SAFETY: the layout's size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        Self { start, memory: Memory::Allocator(layout) }
    }

    /// Gives it back.
    ///
    /// # Safety
    /// It is done once, and nobody uses the chunk any more.
    unsafe fn free(self, budget: &Budget) {
        match self.memory {
            // SAFETY: it was allocated with this layout; and as the caller promises.
            Memory::Allocator(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            Memory::Budget(memory) => budget.give_chunk(memory),
        }
    }
}

impl Pen {
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        let (tables, chunks, large) = (Vec::new(), Vec::new(), Vec::new());
        Self { tables, chunks, large, current: Default::default(), budget: Arc::clone(budget) }
    }
}

// SAFETY: the pointers are to memory this value owns, which has no ties to a thread.
unsafe impl Send for Pen {}

impl Drop for Pen {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: it is freed once, here; the arena's owner is going away, so nobody reads it any more.
            unsafe { chunk.free(&self.budget) };
        }
        for &table in &self.tables {
            // SAFETY: it came from a box, and goes back into one once, here; as above.
            drop(unsafe { Box::from_raw(table.as_ptr()) });
        }
        for &large in &self.large {
            // SAFETY: likewise.
            drop(unsafe { Box::from_raw(large.as_ptr()) });
        }
    }
}

/// Resolves places, and counts the memory taken.
#[derive(Debug)]
pub(super) struct Arena {
    /// The first chunk pointer of the latest table.
    table: AtomicPtr<AtomicPtr<u8>>,
    allocated: AtomicUsize,
}

impl Arena {
    pub(super) fn new() -> Self {
        Self { table: AtomicPtr::new(ptr::null_mut()), allocated: AtomicUsize::new(0) }
    }

    /// Bytes taken from the system.
    pub(super) fn allocated(&self) -> usize {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Gives out `len` bytes, at most [`largest`](Self::largest), aligned to `align`, a power of two from 16 to 64.
    pub(super) fn allocate(
        &self,
        pen: &mut Pen,
        kind: Kind,
        len: usize,
        align: usize,
    ) -> (Place, NonNull<u8>) {
        let len = len.next_multiple_of(UNIT);
        debug_assert!(len <= Self::largest() && align <= CHUNK_ALIGN);
        let mut current = pen.current[kind as usize];
        current.used = current.used.next_multiple_of(align);
        let end = if kind == Kind::Entry { UNIT } else { 0 };
        if current.used + len + end > current.size {
            if end > 0 && current.size > 0 {
                let chunk = pen.chunks[current.chunk].start;
                // SAFETY: a unit is kept free behind the entries, aligned for a word, and nobody reads it before
                // an entry of the next chunk is made known.
                unsafe { chunk.add(current.used).cast::<u64>().write(END) };
            }
            current = self.add_chunk(pen, len + end, current.size);
        }
        let chunk = pen.chunks[current.chunk].start;
        let place = ((current.chunk << UNIT_BITS) | (current.used / UNIT)) as Place;
        // SAFETY: `used + len` is at most the chunk's size.
        let piece = unsafe { chunk.add(current.used) };
        current.used += len;
        pen.current[kind as usize] = current;
        (place, piece)
    }

    /// Takes back what is behind the first `len` bytes of the piece of `before` bytes that was given out last.
    pub(super) fn trim(pen: &mut Pen, kind: Kind, before: usize, len: usize) {
        debug_assert!(len <= before);
        let units = before.div_ceil(UNIT) - len.div_ceil(UNIT);
        pen.current[kind as usize].used -= units * UNIT;
    }

    /// The largest piece that is given out.
    pub(super) const fn largest() -> usize {
        CHUNK - UNIT
    }

    /// The place behind the entry at `place`, which takes `len` bytes: of the entry that came next.
    ///
    /// # Safety
    /// As for [`resolve`](Self::resolve); an entry came next, which this thread heard of in the same way.
    pub(super) unsafe fn following(&self, place: Place, len: usize) -> Place {
        let next = place + len.div_ceil(UNIT) as Place;
        // SAFETY: in the same chunk there is either the next entry or `END` behind this one; both begin with a
        // word that has been written, and is never changed.
        let word = unsafe { self.resolve(next).cast::<u64>().read() };
        if word == END { Self::chunk_behind(place) } else { next }
    }

    /// The first place of the chunk behind that of `place`.
    fn chunk_behind(place: Place) -> Place {
        ((place >> UNIT_BITS) + 1) << UNIT_BITS
    }

    /// Keeps a copy of `bytes` that is too large for a piece; it lives as long as the pen.
    pub(super) fn keep_large(&self, pen: &mut Pen, bytes: &[u8]) -> NonNull<u8> {
        self.allocated.fetch_add(bytes.len(), Ordering::Relaxed);
        let copy = NonNull::from(Box::leak(Box::<[u8]>::from(bytes)));
        pen.large.push(copy);
        copy.cast()
    }

    fn add_chunk(&self, pen: &mut Pen, need: usize, before: usize) -> Current {
        let index = pen.chunks.len();
        assert!(index < MAX_CHUNKS, "a memtable is frozen long before it has 4 GiB");
        let most = if index < MANY_CHUNKS { pen.budget.chunk } else { CHUNK };
        let size = (2 * before).clamp(FIRST_CHUNK, most).max(need);
        let chunk = Chunk::new(&pen.budget, size);
        let start = chunk.start.as_ptr();
        pen.chunks.push(chunk);
        self.allocated.fetch_add(size, Ordering::Relaxed);
        match pen.tables.last() {
            Some(table) if index < table.len() => {
                // SAFETY: the table lives as long as the pen, and is only used as atomics.
                let pointers = unsafe { table.as_ref() };
                pointers[index].store(start, Ordering::Release);
            }
            _ => {
                let len = (2 * index).max(16);
                let pointer =
                    |i: usize| pen.chunks.get(i).map_or(ptr::null_mut(), |c| c.start.as_ptr());
                let table: Box<Table> = (0..len).map(|i| AtomicPtr::new(pointer(i))).collect();
                let table = NonNull::from(Box::leak(table));
                pen.tables.push(table);
                self.table.store(table.cast().as_ptr(), Ordering::Release);
            }
        }
        Current { chunk: index, used: 0, size }
    }

    /// The address of a place.
    ///
    /// # Safety
    /// The place was given out by this arena, to this thread or, by release and acquire, to one this
    /// thread heard from; and the arena's pen is alive.
    #[inline]
    pub(super) unsafe fn resolve(&self, place: Place) -> NonNull<u8> {
        let table = self.table.load(Ordering::Acquire);
        let (chunk, unit) = (place as usize >> UNIT_BITS, place as usize & ((1 << UNIT_BITS) - 1));
        // SAFETY: the table was published before the place was given out, is never freed while the pen
        // lives, and has a pointer for every chunk that places name.
        unsafe {
            let chunk = (*table.add(chunk)).load(Ordering::Relaxed);
            NonNull::new_unchecked(chunk.add(unit * UNIT))
        }
    }
}
