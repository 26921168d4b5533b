//! The file below a paged file: its length, which of its pages are dirty, and writing them back.
//!
//! Thread safety: all methods may be called from any thread. The cache keeps a reference while the file is open,
//! so that whoever needs a frame can write back pages of any file.
//!
//! Invariants:
//! - `len` is the file's length as its users know it, `inner_len` that of the file below. Written back, the
//!   last page makes the file below longer than the file is; `trim` cuts that off. Where the file below is
//!   shorter, what it lacks is dirty in the cache, or zeros.
//! - A page that fails to be written back stays dirty. What the failed write left behind `inner_len` is never
//!   read, and cut off by the next `trim` (`torn`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, PoisonError, TryLockError};

use super::bounce::Bounce;
use super::frames::Latch;
use super::{Key, PageCache, Tally};
use crate::error::Result;
use crate::planted::{Bug, planted};
use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::vfs::File;

/// Up to so many bytes are written back with one call.
const RUN: usize = 1 << 20;
/// No page was used yet.
const NO_PAGE: u64 = u64::MAX;

/// The file below, and what is between it and its pages.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) inner: Arc<dyn File>,
    pub(super) id: u64,
    pub(super) tally: Tally,
    /// The page that was used last.
    recent: AtomicU64,
    len: AtomicU64,
    inner_len: AtomicU64,
    torn: AtomicBool,
    /// The frames of the dirty pages.
    dirty: Mutex<BTreeMap<u64, u32>>,
    shape: RwLock<()>,
    tail: RwLock<()>,
}

impl Backing {
    pub(super) fn new(inner: Arc<dyn File>, id: u64) -> Result<Self> {
        let len = inner.len()?;
        Ok(Self {
            inner,
            id,
            tally: Tally::default(),
            recent: AtomicU64::new(NO_PAGE),
            len: AtomicU64::new(len),
            inner_len: AtomicU64::new(len),
            torn: AtomicBool::new(false),
            dirty: Mutex::default(),
            shape: RwLock::default(),
            tail: RwLock::default(),
        })
    }

