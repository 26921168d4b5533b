//! A whole database of which some bytes are others: opened, read in all ways, verified, written to, and closed. It was left as by a
//! kill: the log has writes that are in no files yet, and in some samples a sorted load or a clear. One sample has two keyspaces, each of
//! the others one: with all of them together a run takes ten times as long, and most of what a fuzzer keeps are such inputs.
//!
//! ```text
//! input  := how u8, change, change ...      1 is added for reading only, 2 for tolerant recovery, 4 as if all checksums were right,
//!                                           and 8 for each sample before the one that is opened, modulo as many as there are
//! change := file u8, offset u32, count u8, bytes         so many bytes, up to 63, in the place of what is there
//!         | file u8, offset u32, count u8 from 192 on    the file is cut off at the offset
//! ```
//! Files are counted by their paths, offsets from the front of the file, both modulo as many as there are, without the zeros that a file
//! ends with. It may be refused, and may have
//! other data; nobody may panic, go on for ever, or take much more memory than the files. Opened for reading only, it stays as it is.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use crate::base::checksum::mended;
use crate::builder::DatabaseBuilder;
use crate::database::Database;
use crate::error::{ErrorKind, Result};
use crate::keyspace::Keyspace;
use crate::options::{Compression, KeyspaceOptions, MIN_MEMORY_BUDGET, RecoveryMode};
use crate::reducer::Reducer;
use crate::vfs::{Access, Effect, Errno, Fault, FaultFs, Fs, Layer, MemoryFs, Operation, Times};

const PATH: &str = "/db";
/// The most bytes of one change.
const MOST_BYTES: usize = 64;
/// Counts from here on cut a file off.
const CUT: u8 = 192;
/// So many keys that there were are looked for.
const KEYS: u32 = 40;
/// Keyspaces that a sorted load of the log is to be put into,
const LOADED: [&str; 2] = ["loaded lsm", "loaded skip"];
/// and one that the log has a clear of.
const CLEARED: &str = "cleared btree";

/// Keyspaces that have a database together.
const TOGETHER: [&str; 2] = ["hash", "btree"];

/// The databases before they are changed: that of two keyspaces, and for each keyspace one that has no other.
static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(|| {
    let all = keyspaces();
    let mut together = all.clone();
    together.retain(|(name, _)| TOGETHER.contains(name));
    let alone = all.iter().map(std::slice::from_ref);
    std::iter::once(&together[..]).chain(alone).map(Sample::new).collect()
});

struct Sample {
    /// The names of its keyspaces, in the order of their numbers, which begin with 1.
    keyspaces: Vec<&'static str>,
    fs: MemoryFs,
    /// How many bytes each file has before the zeros at its end, at least one.
    files: Vec<(PathBuf, usize)>,
    /// How many bytes all files have.
    bytes: usize,
}

