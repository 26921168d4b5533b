//! A skip list (Pugh, 1990) in an arena, whose links carry a part of the key.
//!
//! Most of the time in a skip list goes into following links to keys that turn out to be too large. Here a
//! link is one word: the place of the next node, and above it the first 36 bits of that node's key, behind
//! a prefix that the keys of this memtable are known to share. A search reads the next key itself only
//! when those bits are equal.
//!
//! ```text
//! link  = head (36 bits) << 28 | place (28 bits); 0 is the end
//! node  = trailer u64, key length and height u32, value length u32, height x link, key, value
//! ```
//! A value that does not fit a chunk is replaced by its address.
//!
//! Thread safety: one writer (a lock inside sees to it), any number of readers beside it that never wait.
//! A node is complete before the first link to it is stored with release; readers load links with acquire.
//! Nodes are never changed, but for their links, and never freed before the memtable.

use std::cmp::Ordering as Order;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::arena::{Arena, PLACE_BITS, Pen, Place};
use crate::base::key::{compare, head_behind};
use crate::base::rng::Rng;
use crate::base::{Seqno, Slice, Trailer, View};
use crate::budget::Budget;
use crate::error::Result;
use crate::iter::EntryCursor;

const MAX_HEIGHT: usize = 14;
/// A tower grows by one more level with probability 1/4.
const GROWTH: u64 = 4;
const NODE_HEADER: usize = 16;
const HEIGHT_SHIFT: u32 = 24;
const OUT_OF_LINE: u32 = 1 << 31;
/// Values of up to this many bytes are copied out by readers; longer ones pin the memtable.
const COPIED: usize = 4096;
/// Values above this many bytes have memory of their own.
const LARGE: usize = Arena::largest() / 4;

#[derive(Debug)]
struct Writer {
    pen: Pen,
    rng: Rng,
    /// The last node at each level: ascending keys are appended without a search.
    last: [Place; MAX_HEIGHT],
}

/// A sorted set of entries that grows.
#[derive(Debug)]
pub(crate) struct Memtable {
    prefix: Box<[u8]>,
    arena: Arena,
    /// The node in front of all others, with a tower of full height.
    front: Place,
    height: AtomicUsize,
    entries: AtomicU64,
    /// The first write, 0 if there is none.
    oldest: AtomicU64,
    writer: Mutex<Writer>,
    budget: Arc<Budget>,
    charged: AtomicUsize,
    flushed: AtomicBool,
}

impl Memtable {
    /// An empty memtable. Its keys are expected, not required, to start with `prefix`.
    pub(crate) fn new(prefix: &[u8], budget: Arc<Budget>) -> Self {
        let arena = Arena::new();
        let mut pen = Pen::default();
        let (front, node) = arena.allocate(&mut pen, NODE_HEADER + 8 * MAX_HEIGHT);
        // SAFETY: the piece is that long, aligned for a word, and not yet shared.
        unsafe { node.as_ptr().write_bytes(0, NODE_HEADER + 8 * MAX_HEIGHT) };
        let writer = Writer { pen, rng: Rng::new(0x7457), last: [front; MAX_HEIGHT] };
        let table = Self {
            prefix: prefix.into(),
            arena,
            front,
            height: AtomicUsize::new(1),
            entries: AtomicU64::new(0),
            oldest: AtomicU64::new(0),
            writer: Mutex::new(writer),
            budget,
            charged: AtomicUsize::new(0),
            flushed: AtomicBool::new(false),
        };
        table.charge();
        table
    }

