//! The directory that results are kept in.
//!
//! ```text
//! DIR/turbidite-compare.json   the machine and the version that made the results; marks the directory
//! DIR/write-path.jsonl ...     one line for each run of each row of a table
//! DIR/data/                    where systems under test have their files while they run
//! ```
//!
//! Lines are only added, one after each run, so that a run that was cut short goes on where it was; a last line that was
//! not finished is not read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use turbidite_workload::machine;

use super::job::Job;
use super::outcome::Outcome;
use crate::failure::{Failure, Result};
use crate::tables::Scale;

const MARKER: &str = "turbidite-compare.json";

/// What the results were measured on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) file_system: String,
    pub(crate) version: String,
    /// Whether the program was built with optimisations.
    pub(crate) optimised: bool,
}

impl Machine {
    fn here(path: &Path) -> Self {
        Self {
            processor: machine::processor(),
            cores: machine::cores(),
            memory_bytes: machine::memory_bytes(),
            kernel: machine::kernel(),
            file_system: machine::file_system(path),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            optimised: !cfg!(debug_assertions),
        }
    }
}

/// One run of one row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) row: String,
    pub(crate) scale: Scale,
    pub(crate) job: Job,
    /// How long the process took in all.
    pub(crate) seconds: f64,
    /// Which build of this program it was.
    #[serde(default)]
    pub(crate) build: String,
    #[serde(flatten)]
    pub(crate) end: End,
}

/// How a run ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    Measured(Outcome),
    /// The system failed.
    Failed(String),
    /// The system is missing.
    Missing(String),
}

/// The results below a directory.
#[derive(Debug)]
pub(crate) struct Results {
    path: PathBuf,
    pub(crate) machine: Machine,
}

impl Results {
    /// Opens a directory for adding results, or makes it.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(|error| Failure::io("create", path, &error))?;
        let path = path.canonicalize().map_err(|error| Failure::io("find", path, &error))?;
        let here = Machine::here(&path);
        if path.join(MARKER).exists() {
            let results = Self::open(&path)?;
            if results.machine != here {
                return Err(Failure::usage(format!(
                    "{} has results of another machine, kernel, version or kind of build: give another --dir",
                    path.display()
                )));
            }
            return Ok(results);
        }
        let mut entries =
            fs::read_dir(&path).map_err(|error| Failure::io("list", &path, &error))?;
        if entries.next().is_some() {
            return Err(Failure::usage(format!(
                "{} is not empty and has no results of turbidite-compare: give --dir a new directory",
                path.display()
            )));
        }
        let text = serde_json::to_string_pretty(&here).expect("plain data");
        let marker = path.join(MARKER);
        fs::write(&marker, text + "\n").map_err(|error| Failure::io("write", &marker, &error))?;
        Ok(Self { path, machine: here })
    }

    /// Opens a directory that has results.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let marker = path.join(MARKER);
        let text = fs::read_to_string(&marker).map_err(|_| {
            let path = path.display();
            Failure::usage(format!(
                "{path} has no results: `turbidite-compare run --dir {path}` makes some"
            ))
        })?;
        let machine = serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("{}: {error}", marker.display())))?;
        Ok(Self { path: path.to_path_buf(), machine })
    }

    /// Where systems have their files.
    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, table: &str) -> PathBuf {
        self.path.join(format!("{table}.jsonl"))
    }

    /// All results of a table; none if it was not run. Lines of other versions are passed over: their rows are others.
    pub(crate) fn read(&self, table: &str) -> Result<Vec<Record>> {
        let path = self.file(table);
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::io("read", &path, &error)),
        };
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Adds a result.
    pub(crate) fn add(&self, table: &str, record: &Record) -> Result<()> {
        let path = self.file(table);
        let failed = |error| Failure::io("write", &path, &error);
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        let line = serde_json::to_string(record).expect("plain data");
        // A line that was cut off before must not take this one with it.
        let old = fs::read(&path).map_err(failed)?;
        let separator = if old.last().is_none_or(|&byte| byte == b'\n') { "" } else { "\n" };
        file.write_all(format!("{separator}{line}\n").as_bytes()).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(row: &str) -> Record {
        let job = Job::Tkrzw { file: "a".into(), arguments: vec![] };
        let end = End::Measured(Outcome::default());
        Record { row: row.into(), scale: Scale::Smoke, job, seconds: 1.0, build: "one".into(), end }
    }

    #[test]
    fn results_are_there_when_the_directory_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::create(dir.path()).unwrap();
        results.add("raw", &record("a")).unwrap();
        // A line that was cut off.
        let mut file = OpenOptions::new().append(true).open(results.file("raw")).unwrap();
        file.write_all(b"{\"row\": \"b").unwrap();
        let results = Results::create(dir.path()).unwrap();
        results.add("raw", &record("c")).unwrap();
        assert_eq!(results.read("raw").unwrap(), [record("a"), record("c")]);
        assert_eq!(results.read("peers").unwrap(), []);
        fs::create_dir(results.file("peers")).unwrap();
        assert!(results.read("peers").unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn a_directory_of_something_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes"), "mine").unwrap();
        let refused = Results::create(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("is not empty"), "{refused}");
        assert!(Results::open(dir.path()).unwrap_err().to_string().contains("has no results"));
    }
}