impl Sample {
    fn new(keyspaces: &[(&'static str, KeyspaceOptions)]) -> Self {
        let fs = MemoryFs::new();
        make(&fs, keyspaces).expect("a sample can be made");
        let keyspaces: Vec<_> = keyspaces.iter().map(|&(name, _)| name).collect();
        let fs = killed(&fs, &keyspaces).expect("it can be written to");
        let used = |bytes: &[u8]| bytes.iter().rposition(|&byte| byte != 0).map_or(1, |at| at + 1);
        let files = fs.files();
        let bytes = files.iter().map(|(_, bytes)| bytes.len()).sum();
        let files = files.into_iter().map(|(path, bytes)| (path, used(&bytes))).collect();
        Self { keyspaces, fs, files, bytes }
    }

    /// Whether a keyspace has one of the files, or all keyspaces have: those of catalog and log.
    fn is_changed(&self, name: &str, files: &[&Path]) -> bool {
        let all = Path::new(PATH).join("keyspaces");
        let number = self.keyspaces.iter().position(|known| *known == name).map(|at| at + 1);
        let own = number.map(|number| all.join(number.to_string()));
        files.iter().any(|file| {
            !file.starts_with(&all) || own.as_ref().is_none_or(|own| file.starts_with(own))
        })
    }
}

/// Changes a database as the input says, and uses what is left of it.
pub(super) fn changed(input: &[u8]) {
    let Some((&how, mut rest)) = input.split_first() else { return };
    let sample = &SAMPLES[usize::from(how >> 3) % SAMPLES.len()];
    let is_mended = how & 4 != 0;
    let how = How { read_only: how & 1 != 0, tolerant: how & 2 != 0 };
    let fs = sample.fs.fork();
    let mut changed = Vec::new();
    while let Some(change) = Change::take(sample, &mut rest) {
        change.apply(&fs).expect("memory takes it");
        changed.push(change.path);
    }
    let before = how.read_only.then(|| fs.files());
    let work = || used(sample, &fs, how, &changed);
    refused_or(if is_mended { mended(work) } else { work() });
    assert!(before.is_none_or(|before| before == fs.files()), "it was opened for reading only");
}

/// How a database is opened.
#[derive(Clone, Copy)]
struct How {
    read_only: bool,
    tolerant: bool,
}

impl How {
    fn builder(self, fs: &MemoryFs) -> DatabaseBuilder {
        let mode = if self.tolerant { RecoveryMode::Tolerant } else { RecoveryMode::Strict };
        builder(Arc::new(fs.clone())).read_only(self.read_only).recovery(mode)
    }
}

/// What becomes of a file.
struct Change<'a> {
    path: &'static Path,
    offset: usize,
    /// `None`: it ends there.
    bytes: Option<&'a [u8]>,
}

impl<'a> Change<'a> {
    fn take(sample: &'static Sample, input: &mut &'a [u8]) -> Option<Self> {
        let ([file, offset @ .., count], rest) = input.split_first_chunk::<6>()?;
        let (path, used) = &sample.files[usize::from(*file) % sample.files.len()];
        let offset = u32::from_le_bytes([offset[0], offset[1], offset[2], offset[3]]) as usize;
        let offset = offset % used;
        let count = (*count < CUT).then_some(usize::from(*count) % MOST_BYTES);
        let (bytes, rest) = rest.split_at(count.unwrap_or(0).min(rest.len()));
        *input = rest;
        Some(Self { path, offset, bytes: count.map(|_| bytes) })
    }