    /// Adds an entry. No entry with the same key and trailer may be there.
    pub(crate) fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let writer = &mut *writer;
        let head = self.head(key);
        let mut before = [self.front; MAX_HEIGHT];
        let last = self.node(writer.last[0]);
        if writer.last[0] == self.front
            || compare((last.key(), last.trailer()), (key, trailer)) == Order::Less
        {
            before = writer.last;
        } else {
            self.find(key, head, trailer, Some(&mut before));
        }
        let mut height = 1;
        while height < MAX_HEIGHT && writer.rng.next() % GROWTH == 0 {
            height += 1;
        }
        let (place, node) = self.write_node(&mut writer.pen, key, trailer, value, height);
        for (level, &before) in before.iter().enumerate().take(height) {
            let before = self.node(before).link(level);
            let next = before.load(Ordering::Relaxed);
            node.link(level).store(next, Ordering::Relaxed);
            before.store(head << PLACE_BITS | u64::from(place), Ordering::Release);
            if next == 0 {
                writer.last[level] = place;
            }
        }
        self.height.fetch_max(height, Ordering::Relaxed);
        self.entries.fetch_add(1, Ordering::Relaxed);
        let _ =
            self.oldest.compare_exchange(0, trailer.seqno(), Ordering::Relaxed, Ordering::Relaxed);
        self.charge();
    }

    fn write_node(
        &self,
        pen: &mut Pen,
        key: &[u8],
        trailer: Trailer,
        value: &[u8],
        height: usize,
    ) -> (Place, Node<'_>) {
        let large = value.len() > LARGE;
        let value_room = if large { size_of::<usize>() } else { value.len() };
        let key_at = NODE_HEADER + 8 * height;
        let kept = large.then(|| self.arena.keep_large(pen, value).as_ptr() as usize);
        let (place, start) = self.arena.allocate(pen, key_at + key.len() + value_room);
        let key_and_height = key.len() as u32
            | (height as u32) << HEIGHT_SHIFT
            | if large { OUT_OF_LINE } else { 0 };
        // SAFETY: the piece has room for all that is written, is aligned to 16, and is not yet shared.
        unsafe {
            let at = start.as_ptr();
            at.cast::<u64>().write(trailer.bits());
            at.add(8).cast::<u32>().write(key_and_height);
            at.add(12).cast::<u32>().write(value.len() as u32);
            at.add(key_at).copy_from_nonoverlapping(key.as_ptr(), key.len());
            let value_at = at.add(key_at + key.len());
            match kept {
                Some(address) => value_at.cast::<usize>().write_unaligned(address),
                None => value_at.copy_from_nonoverlapping(value.as_ptr(), value.len()),
            }
        }
        (place, Node { start, table: std::marker::PhantomData })
    }

    /// The newest entry of `key` that a reader at `at` sees.
    pub(crate) fn get(self: &Arc<Self>, key: &[u8], at: Seqno) -> Option<(Trailer, Slice)> {
        let place = self.find(key, self.head(key), Trailer::visible_at(at), None)?;
        let node = self.node(place);
        (node.key() == key).then(|| (node.trailer(), self.slice(node.value())))
    }

    /// A cursor over all entries, those added later too.
    pub(crate) fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor { table: Arc::clone(self), place: self.front }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// The first write added, if any.
    pub(crate) fn oldest(&self) -> Option<Seqno> {
        Some(self.oldest.load(Ordering::Relaxed)).filter(|&seqno| seqno != 0)
    }

    /// Takes over the first write from the memtable this one is a copy of.
    pub(crate) fn set_oldest(&self, oldest: Option<Seqno>) {
        self.oldest.store(oldest.unwrap_or(0), Ordering::Relaxed);
    }

    /// Bytes of memory it takes.
    pub(crate) fn memory(&self) -> usize {
        self.arena.allocated()
    }

    /// The prefix its keys were expected to start with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The smallest and the largest key.
    pub(crate) fn ends(self: &Arc<Self>) -> Option<(Vec<u8>, Vec<u8>)> {
        let first = self.next_of(self.front)?;
        let last = self.find_last(|_, _| true);
        Some((self.node(first).key().to_vec(), self.node(last).key().to_vec()))
    }

    /// Takes note that its entries are in a table now: what readers still hold of it no longer counts
    /// against the writers' share of the budget.
    pub(crate) fn set_flushed(&self) {
        if !self.flushed.swap(true, Ordering::Relaxed) {
            self.budget.shrink_memtables(self.charged.load(Ordering::Relaxed));
        }
    }

    /// Brings the budget up to date with the memory taken.
    fn charge(&self) {
        let now = self.arena.allocated();
        let before = self.charged.load(Ordering::Relaxed);
        if now != before {
            self.charged.store(now, Ordering::Relaxed);
            self.budget.grow_memtables(now - before);
        }
    }

    fn slice(self: &Arc<Self>, value: &[u8]) -> Slice {
        if value.len() <= COPIED {
            return Slice::from(value);
        }
        let owner = Arc::clone(self);
        // SAFETY: a node's value never changes and lives as long as the memtable, which the view holds.
        unsafe { View::from_raw(NonNull::from(value).cast(), value.len(), owner) }.into()
    }

    /// The part of a key that links carry.
    fn head(&self, key: &[u8]) -> u64 {
        head_behind(&self.prefix, key) >> PLACE_BITS
    }

    fn node(&self, place: Place) -> Node<'_> {
        // SAFETY: places come from links and from the writer, so the arena gave them out, and the pen
        // lives as long as `self`.
        Node { start: unsafe { self.arena.resolve(place) }, table: std::marker::PhantomData }
    }

    fn next_of(&self, place: Place) -> Option<Place> {
        let link = self.node(place).link(0).load(Ordering::Acquire);
        (link != 0).then_some(place_of(link))
    }

    /// The first entry not before `(key, trailer)`; `before` gets the last node before it at each level.
    fn find(
        &self,
        key: &[u8],
        head: u64,
        trailer: Trailer,
        mut before: Option<&mut [Place; MAX_HEIGHT]>,
    ) -> Option<Place> {
        let mut place = self.front;
        let mut node = self.node(place);
        let mut level = self.height.load(Ordering::Relaxed) - 1;
        // A node that was found not to be before the key: met again on the level below.
        let mut too_far = 0;
        loop {
            let link = node.link(level).load(Ordering::Acquire);
            let goes_on = link != 0
                && link != too_far
                && match (link >> PLACE_BITS).cmp(&head) {
                    Order::Less => true,
                    Order::Greater => false,
                    Order::Equal => {
                        let next = self.node(place_of(link));
                        compare((next.key(), next.trailer()), (key, trailer)) == Order::Less
                    }
                };
            if goes_on {
                place = place_of(link);
                node = self.node(place);
                continue;
            }
            too_far = link;
            if let Some(before) = &mut before {
                before[level] = place;
            }
            if level == 0 {
                return (link != 0).then_some(place_of(link));
            }
            level -= 1;
        }
    }

    /// The last node that `is_before` holds for, or the front one.
    fn find_last(&self, is_before: impl Fn(u64, Node<'_>) -> bool) -> Place {
        let mut place = self.front;
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            loop {
                let link = self.node(place).link(level).load(Ordering::Acquire);
                if link == 0 || !is_before(link >> PLACE_BITS, self.node(place_of(link))) {
                    break;
                }
                place = place_of(link);
            }
        }
        place
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        self.set_flushed();
    }
}

