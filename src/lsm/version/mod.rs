//! Which tables make up the tree: immutable versions, and the manifest that records each change.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod manifest;
mod run;
#[cfg(any(test, fuzzing))]
pub(crate) mod sample;
mod table_file;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::values::ValueFiles;
use crate::error::Error;
pub(crate) use manifest::{Edit, Manifest, leftovers};
pub(crate) use run::{Place, Run};
pub(crate) use table_file::{Home, TableFile, TableMeta};

/// The most levels a tree may have.
pub(crate) const LEVELS: usize = 16;

/// One state of the tree's tables. Never changed; a change makes a new version.
///
/// Invariants: runs are ordered by [age](Place::age): for any user key, entries of a later run are older. No run is
/// empty, and no two are in one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    runs: Vec<Run>,
    /// The value files that the tables refer to.
    pub(crate) values: ValueFiles,
}

impl Version {
    /// All runs, newest first.
    #[inline]
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The runs of a level, newest first.
    pub(crate) fn level(&self, level: usize) -> &[Run] {
        let from = self.runs.partition_point(|run| run.place.level < level);
        let len = self.runs[from..].partition_point(|run| run.place.level == level);
        &self.runs[from..from + len]
    }

    /// The levels that have tables, from the first.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (usize, &[Run])> {
        let levels = self.runs.chunk_by(|a, b| a.place.level == b.place.level);
        levels.map(|runs| (runs[0].place.level, runs))
    }

    /// The runs that are older than one at `place` is.
    pub(crate) fn behind(&self, place: Place) -> &[Run] {
        &self.runs[self.runs.partition_point(|run| run.place.age() <= place.age())..]
    }

    /// All tables, those of newer runs first.
    pub(crate) fn tables(&self) -> impl DoubleEndedIterator<Item = &Arc<TableFile>> {
        self.runs.iter().flat_map(Run::tables)
    }

    /// The version with tables removed and added. `None` if the change does not fit: a table to be removed
    /// is not there, or tables of a run would overlap.
    pub(crate) fn with(&self, removed: &[u64], added: &[(Place, Arc<TableFile>)]) -> Option<Self> {
        let ids: HashSet<u64> = removed.iter().copied().collect();
        let stays = |table: &&Arc<TableFile>| !ids.contains(&table.meta.id);
        let mut added = added.to_vec();
        added.sort_by(|(a, x), (b, y)| {
            a.age().cmp(&b.age()).then_with(|| x.meta.smallest.cmp(&y.meta.smallest))
        });
        let mut runs = Vec::with_capacity(self.runs.len() + 1);
        let mut values = self.values.clone();
        let mut gone = 0;
        for (_, table) in &added {
            values.add(&table.values)?;
        }
        for run in &self.runs {
            let has_new = added.iter().any(|(place, _)| *place == run.place);
            if !has_new && run.tables().iter().all(|table| stays(&table)) {
                runs.push(run.clone());
                continue;
            }
            let goes = run.tables().iter().filter(|table| !stays(table));
            goes.for_each(|table| values.remove(&table.values));
            let mut tables: Vec<_> = run.tables().iter().filter(stays).cloned().collect();
            gone += run.tables().len() - tables.len();
            tables
                .extend(added.extract_if(.., |(place, _)| *place == run.place).map(|(_, new)| new));
            tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
            if !tables.is_empty() {
                runs.push(Run::new(run.place, tables)?);
            }
        }
        for new in added.chunk_by(|(a, _), (b, _)| a == b) {
            let place = Some(new[0].0).filter(|place| place.level < LEVELS)?;
            runs.push(Run::new(place, new.iter().map(|(_, table)| Arc::clone(table)).collect())?);
        }
        values.drop_unused();
        runs.sort_by_key(|run| run.place.age());
        (gone == removed.len()).then_some(Self { runs, values })
    }

    /// Whether files and entries are few enough to be added up, whatever is added to them later.
    pub(crate) fn is_countable(&self) -> bool {
        const MOST: u64 = 1 << 60;
        let figures = |meta: &TableMeta| [meta.len, meta.entries, meta.tombstones, meta.ranges];
        let tables = self.tables().flat_map(|table| figures(&table.meta));
        let values = self.values.files().map(|file| file.len());
        // Several tables may claim the same.
        let shares = self.tables().flat_map(|table| table.values.iter().map(|share| share.bytes));
        tables
            .chain(values)
            .chain(shares)
            .try_fold(0_u64, u64::checked_add)
            .is_some_and(|sum| sum <= MOST)
    }

    /// The error for an entry whose value is apart, but not in any value file there is.
    #[cold]
    pub(crate) fn misled(&self) -> Error {
        let table = self.tables().next().map(|table| table.path()).unwrap_or_default();
        misled_in(table.parent().unwrap_or(&table))
    }

    /// Bytes of the tables of a level.
    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.level(level).iter().map(Run::bytes).fold(0, u64::saturating_add)
    }
}

