//! Memory that threads share word by word.

use std::sync::atomic::AtomicU64;

/// Not so on all processors of 32 bits.
const _: () = assert!(align_of::<u64>() == align_of::<AtomicU64>());

/// `count` words of zero. Pages that are never touched cost nothing.
pub(crate) fn zeroed(count: usize) -> Box<[AtomicU64]> {
    let words = Box::into_raw(vec![0u64; count].into_boxed_slice());
    // SAFETY: `AtomicU64` has the size and all values of `u64`, and the alignment here, and the box has no other owner.
    unsafe { Box::from_raw(words as *mut [AtomicU64]) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    #[test]
    fn words_are_zero_and_take_values() {
        let words = super::zeroed(3);
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        words[2].store(7, Ordering::Relaxed);
        assert_eq!(words[2].load(Ordering::Relaxed), 7);
        assert!(super::zeroed(0).is_empty());
    }
}
