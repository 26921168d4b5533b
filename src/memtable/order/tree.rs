//! Entries in order: a B+ tree in memory that one thread extends while any number read it.
//!
//! A node has 15 slots that are filled in the order entries come; which slot is how manyth in key order
//! stands in one word, the node's *order* (the idea is Masstree's permutation: Mao, Kohler and Morris,
//! *Cache Craftiness for Fast Multicore Key-Value Storage*, EuroSys 2012). Adding an entry is writing a free
//! slot and then storing the new order; a reader takes the order once and sees the node as it was then.
//! A slot in use is never written again, but for the child of an inner node.
//!
//! Each slot carries the *head* of its entry's key: the first eight bytes behind the prefix that the keys of
//! the entries are known to share. A search looks at an entry itself only where heads are equal.
//!
//! ```text
//! order := count (4 bits), then from bit 4 on 4 bits for each slot in key order
//! leaf  := order, 15 heads, 15 places of entries                                        192 bytes
//! inner := a leaf, then 15 children. Slot i leads to the entries from its own entry on,
//!          up to the next slot's; the first slot also to what is smaller.               256 bytes
//! ```
//!
//! A full node is not changed: its slots are copied to two new ones. First the right one is made known in
//! the parent, which changes nothing for readers, as the old node still has all; then the old node's place
//! is taken by the left one. Readers in the old node find it as it was. Old nodes are freed with their arena;
//! all together they take about as much memory as the live ones.
//!
//! Entries that come in ascending order fill nodes completely: the rightmost nodes are not split in half.
//!
//! Thread safety: one writer at a time, which callers see to. An entry or node is complete before a release
//! store makes it reachable, and readers load with acquire.

use std::cmp::Ordering as Order;

use super::super::arena::{Arena, Kind, Pen, Place};
use super::super::entry::Entry;
use super::super::sync::{AtomicU32, AtomicU64, Ordering};
use crate::base::Trailer;
use crate::base::key::compare;
use crate::base::prefetch::prefetch;

/// Slots of a node.
const SLOTS: usize = if cfg!(loom) { 3 } else { 15 };
/// How many slots of a full node go with one that comes behind them.
const COMPANY: usize = if cfg!(loom) { 1 } else { 3 };
/// More levels than the 4 GiB of an arena have room for.
const MAX_HEIGHT: usize = 12;

#[repr(C, align(64))]
struct Leaf {
    order: AtomicU64,
    heads: [AtomicU64; SLOTS],
    entries: [AtomicU32; SLOTS],
}

#[repr(C, align(64))]
struct Inner {
    slots: Leaf,
    children: [AtomicU32; SLOTS],
}

/// Which slots are in use, in key order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SlotOrder(u64);

impl SlotOrder {
    #[inline]
    fn count(self) -> usize {
        (self.0 & 15) as usize
    }

    #[inline]
    fn slot(self, at: usize) -> usize {
        (self.0 >> (4 + 4 * at) & 15) as usize
    }

    /// The order with the next free slot put in at `at`; and that slot.
    fn insert(self, at: usize) -> (Self, usize) {
        let slot = self.count();
        let low = (1u64 << (4 + 4 * at)) - 1;
        let before = self.0 & low;
        let behind = (self.0 & !low) << 4;
        (Self((before | (slot as u64) << (4 + 4 * at) | behind) + 1), slot)
    }
}

/// What a slot holds, while nodes are made.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Slot {
    pub(super) head: u64,
    pub(super) entry: Place,
    /// 0 in leaves.
    pub(super) child: Place,
}

/// What is searched for.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) head: u64,
    pub(super) key: &'a [u8],
    pub(super) trailer: Trailer,
}

/// An entry in a leaf as it was when it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    leaf: Place,
    order: SlotOrder,
    at: usize,
}

/// The way down to a leaf: each node, its order, and the index of the child taken.
#[derive(Default)]
struct Path {
    steps: [Option<(Place, SlotOrder, usize)>; MAX_HEIGHT],
    height: usize,
}

