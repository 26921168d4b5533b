//! The jobs of an LSM-tree as they are told to those who want to know: what goes in, and what comes out.
//!
//! Each job is told of when it holds nothing any more: a compaction when its claim is given back.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::compaction::claims::Claim;
use super::compaction::policy::{Choice, Work};
use super::load::Loaded;
use super::state::{Basis, State};
use super::tree::Tree;
use super::values::Moves;
use super::version::{Run, TableFile, Version};
use crate::error::Result;
use crate::events::{Job, JobKind, LevelRange};
use crate::memtable::Frozen;

impl Tree {
    /// Does what was chosen, and gives the claim to it back; false if told to stop.
    pub(super) fn compact_claimed(
        &self,
        (basis, choice): (Basis, Choice),
        claim: Claim,
        moves: Moves,
    ) -> Result<bool> {
        let kind = match choice.work {
            Work::Move if self.are_packed_otherwise(&basis.version, &choice) => JobKind::Merge,
            Work::Move => JobKind::Move,
            Work::Merge => JobKind::Merge,
            Work::Drop => JobKind::Drop,
        };
        let mut job =
            self.observer().begin(kind, inputs(&basis.version, &choice), Some(choice.level));
        let result = self.compact_choice(&basis, &choice, moves, &mut job);
        // A caller's compaction is about all there is: the background finds out what of that it can do.
        if let Err(error) = &result
            && moves == Moves::Crowded
        {
            self.put_off(&basis, &choice, error);
        }
        drop((claim, choice, basis));
        job.end(result)
    }

    /// Flushes memtables.
    pub(super) fn flush_observed(&self, state: &State, frozen: &[Frozen]) -> Result<()> {
        let mut job = self.observer().begin(JobKind::Flush, Vec::new(), Some(0));
        let result = self.flush(state, frozen, &mut job);
        job.end(result)
    }

    /// Gives a load its place.
    pub(super) fn take_in_observed(&self, state: &State, load: &Loaded) -> Result<()> {
        let mut job = self.observer().begin(JobKind::Load, Vec::new(), None);
        let result = self.take_in(state, load, &mut job);
        job.end(result)
    }
}

/// The tables of `choice`, level by level.
fn inputs(version: &Version, choice: &Choice) -> Vec<LevelRange> {
    let ids: HashSet<u64> = choice.inputs.iter().map(|table| table.meta.id).collect();
    let levels = version.levels().filter_map(|(level, runs)| {
        let tables = runs.iter().flat_map(Run::tables);
        range(level, tables.filter(|table| ids.contains(&table.meta.id)))
    });
    levels.collect()
}

/// What `tables` of a level have together; `None` if there are none.
pub(super) fn range<'a>(
    level: usize,
    tables: impl IntoIterator<Item = &'a Arc<TableFile>>,
) -> Option<LevelRange> {
    let bounds = |table: &'a Arc<TableFile>| {
        let meta = &table.meta;
        (meta.len, &meta.smallest[..], &meta.largest[..])
    };
    LevelRange::around(level, tables.into_iter().map(bounds))
}

/// Takes note of tables that a job wrote to a level, and of the value files that came with them: those that `since` does not
/// have.
pub(super) fn wrote(job: &mut Job, since: &Basis, level: usize, tables: &[Arc<TableFile>]) {
    let shares = tables.iter().flat_map(|table| &table.values);
    let new = shares.filter(|share| since.version.values.file(share.file.id()).is_none());
    let values: BTreeMap<u64, u64> = new.map(|share| (share.file.id(), share.file.len())).collect();
    let output = range(level, tables);
    job.wrote(output.iter().map(|output| output.bytes).chain(values.into_values()).sum());
    job.put(output);
}
