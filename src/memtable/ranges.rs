//! The range tombstones of a memtable, of whatever kind.
//!
//! They come in the order of their numbers. Each is a tree of one; so many trees of one height become one that is higher. A
//! tree has the fragments of all its tombstones, each with its newest number only, and the trees that it was made of. A reader
//! goes from the newest tree to older ones: if all of a tree is old enough to be seen, its fragments answer, and only in a tree
//! with newer tombstones the reader goes down to its parts. So n tombstones take O(n log n) time and memory, however they
//! overlap, and a lookup O(log n) searches, though a memtable does not know which states somebody may still ask for.
//!
//! Thread safety: one writer at a time. All trees are one immutable list that the writer swaps; readers load it, and never wait.
//! While there are none, a reader looks at one number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

use crate::base::{Fragments, RangeTombstone, Seqno, Stretch};

/// So many trees of one height become one.
const MERGED: usize = 8;

/// The range tombstones of a memtable, which may become more. Not among what [models](super::models) try: they are made known
/// as a whole, by `first` and the swap.
#[derive(Default)]
pub(super) struct SharedRanges {
    /// The number of the first; 0 if there is none.
    first: AtomicU64,
    trees: ArcSwap<Ranges>,
}

/// The range tombstones there are at one moment.
#[derive(Clone, Default, Debug)]
pub(crate) struct Ranges {
    /// Oldest first, and so higher ones first.
    trees: Vec<Arc<Tree>>,
}

#[derive(Debug)]
struct Tree {
    /// What it was made of, oldest first; none if it is of one tombstone.
    parts: Vec<Arc<Tree>>,
    first: Seqno,
    last: Seqno,
    /// Of all its tombstones, with the newest number of each piece.
    newest: Fragments,
    /// The bytes of memory it takes, with its parts, but for the keys, which all share.
    memory: usize,
    height: usize,
}

impl SharedRanges {
    /// Adds a tombstone, newer than all there are. Gives how much the memory they take has changed.
    pub(super) fn push(&self, tombstone: RangeTombstone) -> isize {
        let seqno = tombstone.seqno;
        let keys = tombstone.start.len() + tombstone.end.key().map_or(0, <[u8]>::len);
        let mut ranges = Ranges::clone(&self.trees.load());
        let before = ranges.memory();
        ranges.push(tombstone);
        let grown = (ranges.memory() + keys) as isize - before as isize;
        self.trees.store(Arc::new(ranges));
        if self.first.load(Ordering::Relaxed) == 0 {
            self.first.store(seqno, Ordering::Release);
        }
        grown
    }

    /// The number of the first; 0 if there is none.
    #[inline]
    pub(super) fn first(&self) -> Seqno {
        self.first.load(Ordering::Acquire)
    }

    /// What there is now; `None` if nothing.
    pub(super) fn load(&self) -> Option<Arc<Ranges>> {
        (self.first() != 0).then(|| self.trees.load_full())
    }

    /// The newest that covers `key` and is not above `at`; 0 if there is none.
    #[inline]
    pub(super) fn newest(&self, key: &[u8], at: Seqno) -> Seqno {
        if self.first() == 0 { 0 } else { self.trees.load().newest(key, at) }
    }
}

impl Ranges {
    fn push(&mut self, tombstone: RangeTombstone) {
        self.trees.push(Arc::new(Tree::leaf(tombstone)));
        while let Some(from) = self.trees.len().checked_sub(MERGED)
            && self.trees[from].height == self.trees[self.trees.len() - 1].height
        {
            let parts = self.trees.split_off(from);
            self.trees.push(Arc::new(Tree::of(parts)));
        }
    }

    fn memory(&self) -> usize {
        self.trees.iter().map(|tree| tree.memory).sum()
    }

    /// The newest that covers `key` and is not above `at`; 0 if there is none.
    pub(crate) fn newest(&self, key: &[u8], at: Seqno) -> Seqno {
        newest(&self.trees, key, at)
    }

    /// The keys around `key` for which the same is true, and what is true for readers at `at`.
    pub(crate) fn stretch(&self, key: &[u8], at: Seqno) -> Stretch {
        let mut stretch = Stretch::ALL;
        narrow(&mut stretch, &self.trees, key, at);
        stretch
    }

    /// All of them, oldest first.
    pub(crate) fn tombstones(&self) -> Vec<RangeTombstone> {
        let mut all = Vec::new();
        collect(&mut all, &self.trees);
        all
    }
}

