//! `files`: databases by file classes.

use super::{Figure, Kind, Measure, Row, Scale, Table, X, short};
use crate::run::job::{Act, Inside, Job, Keys, Load, Order, Step};
use crate::systems::{Durability, Setup};

const ABOUT: &str = "Tkrzw's study: as many sets as there are keys, drawn at random with replacement, so that 63 % are new; then as \
many gets, of which 37 % find nothing; keys of 8 digits, values of 100 bytes, one thread, no log, no sync by the user. Both \
sides make keys of numbers inside the clock; Tkrzw draws the numbers there, too, and Turbidite's gets copy the value, which Tkrzw's do not. Turbidite's sets include having all in the files of the engine, synced: Tkrzw's include a \
soft synchronisation. Both are closed and opened before the gets. Page caches have 256 pages on both sides; besides these \
Turbidite's engines have 64 MiB for all that they hold, memtables, indexes and caches of their own, and Tkrzw takes what its tool takes. \
The batched gets are multi_get with 32 keys made before the clock starts, for which Tkrzw's tool has no match. Runs on direct I/O have a \
tenth of the records at the quick scale, as it is slow: of so few caches on both sides hold much, so that they say less than the \
study's million.";

const PAGES: u32 = 256;

/// An engine: what it is called, how it is set up on both sides, and the block of its study.
struct Engine {
    key: &'static str,
    title: &'static str,
    system: &'static str,
    options: &'static [(&'static str, &'static str)],
    file: &'static str,
    arguments: &'static [&'static str],
    block: u32,
    seeds: [(f64, f64); 6],
}

const ENGINES: [Engine; 3] = [
    Engine {
        key: "hash",
        title: "Hash",
        system: "turbidite-hash",
        options: &[],
        file: "casket.tkh",
        arguments: &["--align_pow", "7"],
        block: 512,
        seeds: [
            (1_118_605.0, 1_261_031.0),
            (490_103.0, 793_348.0),
            (324_885.0, 728_326.0),
            (445_521.0, 610_674.0),
            (5_323.0, 12_769.0),
            (15_543.0, 12_500.0),
        ],
    },
    Engine {
        key: "tree",
        title: "Tree",
        system: "turbidite-btree",
        options: &[("cached-pages", "1000")],
        file: "casket.tkt",
        arguments: &["--max_page_size", "4060", "--max_cached_pages", "1000"],
        block: 1024,
        seeds: [
            (123_094.0, 178_123.0),
            (73_805.0, 126_449.0),
            (77_207.0, 132_956.0),
            (47_112.0, 97_567.0),
            (1_895.0, 4_140.0),
            (1_326.0, 2_657.0),
        ],
    },
    Engine {
        key: "skip",
        title: "Skip",
        system: "turbidite-skip",
        options: &[("step", "16"), ("levels", "5")],
        file: "casket.tks",
        arguments: &["--step_unit", "16", "--max_level", "5"],
        block: 1024,
        seeds: [
            (399_456.0, 210_161.0),
            (264_601.0, 103_596.0),
            (211_099.0, 93_662.0),
            (313_009.0, 142_370.0),
            (4_935.0, 1_169.0),
            (115_116.0, 5_194.0),
        ],
    },
];

const LAYERS: [&str; 6] =
    ["mmap", "pos", "pos-block", "pos-block-cache", "pos-direct", "pos-direct-cache"];

/// How many records: at the full scale the study's million.
fn records(layer: &str, scale: Scale) -> u32 {
    let direct = layer.starts_with("pos-direct");
    scale.pick(2_000, if direct { 20_000 } else { 200_000 }, 1_000_000)
}

