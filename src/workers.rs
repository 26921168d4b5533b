//! Background threads and their queue of jobs.
//!
//! Thread safety: everything may be called from any thread. A job that panics does not take its thread
//! down; the hook given at the start is told.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::{Error, Result};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group of threads that run jobs in the order they came.
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
        let shared = Arc::<Shared>::default();
        let on_panic: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(on_panic);
        let mut threads = Vec::new();
        for _ in 0..count {
            let (shared, on_panic) = (Arc::clone(&shared), Arc::clone(&on_panic));
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || work(&shared, &*on_panic))
                .map_err(|error| Error::io("start a thread for", name.as_ref(), None, error))?;
            threads.push(thread);
        }
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    /// Queues a job; it is dropped if the workers have been stopped.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.shared.lock();
        if !queue.stopping {
            queue.jobs.push_back(Box::new(job));
            self.shared.wake.notify_one();
        }
    }

    /// Drops what is queued, and waits for the jobs that run. A worker that calls this does not wait for
    /// itself.
    pub(crate) fn stop(&self) {
        let dropped = {
            let mut queue = self.shared.lock();
            queue.stopping = true;
            self.shared.wake.notify_all();
            std::mem::take(&mut queue.jobs)
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

fn work(shared: &Shared, on_panic: &dyn Fn(&str)) {
    loop {
        let job = {
            let mut queue = shared.lock();
            loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                if queue.stopping {
                    return;
                }
                queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            on_panic(text.unwrap_or("a background job panicked"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn runs_jobs_survives_panics_and_stops() {
        let count = Arc::new(AtomicUsize::new(0));
        let panics = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&panics);
        let workers =
            Workers::start("test", 2, move |text| seen.lock().unwrap().push(text.to_owned()))
                .unwrap();
        let (done, all) = std::sync::mpsc::channel();
        workers.submit(|| panic!("on purpose"));
        for _ in 0..10 {
            let (count, done) = (Arc::clone(&count), done.clone());
            workers.submit(move || {
                count.fetch_add(1, Ordering::Relaxed);
                done.send(()).unwrap();
            });
        }
        assert_eq!(all.iter().take(10).count(), 10);
        workers.stop();
        workers.submit(|| unreachable!("submitted after the stop"));
        assert_eq!(count.load(Ordering::Relaxed), 10);
        assert_eq!(*panics.lock().unwrap(), ["on purpose"]);
    }
}
