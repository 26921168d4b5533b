//! Reading a leaf; its bytes are drawn in [`node`](super).

use std::ops::Range;

use super::Pointer;
use super::header::Header;
use super::slotted::{Record, Slotted};
use crate::base::varint;

/// The longest value that is kept in a leaf of pages of this size, in bytes. Longer ones go to overflow pages, so
/// that a page has at least a few records unless keys are long.
pub(crate) const fn largest_inline(page_size: usize) -> usize {
    page_size / 4
}

/// A value as a leaf has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stored<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// So many bytes that begin in other pages.
    Overflow { at: Pointer, len: u64 },
}

/// The bytes of a pointer in a record.
pub(super) const POINTER: usize = 8;

/// A leaf's record, by where its parts are.
#[derive(Clone, Debug)]
pub(super) struct LeafRecord {
    /// Twice the length of the value; the lowest bit says that a pointer stands for it.
    word: u64,
    suffix: Range<usize>,
    /// The value or the pointer.
    payload: Range<usize>,
}

impl LeafRecord {
    pub(super) fn word(value: Stored<'_>) -> u64 {
        match value {
            Stored::Inline(bytes) => (bytes.len() as u64) << 1,
            Stored::Overflow { len, .. } => len << 1 | 1,
        }
    }

    /// The value word, as it is stored.
    pub(super) fn stored_word(&self) -> u64 {
        self.word
    }

    /// The value in `bytes`, those of the node; `None` if its pointer is impossible.
    #[inline]
    pub(super) fn value<'a>(&self, bytes: &'a [u8]) -> Option<Stored<'a>> {
        let payload = &bytes[self.payload.clone()];
        if self.word & 1 == 0 {
            return Some(Stored::Inline(payload));
        }
        let bits = u64::from_le_bytes(payload.try_into().ok()?);
        Some(Stored::Overflow { at: Pointer::from_bits(bits)?, len: self.word >> 1 })
    }
}

impl Record for LeafRecord {
    #[inline]
    fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let mut rest = bytes.get(at..)?;
        let word = varint::take(&mut rest)?;
        let suffix_len = varint::take(&mut rest)?;
        let start = bytes.len() - rest.len();
        let payload_len = if word & 1 == 0 { word >> 1 } else { POINTER as u64 };
        varint::take_bytes(&mut rest, suffix_len)?;
        let middle = bytes.len() - rest.len();
        varint::take_bytes(&mut rest, payload_len)?;
        Some(Self { word, suffix: start..middle, payload: middle..bytes.len() - rest.len() })
    }

    #[inline]
    fn suffix(&self) -> Range<usize> {
        self.suffix.clone()
    }

    #[inline]
    fn end(&self) -> usize {
        self.payload.end
    }
}

/// Where in a leaf's bytes the parts of a record are.
#[derive(Clone, Default, Debug)]
pub(crate) struct Parts {
    /// The key without the leaf's prefix.
    pub(crate) suffix: Range<usize>,
    /// The value, or the pointer to it.
    pub(crate) payload: Range<usize>,
    pub(crate) is_inline: bool,
}

/// A checked leaf that is looked at. Indexes are those of records in key order and must be below
/// [`len`](Self::len).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf<'a>(Slotted<'a>);

impl<'a> Leaf<'a> {
    /// The leaf in `bytes`, which [`check`](super::check) has passed with level 0, or a builder has made.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        debug_assert_eq!(super::level(bytes), 0, "a leaf");
        Self(Slotted::new(bytes))
    }

    /// How many records there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many of the node's bytes are taken.
    pub(crate) fn used(&self) -> usize {
        Header::read(self.0.bytes).map_or(0, |header| header.used)
    }

    /// What all keys begin with.
    #[inline]
    pub(crate) fn prefix(&self) -> &'a [u8] {
        self.0.prefix
    }

    /// Key `index` without the prefix.
    #[inline]
    pub(crate) fn suffix(&self, index: usize) -> &'a [u8] {
        self.0.suffix::<LeafRecord>(index)
    }

    /// Puts key `index` into `key`, in place of what is there.
    #[inline]
    pub(crate) fn key_into(&self, index: usize, key: &mut Vec<u8>) {
        self.0.key_into::<LeafRecord>(index, key);
    }

    /// Whether key `index` is `key`.
    #[inline]
    pub(crate) fn key_is(&self, index: usize, key: &[u8]) -> bool {
        key.strip_prefix(self.0.prefix).is_some_and(|suffix| suffix == self.suffix(index))
    }

    /// Value `index`.
    #[inline]
    pub(crate) fn value(&self, index: usize) -> Stored<'a> {
        let record = self.0.record::<LeafRecord>(index);
        record.value(self.0.bytes).expect("a checked value")
    }

    /// Where the parts of record `index` are, for who looks at all of them.
    #[inline]
    pub(crate) fn parts(&self, index: usize) -> Parts {
        let LeafRecord { word, suffix, payload } = self.0.record::<LeafRecord>(index);
        Parts { suffix, payload, is_inline: word & 1 == 0 }
    }

    /// The record with this key.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        self.0.search::<LeafRecord>(key).ok()
    }

    /// The first record whose key is not below `key`; the number of records if there is none.
    #[inline]
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        self.0.search::<LeafRecord>(key).unwrap_or_else(|above| above)
    }
}
