//! Slots: the address space of the index, a table from slot to segment.
//!
//! A table never changes; each change makes a new one, with a higher generation. Slots of segments that are gone
//! are used again, so an address means something only together with the table of its time: a reader that found
//! an address looks whether the generation is still that of the table it holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};

use super::index::Address;
use super::segment::Segment;

/// How many slots there may be: what the index has bits for.
pub(crate) const MOST_SLOTS: usize = 1 << (Address::BITS - 17);

/// The segments at one time.
pub(crate) struct Slots {
    generation: u64,
    table: Vec<Option<Arc<Segment>>>,
}

impl Slots {
    /// The segment that holds `address`.
    #[inline]
    pub(crate) fn segment(&self, address: Address) -> Option<&Arc<Segment>> {
        self.table.get(address.slot() as usize)?.as_ref()
    }

    /// All segments, oldest first.
    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        let first = |(slot, segment): (usize, &Option<Arc<Segment>>)| {
            segment.as_ref().filter(|segment| segment.base as usize == slot).cloned()
        };
        let mut segments: Vec<_> = self.table.iter().enumerate().filter_map(first).collect();
        segments.sort_by_key(|segment| segment.id);
        segments
    }

    /// The first of `count` free slots in a row; `None` if there are none.
    pub(crate) fn free(&self, count: usize) -> Option<u32> {
        let mut run = 0;
        for (slot, segment) in self.table.iter().enumerate() {
            run = if segment.is_none() { run + 1 } else { 0 };
            if run == count {
                return Some((slot + 1 - count) as u32);
            }
        }
        let start = self.table.len() - run;
        (start + count <= MOST_SLOTS).then_some(start as u32)
    }
}

/// The present table.
pub(crate) struct CurrentSlots {
    current: ArcSwap<Slots>,
    generation: AtomicU64,
    /// The length of the table.
    len: AtomicUsize,
}

impl CurrentSlots {
    pub(crate) fn new() -> Self {
        let slots = Slots { generation: 0, table: Vec::new() };
        Self {
            current: ArcSwap::from_pointee(slots),
            generation: AtomicU64::new(0),
            len: AtomicUsize::new(0),
        }
    }

    /// Whether so much is in use that there may soon be no room for a segment.
    #[inline]
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.len.load(Ordering::Relaxed) > MOST_SLOTS / 4 * 3
    }

    /// Whether so much is in use that there may soon be no room for what deletes write, and for what is moved because of them.
    pub(crate) fn is_nearly_full_for_deletes(&self) -> bool {
        self.len.load(Ordering::Relaxed) > MOST_SLOTS / 16 * 13
    }

    /// The present table.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<Slots>> {
        self.current.load()
    }

    /// Whether `slots` is the present table. An address that was found before this was asked means what `slots`
    /// says, if it is.
    #[inline]
    pub(crate) fn is_current(&self, slots: &Slots) -> bool {
        self.generation.load(Ordering::Acquire) == slots.generation
    }

    /// Puts segments into their slots, in the place of what is there, and takes others out. One thread at a time.
    pub(crate) fn change(&self, removed: &[Arc<Segment>], added: &[Arc<Segment>]) {
        let old = self.current.load();
        let mut table = old.table.clone();
        for segment in removed {
            let base = segment.base as usize;
            table[base..base + segment.slots].fill(None);
        }
        for segment in added {
            let end = segment.base as usize + segment.slots;
            if table.len() < end {
                table.resize(end, None);
            }
            table[segment.base as usize..end].fill(Some(Arc::clone(segment)));
        }
        // Nothing is there: it is room again.
        while table.pop_if(|last| last.is_none()).is_some() {}
        self.len.store(table.len(), Ordering::Relaxed);
        let generation = old.generation + 1;
        // Before the new table: no address of it may be taken for one of the old table.
        self.generation.store(generation, Ordering::Release);
        self.current.store(Arc::new(Slots { generation, table }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::hash::memory::MemorySegment;

    #[test]
    fn slots_behind_the_last_segment_are_none() {
        let segment = |id, base| {
            let memory = MemorySegment::new(64, Arc::new(Budget::new(8 << 20)));
            Segment::in_memory(id, base, 1, memory)
        };
        let slots = CurrentSlots::new();
        let (first, last) = (segment(1, 0), segment(2, MOST_SLOTS as u32 / 8 * 7));
        slots.change(&[], &[Arc::clone(&first), Arc::clone(&last)]);
        assert!(slots.is_nearly_full() && slots.is_nearly_full_for_deletes());
        slots.change(&[last], &[]);
        assert!(!slots.is_nearly_full());
        assert_eq!((slots.load().table.len(), slots.load().free(3)), (1, Some(1)));
        slots.change(&[], &[segment(3, MOST_SLOTS as u32 / 16 * 12 + 7)]);
        assert!(slots.is_nearly_full() && !slots.is_nearly_full_for_deletes());
        slots.change(&[first], &[]);
        assert_eq!(slots.load().segments().len(), 1);
    }
}
