//! Why an input cannot be read on.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Why an input cannot be read on.
#[derive(Debug)]
pub enum Error {
    /// The operating system's error.
    Io {
        /// What was being done, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The input, or what was asked of it, is not as it must be: why.
    Invalid(String),
}

/// What reading gives.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { operation, path: path.to_owned(), source }
    }

    pub(crate) fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid(why.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { operation, path, source } => {
                write!(f, "cannot {operation} {}: {source}", path.display())
            }
            Self::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Invalid(_) => None,
        }
    }
}
