//! The catalog: which keyspaces exist, what they are made of, how far each has persisted, and from which
//! segment on the log is needed. It is an [edit log](crate::log::edits) in the database's directory, and
//! the file that makes a directory a database.
//!
//! Engines know best how far they have persisted, from files of their own. The catalog notes it when it
//! lets go of log segments, so that an engine whose files were put back to an earlier state is found out
//! instead of being opened with writes missing.
//!
//! ```text
//! edit      := tag u8, fields
//! 1 create    id, engine u8, layer, logged u8, name (length in front), of a B+ tree: page size, cached pages;
//!             of a skip keyspace: step unit, largest level, reducer; of an LSM-tree: its options (lsm.rs), which may be
//!             missing: it is then one of before they were kept
//! 2 progress  floor (segment number), count, then count times: id, persisted
//! 3 layer     id, layer
//! 4 cached    id, cached pages of a B+ tree; 0 if it has no bound of its own
//! 5 lsm       id, all options of an LSM-tree
//! 6 types     id, name of the keys' type, name of the values' type (each with its length in front)
//! reducer   := kind u8; of a custom one, name (length in front)
//! layer     := kind u8; for a layer of blocks, block size; with a page cache, pages
//! snapshot  := next id, edits that rebuild the state, each with its length in front
//! ```
//! Integers without a width are varints.
//!
//! Thread safety: one owner, behind the database's lock.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod lsm;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::base::key::MAX_SEQNO;
use crate::base::{Seqno, varint};
use crate::error::{Error, Result};
use crate::log::edits::{EditKind, Edits, number_of};
use crate::log::{AppendError, EditLog};
use crate::options::{EngineKind, KeyspaceOptions, LsmOptions};
use crate::planted::{Bug, planted};
use crate::reducer::Reducer;
use crate::vfs::{Fs, Layer};

const KIND: EditKind = EditKind { name: "catalog", version: 1 };

/// A keyspace as the catalog knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) options: KeyspaceOptions,
    /// The engine has persisted at least up to here.
    pub(crate) persisted: Seqno,
    /// What its keys and values are, if it was ever opened as a typed keyspace.
    pub(crate) types: Option<Types>,
}

/// The names of the types of a keyspace's keys and values, which say how they are encoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Types {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// What the catalog holds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct State {
    /// By id; ids are never used again.
    pub(crate) keyspaces: BTreeMap<u32, Entry>,
    next_id: u32,
    /// The number of the first log segment needed.
    pub(crate) floor: u64,
}

/// The catalog of an open database.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) state: State,
    /// `None` when the database is open for reading only.
    edits: Option<EditLog>,
}

/// A catalog that was read and not yet opened for writing.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) state: State,
    edits: Edits,
}

impl Found {
    /// The identity of the database.
    pub(crate) fn database(&self) -> u64 {
        self.edits.database
    }

    /// A catalog that cannot be changed.
    pub(crate) fn read_only(self) -> Catalog {
        Catalog { state: self.state, edits: None }
    }

    /// Opens the catalog for changes.
    pub(crate) fn open(self, fs: Arc<dyn Fs>, dir: &Path) -> Result<Catalog> {
        let edits = EditLog::open(fs, dir, KIND, &self.edits)?;
        Ok(Catalog { state: self.state, edits: Some(edits) })
    }
}

impl Catalog {
    /// Reads the catalog in `dir`; `None` if there is none. Changes nothing.
    pub(crate) fn read(fs: &dyn Fs, dir: &Path) -> Result<Option<Found>> {
        let Some(edits) = EditLog::read(fs, dir, KIND)? else { return Ok(None) };
        let damaged = || Error::corruption(&edits.path, 0, "an edit says what cannot be");
        let mut state = State::default();
        state.read_snapshot(&edits.snapshot).ok_or_else(damaged)?;
        for edit in &edits.edits {
            state.apply(edit).ok_or_else(damaged)?;
        }
        if !state.has_different_names() {
            return Err(damaged());
        }
        Ok(Some(Found { state, edits }))
    }

