//! Small databases to damage, with a file of every kind that there is, and what they hold.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use turbidite::vfs::{Fs, MemoryFs};
use turbidite::{Database, Durability, EngineKind, KeyspaceOptions, Policy};

use super::examine::{self, Contents, Wanted};
use super::places::{self, Places};
use super::{PAGE, State};
use crate::setting::{Engines, Setting};
use crate::{Dice, choices, history, is_small, simulated};

/// Values of so many bytes are kept apart by the keyspace that does so.
const APART: u32 = 90;
/// Bytes of the values that have pages of their own in a B+ tree, and blocks of their own in a skip keyspace.
const LARGE: usize = 5000;
/// Bytes of the values of which the second does not fit the first segment of the log.
const HUGE: usize = 69_000;
/// So many commits are not synced, where there are some.
const UNSYNCED: usize = 5;
/// What waits longer in the background than this does not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A keyspace of a sample.
struct Member {
    name: &'static str,
    engine: EngineKind,
    is_logged: bool,
}

const fn member(name: &'static str, engine: EngineKind, is_logged: bool) -> Member {
    Member { name, engine, is_logged }
}

/// All keyspaces there are, in the order in which they are made.
const MEMBERS: [Member; 8] = [
    member("lsm", EngineKind::Lsm, true),
    member("hash", EngineKind::Hash, true),
    member("btree", EngineKind::Btree, true),
    member("skip", EngineKind::Skip, true),
    member("lsm-unlogged", EngineKind::Lsm, false),
    member("hash-unlogged", EngineKind::Hash, false),
    member("btree-unlogged", EngineKind::Btree, false),
    member("skip-unlogged", EngineKind::Skip, false),
];
const LOGGED: [&str; 4] = ["lsm", "hash", "btree", "skip"];

/// What a crash may leave in the directory of a keyspace.
fn leftovers(engine: EngineKind) -> &'static [&'static str] {
    match engine {
        EngineKind::Lsm => &["000999.table", "000999.values"],
        EngineKind::Hash => &["000999.data", "000999.index", "manifest-000002.tmp"],
        EngineKind::Skip => &["000999.sorted"],
        _ => &[],
    }
}

/// The keyspaces, in the order in which they are made: so they have the numbers from 1 on.
fn members(engines: Engines) -> impl Iterator<Item = &'static Member> {
    MEMBERS.iter().filter(move |member| engines.or(member.engine) == member.engine)
}

/// How many segments of the log are in use. If it is one, another one is prepared.
fn segments(engines: Engines, state: State) -> usize {
    if engines == Engines::All && state != State::Closed { 1 } else { 2 }
}

/// What a keyspace is made of when it is opened for the `opening`th time.
fn options(member: &Member, setting: Setting, opening: u64) -> KeyspaceOptions {
    let seed = choices::mix(setting.seed, member.name);
    let options = choices::options(member.engine, seed, opening);
    let options = options.log(member.is_logged).layer(setting.layer);
    match member.name {
        // Not every policy compacts what there is here, and only that makes garbage.
        "lsm-unlogged" => options.policy(Policy::default()).separate_values(APART),
        // What depends on the bytes of a page is known for this size.
        _ if member.engine == EngineKind::Btree => options.page_size(PAGE as u32),
        _ => options,
    }
}

/// A file of a sample.
pub(super) struct Sampled {
    /// Its path in the directory of the database, with `/` between the parts.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
    /// What depends on its bytes.
    pub(super) places: Places,
    /// How many bytes at its front are in use: the others are zeros.
    pub(super) used: usize,
    /// Whether it is a segment of the log that no record has been written to, or none that is synced.
    pub(super) is_prepared: bool,
    /// What the file held before it was last written, as far as it is not longer now; nothing if it was written once.
    pub(super) earlier: Vec<u8>,
    /// The bytes of the same file of another database with the same history, if that has it.
    pub(super) foreign: Option<Vec<u8>>,
}

