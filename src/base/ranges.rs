//! Range tombstones: all keys from one on and before another, deleted by one write.
//!
//! Where several overlap they are cut into *fragments*: ranges that do not overlap, ascending, each with the numbers of the
//! tombstones that cover it, the newest first. So what covers a key is found by one search among sorted starts, as
//! [RocksDB](https://rocksdb.org/blog/2018/11/21/delete-range.html) does.
//!
//! Thread safety: plain values; keys are shared by reference counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Seqno;

/// A range of keys that is borrowed: from `start` on and before `end`, or without an end. `start` is below `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) start: &'a [u8],
    pub(crate) end: Option<&'a [u8]>,
}

impl Span<'_> {
    /// Whether no key is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.end.is_some_and(|end| end <= self.start)
    }
}

/// Where a range of keys ends. The order is that of the ends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum End {
    /// Before this key.
    Before(Arc<[u8]>),
    /// Behind all keys.
    Never,
}

impl End {
    pub(crate) fn new(end: Option<&[u8]>) -> Self {
        end.map_or(Self::Never, |key| Self::Before(key.into()))
    }

    /// The end of the range whose last key is `key`.
    pub(crate) fn behind(key: &[u8]) -> Self {
        Self::Before([key, &[0]].concat().into())
    }

    /// The first key that is not in the range, if there is one.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Before(key) => Some(key),
            Self::Never => None,
        }
    }

    /// Whether `key` is below it.
    #[inline]
    pub(crate) fn is_above(&self, key: &[u8]) -> bool {
        match self {
            Self::Before(end) => key < end,
            Self::Never => true,
        }
    }
}

/// All keys of a range, deleted by the write `seqno`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RangeTombstone {
    pub(crate) start: Arc<[u8]>,
    pub(crate) end: End,
    pub(crate) seqno: Seqno,
}

impl RangeTombstone {
    pub(crate) fn new(keys: Span<'_>, seqno: Seqno) -> Self {
        Self { start: keys.start.into(), end: End::new(keys.end), seqno }
    }

    /// What of it lies from `start` on and before `end`, if anything does.
    pub(crate) fn clip(&self, start: &Arc<[u8]>, end: &End) -> Option<Self> {
        let (start, end) = ((&self.start).max(start), (&self.end).min(end));
        let seqno = self.seqno;
        let clipped = || Self { start: Arc::clone(start), end: end.clone(), seqno };
        end.is_above(start).then(clipped)
    }
}

/// Ranges that do not overlap, ascending, each covered by the same tombstones from its start to its end.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Fragments {
    pieces: Vec<Piece>,
    /// The numbers of all pieces, one after the other.
    seqnos: Vec<Seqno>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Piece {
    start: Arc<[u8]>,
    end: End,
    /// Where its numbers end.
    until: usize,
}

/// One fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fragment<'a> {
    pub(crate) start: &'a Arc<[u8]>,
    pub(crate) end: &'a End,
    /// Of the tombstones that cover it, newest first; at least one.
    pub(crate) seqnos: &'a [Seqno],
}

/// Keys around one for which the same is true: all that lie between two places where some fragment begins or ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    /// From here on; `None`: from the first key on.
    pub(crate) start: Option<Arc<[u8]>>,
    pub(crate) end: End,
    /// The newest tombstone that covers them, 0 if none does.
    pub(crate) newest: Seqno,
}