impl Path {
    /// Whether it leads to the last leaf.
    fn is_last(&self) -> bool {
        self.steps.iter().flatten().all(|&(_, order, at)| at + 1 == order.count())
    }
}

/// Where the nodes of a tree lie, and the entries it puts in order.
#[derive(Clone, Copy)]
pub(super) struct Arenas<'a> {
    pub(super) nodes: &'a Arena,
    pub(super) entries: &'a Arena,
}

/// A sorted tree. All calls get the same arenas.
#[derive(Debug)]
pub(super) struct Tree {
    /// Place of the root, and above it the number of levels of inner nodes.
    root: AtomicU64,
}

impl Tree {
    /// A tree of entries that are there already, in order, with full nodes.
    pub(super) fn new(nodes: &Arena, pen: &mut Pen, sorted: &[Slot]) -> Self {
        let leaf = |slots: &[Slot]| Slot { child: make_leaf(nodes, pen, slots), ..slots[0] };
        let mut level: Vec<_> = sorted.chunks(SLOTS).map(leaf).collect();
        if level.is_empty() {
            level.push(Slot { child: make_leaf(nodes, pen, &[]), ..Slot::default() });
        }
        let mut height = 0;
        while level.len() > 1 {
            let inner = |slots: &[Slot]| Slot { child: make_inner(nodes, pen, slots), ..slots[0] };
            level = level.chunks(SLOTS).map(inner).collect();
            height += 1;
        }
        Self { root: AtomicU64::new(height << 32 | u64::from(level[0].child)) }
    }

    fn root(&self) -> (Place, usize) {
        let root = self.root.load(Ordering::Acquire);
        (root as Place, (root >> 32) as usize)
    }

    // ---- reading ----

    /// The first entry that is not before `target`.
    #[inline]
    pub(super) fn lower_bound(&self, arenas: Arenas<'_>, target: Target<'_>) -> Option<Position> {
        let (mut place, height) = self.root();
        // The last place on the way where it was possible to go further right.
        let mut right = None;
        for level in (0..height).rev() {
            let node = inner(arenas, place);
            let (child, next) = node.read(|order| {
                let at = node.slots.child_for(arenas, order, target);
                (node.child(order, at), (at + 1 < order.count()).then(|| node.child(order, at + 1)))
            });
            right = next.map(|next| (level, next)).or(right);
            place = child;
            prefetch_leaf(arenas, place);
        }
        let node = leaf(arenas, place);
        let order = order_of(node);
        let at = node.lower_bound(arenas, order, target);
        if at < order.count() {
            return Some(Position { leaf: place, order, at });
        }
        right.and_then(|(levels, place)| outermost(arenas, place, levels, Side::First))
    }

    /// The first entry behind `target`, which is an entry's own.
    pub(super) fn after(&self, arenas: Arenas<'_>, target: Target<'_>) -> Option<Position> {
        self.lower_bound(arenas, Target { trailer: target.trailer.just_older(), ..target })
    }

    /// The last entry before `target`.
    pub(super) fn before(&self, arenas: Arenas<'_>, target: Target<'_>) -> Option<Position> {
        let (root, height) = self.root();
        last_before(arenas, root, height, target)
    }

    /// The first or the last entry of all.
    pub(super) fn end(&self, arenas: Arenas<'_>, side: Side) -> Option<Position> {
        let (root, height) = self.root();
        outermost(arenas, root, height, side)
    }

    // ---- writing ----

    /// Asks for the leaf that [`insert`](Self::insert) will look at.
    pub(super) fn prefetch(&self, arenas: Arenas<'_>, target: Target<'_>) {
        let (mut node, height) = self.root();
        for _ in 0..height {
            let inner = inner(arenas, node);
            let order = order_of(&inner.slots);
            let at = inner.slots.child_for(arenas, order, target);
            node = inner.children[order.slot(at)].load(Ordering::Relaxed);
        }
        prefetch_leaf(arenas, node);
    }

