//! RocksDB, as bundled with its crate: no compression, Bloom filters of 10 bits for each key, and a block cache of what its
//! memtables leave of the memory.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, MemtableFactory, Options,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};

use super::{Choices, Durability, Each, Entries, Reader, Seen, Setup, System};
use crate::failure::{Failure, Result};

struct Rocks {
    db: DB,
    write: WriteOptions,
}

fn failed(error: rocksdb::Error) -> Failure {
    Failure::of_system("rocksdb", error)
}

pub(super) fn open(
    setup: &Setup,
    choices: &mut Choices<'_>,
    path: &Path,
) -> Result<Box<dyn System>> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    let buffers = choices.take::<u64>("buffers")?.unwrap_or(3);
    let buffer = setup.memtable();
    options.set_write_buffer_size(usize::try_from(buffer).unwrap_or(usize::MAX));
    options.set_max_write_buffer_number(i32::try_from(buffers).unwrap_or(3));
    let cache = setup.memory.saturating_sub(buffer * buffers).max(8 << 20);
    options.set_block_based_table_factory(&tables(cache));
    if let Some(memtable) = choices.take::<String>("memtable")? {
        set_memtable(&mut options, &memtable)?;
    }
    if setup.durability == Durability::Manual {
        options.set_manual_wal_flush(true);
    }
    if choices.take::<bool>("auto-compactions")? == Some(false) {
        options.set_disable_auto_compactions(true);
        // What the study set besides.
        options.set_level_zero_file_num_compaction_trigger(1_000_000);
        options.set_level_zero_slowdown_writes_trigger(1_000_000);
        options.set_level_zero_stop_writes_trigger(1_000_000);
    }
    if choices.take::<bool>("concurrent-memtable-writes")? == Some(false) {
        options.set_allow_concurrent_memtable_write(false);
    }
    if let Some(threads) = choices.take::<i32>("threads")? {
        // A quarter of them flush, one at least, as one thread more does here; and a merge may be cut in as many parts.
        options.increase_parallelism(threads + 1);
        options.set_max_subcompactions(u32::try_from(threads).unwrap_or(1));
    }
    if let Some(bytes) = choices.take::<u64>("table-size")? {
        options.set_target_file_size_base(bytes);
        options.set_max_bytes_for_level_base(bytes * 5);
    }
    if let Some(bytes) = choices.take::<u64>("base")? {
        options.set_max_bytes_for_level_base(bytes);
    }
    if let Some(ratio) = choices.take::<f64>("ratio")? {
        options.set_max_bytes_for_level_multiplier(ratio);
    }
    let mut write = WriteOptions::default();
    write.disable_wal(setup.durability == Durability::None);
    write.set_sync(setup.durability == Durability::Sync);
    let db = DB::open(&options, path.join("db")).map_err(failed)?;
    Ok(Box::new(Rocks { db, write }))
}

fn tables(cache: u64) -> BlockBasedOptions {
    let mut tables = BlockBasedOptions::default();
    tables.set_bloom_filter(10.0, false);
    let bytes = usize::try_from(cache).unwrap_or(usize::MAX);
    tables.set_block_cache(&Cache::new_lru_cache(bytes));
    tables
}

fn set_memtable(options: &mut Options, name: &str) -> Result<()> {
    let factory = match name {
        "skiplist" => return Ok(()),
        "vector" => MemtableFactory::Vector,
        "hash-skiplist" => {
            options.set_prefix_extractor(rocksdb::SliceTransform::create_fixed_prefix(8));
            MemtableFactory::HashSkipList { bucket_count: 1 << 20, height: 4, branching_factor: 4 }
        }
        "hash-linklist" => {
            options.set_prefix_extractor(rocksdb::SliceTransform::create_fixed_prefix(8));
            MemtableFactory::HashLinkList { bucket_count: 1 << 20 }
        }
        other => return Err(Failure::usage(format!("rocksdb has no memtable {other:?}"))),
    };
    options.set_memtable_factory(factory);
    // Only its skip list takes writes of several threads.
    options.set_allow_concurrent_memtable_write(false);
    Ok(())
}

impl System for Rocks {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put_opt(key, value, &self.write).map_err(failed)
    }

    fn put_many(&self, entries: Entries<'_>) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in entries {
            batch.put(key, value);
        }
        self.db.write_opt(batch, &self.write).map_err(failed)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.db.delete_opt(key, &self.write).map_err(failed)
    }

    fn delete_many(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> Result<()> {
        let mut batch = WriteBatch::default();
        for key in keys {
            batch.delete(key);
        }
        self.db.write_opt(batch, &self.write).map_err(failed)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(&self.db))
    }

    fn settle(&self) -> Result<()> {
        self.db.flush().map_err(failed)?;
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(failed)
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

impl Reader for &DB {
    fn get(&mut self, key: &[u8], seen: Seen<'_>) -> Result<bool> {
        let value = self.get_pinned(key).map_err(failed)?;
        if let Some(value) = &value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn get_many(&mut self, keys: &mut dyn Iterator<Item = &[u8]>, seen: Seen<'_>) -> Result<u64> {
        let mut found = 0;
        for value in DB::multi_get(self, keys) {
            if let Some(value) = value.map_err(failed)? {
                seen(&value);
                found += 1;
            }
        }
        Ok(found)
    }

    fn scan(&mut self, from: &[u8], backwards: bool, each: Each<'_>) -> Result<()> {
        let mut iterator = self.raw_iterator();
        if backwards {
            iterator.seek_to_last();
        } else {
            iterator.seek(from);
        }
        // See Turbidite's.
        let ends = backwards && !from.is_empty();
        while let Some((key, value)) = iterator.item() {
            if ends && key < from || !each(key, value) {
                break;
            }
            if backwards {
                iterator.prev();
            } else {
                iterator.next();
            }
        }
        iterator.status().map_err(failed)
    }
}
