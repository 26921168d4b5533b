//! Counting what files do.
//!
//! Every open file has its own [`Counters`], so that threads working on different files never share a
//! cache line for the sake of statistics. A file system's [`Registry`] holds those of its open files and
//! the sum of those that were closed.
//!
//! Thread safety: all atomics are relaxed. Each figure is exact once the calls it counts have returned;
//! figures read while calls run may be from slightly different moments.

use std::ops::{Add, Deref, Sub};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use crate::sync::{Mutex, MutexGuard};

/// What was done with a file, or with all files of a file system, so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoStats {
    /// Calls to read or view.
    pub requests: u64,
    /// Reads that moved bytes, by a system call or out of a mapping. A view lent without a copy is a
    /// request but not a read.
    pub reads: u64,
    /// Bytes those reads moved.
    pub read_bytes: u64,
    /// Writes, by a system call or into a mapping.
    pub writes: u64,
    /// Bytes those writes moved.
    pub written_bytes: u64,
    /// Syncs of the file's data.
    pub syncs: u64,
}

impl IoStats {
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requests: f(self.requests, other.requests),
            reads: f(self.reads, other.reads),
            read_bytes: f(self.read_bytes, other.read_bytes),
            writes: f(self.writes, other.writes),
            written_bytes: f(self.written_bytes, other.written_bytes),
            syncs: f(self.syncs, other.syncs),
        }
    }
}

impl Add for IoStats {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }
}

impl Sub for IoStats {
    type Output = Self;
    /// What was done between an earlier reading, `other`, and this one.
    fn sub(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }
}

/// The running counts of one open file.
#[derive(Debug, Default)]
pub struct Counters {
    requests: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Counters {
    /// Counts a call to read or view.
    #[inline]
    pub fn requested(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Counts a read of `bytes` bytes.
    #[inline]
    pub fn read(&self, bytes: usize) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a write of `bytes` bytes.
    #[inline]
    pub fn wrote(&self, bytes: usize) {
        self.writes.fetch_add(1, Relaxed);
        self.written_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a sync.
    #[inline]
    pub fn synced(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    /// The counts now.
    pub fn snapshot(&self) -> IoStats {
        IoStats {
            requests: self.requests.load(Relaxed),
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
        }
    }
}

/// The counters of all files of a file system. Clones are the same registry.
#[derive(Clone, Debug, Default)]
pub(super) struct Registry(Arc<Mutex<Totals>>);

#[derive(Debug, Default)]
struct Totals {
    closed: IoStats,
    open: Vec<Arc<Counters>>,
}

impl Registry {
    /// Counters for a file that is being opened.
    pub(super) fn open(&self) -> FileCounters {
        let counters = Arc::new(Counters::default());
        self.totals().open.push(Arc::clone(&counters));
        FileCounters { counters, registry: self.clone() }
    }

    /// The sum over all files, open and closed.
    pub(super) fn total(&self) -> IoStats {
        let totals = self.totals();
        totals.open.iter().fold(totals.closed, |sum, counters| sum + counters.snapshot())
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counters of one open file; moves them to the closed ones when dropped.
#[derive(Debug)]
pub(super) struct FileCounters {
    counters: Arc<Counters>,
    registry: Registry,
}

impl Deref for FileCounters {
    type Target = Counters;
    #[inline]
    fn deref(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for FileCounters {
    fn drop(&mut self) {
        let mut totals = self.registry.totals();
        totals.open.retain(|other| !Arc::ptr_eq(other, &self.counters));
        totals.closed = totals.closed + self.counters.snapshot();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_file_keeps_its_share_of_the_total() {
        let registry = Registry::default();
        let (first, second) = (registry.open(), registry.open());
        first.requested();
        first.read(10);
        second.wrote(20);
        second.synced();
        let before = registry.total();
        assert_eq!(
            before,
            IoStats {
                requests: 1,
                reads: 1,
                read_bytes: 10,
                writes: 1,
                written_bytes: 20,
                syncs: 1
            }
        );
        drop(first);
        assert_eq!(registry.total(), before);
        assert_eq!(registry.totals().open.len(), 1);
        second.wrote(5);
        let since = registry.total() - before;
        assert_eq!(since, IoStats { writes: 1, written_bytes: 5, ..IoStats::default() });
        assert_eq!(before + since, registry.total());
    }
}