impl Fragments {
    /// What `tombstones` come to, which may overlap, in any order. `keep` is given the numbers of those that cover a piece,
    /// and says which of them count there, newest first.
    pub(crate) fn of(
        tombstones: &[RangeTombstone],
        mut keep: impl FnMut(&BTreeSet<Seqno>, &mut Vec<Seqno>),
    ) -> Self {
        let is_any = |tombstone: &&RangeTombstone| tombstone.end.is_above(&tombstone.start);
        let mut starts: Vec<_> = tombstones.iter().filter(is_any).collect();
        let mut ends = starts.clone();
        starts.sort_unstable_by(|a, b| a.start.cmp(&b.start));
        ends.sort_unstable_by(|a, b| a.end.cmp(&b.end));
        let (mut starts, mut ends) = (starts.into_iter().peekable(), ends.into_iter().peekable());
        let (mut all, mut covering, mut kept) = (Self::default(), BTreeSet::new(), Vec::new());
        let mut from: Option<Arc<[u8]>> = None;
        while let Some(next_end) = ends.peek() {
            let begins = starts.peek().filter(|next| next_end.end.is_above(&next.start));
            let edge =
                begins.map_or_else(|| next_end.end.clone(), |next| End::Before(next.start.clone()));
            if let Some(from) = from.filter(|_| !covering.is_empty()) {
                kept.clear();
                keep(&covering, &mut kept);
                all.push(&from, &edge, &kept);
            }
            while let Some(ended) = ends.next_if(|tombstone| tombstone.end == edge) {
                covering.remove(&ended.seqno);
            }
            let End::Before(key) = edge else { break };
            while let Some(begun) = starts.next_if(|tombstone| tombstone.start == key) {
                covering.insert(begun.seqno);
            }
            from = Some(key);
        }
        all
    }

    /// The newest of those that cover a piece.
    pub(crate) fn only_newest(covering: &BTreeSet<Seqno>, kept: &mut Vec<Seqno>) {
        kept.extend(covering.last());
    }

    /// Adds a fragment behind all others, unless it has no numbers. It becomes one with the last if that ends where it
    /// begins and has the same numbers.
    pub(crate) fn push(&mut self, start: &Arc<[u8]>, end: &End, seqnos: &[Seqno]) {
        if seqnos.is_empty() {
            return;
        }
        let from = self.from(self.pieces.len().saturating_sub(1));
        if let Some(last) = self.pieces.last_mut()
            && last.end.key() == Some(start)
            && self.seqnos[from..] == *seqnos
        {
            last.end = end.clone();
            return;
        }
        self.seqnos.extend_from_slice(seqnos);
        let (start, end) = (Arc::clone(start), end.clone());
        self.pieces.push(Piece { start, end, until: self.seqnos.len() });
    }

    /// Where the numbers of a piece begin.
    fn from(&self, piece: usize) -> usize {
        piece.checked_sub(1).map_or(0, |before| self.pieces[before].until)
    }

    /// The fragment with this number.
    #[inline]
    pub(crate) fn get(&self, piece: usize) -> Option<Fragment<'_>> {
        let Piece { start, end, until } = self.pieces.get(piece)?;
        Some(Fragment { start, end, seqnos: &self.seqnos[self.from(piece)..*until] })
    }

    /// All fragments, ascending.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Fragment<'_>> {
        (0..self.len()).filter_map(|piece| self.get(piece))
    }

    /// How many fragments there are.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How many fragments begin at `key` or below it: the number of the first one above it.
    pub(crate) fn begun_at(&self, key: &[u8]) -> usize {
        self.pieces.partition_point(|piece| *piece.start <= *key)
    }

    /// The fragment that `key` is in.
    fn around(&self, key: &[u8]) -> Option<Fragment<'_>> {
        let last = self.begun_at(key).checked_sub(1)?;
        self.get(last).filter(|fragment| fragment.end.is_above(key))
    }

    /// The newest tombstone that covers `key` and is not above `at`; 0 if there is none.
    pub(crate) fn newest(&self, key: &[u8], at: Seqno) -> Seqno {
        self.around(key).map_or(0, |fragment| fragment.newest(at))
    }

    /// The keys around `key` for which the same is true, and what is true for readers at `at`.
    pub(crate) fn stretch(&self, key: &[u8], at: Seqno) -> Stretch {
        let next = self.begun_at(key);
        let before = next.checked_sub(1).and_then(|last| self.get(last));
        if let Some(fragment) = before.filter(|fragment| fragment.end.is_above(key)) {
            let (start, end) = (Some(Arc::clone(fragment.start)), fragment.end.clone());
            return Stretch { start, end, newest: fragment.newest(at) };
        }
        let start = before.and_then(|fragment| match fragment.end {
            End::Before(key) => Some(Arc::clone(key)),
            End::Never => None,
        });
        let end = self.get(next).map_or(End::Never, |next| End::Before(Arc::clone(next.start)));
        Stretch { start, end, newest: 0 }
    }

    /// What of them lies from `start` on and before `end`.
    pub(crate) fn clip(&self, start: &Arc<[u8]>, end: &End) -> Self {
        let mut clipped = Self::default();
        let first = self.begun_at(start).saturating_sub(1);
        for fragment in (first..self.len()).map_while(|piece| self.get(piece)) {
            let (start, end) = (fragment.start.max(start), fragment.end.min(end));
            if end.is_above(start) {
                clipped.push(start, end, fragment.seqnos);
            } else if *fragment.start >= *start && fragment.end > end {
                break;
            }
        }
        clipped
    }

    /// The same, one tombstone for each number of each fragment.
    pub(crate) fn tombstones(&self) -> impl Iterator<Item = RangeTombstone> {
        self.iter().flat_map(|Fragment { start, end, seqnos }| {
            let tombstone =
                |&seqno| RangeTombstone { start: Arc::clone(start), end: end.clone(), seqno };
            seqnos.iter().map(tombstone)
        })
    }

    /// All numbers there are, those of each fragment newest first.
    pub(crate) fn seqnos(&self) -> &[Seqno] {
        &self.seqnos
    }

    /// The bytes of memory it takes, but for the keys.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&self.pieces[..]) + size_of_val(&self.seqnos[..])
    }

    /// The bytes of its keys.
    pub(crate) fn key_bytes(&self) -> usize {
        let len = |piece: &Piece| piece.start.len() + piece.end.key().map_or(0, <[u8]>::len);
        self.pieces.iter().map(len).sum()
    }
}