    /// Creates the catalog of a new database, whose log begins with segment `floor`.
    pub(crate) fn create(fs: Arc<dyn Fs>, dir: &Path, database: u64, floor: u64) -> Result<Self> {
        let state = State { next_id: 1, floor, ..State::default() };
        let edits = EditLog::create(fs, dir, KIND, database, &state.snapshot())?;
        Ok(Self { state, edits: Some(edits) })
    }

    /// Whether a file in a database's directory is, or was to become, a catalog.
    pub(crate) fn is_file(name: &str) -> bool {
        number_of(KIND.name, name.strip_suffix(".tmp").unwrap_or(name)).is_some()
    }

    /// The id the next keyspace will get.
    ///
    /// # Errors
    /// `Invalid` if there is none left.
    pub(crate) fn next_id(&self) -> Result<u32> {
        match self.state.next_id {
            u32::MAX => {
                Err(Error::Invalid("the database has no numbers for more keyspaces".into()))
            }
            id => Ok(id),
        }
    }

    /// Adds a keyspace under [`next_id`](Self::next_id); it is durable when the call returns.
    pub(crate) fn add(&mut self, name: &str, options: &KeyspaceOptions) -> Result<(), AppendError> {
        self.change(&create_edit(self.state.next_id, name, options))
    }

    /// Notes that a keyspace's files are now reached through `layer`.
    pub(crate) fn set_layer(&mut self, id: u32, layer: Layer) -> Result<(), AppendError> {
        let mut edit = vec![3];
        varint::put(&mut edit, u64::from(id));
        put_layer(&mut edit, layer);
        self.change(&edit)
    }

    /// Notes how many pages of a B+ tree are cached from now on.
    pub(crate) fn set_max_cached_pages(&mut self, id: u32, pages: u32) -> Result<(), AppendError> {
        let mut edit = vec![4];
        varint::put(&mut edit, u64::from(id));
        varint::put(&mut edit, u64::from(pages));
        self.change(&edit)
    }

    /// Notes what an LSM-tree is made of from now on.
    pub(crate) fn set_lsm(&mut self, id: u32, options: &LsmOptions) -> Result<(), AppendError> {
        let mut edit = vec![5];
        varint::put(&mut edit, u64::from(id));
        lsm::put(&mut edit, options);
        self.change(&edit)
    }

    /// Notes what the keys and values of a keyspace are.
    pub(crate) fn set_types(&mut self, id: u32, types: &Types) -> Result<(), AppendError> {
        self.change(&types_edit(id, types))
    }

    /// Notes how far keyspaces have persisted and the first log segment needed; durable on return.
    pub(crate) fn progress(
        &mut self,
        floor: u64,
        persisted: &[(u32, Seqno)],
    ) -> Result<(), AppendError> {
        self.change(&progress_edit(floor, persisted))
    }

    fn change(&mut self, edit: &[u8]) -> Result<(), AppendError> {
        let edits = self.edits.as_mut().expect("only a writable database changes its catalog");
        let mut next = self.state.clone();
        next.apply(edit).expect("an edit made here is valid");
        if !(planted(Bug::ForgetKeyspace) && edit[0] == 1) {
            edits.append(edit, || next.snapshot())?;
        }
        self.state = next;
        Ok(())
    }
}