impl Sampled {
    pub(super) fn is_catalog(&self) -> bool {
        self.name.starts_with("catalog-")
    }

    /// The number of the keyspace that it belongs to, if it is one's.
    pub(super) fn number_of_keyspace(&self) -> Option<u32> {
        let (number, _) = self.name.strip_prefix("keyspaces/")?.split_once('/')?;
        number.parse().ok()
    }

    /// What distinguishes the kinds of files: the last part of the name without its number.
    pub(super) fn kind(&self) -> String {
        places::last_part(&self.name).chars().filter(|c| !c.is_ascii_digit()).collect()
    }
}

/// A database with tables on several levels, range tombstones, values apart from their keys, segments and checkpoints of hash tables,
/// trees with free pages, sorted files with links and runs behind them, edits in catalog and manifests, and two segments of the log,
/// one of them only prepared if all engines are there and it is not closed. It is the same for the same seed, with the
/// feature `simulation` to the last byte. Beside its files are some that a crash may have left.
pub(super) struct Sample {
    pub(super) setting: Setting,
    pub(super) state: State,
    pub(super) fs: MemoryFs,
    pub(super) contents: Contents,
    /// What they held before each of the last commits, if those were not synced, the newest first.
    pub(super) before: Vec<Contents>,
    /// All but the lock, which holds nothing, by name.
    pub(super) files: Vec<Sampled>,
}

impl Sample {
    pub(super) fn new(setting: Setting, state: State) -> Self {
        let made = |seed| simulated(seed, || Maker::make(setting, state));
        let Made { fs, contents, before, mut versions, synced } = made(setting.seed);
        // Another order of threads, and another identity; sizes that are the same, or files would have other names.
        let mut seeds = (0_u32..).map(|number| choices::mix(setting.seed, ("another", number)));
        let history = |seed| (is_small(seed), is_killed(seed));
        let another = seeds.find(|&seed| history(seed) == history(setting.seed));
        let mut others = files_of(&made(another.expect("a quarter of all are")).fs);
        let files = files_of(&fs).into_iter().map(|(name, bytes)| {
            let records = members(setting.engines).zip(1..).find_map(|(member, id)| {
                let is_in = name.starts_with(&format!("keyspaces/{id}/"));
                if is_in { contents.get(member.name) } else { None }
            });
            let places = match synced.get(&name) {
                Some(&synced) => Places::of_unsynced(&name, &bytes, synced),
                None => Places::of(&name, &bytes, records),
            };
            let foreign = others.iter_mut().find(|other| other.0 == name);
            let foreign = foreign.map(|other| std::mem::take(&mut other.1));
            let mut versions = versions.remove(&name).unwrap_or_default().into_iter();
            let earlier = versions.rfind(|version| *version != bytes).unwrap_or_default();
            let (path, used) = (Path::new(history::PATH).join(&name), places::used(&bytes));
            let synced = synced.get(&name).copied().unwrap_or(used);
            let is_prepared = places::is_prepared_segment(&name, synced);
            Sampled { name, path, bytes, places, used, is_prepared, earlier, foreign }
        });
        let files = files.collect();
        for (member, id) in members(setting.engines).zip(1..) {
            for name in leftovers(member.engine) {
                let path = format!("{}/keyspaces/{id}/{name}", history::PATH);
                fs.write_file(Path::new(&path), b"leftover").expect("there is room");
            }
        }
        Self { setting, state, fs, contents, before, files }
    }

    /// What all keyspaces together may hold: all, or what was there before some of the commits that were not synced.
    pub(super) fn wanted(&self) -> Vec<Wanted> {
        std::iter::once(&self.contents).chain(&self.before).map(examine::wanted).collect()
    }

    /// Whether a file is to be damaged: those of the log alone if it is they that the state is about.
    pub(super) fn is_damaged(&self, file: usize) -> bool {
        self.state != State::Unsynced || is_of_log(&self.files[file].name)
    }

