//! What to compact next: levelled compaction with a dynamic base level (Dong et al., *Optimizing Space
//! Amplification in RocksDB*, CIDR 2017).
//!
//! The deepest level holds nearly all data; each level above may hold a tenth of the one below it. Levels
//! that would be allowed less than the base size are left empty, and what leaves level 0 goes straight to
//! the first level that is not, the *base level*. So a tree has no more levels than its size needs.
//!
//! Everything here is a pure function of a version.

use std::sync::Arc;

use crate::lsm::version::{LEVELS, TableFile, Version, overlapping};

/// How much larger each level is than the one above it.
const RATIO: u64 = 10;
/// So many tables in level 0 are compacted.
pub(crate) const L0_TRIGGER: usize = 4;
/// From so many tables in level 0 on writers are slowed down,
const L0_SLOW: usize = 12;
/// and at so many they wait.
const L0_STOP: usize = 40;
/// The most tables of level 0 that one compaction takes.
const L0_MOST: usize = 16;

/// The sizes that shape a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The base level may hold this many bytes.
    pub(crate) base_bytes: u64,
    /// A table of level 1 or deeper is ended at about this many bytes.
    pub(crate) table_bytes: u64,
}

/// A compaction that is due.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// What goes in. For any key, all entries of the output level are among it.
    pub(crate) inputs: Vec<Arc<TableFile>>,
    /// Where the result goes.
    pub(crate) output_level: usize,
    /// The inputs overlap nothing: they can change level as they are.
    pub(crate) is_move: bool,
}

/// The most urgent compaction of `version`, if one is due.
pub(crate) fn pick(version: &Version, shape: &Shape) -> Option<Choice> {
    let sizes: Vec<u64> = (0..LEVELS).map(|level| version.level_bytes(level)).collect();
    let base = base_level(&sizes, shape.base_bytes);
    let mut urgent = (version.levels[0].len() as f64 / L0_TRIGGER as f64, 0);
    for level in base..LEVELS - 1 {
        let score = sizes[level] as f64 / target(&sizes, base, level, shape.base_bytes) as f64;
        if score > urgent.0 {
            urgent = (score, level);
        }
    }
    match urgent {
        (score, _) if score < 1.0 => None,
        (_, 0) => Some(from_level_0(version, base)),
        (_, level) => from_level(version, level),
    }
}

/// Everything into the deepest level; `None` if there are no tables.
pub(crate) fn everything(version: &Version) -> Option<Choice> {
    let inputs: Vec<_> = version.tables().cloned().collect();
    (!inputs.is_empty()).then_some(Choice { inputs, output_level: LEVELS - 1, is_move: false })
}

/// How far the number of tables in level 0 must slow writers down: 0 to 1000.
pub(crate) fn pressure(version: &Version) -> u32 {
    let tables = version.levels[0].len();
    let over = tables.saturating_sub(L0_SLOW) as u32 * 1000;
    (over / (L0_STOP - L0_SLOW) as u32).min(1000)
}

/// The level that level 0 is compacted into.
fn base_level(sizes: &[u64], base_bytes: u64) -> usize {
    let largest = sizes[1..].iter().copied().max().unwrap_or(0);
    let occupied = (1..LEVELS).find(|&level| sizes[level] > 0).unwrap_or(LEVELS - 1);
    let mut base = LEVELS - 1;
    let mut room = largest;
    while base > 1 && room > base_bytes {
        room /= RATIO;
        base -= 1;
    }
    base.min(occupied)
}

/// How many bytes `level` may hold.
fn target(sizes: &[u64], base: usize, level: usize, base_bytes: u64) -> u64 {
    let largest = sizes[1..].iter().copied().max().unwrap_or(0);
    let share = largest / RATIO.pow((LEVELS - 1 - level) as u32);
    if level == base { base_bytes } else { share.max(base_bytes) }
}

/// The oldest tables of level 0, and what they overlap in the base level.
fn from_level_0(version: &Version, base: usize) -> Choice {
    let newest_first = &version.levels[0];
    let oldest = newest_first.last().expect("level 0 is due");
    let below = &version.levels[base];
    if lies_free(oldest, &newest_first[..newest_first.len() - 1], below) {
        return Choice { inputs: vec![Arc::clone(oldest)], output_level: base, is_move: true };
    }
    let taken = &newest_first[newest_first.len().saturating_sub(L0_MOST)..];
    let mut inputs = taken.to_vec();
    inputs.extend(overlapped(taken, below));
    Choice { inputs, output_level: base, is_move: false }
}

