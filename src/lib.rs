//! Turbidite: an embedded key-value store, ordered or hashed.
//!
//! A [`Database`] is a directory. It holds [`Keyspace`]s, maps from keys to values, both any bytes.
//! All keyspaces share one log, so a [`Batch`] over several of them is all or nothing, and a [`Snapshot`]
//! sees all of them at one moment.
//!
//! ```
//! # fn main() -> turbidite::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("my.db");
//! use turbidite::{Database, KeyspaceOptions};
//!
//! let db = Database::open(path)?;
//! let users = db.keyspace("users", KeyspaceOptions::lsm())?;
//! users.put("user:1", "Ada")?;
//! users.put("user:2", "Grace")?;
//! assert_eq!(users.get("user:1")?.as_deref(), Some(&b"Ada"[..]));
//!
//! let before = db.snapshot();
//! users.delete("user:1")?;
//! assert_eq!(users.prefix("user:").count(), 1);
//! assert_eq!(before.prefix(&users, "user:").count(), 2);
//!
//! for item in users.range("user:".."user;").rev() {
//!     let (key, value) = item?;
//!     assert_eq!((&*key, &*value), (&b"user:2"[..], &b"Grace"[..]));
//! }
//! db.close()
//! # }
//! ```
//!
//! - What a write survives is chosen by [`Durability`], per database and per batch;
//!   [`KeyspaceOptions::log`] does without the log.
//! - The engine is chosen when a keyspace is created: [`KeyspaceOptions::lsm`] and [`KeyspaceOptions::btree`] keep
//!   keys in order, the one for many writes, the other for reads with one search in a node of each level;
//!   [`KeyspaceOptions::hash`] does not, and answers [`get`](Keyspace::get) with one probe of an index in memory
//!   and as a rule at most one read. Ranges, prefixes and cursors need an order; iterating over everything does not.
//!   [`KeyspaceOptions::skip`] is for ordered data that are written in bulk and then read: one sorted file, in which every
//!   record has a [position](Keyspace::nth), and in which a [`Reducer`] makes one value of those put under one key.
//!   [`Keyspace::load_sorted`] writes such data straight into a file.
//! - [`typed`] has keyspaces whose keys and values are types in place of bytes: [`Database::typed_keyspace`].
//! - How files are reached is chosen by [`Layer`], for each keyspace and for the log: positional calls, mappings,
//!   whole blocks or direct I/O, with or without a page cache.
//! - What memtables, caches, indexes and filters take is bounded by [`DatabaseBuilder::memory_budget`].
//! - Every fallible call returns [`Error`]; programs match on its [`kind`](Error::kind).
//! - Handles are `Clone`, `Send` and `Sync`, and have no lifetimes. [`Database::close`] reports errors;
//!   dropping the last handle closes too.
//!
//! With the feature `serde`, values of typed keyspaces may be of any type that serde knows.
//!
//! With the feature `io-uring`, batches of reads go through an io_uring where the kernel allows one, which
//! takes less processor time than the threads that carry them out otherwise.
//!
//! Linux only at present: [`vfs`] uses Linux calls.

mod base;
mod batch;
mod btree;
mod budget;
mod builder;
mod cache;
mod catalog;
mod codec;
mod commit;
mod contract;
mod cursor;
mod database;
mod engine;
mod error;
mod events;
mod filter;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod hash;
mod housekeeper;
mod iter;
mod jobs;
mod keyspace;
mod log;
mod lsm;
mod memtable;
mod open;
mod options;
#[cfg(not(turbidite_planted_bugs))]
mod planted;
#[cfg(turbidite_planted_bugs)]
pub mod planted;
mod reducer;
mod skip;
mod snapshot;
mod stats;
mod status;
mod sync;
mod throttle;
pub mod typed;
pub mod vfs;
mod workers;

pub use base::{Slice, View};
pub use batch::Batch;
pub use builder::DatabaseBuilder;
pub use cursor::{Cursor, Keys, Range};
pub use database::Database;
pub use error::{Error, ErrorKind, Result};
pub use events::{Event, JobKind, LevelRange, Listener, Outcome};
pub use keyspace::{Keyspace, KeyspaceInfo};
pub use options::{
    CompactionLock, Compression, DEFAULT_MEMORY_BUDGET, Durability, EngineKind, FilterKind,
    KeyFile, KeyspaceOptions, Level, LevelLimit, MAX_KEY_LEN, MAX_VALUE_LEN, MIN_MEMORY_BUDGET,
    MemtableKind, Policy, RecoveryMode,
};
pub use reducer::{ReduceFn, Reducer};
pub use snapshot::Snapshot;
pub use stats::{
    CacheStats, KeyspaceStats, LevelStats, LogStats, MemoryStats, RecoveryReport, SkipStats, Stats,
    TreeStats, ValueStats, VerifyReport, WorkStats,
};
pub use status::{
    ClaimStatus, JobStatus, KeyspaceStatus, LevelStatus, LsmStatus, Span, Status, Watch,
};
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use sync::simulated as simulation;
pub use vfs::{IoStats, Layer, PageCacheStats};

/// The README's example is compiled with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
