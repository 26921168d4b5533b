//! What a table says of itself.
//!
//! ```text
//! entries varint | tombstones varint | smallest seqno varint | largest seqno varint
//! key bytes varint | value bytes varint
//! smallest key, its length in front as varint | largest key, likewise
//! codec u8: of the data blocks that are compressed; 0 if none is. Not in version 1
//! ranges varint: how many range tombstones there are. Only in version 3
//! ```

use super::footer::WITHOUT_RANGES;
use super::{Damage, ranges};
use crate::base::key::MAX_SEQNO;
use crate::base::{Fragments, Kind, Seqno, Trailer, varint};
use crate::codec::Codec;

/// What a table holds, counted when it was written. All is zero or empty in a table that holds nothing. Keys and numbers from the
/// smallest to the largest are those of entries and of range tombstones.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Properties {
    /// The number of entries, tombstones among them; range tombstones are none.
    pub(crate) entries: u64,
    /// How many of them are tombstones.
    pub(crate) tombstones: u64,
    pub(crate) smallest_seqno: Seqno,
    pub(crate) largest_seqno: Seqno,
    /// The bytes of all user keys, before anything is stripped.
    pub(crate) key_bytes: u64,
    /// The bytes of all values.
    pub(crate) value_bytes: u64,
    /// The smallest user key, or the first that a range tombstone covers.
    pub(crate) smallest: Vec<u8>,
    /// The largest user key, or one that is not below any that a range tombstone covers.
    pub(crate) largest: Vec<u8>,
    /// How the data blocks that are compressed were.
    pub(crate) codec: Option<Codec>,
    /// How many range tombstones there are, each counted for each piece of its range.
    pub(crate) ranges: u64,
}

impl Properties {
    /// Counts an entry. The largest key is set by whoever sees the last one.
    #[inline]
    pub(super) fn count(&mut self, key: &[u8], trailer: Trailer, value_len: usize) {
        if self.entries == 0 {
            self.begin(key);
        }
        self.count_next(key.len(), trailer, value_len);
    }

    /// The first entry, which is not counted yet, is one of `key`.
    pub(super) fn begin(&mut self, key: &[u8]) {
        self.smallest = key.to_vec();
        self.smallest_seqno = MAX_SEQNO;
    }

    /// Counts an entry that is not the first, or one that was told of.
    #[inline]
    pub(super) fn count_next(&mut self, key_len: usize, trailer: Trailer, value_len: usize) {
        self.entries += 1;
        self.tombstones += u64::from(trailer.kind() == Kind::Delete);
        self.smallest_seqno = self.smallest_seqno.min(trailer.seqno());
        self.largest_seqno = self.largest_seqno.max(trailer.seqno());
        self.key_bytes += key_len as u64;
        self.value_bytes += value_len as u64;
    }

    /// Counts the range tombstones of the table. All entries have been counted.
    pub(super) fn cover(&mut self, fragments: &Fragments) {
        let pieces = || fragments.iter();
        let (Some(first), Some(last)) = (pieces().next(), pieces().next_back()) else { return };
        let smallest = first.start.to_vec();
        // A start may lie behind all keys there are.
        let largest = ranges::last_below(last.end).max(last.start.to_vec());
        let numbers = fragments.seqnos().iter().copied();
        let (oldest, newest) = (numbers.clone().min(), numbers.max().unwrap_or(0));
        let is_empty = self.entries == 0;
        if is_empty || smallest < self.smallest {
            self.smallest = smallest;
        }
        self.largest = largest.max(std::mem::take(&mut self.largest));
        let oldest = oldest.unwrap_or(0);
        self.smallest_seqno = if is_empty { oldest } else { oldest.min(self.smallest_seqno) };
        self.largest_seqno = newest.max(self.largest_seqno);
        self.ranges = fragments.seqnos().len() as u64;
    }

    /// Whether range tombstones are those that it counts, and lie in its range of keys and numbers.
    pub(super) fn fits(&self, fragments: &Fragments) -> bool {
        let mut own = Self { ranges: 0, ..self.clone() };
        own.cover(fragments);
        own == *self
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let numbers = [
            self.entries,
            self.tombstones,
            self.smallest_seqno,
            self.largest_seqno,
            self.key_bytes,
            self.value_bytes,
        ];
        for number in numbers {
            varint::put(&mut out, number);
        }
        varint::put_prefixed(&mut out, &self.smallest);
        varint::put_prefixed(&mut out, &self.largest);
        out.push(self.codec.map_or(0, |codec| codec as u8));
        if self.ranges > 0 {
            varint::put(&mut out, self.ranges);
        }
        out
    }

    /// Reads what a table of a format version says of itself.
    pub(super) fn decode(mut bytes: &[u8], version: u32) -> Result<Self, Damage> {
        Self::take(&mut bytes, version)
            .filter(|properties| bytes.is_empty() && properties.is_plausible())
            .ok_or(Damage("the properties are malformed"))
    }

    fn take(rest: &mut &[u8], version: u32) -> Option<Self> {
        Some(Self {
            entries: varint::take(rest)?,
            tombstones: varint::take(rest)?,
            smallest_seqno: varint::take(rest)?,
            largest_seqno: varint::take(rest)?,
            key_bytes: varint::take(rest)?,
            value_bytes: varint::take(rest)?,
            smallest: varint::take_prefixed(rest)?.to_vec(),
            largest: varint::take_prefixed(rest)?.to_vec(),
            codec: if version == 1 { None } else { take_codec(rest)? },
            ranges: if version <= WITHOUT_RANGES { 0 } else { varint::take(rest)? },
        })
    }

    fn is_plausible(&self) -> bool {
        self.tombstones <= self.entries
            && self.smallest_seqno <= self.largest_seqno
            && self.largest_seqno <= MAX_SEQNO
            && self.smallest <= self.largest
    }
}

fn take_codec(rest: &mut &[u8]) -> Option<Option<Codec>> {
    let (&byte, behind) = rest.split_first()?;
    *rest = behind;
    if byte == 0 { Some(None) } else { Codec::of(byte).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let mut properties = Properties::default();
        assert_eq!(Properties::decode(&properties.encode(), 2), Ok(properties.clone()));
        properties.count(b"a", Trailer::new(7, Kind::Delete), 0);
        properties.count(b"bb", Trailer::new(3, Kind::Put), 10);
        properties.largest = b"bb".to_vec();
        assert_eq!((properties.smallest_seqno, properties.largest_seqno), (3, 7));
        assert_eq!((properties.entries, properties.tombstones), (2, 1));
        assert_eq!((properties.key_bytes, properties.value_bytes), (3, 10));
        let mut bytes = properties.encode();
        assert_eq!(Properties::decode(&bytes[..bytes.len() - 1], 1), Ok(properties.clone()));
        for (byte, codec) in [(1, Codec::Lz4), (2, Codec::Snappy), (3, Codec::Zstd)] {
            properties.codec = Some(codec);
            bytes = properties.encode();
            assert_eq!(bytes.last(), Some(&byte));
            assert_eq!(Properties::decode(&bytes, 2), Ok(properties.clone()));
        }
        for cut in 0..bytes.len() {
            assert!(Properties::decode(&bytes[..cut], 2).is_err());
        }
        *bytes.last_mut().expect("a codec") = 4;
        assert!(Properties::decode(&bytes, 2).is_err());
        properties.largest.clear();
        assert!(Properties::decode(&properties.encode(), 2).is_err());
    }
}
