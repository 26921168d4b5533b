//! From entries to what a reader sees: at most one value for each key, the newest the reader may see, and
//! nothing for a key whose newest entry is a tombstone.
//!
//! Forward, the inner cursor stands on the entry shown. Backward, versions come oldest first, so the inner
//! cursor stands in front of all versions of the key shown, and key and value are kept aside.

use super::{EntryCursor, OrderedCursor};
use crate::base::{Kind, Seqno, Slice, Trailer};
use crate::error::Result;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Position {
    Outside,
    /// The inner cursor is on the entry shown.
    OnEntry,
    /// The entry shown is in `key` and `value`.
    Aside,
}

/// The keys visible at one sequence number.
#[derive(Debug)]
pub(crate) struct Visible<C> {
    entries: C,
    at: Seqno,
    position: Position,
    key: Vec<u8>,
    value: Slice,
}

impl<C: EntryCursor> Visible<C> {
    pub(crate) fn new(entries: C, at: Seqno) -> Self {
        let value = Slice::from(&[][..]);
        Self { entries, at, position: Position::Outside, key: Vec::new(), value }
    }

    /// Stops at the first visible key at or behind the inner position; with `passed`, versions of the key
    /// in `self.key` are passed over.
    fn settle_forward(&mut self, mut passed: bool) -> Result<()> {
        while self.entries.is_valid() {
            let trailer = self.entries.trailer();
            let hidden =
                trailer.seqno() > self.at || (passed && self.entries.key() == self.key.as_slice());
            if !hidden {
                if trailer.kind() == Kind::Put {
                    self.position = Position::OnEntry;
                    return Ok(());
                }
                self.remember_key();
                passed = true;
            }
            self.entries.next()?;
        }
        Ok(())
    }

    /// Takes aside the last visible key at or in front of the inner position.
    fn settle_backward(&mut self) -> Result<()> {
        let mut newest = Kind::Delete;
        let mut on_key = false;
        while self.entries.is_valid() {
            let trailer = self.entries.trailer();
            if trailer.seqno() <= self.at {
                if on_key && self.entries.key() != self.key.as_slice() {
                    if newest == Kind::Put {
                        break;
                    }
                    on_key = false;
                }
                if !on_key {
                    self.remember_key();
                    on_key = true;
                }
                newest = trailer.kind();
                if newest == Kind::Put {
                    self.value = self.entries.value_slice();
                }
            }
            self.entries.prev()?;
        }
        if on_key && newest == Kind::Put {
            self.position = Position::Aside;
        }
        Ok(())
    }

    fn remember_key(&mut self) {
        self.key.clear();
        self.key.extend_from_slice(self.entries.key());
    }
}

impl<C: EntryCursor + Send> OrderedCursor for Visible<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.position = Position::Outside;
        self.entries.seek_to_first()?;
        self.settle_forward(false)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.position = Position::Outside;
        self.entries.seek_to_last()?;
        self.settle_backward()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.position = Position::Outside;
        self.entries.seek(key, Trailer::visible_at(self.at))?;
        self.settle_forward(false)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.position = Position::Outside;
        self.entries.seek_before(key, Trailer::NEWEST)?;
        self.settle_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let position = std::mem::replace(&mut self.position, Position::Outside);
        match position {
            Position::OnEntry => {
                self.remember_key();
                self.entries.next()?;
            }
            Position::Aside => self.entries.seek(&self.key, Trailer::OLDEST)?,
            Position::Outside => return Ok(()),
        }
        self.settle_forward(true)
    }

    fn prev(&mut self) -> Result<()> {
        let position = std::mem::replace(&mut self.position, Position::Outside);
        match position {
            Position::OnEntry => {
                self.remember_key();
                self.entries.seek_before(&self.key, Trailer::NEWEST)?;
            }
            Position::Aside => {}
            Position::Outside => return Ok(()),
        }
        self.settle_backward()
    }

    fn is_valid(&self) -> bool {
        self.position != Position::Outside
    }

    fn key(&self) -> &[u8] {
        match self.position {
            Position::Aside => &self.key,
            _ => self.entries.key(),
        }
    }

    fn value(&self) -> &[u8] {
        match self.position {
            Position::Aside => &self.value,
            _ => self.entries.value(),
        }
    }

    fn value_slice(&self) -> Slice {
        match self.position {
            Position::Aside => self.value.clone(),
            _ => self.entries.value_slice(),
        }
    }
}
