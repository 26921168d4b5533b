//! The threads of a simulation, of which one runs at a time, stay on one processor: where they are on several each of their many handings over wakes
//! one that has gone to sleep, which takes longer than most of what they do.

#[cfg(target_os = "linux")]
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// On which processors somebody stays, as often as there is somebody.
#[cfg(target_os = "linux")]
static TAKEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Does `work` on one processor, of those that the calling thread may be on, that of the fewest others who do the same. Threads that it starts stay there, too. Where the
/// system has no such thing `work` is done wherever it is.
#[cfg(target_os = "linux")]
pub(crate) fn on_one<T>(work: impl FnOnce() -> T) -> T {
    let _stay = Stay::begin();
    work()
}

/// Does `work`, wherever it is.
#[cfg(not(target_os = "linux"))]
pub(crate) fn on_one<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[cfg(target_os = "linux")]
fn taken() -> MutexGuard<'static, Vec<usize>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first of those that are allowed, of those with the fewest others on them.
#[cfg(target_os = "linux")]
fn of_fewest(allowed: impl Iterator<Item = usize>, taken: &[usize]) -> Option<usize> {
    allowed.min_by_key(|at| taken.iter().filter(|&other| other == at).count())
}

/// The calling thread is on one processor, until this is dropped.
#[cfg(target_os = "linux")]
struct Stay {
    /// Those that it may be on otherwise.
    before: CpuSet,
    processor: usize,
}

#[cfg(target_os = "linux")]
impl Stay {
    /// `None` if there is no choice.
    fn begin() -> Option<Self> {
        let before = sched_getaffinity(None).ok().filter(|allowed| allowed.count() > 1)?;
        let mut taken = taken();
        let allowed = (0..CpuSet::MAX_CPU).filter(|&at| before.is_set(at));
        let processor = of_fewest(allowed, &taken)?;
        let mut one = CpuSet::new();
        one.set(processor);
        sched_setaffinity(None, &one).ok()?;
        taken.push(processor);
        Some(Self { before, processor })
    }
}

#[cfg(target_os = "linux")]
impl Drop for Stay {
    fn drop(&mut self) {
        // If that is refused it stays, which is slow at worst.
        _ = sched_setaffinity(None, &self.before);
        let mut taken = taken();
        let at = taken.iter().position(|&processor| processor == self.processor);
        at.map(|at| taken.swap_remove(at));
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn all_threads_are_on_one_processor_and_the_caller_on_any_afterwards() {
        let count = || sched_getaffinity(None).unwrap().count();
        let before = count();
        let there = on_one(|| [count(), std::thread::spawn(count).join().unwrap()]);
        assert_eq!((there, count()), ([1, 1], before));
        let panic = || on_one(|| panic!("it is wrong"));
        assert!(crate::panics::caught(panic).is_err());
        assert_eq!(count(), before);
    }

    #[test]
    fn each_goes_where_the_fewest_are() {
        let mut taken = Vec::new();
        for expected in [2, 5, 7, 2, 5, 7] {
            let at = of_fewest([2, 5, 7].into_iter(), &taken);
            assert_eq!(at, Some(expected), "{taken:?}");
            taken.extend(at);
        }
        taken.retain(|&at| at != 5);
        assert_eq!(of_fewest([2, 5, 7].into_iter(), &taken), Some(5));
        assert_eq!(of_fewest(std::iter::empty(), &taken), None);
    }
}
