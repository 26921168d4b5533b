//! One merge of tables into new ones, by one thread or by several.
//!
//! 1. A large merge is cut into parts, ranges of user keys.
//! 2. The thread that has the job calls other threads of compactions, and does parts itself. Those who come find parts that
//!    are left, or nothing to do.
//! 3. When all parts are done, their tables, one behind the other, are the result. If one comes to nothing, all that was
//!    written is removed.
//!
//! The range tombstones of all tables are read once; each part has what of them lies in it.
//!
//! So no more threads are at work than there are for compactions, but for those that stand in for jobs that failed, and nobody waits for a thread that is busy elsewhere.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use super::compaction::cuts::cuts;
use super::compaction::merge::{Output, write_tables};
use super::compaction::parts::{Outcome, Parts};
use super::compaction::retention::Retention;
use super::cursor::{PartCursor, RunCursor};
use super::state::Basis;
use super::table::{ReadMode, last_below};
use super::tree::Tree;
use super::values::Moves;
use super::version::{Place, Run, TableFile, TableMeta};
use crate::base::{End, RangeTombstone, Seqno, Trailer};
use crate::error::{Error, Result};
use crate::iter::{EntryCursor, Merge};
use crate::sync::much;
use crate::vfs::Aside;

/// A part of so many bytes, the second in simulations, may have a thread that reads ahead, and one that writes.
const WORTH_A_THREAD: (u64, u64) = (4 << 20, 4 << 10);

/// What is merged, and how. All parts see the same.
struct Merging {
    basis: Basis,
    inputs: Vec<Arc<TableFile>>,
    /// All range tombstones of theirs.
    deleted: Vec<RangeTombstone>,
    place: Place,
    moves: Moves,
    /// Whose states must stay readable.
    retained: Vec<Seqno>,
    /// Where tables end.
    bounds: Vec<Vec<u8>>,
    /// The first key of each part but the first.
    cuts: Vec<Vec<u8>>,
    /// How many parts may be at work at once.
    threads: usize,
}

type Tables = Vec<Arc<TableFile>>;

impl Merging {
    /// Those of its tables that have keys of a part.
    fn inputs_of(&self, part: usize) -> Tables {
        let (from, to) = self.range(part);
        let has_some = |table: &&Arc<TableFile>| {
            from.is_none_or(|from| table.meta.largest.as_slice() >= from)
                && to.is_none_or(|to| table.meta.smallest.as_slice() < to)
        };
        self.inputs.iter().filter(has_some).cloned().collect()
    }

    /// What of the range tombstones lies in a part.
    fn deleted_in(&self, part: usize) -> Vec<RangeTombstone> {
        let (from, to) = self.range(part);
        let (from, to): (Arc<[u8]>, _) = (from.unwrap_or_default().into(), End::new(to));
        self.deleted.iter().filter_map(|tombstone| tombstone.clip(&from, &to)).collect()
    }

    /// Whether nothing is kept of a table in a part of which it has keys.
    fn is_hidden(&self, table: &TableMeta, part: usize, retention: &Retention) -> bool {
        let (from, to) = self.range(part);
        let smallest = table.smallest.as_slice().max(from.unwrap_or_default());
        // A part ends directly behind a key.
        let last = to.map(|to| last_below(&End::new(Some(to))));
        let largest = last.as_ref().map_or(&table.largest, |last| last.min(&table.largest));
        retention.hides((smallest, largest), (table.smallest_seqno, table.largest_seqno))
    }

    /// The keys of a part at which tables of the next level begin, if there is one in which tables have no keys in common.
    fn tables_below(&self, part: usize) -> Vec<Vec<u8>> {
        let [run] = self.basis.version.level(self.place.level + 1) else { return Vec::new() };
        let smallest = self.inputs.iter().map(|table| &table.meta.smallest).min();
        let largest = self.inputs.iter().map(|table| &table.meta.largest).max();
        let (Some(smallest), Some(largest)) = (smallest, largest) else { return Vec::new() };
        let (from, to) = self.range(part);
        let is_inside = |key: &&Vec<u8>| {
            *key > smallest
                && from.is_none_or(|from| key.as_slice() > from)
                && to.is_none_or(|to| key.as_slice() < to)
        };
        let tables = run.overlapping(smallest, largest).iter();
        tables.map(|table| &table.meta.smallest).filter(is_inside).cloned().collect()
    }

    /// Whether a part is worth threads that read and write.
    fn is_long(&self) -> bool {
        let bytes = self.inputs.iter().map(|table| table.meta.len).fold(0, u64::saturating_add);
        let (usual, small) = WORTH_A_THREAD;
        bytes / (self.cuts.len() as u64 + 1) >= much(usual, small)
    }

    /// What has a thread read or write for a part, if that is worth it.
    fn aside(&self, name: &'static str) -> Option<Aside> {
        self.is_long().then(|| Aside::new(name))
    }

    /// The first key of a part, and that of the one behind it.
    fn range(&self, part: usize) -> (Option<&[u8]>, Option<&[u8]>) {
        let from = part.checked_sub(1).map(|before| self.cuts[before].as_slice());
        (from, self.cuts.get(part).map(Vec::as_slice))
    }
}

