//! Golden files: a database of each format version is kept under `testdata` and must stay readable and
//! writable for good. `testdata/README.md` says how they are stored and made.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use turbidite::vfs::{DiskFs, Effect, Errno, Fault, FaultFs, Fs, MemoryFs, Operation, Times};
use turbidite::{
    Compression, Database, EngineKind, ErrorKind, FilterKind, KeyFile, Keyspace, KeyspaceOptions,
    Layer, Reducer,
};

use crate::setup::{files_below, layers, options};

/// Set to make the files that are missing.
const REGENERATE: &str = "TURBIDITE_WRITE_TESTDATA";
const LOGGED: &str = "logged";
const UNLOGGED: &str = "unlogged";
/// Without the log, keeping all values.
const KEPT: &str = "kept";
/// With the log, of numbers that are added up.
const SUMMED: &str = "summed";

/// Tables of version 2 with filters of all kinds, some of them compressed.
const MIXED: &str = "v2-tables";
/// The same with the compressions that are not always there.
#[cfg(all(feature = "snappy", feature = "zstd"))]
const PACKED: &str = "v2-tables-packed";
/// With values that are kept apart from their keys.
const VALUES: &str = "v2-values";
/// Tables of version 3, with range tombstones, which are in the log too.
const RANGES: &str = "v3-ranges";

/// The values of each key.
type Map = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// A database that is kept: its directory, and the engine of its keyspaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Golden {
    name: &'static str,
    engine: EngineKind,
}

const GOLDEN: &[Golden] = &[
    Golden { name: "v1", engine: EngineKind::Lsm },
    Golden { name: "v1-hash", engine: EngineKind::Hash },
    Golden { name: "v1-btree", engine: EngineKind::Btree },
    Golden { name: "v1-skip", engine: EngineKind::Skip },
    Golden { name: MIXED, engine: EngineKind::Lsm },
    #[cfg(all(feature = "snappy", feature = "zstd"))]
    Golden { name: PACKED, engine: EngineKind::Lsm },
    Golden { name: VALUES, engine: EngineKind::Lsm },
    Golden { name: RANGES, engine: EngineKind::Lsm },
];

impl Golden {
    fn dir(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(self.name)
    }

    fn is_skip(self) -> bool {
        self.engine == EngineKind::Skip
    }

    fn keyspaces(self) -> &'static [&'static str] {
        if self.is_skip() { &[LOGGED, UNLOGGED, KEPT, SUMMED] } else { &[LOGGED, UNLOGGED] }
    }

    fn options(self, name: &str) -> KeyspaceOptions {
        let mut options = options(self.engine).log([LOGGED, SUMMED].contains(&name));
        if self.name == VALUES {
            options = options.separate_values(64);
        }
        match name {
            _ if self.engine == EngineKind::Lsm => self.tables(name, options),
            KEPT => options.reducer(Reducer::KeepAll).step_unit(2),
            SUMMED => options.reducer(Reducer::Sum).max_level(2),
            _ => options,
        }
    }
}

impl Golden {
    /// The options of an LSM-tree.
    fn tables(self, name: &str, options: KeyspaceOptions) -> KeyspaceOptions {
        match (self.name, name) {
            (MIXED, LOGGED) => options
                .filter(FilterKind::Ribbon)
                .filter_bits(&[12, 8])
                .compression(&[Compression::None, Compression::Lz4])
                .key_file(KeyFile::None)
                .data_block_size(1024),
            (MIXED, _) => options.filter(FilterKind::Bloom).key_file(KeyFile::Filter),
            #[cfg(all(feature = "snappy", feature = "zstd"))]
            (PACKED, LOGGED) => options
                .filter_bits(&[5])
                .compression(&[
                    Compression::Zstd { level: 3, dictionary: false },
                    Compression::Zstd { level: 19, dictionary: true },
                ])
                .key_file(KeyFile::Keys),
            #[cfg(all(feature = "snappy", feature = "zstd"))]
            (PACKED, _) => options.filter(FilterKind::None).compression(&[Compression::Snappy]),
            _ => options,
        }
    }
}

// ---- what the database holds ----

type Record = (Vec<u8>, Vec<u8>);

