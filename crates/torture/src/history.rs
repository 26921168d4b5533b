//! What a single-threaded workload did to a database, commit by commit, and what must be left of it.
//!
//! The state after each commit is kept as sums of hashes, one number for each part that recovers by itself: all
//! keyspaces with a log together, and each one without. So thousands of recovered databases can each be found in
//! the history quickly.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use turbidite::vfs::{Fs, MemoryFs};
use turbidite::{
    Batch, Database, DatabaseBuilder, Durability, EngineKind, Keyspace, KeyspaceOptions,
    KeyspaceStats, Layer, Reducer, Result, Slice,
};

use crate::Dice;
use crate::choices::{self, is_ordered};
use crate::setting::{Engines, Setting};

/// Directories are missing above it, so that making them durable is part of what is tested.
pub const PATH: &str = "/made/for/this/db";

/// The keyspaces: their engine, and the part they recover with.
pub const KEYSPACES: [(&str, EngineKind, usize); 9] = [
    ("alpha", EngineKind::Lsm, LOGGED),
    ("beta", EngineKind::Hash, LOGGED),
    ("gamma", EngineKind::Btree, LOGGED),
    ("delta", EngineKind::Skip, LOGGED),
    ("late", EngineKind::Lsm, LOGGED),
    ("unlogged", EngineKind::Lsm, 1),
    ("loose", EngineKind::Hash, 2),
    ("stray", EngineKind::Btree, 3),
    ("apart", EngineKind::Skip, 4),
];
/// The part of all keyspaces with a log; each of the others is one of its own.
pub const LOGGED: usize = 0;
/// How many threads write at the same time.
pub const WRITERS: usize = 3;
/// Each of their commits has a key of its own in both of these.
pub const WRITTEN: [&str; 2] = ["beta", "late"];

/// What all keys of writers begin with, and nothing else.
const WRITER: &str = "writer ";

/// What keys begin with that do not differ in their first 16 bytes.
const COMMON: &[u8] = b"what all begin with ";
/// So many bytes are in front of long keys.
const LONG: usize = 1000;

/// The key of a record in a keyspace: those of some begin alike, and others are so long that a page has few of them, in
/// three groups that begin alike.
#[must_use]
pub fn key_in(keyspace: &str, name: &str) -> Vec<u8> {
    let front = match keyspace {
        "late" | "gamma" | "apart" => COMMON.to_vec(),
        "delta" | "unlogged" | "loose" | "stray" => {
            let last = name.bytes().last().unwrap_or_default();
            vec![b'a' + last % 3; LONG]
        }
        _ => Vec::new(),
    };
    [&front, name.as_bytes()].concat()
}

/// The key of a writer's commit, the first of which has the number 0.
#[must_use]
pub fn written_key(writer: usize, number: usize) -> Vec<u8> {
    format!("{WRITER}{writer} {number:04}").into_bytes()
}

/// The value of that key in a keyspace, which nothing else is the value of. One in four is long enough to be kept apart.
#[must_use]
pub fn written_value(keyspace: &str, writer: usize, number: usize) -> Vec<u8> {
    let len = if number % 4 == 3 { APART as usize + 30 } else { 40 };
    Dice::new(choices::mix(number as u64, (keyspace, writer))).bytes(len)
}

/// What a writer's commit does in a keyspace.
#[must_use]
pub fn written(keyspace: &'static str, writer: usize, number: usize) -> Change {
    let value = written_value(keyspace, writer, number);
    (keyspace, written_key(writer, number), Some(value))
}

/// Whether it is the key of a writer's commit.
#[must_use]
pub fn is_written(key: &[u8]) -> bool {
    key.starts_with(WRITER.as_bytes())
}

/// Values of so many bytes are kept apart where any are.
const APART: u32 = 90;
/// How many parts there are.
pub const PARTS: usize = 5;

/// A database at [`PATH`] with the smallest memory budget.
pub fn builder(fs: Arc<dyn Fs>) -> DatabaseBuilder {
    Database::builder(PATH).memory_budget(8 << 20).background_threads(1).file_system(fs)
}

/// Opens it, in memory.
pub fn open(fs: &MemoryFs) -> Result<Database> {
    builder(Arc::new(fs.clone())).open()
}

/// One of the keyspaces.
fn known(keyspace: &str) -> (&'static str, EngineKind, usize) {
    let known = KEYSPACES.iter().find(|(name, ..)| *name == keyspace);
    *known.expect("it is one of the keyspaces")
}

/// The engine of a keyspace.
#[must_use]
pub fn engine_of(keyspace: &str, engines: Engines) -> EngineKind {
    engines.or(known(keyspace).1)
}

/// The keyspaces of a part.
fn names_of(part: usize) -> String {
    let of_part = KEYSPACES.iter().filter(|keyspace| keyspace.2 == part);
    of_part.map(|keyspace| keyspace.0).collect::<Vec<_>>().join(", ")
}

/// The part that a keyspace recovers with.
#[must_use]
pub fn part_of(keyspace: &str) -> usize {
    known(keyspace).2
}

/// Whether a keyspace has the log.
#[must_use]
pub fn is_logged(keyspace: &str) -> bool {
    part_of(keyspace) == LOGGED
}

