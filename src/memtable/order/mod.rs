//! The order of a memtable's entries, made when somebody asks for it: for kinds of memtables that do not keep one.
//!
//! A put adds its entry to the arena, in the order entries come. A
//! cursor that is to be placed first brings the order up to date: it adds what came since the last time to a sorted
//! [`Tree`], one by one, or, if that is much, sorts all entries and makes a new one of full nodes. So a reader
//! pays for the order of what was written since the last one asked, at most about what putting it in its place at once
//! would have taken, and a memtable that nobody scans is sorted once, by its flush.
//!
//! Heads are behind a prefix that is learnt from the entries when a tree is made. If keys come that do not have it,
//! a new one is made when the entries have doubled.
//!
//! Thread safety: any number of readers. One of them at a time makes order, and the others wait for it if they need it
//! too; the writer of the memtable never does, and readers never wait for that. A reader may keep an order that is not
//! up to date: it has all entries that were there when it was.

#[cfg(loom)]
pub(super) mod model;
mod tree;
mod walk;

use std::cmp::Reverse;
use std::sync::{Arc, PoisonError};

use arc_swap::ArcSwapOption;

use self::tree::{Arenas, Slot, Target, Tree};
pub(super) use self::walk::OrderWalk;
use super::account::Account;
use super::arena::{Arena, Pen, Place};
use super::entry::Entry;
use super::sync::{AtomicU64, Ordering};
use super::table::Entries;
use crate::base::Trailer;
use crate::base::key::{common_prefix_len, compare, head, head_behind};
use crate::sync::Mutex;

/// How many entries the prefix is learnt from at first.
const LEARN_FROM: u64 = 1024;
/// A tree is made anew if what it lacks is more than one in so many entries of all.
const NEW_SHARE: u64 = 3;
/// A tree is made anew with a shorter prefix if more than one in so many entries do not have the one it has.
const STRANGERS_SHARE: u64 = 16;
/// How many times eight bytes of keys, behind what they share, are compared as heads, before whole keys are.
const MAX_ROUNDS: usize = 16;
/// For so many entries leaves are asked for together, before they are added.
const AHEAD: usize = 16;
/// Groups of entries with the same head that are larger than this are sorted by the heads behind it.
const LARGE_GROUP: usize = 8;

/// Entries in order.
struct Order {
    prefix: Box<[u8]>,
    tree: Tree,
    nodes: Arena,
    pen: Mutex<Pen>,
    /// The first so many entries that came are in it.
    covered: AtomicU64,
    account: Arc<Account>,
}

/// The orders of one memtable: the newest one, and how far it goes.
#[derive(Default)]
pub(super) struct Orders {
    newest: ArcSwapOption<Order>,
    making: Mutex<Making>,
}

/// What only who makes order may touch.
#[derive(Default)]
struct Making {
    /// The last entry in the newest order.
    last: Option<Place>,
    /// How many entries there were when its tree was made.
    made_at: u64,
    /// How many entries were added since that do not have its prefix.
    strangers: u64,
}

/// A walk over the entries of an arena, in the order they came.
struct Walk<'a> {
    entries: &'a Arena,
    last: Option<Place>,
    left: u64,
}

impl Order {
    /// Whether the first `entries` that came are in it.
    #[inline]
    fn covers(&self, entries: u64) -> bool {
        self.covered.load(Ordering::Acquire) >= entries
    }

    fn tree(&self) -> &Tree {
        &self.tree
    }

    #[inline]
    fn arenas<'a>(&'a self, entries: &'a Arena) -> Arenas<'a> {
        Arenas { nodes: &self.nodes, entries }
    }

