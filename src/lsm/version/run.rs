//! A run: tables in the order of their keys, of which no two overlap.
//!
//! Thread safety: never changed once made; clones share the tables.

use std::sync::Arc;

use super::TableFile;
use crate::base::key::{common_prefix_len, head_behind};

/// Where a run lies. The order is that from newer entries to older ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) level: usize,
    /// Of two runs of one level the one with the larger number is newer.
    pub(crate) run: u64,
}

impl Place {
    /// The place of the one run of a level that is kept merged.
    pub(crate) const fn merged(level: usize) -> Self {
        Self { level, run: 0 }
    }

    /// Sorts newer places first.
    pub(crate) fn age(self) -> (usize, std::cmp::Reverse<u64>) {
        (self.level, std::cmp::Reverse(self.run))
    }
}

/// Tables that follow one another.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) place: Place,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    tables: Vec<Arc<TableFile>>,
    /// What the largest keys of all tables begin with.
    prefix: Vec<u8>,
    /// The heads of the largest keys, behind the prefix: a search looks at few keys besides.
    heads: Vec<u64>,
    /// Those that have range tombstones.
    ranged: Vec<Arc<TableFile>>,
}

impl Run {
    /// The run of `tables`, in the order of their keys; `None` if two of them have a key in common, or there are none.
    pub(crate) fn new(place: Place, tables: Vec<Arc<TableFile>>) -> Option<Self> {
        if tables.is_empty() || !tables.is_sorted_by(|a, b| a.meta.largest < b.meta.smallest) {
            return None;
        }
        let (first, last) = (&tables[0].meta.largest, &tables[tables.len() - 1].meta.largest);
        let prefix = first[..common_prefix_len(first, last)].to_vec();
        let heads = tables.iter().map(|table| head_behind(&prefix, &table.meta.largest)).collect();
        let ranged = tables.iter().filter(|table| table.meta.ranges > 0).cloned().collect();
        Some(Self { place, shared: Arc::new(Shared { tables, prefix, heads, ranged }) })
    }

    /// Its tables, in the order of their keys.
    #[inline]
    pub(crate) fn tables(&self) -> &[Arc<TableFile>] {
        &self.shared.tables
    }

    /// Those of its tables that have range tombstones, in the order of their keys.
    #[inline]
    pub(crate) fn ranged(&self) -> &[Arc<TableFile>] {
        &self.shared.ranged
    }

    /// The table that may hold `key`.
    #[inline]
    pub(crate) fn table_for(&self, key: &[u8]) -> Option<&Arc<TableFile>> {
        let tables = self.tables();
        let at = if tables.len() == 1 { 0 } else { self.first_reaching(key) };
        let meets = |table: &&Arc<TableFile>| {
            table.meta.smallest.as_slice() <= key && key <= table.meta.largest.as_slice()
        };
        tables.get(at).filter(meets)
    }

    /// The first table whose largest key is not below `key`.
    fn first_reaching(&self, key: &[u8]) -> usize {
        let Shared { tables, prefix, heads, .. } = &*self.shared;
        let head = head_behind(prefix, key);
        let from = heads.partition_point(|&other| other < head);
        let same = heads[from..].partition_point(|&other| other == head);
        from + tables[from..from + same]
            .partition_point(|table| table.meta.largest.as_slice() < key)
    }

    /// The tables that overlap the keys from `smallest` to `largest`.
    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> &[Arc<TableFile>] {
        let tables = self.tables();
        let from = tables.partition_point(|table| table.meta.largest.as_slice() < smallest);
        let to = tables.partition_point(|table| table.meta.smallest.as_slice() <= largest);
        &tables[from..to.max(from)]
    }

    /// Whether any of its tables has keys between the smallest and the largest of `table`.
    pub(crate) fn meets(&self, table: &TableFile) -> bool {
        !self.overlapping(&table.meta.smallest, &table.meta.largest).is_empty()
    }

    /// Bytes of its tables; the most there are if a manifest makes them more.
    pub(crate) fn bytes(&self) -> u64 {
        self.tables().iter().fold(0, |bytes, table| bytes.saturating_add(table.meta.len))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample;
    use super::*;

    fn ids<'a>(tables: impl IntoIterator<Item = &'a Arc<TableFile>>) -> Vec<u64> {
        tables.into_iter().map(|table| table.meta.id).collect()
    }

    fn run(keys: &[(Vec<u8>, Vec<u8>)]) -> Option<Run> {
        let home = sample::home();
        let tables = keys
            .iter()
            .zip(1..)
            .map(|((smallest, largest), id)| sample::table(&home, id, (smallest, largest), 10, id));
        Run::new(Place::merged(1), tables.collect())
    }

    #[test]
    fn tables_of_a_run_do_not_overlap() {
        let keys = |keys: &[(&str, &str)]| -> Vec<_> {
            keys.iter().map(|(a, b)| (a.as_bytes().to_vec(), b.as_bytes().to_vec())).collect()
        };
        assert!(run(&keys(&[("c", "d"), ("p", "q")])).is_some());
        assert!(run(&[]).is_none());
        for wrong in [[("c", "d"), ("d", "e")], [("c", "d"), ("a", "b")], [("a", "z"), ("c", "d")]]
        {
            assert!(run(&keys(&wrong)).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn places_are_ordered_by_age() {
        let place = |level, run| Place { level, run };
        let ages = [place(0, 9), place(0, 3), place(2, 8), place(2, 0), place(3, 99)];
        assert!(ages.is_sorted_by_key(|place| place.age()));
    }

    proptest! {
        #[test]
        fn lookups_find_what_a_scan_finds(
            // Short keys, and keys that share more than a head's bytes.
            prefix in proptest::collection::vec(7..9_u8, 0..12),
            ends in proptest::collection::btree_set(proptest::collection::vec(0..3_u8, 0..11), 0..24),
            (from, to) in (
                proptest::collection::vec(0..9_u8, 0..13),
                proptest::collection::vec(0..3_u8, 0..11),
            ),
            is_below in any::<bool>(),
        ) {
            let below = |key: &[u8]| [&prefix[..], key].concat();
            let ends: Vec<_> = ends.iter().map(|key| below(key)).collect();
            let keys: Vec<_> =
                ends.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            let (from, to) = (if is_below { below(&from) } else { from }, below(&to));
            prop_assert_eq!(run(&keys).is_none(), keys.is_empty());
            let Some(run) = run(&keys) else { return Ok(()) };
            let meets = |from: &[u8], to: &[u8]| {
                let meets = |table: &&Arc<TableFile>| {
                    &table.meta.smallest[..] <= to && &table.meta.largest[..] >= from
                };
                ids(run.tables().iter().filter(meets))
            };
            for key in ends.iter().chain([&from, &to]) {
                prop_assert_eq!(ids(run.table_for(key)), meets(key, key));
            }
            let (from, to) = (from.clone().min(to.clone()), from.max(to));
            prop_assert_eq!(ids(run.overlapping(&from, &to)), meets(&from, &to));
        }
    }
}