/// The block of a layer over a Turbidite engine: B+ trees have pages of 4 KiB, which blocks must not be larger than.
fn ours(engine: &Engine, layer: &str, scale: Scale) -> (Setup, Load) {
    let mut setup = Setup::new(engine.system, Durability::None, 64 << 20).with("layer", layer);
    for (name, value) in engine.options {
        setup = setup.with(name, value);
    }
    if layer.contains("block") || layer.contains("direct") {
        setup = setup.with("block", engine.block);
    }
    if layer.ends_with("cache") {
        setup = setup.with("pages", PAGES);
    }
    let steps = vec![
        Step::new("set", Act::Put, Order::Replaced).persists(),
        Step::new("reopen", Act::Reopen, Order::Sequential),
        Step::new("get", Act::Get, Order::Replaced),
        Step::new("get 32", Act::Get, Order::Replaced).batch(32),
    ];
    let load = Load {
        keys: Keys::Digits(8),
        entropy: 0.0,
        inside: Inside::Formatting,
        ..Load::new(records(layer, scale), steps)
    };
    (setup, load)
}

/// Tkrzw's arguments as its study had them, but for the number of records, by which its buckets go.
fn theirs(engine: &Engine, layer: &str, scale: Scale) -> Job {
    let count = records(layer, scale);
    let file = if layer == "mmap" { "mmap-para" } else { "pos-para" };
    let mut arguments: Vec<String> = [
        "--set_only",
        "--get_only",
        "--file",
        file,
        "--random_seed",
        "-1",
        "--random_key",
        "--size",
        "100",
        "--iter",
    ]
    .map(str::to_owned)
    .into();
    arguments.push(count.to_string());
    arguments.extend(engine.arguments.iter().map(|&argument| argument.to_owned()));
    let mut add = |names: &[&str]| arguments.extend(names.iter().map(|&name| name.to_owned()));
    if engine.key == "hash" {
        add(&["--buckets", &(2 * count).to_string()]);
    }
    let blocks = layer.contains("block") || layer.contains("direct");
    // The study's tree had its buckets cached in blocks only.
    if layer != "mmap" && (engine.key == "hash" || engine.key == "tree" && blocks) {
        add(&["--cache_buckets"]);
    }
    if blocks {
        add(&["--block_size", &engine.block.to_string(), "--padding"]);
    }
    if layer.contains("direct") {
        add(&["--direct_io"]);
    }
    if layer.ends_with("cache") {
        add(&["--pagecache"]);
    }
    Job::Tkrzw { file: engine.file.to_owned(), arguments }
}

pub(super) fn table(scale: Scale) -> Table {
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for engine in &ENGINES {
        let caption = "Bars of six file configurations; the marks are the study's own figures, on an i7 at 1.8 GHz with NVMe.";
        let figure = |what: &str| {
            let title = format!("{}: {what}", engine.title);
            Figure::new(&title, caption, Kind::Bars, "", Measure::OperationsPerSecond).log()
        };
        let (mut set, mut get) = (figure("sets"), figure("gets"));
        for (layer, &(seed_set, seed_get)) in LAYERS.into_iter().zip(&engine.seeds) {
            let count = short(records(layer, scale));
            let workload = format!("{}, {layer}, {count} operations", engine.title);
            let rounds = scale.rounds();
            let (tkrzw, ours_id) = (
                format!("{}-{layer}/tkrzw", engine.key),
                format!("{}-{layer}/turbidite", engine.key),
            );
            let theirs = theirs(engine, layer, scale);
            let label = format!("Tkrzw {}", engine.key);
            rows.push(
                Row::new(tkrzw.clone(), &workload, &label, theirs, rounds)
                    .seed("set", seed_set)
                    .seed("get", seed_get),
            );
            let label_of_ours = match engine.key {
                "hash" => "Turbidite hash",
                "tree" => "Turbidite B+ tree",
                _ => "Turbidite skip",
            };
            rows.push(Row::store(
                ours_id.clone(),
                &workload,
                label_of_ours,
                ours(engine, layer, scale),
                rounds,
            ));
            let x = || X::Name(layer.to_owned());
            set.add(&tkrzw, "set", &label, x());
            set.add(&ours_id, "set", label_of_ours, x());
            get.add(&tkrzw, "get", &label, x());
            get.add(&ours_id, "get", label_of_ours, x());
            get.add(&ours_id, "get 32", &format!("{label_of_ours}, 32 at a time"), x());
        }
        figures.extend([set, get]);
    }
    Table {
        name: "files",
        title: "Engines and file layers",
        about: ABOUT,
        sizes: "the study's million operations",
        rows,
        figures,
    }
}
