//! Files through positional calls: pread and pwrite by way of the kernel's page cache.
//!
//! No call is made that would reach behind the size that the process may give a file: the system would send the signal SIGXFSZ,
//! which ends a process that does not ignore it. It is the error EFBIG at once.
//!
//! Thread safety: no call uses or moves the descriptor's own position, so all of them may run at the
//! same time; the kernel orders those that overlap.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use super::counters::{FileCounters, IoStats};
use super::streak::Streak;
use super::transfer::{self, Calls};
use super::{File, Hint, RawRead, View, range};
use crate::error::{Error, Result};

/// Above this many bytes a view's length is checked against the file before memory is taken for it, so
/// that a length which damaged data made up costs no memory.
const TRUSTED_VIEW_BYTES: usize = 1 << 20;

/// An open file of the operating system; `calls` are what moves its bytes.
#[derive(Debug)]
pub(super) struct PositionalFile<C = fs::File> {
    calls: C,
    path: PathBuf,
    counters: FileCounters,
    present: Streak,
    /// The size that a file could have when this one was opened.
    largest: u64,
}

impl<C: Calls> PositionalFile<C> {
    pub(super) fn new(calls: C, path: PathBuf, counters: FileCounters) -> Self {
        let largest = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        Self { calls, path, counters, present: Streak::default(), largest }
    }

    /// The descriptor, for mapping it.
    #[inline]
    pub(super) fn descriptor(&self) -> &fs::File {
        self.calls.file()
    }

    pub(super) fn calls(&self) -> &C {
        &self.calls
    }

    #[inline]
    pub(super) fn counters(&self) -> &FileCounters {
        &self.counters
    }

    /// An error if the file may not reach to `len` bytes behind `offset`.
    #[inline]
    pub(super) fn check_size(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.saturating_add(len as u64) <= self.largest {
            true => Ok(()),
            false => Err(Errno::FBIG.into()),
        }
    }

    /// Reserves the first `len` bytes, if the file system can.
    pub(super) fn reserve(&self, len: u64) -> Result<Reserved> {
        let reserved = self.check_size(len, 0).and_then(|()| reserve(self.descriptor(), len));
        reserved.map_err(|e| self.error("allocate", Some(len), e))
    }

    /// Whether the file system writes bytes elsewhere that are written again, and so needs space for them that was not reserved.
    pub(super) fn writes_elsewhere(&self) -> bool {
        rustix::fs::fstatfs(self.descriptor())
            .is_ok_and(|told| writes_elsewhere(told.f_type as u64))
    }

    pub(super) fn error(
        &self,
        operation: &'static str,
        offset: Option<u64>,
        source: io::Error,
    ) -> Error {
        Error::io(operation, &self.path, offset, source)
    }
}

impl<C: Calls> File for PositionalFile<C> {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        let metadata = self.descriptor().metadata().map_err(|e| self.error("look up", None, e))?;
        Ok(metadata.len())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        // A file that is larger may become smaller.
        let checked = match self.check_size(len, 0) {
            Err(error) if len > self.len()? => Err(error),
            _ => Ok(()),
        };
        let truncated = checked.and_then(|()| self.descriptor().set_len(len));
        truncated.map_err(|e| self.error("truncate", Some(len), e))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        match self.reserve(len)? {
            Reserved::All => Ok(()),
            Reserved::Nothing => {
                let extended = extend_with_zeros(&self.calls, len);
                extended.map_err(|e| self.error("allocate", Some(len), e))
            }
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.counters.requested();
        let read = transfer::read(&self.calls, offset, buffer);
        if read.map_err(|e| self.error("read", Some(offset), e))? < buffer.len() {
            return Err(range::ends_early(&self.path, offset));
        }
        self.counters.read(buffer.len());
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let checked = self.check_size(offset, bytes.len());
        let written = checked.and_then(|()| transfer::write(&self.calls, offset, bytes));
        written.map_err(|e| self.error("write", Some(offset), e))?;
        self.counters.wrote(bytes.len());
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let checked = self.check_size(offset, parts.iter().map(|part| part.len()).sum());
        let written = checked.and_then(|()| transfer::write_parts(&self.calls, offset, parts));
        let bytes = written.map_err(|e| self.error("write", Some(offset), e))?;
        self.counters.wrote(bytes);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.descriptor().sync_data().map_err(|e| self.error("sync", None, e))?;
        self.counters.synced();
        Ok(())
    }

