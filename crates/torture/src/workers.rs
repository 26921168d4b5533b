//! Work on all processors.

use std::sync::{Mutex, PoisonError};

use crate::report::Report;

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

/// Tries `cases` like [`each`], and adds up what comes of them. When so much is wrong that nobody would read more of it, no more is tried.
pub(crate) fn sum<T>(
    cases: impl Iterator<Item = T> + Send,
    attempt: impl Fn(T) -> Report + Sync,
) -> Report {
    let sum = Mutex::new(Report::default());
    let is_full = || sum.lock().unwrap_or_else(PoisonError::into_inner).is_full();
    each(cases.take_while(|_| !is_full()), |case| {
        let report = attempt(case);
        *sum.lock().unwrap_or_else(PoisonError::into_inner) += report;
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(sum(0..100, fine).cases, 100);
        let wrong = |case: u32| Report::of_violation(case, "it is wrong".into());
        let violations = sum(0.., wrong).violations.len();
        assert!((Report::MOST_VIOLATIONS..Report::MOST_VIOLATIONS + 100).contains(&violations));
    }
}
