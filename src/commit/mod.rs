//! The commit path, the same for every write of every keyspace:
//!
//! 1. **Admit**: a writer waits if background work has fallen too far behind.
//! 2. **Number**: the writes get the next sequence numbers.
//! 3. **Log**: one record for each batch, handed to the kernel unless all may stay buffered.
//! 4. **Apply**: the engines take the writes, in order.
//! 5. **Publish**: readers see the whole batch from now on, or nothing of it before.
//! 6. **Sync**: a writer that asked for it waits until the log is safe from power loss.
//!
//! Steps 2 to 5 are done under the commit lock by a *leader*: whoever gets the lock commits for all who
//! queued up behind it, with one write to the log. Step 6 has a leader too: one sync serves all who wait.
//!
//! A sorted load takes the same steps with a single number and without writes, see [`load`], and so does emptying a
//! keyspace, see [`clear`].
//!
//! Failures: if nothing was appended (no space, too large), the writer gets the error and everything goes
//! on. If it is unknown what reached the log, the database is *poisoned*: reads go on, writes are refused.

mod clear;
mod entry;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod load;
mod pace;
mod writes;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

pub(crate) use entry::{Change, Logged, take_logged};
#[cfg(test)]
pub(crate) use entry::{put_clear, put_delete_range};
pub(crate) use writes::{EncodedWrites, Target, Writes};

use crate::base::key::MAX_SEQNO;
use crate::base::{Seqno, Visibility};
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::log::{AppendError, Writer};
use crate::options::Durability;
use crate::planted::{Bug, planted};
use crate::sync::{Condvar, Mutex, MutexGuard, PanicWatch};
use pace::{Pace, STOP};
use writes::effective;

/// How often a writer that must wait looks whether it may go on.
const PATIENCE: Duration = Duration::from_millis(1);
/// The housekeeper is told about memory once in so many batches.
const BATCHES_BETWEEN_LOOKS: u64 = 1024;

/// What the commit path needs done in the background.
pub(crate) trait Housekeeping: Send + Sync {
    /// The log's buffer holds writes that must be written out in time, if there is a limit of time.
    fn write_out_soon(&self);
    /// The segment under the pen is filling up: prepare the next one.
    fn prepare_segment(&self);
    /// Memtables have grown: see whether some keyspace should be cut.
    fn look_at_memory(&self);
    /// Why some engine's background work, which memory for writes waits for, does not get on.
    fn flush_trouble(&self) -> Option<Error>;
}

/// What the commit lock guards.
pub(crate) struct Pen {
    writer: Option<Writer>,
    last: Seqno,
    batches: u64,
    /// The segment for whose successor the housekeeper was asked.
    asked_in: u64,
    /// Where the front of a single write is encoded.
    head: Vec<u8>,
}

impl Pen {
    /// The last number given.
    pub(crate) fn last(&self) -> Seqno {
        self.last
    }

    /// Where `target` is cut so that all it was given is covered: at the last number of its kind of write.
    /// What a keyspace with a log has persisted is thus never ahead of the log's end.
    pub(crate) fn cut_at(&self, target: &Target) -> Seqno {
        match &self.writer {
            Some(writer) if target.logged => writer.last(),
            _ => self.last,
        }
    }

    /// The first and the last of the next `count` numbers, which are not taken yet.
    fn next(&self, count: u64) -> Result<(Seqno, Seqno)> {
        let last = self.last + count;
        if last > MAX_SEQNO {
            return Err(Error::Invalid("the sequence numbers are used up".into()));
        }
        Ok((self.last + 1, last))
    }

    /// The log; there is none when the database is open for reading only.
    pub(crate) fn log(&mut self) -> Option<&mut Writer> {
        self.writer.as_mut()
    }
}

/// Takes note at its end that a sync is over. If it ended by a panic, it is unknown what is safe, as after an error: nobody may sync
/// again and take that for an answer.
struct SyncDone<'a> {
    committer: &'a Committer,
    panics: PanicWatch,
}

