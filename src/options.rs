//! What users choose, as plain data. Defaults are written here, once.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::vfs::Layer;

/// The largest key, in bytes: 64 KiB.
pub const MAX_KEY_LEN: usize = 64 << 10;
/// The largest value, in bytes: 1 GiB.
pub const MAX_VALUE_LEN: usize = 1 << 30;
/// The memory a database uses unless told otherwise, in bytes: 512 MiB.
pub const DEFAULT_MEMORY_BUDGET: usize = 512 << 20;
/// The smallest memory budget, in bytes: 8 MiB.
pub const MIN_MEMORY_BUDGET: usize = 8 << 20;

/// What an acknowledged write survives. Chosen per database and per [batch](crate::Batch); all levels go
/// through one log, so a write is never there without those committed before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Durability {
    /// A clean close. The last few milliseconds (at most 128 KiB) are lost when the process is killed.
    Buffered,
    /// The process being killed at any moment: the write is with the kernel when the call returns.
    #[default]
    Os,
    /// Power loss: the write is on the device when the call returns. Writers that wait at the same time
    /// share one sync.
    Sync,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Buffered => "buffered",
            Self::Os => "os",
            Self::Sync => "sync",
        })
    }
}

impl FromStr for Durability {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "buffered" => Ok(Self::Buffered),
            "os" => Ok(Self::Os),
            "sync" => Ok(Self::Sync),
            _ => Err(Error::Invalid(format!(
                "unknown durability {name:?}: one of buffered, os, sync"
            ))),
        }
    }
}

/// How opening treats a log that is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecoveryMode {
    /// Damage to anything that had been synced is an error, and nothing is changed. A tail that was never
    /// synced and was torn by a crash is cut off and [reported](crate::RecoveryReport).
    #[default]
    Strict,
    /// The log is cut off at the first damage, whatever it was, and the bytes dropped are
    /// [reported](crate::RecoveryReport). What is left of the log is a prefix of the commit order. A keyspace that
    /// had persisted more than that keeps what it has persisted: it is then ahead of the others, and a batch over
    /// several keyspaces may be there in some of them only. Numbers go on above the largest that is left.
    Tolerant,
}

/// Which index structure a keyspace uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum EngineKind {
    /// A log-structured merge-tree: ordered, fast to write.
    Lsm,
    /// A hash table over append-only segments: no order; one probe of memory and at most one read for a get.
    Hash,
    /// A B+ tree in one file of pages: ordered, fast to read.
    Btree,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lsm => "lsm",
            Self::Hash => "hash",
            Self::Btree => "btree",
        })
    }
}

impl FromStr for EngineKind {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "lsm" => Ok(Self::Lsm),
            "hash" => Ok(Self::Hash),
            "btree" => Ok(Self::Btree),
            _ => Err(Error::Invalid(format!("unknown engine {name:?}: one of lsm, hash, btree"))),
        }
    }
}

/// What a B+ tree is made of.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TreeOptions {
    /// `None`: as it is; for a new tree, the default.
    pub(crate) page_size: Option<u32>,
    /// `None`: as it is; for a new tree, as many as the block cache of the database holds.
    pub(crate) max_cached_pages: Option<u32>,
}

impl TreeOptions {
    /// The size of the pages, in bytes.
    pub(crate) fn page_size(self) -> u32 {
        self.page_size.unwrap_or(4096)
    }
}

/// The sizes that the pages of a B+ tree may have, in bytes.
pub(crate) const PAGE_SIZES: RangeInclusive<u32> = 4 << 10..=64 << 10;

/// What a keyspace is made of. Engine and logging are fixed when the keyspace is created; the file layer
/// may change each time it is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyspaceOptions {
    pub(crate) engine: EngineKind,
    /// `None`: as it is; for a new keyspace, the default.
    pub(crate) layer: Option<Layer>,
    /// In place of the layer's own.
    block_size: Option<u32>,
    /// In place of the layer's own.
    pages: Option<u32>,
    pub(crate) logged: bool,
    /// What counts for a B+ tree only.
    pub(crate) tree: TreeOptions,
}

impl KeyspaceOptions {
    /// A keyspace on a log-structured merge-tree, with positional files and the log.
    #[must_use]
    pub fn lsm() -> Self {
        Self {
            engine: EngineKind::Lsm,
            layer: None,
            block_size: None,
            pages: None,
            logged: true,
            tree: TreeOptions::default(),
        }
    }

    /// Options that leave nothing open.
    pub(crate) fn of(engine: EngineKind, layer: Layer, logged: bool, tree: TreeOptions) -> Self {
        Self { engine, layer: Some(layer), logged, tree, ..Self::lsm() }
    }

    /// A keyspace in a hash table, with positional files and the log. It has no order: ranges, prefixes and
    /// cursors answer `Unsupported`. Its index is in memory, about 17 bytes for each key, and all indexes
    /// together may take half of the memory budget.
    #[must_use]
    pub fn hash() -> Self {
        Self { engine: EngineKind::Hash, ..Self::lsm() }
    }

    /// A keyspace in a B+ tree, with positional files and the log: ordered, and read with one search in a node of each
    /// level. Its file needs no size to be guessed, uses its space again, and is cut off when its end is free.
    #[must_use]
    pub fn btree() -> Self {
        Self { engine: EngineKind::Btree, ..Self::lsm() }
    }

