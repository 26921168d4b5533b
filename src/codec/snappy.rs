//! Snappy, in its raw format.

use std::fmt;

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use super::{Compress, Decompress};

pub(super) const IS_PRESENT: bool = true;

pub(super) fn compressor(_level: u8, _dictionary: &[u8]) -> Box<dyn Compress> {
    Box::new(Compressor(Encoder::new()))
}

pub(super) fn decompressor(_dictionary: &[u8]) -> Option<Box<dyn Decompress>> {
    Some(Box::new(Decompressor))
}

/// Has the memory in which repetitions are looked up.
struct Compressor(Encoder);

#[derive(Debug)]
struct Decompressor;

impl Compress for Compressor {
    fn compress(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.resize(start + max_compress_len(bytes.len()), 0);
        let compressed = self.0.compress(bytes, &mut out[start..]);
        out.truncate(start + compressed.as_ref().map_or(0, |&len| len));
        compressed.is_ok()
    }
}

impl Decompress for Decompressor {
    fn decompress(&self, bytes: &[u8], out: &mut [u8]) -> bool {
        decompress_len(bytes).is_ok_and(|len| len == out.len())
            && Decoder::new().decompress(bytes, out).is_ok_and(|len| len == out.len())
    }

    fn memory(&self) -> usize {
        0
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compressor(snappy)")
    }
}