impl Drop for SyncDone<'_> {
    fn drop(&mut self) {
        if self.panics.sees_one() {
            let cause = "a panic in the middle of a sync".into();
            self.committer.poison(&Error::Poisoned { cause });
        }
        *self.committer.syncing.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.committer.sync_done.notify_all();
    }
}

struct Queued {
    writes: EncodedWrites,
    durability: Durability,
    outcome: OnceLock<Result<Seqno>>,
}

/// The commit path of one database.
pub(crate) struct Committer {
    visibility: Arc<Visibility>,
    budget: Arc<Budget>,
    pen: Mutex<Pen>,
    queue: Mutex<Vec<Arc<Queued>>>,
    /// Whether there may be something in the queue. Who puts something there waits for the pen afterwards, and
    /// leads itself if nobody took it.
    is_queued: AtomicBool,
    /// Whether somebody syncs.
    syncing: Mutex<bool>,
    sync_done: Condvar,
    /// The log is safe from power loss up to here.
    synced: AtomicU64,
    pace: Pace,
    /// What times are counted from.
    began: Instant,
    /// Bytes of all writes that were taken; changed under the pen.
    taken: AtomicU64,
    /// Whether writes are refused: the database is poisoned, or closed.
    refused: AtomicBool,
    /// Why the database is poisoned, if it is; it may come to that while it is being closed.
    poisoned: OnceLock<Error>,
    housekeeping: OnceLock<Arc<dyn Housekeeping>>,
}

impl Committer {
    /// A commit path that takes no writes yet: recovery is going on, and has synced the log it reads.
    pub(crate) fn new(visibility: Arc<Visibility>, budget: Arc<Budget>) -> Self {
        Self {
            visibility,
            budget,
            pen: Mutex::new(Pen {
                writer: None,
                last: 0,
                batches: 0,
                asked_in: 0,
                head: Vec::new(),
            }),
            queue: Mutex::default(),
            is_queued: AtomicBool::new(false),
            syncing: Mutex::default(),
            sync_done: Condvar::new(),
            synced: AtomicU64::new(MAX_SEQNO),
            pace: Pace::default(),
            began: crate::sync::now(),
            taken: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            poisoned: OnceLock::new(),
            housekeeping: OnceLock::new(),
        }
    }

    /// Starts taking writes: the next one gets the number after `last`. Without a log writer (the database
    /// is open for reading only) all are refused by the caller.
    pub(crate) fn start(
        &self,
        writer: Option<Writer>,
        last: Seqno,
        housekeeping: Arc<dyn Housekeeping>,
    ) -> Result<()> {
        let mut pen = self.pen()?;
        self.synced.store(writer.as_ref().map_or(last, Writer::last), Ordering::Release);
        (pen.writer, pen.last) = (writer, last);
        self.housekeeping.get_or_init(|| housekeeping);
        self.visibility.publish(last);
        Ok(())
    }

    /// Commits `writes` with `durability`, and returns when it is reached.
    pub(crate) fn commit(&self, writes: Writes<'_>, durability: Durability) -> Result<()> {
        self.check()?;
        self.admit(&writes)?;
        let last = match self.pen.try_lock() {
            Ok(pen) => self.lead(pen, Some((writes, durability)))?,
            Err(TryLockError::WouldBlock) => self.follow(writes, durability)?,
            Err(TryLockError::Poisoned(_)) => return Err(self.refused_by_panic()),
        };
        if effective(durability, &writes) == Some(Durability::Sync) {
            self.sync(last)?;
        }
        Ok(())
    }

