//! What every engine promises, and what it is given.
//!
//! An engine keeps the entries of one keyspace. Writes come in commit order, one thread at a time; reads
//! come from any thread at any time. Its persisted state is exactly one sequence number's state, so that
//! replaying the log from there is exact.

#[cfg(test)]
pub(crate) mod testing;

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use crate::base::{Kind, ReadPoint, Seqno, Slice, Span, Visibility};
use crate::budget::Budget;
use crate::cache::{BlockCache, OpenFiles};
use crate::error::{Error, Result};
use crate::events::Observer;
use crate::iter::{InOrder, OrderedCursor, UnorderedCursor};
use crate::options::{CompactionLock, LsmOptions};
use crate::reducer::Reducers;
use crate::stats::{KeyspaceStats, VerifyReport};
use crate::status::LsmStatus;
use crate::throttle::Throttle;
use crate::vfs::{BatchReader, Fs, Layer, LockGuard, remove_remade};
use crate::workers::Workers;

/// One write, numbered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    pub(crate) seqno: Seqno,
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// Keys in ascending order with their values on their way into an engine's own files, past log and memory: all of them
/// become one write.
///
/// Nobody sees anything of it before it is [installed](Self::install), and what is dropped before that leaves no file.
/// When the engine has been [stopped](Engine::stop), calls give `Closed`, and no file is touched any more: what is left,
/// the next opening clears away.
pub(crate) trait Load: Send {
    /// Adds a key and its value.
    ///
    /// # Errors
    /// `Invalid` if the key is not above the last one; what writing a file gives. The load is then given up.
    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Completes the files and syncs them, and their names. Called once, behind all keys.
    fn finish(&mut self) -> Result<()>;
    /// What the log is to have of a load that is finished: [`Engine::replay_load`] finds its files by it.
    fn describe(&self) -> Vec<u8>;
    /// Cuts the engine's state at `before`, as [`Engine::cut`] does, and puts what was loaded in front of it, as the
    /// write `seqno`. Called once, under the commit lock, between batches, on a load that is finished. Cannot fail.
    ///
    /// It counts as [not persisted](Engine::oldest_unpersisted) until the engine would find its files without the log.
    fn install(&mut self, before: Seqno, seqno: Seqno);
    /// Waits until what was installed is in the engine's own files for good, as [`Engine::persist`] does.
    fn wait(&mut self) -> Result<()>;
}

/// An engine that can be emptied at once, whatever it holds.
pub(crate) trait Clear {
    /// Takes away all that was written, up to `before`, as the write `seqno`: readers below that number go on seeing it,
    /// until it is published all, and then those that are [held](Visibility::hold). Called under the commit lock, between
    /// batches, or when the log is replayed. Cannot fail: what has to be done in files is done in the background.
    ///
    /// It counts as [not persisted](Engine::oldest_unpersisted), with all that it took away and was not, until the
    /// engine's own files say so.
    fn clear(&self, before: Seqno, seqno: Seqno);
}

