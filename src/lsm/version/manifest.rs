//! The manifest: the edit log from which a tree's version is rebuilt.
//!
//! ```text
//! edit     := persisted, next id, removed count, removed ids, added count, added tables
//! table    := level, run, id, length, entries, tombstones, smallest seqno, largest seqno,
//!             smallest key (length in front), largest key (length in front), share count, shares,
//!             range tombstones
//! share    := id of a value file, length of the file, bytes of the records in it that the table refers to
//! snapshot := an edit that adds everything
//! ```
//! All integers are varints. An edit is one atomic change: what a flush or a compaction adds and removes is
//! there together or not at all. Version 1 has no runs, each table of level 0 is one, numbered like the table, and every
//! other level is the run 0; and tables have no shares. Version 2 has no range tombstones.
//!
//! Thread safety: one owner, behind the tree's install lock.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::table_file::MOST_IDS;
use super::{Home, LEVELS, Place, TableFile, TableMeta, Version};
use crate::base::key::MAX_SEQNO;
use crate::base::{Seqno, varint};
use crate::error::{Error, Result};
use crate::log::edits::{EditKind, Edits};
use crate::log::{AppendError, EditLog};
use crate::lsm::values::{Share, ValueFile};
use crate::planted::{Bug, planted};

const KIND: EditKind = EditKind { name: "manifest", version: 3 };

/// One change of the version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    /// All writes up to this number are in tables, once the edit is.
    pub(crate) persisted: Seqno,
    pub(crate) removed: Vec<u64>,
    pub(crate) added: Vec<(Place, Arc<TableFile>)>,
}

impl Edit {
    /// Whether it does nothing but give tables other places. It is not worth a sync: a tree without it is one that has not
    /// moved them yet, and the next edit can tell of it.
    fn is_move(&self) -> bool {
        let ids = |edit: &Self| edit.added.iter().map(|(_, table)| table.meta.id).collect();
        let (added, removed): (HashSet<u64>, HashSet<u64>) =
            (ids(self), self.removed.iter().copied().collect());
        self.persisted == 0 && added == removed
    }

    /// Both as one, `next` after this one, which is a move.
    fn then(&self, next: &Self) -> Self {
        let mut both = self.clone();
        both.persisted = next.persisted;
        both.added.retain(|(_, table)| !next.removed.contains(&table.meta.id));
        if planted(Bug::ForgetMovedTables) {
            both.added.clear();
        }
        both.added.extend_from_slice(&next.added);
        let new = next.removed.iter().filter(|&id| !self.removed.contains(id));
        both.removed.extend(new);
        both
    }
}

/// The manifest's file.
#[derive(Debug)]
enum Log {
    /// It was read, and may not be changed.
    Read(Edits),
    /// It takes edits.
    Open(EditLog),
}

/// The manifest of an open tree.
#[derive(Debug)]
pub(crate) struct Manifest {
    edits: Log,
    numbers: Numbers,
    /// Tables have moved and the file does not say so.
    moves: Edit,
}

/// What a manifest holds besides the tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) persisted: Seqno,
    pub(super) next_id: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { persisted: 0, next_id: 1 }
    }
}

impl Manifest {
    /// Creates the manifest of an empty tree.
    pub(crate) fn create(home: &Home, database: u64) -> Result<Self> {
        let numbers = Numbers::default();
        let snapshot = numbers.snapshot(&Version::default());
        let fs = Arc::clone(&home.fs);
        let edits = Log::Open(EditLog::create(fs, &home.dir, KIND, database, &snapshot)?);
        Ok(Self { edits, numbers, moves: Edit::default() })
    }

    /// Reads the manifest and rebuilds the version. Changes nothing.
    pub(crate) fn open(home: &Arc<Home>, database: u64) -> Result<(Self, Version)> {
        let found = EditLog::read(&*home.fs, &home.dir, KIND)?.ok_or_else(|| {
            Error::corruption(&home.dir.join(KIND.name), 0, "the keyspace's manifest is missing")
        })?;
        let path = &found.path;
        if found.database != database {
            return Err(Error::corruption(path, 16, "this manifest belongs to another database"));
        }
        let mut numbers = Numbers::default();
        let mut version = Version::default();
        for bytes in std::iter::once(&found.snapshot).chain(&found.edits) {
            version = numbers
                .decode(bytes, found.version, home, &version)
                .and_then(|edit| version.with(&edit.removed, &edit.added))
                .ok_or_else(|| Error::corruption(path, 0, "an edit says what cannot be"))?;
        }
        if !version.is_countable() {
            return Err(Error::corruption(path, 0, "there cannot be so many bytes or entries"));
        }
        // What is newer than all that is published, no merge may leave out: each of many range tombstones, for each piece.
        if version.tables().any(|table| table.meta.largest_seqno > numbers.persisted) {
            return Err(Error::corruption(path, 0, "a table has writes that are not persisted"));
        }
        let mut ids = HashSet::new();
        let tables = version.tables().map(|table| table.meta.id);
        if !tables.chain(version.values.files().map(|file| file.id())).all(|id| ids.insert(id)) {
            return Err(Error::corruption(path, 0, "a table is in two places"));
        }
        let moves = Edit::default();
        Ok((Self { edits: Log::Read(found), numbers, moves }, version))
    }

