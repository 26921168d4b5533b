//! Asking for memory ahead of its use: a search that knows several lines it is going to read asks for all of
//! them, and waits once instead of once for each.

/// Brings the line that `value` begins in closer to the processor, without waiting for it. Does nothing on
/// processors it knows no instruction for.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    prefetch_at(value);
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
