//! What one process measured, as plain data.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The shares of operations whose latencies are kept.
const SHARES: [f64; 14] =
    [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999, 1.0];

/// Latencies in microseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    /// For shares of all operations, how long they lasted at most.
    pub(crate) curve: Vec<(f64, f64)>,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let curve = SHARES.map(|share| (share, histogram.value_at_quantile(share) as f64 / 1e3));
        Self { mean: histogram.mean() / 1e3, curve: curve.into() }
    }

    pub(crate) fn at(&self, share: f64) -> Option<f64> {
        let found = self.curve.iter().find(|(known, _)| (known - share).abs() < 1e-9);
        found.map(|&(_, microseconds)| microseconds)
    }
}

/// Keys of one level, as shares of the way from the first key that there may be to the last.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Extent {
    pub(crate) level: u32,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

/// A compaction: when it ran, in seconds since some beginning, what it took and what it made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Compaction {
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) inputs: Vec<Extent>,
    pub(crate) outputs: Vec<Extent>,
}

/// What one step cost.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    /// How long the system worked on until all was in its files and no compaction was due.
    pub(crate) settle_seconds: f64,
    /// The bytes of keys and values that were written.
    pub(crate) user_bytes: u64,
    /// The bytes written to devices, to the end of the settling, as the kernel accounts for them: a small write in a large folio
    /// counts as all of it.
    pub(crate) written_bytes: u64,
    /// The bytes on disk at its end.
    pub(crate) disk_bytes: u64,
    /// The bytes of keys and values that can be read at its end.
    pub(crate) live_bytes: u64,
    /// The most memory the process ever had resident until its end.
    pub(crate) peak_rss_bytes: u64,
    pub(crate) latency: Latency,
    /// When equal parts of the operations had been done, in seconds, if that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) marks: Vec<f64>,
    /// What the system counted itself during the step.
    pub(crate) counters: BTreeMap<String, f64>,
    /// Some of the compactions during the step, which follow one another, in the order in which they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) compactions: Vec<Compaction>,
}

impl Measured {
    /// How long it took until no compaction was due.
    pub(crate) fn settled_seconds(&self) -> f64 {
        self.seconds + self.settle_seconds
    }
}

/// What a process measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) steps: Vec<Measured>,
    pub(crate) close_seconds: f64,
}
