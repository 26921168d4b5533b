//! Models of what the writer and readers share: each runs in all orders that loom finds, with at most two preemptions,
//! and fails in one of them if a store that makes something known stops being a release. See `models/`.
//!
//! Kinds are small here: two levels, segments of one slot, nodes of three, lists that grow out of their heads with the
//! second entry. Readers look at the number of entries first, and then must find so many; and whatever they find must be whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;

use super::Memtable;
use super::new;
use crate::base::{Kind, Seqno, Trailer};
use crate::budget::Budget;
use crate::iter::EntryCursor;
use crate::options::MemtableKind;

/// The models, by what they are about. They give the number of runs.
pub(crate) const ALL: &[(&str, fn() -> usize)] = &[
    ("gets from tags while segments split", || gets(MemtableKind::Tagged)),
    ("gets from a skip list", || gets(MemtableKind::Skiplist)),
    ("gets from lists that get other heads", || gets(MemtableKind::HashSkiplist { prefix: 1 })),
    ("gets from lists while segments split", || gets(MemtableKind::HashLinklist { prefix: 8 })),
    ("walks over a skip list", || walks(MemtableKind::Skiplist)),
    ("walks within a prefix", || walks(MemtableKind::HashSkiplist { prefix: 1 })),
    ("searches in an order that grows", super::order::model::searches),
];

/// The keys that are written, in this order: the first before there are readers.
const KEYS: [&[u8]; 3] = [b"kb", b"ka", b"kc"];

/// Runs `model` in all orders, and gives how many there were.
pub(super) fn run(model: impl Fn() + Send + Sync + 'static) -> usize {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    runs.load(Ordering::Relaxed)
}

/// A memtable with the first key, and a thread that writes the others.
fn begin(kind: MemtableKind) -> (Arc<dyn Memtable>, thread::JoinHandle<()>) {
    let table = new(kind, &Arc::new(Budget::new(64 << 20)));
    put(&*table, 1);
    let writing = Arc::clone(&table);
    let writer =
        thread::spawn(move || (2..=KEYS.len() as Seqno).for_each(|seqno| put(&*writing, seqno)));
    (table, writer)
}

fn put(table: &dyn Memtable, seqno: Seqno) {
    let key = KEYS[seqno as usize - 1];
    table.insert(key, Trailer::new(seqno, Kind::Put), key);
}

fn gets(kind: MemtableKind) -> usize {
    run(move || {
        let (table, writer) = begin(kind);
        let count = table.entries();
        for (seqno, key) in (1..).zip(KEYS) {
            match table.get(key, Seqno::MAX) {
                Some((trailer, value)) => assert_eq!((trailer.seqno(), &*value), (seqno, key)),
                None => assert!(seqno > count, "{seqno} of {count}"),
            }
        }
        writer.join().unwrap();
        assert!(KEYS.iter().all(|key| table.get(key, Seqno::MAX).is_some()));
    })
}

fn walks(kind: MemtableKind) -> usize {
    run(move || {
        let (table, writer) = begin(kind);
        let count = table.entries();
        let mut cursor = table.cursor();
        let mut seen = 0;
        cursor.seek(b"k", Trailer::NEWEST).unwrap();
        let mut before = Vec::new();
        while cursor.is_valid() {
            assert!(cursor.key() > &before[..] && cursor.key() == cursor.value());
            before = cursor.key().to_vec();
            seen += u64::from(cursor.trailer().seqno() <= count);
            // Behind the last of them the order would be made.
            if cursor.key() == b"kb" {
                break;
            }
            cursor.next().unwrap();
        }
        assert_eq!(seen, count.min(2));
        writer.join().unwrap();
    })
}
