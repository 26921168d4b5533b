//! Which record every operation is about.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::Zipf;

/// Every record once, in an order in which all are equally likely. `stream` tells repeated draws apart.
#[must_use]
pub fn shuffled(records: u32, seed: u64, stream: u64) -> Vec<u32> {
    let mut all: Vec<u32> = (0..records).collect();
    all.shuffle(&mut generator(seed, stream));
    all
}

/// `count` draws from a Zipf distribution (0.99) over the records, of which there is at least one. Those often drawn are
/// spread over all, and are the same in all streams of a seed.
#[must_use]
pub fn skewed(records: u32, count: u32, seed: u64, stream: u64) -> Vec<u32> {
    let mut all: Vec<u32> = (0..records).collect();
    all.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut rng = generator(seed, stream);
    let zipf = Zipf::new(records);
    (0..count).map(|_| all[zipf.draw(&mut rng) as usize]).collect()
}

/// As many records as there are, drawn with replacement: 63 % of all are among them.
#[must_use]
pub fn with_replacement(records: u32, seed: u64, stream: u64) -> Vec<u32> {
    uniform(records, records, seed, stream)
}

/// `count` draws, each of any of the records.
#[must_use]
pub fn uniform(records: u32, count: u32, seed: u64, stream: u64) -> Vec<u32> {
    let mut rng = generator(seed, stream);
    (0..count).map(|_| rng.random_range(0..records)).collect()
}

/// `count` draws, nine of ten of them from the hundredth of the records in the middle (one record at least), which are
/// neighbours, and the others from all.
#[must_use]
pub fn hot_range(records: u32, count: u32, seed: u64, stream: u64) -> Vec<u32> {
    let mut rng = generator(seed, stream);
    let (first, hot) = (records / 2, (records / 100).max(1));
    let draw = |_| match rng.random_bool(0.9) {
        true => first + rng.random_range(0..hot),
        false => rng.random_range(0..records),
    };
    (0..count).map(draw).collect()
}

/// The order that the write-path study calls shuffled: it swaps record `i` with one that a single step of a multiplicative
/// generator makes of `i`. It is always the same, and of neighbours 61 % ascend where 50 % would by chance.
#[must_use]
pub fn study_order(records: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..records).collect();
    for i in (1..all.len()).rev() {
        let drawn = (i as u64 * 48_271 % 2_147_483_647) as usize % (i + 1);
        all.swap(i, drawn);
    }
    all
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
        let draw = |stream| shuffled(5000, 7, stream);
        let mut drawn = draw(1);
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
        assert!(!drawn.is_sorted());
        drawn.sort_unstable();
        assert!(drawn.iter().copied().eq(0..5000));
    }

    #[test]
    fn skewed_draws_repeat() {
        let mut drawn = skewed(5000, 6000, 7, 1);
        assert_eq!(drawn.len(), 6000);
        drawn.sort_unstable();
        drawn.dedup();
        assert!(drawn.len() < 4000);
    }

    #[test]
    fn nine_of_ten_hot_draws_are_neighbours() {
        let drawn = hot_range(50_000, 20_000, 7, 1);
        assert_eq!(drawn.len(), 20_000);
        let hot = drawn.iter().filter(|&&record| (25_000..25_500).contains(&record)).count();
        assert!((17_700..18_400).contains(&hot), "{hot}");
        assert!(drawn.iter().min() < Some(&100) && drawn.iter().max() > Some(&49_900));
        assert_eq!(hot_range(1, 3, 7, 1), [0, 0, 0]);
    }

    #[test]
    fn the_order_of_the_study_is_as_weak_as_it_was_found_to_be() {
        let mut order = study_order(600_000);
        let ascending = order.windows(2).filter(|pair| pair[0] < pair[1]).count() as f64;
        let share = ascending / 599_999.0;
        assert!((share - 0.61).abs() < 0.01, "{share}");
        let true_one = shuffled(600_000, 1, 1);
        let ascending = true_one.windows(2).filter(|pair| pair[0] < pair[1]).count() as f64;
        assert!((ascending / 599_999.0 - 0.5).abs() < 0.01);
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..600_000));
    }
}
