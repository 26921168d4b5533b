//! The file layer: everything the library knows about files and directories.
//!
//! Two object-safe traits, [`Fs`] and [`File`], stand between the rooms above and the operating system,
//! so that the same engine runs over a shared mapping, positional calls, or memory with injected faults.
//! A caller names the [`Layer`] a file is to be reached through when it opens it, and never asks
//! afterwards which one it has. File systems offer [`Layer::Mmap`], [`Layer::Positional`] and raw
//! [`Layer::Direct`]; a [`LayeredFs`] around any of them makes blocks and page caches, and so all layers,
//! of these.
//!
//! Laws every implementation and every caller keeps:
//! - A read or write is whole or an error; interruptions and short transfers are invisible.
//! - Under a live [`View`] bytes are neither overwritten nor cut off. Callers keep this by writing files
//!   once: what lies below the end of what they appended is never written again while it can be viewed. A mapped B+ tree
//!   has a view of its whole file, in which it writes pages that are free: it keeps account of those that somebody may look at, and looks at no others.
//! - While a file is open through [`Layer::Mmap`] it is cut off only through that handle, and no two
//!   calls write, or write and read, the same bytes at the same time.
//! - Nothing is read, viewed or written by a call of no bytes, wherever it points: it is never an error.
//! - Space is allocated before it is mapped for writing, so that a full disk is an error and not a signal; where the file system
//!   writes elsewhere what is written again, files are written to by calls.
//! - In blocks, with or without a page cache, a file is written through one handle at a time.
//! - A file, or a name in a directory, is safe from power loss only after [`File::sync`], or
//!   [`Fs::sync_dir`] on its directory, returned without error.

mod aligned;
mod appender;
mod aside;
mod block;
mod counters;
mod depth;
mod direct;
mod disk;
mod fault;
mod layer;
mod layered;
mod memory;
mod mmap;
mod pages;
mod positional;
mod range;
mod revocable;
#[cfg(test)]
mod short_calls;
mod streak;
#[cfg(test)]
mod tests;
mod transfer;

use std::fmt;
use std::io::{ErrorKind, IoSlice};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::base::View;
use crate::error::{Error, Result};
use crate::planted::{Bug, planted};
pub use appender::Appender;
pub(crate) use aside::{Aside, Reading};
pub use counters::{Counters, IoStats};
pub(crate) use depth::{BatchReader, ReadRequest};
pub use disk::DiskFs;
pub use fault::{Effect, Errno, Fault, FaultFs, Operation, Times};
pub use layer::Layer;
pub use layered::LayeredFs;
pub use memory::{MemoryFs, PowerCut};
pub use pages::{PageCache, PageCacheStats, PagedFile};

/// What an opened file may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading only; writes give an error.
    Read,
    /// Reading and writing.
    Write,
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathKind {
    /// A regular file.
    File {
        /// Its length in bytes.
        len: u64,
    },
    /// A directory.
    Directory,
}

/// How a range of a file is going to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hint {
    /// Single pieces in no order: read-ahead is wasted.
    Random,
    /// From front to back: read ahead.
    Sequential,
    /// Soon: bring it into memory in the background.
    WillNeed,
    /// Soon to be written through this handle: make its pages present, so that the write does not wait
    /// for them.
    WillWrite,
    /// Not again: its memory may be given back.
    DontNeed,
}

/// Held while a database is open; releases the lock when dropped.
pub type LockGuard = Box<dyn Send + Sync>;

