//! The directory that results are kept in.
//!
//! ```text
//! DIR/turbidite-compare.json   the machine and the version that made the results; marks the directory
//! DIR/write-path.jsonl ...     one line for each run of each row of a table
//! DIR/data/                    where systems under test have their files while they run
//! ```
//!
//! Lines are only added, one after each run, so that a run that was cut short goes on where it was. A last line that was not
//! finished is not read, and goes when the next one is added; any other line that cannot be read is an error. One process
//! at a time adds to a directory: it holds a lock on the file that marks it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
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
    /// The flags that it and its libraries were compiled with; `None` if that was not recorded.
    #[serde(default)]
    pub(crate) compiled: Option<String>,
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
            compiled: Some(env!("TURBIDITE_COMPARE_COMPILED").to_owned()),
        }
    }

    /// Whether results of this may be added to `earlier` ones, which do not all say how they were compiled.
    fn goes_on_from(&self, earlier: &Self) -> bool {
        let compiled = earlier.compiled.clone().or_else(|| self.compiled.clone());
        *self == Self { compiled, ..earlier.clone() }
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
    /// Held while results are added.
    _lock: Option<File>,
}

impl Results {
    /// Opens a directory for adding results, or makes it.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(|error| Failure::io("create", path, &error))?;
        let path = path.canonicalize().map_err(|error| Failure::io("find", path, &error))?;
        let here = Machine::here(&path);
        if path.join(MARKER).exists() {
            let results = Self::open(&path)?;
            if !here.goes_on_from(&results.machine) {
                return Err(Failure::usage(format!(
                    "{} has results of another machine, kernel, version or kind of build, or of other flags: give another --dir",
                    path.display()
                )));
            }
            return results.locked();
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
        Self { path, machine: here, _lock: None }.locked()
    }

    fn locked(self) -> Result<Self> {
        let lock = lock(&self.path.join(MARKER), "--dir")?;
        Ok(Self { _lock: Some(lock), ..self })
    }

    /// Opens a directory that has results.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let marker = path.join(MARKER);
        let text = fs::read_to_string(&marker).map_err(|_| {
            let path = path.display();
            Failure::usage(format!(
                "{path} has no results: `turbidite-compare run all --dir {path}` makes some"
            ))
        })?;
        let machine = serde_json::from_str(&text)
            .map_err(|error| Failure::usage(format!("{}: {error}", marker.display())))?;
        Ok(Self { path: path.to_path_buf(), machine, _lock: None })
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

    /// All results of a table; none if it was not run.
    pub(crate) fn read(&self, table: &str) -> Result<Vec<Record>> {
        let path = self.file(table);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Failure::io("read", &path, &error)),
        };
        let finished = finished(&bytes);
        let lines = bytes[..finished].split(|&byte| byte == b'\n').enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty());
        let record = |(at, line)| {
            serde_json::from_slice(line).map_err(|error| {
                let path = path.display();
                Failure::usage(format!(
                    "line {} of {path} cannot be read: {error}: remove it, and its run is made again",
                    at + 1
                ))
            })
        };
        lines.map(record).collect()
    }

    /// Adds a result.
    pub(crate) fn add(&self, table: &str, record: &Record) -> Result<()> {
        let path = self.file(table);
        let failed = |error| Failure::io("write", &path, &error);
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        let line = serde_json::to_string(record).expect("plain data");
        let old = fs::read(&path).map_err(failed)?;
        let finished = finished(&old);
        let separator =
            if old[..finished].last().is_none_or(|&byte| byte == b'\n') { "" } else { "\n" };
        file.set_len(finished as u64).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        file.write_all(format!("{separator}{line}\n").as_bytes()).map_err(failed)
    }
}

/// How many of `bytes` are lines that were finished: a last one may lack its end, but not a part of its record.
fn finished(bytes: &[u8]) -> usize {
    let ended = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    match serde_json::from_slice::<Record>(&bytes[ended..]) {
        Ok(_) => bytes.len(),
        Err(_) => ended,
    }
}