    /// How many bytes of its files are in use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.used as u64).sum()
    }

    /// The number of the keyspace of this name.
    pub(super) fn number_of(&self, name: &str) -> u32 {
        let mut numbered = (1..).zip(members(self.setting.engines));
        let found = numbered.find(|(_, member)| member.name == name);
        found.map_or(0, |(number, _)| number)
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.files.iter().position(|file| file.name == name)
    }
}

fn is_of_log(name: &str) -> bool {
    name.starts_with("log/")
}

/// The files of the database but the lock, with their bytes, by name.
fn files_of(fs: &MemoryFs) -> Vec<(String, Vec<u8>)> {
    let named = fs.files().into_iter().filter_map(|(path, bytes)| {
        let path = path.strip_prefix(history::PATH).ok()?;
        let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
        Some((parts.join("/"), bytes))
    });
    named.filter(|(name, _)| name != "lock").collect()
}

/// A sample that is being made. Steps of keyspaces that it does not have are left out.
struct Maker {
    setting: Setting,
    fs: MemoryFs,
    db: Option<Database>,
    contents: Contents,
    dice: Dice,
    versions: Versions,
    before: Vec<Contents>,
    synced: Synced,
    /// What is asked for each commit.
    durability: Durability,
}

/// Whether the database of this seed was killed before it was closed: what it has in the log was made safe by the opening only.
fn is_killed(seed: u64) -> bool {
    seed % 2 == 1
}

/// The last two versions of each file, by name.
type Versions = BTreeMap<String, VecDeque<Vec<u8>>>;

/// How many bytes of each file of the log were in use when it was synced last, if there are others.
type Synced = BTreeMap<String, usize>;

/// What was made.
struct Made {
    fs: MemoryFs,
    contents: Contents,
    before: Vec<Contents>,
    versions: Versions,
    synced: Synced,
}

impl Maker {
    fn make(setting: Setting, state: State) -> Made {
        let (fs, dice) = (MemoryFs::new(), Dice::new(setting.seed));
        let db = Some(open(setting, &fs, 0));
        let (contents, versions, before, synced) = Default::default();
        let durability = Durability::Sync;
        let mut maker =
            Self { setting, fs, db, contents, dice, versions, before, synced, durability };
        maker.work(state);
        let fs = match state {
            State::Closed => {
                if is_killed(setting.seed) {
                    maker.kill();
                }
                maker.close();
                maker.fs.clone()
            }
            State::Unclosed => maker.fs.fork(),
            State::Unsynced => {
                maker.put_unsynced();
                maker.fs.fork()
            }
        };
        let Self { contents, before, versions, synced, .. } = maker;
        Made { fs, contents, before, versions, synced }
    }

    /// Commits that only the log has, and not for certain.
    fn put_unsynced(&mut self) {
        let files = files_of(&self.fs).into_iter().filter(|(name, _)| is_of_log(name));
        self.synced = files.map(|(name, bytes)| (name, places::used(&bytes))).collect();
        self.durability = Durability::Os;
        for number in 0..UNSYNCED {
            self.before.insert(0, self.contents.clone());
            self.put_small(&LOGGED, 24 + 4 * number);
        }
    }

    /// Keeps what files hold now.
    fn remember(&mut self) {
        for (name, bytes) in files_of(&self.fs) {
            let versions = self.versions.entry(name).or_default();
            if versions.back() != Some(&bytes) {
                versions.push_back(bytes);
                versions.drain(..versions.len().saturating_sub(2));
            }
        }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("the database is open")
    }

    fn close(&mut self) {
        self.db.take().expect("the database is open").close().expect("it closes");
    }

    /// The process is killed, and another one opens the database.
    fn kill(&mut self) {
        self.fs = self.fs.fork();
        self.db = Some(open(self.setting, &self.fs, 2));
    }