/// What a keyspace is made of on its usual engine.
#[must_use]
pub fn options(keyspace: &str) -> KeyspaceOptions {
    let (_, engine, part) = known(keyspace);
    fitting(keyspace, engine, choices::plain(engine).log(part == LOGGED))
}

/// Some trees keep values apart from their keys, always from the same length on.
fn fitting(keyspace: &str, engine: EngineKind, options: KeyspaceOptions) -> KeyspaceOptions {
    let apart = engine == EngineKind::Lsm && matches!(keyspace, "late" | "unlogged");
    if apart { options.separate_values(APART) } else { options }
}

/// What a keyspace is made of when it is opened for the `opening`th time: drawn with the seed.
#[must_use]
pub fn drawn(keyspace: &str, setting: Setting, opening: u64) -> KeyspaceOptions {
    let engine = engine_of(keyspace, setting.engines);
    let seed = choices::mix(setting.seed, keyspace);
    let options = choices::options(engine, seed, opening).log(is_logged(keyspace));
    fitting(keyspace, engine, options.layer(setting.layer))
}

/// What becomes of several values of one key in a keyspace.
fn reducer(keyspace: &str, setting: Setting) -> Reducer {
    match engine_of(keyspace, setting.engines) {
        EngineKind::Skip => choices::reducer(choices::mix(setting.seed, keyspace)),
        _ => Reducer::Last,
    }
}

/// The hash of one entry; a state is the sum of its entries.
fn entry_hash(keyspace: &str, key: &[u8], value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (keyspace, key, value).hash(&mut hasher);
    hasher.finish()
}

/// The state of a database.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fingerprint {
    /// A number for each part.
    parts: [u64; PARTS],
    /// How many commits there are of each writer.
    pub written: [usize; WRITERS],
}

impl Fingerprint {
    fn part(&mut self, keyspace: &str) -> &mut u64 {
        &mut self.parts[part_of(keyspace)]
    }

    /// The same with so many commits of each writer.
    #[must_use]
    pub fn with_written(self, written: [usize; WRITERS]) -> Self {
        Self { written, ..self }
    }

    /// That of all that `db` holds, which is [read](Model::read) in each way that there is.
    pub fn of(db: &Database) -> Result<Self> {
        Ok(Model::read(db)?.fingerprint)
    }
}

/// So many times it is looked again whether a file that nobody knows of is there, after this time.
const TRIES: usize = 50;
const A_MOMENT: Duration = Duration::from_millis(2);

/// Says what there is too much of: a database that has been opened and has settled has no files but those that its keyspaces are
/// made of, however its last life ended. `files` are all that lie in its directory, with their lengths.
///
/// # Errors
/// Those of settling.
pub fn leftovers(db: &Database, files: impl Fn() -> Vec<(PathBuf, u64)>) -> Result<Option<String>> {
    let mut left = leftovers_now(db, &files)?;
    // Who lets go of a file last removes it, which may be a thread that has done all else that it had to do.
    for _ in 0..TRIES {
        if left.is_none() {
            break;
        }
        std::thread::sleep(A_MOMENT);
        left = leftovers_now(db, &files)?;
    }
    Ok(left)
}

fn leftovers_now(
    db: &Database,
    files: &impl Fn() -> Vec<(PathBuf, u64)>,
) -> Result<Option<String>> {
    db.settle()?;
    let files = files();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_in = |path: &Path, dir: &str| path.components().any(|part| part.as_os_str() == dir);
    let (mut trees, mut data) = (0, 0);
    let (mut segments, mut catalogs) = (0, 0);
    let mut manifests = BTreeMap::new();
    for (path, len) in &files {
        let name = name(path);
        if is_in(path, "log") {
            segments += 1;
        } else if name.starts_with("manifest-") {
            *manifests.entry(path.parent()).or_insert(0) += 1;
        } else if name == "tree" {
            trees += len;
        } else if is_in(path, "keyspaces") {
            data += len;
        } else if name.starts_with("catalog-") {
            catalogs += 1;
        } else if name != "lock" {
            return Ok(Some(format!("{} is there: {files:?}", path.display())));
        }
    }
    let stats = db.stats();
    let (of_trees, others): (Vec<_>, Vec<_>) =
        stats.keyspaces.iter().partition(|keyspace| keyspace.engine == EngineKind::Btree);
    let known: u64 = others.iter().map(|keyspace| keyspace.disk_bytes).sum();
    // Direct files are whole blocks until they are synced, and a tree is written to behind its last sync.
    let padded = |keyspace: &&KeyspaceStats| match keyspace.layer {
        Layer::Direct { block_size } | Layer::DirectCache { block_size, .. } => {
            keyspace.disk_bytes.next_multiple_of(block_size.into())
        }
        _ => keyspace.disk_bytes,
    };
    let most: u64 = of_trees.iter().map(padded).sum();
    let least: u64 = of_trees.iter().map(|keyspace| keyspace.disk_bytes).sum();
    if data != known || !(least..=most).contains(&trees) {
        let told = format!(
            "{data} bytes of data in files, and {known} that are known of, {trees} in trees, and {least} to {most}"
        );
        return Ok(Some(format!("{told}: {files:?}")));
    }
    if segments != stats.log.segments {
        let told = format!("{segments} segments of the log, and {} known", stats.log.segments);
        return Ok(Some(format!("{told}: {files:?}")));
    }
    let is_one_of_each = catalogs == 1 && manifests.values().all(|&count| count == 1);
    Ok((!is_one_of_each).then(|| format!("more than one catalog or manifest: {files:?}")))
}

