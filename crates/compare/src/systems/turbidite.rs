//! Turbidite: a keyspace on each engine, over each file layer, with each memtable and durability.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use turbidite::vfs::{DiskFs, Effect, Fault, FaultFs, Operation, Times};
use turbidite::{
    CompactionLock, Database, Durability as Level, EngineKind, Event, FilterKind, KeyFile,
    Keyspace, KeyspaceOptions, Layer, LevelRange, MemtableKind, Policy,
};

use super::{
    Choices, Compaction, Durability, Each, Entries, LevelKeys, Reader, Seen, Setup, System,
};
use crate::failure::{Failure, Result};

struct Turbidite {
    database: Database,
    keyspace: Keyspace,
    engine: EngineKind,
    compactions: Arc<Mutex<Compactions>>,
}

/// What was told of compactions.
#[derive(Default)]
struct Compactions {
    /// How long all have taken.
    taken: Duration,
    /// Those that nobody has asked for yet.
    ended: Vec<Compaction>,
}

impl Compactions {
    fn add(&mut self, event: &Event) {
        if !event.kind.is_compaction() {
            return;
        }
        self.taken += event.end.saturating_sub(event.start);
        let keys = |ranges: &[LevelRange]| ranges.iter().map(keys_of).collect();
        self.ended.push(Compaction {
            start: event.opened + event.start,
            end: event.opened + event.end,
            inputs: keys(&event.inputs),
            outputs: keys(&event.outputs),
        });
    }
}

fn keys_of(range: &LevelRange) -> LevelKeys {
    let LevelRange { level, smallest, largest, .. } = range;
    LevelKeys { level: *level, smallest: smallest.clone(), largest: largest.clone() }
}

fn lock(compactions: &Mutex<Compactions>) -> MutexGuard<'_, Compactions> {
    compactions.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a keyspace on the engine that `name` ends with.
pub(super) fn open(
    name: &str,
    setup: &Setup,
    choices: &mut Choices<'_>,
    path: &Path,
) -> Result<Box<dyn System>> {
    let engine: EngineKind = name.trim_start_matches("turbidite-").parse()?;
    let memory = usize::try_from(setup.memory).unwrap_or(usize::MAX);
    let mut builder = Database::builder(path.join("db")).memory_budget(memory);
    builder = match setup.durability {
        Durability::None => builder,
        Durability::Manual => builder.durability(Level::Buffered).manual_log_flush(),
        Durability::Os => builder.durability(Level::Os),
        Durability::Sync => builder.durability(Level::Sync),
    };
    if let Some(bytes) = choices.take::<usize>("block-cache")? {
        builder = builder.block_cache(bytes);
    }
    if let Some(files) = choices.take::<usize>("open-files")? {
        builder = builder.open_files(files);
    }
    if let Some(threads) = choices.take::<usize>("threads")? {
        builder = builder.background_threads(threads);
    }
    if let Some(lock) = choices.take::<CompactionLock>("lock")? {
        builder = builder.compaction_lock(lock);
    }
    if let Some(slower) = choices.take::<u64>("call-us")? {
        builder = builder.file_system(Arc::new(slow_tables(slower)));
    }
    let compactions = Arc::<Mutex<Compactions>>::default();
    let told = Arc::clone(&compactions);
    let listener = move |event: &Event| lock(&told).add(event);
    let database = builder.listener(Arc::new(listener)).open()?;
    let options = options(engine, choices)?.log(setup.durability != Durability::None);
    let keyspace = database.keyspace("compare", options)?;
    Ok(Box::new(Turbidite { database, keyspace, engine, compactions }))
}

/// A device whose calls that read or write tables take so many microseconds longer, and syncs five times that.
fn slow_tables(call: u64) -> FaultFs {
    let faults = FaultFs::new(Arc::new(DiskFs::new()));
    for (operation, micros) in
        [(Operation::Read, call), (Operation::Write, call), (Operation::Sync, 5 * call)]
    {
        let delay = Fault::new(operation, Effect::Delay(Duration::from_micros(micros)));
        faults.arm(Fault { name_contains: ".table".into(), times: Times::Always, ..delay });
    }
    faults
}

/// What the keyspace is made of.
fn options(engine: EngineKind, choices: &mut Choices<'_>) -> Result<KeyspaceOptions> {
    let mut options = match engine {
        EngineKind::Lsm => lsm(choices)?,
        EngineKind::Hash => KeyspaceOptions::hash(),
        EngineKind::Btree => btree(choices)?,
        EngineKind::Skip => skip(choices)?,
        other => return Err(Failure::usage(format!("the engine {other} is not compared"))),
    };
    if let Some(mut layer) = choices.take::<Layer>("layer")? {
        if let Some(bytes) = choices.take::<u32>("block")? {
            layer = layer.with_block_size(bytes)?;
        }
        if let Some(pages) = choices.take::<u32>("pages")? {
            layer = layer.with_page_cache_pages(pages)?;
        }
        options = options.layer(layer);
    }
    Ok(options)
}

