//! Filters: asked before a table is searched, they say of most keys that are not in it that they are not.
//!
//! A filter is made of the hashes of the keys by a [`FilterBuilder`], which gives its bytes. It is read as a
//! [`Filter`], over bytes of its own that lie in lines of the processor, or in place over bytes that somebody else keeps.
//!
//! ```text
//! kind u8 | body        1 Bloom          bloom.rs
//!                       2 blocked Bloom  blocked.rs
//!                       3 ribbon         ribbon.rs
//! ```
//!
//! Invariants: a key that was added is never denied. Bytes of any content give an answer or are refused; they are never
//! searched beyond their end, and a filter takes no more memory than they do.
//!
//! Thread safety: a filter is immutable.

mod blocked;
mod bloom;
mod ribbon;
#[cfg(test)]
mod tests;

use crate::base::prefetch::prefetch;
use crate::options::FilterKind;
use crate::planted::{Bug, planted};
use blocked::BlockedBloom;
use bloom::Bloom;
use ribbon::Ribbon;

/// The bytes that the processor reads at once.
const LINE: usize = 64;

/// The most bits a key may take.
const MAX_BITS: u32 = 32;

/// Collects the hashes of the keys of a filter. By default there will be none.
#[derive(Debug, Default)]
pub(crate) struct FilterBuilder {
    kind: FilterKind,
    bits: u32,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// A filter of `bits` for each key; above 32 counts as 32. With 0, or of the kind `None`, there will be none.
    pub(crate) fn new(kind: FilterKind, bits: u32) -> Self {
        let bits = if kind == FilterKind::None { 0 } else { bits.min(MAX_BITS) };
        Self { kind, bits, hashes: Vec::new() }
    }

    /// Whether a filter will be built at all, so that hashing keys is worth it.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.bits > 0
    }

    /// Adds a key by its hash. The same hash twice in a row counts once.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64) {
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// The bytes the filter will take for the keys added so far; close, but not exact.
    pub(crate) fn encoded_len(&self) -> u64 {
        self.hashes.len() as u64 * u64::from(self.bits) / 8
    }

    /// The bytes of memory that the hashes take.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&self.hashes[..])
    }

    /// The bytes of the filter of all keys added; `None` if none is wanted. Memory: the hashes, the bytes, and at most
    /// 2 MiB.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        if !self.is_wanted() {
            return None;
        }
        let Self { kind, bits, mut hashes } = self;
        let mut out = Vec::new();
        match kind {
            FilterKind::None => return None,
            FilterKind::Bloom => {
                out.push(1);
                bloom::build(&hashes, bits, &mut out);
            }
            FilterKind::BlockedBloom => {
                out.push(2);
                blocked::build(&hashes, bits, &mut out);
            }
            FilterKind::Ribbon => {
                out.push(3);
                hashes.sort_unstable();
                hashes.dedup();
                ribbon::build(&hashes, bits, &mut out);
            }
        }
        Some(out)
    }
}

/// A filter: says of a key "perhaps here" or "surely not here". `B` are its bytes.
#[derive(Debug)]
pub(crate) enum Filter<B> {
    Bloom(Bloom<B>),
    BlockedBloom(BlockedBloom<B>),
    Ribbon(Ribbon<B>),
}

impl<'a> Filter<&'a [u8]> {
    /// The filter in `bytes`, read in place; `None` if they are none. Cost: a few bytes are looked at.
    #[inline]
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (&kind, body) = bytes.split_first()?;
        match kind {
            1 => Bloom::of(body).map(Self::Bloom),
            2 => BlockedBloom::of(body).map(Self::BlockedBloom),
            3 => Ribbon::of(body).map(Self::Ribbon),
            _ => None,
        }
    }

    /// The filter of a table of version 1, which has no kind: a blocked Bloom filter.
    #[inline]
    pub(crate) fn of_version_1(bytes: &'a [u8]) -> Option<Self> {
        BlockedBloom::of(bytes).map(Self::BlockedBloom)
    }

    /// The filter with bytes of its own.
    pub(crate) fn kept(self) -> Filter<Lines> {
        match self {
            Self::Bloom(filter) => Filter::Bloom(filter.map(Lines::of)),
            Self::BlockedBloom(filter) => Filter::BlockedBloom(filter.map(Lines::of)),
            Self::Ribbon(filter) => Filter::Ribbon(filter.map(Lines::of)),
        }
    }
}

impl<B: AsRef<[u8]>> Filter<B> {
    /// Whether a key with this hash may have been added. False only if it was not.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        if planted(Bug::FilterDeniesKey) && hash % 16 == 3 {
            return false;
        }
        match self {
            Self::Bloom(filter) => filter.may_contain(hash),
            Self::BlockedBloom(filter) => filter.may_contain(hash),
            Self::Ribbon(filter) => filter.may_contain(hash),
        }
    }

    /// Asks ahead for what [`may_contain`](Self::may_contain) will look at first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let place = match self {
            Self::Bloom(filter) => filter.place(hash),
            Self::BlockedBloom(filter) => filter.place(hash),
            Self::Ribbon(filter) => filter.place(hash),
        };
        if let Some(byte) = place {
            prefetch(byte);
        }
    }
}

impl Filter<Lines> {
    /// The bytes of memory the filter takes.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Bloom(filter) => filter.bytes().memory(),
            Self::BlockedBloom(filter) => filter.bytes().memory(),
            Self::Ribbon(filter) => filter.bytes().memory(),
        }
    }
}

/// Bytes that begin where a line of the processor does.
#[derive(Debug)]
pub(crate) struct Lines {
    memory: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Lines {
    fn of(bytes: &[u8]) -> Self {
        let mut memory = vec![0; bytes.len() + LINE - 1].into_boxed_slice();
        let start = memory.as_ptr().align_offset(LINE).min(LINE - 1);
        let end = start + bytes.len();
        memory[start..end].copy_from_slice(bytes);
        Self { memory, start, end }
    }

    fn memory(&self) -> usize {
        self.memory.len()
    }
}

impl AsRef<[u8]> for Lines {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }
}

/// A number below `limit` that grows with `hash`; 0 if there is none.
#[inline]
fn scale(hash: u64, limit: u64) -> u64 {
    ((u128::from(hash) * u128::from(limit)) >> 64) as u64
}
