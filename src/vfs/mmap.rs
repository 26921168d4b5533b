//! Files through shared memory mappings.
//!
//! A file has up to two maps. The *write map* covers the space that [`allocate`](File::allocate)
//! reserved, if the file system can reserve space; a write inside it is a memory copy. The *read map* covers the file as long as it was when a
//! view last reached past the map before; views are lent from it and keep it alive. Everything else goes
//! through positional calls, which see the same page cache.
//!
//! Thread safety and invariants:
//! - Reading, viewing and writing take no lock. `resize` orders whatever makes or retires maps.
//! - A map in its slot never reaches past the end of the file: it is made no longer than the file is,
//!   and `truncate` retires it, waiting for the copies in flight, before it cuts the file.
//! - Callers keep the laws of the file layer: what is viewed is neither overwritten nor cut off, calls
//!   that copy do not race on the same bytes, and while a file is open here it is not cut off through
//!   another handle. Breaking the last one ends in SIGBUS.
//! - `sync` is fdatasync: on Linux it also writes what was changed through shared maps.

use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::{Arc, PoisonError};

use arc_swap::ArcSwapOption;
use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

use super::counters::IoStats;
use super::positional::{PositionalFile, Reserved};
use super::{File, Hint, View, range};
use crate::error::Result;
use crate::sync::{Mutex, MutexGuard, thread};

/// An open file and its maps.
#[derive(Debug)]
pub(super) struct MmapFile {
    disk: PositionalFile,
    write_map: ArcSwapOption<MmapRaw>,
    read_map: ArcSwapOption<ReadMap>,
    resize: Mutex<()>,
}

/// What the slot holds; views share only the map inside, so that the slot's own users can be waited for.
#[derive(Debug)]
struct ReadMap(Arc<MmapRaw>);

impl ReadMap {
    /// The part of the map that holds `range`, if all of it is mapped.
    #[inline]
    fn place(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let start = range::within(self.0.len(), offset, len)?;
        // SAFETY: `start` is at most the map's length.
        NonNull::new(unsafe { self.0.as_mut_ptr().add(start) })
    }

    #[inline]
    fn lend(&self, offset: u64, len: usize) -> Option<View> {
        let start = self.place(offset, len)?;
        let owner: Arc<MmapRaw> = Arc::clone(&self.0);
        // SAFETY: the bytes lie in the map, which lives as long as `owner`; the laws of the file layer
        // keep them from being changed or cut off while they are viewed.
        Some(unsafe { View::from_raw(start, len, owner) })
    }
}

impl MmapFile {
    pub(super) fn new(disk: PositionalFile) -> Self {
        Self {
            disk,
            write_map: ArcSwapOption::empty(),
            read_map: ArcSwapOption::empty(),
            resize: Mutex::new(()),
        }
    }

    fn resizing(&self) -> MutexGuard<'_, ()> {
        self.resize.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A read map that reaches to `end`; an error if the file does not.
    #[cold]
    fn extended_to(&self, end: u64) -> Result<Arc<ReadMap>> {
        let _resizing = self.resizing();
        if let Some(map) = self.read_map.load_full()
            && end <= map.0.len() as u64
        {
            return Ok(map);
        }
        let len = self.disk.len()?;
        if end > len {
            return Err(range::ends_early(self.disk.path(), end));
        }
        let map = self
            .options(len)
            .map_raw_read_only(self.disk.descriptor())
            .map_err(|e| self.disk.error("map", None, e))?;
        let map = Arc::new(ReadMap(Arc::new(map)));
        self.read_map.store(Some(Arc::clone(&map)));
        Ok(map)
    }

    /// A length beyond the address space becomes one that the kernel refuses to map.
    fn options(&self, len: u64) -> MmapOptions {
        let mut options = MmapOptions::new();
        options.len(usize::try_from(len).unwrap_or(isize::MAX as usize));
        options
    }

    fn advise_mapped(&self, range: &Range<u64>, hint: Hint) -> Result<()> {
        let end = range.end.min(self.disk.len()?);
        if range.start >= end {
            return Ok(());
        }
        let map = self.extended_to(end)?;
        let (start, len) = (range.start as usize, (end - range.start) as usize);
        let advised = match hint {
            Hint::Random => map.0.advise_range(Advice::Random, start, len),
            Hint::Sequential => map.0.advise_range(Advice::Sequential, start, len),
            Hint::WillNeed => map.0.advise_range(Advice::WillNeed, start, len),
            // SAFETY: the map is shared and backed by the file: its pages come back unchanged when
            // they are touched again.
            Hint::DontNeed => unsafe {
                map.0.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len)
            },
            Hint::WillWrite => Ok(()),
        };
        advised.map_err(|e| self.disk.error("advise", Some(range.start), e))
    }

    /// Makes the pages of the write map in `range` present and writable.
    fn populate(&self, range: &Range<u64>) {
        if let Some(map) = &*self.write_map.load() {
            let end = range.end.min(map.len() as u64);
            if range.start < end {
                let (start, len) = (range.start as usize, (end - range.start) as usize);
                // Kernels before 5.14 refuse; the pages are then made at the first write.
                let _ = map.advise_range(Advice::PopulateWrite, start, len);
            }
        }
    }
}

