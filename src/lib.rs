//! Turbidite: an embedded key-value store.

mod base;
mod cache;
mod error;
mod filter;
mod iter;
mod lsm;
pub mod vfs;

pub use base::{Slice, View};
pub use error::{Error, ErrorKind, Result};
