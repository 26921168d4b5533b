//! The one error type of the library.
//!
//! Every fallible call returns [`Error`]. Its [`kind`](Error::kind) is what programs match on; its
//! text says which file and what to do. Errors are `Clone`, so that a cursor that failed can give the
//! same answer again.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `Result` with the error of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in a form that programs can match on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system reported an error on a file.
    Io,
    /// Bytes on disk are not what was written. Other data stays readable.
    Corruption,
    /// The path exists but holds no database of this library.
    NotADatabase,
    /// The database was written by a newer version of the library.
    NewerFormat,
    /// An argument is outside its limits; nothing was changed.
    Invalid,
    /// No keyspace of this name exists.
    UnknownKeyspace,
    /// The keyspace's engine does not offer this call, or the file system does not offer this file layer.
    Unsupported,
    /// Another handle or process has the database open.
    Locked,
    /// The database was opened for reading only.
    ReadOnly,
    /// An earlier failure left memory and disk possibly apart; reads go on, writes are refused until
    /// the database is opened again.
    Poisoned,
    /// The disk, quota or file size limit is exhausted; writes resume when space returns. File systems that write elsewhere what is written again, as
    /// btrfs and ZFS, may say so when it is unknown what they have of the log, which is `Poisoned`.
    NoSpace,
    /// The database was closed.
    Closed,
    /// A key or value of a typed keyspace is not one of its type.
    Decode,
}

/// The error of every fallible call.
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// The operating system reported an error.
    Io {
        /// The file or directory concerned.
        file: PathBuf,
        /// Where in the file, in bytes from its start, if the call had a position.
        offset: Option<u64>,
        /// What was being done, as a verb: "read", "sync".
        operation: &'static str,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// Bytes on disk are not what was written.
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// Where the damaged part starts, in bytes from the start of the file.
        offset: u64,
        /// What was expected and not found.
        what: String,
    },
    /// The path holds no database of this library; nothing was changed.
    NotADatabase {
        /// The path that was opened.
        path: PathBuf,
        /// Why it is not taken for a database.
        what: String,
    },
    /// The file was written in a newer format than this library reads; nothing was changed.
    NewerFormat {
        /// The file that carries the version.
        file: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version this library reads.
        supported: u32,
    },
    /// An argument is outside its limits; nothing was changed.
    Invalid(String),
    /// No keyspace of this name exists.
    UnknownKeyspace(String),
    /// The keyspace's engine does not offer this call, or the file system does not offer this file layer.
    Unsupported(String),
    /// Another handle or process has the database open.
    Locked {
        /// The database's path.
        path: PathBuf,
    },
    /// The database was opened for reading only.
    ReadOnly {
        /// The database's path.
        path: PathBuf,
    },
    /// An earlier failure poisoned the database; open it again.
    Poisoned {
        /// The failure, as text.
        cause: Arc<str>,
    },
    /// No space is left for a write; nothing was acknowledged.
    NoSpace {
        /// The file that could not grow.
        file: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The database was closed.
    Closed,
    /// A key or value of a typed keyspace is whole, but not one of its type: something else wrote it, or the type's
    /// encoding has changed since. Other records stay readable, and all of them through
    /// [`inner`](crate::typed::TypedKeyspace::inner).
    Decode {
        /// The keyspace's name.
        keyspace: String,
        /// Which key or value it is, and what was expected and not found.
        what: String,
    },
}

impl Error {
    /// What went wrong, for programs to match on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { .. } => ErrorKind::Io,
            Self::Corruption { .. } => ErrorKind::Corruption,
            Self::NotADatabase { .. } => ErrorKind::NotADatabase,
            Self::NewerFormat { .. } => ErrorKind::NewerFormat,
            Self::Invalid(_) => ErrorKind::Invalid,
            Self::UnknownKeyspace(_) => ErrorKind::UnknownKeyspace,
            Self::Unsupported(_) => ErrorKind::Unsupported,
            Self::Locked { .. } => ErrorKind::Locked,
            Self::ReadOnly { .. } => ErrorKind::ReadOnly,
            Self::Poisoned { .. } => ErrorKind::Poisoned,
            Self::NoSpace { .. } => ErrorKind::NoSpace,
            Self::Closed => ErrorKind::Closed,
            Self::Decode { .. } => ErrorKind::Decode,
        }
    }

    /// An I/O error on `file`; "no space", "quota" and "file too large" become [`Error::NoSpace`].
    pub(crate) fn io(
        operation: &'static str,
        file: &Path,
        offset: Option<u64>,
        source: io::Error,
    ) -> Self {
        let file = file.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::NoSpace { file, source: Arc::new(source) },
            _ => Self::Io { file, offset, operation, source: Arc::new(source) },
        }
    }

    /// The same, but for want of space: that says that nothing was done. As one of an `operation` of which that is unknown.
    pub(crate) fn with_unknown_outcome(self, operation: &'static str) -> Self {
        match self {
            Self::NoSpace { file, source } => Self::Io { file, offset: None, operation, source },
            other => other,
        }
    }

    pub(crate) fn corruption(file: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Corruption { file: file.to_path_buf(), offset, what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { file, offset, operation, source } => {
                write!(f, "cannot {operation} {}", file.display())?;
                if let Some(offset) = offset {
                    write!(f, " at byte {offset}")?;
                }
                write!(f, ": {source}")
            }
            Self::Corruption { file, offset, what } => write!(
                f,
                "{} is damaged at byte {offset}: {what}; run `verify` to see what else is, and \
                 restore the file from a backup",
                file.display()
            ),
            Self::NotADatabase { path, what } => {
                write!(f, "{} is not a Turbidite database: {what}", path.display())
            }
            Self::NewerFormat { file, found, supported } => write!(
                f,
                "{} has format version {found}, this build reads up to {supported}; open it with a \
                 newer release",
                file.display()
            ),
            Self::Invalid(what) | Self::Unsupported(what) => f.write_str(what),
            Self::UnknownKeyspace(name) => write!(f, "there is no keyspace named {name:?}"),
            Self::Locked { path } => write!(
                f,
                "{} is in use by another process or handle; close that one first",
                path.display()
            ),
            Self::ReadOnly { path } => {
                write!(f, "{} is opened for reading only", path.display())
            }
            Self::Poisoned { cause } => write!(
                f,
                "writes are refused since an earlier failure ({cause}); reads go on; open the \
                 database again to recover"
            ),
            Self::NoSpace { file, source } => write!(
                f,
                "no space left to write {}: {source}; free some space, then write again",
                file.display()
            ),
            Self::Closed => f.write_str("the database is closed"),
            Self::Decode { keyspace, what } => write!(f, "keyspace {keyspace:?}: {what}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::NoSpace { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
