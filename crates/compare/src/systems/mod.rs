//! The systems that are compared, behind one small trait: Turbidite is one among equals.
//!
//! A system is opened from a [`Setup`] in a directory of its own. What it cannot do answers an error that says so. Those
//! that are not compiled in or not installed are listed all the same, and say what is missing.

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
mod raw;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod setup;
mod skipmaplog;
pub(crate) mod tkrzw;
mod turbidite;
mod veclog;
mod writepath;

use std::path::Path;
use std::time::Instant;

use crate::failure::{Failure, Result};

pub(crate) use setup::{Choices, Durability, Setup};

/// The keys and values of one call that writes several.
pub(crate) type Entries<'a> = &'a mut dyn Iterator<Item = (&'a [u8], &'a [u8])>;

/// Is given what a read found.
pub(crate) type Seen<'a> = &'a mut dyn FnMut(&[u8]);

/// Is given each record of a walk; `false` ends it.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// Keys of one level of an LSM-tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LevelKeys {
    pub(crate) level: u32,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
}

/// A compaction: when it ran, and the keys of what it took and of what it made, for each level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Compaction {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
    pub(crate) inputs: Vec<LevelKeys>,
    pub(crate) outputs: Vec<LevelKeys>,
}

/// A system while it is open.
pub(crate) trait System: Sync {
    /// Puts one record, by itself.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Puts several records together: all or none, where the system can.
    fn put_many(&self, entries: Entries<'_>) -> Result<()> {
        for (key, value) in entries {
            self.put(key, value)?;
        }
        Ok(())
    }

