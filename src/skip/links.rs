//! Links to blocks, in memory: the upper levels of the skip list.
//!
//! Level 0 has a link to each block. Every `step`-th link of a level is one of the level above, as far as levels go. A search
//! bisects the highest level and looks at up to `step` links of each one below: memory that lies together. Links are
//! compared by the eight bytes of their keys that are behind what all keys share; only where those are equal, by the
//! keys themselves.
//!
//! Thread safety: never changed once made.

use std::cmp::Ordering;
use std::ops::Range;

use crate::base::Trailer;
use crate::base::key::{common_prefix_len, compare, head, head_behind};

/// Where a block is in the file, and what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Target {
    pub(super) offset: u64,
    pub(super) len: u32,
    /// The number of its first record.
    pub(super) record: u64,
    /// The number of its first block, if it is one of links; else its own.
    pub(super) block: u64,
}

impl Target {
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.len)
    }
}

/// Links that are being gathered, in order. Their keys take no more memory than in the blocks that they come from: what all keys of
/// a block share is there once.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    blocks: Vec<Source>,
    /// What the keys of each block share, one behind the other.
    prefixes: Vec<u8>,
    /// What is behind that in each key.
    suffixes: Vec<u8>,
    ends: Vec<u32>,
    trailers: Vec<Trailer>,
    targets: Vec<Target>,
}

/// A block that links came from.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// Its first link.
    first: usize,
    prefix_end: usize,
}

/// Links of one level of blocks, and the levels above.
#[derive(Debug)]
pub(super) struct Links {
    prefix: Box<[u8]>,
    step: usize,
    /// Heads of the keys: of level 0, then of the levels above.
    heads: Vec<Vec<u64>>,
    gathered: Gathered,
}

impl Gathered {
    /// Goes on with the links of a block whose keys share `prefix`.
    pub(super) fn begin_block(&mut self, prefix: &[u8]) {
        self.prefixes.extend_from_slice(prefix);
        let (first, prefix_end) = (self.targets.len(), self.prefixes.len());
        self.blocks.push(Source { first, prefix_end });
    }

    /// Adds a link of the block, whose key is `suffix` behind the prefix; false if keys take more than can be addressed.
    pub(super) fn push(&mut self, suffix: &[u8], trailer: Trailer, target: Target) -> bool {
        let Ok(end) = u32::try_from(self.suffixes.len() + suffix.len()) else { return false };
        self.suffixes.extend_from_slice(suffix);
        self.ends.push(end);
        self.trailers.push(trailer);
        self.targets.push(target);
        true
    }

    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Bytes of memory they take.
    pub(super) fn memory(&self) -> usize {
        let of_links = size_of_val(&self.targets[..])
            + size_of_val(&self.trailers[..])
            + size_of_val(&self.ends[..]);
        of_links + self.suffixes.len() + self.prefixes.len() + size_of_val(&self.blocks[..])
    }

    /// What the keys of block `block` share.
    fn prefix(&self, block: usize) -> &[u8] {
        let start = block.checked_sub(1).map_or(0, |before| self.blocks[before].prefix_end);
        &self.prefixes[start..self.blocks[block].prefix_end]
    }

    fn suffix(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.suffixes[start..self.ends[index] as usize]
    }

    /// The two parts of a key.
    fn parts(&self, index: usize) -> (&[u8], &[u8]) {
        let block = self.blocks.partition_point(|block| block.first <= index) - 1;
        (self.prefix(block), self.suffix(index))
    }

    fn key(&self, index: usize) -> Vec<u8> {
        <[&[u8]; 2]>::from(self.parts(index)).concat()
    }

    /// The heads of all keys behind `shared`. Looks at what the keys of a block share once, however many they are.
    fn heads(&self, shared: &[u8]) -> Vec<u64> {
        let mut heads = Vec::with_capacity(self.targets.len());
        for (number, block) in self.blocks.iter().enumerate() {
            let prefix = self.prefix(number);
            let end = self.blocks.get(number + 1).map_or(self.targets.len(), |next| next.first);
            let suffixes = (block.first..end).map(|index| self.suffix(index));
            let common = common_prefix_len(prefix, shared);
            match (&prefix[common..], &shared[common..]) {
                ([], rest) => heads.extend(suffixes.map(|suffix| head_behind(rest, suffix))),
                (front, []) => heads.extend(suffixes.map(|suffix| head_of_both(front, suffix))),
                (front, rest) => {
                    let head = if front < rest { 0 } else { u64::MAX };
                    heads.extend(suffixes.map(|_| head));
                }
            }
        }
        heads
    }

    /// Puts up to `levels` levels of every `step`-th link above the links.
    pub(super) fn finish(mut self, step: u32, levels: u32) -> Links {
        self.blocks.shrink_to_fit();
        self.prefixes.shrink_to_fit();
        self.suffixes.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.trailers.shrink_to_fit();
        self.targets.shrink_to_fit();
        let len = self.targets.len();
        // The first link may stand for more than what is behind its key: it has no say in what all share.
        let prefix = match len {
            0..=2 => Box::default(),
            _ => {
                let (first, last) = (self.key(1), self.key(len - 1));
                first[..common_prefix_len(&first, &last)].into()
            }
        };
        let step = (step as usize).max(2);
        let mut heads = vec![self.heads(&prefix)];
        while let Some(below) = heads.last()
            && below.len() > step
            && heads.len() <= levels as usize
        {
            let above = below.iter().copied().step_by(step).collect();
            heads.push(above);
        }
        Links { prefix, step, heads, gathered: self }
    }
}

