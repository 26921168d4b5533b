//! Why a command ends early, as an exit code and a sentence that says what to do.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use turbidite_workload::clock::Panicked;

/// The exit codes, as the help tells them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success
  2  wrong usage: no such table or system, a directory that holds something else
  3  a system gave a wrong answer
  5  an input or output error, or no space left
  6  anything else: a system that failed, a run that was cut short";

/// What kind of end it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    Usage = 2,
    Wrong = 3,
    Io = 5,
    Other = 6,
}

/// An early end.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A system did not answer what it had been told.
    pub(crate) fn wrong(message: impl Into<String>) -> Self {
        Self::new(Exit::Wrong, message)
    }

    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::new(Exit::Other, message)
    }

    /// The operating system's error about `path`.
    pub(crate) fn io(operation: &str, path: &Path, error: &io::Error) -> Self {
        let path = path.display();
        let hint = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ": free some space, or give --data DIR on another device"
            }
            _ => "",
        };
        Self::new(Exit::Io, format!("cannot {operation} {path}: {error}{hint}"))
    }

    /// A store's own error.
    pub(crate) fn of_system(name: &str, error: impl Display) -> Self {
        let text = error.to_string();
        let full = text.contains("No space left");
        let hint =
            if full { ": free some space, or give --data DIR on another device" } else { "" };
        Self::new(if full { Exit::Io } else { Exit::Other }, format!("{name}: {text}{hint}"))
    }

    /// What a process of one system ended with: it says its own sentence.
    pub(crate) fn of_process(code: Option<i32>, message: String) -> Self {
        let exits = [Exit::Usage, Exit::Wrong, Exit::Io];
        let exit = exits.into_iter().find(|&exit| code == Some(exit as i32));
        Self::new(exit.unwrap_or(Exit::Other), message)
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Runs that failed, each of which was told when it did.
    pub(crate) fn of_runs(count: usize, worst: Exit) -> Self {
        Self::new(
            worst,
            format!(
                "{count} runs failed: the same command tries a row again until it has failed as often as it is to be run, and \
                 --again once more"
            ),
        )
    }

    /// Tells the user and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let red = anstyle::AnsiColor::Red.on_default().bold();
        anstream::eprintln!("{red}turbidite-compare:{red:#} {}", self.message);
        ExitCode::from(self.exit as u8)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<turbidite::Error> for Failure {
    fn from(error: turbidite::Error) -> Self {
        Self::of_system("turbidite", error)
    }
}

impl From<Panicked> for Failure {
    fn from(panicked: Panicked) -> Self {
        Self::other(panicked.to_string())
    }
}
