//! Draws from a Zipf distribution, after Gray et al., "Quickly generating billion-record synthetic
//! databases" (SIGMOD 1994).

use rand::{Rng, RngExt};

/// How skewed the draws are; the usual value of benchmarks.
const THETA: f64 = 0.99;

/// A distribution over ranks, of which 0 is drawn most often.
pub struct Zipf {
    ranks: u32,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// The distribution over `ranks` ranks. Costs time proportional to them.
    pub fn new(ranks: u32) -> Self {
        let zeta_of = |n: u32| (1..=n).map(|i| f64::from(i).powf(-THETA)).sum::<f64>();
        let zeta = zeta_of(ranks);
        let eta = (1.0 - (2.0 / f64::from(ranks)).powf(1.0 - THETA)) / (1.0 - zeta_of(2) / zeta);
        Self { ranks, zeta, alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// Draws a rank.
    pub fn draw(&self, rng: &mut impl Rng) -> u32 {
        let u: f64 = rng.random();
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        let rank = f64::from(self.ranks) * (self.eta * (u - 1.0) + 1.0).powf(self.alpha);
        (rank as u32).min(self.ranks - 1)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn ranks_are_drawn_as_often_as_they_should() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let zipf = Zipf::new(1000);
        let draws = 200_000;
        let mut counts = vec![0_u32; 1000];
        for _ in 0..draws {
            counts[zipf.draw(&mut rng) as usize] += 1;
        }
        let share = |rank: usize| f64::from(counts[rank]) / f64::from(draws);
        assert!((share(0) - 1.0 / zipf.zeta).abs() < 0.005, "{}", share(0));
        let tenth = 10_f64.powf(-THETA) / zipf.zeta;
        assert!((share(9) / tenth - 1.0).abs() < 0.2, "{} {tenth}", share(9));
        assert!(counts[999] > 0);
    }

    #[test]
    fn few_ranks() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        for ranks in 1..4 {
            let zipf = Zipf::new(ranks);
            assert!((0..1000).all(|_| zipf.draw(&mut rng) < ranks));
        }
    }
}
