//! The operating system's file system.
//!
//! Directory operations are plain calls; a file is opened once and then handed to the [`Layer`] that was
//! asked for; blocks and page caches are made of these by [`LayeredFs`](super::LayeredFs). New files and directories are the owner's alone (modes 0600 and 0700).
//! Only regular files are opened: a symbolic link in the place of one is not followed, and a pipe or a device is not waited for.
//! Links to directories on the way are.
//!
//! Thread safety: there is no state but the counters.

use std::fs::{self, DirBuilder, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::counters::{IoStats, Registry};
use super::direct::DirectFile;
use super::layer::Raw;
use super::mmap::MmapFile;
use super::positional::PositionalFile;
use super::{Access, Dir, File, Fs, Layer, LockGuard, PathKind};
use crate::error::{Error, Result};

/// The operating system's files and directories. Clones share their counters.
#[derive(Clone, Debug, Default)]
pub struct DiskFs {
    registry: Registry,
}

impl DiskFs {
    /// A file system whose counters start at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn handle(&self, file: fs::File, path: &Path, layer: Raw) -> Result<Arc<dyn File>> {
        let (path, counters) = (path.to_path_buf(), self.registry.open());
        Ok(match layer {
            Raw::Positional => Arc::new(PositionalFile::new(file, path, counters)),
            Raw::Mmap => Arc::new(MmapFile::new(PositionalFile::new(file, path, counters))),
            Raw::Direct { block_size } => {
                Arc::new(DirectFile::new(file, path, block_size, counters)?)
            }
        })
    }
}

/// The parent of a relative name is the empty path, which the system knows as ".".
fn directory(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Options that do not follow a link in the place of the file.
fn unlinked() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options
}

