//! Sorted records on their way into a node; what the builders have in common.
//!
//! Records are kept as a node without a prefix would have them, because only the last one settles what all keys
//! have in common. Sizes that are told before are those of lengths not yet cut by the prefix, so a node may turn
//! out a few bytes smaller, and never larger.

use super::header::{HINTS, Header, MAX_NODE_LEN, PREFIX, hints_mut, run_start, shift_for};
use super::slotted::{SLOT, Slot, head};
use crate::base::key::common_prefix_len;
use crate::base::varint;

/// The records of the node being built.
#[derive(Debug)]
pub(super) struct Staging {
    page_size: usize,
    /// The records, one behind the other.
    bytes: Vec<u8>,
    records: Vec<Staged>,
    /// How many leading bytes all keys share.
    prefix: usize,
}

/// A record, by where its parts start.
#[derive(Clone, Copy, Debug)]
struct Staged {
    /// What stands before the length of the key.
    front: usize,
    key_len: usize,
    key: usize,
    /// What stands behind the key.
    payload: usize,
    end: usize,
}

impl Staged {
    fn shifted(self, by: usize) -> Self {
        Self {
            front: self.front - by,
            key_len: self.key_len - by,
            key: self.key - by,
            payload: self.payload - by,
            end: self.end - by,
        }
    }
}

impl Staging {
    pub(super) fn new(page_size: usize) -> Self {
        Self { page_size, bytes: Vec::new(), records: Vec::new(), prefix: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
        self.prefix = 0;
    }

    /// Key `index`.
    #[inline]
    pub(super) fn key(&self, index: usize) -> &[u8] {
        let record = self.records[index];
        &self.bytes[record.key..record.payload]
    }

    /// What stands before the length of key `index`.
    pub(super) fn front(&self, index: usize) -> &[u8] {
        let record = self.records[index];
        &self.bytes[record.front..record.key_len]
    }

    /// Adds a record behind all others.
    #[inline]
    pub(super) fn push(&mut self, front: &[u8], key: &[u8], payload: &[u8]) {
        debug_assert!(self.records.is_empty() || self.key(self.len() - 1) < key, "keys ascend");
        self.prefix = self.prefix_with(key);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(front);
        let key_len = self.bytes.len();
        varint::put(&mut self.bytes, key.len() as u64);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
        let (payload, end) = (at + key.len(), self.bytes.len());
        self.records.push(Staged { front: start, key_len, key: at, payload, end });
    }

    /// The bytes a node of all records takes, or a few more.
    #[inline]
    pub(super) fn used(&self) -> usize {
        size(self.len(), self.prefix, self.bytes.len())
    }

    pub(super) fn is_one_page(&self) -> bool {
        self.used() <= self.page_size
    }

    #[inline]
    fn prefix_with(&self, key: &[u8]) -> usize {
        match self.records.first() {
            None => key.len(),
            Some(first) => common_prefix_len(&self.bytes[first.key..first.key + self.prefix], key),
        }
    }

    /// How many records make the left one of two nodes of about equal bytes: at least one, at most `most`, and,
    /// but for one, no more than one page has room for.
    pub(super) fn balance_point(&self, most: usize) -> usize {
        let half = self.weight(self.len()) / 2;
        let above = partition_point(self.len(), |at| self.weight(at) < half);
        let below = above.saturating_sub(1);
        let nearer_below = half - self.weight(below) < self.weight(above).saturating_sub(half);
        let balanced = if nearer_below { below } else { above };
        balanced.min(self.full_point(most)).max(1)
    }

    /// How many records a node of one page has room for: at least one, at most `most`.
    pub(super) fn full_point(&self, most: usize) -> usize {
        let fits = |at| size(at, self.prefix, self.start(at)) <= self.page_size;
        partition_point(self.len(), |before| fits(before + 1)).clamp(1, most)
    }

    /// Where record `index` starts; for the number of records, where the last one ends.
    fn start(&self, index: usize) -> usize {
        self.records.get(index).map_or(self.bytes.len(), |record| record.front)
    }

    /// What the first records take in a node, besides what it takes without any.
    fn weight(&self, count: usize) -> usize {
        size(count, self.prefix, self.start(count)) - PREFIX - self.prefix
    }

    /// Takes the first records out.
    pub(super) fn remove_first(&mut self, count: usize) {
        let removed = self.start(count);
        self.bytes.drain(..removed);
        self.records.drain(..count);
        self.records.iter_mut().for_each(|record| *record = record.shifted(removed));
        self.prefix = self.shared(self.len());
    }

    /// How many leading bytes the first keys share.
    fn shared(&self, count: usize) -> usize {
        match count.checked_sub(1) {
            None => 0,
            Some(last) => common_prefix_len(self.key(0), self.key(last)),
        }
    }

    /// Appends a node of the first `count` records to `out`, but for what is filled in when it is sealed, and says
    /// how many pages it has. The records stay.
    ///
    /// # Panics
    /// If they take more than the largest node has.
    pub(super) fn write(&self, count: usize, level: u8, low: u64, out: &mut Vec<u8>) -> usize {
        let base = out.len();
        let prefix_len = self.shared(count);
        let shift = shift_for(self.exact(count, prefix_len));
        let slots = PREFIX + prefix_len;
        out.resize(base + PREFIX, 0);
        if count > 0 {
            out.extend_from_slice(&self.key(0)[..prefix_len]);
        }
        out.resize(base + slots + count * SLOT, 0);
        for (index, &record) in self.records[..count].iter().enumerate() {
            let at = (out.len() - base).next_multiple_of(1 << shift);
            out.resize(base + at, 0);
            self.write_record(record, prefix_len, out);
            let suffix = &self.bytes[record.key + prefix_len..record.payload];
            let offset = u16::try_from(at >> shift).expect("a node of possible size");
            let slot = Slot { head: head(suffix), offset };
            let place = base + slots + index * SLOT;
            out[place..place + SLOT].copy_from_slice(&slot.bytes());
        }
        let used = out.len() - base;
        let pages = used.div_ceil(self.page_size);
        assert!(pages * self.page_size <= MAX_NODE_LEN, "a node of {used} bytes");
        out.resize(base + pages * self.page_size, 0);
        let node = &mut out[base..];
        Header { level, shift, count, prefix_len, used, low }.write(node);
        write_hints(node, slots, count);
        pages
    }

    fn write_record(&self, record: Staged, prefix_len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes[record.front..record.key_len]);
        varint::put(out, (record.payload - record.key - prefix_len) as u64);
        out.extend_from_slice(&self.bytes[record.key + prefix_len..record.end]);
    }

