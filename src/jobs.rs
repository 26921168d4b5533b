//! The background jobs of an engine: which run, and what keeps them from getting on.
//!
//! An engine has two kinds of [`Work`], and of each at most one job at a time: queued, or running, in a background
//! thread or in a caller's. An engine whose upkeep is done by several jobs side by side says how many there may be, and
//! sees to it that they do not get into each other's way; a caller still has it alone.
//! A job that fails has changed nothing and is repeated with growing pauses, unless
//! repeating it does not mend it. Until it succeeds, its trouble is known to those who wait for it, and to the host.
//!
//! ```text
//!   engine                  Jobs                        workers
//!   schedule(work) -------> queued -------------------> the engine's job
//!                           running <----- begin(work) ----+
//!                           trouble <----- persistently ---+ tries, again and again
//!                           idle <-------- the guard ends -+
//! ```
//!
//! A job that ends by a panic may have left anything half done: no other one is begun after it, and all who wait are told.
//!
//! Thread safety: everything may be called from any thread. A job's guard ends it even by a panic. The engine is
//! stopped once, for good.
//!
//! Locks: `status`, called `jobs` in the order of locks. The condition that [`wait_until`](Jobs::wait_until) waits
//! for is looked at under it, and the host is told of trouble; otherwise nothing is called and no other lock is taken while it is held. Who makes such
//! a condition true and does not end a job with it calls [`notify`](Jobs::notify) afterwards.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use crate::base::{Seqno, Visibility};
use crate::contract::{Background, Context, Host};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Condvar, Mutex, MutexGuard, PanicWatch};
use crate::throttle::Valve;
use crate::workers::Workers;

/// A failed job is tried again after this long, doubling up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long commits take that are under way.
const A_MOMENT: Duration = Duration::from_millis(1);

/// The kinds of background work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Writing what is in memory to the engine's own files.
    Flush,
    /// Keeping the files in good shape: compaction, or what the engine does in its place.
    Upkeep,
}

/// Where a job runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Runner {
    Background,
    Caller,
}

/// How a kind of work does.
#[derive(Debug, Default)]
struct Progress {
    /// Whether a job waits for its turn.
    queued: bool,
    /// How many jobs run in background threads.
    running: usize,
    /// Whether one runs in a caller's thread, and how many callers wait to run theirs.
    called: bool,
    waiting: usize,
    /// The number of the next job.
    next: u64,
    /// Why the last try of a job failed, and the job's number while it goes on trying: until it succeeds, or, if it was given
    /// up, any other does.
    trouble: Option<(Option<u64>, Error)>,
    /// How many times trouble was forgotten. Who did that asks for a try that begins afterwards.
    forgotten: u64,
}

impl Progress {
    fn is_free(&self) -> bool {
        self.running == 0 && !self.called
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn trouble(&self) -> Option<Error> {
        self.trouble.as_ref().map(|(_, error)| error.clone())
    }
}

/// Which jobs there are.
#[derive(Debug, Default)]
pub(crate) struct Status {
    flush: Progress,
    upkeep: Progress,
    /// Whether a job has ended by a panic.
    panicked: bool,
}

impl Status {
    /// Whether no job is queued or runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.both().iter().all(|progress| !progress.queued && progress.is_free())
    }

    fn both(&self) -> [&Progress; 2] {
        [&self.flush, &self.upkeep]
    }

    fn of(&mut self, work: Work) -> &mut Progress {
        match work {
            Work::Flush => &mut self.flush,
            Work::Upkeep => &mut self.upkeep,
        }
    }

    fn trouble(&self) -> Option<Error> {
        self.panic().or_else(|| self.both().into_iter().find_map(Progress::trouble))
    }

    /// Why a kind of work does not get on, if it does not.
    fn trouble_of(&mut self, work: Work) -> Option<Error> {
        self.panic().or_else(|| self.of(work).trouble())
    }

    /// Why nothing gets on any more, if a job has ended by a panic.
    fn panic(&self) -> Option<Error> {
        self.panicked.then(ended_by_a_panic)
    }
}

