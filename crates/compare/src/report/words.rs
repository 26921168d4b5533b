//! What both kinds of pages say in words.

use super::numbers::{short, times};
use super::plot;
use super::summary::Summary;
use crate::run::results::Machine;
use crate::tables::{Measure, Row, Scale};

pub(crate) const TITLE: &str = "Turbidite and its studies, side by side";

/// How to read the figures.
pub(crate) const READING: &str = "Each system ran in a process of its own, and the systems of a workload took turns. A figure is \
the median of its runs; behind it, or as a thin line, are the least and the most. A diamond is the figure that a study gave \
for its own machine: it is there to compare shapes with, not machines. Figures that are worse than a peer's are shown like all \
others.";

/// The machine, as names and values.
pub(crate) fn machine(machine: &Machine) -> Vec<(&'static str, String)> {
    let Machine { processor, cores, memory_bytes, kernel, file_system, version, optimised } =
        machine;
    let build = if *optimised { "optimised" } else { "not optimised: its figures mean nothing" };
    vec![
        ("Processor", format!("{processor}, {cores} threads")),
        ("Memory", format!("{:.1} GiB", *memory_bytes as f64 / f64::from(1 << 30))),
        ("System", format!("Linux {kernel}, {file_system}")),
        ("Turbidite", format!("{version}, {build}")),
    ]
}

/// What a scale is worth.
pub(crate) fn scale(scale: Scale) -> &'static str {
    match scale {
        Scale::Smoke => "A smoke run: it shows that everything runs, and its figures mean nothing.",
        Scale::Quick => "A quick run: smaller than the study, medians of three.",
        Scale::Full => "A full run: the sizes of the study, medians of three.",
    }
}

/// The columns of a table of figures.
pub(crate) const COLUMNS: [&str; 11] = [
    "system",
    "step",
    "ops/s",
    "least–most",
    "study",
    "to study",
    "p50 µs",
    "p99.9 µs",
    "written/put",
    "disk/live",
    "peak MiB",
];

/// The cells of a step of a row; empty where there is nothing to say.
pub(crate) fn cells(summary: &Summary, row: &Row, step: &str) -> [String; 11] {
    let spread = summary.spread(&row.id, step, Measure::OperationsPerSecond);
    let of = |measure| {
        summary.spread(&row.id, step, measure).map_or(String::new(), |found| short(found.median))
    };
    let latency = |share| {
        summary.latency(&row.id, step, share).map_or(String::new(), |found| short(found.median))
    };
    let study = row.seed_of(step);
    let ratio = spread
        .zip(study)
        .map(|(ours, study)| plot::ratio(Measure::OperationsPerSecond, ours.median, study));
    [
        row.label.clone(),
        step.to_owned(),
        spread.map_or_else(|| "–".to_owned(), |found| short(found.median)),
        spread
            .filter(|found| found.runs > 1)
            .map_or(String::new(), |found| format!("{}–{}", short(found.least), short(found.most))),
        study.map_or(String::new(), short),
        ratio.map_or(String::new(), times),
        latency(0.5),
        latency(0.999),
        of(Measure::WriteAmplification),
        of(Measure::SpaceAmplification),
        of(Measure::Resident),
    ]
}

/// How a row is set up: memory, durability and what else is in its clock.
pub(crate) fn setting(row: &Row) -> String {
    let mut words = format!("memory: {}; durability: {}", row.memory(), row.durability());
    if !row.inside().is_empty() {
        words += "; ";
        words += row.inside();
    }
    words
}
