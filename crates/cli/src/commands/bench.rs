//! `turbidite bench`

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use tempfile::TempDir;
use turbidite::{Layer, Reducer};

use crate::arguments::{self, LayerArguments, MemoryArguments};
use crate::durability::LogArguments;
use crate::engine::{Engine, EngineArguments};
use crate::failure::{Failure, Result};
use crate::output::{self, Figures};
use crate::trace::Trace;
use crate::workload::{
    Bench, Heading, Keys, Measurement, Order, Phase, Plan, Reopening, Store, write_tables,
};

/// Measure the speed of a new database
///
/// Keys are decimal numbers, padded with zeros: even ones are stored, odd ones are looked for in vain.
/// All keys and values are made before the clock starts. Every answer is checked; a wrong one ends the
/// benchmark with exit code 3.
///
/// With --keys study, every operation of fill, get, overwrite and delete draws its key anew from 1 to N:
/// fill stores about 63 % of them and overwrites some, overwrite is another fill, and of the keys that get
/// asks for about 37 % are not there, which is then the right answer. These are the keys of the study of
/// Tkrzw's file classes.
///
/// A writing phase ends when its last call returned, or, with --persist, when all that it wrote is in the
/// keyspace's own files; how long the database then goes on to flush and
/// compact is its settle time, and what it reads and writes meanwhile counts for the phase. Latencies are
/// taken for each operation or batch, or for runs of --latency-run operations, 64 at least in scan and
/// reverse and all in count; each operation of a run is taken to have lasted as long as the others. The
/// database is made in a new directory, which is removed at the end. Skewed orders concern get, miss and
/// overwrite; fill and delete then are shuffled.
#[derive(Args, Debug)]
#[command(after_help = "\
Figures with --json:
  One object for each phase; a figure that does not apply is 0. The names are engine, page_size,
  max_cached_pages, step_unit, max_level, reducer, file, block_size, page_cache_pages, log_file,
  durability, phase, keys, order, records, threads, batch, latency_run, operations, found,
  close_seconds, open_seconds, seconds, persist_seconds, settle_seconds, ops_per_second, p50_us,
  p99_us, p999_us, max_us, written_bytes, space_bytes, write_amplification, space_amplification,
  peak_rss_bytes, io, close_io, tree, skip, keyspace, log, options.
  Write amplification is bytes written for each byte that was put, space amplification bytes on disk
  for each byte of live records: over all files, with what the log has reserved. keyspace has the same
  four figures of the keyspace's own files, log has written_bytes and write_amplification of the log.
  options has what was chosen that is not the default, as text.
  max_level and reducer are null unless they are given. persist_seconds is the part of seconds that
  --persist takes.
  The names in io are requests, hits, reads, read_bytes, writes, written_bytes, syncs: what the file
  layer did in the phase. close_io has the same for closing the database before the phase, which
  writes what was still in memory. found counts the keys of get and miss that were there; hits are
  requests that a page cache of the file layer answered.
  The names in tree, which are 0 for other engines than btree, are requests and hits: nodes that
  were asked for in the phase, and those of them that were cached, counting no node of a mapped
  file, and for gets not the root; and, as the file has it at the end of the phase, records,
  levels, inner_nodes, leaf_nodes, records_per_leaf, overflow_pages, free_pages, page_fill: the
  bytes of keys and values divided by those of leaves and overflow pages. Records still in memory
  are not in the tree: --reopen has all of them there when they are read.
  The names in skip, which are 0 for other engines than skip, are requests, hits, merges: blocks that
  were asked for in the phase, those of them that were cached, and merges; and, as its files are at
  the end of the phase, records, levels, blocks, records_per_block of the sorted file, runs that wait
  to be merged into it, run_entries.

Lines of --trace:
  One object for each flush and compaction, tries that failed and those given up included: job, keyspace,
  kind, opened, start, end, together, inputs, outputs, read_bytes, written_bytes, outcome, error. kind is
  flush, merge, move or drop; a move writes nothing. opened, start and end are seconds since the benchmark
  began; job counts the jobs since the database was opened, at opened, in the order in which they began.
  together is how many of them, this one counted, were under way at once at most while it was. inputs and
  outputs have, for each level, level, tables, bytes, and the keys smallest and largest in hexadecimal;
  inputs of a flush are in memory, and not there. outcome is done, given-up or failed, with the error.
  read_bytes are those of tables that were merged, written_bytes those of files that came of it. Sums of
  the lines that are done are flushes, compactions and their bytes in the figures of the library.

Examples:
  turbidite bench
  turbidite bench --file mmap --order skewed --threads 4 --phases fill,get,scan,overwrite,get
  turbidite bench --keys study --file mmap --durability none --phases fill,get
  turbidite bench --file pos-block-cache --block-size 1024 --page-cache 1000 --phases fill,get
  turbidite bench --memtable skiplist --filter ribbon --compression none,lz4 --levels tiering:4,levelling:8
  turbidite bench --durability buffered --log-buffer 1MiB --log-flush-ms 50 --block-cache 64MiB
  turbidite bench --engine btree --page-size 8192 --max-cached-pages 1000 --reopen
  turbidite bench --engine skip --step-unit 16 --max-level 5 --keys study --persist --progress
  turbidite bench --order skewed --phases fill,overwrite --table-size 2MiB --trace jobs.jsonl
  turbidite bench --batch 32 --phases fill,get,miss
  turbidite bench --durability sync --records 10000 --phases fill --dir /mnt/disk --json")]
