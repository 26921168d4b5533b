//! Files that can be changed until the right to do so is taken back.
//!
//! Layers hold back what was written, and the lengths that files are to have, and files that are not needed any more are removed when
//! the last of their readers is gone. When a database is closed, nothing of that may happen to files that somebody else has opened, or put
//! in their place, since.
//!
//! Thread safety: any thread may use a file and take back the right, which waits for changes that are under way. A lock is shared
//! over each change; nothing else is waited for meanwhile.

use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::{File, Hint, IoStats, RawRead, View};
use crate::error::{Error, Result};
use crate::planted::{Bug, planted};
use crate::sync::RwLock;

/// The right to change files. A process that was forked from the one it is given to has not got it.
#[derive(Debug)]
pub(super) struct Right {
    process: u32,
    is_revoked: RwLock<bool>,
}

impl Default for Right {
    fn default() -> Self {
        Self { process: std::process::id(), is_revoked: RwLock::new(false) }
    }
}

impl Right {
    /// Takes it back: nothing is changed from now on.
    pub(super) fn revoke(&self) {
        *self.is_revoked.write().unwrap_or_else(PoisonError::into_inner) =
            !planted(Bug::KeepRights);
    }

    /// Makes a change, if there is the right to; `Closed` if not.
    pub(super) fn exercise<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.process != std::process::id() {
            return Err(Error::Closed);
        }
        let is_revoked = self.is_revoked.read().unwrap_or_else(PoisonError::into_inner);
        if *is_revoked { Err(Error::Closed) } else { change() }
    }
}

/// A file that is changed for as long as there is the right to. After that changes give [`Error::Closed`]; reads go on.
#[derive(Debug)]
pub(super) struct RevocableFile {
    inner: Arc<dyn File>,
    right: Arc<Right>,
}

impl RevocableFile {
    pub(super) fn new(inner: Arc<dyn File>, right: &Arc<Right>) -> Self {
        Self { inner, right: Arc::clone(right) }
    }

    fn change(&self, change: impl FnOnce(&dyn File) -> Result<()>) -> Result<()> {
        self.right.exercise(|| change(&*self.inner))
    }
}

impl File for RevocableFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.change(|file| file.truncate(len))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.change(|file| file.allocate(len))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.change(|file| file.write_at(offset, bytes))
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.change(|file| file.write_vectored_at(offset, parts))
    }

    fn flush(&self) -> Result<()> {
        self.change(|file| file.flush())
    }

    fn sync(&self) -> Result<()> {
        self.change(|file| file.sync())
    }

    fn advise(&self, range: Range<u64>, hint: Hint) {
        self.inner.advise(range, hint);
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn lends(&self) -> bool {
        self.inner.lends()
    }

    fn shares(&self) -> bool {
        self.inner.shares()
    }

    fn view(&self, range: Range<u64>) -> Result<View> {
        self.inner.view(range)
    }

    fn try_view(&self, range: Range<u64>) -> Result<Option<View>> {
        self.inner.try_view(range)
    }

    fn is_at_hand(&self, range: Range<u64>) -> bool {
        self.inner.is_at_hand(range)
    }

    fn raw_read(&self, range: Range<u64>) -> Option<RawRead<'_>> {
        self.inner.raw_read(range)
    }

    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}
