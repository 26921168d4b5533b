//! Threads that read.
//!
//! A batch is put into the queue once and shared by all who work on it: each takes the next read that nobody
//! has taken, its caller too, so that a batch gets on even if no thread can be had.
//!
//! Thread safety: any number of batches at the same time. The lock of the queue is held over nothing that
//! waits. A panic in a read goes on in the thread that asked for it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use super::{ReadRequest, View};
use crate::error::Result;
use crate::sync::{
    Condvar, Mutex, MutexGuard,
    thread::{self, JoinHandle, Thread},
};

/// Reading takes little stack; what is not touched costs no memory.
const STACK: usize = 256 << 10;

/// A pool of threads, empty until there is work for them.
pub(super) struct Pool {
    depth: usize,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<Arc<Batch>>,
    /// Threads started, and those of them that wait for work.
    threads: usize,
    idle: usize,
    closing: bool,
}

/// Reads that are carried out together.
struct Batch {
    reads: Vec<ReadRequest>,
    answers: Vec<Mutex<Option<thread::Result<Result<View>>>>>,
    /// The next read to be taken.
    next: AtomicUsize,
    /// How many have not ended.
    unfinished: AtomicUsize,
    caller: Thread,
}

impl Pool {
    pub(super) fn new(depth: usize) -> Self {
        Self { depth, shared: Arc::default(), threads: Mutex::default() }
    }

    /// Makes all reads, as many at a time as there are threads.
    pub(super) fn read(&self, reads: Vec<ReadRequest>) -> Vec<Result<View>> {
        if reads.len() < 2 {
            return reads.iter().map(|read| read.file.view(read.range.clone())).collect();
        }
        let batch = Arc::new(Batch::new(reads));
        self.share(&batch);
        batch.work();
        self.shared.lock().batches.retain(|other| !Arc::ptr_eq(other, &batch));
        batch.wait();
        batch.answers.iter().map(take).collect()
    }

    /// Calls for help with a batch.
    fn share(&self, batch: &Arc<Batch>) {
        let wanted = batch.reads.len() - 1;
        let mut queue = self.shared.lock();
        queue.batches.push_back(Arc::clone(batch));
        let idle = queue.idle;
        let new = wanted.saturating_sub(idle).min(self.depth - queue.threads);
        queue.threads += new;
        drop(queue);
        if wanted < idle {
            (0..wanted).for_each(|_| self.shared.work.notify_one());
        } else if idle > 0 {
            self.shared.work.notify_all();
        }
        if new > 0 {
            self.start(new);
        }
    }

    /// Starts threads that were counted already.
    #[cold]
    fn start(&self, count: usize) {
        let mut threads = lock(&self.threads);
        for started in 0..count {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new()
                .name("turbidite-read".to_owned())
                .stack_size(STACK)
                .spawn(move || shared.serve());
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    drop(threads);
                    log::debug!("no more threads to read with: {error}");
                    self.shared.lock().threads -= count - started;
                    return;
                }
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // A thread cannot panic: its reads are caught.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// What a thread does until the pool is dropped.
    fn serve(&self) {
        while let Some(batch) = self.next_batch() {
            batch.work();
        }
    }

    fn next_batch(&self) -> Option<Arc<Batch>> {
        let mut queue = self.lock();
        loop {
            if let Some(batch) = queue.batches.iter().find(|batch| !batch.is_taken()) {
                return Some(Arc::clone(batch));
            }
            if queue.closing {
                return None;
            }
            queue.idle += 1;
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

impl Batch {
    fn new(reads: Vec<ReadRequest>) -> Self {
        Self {
            answers: reads.iter().map(|_| Mutex::new(None)).collect(),
            next: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(reads.len()),
            caller: thread::current(),
            reads,
        }
    }

    /// Whether there is nothing left to take.
    fn is_taken(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.reads.len()
    }

    /// Makes reads until all are taken.
    fn work(&self) {
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(read) = self.reads.get(at) else { return };
            let answer = catch_unwind(AssertUnwindSafe(|| read.file.view(read.range.clone())));
            *lock(&self.answers[at]) = Some(answer);
            if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.caller.unpark();
            }
        }
    }

    /// Waits in the caller's thread until all reads have ended.
    fn wait(&self) {
        while self.unfinished.load(Ordering::Acquire) > 0 {
            thread::park();
        }
    }
}

/// Takes an answer that is there; a read that panicked does so again here.
fn take(answer: &Mutex<Option<thread::Result<Result<View>>>>) -> Result<View> {
    let answer = lock(answer).take().expect("the read has ended");
    answer.unwrap_or_else(|panic| resume_unwind(panic))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
