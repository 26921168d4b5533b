//! `turbidite watch`

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use turbidite::{Error, KeyspaceStatus, LsmStatus, Status, Watch};

use crate::arguments::DatabaseArguments;
use crate::failure::{Exit, Failure, Result};
use crate::hex;
use crate::output::{self, Figures};
use crate::picture::{self, Line, Rates, Style};

/// A process that has not answered for so long does not, or is gone.
const SILENCE: Duration = Duration::from_secs(2);
/// How far two pictures are apart between which rates are taken, if there is to be only one.
const APART: Duration = Duration::from_millis(500);

/// Show what a database is doing, again and again
///
/// The database may be open in another process, which has to publish its status: the library does it with
/// DatabaseBuilder::publish_status, and all commands that write do it, bench among them. If no process has
/// it open, it is shown as it is, until one has. Each picture is asked for with a small file, watch.request,
/// in the directory of the database; nothing else is changed there.
///
/// For each keyspace on an LSM-tree there is a bar for each level: keys run from left to right, with a step
/// for each table's first key, and the height tells how many bytes of the level are there. What compactions
/// have claimed is coloured, one colour for each, or marked below the bar. In, flushed, compacted and read
/// are bytes each second: what writers brought, and what flushes wrote, what compactions wrote, and what
/// was read from files; in the first picture, since the database was opened. Ctrl-C ends it.
#[derive(Args, Debug)]
#[command(after_help = "\
Objects with --json:
  One for each picture. state is live, or still if no process has the database open for writing, or silent
  if one has that does not answer; then there is nothing else. Otherwise the names are state, process,
  open_seconds, last_seqno, taken_bytes, read_bytes, written_bytes, pressure, poisoned, memory,
  memtables_limit, rates, keyspaces, jobs: counts since the database was opened. rates, null in the first
  picture, has writes, taken_bytes, flushed_bytes, compacted_bytes, read_bytes, written_bytes, each a
  second. Keys are hexadecimal, and cut off after 64 bytes. pressure is 0 to 1000: writers wait.

Example:
  turbidite watch fruits.db
  turbidite watch fruits.db --once
  turbidite watch fruits.db --json | jq '.keyspaces[].tree.claims | length'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// Print one picture as plain text, and end
    #[arg(long)]
    once: bool,
    /// The time between two pictures, 50 to 60000 milliseconds
    #[arg(long, value_name = "MS", default_value = "500", value_parser = clap::value_parser!(u64).range(50..=60_000))]
    interval: u64,
    #[command(flatten)]
    figures: Figures,
}

