//! A file system of which one call panics.
//!
//! Every call that can fail is counted, over all files; the one that was told panics before anything is done, and no other one
//! does. A file's length and hints are no such calls.

use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use turbidite::vfs::{Access, File, Fs, Hint, IoStats, Layer, LockGuard, PathKind, View};
use turbidite::{Error, Result};

/// What all files of a file system count together.
#[derive(Debug)]
struct Counter {
    calls: AtomicU64,
    panics_at: u64,
}

impl Counter {
    fn count(&self) {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        assert_ne!(number, self.panics_at, "call {number} panics on purpose");
    }
}

#[derive(Clone, Debug)]
pub(super) struct PanickingFs {
    inner: Arc<dyn Fs>,
    counter: Arc<Counter>,
}

impl PanickingFs {
    /// One that panics at the call with this number, from 0 on.
    pub(super) fn new(inner: Arc<dyn Fs>, panics_at: u64) -> Self {
        Self { inner, counter: Arc::new(Counter { calls: AtomicU64::new(0), panics_at }) }
    }

    /// How many calls there were.
    pub(super) fn calls(&self) -> u64 {
        self.counter.calls.load(Ordering::SeqCst)
    }

    fn counted(&self) -> &dyn Fs {
        self.counter.count();
        &*self.inner
    }

    fn wrap(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(PanickingFile { inner, counter: Arc::clone(&self.counter) })
    }
}

impl Fs for PanickingFs {
    fn open(&self, path: &Path, access: Access, layer: Layer) -> Result<Arc<dyn File>> {
        self.counted().open(path, access, layer).map(|file| self.wrap(file))
    }
    fn create(&self, path: &Path, layer: Layer) -> Result<Arc<dyn File>> {
        self.counted().create(path, layer).map(|file| self.wrap(file))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.counted().remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.counted().rename(from, to)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.counted().create_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.counted().remove_dir(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.counted().list(dir)
    }
    fn kind(&self, path: &Path) -> Result<Option<PathKind>> {
        self.counted().kind(path)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.counted().sync_dir(dir)
    }
    fn lock(&self, path: &Path, access: Access) -> Result<LockGuard> {
        self.counted().lock(path, access)
    }
    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}

#[derive(Debug)]
struct PanickingFile {
    inner: Arc<dyn File>,
    counter: Arc<Counter>,
}

impl PanickingFile {
    fn counted(&self) -> &dyn File {
        self.counter.count();
        &*self.inner
    }
}

impl File for PanickingFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.counted().truncate(len)
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.counted().allocate(len)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.counted().read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.counted().write_at(offset, bytes)
    }
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.counted().write_vectored_at(offset, parts)
    }
    fn flush(&self) -> Result<()> {
        self.counted().flush()
    }
    fn sync(&self) -> Result<()> {
        self.counted().sync()
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
        self.counted().view(range)
    }
    fn try_view(&self, range: Range<u64>) -> Result<Option<View>> {
        self.counted().try_view(range)
    }
    fn is_at_hand(&self, range: Range<u64>) -> bool {
        self.inner.is_at_hand(range)
    }
    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}

#[test]
fn one_call_panics_and_nothing_is_done() {
    let memory = Arc::new(turbidite::vfs::MemoryFs::new());
    let fs = PanickingFs::new(memory, 2);
    let file = fs.create("/file".as_ref(), Layer::Positional).unwrap();
    file.write_at(0, b"whole").unwrap();
    assert!(super::caught(|| file.write_at(1, b"lost")).is_none());
    assert_eq!(*file.view(0..5).unwrap(), *b"whole");
    assert!(matches!(fs.open("/none".as_ref(), Access::Read, Layer::Mmap), Err(Error::Io { .. })));
    assert_eq!(fs.calls(), 5);
}
