//! Which entries must be kept.
//!
//! The states that must stay readable (held snapshots, and what was visible when the job began) cut the
//! versions of a key into stripes. Of each stripe only the newest entry is ever seen. Entries newer than
//! all of those states are kept, for snapshots yet to be taken. A tombstone that is the newest of the
//! oldest stripe is not needed either, if nothing older of its key lies deeper.
//!
//! Range tombstones are cut into stripes likewise, and of those that cover a key only the newest of each stripe counts. It
//! takes with it all entries of its stripe that are older. That of the oldest stripe is not needed for keys of which nothing
//! older lies deeper.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::ranges::Fragment;
use crate::base::{End, Fragments, Kind, RangeTombstone, Seqno, Trailer};
use crate::planted::{Bug, planted};

/// Decides entry by entry, in the order of a merge.
#[derive(Debug)]
pub(crate) struct Retention {
    /// Ascending.
    readable: Vec<Seqno>,
    key: Option<Vec<u8>>,
    stripe: Option<usize>,
    /// The range tombstones that count.
    ranges: Fragments,
    /// Those of them that are kept.
    kept: Fragments,
    /// The first fragment that does not end before the key.
    piece: usize,
}

impl Retention {
    /// `readable` are the sequence numbers whose states must stay readable, ascending.
    pub(crate) fn new(readable: Vec<Seqno>) -> Self {
        debug_assert!(readable.is_sorted());
        let readable = match planted(Bug::DropSnapshotVersion) {
            true => readable.last().copied().into_iter().collect(),
            false => readable,
        };
        let (ranges, kept) = (Fragments::default(), Fragments::default());
        Self { readable, key: None, stripe: None, ranges, kept, piece: 0 }
    }

    /// The same for entries among which there are also these range tombstones. `is_deepest` says whether no older entry of
    /// a key from one on and before another can lie deeper.
    pub(crate) fn with_ranges(
        mut self,
        tombstones: &[RangeTombstone],
        mut is_deepest: impl FnMut(&[u8], &End) -> bool,
    ) -> Self {
        let newest = |covering: &BTreeSet<Seqno>, kept: &mut Vec<Seqno>| {
            let mut below = Seqno::MAX;
            while let Some(&seqno) = covering.range(..below).next_back() {
                kept.push(seqno);
                below = match self.stripe_of(seqno) {
                    // Newer than all that is readable: each is kept.
                    stripe if stripe == self.readable.len() => seqno,
                    0 => break,
                    stripe => self.readable[stripe - 1] + 1,
                };
            }
        };
        self.ranges = Fragments::of(tombstones, newest);
        for fragment in self.ranges.iter() {
            let mut seqnos = fragment.seqnos;
            if let Some((&oldest, newer)) = seqnos.split_last()
                && self.stripe_of(oldest) == 0
                && !self.readable.is_empty()
                && (planted(Bug::DropRangeTombstoneEarly)
                    || is_deepest(fragment.start, fragment.end))
            {
                seqnos = newer;
            }
            self.kept.push(fragment.start, fragment.end, seqnos);
        }
        self
    }

    /// The range tombstones that must be kept.
    pub(crate) fn kept_ranges(&self) -> &Fragments {
        &self.kept
    }

    /// Whether no entry and no range tombstone is kept of a table with these keys and numbers, from the smallest to the
    /// largest.
    pub(crate) fn hides(
        &self,
        (smallest, largest): (&[u8], &[u8]),
        numbers: (Seqno, Seqno),
    ) -> bool {
        let stripe = self.stripe_of(numbers.1);
        if stripe == self.readable.len() || stripe != self.stripe_of(numbers.0) {
            return false;
        }
        let mut key = smallest;
        let first = self.ranges.begun_at(key).saturating_sub(1);
        for fragment in (first..self.ranges.len()).map_while(|piece| self.ranges.get(piece)) {
            let is_hidden = fragment.newest(self.readable[stripe]) > numbers.1;
            if **fragment.start > *key || !is_hidden {
                return false;
            }
            match fragment.end.key() {
                Some(end) if end <= largest => key = end,
                _ => return true,
            }
        }
        false
    }