/// Locks the file that marks a directory, which was given as `option`, until it is dropped.
pub(crate) fn lock(marker: &Path, option: &str) -> Result<File> {
    let failed = |error: &io::Error| Failure::io("lock", marker, error);
    let file = File::open(marker).map_err(|error| failed(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(failed(&error)),
        Err(TryLockError::WouldBlock) => {
            let dir = marker.parent().unwrap_or(marker).display();
            Err(Failure::usage(format!(
                "another run uses {dir}: wait until it has ended, or give another {option}"
            )))
        }
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
        drop(results);
        let results = Results::create(dir.path()).unwrap();
        results.add("raw", &record("c")).unwrap();
        assert_eq!(results.read("raw").unwrap(), [record("a"), record("c")]);
        assert_eq!(results.read("peers").unwrap(), []);
        fs::create_dir(results.file("peers")).unwrap();
        assert!(results.read("peers").unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn only_the_last_line_may_be_unfinished() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::create(dir.path()).unwrap();
        results.add("raw", &record("a")).unwrap();
        let append = |text: &str| {
            let mut file = OpenOptions::new().append(true).open(results.file("raw")).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append("{\"row\": \"b");
        assert_eq!(results.read("raw").unwrap(), [record("a")]);
        results.add("raw", &record("c")).unwrap();
        assert_eq!(results.read("raw").unwrap(), [record("a"), record("c")]);
        // Whole but for its end.
        append(&serde_json::to_string(&record("d")).unwrap());
        results.add("raw", &record("e")).unwrap();
        let all = ["a", "c", "d", "e"].map(record);
        assert_eq!(results.read("raw").unwrap(), all);
        append("{\"row\": \"f\n");
        let refused = results.read("raw").unwrap_err().to_string();
        assert!(refused.contains("line 5 of ") && refused.contains("raw.jsonl"), "{refused}");
        append(&serde_json::to_string(&record("g")).unwrap());
        assert!(results.read("raw").is_err(), "it is not the last line now");
    }

    #[test]
    fn one_run_at_a_time_has_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let results = Results::create(dir.path()).unwrap();
        let refused = Results::create(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("another run uses") && refused.contains("--dir"), "{refused}");
        Results::open(dir.path()).unwrap();
        drop(results);
        Results::create(dir.path()).unwrap();
    }

    #[test]
    fn results_of_another_machine_or_of_other_flags_are_refused() {
        let here = Machine::here(Path::new("/"));
        let of = |compiled: Option<&str>| {
            let compiled = compiled.map(str::to_owned);
            Machine { compiled, ..here.clone() }
        };
        assert!(here.goes_on_from(&here));
        assert!(here.goes_on_from(&of(None)), "it was not recorded");
        assert!(!here.goes_on_from(&of(Some("CXXFLAGS=\"-O0\""))));
        assert!(!here.goes_on_from(&Machine { kernel: "another".into(), ..of(None) }));
        let dir = tempfile::tempdir().unwrap();
        drop(Results::create(dir.path()).unwrap());
        let marker = dir.path().join(MARKER);
        let mut told: serde_json::Value =
            serde_json::from_slice(&fs::read(&marker).unwrap()).unwrap();
        told.as_object_mut().unwrap().remove("compiled").unwrap();
        fs::write(&marker, told.to_string()).unwrap();
        assert_eq!(Results::create(dir.path()).unwrap().machine.compiled, None);
        told["processor"] = "another".into();
        fs::write(&marker, told.to_string()).unwrap();
        let refused = Results::create(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("another machine"), "{refused}");
    }

    #[test]
    fn a_directory_of_something_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes"), "mine").unwrap();
        let refused = Results::create(dir.path()).unwrap_err().to_string();
        assert!(refused.contains("is not empty"), "{refused}");
        let none = Results::open(dir.path()).unwrap_err().to_string();
        assert!(none.contains("has no results: `turbidite-compare run all --dir "), "{none}");
    }
}
