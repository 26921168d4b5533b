//! A model beside the database: random histories must give the answers of a sorted map, through flushes,
//! compactions, snapshots, closing, kills and power cuts, whatever keyspaces are made of. What a kill or a power cut may take away is a
//! suffix of the history, and nothing that had been promised.

mod history;
mod operation;
mod world;

use std::cell::Cell;
use std::path::Path;

use proptest::collection::vec;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use turbidite::Layer;

use self::world::World;
pub use self::world::{Figures, assert_no_order};
use crate::{Dice, panics, simulated};

/// The most operations of a history.
const LONGEST: usize = 160;

/// A history that gave another answer than the model.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed of the history.
    pub seed: u64,
    /// The layer of all files.
    pub layer: Layer,
    /// What was wrong, and the shortest history found with which something is.
    pub problem: String,
}

/// Plays the history of a seed to a new database with files of `layer`, in memory, or in `dir`, which is empty then. In memory, with the feature
/// `simulation`, the order of threads is the seed's, too.
///
/// # Errors
/// If an answer is another than that of the model, or something panics. The history is made shorter first, which takes some time.
pub fn play(seed: u64, layer: Layer, dir: Option<&Path>) -> Result<Figures, Violation> {
    let mut dice = Dice::new(seed);
    let bytes: [u8; 32] = std::array::from_fn(|_| dice.roll(256) as u8);
    let config =
        Config { cases: 1, max_shrink_iters: 2000, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let figures = Cell::new(Figures::default());
    let outcome = runner.run(&vec(operation::operations(), 1..LONGEST), |operations| {
        let play = || {
            let mut world = World::new(layer, dir, seed);
            operations.iter().for_each(|operation| world.run(operation));
            world.finish()
        };
        let played = panics::caught(|| if dir.is_none() { simulated(seed, play) } else { play() });
        if let Some(dir) = dir {
            let path = dir.join("test.db");
            if path.exists() {
                std::fs::remove_dir_all(path).expect("the database can be removed");
            }
        }
        played.map(|played| figures.set(played)).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => Ok(figures.get()),
        Err(TestError::Fail(reason, operations)) => {
            Err(Violation { seed, layer, problem: format!("{reason}: {operations:?}") })
        }
        Err(TestError::Abort(reason)) => {
            Err(Violation { seed, layer, problem: reason.to_string() })
        }
    }
}

#[cfg(all(test, feature = "simulation"))]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_history() {
        let play = |seed| play(seed, Layer::Mmap, None).unwrap();
        let figures = |seed| {
            let Figures { operations, flushes, compactions, reopenings } = play(seed);
            (operations, flushes, compactions, reopenings)
        };
        assert_eq!(figures(5), figures(5));
        assert!((0..5).any(|seed| figures(seed).0 > 100));
    }
}
