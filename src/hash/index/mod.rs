//! The index of a hash keyspace: in memory, from hashes to the places of records.
//!
//! Linear hashing (Litwin, *Linear Hashing: A New Tool for File and Table Addressing*, VLDB 1980): there are
//! `n` main buckets, of which any `n` will do. When they are full enough, bucket `n` is added and takes its
//! share from one other bucket. So the index grows with every few insertions a little, and never stops for
//! it. Entries a main bucket has no room for are in overflow buckets that it links to.
//!
//! Only bits 0..39 of a hash are used, and all of them are known of every entry.
//!
//! Thread safety: one thread writes, which the owner of the [`IndexWriter`] sees to. Any number read, without
//! locks. Adding an entry and replacing one by another of the same hash is one store of a word. When entries
//! move (a bucket is split, or an entry is removed), the [version](versions) of their buckets is odd. A
//! reader who finds the version changed, or that its hash belongs to another bucket by now, looks again.
//!
//! So an entry that was put in before the search began, and is neither removed nor replaced while it lasts,
//! is found. One that is replaced is found as it was or as it is. What lies at the places that were found may be used
//! again once an entry is removed: who has read it there asks the version afterwards whether it still counts.

mod bucket;
mod chunks;
mod entry;
#[cfg(test)]
mod tests;
mod versions;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};

use bucket::{Bucket, WORDS};
use chunks::Chunks;
pub(crate) use entry::{Address, Entry, Found};
pub(crate) use versions::Version;
use versions::Versions;
pub(crate) use writer::IndexWriter;

use crate::base::prefetch::prefetch;

/// The bits of a hash that are used.
const HASH_BITS: u32 = 39;
/// How often a reader looks again before it lets other threads run.
const SPINS: u32 = 64;

/// What readers share. See [`IndexWriter`] for how it is changed.
pub(crate) struct Index {
    /// The number of main buckets, at least 64. It never falls.
    buckets: AtomicU64,
    main: Chunks,
    overflow: Chunks,
    versions: Versions,
    counts: Counts,
}

/// What every insertion changes: not in the cache line that every search reads.
#[repr(align(64))]
struct Counts {
    entries: AtomicU64,
    /// Overflow buckets there is memory for.
    overflow: AtomicU64,
}

impl Index {
    /// An empty index with main buckets for `expected` entries.
    pub(crate) fn new(expected: u64) -> (Self, IndexWriter) {
        let buckets = writer::buckets_for(expected);
        let index = Self {
            buckets: AtomicU64::new(buckets),
            main: Chunks::new(),
            overflow: Chunks::new(),
            versions: Versions::new(),
            counts: Counts { entries: AtomicU64::new(0), overflow: AtomicU64::new(0) },
        };
        index.main.add(buckets - 1);
        (index, IndexWriter::new(buckets))
    }

    /// Makes `found` all entries of this hash. Wait-free unless the writer moves them meanwhile. Gives a version:
    /// while it [is current](Version::is_current), none of these entries has been removed.
    #[inline]
    pub(crate) fn find(&self, hash: u64, found: &mut Found) -> Version<'_> {
        match self.try_find(hash, found) {
            Some(version) => version,
            None => self.find_again(hash, found),
        }
    }

    /// Asks for the memory that [`find`](Self::find) is going to read first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let number = bucket_of(hash, self.buckets.load(Ordering::Acquire));
        prefetch(self.main.bucket(number).0);
    }

    /// How many entries there are.
    pub(crate) fn entries(&self) -> u64 {
        self.counts.entries.load(Ordering::Relaxed)
    }

    /// The bytes in use. Memory that is reserved for growth but was never touched does not count.
    pub(crate) fn memory(&self) -> usize {
        let overflow = self.counts.overflow.load(Ordering::Relaxed);
        let lines = self.buckets.load(Ordering::Relaxed) + overflow;
        lines as usize * size_of::<[AtomicU64; WORDS]>() + size_of::<Self>() + Versions::SIZE
    }

    /// How many entries its main buckets are for.
    pub(crate) fn capacity(&self) -> u64 {
        writer::capacity_of(self.buckets.load(Ordering::Relaxed))
    }

    /// Searches once. `None` if something moved meanwhile; what was found means nothing then.
    #[inline]
    fn try_find(&self, hash: u64, found: &mut Found) -> Option<Version<'_>> {
        found.clear();
        let buckets = self.buckets.load(Ordering::Acquire);
        let number = bucket_of(hash, buckets);
        let version = self.versions.read(number)?;
        let next = self.main.bucket(number).find(hash, found);
        if !version.is_current() {
            return None;
        }
        if let Some(next) = next
            && !self.try_find_behind(next, hash, found, version)
        {
            return None;
        }
        // If the bucket was split before its version was read, this is seen here.
        let now = self.buckets.load(Ordering::Relaxed);
        (now == buckets || bucket_of(hash, now) == number).then_some(version)
    }

    /// The same for an overflow bucket and those behind it.
    #[inline(never)]
    fn try_find_behind(
        &self,
        mut number: u64,
        hash: u64,
        found: &mut Found,
        version: Version<'_>,
    ) -> bool {
        loop {
            let next = self.overflow.bucket(number).find(hash, found);
            // Checked before a link is followed, so that nobody gets lost among buckets that move.
            if !version.is_current() {
                return false;
            }
            match next {
                Some(next) => number = next,
                None => return true,
            }
        }
    }

    #[cold]
    fn find_again(&self, hash: u64, found: &mut Found) -> Version<'_> {
        let mut tries = 0_u32;
        loop {
            if let Some(version) = self.try_find(hash, found) {
                return version;
            }
            tries += 1;
            if tries.is_multiple_of(SPINS) {
                crate::sync::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// The main bucket of a hash when there are `buckets`: so many low bits of the hash as the largest bucket's
/// number has, or one less where that bucket is not there yet.
#[inline]
fn bucket_of(hash: u64, buckets: u64) -> u64 {
    let half = 1 << buckets.ilog2();
    let number = hash & (2 * half - 1);
    if number < buckets { number } else { number - half }
}

/// A bucket and those of its overflow, for the writer.
fn chain<'a>(index: &'a Index, main: Bucket<'a>) -> impl Iterator<Item = Bucket<'a>> {
    let next = |bucket: &Bucket<'a>| bucket.link().number().map(|n| index.overflow.bucket(n));
    std::iter::successors(Some(main), next)
}
