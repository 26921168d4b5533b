//! What the writer and the readers of a memtable share without locks, and chance. Compiled with `--cfg loom`, the atomics
//! are those of [loom](https://docs.rs/loom), which tries the orders in which threads may come to see them, and chance
//! is held still, so that it can go back and try another.

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};
pub(super) use std::sync::atomic::Ordering;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};

use crate::base::rng::Rng;

/// A seed that nobody knows.
pub(super) fn seed() -> u64 {
    if cfg!(loom) { 0 } else { Rng::entropy() }
}

/// Stands in what is written once, before others know of it, and read by them without atomics. It takes no room; a model
/// sees by it who reads what may not be there yet.
#[cfg(not(loom))]
pub(super) struct Witness;

#[cfg(not(loom))]
impl Witness {
    /// What it stands in has been written.
    #[inline(always)]
    pub(super) fn written() -> Self {
        Self
    }

    /// What it stands in is read.
    #[inline(always)]
    pub(super) fn read(&self) {}
}

#[cfg(loom)]
pub(super) struct Witness(loom::cell::UnsafeCell<()>);

#[cfg(loom)]
impl Witness {
    pub(super) fn written() -> Self {
        let cell = loom::cell::UnsafeCell::new(());
        cell.with_mut(|_| ());
        Self(cell)
    }

    pub(super) fn read(&self) {
        self.0.with(|_| ());
    }
}
