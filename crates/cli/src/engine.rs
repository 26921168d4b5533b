//! The index structures a keyspace can be made with, and the options that go with them.

use clap::{Args, ValueEnum};
use turbidite::{
    Compression, Database, EngineKind, Error, FilterKind, KeyFile, Keyspace, KeyspaceOptions,
    MemtableKind, Policy, Reducer,
};

use crate::durability::LogArguments;
use crate::failure::{Failure, Result};
use crate::size;

/// An index structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Engine {
    /// Log-structured merge tree: ordered, fast to write
    #[default]
    Lsm,
    /// Hash table over append-only segments; no order
    Hash,
    /// B+ tree in one file of pages: ordered, fast to read
    Btree,
    /// Sorted file with skip links, made by merging: ordered, records have positions
    Skip,
}

impl Engine {
    fn keyspace_options(self) -> KeyspaceOptions {
        match self {
            Self::Lsm => KeyspaceOptions::lsm(),
            Self::Hash => KeyspaceOptions::hash(),
            Self::Btree => KeyspaceOptions::btree(),
            Self::Skip => KeyspaceOptions::skip(),
        }
    }

    /// Whether keys have an order.
    pub(crate) fn is_ordered(self) -> bool {
        self != Self::Hash
    }

    /// What the library calls it.
    fn kind(self) -> EngineKind {
        match self {
            Self::Lsm => EngineKind::Lsm,
            Self::Hash => EngineKind::Hash,
            Self::Btree => EngineKind::Btree,
            Self::Skip => EngineKind::Skip,
        }
    }
}

/// Opens a keyspace as it was made, or makes it with `engine`, by default an LSM-tree, and without the log if
/// `log` says none. One that was made with another engine than the one asked for, or of something else, is an error.
pub(crate) fn open_or_create(
    database: &Database,
    name: &str,
    engine: Option<Engine>,
    parts: &EngineArguments,
    log: &LogArguments,
) -> Result<Keyspace> {
    log.check(database, name)?;
    let Some(found) = database.keyspaces().into_iter().find(|info| info.name == name) else {
        let options = parts.keyspace_options(engine.unwrap_or_default())?;
        let options = options.log(log.durability().is_logged());
        return Ok(database.keyspace(name, options)?);
    };
    if let Some(wanted) = engine.map(Engine::kind).filter(|wanted| *wanted != found.engine) {
        return Err(Failure::usage(format!(
            "the keyspace {name:?} exists with the engine {}: it cannot become one with the engine {wanted}",
            found.engine
        )));
    }
    let known = Engine::value_variants().iter().find(|known| known.kind() == found.engine);
    match known.filter(|_| *parts != EngineArguments::default()) {
        Some(engine) => {
            let options = parts.keyspace_options(*engine)?.log(found.logged);
            Ok(database.keyspace(name, options)?)
        }
        None => Ok(database.open_keyspace(name)?),
    }
}

/// What an engine is made of.
#[derive(Args, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct EngineArguments {
    #[command(flatten)]
    pub(crate) lsm: LsmArguments,
    #[command(flatten)]
    pub(crate) tree: TreeArguments,
    #[command(flatten)]
    pub(crate) skip: SkipArguments,
}

/// What an LSM-tree is made of: each layer is a choice.
#[derive(Args, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct LsmArguments {
    /// What an LSM-tree keeps its newest entries in: tagged, skiplist, vector, hash-skiplist:PREFIX,
    /// hash-linklist:PREFIX; the prefix in bytes [default: tagged]
    #[arg(long, value_name = "KIND")]
    memtable: Option<MemtableKind>,
    /// The filters of an LSM-tree's tables: none, bloom, blocked-bloom, ribbon [default: blocked-bloom]
    #[arg(long, value_name = "KIND")]
    filter: Option<FilterKind>,
    /// The bits of filters for each key, 0 to 32; or a list with those of each level, as in 10,10,6; the
    /// last counts for all deeper ones [default: 10]
    #[arg(long, value_name = "BITS", value_delimiter = ',')]
    filter_bits: Option<Vec<u32>>,
    /// What of an open table stays in memory: none, filter, keys, keys+filter [default: keys+filter]
    #[arg(long, value_name = "PARTS")]
    key_file: Option<KeyFile>,
    /// Whether tables have an index that leads from keys straight to their records [default: if it takes less
    /// than a tenth of what the records do]
    #[arg(long, value_name = "BOOL")]
    point_index: Option<bool>,
    /// How tables are compressed: none, lz4, snappy, zstd:LEVEL, zstd-dict:LEVEL; or a list like that of
    /// --filter-bits. The library must have been built with snappy or zstd [default: none]
    #[arg(long, value_name = "CODEC", value_delimiter = ',')]
    compression: Option<Vec<Compression>>,
    /// The bytes of a block of an LSM-tree's tables, 512 to 1MiB [default: 4096]. The blocks in which files
    /// are reached are --block-size, on commands that have it
    #[arg(long, value_name = "BYTES", value_parser = size::parse::<u32>)]
    data_block_size: Option<u32>,
    /// About how many bytes a table below level 0 may take, 64KiB to 4GiB [default: by the memory budget]
    #[arg(long, value_name = "BYTES", value_parser = size::parse::<u64>)]
    table_size: Option<u64>,
    /// Keep values of at least so many bytes, 64 or more, in files of their own; 0 for none [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = size::parse::<u32>)]
    separate_values: Option<u32>,
    /// What an LSM-tree merges, and when: levelled[:RATIO], tiered[:RUNS], lazy-levelled[:RUNS], fifo:BYTES;
    /// fixed when the keyspace is created [default: levelled:10]
    #[arg(long, value_parser = parse_policy, conflicts_with = "levels")]
    policy: Option<Policy>,
    /// The same, level by level: tiering:RUNS or levelling:TABLES, or bytes in place of either, as in
    /// tiering:2,levelling:4,levelling:64000000B
    #[arg(long, value_parser = parse_levels)]
    levels: Option<Policy>,
}