    /// The first of the readable states that sees what was written as `seqno`; their number if none does.
    fn stripe_of(&self, seqno: Seqno) -> usize {
        self.readable.partition_point(|&readable| readable < seqno)
    }

    /// Whether the last entry was one of this key. A put of any other key must be kept, if no range tombstone covers it.
    pub(crate) fn is_at(&self, key: &[u8]) -> bool {
        self.key.as_deref() == Some(key)
    }

    /// Whether the entry must be kept; `is_deepest` says whether no older entry of a key can lie deeper.
    pub(crate) fn keeps(
        &mut self,
        key: &[u8],
        trailer: Trailer,
        is_deepest: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        if self.key.as_deref() != Some(key) {
            let kept = self.key.get_or_insert_default();
            kept.clear();
            kept.extend_from_slice(key);
            self.stripe = None;
        }
        let stripe = self.stripe_of(trailer.seqno());
        if stripe == self.readable.len() {
            return true;
        }
        if self.stripe == Some(stripe) {
            return false;
        }
        self.stripe = Some(stripe);
        if !self.ranges.is_empty()
            && self.newest_range(key, self.readable[stripe]) > trailer.seqno()
        {
            return false;
        }
        let is_last = || planted(Bug::DropTombstoneEarly) || is_deepest(key);
        !(trailer.kind() == Kind::Delete && stripe == 0 && is_last())
    }

    /// Where the keys end that no range tombstone covers, from `key` on, which is not below the last one; `None` if one covers
    /// that.
    pub(crate) fn uncovered(&mut self, key: &[u8]) -> Option<End> {
        match self.next_range(key) {
            Some(next) if **next.start <= *key => None,
            Some(next) => Some(End::Before(Arc::clone(next.start))),
            None => Some(End::Never),
        }
    }

    /// The newest range tombstone that covers `key`, which is not below the last one, and is not above `at`; 0 if there is
    /// none.
    fn newest_range(&mut self, key: &[u8], at: Seqno) -> Seqno {
        let next = self.next_range(key).filter(|next| **next.start <= *key);
        next.map_or(0, |next| next.newest(at))
    }

    /// The first fragment that does not end before `key`, which is not below the last one.
    fn next_range(&mut self, key: &[u8]) -> Option<Fragment<'_>> {
        while self.ranges.get(self.piece).is_some_and(|piece| !piece.end.is_above(key)) {
            self.piece += 1;
        }
        self.ranges.get(self.piece)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::Span;
    use crate::base::key::compare;
    use crate::base::ranges::sample;

    type Versions = Vec<(Seqno, Kind)>;

    fn kept(readable: &[Seqno], versions: &Versions, deepest: bool) -> Versions {
        let mut retention = Retention::new(readable.to_vec());
        let keep = |&&(seqno, kind): &&(Seqno, Kind)| {
            retention.keeps(b"k", Trailer::new(seqno, kind), |_| deepest)
        };
        versions.iter().filter(keep).copied().collect()
    }

    fn seen(versions: &Versions, at: Seqno) -> Option<Seqno> {
        let newest = versions.iter().find(|(seqno, _)| *seqno <= at)?;
        (newest.1 == Kind::Put).then_some(newest.0)
    }

    proptest! {
        #[test]
        fn every_readable_state_reads_the_same(
            mut readable in proptest::collection::btree_set(0u64..30, 1..5),
            versions in proptest::collection::btree_map(1u64..30, any::<bool>(), 0..20),
            deepest in any::<bool>(),
        ) {
            let versions: Versions = versions
                .into_iter()
                .rev()
                .map(|(seqno, put)| (seqno, if put { Kind::Put } else { Kind::Delete }))
                .collect();
            let readable: Vec<_> = std::mem::take(&mut readable).into_iter().collect();
            let kept = kept(&readable, &versions, deepest);
            let newest = *readable.last().unwrap();
            for at in readable.iter().copied().chain(newest..31) {
                prop_assert_eq!(seen(&kept, at), seen(&versions, at), "at {}", at);
            }
            let old = |versions: &Versions| versions.iter().filter(|(s, _)| *s <= newest).count();
            prop_assert!(old(&kept) <= readable.len(), "one entry a stripe");
        }
    }

