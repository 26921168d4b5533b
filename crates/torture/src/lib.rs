//! What the promises of Turbidite are tried with, for minutes in its tests and for days by whoever wants to know.
//!
//! A workload does to a database what programs do to it, and its [`history`] knows what must be left after each call. [Power cuts](crash)
//! are made at every boundary between two operations of the file system, all of which is in memory and remembers what was done to it;
//! the images that a power cut may leave are recovered, compared with the history, written to and recovered again.
//!
//! Random histories are played to a database and to a [`model`], which must give the same answers.
//!
//! A workload or a history that fails is made shorter, as far as it still fails.
//!
//! Everything is drawn from one number, the seed. With the feature `simulation` that goes for the order of threads, too: the same seed is the
//! same trace, and a [case](crash::CaseId) that failed can be tried again by its name. What opens damaged files, half of what threads do at the same time, and what works on real files, has its
//! threads in an order of their own.

#![forbid(unsafe_code)]

pub mod choices;
#[cfg(feature = "simulation")]
mod complaints;
pub mod crash;
mod dice;
pub mod faults;
pub mod flip;
pub mod history;
pub mod kill;
pub mod linear;
pub mod model;
#[cfg(turbidite_planted_bugs)]
pub mod mutants;
mod panics;
#[cfg(feature = "simulation")]
mod processors;
pub mod report;
pub mod setting;
pub mod soak;
pub mod steps;
mod threads;
pub mod watch;
pub mod workers;

pub use dice::Dice;
pub use report::{Report, Violation};
pub use setting::{Engines, Setting};

/// Does `work` in an order of threads that `seed` decides, with the feature `simulation`.
fn simulated<T>(seed: u64, work: impl FnOnce() -> T) -> T {
    #[cfg(feature = "simulation")]
    return processors::on_one(|| turbidite::simulation::run(seed, work));
    #[cfg(not(feature = "simulation"))]
    {
        let _ = seed;
        work()
    }
}

/// Whether little does what takes much elsewhere in the order that `seed` decides.
fn is_small(seed: u64) -> bool {
    #[cfg(feature = "simulation")]
    return turbidite::simulation::is_small(seed);
    #[cfg(not(feature = "simulation"))]
    {
        let _ = seed;
        false
    }
}

/// The same as [`simulated`] where nothing is wrong with disk and files: then the store has nothing to complain of.
///
/// # Panics
/// If it does.
fn simulated_in_peace<T>(seed: u64, work: impl FnOnce() -> T) -> T {
    #[cfg(feature = "simulation")]
    return complaints::without_any(seed, work);
    #[cfg(not(feature = "simulation"))]
    simulated(seed, work)
}
