//! One binary for the tests of the whole database through its public interface.

mod architecture;
mod choices;
mod clears;
mod compactions;
mod conformance;
mod crash;
mod ends;
mod events;
mod faults;
mod flip;
mod formats;
mod full_disk;
mod history;
mod kill;
mod levels;
mod loads;
mod memory;
mod model;
mod multi_get;
mod panics;
mod pressure;
mod processes;
mod ranges;
mod rot;
mod setup;
#[cfg(feature = "simulation")]
mod simulation;
mod steps;
mod syncs;
mod tables;
mod typed;
mod values;