    /// Adds the entry at `place`, which `target` describes and which is not there yet.
    pub(super) fn insert(
        &self,
        arenas: Arenas<'_>,
        pen: &mut Pen,
        target: Target<'_>,
        place: Place,
    ) {
        let mut path = Path::default();
        let (mut node, height) = self.root();
        path.height = height;
        for level in (0..height).rev() {
            let inner = inner(arenas, node);
            let order = order_of(&inner.slots);
            let at = inner.slots.child_for(arenas, order, target);
            path.steps[level] = Some((node, order, at));
            node = inner.children[order.slot(at)].load(Ordering::Relaxed);
            prefetch_leaf(arenas, node);
        }
        let leaf = leaf(arenas, node);
        let order = order_of(leaf);
        let at = leaf.lower_bound(arenas, order, target);
        let slot = Slot { head: target.head, entry: place, child: 0 };
        if order.count() < SLOTS {
            leaf.add(order, at, slot);
            return;
        }
        let all = with_slot(&leaf.slots(order, None), at, slot);
        let (left, right) = split(&all, at, path.is_last());
        let left = make_leaf(arenas.nodes, pen, left);
        let first = right[0];
        let right = make_leaf(arenas.nodes, pen, right);
        self.replace(arenas, pen, &path, 0, left, Slot { child: right, ..first });
    }

    /// Puts `left` and `right` into the place of the child that the path took at `level`.
    fn replace(
        &self,
        arenas: Arenas<'_>,
        pen: &mut Pen,
        path: &Path,
        level: usize,
        left: Place,
        right: Slot,
    ) {
        let Some((place, order, at)) = path.steps[level] else {
            let first = Slot { child: left, ..Slot::default() };
            let root = make_inner(arenas.nodes, pen, &[first, right]);
            let height = path.height as u64 + 1;
            self.root.store(height << 32 | u64::from(root), Ordering::Release);
            return;
        };
        let node = inner(arenas, place);
        if order.count() < SLOTS {
            node.children[order.count()].store(right.child, Ordering::Relaxed);
            node.slots.add(order, at + 1, right);
            node.children[order.slot(at)].store(left, Ordering::Release);
            return;
        }
        let mut slots = node.slots.slots(order, Some(node));
        slots[at].child = left;
        let all = with_slot(&slots, at + 1, right);
        let (left, right) = split(&all, at + 1, path.is_last());
        let left = make_inner(arenas.nodes, pen, left);
        let first = right[0];
        let right = make_inner(arenas.nodes, pen, right);
        self.replace(arenas, pen, path, level + 1, left, Slot { child: right, ..first });
    }
}

/// An end of the key order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    First,
    Last,
}

impl Position {
    /// The place of the entry.
    #[inline]
    pub(super) fn place(self, arenas: Arenas<'_>) -> Place {
        leaf(arenas, self.leaf).entries[self.order.slot(self.at)].load(Ordering::Relaxed)
    }

    /// The entry `by` further, if it is in the same leaf, as the leaf was.
    #[inline]
    pub(super) fn step(self, by: isize) -> Option<Self> {
        let at = self.at.checked_add_signed(by).filter(|&at| at < self.order.count())?;
        Some(Self { at, ..self })
    }
}

impl Leaf {
    /// How many entries are before `target`.
    #[inline]
    fn lower_bound(&self, arenas: Arenas<'_>, order: SlotOrder, target: Target<'_>) -> usize {
        self.count_while(arenas, order, 0, target, |entry| {
            compare((entry.key(), entry.trailer()), (target.key, target.trailer)) == Order::Less
        })
    }

    /// Which child leads to the first entry not before `target`, or to where it would be.
    #[inline]
    fn child_for(&self, arenas: Arenas<'_>, order: SlotOrder, target: Target<'_>) -> usize {
        let past = self.count_while(arenas, order, 1, target, |entry| {
            compare((entry.key(), entry.trailer()), (target.key, target.trailer)) != Order::Greater
        });
        past - 1
    }

