//! All layers, made of what a file system offers by itself.
//!
//! | layer | is made of |
//! |---|---|
//! | `mmap`, `pos` | the file as it is |
//! | `pos-block` | blocks over the positional file |
//! | `pos-direct` | blocks over the raw direct file |
//! | `pos-block-cache` | pages of the cache over the positional file |
//! | `pos-direct-cache` | pages of the cache over `pos-direct` |
//!
//! What blocks and pages hold back can be kept from files that are not ours any more: see [`revoke`](LayeredFs::revoke).
//!
//! Thread safety: one lock, held for a moment, around which page caches there are; one for each directory while it is synced. Invariants: files keep the cache they were
//! opened with; of the caches that live, only that of the layer which is kept lives without files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak};

use super::block::BlockFile;
use super::pages::{PageCache, PageCacheStats, PagedFile};
use super::revocable::{RevocableFile, Right};
use super::{
    Access, Dir, File, Fs, IoStats, Layer, LockGuard, PROBE, PathKind, change_names,
    is_too_many_open,
};
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};

/// A file system that offers every [`Layer`], over one that need not. All files that are opened through it
/// with the same layer and sizes share one page cache, which is made when the first of them is. It goes with the last of them,
/// but for that of one layer: the first that had one made, or the one that [`keep_only`](Self::keep_only) named. One that was let
/// go of by that is not shared any more.
#[derive(Debug)]
pub struct LayeredFs {
    inner: Arc<dyn Fs>,
    caches: Mutex<Caches>,
    right: Arc<Right>,
    /// Of each directory that was synced, whether the last sync has failed.
    failed_syncs: Mutex<HashMap<PathBuf, Arc<Mutex<bool>>>>,
}

/// The page cache that is kept, those that others were opened with, and what earlier ones have done.
#[derive(Debug, Default)]
struct Caches {
    /// The layer whose cache is kept.
    layer: Option<Layer>,
    kept: Option<Arc<PageCache>>,
    /// Those of other layers, which their files keep.
    others: Vec<(Layer, Weak<PageCache>)>,
    earlier: PageCacheStats,
}

impl Caches {
    fn keep_only(&mut self, layer: Layer) {
        if self.layer == Some(layer) {
            return;
        }
        self.layer = Some(layer);
        let kept = self.other(layer);
        if let Some(old) = std::mem::replace(&mut self.kept, kept) {
            self.earlier = self.earlier + old.stats();
        }
        self.others.retain(|(other, cache)| *other != layer && cache.strong_count() > 0);
    }

    /// One that files of `layer`, which is not the kept one, have.
    fn other(&self, layer: Layer) -> Option<Arc<PageCache>> {
        self.others.iter().find_map(|(other, cache)| cache.upgrade().filter(|_| *other == layer))
    }

    /// The page cache for files of `layer`.
    fn of(&mut self, layer: Layer, block_size: u32, pages: u32) -> Result<Arc<PageCache>> {
        let is_kept = *self.layer.get_or_insert(layer) == layer;
        let found = if is_kept { self.kept.clone() } else { self.other(layer) };
        if let Some(found) = found {
            return Ok(found);
        }
        let made = PageCache::new(block_size as usize, pages as usize)?;
        if is_kept {
            self.kept = Some(Arc::clone(&made));
        } else {
            self.others.retain(|(_, cache)| cache.strong_count() > 0);
            self.others.push((layer, Arc::downgrade(&made)));
        }
        Ok(made)
    }
}

