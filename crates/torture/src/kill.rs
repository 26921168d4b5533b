//! Kills of real processes, in the middle of what they write to real files.
//!
//! A process of its own opens a database, writes to it with some threads, and says what was acknowledged; another one kills it at some
//! moment, which may be in the middle of the opening, and opens the database: all that it had heard of must be there, batches whole, and nothing
//! that was not written. Then the next process goes on with it, with other options: with what was closed after a look, or with what the kill has left, which
//! is only looked at every second time.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use turbidite::vfs::{DiskFs, Fs};
use turbidite::{Database, DatabaseBuilder, Durability, ErrorKind, Keyspace, Layer, Result};

use crate::choices::{self, mix};
use crate::history;
use crate::report::Report;
use crate::setting::Setting;
use crate::watch::watched;
use crate::{Dice, panics};

/// Threads that write.
const WRITERS: usize = 2;
/// In front of what the process says: others may say things there, too.
const SAYS: &str = "acknowledged ";
/// The longest time that a process lives, in milliseconds.
const LONGEST: usize = 300;
/// The signal that a process is killed with.
const KILLED: i32 = 9;
/// The last process lives on until each of its threads has said something, which takes no longer than this.
const PATIENCE: Duration = Duration::from_secs(60);
/// So often the processes that work on one database are killed, before there is a new one.
pub const KILLS: u64 = 6;

/// Whether files of `layer` can be used in `dir`: some file systems have no direct I/O.
///
/// # Errors
/// If no file can be made there.
pub fn is_possible(layer: Layer, dir: &Path) -> Result<bool> {
    if !matches!(layer, Layer::Direct { .. } | Layer::DirectCache { .. }) {
        return Ok(true);
    }
    let fs = DiskFs::new();
    let path = dir.join("probe");
    match fs.create(&path, Layer::Direct { block_size: Layer::DEFAULT_BLOCK_SIZE }) {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        file => {
            drop(file?);
            fs.remove(&path).map(|()| true)
        }
    }
}

/// What a process is to do: to open the database at a path for the `opening`th time and to write to it. As a text, `SETTING OPENING PATH`.
struct Task<'a> {
    setting: Setting,
    opening: u64,
    path: &'a Path,
}

impl<'a> Task<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (setting, opening) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { setting, opening, path: Path::new(parts.next()?) })
    }

    fn text(&self) -> String {
        format!("{} {} {}", self.setting, self.opening, self.path.display())
    }

    fn open(&self) -> Result<Database> {
        self.builder().open()
    }

    fn builder(&self) -> DatabaseBuilder {
        // A cache that is smaller than what the log writes between two syncs.
        let layer = self.setting.layer;
        let layer = layer.with_page_cache_pages(16).unwrap_or(layer);
        let builder = Database::builder(self.path).memory_budget(8 << 20).log_layer(layer);
        choices::database(builder, self.setting.seed, self.opening)
    }

    /// Its keyspaces, for reading only, which leaves all as it is; `None` if they have not been made yet.
    fn look(&self) -> Result<Option<[Keyspace; 2]>> {
        let opened = self.builder().read_only(true).open();
        let pair = opened.and_then(|db| Ok([db.open_keyspace("one")?, db.open_keyspace("two")?]));
        match pair {
            Err(error)
                if [ErrorKind::NotADatabase, ErrorKind::UnknownKeyspace]
                    .contains(&error.kind()) =>
            {
                Ok(None)
            }
            pair => pair.map(Some),
        }
    }

    /// One keyspace for all that is written, and one that batches go to, too.
    fn keyspaces(&self, db: &Database) -> Result<[Keyspace; 2]> {
        self.setting.open_pair(db, self.opening, |options, _, _| options)
    }
}

/// What a writer has in a keyspace, in order.
fn written_by(keyspace: &Keyspace, writer: usize) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for entry in keyspace.iter() {
        let (key, value) = entry?;
        if key.starts_with(format!("{writer} ").as_bytes()) {
            let before = all.insert(key.to_vec(), value.to_vec());
            assert!(before.is_none(), "{key:?} comes twice");
        }
    }
    Ok(all)
}

fn key(writer: usize, number: u64) -> String {
    format!("{writer} {number:08}")
}

