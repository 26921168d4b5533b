//! Many cases on all processors, none of which may hang.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A case that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether one does.
const INTERVAL: Duration = Duration::from_millis(20);

/// What a thread works on, and since when.
type Slot<T> = Mutex<Option<(Instant, T)>>;

/// Calls `check` with all that `next` gives, in as many threads as there are processors. If a call takes longer than 30 s, the case is
/// printed and the process aborted: a thread that hangs cannot be ended in another way.
///
/// # Panics
/// As `check` does, when the other threads are done.
pub fn check_all<T: Clone + Debug + Send>(
    next: impl Fn() -> Option<T> + Sync,
    check: impl Fn(&T) + Sync,
) {
    let workers = std::thread::available_parallelism().map_or(2, |threads| threads.get());
    let slots: Vec<Slot<T>> = (0..workers).map(|_| Mutex::default()).collect();
    let is_over = AtomicBool::new(false);
    let work = |slot: &Slot<T>| {
        while let Some(case) = next() {
            set(slot, Some((Instant::now(), case.clone())));
            check(&case);
            set(slot, None);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| watch(&slots, &is_over));
        let workers: Vec<_> = slots.iter().map(|slot| scope.spawn(|| work(slot))).collect();
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        if let Some(panic) = ends.into_iter().find_map(Result::err) {
            std::panic::resume_unwind(panic);
        }
    });
}

fn set<T>(slot: &Slot<T>, case: Option<(Instant, T)>) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = case;
}

/// Aborts the process if a case hangs.
fn watch<T: Debug>(slots: &[Slot<T>], is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(INTERVAL);
        for slot in slots {
            if let Some((since, case)) = &*slot.lock().unwrap_or_else(PoisonError::into_inner)
                && since.elapsed() > PATIENCE
            {
                eprintln!("{case:?} hangs: it has taken more than {} s", PATIENCE.as_secs());
                std::process::abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn each_case_is_checked_once() {
        let next = AtomicUsize::new(0);
        let checked: [AtomicUsize; 1000] = std::array::from_fn(|_| AtomicUsize::new(0));
        check_all(
            || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|case| *case < checked.len()),
            |case| _ = checked[*case].fetch_add(1, Ordering::Relaxed),
        );
        assert!(checked.iter().all(|times| times.load(Ordering::Relaxed) == 1));
    }

    #[test]
    #[should_panic = "the seventh"]
    fn a_panic_of_the_check_goes_on_to_the_caller() {
        let next = AtomicUsize::new(0);
        check_all(
            || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|case| *case < 100),
            |case| assert_ne!(*case, 7, "the seventh"),
        );
    }
}
