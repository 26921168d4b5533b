//! The memtable: entries in an arena in the order they came, an index of their keys' tags for gets, and an order that
//! cursors have made when they need it.
//!
//! Thread safety: one writer at a time (a lock inside sees to it), any number of readers beside it that
//! never wait for it. Entries are never changed and never freed before the memtable. An entry is known to gets by the
//! release store of its slot, and then to cursors by that of the number of entries.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::account::Account;
use super::arena::{Arena, Pen, Place};
use super::entry::{Draft, Entry, find_in_chain};
use super::index::{Position, Side, Target};
use super::order::{Order, Orders};
use super::tags::{Tags, TagsPen};
use crate::base::prefetch::prefetch_at;
use crate::base::{Seqno, Slice, Trailer, View};
use crate::budget::Budget;
use crate::error::Result;
use crate::iter::EntryCursor;

/// Values of up to this many bytes are copied out by readers; longer ones pin the memtable.
const COPIED: usize = 4096;

/// What the processor reads at once.
const LINE: usize = 64;
/// How many entries ahead a walk asks for memory.
const AHEAD: isize = 4;

/// A set of entries that grows, and can be walked over in order.
pub(crate) struct Memtable {
    tags: Tags,
    arena: Arena,
    entries: AtomicU64,
    /// The first write, 0 if there is none.
    oldest: AtomicU64,
    orders: Orders,
    /// Owns the memory of `tags` and `arena`.
    pens: Mutex<Pens>,
    account: Arc<Account>,
}

/// What only the writer may touch.
struct Pens {
    entries: Pen,
    tags: TagsPen,
    charged: usize,
}

impl Memtable {
    /// An empty memtable.
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        let (tags, pen) = Tags::new(&budget);
        // What an empty one takes is charged with its first entry: an idle keyspace asks for no memory.
        Self {
            tags,
            arena: Arena::new(),
            entries: AtomicU64::new(0),
            oldest: AtomicU64::new(0),
            orders: Orders::default(),
            pens: Mutex::new(Pens { entries: Pen::new(&budget), tags: pen, charged: 0 }),
            account: Arc::new(Account::new(budget)),
        }
    }

    /// Adds an entry. It must be newer than those of its key that are there.
    pub(crate) fn insert(&self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let pens = &mut *self.pens.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = self.entries.load(Ordering::Relaxed);
        let tag = self.tags.tag(key);
        self.tags.prefetch(tag);
        let draft = Draft::new(&self.arena, &mut pens.entries, key, trailer, value);
        let (opening, links) = self.tags.open(&mut pens.tags, tag, &self.arena, entries);
        self.tags.fill(&opening, draft.finish(&mut pens.entries, links));
        if entries == 0 {
            self.oldest.store(trailer.seqno(), Ordering::Relaxed);
        }
        self.entries.store(entries + 1, Ordering::Release);
        let allocated = self.arena.allocated() + self.tags.allocated();
        if allocated != pens.charged {
            self.account.grow(allocated - pens.charged);
            pens.charged = allocated;
        }
    }

    /// Asks for the memory that an insertion of `key` will look at.
    pub(crate) fn prefetch(&self, key: &[u8]) {
        self.tags.prefetch(self.tags.tag(key));
    }

    /// The newest entry of `key` that a reader at `at` sees.
    pub(crate) fn get(self: &Arc<Self>, key: &[u8], at: Seqno) -> Option<(Trailer, Slice)> {
        let trailer = Trailer::visible_at(at);
        let find = |newest| find_in_chain(&self.arena, self.entry(newest), key, trailer);
        let found = self.tags.newest(self.tags.tag(key)).and_then(find);
        let entry = found.or_else(|| self.tags.crowd().and_then(find))?;
        Some((entry.trailer(), self.slice(entry.value())))
    }

    /// A cursor over all entries there are when it is placed by a seek; those added later may or may not show.
    pub(crate) fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor { table: Arc::clone(self), order: None, position: None }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Acquire)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// The first write added, if any.
    pub(crate) fn oldest(&self) -> Option<Seqno> {
        Some(self.oldest.load(Ordering::Relaxed)).filter(|&seqno| seqno != 0)
    }

    /// Bytes of memory it takes.
    pub(crate) fn memory(&self) -> usize {
        self.account.bytes()
    }

    /// Takes note that its entries are in a table now: what readers still hold of it no longer counts
    /// against the writers' share of the budget.
    pub(crate) fn set_flushed(&self) {
        self.account.close();
    }

    #[inline]
    fn entry(&self, place: Place) -> Entry<'_> {
        // SAFETY: places come from the index, which got them after their entries were written, by release and
        // acquire.
        unsafe { Entry::at(&self.arena, place) }
    }

    fn slice(self: &Arc<Self>, value: &[u8]) -> Slice {
        if value.len() <= COPIED {
            return Slice::from(value);
        }
        let owner = Arc::clone(self);
        // SAFETY: an entry's value never changes and lives as long as the memtable, which the view holds.
        unsafe { View::from_raw(NonNull::from(value).cast(), value.len(), owner) }.into()
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable").field("entries", &self.entries()).finish_non_exhaustive()
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        self.set_flushed();
    }
}

