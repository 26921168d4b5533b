//! The ribbon filter (Dillinger and Walzer, 2021), standard, of width 128: about 30 % smaller than a Bloom filter for as
//! few false answers, slower to build and to ask.
//!
//! A key is an equation: a row of 128 coefficients from the slot on where it starts, and a result for each *column*. The
//! filter is a solution of all equations, a bit in each slot and column. A key is denied if its equation does not hold,
//! which it does for keys that were added, and for one of 2^columns others.
//!
//! Keys are dealt out to *shards* by their hashes, each of which is solved by itself, so that building takes little
//! memory. How a shard is built:
//! 1. Rows are put in their places one by one (Gaussian elimination as they come); a row whose place is taken is added
//!    to the row there and moves on.
//! 2. If a row comes out as a contradiction, all is done again with another seed and a few more slots. A shard that
//!    cannot be solved gets no columns, and denies nothing.
//! 3. Slots are solved from the last to the first.
//!
//! ```text
//! shards u32 | for each shard: end u32 | blocks and seed u32 | words of shard 0 | words of shard 1 | ...
//! ```
//!
//! - A word is a u128: the bits of 128 slots in one column. A shard's words are those of its *blocks* of 128 slots, one
//!   behind the other, column by column. `end` is the number of words up to the shard's last.
//! - The seed is the lower byte, the number of blocks `b` the upper three. With `w` words in the shard, a block has `w / b`
//!   columns, and the last `w % b` blocks have one more.
//! - With `h` the hash of a key, its shard is `h * shards >> 64`. [`Row::of`] says which row it has there.

use super::scale;

/// The coefficients of a row, and the slots of a block.
const WIDTH: u64 = 128;
/// The bytes of a word.
const WORD: usize = 16;
/// The bytes that say where a shard is.
const HEADER: usize = 8;
/// About as many keys are solved together.
const SHARD_KEYS: usize = 8 << 10;
/// Shards of so many blocks have all the columns that were asked for, though blocks are not filled.
const SMALL: u64 = 8;
/// How often a shard is tried.
const ATTEMPTS: u8 = 12;
/// The most columns.
const MAX_COLUMNS: u64 = 32;

/// Appends the filter of the keys with these hashes, which are in order and different.
pub(super) fn build(hashes: &[u64], bits: u32, out: &mut Vec<u8>) {
    let shards = hashes.len().div_ceil(SHARD_KEYS);
    out.extend_from_slice(&(shards as u32).to_le_bytes());
    let headers = out.len();
    out.resize(headers + shards * HEADER, 0);
    let words = out.len();
    let mut rest = hashes;
    for shard in 0..shards {
        let count = rest.partition_point(|&hash| scale(hash, shards as u64) <= shard as u64);
        let (keys, others) = rest.split_at(count);
        rest = others;
        let (blocks, seed) = solve(keys, bits, out).unwrap_or((1, 0));
        let end = ((out.len() - words) / WORD) as u32;
        let header = &mut out[headers + shard * HEADER..][..HEADER];
        header[..4].copy_from_slice(&end.to_le_bytes());
        header[4..].copy_from_slice(&((blocks as u32) << 8 | u32::from(seed)).to_le_bytes());
    }
}

/// Appends the words of a shard; gives its blocks and its seed, or `None` if no seed does.
fn solve(keys: &[u64], bits: u32, out: &mut Vec<u8>) -> Option<(u64, u8)> {
    if keys.is_empty() {
        return Some((0, 0));
    }
    let count = keys.len() as u64;
    (0..ATTEMPTS).find_map(|seed| {
        let slots = count + count * (20 + 10 * u64::from(seed)) / 1000 + 8;
        let blocks = slots.div_ceil(WIDTH);
        let banding = Banding::of(keys, blocks, seed)?;
        let words = match blocks <= SMALL {
            true => blocks * u64::from(bits),
            false => count * u64::from(bits) / WIDTH,
        };
        banding.solve(&Shape { blocks, words: words.min(blocks * MAX_COLUMNS) }, out);
        Some((blocks, seed))
    })
}

/// The equation of a key.
struct Row {
    start: u64,
    coefficients: u128,
    result: u32,
}

