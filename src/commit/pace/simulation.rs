//! A store that is fed as fast as it takes, on a clock of its own: a level 0 whose runs are merged at a given speed, memtables,
//! and writers that do nothing else than put.

use super::*;

const MIB: f64 = (1 << 20) as f64;
/// A flush ends at a sync, and a merge too.
const SYNC: f64 = 0.01;
/// What a put takes, by itself, of a lock that all have to take.
const PUT: f64 = 4e-6;
/// Level 0 is merged from so many runs on, up to so many at once.
const RUNS: std::ops::RangeInclusive<usize> = 4..=16;

/// How fast things are, in bytes a second.
struct Speeds {
    merge: f64,
    flush: f64,
}

struct Store {
    speeds: Speeds,
    /// The bytes of a full memtable, of the active one and of those that wait to be flushed.
    memtable: f64,
    active: f64,
    frozen: f64,
    /// When the flush and the merge that run end, and how many runs that merges.
    flushed: Option<f64>,
    runs: usize,
    merged: Option<(f64, usize)>,
}

impl Store {
    fn new(memtable: f64, speeds: Speeds) -> Self {
        let (active, frozen, flushed, runs, merged) = (0.0, 0.0, None, 0, None);
        Self { speeds, memtable, active, frozen, flushed, runs, merged }
    }

    /// Does what the background has done until `now`.
    fn run_until(&mut self, now: f64) {
        if self.flushed.is_some_and(|at| at <= now) {
            self.flushed = None;
            self.frozen -= 1.0;
            self.runs += 1;
        }
        if let Some((_, runs)) = self.merged.take_if(|(at, _)| *at <= now) {
            self.runs -= runs;
        }
        if self.flushed.is_none() && self.frozen > 0.0 {
            self.flushed = Some(now + self.memtable / self.speeds.flush + SYNC);
        }
        if self.merged.is_none() && self.runs >= *RUNS.start() {
            let runs = self.runs.min(*RUNS.end());
            // With the level below, and all that goes on from there.
            let bytes = self.memtable * (6 * runs + 12) as f64;
            self.merged = Some((now + bytes / self.speeds.merge + SYNC, runs));
        }
    }

    fn pressures(&self) -> (u32, u32) {
        let memory = pressure_of_share((self.active / self.memtable + self.frozen) / 3.0);
        (memory, (self.runs.saturating_sub(12) * 1000 / 28).min(1000) as u32)
    }

    fn take(&mut self, bytes: f64) {
        self.active += bytes;
        if self.active >= self.memtable {
            self.active = 0.0;
            self.frozen += 1.0;
        }
    }
}

/// What writers saw.
struct Seen {
    /// How long each put took, in microseconds, ascending.
    waits: Vec<u32>,
    /// What was written in each second.
    rates: Vec<f64>,
    most_runs: usize,
}

impl Seen {
    fn longest(&self) -> u32 {
        *self.waits.last().unwrap()
    }

    /// The wait that one put of a thousand has exceeded.
    fn thousandth(&self) -> u32 {
        self.waits[self.waits.len() - 1 - self.waits.len() / 1000]
    }

    /// The mean rate of the second half, and how far seconds of it are from that, in parts of it.
    fn rate(&self) -> (f64, f64) {
        let settled = &self.rates[self.rates.len() / 2..];
        let mean = settled.iter().sum::<f64>() / settled.len() as f64;
        let squares = settled.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
        (mean, (squares / settled.len() as f64).sqrt() / mean)
    }
}

