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
use crate::base::key::{common_prefix_len, compare, head_behind};

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

/// Links that are being gathered, in order.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    keys: Vec<u8>,
    ends: Vec<u32>,
    trailers: Vec<Trailer>,
    targets: Vec<Target>,
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
    /// Adds a link; false if keys take more than can be addressed.
    pub(super) fn push(&mut self, key: &[u8], trailer: Trailer, target: Target) -> bool {
        let Ok(end) = u32::try_from(self.keys.len() + key.len()) else { return false };
        self.keys.extend_from_slice(key);
        self.ends.push(end);
        self.trailers.push(trailer);
        self.targets.push(target);
        true
    }

    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn key(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.keys[start..self.ends[index] as usize]
    }

    /// Puts up to `levels` levels of every `step`-th link above the links.
    pub(super) fn finish(mut self, step: u32, levels: u32) -> Links {
        self.keys.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.trailers.shrink_to_fit();
        self.targets.shrink_to_fit();
        let len = self.targets.len();
        // The first link may stand for more than what is behind its key: it has no say in what all share.
        let prefix = match len {
            0..=2 => Box::default(),
            _ => {
                let (first, last) = (self.key(1), self.key(len - 1));
                first[..common_prefix_len(first, last)].into()
            }
        };
        let step = (step as usize).max(2);
        let mut heads: Vec<Vec<u64>> =
            vec![(0..len).map(|index| head_behind(&prefix, self.key(index))).collect()];
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

impl Links {
    pub(super) fn len(&self) -> usize {
        self.gathered.targets.len()
    }

    pub(super) fn targets(&self) -> &[Target] {
        &self.gathered.targets
    }

    /// The key of link `index`, and what it counts as.
    pub(super) fn link(&self, index: usize) -> (&[u8], Trailer) {
        (self.gathered.key(index), self.gathered.trailers[index])
    }

    /// Levels of links, that to the blocks included.
    pub(super) fn levels(&self) -> usize {
        self.heads.len()
    }

    /// Bytes of memory they take.
    pub(super) fn memory(&self) -> usize {
        let Gathered { keys, ends, trailers, targets } = &self.gathered;
        let heads: usize = self.heads.iter().map(|level| size_of_val(&level[..])).sum();
        let targets = size_of_val(&targets[..]) + size_of_val(&trailers[..]);
        heads + keys.len() + size_of_val(&ends[..]) + targets + size_of::<Self>()
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
            match compare(self.link(middle), (key, trailer)) {
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

    fn links(keys: &[(Vec<u8>, u64)], step: u32, levels: u32) -> Links {
        let mut gathered = Gathered::default();
        for (index, (key, seqno)) in keys.iter().enumerate() {
            let index = index as u64;
            let target = Target { offset: 0, len: 1, record: 10 * index, block: index };
            assert!(gathered.push(key, Trailer::new(*seqno, Kind::Put), target));
        }
        gathered.finish(step, levels)
    }

    proptest! {
        #[test]
        fn a_search_finds_what_bisecting_finds(
            prefix in proptest::collection::vec(any::<u8>(), 0..4),
            keys in proptest::collection::btree_set(
                (proptest::collection::vec(0_u8..3, 0..12), 0_u64..4), 1..200),
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
            let links = links(&keys, step, levels);
            prop_assert!(links.levels() <= levels as usize + 1);
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
