//! What a skip keyspace was like at the end of a phase, and how its blocks were asked for meanwhile.

use serde_json::{Value, json};
use turbidite::{SkipStats, Stats};

use crate::size::{Count, ratio};

/// Figures of the skip keyspace under test.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Skip {
    /// At the end; requests, hits and merges are those of the phase.
    stats: SkipStats,
}

impl Skip {
    /// The figures of a phase by those of the database behind and `before` it; `None` for another engine.
    pub(super) fn of(stats: &Stats, before: &Stats) -> Option<Self> {
        let skip = |stats: &Stats| stats.keyspaces.iter().find_map(|keyspace| keyspace.skip);
        let (mut stats, before) = (skip(stats)?, skip(before)?);
        stats.requests = stats.requests.saturating_sub(before.requests);
        stats.hits = stats.hits.saturating_sub(before.hits);
        stats.merges = stats.merges.saturating_sub(before.merges);
        Some(Self { stats })
    }

    pub(super) fn step_unit(self) -> u32 {
        self.stats.step_unit
    }

    fn records_per_block(self) -> f64 {
        ratio(self.stats.records as f64, self.stats.blocks as f64)
    }

    pub(super) fn as_json(self) -> Value {
        let SkipStats {
            requests, hits, records, levels, blocks, runs, run_entries, merges, ..
        } = self.stats;
        json!({
            "requests": requests, "hits": hits, "records": records, "levels": levels,
            "blocks": blocks, "records_per_block": self.records_per_block(),
            "runs": runs, "run_entries": run_entries, "merges": merges,
        })
    }

    /// How its blocks were asked for in the phase: requests and hits.
    pub(super) fn requests_as_row(self) -> [String; 2] {
        [self.stats.requests, self.stats.hits].map(|figure| Count(figure).to_string())
    }

    /// The figures of its files as they are at the end, and the merges of the phase.
    pub(super) fn shape_as_row(self) -> [String; 7] {
        let count = |figure: u64| Count(figure).to_string();
        [
            count(self.stats.records),
            self.stats.levels.to_string(),
            count(self.stats.blocks),
            format!("{:.1}", self.records_per_block()),
            count(self.stats.runs),
            count(self.stats.run_entries),
            count(self.stats.merges),
        ]
    }
}
