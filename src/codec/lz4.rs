//! LZ4, in its block format.

use std::fmt;

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

use super::{Compress, Decompress};

pub(super) fn compressor() -> Box<dyn Compress> {
    Box::new(Compressor(CompressTable::small()))
}

pub(super) fn decompressor() -> Box<dyn Decompress> {
    Box::new(Decompressor)
}

/// Has the memory in which repetitions are looked up.
struct Compressor(CompressTable);

#[derive(Debug)]
struct Decompressor;

impl Compress for Compressor {
    fn compress(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.resize(start + get_maximum_output_size(bytes.len()), 0);
        let compressed = compress_into_with_table(bytes, &mut out[start..], &mut self.0);
        out.truncate(start + compressed.as_ref().map_or(0, |&len| len));
        compressed.is_ok()
    }
}

impl Decompress for Decompressor {
    fn decompress(&self, bytes: &[u8], out: &mut [u8]) -> bool {
        decompress_into(bytes, out).is_ok_and(|len| len == out.len())
    }

    fn memory(&self) -> usize {
        0
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compressor(lz4)")
    }
}