    fn work(&mut self, state: State) {
        for member in members(self.setting.engines) {
            self.make_keyspace(member, 0);
            self.contents.insert(member.name.into(), Default::default());
        }
        self.put_small(&["lsm", "hash"], 0);
        self.compact(&["lsm"]);
        self.put_values_apart("lsm-unlogged");
        // Overwritten again and again, so that there are dead records in segments, and tombstones.
        self.put_small(&["hash", "hash-unlogged"], 3);
        self.compact(&["hash"]);
        // Tables of one tree need not be made of the same.
        self.make_keyspace(&MEMBERS[0], 1);
        self.put_small(&["lsm", "lsm-unlogged", "hash", "hash-unlogged"], 4);
        self.delete_some(&["lsm", "lsm-unlogged"]);
        self.persist(&["hash", "hash-unlogged"]);
        // Tables of several sectors, which can have each other's place. The first segment of the log has no room for more.
        self.put_many(&["lsm-unlogged"], 0);
        self.persist(&["lsm-unlogged"]);
        // Closing makes checkpoints, and what comes now is in segments behind them.
        self.close();
        self.db = Some(open(self.setting, &self.fs, 1));
        self.put_small(&["hash", "hash-unlogged"], 6);
        // Twice, so that there are free pages; and leaves below a root, and values in pages of their own.
        for first in 0..2 {
            self.put_many(&["btree", "btree-unlogged"], first);
            self.persist(&["btree", "btree-unlogged"]);
        }
        self.put_small(&["btree", "btree-unlogged"], 6);
        // A sorted file with several blocks and levels of links, and a run that is not merged into it.
        self.put_many(&["skip", "skip-unlogged"], 0);
        self.compact(&["skip", "skip-unlogged"]);
        self.put_small(&["skip", "skip-unlogged"], 4);
        self.persist(&MEMBERS.map(|member| member.name));
        self.put_small(&LOGGED, 10);
        if state == State::Closed && is_killed(self.setting.seed) {
            self.durability = Durability::Os;
        }
        self.put_huge(segments(self.setting.engines, state));
        self.put_small(&LOGGED, 20);
    }

    /// Makes a keyspace, or opens it with other options.
    fn make_keyspace(&self, member: &Member, opening: u64) {
        if members(self.setting.engines).any(|known| known.name == member.name) {
            let options = options(member, self.setting, opening);
            self.db().keyspace(member.name, options).expect("the options fit");
        }
    }

