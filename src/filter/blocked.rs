//! The Bloom filter in blocks of one cache line (Putze et al., 2007): all bits of a key lie in one line of 512 bits, so
//! that a probe costs at most one cache miss.
//!
//! ```text
//! probes u8 | line 0, 64 bytes | line 1 | ...        bit b of a line is bit b % 8 of its byte b / 8
//! ```
//!
//! The upper half of a key's hash picks the line. The lower half picks the bits: each is the top nine bits of a product of
//! the half with an odd constant, multiplied on from bit to bit.

use super::LINE;

/// The most bits set for a key.
const MAX_PROBES: u32 = 12;

/// Appends the filter of the keys with these hashes.
pub(super) fn build(hashes: &[u64], bits: u32, out: &mut Vec<u8>) {
    let probes = (bits * 7 / 10).clamp(1, MAX_PROBES);
    out.push(probes as u8);
    let lines = (hashes.len() * bits as usize).div_ceil(LINE * 8).min(u32::MAX as usize);
    let start = out.len();
    out.resize(start + lines * LINE, 0);
    let lines = out[start..].as_chunks_mut::<LINE>().0;
    for &hash in hashes {
        let line = &mut lines[line_of(hash, lines.len())];
        for bit in bits_of(hash, probes) {
            line[bit / 8] |= 1 << (bit % 8);
        }
    }
}

#[derive(Debug)]
pub(crate) struct BlockedBloom<B> {
    probes: u32,
    lines: B,
}

impl<'a> BlockedBloom<&'a [u8]> {
    pub(super) fn of(body: &'a [u8]) -> Option<Self> {
        let (&probes, lines) = body.split_first()?;
        let probes = u32::from(probes);
        let fits = (1..=MAX_PROBES).contains(&probes) && lines.len().is_multiple_of(LINE);
        fits.then_some(Self { probes, lines })
    }

    pub(super) fn map<B>(self, keep: impl FnOnce(&[u8]) -> B) -> BlockedBloom<B> {
        BlockedBloom { probes: self.probes, lines: keep(self.lines) }
    }
}

impl<B: AsRef<[u8]>> BlockedBloom<B> {
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.line(hash) else { return false };
        let mut found = 1;
        for bit in bits_of(hash, self.probes) {
            found &= line[bit / 8] >> (bit % 8);
        }
        found & 1 == 1
    }

    #[inline]
    pub(super) fn place(&self, hash: u64) -> Option<&u8> {
        self.line(hash).map(|line| &line[0])
    }

    pub(super) fn bytes(&self) -> &B {
        &self.lines
    }

    #[inline]
    fn line(&self, hash: u64) -> Option<&[u8; LINE]> {
        let lines = self.lines.as_ref().as_chunks::<LINE>().0;
        lines.get(line_of(hash, lines.len()))
    }
}

/// The line of a key, from the upper half of its hash.
#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// The bits of a key in its line, from the lower half of its hash.
#[inline]
fn bits_of(hash: u64, probes: u32) -> impl Iterator<Item = usize> {
    let mut product = hash as u32;
    (0..probes).map(move |_| {
        product = product.wrapping_mul(0x9e37_79b9);
        (product >> 23) as usize
    })
}
