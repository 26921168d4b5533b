//! What a database is doing at a moment, as plain data; and how another process gets to see it.
//!
//! ```text
//!   the process that writes                 files                    a process that watches
//!   collects a Status  --------------->  watch.status  ----------->  decodes it
//!   looks now and then <---------------  watch.request <-----------  asks, again for each picture
//! ```
//! Both files are replaced in one step, never synced, and hold nothing that matters: who finds them unreadable goes on
//! as if they were not there. Nothing is collected or written unless somebody has asked since the last time.
//!
//! Thread safety: plain data; [`publisher`] has a thread.

mod encoding;
mod fit;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod publisher;
mod spans;
#[cfg(test)]
mod tests;
mod watch;

use std::time::Duration;

use crate::events::JobKind;
use crate::options::EngineKind;
use crate::stats::{MemoryStats, WorkStats};
pub(crate) use publisher::Publisher;
pub(crate) use spans::{front, spans};
pub use watch::Watch;

/// The name of the file that a status is published in, in the database's directory.
const STATUS: &str = "watch.status";
/// The name of the file that asks for one.
const REQUEST: &str = "watch.request";
/// No status is longer: one that would be is published with less detail.
const LONGEST_STATUS: u64 = 16 << 20;
/// What the names of files end with that are still being written.
const UNFINISHED: &str = "tmp";

/// What a database is doing at a moment. Counters begin with 0 when it is opened.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The number of the process that has it open.
    pub process: u32,
    /// How long it has been open.
    pub open_for: Duration,
    /// The number of the last committed write.
    pub last_seqno: u64,
    /// Bytes that writers brought: of keys and values, and in batches a few bytes for each. Sorted loads are not counted.
    pub taken_bytes: u64,
    /// Bytes read from files, as the file layer counts them.
    pub read_bytes: u64,
    /// Bytes written to files.
    pub written_bytes: u64,
    /// How far writers to the keyspace that is worst off are slowed down: 0 not at all, 1000 they wait.
    pub pressure: u32,
    /// Whether writes are refused after an error that leaves it unknown what is on disk.
    pub is_poisoned: bool,
    /// What the memory budget is used for.
    pub memory: MemoryStats,
    /// The part of the budget that memtables may take, in bytes.
    pub memtables_limit: u64,
    /// The keyspaces, by name.
    pub keyspaces: Vec<KeyspaceStatus>,
    /// Background jobs that are under way, in the order in which they began.
    pub jobs: Vec<JobStatus>,
}

/// What a keyspace is doing.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct KeyspaceStatus {
    /// Its name.
    pub name: String,
    /// Its index structure.
    pub engine: EngineKind,
    /// Bytes of its own files.
    pub disk_bytes: u64,
    /// Bytes of memory it holds outside the shared block cache.
    pub memory_bytes: u64,
    /// Memtables written to disk.
    pub flushes: u64,
    /// Compactions done.
    pub compactions: u64,
    /// What these have read and written.
    pub work: WorkStats,
    /// How far its background work slows its writers down: 0 not at all, 1000 they wait.
    pub pressure: u32,
    /// Its LSM-tree; `None` for other engines.
    pub tree: Option<LsmStatus>,
}

/// What an LSM-tree is doing.
#[derive(Clone, PartialEq, Default, Debug)]
#[non_exhaustive]
pub struct LsmStatus {
    /// Full memtables that wait to be flushed.
    pub frozen: u64,
    /// Bytes of memory these take.
    pub frozen_bytes: u64,
    /// How many runs level 0 has more than it may: at 8 writers begin to be slowed down.
    pub excess_runs: u64,
    /// About how many bytes background work is behind: frozen memtables, and what compactions will write until none is
    /// due, as far as the policy tells.
    pub debt_bytes: u64,
    /// Whether a compaction is due that could begin now.
    pub is_due: bool,
    /// Its levels, from 0 on, as far as they have tables.
    pub levels: Vec<LevelStatus>,
    /// What compactions work on.
    pub claims: Vec<ClaimStatus>,
}

/// A level of an LSM-tree.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct LevelStatus {
    /// 0 is the newest.
    pub level: u32,
    /// Runs: tables that follow one another. Those of one level may overlap.
    pub runs: u64,
    /// Where its bytes are, run by run, each in the order of keys. Of a level with many tables neighbours are taken together,
    /// of several runs too in a status that is published and would be too long otherwise.
    pub spans: Vec<Span>,
}

impl LevelStatus {
    /// Its tables.
    #[must_use]
    pub fn tables(&self) -> u64 {
        self.spans.iter().map(|span| span.tables).fold(0, u64::saturating_add)
    }

    /// Bytes in them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.bytes).fold(0, u64::saturating_add)
    }
}

/// Tables of a run that follow one another: as a rule one. Of keys there are the first 64 bytes.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Span {
    /// The first key.
    pub smallest: Vec<u8>,
    /// The last key.
    pub largest: Vec<u8>,
    /// How many tables.
    pub tables: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// A part of an LSM-tree that a compaction reads or writes: a level, and keys. Of keys there are the first 64 bytes.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct ClaimStatus {
    /// Which compaction claims it, by a number of the keyspace's own.
    pub claim: u64,
    /// 0 is the newest.
    pub level: u32,
    /// The first key.
    pub smallest: Vec<u8>,
    /// The last key.
    pub largest: Vec<u8>,
}

/// A background job that is under way.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct JobStatus {
    /// Its number: see [`Event::number`](crate::Event::number).
    pub number: u64,
    /// The keyspace it works for.
    pub keyspace: String,
    /// What it does.
    pub kind: JobKind,
    /// The first and the last level of an LSM-tree that it reads or writes.
    pub levels: Option<(u32, u32)>,
    /// Bytes of the tables it began with.
    pub bytes: u64,
    /// How long it has been under way.
    pub running_for: Duration,
}
