//! Cursors over the parts of a tree: a memtable, a table, or a sorted level.

use std::sync::Arc;

use super::table::{ReadMode, TableCursor};
use super::version::TableFile;
use crate::base::{Slice, Trailer};
use crate::error::Result;
use crate::iter::{Either, EntryCursor};
use crate::memtable::MemtableCursor;

/// A cursor over tables that follow one another: one level, or one table. Tables are opened as they are
/// reached.
pub(crate) struct RunCursor {
    tables: Vec<Arc<TableFile>>,
    mode: ReadMode,
    /// The most bytes that are read at once, about.
    longest_run: u64,
    /// The table the cursor is in, and its position there.
    current: Option<(usize, TableCursor)>,
}

impl RunCursor {
    /// `tables` are in order and do not overlap.
    pub(crate) fn new(tables: Vec<Arc<TableFile>>, mode: ReadMode) -> Self {
        Self { tables, mode, longest_run: u64::MAX, current: None }
    }

    /// Reads at most about so many bytes at once.
    pub(crate) fn in_runs_of(self, longest_run: u64) -> Self {
        Self { longest_run, ..self }
    }

    /// Goes to the table `at`, if there is one, and seeks in it.
    fn enter(
        &mut self,
        at: Option<usize>,
        seek: impl FnOnce(&mut TableCursor) -> Result<()>,
    ) -> Result<()> {
        let reused = self.current.take().filter(|(open, _)| Some(*open) == at);
        let Some(at) = at.filter(|&at| at < self.tables.len()) else { return Ok(()) };
        let mut cursor = match reused {
            Some((_, cursor)) => cursor,
            None => {
                let mut cursor = self.tables[at].table()?.cursor(self.mode);
                cursor.limit_runs(self.longest_run);
                cursor
            }
        };
        seek(&mut cursor)?;
        self.current = Some((at, cursor));
        Ok(())
    }

    fn leave_forward(&mut self) -> Result<()> {
        match &self.current {
            Some((at, cursor)) if !cursor.is_valid() => {
                let next = at + 1;
                self.enter(Some(next), TableCursor::seek_to_first)
            }
            _ => Ok(()),
        }
    }

    fn leave_backward(&mut self) -> Result<()> {
        match &self.current {
            Some((at, cursor)) if !cursor.is_valid() => {
                let previous = at.checked_sub(1);
                self.enter(previous, TableCursor::seek_to_last)
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn inner(&self) -> &TableCursor {
        &self.current.as_ref().expect("the cursor must be on an entry").1
    }
}

impl EntryCursor for RunCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.enter(Some(0), TableCursor::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.enter(self.tables.len().checked_sub(1), TableCursor::seek_to_last)
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let at = self.tables.partition_point(|table| table.meta.largest.as_slice() < key);
        self.enter(Some(at), |cursor| cursor.seek(key, trailer))?;
        self.leave_forward()
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let past = self.tables.partition_point(|table| table.meta.smallest.as_slice() <= key);
        self.enter(past.checked_sub(1), |cursor| cursor.seek_before(key, trailer))?;
        self.leave_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.current {
            cursor.next()?;
            if cursor.is_valid() {
                return Ok(());
            }
        }
        self.leave_forward()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.current {
            cursor.prev()?;
            if cursor.is_valid() {
                return Ok(());
            }
        }
        self.leave_backward()
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, cursor)| cursor.is_valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.inner().key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.inner().trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.inner().value()
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        self.inner().value_slice()
    }
}

/// A cursor over one sorted part of a tree: a memtable, or tables.
pub(crate) type PartCursor = Either<MemtableCursor, RunCursor>;