    /// Opens for changes what was read.
    pub(crate) fn make_writable(&mut self, home: &Home) -> Result<()> {
        if let Log::Read(found) = &self.edits {
            self.edits = Log::Open(EditLog::open(Arc::clone(&home.fs), &home.dir, KIND, found)?);
        }
        Ok(())
    }

    /// All writes up to this number are in tables.
    pub(crate) fn persisted(&self) -> Seqno {
        self.numbers.persisted
    }

    /// A number for a new table, or a new run: larger than all that were given before.
    pub(crate) fn take_id(&mut self) -> u64 {
        self.numbers.next_id += 1;
        self.numbers.next_id - 1
    }

    /// Gives out numbers above `id` only from now on.
    pub(crate) fn pass_over(&mut self, id: u64) {
        self.numbers.next_id = self.numbers.next_id.max(id + 1);
    }

    /// Records a change, durable on return, unless tables do nothing but move: that goes with the next change, or is
    /// recorded by [`settle`](Self::settle). `version` is the version with the change. If it is refused, nothing
    /// has changed: a forged manifest may leave no room for what could be read again. After another error it is unknown whether the change will be there at the next opening.
    pub(crate) fn record(&mut self, edit: &Edit, version: &Version) -> Result<(), AppendError> {
        let edit = self.moves.then(edit);
        if edit.is_move() {
            self.moves = edit;
            return Ok(());
        }
        self.append(&edit, version)
    }

    /// Records the moves that have not been recorded yet, as [`record`](Self::record) does other changes.
    pub(crate) fn settle(&mut self, version: &Version) -> Result<(), AppendError> {
        match self.moves.added.is_empty() {
            true => Ok(()),
            false => self.append(&self.moves.clone(), version),
        }
    }

    fn append(&mut self, edit: &Edit, version: &Version) -> Result<(), AppendError> {
        let Log::Open(edits) = &mut self.edits else {
            unreachable!("only a writable database changes its manifest")
        };
        let persisted = self.numbers.persisted.max(edit.persisted);
        let next = Numbers { persisted, ..self.numbers };
        if next.next_id > MOST_IDS || !version.is_countable() {
            let what = "there are as many numbers, bytes or entries as there can be";
            return Err(AppendError::Refused(Error::corruption(edits.path(), 0, what)));
        }
        let bytes = encode(next, &edit.removed, &edit.added);
        edits.append(&bytes, || next.snapshot(version))?;
        // Not before: what has not been recorded must not be said by the next edit.
        self.numbers = next;
        self.moves = Edit::default();
        Ok(())
    }
}

impl Numbers {
    pub(super) fn snapshot(&self, version: &Version) -> Vec<u8> {
        let runs = version.runs().iter();
        let all: Vec<_> = runs
            .flat_map(|run| run.tables().iter().map(|table| (run.place, Arc::clone(table))))
            .collect();
        encode(*self, &[], &all)
    }

    /// Reads an edit of `version`, in the format of version `format`.
    pub(super) fn decode(
        &mut self,
        mut bytes: &[u8],
        format: u32,
        home: &Arc<Home>,
        version: &Version,
    ) -> Option<Edit> {
        let bytes = &mut bytes;
        let mut new_files = BTreeMap::new();
        self.persisted = self.persisted.max(varint::take(bytes)?);
        self.next_id = self.next_id.max(varint::take(bytes)?);
        if self.next_id > MOST_IDS || self.persisted > MAX_SEQNO {
            return None;
        }
        let mut edit = Edit { persisted: self.persisted, ..Edit::default() };
        for _ in 0..varint::take(bytes)? {
            edit.removed.push(varint::take(bytes)?);
        }
        for _ in 0..varint::take(bytes)? {
            let level =
                usize::try_from(varint::take(bytes)?).ok().filter(|&level| level < LEVELS)?;
            let run = if format > 1 { Some(varint::take(bytes)?) } else { None };
            let mut meta = TableMeta {
                id: varint::take(bytes)?,
                len: varint::take(bytes)?,
                entries: varint::take(bytes)?,
                tombstones: varint::take(bytes)?,
                smallest_seqno: varint::take(bytes)?,
                largest_seqno: varint::take(bytes)?,
                smallest: varint::take_prefixed(bytes)?.to_vec(),
                largest: varint::take_prefixed(bytes)?.to_vec(),
                ranges: 0,
            };
            let run = run.unwrap_or(if level == 0 { meta.id } else { 0 });
            let has_numbers =
                meta.smallest_seqno <= meta.largest_seqno && meta.largest_seqno <= MAX_SEQNO;
            if meta.smallest > meta.largest || meta.id.max(run) >= self.next_id || !has_numbers {
                return None;
            }
            let mut values = Vec::new();
            if format > 1 {
                for _ in 0..varint::take(bytes)? {
                    values.push(self.take_share(bytes, home, version, &mut new_files)?);
                }
            }
            if format > 2 {
                meta.ranges = varint::take(bytes)?;
            }
            if !values.is_sorted_by(|a, b| a.file.id() < b.file.id()) {
                return None;
            }
            let table = TableFile::with_values(meta, values, Arc::clone(home));
            edit.added.push((Place { level, run }, table));
        }
        bytes.is_empty().then_some(edit)
    }