impl State {
    fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, u64::from(self.next_id));
        for (&id, entry) in &self.keyspaces {
            varint::put_prefixed(&mut out, &create_edit(id, &entry.name, &entry.options));
            if let Some(types) = &entry.types {
                varint::put_prefixed(&mut out, &types_edit(id, types));
            }
        }
        let persisted: Vec<_> =
            self.keyspaces.iter().map(|(&id, entry)| (id, entry.persisted)).collect();
        varint::put_prefixed(&mut out, &progress_edit(self.floor, &persisted));
        out
    }

    fn read_snapshot(&mut self, mut bytes: &[u8]) -> Option<()> {
        let next_id = take_u32(&mut bytes)?;
        while !bytes.is_empty() {
            self.apply(varint::take_prefixed(&mut bytes)?)?;
        }
        self.next_id = self.next_id.max(next_id);
        Some(())
    }

    /// Whether no two keyspaces have the same name, which is asked once, when all is read: names do not change.
    fn has_different_names(&self) -> bool {
        let mut names = HashSet::new();
        self.keyspaces.values().all(|entry| names.insert(&entry.name))
    }

    /// Applies an edit; `None` if it is not a valid one.
    fn apply(&mut self, mut edit: &[u8]) -> Option<()> {
        let bytes = &mut edit;
        match varint::take(bytes)? {
            1 => {
                let id = take_u32(bytes)?;
                let engine = engine_of(varint::take(bytes)?)?;
                let layer = take_layer(bytes)?;
                let logged = varint::take(bytes)? != 0;
                let name = take_string(bytes)?;
                let mut options = KeyspaceOptions::of(engine, layer, logged);
                match engine {
                    EngineKind::Btree => {
                        options.tree.page_size = Some(take_u32(bytes)?);
                        options.tree.max_cached_pages = take_cached(bytes)?;
                    }
                    EngineKind::Skip => {
                        options.skip.step_unit = Some(take_u32(bytes)?);
                        options.skip.max_level = Some(take_u32(bytes)?);
                        options.skip.reducer = Some(take_reducer(bytes)?);
                    }
                    EngineKind::Lsm if bytes.is_empty() => {}
                    EngineKind::Lsm => options.lsm = lsm::take(bytes)?,
                    EngineKind::Hash => {}
                }
                options.check_engine().ok()?;
                let entry = Entry { name, options, persisted: 0, types: None };
                if self.keyspaces.insert(id, entry).is_some() {
                    return None;
                }
                self.next_id = self.next_id.max(id.checked_add(1)?);
            }
            2 => {
                self.floor = varint::take(bytes)?;
                for _ in 0..varint::take(bytes)? {
                    let entry = self.keyspaces.get_mut(&take_u32(bytes)?)?;
                    let persisted = varint::take(bytes).filter(|&seqno| seqno <= MAX_SEQNO)?;
                    entry.persisted = entry.persisted.max(persisted);
                }
            }
            3 => {
                let entry = self.keyspaces.get_mut(&take_u32(bytes)?)?;
                entry.options.layer = Some(take_layer(bytes)?);
            }
            4 => {
                let entry = self.keyspaces.get_mut(&take_u32(bytes)?)?;
                entry.options.tree.max_cached_pages = take_cached(bytes)?;
                entry.options.check_engine().ok()?;
            }
            5 => {
                let entry = self.keyspaces.get_mut(&take_u32(bytes)?)?;
                entry.options.lsm = lsm::take(bytes)?;
                entry.options.check_engine().ok()?;
            }
            6 => {
                let entry = self.keyspaces.get_mut(&take_u32(bytes)?)?;
                entry.types = Some(Types { key: take_string(bytes)?, value: take_string(bytes)? });
            }
            _ => return None,
        }
        bytes.is_empty().then_some(())
    }
}

fn create_edit(id: u32, name: &str, options: &KeyspaceOptions) -> Vec<u8> {
    let mut edit = vec![1];
    varint::put(&mut edit, u64::from(id));
    edit.push(match options.engine {
        EngineKind::Lsm => 1,
        EngineKind::Hash => 2,
        EngineKind::Btree => 3,
        EngineKind::Skip => 4,
    });
    put_layer(&mut edit, options.layer.unwrap_or_default());
    edit.push(u8::from(options.logged));
    varint::put_prefixed(&mut edit, name.as_bytes());
    match options.engine {
        EngineKind::Btree => {
            varint::put(&mut edit, u64::from(options.tree.page_size()));
            varint::put(&mut edit, u64::from(options.tree.max_cached_pages.unwrap_or(0)));
        }
        EngineKind::Skip => {
            varint::put(&mut edit, u64::from(options.skip.step_unit()));
            varint::put(&mut edit, u64::from(options.skip.max_level()));
            put_reducer(&mut edit, &options.skip.reducer());
        }
        EngineKind::Lsm => lsm::put(&mut edit, &options.lsm),
        EngineKind::Hash => {}
    }
    edit
}

fn take_cached(bytes: &mut &[u8]) -> Option<Option<u32>> {
    let pages = take_u32(bytes)?;
    Some(Some(pages).filter(|&pages| pages > 0))
}

