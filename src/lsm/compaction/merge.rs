//! Running a compaction.
//!
//! 1. The inputs are merged in order, each read front to back with large reads past the block cache.
//! 2. Entries that no reader can see are dropped.
//!    A block of one input that no other has keys among goes to the new table as it is stored, if nothing of it is to be
//!    dropped or changed.
//! 3. The rest goes into new tables, ended near their target size, but never between two entries of one
//!    key; long values go to value files, if that is asked for.
//! 4. Each table and value file is synced, and the directory once at the end, before anyone is told of them. Tables of large
//!    merges are written and synced by a thread [aside](Aside), while the next entries are merged.
//!
//! On an error, or when told to stop, what was written is removed; the inputs are untouched.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::retention::Retention;
use crate::base::Trailer;
use crate::error::Result;
use crate::iter::EntryCursor;
use crate::lsm::table::{TableBuilder, TableLimits, TableOptions};
use crate::lsm::values::Placement;
use crate::lsm::version::{Home, TableFile, TableMeta};
use crate::throttle::Valve;
use crate::vfs::Aside;

/// How tables are written.
pub(crate) struct Output<'a> {
    pub(crate) home: &'a Arc<Home>,
    pub(crate) options: &'a TableOptions,
    /// When a table is ended.
    pub(crate) limits: TableLimits,
    /// Each of these keys, which ascend, begins a new table.
    pub(crate) bounds: &'a [Vec<u8>],
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
    let mut tables = Vec::new();
    let mut builder: Option<(u64, TableBuilder)> = None;
    let mut last_key = Vec::new();
    let mut bounds = output.bounds;
    let mut count = 0u32;
    while cursor.is_valid() && output.end.is_none_or(|end| cursor.key() < end) {
        count = count.wrapping_add(1);
        if count.is_multiple_of(1024) && (output.stopped)() {
            return Ok(None);
        }
        if let Some((_, table)) = &mut builder
            && let Some((key, trailer)) = take_block(cursor, retention, bounds, table, output)?
        {
            let is_kept = retention.keeps(&key, trailer, &mut is_deepest);
            debug_assert!(is_kept, "a put of a new key");
            last_key = key;
            cursor.pass_block()?;
            continue;
        }
        let (key, trailer): (&[u8], Trailer) = (cursor.key(), cursor.trailer());
        if retention.keeps(key, trailer, &mut is_deepest) {
            let passed = bounds.iter().take_while(|bound| bound.as_slice() <= key).count();
            bounds = &bounds[passed..];
            let is_full = |table: &TableBuilder| table.is_full(output.limits) && last_key != key;
            if builder.as_ref().is_some_and(|(_, table)| passed > 0 || is_full(table)) {
                let (id, table) = builder.take().expect("just seen");
                tables.push(Written::finish(id, table, output)?);
            }
            if builder.is_none() {
                builder = Some(begin(output, begun)?);
            }
            let (_, table) = builder.as_mut().expect("just made");
            let (trailer, value) =
                output.values.place(key, trailer, cursor.value(), output.next_id)?;
            table.add(key, trailer, value)?;
            if table.is_full(output.limits) {
                last_key.clear();
                last_key.extend_from_slice(key);
            }
        }
        cursor.next()?;
    }
    if let Some((id, table)) = builder {
        tables.push(Written::finish(id, table, output)?);
    }
    output.values.finish()?;
    if let Some(aside) = &output.aside {
        aside.finish()?;
    }
    output.home.fs.sync_dir(&output.home.dir)?;
    Ok(Some(tables.into_iter().map(|table| table.known(output)).collect()))
}

/// Adds the block that begins with the present entry, if it goes as a whole: a merge keeps all of its entries as they are.
/// Gives the last of them.
fn take_block(
    cursor: &impl EntryCursor,
    retention: &Retention,
    bounds: &[Vec<u8>],
    table: &mut TableBuilder,
    output: &Output<'_>,
) -> Result<Option<(Vec<u8>, Trailer)>> {
    let Some(block) = cursor.block() else { return Ok(None) };
    if retention.is_at(cursor.key()) || table.is_full(output.limits) {
        return Ok(None);
    }
    let bound = bounds.first().map(Vec::as_slice);
    let until = [bound, output.end].into_iter().flatten().min();
    table.add_block(&block, until, output.values.shortest())
}

/// Begins a table.
fn begin(output: &mut Output<'_>, begun: &mut Vec<u64>) -> Result<(u64, TableBuilder)> {
    let id = (output.next_id)();
    let file = Valve::over_if(output.valve, output.home.create(id)?);
    begun.push(id);
    let file = match &output.aside {
        Some(aside) => aside.behind(file),
        None => file,
    };
    let identity = output.home.identity_of(id);
    Ok((id, TableBuilder::new(file, identity, output.options)?))
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
