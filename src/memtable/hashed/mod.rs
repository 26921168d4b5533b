//! A hash table of lists: entries whose keys have the same first bytes, their *prefix*, are in one list, which is always
//! in order. Two kinds of memtables are made of it, which differ in how long a list is a plain linked one.
//!
//! The prefix of a key that is shorter is the whole key. [`tags`](super::tags) finds a list by the tag of its prefix. Prefixes
//! with the same tag share a list, and those that find no room in the table are all in one, the crowd: so a list may have
//! entries of others, and each of them is looked at for its prefix. A prefix that was in the crowd may get a list
//! later, which then has all entries that come.
//!
//! A get searches one list. So does a cursor that is placed in a prefix: the entries of a prefix lie side by side in
//! the order of keys. Where it leaves the prefix, or begins without one, or there is a crowd, it goes by the [order](super::order) of
//! all entries, which is brought up to date then.
//!
//! Thread safety: as [`list`](super::list) and [`tags`](super::tags) say; a list is known with its first entry. A list that gets
//! another head is complete under the old one up to what was published before, and a reader takes the head once for each search.

mod heads;

use std::sync::Arc;

use self::heads::{Head, Heads};
use super::arena::{Pen, Place};
use super::cursor::{Seek, Way};
use super::entry::{Entry, New};
use super::list::{LEVELS, Link, List, Splice, height};
use super::order::{OrderWalk, Orders};
use super::sync::{Ordering, seed};
use super::table::{Entries, Index, Pens};
use super::tags::{Tags, TagsPen};
use crate::base::Trailer;
use crate::base::rng::Rng;
use crate::budget::Budget;

/// How lists begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lists {
    /// The bytes of a key that choose its list.
    pub(super) prefix: usize,
    /// How many levels a list has at first.
    pub(super) levels: usize,
    /// Up to so many entries: with more it has all levels.
    pub(super) few: u32,
}

impl Lists {
    /// Skip lists, low ones at first.
    pub(super) fn skip(prefix: u32) -> Self {
        Self {
            prefix: prefix as usize,
            levels: LEVELS.min(4),
            few: if cfg!(loom) { 1 } else { 64 },
        }
    }

    /// Linked lists, as long as they are short.
    pub(super) fn linked(prefix: u32) -> Self {
        Self { prefix: prefix as usize, levels: 1, few: if cfg!(loom) { 1 } else { 32 } }
    }

    /// The prefix of a key.
    #[inline]
    fn prefix_of(self, key: &[u8]) -> &[u8] {
        &key[..self.prefix.min(key.len())]
    }
}

/// Lists for gets and for cursors within a prefix, an order for others.
pub(super) struct Hashed {
    lists: Lists,
    tags: Tags,
    heads: Heads,
    orders: Orders,
}

/// What only the writer may touch.
pub(super) struct HashedPen {
    tags: TagsPen,
    heads: Pen,
    rng: Rng,
    /// How many lists there are.
    lists: u64,
}

/// Where a cursor is.
#[derive(Default)]
pub(super) struct HashedWalk {
    /// The place of a list's head, and of an entry in it; else it goes by the order.
    list: Option<(Place, Link)>,
    order: OrderWalk,
}

impl Hashed {
    pub(super) fn new(budget: &Arc<Budget>, lists: Lists) -> (Self, HashedPen) {
        let (tags, tags_pen) = Tags::new(budget);
        let (heads, heads_pen) = Heads::new(budget);
        let pen = HashedPen { tags: tags_pen, heads: heads_pen, rng: Rng::new(seed()), lists: 0 };
        (Self { lists, tags, heads, orders: Orders::default() }, pen)
    }

    #[inline]
    fn tag(&self, key: &[u8]) -> u32 {
        self.tags.tag(self.lists.prefix_of(key))
    }

