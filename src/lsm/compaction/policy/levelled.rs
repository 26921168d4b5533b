//! Levelled compaction with a dynamic base level (Dong et al., *Optimizing Space Amplification in RocksDB*, CIDR 2017).
//!
//! The deepest level holds nearly all data; each level above may hold a tenth of the one below it, or what the size ratio
//! says. Levels that would be allowed less than the base size are left empty, and what leaves level 0 goes straight to
//! the first level that is not, the *base level*. So a tree has no more levels than its size needs.
//!
//! Level 0 is compacted column by column ([`columns`]). Few runs cost as much to merge as many if what they are merged with is
//! larger than they are: then more of them are waited for, so that gets pay a little for what puts would pay much for.
//!
//! When no level is too full, tables that are mostly [tombstones] go down.

use std::sync::Arc;

use super::{
    Choice, Excess, Into, MOST_RUNS, Policy, Shape, all_into, columns, debt, free, into_merged,
    lie_free, merged, sink, tombstones,
};
use crate::lsm::version::{LEVELS, Run, TableFile, Version};

/// So many runs in level 0 are compacted, if they are as large as what they are merged with;
const TRIGGER: usize = 4;
/// and so many, however small they are.
const LATEST: usize = 8;
/// The deepest level is as many times as large as the first one, if not more.
const SPAN: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Levelled {
    /// How much larger each level is than the one above it.
    ratio: u64,
    pub(super) deepest: usize,
    /// A table with fewer tombstones is not due for them.
    pub(super) few: u64,
}

impl Levelled {
    pub(super) fn new(size_ratio: u32) -> Self {
        let ratio = u64::from(size_ratio);
        let spans = |levels: &usize| ratio.saturating_pow(*levels as u32) >= SPAN;
        // With ratio 10, and with larger ones, it is level 6.
        let deepest = (6..LEVELS - 1).find(spans).unwrap_or(LEVELS - 1);
        Self { ratio, deepest, few: tombstones::FEW }
    }

    fn sizes(&self, version: &Version) -> Vec<u64> {
        let mut sizes = vec![0; self.deepest + 1];
        let levels = version.levels().take_while(|(level, _)| *level <= self.deepest);
        levels.for_each(|(level, _)| sizes[level] = version.level_bytes(level));
        sizes
    }

    /// The level that level 0 is compacted into.
    fn base_level(&self, sizes: &[u64], base_bytes: u64) -> usize {
        let largest = sizes[1..].iter().copied().max().unwrap_or(0);
        let occupied = (1..=self.deepest).find(|&level| sizes[level] > 0).unwrap_or(self.deepest);
        let mut base = self.deepest;
        let mut room = largest;
        while base > 1 && room > base_bytes {
            room /= self.ratio;
            base -= 1;
        }
        base.min(occupied)
    }

    /// How pressing level 0 is, from 1 on it is due, and the column that is to be compacted; all of it if none is deep, or if what
    /// lies beside the columns may go down as it is.
    fn level_0(&self, version: &Version, base: usize, shape: &Shape) -> (f64, Option<Vec<Run>>) {
        let below = merged(version, base);
        let is_large = |column: &[Run]| {
            let (smallest, largest) = columns::range(column);
            let tables = below.map_or(&[][..], |run| run.overlapping(&smallest, &largest));
            let bytes: u64 = column.iter().map(Run::bytes).sum();
            bytes >= tables.iter().map(|table| table.meta.len).sum()
        };
        let score = |runs: usize, is_large: bool| {
            runs as f64 / if is_large { TRIGGER } else { LATEST } as f64
        };
        let deep = columns::columns(version).into_iter().filter(|column| column.len() >= TRIGGER);
        let scored = deep.map(|column| (score(column.len(), is_large(&column)), column));
        let most = scored.max_by(|a, b| a.0.total_cmp(&b.0));
        let (runs, all) = (version.level(0).len(), version.level(0));
        match most {
            None => (score(runs, true), None),
            Some((due, column)) if due >= 1.0 || runs < LATEST => (due, Some(column)),
            Some(_) if !free(all, version.level(base), shape).is_empty() => {
                (score(runs, false), None)
            }
            Some((_, column)) => (score(runs, false), Some(column)),
        }
    }

