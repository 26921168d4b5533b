//! A table as a version knows it: what the manifest says of it, and its open form while it is in use.
//!
//! Thread safety: any thread may read through a table file; it is opened at most once at a time. The file
//! is removed when a compaction has made it obsolete and the last version, cursor or reader that holds it
//! is gone.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use arc_swap::ArcSwapOption;

use crate::base::{Seqno, hash};
use crate::cache::{BlockCache, Closable, Handle, OpenFiles, Rest};
use crate::error::{Error, Result};
use crate::lsm::table::{Kept, Table, TableSummary, is_of_length};
use crate::lsm::values::Share;
use crate::options::KeyFile;
use crate::sync::Mutex;
use crate::vfs::{Access, File, Fs, Layer, open_needed, remove_obsolete};

/// Larger than any number that a manifest has.
pub(crate) const MOST_IDS: u64 = 1 << 56;
/// Larger than the number in the name of any file that is ours. A foreign file must not use up the numbers there are.
const MOST_NAMED: u64 = 1 << 48;

/// What the manifest says of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TableMeta {
    /// The number in its name; never used again in its keyspace while the database is open.
    pub(crate) id: u64,
    pub(crate) len: u64,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    pub(crate) smallest_seqno: Seqno,
    pub(crate) largest_seqno: Seqno,
    /// How many range tombstones it has.
    pub(crate) ranges: u64,
}

impl TableMeta {
    pub(crate) fn new(id: u64, summary: TableSummary) -> Self {
        Self {
            id,
            len: summary.len,
            entries: summary.properties.entries,
            tombstones: summary.properties.tombstones,
            smallest: summary.properties.smallest,
            largest: summary.properties.largest,
            smallest_seqno: summary.properties.smallest_seqno,
            largest_seqno: summary.properties.largest_seqno,
            ranges: summary.properties.ranges,
        }
    }
}

/// Where a keyspace's tables and value files live and how they are reached.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) layer: Mutex<Layer>,
    /// What of a table stays in memory that is opened now.
    pub(crate) key_file: Mutex<KeyFile>,
    pub(crate) identity: u64,
    pub(crate) blocks: Arc<BlockCache>,
    pub(crate) open_files: Arc<OpenFiles>,
}

impl Home {
    /// The path of table `id`.
    pub(crate) fn path(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{id:06}.table"))
    }

    /// What the checksums of table `id` are bound to.
    pub(crate) fn identity_of(&self, id: u64) -> u64 {
        hash::file_identity(self.identity, id)
    }

    /// Creates the file of table `id`.
    pub(crate) fn create(&self, id: u64) -> Result<Arc<dyn File>> {
        self.fs.create(&self.path(id), self.layer())
    }

    /// How files are reached that are opened now.
    pub(crate) fn layer(&self) -> Layer {
        *self.layer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of value file `id`.
    pub(crate) fn values_path(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{id:06}.values"))
    }

    /// The number in the name of a table or a value file; no two of them have the same.
    pub(crate) fn id_of(name: &str) -> Option<u64> {
        let digits = name.strip_suffix(".table").or_else(|| name.strip_suffix(".values"))?;
        let id =
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
        (id < MOST_NAMED).then_some(id)
    }
}

/// A table of some version.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub(crate) meta: TableMeta,
    /// What it refers to, by the numbers of the value files, ascending.
    pub(crate) values: Vec<Share>,
    home: Arc<Home>,
    open: ArcSwapOption<Table>,
    opening: Mutex<()>,
    used: AtomicBool,
    obsolete: AtomicBool,
}

impl TableFile {
    /// A table that has all its values.
    #[cfg(test)]
    pub(crate) fn new(meta: TableMeta, home: Arc<Home>) -> Arc<Self> {
        Self::with_values(meta, Vec::new(), home)
    }

    /// A table that refers to `values`, ascending.
    pub(crate) fn with_values(meta: TableMeta, values: Vec<Share>, home: Arc<Home>) -> Arc<Self> {
        Arc::new(Self {
            meta,
            values,
            home,
            open: ArcSwapOption::empty(),
            opening: Mutex::new(()),
            used: AtomicBool::new(false),
            obsolete: AtomicBool::new(false),
        })
    }