/// The value of a write: every tenth one is large, so that memtables and segments fill up.
fn value(writer: usize, number: u64) -> Vec<u8> {
    let len = if number.is_multiple_of(10) { 6000 } else { 60 };
    Dice::new(number * 2 + writer as u64).bytes(len)
}

/// Whether a write goes to both keyspaces in one batch.
fn is_batch(number: u64) -> bool {
    number.is_multiple_of(3)
}

/// So many of the last writes of each thread, and of those that it has not made, are looked up by themselves.
const LOOKED_UP: u64 = 20;
/// A batch takes from the second keyspace what the one so many writes before it has put there: the same thread's.
const LIVES: u64 = 150;

/// Whether the second keyspace has what a write put there when there have been so many.
fn is_in_two(number: u64, writes: u64) -> bool {
    is_batch(number) && number + LIVES >= writes
}

/// What else a thread does after a write.
fn upkeep(number: u64, [one, two]: [&Keyspace; 2]) -> Result<()> {
    match number % 300 {
        70 => one.persist(),
        140 => two.persist(),
        210 => one.compact(),
        280 => two.compact(),
        _ => Ok(()),
    }
}

/// Whether a write that need not survive a kill is made to survive it.
fn is_flushed(number: u64) -> bool {
    number % 3 == 1
}

/// Does a task that [`run`] gave to this process: writes, and says so, until the process is killed.
///
/// # Panics
/// If the text is no task, or if anything fails.
pub fn work(task: &str) {
    let task = Task::parse(task).unwrap_or_else(|| panic!("no task: {task:?}"));
    let db = task.open().expect("the database can be opened");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, task) = (&db, &task);
            scope.spawn(move || write(task, db, writer).expect("nothing fails"));
        }
    });
}

fn write(task: &Task<'_>, db: &Database, writer: usize) -> Result<()> {
    let [one, two] = task.keyspaces(db)?;
    let done = written_by(&one, writer)?.len() as u64;
    for number in done.. {
        let (key, value) = (key(writer, number), value(writer, number));
        if is_batch(number) {
            let mut batch = db.batch();
            batch.put(&one, &key, &value).put(&two, &key, &value);
            if let Some(old) = number.checked_sub(LIVES) {
                batch.delete(&two, self::key(writer, old));
            }
            batch.commit()?;
        } else if is_flushed(number) {
            one.put_with(&key, &value, Durability::Buffered)?;
            db.flush_log()?;
        } else if number % 50 == 2 {
            one.put_with(&key, &value, Durability::Sync)?;
        } else {
            one.put(&key, &value)?;
        }
        upkeep(number, [&one, &two])?;
        let said = format!("{SAYS}{writer} {number}\n");
        if std::io::stdout().lock().write_all(said.as_bytes()).is_err() {
            // Nobody listens any more: who started it has ended.
            return Ok(());
        }
    }
    Ok(())
}

/// The last number that each writer had acknowledged.
type Acknowledged = BTreeMap<usize, u64>;

/// Listens until the process says no more. Lines that are cut off are not counted. Tells how many of its threads have said something.
fn listen(stdout: ChildStdout, speakers: &AtomicUsize) -> Acknowledged {
    let (mut said, mut line) = (BufReader::new(stdout), Vec::new());
    let mut acknowledged = Acknowledged::new();
    while said.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
        let whole = text.strip_suffix('\n').and_then(|text| text.split_once(SAYS));
        let Some((writer, number)) = whole.and_then(|(_, said)| said.split_once(' ')) else {
            continue;
        };
        if let (Ok(writer), Ok(number)) = (writer.parse(), number.parse()) {
            acknowledged.insert(writer, number);
            speakers.store(acknowledged.len(), Ordering::Release);
        }
    }
    acknowledged
}

