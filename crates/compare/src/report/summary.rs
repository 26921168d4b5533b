//! What the runs of a row come to: medians, least and most.

use std::collections::{BTreeSet, HashMap};

use serde_json::json;

use crate::failure::Result;
use crate::run::outcome::Measured;
use crate::run::results::{End, Results};
use crate::tables::{Measure, Row, Scale, Table};

/// The runs of one table's rows.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    rows: HashMap<String, Runs>,
    /// Which builds of this program ran them, as far as that was recorded.
    builds: BTreeSet<String>,
    /// How many runs have none recorded.
    unrecorded: usize,
}

/// Which builds of this program runs are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Builds {
    /// How many builds were recorded.
    pub(crate) known: usize,
    /// How many runs have none recorded.
    pub(crate) unrecorded: usize,
}

/// What is known of one row.
#[derive(Debug, Default)]
struct Runs {
    /// The steps of each run that succeeded.
    outcomes: Vec<Vec<Measured>>,
    /// Why others failed, in the order in which they did.
    failures: Vec<String>,
    /// Why the system could not be run at all.
    missing: Option<String>,
}

/// A median and its surroundings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) runs: usize,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let runs = values.len();
        // Of an even number the mean of the two in the middle.
        let median = (values[(runs - 1) / 2] + values[runs / 2]) / 2.0;
        Some(Self { median, least, most, runs })
    }

    /// How many times another it is: the least is that of its least to the most of the other.
    pub(crate) fn over(self, other: Self) -> Self {
        Self {
            median: self.median / other.median,
            least: self.least / other.most,
            most: self.most / other.least,
            runs: self.runs.min(other.runs),
        }
    }

    /// The mean of several.
    pub(crate) fn mean(all: &[Self]) -> Option<Self> {
        let mean = |of: fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        let runs = all.iter().map(|spread| spread.runs).min()?;
        Some(Self {
            median: mean(|spread| spread.median),
            least: mean(|spread| spread.least),
            most: mean(|spread| spread.most),
            runs,
        })
    }
}

impl Summary {
    /// The runs that are kept of `table`.
    pub(crate) fn of(table: &Table, results: &Results, scale: Scale) -> Result<Self> {
        let known: HashMap<&str, &Row> =
            table.rows.iter().map(|row| (row.id.as_str(), row)).collect();
        let mut summary = Self::default();
        for record in results.read(table.name)? {
            let is_of = known.get(record.row.as_str()).is_some_and(|row| row.job == record.job);
            if !is_of || record.scale != scale {
                continue;
            }
            let runs = summary.rows.entry(record.row).or_default();
            match record.end {
                End::Measured(outcome) => {
                    runs.outcomes.push(outcome.steps);
                    if record.build.is_empty() {
                        summary.unrecorded += 1;
                    } else {
                        summary.builds.insert(record.build);
                    }
                }
                End::Failed(why) => runs.failures.push(why),
                End::Missing(why) => runs.missing = Some(why),
            }
        }
        Ok(summary)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.values().all(|runs| runs.outcomes.is_empty())
    }

    /// Which builds of this program its figures are of.
    pub(crate) fn builds(&self) -> Builds {
        Builds { known: self.builds.len(), unrecorded: self.unrecorded }
    }

    /// The runs of a step.
    fn steps<'a>(&'a self, row: &str, step: &'a str) -> impl Iterator<Item = &'a Measured> {
        let outcomes = self.rows.get(row).map_or(&[][..], |runs| &runs.outcomes);
        outcomes.iter().flatten().filter(move |measured| measured.name == step)
    }

    /// A figure over all runs, if there are any that have it.
    pub(crate) fn spread(&self, row: &str, step: &str, measure: Measure) -> Option<Spread> {
        Spread::of(self.steps(row, step).filter_map(|measured| measure.of(measured)).collect())
    }

    /// A share of latencies over all runs, in microseconds.
    pub(crate) fn latency(&self, row: &str, step: &str, share: f64) -> Option<Spread> {
        let of = |measured: &Measured| {
            measured.latency.at(share).filter(|_| measured.latency.mean > 0.0)
        };
        Spread::of(self.steps(row, step).filter_map(of).collect())
    }

    /// The median of a counter, if the system has it.
    pub(crate) fn counter(&self, row: &str, step: &str, name: &str) -> Option<f64> {
        let of = |measured: &Measured| measured.counters.get(name).copied();
        Spread::of(self.steps(row, step).filter_map(of).collect()).map(|spread| spread.median)
    }

