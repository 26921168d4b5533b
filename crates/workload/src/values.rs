//! Values with a chosen share of randomness: slices of a pool that is made once.

use std::num::NonZeroU32;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How many different places of the pool values start at. It stays in the processor's cache.
const STARTS: usize = 1 << 20;

/// The pool repeats this pattern: random bytes, then one byte repeated.
const STRIPE: usize = 128;

/// Where in the pool a value starts: one more than the place, so that having none takes no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start(NonZeroU32);

/// The pool of all values.
pub struct Values {
    pool: Vec<u8>,
    size: usize,
    seed: u64,
}

impl Values {
    /// A pool for values of `size` bytes, of which the share `entropy` (0 to 1) is random.
    pub fn new(size: usize, entropy: f64, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut pool = vec![b'.'; STARTS + size];
        for stripe in pool.chunks_mut(STRIPE) {
            let random = (stripe.len() as f64 * entropy).round() as usize;
            rng.fill_bytes(&mut stripe[..random]);
        }
        Self { pool, size, seed }
    }

    /// Where value `number` of phase `phase` starts.
    pub fn start(&self, number: u32, phase: u32) -> Start {
        let seed = self.seed ^ (u64::from(phase) << 32 | u64::from(number));
        let mixed = Xoshiro256PlusPlus::seed_from_u64(seed).next_u64();
        let place = (mixed % STARTS as u64) as u32;
        Start(NonZeroU32::MIN.saturating_add(place))
    }

    /// The value that starts there.
    #[inline]
    pub fn at(&self, start: Start) -> &[u8] {
        &self.pool[start.0.get() as usize - 1..][..self.size]
    }

    /// Whether `value` has the length and the first bytes of the value that starts there.
    #[inline]
    pub fn matches(&self, value: &[u8], start: Start) -> bool {
        let checked = self.size.min(16);
        value.len() == self.size && value[..checked] == self.at(start)[..checked]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_asked_share_is_random() {
        for entropy in [0.0, 0.5, 1.0] {
            let values = Values::new(100, entropy, 3);
            let dots = values.pool.iter().filter(|&&byte| byte == b'.').count();
            let share = 1.0 - dots as f64 / values.pool.len() as f64;
            assert!((share - entropy).abs() < 0.01, "{share} {entropy}");
            let start = values.start(9, 1);
            assert_ne!(start, values.start(9, 2));
            assert_eq!(values.at(start).len(), 100);
            assert!(values.matches(values.at(start), start));
            assert!(!values.matches(&values.at(start)[1..], start));
        }
        let empty = Values::new(0, 1.0, 3);
        assert!(empty.matches(b"", empty.start(0, 1)));
    }
}