impl Fragment<'_> {
    /// The newest number that is not above `at`; 0 if there is none.
    pub(crate) fn newest(&self, at: Seqno) -> Seqno {
        let newer = self.seqnos.partition_point(|&seqno| seqno > at);
        self.seqnos.get(newer).copied().unwrap_or(0)
    }
}

impl Stretch {
    /// All keys, which nothing covers.
    pub(crate) const ALL: Self = Self { start: None, end: End::Never, newest: 0 };

    /// Whether `key` is in it.
    #[inline]
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        self.start.as_ref().is_none_or(|start| **start <= *key) && self.end.is_above(key)
    }

    /// Leaves of it what is from `start` on, and before `end`.
    pub(crate) fn narrow(&mut self, start: Option<Arc<[u8]>>, end: End) {
        // `None` is below all keys.
        self.start = self.start.take().max(start);
        if end < self.end {
            self.end = end;
        }
    }
}

/// Range tombstones to test with, and what they do by the book.
#[cfg(test)]
pub(crate) mod sample {
    use proptest::prelude::*;

    use super::*;

    /// Ranges between few keys, so that they overlap, meet and are the same; the n-th is the write n.
    pub(crate) fn tombstones(most: usize) -> impl Strategy<Value = Vec<RangeTombstone>> {
        let key = || proptest::collection::vec(0..3_u8, 0..3);
        let range = (key(), proptest::option::weighted(0.9, key()));
        proptest::collection::vec(range, 0..most).prop_map(|ranges| {
            let keys = |(start, end): &(Vec<u8>, Option<Vec<u8>>), seqno| {
                RangeTombstone::new(Span { start, end: end.as_deref() }, seqno)
            };
            let is_any = |(start, end): &&(Vec<u8>, Option<Vec<u8>>)| {
                end.as_ref().is_none_or(|end| start < end)
            };
            let ranges = ranges.iter().filter(is_any).zip(1..);
            ranges.map(|(range, seqno)| keys(range, seqno)).collect()
        })
    }

    /// All keys that matter for such ranges, in order.
    pub(crate) fn keys() -> Vec<Vec<u8>> {
        let mut keys = vec![Vec::new()];
        for _ in 0..3 {
            let longer =
                keys.iter().flat_map(|key| (0..4).map(|byte| [&key[..], &[byte]].concat()));
            keys = std::iter::once(Vec::new()).chain(longer).collect();
        }
        keys.sort();
        keys
    }

