//! What users choose, as plain data. Defaults are written here, once.

mod lsm;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::reducer::Reducer;
use crate::vfs::Layer;

pub(crate) use lsm::LsmOptions;
pub use lsm::{Compression, FilterKind, KeyFile, Level, LevelLimit, MemtableKind, Policy};

/// The largest key, in bytes: 64 KiB.
pub const MAX_KEY_LEN: usize = 64 << 10;
/// The largest value, in bytes: 1 GiB.
pub const MAX_VALUE_LEN: usize = 1 << 30;
/// The memory a database uses unless told otherwise, in bytes: 512 MiB.
pub const DEFAULT_MEMORY_BUDGET: usize = 512 << 20;
/// The smallest memory budget, in bytes: 8 MiB.
pub const MIN_MEMORY_BUDGET: usize = 8 << 20;

/// How many files may be open at once unless told otherwise.
pub(crate) const DEFAULT_OPEN_FILES: usize = 512;
/// The fewest files that may be open at once: with fewer, the files that one read needs would close each other.
pub(crate) const MIN_OPEN_FILES: usize = 16;
/// How many threads may compact.
pub(crate) const BACKGROUND_THREADS: RangeInclusive<usize> = 1..=64;
/// The least bytes a second that upkeep may be bound to.
pub(crate) const MIN_BACKGROUND_RATE: u64 = 64 << 10;
/// The bytes of the log's buffer unless told otherwise.
pub(crate) const DEFAULT_LOG_BUFFER: usize = 128 << 10;
/// The least bytes of the log's buffer. The most are a 32nd of the memory budget.
pub(crate) const MIN_LOG_BUFFER: usize = 4 << 10;
/// When buffered records are handed to the kernel unless told otherwise.
pub(crate) const DEFAULT_LOG_FLUSH_INTERVAL: Duration = Duration::from_millis(4);
/// How long buffered records may wait.
pub(crate) const LOG_FLUSH_INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(3600);

/// What an acknowledged write survives. Chosen per database and per [batch](crate::Batch); all levels go
/// through one log, so a write is never there without those committed before it.
///
/// | choice | what an acknowledged write survives |
/// |---|---|
/// | none: [`KeyspaceOptions::log`]`(false)` | a clean close; after a crash the keyspace has a prefix of its own writes |
/// | `Buffered`, with [`manual_log_flush`](crate::DatabaseBuilder::manual_log_flush) | a clean close, and a kill once [`flush_log`](crate::Database::flush_log) returned |
/// | `Buffered` | a clean close, and a kill after a few milliseconds |
/// | `Os` | a kill at any moment |
/// | `Sync` | power loss |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Durability {
    /// A clean close. When the process is killed the last writes are lost: those of a few milliseconds, or of the
    /// [interval](crate::DatabaseBuilder::log_flush_interval) that was chosen, and never more than the log's
    /// [buffer](crate::DatabaseBuilder::log_buffer) holds.
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

/// How much of an LSM-tree a compaction keeps others from while it runs. More than the default is there to be measured: it
/// is what other stores do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CompactionLock {
    /// All of it: one compaction of a tree at a time, as in LevelDB.
    Database,
    /// A range of keys on all levels.
    Range,
    /// A range of keys on the levels that it reads and writes: compactions of the same keys run on several levels at once.
    #[default]
    RangeLevel,
}

impl fmt::Display for CompactionLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Database => "database",
            Self::Range => "range",
            Self::RangeLevel => "range-level",
        })
    }
}

