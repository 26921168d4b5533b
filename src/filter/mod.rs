//! The filter: a Bloom filter in blocks of one cache line, asked before a table is searched.
//!
//! The upper half of a key's hash picks one line of 512 bits; all bits of the key lie in that line, so
//! that a probe costs at most one cache miss. The lower half picks the bits: each is the top nine bits
//! of a product of the half with an odd constant, multiplied on from bit to bit.
//!
//! ```text
//! probes u8 | line 0, 64 bytes | line 1 | ...        bit b of a line is bit b % 64 of its
//!                                                    little-endian u64 number b / 64
//! ```
//!
//! Thread safety: a built filter is immutable.

use crate::base::prefetch::prefetch;

/// The bytes of a line.
const LINE: usize = 64;

/// The most bits a key may take; more do not pay.
const MAX_BITS_PER_KEY: u32 = 64;

/// The most bits set for a key.
const MAX_PROBES: u32 = 12;

/// Collects the hashes of the keys of a filter.
#[derive(Debug)]
pub(crate) struct BloomBuilder {
    bits_per_key: u32,
    hashes: Vec<u64>,
}

impl BloomBuilder {
    /// `bits_per_key` of 0 builds no filter; above 64 counts as 64.
    pub(crate) fn new(bits_per_key: u32) -> Self {
        Self { bits_per_key: bits_per_key.min(MAX_BITS_PER_KEY), hashes: Vec::new() }
    }

    /// Whether a filter will be built at all, so that hashing keys is worth it.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.bits_per_key > 0
    }

    /// Adds a key by its hash. The same hash twice in a row counts once.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64) {
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// The bytes the encoded filter will take for the keys added so far.
    pub(crate) fn encoded_len(&self) -> u64 {
        self.lines() as u64 * LINE as u64 + 1
    }

    /// The filter of all keys added; `None` if none is wanted.
    pub(crate) fn build(&self) -> Option<Bloom> {
        if !self.is_wanted() {
            return None;
        }
        let probes = (self.bits_per_key * 7 / 10).clamp(1, MAX_PROBES);
        let mut bloom = Bloom { lines: vec![Line::default(); self.lines()], probes };
        for &hash in &self.hashes {
            bloom.insert(hash);
        }
        Some(bloom)
    }

    fn lines(&self) -> usize {
        let bits = self.hashes.len() * self.bits_per_key as usize;
        bits.div_ceil(LINE * 8).min(u32::MAX as usize)
    }
}

#[derive(Clone, Copy, Default, Debug)]
#[repr(align(64))]
struct Line([u64; LINE / 8]);

/// A filter: says of a key "perhaps here" or "surely not here".
#[derive(Debug)]
pub(crate) struct Bloom {
    lines: Vec<Line>,
    probes: u32,
}

impl Bloom {
    /// Whether a key with this hash may have been added. False only if it was not.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.lines.get(line_of(hash, self.lines.len())) else { return false };
        let mut found = 1;
        for bit in bits_of(hash, self.probes) {
            found &= line.0[bit / 64] >> (bit % 64);
        }
        found & 1 == 1
    }

    /// Asks ahead for what [`may_contain`](Self::may_contain) will look at.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(line_of(hash, self.lines.len())) {
            prefetch(line);
        }
    }

    /// The bytes of memory the filter takes.
    pub(crate) fn memory(&self) -> usize {
        self.lines.len() * LINE
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(1 + self.memory());
        out.push(self.probes as u8);
        for word in self.lines.iter().flat_map(|line| line.0) {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` if the bytes are no filter.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&probes, bytes) = bytes.split_first()?;
        let probes = u32::from(probes);
        let (lines, []) = bytes.as_chunks::<LINE>() else { return None };
        if !(1..=MAX_PROBES).contains(&probes) {
            return None;
        }
        let words = |line: &[u8; LINE]| {
            let mut words = line.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            Line(std::array::from_fn(|_| words.next().unwrap_or(0)))
        };
        Some(Self { lines: lines.iter().map(words).collect(), probes })
    }

    #[inline]
    fn insert(&mut self, hash: u64) {
        let at = line_of(hash, self.lines.len());
        for bit in bits_of(hash, self.probes) {
            self.lines[at].0[bit / 64] |= 1 << (bit % 64);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::hash64;

    fn filter(bits_per_key: u32, keys: u64) -> Bloom {
        let mut builder = BloomBuilder::new(bits_per_key);
        for key in 0..keys {
            builder.add(hash64(&key.to_le_bytes()));
            builder.add(hash64(&key.to_le_bytes()));
        }
        let bloom = builder.build().expect("a filter");
        let mut bytes = Vec::new();
        bloom.encode(&mut bytes);
        assert_eq!(bytes.len() as u64, builder.encoded_len());
        Bloom::decode(&bytes).expect("what was encoded")
    }

    #[test]
    fn no_false_negatives_and_few_false_positives() {
        for (bits_per_key, most) in [(1, 0.7), (6, 0.08), (10, 0.0125), (16, 0.0025), (99, 0.0005)]
        {
            let keys = 20_000;
            let bloom = filter(bits_per_key, keys);
            for key in 0..keys {
                assert!(bloom.may_contain(hash64(&key.to_le_bytes())));
            }
            let asked = 200_000;
            let wrong = (keys..keys + asked)
                .filter(|key| bloom.may_contain(hash64(&key.to_le_bytes())))
                .count();
            let rate = wrong as f64 / asked as f64;
            assert!(rate < most, "{bits_per_key} bits: {rate}");
        }
    }

    #[test]
    fn edges() {
        assert!(BloomBuilder::new(0).build().is_none());
        assert!(!filter(10, 0).may_contain(7));
        assert_eq!(filter(10, 1).memory(), LINE);
        for bad in [&[][..], &[0], &[13], &[7; 64], &[7; 66]] {
            assert!(Bloom::decode(bad).is_none(), "{bad:?}");
        }
        assert!(Bloom::decode(&[0xff; 65]).is_none());
        assert!(Bloom::decode(&[7; 65]).is_some());
    }
}
