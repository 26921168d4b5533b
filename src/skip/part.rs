//! A sorted file as a keyspace knows it: what the manifest says of it, and the open file.
//!
//! Thread safety: any thread may read. The file is removed when a merge has made it obsolete and the last state, cursor or range
//! that reads it is gone: its descriptor may have been closed meanwhile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use super::file::{Room, SortedFile};
use crate::base::{Seqno, hash};
use crate::budget::Budget;
use crate::cache::{BlockCache, Closable, Handle, OpenFiles, Rest};
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::vfs::{Access, File, Fs, Hint, Layer, open_needed, remove_obsolete};

/// A file with a larger number is not ours. There is as much room again above those that are, and more.
const MOST_IDS: u64 = 1 << 48;

/// What the manifest says of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PartMeta {
    /// The number in its name; never used again.
    pub(super) id: u64,
    pub(super) len: u64,
    pub(super) records: u64,
    /// Whether it is the sorted file, which has one state of all keys, and not a run of changes.
    pub(super) is_base: bool,
    /// It has writes above this number,
    pub(super) after: Seqno,
    /// and all up to this one. Records without trailers count as written with it.
    pub(super) to: Seqno,
}

/// Where a keyspace's files live and how they are reached.
pub(super) struct Home {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) dir: PathBuf,
    pub(super) identity: u64,
    pub(super) layer: Mutex<Layer>,
    pub(super) blocks: Arc<BlockCache>,
    pub(super) open_files: Arc<OpenFiles>,
    pub(super) budget: Arc<Budget>,
}

impl Home {
    pub(super) fn path(&self, id: u64) -> PathBuf {
        self.dir.join(file_name(id))
    }

    /// What the checksums of file `id` are bound to.
    pub(super) fn identity_of(&self, id: u64) -> u64 {
        hash::file_identity(self.identity, id)
    }

    /// Creates the file `id`.
    pub(super) fn create(&self, id: u64, layer: Layer) -> Result<Arc<dyn File>> {
        self.fs.create(&self.path(id), layer)
    }

    /// What one more file may keep in memory.
    pub(super) fn room(&self) -> Room {
        Room { links: self.open_files.room_for_extras(), slots: self.open_files.room() }
    }

    pub(super) fn layer(&self) -> Layer {
        *self.layer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number in the name of a file; `None` if it is not one of ours.
    fn id_of(name: &str) -> Option<u64> {
        let id = name.strip_suffix(".sorted")?.parse().ok()?;
        (id < MOST_IDS && name == file_name(id)).then_some(id)
    }

    /// The numbers of all sorted files there are.
    pub(super) fn ids(fs: &dyn Fs, dir: &Path) -> Result<BTreeSet<u64>> {
        Ok(fs.list(dir)?.iter().filter_map(|name| Self::id_of(name)).collect())
    }
}

fn file_name(id: u64) -> String {
    format!("{id:06}.sorted")
}

/// The name of a file. If it is obsolete, the file is removed with the last one who may have to open it.
pub(super) struct Name {
    home: Arc<Home>,
    id: u64,
    obsolete: AtomicBool,
}

impl Name {
    pub(super) fn new(home: &Arc<Home>, id: u64) -> Arc<Self> {
        Arc::new(Self { home: Arc::clone(home), id, obsolete: AtomicBool::new(false) })
    }

    /// The file, of `len` bytes, which is open, and reached by `layer` if it is opened again: without
    /// its page cache if the keyspace has left that.
    pub(super) fn handle(self: &Arc<Self>, file: Arc<dyn File>, layer: Layer, len: u64) -> Handle {
        let name = Arc::clone(self);
        Handle::closing(file, &self.home.open_files, move || {
            let file = name.open(layer.again_under(name.home.layer()))?;
            let found = file.len()?;
            if found != len {
                let what = format!("the file is {found} bytes long, not {len}");
                return Err(Error::corruption(file.path(), found.min(len), what));
            }
            file.advise(0..len, Hint::Random);
            Ok(file)
        })
    }

    fn open(&self, layer: Layer) -> Result<Arc<dyn File>> {
        open_needed(&*self.home.fs, &self.home.path(self.id), Access::Read, layer)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Relaxed) {
            remove_obsolete(&*self.home.fs, &self.home.path(self.id));
        }
    }
}

/// A sorted file of some state.
pub(super) struct Part {
    pub(super) meta: PartMeta,
    pub(super) sorted: Arc<SortedFile>,
    name: Arc<Name>,
    /// How the file is reached.
    layer: Layer,
    memory: usize,
}

impl Part {
    /// Opens a file.
    ///
    /// # Errors
    /// `Corruption` if it is not the one that the manifest tells of.
    pub(super) fn open(meta: PartMeta, home: &Arc<Home>) -> Result<Arc<Self>> {
        Self::open_as(meta, &Name::new(home, meta.id))
    }

    /// Opens the same file by the layer that the keyspace has now.
    pub(super) fn reopen(&self) -> Result<Arc<Self>> {
        Self::open_as(self.meta, &self.name)
    }

    fn open_as(meta: PartMeta, name: &Arc<Name>) -> Result<Arc<Self>> {
        let home = &name.home;
        let layer = home.layer();
        let file = name.handle(name.open(layer)?, layer, meta.len);
        let room = home.room();
        let identity = home.identity_of(meta.id);
        let sorted = SortedFile::open(file, identity, meta.len, meta.to, &home.blocks, room)?;
        let shape = sorted.footer.shape;
        if sorted.footer.records != meta.records
            || !(meta.is_base || shape.has_trailers || meta.after + 1 == meta.to)
        {
            let what = "the file is not the one its manifest tells of";
            return Err(Error::corruption(&home.path(meta.id), 0, what));
        }
        Ok(Self::new(meta, sorted, name, layer))
    }

    /// An open file, which is reached by `layer`.
    pub(super) fn new(
        meta: PartMeta,
        sorted: SortedFile,
        name: &Arc<Name>,
        layer: Layer,
    ) -> Arc<Self> {
        let memory = sorted.memory();
        let (sorted, name_of) = (Arc::new(sorted), Arc::clone(name));
        let part = Arc::new(Self { meta, sorted, name: name_of, layer, memory });
        let weak: Weak<Self> = Arc::downgrade(&part);
        name.home.open_files.opened(weak, memory, || ());
        part
    }

    /// Says that no later state holds it: its file is removed with the last reader.
    pub(super) fn set_obsolete(&self) {
        self.name.obsolete.store(true, Ordering::Relaxed);
    }

    pub(super) fn layer(&self) -> Layer {
        self.layer
    }

    /// Bytes of memory it takes, without cached blocks.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }
}

/// Files are few, and keep what they have in memory: a search that finds its links there is what they are for.
impl Closable for Part {
    fn was_used(&self) -> bool {
        true
    }

    fn close(&self) -> usize {
        0
    }

    fn rest(&self) -> Rest {
        self.sorted.rest();
        Rest::Kept
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.name.home.open_files.closed(self.memory);
    }
}
