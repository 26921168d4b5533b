//! `write-path`: the study of LSM write paths.

use super::{Figure, Kind, Measure, Row, Scale, Table, X, short};
use crate::run::job::{Act, Inside, Keys, Load, Order, Step};
use crate::systems::{Durability, Setup};

const ABOUT: &str = "Puts of one thread, keys of 16 digits, values of 100 bytes, memtables of 64 MiB. The study's clock has more \
in it than puts: making keys, copying values, closing, and removing the files; its values are one byte repeated, and what it \
calls random is an order in which 61 % of neighbours ascend. Those runs are here as they were; the others count puts only, in \
a true shuffle, with values that do not compress. RocksDB is set up as in the study, which turned its automatic compactions off: it \
only flushes, where fjall and Turbidite compact beside the puts. The Vec log never sorts and cannot be read; Turbidite and the others can be \
read at any time.";

/// What is put, in which order, and what the clock has in it.
struct Workload {
    id: &'static str,
    name: &'static str,
    order: Order,
    entropy: f64,
    inside: Inside,
}

const WORKLOADS: [Workload; 7] = [
    Workload {
        id: "study-random",
        name: "as the study, random",
        order: Order::Study,
        entropy: 0.0,
        inside: Inside::Study,
    },
    Workload {
        id: "study-sequential",
        name: "as the study, sequential",
        order: Order::Sequential,
        entropy: 0.0,
        inside: Inside::Study,
    },
    Workload {
        id: "shuffled",
        name: "true shuffle",
        order: Order::Shuffled,
        entropy: 1.0,
        inside: Inside::Nothing,
    },
    Workload {
        id: "sequential",
        name: "sequential",
        order: Order::Sequential,
        entropy: 1.0,
        inside: Inside::Nothing,
    },
    Workload {
        id: "study-order",
        name: "the study's order",
        order: Order::Study,
        entropy: 1.0,
        inside: Inside::Nothing,
    },
    Workload {
        id: "constant",
        name: "true shuffle, values that compress",
        order: Order::Shuffled,
        entropy: 0.0,
        inside: Inside::Nothing,
    },
    Workload {
        id: "formatted",
        name: "true shuffle, keys made inside the clock",
        order: Order::Shuffled,
        entropy: 1.0,
        inside: Inside::Formatting,
    },
];

/// The systems, each with what it is called and how it is set up.
fn systems() -> Vec<(&'static str, &'static str, Setup)> {
    let of = |system: &str, durability| Setup::new(system, durability, 512 << 20);
    let rocks =
        |durability| of("rocksdb", durability).with("buffers", 3).with("auto-compactions", false);
    let ours = |durability| of("turbidite-lsm", durability);
    vec![
        ("rocksdb-wal", "RocksDB, log", rocks(Durability::Os)),
        ("rocksdb-manual", "RocksDB, log held back", rocks(Durability::Manual)),
        ("rocksdb-none", "RocksDB, no log", rocks(Durability::None)),
        (
            "rocksdb-vector",
            "RocksDB, no log, vector",
            rocks(Durability::None).with("memtable", "vector"),
        ),
        ("fjall", "fjall", of("fjall", Durability::Os)),
        ("vec-log", "Vec log", of("vec-log", Durability::None)),
        ("skipmap-log", "SkipMap log", of("skipmap-log", Durability::None)),
        ("turbidite-os", "Turbidite LSM, log", ours(Durability::Os)),
        ("turbidite-manual", "Turbidite LSM, log held back", ours(Durability::Manual)),
        ("turbidite-none", "Turbidite LSM, no log", ours(Durability::None)),
        (
            "turbidite-vector",
            "Turbidite LSM, no log, vector",
            ours(Durability::None).with("memtable", "vector"),
        ),
        (
            "turbidite-skiplist",
            "Turbidite LSM, no log, skip list",
            ours(Durability::None).with("memtable", "skiplist"),
        ),
    ]
}

/// The study's figures on an M1 Max, in operations per second, for 100k, 600k and 3M records.
fn seed(workload: &str, system: &str, records: u32) -> Option<f64> {
    let column = [100_000, 600_000, 3_000_000].iter().position(|&known| known == records)?;
    let figures = match (workload, system) {
        ("study-random", "rocksdb-wal") => [220_126.0, 194_175.0, 190_596.0],
        ("study-random", "rocksdb-none") => [714_655.0, 570_545.0, 635_158.0],
        ("study-sequential", "rocksdb-none") => [1.15e6, 1.56e6, 1.88e6],
        ("study-random", "vec-log") => [3_216_844.0, 3_118_997.0, 4_079_638.0],
        ("study-sequential", "vec-log") => [3.17e6, 3.16e6, 4.08e6],
        ("study-random", "skipmap-log") => [862e3, 480e3, 635e3],
        ("study-sequential", "skipmap-log") => [1.58e6, 1.54e6, 1.99e6],
        _ => return None,
    };
    Some(figures[column])
}

