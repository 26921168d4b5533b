//! Merging many sorted inputs, forward only, by a tournament tree of losers (Knuth, The Art of Computer
//! Programming, vol. 3, 5.4.1).
//!
//! The inputs are the leaves of a binary tree. At each inner node two of them have met, and the one that lost stays
//! there; the one that lost nowhere is in front. When the front one moves on, it plays again against the losers on
//! its own way up and nobody else: one comparison for each level of the tree.
//!
//! ```text
//!                 front: c
//!                    |
//!                  1: a                   node n meets what comes up from 2n and 2n + 1;
//!               /        \                inputs are the leaves, from k on
//!           2: b          3: d
//!          /    \        /    \
//!         a      b      c      d
//! ```
//!
//! The [head] of each front key is kept in the tree, so that most comparisons touch no key. Inputs at their
//! end stay in the tree, behind all others.

use std::cmp::Ordering;

use super::EntryCursor;
use crate::base::key::{compare, head};
use crate::base::{Slice, Trailer};
use crate::error::Result;

/// Sorted entries, read once from front to back.
///
/// It stands on an entry or is at its end. [`next`](Self::next) may be called only on an entry. After an error
/// the caller gives it up.
pub(crate) trait Forward {
    /// Whether it is on an entry.
    fn is_valid(&self) -> bool;
    /// The entry's user key. Panics or gives any bytes at the end.
    fn key(&self) -> &[u8];
    /// The entry's sequence number and kind.
    fn trailer(&self) -> Trailer;
    /// The entry's value; empty for a tombstone.
    fn value(&self) -> &[u8];
    /// The value, kept alive on its own.
    fn value_slice(&self) -> Slice {
        Slice::from(self.value())
    }
    /// Moves to the next entry.
    fn next(&mut self) -> Result<()>;
}

impl<C: EntryCursor> Forward for C {
    fn is_valid(&self) -> bool {
        EntryCursor::is_valid(self)
    }

    fn key(&self) -> &[u8] {
        EntryCursor::key(self)
    }

    fn trailer(&self) -> Trailer {
        EntryCursor::trailer(self)
    }

    fn value(&self) -> &[u8] {
        EntryCursor::value(self)
    }

    fn value_slice(&self) -> Slice {
        EntryCursor::value_slice(self)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        EntryCursor::next(self)
    }
}

/// An input as it stands in the tree.
#[derive(Clone, Copy, Debug)]
struct Player {
    /// Of its key; the largest at its end.
    head: u64,
    input: usize,
}

/// The merge of inputs. Of entries that are equal in key and trailer, that of the input with the lower index comes
/// first.
#[derive(Debug)]
pub(crate) struct LoserTree<C> {
    inputs: Vec<C>,
    /// Who lost at each node; the first place is nobody's.
    losers: Vec<Player>,
    /// `None` at the end, and after an error.
    front: Option<Player>,
}

