//! A bucket of the index: one cache line with six places for entries.
//!
//! ```text
//! bucket := 6 words, 6 tags of 16 bits, a link                                                64 bytes
//! word   := 0 if the place is empty; else the entry (47 bits), bits 6..23 of the hash (17)
//! tag    := bits 23..39 of the hash
//! link   := the first bucket of the overflow (26 bits, 0 if there is none), filter (6)
//! ```
//!
//! Bits 0..6 of the hash are those of the bucket's number: there are never fewer than 64 buckets. The filter
//! has a bit set for the tag of each entry in the overflow, so that few searches go there in vain. The places
//! of a bucket are filled from the first one on.
//!
//! Thread safety: one thread writes, any number read. All stores release and all loads of readers acquire,
//! so that a reader who has seen a store has seen what the writer stored before. Putting an entry into an
//! empty place stores the tag first and then the word. A reader looks for tags, then loads the words, and
//! then looks at the tag again: the one it saw before may have been left there by an entry that is gone.
//! What moves or removes entries must be kept from readers by other means: see [`super`].

use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::{Address, Entry, Found};

/// How many entries a bucket has room for.
pub(super) const PLACES: usize = 6;
/// The words of a bucket.
pub(super) const WORDS: usize = 8;
/// The word with the last two tags and, in its upper half, the link.
const LINK: usize = WORDS - 1;
const LINK_SHIFT: u32 = 32;
const LINK_BITS: u32 = 26;
const FILTER_SHIFT: u32 = LINK_SHIFT + LINK_BITS;
const FILTER_BITS: u64 = 6;
/// The largest number an overflow bucket may have.
pub(super) const MAX_OVERFLOW: u64 = (1 << LINK_BITS) - 2;
/// The lowest hash bit that words hold, and that tags hold.
const WORD_BIT: u32 = 6;
const TAG_BIT: u32 = WORD_BIT + 64 - Entry::BITS;

/// An entry with the part of its hash that the bucket does not tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    word: u64,
    tag: u16,
}

impl Stored {
    #[inline]
    pub(super) fn new(hash: u64, entry: Entry) -> Self {
        Self { word: entry.bits() | word_bits(hash), tag: tag(hash) }
    }

    #[inline]
    pub(super) fn entry(self) -> Entry {
        Entry::from_word(self.word)
    }

    /// The 39 known bits of the hash of an entry that is in main bucket `number`.
    #[inline]
    pub(super) fn hash(self, number: u64) -> u64 {
        let low = number & ((1 << WORD_BIT) - 1);
        u64::from(self.tag) << TAG_BIT | self.word >> Entry::BITS << WORD_BIT | low
    }
}

/// The hash bits of a word, where they are in the word.
#[inline]
fn word_bits(hash: u64) -> u64 {
    hash >> WORD_BIT << Entry::BITS
}

#[inline]
fn tag(hash: u64) -> u16 {
    (hash >> TAG_BIT) as u16
}

/// The filter bits of a tag, where they are in the word with the link.
#[inline]
fn filter_of(tag: u16) -> u64 {
    1 << (FILTER_SHIFT + ((u64::from(tag) * FILTER_BITS) >> 16) as u32)
}

/// What a bucket says of its overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link(u64);

impl Link {
    pub(super) const NONE: Self = Self(0);

    /// A link to overflow bucket `number`, with the same filter.
    #[inline]
    pub(super) fn to(self, number: u64) -> Self {
        debug_assert!(number <= MAX_OVERFLOW);
        Self(self.0 >> FILTER_SHIFT << FILTER_SHIFT | (number + 1) << LINK_SHIFT)
    }

    /// The link with an entry like `stored` behind it.
    #[inline]
    pub(super) fn with(self, stored: Stored) -> Self {
        Self(self.0 | filter_of(stored.tag))
    }

    /// The overflow bucket it leads to.
    #[inline]
    pub(super) fn number(self) -> Option<u64> {
        (self.0 >> LINK_SHIFT & ((1 << LINK_BITS) - 1)).checked_sub(1)
    }
}

/// A bucket, wherever it is.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'a>(pub(super) &'a [AtomicU64; WORDS]);