    #[inline]
    pub(super) fn key(&self, page: u64) -> Key {
        Key { file: self.id, page }
    }

    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.len.load(Acquire)
    }

    /// Makes the file reach to `end`, the bytes before which are there.
    pub(super) fn extend(&self, end: u64) {
        if end > self.len() {
            self.len.fetch_max(end, Release);
        }
    }

    pub(super) fn inner_len(&self) -> u64 {
        self.inner_len.load(Acquire)
    }

    /// Whether another page was used last. Several uses of a page in a row, as by a scan that reads record
    /// after record, count as one.
    #[inline]
    pub(super) fn is_new_use(&self, page: u64) -> bool {
        let is_new = self.recent.load(Relaxed) != page;
        if is_new {
            self.recent.store(page, Relaxed);
        }
        is_new
    }

    pub(super) fn share_shape(&self) -> RwLockReadGuard<'_, ()> {
        self.shape.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn own_shape(&self) -> RwLockWriteGuard<'_, ()> {
        self.shape.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn own_tail(&self) -> RwLockWriteGuard<'_, ()> {
        self.tail.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn dirty(&self) -> MutexGuard<'_, BTreeMap<u64, u32>> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a dirty page before others can see it in its frame.
    pub(super) fn note_dirty(&self, page: u64, frame: u32) {
        self.dirty().insert(page, frame);
    }

    /// Marks a page dirty whose bytes were changed.
    #[inline]
    pub(super) fn mark_dirty(&self, page: u64, latch: &Latch<'_>) {
        if latch.set_dirty() {
            self.note_dirty(page, latch.index());
        }
    }

    /// Fills `bytes` with whole pages from page `first` on; zeros where the file below has nothing. One read, if
    /// any.
    pub(super) fn read_pages(&self, first: u64, block: usize, bytes: &mut [u8]) -> Result<()> {
        let start = first * block as u64;
        let there = self.inner_len().saturating_sub(start).min(bytes.len() as u64) as usize;
        let (read, rest) = bytes.split_at_mut(there);
        if there > 0 {
            let outcome = self.inner.read_at(start, read);
            if !planted(Bug::KeepFailedRead) {
                outcome?;
            }
            self.tally.read(there.div_ceil(block) as u64);
        }
        rest.fill(0);
        Ok(())
    }

    /// Writes whole pages, which are in no frame and claimed, from page `first` on.
    pub(super) fn write_pages(&self, first: u64, block: usize, bytes: &[u8]) -> Result<()> {
        let start = first * block as u64;
        self.inner.write_at(start, bytes).inspect_err(|_| self.torn.store(true, Release))?;
        self.inner_len.fetch_max(start + bytes.len() as u64, Release);
        self.tally.wrote((bytes.len() / block) as u64);
        Ok(())
    }

    /// Writes all pages back that are dirty now.
    pub(super) fn write_back(&self, cache: &PageCache) -> Result<()> {
        let _tail = self.tail.read().unwrap_or_else(PoisonError::into_inner);
        let mut bounce = Bounce::default();
        let mut next = 0;
        loop {
            let Some((page, frame)) = self.dirty().range(next..).next().map(|(p, f)| (*p, *f))
            else {
                return Ok(());
            };
            next = page + 1;
            // If it has left its frame, it was written back for that.
            let Some(pin) = cache.frames.pin(frame, self.key(page)) else { continue };
            let latch = pin.latch();
            if latch.is_dirty() {
                let mut run = vec![latch];
                self.extend_run(cache, next.., &mut run);
                next = page + run.len() as u64;
                self.write_run(cache, page, &run, &mut bounce)?;
            }
        }
    }

    /// Writes a page back, with its dirty neighbours, so that its frame can be taken. Does nothing if others are
    /// at it.
    pub(super) fn write_back_around(&self, cache: &PageCache, page: u64) -> Result<()> {
        let _tail = match self.tail.try_read() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let mut run = Vec::new();
        self.extend_run(cache, page.., &mut run);
        if run.is_empty() {
            return Ok(());
        }
        let mut before = Vec::new();
        let room = run_pages(cache).saturating_sub(run.len());
        self.extend_run(cache, (page.saturating_sub(room as u64)..page).rev(), &mut before);
        let first = page - before.len() as u64;
        before.reverse();
        before.append(&mut run);
        self.write_run(cache, first, &before, &mut Bounce::default())
    }

    /// Latches `pages`, in this order, as long as they are dirty and nobody is at them.
    fn extend_run<'a>(
        &self,
        cache: &'a PageCache,
        pages: impl Iterator<Item = u64>,
        run: &mut Vec<Latch<'a>>,
    ) {
        let dirty = self.dirty();
        for page in pages {
            let latch = dirty
                .get(&page)
                .filter(|_| run.len() < run_pages(cache))
                .and_then(|frame| cache.frames.pin(*frame, self.key(page)))
                .and_then(|pin| pin.try_latch().ok())
                .filter(Latch::is_dirty);
            let Some(latch) = latch else { return };
            run.push(latch);
        }
    }

    /// Writes neighbouring pages with one call; they are clean then.
    fn write_run(
        &self,
        cache: &PageCache,
        first: u64,
        run: &[Latch<'_>],
        bounce: &mut Bounce,
    ) -> Result<()> {
        let block = cache.block_size();
        match run {
            [latch] => self.write_pages(first, block, latch.bytes())?,
            run => {
                bounce.resize(run.len() * block);
                for (target, latch) in bounce.chunks_exact_mut(block).zip(run) {
                    target.copy_from_slice(latch.bytes());
                }
                self.write_pages(first, block, bounce)?;
            }
        }
        let mut dirty = self.dirty();
        for (page, latch) in (first..).zip(run) {
            latch.clear_dirty();
            dirty.remove(&page);
        }
        Ok(())
    }

    /// Cuts off what writing back whole pages added behind the file's end, or failing to.
    pub(super) fn trim(&self) -> Result<()> {
        if !self.is_too_long() {
            return Ok(());
        }
        let _shape = self.own_shape();
        let _tail = self.own_tail();
        if self.is_too_long() {
            self.cut_inner(self.len().min(self.inner_len()))?;
        }
        Ok(())
    }

    fn is_too_long(&self) -> bool {
        self.inner_len() > self.len() || self.torn.load(Acquire)
    }

    /// Gives the file below a length. The caller owns shape and tail.
    fn cut_inner(&self, len: u64) -> Result<()> {
        self.inner.truncate(len)?;
        self.inner_len.store(len, Release);
        self.torn.store(false, Release);
        Ok(())
    }

    /// Sets the file's length.
    pub(super) fn truncate(&self, cache: &PageCache, len: u64) -> Result<()> {
        let _shape = self.own_shape();
        self.write_back(cache)?;
        // Nobody has a latch of a page of this file from here on.
        let _tail = self.own_tail();
        let block = cache.block_size() as u64;
        let end = self.end_page(block);
        self.cut_inner(len)?;
        self.forget(cache, len.div_ceil(block)..end);
        self.len.store(len, Release);
        if let Some(pin) = cache.pin_surely(self.key(len / block)) {
            pin.latch().zero((len % block) as usize..block as usize);
        }
        Ok(())
    }

    /// Reserves space below `len`.
    pub(super) fn allocate(&self, len: u64) -> Result<()> {
        let _shape = self.own_shape();
        let _tail = self.own_tail();
        if self.is_too_long() {
            // What a write has left that failed would become a part of the file.
            self.cut_inner(self.inner_len().min(self.len()))?;
        }
        let outcome = self.inner.allocate(len);
        self.inner_len.store(self.inner.len()?, Release);
        outcome?;
        self.extend(len);
        Ok(())
    }

    /// Forgets all pages, written back or not, before the file is closed.
    pub(super) fn forget_all(&self, cache: &PageCache) {
        let _shape = self.own_shape();
        let _tail = self.own_tail();
        self.forget(cache, 0..self.end_page(cache.block_size() as u64));
    }

    fn forget(&self, cache: &PageCache, pages: Range<u64>) {
        cache.forget(self.id, pages.start, pages.end);
        self.dirty().retain(|page, _| !pages.contains(page));
    }

    /// The page behind the last one that can be in a frame.
    fn end_page(&self, block: u64) -> u64 {
        self.len().max(self.inner_len()).div_ceil(block)
    }
}

/// How many pages are written back with one call at most.
fn run_pages(cache: &PageCache) -> usize {
    (RUN / cache.block_size()).max(1)
}
