//! The skip engine: keys in order, in one sorted file with skip links, built by merging. It suits large sets that are mostly
//! read: files are written from front to back only. After SkipDBM of Tkrzw.
//!
//! - `store`: the engine. Memtables, runs, the sorted file, and which of them a reader sees; `part` is a file as
//!   the store knows it, `manifest` says which there are.
//! - `merge`: many inputs into one file; `policy`: which runs are merged when; `load` is what is written in order.
//! - `file`: a sorted file that is read, and its `cursor`; `writer` writes one. `block`, `links` and `footer` are what it
//!   is made of. `verify` checks all of it.
//! - `reduce`: what several values of one key become; `reduced` walks over what a reader sees then; `positions` counts
//!   what he sees.

mod block;
mod cursor;
mod file;
mod footer;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod links;
mod load;
mod manifest;
mod merge;
mod part;
mod policy;
mod positions;
mod reduce;
mod reduced;
mod store;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub(crate) use store::Store;
