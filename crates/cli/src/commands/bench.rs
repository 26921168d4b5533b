//! `turbidite bench`

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use tempfile::TempDir;
use turbidite::Database;

use crate::failure::{Failure, Result};
use crate::output::{self, Figures};
use crate::size;
use crate::workload::{
    Bench, Durability, Engine, FileLayer, Heading, Measurement, Order, Phase, Plan, write_table,
};

/// Measure the speed of a new database
///
/// Keys are decimal numbers, padded with zeros: even ones are stored, odd ones are looked for in vain.
/// All keys and values are made before the clock starts. Every answer is checked; a wrong one ends the
/// benchmark with exit code 3.
///
/// A writing phase ends when its last call returned; how long the database then goes on to flush and
/// compact is its settle time, and what it writes meanwhile counts for the phase. Latencies are taken for
/// each operation, those of scan and reverse for runs of 64 records, divided by 64. The database is made
/// in a new directory, which is removed at the end. Skewed orders concern get, miss and overwrite; fill
/// and delete then are shuffled.
#[derive(Args, Debug)]
#[command(after_help = "\
Figures with --json:
  One object for each phase; a figure that does not apply is 0. The names are engine, file,
  durability, phase, order, records, threads, seconds, ops_per_second, p50_us, p99_us, p999_us,
  max_us, written_bytes, space_bytes, write_amplification, space_amplification, peak_rss_bytes.

Examples:
  turbidite bench
  turbidite bench --file mmap --order skewed --threads 4 --phases fill,get,scan,overwrite,get
  turbidite bench --durability sync --records 10000 --phases fill --dir /mnt/disk --json")]
pub(crate) struct Arguments {
    /// The index structure
    #[arg(long, value_enum, default_value = "lsm")]
    engine: Engine,
    /// How files are reached
    #[arg(long, value_enum, default_value = "pos")]
    file: FileLayer,
    /// When a write counts as done
    #[arg(long, value_enum, default_value = "os")]
    durability: Durability,
    /// How many records are stored, and operations done in each phase
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = clap::value_parser!(u32).range(1..))]
    records: u32,
    /// The bytes of a key
    #[arg(long, value_name = "BYTES", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=4096))]
    key_size: u32,
    /// The bytes of a value
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = clap::value_parser!(u32).range(0..=16 << 20))]
    value_size: u32,
    /// The share of random bytes in values, 0 to 1; the rest is one byte repeated
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = parse_share)]
    value_entropy: f64,
    /// In which order keys are used
    #[arg(long, value_enum, default_value = "random")]
    order: Order,
    /// How many threads share the operations of a phase
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// What is measured, in this order; starts with fill
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fill,get,miss,scan")]
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
    /// How much memory the database may use, as in 256MiB [default: the library's]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    memory_budget: Option<usize>,
    #[command(flatten)]
    figures: Figures,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let plan = self.plan()?;
        let mut dir = self.make_dir()?;
        dir.disable_cleanup(self.keep);
        let measured = self.measure(&plan, &dir);
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
        let mut builder = Database::builder(dir.path().join("db"))
            .durability(plan.durability.of_database().into());
        if let Some(bytes) = self.memory_budget {
            builder = builder.memory_budget(bytes);
        }
        let database = builder.open()?;
        let memory = database.stats().memory;
        let mut bench = Bench::new(plan.clone(), database.clone())?;
        let mut measurements: Vec<Measurement> = Vec::new();
        for &phase in &self.phases {
            let measurement = bench.run(phase)?;
            if self.figures.json {
                output::print_json(&measurement.as_json(plan))?;
            } else {
                measurements.push(measurement);
            }
        }
        drop(bench);
        database.close()?;
        if self.figures.json {
            return Ok(());
        }
        let mut out = output::stdout();
        Heading { plan, memory, place: dir.path().display().to_string() }.write(&mut out)?;
        write_table(&measurements, &mut out)?;
        Ok(out.flush()?)
    }

    /// What is asked for, if it makes sense.
    fn plan(&self) -> Result<Plan> {
        let largest = 2 * u64::from(self.records) - 1;
        let digits = largest.ilog10() + 1;
        if digits > self.key_size {
            return Err(Failure::usage(format!(
                "keys of {} bytes are too short for {} records: {digits} digits are needed",
                self.key_size, self.records
            )));
        }
        let mut filled = false;
        let mut live = false;
        for &phase in &self.phases {
            match phase {
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
        Ok(Plan {
            engine: self.engine,
            file: self.file,
            durability: self.durability,
            records: self.records,
            key_size: self.key_size as usize,
            value_size: self.value_size as usize,
            value_entropy: self.value_entropy,
            order: self.order,
            threads: self.threads as usize,
            seed: self.seed,
        })
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
