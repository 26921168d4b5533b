//! The manifest: the edit log from which a tree's version is rebuilt.
//!
//! ```text
//! edit     := persisted, next id, removed count, removed ids, added count, added tables
//! table    := level, id, length, entries, tombstones, smallest seqno, largest seqno,
//!             smallest key (length in front), largest key (length in front)
//! snapshot := an edit that adds everything
//! ```
//! All integers are varints. An edit is one atomic change: what a flush or a compaction adds and removes is
//! there together or not at all.
//!
//! Thread safety: one owner, behind the tree's install lock.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Home, LEVELS, TableFile, TableMeta, Version};
use crate::base::{Seqno, varint};
use crate::error::{Error, Result};
use crate::log::EditLog;
use crate::log::edits::Edits;

const NAME: &str = "manifest";

/// One change of the version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    /// All writes up to this number are in tables, once the edit is.
    pub(crate) persisted: Seqno,
    pub(crate) removed: Vec<u64>,
    pub(crate) added: Vec<(usize, Arc<TableFile>)>,
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
}

/// What a manifest holds besides the tables.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    persisted: Seqno,
    next_id: u64,
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
        let edits = Log::Open(EditLog::create(fs, &home.dir, NAME, database, &snapshot)?);
        Ok(Self { edits, numbers })
    }

    /// Reads the manifest and rebuilds the version. Changes nothing.
    pub(crate) fn open(home: &Arc<Home>, database: u64) -> Result<(Self, Version)> {
        let found = EditLog::read(&*home.fs, &home.dir, NAME)?.ok_or_else(|| {
            Error::corruption(&home.dir.join(NAME), 0, "the keyspace's manifest is missing")
        })?;
        let path = &found.path;
        if found.database != database {
            return Err(Error::corruption(path, 16, "this manifest belongs to another database"));
        }
        let mut numbers = Numbers::default();
        let mut version = Version::default();
        for bytes in std::iter::once(&found.snapshot).chain(&found.edits) {
            version = numbers
                .decode(bytes, home)
                .and_then(|edit| version.with(&edit.removed, &edit.added))
                .ok_or_else(|| Error::corruption(path, 0, "an edit says what cannot be"))?;
        }
        Ok((Self { edits: Log::Read(found), numbers }, version))
    }

    /// Opens for changes what was read.
    pub(crate) fn make_writable(&mut self, home: &Home) -> Result<()> {
        if let Log::Read(found) = &self.edits {
            self.edits = Log::Open(EditLog::open(Arc::clone(&home.fs), &home.dir, NAME, found)?);
        }
        Ok(())
    }

    /// All writes up to this number are in tables.
    pub(crate) fn persisted(&self) -> Seqno {
        self.numbers.persisted
    }

    /// A number for a new table.
    pub(crate) fn take_id(&mut self) -> u64 {
        self.numbers.next_id += 1;
        self.numbers.next_id - 1
    }

    /// Records a change, durable on return; `version` is the version with the change. After an error it is
    /// unknown whether the change will be there at the next opening.
    pub(crate) fn record(&mut self, edit: &Edit, version: &Version) -> Result<()> {
        let Self { edits: Log::Open(edits), numbers } = self else {
            unreachable!("only a writable database changes its manifest")
        };
        numbers.persisted = numbers.persisted.max(edit.persisted);
        let bytes = encode(*numbers, &edit.removed, &edit.added);
        edits.append(&bytes, || numbers.snapshot(version))
    }
}

impl Numbers {
    fn snapshot(&self, version: &Version) -> Vec<u8> {
        let levels = version.levels.iter().enumerate();
        let all: Vec<_> = levels
            .flat_map(|(level, tables)| tables.iter().map(move |table| (level, Arc::clone(table))))
            .collect();
        encode(*self, &[], &all)
    }

    fn decode(&mut self, mut bytes: &[u8], home: &Arc<Home>) -> Option<Edit> {
        let bytes = &mut bytes;
        self.persisted = self.persisted.max(varint::take(bytes)?);
        self.next_id = self.next_id.max(varint::take(bytes)?);
        let mut edit = Edit { persisted: self.persisted, ..Edit::default() };
        for _ in 0..varint::take(bytes)? {
            edit.removed.push(varint::take(bytes)?);
        }
        for _ in 0..varint::take(bytes)? {
            let level =
                usize::try_from(varint::take(bytes)?).ok().filter(|&level| level < LEVELS)?;
            let meta = TableMeta {
                id: varint::take(bytes)?,
                len: varint::take(bytes)?,
                entries: varint::take(bytes)?,
                tombstones: varint::take(bytes)?,
                smallest_seqno: varint::take(bytes)?,
                largest_seqno: varint::take(bytes)?,
                smallest: varint::take_prefixed(bytes)?.to_vec(),
                largest: varint::take_prefixed(bytes)?.to_vec(),
            };
            if meta.smallest > meta.largest || meta.id >= self.next_id {
                return None;
            }
            edit.added.push((level, TableFile::new(meta, Arc::clone(home))));
        }
        bytes.is_empty().then_some(edit)
    }
}

fn encode(numbers: Numbers, removed: &[u64], added: &[(usize, Arc<TableFile>)]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, numbers.persisted);
    varint::put(&mut out, numbers.next_id);
    varint::put(&mut out, removed.len() as u64);
    for &id in removed {
        varint::put(&mut out, id);
    }
    varint::put(&mut out, added.len() as u64);
    for (level, table) in added {
        let meta = &table.meta;
        varint::put(&mut out, *level as u64);
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
    }
    out
}

/// An error if a table that the version holds has no file.
pub(crate) fn check_tables_exist(home: &Home, version: &Version) -> Result<()> {
    let names = home.fs.list(&home.dir)?;
    let there: HashSet<u64> = names.iter().filter_map(|name| Home::id_of(name)).collect();
    match version.tables().find(|table| !there.contains(&table.meta.id)) {
        Some(table) => Err(Error::corruption(&table.path(), 0, "the table is missing")),
        None => Ok(()),
    }
}

/// Removes the tables in the keyspace's directory that no version holds: what a crash left behind.
pub(crate) fn remove_leftovers(home: &Home, version: &Version) -> Result<()> {
    let known: HashSet<u64> = version.tables().map(|table| table.meta.id).collect();
    for name in home.fs.list(&home.dir)? {
        if Home::id_of(&name).is_some_and(|id| !known.contains(&id)) {
            home.fs.remove(&home.dir.join(name))?;
        }
    }
    Ok(())
}
