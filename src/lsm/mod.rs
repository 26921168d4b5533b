//! The LSM-tree.

pub(crate) mod table;