fn progress_edit(floor: u64, persisted: &[(u32, Seqno)]) -> Vec<u8> {
    let mut edit = vec![2];
    varint::put(&mut edit, floor);
    varint::put(&mut edit, persisted.len() as u64);
    for &(id, seqno) in persisted {
        varint::put(&mut edit, u64::from(id));
        varint::put(&mut edit, seqno);
    }
    edit
}

fn types_edit(id: u32, types: &Types) -> Vec<u8> {
    let mut edit = vec![6];
    varint::put(&mut edit, u64::from(id));
    varint::put_prefixed(&mut edit, types.key.as_bytes());
    varint::put_prefixed(&mut edit, types.value.as_bytes());
    edit
}

fn engine_of(byte: u64) -> Option<EngineKind> {
    match byte {
        1 => Some(EngineKind::Lsm),
        2 => Some(EngineKind::Hash),
        3 => Some(EngineKind::Btree),
        4 => Some(EngineKind::Skip),
        _ => None,
    }
}

fn put_reducer(edit: &mut Vec<u8>, reducer: &Reducer) {
    edit.push(match reducer {
        Reducer::Last => 1,
        Reducer::First => 2,
        Reducer::KeepAll => 3,
        Reducer::Concat => 4,
        Reducer::Sum => 5,
        Reducer::Custom(_) => 6,
    });
    if let Reducer::Custom(name) = reducer {
        varint::put_prefixed(edit, name.as_bytes());
    }
}

fn take_reducer(bytes: &mut &[u8]) -> Option<Reducer> {
    let reducer = match varint::take(bytes)? {
        1 => Reducer::Last,
        2 => Reducer::First,
        3 => Reducer::KeepAll,
        4 => Reducer::Concat,
        5 => Reducer::Sum,
        6 => Reducer::Custom(take_string(bytes)?),
        _ => return None,
    };
    reducer.check().is_ok().then_some(reducer)
}

fn put_layer(edit: &mut Vec<u8>, layer: Layer) {
    edit.push(match layer {
        Layer::Mmap => 1,
        Layer::Positional => 2,
        Layer::Block { .. } => 3,
        Layer::BlockCache { .. } => 4,
        Layer::Direct { .. } => 5,
        Layer::DirectCache { .. } => 6,
    });
    for size in layer.block_size().into_iter().chain(layer.page_cache_pages()) {
        varint::put(edit, u64::from(size));
    }
}

fn take_layer(bytes: &mut &[u8]) -> Option<Layer> {
    let kind = varint::take(bytes)?;
    let mut size = || take_u32(bytes);
    let layer = match kind {
        1 => Layer::Mmap,
        2 => Layer::Positional,
        3 => Layer::Block { block_size: size()? },
        4 => Layer::BlockCache { block_size: size()?, pages: size()? },
        5 => Layer::Direct { block_size: size()? },
        6 => Layer::DirectCache { block_size: size()?, pages: size()? },
        _ => return None,
    };
    layer.check().is_ok().then_some(layer)
}

