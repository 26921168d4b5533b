//! What the file layer counted during a phase.

use serde_json::{Value, json};
use turbidite::{IoStats, PageCacheStats, Stats};

/// Counters of the file layer, as they stand or as they grew.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counters {
    pub(super) io: IoStats,
    /// What page caches did; all 0 for a layer without one.
    pub(super) pages: PageCacheStats,
}

impl Counters {
    /// As they stand in the figures of a database.
    pub(super) fn of(stats: &Stats) -> Self {
        Self { io: stats.io, pages: stats.page_cache }
    }

    /// How far they grew since `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self { io: self.io - earlier.io, pages: self.pages - earlier.pages }
    }

    /// Requests to the file layer: to the page cache where there is one.
    pub(super) fn requests(self) -> u64 {
        if self.pages.requests > 0 { self.pages.requests } else { self.io.requests }
    }

    pub(super) fn as_json(self) -> Value {
        let Self { io, pages } = self;
        json!({
            "requests": self.requests(), "hits": pages.hits,
            "reads": io.reads, "read_bytes": io.read_bytes,
            "writes": io.writes, "written_bytes": io.written_bytes, "syncs": io.syncs,
        })
    }
}
