//! What the file layer counted during a phase.

use serde_json::{Value, json};
use turbidite::{IoStats, Stats};

/// Counters of the file layer, as they stand or as they grew.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counters {
    pub(super) io: IoStats,
    /// Requests that a page cache answered by itself; 0 for a layer without one.
    pub(super) hits: u64,
}

impl Counters {
    /// As they stand in the figures of a database.
    pub(super) fn of(stats: &Stats) -> Self {
        // There is no page cache yet that could answer.
        Self { io: stats.io, hits: 0 }
    }

    /// How far they grew since `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self { io: self.io - earlier.io, hits: self.hits.saturating_sub(earlier.hits) }
    }

    pub(super) fn as_json(self) -> Value {
        let Self { io, hits } = self;
        json!({
            "requests": io.requests, "hits": hits,
            "reads": io.reads, "read_bytes": io.read_bytes,
            "writes": io.writes, "written_bytes": io.written_bytes, "syncs": io.syncs,
        })
    }
}
