//! The default: entries are found by tags of their keys' hashes, and put in order when a cursor needs it. A put appends its
//! entry and fills a slot.
//!
//! The slot of a tag has the newest entry, whose links lead to the older ones with the same tag: as a rule, the versions of
//! one key. Keys are not compared by puts.

use std::sync::Arc;

use super::arena::Place;
use super::cursor::{Seek, Way};
use super::entry::{Draft, Entry, Links, New, find_in_chain};
use super::order::{OrderWalk, Orders};
use super::table::{Entries, Index, Pens};
use super::tags::{MOST_FILLS, Tags, TagsPen};
use crate::base::Trailer;
use crate::budget::Budget;

/// Tags for gets, an order for cursors.
pub(super) struct Tagged {
    tags: Tags,
    orders: Orders,
}

impl Tagged {
    pub(super) fn new(budget: &Arc<Budget>) -> (Self, TagsPen) {
        let (tags, pen) = Tags::new(budget);
        (Self { tags, orders: Orders::default() }, pen)
    }
}

impl Index for Tagged {
    type Pen = TagsPen;
    type Walk = OrderWalk;

    fn allocated(&self) -> usize {
        self.tags.allocated()
    }

    fn prefetch(&self, key: &[u8]) {
        self.tags.prefetch(self.tags.tag(key));
    }

    #[inline]
    fn insert(&self, pens: &mut Pens<Self>, entries: &Entries, new: New<'_>) {
        let tag = self.tags.tag(new.key);
        self.tags.prefetch(tag);
        let draft = Draft::new(entries.arena(), &mut pens.entries, &[], new);
        let opening = self.tags.open(&mut pens.index, tag, entries.count());
        let many = opening.fills == MOST_FILLS;
        let links = Links::in_front_of(entries.arena(), opening.before, many);
        self.tags.fill(&opening, draft.finish(&mut pens.entries, links));
    }

    #[inline]
    fn get<'a>(&'a self, entries: &'a Entries, key: &[u8], trailer: Trailer) -> Option<Entry<'a>> {
        let find = |newest: Place| {
            // SAFETY: the place comes from the tags, which got it after its entry was written, by release and acquire.
            let newest = unsafe { Entry::at(entries.arena(), newest) };
            find_in_chain(entries.arena(), newest, key, trailer)
        };
        let found = self.tags.find(self.tags.tag(key)).and_then(find);
        found.or_else(|| self.tags.crowd().and_then(find))
    }

    fn seek<'a>(
        &'a self,
        entries: &'a Entries,
        walk: &mut OrderWalk,
        to: Seek<'_>,
    ) -> Option<Entry<'a>> {
        walk.seek(&self.orders, entries, to)
    }

    #[inline]
    fn step<'a>(
        &'a self,
        entries: &'a Entries,
        walk: &mut OrderWalk,
        way: Way,
    ) -> Option<Entry<'a>> {
        walk.step(entries, way)
    }
}