/// The background jobs of one engine.
pub(crate) struct Jobs {
    /// The engine's directory, for warnings.
    dir: PathBuf,
    host: Arc<dyn Host>,
    background: Arc<Background>,
    /// Where the writes of upkeep go through.
    valve: Arc<Valve>,
    read_only: bool,
    /// How many jobs of upkeep may run in the background.
    upkeep: usize,
    /// Whether upkeep is pressing.
    is_pressing: Arc<AtomicBool>,
    status: Mutex<Status>,
    changed: Condvar,
    stopping: AtomicBool,
}

impl Jobs {
    /// No jobs yet.
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            dir: context.dir.clone(),
            host: Arc::clone(&context.host),
            background: Arc::clone(&context.background),
            valve: context.background.throttle.valve(),
            read_only: context.read_only,
            upkeep: 1,
            is_pressing: Arc::default(),
            status: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// With so many jobs of upkeep side by side.
    pub(crate) fn with_upkeep(self, most: usize) -> Self {
        Self { upkeep: most, ..self }
    }

    /// What says whether upkeep is pressing.
    pub(crate) fn urgency(&self) -> &Arc<AtomicBool> {
        &self.is_pressing
    }

    /// Where the writes of upkeep go through.
    pub(crate) fn valve(&self) -> &Arc<Valve> {
        &self.valve
    }

    /// Says how near what upkeep has not done is to slowing writers down, of [`FULL`](crate::throttle::FULL). If it is nearer than
    /// not at all, it goes before that of other engines, and its limit may rise.
    pub(crate) fn set_debt(&self, debt: u32) {
        self.is_pressing.store(debt > 0, Ordering::Relaxed);
        self.valve.set_debt(debt);
    }

    fn workers(&self, work: Work) -> &Workers {
        match work {
            Work::Flush => &self.background.flush,
            Work::Upkeep => &self.background.compaction,
        }
    }

    fn most(&self, work: Work) -> usize {
        match work {
            Work::Flush => 1,
            Work::Upkeep => self.upkeep,
        }
    }

    // ---- running ----

    /// Has `job` run in the background, unless a job of its kind is queued, as many as may run already, the engine stops, or
    /// the database is open for reading only. The job has to [`begin`](Self::begin) its work.
    pub(crate) fn schedule<E>(
        &self,
        work: Work,
        engine: &Weak<E>,
        job: impl FnOnce(&E) + Send + 'static,
    ) where
        E: Send + Sync + 'static,
    {
        if self.read_only || self.is_stopping() {
            return;
        }
        {
            let mut status = self.lock();
            let is_over = status.panicked;
            let progress = status.of(work);
            let is_taken = progress.queued || progress.called;
            if is_over || is_taken || progress.running >= self.most(work) {
                return;
            }
            progress.queued = true;
        }
        let engine = Weak::clone(engine);
        let is_pressing = match work {
            Work::Flush => &Arc::default(),
            Work::Upkeep => &self.is_pressing,
        };
        self.workers(work).submit(is_pressing, move || {
            if let Some(engine) = engine.upgrade() {
                job(&engine);
            }
        });
    }