impl<'a> Bucket<'a> {
    /// Adds the entries of this hash to `found`. Returns the overflow bucket that may have more.
    #[inline]
    pub(super) fn find(self, hash: u64, found: &mut Found) -> Option<u64> {
        let tag = tag(hash);
        let (low, high) = (self.load(PLACES), self.load(LINK));
        let mut places = places_of(low, high, tag);
        while places != 0 {
            let place =
                ((places.trailing_zeros() >> 4) + 4 * (places.trailing_zeros() & 1)) as usize;
            places &= places - 1;
            let word = self.load(place);
            let is_hit = word >> Entry::BITS == word_bits(hash) >> Entry::BITS;
            if is_hit && word != 0 && self.tag(place) == tag {
                found.push(Entry::from_word(word));
            }
        }
        if high & filter_of(tag) == 0 { None } else { Link(high).number() }
    }

    /// The place of the entry of this hash that has this address.
    #[inline]
    pub(super) fn position(self, hash: u64, address: Address) -> Option<usize> {
        let is_it = |word: u64| {
            word >> Entry::BITS == word_bits(hash) >> Entry::BITS
                && Entry::from_word(word).address() == address
        };
        (0..PLACES).find(|&place| is_it(self.load(place)) && self.tag(place) == tag(hash))
    }

    /// How many entries there are.
    #[inline]
    pub(super) fn len(self) -> usize {
        (0..PLACES).map(|place| usize::from(self.load(place) != 0)).sum()
    }

    /// The entries.
    #[inline]
    pub(super) fn stored(self) -> impl Iterator<Item = Stored> + 'a {
        (0..self.len()).map(move |place| Stored { word: self.load(place), tag: self.tag(place) })
    }

    #[inline]
    pub(super) fn link(self) -> Link {
        Link(self.load(LINK) >> LINK_SHIFT << LINK_SHIFT)
    }

    /// Puts an entry into place `place`, which is empty.
    #[inline]
    pub(super) fn put(self, place: usize, stored: Stored) {
        let (tags, shift) = tag_place(place);
        let others = self.load(tags) & !(0xffff << shift);
        self.store(tags, others | u64::from(stored.tag) << shift);
        self.store(place, stored.word);
    }

    /// Replaces the entry in place `place` by another one of the same hash.
    #[inline]
    pub(super) fn replace(self, place: usize, stored: Stored) {
        debug_assert!(self.load(place) >> Entry::BITS == stored.word >> Entry::BITS);
        self.store(place, stored.word);
    }

    #[inline]
    pub(super) fn set_link(self, link: Link) {
        self.store(LINK, self.load(LINK) & ((1 << LINK_SHIFT) - 1) | link.0);
    }

    /// Makes this all the bucket has; at most six entries.
    #[inline]
    pub(super) fn fill(self, entries: &[Stored], link: Link) {
        let mut words = [0; WORDS];
        words[LINK] = link.0;
        for (place, stored) in entries.iter().enumerate() {
            let (tags, shift) = tag_place(place);
            words[place] = stored.word;
            words[tags] |= u64::from(stored.tag) << shift;
        }
        for (at, &word) in words.iter().enumerate() {
            self.store(at, word);
        }
    }

    #[inline]
    fn tag(self, place: usize) -> u16 {
        let (tags, shift) = tag_place(place);
        (self.load(tags) >> shift) as u16
    }

    #[inline]
    fn load(self, at: usize) -> u64 {
        self.0[at].load(Ordering::Acquire)
    }

    #[inline]
    fn store(self, at: usize, word: u64) {
        self.0[at].store(word, Ordering::Release);
    }
}

/// The word that has the tag of a place, and where in it.
#[inline]
fn tag_place(place: usize) -> (usize, u32) {
    (PLACES + place / 4, 16 * (place as u32 % 4))
}

/// The places whose tag is `tag`: place `p` as bit `16 * (p % 4) + p / 4`.
#[inline]
fn places_of(low: u64, high: u64, tag: u16) -> u64 {
    const LANES: u64 = 0x0001_0001_0001_0001;
    let wanted = LANES * u64::from(tag);
    // The top bit of each lane that is zero. No lane carries into the next one.
    let zero_lanes = |x: u64| !(((x & !(LANES << 15)) + LANES * 0x7fff) | x) & (LANES << 15);
    let (low, high) = (zero_lanes(low ^ wanted), zero_lanes(high ^ wanted) as u32);
    low >> 15 | u64::from(high) >> 14
}
