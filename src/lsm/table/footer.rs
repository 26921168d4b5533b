//! The last bytes of a table: where its parts are, whose it is, and that it is a table.
//!
//! ```text
//!  0  data length       u64     the data blocks, from the start of the file
//!  8  index length      u64     the parts follow each other without gaps, each with its
//! 16  filter length     u64       stored trailer; a filter of length 0 is absent
//! 24  properties length u64
//! 32  identity          u64
//! 40  checksum          u32     crc32c of all other bytes of the footer, bound to the identity and
//!                                 the footer's offset
//! 44  version           u32
//! 48  magic             8 bytes
//! ```
//!
//! The version and the magic stand last, so that they are found whatever a later version puts in front.

use std::path::Path;

use crate::base::checksum;
use crate::error::{Error, Result};

/// The newest format version that is read, and the one that is written.
const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"TURBtbl\x1a";

/// The lengths of a table's parts, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Footer {
    pub(super) data: u64,
    pub(super) index: u64,
    pub(super) filter: u64,
    pub(super) properties: u64,
}

impl Footer {
    /// The footer's own bytes.
    pub(super) const LEN: usize = 56;

    /// The bytes of the footer of a table of this identity.
    pub(super) fn encode(&self, identity: u64) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let numbers = [self.data, self.index, self.filter, self.properties, identity];
        for (at, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *at = number.to_le_bytes();
        }
        bytes[44..48].copy_from_slice(&VERSION.to_le_bytes());
        bytes[48..].copy_from_slice(&MAGIC);
        let offset = self.data + self.index + self.filter + self.properties;
        let sum = sum_of(&bytes, identity, offset);
        bytes[40..44].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads and checks the footer that stands at `offset` of `file`.
    pub(super) fn decode(
        bytes: &[u8; Self::LEN],
        file: &Path,
        identity: u64,
        offset: u64,
    ) -> Result<Self> {
        let damaged = |what| Err(Error::corruption(file, offset, what));
        let (numbers, _) = bytes.as_chunks::<8>();
        let [data, index, filter, properties, named] =
            std::array::from_fn(|i| u64::from_le_bytes(numbers[i]));
        let [sum, version] = std::array::from_fn(|i| {
            u32::from_le_bytes(std::array::from_fn(|byte| bytes[40 + 4 * i + byte]))
        });
        if bytes[48..] != MAGIC {
            return damaged("the file does not end like a table");
        }
        if version > VERSION {
            let file = file.to_path_buf();
            return Err(Error::NewerFormat { file, found: version, supported: VERSION });
        }
        if sum != sum_of(bytes, identity, offset) || version != VERSION {
            return damaged("the footer's checksum does not match, or it is another table's");
        }
        let footer = Self { data, index, filter, properties };
        if named != identity || footer.parts_len() != Some(offset) {
            return damaged("the footer does not fit the file");
        }
        Ok(footer)
    }

    /// Gives bytes the checksum that a footer has.
    #[cfg(any(test, fuzzing))]
    pub(super) fn seal(bytes: &mut [u8; Self::LEN], identity: u64, offset: u64) {
        let sum = sum_of(bytes, identity, offset);
        bytes[40..44].copy_from_slice(&sum.to_le_bytes());
    }

    /// The bytes in front of the footer, if a file can have as many.
    pub(super) fn parts_len(&self) -> Option<u64> {
        self.data.checked_add(self.index)?.checked_add(self.filter)?.checked_add(self.properties)
    }
}

/// The checksum of all bytes but those of the checksum itself.
fn sum_of(bytes: &[u8; Footer::LEN], identity: u64, offset: u64) -> u32 {
    let mut covered = *bytes;
    covered[40..44].fill(0);
    checksum::bound(identity, offset, &covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_every_flip() {
        let footer = Footer { data: 1000, index: 20, filter: 0, properties: 30 };
        let bytes = footer.encode(9);
        let decode = |bytes: &[u8; Footer::LEN], identity, offset| {
            Footer::decode(bytes, Path::new("t"), identity, offset)
        };
        assert_eq!(decode(&bytes, 9, 1050).expect("whole"), footer);
        assert!(decode(&bytes, 8, 1050).is_err());
        assert!(decode(&bytes, 9, 1051).is_err());
        for bit in 0..8 * Footer::LEN {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad, 9, 1050).is_err(), "bit {bit}");
        }
        let mut named = bytes;
        named[32] ^= 1;
        Footer::seal(&mut named, 9, 1050);
        assert!(decode(&named, 9, 1050).is_err());
        let mut newer = bytes;
        newer[44] = 2;
        let error = decode(&newer, 9, 1050).expect_err("newer");
        assert!(matches!(error, Error::NewerFormat { found: 2, supported: 1, .. }));
    }
}
