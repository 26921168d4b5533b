//! Keys and their order.
//!
//! A stored entry is named by its user key and a [`Trailer`]: the sequence number of the write and
//! what the write was. Entries are ordered by user key ascending (bytewise), then by trailer
//! descending, so that the newest version of a key comes first.

use std::cmp::Ordering;

use crate::planted::{Bug, planted};

/// The number of a write in the commit order. The first write of a database has number 1; a batch of
/// `n` entries takes `n` consecutive numbers. Stored in 56 bits.
pub(crate) type Seqno = u64;

/// The largest sequence number that fits a trailer.
pub(crate) const MAX_SEQNO: Seqno = (1 << 56) - 1;

/// What a write was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The key was removed (a tombstone).
    Delete = 0,
    /// The key was given a value.
    Put = 1,
}

impl Kind {
    pub(crate) fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Delete),
            1 => Some(Self::Put),
            _ => None,
        }
    }
}

/// The kind of an entry whose value is kept apart, and which has what leads to it instead. Only tables of an LSM-tree have
/// such entries; to all others they are puts.
const APART: u8 = 2;

/// Sequence number and kind of one entry, packed as `seqno << 8 | kind`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Trailer(u64);

impl Trailer {
    /// Sorts before every other trailer of the same key.
    pub(crate) const NEWEST: Self = Self(u64::MAX);
    /// Sorts after every other trailer of the same key.
    pub(crate) const OLDEST: Self = Self(0);

    pub(crate) const fn new(seqno: Seqno, kind: Kind) -> Self {
        debug_assert!(seqno <= MAX_SEQNO);
        Self(seqno << 8 | kind as u64)
    }

    /// The trailer from which a reader that sees up to `seqno` starts looking.
    pub(crate) fn visible_at(seqno: Seqno) -> Self {
        Self(seqno.min(MAX_SEQNO) << 8 | 0xff)
    }

    /// What comes next in the order of one key's trailers.
    pub(crate) fn just_older(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// A trailer read from a file; `None` if its kind is unknown.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        Kind::from_u8(bits as u8).map(|_| Self(bits))
    }

    /// A trailer read from a table of an LSM-tree, which may say that the value is kept apart.
    #[inline]
    pub(crate) fn from_table_bits(bits: u64) -> Option<Self> {
        (bits as u8 <= APART).then_some(Self(bits))
    }

    /// That of the same put, whose value is kept apart.
    pub(crate) fn apart(self) -> Self {
        Self(self.0 & !0xff | u64::from(APART))
    }

    /// That of the same put, which has its value with it.
    pub(crate) fn together(self) -> Self {
        Self(self.0 & !0xff | Kind::Put as u64)
    }

    /// Whether this is a put that has its value with it.
    #[inline]
    pub(crate) fn is_plain_put(self) -> bool {
        self.0 as u8 == Kind::Put as u8
    }

    /// Whether the value is kept apart, and the entry has what leads to it instead.
    #[inline]
    pub(crate) fn is_apart(self) -> bool {
        self.0 as u8 == APART
    }

    /// The same of the write `seqno`, if this one says no number, 0; the same if `seqno` is 0.
    #[inline]
    pub(crate) fn numbered(self, seqno: Seqno) -> Self {
        Self(self.0 | seqno << 8)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn seqno(self) -> Seqno {
        self.0 >> 8
    }

    pub(crate) fn kind(self) -> Kind {
        if self.0 & 0xff == Kind::Delete as u64 { Kind::Delete } else { Kind::Put }
    }
}

/// The order of entries: user key ascending, then newest first.
#[inline]
pub(crate) fn compare(a: (&[u8], Trailer), b: (&[u8], Trailer)) -> Ordering {
    a.0.cmp(b.0).then_with(|| b.1.cmp(&a.1))
}

/// How many leading bytes `a` and `b` share.
pub(crate) fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let n = a.len().min(b.len());
    let mut i = 0;
    while i + 8 <= n {
        let x = u64::from_le_bytes(a[i..i + 8].try_into().expect("8 bytes"));
        let y = u64::from_le_bytes(b[i..i + 8].try_into().expect("8 bytes"));
        if x != y {
            return i + ((x ^ y).trailing_zeros() / 8) as usize;
        }
        i += 8;
    }
    while i < n && a[i] == b[i] {
        i += 1;
    }
    i
}

/// The first eight bytes of `key` as a number that orders like the key: shorter keys are padded with
/// zeros, so equal heads decide nothing and unequal heads decide everything.
pub(crate) fn head(key: &[u8]) -> u64 {
    if let Some(bytes) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes)
}

/// What is known of a key at a glance.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Mark {
    /// The first sixteen bytes, as two [heads](head).
    first: u64,
    second: u64,
    len: usize,
}

impl Mark {
    #[inline]
    pub(crate) fn of(key: &[u8]) -> Self {
        let (first, second) = long_head(key);
        Self { first, second, len: key.len() }
    }

    /// Whether the mark says all that there is to know of the key: equal marks are of one key then.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.len <= 16 || planted(Bug::CompareSixteenBytes)
    }

    /// Whether the keys are the same, as far as the marks say it.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.second == other.second && self.first == other.first && self.len == other.len
    }

    /// How the keys are ordered, if the marks say it; else they may be the same.
    #[inline]
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        self.first.cmp(&other.first).then_with(|| self.second.cmp(&other.second))
    }
}

