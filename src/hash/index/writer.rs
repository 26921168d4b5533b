//! How the index is changed.
//!
//! A main bucket that is full leads to overflow buckets; of these only the first one has empty places, so
//! that adding an entry costs the same however many there are. When an entry is removed or a bucket is
//! split, all its entries are taken out and put back.
//!
//! Thread safety: one thread at a time. Methods take the index that the writer was made with.

use std::sync::atomic::Ordering;

use super::bucket::{Bucket, Link, MAX_OVERFLOW, PLACES, Stored};
use super::entry::{Address, Entry, Found};
use super::{HASH_BITS, Index, bucket_of, chain};
use crate::base::prefetch::prefetch;
use crate::planted::{Bug, planted};

/// Main buckets are added until there are no more entries than this for four of them, which have 24 places.
/// That is 17 bytes for an entry, and one search in five of those that find something, one in ten of the
/// others, reads a second cache line. With 16 entries it is 18.3 bytes and one in seven.
const ENTRIES_PER_FOUR: u64 = 18;
const MIN_BUCKETS: u64 = 64;

/// The main buckets that are enough for so many entries.
pub(super) fn buckets_for(entries: u64) -> u64 {
    let enough = entries.saturating_mul(4).div_ceil(ENTRIES_PER_FOUR);
    enough.clamp(MIN_BUCKETS, 1 << HASH_BITS)
}

/// How many entries so many main buckets are for.
pub(super) fn capacity_of(buckets: u64) -> u64 {
    buckets * ENTRIES_PER_FOUR / 4
}

/// Whether main buckets must be added: there are too many entries for them, or links to overflow buckets
/// begin to run out.
fn is_full(entries: u64, buckets: u64, overflow: u64) -> bool {
    4 * entries > ENTRIES_PER_FOUR * buckets || overflow > MAX_OVERFLOW / 2
}

/// The right to change an [`Index`], and what only its writer needs to know.
pub(crate) struct IndexWriter {
    entries: u64,
    buckets: u64,
    overflow: Overflow,
    /// Entries that are being moved: those that stay in their bucket, and those that leave it. Empty in
    /// between; kept for their memory.
    stay: Vec<Stored>,
    leave: Vec<Stored>,
}

impl IndexWriter {
    /// The writer of an empty index with so many main buckets.
    pub(super) fn new(buckets: u64) -> Self {
        let overflow = Overflow { added: 0, free: Vec::new() };
        Self { entries: 0, buckets, overflow, stay: Vec::new(), leave: Vec::new() }
    }

    /// Adds an entry. Cost: a cache line, and a few more when a bucket is full or split.
    #[inline]
    pub(crate) fn insert(&mut self, index: &Index, hash: u64, entry: Entry) {
        let stored = Stored::new(hash, entry);
        let main = index.main.bucket(bucket_of(hash, self.buckets));
        let len = main.len();
        if len < PLACES {
            main.put(len, stored);
        } else {
            self.overflow.insert(index, main, stored);
        }
        self.count(index, self.entries + 1);
        if is_full(self.entries, self.buckets, self.overflow.used()) {
            self.split(index);
        }
    }

    /// Replaces the entry of this hash that has address `old`, and says whether there is one. Readers see
    /// the old one or the new one.
    #[inline]
    pub(crate) fn replace(&mut self, index: &Index, hash: u64, old: Address, new: Entry) -> bool {
        let Some((bucket, place)) = self.locate(index, hash, old) else { return false };
        bucket.replace(place, Stored::new(hash, new));
        true
    }

    /// Removes the entry of this hash that has this address, and says whether there was one. Cost: all
    /// entries of the bucket are put back.
    pub(crate) fn remove(&mut self, index: &Index, hash: u64, address: Address) -> bool {
        if !self.contains(index, hash, address) {
            return false;
        }
        let number = bucket_of(hash, self.buckets);
        let hash = hash & ((1 << HASH_BITS) - 1);
        index.versions.change(number, number, || {
            self.take(index, number, |_| false);
            let is_it = |s: &Stored| s.hash(number) == hash && s.entry().address() == address;
            if let Some(at) = self.stay.iter().position(is_it) {
                self.stay.swap_remove(at);
            }
            self.overflow.put_back(index, number, &mut self.stay);
        });
        self.count(index, self.entries - 1);
        true
    }

    /// Whether there is an entry of this hash with this address.
    #[inline]
    pub(crate) fn contains(&self, index: &Index, hash: u64, address: Address) -> bool {
        self.locate(index, hash, address).is_some()
    }

    /// How many main buckets there are now.
    pub(crate) fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Shows `visit` all entries of main bucket `bucket` and its overflow, with bits 0..39 of their hashes.
    pub(crate) fn visit(&self, index: &Index, bucket: u64, mut visit: impl FnMut(u64, Entry)) {
        for stored in chain(index, index.main.bucket(bucket)).flat_map(Bucket::stored) {
            visit(stored.hash(bucket), stored.entry());
        }
    }

