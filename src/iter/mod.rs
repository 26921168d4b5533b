//! Walking over stored entries in order.
//!
//! [`EntryCursor`] is the one shape: a memtable, a block, a table and a merge of many all have it. It
//! shows *entries* (every version of a key, tombstones too); what a reader sees is decided one floor
//! above.

mod either;
mod loser_tree;
mod merge;
#[cfg(test)]
pub(crate) mod sample;
mod visible;

pub(crate) use either::Either;
pub(crate) use loser_tree::LoserTree;
pub(crate) use merge::Merge;
pub(crate) use visible::Visible;

use crate::base::key::Mark;
use crate::base::{Slice, Trailer, View};
use crate::error::Result;

/// The parts of a seek, in their order. Who seeks in many cursors has all of them do one part before any does the next, so that
/// they wait for memory together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Approach {
    /// Finds out where it is.
    Place,
    /// Finds that in memory.
    Memory,
    /// Finds the entry.
    Entry,
}

impl Approach {
    pub(crate) const ALL: [Self; 3] = [Self::Place, Self::Memory, Self::Entry];
}

/// A position in a sorted sequence of entries, or outside of it.
///
/// A new cursor is outside. A seek that finds nothing, and a step over either end, leave it outside;
/// [`next`](Self::next) and [`prev`](Self::prev) may be called only on a position. After an error the
/// cursor is outside, and the caller gives it up.
pub(crate) trait EntryCursor {
    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the first entry that is not before `(key, trailer)` in the order of
    /// [`compare`](crate::base::key::compare).
    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()>;
    /// Moves to the last entry before `(key, trailer)`.
    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()>;
    /// Does a part of a seek to `(key, trailer)`, from either side, and asks ahead for the memory that the next part looks at.
    /// The cursor is on no entry then: all parts and the seek itself must follow. What fails here fails again there.
    fn approach(&mut self, _part: Approach, _key: &[u8], _trailer: Trailer) {}
    /// Moves to the entry behind this one.
    fn next(&mut self) -> Result<()>;
    /// Moves to the entry in front of this one.
    fn prev(&mut self) -> Result<()>;
    /// Whether the cursor is on an entry.
    fn is_valid(&self) -> bool;
    /// The entry's user key. Panics or gives any bytes outside.
    fn key(&self) -> &[u8];
    /// The entry's sequence number and kind.
    fn trailer(&self) -> Trailer;
    /// The entry's value; empty for a tombstone.
    fn value(&self) -> &[u8];
    /// The value, kept alive on its own.
    fn value_slice(&self) -> Slice;
    /// What is known of the key at a glance.
    #[inline]
    fn mark(&self) -> Mark {
        Mark::of(self.key())
    }
    /// How many of the next entries have keys below `limit`, or are there at all, as far as that is known without a read.
    fn count_below(&self, _limit: Option<&[u8]>) -> usize {
        0
    }
    /// The block that begins with the entry, if its entries follow one another here as they are stored, in a form that
    /// may be stored again.
    #[inline]
    fn block(&self) -> Option<StoredBlock<'_>> {
        None
    }
    /// Moves behind the last entry of the [block](Self::block) that begins here.
    fn pass_block(&mut self) -> Result<()> {
        self.next()
    }
}

/// A block of entries in its stored form, which was checked.
pub(crate) struct StoredBlock<'a> {
    /// What it is when it is not compressed.
    pub(crate) plain: &'a [u8],
    /// What stands in the file, up to its checksum.
    pub(crate) stored: View,
    /// Its entries follow one another as far as their keys are below this.
    pub(crate) limit: Option<&'a [u8]>,
}

/// A walk over all keys a reader sees, in any order.
pub(crate) trait UnorderedCursor: Send {
    /// The next key and its value; `None` at the end.
    fn next(&mut self) -> Result<Option<(Slice, Slice)>>;
    /// Goes on like [`next`](Self::next) for those who want neither: whether there was one more.
    fn skip(&mut self) -> Result<bool> {
        Ok(self.next()?.is_some())
    }
}

/// A walk in order.
pub(crate) struct InOrder {
    cursor: Box<dyn OrderedCursor>,
    started: bool,
}

impl InOrder {
    pub(crate) fn new(cursor: Box<dyn OrderedCursor>) -> Self {
        Self { cursor, started: false }
    }

    /// Moves to the next record, if there is one.
    fn step(&mut self) -> Result<bool> {
        if self.started {
            self.cursor.next()?;
        } else {
            self.cursor.seek_to_first()?;
            self.started = true;
        }
        Ok(self.cursor.is_valid())
    }
}

impl UnorderedCursor for InOrder {
    fn next(&mut self) -> Result<Option<(Slice, Slice)>> {
        if !self.step()? {
            return Ok(None);
        }
        self.cursor.fetch()?;
        Ok(Some(self.cursor.record()))
    }

    fn skip(&mut self) -> Result<bool> {
        self.step()
    }
}

/// A position among the records a reader sees, or outside of them. The rules of [`EntryCursor`] hold.
///
/// As a rule a key has one record. Where an engine keeps several values of a key, each is a record of its own: they follow
/// each other as they were put, and the cursor goes through all of them, either way.
pub(crate) trait OrderedCursor: Send {
    /// Moves to the first record.
    fn seek_to_first(&mut self) -> Result<()>;
    /// Moves to the last record.
    fn seek_to_last(&mut self) -> Result<()>;
    /// Moves to the first record whose key is not below `key`.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the last record whose key is below `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the last record whose key is not above `key`.
    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.seek(key)?;
        if self.is_valid() && self.key() == key { Ok(()) } else { self.seek_before(key) }
    }
    /// Moves to the next record.
    fn next(&mut self) -> Result<()>;
    /// Moves to the record in front of this one.
    fn prev(&mut self) -> Result<()>;
    /// Whether the cursor is on a record.
    fn is_valid(&self) -> bool;
    /// The key.
    fn key(&self) -> &[u8];
    /// Which of the key's values this is, counted from 0, the oldest.
    fn index(&self) -> usize {
        0
    }
    /// Brings the record's value in, where that takes a read of its own; nothing outside. Called after each move, before
    /// the value is asked for, by those who want it.
    fn fetch(&mut self) -> Result<()> {
        Ok(())
    }
    /// The value.
    fn value(&self) -> &[u8];
    /// The value, kept alive on its own.
    fn value_slice(&self) -> Slice;
    /// Key and value, kept alive on their own.
    fn record(&self) -> (Slice, Slice) {
        (Slice::from(self.key()), self.value_slice())
    }
}
