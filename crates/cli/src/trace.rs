//! A record of background work: one JSON line for each flush and each compaction.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use turbidite::{Event, JobKind, LevelRange, Listener, Outcome};

use crate::failure::{Failure, Result};
use crate::hex;

/// A file of such lines.
#[derive(Debug)]
pub(crate) struct Trace {
    path: PathBuf,
    began: Instant,
    lines: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    file: BufWriter<File>,
    /// The first error of writing: nothing is written behind it.
    error: Option<io::Error>,
}

impl Trace {
    /// Creates the file, or empties it.
    pub(crate) fn create(path: &Path) -> Result<Arc<Self>> {
        let file = File::create(path).map_err(|error| Failure::io("create", path, &error))?;
        let lines = Mutex::new(Lines { file: BufWriter::new(file), error: None });
        Ok(Arc::new(Self { path: path.to_path_buf(), began: Instant::now(), lines }))
    }

    /// Hands all lines to the file. An error if any could not be written.
    pub(crate) fn finish(&self) -> Result<()> {
        let mut lines = self.lock();
        let flushed = lines.file.flush();
        let error = lines.error.take().map_or(flushed, Err);
        error.map_err(|error| Failure::io("write", &self.path, &error))
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Trace {
    fn event(&self, event: &Event) {
        if event.kind != JobKind::Flush && !event.kind.is_compaction() {
            return;
        }
        let opened = event.opened.saturating_duration_since(self.began).as_secs_f64();
        let line = line(event, opened);
        let mut lines = self.lock();
        if lines.error.is_none() {
            lines.error = writeln!(lines.file, "{line}").err();
        }
    }
}

/// What is written of a job of a database that was opened so many seconds after the clock began.
fn line(event: &Event, opened: f64) -> Value {
    let (outcome, error) = match &event.outcome {
        Outcome::Done => ("done", None),
        Outcome::GivenUp => ("given-up", None),
        Outcome::Failed(error) => ("failed", Some(error.to_string())),
        _ => ("other", None),
    };
    json!({
        "job": event.number,
        "keyspace": &*event.keyspace,
        "kind": event.kind.name(),
        "opened": opened,
        "start": opened + event.start.as_secs_f64(),
        "end": opened + event.end.as_secs_f64(),
        "together": event.together,
        "inputs": event.inputs.iter().map(range).collect::<Vec<_>>(),
        "outputs": event.outputs.iter().map(range).collect::<Vec<_>>(),
        "read_bytes": event.read_bytes,
        "written_bytes": event.written_bytes,
        "outcome": outcome,
        "error": error,
    })
}

fn range(range: &LevelRange) -> Value {
    json!({
        "level": range.level,
        "tables": range.tables,
        "bytes": range.bytes,
        "smallest": hex::encode(&range.smallest),
        "largest": hex::encode(&range.largest),
    })
}
