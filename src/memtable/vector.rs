//! Entries as they come, and nothing else: a put is a copy. They are put in order when somebody reads: a get brings
//! the order up to date as a cursor does, and then searches it.

use super::cursor::{Seek, Way};
use super::entry::{Draft, Entry, Links, New};
use super::order::{OrderWalk, Orders};
use super::table::{Entries, Index, Pens};
use crate::base::Trailer;

/// No index but an order.
#[derive(Default)]
pub(super) struct Vector {
    orders: Orders,
}

impl Index for Vector {
    type Pen = ();
    type Walk = OrderWalk;

    fn allocated(&self) -> usize {
        0
    }

    fn prefetch(&self, _key: &[u8]) {}

    #[inline]
    fn insert(&self, pens: &mut Pens<Self>, entries: &Entries, new: New<'_>) {
        // The number of entries makes it known.
        let draft = Draft::new(entries.arena(), &mut pens.entries, &[], new);
        draft.finish(&mut pens.entries, Links::None);
    }

    fn get<'a>(&'a self, entries: &'a Entries, key: &[u8], trailer: Trailer) -> Option<Entry<'a>> {
        self.orders.get(entries, key, trailer)
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