    /// Those of `names` that there are.
    fn those<'a>(
        &self,
        names: &'a [&'static str],
    ) -> impl Iterator<Item = &'a &'static str> + use<'a> {
        let engines = self.setting.engines;
        names.iter().filter(move |name| members(engines).any(|member| member.name == **name))
    }

    /// Puts values, or deletes where there is none, with one commit.
    fn commit(&mut self, changes: Vec<(&str, String, Option<Vec<u8>>)>) {
        let mut batch = self.db().batch().durability(self.durability);
        for (name, key, value) in changes {
            let keyspace = self.db().open_keyspace(name).expect("it was made");
            match &value {
                Some(value) => batch.put(&keyspace, &key, value),
                None => batch.delete(&keyspace, &key),
            };
            let records = self.contents.get_mut(name).expect("it was made");
            records.insert(key.into_bytes(), value);
        }
        batch.commit().expect("there is room");
        self.remember();
    }

    /// Eight keys from number `first` on, some of them deleted.
    fn put_small(&mut self, names: &[&'static str], first: usize) {
        let mut changes = Vec::new();
        for number in first..first + 8 {
            for &name in self.those(names) {
                let value = (self.dice.roll(5) > 0).then(|| self.dice.bytes(16));
                changes.push((name, format!("key {number:03}"), value));
            }
        }
        self.commit(changes);
    }

    /// What fills several pages, and two large values from number `first` on.
    fn put_many(&mut self, names: &[&'static str], first: usize) {
        for &name in self.those(names) {
            let small = (0..40).map(|number| (format!("leaf {number:02}"), 200));
            let large = (first..first + 2).map(|number| (format!("value {number}"), LARGE));
            let dice = &mut self.dice;
            let changes = small.chain(large).map(|(key, len)| (name, key, Some(dice.bytes(len))));
            let changes = changes.collect();
            self.commit(changes);
        }
    }

    /// Long values, overwritten until some of what is kept apart is garbage.
    fn put_values_apart(&mut self, name: &'static str) {
        for &name in self.those(&[name]) {
            for numbers in [0..10, 0..2, 1..3, 2..4, 3..5] as [Range<usize>; 5] {
                let dice = &mut self.dice;
                let changes = numbers
                    .map(|number| (name, format!("long {number}"), Some(dice.bytes(100 + number))));
                let changes = changes.collect();
                self.commit(changes);
                self.persist(&[name]);
            }
            let values = self.db().open_keyspace(name).expect("it was made").stats().values;
            assert!(values.garbage > 0 && values.files > 1, "{values:?}");
        }
    }

    /// Values of which the first fills more than half of the log's first segment, so that the next one is prepared, and the second goes
    /// there.
    fn put_huge(&mut self, count: usize) {
        let first = members(self.setting.engines).next().expect("there is one on each engine").name;
        for number in 0..count {
            let value = self.dice.bytes(HUGE);
            self.commit(vec![(first, format!("huge {number}"), Some(value))]);
            if number == 0 {
                wait_for_spare(&self.fs);
            }
        }
    }

    /// Deletes a range of keys at once.
    fn delete_some(&mut self, names: &[&'static str]) {
        const PREFIX: &str = "key 00";
        for &name in self.those(names) {
            let keyspace = self.db().open_keyspace(name).expect("it was made");
            let mut batch = self.db().batch().durability(Durability::Sync);
            batch.delete_prefix(&keyspace, PREFIX);
            batch.commit().expect("there is room");
            let records = self.contents.get_mut(name).expect("it was made");
            let deleted = records.iter_mut().filter(|(key, _)| key.starts_with(PREFIX.as_bytes()));
            deleted.for_each(|(_, value)| *value = None);
        }
    }

    /// Persists keyspaces, and waits until nothing is left to be done in the background.
    fn persist(&mut self, names: &[&'static str]) {
        for name in self.those(names) {
            self.db()
                .open_keyspace(name)
                .and_then(|keyspace| keyspace.persist())
                .expect("it persists");
            self.db().settle().expect("nothing fails in the background");
            self.remember();
        }
    }

    fn compact(&mut self, names: &[&'static str]) {
        for name in self.those(names) {
            self.db()
                .open_keyspace(name)
                .and_then(|keyspace| keyspace.compact())
                .expect("it compacts");
            self.db().settle().expect("nothing fails in the background");
            self.remember();
        }
    }
}

/// Opens the database for the `opening`th time: other options are drawn for each.
fn open(setting: Setting, fs: &MemoryFs, opening: u64) -> Database {
    let builder = choices::database(examine::builder(fs, setting.layer), setting.seed, opening);
    builder.open().expect("it opens")
}

/// Waits until the segment of the log that is prepared in the background is whole.
fn wait_for_spare(fs: &MemoryFs) {
    let begun = Instant::now();
    while !files_of(fs)
        .iter()
        .any(|(name, bytes)| places::is_prepared_segment(name, places::used(bytes)))
    {
        assert!(begun.elapsed() < PATIENCE, "no segment of the log is prepared");
        // A simulation has other threads go on at some of the calls to the file system.
        (0..200).for_each(|_| drop(fs.kind(Path::new(history::PATH))));
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[cfg(test)]
mod tests {
    use turbidite::Layer;

    use super::super::SECTOR;
    use super::*;
    use crate::choices::ENGINES;
    use crate::setting::layers;
    use crate::setting::{Engines, Setting};

    fn sample(engines: Engines, layer: Layer, state: State) -> Sample {
        Sample::new(Setting { seed: 5, engines, layer }, state)
    }

    #[test]
    fn there_is_a_file_of_every_kind() {
        let kinds_of = |engine| match engine {
            EngineKind::Lsm => &["manifest-", ".table", ".values"][..],
            EngineKind::Hash => &["manifest-", ".data", ".index"],
            EngineKind::Btree => &["tree"],
            EngineKind::Skip => &["manifest-", ".sorted"],
            engine => panic!("{engine} is a new one"),
        };
        for engines in [vec![Engines::All], Engines::each()].concat() {
            for state in State::ALL {
                let sample = sample(engines, Layer::Mmap, state);
                let kinds: Vec<_> = sample.files.iter().map(Sampled::kind).collect();
                let there = ENGINES.into_iter().filter(|&one| engines.or(one) == one);
                let mut wanted: Vec<_> = there.flat_map(kinds_of).copied().collect();
                wanted.extend(["catalog-", ".log"]);
                for kind in wanted {
                    assert!(
                        kinds.iter().any(|known| known == kind),
                        "{engines}: no {kind} in {kinds:?}"
                    );
                }
                assert_eq!(kinds.iter().any(|kind| kind == "tail.log"), state != State::Closed);
                let logs = sample.files.iter().filter(|file| file.kind() == ".log");
                let (prepared, used): (Vec<_>, Vec<_>) = logs.partition(|file| file.is_prepared);
                let wanted = segments(sample.setting.engines, state);
                // Hash keyspaces persist what they have when they are closed: the first segment may be let go. And who prepares segments may be there
                // just when one is taken, and prepare another one.
                let is_hash = ENGINES.into_iter().all(|one| engines.or(one) == EngineKind::Hash);
                let (fewer, more) = match state {
                    State::Closed => (usize::from(is_hash), 0),
                    State::Unclosed | State::Unsynced => (0, 1),
                };
                let there = (used.len(), prepared.len());
                assert!(
                    (wanted - fewer..=wanted).contains(&there.0),
                    "{engines}, {state}: {there:?}"
                );
                let most = 2 - wanted + more;
                assert!((2 - wanted..=most).contains(&there.1), "{engines}, {state}: {there:?}");
            }
        }
    }

    #[test]
    fn there_is_a_file_of_each_kind_that_is_longer_than_a_sector() {
        let samples =
            Engines::each().into_iter().map(|one| sample(one, Layer::Mmap, State::Closed));
        let long: Vec<_> = samples
            .flat_map(|sample| sample.files)
            .filter(|file| file.used > SECTOR)
            .map(|file| file.kind())
            .collect();
        for kind in [".table", ".values", ".data", "tree", ".sorted", ".log", "manifest-"] {
            assert!(long.iter().any(|known| known == kind), "no {kind} in {long:?}");
        }
    }

    #[test]
    fn at_least_128_kib_are_in_use() {
        for engines in [vec![Engines::All], Engines::each()].concat() {
            for layer in layers() {
                let used = sample(engines, layer, State::Closed).used_bytes();
                assert!(used >= 128 << 10, "{engines}, {layer}: {used}");
            }
        }
    }

    #[test]
    fn another_database_has_other_bytes_in_the_same_files() {
        for seed in 1..=8 {
            let sample = Sample::new(Setting::new(seed, Layer::Mmap), State::Closed);
            let alike = sample.files.iter().filter(|file| file.foreign.is_some()).count();
            assert!(alike * 4 > sample.files.len() * 3, "{alike} of {}", sample.files.len());
            assert!(sample.files.iter().all(|file| file.foreign.as_ref() != Some(&file.bytes)));
        }
    }

    #[cfg(feature = "simulation")]
    #[test]
    fn a_seed_is_a_sample() {
        for layer in [Layer::Mmap, Layer::Positional] {
            for state in State::ALL {
                let [one, two] = [(); 2].map(|()| files_of(&sample(Engines::All, layer, state).fs));
                assert!(one == two);
            }
        }
    }
}
