//! Which tables make up the tree: immutable versions, and the manifest that records each change.

mod manifest;
#[cfg(test)]
pub(crate) mod sample;
mod table_file;

use std::sync::Arc;

pub(crate) use manifest::{Edit, Manifest, check_tables_exist, remove_leftovers};
pub(crate) use table_file::{Home, TableFile, TableMeta};

/// How many levels a tree has; level 0 holds what was flushed, newest first.
pub(crate) const LEVELS: usize = 7;

/// One state of the tree's tables. Never changed; a change makes a new version.
///
/// Invariants: tables of level 0 are ordered newest first and may overlap; on every other level they are
/// ordered by key and no user key is in two of them. For any user key, entries on a higher-numbered level
/// are older.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    pub(crate) levels: [Vec<Arc<TableFile>>; LEVELS],
}

impl Version {
    /// All tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableFile>> {
        self.levels.iter().flatten()
    }

    /// The table of `level` (1 or deeper) that may hold `key`.
    pub(crate) fn table_for(&self, level: usize, key: &[u8]) -> Option<&Arc<TableFile>> {
        let tables = &self.levels[level];
        let at = tables.partition_point(|table| table.meta.largest.as_slice() < key);
        tables.get(at).filter(|table| table.meta.smallest.as_slice() <= key)
    }

    /// The version with tables removed and added. `None` if the change does not fit: a table to be removed
    /// is not there, or the levels would no longer be in order.
    pub(crate) fn with(&self, removed: &[u64], added: &[(usize, Arc<TableFile>)]) -> Option<Self> {
        let mut next = self.clone();
        let mut gone = 0;
        for level in &mut next.levels {
            let before = level.len();
            level.retain(|table| !removed.contains(&table.meta.id));
            gone += before - level.len();
        }
        for (level, table) in added {
            next.levels.get_mut(*level)?.push(Arc::clone(table));
        }
        let (newest, sorted) = next.levels.split_first_mut().expect("there are levels");
        newest.sort_by_key(|table| std::cmp::Reverse((table.meta.largest_seqno, table.meta.id)));
        for level in sorted {
            level.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
            if !level.is_sorted_by(|a, b| a.meta.largest < b.meta.smallest) {
                return None;
            }
        }
        (gone == removed.len()).then_some(next)
    }

    /// Bytes of the tables of a level.
    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.levels[level].iter().map(|table| table.meta.len).sum()
    }

    /// The smallest and the largest key of all tables.
    pub(crate) fn ends(&self) -> Option<(&[u8], &[u8])> {
        let smallest = self.tables().map(|table| &table.meta.smallest[..]).min()?;
        let largest = self.tables().map(|table| &table.meta.largest[..]).max()?;
        Some((smallest, largest))
    }
}

/// The tables among `tables`, which do not overlap and are in order, that overlap the keys from `smallest`
/// to `largest`.
pub(crate) fn overlapping<'a>(
    tables: &'a [Arc<TableFile>],
    smallest: &[u8],
    largest: &[u8],
) -> &'a [Arc<TableFile>] {
    let from = tables.partition_point(|table| table.meta.largest.as_slice() < smallest);
    let to = tables.partition_point(|table| table.meta.smallest.as_slice() <= largest);
    &tables[from..to.max(from)]
}
