//! Text files of records, cut into *pieces*: records, each with its line ending, and text that is no record (a byte order mark,
//! a header, blank lines of CSV and JSON Lines). All pieces one behind the other are the file, byte for byte.
//!
//! Memory: that of the longest record, which is at most 256 MiB. Time: in proportion to the bytes read.
//!
//! Thread safety: plain values, without shared state.

#![forbid(unsafe_code)]

mod csv;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod jsonl;
mod lines;
mod parser;

pub use error::{Error, Result};
pub use lines::{Ending, Lines};
pub use parser::{Format, Parser, Piece};
