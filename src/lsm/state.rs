//! What a reader of the tree holds: memtables and version as they were at one moment.

use std::ops::Range;
use std::sync::Arc;

use super::cursor::{PartCursor, RunCursor};
use super::earlier::Earlier;
use super::load::Loaded;
use super::ranges::{Ranges, Source};
use super::read_trigger::ReadTrigger;
use super::table::{Found, ReadMode};
use super::values::Place;
use super::version::{TableFile, Version};
#[cfg(test)]
use crate::base::key::MAX_SEQNO;
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
    /// Loads that the manifest does not name yet, newest first, and memtables between them.
    pub(super) loads: Vec<Loaded>,
    pub(crate) version: Arc<Version>,
    pub(super) earlier: Earlier,
    /// The number of the last clear; 0 if there was none.
    pub(super) cleared: Seqno,
    pub(super) clearing: Option<Clearing>,
}

/// A clear that the manifest does not have yet, and what goes with it.
#[derive(Clone, Debug)]
pub(super) struct Clearing {
    pub(super) seqno: Seqno,
    /// The first write that had not been persisted before it.
    oldest: Seqno,
    /// What the manifest says there is.
    pub(super) version: Arc<Version>,
    /// Loads that it does not name.
    pub(super) loads: Vec<Loaded>,
}

/// The tables that a job begins with. Memtables are no part of it: it would keep them in memory until it ends.
#[derive(Clone, Debug)]
pub(super) struct Basis {
    pub(super) version: Arc<Version>,
    /// The number of the last clear before.
    pub(super) cleared: Seqno,
}

impl State {
    /// The tables that the manifest names.
    pub(super) fn basis(&self) -> Basis {
        Basis { version: Arc::clone(&self.version), cleared: self.cleared }
    }

    /// A state without loads.
    pub(super) fn new(memtables: Memtables, version: Version) -> Self {
        let (loads, earlier, version) = (Vec::new(), Earlier::default(), Arc::new(version));
        Self { memtables, loads, version, earlier, cleared: 0, clearing: None }
    }

    /// Takes away all there is, as the write `seqno`, and goes on with `memtables`, which are empty. What was there stays
    /// for readers below that number, if there may be any.
    pub(super) fn clear(&mut self, seqno: Seqno, memtables: Memtables, has_readers: bool) {
        let next = Self { cleared: seqno, ..Self::new(memtables, Version::default()) };
        let before = std::mem::replace(self, next);
        before.memtables.set_flushed();
        let oldest = before.oldest_unpersisted().unwrap_or(seqno);
        self.earlier = before.earlier.clone();
        if has_readers {
            self.earlier.push(seqno, true, &before);
        }
        let (version, mut loads) = match before.clearing {
            Some(clearing) => (clearing.version, clearing.loads),
            None => (before.version, Vec::new()),
        };
        loads.extend(before.loads);
        self.clearing = Some(Clearing { seqno, oldest, version, loads });
    }

    /// The manifest has a clear now, which took away all it had; a later one may have come meanwhile, which is still to be
    /// recorded with what was written between them.
    pub(super) fn set_cleared(&mut self, seqno: Seqno) {
        self.clearing.take_if(|clearing| clearing.seqno == seqno);
        if let Some(later) = &mut self.clearing {
            later.oldest = later.oldest.max(seqno + 1);
            later.version = Arc::default();
            later.loads.retain(|load| load.seqno > seqno);
        }
    }

    /// The first write that is not in tables that the manifest names.
    pub(super) fn oldest_unpersisted(&self) -> Option<Seqno> {
        let clearing = self.clearing.as_ref().map(|clearing| clearing.oldest);
        let load = self.loads.last().map(|load| load.seqno);
        clearing.into_iter().chain(load).chain(self.memtables.oldest()).min()
    }

