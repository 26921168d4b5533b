//! Direct I/O, raw: bytes go between the caller's memory and the device, past the kernel's page cache.
//!
//! Offsets, lengths and addresses must be multiples of the block; what is not is the error EINVAL, as the
//! system would give it. [`BlockFile`](super::block::BlockFile) makes a file of this that takes any. A read
//! may reach to the end of the block that the file's end lies in: what is behind the end reads as zeros.
//! Lengths of the file itself may be any.
//!
//! Thread safety: as positional files.

use std::fs;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use super::aligned::{self, AlignedBuf};
use super::counters::{FileCounters, IoStats};
use super::positional::{PositionalFile, Reserved};
use super::transfer::{self, Calls};
use super::{File, Hint, RawRead, View, range};
use crate::error::{Error, Result};

/// Reads longer than this are not made together with others.
const LARGEST_RAW: usize = 1 << 20;
/// Zeros are written in pieces of this many bytes: a multiple of every block size.
const ZEROS: usize = 1 << 20;

/// An open file of the operating system, past its page cache.
#[derive(Debug)]
pub(super) struct DirectFile<C = fs::File> {
    disk: PositionalFile<C>,
    block: usize,
}

impl<C: Calls> DirectFile<C> {
    /// Turns direct I/O on for an open file.
    pub(super) fn new(calls: C, path: PathBuf, block: u32, counters: FileCounters) -> Result<Self> {
        set_direct(calls.file()).map_err(|errno| match errno {
            Errno::INVAL | Errno::OPNOTSUPP => not_offered(&path),
            errno => Error::io("open", &path, None, errno.into()),
        })?;
        if let Some(needed) = demanded(calls.file()) {
            check_demand(&path, block, needed)?;
        }
        let disk = PositionalFile::new(calls, path, counters);
        Ok(Self { disk, block: block as usize })
    }

    /// An error unless the file can be read or written there from or to this memory.
    fn check(&self, operation: &'static str, offset: u64, bytes: &[u8]) -> Result<()> {
        check_blocks(self.path(), operation, self.block, offset, bytes)
    }

    /// The error of a call whose offset, length and address are multiples of the block: if the system refuses
    /// them all the same, the block is too small for it.
    fn error(&self, operation: &'static str, offset: u64, source: io::Error) -> Error {
        if source.raw_os_error() == Some(Errno::INVAL.raw_os_error()) {
            return Error::Unsupported(format!(
                "{}: direct I/O in blocks of {} bytes is refused here; choose larger blocks, or another \
                 file layer",
                self.path().display(),
                self.block
            ));
        }
        self.disk.error(operation, Some(offset), source)
    }

    /// Fills `buffer`; what is behind the file's end becomes zeros. Gives the number of bytes before it.
    fn read_to_end(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let done = transfer::read_blocks(self.disk.calls(), self.block, offset, buffer)?;
        buffer[done..].fill(0);
        Ok(done)
    }

    /// Takes space where the file system cannot reserve it: by writing zeros behind the file's end.
    fn extend_with_zeros(&self, len: u64) -> Result<()> {
        let block = self.block as u64;
        let (end, stop) = (self.len()?, len.next_multiple_of(block));
        if end >= len {
            return Ok(());
        }
        let mut at = end - end % block;
        if at < end {
            let mut last = AlignedBuf::zeroed(self.block);
            self.read_at(at, &mut last)?;
            self.write_at(at, &last)?;
            at += block;
        }
        let zeros = AlignedBuf::zeroed(ZEROS.min((stop - at) as usize));
        while at < stop {
            let part = (stop - at).min(zeros.len() as u64);
            self.write_at(at, &zeros[..part as usize])?;
            at += part;
        }
        self.truncate(len)
    }
}

fn set_direct(file: &fs::File) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)
}

/// What offsets and lengths must be multiples of, if the system says so; 0 if it offers no direct I/O.
pub(super) fn demanded(file: &fs::File) -> Option<u32> {
    let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let is_told = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    is_told.then(|| match found.stx_dio_offset_align {
        0 => 0,
        needed => needed.max(found.stx_dio_mem_align),
    })
}

fn check_demand(path: &Path, block: u32, needed: u32) -> Result<()> {
    match needed {
        0 => Err(not_offered(path)),
        _ if block.is_multiple_of(needed) => Ok(()),
        _ => Err(Error::Invalid(format!(
            "{}: the block size {block} is smaller than the {needed} bytes that direct I/O needs here; give a \
             block size of at least {needed}",
            path.display()
        ))),
    }
}

/// The error of a file system without direct I/O.
pub(super) fn not_offered(path: &Path) -> Error {
    Error::Unsupported(format!(
        "{}: the file system offers no direct I/O; choose another file layer, such as pos or \
         pos-block-cache",
        path.display()
    ))
}

