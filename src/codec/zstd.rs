//! Zstandard, with or without a dictionary.
//!
//! The memory in which a thread decompresses is kept for its next block: about 160 KiB for each thread that has read one.

use std::cell::RefCell;
use std::fmt;

use ::zstd::bulk;
use ::zstd::dict;
use ::zstd::zstd_safe::{CParameter, DCtx, DDict, compress_bound};

use super::{Compress, Decompress};

pub(super) const IS_PRESENT: bool = true;

/// What a dictionary takes beside its bytes, about: the tables made of it.
const TABLES: usize = 28 << 10;

thread_local! {
    static CONTEXT: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

pub(super) fn compressor(level: u8, dictionary: &[u8]) -> Box<dyn Compress> {
    let make = || {
        let mut made = bulk::Compressor::with_dictionary(i32::from(level), dictionary)?;
        made.set_parameter(CParameter::DictIdFlag(false))?;
        Ok::<_, std::io::Error>(made)
    };
    Box::new(Compressor(make().ok()))
}

/// A dictionary that begins like one of Zstandard's is checked; else it is bytes that records may refer to.
pub(super) fn decompressor(dictionary: &[u8]) -> Option<Box<dyn Decompress>> {
    if dictionary.is_empty() {
        return Some(Box::new(Decompressor { dictionary: None, memory: 0 }));
    }
    let memory = dictionary.len() + TABLES;
    let dictionary = Some(DDict::try_create(dictionary)?);
    Some(Box::new(Decompressor { dictionary, memory }))
}

pub(super) fn train(samples: &[&[u8]], most: usize) -> Vec<u8> {
    dict::from_samples(samples, most).unwrap_or_default()
}

/// `None` if Zstandard refused the level or the dictionary.
struct Compressor(Option<bulk::Compressor<'static>>);

struct Decompressor {
    dictionary: Option<DDict<'static>>,
    memory: usize,
}

impl Compress for Compressor {
    fn compress(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(compressor) = &mut self.0 else { return false };
        let start = out.len();
        out.resize(start + compress_bound(bytes.len()), 0);
        let compressed = compressor.compress_to_buffer(bytes, &mut out[start..]);
        out.truncate(start + compressed.as_ref().map_or(0, |&len| len));
        compressed.is_ok()
    }
}

impl Decompress for Decompressor {
    fn decompress(&self, bytes: &[u8], out: &mut [u8]) -> bool {
        let len = CONTEXT.with_borrow_mut(|context| match &self.dictionary {
            Some(dictionary) => context.decompress_using_ddict(out, bytes, dictionary),
            None => context.decompress(out, bytes),
        });
        len.is_ok_and(|len| len == out.len())
    }

    fn memory(&self) -> usize {
        self.memory
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compressor(zstd)")
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decompressor(zstd, {} bytes)", self.memory)
    }
}
