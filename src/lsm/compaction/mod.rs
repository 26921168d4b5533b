//! Compaction: merging tables into deeper levels. [`policy`] says what is due, a pure function of the
//! version, one for each way to keep a tree in shape; [`claims`] which parts of the tree are free for it; [`retention`] says which entries may go; [`merge`] does
//! it; [`cuts`] and [`parts`] divide it among threads.

pub(crate) mod claims;
pub(crate) mod cuts;
pub(crate) mod merge;
pub(crate) mod parts;
pub(crate) mod policy;
pub(crate) mod retention;
