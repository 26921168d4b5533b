//! The memtable: the newest entries of a keyspace, in memory, to be read by key or in order. Engines that keep keys in
//! order write to it first.
//!
//! Thread safety: one writer at a time, any number of readers beside it that never wait for it; see [`table`].

mod account;
mod arena;
mod entry;
mod index;
mod order;
mod stack;
mod table;
mod tags;

pub(crate) use stack::{Frozen, Memtables};
pub(crate) use table::{Memtable, MemtableCursor};
