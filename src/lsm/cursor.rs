//! Cursors over the parts of a tree: a memtable, or a run of tables.

use std::sync::Arc;

use super::read_trigger::ReadTrigger;
use super::table::{ReadMode, TableCursor};
use super::version::Run;
use crate::base::{Kind, Seqno, Slice, Trailer};
use crate::error::Result;
use crate::iter::{Approach, Either, EntryCursor, StoredBlock};
use crate::memtable::MemtableCursor;
use crate::vfs::Aside;

/// A cursor over the tables of a run. They are opened as they are reached.
pub(crate) struct RunCursor {
    run: Run,
    mode: ReadMode,
    /// The most bytes that are read at once, about.
    longest_run: u64,
    /// The thread that reads ahead, if there is one.
    aside: Option<Arc<Aside>>,
    /// The table the cursor is in, and its position there.
    current: Option<(usize, TableCursor)>,
    /// The number of the table's entries if it was loaded, else 0.
    loaded_as: Seqno,
    /// Who is told of seeks, how many runs each of them visits, and since which epoch.
    visits: Option<(Arc<ReadTrigger>, usize, u64)>,
}

impl RunCursor {
    pub(crate) fn new(run: Run, mode: ReadMode) -> Self {
        let (longest_run, aside, current, loaded_as, visits) = (u64::MAX, None, None, 0, None);
        Self { run, mode, longest_run, aside, current, loaded_as, visits }
    }

    /// Tells of each seek that it visits so many runs.
    pub(super) fn telling(self, trigger: &Arc<ReadTrigger>, runs: usize) -> Self {
        Self { visits: Some((Arc::clone(trigger), runs, trigger.epoch())), ..self }
    }

    /// Reads at most about so many bytes at once.
    pub(crate) fn in_runs_of(self, longest_run: u64) -> Self {
        Self { longest_run, ..self }
    }

    /// Has the thread read ahead.
    pub(crate) fn with_aside(self, aside: Option<Arc<Aside>>) -> Self {
        Self { aside, ..self }
    }

    /// Goes to the table `at`, if there is one, and seeks in it.
    fn enter(
        &mut self,
        at: Option<usize>,
        seek: impl FnOnce(&mut TableCursor, Seqno) -> Result<()>,
    ) -> Result<()> {
        let reused = self.current.take().filter(|(open, _)| Some(*open) == at);
        let Some(at) = at.filter(|&at| at < self.run.tables().len()) else { return Ok(()) };
        let mut cursor = match reused {
            Some((_, cursor)) => cursor,
            None => {
                let file = &self.run.tables()[at];
                let table = file.table()?;
                self.loaded_as = file.loaded_as(&table);
                let mut cursor = table.cursor(self.mode);
                cursor.limit_runs(self.longest_run);
                cursor.read_aside(self.aside.clone());
                cursor
            }
        };
        seek(&mut cursor, self.loaded_as)?;
        self.current = Some((at, cursor));
        Ok(())
    }

    fn leave_forward(&mut self) -> Result<()> {
        // A table may have nothing but range tombstones.
        while let Some((at, cursor)) = &self.current
            && !cursor.is_valid()
        {
            let next = at + 1;
            self.enter(Some(next), |cursor, _| cursor.seek_to_first())?;
        }
        Ok(())
    }

    fn leave_backward(&mut self) -> Result<()> {
        while let Some((at, cursor)) = &self.current
            && !cursor.is_valid()
        {
            let previous = at.checked_sub(1);
            self.enter(previous, |cursor, _| cursor.seek_to_last())?;
        }
        Ok(())
    }

    fn tell(&self) {
        if let Some((trigger, runs, epoch)) = &self.visits {
            trigger.visit(*runs, *epoch);
        }
    }

    /// The table in which a seek begins.
    fn table_from(&self, key: &[u8]) -> usize {
        self.run.tables().partition_point(|table| table.meta.largest.as_slice() < key)
    }

    #[inline]
    fn inner(&self) -> &TableCursor {
        &self.current.as_ref().expect("the cursor must be on an entry").1
    }
}

/// Where to seek in a table for what stands at `trailer` among versions of its key, if its entries count as written with
/// number `loaded_as`, or have numbers of their own, if that is 0.
fn stored(trailer: Trailer, loaded_as: Seqno) -> Trailer {
    match loaded_as {
        0 => trailer,
        _ if Trailer::new(loaded_as, Kind::Put) <= trailer => Trailer::NEWEST,
        _ => Trailer::OLDEST,
    }
}

impl EntryCursor for RunCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.enter(Some(0), |cursor, _| cursor.seek_to_first())?;
        self.leave_forward()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let last = self.run.tables().len().checked_sub(1);
        self.enter(last, |cursor, _| cursor.seek_to_last())?;
        self.leave_backward()
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.tell();
        let at = self.table_from(key);
        self.enter(Some(at), |cursor, number| cursor.seek(key, stored(trailer, number)))?;
        self.leave_forward()
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.tell();
        let past = self.run.tables().partition_point(|table| table.meta.smallest.as_slice() <= key);
        let seek =
            |cursor: &mut TableCursor, number| cursor.seek_before(key, stored(trailer, number));
        self.enter(past.checked_sub(1), seek)?;
        self.leave_backward()
    }

    fn approach(&mut self, part: Approach, key: &[u8], trailer: Trailer) {
        if part == Approach::Place {
            let at = self.table_from(key);
            // Who seeks meets the error.
            drop(self.enter(Some(at), |_, _| Ok(())));
        }
        if let Some((_, cursor)) = &mut self.current {
            cursor.approach(part, key, stored(trailer, self.loaded_as));
        }
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
        self.inner().trailer().numbered(self.loaded_as)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.inner().value()
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        self.inner().value_slice()
    }

    fn count_below(&self, limit: Option<&[u8]>) -> usize {
        self.inner().count_below(limit)
    }

    #[inline]
    fn block(&self) -> Option<StoredBlock<'_>> {
        // Entries of a load are stored without their number.
        if self.loaded_as == 0 { self.inner().block() } else { None }
    }

    fn pass_block(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.current {
            cursor.pass_block()?;
        }
        self.leave_forward()
    }
}

/// A cursor over one sorted part of a tree: a memtable, or tables.
pub(crate) type PartCursor = Either<MemtableCursor, RunCursor>;