    #[inline]
    fn target<'a>(&self, key: &'a [u8], trailer: Trailer) -> Target<'a> {
        Target { head: head_behind(&self.prefix, key), key, trailer }
    }

    /// An order of the first `count` entries, and the place of the last.
    fn new(entries: &Arena, count: u64, account: &Arc<Account>) -> (Self, Option<Place>) {
        let _scratch = account.scratch(count as usize * size_of::<Slot>());
        let (prefix, slots, last) = sorted(entries, count, account);
        let nodes = Arena::new();
        let mut pen = Pen::new(account.budget());
        let tree = Tree::new(&nodes, &mut pen, &slots);
        account.grow(nodes.allocated());
        let order = Self {
            prefix: prefix.into(),
            tree,
            nodes,
            pen: Mutex::new(pen),
            covered: AtomicU64::new(count),
            account: Arc::clone(account),
        };
        (order, last)
    }

    /// Adds the entries behind `last`, up to `count` in all. Gives the last of them, and how many do not have the prefix.
    fn add(&self, entries: &Arena, last: Option<Place>, count: u64) -> (Option<Place>, u64) {
        let left = count - self.covered.load(Ordering::Relaxed);
        let _scratch = self.account.scratch(left as usize * size_of::<Slot>());
        let mut walk = Walk { entries, last, left };
        let mut strangers = 0;
        let slot = |(place, entry): (Place, Entry<'_>)| {
            strangers += u64::from(!entry.key().starts_with(&self.prefix));
            Slot { head: head_behind(&self.prefix, entry.key()), entry: place, child: 0 }
        };
        let mut slots: Vec<_> = walk.by_ref().map(slot).collect();
        // So that entries which come to lie side by side are added one after the other.
        slots.sort_unstable_by_key(|slot| slot.head);
        let mut pen = self.pen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.nodes.allocated();
        let arenas = self.arenas(entries);
        let target = |slot: &Slot| {
            let entry = entry(entries, slot.entry);
            Target { head: slot.head, key: entry.key(), trailer: entry.trailer() }
        };
        for group in slots.chunks(AHEAD) {
            if group.len() > 1 {
                group.iter().for_each(|slot| self.tree.prefetch(arenas, target(slot)));
            }
            for slot in group {
                self.tree.insert(arenas, &mut pen, target(slot), slot.entry);
            }
        }
        self.account.grow(self.nodes.allocated() - before);
        self.covered.store(count, Ordering::Release);
        (walk.last, strangers)
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        self.account.shrink(self.nodes.allocated());
    }
}

impl Orders {
    /// The newest entry of `key` that is not before `trailer`.
    pub(super) fn get<'a>(
        &self,
        entries: &'a Entries,
        key: &[u8],
        trailer: Trailer,
    ) -> Option<Entry<'a>> {
        let order = self.up_to(entries, entries.count());
        let arenas = order.arenas(entries.arena());
        let found = order.tree().lower_bound(arenas, order.target(key, trailer))?;
        Some(entry(entries.arena(), found.place(arenas))).filter(|found| found.key() == key)
    }

    /// An order that has the first `count` entries, which are known to this thread by an acquiring load of their number.
    fn up_to(&self, entries: &Entries, count: u64) -> Arc<Order> {
        let newest = || self.newest.load_full().filter(|order| order.covers(count));
        newest().unwrap_or_else(|| {
            let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
            newest().unwrap_or_else(|| {
                self.make(&mut making, entries.arena(), count, entries.account())
            })
        })
    }

    fn make(
        &self,
        making: &mut Making,
        entries: &Arena,
        count: u64,
        account: &Arc<Account>,
    ) -> Arc<Order> {
        if let Some(order) = self.newest.load_full() {
            let lacks = count - order.covered.load(Ordering::Relaxed);
            let is_strange = making.strangers * STRANGERS_SHARE > count;
            if lacks * NEW_SHARE <= count && !(is_strange && count >= 2 * making.made_at) {
                let (last, strangers) = order.add(entries, making.last, count);
                making.last = last;
                making.strangers += strangers;
                return order;
            }
        }
        let (order, last) = Order::new(entries, count, account);
        let order = Arc::new(order);
        *making = Making { last, made_at: count, strangers: 0 };
        self.newest.store(Some(Arc::clone(&order)));
        order
    }
}