/// The table of `level` that overlaps least of the level below, in proportion to its size.
fn from_level(version: &Version, level: usize) -> Option<Choice> {
    let below = &version.levels[level + 1];
    let cost = |table: &Arc<TableFile>| {
        let met = overlapping(below, &table.meta.smallest, &table.meta.largest);
        let bytes: u64 = met.iter().map(|table| table.meta.len).sum();
        bytes as f64 / table.meta.len.max(1) as f64
    };
    let table = version.levels[level].iter().min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    let met = overlapping(below, &table.meta.smallest, &table.meta.largest);
    let mut inputs = vec![Arc::clone(table)];
    inputs.extend_from_slice(met);
    Some(Choice { inputs, output_level: level + 1, is_move: met.is_empty() })
}

/// Whether `table` overlaps neither its `newer` neighbours in level 0 nor the level `below`.
fn lies_free(table: &TableFile, newer: &[Arc<TableFile>], below: &[Arc<TableFile>]) -> bool {
    let meta = &table.meta;
    let apart = |other: &Arc<TableFile>| {
        other.meta.largest < meta.smallest || other.meta.smallest > meta.largest
    };
    newer.iter().all(apart) && overlapping(below, &meta.smallest, &meta.largest).is_empty()
}

/// The tables of `below` that the range of keys of `taken` meets.
fn overlapped(taken: &[Arc<TableFile>], below: &[Arc<TableFile>]) -> Vec<Arc<TableFile>> {
    let smallest = taken.iter().map(|table| &table.meta.smallest).min();
    let largest = taken.iter().map(|table| &table.meta.largest).max();
    let (Some(smallest), Some(largest)) = (smallest, largest) else { return Vec::new() };
    overlapping(below, smallest, largest).to_vec()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::base::Seqno;
    use crate::lsm::version::sample;
    use crate::lsm::version::{Home, TableMeta};

    const SHAPE: Shape = Shape { base_bytes: 1000, table_bytes: 100 };

    /// A table: level, number, keys, bytes. In level 0 those with larger numbers are newer.
    type Row<'a> = (usize, u64, (&'a [u8], &'a [u8]), u64);

    fn version(rows: &[Row]) -> Version {
        let home = sample::home();
        let tables: Vec<_> = rows
            .iter()
            .map(|&(level, id, keys, len)| (level, sample::table(&home, id, keys, len, id)))
            .collect();
        Version::default().with(&[], &tables).unwrap()
    }

    fn ids(choice: &Choice) -> Vec<u64> {
        choice.inputs.iter().map(|table| table.meta.id).collect()
    }

    /// The base level if the deepest level has so many bytes.
    fn base_over(deepest: u64) -> usize {
        base_level(&[0, 0, 0, 0, 0, 0, deepest], 1000)
    }

    #[test]
    fn the_base_level_rises_with_the_size() {
        let sizes = [0, 1000, 1001, 10_000, 10_010, 100_000, 100_100, 1_001_000, 10_010_000];
        assert_eq!(sizes.map(base_over), [6, 6, 5, 5, 4, 4, 3, 2, 1]);
        assert_eq!(base_over(u64::MAX), 1, "level 0 is not a base");
    }

    #[test]
    fn the_base_level_lies_above_all_that_is_there() {
        assert_eq!(base_level(&[9, 0, 0, 5, 0, 0, 0], 1000), 3);
        assert_eq!(base_level(&[9, 0, 0, 0, 0, 5, 900], 1000), 5);
        assert_eq!(base_level(&[9, 0, 0, 0, 0, 5, 100_000], 1000), 4);
    }

    #[test]
    fn nothing_is_due_below_the_triggers() {
        assert!(pick(&Version::default(), &SHAPE).is_none());
        assert!(everything(&Version::default()).is_none());
        let rows: [Row; 5] = [
            (0, 9, (b"a", b"z"), 5000),
            (0, 8, (b"a", b"z"), 5000),
            (0, 7, (b"a", b"z"), 5000),
            (5, 6, (b"a", b"z"), 999),
            (6, 5, (b"a", b"z"), 9000),
        ];
        assert!(pick(&version(&rows), &SHAPE).is_none());
        assert_eq!(ids(&everything(&version(&rows)).unwrap()), [9, 8, 7, 6, 5]);
        // The deepest level has no bound.
        assert!(pick(&version(&[(6, 1, (b"a", b"z"), u64::MAX)]), &SHAPE).is_none());
    }

    #[test]
    fn level_0_is_due_at_its_trigger_with_what_it_overlaps() {
        let choice = pick(
            &version(&[
                (0, 9, (b"c", b"d"), 10),
                (0, 8, (b"g", b"h"), 10),
                (0, 7, (b"d", b"e"), 10),
                (0, 6, (b"c", b"f"), 10),
                (6, 1, (b"a", b"b"), 100),
                (6, 2, (b"b1", b"c"), 100),
                (6, 3, (b"e", b"e1"), 100),
                (6, 4, (b"h", b"i"), 100),
                (6, 5, (b"i1", b"j"), 100),
            ]),
            &SHAPE,
        )
        .unwrap();
        assert_eq!(ids(&choice), [9, 8, 7, 6, 2, 3, 4]);
        assert_eq!((choice.output_level, choice.is_move), (6, false));
    }

    #[test]
    fn of_a_full_level_0_the_oldest_tables_are_taken() {
        let rows: Vec<Row> = (1..=30).map(|id| (0, id, (&b"a"[..], &b"z"[..]), 10)).collect();
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!(ids(&choice), (1..=L0_MOST as u64).rev().collect::<Vec<_>>());
    }

    #[test]
    fn a_table_of_level_0_that_overlaps_nothing_is_moved() {
        let mut rows: Vec<Row> = vec![
            (0, 9, (b"a", b"d"), 10),
            (0, 8, (b"a", b"d"), 10),
            (0, 7, (b"a", b"d"), 10),
            (0, 6, (b"e", b"f"), 10),
            (6, 1, (b"a", b"d"), 100),
            (6, 2, (b"g", b"h"), 100),
        ];
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((ids(&choice), choice.output_level, choice.is_move), (vec![6], 6, true));
        // Not if a newer table may have the same keys: they are merged,
        rows[0] = (0, 9, (b"a", b"e"), 10);
        assert!(!pick(&version(&rows), &SHAPE).unwrap().is_move);
        // and not onto a table that has it already.
        rows[0] = (0, 9, (b"a", b"d"), 10);
        rows[5] = (6, 2, (b"f", b"h"), 100);
        assert!(!pick(&version(&rows), &SHAPE).unwrap().is_move);
    }

    #[test]
    fn of_a_full_level_the_table_that_overlaps_least_goes_down() {
        let mut rows: Vec<Row> = vec![
            (5, 4, (b"a", b"b"), 600),
            (5, 5, (b"c", b"d"), 600),
            (5, 6, (b"e", b"f"), 100),
            (6, 1, (b"a", b"b"), 3000),
            (6, 2, (b"c", b"d"), 1200),
            (6, 3, (b"e", b"f"), 1000),
        ];
        // Table 6 overlaps the fewest bytes, but ten times its own size.
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((ids(&choice), choice.output_level, choice.is_move), (vec![5, 2], 6, false));
        rows[4].2 = (b"d1", b"d2");
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((ids(&choice), choice.output_level, choice.is_move), (vec![5], 6, true));
    }

    #[test]
    fn the_fullest_level_comes_first() {
        let mut rows: Vec<Row> = (10..15).map(|id| (0, id, (&b"a"[..], &b"z"[..]), 10)).collect();
        rows.extend([
            (4, 3, (&b"a"[..], &b"z"[..]), 1100),
            (5, 2, (&b"a"[..], &b"z"[..]), 30_000),
            (6, 1, (&b"a"[..], &b"z"[..]), 100_000),
        ]);
        // Level 0 has 1.25 times its measure, level 4 1.1 times, level 5 three times.
        assert_eq!(ids(&pick(&version(&rows), &SHAPE).unwrap()), [2, 1]);
        rows[6].3 = 9000;
        let choice = pick(&version(&rows), &SHAPE).unwrap();
        assert_eq!((ids(&choice), choice.output_level), (vec![14, 13, 12, 11, 10, 3], 4));
    }

    #[test]
    fn pressure_grows_from_nothing_to_a_full_stop() {
        let at = |tables: usize| {
            let rows: Vec<Row> =
                (0..tables as u64).map(|id| (0, id, (&b"a"[..], &b"z"[..]), 10)).collect();
            pressure(&version(&rows))
        };
        let all: Vec<u32> = (0..=2 * L0_STOP).map(at).collect();
        assert!(all.is_sorted());
        assert!(all[..=L0_SLOW].iter().all(|&pressure| pressure == 0));
        assert!(all[L0_SLOW + 1] > 0 && all[L0_STOP - 1] < 1000);
        assert_eq!(all[(L0_SLOW + L0_STOP) / 2], 500);
        assert!(all[L0_STOP..].iter().all(|&pressure| pressure == 1000));
    }

    /// So many bytes are counted for an entry of a simulated tree.
    const ENTRY: u64 = 10;

    /// What a table holds: the newest write of each key.
    type Content = BTreeMap<u16, Seqno>;

    /// A tree that has no files: what its tables hold is kept aside.
    struct Tree {
        home: Arc<Home>,
        version: Version,
        contents: BTreeMap<u64, Content>,
        written: Content,
        seqno: Seqno,
        next_id: u64,
    }

    impl Tree {
        fn new() -> Self {
            let (version, contents, written) = Default::default();
            Self { home: sample::home(), version, contents, written, seqno: 0, next_id: 1 }
        }

        fn table(&mut self, content: Content) -> Arc<TableFile> {
            let id = self.next_id;
            self.next_id += 1;
            let key = |end: Option<(&u16, &Seqno)>| end.unwrap().0.to_be_bytes().to_vec();
            let meta = TableMeta {
                id,
                len: ENTRY * content.len() as u64,
                entries: content.len() as u64,
                tombstones: 0,
                smallest: key(content.first_key_value()),
                largest: key(content.last_key_value()),
                smallest_seqno: *content.values().min().unwrap(),
                largest_seqno: *content.values().max().unwrap(),
            };
            self.contents.insert(id, content);
            TableFile::new(meta, Arc::clone(&self.home))
        }

        fn flush(&mut self, keys: &[u16]) {
            let mut content = Content::new();
            for &key in keys {
                self.seqno += 1;
                content.insert(key, self.seqno);
            }
            self.written.extend(&content);
            let table = self.table(content);
            self.version = self.version.with(&[], &[(0, table)]).unwrap();
        }

        /// Does what a compaction would do.
        fn apply(&mut self, choice: &Choice, shape: &Shape) {
            let mut added = Vec::new();
            if choice.is_move {
                assert_eq!(choice.inputs.len(), 1);
                added.push((choice.output_level, Arc::clone(&choice.inputs[0])));
            } else {
                let mut merged = Content::new();
                for (&key, &seqno) in ids(choice).iter().flat_map(|id| &self.contents[id]) {
                    let newest = merged.entry(key).or_default();
                    *newest = seqno.max(*newest);
                }
                let merged: Vec<_> = merged.into_iter().collect();
                for part in merged.chunks((shape.table_bytes / ENTRY) as usize) {
                    let table = self.table(part.iter().copied().collect());
                    added.push((choice.output_level, table));
                }
            }
            self.version =
                self.version.with(&ids(choice), &added).expect("the levels are in order");
        }

        /// Whether each key is found with its last write, and newer writes above older ones.
        fn check(&self) {
            let mut found = Content::new();
            let mut last = Content::new();
            for table in self.version.tables() {
                for (&key, &seqno) in &self.contents[&table.meta.id] {
                    found.entry(key).or_insert(seqno);
                    let newer = last.insert(key, seqno);
                    assert!(newer.is_none_or(|newer| newer > seqno), "{key}: {newer:?}, {seqno}");
                }
            }
            assert_eq!(found, self.written);
        }

        /// Compacts until nothing is due.
        fn settle(&mut self, shape: &Shape) {
            // Each compaction takes an entry down, so there is an end.
            let mut left = self.seqno as usize * LEVELS;
            while let Some(choice) = pick(&self.version, shape) {
                self.apply(&choice, shape);
                self.check();
                left = left.checked_sub(1).expect("it goes on for ever");
            }
            assert!(self.version.levels[0].len() < L0_TRIGGER);
        }
    }

    /// The keys of a flush. They lie close together, so that some flushes overlap nothing.
    fn keys() -> impl Strategy<Value = Vec<u16>> {
        let offsets = proptest::collection::vec(0..100_u16, 1..40);
        (0..1000_u16, offsets).prop_map(|(start, mut offsets)| {
            offsets.iter_mut().for_each(|offset| *offset += start);
            offsets
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn compactions_come_to_an_end_and_lose_nothing(
            flushes in proptest::collection::vec((keys(), any::<bool>()), 0..60),
            base_bytes in [10..3000_u64, 10..3000_u64],
            table_bytes in ENTRY..500,
        ) {
            let mut tree = Tree::new();
            let half = flushes.len() / 2;
            for (number, (keys, settles)) in flushes.iter().enumerate() {
                // The shape may change, as it does when a database is opened with another budget.
                let base_bytes = base_bytes[usize::from(number >= half)];
                let shape = Shape { base_bytes, table_bytes };
                tree.flush(keys);
                if *settles {
                    tree.settle(&shape);
                }
            }
            tree.settle(&Shape { base_bytes: base_bytes[1], table_bytes });
            if let Some(choice) = everything(&tree.version) {
                tree.apply(&choice, &SHAPE);
                tree.check();
            }
            prop_assert!(tree.version.levels[..LEVELS - 1].iter().all(Vec::is_empty));
        }
    }
}
