//! The threads of a simulation, of which one runs at a time, stay on one processor: where they are on several each of their many handings over wakes
//! one that has gone to sleep, which takes longer than most of what they do.

#[cfg(target_os = "linux")]
pub(crate) use self::linux::on_one;

/// Does `work`, wherever it is.
#[cfg(not(target_os = "linux"))]
pub(crate) fn on_one<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    /// On which processors somebody stays, as often as there is somebody.
    static TAKEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

    fn taken() -> MutexGuard<'static, Vec<usize>> {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work` on one processor, with all threads that it starts: one on which the fewest others are that do the same. Where the system refuses that
    /// `work` is done wherever it is.
    pub(crate) fn on_one<T>(work: impl FnOnce() -> T) -> T {
        let _stay = Stay::begin();
        work()
    }

    /// The calling thread is on one processor, until this is dropped.
    struct Stay {
        /// Those that it may be on otherwise.
        before: CpuSet,
        processor: usize,
    }

    impl Stay {
        /// `None` if there is no choice.
        fn begin() -> Option<Self> {
            let before = sched_getaffinity(None).ok().filter(|allowed| allowed.count() > 1)?;
            let allowed = (0..CpuSet::MAX_CPU).filter(|&at| before.is_set(at));
            let mut taken = taken();
            let processor = of_fewest(allowed, &taken, sched_getcpu())?;
            let mut one = CpuSet::new();
            one.set(processor);
            sched_setaffinity(None, &one).ok()?;
            taken.push(processor);
            Some(Self { before, processor })
        }
    }

    impl Drop for Stay {
        fn drop(&mut self) {
            // If that is refused it stays, which is slow at worst.
            _ = sched_setaffinity(None, &self.before);
            let mut taken = taken();
            if let Some(at) = taken.iter().position(|&processor| processor == self.processor) {
                taken.swap_remove(at);
            }
        }
    }

    /// Of those that are allowed one on which the fewest others are: the one that the caller is on, or the first.
    fn of_fewest(
        allowed: impl Iterator<Item = usize>,
        taken: &[usize],
        here: usize,
    ) -> Option<usize> {
        allowed.min_by_key(|&at| (taken.iter().filter(|&&other| other == at).count(), at != here))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn all_threads_are_on_one_processor_and_the_caller_on_any_afterwards() {
            let count = || sched_getaffinity(None).unwrap().count();
            let before = count();
            let there = on_one(|| [count(), std::thread::spawn(count).join().unwrap()]);
            let is_refused = sched_setaffinity(None, &sched_getaffinity(None).unwrap()).is_err();
            let one = if is_refused { before } else { 1 };
            assert_eq!((there, count()), ([one; 2], before));
            let panic = || on_one(|| panic!("it is wrong"));
            assert!(crate::panics::caught(panic).is_err());
            assert_eq!(count(), before);
        }

        #[test]
        fn each_goes_where_the_fewest_are() {
            let mut taken = Vec::new();
            for expected in [5, 2, 7, 5, 2, 7] {
                let at = of_fewest([2, 5, 7].into_iter(), &taken, 5);
                assert_eq!(at, Some(expected), "{taken:?}");
                taken.extend(at);
            }
            taken.retain(|&at| at != 7);
            assert_eq!(of_fewest([2, 5, 7].into_iter(), &taken, 5), Some(7));
            assert_eq!(of_fewest(std::iter::empty(), &taken, 5), None);
        }
    }
}