/// The heads of the first and of the second eight bytes.
#[inline]
fn long_head(key: &[u8]) -> (u64, u64) {
    match (key.first_chunk::<16>(), key.first_chunk(), key.last_chunk()) {
        (Some(bytes), ..) => (head(bytes), head(&bytes[8..])),
        // What is behind the first eight is at the end of the last eight.
        (None, Some(first), Some(last)) => {
            let rest = u64::from_be_bytes(*last).checked_shl(8 * (16 - key.len() as u32));
            (u64::from_be_bytes(*first), rest.unwrap_or(0))
        }
        _ => (head(key), 0),
    }
}

/// Puts a copy of `key` in `buffer`. Eight to 32 bytes are copied without a call.
#[inline]
pub(crate) fn copy(key: &[u8], buffer: &mut Vec<u8>) {
    let len = key.len();
    if buffer.len() != len {
        buffer.resize(len, 0);
    }
    copy_bytes(key, buffer);
}

/// Copies bytes to others, of which there must be as many, as [`copy`] does.
#[inline]
pub(super) fn copy_bytes(from: &[u8], to: &mut [u8]) {
    debug_assert_eq!(from.len(), to.len());
    copy_pieces::<16>(from, to)
        .or_else(|| copy_pieces::<8>(from, to))
        .unwrap_or_else(|| to.copy_from_slice(from));
}

/// Copies a key of `N` to twice `N` bytes by its first and its last `N` bytes.
#[inline]
fn copy_pieces<const N: usize>(from: &[u8], to: &mut [u8]) -> Option<()> {
    if from.len() > 2 * N {
        return None;
    }
    *to.first_chunk_mut()? = *from.first_chunk::<N>()?;
    *to.last_chunk_mut()? = *from.last_chunk::<N>()?;
    Some(())
}

/// The head of `key` behind `prefix`. It orders like the key for any prefix: keys below all that start
/// with the prefix get 0, keys above them `u64::MAX`.
pub(crate) fn head_behind(prefix: &[u8], key: &[u8]) -> u64 {
    match key.strip_prefix(prefix) {
        Some(rest) => head(rest),
        None if key < prefix => 0,
        None => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_compared_and_copied_as_their_bytes(
            front in proptest::collection::vec(any::<u8>(), 0..20),
            a in proptest::collection::vec(0..3_u8, 0..20),
            b in proptest::collection::vec(0..3_u8, 0..20),
        ) {
            for (a, b) in [(a.clone(), b.clone()), ([&front[..], &a].concat(), [&front[..], &b].concat())] {
                let (mark, other) = (Mark::of(&a), Mark::of(&b));
                prop_assert!(mark.order(&other).then(a.cmp(&b)) == a.cmp(&b));
                prop_assert!(mark.is_same(&other) || a != b);
                prop_assert!(!mark.is_same(&other) || a == b || !mark.is_whole());
                let mut padded = [0; 16];
                let short = a.len().min(16);
                padded[..short].copy_from_slice(&a[..short]);
                prop_assert_eq!(long_head(&a), (head(&padded), head(&padded[8..])));
                let mut buffer = b.clone();
                copy(&a, &mut buffer);
                prop_assert_eq!(&buffer, &a);
            }
        }
    }

    #[test]
    fn newest_version_comes_first() {
        let old = Trailer::new(1, Kind::Put);
        let new = Trailer::new(2, Kind::Delete);
        assert_eq!(compare((b"k", new), (b"k", old)), Ordering::Less);
        assert_eq!(compare((b"a", old), (b"k", new)), Ordering::Less);
        assert_eq!(compare((b"k", Trailer::visible_at(1)), (b"k", old)), Ordering::Less);
        assert_eq!(compare((b"k", Trailer::visible_at(1)), (b"k", new)), Ordering::Greater);
        assert_eq!(Trailer::from_bits(7), None);
        assert_eq!(Trailer::new(0, Kind::Put).numbered(9), Trailer::new(9, Kind::Put));
        assert_eq!(old.numbered(0), old);
    }

    #[test]
    fn a_value_apart_is_a_put_that_only_tables_have() {
        let put = Trailer::new(9, Kind::Put);
        let apart = put.apart();
        assert!(apart.is_apart() && !put.is_apart() && !Trailer::new(9, Kind::Delete).is_apart());
        assert_eq!((apart.seqno(), apart.kind(), apart.together()), (9, Kind::Put, put));
        assert_eq!((Trailer::from_bits(apart.bits()), Trailer::from_table_bits(3)), (None, None));
        assert_eq!(Trailer::from_table_bits(apart.bits()), Some(apart));
    }

    proptest! {
        #[test]
        fn heads_order_like_keys(
            prefix in proptest::collection::vec(0u8..3, 0..4),
            a in proptest::collection::vec(0u8..3, 0..14),
            b in proptest::collection::vec(0u8..3, 0..14),
        ) {
            let by_head = head_behind(&prefix, &a).cmp(&head_behind(&prefix, &b));
            if by_head != Ordering::Equal {
                prop_assert_eq!(by_head, a.cmp(&b));
            }
        }

        #[test]
        fn common_prefix_is_the_longest(
            a in proptest::collection::vec(0u8..2, 0..30),
            b in proptest::collection::vec(0u8..2, 0..30),
        ) {
            let slow = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
            prop_assert_eq!(common_prefix_len(&a, &b), slow);
        }
    }
}
