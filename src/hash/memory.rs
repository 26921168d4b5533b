//! A segment in memory: the mutable tail, and sealed segments until they are written.
//!
//! The memory is an array of words that one writer stores and any reader loads, each word atomically. A record
//! is guarded by the version in its first unit, odd while the record changes (a sequence lock): a reader that
//! finds it odd, or another one than before, has read nothing and starts again.
//!
//! Thread safety: one writer, under the store's writer lock, until the segment is sealed; readers any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use super::record::{Front, Lengths, UNIT};
use super::segment::HEADER_UNITS;
use crate::base::prefetch::prefetch;
use crate::base::{Slice, Trailer, words};
use crate::budget::Budget;

/// The budget is told of growth in steps of so many units (64 KiB).
const STEP: usize = (64 << 10) / UNIT;

/// The memory of a segment.
pub(crate) struct MemorySegment {
    words: Box<[AtomicU64]>,
    /// Units in use: the header, which is never written here, and the records behind it.
    used: AtomicUsize,
    /// Units that count against the budget.
    charged: AtomicUsize,
    budget: Arc<Budget>,
}

/// A record changed while it was read.
#[derive(Debug)]
pub(crate) struct Busy;

impl MemorySegment {
    /// An empty segment with room for `units`, the header included.
    pub(crate) fn new(units: usize, budget: Arc<Budget>) -> Self {
        let used = AtomicUsize::new(HEADER_UNITS);
        Self { words: words::zeroed(units), used, charged: AtomicUsize::new(0), budget }
    }

    /// Units in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Units not in use.
    pub(crate) fn left(&self) -> usize {
        self.words.len() - self.used.load(Ordering::Relaxed)
    }

