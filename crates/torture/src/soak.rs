//! A long life: one database on real files under a mixed load that goes on and on, closed and opened again with other options, with all that
//! is read checked and with bounds on memory, open files and space that it must keep to for ever.
//!
//! Each key has versions, which one thread writes in ascending order; so any read at any time can be judged: it must give a version between the
//! last one that was acknowledged before it began and the last one that was begun before it ended.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use turbidite::{Database, EngineKind, Keyspace, KeyspaceOptions, Policy};

use crate::choices::{self, mix};
use crate::report::Report;
use crate::setting::Setting;
use crate::watch::watched;
use crate::{Dice, panics};

/// Keys of each keyspace.
const KEYS: usize = 20_000;
/// Threads that write, each its own keys,
const WRITERS: usize = 2;
/// and that read any.
const READERS: usize = 1;
/// How long the database is open at a time.
const OPEN: Duration = Duration::from_secs(5);
/// How often it is measured what is taken meanwhile.
const INTERVAL: Duration = Duration::from_millis(100);
/// The memory budget.
const BUDGET: u64 = 16 << 20;
/// What the process may take beside the budget: the versions, stacks, what the allocator keeps.
const BESIDE: u64 = 96 << 20;
/// Files that may be open beside the most that the options allow.
const MOST_FILES: u64 = 512 + 64;
/// So many times the records that are there may be on the disk, beside the log and what is being written.
const MOST_SPACE: u64 = 8;
const SPACE_BESIDE: u64 = 256 << 20;

type Outcome<T> = Result<T, String>;

fn told(error: turbidite::Error) -> String {
    format!("{error:?}")
}

/// The versions of a keyspace's keys.
struct Versions {
    begun: Vec<AtomicU32>,
    acknowledged: Vec<AtomicU32>,
}

impl Versions {
    fn new() -> Self {
        let zeros = || (0..KEYS).map(|_| AtomicU32::new(0)).collect();
        Self { begun: zeros(), acknowledged: zeros() }
    }

    fn acknowledged(&self, key: usize) -> u32 {
        self.acknowledged[key].load(Ordering::SeqCst)
    }

    fn begun(&self, key: usize) -> u32 {
        self.begun[key].load(Ordering::SeqCst)
    }
}

/// Whether a version is a deletion, or nothing.
fn is_nothing(version: u32) -> bool {
    version.is_multiple_of(5)
}

