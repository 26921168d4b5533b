//! A block of one table that goes to another as it is stored: nothing of it is encoded or compressed again.
//!
//! Its keys are looked at all the same, because filter, point index and properties of the new table need them. It goes as a
//! whole if its entries are puts of keys that are all different, with their values beside them, in order, none of them at or
//! behind a limit: then there is none that a merge would drop, or change.

use super::block::Block;
use crate::base::{Kind, Trailer, hash};
use crate::iter::StoredBlock;

/// A block of which all was looked at.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) entries: Vec<Seen>,
    pub(super) smallest: Vec<u8>,
    pub(super) largest: Vec<u8>,
}

/// What is known of an entry.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) hash: u64,
    /// Where it starts in the block.
    pub(super) start: u32,
    pub(super) key_len: usize,
    pub(super) value_len: usize,
    pub(super) trailer: Trailer,
}

impl Whole {
    /// What is to be known of a block whose keys are all below `until`, and whose values are all shorter than `shortest`;
    /// `None` if it does not go as a whole, or is damaged: who goes through its entries will see that.
    pub(super) fn look(
        stored: &StoredBlock<'_>,
        until: Option<&[u8]>,
        shortest: usize,
    ) -> Option<Self> {
        let block = Block::parse(stored.plain).ok()?;
        let last = block.entry(block.count() - 1).ok()?;
        let largest = [block.prefix(), last.suffix].concat();
        if [until, stored.limit].into_iter().flatten().any(|limit| largest.as_slice() >= limit) {
            return None;
        }
        let mut key = block.prefix().to_vec();
        let mut entries = Vec::with_capacity(block.count().min(stored.plain.len()));
        for index in 0..block.count() {
            let entry = block.entry(index).ok()?;
            let is_behind = index == 0 || &key[block.prefix().len()..] < entry.suffix;
            let is_plain = entry.trailer.kind() == Kind::Put && !entry.trailer.is_apart();
            if !is_behind || !is_plain || entry.value.len() >= shortest {
                return None;
            }
            key.truncate(block.prefix().len());
            key.extend_from_slice(entry.suffix);
            entries.push(Seen {
                hash: hash::hash64(&key),
                start: block.start(index) as u32,
                key_len: key.len(),
                value_len: entry.value.len(),
                trailer: entry.trailer,
            });
        }
        let smallest = [block.prefix(), block.entry(0).ok()?.suffix].concat();
        Some(Self { entries, smallest, largest })
    }

    pub(super) fn first(&self) -> (&[u8], Trailer) {
        (&self.smallest, self.entries[0].trailer)
    }

    pub(super) fn last(&self) -> (&[u8], Trailer) {
        (&self.largest, self.entries[self.entries.len() - 1].trailer)
    }
}
