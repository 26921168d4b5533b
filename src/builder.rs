//! How a database is opened.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::events::{Listener, Listeners};
use crate::open;
use crate::options::{
    BACKGROUND_THREADS, CompactionLock, DEFAULT_LOG_BUFFER, DEFAULT_LOG_FLUSH_INTERVAL,
    DEFAULT_MEMORY_BUDGET, DEFAULT_OPEN_FILES, Durability, LOG_FLUSH_INTERVALS,
    MIN_BACKGROUND_RATE, MIN_LOG_BUFFER, MIN_MEMORY_BUDGET, MIN_OPEN_FILES, RecoveryMode,
};
use crate::reducer::Reducers;
use crate::status::Watch;
use crate::vfs::{DiskFs, Fs, Layer};

/// The options of a database, as plain data.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseOptions {
    pub(crate) path: PathBuf,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) memory_budget: usize,
    pub(crate) open_files: usize,
    /// The most bytes of the block cache; `None`: as much as the others leave.
    pub(crate) block_cache: Option<usize>,
    pub(crate) background_threads: usize,
    pub(crate) compaction_lock: CompactionLock,
    /// Bytes a second that upkeep may write; `None`: as fast as it can.
    pub(crate) background_rate: Option<u64>,
    pub(crate) log_buffer: usize,
    /// `None`: buffered records wait until they are asked for.
    pub(crate) log_flush_interval: Option<Duration>,
    pub(crate) durability: Durability,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) recovery: RecoveryMode,
    pub(crate) log_layer: Layer,
    pub(crate) reducers: Reducers,
    pub(crate) listeners: Listeners,
    pub(crate) publish_status: bool,
}

/// Half of the processors, so that callers have the rest. Counting them reads files of the system, and is
/// done once.
fn default_background_threads() -> usize {
    static DEFAULT: OnceLock<usize> = OnceLock::new();
    let half = |processors: NonZero<usize>| (processors.get() / 2).clamp(1, 4);
    *DEFAULT.get_or_init(|| std::thread::available_parallelism().map_or(1, half))
}

/// Opens a database with other than the default options. Made by
/// [`Database::builder`].
///
/// ```
/// # fn main() -> turbidite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("my.db");
/// use turbidite::{Database, Durability};
/// let db = Database::builder(path).memory_budget(64 << 20).durability(Durability::Sync).open()?;
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `open` is called"]
pub struct DatabaseBuilder(DatabaseOptions);

impl DatabaseBuilder {
    pub(crate) fn new(path: &Path) -> Self {
        Self(DatabaseOptions {
            path: path.to_path_buf(),
            fs: Arc::new(DiskFs::new()),
            memory_budget: DEFAULT_MEMORY_BUDGET,
            open_files: DEFAULT_OPEN_FILES,
            block_cache: None,
            background_threads: default_background_threads(),
            compaction_lock: CompactionLock::default(),
            background_rate: None,
            log_buffer: DEFAULT_LOG_BUFFER,
            log_flush_interval: Some(DEFAULT_LOG_FLUSH_INTERVAL),
            durability: Durability::default(),
            create: true,
            read_only: false,
            recovery: RecoveryMode::default(),
            log_layer: Layer::Mmap,
            reducers: Reducers::default(),
            listeners: Listeners::default(),
            publish_status: false,
        })
    }

