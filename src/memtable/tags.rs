//! A hash table that grows beside its readers: for the hash of each key, the newest entry; or, for that of what keys begin
//! with, the list they are in. It knows no order, and a put meets two lines of it, which lie side by side.
//!
//! It is an extendible hash table (Fagin et al., 1979). The first bits of a key's *tag*, 32 bits of its hash, choose a
//! segment by way of the directory, and the last ones a bucket of the segment. When a bucket is full, the segment gives
//! half of its tags to a new one, each in the same slot: a put never moves more than one segment. Segments are then a
//! bit more than half full.
//!
//! ```text
//! segment := 32 buckets of 16 slots                                                     4096 bytes
//! slot    := 0, or tag (32 bits), times it was filled (4 bits: 1 to 15, and then it stays 15), place (28 bits)
//! ```
//!
//! Keys are not compared: what has the same tag shares a slot, and whoever fills it says how.
//!
//! If the directory would grow out of proportion, because someone knows keys with like tags, what finds no room is
//! put into a place of the table's own, the *crowd*. Its keys are found, slowly. Tags depend on a seed, so it takes
//! luck. A tag that is in the crowd may find a slot later.
//!
//! Thread safety: one writer at a time, which callers see to. What a place leads to is complete before a release store of
//! its slot. When a segment is split, the new one is known before slots are taken out of the old one. So
//! readers that found nothing look whether the tag has moved to another segment meanwhile, and then look there.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::arena::{Arena, Kind, PLACE_BITS, Pen, Place};
use super::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, Witness, fence, seed};
use crate::base::prefetch::prefetch;
use crate::budget::Budget;

// A model has segments of one slot, so that there is something to try with two keys.
const WAYS: usize = if cfg!(loom) { 1 } else { 16 };
const BUCKETS: usize = if cfg!(loom) { 1 } else { 32 };
const TAG_BITS: u32 = 32;
/// The directory has no more than this many times as many entries as there are keys.
const KEYS_FOR_DIRECTORY_ENTRY: u64 = if cfg!(loom) { 0 } else { 16 };
/// The bits of a tag that do not choose a bucket.
const MAX_DEPTH: u32 = TAG_BITS - BUCKETS.ilog2();
/// Where it is no longer counted how often a slot was filled.
pub(super) const MOST_FILLS: u32 = 15;
/// No crowd.
const NOBODY: u32 = u32::MAX;

type Bucket = [AtomicU64; WAYS];

#[repr(C, align(64))]
struct Segment {
    buckets: [Bucket; BUCKETS],
    witness: Witness,
}

/// What a slot in use holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Slot {
    tag: u32,
    fills: u32,
    place: Place,
}

/// The first bits of a tag, and the segment they lead to.
struct Directory {
    depth: u32,
    segments: Box<[AtomicPtr<Segment>]>,
    witness: Witness,
}

/// What only the writer may touch. It owns all memory of the index, which readers have pointers to.
pub(super) struct TagsPen {
    pen: Pen,
    /// The present one last; readers may still look at the others.
    directories: Vec<NonNull<Directory>>,
    /// How many bits lead to the segment, for each entry of the directory.
    depths: Vec<u8>,
}

/// The index of one memtable.
pub(super) struct Tags {
    directory: AtomicPtr<Directory>,
    crowd: AtomicU32,
    seed: u64,
    arena: Arena,
}

// SAFETY: the pointers are to memory this value owns, which has no ties to a thread.
unsafe impl Send for TagsPen {}

impl Drop for TagsPen {
    fn drop(&mut self) {
        for &directory in &self.directories {
            // SAFETY: it came from a box, and goes back into one once, here; the table goes away with its
            // writer's part, so nobody reads it any more.
            drop(unsafe { Box::from_raw(directory.as_ptr()) });
        }
    }
}

impl Slot {
    fn from_word(word: u64) -> Self {
        Self {
            tag: (word >> TAG_BITS) as u32,
            fills: word as u32 >> PLACE_BITS,
            place: word as u32 & ((1 << PLACE_BITS) - 1),
        }
    }

    /// Never 0, as it is filled.
    fn word(self) -> u64 {
        u64::from(self.tag) << TAG_BITS | u64::from(self.fills << PLACE_BITS | self.place)
    }
}

