//! Pacing: writers are slowed down as far as background work is behind, all of them together.
//!
//! The pressure is a number from 0 (none) to 1000 (no room left). Equal steps of it divide the rate at which all writers
//! together may write by equal factors, from [`FULL_RATE`] down to [`LEAST_RATE`]: there is no cliff anywhere. It comes to
//! rest where writers bring as much as the background takes away, whatever that is: who brings more raises the pressure,
//! which slows them down. Only at 1000 do writers wait, because going on would break the memory budget, or leave too many
//! files to read.
//!
//! *Memory* fills and empties within a second, and its pressure counts as it is. That of *upkeep* moves in jumps, as large
//! merges begin late and end at once: writers would run freely for a moment and pay for it in the next. So what counts of it
//! is an eighth of what it is, and seven of what it was on average over the last [`MEMORY`]: writers hardly feel single
//! merges, and a jump to [`HIGH`] counts whole.
//!
//! *One clock for all.* What is written is paid for in time, on a clock that all writers share. Costs are gathered until they
//! are [worth a sleep](WORTH_A_SLEEP); then the clock is moved on by them, and the writer sleeps until then. It is never more
//! than [`CREDIT`] behind the real one, which makes up for sleeps that lasted too long, nor more than [`LONGEST`] ahead of it:
//! no put sleeps longer than that.
//!
//! Thread safety: everything may be called from any thread. Times are given, so that tests need no clock.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::budget::Budget;
use crate::sync::Mutex;

/// Bytes a second that all writers together may write at the least pressure.
const FULL_RATE: f64 = 1e9;
/// Bytes a second at the greatest pressure short of a stop.
const LEAST_RATE: f64 = 2e5;
/// Costs of fewer nanoseconds are carried over.
const WORTH_A_SLEEP: u64 = 200_000;
/// A put sleeps no longer.
const LONGEST: Duration = Duration::from_millis(100);
/// As much is made up for of what sleeps lasted too long.
const CREDIT: Duration = Duration::from_millis(10);
/// How far back the mean of the pressure reaches, as the time in which what was falls to an e-th,
const MEMORY: Duration = Duration::from_secs(8);
/// and the same while there is none.
const MEMORY_OF_NONE: Duration = Duration::from_secs(2);
/// Pressure from which on it is not the mean that counts.
const HIGH: u32 = 800;
/// Pressure of memory begins when memtables use this share of their part of the budget: as long as one that is full is in files
/// before the next one is, of three that there is room for, there is none.
const FREE_SHARE: f64 = 2.0 / 3.0;

/// No writer may go on.
pub(crate) const STOP: u32 = 1000;

/// What writers have to pay for, and have paid.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The cost in nanoseconds of what was written and is not on the clock yet.
    owed: AtomicU64,
    /// The mean pressure of upkeep as it was when the clock was last moved, rounded up.
    mean: AtomicU32,
    clock: Mutex<Clock>,
}

/// Times are since some beginning.
#[derive(Debug, Default)]
struct Clock {
    /// All that was written is paid for then.
    paid: Duration,
    /// When it was last moved.
    moved: Duration,
    /// The mean pressure of upkeep until then.
    mean: f64,
}

impl Pace {
    /// How long a writer of `bytes` has to sleep now under the pressures of `memory` and `upkeep`, if at all. `now` is asked for the
    /// time if it is needed, which is seldom.
    pub(crate) fn charge(
        &self,
        (memory, upkeep): (u32, u32),
        bytes: usize,
        now: impl FnOnce() -> Duration,
    ) -> Option<Duration> {
        let mean = self.mean.load(Ordering::Relaxed);
        if memory == 0 && upkeep == 0 && mean == 0 {
            return None;
        }
        let cost = bytes as f64 * nanos_per_byte(memory.max(counted(upkeep, mean)));
        let owed = self.owed.fetch_add(cost as u64, Ordering::Relaxed) + cost as u64;
        if owed < WORTH_A_SLEEP {
            return None;
        }
        let owed = Duration::from_nanos(self.owed.swap(0, Ordering::Relaxed));
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        self.mean.store(clock.look(now, upkeep), Ordering::Relaxed);
        Some(clock.pay(now, owed)).filter(|sleep| !sleep.is_zero())
    }
}

impl Clock {
    /// Takes note of the pressure of upkeep at `now`; gives the mean.
    fn look(&mut self, now: Duration, upkeep: u32) -> u32 {
        let passed = now.saturating_sub(self.moved).as_secs_f64();
        self.moved = self.moved.max(now);
        let memory = if upkeep == 0 { MEMORY_OF_NONE } else { MEMORY };
        self.mean +=
            (f64::from(upkeep) - self.mean) * (1.0 - (-passed / memory.as_secs_f64()).exp());
        if self.mean < 1.0 && upkeep == 0 {
            self.mean = 0.0;
        }
        self.mean.ceil() as u32
    }

    /// Puts a cost on the clock; how long its writer sleeps.
    fn pay(&mut self, now: Duration, cost: Duration) -> Duration {
        self.paid = (self.paid.max(now.saturating_sub(CREDIT)) + cost).min(now + LONGEST);
        self.paid.saturating_sub(now)
    }
}

/// The pressure of upkeep that counts.
fn counted(upkeep: u32, mean: u32) -> u32 {
    let counted = (upkeep + 7 * mean).div_ceil(8);
    if upkeep < HIGH { counted } else { counted.max(upkeep) }
}

/// What a byte costs under a pressure.
fn nanos_per_byte(pressure: u32) -> f64 {
    if pressure == 0 {
        return 0.0;
    }
    let share = f64::from(pressure) / f64::from(STOP);
    1e9 / FULL_RATE * (FULL_RATE / LEAST_RATE).powf(share)
}

/// The pressure of memtables on their part of the budget.
pub(crate) fn memory_pressure(budget: &Budget) -> u32 {
    pressure_of_share(budget.memtables_used() as f64 / budget.memtables as f64)
}

fn pressure_of_share(share: f64) -> u32 {
    if share <= FREE_SHARE {
        return 0;
    }
    (((share - FREE_SHARE) / (1.0 - FREE_SHARE) * f64::from(STOP)) as u32).min(STOP)
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