    /// Begins work that was scheduled. `None` if a caller's thread has taken it over or is about to: it looks itself, when it
    /// is through, for what is due then; and if a job has ended by a panic.
    pub(crate) fn begin(&self, work: Work) -> Option<Running<'_>> {
        let mut status = self.lock();
        let is_over = status.panicked;
        let progress = status.of(work);
        progress.queued = false;
        if is_over || progress.called || progress.waiting > 0 || progress.running >= self.most(work)
        {
            return None;
        }
        progress.running += 1;
        let number = progress.number();
        Some(Running::new(self, work, Runner::Background, number))
    }

    /// Begins work in the caller's thread, as soon as no other does any of its kind.
    ///
    /// # Errors
    /// The trouble that one of `works` is in while another thread is at it; `Poisoned` if a job has ended by a panic; `Closed`
    /// if the engine stops.
    pub(crate) fn take_over(&self, work: Work, works: &[Work]) -> Result<Running<'_>> {
        let mut status = self.lock();
        status.of(work).waiting += 1;
        let (mut status, free) = self.wait(status, |status| status.of(work).is_free(), works);
        let panic = status.panic();
        let progress = status.of(work);
        // Under the same lock: who is at it, and sees to what is due afterwards, must not find anybody waiting who has given up.
        progress.waiting -= 1;
        free?;
        self.stop_if_told()?;
        panic.map_or(Ok(()), Err)?;
        progress.called = true;
        let number = progress.number();
        Ok(Running::new(self, work, Runner::Caller, number))
    }

    // ---- trouble ----

    /// Why background work does not get on, if it does not.
    pub(crate) fn trouble(&self) -> Option<Error> {
        self.lock().trouble()
    }

    /// Why work of a kind does not get on, if it does not.
    pub(crate) fn trouble_of(&self, work: Work) -> Option<Error> {
        self.lock().trouble_of(work)
    }

    /// Forgets the trouble of a kind of work until a try shows it again that begins from now on, which is at once if one was
    /// to wait: what failed before may succeed now.
    pub(crate) fn forget_trouble(&self, work: Work) {
        let mut status = self.lock();
        let progress = status.of(work);
        let is_news = progress.trouble.take().is_some() && work == Work::Flush;
        progress.forgotten += 1;
        if is_news {
            self.host.trouble(status.trouble_of(work));
        }
        drop(status);
        self.changed.notify_all();
    }

    /// Takes note of how a try of a job ended that had begun when trouble had been `forgotten` so many times, and lets the host
    /// and those who wait for it know.
    fn report(&self, job: &Running<'_>, trouble: Option<Error>, forgotten: u64) {
        let mut status = self.lock();
        let progress = status.of(job.work);
        let is_news = match (&progress.trouble, &trouble) {
            (None, None) => false,
            (Some((number, _)), None) => number.is_none_or(|number| number == job.number),
            (_, Some(error)) => is_final(error.kind()) || progress.forgotten == forgotten,
        };
        if !is_news {
            return;
        }
        progress.trouble = trouble.map(|error| (Some(job.number), error));
        // Nobody else waits for upkeep. What is told last is what there is: nobody else changes it meanwhile.
        if job.work == Work::Flush {
            self.host.trouble(status.trouble_of(Work::Flush));
        }
        drop(status);
        self.notify();
    }

    /// How many times trouble of a kind of work was forgotten.
    fn forgotten(&self, work: Work) -> u64 {
        self.lock().of(work).forgotten
    }

    // ---- waiting ----

    /// Whether no job is queued or runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().is_idle()
    }

    /// Has those who wait look again.
    pub(crate) fn notify(&self) {
        let _status = self.lock();
        self.changed.notify_all();
    }

    /// Waits until `done`.
    ///
    /// # Errors
    /// The trouble that one of `works` is in meanwhile; `Closed` if the engine stops.
    pub(crate) fn wait_until(&self, done: impl Fn(&Status) -> bool, works: &[Work]) -> Result<()> {
        self.wait(self.lock(), |status| done(status), works).1
    }

    /// The same, with the status as it is then.
    fn wait<'a>(
        &'a self,
        mut status: MutexGuard<'a, Status>,
        done: impl Fn(&mut Status) -> bool,
        works: &[Work],
    ) -> (MutexGuard<'a, Status>, Result<()>) {
        while !done(&mut status) {
            let trouble = works.iter().find_map(|&work| status.trouble_of(work));
            if let Err(error) = trouble.map_or_else(|| self.stop_if_told(), Err) {
                return (status, Err(error));
            }
            status = self.changed.wait(status).unwrap_or_else(PoisonError::into_inner);
        }
        (status, Ok(()))
    }

    /// Waits until readers may see all up to `seqno`: snapshots that are taken from then on see all of it.
    ///
    /// # Errors
    /// `Closed` if the engine stops; `Poisoned`, as a commit that failed in the middle has numbers that are never published.
    pub(crate) fn wait_published(&self, visibility: &Visibility, seqno: Seqno) -> Result<()> {
        while visibility.published() < seqno {
            self.stop_if_told()?;
            self.host.check_poison()?;
            self.wait_a_while(A_MOMENT);
        }
        Ok(())
    }

    /// Waits for as long as `pause`, less if the engine stops.
    pub(crate) fn wait_a_while(&self, pause: Duration) {
        let woken = self.changed.wait_timeout_while(self.lock(), pause, |_| !self.is_stopping());
        drop(woken);
    }

    /// Waits for as long as `pause`, less if the engine stops or if trouble is forgotten once more. Meanwhile another thread does
    /// the jobs of other engines, or one that fails would keep all others from theirs.
    fn wait_to_try_again(&self, work: Work, pause: Duration, forgotten: u64) {
        let waits =
            |status: &mut Status| !self.is_stopping() && status.of(work).forgotten == forgotten;
        let _aside = self.workers(work).step_aside();
        drop(self.changed.wait_timeout_while(self.lock(), pause, waits));
    }

    // ---- stopping ----

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// `Closed` if the engine stops.
    pub(crate) fn stop_if_told(&self) -> Result<()> {
        if self.is_stopping() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Begins no more jobs, and wakes all who wait. Waits for jobs in callers' threads, which must not outlive the
    /// lock of the database; those in the background end with their threads.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.valve.stop();
        self.notify();
        let is_called = |status: &mut Status| status.both().iter().any(|progress| progress.called);
        drop(self.changed.wait_while(self.lock(), is_called));
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that runs: it ends when this is dropped, even by a panic.
#[must_use]
pub(crate) struct Running<'a> {
    jobs: &'a Jobs,
    work: Work,
    runner: Runner,
    number: u64,
    panics: PanicWatch,
}