/// Where a place goes in.
pub(super) struct Opening<'a> {
    /// `None`: into the crowd.
    slot: Option<&'a AtomicU64>,
    tag: u32,
    /// What is there so far.
    pub(super) before: Option<Place>,
    /// How often the slot was filled, at most [`MOST_FILLS`] times as far as it knows; 0 for the crowd.
    pub(super) fills: u32,
}

impl Tags {
    /// An empty index, and the part for who writes it.
    pub(super) fn new(budget: &Arc<Budget>) -> (Self, TagsPen) {
        let arena = Arena::new();
        let mut pen = Pen::new(budget);
        let segment = new_segment(&arena, &mut pen);
        let segments = Box::new([AtomicPtr::new(segment.as_ptr())]);
        let directory = Directory { depth: 0, segments, witness: Witness::written() };
        let directory = NonNull::from(Box::leak(Box::new(directory)));
        let tags = Self {
            directory: AtomicPtr::new(directory.as_ptr()),
            crowd: AtomicU32::new(NOBODY),
            seed: seed(),
            arena,
        };
        (tags, TagsPen { pen, directories: vec![directory], depths: vec![0] })
    }

    /// Bytes taken from the system.
    pub(super) fn allocated(&self) -> usize {
        self.arena.allocated() + self.directory().segments.len() * size_of::<AtomicPtr<Segment>>()
    }

    /// The tag of `key`.
    #[inline]
    pub(super) fn tag(&self, key: &[u8]) -> u32 {
        (xxhash_rust::xxh3::xxh3_64_with_seed(key, self.seed) >> TAG_BITS) as u32
    }

    /// Asks for the memory that a search for `tag` looks at.
    #[inline]
    pub(super) fn prefetch(&self, tag: u32) {
        let bucket = self.segment(tag).bucket(tag);
        prefetch(&bucket[0]);
        prefetch(&bucket[WAYS - 1]);
    }

    /// What was filled in last for `tag`, but for the crowd.
    #[inline]
    pub(super) fn find(&self, tag: u32) -> Option<Place> {
        let mut segment = self.segment(tag);
        loop {
            if let Some((_, slot)) = segment.find(tag) {
                // Pairs with the release store of the slot.
                fence(Ordering::Acquire);
                return Some(slot.place);
            }
            // If the tag had been taken out of the segment, this sees where to.
            fence(Ordering::Acquire);
            let now = self.segment(tag);
            if ptr::eq(now, segment) {
                return None;
            }
            segment = now;
        }
    }

    /// What was filled in last for the crowd.
    #[inline]
    pub(super) fn crowd(&self) -> Option<Place> {
        Some(self.crowd.load(Ordering::Acquire)).filter(|&place| place != NOBODY)
    }

