//! The index against a simple model, with hashes that are hard on it, and under readers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{Address, Entry, Found, HASH_BITS, Index, IndexWriter};
use crate::base::hash::hash64;

const KNOWN: u64 = (1 << HASH_BITS) - 1;

fn random(i: u64) -> u64 {
    hash64(&i.to_le_bytes())
}

fn entry(address: u64) -> Entry {
    let address = Address::new((address >> 17) as u32, (address & 0x1ffff) as u32);
    Entry::new(address, 1 + address.unit() % 1000, address.bits().is_multiple_of(3))
}

fn found(index: &Index, hash: u64) -> Vec<Entry> {
    let mut found = Found::new();
    index.find(hash, &mut found);
    sorted(found.as_slice().to_vec())
}

fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|entry| entry.address());
    entries
}

/// What visiting all buckets shows, by hash.
fn visited(index: &Index, writer: &IndexWriter) -> HashMap<u64, Vec<Entry>> {
    let mut all: HashMap<u64, Vec<Entry>> = HashMap::new();
    for bucket in 0..writer.buckets() {
        writer.visit(index, bucket, |hash, entry| all.entry(hash).or_default().push(entry));
    }
    all.into_iter().map(|(hash, entries)| (hash, sorted(entries))).collect()
}

#[derive(Clone, Debug)]
enum Op {
    /// Inserts so many entries for a hash.
    Insert(u64, u8),
    /// Inserts entries with random hashes, so that there are splits.
    Grow(u16),
    /// Replaces or removes one of the entries of a hash.
    Replace(u64, usize),
    Remove(u64, usize),
    RemoveAll(u64),
}

/// Hashes of which many are equal, differ in the high bits only, or differ only in one stored bit.
fn hard_hash() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..4_u64,
        (0..4_u64).prop_map(|low| low << 6),
        (0..HASH_BITS).prop_map(|bit| 1 << bit),
        (0..20_u64, HASH_BITS..64).prop_map(|(low, bit)| low | 1 << bit),
        (0..8_u64).prop_map(|tag| tag << 23 | 5),
        (0..40_u64).prop_map(random),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (hard_hash(), 1..12_u8).prop_map(|(hash, count)| Op::Insert(hash, count)),
        1 => (0..400_u16).prop_map(Op::Grow),
        2 => (hard_hash(), any::<usize>()).prop_map(|(hash, at)| Op::Replace(hash, at)),
        3 => (hard_hash(), any::<usize>()).prop_map(|(hash, at)| Op::Remove(hash, at)),
        1 => hard_hash().prop_map(Op::RemoveAll),
    ]
}

struct Model {
    entries: HashMap<u64, Vec<Entry>>,
    next: u64,
}

impl Model {
    fn fresh(&mut self) -> Entry {
        self.next += 1;
        entry(self.next)
    }

    fn of(&mut self, hash: u64) -> &mut Vec<Entry> {
        self.entries.entry(hash & KNOWN).or_default()
    }

    fn insert(&mut self, index: &Index, writer: &mut IndexWriter, hash: u64) {
        let entry = self.fresh();
        writer.insert(index, hash, entry);
        self.of(hash).push(entry);
    }

    fn apply(&mut self, index: &Index, writer: &mut IndexWriter, op: &Op) {
        match *op {
            Op::Insert(hash, count) => {
                (0..count).for_each(|_| self.insert(index, writer, hash));
            }
            Op::Grow(count) => {
                (0..count).for_each(|_| self.insert(index, writer, random(self.next + 1000)));
            }
            Op::Replace(hash, at) => {
                let new = self.fresh();
                let Some(at) = at.checked_rem(self.of(hash).len()) else {
                    return assert!(!writer.replace(index, hash, new.address(), new));
                };
                let old = std::mem::replace(&mut self.of(hash)[at], new);
                assert!(writer.replace(index, hash, old.address(), new));
                assert!(!writer.replace(index, hash, old.address(), new));
            }
            Op::Remove(hash, at) => {
                let Some(at) = at.checked_rem(self.of(hash).len()) else {
                    return assert!(!writer.remove(index, hash, entry(1).address()));
                };
                let old = self.of(hash).swap_remove(at);
                assert!(writer.contains(index, hash, old.address()));
                assert!(writer.remove(index, hash, old.address()));
                assert!(!writer.contains(index, hash, old.address()));
            }
            Op::RemoveAll(hash) => {
                for old in std::mem::take(self.of(hash)) {
                    assert!(writer.remove(index, hash, old.address()));
                }
            }
        }
        assert_eq!(found(index, op.hash()), sorted(self.of(op.hash()).clone()));
    }
}