/// The files of a file system in memory, with their lengths.
#[must_use]
pub fn files(fs: &MemoryFs) -> Vec<(PathBuf, u64)> {
    fs.files().into_iter().map(|(path, bytes)| (path, bytes.len() as u64)).collect()
}

/// How many commits of each writer there are, by their records in one keyspace.
///
/// # Panics
/// If one is missing in front of another, or is not what was written.
fn written_by_each<'a>(
    keyspace: &str,
    records: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> [usize; WRITERS] {
    let records: BTreeMap<_, _> = records.collect();
    let mut written = [0; WRITERS];
    for (writer, written) in written.iter_mut().enumerate() {
        while let Some(value) = records.get(&written_key(writer, *written)[..]) {
            let is_right = *value == written_value(keyspace, writer, *written);
            assert!(is_right, "commit {written} of writer {writer} is wrong in {keyspace}");
            *written += 1;
        }
    }
    let keys = records.keys();
    let is_whole = keys.len() == written.iter().sum::<usize>();
    assert!(is_whole, "a commit of a writer is missing: {:?}", keys.collect::<Vec<_>>());
    written
}

/// Looks up each key of `records`, which are all there is, and those that are not there of the keys that workloads put, and some that nobody does.
fn check_keys(keyspace: &Keyspace, records: &[(Slice, Slice)], name: &str) -> Result<()> {
    let there: BTreeSet<&[u8]> = records.iter().map(|(key, _)| &key[..]).collect();
    let used: Vec<_> = (0..12)
        .map(|number| format!("key {number}"))
        .chain((0..30).map(|number| format!("key {number:02}")))
        .map(|key| key_in(name, &key))
        .collect();
    let others = used.iter().map(Vec::as_slice).chain(NEVER);
    let others = others.filter(|key| !there.contains(key)).map(|key| (key, None));
    let records = records.iter().map(|(key, value)| (&key[..], Some(value)));
    let wanted: Vec<_> = records.chain(others).collect();
    let is = |found: &Option<Slice>, value: Option<&Slice>| {
        found.as_deref() == value.map(|value| &value[..])
    };
    for &(key, value) in &wanted {
        let found = keyspace.get(key)?;
        assert!(is(&found, value), "a get of {} in {name} is wrong", key.escape_ascii());
    }
    let found = keyspace.multi_get(wanted.iter().map(|&(key, _)| key))?;
    let mut pairs = found.iter().zip(&wanted);
    let is_right = found.len() == wanted.len() && pairs.all(|(found, wanted)| is(found, wanted.1));
    assert!(is_right, "a get of many keys in {name} is wrong");
    Ok(())
}

/// Keys that nobody puts: before, between and behind those that somebody does.
const NEVER: [&[u8]; 3] = [b"", b"key 1\xff", b"\xff\xff"];

/// What a key ends with that stands for all keys which begin like it: they are deleted, in an LSM-tree.
const ALL: &[u8] = b"*";

