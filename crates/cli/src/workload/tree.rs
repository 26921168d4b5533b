//! What a B+ tree was like at the end of a phase, and how its pages were asked for meanwhile.

use serde_json::{Value, json};
use turbidite::{Stats, TreeStats};

use crate::size::{Count, ratio};

/// Figures of the B+ tree under test.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tree {
    /// At the end; requests and hits are those of the phase.
    stats: TreeStats,
    /// The bytes of a record's key and value.
    record_bytes: u64,
}

impl Tree {
    /// The figures of a phase by those of the database behind and `before` it; `None` without a tree.
    pub(super) fn of(stats: &Stats, before: &Stats, record_bytes: u64) -> Option<Self> {
        let tree = |stats: &Stats| stats.keyspaces.iter().find_map(|keyspace| keyspace.tree);
        let (mut stats, before) = (tree(stats)?, tree(before)?);
        stats.requests = stats.requests.saturating_sub(before.requests);
        stats.hits = stats.hits.saturating_sub(before.hits);
        Some(Self { stats, record_bytes })
    }

    pub(super) fn page_size(self) -> u64 {
        self.stats.page_size
    }

    /// Nodes asked for in the phase.
    pub(super) fn requests(self) -> u64 {
        self.stats.requests
    }

    /// How many of them were cached.
    pub(super) fn hits(self) -> u64 {
        self.stats.hits
    }

    fn records_per_leaf(self) -> f64 {
        ratio(self.stats.records as f64, self.stats.leaves as f64)
    }

    /// The share of keys and values in the bytes of the pages that are there for them.
    fn page_fill(self) -> f64 {
        let pages = self.stats.leaves + self.stats.overflow_pages;
        let bytes = self.stats.records * self.record_bytes;
        ratio(bytes as f64, (pages * self.stats.page_size) as f64)
    }

    pub(super) fn as_json(self) -> Value {
        let TreeStats { records, levels, inner_nodes, leaves, overflow_pages, free_pages, .. } =
            self.stats;
        json!({
            "requests": self.requests(), "hits": self.hits(),
            "records": records, "levels": levels,
            "inner_nodes": inner_nodes, "leaf_nodes": leaves,
            "records_per_leaf": self.records_per_leaf(),
            "overflow_pages": overflow_pages, "free_pages": free_pages,
            "page_fill": self.page_fill(),
        })
    }

    /// The figures of the tree as it is at the end.
    pub(super) fn shape_as_row(self) -> [String; 8] {
        let count = |figure: u64| Count(figure).to_string();
        [
            count(self.stats.records),
            self.stats.levels.to_string(),
            count(self.stats.inner_nodes),
            count(self.stats.leaves),
            format!("{:.1}", self.records_per_leaf()),
            count(self.stats.overflow_pages),
            count(self.stats.free_pages),
            format!("{:.2}", self.page_fill()),
        ]
    }
}
