//! `lsm-kv`: a store made of choices.

use super::{Figure, Kind, Measure, Row, Scale, Table, X};
use crate::run::job::{Act, Keys, Load, Order, Step};
use crate::systems::{Durability, Setup};

const ABOUT: &str = "LSM-KV's workloads on Turbidite, made of the same parts: keys of 8 bytes, memtables and tables of 2 MiB, levels \
tiering 2, then levelling 4, 8, 16, 32, then no limit; Bloom filters; 32 open files; no log, no sync. All puts ascend, as in \
the study, so tables never overlap: moving one down costs nothing, and merges have nothing to merge. LSM-KV compacts inside \
put; Turbidite does beside it, and slows puts down when it falls behind. Memory of 16 MiB in all; what LSM-KV left to the \
system's page cache, Turbidite does too.";

const LEVELS: &str = "tiering:2,levelling:4,levelling:8,levelling:16,levelling:32";

fn setup(levels: &str, key_file: &str) -> Setup {
    Setup::new("turbidite-lsm", Durability::None, 16 << 20)
        .with("policy", levels)
        .with("table-size", 2 << 20)
        .with("filter", "bloom")
        .with("key-file", key_file)
        .with("open-files", 32)
}

fn load(bytes: u32, value_size: u32, steps: Vec<Step>) -> Load {
    let records = bytes / value_size;
    Load { keys: Keys::Binary, value_size, latency_run: 1, ..Load::new(records, steps) }
}

fn with_seeds(row: Row, seeds: &[(&str, f64)]) -> Row {
    seeds.iter().fold(row, |row, &(step, microseconds)| row.seed(step, 1e6 / microseconds))
}

/// Figures 1 and 2: sizes of values.
fn sizes(scale: Scale, bytes: u32, rows: &mut Vec<Row>) -> Vec<Figure> {
    let seeds = [
        (2, [4.12, 1.11, 3.1, 0.31]),
        (4, [6.87, 1.44, 3.1, 0.19]),
        (6, [8.97, 1.82, 3.1, 0.21]),
        (8, [11.63, 1.96, 3.1, 0.21]),
    ];
    let names = ["put", "get", "shuffled get", "delete"];
    let figure = |title: &str, measure| {
        Figure::new(
            title,
            "The marks are the study's, decoded from its plots.",
            Kind::Bars,
            "",
            measure,
        )
        .log()
    };
    let mut latency = figure("Figure 1: latency by the size of values", Measure::Microseconds);
    let mut throughput =
        figure("Figure 2: throughput by the size of values", Measure::OperationsPerSecond);
    for (kibibytes, seeds) in seeds {
        let steps = vec![
            Step::new("put", Act::Put, Order::Sequential),
            Step::new("get", Act::Get, Order::Sequential),
            Step::new("shuffled get", Act::Get, Order::Shuffled),
            Step::new("delete", Act::Delete, Order::Sequential),
        ];
        let id = format!("size-{kibibytes}");
        let workload = format!("values of {kibibytes} KiB, {} MiB in all", bytes >> 20);
        let load = load(bytes, kibibytes << 10, steps);
        let job = (setup(LEVELS, "keys+filter"), load);
        let row = Row::store(id.clone(), &workload, "Turbidite as LSM-KV", job, scale.rounds());
        let seeds: Vec<_> = names.into_iter().zip(seeds).collect();
        rows.push(with_seeds(row, &seeds));
        for name in names {
            latency.add(&id, name, name, X::Name(format!("{kibibytes} KiB")));
            throughput.add(&id, name, name, X::Name(format!("{kibibytes} KiB")));
        }
    }
    vec![latency, throughput]
}