    /// How many slots from `from` on (those before it are counted) have a smaller head than the target, or
    /// the same head and an entry for which `goes_before` holds.
    #[inline]
    fn count_while<'a>(
        &self,
        arenas: Arenas<'a>,
        order: SlotOrder,
        from: usize,
        target: Target<'_>,
        goes_before: impl Fn(Entry<'a>) -> bool,
    ) -> usize {
        let count = order.count();
        // Without branches on what is read: the loads do not wait for one another.
        let mut at = from;
        for i in from..count {
            at += usize::from(self.heads[order.slot(i)].load(Ordering::Relaxed) < target.head);
        }
        while at < count {
            let slot = order.slot(at);
            let ties = self.heads[slot].load(Ordering::Relaxed) == target.head;
            if !(ties && goes_before(entry(arenas, self.entries[slot].load(Ordering::Relaxed)))) {
                break;
            }
            at += 1;
        }
        at
    }

    /// Fills the next free slot and makes it known.
    fn add(&self, order: SlotOrder, at: usize, new: Slot) {
        let (order, slot) = order.insert(at);
        self.heads[slot].store(new.head, Ordering::Relaxed);
        self.entries[slot].store(new.entry, Ordering::Relaxed);
        self.order.store(order.0, Ordering::Release);
    }

    /// All slots in order; with the children of `inner`, whose slots these are.
    fn slots(&self, order: SlotOrder, inner: Option<&Inner>) -> [Slot; SLOTS] {
        std::array::from_fn(|at| {
            let slot = order.slot(at);
            Slot {
                head: self.heads[slot].load(Ordering::Relaxed),
                entry: self.entries[slot].load(Ordering::Relaxed),
                child: inner.map_or(0, |inner| inner.children[slot].load(Ordering::Relaxed)),
            }
        })
    }
}

impl Inner {
    /// What `look` sees of the children under one order.
    ///
    /// A child gives its upper half away by a new order that has the half, and then by a new place for the
    /// child. A reader that had the old order and the new place would miss that half; if it has the new
    /// place, it finds that the order has changed, and looks again.
    #[inline]
    fn read<T>(&self, look: impl Fn(SlotOrder) -> T) -> T {
        loop {
            let order = order_of(&self.slots);
            let seen = look(order);
            if order_of(&self.slots) == order {
                return seen;
            }
        }
    }

    #[inline]
    fn child(&self, order: SlotOrder, at: usize) -> Place {
        self.children[order.slot(at)].load(Ordering::Acquire)
    }
}

fn with_slot(slots: &[Slot; SLOTS], at: usize, new: Slot) -> [Slot; SLOTS + 1] {
    let mut all = [new; SLOTS + 1];
    all[..at].copy_from_slice(&slots[..at]);
    all[at + 1..].copy_from_slice(&slots[at..]);
    all
}

/// Where to split after a slot was added at `added`: in half; but behind the full node when entries ascend, and
/// the new slot comes last in the `last` node of its level. Elsewhere the slot that comes last gets company: alone, the
/// next one before it would find the node on the left as full as it was, and have it copied again.
fn split(all: &[Slot; SLOTS + 1], added: usize, last: bool) -> (&[Slot], &[Slot]) {
    all.split_at(match added {
        SLOTS if last => SLOTS,
        SLOTS => SLOTS - COMPANY,
        _ => all.len() / 2,
    })
}

#[inline]
fn order_of(leaf: &Leaf) -> SlotOrder {
    SlotOrder(leaf.order.load(Ordering::Acquire))
}

/// The first or last entry below the node at `place`, which has `levels` levels of inner nodes.
fn outermost(arenas: Arenas<'_>, mut place: Place, levels: usize, side: Side) -> Option<Position> {
    let pick = |count: usize| if side == Side::First { Some(0) } else { count.checked_sub(1) };
    for _ in 0..levels {
        let node = inner(arenas, place);
        place = node.read(|order| Some(node.child(order, pick(order.count())?)))?;
    }
    let order = order_of(leaf(arenas, place));
    let at = pick(order.count()).filter(|&at| at < order.count())?;
    Some(Position { leaf: place, order, at })
}

