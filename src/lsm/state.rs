//! What a reader of the tree holds: memtables and version as they were at one moment.

use std::sync::Arc;

use super::cursor::{PartCursor, RunCursor};
use super::memtable::Memtable;
use super::table::ReadMode;
use super::version::{LEVELS, TableFile, Version};
use crate::base::{Kind, Seqno, Slice, Trailer, hash};
use crate::error::Result;
use crate::iter::Merge;

/// A memtable that takes no more writes and waits for its flush.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) memtable: Arc<Memtable>,
    /// The state it was cut at: all writes up to here are in it or in what is older.
    pub(crate) last: Seqno,
}

/// One state of the tree. Never changed as a whole; only the active memtable grows.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Frozen>,
    pub(crate) version: Arc<Version>,
}

impl State {
    /// The newest value of `key` at `at`.
    ///
    /// Memtables come first, newest first, then level 0, newest first, then the deeper levels: for any key
    /// each holds older entries than those before it, so the first entry found decides. Memory is asked for
    /// ahead: most of the time goes into waiting for it.
    pub(crate) fn get(&self, key: &[u8], at: Seqno) -> Result<Option<Slice>> {
        let hash = hash::hash64(key);
        self.tables_for(key).for_each(|table| table.prefetch(hash));
        if let Some(found) = self.in_memtables(key, at) {
            return Ok(live(found));
        }
        for table in self.tables_for(key) {
            if let Some(found) = table.read(|table| table.get(key, hash, at))? {
                return Ok(live(found));
            }
        }
        Ok(None)
    }

    /// The newest entry of `key` in the memtables.
    #[inline]
    pub(super) fn in_memtables(&self, key: &[u8], at: Seqno) -> Option<(Trailer, Slice)> {
        let memtables =
            std::iter::once(&self.active).chain(self.frozen.iter().map(|f| &f.memtable));
        let mut memtables = memtables.filter(|memtable| !memtable.is_empty());
        memtables.find_map(|memtable| memtable.get(key, at))
    }

    /// The tables whose range of keys holds `key`, those with newer entries first.
    pub(super) fn tables_for(&self, key: &[u8]) -> impl Iterator<Item = &Arc<TableFile>> + Clone {
        let version = &self.version;
        let holds = move |table: &&Arc<TableFile>| {
            table.meta.smallest.as_slice() <= key && key <= table.meta.largest.as_slice()
        };
        let newest = version.levels[0].iter().filter(holds);
        newest.chain((1..LEVELS).filter_map(move |level| version.table_for(level, key)))
    }

    /// A cursor over all entries.
    pub(crate) fn entries(&self) -> Merge<PartCursor> {
        let memtables =
            std::iter::once(&self.active).chain(self.frozen.iter().map(|f| &f.memtable));
        let mut parts: Vec<_> = memtables
            .filter(|memtable| !memtable.is_empty())
            .map(|memtable| PartCursor::Memtable(memtable.cursor()))
            .collect();
        let run = |tables| PartCursor::Run(Box::new(RunCursor::new(tables, ReadMode::Point)));
        parts.extend(self.version.levels[0].iter().map(|table| run(vec![Arc::clone(table)])));
        let deeper = self.version.levels[1..].iter().filter(|level| !level.is_empty());
        parts.extend(deeper.map(|level| run(level.clone())));
        Merge::new(parts)
    }
}

/// What a reader gets of an entry.
pub(super) fn live((trailer, value): (Trailer, Slice)) -> Option<Slice> {
    (trailer.kind() == Kind::Put).then_some(value)
}