    /// Deletes a record.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Deletes several records together.
    fn delete_many(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> Result<()> {
        for key in keys {
            self.delete(key)?;
        }
        Ok(())
    }

    /// What reads, for one thread and many reads. Where reads belong to a transaction, it is one for all: reads see what
    /// was written before.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;

    /// Waits until nothing is left to do in the background: memtables are in files, and no compaction is due.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Has all that was written in the system's own files, synced.
    fn persist(&self) -> Result<()> {
        self.settle()
    }

    /// Figures that the system counts itself.
    fn counters(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// The compactions that have ended since this was asked last, where the system tells of each.
    fn compactions(&self) -> Vec<Compaction> {
        Vec::new()
    }

    /// Closes it and reports what went wrong in the background.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What reads of an open system.
pub(crate) trait Reader {
    /// Shows the value of `key`, if there is one, and says whether there is.
    fn get(&mut self, key: &[u8], seen: Seen<'_>) -> Result<bool>;

    /// Shows the values of `keys` that are there in the order of the keys, with one call where the system has one, and
    /// says how many there are.
    fn get_many(&mut self, keys: &mut dyn Iterator<Item = &[u8]>, seen: Seen<'_>) -> Result<u64> {
        let mut found = 0;
        for key in keys {
            found += u64::from(self.get(key, seen)?);
        }
        Ok(found)
    }

    /// Walks over the records from `from` on, or from the last one back to it.
    fn scan(&mut self, from: &[u8], backwards: bool, each: Each<'_>) -> Result<()>;
}

/// A system as it is known before it is opened.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// What is missing, and how to get it.
    missing: fn() -> Option<String>,
}

impl Kind {
    /// What keeps it from being run here, and what to do about that.
    pub(crate) fn missing(&self) -> Option<String> {
        (self.missing)()
    }
}

const TURBIDITE: [(&str, &str); 4] = [
    ("turbidite-lsm", "Turbidite, a keyspace in an LSM-tree"),
    ("turbidite-hash", "Turbidite, a keyspace in a hash table"),
    ("turbidite-btree", "Turbidite, a keyspace in a B+ tree"),
    ("turbidite-skip", "Turbidite, a keyspace in a sorted file with skip links"),
];

/// Every system, in the order in which they are listed and coloured.
pub(crate) fn kinds() -> Vec<Kind> {
    let ours = TURBIDITE.map(|(name, about)| Kind { name, about, missing: || None });
    let mut kinds = Vec::from(ours);
    kinds.extend([
        Kind {
            name: "rocksdb",
            about: "RocksDB 11.8 through the crate rocksdb 0.25: an LSM-tree in C++",
            missing: || {
                (!cfg!(feature = "rocksdb")).then(|| {
                    "not compiled in: install libclang-dev and a C++ compiler, then build with `--features rocksdb`, \
                     which takes about 20 minutes on 2 cores; ROCKSDB_LIB_DIR and ROCKSDB_STATIC=1 link to one that is \
                     there"
                        .to_owned()
                })
            },
        },
        Kind {
            name: "fjall",
            about: "fjall 3: an LSM-tree in Rust",
            missing: || not_compiled(cfg!(feature = "fjall"), "fjall"),
        },
        Kind {
            name: "redb",
            about: "redb 4: a B+ tree that copies on write, in Rust",
            missing: || not_compiled(cfg!(feature = "redb"), "redb"),
        },
        Kind {
            name: "lmdb",
            about: "LMDB through heed 0.22: a mapped B+ tree in C",
            missing: || not_compiled(cfg!(feature = "lmdb"), "lmdb"),
        },
        Kind {
            name: "tkrzw",
            about: "Tkrzw's hash, tree and skip databases, through its own tool tkrzw_dbm_perf",
            missing: tkrzw::missing,
        },
        Kind {
            name: "vec-log",
            about: "The study's log of a vector that is never sorted, written anew from its description",
            missing: || None,
        },
        Kind {
            name: "skipmap-log",
            about: "The study's log with crossbeam-skiplist, written anew from its description",
            missing: || None,
        },
        Kind {
            name: "vec",
            about: "A vector that records are pushed on: no file, no read",
            missing: || None,
        },
        Kind {
            name: "skipmap",
            about: "crossbeam-skiplist by itself: no file",
            missing: || None,
        },
        Kind {
            name: "file",
            about: "Records written one after the other to one file: write() a record, through a buffer, with O_SYNC, or \
                    with an fdatasync",
            missing: || None,
        },
    ]);
    kinds
}

fn not_compiled(is_compiled: bool, feature: &str) -> Option<String> {
    (!is_compiled).then(|| format!("not compiled in: build with `--features {feature}`"))
}

/// The system of this name.
pub(crate) fn kind(name: &str) -> Result<Kind> {
    let found = kinds().into_iter().find(|kind| kind.name == name);
    found.ok_or_else(|| Failure::usage(format!("there is no system {name:?}: `list` has all")))
}

/// Opens a system in the directory `path`, which is made if it is missing.
pub(crate) fn open(setup: &Setup, path: &Path) -> Result<Box<dyn System>> {
    if let Some(missing) = kind(&setup.system)?.missing() {
        return Err(Failure::usage(format!("{} is {missing}", setup.system)));
    }
    std::fs::create_dir_all(path).map_err(|error| Failure::io("create", path, &error))?;
    let mut choices = setup.choices();
    let opened = match setup.system.as_str() {
        #[cfg(feature = "rocksdb")]
        "rocksdb" => rocksdb::open(setup, &mut choices, path),
        #[cfg(feature = "fjall")]
        "fjall" => fjall::open(setup, &mut choices, path),
        #[cfg(feature = "redb")]
        "redb" => redb::open(setup, path),
        #[cfg(feature = "lmdb")]
        "lmdb" => lmdb::open(setup, &mut choices, path),
        "vec-log" => veclog::open(setup, &mut choices, path),
        "skipmap-log" => skipmaplog::open(setup, &mut choices, path),
        "vec" => Ok(raw::vec()),
        "skipmap" => Ok(raw::skipmap()),
        "file" => raw::file(setup, &mut choices, path),
        "tkrzw" => Err(Failure::usage("tkrzw runs workloads of its own only")),
        name => turbidite::open(name, setup, &mut choices, path),
    }?;
    choices.end()?;
    Ok(opened)
}

/// The error of a system that has no way to do something.
fn cannot<T>(system: &str, what: &str) -> Result<T> {
    Err(Failure::usage(format!("{system} cannot {what}")))
}
