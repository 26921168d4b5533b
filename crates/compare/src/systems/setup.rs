//! How a system is set up, as plain data: it travels to the process that runs the system, and is part of what a result is
//! recognised by.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// What an acknowledged write survives, in words that all systems share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Durability {
    /// A clean close: there is no log, or nothing of it is handed over.
    None,
    /// A clean close: the log is held in the process until its buffer is full.
    Manual,
    /// The process being killed: each write is with the kernel when the call returns.
    Os,
    /// Power loss: each write is on the device when the call returns.
    Sync,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none: no log",
            Self::Manual => "log in the process until its buffer is full",
            Self::Os => "survives a kill",
            Self::Sync => "survives power loss",
        })
    }
}

/// A system and all that was chosen for it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Its name in the registry.
    pub(crate) system: String,
    pub(crate) durability: Durability,
    /// The bytes of memtables and caches together, as far as the system has any of its own.
    pub(crate) memory: u64,
    /// What else was chosen, by names that the system knows.
    pub(crate) options: BTreeMap<String, String>,
}

impl Setup {
    pub(crate) fn new(system: &str, durability: Durability, memory: u64) -> Self {
        Self { system: system.to_owned(), durability, memory, options: BTreeMap::new() }
    }

    /// The same with one more choice.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.options.insert(name.to_owned(), value.to_string());
        self
    }

    /// The size at which a memtable is frozen, in bytes: an eighth of the memory, as Turbidite has it.
    pub(crate) fn memtable(&self) -> u64 {
        (self.memory / 8).min(128 << 20)
    }

    /// The choices, to be taken one by one.
    pub(crate) fn choices(&self) -> Choices<'_> {
        Choices { setup: self, left: self.options.clone() }
    }
}

/// The choices that nobody has taken yet. Those left over are an error: nothing is chosen that has no effect.
pub(crate) struct Choices<'a> {
    setup: &'a Setup,
    left: BTreeMap<String, String>,
}

impl Choices<'_> {
    /// What was chosen for `name`, if it was.
    pub(crate) fn take<T: FromStr>(&mut self, name: &str) -> Result<Option<T>>
    where
        T::Err: fmt::Display,
    {
        let Some(text) = self.left.remove(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|error| {
            let system = &self.setup.system;
            Failure::usage(format!("{system}: {name} cannot be {text:?}: {error}"))
        })
    }

    /// All have been taken.
    pub(crate) fn end(self) -> Result<()> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(name) => {
                Err(Failure::usage(format!("{} has no option {name:?}", self.setup.system)))
            }
        }
    }
}

impl Setup {
    /// What its writes survive, with what the system does in its own way.
    pub(crate) fn durability_in_words(&self) -> String {
        let words = self.durability.to_string();
        match (self.system.as_str(), self.durability) {
            ("fjall", Durability::None) => {
                "its journal is always there: here held in the process".to_owned()
            }
            ("redb", Durability::Os | Durability::Manual) => {
                "less than asked for: unsynced commits survive a clean close".to_owned()
            }
            ("lmdb", Durability::None | Durability::Os) => {
                "survives a kill: what is written is in the system's page cache".to_owned()
            }
            ("vec" | "skipmap", _) => "none: memory".to_owned(),
            ("file", _) => match self.options.get("mode").map(String::as_str) {
                Some("o-sync" | "fdatasync") => Durability::Sync.to_string(),
                Some("buffered") => Durability::Manual.to_string(),
                _ => Durability::Os.to_string(),
            },
            _ => words,
        }
    }
}