    #[inline]
    fn head(&self, place: Place) -> Head<'_> {
        // SAFETY: places come from the tags, which got them after heads were written, by release and acquire, or were
        // just made by this thread. The pens are alive as long as the memtable is.
        unsafe { self.heads.at(place) }
    }

    #[inline]
    fn list<'a>(&'a self, entries: &'a Entries, head: Head<'a>) -> List<'a> {
        List { entries: entries.arena(), head: head.links, skip: self.lists.prefix }
    }

    /// The newest entry of `key` not before `trailer` in a list.
    #[inline]
    fn get_in<'a>(
        &'a self,
        entries: &'a Entries,
        head: Place,
        key: &[u8],
        trailer: Trailer,
    ) -> Option<Entry<'a>> {
        let list = self.list(entries, self.head(head));
        let (_, found) = list.not_before(list.target(key, trailer))?;
        (found.key() == key).then_some(found)
    }

    /// A place within the prefix that is looked for, if it can be told from the list alone.
    fn seek_in_list<'a>(
        &'a self,
        entries: &'a Entries,
        to: Seek<'_>,
    ) -> Option<(Place, Link, Entry<'a>)> {
        let (Seek::NotBefore(key, trailer) | Seek::Before(key, trailer)) = to else { return None };
        let head = self.tags.find(self.tag(key))?;
        if self.tags.crowd().is_some() {
            return None;
        }
        let list = self.list(entries, self.head(head));
        let target = list.target(key, trailer);
        let (way, found) = match to {
            Seek::Before(..) => (Way::Backward, list.before(target)),
            _ => (Way::Forward, list.not_before(target)),
        };
        let (link, entry) = self.of_prefix(list, found, key, way)?;
        Some((head, link, entry))
    }

    /// The first entry from `found` on, one way, that has the prefix of `key`.
    #[inline]
    fn of_prefix<'a>(
        &self,
        list: List<'a>,
        mut found: Option<(Link, Entry<'a>)>,
        key: &[u8],
        way: Way,
    ) -> Option<(Link, Entry<'a>)> {
        let prefix = self.lists.prefix_of(key);
        while let Some((link, entry)) = found {
            if self.lists.prefix_of(entry.key()) == prefix {
                break;
            }
            found = list.beside(link, way);
        }
        found
    }
}

impl Index for Hashed {
    type Pen = HashedPen;
    type Walk = HashedWalk;

    fn allocated(&self) -> usize {
        self.tags.allocated() + self.heads.allocated()
    }

    fn prefetch(&self, key: &[u8]) {
        self.tags.prefetch(self.tag(key));
    }

    fn insert(&self, pens: &mut Pens<Self>, entries: &Entries, new: New<'_>) {
        let pen = &mut pens.index;
        let opening = self.tags.open(&mut pen.tags, self.tag(new.key), pen.lists);
        let place = opening.before.unwrap_or_else(|| {
            pen.lists += 1;
            self.heads.add(&mut pen.heads, 0, &[Link::NONE.word(); LEVELS][..self.lists.levels])
        });
        let head = self.head(place);
        let height = height(&mut pen.rng);
        self.list(entries, head).insert(&mut pens.entries, &mut Splice::unknown(), height, new);
        let count = head.count_one();
        if count == self.lists.few && head.links.len() < LEVELS {
            let mut links = [Link::NONE.word(); LEVELS];
            for (to, from) in links.iter_mut().zip(head.links) {
                *to = from.load(Ordering::Relaxed);
            }
            self.tags.fill(&opening, self.heads.add(&mut pen.heads, count + 1, &links));
        } else if opening.before.is_none() {
            self.tags.fill(&opening, place);
        }
    }

    fn get<'a>(&'a self, entries: &'a Entries, key: &[u8], trailer: Trailer) -> Option<Entry<'a>> {
        let find = |head| self.get_in(entries, head, key, trailer);
        let found = self.tags.find(self.tag(key)).and_then(find);
        found.or_else(|| self.tags.crowd().and_then(find))
    }

    fn seek<'a>(
        &'a self,
        entries: &'a Entries,
        walk: &mut HashedWalk,
        to: Seek<'_>,
    ) -> Option<Entry<'a>> {
        if let Some((head, link, entry)) = self.seek_in_list(entries, to) {
            walk.list = Some((head, link));
            return Some(entry);
        }
        walk.list = None;
        walk.order.seek(&self.orders, entries, to)
    }

    #[inline]
    fn step<'a>(
        &'a self,
        entries: &'a Entries,
        walk: &mut HashedWalk,
        way: Way,
    ) -> Option<Entry<'a>> {
        let Some((head, here)) = walk.list else { return walk.order.step(entries, way) };
        let list = self.list(entries, self.head(head));
        let entry = list.entry(here);
        let (key, trailer) = (entry.key(), entry.trailer());
        if let Some((link, found)) = self.of_prefix(list, list.beside(here, way), key, way) {
            walk.list = Some((head, link));
            return Some(found);
        }
        walk.list = None;
        let to = match way {
            Way::Forward => Seek::NotBefore(key, trailer.just_older()),
            Way::Backward => Seek::Before(key, trailer),
        };
        walk.order.seek(&self.orders, entries, to)
    }
}