    /// Reads what a table refers to in one value file, which may be one of `version`, or of those that are new with the
    /// edit.
    fn take_share(
        &self,
        bytes: &mut &[u8],
        home: &Arc<Home>,
        version: &Version,
        new_files: &mut BTreeMap<u64, Arc<ValueFile>>,
    ) -> Option<Share> {
        let (id, len, bytes) = (varint::take(bytes)?, varint::take(bytes)?, varint::take(bytes)?);
        let file = version.values.file(id).cloned().unwrap_or_else(|| {
            let new = || ValueFile::new(id, len, Arc::clone(home));
            Arc::clone(new_files.entry(id).or_insert_with(new))
        });
        let is_sound = id < self.next_id && file.len() == len && bytes <= file.record_bytes();
        is_sound.then_some(Share { file, bytes })
    }
}

pub(super) fn encode(
    numbers: Numbers,
    removed: &[u64],
    added: &[(Place, Arc<TableFile>)],
) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, numbers.persisted);
    varint::put(&mut out, numbers.next_id);
    varint::put(&mut out, removed.len() as u64);
    for &id in removed {
        varint::put(&mut out, id);
    }
    varint::put(&mut out, added.len() as u64);
    for (place, table) in added {
        let meta = &table.meta;
        varint::put(&mut out, place.level as u64);
        varint::put(&mut out, place.run);
        for number in [
            meta.id,
            meta.len,
            meta.entries,
            meta.tombstones,
            meta.smallest_seqno,
            meta.largest_seqno,
        ] {
            varint::put(&mut out, number);
        }
        varint::put_prefixed(&mut out, &meta.smallest);
        varint::put_prefixed(&mut out, &meta.largest);
        varint::put(&mut out, table.values.len() as u64);
        for Share { file, bytes } in &table.values {
            for number in [file.id(), file.len(), *bytes] {
                varint::put(&mut out, number);
            }
        }
        varint::put(&mut out, meta.ranges);
    }
    out
}

