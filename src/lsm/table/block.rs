//! A data block: entries in order, behind slots, the common prefix of their keys stripped once.
//!
//! ```text
//! entries    one behind the other:
//!              suffix length varint | suffix          the user key without the block's prefix
//!              value length varint | trailer varint | value
//! heads      u32 for each entry: the first four bytes of its suffix, padded with zeros, as a
//!            big-endian number (stored little-endian): heads order like the suffixes
//! slots      u16 or u32 for each entry: where it starts
//! prefix     the common prefix of all user keys
//! tail       count u32 | prefix length u32 | bytes of a slot u8 (2 or 4)
//! ```
//!
//! A search is binary over the heads, which lie in a few cache lines, and touches entries only where
//! heads are equal.
//!
//! Invariants of a parsed block: it has an entry, and heads, slots and prefix lie inside it. All else is
//! checked when it is used, so that a hostile block gives [`Damage`] or false data, and no panic. An entry ends before the
//! next one begins and its key is no longer than one may be, so that who walks over a block of any bytes copies no more than a
//! key for each entry, and the block once.

use std::cmp::Ordering;
use std::ops::Range;

use super::Damage;
use crate::base::{Trailer, varint};
use crate::options::MAX_KEY_LEN;

/// The bytes at the end that say where everything is.
pub(super) const TAIL: usize = 9;

/// The bytes of a head.
pub(super) const HEAD: usize = 4;

/// Where the parts of a block are.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Layout {
    count: usize,
    heads: usize,
    slots: usize,
    prefix: usize,
    prefix_end: usize,
}

impl Layout {
    /// Reads the tail of a block.
    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Damage> {
        Self::locate(bytes).ok_or(Damage("a block's tail does not fit the block"))
    }

    #[inline]
    fn locate(bytes: &[u8]) -> Option<Self> {
        let (body, tail) = bytes.split_last_chunk::<TAIL>()?;
        let [c0, c1, c2, c3, p0, p1, p2, p3, width] = *tail;
        let count = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
        let prefix_len = u32::from_le_bytes([p0, p1, p2, p3]) as usize;
        if count == 0 || prefix_len > MAX_KEY_LEN || !matches!(width, 2 | 4) {
            return None;
        }
        let prefix_end = body.len();
        let prefix = prefix_end.checked_sub(prefix_len)?;
        let slots = prefix.checked_sub(count.checked_mul(usize::from(width))?)?;
        let heads = slots.checked_sub(count.checked_mul(HEAD)?)?;
        Some(Self { count, heads, slots, prefix, prefix_end })
    }

    /// The number of entries, at least 1.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// A block that is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

/// An entry of a block.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    /// The user key behind the block's prefix.
    pub(super) suffix: &'a [u8],
    /// The suffix and all entries' bytes behind it.
    pub(super) from_suffix: &'a [u8],
    pub(super) trailer: Trailer,
    /// Where the value is in the block.
    pub(super) value: Range<usize>,
}

impl<'a> Block<'a> {
    #[inline]
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Damage> {
        Ok(Self { bytes, layout: Layout::parse(bytes)? })
    }

    /// The block in `bytes`, of which `layout` was read.
    #[inline]
    pub(super) fn with_layout(bytes: &'a [u8], layout: Layout) -> Self {
        Self { bytes, layout }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.layout.count
    }

