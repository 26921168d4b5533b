//! The block cache: pieces of files, read and checked, under a budget of bytes.
//!
//! It knows nothing of what the pieces hold: a piece is named by the number of its file and its offset
//! in it, and is a [`View`]. Numbers of files are never reused, so pieces of a removed file need no
//! removal: nobody asks for them, and they age out.
//!
//! Thread safety: all methods may be called from any thread; a hit takes one shared lock of a shard.

mod open_files;

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};

pub(crate) use open_files::{Closable, OpenFiles};

use crate::base::View;

/// What a cached piece costs beside its bytes: the entry, the view and its owner.
const OVERHEAD: u64 = 128;

/// The size of a piece that the number of slots is planned for.
const TYPICAL: u64 = 4096;

/// A piece's name: the number of its file, and its offset there.
type Name = (u64, u64);

/// A cache of pieces of files.
pub(crate) struct BlockCache {
    pieces: Cache<Name, View, Weight, BuildHasherDefault<NameHasher>>,
    counts: [Counts; 8],
}

/// Hits and misses of one stripe of names; a line of its own, so that threads do not share it.
#[derive(Default)]
#[repr(align(64))]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl BlockCache {
    /// A cache that holds up to `capacity` bytes. It is allocated as it fills.
    pub(crate) fn new(capacity: u64) -> Self {
        let expected = usize::try_from(capacity / (TYPICAL + OVERHEAD)).unwrap_or(usize::MAX);
        let pieces = Cache::with(
            expected.max(1),
            capacity,
            Weight,
            BuildHasherDefault::default(),
            DefaultLifecycle::default(),
        );
        Self { pieces, counts: Default::default() }
    }

    /// The piece of `file` at `offset`, if it is here.
    #[inline]
    pub(crate) fn get(&self, file: u64, offset: u64) -> Option<View> {
        let found = self.pieces.get(&(file, offset));
        let counts = &self.counts[(offset / TYPICAL % 8) as usize];
        let count = if found.is_some() { &counts.hits } else { &counts.misses };
        count.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Takes the piece of `file` at `offset` in. It may be refused or dropped at any time.
    pub(crate) fn insert(&self, file: u64, offset: u64, piece: View) {
        self.pieces.insert((file, offset), piece);
    }

    /// Holds up to `capacity` bytes from now on. Cost: what has to be evicted.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        self.pieces.set_capacity(capacity);
    }

    /// The bytes held now.
    pub(crate) fn memory(&self) -> u64 {
        self.pieces.weight()
    }

    /// How many requests found their piece.
    pub(crate) fn hits(&self) -> u64 {
        self.counts.iter().map(|counts| counts.hits.load(Ordering::Relaxed)).sum()
    }

    /// How many requests did not.
    pub(crate) fn misses(&self) -> u64 {
        self.counts.iter().map(|counts| counts.misses.load(Ordering::Relaxed)).sum()
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache")
            .field("capacity", &self.pieces.capacity())
            .field("memory", &self.memory())
            .field("hits", &self.hits())
            .field("misses", &self.misses())
            .finish()
    }
}

#[derive(Clone)]
struct Weight;

impl quick_cache::Weighter<Name, View> for Weight {
    fn weight(&self, _: &Name, piece: &View) -> u64 {
        piece.len() as u64 + OVERHEAD
    }
}

/// Hashes the two numbers of a name by folded multiplication. Names are not chosen by strangers.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0x2d35_8dcc_aa6c_78a5) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_asked_for_and_stays_in_its_budget() {
        let cache = BlockCache::new(1 << 20);
        assert!(cache.get(1, 0).is_none());
        for i in 0..1000u64 {
            cache.insert(1, i * 4096, View::from(vec![i as u8; 4000]));
            cache.get(1, 0);
        }
        assert_eq!(cache.get(1, 0).as_deref(), Some(&[0; 4000][..]));
        assert!(cache.get(2, 0).is_none());
        assert!(cache.memory() <= 1 << 20);
        assert!(cache.memory() > 1 << 18);
        assert_eq!(cache.hits() + cache.misses(), 1003);
        assert!(cache.hits() >= 1001 && cache.misses() >= 2);
    }

    #[test]
    fn a_piece_above_the_budget_is_refused() {
        let cache = BlockCache::new(1000);
        cache.insert(1, 0, View::from(vec![0; 5000]));
        assert!(cache.get(1, 0).is_none());
        BlockCache::new(0).insert(1, 0, View::from(vec![0; 5]));
    }

    #[test]
    fn names_spread() {
        let hash = |file: u64, offset: u64| {
            let mut hasher = NameHasher::default();
            hasher.write_u64(file);
            hasher.write_u64(offset);
            hasher.finish()
        };
        for shift in [0, 32, 57] {
            let mut seen = [0u32; 128];
            for i in 0..12_800 {
                seen[(hash(i / 1000, i % 1000 * 4101) >> shift) as usize % 128] += 1;
            }
            assert!(seen.iter().all(|&n| (40..200).contains(&n)), "{shift}: {seen:?}");
        }
    }
}
