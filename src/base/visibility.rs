//! What readers may see: the last published write, and the snapshots that are held.
//!
//! Invariant: a snapshot taken after [`Visibility::retained`] returned lies at or above the last number
//! it gave, so an engine that keeps what those numbers see never drops what a later snapshot sees.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Seqno;

/// Shared by the commit path, which publishes, and all readers.
#[derive(Debug, Default)]
pub(crate) struct Visibility {
    published: AtomicU64,
    held: Mutex<BTreeMap<Seqno, usize>>,
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
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let seqno = self.published();
        *held.entry(seqno).or_default() += 1;
        seqno
    }

    /// Holds once more a state that is held.
    pub(crate) fn hold_again(&self, seqno: Seqno) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held.entry(seqno).or_default() += 1;
    }

    /// Lets go of a state that was held.
    pub(crate) fn release(&self, seqno: Seqno) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.get_mut(&seqno) {
            *count -= 1;
            if *count == 0 {
                held.remove(&seqno);
            }
        }
    }

    /// Whether a state is held that has what was written with number `from` and not yet what was written with
    /// number `to`. Once `to` has been published, no such state will be held later.
    pub(crate) fn is_held_between(&self, from: Seqno, to: Seqno) -> bool {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        from < to && held.range(from..to).next().is_some()
    }

    /// The states that are held from `from` on and before `to`, ascending.
    pub(crate) fn held_between(&self, from: Seqno, to: Seqno) -> Vec<Seqno> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if from < to { held.range(from..to).map(|(&seqno, _)| seqno).collect() } else { Vec::new() }
    }

    /// The oldest state that is held.
    pub(crate) fn oldest_held(&self) -> Option<Seqno> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.keys().next().copied()
    }

    /// The states that must stay readable, ascending: those held, and the present one.
    pub(crate) fn retained(&self) -> Vec<Seqno> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seqnos: Vec<Seqno> = held.keys().copied().collect();
        let published = self.published();
        if seqnos.last() != Some(&published) {
            seqnos.push(published);
        }
        seqnos
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
        visibility.release(5);
        assert_eq!(visibility.retained(), [5, 9]);
        assert_eq!(visibility.oldest_held(), Some(5));
        assert!(visibility.is_held_between(4, 6) && visibility.is_held_between(5, 6));
        assert!(!visibility.is_held_between(4, 5) && !visibility.is_held_between(6, 9));
        assert_eq!(visibility.held_between(5, 9), [5]);
        assert_eq!(visibility.held_between(0, 5), []);
        visibility.release(5);
        assert_eq!(visibility.retained(), [9]);
        assert_eq!(ReadPoint::Latest(&visibility).seqno(), 9);
        assert_eq!(ReadPoint::At(5).seqno(), 5);
    }
}
