//! The B+ tree engine: ordered, copy-on-write.
//!
//! `node/` is the byte format of the tree's nodes.

mod node;
