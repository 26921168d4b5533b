//! The B+ tree engine: keys in order, in one file of pages, copy on write.
//!
//! - `store`: the engine. Memtables, checkpoints in the background, and which tree a reader sees.
//! - `writer`: the one writer of the file, and how a new tree becomes what the file holds (`meta`).
//! - `rewrite`: makes the next tree of the last one and a memtable's `changes`; `space` knows which pages are free.
//! - `root`: one tree, as readers see it, and its `cursor`; `file`: its nodes, checked and cached; `ahead`: leaves
//!   that are read one behind the other; `in_use`: the pages that it may read; `kept`: memory for nodes that trees keep.
//! - `node`: the bytes of a node. `verify`: checks all of it.

mod ahead;
mod changes;
mod cursor;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod in_use;
mod kept;
mod meta;
mod node;
mod rewrite;
mod root;
mod space;
mod store;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub(crate) use store::Store;