/// The writes of one commit: keyspace, key, and the value or a deletion, of one key or of [all](deletion_of_all) that begin alike.
pub type Change = (&'static str, Vec<u8>, Option<Vec<u8>>);

/// All keys of a keyspace on an LSM-tree that begin as [that of this name](key_in) are deleted.
#[must_use]
pub fn deletion_of_all(keyspace: &'static str, name: &str) -> Change {
    (keyspace, [&key_in(keyspace, name), ALL].concat(), None)
}

/// What a database must hold, as a map for each keyspace with its fingerprint kept up to date.
#[derive(Clone, Default, Debug)]
pub struct Model {
    /// The records of each keyspace.
    pub maps: BTreeMap<&'static str, BTreeMap<Vec<u8>, Vec<u8>>>,
    /// The state they are in.
    pub fingerprint: Fingerprint,
    /// What becomes of several values of one key, where it is not the last one.
    reducers: BTreeMap<&'static str, Reducer>,
}

impl Model {
    /// All that `db` holds, which is read in each way that there is: forwards, backwards where there is an order, and each key by itself and with the
    /// others, beside some that are not there.
    ///
    /// # Panics
    /// If the ways of reading it differ, or what is in order is not.
    pub fn read(db: &Database) -> Result<Self> {
        let mut model = Self::default();
        let mut of_writers = Vec::new();
        for info in db.keyspaces() {
            let name = known(&info.name).0;
            let keyspace = db.open_keyspace(name)?;
            let records = keyspace.iter().collect::<Result<Vec<_>>>()?;
            let (written, others): (Vec<_>, Vec<_>) =
                records.iter().partition(|(key, _)| is_written(key));
            if WRITTEN.contains(&name) {
                let written = written.iter().map(|(key, value)| (&key[..], &value[..]));
                of_writers.push(written_by_each(name, written));
            } else {
                assert!(written.is_empty(), "what writers have written is in {name}");
            }
            let put = |(key, value): &(Slice, Slice)| (name, key.to_vec(), Some(value.to_vec()));
            model.apply(&others.into_iter().map(put).collect::<Vec<_>>());
            let differ = |way: &str| format!("{way} differ in {name}");
            check_keys(&keyspace, &records, name)?;
            if !is_ordered(info.engine) {
                assert_eq!(records.len() as u64, keyspace.count()?, "{}", differ("counts"));
                continue;
            }
            assert!(records.is_sorted_by(|one, next| one.0 < next.0), "{name} is in no order");
            let mut rest = records.iter().rev();
            let mut cursor = keyspace.cursor()?;
            cursor.seek_to_last()?;
            while cursor.is_valid() {
                let wanted = rest.next().map(|(key, value)| (&key[..], &value[..]));
                let there = Some((cursor.key(), cursor.value()));
                assert!(wanted == there, "{}", differ("forwards and backwards"));
                cursor.prev()?;
            }
            assert!(rest.next().is_none(), "{}", differ("forwards and backwards"));
        }
        model.fingerprint.written = of_writers.first().copied().unwrap_or_default();
        let is_whole = of_writers.iter().all(|written| *written == model.fingerprint.written);
        assert!(is_whole, "commits of writers are there in part: {of_writers:?}");
        Ok(model)
    }

    /// What deletes each record of a keyspace by itself.
    #[must_use]
    pub fn deletion_of_each(&self, keyspace: &'static str) -> Vec<Change> {
        let keys = self.maps.get(keyspace).into_iter().flat_map(BTreeMap::keys);
        keys.map(|key| (keyspace, key.clone(), None)).collect()
    }

    /// Does what a commit does. Gives the keyspaces in which there was something to do: to delete what is not there is none.
    pub fn apply(&mut self, changes: &[Change]) -> Vec<&'static str> {
        let mut touched = Vec::new();
        for (keyspace, key, value) in changes {
            let map = self.maps.entry(keyspace).or_default();
            if let (Some(prefix), None) = (key.strip_suffix(ALL), value) {
                let deleted: Vec<_> =
                    map.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
                let deleted: Vec<Change> =
                    deleted.into_iter().map(|key| (*keyspace, key, None)).collect();
                touched.extend(self.apply(&deleted));
                continue;
            }
            let old = map.remove(key);
            let new = value.as_ref().map(|value| match (self.reducers.get(keyspace), &old) {
                (Some(Reducer::First), Some(old)) => old.clone(),
                (Some(Reducer::Concat), Some(old)) => [&old[..], value].concat(),
                _ => value.clone(),
            });
            if new.is_some() || old.is_some() {
                touched.push(*keyspace);
            }
            let part = self.fingerprint.part(keyspace);
            let hash = |value: &Vec<u8>| entry_hash(keyspace, key, value);
            *part = part.wrapping_sub(old.as_ref().map_or(0, hash));
            *part = part.wrapping_add(new.as_ref().map_or(0, hash));
            new.into_iter().for_each(|value| drop(map.insert(key.clone(), value)));
        }
        touched
    }
}

/// Puts the records of `changes`, which ascend, into files of the keyspace at once.
pub fn load(db: &Database, keyspace: &str, changes: &[Change]) -> Result<()> {
    let records = changes.iter().filter_map(|(_, key, value)| Some((key, value.as_ref()?)));
    db.open_keyspace(keyspace)?.load_sorted(records).map(drop)
}

/// Commits `changes` as one batch.
pub fn commit(db: &Database, changes: &[Change], durability: Durability) -> Result<()> {
    let mut batch: Batch = db.batch().durability(durability);
    for (name, key, value) in changes {
        let keyspace = db.open_keyspace(name)?;
        match value {
            Some(value) => batch.put(&keyspace, key, value),
            None => match key.strip_suffix(ALL) {
                Some(prefix) => batch.delete_prefix(&keyspace, prefix),
                None => batch.delete(&keyspace, key),
            },
        };
    }
    batch.commit()
}

/// Makes a keyspace with options that are [drawn], or opens it with others if it is there.
pub fn create(db: &Database, name: &str, setting: Setting, opening: u64) -> Result<()> {
    db.keyspace(name, drawn(name, setting, opening)).map(drop)
}

/// The same with its files in `layer`, and, on the skip engine, with the [reducer](History::of) that goes with the setting.
pub fn create_in(
    db: &Database,
    name: &str,
    setting: Setting,
    opening: u64,
    layer: Layer,
) -> Result<()> {
    let options = drawn(name, setting, opening).layer(layer);
    let options = match engine_of(name, setting.engines) {
        EngineKind::Skip => options.reducer(reducer(name, setting)),
        _ => options,
    };
    db.keyspace(name, options).map(drop)
}

/// What must be there from a moment on.
#[derive(Clone, Copy, Default, Debug)]
pub struct Promise {
    /// So many commits survive power loss.
    pub synced: usize,
    /// So many commits survive a kill.
    pub handed_over: usize,
    /// So many commits survive anything, in each part.
    pub persisted: [usize; PARTS],
    /// So many of [`KEYSPACES`] in the order they were made exist.
    pub keyspaces: usize,
    /// So many commits of each writer survive power loss.
    pub written_synced: [usize; WRITERS],
    /// So many commits of each writer survive a kill.
    pub written_handed_over: [usize; WRITERS],
    /// So many commits of all parts are in files that are not the log,
    pub in_files: usize,
    /// and so many of each writer.
    pub written_in_files: [usize; WRITERS],
}

