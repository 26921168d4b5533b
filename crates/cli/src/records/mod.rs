//! How text files of records are kept in a keyspace so that they come out as they went in.
//!
//! A record is stored under its key in the keyspace, verbatim but without its line ending. Which
//! [piece](turbidite_records) follows which is stored in a keyspace beside it, see [`order`].

mod loader;
pub(crate) mod order;

pub(crate) use loader::Loader;
