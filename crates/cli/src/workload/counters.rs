//! What the file layer counted during a phase.

use serde_json::{Value, json};
use turbidite::{IoStats, PageCacheStats, Stats};

/// Counters of the file layer, as they stand or as they grew.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counters {
    pub(super) io: IoStats,
    /// What page caches did; all 0 for a layer without one.
    pub(super) pages: PageCacheStats,
    /// Bytes written to the log, which are a part of those of `io`.
    pub(super) log_bytes: u64,
}

impl Counters {
    /// As they stand in the figures of a database.
    pub(super) fn of(stats: &Stats) -> Self {
        Self { io: stats.io, pages: stats.page_cache, log_bytes: stats.log.written_bytes }
    }

    /// How far they grew since `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        let log_bytes = self.log_bytes.saturating_sub(earlier.log_bytes);
        Self { io: self.io - earlier.io, pages: self.pages - earlier.pages, log_bytes }
    }

    /// Bytes written to the keyspace's own files, and to the catalog.
    pub(super) fn keyspace_bytes(self) -> u64 {
        self.io.written_bytes.saturating_sub(self.log_bytes)
    }

    /// Requests to the file layer: to the page cache where there is one.
    pub(super) fn requests(self) -> u64 {
        if self.pages.requests > 0 { self.pages.requests } else { self.io.requests }
    }

    pub(super) fn as_json(self) -> Value {
        let Self { io, pages, .. } = self;
        json!({
            "requests": self.requests(), "hits": pages.hits,
            "reads": io.reads, "read_bytes": io.read_bytes,
            "writes": io.writes, "written_bytes": io.written_bytes, "syncs": io.syncs,
        })
    }
}
