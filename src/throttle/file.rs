//! A file whose writes wait for a valve. Everything else is the file's own.

use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::Valve;
use crate::error::Result;
use crate::vfs::{File, Hint, IoStats, RawRead, View};

/// What [`Valve::over`] makes.
#[derive(Debug)]
pub(super) struct LimitedFile {
    file: Arc<dyn File>,
    valve: Arc<Valve>,
}

impl LimitedFile {
    pub(super) fn new(file: Arc<dyn File>, valve: Arc<Valve>) -> Self {
        Self { file, valve }
    }
}

impl File for LimitedFile {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.file.truncate(len)
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.file.allocate(len)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.valve.pass(bytes.len());
        self.file.write_at(offset, bytes)
    }
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.valve.pass(parts.iter().map(|part| part.len()).sum());
        self.file.write_vectored_at(offset, parts)
    }
    fn flush(&self) -> Result<()> {
        self.file.flush()
    }
    fn sync(&self) -> Result<()> {
        self.file.sync()
    }
    fn advise(&self, range: Range<u64>, hint: Hint) {
        self.file.advise(range, hint);
    }
    fn alignment(&self) -> usize {
        self.file.alignment()
    }
    fn lends(&self) -> bool {
        self.file.lends()
    }
    fn shares(&self) -> bool {
        self.file.shares()
    }
    fn view(&self, range: Range<u64>) -> Result<View> {
        self.file.view(range)
    }
    fn try_view(&self, range: Range<u64>) -> Result<Option<View>> {
        self.file.try_view(range)
    }
    fn raw_read(&self, range: Range<u64>) -> Option<RawRead<'_>> {
        self.file.raw_read(range)
    }
    fn stats(&self) -> IoStats {
        self.file.stats()
    }
}
