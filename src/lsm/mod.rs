//! The LSM-tree: [`tree`] puts it together from [memtables](crate::memtable), immutable [`table`]s, the [`version`]
//! that says which tables there are, [`compaction`], and [`values`] that are kept apart from their keys.

mod compaction;
mod cursor;
mod earlier;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod load;
mod lookups;
mod merging;
mod observed;
mod ranges;
mod read_trigger;
mod state;
mod status;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod tree;
pub(crate) mod values;
pub(crate) mod version;

pub(crate) use tree::Tree;