fn key(number: usize) -> [u8; 8] {
    // Not in the order of numbers.
    (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// The value of a version: the version, and bytes that follow from it.
fn value(number: usize, version: u32) -> Vec<u8> {
    let mut dice = Dice::new(mix(u64::from(version), number));
    let len = dice.roll(2000);
    let filling = dice.roll(256) as u8;
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.resize(4 + len, filling);
    bytes
}

/// The version of a value, all of which must be there.
fn version(number: usize, found: Option<&[u8]>) -> Outcome<Option<u32>> {
    let Some(bytes) = found else { return Ok(None) };
    let version = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    match *bytes == value(number, version) {
        true => Ok(Some(version)),
        false => Err(format!("key {number} has a value that nobody wrote: {bytes:?}")),
    }
}

/// Whether a read between `oldest` and `newest` may give that.
fn is_possible(found: Option<u32>, oldest: u32, newest: u32) -> bool {
    match found {
        Some(version) => (oldest..=newest).contains(&version) && !is_nothing(version),
        None => (oldest..=newest).any(is_nothing),
    }
}

/// The database and what is known of it.
struct World<'a> {
    setting: Setting,
    path: &'a Path,
    versions: [Versions; 2],
    operations: AtomicU64,
}

impl World<'_> {
    fn open(&self, opening: u64) -> Outcome<(Database, [Keyspace; 2])> {
        let Setting { seed, layer, .. } = self.setting;
        let builder = Database::builder(self.path).memory_budget(BUDGET as usize).log_layer(layer);
        let db = choices::database(builder, seed, opening).open().map_err(told)?;
        // A policy that merges nothing keeps all versions.
        let merging = |options: KeyspaceOptions, engine, seed| match choices::policy(seed) {
            Policy::Fifo { .. } if engine == EngineKind::Lsm => options.policy(Policy::default()),
            _ => options,
        };
        let keyspaces = self.setting.open_pair(&db, opening, merging).map_err(told)?;
        Ok((db, keyspaces))
    }

    fn count(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    fn write(&self, keyspaces: &[Keyspace; 2], writer: usize, dice: &mut Dice) -> Outcome<()> {
        let at = dice.roll(2);
        let (keyspace, versions) = (&keyspaces[at], &self.versions[at]);
        // A tenth of the keys gets most of the writes.
        let most = if dice.roll(4) == 0 { KEYS } else { KEYS / 10 };
        let number = dice.roll(most / WRITERS) * WRITERS + writer;
        let next = versions.begun(number) + 1;
        versions.begun[number].store(next, Ordering::SeqCst);
        let done = match is_nothing(next) {
            true => keyspace.delete(key(number)),
            false => keyspace.put(key(number), value(number, next)),
        };
        done.map_err(told)?;
        versions.acknowledged[number].store(next, Ordering::SeqCst);
        self.count();
        Ok(())
    }

    fn read(&self, keyspaces: &[Keyspace; 2], dice: &mut Dice) -> Outcome<()> {
        let at = dice.roll(2);
        let (keyspace, versions) = (&keyspaces[at], &self.versions[at]);
        let number = dice.roll(KEYS);
        let oldest = versions.acknowledged(number);
        let found = keyspace.get(key(number)).map_err(told)?;
        let found = version(number, found.as_deref())?;
        let newest = versions.begun(number);
        self.count();
        match is_possible(found, oldest, newest) {
            true => Ok(()),
            false => Err(format!("key {number} is {found:?}, not of {oldest}..={newest}")),
        }
    }

    /// Reads and writes until the time is over, and measures what is taken meanwhile.
    fn work(
        &self,
        keyspaces: &[Keyspace; 2],
        seed: u64,
        until: Instant,
        most: &mut Taken,
    ) -> Outcome<()> {
        let run = |thread: usize| {
            let mut dice = Dice::new(mix(seed, thread));
            while Instant::now() < until {
                match thread < WRITERS {
                    true => self.write(keyspaces, thread, &mut dice)?,
                    false => self.read(keyspaces, &mut dice)?,
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..WRITERS + READERS)
                .map(|thread| scope.spawn(move || panics::caught(|| run(thread))))
                .collect();
            let mut kept = Ok(());
            while kept.is_ok() && Instant::now() < until {
                std::thread::sleep(INTERVAL.min(until.saturating_duration_since(Instant::now())));
                kept = most.measure();
            }
            let ends = threads.into_iter().map(|thread| thread.join().expect("panics are caught"));
            ends.collect::<Outcome<Vec<Outcome<()>>>>()?.into_iter().collect::<Outcome<()>>()?;
            kept
        })
    }

    /// Compares all there is while nobody writes; gives how many bytes of records there are.
    fn check(&self, db: &Database, keyspaces: &[Keyspace; 2]) -> Outcome<u64> {
        let mut bytes = 0;
        for (keyspace, versions) in keyspaces.iter().zip(&self.versions) {
            let (mut there, mut sum) = (0_u64, 0_u64);
            for number in 0..KEYS {
                let expected = versions.acknowledged(number);
                let expected = Some(expected).filter(|version| !is_nothing(*version));
                let found = keyspace.get(key(number)).map_err(told)?;
                let found_version = version(number, found.as_deref())?;
                if found_version != expected {
                    return Err(format!("key {number} is {found_version:?}, not {expected:?}"));
                }
                there += u64::from(found.is_some());
                if let Some(found) = found {
                    bytes += found.len() as u64 + 8;
                    sum = sum.wrapping_add(hash_of(&key(number), &found));
                }
            }
            let (mut counted, mut iterated) = (0_u64, 0_u64);
            for entry in keyspace.iter() {
                let (key, value) = entry.map_err(told)?;
                counted += 1;
                iterated = iterated.wrapping_add(hash_of(&key, &value));
            }
            if (counted, iterated) != (there, sum) {
                return Err(format!("iteration gives {counted} records, gets {there}, or others"));
            }
        }
        let problems = db.verify().map_err(told)?.problems;
        if problems.is_empty() { Ok(bytes) } else { Err(format!("verify: {problems:?}")) }
    }
}

/// Of the sums of these it does not matter in what order they are added up.
fn hash_of(key: &[u8], value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    hasher.finish()
}

/// The most that was taken.
#[derive(Default)]
struct Taken {
    memory: u64,
    files: u64,
    space: u64,
}

impl Taken {
    /// Measures what the process takes, and holds it to its bounds.
    fn measure(&mut self) -> Outcome<()> {
        let memory = within("bytes of memory", memory().unwrap_or_default(), BUDGET + BESIDE)?;
        let files = within("open files", open_files().unwrap_or_default(), MOST_FILES)?;
        self.memory = memory.max(self.memory);
        self.files = files.max(self.files);
        Ok(())
    }
}

/// A bound that was kept to or not.
fn within(what: &str, taken: u64, most: u64) -> Outcome<u64> {
    if taken <= most { Ok(taken) } else { Err(format!("{what}: {taken} of at most {most}")) }
}

/// Bytes of memory that no file stands for, where the system says it.
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// How many files the process has open, where the system says it.
fn open_files() -> Option<u64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

/// Bytes of all files below a directory. Some may go meanwhile.
fn space(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => space(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

/// Runs the load of a setting on a database in `dir`, which is empty, for as long as it is to `go_on`, and at least once. A case is an opening of some seconds, an operation a
/// put, a deletion or a get. The most memory, files and space are noted, in MiB and files.
pub fn run(setting: Setting, dir: &Path, go_on: impl Fn() -> bool) -> Report {
    let path = dir.join("db");
    let versions = [Versions::new(), Versions::new()];
    let world = World { setting, path: &path, versions, operations: AtomicU64::new(0) };
    let mut report = Report::default();
    let mut most = Taken::default();
    for opening in 0.. {
        let name = format!("soak/{setting}");
        let lived = panics::caught(|| watched(name.clone(), || live(&world, opening, &mut most)));
        if let Err(problem) = lived.unwrap_or_else(Err) {
            report += Report::of_violation(name, problem);
            break;
        }
        report.cases += 1;
        if !go_on() {
            break;
        }
    }
    report.operations = world.operations.load(Ordering::Relaxed);
    let Taken { memory, files, space } = most;
    report.peak("MiB of memory", memory >> 20);
    report.peak("open files", files);
    report.peak("MiB on disk", space >> 20);
    report
}

/// Opens the database, works, checks everything, and closes it or just lets it go.
fn live(world: &World<'_>, opening: u64, most: &mut Taken) -> Outcome<()> {
    let (db, keyspaces) = world.open(opening)?;
    // What was there at the end of the last time is there.
    world.check(&db, &keyspaces)?;
    world.work(&keyspaces, mix(world.setting.seed, opening), Instant::now() + OPEN, most)?;
    let bytes = world.check(&db, &keyspaces)?;
    most.measure()?;
    let space = within("bytes on disk", space(world.path), MOST_SPACE * bytes + SPACE_BESIDE)?;
    most.space = space.max(most.space);
    drop(keyspaces);
    if opening.is_multiple_of(2) { db.close().map_err(told) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_gives_a_version_between_those_it_may_see() {
        assert!(is_possible(Some(3), 2, 4) && is_possible(Some(4), 4, 4));
        assert!(!is_possible(Some(1), 2, 4) && !is_possible(Some(5), 2, 6));
        assert!(is_possible(None, 4, 6) && is_possible(None, 0, 0) && !is_possible(None, 1, 4));
        assert_eq!(version(7, Some(&value(7, 9))), Ok(Some(9)));
        assert!(version(7, Some(&value(8, 9))).is_err());
    }

    #[test]
    fn bounds_are_kept_to() {
        assert_eq!(within("files", 3, 3), Ok(3));
        assert_eq!(within("files", 4, 3), Err("files: 4 of at most 3".into()));
        assert!(memory().is_none_or(|bytes| bytes > 1 << 20));
        assert!(open_files().is_none_or(|files| files >= 3));
    }
}