    /// The newest that covers `key` and is not above `at`.
    pub(crate) fn newest(tombstones: &[RangeTombstone], key: &[u8], at: Seqno) -> Seqno {
        let covers = |t: &&RangeTombstone| *t.start <= *key && t.end.is_above(key) && t.seqno <= at;
        tombstones.iter().filter(covers).map(|tombstone| tombstone.seqno).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::sample::{keys, newest, tombstones};
    use super::*;

    fn all(covering: &BTreeSet<Seqno>, kept: &mut Vec<Seqno>) {
        kept.extend(covering.iter().rev());
    }

    fn are_in_order(fragments: &Fragments) -> bool {
        let pieces: Vec<_> = fragments.iter().collect();
        pieces.iter().all(|piece| {
            piece.end.is_above(piece.start)
                && !piece.seqnos.is_empty()
                && piece.seqnos.is_sorted_by(|a, b| a > b)
        }) && pieces.windows(2).all(|pair| {
            let meet = pair[0].end.key() == Some(pair[1].start);
            !pair[0].end.is_above(pair[1].start) && (!meet || pair[0].seqnos != pair[1].seqnos)
        })
    }

    proptest! {
        #[test]
        fn fragments_say_what_the_tombstones_say(tombstones in tombstones(12)) {
            let fragments = Fragments::of(&tombstones, all);
            prop_assert!(are_in_order(&fragments), "{fragments:?}");
            let newest_only = Fragments::of(&tombstones, Fragments::only_newest);
            prop_assert!(are_in_order(&newest_only) && newest_only.len() <= 2 * tombstones.len());
            let again: Vec<_> = fragments.tombstones().collect();
            prop_assert_eq!(&Fragments::of(&again, all), &fragments);
            for key in keys() {
                for at in 0..=tombstones.len() as Seqno {
                    let expected = newest(&tombstones, &key, at);
                    prop_assert_eq!(fragments.newest(&key, at), expected);
                    let stretch = fragments.stretch(&key, at);
                    prop_assert!(stretch.holds(&key) && stretch.newest == expected);
                    for other in keys().iter().filter(|other| stretch.holds(other)) {
                        prop_assert_eq!(newest(&tombstones, other, at), expected);
                    }
                }
                prop_assert_eq!(newest_only.newest(&key, Seqno::MAX), newest(&tombstones, &key, Seqno::MAX));
            }
        }

        #[test]
        fn clips_are_what_lies_between(
            tombstones in tombstones(12),
            start in proptest::collection::vec(0..3_u8, 0..3),
            end in proptest::option::of(proptest::collection::vec(0..3_u8, 0..3)),
        ) {
            let fragments = Fragments::of(&tombstones, all);
            let (start, end): (Arc<[u8]>, _) = (start.into(), End::new(end.as_deref()));
            let clipped = fragments.clip(&start, &end);
            prop_assert!(are_in_order(&clipped), "{clipped:?}");
            let each: Vec<_> =
                tombstones.iter().filter_map(|tombstone| tombstone.clip(&start, &end)).collect();
            prop_assert_eq!(&Fragments::of(&each, all), &clipped);
            for key in keys() {
                let is_in = *start <= *key && end.is_above(&key);
                for at in 0..=tombstones.len() as Seqno {
                    let expected = if is_in { fragments.newest(&key, at) } else { 0 };
                    prop_assert_eq!(clipped.newest(&key, at), expected);
                }
            }
        }
    }

    #[test]
    fn what_nothing_lies_in_is_no_fragment() {
        let tombstone = |start: &str, end: Option<&str>| {
            let keys = Span { start: start.as_bytes(), end: end.map(str::as_bytes) };
            RangeTombstone::new(keys, 7)
        };
        assert!(
            Fragments::of(&[tombstone("b", Some("b")), tombstone("c", Some("b"))], all).is_empty()
        );
        let ends = [tombstone("b", None), tombstone("b", Some("z"))].map(|tombstone| tombstone.end);
        assert!(ends[0] > ends[1] && End::behind(b"a") > End::new(Some(b"a")));
        assert!(
            Span { start: b"", end: Some(b"") }.is_empty()
                && !Span { start: b"", end: None }.is_empty()
        );
    }
}
