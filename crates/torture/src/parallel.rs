//! Work on all processors.

use std::sync::{Mutex, PoisonError};

use crate::report::Report;

/// Tries `cases` on as many threads as there are processors, and adds up what comes of them.
pub(crate) fn each<T>(
    cases: impl Iterator<Item = T> + Send,
    attempt: impl Fn(T) -> Report + Sync,
) -> Report {
    let cases = Mutex::new(cases);
    let work = || {
        let mut sum = Report::default();
        loop {
            let case = cases.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(case) = case else { return sum };
            sum += attempt(case);
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut sum = Report::default();
        for worker in workers {
            sum += worker.join().expect("panics of cases are caught");
        }
        sum
    })
}
