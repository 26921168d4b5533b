//! What readers may see: the last published write, and the snapshots that are held.
//!
//! Invariant: a snapshot taken after [`Visibility::retained`] returned lies at or above the last number
//! it gave, so an engine that keeps what those numbers see never drops what a later snapshot sees.
//!
//! Thread safety: any thread may call anything. One lock is over the numbers that are held.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Seqno;
use crate::planted::{Bug, planted};
use crate::sync::{Mutex, MutexGuard};

/// Shared by the commit path, which publishes, and all readers.
#[derive(Debug, Default)]
pub(crate) struct Visibility {
    published: AtomicU64,
    held: Mutex<BTreeMap<Seqno, Holders>>,
}

/// Who holds a state.
#[derive(Debug, Default)]
struct Holders {
    count: usize,
    /// Whether somebody keeps something for them that may go with them.
    is_awaited: bool,
}

/// The states that are held. As long as this lives, none is held that was not before, and none is let go of: no other lock
/// may be asked for.
pub(crate) struct HeldStates<'a> {
    visibility: &'a Visibility,
    numbers: MutexGuard<'a, BTreeMap<Seqno, Holders>>,
}

impl Visibility {
    /// The last write that readers may see.
    pub(crate) fn published(&self) -> Seqno {
        self.published.load(Ordering::Acquire)
    }

    /// Lets readers see all writes up to `seqno`, which must be the last of a batch.
    pub(crate) fn publish(&self, seqno: Seqno) {
        self.published.store(seqno, Ordering::Release);
    }

    /// Holds the present state until [`release`](Self::release) is called with the number given.
    pub(crate) fn hold(&self) -> Seqno {
        let mut held = self.held();
        let seqno = self.published();
        if !planted(Bug::ForgetSnapshot) {
            held.numbers.entry(seqno).or_default().count += 1;
        }
        seqno
    }

    /// Holds once more a state that is held.
    pub(crate) fn hold_again(&self, seqno: Seqno) {
        self.held().numbers.entry(seqno).or_default().count += 1;
    }

    /// Lets go of a state that was held. True if nobody holds it any more and that was [awaited](HeldStates::awaits): engines
    /// should be asked to let go of what they keep.
    #[must_use]
    pub(crate) fn release(&self, seqno: Seqno) -> bool {
        let numbers = &mut self.held().numbers;
        let Some(holders) = numbers.get_mut(&seqno) else { return false };
        holders.count -= 1;
        let (is_last, is_awaited) = (holders.count == 0, holders.is_awaited);
        if is_last {
            numbers.remove(&seqno);
        }
        is_last && is_awaited
    }

    /// The states that are held, for as long as what is given lives.
    pub(crate) fn held(&self) -> HeldStates<'_> {
        let numbers = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        HeldStates { visibility: self, numbers }
    }

    /// Whether a state is held that has what was written with number `from` and not yet what was written with
    /// number `to`. Once `to` has been published, no such state will be held later.
    pub(crate) fn is_held_between(&self, from: Seqno, to: Seqno) -> bool {
        from < to && self.held().numbers.range(from..to).next().is_some()
    }

    /// The states that are held from `from` on and before `to`, ascending.
    pub(crate) fn held_between(&self, from: Seqno, to: Seqno) -> Vec<Seqno> {
        let numbers = self.held().numbers;
        let between = |from, to| numbers.range(from..to).map(|(&seqno, _)| seqno).collect();
        if from < to { between(from, to) } else { Vec::new() }
    }

    /// The states that must stay readable, ascending: those held, and the present one.
    pub(crate) fn retained(&self) -> Vec<Seqno> {
        let held = self.held();
        let mut seqnos: Vec<Seqno> = held.numbers.keys().copied().collect();
        let published = self.published();
        if seqnos.last() != Some(&published) {
            seqnos.push(published);
        }
        seqnos
    }
}

impl HeldStates<'_> {
    /// The last write that readers may see.
    pub(crate) fn published(&self) -> Seqno {
        self.visibility.published()
    }

    /// A state that [is held between](Visibility::is_held_between) two numbers, so that something must be kept; the oldest, if there is one.
    /// [`release`](Visibility::release) tells when it is time to ask again.
    pub(crate) fn awaited(&mut self, from: Seqno, to: Seqno) -> Option<Seqno> {
        if from >= to {
            return None;
        }
        let (&first, holders) = self.numbers.range_mut(from..to).next()?;
        holders.is_awaited = true;
        Some(first)
    }

    /// Whether there is such a state.
    pub(crate) fn awaits(&mut self, from: Seqno, to: Seqno) -> bool {
        self.awaited(from, to).is_some()
    }
}

/// The state a read is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadPoint<'a> {
    /// What was visible when a snapshot was taken. The snapshot is held.
    At(Seqno),
    /// What is visible now. An engine asks for the number *after* it has taken hold of its own state, so
    /// that nothing the number sees can have been dropped from that state.
    Latest(&'a Visibility),
}

impl ReadPoint<'_> {
    pub(crate) fn seqno(self) -> Seqno {
        match self {
            Self::At(seqno) => seqno,
            Self::Latest(visibility) => visibility.published(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_states_are_retained_until_released() {
        let visibility = Visibility::default();
        visibility.publish(5);
        assert_eq!(visibility.hold(), 5);
        assert_eq!(visibility.hold(), 5);
        visibility.publish(9);
        assert_eq!(visibility.retained(), [5, 9]);
        assert!(!visibility.release(5), "it is held once more");
        assert_eq!(visibility.retained(), [5, 9]);
        assert!(visibility.is_held_between(4, 6) && visibility.is_held_between(5, 6));
        assert!(!visibility.is_held_between(4, 5) && !visibility.is_held_between(6, 9));
        assert_eq!(visibility.held_between(5, 9), [5]);
        assert_eq!(visibility.held_between(0, 5), []);
        assert!(!visibility.release(5), "nobody waits for that");
        assert_eq!(visibility.retained(), [9]);
        assert_eq!(ReadPoint::Latest(&visibility).seqno(), 9);
        assert_eq!(ReadPoint::At(5).seqno(), 5);
    }
    #[test]
    fn the_last_holder_of_a_state_that_is_awaited_says_so() {
        let visibility = Visibility::default();
        for seqno in [3, 5] {
            visibility.publish(seqno);
            visibility.hold();
        }
        visibility.hold_again(3);
        assert!(!visibility.held().awaits(4, 5) && !visibility.held().awaits(5, 3));
        assert!(visibility.held().awaits(2, 6));
        assert!(!visibility.release(3), "there is another holder");
        assert!(visibility.release(3));
        // What is kept for both is asked for again, and then waits for the other.
        assert!(visibility.held().awaits(2, 6));
        assert!(visibility.release(5));
        visibility.hold();
        assert!(!visibility.held().awaits(2, 5) && !visibility.release(5));
    }
}
