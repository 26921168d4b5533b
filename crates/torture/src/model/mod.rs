//! A model beside the database: random histories must give the answers of a sorted map, through flushes,
//! compactions, snapshots, closing, kills and power cuts, whatever keyspaces are made of. What a kill or a power cut may take away is a
//! suffix of the history, and nothing that had been promised.

mod clients;
mod history;
mod left;
mod operation;
mod queue;
mod standing;
mod world;

use std::cell::Cell;
use std::path::Path;

use proptest::collection::vec;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

pub use self::left::assert_closed;
use self::world::{Figures, World};
pub use self::world::{assert_no_order, remove_all};
use crate::report::Report;
use crate::setting::Setting;
use crate::watch::watched;
use crate::{Dice, panics, simulated_in_peace};

/// The most operations of a history.
const LONGEST: usize = 160;
/// What a history does without is done so many times as seldom.
const FEW: u32 = 20;
/// So often it is tried to make a history that fails shorter.
pub const SHORTER: u32 = 2000;

/// Plays the history of a setting to a new database, in memory, or in `dir`, which is empty then. In memory, with the feature
/// `simulation`, the order of threads is the seed's, too. It is tried so often to make a history that fails `shorter` before it is told, which takes some time.
pub fn run(setting: Setting, dir: Option<&Path>, shorter: u32) -> Report {
    let mut dice = Dice::new(setting.seed);
    let bytes: [u8; 32] = std::array::from_fn(|_| dice.roll(256) as u8);
    let config = Config {
        cases: 1,
        max_shrink_iters: shorter,
        max_shrink_time: 60_000,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let figures = Cell::new(Figures::default());
    let is_swarm = dice.roll(3) == 0;
    let operations = operation::operations(|usual| match is_swarm {
        true => of_swarm(usual, &mut dice),
        false => usual,
    });
    let outcome = runner.run(&vec(operations, 1..LONGEST), |operations| {
        let play = || {
            let mut world = World::new(setting, dir);
            operations.iter().for_each(|operation| world.run(operation));
            world.finish()
        };
        let in_memory = dir.is_none();
        let played = panics::caught(|| {
            watched(format!("model/{setting}"), || {
                if in_memory { simulated_in_peace(setting.seed, play) } else { play() }
            })
        });
        if let Some(dir) = dir {
            let path = dir.join("test.db");
            if path.exists() {
                std::fs::remove_dir_all(path).expect("the database can be removed");
            }
        }
        played.map(|played| figures.set(played)).map_err(TestCaseError::fail)
    });
    let problem = match outcome {
        Ok(()) => return report(figures.get()),
        Err(TestError::Fail(reason, operations)) => format!("{reason}: {operations:?}"),
        Err(TestError::Abort(reason)) => reason.to_string(),
    };
    Report::of_violation(format!("model/{setting}"), problem)
}

/// The weight of a kind of operation in a history that does without about half of them, but for a few, so that it comes to states which
/// the others keep it from, and does some of them much more often than usual.
///
/// *Source:* A. Groce et al., *Swarm Testing*, ISSTA 2012.
fn of_swarm(usual: u32, dice: &mut Dice) -> u32 {
    match (dice.roll(20), dice.roll(2)) {
        (0, _) => 60 * FEW,
        (_, 0) => 1,
        _ => usual * FEW,
    }
}

fn report(figures: Figures) -> Report {
    let mut report = Report { cases: 1, operations: figures.operations, ..Report::default() };
    report.fire("kill", figures.kills);
    report.fire("power-cut", figures.power_cuts);
    report.count("in mixes", figures.mixed);
    report.count("by several threads", figures.by_clients);
    report.count("flushes", figures.flushes);
    report.count("compactions", figures.compactions);
    report.count("reopenings", figures.reopenings);
    report.count("uses of handles of closed databases", figures.late);
    report
}

#[cfg(test)]
mod tests {
    use turbidite::Layer;

    use super::*;
    use crate::setting::Engines;

    #[cfg(feature = "simulation")]
    #[test]
    fn a_seed_is_a_history() {
        let figures = |seed| {
            let Report { operations, counts, violations, .. } =
                run(Setting::new(seed, Layer::Mmap), None, SHORTER);
            assert!(violations.is_empty(), "{violations:?}");
            (operations, counts)
        };
        assert_eq!(figures(5), figures(5));
        assert!((0..5).any(|seed| figures(seed).0 > 100));
    }

    /// Those of bugs that are mended.
    #[cfg(feature = "simulation")]
    #[test]
    fn seeds_that_have_met_wrong_answers() {
        for setting in [
            // A FIFO tree dropped tables beside an older one that was at work.
            "510156/all/pos-block-cache",
            // One dropped what a flush had written from its highest keys on.
            "900001/all/pos-block",
        ] {
            let report = run(setting.parse().unwrap(), None, SHORTER);
            assert!(report.violations.is_empty(), "{:?}", report.violations);
        }
    }

    #[test]
    fn each_engine_by_itself_gives_the_answers_of_the_model() {
        for engines in Engines::each() {
            for seed in 0..3 {
                let setting = Setting { engines, ..Setting::new(seed, Layer::Positional) };
                let report = run(setting, None, SHORTER);
                assert!(report.violations.is_empty(), "{:?}", report.violations);
            }
        }
    }
}
