//! `peers`: what one would pick instead.

use super::{Figure, Kind, Measure, Row, Scale, Table, X, short};
use crate::run::job::{Act, Load, Mix, Order, Step};
use crate::systems::{Durability, Setup};

const ABOUT: &str = "Keys of 16 digits, values of 100 bytes that do not compress, true shuffle, one thread, keys made before the \
clock starts, answers checked. Every store has 512 MiB of memory; LMDB has none of its own and uses the system's. Reads come \
after everything has settled. LMDB and redb read all of a step in one transaction; they write 1000 records in each, and \
Turbidite's B+ tree is measured that way too. The mixes are YCSB's, with Zipf draws (0.99), each operation by itself: in them \
LMDB and redb have a transaction for each read and each write.";

const MIXES: [(&str, Mix); 6] = [
    ("YCSB A", Mix::A),
    ("YCSB B", Mix::B),
    ("YCSB C", Mix::C),
    ("YCSB D", Mix::D),
    ("YCSB E", Mix::E),
    ("YCSB F", Mix::F),
];

/// A system and how many records one of its transactions writes.
fn systems() -> Vec<(&'static str, &'static str, Setup, u32)> {
    let of = |system: &str, durability| Setup::new(system, durability, 512 << 20);
    let ours = |system: &str| of(system, Durability::Os);
    vec![
        ("rocksdb", "RocksDB", of("rocksdb", Durability::Os), 1),
        ("fjall", "fjall", of("fjall", Durability::Os), 1),
        ("turbidite-lsm", "Turbidite LSM", ours("turbidite-lsm"), 1),
        ("turbidite-hash", "Turbidite hash", ours("turbidite-hash"), 1),
        ("turbidite-btree", "Turbidite B+ tree", ours("turbidite-btree"), 1),
        ("redb", "redb, 1000 a transaction", of("redb", Durability::Os), 1000),
        ("lmdb", "LMDB, 1000 a transaction", of("lmdb", Durability::Os), 1000),
        (
            "turbidite-btree-1000",
            "Turbidite B+ tree, mapped, 1000 a batch",
            ours("turbidite-btree").with("layer", "mmap"),
            1000,
        ),
    ]
}

fn steps(batch: u32, ordered: bool, operations: u32) -> Vec<Step> {
    let mut steps = vec![
        Step::new("put", Act::Put, Order::Shuffled).batch(batch),
        Step::new("get", Act::Get, Order::Shuffled),
        Step::new("get again", Act::Get, Order::Shuffled),
        Step::new("miss", Act::Miss, Order::Shuffled),
    ];
    if ordered {
        steps.push(Step::new("scan", Act::Scan, Order::Sequential));
        steps.push(Step::new("reverse scan", Act::Reverse, Order::Sequential));
    }
    steps.push(Step::new("overwrite", Act::Put, Order::Shuffled).batch(batch));
    for (name, mix) in MIXES {
        if ordered || mix != Mix::E {
            steps.push(Step::new(name, Act::Ycsb(mix), Order::Skewed).operations(operations));
        }
    }
    steps.push(Step::new("delete", Act::Delete, Order::Shuffled).batch(batch));
    steps
}

pub(super) fn table(scale: Scale) -> Table {
    let records = scale.pick(2_000, 300_000, 3_000_000);
    let operations = scale.pick(300, 100_000, 1_000_000);
    let workload = format!("{} records", short(records));
    let figure = |title: &str, measure| Figure::new(title, "", Kind::Bars, "", measure);
    let mut basic = figure("Puts, gets and scans", Measure::OperationsPerSecond).log();
    let mut mixes = figure("The mixes of YCSB", Measure::OperationsPerSecond).log();
    let mut space = figure("Space", Measure::SpaceAmplification);
    let mut written = figure("Written", Measure::WriteAmplification);
    let mut memory = figure("Memory", Measure::Resident);
    let tails = |title: &str| {
        Figure::new(title, "", Kind::Latencies, "share of operations", Measure::Microseconds)
    };
    let (mut puts, mut gets) = (tails("How long puts take"), tails("How long gets take"));
    let mut rows = Vec::new();
    let basics = ["put", "get", "get again", "miss", "scan", "reverse scan", "overwrite", "delete"];
    for (key, label, setup, batch) in systems() {
        let ordered = setup.system != "turbidite-hash";
        let steps = steps(batch, ordered, operations);
        for step in &steps {
            let x = X::Name(step.name.clone());
            let figure = if basics.contains(&step.name.as_str()) { &mut basic } else { &mut mixes };
            figure.add(key, &step.name, label, x);
        }
        space.add(key, "overwrite", label, X::Name("after overwriting everything".to_owned()));
        written.add(key, "put", label, X::Name("puts".to_owned()));
        written.add(key, "overwrite", label, X::Name("overwrites".to_owned()));
        memory.add(key, "get again", label, X::Name(String::new()));
        puts.add(key, "put", label, X::Name(String::new()));
        gets.add(key, "get again", label, X::Name(String::new()));
        let load = Load { latency_run: 1, ..Load::new(records, steps) };
        rows.push(Row::store(key.to_owned(), &workload, label, (setup, load), scale.rounds()));
    }
    Table {
        name: "peers",
        title: "What one would pick instead",
        about: ABOUT,
        sizes: "3M records; there is no study of it",
        rows,
        figures: vec![basic, mixes, space, written, memory, puts, gets],
    }
}
