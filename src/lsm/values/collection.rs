//! Collection: which values are moved to new files, so that old files can go.
//!
//! A file of which more than half is garbage is *crowded*. A compaction that meets a reference into a crowded file moves the
//! value, which costs no more writing than the garbage gives back. That leaves garbage in files whose keys no compaction
//! touches. So if more than a quarter of all bytes in value files is garbage and a file is crowded, a table that refers to
//! the worst one is rewritten where it is. Once nothing is due, value files take no more than twice what tables refer to.
//!
//! It comes to an end: a table that was rewritten refers to no file that was crowded before, and the files it refers to
//! instead are new and have no garbage.
//!
//! Everything here is a pure function of a version.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::file::ValueFile;
use super::set::ValueFiles;
use crate::lsm::compaction::policy::{Choice, Into, Work};
use crate::lsm::version::{Place, TableFile, Version};

/// Which of the values that a compaction meets in value files it moves to new ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moves {
    /// Those in files that are crowded.
    Crowded,
    /// All, so that afterwards they lie in the order of their keys, without garbage.
    All,
}

impl Moves {
    /// The numbers of the files that values are moved out of.
    pub(super) fn files(self, values: &ValueFiles) -> BTreeSet<u64> {
        let moved = |(file, garbage): &(&Arc<ValueFile>, u64)| match self {
            Self::Crowded => is_crowded(file, *garbage),
            Self::All => true,
        };
        values.garbage().filter(moved).map(|(file, _)| file.id()).collect()
    }
}

/// A table to be rewritten where it is, so that value files shrink, none that `is_put_off`; `None` if that would not be worth it.
pub(crate) fn due(
    version: &Version,
    is_put_off: impl Fn(&Arc<TableFile>) -> bool,
) -> Option<Choice> {
    let values = &version.values;
    let sum = |(bytes, all): (u64, u64), (file, garbage): (&Arc<ValueFile>, u64)| {
        (bytes.saturating_add(file.record_bytes()), all.saturating_add(garbage))
    };
    let (bytes, garbage) = values.garbage().fold((0, 0), sum);
    if garbage <= bytes / 4 {
        return None;
    }
    let crowded = values.garbage().filter(|(file, garbage)| is_crowded(file, *garbage));
    let share =
        |(file, garbage): &(&Arc<ValueFile>, u64)| *garbage as f64 / file.record_bytes() as f64;
    let mut crowded: Vec<_> = crowded.collect();
    crowded.sort_by(|a, b| share(b).total_cmp(&share(a)));
    let mut users =
        crowded.iter().filter_map(|(file, _)| largest_user(version, file.id(), &is_put_off));
    let (Place { level, run }, table) = users.next()?;
    let inputs = vec![Arc::clone(table)];
    Some(Choice { inputs, work: Work::Merge, level, into: Into::Its(run) })
}

fn is_crowded(file: &ValueFile, garbage: u64) -> bool {
    garbage > file.record_bytes() / 2
}

/// The table that refers to the most bytes of a value file, of those that are not put off, and where it is.
fn largest_user(
    version: &Version,
    file: u64,
    is_put_off: impl Fn(&Arc<TableFile>) -> bool,
) -> Option<(Place, &Arc<TableFile>)> {
    let runs = version.runs().iter();
    let tables = runs.flat_map(|run| run.tables().iter().map(|table| (run.place, table)));
    let users = tables.filter(|(_, table)| !is_put_off(table)).filter_map(|(place, table)| {
        let share = table.values.iter().find(|share| share.file.id() == file)?;
        Some((share.bytes, place, table))
    });
    users.max_by_key(|(bytes, ..)| *bytes).map(|(_, place, table)| (place, table))
}
