//! How a part of a table (a data block, the index, the filter...) stands in the file.
//!
//! ```text
//! bytes | codec u8 | crc32c u32        the checksum covers the bytes and the codec, and is bound to
//!                                      the table's identity and the offset of the bytes
//! ```
//!
//! Codec 0: the bytes stand as they are. Others only data blocks have, and one and the same in all of a table:
//!
//! ```text
//! plain length u32 | compressed bytes | codec u8 | crc32c u32        codec 1 LZ4, 2 Snappy, 3 Zstandard
//! ```
//!
//! The checksum is checked before anything is decompressed, and the plain length before memory is taken for it.

use super::Damage;
use crate::base::checksum;
use crate::codec::{Codec, Compress, Decompress};
use crate::error::Result;
use crate::planted::{Bug, planted};

/// The bytes behind the part's own.
pub(super) const TRAILER: usize = 5;

/// The bytes of the checksum.
const CHECKSUM: usize = 4;

/// The bytes stand as they are.
const PLAIN: u8 = 0;

/// The bytes of the plain length.
const LENGTH: usize = 4;

/// Larger blocks are stored as they are: this bounds the memory that a compressed block can ask for.
pub(super) const MAX_COMPRESSED: usize = 16 << 20;

/// Appends to a part, the whole of `part`, what makes it a stored one at `offset`.
pub(super) fn seal(part: &mut Vec<u8>, identity: u64, offset: u64) {
    seal_as(PLAIN, part, identity, offset);
}

fn seal_as(codec: u8, part: &mut Vec<u8>, identity: u64, offset: u64) {
    part.push(codec);
    let sum = checksum::bound(identity, offset, part);
    part.extend_from_slice(&sum.to_le_bytes());
}

/// The part's own bytes of a stored part that is not compressed.
#[inline]
pub(super) fn content(stored: &[u8]) -> Result<&[u8], Damage> {
    let len = stored.len().checked_sub(TRAILER).ok_or(Damage("a part is cut off"))?;
    if stored[len] != PLAIN {
        return Err(Damage("unknown codec"));
    }
    Ok(&stored[..len])
}

/// The stored part as it is to stand in another table, at `offset`. It was checked.
pub(super) fn rebind(stored: &[u8], identity: u64, offset: u64, into: &mut Vec<u8>) {
    let covered = &stored[..stored.len() - CHECKSUM];
    into.clear();
    into.extend_from_slice(covered);
    let sum = checksum::bound(identity, offset, covered);
    into.extend_from_slice(&sum.to_le_bytes());
}

/// How a stored part is compressed; `None` if it is not, or not in a way that is known.
pub(super) fn codec_of(stored: &[u8]) -> Option<Codec> {
    let at = stored.len().checked_sub(TRAILER)?;
    Codec::of(stored[at])
}

/// Checks a stored part, read from `offset`, against its checksum.
pub(super) fn check(stored: &[u8], identity: u64, offset: u64) -> Result<(), Damage> {
    let Some((covered, sum)) = stored.split_last_chunk::<4>() else {
        return Err(Damage("a part is cut off"));
    };
    let is_whole =
        checksum::matches(u32::from_le_bytes(*sum), checksum::bound(identity, offset, covered));
    if !is_whole && !planted(Bug::IgnoreBlockChecksum) {
        return Err(Damage("a checksum does not match"));
    }
    Ok(())
}

/// Compresses the blocks of a table that is written.
#[derive(Debug)]
pub(super) struct Packer {
    codec: Codec,
    compressor: Box<dyn Compress>,
    /// The block being sealed; kept for its memory.
    packed: Vec<u8>,
}

impl Packer {
    /// # Errors
    /// `Unsupported` if the codec was not compiled in.
    pub(super) fn new(codec: Codec, level: u8, dictionary: &[u8]) -> Result<Self> {
        let compressor = codec.compressor(level, dictionary)?;
        Ok(Self { codec, compressor, packed: Vec::new() })
    }

    pub(super) fn codec(&self) -> Codec {
        self.codec
    }

    /// The stored form of a block at `offset`, and how it was compressed, if it is smaller by an eighth at least.
    pub(super) fn pack(
        &mut self,
        block: &[u8],
        identity: u64,
        offset: u64,
    ) -> Option<(&[u8], Codec)> {
        if block.len() > MAX_COMPRESSED {
            return None;
        }
        self.packed.clear();
        self.packed.extend_from_slice(&(block.len() as u32).to_le_bytes());
        let is_done = self.compressor.compress(block, &mut self.packed);
        if !is_done || self.packed.len() > block.len() - block.len() / 8 {
            return None;
        }
        seal_as(self.codec as u8, &mut self.packed, identity, offset);
        Some((&self.packed, self.codec))
    }

