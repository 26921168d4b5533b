//! Running a compaction.
//!
//! 1. The inputs are merged in order, each read front to back with large reads past the block cache.
//! 2. Entries that no reader can see are dropped.
//!    A block of one input that no other has keys among goes to the new table as it is stored, if nothing of it is to be
//!    dropped or changed.
//! 3. The rest goes into new tables, ended near their target size, but never between two entries of one
//!    key, and if that is not far where a table of the next level begins: a table that ends there overlaps fewer of those when it goes
//!    down itself (RocksDB has this since 7.8). Range tombstones are cut where tables end; long values go to value files, if that is
//!    asked for.
//! 4. Each table and value file is synced, and the directory once at the end, before anyone is told of them. Tables of large
//!    merges are written and synced by a thread [aside](Aside), while the next entries are merged.
//!
//! On an error, or when told to stop, what was written is removed; the inputs are untouched.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::retention::Retention;
use crate::base::ranges::Fragment;
use crate::base::{End, Fragments, Seqno, Trailer};
use crate::error::{Error, Result};
use crate::iter::EntryCursor;
use crate::lsm::table::{TableBuilder, TableLimits, TableOptions, follower_below};
use crate::lsm::values::Placement;
use crate::lsm::version::{Home, TableFile, TableMeta};
use crate::planted::{Bug, planted};
use crate::throttle::Valve;
use crate::vfs::Aside;

/// It is asked whether to stop after so many entries or blocks,
const ENTRIES_UNASKED: u32 = 1024;
/// and after so many bytes of them.
const BYTES_UNASKED: usize = 4 << 20;

/// How tables are written.
pub(crate) struct Output<'a> {
    pub(crate) home: &'a Arc<Home>,
    pub(crate) options: &'a TableOptions,
    /// When a table is ended.
    pub(crate) limits: TableLimits,
    /// Each of these keys, which ascend, or one just below it, begins a new table.
    pub(crate) bounds: &'a [Vec<u8>],
    /// At each of these keys, which ascend, or just below it, a table ends that is nearly as long as it is to be.
    pub(crate) soft_bounds: &'a [Vec<u8>],
    /// The first key that is not among it any more.
    pub(crate) end: Option<&'a [u8]>,
    /// Gives each new file its number.
    pub(crate) next_id: &'a mut dyn FnMut() -> u64,
    /// What the writes of upkeep wait for.
    pub(crate) valve: Option<&'a Arc<Valve>>,
    /// Where values go.
    pub(crate) values: Placement<'a>,
    /// Writes tables while others are merged, if it is there.
    pub(crate) aside: Option<Aside>,
    /// Asked now and then whether to give up.
    pub(crate) stopped: &'a dyn Fn() -> bool,
}

/// Writes the entries of `cursor`, from its position up to the end, that `retention` keeps. `None` if told to stop.
pub(crate) fn write_tables(
    cursor: &mut impl EntryCursor,
    retention: &mut Retention,
    is_deepest: impl FnMut(&[u8]) -> bool,
    output: &mut Output<'_>,
) -> Result<Option<Vec<Arc<TableFile>>>> {
    let mut begun = Vec::new();
    let result = try_write(cursor, retention, is_deepest, output, &mut begun);
    if !matches!(result, Ok(Some(_))) {
        // Nothing is written any more after that.
        output.aside = None;
        for id in begun {
            if let Err(error) = output.home.fs.remove(&output.home.path(id)) {
                log::warn!("a half-made table stays behind until the next opening: {error}");
            }
        }
        output.values.abandon();
    }
    result
}

fn try_write(
    cursor: &mut impl EntryCursor,
    retention: &mut Retention,
    mut is_deepest: impl FnMut(&[u8]) -> bool,
    output: &mut Output<'_>,
    begun: &mut Vec<u64>,
) -> Result<Option<Vec<Arc<TableFile>>>> {
    let mut tables = Tables::new(output, retention.kept_ranges().clone(), begun);
    let end = tables.output.end;
    let (mut count, mut bytes) = (0, 0);
    while cursor.is_valid() && end.is_none_or(|end| cursor.key() < end) {
        count += 1;
        if count >= ENTRIES_UNASKED || bytes >= BYTES_UNASKED {
            (count, bytes) = (0, 0);
            if (tables.output.stopped)() {
                return Ok(None);
            }
        }
        if let Some((key, trailer)) = tables.take_block(cursor, retention)? {
            bytes += cursor.block().map_or(0, |block| block.stored.len());
            let is_kept = retention.keeps(&key, trailer, &mut is_deepest);
            debug_assert!(is_kept, "a put of a new key");
            cursor.pass_block()?;
            continue;
        }
        let (key, trailer): (&[u8], Trailer) = (cursor.key(), cursor.trailer());
        if retention.keeps(key, trailer, &mut is_deepest) {
            tables.add(key, trailer, cursor.value())?;
        }
        bytes += cursor.value().len() + tables.output.values.take_moved();
        match cursor.next() {
            Err(Error::Corruption { .. }) if planted(Bug::EndMergeAtDamage) => break,
            stepped => stepped?,
        }
    }
    let tables = tables.finish()?;
    output.values.finish()?;
    if let Some(aside) = &output.aside {
        aside.finish()?;
    }
    if !planted(Bug::SkipTableNamesSync) {
        output.home.fs.sync_dir(&output.home.dir)?;
    }
    Ok(Some(tables.into_iter().map(|table| table.known(output)).collect()))
}

