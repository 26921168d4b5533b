//! Which tables make up the tree: immutable versions, and the manifest that records each change.

mod manifest;
#[cfg(test)]
pub(crate) mod sample;
mod table_file;

use std::sync::Arc;

use super::values::ValueFiles;
use crate::error::Error;
pub(crate) use manifest::{Edit, Manifest, check_files_exist, remove_leftovers};
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
    /// The value files that the tables refer to.
    pub(crate) values: ValueFiles,
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
            level.retain(|table| {
                let stays = !removed.contains(&table.meta.id);
                if !stays {
                    next.values.remove(&table.values);
                }
                stays
            });
            gone += before - level.len();
        }
        for (level, table) in added {
            next.levels.get_mut(*level)?.push(Arc::clone(table));
            next.values.add(&table.values)?;
        }
        next.values.drop_unused();
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

    /// The error for an entry whose value is apart, but not in any value file there is.
    #[cold]
    pub(crate) fn misled(&self) -> Error {
        let table = self.tables().next().map(|table| table.path()).unwrap_or_default();
        let dir = table.parent().unwrap_or(&table);
        Error::corruption(dir, 0, "a table refers to a value in a file that is not there")
    }

    /// Bytes of the tables of a level.
    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.levels[level].iter().map(|table| table.meta.len).sum()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn add(
        home: &Arc<Home>,
        level: usize,
        id: u64,
        keys: (&[u8], &[u8]),
    ) -> (usize, Arc<TableFile>) {
        (level, sample::table(home, id, keys, 10 * id, id))
    }

    fn ids<'a>(tables: impl IntoIterator<Item = &'a Arc<TableFile>>) -> Vec<u64> {
        tables.into_iter().map(|table| table.meta.id).collect()
    }

    /// Two tables in level 0, two in level 3, one in level 6.
    fn version(home: &Arc<Home>) -> Version {
        let tables = [
            add(home, 0, 4, (b"c", b"x")),
            add(home, 3, 3, (b"p", b"q")),
            add(home, 0, 5, (b"a", b"z")),
            add(home, 3, 2, (b"c", b"d")),
            add(home, 6, 1, (b"b", b"b")),
        ];
        Version::default().with(&[], &tables).unwrap()
    }

    #[test]
    fn a_change_keeps_the_levels_in_order() {
        let home = sample::home();
        let version = version(&home);
        assert_eq!(ids(version.tables()), [5, 4, 2, 3, 1]);
        assert_eq!((version.level_bytes(0), version.level_bytes(3)), (90, 50));
        let added = [add(&home, 3, 6, (b"d1", b"o")), add(&home, 0, 7, (b"a", b"b"))];
        let next = version.with(&[5, 3], &added).unwrap();
        assert_eq!(ids(next.tables()), [7, 4, 2, 6, 1]);
        assert_eq!(ids(version.tables()), [5, 4, 2, 3, 1], "the version itself never changes");
        let empty = version.with(&[1, 2, 3, 4, 5], &[]).unwrap();
        assert_eq!(empty.tables().count(), 0);
        // A table may change its level.
        let moved = version.with(&[4], &[(5, Arc::clone(&version.levels[0][1]))]).unwrap();
        assert_eq!(ids(moved.tables()), [5, 2, 3, 4, 1]);
    }

    #[test]
    fn a_change_that_does_not_fit_is_refused() {
        let home = sample::home();
        let version = version(&home);
        for removed in [&[6][..], &[1, 6], &[1, 1]] {
            assert!(version.with(removed, &[]).is_none(), "{removed:?}");
        }
        // One shared key is enough, on either side, around and inside.
        for (smallest, largest) in [(b"d", b"e"), (b"a", b"c"), (b"a", b"z"), (b"c", b"c")] {
            let added = [add(&home, 3, 9, (smallest, largest))];
            assert!(version.with(&[], &added).is_none(), "{added:?}");
        }
        assert!(version.with(&[], &[add(&home, LEVELS, 9, (b"r", b"s"))]).is_none());
        assert!(version.with(&[2], &[add(&home, 3, 9, (b"c", b"d"))]).is_some());
    }

    proptest! {
        #[test]
        fn lookups_find_what_a_scan_finds(
            tables in proptest::collection::btree_map(0..20_u8, any::<bool>(), 0..12),
            (from, to) in (0..64_u8, 0..64_u8),
        ) {
            let home = sample::home();
            // Tables of one or two neighbouring keys, with a key or more between them.
            let added: Vec<_> = tables
                .iter()
                .map(|(&at, &long)| {
                    let keys = ([3 * at], [3 * at + u8::from(long)]);
                    add(&home, 1, 1 + u64::from(at), (&keys.0, &keys.1))
                })
                .collect();
            let version = Version::default().with(&[], &added).unwrap();
            let meets = |from: u8, to: u8| {
                let meets = move |table: &&Arc<TableFile>| {
                    table.meta.smallest[..] <= [to][..] && table.meta.largest[..] >= [from][..]
                };
                ids(version.levels[1].iter().filter(meets))
            };
            prop_assert_eq!(ids(version.table_for(1, &[from])), meets(from, from));
            prop_assert!(version.table_for(2, &[from]).is_none());
            let (from, to) = (from.min(to), from.max(to));
            let found = overlapping(&version.levels[1], &[from], &[to]);
            prop_assert_eq!(ids(found), meets(from, to));
        }
    }
}
