//! What every kind of memtable must do, and how each does it. All tests of [`histories`], [`threads`] and [`costs`] run with all
//! kinds, and with prefixes that are shorter and longer than keys.

mod arena;
mod costs;
mod histories;
mod orders;
mod threads;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Memtable, MemtableCursor, new};
use crate::base::{Kind, Seqno, Trailer};
use crate::budget::Budget;
use crate::iter::EntryCursor;
use crate::options::MemtableKind;

/// Has the functions named run, as tests, with each kind.
macro_rules! with_every_kind {
    ($($test:ident),* $(,)?) => {
        mod tagged { $crate::memtable::tests::with_every_kind! { MemtableKind::Tagged => $($test),* } }
        mod skiplist { $crate::memtable::tests::with_every_kind! { MemtableKind::Skiplist => $($test),* } }
        mod vector { $crate::memtable::tests::with_every_kind! { MemtableKind::Vector => $($test),* } }
        mod hash_skiplist { $crate::memtable::tests::with_every_kind! { MemtableKind::HashSkiplist { prefix: 3 } => $($test),* } }
        mod hash_skiplist_of_bytes { $crate::memtable::tests::with_every_kind! { MemtableKind::HashSkiplist { prefix: 1 } => $($test),* } }
        mod hash_skiplist_of_keys { $crate::memtable::tests::with_every_kind! { MemtableKind::HashSkiplist { prefix: 1024 } => $($test),* } }
        mod hash_linklist { $crate::memtable::tests::with_every_kind! { MemtableKind::HashLinklist { prefix: 4 } => $($test),* } }
        mod hash_linklist_of_bytes { $crate::memtable::tests::with_every_kind! { MemtableKind::HashLinklist { prefix: 1 } => $($test),* } }
    };
    ($kind:expr => $($test:ident),*) => {
        use crate::options::MemtableKind;
        $(
            #[test]
            fn $test() {
                super::$test($kind);
            }
        )*
    };
}
use with_every_kind;

/// A memtable, and what it must have: keys and ages, which are the larger the older an entry is, with values.
struct Checked {
    table: Arc<dyn Memtable>,
    model: BTreeMap<(Vec<u8>, u64), Vec<u8>>,
    last: Seqno,
}

type Shown = (Vec<u8>, Seqno, Vec<u8>);

fn age(seqno: Seqno) -> u64 {
    u64::MAX - seqno
}

impl Checked {
    fn new(kind: MemtableKind) -> Self {
        let table = new(kind, &Arc::new(Budget::new(64 << 20)));
        Self { table, model: BTreeMap::new(), last: 0 }
    }

    /// Adds an entry that is the newest of all.
    fn put(&mut self, key: &[u8]) {
        self.last += 1;
        let value = self.last.to_string().into_bytes();
        self.table.insert(key, Trailer::new(self.last, Kind::Put), &value);
        self.model.insert((key.to_vec(), age(self.last)), value);
    }

    /// All entries, in order.
    fn expected(&self) -> Vec<Shown> {
        let entry = |((key, age), value): (&(Vec<u8>, u64), &Vec<u8>)| {
            (key.clone(), u64::MAX - age, value.clone())
        };
        self.model.iter().map(entry).collect()
    }

    /// Gets see what the model has at `at`.
    fn check_get(&self, key: &[u8], at: Seqno) {
        let versions = (key.to_vec(), age(at))..=(key.to_vec(), u64::MAX);
        let expected = self.model.range(versions).next();
        let expected = expected.map(|((_, age), value)| (u64::MAX - age, value.clone()));
        let got = self.table.get(key, at);
        let got = got.map(|(trailer, value)| (trailer.seqno(), value.to_vec()));
        assert_eq!(got, expected, "{:?} at {at}", key.escape_ascii().to_string());
    }

    /// Cursors placed at both ends, and on both sides of an entry that would be `key` at `at`, and from there moved both
    /// ways, meet what the model has.
    fn check_order(&self, cursor: &mut MemtableCursor, key: &[u8], at: Seqno) {
        let expected = self.expected();
        assert_eq!(all(cursor), expected);
        assert!(!cursor.is_valid());
        cursor.seek_to_last().unwrap();
        check_walk(cursor, &expected, expected.len().checked_sub(1), -1, usize::MAX);
        let behind = (key.to_vec(), age(at));
        let split = expected.partition_point(|(key, seqno, _)| (key.clone(), age(*seqno)) < behind);
        let in_front = split.checked_sub(1);
        for (way, steps) in [(1, 9), (-1, 9)] {
            cursor.seek(key, Trailer::visible_at(at)).unwrap();
            check_walk(cursor, &expected, Some(split), way, steps);
            cursor.seek_before(key, Trailer::visible_at(at)).unwrap();
            check_walk(cursor, &expected, in_front, way, steps);
        }
        // To and fro.
        cursor.seek(key, Trailer::visible_at(at)).unwrap();
        for _ in 0..3 {
            check_walk(cursor, &expected, Some(split), 1, 2);
            if cursor.is_valid() {
                check_walk(cursor, &expected, Some(split + 2), -1, 2);
            }
            if !cursor.is_valid() {
                break;
            }
        }
    }
}

/// The cursor is on entry `at`, and meets the others that follow one way, as far as `steps` lead.
fn check_walk(
    cursor: &mut MemtableCursor,
    expected: &[Shown],
    mut at: Option<usize>,
    way: isize,
    steps: usize,
) {
    for step in 0.. {
        let here = at.and_then(|at| expected.get(at));
        assert_eq!(cursor.is_valid().then(|| shown(cursor)).as_ref(), here);
        if step == steps || !cursor.is_valid() {
            break;
        }
        if way > 0 {
            cursor.next().unwrap()
        } else {
            cursor.prev().unwrap()
        }
        at = at.and_then(|at| at.checked_add_signed(way));
    }
}

fn shown(cursor: &MemtableCursor) -> Shown {
    (cursor.key().to_vec(), cursor.trailer().seqno(), cursor.value().to_vec())
}

/// All entries from the first on.
fn all(cursor: &mut MemtableCursor) -> Vec<Shown> {
    let mut entries = Vec::new();
    cursor.seek_to_first().unwrap();
    while cursor.is_valid() {
        entries.push(shown(cursor));
        cursor.next().unwrap();
    }
    entries
}

#[test]
fn a_wrong_model_is_noticed() {
    for change in 0..3 {
        let mut checked = Checked::new(MemtableKind::Skiplist);
        (0..9u8).for_each(|key| checked.put(&[key]));
        match change {
            0 => _ = checked.model.remove(&(vec![4], age(5))),
            1 => _ = checked.model.insert((vec![4], age(3)), vec![]),
            _ => _ = checked.model.insert((vec![4], age(5)), vec![]),
        }
        let cursor = || checked.check_order(&mut checked.table.cursor(), &[4], 9);
        let get = || checked.check_get(&[4], if change == 1 { 4 } else { 9 });
        for check in [&cursor as &dyn Fn(), &get] {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err());
        }
    }
}
