//! Turbidite: an embedded key-value store.

mod base;
mod batch;
mod budget;
mod builder;
mod cache;
mod catalog;
mod commit;
mod contract;
mod cursor;
mod database;
mod engine;
mod error;
mod filter;
mod housekeeper;
mod iter;
mod keyspace;
mod log;
mod lsm;
mod open;
mod options;
mod snapshot;
mod stats;
pub mod vfs;
mod workers;

pub use base::{Slice, View};
pub use batch::Batch;
pub use builder::DatabaseBuilder;
pub use cursor::{Cursor, Range};
pub use database::Database;
pub use error::{Error, ErrorKind, Result};
pub use keyspace::{Keyspace, KeyspaceInfo};
pub use options::{
    DEFAULT_MEMORY_BUDGET, Durability, EngineKind, KeyspaceOptions, MAX_KEY_LEN, MAX_VALUE_LEN,
    MIN_MEMORY_BUDGET, RecoveryMode,
};
pub use snapshot::Snapshot;
pub use stats::{
    KeyspaceStats, LevelStats, LogStats, MemoryStats, RecoveryReport, Stats, VerifyReport,
};
pub use vfs::{IoStats, Layer};
