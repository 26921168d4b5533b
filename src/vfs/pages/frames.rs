//! The memory of a page cache: frames of one block each, and who may touch which.
//!
//! All frames lie in one allocation, which is zeroed by the system when a frame is first touched. A frame has
//! a *word*, whose parts say what it is:
//!
//! ```text
//!            take_free                publish                    set_dirty
//!    free ---------------> reserved ----------> clean <------------------------> dirty
//!     ^ ^                   |    ^               | |         clear_dirty           |
//!     | +----- give_back ---+    +---- take -----+ |                               |
//!     +----------------------- invalidate ---------+-------------------------------+
//!
//!    word:  pins (bits 0..32) | VALID | DIRTY | BUSY | WAITED | RESERVED
//!           free: none; reserved: RESERVED; clean: VALID; dirty: VALID and DIRTY
//! ```
//!
//! - *Reserved*: a [`Blank`] owns the bytes alone, to read a page into them or to fill them.
//! - *Pinned*: a [`Pin`] or a view counts in the word. What it pinned is not taken for another page.
//! - *Busy*: a [`Latch`] is held, of which a frame has one at a time: by who changes bytes of the page, or by
//!   who writes it back and must not see it change. A page is "writing" while it is dirty and busy. Readers do
//!   not look at it.
//! - *Use*: how often the page was used of late, 0 to 3, for the policy; outside the word, since it may be wrong.
//!
//! Thread safety: every call may be made by any thread. Pinning is a guess that is checked: count first, then
//! look whether the frame is valid and has the key; a frame is taken by a compare-and-swap that fails if
//! anybody counts. A pin counted after that finds the frame not valid, or with another key, and is given up
//! without looking at the bytes.
//!
//! Two laws of callers are relied upon, as in mapped files: the bytes under a live view are not changed, and
//! no two calls write, or write and read, the same bytes of a file at the same time. Different bytes of a page
//! may be read, viewed and written at the same time, so that nothing here makes a reference to bytes that
//! others may write: such bytes are copied by pointer.

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{
    AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, PoisonError};

use super::Key;
use crate::base::View;
use crate::base::prefetch::prefetch_at;
use crate::error::{Error, Result};
use crate::planted::{Bug, planted};
use crate::sync::{Condvar, Mutex};

const ONE_PIN: u64 = 1;
const PINS: u64 = 0xffff_ffff;
const VALID: u64 = 1 << 32;
const DIRTY: u64 = 1 << 33;
const BUSY: u64 = 1 << 34;
/// Somebody waits for the frame to be no longer busy.
const WAITED: u64 = 1 << 35;
const RESERVED: u64 = 1 << 36;

/// The highest use that is counted.
const MAX_USE: u8 = 3;
/// What every frame's address is at least a multiple of, in bytes.
const ADDRESS: usize = 4096;
/// Views share the memory by so many counts, so that threads seldom change the same one.
const ANCHORS: usize = 16;
/// How often a busy latch is looked at before sleeping: longer than copying a few hundred bytes takes.
const SPINS: usize = 64;

/// The frames of a cache.
#[derive(Debug)]
pub(super) struct Frames {
    shared: Arc<Shared>,
    anchors: [Arc<Anchor>; ANCHORS],
    /// The base-2 logarithm of the block size.
    shift: u32,
    sleepers: Mutex<()>,
    released: Condvar,
}

/// What is known of a frame, on one line of the processor's cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Meta {
    word: AtomicU64,
    file: AtomicU64,
    page: AtomicU64,
    /// The next frame in the same chain of the table, plus 1; 0 ends it.
    next: AtomicU32,
    used: AtomicU8,
}

/// What views keep alive when the cache is gone.
#[derive(Debug)]
struct Shared {
    memory: Memory,
    metas: Box<[Meta]>,
}

/// One of the counts of those who share.
#[derive(Debug)]
#[repr(align(64))]
struct Anchor(Arc<Shared>);

/// The pin of a view.
#[derive(Debug)]
struct Loan {
    anchor: Arc<Anchor>,
    index: u32,
}

impl Drop for Loan {
    #[inline]
    fn drop(&mut self) {
        self.anchor.0.metas[self.index as usize].unpin();
    }
}

