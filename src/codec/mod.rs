//! Compression of blocks: what each method can do, and which are compiled in.
//!
//! LZ4 always is, Snappy with the feature `snappy`, Zstandard with the feature `zstd`. What is not compiled in has a name
//! all the same, so that files that need it are told from damaged ones.
//!
//! Thread safety: a compressor is for one thread; a decompressor may be used by many at the same time.

#[cfg(not(all(feature = "snappy", feature = "zstd")))]
mod absent;
mod lz4;
#[cfg(feature = "snappy")]
mod snappy;
#[cfg(test)]
mod tests;
#[cfg(feature = "zstd")]
mod zstd;

#[cfg(not(feature = "snappy"))]
use absent as snappy;
#[cfg(not(feature = "zstd"))]
use absent as zstd;

use std::fmt;

use crate::error::{Error, Result};

/// A method of compression, with the byte that names it in files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Codec {
    Lz4 = 1,
    Snappy = 2,
    Zstd = 3,
}

/// Makes bytes smaller.
pub(crate) trait Compress: fmt::Debug + Send {
    /// Appends the compressed form of `bytes` to `out`, if there is one; false if not, and `out` may have anything behind
    /// what it had.
    fn compress(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool;
}

/// Undoes what a [`Compress`] of the same method did.
pub(crate) trait Decompress: fmt::Debug + Send + Sync {
    /// Fills `out` with what `bytes` are the compressed form of. False if that is not exactly as long, or `bytes` are no
    /// compressed form of anything.
    fn decompress(&self, bytes: &[u8], out: &mut [u8]) -> bool;

    /// The bytes of memory that it keeps.
    fn memory(&self) -> usize;
}

impl Codec {
    /// The method that `byte` names.
    pub(crate) fn of(byte: u8) -> Option<Self> {
        [Self::Lz4, Self::Snappy, Self::Zstd].into_iter().find(|&codec| codec as u8 == byte)
    }

    /// An error if the method was not compiled in.
    ///
    /// # Errors
    /// `Unsupported`, with the name of the feature.
    pub(crate) fn check(self) -> Result<()> {
        let (is_present, feature) = match self {
            Self::Lz4 => return Ok(()),
            Self::Snappy => (snappy::IS_PRESENT, "snappy"),
            Self::Zstd => (zstd::IS_PRESENT, "zstd"),
        };
        match is_present {
            true => Ok(()),
            false => Err(Error::Unsupported(format!(
                "compression with {self} was not compiled in: build with the feature `{feature}`"
            ))),
        }
    }

    /// A compressor. `level` and `dictionary`, which may be empty, count for Zstandard only.
    ///
    /// # Errors
    /// `Unsupported` if it was not compiled in.
    pub(crate) fn compressor(self, level: u8, dictionary: &[u8]) -> Result<Box<dyn Compress>> {
        self.check()?;
        Ok(match self {
            Self::Lz4 => lz4::compressor(),
            Self::Snappy => snappy::compressor(level, dictionary),
            Self::Zstd => zstd::compressor(level, dictionary),
        })
    }

    /// A decompressor for what was compressed with this dictionary, which may be empty. `None` if the bytes are no
    /// dictionary.
    ///
    /// # Errors
    /// `Unsupported` if it was not compiled in.
    pub(crate) fn decompressor(self, dictionary: &[u8]) -> Result<Option<Box<dyn Decompress>>> {
        self.check()?;
        Ok(match self {
            Self::Lz4 => Some(lz4::decompressor()),
            Self::Snappy => snappy::decompressor(dictionary),
            Self::Zstd => zstd::decompressor(dictionary),
        })
    }

    /// A dictionary of at most `most` bytes, of what the samples have in common; empty if there is none.
    pub(crate) fn train(self, samples: &[&[u8]], most: usize) -> Vec<u8> {
        match self {
            Self::Lz4 | Self::Snappy => Vec::new(),
            Self::Zstd => zstd::train(samples, most),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        })
    }
}
