//! Memory at addresses that direct I/O can use.
//!
//! Thread safety: a buffer is a plain value, like a vector.
//!
//! Invariant: `start` is the start of `len` initialised bytes that were allocated with [`AlignedBuf::layout`]
//! and are this buffer's alone; with no bytes, nothing is allocated and `start` dangles, aligned.

use std::alloc::{self, Layout};
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::base::View;

/// What the address of every buffer is a multiple of, in bytes: a page, beyond which no device asks.
pub(super) const ADDRESS: usize = 4096;
/// The address of no bytes.
const DANGLING: NonZeroUsize = NonZeroUsize::new(ADDRESS).expect("not zero");

/// A run of bytes of fixed length, aligned to [`ADDRESS`].
pub(super) struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes are owned by the buffer alone, as those of a vector are.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; through a shared reference they can only be read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// `len` zeros.
    pub(super) fn zeroed(len: usize) -> Self {
        Self::try_zeroed(len).unwrap_or_else(|_| alloc::handle_alloc_error(Self::layout(len)))
    }

    /// The same for a length that a file asks for, which may claim any: an error if there is not so much memory.
    pub(super) fn try_zeroed(len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self { start: NonNull::without_provenance(DANGLING), len });
        }
        // SAFETY: the layout has a size.
        let start = unsafe { alloc::alloc_zeroed(Self::layout(len)) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// A view of the bytes in `range`, which keeps the buffer alive. Panics if the range reaches outside.
    pub(super) fn into_view(self, range: Range<usize>) -> View {
        let part = &self[range];
        let (start, len) = (NonNull::from(part).cast(), part.len());
        // SAFETY: the bytes are initialised and lie in the buffer, which the view owns and nobody can
        // reach to change.
        unsafe { View::from_raw(start, len, Arc::new(self)) }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ADDRESS).expect("a length that fits the address space")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the invariant: allocated with this very layout, and nobody else's.
            unsafe { alloc::dealloc(self.start.as_ptr(), Self::layout(self.len)) }
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the invariant.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the invariant, and the reference to the buffer is exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

/// Whether the memory of `bytes` can be used for direct I/O in blocks of `block` bytes.
pub(super) fn is_aligned(bytes: &[u8], block: usize) -> bool {
    bytes.as_ptr().addr().is_multiple_of(block.min(ADDRESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_aligned_and_become_views() {
        for len in [0, 1, 512, 4096, 100_000] {
            let mut buffer = AlignedBuf::zeroed(len);
            assert!(buffer.len() == len && buffer.iter().all(|&byte| byte == 0));
            assert!(is_aligned(&buffer, 1 << 20));
            buffer.fill(7);
            let view = buffer.into_view(len / 2..len);
            assert_eq!(*view, vec![7; len - len / 2]);
            assert_eq!(*view.slice(0..0), []);
        }
        assert!(!is_aligned(&AlignedBuf::zeroed(9)[1..], 512));
    }

    #[test]
    #[cfg_attr(miri, ignore = "ends where memory does")]
    fn more_than_there_is_can_be_asked_for() {
        let error = AlignedBuf::try_zeroed(1 << 60).expect_err("there is not so much");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(AlignedBuf::try_zeroed(9).unwrap()[..], [0; 9]);
    }
}
