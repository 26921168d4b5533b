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

use std::sync::Arc;

use super::{Home, LEVELS, TableFile, TableMeta, Version};
use crate::base::{Seqno, varint};
use crate::error::{Error, Result};
use crate::log::EditLog;

const NAME: &str = "manifest";

/// One change of the version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    /// All writes up to this number are in tables, once the edit is.
    pub(crate) persisted: Seqno,
    pub(crate) removed: Vec<u64>,
    pub(crate) added: Vec<(usize, Arc<TableFile>)>,
}

/// The manifest of an open tree.
#[derive(Debug)]
pub(crate) struct Manifest {
    /// `None` when the database is open for reading only.
    edits: Option<EditLog>,
    persisted: Seqno,
    next_id: u64,
}

impl Manifest {
    /// Creates the manifest of an empty tree.
    pub(crate) fn create(home: &Home, database: u64) -> Result<Self> {
        let mut manifest = Self { edits: None, persisted: 0, next_id: 1 };
        let snapshot = manifest.snapshot(&Version::default());
        let fs = Arc::clone(&home.fs);
        manifest.edits = Some(EditLog::create(fs, &home.dir, NAME, database, &snapshot)?);
        Ok(manifest)
    }

    /// Reads the manifest and rebuilds the version; opens it for writing unless `read_only`.
    pub(crate) fn open(
        home: &Arc<Home>,
        database: u64,
        read_only: bool,
    ) -> Result<(Self, Version)> {
        let found = EditLog::read(&*home.fs, &home.dir, NAME)?.ok_or_else(|| {
            Error::corruption(&home.dir.join(NAME), 0, "the keyspace's manifest is missing")
        })?;
        let path = &found.path;
        if found.database != database {
            return Err(Error::corruption(path, 16, "this manifest belongs to another database"));
        }
        let mut manifest = Self { edits: None, persisted: 0, next_id: 1 };
        let mut version = Version::default();
        for bytes in std::iter::once(&found.snapshot).chain(&found.edits) {
            version = manifest
                .decode(bytes, home)
                .and_then(|edit| version.with(&edit.removed, &edit.added))
                .ok_or_else(|| Error::corruption(path, 0, "an edit says what cannot be"))?;
        }
        if !read_only {
            manifest.edits = Some(EditLog::open(Arc::clone(&home.fs), &home.dir, NAME, &found)?);
        }
        Ok((manifest, version))
    }

    /// All writes up to this number are in tables.
    pub(crate) fn persisted(&self) -> Seqno {
        self.persisted
    }

    /// A number for a new table.
    pub(crate) fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Records a change, durable on return; `version` is the version with the change. After an error it is
    /// unknown whether the change will be there at the next opening.
    pub(crate) fn record(&mut self, edit: &Edit, version: &Version) -> Result<()> {
        self.persisted = self.persisted.max(edit.persisted);
        let bytes = encode(self.persisted, self.next_id, &edit.removed, &edit.added);
        let mut edits = self.edits.take().expect("only a writable database changes its manifest");
        let result = edits.append(&bytes, || self.snapshot(version));
        self.edits = Some(edits);
        result
    }

    fn snapshot(&self, version: &Version) -> Vec<u8> {
        let levels = version.levels.iter().enumerate();
        let all: Vec<_> = levels
            .flat_map(|(level, tables)| tables.iter().map(move |table| (level, Arc::clone(table))))
            .collect();
        encode(self.persisted, self.next_id, &[], &all)
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

fn encode(
    persisted: Seqno,
    next_id: u64,
    removed: &[u64],
    added: &[(usize, Arc<TableFile>)],
) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, persisted);
    varint::put(&mut out, next_id);
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

/// Removes the tables in the keyspace's directory that no version holds: what a crash left behind.
pub(crate) fn remove_leftovers(home: &Home, version: &Version) -> Result<()> {
    let known: std::collections::HashSet<u64> =
        version.tables().map(|table| table.meta.id).collect();
    for name in home.fs.list(&home.dir)? {
        if Home::id_of(&name).is_some_and(|id| !known.contains(&id)) {
            home.fs.remove(&home.dir.join(name))?;
        }
    }
    Ok(())
}
