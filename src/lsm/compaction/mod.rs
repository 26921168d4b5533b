//! Compaction: merging tables into deeper levels. [`policy`] says what is due, a pure function of the
//! version, one for each way to keep a tree in shape; [`retention`] says which entries may go; [`merge`] does it.

pub(crate) mod merge;
pub(crate) mod policy;
pub(crate) mod retention;
