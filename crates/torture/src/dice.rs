//! Numbers that a seed decides.

use crate::choices;

/// A small generator of numbers, the same for the same seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The numbers of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `sides`, which is not 0.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % sides as u64) as usize
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.roll(256) as u8).collect()
    }
}

/// The numbers below `len`, each once, in an order that the seed decides and that has no pattern: the first few are from everywhere.
///
/// A Feistel network of four rounds permutes the numbers of the smallest square of a power of two that has all of them. What it leads to that is
/// too large is permuted again until it is not, which takes less than four turns on average (Black and Rogaway, *Ciphers with Arbitrary Finite
/// Domains*, 2002).
pub(crate) fn shuffled(len: usize, seed: u64) -> impl Iterator<Item = usize> {
    let bits = usize::BITS - len.saturating_sub(1).leading_zeros();
    let half = bits.div_ceil(2);
    let mask = (1 << half) - 1;
    let permute = move |number: usize| {
        let halves = (number >> half, number & mask);
        let (left, right) = (0..4_u32).fold(halves, |(left, right), round| {
            (right, left ^ (choices::mix(seed, (round, right)) as usize & mask))
        });
        left << half | right
    };
    (0..len).map(move |number| {
        let mut permuted = permute(number);
        while permuted >= len {
            permuted = permute(permuted);
        }
        permuted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_met_once() {
        for len in (0..70).chain([1000, 1 << 12]) {
            for seed in 0..5 {
                let mut met: Vec<_> = shuffled(len, seed).collect();
                assert!(len < 10 || met[..10] != [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
                met.sort_unstable();
                assert!(met.into_iter().eq(0..len));
            }
        }
    }

    #[test]
    fn the_first_of_many_are_from_everywhere() {
        for len in [1000, 40_000, 65_536, 65_537, 100_003] {
            for seed in 0..50 {
                let mut in_tenths = [0; 10];
                for number in shuffled(len, seed).take(200) {
                    in_tenths[number * 10 / len] += 1;
                }
                assert!(
                    in_tenths.iter().all(|&met| (4..60).contains(&met)),
                    "{len}, {seed}: {in_tenths:?}"
                );
            }
        }
    }
}
