//! The writer: puts records into the tail and keeps the index.
//!
//! A put never reads a file. If the index knows records with the same hash, those in memory are compared at
//! once; those in files may be older versions of the key or other keys, and the tail's segment is marked
//! *unresolved*: the reclaimer finds out later. Until an older version is found out, both are indexed, and readers
//! take the newer one.
//!
//! An older version in memory is *superseded*: it is taken out of the index when the newer one has been published and
//! no snapshot sees the older one, or at once if the older one has not been published either, as of two writes of one
//! batch. If both are in the tail, its place is then used again for a record of the same length: keys that are
//! overwritten again and again take two places, not more.
//!
//! Invariant: of two records of a key, the one in the segment with the larger number is the newer one; within a
//! segment the one with the larger sequence number.
//!
//! Thread safety: behind the store's writer lock.

use std::collections::VecDeque;
use std::sync::Arc;

use super::index::{Address, Entry, Found, Index, IndexWriter};
use super::memory::MemorySegment;
use super::record::Lengths;
use super::segment::{Figures, HEADER_UNITS, SLOT_UNITS, Segment, slots_for};
use super::slots::{CurrentSlots, Slots};
use crate::base::{Kind, Seqno, Trailer, Visibility};
use crate::budget::Budget;

/// Places of records up to so many units are used again.
const REUSED_UNITS: usize = 1024;
/// Memory for so many superseded records is kept for those that come next.
const KEPT_SUPERSEDED: usize = 1024;

/// A record that a newer one of the same key has superseded, both in memory when it was noticed.
struct Superseded {
    hash: u64,
    entry: Entry,
    old: Seqno,
    new: Seqno,
    /// The segments they are in. Their memory is not kept for this.
    old_segment: (u64, Arc<Figures>),
    new_segment: (u64, Arc<Figures>),
}

/// What came of moving a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relocated {
    Moved,
    /// It is not indexed any more.
    Gone,
    /// There are other records with its hash that nobody has judged yet.
    LookAgain,
}

/// An older version of a key that is being written, in memory.
struct Older {
    entry: Entry,
    seqno: Seqno,
    segment: (u64, Arc<Figures>),
}

/// Segments that end with a batch, to be written to files together.
#[derive(Clone)]
pub(crate) struct Sealed {
    pub(crate) segments: Vec<Arc<Segment>>,
    /// With them, all writes up to this number are in segments.
    pub(crate) last: Seqno,
    /// The oldest write in them that is nowhere else yet.
    pub(crate) oldest: Option<Seqno>,
}

/// What the writer works on.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) index: &'a Index,
    pub(crate) slots: &'a CurrentSlots,
    pub(crate) budget: &'a Arc<Budget>,
    pub(crate) visibility: &'a Visibility,
}

/// A write, with the hash of its key.
#[derive(Clone, Copy)]
pub(crate) struct Put<'a> {
    pub(crate) hash: u64,
    pub(crate) trailer: Trailer,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// The single writer's part of the store.
pub(crate) struct Writer {
    pub(crate) index: IndexWriter,
    tail: Option<Arc<Segment>>,
    /// Full segments of a batch that has not ended.
    closed: Vec<Arc<Segment>>,
    /// Places in the tail that may be used again, by their units.
    free: Vec<Vec<usize>>,
    superseded: VecDeque<Superseded>,
    found: Found,
    /// The next number of a file.
    pub(crate) next_id: u64,
    /// The number of the last segment that has been started.
    last_segment: u64,
    /// The units of a segment.
    segment_units: usize,
    /// Entries of the index that are tombstones.
    pub(crate) tombstones: u64,
    /// How many entries have been taken out of the index.
    pub(crate) forgotten: u64,
    oldest: Option<Seqno>,
    /// Whether a batch is being applied.
    in_batch: bool,
    /// The end of the last batch.
    last: Seqno,
    /// Whether the tail is to be sealed when the batch ends.
    seal_asked: bool,
}

impl Writer {
    pub(crate) fn new(
        index: IndexWriter,
        segment_units: usize,
        next_id: u64,
        last_segment: u64,
        last: Seqno,
    ) -> Self {
        Self {
            index,
            tail: None,
            closed: Vec::new(),
            free: Vec::new(),
            superseded: VecDeque::new(),
            found: Found::new(),
            next_id,
            last_segment,
            segment_units,
            tombstones: 0,
            forgotten: 0,
            oldest: None,
            in_batch: false,
            last,
            seal_asked: false,
        }
    }

