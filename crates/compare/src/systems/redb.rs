//! redb: one table, and a cache of all the memory. Every call that writes is a transaction. Those that are not synced
//! survive only what a later synced one does, so its durability is that of a clean close.

use std::path::Path;

use redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableDefinition};

use super::{Durability, Each, Entries, Reader, Seen, Setup, System};
use crate::failure::{Failure, Result};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("compare");

struct Redb {
    database: Database,
    durability: redb::Durability,
}

fn failed(error: impl Into<redb::Error>) -> Failure {
    Failure::of_system("redb", error.into())
}

pub(super) fn open(setup: &Setup, path: &Path) -> Result<Box<dyn System>> {
    let cache = usize::try_from(setup.memory).unwrap_or(usize::MAX);
    let created = Database::builder().set_cache_size(cache).create(path.join("db"));
    let database = created.map_err(failed)?;
    let durability = match setup.durability {
        Durability::Sync => redb::Durability::Immediate,
        _ => redb::Durability::None,
    };
    let redb = Redb { database, durability };
    redb.write(redb::Durability::Immediate, |_| Ok(()))?;
    Ok(Box::new(redb))
}

impl Redb {
    fn write(
        &self,
        durability: redb::Durability,
        change: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        transaction.set_durability(durability).map_err(failed)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(failed)?;
            change(&mut table)?;
        }
        transaction.commit().map_err(failed)
    }
}

impl System for Redb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(self.durability, |table| {
            table.insert(key, value).map_err(failed)?;
            Ok(())
        })
    }

    fn put_many(&self, entries: Entries<'_>) -> Result<()> {
        self.write(self.durability, |table| {
            for (key, value) in entries {
                table.insert(key, value).map_err(failed)?;
            }
            Ok(())
        })
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.delete_many(&mut std::iter::once(key))
    }

    fn delete_many(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> Result<()> {
        self.write(self.durability, |table| {
            for key in keys {
                table.remove(key).map_err(failed)?;
            }
            Ok(())
        })
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let transaction = self.database.begin_read().map_err(failed)?;
        let table = transaction.open_table(TABLE).map_err(failed)?;
        Ok(Box::new(RedbReader { table, _transaction: transaction }))
    }

    fn settle(&self) -> Result<()> {
        self.write(redb::Durability::Immediate, |_| Ok(()))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.settle()
    }
}

struct RedbReader {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    /// What the table is read in.
    _transaction: ReadTransaction,
}

impl Reader for RedbReader {
    fn get(&mut self, key: &[u8], seen: Seen<'_>) -> Result<bool> {
        let value = self.table.get(key).map_err(failed)?;
        if let Some(value) = &value {
            seen(value.value());
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], backwards: bool, each: Each<'_>) -> Result<()> {
        let mut range = self.table.range(from..).map_err(failed)?;
        while let Some(entry) = if backwards { range.next_back() } else { range.next() } {
            let (key, value) = entry.map_err(failed)?;
            if !each(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}