/// A file system. Paths are used as given. All methods may be called from any thread.
///
/// A file system of the outside world offers the layers [`Layer::Mmap`], [`Layer::Positional`] and
/// [`Layer::Direct`], and gives [`Error::Unsupported`] for others. Direct is *raw*
/// there: offsets, lengths and addresses must be multiples of the block size (addresses at most of 4096), or
/// the call fails; a read may reach to the end of the block that the file's end lies in, and finds zeros behind
/// the end. Where there is no direct I/O, opening is `Unsupported` and creates nothing.
pub trait Fs: Send + Sync + fmt::Debug {
    /// A path that leads to the same place whatever becomes of the process: where names are looked up from the process's present
    /// directory, the one from the root on. As given unless the file system says otherwise.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_path_buf())
    }
    /// Opens an existing file.
    fn open(&self, path: &Path, access: Access, layer: Layer) -> Result<Arc<dyn File>>;
    /// Creates a new, empty file for reading and writing; an error if the name is taken.
    fn create(&self, path: &Path, layer: Layer) -> Result<Arc<dyn File>>;
    /// Removes a file's name. Open handles and views of it stay usable.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Gives a file a new name in one step, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Creates a directory and the missing ones above it; no error if it exists.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// The names in a directory, sorted, without their path.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;
    /// What the path leads to; `None` if there is nothing.
    fn kind(&self, path: &Path) -> Result<Option<PathKind>>;
    /// Makes the names in a directory safe from power loss.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Opens a directory for its names to be synced later, when nothing may fail for want of a file descriptor.
    fn open_dir(&self, dir: &Path) -> Result<Box<dyn Dir>>;
    /// The bytes that files in `dir` may take more than they do, if the file system tells. Others may take them first.
    fn free_bytes(&self, dir: &Path) -> Option<u64> {
        let _ = dir;
        None
    }
    /// Takes the lock named by the file `path` at once or gives [`Error::Locked`].
    /// Exclusive with [`Access::Write`], creating the file if needed; shared with [`Access::Read`],
    /// creating nothing: where there is no such file, the directory is locked, if it can be.
    fn lock(&self, path: &Path, access: Access) -> Result<LockGuard>;
    /// What all files opened through this file system have done so far.
    fn stats(&self) -> IoStats;
}

/// An open directory.
pub trait Dir: Send + Sync {
    /// Makes the names in it safe from power loss, as [`Fs::sync_dir`] does, and opens nothing, but where another sync of them has failed since
    /// it was opened.
    fn sync(&self) -> Result<()>;
}

/// Removes a file that nobody needs. None is there any more if somebody who goes on reading what a database that is closed
/// had, and was the last to need it, has just removed it.
pub(crate) fn remove_leftover(fs: &dyn Fs, path: &Path) -> Result<()> {
    if planted(Bug::KeepLeftovers) {
        return Ok(());
    }
    match fs.remove(path) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The name of a file that is there for a moment only: while a layer is tried out, or names are changed.
pub(crate) const PROBE: &str = "probe";

/// Changes the names of a directory, and leaves them as they are: removes the file at `path`, which nobody needs, or makes one that is no more than
/// a name, and removes that. If a sync of the directory has failed, the system may take its names for written, and no later sync writes what has
/// not changed since.
pub(crate) fn change_names(fs: &dyn Fs, path: &Path) -> Result<()> {
    if fs.kind(path)?.is_none() {
        fs.create(path, Layer::Positional)?;
    }
    fs.remove(path)
}

/// Removes an empty directory that is made anew at once. If the sync of its name has failed, the system may take the name for written, and no
/// later sync writes what has not changed since. A link, or what another file system is mounted on, stays.
pub(crate) fn remove_remade(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let stays = [ErrorKind::NotADirectory, ErrorKind::ResourceBusy];
    match fs.remove_dir(dir) {
        Err(Error::Io { source, .. }) if stays.contains(&source.kind()) => Ok(()),
        removed => removed,
    }
}

/// Removes a file that nobody reads any more. What stays behind the next opening removes: that of a database that is closed, too.
pub(crate) fn remove_obsolete(fs: &dyn Fs, path: &Path) {
    match fs.remove(path) {
        Ok(()) | Err(Error::Closed) => {}
        Err(error) => log::warn!("an obsolete file stays behind until the next opening: {error}"),
    }
}

/// Whether something failed only because so many files are open, in this process or in all, that one more cannot be. That says
/// nothing of the file or directory, and nothing was done to it.
pub(crate) fn is_too_many_open(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    let errno = |errno: rustix::io::Errno| source.raw_os_error() == Some(errno.raw_os_error());
    errno(rustix::io::Errno::MFILE) || errno(rustix::io::Errno::NFILE)
}

/// Opens a file that something on the disk says is there.
///
/// # Errors
/// Those of [`Fs::open`]; that there is none is `Corruption`.
pub(crate) fn open_needed(
    fs: &dyn Fs,
    path: &Path,
    access: Access,
    layer: Layer,
) -> Result<Arc<dyn File>> {
    match fs.open(path, access, layer) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Err(Error::corruption(path, 0, "the file is missing"))
        }
        opened => opened,
    }
}

