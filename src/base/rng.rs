//! A small random number generator (SplitMix64, Steele, Lea and Flood, 2014) for tower heights and
//! tie-breaking; not for secrets.

/// The generator's state.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed that differs between processes and calls.
    pub(crate) fn entropy() -> u64 {
        use std::hash::{BuildHasher, Hasher, RandomState};
        if let Some(number) = crate::sync::entropy() {
            return number;
        }
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        if let Ok(now) = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            hasher.write_u128(now.as_nanos());
        }
        hasher.finish()
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn same_seed_same_numbers() {
        let mut rng = super::Rng::new(0);
        assert_eq!(rng.next(), 0xe220_a839_7b1d_cdaf);
        assert_ne!(super::Rng::entropy(), super::Rng::entropy());
    }
}
