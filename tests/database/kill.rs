//! A real process, killed while it writes to real files.
//!
//! The parent starts this test binary again as the child, which writes and says on its standard output what
//! was acknowledged. What the parent has read from the pipe must be there afterwards.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use turbidite::{Database, Durability, EngineKind, Keyspace, Layer};

use crate::choices;
use crate::history::Dice;
use crate::setup::{ENGINES, contents, layers};

/// Tells the child the layer of all files, the engine of the first keyspace, the seed of options, and the database.
const CHILD: &str = "TURBIDITE_KILLED_CHILD";
const ROUNDS: usize = 2;
const WRITERS: usize = 2;
/// In front of what the child says: the test harness says things too.
const SAYS: &str = "acknowledged ";

/// The layer of all files, the engine of the first keyspace, and what options are drawn with; the second keyspace is on
/// another engine.
#[derive(Clone, Copy, Debug)]
struct Kind {
    layer: Layer,
    engine: EngineKind,
    seed: u64,
    /// The round: other options are drawn for each.
    opening: u64,
}

impl Kind {
    fn new(layer: &str, engine: &str, seed: u64, opening: u64) -> Self {
        let layer: Layer = layer.parse().unwrap();
        // A cache that is smaller than what the log writes between two syncs.
        let layer = layer.with_page_cache_pages(16).unwrap_or(layer);
        Self { layer, engine: engine.parse().unwrap(), seed, opening }
    }

    /// What the child is told.
    fn task(self, path: &Path) -> String {
        let Self { layer, engine, seed, opening } = self;
        format!("{layer} {engine} {seed} {opening} {}", path.display())
    }

    fn open(self, path: &Path) -> Database {
        let builder = Database::builder(path).memory_budget(8 << 20).log_layer(self.layer);
        choices::database(builder, self.seed, self.opening).open().unwrap()
    }

    fn keyspaces(self, db: &Database) -> [Keyspace; 2] {
        let second = ENGINES.into_iter().find(|&other| other != self.engine).unwrap();
        [("one", self.engine), ("two", second)].map(|(name, engine)| {
            let options = choices::options(engine, choices::mix(self.seed, name), self.opening);
            db.keyspace(name, options.layer(self.layer)).unwrap()
        })
    }
}

/// What a writer has in a keyspace, in order.
fn written_by(keyspace: &Keyspace, writer: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = contents(keyspace.iter());
    all.retain(|key, _| key.starts_with(format!("{writer} ").as_bytes()));
    all
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

/// Whether a write that need not survive a kill is made to survive it.
fn is_flushed(number: u64) -> bool {
    number % 3 == 1
}

/// What the child process runs; nothing without a parent that asks for it.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let [layer, engine, seed, opening, path] = task.splitn(5, ' ').collect::<Vec<_>>()[..] else {
        unreachable!()
    };
    let kind = Kind::new(layer, engine, seed.parse().unwrap(), opening.parse().unwrap());
    let db = kind.open(Path::new(path));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let db = &db;
            scope.spawn(move || write_forever(kind, db, writer));
        }
    });
}

fn write_forever(kind: Kind, db: &Database, writer: usize) {
    let [one, two] = kind.keyspaces(db);
    let done = written_by(&one, writer).len() as u64;
    for number in done.. {
        let (key, value) = (key(writer, number), value(writer, number));
        if is_batch(number) {
            let mut batch = db.batch();
            batch.put(&one, &key, &value).put(&two, &key, &value);
            batch.commit().unwrap();
        } else if is_flushed(number) {
            one.put_with(&key, &value, Durability::Buffered).unwrap();
            db.flush_log().unwrap();
        } else {
            one.put(&key, &value).unwrap();
        }
        let said = format!("{SAYS}{writer} {number}\n");
        std::io::stdout().lock().write_all(said.as_bytes()).unwrap();
    }
}

/// Lets a child write for a while, kills it, and gives the last number each writer had acknowledged.
fn run_and_kill(path: &Path, kind: Kind, time: Duration) -> BTreeMap<usize, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child_that_writes_until_it_is_killed", "--nocapture"])
        .env(CHILD, kind.task(path))
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let mut acknowledged = BTreeMap::new();
        for line in said.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            // The harness does not end its own line before the child's first one.
            let Some((_, said)) = line.split_once(SAYS) else { continue };
            let (writer, number) = said.split_once(' ').expect("the writer and the number");
            acknowledged.insert(writer.parse().unwrap(), number.parse().unwrap());
        }
        acknowledged
    });
    std::thread::sleep(time);
    assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// Checks the recovered database against what was acknowledged; gives the number of writes found.
fn check(kind: Kind, db: &Database, acknowledged: &BTreeMap<usize, u64>) -> u64 {
    let [one, two] = kind.keyspaces(db);
    let mut found = 0;
    for writer in 0..WRITERS {
        let mut next = 0;
        for (stored, bytes) in written_by(&one, writer) {
            assert_eq!(*stored, *key(writer, next).as_bytes(), "a write is missing");
            assert_eq!(*bytes, *value(writer, next));
            next += 1;
        }
        let promised = acknowledged.get(&writer).map_or(0, |last| last + 1);
        assert!(next >= promised, "writer {writer}: {next} of {promised} acknowledged writes");
        let batches = (0..next).filter(|&number| is_batch(number));
        let expected: Vec<_> = batches.map(|number| key(writer, number).into_bytes()).collect();
        let stored: Vec<_> = written_by(&two, writer).into_keys().collect();
        assert_eq!(stored, expected, "a batch is there in part");
        found += next;
    }
    let report = db.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    found
}

fn kill_again_and_again(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut dice = Dice::new(u64::from(std::process::id()));
    let mut found = 0;
    for opening in 0..ROUNDS as u64 {
        let kind = Kind { opening, ..kind };
        let time = Duration::from_millis(100 + dice.roll(700) as u64);
        let acknowledged = run_and_kill(&path, kind, time);
        let db = kind.open(&path);
        let now = check(kind, &db, &acknowledged);
        assert!(now > found || acknowledged.is_empty());
        found = now;
        db.close().unwrap();
    }
    println!("{kind:?}: {found} writes survived {ROUNDS} kills");
}

/// Over every engine, if the disk has this layer.
fn kill_in(layer: &str) {
    if layers().iter().any(|there| there.to_string() == layer) {
        for engine in ENGINES {
            kill_again_and_again(Kind::new(layer, &engine.to_string(), choices::seed(), 0));
        }
    }
}

#[test]
fn acknowledged_writes_survive_kills_with_mapped_files() {
    kill_in("mmap");
}

#[test]
fn acknowledged_writes_survive_kills_with_positional_files() {
    kill_in("pos");
}

#[test]
fn acknowledged_writes_survive_kills_with_files_in_blocks() {
    kill_in("pos-block");
    kill_in("pos-block-cache");
}

#[test]
fn acknowledged_writes_survive_kills_with_direct_files() {
    kill_in("pos-direct");
    kill_in("pos-direct-cache");
}
