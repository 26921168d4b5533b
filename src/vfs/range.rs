//! Ranges of a file, checked before anything is done with them.

use std::io;
use std::ops::Range;
use std::path::Path;

use crate::error::{Error, Result};

/// The number of bytes in `range`; an error if it runs backwards or does not fit the address space.
#[inline]
pub(super) fn length(path: &Path, range: &Range<u64>) -> Result<usize> {
    range.end.checked_sub(range.start).and_then(|len| usize::try_from(len).ok()).ok_or_else(|| {
        Error::io("read", path, Some(range.start), io::ErrorKind::InvalidInput.into())
    })
}

/// The place of `len` bytes at `offset` inside the first `limit` bytes of a file, if they lie there.
#[inline]
pub(super) fn within(limit: usize, offset: u64, len: usize) -> Option<usize> {
    let start = usize::try_from(offset).ok()?;
    (start <= limit && len <= limit - start).then_some(start)
}

/// The error of reading bytes at `offset` that the file does not have.
#[cold]
pub(super) fn ends_early(path: &Path, offset: u64) -> Error {
    let source =
        io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before the bytes asked for");
    Error::io("read", path, Some(offset), source)
}