/// Lets a process write to the database of a task for so long, and, if it is `to_speak`, until all of its threads have said something, and kills
/// it. Meanwhile nobody else may open it.
fn run_and_kill(
    command: &mut Command,
    task: &Task<'_>,
    time: Duration,
    to_speak: bool,
) -> std::result::Result<Acknowledged, String> {
    let told = |error: std::io::Error| format!("the process cannot be run: {error}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(told)?;
    let stdout = child.stdout.take().expect("it is piped");
    let speakers = Arc::new(AtomicUsize::new(0));
    let tells = Arc::clone(&speakers);
    let listening = std::thread::spawn(move || listen(stdout, &tells));
    let begun = Instant::now();
    std::thread::sleep(time);
    let is_silent = || to_speak && speakers.load(Ordering::Acquire) < WRITERS;
    let hangs = || begun.elapsed() > PATIENCE;
    // One that has ended will say nothing more.
    while is_silent() && !hangs() && !listening.is_finished() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let is_open = speakers.load(Ordering::Acquire) > 0;
    let case = format!("kill/{}", task.setting);
    let second = is_open.then(|| watched(case, || Database::builder(task.path).open().map(drop)));
    // An error if it has ended already, which its status tells, too.
    let killed = child.kill();
    let status = child.wait().map_err(told)?;
    let acknowledged = listening.join().expect("listening does not panic");
    if status.signal() != Some(KILLED) {
        return Err(format!("the process ended by itself with {status}"));
    }
    match second {
        _ if is_silent() => {
            Err(format!("not each thread has done anything within {} s", PATIENCE.as_secs()))
        }
        Some(Ok(())) => Err("two processes have opened it at once".into()),
        Some(Err(error)) if error.kind() != ErrorKind::Locked => {
            Err(format!("to a second opener it is not locked: {error:?}"))
        }
        _ => killed.map(|()| acknowledged).map_err(told),
    }
}

/// The files below `dir`, with their lengths.
fn files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("the directory can be read") {
        let path = entry.expect("the directory can be read").path();
        match std::fs::metadata(&path).expect("nobody removes it") {
            data if data.is_dir() => found.extend(files(&path)),
            data => found.push((path, data.len())),
        }
    }
    found
}

/// Checks the recovered database against what was acknowledged, and closes it; gives the number of writes found.
fn check(task: &Task<'_>, acknowledged: &Acknowledged) -> Result<u64> {
    let db = task.open()?;
    let found = check_writes(task.keyspaces(&db)?, acknowledged)?;
    let leftovers = history::leftovers(&db, || files(task.path))?;
    assert!(leftovers.is_none(), "{leftovers:?}");
    let problems = db.verify()?.problems;
    assert!(problems.is_empty(), "{problems:?}");
    db.close()?;
    Ok(found)
}

/// Checks what the kill has left in the same way, and leaves it so to the next process.
fn check_as_it_is(task: &Task<'_>, acknowledged: &Acknowledged) -> Result<u64> {
    match task.look()? {
        Some(keyspaces) => check_writes(keyspaces, acknowledged),
        None => {
            assert!(acknowledged.is_empty(), "nothing is there of {acknowledged:?}");
            Ok(0)
        }
    }
}

/// Checks both keyspaces against what was acknowledged; gives the number of writes found.
fn check_writes([one, two]: [Keyspace; 2], acknowledged: &Acknowledged) -> Result<u64> {
    let (mut found, mut in_two) = (0, 0);
    for writer in 0..WRITERS {
        let mut next = 0;
        for (stored, bytes) in written_by(&one, writer)? {
            assert_eq!(*stored, *key(writer, next).as_bytes(), "a write is missing");
            assert_eq!(*bytes, *value(writer, next), "not what was written: {stored:?}");
            next += 1;
        }
        let promised = acknowledged.get(&writer).map_or(0, |last| last + 1);
        assert!(next >= promised, "writer {writer}: {next} of {promised} acknowledged writes");
        let batches = (0..next).filter(|&number| is_in_two(number, next));
        let expected: Vec<_> =
            batches.clone().map(|number| key(writer, number).into_bytes()).collect();
        let two = written_by(&two, writer)?;
        let is_right = batches
            .clone()
            .all(|number| two.get(key(writer, number).as_bytes()) == Some(&value(writer, number)));
        let stored: Vec<_> = two.into_keys().collect();
        assert!(stored == expected && is_right, "a batch is there in part: {stored:?}");
        for number in next.saturating_sub(LOOKED_UP)..next + LOOKED_UP {
            let value = (number < next).then(|| self::value(writer, number));
            let got = one.get(key(writer, number))?;
            assert!(got.as_deref() == value.as_deref(), "a get of {writer} {number} is wrong");
        }
        found += next;
        in_two += expected.len() as u64;
    }
    let there = [one.count()?, two.count()?];
    assert_eq!(there, [found, in_two], "there is something else than what was written");
    Ok(found)
}