/// What must be left.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Needed {
    /// How many commits of each part,
    pub commits: [usize; PARTS],
    /// and of each writer.
    pub written: [usize; WRITERS],
}

impl Needed {
    /// What is not logged may be older than it was.
    pub fn forget_unlogged(&mut self) {
        let logged = self.commits[LOGGED];
        self.commits = [0; PARTS];
        self.commits[LOGGED] = logged;
    }
}

impl From<[usize; PARTS]> for Needed {
    fn from(commits: [usize; PARTS]) -> Self {
        Self { commits, ..Self::default() }
    }
}

impl Promise {
    /// What must be there even if the log is not what it was.
    #[must_use]
    pub fn needed_of_files(&self) -> Needed {
        let mut commits = self.persisted;
        commits[LOGGED] = self.in_files;
        Needed { commits, written: self.written_in_files }
    }

    /// What must be there after a kill, or after power loss.
    #[must_use]
    pub fn needed(&self, killed: bool) -> Needed {
        let mut commits = self.persisted;
        commits[LOGGED] = if killed { self.handed_over } else { self.synced };
        let written = if killed { self.written_handed_over } else { self.written_synced };
        Needed { commits, written }
    }

    /// All of `commits` survive anything, but for those of writers.
    pub fn all(&mut self, commits: usize) {
        (self.synced, self.handed_over, self.persisted) = (commits, commits, [commits; PARTS]);
    }

    /// So many commits of the log survive power loss, if there were not more already.
    fn synced_at_least(&mut self, commits: usize) {
        self.synced = self.synced.max(commits);
        self.handed_over = self.handed_over.max(self.synced);
    }
}

/// The commits of a workload and the promises made on the way, at positions of a trace.
#[derive(Default, Debug)]
pub struct History {
    /// What the database holds after all of them.
    pub model: Model,
    /// Before each commit, where the trace stood.
    begun: Vec<usize>,
    /// What each commit wrote,
    changes: Vec<Vec<Change>>,
    /// and the keyspaces that it changed.
    touched: Vec<Vec<&'static str>>,
    /// After how many commits each part was in a state.
    states: [HashMap<u64, Vec<usize>>; PARTS],
    promises: Vec<(usize, Promise)>,
    /// How many commits of each writer were begun, at positions of the trace.
    written: Vec<(usize, [usize; WRITERS])>,
    /// When writers wrote.
    rounds: Vec<Round>,
    /// How many commits of each writer come in the log before a commit of one, by writer and number, itself among them.
    up_to: BTreeMap<(usize, usize), [usize; WRITERS]>,
}

/// What comes in the log when writers write at the same time: all of it between two of the other commits.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// So many other commits come before it,
    others: usize,
    /// and so many of each writer;
    before: [usize; WRITERS],
    /// and then there are so many of each.
    after: [usize; WRITERS],
}

/// What a writer does.
#[derive(Clone, Copy, Debug)]
pub enum Write {
    /// It begins its next commit.
    Begin,
    /// That is acknowledged.
    Acknowledged(Durability),
}

impl History {
    /// That of a database that is not there yet.
    #[must_use]
    pub fn new() -> Self {
        let mut history = Self::default();
        history.note_state();
        history.promises.push((0, Promise::default()));
        history
    }

    /// The same of one whose keyspaces are made by [`create_in`].
    #[must_use]
    pub fn of(setting: Setting) -> Self {
        let reducers = KEYSPACES.iter().map(|&(name, ..)| (name, reducer(name, setting)));
        let mut history = Self::new();
        history.model.reducers = reducers.collect();
        history
    }

    /// One that begins with what such a database holds, as one commit, and so many commits of each writer.
    #[must_use]
    pub fn from(setting: Setting, records: &[Change], written: [usize; WRITERS]) -> Self {
        let mut history = Self::of(setting);
        history.begin(0, records);
        history.written.push((0, written));
        history
    }

    /// How many commits there were.
    #[must_use]
    pub fn commits(&self) -> usize {
        self.begun.len()
    }

    fn note_state(&mut self) {
        for (states, hash) in self.states.iter_mut().zip(self.model.fingerprint.parts) {
            states.entry(hash).or_default().push(self.begun.len());
        }
    }

    /// Notes a commit that is about to be tried when the trace stands at `at`.
    pub fn begin(&mut self, at: usize, changes: &[Change]) {
        self.begun.push(at);
        self.changes.push(changes.to_vec());
        self.touched.push(self.model.apply(changes));
        self.note_state();
    }

    /// What a database of this workload holds when it was [read](Model::read) as `found` and then these writes were committed.
    #[must_use]
    pub fn after(&self, found: Model, changes: &[Change]) -> Model {
        let mut model = Model { reducers: self.model.reducers.clone(), ..found };
        model.apply(changes);
        model
    }

    /// A commit like the one that came after the first `commits`, with as many bytes and none of its values.
    #[must_use]
    pub fn alike(&self, commits: usize) -> Option<Vec<Change>> {
        let mut changes = self.changes.get(commits)?.clone();
        for value in changes.iter_mut().filter_map(|(.., value)| value.as_mut()) {
            value.iter_mut().for_each(|byte| *byte ^= 0xff);
        }
        Some(changes)
    }

