//! Whether the bytes of a file are in the kernel's page cache, guessed from what its last reads found.
//!
//! Asking the kernel for bytes only if it has them costs more than reading them. Behind a long row of reads
//! that found theirs, most are made without asking, and every eighth still asks. The first that finds nothing
//! ends the row. So a file that is in memory is read at full speed, and one that is not costs a few waits
//! until that is noticed; a loop of single reads would have waited as often.
//!
//! Thread safety: a guess needs no order between threads, and updates may be lost.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A row as long as this is believed.
const BELIEVED: u32 = 32;
/// One in so many reads asks nevertheless.
const ASKED: u32 = 8;

/// How many reads in a row found their bytes in memory, as far as is known.
#[derive(Debug, Default)]
pub(super) struct Streak(AtomicU32);

impl Streak {
    /// Whether the next read is made without asking.
    #[inline]
    pub(super) fn is_believed(&self) -> bool {
        let row = self.0.load(Relaxed);
        row >= BELIEVED && !row.is_multiple_of(ASKED)
    }

    /// Takes note of a read that was made, and whether its bytes were there if it asked.
    #[inline]
    pub(super) fn note(&self, present: bool) {
        let row = self.0.load(Relaxed);
        let next = match row {
            _ if !present => 0,
            u32::MAX => BELIEVED,
            row => row + 1,
        };
        self.0.store(next, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `reads` reads that find their bytes, and says how many of them asked.
    fn asked(streak: &Streak, reads: u32) -> u32 {
        let ask = |_| {
            let asks = !streak.is_believed();
            streak.note(true);
            u32::from(asks)
        };
        (0..reads).map(ask).sum()
    }

    #[test]
    fn a_long_row_is_believed_until_a_read_finds_nothing() {
        let streak = Streak::default();
        assert_eq!(asked(&streak, BELIEVED), BELIEVED);
        assert_eq!(asked(&streak, 800), 100);
        streak.note(false);
        assert_eq!(asked(&streak, BELIEVED), BELIEVED);
        streak.0.store(u32::MAX, Relaxed);
        assert_eq!(asked(&streak, 81), 10);
    }
}
