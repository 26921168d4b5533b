//! What the writer and the readers of a memtable share without locks, and chance. Compiled with `--cfg loom`, the atomics
//! are those of [loom](https://docs.rs/loom), which tries the orders in which threads may come to see them, and chance
//! is held still, so that it can go back and try another. See [`models`](super::models).

#[cfg(loom)]
pub(super) use loom::sync::atomic::fence;
pub(super) use std::sync::atomic::Ordering;
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};

#[cfg(loom)]
pub(super) use self::turns::{AtomicPtr, AtomicU32, AtomicU64};
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

/// Loom goes back to the last access to an atomic before a store to it, and so not beyond one by the thread that stores: it
/// would never try a reader in front of a writer that looks first. Here every access takes a turn first, in an order
/// that orders nothing else; so it goes back from each to the one before, by whichever thread.
#[cfg(loom)]
mod turns {
    use loom::sync::atomic::{self, Ordering};

    loom::lazy_static! {
        static ref TURN: atomic::AtomicUsize = atomic::AtomicUsize::new(0);
    }

    macro_rules! atomics {
        ($($name:ident $(<$of:ident>)? of $value:ty),* $(,)?) => {
            $(
                #[derive(Debug)]
                #[repr(transparent)]
                pub(in crate::memtable) struct $name $(<$of>)? (atomic::$name $(<$of>)?);

                impl $(<$of>)? $name $(<$of>)? {
                    pub(in crate::memtable) fn new(value: $value) -> Self {
                        Self(atomic::$name::new(value))
                    }

                    pub(in crate::memtable) fn load(&self, order: Ordering) -> $value {
                        TURN.fetch_add(1, Ordering::Relaxed);
                        self.0.load(order)
                    }

                    pub(in crate::memtable) fn store(&self, value: $value, order: Ordering) {
                        TURN.fetch_add(1, Ordering::Relaxed);
                        self.0.store(value, order);
                    }
                }
            )*
        };
    }

    atomics! {
        AtomicPtr<T> of *mut T,
        AtomicU32 of u32,
        AtomicU64 of u64,
    }
}
