//! Tables that are mostly tombstones: scans walk over all of them, so they go down, to where they end, before their level
//! is full.
//!
//! Such a table is due by itself when nothing else is, however little its level has. It is merged with what it overlaps on the
//! next level that has tables, or on the deepest one. So each such compaction takes entries down a level or more, and there is
//! an end; on the deepest level tombstones go, unless a snapshot needs them, and then they stay without being due.

use std::sync::Arc;

use super::{Choice, Into, MOST_RUNS, Shape, Work, into_merged, merged};
use crate::lsm::version::{Run, TableFile, Version};

/// So many tombstones are walked over in no time: a table with fewer is not due.
pub(super) const FEW: u64 = 1024;
/// A table is due if one in so many of its entries is a tombstone.
const SHARE: u64 = 2;

/// The change that is due for the table with the most tombstones, if any has so many, in a tree whose levels below level 0 are
/// each one run; level 0 goes to the level `base`.
pub(super) fn due(
    version: &Version,
    (base, deepest): (usize, usize),
    few: u64,
    shape: &Shape,
) -> Option<Choice> {
    let above = version.runs().iter().filter(|run| run.place.level < deepest);
    let tables = above.flat_map(|run| run.tables().iter().map(|table| (run.place.level, table)));
    let due = tables.filter(|(_, table)| is_due(table, few));
    match due.max_by_key(|(_, table)| table.meta.tombstones)? {
        (0, _) => Some(into_merged(version, version.level(0), MOST_RUNS, base, shape)),
        (level, table) => Some(sink(version, level, table, deepest)),
    }
}

fn is_due(table: &TableFile, few: u64) -> bool {
    let meta = &table.meta;
    meta.tombstones >= few && meta.tombstones.saturating_mul(SHARE) >= meta.entries
}

/// A table merged into the next level that has some, or into the deepest.
fn sink(version: &Version, level: usize, table: &Arc<TableFile>, deepest: usize) -> Choice {
    let has_tables = |level: &usize| merged(version, *level).is_some();
    let level = (level + 1..deepest).find(has_tables).unwrap_or(deepest);
    let meet = |run: &Run| run.overlapping(&table.meta.smallest, &table.meta.largest).to_vec();
    let mut inputs = vec![Arc::clone(table)];
    inputs.extend(merged(version, level).map(meet).unwrap_or_default());
    // Not moved, even if it is free: on the deepest level only a merge lets tombstones go.
    Choice { inputs, work: Work::Merge, level, into: Into::Merged }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Policy;
    use super::super::levelled::Levelled;
    use super::super::simulation::{SHAPE, Tree, flushes, ids};
    use super::*;
    use crate::lsm::version::{Place, TableMeta, sample};
    use crate::options::CompactionLock;

    fn levelled(ratio: u32, few: u64) -> Levelled {
        let mut policy = Levelled::new(ratio);
        policy.few = few;
        policy
    }

    /// Tables: level, number, keys, tombstones of 100 entries.
    fn version(tables: &[(usize, u64, (&str, &str), u64)]) -> Version {
        let home = sample::home();
        let table = |&(level, id, (smallest, largest), tombstones): &(_, _, (&str, &str), _)| {
            let meta = TableMeta {
                id,
                len: 100,
                entries: 100,
                tombstones,
                smallest: smallest.into(),
                largest: largest.into(),
                smallest_seqno: id,
                largest_seqno: id,
            };
            let run = if level == 0 { id } else { 0 };
            (Place { level, run }, TableFile::new(meta, Arc::clone(&home)))
        };
        Version::default().with(&[], &tables.iter().map(table).collect::<Vec<_>>()).unwrap()
    }

    fn pick(version: &Version) -> Option<(Vec<u64>, usize, Work)> {
        let policy = levelled(10, 10);
        let choice = policy.pick(version, &SHAPE)?;
        assert!(choice.is_whole(version));
        Some((ids(&choice), choice.level, choice.work))
    }

    #[test]
    fn a_table_with_many_tombstones_is_due_by_itself() {
        let tree = |tombstones| {
            version(&[
                (4, 9, ("a", "c"), 49),
                (4, 8, ("d", "f"), tombstones),
                (6, 7, ("a", "d"), 0),
                (6, 6, ("e", "k"), 100),
            ])
        };
        assert_eq!(pick(&tree(49)), None, "most of it is there");
        assert_eq!(pick(&tree(50)), Some((vec![8, 7, 6], 6, Work::Merge)));
        let few = levelled(10, 51);
        assert!(few.pick(&tree(50), &SHAPE).is_none(), "there are few");
    }

    #[test]
    fn the_one_with_the_most_is_first_and_goes_one_level_down() {
        let tree = version(&[
            (4, 9, ("a", "c"), 60),
            (4, 8, ("d", "f"), 70),
            (5, 7, ("a", "c"), 0),
            (5, 5, ("g", "h"), 0),
            (6, 6, ("a", "k"), 0),
        ]);
        // It overlaps nothing there, but is not moved.
        assert_eq!(pick(&tree), Some((vec![8], 5, Work::Merge)));
    }

    #[test]
    fn level_0_is_compacted_for_its_tombstones() {
        let tree = |tombstones| version(&[(0, 9, ("a", "c"), tombstones), (6, 6, ("a", "k"), 0)]);
        assert_eq!(pick(&tree(10)), None);
        assert_eq!(pick(&tree(100)), Some((vec![9, 6], 6, Work::Merge)));
    }

    #[test]
    fn what_is_deepest_stays() {
        assert_eq!(pick(&version(&[(6, 6, ("a", "k"), 100)])), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn tables_go_down_until_there_is_an_end(
            flushes in flushes(),
            dice in proptest::collection::vec(any::<u8>(), 20..200),
            few in 1..20_u64,
            ratio in 2..20_u32,
        ) {
            let policy = levelled(ratio, few);
            let mut one_by_one = Tree::new();
            flushes.iter().for_each(|flush| one_by_one.take(flush, &policy, &SHAPE));
            one_by_one.settle(&policy, &SHAPE);
            let mut beside = Tree::new();
            beside.take_all(&flushes, &dice, &policy, &SHAPE, CompactionLock::RangeLevel);
            for tree in [one_by_one, beside] {
                prop_assert!(policy.pick(&tree.version, &SHAPE).is_none());
                let due = |run: &Run| run.tables().iter().any(|table| is_due(table, few));
                let runs = tree.version.runs();
                prop_assert!(!runs.iter().any(|run| run.place.level < policy.deepest && due(run)));
            }
        }
    }
}