/// A position in a memtable.
pub(crate) struct MemtableCursor {
    table: Arc<Memtable>,
    /// That of the last seek.
    order: Option<Arc<Order>>,
    position: Option<Position>,
}

impl MemtableCursor {
    #[inline]
    fn entry(&self) -> Entry<'_> {
        let order = self.order.as_ref().expect("the cursor must have been placed");
        let position = self.position.expect("the cursor must be on an entry");
        position.entry(order.arenas(&self.table.arena))
    }

    /// Places the cursor where `find` says, in an order that has all entries there are.
    #[inline]
    fn place(&mut self, find: impl FnOnce(&Order, &Arena) -> Option<Position>) {
        let (table, count) = (&self.table, self.table.entries());
        let order = match self.order.take().filter(|order| order.covers(count)) {
            Some(order) => order,
            None => table.orders.up_to(&table.arena, count, &table.account),
        };
        self.position = find(&order, &table.arena);
        self.order = Some(order);
    }

    /// Goes one step to a side: in the leaf, or else where `find` says from here.
    #[inline]
    fn step(
        &mut self,
        by: isize,
        find: impl FnOnce(&Order, &Arena, Target<'_>) -> Option<Position>,
    ) {
        let order = self.order.as_ref().expect("the cursor must have been placed");
        let position = self.position.expect("the cursor must be on an entry");
        let arenas = order.arenas(&self.table.arena);
        let (next, ahead) = match position.step(by) {
            Some(next) => (Some(next), AHEAD..AHEAD + 1),
            None => {
                let here = position.entry(arenas);
                let target = order.target(here.key(), here.trailer());
                (find(order, &self.table.arena, target), 0..AHEAD + 1)
            }
        };
        for ahead in ahead.filter_map(|ahead| next?.step(by * ahead)) {
            let start = ahead.entry(arenas).start();
            prefetch_at(start);
            prefetch_at(start.wrapping_add(LINE));
        }
        self.position = next;
    }
}

