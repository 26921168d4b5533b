//! The last bytes of a table: where its parts are, whose it is, and that it is a table.
//!
//! ```text
//!  0  lengths           7 x u64  of the parts, as stored, in the order of the file: data blocks, index, filter,
//!                                  properties, dictionary, points, ranges. They follow each other without gaps. A filter,
//!                                  dictionary, points or ranges of length 0 are absent
//! 56  identity          u64
//! 64  checksum          u32      crc32c of all other bytes of the footer, bound to the identity and the footer's offset
//! 68  version           u32
//! 72  magic             8 bytes
//! ```
//!
//! Version 2 has the first six lengths only, and version 1 the first four; else they are the same. A table without range
//! tombstones is written in version 2, so that whoever can read it does.
//!
//! The version and the magic stand last, so that they are found whatever a later version puts in front.

use std::ops::Range;
use std::path::Path;

use crate::base::checksum;
use crate::error::{Error, Result};

/// The newest format version that is read.
const VERSION: u32 = 3;

/// The version of tables without range tombstones.
pub(super) const WITHOUT_RANGES: u32 = 2;

const MAGIC: [u8; 8] = *b"TURBtbl\x1a";

/// The bytes behind the lengths.
const END: usize = 24;

/// The parts of a table, in the order of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Data,
    Index,
    Filter,
    Properties,
    Dictionary,
    Points,
    Ranges,
}

/// How many parts there are.
const PARTS: usize = 7;

/// How many parts tables of a version have.
fn parts_of(version: u32) -> usize {
    match version {
        1 => 4,
        WITHOUT_RANGES => 6,
        _ => PARTS,
    }
}

/// The lengths of a table's parts, in bytes, and its format version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Footer {
    pub(super) version: u32,
    lengths: [u64; PARTS],
}

impl Footer {
    /// The most bytes of a footer.
    pub(super) const LEN: usize = PARTS * 8 + END;

    /// A footer of parts without bytes.
    pub(super) fn new() -> Self {
        Self { version: WITHOUT_RANGES, lengths: [0; PARTS] }
    }

    /// Sets the length of a part.
    pub(super) fn set(&mut self, part: Part, len: u64) {
        self.lengths[part as usize] = len;
        if part == Part::Ranges && len > 0 {
            self.version = VERSION;
        }
    }

    /// Where a part is in the file.
    pub(super) fn range(&self, part: Part) -> Range<u64> {
        let start = self.lengths[..part as usize].iter().sum();
        start..start + self.lengths[part as usize]
    }

    /// The footer's bytes in a table of this identity.
    pub(super) fn encode(&self, identity: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LEN);
        for length in &self.lengths[..parts_of(self.version)] {
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        bytes.extend_from_slice(&identity.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&MAGIC);
        let offset = self.lengths.iter().sum();
        let sum = sum_of(&bytes, identity, offset);
        let at = bytes.len() - 16;
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads and checks the footer that `bytes`, the last of `file`, which has `len`, end with.
    pub(super) fn decode(bytes: &[u8], file: &Path, identity: u64, len: u64) -> Result<Self> {
        let damaged = |what| Err(Error::corruption(file, len, what));
        let Some((front, magic)) = bytes.split_last_chunk::<8>() else {
            return damaged("the footer is cut off");
        };
        if *magic != MAGIC {
            return damaged("the file does not end like a table");
        }
        let version = u32_at_end(front);
        if version > VERSION {
            let file = file.to_path_buf();
            return Err(Error::NewerFormat { file, found: version, supported: VERSION });
        }
        let own = parts_of(version) * 8 + END;
        let Some(start) = bytes.len().checked_sub(own) else {
            return damaged("the footer is cut off");
        };
        let (bytes, offset) = (&bytes[start..], len - own as u64);
        let (sum, expected) = (u32_at_end(&bytes[..own - 12]), sum_of(bytes, identity, offset));
        if !checksum::matches(sum, expected) || version == 0 {
            return damaged("the footer's checksum does not match, or it is another table's");
        }
        let numbers: Vec<u64> =
            bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let mut footer = Self { version, lengths: [0; PARTS] };
        footer.lengths[..parts_of(version)].copy_from_slice(&numbers[..parts_of(version)]);
        if numbers[parts_of(version)] != identity || footer.parts_len() != Some(offset) {
            return damaged("the footer does not fit the file");
        }
        Ok(footer)
    }

    /// Gives bytes the checksum that a footer has.
    #[cfg(any(test, fuzzing))]
    pub(super) fn seal(bytes: &mut [u8], identity: u64, offset: u64) {
        let sum = sum_of(bytes, identity, offset);
        let at = bytes.len() - 16;
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// The bytes in front of the footer, if a file can have as many.
    pub(super) fn parts_len(&self) -> Option<u64> {
        self.lengths.iter().try_fold(0u64, |sum, &len| sum.checked_add(len))
    }
}

/// The number that the bytes, at least four, end with.
fn u32_at_end(bytes: &[u8]) -> u32 {
    bytes.last_chunk().map_or(0, |number| u32::from_le_bytes(*number))
}

/// The checksum of all bytes of a footer but those of the checksum itself.
fn sum_of(bytes: &[u8], identity: u64, offset: u64) -> u32 {
    let mut covered = bytes.to_vec();
    let at = covered.len() - 16;
    covered[at..at + 4].fill(0);
    checksum::bound(identity, offset, &covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], identity: u64, len: u64) -> Result<Footer> {
        Footer::decode(bytes, Path::new("t"), identity, len)
    }

    #[test]
    fn round_trip_and_every_flip() {
        for version in [1, 2, 3] {
            let mut footer = Footer { version, ..Footer::new() };
            footer.set(Part::Data, 1000);
            footer.set(Part::Index, 20);
            footer.set(Part::Properties, 30);
            let bytes = footer.encode(9);
            assert_eq!(bytes.len(), [56, 72, Footer::LEN][version as usize - 1]);
            let len = 1050 + bytes.len() as u64;
            let longer = [&[7; 5][..], &bytes].concat();
            for bytes in [&bytes, &longer] {
                assert_eq!(decode(bytes, 9, len).expect("whole"), footer);
                assert!(decode(bytes, 8, len).is_err());
                assert!(decode(bytes, 9, len + 1).is_err());
            }
            assert_eq!(footer.range(Part::Properties), 1020..1050);
            for cut in 1..bytes.len() {
                assert!(decode(&bytes[cut..], 9, len).is_err());
            }
            for bit in 0..8 * bytes.len() {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&bad, 9, len).is_err(), "bit {bit}");
            }
            let mut named = bytes.clone();
            let at = bytes.len() - END;
            named[at] ^= 1;
            let sum = sum_of(&named, 9, 1050);
            named[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
            assert!(decode(&named, 9, len).is_err());
            let mut newer = bytes;
            newer[at + 12] = 4;
            let error = decode(&newer, 9, len).expect_err("newer");
            assert!(matches!(error, Error::NewerFormat { found: 4, supported: 3, .. }));
        }
    }
}
