//! A cursor over the entries of one block.

use std::ops::Range;

use super::Damage;
use super::block::{Block, Layout};
use crate::base::prefetch::prefetch;
use crate::base::{Slice, Trailer, View};
use crate::planted::{Bug, planted};

/// A position in a block, or outside of it. A new cursor has no block and is outside.
///
/// The current user key is kept whole in a buffer: the block's prefix is put there once, a step
/// overwrites only the suffix. It has room behind the prefix, so that a short suffix is copied with what follows it,
/// [`WORD`] bytes at once.
#[derive(Debug)]
pub(super) struct BlockCursor {
    block: Option<View>,
    layout: Layout,
    /// The current entry; the count when outside.
    index: usize,
    key: Vec<u8>,
    /// The key is so much of the buffer.
    key_len: usize,
    prefix: usize,
    trailer: Trailer,
    value: Range<usize>,
}

/// What is copied at once of a key.
const WORD: usize = 16;

impl BlockCursor {
    pub(super) fn new() -> Self {
        Self {
            block: None,
            layout: Layout::default(),
            index: 0,
            key: Vec::new(),
            key_len: 0,
            prefix: 0,
            trailer: Trailer::OLDEST,
            value: 0..0,
        }
    }

    /// Takes another block and stands outside of it.
    pub(super) fn set(&mut self, bytes: View) -> Result<(), Damage> {
        self.clear();
        let layout = Layout::parse(&bytes)?;
        self.key.clear();
        self.key.extend_from_slice(Block::with_layout(&bytes, layout).prefix());
        self.prefix = self.key.len();
        self.key.resize(self.prefix + WORD, 0);
        self.key_len = 0;
        self.index = layout.count();
        self.layout = layout;
        self.block = Some(bytes);
        Ok(())
    }

    /// Gives the block back and is outside.
    pub(super) fn clear(&mut self) {
        self.block = None;
        self.layout = Layout::default();
        self.index = 0;
    }

    pub(super) fn seek_to_first(&mut self) -> Result<(), Damage> {
        self.go_to(0)
    }

    pub(super) fn seek_to_last(&mut self) -> Result<(), Damage> {
        self.go_to(self.layout.count().wrapping_sub(1))
    }

    /// Moves to the first entry that is not before `(key, trailer)`.
    pub(super) fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<(), Damage> {
        self.seek_to(self.lower_bound(key, trailer)?)
    }

    /// The number of the first entry that is not before `(key, trailer)`, which is asked for ahead; `None` if the block is damaged.
    pub(super) fn find(&self, key: &[u8], trailer: Trailer) -> Option<usize> {
        let index = self.lower_bound(key, trailer).ok()?;
        if let Some(bytes) = self.block.as_ref().filter(|_| index < self.layout.count()) {
            let start = Block::with_layout(bytes, self.layout).start(index);
            bytes.get(start).into_iter().for_each(prefetch);
        }
        Some(index)
    }

    /// Moves to the entry that a seek has [found](Self::find).
    pub(super) fn seek_to(&mut self, index: usize) -> Result<(), Damage> {
        self.go_to(index + usize::from(planted(Bug::SeekOnePast)))
    }

    /// Moves to the entry in front of the one that a seek has [found](Self::find).
    pub(super) fn seek_to_before(&mut self, index: usize) -> Result<(), Damage> {
        self.go_to(index.wrapping_sub(1))
    }

    /// Moves to the last entry before `(key, trailer)`.
    pub(super) fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<(), Damage> {
        self.seek_to_before(self.lower_bound(key, trailer)?)
    }

    #[inline]
    pub(super) fn next(&mut self) -> Result<(), Damage> {
        self.go_to(self.index + 1)
    }

    #[inline]
    pub(super) fn prev(&mut self) -> Result<(), Damage> {
        self.go_to(self.index.wrapping_sub(1))
    }

    #[inline]
    pub(super) fn is_valid(&self) -> bool {
        self.index < self.layout.count()
    }

    /// Whether this is the first entry of the block.
    #[inline]
    pub(super) fn is_first(&self) -> bool {
        self.index == 0 && self.is_valid()
    }

    /// How many entries behind this one have keys below `limit`, or are there at all; 0 if the block is damaged.
    pub(super) fn count_below(&self, limit: Option<&[u8]>) -> usize {
        let end = match limit {
            Some(limit) => self.lower_bound(limit, Trailer::NEWEST).unwrap_or(0),
            None => self.layout.count(),
        };
        end.saturating_sub(self.index + 1)
    }

    /// The block.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.block.as_deref()
    }

    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.key[..self.key_len]
    }

    #[inline]
    pub(super) fn trailer(&self) -> Trailer {
        self.trailer
    }

    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |bytes| &bytes[self.value.clone()])
    }

    #[inline]
    pub(super) fn value_slice(&self) -> Slice {
        match &self.block {
            Some(bytes) => Slice::of_view(bytes, self.value.clone()),
            None => Slice::from(&[][..]),
        }
    }

    fn lower_bound(&self, key: &[u8], trailer: Trailer) -> Result<usize, Damage> {
        match &self.block {
            Some(bytes) => Block::with_layout(bytes, self.layout).lower_bound(key, trailer),
            None => Ok(0),
        }
    }

    /// Moves to entry `index`; outside if there is none.
    fn go_to(&mut self, index: usize) -> Result<(), Damage> {
        self.index = self.layout.count();
        let Some(bytes) = &self.block else { return Ok(()) };
        if index >= self.layout.count() {
            return Ok(());
        }
        let entry = Block::with_layout(bytes, self.layout).entry(index)?;
        if let Some(next) = bytes.get(entry.value.end) {
            prefetch(next);
        }
        self.key_len = self.prefix + entry.suffix.len();
        let room = self.key[self.prefix..].first_chunk_mut::<WORD>();
        match (room, entry.from_suffix.first_chunk()) {
            (Some(room), Some(word)) if entry.suffix.len() <= WORD => *room = *word,
            _ => {
                self.key.resize(self.key_len.max(self.prefix + WORD), 0);
                self.key[self.prefix..self.key_len].copy_from_slice(entry.suffix);
            }
        }
        self.trailer = entry.trailer;
        self.value = entry.value;
        self.index = index;
        Ok(())
    }
}