fn parse_policy(text: &str) -> turbidite::Result<Policy> {
    match text.parse()? {
        Policy::Levels(_) => Err(Error::Invalid("levels are given with --levels".into())),
        policy => Ok(policy),
    }
}

fn parse_levels(text: &str) -> turbidite::Result<Policy> {
    match text.parse()? {
        levels @ Policy::Levels(_) => Ok(levels),
        policy => Err(Error::Invalid(format!("{policy} is given with --policy"))),
    }
}

impl LsmArguments {
    /// The most bytes that the tree's tables may take before the oldest go, if its policy is to drop them.
    pub(crate) fn fifo_bytes(&self) -> Option<u64> {
        match self.policy {
            Some(Policy::Fifo { bytes }) => Some(bytes),
            _ => None,
        }
    }

    fn add_to(&self, mut options: KeyspaceOptions) -> KeyspaceOptions {
        if let Some(kind) = self.memtable {
            options = options.memtable(kind);
        }
        if let Some(kind) = self.filter {
            options = options.filter(kind);
        }
        if let Some(bits) = &self.filter_bits {
            options = options.filter_bits(bits);
        }
        if let Some(kept) = self.key_file {
            options = options.key_file(kept);
        }
        if let Some(wanted) = self.point_index {
            options = options.point_index(wanted);
        }
        if let Some(levels) = &self.compression {
            options = options.compression(levels);
        }
        if let Some(bytes) = self.data_block_size {
            options = options.data_block_size(bytes);
        }
        if let Some(bytes) = self.table_size {
            options = options.table_size(bytes);
        }
        if let Some(bytes) = self.separate_values {
            options = options.separate_values(bytes);
        }
        if let Some(policy) = self.policy.as_ref().or(self.levels.as_ref()) {
            options = options.policy(policy.clone());
        }
        options
    }
}

/// The sizes of a B+ tree.
#[derive(Args, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TreeArguments {
    /// The bytes of a page of a B+ tree, a power of two from 4096 to 65536 [default: 4096]
    #[arg(long, value_name = "BYTES")]
    pub(crate) page_size: Option<u32>,
    /// The most pages of the B+ tree that are kept in memory [default: as many as the block cache has
    /// room for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_cached_pages: Option<u32>,
}

/// What a skip keyspace is made of.
#[derive(Args, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct SkipArguments {
    /// How many records of one level a link of a skip keyspace skips, 2 to 64 [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) step_unit: Option<u32>,
    /// The most levels of links in a skip keyspace, 0 to 12 [default: as many as the records call for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=12))]
    pub(crate) max_level: Option<u32>,
    /// What several values of one key of a skip keyspace become: last, first, keep-all, concat, sum
    /// [default: last]
    #[arg(long)]
    pub(crate) reducer: Option<Reducer>,
}

impl EngineArguments {
    /// The options of a keyspace on `engine` made of these, if it has a use for them.
    pub(crate) fn keyspace_options(&self, engine: Engine) -> Result<KeyspaceOptions> {
        let misplaced = |names: &str, wanted: Engine| {
            Err(Failure::usage(format!(
                "{names} are for the engine {}, not for {}",
                wanted.kind(),
                engine.kind()
            )))
        };
        if self.lsm != LsmArguments::default() && engine != Engine::Lsm {
            let names = "--memtable, --filter, --filter-bits, --key-file, --point-index, --compression, \
                         --data-block-size, --table-size, --separate-values, --policy and --levels";
            return misplaced(names, Engine::Lsm);
        }
        if self.tree != TreeArguments::default() && engine != Engine::Btree {
            return misplaced("--page-size and --max-cached-pages", Engine::Btree);
        }
        if self.skip != SkipArguments::default() && engine != Engine::Skip {
            return misplaced("--step-unit, --max-level and --reducer", Engine::Skip);
        }
        let mut options = self.lsm.add_to(engine.keyspace_options());
        if let Some(bytes) = self.tree.page_size {
            options = options.page_size(bytes);
        }
        if let Some(pages) = self.tree.max_cached_pages {
            options = options.max_cached_pages(pages);
        }
        if let Some(records) = self.skip.step_unit {
            options = options.step_unit(records);
        }
        if let Some(levels) = self.skip.max_level {
            options = options.max_level(levels);
        }
        if let Some(reducer) = &self.skip.reducer {
            options = options.reducer(reducer.clone());
        }
        Ok(options)
    }
}