/// Tables that are being written, one behind the other.
///
/// A table ends at a bound, or behind a key, the last one of an entry or the first one of a range tombstone, and the next one
/// begins with the key that follows: so what is left of range tombstones on both sides has no key in common, and neither have
/// the tables.
struct Tables<'o, 'a> {
    output: &'o mut Output<'a>,
    ranges: Fragments,
    /// The first fragment that begins behind all that was written.
    next_range: usize,
    /// Where tables end.
    bounds: Vec<Bound>,
    /// The first of them that is behind all that was written.
    next_bound: usize,
    /// When a table is ended before the next of them.
    limits: TableLimits,
    /// Where the range of keys of the present table begins.
    from: Arc<[u8]>,
    builder: Option<(u64, TableBuilder)>,
    /// The last key of the present table, once that is full.
    last_key: Vec<u8>,
    written: Vec<Written>,
    /// The numbers of all tables that were begun.
    begun: &'o mut Vec<u64>,
}

impl<'o, 'a> Tables<'o, 'a> {
    fn new(output: &'o mut Output<'a>, ranges: Fragments, begun: &'o mut Vec<u64>) -> Self {
        let bounds = bounds(output, !ranges.is_empty());
        let limits = output.limits;
        let mut tables = Self {
            output,
            ranges,
            next_range: 0,
            bounds,
            next_bound: 0,
            limits,
            from: Arc::new([]),
            builder: None,
            last_key: Vec::new(),
            written: Vec::new(),
            begun,
        };
        tables.go_to_bound(0);
        tables
    }

    /// The next bound is this one: a table that would be full before a soft one may be longer.
    fn go_to_bound(&mut self, next: usize) {
        let most = self.output.limits.bytes;
        let is_soft = self.bounds.get(next).is_some_and(|bound| bound.is_soft);
        self.limits.bytes = if is_soft { most.saturating_add(most / 2) } else { most };
        self.next_bound = next;
    }

