//! Models of what the writer and readers share: each runs in the orders that loom finds, with at most two preemptions,
//! and fails in one of them if a store that makes something known stops being a release, or the load that hears of it stops
//! being an acquire. `models/` runs them.
//!
//! Kinds are small here: two levels, segments of one slot, nodes of three, lists that grow out of their heads with the
//! second entry. Readers look at the number of entries first, and then must find so many; and whatever they find must be whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;

use super::{Memtable, new, order};
use crate::base::{Kind, Seqno, Trailer};
use crate::budget::Budget;
use crate::iter::EntryCursor;
use crate::options::MemtableKind;

type Keys = [Vec<u8>; 3];

/// The models, by what they are about. They give the number of runs.
pub(crate) const ALL: &[(&str, fn() -> usize)] = &[
    ("gets from tags while segments split", || gets(MemtableKind::Tagged, keys_that_part())),
    ("gets from a skip list", || gets(MemtableKind::Skiplist, keys_around())),
    ("gets from lists while segments split", || {
        gets(MemtableKind::HashLinklist { prefix: 8 }, keys_that_part())
    }),
    ("gets from a list that gets another head", || {
        gets(MemtableKind::HashSkiplist { prefix: 1 }, keys_around())
    }),
    ("walks over a skip list", || walks(MemtableKind::Skiplist)),
    ("walks within a prefix", || walks(MemtableKind::HashSkiplist { prefix: 1 })),
    ("searches in an order that grows", order::model::searches),
];

/// Keys that are written in this order: the first before there are readers, the others on both sides of it.
fn keys_around() -> Keys {
    ["kb", "ka", "kc"].map(|key| key.as_bytes().to_vec())
}

/// Keys whose tags differ in the first bit, or in the second: with each that comes, the first one moves to a new segment.
fn keys_that_part() -> Keys {
    [0b11, 0b00, 0b10].map(|bits| {
        let has_bits = |key: &Vec<u8>| xxhash_rust::xxh3::xxh3_64_with_seed(key, 0) >> 62 == bits;
        (0..=255).map(|byte| vec![byte]).find(has_bits).expect("one in four keys")
    })
}

/// Runs `model` in all orders, and gives how many there were.
pub(super) fn run(model: impl Fn() + Send + Sync + 'static) -> usize {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    runs.load(Ordering::Relaxed)
}

/// A memtable with the first key, and a thread that writes the others.
fn begin(kind: MemtableKind, keys: &Keys) -> (Arc<dyn Memtable>, thread::JoinHandle<()>) {
    let table = new(kind, &Arc::new(Budget::new(64 << 20)));
    put(&*table, keys, 1);
    let (writing, keys) = (Arc::clone(&table), keys.clone());
    let writer = thread::spawn(move || (2..=3).for_each(|seqno| put(&*writing, &keys, seqno)));
    (table, writer)
}

fn put(table: &dyn Memtable, keys: &Keys, seqno: Seqno) {
    let key = &keys[seqno as usize - 1];
    table.insert(key, Trailer::new(seqno, Kind::Put), key);
}

fn gets(kind: MemtableKind, keys: Keys) -> usize {
    run(move || {
        let (table, writer) = begin(kind, &keys);
        let count = table.entries();
        for (seqno, key) in (1..).zip(&keys) {
            match table.get(key, Seqno::MAX) {
                Some((trailer, value)) => assert!(trailer.seqno() == seqno && value == *key),
                None => assert!(seqno > count, "{seqno} of {count}"),
            }
        }
        writer.join().expect("it does not panic");
    })
}

fn walks(kind: MemtableKind) -> usize {
    let keys = keys_around();
    run(move || {
        let (table, writer) = begin(kind, &keys);
        let count = table.entries();
        let mut cursor = table.cursor();
        let mut seen = 0;
        cursor.seek(b"k", Trailer::NEWEST).expect("memory can be read");
        let mut before = Vec::new();
        while cursor.is_valid() {
            assert!(cursor.key() > &before[..] && cursor.key() == cursor.value());
            before = cursor.key().to_vec();
            seen += u64::from(cursor.trailer().seqno() <= count);
            // Behind the last one, a cursor within a prefix would go by the order.
            if seen == count {
                break;
            }
            cursor.next().expect("memory can be read");
        }
        assert_eq!(seen, count);
        writer.join().expect("it does not panic");
    })
}