fn lsm(choices: &mut Choices<'_>) -> Result<KeyspaceOptions> {
    let mut options = KeyspaceOptions::lsm();
    if let Some(kind) = choices.take::<MemtableKind>("memtable")? {
        options = options.memtable(kind);
    }
    if let Some(kind) = choices.take::<FilterKind>("filter")? {
        options = options.filter(kind);
    }
    if let Some(kept) = choices.take::<KeyFile>("key-file")? {
        options = options.key_file(kept);
    }
    if let Some(policy) = choices.take::<Policy>("policy")? {
        options = options.policy(policy);
    }
    if let Some(bytes) = choices.take::<u64>("table-size")? {
        options = options.table_size(bytes);
    }
    Ok(options)
}

fn btree(choices: &mut Choices<'_>) -> Result<KeyspaceOptions> {
    let options = KeyspaceOptions::btree();
    Ok(match choices.take::<u32>("cached-pages")? {
        Some(pages) => options.max_cached_pages(pages),
        None => options,
    })
}

fn skip(choices: &mut Choices<'_>) -> Result<KeyspaceOptions> {
    let mut options = KeyspaceOptions::skip();
    if let Some(records) = choices.take::<u32>("step")? {
        options = options.step_unit(records);
    }
    if let Some(levels) = choices.take::<u32>("levels")? {
        options = options.max_level(levels);
    }
    Ok(options)
}

impl System for Turbidite {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.keyspace.put(key, value)?)
    }

    fn put_many(&self, entries: Entries<'_>) -> Result<()> {
        let mut batch = self.database.batch();
        for (key, value) in entries {
            batch.put(&self.keyspace, key, value);
        }
        Ok(batch.commit()?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.keyspace.delete(key)?)
    }

    fn delete_many(&self, keys: &mut dyn Iterator<Item = &[u8]>) -> Result<()> {
        let mut batch = self.database.batch();
        for key in keys {
            batch.delete(&self.keyspace, key);
        }
        Ok(batch.commit()?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self))
    }

    fn settle(&self) -> Result<()> {
        self.keyspace.persist()?;
        Ok(self.database.settle()?)
    }

    fn persist(&self) -> Result<()> {
        Ok(self.keyspace.persist()?)
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        let stats = self.database.stats();
        let pages = stats.page_cache;
        let mut counters = vec![
            ("requests", stats.io.requests),
            ("reads", stats.io.reads),
            ("writes", stats.io.writes),
            ("syncs", stats.io.syncs),
            ("page requests", pages.requests),
            ("page hits", pages.hits),
            ("memtable bytes", stats.memory.memtables),
            ("index bytes", stats.memory.indexes + stats.memory.tables),
        ];
        for keyspace in &stats.keyspaces {
            counters.push(("compactions", keyspace.compactions));
            if let Some(tree) = keyspace.tree {
                counters.extend([
                    ("node requests", tree.requests),
                    ("node hits", tree.hits),
                    ("inner nodes", tree.inner_nodes),
                    ("leaf nodes", tree.leaves),
                    ("tree records", tree.records),
                ]);
            }
            if let Some(skip) = keyspace.skip {
                counters.extend([("block requests", skip.requests), ("block hits", skip.hits)]);
            }
        }
        let compacting = lock(&self.compactions).taken;
        let counters = counters.into_iter().map(|(name, count)| (name, count as f64));
        counters.chain([("compaction seconds", compacting.as_secs_f64())]).collect()
    }

    fn compactions(&self) -> Vec<Compaction> {
        std::mem::take(&mut lock(&self.compactions).ended)
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { database, keyspace, .. } = *self;
        drop(keyspace);
        Ok(database.close()?)
    }
}

impl Reader for &Turbidite {
    fn get(&mut self, key: &[u8], seen: Seen<'_>) -> Result<bool> {
        let value = self.keyspace.get(key)?;
        if let Some(value) = &value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn get_many(&mut self, keys: &mut dyn Iterator<Item = &[u8]>, seen: Seen<'_>) -> Result<u64> {
        let values = self.keyspace.multi_get(keys)?;
        let mut found = 0;
        for value in values.iter().flatten() {
            seen(value);
            found += 1;
        }
        Ok(found)
    }

    fn scan(&mut self, from: &[u8], backwards: bool, each: Each<'_>) -> Result<()> {
        if self.engine == EngineKind::Hash {
            return super::cannot("turbidite-hash", "walk over keys in their order");
        }
        // It lends keys and values, as the other stores do.
        let mut cursor = self.keyspace.cursor()?;
        if backwards {
            cursor.seek_to_last()?;
        } else {
            cursor.seek(from)?;
        }
        // Comparing with nothing costs more than a step where that is no address.
        let ends = backwards && !from.is_empty();
        while cursor.is_valid() {
            if ends && cursor.key() < from || !each(cursor.key(), cursor.value()) {
                break;
            }
            if backwards {
                cursor.prev()?;
            } else {
                cursor.next()?;
            }
        }
        Ok(())
    }
}