impl<'a> Running<'a> {
    fn new(jobs: &'a Jobs, work: Work, runner: Runner, number: u64) -> Self {
        Self { jobs, work, runner, number, panics: PanicWatch::begin() }
    }

    /// Runs `job` until it succeeds, pausing between tries: a job that fails has changed nothing. `None` if the
    /// engine stops before, or the trouble is one that trying again does not mend.
    pub(crate) fn persistently<T>(&self, job: impl Fn() -> Result<T>) -> Option<T> {
        let mut pause = FIRST_PAUSE;
        while !self.jobs.is_stopping() {
            let forgotten = self.jobs.forgotten(self.work);
            match job() {
                Ok(result) => {
                    self.jobs.report(self, None, forgotten);
                    return Some(result);
                }
                Err(error) => {
                    // That the database is closed meanwhile is no trouble.
                    if error.kind() != ErrorKind::Closed {
                        log::warn!("background work on {}: {error:?}", self.jobs.dir.display());
                    }
                    let is_final = is_final(error.kind());
                    self.jobs.report(self, Some(error), forgotten);
                    if is_final {
                        return None;
                    }
                    self.jobs.wait_to_try_again(self.work, pause, forgotten);
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
            }
        }
        None
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let is_panic = self.panics.sees_one();
        if is_panic {
            // Before anybody hears of it: who does may write at once, and is to be refused.
            self.jobs.host.poison(&ended_by_a_panic());
        }
        let mut status = self.jobs.lock();
        let progress = status.of(self.work);
        match self.runner {
            Runner::Background => progress.running -= 1,
            Runner::Caller => progress.called = false,
        }
        if let Some((number @ Some(_), _)) = &mut progress.trouble {
            number.take_if(|number| *number == self.number);
        }
        status.panicked |= is_panic;
        drop(status);
        self.jobs.changed.notify_all();
    }
}

fn ended_by_a_panic() -> Error {
    Error::Poisoned { cause: "background work ended by a panic".into() }
}

/// Whether trying again does not mend errors of this kind.
fn is_final(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corruption | ErrorKind::Poisoned | ErrorKind::Closed)
}

#[cfg(test)]
mod tests;
