//! Text files of records, and how they are kept in a keyspace so that they come out as they went in.
//!
//! A file is cut into *pieces*: records, each with its line ending, and text that is no record (a byte
//! order mark, a header, blank lines of CSV and JSON Lines). A record is stored under its key in the
//! keyspace, verbatim but without its line ending. Which piece follows which is stored in a keyspace
//! beside it, see [`order`].

mod csv;
mod jsonl;
mod lines;
mod loader;
pub(crate) mod order;
mod parser;

pub(crate) use lines::Lines;
pub(crate) use loader::Loader;
pub(crate) use parser::{Format, Parser, Piece};
