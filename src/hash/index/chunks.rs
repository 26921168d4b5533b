//! The memory of the buckets: chunks, each twice as large as the one before, which are never moved.
//!
//! Thread safety: any thread. A chunk stays until all of them are dropped.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use super::bucket::{Bucket, WORDS};

/// How many buckets the first chunk has.
const FIRST: u64 = 64;
/// So many chunks have more buckets than hashes have different values: 39 bits.
const MAX_CHUNKS: usize = 34;

/// Buckets, numbered from 0.
pub(super) struct Chunks {
    chunks: [OnceLock<Chunk>; MAX_CHUNKS],
}

struct Chunk {
    words: Box<[AtomicU64]>,
    /// The first word that begins a cache line.
    first: usize,
}

impl Chunk {
    /// A chunk of empty buckets. Large chunks take memory only where they are used.
    fn new(buckets: usize) -> Self {
        let words = zeroed((buckets + 1) * WORDS);
        let line = WORDS * size_of::<AtomicU64>();
        let past = words.as_ptr().addr() % line;
        Self { words, first: (line - past) % line / size_of::<AtomicU64>() }
    }
}

impl Chunks {
    pub(super) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; MAX_CHUNKS] }
    }

    /// Bucket `number`, which [`add`](Self::add) was called for.
    #[inline]
    pub(super) fn bucket(&self, number: u64) -> Bucket<'_> {
        let (chunk, at) = split(number);
        let chunk = self.chunks[chunk].get().expect("a bucket is added before it is used");
        let (lines, _) = chunk.words[chunk.first..].as_chunks();
        Bucket(&lines[at])
    }

    /// Sees to it that there is memory for all buckets up to `number`.
    #[inline]
    pub(super) fn add(&self, number: u64) {
        let (last, _) = split(number);
        if self.chunks[last].get().is_none() {
            for (i, chunk) in self.chunks[..=last].iter().enumerate() {
                chunk.get_or_init(|| Chunk::new((FIRST as usize) << i));
            }
        }
    }
}

/// The chunk a bucket is in, and which of the chunk's buckets it is.
#[inline]
fn split(number: u64) -> (usize, usize) {
    let number = number + FIRST;
    let chunk = number.ilog2() - FIRST.ilog2();
    (chunk as usize, (number - (FIRST << chunk)) as usize)
}

/// Zeros that are not written, where the system has memory that is zero already: collecting atomic zeros
/// would touch all of it.
fn zeroed(len: usize) -> Box<[AtomicU64]> {
    const { assert!(align_of::<AtomicU64>() == align_of::<u64>()) };
    let words = Box::into_raw(vec![0_u64; len].into_boxed_slice());
    // SAFETY: an atomic word has the size and the values of a plain one, and here its alignment, so that
    // the memory can also be freed as this type; and the box that had it is given up.
    unsafe { Box::from_raw(words as *mut [AtomicU64]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_lines_apart() {
        let chunks = Chunks::new();
        chunks.add(1000);
        let at = |number| chunks.bucket(number).0.as_ptr().addr();
        let mut all: Vec<_> = (0..=1000).map(at).collect();
        assert!(all.iter().all(|at| at % 64 == 0));
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[1] - two[0] >= 64));
        assert!((0..=1000).all(|number| chunks.bucket(number).len() == 0));
    }

    #[test]
    fn numbers_split_without_gaps() {
        let mut next = (0, 0);
        for number in 0..10_000 {
            assert_eq!(split(number), next);
            let (chunk, at) = next;
            next = if at + 1 == 64 << chunk { (chunk + 1, 0) } else { (chunk, at + 1) };
        }
        assert!(split((1 << 39) - 1).0 < MAX_CHUNKS);
    }
}