    /// Shows `visit` the entries of main bucket `bucket` and its overflow, those of each hash together. Of those of one hash with
    /// one address only one is left. Cost: that of sorting them, and of putting all back if there are fewer.
    pub(crate) fn tidy(&mut self, index: &Index, bucket: u64, mut visit: impl FnMut(&[Entry])) {
        let mut all = std::mem::take(&mut self.stay);
        all.extend(chain(index, index.main.bucket(bucket)).flat_map(Bucket::stored));
        let place = |stored: &Stored| (stored.hash(bucket), stored.entry().address());
        all.sort_unstable_by_key(place);
        let before = all.len();
        all.dedup_by_key(|stored| place(stored));
        let mut entries = Found::new();
        for same in all.chunk_by(|a, b| a.hash(bucket) == b.hash(bucket)) {
            entries.clear();
            same.iter().for_each(|stored| entries.push(stored.entry()));
            visit(entries.as_slice());
        }
        let removed = before - all.len();
        if removed > 0 {
            index.versions.change(bucket, bucket, || {
                self.take(index, bucket, |_| true);
                self.leave.clear();
                self.overflow.put_back(index, bucket, &mut all);
            });
            self.count(index, self.entries - removed as u64);
        }
        all.clear();
        self.stay = all;
    }

    #[inline]
    fn locate<'a>(
        &self,
        index: &'a Index,
        hash: u64,
        address: Address,
    ) -> Option<(Bucket<'a>, usize)> {
        chain(index, index.main.bucket(bucket_of(hash, self.buckets)))
            .find_map(|bucket| Some((bucket, bucket.position(hash, address)?)))
    }

    #[inline]
    fn count(&mut self, index: &Index, entries: u64) {
        self.entries = entries;
        index.counts.entries.store(entries, Ordering::Relaxed);
    }

    /// Adds a main bucket, with its share of the entries of another one.
    fn split(&mut self, index: &Index) {
        let new = self.buckets;
        let half = 1 << new.ilog2();
        let old = new - half;
        index.main.add(new);
        index.versions.change(old, new, || {
            index.buckets.store(new + 1, Ordering::Release);
            self.take(index, old, |stored| stored.hash(old) & half != 0);
            self.overflow.put_back(index, old, &mut self.stay);
            if planted(Bug::SplitLosesEntry) {
                self.leave.pop();
            }
            self.overflow.put_back(index, new, &mut self.leave);
        });
        self.buckets = new + 1;
        // The one that is split next.
        prefetch(index.main.bucket(old + 1).0);
    }

    /// Takes all entries out of main bucket `number` and its overflow. They are still there, but about to be
    /// overwritten.
    #[inline]
    fn take(&mut self, index: &Index, number: u64, leaves: impl Fn(Stored) -> bool) {
        for bucket in chain(index, index.main.bucket(number)) {
            for stored in bucket.stored() {
                if leaves(stored) { &mut self.leave } else { &mut self.stay }.push(stored);
            }
            self.overflow.free.extend(bucket.link().number());
        }
    }
}

/// The overflow buckets.
struct Overflow {
    /// How many there are.
    added: u64,
    /// Those that no bucket leads to.
    free: Vec<u64>,
}

impl Overflow {
    #[inline]
    fn used(&self) -> u64 {
        self.added - self.free.len() as u64
    }

    /// A bucket nobody uses, and its number.
    fn take<'a>(&mut self, index: &'a Index) -> (Bucket<'a>, u64) {
        let number = self.free.pop().unwrap_or_else(|| {
            assert!(self.added <= MAX_OVERFLOW, "links to overflow buckets have run out");
            index.overflow.add(self.added);
            self.added += 1;
            index.counts.overflow.store(self.added, Ordering::Relaxed);
            self.added - 1
        });
        (index.overflow.bucket(number), number)
    }

    /// Adds an entry to the overflow of `main`, which is full.
    fn insert(&mut self, index: &Index, main: Bucket<'_>, stored: Stored) {
        let link = main.link();
        let first = link.number().map(|number| index.overflow.bucket(number));
        match first.map(|first| (first, first.len())) {
            Some((first, len)) if len < PLACES => {
                main.set_link(link.with(stored));
                first.put(len, stored);
            }
            _ => {
                let (bucket, number) = self.take(index);
                bucket.fill(&[stored], link);
                main.set_link(link.with(stored).to(number));
            }
        }
    }

    /// Makes `entries` all that main bucket `number` and its overflow have, and takes them from the list.
    #[inline]
    fn put_back(&mut self, index: &Index, number: u64, entries: &mut Vec<Stored>) {
        let (inside, behind) = entries.split_at(entries.len().min(PLACES));
        let mut link = Link::NONE;
        // From the last bucket to the first one, which has what does not fill a bucket.
        for entries in behind.rchunks(PLACES) {
            let (bucket, number) = self.take(index);
            bucket.fill(entries, link);
            link = entries.iter().fold(link.to(number), |link, &stored| link.with(stored));
        }
        index.main.bucket(number).fill(inside, link);
        entries.clear();
    }
}