    /// A number for a new file.
    pub(crate) fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Takes a write of a batch.
    pub(crate) fn put(&mut self, place: Place<'_>, put: &Put<'_>) {
        if !self.superseded.is_empty() {
            self.drop_superseded(place);
        }
        self.in_batch = true;
        let Put { hash, trailer, key, value } = *put;
        let mut found = std::mem::replace(&mut self.found, Found::new());
        place.index.find(hash, &mut found);
        let is_tombstone = trailer.kind() == Kind::Delete;
        if !(is_tombstone && found.as_slice().is_empty()) {
            // What is in memory is asked for, and compared when the record has been written.
            self.ask_for(place, found.as_slice());
            let units = Lengths { key: key.len(), value: value.len() }.units();
            let at = self.write(place, units, put);
            let newest = self.look_at_older(place, found.as_slice(), key);
            let tail = self.tail.as_ref().expect("it was just written to");
            let entry = Entry::new(tail.address(at), units as u32, is_tombstone);
            self.tombstones += u64::from(is_tombstone);
            self.oldest.get_or_insert(trailer.seqno());
            // The newest one in memory is taken care of below.
            if found.as_slice().len() > usize::from(newest.is_some()) {
                tail.figures.set_unresolved();
            }
            match newest {
                // Both are going to be published at once: no state is ever between them.
                Some(older) if older.seqno > place.visibility.published() => {
                    self.replace(place.index, hash, &older, entry);
                }
                Some(Older { entry: older, seqno: old, segment: old_segment }) => {
                    self.index.insert(place.index, hash, entry);
                    let (entry, new) = (older, trailer.seqno());
                    let new_segment = (tail.id, Arc::clone(&tail.figures));
                    let superseded = Superseded { hash, entry, old, new, old_segment, new_segment };
                    self.superseded.push_back(superseded);
                }
                None => self.index.insert(place.index, hash, entry),
            }
        }
        self.found = found;
    }

    /// Has the index lead to `new`, which is in the tail, where it led to an older version that nobody has seen.
    ///
    /// Readers look behind it: who finds the older one has asked for a state from before it was written, and whatever takes its
    /// place is newer still.
    fn replace(&mut self, index: &Index, hash: u64, older: &Older, new: Entry) {
        self.index.replace(index, hash, older.entry.address(), new);
        older.segment.1.removed(older.entry);
        self.tombstones -= u64::from(older.entry.is_tombstone());
        self.give_back(older.entry.address(), older.segment.0);
    }

    /// Asks for the memory of the records at `found`.
    #[inline]
    fn ask_for(&self, place: Place<'_>, found: &[Entry]) {
        if found.is_empty() {
            return;
        }
        let slots = place.slots.load();
        for entry in found {
            if let Some(segment) = slots.segment(entry.address())
                && let Some(memory) = segment.memory()
            {
                memory.prefetch(segment.offset(entry.address()));
            }
        }
    }

    /// Finds the newest version of `key` in memory.
    fn look_at_older(&self, place: Place<'_>, found: &[Entry], key: &[u8]) -> Option<Older> {
        if found.is_empty() {
            return None;
        }
        let mut newest: Option<Older> = None;
        let slots = place.slots.load();
        for &entry in found {
            let segment = slots.segment(entry.address()).expect("the writer's index is current");
            let Some(memory) = segment.memory() else { continue };
            let at = segment.offset(entry.address());
            let Ok(Some(trailer)) = memory.trailer_of(at, key) else { continue };
            let seqno = trailer.seqno();
            if newest.as_ref().is_none_or(|newest| newest.seqno < seqno) {
                let segment = (segment.id, Arc::clone(&segment.figures));
                newest = Some(Older { entry, seqno, segment });
            }
        }
        newest
    }

    /// Writes the record into the tail, in a place of its own or one that is free; gives where it begins.
    #[inline]
    fn write(&mut self, place: Place<'_>, units: usize, put: &Put<'_>) -> usize {
        let Put { trailer, key, value, .. } = *put;
        let Some(at) = self.free.get_mut(units).and_then(Vec::pop) else {
            return self.append(place, units, trailer, key, value);
        };
        let tail = self.tail.as_ref().expect("free places are in the tail");
        tail.memory().expect("the tail is in memory").write(at, trailer, key, value);
        tail.figures.indexed(Entry::new(tail.address(at), units as u32, false));
        at
    }

    /// Appends a record to the tail, or to a new one; gives where it begins.
    fn append(
        &mut self,
        place: Place<'_>,
        units: usize,
        trailer: Trailer,
        key: &[u8],
        value: &[u8],
    ) -> usize {
        let fits = |tail: &Arc<Segment>| tail.memory().is_some_and(|memory| memory.left() >= units);
        if !self.tail.as_ref().is_some_and(fits) {
            self.close_tail();
            let tail = self.new_tail(place, units);
            self.tail = Some(tail);
        }
        let tail = self.tail.as_ref().expect("it was just made");
        let at = tail.memory().expect("the tail is in memory").append(trailer, key, value);
        tail.figures.added(Entry::new(tail.address(at), units as u32, false), units);
        at
    }