/// What is known of the database.
#[derive(Debug)]
enum View {
    /// A process has it open and has told what it does.
    Live(Box<Status>, Option<Rates>),
    /// No process has it open for writing, or none had when this was taken.
    Still(Box<Status>, Instant),
    /// A process has it open, and does not answer.
    Silent,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let still = self.still()?;
        let mut watch = self.database.watch()?;
        if self.once {
            let view = match still {
                Some(status) => View::Still(status, Instant::now()),
                None => ask_twice(&mut watch)?,
            };
            return self.show_once(&view);
        }
        let mut view = still.map_or(View::Silent, |status| View::Still(status, Instant::now()));
        let mut screen = Screen::new();
        let started = Instant::now();
        let mut heard = started;
        let interval = Duration::from_millis(self.interval);
        loop {
            let began = Instant::now();
            match watch.ask(interval.max(Duration::from_millis(200))) {
                Ok(Some(status)) => {
                    let rates = match &view {
                        View::Live(before, _) => Rates::between(before, &status),
                        _ => None,
                    };
                    (view, heard) = (View::Live(Box::new(status), rates), Instant::now());
                }
                // It is not open, so there is nobody to ask.
                Err(_) if matches!(view, View::Still(..)) => {}
                Err(error) => return Err(cannot_ask(error)),
                Ok(None) if heard.elapsed() >= SILENCE && !matches!(view, View::Still(..)) => {
                    let still = self.still()?;
                    view = still.map_or(View::Silent, |status| View::Still(status, Instant::now()));
                    heard = Instant::now();
                }
                Ok(None) => {}
            }
            let is_news = match view {
                View::Live(..) => heard >= began,
                View::Still(..) => true,
                // At first nobody is known to be.
                View::Silent => started.elapsed() >= SILENCE,
            };
            if is_news {
                self.show(&view, &mut screen)?;
            }
            thread::sleep(interval.saturating_sub(began.elapsed()));
        }
    }

    /// The database as it is while no process writes; `None` if one has it open.
    fn still(&self) -> Result<Option<Box<Status>>> {
        match self.database.try_open_to_read()? {
            Some(database) => Ok(Some(Box::new(database.status()))),
            None => Ok(None),
        }
    }

    fn show_once(&self, view: &View) -> Result<()> {
        if let View::Silent = view {
            return Err(Failure::new(Exit::InUse, SILENT));
        }
        if self.figures.json {
            return output::print_json(&as_json(view));
        }
        let mut out = output::stdout();
        let style = Style { width: 80, colours: false, blocks: shows_blocks() };
        write_plain(&self.lines(view, style), style.width, &mut out)?;
        Ok(out.flush()?)
    }

    fn show(&self, view: &View, screen: &mut Screen) -> Result<()> {
        if self.figures.json {
            return output::print_json(&as_json(view));
        }
        let style = screen.style();
        Ok(screen.draw(&self.lines(view, style), style)?)
    }

    fn lines(&self, view: &View, style: Style) -> Vec<Line> {
        let path = picture::clean(&self.database.path().display().to_string());
        let (state, mut lines) = match view {
            View::Live(status, rates) => {
                let open = picture::seconds(status.open_for);
                let state = format!("open for {open} in process {}", status.process);
                (state, picture::draw(status, rates.as_ref(), style))
            }
            View::Still(status, at) => {
                let ago = picture::seconds(at.elapsed());
                let state = format!("not open in any process {ago} ago; as it was then");
                (state, picture::draw(status, None, style))
            }
            View::Silent => (SILENT.to_owned(), Vec::new()),
        };
        lines.insert(0, Line::text(format!("{path}: {state}")));
        lines
    }
}

const SILENT: &str = "the database is open in a process that does not answer: it does not publish its status \
                      (DatabaseBuilder::publish_status), or is stuck";

/// What the process that has the database open does, with rates.
fn ask_twice(watch: &mut Watch) -> Result<View> {
    let Some(before) = watch.ask(SILENCE).map_err(cannot_ask)? else { return Ok(View::Silent) };
    thread::sleep(APART);
    // It may be closed meanwhile.
    let now = watch.ask(SILENCE).map_err(cannot_ask)?;
    let rates = now.as_ref().and_then(|now| Rates::between(&before, now));
    Ok(View::Live(Box::new(now.unwrap_or(before)), rates))
}

fn cannot_ask(error: Error) -> Failure {
    Failure::from(error).with("the process that has the database open cannot be asked")
}

/// Whether the terminal shows more than ASCII, as far as the environment tells.
fn shows_blocks() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Where pictures go. Nothing of the terminal is changed that would have to be set right at the end: each picture is
/// written over the last one, with one call, and ends without a colour.
struct Screen {
    is_terminal: bool,
    colours: bool,
    is_clear: bool,
}

impl Screen {
    fn new() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_dumb = set("TERM").is_none_or(|terminal| terminal == "dumb");
        let is_terminal = io::stdout().is_terminal() && !is_dumb;
        Self { is_terminal, colours: is_terminal && set("NO_COLOR").is_none(), is_clear: false }
    }

    fn size(&self) -> (usize, usize) {
        let size = terminal_size::terminal_size().filter(|_| self.is_terminal);
        let (width, height) = size.map_or((80, 0), |(width, height)| (width.0, height.0));
        (usize::from(width).max(40), if height == 0 { usize::MAX } else { usize::from(height) })
    }

    fn style(&self) -> Style {
        Style { width: self.size().0, colours: self.colours, blocks: shows_blocks() }
    }

    fn draw(&mut self, lines: &[Line], style: Style) -> io::Result<()> {
        let mut picture = Vec::new();
        if self.is_terminal {
            picture.extend_from_slice(if self.is_clear { b"\x1b[H" } else { b"\x1b[2J\x1b[H" });
            self.is_clear = true;
            // The cursor stays below.
            for line in lines.iter().take(self.size().1.saturating_sub(1)) {
                line.write(style.width, &mut picture)?;
                picture.extend_from_slice(b"\x1b[K\n");
            }
            picture.extend_from_slice(b"\x1b[J");
        } else {
            write_plain(lines, style.width, &mut picture)?;
            picture.push(b'\n');
        }
        let mut out = io::stdout().lock();
        out.write_all(&picture)?;
        out.flush()
    }
}

