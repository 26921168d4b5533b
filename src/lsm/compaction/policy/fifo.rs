//! Fifo: nothing is merged. When tables take more than they may, the oldest go, and what is in them with them. Values kept
//! apart count for the tables that refer to them.

use std::sync::Arc;

use super::{Choice, Into, Policy, Shape, Work};
use crate::lsm::version::{Run, TableFile, Version};

#[derive(Debug)]
pub(super) struct Fifo {
    /// The bytes that tables and their values may take.
    pub(super) bytes: u64,
}

/// What goes with a table.
fn bytes_of(table: &Arc<TableFile>) -> u64 {
    table.meta.len + table.values.iter().map(|share| share.bytes).sum::<u64>()
}

/// All tables, the oldest first. Those that a flush has made are of one age: with ascending keys, the lowest are the oldest.
pub(super) fn oldest_first(version: &Version) -> impl Iterator<Item = &Arc<TableFile>> {
    version.runs().iter().rev().flat_map(Run::tables)
}

impl Policy for Fifo {
    /// The oldest tables, as many as are too much; one stays whatever its size.
    fn pick(&self, version: &Version, _shape: &Shape) -> Option<Choice> {
        let mut left: u64 = version.tables().map(bytes_of).sum();
        let mut oldest = oldest_first(version).peekable();
        let mut inputs = Vec::new();
        while left > self.bytes
            && let Some(table) = oldest.next()
            && oldest.peek().is_some()
        {
            left -= bytes_of(table);
            inputs.push(Arc::clone(table));
        }
        let choice = Choice { inputs, work: Work::Drop, level: 0, into: Into::Newest };
        (!choice.inputs.is_empty()).then_some(choice)
    }

    fn everything(&self, _version: &Version) -> Option<Choice> {
        None
    }

    fn excess(&self, _version: &Version, _shape: &Shape) -> u64 {
        0
    }

    fn place(
        &self,
        _version: &Version,
        _tables: &[Arc<TableFile>],
        _shape: &Shape,
    ) -> (usize, Into) {
        (0, Into::Newest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::simulation::{Row, SHAPE, Tree, flushes, ids, version};
    use super::*;

    #[test]
    fn the_oldest_tables_go_when_there_is_too_much() {
        let rows: [Row; 4] = [
            ((0, 9), 9, (b"a", b"d"), 100),
            ((0, 7), 7, (b"k", b"l"), 100),
            ((0, 7), 6, (b"a", b"d"), 100),
            ((0, 3), 3, (b"a", b"d"), 100),
        ];
        let version = version(&rows);
        let dropped = |bytes| Fifo { bytes }.pick(&version, &SHAPE).map(|choice| ids(&choice));
        assert_eq!(dropped(400), None);
        assert_eq!(dropped(399), Some(vec![3]));
        assert_eq!(dropped(299), Some(vec![3, 6]), "the lower keys of a run go first");
        assert_eq!(dropped(1), Some(vec![3, 6, 7]), "the newest stays");
        assert!(Fifo { bytes: 1 }.everything(&version).is_none());
        assert_eq!(Fifo { bytes: 1 }.excess(&version, &SHAPE), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_newest_that_fit_stay(flushes in flushes(), bytes in 1..3000_u64) {
            let policy = Fifo { bytes };
            let mut tree = Tree::new();
            for flush in &flushes {
                tree.take(flush, &policy, &SHAPE);
            }
            tree.settle(&policy, &SHAPE);
            let left: u64 = tree.version.tables().map(|table| table.meta.len).sum();
            prop_assert!(left <= bytes || tree.version.tables().count() == 1);
            prop_assert_eq!(tree.merged, 0);
        }
    }
}
