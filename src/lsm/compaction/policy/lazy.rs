//! Lazy levelled: levels of runs as they came, and one last level that is kept merged (Dayan and Idreos, *Dostoevsky*,
//! SIGMOD 2018). Nearly all data lie there, so space is that of a levelled tree; the levels above merge rarely.
//!
//! The last level is always the deepest one. There are so many levels above it as make what arrives there no smaller than
//! the share of it that is one of so many runs: while it grows they become more.

use std::sync::Arc;

use super::tiered::tier_for;
use super::{
    Choice, Into, Policy, Shape, all_into, debt, into_merged, into_newest, lie_free, unmerged,
};
use crate::lsm::version::{LEVELS, TableFile, Version};

const LAST: usize = LEVELS - 1;

#[derive(Debug)]
pub(super) struct LazyLevelled {
    /// The most runs of each level but the last.
    pub(super) runs: u32,
}

impl LazyLevelled {
    /// How many levels lie above the last one: as many as it calls for, and all that have tables.
    fn tiers(&self, version: &Version, shape: &Shape) -> usize {
        let last = version.level_bytes(LAST);
        let runs = u64::from(self.runs);
        let mut arriving = shape.flush_bytes.saturating_mul(runs);
        let mut tiers = 1;
        while arriving.saturating_mul(runs) < last && tiers < LAST {
            arriving = arriving.saturating_mul(runs);
            tiers += 1;
        }
        let upper = version.levels().map(|(level, _)| level).filter(|&level| level < LAST);
        upper.last().map_or(tiers, |deepest| tiers.max(deepest + 1))
    }
}

impl Policy for LazyLevelled {
    fn pick(&self, version: &Version, shape: &Shape) -> Option<Choice> {
        let waiting = unmerged(version, LAST);
        if !waiting.is_empty() {
            return Some(into_merged(version, waiting, usize::MAX, LAST, shape));
        }
        let full = version
            .levels()
            .filter(|&(level, runs)| level < LAST && runs.len() > self.runs as usize);
        let (level, runs) = full.max_by_key(|(level, runs)| (runs.len(), LEVELS - level))?;
        Some(match level + 1 < self.tiers(version, shape) {
            true => into_newest(version, runs, level + 1, shape),
            false => into_merged(version, runs, usize::MAX, LAST, shape),
        })
    }

    fn everything(&self, version: &Version) -> Option<Choice> {
        all_into(version, LAST, Into::Merged)
    }

    fn excess(&self, version: &Version, _shape: &Shape) -> u64 {
        (version.level(0).len() as u64).saturating_sub(u64::from(self.runs))
    }

    /// What comes to the last level takes all of that with it, which counts when it is due.
    fn debt(&self, version: &Version, _shape: &Shape) -> u64 {
        let tier = |level| (version.level(level).len(), version.level_bytes(level));
        debt::of_tiers(self.runs, (0..LAST).map(tier))
    }

    fn place(&self, version: &Version, tables: &[Arc<TableFile>], shape: &Shape) -> (usize, Into) {
        if !shape.are_small(tables) && lie_free(tables, version.runs()) {
            return (LAST, Into::Merged);
        }
        (tier_for(version, tables, LAST), Into::Newest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Work;
    use super::super::simulation::{Row, SHAPE, Tree, flushes, ids, version};
    use super::*;

    const POLICY: LazyLevelled = LazyLevelled { runs: 2 };

    #[test]
    fn the_levels_above_become_more_while_the_last_one_grows() {
        let tiers = |bytes| POLICY.tiers(&version(&[((LAST, 0), 1, (b"a", b"z"), bytes)]), &SHAPE);
        // Two flushes arrive from one level, and are half of what is there.
        let sizes = [0, 1000, 1001, 2000, 2001, 4000, 4001, u64::MAX];
        assert_eq!(sizes.map(tiers), [1, 1, 2, 2, 3, 3, 4, LAST]);
        let rows: [Row; 2] = [((4, 2), 2, (b"a", b"z"), 10), ((LAST, 0), 1, (b"a", b"z"), 10)];
        assert_eq!(POLICY.tiers(&version(&rows), &SHAPE), 5, "nothing is passed over");
    }

    #[test]
    fn the_deepest_of_the_upper_levels_is_merged_into_the_last() {
        let rows = |last| -> [Row; 4] {
            [
                ((0, 9), 9, (b"c", b"d"), 100),
                ((0, 8), 8, (b"a", b"c"), 100),
                ((0, 7), 7, (b"d", b"e"), 100),
                ((LAST, 0), 1, (b"a", b"z"), last),
            ]
        };
        let choice = POLICY.pick(&version(&rows(1000)), &SHAPE).unwrap();
        assert_eq!((ids(&choice), choice.level), (vec![9, 8, 7, 1], LAST));
        assert_eq!((choice.into, choice.work), (Into::Merged, Work::Merge));
        let choice = POLICY.pick(&version(&rows(1001)), &SHAPE).unwrap();
        assert_eq!((ids(&choice), choice.level), (vec![9, 8, 7], 1));
        assert_eq!((choice.into, choice.work), (Into::Newest, Work::Merge));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn merges_come_to_an_end_and_lose_nothing(
            flushes in flushes(),
            runs in 2..6_u32,
            base_bytes in [40..3000_u64, 40..3000_u64],
            table_bytes in 10..500_u64,
        ) {
            let policy = LazyLevelled { runs };
            let shapes = base_bytes.map(|base_bytes| Shape { flush_bytes: base_bytes / 4, base_bytes, table_bytes });
            let mut tree = Tree::new();
            for (number, flush) in flushes.iter().enumerate() {
                tree.take(flush, &policy, &shapes[usize::from(2 * number >= flushes.len())]);
            }
            tree.settle(&policy, &shapes[1]);
            for (level, found) in tree.version.levels() {
                let most = if level == LAST { 1 } else { runs as usize };
                prop_assert!(found.len() <= most, "{} runs on level {level}", found.len());
            }
            tree.compact(&policy, &shapes[1]);
            prop_assert!(tree.version.runs().len() <= 1);
        }

        #[test]
        fn ascending_keys_are_written_once(len in 3..9_usize, count in 0..60_usize, runs in 2..6_u32) {
            let mut tree = Tree::new();
            tree.fill_ascending(len, count, &LazyLevelled { runs }, &SHAPE);
            prop_assert_eq!(tree.merged, 0);
        }
    }
}
