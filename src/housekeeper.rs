//! The housekeeper: two threads that do, outside the writers' way, what the log and the budget need. That of the *log* writes
//! out buffered records, prepares segments, and lets go of segments: it waits for the device. That of *memory* does not: it cuts
//! keyspaces that hold too much memory or too old a part of the log, gets memory ready, and has engines let go of what they
//! keep for snapshots that are gone. They sleep unless they are called.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::base::checksum;
use crate::commit::Housekeeping;
use crate::database::Inner;
use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, MutexGuard, thread::JoinHandle};

/// What one of the threads is called for.
trait Calls: Default {
    /// Does it.
    fn answer(self, bell: &Bell, database: &Inner);

    /// When what may wait is to be done, if there is any.
    fn wait_until(&mut self) -> Option<&mut Option<Instant>> {
        None
    }

    /// Whether there is something that does not wait.
    fn is_due(&self) -> bool;
}

#[derive(Default)]
struct LogCalls {
    write_out_at: Option<Instant>,
    prepare_segment: bool,
    release: bool,
}

#[derive(Default)]
struct MemoryCalls {
    look: bool,
    rebalance: bool,
    let_go: bool,
}

/// Where calls wait for their thread.
#[derive(Default)]
struct Desk<C> {
    /// And whether the thread is to stop.
    calls: Mutex<(C, bool)>,
    ring: Condvar,
}

impl<C: Calls> Desk<C> {
    fn call(&self, change: impl FnOnce(&mut C)) {
        change(&mut self.lock().0);
        self.ring.notify_one();
    }