/// The same of a tree in `dir`.
pub(crate) fn misled_in(dir: &Path) -> Error {
    Error::corruption(dir, 0, "a table refers to a value in a file that is not there")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(
        home: &Arc<Home>,
        (level, run): (usize, u64),
        id: u64,
        keys: (&[u8], &[u8]),
    ) -> (Place, Arc<TableFile>) {
        (Place { level, run }, sample::table(home, id, keys, 10 * id, id))
    }

    fn ids<'a>(tables: impl IntoIterator<Item = &'a Arc<TableFile>>) -> Vec<u64> {
        tables.into_iter().map(|table| table.meta.id).collect()
    }

    /// Two runs in level 0, one of two tables in level 3, one in level 6.
    fn version(home: &Arc<Home>) -> Version {
        let tables = [
            add(home, (0, 4), 4, (b"c", b"x")),
            add(home, (3, 0), 3, (b"p", b"q")),
            add(home, (0, 5), 5, (b"a", b"z")),
            add(home, (3, 0), 2, (b"c", b"d")),
            add(home, (6, 0), 1, (b"b", b"b")),
        ];
        Version::default().with(&[], &tables).unwrap()
    }

    #[test]
    fn a_change_keeps_the_runs_in_order() {
        let home = sample::home();
        let version = version(&home);
        assert_eq!(ids(version.tables()), [5, 4, 2, 3, 1]);
        assert_eq!((version.level_bytes(0), version.level_bytes(3)), (90, 50));
        assert_eq!(
            version.levels().map(|(level, runs)| (level, runs.len())).collect::<Vec<_>>(),
            [(0, 2), (3, 1), (6, 1)]
        );
        assert_eq!((version.level(0).len(), version.level(4).len()), (2, 0));
        let added = [
            add(&home, (3, 0), 6, (b"d1", b"o")),
            add(&home, (0, 7), 7, (b"a", b"b")),
            add(&home, (3, 9), 9, (b"a", b"z")),
            add(&home, (3, 8), 8, (b"a", b"z")),
        ];
        let next = version.with(&[5, 3], &added).unwrap();
        assert_eq!(ids(next.tables()), [7, 4, 9, 8, 2, 6, 1]);
        assert_eq!(ids(version.tables()), [5, 4, 2, 3, 1], "the version itself never changes");
        let empty = version.with(&[1, 2, 3, 4, 5], &[]).unwrap();
        assert!(empty.tables().next().is_none() && empty.runs().is_empty());
        // A table may change its level.
        let table = Arc::clone(&version.level(0)[1].tables()[0]);
        let moved = version.with(&[4], &[(Place::merged(5), table)]).unwrap();
        assert_eq!(ids(moved.tables()), [5, 2, 3, 4, 1]);
    }

    #[test]
    fn lengths_that_cannot_be_do_not_overflow() {
        let home = sample::home();
        let table = |id, keys: (&[u8], &[u8])| sample::table(&home, id, keys, u64::MAX - id, id);
        let run = |run| Place { level: 0, run };
        let added = [
            (run(1), table(1, (b"a", b"b"))),
            (run(1), table(2, (b"c", b"d"))),
            (run(3), table(3, (b"a", b"d"))),
        ];
        let version = Version::default().with(&[], &added).unwrap();
        assert_eq!((version.level(0)[1].bytes(), version.level_bytes(0)), (u64::MAX, u64::MAX));
    }

    #[test]
    fn what_is_behind_a_place_is_older() {
        let home = sample::home();
        let version = version(&home);
        let behind = |level, run| -> Vec<u64> {
            let place = Place { level, run };
            version.behind(place).iter().flat_map(|run| ids(run.tables())).collect()
        };
        assert_eq!(behind(0, 6), [5, 4, 2, 3, 1]);
        assert_eq!(behind(0, 5), [4, 2, 3, 1]);
        assert_eq!(behind(2, 0), [2, 3, 1]);
        assert_eq!(behind(3, 9), [2, 3, 1]);
        assert_eq!(behind(3, 0), [1]);
        assert_eq!(behind(6, 0), []);
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
            let added = [add(&home, (3, 0), 9, (smallest, largest))];
            assert!(version.with(&[], &added).is_none(), "{added:?}");
            let twice = [(4, 9), (4, 9)].map(|place| add(&home, place, 9, (smallest, largest)));
            assert!(version.with(&[], &twice).is_none());
        }
        assert!(version.with(&[], &[add(&home, (LEVELS, 0), 9, (b"r", b"s"))]).is_none());
        assert!(version.with(&[2], &[add(&home, (3, 0), 9, (b"c", b"d"))]).is_some());
    }
}