    /// Where a place for `tag` goes in. There are `keys` different ones at most so far.
    #[inline]
    pub(super) fn open(&self, pen: &mut TagsPen, tag: u32, keys: u64) -> Opening<'_> {
        loop {
            let segment = self.segment(tag);
            if let Some((word, slot)) = segment.find(tag) {
                let Slot { fills, place, .. } = slot;
                return Opening { slot: Some(word), tag, before: Some(place), fills };
            }
            let slot = segment.free_slot(tag);
            if slot.is_some() {
                return Opening { slot, tag, before: None, fills: 0 };
            }
            if !self.split(pen, tag, keys) {
                return Opening { slot: None, tag, before: self.crowd(), fills: 0 };
            }
        }
    }

    /// Makes `place` known.
    #[inline]
    pub(super) fn fill(&self, opening: &Opening<'_>, place: Place) {
        let fills = (opening.fills + 1).min(MOST_FILLS);
        let word = Slot { tag: opening.tag, fills, place }.word();
        match opening.slot {
            Some(slot) => slot.store(word, Ordering::Release),
            None => self.crowd.store(place, Ordering::Release),
        }
    }

    #[inline]
    fn directory(&self) -> &Directory {
        // SAFETY: directories were complete before they were stored with release, and live as long as the writer's
        // part, which the memtable drops with this.
        let directory = unsafe { &*self.directory.load(Ordering::Acquire) };
        directory.witness.read();
        directory
    }

    #[inline]
    fn segment(&self, tag: u32) -> &Segment {
        let directory = self.directory();
        let segment = directory.segments[directory.index(tag)].load(Ordering::Acquire);
        // SAFETY: as for directories.
        let segment = unsafe { &*segment };
        segment.witness.read();
        segment
    }

    // ---- growing ----

    /// Moves half of the tags of the segment of `tag` to a new one. Gives `false` if the directory would be too large.
    #[cold]
    fn split(&self, pen: &mut TagsPen, tag: u32, keys: u64) -> bool {
        let depth = pen.depths[self.directory().index(tag)];
        if u32::from(depth) == self.directory().depth && !self.double(pen, keys) {
            return false;
        }
        let directory = self.directory();
        let new = new_segment(&self.arena, &mut pen.pen);
        // SAFETY: it has just been made, and nobody changes it but through its atomics.
        let (old, upper) = (self.segment(tag), unsafe { new.as_ref() });
        let moves = |word: u64| word << depth >> 63 == 1;
        for (from, to) in old.slots().zip(upper.slots()) {
            let word = from.load(Ordering::Relaxed);
            to.store(if moves(word) { word } else { 0 }, Ordering::Relaxed);
        }
        // The entries of the directory that lead to the old segment, and of them the upper half.
        let count = 1 << (directory.depth - u32::from(depth));
        let first = directory.index(tag) & !(count - 1);
        pen.depths[first..first + count].fill(depth + 1);
        for entry in &directory.segments[first + count / 2..first + count] {
            entry.store(new.as_ptr(), Ordering::Release);
        }
        for slot in old.slots() {
            if moves(slot.load(Ordering::Relaxed)) {
                slot.store(0, Ordering::Release);
            }
        }
        true
    }

    /// Makes the directory twice as large, unless that is out of proportion to so many keys.
    fn double(&self, pen: &mut TagsPen, keys: u64) -> bool {
        let old = self.directory();
        let len = 2 * old.segments.len();
        if old.depth == MAX_DEPTH || len as u64 * KEYS_FOR_DIRECTORY_ENTRY > keys {
            return false;
        }
        let segment = |i: usize| AtomicPtr::new(old.segments[i / 2].load(Ordering::Relaxed));
        let segments = (0..len).map(segment).collect();
        let new = Directory { depth: old.depth + 1, segments, witness: Witness::written() };
        let new = NonNull::from(Box::leak(Box::new(new)));
        pen.depths = (0..len).map(|i| pen.depths[i / 2]).collect();
        pen.directories.push(new);
        self.directory.store(new.as_ptr(), Ordering::Release);
        true
    }
}

impl Directory {
    #[inline]
    fn index(&self, tag: u32) -> usize {
        (u64::from(tag) >> (TAG_BITS - self.depth)) as usize
    }
}

impl Segment {
    /// The bucket where `tag` may be.
    #[inline]
    fn bucket(&self, tag: u32) -> &Bucket {
        &self.buckets[tag as usize % BUCKETS]
    }

    /// The slot of `tag`. Callers that read the entry acquire it.
    #[inline]
    fn find(&self, tag: u32) -> Option<(&AtomicU64, Slot)> {
        self.bucket(tag).iter().find_map(|slot| {
            let word = slot.load(Ordering::Relaxed);
            ((word >> TAG_BITS) as u32 == tag && word != 0).then(|| (slot, Slot::from_word(word)))
        })
    }

    /// A free slot for `tag`.
    #[inline]
    fn free_slot(&self, tag: u32) -> Option<&AtomicU64> {
        self.bucket(tag).iter().find(|slot| slot.load(Ordering::Relaxed) == 0)
    }

    fn slots(&self) -> impl Iterator<Item = &AtomicU64> {
        self.buckets.iter().flatten()
    }
}

