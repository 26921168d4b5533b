//! Reading all there is of a database that may be damaged.

use std::collections::BTreeMap;
use std::sync::Arc;

use turbidite::vfs::MemoryFs;
use turbidite::{Cursor, Database, DatabaseBuilder, Error, Keyspace, Layer, Range, Slice};

use crate::choices::is_ordered;
use crate::history;

/// The keys that were written to a keyspace, with their values, or `None` if they were deleted since.
pub type Records = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What each keyspace must hold, by name.
pub type Contents = BTreeMap<String, Records>;

/// What each keyspace may hold, by name: one of several, where it is not known how far what failed has come.
pub(super) type Wanted = BTreeMap<String, Vec<Records>>;

/// What came of opening and reading a database. No answer was wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It did not open, and nothing was changed.
    Refused,
    /// It opened, and [`verify`](Database::verify) told of damage.
    Reported,
    /// It opened, and the recovery told of bytes of the log that it has dropped, and `verify` of nothing else.
    Dropped,
    /// All answers were right, and nothing was said.
    Silent,
}

impl Verdict {
    /// What it is counted as.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Reported => "found by verify",
            Self::Dropped => "dropped by recovery",
            Self::Silent => "harmless",
        }
    }
}

/// What a damaged database is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// Reading, which recovers in memory and starts one thread.
    Reading,
    /// Writing, which does all the former does and goes on with the log, and starts several.
    Writing,
}

/// An error that was told.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// The keyspace that was read, if it was one by itself.
    pub(super) keyspace: Option<String>,
    pub(super) error: Error,
}

impl Told {
    pub(super) fn of_all(error: Error) -> Self {
        Self { keyspace: None, error }
    }

    pub(super) fn of(keyspace: &str, error: Error) -> Self {
        Self { keyspace: Some(keyspace.to_owned()), error }
    }
}

/// What was found, and the database in a file system of its own, if it opened.
pub(super) struct Examined {
    pub(super) verdict: Verdict,
    /// Which one of what was wanted was there; 0 if it did not open.
    pub(super) found: usize,
    pub(super) told: Vec<Told>,
    pub(super) opened: Option<(Database, MemoryFs)>,
}

/// How the database of [`history::PATH`] is opened with its log in `layer`.
pub(super) fn builder(fs: &MemoryFs, layer: Layer) -> DatabaseBuilder {
    history::builder(Arc::new(fs.clone())).log_layer(layer)
}

/// Opens the database at [`history::PATH`] in `fs`, with its log in `layer`, and reads all of it in every way: by [`get`](Keyspace::get) and
/// [`multi_get`](Keyspace::multi_get), forwards and backwards. That is done with a fork of `fs`, which stays as it is.
///
/// # Errors
/// An answer that is not one of `contents`, a failed opening that has changed something, a read that failed without a word from `verify`.
pub fn examine(
    fs: &MemoryFs,
    layer: Layer,
    contents: &Contents,
    opening: Opening,
) -> Result<Verdict, String> {
    examine_any(fs, layer, &[wanted(contents)], opening).map(|examined| examined.verdict)
}

/// These contents and no others.
pub(super) fn wanted(contents: &Contents) -> Wanted {
    contents.iter().map(|(name, records)| (name.clone(), vec![records.clone()])).collect()
}

/// The same with all that was found, where all keyspaces together may hold one of several things.
pub(super) fn examine_any(
    fs: &MemoryFs,
    layer: Layer,
    wanted: &[Wanted],
    opening: Opening,
) -> Result<Examined, String> {
    let fork = fs.fork_traced();
    // What only tries out whether there is direct I/O leaves nothing behind.
    let has_changed = |fork: &MemoryFs| fork.operations() > 0 && fork.files() != fs.files();
    let db = match builder(&fork, layer).read_only(opening == Opening::Reading).open() {
        Ok(db) => db,
        Err(error) if !has_changed(&fork) => {
            let told = vec![Told::of_all(error)];
            return Ok(Examined { verdict: Verdict::Refused, found: 0, told, opened: None });
        }
        Err(error) => return Err(format!("an opening that failed has changed files: {error:?}")),
    };
    let (found, mut told) = read_one_of(&db, wanted)?;
    let report = db.verify().map_err(|error| format!("verify itself failed: {error:?}"))?;
    match opening {
        Opening::Reading if has_changed(&fork) => return Err("a reader has changed files".into()),
        Opening::Reading => {}
        Opening::Writing => check_background(&db, &wanted[found])?,
    }
    let verdict = match told.first() {
        _ if !report.problems.is_empty() => Verdict::Reported,
        Some(read) => {
            return Err(format!("verify finds nothing, but a read failed: {:?}", read.error));
        }
        None if db.recovery().dropped_bytes > 0 => Verdict::Dropped,
        None => Verdict::Silent,
    };
    told.extend(report.problems.into_iter().map(Told::of_all));
    Ok(Examined { verdict, found, told, opened: Some((db, fork)) })
}

