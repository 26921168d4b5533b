//! Options that several commands share, and how they open databases and keyspaces.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use turbidite::{Database, DatabaseBuilder, Keyspace, Layer};

use crate::engine::{self, Engine, EngineArguments};
use crate::failure::{Failure, Result};
use crate::size;

/// Which database, how much memory it may take, and how a damaged log is treated.
#[derive(Args, Debug)]
pub(crate) struct DatabaseArguments {
    /// The directory of the database
    #[arg(value_name = "DB")]
    path: PathBuf,

    /// How much memory the database may use, as in 256MiB [default: the library's]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    memory_budget: Option<usize>,

    /// How a damaged log is treated; damage elsewhere is an error either way
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    recovery: Recovery,
}

impl DatabaseArguments {
    /// Opens for reading; nothing is created or changed.
    pub(crate) fn open_to_read(&self) -> Result<Database> {
        self.must_exist()?;
        Ok(self.builder().read_only(true).create(false).open()?)
    }

    /// Opens for writing; a missing database is an error.
    pub(crate) fn open_to_change(&self, durability: Durability) -> Result<Database> {
        self.must_exist()?;
        Ok(self.builder().durability(durability.into()).create(false).open()?)
    }

    /// Opens for writing and creates the database if it is missing.
    pub(crate) fn open_or_create(&self, durability: Durability) -> Result<Database> {
        Ok(self.builder().durability(durability.into()).create(true).open()?)
    }

    fn builder(&self) -> DatabaseBuilder {
        let builder = Database::builder(&self.path).recovery(self.recovery.into());
        match self.memory_budget {
            Some(bytes) => builder.memory_budget(bytes),
            None => builder,
        }
    }

    fn must_exist(&self) -> Result<()> {
        match self.path.try_exists() {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(Failure::usage(format!("there is no database at {}", self.path.display())))
            }
            Err(error) => Err(Failure::io("look up", &self.path, &error)),
        }
    }
}

/// Which keyspace.
#[derive(Args, Debug)]
pub(crate) struct KeyspaceArguments {
    /// The keyspace
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    pub(crate) keyspace: String,
}

impl KeyspaceArguments {
    /// Opens the keyspace; a missing one is an error.
    pub(crate) fn open(&self, database: &Database) -> Result<Keyspace> {
        Ok(database.open_keyspace(&self.keyspace)?)
    }
}

/// Which keyspace, and how it is made if it is missing.
#[derive(Args, Debug)]
pub(crate) struct NewKeyspaceArguments {
    #[command(flatten)]
    present: KeyspaceArguments,

    /// The index structure of the keyspace; fixed when it is created [default: lsm for a new one]
    #[arg(long, value_enum)]
    engine: Option<Engine>,

    #[command(flatten)]
    parts: EngineArguments,
}

impl NewKeyspaceArguments {
    pub(crate) fn name(&self) -> &str {
        &self.present.keyspace
    }

    /// Opens the keyspace and creates it if it is missing.
    pub(crate) fn open_or_create(&self, database: &Database) -> Result<Keyspace> {
        engine::open_or_create(database, self.name(), self.engine, &self.parts)
    }
}

/// How a damaged log is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum Recovery {
    /// Damage to what had been synced is an error; only the torn end that a crash leaves is dropped
    #[default]
    Strict,
    /// The log is cut off at the first damage: that write and all writes behind it that are in the log
    /// only are dropped, for good if the command opens the database for writing
    Tolerant,
}

impl From<Recovery> for turbidite::RecoveryMode {
    fn from(recovery: Recovery) -> Self {
        match recovery {
            Recovery::Strict => Self::Strict,
            Recovery::Tolerant => Self::Tolerant,
        }
    }
}

/// When a write counts as done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Durability {
    /// In the memory of this process
    Buffered,
    /// With the operating system: survives the end of the process
    #[default]
    Os,
    /// On the device: survives power loss
    Sync,
}

impl From<Durability> for turbidite::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Buffered => Self::Buffered,
            Durability::Os => Self::Os,
            Durability::Sync => Self::Sync,
        }
    }
}

/// How safe writes are when the command counts them as done.
#[derive(Args, Debug)]
pub(crate) struct DurabilityArguments {
    /// When a write counts as done
    #[arg(long, value_enum, default_value_t)]
    pub(crate) durability: Durability,
}

/// How the files of a keyspace are reached.
#[derive(Args, Debug)]
pub(crate) struct LayerArguments {
    /// How the keyspace's files are reached
    #[arg(long, value_name = "LAYER", default_value = "pos", value_parser = layer_parser())]
    file: Layer,
    /// The bytes of a block of a layer that has blocks, a power of two [default: 4096]
    #[arg(long, value_name = "BYTES")]
    block_size: Option<u32>,
    /// The pages, each of a block's size, of the cache of a layer that has one [default: 4096]
    #[arg(long, value_name = "PAGES")]
    page_cache: Option<u32>,
}

impl LayerArguments {
    /// The layer with its sizes, if they make sense.
    pub(crate) fn layer(&self) -> Result<Layer> {
        let mut layer = self.file;
        if let Some(bytes) = self.block_size {
            layer = layer.with_block_size(bytes)?;
        }
        if let Some(pages) = self.page_cache {
            layer = layer.with_page_cache_pages(pages)?;
        }
        layer.check()?;
        Ok(layer)
    }
}

/// Reads the name of a file layer.
pub(crate) fn layer_parser() -> impl TypedValueParser<Value = Layer> {
    let layers = [
        ("mmap", "A shared memory mapping"),
        ("pos", "Positional calls through the system's page cache"),
        ("pos-block", "The same, in whole blocks"),
        ("pos-block-cache", "The same, with a page cache in the process"),
        ("pos-direct", "Positional calls in whole blocks, past the system's page cache"),
        ("pos-direct-cache", "The same, with a page cache in the process"),
    ];
    let names = layers.map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Layer>())
}
