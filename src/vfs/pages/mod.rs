//! The page cache: pages of files, kept in memory, read and written back in whole blocks.
//!
//! A [`PageCache`] is a number of frames that files share; a [`PagedFile`] is a file over another one which it
//! reads and writes through them. Nothing of the file below is asked for but whole blocks at multiples of the
//! block size, from aligned memory wherever possible; a read may end where the file ends.
//!
//! | file | what it holds |
//! |---|---|
//! | `frames` | the memory, and who may touch which frame: the states of a frame are drawn there |
//! | `table` | which frame holds which page |
//! | `policy` | which page goes when a frame is needed |
//! | `flight`, `claim` | a page that is in no frame, and is being read or written by one thread |
//! | `backing` | the file below: write-back, true length |
//! | `file` | reading and writing by way of all these |
//!
//! A hit looks the page up without a lock, pins the frame, and copies or lends. A miss is *claimed* under the
//! directory's lock, so that one thread reads the page and the others wait for it; no lock is held meanwhile.
//! A write changes the page in its frame, under the frame's latch, and leaves it dirty. Dirty pages are written
//! back when their frame is needed and by `flush`, with their dirty neighbours.
//!
//! Thread safety: everything may be called from any thread. Locks, in the order they are taken:
//!
//! ```text
//! shape (file) > tail (file) > latch (page) > directory, dirty (file), flights
//! ```
//!
//! - `shape`: shared by calls that miss or write, over their I/O; alone for what changes the file's length.
//! - `tail`: shared by write-backs, over their I/O; alone to cut the file below.
//! - a latch is waited for while no other one is held; over the I/O of a write-back.
//! - `directory` (table, queues, flights), `dirty` (which pages are) and a flight's own lock are held for a moment.
//!
//! Who needs a frame may hold the `shape` of one file while writing back pages of another. It only *tries* the
//! other's `tail` and latches, and chooses another frame if it cannot have them. So nobody waits in a circle.
//!
//! Invariants:
//! - A page is in the table or claimed, or the file below has all of it: where the file below ends, the rest
//!   of the page is zeros.
//! - Bytes of a page behind the file's end are zeros.
//! - A page is in its file's `dirty` set if its frame is dirty and its latch is free.

mod backing;
mod bounce;
mod claim;
mod file;
mod flight;
mod frames;
mod policy;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use self::backing::Backing;
pub use self::file::PagedFile;
use self::flight::Flight;
use self::frames::{Frames, Pin};
use self::policy::Policy;
use self::table::Table;
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};

const MIN_BLOCK: usize = 512;
const MAX_BLOCK: usize = 1 << 20;
/// Reads and writes of more bytes than this, or than a quarter of the cache, go around it.
const LONG: usize = 256 << 10;

/// A page of a file. Each [`PagedFile`] has a number of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    file: u64,
    page: u64,
}