fn write_plain(lines: &[Line], width: usize, out: &mut impl Write) -> io::Result<()> {
    for line in lines {
        line.write(width, out)?;
        writeln!(out)?;
    }
    Ok(())
}

fn as_json(view: &View) -> Value {
    let (state, status, rates) = match view {
        View::Live(status, rates) => ("live", status, rates.as_ref()),
        View::Still(status, _) => ("still", status, None),
        View::Silent => return json!({ "state": "silent" }),
    };
    let memory = &status.memory;
    json!({
        "state": state,
        "process": status.process,
        "open_seconds": status.open_for.as_secs_f64(),
        "last_seqno": status.last_seqno,
        "taken_bytes": status.taken_bytes,
        "read_bytes": status.read_bytes,
        "written_bytes": status.written_bytes,
        "pressure": status.pressure,
        "poisoned": status.is_poisoned,
        "memory": {
            "budget": memory.budget,
            "memtables": memory.memtables,
            "block_cache": memory.block_cache,
            "tables": memory.tables,
            "indexes": memory.indexes,
            "page_caches": memory.page_caches,
        },
        "memtables_limit": status.memtables_limit,
        "rates": rates.map(|rates| json!({
            "writes": rates.writes,
            "taken_bytes": rates.taken_bytes,
            "flushed_bytes": rates.flushed_bytes,
            "compacted_bytes": rates.compacted_bytes,
            "read_bytes": rates.read_bytes,
            "written_bytes": rates.written_bytes,
        })),
        "keyspaces": status.keyspaces.iter().map(keyspace).collect::<Vec<_>>(),
        "jobs": status.jobs.iter().map(|job| json!({
            "job": job.number,
            "keyspace": job.keyspace,
            "kind": job.kind.name(),
            "levels": job.levels.map(|(from, to)| [from, to]),
            "bytes": job.bytes,
            "seconds": job.running_for.as_secs_f64(),
        })).collect::<Vec<_>>(),
    })
}

fn keyspace(keyspace: &KeyspaceStatus) -> Value {
    let work = &keyspace.work;
    json!({
        "name": keyspace.name,
        "engine": keyspace.engine.to_string(),
        "disk_bytes": keyspace.disk_bytes,
        "memory_bytes": keyspace.memory_bytes,
        "flushes": keyspace.flushes,
        "compactions": keyspace.compactions,
        "flushed_bytes": work.flushed_bytes,
        "compaction_read_bytes": work.compaction_read_bytes,
        "compaction_written_bytes": work.compaction_written_bytes,
        "pressure": keyspace.pressure,
        "tree": keyspace.tree.as_ref().map(tree),
    })
}

fn tree(tree: &LsmStatus) -> Value {
    let levels = tree.levels.iter().map(|level| {
        let spans = level.spans.iter().map(|span| {
            json!({
                "smallest": hex::encode(&span.smallest),
                "largest": hex::encode(&span.largest),
                "tables": span.tables,
                "bytes": span.bytes,
            })
        });
        json!({
            "level": level.level,
            "runs": level.runs,
            "tables": level.tables(),
            "bytes": level.bytes(),
            "spans": spans.collect::<Vec<_>>(),
        })
    });
    let claims = tree.claims.iter().map(|claim| {
        json!({
            "claim": claim.claim,
            "level": claim.level,
            "smallest": hex::encode(&claim.smallest),
            "largest": hex::encode(&claim.largest),
        })
    });
    json!({
        "frozen": tree.frozen,
        "frozen_bytes": tree.frozen_bytes,
        "excess_runs": tree.excess_runs,
        "debt_bytes": tree.debt_bytes,
        "due": tree.is_due,
        "levels": levels.collect::<Vec<_>>(),
        "claims": claims.collect::<Vec<_>>(),
    })
}
