//! The memtable: the newest entries, in memory, sorted.

mod arena;
mod skiplist;

pub(crate) use skiplist::{Memtable, MemtableCursor};
