//! Merges with range tombstones, bounds and parts: what comes of them reads like what was merged, and lies where it should.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::base::key::compare;
use crate::base::ranges::sample::keys;
use crate::base::{Kind, RangeTombstone, Span};
use crate::budget::Budget;
use crate::error::ErrorKind;
use crate::iter::sample::{Entry, Sorted};
use crate::iter::{Merge, OrderedCursor, Visible};
use crate::lsm::cursor::{PartCursor, RunCursor};
use crate::lsm::merging::{range_tombstones, runs};
use crate::lsm::ranges::Uncovered;
use crate::lsm::read_trigger::ReadTrigger;
use crate::lsm::state::State;
use crate::lsm::table::ReadMode;
use crate::lsm::values::{Moves, ValueFiles};
use crate::lsm::version::{Place, Run, Version, sample};
use crate::memtable::Memtables;
use crate::options::MemtableKind;

/// A key, what is done, and an end, for those that delete a range.
type Write = (Vec<u8>, u8, Option<Vec<u8>>);
type Content = BTreeMap<Vec<u8>, Vec<u8>>;

struct Bed {
    home: Arc<Home>,
    next: Cell<u64>,
    limits: TableLimits,
    soft_bounds: Vec<Vec<u8>>,
    /// How often it was asked whether to stop.
    asked: Cell<usize>,
}

impl Bed {
    fn write(
        &self,
        cursor: &mut impl EntryCursor,
        retention: &mut Retention,
        is_deepest: bool,
        (bounds, end): (&[Vec<u8>], Option<&[u8]>),
    ) -> Vec<Arc<TableFile>> {
        let tables = self.try_write(cursor, retention, is_deepest, (bounds, end));
        tables.expect("there is room").expect("nobody stops it")
    }

    fn try_write(
        &self,
        cursor: &mut impl EntryCursor,
        retention: &mut Retention,
        is_deepest: bool,
        (bounds, end): (&[Vec<u8>], Option<&[u8]>),
    ) -> Result<Option<Vec<Arc<TableFile>>>> {
        let none = ValueFiles::default();
        let mut next_id = || {
            self.next.set(self.next.get() + 1);
            self.next.get()
        };
        let mut output = Output {
            home: &self.home,
            // Blocks of one long value each, which go as a whole, and of several short ones.
            options: &TableOptions { block_size: 64, ..TableOptions::default() },
            limits: self.limits,
            bounds,
            soft_bounds: &self.soft_bounds,
            end,
            next_id: &mut next_id,
            valve: None,
            values: Placement::new(&self.home, &none, Moves::Crowded, None, 1 << 20),
            aside: None,
            stopped: &|| {
                self.asked.set(self.asked.get() + 1);
                false
            },
        };
        write_tables(cursor, retention, |_| is_deepest, &mut output)
    }

    /// Writes all of some writes as a flush does, the first of them as number `first`.
    fn flush(&self, writes: &[Write], first: Seqno, bounds: &[Vec<u8>]) -> Vec<Arc<TableFile>> {
        let (mut entries, mut tombstones) = (Vec::new(), Vec::new());
        for (seqno, (key, kind, end)) in (first..).zip(writes) {
            let (key, kind) = match kind {
                0 => (key.clone(), Kind::Delete),
                1..5 => (key.clone(), Kind::Put),
                _ => {
                    let span = Span { start: key, end: end.as_deref() };
                    tombstones.push(RangeTombstone::new(span, seqno));
                    continue;
                }
            };
            let value = if kind == Kind::Put { value(seqno) } else { Vec::new() };
            entries.push(Entry { key, trailer: Trailer::new(seqno, kind), value });
        }
        entries.sort_by(|a, b| compare(a.place(), b.place()));
        let mut cursor = Sorted::new(entries);
        cursor.seek_to_first().unwrap();
        let mut retention = Retention::new(Vec::new()).with_ranges(&tombstones, |_, _| false);
        self.write(&mut cursor, &mut retention, false, (bounds, None))
    }

    /// Merges all that `tables` have of one part.
    fn merge(
        &self,
        tables: &[Arc<TableFile>],
        (readable, is_deepest): (&[Seqno], bool),
        (from, to): (Option<&[u8]>, Option<&[u8]>),
        bounds: &[Vec<u8>],
    ) -> Vec<Arc<TableFile>> {
        let (start, end): (Arc<[u8]>, _) = (from.unwrap_or_default().into(), End::new(to));
        let tombstones = range_tombstones(tables).unwrap();
        let tombstones: Vec<_> =
            tombstones.iter().filter_map(|tombstone| tombstone.clip(&start, &end)).collect();
        let mut retention =
            Retention::new(readable.to_vec()).with_ranges(&tombstones, |_, _| is_deepest);
        let cursor = |run| PartCursor::Right(RunCursor::new(run, ReadMode::Sequential));
        let mut cursor = Merge::new(runs(tables).into_iter().map(cursor).collect());
        cursor.seek(from.unwrap_or_default(), Trailer::NEWEST).unwrap();
        let written = self.write(&mut cursor, &mut retention, is_deepest, (bounds, to));
        for table in &written {
            assert!(from.is_none_or(|from| *table.meta.smallest >= *from));
            assert!(to.is_none_or(|to| *table.meta.largest < *to), "{to:?} {:?}", table.meta);
        }
        written
    }
}

