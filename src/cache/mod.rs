//! Memory that reading takes, under a budget of bytes: cached blocks, and open files.

mod blocks;
mod handle;
mod open_files;
mod slabs;

pub(crate) use blocks::{BlockCache, FileBlocks};
pub(crate) use handle::Handle;
pub(crate) use open_files::{Closable, OpenFiles, Place, Rest};
