//! What the public API promises, over every file system and layer, with and without the log, and wherever
//! in the engine the data has got to.

mod choices;
mod closing;
mod layers;
mod limits;
mod log;
mod memtables;
mod opening;
mod race;
mod reading;
mod resources;
mod skip;
mod snapshots;
mod state;
mod tree;
mod writing;
