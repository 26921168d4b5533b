//! A position in an order.
//!
//! Thread safety: it belongs to one cursor. What comes to the memtable beside it shows with the next seek.

use std::sync::Arc;

use super::tree::{Position, Side, Target};
use super::{Order, Orders, entry};
use crate::base::prefetch::prefetch_at;
use crate::memtable::arena::Arena;
use crate::memtable::cursor::{Seek, Way};
use crate::memtable::entry::Entry;
use crate::memtable::table::Entries;

/// What the processor reads at once.
const LINE: usize = 64;
/// How many entries ahead a walk asks for memory.
const AHEAD: isize = 4;

/// A position in the order that the last seek found.
#[derive(Default)]
pub(in crate::memtable) struct OrderWalk {
    order: Option<Arc<Order>>,
    position: Option<Position>,
}

impl OrderWalk {
    /// Goes to a place in an order that has all entries there are.
    pub(in crate::memtable) fn seek<'a>(
        &mut self,
        orders: &Orders,
        entries: &'a Entries,
        to: Seek<'_>,
    ) -> Option<Entry<'a>> {
        let count = entries.count();
        let order = match self.order.take().filter(|order| order.covers(count)) {
            Some(order) => order,
            None => orders.up_to(entries, count),
        };
        let arenas = order.arenas(entries.arena());
        self.position = match to {
            Seek::First => order.tree().end(arenas, Side::First),
            Seek::Last => order.tree().end(arenas, Side::Last),
            Seek::NotBefore(key, trailer) => {
                order.tree().lower_bound(arenas, order.target(key, trailer))
            }
            Seek::Before(key, trailer) => order.tree().before(arenas, order.target(key, trailer)),
        };
        let place = self.position.map(|position| position.place(arenas));
        self.order = Some(order);
        place.map(|place| entry(entries.arena(), place))
    }

    /// Goes to the entry beside this one: in the leaf, or else by a search from here.
    #[inline]
    pub(in crate::memtable) fn step<'a>(
        &mut self,
        entries: &'a Entries,
        way: Way,
    ) -> Option<Entry<'a>> {
        let order = self.order.as_ref().expect("the cursor must have been placed");
        let position = self.position.expect("the cursor must be on an entry");
        let (arena, arenas) = (entries.arena(), order.arenas(entries.arena()));
        let by = if way == Way::Forward { 1 } else { -1 };
        let (next, ahead) = match position.step(by) {
            Some(next) => (Some(next), AHEAD..AHEAD + 1),
            None => (beside(order, arena, position, way), 0..AHEAD + 1),
        };
        for ahead in ahead.filter_map(|ahead| next?.step(by * ahead)) {
            let start = entry(arena, ahead.place(arenas)).start();
            prefetch_at(start);
            prefetch_at(start.wrapping_add(LINE));
        }
        self.position = next;
        next.map(|next| entry(arena, next.place(arenas)))
    }
}

/// The position beside the last one of a leaf.
fn beside(order: &Order, entries: &Arena, here: Position, way: Way) -> Option<Position> {
    let arenas = order.arenas(entries);
    let here = entry(entries, here.place(arenas));
    let target: Target<'_> = order.target(here.key(), here.trailer());
    match way {
        Way::Forward => order.tree().after(arenas, target),
        Way::Backward => order.tree().before(arenas, target),
    }
}
