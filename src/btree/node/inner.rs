//! Reading an inner node; its bytes are drawn in [`node`](super).

use std::ops::Range;

use super::Pointer;
use super::header::Header;
use super::slotted::{Record, Slotted};
use crate::base::varint;

/// An inner node's record, by where its parts are.
#[derive(Clone, Debug)]
pub(super) struct InnerRecord {
    child: u64,
    suffix: Range<usize>,
}

impl InnerRecord {
    /// The child; `None` if the pointer is impossible.
    #[inline]
    pub(super) fn child(&self) -> Option<Pointer> {
        Pointer::from_bits(self.child)
    }
}

impl Record for InnerRecord {
    #[inline]
    fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let (child, mut rest) = bytes.get(at..)?.split_first_chunk()?;
        let suffix_len = varint::take(&mut rest)?;
        let start = bytes.len() - rest.len();
        varint::take_bytes(&mut rest, suffix_len)?;
        Some(Self { child: u64::from_le_bytes(*child), suffix: start..bytes.len() - rest.len() })
    }

    #[inline]
    fn suffix(&self) -> Range<usize> {
        self.suffix.clone()
    }

    #[inline]
    fn end(&self) -> usize {
        self.suffix.end
    }
}

/// A checked inner node that is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner<'a>(Slotted<'a>);

impl<'a> Inner<'a> {
    /// The inner node in `bytes`, which [`check`](super::check) has passed with a level above 0, or a builder has
    /// made.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        debug_assert_ne!(super::level(bytes), 0, "an inner node");
        Self(Slotted::new(bytes))
    }

    /// How many separators there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Child `index`, counted from the left.
    #[inline]
    pub(crate) fn child(&self, index: usize) -> Pointer {
        let child = match index {
            0 => Header::read(self.0.bytes).and_then(|header| Pointer::from_bits(header.low)),
            _ => self.0.record::<InnerRecord>(index - 1).child(),
        };
        child.expect("a checked pointer")
    }

    /// Which child has the keys around `key`.
    #[inline]
    pub(crate) fn child_for(&self, key: &[u8]) -> usize {
        match self.0.search::<InnerRecord>(key) {
            Ok(equal) => equal + 1,
            Err(above) => above,
        }
    }

    /// Puts the separator between children `index` and `index + 1` into `key`, in place of what is there.
    #[inline]
    pub(crate) fn separator_into(&self, index: usize, key: &mut Vec<u8>) {
        self.0.key_into::<InnerRecord>(index, key);
    }
}