fn new_segment(arena: &Arena, pen: &mut Pen) -> NonNull<Segment> {
    let (_, start) =
        arena.allocate(pen, Kind::Segment, size_of::<Segment>(), align_of::<Segment>());
    let segment = start.cast::<Segment>();
    let buckets = std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)));
    // SAFETY: the piece is as large as a segment and aligned like one, and not yet shared.
    unsafe { segment.write(Segment { buckets, witness: Witness::written() }) };
    segment
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Draft, Entry, Links, New, find_in_chain};
    use super::*;
    use crate::base::{Kind, Trailer};

    struct Table {
        tags: Tags,
        pen: TagsPen,
        entries: Arena,
        entries_pen: Pen,
        count: u64,
    }

    impl Table {
        fn new() -> Self {
            let budget = Arc::new(Budget::new(64 << 20));
            let (tags, pen) = Tags::new(&budget);
            Self { tags, pen, entries: Arena::new(), entries_pen: Pen::new(&budget), count: 0 }
        }

        /// Adds an entry whose key and sequence number are its number.
        fn add(&mut self, tag: u32) -> u64 {
            self.put(tag, self.count + 1)
        }

        /// Adds an entry under the key `number`. Gives its sequence number.
        fn put(&mut self, tag: u32, number: u64) -> u64 {
            self.count += 1;
            let (key, trailer) = (number.to_le_bytes(), Trailer::new(self.count, Kind::Put));
            let pen = &mut self.entries_pen;
            let draft = Draft::new(&self.entries, pen, &[], New { key: &key, trailer, value: b"" });
            let opening = self.tags.open(&mut self.pen, tag, self.count - 1);
            let many = opening.fills == MOST_FILLS;
            let links = Links::in_front_of(&self.entries, opening.before, many);
            self.tags.fill(&opening, draft.finish(pen, links));
            self.count
        }

        fn has(&self, tag: u32, number: u64) -> bool {
            self.get(tag, number, self.count).is_some()
        }

        /// The sequence number of the entry that a reader at `at` sees under the key `number`.
        fn get(&self, tag: u32, number: u64, at: u64) -> Option<u64> {
            let (key, trailer) = (number.to_le_bytes(), Trailer::visible_at(at));
            let find = |place| {
                // SAFETY: the place comes from the index, and nobody writes.
                let newest = unsafe { Entry::at(&self.entries, place) };
                find_in_chain(&self.entries, newest, &key, trailer)
            };
            let found = self.tags.find(tag).and_then(find);
            let found = found.or_else(|| self.tags.crowd().and_then(find));
            found.map(|entry| entry.trailer().seqno())
        }
    }

    #[test]
    fn segments_are_well_filled_and_all_is_found() {
        let mut table = Table::new();
        let count = if cfg!(miri) { 2_000 } else { 100_000 };
        let mut rng = crate::base::rng::Rng::new(1);
        let tags: Vec<_> = (0..count).map(|_| rng.next() as u32).collect();
        for &tag in &tags {
            table.add(tag);
        }
        for (number, &tag) in (1..).zip(&tags) {
            assert!(table.has(tag, number));
            assert!(!table.has(tag, (number + 1) << 32));
        }
        assert!(table.tags.crowd().is_none());
        // Of few there is hardly a second segment.
        let most = if cfg!(miri) { 40 } else { 28 };
        assert!(table.tags.allocated() < most * count, "{}", table.tags.allocated());
    }

    #[test]
    fn keys_with_like_tags_take_no_more_room_than_others() {
        let mut table = Table::new();
        // One tag; tags that meet in a bucket, and are alike in the bits that choose a segment first.
        let tags: Vec<_> = (0..600).map(|i| if i % 2 == 0 { 7 } else { i << 12 | 7 }).collect();
        for &tag in &tags {
            table.add(tag);
        }
        assert!(table.tags.crowd().is_some());
        assert!(table.tags.allocated() < 100 << 10, "{}", table.tags.allocated());
        assert!((1..).zip(&tags).all(|(number, &tag)| table.has(tag, number)));
        assert!(!table.has(7, 1000));
    }

    #[test]
    fn a_key_that_leaves_the_crowd_keeps_its_versions() {
        const KEYS: u64 = 40;
        let mut table = Table::new();
        // They meet in a bucket until five bits choose a segment. The last two have the same tag.
        let tag = |number: u64| (number.min(KEYS - 2) as u32) << 22 | 7;
        for _ in 0..20 {
            (0..KEYS).for_each(|number| _ = table.put(tag(number), number));
        }
        let last = KEYS - 1;
        assert!(table.get(tag(last), last, KEYS).is_some() && table.tags.crowd().is_some());
        assert!(table.tags.find(tag(last)).is_some(), "it has found a slot");
        for at in (0..=table.count).step_by(if cfg!(miri) { 97 } else { 1 }) {
            for number in 0..KEYS {
                let newest = (at + KEYS - 1 - number) / KEYS * KEYS + number;
                let expected = newest.checked_sub(KEYS).map(|before| before + 1);
                assert_eq!(table.get(tag(number), number, at), expected, "{number} at {at}");
            }
        }
    }

    #[test]
    fn a_slot_is_one_word() {
        for slot in [
            Slot { tag: 0, fills: 1, place: 0 },
            Slot { tag: u32::MAX, fills: MOST_FILLS, place: (1 << PLACE_BITS) - 1 },
        ] {
            assert_eq!(Slot::from_word(slot.word()), slot);
            assert_ne!(slot.word(), 0);
        }
    }
}
