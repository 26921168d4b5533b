//! Work on all processors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::report::{Report, Violation, WHOLE};

/// Tries `cases` on as many threads as there are processors.
///
/// # Panics
/// As `attempt` does, when the other threads are done.
pub fn each<T>(cases: impl Iterator<Item = T> + Send, attempt: impl Fn(T) + Sync) {
    let cases = Mutex::new(cases);
    let next = || cases.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(case) = next() {
            attempt(case);
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        if let Some(panic) = ends.into_iter().find_map(Result::err) {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Tries `cases` like [`each`], the first one at least, for as long as it is to `go_on` with the next one, and adds up what comes of them. When so much is wrong
/// that nobody would read more of it, no more is tried. The report says by [`WHOLE`] if all were.
pub(crate) fn sum<T>(
    cases: impl Iterator<Item = T> + Send,
    go_on: impl Fn(&T) -> bool + Sync,
    attempt: impl Fn(T) -> Report + Sync,
) -> Report {
    let (sum, cut_short) = (Mutex::new(Report::default()), AtomicBool::new(false));
    let is_full = || sum.lock().unwrap_or_else(PoisonError::into_inner).is_full();
    let mut is_first = true;
    let cases = cases.take_while(|case| {
        let goes_on = std::mem::take(&mut is_first) || go_on(case) && !is_full();
        cut_short.fetch_or(!goes_on, Ordering::Relaxed);
        goes_on
    });
    each(cases, |case| {
        let report = attempt(case);
        *sum.lock().unwrap_or_else(PoisonError::into_inner) += report;
    });
    let mut sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    sum.count(WHOLE, (!cut_short.into_inner()).into());
    sum
}

/// Tries `cases` like [`sum`] until one fails.
pub(crate) fn sum_until_wrong<T>(
    cases: impl Iterator<Item = T> + Send,
    go_on: impl Fn(&T) -> bool + Sync,
    attempt: impl Fn(T) -> Report + Sync,
) -> Report {
    let is_wrong = AtomicBool::new(false);
    let go_on = |case: &T| !is_wrong.load(Ordering::Relaxed) && go_on(case);
    sum(cases, go_on, |case| {
        let report = attempt(case);
        is_wrong.fetch_or(!report.violations.is_empty(), Ordering::Relaxed);
        report
    })
}

/// Tries `cases` like [`sum`] until one fails or the time is over, and gives what is wrong then.
pub(crate) fn first_failing<T>(
    cases: impl Iterator<Item = T> + Send,
    until: Instant,
    attempt: impl Fn(T) -> Report + Sync,
) -> Option<Violation> {
    sum_until_wrong(cases, |_| Instant::now() < until, attempt).violations.into_iter().next()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn each_case_is_tried_once() {
        let tried: [AtomicUsize; 1000] = std::array::from_fn(|_| AtomicUsize::new(0));
        each(0..tried.len(), |case| _ = tried[case].fetch_add(1, Ordering::Relaxed));
        assert!(tried.iter().all(|times| times.load(Ordering::Relaxed) == 1));
    }

    #[test]
    #[should_panic = "the seventh"]
    fn a_panic_goes_on_to_the_caller() {
        each(0..100, |case| assert_ne!(case, 7, "the seventh"));
    }

    #[test]
    fn reports_are_added_up_until_too_much_is_wrong() {
        let fine = |_| Report { cases: 1, ..Report::default() };
        let whole = sum(0..100, |_| true, fine);
        assert_eq!((whole.cases, whole.counts[WHOLE]), (100, 1));
        for goes_on_to in [0, 5] {
            let part = sum(0..100, |&case| case < goes_on_to, fine);
            assert_eq!((part.cases, part.counts[WHOLE]), (goes_on_to.max(1), 0));
        }
        let wrong = |case: u32| Report::of_violation(case, "it is wrong".into());
        let violations = sum(0.., |_| true, wrong).violations.len();
        assert!((Report::MOST_VIOLATIONS..Report::MOST_VIOLATIONS + 100).contains(&violations));
        let soon = Instant::now() + std::time::Duration::from_secs(600);
        assert!(first_failing(0..100, soon, fine).is_none());
        assert_eq!(first_failing(0.., soon, wrong).unwrap().problem, "it is wrong");
    }
}