    /// The memory that memtables, page caches, the block cache, and the indexes and filters of open tables may
    /// take together, in bytes. Default: 512 MiB; at least 8 MiB. What is read and still held by the caller
    /// ([`Slice`](crate::Slice)) comes on top.
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.0.memory_budget = bytes;
        self
    }

    /// How many descriptors tables, value files, segments of hash keyspaces and sorted files have at once. When there are more,
    /// those not lately used let go of theirs, and the next read of them opens the file again, which takes some microseconds:
    /// tables keep indexes and filters in memory meanwhile, sorted files their links, and what is mapped stays mapped. Files that a read or a compaction
    /// holds, trees and the log come on top. Default: 512; at least 16.
    pub fn open_files(mut self, files: usize) -> Self {
        self.0.open_files = files;
        self
    }

    /// The most bytes that the block cache may take, as a part of the [memory budget](Self::memory_budget); 0 for none at
    /// all. Blocks lie in slabs of 128 KiB, of which the last one for each length that blocks have comes on top. Default: as many as the others leave of the budget.
    pub fn block_cache(mut self, bytes: usize) -> Self {
        self.0.block_cache = Some(bytes);
        self
    }

    /// How many threads compact, and tend hash tables, skip files and B+ trees, for all keyspaces together; besides one that
    /// flushes and one that keeps house. An LSM-tree is compacted by as many at once as its levels and key ranges allow.
    /// Default: half the processors, at most 4; 1 to 64.
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.0.background_threads = threads;
        self
    }

    /// How much of an LSM-tree a compaction keeps others from. Default: [`CompactionLock::RangeLevel`].
    pub fn compaction_lock(mut self, lock: CompactionLock) -> Self {
        self.0.compaction_lock = lock;
        self
    }

    /// How many bytes a second compactions of LSM-trees, merges of skip keyspaces and upkeep of hash keyspaces may write to
    /// their files, all together, also in calls of [`compact`](crate::Keyspace::compact): what that leaves of the device is
    /// for reads and for what writers wait for. Flushes, and all that B+ trees write, are not bound by it, nor is what is
    /// read. Writers count for more than the limit: it rises when so much is left undone that they would soon be slowed
    /// down, and there is none while they would be. Default: no limit; at least 64 KiB.
    pub fn background_rate(mut self, bytes_per_second: u64) -> Self {
        self.0.background_rate = Some(bytes_per_second);
        self
    }

    /// How many bytes of [buffered](Durability::Buffered) records the log holds back at most: what a kill may lose. They are
    /// handed to the kernel before there are more, and also where a segment of the log ends. Default: 128 KiB; from
    /// 4 KiB to a 32nd of the memory budget.
    pub fn log_buffer(mut self, bytes: usize) -> Self {
        self.0.log_buffer = bytes;
        self
    }

    /// How long [buffered](Durability::Buffered) records wait at most until they are handed to the kernel, as far as threads
    /// are run in time. Default: 4 ms; from 1 ms to an hour.
    pub fn log_flush_interval(mut self, interval: Duration) -> Self {
        self.0.log_flush_interval = Some(interval);
        self
    }

    /// Has [buffered](Durability::Buffered) records wait without a limit of time: they are handed to the kernel when the
    /// [buffer](Self::log_buffer) is full, by [`flush_log`](Database::flush_log), with a later write of another durability,
    /// when the log is synced for any reason, and when the database is closed. Takes the place of an interval.
    pub fn manual_log_flush(mut self) -> Self {
        self.0.log_flush_interval = None;
        self
    }

    /// What writes survive unless a batch says otherwise. Default: [`Durability::Os`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.0.durability = durability;
        self
    }

    /// Whether a database is created if nothing is at the path. Default: `true`.
    pub fn create(mut self, create: bool) -> Self {
        self.0.create = create;
        self
    }

    /// Opens for reading only: nothing is created or changed, not even by recovery, which happens in memory.
    /// Any number of readers may have the database open, but no writer beside them. What the log holds that
    /// keyspaces had not persisted is kept in memory, beyond the budget if it must be. Default: `false`.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.0.read_only = read_only;
        self
    }

    /// How a damaged log is treated. Default: [`RecoveryMode::Strict`].
    pub fn recovery(mut self, recovery: RecoveryMode) -> Self {
        self.0.recovery = recovery;
        self
    }

    /// How the log's files are reached. Default: [`Layer::Mmap`], which makes an acknowledged write cost a
    /// copy of memory, to a mapped file of 64 KiB that is written to the log when it is full; with [`Layer::Positional`] it costs a system call, in blocks one that moves at least a
    /// whole block. A page cache of the log takes its memory from the
    /// [memory budget](Self::memory_budget).
    pub fn log_layer(mut self, layer: Layer) -> Self {
        self.0.log_layer = layer;
        self
    }

    /// Registers a function that makes one value of several, for skip keyspaces with
    /// [`Reducer::Custom`](crate::Reducer::Custom) of this name: 1 to 255 bytes, which [`open`](Self::open) checks. Of
    /// several functions of one name the last counts. It is given the key and its values, oldest first, and has to do what
    /// [`ReduceFn`](crate::ReduceFn) says, which is more than its type.
    ///
    /// ```
    /// # fn main() -> turbidite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("my.db");
    /// use turbidite::Database;
    /// let largest = |_: &[u8], values: &[&[u8]]| values.iter().max().map_or(vec![], |v| v.to_vec());
    /// let db = Database::builder(path).reducer("largest", largest).open()?;
    /// # db.close()
    /// # }
    /// ```
    pub fn reducer(
        mut self,
        name: &str,
        function: impl Fn(&[u8], &[&[u8]]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        self.0.reducers.add(name, Arc::new(function));
        self
    }

    /// Has `listener` told of each flush, compaction and other job of background work when it has ended. There may be
    /// several; each is told of all. Cost: a call for each job, of which there is one for each few MiB that are written;
    /// [`Listener`] says what the call may do. With [`read_only`](Self::read_only) there is no background work to tell of.
    ///
    /// ```
    /// # fn main() -> turbidite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("my.db");
    /// use std::sync::Arc;
    /// use turbidite::{Database, Event};
    /// let tell = |event: &Event| println!("{} of {}: {:?}", event.kind, event.keyspace, event.outcome);
    /// let db = Database::builder(path).listener(Arc::new(tell)).open()?;
    /// # db.close()
    /// # }
    /// ```
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.0.listeners.add(listener);
        self
    }

    /// Whether other processes may [watch](Self::watch) what the database is doing, with `turbidite watch` or another
    /// program. Default: `false`. Cost: a thread that looks ten times a second for a file that is not there; for each
    /// picture that somebody asks for, some microseconds for each table, and a file of some KiB, which is not synced. Makes no
    /// difference with [`read_only`](Self::read_only). What cannot be published harms nobody.
    pub fn publish_status(mut self, publish: bool) -> Self {
        self.0.publish_status = publish;
        self
    }

    /// Watches the database, which another process may have open, instead of opening it: of these options, only path and
    /// file system count. Nothing but `watch.request` is created in its directory.
    ///
    /// # Errors
    /// `NotADatabase`, `Io`.
    pub fn watch(mut self) -> Result<Watch> {
        self.0.path = self.0.fs.absolute(&self.0.path)?;
        open::check_is_database(&self.0)?;
        Ok(Watch::new(self.0.fs, self.0.path))
    }

    /// The file system to use. Default: the operating system's.
    pub fn file_system(mut self, fs: Arc<dyn Fs>) -> Self {
        self.0.fs = fs;
        self
    }

    /// Opens the database. Cost: reads the catalog, the manifest of each keyspace, and the part of the log
    /// that keyspaces have not persisted.
    ///
    /// # Errors
    /// `NotADatabase` if the path is a file, holds something else, or holds nothing and may not be created;
    /// `Locked` if somebody has it open; `NewerFormat`; `Corruption`; `Invalid` for a budget below 8 MiB, for
    /// a block cache above it, for other numbers out of their limits, for
    /// impossible sizes of the log's layer or names of reducers, and for page caches larger than half of the budget;
    /// `Unsupported` if the file system does not offer the log's layer or that of a keyspace, or if a keyspace has a compression that is not compiled
    /// in: open it where it was, and choose another one for the keyspace there; `Io`, `NoSpace`. Damage is found before anything is
    /// changed, but for that of files of a sorted load that only the log knows of. After `Io` or `NoSpace` a part of the recovery may have been done, and the next opening goes on with it.
    pub fn open(mut self) -> Result<Database> {
        self.0.path = self.0.fs.absolute(&self.0.path)?;
        self.0.check_memory()?;
        self.0.check_log()?;
        self.0.reducers.check()?;
        Database::open_with(self.0)
    }
}