/// Empties a slot and waits until nobody is copying through what it held.
fn retire<T>(slot: &ArcSwapOption<T>) {
    let Some(mut held) = slot.swap(None) else { return };
    while let Err(busy) = Arc::try_unwrap(held) {
        held = busy;
        thread::yield_now();
    }
}

impl File for MmapFile {
    fn path(&self) -> &Path {
        self.disk.path()
    }

    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let _resizing = self.resizing();
        if self.write_map.load().as_ref().is_some_and(|map| len < map.len() as u64) {
            retire(&self.write_map);
        }
        if self.read_map.load().as_ref().is_some_and(|map| len < map.0.len() as u64) {
            retire(&self.read_map);
        }
        self.disk.truncate(len)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let _resizing = self.resizing();
        if self.disk.reserve(len)? == Reserved::Nothing {
            // Zeros behind the end leave holes before it, and a hole on a full disk is a signal when it is
            // written to through a map: such a file is written to by calls.
            return self.disk.allocate(len);
        }
        if self.disk.writes_elsewhere() {
            // Each page that is written again needs space, which may not be there either.
            return Ok(());
        }
        let mapped = self.write_map.load().as_ref().map_or(0, |map| map.len() as u64);
        if len > mapped {
            match self.options(len).map_raw(self.disk.descriptor()) {
                Ok(map) => self.write_map.store(Some(Arc::new(map))),
                // The space is there; it is written to by calls then.
                Err(error) => {
                    log::warn!("cannot map {} for writing: {error}", self.path().display())
                }
            }
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if let Some(map) = &*self.read_map.load()
            && let Some(start) = map.place(offset, buffer.len())
        {
            // SAFETY: the bytes lie in the map, which the guard holds and `truncate` waits for; the
            // buffer is exclusively ours and so no part of a map.
            unsafe {
                ptr::copy_nonoverlapping(start.as_ptr(), buffer.as_mut_ptr(), buffer.len());
            }
            self.disk.counters().requested();
            self.disk.counters().read(buffer.len());
            return Ok(());
        }
        self.disk.read_at(offset, buffer)
    }

    #[inline]
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if let Some(map) = &*self.write_map.load()
            && let Some(start) = range::within(map.len(), offset, bytes.len())
        {
            // SAFETY: the bytes lie in the map, which the guard holds and `truncate` waits for. The
            // source cannot be part of it: nobody is lent bytes from a write map.
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), map.as_mut_ptr().add(start), bytes.len());
            }
            self.disk.counters().wrote(bytes.len());
            return Ok(());
        }
        self.disk.write_at(offset, bytes)
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let len = parts.iter().map(|part| part.len()).sum();
        if let Some(map) = &*self.write_map.load()
            && let Some(mut start) = range::within(map.len(), offset, len)
        {
            for part in parts {
                // SAFETY: as in `write_at`; `start + part.len()` stays within the sum of the parts.
                unsafe {
                    let to = map.as_mut_ptr().add(start);
                    ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                }
                start += part.len();
            }
            self.disk.counters().wrote(len);
            return Ok(());
        }
        self.disk.write_vectored_at(offset, parts)
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync()
    }

    fn advise(&self, range: Range<u64>, hint: Hint) {
        if hint == Hint::WillWrite {
            self.populate(&range);
        } else {
            // The map first: pages that are mapped stay in the page cache whatever the file is told.
            let _ = self.advise_mapped(&range, hint);
            self.disk.advise(range, hint);
        }
    }

    fn lends(&self) -> bool {
        true
    }

    #[inline]
    fn view(&self, range: Range<u64>) -> Result<View> {
        let len = range::length(self.disk.path(), &range)?;
        self.disk.counters().requested();
        if len == 0 {
            return Ok(View::from(Vec::new()));
        }
        if let Some(map) = &*self.read_map.load()
            && let Some(view) = map.lend(range.start, len)
        {
            return Ok(view);
        }
        let lent = self.extended_to(range.end)?.lend(range.start, len);
        lent.ok_or_else(|| range::ends_early(self.disk.path(), range.start))
    }

    fn stats(&self) -> IoStats {
        self.disk.stats()
    }
}