/// A step of making the database.
enum Step {
    Write(&'static str, Vec<u8>, Option<Vec<u8>>),
    /// From the first key on, and before the second, if there is one.
    DeleteRange(&'static str, Vec<u8>, Option<Vec<u8>>),
    /// To the logged and the unlogged keyspace, in one batch.
    Both(Vec<u8>, Vec<u8>),
    /// A sorted load.
    Load(&'static str, Vec<Record>),
    /// The same, with no room in any manifest from then on: only the log has it.
    LoadIntoLog(&'static str, Vec<Record>),
    Persist(&'static str),
    Compact(&'static str),
    Reopen,
}

/// Always the same: files of compacted data and others with tombstones for it, which is tables on the deepest level
/// and on level 0, or segments before a checkpoint and behind it, or a tree of two levels with free pages, or a sorted file and
/// runs; an unlogged keyspace; and writes that are only in the log.
fn steps(golden: Golden) -> Vec<Step> {
    let mut steps = Vec::new();
    if golden.is_skip() {
        steps.extend(files_with_many_links());
    }
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
    if golden.name == RANGES {
        for (from, to) in [(100, 200), (150, 250), (150, 180), (250, 260)] {
            steps.push(deletion(
                LOGGED,
                format!("record {from:05}"),
                Some(format!("record {to:05}")),
            ));
            steps.push(deletion(
                UNLOGGED,
                2_u32.pow(from % 7).to_be_bytes(),
                Some(9_u32.to_be_bytes()),
            ));
        }
        steps.push(deletion(LOGGED, [0xff_u8], None::<[u8; 0]>));
        steps.push(put(LOGGED, b"record 00155", b"put behind".to_vec()));
    }
    steps.push(Step::Persist(LOGGED));
    steps.push(Step::Persist(UNLOGGED));
    if golden.is_skip() {
        steps.extend(runs());
    }
    for number in 600..650_u32 {
        steps.push(put(LOGGED, format!("record {number:05}").as_bytes(), vec![number as u8; 30]));
    }
    steps.push(Step::Write(LOGGED, b"record 00007".to_vec(), None));
    if golden.name == RANGES {
        steps.push(deletion(LOGGED, "record 00630", Some("record 00640")));
        steps.push(put(LOGGED, b"record 00635", b"put behind".to_vec()));
        steps.push(deletion(UNLOGGED, 500_u32.to_be_bytes(), None::<[u8; 0]>));
    }
    steps.push(put(UNLOGGED, b"\xff\0", b"late".to_vec()));
    steps.push(Step::Both(b"\0both\xff".to_vec(), b"late".to_vec()));
    steps.push(Step::Persist(UNLOGGED));
    if golden.is_skip() {
        steps.push(Step::Persist(SUMMED));
        steps.push(Step::LoadIntoLog(SUMMED, numbers(40..60)));
        steps.push(put(SUMMED, b"number 050", 1000_i64.to_be_bytes().to_vec()));
    }
    steps
}

fn put(name: &'static str, key: &[u8], value: Vec<u8>) -> Step {
    Step::Write(name, key.to_vec(), Some(value))
}

fn deletion(name: &'static str, from: impl AsRef<[u8]>, to: Option<impl AsRef<[u8]>>) -> Step {
    Step::DeleteRange(name, from.as_ref().to_vec(), to.map(|to| to.as_ref().to_vec()))
}

/// The ends of the range of a deletion.
fn ends(from: Vec<u8>, to: Option<Vec<u8>>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded))
}

/// Records that share no more than one byte with the next one, or all but the last.
fn long_key(number: u8) -> Vec<u8> {
    let mut key = vec![b'l'; 2000];
    (key[1], key[1999]) = (number / 2, number % 2);
    key
}

/// Records to be added up.
fn numbers(range: std::ops::Range<i64>) -> Vec<Record> {
    let record = |number: i64| {
        let key = format!("number {number:03}").into_bytes();
        (key, (number - 30).to_be_bytes().to_vec())
    };
    range.map(record).collect()
}

/// Sorted files with several blocks of links, because the keys in these are long.
fn files_with_many_links() -> Vec<Step> {
    let mut steps = Vec::new();
    for number in 0..16 {
        steps.push(put(LOGGED, &long_key(number), vec![number; 1500]));
        steps.push(put(KEPT, &long_key(number), vec![number; 10]));
    }
    for number in 0..300_u16 {
        let key = format!("several {:02}", number % 40).into_bytes();
        steps.push(put(KEPT, &key, format!("value {number}").into_bytes()));
    }
    steps.extend(numbers(0..50).into_iter().map(|(key, value)| put(SUMMED, &key, value)));
    steps.push(Step::Persist(KEPT));
    steps.push(Step::Persist(SUMMED));
    steps
}

/// Runs in front of that, with tombstones, several values of a key, and without trailers.
fn runs() -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..2 {
        for number in 0..30 {
            let key = format!("several {:02}", (number * 7 + round) % 40).into_bytes();
            let value = (number % 5 > 0).then(|| vec![round; 5 + number as usize]);
            steps.push(Step::Write(KEPT, key, value));
        }
        steps.push(Step::Reopen);
    }
    let loaded = (0..40).map(|number| format!("several {number:02}").into_bytes());
    steps.push(Step::Load(KEPT, loaded.map(|key| (key, b"loaded".to_vec())).collect()));
    steps.push(Step::Load(SUMMED, numbers(20..70)));
    let new = (0..20).map(|number| format!("record {:05}", 3 * number).into_bytes());
    steps.push(Step::Load(LOGGED, new.map(|key| (key, b"loaded".to_vec())).collect()));
    steps
}

/// What is there after the steps, by keyspace.
fn expected(golden: Golden) -> BTreeMap<String, Map> {
    let mut maps: BTreeMap<_, Map> =
        golden.keyspaces().iter().map(|&name| (name.to_owned(), Map::new())).collect();
    let change = |maps: &mut BTreeMap<String, Map>,
                  name: &str,
                  key: Vec<u8>,
                  value: Option<Vec<u8>>| {
        let map = maps.get_mut(name).unwrap();
        let Some(value) = value else { return drop(map.remove(&key)) };
        let values = map.entry(key).or_default();
        let number = |value: &Vec<u8>| i64::from_be_bytes(value[..].try_into().unwrap());
        match (name, &values[..]) {
            (KEPT, _) => values.push(value),
            (SUMMED, [sum]) => *values = vec![(number(sum) + number(&value)).to_be_bytes().into()],
            _ => *values = vec![value],
        }
    };
    for step in steps(golden) {
        match step {
            Step::Write(name, key, value) => change(&mut maps, name, key, value),
            Step::DeleteRange(name, from, to) => {
                let ends = ends(from, to);
                maps.get_mut(name).unwrap().retain(|key, _| !ends.contains(key));
            }
            Step::Both(key, value) => {
                change(&mut maps, LOGGED, key.clone(), Some(value.clone()));
                change(&mut maps, UNLOGGED, key, Some(value));
            }
            Step::Load(name, records) | Step::LoadIntoLog(name, records) => {
                let mut put = |(key, value)| change(&mut maps, name, key, Some(value));
                records.into_iter().for_each(&mut put);
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
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let open = || {
        let builder = Database::builder(path).file_system(Arc::new(faults.clone()));
        let database = builder.open().unwrap();
        let keyspace = |&name| (name, database.keyspace(name, golden.options(name)).unwrap());
        let keyspaces: BTreeMap<&str, Keyspace> = golden.keyspaces().iter().map(keyspace).collect();
        (database, keyspaces)
    };
    let (mut database, mut keyspaces) = open();
    for step in steps(golden) {
        match step {
            Step::Write(name, key, Some(value)) => keyspaces[name].put(key, value).unwrap(),
            Step::Write(name, key, None) => keyspaces[name].delete(key).unwrap(),
            Step::DeleteRange(name, from, to) => {
                keyspaces[name].delete_range(ends(from, to)).unwrap();
            }
            Step::Both(key, value) => {
                let mut batch = database.batch();
                batch.put(&keyspaces[LOGGED], &key, &value);
                batch.put(&keyspaces[UNLOGGED], &key, &value);
                batch.commit().unwrap();
            }
            Step::Load(name, records) => _ = keyspaces[name].load_sorted(records).unwrap(),
            Step::LoadIntoLog(name, records) => {
                database.settle().unwrap();
                let fault = Fault::new(Operation::Write, Effect::Fail(Errno::Raw(28)));
                let name_contains = "manifest".into();
                faults.arm(Fault { name_contains, times: Times::Always, ..fault });
                let error = keyspaces[name].load_sorted(records).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NoSpace);
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
    let settled = database.settle();
    assert!(settled.is_ok() || faults.fired() > 0, "{settled:?}");
    let below = |path: PathBuf| path.strip_prefix("/v1").unwrap().to_str().unwrap().to_owned();
    let killed = fs.fork();
    faults.disarm();
    killed.files().into_iter().map(|(path, bytes)| (below(path), bytes)).collect()
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
        let mut map = Map::new();
        for item in database.open_keyspace(&name).unwrap().iter() {
            let (key, value) = item.unwrap();
            map.entry(key.to_vec()).or_default().push(value.to_vec());
        }
        (name, map)
    };
    names.map(content).collect()
}

fn check(golden: Golden, database: &Database) {
    assert!(contents(database) == expected(golden), "{golden:?}");
    let report = database.verify().unwrap();
    assert!(report.problems.is_empty() && report.files >= 4, "{report:?}");
}

#[test]
fn every_version_is_read_and_written_on() {
    for &golden in GOLDEN {
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
    check(golden, &database);
    assert!(database.recovery().replayed_batches > 50, "the log had to be replayed");
    assert_eq!(database.recovery().dropped_bytes, 0);
    let keyspace = |name| database.keyspace(name, golden.options(name).layer(layer)).unwrap();
    let keyspaces: Vec<_> = golden.keyspaces().iter().map(|name| keyspace(name)).collect();
    let (logged, unlogged) = (&keyspaces[0], &keyspaces[1]);
    if golden.engine == EngineKind::Lsm {
        let levels: Vec<u32> = logged.stats().levels.iter().map(|level| level.level).collect();
        assert!(levels.len() == 2 && levels[0] == 0, "tables on two levels: {levels:?}");
        assert_eq!(logged.stats().values.files > 0, golden.name == VALUES);
    }
    if golden.engine == EngineKind::Btree {
        let tree = logged.stats().tree.unwrap();
        assert!(tree.levels == 2 && tree.overflow_pages > 0 && tree.free_pages > 0, "{tree:?}");
    }
    if golden.is_skip() {
        let runs = |keyspace: &Keyspace| keyspace.stats().skip.unwrap().runs;
        let found: Vec<_> = keyspaces.iter().map(runs).collect();
        assert!(found[0] >= 1 && found[2] >= 3 && found[3] >= 1, "{found:?}");
    }
    // Writing goes on.
    let mut batch = database.batch();
    batch.put(logged, "added", "1").put(unlogged, "added", "2");
    batch.commit().unwrap();
    logged.compact().unwrap();
    keyspaces[2..].iter().for_each(|keyspace| keyspace.compact().unwrap());
    drop(keyspaces);
    database.close().unwrap();
    let database = open();
    for (name, value) in [(LOGGED, "1"), (UNLOGGED, "2")] {
        let keyspace = database.open_keyspace(name).unwrap();
        assert_eq!(keyspace.get("added").unwrap().unwrap(), value);
        keyspace.delete("added").unwrap();
    }
    check(golden, &database);
}

#[test]
fn every_version_is_read_without_changing_a_byte() {
    for &golden in GOLDEN {
        let dir = unpack(golden);
        let before = files_below(dir.path());
        let database = Database::builder(dir.path()).read_only(true).open().unwrap();
        check(golden, &database);
        database.close().unwrap();
        assert!(files_below(dir.path()) == before);
    }
}

#[test]
fn what_the_steps_make_is_what_is_expected() {
    for &golden in GOLDEN {
        let fs = MemoryFs::new();
        for (name, bytes) in generate(golden) {
            fs.write_file(&Path::new("/copy").join(name), &bytes).unwrap();
        }
        let database = Database::builder("/copy").file_system(Arc::new(fs)).create(false).open();
        check(golden, &database.unwrap());
    }
}

#[test]
fn what_is_stored_is_small_and_has_all_kinds_of_files() {
    for &golden in GOLDEN {
        let stored = load(golden);
        let size: usize = files_below(&golden.dir()).values().map(Vec::len).sum();
        assert!(size < 512 << 10, "{size} bytes");
        let manifests = ["keyspaces/1/manifest-", "keyspaces/2/manifest-"];
        let kinds: &[&str] = match golden.engine {
            EngineKind::Hash => &[".data", ".index", manifests[0], manifests[1]],
            EngineKind::Btree => &["keyspaces/1/tree", "keyspaces/2/tree"],
            EngineKind::Skip => &[".sorted", manifests[0], manifests[1], "keyspaces/4/manifest-"],
            EngineKind::Lsm if golden.name == VALUES => &[".table", ".values"],
            _ => &[".table", manifests[0], manifests[1]],
        };
        if golden.engine == EngineKind::Lsm {
            let tables = stored.iter().filter(|(name, _)| name.ends_with(".table"));
            let mut versions: Vec<_> = tables.map(|(_, bytes)| bytes[bytes.len() - 12]).collect();
            versions.sort();
            versions.dedup();
            // Tables without range tombstones have no need of version 3.
            let expected: &[u8] = match golden.name {
                "v1" => &[1],
                RANGES => &[2, 3],
                _ => &[2],
            };
            assert_eq!(versions, expected, "{golden:?}");
        }
        for part in ["catalog-", "log/"].iter().chain(kinds) {
            assert!(stored.keys().any(|name| name.contains(part)), "{part}");
        }
    }
}
