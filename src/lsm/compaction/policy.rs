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
