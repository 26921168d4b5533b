//! Memory straight from the system, which has it back as soon as it is not needed.
//!
//! An allocator keeps what is freed, in an arena for each thread, for the next one who asks. That is right for what is small and
//! comes and goes. Of large things that live long, and are freed by other threads than took them, it makes memory that nobody uses and
//! that no budget counts.
//!
//! Thread safety: pages are a plain value, like a vector.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use memmap2::{MmapMut, UncheckedAdvice};

/// What the system gives memory in, in bytes; some have larger pages.
pub(crate) const PAGE: usize = 4096;

/// Memory of its own, at the start of a page, zeros at first. Pages take memory from when they are first written to.
pub(crate) struct Pages(MmapMut);

impl Pages {
    /// `len` bytes, at least one. Cost: a system call. If there is no memory, the process ends, as it does with any other
    /// allocation.
    pub(crate) fn new(len: usize) -> Self {
        let no_memory =
            || handle_alloc_error(Layout::from_size_align(len, PAGE).expect("a length that fits"));
        Self::try_new(len).unwrap_or_else(no_memory)
    }

    /// The same; none if there is no memory.
    pub(crate) fn try_new(len: usize) -> Option<Self> {
        let pages = MmapMut::map_anon(len).ok()?;
        // Systems that give huge pages unasked would give 2 MiB for the first byte of them, and again what was given back of
        // them. One without huge pages refuses, and needs no such advice.
        #[cfg(all(target_os = "linux", not(miri)))]
        drop(pages.advise(memmap2::Advice::NoHugePage));
        Some(Self(pages))
    }

    /// The address of the first byte. What is written by it is written by whoever may: as if it were memory of an allocator.
    pub(crate) fn start(&mut self) -> NonNull<u8> {
        NonNull::from(&mut self.0[..]).cast()
    }

    /// Gives the memory of whole pages in `range` back to the system where that can be done. Their bytes may be anything
    /// afterwards, and may be written to again.
    ///
    /// # Safety
    /// The range is within the pages. Nobody reads from it, or writes to it, at the same time, and none of its bytes is one that
    /// somebody needs.
    pub(crate) unsafe fn discard(&self, range: Range<usize>) {
        let (start, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
        if start < end && cfg!(not(miri)) {
            // SAFETY: as the caller promises. It is no more than a hint: if it fails, the memory stays.
            let told = unsafe {
                self.0.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start)
            };
            drop(told);
        }
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pages({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "ends where memory does")]
    fn what_there_is_no_memory_for_is_told() {
        assert!(Pages::try_new(usize::MAX / 4).is_none());
        assert!(Pages::try_new(PAGE).is_some_and(|pages| pages[..] == [0; PAGE]));
    }

    #[test]
    fn pages_are_zeros_and_may_be_written_to_after_they_were_given_back() {
        let mut pages = Pages::new(10 * PAGE + 1);
        assert!(pages.len() == 10 * PAGE + 1 && pages.iter().all(|&byte| byte == 0));
        assert!(pages.start().addr().get().is_multiple_of(PAGE));
        pages.fill(7);
        // SAFETY: nobody else knows of the pages.
        unsafe { pages.discard(PAGE - 1..3 * PAGE + 5) };
        assert!(pages[..PAGE].iter().chain(&pages[3 * PAGE..]).all(|&byte| byte == 7));
        pages[PAGE..3 * PAGE].fill(8);
        assert!(pages[PAGE..3 * PAGE].iter().all(|&byte| byte == 8));
    }
}