pub(crate) struct Arguments {
    /// The index structure
    #[arg(long, value_enum, default_value = "lsm")]
    engine: Engine,
    #[command(flatten)]
    parts: EngineArguments,
    #[command(flatten)]
    layer: LayerArguments,
    /// How the log's files are reached
    #[arg(long, value_name = "LAYER", default_value = "mmap", hide_possible_values = true, value_parser = arguments::layer_parser())]
    log_file: Layer,
    #[command(flatten)]
    log: LogArguments,
    /// What keys are
    #[arg(long, value_enum, default_value = "number")]
    keys: Keys,
    /// How many records are stored, and operations done in each phase
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = clap::value_parser!(u32).range(1..))]
    records: u32,
    /// The bytes of a key [default: 16; with --keys study always 8]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=4096))]
    key_size: Option<u32>,
    /// The bytes of a value
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = clap::value_parser!(u32).range(0..=16 << 20))]
    value_size: u32,
    /// The share of random bytes in values, 0 to 1; the rest is one byte repeated
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = parse_share)]
    value_entropy: f64,
    /// In which order keys are used [default: random]
    #[arg(long, value_enum)]
    order: Option<Order>,
    /// How many threads share the operations of a phase
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// How many operations one call does: get and miss read so many keys at once, and writing phases
    /// commit so many writes together
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// How many operations share one look at the clock; their latency is the mean [default: 1; with
    /// --keys study 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    latency_run: Option<u32>,
    /// Close and open the database before each reading phase that follows a writing one, so that its
    /// own caches are cold. The page cache of the system stays warm. Opening counts as done when the
    /// database has settled [default with --keys study]
    #[arg(long, overrides_with = "no_reopen")]
    reopen: bool,
    /// Leave the database open over all phases [default without --keys study]
    #[arg(long, overrides_with = "reopen")]
    no_reopen: bool,
    /// Have all that a writing phase wrote persisted at its end, and count the time that takes for the
    /// phase
    #[arg(long)]
    persist: bool,
    /// Record each flush and each compaction in this file, which is created or emptied: one JSON object a
    /// line, in the order in which they end
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Say on standard error about every second how many operations of a phase are done, how fast, and
    /// how far a merge is
    #[arg(long)]
    progress: bool,
    /// What is measured, in this order; starts with fill [default: fill,get,miss,scan; with --keys study
    /// fill,get]
    #[arg(long, value_enum, value_delimiter = ',')]
    phases: Vec<Phase>,
    /// Where the new directory is made, created if it is missing [default: the system's place for
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Do not remove the database at the end; its place is printed
    #[arg(long)]
    keep: bool,
    /// The start of all randomness
    #[arg(long, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    memory: MemoryArguments,
    #[command(flatten)]
    figures: Figures,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let mut plan = self.plan()?;
        plan.trace = self.trace.as_deref().map(Trace::create).transpose()?;
        let mut dir = self.make_dir()?;
        dir.disable_cleanup(self.keep);
        let measured = self.measure(&plan, &dir);
        let traced = plan.trace.as_ref().map_or(Ok(()), |trace| trace.finish());
        let measured = measured.and(traced);
        if self.keep {
            let path = dir.path().display();
            anstream::eprintln!("turbidite: note: the database is kept in {path}");
            return measured;
        }
        let path = dir.path().to_owned();
        let removed = dir.close().map_err(|error| Failure::io("remove", &path, &error));
        measured.and(removed)
    }

    fn measure(&self, plan: &Plan, dir: &TempDir) -> Result<()> {
        let mut store = Store::create(&dir.path().join("db"), plan)?;
        let memory = store.database.stats().memory;
        let mut bench = Bench::new(plan.clone());
        let mut measurements: Vec<Measurement> = Vec::new();
        for &phase in self.phases() {
            let mut reopening = Reopening::default();
            if bench.reopens_before(phase) {
                (store, reopening) = store.reopen()?;
            }
            let measurement = bench.run(phase, &store, reopening)?;
            if self.figures.json {
                output::print_json(&measurement.as_json(plan))?;
            } else {
                measurements.push(measurement);
            }
        }
        store.close()?;
        if self.figures.json {
            return Ok(());
        }
        let mut out = output::stdout();
        Heading { plan, memory, place: dir.path().display().to_string() }.write(&mut out)?;
        write_tables(&measurements, &mut out)?;
        Ok(out.flush()?)
    }

    /// What is asked for, if it makes sense.
    fn plan(&self) -> Result<Plan> {
        match self.keys {
            Keys::Number => self.check_phases()?,
            Keys::Study => self.check_study()?,
        }
        self.check_reducer()?;
        self.check_fifo()?;
        let study = self.keys == Keys::Study;
        let plan = Plan {
            engine: self.engine,
            parts: self.parts.clone(),
            file: self.layer.layer()?,
            log_file: self.log_file,
            log: self.log.clone(),
            memory: self.memory.clone(),
            keys: self.keys,
            records: self.records,
            key_size: self.checked_key_size()? as usize,
            value_size: self.value_size as usize,
            value_entropy: self.value_entropy,
            order: self.order.unwrap_or(Order::Random),
            threads: self.threads as usize,
            batch: self.batch as usize,
            latency_run: u64::from(self.latency_run.unwrap_or(if study { 16 } else { 1 })),
            reopen: self.reopen || study && !self.no_reopen,
            persist: self.persist,
            trace: None,
            progress: self.progress,
            seed: self.seed,
        };
        plan.keyspace_options()?;
        Ok(plan)
    }

    /// The bytes of a key, if all keys fit.
    fn checked_key_size(&self) -> Result<u32> {
        let size = self.keys.fixed_size().or(self.key_size).unwrap_or(16);
        let digits = self.keys.largest(self.records).ilog10() + 1;
        if digits <= size {
            return Ok(size);
        }
        Err(Failure::usage(format!(
            "keys of {size} bytes are too short for {} records: {digits} digits are needed",
            self.records
        )))
    }

    fn phases(&self) -> &[Phase] {
        match self.keys {
            _ if !self.phases.is_empty() => &self.phases,
            Keys::Number if !self.engine.is_ordered() => {
                &[Phase::Fill, Phase::Get, Phase::Miss, Phase::Count]
            }
            Keys::Number => &[Phase::Fill, Phase::Get, Phase::Miss, Phase::Scan],
            Keys::Study => &[Phase::Fill, Phase::Get],
        }
    }

    /// Checks that nothing goes that answers are checked against.
    fn check_fifo(&self) -> Result<()> {
        let Some(bytes) = self.parts.lsm.fifo_bytes() else { return Ok(()) };
        let writes = self.phases().iter().filter(|phase| phase.writes()).count();
        let reads = writes < self.phases().len();
        let record = u64::from(self.checked_key_size()?) + u64::from(self.value_size);
        // What goes with a record in a table is less than that.
        let needed = writes as u64 * u64::from(self.records) * (2 * record + 64);
        if reads && bytes < needed {
            return Err(Failure::usage(format!(
                "with --policy fifo:{bytes} records may go that answers are checked against: give at least {needed} \
                 bytes, or phases that write only"
            )));
        }
        Ok(())
    }

    /// Checks that every phase finds what it needs.
    fn check_phases(&self) -> Result<()> {
        let mut filled = false;
        let mut live = false;
        for &phase in self.phases() {
            match phase {
                Phase::Scan | Phase::Reverse if !self.engine.is_ordered() => {
                    return Err(Failure::usage(
                        "scan and reverse check the order of keys, and this engine has none; \
                         count reads all of them",
                    ));
                }
                Phase::Fill => (filled, live) = (true, true),
                Phase::Get | Phase::Overwrite | Phase::Delete if !live => {
                    return Err(Failure::usage(
                        "get, overwrite and delete need a fill before them",
                    ));
                }
                Phase::Delete => live = false,
                _ if !filled => return Err(Failure::usage("the first phase must be fill")),
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that nothing is asked for that the keys of the study decide.
    fn check_study(&self) -> Result<()> {
        let wrong = if self.order.is_some() {
            "--order cannot be used with --keys study: its keys are drawn at random"
        } else if self.key_size.is_some() {
            "--key-size cannot be used with --keys study: its keys have 8 bytes"
        } else if self.phases().contains(&Phase::Miss) {
            "there is no phase miss with --keys study: of its gets, 37 % are misses"
        } else if self.phases().first() != Some(&Phase::Fill) {
            "the first phase must be fill"
        } else {
            return Ok(());
        };
        Err(Failure::usage(wrong))
    }

    /// Checks that no key is put twice if another value than the last may count: answers are checked against the
    /// last one.
    fn check_reducer(&self) -> Result<()> {
        let reducer = match &self.parts.skip.reducer {
            None | Some(Reducer::Last) => return Ok(()),
            Some(reducer) => reducer,
        };
        let mut live = false;
        let is_put_again = |&phase: &Phase| {
            let again = phase == Phase::Overwrite || phase == Phase::Fill && live;
            live = phase == Phase::Fill || live && phase != Phase::Delete;
            again
        };
        if self.keys == Keys::Study || self.phases().iter().any(is_put_again) {
            return Err(Failure::usage(format!(
                "with --reducer {reducer} no key may be put twice, because answers are checked: there is \
                 no --keys study, no overwrite, and no second fill without a delete before it"
            )));
        }
        Ok(())
    }

    fn make_dir(&self) -> Result<TempDir> {
        let parent = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        fs::create_dir_all(&parent).map_err(|error| Failure::io("create", &parent, &error))?;
        tempfile::Builder::new()
            .prefix("turbidite-bench-")
            .tempdir_in(&parent)
            .map_err(|error| Failure::io("create a directory in", &parent, &error))
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(String::from("it is not between 0 and 1")),
    }
}