    /// Gives memory above `most` bytes back; for after a huge entry.
    pub(super) fn shrink(&mut self, most: usize) {
        self.packed.clear();
        self.packed.shrink_to(most);
    }
}

/// Decompresses the blocks of a table that is read.
#[derive(Debug)]
pub(super) struct Unpacker {
    codec: Codec,
    decompressor: Box<dyn Decompress>,
}

impl Unpacker {
    /// `None` if the bytes are no dictionary.
    ///
    /// # Errors
    /// `Unsupported` if the codec was not compiled in.
    pub(super) fn new(codec: Codec, dictionary: &[u8]) -> Result<Option<Self>> {
        let decompressor = codec.decompressor(dictionary)?;
        Ok(decompressor.map(|decompressor| Self { codec, decompressor }))
    }

    /// The stored form that a block, which was checked, would have if it were not compressed, but for the checksum;
    /// `None` if it is not compressed.
    pub(super) fn unpack(this: Option<&Self>, stored: &[u8]) -> Result<Option<Vec<u8>>, Damage> {
        let end = stored.len().checked_sub(TRAILER).ok_or(Damage("a part is cut off"))?;
        if stored[end] == PLAIN {
            return Ok(None);
        }
        let known = this.filter(|unpacker| unpacker.codec as u8 == stored[end]);
        let unpacker = known.ok_or(Damage("unknown codec"))?;
        let (len, packed) =
            stored[..end].split_first_chunk::<LENGTH>().ok_or(Damage("a block is cut off"))?;
        let len = u32::from_le_bytes(*len) as usize;
        if len > MAX_COMPRESSED {
            return Err(Damage("a compressed block is too large"));
        }
        let mut plain = vec![PLAIN; len + TRAILER];
        match unpacker.decompressor.decompress(packed, &mut plain[..len]) {
            true => Ok(Some(plain)),
            false => Err(Damage("a block cannot be decompressed")),
        }
    }

    /// The bytes of memory that it keeps.
    pub(super) fn memory(&self) -> usize {
        self.decompressor.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_and_nothing_else_does() {
        let mut part = b"bytes".to_vec();
        seal(&mut part, 7, 100);
        check(&part, 7, 100).expect("whole");
        assert_eq!(content(&part), Ok(&b"bytes"[..]));
        assert!(check(&part, 8, 100).is_err());
        assert!(check(&part, 7, 101).is_err());
        for i in 0..part.len() {
            let mut bad = part.clone();
            bad[i] ^= 1;
            assert!(check(&bad, 7, 100).is_err());
            assert!(check(&part[..i], 7, 100).is_err());
        }
        part[5] = 1;
        assert_eq!(content(&part), Err(Damage("unknown codec")));
        assert!(content(&part[..4]).is_err());
    }

    #[test]
    fn a_block_is_packed_if_it_gets_smaller_by_an_eighth() {
        let mut packer = Packer::new(Codec::Lz4, 0, b"").unwrap();
        let mut rng = crate::base::rng::Rng::new(1);
        let noise: Vec<u8> = (0..1000).map(|_| rng.next() as u8).collect();
        assert!(packer.pack(&noise, 7, 100).is_none() && packer.pack(b"", 7, 100).is_none());
        let hardly = [&noise[..], &[0; 100]].concat();
        assert!(packer.pack(&hardly, 7, 100).is_none());
        assert!(packer.pack(&vec![0; MAX_COMPRESSED + 1], 7, 100).is_none());
        let enough = [&noise[..], &[0; 200]].concat();
        let stored = packer.pack(&enough, 7, 100).expect("smaller").0.to_vec();
        check(&stored, 7, 100).expect("whole");
        assert!(content(&stored).is_err());
        let unpacker = Unpacker::new(Codec::Lz4, b"").unwrap();
        let plain = Unpacker::unpack(unpacker.as_ref(), &stored).expect("whole").expect("packed");
        assert_eq!(content(&plain), Ok(&enough[..]));
        assert_eq!(Unpacker::unpack(unpacker.as_ref(), &plain), Ok(None));
        assert_eq!(Unpacker::unpack(None, &stored), Err(Damage("unknown codec")));
        for len in [0, 999, 1201, MAX_COMPRESSED as u32 + 1, u32::MAX] {
            let mut bad = stored.clone();
            bad[..4].copy_from_slice(&len.to_le_bytes());
            assert!(Unpacker::unpack(unpacker.as_ref(), &bad).is_err(), "{len}");
        }
        for cut in 0..stored.len() {
            let _ = Unpacker::unpack(unpacker.as_ref(), &stored[cut..]);
        }
    }
}
