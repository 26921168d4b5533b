//! Levels as they are listed, each tiered or levelled and with a limit of its own, and behind them one that is levelled
//! and has none, as in LSM-KV.

use std::sync::Arc;

use super::tiered::tier_for;
use super::{
    Choice, Excess, Into, Policy, Shape, all_into, into_merged, into_newest, lie_free, merged,
    sink, unmerged,
};
use crate::lsm::version::{TableFile, Version};
use crate::options::{Level, LevelLimit};

#[derive(Debug)]
pub(super) struct Listed {
    /// All but the last.
    pub(super) levels: Vec<Level>,
}

impl Listed {
    fn last(&self) -> usize {
        self.levels.len()
    }

    fn is_levelled(&self, level: usize) -> bool {
        !matches!(self.levels.get(level), Some(Level::Tiering(_)))
    }

    /// How many times what it may have a level has; nothing is due up to one.
    fn fullness(&self, version: &Version, level: usize) -> f64 {
        let bytes = |most: u64| version.level_bytes(level) as f64 / most as f64;
        let waiting = unmerged(version, level).len() as f64;
        let levelled = match self.levels.get(level) {
            None => 0.0,
            Some(Level::Tiering(LevelLimit::Bytes(most))) => return bytes(*most),
            Some(Level::Tiering(LevelLimit::Count(most))) => {
                return version.level(level).len() as f64 / f64::from(*most);
            }
            Some(Level::Levelling(LevelLimit::Bytes(most))) => bytes(*most),
            Some(Level::Levelling(LevelLimit::Count(most))) => {
                let tables = merged(version, level).map_or(0, |run| run.tables().len());
                tables as f64 / f64::from(*most)
            }
        };
        if waiting > 0.0 { levelled.max(1.0 + waiting) } else { levelled }
    }

    /// What a level has too much is taken to the next.
    fn relieve(&self, version: &Version, level: usize, shape: &Shape) -> Option<Choice> {
        let (runs, next) = (version.level(level), level + 1);
        let Some(Level::Levelling(limit)) = self.levels.get(level) else {
            return Some(match self.is_levelled(next) {
                true => into_merged(version, runs, usize::MAX, next, shape),
                false => into_newest(version, runs, next, shape),
            });
        };
        if !self.is_levelled(next) {
            return Some(into_newest(version, runs, next, shape));
        }
        let tables = merged(version, level).map_or(0, |run| run.tables().len());
        let excess = match *limit {
            LevelLimit::Count(most) => {
                Excess { tables: tables.saturating_sub(most as usize), bytes: u64::MAX }
            }
            LevelLimit::Bytes(most) => {
                let bytes = version.level_bytes(level).saturating_sub(most);
                Excess { tables: usize::MAX, bytes }
            }
        };
        sink(version, level, excess, shape)
    }
}

impl Policy for Listed {
    fn pick(&self, version: &Version, shape: &Shape) -> Option<Choice> {
        let mut urgent = (1.0, None);
        for level in 0..=self.last() {
            let fullness = self.fullness(version, level);
            if fullness > urgent.0 {
                urgent = (fullness, Some(level));
            }
        }
        let level = urgent.1?;
        let waiting = if self.is_levelled(level) { unmerged(version, level) } else { &[] };
        match waiting {
            [] => self.relieve(version, level, shape),
            waiting => Some(into_merged(version, waiting, usize::MAX, level, shape)),
        }
    }

    fn everything(&self, version: &Version) -> Option<Choice> {
        all_into(version, self.last(), Into::Merged)
    }

    fn excess(&self, version: &Version, shape: &Shape) -> u64 {
        let runs = version.level(0).len() as u64;
        match self.levels.first() {
            Some(Level::Tiering(LevelLimit::Count(most))) => runs.saturating_sub(u64::from(*most)),
            Some(Level::Tiering(LevelLimit::Bytes(most))) => {
                version.level_bytes(0).saturating_sub(*most) / shape.flush_bytes
            }
            _ => unmerged(version, 0).len() as u64,
        }
    }