    /// The size of the B+ tree's pages, in bytes: a power of two from 4 KiB to 64 KiB, fixed when the keyspace is
    /// created. Default: 4096. Values longer than a quarter of it lie in pages of their own.
    #[must_use]
    pub fn page_size(mut self, bytes: u32) -> Self {
        self.tree.page_size = Some(bytes);
        self
    }

    /// Has the B+ tree hold at most so many pages in memory, from now on: at least one. Their memory is a part of the
    /// [memory budget](crate::DatabaseBuilder::memory_budget). Default: as it was opened last; for a new keyspace, pages
    /// are in the block cache that all keyspaces share. Mapped files need neither.
    #[must_use]
    pub fn max_cached_pages(mut self, pages: u32) -> Self {
        self.tree.max_cached_pages = Some(pages);
        self
    }

    /// An error if a size is given that cannot be, or to an engine that has no use for it.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check_tree(&self) -> Result<()> {
        let (page_size, max_cached_pages) = (self.tree.page_size(), self.tree.max_cached_pages);
        if self.engine != EngineKind::Btree {
            return match self.tree == TreeOptions::default() {
                true => Ok(()),
                false => Err(Error::Invalid(format!(
                    "page_size and max_cached_pages are for B+ trees, not for engine {}",
                    self.engine
                ))),
            };
        }
        if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
            return Err(Error::Invalid(format!(
                "a page of {page_size} bytes: the size must be a power of two from {} to {}",
                PAGE_SIZES.start(),
                PAGE_SIZES.end()
            )));
        }
        match max_cached_pages {
            Some(0) => Err(Error::Invalid("a B+ tree must cache at least one page".into())),
            _ => Ok(()),
        }
    }

    /// How the keyspace's files are reached, from now on. Default: as it was opened last; for a new
    /// keyspace, [`Layer::Positional`].
    #[must_use]
    pub fn layer(mut self, layer: Layer) -> Self {
        self.layer = Some(layer);
        self
    }

    /// The size of the blocks in which the keyspace's files are reached, in bytes: a power of two from 512 to
    /// 1 MiB. The layer must be one that has blocks. Default: as the layer says, which is 4096 if it was made
    /// from its name.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.block_size = Some(bytes);
        self
    }

    /// How many pages, each of the block size, the keyspace's page cache has: at least one. The layer must be
    /// one that has a page cache. Its memory is a part of the
    /// [memory budget](crate::DatabaseBuilder::memory_budget). Default: as the layer says, which is 4096 if it
    /// was made from its name.
    #[must_use]
    pub fn page_cache_pages(mut self, pages: u32) -> Self {
        self.pages = Some(pages);
        self
    }

    /// The layer that is asked for, `present` being the one if none is named.
    ///
    /// # Errors
    /// `Invalid` if it has no place for a size that was given, or if a size is impossible.
    pub(crate) fn resolve_layer(&self, present: Layer) -> Result<Layer> {
        let mut layer = self.layer.unwrap_or(present);
        if let Some(bytes) = self.block_size {
            layer = layer.with_block_size(bytes)?;
        }
        if let Some(pages) = self.pages {
            layer = layer.with_page_cache_pages(pages)?;
        }
        layer.check()?;
        Ok(layer)
    }

    /// Whether writes go through the log. Without it (durability "none") a put is cheaper, and survives
    /// only a clean close or a [`persist`](crate::Keyspace::persist): after a crash the keyspace holds a
    /// prefix of its own writes. Default: `true`.
    #[must_use]
    pub fn log(mut self, logged: bool) -> Self {
        self.logged = logged;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_layer_are_combined_in_any_order() {
        let cached = Layer::BlockCache { block_size: 512, pages: 9 };
        let wanted = Layer::BlockCache { block_size: 8192, pages: 7 };
        let before = KeyspaceOptions::lsm().block_size(8192).page_cache_pages(7).layer(cached);
        let behind = KeyspaceOptions::lsm().layer(cached).page_cache_pages(7).block_size(8192);
        assert_eq!(before, behind);
        assert_eq!(before.resolve_layer(Layer::Mmap).unwrap(), wanted);
        let open = KeyspaceOptions::lsm().block_size(8192);
        let resolved = open.resolve_layer(Layer::Direct { block_size: 512 }).unwrap();
        assert_eq!(resolved, Layer::Direct { block_size: 8192 });
        assert_eq!(KeyspaceOptions::lsm().resolve_layer(cached).unwrap(), cached);
    }

    #[test]
    fn sizes_without_a_place_are_refused() {
        let refused = |options: KeyspaceOptions, text: &str| {
            let error = options.resolve_layer(Layer::Positional).unwrap_err();
            assert!(matches!(&error, Error::Invalid(what) if what.contains(text)), "{error}");
        };
        let block = Layer::Block { block_size: 4096 };
        let cached = Layer::DirectCache { block_size: 4096, pages: 1 };
        refused(KeyspaceOptions::lsm().block_size(4096), "pos has no blocks");
        refused(KeyspaceOptions::lsm().page_cache_pages(8), "pos has no page cache");
        refused(KeyspaceOptions::lsm().page_cache_pages(8).layer(block), "pos-block has no page");
        refused(KeyspaceOptions::lsm().page_cache_pages(0).layer(cached), "at least one page");
        for size in [0, 256, 1000, 2 << 20] {
            refused(KeyspaceOptions::lsm().block_size(size).layer(block), "a power of two");
        }
    }
}
