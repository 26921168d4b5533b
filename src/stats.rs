//! Figures that a database gives about itself, as plain data.

use crate::error::Error;
use crate::options::EngineKind;
use crate::vfs::{IoStats, Layer, PageCacheStats};

/// Figures of a whole database since it was opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// What all files have done: counted by the file layer, writes into mapped files included. What is copied to the mapped
    /// tail of the log counts as written to the log.
    pub io: IoStats,
    /// One entry for each keyspace, by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// The log's files.
    pub log: LogStats,
    /// What the memory budget is used for.
    pub memory: MemoryStats,
    /// How the block cache does.
    pub block_cache: CacheStats,
    /// What the page caches of all keyspaces and of the log have done together.
    pub page_cache: PageCacheStats,
    /// The lengths of all files of the database together, in bytes: tables, those too that wait for their
    /// last reader, the log with its reserved segments, catalog and manifests.
    pub disk_bytes: u64,
    /// The number of the last committed write; each write of a batch has its own.
    pub last_seqno: u64,
}

/// The log's files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct LogStats {
    /// Segment files, those kept for reuse and the mapped tail included.
    pub segments: u64,
    /// Bytes reserved for them.
    pub bytes: u64,
    /// Bytes written to them since the database was opened, as the file layer counts them: a part of
    /// [`Stats::io`], and those that wait in the mapped tail of the log to be written to them. 0 if it is open for reading only.
    pub written_bytes: u64,
}

/// What the memory budget is used for, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The budget given.
    pub budget: u64,
    /// Memtables of all keyspaces.
    pub memtables: u64,
    /// Blocks, and nodes of B+ trees, in the block cache.
    pub block_cache: u64,
    /// Indexes and filters of open tables, links of sorted files, and inner nodes that B+ trees keep beside the block cache.
    pub tables: u64,
    /// Indexes of hash keyspaces.
    pub indexes: u64,
    /// Page caches of file layers, and caches that B+ trees have of their own: what they were given.
    pub page_caches: u64,
}

/// How the block cache does, since the database was opened. Scans read past it, and mapped files need none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct CacheStats {
    /// How many times a block was there when it was asked for.
    pub hits: u64,
    /// How many times it had to be read.
    pub misses: u64,
}

/// Figures of one keyspace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Its index structure.
    pub engine: EngineKind,
    /// How its files are reached.
    pub layer: Layer,
    /// Entries stored, old versions and tombstones included: never below the number of keys.
    pub entries: u64,
    /// Bytes of its own files.
    pub disk_bytes: u64,
    /// Bytes of memory it holds outside the shared block cache.
    pub memory_bytes: u64,
    /// What its page cache has done, if its file layer has one.
    pub page_cache: PageCacheStats,
    /// How often memtables were written to disk since it was opened, one or several at once.
    pub flushes: u64,
    /// Compactions done since it was opened.
    pub compactions: u64,
    /// What these have read and written.
    pub work: WorkStats,
    /// The shape of its LSM-tree; empty for other engines.
    pub levels: Vec<LevelStats>,
    /// The values of its LSM-tree that are kept apart from their keys; all zero if there are none, and for other engines.
    pub values: ValueStats,
    /// The shape of its B+ tree; `None` for other engines.
    pub tree: Option<TreeStats>,
    /// The shape of its sorted file with skip links; `None` for other engines.
    pub skip: Option<SkipStats>,
}

impl KeyspaceStats {
    /// Figures of an empty keyspace without a name.
    pub(crate) fn new(engine: EngineKind, layer: Layer) -> Self {
        Self {
            name: String::new(),
            engine,
            layer,
            entries: 0,
            disk_bytes: 0,
            memory_bytes: 0,
            flushes: 0,
            compactions: 0,
            work: WorkStats::default(),
            page_cache: PageCacheStats::default(),
            levels: Vec::new(),
            values: ValueStats::default(),
            tree: None,
            skip: None,
        }
    }
}

/// What the flushes and compactions of a keyspace have read and written since it was opened, as lengths of files: in
/// LSM-trees, value files included, and skip keyspaces. Hash keyspaces tell what flushes wrote, which has the records that upkeep
/// moves, too, and 0 for the rest; B+ trees 0 for all.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct WorkStats {
    /// Bytes of the files that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes of the files that compactions read from front to back, and of tables that they need not read because all in them
    /// lies in a range that was deleted. Tables that are moved or dropped do not count.
    pub compaction_read_bytes: u64,
    /// Bytes of the files that they wrote.
    pub compaction_written_bytes: u64,
}

/// The shape of a B+ tree as it is in the file, and how often its nodes were asked for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct TreeStats {
    /// Bytes of a page.
    pub page_size: u64,
    /// Levels of nodes: 0 if the tree is empty, 1 if it is one leaf.
    pub levels: u32,
    /// Records in leaves.
    pub records: u64,
    /// Leaves.
    pub leaves: u64,
    /// Nodes above the leaves.
    pub inner_nodes: u64,
    /// Pages that hold values too long for a leaf.
    pub overflow_pages: u64,
    /// Pages of the file that hold nothing, or what only older snapshots see.
    pub free_pages: u64,
    /// How many nodes were looked for in the cache since the file was opened, by readers and checkpoints: none where it
    /// is mapped, and none of the inner nodes that are kept beside the cache.
    pub requests: u64,
    /// How many of them were cached.
    pub hits: u64,
}

/// The shape of a skip keyspace as it is in its files, and how often their blocks were asked for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct SkipStats {
    /// How many records of one level a link of the next one skips.
    pub step_unit: u32,
    /// Levels of links in the sorted file.
    pub levels: u32,
    /// Records in the sorted file.
    pub records: u64,
    /// Blocks of the sorted file that hold records.
    pub blocks: u64,
    /// Sorted runs that have been written and wait to be merged into the file.
    pub runs: u64,
    /// Entries in these runs, tombstones included.
    pub run_entries: u64,
    /// How many blocks were looked for in the cache since the file was opened: none where it is mapped.
    pub requests: u64,
    /// How many of them were cached.
    pub hits: u64,
    /// Merges of runs with the sorted file since it was opened.
    pub merges: u64,
    /// Bytes that the merge under way has merged so far; 0 if there is none.
    pub merge_done: u64,
    /// Bytes that it merges in all; 0 if there is none.
    pub merge_total: u64,
}

/// One level of an LSM-tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LevelStats {
    /// 0 is the newest.
    pub level: u32,
    /// Runs: tables that follow one another. Those of one level may overlap.
    pub runs: u64,
    /// Table files.
    pub tables: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
    /// Ranges of keys that were deleted by one write each, which are not among the entries: one for each piece that a range was
    /// cut into, between tables and where ranges overlap.
    pub range_tombstones: u64,
}

/// The values of an LSM-tree that are kept apart from their keys.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct ValueStats {
    /// Value files.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// How many of these no table refers to any more: room that comes back when values are moved to new files.
    pub garbage: u64,
}

/// What [`verify`](crate::Database::verify) read and found.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Entries read, old versions and tombstones included.
    pub entries: u64,
    /// What is wrong; empty if nothing is.
    pub problems: Vec<Error>,
}

/// What opening the database had to do.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Batches read from the log that engines had not persisted.
    pub replayed_batches: u64,
    /// Bytes of the log that were cut off: the torn tail of writes that were never acknowledged as synced,
    /// or, in tolerant recovery, damage.
    pub dropped_bytes: u64,
}