    /// The number up to which something has been cut that is not in such tables; 0 if nothing has.
    pub(super) fn cut_up_to(&self) -> Seqno {
        let clearing = self.clearing.as_ref().map(|clearing| clearing.seqno);
        let load = self.loads.first().map(|load| load.seqno);
        let frozen = self.memtables.frozen.first().map(|frozen| frozen.last);
        clearing.into_iter().chain(load).chain(frozen).max().unwrap_or(0)
    }

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
        if let Some(found) = self.in_front(key, at)? {
            return Ok(live(found));
        }
        for place in self.places() {
            let Some(table) = self.table_at(place, key, at) else { continue };
            if let Some((trailer, value)) = table.read(|table| table.get(key, hash, at))? {
                if trailer.is_apart() {
                    return self.place(&value)?.read(hash).map(Some);
                }
                return Ok(live((trailer, value)));
            }
        }
        Ok(None)
    }

    /// The newest entry of `key` at `at` in what is in front of the tables.
    #[inline]
    pub(super) fn in_front(&self, key: &[u8], at: Seqno) -> Result<Found> {
        let found = self.memtables.get(key, at);
        if self.loads.is_empty() { Ok(found) } else { self.in_loads(key, at, found) }
    }

    /// The same, given what is in memtables.
    #[cold]
    fn in_loads(&self, key: &[u8], at: Seqno, found: Found) -> Result<Found> {
        let known = found.as_ref().map_or(0, |(trailer, _)| trailer.seqno());
        let newer = self.loads.iter().take_while(|load| load.seqno > known);
        for load in newer.filter(|load| load.seqno <= at) {
            let Some(table) = load.run.table_for(key) else { continue };
            let loaded = table.read(|table| table.get(key, hash::hash64(key), at))?;
            if let Some((trailer, value)) = loaded {
                return Ok(Some((trailer.numbered(load.seqno), value)));
            }
        }
        Ok(found)
    }

    /// This one, and those that readers of before see.
    pub(super) fn with_earlier(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.earlier.states())
    }

    /// All tables that a reader of this state may look into.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        let loads = self.loads.iter().flat_map(|load| load.run.tables());
        loads.chain(self.version.tables())
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

    /// Where a value is that is apart, by what its entry has instead.
    #[inline]
    pub(super) fn place(&self, reference: &[u8]) -> Result<Place<'_>> {
        self.version.values.locate(reference).ok_or_else(|| self.version.misled())
    }

    /// A cursor over all entries, also those that range tombstones cover. Those whose value is apart have what leads to it.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> Merge<PartCursor> {
        self.entries_and_ranges(MAX_SEQNO, &Arc::new(ReadTrigger::new(|| {}))).0
    }

    /// The same, with the range tombstones that readers at `at` see. Seeks tell `trigger` of their visits to level 0.
    pub(super) fn entries_and_ranges(
        &self,
        at: Seqno,
        trigger: &Arc<ReadTrigger>,
    ) -> (Merge<PartCursor>, Ranges) {
        let mut waiting = self.version.level(0).len();
        let (mut cursors, mut sources) = (Vec::new(), Vec::new());
        for memtable in self.memtables.all() {
            // All that `at` sees had been written when that was published.
            let ranges = memtable.ranges().map(Source::Memtable);
            sources.extend(ranges.map(|source| (cursors.len(), source)));
            cursors.push(PartCursor::Left(memtable.cursor()));
        }
        // What was loaded has no range tombstones.
        let loads = self.loads.iter().map(|load| &load.run);
        for run in loads.chain(self.version.runs()) {
            if !run.ranged().is_empty() {
                sources.push((cursors.len(), Source::Run(run.clone())));
            }
            let mut cursor = RunCursor::new(run.clone(), ReadMode::Point);
            if run.place.level == 0 && waiting > 0 {
                // The first one tells of all.
                cursor = cursor.telling(trigger, std::mem::take(&mut waiting));
            }
            cursors.push(PartCursor::Right(cursor));
        }
        (Merge::new(cursors), Ranges::new(sources, at))
    }
}

/// What a reader gets of an entry.
pub(super) fn live((trailer, value): (Trailer, Slice)) -> Option<Slice> {
    (trailer.kind() == Kind::Put).then_some(value)
}
