//! Which record every operation of a phase is about.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::zipf::Zipf;
use super::{Order, Phase};

/// The records of the operations, in their order. `stream` tells repeated phases apart.
pub(super) fn records(
    order: Order,
    phase: Phase,
    records: u32,
    seed: u64,
    stream: u64,
) -> Vec<u32> {
    // Seeding mixes its input well: neighbouring seeds give unrelated numbers.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(stream << 32));
    let mut all: Vec<u32> = (0..records).collect();
    match order {
        Order::Sequential => all,
        Order::Skewed if !matches!(phase, Phase::Fill | Phase::Delete) => {
            // The same records are popular in all phases.
            all.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
            let zipf = Zipf::new(records);
            (0..records).map(|_| all[zipf.draw(&mut rng) as usize]).collect()
        }
        Order::Random | Order::Skewed => {
            all.shuffle(&mut rng);
            all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_every_record_once() {
        let draw = |stream| records(Order::Random, Phase::Get, 5000, 7, stream);
        let mut drawn = draw(1);
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
        assert!(!drawn.is_sorted());
        drawn.sort_unstable();
        assert!(drawn.iter().copied().eq(0..5000));
    }

    #[test]
    fn skewed_draws_repeat_but_fill_does_not() {
        let mut drawn = records(Order::Skewed, Phase::Get, 5000, 7, 1);
        drawn.sort_unstable();
        drawn.dedup();
        assert!(drawn.len() < 4000);
        let mut filled = records(Order::Skewed, Phase::Fill, 5000, 7, 0);
        filled.sort_unstable();
        filled.dedup();
        assert_eq!(filled.len(), 5000);
    }
}