    fn advise(&self, range: Range<u64>, hint: Hint) {
        let advice = match hint {
            Hint::Random => Advice::Random,
            Hint::Sequential => Advice::Sequential,
            Hint::WillNeed => Advice::WillNeed,
            Hint::DontNeed => Advice::DontNeed,
            Hint::WillWrite => return,
        };
        if let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) {
            // A hint that is not understood is a hint ignored.
            let _ = rustix::fs::fadvise(self.descriptor(), range.start, Some(len), advice);
        }
    }

    fn view(&self, range: Range<u64>) -> Result<View> {
        let len = range::length(&self.path, &range)?;
        self.counters.requested();
        if len > TRUSTED_VIEW_BYTES && range.end > self.len()? {
            return Err(range::ends_early(&self.path, range.start));
        }
        let bytes = transfer::read_new(&self.calls, range.start, len)
            .map_err(|e| self.error("read", Some(range.start), e))?;
        if bytes.len() < len {
            return Err(range::ends_early(&self.path, range.start));
        }
        self.counters.read(len);
        Ok(View::from(bytes))
    }

    fn try_view(&self, range: Range<u64>) -> Result<Option<View>> {
        let len = range::length(&self.path, &range)?;
        if len > TRUSTED_VIEW_BYTES {
            return Ok(None);
        }
        if self.present.is_believed() {
            self.present.note(true);
            return self.view(range).map(Some);
        }
        let bytes = read_present(self.descriptor(), range.start, len);
        self.present.note(bytes.is_some());
        Ok(bytes.map(|bytes| {
            self.counters.requested();
            self.counters.read(len);
            View::from(bytes)
        }))
    }

    fn is_at_hand(&self, range: Range<u64>) -> bool {
        let Some(len) =
            range::length(&self.path, &range).ok().filter(|&len| len <= TRUSTED_VIEW_BYTES)
        else {
            return false;
        };
        let present = self.present.is_believed()
            || read_present(self.descriptor(), range.start, len).is_some();
        self.present.note(present);
        present
    }

    fn raw_read(&self, range: Range<u64>) -> Option<RawRead<'_>> {
        let len = range::length(&self.path, &range).ok()?;
        (len <= TRUSTED_VIEW_BYTES).then(|| {
            self.counters.requested();
            self.counters.read(len);
            RawRead {
                descriptor: self.descriptor().as_fd(),
                offset: range.start,
                buffer: vec![0; len],
                fill: 0..len,
                part: 0..len,
            }
        })
    }

    fn stats(&self) -> IoStats {
        self.counters.snapshot()
    }
}

/// The `len` bytes at `offset`, if the kernel has all of them in its page cache and can tell.
fn read_present(file: &fs::File, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = match i64::try_from(offset) {
        Ok(_) if len > 0 => {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            rustix::io::preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT).ok()?
        }
        _ => 0,
    };
    (read == len).then_some(bytes)
}

/// What came of reserving space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reserved {
    /// All of it is there, in holes of the file too.
    All,
    /// The file system cannot reserve space; nothing was done.
    Nothing,
}

/// Reserves the first `len` bytes.
fn reserve(file: &fs::File, len: u64) -> io::Result<Reserved> {
    if len == 0 {
        return Ok(Reserved::All);
    }
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len)) {
        Ok(()) => Ok(Reserved::All),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Reserved::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// Whether a file system of this kind copies on write (btrfs, bcachefs, ZFS) or is a log (NILFS2), by the numbers that Linux gives them.
fn writes_elsewhere(kind: u64) -> bool {
    matches!(kind as u32, 0x9123_683e | 0xca45_1a4e | 0x2fc1_2fc1 | 0x3434)
}

/// Takes space where the file system cannot reserve it: by writing zeros behind the file's end. Nothing
/// else may extend the file meanwhile.
fn extend_with_zeros(calls: &impl Calls, len: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut end = calls.file().metadata()?.len();
    while end < len {
        let part = (len - end).min(ZEROS.len() as u64);
        transfer::write(calls, end, &ZEROS[..part as usize])?;
        end += part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn file_systems_that_write_elsewhere_are_known() {
        let (ext, xfs, btrfs) = (0xef53, 0x5846_5342, 0x9123_683e);
        assert_eq!([ext, xfs, btrfs].map(writes_elsewhere), [false, false, true]);
    }

    #[test]
    fn nothing_reaches_behind_the_largest_size() {
        let calls = tempfile::tempfile().unwrap();
        let counters = super::super::counters::Registry::default().open();
        let mut file = PositionalFile::new(calls, "file".into(), counters);
        assert_eq!(file.largest, u64::MAX, "tests run without a limit");
        file.write_at(2990, &[1; 110]).unwrap();
        file.largest = 3000;
        file.write_at(2999, b"a").unwrap();
        file.write_vectored_at(2998, &[IoSlice::new(b"b"), IoSlice::new(b"c")]).unwrap();
        let parts = [IoSlice::new(b"d"), IoSlice::new(b"e")];
        let refused = [
            file.write_at(2999, b"de"),
            file.write_at(u64::MAX, b"d"),
            file.write_vectored_at(2999, &parts),
            file.allocate(3001),
            file.truncate(3101),
        ];
        for error in refused.map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        }
        assert_eq!((*file.view(2998..3001).unwrap()).to_vec(), b"bc\x01");
        assert_eq!(file.len().unwrap(), 3100);
        // It may become smaller, and as large as that again.
        for len in [3050, 100, 3000] {
            file.truncate(len).unwrap();
            assert_eq!(file.len().unwrap(), len);
        }
        file.allocate(3000).unwrap();
    }

    #[test]
    fn zeros_are_written_only_behind_the_end() {
        let file = tempfile::tempfile().unwrap();
        transfer::write(&file, 0, b"kept").unwrap();
        extend_with_zeros(&file, 200_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 200_000);
        extend_with_zeros(&file, 10).unwrap();
        let bytes = transfer::read_new(&file, 0, 300_000).unwrap();
        assert_eq!(bytes.len(), 200_000);
        assert_eq!(&bytes[..4], b"kept");
        assert!(bytes[4..].iter().all(|byte| *byte == 0));
        // A sparse file may say that it has more than fits in memory.
        let error = transfer::read_new(&file, 0, 1 << 60).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    }
}
