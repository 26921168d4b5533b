//! The memtable: the newest entries, in memory, sorted.

mod arena;
mod entry;
mod index;
mod table;

pub(crate) use table::{Memtable, MemtableCursor};