impl Meta {
    #[inline]
    fn unpin(&self) {
        let word = self.word.fetch_sub(ONE_PIN, Release);
        debug_assert!(word & PINS > 0);
    }
}

/// The one allocation.
#[derive(Debug)]
struct Memory {
    allocation: NonNull<u8>,
    layout: Layout,
    /// Where the first frame starts.
    start: NonNull<u8>,
}

// SAFETY: the memory is plain bytes, owned by this alone; who may touch which of them when is the matter of
// the words of the frames.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory for `bytes` zeros at a multiple of `align`. The system's zeroed memory is not touched before it
    /// is used, but only if no unusual alignment is asked for: so that is made by asking for more.
    fn zeroed(bytes: usize, align: usize) -> Option<Self> {
        let size = bytes.checked_add(align)?;
        let layout = Layout::from_size_align(size, 1).ok()?;
        // SAFETY: the size is not zero, since the alignment is not.
        let allocation = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        let skipped = allocation.as_ptr().align_offset(align);
        debug_assert!(skipped < align);
        // SAFETY: fewer than `align` bytes are skipped, and so many were allocated beyond `bytes`.
        let start = unsafe { allocation.add(skipped) };
        Some(Self { allocation, layout, start })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `zeroed`, and freed only here.
        unsafe { alloc::dealloc(self.allocation.as_ptr(), self.layout) }
    }
}

/// What came of trying to take a frame.
pub(super) enum Taken<'a> {
    Blank(Blank<'a>),
    /// It has to be written back first.
    Dirty,
    /// Somebody uses it.
    Held,
}

impl Frames {
    /// So many frames of `block` bytes, a power of two; all free.
    pub(super) fn new(block: usize, count: usize) -> Result<Self> {
        let memory = block
            .checked_mul(count)
            .filter(|_| u32::try_from(count).is_ok_and(|count| count < u32::MAX))
            .and_then(|bytes| Memory::zeroed(bytes, block.max(ADDRESS)));
        let Some(memory) = memory else {
            return Err(Error::Invalid(format!(
                "there is no memory for a page cache of {count} pages of {block} bytes: give fewer pages"
            )));
        };
        let metas = (0..count).map(|_| Meta::default()).collect();
        let shared = Arc::new(Shared { memory, metas });
        Ok(Self {
            anchors: std::array::from_fn(|_| Arc::new(Anchor(Arc::clone(&shared)))),
            shared,
            shift: block.trailing_zeros(),
            sleepers: Mutex::new(()),
            released: Condvar::new(),
        })
    }

    #[inline]
    pub(super) fn block(&self) -> usize {
        1 << self.shift
    }

    pub(super) fn count(&self) -> usize {
        self.shared.metas.len()
    }

    /// The bytes of memory that frames of this cache take, each with what is known of it.
    pub(super) fn bytes(&self) -> usize {
        Self::bytes_of(self.block(), self.count())
    }

    /// Those that so many frames would take.
    pub(super) fn bytes_of(block: usize, count: usize) -> usize {
        count.saturating_mul(block + size_of::<Meta>())
    }

    #[inline]
    fn meta(&self, index: u32) -> &Meta {
        &self.shared.metas[index as usize]
    }

    /// Where the bytes of a frame start.
    #[inline]
    fn start(&self, index: u32) -> NonNull<u8> {
        assert!((index as usize) < self.count());
        // SAFETY: there is such a frame, so the place lies inside the allocation.
        unsafe { self.shared.memory.start.add((index as usize) << self.shift) }
    }

    /// The page that a frame holds, or held.
    #[inline]
    pub(super) fn key(&self, index: u32) -> Key {
        let meta = self.meta(index);
        Key { file: meta.file.load(Relaxed), page: meta.page.load(Relaxed) }
    }

    /// The link of a frame's chain in the table.
    #[inline]
    pub(super) fn next(&self, index: u32) -> &AtomicU32 {
        &self.meta(index).next
    }

    /// How often a frame's page was used of late.
    pub(super) fn used(&self, index: u32) -> u8 {
        self.meta(index).used.load(Relaxed)
    }

    pub(super) fn set_used(&self, index: u32, used: u8) {
        self.meta(index).used.store(used, Relaxed);
    }

