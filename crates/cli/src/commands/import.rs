//! `turbidite import`

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use turbidite::EngineKind;
use turbidite_records::{Format, Lines, Parser, Piece};

use crate::arguments::{DatabaseArguments, NewKeyspaceArguments};
use crate::durability::LogArguments;
use crate::failure::{Failure, Result};
use crate::output::{self, Figures};
use crate::progress::Progress;
use crate::records::Loader;
use crate::records::order::Order;
use crate::size::{Bytes, Count, ratio};

/// Load a file of records
///
/// Every record is stored verbatim, without its line ending, under the key that --key finds in it. A key
/// that is in the keyspace already gets the new record, unless the keyspace has the engine skip and a
/// reducer that says otherwise. The database and the keyspace are created if they are missing.
///
/// The order of the lines, their endings, the header and blank lines go into a keyspace named
/// <KEYSPACE>.order, in the same atomic batches, so that `export` gives back the file byte for byte. It
/// describes the latest import into the keyspace. It is an LSM-tree by default options, whatever is said
/// of the keyspace itself; only with --durability none neither has the log.
///
/// A malformed line (no such column, an open quote, a record of another length, bad JSON, no key) ends
/// the import with exit code 2; the records before it stay stored.
#[derive(Args, Debug)]
#[command(after_help = "\
Keys:
  --key 2      the second column (tsv, csv)
  --key name   the column with this name in the header (csv, tsv with --header), or the field of the
               object (jsonl; a string as its text, a number as it is written). A field that is called
               `line` is written `.line`.
  --key line   the number of the line, in twelve decimal digits

Examples:
  turbidite import unicode.db UnicodeData.txt --format tsv --separator ';' --key 1
  turbidite import cities.db cities.csv --format csv --key geonameid
  turbidite import cities.db cities.csv --format csv --key geonameid --keyspace tree --engine btree
  turbidite import visits.db visits.tsv --format tsv --key 1 --engine skip --reducer keep-all --progress
  turbidite import log.db - --format jsonl --key id --skip-malformed < events.jsonl
  turbidite import words.db /usr/share/dict/words --format tsv --key line")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The file to load; - for standard input
    file: PathBuf,
    /// The form of the file
    #[arg(long, value_enum)]
    format: Format,
    /// Where the key of a record is: a column, a field, or `line`
    #[arg(long, value_name = "COLUMN")]
    key: String,
    /// What separates columns: one ASCII character, or \t [default: a tab for tsv, a comma for csv]
    #[arg(long, value_name = "C", value_parser = parse_separator)]
    separator: Option<u8>,
    /// The first line of a tsv file names the columns
    #[arg(long, conflicts_with = "no_header")]
    header: bool,
    /// The first record of a csv file is a record
    #[arg(long)]
    no_header: bool,
    /// How many records go into one atomic batch
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// What to do with a key that occurs again in the file
    #[arg(long, value_enum, default_value_t)]
    duplicates: Duplicates,
    /// Count malformed lines and go on
    #[arg(long)]
    skip_malformed: bool,
    /// Say on standard error about every second how many records are read, how fast, and how far a
    /// merge is
    #[arg(long)]
    progress: bool,
    #[command(flatten)]
    keyspace: NewKeyspaceArguments,
    #[command(flatten)]
    log: LogArguments,
    #[command(flatten)]
    figures: Figures,
}

/// What to do with a key that occurs again in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum Duplicates {
    /// The last record wins, or the reducer of a skip keyspace decides; they are counted
    #[default]
    Last,
    /// End with exit code 2
    Error,
}

/// What an import met.
#[derive(Default)]
struct Tally {
    duplicates: u64,
    malformed: u64,
}

/// How far it is: the bytes of the file on a bar, and the records that were read.
struct Position {
    bytes: ProgressBar,
    records: Arc<AtomicU64>,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let header = match self.format {
            Format::Tsv if self.no_header => return Err(misplaced("--no-header", "csv")),
            Format::Csv if self.header => return Err(misplaced("--header", "tsv")),
            Format::Jsonl if self.header || self.no_header || self.separator.is_some() => {
                return Err(misplaced("--header, --no-header and --separator", "tsv and csv"));
            }
            Format::Csv => !self.no_header,
            Format::Tsv | Format::Jsonl => self.header,
        };
        Order::check_name(self.keyspace.name())?;
        let (lines, length) = Lines::open(&self.file)?;
        let (mut parser, front) =
            Parser::new(lines, self.format, self.separator, header, &self.key)?;
        let start = Instant::now();
        let database = self.database.open_or_create(&self.log)?;
        // First what may not be what is asked for: the order must not say anything about records of others.
        let records = self.keyspace.open_or_create(&database, &self.log)?;
        let (told, engine) = (records.clone(), records.stats().engine);
        let order = Order::open_or_create(&database, self.keyspace.name(), &self.log)?;
        let mut loader = Loader::new(&database, records, order, self.batch as usize)?;
        front.iter().for_each(|text| loader.verbatim(text));

