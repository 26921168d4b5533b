//! LMDB: a mapped file that is written through its mapping, or by calls if that is chosen, and not synced unless the durability asks
//! for it. It has no memory of its own: its cache is the system's. Every call that writes is a transaction. The map has a size
//! that is chosen when it is opened, and what does not fit in is refused.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn};

use super::{Choices, Durability, Each, Entries, Reader, Seen, Setup, System};
use crate::failure::{Failure, Result};

/// The bytes of the map, unless others are chosen.
const MAP: usize = 32 << 30;

struct Lmdb {
    env: Env,
    database: Database<Bytes, Bytes>,
}

fn failed(error: heed::Error) -> Failure {
    match error {
        heed::Error::Mdb(heed::MdbError::MapFull) => Failure::of_system(
            "lmdb",
            format!(
                "{error}: the map is full, which has {} GiB unless another size is chosen",
                MAP >> 30
            ),
        ),
        error => Failure::of_system("lmdb", error),
    }
}

pub(super) fn open(
    setup: &Setup,
    choices: &mut Choices<'_>,
    path: &Path,
) -> Result<Box<dyn System>> {
    let mut options = EnvOpenOptions::new();
    let size = choices.take::<usize>("map-size")?.unwrap_or(MAP);
    options.map_size(size).max_readers(128);
    let is_mapped = choices.take::<bool>("write-map")?.unwrap_or(true);
    let mut flags = if is_mapped { EnvFlags::WRITE_MAP } else { EnvFlags::empty() };
    if setup.durability != Durability::Sync {
        flags |= EnvFlags::NO_SYNC | EnvFlags::MAP_ASYNC;
    }
    let env = lmdb_env(&mut options, flags, path)?;
    let mut transaction = env.write_txn().map_err(failed)?;
    let database = env.create_database(&mut transaction, None).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    Ok(Box::new(Lmdb { env, database }))
}

/// Opens the environment.
fn lmdb_env(
    options: &mut EnvOpenOptions<heed::WithTls>,
    flags: EnvFlags,
    path: &Path,
) -> Result<Env> {
    // SAFETY: the directory was made for this process, which is the only one to have it open, once at a time. The flags
    // leave out what a crash of the machine would need, and the directory is removed after the run.
    unsafe {
        options.flags(flags);
        options.open(path).map_err(failed)
    }
}

impl System for Lmdb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_many(&mut std::iter::once((key, value)))
    }

    fn put_many(&self, entries: Entries<'_>) -> Result<()> {
        let mut transaction = self.env.write_txn().map_err(failed)?;
        for (key, value) in entries {
            self.database.put(&mut transaction, key, value).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.delete_many(&mut std::iter::once(key))
    }

    fn delete_many(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> Result<()> {
        let mut transaction = self.env.write_txn().map_err(failed)?;
        for key in keys {
            self.database.delete(&mut transaction, key).map_err(failed)?;
        }
        transaction.commit().map_err(failed)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let transaction = self.env.read_txn().map_err(failed)?;
        Ok(Box::new(LmdbReader { transaction, database: self.database }))
    }

    fn settle(&self) -> Result<()> {
        self.env.force_sync().map_err(failed)
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { env, .. } = *self;
        env.prepare_for_closing().wait();
        Ok(())
    }
}

struct LmdbReader<'a> {
    transaction: RoTxn<'a, heed::WithTls>,
    database: Database<Bytes, Bytes>,
}

impl Reader for LmdbReader<'_> {
    fn get(&mut self, key: &[u8], seen: Seen<'_>) -> Result<bool> {
        let value = self.database.get(&self.transaction, key).map_err(failed)?;
        if let Some(value) = value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], backwards: bool, each: Each<'_>) -> Result<()> {
        // No key of LMDB is empty, and it refuses to look for one.
        let lower = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let bounds = (lower, Bound::Unbounded);
        if backwards {
            for entry in self.database.rev_range(&self.transaction, &bounds).map_err(failed)? {
                let (key, value) = entry.map_err(failed)?;
                if !each(key, value) {
                    break;
                }
            }
        } else {
            for entry in self.database.range(&self.transaction, &bounds).map_err(failed)? {
                let (key, value) = entry.map_err(failed)?;
                if !each(key, value) {
                    break;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_full_map_is_not_a_full_disk() {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::new("lmdb", Durability::None, 0).with("map-size", 1 << 20);
        let system = open(&setup, &mut setup.choices(), dir.path()).unwrap();
        let put = |number: u32| system.put(&number.to_be_bytes(), &[0; 1000]);
        let full = (0..10_000).find_map(|number| put(number).err()).unwrap();
        assert_eq!(full.exit(), Exit::Other, "the next system has room");
        let said = full.to_string();
        assert!(
            said.contains("the map is full, which has 32 GiB") && !said.contains("space"),
            "{said}"
        );
    }
}
