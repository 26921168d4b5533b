//! The index structures a keyspace can be made with, and the options that go with them.

use clap::{Args, ValueEnum};
use turbidite::{Database, EngineKind, ErrorKind, Keyspace, KeyspaceOptions};

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
}

impl Engine {
    pub(crate) fn keyspace_options(self) -> KeyspaceOptions {
        match self {
            Self::Lsm => KeyspaceOptions::lsm(),
            Self::Hash => KeyspaceOptions::hash(),
            Self::Btree => KeyspaceOptions::btree(),
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
        }
    }
}

/// Opens a keyspace as it was made, or makes it with `engine`, by default an LSM-tree. One that was made with another
/// engine than the one asked for is an error.
pub(crate) fn open_or_create(
    database: &Database,
    name: &str,
    engine: Option<Engine>,
) -> Result<Keyspace> {
    let keyspace = match database.open_keyspace(name) {
        Err(error) if error.kind() == ErrorKind::UnknownKeyspace => {
            let options = engine.unwrap_or_default().keyspace_options();
            return Ok(database.keyspace(name, options)?);
        }
        other => other?,
    };
    let found = keyspace.stats().engine;
    match engine.map(Engine::kind) {
        Some(wanted) if wanted != found => Err(Failure::usage(format!(
            "the keyspace {name:?} exists with the engine {found}: it cannot become one with the engine {wanted}"
        ))),
        _ => Ok(keyspace),
    }
}

/// The sizes of a B+ tree.
#[derive(Args, Clone, Copy, Default, Debug)]
pub(crate) struct TreeArguments {
    /// The bytes of a page of a B+ tree, a power of two from 4096 to 65536 [default: 4096]
    #[arg(long, value_name = "BYTES")]
    pub(crate) page_size: Option<u32>,
    /// The most pages of the B+ tree that are kept in memory [default: as many as the block cache has
    /// room for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_cached_pages: Option<u32>,
}

impl TreeArguments {
    /// The options of a keyspace on `engine` with these sizes, if it has a use for them.
    pub(crate) fn keyspace_options(self, engine: Engine) -> Result<KeyspaceOptions> {
        let mut options = engine.keyspace_options();
        let is_sized = self.page_size.is_some() || self.max_cached_pages.is_some();
        if is_sized && engine != Engine::Btree {
            return Err(Failure::usage(format!(
                "--page-size and --max-cached-pages are for the engine btree, not for {}",
                engine.kind()
            )));
        }
        if let Some(bytes) = self.page_size {
            options = options.page_size(bytes);
        }
        if let Some(pages) = self.max_cached_pages {
            options = options.max_cached_pages(pages);
        }
        Ok(options)
    }
}
