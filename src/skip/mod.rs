//! The skip engine: a sorted file built by merging, with a memtable in front.
//!
//! - [`reduce`] makes one value of several that were put under one key

mod reduce;