/// An error unless offset, length and address of `bytes` are multiples of the block.
pub(super) fn check_blocks(
    path: &Path,
    operation: &'static str,
    block: usize,
    offset: u64,
    bytes: &[u8],
) -> Result<()> {
    let is_whole = offset.is_multiple_of(block as u64) && bytes.len().is_multiple_of(block);
    if is_whole && (bytes.is_empty() || aligned::is_aligned(bytes, block)) {
        return Ok(());
    }
    Err(Error::io(operation, path, Some(offset), Errno::INVAL.into()))
}

/// Whether a read of `len` bytes at `offset` in whole blocks, of which the file had `found`, is one that may
/// be made.
pub(super) fn reaches(block: usize, len: usize, found: usize) -> bool {
    len - found < block
}

impl<C: Calls> File for DirectFile<C> {
    fn path(&self) -> &Path {
        self.disk.path()
    }

    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.disk.truncate(len)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        match self.disk.reserve(len)? {
            Reserved::All => Ok(()),
            Reserved::Nothing => self.extend_with_zeros(len),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check("read", offset, buffer)?;
        self.disk.counters().requested();
        let found = self.read_to_end(offset, buffer).map_err(|e| self.error("read", offset, e))?;
        if !buffer.is_empty() && !reaches(self.block, buffer.len(), found) {
            return Err(range::ends_early(self.path(), offset));
        }
        self.disk.counters().read(found);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check("write", offset, bytes)?;
        let checked = self.disk.check_size(offset, bytes.len());
        let written = checked.and_then(|()| transfer::write(self.disk.calls(), offset, bytes));
        written.map_err(|e| self.error("write", offset, e))?;
        self.disk.counters().wrote(bytes.len());
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.write_at(offset, &gathered(parts))
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync()
    }

    /// There is no page cache to tell.
    fn advise(&self, _: Range<u64>, _: Hint) {}

    fn alignment(&self) -> usize {
        self.block
    }

    fn view(&self, range: Range<u64>) -> Result<View> {
        let len = range::length(self.path(), &range)?;
        if range.end > self.len()?.next_multiple_of(self.block as u64) {
            return Err(range::ends_early(self.path(), range.start));
        }
        let mut buffer = AlignedBuf::try_zeroed(len)
            .map_err(|error| Error::io("read", self.path(), Some(range.start), error))?;
        self.read_at(range.start, &mut buffer)?;
        Ok(buffer.into_view(0..len))
    }

    /// There is nothing in memory.
    fn try_view(&self, _: Range<u64>) -> Result<Option<View>> {
        Ok(None)
    }

    fn raw_read(&self, range: Range<u64>) -> Option<RawRead<'_>> {
        let len = range::length(self.path(), &range).ok()?;
        let fits = len > 0
            && len <= LARGEST_RAW
            && range.start.is_multiple_of(self.block as u64)
            && len.is_multiple_of(self.block);
        fits.then(|| {
            let buffer = vec![0; len + aligned::ADDRESS];
            let start = buffer.as_ptr().align_offset(aligned::ADDRESS);
            let part = start..start + len;
            self.disk.counters().requested();
            self.disk.counters().read(len);
            let (descriptor, offset) = (self.disk.descriptor().as_fd(), range.start);
            RawRead { descriptor, offset, buffer, fill: part.clone(), part }
        })
    }

    fn stats(&self) -> IoStats {
        self.disk.stats()
    }
}

/// All parts, one behind the other, in aligned memory.
pub(super) fn gathered(parts: &[IoSlice<'_>]) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(parts.iter().map(|part| part.len()).sum());
    let mut at = 0;
    for part in parts {
        buffer[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_block_that_is_too_small_is_named_with_what_is_needed() {
        let path = Path::new("/data/a");
        check_demand(path, 4096, 512).unwrap();
        let error = check_demand(path, 512, 4096).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.to_string();
        assert!(text.contains("block size 512 is smaller than the 4096 bytes"), "{text}");
        assert_eq!(check_demand(path, 512, 0).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn zeros_are_written_only_behind_the_end() {
        let registry = super::super::counters::Registry::default();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let file = match DirectFile::new(file, path, 4096, registry.open()) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                eprintln!("left out: {error}");
                return;
            }
            file => file.unwrap(),
        };
        let mut block = AlignedBuf::zeroed(4096);
        block.fill(9);
        file.write_at(0, &block).unwrap();
        file.truncate(100).unwrap();
        file.extend_with_zeros(3_000_000).unwrap();
        file.extend_with_zeros(10).unwrap();
        assert_eq!(file.len().unwrap(), 3_000_000);
        let all = file.view(0..3_002_368).unwrap();
        assert_eq!(all[..100], [9; 100]);
        assert!(all[100..].iter().all(|&byte| byte == 0));
        assert!(file.view(0..3_006_464).is_err(), "a block behind the end");
    }
}
