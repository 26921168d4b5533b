//! `raw`: structures and files by themselves.

use super::{Figure, Kind, Measure, Row, Scale, Table, X, short};
use crate::run::job::{Act, Load, Order, Step};
use crate::systems::{Durability, Setup};

const ABOUT: &str = "What a put costs when all but one part is taken away: structures in memory, and records written to one \
file. Turbidite's memtables have no log and are as large as \
they get, 128 MiB: at 3M records some are frozen, and written to files beside the puts. What else a put does there, \
numbering, checking and publishing, is still done. Keys of 16 digits, values of 100 bytes, keys made before the clock starts.";

fn memory() -> Vec<(&'static str, &'static str, Setup)> {
    let ours =
        |kind: &str| Setup::new("turbidite-lsm", Durability::None, 8 << 30).with("memtable", kind);
    let raw = |system: &str| Setup::new(system, Durability::None, 0);
    vec![
        ("vec", "Vec", raw("vec")),
        ("skipmap", "SkipMap", raw("skipmap")),
        ("tagged", "Turbidite memtable, tagged", ours("tagged")),
        ("skiplist", "Turbidite memtable, skip list", ours("skiplist")),
        ("vector", "Turbidite memtable, vector", ours("vector")),
        ("hash-skiplist", "Turbidite memtable, hash skip list", ours("hash-skiplist:14")),
        ("hash-linklist", "Turbidite memtable, hash linked list", ours("hash-linklist:15")),
    ]
}

const FILES: [(&str, &str); 6] = [
    ("write", "One file, write()"),
    ("pwrite", "One file, pwrite()"),
    ("buffered", "One file, 8 KiB buffer"),
    ("sync-at-end", "One file, fsync at the end"),
    ("fdatasync", "One file, fdatasync each"),
    ("o-sync", "One file, O_SYNC"),
];

/// The study's figures in operations per second: of MiB/s those with 116 bytes to a record.
fn seed(order: Order, key: &str, records: u32) -> Option<f64> {
    let mebibytes = match (order, key, records) {
        (Order::Shuffled, "vec", 100_000) => 579.0,
        (Order::Shuffled, "vec", 600_000) => 541.0,
        (Order::Shuffled, "vec", 3_000_000) => 483.0,
        (Order::Shuffled, "skipmap", 3_000_000) => 42.0,
        (Order::Sequential, "skipmap", 3_000_000) => 265.0,
        _ => return None,
    };
    Some(mebibytes * f64::from(1 << 20) / 116.0)
}

fn file_seed(mode: &str, records: u32) -> Option<f64> {
    Some(match (mode, records) {
        ("pwrite", 100_000) => 305e3,
        ("pwrite", 600_000) => 296e3,
        ("pwrite", 3_000_000) => 279e3,
        ("o-sync", _) => 19_455.0,
        ("sync-at-end", _) => 274_830.0,
        _ => return None,
    })
}

pub(super) fn table(scale: Scale) -> Table {
    let sizes = scale.pick(&[2_000][..], &[600_000][..], &[100_000, 600_000, 3_000_000][..]);
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    let steps = |order| vec![Step::new("put", Act::Put, order)];
    for (order, name) in [(Order::Shuffled, "true shuffle"), (Order::Sequential, "sequential")] {
        for &records in sizes {
            let workload = format!("memory, {name}, {} records", short(records));
            let mut figure = Figure::new(
                &format!("In memory, {name}, {} records", short(records)),
                "",
                Kind::Bars,
                "",
                Measure::MebibytesPerSecond,
            )
            .log();
            for (key, label, setup) in memory() {
                let id = format!("{}-{}/{key}", name.replace(' ', "-"), short(records));
                figure.add(&id, "put", label, X::Name(String::new()));
                let load = Load::new(records, steps(order));
                let row = Row::store(id, &workload, label, (setup, load), scale.rounds());
                rows.push(match seed(order, key, records) {
                    Some(figure) => row.seed("put", figure),
                    None => row,
                });
            }
            figures.push(figure);
        }
    }
    for &records in sizes {
        let workload = format!("one file, {} records", short(records));
        let caption = "With a sync for each record, fewer records are written. The study's figures with syncs are of 100k records.";
        let mut figure = Figure::new(
            &format!("One file, {} records", short(records)),
            caption,
            Kind::Bars,
            "",
            Measure::OperationsPerSecond,
        )
        .log();
        for (mode, label) in FILES {
            let syncs = matches!(mode, "fdatasync" | "o-sync");
            let count = if syncs { records.min(scale.pick(50, 3_000, 20_000)) } else { records };
            let id = format!("file-{}/{mode}", short(records));
            figure.add(&id, "put", label, X::Name(String::new()));
            let setup = Setup::new("file", Durability::Os, 0).with("mode", mode);
            let step = Step::new("put", Act::Put, Order::Sequential);
            let step = if mode == "sync-at-end" { step.persists() } else { step };
            let row = Row::store(
                id,
                &workload,
                label,
                (setup, Load::new(count, vec![step])),
                scale.rounds(),
            );
            rows.push(match file_seed(mode, records) {
                Some(figure) => row.seed("put", figure),
                None => row,
            });
        }
        figures.push(figure);
    }
    Table {
        name: "raw",
        title: "Raw structures and files",
        about: ABOUT,
        sizes: "the sizes of the study, but 20k records with a sync for each in place of 100k",
        rows,
        figures,
    }
}