impl Tree {
    fn leaf(tombstone: RangeTombstone) -> Self {
        let (first, last) = (tombstone.seqno, tombstone.seqno);
        let newest = Fragments::of(&[tombstone], Fragments::only_newest);
        let memory = size_of::<Self>() + newest.memory();
        Self { parts: Vec::new(), first, last, newest, memory, height: 0 }
    }

    /// The tree of `parts`, oldest first.
    fn of(parts: Vec<Arc<Self>>) -> Self {
        let tombstones: Vec<_> = parts.iter().flat_map(|part| part.newest.tombstones()).collect();
        let newest = Fragments::of(&tombstones, Fragments::only_newest);
        let own = size_of::<Self>() + size_of_val(&parts[..]) + newest.memory();
        let memory = own + parts.iter().map(|part| part.memory).sum::<usize>();
        let (oldest, youngest) = (&parts[0], &parts[parts.len() - 1]);
        let (first, last, height) = (oldest.first, youngest.last, oldest.height + 1);
        Self { first, last, newest, memory, height, parts }
    }
}

fn newest(trees: &[Arc<Tree>], key: &[u8], at: Seqno) -> Seqno {
    let seen = trees.iter().rev().filter(|tree| tree.first <= at);
    let of_tree = |tree: &Arc<Tree>| match tree.last <= at {
        true => tree.newest.newest(key, at),
        false => newest(&tree.parts, key, at),
    };
    seen.map(of_tree).find(|&newest| newest != 0).unwrap_or(0)
}

fn narrow(stretch: &mut Stretch, trees: &[Arc<Tree>], key: &[u8], at: Seqno) {
    for tree in trees.iter().rev().filter(|tree| tree.first <= at) {
        if tree.last > at {
            narrow(stretch, &tree.parts, key, at);
            continue;
        }
        let own = tree.newest.stretch(key, at);
        stretch.narrow(own.start, own.end);
        stretch.newest = stretch.newest.max(own.newest);
    }
}

fn collect(all: &mut Vec<RangeTombstone>, trees: &[Arc<Tree>]) {
    for tree in trees {
        match tree.parts.is_empty() {
            true => all.extend(tree.newest.tombstones()),
            false => collect(all, &tree.parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::ranges::sample;
    use crate::base::{End, Span};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn each_state_sees_what_had_been_deleted(tombstones in sample::tombstones(90)) {
            let shared = SharedRanges::default();
            prop_assert!(shared.load().is_none());
            tombstones.iter().for_each(|tombstone| _ = shared.push(tombstone.clone()));
            prop_assert_eq!(shared.first(), u64::from(!tombstones.is_empty()));
            let Some(ranges) = shared.load() else { return Ok(()) };
            prop_assert_eq!(&ranges.tombstones(), &tombstones);
            prop_assert!(ranges.trees.len() <= 3 * (MERGED - 1));
            for key in sample::keys() {
                for at in (0..=tombstones.len() as Seqno).step_by(7).chain([MERGED as Seqno, 64, 65]) {
                    let expected = sample::newest(&tombstones, &key, at);
                    prop_assert_eq!(shared.newest(&key, at), expected);
                    let stretch = ranges.stretch(&key, at);
                    prop_assert!(stretch.holds(&key) && stretch.newest == expected);
                    for other in sample::keys().iter().filter(|other| stretch.holds(other)) {
                        prop_assert_eq!(sample::newest(&tombstones, other, at), expected);
                    }
                }
            }
        }
    }

    /// The memory of so many, each around the one before it: the worst there is for fragments with all their numbers.
    fn memory(count: u32) -> usize {
        let shared = SharedRanges::default();
        let tombstone = |number: u32| {
            let (start, end) = ((count - number).to_be_bytes(), (count + number + 1).to_be_bytes());
            RangeTombstone::new(Span { start: &start, end: Some(&end) }, u64::from(number) + 1)
        };
        let memory: isize = (0..count).map(|number| shared.push(tombstone(number))).sum();
        let ranges = shared.load().expect("there are some");
        assert_eq!(memory as usize, ranges.memory() + 8 * count as usize);
        let (end, last) = (End::new(Some(&(2 * count).to_be_bytes())), u64::from(count));
        assert_eq!(ranges.stretch(&(2 * count - 1).to_be_bytes(), last).end, end);
        assert_eq!(ranges.newest(&count.to_be_bytes(), last / 2), last / 2);
        memory as usize
    }

    #[test]
    fn many_take_little_more_than_in_proportion() {
        let (few, many) = (memory(512), memory(4096));
        assert!(many < 12 * few, "{few} bytes for 512, {many} for 4096");
    }
}
