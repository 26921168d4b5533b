//! Slowing writers down when background work falls behind.
//!
//! The pressure is a number from 0 (none) to 1000 (no room left). Between the two, writers may write at a
//! rate that falls smoothly from [`FULL_RATE`] towards [`LEAST_RATE`]; only at 1000 do they wait, because
//! going on would break the memory budget. What a writer owes is gathered until it is worth a sleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::budget::Budget;

/// Bytes a second that all writers together may write at the least pressure.
const FULL_RATE: f64 = 400e6;
/// Bytes a second at the greatest pressure short of a stop.
const LEAST_RATE: f64 = 2e6;
/// Debts below this many nanoseconds are carried over: a sleep is never shorter.
const WORTH_A_SLEEP: u64 = 100_000;
/// A single sleep lasts at most this many nanoseconds; the rest stays owed.
const LONGEST_SLEEP: u64 = 5_000_000;
/// Pressure begins when memtables use this share of their part of the budget.
const FREE_SHARE: f64 = 0.75;

/// No writer may go on.
pub(crate) const STOP: u32 = 1000;

/// What writers owe for the pressure they wrote under.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    owed_nanos: AtomicU64,
}

impl Stall {
    /// How long a writer of `bytes` under `pressure` has to sleep now, if at all.
    pub(crate) fn charge(&self, pressure: u32, bytes: usize) -> Option<Duration> {
        let cost = (bytes as f64 * nanos_per_byte(pressure)) as u64;
        let owed = self.owed_nanos.fetch_add(cost, Ordering::Relaxed) + cost;
        if owed < WORTH_A_SLEEP {
            return None;
        }
        let sleep = owed.min(LONGEST_SLEEP);
        let taken = self.owed_nanos.compare_exchange(
            owed,
            owed - sleep,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        taken.ok().map(|_| Duration::from_nanos(sleep))
    }
}

/// What a byte costs under `pressure`.
fn nanos_per_byte(pressure: u32) -> f64 {
    if pressure == 0 {
        return 0.0;
    }
    let left = f64::from(STOP.saturating_sub(pressure)) / f64::from(STOP);
    1e9 / (FULL_RATE * left * left).max(LEAST_RATE)
}

/// The pressure of memtables on their part of the budget.
pub(crate) fn memory_pressure(budget: &Budget) -> u32 {
    let share = budget.memtables_used() as f64 / budget.memtables as f64;
    if share <= FREE_SHARE {
        return 0;
    }
    (((share - FREE_SHARE) / (1.0 - FREE_SHARE) * f64::from(STOP)) as u32).min(STOP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_grows_smoothly_with_pressure() {
        assert_eq!(nanos_per_byte(0), 0.0);
        let costs: Vec<f64> = (1..STOP).map(nanos_per_byte).collect();
        assert!(costs.is_sorted());
        assert!(costs[0] < 3.0 && *costs.last().unwrap() <= 1e9 / LEAST_RATE);
        // No cliff: a thousandth more pressure never more than doubles the cost.
        assert!(costs.windows(2).all(|pair| pair[1] <= 2.0 * pair[0]));
    }

    #[test]
    fn debts_are_gathered_until_they_are_worth_a_sleep() {
        let stall = Stall::default();
        let mut slept = Duration::ZERO;
        for _ in 0..10_000 {
            if let Some(sleep) = stall.charge(500, 116) {
                assert!(sleep.as_nanos() as u64 >= WORTH_A_SLEEP);
                slept += sleep;
            }
        }
        let expected = 10_000.0 * 116.0 * nanos_per_byte(500) / 1e9;
        assert!((slept.as_secs_f64() - expected).abs() < 0.05 * expected);
    }

    #[test]
    fn memory_pressure_begins_late_and_ends_in_a_stop() {
        let budget = Budget::new(64 << 20);
        budget.grow_memtables(budget.memtables * 7 / 10);
        assert_eq!(memory_pressure(&budget), 0);
        budget.grow_memtables(budget.memtables * 2 / 10);
        assert!((500..700).contains(&memory_pressure(&budget)));
        budget.grow_memtables(budget.memtables);
        assert_eq!(memory_pressure(&budget), STOP);
    }
}
