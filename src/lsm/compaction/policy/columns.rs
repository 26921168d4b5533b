//! Level 0 of a levelled tree, column by column, so that its tables are not compacted all at once, and by several threads.
//!
//! A *column* is a part of level 0 that has no keys in common with the rest: its tables, of all runs, lie between two keys where no
//! table lies. So it can be compacted without the others, and its *depth*, how many runs it has, is what a get of a key in
//! there costs. A flush ends its tables where columns end, and if there is none, where tables of the level below do: so tables
//! of one flush after another stand upon each other. The idea is that of the sublevels and flush splits of Pebble.

use std::sync::Arc;

use super::merged;
use crate::lsm::version::{Run, TableFile, Version};

/// Into so many parts a flush is divided, if the level below has as many tables.
const PARTS: usize = 4;

/// The columns of level 0, in the order of their keys, each as the runs of which it has tables, newest first.
pub(super) fn columns(version: &Version) -> Vec<Vec<Run>> {
    let runs = version.level(0);
    let mut tables: Vec<(usize, &Arc<TableFile>)> = runs
        .iter()
        .enumerate()
        .flat_map(|(at, run)| run.tables().iter().map(move |t| (at, t)))
        .collect();
    tables.sort_by(|(_, a), (_, b)| a.meta.smallest.cmp(&b.meta.smallest));
    let mut columns = Vec::new();
    let mut rest = &tables[..];
    while let Some((_, first)) = rest.first() {
        let mut largest = &first.meta.largest;
        let mut len = 1;
        while let Some((_, table)) = rest.get(len)
            && table.meta.smallest <= *largest
        {
            largest = largest.max(&table.meta.largest);
            len += 1;
        }
        let (column, others) = rest.split_at(len);
        columns.push(column_of(runs, column));
        rest = others;
    }
    columns
}

/// The column that costs gets most.
pub(super) fn deepest(version: &Version) -> Option<Vec<Run>> {
    columns(version).into_iter().max_by_key(Vec::len)
}

fn column_of(runs: &[Run], tables: &[(usize, &Arc<TableFile>)]) -> Vec<Run> {
    let part = |(at, run): (usize, &Run)| {
        let of_run = tables.iter().filter(|(of, _)| *of == at);
        Run::new(run.place, of_run.map(|(_, table)| Arc::clone(table)).collect())
    };
    runs.iter().enumerate().filter_map(part).collect()
}

/// The keys at which a flush ends its tables: each begins a new one. `base` is the level below. Columns that are there go on;
/// between them others begin, as many as the tables below are worth.
pub(super) fn bounds(version: &Version, base: usize) -> Vec<Vec<u8>> {
    let tables = merged(version, base).map_or(&[][..], Run::tables);
    if tables.len() < PARTS {
        return Vec::new();
    }
    let mut bounds = Vec::new();
    let mut rest = tables;
    for column in columns(version) {
        let (smallest, largest) = range(&column);
        let gap = rest.partition_point(|table| table.meta.largest < smallest);
        bounds.extend(cut(&rest[..gap], tables.len()));
        rest = &rest[rest.partition_point(|table| table.meta.smallest <= largest)..];
        bounds.push(smallest);
    }
    bounds.extend(cut(rest, tables.len()));
    // Nothing ends where the first begins.
    bounds.drain(..bounds.len().min(1));
    bounds
}

/// The smallest and the largest key of a column.
pub(super) fn range(column: &[Run]) -> (Vec<u8>, Vec<u8>) {
    let tables = || column.iter().flat_map(Run::tables);
    let smallest = tables().map(|table| &table.meta.smallest).min();
    let largest = tables().map(|table| &table.meta.largest).max();
    (smallest.cloned().unwrap_or_default(), largest.cloned().unwrap_or_default())
}

/// Where parts begin in a gap between columns that has these tables below it, of `all` that there are.
fn cut(gap: &[Arc<TableFile>], all: usize) -> impl Iterator<Item = Vec<u8>> {
    let parts = (gap.len() * PARTS + all / 2) / all;
    (0..parts).map(move |part| gap[part * gap.len() / parts].meta.smallest.clone())
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Row, version};
    use super::*;

    fn ids(columns: &[Vec<Run>]) -> Vec<Vec<u64>> {
        let tables = |run: &Run| run.tables().iter().map(|table| table.meta.id).collect::<Vec<_>>();
        columns.iter().map(|column| column.iter().flat_map(tables).collect()).collect()
    }

    #[test]
    fn tables_are_in_one_column_if_keys_lead_from_one_to_the_other() {
        let rows: [Row; 6] = [
            ((0, 9), 9, (b"a", b"c"), 10),
            ((0, 9), 8, (b"m", b"p"), 10),
            ((0, 7), 7, (b"c", b"e"), 10),
            ((0, 7), 6, (b"x", b"z"), 10),
            ((0, 5), 5, (b"e", b"f"), 10),
            ((1, 0), 1, (b"a", b"z"), 10),
        ];
        let columns = columns(&version(&rows));
        assert_eq!(ids(&columns), [vec![9, 7, 5], vec![8], vec![6]]);
        assert_eq!(columns.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1, 1]);
    }

    #[test]
    fn flushes_end_their_tables_where_columns_do() {
        let mut rows: Vec<Row> = vec![
            ((2, 0), 1, (b"b", b"c"), 10),
            ((2, 0), 2, (b"d", b"e"), 10),
            ((2, 0), 3, (b"f", b"g"), 10),
        ];
        assert!(bounds(&version(&rows), 2).is_empty(), "they are few");
        rows.extend([((2, 0), 4, (&b"h"[..], &b"i"[..]), 10), ((2, 0), 5, (b"k", b"l"), 10)]);
        assert_eq!(bounds(&version(&rows), 2), [b"d", b"f", b"h"]);
        rows.push(((0, 6), 6, (b"a", b"z"), 10));
        assert!(bounds(&version(&rows), 2).is_empty(), "it is one column");
        rows.pop();
        rows.extend([((0, 6), 6, (&b"a"[..], &b"e"[..]), 10), ((0, 6), 7, (b"k1", b"z"), 10)]);
        assert_eq!(bounds(&version(&rows), 2), [&b"f"[..], b"h", b"k1"], "the gap has two parts");
    }

    #[test]
    fn a_column_that_was_compacted_begins_again() {
        let below = |id: u64| -> Row { ((2, 0), id, KEYS[id as usize], 10) };
        const KEYS: [(&[u8], &[u8]); 8] = [
            (b"a", b"b"),
            (b"c", b"d"),
            (b"e", b"f"),
            (b"g", b"h"),
            (b"i", b"j"),
            (b"k", b"l"),
            (b"m", b"n"),
            (b"o", b"p"),
        ];
        let mut rows: Vec<Row> = (0..8).map(below).collect();
        let whole = bounds(&version(&rows), 2);
        assert_eq!(whole, [b"e", b"i", b"m"]);
        rows.extend([
            ((0, 9), 9, (&b"a1"[..], &b"d1"[..]), 10),
            ((0, 9), 10, (b"i1", b"l1"), 10),
            ((0, 9), 11, (b"m1", b"p1"), 10),
        ]);
        assert_eq!(bounds(&version(&rows), 2), [&b"e"[..], b"i1", b"m1"]);
        rows.remove(8);
        assert_eq!(bounds(&version(&rows), 2), [&b"e"[..], b"i1", b"m1"]);
    }
}
