//! Work on several threads at the same time.

use std::sync::Barrier;

/// What one of several threads does.
pub(crate) type Work<T> = Box<dyn FnOnce() -> T + Send>;

/// Does all at the same time, and gives what comes of each. With the feature `simulation` the threads may be those of the simulation that this one
/// belongs to.
///
/// # Panics
/// If one of them does.
pub(crate) fn together<T: Send + 'static>(works: Vec<Work<T>>, in_simulation: bool) -> Vec<T> {
    #[cfg(feature = "simulation")]
    if in_simulation {
        return turbidite::simulation::together(works);
    }
    let _ = in_simulation;
    let begin = Barrier::new(works.len());
    let begin = &begin;
    std::thread::scope(|scope| {
        let start = |work: Work<T>| {
            scope.spawn(move || {
                begin.wait();
                work()
            })
        };
        let threads: Vec<_> = works.into_iter().map(start).collect();
        let ends = threads.into_iter().map(|thread| thread.join());
        ends.map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}