/// An error unless the path leads to a regular file. Opening something else might wait for ever.
fn check_regular(path: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    match kind.is_file() {
        true => Ok(()),
        false if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        false if kind.is_symlink() => {
            Err(io::Error::other("it is a symbolic link, which is not followed"))
        }
        false => Err(io::Error::other("it is not a regular file")),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// A file or directory that is locked until this is dropped.
struct Lock {
    file: fs::File,
    /// The process that took it.
    process: u32,
}

impl Lock {
    fn take(file: fs::File, access: Access) -> Result<Self, TryLockError> {
        match access {
            Access::Write => file.try_lock(),
            Access::Read => file.try_lock_shared(),
        }
        .map(|()| Self { file, process: process::id() })
    }

    /// The same for a directory; `None` where the file system does not lock these.
    fn take_directory(dir: &Path, access: Access) -> Result<Option<Self>, TryLockError> {
        let taken = fs::File::open(dir).map_err(TryLockError::Error);
        match taken.and_then(|dir| Self::take(dir, access)) {
            Ok(lock) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Error(error)) => {
                log::debug!("{} cannot be locked: {error}", dir.display());
                Ok(None)
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that was forked from the one that took it shares the lock, and has no say in it.
        if self.process != process::id() {
            return;
        }
        // Closing would not be enough: a process that is just being started by another thread has the file, too.
        if let Err(error) = self.file.unlock() {
            log::debug!("a lock is let go when its file is closed: {error}");
        }
    }
}

/// A directory of the operating system.
struct DiskDir {
    opened: fs::File,
    path: PathBuf,
}

impl Dir for DiskDir {
    fn sync(&self) -> Result<()> {
        self.opened.sync_all().map_err(|source| Error::io("sync", &self.path, None, source))
    }
}

impl Fs for DiskFs {
    /// Links in it stay.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        std::path::absolute(directory(path)).map_err(|source| Error::io("find", path, None, source))
    }

    fn open(&self, path: &Path, access: Access, layer: Layer) -> Result<Arc<dyn File>> {
        let layer = layer.raw()?;
        let mut options = unlinked();
        options.read(true).write(access == Access::Write);
        let file = check_regular(path).and_then(|()| options.open(path));
        self.handle(file.map_err(|source| Error::io("open", path, None, source))?, path, layer)
    }

    fn create(&self, path: &Path, layer: Layer) -> Result<Arc<dyn File>> {
        let layer = layer.raw()?;
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|source| Error::io("create", path, None, source))?;
        // What cannot be reached in this way must not stay behind.
        self.handle(file, path, layer).inspect_err(|_| drop(self.remove(path)))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|source| Error::io("remove", path, None, source))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|source| Error::io("rename", from, None, source))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|source| Error::io("create", path, None, source))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|source| Error::io("remove", path, None, source))
    }

    /// A name that is not UTF-8 is shown with replacement characters: it is none of ours.
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let names = || -> io::Result<Vec<String>> {
            fs::read_dir(directory(dir))?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect()
        };
        let mut names = names().map_err(|source| Error::io("list", dir, None, source))?;
        names.sort_unstable();
        Ok(names)
    }

    fn kind(&self, path: &Path) -> Result<Option<PathKind>> {
        match fs::metadata(directory(path)) {
            Ok(metadata) if metadata.is_dir() => Ok(Some(PathKind::Directory)),
            Ok(metadata) => Ok(Some(PathKind::File { len: metadata.len() })),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(Error::io("look up", path, None, error)),
        }
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.open_dir(dir)?.sync()
    }

    fn open_dir(&self, dir: &Path) -> Result<Box<dyn Dir>> {
        let opened = fs::File::open(directory(dir));
        let opened = opened.map_err(|source| Error::io("open", dir, None, source))?;
        Ok(Box::new(DiskDir { opened, path: dir.to_path_buf() }))
    }

    fn free_bytes(&self, dir: &Path) -> Option<u64> {
        let told = rustix::fs::statvfs(directory(dir)).ok()?;
        told.f_bavail.checked_mul(told.f_frsize)
    }

    fn lock(&self, path: &Path, access: Access) -> Result<LockGuard> {
        let failed = |source| Error::io("lock", path, None, source);
        let dir = directory(path.parent().unwrap_or(path));
        let refused = |error| match error {
            TryLockError::WouldBlock => Error::Locked { path: dir.to_path_buf() },
            TryLockError::Error(source) => failed(source),
        };
        let mut options = unlinked();
        options.read(true);
        if access == Access::Write {
            options.write(true).create(true).truncate(false).mode(0o600);
        }
        let checked = check_regular(path);
        let is_missing =
            checked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        // Readers lock the directory where there is no file, and writers both.
        let of_directory = match access {
            Access::Read if !is_missing => None,
            _ => Lock::take_directory(dir, access).map_err(refused)?,
        };
        if is_missing && access == Access::Read {
            return Ok(Box::new(of_directory));
        }
        let checked = if is_missing { Ok(()) } else { checked };
        let file = checked.and_then(|()| options.open(path)).map_err(failed)?;
        let lock = Lock::take(file, access).map_err(refused)?;
        Ok(Box::new((lock, of_directory)))
    }

    fn stats(&self) -> IoStats {
        self.registry.total()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn files_and_directories_are_the_owners_alone() {
        let root = tempfile::tempdir().unwrap();
        let fs = DiskFs::new();
        let dir = root.path().join("a/b");
        fs.create_dir(&dir).unwrap();
        fs.create(&dir.join("data"), Layer::Positional).unwrap();
        let _guard = fs.lock(&dir.join("lock"), Access::Write).unwrap();
        assert!(fs.free_bytes(&dir).unwrap() > 0 && fs.free_bytes(&dir.join("none")).is_none());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        assert_eq!(mode(&dir.join("data")), 0o600);
        assert_eq!(mode(&dir.join("lock")), 0o600);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let root = tempfile::tempdir().unwrap();
        let (fs, path) = (DiskFs::new(), |name: &str| root.path().join(name));
        std::fs::write(path("file"), "bytes").unwrap();
        symlink(path("file"), path("link")).unwrap();
        symlink(path("nowhere"), path("dangling")).unwrap();
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), pipe, 0o600.into(), 0).unwrap();
        for (name, why) in [
            ("link", "symbolic link"),
            ("dangling", "symbolic link"),
            ("pipe", "not a regular file"),
            (".", "directory"),
        ] {
            for access in [Access::Read, Access::Write] {
                let opened = fs.open(&path(name), access, Layer::Positional).map(drop);
                let locked = fs.lock(&path(name), access).map(drop);
                for error in [opened.unwrap_err(), locked.unwrap_err()] {
                    assert!(error.to_string().contains(why), "{name}: {error}");
                }
            }
        }
        // What would be made must not be there, not even as a link.
        assert!(fs.create(&path("dangling"), Layer::Positional).is_err());
        assert!(!path("nowhere").exists());
        // A link goes away by itself, and directories may be links.
        fs.remove(&path("link")).unwrap();
        symlink(root.path(), path("dir")).unwrap();
        fs.open(&path("dir/file"), Access::Write, Layer::Mmap).unwrap();
    }

    #[test]
    fn readers_keep_writers_out_without_a_file_too() {
        let root = tempfile::tempdir().unwrap();
        let (fs, path) = (DiskFs::new(), root.path().join("lock"));
        let refused = |access| match fs.lock(&path, access).map(drop) {
            Err(Error::Locked { path }) => path == root.path(),
            Ok(()) => false,
            Err(error) => panic!("{error}"),
        };
        let readers = [(); 2].map(|()| fs.lock(&path, Access::Read).unwrap());
        assert!(refused(Access::Write) && !path.exists());
        drop(readers);
        let writer = fs.lock(&path, Access::Write).unwrap();
        assert!(refused(Access::Write) && refused(Access::Read));
        fs.remove(&path).unwrap();
        assert!(refused(Access::Write) && refused(Access::Read));
        drop(writer);
        drop(fs.lock(&path, Access::Write).unwrap());
        let reader = fs.lock(&path, Access::Read).unwrap();
        assert!(refused(Access::Write) && !refused(Access::Read));
        drop(reader);
        assert!(!refused(Access::Write));
    }

    #[test]
    fn the_empty_path_is_the_current_directory() {
        let fs = DiskFs::new();
        fs.sync_dir(Path::new("")).unwrap();
        assert_eq!(fs.list(Path::new("")).unwrap(), fs.list(Path::new(".")).unwrap());
        assert_eq!(fs.kind(Path::new("")).unwrap(), Some(PathKind::Directory));
    }
}
