//! Ranges of keys.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use super::key::{EncodeKey, KeyWriter};

/// Both ends of a range, encoded.
pub type EncodedBounds = (Bound<KeyWriter>, Bound<KeyWriter>);

/// A range of keys of type `K`, whose ends are anything that can be written as one: any of Rust's ranges, or a pair of
/// [`Bound`]s, which a [`RangeBounds`] gives.
///
/// `RangeBounds` itself leaves open what the ends of `&a..&b` are, and so would have to be told.
pub trait KeyRange<K> {
    /// The ends, encoded.
    fn encoded(&self) -> EncodedBounds;
}

impl<K> KeyRange<K> for RangeFull {
    fn encoded(&self) -> EncodedBounds {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K, Q: EncodeKey<K>> KeyRange<K> for (Bound<Q>, Bound<Q>) {
    fn encoded(&self) -> EncodedBounds {
        (self.0.as_ref().map(KeyWriter::of), self.1.as_ref().map(KeyWriter::of))
    }
}

macro_rules! ranges {
    ($($range:ident)*) => {$(
        impl<K, Q: EncodeKey<K>> KeyRange<K> for $range<Q> {
            fn encoded(&self) -> EncodedBounds {
                let (from, to) = (RangeBounds::<Q>::start_bound(self), RangeBounds::<Q>::end_bound(self));
                (from.map(KeyWriter::of), to.map(KeyWriter::of))
            }
        }
    )*};
}

ranges!(Range RangeInclusive RangeFrom RangeTo RangeToInclusive);
