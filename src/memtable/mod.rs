//! The memtable: the newest entries of a keyspace, in memory, sorted. Engines that keep keys in order write to it
//! first.
//!
//! Thread safety: one writer at a time, any number of readers beside it that never wait; see [`table`].

mod arena;
mod entry;
mod index;
mod stack;
mod table;

pub(crate) use stack::{ENTRIES_TO_LEARN_FROM, Frozen, Memtables};
pub(crate) use table::{Memtable, MemtableCursor};