/// The [`head`] of a key in two parts.
fn head_of_both(front: &[u8], behind: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let both = front.iter().chain(behind);
    bytes.iter_mut().zip(both).for_each(|(byte, &next)| *byte = next);
    head(&bytes)
}

impl Links {
    pub(super) fn len(&self) -> usize {
        self.gathered.targets.len()
    }

    pub(super) fn targets(&self) -> &[Target] {
        &self.gathered.targets
    }

    /// The key of link `index`, and what it counts as.
    pub(super) fn link(&self, index: usize) -> (Vec<u8>, Trailer) {
        (self.gathered.key(index), self.gathered.trailers[index])
    }

    /// The order of link `index` and `(key, trailer)`.
    fn compare(&self, index: usize, (key, trailer): (&[u8], Trailer)) -> Ordering {
        let (prefix, suffix) = self.gathered.parts(index);
        match key.split_at_checked(prefix.len()) {
            Some((front, rest)) => prefix
                .cmp(front)
                .then_with(|| compare((suffix, self.gathered.trailers[index]), (rest, trailer))),
            None => prefix.cmp(key),
        }
    }

    /// Levels of links, that to the blocks included.
    pub(super) fn levels(&self) -> usize {
        self.heads.len()
    }

    /// Bytes of memory they take.
    pub(super) fn memory(&self) -> usize {
        let heads: usize = self.heads.iter().map(|level| size_of_val(&level[..])).sum();
        size_of::<Self>() + self.prefix.len() + heads + self.gathered.memory()
    }

    /// The last link that is not behind `(key, trailer)`; the first one if all are. There must be one.
    #[inline]
    pub(super) fn find(&self, key: &[u8], trailer: Trailer) -> usize {
        let head = head_behind(&self.prefix, key);
        // How many links of the level have a head that is not above the key's.
        let Some((top, below)) = self.heads.split_last() else { return 0 };
        let mut passed = top.partition_point(|&link| link <= head);
        for level in below.iter().rev() {
            let from = passed.saturating_sub(1) * self.step;
            let to = (from + self.step).min(level.len());
            passed = from + level[from..to].iter().filter(|&&link| link <= head).count();
        }
        match passed.checked_sub(1) {
            None => 0,
            Some(last) if self.heads[0][last] < head => last,
            Some(_) => self.find_among_equal(passed, head, key, trailer),
        }
    }

    /// The same, of the first `passed` links, the last of which has the key's head.
    #[cold]
    fn find_among_equal(&self, passed: usize, head: u64, key: &[u8], trailer: Trailer) -> usize {
        let level = &self.heads[0][..passed];
        let (mut from, mut to) = (level.partition_point(|&link| link < head), passed);
        while from < to {
            let middle = from.midpoint(to);
            match self.compare(middle, (key, trailer)) {
                Ordering::Greater => to = middle,
                _ => from = middle + 1,
            }
        }
        from.saturating_sub(1)
    }

    /// The link to what holds record `record`.
    pub(super) fn find_record(&self, record: u64) -> usize {
        self.targets().partition_point(|target| target.record <= record).saturating_sub(1)
    }

    /// The link to what holds block `block`.
    pub(super) fn find_block(&self, block: u64) -> usize {
        self.targets().partition_point(|target| target.block <= block).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::Kind;

    /// Links that come from blocks of `in_a_block` links each.
    fn links(keys: &[(Vec<u8>, u64)], in_a_block: usize, step: u32, levels: u32) -> Links {
        let mut gathered = Gathered::default();
        for (number, block) in keys.chunks(in_a_block).enumerate() {
            let shared = common_prefix_len(&block[0].0, &block[block.len() - 1].0);
            gathered.begin_block(&block[0].0[..shared]);
            for (index, (key, seqno)) in block.iter().enumerate() {
                let index = (number * in_a_block + index) as u64;
                let target = Target { offset: 0, len: 1, record: 10 * index, block: index };
                assert!(gathered.push(&key[shared..], Trailer::new(*seqno, Kind::Put), target));
            }
        }
        gathered.finish(step, levels)
    }

    proptest! {
        #[test]
        fn a_search_finds_what_bisecting_finds(
            prefix in proptest::collection::vec(any::<u8>(), 0..4),
            keys in proptest::collection::btree_set(
                (proptest::collection::vec(0_u8..3, 0..12), 0_u64..4), 1..200),
            in_a_block in prop::sample::select(vec![1_usize, 3, 20, 200]),
            step in 2..9_u32,
            levels in 0..5_u32,
            probe in proptest::collection::vec(0_u8..3, 0..12),
            at in 0_u64..4,
        ) {
            let mut keys: Vec<_> = keys
                .into_iter()
                .map(|(key, seqno)| ([&prefix[..], &key].concat(), seqno))
                .collect();
            keys.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            let links = links(&keys, in_a_block, step, levels);
            prop_assert!(links.levels() <= levels as usize + 1);
            for (index, (key, seqno)) in keys.iter().enumerate() {
                prop_assert_eq!(links.link(index), (key.clone(), Trailer::new(*seqno, Kind::Put)));
            }
            for probe in [probe.clone(), [&prefix[..], &probe].concat()] {
                let wanted = (&probe[..], Trailer::new(at, Kind::Put));
                let expected = keys.partition_point(|(key, seqno)| {
                    compare((key, Trailer::new(*seqno, Kind::Put)), wanted) != Ordering::Greater
                });
                prop_assert_eq!(links.find(wanted.0, wanted.1), expected.saturating_sub(1));
            }
            for record in [0, 9, 10, 55, 5000] {
                let expected = (record / 10).min(keys.len() as u64 - 1) as usize;
                prop_assert_eq!(links.find_record(record), expected);
            }
        }
    }
}