    /// Pins a frame if it holds the page.
    #[inline]
    pub(super) fn pin(&self, index: u32, key: Key) -> Option<Pin<'_>> {
        let word = self.meta(index).word.fetch_add(ONE_PIN, Acquire);
        let pin = Pin { frames: self, index };
        (word & VALID != 0 && self.key(index) == key).then_some(pin)
    }

    /// Asks the processor for what lies `at` bytes into a frame, whatever it holds.
    #[inline]
    pub(super) fn prefetch(&self, index: u32, at: usize) {
        prefetch_at(self.start(index).as_ptr().wrapping_add(at));
    }

    /// Reserves a free frame; not if an old view or pin of it still lives.
    pub(super) fn take_free(&self, index: u32) -> Option<Blank<'_>> {
        self.reserve(index, 0)
    }

    /// Reserves a frame whose page is clean and that nobody uses.
    pub(super) fn take(&self, index: u32) -> Taken<'_> {
        let word = self.meta(index).word.load(Relaxed);
        if word == VALID | DIRTY && planted(Bug::LoseDirtyPage) {
            return self.reserve(index, word).map_or(Taken::Held, Taken::Blank);
        }
        if word == VALID | DIRTY {
            return Taken::Dirty;
        }
        self.reserve(index, VALID).map_or(Taken::Held, Taken::Blank)
    }

    fn reserve(&self, index: u32, from: u64) -> Option<Blank<'_>> {
        // Acquire: whoever unpinned the frame has done with its bytes.
        let word = &self.meta(index).word;
        word.compare_exchange(from, RESERVED, Acquire, Relaxed).ok()?;
        Some(Blank { frames: self, index })
    }

    /// Makes a frame free whose page is to be forgotten, dirty or not. Pins and views of it stay as they are.
    pub(super) fn invalidate(&self, index: u32) {
        self.meta(index).word.fetch_and(!(VALID | DIRTY), Release);
    }
}

/// The right to fill a frame that holds no page. One that is not published must be given back.
#[derive(Debug)]
pub(super) struct Blank<'a> {
    frames: &'a Frames,
    index: u32,
}

impl<'a> Blank<'a> {
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// All bytes of the frame; what was there before is still there.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the frame lies inside the allocation, whose bytes were initialised with zeros. It is
        // reserved, by this guard alone: nobody else has the right to look at the bytes or to change them.
        unsafe {
            slice::from_raw_parts_mut(self.frames.start(self.index).as_ptr(), self.frames.block())
        }
    }

    /// Lets everybody see the frame as holding this page.
    pub(super) fn publish(self, key: Key, is_dirty: bool) -> Pin<'a> {
        let meta = self.frames.meta(self.index);
        meta.file.store(key.file, Relaxed);
        meta.page.store(key.page, Relaxed);
        meta.used.store(0, Relaxed);
        let state = if is_dirty { VALID | DIRTY } else { VALID };
        // The pins of those who guessed wrong may be counted there, so that nothing is stored.
        meta.word.fetch_add((state + ONE_PIN).wrapping_sub(RESERVED), Release);
        Pin { frames: self.frames, index: self.index }
    }

    /// Makes the frame free.
    pub(super) fn give_back(self) -> u32 {
        self.frames.meta(self.index).word.fetch_sub(RESERVED, Release);
        self.index
    }
}

/// A page that stays in its frame while this lives.
#[derive(Debug)]
pub(super) struct Pin<'a> {
    frames: &'a Frames,
    index: u32,
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frames.meta(self.index).unpin();
    }
}

impl<'a> Pin<'a> {
    /// Counts a use.
    #[inline]
    pub(super) fn touch(&self) {
        let used = &self.frames.meta(self.index).used;
        let count = used.load(Relaxed);
        if count < MAX_USE {
            used.store(count + 1, Relaxed);
        }
    }

    /// Where `len` bytes start, `at` bytes into the page. Panics if they do not lie in it.
    #[inline]
    fn place(&self, at: usize, len: usize) -> NonNull<u8> {
        let block = self.frames.block();
        assert!(at <= block && len <= block - at, "the bytes lie in the page");
        // SAFETY: the place lies in the frame, as was just checked.
        unsafe { self.frames.start(self.index).add(at) }
    }

