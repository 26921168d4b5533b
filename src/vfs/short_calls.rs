//! System calls that come out short or are interrupted, as a test says, and a file system whose files are all reached through
//! such calls.

use std::fmt;
use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::counters::{IoStats, Registry};
use super::direct::{self, DirectFile};
use super::layer::Raw;
use super::positional::PositionalFile;
use super::transfer::Calls;
use super::{Access, Dir, DiskFs, File, Fs, Layer, LockGuard, PathKind};
use crate::error::{Error, Result};

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// What the system makes of it.
    Whole,
    /// It moves at most so many bytes.
    AtMost(usize),
    /// It moves half of the bytes.
    Half,
    /// The error EINTR, and nothing was done.
    Interrupted,
    /// The error ENOSPC, and nothing was done.
    Failed,
}

/// The calls of a file, each with its answer.
pub(super) struct ShortCalls {
    file: fs::File,
    /// A call that comes out short has moved a multiple of so many bytes.
    unit: usize,
    calls: AtomicU64,
    answer: Box<dyn Fn(u64) -> Answer + Send + Sync>,
}

impl ShortCalls {
    /// The calls of `file`, each of which gets what `answer` says, given its number from 0 on.
    pub(super) fn new(
        file: fs::File,
        unit: usize,
        answer: impl Fn(u64) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self { file, unit, calls: AtomicU64::new(0), answer: Box::new(answer) }
    }

    /// How many of `len` bytes the next call is to move.
    fn most(&self, len: usize) -> io::Result<usize> {
        match (self.answer)(self.calls.fetch_add(1, Relaxed)) {
            Answer::Whole => Ok(len),
            Answer::AtMost(most) => Ok(most.next_multiple_of(self.unit).min(len)),
            Answer::Half => Ok(len.div_ceil(2).next_multiple_of(self.unit).min(len)),
            Answer::Interrupted => Err(io::ErrorKind::Interrupted.into()),
            Answer::Failed => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

impl fmt::Debug for ShortCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShortCalls").field(&self.file).finish()
    }
}

impl Calls for ShortCalls {
    fn file(&self) -> &fs::File {
        &self.file
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.most(buffer.len())?;
        self.file.read(offset, &mut buffer[..most])
    }

    fn read_behind(&self, offset: u64, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let mut read = vec![0; bytes.capacity() - bytes.len()];
        let moved = self.read(offset, &mut read)?;
        bytes.extend_from_slice(&read[..moved]);
        Ok(moved)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let most = self.most(bytes.len())?;
        self.file.write(offset, &bytes[..most])
    }

    fn write_vectored(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = parts.iter().map(|part| &part[..]).collect::<Vec<_>>().concat();
        self.write(offset, &bytes)
    }
}

/// The operating system's files, but of three calls one moves half of what it is asked to, one is interrupted, and one moves few bytes.
/// Offers no mappings, which make no such calls.
#[derive(Debug, Default)]
pub(super) struct ShortFs {
    disk: DiskFs,
    registry: Registry,
}

impl ShortFs {
    fn handle(&self, file: fs::File, path: &Path, layer: Layer) -> Result<Arc<dyn File>> {
        let calls = |file, unit: usize| {
            ShortCalls::new(file, unit, |call| match call % 3 {
                0 => Answer::Half,
                1 => Answer::Interrupted,
                _ => Answer::AtMost(5),
            })
        };
        let (path, counters) = (path.to_path_buf(), self.registry.open());
        match layer.raw()? {
            Raw::Positional => Ok(Arc::new(PositionalFile::new(calls(file, 1), path, counters))),
            Raw::Direct { block_size } => {
                let unit = direct::demanded(&file).unwrap_or(4096).max(1) as usize;
                Ok(Arc::new(DirectFile::new(calls(file, unit), path, block_size, counters)?))
            }
            Raw::Mmap => Err(Error::Unsupported("a mapping makes no calls".into())),
        }
    }
}

impl Fs for ShortFs {
    fn open(&self, path: &Path, access: Access, layer: Layer) -> Result<Arc<dyn File>> {
        // It says what is wrong with the path.
        drop(self.disk.open(path, access, layer)?);
        let file = fs::File::options().read(true).write(access == Access::Write).open(path);
        self.handle(file.map_err(|e| Error::io("open", path, None, e))?, path, layer)
    }
    fn create(&self, path: &Path, layer: Layer) -> Result<Arc<dyn File>> {
        if layer.raw()? == Raw::Mmap {
            return Err(Error::Unsupported("a mapping makes no calls".into()));
        }
        let mut options = fs::File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|e| Error::io("create", path, None, e))?;
        self.handle(file, path, layer).inspect_err(|_| drop(self.remove(path)))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.disk.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.rename(from, to)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.disk.create_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.disk.remove_dir(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn kind(&self, path: &Path) -> Result<Option<PathKind>> {
        self.disk.kind(path)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.disk.sync_dir(dir)
    }
    fn open_dir(&self, dir: &Path) -> Result<Box<dyn Dir>> {
        self.disk.open_dir(dir)
    }
    fn lock(&self, path: &Path, access: Access) -> Result<LockGuard> {
        self.disk.lock(path, access)
    }
    fn stats(&self) -> IoStats {
        self.registry.total()
    }
}
