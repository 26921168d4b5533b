//! Ranges of user keys.

use std::ops::{Bound, RangeBounds};

use super::Span;

/// A range of keys that owns its ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

/// A range of keys that owns its first key, and the one before which it ends, if there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HalfOpen {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

impl HalfOpen {
    pub(crate) fn span(&self) -> Span<'_> {
        Span { start: &self.start, end: self.end.as_deref() }
    }
}

impl Bounds {
    /// All keys.
    pub(crate) const ALL: Self = Self { lower: Bound::Unbounded, upper: Bound::Unbounded };

    pub(crate) fn new<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> Self {
        let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        Self { lower: own(range.start_bound()), upper: own(range.end_bound()) }
    }

    /// All keys that start with `prefix`.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        let upper = successor(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        Self { lower: Bound::Included(prefix.to_vec()), upper }
    }

    /// The same range, from its first key on and before another one.
    pub(crate) fn half_open(self) -> HalfOpen {
        let behind = |mut key: Vec<u8>| {
            key.push(0);
            key
        };
        let start = match self.lower {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key,
            Bound::Excluded(key) => behind(key),
        };
        let end = match self.upper {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(key),
        };
        HalfOpen { start, end }
    }

    /// Whether every key is in the range.
    pub(crate) fn is_everything(&self) -> bool {
        let from_start = match &self.lower {
            Bound::Unbounded => true,
            Bound::Included(lower) => lower.is_empty(),
            Bound::Excluded(_) => false,
        };
        from_start && self.upper == Bound::Unbounded
    }

    /// Whether `key` is not below the range.
    pub(crate) fn reaches(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => true,
            Bound::Included(lower) => key >= &lower[..],
            Bound::Excluded(lower) => key > &lower[..],
        }
    }

    /// Whether `key` is not above the range.
    pub(crate) fn holds_below(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => true,
            Bound::Included(upper) => key <= &upper[..],
            Bound::Excluded(upper) => key < &upper[..],
        }
    }
}

/// The smallest key above every key that starts with `prefix`; `None` if there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_a_range() {
        let range = Bounds::prefix(b"a\xff");
        assert_eq!(range.upper, Bound::Excluded(b"b".to_vec()));
        assert!(range.reaches(b"a\xff") && range.holds_below(b"a\xff\xff\xff"));
        assert!(!range.holds_below(b"b") && !range.reaches(b"a\xfe"));
        assert_eq!(Bounds::prefix(b"\xff\xff").upper, Bound::Unbounded);
        assert_eq!(Bounds::prefix(b""), Bounds { lower: Bound::Included(vec![]), ..Bounds::ALL });
    }

    #[test]
    fn half_open_ranges_have_the_same_keys() {
        use Bound::{Excluded, Included, Unbounded};
        let key = |at: usize| ["", "a", "a\0", "a\0\0", "b"][at].as_bytes().to_vec();
        let ends = (0..4).flat_map(|at| [Included(key(at)), Excluded(key(at))]);
        let ends: Vec<_> = ends.chain([Unbounded]).collect();
        for lower in &ends {
            for upper in &ends {
                let bounds = Bounds { lower: lower.clone(), upper: upper.clone() };
                let half_open = bounds.clone().half_open();
                let keys = half_open.span();
                for key in (0..5).map(key) {
                    let is_in = bounds.reaches(&key) && bounds.holds_below(&key);
                    let is_between =
                        keys.start <= &key[..] && keys.end.is_none_or(|end| &key[..] < end);
                    assert_eq!(is_between, is_in, "{bounds:?} {key:?}");
                    assert!(!(is_in && keys.is_empty()));
                }
            }
        }
    }
}