    /// The common prefix of the user keys.
    #[inline]
    pub(super) fn prefix(&self) -> &'a [u8] {
        &self.bytes[self.layout.prefix..self.layout.prefix_end]
    }

    /// The bytes of the entries.
    pub(super) fn entries_len(&self) -> usize {
        self.layout.heads
    }

    pub(super) fn head(&self, index: usize) -> u32 {
        u32::from_le_bytes(self.heads()[index])
    }

    #[inline]
    fn heads(&self) -> &'a [[u8; HEAD]] {
        self.bytes[self.layout.heads..self.layout.slots].as_chunks().0
    }

    /// Where entry `index` starts, as its slot says.
    #[inline]
    pub(super) fn start(&self, index: usize) -> usize {
        let Layout { count, slots, prefix, .. } = self.layout;
        let slots = &self.bytes[slots..prefix];
        if slots.len() == 2 * count {
            usize::from(u16::from_le_bytes(slots.as_chunks().0[index]))
        } else {
            u32::from_le_bytes(slots.as_chunks().0[index]) as usize
        }
    }

    /// Entry `index`, which must be below the count.
    // An entry that is returned through memory is read back in other pieces than it was written in, for which the
    // processor waits.
    #[inline(always)]
    pub(super) fn entry(&self, index: usize) -> Result<Entry<'a>, Damage> {
        let Layout { count, heads, prefix, prefix_end, .. } = self.layout;
        let end = if index + 1 < count { self.start(index + 1) } else { heads };
        let most = MAX_KEY_LEN - (prefix_end - prefix);
        let fits = |entry: &Entry<'_>| entry.value.end <= end && entry.suffix.len() <= most;
        let entry = self.decode(self.start(index)).filter(fits);
        entry.ok_or(Damage("an entry does not fit its block"))
    }

    /// What starts at `start`, as far as it goes.
    #[inline(always)]
    fn decode(&self, start: usize) -> Option<Entry<'a>> {
        let entries = &self.bytes[..self.layout.heads];
        let mut at = start;
        let suffix_len = varint::take_at(entries, &mut at)?;
        let from_suffix = &entries[at..];
        let suffix = from_suffix.get(..usize::try_from(suffix_len).ok()?)?;
        at += suffix.len();
        let value_len = varint::take_at(entries, &mut at)?;
        let trailer = Trailer::from_table_bits(varint::take_at(entries, &mut at)?)?;
        let end = at.checked_add(usize::try_from(value_len).ok()?)?;
        (end <= entries.len()).then_some(Entry { suffix, from_suffix, trailer, value: at..end })
    }

    /// The first entry that is not before `(key, trailer)`; the count if there is none.
    #[inline]
    pub(super) fn lower_bound(&self, key: &[u8], trailer: Trailer) -> Result<usize, Damage> {
        match key.strip_prefix(self.prefix()) {
            Some(suffix) => self.lower_bound_of(suffix, trailer),
            None if key < self.prefix() => Ok(0),
            None => Ok(self.count()),
        }
    }

    /// The newest entry of `key` that is not before `trailer`, if there is one.
    #[inline]
    pub(super) fn find(&self, key: &[u8], trailer: Trailer) -> Result<Option<Entry<'a>>, Damage> {
        let Some(suffix) = key.strip_prefix(self.prefix()) else { return Ok(None) };
        let index = self.lower_bound_of(suffix, trailer)?;
        if index == self.count() {
            return Ok(None);
        }
        let entry = self.entry(index)?;
        if entry.suffix != suffix {
            return Ok(None);
        }
        // What is looked for next would be the same again.
        let is_newer = entry.trailer > trailer;
        if is_newer { Err(Damage("a head is not that of its key")) } else { Ok(Some(entry)) }
    }

    /// The entry that starts at `start`, if it is one of `key`.
    #[inline]
    pub(super) fn entry_of(&self, key: &[u8], start: usize) -> Result<Option<Entry<'a>>, Damage> {
        let Some(suffix) = key.strip_prefix(self.prefix()) else { return Ok(None) };
        let entry = self.decode(start).ok_or(Damage("an entry does not fit its block"))?;
        Ok((entry.suffix == suffix).then_some(entry))
    }

    #[inline]
    fn lower_bound_of(&self, suffix: &[u8], trailer: Trailer) -> Result<usize, Damage> {
        let heads = self.heads();
        let wanted = head(suffix);
        let mut low = heads.partition_point(|&head| u32::from_le_bytes(head) < wanted);
        let equal = |&head: &[u8; HEAD]| u32::from_le_bytes(head) == wanted;
        if !heads.get(low).is_some_and(equal) {
            return Ok(low);
        }
        let mut high = low + 1;
        if heads.get(high).is_some_and(equal) {
            high += heads[high..].partition_point(equal);
        }
        while low < high {
            let middle = low.midpoint(high);
            let entry = self.entry(middle)?;
            match entry.suffix.cmp(suffix).then_with(|| trailer.cmp(&entry.trailer)) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Ok(low)
    }
}