fn row(workload: &Workload, system: (&str, &str, Setup), records: u32, scale: Scale) -> Row {
    let (key, label, setup) = system;
    let load = Load {
        entropy: workload.entropy,
        inside: workload.inside,
        ..Load::new(records, vec![Step::new("put", Act::Put, workload.order)])
    };
    let id = format!("{}-{}/{key}", workload.id, short(records));
    let name = format!("{}, {} records", workload.name, short(records));
    let row = Row::store(id, &name, label, (setup, load), scale.rounds());
    match seed(workload.id, key, records) {
        Some(figure) => row.seed("put", figure),
        None => row,
    }
}

/// RocksDB's own bulk load, which the study compares its figures with, and the same of the others.
fn bulk(scale: Scale) -> Vec<Row> {
    let records = scale.pick(2_000, 600_000, 5_000_000);
    let name = format!("bulk load as in RocksDB's wiki, {} records", short(records));
    let of = |system: &str| Setup::new(system, Durability::None, 1 << 30);
    let rocks =
        of("rocksdb").with("buffers", 8).with("memtable", "vector").with("auto-compactions", false);
    let ours = of("turbidite-lsm");
    let systems = [
        ("rocksdb-vector", "RocksDB, no log, vector", rocks),
        (
            "turbidite-vector",
            "Turbidite LSM, no log, vector",
            ours.clone().with("memtable", "vector"),
        ),
        ("turbidite-none", "Turbidite LSM, no log", ours),
    ];
    let row = |(key, label, setup): (&str, &str, Setup)| {
        let load = Load {
            keys: Keys::Digits(20),
            value_size: 400,
            ..Load::new(records, vec![Step::new("put", Act::Put, Order::Shuffled)])
        };
        let row = Row::store(format!("bulk/{key}"), &name, label, (setup, load), scale.rounds());
        if key == "rocksdb-vector" { row.seed("put", 1_003_732.0) } else { row }
    };
    systems.into_iter().map(row).collect()
}

pub(super) fn table(scale: Scale) -> Table {
    let sizes = scale.pick(&[2_000][..], &[600_000][..], &[100_000, 600_000, 3_000_000][..]);
    let largest = *sizes.last().expect("there are sizes");
    let mut rows = Vec::new();
    for workload in &WORKLOADS {
        for &records in sizes {
            let systems = systems().into_iter();
            rows.extend(systems.map(|system| row(workload, system, records, scale)));
        }
    }
    rows.extend(bulk(scale));
    let mut figures = vec![chart(largest)];
    figures.extend(WORKLOADS.iter().map(|workload| bars(workload, largest)));
    if sizes.len() > 1 {
        figures.push(growth(sizes));
    }
    Table {
        name: "write-path",
        title: "The write path",
        about: ABOUT,
        sizes: "the sizes of the study; of the bulk load 5M records",
        rows,
        figures,
    }
}

/// The study's bar chart.
fn chart(records: u32) -> Figure {
    let caption = "The study's bar chart: random puts, with the study's clock, order and values. The marks are its own figures, \
                   on an M1 Max.";
    let mut figure =
        Figure::new("The study's chart", caption, Kind::Bars, "", Measure::OperationsPerSecond);
    for (key, label) in [
        ("rocksdb-wal", "RocksDB default"),
        ("rocksdb-none", "RocksDB (no log)"),
        ("vec-log", "Vec log"),
        ("skipmap-log", "SkipMap log"),
        ("turbidite-os", "Turbidite LSM, log"),
        ("turbidite-none", "Turbidite LSM (no log)"),
    ] {
        let row = format!("study-random-{}/{key}", short(records));
        figure.add(&row, "put", label, X::Name(format!("{} records", short(records))));
    }
    figure
}

fn bars(workload: &Workload, records: u32) -> Figure {
    let title = format!("Puts, {}, {} records", workload.name, short(records));
    let mut figure = Figure::new(&title, "", Kind::Bars, "", Measure::OperationsPerSecond).log();
    for (key, label, _) in systems() {
        let row = format!("{}-{}/{key}", workload.id, short(records));
        figure.add(&row, "put", label, X::Name(String::new()));
    }
    figure
}

fn growth(sizes: &[u32]) -> Figure {
    let caption = "100k records fit in one memtable, 600k fill one, 3M fill five.";
    let mut figure = Figure::new(
        "Puts as data grow, true shuffle",
        caption,
        Kind::Lines,
        "records",
        Measure::OperationsPerSecond,
    )
    .log()
    .log_x();
    for (key, label, _) in systems() {
        for &records in sizes {
            let row = format!("shuffled-{}/{key}", short(records));
            figure.add(&row, "put", label, X::Number(f64::from(records)));
        }
    }
    figure
}
