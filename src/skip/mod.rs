//! The skip engine: a sorted file built by merging, with a memtable in front.
//!
//! - [`reduce`] makes one value of several that were put under one key
//! - [`reduced`] walks over what a reader sees when it is made that way

mod reduce;
mod reduced;
