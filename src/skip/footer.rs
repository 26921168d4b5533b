//! The footer: the last bytes of a sorted file, by which it is opened.
//!
//! ```text
//! offset  size
//!      0     8  magic "TBD-SKP\n"
//!      8     4  format version
//!     12     1  step unit
//!     13     1  max level
//!     14     1  1 if records have trailers
//!     15     1  zero
//!     16     8  records
//!     24     8  tombstones among them
//!     32     8  bytes of keys and values
//!     40     8  blocks
//!     48     8  blocks of links
//!     56     8  where the block is that leads to those
//!     64     4  its bytes; the footer follows
//!     68     4  checksum of bytes 0..68, bound to (identity of the file, offset of the footer)
//! ```

use std::path::Path;

use super::writer::Shape;
use crate::base::checksum;
use crate::error::{Error, Result};

const MAGIC: [u8; 8] = *b"TBD-SKP\n";
const VERSION: u32 = 1;

/// What a file says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Footer {
    pub(super) shape: Shape,
    pub(super) records: u64,
    pub(super) tombstones: u64,
    /// Bytes of keys and values.
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) link_blocks: u64,
    pub(super) top: u64,
    pub(super) top_len: u32,
}

impl Footer {
    pub(super) const LEN: usize = 72;

    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            records: 0,
            tombstones: 0,
            bytes: 0,
            blocks: 0,
            link_blocks: 0,
            top: 0,
            top_len: 0,
        }
    }

    pub(super) fn encode(&self, identity: u64, offset: u64) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let Shape { step_unit, max_level, has_trailers } = self.shape;
        out[12..15].copy_from_slice(&[step_unit as u8, max_level as u8, u8::from(has_trailers)]);
        let numbers =
            [self.records, self.tombstones, self.bytes, self.blocks, self.link_blocks, self.top];
        for (at, number) in out[16..64].chunks_exact_mut(8).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        out[64..68].copy_from_slice(&self.top_len.to_le_bytes());
        let sum = checksum::bound(identity, offset, &out[..68]);
        out[68..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// The footer in `bytes`, which lie at `offset` in the file.
    pub(super) fn decode(
        bytes: &[u8; Self::LEN],
        path: &Path,
        identity: u64,
        offset: u64,
    ) -> Result<Self> {
        let damaged = |what: &str| Err(Error::corruption(path, offset, what));
        let long = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let number =
            |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| bytes[at + i]));
        if bytes[..8] != MAGIC {
            return damaged("the footer is not one of a sorted file");
        }
        if long(8) > VERSION {
            let (file, found) = (path.to_path_buf(), long(8));
            return Err(Error::NewerFormat { file, found, supported: VERSION });
        }
        if !checksum::matches(long(68), checksum::bound(identity, offset, &bytes[..68])) {
            return damaged("the footer's checksum does not match");
        }
        let shape = Shape {
            step_unit: u32::from(bytes[12]),
            max_level: u32::from(bytes[13]),
            has_trailers: bytes[14] == 1,
        };
        let footer = Self {
            shape,
            records: number(16),
            tombstones: number(24),
            bytes: number(32),
            blocks: number(40),
            link_blocks: number(48),
            top: number(56),
            top_len: long(64),
        };
        let is_possible = long(8) == VERSION
            && (2..=64).contains(&shape.step_unit)
            && shape.max_level <= 12
            && bytes[14] <= 1
            && bytes[15] == 0
            && footer.blocks <= footer.records
            && footer.link_blocks <= footer.blocks
            && (footer.blocks == 0) == (footer.records == 0)
            && (footer.link_blocks == 0) == (footer.records == 0)
            && footer.top.checked_add(u64::from(footer.top_len)) == Some(offset);
        if is_possible { Ok(footer) } else { damaged("the footer says what cannot be") }
    }
}
