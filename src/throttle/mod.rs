//! A limit on how fast upkeep writes, for all keyspaces of a database together: what it leaves of the device is for readers and
//! writers.
//!
//! Each engine has a [`Valve`], through which go the writes of its compactions, merges, checkpoints of indexes and whatever
//! else it does in the place of those, a buffer at a time. Flushes do not, nor checkpoints of a B+ tree, which are its flushes:
//! writers wait for them. Reads do not either: a merge reads about as much as it writes, and much of that comes from memory.
//!
//! *In turn.* A write takes a ticket, the number of bytes that were to be written before it, and goes when as many have been
//! granted. So those who wait go in the order they came, each when its time has come, and what is larger than others is paid
//! for by what follows it. What was not used is granted later, but no more than a [moment's](BURST) worth.
//!
//! *The limit gives way to debt.* Upkeep that is not done ends in writers that are slowed down, so engines say how near that
//! is. From half the way on the limit rises, and where it comes to slowing anybody down, there is none. It is the debt of all
//! keyspaces that counts, because they share threads and device.
//!
//! Thread safety: everything may be called from any thread. The one lock is held for a moment and no other is taken under it.

mod file;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::vfs::File;
use file::LimitedFile;

/// Seconds for which what was not used can be used later.
const BURST: f64 = 0.1;
/// The debt from which on the limit rises.
const HALF: u32 = FULL / 2;

/// The debt at which writers begin to be slowed down.
pub(crate) const FULL: u32 = 1000;

/// The limit of a database.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Bytes a second; `None`: there is no limit.
    rate: Option<f64>,
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bucket: Bucket,
    /// The debts of engines that have some, by the numbers of their valves.
    debts: BTreeMap<u64, u32>,
    /// How many valves there have been.
    valves: u64,
}

/// What was asked for and what was granted, in bytes since the beginning.
#[derive(Debug, Default)]
struct Bucket {
    taken: f64,
    granted: f64,
    /// Until when bytes were granted.
    seen: Duration,
}

impl Throttle {
    /// One that lets so many bytes through in a second, or all.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Self {
        Self {
            rate: bytes_per_second.map(|rate| rate.max(1) as f64),
            began: crate::sync::now(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The valve of one more engine.
    pub(crate) fn valve(self: &Arc<Self>) -> Arc<Valve> {
        let mut state = self.lock();
        state.valves += 1;
        let number = state.valves;
        Arc::new(Valve { throttle: Arc::clone(self), number, stopped: AtomicBool::new(false) })
    }

    fn set_debt(&self, valve: u64, debt: u32) {
        let mut state = self.lock();
        let before = state.limit(self.rate);
        match debt {
            0 => drop(state.debts.remove(&valve)),
            _ => drop(state.debts.insert(valve, debt)),
        }
        if state.limit(self.rate) == before {
            return;
        }
        // What was granted until now was granted at the rate of before.
        state.bucket.grant(crate::sync::now() - self.began, before);
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The bytes a second that may be written now.
    fn limit(&self, rate: Option<f64>) -> Option<f64> {
        let debt = self.debts.values().copied().max().unwrap_or(0);
        match debt {
            FULL.. => None,
            _ => Some(rate? * f64::from(FULL - HALF) / f64::from(FULL - debt.max(HALF))),
        }
    }
}

impl Bucket {
    /// Grants what may be written until `now`.
    fn grant(&mut self, now: Duration, limit: Option<f64>) {
        let passed = now.saturating_sub(self.seen).as_secs_f64();
        self.seen = self.seen.max(now);
        self.granted = match limit {
            Some(limit) => (self.granted + limit * passed).min(self.taken + limit * BURST),
            None => self.granted.max(self.taken),
        };
    }

    /// The ticket for so many bytes more.
    fn take(&mut self, bytes: usize) -> f64 {
        let ticket = self.taken;
        self.taken += bytes as f64;
        ticket
    }

    /// How long who has a ticket must wait, if it must.
    fn wait(&self, ticket: f64, limit: Option<f64>) -> Option<Duration> {
        let missing = ticket - self.granted;
        let limit = limit.filter(|_| missing > 0.0)?;
        // Rounded up: who comes too early would wait again.
        Some(Duration::from_secs_f64((missing / limit).min(3600.0)) + Duration::from_micros(1))
    }
}

/// Where the writes of one engine's upkeep go through.
#[derive(Debug)]
pub(crate) struct Valve {
    throttle: Arc<Throttle>,
    number: u64,
    stopped: AtomicBool,
}

impl Valve {
    /// Says how near the engine's upkeep is to slowing writers down, of [`FULL`].
    pub(crate) fn set_debt(&self, debt: u32) {
        if self.throttle.rate.is_some() {
            self.throttle.set_debt(self.number, debt);
        }
    }

    /// `file`, whose writes wait until they may be made.
    pub(crate) fn over(self: &Arc<Self>, file: Arc<dyn File>) -> Arc<dyn File> {
        match self.throttle.rate {
            Some(_) => Arc::new(LimitedFile::new(file, Arc::clone(self))),
            None => file,
        }
    }

    /// `file`, whose writes wait for `valve` if there is one.
    pub(crate) fn over_if(valve: Option<&Arc<Self>>, file: Arc<dyn File>) -> Arc<dyn File> {
        match valve {
            Some(valve) => valve.over(file),
            None => file,
        }
    }

    /// Waits until so many bytes may be written, or until the engine stops.
    pub(crate) fn pass(&self, bytes: usize) {
        let throttle = &*self.throttle;
        if throttle.rate.is_none() {
            return;
        }
        let mut state = throttle.lock();
        let ticket = state.bucket.take(bytes);
        while !self.stopped.load(Ordering::Acquire) {
            let limit = state.limit(throttle.rate);
            state.bucket.grant(crate::sync::now() - throttle.began, limit);
            let Some(wait) = state.bucket.wait(ticket, limit) else { return };
            let waited = throttle.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets all through from now on, at once.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // Who has just looked waits before it can be called.
        drop(self.throttle.lock());
        self.throttle.changed.notify_all();
    }
}

impl Drop for Valve {
    fn drop(&mut self) {
        self.set_debt(0);
    }
}

#[cfg(test)]
mod tests;
