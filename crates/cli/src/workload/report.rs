//! The figures of a benchmark, as a table for people and as JSON for programs.

use std::io::{self, Write};

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use turbidite::{Layer, MemoryStats};
use turbidite_workload::machine;

use super::counters::Counters;
use super::skip::Skip;
use super::tree::Tree;
use super::{Keys, Phase, Plan, Reopening, name};
use crate::engine::{Engine, EngineArguments};
use crate::options;
use crate::output::Figure;
use crate::size::{Bytes, Count, ratio};

/// What a phase cost.
pub(crate) struct Measurement {
    pub(super) phase: Phase,
    pub(super) operations: u64,
    /// How many of the keys that get and miss asked for were there.
    pub(super) found: u64,
    /// Bytes of keys and values that the operations moved.
    pub(super) user_bytes: u64,
    /// To the end of the last operation, or, if that was asked for, of persisting.
    pub(super) seconds: f64,
    /// How much of it was persisting.
    pub(super) persist_seconds: f64,
    /// How long the database worked on after the last operation of a writing phase.
    pub(super) settle_seconds: f64,
    /// What came before the phase.
    pub(super) reopening: Reopening,
    /// Nanoseconds for each operation.
    pub(super) latencies: Histogram<u64>,
    /// What the file layer did, to the end of the settling.
    pub(super) counters: Counters,
    /// The B+ tree at the end, if it is one.
    pub(super) tree: Option<Tree>,
    /// The skip keyspace at the end, if it is one.
    pub(super) skip: Option<Skip>,
    pub(super) space_bytes: u64,
    /// The part of it that is the keyspace's own files.
    pub(super) keyspace_bytes: u64,
    /// Bytes of the keys and values that can be read.
    pub(super) live_bytes: u64,
    pub(super) peak_rss_bytes: u64,
}

impl Measurement {
    fn operations_per_second(&self) -> f64 {
        ratio(self.operations as f64, self.seconds)
    }

    fn microseconds(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e3
    }

    fn longest_microseconds(&self) -> f64 {
        self.latencies.max() as f64 / 1e3
    }

    /// How many bytes were written for each that was put: `written` is all of them, or those of some files.
    fn write_amplification(&self, written: u64) -> f64 {
        if !self.phase.writes() {
            return 0.0;
        }
        ratio(written as f64, self.user_bytes as f64)
    }

    /// How many bytes are taken on disk for each that is live: `taken` is all of them, or those of some files.
    fn space_amplification(&self, taken: u64) -> f64 {
        ratio(taken as f64, self.live_bytes as f64)
    }

    /// What the keyspace's own files cost.
    fn keyspace_as_json(&self) -> Value {
        let (written, space) = (self.counters.keyspace_bytes(), self.keyspace_bytes);
        json!({
            "written_bytes": written, "space_bytes": space,
            "write_amplification": self.write_amplification(written),
            "space_amplification": self.space_amplification(space),
        })
    }

    /// What the log cost.
    fn log_as_json(&self) -> Value {
        let written = self.counters.log_bytes;
        json!({
            "written_bytes": written, "write_amplification": self.write_amplification(written),
        })
    }

    /// The figures under their fixed names. What has no meaning for the phase is 0.
    pub(crate) fn as_json(&self, plan: &Plan) -> Value {
        let chosen = plan.chosen().into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        let mut figures = json!({
            "engine": name(plan.engine),
            "page_size": self.tree.map_or(0, |tree| tree.page_size()),
            "max_cached_pages": plan.parts.tree.max_cached_pages.unwrap_or(0),
            "step_unit": self.skip.map_or(0, |skip| skip.step_unit()),
            "max_level": plan.parts.skip.max_level,
            "reducer": plan.parts.skip.reducer.as_ref().map(ToString::to_string),
            "file": plan.file.to_string(),
            "block_size": plan.file.block_size().unwrap_or(0),
            "page_cache_pages": plan.file.page_cache_pages().unwrap_or(0),
            "log_file": plan.log_file.to_string(),
            "durability": name(plan.log.durability()),
            "phase": name(self.phase),
            "keys": name(plan.keys),
            "order": name(plan.order),
            "records": plan.records,
            "threads": plan.threads,
            "batch": plan.batch,
            "latency_run": plan.latency_run,
            "operations": self.operations,
            "found": self.found,
            "close_seconds": self.reopening.close_seconds,
            "open_seconds": self.reopening.open_seconds,
            "seconds": self.seconds,
            "persist_seconds": self.persist_seconds,
            "settle_seconds": self.settle_seconds,
            "ops_per_second": self.operations_per_second(),
            "p50_us": self.microseconds(0.5),
            "p99_us": self.microseconds(0.99),
            "p999_us": self.microseconds(0.999),
            "max_us": self.longest_microseconds(),
            "written_bytes": self.counters.io.written_bytes,
            "space_bytes": self.space_bytes,
            "write_amplification": self.write_amplification(self.counters.io.written_bytes),
            "space_amplification": self.space_amplification(self.space_bytes),
            "peak_rss_bytes": self.peak_rss_bytes,
            "io": self.counters.as_json(),
            "close_io": self.reopening.closing.as_json(),
            "tree": self.tree.unwrap_or_default().as_json(),
            "skip": self.skip.unwrap_or_default().as_json(),
        });
        figures["keyspace"] = self.keyspace_as_json();
        figures["log"] = self.log_as_json();
        figures["options"] = Value::Object(chosen.collect());
        figures
    }

