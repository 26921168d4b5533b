//! What `bench` does to a database: made from a seed before any clock starts, checked while it runs.

mod counters;
mod keys;
mod phases;
mod report;
mod skip;
mod store;
mod tree;

use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use turbidite::{Database, DatabaseBuilder, KeyspaceOptions, Layer, Listener};

use crate::arguments::MemoryArguments;
use crate::durability::LogArguments;
use crate::engine::{Engine, EngineArguments};
use crate::failure::Result;
use crate::trace::Trace;

pub(crate) use keys::Keys;
pub(crate) use phases::Bench;
pub(crate) use report::{Heading, Measurement, write_tables};
pub(crate) use store::{Reopening, Store};

/// In which order keys are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Order {
    /// Every key once, shuffled anew for each phase
    Random,
    /// Every key once, ascending
    Sequential,
    /// Zipf draws (0.99), the often drawn keys spread over all; fill and delete are shuffled
    Skewed,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Phase {
    /// Put every record
    Fill,
    /// Get keys that are there, and check the values
    Get,
    /// Get keys that are not there, but between those that are
    Miss,
    /// Walk over all records, and check their order and number
    Scan,
    /// The same from the last to the first
    Reverse,
    /// Put new values under keys that are there
    Overwrite,
    /// Delete every record
    Delete,
    /// Count all records with one call, on one thread, and check their number
    Count,
}

impl Phase {
    /// Whether the phase writes.
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Fill | Self::Overwrite | Self::Delete)
    }
}

/// All that decides what a benchmark does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) engine: Engine,
    /// What the engine is made of.
    pub(crate) parts: EngineArguments,
    pub(crate) file: Layer,
    pub(crate) log_file: Layer,
    pub(crate) log: LogArguments,
    pub(crate) memory: MemoryArguments,
    pub(crate) keys: Keys,
    pub(crate) records: u32,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    pub(crate) value_entropy: f64,
    pub(crate) order: Order,
    pub(crate) threads: usize,
    /// How many operations one call does, at least 1.
    pub(crate) batch: usize,
    /// How many operations share one look at the clock, at least 1.
    pub(crate) latency_run: u64,
    /// Whether the database is closed and opened between writing and reading.
    pub(crate) reopen: bool,
    /// Whether a writing phase ends only when all of it has persisted.
    pub(crate) persist: bool,
    /// Where background work is recorded.
    pub(crate) trace: Option<Arc<Trace>>,
    /// Whether lines tell how far it is.
    pub(crate) progress: bool,
    pub(crate) seed: u64,
}

impl Plan {
    /// Opens the database under test, at `path`.
    fn builder(&self, path: &Path) -> Result<DatabaseBuilder> {
        let mut builder = self.memory.apply(Database::builder(path));
        if let Some(trace) = &self.trace {
            builder = builder.listener(Arc::clone(trace) as Arc<dyn Listener>);
        }
        Ok(self.log.apply(builder)?.log_layer(self.log_file).publish_status(true))
    }

    /// The options of the keyspace under test.
    pub(crate) fn keyspace_options(&self) -> Result<KeyspaceOptions> {
        let options = self.parts.keyspace_options(self.engine)?;
        Ok(options.layer(self.file).log(self.log.durability().is_logged()))
    }

    /// What was chosen that is not the default and has no name of its own in the figures.
    fn chosen(&self) -> Vec<(&'static str, String)> {
        let keyspace = self.keyspace_options().map(|options| options.chosen());
        let database = self.memory.chosen().chain(self.log.chosen());
        keyspace.unwrap_or_default().into_iter().chain(database).collect()
    }

    /// The bytes of a record's key and value.
    pub(crate) fn record_bytes(&self) -> u64 {
        (self.key_size + self.value_size) as u64
    }
}

/// The name of a choice as it is written on the command line.
pub(crate) fn name(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