    /// Bytes that count against the budget.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.charged.load(Ordering::Relaxed) * UNIT
    }

    /// Takes note that its file is there: from now on nothing of it counts against the budget. Whoever still reads it keeps it.
    pub(crate) fn set_flushed(&self) {
        self.budget.shrink_memtables(self.charged.swap(0, Ordering::Relaxed) * UNIT);
    }

    // ---- the writer ----

    /// Appends a record; gives where it begins. There must be room.
    #[inline]
    pub(crate) fn append(&self, trailer: Trailer, key: &[u8], value: &[u8]) -> usize {
        let at = self.used.load(Ordering::Relaxed);
        let end = at + Lengths { key: key.len(), value: value.len() }.units();
        let charged = self.charged.load(Ordering::Relaxed);
        if end > charged {
            let next = end.next_multiple_of(STEP).min(self.words.len());
            self.budget.grow_memtables((next - charged) * UNIT);
            self.charged.store(next, Ordering::Relaxed);
        }
        self.write(at, trailer, key, value);
        self.used.store(end, Ordering::Release);
        at
    }

    /// Writes a record at `at`, where nothing is or a record of as many units that nobody looks for any more.
    #[inline]
    pub(crate) fn write(&self, at: usize, trailer: Trailer, key: &[u8], value: &[u8]) {
        let lengths = Lengths { key: key.len(), value: value.len() };
        let (front, count) = Front { lengths, trailer, is_dead: false }.units();
        let words = &self.words[at..at + lengths.units()];
        let first = words[0].load(Ordering::Relaxed);
        let version = first as u32;
        words[0]
            .store(first & !0xffff_ffff | u64::from(version.wrapping_add(1)), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, unit) in words[1..count].iter().zip(&front[1..]) {
            word.store(*unit, Ordering::Relaxed);
        }
        store_bytes(&words[count..], key, value);
        words[0].store(front[0] | u64::from(version.wrapping_add(2)), Ordering::Release);
    }

    /// Marks the record at `at` as one that only fills space; gives its units.
    pub(crate) fn mark_dead(&self, at: usize) -> usize {
        let first = self.words[at].load(Ordering::Relaxed);
        let front = self.front_of(at, first).expect("the writer knows its records");
        let (units, _) = Front { is_dead: true, ..front }.units();
        let version = (first as u32).wrapping_add(2);
        self.words[at].store(units[0] | u64::from(version), Ordering::Release);
        front.lengths.units()
    }

    // ---- readers ----

    /// The front of the record at `at`, and the value if the key is `key`.
    #[inline]
    pub(crate) fn read(&self, at: usize, key: &[u8]) -> Result<Option<(Trailer, Slice)>, Busy> {
        self.stable(at, |front| {
            if !self.has_key(at, front, key) {
                return None;
            }
            Some((front.trailer, self.value(at, front)))
        })
    }

    /// The sequence number and kind of the record at `at` if its key is `key`.
    #[inline]
    pub(crate) fn trailer_of(&self, at: usize, key: &[u8]) -> Result<Option<Trailer>, Busy> {
        self.stable(at, |front| self.has_key(at, front, key).then_some(front.trailer))
    }

    /// The front and all bytes of the record at `at`, once it does not change.
    pub(crate) fn copy(&self, at: usize) -> (Front, Vec<u8>) {
        loop {
            let copied = self.stable(at, |front| {
                let words = &self.words[at..at + front.lengths.units()];
                let bytes =
                    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
                (front, bytes.collect())
            });
            match copied {
                Ok(copied) => return copied,
                Err(Busy) => std::hint::spin_loop(),
            }
        }
    }

    /// Asks for the front of the record at `at`.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize) {
        if let Some(word) = self.words.get(at) {
            prefetch(word);
        }
    }

    /// The word at `at`.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Acquire)
    }

    /// The front of the record at `at` of a sealed segment.
    pub(crate) fn front(&self, at: usize) -> Option<Front> {
        self.front_of(at, self.word(at))
    }

    /// What `read` makes of the record at `at`, if it did not change meanwhile.
    #[inline]
    fn stable<T>(&self, at: usize, read: impl FnOnce(Front) -> T) -> Result<T, Busy> {
        let first = self.words.get(at).ok_or(Busy)?.load(Ordering::Acquire);
        if first & 1 == 1 {
            return Err(Busy);
        }
        let front = self.front_of(at, first).ok_or(Busy)?;
        let result = read(front);
        fence(Ordering::Acquire);
        let again = self.words[at].load(Ordering::Relaxed);
        if again == first { Ok(result) } else { Err(Busy) }
    }

    /// The front of the record at `at`, if it and all of the record lie inside the segment.
    #[inline]
    fn front_of(&self, at: usize, first: u64) -> Option<Front> {
        let second = self.words.get(at + 1)?.load(Ordering::Relaxed);
        let third = || self.words.get(at + 2).map_or(0, |word| word.load(Ordering::Relaxed));
        let front = Front::from_units(first, second, third)?;
        (at + front.lengths.units() <= self.words.len()).then_some(front)
    }

    #[inline]
    fn has_key(&self, at: usize, front: Front, key: &[u8]) -> bool {
        if front.lengths.key != key.len() {
            return false;
        }
        let words = &self.words[at + front.lengths.key_range().start / UNIT..];
        let (chunks, rest) = key.as_chunks::<8>();
        let whole = chunks
            .iter()
            .zip(words)
            .all(|(chunk, word)| word.load(Ordering::Relaxed) == u64::from_le_bytes(*chunk));
        if !whole || rest.is_empty() {
            return whole;
        }
        let mask = (1 << (8 * rest.len())) - 1;
        words[chunks.len()].load(Ordering::Relaxed) & mask == partial(rest)
    }

    fn value(&self, at: usize, front: Front) -> Slice {
        let range = front.lengths.value_range();
        let shift = 8 * (range.start % UNIT) as u32;
        let words = &self.words[at + range.start / UNIT..at + front.lengths.units()];
        let mut value = Vec::with_capacity(range.len().next_multiple_of(UNIT));
        let mut load = words.iter().map(|word| word.load(Ordering::Relaxed));
        if shift == 0 {
            load.for_each(|word| value.extend_from_slice(&word.to_le_bytes()));
        } else if let Some(mut low) = load.next() {
            while value.len() < range.len() {
                let high = load.next().unwrap_or(0);
                let word = low >> shift | high << (64 - shift);
                value.extend_from_slice(&word.to_le_bytes());
                low = high;
            }
        }
        value.truncate(range.len());
        Slice::from(value)
    }
}