/// It is no use to try again.
#[test]
fn entries_out_of_order_are_damage() {
    let limits = TableLimits { bytes: 1000, memory: usize::MAX };
    let home = sample::home();
    let bed =
        Bed { home, next: Cell::new(0), limits, soft_bounds: Vec::new(), asked: Cell::new(0) };
    for (first, second) in [("b", "a"), ("a", "a")] {
        let put = |key: &str| {
            let trailer = Trailer::new(1, Kind::Put);
            Entry { key: key.into(), trailer, value: vec![1] }
        };
        let mut cursor = Sorted::new(vec![put(first), put(second)]);
        cursor.seek_to_first().unwrap();
        // Both are there to be seen.
        let mut retention = Retention::new(Vec::new());
        let written = bed.try_write(&mut cursor, &mut retention, false, (&[], None));
        assert_eq!(written.map(drop).unwrap_err().kind(), ErrorKind::Corruption);
        assert!(bed.home.fs.list(&bed.home.dir).unwrap().is_empty());
    }
}

fn value(seqno: Seqno) -> Vec<u8> {
    vec![seqno as u8; if seqno.is_multiple_of(4) { 5 } else { 100 }]
}

/// What a reader at `at` has to see.
fn content(writes: &[Write], at: Seqno) -> Content {
    let mut content = Content::new();
    for (seqno, (key, kind, end)) in (1..=at).zip(writes) {
        match kind {
            0 => _ = content.remove(key),
            1..5 => _ = content.insert(key.clone(), value(seqno)),
            _ => content
                .retain(|other, _| other < key || end.as_ref().is_some_and(|end| other >= end)),
        }
    }
    content
}

/// What a reader at `at` sees of tables, one run behind the other.
fn check(version: &Version, writes: &[Write], at: Seqno) {
    let memtables = Memtables::new(MemtableKind::default(), &Arc::new(Budget::new(8 << 20)));
    let state = State::new(memtables, version.clone());
    let expected = content(writes, at);
    for key in keys() {
        let found = state.get(&key, at).unwrap();
        assert_eq!(found.as_deref(), expected.get(&key).map(|value| &value[..]), "{key:?} at {at}");
    }
    let (entries, ranges) = state.entries_and_ranges(at, &Arc::new(ReadTrigger::new(|| {})));
    let mut cursor = Visible::new(Uncovered::new(entries, ranges), at);
    cursor.seek_to_first().unwrap();
    let mut seen = Content::new();
    while cursor.is_valid() {
        seen.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    assert_eq!(seen, expected, "at {at}");
}

fn verify(version: &Version) {
    for table in version.tables() {
        table.table().unwrap().verify(&mut |_, _| {}).unwrap();
    }
}

/// Whether no table lies on both sides of a bound.
fn are_apart(tables: &[Arc<TableFile>], bounds: &[Vec<u8>]) -> bool {
    let is_apart = |table: &Arc<TableFile>, bound: &Vec<u8>| {
        table.meta.smallest >= follower_below(bound) || table.meta.largest < *bound
    };
    tables.iter().all(|table| bounds.iter().all(|bound| is_apart(table, bound)))
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0..3_u8, 0..3)
}

fn ascending() -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::btree_set(proptest::collection::vec(0..3_u8, 1..3), 0..4)
        .prop_map(|keys| keys.into_iter().collect())
}

fn write() -> impl Strategy<Value = Write> {
    let write = (key(), 0..7_u8, proptest::option::weighted(0.8, key()));
    write.prop_filter("a range has keys", |(key, kind, end)| {
        *kind < 5 || end.as_ref().is_none_or(|end| key < end)
    })
}

