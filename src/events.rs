//! What background work tells about itself: one [`Event`] for each job that ended, and the jobs that are under way.
//!
//! ```text
//!   engine                     Observer                  Events                  listeners
//!   begin(kind, inputs) -----> a job with a number ----> among those under way
//!   wrote(outputs), done
//!   end(result) -------------> figures of the keyspace   not any more -------> event
//! ```
//!
//! Thread safety: everything may be called from any thread. A listener is called by the thread that did the job, one job at
//! a time in each thread, while no lock of the store and no claim is held. Its panic goes no further than the log.
//!
//! Locks: `running`, held for a moment; nothing is called under it.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::stats::WorkStats;
use crate::sync::{Mutex, MutexGuard};

/// Is told what the database does in the background: see [`DatabaseBuilder::listener`](crate::DatabaseBuilder::listener).
///
/// It is called once for each job, when that has ended and holds nothing any more, by the thread that did it. So that thread
/// waits for the call to return, and `settle`, `compact`, `persist` and `close` wait for it, too: whoever has much to do
/// hands the event to a thread of its own. What waits for background work must not be called from here, and writes may be
/// made to wait for it: reading is allowed, writing is not. If it drops the last handle of the database, that is closed soon after, by
/// another thread. Calls may come from several threads at once. No call comes any more once the database is closed. A panic is noted in the log and changes
/// nothing else.
pub trait Listener: Send + Sync {
    /// A job has ended.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> Listener for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum JobKind {
    /// A memtable, or the tail of a hash keyspace, is written to files.
    Flush,
    /// A compaction: tables of an LSM-tree or runs of a skip keyspace are merged into new ones.
    Merge,
    /// A compaction: tables of an LSM-tree change their level as they are.
    Move,
    /// A compaction: tables of an LSM-tree go, with all that is in them.
    Drop,
    /// What a sorted load wrote takes its place.
    Load,
    /// A clear takes away what there was.
    Clear,
    /// One piece of a hash keyspace's upkeep.
    Upkeep,
}

impl JobKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Flush, Self::Merge, Self::Move, Self::Drop, Self::Load, Self::Clear, Self::Upkeep];

    /// Its name: `flush`, `merge`, `move`, `drop`, `load`, `clear` or `upkeep`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Merge => "merge",
            Self::Move => "move",
            Self::Drop => "drop",
            Self::Load => "load",
            Self::Clear => "clear",
            Self::Upkeep => "upkeep",
        }
    }

    /// Whether it is a compaction.
    #[must_use]
    pub fn is_compaction(self) -> bool {
        matches!(self, Self::Merge | Self::Move | Self::Drop)
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Tables of one level of an LSM-tree.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LevelRange {
    /// 0 is the newest.
    pub level: u32,
    /// How many there are.
    pub tables: u64,
    /// The bytes of their files.
    pub bytes: u64,
    /// The first key of all of them.
    pub smallest: Vec<u8>,
    /// The last key.
    pub largest: Vec<u8>,
}

impl LevelRange {
    /// The range of `tables`, each with its bytes and its first and last key; `None` if there are none.
    pub(crate) fn around<'a>(
        level: usize,
        tables: impl Iterator<Item = (u64, &'a [u8], &'a [u8])>,
    ) -> Option<Self> {
        let one = tables.map(|(bytes, smallest, largest)| (1, bytes, smallest, largest));
        let sum = one.reduce(|a, b| (a.0 + 1, a.1.saturating_add(b.1), a.2.min(b.2), a.3.max(b.3)));
        let (tables, bytes, smallest, largest) = sum?;
        let (smallest, largest) = (smallest.to_vec(), largest.to_vec());
        Some(Self { level: level as u32, tables, bytes, smallest, largest })
    }
}

/// How a job ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// What it made is in its place.
    Done,
    /// It was told to stop because the database is closed, or a clear came first. Nothing has changed.
    GivenUp,
    /// It failed and changed nothing. Unless the error is one that does not mend, it is tried again, as another job.
    Failed(Error),
}

