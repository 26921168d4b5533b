//! How the blocks of a table that is written are compressed; with a dictionary, only after the first of them.
//!
//! A dictionary is trained with the table's first blocks, about a hundred times as large as it is going to be. They wait
//! in memory until there are enough of them, or the table ends. A table that is too small to learn from has none.

use std::mem;

use super::stored::Packer;
use crate::base::Trailer;
use crate::codec::Codec;
use crate::error::Result;
use crate::options::Compression;

/// The most bytes of a dictionary.
const MAX_DICTIONARY: usize = 16 << 10;
/// The fewest bytes of a dictionary.
const MIN_DICTIONARY: usize = 256;
/// So many times as large as the dictionary is what it is trained with.
const SAMPLES: usize = 100;

/// A block that is to be written.
#[derive(Debug)]
pub(super) struct Full {
    pub(super) block: Vec<u8>,
    /// Its last entry.
    pub(super) last: (Vec<u8>, Trailer),
    /// The entry behind that.
    pub(super) next: Option<(Vec<u8>, Trailer)>,
}

/// What is done with blocks.
#[derive(Debug)]
pub(super) enum Packing {
    /// They are stored as they are.
    Plain,
    /// They are compressed.
    Packed(Packer),
    /// They wait for a dictionary.
    Sampling { codec: Codec, level: u8, waiting: Vec<Full>, bytes: usize },
}

impl Packing {
    /// # Errors
    /// `Unsupported` if the compression was not compiled in.
    pub(super) fn new(compression: Compression) -> Result<Self> {
        let Some(codec) = compression.codec() else { return Ok(Self::Plain) };
        codec.check()?;
        Ok(match compression {
            Compression::Zstd { level, dictionary: true } => {
                Self::Sampling { codec, level, waiting: Vec::new(), bytes: 0 }
            }
            Compression::Zstd { level, .. } => Self::Packed(Packer::new(codec, level, &[])?),
            _ => Self::Packed(Packer::new(codec, 0, &[])?),
        })
    }

    /// Whether a block that is compressed in that way, or not at all, may stand here as it is. With Zstandard it depends on a
    /// level and a dictionary, too; and what could not be made smaller is tried again.
    pub(super) fn is_alike(&self, stored: Option<Codec>) -> bool {
        match self {
            Self::Plain => stored.is_none(),
            Self::Packed(packer) => stored == Some(packer.codec()) && stored != Some(Codec::Zstd),
            Self::Sampling { .. } => false,
        }
    }

    /// Has the block wait, if blocks do; else gives it back.
    pub(super) fn hold(&mut self, full: Full) -> Option<Full> {
        let Self::Sampling { waiting, bytes, .. } = self else { return Some(full) };
        *bytes += full.block.len();
        waiting.push(full);
        None
    }

    /// The stored form of a block, and how it was compressed, if it is to be and gets small enough.
    pub(super) fn pack(
        &mut self,
        block: &[u8],
        identity: u64,
        offset: u64,
    ) -> Option<(&[u8], Codec)> {
        match self {
            Self::Packed(packer) => packer.pack(block, identity, offset),
            Self::Plain | Self::Sampling { .. } => None,
        }
    }

    /// Whether there are blocks enough to train a dictionary.
    pub(super) fn is_due(&self) -> bool {
        matches!(self, Self::Sampling { bytes, .. } if *bytes >= SAMPLES * MAX_DICTIONARY)
    }

    /// The bytes of the blocks that wait.
    pub(super) fn waiting(&self) -> usize {
        if let Self::Sampling { bytes, .. } = self { *bytes } else { 0 }
    }

    /// Ends the waiting, if any: gives the dictionary, and the blocks that are to be packed with it.
    pub(super) fn train(&mut self) -> Result<(Vec<u8>, Vec<Full>)> {
        let Self::Sampling { codec, level, waiting, bytes } = self else {
            return Ok((Vec::new(), Vec::new()));
        };
        let most = (*bytes / SAMPLES).min(MAX_DICTIONARY);
        let samples: Vec<&[u8]> = waiting.iter().map(|full| &full.block[..]).collect();
        let dictionary = match most < MIN_DICTIONARY {
            true => Vec::new(),
            false => codec.train(&samples, most),
        };
        let waiting = mem::take(waiting);
        *self = Self::Packed(Packer::new(*codec, *level, &dictionary)?);
        Ok((dictionary, waiting))
    }

    /// Gives memory above `most` bytes back; for after a huge entry.
    pub(super) fn shrink(&mut self, most: usize) {
        if let Self::Packed(packer) = self {
            packer.shrink(most);
        }
    }
}