impl Key {
    /// Neighbours are spread evenly (Fibonacci hashing); the highest bits are the best ones.
    #[inline]
    fn hash(self) -> u64 {
        let spread = self.file.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ self.page;
        spread.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// A cache of pages, shared by any number of [`PagedFile`]s. Memory is taken at once, but touched by the
/// system only as pages are first used.
#[derive(Debug)]
pub struct PageCache {
    frames: Frames,
    table: Table,
    directory: Mutex<Directory>,
}

/// What changes under the lock.
#[derive(Debug)]
struct Directory {
    policy: Policy,
    /// Pages that are claimed.
    flights: HashMap<Key, Arc<Flight>>,
    files: HashMap<u64, Arc<Backing>>,
    next_file: u64,
    evictions: u64,
    /// What was done by files that are closed.
    closed: PageCacheStats,
}

impl PageCache {
    /// A cache of `pages` pages of `block_size` bytes.
    ///
    /// # Errors
    /// `Invalid` if the block size is no power of two from 512 bytes to 1 MiB, if there are no pages, or if
    /// there is no memory for them.
    pub fn new(block_size: usize, pages: usize) -> Result<Arc<Self>> {
        if !block_size.is_power_of_two() || !(MIN_BLOCK..=MAX_BLOCK).contains(&block_size) {
            return Err(Error::Invalid(format!(
                "a page cache cannot have pages of {block_size} bytes: give a power of two from 512 to \
                 1048576"
            )));
        }
        if pages == 0 {
            return Err(Error::Invalid("a page cache needs at least one page".into()));
        }
        Ok(Arc::new(Self {
            frames: Frames::new(block_size, pages)?,
            table: Table::new(pages),
            directory: Mutex::new(Directory {
                policy: Policy::new(pages),
                flights: HashMap::new(),
                files: HashMap::new(),
                next_file: 0,
                evictions: 0,
                closed: PageCacheStats::default(),
            }),
        }))
    }

    /// What was done through this cache so far.
    pub fn stats(&self) -> PageCacheStats {
        let directory = self.directory();
        let open = directory.files.values().map(|file| file.tally.stats());
        let evicted = PageCacheStats { evictions: directory.evictions, ..directory.closed };
        open.fold(evicted, Add::add)
    }

    /// The size of a page in bytes.
    pub fn block_size(&self) -> usize {
        self.frames.block()
    }

    /// How many pages there is room for.
    pub fn pages(&self) -> usize {
        self.frames.count()
    }

    /// The memory taken, in bytes: the pages and what is kept to find them.
    pub fn bytes(&self) -> usize {
        self.frames.bytes() + self.table.bytes() + self.directory().policy.bytes()
    }

    /// The memory that a cache would take which there is not yet.
    pub(crate) fn bytes_of(block_size: usize, pages: usize) -> usize {
        let found_by = Table::bytes_of(pages) + Policy::bytes_of(pages);
        Frames::bytes_of(block_size, pages).saturating_add(found_by)
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pins a page if it is there, to use what lies `at` bytes into it; while others come and go it may be
    /// missed.
    #[inline]
    fn pin(&self, key: Key, at: usize) -> Option<Pin<'_>> {
        self.table.pin(&self.frames, key, at)
    }

    /// Pins a page if it is there.
    fn pin_surely(&self, key: Key) -> Option<Pin<'_>> {
        self.pin(key, 0).or_else(|| {
            let directory = self.directory();
            let index = self.table.find(&self.frames, key);
            let pin = index.and_then(|index| self.frames.pin(index, key));
            drop(directory);
            pin
        })
    }

    /// More pages than this, in one call, go around the cache.
    fn long(&self) -> u64 {
        (LONG / self.block_size()).min(self.pages() / 4).max(1) as u64
    }

    /// Forgets the pages of a file from page `from` up to the one before `end`, dirty or not. The caller sees to
    /// it that nobody has a latch of them.
    fn forget(&self, file: u64, from: u64, end: u64) {
        let mut directory = self.directory();
        for (index, key) in self.held(file, from, end) {
            self.frames.invalidate(index);
            self.table.remove(&self.frames, index, key);
            directory.policy.free(index);
        }
    }

    /// Forgets those of these pages that are clean and that nobody uses.
    fn forget_clean(&self, file: u64, from: u64, end: u64) {
        let mut directory = self.directory();
        for (index, key) in self.held(file, from, end) {
            if let frames::Taken::Blank(blank) = self.frames.take(index) {
                self.table.remove(&self.frames, index, key);
                directory.policy.free(blank.give_back());
            }
        }
    }

    /// The frames that hold pages of a file, from page `from` up to the one before `end`. Under the lock.
    fn held(&self, file: u64, from: u64, end: u64) -> impl Iterator<Item = (u32, Key)> {
        // Whichever is shorter: looking each page up, or looking at each frame.
        let by_page = end.saturating_sub(from) <= self.pages() as u64;
        let pages = if by_page { from..end } else { 0..0 };
        let frames = if by_page { 0..0 } else { 0..self.pages() as u32 };
        let found = pages.filter_map(move |page| {
            let key = Key { file, page };
            self.table.find(&self.frames, key).map(|index| (index, key))
        });
        let seen = frames.filter_map(move |index| {
            let key = self.frames.key(index);
            let is_meant = key.file == file && (from..end).contains(&key.page);
            let is_there = is_meant && self.table.find(&self.frames, key) == Some(index);
            is_there.then_some((index, key))
        });
        found.chain(seen)
    }
}

/// What was done through a page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageCacheStats {
    /// Calls to read or view, of at least a byte.
    pub requests: u64,
    /// Requests that were answered without reading a file or waiting for it to be read.
    pub hits: u64,
    /// Pages read from files, whether or not they were kept.
    pub read_pages: u64,
    /// Pages written to files, by writing back or going around the cache.
    pub written_pages: u64,
    /// Pages that others drove out.
    pub evictions: u64,
}

impl PageCacheStats {
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requests: f(self.requests, other.requests),
            hits: f(self.hits, other.hits),
            read_pages: f(self.read_pages, other.read_pages),
            written_pages: f(self.written_pages, other.written_pages),
            evictions: f(self.evictions, other.evictions),
        }
    }
}

impl Add for PageCacheStats {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }
}

impl Sub for PageCacheStats {
    type Output = Self;
    /// What was done between an earlier reading, `other`, and this one.
    fn sub(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }
}

/// The running counts of one file, on a line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Tally {
    hits: AtomicU64,
    misses: AtomicU64,
    read_pages: AtomicU64,
    written_pages: AtomicU64,
}

impl Tally {
    #[inline]
    fn hit(&self) {
        self.hits.fetch_add(1, Relaxed);
    }

    fn miss(&self) {
        self.misses.fetch_add(1, Relaxed);
    }

    fn read(&self, pages: u64) {
        self.read_pages.fetch_add(pages, Relaxed);
    }

    fn wrote(&self, pages: u64) {
        self.written_pages.fetch_add(pages, Relaxed);
    }

    fn stats(&self) -> PageCacheStats {
        let hits = self.hits.load(Relaxed);
        PageCacheStats {
            requests: hits + self.misses.load(Relaxed),
            hits,
            read_pages: self.read_pages.load(Relaxed),
            written_pages: self.written_pages.load(Relaxed),
            evictions: 0,
        }
    }
}
