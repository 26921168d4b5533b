//! Tiered: every level has runs as they came. When there is one more than it may have, all of them become one run of the
//! next level.

use std::sync::Arc;

use super::{Choice, Into, Policy, Shape, all_into, debt, into_newest, lie_free};
use crate::lsm::version::{LEVELS, Run, TableFile, Version};

/// A run is not placed before runs that are so many times as large.
const ALIKE: u64 = 4;

#[derive(Debug)]
pub(super) struct Tiered {
    /// The most runs of a level.
    pub(super) runs: u32,
}

impl Policy for Tiered {
    fn pick(&self, version: &Version, shape: &Shape) -> Option<Choice> {
        let full = version.levels().filter(|(_, runs)| runs.len() > self.runs as usize);
        // Of those that are as full the first one.
        let (level, runs) = full.max_by_key(|(level, runs)| (runs.len(), LEVELS - level))?;
        Some(into_newest(version, runs, (level + 1).min(LEVELS - 1), shape))
    }

    fn everything(&self, version: &Version) -> Option<Choice> {
        let deepest = version.runs().last()?.place.level;
        all_into(version, deepest.max(1), Into::Newest)
    }

    fn excess(&self, version: &Version, _shape: &Shape) -> u64 {
        (version.level(0).len() as u64).saturating_sub(u64::from(self.runs))
    }

    fn debt(&self, version: &Version, _shape: &Shape) -> u64 {
        let tier = |level| (version.level(level).len(), version.level_bytes(level));
        debt::of_tiers(self.runs, (0..LEVELS - 1).map(tier))
    }

    fn place(&self, version: &Version, tables: &[Arc<TableFile>], _shape: &Shape) -> (usize, Into) {
        (tier_for(version, tables, LEVELS), Into::Newest)
    }
}

/// The deepest of the first `levels` levels where a run of `tables` may go, and has its like.
pub(super) fn tier_for(version: &Version, tables: &[Arc<TableFile>], levels: usize) -> usize {
    let bytes: u64 = tables.iter().map(|table| table.meta.len).sum();
    let mut found = 0;
    for (level, runs) in version.levels().take_while(|(level, _)| *level < levels) {
        let mean = runs.iter().map(Run::bytes).sum::<u64>() / runs.len() as u64;
        if mean <= bytes.saturating_mul(ALIKE) {
            found = level;
        }
        if !lie_free(tables, runs) {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Work;
    use super::super::simulation::{Row, SHAPE, Tree, flushes, ids, version};
    use super::*;

    #[test]
    fn the_runs_of_a_full_level_become_one_of_the_next() {
        let policy = Tiered { runs: 2 };
        let mut rows: Vec<Row> = vec![
            ((0, 9), 9, (b"a", b"d"), 100),
            ((0, 8), 8, (b"c", b"f"), 100),
            ((1, 7), 7, (b"a", b"z"), 300),
            ((1, 6), 6, (b"a", b"z"), 300),
        ];
        assert!(policy.pick(&version(&rows), &SHAPE).is_none());
        rows.push(((0, 5), 5, (b"x", b"y"), 100));
        let choice = policy.pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((ids(&choice), choice.level, choice.into), (vec![9, 8, 5], 1, Into::Newest));
        assert_eq!(choice.work, Work::Merge);
        // The fullest level comes first.
        rows.push(((1, 4), 4, (b"a", b"z"), 300));
        rows.push(((1, 3), 3, (b"a", b"z"), 300));
        let choice = policy.pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((ids(&choice), choice.level), (vec![7, 6, 4, 3], 2));
        assert_eq!(ids(&policy.everything(&version(&rows)).unwrap()).len(), rows.len());
    }

    #[test]
    fn runs_that_do_not_overlap_move_unless_they_are_small() {
        let policy = Tiered { runs: 1 };
        let rows =
            |len| -> [Row; 2] { [((0, 9), 9, (b"k", b"m"), len), ((0, 8), 8, (b"a", b"d"), len)] };
        assert_eq!(policy.pick(&version(&rows(100)), &SHAPE).unwrap().work, Work::Move);
        assert_eq!(policy.pick(&version(&rows(10)), &SHAPE).unwrap().work, Work::Merge);
    }

    #[test]
    fn what_is_loaded_goes_to_its_like_if_nothing_newer_is_met() {
        let policy = Tiered { runs: 4 };
        let rows: [Row; 3] = [
            ((0, 9), 9, (b"a", b"d"), 100),
            ((1, 8), 8, (b"f", b"h"), 400),
            ((3, 7), 7, (b"a", b"z"), 9000),
        ];
        let version = version(&rows);
        let place = |keys: (&[u8], &[u8]), len| {
            let home = crate::lsm::version::sample::home();
            let table = crate::lsm::version::sample::table(&home, 20, keys, len, 20);
            let (level, into) = policy.place(&version, &[table], &SHAPE);
            assert_eq!(into, Into::Newest);
            level
        };
        assert_eq!(place((b"p", b"q"), 5000), 3);
        assert_eq!(place((b"p", b"q"), 200), 1);
        assert_eq!(place((b"p", b"q"), 10), 0);
        assert_eq!(place((b"g", b"q"), 5000), 1);
        assert_eq!(place((b"c", b"q"), 5000), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn merges_come_to_an_end_and_lose_nothing(
            flushes in flushes(),
            runs in 2..6_u32,
            table_bytes in 10..500_u64,
        ) {
            let policy = Tiered { runs };
            let shape = Shape { table_bytes, ..SHAPE };
            let mut tree = Tree::new();
            for flush in &flushes {
                tree.take(flush, &policy, &shape);
            }
            tree.settle(&policy, &shape);
            for (level, found) in tree.version.levels() {
                prop_assert!(found.len() <= runs as usize, "{} runs on level {level}", found.len());
            }
            // A merge takes an entry one level down.
            let deepest = tree.version.runs().last().map_or(0, |run| run.place.level as u64);
            prop_assert!(tree.merged <= tree.flushed * deepest, "{} of {}", tree.merged, tree.flushed);
            tree.compact(&policy, &shape);
            prop_assert!(tree.version.runs().len() <= 1);
        }

        #[test]
        fn ascending_keys_are_written_once(len in 3..9_usize, count in 0..60_usize, runs in 2..6_u32) {
            let mut tree = Tree::new();
            tree.fill_ascending(len, count, &Tiered { runs }, &SHAPE);
            prop_assert_eq!(tree.merged, 0);
        }
    }
}
