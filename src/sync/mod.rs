//! Threads, locks, conditions and the clock, from one place: the standard library's, or, with the feature `simulation`, those of
//! [`simulated`], of which one runs at a time, in an order that a seed decides.
//!
//! What is read and written without locks is as it is: atomics and `Arc` come from the standard library, and `models/` tries
//! their orders.

#[cfg(feature = "simulation")]
mod guards;
mod panics;
#[cfg(feature = "simulation")]
pub mod simulated;

#[cfg(feature = "simulation")]
pub(crate) use {
    guards::{Condvar, Mutex, MutexGuard, RwLock},
    simulated::{entropy, much, now, thread},
};
#[cfg(not(feature = "simulation"))]
pub(crate) use {
    std::sync::{Condvar, Mutex, MutexGuard, RwLock},
    std::thread,
};

pub(crate) use panics::{PanicWatch, message};
pub(crate) use std::sync::{RwLockReadGuard, RwLockWriteGuard};

/// The time, by a clock that never goes back.
#[cfg(not(feature = "simulation"))]
#[inline]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// How much of something is much: `usual`, but in simulations.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) const fn much(usual: u64, _small: u64) -> u64 {
    usual
}

/// A random number that the simulation decides, if there is one.
#[cfg(not(feature = "simulation"))]
#[inline]
pub(crate) fn entropy() -> Option<u64> {
    None
}