    /// Fills `buffer` with the bytes `at` bytes into the page.
    #[inline]
    pub(super) fn read(&self, at: usize, buffer: &mut [u8]) {
        let from = self.place(at, buffer.len());
        // SAFETY: the bytes lie in the frame, and those of a buffer of the caller elsewhere. The frame is
        // pinned, so it is not taken for another page; by the law, nobody writes these bytes meanwhile.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), buffer.as_mut_ptr(), buffer.len()) }
    }

    /// Lends `len` bytes that lie `at` bytes into the page; the view takes over the pin.
    #[inline]
    pub(super) fn lend(self, at: usize, len: usize) -> View {
        let start = self.place(at, len);
        let anchor = Arc::clone(&self.frames.anchors[self.index as usize % ANCHORS]);
        let owner = Arc::new(Loan { anchor, index: self.index });
        std::mem::forget(self);
        // SAFETY: the bytes lie in the memory that the loan keeps alive, and are initialised. The frame is
        // pinned by the loan, so it is not taken for another page; by the law, nobody changes viewed bytes.
        unsafe { View::from_raw(start, len, owner) }
    }

    /// The latch of the page, unless it is held.
    pub(super) fn try_latch(self) -> Result<Latch<'a>, Self> {
        let word = self.frames.meta(self.index).word.fetch_or(BUSY, Acquire);
        if word & BUSY == 0 { Ok(Latch { pin: self }) } else { Err(self) }
    }

    /// Waits for the latch of the page.
    #[inline]
    pub(super) fn latch(self) -> Latch<'a> {
        self.try_latch().unwrap_or_else(Self::wait_for_latch)
    }

    #[cold]
    fn wait_for_latch(self) -> Latch<'a> {
        let word = &self.frames.meta(self.index).word;
        for _ in 0..SPINS {
            if word.load(Relaxed) & BUSY == 0 && word.fetch_or(BUSY, Acquire) & BUSY == 0 {
                return Latch { pin: self };
            }
            std::hint::spin_loop();
        }
        // From marking the word until sleeping the lock is held, which whoever finds the mark takes to wake.
        let mut sleepers = self.frames.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        while word.fetch_or(BUSY | WAITED, Acquire) & BUSY != 0 {
            sleepers = self.frames.released.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
        }
        drop(sleepers);
        Latch { pin: self }
    }
}

/// The sole right to change the bytes of a page, or to say whether it is dirty.
#[derive(Debug)]
pub(super) struct Latch<'a> {
    pin: Pin<'a>,
}

impl Latch<'_> {
    fn word(&self) -> &AtomicU64 {
        &self.pin.frames.meta(self.pin.index).word
    }

    pub(super) fn index(&self) -> u32 {
        self.pin.index
    }

    /// Writes `bytes` to `at` bytes into the page.
    #[inline]
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let to = self.pin.place(at, bytes.len());
        // SAFETY: the bytes lie in the frame, which is pinned. The latch keeps other writers away; by the
        // law, nobody reads or views these bytes meanwhile, `bytes` being no view of them either.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
    }

    /// Writes zeros to `range` of the page.
    pub(super) fn zero(&mut self, range: Range<usize>) {
        let to = self.pin.place(range.start, range.len());
        // SAFETY: as in `write`.
        unsafe { ptr::write_bytes(to.as_ptr(), 0, range.len()) }
    }

    /// The whole page.
    pub(super) fn bytes(&self) -> &[u8] {
        let start = self.pin.place(0, self.pin.frames.block());
        // SAFETY: the frame is pinned and initialised. Only who has the latch writes to it, and that is us,
        // who cannot while the latch is borrowed.
        unsafe { slice::from_raw_parts(start.as_ptr(), self.pin.frames.block()) }
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.word().load(Relaxed) & DIRTY != 0
    }

    /// Marks the page dirty; whether it was not.
    #[inline]
    pub(super) fn set_dirty(&self) -> bool {
        !self.is_dirty() && self.word().fetch_or(DIRTY, Relaxed) & DIRTY == 0
    }

    pub(super) fn clear_dirty(&self) {
        self.word().fetch_and(!DIRTY, Relaxed);
    }
}

impl Drop for Latch<'_> {
    #[inline]
    fn drop(&mut self) {
        let word = self.word().fetch_and(!(BUSY | WAITED), Release);
        if word & WAITED != 0 {
            drop(self.pin.frames.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
            self.pin.frames.released.notify_all();
        }
    }
}
