//! Compactions that readers call for. A seek looks into every run, so runs of level 0 that wait to be merged cost all who read
//! in order. What that costs is added up, and when it comes to what it would cost to merge them, they are merged: so what is paid
//! is at most twice what who knew all that comes would have paid (rent or buy; Karlin et al., *Competitive Snoopy Caching*, 1988).
//! LevelDB counts seeks with the same end.
//!
//! Thread safety: any thread may tell of visits; versions are told of by one thread at a time.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// In the time that a seek takes for one run more, so many bytes are merged, about.
const BYTES_A_VISIT: u64 = 512;

/// When readers have paid for a compaction.
pub(super) struct ReadTrigger {
    /// Visits to runs of level 0, since the last time that there became fewer.
    visits: AtomicU64,
    /// How many times there became fewer. Who reads what was there before pays for nothing that would spare others anything.
    epoch: AtomicU64,
    /// With so many a compaction is due; the largest number: none is to be had.
    price: AtomicU64,
    /// How many runs level 0 has.
    runs: AtomicUsize,
    on_due: Box<dyn Fn() + Send + Sync>,
}

impl ReadTrigger {
    /// Calls `on_due` when there have been enough visits, in the thread of the last one.
    pub(super) fn new(on_due: impl Fn() + Send + Sync + 'static) -> Self {
        let (visits, epoch, runs) = (AtomicU64::new(0), AtomicU64::new(0), 0.into());
        Self { visits, epoch, price: AtomicU64::new(u64::MAX), runs, on_due: Box::new(on_due) }
    }

    /// What who reads from now on has to say with its visits.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Takes notice of a new version, with so many runs in level 0 that so many bytes are to be read of to merge them, if they may be.
    pub(super) fn set(&self, runs: usize, bytes: Option<u64>) {
        if runs < self.runs.swap(runs, Ordering::Relaxed) {
            self.epoch.fetch_add(1, Ordering::Relaxed);
            self.visits.store(0, Ordering::Relaxed);
        }
        let price = bytes.map_or(u64::MAX, |bytes| (bytes / BYTES_A_VISIT).max(1));
        self.price.store(price, Ordering::Relaxed);
    }

    /// A seek of one who reads since an epoch has come to so many runs of level 0.
    #[inline]
    pub(super) fn visit(&self, runs: usize, epoch: u64) {
        if epoch != self.epoch() {
            return;
        }
        let before = self.visits.fetch_add(runs as u64, Ordering::Relaxed);
        let price = self.price.load(Ordering::Relaxed);
        if before < price && before.saturating_add(runs as u64) >= price {
            (self.on_due)();
        }
    }

    /// Whether runs of level 0 have been visited often enough.
    pub(super) fn is_due(&self) -> bool {
        self.visits.load(Ordering::Relaxed) >= self.price.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for ReadTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { visits, epoch, price, runs, on_due: _ } = self;
        f.debug_struct("ReadTrigger")
            .field("visits", visits)
            .field("epoch", epoch)
            .field("price", price)
            .field("runs", runs)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn readers_call_once_when_they_have_paid() {
        let calls = Arc::new(AtomicU64::new(0));
        let trigger = ReadTrigger::new({
            let calls = Arc::clone(&calls);
            move || _ = calls.fetch_add(1, Ordering::Relaxed)
        });
        let visit = |runs| {
            trigger.visit(runs, trigger.epoch());
            (trigger.is_due(), calls.load(Ordering::Relaxed))
        };
        assert_eq!(visit(1_000_000), (false, 0), "there is nothing to merge");
        trigger.set(3, Some(10 * BYTES_A_VISIT));
        assert!(trigger.is_due(), "what was paid counts");
        trigger.set(2, Some(10 * BYTES_A_VISIT));
        assert_eq!(
            [visit(6), visit(3), visit(2), visit(1)],
            [(false, 0), (false, 0), (true, 1), (true, 1)]
        );
        // One run more, which is to be paid, too.
        trigger.set(3, Some(20 * BYTES_A_VISIT));
        assert_eq!([visit(7), visit(1)], [(false, 1), (true, 2)]);
        trigger.set(0, None);
        assert_eq!(visit(5), (false, 2));
        trigger.set(1, Some(0));
        assert!(trigger.is_due(), "nothing is never too dear");
    }

    #[test]
    fn who_reads_what_is_merged_by_now_pays_no_more() {
        let trigger = ReadTrigger::new(|| {});
        trigger.set(3, Some(10 * BYTES_A_VISIT));
        let before = trigger.epoch();
        trigger.set(4, Some(10 * BYTES_A_VISIT));
        trigger.visit(9, before);
        trigger.set(1, Some(10 * BYTES_A_VISIT));
        trigger.visit(100, before);
        assert!(!trigger.is_due());
        trigger.visit(10, trigger.epoch());
        assert!(trigger.is_due());
    }
}
