//! Background threads and their queue of jobs.
//!
//! Jobs that are *pressing* go first: what writers or readers will soon be slowed down without, such as the merging of a level 0.
//! Among the others, and among those, it is the one that has waited longest. An engine queues its next job when one has
//! begun or is done, so engines take turns. What is not pressing waits for [`PATIENCE`] others at most, so nobody starves.
//!
//! A job that has to wait may step aside ([`step_aside`](Workers::step_aside)): meanwhile another thread takes the place of its own.
//!
//! Thread safety: everything may be called from any thread. A job that panics does not take its thread
//! down; the hook given at the start is told.
//!
//! Locks: the queue's, then the list of threads.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use crate::base::checksum;
use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, MutexGuard, thread::JoinHandle};

/// So many pressing jobs go before one that is not.
const PATIENCE: u32 = 8;
/// So many jobs may stand aside at a time.
const MOST_ASIDE: usize = 16;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Which workers a thread belongs to, by the address of what they share.
    static GROUP: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A job that waits, and whether it is pressing, which may change meanwhile.
struct Waiting<J> {
    is_pressing: Arc<AtomicBool>,
    job: J,
}

struct Queue<J> {
    waiting: VecDeque<Waiting<J>>,
    /// How many pressing jobs went before one that is not and waits.
    passed: u32,
    /// How many threads there are, and how many of them are in jobs that stand aside.
    threads: usize,
    aside: usize,
    stopping: bool,
}

impl<J> Default for Queue<J> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), passed: 0, threads: 0, aside: 0, stopping: false }
    }
}

impl<J> Queue<J> {
    /// The next job.
    fn take(&mut self) -> Option<J> {
        let is_pressing = |waiting: &Waiting<J>| waiting.is_pressing.load(Ordering::Relaxed);
        let pressing = self.waiting.iter().position(is_pressing);
        let other = self.waiting.iter().position(|waiting| !is_pressing(waiting));
        let at = match (pressing, other) {
            (Some(at), None) => at,
            (Some(at), Some(_)) if self.passed < PATIENCE => {
                self.passed += 1;
                at
            }
            (_, other) => {
                self.passed = 0;
                other?
            }
        };
        self.waiting.remove(at).map(|waiting| waiting.job)
    }
}

type OnPanic = Box<dyn Fn(&str) + Send + Sync>;

struct Shared {
    name: String,
    /// So many threads are to run jobs, not counting those that stand aside.
    count: usize,
    on_panic: OnPanic,
    queue: Mutex<Queue<Job>>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue<Job>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread, which the caller counts.
    fn spawn(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let shared = Arc::clone(self);
        let work = checksum::carry_over(move || {
            GROUP.set(Some(shared.address()));
            while let Some(job) = shared.next() {
                shared.run(job);
            }
        });
        crate::sync::thread::Builder::new().name(self.name.clone()).spawn(work)
    }

    /// Waits for a job; `None` at the stop, or if there are more threads than there are to be.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        while !queue.stopping && queue.threads <= self.count + queue.aside {
            if let Some(job) = queue.take() {
                return Some(job);
            }
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.threads -= 1;
        if !queue.waiting.is_empty() {
            // It may be this thread that was woken for what came.
            self.wake.notify_one();
        }
        None
    }

    fn run(&self, job: Job) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
            (self.on_panic)(crate::sync::message(&*panic));
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// A job that stands aside, until this is dropped.
#[must_use]
pub(crate) struct Aside<'a>(&'a Shared);

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        self.0.lock().aside -= 1;
        // The first thread that has nothing to do ends.
        self.0.wake.notify_one();
    }
}

/// A group of threads that run jobs.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    /// Starts `count` threads called `name`; `on_panic` gets the message of a job that panicked.
    pub(crate) fn start(
        name: &str,
        count: usize,
        on_panic: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            count,
            on_panic: Box::new(on_panic),
            queue: Mutex::default(),
            wake: Condvar::new(),
        });
        let workers = Self { shared, threads: Mutex::default() };
        for _ in 0..count {
            // If this fails, dropping the workers ends those that there are.
            workers
                .add_thread(&mut workers.shared.lock())
                .map_err(|error| Error::io("start a thread for", name.as_ref(), None, error))?;
        }
        Ok(workers)
    }

    fn add_thread(&self, queue: &mut Queue<Job>) -> std::io::Result<()> {
        let thread = self.shared.spawn()?;
        queue.threads += 1;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Queues a job, which is pressing for as long as that says so; it is dropped if the workers have been stopped.
    pub(crate) fn submit(
        &self,
        is_pressing: &Arc<AtomicBool>,
        job: impl FnOnce() + Send + 'static,
    ) {
        let mut queue = self.shared.lock();
        if !queue.stopping {
            let is_pressing = Arc::clone(is_pressing);
            queue.waiting.push_back(Waiting { is_pressing, job: Box::new(job) });
            self.shared.wake.notify_one();
        }
    }

    /// Has another thread do what waits until the result is dropped, which the job that calls this does when it goes on; then
    /// there is a thread more than there are to be, until one of them has done what it is at. `None` for who is none of these threads, at the stop, if
    /// too many jobs stand aside or if the system gives no thread: then what waits has to wait.
    pub(crate) fn step_aside(&self) -> Option<Aside<'_>> {
        if !self.has_this_thread() {
            return None;
        }
        let mut queue = self.shared.lock();
        if queue.stopping || queue.aside == MOST_ASIDE {
            return None;
        }
        // One may still be there that has stood in for a job before.
        if queue.threads <= self.shared.count + queue.aside
            && let Err(error) = self.add_thread(&mut queue)
        {
            log::warn!("cannot start a thread in place of one that waits: {error}");
            return None;
        }
        queue.aside += 1;
        Some(Aside(&self.shared))
    }

    /// Whether the calling thread is one of them.
    pub(crate) fn has_this_thread(&self) -> bool {
        GROUP.get() == Some(self.shared.address())
    }

    /// Drops what is queued, and waits for the jobs that run. A worker that calls this does not wait for
    /// itself.
    pub(crate) fn stop(&self) {
        let dropped = {
            let mut queue = self.shared.lock();
            queue.stopping = true;
            self.shared.wake.notify_all();
            std::mem::take(&mut queue.waiting)
        };
        drop(dropped);
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.thread().id() != crate::sync::thread::current().id() && thread.join().is_err()
            {
                log::error!("a background thread ended with a panic");
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
