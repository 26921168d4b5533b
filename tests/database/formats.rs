//! Golden files: a database of each format version is kept under `testdata` and must stay readable and
//! writable for good. `testdata/README.md` says how they are stored and made.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use turbidite::vfs::{DiskFs, Fs, MemoryFs};
use turbidite::{Database, EngineKind, Keyspace, KeyspaceOptions, Layer};

use crate::setup::{self, files_below, layers, options};

/// Set to make the files that are missing.
const REGENERATE: &str = "TURBIDITE_WRITE_TESTDATA";
const LOGGED: &str = "logged";
const UNLOGGED: &str = "unlogged";

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database that is kept: its directory, and the engine of both its keyspaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Golden {
    name: &'static str,
    engine: EngineKind,
}

const GOLDEN: [Golden; 3] = [
    Golden { name: "v1", engine: EngineKind::Lsm },
    Golden { name: "v1-hash", engine: EngineKind::Hash },
    Golden { name: "v1-btree", engine: EngineKind::Btree },
];

impl Golden {
    fn dir(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(self.name)
    }

    fn options(self, name: &str) -> KeyspaceOptions {
        options(self.engine).log(name == LOGGED)
    }
}

// ---- what the database holds ----

/// A step of making the database.
enum Step {
    Write(&'static str, Vec<u8>, Option<Vec<u8>>),
    /// To both keyspaces, in one batch.
    Both(Vec<u8>, Vec<u8>),
    Persist(&'static str),
    Compact(&'static str),
    Reopen,
}

/// Always the same: files of compacted data and others with tombstones for it, which is tables on the deepest level
/// and on level 0, or segments before a checkpoint and behind it, or a tree of two levels with free pages; an unlogged keyspace; and
/// writes that are only in the log.
fn steps() -> Vec<Step> {
    let put = |name, key: &[u8], value: Vec<u8>| Step::Write(name, key.to_vec(), Some(value));
    let mut steps = Vec::new();
    for number in 0..600_u32 {
        let value = format!("the value of {number} ").repeat(1 + number as usize % 4);
        steps.push(put(LOGGED, format!("record {number:05}").as_bytes(), value.into_bytes()));
        steps.push(put(UNLOGGED, &number.to_be_bytes(), number.to_le_bytes().to_vec()));
    }
    steps.push(put(LOGGED, b"", b"the empty key".to_vec()));
    steps.push(put(LOGGED, b"empty value", Vec::new()));
    steps.push(put(LOGGED, &[0xff; 1000], (0..=255).collect()));
    steps.push(put(LOGGED, b"large", (0..40_000_u32).map(|n| ((n * n) >> 3) as u8).collect()));
    steps.push(Step::Both(b"\0both\xff".to_vec(), b"early".to_vec()));
    steps.push(Step::Compact(LOGGED));
    steps.push(Step::Reopen);
    for number in (0..600_u32).step_by(5) {
        steps.push(Step::Write(LOGGED, format!("record {number:05}").into_bytes(), None));
        steps.push(put(LOGGED, format!("record {:05}", number + 1).as_bytes(), b"new".to_vec()));
        steps.push(Step::Write(UNLOGGED, (2 * number).to_be_bytes().to_vec(), None));
    }
    steps.push(Step::Persist(LOGGED));
    steps.push(Step::Persist(UNLOGGED));
    for number in 600..650_u32 {
        steps.push(put(LOGGED, format!("record {number:05}").as_bytes(), vec![number as u8; 30]));
    }
    steps.push(Step::Write(LOGGED, b"record 00007".to_vec(), None));
    steps.push(put(UNLOGGED, b"\xff\0", b"late".to_vec()));
    steps.push(Step::Both(b"\0both\xff".to_vec(), b"late".to_vec()));
    steps.push(Step::Persist(UNLOGGED));
    steps
}

/// What is there after the steps, by keyspace.
fn expected() -> BTreeMap<&'static str, Map> {
    let mut maps = BTreeMap::from([(LOGGED, Map::new()), (UNLOGGED, Map::new())]);
    for step in steps() {
        match step {
            Step::Write(name, key, Some(value)) => {
                maps.entry(name).or_default().insert(key, value);
            }
            Step::Write(name, key, None) => {
                maps.entry(name).or_default().remove(&key);
            }
            Step::Both(key, value) => {
                let insert = |map: &mut Map| map.insert(key.clone(), value.clone());
                maps.values_mut().for_each(|map| drop(insert(map)));
            }
            Step::Persist(_) | Step::Compact(_) | Step::Reopen => {}
        }
    }
    maps
}

// ---- making the files ----

/// Runs the steps in memory and gives the files, by their path below the database, as a kill at the end leaves them.
fn generate(golden: Golden) -> BTreeMap<String, Vec<u8>> {
    let (fs, path) = (MemoryFs::new(), Path::new("/v1"));
    let open = || {
        let database = Database::builder(path).file_system(Arc::new(fs.clone())).open().unwrap();
        let keyspace = |name| (name, database.keyspace(name, golden.options(name)).unwrap());
        let keyspaces: BTreeMap<&str, Keyspace> = [LOGGED, UNLOGGED].map(keyspace).into();
        (database, keyspaces)
    };
    let (mut database, mut keyspaces) = open();
    for step in steps() {
        match step {
            Step::Write(name, key, Some(value)) => keyspaces[name].put(key, value).unwrap(),
            Step::Write(name, key, None) => keyspaces[name].delete(key).unwrap(),
            Step::Both(key, value) => {
                let mut batch = database.batch();
                keyspaces.values().for_each(|one| _ = batch.put(one, &key, &value));
                batch.commit().unwrap();
            }
            Step::Persist(name) => keyspaces[name].persist().unwrap(),
            Step::Compact(name) => keyspaces[name].compact().unwrap(),
            Step::Reopen => {
                keyspaces.clear();
                database.close().unwrap();
                (database, keyspaces) = open();
            }
        }
    }
    database.settle().unwrap();
    let below = |path: PathBuf| path.strip_prefix("/v1").unwrap().to_str().unwrap().to_owned();
    fs.fork().files().into_iter().map(|(path, bytes)| (below(path), bytes)).collect()
}

/// Stores each file without the zeros at its end, and its length in a manifest.
fn store(golden: Golden, files: &BTreeMap<String, Vec<u8>>) {
    let dir = golden.dir();
    if dir.exists() {
        std::fs::remove_dir_all(&dir).unwrap();
    }
    let mut manifest = String::new();
    for (name, bytes) in files {
        writeln!(manifest, "{} {name}", bytes.len()).unwrap();
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let path = dir.join("files").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &bytes[..end]).unwrap();
    }
    std::fs::write(dir.join("lengths.txt"), manifest).unwrap();
}

/// The files as they were before [`store`].
fn load(golden: Golden) -> BTreeMap<String, Vec<u8>> {
    let manifest = std::fs::read_to_string(golden.dir().join("lengths.txt")).unwrap();
    let load = |line: &str| {
        let (len, name) = line.split_once(' ').unwrap();
        let mut bytes = std::fs::read(golden.dir().join("files").join(name)).unwrap();
        bytes.resize(len.parse().unwrap(), 0);
        (name.to_owned(), bytes)
    };
    manifest.lines().map(load).collect()
}

/// A copy of the stored database on a real disk.
fn unpack(golden: Golden) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let fs = DiskFs::new();
    for (name, bytes) in load(golden) {
        let path = dir.path().join(name);
        fs.create_dir(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    dir
}

// ---- the tests ----

fn contents(database: &Database) -> BTreeMap<String, Map> {
    let names = database.keyspaces().into_iter().map(|info| info.name);
    let content = |name: String| {
        let keyspace = database.open_keyspace(&name).unwrap();
        (name, setup::contents(keyspace.iter()))
    };
    names.map(content).collect()
}

fn check(database: &Database) {
    let expected: BTreeMap<String, Map> =
        expected().into_iter().map(|(name, map)| (name.to_owned(), map)).collect();
    assert!(contents(database) == expected);
    let report = database.verify().unwrap();
    assert!(report.problems.is_empty() && report.files >= 4, "{report:?}");
}

#[test]
fn version_1_is_read_and_written_on() {
    for golden in GOLDEN {
        // What is there stays as it is.
        if std::env::var_os(REGENERATE).is_some() && !golden.dir().exists() {
            store(golden, &generate(golden));
        }
        layers().into_iter().for_each(|layer| read_and_write_on(golden, layer));
    }
}

fn read_and_write_on(golden: Golden, layer: Layer) {
    let dir = unpack(golden);
    let open = || Database::builder(dir.path()).log_layer(layer).create(false).open().unwrap();
    let database = open();
    check(&database);
    assert!(database.recovery().replayed_batches > 50, "the log had to be replayed");
    assert_eq!(database.recovery().dropped_bytes, 0);
    let keyspace = |name| database.keyspace(name, golden.options(name).layer(layer)).unwrap();
    let (logged, unlogged) = (keyspace(LOGGED), keyspace(UNLOGGED));
    if golden.engine == EngineKind::Lsm {
        let levels: Vec<u32> = logged.stats().levels.iter().map(|level| level.level).collect();
        assert!(levels.len() == 2 && levels[0] == 0, "tables on two levels: {levels:?}");
    }
    if golden.engine == EngineKind::Btree {
        let tree = logged.stats().tree.unwrap();
        assert!(tree.levels == 2 && tree.overflow_pages > 0 && tree.free_pages > 0, "{tree:?}");
    }
    // Writing goes on.
    let mut batch = database.batch();
    batch.put(&logged, "added", "1").put(&unlogged, "added", "2");
    batch.commit().unwrap();
    logged.compact().unwrap();
    drop((logged, unlogged));
    database.close().unwrap();
    let database = open();
    for (name, value) in [(LOGGED, "1"), (UNLOGGED, "2")] {
        let keyspace = database.open_keyspace(name).unwrap();
        assert_eq!(keyspace.get("added").unwrap().unwrap(), value);
        keyspace.delete("added").unwrap();
    }
    check(&database);
}

#[test]
fn version_1_is_read_without_changing_a_byte() {
    for golden in GOLDEN {
        let dir = unpack(golden);
        let before = files_below(dir.path());
        let database = Database::builder(dir.path()).read_only(true).open().unwrap();
        check(&database);
        database.close().unwrap();
        assert!(files_below(dir.path()) == before);
    }
}

#[test]
fn what_the_steps_make_is_what_is_expected() {
    for golden in GOLDEN {
        let fs = MemoryFs::new();
        for (name, bytes) in generate(golden) {
            fs.write_file(&Path::new("/copy").join(name), &bytes).unwrap();
        }
        let database = Database::builder("/copy").file_system(Arc::new(fs)).create(false).open();
        check(&database.unwrap());
    }
}

#[test]
fn what_is_stored_is_small_and_has_all_kinds_of_files() {
    for golden in GOLDEN {
        let stored = load(golden);
        let size: usize = files_below(&golden.dir()).values().map(Vec::len).sum();
        assert!(size < 512 << 10, "{size} bytes");
        let manifests = ["keyspaces/1/manifest-", "keyspaces/2/manifest-"];
        let kinds: &[&str] = match golden.engine {
            EngineKind::Hash => &[".data", ".index", manifests[0], manifests[1]],
            EngineKind::Btree => &["keyspaces/1/tree", "keyspaces/2/tree"],
            _ => &[".table", manifests[0], manifests[1]],
        };
        for part in ["catalog-", "log/"].iter().chain(kinds) {
            assert!(stored.keys().any(|name| name.contains(part)), "{part}");
        }
    }
}
