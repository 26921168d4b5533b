//! All layers, made of what a file system offers by itself.
//!
//! | layer | is made of |
//! |---|---|
//! | `mmap`, `pos` | the file as it is |
//! | `pos-block` | blocks over the positional file |
//! | `pos-direct` | blocks over the raw direct file |
//! | `pos-block-cache`, `pos-direct-cache` | pages of the cache over either of these |
//!
//! Thread safety: one lock, held for a moment, around which page cache is the present one. Invariant: files
//! keep the cache they were opened with.

use std::path::Path;
use std::sync::Arc;

use super::block::BlockFile;
use super::{Access, File, Fs, IoStats, Layer, LockGuard, PathKind};
use crate::error::Result;

/// A file system that offers every [`Layer`], over one that need not. All files that are opened through it
/// with the same sizes share one page cache, which is made when the first of them is.
#[derive(Debug)]
pub struct LayeredFs {
    inner: Arc<dyn Fs>,
}

impl LayeredFs {
    /// All layers over `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self { inner }
    }

    /// The file of `layer`, `open` being how the inner file system is asked for one.
    fn layered(
        &self,
        layer: Layer,
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
        let blocks = |file| BlockFile::new(file, block_size).map(Arc::new);
        match layer.page_cache_pages() {
            None => Ok(blocks(open(raw)?)?),
            Some(_) => {
                Err(crate::Error::Unsupported(format!("the file layer {layer} has no cache yet")))
            }
        }
    }
}

impl Fs for LayeredFs {
    fn open(&self, path: &Path, access: Access, layer: Layer) -> Result<Arc<dyn File>> {
        self.layered(layer, |raw| self.inner.open(path, access, raw))
    }

    fn create(&self, path: &Path, layer: Layer) -> Result<Arc<dyn File>> {
        self.layered(layer, |raw| self.inner.create(path, raw))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
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

    fn lock(&self, path: &Path, access: Access) -> Result<LockGuard> {
        self.inner.lock(path, access)
    }

    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}
