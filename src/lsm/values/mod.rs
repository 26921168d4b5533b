//! Values kept apart from their keys, as in WiscKey (Lu et al., *Separating Keys from Values in SSD-Conscious Storage*,
//! FAST 2016): long values are written to *value files* once, and tables have references to them, so that a compaction
//! moves references instead of values.
//!
//! ```text
//! record.rs      a value file's header, and the record of a value in it: the bytes
//! reference.rs   what a table has in the place of a value
//! writer.rs      writes a value file
//! file.rs        a value file as versions know it, and its open form, which reads values
//! set.rs         the value files of a version, and how much of each is referred to
//! placement.rs   where a flush or a compaction puts each value
//! collection.rs  which values move to new files, so that old ones can go
//! cursor.rs      the records a reader sees, with their values; reads ahead
//! verify.rs      checks all of it
//! ```
//!
//! A flush and a compaction put values of at least so many bytes, as the options say, into new value files. A table says,
//! in the manifest, how many bytes of which value files it refers to; so what is *garbage* in a file is known for each
//! version, without a read: all that no table refers to. A file that no table refers to goes with the last version that had
//! it. Values of files that have become mostly garbage are moved by whatever compaction meets them; if none does, one is
//! made for them.
//!
//! Invariants:
//! 1. A value file is complete, and synced, before a table that refers to it is in the manifest.
//! 2. The value files of a version are those that its tables refer to: a reader that holds the version can read all values.
//! 3. A value file is never written again.

mod collection;
mod cursor;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod placement;
mod record;
mod reference;
mod set;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub(crate) use collection::{Moves, due};
pub(crate) use cursor::ValueCursor;
pub(crate) use file::ValueFile;
pub(crate) use placement::Placement;
pub(crate) use set::{Place, Share, ValueFiles, read_all};
pub(crate) use verify::{References, verify_files};
