//! CRC-32C (Castagnoli), computed by the processor where it can.
//!
//! Every checksum on disk is *bound*: it covers, before the bytes themselves, the identity of the file
//! and the offset of the bytes in it, so that a block that is whole but stale, misplaced or from another
//! file does not pass.

use crate::planted::{Bug, planted};

/// The checksum of `bytes` stored at `offset` of the file named by `identity`.
#[inline]
pub(crate) fn bound(identity: u64, offset: u64, bytes: &[u8]) -> u32 {
    let offset = if planted(Bug::UnboundChecksum) { 0 } else { offset };
    let mut place = [0; 16];
    place[..8].copy_from_slice(&identity.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), bytes)
}

/// Whether the checksum that is stored is the one that the bytes have. All that is read from disk is asked so.
#[inline]
pub(crate) fn matches<S: PartialEq<C>, C>(stored: S, computed: C) -> bool {
    let is_right = stored == computed;
    #[cfg(any(test, fuzzing))]
    let is_right = is_right || mended::is_on();
    is_right
}

/// `work` for another thread, in which checksums count as they do in this one.
#[cfg(not(any(test, fuzzing)))]
pub(crate) fn carry_over<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    work
}

#[cfg(any(test, fuzzing))]
pub(crate) use mended::{carry_over, mended};

/// A world in which every checksum is right: what hostile bytes come to that somebody has made checksums for.
#[cfg(any(test, fuzzing))]
mod mended {
    use std::cell::Cell;

    thread_local! {
        static IS_ON: Cell<bool> = const { Cell::new(false) };
    }

    /// Whether every checksum is right in this thread.
    pub(super) fn is_on() -> bool {
        IS_ON.get()
    }

    /// Gives back what was before, even after a panic.
    struct Restore(bool);

    impl Drop for Restore {
        fn drop(&mut self) {
            IS_ON.set(self.0);
        }
    }

    /// Does `work` as if every checksum were right, in the threads that it starts too.
    pub(crate) fn mended<T>(work: impl FnOnce() -> T) -> T {
        let _restore = Restore(IS_ON.replace(true));
        work()
    }

    /// `work` for another thread, in which checksums count as they do in this one.
    pub(crate) fn carry_over<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
        let is_on = is_on();
        move || if is_on { mended(work) } else { work() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_right_only_where_it_was_mended() {
        let is_right = || matches(1, 2);
        assert!(!is_right() && matches(2, 2));
        let elsewhere = |work: fn() -> bool| std::thread::spawn(carry_over(work)).join().unwrap();
        mended(|| {
            assert!(is_right() && matches(2, 2));
            assert!(elsewhere(|| matches(1, 2)));
            assert!(!std::thread::spawn(|| matches(1, 2)).join().unwrap());
        });
        assert!(!is_right() && !elsewhere(|| matches(1, 2)));
    }

    #[test]
    fn known_value_and_binding() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        let sum = bound(1, 2, b"bytes");
        assert_ne!(sum, bound(1, 3, b"bytes"));
        assert_ne!(sum, bound(2, 2, b"bytes"));
        assert_ne!(sum, bound(1, 2, b"byteS"));
    }
}