    /// How many bytes `level` may hold.
    fn target(&self, sizes: &[u64], base: usize, level: usize, base_bytes: u64) -> u64 {
        let largest = sizes[1..].iter().copied().max().unwrap_or(0);
        let share = largest / self.ratio.saturating_pow((self.deepest - level) as u32);
        if level == base { base_bytes } else { share.max(base_bytes) }
    }
}

impl Policy for Levelled {
    fn pick(&self, version: &Version, shape: &Shape) -> Option<Choice> {
        let sizes = self.sizes(version);
        let base = self.base_level(&sizes, shape.base_bytes);
        let target = |level| self.target(&sizes, base, level, shape.base_bytes);
        let fullness = |level: usize| sizes[level] as f64 / target(level) as f64;
        let (pressing, column) = self.level_0(version, base, shape);
        let levels = (base..self.deepest).map(|level| (fullness(level), level));
        let due = std::iter::once((pressing, 0)).chain(levels).filter(|(score, _)| *score >= 1.0);
        // What is too full is dear to merge into, and waits for less.
        let next = |level: usize| if level == 0 { base } else { level + 1 };
        let urgency = |(score, level): (f64, usize)| match next(level) < self.deepest {
            true => score / fullness(next(level)).max(1.0),
            false => score,
        };
        let by_urgency = |a: &(f64, usize), b: &(f64, usize)| urgency(*a).total_cmp(&urgency(*b));
        // Of equal ones the first.
        match due.rev().max_by(by_urgency) {
            None => tombstones::due(version, (base, self.deepest), self.few, shape),
            Some((_, 0)) => {
                let runs = column.as_deref().unwrap_or(version.level(0));
                Some(into_merged(version, runs, MOST_RUNS, base, shape))
            }
            Some((_, level)) => {
                let bytes = sizes[level].saturating_sub(target(level)).max(1);
                sink(version, level, Excess { tables: usize::MAX, bytes }, shape)
            }
        }
    }

    fn for_readers(&self, version: &Version, shape: &Shape) -> Option<Choice> {
        let runs = version.level(0);
        let base = self.base_level(&self.sizes(version), shape.base_bytes);
        (!runs.is_empty()).then(|| into_merged(version, runs, MOST_RUNS, base, shape))
    }

    fn everything(&self, version: &Version) -> Option<Choice> {
        all_into(version, self.deepest, Into::Merged)
    }

    fn excess(&self, version: &Version, _shape: &Shape) -> u64 {
        let depth = columns::deepest(version).map_or(0, |column| column.len());
        depth.saturating_sub(LATEST) as u64
    }

    fn bounds(&self, version: &Version, shape: &Shape) -> Vec<Vec<u8>> {
        columns::bounds(version, self.base_level(&self.sizes(version), shape.base_bytes))
    }

    fn debt(&self, version: &Version, shape: &Shape) -> u64 {
        let sizes = self.sizes(version);
        let base = self.base_level(&sizes, shape.base_bytes);
        let is_due = self.level_0(version, base, shape).0 >= 1.0;
        let arriving = if is_due { sizes[0] } else { 0 };
        let room = |level| match level == self.deepest {
            true => u64::MAX,
            false => self.target(&sizes, base, level, shape.base_bytes),
        };
        debt::of_levels(arriving, (base..=self.deepest).map(|level| (sizes[level], room(level))))
    }