    fn place(&self, version: &Version, tables: &[Arc<TableFile>], shape: &Shape) -> (usize, Into) {
        let is_level_free = |level: &usize| lie_free(tables, version.level(*level));
        let free = (0..=self.last()).take_while(is_level_free);
        let levelled = free.filter(|&level| level > 0 && self.is_levelled(level)).last();
        match levelled.filter(|_| !shape.are_small(tables)) {
            Some(level) => (level, Into::Merged),
            None => {
                let tiers = (0..self.last()).find(|&level| self.is_levelled(level));
                (tier_for(version, tables, tiers.unwrap_or(self.last()).max(1)), Into::Newest)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Work;
    use super::super::simulation::{Row, SHAPE, Tree, flushes, ids, version};
    use super::*;

    fn listed(text: &str) -> Listed {
        Listed { levels: text.split(',').map(|level| level.parse().unwrap()).collect() }
    }

    /// What is chosen: tables, level, whether the run is the merged one, work.
    fn picked(policy: &Listed, rows: &[Row]) -> Option<(Vec<u64>, usize, bool, Work)> {
        let choice = policy.pick(&version(rows), &SHAPE)?;
        Some((ids(&choice), choice.level, choice.into == Into::Merged, choice.work))
    }

    #[test]
    fn a_tiered_level_goes_to_the_next_when_it_has_a_run_too_many() {
        let mut rows: Vec<Row> = vec![
            ((0, 9), 9, (b"a", b"d"), 100),
            ((0, 8), 8, (b"c", b"f"), 100),
            ((1, 0), 5, (b"a", b"b"), 100),
            ((1, 0), 6, (b"e", b"g"), 100),
            ((1, 0), 7, (b"x", b"z"), 100),
        ];
        let policy = listed("tiering:1,levelling:4");
        let tables = vec![9, 8, 5, 6];
        assert_eq!(picked(&policy, &rows), Some((tables, 1, true, Work::Merge)));
        let policy = listed("tiering:1,tiering:4");
        assert_eq!(picked(&policy, &rows), Some((vec![9, 8], 1, false, Work::Merge)));
        assert_eq!(picked(&listed("tiering:2,levelling:4"), &rows), None);
        assert_eq!(picked(&listed("tiering:200B,levelling:4"), &rows), None);
        assert!(
            picked(&Listed { levels: vec![Level::Tiering(LevelLimit::Bytes(199))] }, &rows)
                .is_some()
        );
        // What lies free moves by itself.
        rows[0].2 = (b"p", b"q");
        let policy = listed("tiering:1,levelling:4");
        assert_eq!(picked(&policy, &rows), Some((vec![9], 1, true, Work::Move)));
    }

    #[test]
    fn a_levelled_first_level_is_merged_whenever_something_comes() {
        let policy = listed("levelling:2");
        let mut rows: Vec<Row> = vec![
            ((0, 9), 9, (b"a", b"d"), 100),
            ((0, 0), 7, (b"c", b"f"), 100),
            ((0, 0), 8, (b"k", b"m"), 100),
        ];
        assert_eq!(picked(&policy, &rows), Some((vec![9, 7], 0, true, Work::Merge)));
        rows[0].2 = (b"g", b"h");
        assert_eq!(picked(&policy, &rows), Some((vec![9], 0, true, Work::Move)));
        rows[0].0.1 = 0;
        rows.push(((1, 0), 1, (b"a", b"j"), 100));
        // There are three tables now, and one must go: the one that overlaps nothing.
        assert_eq!(picked(&policy, &rows), Some((vec![8], 1, true, Work::Move)));
        rows[3].2 = (b"a", b"z");
        assert_eq!(picked(&policy, &rows), Some((vec![7, 1], 1, true, Work::Merge)));
    }

    #[test]
    fn a_levelled_level_above_a_tiered_one_becomes_one_of_its_runs() {
        let policy = listed("levelling:1,tiering:2");
        let rows: [Row; 3] = [
            ((0, 0), 7, (b"c", b"f"), 100),
            ((0, 0), 8, (b"k", b"m"), 100),
            ((1, 5), 5, (b"a", b"z"), 100),
        ];
        assert_eq!(picked(&policy, &rows), Some((vec![7, 8], 1, false, Work::Move)));
    }

    #[test]
    fn what_is_loaded_goes_as_deep_as_it_may() {
        let policy = listed("tiering:2,levelling:4,levelling:40");
        let rows: [Row; 3] = [
            ((0, 9), 9, (b"a", b"d"), 100),
            ((2, 0), 8, (b"f", b"h"), 400),
            ((3, 0), 7, (b"k", b"z"), 9000),
        ];
        let version = version(&rows);
        let place = |keys: (&[u8], &[u8])| {
            let home = crate::lsm::version::sample::home();
            let table = crate::lsm::version::sample::table(&home, 20, keys, 5000, 20);
            policy.place(&version, &[table], &SHAPE)
        };
        assert_eq!(place((b"i", b"j")), (3, Into::Merged));
        assert_eq!(place((b"i", b"k")), (2, Into::Merged));
        assert_eq!(place((b"e", b"k")), (1, Into::Merged));
        assert_eq!(place((b"d", b"e")), (0, Into::Newest));
    }

    fn limit() -> impl Strategy<Value = LevelLimit> {
        prop_oneof![
            (1..5_u32).prop_map(LevelLimit::Count),
            (50..2000_u64).prop_map(LevelLimit::Bytes)
        ]
    }

    fn levels() -> impl Strategy<Value = Vec<Level>> {
        let level =
            prop_oneof![limit().prop_map(Level::Tiering), limit().prop_map(Level::Levelling)];
        proptest::collection::vec(level, 1..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn merges_come_to_an_end_and_lose_nothing(
            flushes in flushes(),
            levels in levels(),
            table_bytes in 10..500_u64,
        ) {
            let policy = Listed { levels };
            let shape = Shape { table_bytes, ..SHAPE };
            let mut tree = Tree::new();
            for flush in &flushes {
                tree.take(flush, &policy, &shape);
            }
            tree.settle(&policy, &shape);
            for (level, runs) in tree.version.levels() {
                let (tables, bytes) = (runs[0].tables().len(), tree.version.level_bytes(level));
                let holds = match policy.levels.get(level) {
                    Some(Level::Tiering(LevelLimit::Count(most))) => runs.len() <= *most as usize,
                    Some(Level::Levelling(LevelLimit::Count(most))) => {
                        runs.len() == 1 && tables <= *most as usize
                    }
                    Some(Level::Tiering(LevelLimit::Bytes(most))) => bytes <= *most,
                    Some(Level::Levelling(LevelLimit::Bytes(most))) => {
                        runs.len() == 1 && bytes <= *most
                    }
                    None => runs.len() == 1 && level == policy.last(),
                };
                prop_assert!(holds, "level {level} of {policy:?}: {runs:?}");
            }
            tree.compact(&policy, &shape);
            prop_assert!(tree.version.runs().len() <= 1);
        }

        #[test]
        fn ascending_keys_are_written_once(
            len in 3..9_usize,
            count in 0..60_usize,
            levels in levels(),
        ) {
            let mut tree = Tree::new();
            tree.fill_ascending(len, count, &Listed { levels }, &SHAPE);
            prop_assert_eq!(tree.merged, 0);
        }
    }
}
