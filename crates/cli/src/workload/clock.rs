//! Runs the operations of a phase on threads and takes their times.

use std::ops::Range;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use hdrhistogram::Histogram;
use indicatif::ProgressBar;

use crate::failure::{Exit, Failure, Result};

/// Latencies from a nanosecond to an hour, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are constants")
}

/// How many operations pass between two steps of the progress bar.
const STEP: u64 = 4096;

/// The clock of one thread. A run of operations ends where the next one starts, so that each run costs one
/// look at the time.
pub(super) struct Clock {
    /// How many operations share one look at the time, at least.
    run: u64,
    /// How many have ended since the last look.
    ended: u64,
    last: Instant,
    latencies: Histogram<u64>,
    progress: ProgressBar,
    unreported: u64,
}

impl Clock {
    fn start(run: u64, progress: ProgressBar) -> Self {
        let latencies = histogram();
        Self { run, ended: 0, last: Instant::now(), latencies, progress, unreported: 0 }
    }

    /// An operation has ended.
    #[inline]
    pub(super) fn lap(&mut self) {
        self.laps(1);
    }

    /// `count` operations have ended.
    #[inline]
    pub(super) fn laps(&mut self, count: u64) {
        self.ended += count;
        if self.ended >= self.run {
            self.look();
        }
    }

    /// Takes the time of the operations since the last look; each is taken to have lasted as long as the
    /// others.
    fn look(&mut self) {
        let count = std::mem::take(&mut self.ended);
        if count == 0 {
            return;
        }
        let now = Instant::now();
        let nanoseconds = (now - self.last).as_nanos() as u64;
        self.last = now;
        self.latencies.saturating_record_n(nanoseconds / count, count);
        self.unreported += count;
        if self.unreported >= STEP {
            self.progress.inc(self.unreported);
            self.unreported = 0;
        }
    }
}

/// How long a phase took.
pub(super) struct Times {
    pub(super) seconds: f64,
    /// Nanoseconds for each operation.
    pub(super) latencies: Histogram<u64>,
}

/// Splits `count` operations over `threads` and runs `work` on each part. The time runs from the
/// start of the first thread, when all are ready, to the end of the last. The latencies are those of runs
/// of `latency_run` operations, at least 1.
pub(super) fn run(
    threads: usize,
    count: usize,
    latency_run: u64,
    progress: &ProgressBar,
    work: impl Fn(Range<usize>, &mut Clock) -> Result<()> + Sync,
) -> Result<Times> {
    let ready = Barrier::new(threads + 1);
    let (work, ready) = (&work, &ready);
    thread::scope(|scope| {
        let part = |i: usize| count * i / threads..count * (i + 1) / threads;
        let spawn = |i| {
            let progress = progress.clone();
            scope.spawn(move || {
                let mut clock = Clock::start(latency_run, progress);
                ready.wait();
                let start = Instant::now();
                clock.last = start;
                work(part(i), &mut clock).map(|()| {
                    clock.look();
                    (start, clock, Instant::now())
                })
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        ready.wait();
        let parts: Vec<_> = handles.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let mut latencies = histogram();
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for part in parts {
            let part =
                part.map_err(|_| Failure::new(Exit::Other, "a benchmark thread panicked"))?;
            let (start, clock, end) = part?;
            starts.push(start);
            ends.push(end);
            latencies.add(&clock.latencies).expect("all histograms have the same bounds");
        }
        let whole = starts.iter().min().zip(ends.iter().max());
        let seconds = whole.map_or(0.0, |(start, &end)| (end - *start).as_secs_f64());
        Ok(Times { seconds, latencies })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn threads_split_all_operations() {
        for latency_run in [1, 16, 1000] {
            let sum = AtomicUsize::new(0);
            let times = run(3, 100, latency_run, &ProgressBar::hidden(), |part, clock| {
                for i in part {
                    sum.fetch_add(i, Ordering::Relaxed);
                    clock.lap();
                }
                Ok(())
            });
            assert_eq!(sum.into_inner(), 4950);
            assert_eq!(times.unwrap().latencies.len(), 100);
        }
    }

    #[test]
    fn a_run_shares_its_time() {
        let times = run(1, 10, 4, &ProgressBar::hidden(), |part, clock| {
            for i in part {
                if i % 4 == 0 {
                    thread::sleep(Duration::from_millis(4));
                }
                clock.lap();
            }
            Ok(())
        });
        // Runs of 4, 4 and 2 operations, with one pause each.
        let latencies = times.unwrap().latencies;
        assert!(latencies.min() >= 999_000, "{}", latencies.min());
        assert!(latencies.max() >= 1_999_000, "{}", latencies.max());
    }

    #[test]
    fn an_error_is_handed_out() {
        let work = |part: Range<usize>, _: &mut Clock| match part.start {
            0 => Ok(()),
            _ => Err(Failure::damaged("wrong")),
        };
        assert!(run(2, 10, 1, &ProgressBar::hidden(), work).is_err());
    }
}