    /// The run in the middle, by its time: the one whose course is drawn.
    pub(crate) fn middle<'a>(&'a self, row: &str, step: &'a str) -> Option<&'a Measured> {
        let mut steps: Vec<_> = self.steps(row, step).collect();
        steps.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        steps.get(steps.len() / 2).copied()
    }

    /// The first and the last eighth of the course of a step, in operations per second.
    pub(crate) fn ends(&self, row: &str, step: &str) -> Option<[Spread; 2]> {
        let ends: Vec<_> = self.steps(row, step).filter_map(ends).collect();
        let of = |which: usize| Spread::of(ends.iter().map(|ends| ends[which]).collect());
        Some([of(0)?, of(1)?])
    }

    /// How many runs of a row succeeded.
    pub(crate) fn succeeded(&self, row: &str) -> usize {
        self.rows.get(row).map_or(0, |runs| runs.outcomes.len())
    }

    /// Why runs of a row failed, in the order in which they did.
    pub(crate) fn failures(&self, row: &str) -> &[String] {
        self.rows.get(row).map_or(&[], |runs| &runs.failures)
    }

    /// Whether a row cannot be run here.
    pub(crate) fn is_missing(&self, row: &str) -> bool {
        let is_missing = |runs: &Runs| runs.missing.is_some() && runs.failures.is_empty();
        self.succeeded(row) == 0 && self.rows.get(row).is_some_and(is_missing)
    }

    /// Why a row has no figures.
    pub(crate) fn trouble(&self, row: &str) -> Option<String> {
        let runs = self.rows.get(row).filter(|runs| runs.outcomes.is_empty())?;
        match &runs.failures[..] {
            [] => runs.missing.clone(),
            [first, ..] => {
                let all = runs.failures.len();
                Some(format!("{all} of {all} runs failed, the first with: {first}"))
            }
        }
    }
}

/// The first and the last eighth of the course of one run, in operations per second.
fn ends(measured: &Measured) -> Option<[f64; 2]> {
    let marks = &measured.marks;
    let eighth = marks.len() / 8;
    if eighth == 0 {
        return None;
    }
    let part = measured.operations as f64 * eighth as f64 / marks.len() as f64;
    let last = marks[marks.len() - 1] - marks[marks.len() - 1 - eighth];
    Some([part / marks[eighth - 1], part / last])
}

/// The medians of a table, one line of JSON for each step of each row.
pub(crate) fn as_lines(table: &Table, results: &Results, scale: Scale) -> Result<String> {
    let summary = Summary::of(table, results, scale)?;
    let mut lines = String::new();
    for row in &table.rows {
        for step in row.steps() {
            lines += &line(table, &summary, row, step);
            lines.push('\n');
        }
    }
    Ok(lines)
}

fn line(table: &Table, summary: &Summary, row: &Row, step: &str) -> String {
    let median = |measure| summary.spread(&row.id, step, measure).map(|spread| spread.median);
    let spread = summary.spread(&row.id, step, Measure::OperationsPerSecond);
    let latency = |share| summary.latency(&row.id, step, share).map(|spread| spread.median);
    json!({
        "table": table.name,
        "row": row.id,
        "workload": row.workload,
        "system": row.job.system(),
        "label": row.label,
        "memory": row.memory(),
        "durability": row.durability(),
        "inside_the_clock": row.inside(),
        "step": step,
        "runs": spread.map_or(0, |spread| spread.runs),
        "failed_runs": summary.failures(&row.id).len(),
        "first_failure": summary.failures(&row.id).first(),
        "ops_per_second": spread.map(|spread| spread.median),
        "ops_per_second_min": spread.map(|spread| spread.least),
        "ops_per_second_max": spread.map(|spread| spread.most),
        "settled_ops_per_second": median(Measure::SettledPerSecond).filter(|_| row.settles(step)),
        "study_ops_per_second": row.seed_of(step),
        "p50_us": latency(0.5),
        "p99_us": latency(0.99),
        "p999_us": latency(0.999),
        "max_us": latency(1.0),
        "write_amplification": median(Measure::WriteAmplification),
        "space_amplification": median(Measure::SpaceAmplification).filter(|_| row.tells_live_bytes()),
        "peak_rss_mib": median(Measure::Resident),
        "trouble": summary.trouble(&row.id),
    })
    .to_string()
}