    /// Takes back the last commit, which did not happen; `before` is the model as it was.
    pub fn withdraw(&mut self, before: Model) {
        for (states, hash) in self.states.iter_mut().zip(self.model.fingerprint.parts) {
            states.get_mut(&hash).expect("it was noted").pop();
        }
        self.begun.pop();
        self.changes.pop();
        self.touched.pop();
        self.model = before;
    }

    /// What is promised now.
    #[must_use]
    pub fn promised(&self) -> Promise {
        self.promises.last().expect("there is a first one").1
    }

    /// Changes what is promised from the position `at` of the trace on.
    pub fn promise(&mut self, at: usize, change: impl FnOnce(&mut Promise)) {
        let mut promise = self.promised();
        change(&mut promise);
        // What comes behind the commits of writers in the log takes them with it.
        let others = self.rounds.last().map_or(0, |round| round.others);
        if promise.handed_over > others {
            promise.written_handed_over = self.written_now();
        }
        if promise.synced > others {
            promise.written_synced = self.written_now();
        }
        self.promises.push((at, promise));
    }

    /// How many commits of each writer there are.
    #[must_use]
    pub fn written_now(&self) -> [usize; WRITERS] {
        self.written.last().map_or([0; WRITERS], |(_, written)| *written)
    }

    /// Notes that all commits so far are in files that are not the log.
    pub fn promise_files(&mut self, at: usize) {
        let (commits, written) = (self.commits(), self.written_now());
        self.promise(at, |promise| {
            (promise.in_files, promise.written_in_files) = (commits, written);
        });
    }

    /// Notes what writers have done at the same time: each where the trace stood, just before it began a commit and just after that was
    /// acknowledged, in an order in which that may have happened where the trace has not gone on.
    pub fn wrote(&mut self, mut writes: Vec<(usize, usize, Write)>) {
        writes.sort_by_key(|&(at, ..)| at);
        let before_all = self.written_now();
        let mut begun = before_all;
        let mut acknowledged = begun;
        // Those that were acknowledged when a writer's commit began come before it in the log.
        let mut before = [acknowledged; WRITERS];
        let mut promise = self.promised();
        for (at, writer, write) in writes {
            match write {
                Write::Begin => {
                    begun[writer] += 1;
                    before[writer] = acknowledged;
                    let mut up_to = acknowledged;
                    up_to[writer] = begun[writer];
                    self.up_to.insert((writer, begun[writer]), up_to);
                    self.written.push((at, begun));
                }
                Write::Acknowledged(durability) => {
                    acknowledged[writer] = begun[writer];
                    before[writer][writer] = begun[writer];
                    let at_least = |survive: &mut [usize; WRITERS]| {
                        for (survive, before) in survive.iter_mut().zip(before[writer]) {
                            *survive = (*survive).max(before);
                        }
                    };
                    if durability != Durability::Buffered {
                        at_least(&mut promise.written_handed_over);
                    }
                    if durability == Durability::Sync {
                        at_least(&mut promise.written_synced);
                    }
                    self.promises.push((at, promise));
                }
            }
        }
        self.rounds.push(Round { others: self.commits(), before: before_all, after: begun });
    }

    /// Takes back the commits of writers that were not acknowledged, of which there are so many: they did not happen.
    pub fn withdraw_written(&mut self, acknowledged: [usize; WRITERS]) {
        let at = self.written.last().map_or(0, |&(at, _)| at);
        self.written.push((at, acknowledged));
        self.rounds.last_mut().expect("they have written").after = acknowledged;
    }

    /// Says what is wrong if the log is to have the first so many of the other commits and so many of each writer: it is a beginning of what was
    /// written to it.
    fn check_order(
        &self,
        others: usize,
        written: [usize; WRITERS],
    ) -> std::result::Result<(), String> {
        for round in &self.rounds {
            let is_behind = others > round.others;
            let least = if is_behind { round.after } else { [0; WRITERS] };
            let most = if others < round.others { round.before } else { [usize::MAX; WRITERS] };
            if let Some(writer) =
                (0..WRITERS).find(|&at| !(least[at]..=most[at]).contains(&written[at]))
            {
                let side = if is_behind { "behind" } else { "before" };
                return Err(format!(
                    "writer {writer}: {} commits with {others} of the others, {side} {round:?}",
                    written[writer]
                ));
            }
        }
        for last in written.into_iter().enumerate() {
            let least = self.up_to.get(&last).copied().unwrap_or_default();
            if (0..WRITERS).any(|at| written[at] < least[at]) {
                return Err(format!("{written:?} commits of writers, without all of {least:?}"));
            }
        }
        Ok(())
    }

    /// All that was written to a keyspace is in its own files when the trace stands at `at`. What comes back from the log is a beginning of it: with the last write to this
    /// keyspace all that came before it in others.
    pub fn promise_persisted(&mut self, at: usize, keyspace: &str) {
        let commits = self.commits();
        let last = self.touched.iter().rposition(|touched| touched.contains(&keyspace));
        self.promise(at, |promise| match part_of(keyspace) {
            LOGGED => promise.synced_at_least(last.map_or(0, |last| last + 1)),
            part => promise.persisted[part] = commits,
        });
    }