impl Row {
    /// The equation of a key in a shard of `blocks`, at least one.
    #[inline]
    fn of(hash: u64, blocks: u64, seed: u8) -> Self {
        let mut mixed = hash ^ u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        mixed ^= mixed >> 33;
        let fold = |a: u64, b: u64| {
            let product = u128::from(mixed ^ a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        let low = fold(0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db);
        let high = fold(0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3);
        Self {
            start: scale(mixed, blocks * WIDTH - (WIDTH - 1)),
            coefficients: u128::from(high) << 64 | u128::from(low) | 1,
            result: (mixed.wrapping_mul(0x1d8e_4e27_c47d_124f) >> 32) as u32,
        }
    }
}

/// Rows in their places: the row in a slot begins there, or there is none.
struct Banding {
    coefficients: Vec<u128>,
    results: Vec<u32>,
}

impl Banding {
    /// `None` if the equations contradict each other.
    fn of(keys: &[u64], blocks: u64, seed: u8) -> Option<Self> {
        let slots = (blocks * WIDTH) as usize;
        let mut banding = Self { coefficients: vec![0; slots], results: vec![0; slots] };
        keys.iter().all(|&key| banding.add(Row::of(key, blocks, seed))).then_some(banding)
    }

    fn add(&mut self, row: Row) -> bool {
        let Row { start, mut coefficients, mut result } = row;
        let mut slot = start as usize;
        while self.coefficients[slot] != 0 {
            coefficients ^= self.coefficients[slot];
            result ^= self.results[slot];
            if coefficients == 0 {
                return result == 0;
            }
            let zeros = coefficients.trailing_zeros();
            coefficients >>= zeros;
            slot += zeros as usize;
        }
        self.coefficients[slot] = coefficients;
        self.results[slot] = result;
        true
    }

    /// Appends the words of the solution.
    fn solve(&self, shape: &Shape, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + shape.words as usize * WORD, 0);
        let words = out[start..].as_chunks_mut::<WORD>().0;
        // Of each column, the bits of the 128 slots behind the present one.
        let mut behind = [0u128; MAX_COLUMNS as usize];
        for block in (0..shape.blocks).rev() {
            let columns = shape.columns(block);
            for slot in (block * WIDTH..(block + 1) * WIDTH).rev() {
                let (row, result) = (self.coefficients[slot as usize], self.results[slot as usize]);
                for (column, behind) in behind[..columns].iter_mut().enumerate() {
                    let shifted = *behind << 1;
                    let bit = parity(shifted & row) ^ result >> column;
                    // A slot without a row is free: it stays 0, as its result is.
                    *behind = shifted | u128::from(bit & 1);
                }
            }
            let first = shape.first_word(block) as usize;
            for (word, bits) in words[first..first + columns].iter_mut().zip(behind) {
                *word = bits.to_le_bytes();
            }
        }
    }
}

/// How the words of a shard are dealt out to its blocks.
struct Shape {
    blocks: u64,
    words: u64,
}

impl Shape {
    /// The first of the blocks with one column more.
    #[inline]
    fn wider(&self) -> u64 {
        self.blocks - self.words % self.blocks
    }

    #[inline]
    fn columns(&self, block: u64) -> usize {
        (self.words / self.blocks) as usize + usize::from(block >= self.wider())
    }

    #[inline]
    fn first_word(&self, block: u64) -> u64 {
        block * (self.words / self.blocks) + block.saturating_sub(self.wider())
    }
}

/// Whether the number of ones is odd; faster than counting them where the processor has no instruction for that.
#[inline]
fn parity(bits: u128) -> u32 {
    let mut folded = (bits ^ bits >> 64) as u64;
    folded ^= folded >> 32;
    folded ^= folded >> 16;
    folded ^= folded >> 8;
    folded ^= folded >> 4;
    0x6996 >> (folded & 0xf) & 1
}

#[derive(Debug)]
pub(crate) struct Ribbon<B> {
    shards: u32,
    bytes: B,
}

impl<'a> Ribbon<&'a [u8]> {
    pub(super) fn of(body: &'a [u8]) -> Option<Self> {
        let (shards, bytes) = body.split_first_chunk()?;
        let shards = u32::from_le_bytes(*shards);
        (bytes.len() / HEADER >= shards as usize).then_some(Self { shards, bytes })
    }

