//! Which record every operation of a phase is about.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
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
    let mut rng = generator(seed, stream);
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

/// As many records as there are, drawn with replacement: 63 % of all are among them.
pub(super) fn with_replacement(records: u32, seed: u64, stream: u64) -> Vec<u32> {
    let mut rng = generator(seed, stream);
    (0..records).map(|_| rng.random_range(0..records)).collect()
}

fn generator(seed: u64, stream: u64) -> Xoshiro256PlusPlus {
    // Seeding mixes its input well: neighbouring seeds give unrelated numbers.
    Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(stream << 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_with_replacement_leave_out_a_share_of_1_by_e() {
        let mut drawn = with_replacement(50_000, 7, 1);
        assert_eq!((drawn.len(), drawn == with_replacement(50_000, 7, 2)), (50_000, false));
        drawn.sort_unstable();
        assert!(drawn[0] < 10 && drawn[49_999] >= 49_990);
        drawn.dedup();
        let share = drawn.len() as f64 / 50_000.0;
        assert!((share - (1.0 - (-1.0_f64).exp())).abs() < 0.01, "{share}");
    }

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