    fn close_tail(&mut self) {
        self.closed.extend(self.tail.take());
        self.free.clear();
    }

    fn new_tail(&mut self, place: Place<'_>, units: usize) -> Arc<Segment> {
        let units = self.segment_units.max((HEADER_UNITS + units).next_multiple_of(SLOT_UNITS));
        let count = slots_for(units);
        let base = place.slots.load().free(count).expect("the pressure stops writers before");
        let memory = MemorySegment::new(units, Arc::clone(place.budget));
        self.last_segment = self.take_id();
        let tail = Segment::in_memory(self.last_segment, base, count, memory);
        place.slots.change(&[], &[Arc::clone(&tail)]);
        tail
    }

    /// Takes superseded records out of the index whose successors have been published, and frees their places.
    pub(crate) fn drop_superseded(&mut self, place: Place<'_>) {
        let published = place.visibility.published();
        while self.superseded.front().is_some_and(|front| front.new <= published) {
            let Some(superseded) = self.superseded.pop_front() else { return };
            let Superseded { hash, entry, old, new, old_segment, new_segment } = superseded;
            if place.visibility.is_held_between(old, new) {
                new_segment.1.set_unresolved();
                continue;
            }
            // Its segment may have been given up, and another one have its place in the address space.
            let slots = place.slots.load();
            let is_there = slots.segment(entry.address()).is_some_and(|it| it.id == old_segment.0);
            let was_indexed = is_there && self.forget(place.index, hash, entry, &old_segment.1);
            // What is older still was left to the one that goes now, and is the newer one's now.
            place.index.find(hash, &mut self.found);
            if self.found.as_slice().len() > 1 {
                new_segment.1.set_unresolved();
            }
            // If they are not in the same segment, the older one may be persisted without the newer one.
            if was_indexed && old_segment.0 == new_segment.0 {
                self.give_back(entry.address(), old_segment.0);
            }
        }
        // A large batch may have had very many.
        if self.superseded.is_empty() && self.superseded.capacity() > KEPT_SUPERSEDED {
            self.superseded.shrink_to(KEPT_SUPERSEDED);
        }
    }

    /// The record at `address` of segment `id` is needed by nobody: if that is the tail, its place is used again.
    fn give_back(&mut self, address: Address, id: u64) {
        let Some(tail) = self.tail.as_ref().filter(|tail| tail.id == id) else { return };
        let memory = tail.memory().expect("the tail is in memory");
        let at = tail.offset(address);
        let units = memory.mark_dead(at);
        if units < REUSED_UNITS {
            if self.free.len() <= units {
                self.free.resize_with(units + 1, Vec::new);
            }
            self.free[units].push(at);
        }
    }

    /// The bytes of memory that superseded records take.
    #[cfg(test)]
    pub(crate) fn superseded_memory(&self) -> usize {
        self.superseded.capacity() * size_of::<Superseded>()
    }

    /// Whether there are such records, or will be when more is published.
    pub(crate) fn has_superseded(&self) -> bool {
        !self.superseded.is_empty()
    }

    /// Takes a record out of the index; false if it was not in it.
    pub(crate) fn forget(
        &mut self,
        index: &Index,
        hash: u64,
        entry: Entry,
        figures: &Figures,
    ) -> bool {
        let removed = self.index.remove(index, hash, entry.address());
        if removed {
            figures.removed(entry);
            self.forgotten += 1;
            self.tombstones -= u64::from(entry.is_tombstone());
        }
        removed
    }

    /// Copies a record of `from` that is indexed at `old` into the tail, and indexes it there instead, provided that no
    /// newer version of its key is indexed: all others in files must be among the `judged`. The copy never takes a
    /// place that was used before, and so is behind all that is older.
    pub(crate) fn relocate(
        &mut self,
        place: Place<'_>,
        put: &Put<'_>,
        old: Entry,
        from: &Segment,
        judged: &[Address],
    ) -> Relocated {
        place.index.find(put.hash, &mut self.found);
        let slots = place.slots.load();
        let mut is_indexed = false;
        for other in self.found.as_slice() {
            if other.address() == old.address() {
                is_indexed = true;
                continue;
            }
            let segment = slots.segment(other.address());
            let memory = segment.and_then(|segment| Some((segment, segment.memory()?)));
            let is_other_key = match memory {
                Some((segment, memory)) => {
                    matches!(memory.trailer_of(segment.offset(other.address()), put.key), Ok(None))
                }
                None => judged.contains(&other.address()),
            };
            if !is_other_key {
                return Relocated::LookAgain;
            }
        }
        if !is_indexed {
            return Relocated::Gone;
        }
        let units = Lengths { key: put.key.len(), value: put.value.len() }.units();
        let at = self.append(place, units, put.trailer, put.key, put.value);
        let tail = self.tail.as_ref().expect("it was just written to");
        let entry = Entry::new(tail.address(at), units as u32, old.is_tombstone());
        self.index.replace(place.index, put.hash, old.address(), entry);
        from.figures.removed(old);
        Relocated::Moved
    }

