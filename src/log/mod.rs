//! The log: every write of every logged keyspace, in commit order, before it is acknowledged.
//!
//! A log is a chain of *segments*: files of a fixed size, prepared ahead of the writer and recycled when
//! every keyspace has persisted what they hold. A segment begins with a header and a *link* record that
//! names the segment before it and where that one ends. Records carry their length, sequence number, the
//! identity of their segment and a checksum bound to all of these and to their offset, so that what a
//! recycled segment held in an earlier life is never taken for a record of this one.
//!
//! Every record also says up to which sequence number the log was known to be safe from power loss when
//! it was written, and a *mark* record says so after each sync. That is how recovery tells a torn tail,
//! which is cut off and reported, from damage to what was synced, which is an error: see [`reader`].
//!
//! [`edits`] uses the same records for the small logs of edits that the catalog and the engines keep.

pub(crate) mod edits;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod segment;
mod tail;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

pub(crate) use edits::EditLog;
pub(crate) use reader::{Log, ReadSegment, Recovered, Writes};
pub(crate) use segment::{FORMAT_VERSION as LOG_VERSION, Segment, Segments, path as segment_path};
pub(crate) use writer::{AppendError, Writer};
