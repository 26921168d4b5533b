//! Why a command ends early, as an exit code and a sentence.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use turbidite::{Error, ErrorKind};
use turbidite_workload::clock::Panicked;

/// The exit codes, as the help and the manual page tell them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  no: the key of `get`, or the position of `nth`, is not there; or `torture` found a promise that was not kept
  2  wrong usage or invalid input: no such database, a malformed line
  3  damaged data: a wrong checksum, or problems that `verify` found
  4  the database is in use by another process
  5  an input or output error, or no space left
  6  anything else";

/// What kind of end it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Whoever read the output has had enough: the end is quiet.
    OutputClosed = 0,
    /// What was asked is not so.
    Negative = 1,
    Usage = 2,
    Damaged = 3,
    InUse = 4,
    Io = 5,
    Other = 6,
}

/// An early end.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    pub(crate) message: String,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    #[cfg(feature = "torture")]
    pub(crate) fn negative(message: impl Into<String>) -> Self {
        Self::new(Exit::Negative, message)
    }

    pub(crate) fn damaged(message: impl Into<String>) -> Self {
        Self::new(Exit::Damaged, message)
    }

    /// The operating system's error about `path`.
    pub(crate) fn io(operation: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(Exit::Io, format!("cannot {operation} {}: {error}", path.display()))
    }

    /// The same end with more to say about it.
    #[must_use]
    pub(crate) fn with(mut self, more: impl Display) -> Self {
        self.message = format!("{}; {more}", self.message);
        self
    }

    /// Tells the user and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if self.exit != Exit::OutputClosed {
            let red = anstyle::AnsiColor::Red.on_default().bold();
            anstream::eprintln!("{red}turbidite:{red:#} {}", self.message);
        }
        ExitCode::from(self.exit as u8)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::NotADatabase
            | ErrorKind::Invalid
            | ErrorKind::UnknownKeyspace
            | ErrorKind::Unsupported => Exit::Usage,
            ErrorKind::Corruption => Exit::Damaged,
            ErrorKind::Locked => Exit::InUse,
            ErrorKind::Io | ErrorKind::NoSpace => Exit::Io,
            _ => Exit::Other,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<turbidite_records::Error> for Failure {
    fn from(error: turbidite_records::Error) -> Self {
        let exit = match error {
            turbidite_records::Error::Io { .. } => Exit::Io,
            turbidite_records::Error::Invalid(_) => Exit::Usage,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<Panicked> for Failure {
    fn from(panicked: Panicked) -> Self {
        Self::new(Exit::Other, panicked.to_string())
    }
}

/// Only errors of writing the output travel by `?`; all others are named where they occur.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let exit =
            if error.kind() == io::ErrorKind::BrokenPipe { Exit::OutputClosed } else { Exit::Io };
        Self::new(exit, format!("cannot write the output: {error}"))
    }
}