    /// Makes the log safe from power loss up to `seqno`. One of the callers that wait at the same time syncs
    /// for all of them; those that come while it does wait for the next one, which serves them all.
    pub(crate) fn sync(&self, seqno: Seqno) -> Result<()> {
        let mut leader_at_work = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.synced.load(Ordering::Acquire) >= seqno {
                return Ok(());
            }
            self.check_poison()?;
            if !*leader_at_work {
                break;
            }
            leader_at_work =
                self.sync_done.wait(leader_at_work).unwrap_or_else(PoisonError::into_inner);
        }
        *leader_at_work = true;
        drop(leader_at_work);
        let _done = SyncDone { committer: self, panics: PanicWatch::begin() };
        self.sync_now()
    }

    /// Waits for what is under way, and lets go of the log: nothing is written to it from now on.
    pub(crate) fn finish(&self) {
        let leader_at_work = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.sync_done.wait_while(leader_at_work, |at_work| *at_work));
        let writer = self.pen.lock().unwrap_or_else(PoisonError::into_inner).writer.take();
        // Of a log in an unknown state nothing is touched.
        if let Some(writer) = writer.filter(|_| self.check_poison().is_ok())
            && let Err(error) = writer.finish()
        {
            log::warn!("the next opening will have to complete the log: {error}");
        }
    }

    /// Syncs all that is appended by now.
    fn sync_now(&self) -> Result<()> {
        let (point, covered) = {
            let mut pen = self.pen()?;
            let covered = pen.last;
            let Some(writer) = pen.log() else { return Ok(()) };
            (writer.sync_point().map_err(|error| self.poison(&error))?, covered)
        };
        let ran = point.run();
        if !planted(Bug::IgnoreFailedSync) {
            ran.map_err(|error| self.poison(&error))?;
        }
        if let Some(writer) = self.pen()?.log() {
            writer.synced(&point).map_err(|error| self.poison(&error))?;
        }
        let covered = if planted(Bug::SyncCoversLaterWrites) { self.pen()?.last } else { covered };
        // Only now: segments may be recycled once this is seen, and `synced` writes into them.
        self.synced.fetch_max(covered, Ordering::Release);
        Ok(())
    }

    /// Hands what is buffered to the kernel.
    pub(crate) fn write_out(&self) -> Result<()> {
        self.check_poison()?;
        let mut pen = self.pen()?;
        pen.log().map_or(Ok(()), Writer::flush).map_err(|error| self.poison(&error))
    }

    /// Bytes of all writes that were taken since the database was opened: of keys and values, and in batches what stands
    /// between them. Sorted loads are not among them.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// How far memtables that take much of their part of the budget slow writers down.
    pub(crate) fn memory_pressure(&self) -> u32 {
        pace::memory_pressure(&self.budget)
    }

    /// Takes the commit lock: no batch is half done while it is held.
    pub(crate) fn pen(&self) -> Result<MutexGuard<'_, Pen>> {
        self.pen.lock().map_err(|_| self.refused_by_panic())
    }

    /// Refuses writes from now on because of `error`; gives the error for the caller to return. Want of space
    /// is told as poisoning: by itself it would say that nothing was written.
    pub(crate) fn poison(&self, error: &Error) -> Error {
        let poisoned = match error {
            Error::Poisoned { .. } => error.clone(),
            _ => Error::Poisoned { cause: error.to_string().into() },
        };
        let is_first = self.poisoned.set(poisoned.clone()).is_ok();
        self.refused.store(true, Ordering::Release);
        // Only now: whoever takes what is logged may take long, or panic.
        if is_first {
            log::error!("writes are refused from now on: {error}");
        }
        match error {
            Error::NoSpace { .. } => poisoned,
            _ => error.clone(),
        }
    }

    /// Refuses writes from now on because the database is closed.
    pub(crate) fn close(&self) {
        self.refused.store(true, Ordering::Release);
    }

    /// The error that writes get, if they are refused.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        let is_let_pass = planted(Bug::WriteWhenPoisoned) && self.poisoned.get().is_some();
        if self.refused.load(Ordering::Acquire) && !is_let_pass {
            return Err(self.poisoned.get().cloned().unwrap_or(Error::Closed));
        }
        Ok(())
    }

    /// Like [`check`](Self::check), but a close does not count: what was written may still be written out.
    pub(crate) fn check_poison(&self) -> Result<()> {
        self.poisoned.get().map_or(Ok(()), |poisoned| Err(poisoned.clone()))
    }

    fn refused_by_panic(&self) -> Error {
        let cause = "a panic in the middle of a commit".into();
        self.poison(&Error::Poisoned { cause })
    }

    // ---- the steps ----

    /// Waits while background work is too far behind; makes the writer pay for pressure below that.
    fn admit(&self, writes: &Writes<'_>) -> Result<()> {
        loop {
            let engines = writes.targets().iter().map(|target| writes.pressure_on(target)).max();
            let pressures = (pace::memory_pressure(&self.budget), engines.unwrap_or(0));
            if pressures.0.max(pressures.1) < STOP {
                let now = || crate::sync::now() - self.began;
                if let Some(sleep) = self.pace.charge(pressures, writes.bytes(), now) {
                    crate::sync::thread::sleep(sleep);
                }
                return Ok(());
            }
            let waits = |target: &&Target| writes.pressure_on(target) >= STOP;
            let own = writes.targets().iter().filter(waits).find_map(|of| of.engine.trouble());
            // Memory is shared: any engine may be the one that does not free it.
            let any = self.housekeeping.get().filter(|_| pressures.0 >= STOP);
            if let Some(trouble) = own.or_else(|| any?.flush_trouble()) {
                return Err(trouble);
            }
            if let Some(housekeeping) = self.housekeeping.get() {
                housekeeping.look_at_memory();
            }
            crate::sync::thread::sleep(PATIENCE);
            self.check()?;
        }
    }

    /// Queues the writes, and waits for a leader to commit them, or becomes one.
    fn follow(&self, writes: Writes<'_>, durability: Durability) -> Result<Seqno> {
        let outcome = OnceLock::new();
        let queued = Arc::new(Queued { writes: writes.to_encoded(), durability, outcome });
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&queued));
        self.is_queued.store(true, Ordering::Release);
        let pen = self.pen()?;
        if let Some(outcome) = queued.outcome.get() {
            return outcome.clone();
        }
        self.lead(pen, None)?;
        queued.outcome.get().cloned().unwrap_or_else(|| Err(self.refused_by_panic()))
    }

    /// Commits `own` writes and all that are queued. Gives the last number of `own`, or of all.
    fn lead(
        &self,
        mut pen: MutexGuard<'_, Pen>,
        own: Option<(Writes<'_>, Durability)>,
    ) -> Result<Seqno> {
        let queued = match self.is_queued.load(Ordering::Acquire) {
            true => {
                self.is_queued.store(false, Ordering::Release);
                std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
            }
            false => Vec::new(),
        };
        if let Err(refusal) = self.check() {
            queued.iter().for_each(|other| _ = other.outcome.set(Err(refusal.clone())));
            return Err(refusal);
        }
        let pen = &mut *pen;
        if let Some((Writes::One { target, key, .. }, _)) = &own {
            target.engine.prefetch(key);
        }
        let own_first = own.map(|(writes, _)| self.append(pen, &writes));
        let firsts: Vec<Result<Seqno>> =
            queued.iter().map(|other| self.append(pen, &Writes::Many(&other.writes))).collect();
        let group = queued.iter().map(|other| (Writes::Many(&other.writes), other.durability));
        // What was refused asks for nothing: what is there without it may wait, as it did before.
        let asked = own.into_iter().zip(&own_first).chain(group.zip(&firsts));
        let appended = asked.filter(|(_, first)| first.is_ok()).map(|(asked, _)| asked);
        let durability = appended.filter_map(|(writes, asked)| effective(asked, &writes)).max();
        if let Err(error) = self.write_group(pen, durability) {
            for other in &queued {
                let is_hidden = planted(Bug::AcknowledgeForLeader);
                let _ = other.outcome.set(if is_hidden { Ok(0) } else { Err(error.clone()) });
            }
            return Err(error);
        }
        if planted(Bug::PublishBeforeApply) {
            self.visibility.publish(pen.last);
        }
        if let (Some((writes, _)), Some(Ok(first))) = (&own, &own_first) {
            writes.apply(*first);
        }
        for (other, first) in queued.iter().zip(&firsts) {
            if let Ok(first) = first
                && !planted(Bug::ForgetQueuedWrite)
            {
                Writes::Many(&other.writes).apply(*first);
            }
        }
        self.visibility.publish(pen.last);
        for (other, first) in queued.iter().zip(firsts) {
            let _ = other.outcome.set(first.map(|first| first + other.writes.len() - 1));
        }
        self.keep_house(pen);
        match (own, own_first) {
            (Some((writes, _)), Some(first)) => first.map(|first| first + writes.len() - 1),
            _ => Ok(pen.last),
        }
    }

    /// Numbers the writes and appends those that are logged; gives the first number. On an error nothing
    /// was appended.
    fn append(&self, pen: &mut Pen, writes: &Writes<'_>) -> Result<Seqno> {
        let (first, last) = pen.next(writes.len())?;
        let logged = writes.logged_count();
        if logged > 0 {
            let writer = pen.writer.as_mut().expect("a database that takes writes has a log");
            match *writes {
                Writes::One { target, kind, key, value } => {
                    pen.head.clear();
                    entry::put_head(&mut pen.head, target.id, kind, key, value.len());
                    writer.append(first, 1, &[&pen.head, value])
                }
                Writes::Many(writes) if planted(Bug::SplitBatch) && logged > 1 => {
                    let mut rest = &writes.logged[..];
                    entry::take(&mut rest);
                    let (one, rest) = writes.logged.split_at(writes.logged.len() - rest.len());
                    let appended = writer.append(first, 1, &[one]);
                    appended.and_then(|()| writer.append(first + 1, logged - 1, &[rest]))
                }
                Writes::Many(writes) => writer.append(first, logged, &[&writes.logged]),
            }
            .or_else(|error| match self.failed_append(error) {
                Error::NoSpace { .. } if planted(Bug::AcknowledgeNoSpace) => Ok(()),
                error => {
                    if planted(Bug::PublishBeforeLog) {
                        writes.apply(first);
                        pen.last = last;
                    }
                    Err(error)
                }
            })?;
        }
        pen.last = last;
        let taken = self.taken.load(Ordering::Relaxed) + writes.bytes() as u64;
        self.taken.store(taken, Ordering::Relaxed);
        Ok(first)
    }

    /// The error for the caller to return of something that was not appended; if it is unknown whether it was, writes are refused
    /// from now on.
    pub(crate) fn failed_append(&self, error: AppendError) -> Error {
        match error {
            AppendError::Refused(error) => error,
            AppendError::Unknown(error) => self.poison(&error),
        }
    }

    /// Hands the group's records to the kernel, unless all of them may stay buffered.
    fn write_group(&self, pen: &mut Pen, durability: Option<Durability>) -> Result<()> {
        let (Some(writer), Some(durability)) = (pen.log(), durability) else { return Ok(()) };
        let is_due = durability >= Durability::Os && !planted(Bug::BufferOsWrites);
        if is_due || writer.is_full() {
            return writer.flush().map_err(|error| self.poison(&error));
        }
        if writer.is_buffered()
            && let Some(housekeeping) = self.housekeeping.get()
        {
            housekeeping.write_out_soon();
        }
        Ok(())
    }

    /// Tells the housekeeper what is to be done, if anything; seldom.
    fn keep_house(&self, pen: &mut Pen) {
        pen.batches += 1;
        let Some(housekeeping) = self.housekeeping.get() else { return };
        if let Some(writer) = &pen.writer {
            let number = writer.segment().number;
            if pen.asked_in != number && writer.is_half_full() {
                pen.asked_in = number;
                housekeeping.prepare_segment();
            }
        }
        if pen.batches.is_multiple_of(BATCHES_BETWEEN_LOOKS) {
            housekeeping.look_at_memory();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::options::MIN_MEMORY_BUDGET;

    #[test]
    fn a_failure_while_closing_is_not_hidden_by_the_close() {
        let budget = Arc::new(Budget::new(MIN_MEMORY_BUDGET));
        let committer = Committer::new(Arc::default(), budget);
        committer.close();
        committer.write_out().unwrap();
        assert_eq!(committer.check().unwrap_err().kind(), ErrorKind::Closed);
        committer.poison(&Error::Poisoned { cause: "a failed sync".into() });
        assert_eq!(committer.write_out().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(committer.sync(MAX_SEQNO).map_err(|error| error.kind()), Ok(()));
        committer.synced.store(0, Ordering::Release);
        assert_eq!(committer.sync(1).unwrap_err().kind(), ErrorKind::Poisoned);
    }
}