fn take_string(bytes: &mut &[u8]) -> Option<String> {
    String::from_utf8(varint::take_prefixed(bytes)?.to_vec()).ok()
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    varint::take(bytes)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::MemoryFs;

    #[test]
    fn snapshot_rebuilds_the_state() {
        let mut state = State { next_id: 1, floor: 1, ..State::default() };
        let options = KeyspaceOptions::lsm().layer(Layer::Mmap).log(false);
        assert!(state.apply(&create_edit(1, "one", &options)).is_some());
        assert!(state.apply(&create_edit(2, "two", &KeyspaceOptions::lsm())).is_some());
        assert!(state.apply(&progress_edit(9, &[(2, 77)])).is_some());
        let mut again = State::default();
        assert!(again.read_snapshot(&state.snapshot()).is_some());
        assert_eq!(again, state);
        assert_eq!((again.floor, again.keyspaces[&2].persisted, again.next_id), (9, 77, 3));
    }

    #[test]
    fn every_layer_round_trips() {
        let small = Layer::DirectCache { block_size: 512, pages: 1 };
        let large = Layer::BlockCache { block_size: 1 << 20, pages: u32::MAX };
        for layer in Layer::ALL.into_iter().chain([small, large]) {
            let mut state = State { next_id: 1, ..State::default() };
            let options = KeyspaceOptions::lsm().layer(layer);
            assert!(state.apply(&create_edit(1, "one", &options)).is_some());
            assert_eq!(state.keyspaces[&1].options, options);
            let mut again = State::default();
            assert!(again.read_snapshot(&state.snapshot()).is_some());
            assert_eq!(again, state);
            let mut edit = vec![3, 1];
            put_layer(&mut edit, layer);
            for cut in 2..edit.len() {
                assert!(state.apply(&edit[..cut]).is_none());
            }
            assert!(state.apply(&edit).is_some());
            assert_eq!(state.keyspaces[&1].options.layer, Some(layer));
        }
        // What format 1 had from the beginning.
        for (layer, byte) in [(Layer::Mmap, 1), (Layer::Positional, 2)] {
            let mut bytes = Vec::new();
            put_layer(&mut bytes, layer);
            assert_eq!(bytes, [byte]);
        }
    }

    #[test]
    fn what_a_tree_is_made_of_round_trips() {
        for (page_size, cached) in [(4096, None), (64 << 10, Some(1)), (8192, Some(u32::MAX))] {
            let mut options = KeyspaceOptions::btree().layer(Layer::Mmap).page_size(page_size);
            options.tree.max_cached_pages = cached;
            let mut state = State { next_id: 1, ..State::default() };
            let edit = create_edit(1, "tree", &options);
            (1..edit.len()).for_each(|cut| assert!(State::default().apply(&edit[..cut]).is_none()));
            assert!(state.apply(&edit).is_some());
            assert_eq!(state.keyspaces[&1].options, options);
            let mut again = State::default();
            assert!(again.read_snapshot(&state.snapshot()).is_some());
            assert_eq!(again, state);
            assert!(state.apply(&[4, 1, 9]).is_some());
            assert_eq!(state.keyspaces[&1].options.tree.max_cached_pages, Some(9));
        }
        let mut state = State::default();
        assert!(state.apply(&create_edit(1, "lsm", &KeyspaceOptions::lsm())).is_some());
        assert!(state.apply(&[4, 1, 9]).is_none(), "it has no such pages");
        let impossible = create_edit(2, "tree", &KeyspaceOptions::btree().page_size(5000));
        assert!(state.apply(&impossible).is_none());
    }

    #[test]
    fn what_a_skip_keyspace_is_made_of_round_trips() {
        let custom = |len| Reducer::Custom("\u{e9}".repeat(len));
        for (step_unit, max_level, reducer) in [
            (2, 0, Reducer::Last),
            (64, 12, Reducer::First),
            (4, 5, Reducer::KeepAll),
            (5, 6, Reducer::Concat),
            (6, 7, Reducer::Sum),
            (7, 8, custom(1)),
            (8, 9, custom(127)),
        ] {
            let options = KeyspaceOptions::skip().layer(Layer::Mmap);
            let options = options.step_unit(step_unit).max_level(max_level).reducer(reducer);
            let mut state = State { next_id: 1, ..State::default() };
            let edit = create_edit(1, "skip", &options);
            (1..edit.len()).for_each(|cut| assert!(State::default().apply(&edit[..cut]).is_none()));
            assert!(state.apply(&edit).is_some());
            assert_eq!(state.keyspaces[&1].options, options);
            let mut again = State::default();
            assert!(again.read_snapshot(&state.snapshot()).is_some());
            assert_eq!(again, state);
            assert!(state.apply(&[4, 1, 9]).is_none(), "it has no pages");
        }
        // What is left open is noted as it is.
        let mut state = State::default();
        assert!(state.apply(&create_edit(1, "skip", &KeyspaceOptions::skip())).is_some());
        let explicit = KeyspaceOptions::skip().step_unit(4).max_level(12).reducer(Reducer::Last);
        assert_eq!(state.keyspaces[&1].options, explicit.layer(Layer::default()));
    }

    #[test]
    fn numbers_for_keyspaces_may_run_out() {
        let next = |next_id| {
            let catalog = Catalog { state: State { next_id, ..State::default() }, edits: None };
            catalog.next_id().map_err(|error| error.kind())
        };
        assert_eq!(next(u32::MAX - 1), Ok(u32::MAX - 1));
        assert_eq!(next(u32::MAX), Err(crate::error::ErrorKind::Invalid));
    }

    #[test]
    fn types_round_trip() {
        let types = Types { key: "(str, u64)".into(), value: String::new() };
        let mut state = State { next_id: 1, ..State::default() };
        let edit = types_edit(1, &types);
        assert_eq!(edit, b"\x06\x01\x0a(str, u64)\x00");
        assert!(state.apply(&edit).is_none(), "an unknown keyspace");
        assert!(state.apply(&create_edit(1, "one", &KeyspaceOptions::lsm())).is_some());
        assert!(state.apply(&create_edit(2, "two", &KeyspaceOptions::hash())).is_some());
        for cut in 1..edit.len() {
            assert!(state.apply(&edit[..cut]).is_none());
        }
        assert!(state.apply(&[6, 1, 1, 0xff, 0]).is_none(), "no UTF-8");
        assert!(state.apply(&edit).is_some());
        assert_eq!(state.keyspaces[&1].types, Some(types));
        assert_eq!(state.keyspaces[&2].types, None);
        let mut again = State::default();
        assert!(again.read_snapshot(&state.snapshot()).is_some());
        assert_eq!(again, state);
    }

    #[test]
    fn impossible_skip_keyspaces_are_refused() {
        for options in [
            KeyspaceOptions::skip().step_unit(1),
            KeyspaceOptions::skip().step_unit(65),
            KeyspaceOptions::skip().max_level(13),
            KeyspaceOptions::skip().reducer(Reducer::Custom(String::new())),
            KeyspaceOptions::skip().reducer(Reducer::Custom("n".repeat(256))),
        ] {
            assert!(State::default().apply(&create_edit(1, "skip", &options)).is_none());
        }
        for bytes in [&[0][..], &[7], &[6, 1, 0xff], &[6, 2, b'n'], &[6, 0]] {
            assert_eq!(take_reducer(&mut &bytes[..]), None, "{bytes:?}");
        }
        let mut edit = create_edit(1, "skip", &KeyspaceOptions::skip());
        edit.push(0);
        assert!(State::default().apply(&edit).is_none(), "nothing comes behind the reducer");
    }

    #[test]
    fn impossible_layers_are_refused() {
        for layer in [
            Layer::Block { block_size: 1000 },
            Layer::Direct { block_size: 0 },
            Layer::BlockCache { block_size: 4096, pages: 0 },
        ] {
            let mut bytes = Vec::new();
            put_layer(&mut bytes, layer);
            assert_eq!(take_layer(&mut &bytes[..]), None);
        }
        assert_eq!(take_layer(&mut &[7, 0, 0][..]), None);
        assert_eq!(take_layer(&mut &[3, 255, 255, 255, 255, 255, 1][..]), None);
    }

    #[test]
    fn two_keyspaces_with_one_name_are_damage() {
        let (fs, dir) = (MemoryFs::new(), Path::new("/db"));
        fs.create_dir(dir).unwrap();
        let mut catalog = Catalog::create(Arc::new(fs.clone()), dir, 7, 1).unwrap();
        for (name, is_whole) in [("one", true), ("two", true), ("one", false)] {
            catalog.add(name, &KeyspaceOptions::lsm()).unwrap();
            let read = Catalog::read(&fs, dir);
            assert_eq!(read.is_ok(), is_whole, "{name}");
        }
    }

    #[test]
    fn impossible_edits_are_refused() {
        let mut state = State::default();
        let create = create_edit(1, "one", &KeyspaceOptions::lsm());
        assert!(state.apply(&create).is_some());
        assert!(state.apply(&create).is_none(), "the same keyspace twice");
        assert!(state.apply(&progress_edit(1, &[(5, 1)])).is_none(), "an unknown keyspace");
        assert!(state.apply(&progress_edit(1, &[(1, MAX_SEQNO)])).is_some());
        assert!(state.apply(&progress_edit(1, &[(1, MAX_SEQNO + 1)])).is_none());
        assert!(state.apply(&[]).is_none());
        assert!(state.apply(&[99]).is_none());
        let without_options = create.len() - 1;
        for cut in 1..without_options {
            assert!(State::default().apply(&create[..cut]).is_none());
        }
        assert!(State::default().apply(&create[..without_options]).is_some(), "as it once was");
    }
}
