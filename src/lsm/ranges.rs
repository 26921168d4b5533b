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
    sent: Sent,
}

/// Where cursors were sent over what is covered since they were last told where to begin: further on each time. Only one over a table that was
/// forged, with keys that are too long or in another order than it seeks by, comes back from there, and is not sent once more, or
/// it would come back for ever.
#[derive(Default)]
struct Sent {
    forward: bool,
    /// By their places.
    to: Vec<(usize, Vec<u8>)>,
}

impl Sent {
    /// Whether that is further on than where the cursor at `place` was sent last; takes note of it then.
    fn goes_on(&mut self, place: usize, key: &[u8], forward: bool) -> bool {
        if self.forward != forward {
            *self = Self { forward, ..Self::default() };
        }
        let Some((_, last)) = self.to.iter_mut().find(|(other, _)| *other == place) else {
            self.to.push((place, key.to_vec()));
            return true;
        };
        let goes_on = if forward { key > &last[..] } else { key < &last[..] };
        if goes_on {
            key.clone_into(last);
        }
        goes_on
    }
}

impl<C: EntryCursor> Uncovered<C> {
    pub(super) fn new(entries: Merge<C>, ranges: Ranges) -> Self {
        Self { entries, ranges, sent: Sent::default() }
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
            let end = self.passable(steps).map(|stretch| stretch.end.clone());
            let key = end.map(|end| match end {
                End::Before(key) => key.to_vec(),
                End::Never => vec![0xff; MAX_KEY_LEN + 1],
            });
            match key.filter(|key| self.sent.goes_on(self.entries.front_place(), key, true)) {
                Some(key) => self.entries.pass(|cursor| cursor.seek(&key, Trailer::NEWEST))?,
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
            let start = self.passable(steps).map(|stretch| stretch.start.clone());
            let key = start.map(|start| start.as_deref().unwrap_or_default().to_vec());
            match key.filter(|key| self.sent.goes_on(self.entries.front_place(), key, false)) {
                Some(key) => {
                    self.entries.pass(|cursor| cursor.seek_before(&key, Trailer::NEWEST))?;
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
        self.sent.to.clear();
        self.entries.seek_to_first()?;
        self.settle_forward()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.sent.to.clear();
        self.entries.seek_to_last()?;
        self.settle_backward()
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.sent.to.clear();
        self.entries.seek(key, trailer)?;
        self.settle_forward()
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.sent.to.clear();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Kind, Span};
    use crate::memtable;
    use crate::options::{MIN_MEMORY_BUDGET, MemtableKind};

    /// A cursor over a table that was forged: whatever it looks for, it finds this one.
    struct Stuck {
        keys: Vec<Vec<u8>>,
        at: Option<usize>,
        found: usize,
    }

    impl EntryCursor for Stuck {
        fn seek_to_first(&mut self) -> Result<()> {
            self.at = Some(0);
            Ok(())
        }
        fn seek_to_last(&mut self) -> Result<()> {
            self.at = Some(self.keys.len() - 1);
            Ok(())
        }
        fn seek(&mut self, _: &[u8], _: Trailer) -> Result<()> {
            self.at = Some(self.found);
            Ok(())
        }
        fn seek_before(&mut self, _: &[u8], _: Trailer) -> Result<()> {
            self.at = Some(self.found);
            Ok(())
        }
        fn next(&mut self) -> Result<()> {
            self.at = self.at.map(|at| at + 1).filter(|&at| at < self.keys.len());
            Ok(())
        }
        fn prev(&mut self) -> Result<()> {
            self.at = self.at.and_then(|at| at.checked_sub(1));
            Ok(())
        }
        fn is_valid(&self) -> bool {
            self.at.is_some()
        }
        fn key(&self) -> &[u8] {
            &self.keys[self.at.unwrap()]
        }
        fn trailer(&self) -> Trailer {
            Trailer::new(1, Kind::Put)
        }
        fn value(&self) -> &[u8] {
            b""
        }
        fn value_slice(&self) -> Slice {
            Slice::inline(b"").unwrap()
        }
    }

    /// What is left of the keys when a range is deleted: forwards, and backwards.
    fn left(keys: &[Vec<u8>], found: usize, deleted: Span<'_>) -> [Vec<Vec<u8>>; 2] {
        let budget = Arc::new(crate::budget::Budget::new(MIN_MEMORY_BUDGET));
        let memtable = memtable::new(MemtableKind::default(), &budget);
        memtable.delete_range(deleted, 2);
        let uncovered = || {
            let entries = Merge::new(vec![Stuck { keys: keys.to_vec(), at: None, found }]);
            let source = Source::Memtable(memtable.ranges().unwrap());
            Uncovered::new(entries, Ranges::new(vec![(1, source)], 5))
        };
        let (mut forward, mut backward) = (uncovered(), uncovered());
        forward.seek_to_first().unwrap();
        backward.seek_to_last().unwrap();
        let mut ends = [Vec::new(), Vec::new()];
        while forward.is_valid() {
            ends[0].push(forward.key().to_vec());
            forward.next().unwrap();
        }
        while backward.is_valid() {
            ends[1].push(backward.key().to_vec());
            backward.prev().unwrap();
        }
        ends
    }

    #[test]
    fn scans_of_forged_tables_end() {
        let names = |first: &[&str], all: std::ops::Range<u8>, last: &[&str]| -> Vec<Vec<u8>> {
            let bytes = |name: &&str| name.as_bytes().to_vec();
            let middle = all.map(|number| format!("m{number:02}").into_bytes());
            first.iter().map(bytes).chain(middle).chain(last.iter().map(bytes)).collect()
        };
        let keys = names(&["a"], 0..20, &["z"]);
        for found in 1..21 {
            let [forward, backward] = left(&keys, found, Span { start: b"m", end: Some(b"n") });
            assert_eq!((forward.last(), backward.last()), (keys.last(), keys.first()));
        }
        // Longer than any key can be.
        let keys = vec![vec![0xff; MAX_KEY_LEN + 100]; 20];
        assert_eq!(
            left(&keys, 10, Span { start: b"", end: None }),
            [Vec::<Vec<u8>>::new(), vec![]]
        );
    }
}
