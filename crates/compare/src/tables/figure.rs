//! What is drawn of a table, as plain data.

use crate::run::outcome::Measured;

/// A figure that a step gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Measure {
    OperationsPerSecond,
    MebibytesPerSecond,
    /// The same operations, with the time until no compaction is due.
    SettledPerSecond,
    /// Compactions at once, in the mean.
    Together,
    /// What devices took until no compaction was due, in MiB a second.
    DeviceMebibytesPerSecond,
    /// The mean of one operation, in microseconds.
    Microseconds,
    Seconds,
    /// The largest memory ever resident, in MiB.
    Resident,
    /// Bytes on disk for each byte of live records.
    SpaceAmplification,
    /// Bytes written to devices for each byte that was put.
    WriteAmplification,
}

impl Measure {
    /// Its name with its unit.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::OperationsPerSecond => "operations per second",
            Self::MebibytesPerSecond => "MiB/s of keys and values",
            Self::SettledPerSecond => "operations per second, until all is compacted",
            Self::Together => "compactions at once (mean)",
            Self::DeviceMebibytesPerSecond => "MiB/s written to devices",
            Self::Microseconds => "µs per operation (mean)",
            Self::Seconds => "seconds",
            Self::Resident => "peak resident memory, MiB",
            Self::SpaceAmplification => "bytes on disk per live byte",
            Self::WriteAmplification => "bytes written per byte put",
        }
    }

    /// Whether more is better.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(
            self,
            Self::OperationsPerSecond
                | Self::MebibytesPerSecond
                | Self::SettledPerSecond
                | Self::Together
                | Self::DeviceMebibytesPerSecond
        )
    }

    /// Its value for a step, if it has one.
    pub(crate) fn of(self, step: &Measured) -> Option<f64> {
        let ratio = |a: f64, b: f64| (a > 0.0 && b > 0.0).then(|| a / b);
        match self {
            Self::OperationsPerSecond => ratio(step.operations as f64, step.seconds),
            Self::MebibytesPerSecond => {
                ratio(step.user_bytes as f64 / (1 << 20) as f64, step.seconds)
            }
            Self::SettledPerSecond => ratio(step.operations as f64, step.settled_seconds()),
            Self::Together => {
                ratio(*step.counters.get("compaction seconds")?, step.settled_seconds())
            }
            Self::DeviceMebibytesPerSecond => {
                ratio(step.written_bytes as f64 / (1 << 20) as f64, step.settled_seconds())
            }
            Self::Microseconds => ratio(1e6 * step.seconds, step.operations as f64),
            Self::Seconds => ratio(step.seconds, 1.0),
            // Where it is not known, it is 0.
            Self::Resident => ratio(step.peak_rss_bytes as f64, (1 << 20) as f64)
                .filter(|&mebibytes| mebibytes > 0.0),
            Self::SpaceAmplification => ratio(step.disk_bytes as f64, step.live_bytes as f64),
            Self::WriteAmplification => ratio(step.written_bytes as f64, step.user_bytes as f64),
        }
    }

    /// A figure of a study, which is in operations per second, in this measure, for records of so many bytes.
    pub(crate) fn of_seed(self, operations_per_second: f64, record_bytes: u64) -> Option<f64> {
        match self {
            Self::OperationsPerSecond => Some(operations_per_second),
            Self::MebibytesPerSecond => {
                Some(operations_per_second * record_bytes as f64 / f64::from(1 << 20))
            }
            Self::Microseconds => Some(1e6 / operations_per_second),
            _ => None,
        }
    }
}

/// How points are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A bar for each, in groups of one x.
    Bars,
    /// Lines over x, one for each series.
    Lines,
    /// The throughput of each point over the bytes written, from its marks.
    Course,
    /// The latency of each point over the share of operations.
    Latencies,
    /// The compactions of a point, as rectangles of keys and time, on each level.
    Compactions,
}

/// Where a point lies.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum X {
    Name(String),
    Number(f64),
}

/// One figure of one step of one row.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Point {
    pub(crate) row: String,
    pub(crate) step: String,
    pub(crate) series: String,
    pub(crate) x: X,
}

/// A figure.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// Where it comes from and what to see in it.
    pub(crate) caption: String,
    pub(crate) kind: Kind,
    /// What x is, with its unit.
    pub(crate) x: &'static str,
    pub(crate) measure: Measure,
    /// Whether x grows by factors.
    pub(crate) log_x: bool,
    /// Whether the measure is drawn by factors.
    pub(crate) log: bool,
    pub(crate) points: Vec<Point>,
}

impl Figure {
    pub(crate) fn new(
        title: &str,
        caption: &str,
        kind: Kind,
        x: &'static str,
        measure: Measure,
    ) -> Self {
        let (title, caption) = (title.to_owned(), caption.to_owned());
        Self { title, caption, kind, x, measure, log_x: false, log: false, points: Vec::new() }
    }

    #[must_use]
    pub(crate) fn log(mut self) -> Self {
        self.log = true;
        self
    }

    #[must_use]
    pub(crate) fn log_x(mut self) -> Self {
        self.log_x = true;
        self
    }

    pub(crate) fn add(&mut self, row: &str, step: &str, series: &str, x: X) {
        let (row, step, series) = (row.to_owned(), step.to_owned(), series.to_owned());
        self.points.push(Point { row, step, series, x });
    }
}