/// The last entry before `target` below the node at `place`, which has `levels` levels of inner nodes.
fn last_before(
    arenas: Arenas<'_>,
    mut place: Place,
    levels: usize,
    target: Target<'_>,
) -> Option<Position> {
    let mut left = None;
    for level in (0..levels).rev() {
        let node = inner(arenas, place);
        let (child, previous) = node.read(|order| {
            let at = node.slots.child_for(arenas, order, target);
            (node.child(order, at), at.checked_sub(1).map(|at| node.child(order, at)))
        });
        left = previous.map(|previous| (level, previous)).or(left);
        place = child;
    }
    let node = leaf(arenas, place);
    let order = order_of(node);
    let at = node.lower_bound(arenas, order, target);
    if at > 0 {
        return Some(Position { leaf: place, order, at: at - 1 });
    }
    // What is on the left may be just about to be split, and then it has entries behind the target, too.
    left.and_then(|(level, place)| last_before(arenas, place, level, target))
}

fn make_leaf(nodes: &Arena, pen: &mut Pen, slots: &[Slot]) -> Place {
    let (place, start) = nodes.allocate(pen, Kind::Leaf, size_of::<Leaf>(), align_of::<Leaf>());
    // SAFETY: the piece is as large as a leaf and aligned like one, and not yet shared.
    unsafe { start.cast::<Leaf>().write(new_leaf(slots)) };
    place
}

fn make_inner(nodes: &Arena, pen: &mut Pen, slots: &[Slot]) -> Place {
    let child = |slot: usize| AtomicU32::new(slots.get(slot).map_or(0, |slot| slot.child));
    let node = Inner { slots: new_leaf(slots), children: std::array::from_fn(child) };
    let (place, start) = nodes.allocate(pen, Kind::Inner, size_of::<Inner>(), align_of::<Inner>());
    // SAFETY: the piece is as large as an inner node and aligned like one, and not yet shared.
    unsafe { start.cast::<Inner>().write(node) };
    place
}

fn new_leaf(slots: &[Slot]) -> Leaf {
    let order = (0..slots.len()).fold(SlotOrder(0), |order, at| order.insert(at).0);
    let slot = |slot: usize| slots.get(slot).copied().unwrap_or_default();
    Leaf {
        order: AtomicU64::new(order.0),
        heads: std::array::from_fn(|at| AtomicU64::new(slot(at).head)),
        entries: std::array::from_fn(|at| AtomicU32::new(slot(at).entry)),
    }
}

#[inline]
fn leaf(arenas: Arenas<'_>, place: Place) -> &Leaf {
    // SAFETY: places of nodes come from the root, from children and from positions, which were stored
    // with release after the node was made, and loaded with acquire. An inner node begins with a leaf.
    unsafe { arenas.nodes.resolve(place).cast::<Leaf>().as_ref() }
}

#[inline]
fn inner(arenas: Arenas<'_>, place: Place) -> &Inner {
    // SAFETY: as for `leaf`; callers count levels, and ask for inner nodes only above the leaves.
    unsafe { arenas.nodes.resolve(place).cast::<Inner>().as_ref() }
}

/// Asks for all lines of the leaf at `place` at once: they would be waited for one after the other otherwise.
#[inline]
fn prefetch_leaf(arenas: Arenas<'_>, place: Place) {
    let leaf = leaf(arenas, place);
    prefetch(&leaf.order);
    prefetch(&leaf.heads[SLOTS - 1]);
    prefetch(&leaf.entries[SLOTS - 1]);
}

#[inline]
fn entry(arenas: Arenas<'_>, place: Place) -> Entry<'_> {
    // SAFETY: places of entries stand in slots that an order, loaded with acquire, says are in use.
    unsafe { Entry::at(arenas.entries, place) }
}
