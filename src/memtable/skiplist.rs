//! One skip list of all entries, always in order: a put searches its place, a cursor needs no preparation.

use super::cursor::{Seek, Way};
use super::entry::{Entry, New};
use super::list::{LEVELS, Link, List, Splice, height};
use super::sync::{AtomicU64, seed};
use super::table::{Entries, Index, Pens};
use crate::base::Trailer;
use crate::base::rng::Rng;

/// The head of the list.
pub(super) struct Skiplist {
    head: [AtomicU64; LEVELS],
}

/// What only the writer may touch.
pub(super) struct SkiplistPen {
    splice: Splice,
    rng: Rng,
}

impl Skiplist {
    pub(super) fn new() -> (Self, SkiplistPen) {
        let head = std::array::from_fn(|_| AtomicU64::new(Link::NONE.word()));
        (Self { head }, SkiplistPen { splice: Splice::unknown(), rng: Rng::new(seed()) })
    }

    #[inline]
    fn list<'a>(&'a self, entries: &'a Entries) -> List<'a> {
        List { entries: entries.arena(), head: &self.head, skip: 0 }
    }
}

impl Index for Skiplist {
    type Pen = SkiplistPen;
    type Walk = Option<Link>;

    fn allocated(&self) -> usize {
        0
    }

    fn prefetch(&self, _key: &[u8]) {}

    #[inline]
    fn insert(&self, pens: &mut Pens<Self>, entries: &Entries, new: New<'_>) {
        let SkiplistPen { splice, rng } = &mut pens.index;
        self.list(entries).insert(&mut pens.entries, splice, height(rng), new);
    }

    fn get<'a>(&'a self, entries: &'a Entries, key: &[u8], trailer: Trailer) -> Option<Entry<'a>> {
        let list = self.list(entries);
        let (_, found) = list.not_before(list.target(key, trailer))?;
        (found.key() == key).then_some(found)
    }

    fn seek<'a>(
        &'a self,
        entries: &'a Entries,
        walk: &mut Option<Link>,
        to: Seek<'_>,
    ) -> Option<Entry<'a>> {
        let list = self.list(entries);
        let found = match to {
            Seek::First => list.first(),
            Seek::Last => list.last(),
            Seek::NotBefore(key, trailer) => list.not_before(list.target(key, trailer)),
            Seek::Before(key, trailer) => list.before(list.target(key, trailer)),
        };
        *walk = found.map(|(link, _)| link);
        found.map(|(_, entry)| entry)
    }

    #[inline]
    fn step<'a>(
        &'a self,
        entries: &'a Entries,
        walk: &mut Option<Link>,
        way: Way,
    ) -> Option<Entry<'a>> {
        let found = self.list(entries).beside(walk.expect("the cursor must be on an entry"), way);
        *walk = found.map(|(link, _)| link);
        found.map(|(_, entry)| entry)
    }
}
