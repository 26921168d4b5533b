//! Reading ahead: leaves that are read one behind the other, and lie so in the file, are read in runs of pages.
//!
//! A checkpoint writes leaves in key order to the lowest free pages, so most neighbours are neighbours in the file, too. A
//! second leaf in a row begins a run.

use super::file::PageFile;
use super::in_use::InUse;
use super::node::Pointer;
use crate::base::View;
use crate::error::Result;

/// Bytes of a run.
const RUN: u64 = 64 << 10;

/// What one walk over leaves has read ahead.
#[derive(Default)]
pub(super) struct Ahead {
    /// The page behind the leaf that was read last.
    next: u64,
    /// The first page of a run, and its bytes.
    run: Option<(u64, View)>,
}

impl Ahead {
    /// The bytes of the leaf at `at`, not yet checked, of a tree that has `pages`.
    pub(super) fn read(&mut self, file: &PageFile, at: Pointer, pages: &InUse) -> Result<View> {
        let follows = at.page() == self.next;
        self.next = at.page() + at.pages();
        if let Some(bytes) = self.held(file, at) {
            return Ok(bytes);
        }
        let run = at.page()..(at.page() + RUN / file.page_size() as u64).min(pages.end());
        let last = match file.copies() {
            // Others may be written to meanwhile, and who copies out of a page cache must not meet that.
            true if follows => pages.first_missing(run),
            _ => run.end,
        };
        if follows && last > at.page() + at.pages() {
            // What lies behind the leaf may not be readable, and need not be.
            self.run = file.read_pages(at.page()..last).ok().map(|run| (at.page(), run));
            if let Some(bytes) = self.held(file, at) {
                return Ok(bytes);
            }
        }
        file.read(at)
    }

    /// The bytes of the leaf at `at`, if they are in the run.
    fn held(&self, file: &PageFile, at: Pointer) -> Option<View> {
        let (first, run) = self.run.as_ref()?;
        let start = at.page().checked_sub(*first)? as usize * file.page_size();
        let end = start + at.pages() as usize * file.page_size();
        (end <= run.len()).then(|| run.slice(start..end))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::IoSlice;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use super::super::kept::Kept;
    use super::*;
    use crate::cache::BlockCache;
    use crate::vfs::{File, Fs, Hint, IoStats, Layer, MemoryFs};

    const PAGE: u64 = 4096;

    /// A file that takes note of which pages are read, and has none of them in memory.
    #[derive(Debug)]
    pub(in crate::btree) struct Noted {
        inner: Arc<dyn File>,
        shares: bool,
        read: Mutex<Vec<std::ops::Range<u64>>>,
    }

    impl Noted {
        pub(in crate::btree) fn new(inner: &Arc<dyn File>, shares: bool) -> Arc<Self> {
            Arc::new(Self { inner: Arc::clone(inner), shares, read: Mutex::default() })
        }

        /// The pages that each read so far had, in units of 4096 bytes.
        pub(in crate::btree) fn read(&self) -> Vec<std::ops::Range<u64>> {
            self.read.lock().unwrap().clone()
        }

        fn note(&self, start: u64, end: u64) {
            self.read.lock().unwrap().push(start / PAGE..end / PAGE);
        }
    }

    impl File for Noted {
        fn path(&self) -> &Path {
            self.inner.path()
        }
        fn len(&self) -> Result<u64> {
            self.inner.len()
        }
        fn truncate(&self, len: u64) -> Result<()> {
            self.inner.truncate(len)
        }
        fn allocate(&self, len: u64) -> Result<()> {
            self.inner.allocate(len)
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            self.note(offset, offset + buffer.len() as u64);
            self.inner.read_at(offset, buffer)
        }
        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            self.inner.write_at(offset, bytes)
        }
        fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
            self.inner.write_vectored_at(offset, parts)
        }
        fn sync(&self) -> Result<()> {
            self.inner.sync()
        }
        fn advise(&self, range: std::ops::Range<u64>, hint: Hint) {
            self.inner.advise(range, hint);
        }
        fn shares(&self) -> bool {
            self.shares
        }
        fn view(&self, range: std::ops::Range<u64>) -> Result<View> {
            self.note(range.start, range.end);
            self.inner.view(range)
        }
        fn try_view(&self, _: std::ops::Range<u64>) -> Result<Option<View>> {
            Ok(None)
        }
        fn stats(&self) -> IoStats {
            self.inner.stats()
        }
    }

    /// What is read for a walk over some leaves while other pages are free.
    fn read(shares: bool) -> Vec<std::ops::Range<u64>> {
        let path = Path::new("/tree");
        let inner = MemoryFs::new().create(path, Layer::Positional).unwrap();
        inner.allocate(40 * PAGE).unwrap();
        let noted = Noted::new(&inner, shares);
        let cache = Arc::new(BlockCache::new(0));
        let (file, kept) = (Arc::clone(&noted), Kept::of_its_own(0));
        let file = PageFile::new(file, inner, path, 1, PAGE as usize, cache, kept);
        let in_use = InUse::all_but(30, [(7, 1), (12, 3)].into_iter()).unwrap();
        let mut ahead = Ahead::default();
        for page in [2, 3, 4, 5, 6, 8, 9, 10, 11, 15, 16, 17] {
            let leaf = ahead.read(&file, Pointer::new(page, 1, 1), &in_use).unwrap();
            assert_eq!(leaf.len() as u64, PAGE);
        }
        noted.read()
    }

    #[test]
    fn leaves_in_a_row_are_read_with_what_lies_behind_them() {
        assert_eq!(read(false), [2..3, 3..19]);
    }

    /// A checkpoint may be writing to free pages, and the memory of a page cache must not be read meanwhile.
    #[test]
    fn free_pages_are_not_copied_out_of_a_page_cache() {
        assert_eq!(read(true), [2..3, 3..7, 8..9, 9..12, 15..16, 16..30]);
    }
}