/// The first four bytes of a suffix as a number that orders like it.
#[inline]
pub(super) fn head(suffix: &[u8]) -> u32 {
    if let Some(bytes) = suffix.first_chunk() {
        return u32::from_be_bytes(*bytes);
    }
    let mut bytes = [0; HEAD];
    bytes[..suffix.len()].copy_from_slice(suffix);
    u32::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::block_builder::BlockBuilder;
    use super::super::block_cursor::BlockCursor;
    use super::*;
    use crate::base::Kind;

    fn block(keys: &[&[u8]]) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        for key in keys {
            builder.add(key, Trailer::new(1, Kind::Put), b"v");
        }
        let expected = builder.len();
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        assert!(builder.is_empty() && bytes.len() <= expected);
        bytes
    }

    #[test]
    fn a_tail_that_does_not_fit_is_refused() {
        let whole = block(&[b"key1", b"key2", b"key3"]);
        let tail = whole.len() - TAIL;
        let body = tail as u32 - 3;
        for (count, prefix, width, fits) in [
            (3, 3, 2, true),
            (body / 6, 3, 2, true),
            (body / 6 + 1, 3, 2, false),
            (body / 8 + 1, 3, 4, false),
            (0, 3, 2, false),
            (3, 3, 3, false),
            (3, body + 4, 2, false),
            (u32::MAX, 3, 4, false),
            (3, u32::MAX, 2, false),
        ] {
            let mut bytes = whole.clone();
            bytes[tail..tail + 4].copy_from_slice(&count.to_le_bytes());
            bytes[tail + 4..tail + 8].copy_from_slice(&prefix.to_le_bytes());
            bytes[tail + 8] = width;
            assert_eq!(Block::parse(&bytes).is_ok(), fits, "{count} {prefix} {width}");
        }
        for len in 0..TAIL {
            assert!(Block::parse(&whole[..len]).is_err());
        }
    }

    /// What comes of a walk over all entries.
    fn walk(bytes: Vec<u8>) -> Result<usize, Damage> {
        let mut cursor = BlockCursor::new();
        cursor.set(bytes.into())?;
        cursor.seek_to_first()?;
        let mut entries = 0;
        while cursor.is_valid() {
            entries += 1;
            cursor.next()?;
        }
        Ok(entries)
    }

    #[test]
    fn entries_that_overlap_are_damage() {
        // Each key goes on to one common end: as they are, all together are a quarter of a gigabyte and more.
        let (count, end) = (15_000, 62_000);
        let mut bytes = Vec::new();
        for index in 1..=count {
            varint::put(&mut bytes, end - 3 * index);
        }
        bytes.resize(end as usize, 0);
        varint::put(&mut bytes, 0);
        varint::put(&mut bytes, Trailer::new(1, Kind::Put).bits());
        bytes.resize(bytes.len() + HEAD * count as usize, 0);
        let slots = (0..count as u16).flat_map(|index| (3 * index).to_le_bytes());
        bytes.extend(slots);
        bytes.extend_from_slice(&(count as u32).to_le_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0, 2]);
        assert!(walk(bytes).is_err());
    }

    #[test]
    fn keys_that_are_too_long_are_damage() {
        let key = |len| vec![b'k'; len];
        let two = |len| walk(block(&[b"a", &key(len)]));
        assert_eq!(two(MAX_KEY_LEN), Ok(2));
        assert!(two(MAX_KEY_LEN + 1).is_err());
        let prefixed = |len| walk(block(&[&key(len - 1), &key(len)]));
        assert_eq!(prefixed(MAX_KEY_LEN), Ok(2));
        assert!(prefixed(MAX_KEY_LEN + 1).is_err(), "with the prefix");
        assert!(walk(block(&[&key(MAX_KEY_LEN + 1)])).is_err(), "the prefix alone");
    }

    #[test]
    fn keys_outside_the_prefix_are_placed() {
        let bytes = block(&[b"key1", b"key1\0", b"key1\0\0\0\0\0", b"key3"]);
        let block = Block::parse(&bytes).expect("whole");
        assert_eq!(block.prefix(), b"key");
        let cases: [(&[u8], usize); 9] = [
            (b"", 0),
            (b"kex", 0),
            (b"key", 0),
            (b"key1", 0),
            (b"key1\0\0", 2),
            (b"key2", 3),
            (b"key3\0", 4),
            (b"kez", 4),
            (b"l", 4),
        ];
        for (key, place) in cases {
            assert_eq!(block.lower_bound(key, Trailer::NEWEST), Ok(place));
        }
        assert!(block.find(b"key3", Trailer::OLDEST).is_ok_and(|found| found.is_none()));
        assert!(block.find(b"key1\0", Trailer::NEWEST).is_ok_and(|found| found.is_some()));
    }

    #[test]
    fn a_head_that_is_not_that_of_its_key_is_no_answer() {
        let whole = block(&[b"key"]);
        let find = |bytes: &[u8], seqno| {
            let block = Block::parse(bytes).expect("whole");
            block.find(b"key", Trailer::visible_at(seqno)).map(|found| found.is_some())
        };
        assert_eq!([find(&whole, 0), find(&whole, 1)], [Ok(false), Ok(true)]);
        // With a larger head the entry lies behind all that are looked for, newer or not.
        let at = whole.len() - TAIL - b"key".len() - 2 - HEAD;
        assert_eq!(whole[at..at + HEAD], [0; HEAD]);
        let mut forged = whole;
        forged[at] = 1;
        assert!(find(&forged, 0).is_err());
    }
}
