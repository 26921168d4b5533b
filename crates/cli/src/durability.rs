//! When a write counts as done, and how long the log may hold back those that need not be safe at once.

use std::time::Duration;

use clap::{Args, ValueEnum};
use turbidite::{Database, DatabaseBuilder};

use crate::failure::{Failure, Result};
use crate::size;

/// When a write counts as done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Durability {
    /// In the memory of this process, with no log at all: fixed when the keyspace is created
    None,
    /// Logged in the memory of this process, and soon handed to the operating system
    Buffered,
    /// Logged in the memory of this process, and handed to the operating system when the log's buffer is
    /// full, or at the end
    Manual,
    /// Logged with the operating system: survives the end of the process
    #[default]
    Os,
    /// Logged on the device: survives power loss
    Sync,
}

impl Durability {
    /// Whether writes go through the log.
    pub(crate) fn is_logged(self) -> bool {
        self != Self::None
    }

    /// What the library calls it; without a log it has no effect.
    fn of_database(self) -> turbidite::Durability {
        match self {
            Self::None | Self::Buffered | Self::Manual => turbidite::Durability::Buffered,
            Self::Os => turbidite::Durability::Os,
            Self::Sync => turbidite::Durability::Sync,
        }
    }
}

/// How safe writes are when they count as done.
#[derive(Args, Clone, Default, Debug)]
pub(crate) struct LogArguments {
    /// When a write counts as done [default: os, or none in a keyspace that was created with none]
    #[arg(long = "durability", value_name = "DURABILITY", value_enum)]
    wanted: Option<Durability>,
    /// The most bytes of records that the log holds back, with the durabilities buffered and manual
    /// [default: 128KiB]
    #[arg(long, value_name = "BYTES", value_parser = size::parse::<usize>)]
    log_buffer: Option<usize>,
    /// After how many milliseconds they are handed to the operating system, with the durability buffered
    /// [default: 4]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    log_flush_ms: Option<u64>,
}

impl LogArguments {
    /// When a write to a keyspace with a log counts as done.
    pub(crate) fn durability(&self) -> Durability {
        self.wanted.unwrap_or_default()
    }

    /// An error if the keyspace `name`, if it is there, cannot be written to like this.
    pub(crate) fn check(&self, database: &Database, name: &str) -> Result<()> {
        let found = database.keyspaces().into_iter().find(|info| info.name == name);
        let Some((found, wanted)) = found.zip(self.wanted) else { return Ok(()) };
        match (found.logged, wanted.is_logged()) {
            (true, false) => Err(Failure::usage(format!(
                "the keyspace {name:?} was created with the log: it cannot be written without it"
            ))),
            (false, true) => Err(Failure::usage(format!(
                "the keyspace {name:?} was created without the log: leave out --durability, or write to a keyspace \
                 that is created with the log"
            ))),
            _ => Ok(()),
        }
    }

    /// Has the database write its log like this.
    pub(crate) fn apply(&self, builder: DatabaseBuilder) -> Result<DatabaseBuilder> {
        let durability = self.durability();
        if self.log_flush_ms.is_some() && durability != Durability::Buffered {
            return Err(Failure::usage("--log-flush-ms is for --durability buffered"));
        }
        let holds_back = matches!(durability, Durability::Buffered | Durability::Manual);
        if self.log_buffer.is_some() && !holds_back {
            return Err(Failure::usage("--log-buffer is for --durability buffered and manual"));
        }
        let mut builder = builder.durability(durability.of_database());
        if durability == Durability::Manual {
            builder = builder.manual_log_flush();
        }
        if let Some(bytes) = self.log_buffer {
            builder = builder.log_buffer(bytes);
        }
        if let Some(milliseconds) = self.log_flush_ms {
            builder = builder.log_flush_interval(Duration::from_millis(milliseconds));
        }
        Ok(builder)
    }

    /// What was chosen besides the durability, by its name.
    pub(crate) fn chosen(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let buffer = self.log_buffer.map(|bytes| ("log_buffer", bytes.to_string()));
        let interval = self.log_flush_ms.map(|ms| ("log_flush_ms", ms.to_string()));
        buffer.into_iter().chain(interval)
    }
}