/// A job of background work that has ended. A try that failed is a job of its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// Counts the jobs of a database in the order in which they began, from 1 on, since it was opened.
    pub number: u64,
    /// The keyspace.
    pub keyspace: Arc<str>,
    /// What it did.
    pub kind: JobKind,
    /// The tables it began with, one entry for each level that it took some from, ascending. Empty for flushes and for other
    /// engines than the LSM-tree.
    pub inputs: Vec<LevelRange>,
    /// What it put in their place, likewise. Empty unless it is [`Done`](Outcome::Done).
    pub outputs: Vec<LevelRange>,
    /// The lengths of the files that it read from front to back, and of those that it need not read because all in them
    /// lies in a range that was deleted. Values that were kept apart and moved are not counted.
    pub read_bytes: u64,
    /// The lengths of the files that it wrote, value files included; 0 unless it is [`Done`](Outcome::Done), and where it is
    /// not known: for B+ trees and upkeep.
    pub written_bytes: u64,
    /// When the database was opened.
    pub opened: Instant,
    /// How long after that the job began,
    pub start: Duration,
    /// and ended: by a clock that never goes back.
    pub end: Duration,
    /// How many jobs of the database, this one counted, were under way at once at most while it was.
    pub together: u32,
    /// How it ended.
    pub outcome: Outcome,
}

thread_local! {
    /// Whose listeners the thread is in, by the address of the events.
    static TELLING: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Those who want to be told.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Vec<Arc<dyn Listener>>);

impl Listeners {
    pub(crate) fn add(&mut self, listener: Arc<dyn Listener>) {
        self.0.push(listener);
    }

    fn tell(&self, event: &Event) {
        for listener in &self.0 {
            if catch_unwind(AssertUnwindSafe(|| listener.event(event))).is_err() {
                log::error!("a listener panicked at the end of a {}", event.kind);
            }
        }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listeners").field(&self.0.len()).finish()
    }
}

/// A job that is under way.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay {
    pub(crate) number: u64,
    pub(crate) keyspace: Arc<str>,
    pub(crate) kind: JobKind,
    /// The first and the last level it works on, if it has any.
    pub(crate) levels: Option<(u32, u32)>,
    /// The bytes of its inputs.
    pub(crate) bytes: u64,
    pub(crate) start: Duration,
    together: u32,
}

/// What the database's background work tells.
pub(crate) struct Events {
    opened: Instant,
    listeners: Listeners,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    /// How many jobs have begun.
    begun: u64,
    jobs: Vec<UnderWay>,
}

impl Events {
    pub(crate) fn new(listeners: Listeners) -> Self {
        Self { opened: crate::sync::now(), listeners, running: Mutex::default() }
    }

    fn tell(&self, event: &Event) {
        let outer = TELLING.replace(Some(self.address()));
        self.listeners.tell(event);
        TELLING.set(outer);
    }

