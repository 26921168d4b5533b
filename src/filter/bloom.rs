//! The Bloom filter (Bloom, 1970): the bits of a key are spread over all of the filter. The fewest false answers among
//! Bloom filters for as many bits, and as many cache misses as probes.
//!
//! ```text
//! probes u8 | bytes        bit b is bit b % 8 of byte b / 8; there are 8 bits for each byte
//! ```
//!
//! With `h` the hash and `m` the number of bits: `d` is `h` turned by 32 bits, made odd. For each probe the bit is
//! `h * m >> 64`; then `d` is added to `h`, and the number of the probe, from 0, to `d`, both modulo 2^64 (enhanced double
//! hashing: Dillinger and Manolios, 2004).

use super::scale;

/// The most bits set for a key.
const MAX_PROBES: u8 = 22;

/// Appends the filter of the keys with these hashes.
pub(super) fn build(hashes: &[u64], bits: u32, out: &mut Vec<u8>) {
    let probes = ((f64::from(bits) * std::f64::consts::LN_2).round() as u8).clamp(1, MAX_PROBES);
    out.push(probes);
    let start = out.len();
    out.resize(start + (hashes.len() * bits as usize).div_ceil(8), 0);
    let bytes = &mut out[start..];
    let m = bytes.len() as u64 * 8;
    for &hash in hashes {
        for bit in bits_of(hash, m, probes) {
            bytes[(bit / 8) as usize] |= 1 << (bit % 8);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Bloom<B> {
    probes: u8,
    bytes: B,
}

impl<'a> Bloom<&'a [u8]> {
    pub(super) fn of(body: &'a [u8]) -> Option<Self> {
        let (&probes, bytes) = body.split_first()?;
        (1..=MAX_PROBES).contains(&probes).then_some(Self { probes, bytes })
    }

    pub(super) fn map<B>(self, keep: impl FnOnce(&[u8]) -> B) -> Bloom<B> {
        Bloom { probes: self.probes, bytes: keep(self.bytes) }
    }
}

impl<B: AsRef<[u8]>> Bloom<B> {
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let bytes = self.bytes.as_ref();
        let is_set =
            |bit: u64| bytes.get((bit / 8) as usize).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
        bits_of(hash, bytes.len() as u64 * 8, self.probes).all(is_set)
    }

    #[inline]
    pub(super) fn place(&self, hash: u64) -> Option<&u8> {
        let bytes = self.bytes.as_ref();
        bytes.get((scale(hash, bytes.len() as u64 * 8) / 8) as usize)
    }

    pub(super) fn bytes(&self) -> &B {
        &self.bytes
    }
}

/// The bits of a key among `m`.
#[inline]
fn bits_of(hash: u64, m: u64, probes: u8) -> impl Iterator<Item = u64> {
    let (mut hash, mut step) = (hash, hash.rotate_left(32) | 1);
    (0..u64::from(probes)).map(move |probe| {
        let bit = scale(hash, m);
        hash = hash.wrapping_add(step);
        step = step.wrapping_add(probe);
        bit
    })
}
