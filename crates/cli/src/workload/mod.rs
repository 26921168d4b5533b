//! What `bench` does to a database: made from a seed before any clock starts, checked while it runs.

mod clock;
mod draws;
mod operations;
mod phases;
mod report;
mod values;
mod zipf;

use clap::ValueEnum;
use turbidite::{KeyspaceOptions, vfs::Layer};

use crate::arguments;

pub(crate) use phases::Bench;
pub(crate) use report::{Heading, Measurement, write_table};

/// The index structure under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Engine {
    /// Log-structured merge tree
    Lsm,
}

/// How files are reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum FileLayer {
    /// A shared memory mapping
    Mmap,
    /// Positional calls
    Pos,
}

/// When a write counts as done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Durability {
    /// No log at all
    None,
    /// Logged in the memory of the process
    Buffered,
    /// Logged with the operating system: survives the end of the process
    Os,
    /// Logged on the device: survives power loss
    Sync,
}

impl Durability {
    /// The durability of the database; without a log it has no effect.
    pub(crate) fn of_database(self) -> arguments::Durability {
        match self {
            Self::None | Self::Buffered => arguments::Durability::Buffered,
            Self::Os => arguments::Durability::Os,
            Self::Sync => arguments::Durability::Sync,
        }
    }
}

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
    pub(crate) file: FileLayer,
    pub(crate) durability: Durability,
    pub(crate) records: u32,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    pub(crate) value_entropy: f64,
    pub(crate) order: Order,
    pub(crate) threads: usize,
    pub(crate) seed: u64,
}

impl Plan {
    /// The options of the keyspace under test.
    pub(crate) fn keyspace_options(&self) -> KeyspaceOptions {
        let options = match self.engine {
            Engine::Lsm => KeyspaceOptions::lsm(),
        };
        let layer = match self.file {
            FileLayer::Mmap => Layer::Mmap,
            FileLayer::Pos => Layer::Positional,
        };
        options.layer(layer).log(self.durability != Durability::None)
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
