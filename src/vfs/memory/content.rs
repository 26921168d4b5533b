//! The bytes of a file in memory.
//!
//! A file is cut into chunks that are shared between copies until one of them writes, so that a copy
//! costs a pointer for each chunk and a hole costs nothing. Invariant: bytes behind the end that lie in
//! a chunk are zero.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const CHUNK: usize = 4096;

/// A sparse run of bytes; cloning it shares them.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    len: u64,
    chunks: BTreeMap<u64, Arc<[u8; CHUNK]>>,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `buffer` from `offset`; what is a hole, or behind the end, reads as zeros.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) {
        for (chunk, from, to) in pieces(offset, buffer.len(), CHUNK) {
            let target = &mut buffer[to];
            match self.chunks.get(&chunk) {
                Some(bytes) => target.copy_from_slice(&bytes[from..from + target.len()]),
                None => target.fill(0),
            }
        }
    }

    /// Copies all bytes but those of holes.
    pub(super) fn copy_to(&self, zeros: &mut [u8]) {
        for (chunk, bytes) in &self.chunks {
            let start = *chunk as usize * CHUNK;
            let count = zeros.len().saturating_sub(start).min(CHUNK);
            zeros[start..start + count].copy_from_slice(&bytes[..count]);
        }
    }

    /// Writes `bytes` at `offset`, extending the file over the gap.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (chunk, to, from) in pieces(offset, bytes.len(), CHUNK) {
            let chunk = self.chunks.entry(chunk).or_insert_with(|| Arc::new([0; CHUNK]));
            let source = &bytes[from];
            Arc::make_mut(chunk)[to..to + source.len()].copy_from_slice(source);
        }
        if !bytes.is_empty() {
            self.extend(offset + bytes.len() as u64);
        }
    }

    /// Makes the file at least `len` bytes long.
    pub(super) fn extend(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Makes the file `len` bytes long.
    pub(super) fn truncate(&mut self, len: u64) {
        if len < self.len {
            self.chunks.split_off(&len.div_ceil(CHUNK as u64));
            if let Some(last) = self.chunks.get_mut(&(len / CHUNK as u64)) {
                Arc::make_mut(last)[(len % CHUNK as u64) as usize..].fill(0);
            }
        }
        self.len = len;
    }

    /// All bytes, holes filled.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes);
        bytes
    }
}

/// Cuts `len` bytes at `offset` at the multiples of `unit`: the unit's number, the place inside it, and
/// the range within the bytes, for each piece.
pub(super) fn pieces(
    offset: u64,
    len: usize,
    unit: usize,
) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let inside = (at % unit as u64) as usize;
        let part = (unit - inside).min(len - done);
        let piece = (at / unit as u64, inside, done..done + part);
        done += part;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_cut_tails_read_as_zeros() {
        let mut content = Content::default();
        content.write(4000, &[7; 5000]);
        let copy = content.clone();
        content.truncate(4100);
        content.truncate(9000);
        let mut expected = vec![0; 9000];
        assert_eq!(copy.to_vec()[4000..], vec![7; 5000]);
        expected[4000..4100].fill(7);
        assert_eq!(content.to_vec(), expected);
        content.truncate(4096);
        assert_eq!(content.chunks.len(), 1);
        content.write(5 << 30, b"far");
        assert_eq!((content.len(), content.chunks.len()), ((5 << 30) + 3, 2));
    }

    #[test]
    fn pieces_are_whole_and_cut_at_units() {
        let cut: Vec<_> = pieces(1000, 1100, 512).collect();
        assert_eq!(cut, [(1, 488, 0..24), (2, 0, 24..536), (3, 0, 536..1048), (4, 0, 1048..1100)]);
        assert_eq!(pieces(5, 0, 512).count(), 0);
    }
}
