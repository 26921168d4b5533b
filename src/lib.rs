//! Turbidite: an embedded key-value store.

mod base;
mod error;
mod iter;
pub mod vfs;

pub use base::{Slice, View};
pub use error::{Error, ErrorKind, Result};
