//! Asking for memory ahead of its use: a search that knows several lines it is going to read asks for all of
//! them, and waits once instead of once for each.

/// Brings the line that `value` begins in closer to the processor, without waiting for it. Does nothing on
/// processors it knows no instruction for.
#[inline(always)]
pub(crate) fn prefetch<T: ?Sized>(value: &T) {
    prefetch_at(std::ptr::from_ref(value).cast::<u8>());
}

/// The same for a line that nobody may make a reference to, because others write to it.
#[inline(always)]
pub(crate) fn prefetch_at<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch neither reads nor writes, whatever the address; and the instruction is part of
        // every x86-64 processor.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// How much of the end of a run of bytes is asked for: in a block, all that a search looks at but one entry.
const END: usize = 256;
/// What the processor reads at once.
const LINE: usize = 64;

/// Brings the end of `bytes` in closer to the processor.
#[inline(always)]
pub(crate) fn prefetch_end(bytes: &[u8]) {
    let end = &bytes[bytes.len().saturating_sub(END)..];
    end.chunks(LINE).for_each(|line| prefetch(&line[0]));
}
