//! Runs the operations of a phase on threads and takes their times.

use std::ops::Range;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use hdrhistogram::Histogram;

/// A thread of the benchmark panicked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Panicked;

impl std::fmt::Display for Panicked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a benchmark thread panicked")
    }
}

impl std::error::Error for Panicked {}

/// Is told how many more operations have ended, now and then, by any thread.
pub type Progress<'a> = dyn Fn(u64) + Sync + 'a;

/// Latencies from a nanosecond to an hour, to three digits.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are constants")
}

/// How many operations pass between two reports of progress.
const STEP: u64 = 4096;

/// The clock of one thread. A run of operations ends where the next one starts, so that each run costs one
/// look at the time.
pub struct Clock<'a> {
    /// How many operations share one look at the time, at least.
    run: u64,
    /// How many have ended since the last look.
    ended: u64,
    last: Instant,
    latencies: Histogram<u64>,
    progress: &'a Progress<'a>,
    unreported: u64,
}

impl<'a> Clock<'a> {
    fn start(run: u64, progress: &'a Progress<'a>) -> Self {
        let latencies = histogram();
        Self { run, ended: 0, last: Instant::now(), latencies, progress, unreported: 0 }
    }

    /// An operation has ended.
    #[inline]
    pub fn lap(&mut self) {
        self.laps(1);
    }

    /// `count` operations have ended.
    #[inline]
    pub fn laps(&mut self, count: u64) {
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
            (self.progress)(self.unreported);
            self.unreported = 0;
        }
    }
}

/// How long operations took.
#[derive(Debug)]
pub struct Times {
    /// From the start of the first thread to the end of the last.
    pub seconds: f64,
    /// Nanoseconds for each operation.
    pub latencies: Histogram<u64>,
}

/// Splits `count` operations over `threads` and runs `work` on each part. The time runs from the
/// start of the first thread, when all are ready, to the end of the last. The latencies are those of runs
/// of `latency_run` operations, at least 1.
///
/// # Errors
/// Those of `work`, of which the first thread's counts, and [`Panicked`].
pub fn run<E: From<Panicked> + Send>(
    threads: usize,
    count: usize,
    latency_run: u64,
    progress: &Progress<'_>,
    work: impl Fn(Range<usize>, &mut Clock<'_>) -> Result<(), E> + Sync,
) -> Result<Times, E> {
    let ready = Barrier::new(threads + 1);
    let (work, ready) = (&work, &ready);
    thread::scope(|scope| {
        let part = |i: usize| count * i / threads..count * (i + 1) / threads;
        let spawn = |i| {
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
            let (start, clock, end) = part.map_err(|_| Panicked)??;
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
            let times = run::<Panicked>(3, 100, latency_run, &|_| {}, |part, clock| {
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
        let times = run::<Panicked>(1, 10, 4, &|_| {}, |part, clock| {
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
        #[derive(Debug)]
        struct Wrong;
        impl From<Panicked> for Wrong {
            fn from(_: Panicked) -> Self {
                Self
            }
        }
        let work = |part: Range<usize>, _: &mut Clock<'_>| match part.start {
            0 => Ok(()),
            _ => Err(Wrong),
        };
        assert!(run(2, 10, 1, &|_| {}, work).is_err());
    }
}