    /// The bytes a node of the first records takes if nothing is aligned.
    fn exact(&self, count: usize, prefix_len: usize) -> usize {
        let record = |record: &Staged| {
            let suffix_len = record.payload - record.key - prefix_len;
            let payload_len = record.end - record.payload;
            record.key_len - record.front
                + varint::len(suffix_len as u64)
                + suffix_len
                + payload_len
        };
        let records: usize = self.records[..count].iter().map(record).sum();
        PREFIX + prefix_len + count * SLOT + records
    }
}

/// What a node of `count` records takes that took `bytes` with whole keys, or a few bytes more.
#[inline]
fn size(count: usize, prefix: usize, bytes: usize) -> usize {
    let size = PREFIX + prefix + count * SLOT + bytes - count * prefix;
    let gap = (1 << shift_for(size)) - 1;
    size + count * gap
}

/// The first of `0..len` that is not `below`.
fn partition_point(len: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        if below(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Fills in the hints of a node whose slots are there.
fn write_hints(node: &mut [u8], slots: usize, count: usize) {
    if count == 0 {
        return;
    }
    let mut found = [[0; 4]; HINTS];
    for (index, hint) in found.iter_mut().enumerate() {
        let slot = slots + run_start(index + 1, count) * SLOT;
        hint.copy_from_slice(&node[slot..slot + 4]);
    }
    hints_mut(node).copy_from_slice(&found);
}
