//! The command as its users meet it: the built program, run on real files.

mod bench;
mod documents;
mod entries;
mod exits;
mod figures;
mod imports;
#[cfg(feature = "torture")]
mod torture;
mod watch;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A directory for a database and files, removed at the end.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and gives its path.
    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A command on the database; `DB` in the arguments stands for its path.
    fn command(&self, arguments: &[&str]) -> Command {
        let database = self.path("db");
        let mut command = turbidite();
        for argument in arguments {
            match *argument {
                "DB" => command.arg(&database),
                argument => command.arg(argument),
            };
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        Run::of(self.command(arguments).output().unwrap())
    }

    fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        Run::of(child.wait_with_output().unwrap())
    }
}

fn turbidite() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turbidite"));
    command.stdin(Stdio::null()).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

/// How a command ended.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    out: Vec<u8>,
    err: String,
}

impl Run {
    fn of(output: Output) -> Self {
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(!err.contains("panicked"), "{err}");
        Self { code: output.status.code(), out: output.stdout, err }
    }

    /// Standard output of a command that must have succeeded.
    #[track_caller]
    fn good(self) -> Vec<u8> {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    /// The same as text.
    #[track_caller]
    fn text(self) -> String {
        String::from_utf8(self.good()).unwrap()
    }

    /// The same as JSON values, one a line.
    #[track_caller]
    fn json(self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Standard error of a command that must have failed with `code`.
    #[track_caller]
    fn bad(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}", self.err);
        assert!(self.err.starts_with("turbidite: "), "{}", self.err);
        self.err
    }
}

/// The names in a JSON object, in their order.
#[track_caller]
fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}