impl<'a> Walk<'a> {
    fn new(entries: &'a Arena, count: u64) -> Self {
        Self { entries, last: None, left: count }
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = (Place, Entry<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let place = match self.last {
            None => 0,
            // SAFETY: the last one was an entry, and there are more that this thread has heard of.
            Some(last) => unsafe { self.entries.following(last, entry(self.entries, last).len()) },
        };
        self.last = Some(place);
        Some((place, entry(self.entries, place)))
    }
}

/// What keys of the first `count` entries start with, mostly; these entries in order; and the last that came.
fn sorted(entries: &Arena, count: u64, account: &Account) -> (Vec<u8>, Vec<Slot>, Option<Place>) {
    let mut prefix = shared_prefix(Walk::new(entries, count.min(LEARN_FROM)));
    loop {
        let (mut shared, mut strangers) = (prefix.len(), 0);
        let (mut shortest, mut longest) = (usize::MAX, 0);
        let mut walk = Walk::new(entries, count);
        let mut slots = Vec::with_capacity(count as usize);
        for (place, entry) in walk.by_ref() {
            let key = entry.key();
            if !key.starts_with(&prefix) {
                shared = common_prefix_len(&prefix[..shared], key);
                strangers += 1;
            }
            (shortest, longest) = (shortest.min(key.len()), longest.max(key.len()));
            slots.push(Slot { head: head_behind(&prefix, key), entry: place, child: 0 });
        }
        if strangers * STRANGERS_SHARE > count {
            prefix.truncate(shared);
            continue;
        }
        sort_by_head(&mut slots);
        // Keys of one length, and heads that reach to their end: the same head is the same key, unless it is that
        // of strangers.
        if shortest == longest && longest - prefix.len() <= size_of::<u64>() {
            let low = slots.partition_point(|slot| slot.head == 0);
            let high = slots.partition_point(|slot| slot.head < u64::MAX);
            sort_ties(entries, &mut slots[..low], MAX_ROUNDS, account);
            sort_ties(entries, &mut slots[high..], MAX_ROUNDS, account);
        } else {
            sort_ties(entries, &mut slots, MAX_ROUNDS, account);
        }
        return (prefix, slots, walk.last);
    }
}

/// What the keys of all entries of a walk start with.
fn shared_prefix(mut walk: Walk<'_>) -> Vec<u8> {
    let first = walk.next().map_or(&[][..], |(_, entry)| entry.key());
    let shared = walk
        .fold(first.len(), |shared, (_, entry)| common_prefix_len(&first[..shared], entry.key()));
    first[..shared].to_vec()
}

/// Sorts by head; entries with the same head newest first, which is right if they have the same key.
fn sort_by_head(slots: &mut [Slot]) {
    slots.sort_unstable_by_key(|slot| (slot.head, Reverse(slot.entry)));
}

/// Puts those in order whose heads are the same. `rounds` is how often heads may be looked at again.
fn sort_ties(entries: &Arena, slots: &mut [Slot], rounds: usize, account: &Account) {
    for group in slots.chunk_by_mut(|a, b| a.head == b.head).filter(|group| group.len() > 1) {
        let key = |slot: &Slot| entry(entries, slot.entry).key();
        let first = key(&group[0]);
        if group.iter().all(|slot| key(slot) == first) {
            continue;
        }
        if group.len() <= LARGE_GROUP || rounds == 0 {
            let name = |slot: &Slot| (key(slot), entry(entries, slot.entry).trailer());
            group.sort_unstable_by(|a, b| compare(name(a), name(b)));
            continue;
        }
        let shared = group
            .iter()
            .fold(first.len(), |shared, slot| common_prefix_len(&first[..shared], key(slot)));
        let behind = |slot: &Slot| Slot { head: head(&key(slot)[shared..]), ..*slot };
        let _scratch = account.scratch(size_of_val(group));
        let mut again: Vec<_> = group.iter().map(behind).collect();
        sort_by_head(&mut again);
        sort_ties(entries, &mut again, rounds - 1, account);
        for (slot, sorted) in group.iter_mut().zip(again) {
            slot.entry = sorted.entry;
        }
    }
}

#[inline]
fn entry(entries: &Arena, place: Place) -> Entry<'_> {
    // SAFETY: places come from a walk, which meets entries that this thread has heard of.
    unsafe { Entry::at(entries, place) }
}
