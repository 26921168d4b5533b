//! Options that several commands share, and how they open databases and keyspaces.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use turbidite::{CompactionLock, Database, DatabaseBuilder, ErrorKind, Keyspace, Layer, Watch};

use crate::durability::LogArguments;
use crate::engine::{self, Engine, EngineArguments};
use crate::failure::{Failure, Result};
use crate::size;

/// How much of the machine a database may take.
#[derive(Args, Clone, Default, Debug)]
pub(crate) struct MemoryArguments {
    /// How much memory the database may use, as in 256MiB [default: the library's]
    #[arg(long, value_name = "BYTES", value_parser = size::parse::<usize>)]
    memory_budget: Option<usize>,
    /// The most bytes of it for blocks that were read; 0 for none [default: what all else leaves]
    #[arg(long, value_name = "BYTES", value_parser = size::parse::<usize>)]
    block_cache: Option<usize>,
    /// How many tables, segments and sorted files are kept open at once, at least 16 [default: 512]
    #[arg(long, value_name = "N")]
    open_files: Option<usize>,
    /// How many threads compact, 1 to 64 [default: half the processors, at most 4]
    #[arg(long, value_name = "N")]
    background_threads: Option<usize>,
    /// How much of an LSM-tree a compaction keeps others from: database, range or range-level [default: range-level]
    #[arg(long, value_name = "LOCK")]
    compaction_lock: Option<CompactionLock>,
    /// How many bytes a second compactions and other upkeep may write, as in 50MiB, unless writers would be slowed down
    /// [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = size::parse::<u64>)]
    background_rate: Option<u64>,
}

impl MemoryArguments {
    /// Has the database take so much.
    pub(crate) fn apply(&self, mut builder: DatabaseBuilder) -> DatabaseBuilder {
        if let Some(bytes) = self.memory_budget {
            builder = builder.memory_budget(bytes);
        }
        if let Some(bytes) = self.block_cache {
            builder = builder.block_cache(bytes);
        }
        if let Some(files) = self.open_files {
            builder = builder.open_files(files);
        }
        if let Some(threads) = self.background_threads {
            builder = builder.background_threads(threads);
        }
        if let Some(lock) = self.compaction_lock {
            builder = builder.compaction_lock(lock);
        }
        if let Some(rate) = self.background_rate {
            builder = builder.background_rate(rate);
        }
        builder
    }

    /// What was chosen, by its name.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let named = [
            ("memory_budget", self.memory_budget),
            ("block_cache", self.block_cache),
            ("open_files", self.open_files),
            ("background_threads", self.background_threads),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name, value?.to_string())));
        let named =
            named.chain(self.compaction_lock.map(|lock| ("compaction_lock", lock.to_string())));
        named.chain(self.background_rate.map(|rate| ("background_rate", rate.to_string())))
    }
}

/// Which database, how much it may take, and how a damaged log is treated.
#[derive(Args, Debug)]
pub(crate) struct DatabaseArguments {
    /// The directory of the database
    #[arg(value_name = "DB")]
    path: PathBuf,

    #[command(flatten)]
    memory: MemoryArguments,

    /// How a damaged log is treated; damage elsewhere is an error either way
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    recovery: Recovery,
}

/// What becomes of the end of a log that tolerant recovery drops, if the database is opened for writing.
const CUT_OFF: &str = "were cut off, with the writes that they had";

impl DatabaseArguments {
    /// Opens for reading; nothing is created or changed.
    pub(crate) fn open_to_read(&self) -> Result<Database> {
        self.must_exist()?;
        self.open(self.builder().read_only(true).create(false), "are passed over")
    }

    /// The same; `None` if a process has it open for writing.
    pub(crate) fn try_open_to_read(&self) -> Result<Option<Database>> {
        self.must_exist()?;
        match self.builder().read_only(true).create(false).open() {
            Ok(database) => Ok(Some(database)),
            Err(error) if error.kind() == ErrorKind::Locked => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Watches what a process does that has it open.
    pub(crate) fn watch(&self) -> Result<Watch> {
        self.must_exist()?;
        Ok(self.builder().watch()?)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens for writing; a missing database is an error.
    pub(crate) fn open_to_change(&self, log: &LogArguments) -> Result<Database> {
        self.must_exist()?;
        self.open(log.apply(self.builder())?.publish_status(true).create(false), CUT_OFF)
    }

    /// Opens for writing and creates the database if it is missing.
    pub(crate) fn open_or_create(&self, log: &LogArguments) -> Result<Database> {
        self.open(log.apply(self.builder())?.publish_status(true).create(true), CUT_OFF)
    }

    /// Opens it, and tells what tolerant recovery leaves out: writes that had been safe may be among that.
    fn open(&self, builder: DatabaseBuilder, what_becomes_of_it: &str) -> Result<Database> {
        let database = builder.open()?;
        let dropped = database.recovery().dropped_bytes;
        if dropped > 0 && self.recovery == Recovery::Tolerant {
            anstream::eprintln!(
                "turbidite: note: {dropped} bytes at the end of the log {what_becomes_of_it}"
            );
        }
        Ok(database)
    }

    fn builder(&self) -> DatabaseBuilder {
        self.memory.apply(Database::builder(&self.path).recovery(self.recovery.into()))
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

    /// Opens the keyspace and creates it if it is missing, with the log or without it as `log` says.
    pub(crate) fn open_or_create(
        &self,
        database: &Database,
        log: &LogArguments,
    ) -> Result<Keyspace> {
        engine::open_or_create(database, self.name(), self.engine, &self.parts, log)
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

/// How the files of a keyspace are reached.
#[derive(Args, Debug)]
pub(crate) struct LayerArguments {
    /// How the keyspace's files are reached
    #[arg(long, value_name = "LAYER", default_value = "pos", value_parser = layer_parser())]
    file: Layer,
    /// The bytes of a block of a layer that has blocks, a power of two [default: 4096]. The blocks of the
    /// tables of an LSM-tree are --data-block-size
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
