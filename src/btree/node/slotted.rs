//! What leaves and inner nodes have in common: finding records by key through prefix, hints and slots.

use std::cmp::Ordering;
use std::ops::Range;

use super::header::{Header, PREFIX, hints, run_start};

/// The bytes of a slot: head and offset.
pub(super) const SLOT: usize = 6;

/// A record of a node, by where its parts are.
pub(super) trait Record: Sized {
    /// The record at `at`; `None` if it does not fit `bytes`.
    fn read(bytes: &[u8], at: usize) -> Option<Self>;
    /// Where the key without the node's prefix is.
    fn suffix(&self) -> Range<usize>;
    /// Where the record ends.
    fn end(&self) -> usize;
}

/// A slot: the head of a record's suffix, and its offset in units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) head: u32,
    pub(super) offset: u16,
}

impl Slot {
    #[inline]
    pub(super) fn read([a, b, c, d, x, y]: [u8; SLOT]) -> Self {
        Self { head: u32::from_le_bytes([a, b, c, d]), offset: u16::from_le_bytes([x, y]) }
    }

    pub(super) fn bytes(self) -> [u8; SLOT] {
        let [a, b, c, d] = self.head.to_le_bytes();
        let [x, y] = self.offset.to_le_bytes();
        [a, b, c, d, x, y]
    }
}

/// The first four bytes of a suffix as a number that orders like it.
#[inline]
pub(super) fn head(suffix: &[u8]) -> u32 {
    u32::from_be_bytes(match *suffix {
        [a, b, c, d, ..] => [a, b, c, d],
        [a, b, c] => [a, b, c, 0],
        [a, b] => [a, b, 0, 0],
        [a] => [a, 0, 0, 0],
        [] => [0; 4],
    })
}

/// A checked node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slotted<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) prefix: &'a [u8],
    slots: &'a [[u8; SLOT]],
    shift: u8,
}

impl<'a> Slotted<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let header = Header::read(bytes).expect("a checked node");
        let (prefix, rest) = bytes[PREFIX..].split_at(header.prefix_len);
        let slots = rest[..header.count * SLOT].as_chunks().0;
        Self { bytes, prefix, slots, shift: header.shift }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Record `index`, which must be below the count.
    #[inline]
    pub(super) fn record<R: Record>(&self, index: usize) -> R {
        let at = usize::from(Slot::read(self.slots[index]).offset) << self.shift;
        R::read(self.bytes, at).expect("a checked record")
    }

    /// The key of record `index` without the prefix.
    #[inline]
    pub(super) fn suffix<R: Record>(&self, index: usize) -> &'a [u8] {
        &self.bytes[self.record::<R>(index).suffix()]
    }

    /// Puts the key of record `index` into `key`, in place of what is there.
    pub(super) fn key_into<R: Record>(&self, index: usize, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.prefix);
        key.extend_from_slice(self.suffix::<R>(index));
    }

    /// The record with this key, or, as an error, the first one above it; the count if there is none.
    #[inline]
    pub(super) fn search<R: Record>(&self, key: &[u8]) -> Result<usize, usize> {
        let Some(suffix) = key.strip_prefix(self.prefix) else {
            return Err(if key < self.prefix { 0 } else { self.len() });
        };
        let equal = self.equal_heads(head(suffix));
        let (mut low, mut high) = (equal.start, equal.end);
        while low < high {
            let middle = low.midpoint(high);
            match self.suffix::<R>(middle).cmp(suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The slots with this head; if there are none, an empty range where they would be.
    #[inline]
    fn equal_heads(&self, wanted: u32) -> Range<usize> {
        let low = self.first_head(wanted);
        let equal = |&slot: &[u8; SLOT]| Slot::read(slot).head == wanted;
        let mut high = low;
        if self.slots.get(low).is_some_and(equal) {
            high += 1;
            if self.slots.get(high).is_some_and(equal) {
                high += self.slots[high..].partition_point(equal);
            }
        }
        low..high
    }

    /// The first slot whose head is not smaller. The hints say in which run it is, or at the end of which.
    #[inline]
    fn first_head(&self, wanted: u32) -> usize {
        let smaller = |&hint: &[u8; 4]| u32::from(u32::from_le_bytes(hint) < wanted);
        let run = hints(self.bytes).iter().map(smaller).sum::<u32>() as usize;
        let start = run_start(run, self.len());
        let slots = &self.slots[start..run_start(run + 1, self.len())];
        start + slots.partition_point(|&slot| Slot::read(slot).head < wanted)
    }
}