/// Tables are to have about 40 of these, and end where a table of the next level begins, if that is among the last quarter or
/// the first half of as many more.
#[test]
fn tables_end_where_those_of_the_next_level_begin() {
    let key = |number: usize| format!("{number:04}").into_bytes();
    let write = |number| -> Write { (key(number), 1, None) };
    let writes: Vec<_> = (0..400).map(write).collect();
    let ends = |soft: &[usize]| -> Vec<usize> {
        let limits = TableLimits { bytes: 40 * 110, memory: usize::MAX };
        let soft_bounds = soft.iter().map(|&number| key(number)).collect();
        let bed = Bed {
            home: sample::home(),
            next: Cell::new(0),
            limits,
            soft_bounds,
            asked: Cell::new(0),
        };
        let tables = bed.flush(&writes, 1, &[]);
        let number = |key: &[u8]| std::str::from_utf8(key).unwrap().parse::<usize>().unwrap();
        tables.iter().map(|table| number(&table.meta.largest) + 1).collect()
    };
    // About: footers, indexes and filters count too.
    let usual = ends(&[])[0];
    assert!((30..50).contains(&usual), "{usual}");
    let sooner = usual * 7 / 8;
    let later = sooner + usual * 11 / 8;
    let much_too_soon = later + usual / 2;
    let ends_there = ends(&[sooner, later, much_too_soon]);
    assert_eq!(ends_there[..2], [sooner, later]);
    // Where there is no bound any more they are as long as ever.
    let far = ends_there[2] - later;
    assert!(far.abs_diff(usual) <= 2, "{ends_there:?}, {usual}");
    // And none is longer than half as long again.
    let longest = ends(&[390])[0];
    assert!((usual * 4 / 3..usual * 5 / 3).contains(&longest), "{longest} of {usual}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn tables_read_like_what_was_merged(
        flushes in proptest::collection::vec((proptest::collection::vec(write(), 1..16), ascending()), 1..4),
        (bounds, soft_bounds) in (ascending(), ascending()),
        cuts in ascending(),
        readable in proptest::collection::btree_set(0_u64..40, 0..3),
        bytes in prop_oneof![Just(1_u64), Just(400), Just(u64::MAX)],
        is_deepest in any::<bool>(),
    ) {
        let limits = TableLimits { bytes, memory: usize::MAX };
        let bed = Bed { home: sample::home(), next: Cell::new(0), limits, soft_bounds, asked: Cell::new(0) };
        let (mut writes, mut version, mut inputs) = (Vec::new(), Version::default(), Vec::new());
        for (number, (flush, bounds)) in (1..).zip(&flushes) {
            let tables = bed.flush(flush, writes.len() as Seqno + 1, bounds);
            prop_assert!(are_apart(&tables, bounds));
            writes.extend_from_slice(flush);
            let place = Place { level: 0, run: number };
            let added: Vec<_> = tables.iter().map(|table| (place, Arc::clone(table))).collect();
            version = version.with(&[], &added).expect("no table meets another one");
            inputs.extend(tables);
        }
        let last = writes.len() as Seqno;
        (0..=last).step_by(7).for_each(|at| check(&version, &writes, at));
        verify(&version);
        let mut readable: BTreeSet<Seqno> = readable.into_iter().filter(|&at| at < last).collect();
        readable.insert(last);
        let readable: Vec<Seqno> = readable.into_iter().collect();
        let mut tables = Vec::new();
        let cuts: Vec<_> = cuts.iter().map(|cut| [&cut[..], &[0]].concat()).collect();
        for part in 0..=cuts.len() {
            let range = (part.checked_sub(1).map(|before| &cuts[before][..]), cuts.get(part).map(|cut| &cut[..]));
            tables.extend(bed.merge(&inputs, (&readable, is_deepest), range, &bounds));
        }
        prop_assert!(are_apart(&tables, &bounds));
        let place = Place::merged(6);
        prop_assert!(tables.is_empty() || Run::new(place, tables.clone()).is_some(), "{tables:?}");
        let added: Vec<_> = tables.iter().map(|table| (place, Arc::clone(table))).collect();
        let merged = Version::default().with(&[], &added).expect("no table meets another one");
        readable.iter().for_each(|&at| check(&merged, &writes, at));
        verify(&merged);
        if is_deepest && readable.len() == 1 {
            let left: u64 = tables.iter().map(|table| table.meta.ranges + table.meta.tombstones).sum();
            prop_assert_eq!(left, 0, "nothing older lies deeper");
        }
        prop_assert!(tables.iter().all(|table| table.meta.entries + table.meta.ranges > 0));
    }
}

/// Whoever closes the database, or clears the keyspace, waits for the answer.
#[test]
fn a_merge_of_large_values_is_asked_to_stop_as_often_as_one_of_many() {
    let asked = |count: u32, len: usize, are_blocks: bool| {
        let limits = TableLimits { bytes: 64 << 20, memory: usize::MAX };
        let (soft_bounds, asked) = (Vec::new(), Cell::new(0));
        let bed = Bed { home: sample::home(), next: Cell::new(0), limits, soft_bounds, asked };
        let put = |number: u32| Entry {
            key: number.to_be_bytes().to_vec(),
            trailer: Trailer::new(1, Kind::Put),
            value: vec![1; len],
        };
        let mut cursor = Sorted::new((0..count).map(put).collect());
        cursor.seek_to_first().unwrap();
        let retention = || Retention::new(vec![9]);
        let tables = bed.write(&mut cursor, &mut retention(), true, (&[], None));
        if are_blocks {
            bed.asked.set(0);
            let run = Run::new(Place::merged(1), tables).unwrap();
            let mut cursor = Merge::new(vec![RunCursor::new(run, ReadMode::Sequential)]);
            cursor.seek_to_first().unwrap();
            bed.write(&mut cursor, &mut retention(), true, (&[], None));
        }
        bed.asked.get()
    };
    for are_blocks in [false, true] {
        assert_eq!(asked(1000, 10, are_blocks), 0);
        assert_eq!(asked(17, 1 << 20, are_blocks), 4, "blocks as a whole: {are_blocks}");
    }
    assert_eq!(asked(5000, 10, false), 4);
}