impl Tree {
    /// Merges tables into new ones for `place`, which end at `bounds`; `None` if told to stop, or in vain.
    pub(super) fn merge(
        &self,
        basis: &Basis,
        inputs: &[Arc<TableFile>],
        place: Place,
        (moves, bounds): (Moves, Vec<Vec<u8>>),
    ) -> Result<Option<Tables>> {
        let threads = self.context.background.compaction_threads;
        let cuts = cuts(inputs, self.shape().table_bytes, threads)?;
        let count = cuts.len() + 1;
        let merging = Merging {
            basis: basis.clone(),
            inputs: inputs.to_vec(),
            deleted: range_tombstones(inputs)?,
            place,
            moves,
            retained: self.context.visibility.retained(),
            bounds,
            cuts,
            threads: threads.min(count),
        };
        let helpers = merging.threads - 1;
        let parts = Arc::new(Parts::new(merging, count));
        for _ in 0..helpers {
            let (tree, parts) = (Weak::clone(&self.this), Arc::clone(&parts));
            self.context.background.compaction.submit(self.jobs().urgency(), move || {
                if let Some(tree) = tree.upgrade() {
                    tree.merge_parts(&parts);
                }
            });
        }
        self.merge_parts(&parts);
        let Outcome { done, is_whole } = parts.finish();
        let tables = done.concat();
        if !matches!(is_whole, Ok(true)) {
            self.discard(basis, &tables);
        }
        if let Err(error @ Error::Poisoned { .. }) = &is_whole {
            // It ended by a panic, though in a thread that reads or writes for it.
            self.context.host.poison(error);
        }
        Ok(is_whole?.then_some(tables))
    }

    /// Does parts of a merge until none is left.
    fn merge_parts(&self, parts: &Parts<Merging, Tables>) {
        parts.work(|merging, part| {
            let is_stopped =
                || self.jobs().is_stopping() || parts.gives_up() || self.is_in_vain(&merging.basis);
            self.merge_part(merging, part, &is_stopped)
        });
    }

    fn merge_part(
        &self,
        merging: &Merging,
        part: usize,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<Tables>> {
        let Merging { basis, place, .. } = merging;
        let ids: HashSet<u64> = merging.inputs.iter().map(|table| table.meta.id).collect();
        let behind = basis.version.behind(*place);
        let is_merged = |table: &Arc<TableFile>| ids.contains(&table.meta.id);
        let is_deepest =
            |key: &[u8]| behind.iter().all(|run| run.table_for(key).is_none_or(is_merged));
        let lies_deepest = |start: &[u8], end: &End| {
            let last = last_below(end);
            behind.iter().all(|run| run.overlapping(start, &last).iter().all(is_merged))
        };
        let mut retention = Retention::new(merging.retained.clone())
            .with_ranges(&merging.deleted_in(part), lies_deepest);
        let mut inputs = merging.inputs_of(part);
        inputs.retain(|table| !merging.is_hidden(&table.meta, part, &retention));
        let runs = runs(&inputs);
        let reader = merging.aside("turbidite-ahead").map(Arc::new);
        // One run may be read while another is walked over.
        let buffers = runs.len() * if reader.is_some() { 2 } else { 1 };
        let threads = self.context.background.compaction_threads;
        let at_once = self.context.budget.merge_buffer(buffers, threads) as u64;
        let run = |run| {
            let cursor = RunCursor::new(run, ReadMode::Sequential).with_aside(reader.clone());
            PartCursor::Right(cursor.in_runs_of(at_once))
        };
        let (from, to) = merging.range(part);
        let mut cursor = Merge::new(runs.into_iter().map(run).collect());
        match from {
            Some(from) => cursor.seek(from, Trailer::NEWEST)?,
            None => cursor.seek_to_first()?,
        }
        let valve = Some(self.jobs().valve());
        let mut output = Output {
            home: self.home(),
            options: &self.table_options(place.level),
            limits: self.table_limits(),
            bounds: &merging.bounds,
            soft_bounds: &merging.tables_below(part),
            end: to,
            next_id: &mut || self.take_id(),
            valve,
            values: self.placement(&basis.version.values, merging.moves).through(valve),
            aside: merging.aside("turbidite-write"),
            stopped: is_stopped,
        };
        write_tables(&mut cursor, &mut retention, is_deepest, &mut output)
    }
}

/// The range tombstones of tables.
pub(super) fn range_tombstones(tables: &[Arc<TableFile>]) -> Result<Vec<RangeTombstone>> {
    let mut all = Vec::new();
    for table in tables.iter().filter(|table| table.meta.ranges > 0) {
        let fragments = table.read(|table| Ok(table.ranges().cloned()))?;
        all.extend(fragments.iter().flat_map(|fragments| fragments.tombstones()));
    }
    Ok(all)
}

/// Groups tables into runs: those that follow one another without overlap become one.
pub(super) fn runs(tables: &[Arc<TableFile>]) -> Vec<Run> {
    let mut sorted = tables.to_vec();
    sorted.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    let mut runs: Vec<Vec<Arc<TableFile>>> = Vec::new();
    for table in sorted {
        let follows = |run: &&mut Vec<Arc<TableFile>>| {
            run.last().is_some_and(|last| last.meta.largest < table.meta.smallest)
        };
        match runs.iter_mut().find(follows) {
            Some(run) => run.push(table),
            None => runs.push(vec![table]),
        }
    }
    runs.into_iter().filter_map(|tables| Run::new(Place::merged(0), tables)).collect()
}
