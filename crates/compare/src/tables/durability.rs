//! `durability`: what surviving costs, with the parameters of the first study, and more.

use super::{Figure, Kind, Measure, Row, Scale, Table, X, short};
use crate::run::job::{Act, Load, Order, Step};
use crate::systems::{Durability, Setup};

const ABOUT: &str = "Puts of one record each, true shuffle, values of 100 bytes that do not compress, memory of 512 MiB, \
memtables of 64. What a write survives is said in each row. Writers that wait for the device at the same time may share one \
sync, so throughput with syncs grows with them; those that do (RocksDB, Turbidite) are given so many more puts. The study's figures are of an M1 Max: 240 syncs \
a second, and sequential puts of 100k records with and without the log, however many records are put here.";

fn of(system: &str, durability: Durability) -> Setup {
    Setup::new(system, durability, 512 << 20)
}

/// One writer, every durability.
fn levels(scale: Scale) -> (Vec<Row>, Figure) {
    let records = scale.pick(1_000, 100_000, 1_000_000);
    let workload = format!("one writer, {} records, sequential", short(records));
    let caption = "The diamonds are the study's, of 100k sequential puts: 352.67 ms with the log and 80.02 ms without; and 256.09 \
                   and 67.95 ms without and with the log held back.";
    let mut figure = Figure::new(
        "One writer, sequential",
        caption,
        Kind::Bars,
        "",
        Measure::OperationsPerSecond,
    )
    .log();
    let mut rows = Vec::new();
    let rocks = |durability| of("rocksdb", durability);
    let compacting = rocks(Durability::Os).with("auto-compactions", false);
    let alone = rocks(Durability::Os).with("concurrent-memtable-writes", false);
    let systems = [
        ("rocksdb-none", "RocksDB, no log", rocks(Durability::None), Some(100e3 / 0.08002)),
        (
            "rocksdb-manual",
            "RocksDB, log held back",
            rocks(Durability::Manual),
            Some(100e3 / 0.06795),
        ),
        ("rocksdb-os", "RocksDB, log", rocks(Durability::Os), Some(100e3 / 0.35267)),
        ("rocksdb-no-compaction", "RocksDB, log, no compactions", compacting, None),
        ("rocksdb-one-writer", "RocksDB, log, memtable of one writer", alone, None),
        ("fjall-manual", "fjall, log held back", of("fjall", Durability::Manual), None),
        ("fjall-os", "fjall, log", of("fjall", Durability::Os), None),
        ("turbidite-none", "Turbidite LSM, no log", of("turbidite-lsm", Durability::None), None),
        (
            "turbidite-manual",
            "Turbidite LSM, log held back",
            of("turbidite-lsm", Durability::Manual),
            None,
        ),
        ("turbidite-os", "Turbidite LSM, log", of("turbidite-lsm", Durability::Os), None),
    ];
    for (key, label, setup, seed) in systems {
        let id = format!("one/{key}");
        figure.add(&id, "put", label, X::Name(String::new()));
        let load = Load::new(records, vec![Step::new("put", Act::Put, Order::Sequential)]);
        let row = Row::store(id, &workload, label, (setup, load), scale.rounds());
        rows.push(match seed {
            Some(figure) => row.seed("put", figure),
            None => row,
        });
    }
    (rows, figure)
}

/// One to 64 writers that sync every put.
fn grouped(scale: Scale) -> (Vec<Row>, Figure) {
    let writers = scale.pick(&[1, 2][..], &[1, 4, 16, 64][..], &[1, 2, 4, 8, 16, 32, 64][..]);
    let each = scale.pick(20, 1_000, 5_000);
    let caption = "Each put is on the device when the call returns. The study has about 240 a second with one writer.";
    let mut figure = Figure::new(
        "Synced puts by the number of writers",
        caption,
        Kind::Lines,
        "writers",
        Measure::OperationsPerSecond,
    )
    .log()
    .log_x();
    let systems = [
        ("rocksdb", "RocksDB", of("rocksdb", Durability::Sync)),
        ("fjall", "fjall", of("fjall", Durability::Sync)),
        ("redb", "redb", of("redb", Durability::Sync)),
        ("lmdb", "LMDB", of("lmdb", Durability::Sync)),
        ("turbidite", "Turbidite LSM", of("turbidite-lsm", Durability::Sync)),
        (
            "fdatasync",
            "One file, fdatasync each",
            of("file", Durability::Sync).with("mode", "fdatasync"),
        ),
        ("o-sync", "One file, O_SYNC", of("file", Durability::Sync).with("mode", "o-sync")),
    ];
    let mut rows = Vec::new();
    for &count in writers {
        let workload = format!("synced, {count} writers");
        for (key, label, setup) in &systems {
            let id = format!("sync-{count}/{key}");
            figure.add(&id, "put", label, X::Number(f64::from(count)));
            // Stores whose writers take turns get no faster with more of them: they need no more puts.
            let shares = matches!(*key, "rocksdb" | "turbidite");
            let records = each * if shares { count } else { 1 };
            let step = Step::new("put", Act::Put, Order::Shuffled).threads(count);
            let load = Load { latency_run: 1, ..Load::new(records.max(count), vec![step]) };
            let row = Row::store(id, &workload, label, (setup.clone(), load), scale.rounds());
            let is_seed = count == 1 && *key == "rocksdb";
            rows.push(if is_seed { row.seed("put", 240.0) } else { row });
        }
    }
    (rows, figure)
}

pub(super) fn table(scale: Scale) -> Table {
    let (mut rows, first) = levels(scale);
    let (synced, second) = grouped(scale);
    rows.extend(synced);
    Table {
        name: "durability",
        title: "Durability",
        about: ABOUT,
        sizes: "with one writer a million records in place of the study's 100k",
        rows,
        figures: vec![first, second],
    }
}