    fn stop(&self) {
        self.lock().1 = true;
        self.ring.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, (C, bool)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to do now, and takes it; `None`: nothing any more.
    fn wait(&self) -> Option<C> {
        let mut calls = self.lock();
        loop {
            if calls.1 {
                return None;
            }
            let now = crate::sync::now();
            let at = calls.0.wait_until().and_then(|at| *at);
            let is_late = at.is_some_and(|at| at <= now);
            if is_late || calls.0.is_due() {
                let mut taken = std::mem::take(&mut calls.0);
                if !is_late
                    && let (Some(left), Some(taken)) = (calls.0.wait_until(), taken.wait_until())
                {
                    *left = taken.take();
                }
                return Some(taken);
            }
            calls = match at {
                Some(at) => {
                    let wait = self.ring.wait_timeout(calls, at - now);
                    wait.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.ring.wait(calls).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// How the housekeeper is called.
pub(crate) struct Bell {
    /// Buffered writes are handed to the kernel after this long; `None`: not by the housekeeper.
    buffered_for: Option<Duration>,
    log: Desk<LogCalls>,
    memory: Desk<MemoryCalls>,
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
            log: Desk::default(),
            memory: Desk::default(),
            write_out_called: AtomicBool::new(false),
            memory_called: AtomicBool::new(false),
            troubles: Mutex::default(),
        }
    }

    /// Some engine has persisted further: log segments may be free, and memory is.
    pub(crate) fn release_log(&self) {
        self.log.call(|calls| calls.release = true);
        self.memory.call(|calls| (calls.rebalance, calls.let_go) = (true, true));
    }

    /// A snapshot is gone that engines keep something for.
    pub(crate) fn let_go(&self) {
        self.memory.call(|calls| calls.let_go = true);
    }

    /// Takes note of how the background work of a keyspace does that memory waits for.
    pub(crate) fn set_trouble(&self, keyspace: u32, trouble: Option<Error>) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        match trouble {
            Some(error) => drop(troubles.insert(keyspace, error)),
            None => drop(troubles.remove(&keyspace)),
        }
    }
}

impl Housekeeping for Bell {
    fn write_out_soon(&self) {
        let Some(wait) = self.buffered_for else { return };
        if !self.write_out_called.swap(true, Ordering::Relaxed) {
            self.log.call(|calls| calls.write_out_at = Some(crate::sync::now() + wait));
        }
    }

    fn prepare_segment(&self) {
        self.log.call(|calls| calls.prepare_segment = true);
        // A segment more may be one too many for what pins it.
        self.memory.call(|calls| calls.look = true);
    }

    fn look_at_memory(&self) {
        if !self.memory_called.swap(true, Ordering::Relaxed) {
            self.memory.call(|calls| (calls.look, calls.rebalance) = (true, true));
        }
    }

    fn flush_trouble(&self) -> Option<Error> {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.values().next().cloned()
    }
}

impl Calls for LogCalls {
    fn answer(self, bell: &Bell, database: &Inner) {
        if self.write_out_at.is_some() {
            bell.write_out_called.store(false, Ordering::Relaxed);
            report("write out the log", database.committer().write_out());
        }
        if self.prepare_segment {
            // One at a time: what is to be written out soon does not wait for all.
            let prepared = database.prepare_segment();
            if let Ok(true) = prepared {
                bell.log.call(|calls| calls.prepare_segment = true);
            }
            report("prepare a log segment", prepared.map(drop));
        }
        if self.release {
            report("release log segments", database.release_log());
        }
    }

    fn wait_until(&mut self) -> Option<&mut Option<Instant>> {
        Some(&mut self.write_out_at)
    }

    fn is_due(&self) -> bool {
        self.prepare_segment || self.release
    }
}

impl Calls for MemoryCalls {
    fn answer(self, bell: &Bell, database: &Inner) {
        if self.look {
            bell.memory_called.store(false, Ordering::Relaxed);
        }
        if self.rebalance {
            database.rebalance_memory();
        }
        if self.look {
            report("cut a keyspace", database.cut_if_needed());
        }
        if self.let_go {
            database.let_go();
        }
    }

    fn is_due(&self) -> bool {
        self.look || self.rebalance || self.let_go
    }
}

/// The threads.
pub(crate) struct Housekeeper {
    bell: Arc<Bell>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Housekeeper {
    pub(crate) fn start(bell: Arc<Bell>, database: Weak<Inner>, has_log: bool) -> Result<Self> {
        let housekeeper = Self { bell, threads: Mutex::default() };
        housekeeper.start_thread("turbidite-house", &database, |bell| &bell.memory)?;
        if !has_log {
            return Ok(housekeeper);
        }
        let log = housekeeper.start_thread("turbidite-log", &database, |bell| &bell.log);
        if log.is_err() {
            housekeeper.stop();
        }
        log.map(|()| housekeeper)
    }

    fn start_thread<C: Calls>(
        &self,
        name: &str,
        database: &Weak<Inner>,
        desk: impl Fn(&Bell) -> &Desk<C> + Send + 'static,
    ) -> Result<()> {
        let (bell, database) = (Arc::clone(&self.bell), Weak::clone(database));
        #[cfg(test)]
        tests::refuse(name)?;
        let thread = crate::sync::thread::Builder::new()
            .name(name.into())
            .spawn(checksum::carry_over(move || keep_house(&bell, desk(&bell), &database)))
            .map_err(|error| Error::io("start a thread for", "turbidite".as_ref(), None, error))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Stops the threads and waits for them.
    pub(crate) fn stop(&self) {
        self.bell.log.stop();
        self.bell.memory.stop();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                log::error!("the housekeeper ended with a panic");
            }
        }
    }
}

fn keep_house<C: Calls>(bell: &Bell, desk: &Desk<C>, database: &Weak<Inner>) {
    while let Some(calls) = desk.wait() {
        let Some(database) = database.upgrade() else { return };
        if catch_unwind(AssertUnwindSafe(|| calls.answer(bell, &database))).is_err() {
            let cause = "the housekeeper panicked".into();
            database.committer().poison(&Error::Poisoned { cause });
        }
    }
}

/// What fails here is tried again at the next call, or shows where it is needed.
fn report(what: &str, result: Result<()>) {
    match result {
        Ok(()) | Err(Error::Closed) => {}
        Err(error) => log::warn!("cannot {what}: {error}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static NO_THREADS: Cell<bool> = const { Cell::new(false) };
    }

    /// Does `work` while the system gives this thread none for a housekeeper.
    pub(crate) fn without_threads<T>(work: impl FnOnce() -> T) -> T {
        NO_THREADS.set(true);
        let result = work();
        NO_THREADS.set(false);
        result
    }

    pub(super) fn refuse(name: &str) -> Result<()> {
        match NO_THREADS.get() {
            true => Err(Error::io(
                "start a thread for",
                name.as_ref(),
                None,
                std::io::ErrorKind::WouldBlock.into(),
            )),
            false => Ok(()),
        }
    }
}
