//! The housekeeper: one thread that does, outside the writers' way, what the log and the budget need:
//! writing out buffered records, preparing segments, letting go of segments, and cutting keyspaces that
//! hold too much memory or too old a part of the log; and what engines keep for snapshots that are gone. It sleeps unless it is called.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::commit::Housekeeping;
use crate::database::Inner;
use crate::error::{Error, Result};

#[derive(Default)]
struct Calls {
    write_out_at: Option<Instant>,
    prepare_segment: bool,
    release_log: bool,
    look_at_memory: bool,
    let_go: bool,
    stop: bool,
}

/// How the housekeeper is called.
pub(crate) struct Bell {
    /// Buffered writes are handed to the kernel after this long; `None`: not by the housekeeper.
    buffered_for: Option<Duration>,
    calls: Mutex<Calls>,
    ring: Condvar,
    /// Set while the call is pending, so that calling again costs one load.
    write_out_called: AtomicBool,
    memory_called: AtomicBool,
    /// Why background work of keyspaces does not get on.
    troubles: Mutex<BTreeMap<u32, Error>>,
}

impl Bell {
    /// One that has buffered writes handed to the kernel after `buffered_for`, if that is given.
    pub(crate) fn new(buffered_for: Option<Duration>) -> Self {
        Self {
            buffered_for,
            calls: Mutex::default(),
            ring: Condvar::new(),
            write_out_called: AtomicBool::new(false),
            memory_called: AtomicBool::new(false),
            troubles: Mutex::default(),
        }
    }

    /// Some engine has persisted further: log segments may be free.
    pub(crate) fn release_log(&self) {
        self.call(|calls| calls.release_log = true);
    }

    /// A snapshot is gone that engines keep something for.
    pub(crate) fn let_go(&self) {
        self.call(|calls| calls.let_go = true);
    }

    /// Takes note of how the background work of a keyspace does.
    pub(crate) fn set_trouble(&self, keyspace: u32, trouble: Option<Error>) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        match trouble {
            Some(error) => drop(troubles.insert(keyspace, error)),
            None => drop(troubles.remove(&keyspace)),
        }
    }

    fn call(&self, change: impl FnOnce(&mut Calls)) {
        change(&mut self.lock());
        self.ring.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to do now, and takes it.
    fn wait(&self) -> Calls {
        let mut calls = self.lock();
        loop {
            let now = Instant::now();
            let due = calls.write_out_at.is_some_and(|at| at <= now);
            if due
                || calls.prepare_segment
                || calls.release_log
                || calls.look_at_memory
                || calls.let_go
                || calls.stop
            {
                let mut taken = std::mem::take(&mut *calls);
                if !due && !taken.stop {
                    calls.write_out_at = taken.write_out_at.take();
                }
                return taken;
            }
            calls = match calls.write_out_at {
                Some(at) => {
                    let wait = self.ring.wait_timeout(calls, at - now);
                    wait.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.ring.wait(calls).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Housekeeping for Bell {
    fn write_out_soon(&self) {
        let Some(wait) = self.buffered_for else { return };
        if !self.write_out_called.swap(true, Ordering::Relaxed) {
            self.call(|calls| calls.write_out_at = Some(Instant::now() + wait));
        }
    }

    fn prepare_segment(&self) {
        self.call(|calls| calls.prepare_segment = true);
    }

    fn look_at_memory(&self) {
        if !self.memory_called.swap(true, Ordering::Relaxed) {
            self.call(|calls| calls.look_at_memory = true);
        }
    }

    fn trouble(&self) -> Option<Error> {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.values().next().cloned()
    }
}

/// The thread.
pub(crate) struct Housekeeper {
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Housekeeper {
    pub(crate) fn start(bell: Arc<Bell>, database: Weak<Inner>) -> Result<Self> {
        let calls = Arc::clone(&bell);
        let thread = std::thread::Builder::new()
            .name("turbidite-house".into())
            .spawn(move || keep_house(&calls, &database))
            .map_err(|error| Error::io("start a thread for", "turbidite".as_ref(), None, error))?;
        Ok(Self { bell, thread: Mutex::new(Some(thread)) })
    }

    /// Stops the thread and waits for it.
    pub(crate) fn stop(&self) {
        self.bell.call(|calls| calls.stop = true);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            log::error!("the housekeeper ended with a panic");
        }
    }
}

fn keep_house(bell: &Bell, database: &Weak<Inner>) {
    loop {
        let calls = bell.wait();
        if calls.stop {
            return;
        }
        let Some(database) = database.upgrade() else { return };
        if catch_unwind(AssertUnwindSafe(|| answer(bell, &database, &calls))).is_err() {
            let cause = "the housekeeper panicked".into();
            database.committer().poison(&Error::Poisoned { cause });
        }
    }
}

/// Does what was called for.
fn answer(bell: &Bell, database: &Inner, calls: &Calls) {
    if calls.write_out_at.is_some() {
        bell.write_out_called.store(false, Ordering::Relaxed);
        report("write out the log", database.committer().write_out());
    }
    if calls.prepare_segment {
        report("prepare a log segment", database.prepare_segment());
    }
    if calls.look_at_memory {
        bell.memory_called.store(false, Ordering::Relaxed);
    }
    if calls.look_at_memory || calls.release_log {
        database.rebalance_memory();
    }
    if calls.look_at_memory || calls.prepare_segment {
        report("cut a keyspace", database.cut_if_needed());
    }
    if calls.release_log {
        report("release log segments", database.release_log());
    }
    if calls.let_go || calls.release_log {
        database.let_go();
    }
}

/// What fails here is tried again at the next call, or shows where it is needed.
fn report(what: &str, result: Result<()>) {
    match result {
        Ok(()) | Err(Error::Closed) => {}
        Err(error) => log::warn!("cannot {what}: {error}"),
    }
}
