//! The index structures a keyspace can be made with, and the options that go with them.

use clap::{Args, ValueEnum};
use turbidite::{Database, EngineKind, Keyspace, KeyspaceOptions, Reducer};

use crate::failure::{Failure, Result};

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

/// Opens a keyspace as it was made, or makes it with `engine`, by default an LSM-tree. One that was made with another
/// engine than the one asked for, or of something else, is an error.
pub(crate) fn open_or_create(
    database: &Database,
    name: &str,
    engine: Option<Engine>,
    parts: &EngineArguments,
) -> Result<Keyspace> {
    let Some(found) = database.keyspaces().into_iter().find(|info| info.name == name) else {
        let options = parts.keyspace_options(engine.unwrap_or_default())?;
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
    pub(crate) tree: TreeArguments,
    #[command(flatten)]
    pub(crate) skip: SkipArguments,
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
        if self.tree != TreeArguments::default() && engine != Engine::Btree {
            return misplaced("--page-size and --max-cached-pages", Engine::Btree);
        }
        if self.skip != SkipArguments::default() && engine != Engine::Skip {
            return misplaced("--step-unit, --max-level and --reducer", Engine::Skip);
        }
        let mut options = engine.keyspace_options();
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
