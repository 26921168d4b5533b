//! What benchmarks of key-value stores are made of. Everything is made from a seed, before any clock starts; nothing here
//! knows a store.
//!
//! - [`draws`]: which record every operation is about.
//! - [`Operations`]: keys, and what goes with them, laid out in the order of their use.
//! - [`Values`]: values with a chosen share of randomness.
//! - [`clock`]: operations on threads, and their latencies.
//! - [`machine`]: what the system says of this machine and of this process.

#![forbid(unsafe_code)]

pub mod clock;
pub mod draws;
pub mod machine;
mod operations;
mod values;
mod zipf;

pub use operations::{Operations, Part, push_key};
pub use values::{Start, Values};
pub use zipf::Zipf;