impl Op {
    fn hash(&self) -> u64 {
        match *self {
            Self::Insert(hash, _)
            | Self::Replace(hash, _)
            | Self::Remove(hash, _)
            | Self::RemoveAll(hash) => hash,
            Self::Grow(count) => random(u64::from(count)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn does_what_a_map_does(expected in 0..2000_u64, ops in prop::collection::vec(op(), 1..80)) {
        let (index, mut writer) = Index::new(expected);
        let mut model = Model { entries: HashMap::new(), next: 0 };
        for op in &ops {
            model.apply(&index, &mut writer, op);
        }
        model.entries.retain(|_, entries| !entries.is_empty());
        for (&hash, entries) in &model.entries {
            prop_assert_eq!(found(&index, hash | 1 << 63), sorted(entries.clone()));
        }
        let count: usize = model.entries.values().map(Vec::len).sum();
        prop_assert_eq!(index.entries(), count as u64);
        let expected: HashMap<_, _> =
            model.entries.into_iter().map(|(hash, entries)| (hash, sorted(entries))).collect();
        prop_assert_eq!(visited(&index, &writer), expected);
    }
}

#[test]
fn grows_by_a_little_and_empties() {
    const COUNT: u64 = 1_000_000;
    let (index, mut writer) = Index::new(0);
    for i in 1..=COUNT {
        let before = writer.buckets();
        writer.insert(&index, random(i), entry(i));
        assert!(writer.buckets() - before <= 1);
    }
    let bytes = index.memory() as u64;
    assert!((COUNT * 12..COUNT * 20).contains(&bytes), "{bytes} bytes for {COUNT} entries");
    for i in 1..=COUNT {
        assert!(found(&index, random(i)).contains(&entry(i)), "{i}");
    }
    for i in 1..=COUNT {
        assert!(writer.remove(&index, random(i), entry(i).address()), "{i}");
    }
    assert_eq!(index.entries(), 0);
    assert!(visited(&index, &writer).is_empty());
    // All buckets are free to be used again.
    (1..=COUNT).for_each(|i| writer.insert(&index, random(i), entry(i)));
    assert!(index.memory() as u64 <= bytes);
}

#[test]
fn a_sized_index_need_not_grow() {
    let (index, mut writer) = Index::new(100_000);
    let (buckets, bytes) = (writer.buckets(), index.memory());
    (1..=100_000).for_each(|i| writer.insert(&index, random(i), entry(i)));
    assert_eq!(writer.buckets(), buckets);
    assert!(bytes < 100_000 * 20 && index.memory() < bytes * 3 / 2);
}

#[test]
fn overflow_buckets_are_used_again() {
    let (index, mut writer) = Index::new(0);
    let mut memory = None;
    for round in 0..5 {
        let addresses = || (1..=280).map(|i| entry(1000 * round + i));
        addresses().for_each(|entry| writer.insert(&index, 77, entry));
        assert_eq!(found(&index, 77), addresses().collect::<Vec<_>>());
        addresses().for_each(|entry| assert!(writer.remove(&index, 77, entry.address())));
        assert_eq!(*memory.get_or_insert(index.memory()), index.memory());
    }
}

/// The entry of key `key` in its form `generation`.
fn form(key: u64, generation: u64) -> Entry {
    Entry::new(Address::new(key as u32, generation as u32), 1, generation.is_multiple_of(2))
}

/// Few buckets get most keys, so that their overflow is long, and some keys have equal hashes.
fn crowded(key: u64) -> u64 {
    match key % 4 {
        0 => (key / 40) << 23 | 9,
        1 => (random(key) & !0xfff) | (key % 64),
        _ => random(key),
    }
}

/// What the threads of the test below agree on: keys below `ready` are there, but multiples of 3 come and
/// go.
#[derive(Default)]
struct Shared {
    ready: AtomicU64,
    done: AtomicBool,
}

fn write(index: &Index, mut writer: IndexWriter, shared: &Shared, until: Instant) -> u64 {
    let mut generations: Vec<u64> = Vec::new();
    let mut round = 0;
    while Instant::now() < until || round < 100 {
        let keys = generations.len() as u64;
        for key in keys..(keys + 50).min(75_000) {
            writer.insert(index, crowded(key), form(key, 1));
            shared.ready.store(key + 1, Ordering::Release);
        }
        generations.resize((keys as usize + 50).min(75_000), 1);
        for i in 0..50 {
            let key = random(round << 8 | i) % generations.len() as u64;
            let generation = &mut generations[key as usize];
            let (old, new) = (form(key, *generation).address(), form(key, *generation + 1));
            if key.is_multiple_of(3) {
                assert!(writer.remove(index, crowded(key), old));
                writer.insert(index, crowded(key), new);
            } else {
                assert!(writer.replace(index, crowded(key), old, new));
            }
            *generation += 1;
        }
        round += 1;
    }
    shared.done.store(true, Ordering::Release);
    round
}

/// Checks searches until the writer is done; says how many.
fn read(index: &Index, shared: &Shared, seed: u64) -> u64 {
    let mut found = Found::new();
    let (mut searches, mut last) = (0, HashMap::new());
    while !shared.done.load(Ordering::Acquire) {
        let Some(key) =
            random(searches ^ seed << 32).checked_rem(shared.ready.load(Ordering::Acquire))
        else {
            continue;
        };
        index.find(crowded(key), &mut found);
        let address = |entry: &Entry| entry.address();
        let own: Vec<_> =
            found.as_slice().iter().map(address).filter(|a| u64::from(a.slot()) == key).collect();
        assert!(own.len() <= 1 && (own.len() == 1 || key % 3 == 0), "{key}: {own:?}");
        if let Some(own) = own.first() {
            let last = last.insert(key, own.unit()).unwrap_or(0);
            assert!(last <= own.unit(), "{key} went back from {last} to {}", own.unit());
        }
        for entry in found.as_slice() {
            let other = u64::from(entry.address().slot());
            assert_eq!(crowded(other) & KNOWN, crowded(key) & KNOWN);
            assert_eq!(*entry, form(other, entry.address().unit().into()));
        }
        searches += 1;
    }
    searches
}

#[test]
fn readers_find_what_is_there() {
    let (index, writer) = Index::new(0);
    let shared = Shared::default();
    let until = Instant::now() + Duration::from_secs(1);
    std::thread::scope(|scope| {
        let readers = [1, 2].map(|seed| {
            scope.spawn({
                let (index, shared) = (&index, &shared);
                move || read(index, shared, seed)
            })
        });
        let rounds = write(&index, writer, &shared, until);
        for reader in readers {
            assert!(reader.join().unwrap() > 1000, "while the writer did {rounds} rounds");
        }
    });
}

/// Small indexes, where it is likely that just the bucket a reader is looking for is split.
#[test]
fn readers_follow_what_a_split_moves() {
    const EARLY: u64 = 200;
    for round in 0..300 {
        let (index, mut writer) = Index::new(0);
        let hash = |i: u64| random(i | round << 32);
        (1..=EARLY).for_each(|i| writer.insert(&index, hash(i), entry(i)));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut found = Found::new();
                for i in (1..=EARLY).cycle() {
                    index.find(hash(i), &mut found);
                    assert!(found.as_slice().contains(&entry(i)), "{i}");
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for i in EARLY..3000 {
                writer.insert(&index, hash(i + 1), entry(i + 1));
            }
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
    }
}

#[test]
fn what_was_inserted_twice_is_there_once() {
    let (index, mut writer) = Index::new(0);
    // Of a few hashes, and each of them once to three times.
    for at in 1..1000 {
        (0..=at % 3).for_each(|_| writer.insert(&index, at % 7, entry(at)));
    }
    let mut seen = Vec::new();
    for bucket in 0..writer.buckets() {
        writer.tidy(&index, bucket, |entries| seen.extend_from_slice(entries));
    }
    assert_eq!(sorted(seen), (1..1000).map(entry).collect::<Vec<_>>());
    assert_eq!(index.entries(), 999);
    for hash in 1..7 {
        let all: Vec<_> = (hash..1000).step_by(7).map(entry).collect();
        assert_eq!(found(&index, hash), all);
    }
}
