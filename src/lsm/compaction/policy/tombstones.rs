//! Tables that are mostly tombstones: scans walk over all of them, so they go down, to where they end, before their level
//! is full.
//!
//! Such a table is due by itself when nothing else is, however little its level has. It is merged with what it overlaps on the
//! next level that has tables, or on the deepest one. So each such compaction takes entries down a level or more, and there is
//! an end; on the deepest level tombstones go, unless a snapshot needs them, and then they stay without being due.
//!
//! A range tombstone counts as one. A table that has one and nothing else is due however few that is, if all of some table further
//! down is covered: that one goes without being read. Of tables with more in them it is not known what they cover.

use std::sync::Arc;

use super::{Choice, Into, MOST_RUNS, Shape, Work, into_merged, merge_waiting, merged};
use crate::lsm::version::{Place, Run, TableFile, Version};

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
    let due = tables.filter(|(level, table)| is_due(version, *level, table, few));
    match due.max_by_key(|(_, table)| count(table))? {
        (0, _) => Some(into_merged(version, version.level(0), MOST_RUNS, base, shape)),
        (level, table) => Some(sink(version, level, table, deepest, shape)),
    }
}

/// The tombstones of a table, of keys and of ranges.
fn count(table: &TableFile) -> u64 {
    table.meta.tombstones.saturating_add(table.meta.ranges)
}

fn is_due(version: &Version, level: usize, table: &TableFile, few: u64) -> bool {
    let all = table.meta.entries.saturating_add(table.meta.ranges);
    let is_most = count(table).saturating_mul(SHARE) >= all && all > 0;
    is_most && (count(table) >= few || all == 1 && covers_some(version, level, table))
}

/// Whether a table is one that is mostly tombstones which a merge into `target` lets go, as nothing that is older has keys where it has
/// some. Then it is merged, for which of those nothing is written, rather than moved, to be walked over by scans from then on: of keys
/// that are put and soon deleted, in ascending order as in a queue, tables are free and hardly anything else.
pub(super) fn end_in(version: &Version, table: &Arc<TableFile>, target: Place) -> bool {
    let all = table.meta.entries.saturating_add(table.meta.ranges);
    let is_most = count(table).saturating_mul(SHARE) >= all && count(table) >= FEW;
    let mut older = version.runs().iter().filter(|run| run.place.age() >= target.age());
    is_most && !older.any(|run| run.meets(table))
}

/// Whether the only thing in a table is a range tombstone that covers all of a table further down.
fn covers_some(version: &Version, level: usize, table: &TableFile) -> bool {
    let range = table.meta.smallest.as_slice()..=table.meta.largest.as_slice();
    let is_covered = |other: &Arc<TableFile>| {
        range.contains(&other.meta.smallest.as_slice()) && other.meta.largest < table.meta.largest
    };
    let covers_some = |run: &Run| {
        run.overlapping(&table.meta.smallest, &table.meta.largest).iter().any(is_covered)
    };
    let mut deeper = version.runs().iter().filter(|run| run.place.level > level);
    table.meta.ranges == 1 && deeper.any(covers_some)
}

/// A table merged into the next level that has some, or into the deepest.
fn sink(
    version: &Version,
    level: usize,
    table: &Arc<TableFile>,
    deepest: usize,
    shape: &Shape,
) -> Choice {
    let has_tables = |level: &usize| merged(version, *level).is_some();
    let from = level;
    let level = (level + 1..deepest).find(has_tables).unwrap_or(deepest);
    if let Some(waiting) = merge_waiting(version, [level, from], shape) {
        return waiting;
    }
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
    use super::super::tiered::Tiered;
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
        let mixed = tables
            .iter()
            .map(|&(level, id, keys, tombstones)| (level, id, keys, (100, tombstones, 0)));
        version_of(&mixed.collect::<Vec<_>>())
    }

    /// A table: level, number, keys, and its entries, the tombstones among them, and range tombstones.
    type Row<'a> = (usize, u64, (&'a str, &'a str), (u64, u64, u64));

    fn version_of(tables: &[Row<'_>]) -> Version {
        let home = sample::home();
        let table = |&(level, id, (smallest, largest), (entries, tombstones, ranges)): &Row<'_>| {
            let meta = TableMeta {
                id,
                len: 100,
                entries,
                tombstones,
                ranges,
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
    fn what_hides_nothing_is_merged_and_not_moved() {
        let many = (FEW, FEW, 0);
        let policies: [&dyn Policy; 2] = [&levelled(10, FEW), &Tiered { runs: 2 }];
        let [tree, with_others, above_older] = [
            vec![(0, 9, ("d", "f"), many), (0, 8, ("a", "c"), many), (0, 7, ("g", "i"), many)],
            vec![
                (0, 9, ("d", "f"), many),
                (0, 8, ("a", "c"), (FEW, 0, 0)),
                (0, 7, ("g", "i"), many),
            ],
            vec![
                (0, 9, ("d", "f"), many),
                (0, 8, ("a", "c"), many),
                (0, 7, ("g", "i"), many),
                (6, 6, ("a", "z"), (9, 0, 0)),
            ],
        ]
        .map(|rows| version_of(&rows));
        let work = |at: usize, version: &Version| {
            let choice = policies[at].pick(version, &SHAPE).unwrap();
            assert!(choice.is_whole(version));
            (ids(&choice).len(), choice.work)
        };
        assert_eq!([work(0, &tree), work(1, &tree)], [(1, Work::Merge), (3, Work::Merge)]);
        // What has something in it moves first.
        assert_eq!(
            [work(0, &with_others), work(1, &with_others)],
            [(1, Work::Move), (3, Work::Merge)]
        );
        assert_eq!(
            [work(0, &above_older), work(1, &above_older)],
            [(4, Work::Merge), (3, Work::Move)]
        );
    }

    #[test]
    fn range_tombstones_are_tombstones() {
        let tree = |upper| version_of(&[(4, 9, ("a", "f"), upper), (6, 8, ("c", "k"), (90, 0, 0))]);
        let down = Some((vec![9, 8], 6, Work::Merge));
        assert_eq!(pick(&tree((5, 5, 5))), down);
        assert_eq!(pick(&tree((0, 0, 10))), down);
        assert_eq!(pick(&tree((5, 5, 4))), None, "they are few");
        assert_eq!(pick(&tree((11, 0, 10))), None, "most of it is there");
    }

    #[test]
    fn one_range_tombstone_is_due_if_it_covers_a_table() {
        let tree = |upper, largest| {
            version_of(&[
                (0, 9, ("b", "f"), upper),
                (6, 8, ("a", "b1"), (90, 0, 0)),
                (6, 7, ("c", largest), (90, 0, 0)),
            ])
        };
        let down = Some((vec![9, 8, 7], 6, Work::Merge));
        assert_eq!(pick(&tree((0, 0, 1), "e")), down);
        assert_eq!(pick(&tree((0, 0, 1), "f")), None, "the end may not be in it");
        assert_eq!(pick(&tree((0, 0, 2), "e")), None, "the table may lie between them");
        assert_eq!(pick(&tree((1, 1, 0), "e")), None, "that is one key");
        assert_eq!(pick(&tree((1, 0, 1), "e")), None, "the table may be there because of an entry");
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
                let due = |run: &Run| {
                    let level = run.place.level;
                    run.tables().iter().any(|table| is_due(&tree.version, level, table, few))
                };
                let runs = tree.version.runs();
                prop_assert!(!runs.iter().any(|run| run.place.level < policy.deepest && due(run)));
            }
        }
    }
}