fn place_of(link: u64) -> Place {
    (link & ((1 << PLACE_BITS) - 1)) as Place
}

/// A node of a memtable that is borrowed.
#[derive(Clone, Copy)]
struct Node<'a> {
    start: NonNull<u8>,
    table: std::marker::PhantomData<&'a Memtable>,
}

impl<'a> Node<'a> {
    fn trailer(self) -> Trailer {
        // SAFETY: a node starts with its trailer, aligned; nodes reached are complete.
        let bits = unsafe { self.start.cast::<u64>().read() };
        Trailer::from_bits(bits).expect("the memtable stores what it was given")
    }

    fn key_and_height(self) -> u32 {
        // SAFETY: the second field of the node's header, aligned.
        unsafe { self.start.add(8).cast::<u32>().read() }
    }

    fn key_at(self) -> usize {
        let height = (self.key_and_height() & !OUT_OF_LINE) >> HEIGHT_SHIFT;
        NODE_HEADER + 8 * height as usize
    }

    fn key(self) -> &'a [u8] {
        let len = (self.key_and_height() & ((1 << HEIGHT_SHIFT) - 1)) as usize;
        // SAFETY: the key lies behind the tower, is that long, and never changes.
        unsafe { std::slice::from_raw_parts(self.start.add(self.key_at()).as_ptr(), len) }
    }

    fn value(self) -> &'a [u8] {
        let key = self.key();
        // SAFETY: the last field of the header; the value, or its address, lies behind the key, and the
        // arena keeps both unchanged as long as the memtable lives.
        unsafe {
            let len = self.start.add(12).cast::<u32>().read() as usize;
            let at = key.as_ptr().add(key.len());
            if self.key_and_height() & OUT_OF_LINE == 0 {
                return std::slice::from_raw_parts(at, len);
            }
            let address = at.cast::<*const u8>().read_unaligned();
            std::slice::from_raw_parts(address, len)
        }
    }

    fn link(self, level: usize) -> &'a AtomicU64 {
        // SAFETY: callers ask for levels below the node's height (they came by a link of that level, or
        // from the front node, which has them all); the word is aligned and only used as an atomic.
        unsafe { self.start.add(NODE_HEADER + 8 * level).cast::<AtomicU64>().as_ref() }
    }
}

/// A position in a memtable.
#[derive(Debug)]
pub(crate) struct MemtableCursor {
    table: Arc<Memtable>,
    /// The front node when outside.
    place: Place,
}