/// The tables and value files in the keyspace's directory that the version does not hold, with their numbers.
///
/// # Errors
/// `Corruption` if one that it holds has no file.
pub(crate) fn leftovers(home: &Home, version: &Version) -> Result<BTreeMap<PathBuf, u64>> {
    let names = home.fs.list(&home.dir)?;
    let file = |name: String| Home::id_of(&name).map(|id| (home.dir.join(name), id));
    let mut there: BTreeMap<PathBuf, u64> = names.into_iter().filter_map(file).collect();
    let tables = version.tables().map(|table| (table.path(), "table"));
    let values = version.values.files().map(|file| (file.path(), "value file"));
    for (path, what) in tables.chain(values) {
        if there.remove(&path).is_none() {
            return Err(Error::corruption(&path, 0, format!("the {what} is missing")));
        }
    }
    Ok(there)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample;
    use super::*;
    use crate::vfs::{Access, Fs, Layer};

    const DATABASE: u64 = 77;
    /// A run of level 0.
    const NEWEST: Place = Place { level: 0, run: 1 };

    /// All that a version says.
    fn metas(version: &Version) -> Vec<(Place, TableMeta)> {
        let runs = version.runs().iter();
        runs.flat_map(|run| run.tables().iter().map(|table| (run.place, table.meta.clone())))
            .collect()
    }

    /// The tree as the manifest keeps it.
    struct Tree {
        home: Arc<Home>,
        manifest: Manifest,
        version: Version,
    }

    impl Tree {
        fn new() -> Self {
            let home = sample::home();
            let manifest = Manifest::create(&home, DATABASE).unwrap();
            Self { home, manifest, version: Version::default() }
        }

        /// Adds a table to `level` in the place of others, every third in a run of its own; all its writes have the
        /// number `persisted`.
        fn change(&mut self, level: usize, persisted: Seqno, removed: &[u64]) -> u64 {
            let id = self.manifest.take_id();
            let key = id.to_be_bytes();
            let table = sample::table(&self.home, id, (&key, &key), 100, persisted);
            let place = Place { level, run: if id.is_multiple_of(3) { id } else { 0 } };
            let edit = Edit { persisted, removed: removed.to_vec(), added: vec![(place, table)] };
            self.version = self.version.with(&edit.removed, &edit.added).unwrap();
            self.manifest.record(&edit, &self.version).unwrap();
            id
        }

        fn reopen(&mut self) {
            let (manifest, version) = Manifest::open(&self.home, DATABASE).unwrap();
            assert_eq!(metas(&version), metas(&self.version));
            assert_eq!(manifest.persisted(), self.manifest.persisted());
            (self.manifest, self.version) = (manifest, version);
            self.manifest.make_writable(&self.home).unwrap();
        }

        fn file_names(&self) -> Vec<String> {
            self.home.fs.list(&self.home.dir).unwrap()
        }
    }

    #[test]
    fn what_is_recorded_is_there_again() {
        let mut tree = Tree::new();
        tree.reopen();
        assert_eq!(tree.manifest.persisted(), 0);
        let first = tree.change(0, 5, &[]);
        let second = tree.change(0, 9, &[]);
        assert!(second > first);
        tree.reopen();
        assert_eq!(tree.manifest.persisted(), 9);
        // A compaction changes what is there, not what is persisted.
        let merged = tree.change(LEVELS - 1, 3, &[first, second]);
        assert!(merged > second);
        tree.reopen();
        assert_eq!(metas(&tree.version).len(), 1);
        assert_eq!(tree.manifest.persisted(), 9);
        assert!(tree.manifest.take_id() > merged, "a number is used again");
    }

    #[test]
    fn new_files_take_everything_over() {
        let mut tree = Tree::new();
        let first = tree.file_names();
        let mut tables = Vec::new();
        for number in 1..3000 {
            let removed = if tables.len() > 20 { vec![tables.remove(number % 20)] } else { vec![] };
            tables.push(tree.change(number % LEVELS, number as u64, &removed));
            if number % 500 == 0 {
                tree.reopen();
            }
        }
        assert_ne!(tree.file_names(), first, "there was no new file");
        assert_eq!(tree.file_names().len(), 1, "superseded files stay behind");
        tree.reopen();
        assert_eq!(metas(&tree.version).len(), tables.len());
    }

    #[test]
    fn moves_are_recorded_with_the_next_change_or_when_asked_for() {
        let mut tree = Tree::new();
        let (first, second) = (tree.change(0, 5, &[]), tree.change(0, 9, &[]));
        let writes = |tree: &Tree| {
            let name = tree.file_names().remove(0);
            let file =
                tree.home.fs.open(&tree.home.dir.join(name), Access::Read, Layer::Positional);
            file.unwrap().len().unwrap()
        };
        let moved = |tree: &mut Tree, id: u64, level| {
            let table = tree.version.tables().find(|table| table.meta.id == id).unwrap();
            let added = vec![(Place { level, run: 0 }, Arc::clone(table))];
            let edit = Edit { persisted: 0, removed: vec![id], added };
            tree.version = tree.version.with(&edit.removed, &edit.added).unwrap();
            tree.manifest.record(&edit, &tree.version).unwrap();
        };
        let on_disk = |tree: &Tree| metas(&Manifest::open(&tree.home, DATABASE).unwrap().1);
        let (before, len) = (metas(&tree.version), writes(&tree));
        moved(&mut tree, first, 2);
        moved(&mut tree, first, 3);
        moved(&mut tree, second, 4);
        assert_eq!((on_disk(&tree), writes(&tree)), (before, len), "it can wait");
        // One of them is gone with the next change, the other is where it was moved to.
        let third = tree.change(0, 11, &[first]);
        tree.reopen();
        let ids: Vec<_> =
            metas(&tree.version).iter().map(|(place, meta)| (place.level, meta.id)).collect();
        assert_eq!(ids, [(0, third), (4, second)]);
        assert_eq!(tree.manifest.persisted(), 11);
        moved(&mut tree, third, 5);
        tree.manifest.settle(&tree.version).unwrap();
        let len = writes(&tree);
        tree.manifest.settle(&tree.version).unwrap();
        assert_eq!(writes(&tree), len, "nothing is left to be recorded");
        tree.reopen();
    }

    #[test]
    fn a_missing_and_a_foreign_manifest_are_refused() {
        let home = sample::home();
        Manifest::open(&home, DATABASE).unwrap_err();
        Manifest::create(&home, DATABASE).unwrap();
        let error = Manifest::open(&home, DATABASE + 1).unwrap_err();
        assert!(error.to_string().contains("another database"), "{error}");
        Manifest::open(&home, DATABASE).unwrap();
    }

    #[test]
    fn an_edit_that_does_not_fit_is_damage() {
        let home = sample::home();
        let table = |run: u64, id: u64| {
            vec![(Place { level: 3, run }, sample::table(&home, id, (b"a", b"b"), 100, 1))]
        };
        let twice = [table(0, 4), table(0, 5)].concat();
        let wrong = [(&[9][..], vec![]), (&[], twice), (&[], table(0, 10)), (&[], table(10, 4))];
        for (removed, added) in wrong {
            let mut manifest = Manifest::create(&home, DATABASE).unwrap();
            let Log::Open(edits) = &mut manifest.edits else { unreachable!("it was created") };
            let numbers = Numbers { persisted: 1, next_id: 10 };
            edits.append(&encode(numbers, removed, &added), Vec::new).unwrap();
            let error = Manifest::open(&home, DATABASE).unwrap_err();
            assert!(error.to_string().contains("an edit says what cannot be"), "{error}");
        }
    }

    #[test]
    fn numbers_that_no_write_has_are_damage() {
        let home = sample::home();
        let edit = |persisted, smallest_seqno, largest_seqno| {
            let meta = sample::table(&home, 1, (b"a", b"b"), 100, 1).meta.clone();
            let meta = TableMeta { smallest_seqno, largest_seqno, ..meta };
            let table = TableFile::with_values(meta, Vec::new(), Arc::clone(&home));
            decoded(&encode(Numbers { persisted, next_id: 10 }, &[], &[(NEWEST, table)])).is_some()
        };
        let most = MAX_SEQNO;
        assert!(edit(most, most, most) && edit(0, 1, most));
        assert!(!edit(most + 1, 1, 1) && !edit(u64::MAX, 1, 1), "the next write would have none");
        assert!(!edit(1, 1, most + 1) && !edit(1, 2, 1));
    }

    #[test]
    fn writes_that_are_not_persisted_are_in_no_table() {
        let home = sample::home();
        for (seqno, right) in [(5, true), (6, false), (MAX_SEQNO, false)] {
            let mut manifest = Manifest::create(&home, DATABASE).unwrap();
            let Log::Open(edits) = &mut manifest.edits else { unreachable!("it was created") };
            let numbers = Numbers { persisted: 5, next_id: 10 };
            let table = sample::table(&home, 4, (b"a", b"b"), 100, seqno);
            edits.append(&encode(numbers, &[], &[(NEWEST, table)]), Vec::new).unwrap();
            let opened = Manifest::open(&home, DATABASE).map(drop).map_err(|error| error.kind());
            assert_eq!(opened, if right { Ok(()) } else { Err(crate::ErrorKind::Corruption) });
        }
    }

    #[test]
    fn figures_that_cannot_be_added_up_are_damage() {
        let home = sample::home();
        let opened = |figure: u64| {
            let table = |id: u64, key: &[u8]| {
                let meta = sample::table(&home, id, (key, key), 100, 1).meta.clone();
                let meta = TableMeta { len: figure, entries: figure, ..meta };
                (NEWEST, TableFile::with_values(meta, Vec::new(), Arc::clone(&home)))
            };
            let numbers = Numbers { persisted: 1, next_id: 10 };
            let bytes = encode(numbers, &[], &[table(4, b"a"), table(5, b"b")]);
            let home = sample::home();
            let mut manifest = Manifest::create(&home, DATABASE).unwrap();
            let Log::Open(edits) = &mut manifest.edits else { unreachable!("it was created") };
            edits.append(&bytes, Vec::new).unwrap();
            Manifest::open(&home, DATABASE).map(drop).map_err(|error| error.kind())
        };
        assert_eq!(opened(1 << 40), Ok(()));
        for figure in [1 << 59, 1 << 63, u64::MAX] {
            assert_eq!(opened(figure), Err(crate::ErrorKind::Corruption));
        }
    }

    #[test]
    fn what_could_not_be_read_again_is_not_recorded() {
        let home = sample::home();
        let table = |id: u64, key: &[u8], len| sample::table(&home, id, (key, key), len, 1);
        // The last number for a file; as many bytes as can be added up, with the entries and the tombstone.
        for (next_id, len) in [(MOST_IDS, 100), (10, (1 << 60) - 3)] {
            let home = sample::home();
            let mut manifest = Manifest::create(&home, DATABASE).unwrap();
            let Log::Open(edits) = &mut manifest.edits else { unreachable!("it was created") };
            let numbers = Numbers { persisted: 1, next_id };
            let bytes = encode(numbers, &[], &[(NEWEST, table(1, b"a", len))]);
            edits.append(&bytes, Vec::new).unwrap();
            let (mut manifest, version) = Manifest::open(&home, DATABASE).unwrap();
            manifest.make_writable(&home).unwrap();
            let added = vec![(NEWEST, table(manifest.take_id(), b"b", 100))];
            let edit = Edit { persisted: 2, removed: Vec::new(), added };
            let next = version.with(&edit.removed, &edit.added).unwrap();
            let error = manifest.record(&edit, &next).unwrap_err();
            assert!(matches!(error, AppendError::Refused(Error::Corruption { .. })), "{error:?}");
            let (manifest, found) = Manifest::open(&home, DATABASE).unwrap();
            assert_eq!((manifest.persisted(), metas(&found)), (1, metas(&version)));
        }
    }

    #[test]
    fn what_there_was_no_space_for_is_not_said_by_the_next_edit() {
        let (fs, home) = (crate::vfs::MemoryFs::new(), sample::home());
        fs.create_dir(&home.dir).unwrap();
        let home = Arc::try_unwrap(home).unwrap();
        let home = Arc::new(Home { fs: Arc::new(fs.clone()), ..home });
        let mut manifest = Manifest::create(&home, DATABASE).unwrap();
        let flush = Edit { persisted: 7, ..Edit::default() };
        fs.quota(Some(0));
        let error = manifest.record(&flush, &Version::default()).unwrap_err();
        assert!(matches!(error, AppendError::Refused(Error::NoSpace { .. })), "{error:?}");
        fs.quota(None);
        manifest.record(&Edit::default(), &Version::default()).unwrap();
        assert_eq!(manifest.persisted(), 0);
        assert_eq!(Manifest::open(&home, DATABASE).unwrap().0.persisted(), 0);
        manifest.record(&flush, &Version::default()).unwrap();
        assert_eq!(Manifest::open(&home, DATABASE).unwrap().0.persisted(), 7);
    }

    #[test]
    fn files_of_tables_are_compared_with_the_version() {
        let mut tree = Tree::new();
        let ids = [tree.change(0, 1, &[]), tree.change(0, 2, &[])];
        let create = |id: u64| drop(tree.home.create(id).unwrap());
        create(ids[0]);
        create(ids[1] + 1);
        let error = leftovers(&tree.home, &tree.version).unwrap_err();
        assert!(error.to_string().contains("the table is missing"), "{error}");
        create(ids[1]);
        let left = BTreeMap::from([(tree.home.path(ids[1] + 1), ids[1] + 1)]);
        assert_eq!(leftovers(&tree.home, &tree.version).unwrap(), left);
        let foreign = tree.home.dir.join(format!("{}.table", u64::MAX));
        let layer = crate::vfs::Layer::Positional;
        drop(tree.home.fs.create(&foreign, layer).unwrap());
        assert_eq!(leftovers(&tree.home, &tree.version).unwrap().len(), 1);
        tree.reopen();
    }

    /// A table that refers to so many bytes of value files.
    fn table_with_values(home: &Arc<Home>, id: u64, shares: &[(u64, u64, u64)]) -> Arc<TableFile> {
        let meta = sample::table(home, id, (b"a", b"b"), 100, 1).meta.clone();
        let share = |&(id, len, bytes): &(u64, u64, u64)| Share {
            file: ValueFile::new(id, len, Arc::clone(home)),
            bytes,
        };
        TableFile::with_values(meta, shares.iter().map(share).collect(), Arc::clone(home))
    }

    #[test]
    fn value_files_come_and_go_with_the_tables_that_refer_to_them() {
        let home = sample::home();
        let mut manifest = Manifest::create(&home, DATABASE).unwrap();
        let mut version = Version::default();
        manifest.numbers.next_id = 100;
        let mut change = |removed: &[u64], added: Vec<(Place, Arc<TableFile>)>| {
            let edit = Edit { persisted: 1, removed: removed.to_vec(), added };
            version = version.with(&edit.removed, &edit.added).unwrap();
            manifest.record(&edit, &version).unwrap();
            let (_, found) = Manifest::open(&home, DATABASE).unwrap();
            assert_eq!(metas(&found), metas(&version));
            let all = |version: &Version| -> Vec<(u64, u64, u64)> {
                version.values.garbage().map(|(file, of)| (file.id(), file.len(), of)).collect()
            };
            assert_eq!(all(&found), all(&version));
            (version.clone(), all(&version))
        };
        let one = table_with_values(&home, 1, &[(10, 1064, 400), (11, 564, 500)]);
        let (_, all) = change(&[], vec![(NEWEST, Arc::clone(&one))]);
        assert_eq!(all, [(10, 1064, 600), (11, 564, 0)]);
        // Another table refers to the same file.
        let shares = vec![Share { bytes: 300, ..one.values[0].clone() }];
        let meta = TableMeta { id: 2, ..one.meta.clone() };
        let two = TableFile::with_values(meta, shares, Arc::clone(&home));
        let (_, all) = change(&[], vec![(Place { level: 0, run: 2 }, two)]);
        assert_eq!(all, [(10, 1064, 300), (11, 564, 0)]);
        // A table is moved; one goes, and with it a file; then the other.
        let (_, all) = change(&[1], vec![(Place::merged(5), one)]);
        assert_eq!(all, [(10, 1064, 300), (11, 564, 0)]);
        assert_eq!(change(&[1], vec![]).1, [(10, 1064, 700)]);
        assert_eq!(change(&[2], vec![]).1, []);
    }

    #[test]
    fn value_files_that_cannot_be_are_damage() {
        let home = sample::home();
        type Shares = [(u64, u64, u64)];
        let cases: [(&Shares, bool); 9] = [
            (&[(5, 100, 36)], true),
            (&[(5, 100, 36), (6, 100, 36)], true),
            (&[(5, 100, 37)], false),
            (&[(5, 20, 1)], false),
            (&[(10, 100, 36)], false),
            (&[(6, 100, 36), (5, 100, 36)], false),
            (&[(5, 100, 36), (5, 100, 36)], false),
            // The table's own number.
            (&[(1, 100, 36)], false),
            // Another length than the table in front says.
            (&[(7, 101, 36)], false),
        ];
        for (shares, right) in cases {
            let mut manifest = Manifest::create(&home, DATABASE).unwrap();
            let Log::Open(edits) = &mut manifest.edits else { unreachable!("it was created") };
            let first = (Place { level: 0, run: 2 }, table_with_values(&home, 2, &[(7, 100, 36)]));
            let added = [first, (NEWEST, table_with_values(&home, 1, shares))];
            let numbers = Numbers { persisted: 1, next_id: 10 };
            edits.append(&encode(numbers, &[], &added), Vec::new).unwrap();
            let opened = Manifest::open(&home, DATABASE);
            assert_eq!(opened.is_ok(), right, "{shares:?}");
        }
    }

    #[test]
    fn files_of_values_are_compared_with_the_version() {
        let home = sample::home();
        let table = table_with_values(&home, 1, &[(5, 100, 36)]);
        let version = Version::default().with(&[], &[(NEWEST, table)]).unwrap();
        let create = |path: PathBuf| drop(home.fs.create(&path, home.layer()).unwrap());
        create(home.path(1));
        create(home.path(5));
        create(home.values_path(1));
        let error = leftovers(&home, &version).unwrap_err();
        assert!(error.to_string().contains("the value file is missing"), "{error}");
        create(home.values_path(5));
        let left = BTreeMap::from([(home.path(5), 5), (home.values_path(1), 1)]);
        assert_eq!(leftovers(&home, &version).unwrap(), left);
    }

    #[test]
    fn edits_of_earlier_versions_have_no_range_tombstones_and_no_value_files() {
        let home = sample::home();
        let table = sample::table(&home, 1, (b"a", b"b"), 100, 1);
        let numbers = Numbers { persisted: 1, next_id: 10 };
        let mut bytes = encode(numbers, &[], &[(NEWEST, table)]);
        let decode = |bytes: &[u8]| {
            let decoded = |&format: &u32| {
                Numbers::default().decode(bytes, format, &home, &Version::default()).is_some()
            };
            (1..=3).filter(decoded).collect::<Vec<_>>()
        };
        assert_eq!(decode(&bytes), [3]);
        assert_eq!(bytes.pop(), Some(0), "no range tombstones");
        assert_eq!(decode(&bytes), [2]);
        assert_eq!(bytes.pop(), Some(0), "no shares");
        assert_eq!(bytes.remove(5), 1, "no run");
        assert_eq!(decode(&bytes), [1]);
    }

    /// What a decoded edit says; `None` if it was refused.
    fn decoded(bytes: &[u8]) -> Option<(Numbers, Edit)> {
        let mut numbers = Numbers::default();
        let edit = numbers.decode(bytes, KIND.version, &sample::home(), &Version::default())?;
        Some((numbers, edit))
    }

    #[test]
    fn manifests_of_version_1_are_read_and_taken_over() {
        let home = sample::home();
        let old = EditKind { version: 1, ..KIND };
        // Two flushes, and a table of a deeper level: level, id, length, entries, tombstones, numbers, keys.
        let table = |level: u8, id: u8| vec![level, id, 9, 2, 0, id, id, 1, b'a', 1, b'z'];
        let edit =
            |tables: &[Vec<u8>]| [&[7, 9, 0, tables.len() as u8][..], &tables.concat()].concat();
        let snapshot = edit(&[table(6, 2)]);
        let fs = Arc::clone(&home.fs);
        let mut edits = EditLog::create(fs, &home.dir, old, DATABASE, &snapshot).unwrap();
        edits.append(&edit(&[table(0, 4), table(0, 7)]), Vec::new).unwrap();
        let (mut manifest, version) = Manifest::open(&home, DATABASE).unwrap();
        let places = |version: &Version| -> Vec<_> {
            version.runs().iter().map(|run| (run.place.level, run.place.run)).collect()
        };
        assert_eq!(places(&version), [(0, 7), (0, 4), (6, 0)]);
        assert_eq!((manifest.persisted(), manifest.take_id()), (7, 9));
        manifest.make_writable(&home).unwrap();
        let edit = Edit { persisted: 8, removed: vec![4], added: Vec::new() };
        let version = version.with(&edit.removed, &edit.added).unwrap();
        manifest.record(&edit, &version).unwrap();
        let error = EditLog::read(&*home.fs, &home.dir, old).unwrap_err();
        assert!(matches!(error, Error::NewerFormat { found: 3, .. }), "{error}");
        assert_eq!(places(&Manifest::open(&home, DATABASE).unwrap().1), [(0, 7), (6, 0)]);
    }

    #[test]
    fn a_foreign_file_does_not_use_up_the_numbers() {
        let home = sample::home();
        let mut manifest = Manifest::create(&home, DATABASE).unwrap();
        for name in [MOST_IDS - 1, MOST_IDS, u64::MAX].map(|id| home.path(id)) {
            home.fs.create(&name, home.layer()).unwrap();
        }
        let version = Version::default();
        leftovers(&home, &version).unwrap().values().for_each(|&id| manifest.pass_over(id));
        manifest.take_id();
        manifest.record(&Edit::default(), &version).unwrap();
        drop(manifest);
        Manifest::open(&home, DATABASE).unwrap();
    }

    proptest! {
        #[test]
        fn an_edit_comes_back_and_no_part_of_it_passes(
            (persisted, removed) in (0..=MAX_SEQNO, proptest::collection::vec(any::<u64>(), 0..5)),
            tables in proptest::collection::vec(
                ((0..LEVELS, 0..100_u64), 0..100_u64, (any::<u64>(), 0..=MAX_SEQNO)),
                0..5,
            ),
        ) {
            let home = sample::home();
            let added: Vec<_> = tables
                .iter()
                .map(|&((level, run), id, (len, seqno))| {
                    let table = sample::table(&home, id, (b"", &id.to_le_bytes()), len, seqno);
                    let meta = TableMeta { ranges: len / 3, ..table.meta.clone() };
                    (Place { level, run }, TableFile::with_values(meta, Vec::new(), Arc::clone(&home)))
                })
                .collect();
            let bytes = encode(Numbers { persisted, next_id: 100 }, &removed, &added);
            let (numbers, edit) = decoded(&bytes).unwrap();
            prop_assert_eq!((numbers.persisted, numbers.next_id), (persisted, 100));
            prop_assert_eq!((edit.persisted, &edit.removed), (persisted, &removed));
            let says = |added: &[(Place, Arc<TableFile>)]| -> Vec<_> {
                added.iter().map(|(place, table)| (*place, table.meta.clone())).collect()
            };
            prop_assert_eq!(says(&edit.added), says(&added));
            prop_assert!((0..bytes.len()).all(|len| decoded(&bytes[..len]).is_none()));
            prop_assert!(decoded(&[&bytes[..], &[0]].concat()).is_none());
        }

        #[test]
        fn hostile_bytes_are_refused_or_make_sense(
            // Small numbers are likelier to be taken for counts and levels that go on.
            bytes in proptest::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..200),
            tables in proptest::collection::vec(
                ((0..LEVELS + 2, 0..3_u64), 0..20_u64, any::<[u8; 2]>()),
                0..4,
            ),
            (next_id, at, flip) in (0..40_u64, any::<prop::sample::Index>(), any::<u8>()),
        ) {
            let home = sample::home();
            let added: Vec<_> = tables
                .iter()
                .map(|&((level, run), id, ends)| {
                    let table = match ends.map(u64::from) {
                        [file, len] if len % 3 == 0 => {
                            table_with_values(&home, id, &[(file % 40, 2 * len, len)])
                        }
                        _ => sample::table(&home, id, (&ends[..1], &ends[1..]), 1, 1),
                    };
                    (Place { level, run }, table)
                })
                .collect();
            // Two that are nearly right, and one that is not.
            let edit = encode(Numbers { persisted: 1, next_id }, &[], &added);
            let mut flipped = edit.clone();
            flipped[at.index(edit.len())] ^= flip;
            for bytes in [&edit[..], &flipped, &bytes] {
                if let Some((numbers, edit)) = decoded(bytes) {
                    let sound = |(place, table): &(Place, Arc<TableFile>)| {
                        let meta = &table.meta;
                        let values = table.values.iter().all(|share| {
                            share.file.id() < numbers.next_id
                                && share.bytes <= share.file.record_bytes()
                        });
                        place.level < LEVELS
                            && meta.id.max(place.run) < numbers.next_id
                            && meta.smallest <= meta.largest
                            && values
                    };
                    prop_assert!(edit.added.iter().all(sound));
                    Version::default().with(&edit.removed, &edit.added);
                }
            }
        }
    }
}