/// Up to seven bytes as the low part of a word.
#[inline]
fn partial(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Stores `key` and then `value`, filled up with zeros to a whole word.
#[inline]
fn store_bytes(words: &[AtomicU64], key: &[u8], value: &[u8]) {
    let (chunks, rest) = key.as_chunks::<8>();
    for (word, chunk) in words.iter().zip(chunks) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    let words = &words[chunks.len()..];
    let (chunks, tail) = value.as_chunks::<8>();
    if rest.is_empty() {
        for (word, chunk) in words.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
        if !tail.is_empty() {
            words[chunks.len()].store(partial(tail), Ordering::Relaxed);
        }
        return;
    }
    let shift = 8 * rest.len() as u32;
    let mut carry = partial(rest);
    for (word, chunk) in words.iter().zip(chunks) {
        let bytes = u64::from_le_bytes(*chunk);
        word.store(carry | bytes << shift, Ordering::Relaxed);
        carry = bytes >> (64 - shift);
    }
    let bytes = partial(tail);
    words[chunks.len()].store(carry | bytes << shift, Ordering::Relaxed);
    if rest.len() + tail.len() > UNIT {
        words[chunks.len() + 1].store(bytes >> (64 - shift), Ordering::Relaxed);
    }
}

impl Drop for MemorySegment {
    fn drop(&mut self) {
        self.set_flushed();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::Kind;

    fn segment(units: usize) -> MemorySegment {
        MemorySegment::new(units, Arc::new(Budget::new(8 << 20)))
    }

    fn put(seqno: u64) -> Trailer {
        Trailer::new(seqno, Kind::Put)
    }

    proptest! {
        #[test]
        fn records_come_back(records in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..40), proptest::collection::vec(any::<u8>(), 0..90)),
            1..20,
        )) {
            let memory = segment(1000);
            let at: Vec<usize> = records
                .iter()
                .enumerate()
                .map(|(i, (key, value))| memory.append(put(i as u64), key, value))
                .collect();
            for (i, (key, value)) in records.iter().enumerate() {
                let (trailer, found) = memory.read(at[i], key).unwrap().unwrap();
                prop_assert_eq!(trailer, put(i as u64));
                prop_assert_eq!(&*found, &value[..]);
                let (front, bytes) = memory.copy(at[i]);
                prop_assert_eq!(&bytes[front.lengths.key_range()], &key[..]);
                prop_assert_eq!(&bytes[front.lengths.value_range()], &value[..]);
                prop_assert!(bytes[front.lengths.value_range().end..].iter().all(|&byte| byte == 0));
                let mut other = key.clone();
                other.push(0);
                prop_assert!(memory.read(at[i], &other).unwrap().is_none());
                if let Some(last) = key.last() {
                    *other.get_mut(key.len() - 1).unwrap() = last ^ 1;
                    other.pop();
                    prop_assert!(memory.trailer_of(at[i], &other).unwrap().is_none());
                }
            }
            prop_assert_eq!(memory.used(), at.last().unwrap() + memory.copy(*at.last().unwrap()).0.lengths.units());
        }
    }

    #[test]
    fn a_place_is_used_again_and_readers_never_see_a_mixture() {
        let memory = segment(100);
        let value = |seqno: u64| vec![seqno as u8; 100];
        let at = memory.append(put(0), b"key", &value(0));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut last = 0;
                while last < 50_000 {
                    let Ok(read) = memory.read(at, b"key") else { continue };
                    let (trailer, found) = read.unwrap();
                    assert_eq!(found, value(trailer.seqno()));
                    last = trailer.seqno();
                }
            });
            for seqno in 1..=50_000 {
                memory.write(at, put(seqno), b"key", &value(seqno));
            }
            reader.join().unwrap();
        });
        let units = memory.mark_dead(at);
        assert_eq!(at + units, memory.used());
        assert!(memory.copy(at).0.is_dead);
    }

    #[test]
    fn the_budget_knows_of_it() {
        let budget = Arc::new(Budget::new(8 << 20));
        let memory = MemorySegment::new(1 << 20, Arc::clone(&budget));
        assert_eq!(budget.memtables_used(), 0);
        memory.append(put(1), b"k", &[1; 100_000]);
        assert_eq!((budget.memtables_used(), memory.charged_bytes()), (128 << 10, 128 << 10));
        let flushed = MemorySegment::new(1 << 20, Arc::clone(&budget));
        flushed.append(put(1), b"k", b"v");
        flushed.set_flushed();
        assert_eq!((budget.memtables_used(), flushed.charged_bytes()), (128 << 10, 0));
        drop((memory, flushed));
        assert_eq!(budget.memtables_used(), 0);
    }
}