/// An open file. All methods may be called from any thread at the same time.
pub trait File: Send + Sync + fmt::Debug {
    /// Where the file was opened, for messages.
    fn path(&self) -> &Path;
    /// The file's length in bytes.
    fn len(&self) -> Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Sets the length: cuts the file off or extends it with zeros.
    fn truncate(&self, len: u64) -> Result<()>;
    /// Reserves space for the first `len` bytes, extending the file with zeros if it is shorter. A later
    /// write below `len` does not fail for want of space, but on file systems that copy on write; on a file with an alignment that is promised if
    /// `len` is a multiple of it. After an error the file may be longer than
    /// before. Where the system cannot reserve space, zeros are written behind the file's end; nothing
    /// else may extend the file meanwhile.
    fn allocate(&self, len: u64) -> Result<()>;
    /// Fills `buffer` from `offset`. An error if the file ends before that.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
    /// Writes all of `bytes` at `offset`, extending the file if needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Writes all of `parts`, one behind the other, at `offset`. Costs one call where the system has one.
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()>;
    /// Hands what this process still holds of the file to the kernel, so that it survives the process being
    /// killed. Only layers that hold something back have to do anything.
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    /// Makes all that was written before the call safe from power loss; flushes first. After an error nothing
    /// is known about those writes, and a later success says nothing about them either.
    fn sync(&self) -> Result<()>;
    /// Tells how `range` is going to be used. Never an error: a hint may be ignored.
    fn advise(&self, range: Range<u64>, hint: Hint);
    /// What offsets and lengths should be multiples of, or must be if the file is raw direct: 1, or the block
    /// size.
    fn alignment(&self) -> usize {
        1
    }
    /// Whether views are lent without copying, so that keeping them costs no memory and asking again costs
    /// nothing.
    fn lends(&self) -> bool {
        false
    }
    /// Whether a view shows the file's own bytes, and with them what is written there later. Otherwise each view is a
    /// copy that nobody changes.
    fn shares(&self) -> bool {
        self.lends()
    }
    /// The bytes in `range`: lent where the layer can, copied where it cannot. An error if the file ends
    /// before the range does.
    fn view(&self, range: Range<u64>) -> Result<View>;
    /// The bytes in `range` if they can be had without waiting for a device, as far as can be told cheaply;
    /// else `None`. `None` says nothing about the bytes: whether the file has them is for
    /// [`view`](Self::view) to tell.
    fn try_view(&self, range: Range<u64>) -> Result<Option<View>> {
        self.view(range).map(Some)
    }
    /// Whether the bytes in `range` could be read without waiting for a device, as far as can be told cheaply. What stands
    /// between this file and its readers with bytes of its own asks before it leaves a read to those who wait. That may have
    /// changed when the read comes.
    fn is_at_hand(&self, range: Range<u64>) -> bool {
        let _ = range;
        false
    }
    /// A read of `range` that the caller may carry out by itself, together with others, if the file has a
    /// descriptor to read from. It is never more than a faster way to what [`view`](Self::view) gives.
    fn raw_read(&self, range: Range<u64>) -> Option<RawRead<'_>> {
        let _ = range;
        None
    }
    /// What was done through this handle so far.
    fn stats(&self) -> IoStats;
}

/// A read to be carried out, and the memory for it: see [`File::raw_read`].
#[derive(Debug)]
pub struct RawRead<'a> {
    /// The descriptor to read from.
    pub descriptor: BorrowedFd<'a>,
    /// Where in the file to read from.
    pub offset: u64,
    /// Memory that the bytes go to.
    pub buffer: Vec<u8>,
    /// The part of the buffer to read into. Where the descriptor asks for alignment, this part's address and
    /// length keep it, as the offset does. The file may end before the part does.
    pub fill: Range<usize>,
    /// The part of the buffer that the bytes asked for are in then; it lies inside `fill`.
    pub part: Range<usize>,
}
