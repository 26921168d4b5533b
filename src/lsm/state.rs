//! What a reader of the tree holds: memtables and version as they were at one moment.

use std::ops::Range;
use std::sync::Arc;

use super::cursor::{PartCursor, RunCursor};
use super::earlier::Earlier;
use super::table::ReadMode;
use super::version::{TableFile, Version};
use crate::base::{Kind, Seqno, Slice, Trailer, hash};
use crate::error::Result;
use crate::iter::Merge;
use crate::memtable::Memtables;

/// So many runs are asked ahead for: more are seldom looked into.
const AHEAD: usize = 8;

/// One state of the tree. Never changed as a whole; only the active memtable grows.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) memtables: Memtables,
    pub(crate) version: Arc<Version>,
    pub(super) earlier: Earlier,
}

impl State {
    /// What a reader at `at` sees of it.
    #[inline]
    pub(super) fn at(&self, at: Seqno) -> &Self {
        self.earlier.at(at).unwrap_or(self)
    }

    /// The newest value of `key` at `at`.
    ///
    /// Memtables come first, newest first, then the runs, newest first: for any key each holds older entries
    /// than those before it, so the first entry found decides. Memory is asked for ahead: most of the time goes
    /// into waiting for it.
    pub(crate) fn get(&self, key: &[u8], at: Seqno) -> Result<Option<Slice>> {
        let hash = hash::hash64(key);
        self.prefetch(key, hash);
        if let Some(found) = self.memtables.get(key, at) {
            return Ok(live(found));
        }
        for place in self.places() {
            let Some(table) = self.table_at(place, key, at) else { continue };
            if let Some(found) = table.read(|table| table.get(key, hash, at))? {
                return Ok(live(found));
            }
        }
        Ok(None)
    }

    /// The places where a key may have a table, those with newer entries first: the runs.
    #[inline]
    pub(super) fn places(&self) -> Range<usize> {
        0..self.version.runs().len()
    }

    /// The table at a place whose range of keys holds `key`, unless all of it was written after `at`.
    #[inline]
    pub(super) fn table_at(&self, place: usize, key: &[u8], at: Seqno) -> Option<&Arc<TableFile>> {
        let table = self.version.runs()[place].table_for(key)?;
        (table.meta.smallest_seqno <= at).then_some(table)
    }

    /// Asks ahead for the memory that looking for `key` in tables begins with.
    #[inline]
    pub(super) fn prefetch(&self, key: &[u8], hash: u64) {
        let runs = self.version.runs().iter().take(AHEAD);
        runs.filter_map(|run| run.table_for(key)).for_each(|table| table.prefetch(hash));
    }

    /// A cursor over all entries.
    pub(crate) fn entries(&self) -> Merge<PartCursor> {
        let memtables = self.memtables.cursors().map(PartCursor::Left);
        let runs = self.version.runs().iter();
        let runs = runs.map(|run| PartCursor::Right(RunCursor::new(run.clone(), ReadMode::Point)));
        Merge::new(memtables.chain(runs).collect())
    }
}

/// What a reader gets of an entry.
pub(super) fn live((trailer, value): (Trailer, Slice)) -> Option<Slice> {
    (trailer.kind() == Kind::Put).then_some(value)
}