    fn as_row(&self) -> Vec<String> {
        let amplification = |figure: f64| match figure {
            0.0 => String::from("-"),
            _ => format!("{figure:.2}"),
        };
        let settle =
            if self.phase.writes() { format!("{:.2}", self.settle_seconds) } else { "-".into() };
        vec![
            name(self.phase),
            format!("{:.2}", self.seconds),
            settle,
            Count(self.operations_per_second() as u64).to_string(),
            format!("{:.1}", ratio(self.user_bytes as f64, self.seconds) / 1e6),
            format!("{:.2}", self.microseconds(0.5)),
            format!("{:.2}", self.microseconds(0.99)),
            format!("{:.2}", self.microseconds(0.999)),
            format!("{:.0}", self.longest_microseconds()),
            Bytes(self.counters.io.written_bytes).to_string(),
            amplification(self.write_amplification(self.counters.io.written_bytes)),
            amplification(self.write_amplification(self.counters.keyspace_bytes())),
            amplification(self.write_amplification(self.counters.log_bytes)),
            Bytes(self.space_bytes).to_string(),
            amplification(self.space_amplification(self.space_bytes)),
            amplification(self.space_amplification(self.keyspace_bytes)),
            Bytes(self.peak_rss_bytes).to_string(),
        ]
    }

    fn as_file_row(&self) -> Vec<String> {
        let Counters { io, pages, .. } = self.counters;
        let Reopening { close_seconds, open_seconds, closing } = self.reopening;
        let seconds = |figure: f64| match figure {
            0.0 => String::from("-"),
            _ => format!("{figure:.3}"),
        };
        let found = match self.phase {
            Phase::Get | Phase::Miss => Count(self.found).to_string(),
            _ => String::from("-"),
        };
        vec![
            name(self.phase),
            Count(self.operations).to_string(),
            found,
            seconds(close_seconds),
            Count(closing.io.writes).to_string(),
            Bytes(closing.io.written_bytes).to_string(),
            seconds(open_seconds),
            Count(self.counters.requests()).to_string(),
            Count(pages.hits).to_string(),
            Count(io.reads).to_string(),
            Bytes(io.read_bytes).to_string(),
            Count(io.writes).to_string(),
            Bytes(io.written_bytes).to_string(),
            Count(io.syncs).to_string(),
        ]
    }

    /// What concerns a B+ tree, if it is one.
    fn as_tree_row(&self) -> Option<Vec<String>> {
        let tree = self.tree?;
        let io = self.counters.io;
        let mut row = vec![
            name(self.phase),
            Count(tree.requests()).to_string(),
            Count(tree.hits()).to_string(),
        ];
        row.extend([io.reads, io.writes].map(|calls| Count(calls).to_string()));
        row.extend(tree.shape_as_row());
        Some(row)
    }

    /// What concerns a skip keyspace, if it is one.
    fn as_skip_row(&self) -> Option<Vec<String>> {
        let skip = self.skip?;
        let io = self.counters.io;
        let mut row = vec![name(self.phase)];
        row.extend(skip.requests_as_row());
        row.extend([io.reads, io.writes].map(|calls| Count(calls).to_string()));
        row.extend(skip.shape_as_row());
        Some(row)
    }
}

const HEADER: [&str; 17] = [
    "phase",
    "seconds",
    "settle s",
    "ops/s",
    "MB/s",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "max µs",
    "written",
    "w-amp",
    "of files",
    "of log",
    "on disk",
    "s-amp",
    "of files",
    "peak RSS",
];

/// What each phase met, and what the file layer did for it.
const FILE_HEADER: [&str; 14] = [
    "phase",
    "operations",
    "found",
    "close s",
    "close writes",
    "close written",
    "open s",
    "requests",
    "hits",
    "reads",
    "read",
    "writes",
    "written",
    "syncs",
];

/// What the nodes of a B+ tree had to do, and what the tree was like at the end.
const TREE_HEADER: [&str; 13] = [
    "phase",
    "page requests",
    "hits",
    "reads",
    "writes",
    "records",
    "levels",
    "inner nodes",
    "leaf nodes",
    "records/leaf",
    "overflow pages",
    "free pages",
    "page fill",
];

/// What the blocks of a skip keyspace had to do, and what its files were like at the end.
const SKIP_HEADER: [&str; 12] = [
    "phase",
    "block requests",
    "hits",
    "reads",
    "writes",
    "records",
    "levels",
    "blocks",
    "records/block",
    "runs",
    "run entries",
    "merges",
];

