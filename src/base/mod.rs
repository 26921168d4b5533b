//! The words every room shares: keys and their order, sequence numbers, varints, checksums, hashes,
//! key ranges, memory from the system, and the bytes that are lent out without copying.

pub(crate) mod bounds;
pub(crate) mod checksum;
pub(crate) mod hash;
pub(crate) mod key;
pub(crate) mod pages;
pub(crate) mod prefetch;
pub(crate) mod ranges;
pub(crate) mod rng;
pub(crate) mod room;
pub(crate) mod slice;
pub(crate) mod varint;
pub(crate) mod visibility;
pub(crate) mod words;

pub(crate) use bounds::Bounds;
pub(crate) use key::{Kind, Seqno, Trailer};
pub(crate) use ranges::{End, Fragments, RangeTombstone, Span, Stretch};
pub use slice::{Slice, View};
pub(crate) use visibility::{HeldStates, ReadPoint, Visibility};