    /// Whether the calling thread is in a listener of this database.
    pub(crate) fn is_telling(&self) -> bool {
        TELLING.get() == Some(self.address())
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// How long the database has been open.
    pub(crate) fn now(&self) -> Duration {
        crate::sync::now() - self.opened
    }

    /// The jobs that are under way, in the order in which they began.
    pub(crate) fn under_way(&self) -> Vec<UnderWay> {
        self.lock().jobs.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Events {
    fn default() -> Self {
        Self::new(Listeners::default())
    }
}

/// What jobs of one keyspace have done.
#[derive(Default)]
struct Figures {
    flushed: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

/// Takes note of the jobs of one keyspace.
#[derive(Clone, Default)]
pub(crate) struct Observer {
    keyspace: Arc<str>,
    events: Arc<Events>,
    figures: Arc<Figures>,
}

impl Observer {
    pub(crate) fn new(keyspace: &str, events: &Arc<Events>) -> Self {
        let (keyspace, events) = (keyspace.into(), Arc::clone(events));
        Self { keyspace, events, figures: Arc::default() }
    }

    /// A job begins, with these inputs; of an LSM-tree, it writes to the level `output`.
    pub(crate) fn begin(
        &self,
        kind: JobKind,
        inputs: Vec<LevelRange>,
        output: Option<usize>,
    ) -> Job {
        let start = self.events.now();
        let bytes = inputs.iter().map(|input| input.bytes).fold(0, u64::saturating_add);
        let levels = || inputs.iter().map(|input| input.level).chain(output.map(|to| to as u32));
        let levels = levels().min().zip(levels().max());
        let keyspace = Arc::clone(&self.keyspace);
        let mut running = self.events.lock();
        running.begun += 1;
        let number = running.begun;
        let together = running.jobs.len() as u32 + 1;
        running.jobs.iter_mut().for_each(|other| other.together = other.together.max(together));
        running.jobs.push(UnderWay { number, keyspace, kind, levels, bytes, start, together });
        drop(running);
        let read_bytes = if kind == JobKind::Merge { bytes } else { 0 };
        Job {
            observer: self.clone(),
            number,
            kind,
            start,
            inputs,
            read_bytes,
            written: Written::default(),
        }
    }

    /// Runs a job of which no more is known than what it does, and how it ends.
    pub(crate) fn observe<T>(&self, kind: JobKind, job: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut begun = self.begin(kind, Vec::new(), None);
        let result = job();
        begun.done();
        begun.end(result)
    }

    /// What jobs have done so far.
    pub(crate) fn stats(&self) -> WorkStats {
        let get = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        let Figures { flushed, read, written } = &*self.figures;
        WorkStats {
            flushed_bytes: get(flushed),
            compaction_read_bytes: get(read),
            compaction_written_bytes: get(written),
        }
    }
}

#[derive(Default)]
struct Written {
    outputs: Vec<LevelRange>,
    bytes: u64,
    is_done: bool,
}

/// A job that has begun. If it is dropped before its [end](Self::end), by a panic, nobody is told.
#[must_use]
pub(crate) struct Job {
    observer: Observer,
    number: u64,
    kind: JobKind,
    start: Duration,
    inputs: Vec<LevelRange>,
    read_bytes: u64,
    written: Written,
}

impl Job {
    /// It read so many bytes.
    pub(crate) fn read(&mut self, bytes: u64) {
        self.read_bytes = self.read_bytes.saturating_add(bytes);
    }

    /// It put these tables in their place.
    pub(crate) fn put(&mut self, outputs: impl IntoIterator<Item = LevelRange>) {
        self.written.outputs.extend(outputs);
    }

    /// It wrote files of so many bytes.
    pub(crate) fn wrote(&mut self, bytes: u64) {
        self.written.bytes = self.written.bytes.saturating_add(bytes);
    }

    /// What it made is in its place.
    pub(crate) fn done(&mut self) {
        self.written.is_done = true;
    }

    /// It ends, with `result`, which is given back. Called while nothing is held.
    pub(crate) fn end<T>(mut self, result: Result<T>) -> Result<T> {
        let end = self.observer.events.now();
        let written = std::mem::take(&mut self.written);
        let (written, outcome) = match &result {
            Ok(_) if written.is_done => (written, Outcome::Done),
            Ok(_) | Err(Error::Closed) => (Written::default(), Outcome::GivenUp),
            Err(error) => (Written::default(), Outcome::Failed(error.clone())),
        };
        if written.is_done {
            self.count(written.bytes);
        }
        let event = Event {
            number: self.number,
            keyspace: Arc::clone(&self.observer.keyspace),
            kind: self.kind,
            inputs: std::mem::take(&mut self.inputs),
            outputs: written.outputs,
            read_bytes: self.read_bytes,
            written_bytes: written.bytes,
            opened: self.observer.events.opened,
            start: self.start,
            end,
            together: self.leave(),
            outcome,
        };
        self.observer.events.tell(&event);
        result
    }

    fn count(&self, written: u64) {
        let figures = &self.observer.figures;
        if self.kind.is_compaction() {
            figures.read.fetch_add(self.read_bytes, Ordering::Relaxed);
            figures.written.fetch_add(written, Ordering::Relaxed);
        } else {
            figures.flushed.fetch_add(written, Ordering::Relaxed);
        }
    }

    /// It is under way no more. How many were together with it is given, once.
    fn leave(&self) -> u32 {
        let mut running = self.observer.events.lock();
        let found = running.jobs.iter().position(|job| job.number == self.number);
        found.map_or(0, |at| running.jobs.remove(at).together)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An observer, and the events that it has told of.
    fn observer() -> (Observer, Arc<Mutex<Vec<Event>>>) {
        let told = Arc::<Mutex<Vec<Event>>>::default();
        let mut listeners = Listeners::default();
        listeners.add(Arc::new(|_: &Event| panic!("on purpose")));
        let events = Arc::clone(&told);
        listeners.add(Arc::new(move |event: &Event| events.lock().unwrap().push(event.clone())));
        (Observer::new("main", &Arc::new(Events::new(listeners))), told)
    }

    fn range(level: usize, bytes: u64, smallest: &str, largest: &str) -> LevelRange {
        let table = (bytes, smallest.as_bytes(), largest.as_bytes());
        LevelRange::around(level, [table].into_iter()).unwrap()
    }

    #[test]
    fn a_range_is_around_all_tables() {
        let tables: [(u64, &[u8], &[u8]); 3] = [(1, b"f", b"g"), (2, b"b", b"c"), (4, b"d", b"x")];
        let range = LevelRange::around(3, tables.into_iter()).unwrap();
        assert_eq!((range.level, range.tables, range.bytes), (3, 3, 7));
        assert_eq!((&range.smallest[..], &range.largest[..]), (&b"b"[..], &b"x"[..]));
        assert_eq!(LevelRange::around(0, std::iter::empty()), None);
    }

    #[test]
    fn every_job_is_told_of_once_and_a_panicking_listener_harms_nobody() {
        let (observer, told) = observer();
        let mut merge = observer.begin(
            JobKind::Merge,
            vec![range(1, 10, "a", "c"), range(2, 5, "b", "d")],
            Some(2),
        );
        let flush = observer.begin(JobKind::Flush, Vec::new(), Some(0));
        let under_way = observer.events.under_way();
        assert_eq!(under_way.len(), 2);
        assert_eq!((under_way[0].levels, under_way[0].bytes), (Some((1, 2)), 15));
        merge.put([range(2, 12, "a", "d")]);
        merge.wrote(12);
        merge.done();
        merge.end(Ok(())).unwrap();
        assert!(flush.end::<()>(Err(Error::Closed)).is_err());
        let failed = Error::Invalid("no".into());
        assert!(observer.observe::<()>(JobKind::Upkeep, || Err(failed)).is_err());
        let told = told.lock().unwrap();
        let [merge, flush, failed] = &told[..] else { panic!("{told:?}") };
        assert_eq!((merge.number, merge.together, merge.kind), (1, 2, JobKind::Merge));
        assert_eq!((merge.read_bytes, merge.written_bytes), (15, 12));
        assert!(matches!(merge.outcome, Outcome::Done) && merge.outputs.len() == 1);
        assert!(merge.start <= merge.end && &*merge.keyspace == "main");
        assert_eq!((flush.number, flush.together), (2, 2));
        assert!(matches!(flush.outcome, Outcome::GivenUp));
        assert!(matches!(failed.outcome, Outcome::Failed(_)) && failed.together == 1);
        let stats = observer.stats();
        assert_eq!((stats.compaction_read_bytes, stats.compaction_written_bytes), (15, 12));
        assert_eq!(stats.flushed_bytes, 0);
        assert!(observer.events.under_way().is_empty());
    }

    #[test]
    fn a_job_that_panics_leaves_and_nobody_is_told() {
        let (observer, told) = observer();
        let theirs = observer.clone();
        let thread = std::thread::spawn(move || {
            let _job = theirs.begin(JobKind::Flush, Vec::new(), None);
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        assert!(observer.events.under_way().is_empty() && told.lock().unwrap().is_empty());
    }

    #[test]
    fn names_are_told_apart() {
        let names: std::collections::BTreeSet<_> = JobKind::ALL.map(JobKind::name).into();
        assert_eq!(names.len(), JobKind::ALL.len());
        assert_eq!(format!("{:>6}|", JobKind::Move), "  move|");
    }
}