/// Writes the figures of all phases: times, then what files had to do, then what became of a B+ tree or a skip
/// keyspace.
pub(crate) fn write_tables(measurements: &[Measurement], out: &mut impl Write) -> io::Result<()> {
    let mut times = Figure::new(&HEADER, 1);
    measurements.iter().for_each(|measurement| times.row(measurement.as_row()));
    times.write(out)?;
    writeln!(out)?;
    let mut files = Figure::new(&FILE_HEADER, 1);
    measurements.iter().for_each(|measurement| files.row(measurement.as_file_row()));
    files.write(out)?;
    let rows = |row: fn(&Measurement) -> Option<Vec<String>>| measurements.iter().filter_map(row);
    write_table_of_engine(&TREE_HEADER, rows(Measurement::as_tree_row), out)?;
    write_table_of_engine(&SKIP_HEADER, rows(Measurement::as_skip_row), out)
}

/// Writes an empty line and a table, if it has rows.
fn write_table_of_engine(
    header: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let mut table = Figure::new(header, 1);
    rows.for_each(|row| table.row(row));
    writeln!(out)?;
    table.write(out)
}

/// What a reader of the figures has to know about the run.
pub(crate) struct Heading<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) memory: MemoryStats,
    pub(crate) place: String,
}

impl Heading<'_> {
    /// Writes the heading and an empty line.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let plan = self.plan;
        let user_bytes = u64::from(plan.records) * plan.record_bytes();
        writeln!(
            out,
            "turbidite {}: engine {}, file {}, log file {}, durability {}, {}, {}, {}, seed {}",
            env!("CARGO_PKG_VERSION"),
            engine_with_sizes(plan),
            with_sizes(plan.file),
            plan.log_file,
            name(plan.log.durability()),
            match plan.keys {
                Keys::Number => format!("{} order", name(plan.order)),
                Keys::Study => String::from("keys of the study"),
            },
            plural(plan.threads, "thread"),
            match plan.batch {
                1 => String::from("no batches"),
                batch => format!("batches of {batch}"),
            },
            plan.seed
        )?;
        writeln!(
            out,
            "{} {}, keys of {} B, values of {} B ({:.0} % random): {} of user data; latencies of {}",
            Count(u64::from(plan.records)),
            match plan.keys {
                Keys::Number => "records",
                Keys::Study => "draws of as many keys",
            },
            plan.key_size,
            plan.value_size,
            plan.value_entropy * 100.0,
            Bytes(user_bytes),
            match plan.latency_run.next_multiple_of(plan.batch as u64) {
                run if run == plan.batch as u64 => String::from("each call"),
                run => format!("runs of {run} operations"),
            },
        )?;
        let (machine, budget) = (machine::memory_bytes(), self.memory.budget);
        let fits = |limit: u64| if user_bytes <= limit { "fits" } else { "does not fit" };
        writeln!(
            out,
            "{} cores, {} memory; memory budget {} (the data {}); files stay in the page cache of \
             the system (the data {})",
            machine::cores(),
            Bytes(machine),
            Bytes(budget),
            fits(budget),
            fits(machine)
        )?;
        let between = match plan.reopen {
            true => "before it is read, the database is closed and opened: its own caches are cold",
            false => "no cache is dropped between the phases",
        };
        let end = match plan.persist {
            true => "; the time of a phase that writes includes that of persisting it",
            false => "",
        };
        writeln!(out, "in {}; {between}{end}", self.place)?;
        let chosen: Vec<_> = plan.memory.chosen().chain(plan.log.chosen()).collect();
        if !chosen.is_empty() {
            writeln!(out, "chosen: {}", options::in_words(&chosen))?;
        }
        writeln!(out)
    }
}

/// An engine's name with the sizes that were asked for.
fn engine_with_sizes(plan: &Plan) -> String {
    let EngineArguments { tree, skip, .. } = &plan.parts;
    let page_size = tree.page_size.map(|bytes| format!("pages of {bytes} B"));
    let cached = tree.max_cached_pages;
    let cached = cached.map(|pages| format!("at most {} cached", Count(pages.into())));
    let step_unit = skip.step_unit.map(|records| format!("step unit {records}"));
    let max_level = skip.max_level.map(|levels| format!("at most {levels} levels"));
    let reducer = skip.reducer.as_ref().map(|reducer| format!("reducer {reducer}"));
    let lsm = match plan.engine {
        Engine::Lsm => plan.keyspace_options().ok().map(|chosen| options::as_text(&chosen)),
        _ => None,
    };
    let lsm = lsm.filter(|words| !words.is_empty());
    let sizes = [page_size, cached, step_unit, max_level, reducer, lsm];
    let sizes: Vec<_> = sizes.into_iter().flatten().collect();
    match sizes.is_empty() {
        true => name(plan.engine),
        false => format!("{} ({})", name(plan.engine), sizes.join(", ")),
    }
}

/// A layer's name with its sizes.
fn with_sizes(layer: Layer) -> String {
    match (layer.page_cache_pages(), layer.block_size()) {
        (Some(pages), Some(size)) => format!("{layer} ({} pages of {size} B)", Count(pages.into())),
        (None, Some(size)) => format!("{layer} (blocks of {size} B)"),
        _ => layer.to_string(),
    }
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