    fn place(&self, version: &Version, tables: &[Arc<TableFile>], shape: &Shape) -> (usize, Into) {
        let is_level_free = |level: &usize| lie_free(tables, version.level(*level));
        let level = (0..=self.deepest).take_while(is_level_free).last().unwrap_or(0);
        match level > 0 && !shape.are_small(tables) {
            true => (level, Into::Merged),
            false => (0, Into::Newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::simulation::{Row, SHAPE, Tree, flushes, ids, version};
    use super::super::{Work, pressure};
    use super::*;

    fn ten() -> Levelled {
        Levelled::new(10)
    }

    fn pick(version: &Version, shape: &Shape) -> Option<Choice> {
        ten().pick(version, shape)
    }

    fn outcome(choice: &Choice) -> (usize, Work) {
        assert_eq!(choice.into, Into::Merged);
        (choice.level, choice.work)
    }

    /// The base level if the deepest level has so many bytes.
    fn base_over(deepest: u64) -> usize {
        ten().base_level(&[0, 0, 0, 0, 0, 0, deepest], 1000)
    }

    #[test]
    fn the_base_level_rises_with_the_size() {
        let sizes = [0, 1000, 1001, 10_000, 10_010, 100_000, 100_100, 1_001_000, 10_010_000];
        assert_eq!(sizes.map(base_over), [6, 6, 5, 5, 4, 4, 3, 2, 1]);
        assert_eq!(base_over(u64::MAX), 1, "level 0 is not a base");
    }

    #[test]
    fn the_base_level_lies_above_all_that_is_there() {
        assert_eq!(ten().base_level(&[9, 0, 0, 5, 0, 0, 0], 1000), 3);
        assert_eq!(ten().base_level(&[9, 0, 0, 0, 0, 5, 900], 1000), 5);
        assert_eq!(ten().base_level(&[9, 0, 0, 0, 0, 5, 100_000], 1000), 4);
    }

    #[test]
    fn nothing_is_due_below_the_triggers() {
        assert!(pick(&Version::default(), &SHAPE).is_none());
        assert!(ten().everything(&Version::default()).is_none());
        let rows: [Row; 5] = [
            ((0, 9), 9, (b"a", b"z"), 5000),
            ((0, 8), 8, (b"a", b"z"), 5000),
            ((0, 7), 7, (b"a", b"z"), 5000),
            ((5, 0), 6, (b"a", b"z"), 999),
            ((6, 0), 5, (b"a", b"z"), 9000),
        ];
        assert!(pick(&version(&rows), &SHAPE).is_none());
        assert_eq!(ids(&ten().everything(&version(&rows)).unwrap()), [9, 8, 7, 6, 5]);
        // The deepest level has no bound.
        assert!(pick(&version(&[((6, 0), 1, (b"a", b"z"), u64::MAX)]), &SHAPE).is_none());
    }

    #[test]
    fn for_readers_level_0_goes_down_before_it_is_due() {
        let for_readers = |rows: &[Row]| ten().for_readers(&version(rows), &SHAPE);
        let rows: [Row; 5] = [
            ((0, 9), 9, (b"c", b"f"), 10),
            ((0, 8), 8, (b"d", b"e"), 10),
            ((5, 0), 3, (b"a", b"d"), 100),
            ((5, 0), 2, (b"g", b"h"), 100),
            ((6, 0), 1, (b"a", b"z"), 9000),
        ];
        assert!(pick(&version(&rows), &SHAPE).is_none());
        let choice = for_readers(&rows).unwrap();
        assert_eq!(ids(&choice), [9, 8, 3]);
        assert_eq!(outcome(&choice), (5, Work::Merge));
        assert!(choice.is_whole(&version(&rows)));
        assert!(for_readers(&rows[2..]).is_none() && for_readers(&[]).is_none());
    }

    #[test]
    fn level_0_is_due_at_its_trigger_with_what_it_overlaps() {
        let choice = pick(
            &version(&[
                ((0, 9), 9, (b"c", b"d"), 10),
                ((0, 8), 8, (b"g", b"h"), 10),
                ((0, 7), 7, (b"d", b"e"), 10),
                ((0, 6), 6, (b"c", b"f"), 10),
                ((6, 0), 1, (b"a", b"b"), 100),
                ((6, 0), 2, (b"b1", b"c"), 100),
                ((6, 0), 3, (b"e", b"e1"), 100),
                ((6, 0), 4, (b"h", b"i"), 100),
                ((6, 0), 5, (b"i1", b"j"), 100),
            ]),
            &SHAPE,
        )
        .unwrap();
        assert_eq!(ids(&choice), [9, 8, 7, 6, 2, 3, 4]);
        assert_eq!(outcome(&choice), (6, Work::Merge));
    }

    #[test]
    fn few_small_runs_of_level_0_wait_for_more() {
        let picked = |runs: u64, len: u64| {
            let mut rows: Vec<Row> =
                (0..runs).map(|id| ((0, 10 + id), 10 + id, (&b"c"[..], &b"f"[..]), len)).collect();
            rows.push(((6, 0), 1, (b"a", b"d"), 1000));
            rows.push(((6, 0), 2, (b"g", b"h"), 5000));
            pick(&version(&rows), &Shape { base_bytes: 10_000, ..SHAPE }).map(|choice| ids(&choice))
        };
        // What they do not overlap does not count.
        assert_eq!(picked(4, 249), None);
        assert_eq!(picked(4, 250), Some(vec![13, 12, 11, 10, 1]));
        assert_eq!(picked(LATEST as u64 - 1, 25), None);
        assert_eq!(picked(LATEST as u64, 25).map(|picked| picked.len()), Some(LATEST + 1));
    }

    #[test]
    fn runs_beside_a_column_that_waits_go_down() {
        let mut rows: Vec<Row> =
            (0..5).map(|id| ((0, 10 + id), 10 + id, (&b"c"[..], &b"f"[..]), 25)).collect();
        rows.push(((6, 0), 1, (b"a", b"d"), 1000));
        let others = [b"m", b"n", b"o"];
        assert_eq!(rows.len() - 1 + others.len(), LATEST);
        for (id, key) in (20..).zip(others) {
            assert!(pick(&version(&rows), &SHAPE).is_none(), "{id}");
            rows.push(((0, id), id, (key, key), 1000));
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.0.1));
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((choice.inputs.len(), choice.work), (others.len(), Work::Move));
    }

    #[test]
    fn columns_that_wait_go_one_by_one() {
        let shape = Shape { base_bytes: 10_000, ..SHAPE };
        let mut rows: Vec<Row> =
            vec![((6, 0), 1, (b"a", b"m"), 1000), ((6, 0), 2, (b"n", b"z"), 1000)];
        for id in 0..4 {
            rows.push(((0, 10 + id), 10 + id, (b"b", b"d"), 25));
            rows.push(((0, 20 + id), 20 + id, (b"w", b"y"), 25));
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.0.1));
        let choice = pick(&version(&rows), &shape).unwrap();
        assert_eq!((choice.inputs.len(), choice.work), (5, Work::Merge));
        // One that is due does not wait for what is beside it.
        rows.iter_mut().filter(|row| row.0.1 >= 20).for_each(|row| row.3 = 300);
        rows.insert(0, ((0, 30), 30, (b"b", b"d"), 25));
        let choice = pick(&version(&rows), &shape).unwrap();
        assert_eq!(ids(&choice), [23, 22, 21, 20, 2]);
    }

    #[test]
    fn of_a_full_level_0_the_oldest_tables_are_taken() {
        let rows: Vec<Row> = (1..=30).map(|id| ((0, id), id, (&b"a"[..], &b"z"[..]), 10)).collect();
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!(ids(&choice), (1..=MOST_RUNS as u64).rev().collect::<Vec<_>>());
    }

    #[test]
    fn a_table_of_level_0_that_overlaps_nothing_is_moved() {
        let mut rows: Vec<Row> = vec![
            ((0, 9), 9, (b"a", b"d"), 100),
            ((0, 8), 8, (b"a", b"d"), 100),
            ((0, 7), 7, (b"a", b"d"), 100),
            ((0, 6), 6, (b"e", b"f"), 100),
            ((6, 0), 1, (b"a", b"d"), 100),
            ((6, 0), 2, (b"g", b"h"), 100),
        ];
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((ids(&choice), outcome(&choice)), (vec![6], (6, Work::Move)));
        // Not if a newer table may have the same keys: they are merged,
        rows[0] = ((0, 9), 9, (b"a", b"e"), 100);
        assert_eq!(pick(&version(&rows), &SHAPE).unwrap().work, Work::Merge);
        // and not onto a table that has it already.
        rows[0] = ((0, 9), 9, (b"a", b"d"), 100);
        rows[5] = ((6, 0), 2, (b"f", b"h"), 100);
        assert_eq!(pick(&version(&rows), &SHAPE).unwrap().work, Work::Merge);
    }

    #[test]
    fn of_a_full_level_the_table_that_overlaps_least_goes_down() {
        let mut rows: Vec<Row> = vec![
            ((5, 0), 4, (b"a", b"b"), 600),
            ((5, 0), 5, (b"c", b"d"), 600),
            ((5, 0), 6, (b"e", b"f"), 100),
            ((6, 0), 1, (b"a", b"b"), 3000),
            ((6, 0), 2, (b"c", b"d"), 1200),
            ((6, 0), 3, (b"e", b"f"), 1000),
        ];
        // Table 6 overlaps the fewest bytes, but ten times its own size.
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((ids(&choice), outcome(&choice)), (vec![5, 2], (6, Work::Merge)));
        rows[4].2 = (b"d1", b"d2");
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((ids(&choice), outcome(&choice)), (vec![5], (6, Work::Move)));
    }

    #[test]
    fn neighbours_that_overlap_less_together_go_down_together() {
        let mut rows: Vec<Row> = vec![
            ((5, 0), 4, (b"a", b"b"), 500),
            ((5, 0), 5, (b"e", b"f"), 500),
            ((5, 0), 6, (b"g", b"h"), 500),
            ((6, 0), 1, (b"b", b"c"), 200),
            ((6, 0), 2, (b"c1", b"d"), 100),
            ((6, 0), 3, (b"d1", b"e"), 300),
            ((6, 0), 9, (b"h", b"z"), 5000),
        ];
        let picked = |rows: &[Row], table_bytes| {
            ids(&pick(&version(rows), &Shape { table_bytes, ..SHAPE }).unwrap())
        };
        // Alone 4 overlaps fewer bytes.
        assert_eq!(picked(&rows, 100), [4, 1]);
        // Now both overlap one table.
        rows.splice(3..6, [((6, 0), 1, (&b"b"[..], &b"e"[..]), 600)]);
        assert_eq!(picked(&rows, 100), [4, 5, 1]);
        assert_eq!(picked(&rows, 99), [4, 1], "it is more than is merged into 16 tables");
    }

    #[test]
    fn a_level_that_is_too_full_gives_way_before_it_is_merged_into() {
        let picked = |runs: u64, base: u64, below: u64| {
            let mut rows: Vec<Row> =
                (0..runs).map(|id| ((0, 10 + id), 10 + id, (&b"a"[..], &b"z"[..]), 10)).collect();
            rows.reverse();
            rows.extend([
                ((4, 0), 3, (&b"a"[..], &b"z"[..]), base),
                ((5, 0), 2, (&b"a"[..], &b"z"[..]), below),
                ((6, 0), 1, (&b"a"[..], &b"z"[..]), 100_000),
            ]);
            pick(&version(&rows), &SHAPE).unwrap().level
        };
        // Level 0 is due with 8 runs, level 4 with 1000 bytes, level 5 with 10,000.
        assert_eq!(picked(16, 1300, 10_000), 4);
        assert_eq!(
            picked(16, 1500, 10_000),
            5,
            "level 0 has twice what it may, but waits for level 4"
        );
        assert_eq!(picked(16, 1500, 13_000), 4, "which has to wait itself");
        assert_eq!(picked(16, 1500, 20_000), 6);
        assert_eq!(picked(7, 900, 9_000 + 1_001), 6);
    }

    #[test]
    fn the_fullest_level_comes_first() {
        let mut rows: Vec<Row> =
            (10..15).map(|id| ((0, id), id, (&b"a"[..], &b"z"[..]), 300)).collect();
        rows.extend([
            ((4, 0), 3, (&b"a"[..], &b"z"[..]), 1100),
            ((5, 0), 2, (&b"a"[..], &b"z"[..]), 30_000),
            ((6, 0), 1, (&b"a"[..], &b"z"[..]), 100_000),
        ]);
        // Level 0 has 1.25 times its measure, level 4 1.1 times, level 5 three times.
        assert_eq!(ids(&pick(&version(&rows), &SHAPE).unwrap()), [2, 1]);
        rows[6].3 = 9000;
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((ids(&choice), choice.level), (vec![14, 13, 12, 11, 10, 3], 4));
    }

    #[test]
    fn writers_wait_when_level_0_has_far_too_many_runs() {
        let at = |runs: u64| {
            let rows: Vec<Row> =
                (1..=runs).map(|id| ((0, id), id, (&b"a"[..], &b"z"[..]), 10)).collect();
            pressure(ten().excess(&version(&rows), &SHAPE))
        };
        assert_eq!([at(0), at(16), at(30), at(43), at(44)], [0, 0, 500, 964, 1000]);
    }

    #[test]
    fn there_are_as_many_levels_as_the_ratio_calls_for() {
        let deepest = |ratio| Levelled::new(ratio).deepest;
        assert_eq!([10, 11, 100].map(deepest), [6; 3]);
        assert_eq!([2, 3, 4, 9].map(deepest), [15, 13, 10, 7]);
    }

    #[test]
    fn small_tables_are_merged_with_small_neighbours() {
        let rows = |len| -> [Row; 8] {
            [
                ((0, 9), 9, (b"m", b"n"), len),
                ((0, 8), 8, (b"k", b"l"), len),
                ((0, 7), 7, (b"i", b"j"), len),
                ((0, 6), 6, (b"g", b"h"), len),
                ((6, 0), 1, (b"a", b"b"), 10),
                ((6, 0), 2, (b"e", b"f"), 10),
                ((6, 0), 3, (b"o", b"p"), 10),
                ((6, 0), 4, (b"q", b"r"), 10),
            ]
        };
        let choice = pick(&version(&rows(10)), &SHAPE).unwrap();
        assert_eq!((ids(&choice), outcome(&choice)), (vec![9, 8, 7, 6, 2, 3], (6, Work::Merge)));
        let choice = pick(&version(&rows(30)), &SHAPE).unwrap();
        assert_eq!((ids(&choice), outcome(&choice)), (vec![9, 8, 7, 6], (6, Work::Move)));
    }

    #[test]
    fn as_many_tables_move_as_are_too_much() {
        let rows: [Row; 5] = [
            ((5, 0), 4, (b"a", b"b"), 600),
            ((5, 0), 5, (b"c", b"d"), 600),
            ((5, 0), 6, (b"e", b"f"), 600),
            ((5, 0), 7, (b"g", b"h"), 600),
            ((6, 0), 1, (b"c", b"d"), 9000),
        ];
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((ids(&choice), outcome(&choice)), (vec![4, 6, 7], (6, Work::Move)));
    }

    #[test]
    fn what_is_loaded_goes_as_deep_as_it_may() {
        let rows: [Row; 2] = [((0, 9), 9, (b"a", b"d"), 100), ((5, 0), 8, (b"f", b"h"), 400)];
        let version = version(&rows);
        let place = |keys: (&[u8], &[u8]), len| {
            let home = crate::lsm::version::sample::home();
            let table = crate::lsm::version::sample::table(&home, 20, keys, len, 20);
            ten().place(&version, &[table], &SHAPE)
        };
        assert_eq!(place((b"p", b"q"), 5000), (6, Into::Merged));
        assert_eq!(place((b"g", b"q"), 5000), (4, Into::Merged));
        assert_eq!(place((b"c", b"q"), 5000), (0, Into::Newest));
        assert_eq!(place((b"p", b"q"), 10), (0, Into::Newest), "it is small");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn compactions_come_to_an_end_and_lose_nothing(
            flushes in flushes(),
            ratio in prop_oneof![Just(10), 2..20_u32],
            base_bytes in [40..3000_u64, 40..3000_u64],
            table_bytes in 10..500_u64,
        ) {
            let policy = Levelled::new(ratio);
            // The shape may change, as it does when a database is opened with another budget.
            let shapes = base_bytes.map(|base_bytes| Shape { flush_bytes: base_bytes / 4, base_bytes, table_bytes });
            let mut tree = Tree::new();
            for (number, flush) in flushes.iter().enumerate() {
                tree.take(flush, &policy, &shapes[usize::from(2 * number >= flushes.len())]);
            }
            tree.settle(&policy, &shapes[1]);
            prop_assert!(tree.version.level(0).len() < LATEST);
            for (level, runs) in tree.version.levels() {
                prop_assert!(level <= policy.deepest && (level == 0 || runs.len() == 1));
            }
            tree.compact(&policy, &shapes[1]);
            prop_assert!(tree.version.runs().iter().all(|run| run.place.level == policy.deepest));
        }

        #[test]
        fn ascending_keys_are_written_once(len in 3..9_usize, count in 0..60_usize, ratio in 2..20_u32) {
            let mut tree = Tree::new();
            tree.fill_ascending(len, count, &Levelled::new(ratio), &SHAPE);
            prop_assert_eq!(tree.merged, 0);
        }
    }
}