/// Has [`KILLS`] processes one after the other write to a database in `dir`, which is empty, and kills each. `start` makes the command that starts
/// a process which calls [`work`] with the text it is given. The seed decides workload and options; when a process is killed is up to chance. A case is a
/// kill, an operation is an acknowledged write.
pub fn run(setting: Setting, dir: &Path, start: &dyn Fn(&str) -> Command) -> Report {
    let path = dir.join("db");
    let mut dice = Dice::new(mix(setting.seed, std::process::id()));
    let (mut report, mut before) = (Report::default(), 0);
    for opening in 0..KILLS {
        let task = Task { setting, opening, path: &path };
        let time = Duration::from_millis(1 + dice.roll(LONGEST) as u64);
        let checked = run_and_kill(&mut start(&task.text()), &task, time, opening + 1 == KILLS)
            .and_then(|acknowledged| {
                // The next process recovers what every second kill has left, and may be killed while it does.
                let check = if opening % 2 == 0 { check_as_it_is } else { check };
                let checked = panics::caught(|| {
                    watched(format!("kill/{setting}"), || check(&task, &acknowledged))
                })?;
                checked.map_err(|error| format!("after the kill: {error:?}"))
            });
        report.cases += 1;
        report.fire("kill", 1);
        let problem = match checked {
            Ok(found) if found >= before => {
                report.operations += found - before;
                before = found;
                continue;
            }
            Ok(found) => format!("{found} writes are left of {before} that had survived before"),
            Err(problem) => problem,
        };
        report += Report {
            cases: 0,
            ..Report::of_violation(format!("kill/{setting}"), format!("kill {opening}: {problem}"))
        };
        break;
    }
    report
}

#[cfg(test)]
mod tests {
    use turbidite::Layer;

    use super::*;

    #[test]
    fn a_task_is_read_again() {
        let path = Path::new("/a path/with blanks");
        let setting = Setting::new(7, Layer::Mmap);
        let text = Task { setting, opening: 3, path }.text();
        let task = Task::parse(&text).unwrap();
        assert_eq!((task.setting, task.opening, task.path), (setting, 3, path));
        assert!(Task::parse("7/all/mmap").is_none());
    }

    #[test]
    fn what_is_missing_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let task = Task { setting: Setting::new(7, Layer::Positional), opening: 0, path: &path };
        let other = Task { path: &dir.path().join("other"), ..task };
        let db = task.open().unwrap();
        let [one, _] = task.keyspaces(&db).unwrap();
        assert_eq!(check_as_it_is(&other, &Acknowledged::new()).unwrap(), 0);
        let problem = panics::caught(|| check_as_it_is(&other, &Acknowledged::from([(0, 1)])));
        assert!(problem.unwrap_err().contains("nothing is there"));
        one.put(key(0, 0), value(0, 0)).unwrap();
        drop((one, db));
        for check in [check_as_it_is, check] {
            let problem = panics::caught(|| check(&task, &Acknowledged::new())).unwrap_err();
            assert!(problem.contains("a batch is there in part"), "{problem}");
            let checked = panics::caught(|| check(&task, &Acknowledged::from([(0, 1)])));
            let problem = checked.unwrap_err();
            assert!(problem.contains("1 of 2 acknowledged"), "{problem}");
        }
        let db = task.open().unwrap();
        let [_, two] = task.keyspaces(&db).unwrap();
        two.put(key(0, 0), value(0, 0)).unwrap();
        two.put("nobody has written this", "").unwrap();
        drop((two, db));
        let problem = panics::caught(|| check(&task, &Acknowledged::new())).unwrap_err();
        assert!(problem.contains("something else"), "{problem}");
    }

    #[test]
    fn a_process_that_ends_is_a_violation() {
        let dir = tempfile::tempdir().unwrap();
        let setting = Setting::new(7, Layer::Positional);
        for ends in ["exit 0", "exit 1", "kill -ABRT $$"] {
            let report = run(setting, dir.path(), &|_| {
                let mut command = Command::new("sh");
                command.args(["-c", ends]);
                command
            });
            assert!(report.violations[0].problem.contains("ended by itself"), "{report:?}");
        }
    }
}
