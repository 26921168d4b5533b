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
//! Thread safety: one lock, held for a moment, around which page cache is the present one. Invariant: files
//! keep the cache they were opened with.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use super::block::BlockFile;
use super::pages::{PageCache, PageCacheStats, PagedFile};
use super::revocable::{RevocableFile, Right};
use super::{Access, File, Fs, IoStats, Layer, LockGuard, PathKind};
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};

/// A file system that offers every [`Layer`], over one that need not. All files that are opened through it
/// with the same sizes share one page cache, which is made when the first of them is.
#[derive(Debug)]
pub struct LayeredFs {
    inner: Arc<dyn Fs>,
    cache: Mutex<Cache>,
    right: Arc<Right>,
}

/// The present page cache, and what earlier ones have done.
#[derive(Debug, Default)]
struct Cache {
    present: Option<(Layer, Arc<PageCache>)>,
    earlier: PageCacheStats,
}

impl Cache {
    fn keep_only(&mut self, layer: Layer) {
        if let Some((_, old)) = self.present.take_if(|(made_for, _)| *made_for != layer) {
            self.earlier = self.earlier + old.stats();
        }
    }
}

impl LayeredFs {
    /// All layers over `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self { inner, cache: Mutex::default(), right: Arc::default() }
    }

    /// From now on no file is removed or renamed through it, and nothing that blocks or pages hold back reaches one that was opened
    /// through it: that gives [`Error::Closed`], and to drop such files loses what was not flushed. Waits for changes that are under
    /// way. Open files of the layers that hold back nothing are as ever. To be called before somebody else may open the files.
    pub fn revoke(&self) {
        self.right.revoke();
    }

    /// What the page caches have done so far.
    #[must_use]
    pub fn page_cache_stats(&self) -> PageCacheStats {
        let cache = self.cache();
        let present = cache.present.as_ref().map(|(_, present)| present.stats());
        cache.earlier + present.unwrap_or_default()
    }

    /// Lets go of the page cache if it is not one for `layer`: its memory is given back with the last file that
    /// was opened with it.
    pub fn keep_only(&self, layer: Layer) {
        self.cache().keep_only(layer);
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page cache for files of `layer`.
    fn cache_for(&self, layer: Layer, block_size: u32, pages: u32) -> Result<Arc<PageCache>> {
        let mut cache = self.cache();
        cache.keep_only(layer);
        if let Some((_, present)) = &cache.present {
            return Ok(Arc::clone(present));
        }
        let made = PageCache::new(block_size as usize, pages as usize)?;
        cache.present = Some((layer, Arc::clone(&made)));
        Ok(made)
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
        let cache = self.cache_for(layer, block_size, pages)?;
        let file = open(raw)?;
        // Pages are whole blocks but for the last one, which a raw file would not give.
        let file = match raw {
            Layer::Positional => file,
            _ => Arc::new(BlockFile::new(file, block_size)?),
        };
        Ok(Arc::new(PagedFile::new(file, cache)?.with_access(access)))
    }
}

impl Fs for LayeredFs {
    fn open(&self, path: &Path, access: Access, layer: Layer) -> Result<Arc<dyn File>> {
        self.layered(layer, access, |raw| self.inner.open(path, access, raw))
    }

    fn create(&self, path: &Path, layer: Layer) -> Result<Arc<dyn File>> {
        self.layered(layer, Access::Write, |raw| self.inner.create(path, raw))
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
        self.inner.remove_dir(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn kind(&self, path: &Path) -> Result<Option<PathKind>> {
        self.inner.kind(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.inner.sync_dir(dir)
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