/// Reads all keyspaces, which together hold one of `all`: the first of them that it can be, and what failed. If it is none, what is wrong with the last.
fn read_one_of(db: &Database, all: &[Wanted]) -> Result<(usize, Vec<Told>), String> {
    let mut wrong = String::new();
    for (number, wanted) in all.iter().enumerate() {
        match read_all(db, wanted) {
            Ok(told) => return Ok((number, told)),
            Err(what) => wrong = what,
        }
    }
    Err(wrong)
}

/// Reads all keyspaces; gives what failed.
pub(super) fn read_all(db: &Database, wanted: &Wanted) -> Result<Vec<Told>, String> {
    let keyspaces = db.keyspaces();
    if keyspaces.len() != wanted.len() {
        return Err(format!("there are {} keyspaces of {}", keyspaces.len(), wanted.len()));
    }
    let mut told = Vec::new();
    for info in keyspaces {
        let name = &info.name;
        let states = wanted.get(name).ok_or_else(|| format!("{name} is none of them"))?;
        let keyspace = db.open_keyspace(name).map_err(|error| format!("{name}: {error:?}"))?;
        let errors = read_any(&keyspace, states, is_ordered(info.engine))
            .map_err(|wrong| format!("{name}: {wrong}"))?;
        told.extend(errors.into_iter().map(|error| Told::of(name, error)));
    }
    Ok(told)
}

/// Reads a keyspace that holds one of `states`, all of it the same one; gives what failed, or what is wrong with the last of them if it
/// is none.
fn read_any(
    keyspace: &Keyspace,
    states: &[Records],
    is_ordered: bool,
) -> Result<Vec<Error>, String> {
    let mut wrong = String::new();
    for records in states {
        let mut reader = Reader { keyspace, records, errors: Vec::new() };
        match reader.read(is_ordered) {
            Ok(()) => return Ok(reader.errors),
            Err(what) => wrong = what,
        }
    }
    Err(wrong)
}

/// An error if a background thread has panicked: then a write tells.
fn check_background(db: &Database, wanted: &Wanted) -> Result<(), String> {
    if !db.status().is_poisoned {
        return Ok(());
    }
    let name = wanted.keys().next().ok_or("it is poisoned, with nothing in it")?;
    let written = db.open_keyspace(name).and_then(|keyspace| keyspace.put("key", "value"));
    match written {
        Err(error) if !format!("{error:?} {error}").contains("panicked") => Ok(()),
        Err(error) => Err(format!("{error}")),
        Ok(()) => Err("it is poisoned, but takes writes".into()),
    }
}

/// Reads a keyspace in every way. A wrong answer is an error; a read that fails is noted.
struct Reader<'a> {
    keyspace: &'a Keyspace,
    records: &'a Records,
    errors: Vec<Error>,
}

type Entry<'a> = (&'a [u8], &'a [u8]);

impl<'a> Reader<'a> {
    fn read(&mut self, is_ordered: bool) -> Result<(), String> {
        self.read_by_key()?;
        self.read_at_once()?;
        if !is_ordered {
            return self.read_in_any_order();
        }
        self.read_forwards()?;
        self.read_backwards()
    }

    /// What is there, in order.
    fn present(&self) -> impl DoubleEndedIterator<Item = Entry<'a>> + use<'a> {
        self.records.iter().filter_map(|(key, value)| Some((&key[..], value.as_deref()?)))
    }

    /// The answer, unless it is an error, which is noted.
    fn noted<T>(&mut self, answer: turbidite::Result<T>) -> Option<T> {
        answer.map_err(|error| self.errors.push(error)).ok()
    }

