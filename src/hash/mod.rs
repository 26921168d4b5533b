//! The hash engine: keys without order, found by their hash.

//!
//! - [`store`] puts it together; reading one key is there, reading [`many`] and [`scan`]ning beside it
//! - [`writer`] puts records into the tail and keeps the [`index`]
//! - [`segment`]s hold [`record`]s, in [`memory`] or in files; [`slots`] map addresses to them
//! - [`upkeep`] finds out what is dead, gives space back, and writes [`checkpoint`]s
//! - the [`manifest`] says what files there are

mod checkpoint;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod index;
mod manifest;
mod many;
mod memory;
mod record;
mod scan;
mod segment;
mod slots;
mod store;
#[cfg(test)]
mod tests;
mod upkeep;
mod writer;

pub(crate) use store::Store;
