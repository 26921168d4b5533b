//! In place of a method that was not compiled in. [`Codec::check`](super::Codec::check) comes first, so that nothing here
//! is ever asked to do anything.

use super::{Compress, Decompress};

pub(super) const IS_PRESENT: bool = false;

pub(super) fn compressor(_level: u8, _dictionary: &[u8]) -> Box<dyn Compress> {
    Box::new(Absent)
}

pub(super) fn decompressor(_dictionary: &[u8]) -> Option<Box<dyn Decompress>> {
    None
}

#[cfg(not(feature = "zstd"))]
pub(super) fn train(_samples: &[&[u8]], _most: usize) -> Vec<u8> {
    Vec::new()
}

/// Compresses nothing.
#[derive(Debug)]
struct Absent;

impl Compress for Absent {
    fn compress(&mut self, _bytes: &[u8], _out: &mut Vec<u8>) -> bool {
        false
    }
}
