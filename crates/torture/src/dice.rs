//! Numbers that a seed decides.

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

/// The numbers below `len`, each once, in an order that the seed decides.
pub(crate) fn shuffled(len: usize, seed: u64) -> impl Iterator<Item = usize> {
    let divisor = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let mut dice = Dice::new(seed);
    let first = dice.roll(len.max(1));
    // Steps that have no divisor with the length meet every number.
    let near = len * 5 / 8 + dice.roll(len / 4 + 1);
    let step = (near..).find(|&step| divisor(step, len) == 1).unwrap_or(1);
    (0..len).map(move |number| (first + number * step) % len)
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
}