impl EntryCursor for MemtableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.place(|order, arena| order.index().end(order.arenas(arena), Side::First));
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.place(|order, arena| order.index().end(order.arenas(arena), Side::Last));
        Ok(())
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.place(|order, arena| {
            order.index().lower_bound(order.arenas(arena), order.target(key, trailer))
        });
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.place(|order, arena| {
            order.index().before(order.arenas(arena), order.target(key, trailer))
        });
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(1, |order, arena, here| order.index().after(order.arenas(arena), here));
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(-1, |order, arena, here| order.index().before(order.arenas(arena), here));
        Ok(())
    }

    fn is_valid(&self) -> bool {
        self.position.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.entry().key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.entry().trailer()
    }

    fn value(&self) -> &[u8] {
        self.entry().value()
    }

    fn value_slice(&self) -> Slice {
        self.table.slice(self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::LARGE;
    use super::*;
    use crate::base::Kind;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl Memtable {
        fn orders_memory(&self) -> usize {
            self.memory() - self.arena.allocated() - self.tags.allocated()
        }
    }

    fn table() -> Arc<Memtable> {
        Arc::new(Memtable::new(Arc::new(Budget::new(64 << 20))))
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

    type Model = BTreeMap<(Vec<u8>, u64), Vec<u8>>;

    /// The entries of a model: keys, sequence numbers, values.
    fn entries(model: &Model) -> Vec<(Vec<u8>, Seqno, Vec<u8>)> {
        let entry = |((key, age), value): (&(Vec<u8>, u64), &Vec<u8>)| {
            (key.clone(), u64::MAX - age, value.clone())
        };
        model.iter().map(entry).collect()
    }

    fn insert(table: &Memtable, model: &mut Model, key: &[u8], seqno: Seqno) {
        let value = seqno.to_string().into_bytes();
        table.insert(key, Trailer::new(seqno, Kind::Put), &value);
        model.insert((key.to_vec(), u64::MAX - seqno), value);
    }

    /// A cursor moved both ways, from both ends and from a key, meets what the model has.
    fn check_order(cursor: &mut MemtableCursor, model: &Model, key: &[u8]) {
        let expected = entries(model);
        assert_eq!(all(cursor), expected);
        cursor.seek_to_last().unwrap();
        for entry in expected.iter().rev() {
            assert_eq!((cursor.key(), cursor.trailer().seqno()), (&entry.0[..], entry.1));
            cursor.prev().unwrap();
        }
        assert!(!cursor.is_valid());
        let at = expected.partition_point(|entry| &entry.0[..] < key);
        cursor.seek(key, Trailer::NEWEST).unwrap();
        let here = |cursor: &MemtableCursor| cursor.is_valid().then(|| cursor.trailer().seqno());
        assert_eq!(here(cursor), expected.get(at).map(|entry| entry.1));
        cursor.seek_before(key, Trailer::NEWEST).unwrap();
        assert_eq!(here(cursor), at.checked_sub(1).map(|at| expected[at].1));
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(
            prefix in "[ab]{0,3}",
            keys in proptest::collection::vec("[abc]{0,6}", 1..200),
            ascending in any::<bool>(),
            looks in proptest::collection::vec(any::<proptest::sample::Index>(), 0..4),
        ) {
            let table = table();
            let mut keys: Vec<_> = keys.iter().map(|key| format!("{prefix}{key}")).collect();
            if ascending {
                keys.sort();
            }
            let looks: Vec<_> = looks.iter().map(|look| look.index(keys.len())).collect();
            let mut model = Model::new();
            let mut cursor = table.cursor();
            for (i, key) in keys.iter().enumerate() {
                insert(&table, &mut model, key.as_bytes(), i as u64 + 1);
                if looks.contains(&i) {
                    check_order(&mut cursor, &model, keys[i / 2].as_bytes());
                }
            }
            check_order(&mut cursor, &model, keys[0].as_bytes());
            check_order(&mut table.cursor(), &model, b"b");
            let expected = entries(&model);
            for at in 0..=keys.len() as u64 {
                for key in &keys {
                    let newest = expected.iter().find(|(k, s, _)| k == key.as_bytes() && *s <= at);
                    let got = table.get(key.as_bytes(), at);
                    prop_assert_eq!(got.map(|(_, v)| v.to_vec()), newest.map(|(_, _, v)| v.clone()));
                }
            }
        }

        #[test]
        fn keys_that_differ_late_or_only_in_their_length_are_in_order(
            parts in proptest::collection::vec((0usize..40, 0usize..3, 0u8..3), 1..300),
            rounds in 1usize..4,
        ) {
            let table = table();
            let mut model = Model::new();
            let mut seqno = 0;
            for part in parts.chunks(parts.len().div_ceil(rounds)) {
                for &(same, zeros, last) in part {
                    seqno += 1;
                    let mut key = vec![b'k'; same];
                    key.resize(same + zeros, 0);
                    key.extend((last > 0).then_some(last));
                    insert(&table, &mut model, &key, seqno);
                }
                check_order(&mut table.cursor(), &model, b"kkkkkkkkkkkk");
            }
        }
    }

    #[test]
    fn every_version_of_a_key_is_found() {
        let table = table();
        let versions = if cfg!(miri) { 100 } else { 5_000u64 };
        for number in 1..=versions {
            table.insert(b"hot", Trailer::new(2 * number, Kind::Put), &number.to_le_bytes());
            table.insert(&number.to_le_bytes(), Trailer::new(2 * number + 1, Kind::Put), b"");
        }
        assert!(table.get(b"hot", 1).is_none());
        for at in 2..=2 * versions + 1 {
            let (trailer, value) = table.get(b"hot", at).unwrap();
            assert_eq!((trailer.seqno(), &*value), (at & !1, &(at / 2).to_le_bytes()[..]));
        }
    }

    #[test]
    fn an_order_is_made_anew_when_its_prefix_no_longer_fits() {
        let table = table();
        let mut model = Model::new();
        for seqno in 1..=3_000 {
            let key = format!("{seqno:016}");
            insert(&table, &mut model, key.as_bytes(), seqno);
            if seqno % 100 == 1 {
                check_order(&mut table.cursor(), &model, b"0000000000000500");
            }
        }
        check_order(&mut table.cursor(), &model, b"0000000000002500");
    }

    #[test]
    fn memory_of_orders_is_charged_and_given_back() {
        let budget = Arc::new(Budget::new(64 << 20));
        let table = Arc::new(Memtable::new(Arc::clone(&budget)));
        let mut old = table.cursor();
        for number in 1..=20_000u64 {
            table.insert(&number.to_be_bytes(), Trailer::new(number, Kind::Put), b"");
            if number == 10_000 {
                old.seek_to_first().unwrap();
            }
        }
        let before = table.memory();
        table.cursor().seek_to_first().unwrap();
        let with_two = table.memory();
        assert!(with_two > before + 20_000 * 12);
        assert_eq!(budget.memtables_used(), with_two);
        assert_eq!(all(&mut old).len(), 20_000, "a seek takes the newest order");
        assert!(table.memory() < with_two, "the first order is gone");
        assert_eq!(budget.memtables_used(), table.memory());
        table.set_flushed();
        assert_eq!(budget.memtables_used(), 0);
        drop((old, table));
        assert_eq!(budget.memtables_used(), 0);
    }

    #[test]
    fn keys_that_descend_in_a_gap_take_no_more_memory_than_others() {
        let table = table();
        let entries = 3_000u64;
        let put = |key: String, seqno| {
            table.insert(key.as_bytes(), Trailer::new(seqno, Kind::Put), b"");
            let mut cursor = table.cursor();
            cursor.seek(key.as_bytes(), Trailer::NEWEST).unwrap();
            assert_eq!(cursor.trailer().seqno(), seqno);
        };
        // Ascending ones first, whose nodes are full.
        (1..=entries).for_each(|number| put(format!("a{number:08}"), number));
        let before = table.orders_memory();
        (1..=entries).for_each(|number| put(format!("b{:08}", entries - number), entries + number));
        let taken = table.orders_memory() - before;
        assert!(taken < 256 * entries as usize, "{taken}");
    }

    #[test]
    fn large_values_and_keys() {
        let table = table();
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
        let table = Arc::new(Memtable::new(Arc::clone(&budget)));
        table.insert(b"k", Trailer::new(1, Kind::Put), &vec![0; 1 << 20]);
        assert!(budget.memtables_used() > 1 << 20);
        assert_eq!(budget.memtables_used(), table.memory());
        drop(table);
        assert_eq!(budget.memtables_used(), 0);
    }

    #[test]
    fn what_was_inserted_is_found_beside_the_writer() {
        let entries = if cfg!(miri) { 200 } else { 200_000u64 };
        // Spread over the keys, so that nodes are split everywhere.
        let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let table = table();
        let inserted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=entries {
                    let key = key(number);
                    table.insert(&key, Trailer::new(number, Kind::Put), &key);
                    inserted.store(number, Ordering::Release);
                }
            });
            for reader in 0..2 {
                let (table, inserted) = (&table, &inserted);
                scope.spawn(move || {
                    let mut rng = crate::base::rng::Rng::new(reader);
                    let mut done = 0;
                    while done < entries {
                        done = inserted.load(Ordering::Acquire);
                        let number = 1 + rng.next() % done.max(1);
                        let key = key(number);
                        if number <= done {
                            assert!(table.get(&key, done).is_some(), "{number} of {done} by get");
                            let mut cursor = table.cursor();
                            cursor.seek_before(&key, Trailer::new(0, Kind::Delete)).unwrap();
                            assert!(
                                cursor.is_valid() && cursor.key() == key,
                                "{number} from above"
                            );
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_reader_beside_the_writer_sees_each_key_as_of_its_time() {
        const KEYS: u64 = 97;
        let writes = if cfg!(miri) { 300 } else { 100_000u64 };
        let key = |number: u64| (number % KEYS).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let table = table();
        let published = AtomicU64::new(KEYS);
        let put = |number| {
            table.insert(&key(number), Trailer::new(number, Kind::Put), &number.to_le_bytes());
        };
        (1..=KEYS).for_each(put);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in KEYS + 1..=writes {
                    put(number);
                    published.store(number, Ordering::Release);
                }
            });
            for reader in 0..2 {
                let (table, published) = (&table, &published);
                scope.spawn(move || {
                    let mut rng = crate::base::rng::Rng::new(reader);
                    let mut cursor = table.cursor();
                    let mut at = 0;
                    while at < writes {
                        let last = published.load(Ordering::Acquire);
                        at = if rng.next().is_multiple_of(2) {
                            last
                        } else {
                            KEYS + rng.next() % (last - KEYS + 1)
                        };
                        let number = at - rng.next() % KEYS;
                        let (trailer, value) = table.get(&key(number), at).unwrap();
                        assert_eq!((trailer.seqno(), &*value), (number, &number.to_le_bytes()[..]));
                        if rng.next().is_multiple_of(16) {
                            cursor.seek(&key(number), Trailer::visible_at(at)).unwrap();
                            assert_eq!(
                                (cursor.key(), cursor.trailer().seqno()),
                                (&key(number)[..], number)
                            );
                        }
                        at = last;
                    }
                });
            }
        });
    }

    #[test]
    fn readers_beside_the_writer_see_whole_entries() {
        let table = table();
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