        let bar = if self.progress { ProgressBar::hidden() } else { bar(length) };
        let position = Position { bytes: bar, records: Arc::default() };
        let telling = self.progress.then(|| {
            let records = Arc::clone(&position.records);
            Progress::start("import".into(), told, move || records.load(Ordering::Relaxed))
        });
        let loaded = self.load(&mut parser, &mut loader, &position);
        position.bytes.finish_and_clear();
        drop(telling);
        let (taken, bytes) = (loader.committed(), parser.bytes());
        drop(loader);
        let closed = database.close();
        let tally = loaded.map_err(|failure| {
            failure.with(format_args!("{taken} records before it were taken and are stored"))
        })?;
        closed?;
        self.print(engine, taken, bytes, start.elapsed().as_secs_f64(), &tally)
    }

    /// Loads all pieces. If it ends early, what was gathered before the reason is committed.
    fn load(
        &self,
        parser: &mut Parser,
        loader: &mut Loader<'_>,
        position: &Position,
    ) -> Result<Tally> {
        match self.gather(parser, loader, position) {
            Ok(tally) => loader.finish().map(|()| tally),
            Err(failure) => loader.commit().and(Err(failure)),
        }
    }

    fn gather(
        &self,
        parser: &mut Parser,
        loader: &mut Loader<'_>,
        position: &Position,
    ) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut raw = Vec::new();
        while let Some(piece) = parser.next(&mut raw)? {
            let malformed = |reason| Failure::usage(format!("line {}: {reason}", parser.line()));
            match piece {
                Piece::Verbatim => loader.verbatim(&raw),
                Piece::Record(key) => {
                    if loader.is_repeated(&key) {
                        if self.duplicates == Duplicates::Error {
                            let key = key.escape_ascii();
                            return Err(malformed(format!("the key \"{key}\" occurred before")));
                        }
                        tally.duplicates += 1;
                    }
                    loader.record(&key, &raw)?;
                    position.records.fetch_add(1, Ordering::Relaxed);
                }
                Piece::Malformed(_) if self.skip_malformed => tally.malformed += 1,
                Piece::Malformed(reason) => return Err(malformed(reason)),
            }
            position.bytes.set_position(parser.bytes());
        }
        Ok(tally)
    }

    fn print(
        &self,
        engine: EngineKind,
        records: u64,
        bytes: u64,
        seconds: f64,
        tally: &Tally,
    ) -> Result<()> {
        let rate = ratio(records as f64, seconds);
        if self.figures.json {
            return output::print_json(&json!({
                "keyspace": self.keyspace.name(),
                "records": records,
                "bytes": bytes,
                "seconds": seconds,
                "records_per_second": rate,
                "duplicates": tally.duplicates,
                "malformed": tally.malformed,
            }));
        }
        let mut line = format!(
            "{} records, {}, {seconds:.3} s, {} records/s",
            Count(records),
            Bytes(bytes),
            Count(rate as u64)
        );
        if tally.duplicates > 0 {
            let counts = match engine {
                EngineKind::Skip => "the reducer says what counts",
                _ => "the last one counts",
            };
            line += &format!(
                "; {} had a key that occurred before: {counts}, and an export will differ from the file",
                Count(tally.duplicates)
            );
        }
        if tally.malformed > 0 {
            line += &format!("; {} malformed lines were left out", Count(tally.malformed));
        }
        output::print(line)
    }
}

fn misplaced(option: &str, format: &str) -> Failure {
    Failure::usage(format!("{option} is for {format} only"))
}

fn parse_separator(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | b'"') => Ok(*byte),
        _ => Err(String::from("it is not one ASCII character, or is a line end or a quote")),
    }
}

/// A bar on a terminal, nothing elsewhere.
fn bar(length: Option<u64>) -> ProgressBar {
    let (bar, template) = match length {
        Some(length) => (
            ProgressBar::new(length),
            "{wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta} left",
        ),
        None => (ProgressBar::no_length(), "{spinner} {binary_bytes} {binary_bytes_per_sec}"),
    };
    bar.with_style(ProgressStyle::with_template(template).expect("a template is a constant"))
}