    fn read_by_key(&mut self) -> Result<(), String> {
        for (key, value) in self.records {
            if let Some(found) = self.noted(self.keyspace.get(key)) {
                check_value(key, found.as_ref(), value)?;
            }
        }
        Ok(())
    }

    fn read_at_once(&mut self) -> Result<(), String> {
        let Some(all) = self.noted(self.keyspace.multi_get(self.records.keys())) else {
            return Ok(());
        };
        if all.len() != self.records.len() {
            return Err("multi_get gives another number of values than of keys".into());
        }
        let mut pairs = self.records.iter().zip(&all);
        pairs.try_for_each(|((key, value), found)| check_value(key, found.as_ref(), value))
    }

    fn read_in_any_order(&mut self) -> Result<(), String> {
        let mut missing: BTreeMap<_, _> = self.present().collect();
        let mut failed = false;
        let mut all = self.keyspace.iter();
        while let Some(entry) = all.next() {
            let Some((key, value)) = self.noted(entry) else {
                expect_ended(&mut all)?;
                failed = true;
                break;
            };
            if missing.remove(&key[..]) != Some(&value[..]) {
                return Err(format!("iteration gives {} twice or wrongly", key.escape_ascii()));
            }
        }
        match missing.first_key_value() {
            Some((key, _)) if !failed => {
                Err(format!("iteration passes over {}", key.escape_ascii()))
            }
            _ => Ok(()),
        }
    }

    fn read_forwards(&mut self) -> Result<(), String> {
        let mut wanted = self.present();
        let mut all = self.keyspace.iter();
        while let Some(entry) = all.next() {
            let Some((key, value)) = self.noted(entry) else { return expect_ended(&mut all) };
            check_next(wanted.next(), Some((&key, &value)))?;
        }
        check_next(wanted.next(), None)
    }

    fn read_backwards(&mut self) -> Result<(), String> {
        let mut wanted = self.present().rev();
        let Some(mut cursor) = self.noted(self.keyspace.cursor()) else { return Ok(()) };
        let mut step = cursor.seek_to_last();
        while step.is_ok() && cursor.is_valid() {
            check_next(wanted.next(), Some((cursor.key(), cursor.value())))?;
            step = cursor.prev();
        }
        match step {
            Ok(()) => check_next(wanted.next(), None),
            Err(error) => {
                let stays_failed = expect_failed(&mut cursor, &error);
                self.errors.push(error);
                stays_failed
            }
        }
    }
}

/// A range that has failed has nothing more, at neither end: else it would pass over what could not be read.
fn expect_ended(range: &mut Range) -> Result<(), String> {
    for next in [Range::next, Range::next_back, Range::next] {
        if let Some(more) = next(range) {
            let more = more.map(|(key, _)| key.escape_ascii().to_string());
            return Err(format!("a range that has failed goes on with {more:?}"));
        }
    }
    Ok(())
}

/// A cursor that has failed gives the same error again, and is on nothing.
fn expect_failed(cursor: &mut Cursor, error: &Error) -> Result<(), String> {
    for go in [Cursor::prev, Cursor::next, Cursor::seek_to_first, Cursor::seek_to_last] {
        match go(cursor) {
            Err(again) if again.to_string() == error.to_string() && !cursor.is_valid() => {}
            other => return Err(format!("a cursor that has failed by {error} goes on: {other:?}")),
        }
    }
    Ok(())
}

fn check_value(key: &[u8], found: Option<&Slice>, wanted: &Option<Vec<u8>>) -> Result<(), String> {
    if found.map(|value| &value[..]) == wanted.as_deref() {
        return Ok(());
    }
    let len = |len: Option<usize>| len.map_or("nothing".to_owned(), |len| format!("{len} bytes"));
    let (found, wanted) = (found.map(|value| value.len()), wanted.as_ref().map(Vec::len));
    Err(format!("{} gives {} for {}", key.escape_ascii(), len(found), len(wanted)))
}

fn check_next(wanted: Option<Entry<'_>>, found: Option<Entry<'_>>) -> Result<(), String> {
    if wanted == found {
        return Ok(());
    }
    let name = |entry: Option<Entry<'_>>| {
        entry.map_or("end".into(), |entry| entry.0.escape_ascii().to_string())
    };
    Err(format!(
        "iteration comes to {}, but should to {}, or the value is wrong",
        name(found),
        name(wanted)
    ))
}
