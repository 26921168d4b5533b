//! `locks`: what compactions hold while they run.

use super::{Figure, Kind, Measure, Row, Scale, Table, X, short};
use crate::run::job::{Act, Load, Order, Step};
use crate::systems::{Durability, Setup};

const ABOUT: &str = "Records of 1 KiB are put in random order and compacted; then as many are put again, over tables of 2 MB: drawn by \
Zipf (0.99), or nine of ten from a hundredth of the keys, or uniformly. What a compaction keeps others from is the whole tree, as \
in LevelDB; a range of keys on all levels; or a range of keys on the levels it reads and writes. Levels grow threefold from \
8 MiB, memory is 16 MiB, memtables are of 2, so that there are five levels or more; no log: what is measured is how fast compactions keep up. The study \
preloaded 10^8 records on 6 cores with an SSD of its own, and does not say how its puts were skewed or by how many threads they \
were made: these are ours, and so is the number of records, a million at the full scale. Where a device is said to be modelled, each call that reads or writes a table takes so much longer, and each \
sync five times that, however many there are at a time: a device of endless depth. RocksDB cannot be slowed down like this; it \
compacts with as many threads, and one that flushes, in as many parts.";

const LOCKS: [(&str, &str); 3] = [
    ("database", "Turbidite, whole tree"),
    ("range", "Turbidite, key range"),
    ("range-level", "Turbidite, key range × level"),
];

/// How puts are drawn.
const LOADS: [(&str, &str, Order); 3] = [
    ("zipf", "Zipf (0.99)", Order::Skewed),
    ("hot", "nine of ten in a hundredth of the keys", Order::Hot),
    ("uniform", "uniform", Order::Uniform),
];

/// What is drawn of each load: the measure, its name in the title, and what to see in it.
const MEASURES: [(Measure, &str, &str); 4] = [
    (
        Measure::SettledPerSecond,
        "until all is compacted",
        "Figure 7 of the study: about 10 % more with ranges × levels than with ranges alone.",
    ),
    (
        Measure::Together,
        "compactions at once",
        "How far compactions run side by side, one in several parts counted once; RocksDB does not tell.",
    ),
    (Measure::WriteAmplification, "writes", "What each byte that is put costs the device."),
    (Measure::DeviceMebibytesPerSecond, "device", "How far the device is used."),
];

/// What a call takes longer on the modelled devices, in microseconds.
const DEVICES: [(&str, u64); 2] = [("fast", 200), ("slow", 2000)];

/// The size of what is put.
#[derive(Clone, Copy)]
struct Puts {
    order: Order,
    records: u32,
    writers: u32,
}

impl Puts {
    fn load(self) -> Load {
        let steps = vec![
            Step::new("fill", Act::Put, Order::Shuffled),
            Step::new("put", Act::Put, self.order).operations(self.records).threads(self.writers),
        ];
        Load { value_size: 1008, latency_run: 1, ..Load::new(self.records, steps) }
    }
}

fn setup(system: &str, threads: u32) -> Setup {
    let setup = Setup::new(system, Durability::None, 16 << 20)
        .with("threads", threads)
        .with("table-size", 2 << 20);
    match system {
        "rocksdb" => setup.with("base", 8 << 20).with("ratio", 3),
        _ => setup.with("policy", "levelled:3"),
    }
}

/// The systems: key, label, setup.
fn systems(threads: u32) -> Vec<(&'static str, &'static str, Setup)> {
    let mut systems = vec![("rocksdb", "RocksDB", setup("rocksdb", threads))];
    systems.extend(ours(threads));
    systems
}

fn ours(threads: u32) -> [(&'static str, &'static str, Setup); 3] {
    LOCKS.map(|(lock, label)| (lock, label, setup("turbidite-lsm", threads).with("lock", lock)))
}

/// Rows and figures as they come to be.
#[derive(Default)]
struct Parts {
    rows: Vec<Row>,
    figures: Vec<Figure>,
}

impl Parts {
    /// Figure 3 of the study.
    fn sizes(&mut self, sizes: &[u32], rounds: u32) {
        let caption = "Figure 3 of the study: fewer keys leave less room for compactions side by side. One writer, Zipf draws, \
                       four threads compact.";
        let measure = Measure::SettledPerSecond;
        let title = "Skewed puts by the size of the key space";
        let mut figure = Figure::new(title, caption, Kind::Lines, "records", measure).log_x();
        for &records in sizes {
            let workload = format!("skewed puts over {} records of 1 KiB", short(records));
            let load = Puts { order: Order::Skewed, records, writers: 1 }.load();
            for (key, label, setup) in systems(4) {
                let id = format!("size-{}/{key}", short(records));
                figure.add(&id, "put", label, X::Number(f64::from(records)));
                self.rows.push(Row::store(id, &workload, label, (setup, load.clone()), rounds));
            }
        }
        self.figures.push(figure);
    }