    /// The promise that holds at `at`.
    #[must_use]
    pub fn promised_at(&self, at: usize) -> Promise {
        self.promises[self.promises.partition_point(|&(since, _)| since <= at) - 1].1
    }

    /// Where the trace stood when more was promised to survive power loss than before, in order.
    pub fn moments(&self) -> impl Iterator<Item = usize> {
        let more = self.promises.windows(2).filter(|pair| {
            let survive = |promise: &Promise| (promise.needed(false), promise.keyspaces);
            survive(&pair[0].1) != survive(&pair[1].1)
        });
        more.map(|pair| pair[1].0)
    }

    /// Finds a recovered state: the last commit of each of its parts. An error if it is no state there ever was up
    /// to `at`, or an older one than `needed` says, or if what the log has is not in the order in which it was written.
    pub fn find(
        &self,
        state: Fingerprint,
        at: usize,
        needed: impl Into<Needed>,
    ) -> std::result::Result<[usize; PARTS], String> {
        let needed = needed.into();
        let written = self.written.partition_point(|&(since, _)| since <= at);
        let most = self.written[..written].last().map_or([0; WRITERS], |&(_, begun)| begun);
        for (writer, found) in state.written.into_iter().enumerate() {
            let (needed, begun) = (needed.written[writer], most[writer]);
            if !(needed..=begun).contains(&found) {
                return Err(format!("writer {writer}: {found} commits of {needed} to {begun}"));
            }
        }
        let begun = self.begun.partition_point(|&start| start <= at);
        let mut found = [0; PARTS];
        for (part, found) in found.iter_mut().enumerate() {
            let (what, needed) = (names_of(part), needed.commits[part]);
            let all = self.states[part].get(&state.parts[part]).map_or(&[][..], Vec::as_slice);
            let mut before = all.iter().copied().filter(|&commits| commits <= begun).rev();
            let last = before.clone().next().ok_or_else(|| {
                format!("{what}: no prefix of the {begun} commits; {needed} needed")
            })?;
            if last < needed {
                return Err(format!("{what}: {last} commits are left of {needed}"));
            }
            // Of several commits that may have left it one must fit.
            let in_order = |&commits: &usize| {
                commits >= needed
                    && (part != LOGGED || self.check_order(commits, state.written).is_ok())
            };
            *found = match before.find(in_order) {
                Some(found) => found,
                None => self.check_order(last, state.written).map(|()| last)?,
            };
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writers_had_acknowledged_is_needed() {
        let acknowledged = Write::Acknowledged;
        let mut history = History::new();
        history.begin(1, &[("beta", b"key".to_vec(), Some(b"value".to_vec()))]);
        history.wrote(vec![
            (2, 0, Write::Begin),
            (4, 0, acknowledged(Durability::Os)),
            (5, 0, Write::Begin),
            (7, 0, acknowledged(Durability::Buffered)),
            (3, 1, Write::Begin),
            (8, 1, acknowledged(Durability::Sync)),
            (8, 1, Write::Begin),
            (9, 1, acknowledged(Durability::Sync)),
        ]);
        let needed = |at, killed| history.promised_at(at).needed(killed).written;
        assert_eq!(
            [3, 4, 7, 8, 9].map(|at| needed(at, true)),
            [[0, 0, 0], [1, 0, 0], [1, 0, 0], [1, 1, 0], [2, 2, 0]]
        );
        assert_eq!([7, 8, 9].map(|at| needed(at, false)), [[0, 0, 0], [0, 1, 0], [2, 2, 0]]);
        assert_eq!(history.moments().collect::<Vec<_>>(), [8, 9]);
        let find = |written, at| {
            let state = Fingerprint { written, ..history.model.fingerprint };
            history.find(state, at, history.promised_at(at).needed(true))
        };
        assert!(find([1, 1, 0], 8).is_ok() && find([2, 2, 0], 8).is_ok());
        assert!(find([1, 0, 0], 8).is_err() && find([2, 0, 1], 7).is_err());
        // What is synced then has those in front of it.
        history.promise(10, |promise| promise.synced = 1);
        assert_eq!(history.promised().written_synced, [2, 2, 0]);
        history.wrote(vec![(11, 2, Write::Begin), (12, 2, acknowledged(Durability::Os))]);
        history.promise(13, |promise| promise.synced = 1);
        assert_eq!(history.promised().written_synced, [2, 2, 0]);
        history.begin(14, &[("beta", b"key".to_vec(), None)]);
        history.promise(15, |promise| promise.synced = 2);
        assert_eq!(history.promised().written_synced, [2, 2, 1]);
    }

    #[test]
    fn a_gap_between_commits_of_a_writer_is_noticed() {
        let written = |keys: &[(usize, usize)], of| {
            let record = |&(writer, at)| (written_key(writer, at), written_value(of, writer, at));
            let records: Vec<_> = keys.iter().map(record).collect();
            written_by_each("late", records.iter().map(|(key, value)| (&key[..], &value[..])))
        };
        assert_eq!(written(&[(0, 0), (0, 1), (2, 0)], "late"), [2, 0, 1]);
        let gap = crate::panics::caught(|| written(&[(0, 0), (0, 2)], "late")).unwrap_err();
        assert!(gap.contains("is missing"), "{gap}");
        // The right key with the value of another keyspace.
        let wrong = crate::panics::caught(|| written(&[(0, 0), (2, 0)], "beta")).unwrap_err();
        assert!(wrong.contains("commit 0 of writer 0 is wrong"), "{wrong}");
    }

    #[test]
    fn a_record_of_a_writer_in_another_keyspace_is_noticed() {
        let db = open(&MemoryFs::new()).unwrap();
        for (name, is_right) in [("beta", true), ("late", true), ("alpha", false)] {
            let keyspace = db.keyspace(name, options(name)).unwrap();
            keyspace.put(written_key(0, 0), written_value(name, 0, 0)).unwrap();
            // It is in both, and then in another one.
            let read = crate::panics::caught(|| Model::read(&db).unwrap().fingerprint.written);
            assert_eq!(read.is_ok(), is_right, "{read:?}");
        }
    }

    #[test]
    fn the_log_is_a_beginning_of_what_was_written_to_it() {
        let change = |value: u8| [("beta", b"key".to_vec(), Some(vec![value]))];
        let mut history = History::new();
        let mut states = vec![history.model.fingerprint];
        let mut begin = |history: &mut History, value| {
            history.begin(0, &change(value));
            states.push(history.model.fingerprint);
        };
        let acknowledged = Write::Acknowledged(Durability::Buffered);
        begin(&mut history, 1);
        // The second commit of writer 0 begins when the first one of writer 1 is there.
        history.wrote(vec![
            (0, 0, Write::Begin),
            (0, 1, Write::Begin),
            (0, 0, acknowledged),
            (0, 1, acknowledged),
            (0, 0, Write::Begin),
            (0, 2, Write::Begin),
            (0, 0, acknowledged),
            (0, 2, acknowledged),
        ]);
        begin(&mut history, 2);
        history.wrote(vec![(0, 2, Write::Begin), (0, 2, acknowledged)]);
        begin(&mut history, 3);
        let find = |history: &History, others: usize, written| {
            let state = states[others].with_written(written);
            history.find(state, 0, [0; PARTS]).map(|found| found[LOGGED])
        };
        for (others, written) in [
            (0, [0, 0, 0]),
            (1, [0, 0, 0]),
            (1, [1, 0, 0]),
            (1, [0, 1, 0]),
            (1, [2, 1, 0]),
            (1, [1, 1, 1]),
            (1, [2, 1, 1]),
            (2, [2, 1, 1]),
            (2, [2, 1, 2]),
            (3, [2, 1, 2]),
        ] {
            assert_eq!(find(&history, others, written), Ok(others), "{written:?}");
        }
        for (others, written) in [
            // What came before is not there,
            (0, [1, 0, 0]),
            (1, [2, 1, 2]),
            // or what came before among writers,
            (1, [2, 0, 0]),
            (1, [0, 1, 1]),
            // or what writers have put in front of it.
            (2, [1, 1, 1]),
            (2, [0, 0, 0]),
            (3, [2, 1, 1]),
        ] {
            assert!(find(&history, others, written).is_err(), "{others} {written:?}");
        }
        // The same state once more: it is that of before, or of now.
        history.begin(0, &change(1));
        for (written, found) in [([1, 1, 0], Some(1)), ([2, 1, 2], Some(4)), ([2, 1, 1], Some(1))] {
            assert_eq!(find(&history, 1, written).ok(), found);
        }
        assert!(find(&history, 1, [2, 0, 2]).is_err());
    }

    #[test]
    fn long_keys_make_a_tree_high() {
        let db = open(&MemoryFs::new()).unwrap();
        let tree = db.keyspace("stray", options("stray")).unwrap();
        for number in 0..30 {
            tree.put(key_in("stray", &format!("key {number:02}")), [number]).unwrap();
        }
        tree.persist().unwrap();
        let levels = tree.stats().tree.unwrap().levels;
        assert!(levels >= 3, "{levels}");
        assert_eq!(Model::read(&db).unwrap().maps["stray"].len(), 30);
    }

    #[test]
    fn a_file_that_nobody_knows_of_is_noticed() {
        for (name, engine, _) in &KEYSPACES[..4] {
            let fs = MemoryFs::new();
            let db = open(&fs).unwrap();
            let keyspace = db.keyspace(name, options(name)).unwrap();
            for number in 0..200 {
                keyspace.put(format!("key {number}"), [number; 100]).unwrap();
            }
            keyspace.persist().unwrap();
            let told = || leftovers(&db, || files(&fs)).unwrap();
            assert_eq!(told(), None, "{engine}");
            let of_keyspace = |(path, _): &(PathBuf, u64)| path.parent().map(Path::to_path_buf);
            let is_own = |dir: &PathBuf| dir.parent().is_some_and(|dir| dir.ends_with("keyspaces"));
            let dir = files(&fs).iter().filter_map(of_keyspace).find(is_own).unwrap();
            let stray = fs.create(&dir.join("000099.stray"), Layer::Positional).unwrap();
            stray.write_at(0, b"stray").unwrap();
            assert!(told().is_some_and(|told| told.contains("000099.stray")), "{engine}");
        }
    }
}
