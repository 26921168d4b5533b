//! Records: one write of one key, as it lies in a segment.
//!
//! ```text
//! unit (8 bytes)
//!   0   checksum u32 of all that follows, bound to (identity of the segment, offset); in memory a version
//!       shape u32: key length in bits 0..8, value length in bits 8..30, dead in bit 30, long in bit 31
//!   1   sequence number and kind
//!  (2)  only if long: key length u32, value length u32
//!   .   key, value, zeros up to a whole unit
//! ```
//! All integers are little-endian. A record is long if its lengths do not fit the shape, whose lengths are
//! then zero. A dead record is one that another one of the same segment has superseded; it only fills space.

use std::ops::Range;

use crate::base::{Kind, Trailer};
use crate::options::{MAX_KEY_LEN, MAX_VALUE_LEN};

/// Bytes in a unit: records begin and end at whole units.
pub(crate) const UNIT: usize = 8;
/// The units that every record has at least.
pub(crate) const FRONT_UNITS: usize = 2;
const KEY_BITS: u32 = 8;
const VALUE_BITS: u32 = 22;
const DEAD: u32 = 1 << 30;
const LONG: u32 = 1 << 31;

/// How long the parts of a record are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lengths {
    pub(crate) key: usize,
    pub(crate) value: usize,
}

impl Lengths {
    fn is_long(self) -> bool {
        self.key >> KEY_BITS > 0 || self.value >> VALUE_BITS > 0
    }

    /// Units in front of the key.
    fn front(self) -> usize {
        FRONT_UNITS + usize::from(self.is_long())
    }

    /// The units of the whole record.
    pub(crate) fn units(self) -> usize {
        self.front() + (self.key + self.value).div_ceil(UNIT)
    }

    /// Where the key is, in bytes from the start of the record.
    pub(crate) fn key_range(self) -> Range<usize> {
        let start = self.front() * UNIT;
        start..start + self.key
    }

    /// Where the value is.
    pub(crate) fn value_range(self) -> Range<usize> {
        let start = self.key_range().end;
        start..start + self.value
    }
}

/// The first units of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Front {
    pub(crate) lengths: Lengths,
    pub(crate) trailer: Trailer,
    pub(crate) is_dead: bool,
}

impl Front {
    /// The first two or three units; the checksum is left zero.
    pub(crate) fn units(&self) -> ([u64; 3], usize) {
        let Lengths { key, value } = self.lengths;
        let dead = if self.is_dead { DEAD } else { 0 };
        let trailer = self.trailer.bits();
        if self.lengths.is_long() {
            let lengths = key as u64 | (value as u64) << 32;
            ([u64::from(LONG | dead) << 32, trailer, lengths], 3)
        } else {
            let shape = key as u32 | (value as u32) << KEY_BITS | dead;
            ([u64::from(shape) << 32, trailer, 0], 2)
        }
    }

    /// Reads the first units of a record; `None` if they cannot be those of one. The third one is looked at
    /// only if the record is long.
    pub(crate) fn from_units(first: u64, second: u64, third: impl FnOnce() -> u64) -> Option<Self> {
        let shape = (first >> 32) as u32;
        let lengths = if shape & LONG == 0 {
            let key = shape & ((1 << KEY_BITS) - 1);
            let value = shape >> KEY_BITS & ((1 << VALUE_BITS) - 1);
            Lengths { key: key as usize, value: value as usize }
        } else {
            let third = third();
            let lengths = Lengths { key: third as u32 as usize, value: (third >> 32) as usize };
            let valid = lengths.is_long() && shape & !(LONG | DEAD) == 0;
            if !valid || lengths.key > MAX_KEY_LEN || lengths.value > MAX_VALUE_LEN {
                return None;
            }
            lengths
        };
        let trailer = Trailer::from_bits(second)?;
        let is_dead = shape & DEAD != 0;
        (trailer.kind() == Kind::Put || lengths.value == 0).then_some(Self {
            lengths,
            trailer,
            is_dead,
        })
    }

    /// Reads the front of the record at the start of `bytes`; `None` if there is none, or not all of it.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let unit = |index: usize| {
            let bytes = bytes.get(index * UNIT..(index + 1) * UNIT)?;
            Some(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
        };
        let (first, second) = (unit(0)?, unit(1)?);
        if first >> 63 == 1 && bytes.len() < 3 * UNIT {
            return None;
        }
        Self::from_units(first, second, || unit(2).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fronts_round_trip() {
        let trailer = Trailer::new(77, Kind::Put);
        for key in [0, 1, 255, 256, MAX_KEY_LEN] {
            for value in [0, 1, (1 << 22) - 1, 1 << 22, MAX_VALUE_LEN] {
                for is_dead in [false, true] {
                    let front = Front { lengths: Lengths { key, value }, trailer, is_dead };
                    let (units, count) = front.units();
                    let bytes: Vec<u8> =
                        units[..count].iter().flat_map(|u| u.to_le_bytes()).collect();
                    assert_eq!(Front::parse(&bytes), Some(front));
                    assert_eq!(Front::parse(&bytes[..bytes.len() - 1]), None);
                    assert_eq!(
                        front.lengths.value_range().end.div_ceil(UNIT),
                        front.lengths.units()
                    );
                }
            }
        }
    }

    #[test]
    fn impossible_fronts_are_refused() {
        let put = Trailer::new(1, Kind::Put).bits();
        let parse = |first, second, third| Front::from_units(first, second, || third);
        assert_eq!(parse(0, 9, 0), None, "an unknown kind");
        assert_eq!(parse(1 << 63, put, 1), None, "long without need");
        assert_eq!(parse(1 << 63, put, (MAX_KEY_LEN + 1) as u64), None);
        assert_eq!(parse(1 << 63, put, 300 | (MAX_VALUE_LEN as u64 + 1) << 32), None);
        let tombstone = Trailer::new(1, Kind::Delete).bits();
        assert_eq!(parse(1 << 40 << 8, tombstone, 0), None, "a tombstone with a value");
    }
}
