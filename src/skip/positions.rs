//! Positions: which record is the n-th that a reader sees, and how many are below a key.
//!
//! In a sorted file, links say how many records are in front of each block. What came since is put on top of that, key by
//! key: where it would be in the file, and how many more records of it there are now, or fewer.
//!
//! A file whose records are out of order may give wrong positions, but no more than that.

use super::part::Part;
use super::reduce::Reduce;
use crate::base::{Kind, Seqno, Slice, Trailer};
use crate::error::Result;
use crate::iter::EntryCursor;

/// What positions are counted in.
pub(super) struct Positions<'a, C> {
    pub(super) base: Option<&'a Part>,
    /// All that came since.
    pub(super) changes: C,
    pub(super) reduce: &'a Reduce,
    pub(super) at: Seqno,
}

/// Where a record is.
pub(super) enum Located {
    /// In the file: its key and value.
    InBase(Slice, Slice),
    /// It is this one of the values of a key.
    Changed(Vec<u8>, u64),
}

/// A key that changed.
struct Change {
    key: Vec<u8>,
    /// Records of the file below the key.
    below: u64,
    /// How many records the file has of it, and how many there are now.
    before: u64,
    now: u64,
}

impl<C: EntryCursor> Positions<'_, C> {
    /// The record at `position`. Cost: reads a block; a search in the file for each key in front of it that changed.
    pub(super) fn nth(mut self, position: u64) -> Result<Option<Located>> {
        // Records that came and that went, in front of where the walk is.
        let (mut came, mut went) = (0, 0);
        self.changes.seek_to_first()?;
        while let Some(change) = self.next_change()? {
            let first = (change.below + came).saturating_sub(went);
            if position < first {
                break;
            }
            if position - first < change.now {
                return Ok(Some(Located::Changed(change.key, position - first)));
            }
            came += change.now;
            went += change.before;
        }
        match position.checked_sub(came).and_then(|rest| rest.checked_add(went)) {
            Some(record) => self.in_base(record),
            None => Ok(None),
        }
    }

    /// How many records are below `key`. Cost: as [`nth`](Self::nth).
    pub(super) fn rank(mut self, key: &[u8]) -> Result<u64> {
        let (mut came, mut went) = (0, 0);
        self.changes.seek_to_first()?;
        while let Some(change) = self.next_change()? {
            if *change.key >= *key {
                break;
            }
            came += change.now;
            went += change.before;
        }
        Ok((self.below(key, Trailer::NEWEST)? + came).saturating_sub(went))
    }

    /// Records of the file in front of `(key, trailer)`.
    fn below(&self, key: &[u8], trailer: Trailer) -> Result<u64> {
        self.base.map_or(Ok(0), |base| base.sorted.rank(key, trailer))
    }

    /// Record `record` of the file, counted in the order in which a cursor comes to them.
    fn in_base(&self, record: u64) -> Result<Option<Located>> {
        let Some(base) = self.base else { return Ok(None) };
        let mut cursor = base.sorted.cursor(None);
        cursor.seek_to_record(record)?;
        if cursor.is_valid() && self.reduce.keeps_all() {
            // Values of a key lie newest first, and are seen oldest first.
            let first = self.below(cursor.key(), Trailer::NEWEST)?;
            let behind = self.below(cursor.key(), Trailer::OLDEST)?;
            cursor.seek_to_record((first + behind).saturating_sub(record + 1))?;
        }
        let found = cursor.is_valid();
        Ok(found.then(|| Located::InBase(Slice::from(cursor.key()), cursor.value_slice())))
    }

    /// The key that the walk is at, with what became of it, and goes on to the next one. `None` at the end.
    fn next_change(&mut self) -> Result<Option<Change>> {
        while self.changes.is_valid() {
            let key = self.changes.key().to_vec();
            let (mut puts, mut is_deleted) = (0, false);
            while self.changes.is_valid() && self.changes.key() == key {
                let trailer = self.changes.trailer();
                if trailer.seqno() <= self.at && !is_deleted {
                    match trailer.kind() {
                        Kind::Put => puts += 1,
                        Kind::Delete => is_deleted = true,
                    }
                }
                self.changes.next()?;
            }
            if puts == 0 && !is_deleted {
                continue;
            }
            let below = self.below(&key, Trailer::NEWEST)?;
            let before = self.below(&key, Trailer::OLDEST)?.saturating_sub(below);
            let kept = if is_deleted { 0 } else { before };
            // With the newest value alone, older puts count no more than deletions.
            let now = match self.reduce.keeps_all() {
                true => kept + puts,
                false => u64::from(kept + puts > 0),
            };
            return Ok(Some(Change { key, below, before, now }));
        }
        Ok(None)
    }
}