    /// Figure 7 of the study, for one way of drawing, by threads.
    fn load(&mut self, (load, words): (&str, &str), puts: Puts, threads: &[u32], rounds: u32) {
        let Puts { order, records, writers } = puts;
        let who = if writers == 1 { "one writer".to_owned() } else { format!("{writers} writers") };
        let mut lines = MEASURES.map(|(measure, name, caption)| {
            let title = format!("Puts, {words}, {who}: {name}");
            Figure::new(&title, caption, Kind::Lines, "threads that compact", measure)
        });
        let most = *threads.last().expect("some compact");
        let title = format!("Puts, {words}, {who}: waits, {most} threads");
        let caption =
            "What the locks are for is seen in the slowest puts: those that wait for compactions.";
        let x = "share of puts";
        let mut waits = Figure::new(&title, caption, Kind::Latencies, x, Measure::Microseconds);
        let mut courses = Vec::new();
        for &threads in threads {
            let workload = format!(
                "puts over {} records of 1 KiB, {words}, {who}, compaction threads: {threads}",
                short(records)
            );
            for (key, label, setup) in systems(threads) {
                let id = format!("{load}-{writers}-{threads}/{key}");
                for figure in &mut lines {
                    figure.add(&id, "put", label, X::Number(f64::from(threads)));
                }
                if threads == most {
                    waits.add(&id, "put", label, X::Name(String::new()));
                    let is_drawn = order == Order::Skewed;
                    courses
                        .extend(is_drawn.then(|| course_of(&id, label, (words, &who))).flatten());
                }
                self.rows.push(Row::store(id, &workload, label, (setup, puts.load()), rounds));
            }
        }
        self.figures.extend(lines);
        self.figures.push(waits);
        self.figures.extend(courses);
    }

    /// The same where the device is slower, and how much the locks then matter.
    fn devices(&mut self, records: u32, rounds: u32) {
        let caption = "Calls on tables take 200 µs longer on the fast device, and 2 ms on the slow one. Four writers, four threads \
                       compact, Zipf draws.";
        let measure = Measure::SettledPerSecond;
        let title = "Skewed puts on modelled devices";
        let mut bars = Figure::new(title, caption, Kind::Bars, "device", measure);
        for (device, call) in DEVICES {
            let workload = format!(
                "skewed puts over {} records, a {device} device is modelled",
                short(records)
            );
            let puts = Puts { order: Order::Skewed, records, writers: 4 };
            for (key, label, setup) in ours(4) {
                let id = format!("{device}/{key}");
                bars.add(&id, "put", label, X::Name(device.to_owned()));
                let setup = setup.with("call-us", call);
                self.rows.push(Row::store(id, &workload, label, (setup, puts.load()), rounds));
            }
        }
        self.figures.push(bars);
    }
}

/// The compactions of a row over time, if it is one of the systems that tell of them.
fn course_of(id: &str, label: &str, (words, who): (&str, &str)) -> Option<Figure> {
    if id.ends_with("/rocksdb") {
        return None;
    }
    let lock = label.trim_start_matches("Turbidite, ");
    let title = format!("Puts, {words}, {who}: compactions, {lock}");
    let caption = "Some compactions from the middle of the puts, those that move tables as they are too. Each lane is a level: L0 has \
                   what was flushed last, the lane with the highest number is the deepest level, with most of the data, and levels \
                   between that nothing is kept on have no lane, as a tree begins with its deepest levels. In a lane keys go from \
                   the first, at its bottom, to the last, at its top: what stands above each other at one moment runs side by side.";
    let x = "seconds";
    let mut figure = Figure::new(&title, caption, Kind::Compactions, x, Measure::Together);
    figure.add(id, "put", label, X::Name(String::new()));
    Some(figure)
}

pub(super) fn table(scale: Scale) -> Table {
    let sizes = scale.pick(
        &[2_000][..],
        &[50_000, 100_000, 200_000][..],
        &[250_000, 500_000, 1_000_000, 2_000_000][..],
    );
    let records = scale.pick(2_000, 200_000, 1_000_000);
    let (writers, threads) =
        scale.pick((&[4][..], &[2][..]), (&[1, 4], &[1, 4]), (&[1, 4], &[1, 2, 4]));
    let mut parts = Parts::default();
    parts.sizes(sizes, scale.rounds());
    for (load, words, order) in LOADS {
        for &writers in writers {
            let puts = Puts { order, records, writers };
            parts.load((load, words), puts, threads, scale.rounds());
        }
    }
    // What a slow device takes for a million records is hours.
    parts.devices(records.min(200_000), scale.rounds());
    let Parts { rows, figures } = parts;
    Table {
        name: "locks",
        title: "Compaction locks",
        about: ABOUT,
        sizes: "a million records of 1 KiB in place of the study's 10^8, and 200k on modelled devices",
        rows,
        figures,
    }
}
