//! `locks`: what compactions hold while they run (seed 002).

use super::{Figure, Kind, Measure, Row, Scale, Table, X, short};
use crate::run::job::{Act, Load, Order, Step};
use crate::systems::{Durability, Setup};

const ABOUT: &str = "Records of 1 KiB are put in random order, then put again, skewed (Zipf, 0.99, one writer, as many puts as \
records), while compactions run on 4 threads over tables of 2 MB. What a compaction keeps others from is the whole tree, as \
in LevelDB; a range of keys on all levels; or a range of keys on the levels it reads and writes. The study preloaded 10^8 \
records on 6 cores with an SSD of its own, and does not say how its puts were skewed or by how many threads they were made: \
these are ours. Memory of 64 MiB, memtables of 8, no log: what is measured is how fast compactions keep up.";

const LOCKS: [(&str, &str); 3] = [
    ("database", "Turbidite, whole tree"),
    ("range", "Turbidite, key range"),
    ("range-level", "Turbidite, key range × level"),
];

fn load(records: u32) -> Load {
    let steps = vec![
        Step::new("fill", Act::Put, Order::Shuffled),
        Step::new("put", Act::Put, Order::Skewed),
    ];
    Load { value_size: 1008, latency_run: 1, ..Load::new(records, steps) }
}

pub(super) fn table(scale: Scale) -> Table {
    let sizes = scale.pick(
        &[2_000][..],
        &[50_000, 100_000, 200_000][..],
        &[250_000, 500_000, 1_000_000, 2_000_000][..],
    );
    let caption = "Figure 3 of the study: fewer keys leave less room for compactions side by side.";
    let mut by_size = Figure::new(
        "Skewed puts by the size of the key space",
        caption,
        Kind::Lines,
        "records",
        Measure::OperationsPerSecond,
    )
    .log_x();
    let largest = *sizes.last().expect("there are sizes");
    let caption =
        "Figure 7 of the study: about 10 % more with ranges × levels than with ranges alone.";
    let title = format!("Skewed puts, {} records", short(largest));
    let mut last = Figure::new(&title, caption, Kind::Bars, "", Measure::OperationsPerSecond);
    let mut stalls = Figure::new(
        "How long skewed puts take",
        "What the locks are for is seen in the slowest puts: those that wait for compactions.",
        Kind::Latencies,
        "share of puts",
        Measure::Microseconds,
    );
    let mut rows = Vec::new();
    for &records in sizes {
        let workload = format!("skewed puts over {} records of 1 KiB", short(records));
        let setup = |system: &str| {
            Setup::new(system, Durability::None, 64 << 20)
                .with("threads", 4)
                .with("table-size", 2 << 20)
        };
        let mut systems = vec![("rocksdb", "RocksDB", setup("rocksdb"))];
        systems.extend(
            LOCKS.map(|(lock, label)| (lock, label, setup("turbidite-lsm").with("lock", lock))),
        );
        for (key, label, setup) in systems {
            let id = format!("{}/{key}", short(records));
            by_size.add(&id, "put", label, X::Number(f64::from(records)));
            if records == largest {
                last.add(&id, "put", label, X::Name(String::new()));
                stalls.add(&id, "put", label, X::Name(String::new()));
            }
            rows.push(Row::store(id, &workload, label, (setup, load(records)), scale.rounds()));
        }
    }
    Table {
        name: "locks",
        title: "Compaction locks (seed 002)",
        about: ABOUT,
        rows,
        figures: vec![by_size, last, stalls],
    }
}
