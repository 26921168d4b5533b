//! Running: each system in a process of its own, in turns, and what is kept of that.

pub(crate) mod child;
pub(crate) mod driver;
pub(crate) mod job;
mod keys;
mod mix;
pub(crate) mod outcome;
pub(crate) mod process;
mod progress;
pub(crate) mod results;
pub(crate) mod selection;
mod steps;
