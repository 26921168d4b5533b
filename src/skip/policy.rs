//! Which runs are merged, and when: a pure function of how large they are.
//!
//! Runs come from memtables and are about as large as one. A search looks into each of them, so there may be only so many.
//! When there are more, the newest are merged into one, together with older ones that are not much larger than all of
//! those: so each entry is merged again only when what it is in at least grows by half.

use crate::throttle;

/// So many runs wait for a merge that the user asks for.
pub(super) const MOST_RUNS: usize = 8;
/// With so many, writers are slowed down; with twice as many they wait.
const SLOW: usize = 2 * MOST_RUNS;

/// The pressure at which they wait.
pub(super) const STOP: u32 = 1000;

/// What is to be merged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    /// So many runs, from the newest on.
    pub(super) runs: usize,
    /// And the base.
    pub(super) with_base: bool,
}

/// What is due, given the bytes of runs, newest first, and of the base.
pub(super) fn due(runs: &[u64], base: Option<u64>) -> Option<Choice> {
    if runs.len() <= MOST_RUNS {
        return None;
    }
    let mut bytes = runs[0] + runs[1];
    let mut end = 2;
    while end < runs.len() && runs[end] <= 2 * bytes {
        bytes += runs[end];
        end += 1;
    }
    let with_base = end == runs.len() && base.is_none_or(|base| base <= 2 * bytes);
    Some(Choice { runs: end, with_base })
}

/// How far writers must be slowed down by so many runs, of [`STOP`].
pub(super) fn pressure(runs: usize) -> u32 {
    (runs.saturating_sub(SLOW) * STOP as usize / SLOW).min(STOP as usize) as u32
}

/// How near so many runs are to that, for the limit on what merges write.
pub(super) fn debt(runs: usize) -> u32 {
    let over = runs.saturating_sub(MOST_RUNS).min(SLOW - MOST_RUNS);
    over as u32 * throttle::FULL / (SLOW - MOST_RUNS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_size_are_merged_together_and_larger_ones_are_left() {
        assert_eq!(due(&[5; 8], None), None);
        assert_eq!(due(&[5; 9], None), Some(Choice { runs: 9, with_base: true }));
        assert_eq!(due(&[5; 9], Some(90)), Some(Choice { runs: 9, with_base: true }));
        assert_eq!(due(&[5; 9], Some(91)), Some(Choice { runs: 9, with_base: false }));
        let runs = [5, 5, 5, 5, 5, 5, 5, 71, 5];
        assert_eq!(due(&runs, Some(1)), Some(Choice { runs: 7, with_base: false }));
        // Two at least, or there would be no end of runs.
        let runs = [1, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000];
        assert_eq!(due(&runs, None), Some(Choice { runs: 2, with_base: false }));
    }

    #[test]
    fn an_entry_is_merged_a_few_times_only() {
        // 2000 flushes into a store that merges what is due.
        let (mut runs, mut base, mut merged) = (Vec::new(), None, 0);
        for _ in 0..2000 {
            runs.insert(0, 1);
            while let Some(choice) = due(&runs, base) {
                let mut bytes: u64 = runs.drain(..choice.runs).sum();
                if choice.with_base {
                    bytes += base.take().unwrap_or(0);
                    base = Some(bytes);
                } else {
                    runs.insert(0, bytes);
                }
                merged += bytes;
            }
            assert!(runs.len() <= MOST_RUNS);
        }
        assert!(merged / 2000 <= 8, "each entry was merged {} times", merged / 2000);
    }

    #[test]
    fn pressure_grows_to_a_stop() {
        assert_eq!((pressure(0), pressure(MOST_RUNS), pressure(SLOW)), (0, 0, 0));
        assert!(pressure(SLOW + 1) > 0 && pressure(SLOW + 1) < pressure(SLOW + 2));
        assert_eq!((pressure(2 * SLOW), pressure(1000)), (STOP, STOP));
        let debts = [0, MOST_RUNS, 12, SLOW, 1000].map(debt);
        assert_eq!(debts, [0, 0, 500, throttle::FULL, throttle::FULL]);
    }
}