/// An engine in which one write can delete all keys of a range.
pub(crate) trait DeleteRange {
    /// Takes the write `seqno`, which deletes the keys of `span`. Called like [`Engine::apply`], and as quick, however
    /// many keys there are.
    fn delete_range(&self, span: Span<'_>, seqno: Seqno);
}

/// What engines may ask of the database around them.
pub(crate) trait Host: Send + Sync {
    /// Makes the log safe from power loss at least up to `seqno`, before an engine persists that far:
    /// otherwise a power loss could leave one keyspace ahead of another.
    fn sync_log(&self, seqno: Seqno) -> Result<()>;
    /// An engine has persisted further; log segments may be free.
    fn persisted(&self);
    /// Why what the engine has in memory is not written to files, or that it is again. Called by one thread at a time, which holds a lock of the
    /// engine's jobs.
    fn trouble(&self, trouble: Option<Error>);
    /// A background job failed in a way that retrying cannot mend: writes are refused from now on.
    fn poison(&self, error: &Error);
    /// `Poisoned` if the database is: what has a number and is not published yet may never be.
    fn check_poison(&self) -> Result<()>;
}

/// Background threads of a database, one group for each urgency.
pub(crate) struct Background {
    pub(crate) flush: Workers,
    pub(crate) compaction: Workers,
    /// How many threads there are in the latter.
    pub(crate) compaction_threads: usize,
    pub(crate) compaction_lock: CompactionLock,
    /// How fast upkeep may write.
    pub(crate) throttle: Arc<Throttle>,
}

/// What an engine is given when it is opened.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) fs: Arc<dyn Fs>,
    /// The directory that is the engine's own.
    pub(crate) dir: PathBuf,
    pub(crate) layer: Layer,
    /// What the checksums of the keyspace's files are bound to, besides their number.
    pub(crate) identity: u64,
    pub(crate) budget: Arc<Budget>,
    pub(crate) blocks: Arc<BlockCache>,
    pub(crate) open_files: Arc<OpenFiles>,
    pub(crate) reader: Arc<BatchReader>,
    pub(crate) visibility: Arc<Visibility>,
    pub(crate) background: Arc<Background>,
    pub(crate) host: Arc<dyn Host>,
    /// Takes note of the keyspace's background jobs.
    pub(crate) observer: Observer,
    pub(crate) read_only: bool,
    /// Whether the keyspace's writes are in the log.
    pub(crate) logged: bool,
    /// Functions that make one value of several. What a keyspace was created with may be missing.
    pub(crate) reducers: Reducers,
    /// The database's lock, until it is closed: who lends bytes of a file that is written again holds on to it, so that nobody else
    /// writes to it while they are read.
    pub(crate) lock: Weak<LockGuard>,
}

impl Context {
    /// Makes the directory of a new engine. What an interrupted creation has left there, of whatever engine, is removed, and the directory
    /// with it, and that of all keyspaces, if this one is the first: [`remove_remade`] says why.
    ///
    /// # Errors
    /// `Invalid` if anything else is there: who has put it there wants it kept.
    pub(crate) fn make_directory(&self) -> Result<()> {
        if self.fs.kind(&self.dir)?.is_some() {
            let names = self.fs.list(&self.dir)?;
            if let Some(other) = names.iter().find(|name| !is_of_an_engine(name)) {
                return Err(Error::Invalid(format!(
                    "{} is not a file of a keyspace, and is where a new one is to be made: move it away",
                    self.dir.join(other).display()
                )));
            }
            names.iter().try_for_each(|name| self.fs.remove(&self.dir.join(name)))?;
            remove_remade(&*self.fs, &self.dir)?;
        }
        let keyspaces = self.dir.parent().unwrap_or(&self.dir);
        if self.fs.kind(keyspaces)?.is_some() && self.fs.list(keyspaces)?.is_empty() {
            remove_remade(&*self.fs, keyspaces)?;
        }
        self.fs.create_dir(&self.dir)
    }
}

/// Whether engines give their files such names: manifests, and what has a number, or is the only one of its kind.
fn is_of_an_engine(name: &str) -> bool {
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let (stem, kind) = name.split_once('.').unwrap_or((name, ""));
    match stem.strip_prefix("manifest-") {
        Some(number) => is_number(number) && matches!(kind, "" | "tmp"),
        None if kind.is_empty() => matches!(stem, "tree" | "probe"),
        None => is_number(stem) && matches!(kind, "table" | "values" | "data" | "index" | "sorted"),
    }
}

