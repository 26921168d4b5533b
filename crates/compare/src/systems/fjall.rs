//! fjall: no compression, Bloom filters of 10 bits for each key, and a block cache of what its memtables leave of the
//! memory. Its journal is always there; without a durability it is held in the process until its buffer is full.

use std::path::Path;

use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Choices, Durability, Each, Entries, Reader, Seen, Setup, System};
use crate::failure::{Failure, Result};

struct Fjall {
    database: Database,
    keyspace: Keyspace,
    syncs: bool,
}

fn failed(error: fjall::Error) -> Failure {
    Failure::of_system("fjall", format!("{error:?}"))
}

pub(super) fn open(
    setup: &Setup,
    choices: &mut Choices<'_>,
    path: &Path,
) -> Result<Box<dyn System>> {
    let held = matches!(setup.durability, Durability::None | Durability::Manual);
    let cache = setup.memory.saturating_sub(2 * setup.memtable());
    let mut builder = Database::builder(path.join("db"))
        .cache_size(cache)
        .journal_compression(CompressionType::None)
        .manual_journal_persist(held);
    if let Some(threads) = choices.take::<usize>("threads")? {
        builder = builder.worker_threads(threads);
    }
    let database = builder.open().map_err(failed)?;
    let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
    let options = || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(setup.memtable())
            .manual_journal_persist(held)
            .filter_policy(FilterPolicy::all(bloom))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
            .index_block_compression_policy(CompressionPolicy::all(CompressionType::None))
    };
    let keyspace = database.keyspace("compare", options).map_err(failed)?;
    Ok(Box::new(Fjall { database, keyspace, syncs: setup.durability == Durability::Sync }))
}

impl Fjall {
    fn written(&self) -> Result<()> {
        match self.syncs {
            true => self.database.persist(PersistMode::SyncData).map_err(failed),
            false => Ok(()),
        }
    }
}

impl System for Fjall {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value).map_err(failed)?;
        self.written()
    }

    fn put_many(&self, entries: Entries<'_>) -> Result<()> {
        let mut batch = self.database.batch();
        for (key, value) in entries {
            batch.insert(&self.keyspace, key, value);
        }
        batch.commit().map_err(failed)?;
        self.written()
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key).map_err(failed)?;
        self.written()
    }

    fn delete_many(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> Result<()> {
        let mut batch = self.database.batch();
        for key in keys {
            batch.remove(&self.keyspace, key);
        }
        batch.commit().map_err(failed)?;
        self.written()
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self))
    }

    fn settle(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait().map_err(failed)?;
        while self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.persist(PersistMode::Buffer).map_err(failed)
    }
}

impl Reader for &Fjall {
    fn get(&mut self, key: &[u8], seen: Seen<'_>) -> Result<bool> {
        let value = self.keyspace.get(key).map_err(failed)?;
        if let Some(value) = &value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], backwards: bool, each: Each<'_>) -> Result<()> {
        let mut visit = |entry: Guard| {
            let (key, value) = entry.into_inner().map_err(failed)?;
            Ok::<bool, Failure>(each(&key, &value))
        };
        let range = match from {
            [] => self.keyspace.iter(),
            _ => self.keyspace.range(from..),
        };
        if backwards {
            for entry in range.rev() {
                if !visit(entry)? {
                    break;
                }
            }
        } else {
            for entry in range {
                if !visit(entry)? {
                    break;
                }
            }
        }
        Ok(())
    }
}