impl EntryCursor for MemtableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.place = self.table.next_of(self.table.front).unwrap_or(self.table.front);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.place = self.table.find_last(|_, _| true);
        Ok(())
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let found = self.table.find(key, self.table.head(key), trailer, None);
        self.place = found.unwrap_or(self.table.front);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let target = self.table.head(key);
        self.place = self.table.find_last(|head, node| match head.cmp(&target) {
            Order::Less => true,
            Order::Greater => false,
            Order::Equal => compare((node.key(), node.trailer()), (key, trailer)) == Order::Less,
        });
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.place = self.table.next_of(self.place).unwrap_or(self.table.front);
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        let table = Arc::clone(&self.table);
        let node = table.node(self.place);
        self.seek_before(node.key(), node.trailer())
    }

    fn is_valid(&self) -> bool {
        self.place != self.table.front
    }

    fn key(&self) -> &[u8] {
        self.table.node(self.place).key()
    }

    fn trailer(&self) -> Trailer {
        self.table.node(self.place).trailer()
    }

    fn value(&self) -> &[u8] {
        self.table.node(self.place).value()
    }

    fn value_slice(&self) -> Slice {
        self.table.slice(self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Kind;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn table(prefix: &[u8]) -> Arc<Memtable> {
        Arc::new(Memtable::new(prefix, Arc::new(Budget::new(64 << 20))))
    }

    fn all(cursor: &mut MemtableCursor) -> Vec<(Vec<u8>, Seqno, Vec<u8>)> {
        let mut entries = Vec::new();
        cursor.seek_to_first().unwrap();
        while cursor.is_valid() {
            let entry = (cursor.key().to_vec(), cursor.trailer().seqno(), cursor.value().to_vec());
            entries.push(entry);
            cursor.next().unwrap();
        }
        entries
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(
            prefix in "[ab]{0,3}",
            keys in proptest::collection::vec("[abc]{0,6}", 1..200),
            ascending in any::<bool>(),
        ) {
            let table = table(prefix.as_bytes());
            let mut keys = keys;
            if ascending {
                keys.sort();
            }
            let mut model = BTreeMap::new();
            for (i, key) in keys.iter().enumerate() {
                let seqno = i as u64 + 1;
                let value = format!("{i}");
                table.insert(key.as_bytes(), Trailer::new(seqno, Kind::Put), value.as_bytes());
                model.insert((key.clone().into_bytes(), u64::MAX - seqno), value.into_bytes());
            }
            let expected: Vec<_> = model
                .iter()
                .map(|((key, seqno), value)| (key.clone(), u64::MAX - seqno, value.clone()))
                .collect();
            let mut cursor = table.cursor();
            prop_assert_eq!(all(&mut cursor), expected.clone());
            cursor.seek_to_last().unwrap();
            for entry in expected.iter().rev() {
                prop_assert_eq!((cursor.key(), cursor.trailer().seqno()), (&entry.0[..], entry.1));
                cursor.prev().unwrap();
            }
            prop_assert!(!cursor.is_valid());
            for at in 0..=keys.len() as u64 {
                for key in &keys {
                    let newest = expected.iter().find(|(k, s, _)| k == key.as_bytes() && *s <= at);
                    let got = table.get(key.as_bytes(), at);
                    prop_assert_eq!(got.map(|(_, v)| v.to_vec()), newest.map(|(_, _, v)| v.clone()));
                }
            }
            let (first, last) = table.ends().unwrap();
            prop_assert_eq!((&first, &last), (&expected[0].0, &expected[expected.len() - 1].0));
        }
    }

    #[test]
    fn large_values_and_keys() {
        let table = table(b"");
        let sizes = [0, 1, COPIED + 1, LARGE, LARGE + 1, 3 << 20];
        for (i, &size) in sizes.iter().enumerate() {
            let key = vec![i as u8; 64 << 10];
            table.insert(&key, Trailer::new(i as u64 + 1, Kind::Put), &vec![i as u8; size]);
        }
        let slices: Vec<_> = (0..sizes.len())
            .map(|i| table.get(&vec![i as u8; 64 << 10], 100).expect("there").1)
            .collect();
        drop(table);
        for (i, &size) in sizes.iter().enumerate() {
            assert_eq!(slices[i], vec![i as u8; size], "a slice outlives the table");
        }
    }

    #[test]
    fn budget_is_charged_and_given_back() {
        let budget = Arc::new(Budget::new(64 << 20));
        let table = Arc::new(Memtable::new(b"", Arc::clone(&budget)));
        table.insert(b"k", Trailer::new(1, Kind::Put), &vec![0; 1 << 20]);
        assert!(budget.memtables_used() > 1 << 20);
        assert_eq!(budget.memtables_used(), table.memory());
        drop(table);
        assert_eq!(budget.memtables_used(), 0);
    }

    #[test]
    fn readers_beside_the_writer_see_whole_entries() {
        let table = table(b"0000");
        let entries = if cfg!(miri) { 100 } else { 20_000u64 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = crate::base::rng::Rng::new(1);
                for seqno in 1..=entries {
                    let key = format!("{:016}", rng.next() % 100_000);
                    table.insert(key.as_bytes(), Trailer::new(seqno, Kind::Put), key.as_bytes());
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut seen = 0;
                    while seen < entries as usize {
                        let found = all(&mut table.cursor());
                        assert!(found.len() >= seen, "entries do not vanish");
                        seen = found.len();
                        assert!(found.iter().all(|(key, _, value)| key == value));
                        assert!(
                            found.is_sorted_by(
                                |a, b| (&a.0, u64::MAX - a.1) < (&b.0, u64::MAX - b.1)
                            )
                        );
                    }
                });
            }
        });
    }
}