    /// What is left of entries of several keys, in order, and of range tombstones.
    fn left(
        readable: &[Seqno],
        entries: &[(Vec<u8>, Trailer)],
        tombstones: &[RangeTombstone],
        is_deepest: impl Fn(&[u8]) -> bool,
    ) -> (Vec<(Vec<u8>, Trailer)>, Fragments) {
        let lies_deepest = |start: &[u8], end: &End| {
            let is_in = |key: &&Vec<u8>| start <= &key[..] && end.is_above(key);
            sample::keys().iter().filter(is_in).all(|key| is_deepest(key))
        };
        let retention = Retention::new(readable.to_vec());
        let mut retention = retention.with_ranges(tombstones, lies_deepest);
        let kept = retention.kept_ranges().clone();
        let keep =
            |(key, trailer): &&(Vec<u8>, Trailer)| retention.keeps(key, *trailer, &is_deepest);
        (entries.iter().filter(keep).cloned().collect(), kept)
    }

    /// The put that a reader at `at` sees of a key.
    fn put_of(
        entries: &[(Vec<u8>, Trailer)],
        ranges: impl Fn(&[u8], Seqno) -> Seqno,
        key: &[u8],
        at: Seqno,
    ) -> (Option<Seqno>, bool) {
        let mut of_key =
            entries.iter().filter(|(own, trailer)| own == key && trailer.seqno() <= at);
        let deleted = ranges(key, at);
        match of_key.next() {
            Some((_, trailer)) if trailer.seqno() > deleted => {
                (Some(trailer.seqno()).filter(|_| trailer.kind() == Kind::Put), true)
            }
            _ => (None, deleted > 0),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn with_range_tombstones_every_readable_state_reads_the_same(
            readable in proptest::collection::btree_set(0_u64..40, 1..4),
            writes in proptest::collection::vec(
                (proptest::collection::vec(0..3_u8, 0..3), 0..4_u8, proptest::option::weighted(0.8, proptest::collection::vec(0..3_u8, 0..3))),
                0..40,
            ),
            deeper in proptest::collection::btree_set(proptest::collection::vec(0..3_u8, 0..3), 0..4),
        ) {
            let (mut entries, mut tombstones) = (Vec::new(), Vec::new());
            for (seqno, (key, kind, end)) in (1..).zip(&writes) {
                match kind {
                    0 => entries.push((key.clone(), Trailer::new(seqno, Kind::Delete))),
                    1 | 2 => entries.push((key.clone(), Trailer::new(seqno, Kind::Put))),
                    _ => {
                        let span = Span { start: key, end: end.as_deref() };
                        tombstones.push(RangeTombstone::new(span, seqno));
                    }
                }
            }
            entries.sort_by(|a, b| compare((&a.0, a.1), (&b.0, b.1)));
            let readable: Vec<_> = readable.into_iter().collect();
            let newest = *readable.last().unwrap();
            let is_deepest = |key: &[u8]| !deeper.contains(key);
            let (kept, ranges) = left(&readable, &entries, &tombstones, is_deepest);
            for key in sample::keys() {
                for at in readable.iter().copied().chain(newest..41) {
                    let all = put_of(&entries, |key, at| sample::newest(&tombstones, key, at), &key, at);
                    let left = put_of(&kept, |key, at| ranges.newest(key, at), &key, at);
                    prop_assert_eq!(left.0, all.0, "{:?} at {}", key, at);
                    // What lies deeper stays hidden.
                    prop_assert!(is_deepest(&key) || left.1 == all.1, "{:?} at {}", key, at);
                }
                // One entry or tombstone a stripe, and nothing that a newer tombstone of its stripe covers.
                let old = |trailer: &Trailer| trailer.seqno() <= newest;
                let own: Vec<_> =
                    kept.iter().filter(|(own, trailer)| *own == key && old(trailer)).collect();
                prop_assert!(own.len() <= readable.len());
                for (_, trailer) in own {
                    let sees = readable[readable.partition_point(|&at| at < trailer.seqno())];
                    prop_assert!(sample::newest(&tombstones, &key, sees) < trailer.seqno());
                }
            }
            // A table is hidden if nothing of it is kept.
            for (at, (smallest, first)) in entries.iter().enumerate() {
                for len in 1..4.min(entries.len() - at) {
                    let table = &entries[at..at + len];
                    let numbers = table.iter().map(|(_, trailer)| trailer.seqno());
                    let numbers = (numbers.clone().min().unwrap(), numbers.max().unwrap());
                    let retention = Retention::new(readable.clone()).with_ranges(&tombstones, |_, _| false);
                    if retention.hides((smallest, &table[len - 1].0), numbers) {
                        prop_assert!(table.iter().all(|entry| !kept.contains(entry)), "{:?}", first);
                    }
                }
            }
        }
    }

    #[test]
    fn range_tombstones_stay_while_they_hide_something_deeper() {
        let put = |key: &[u8], seqno| (key.to_vec(), Trailer::new(seqno, Kind::Put));
        let span = |start, end| Span { start, end: Some(end) };
        let tombstones = [
            RangeTombstone::new(span(b"\0", b"\x02"), 5),
            RangeTombstone::new(span(b"\x01", b"\x03"), 8),
        ];
        let entries = [put(b"\0", 3), put(b"\x01", 6), put(b"\x02", 9)];
        let pieces = |readable: &[Seqno], deepest: bool| {
            let (kept, ranges) = left(readable, &entries, &tombstones, |_| deepest);
            let kept: Vec<Seqno> = kept.iter().map(|(_, trailer)| trailer.seqno()).collect();
            let ranges: Vec<_> =
                ranges.iter().map(|piece| (piece.start[0], piece.seqnos.to_vec())).collect();
            (kept, ranges)
        };
        assert_eq!(pieces(&[10], true), (vec![9], vec![]));
        assert_eq!(pieces(&[10], false), (vec![9], vec![(0, vec![5]), (1, vec![8])]));
        // A snapshot between them, and one that sees what the older one deleted.
        assert_eq!(pieces(&[6, 10], true), (vec![6, 9], vec![(1, vec![8])]));
        assert_eq!(pieces(&[6, 10], false).1, [(0, vec![5]), (1, vec![8, 5]), (2, vec![8])]);
        assert_eq!(pieces(&[4, 10], true), (vec![3, 9], vec![(0, vec![5]), (1, vec![8])]));
        // Snapshots that are still to be taken.
        assert_eq!(
            pieces(&[1], true),
            (vec![3, 6, 9], vec![(0, vec![5]), (1, vec![8, 5]), (2, vec![8])])
        );
    }

    #[test]
    fn tables_that_lie_wholly_in_what_is_deleted_are_not_read() {
        let span = |start, end| Span { start, end };
        let tombstones = [
            RangeTombstone::new(span(b"b", Some(b"f")), 20),
            RangeTombstone::new(span(b"f", Some(b"k")), 21),
            RangeTombstone::new(span(b"m", None), 22),
        ];
        let hides = |readable: &[Seqno], keys: (&str, &str), numbers| {
            let retention =
                Retention::new(readable.to_vec()).with_ranges(&tombstones, |_, _| false);
            retention.hides((keys.0.as_bytes(), keys.1.as_bytes()), numbers)
        };
        assert!(hides(&[30], ("b", "jj"), (3, 9)) && hides(&[30], ("m", "zzz"), (3, 21)));
        assert!(!hides(&[30], ("b", "k"), (3, 9)), "the end is not in it");
        assert!(!hides(&[30], ("a", "c"), (3, 9)) && !hides(&[30], ("j", "n"), (3, 9)));
        assert!(!hides(&[30], ("b", "jj"), (3, 25)) && !hides(&[30], ("b", "jj"), (3, 20)));
        assert!(!hides(&[5, 30], ("b", "jj"), (3, 9)), "a snapshot sees a part of it");
        assert!(!hides(&[10, 30], ("b", "jj"), (3, 9)) && hides(&[10, 30], ("b", "jj"), (11, 12)));
        assert!(!hides(&[15], ("b", "jj"), (3, 9)), "it is too new");
    }

    #[test]
    fn a_tombstone_stays_while_it_hides_something_deeper() {
        let versions = vec![(5, Kind::Delete), (3, Kind::Put)];
        assert_eq!(kept(&[9], &versions, false), [(5, Kind::Delete)]);
        assert_eq!(kept(&[9], &versions, true), []);
        assert_eq!(kept(&[4, 9], &versions, true), versions, "a snapshot sees what it hides");
    }
}
