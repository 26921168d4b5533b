//! What a reader of the tree holds: memtables and version as they were at one moment.

use std::ops::Range;
use std::sync::Arc;

use super::cursor::{PartCursor, RunCursor};
use super::table::ReadMode;
use super::values::Place;
use super::version::{LEVELS, TableFile, TableMeta, Version};
use crate::base::{Kind, Seqno, Slice, Trailer, hash};
use crate::error::Result;
use crate::iter::Merge;
use crate::memtable::Memtables;

/// One state of the tree. Never changed as a whole; only the active memtable grows.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) memtables: Memtables,
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
        self.prefetch(key, hash);
        if let Some(found) = self.memtables.get(key, at) {
            return Ok(live(found));
        }
        for table in self.tables_for(key) {
            if let Some((trailer, value)) = table.read(|table| table.get(key, hash, at))? {
                if trailer.is_apart() {
                    return self.place(&value)?.read(hash).map(Some);
                }
                return Ok(live((trailer, value)));
            }
        }
        Ok(None)
    }

    /// The tables whose range of keys holds `key`, those with newer entries first.
    fn tables_for(&self, key: &[u8]) -> impl Iterator<Item = &Arc<TableFile>> {
        self.places().filter_map(move |place| self.table_at(place, key))
    }

    /// The places where a key may have a table, those with newer entries first.
    pub(super) fn places(&self) -> Range<usize> {
        0..self.version.levels[0].len() + LEVELS - 1
    }

    /// The table at a place whose range of keys holds `key`: a table of level 0 for each of those, then one of
    /// each deeper level.
    #[inline]
    pub(super) fn table_at(&self, place: usize, key: &[u8]) -> Option<&Arc<TableFile>> {
        let newest = &self.version.levels[0];
        match newest.get(place) {
            Some(table) => {
                let TableMeta { smallest, largest, .. } = &table.meta;
                (smallest.as_slice() <= key && key <= largest.as_slice()).then_some(table)
            }
            None => self.version.table_for(place - newest.len() + 1, key),
        }
    }

    /// Asks ahead for the memory that looking for `key` in tables begins with.
    #[inline]
    pub(super) fn prefetch(&self, key: &[u8], hash: u64) {
        self.tables_for(key).for_each(|table| table.prefetch(hash));
    }

    /// Where a value is that is apart, by what its entry has instead.
    #[inline]
    pub(super) fn place(&self, reference: &[u8]) -> Result<Place<'_>> {
        self.version.values.locate(reference).ok_or_else(|| self.version.misled())
    }

    /// A cursor over all entries. Those whose value is apart have what leads to it.
    pub(crate) fn entries(&self) -> Merge<PartCursor> {
        let mut parts: Vec<_> = self.memtables.cursors().map(PartCursor::Left).collect();
        let run = |tables| PartCursor::Right(RunCursor::new(tables, ReadMode::Point));
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
