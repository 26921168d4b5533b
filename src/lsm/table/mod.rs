//! The table: an immutable file of entries in order.
//!
//! ```text
//! data blocks | index | filter | properties | dictionary | points | ranges | footer
//!
//! data block   4 KiB or so of entries, or one larger entry                     block.rs
//! index        finds the one block that can hold a key                         index.rs
//! filter       says of most absent keys that they are absent; may be missing   crate::filter
//! properties   counts, the smallest and largest key, how blocks are compressed properties.rs
//! dictionary   what compressed blocks have in common; may be missing           packing.rs
//! points       where in its block each key's newest entry is; may be missing    points.rs
//! ranges       range tombstones; may be missing                                ranges.rs
//! footer       the lengths of the parts, identity, version, magic              footer.rs
//! ```
//!
//! Every part but the footer is followed by its codec and checksum (stored.rs). The parts lie end to
//! end, so that every byte of the file is covered by a checksum. All numbers are little-endian. Data
//! blocks may be compressed, each by itself; all else is not.
//!
//! A table is written once, by a [`TableBuilder`], and read by any number of threads through a
//! [`Table`]: [`get`](Table::get) for one key, [`cursor`](Table::cursor) for many,
//! [`verify`](Table::verify) for all.
//!
//! Invariants of a table that was written whole:
//! 1. Entries are in strict order of [`compare`](crate::base::key::compare), across blocks too.
//! 2. A block's last entry is not behind its separator; the next block's first entry is.
//! 3. The filter and the points hold every user key.
//! 4. All keys that range tombstones cover are in the table's range of keys.

mod block;
mod block_builder;
mod block_cursor;
mod builder;
mod cursor;
mod footer;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod index;
mod key_file;
mod packing;
mod points;
mod properties;
mod ranges;
mod reader;
mod stored;
#[cfg(test)]
mod tests;
mod verify;
mod whole;

use std::path::Path;

use crate::error::Error;

pub(crate) use builder::{TableBuilder, TableLimits, TableOptions, TableSummary};
pub(crate) use cursor::{ReadMode, TableCursor};
pub(crate) use ranges::{follower_below, last_below};
pub(crate) use reader::{Found, Kept, Place, Table, is_of_length, unless_deleted};

/// Bytes that are not what was written, and why; where they are is known one floor above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Damage(&'static str);

impl Damage {
    #[cold]
    fn at(self, file: &Path, offset: u64) -> Error {
        Error::corruption(file, offset, self.0)
    }
}
