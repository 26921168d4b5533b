//! Range tombstones as cursors meet them: those of all parts of a tree, and the entries that none of them covers.
//!
//! Nobody collects them: for a key, each part that has some is asked what is true of the keys around it, and the answer
//! holds until the cursor leaves the *stretch* for which all parts say the same. So a step inside a stretch costs one
//! comparison, and a short scan of a tree with many range tombstones looks at few of them.
//!
//! Thread safety: a cursor belongs to one thread at a time. Nothing here changes but its position.

use std::sync::Arc;

use crate::base::key::Mark;
use crate::base::{End, Seqno, Slice, Stretch, Trailer};
use crate::error::Result;
use crate::iter::{EntryCursor, Merge};
use crate::lsm::version::{Run, TableFile};
use crate::memtable;
use crate::options::MAX_KEY_LEN;
use crate::planted::{Bug, planted};

/// After so many steps over covered entries in a row a cursor seeks.
const STEPS: u32 = 4;

/// A part of a tree that has range tombstones.
pub(super) enum Source {
    Memtable(Arc<memtable::Ranges>),
    Run(Run),
}

impl Source {
    /// What is true of the keys around `key`, for readers at `at`.
    fn stretch(&self, key: &[u8], at: Seqno) -> Result<Stretch> {
        match self {
            Self::Memtable(ranges) => Ok(ranges.stretch(key, at)),
            Self::Run(run) => stretch_of_run(run.ranged(), key, at),
        }
    }
}

/// The same in a run, of which these tables have range tombstones: none covers keys outside of its table's range.
fn stretch_of_run(tables: &[Arc<TableFile>], key: &[u8], at: Seqno) -> Result<Stretch> {
    let from = tables.partition_point(|table| table.meta.largest.as_slice() < key);
    let behind = |table: &Arc<TableFile>| match End::behind(&table.meta.largest) {
        End::Before(key) => Some(key),
        End::Never => None,
    };
    let mut stretch = Stretch::ALL;
    match tables.get(from) {
        Some(table) if table.meta.smallest.as_slice() <= key => {
            if table.meta.smallest_seqno <= at {
                let fragments = table.read(|table| Ok(table.ranges().cloned()))?;
                stretch = fragments.map_or(Stretch::ALL, |fragments| fragments.stretch(key, at));
            }
            let start = Some(table.meta.smallest.as_slice().into());
            stretch.narrow(start, End::behind(&table.meta.largest));
        }
        next => {
            let before = from.checked_sub(1).and_then(|before| behind(&tables[before]));
            let end = next.map_or(End::Never, |next| End::new(Some(&next.meta.smallest)));
            stretch.narrow(before, end);
        }
    }
    Ok(stretch)
}

/// The range tombstones of all parts of a tree, and the stretch where a cursor is.
pub(super) struct Ranges {
    /// With the places of their cursors among those that are merged.
    sources: Vec<(usize, Source)>,
    at: Seqno,
    /// `None` before the first key, and after an error.
    stretch: Option<Stretch>,
    /// The part whose tombstone covers it, if one does.
    by: usize,
}

impl Ranges {
    /// Those that readers at `at` see. What covers a key in one part is older than all that parts before it have of the key.
    pub(super) fn new(sources: Vec<(usize, Source)>, at: Seqno) -> Self {
        Self { sources, at, stretch: None, by: 0 }
    }

    pub(super) fn are_none(&self) -> bool {
        self.sources.is_empty()
    }

    /// The newest that covers `key`; 0 if there is none.
    #[inline]
    fn newest(&mut self, key: &[u8]) -> Result<Seqno> {
        match &self.stretch {
            Some(stretch) if stretch.holds(key) => Ok(stretch.newest),
            _ => self.look(key),
        }
    }

    fn look(&mut self, key: &[u8]) -> Result<Seqno> {
        self.stretch = None;
        let mut all = Stretch::ALL;
        for (place, source) in &self.sources {
            let own = source.stretch(key, self.at)?;
            if own.newest > all.newest {
                (all.newest, self.by) = (own.newest, *place);
            }
            all.narrow(own.start, own.end);
        }
        let newest = all.newest;
        self.stretch = Some(all);
        Ok(newest)
    }
}

/// The entries of a merge but for those that a reader does not see because a range tombstone is newer. Entries that are
/// too new for the reader are all shown.
pub(super) struct Uncovered<C> {
    entries: Merge<C>,
    ranges: Ranges,
}

impl<C: EntryCursor> Uncovered<C> {
    pub(super) fn new(entries: Merge<C>, ranges: Ranges) -> Self {
        Self { entries, ranges }
    }

    #[inline]
    fn is_covered(&mut self) -> Result<bool> {
        let written = self.entries.trailer().seqno();
        if planted(Bug::ScanIgnoresRanges) {
            return Ok(false);
        }
        Ok(written <= self.ranges.at && self.ranges.newest(self.entries.key())? > written)
    }

    /// Goes on to an entry that is not covered.
    #[inline]
    fn settle_forward(&mut self) -> Result<()> {
        let mut steps = 0;
        while self.entries.is_valid() && self.is_covered()? {
            steps += 1;
            match self.passable(steps).map(|stretch| stretch.end.clone()) {
                Some(End::Before(key)) => {
                    self.entries.pass(|cursor| cursor.seek(&key, Trailer::NEWEST))?;
                }
                Some(End::Never) => {
                    let behind_all = vec![0xff; MAX_KEY_LEN + 1];
                    self.entries.pass(|cursor| cursor.seek(&behind_all, Trailer::NEWEST))?;
                }
                None => self.entries.next()?,
            }
        }
        Ok(())
    }

    #[inline]
    fn settle_backward(&mut self) -> Result<()> {
        let mut steps = 0;
        while self.entries.is_valid() && self.is_covered()? {
            steps += 1;
            match self.passable(steps).map(|stretch| stretch.start.clone()) {
                Some(start) => {
                    let key = start.as_deref().unwrap_or_default();
                    self.entries.pass(|cursor| cursor.seek_before(key, Trailer::NEWEST))?;
                }
                None => self.entries.prev()?,
            }
        }
        Ok(())
    }

    /// The stretch of the covered entry in front, if all that its part has there is covered: if the tombstone is in another
    /// part, that is a newer one, all of which is newer for the keys of the tombstone.
    fn passable(&self, steps: u32) -> Option<&Stretch> {
        let is_other = self.ranges.by != self.entries.front_place();
        self.ranges.stretch.as_ref().filter(|_| is_other && steps > STEPS)
    }
}

impl<C: EntryCursor> EntryCursor for Uncovered<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.entries.seek_to_first()?;
        self.settle_forward()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.entries.seek_to_last()?;
        self.settle_backward()
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.entries.seek(key, trailer)?;
        self.settle_forward()
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.entries.seek_before(key, trailer)?;
        self.settle_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.entries.next()?;
        self.settle_forward()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.entries.prev()?;
        self.settle_backward()
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.entries.is_valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.entries.key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.entries.trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.entries.value()
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        self.entries.value_slice()
    }

    #[inline]
    fn mark(&self) -> Mark {
        self.entries.mark()
    }
}