/// An index structure that keeps one keyspace.
pub(crate) trait Engine: Send + Sync {
    /// Allows changes of the engine's files, and clears away what a crash left there, but for what the log may be in
    /// need of. Called once, before the first write, when all of the database has been read and found whole.
    fn make_writable(&self) -> Result<()>;
    /// Puts a load that the log has back in its place: as the write `seqno`, behind all that has been applied. Its
    /// [description](Load::describe) is given. Called when the log is replayed, under the rules of [`cut`](Self::cut).
    ///
    /// # Errors
    /// `Corruption` if what was loaded is not there, or damaged: it was safe before the log had the load.
    fn replay_load(&self, seqno: Seqno, described: &[u8]) -> Result<()> {
        let (_, _) = (seqno, described);
        Err(Error::Unsupported("the log has a sorted load for an engine that takes none".into()))
    }
    /// The log has been replayed: clears away what was left for that. Called once, if changes are allowed.
    fn end_replay(&self) -> Result<()> {
        Ok(())
    }
    /// The engine as one that can be emptied.
    ///
    /// # Errors
    /// `Unsupported` if it cannot be.
    fn as_clear(&self) -> Result<&dyn Clear> {
        Err(Error::Unsupported(
            "this engine cannot be emptied at once; delete its keys, or use a keyspace on another engine".into(),
        ))
    }
    /// The engine as one that deletes ranges of keys.
    ///
    /// # Errors
    /// `Unsupported` if it does not.
    fn as_delete_range(&self) -> Result<&dyn DeleteRange> {
        Err(Error::Unsupported(
            "only an LSM-tree deletes a range of keys at once; delete the keys one by one, or use a keyspace on that engine"
                .into(),
        ))
    }
    /// Whether [`check_write`](Self::check_write) may refuse anything: the same at all times.
    fn checks_writes(&self) -> bool {
        false
    }
    /// An error if a put of `value` under `key` is not one that the engine can take. Called before anything is
    /// written.
    fn check_write(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let _ = (key, value);
        Ok(())
    }
    /// Takes one write. Called in commit order under the commit lock. Cannot fail: what could is done
    /// in the background.
    fn apply(&self, write: &Write<'_>);
    /// Takes one write that is a batch of its own: [`apply`](Self::apply) and [`end_batch`](Self::end_batch).
    fn apply_alone(&self, write: &Write<'_>) {
        self.apply(write);
        self.end_batch(write.seqno);
    }
    /// A write of `key` is coming; the engine may ask for the memory that it will need.
    fn prefetch(&self, key: &[u8]) {
        let _ = key;
    }
    /// A batch ends with `last`; the engine may cut its state here. Called under the commit lock.
    fn end_batch(&self, last: Seqno);
    /// Cuts the state at `last`, so that [`persist`](Self::persist) covers all up to it. Called under the
    /// commit lock, between batches.
    fn cut(&self, last: Seqno);
    /// Waits until all up to the last cut is in the engine's own files, synced.
    fn persist(&self) -> Result<()>;
    /// Calls `cut`, which has the engine [cut](Self::cut) now, [persists](Self::persist), and brings the files into the
    /// form in which they are read best, if the engine leaves that to this call.
    fn synchronize(&self, cut: &dyn Fn() -> Result<()>) -> Result<()> {
        cut()?;
        self.persist()
    }
    /// All writes up to this number are in the engine's own files, synced.
    fn persisted(&self) -> Seqno;
    /// No write above this number is in the engine's own files. If it is larger than what is
    /// [persisted](Self::persisted), some of the writes between are in them: the log must have all of those, and
    /// makes the state whole again.
    fn reach(&self) -> Seqno {
        self.persisted()
    }
    /// The oldest write that is not; `None` if there is none.
    fn oldest_unpersisted(&self) -> Option<Seqno>;
    /// The oldest write that no [cut](Self::cut) has covered, and that so nothing will persist before one does; `None` if there
    /// is none.
    fn oldest_uncut(&self) -> Option<Seqno>;
    /// Begins a load of keys in ascending order.
    ///
    /// # Errors
    /// `Unsupported` if the engine has no other way of writing than one by one; what creating a file gives.
    fn load(&self) -> Result<Box<dyn Load>> {
        Err(Error::Unsupported(
            "this engine cannot be loaded with sorted records; write them in batches, or use an LSM-tree or a skip \
             keyspace"
                .into(),
        ))
    }
    /// The newest visible value of `key` at `point`.
    fn get(&self, key: &[u8], point: ReadPoint<'_>) -> Result<Option<Slice>>;
    /// What [`get`](Self::get) gives for each of the keys, in their order, all of one state: `point` must be
    /// [held](ReadPoint::At). Meant to cost less than as many calls of `get`.
    fn multi_get(&self, keys: &[&[u8]], point: ReadPoint<'_>) -> Result<Vec<Option<Slice>>> {
        keys.iter().map(|key| self.get(key, point)).collect()
    }
    /// All values of `key` at `point`, in the order they were put: one or none, unless the engine keeps several.
    fn get_all(&self, key: &[u8], point: ReadPoint<'_>) -> Result<Vec<Slice>> {
        Ok(self.get(key, point)?.into_iter().collect())
    }
    /// The record at `position` of what is visible at `point`, counted from 0 in key order; `None` behind the last.
    fn nth(&self, position: u64, point: ReadPoint<'_>) -> Result<Option<(Slice, Slice)>> {
        let _ = (position, point);
        Err(no_positions())
    }
    /// How many of the records visible at `point` have a key below `key`.
    fn rank(&self, key: &[u8], point: ReadPoint<'_>) -> Result<u64> {
        let _ = (key, point);
        Err(no_positions())
    }
    /// A cursor over what is visible at `point`, in key order.
    fn cursor(&self, point: ReadPoint<'_>) -> Result<Box<dyn OrderedCursor>>;
    /// A walk over what is visible at `seqno`, which is held, in any order.
    fn scan(&self, seqno: Seqno) -> Result<Box<dyn UnorderedCursor>> {
        Ok(Box::new(InOrder::new(self.cursor(ReadPoint::At(seqno))?)))
    }
    /// Whether keys have an order. Where they have none, [`cursor`](Self::cursor) says so with an error.
    fn is_ordered(&self) -> bool {
        true
    }
    /// The number of keys now, if the engine happens to know it.
    fn count(&self) -> Option<u64> {
        None
    }
    /// Called before a clean close, when no more writes come: makes the next opening fast.
    fn prepare_close(&self, last: Seqno) -> Result<()> {
        let _ = last;
        Ok(())
    }
    /// How far writers must be slowed down: 0 not at all, 1000 they must wait.
    fn pressure(&self) -> u32;
    /// The same for a write that only deletes: what is full may have room for that.
    fn pressure_on_deletes(&self) -> u32 {
        self.pressure()
    }
    /// Why the engine's background work does not get on, while it is retried.
    fn trouble(&self) -> Option<Error>;
    /// The same for what memory waits for.
    fn flush_trouble(&self) -> Option<Error>;
    /// Persists, rewrites the data into its most compact form, and waits for it.
    fn compact(&self) -> Result<()>;
    /// Lets go of what is kept for readers of before, where nobody is such a reader any more. Called in the background,
    /// whenever that may be so: cheap if nothing is kept.
    fn let_go(&self) {}
    /// Waits until no background work is due.
    fn settle(&self) -> Result<()>;
    /// Reads all files, checks everything that can be checked and adds it to the report.
    fn verify(&self, report: &mut VerifyReport);
    /// Bytes of memory that a cut, once persisted, would free; what is being persisted is not counted.
    fn active_bytes(&self) -> usize;
    /// Figures; the name, and those of the page cache, are filled in by the caller.
    fn stats(&self) -> KeyspaceStats;
    /// What an LSM-tree is doing; `None` for another engine.
    fn tree_status(&self) -> Option<LsmStatus> {
        None
    }
    /// How files are reached that are opened now.
    fn layer(&self) -> Layer;
    /// Reaches files through `layer` from now on; those that are open are opened anew, now or at their next use.
    fn set_layer(&self, layer: Layer) -> Result<()>;
    /// Caches up to so many pages from now on, if it is an engine with pages of its own; `None`: as many as the
    /// database's cache holds.
    fn set_max_cached_pages(&self, _pages: Option<u32>) -> Result<()> {
        Ok(())
    }
    /// What counts for an LSM-tree, from now on, if it is one. The policy stays what it is.
    fn set_lsm_options(&self, _options: &LsmOptions) {}
    /// Stops taking up background work, and waits for what callers' threads do of it; called before the
    /// engine is dropped.
    fn stop(&self);
}

/// What an engine answers that does not count its records.
fn no_positions() -> Error {
    Error::Unsupported(
        "only a skip keyspace knows the positions of its records; read others with `range` or `iter`"
            .into(),
    )
}