/// Has so many `writers` put values of so many `bytes` for so many seconds, but for those in which they `pause`.
fn feed(
    mut store: Store,
    (writers, bytes): (usize, usize),
    seconds: usize,
    pauses: impl Fn(f64) -> bool,
) -> Seen {
    let pace = Pace::default();
    let mut seen = Seen { waits: Vec::new(), rates: vec![0.0; seconds], most_runs: 0 };
    // When each writer asks next, and since when it has waited.
    let mut clocks = vec![(1e-6_f64, 1e-6_f64); writers];
    let mut lock_free = 0.0_f64;
    while let Some(writer) = clocks.iter_mut().min_by(|a, b| a.0.total_cmp(&b.0))
        && writer.0 < seconds as f64
    {
        let now = writer.0;
        store.run_until(now);
        if pauses(now) {
            *writer = (now + 0.01, now + 0.01);
            continue;
        }
        let pressures = store.pressures();
        if pressures.0.max(pressures.1) >= STOP {
            writer.0 = now + 1e-3;
            continue;
        }
        let sleep = pace.charge(pressures, bytes, || Duration::from_secs_f64(now));
        // A sleep lasts longer than it was to.
        let slept = sleep.map_or(now, |sleep| now + sleep.as_secs_f64() + 60e-6);
        lock_free = lock_free.max(slept) + PUT;
        store.take(bytes as f64);
        seen.most_runs = seen.most_runs.max(store.runs);
        seen.rates[now as usize] += bytes as f64;
        seen.waits.push(((lock_free - writer.1) * 1e6) as u32);
        *writer = (lock_free, lock_free);
    }
    seen.waits.sort_unstable();
    seen
}

fn never(_: f64) -> bool {
    false
}

#[test]
fn a_store_that_is_fed_comes_to_a_steady_rate_and_nobody_waits_long() {
    // The slower merges are, the longer is each of them: of the slowest here, half a minute.
    for (merge, writers, most_spread) in [
        (20.0, (4, 4096), 0.9),
        (40.0, (4, 4096), 0.6),
        (100.0, (1, 1040), 0.3),
        (100.0, (4, 1040), 0.3),
        (300.0, (4, 4096), 0.15),
    ] {
        let speeds = Speeds { merge: merge * MIB, flush: 150.0 * MIB };
        let seen = feed(Store::new(4.0 * MIB, speeds), writers, 90, never);
        let (rate, spread) = seen.rate();
        let what = format!(
            "merges at {merge} MiB/s, {writers:?}: {:.1} MiB/s +- {:.0} %, {} and {} us, {} runs",
            rate / MIB,
            spread * 100.0,
            seen.thousandth(),
            seen.longest(),
            seen.most_runs
        );
        // All the background can do: a merge of 16 runs takes as much as 108 memtables.
        let most = merge * MIB * 16.0 / 108.0;
        assert!(rate > 0.85 * most && rate < 1.15 * most, "{what}");
        assert!(spread < most_spread, "{what}");
        assert!(writers.1 > 1040 || seen.thousandth() < 10_000, "{what}");
        assert!(seen.longest() < 100_000 && seen.most_runs < 40, "{what}");
    }
}

#[test]
fn bursts_after_pauses_are_taken_at_once() {
    let speeds = Speeds { merge: 200.0 * MIB, flush: 200.0 * MIB };
    // A second of writing, and then nine in which the background catches up.
    let pauses = |now: f64| !(now as usize).is_multiple_of(10);
    let seen = feed(Store::new(4.0 * MIB, speeds), (4, 4096), 60, pauses);
    let bursts: Vec<f64> = seen.rates.iter().step_by(10).map(|rate| rate / MIB).collect();
    assert!(bursts.iter().all(|&burst| burst > 0.8 * bursts[0]), "{bursts:?}");
    assert!(seen.thousandth() < 10_000 && seen.longest() < 250_000);
}

#[test]
fn slow_flushes_slow_writers_before_memory_is_full() {
    for (flush, most_spread) in [(2.0, 0.9), (10.0, 0.2), (50.0, 0.1)] {
        let speeds = Speeds { merge: 1e4 * MIB, flush: flush * MIB };
        let seen = feed(Store::new(4.0 * MIB, speeds), (4, 1040), 40, never);
        let (rate, spread) = seen.rate();
        let what =
            format!("{:.1} MiB/s +- {:.0} %, {} us", rate / MIB, spread * 100.0, seen.longest());
        assert!(rate > 0.8 * flush * MIB && spread < most_spread, "{what}");
        assert!(seen.longest() < 20_000, "{what}");
        assert!(flush < 10.0 || seen.thousandth() < 10_000, "{what}");
    }
}
