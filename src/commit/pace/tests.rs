//! What a byte costs; the clock; memory.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn cost_grows_by_equal_factors() {
    assert_eq!(nanos_per_byte(0), 0.0);
    let costs: Vec<f64> = (1..STOP).map(nanos_per_byte).collect();
    assert!(costs[0] < 1.01 && *costs.last().unwrap() <= 1e9 / LEAST_RATE);
    let factor = costs[1] / costs[0];
    assert!(factor > 1.0 && factor < 1.01);
    assert!(costs.windows(2).all(|pair| (pair[1] / pair[0] / factor - 1.0).abs() < 1e-9));
}

#[test]
fn nothing_is_paid_without_pressure() {
    let pace = Pace::default();
    assert_eq!(pace.charge((0, 0), usize::MAX, || unreachable!("nobody needs the time")), None);
}

#[test]
fn costs_are_gathered_and_paid_by_all_writers_on_one_clock() {
    let pace = Pace::default();
    let (mut slept, mut now) = (Duration::ZERO, SECOND);
    for _ in 0..100_000 {
        if let Some(sleep) = pace.charge((600, 0), 116, || now) {
            assert!(sleep <= LONGEST);
            slept += sleep;
            now += sleep;
        }
    }
    let expected = 100_000.0 * 116.0 * nanos_per_byte(600) / 1e9;
    let paid = (slept + CREDIT).as_secs_f64();
    assert!((paid - expected).abs() < 0.01 * expected, "{paid} of {expected} s");
    // Two that come at the same time sleep one after the other.
    let first = pace.charge((600, 0), 100_000, || now).unwrap();
    let second = pace.charge((600, 0), 100_000, || now).unwrap();
    assert!(second.as_secs_f64() / first.as_secs_f64() > 1.9);
}

#[test]
fn a_sleep_that_lasts_too_long_is_made_up_for() {
    let mut clock = Clock::default();
    clock.pay(at(1000), at(30));
    assert_eq!(clock.pay(at(1023), at(4)), at(1));
    // It was told to sleep until 1024.
    assert_eq!(clock.pay(at(1030), at(4)), Duration::ZERO);
    assert_eq!(clock.pay(at(1030), at(4)), at(2));
    // More than the credit is not made up for.
    assert_eq!(clock.pay(at(9000), at(25)), at(15));
}

#[test]
fn no_write_sleeps_for_ever() {
    let pace = Pace::default();
    for _ in 0..4 {
        assert_eq!(pace.charge((STOP - 1, 0), 1 << 30, || SECOND), Some(LONGEST));
    }
    assert_eq!(pace.charge((0, STOP - 1), 1 << 30, || SECOND), Some(LONGEST));
}

#[test]
fn the_mean_follows_pressure_and_goes_when_there_is_none() {
    let mut clock = Clock::default();
    assert_eq!(clock.look(100 * SECOND, 500), 500, "what was before is too long ago");
    assert_eq!(clock.look(108 * SECOND, 0), 10, "and is forgotten faster when nothing is due");
    assert_eq!(clock.look(120 * SECOND, 0), 0);
    let mean = clock.look(120 * SECOND + MEMORY, 1000);
    assert_eq!(mean, 633);
    // Time does not go back.
    assert_eq!(clock.look(100 * SECOND, 0), mean);
    assert_eq!((counted(0, 400), counted(400, 0), counted(400, 400)), (350, 50, 400));
    assert_eq!((counted(HIGH, 0), counted(HIGH, STOP)), (HIGH, 975));
}

#[test]
fn memory_pressure_begins_late_and_ends_in_a_stop() {
    let budget = Budget::new(64 << 20);
    // One memtable is written to files while the next one is filled.
    budget.grow_memtables(budget.memtables * 65 / 100);
    assert_eq!(memory_pressure(&budget), 0);
    budget.grow_memtables(budget.memtables * 20 / 100);
    assert!((500..700).contains(&memory_pressure(&budget)));
    budget.grow_memtables(budget.memtables);
    assert_eq!(memory_pressure(&budget), STOP);
}