    pub(super) fn map<B>(self, keep: impl FnOnce(&[u8]) -> B) -> Ribbon<B> {
        Ribbon { shards: self.shards, bytes: keep(self.bytes) }
    }
}

/// Where a key has to look.
struct Place<'a> {
    /// The words of the shard.
    words: &'a [[u8; WORD]],
    shape: Shape,
    row: Row,
}

impl<B: AsRef<[u8]>> Ribbon<B> {
    /// Whether the equation of the key holds, as far as there are words to tell.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let Some(Place { words, shape, row }) = self.find(hash) else { return false };
        let (block, shift) = (row.start / WIDTH, (row.start % WIDTH) as u32);
        let first = shape.first_word(block) as usize;
        let next = shape.first_word(block + 1) as usize;
        // The row as it lies over the slots of its block and of the next one.
        let here = row.coefficients << shift;
        let there = row.coefficients >> 1 >> (127 - shift);
        let word = |at: usize| words.get(at).map_or(0, |word| u128::from_le_bytes(*word));
        for column in 0..shape.columns(block) {
            let bits = word(first + column) & here ^ word(next + column) & there;
            if (parity(bits) ^ row.result >> column) & 1 != 0 {
                return false;
            }
        }
        true
    }

    #[inline]
    pub(super) fn place(&self, hash: u64) -> Option<&u8> {
        let place = self.find(hash)?;
        let word = place.shape.first_word(place.row.start / WIDTH) as usize;
        place.words.get(word).map(|word| &word[0])
    }

    pub(super) fn bytes(&self) -> &B {
        &self.bytes
    }

    /// Where the key has to look; `None` if its shard has no keys.
    #[inline]
    fn find(&self, hash: u64) -> Option<Place<'_>> {
        let shard = scale(hash, u64::from(self.shards)) as usize;
        let (headers, words) = self.bytes.as_ref().split_at(self.shards as usize * HEADER);
        let headers = headers.as_chunks::<HEADER>().0;
        let end_of = |header: &[u8; HEADER]| {
            u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize
        };
        let header = headers.get(shard)?;
        let start = shard.checked_sub(1).map_or(0, |before| end_of(&headers[before]));
        let words = words.as_chunks::<WORD>().0.get(start..end_of(header)).unwrap_or_default();
        let blocks = u64::from(u32::from_le_bytes([header[5], header[6], header[7], 0]));
        if blocks == 0 {
            return None;
        }
        let words_len = (words.len() as u64).min(blocks * MAX_COLUMNS);
        let shape = Shape { blocks, words: words_len };
        Some(Place { words, shape, row: Row::of(hash, blocks, header[4]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    #[test]
    fn shards_are_solved_at_once_or_soon() {
        for count in [1, 5, 100, 120, 1000, 5000, 8000, 8500] {
            let (mut seeds, rounds) = (0, 8);
            for round in 0..rounds {
                let mut rng = Rng::new(round * 1_000_003 + count);
                let keys: Vec<u64> = (0..count).map(|_| rng.next()).collect();
                let (_, seed) = solve(&keys, 3, &mut Vec::new()).expect("solved");
                seeds += u64::from(seed);
            }
            assert!(seeds <= 2 * rounds, "{count} keys: {seeds} seeds in {rounds} rounds");
        }
    }

    #[test]
    fn a_shard_without_a_solution_denies_nothing() {
        // Not different, and so many equal rows are no contradiction; what is none has no columns.
        let mut out = Vec::new();
        build(&[7; 5000], 8, &mut out);
        assert!(Ribbon::of(&out[..]).expect("a filter").may_contain(7));
        let unsolved = [&1u32.to_le_bytes()[..], &0u32.to_le_bytes(), &(1u32 << 8).to_le_bytes()];
        let unsolved = unsolved.concat();
        let ribbon = Ribbon::of(&unsolved[..]).expect("a filter");
        assert!((0..100).all(|hash| ribbon.may_contain(hash << 50)));
    }
}
