//! Work in parts, which its owner does together with whoever helps.
//!
//! A part that nobody has begun is taken by the next who asks. The owner takes parts itself until none is left, and then
//! waits for those that others are at: so it never waits for somebody who has not begun, and there is an end if all others
//! are busy, or never come. If a part fails, is told to stop, or ends by a panic, no other is begun, and those that run are
//! asked to give up.
//!
//! Thread safety: everything may be called from any thread. The lock is held over no work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Parts of a job, that each give a `T`.
#[derive(Debug)]
pub(crate) struct Parts<J, T> {
    count: usize,
    status: Mutex<Status<J, T>>,
    changed: Condvar,
    gives_up: AtomicBool,
}

#[derive(Debug)]
struct Status<J, T> {
    /// What the parts are of, until all is finished: nobody who comes late holds on to it.
    job: Option<Arc<J>>,
    /// The next part to be begun.
    next: usize,
    running: usize,
    /// What parts gave, with their numbers.
    done: Vec<(usize, T)>,
    failed: Option<Error>,
}

/// What became of all parts.
#[derive(Debug)]
pub(crate) struct Outcome<T> {
    /// What those gave that were done, in their order.
    pub(crate) done: Vec<T>,
    /// Whether that is all of them; why not, if one has failed.
    pub(crate) is_whole: Result<bool>,
}

impl<J, T> Parts<J, T> {
    pub(crate) fn new(job: J, count: usize) -> Self {
        let job = Some(Arc::new(job));
        let status = Status { job, next: 0, running: 0, done: Vec::new(), failed: None };
        let (status, changed) = (Mutex::new(status), Condvar::new());
        Self { count, status, changed, gives_up: AtomicBool::new(false) }
    }

    /// Whether a part has come to nothing, so that the others are of no use.
    pub(crate) fn gives_up(&self) -> bool {
        self.gives_up.load(Ordering::Relaxed)
    }

    /// Does parts, given their numbers, until none is left. `work` gives `None` if it was told to stop.
    pub(crate) fn work(&self, work: impl Fn(&J, usize) -> Result<Option<T>>) {
        while let Some(mut part) = self.take() {
            part.given = Some(work(part.job(), part.number));
        }
    }

    fn take(&self) -> Option<Taken<'_, J, T>> {
        let mut status = self.lock();
        if status.next == self.count || self.gives_up() {
            return None;
        }
        let job = status.job.clone()?;
        let number = status.next;
        status.next += 1;
        status.running += 1;
        Some(Taken { parts: self, number, job: Some(job), given: None })
    }

    /// Waits for those who are at a part, when there is none left to begin.
    pub(crate) fn finish(&self) -> Outcome<T> {
        let is_running = |status: &mut Status<J, T>| status.running > 0;
        let status = self.changed.wait_while(self.lock(), is_running);
        let mut status = status.unwrap_or_else(PoisonError::into_inner);
        status.job = None;
        let mut done = std::mem::take(&mut status.done);
        done.sort_by_key(|(number, _)| *number);
        let is_whole = match status.failed.take() {
            Some(error) => Err(error),
            None => Ok(done.len() == self.count),
        };
        Outcome { done: done.into_iter().map(|(_, given)| given).collect(), is_whole }
    }

    fn lock(&self) -> MutexGuard<'_, Status<J, T>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part that somebody is at, until this is dropped, also by a panic.
struct Taken<'a, J, T> {
    parts: &'a Parts<J, T>,
    number: usize,
    job: Option<Arc<J>>,
    given: Option<Result<Option<T>>>,
}

impl<J, T> Taken<'_, J, T> {
    fn job(&self) -> &J {
        self.job.as_ref().expect("it goes when this is dropped")
    }
}

impl<J, T> Drop for Taken<'_, J, T> {
    fn drop(&mut self) {
        self.job = None;
        let mut status = self.parts.lock();
        status.running -= 1;
        match self.given.take() {
            Some(Ok(Some(given))) => status.done.push((self.number, given)),
            Some(Ok(None)) => self.parts.gives_up.store(true, Ordering::Relaxed),
            failed => {
                self.parts.gives_up.store(true, Ordering::Relaxed);
                let panicked = || Error::Poisoned { cause: "a compaction ended by a panic".into() };
                let error = failed.and_then(Result::err).unwrap_or_else(panicked);
                status.failed.get_or_insert(error);
            }
        }
        drop(status);
        self.parts.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::channel;

    use super::*;

    fn error() -> Error {
        Error::Invalid("on purpose".into())
    }

    #[test]
    fn the_owner_does_all_if_nobody_helps() {
        let parts = Parts::new((), 5);
        parts.work(|(), number| Ok(Some(number)));
        let Outcome { done, is_whole } = parts.finish();
        assert_eq!((done, is_whole.unwrap()), (vec![0, 1, 2, 3, 4], true));
        // Whoever comes late finds nothing to do.
        parts.work(|(), _| unreachable!());
    }

    #[test]
    fn parts_are_shared_and_come_back_in_their_order() {
        let parts = Arc::new(Parts::new((), 2));
        let (begun, is_begun) = channel();
        let (go_on, may_go_on) = channel();
        let theirs = Arc::clone(&parts);
        let helper = std::thread::spawn(move || {
            theirs.work(|(), number| {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
                Ok(Some(number))
            });
        });
        is_begun.recv().unwrap();
        // The helper has the first part and goes on only when the second one is done.
        parts.work(|(), number| {
            go_on.send(()).unwrap();
            Ok(Some(number))
        });
        let Outcome { done, is_whole } = parts.finish();
        assert_eq!((done, is_whole.unwrap()), (vec![0, 1], true));
        helper.join().unwrap();
    }

    #[test]
    fn one_that_comes_to_nothing_ends_all() {
        for (given, expected) in [(Ok(None), Ok(false)), (Err(error()), Err(error()))] {
            let parts = Parts::new((), 3);
            let count = AtomicUsize::new(0);
            parts.work(|(), number| {
                count.fetch_add(1, Ordering::Relaxed);
                assert!(!parts.gives_up());
                if number == 1 { given.clone() } else { Ok(Some(number)) }
            });
            assert!(parts.gives_up() && count.into_inner() == 2);
            let Outcome { done, is_whole } = parts.finish();
            assert_eq!(done, [0], "what was done is for the owner to take away");
            assert_eq!(format!("{is_whole:?}"), format!("{expected:?}"));
        }
    }

    #[test]
    fn a_panic_of_a_helper_is_an_error_for_the_owner() {
        let parts = Arc::new(Parts::<_, ()>::new((), 2));
        let theirs = Arc::clone(&parts);
        let helper = std::thread::spawn(move || theirs.work(|(), _| panic!("on purpose")));
        assert!(helper.join().is_err());
        parts.work(|(), _| unreachable!());
        assert!(matches!(parts.finish().is_whole, Err(Error::Poisoned { .. })));
    }
}