impl LayeredFs {
    /// All layers over `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        let (caches, failed_syncs) = (Mutex::default(), Mutex::default());
        Self { inner, caches, right: Arc::default(), failed_syncs }
    }

    /// From now on no file is made, removed or renamed through it, and nothing that blocks or pages hold back reaches one that was opened
    /// through it: that gives [`Error::Closed`], and to drop such files loses what was not flushed. Waits for changes that are under
    /// way. Open files of the layers that hold back nothing are as ever. To be called before somebody else may open the files.
    pub fn revoke(&self) {
        self.right.revoke();
    }

    /// What the page caches that were kept have done so far.
    #[must_use]
    pub fn page_cache_stats(&self) -> PageCacheStats {
        let caches = self.caches();
        let kept = caches.kept.as_ref().map(|kept| kept.stats());
        caches.earlier + kept.unwrap_or_default()
    }

    /// Keeps the page cache of `layer` from now on, if that has one, and lets go of the one that was kept: its memory is given
    /// back with the last file that was opened with it.
    pub fn keep_only(&self, layer: Layer) {
        self.caches().keep_only(layer);
    }

    fn names(&self, dir: &Path) -> Names {
        let mut failed_syncs = locked(&self.failed_syncs);
        let has_failed = match failed_syncs.get(dir) {
            Some(known) => Arc::clone(known),
            None => Arc::clone(failed_syncs.entry(dir.to_path_buf()).or_default()),
        };
        let (fs, right) = (Arc::clone(&self.inner), Arc::clone(&self.right));
        Names { fs, right, dir: dir.to_path_buf(), has_failed }
    }

    fn caches(&self) -> MutexGuard<'_, Caches> {
        locked(&self.caches)
    }

    /// The file of `layer`, `open` being how the inner file system is asked for one.
    fn layered(
        &self,
        layer: Layer,
        access: Access,
        open: impl FnOnce(Layer) -> Result<Arc<dyn File>>,
    ) -> Result<Arc<dyn File>> {
        layer.check()?;
        let (raw, block_size) = match layer {
            Layer::Mmap | Layer::Positional => return open(layer),
            Layer::Block { block_size } | Layer::BlockCache { block_size, .. } => {
                (Layer::Positional, block_size)
            }
            Layer::Direct { block_size } | Layer::DirectCache { block_size, .. } => {
                (Layer::Direct { block_size }, block_size)
            }
        };
        let open = |raw| {
            let file = RevocableFile::new(open(raw)?, &self.right);
            Ok::<Arc<dyn File>, Error>(Arc::new(file))
        };
        let Some(pages) = layer.page_cache_pages() else {
            return Ok(Arc::new(BlockFile::new(open(raw)?, block_size)?));
        };
        let cache = self.caches().of(layer, block_size, pages)?;
        let file = open(raw)?;
        // Pages are whole blocks but for the last one, which a raw file would not give.
        let file = match raw {
            Layer::Positional => file,
            _ => Arc::new(BlockFile::new(file, block_size)?),
        };
        Ok(Arc::new(PagedFile::new(file, cache)?.with_access(access)))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The names of a directory.
struct Names {
    fs: Arc<dyn Fs>,
    right: Arc<Right>,
    dir: PathBuf,
    /// Whether the last sync has failed.
    has_failed: Arc<Mutex<bool>>,
}

impl Names {
    /// Syncs them, with another name among them if that has failed before.
    fn sync(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut has_failed = locked(&self.has_failed);
        if *has_failed {
            self.right.exercise(|| change_names(&*self.fs, &self.dir.join(PROBE)))?;
        }
        let synced = sync();
        // For want of descriptors nothing was done: no names are lost by it.
        let is_done = synced.as_ref().err().is_none_or(|error| !is_too_many_open(error));
        if is_done {
            *has_failed = synced.is_err();
        }
        synced
    }
}

/// A directory, opened through one.
struct LayeredDir {
    names: Names,
    inner: Box<dyn Dir>,
}

impl Dir for LayeredDir {
    fn sync(&self) -> Result<()> {
        self.names.sync(|| self.inner.sync())
    }
}

impl Fs for LayeredFs {
    fn open(&self, path: &Path, access: Access, layer: Layer) -> Result<Arc<dyn File>> {
        self.layered(layer, access, |raw| self.inner.open(path, access, raw))
    }

    fn create(&self, path: &Path, layer: Layer) -> Result<Arc<dyn File>> {
        self.layered(layer, Access::Write, |raw| {
            self.right.exercise(|| self.inner.create(path, raw))
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.right.exercise(|| self.inner.remove(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.right.exercise(|| self.inner.rename(from, to))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        self.inner.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        locked(&self.failed_syncs).remove(path);
        self.inner.remove_dir(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn kind(&self, path: &Path) -> Result<Option<PathKind>> {
        self.inner.kind(path)
    }

    /// One at a time for each directory. One that fails may take with it the names that others have changed, and the next one would say that they are
    /// safe: so that one changes a name first, with which all are written again.
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.names(dir).sync(|| self.inner.sync_dir(dir))
    }

    /// After a sync that has failed the names are synced at once: that takes descriptors.
    fn open_dir(&self, dir: &Path) -> Result<Box<dyn Dir>> {
        let names = self.names(dir);
        let has_failed = *locked(&names.has_failed);
        if has_failed {
            self.sync_dir(dir)?;
        }
        Ok(Box::new(LayeredDir { names, inner: self.inner.open_dir(dir)? }))
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn free_bytes(&self, dir: &Path) -> Option<u64> {
        self.inner.free_bytes(dir)
    }

    fn lock(&self, path: &Path, access: Access) -> Result<LockGuard> {
        self.inner.lock(path, access)
    }

    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::vfs::{Effect, Errno, Fault, FaultFs, MemoryFs, Operation, PowerCut};

    /// Two make files in one directory, and the sync of one fails.
    #[test]
    fn a_failed_sync_of_a_directory_takes_nobody_elses_names_with_it() {
        let memory = MemoryFs::traced();
        let fs = LayeredFs::new(Arc::new(memory.clone()));
        let (dir, name) = (Path::new("/dir"), Path::new("/dir/name"));
        fs.create_dir(dir).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        let is_safe = || {
            let image = memory.image(memory.operations(), PowerCut::DropUnsynced);
            image.kind(name).unwrap().is_some()
        };
        fs.create(name, Layer::Positional).unwrap();
        memory.lose_dir_sync_after(0, Errno::Raw(5));
        assert_eq!(fs.sync_dir(dir).unwrap_err().kind(), ErrorKind::Io);
        assert!(!is_safe());
        // Where names cannot be changed it is not said that they are safe.
        memory.set_read_only(true);
        assert!(fs.sync_dir(dir).is_err());
        memory.set_read_only(false);
        fs.sync_dir(dir).unwrap();
        assert!(is_safe());
        assert_eq!(fs.list(dir).unwrap(), ["name"]);
    }

    /// Nothing was done: the next sync needs no more descriptors than that one.
    #[test]
    fn a_sync_for_which_too_many_files_are_open_takes_no_names_with_it() {
        let faults = FaultFs::new(Arc::new(MemoryFs::new()));
        let fs = LayeredFs::new(Arc::new(faults.clone()));
        let dir = Path::new("/dir");
        fs.create_dir(dir).unwrap();
        let created = faults.calls(Operation::Create);
        faults.limit_open_files(Some(0));
        assert!(is_too_many_open(&fs.sync_dir(dir).unwrap_err()));
        faults.limit_open_files(None);
        fs.sync_dir(dir).unwrap();
        assert_eq!(faults.calls(Operation::Create), created);
        // After another error a directory is synced when it is opened, and what is open needs nothing more.
        faults.arm(Fault::new(Operation::SyncDir, Effect::Fail(Errno::Raw(5))));
        assert!(fs.sync_dir(dir).is_err());
        let opened = fs.open_dir(dir).unwrap();
        assert_eq!(faults.calls(Operation::Create), created + 1);
        faults.limit_open_files(Some(0));
        opened.sync().unwrap();
        assert!(fs.sync_dir(dir).is_err());
    }
}