    /// Adds an entry behind the last one.
    #[inline]
    fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        self.add_ranges(Some(key))?;
        self.make_room(key)?;
        let (_, table) = self.builder.as_mut().expect("just made");
        let (trailer, value) =
            self.output.values.place(key, trailer, value, self.output.next_id)?;
        table.add(key, trailer, value).map_err(|error| damaged(self.output.home, error))?;
        self.note(key);
        Ok(())
    }

    /// Adds the block that begins with the present entry, if it goes as a whole: a merge keeps all of its entries as they are,
    /// and no range tombstone begins, ends or lies among them. Gives the last of them.
    fn take_block(
        &mut self,
        cursor: &impl EntryCursor,
        retention: &mut Retention,
    ) -> Result<Option<(Vec<u8>, Trailer)>> {
        let Some((_, table)) = &mut self.builder else { return Ok(None) };
        let Some(block) = cursor.block() else { return Ok(None) };
        let key = cursor.key();
        let is_due = |next: Fragment<'_>| **next.start < *key;
        if retention.is_at(key)
            || table.is_full(self.limits)
            || self.ranges.get(self.next_range).is_some_and(is_due)
        {
            return Ok(None);
        }
        let Some(covered) = retention.uncovered(key) else { return Ok(None) };
        // No table ends at a soft bound that comes too soon.
        let least = self.output.limits.bytes / 4 * 3;
        let may_end = table.estimated_len() + block.stored.len() as u64 >= least;
        let bound = self.bounds[self.next_bound..].iter().find(|bound| may_end || !bound.is_soft);
        let bound = bound.map(|bound| &*bound.key);
        let until = [bound, self.output.end, covered.key()].into_iter().flatten().min();
        let last = table.add_block(&block, until, self.output.values.shortest());
        let last = last.map_err(|error| damaged(self.output.home, error))?;
        if let Some((key, _)) = &last {
            let passed = |bound: &Bound| bound.is_soft && *bound.key <= **key;
            while self.bounds.get(self.next_bound).is_some_and(passed) {
                self.go_to_bound(self.next_bound + 1);
            }
            self.note(key);
        }
        Ok(last)
    }

    /// Makes room for the fragments that begin below `key`, or all that are left.
    #[inline]
    fn add_ranges(&mut self, key: Option<&[u8]>) -> Result<()> {
        while let Some(fragment) = self.ranges.get(self.next_range)
            && key.is_none_or(|key| **fragment.start < *key)
        {
            let len = fragment.start.len() + fragment.end.key().map_or(0, <[u8]>::len);
            let (start, numbers) = (Arc::clone(fragment.start), size_of_val(fragment.seqnos));
            self.next_range += 1;
            self.make_room(&start)?;
            let (_, table) = self.builder.as_mut().expect("just made");
            table.expect_ranges(len + numbers);
            self.note(&start);
        }
        Ok(())
    }

    /// Ends the table if what is at `key` may not go there, or if it is full and that may go to the next one; begins one if
    /// there is none.
    #[inline]
    fn make_room(&mut self, key: &[u8]) -> Result<()> {
        self.pass_bounds(Some(key))?;
        let is_full = |(_, table): &(u64, TableBuilder)| table.is_full(self.limits);
        if self.builder.as_ref().is_some_and(is_full) && self.last_key != key {
            let end = End::behind(&self.last_key);
            self.end_table(&end)?;
            self.from = end.key().expect("there is a key behind each").into();
        }
        if self.builder.is_none() { self.begin_table() } else { Ok(()) }
    }

    /// Ends tables at the bounds that are not above `key`, or at all that are left. Where a range tombstone reaches over one,
    /// the next table begins with that.
    #[inline]
    fn pass_bounds(&mut self, key: Option<&[u8]>) -> Result<()> {
        while let Some(bound) = self.bounds.get(self.next_bound)
            && key.is_none_or(|key| *bound.key <= *key)
        {
            let (bound, is_soft) = (Arc::clone(&bound.key), bound.is_soft);
            self.go_to_bound(self.next_bound + 1);
            let least = self.output.limits.bytes / 4 * 3;
            let ends =
                |(_, table): &(u64, TableBuilder)| !is_soft || table.estimated_len() >= least;
            if self.builder.as_ref().is_some_and(ends) {
                self.end_table(&End::Before(Arc::clone(&bound)))?;
                if self.ranges.newest(&bound, Seqno::MAX) > 0 {
                    self.begin_table()?;
                    self.note(&bound);
                }
                self.from = bound;
            }
        }
        Ok(())
    }

    /// Takes note of the last key, if the table is full.
    #[inline]
    fn note(&mut self, key: &[u8]) {
        if self.builder.as_ref().is_some_and(|(_, table)| table.is_full(self.limits)) {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
    }

    fn begin_table(&mut self) -> Result<()> {
        let output = &mut *self.output;
        let id = (output.next_id)();
        let file = Valve::over_if(output.valve, output.home.create(id)?);
        self.begun.push(id);
        let file = match &output.aside {
            Some(aside) => aside.behind(file),
            None => file,
        };
        let identity = output.home.identity_of(id);
        self.builder = Some((id, TableBuilder::new(file, identity, output.options)?));
        Ok(())
    }

    /// Completes the table, whose range of keys ends at `end`.
    fn end_table(&mut self, end: &End) -> Result<()> {
        if let Some((id, mut table)) = self.builder.take() {
            table.set_ranges(self.ranges.clip(&self.from, end));
            self.written.push(Written::finish(id, table, self.output)?);
        }
        Ok(())
    }

    /// Completes the last table.
    fn finish(mut self) -> Result<Vec<Written>> {
        self.add_ranges(None)?;
        self.pass_bounds(None)?;
        self.end_table(&End::Never)?;
        Ok(self.written)
    }
}

/// What no table takes, though it comes from one, is damage there: trying again does not mend it.
#[cold]
fn damaged(home: &Home, error: Error) -> Error {
    match error {
        Error::Invalid(what) => Error::corruption(&home.dir, 0, what),
        error => error,
    }
}

/// Where a table ends, whatever it has, or, if it is soft, if it is nearly as long as it is to be.
struct Bound {
    key: Arc<[u8]>,
    is_soft: bool,
}

/// The bounds of both kinds, ascending. With range tombstones each has a largest key below it, so that they may be cut there: those
/// that have none are moved a little towards the front, where there are hardly any keys.
fn bounds(output: &Output<'_>, are_moved: bool) -> Vec<Bound> {
    let bound = |key: &Vec<u8>, is_soft| {
        let key = if are_moved { follower_below(key).into() } else { key.as_slice().into() };
        Bound { key, is_soft }
    };
    let hard = output.bounds.iter().map(|key| bound(key, false));
    let soft = output.soft_bounds.iter().map(|key| bound(key, true));
    let mut bounds: Vec<Bound> = hard.chain(soft).collect();
    bounds.sort_by(|a, b| (&a.key, a.is_soft).cmp(&(&b.key, b.is_soft)));
    bounds.dedup_by(|a, b| a.key == b.key);
    bounds
}

/// A table that was written, and what it refers to, while the value files are not complete.
struct Written {
    meta: TableMeta,
    shares: BTreeMap<u64, u64>,
}

impl Written {
    fn finish(id: u64, table: TableBuilder, output: &mut Output<'_>) -> Result<Self> {
        let meta = TableMeta::new(id, table.finish()?);
        Ok(Self { meta, shares: output.values.end_table() })
    }

    /// The table with its value files, which are complete.
    fn known(self, output: &Output<'_>) -> Arc<TableFile> {
        let values = output.values.shares_of(self.shares);
        TableFile::with_values(self.meta, values, Arc::clone(output.home))
    }
}

#[cfg(test)]
mod tests;
