//! What a checkpoint changes: the newest versions of a memtable's keys, in key order, between two writes.

use crate::base::{Kind, Seqno};
use crate::error::Result;
use crate::iter::EntryCursor;

/// A walk over the changes that writes behind `after` and up to `through` make.
pub(super) struct Changes<C> {
    entries: C,
    after: Seqno,
    through: Seqno,
    key: Vec<u8>,
    kind: Kind,
    is_valid: bool,
}

impl<C: EntryCursor> Changes<C> {
    /// The walk, on the first change.
    pub(super) fn new(mut entries: C, after: Seqno, through: Seqno) -> Result<Self> {
        entries.seek_to_first()?;
        let (key, kind) = (Vec::new(), Kind::Put);
        let mut changes = Self { entries, after, through, key, kind, is_valid: false };
        changes.settle()?;
        Ok(changes)
    }

    /// The key to be changed; `None` at the end.
    #[inline]
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.is_valid.then_some(&self.key)
    }

    /// Its new value; `None` if it is to be removed.
    pub(super) fn value(&self) -> Option<&[u8]> {
        (self.kind == Kind::Put).then(|| self.entries.value())
    }

    /// Goes to the next change.
    pub(super) fn next(&mut self) -> Result<()> {
        // Older versions of this key come first.
        while self.entries.is_valid() && self.entries.key() == self.key {
            self.entries.next()?;
        }
        self.settle()
    }

    /// Stands on the next entry of the range. The first version of a key that is in it is the newest one.
    fn settle(&mut self) -> Result<()> {
        self.is_valid = false;
        while self.entries.is_valid() {
            let trailer = self.entries.trailer();
            if (self.after + 1..=self.through).contains(&trailer.seqno()) {
                self.key.clear();
                self.key.extend_from_slice(self.entries.key());
                (self.kind, self.is_valid) = (trailer.kind(), true);
                return Ok(());
            }
            self.entries.next()?;
        }
        Ok(())
    }
}