impl FromStr for CompactionLock {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "database" => Ok(Self::Database),
            "range" => Ok(Self::Range),
            "range-level" => Ok(Self::RangeLevel),
            _ => Err(Error::Invalid(format!(
                "unknown compaction lock {name:?}: one of database, range, range-level"
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
    /// The log is cut off at the first record that is damaged or missing, and the bytes dropped are
    /// [reported](crate::RecoveryReport). What is left of the log is a prefix of the commit order. A keyspace that
    /// had persisted more than that keeps what it has persisted: it is then ahead of the others, and a batch over
    /// several keyspaces may be there in some of them only. Numbers go on above the largest that is left.
    /// A segment of the log that has another length than it was made with, a damaged header, or the first one that is needed gone, is an error
    /// all the same. So is a log that ends within what a B+ tree was in the middle of writing to its file when the process ended: that has some
    /// of these writes, by their keys, which is no state that there ever was without the others.
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
    /// A sorted file with skip links: ordered, every record has a position, and values of one key may be reduced to one.
    Skip,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lsm => "lsm",
            Self::Hash => "hash",
            Self::Btree => "btree",
            Self::Skip => "skip",
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
            "skip" => Ok(Self::Skip),
            _ => Err(Error::Invalid(format!(
                "unknown engine {name:?}: one of lsm, hash, btree, skip"
            ))),
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

    fn chosen(self) -> Vec<(&'static str, String)> {
        let page_size = Some(self.page_size()).filter(|&size| size != Self::default().page_size());
        let named = [("page_size", page_size), ("max_cached_pages", self.max_cached_pages)];
        named.into_iter().filter_map(|(name, value)| Some((name, value?.to_string()))).collect()
    }
}

/// The sizes that the pages of a B+ tree may have, in bytes.
pub(crate) const PAGE_SIZES: RangeInclusive<u32> = 4 << 10..=64 << 10;

/// What a skip keyspace is made of.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct SkipOptions {
    /// `None`: as it is; for a new keyspace, the default. So are the others.
    pub(crate) step_unit: Option<u32>,
    pub(crate) max_level: Option<u32>,
    pub(crate) reducer: Option<Reducer>,
}

impl SkipOptions {
    /// How many records of one level a link of the next one skips.
    pub(crate) fn step_unit(&self) -> u32 {
        self.step_unit.unwrap_or(4)
    }

    /// The most levels of links.
    pub(crate) fn max_level(&self) -> u32 {
        self.max_level.unwrap_or(*MAX_LEVELS.end())
    }

    /// What becomes of several values of one key.
    pub(crate) fn reducer(&self) -> Reducer {
        self.reducer.clone().unwrap_or_default()
    }

    fn chosen(&self) -> Vec<(&'static str, String)> {
        let default = Self::default();
        let number = |is: u32, default: u32| (is != default).then(|| is.to_string());
        let reducer = Some(self.reducer()).filter(|reducer| *reducer != default.reducer());
        let named = [
            ("step_unit", number(self.step_unit(), default.step_unit())),
            ("max_level", number(self.max_level(), default.max_level())),
            ("reducer", reducer.map(|reducer| reducer.to_string())),
        ];
        named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// How many records of one level the links of a skip keyspace may skip.
pub(crate) const STEP_UNITS: RangeInclusive<u32> = 2..=64;
/// How many levels of links a skip keyspace may have at most.
pub(crate) const MAX_LEVELS: RangeInclusive<u32> = 0..=12;

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
    /// What counts for an LSM-tree only.
    pub(crate) lsm: LsmOptions,
    /// What counts for a B+ tree only.
    pub(crate) tree: TreeOptions,
    /// What counts for a skip keyspace only.
    pub(crate) skip: SkipOptions,
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
            lsm: LsmOptions::default(),
            tree: TreeOptions::default(),
            skip: SkipOptions::default(),
        }
    }

    /// What was chosen that is not the default, but for engine, layer and log: each with the name of its method here and
    /// with its value as it is written on the command line. Levels are a [`policy`](Self::policy).
    ///
    /// ```
    /// use turbidite::{FilterKind, KeyspaceOptions};
    /// let options = KeyspaceOptions::lsm().filter(FilterKind::Ribbon).filter_bits(&[10, 8]);
    /// let chosen = [("filter", "ribbon".to_owned()), ("filter_bits", "10,8".to_owned())];
    /// assert_eq!(options.chosen(), chosen);
    /// ```
    #[must_use]
    pub fn chosen(&self) -> Vec<(&'static str, String)> {
        match self.engine {
            EngineKind::Lsm => self.lsm.chosen(),
            EngineKind::Hash => Vec::new(),
            EngineKind::Btree => self.tree.chosen(),
            EngineKind::Skip => self.skip.chosen(),
        }
    }

    /// Options that leave nothing open but what counts for one engine only.
    pub(crate) fn of(engine: EngineKind, layer: Layer, logged: bool) -> Self {
        Self { engine, layer: Some(layer), logged, ..Self::lsm() }
    }

    /// These options, with `layer` for what they say of a layer, and with the policy of an LSM-tree named: what is the
    /// default later must not count for levels that are there.
    pub(crate) fn resolved(&self, layer: Layer) -> Self {
        let mut resolved =
            Self { layer: Some(layer), block_size: None, pages: None, ..self.clone() };
        if self.engine == EngineKind::Lsm {
            resolved.lsm.policy.get_or_insert_default();
        }
        resolved
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

    /// A keyspace in a sorted file with skip links, with positional files and the log: ordered, and every record has a
    /// [position](crate::Keyspace::nth). Writes are gathered and sorted, and merged with the whole file, so it is for data
    /// that are written in bulk. What several values of one key become is chosen with a [`Reducer`].
    #[must_use]
    pub fn skip() -> Self {
        Self { engine: EngineKind::Skip, ..Self::lsm() }
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

    /// How many records of one level a link of the next one skips in a skip keyspace: 2 to 64, fixed when the keyspace is
    /// created. Default: 4. With more there are fewer links, and more records to step over in a search.
    #[must_use]
    pub fn step_unit(mut self, records: u32) -> Self {
        self.skip.step_unit = Some(records);
        self
    }

    /// The most levels of links in a skip keyspace: 0 to 12, fixed when the keyspace is created. Default: 12, which is as
    /// many as the records call for. The first level leads to records of a block, the second to blocks, the third to
    /// blocks of links, and those above are in memory. What has no links is searched by bisecting what they would lead to.
    #[must_use]
    pub fn max_level(mut self, levels: u32) -> Self {
        self.skip.max_level = Some(levels);
        self
    }

    /// What becomes of several values that are put under one key of a skip keyspace: fixed when the keyspace is created.
    /// Default: [`Reducer::Last`].
    #[must_use]
    pub fn reducer(mut self, reducer: Reducer) -> Self {
        self.skip.reducer = Some(reducer);
        self
    }

    /// What the LSM-tree keeps its newest entries in, from now on. Default, here and below: as it was opened last; for a
    /// new keyspace, [`MemtableKind::Tagged`].
    #[must_use]
    pub fn memtable(mut self, kind: MemtableKind) -> Self {
        self.lsm.memtable = Some(kind);
        self
    }

    /// The filters of tables that are written from now on. Default for a new keyspace: [`FilterKind::BlockedBloom`].
    #[must_use]
    pub fn filter(mut self, kind: FilterKind) -> Self {
        self.lsm.filter = Some(kind);
        self
    }

    /// The bits of filters for each key, 0 to 32, for each level from level 0; the last counts for all deeper ones too. A
    /// level with 0 has no filters. More bits where there are fewer keys cost little memory and save the most reads
    /// (Monkey: Dayan et al., SIGMOD 2017). Default for a new keyspace: 10 for all.
    #[must_use]
    pub fn filter_bits(mut self, bits: &[u32]) -> Self {
        self.lsm.filter_bits = Some(bits.to_vec());
        self
    }

    /// What of each open table stays in memory, from now on. Default for a new keyspace: [`KeyFile::KeysAndFilter`], or
    /// [`KeyFile::Keys`] without filters.
    #[must_use]
    pub fn key_file(mut self, kept: KeyFile) -> Self {
        self.lsm.key_file = Some(kept);
        self
    }

    /// Whether tables that are written from now on have a point index: about 6.4 bytes for each key that lead a get straight to its
    /// record, instead of by way of two searches. It stays in memory with the keys of the [key file](Self::key_file), unless
    /// files are mapped, and only as long as there is room; a key file without the keys has no use for it. Default: if it takes less than a tenth of what the records do.
    #[must_use]
    pub fn point_index(mut self, wanted: bool) -> Self {
        self.lsm.point_index = Some(wanted);
        self
    }

    /// How tables that are written from now on are compressed, for each level from level 0; the last counts for all
    /// deeper ones too. A table that goes to a level with another compression is written anew. Default for a new keyspace:
    /// [`Compression::None`].
    #[must_use]
    pub fn compression(mut self, levels: &[Compression]) -> Self {
        self.lsm.compression = Some(levels.to_vec());
        self
    }

    /// The bytes of a block of the tables that are written from now on, 512 to 1 MiB, before compression; larger if one
    /// record is. Default for a new keyspace: 4096.
    #[must_use]
    pub fn data_block_size(mut self, bytes: u32) -> Self {
        self.lsm.data_block_size = Some(bytes);
        self
    }

    /// About how many bytes a table may take, 64 KiB to 4 GiB, from now on. Default: below level 0 an eighth of what the first
    /// level there may, by the memory budget; on level 0 as many as a flush writes. A table that is merged or loaded is ended
    /// before if what is kept of its keys until it is complete, 20 bytes for each and the index, takes a 32nd of the memory
    /// budget. One that is merged may take three quarters as much, or half as much again, to end where a table of the next level begins.
    #[must_use]
    pub fn table_size(mut self, bytes: u64) -> Self {
        self.lsm.table_size = Some(bytes);
        self
    }

    /// Keeps values of at least so many bytes, 64 or more, in files of their own, from now on: they are not written again
    /// each time their keys are merged (WiscKey: Lu et al., FAST 2016). Those of a [sorted load](crate::Keyspace::load_sorted)
    /// stay with their keys until these are merged. 0 keeps all with their keys. Default for a new
    /// keyspace: 0.
    #[must_use]
    pub fn separate_values(mut self, bytes: u32) -> Self {
        self.lsm.separate_values = Some(bytes);
        self
    }

    /// What the LSM-tree merges, and when: fixed when the keyspace is created. Default: [`Policy::Levelled`].
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.lsm.policy = Some(policy);
        self
    }

    /// An error if something is given that cannot be, or to an engine that has no use for it.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check_engine(&self) -> Result<()> {
        self.check_lsm()?;
        self.check_tree()?;
        self.check_skip()
    }

    fn check_lsm(&self) -> Result<()> {
        if self.engine == EngineKind::Lsm {
            return self.lsm.check();
        }
        match self.lsm == LsmOptions::default() {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "memtable, filter, filter_bits, key_file, point_index, compression, data_block_size, table_size, separate_values and policy are \
                 for LSM-trees, not for engine {}",
                self.engine
            ))),
        }
    }

    fn check_skip(&self) -> Result<()> {
        if self.engine != EngineKind::Skip {
            return match self.skip == SkipOptions::default() {
                true => Ok(()),
                false => Err(Error::Invalid(format!(
                    "step_unit, max_level and reducer are for skip keyspaces, not for engine {}",
                    self.engine
                ))),
            };
        }
        let within = |what: &str, given: u32, limits: RangeInclusive<u32>| match given {
            given if limits.contains(&given) => Ok(()),
            given => Err(Error::Invalid(format!(
                "a {what} of {given}: it must be from {} to {}",
                limits.start(),
                limits.end()
            ))),
        };
        within("step unit", self.skip.step_unit(), STEP_UNITS)?;
        within("largest level", self.skip.max_level(), MAX_LEVELS)?;
        self.skip.reducer().check()
    }

    fn check_tree(&self) -> Result<()> {
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
    fn a_new_lsm_tree_has_its_policy_named() {
        let named = |options: KeyspaceOptions| options.resolved(Layer::Positional).lsm.policy;
        assert_eq!(named(KeyspaceOptions::lsm()), Some(Policy::default()));
        let tiered = Policy::Tiered { runs: 3 };
        assert_eq!(named(KeyspaceOptions::lsm().policy(tiered.clone())), Some(tiered));
        assert_eq!(named(KeyspaceOptions::skip()), None);
        // Trees of before have none, and are what they were.
        assert_eq!(LsmOptions::default().policy(), Policy::Levelled { size_ratio: 10 });
    }

    #[test]
    fn what_an_engine_has_no_use_for_is_refused() {
        let refused = |options: KeyspaceOptions, text: &str| {
            let error = options.check_engine().unwrap_err();
            assert!(matches!(&error, Error::Invalid(what) if what.contains(text)), "{error}");
        };
        refused(KeyspaceOptions::skip().page_size(4096), "for B+ trees, not for engine skip");
        refused(KeyspaceOptions::skip().max_cached_pages(9), "for B+ trees, not for engine skip");
        for other in [KeyspaceOptions::lsm(), KeyspaceOptions::hash(), KeyspaceOptions::btree()] {
            let text = format!("are for skip keyspaces, not for engine {}", other.engine);
            refused(other.clone().step_unit(4), &text);
            refused(other.clone().max_level(12), &text);
            refused(other.clone().reducer(Reducer::Last), &text);
            assert!(other.check_engine().is_ok());
        }
    }

    #[test]
    fn limits_of_a_skip_keyspace() {
        let refused = |options: KeyspaceOptions, text: &str| {
            let error = options.check_engine().unwrap_err();
            assert!(matches!(&error, Error::Invalid(what) if what.contains(text)), "{error}");
        };
        for wrong in [0, 1, 65, u32::MAX] {
            refused(KeyspaceOptions::skip().step_unit(wrong), "from 2 to 64");
        }
        for wrong in [13, u32::MAX] {
            refused(KeyspaceOptions::skip().max_level(wrong), "from 0 to 12");
        }
        let unnamed = Reducer::Custom(String::new());
        refused(KeyspaceOptions::skip().reducer(unnamed), "1 to 255 bytes");
        for (step_unit, max_level) in [(2, 0), (64, 12)] {
            let options = KeyspaceOptions::skip().step_unit(step_unit).max_level(max_level);
            assert!(options.check_engine().is_ok());
        }
        let default = KeyspaceOptions::skip().skip;
        assert_eq!((default.step_unit(), default.max_level()), (4, 12));
        assert_eq!(default.reducer(), Reducer::Last);
    }

    #[test]
    fn what_is_not_the_default_is_told_as_it_is_written() {
        for default in [
            KeyspaceOptions::lsm()
                .memtable(MemtableKind::Tagged)
                .filter(FilterKind::BlockedBloom)
                .filter_bits(&[10])
                .key_file(KeyFile::KeysAndFilter)
                .compression(&[Compression::None])
                .data_block_size(4096)
                .separate_values(0)
                .policy(Policy::default()),
            KeyspaceOptions::hash(),
            KeyspaceOptions::btree().page_size(4096),
            KeyspaceOptions::skip().step_unit(4).max_level(12).reducer(Reducer::Last),
        ] {
            assert_eq!(default.chosen(), []);
        }
        let told = |options: KeyspaceOptions| -> String {
            let chosen =
                options.chosen().into_iter().map(|(name, value)| format!("{name} {value}"));
            chosen.collect::<Vec<_>>().join("; ")
        };
        let lsm = KeyspaceOptions::lsm()
            .memtable(MemtableKind::HashSkiplist { prefix: 4 })
            .filter(FilterKind::Bloom)
            .filter_bits(&[10, 6])
            .key_file(KeyFile::Keys)
            .compression(&[Compression::None, Compression::Lz4])
            .data_block_size(8192)
            .table_size(1 << 20)
            .separate_values(512)
            .policy("tiering:2,levelling:4".parse().unwrap());
        assert_eq!(
            told(lsm),
            "memtable hash-skiplist:4; filter bloom; filter_bits 10,6; key_file keys; compression none,lz4; \
             data_block_size 8192; table_size 1048576; separate_values 512; policy tiering:2,levelling:4"
        );
        let tree = KeyspaceOptions::btree().page_size(8192).max_cached_pages(9);
        assert_eq!(told(tree), "page_size 8192; max_cached_pages 9");
        let skip = KeyspaceOptions::skip().step_unit(8).max_level(3).reducer(Reducer::Sum);
        assert_eq!(told(skip), "step_unit 8; max_level 3; reducer sum");
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

    #[test]
    fn levels_hold_as_much_as_they_may() {
        let checked =
            |level| KeyspaceOptions::lsm().policy(Policy::Levels(vec![level])).check_engine();
        let refused = |level, text: &str| {
            let error = checked(level).unwrap_err();
            assert!(matches!(&error, Error::Invalid(what) if what.contains(text)), "{error}");
        };
        for limit in [1, 1000] {
            checked(Level::Tiering(LevelLimit::Count(limit))).unwrap();
        }
        for limit in [1, 1001, 1_000_000] {
            checked(Level::Levelling(LevelLimit::Count(limit))).unwrap();
        }
        for limit in [0, 1001] {
            refused(Level::Tiering(LevelLimit::Count(limit)), "runs: it must be from 1 to 1000");
        }
        for limit in [0, 1_000_001] {
            refused(Level::Levelling(LevelLimit::Count(limit)), "tables: it must be from 1 to");
        }
        refused(Level::Levelling(LevelLimit::Bytes(65_535)), "bytes: it must be from 65536 to");
    }
}
