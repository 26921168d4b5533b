//! Builds a data block; its bytes are drawn in [`block`](super::block).
//!
//! Entries are kept as they came until the block is full, because only then its common prefix is known.

use std::ops::Range;

use super::block::{HEAD, TAIL, head};
use crate::base::key::common_prefix_len;
use crate::base::{Trailer, varint};

/// The entries of the block being built.
#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    entries: Vec<Pending>,
    /// How many leading bytes all keys share.
    prefix: usize,
    /// What the entries would take with whole keys.
    entries_len: usize,
    /// The offsets of the entries; kept for its memory.
    starts: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    start: usize,
    key_len: usize,
    value_len: usize,
    trailer: Trailer,
}

impl Pending {
    fn key(&self) -> Range<usize> {
        self.start..self.start + self.key_len
    }

    fn value(&self) -> Range<usize> {
        self.key().end..self.key().end + self.value_len
    }
}

impl BlockBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The last entry added.
    #[inline]
    pub(super) fn last(&self) -> Option<(&[u8], Trailer)> {
        self.entries.last().map(|last| (&self.bytes[last.key()], last.trailer))
    }

    /// The bytes the block takes, or a little more.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len_with(self.prefix, 0, 0)
    }

    /// The bytes the block would take with one more entry, or a little more.
    #[inline]
    pub(super) fn len_after(&self, key: &[u8], trailer: Trailer, value: &[u8]) -> usize {
        let added = entry_len(key.len(), trailer, value.len());
        self.len_with(self.prefix_after(key), 1, added)
    }

    /// The bytes that are kept of the entries with one more, whose keys are whole until the block is full.
    #[inline]
    pub(super) fn kept_after(&self, key: &[u8], value: &[u8]) -> usize {
        self.bytes.len() + key.len() + value.len()
    }

    #[inline]
    pub(super) fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.prefix = self.prefix_after(key);
        self.entries_len += entry_len(key.len(), trailer, value.len());
        let start = self.bytes.len();
        self.entries.push(Pending { start, key_len: key.len(), value_len: value.len(), trailer });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// Appends the block to `out` and starts a new, empty one. Gives where in the block its entries start.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> &[u32] {
        let base = out.len();
        out.reserve(self.len());
        self.starts.clear();
        for entry in &self.entries {
            self.starts.push((out.len() - base) as u32);
            varint::put_prefixed(out, &self.bytes[entry.key()][self.prefix..]);
            varint::put(out, entry.value_len as u64);
            varint::put(out, entry.trailer.bits());
            out.extend_from_slice(&self.bytes[entry.value()]);
        }
        for entry in &self.entries {
            let head = head(&self.bytes[entry.key()][self.prefix..]);
            out.extend_from_slice(&head.to_le_bytes());
        }
        self.put_slots(out);
        if let Some(entry) = self.entries.first() {
            out.extend_from_slice(&self.bytes[entry.key()][..self.prefix]);
        }
        out.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.prefix as u32).to_le_bytes());
        out.push(self.slot_width() as u8);
        self.entries.clear();
        self.bytes.clear();
        self.entries_len = 0;
        &self.starts
    }

    /// Gives memory above `most` bytes back; for after a huge entry.
    pub(super) fn shrink(&mut self, most: usize) {
        self.bytes.shrink_to(most);
    }

    fn put_slots(&self, out: &mut Vec<u8>) {
        for start in &self.starts {
            let start = start.to_le_bytes();
            out.extend_from_slice(&start[..self.slot_width()]);
        }
    }

    /// Two bytes do for every offset of a block whose entries take less than 64 KiB.
    fn slot_width(&self) -> usize {
        if self.starts.last().is_some_and(|&last| last > u32::from(u16::MAX)) { 4 } else { 2 }
    }

    #[inline]
    fn prefix_after(&self, key: &[u8]) -> usize {
        let Some(first) = self.entries.first() else { return key.len() };
        common_prefix_len(&self.bytes[first.key()][..self.prefix], key)
    }

    #[inline]
    fn len_with(&self, prefix: usize, entries: usize, entries_len: usize) -> usize {
        let entries = entries + self.entries.len();
        let entries_len = entries_len + self.entries_len;
        let width = if entries_len > usize::from(u16::MAX) { 4 } else { 2 };
        entries_len - entries * prefix + entries * (HEAD + width) + prefix + TAIL
    }
}

/// The bytes of an entry with its whole key.
#[inline]
fn entry_len(key: usize, trailer: Trailer, value: usize) -> usize {
    varint::len(key as u64) + varint::len(value as u64) + varint::len(trailer.bits()) + key + value
}
