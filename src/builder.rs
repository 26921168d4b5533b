//! How a database is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::options::{DEFAULT_MEMORY_BUDGET, Durability, MIN_MEMORY_BUDGET, RecoveryMode};
use crate::reducer::Reducers;
use crate::vfs::{DiskFs, Fs, Layer};

/// The options of a database, as plain data.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseOptions {
    pub(crate) path: PathBuf,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) memory_budget: usize,
    pub(crate) durability: Durability,
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) recovery: RecoveryMode,
    pub(crate) log_layer: Layer,
    pub(crate) reducers: Reducers,
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
            durability: Durability::default(),
            create: true,
            read_only: false,
            recovery: RecoveryMode::default(),
            log_layer: Layer::Mmap,
            reducers: Reducers::default(),
        })
    }

    /// The memory that memtables, page caches, the block cache, and the indexes and filters of open tables may
    /// take together, in bytes. Default: 512 MiB; at least 8 MiB. What is read and still held by the caller
    /// ([`Slice`](crate::Slice)) comes on top.
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.0.memory_budget = bytes;
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
    /// copy of memory; with [`Layer::Positional`] it costs a system call, in blocks one that moves at least a
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
    /// impossible sizes of the log's layer or names of reducers, and for page caches larger than half of the budget;
    /// `Unsupported` if the file system does not offer the log's layer; `Io`, `NoSpace`. Damage is found before anything is
    /// changed. After `Io` or `NoSpace` a part of the recovery may have been done, and the next opening goes on with it.
    pub fn open(self) -> Result<Database> {
        if self.0.memory_budget < MIN_MEMORY_BUDGET {
            return Err(Error::Invalid(format!(
                "a memory budget of {} bytes is too small: give at least {MIN_MEMORY_BUDGET} (8 MiB)",
                self.0.memory_budget
            )));
        }
        self.0.reducers.check()?;
        Database::open_with(self.0)
    }
}
