//! `scale`: how cost, memory, space and the time to open grow with the data.

use super::{Figure, Kind, Measure, Row, Scale, Table, X, short};
use crate::run::job::{Act, Load, Order, Step};
use crate::systems::{Durability, Setup};

const ABOUT: &str = "Keys of 16 digits, values of 100 bytes that do not compress, true shuffle, 512 MiB of memory, so that the larger \
sizes are many times what the caches of the stores hold. The cache of the system is besides: where memory has room for all files, \
what a store has not in memory costs it a call or a mapped page, and seldom a read of the device. What is put survives a kill. LMDB and redb write 1000 records in a transaction; LMDB \
through its mapping and, beside that, by calls. Gets and misses are at most a million.";

fn systems() -> Vec<(&'static str, &'static str, Setup, u32)> {
    let of = |system: &str| Setup::new(system, Durability::Os, 512 << 20);
    vec![
        ("rocksdb", "RocksDB", of("rocksdb"), 1),
        ("fjall", "fjall", of("fjall"), 1),
        ("redb", "redb", of("redb"), 1000),
        ("lmdb", "LMDB", of("lmdb"), 1000),
        ("lmdb-calls", "LMDB, written by calls", of("lmdb").with("write-map", false), 1000),
        ("turbidite-lsm", "Turbidite LSM", of("turbidite-lsm"), 1),
        ("turbidite-hash", "Turbidite hash", of("turbidite-hash"), 1),
        ("turbidite-btree", "Turbidite B+ tree", of("turbidite-btree"), 1),
        ("turbidite-skip", "Turbidite skip", of("turbidite-skip"), 1),
    ]
}

pub(super) fn table(scale: Scale) -> Table {
    let sizes = scale.pick(
        &[1_000, 2_000][..],
        &[100_000, 300_000, 1_000_000][..],
        &[1_000_000, 3_000_000, 10_000_000, 50_000_000][..],
    );
    let figure = |title: &str, measure| {
        Figure::new(title, "", Kind::Lines, "records", measure).log_x().log()
    };
    let mut figures = [
        ("put", figure("Puts", Measure::Microseconds)),
        ("get", figure("Gets", Measure::Microseconds)),
        ("miss", figure("Gets of what is not there", Measure::Microseconds)),
        ("scan", figure("Scans", Measure::Microseconds)),
        ("get", figure("Memory", Measure::Resident)),
        ("put", figure("Space", Measure::SpaceAmplification)),
        ("put", figure("Written", Measure::WriteAmplification)),
        ("open", figure("Time to open", Measure::Seconds)),
    ];
    let mut rows = Vec::new();
    for &records in sizes {
        let workload = format!("{} records", short(records));
        for (key, label, setup, batch) in systems() {
            let reads = records.min(1_000_000);
            let mut steps = vec![
                Step::new("put", Act::Put, Order::Shuffled).batch(batch),
                Step::new("open", Act::Reopen, Order::Sequential),
                Step::new("get", Act::Get, Order::Shuffled).operations(reads),
                Step::new("miss", Act::Miss, Order::Shuffled).operations(reads),
            ];
            if setup.system != "turbidite-hash" {
                steps.push(Step::new("scan", Act::Scan, Order::Sequential));
            }
            let id = format!("{}/{key}", short(records));
            for (step, figure) in &mut figures {
                if steps.iter().any(|known| known.name == *step) {
                    figure.add(&id, step, label, X::Number(f64::from(records)));
                }
            }
            let load = Load::new(records, steps);
            let rounds = scale.rounds().min(3);
            rows.push(Row::store(id, &workload, label, (setup, load), rounds));
        }
    }
    let figures = figures.into_iter().map(|(_, figure)| figure).collect();
    Table {
        name: "scale",
        title: "How it grows",
        about: ABOUT,
        sizes: "1M to 50M records; there is no study of it",
        rows,
        figures,
    }
}