    fn apply(&self, fs: &MemoryFs) -> Result<()> {
        let file = fs.open(self.path, Access::Write, Layer::Positional)?;
        let (offset, len) = (self.offset as u64, file.len()?);
        match self.bytes {
            None => file.truncate(offset.min(len)),
            Some(bytes) => {
                let room = len.saturating_sub(offset).min(bytes.len() as u64);
                file.write_at(offset.min(len), &bytes[..room as usize])
            }
        }
    }
}

fn builder(fs: Arc<dyn Fs>) -> DatabaseBuilder {
    Database::builder(PATH)
        .file_system(fs)
        .memory_budget(MIN_MEMORY_BUDGET)
        .background_threads(1)
        .log_layer(Layer::Positional)
}

/// The keyspaces: every engine, files that lend their bytes and others, what an LSM-tree may have besides, and every compression that is
/// compiled in.
fn keyspaces() -> Vec<(&'static str, KeyspaceOptions)> {
    let blocks = Layer::BlockCache { block_size: 4096, pages: 16 };
    let positional = || KeyspaceOptions::lsm().layer(Layer::Positional).data_block_size(512);
    let packed = [
        ("snappy", Compression::Snappy),
        ("zstd", Compression::Zstd { level: 3, dictionary: false }),
        ("zstd with dictionaries", Compression::Zstd { level: 3, dictionary: true }),
    ];
    let packed = packed.into_iter().filter(|(_, compression)| compression.is_available());
    let mut keyspaces = vec![
        ("lsm", KeyspaceOptions::lsm().layer(Layer::Mmap).data_block_size(512)),
        (
            "values",
            KeyspaceOptions::lsm()
                .layer(Layer::Positional)
                .separate_values(64)
                .compression(&[Compression::Lz4]),
        ),
        ("hash", KeyspaceOptions::hash().layer(Layer::Positional)),
        ("btree", KeyspaceOptions::btree().layer(blocks)),
        ("mapped btree", KeyspaceOptions::btree().layer(Layer::Mmap)),
        ("skip", KeyspaceOptions::skip().layer(Layer::Positional).reducer(Reducer::Concat)),
        ("mapped skip", KeyspaceOptions::skip().layer(Layer::Mmap).step_unit(2)),
        (LOADED[0], positional()),
        (LOADED[1], KeyspaceOptions::skip().layer(Layer::Positional)),
        (CLEARED, KeyspaceOptions::btree().layer(Layer::Positional)),
    ];
    keyspaces.extend(packed.map(|(name, packed)| (name, positional().compression(&[packed]))));
    keyspaces
}

fn key(number: u32) -> String {
    format!("key {:05}", number * 7)
}

/// Writes of all kinds: in files of all kinds, and in the log.
fn make(fs: &MemoryFs, keyspaces: &[(&'static str, KeyspaceOptions)]) -> Result<()> {
    let db = builder(Arc::new(fs.clone())).open()?;
    let mut made = Vec::new();
    for (name, options) in keyspaces {
        let keyspace = db.keyspace(name, options.clone())?;
        for number in 0..KEYS {
            keyspace.put(key(number), vec![number as u8; 10 + number as usize * 5])?;
        }
        keyspace.persist()?;
        keyspace.delete(key(3))?;
        keyspace.put("large", vec![b'v'; 5000])?;
        if keyspace.delete_range(key(10)..key(12)).is_err() {
            keyspace.put(key(10), "again")?;
        }
        keyspace.persist()?;
        if name.starts_with("mapped") {
            keyspace.compact()?;
        }
        made.push(keyspace);
    }
    db.settle()?;
    let mut batch = db.batch();
    for (number, keyspace) in made.iter().enumerate() {
        keyspace.put("last", "in the log")?;
        match number % 2 {
            0 => batch.put(keyspace, "batch", "1"),
            _ => batch.delete(keyspace, key(5)),
        };
    }
    batch.commit()?;
    drop(made);
    db.close()
}

/// The same, written to again and left as by a kill. What is loaded and cleared is in the log alone, because nothing can be written to
/// what says of files that they count.
fn killed(fs: &MemoryFs, keyspaces: &[&'static str]) -> Result<MemoryFs> {
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let db = builder(Arc::new(faults.clone())).open()?;
    db.settle()?;
    for name in ["manifest", "tree"] {
        let full = Fault::new(Operation::Write, Effect::Fail(Errno::Raw(28)));
        faults.arm(Fault { name_contains: name.into(), times: Times::Always, ..full });
    }
    for name in keyspaces.iter().filter(|name| LOADED.contains(name)) {
        let records = (0..KEYS).map(|number| (key(2 * number), vec![b'l'; 30]));
        let loaded = db.open_keyspace(name)?.load_sorted(records);
        let error = loaded.expect_err("the manifest cannot name what was loaded");
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    }
    for &name in keyspaces {
        let keyspace = db.open_keyspace(name)?;
        if name == CLEARED {
            keyspace.clear()?;
        }
        keyspace.put("after", "it")?;
    }
    let left = fs.fork();
    faults.disarm();
    db.close()?;
    Ok(left)
}

/// What was given, unless it was refused. A panic in the background is one here.
fn refused_or<T>(result: Result<T>) -> Option<T> {
    let error = match result {
        Ok(given) => return Some(given),
        Err(error) => error,
    };
    assert!(!error.to_string().contains("panic"), "{error}");
    let is_likely = matches!(
        error.kind(),
        ErrorKind::Corruption
            | ErrorKind::NewerFormat
            | ErrorKind::NotADatabase
            | ErrorKind::Invalid
            | ErrorKind::Unsupported
            | ErrorKind::Poisoned
            | ErrorKind::NoSpace
            | ErrorKind::ReadOnly
    );
    assert!(is_likely, "bytes are no reason for {:?}: {error}", error.kind());
    None
}

/// Does with a database whatever can be done, of which these files were `changed`; with a keyspace that has none of them it is not much.
fn used(sample: &Sample, fs: &MemoryFs, how: How, changed: &[&Path]) -> Result<()> {
    let db = how.builder(fs).open()?;
    let names = db.keyspaces().into_iter().map(|keyspace| keyspace.name);
    let keyspaces: Vec<_> = names.filter_map(|name| refused_or(db.open_keyspace(&name))).collect();
    let (changed, others): (Vec<_>, Vec<_>) =
        keyspaces.iter().partition(|keyspace| sample.is_changed(keyspace.name(), changed));
    changed.iter().for_each(|keyspace| read(sample, keyspace));
    others.iter().for_each(|keyspace| walk(sample, keyspace.iter()));
    refused_or(db.verify());
    let _ = (db.stats(), db.status());
    for keyspace in &changed {
        for number in 0..5 {
            refused_or(keyspace.put(key(3 * number), "new"));
            refused_or(keyspace.delete(key(3 * number + 1)));
        }
        refused_or(keyspace.persist());
        refused_or(keyspace.compact());
    }
    others.iter().for_each(|keyspace| _ = refused_or(keyspace.put("new", "value")));
    refused_or(db.keyspace("one more", KeyspaceOptions::hash()));
    refused_or(db.settle());
    changed.iter().for_each(|keyspace| read(sample, keyspace));
    let _ = keyspaces.iter().map(Keyspace::stats).count();
    drop(keyspaces);
    refused_or(db.close());
    Ok(())
}

/// Reads a keyspace in all ways.
fn read(sample: &Sample, keyspace: &Keyspace) {
    let keys: Vec<_> =
        (0..KEYS).step_by(2).map(key).chain(["large".into(), "zzz".into()]).collect();
    keys.iter().for_each(|key| drop(refused_or(keyspace.get(key))));
    refused_or(keyspace.multi_get(&keys));
    refused_or(keyspace.get_all(&keys[1]));
    refused_or(keyspace.count());
    for position in [0, 7, 1 << 40] {
        refused_or(keyspace.nth(position));
    }
    refused_or(keyspace.rank(&keys[8]));
    walk(sample, keyspace.iter());
    walk(sample, keyspace.iter().rev());
    walk(sample, keyspace.range(keys[4].as_str()..keys[20].as_str()));
    walk(sample, keyspace.prefix("key 000").rev());
    walk(sample, keyspace.iter().keys());
    let Some(mut cursor) = refused_or(keyspace.cursor()) else { return };
    for key in keys.iter().step_by(5) {
        refused_or(cursor.seek(key));
        for _ in 0..3 {
            refused_or(cursor.next());
        }
        for _ in 0..4 {
            refused_or(cursor.prev());
        }
    }
}

/// Goes on until the end or the first error. Each record takes a byte of some file at least.
fn walk<T>(sample: &Sample, items: impl Iterator<Item = Result<T>>) {
    let read = items.map(refused_or).take_while(Option::is_some).count();
    assert!(read <= sample.bytes, "{read} records of {} bytes", sample.bytes);
}

/// Changes to begin with: some to the front, the middle and the end of each file, and to the fronts of its pages, each opened in
/// another way than the one before.
#[cfg(test)]
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let change = |file: usize, offset: usize, bytes: &[u8]| {
        let offset = (offset as u32).to_le_bytes();
        [&[file as u8][..], &offset, &[bytes.len() as u8], bytes].concat()
    };
    let mut seeds = Vec::new();
    for (number, sample) in SAMPLES.iter().enumerate() {
        let mut changes = Vec::new();
        for (file, (_, used)) in sample.files.iter().enumerate() {
            let end = used.saturating_sub(9);
            changes.push(
                [
                    change(file, 17, &[0xff]),
                    change(file, used / 2, &[0; 8]),
                    change(file, end, &[0x80]),
                ]
                .concat(),
            );
            changes.extend((4096..*used).step_by(4096).map(|page| change(file, page + 6, &[1; 3])));
        }
        let how = (0..8).cycle().skip(number).map(|how| how | (number as u8) << 3);
        seeds.extend(how.zip(changes).map(|(how, changes)| [&[how][..], &changes].concat()));
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logs_of_the_samples_have_loads_and_a_clear() {
        let (together, alone) = SAMPLES.split_first().unwrap();
        assert_eq!(together.keyspaces, TOGETHER);
        assert!(alone.iter().zip(keyspaces()).all(|(one, (name, _))| one.keyspaces == [name]));
        assert_eq!(alone.len(), keyspaces().len());
        assert!(SAMPLES.len() <= 32, "one byte says how it is opened and which it is");
        for sample in SAMPLES.iter() {
            let db = How { read_only: true, tolerant: false }.builder(&sample.fs).open().unwrap();
            assert!(db.recovery().replayed_batches > 0, "{:?}", db.recovery());
            for name in &sample.keyspaces {
                let keyspace = db.open_keyspace(name).unwrap();
                assert_eq!(keyspace.get("after").unwrap().as_deref(), Some(&b"it"[..]));
                if LOADED.contains(name) {
                    assert_eq!(keyspace.get(key(2)).unwrap().as_deref(), Some(&[b'l'; 30][..]));
                }
                if *name == CLEARED {
                    assert_eq!(keyspace.count().unwrap(), 1);
                }
            }
            assert!(db.verify().unwrap().problems.is_empty());
        }
    }
}