    /// What was just moved to the tail supersedes versions that are still indexed.
    pub(crate) fn set_tail_unresolved(&self) {
        self.tail.iter().for_each(|tail| tail.figures.set_unresolved());
    }

    /// A batch ends with `last`; gives what is to be written to files, if the tail is full.
    pub(crate) fn end_batch(&mut self, last: Seqno) -> Option<Sealed> {
        (self.in_batch, self.last) = (false, last.max(self.last));
        let is_full = |tail: &Arc<Segment>| {
            tail.memory().is_some_and(|memory| memory.left() < self.segment_units / 16)
        };
        let full = self.tail.as_ref().is_some_and(is_full);
        if full || self.seal_asked || !self.closed.is_empty() { self.seal(last) } else { None }
    }

    /// Seals all there is, at the end of a batch.
    pub(crate) fn seal(&mut self, last: Seqno) -> Option<Sealed> {
        self.seal_asked = false;
        self.last = last.max(self.last);
        self.close_tail();
        if self.closed.is_empty() {
            return None;
        }
        let segments = std::mem::take(&mut self.closed);
        Some(Sealed { segments, last: self.last, oldest: self.oldest.take() })
    }

    /// Seals all there is now, or when the batch that is being applied ends.
    pub(crate) fn seal_soon(&mut self) -> Option<Sealed> {
        if self.in_batch {
            self.seal_asked = true;
            return None;
        }
        self.seal(self.last)
    }

    /// Looks through the index that opening has filled: counts what is there, and what of it is in segments up to `covered` for
    /// these, too. Entries of one hash may be versions of one key: the segments of all but the oldest are marked for the
    /// reclaimer to find out.
    ///
    /// Not with each entry that is inserted: those of one hash would take time with the square of their number.
    pub(crate) fn look_at_opened(&mut self, index: &Index, slots: &Slots, covered: u64) {
        let segment = |entry: &Entry| slots.segment(entry.address());
        let id = |entry: &&Entry| segment(entry).map(|segment| segment.id);
        let tombstones = &mut self.tombstones;
        for bucket in 0..self.index.buckets() {
            // A checkpoint has entries twice of buckets that were split while it was written.
            self.index.tidy(index, bucket, |entries| {
                for entry in entries {
                    *tombstones += u64::from(entry.is_tombstone());
                    if let Some(segment) = segment(entry).filter(|it| it.id <= covered) {
                        segment.figures.opened(*entry, None);
                    }
                }
                let oldest = entries.iter().min_by_key(id).map(|entry| entry.address());
                let newer = entries.iter().filter(|entry| Some(entry.address()) != oldest);
                newer.filter_map(segment).for_each(|segment| segment.figures.set_unresolved());
            });
        }
    }

    /// The units of a full segment.
    pub(crate) fn segment_units(&self) -> usize {
        self.segment_units
    }

    /// The oldest write that is not sealed.
    pub(crate) fn oldest(&self) -> Option<Seqno> {
        self.oldest
    }

    /// The number of the last segment that has been started.
    pub(crate) fn last_started(&self) -> u64 {
        self.last_segment
    }

    /// The first segment that is not sealed; the number the next one gets if all are.
    pub(crate) fn first_unsealed(&self) -> u64 {
        self.closed.first().or(self.tail.as_ref()).map_or(self.next_id, |segment| segment.id)
    }

    /// What counts against the budget of the memory that sealing would hand over, in bytes.
    pub(crate) fn unsealed_bytes(&self) -> usize {
        let unsealed = self.closed.iter().chain(&self.tail).filter_map(|segment| segment.memory());
        unsealed.map(MemorySegment::charged_bytes).sum()
    }

    /// The entry of the record of `hash` at `address`, if it is indexed.
    pub(crate) fn entry(&mut self, index: &Index, hash: u64, address: Address) -> Option<Entry> {
        index.find(hash, &mut self.found);
        self.found.as_slice().iter().copied().find(|entry| entry.address() == address)
    }

    /// Whether every key has one entry: nothing is being applied and nothing superseded is left in memory.
    pub(crate) fn is_quiet(&mut self, place: Place<'_>) -> bool {
        self.drop_superseded(place);
        let all_is_published = self.last <= place.visibility.published();
        !self.in_batch && all_is_published && self.superseded.is_empty()
    }
}
