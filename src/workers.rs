//! Background threads and their queue of jobs.
//!
//! Jobs that are *pressing* go first: what writers or readers will soon be slowed down without, such as the merging of a level 0.
//! Among the others, and among those, it is the one that has waited longest. An engine queues its next job when one has
//! begun or is done, so engines take turns. What is not pressing waits for [`PATIENCE`] others at most, so nobody starves.
//!
//! A job that has to wait may lend its thread to others of the same group ([`help`](Workers::help)), which then run inside it,
//! one in the other up to [`DEPTH`] of them.
//!
//! Thread safety: everything may be called from any thread. A job that panics does not take its thread
//! down; the hook given at the start is told.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::{Error, Result};

/// So many pressing jobs go before one that is not.
const PATIENCE: u32 = 8;
/// So many jobs run inside one another.
const DEPTH: u32 = 16;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Which workers a thread belongs to, by the address of what they share, and how many jobs it is in.
    static ROLE: Cell<Option<(usize, u32)>> = const { Cell::new(None) };
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
    stopping: bool,
}

impl<J> Default for Queue<J> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), passed: 0, stopping: false }
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

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue<Job>>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue<Job>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a job; `None` at the stop.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.take() {
                return Some(job);
            }
            if queue.stopping {
                return None;
            }
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Runs a job, as the `depth`th that its thread is in.
    fn run(&self, job: Job, depth: u32, on_panic: &dyn Fn(&str)) {
        let before = ROLE.replace(Some((self.address(), depth)));
        let outcome = catch_unwind(AssertUnwindSafe(job));
        ROLE.set(before);
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            on_panic(text.unwrap_or("a background job panicked"));
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

type OnPanic = Arc<dyn Fn(&str) + Send + Sync>;

/// A group of threads that run jobs.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    on_panic: OnPanic,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    /// Starts `count` threads called `name`; `on_panic` gets the message of a job that panicked.
    pub(crate) fn start(
        name: &str,
        count: usize,
        on_panic: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let on_panic: OnPanic = Arc::new(on_panic);
        let mut threads = Vec::new();
        for _ in 0..count {
            let (shared, on_panic) = (Arc::clone(&shared), Arc::clone(&on_panic));
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || {
                    while let Some(job) = shared.next() {
                        shared.run(job, 1, &*on_panic);
                    }
                })
                .map_err(|error| Error::io("start a thread for", name.as_ref(), None, error))?;
            threads.push(thread);
        }
        Ok(Self { shared, on_panic, threads: Mutex::new(threads) })
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

    /// Runs the next job that waits inside the one that calls this. False if there is none, or for who is none of these
    /// threads.
    pub(crate) fn help(&self) -> bool {
        let is_mine =
            |&(address, depth): &(usize, u32)| address == self.shared.address() && depth < DEPTH;
        let Some((_, depth)) = ROLE.get().filter(is_mine) else { return false };
        let Some(job) = self.shared.lock().take() else { return false };
        self.shared.run(job, depth + 1, &*self.on_panic);
        true
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
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
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