impl<C: Forward> LoserTree<C> {
    /// Merges `inputs`, which stand on their first entries. Cost: a comparison for each of them.
    pub(crate) fn new(inputs: Vec<C>) -> Self {
        let count = inputs.len();
        let mut tree = Self { inputs, losers: Vec::new(), front: None };
        // Who wins at each node, and then the leaves, which win against nobody. A node's place is filled before
        // it is looked at.
        let leaves = (0..count).chain(0..count);
        let mut winners: Vec<Player> = leaves.map(|input| tree.player(input)).collect();
        tree.losers = winners[..count].to_vec();
        for node in (1..count).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = if tree.is_ahead(a, b) { (a, b) } else { (b, a) };
            (winners[node], tree.losers[node]) = (winner, loser);
        }
        tree.front = winners.get(1).copied().filter(|&winner| tree.inputs[winner.input].is_valid());
        tree
    }

    /// Whether there is an entry in front.
    pub(crate) fn is_valid(&self) -> bool {
        self.front.is_some()
    }

    /// The entry's user key. Panics at the end, as the others that read it.
    pub(crate) fn key(&self) -> &[u8] {
        self.inputs[self.source()].key()
    }

    /// The entry's sequence number and kind.
    pub(crate) fn trailer(&self) -> Trailer {
        self.inputs[self.source()].trailer()
    }

    /// The entry's value; empty for a tombstone.
    pub(crate) fn value(&self) -> &[u8] {
        self.inputs[self.source()].value()
    }

    /// The value, kept alive on its own.
    pub(crate) fn value_slice(&self) -> Slice {
        self.inputs[self.source()].value_slice()
    }

    /// The index of the input that the entry is from.
    pub(crate) fn source(&self) -> usize {
        self.front.expect("the merge must be on an entry").input
    }

    /// Moves to the next entry. Cost: as many comparisons as the tree has levels.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        let input = self.source();
        // Until the step is done there is no front, so that an error leaves none.
        self.front = None;
        self.inputs[input].next()?;
        let mut winner = self.player(input);
        let mut node = (self.inputs.len() + input) / 2;
        while node > 0 {
            let loser = self.losers[node];
            if self.is_ahead(loser, winner) {
                self.losers[node] = winner;
                winner = loser;
            }
            node /= 2;
        }
        self.front = self.inputs[winner.input].is_valid().then_some(winner);
        Ok(())
    }

    fn player(&self, input: usize) -> Player {
        let entry = &self.inputs[input];
        let head = if entry.is_valid() { head(entry.key()) } else { u64::MAX };
        Player { head, input }
    }

    #[inline]
    fn is_ahead(&self, a: Player, b: Player) -> bool {
        match a.head.cmp(&b.head) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.is_ahead_by_key(a.input, b.input),
        }
    }

    fn is_ahead_by_key(&self, a: usize, b: usize) -> bool {
        let (x, y) = (&self.inputs[a], &self.inputs[b]);
        if !x.is_valid() || !y.is_valid() {
            return x.is_valid();
        }
        let order = compare((x.key(), x.trailer()), (y.key(), y.trailer()));
        order.then(a.cmp(&b)) == Ordering::Less
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::sample::{self, Entry, Sorted};
    use super::*;
    use crate::base::Kind;
    use crate::error::Error;

    /// Keys that heads tell apart, and keys that they do not.
    fn keys() -> impl Strategy<Value = Vec<u8>> {
        let behind = |front: Vec<u8>| {
            sample::keys().prop_map(move |mut key| {
                key.splice(..0, front.iter().copied());
                key
            })
        };
        prop_oneof![
            sample::keys(),
            behind(vec![7; 8]),
            behind(vec![0xff; 7]),
            behind(vec![0xff; 8])
        ]
    }

    /// Sorted inputs, with entries that are equal in key and trailer. The value of an entry names its input.
    fn inputs() -> impl Strategy<Value = Vec<Vec<Entry>>> {
        let kinds = prop_oneof![Just(Kind::Put), Just(Kind::Delete)];
        let place = (keys(), 1..5_u64, kinds);
        proptest::collection::vec(proptest::collection::vec(place, 0..12), 0..40).prop_map(
            |inputs| {
                inputs
                    .into_iter()
                    .enumerate()
                    .map(|(input, places)| sorted(input, places))
                    .collect()
            },
        )
    }

    fn sorted(input: usize, places: Vec<(Vec<u8>, u64, Kind)>) -> Vec<Entry> {
        let entry = |(key, seqno, kind)| {
            let trailer = Trailer::new(seqno, kind);
            Entry { key, trailer, value: format!("from {input}").into_bytes() }
        };
        let mut entries: Vec<Entry> = places.into_iter().map(entry).collect();
        entries.sort_by(|a, b| compare(a.place(), b.place()));
        entries.dedup_by(|a, b| a.place() == b.place());
        entries
    }

    fn cursors(inputs: &[Vec<Entry>]) -> Vec<Sorted> {
        let cursor = |entries: &Vec<Entry>| {
            let mut cursor = Sorted::new(entries.clone());
            cursor.seek_to_first().unwrap();
            cursor
        };
        inputs.iter().map(cursor).collect()
    }

    proptest! {
        #[test]
        fn a_merge_is_a_stable_sort(inputs in inputs()) {
            let numbered = inputs.iter().enumerate();
            let mut expected: Vec<(&Entry, usize)> =
                numbered.flat_map(|(i, entries)| entries.iter().map(move |entry| (entry, i))).collect();
            expected.sort_by(|(a, _), (b, _)| compare(a.place(), b.place()));
            let mut tree = LoserTree::new(cursors(&inputs));
            for (entry, source) in expected {
                prop_assert!(tree.is_valid());
                prop_assert_eq!((tree.key(), tree.trailer()), entry.place());
                prop_assert_eq!((tree.value(), tree.source()), (&entry.value[..], source));
                prop_assert_eq!(&*tree.value_slice(), tree.value());
                tree.next().unwrap();
            }
            prop_assert!(!tree.is_valid());
        }
    }

    /// Numbers as keys, the looks at which are counted.
    struct Counted<'a> {
        keys: Vec<Vec<u8>>,
        looks: &'a Cell<usize>,
    }

    impl Forward for Counted<'_> {
        fn is_valid(&self) -> bool {
            !self.keys.is_empty()
        }

        fn key(&self) -> &[u8] {
            self.looks.set(self.looks.get() + 1);
            &self.keys[0]
        }

        fn trailer(&self) -> Trailer {
            Trailer::NEWEST
        }

        fn value(&self) -> &[u8] {
            &[]
        }

        fn next(&mut self) -> Result<()> {
            self.keys.remove(0);
            match self.keys.is_empty() {
                true => Err(Error::corruption(Path::new("input"), 0, "the end is missing")),
                false => Ok(()),
            }
        }
    }

    /// The most looks at keys that a step of a merge of `count` inputs takes, whose keys begin with `front`.
    fn looks(count: u32, front: &[u8]) -> usize {
        let looks = Cell::new(0);
        let key = |number: u32| [front, &number.to_be_bytes()].concat();
        let input = |i| (0..9).map(|round| key(round * 1000 + i * 7 % 41)).collect();
        let inputs = (0..count).map(|i| Counted { keys: input(i), looks: &looks }).collect();
        let mut tree = LoserTree::new(inputs);
        let step = |_| {
            looks.set(0);
            tree.next().unwrap();
            looks.get()
        };
        (0..8 * count as usize - 1).map(step).max().unwrap()
    }

    #[test]
    fn a_step_takes_one_comparison_for_each_level() {
        for count in 2..40_u32 {
            let levels = count.next_power_of_two().ilog2() as usize;
            assert_eq!(looks(count, b""), 1, "heads suffice");
            assert_eq!(looks(count, b"the same"), 1 + 2 * levels, "{count} inputs");
        }
    }

    #[test]
    fn after_an_error_there_is_no_entry() {
        let looks = Cell::new(0);
        let input = |key: &str| Counted { keys: vec![key.into()], looks: &looks };
        let mut tree = LoserTree::new(vec![input("b"), input("a")]);
        assert_eq!((tree.source(), tree.key()), (1, &b"a"[..]));
        tree.next().unwrap_err();
        assert!(!tree.is_valid());
    }
}