/// Figures 3 and 4: what stays in memory of a table.
fn key_files(scale: Scale, rows: &mut Vec<Row>) -> Vec<Figure> {
    let seeds = [
        ("none", "nothing kept", 9.452, 7.826),
        ("filter", "filter kept", 10.047, 4.844),
        ("keys", "keys kept", 1.125, 0.528),
        ("keys+filter", "both kept", 1.203, 0.608),
    ];
    let records = scale.pick(2_000, 32_768, 32_768);
    let figure = |title: &str| {
        let caption = "Gets of values of 2 KiB under even keys. The marks are the study's.";
        Figure::new(title, caption, Kind::Bars, "", Measure::Microseconds)
    };
    let mut hits = figure("Figure 3: gets that all hit");
    let mut half = figure("Figure 4: gets of which half hit");
    for (kept, label, all, some) in seeds {
        let steps = vec![
            Step::new("put", Act::Put, Order::Sequential),
            Step::new("get", Act::Get, Order::Sequential),
            Step::new("half", Act::Half, Order::Sequential),
        ];
        let id = format!("key-file-{kept}");
        let job = (setup(LEVELS, kept), load(records << 11, 2 << 10, steps));
        let row =
            Row::store(id.clone(), "what stays in memory of a table", label, job, scale.rounds());
        rows.push(with_seeds(row, &[("get", all), ("half", some)]));
        hits.add(&id, "get", label, X::Name(String::new()));
        half.add(&id, "half", label, X::Name(String::new()));
    }
    vec![hits, half]
}

/// Figure 5: throughput as levels fill. The study's puts ascend; a true shuffle shows what merging costs.
fn course(scale: Scale, bytes: u32, rows: &mut Vec<Row>) -> Figure {
    let caption = "Figure 5 of the study: about 1.06M/s at first, then steps down with each level filled, to 84-102k/s, and \
                   63-68k/s after 100 MiB. Moving mean over an eighth of the puts.";
    let mut figure = Figure::new(
        "Figure 5: puts as levels fill",
        caption,
        Kind::Course,
        "MiB put",
        Measure::OperationsPerSecond,
    )
    .log();
    for (key, label, order) in [
        ("ascending", "ascending, as the study", Order::Sequential),
        ("shuffled", "true shuffle", Order::Shuffled),
    ] {
        let id = format!("course-{key}");
        let step = Step::new("put", Act::Put, order).course();
        let job = (setup(LEVELS, "keys+filter"), load(bytes, 8 << 10, vec![step]));
        figure.add(&id, "put", label, X::Name(String::new()));
        rows.push(Row::store(id, "values of 8 KiB as levels fill", label, job, scale.rounds()));
    }
    figure
}

/// Figures 6 and 7: the grid of tiering sizes and size ratios.
fn grid(scale: Scale, bytes: u32, rows: &mut Vec<Row>) -> Vec<Figure> {
    let figure = |title: &str, caption: &str| {
        Figure::new(title, caption, Kind::Lines, "size ratio", Measure::Microseconds)
    };
    let mut put = figure(
        "Figure 6: puts by the shape of levels",
        "The study: 9.94 to 14.92 µs, less with larger ratios.",
    );
    let mut get = figure(
        "Figure 7: sequential gets by the shape of levels",
        "The study: 1.81 to 1.95 µs, within 3 %.",
    );
    let most = scale.pick(2, 5, 5);
    for runs in 1..=most {
        for ratio in 1..=most {
            let mut levels = format!("tiering:{runs}");
            let mut tables = runs;
            for _ in 1..5 {
                tables *= ratio;
                levels += &format!(",levelling:{tables}");
            }
            let steps = vec![
                Step::new("put", Act::Put, Order::Sequential),
                Step::new("get", Act::Get, Order::Sequential),
            ];
            let id = format!("grid-{runs}-{ratio}");
            let label = format!("tiering {runs}, ratio {ratio}");
            let job = (setup(&levels, "keys+filter"), load(bytes, 8 << 10, steps));
            let rounds = scale.rounds().min(3);
            rows.push(Row::store(id.clone(), "the shape of levels", &label, job, rounds));
            for (figure, step) in [(&mut put, "put"), (&mut get, "get")] {
                figure.add(&id, step, &format!("tiering {runs}"), X::Number(f64::from(ratio)));
            }
        }
    }
    vec![put, get]
}

pub(super) fn table(scale: Scale) -> Table {
    let bytes = scale.pick(4 << 20, 128 << 20, 128 << 20);
    let mut rows = Vec::new();
    let mut figures = sizes(scale, bytes, &mut rows);
    figures.extend(key_files(scale, &mut rows));
    figures.push(course(scale, bytes, &mut rows));
    figures.extend(grid(scale, bytes, &mut rows));
    Table {
        name: "lsm-kv",
        title: "A store made of choices",
        about: ABOUT,
        sizes: "the sizes of the study",
        rows,
        figures,
    }
}