    /// Gives the open table to `read`, opening it if need be.
    #[inline]
    pub(crate) fn read<R>(
        self: &Arc<Self>,
        read: impl FnOnce(&Arc<Table>) -> Result<R>,
    ) -> Result<R> {
        if let Some(table) = &*self.open.load() {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return read(table);
        }
        read(&self.open_now()?)
    }

    /// Asks ahead for the memory that looking for a key with this hash will need, if the table is open.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(table) = &*self.open.load() {
            table.prefetch(hash);
        }
    }

    /// The open table.
    pub(crate) fn table(self: &Arc<Self>) -> Result<Arc<Table>> {
        self.read(|table| Ok(Arc::clone(table)))
    }

    /// Closes the table; its next reader opens it anew. One that is just being opened is waited for.
    pub(crate) fn let_go(&self) {
        let _one = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        self.give_back();
    }

    /// Closes the table, which nobody is just opening.
    fn give_back(&self) {
        let memory = self.close();
        if memory > 0 {
            self.home.open_files.closed(memory);
        }
    }

    /// Says that no later version holds this table: its file is removed with the last reader.
    pub(crate) fn set_obsolete(&self) {
        self.obsolete.store(true, Ordering::Relaxed);
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.home.path(self.meta.id)
    }

    /// The number that all entries of the open table count as written with, if it was loaded; else 0.
    pub(crate) fn loaded_as(&self, table: &Table) -> Seqno {
        if table.properties().largest_seqno == 0 { self.meta.largest_seqno } else { 0 }
    }

    /// An error if the table is not the one that the manifest tells of.
    fn check(&self, table: &Table) -> Result<()> {
        let (meta, found) = (&self.meta, table.properties());
        let numbers = match self.loaded_as(table) {
            0 => (found.smallest_seqno, found.largest_seqno),
            loaded_as => (loaded_as, loaded_as),
        };
        let agrees = meta.entries == found.entries
            && meta.tombstones == found.tombstones
            && meta.smallest == found.smallest
            && meta.largest == found.largest
            && meta.ranges == found.ranges
            && (meta.smallest_seqno, meta.largest_seqno) == numbers;
        if agrees {
            return Ok(());
        }
        Err(Error::corruption(&self.path(), 0, "the table is not the one its manifest tells of"))
    }

    #[cold]
    fn open_now(self: &Arc<Self>) -> Result<Arc<Table>> {
        let _one = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = self.open.load_full() {
            return Ok(table);
        }
        let home = &self.home;
        let id = self.meta.id;
        let (theirs, path, layer) = (Arc::clone(home), home.path(id), home.layer());
        let open = move || {
            let layer = layer.again_under(theirs.layer());
            open_needed(&*theirs.fs, &path, Access::Read, layer)
        };
        let file = open()?;
        let len = self.meta.len;
        let file = Handle::closing(file, &home.open_files, move || {
            let file = open()?;
            is_of_length(&*file, len).map(|()| file)
        });
        let identity = home.identity_of(id);
        let blocks = Some(Arc::clone(&home.blocks));
        let kept = *home.key_file.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = Kept { key_file: kept, points: home.open_files.room_for_extras() };
        let table = Table::open(file, identity, len, blocks, kept)?;
        self.check(&table)?;
        let table = Arc::new(table);
        self.used.store(true, Ordering::Relaxed);
        let weak: Weak<Self> = Arc::downgrade(self);
        let show = || self.open.store(Some(Arc::clone(&table)));
        home.open_files.opened(weak, table.memory(), show);
        Ok(table)
    }
}

impl Closable for TableFile {
    fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn close(&self) -> usize {
        self.open.swap(None).map_or(0, |table| table.memory())
    }

    fn rest(&self) -> Rest {
        if let Some(table) = &*self.open.load() {
            table.rest();
        }
        Rest::Kept
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        self.give_back();
        if self.obsolete.load(Ordering::Relaxed) {
            remove_obsolete(&*self.home.fs, &self.path());
        }
    }
}