impl DatabaseOptions {
    fn check_memory(&self) -> Result<()> {
        let budget = self.memory_budget;
        if budget < MIN_MEMORY_BUDGET {
            return Err(Error::Invalid(format!(
                "a memory budget of {budget} bytes is too small: give at least {MIN_MEMORY_BUDGET} (8 MiB)"
            )));
        }
        if self.open_files < MIN_OPEN_FILES {
            return Err(Error::Invalid(format!(
                "{} open files are too few: allow at least {MIN_OPEN_FILES}",
                self.open_files
            )));
        }
        if !BACKGROUND_THREADS.contains(&self.background_threads) {
            return Err(Error::Invalid(format!(
                "{} background threads: there must be from {} to {}",
                self.background_threads,
                BACKGROUND_THREADS.start(),
                BACKGROUND_THREADS.end()
            )));
        }
        if let Some(rate) = self.background_rate.filter(|rate| *rate < MIN_BACKGROUND_RATE) {
            return Err(Error::Invalid(format!(
                "a background rate of {rate} bytes a second is too low: give at least {MIN_BACKGROUND_RATE} (64 KiB)"
            )));
        }
        match self.block_cache {
            Some(bytes) if bytes > budget => Err(Error::Invalid(format!(
                "a block cache of {bytes} bytes is larger than the memory budget of {budget} bytes, of which it is a part"
            ))),
            _ => Ok(()),
        }
    }

    fn check_log(&self) -> Result<()> {
        let (bytes, most) = (self.log_buffer, self.memory_budget / 32);
        if !(MIN_LOG_BUFFER..=most).contains(&bytes) {
            return Err(Error::Invalid(format!(
                "a log buffer of {bytes} bytes: it must be from {MIN_LOG_BUFFER} to {most} bytes, a 32nd of the memory \
                 budget"
            )));
        }
        match self.log_flush_interval {
            Some(interval) if !LOG_FLUSH_INTERVALS.contains(&interval) => {
                Err(Error::Invalid(format!(
                    "a log flush interval of {interval:?}: it must be from {:?} to {:?}",
                    LOG_FLUSH_INTERVALS.start(),
                    LOG_FLUSH_INTERVALS.end()
                )))
            }
            _ => Ok(()),
        }
    }
}
