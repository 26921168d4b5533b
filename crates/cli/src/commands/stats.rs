//! `turbidite stats`

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};
use turbidite::{
    KeyspaceInfo, KeyspaceStats, PageCacheStats, RecoveryReport, SkipStats, Stats, TreeStats,
};

use crate::arguments::DatabaseArguments;
use crate::failure::Result;
use crate::options;
use crate::output::{self, Figure, Figures};
use crate::size::{Bytes, Count};

/// Show what the database holds and costs
///
/// Entries are stored entries: replaced and deleted ones count until they are dropped, in the background
/// or by a compaction. Input, output and cache are what opening the database took. Options are those that
/// are not the default. Levels are those of LSM-trees, and values those they keep apart from keys, with what
/// of them is garbage; B+ trees and skip keyspaces follow as they are in their files.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  turbidite stats fruits.db
  turbidite stats fruits.db --json | jq .disk_bytes")]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseArguments,
    #[command(flatten)]
    figures: Figures,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<()> {
        let database = self.database.open_to_read()?;
        let (stats, keyspaces) = (database.stats(), database.keyspaces());
        if self.figures.json {
            return output::print_json(&as_json(&stats, &keyspaces, database.recovery()));
        }
        let mut out = output::stdout();
        write_database(&stats, database.recovery(), &mut out)?;
        write_keyspaces(&stats.keyspaces, &mut out)?;
        write_options(&keyspaces, &mut out)?;
        write_levels(&stats.keyspaces, &mut out)?;
        write_values(&stats.keyspaces, &mut out)?;
        write_trees(&stats.keyspaces, &mut out)?;
        write_skips(&stats.keyspaces, &mut out)?;
        Ok(out.flush()?)
    }
}

fn as_json(stats: &Stats, keyspaces: &[KeyspaceInfo], recovery: &RecoveryReport) -> Value {
    let (io, memory, cache) = (&stats.io, &stats.memory, &stats.block_cache);
    json!({
        "disk_bytes": stats.disk_bytes,
        "last_seqno": stats.last_seqno,
        "log": { "segments": stats.log.segments, "bytes": stats.log.bytes },
        "recovery": {
            "replayed_batches": recovery.replayed_batches,
            "dropped_bytes": recovery.dropped_bytes,
        },
        "memory": {
            "budget": memory.budget, "memtables": memory.memtables,
            "block_cache": memory.block_cache, "tables": memory.tables,
            "page_caches": memory.page_caches,
        },
        "cache": { "hits": cache.hits, "misses": cache.misses },
        "page_cache": page_cache_as_json(&stats.page_cache),
        "io": {
            "requests": io.requests, "reads": io.reads, "read_bytes": io.read_bytes,
            "writes": io.writes, "written_bytes": io.written_bytes, "syncs": io.syncs,
        },
        "keyspaces": stats.keyspaces.iter().zip(keyspaces).map(keyspace_as_json).collect::<Vec<_>>(),
    })
}

fn keyspace_as_json((keyspace, info): (&KeyspaceStats, &KeyspaceInfo)) -> Value {
    let levels = keyspace.levels.iter().map(|level| {
        json!({
            "level": level.level, "runs": level.runs, "tables": level.tables,
            "bytes": level.bytes, "entries": level.entries,
            "range_tombstones": level.range_tombstones,
        })
    });
    json!({
        "keyspace": keyspace.name,
        "engine": keyspace.engine.to_string(),
        "file": keyspace.layer.to_string(),
        "block_size": keyspace.layer.block_size(),
        "page_cache_pages": keyspace.layer.page_cache_pages(),
        "entries": keyspace.entries,
        "disk_bytes": keyspace.disk_bytes,
        "memory_bytes": keyspace.memory_bytes,
        "page_cache": page_cache_as_json(&keyspace.page_cache),
        "flushes": keyspace.flushes,
        "compactions": keyspace.compactions,
        "levels": levels.collect::<Vec<_>>(),
        "values": {
            "files": keyspace.values.files, "bytes": keyspace.values.bytes,
            "garbage": keyspace.values.garbage,
        },
        "tree": keyspace.tree.as_ref().map(tree_as_json),
        "skip": keyspace.skip.as_ref().map(skip_as_json),
        "logged": info.logged,
        "options": options::as_json(&info.options),
    })
}

fn tree_as_json(tree: &TreeStats) -> Value {
    json!({
        "page_size": tree.page_size, "levels": tree.levels, "records": tree.records,
        "leaf_nodes": tree.leaves, "inner_nodes": tree.inner_nodes,
        "overflow_pages": tree.overflow_pages, "free_pages": tree.free_pages,
        "requests": tree.requests, "hits": tree.hits,
    })
}

fn skip_as_json(skip: &SkipStats) -> Value {
    json!({
        "step_unit": skip.step_unit, "levels": skip.levels, "records": skip.records,
        "blocks": skip.blocks, "runs": skip.runs, "run_entries": skip.run_entries,
        "requests": skip.requests, "hits": skip.hits,
        "merges": skip.merges, "merge_done": skip.merge_done, "merge_total": skip.merge_total,
    })
}

fn page_cache_as_json(pages: &PageCacheStats) -> Value {
    json!({
        "requests": pages.requests, "hits": pages.hits, "read_pages": pages.read_pages,
        "written_pages": pages.written_pages, "evictions": pages.evictions,
    })
}

fn write_database(stats: &Stats, recovery: &RecoveryReport, out: &mut impl Write) -> Result<()> {
    let (io, memory, log) = (&stats.io, &stats.memory, &stats.log);
    writeln!(out, "on disk    {}", Bytes(stats.disk_bytes))?;
    writeln!(out, "log        {} in {} segments", Bytes(log.bytes), Count(log.segments))?;
    writeln!(out, "writes     {} so far", Count(stats.last_seqno))?;
    writeln!(
        out,
        "recovery   {} batches replayed, {} dropped",
        Count(recovery.replayed_batches),
        Bytes(recovery.dropped_bytes)
    )?;
    writeln!(
        out,
        "memory     {} budget; {} memtables, {} block cache, {} tables, {} page caches",
        Bytes(memory.budget),
        Bytes(memory.memtables),
        Bytes(memory.block_cache),
        Bytes(memory.tables),
        Bytes(memory.page_caches)
    )?;
    let cache = &stats.block_cache;
    writeln!(out, "cache      {} hits, {} misses", Count(cache.hits), Count(cache.misses))?;
    let pages = &stats.page_cache;
    writeln!(
        out,
        "pages      {} requests, {} hits, {} read, {} written, {} evicted",
        Count(pages.requests),
        Count(pages.hits),
        Count(pages.read_pages),
        Count(pages.written_pages),
        Count(pages.evictions)
    )?;
    writeln!(
        out,
        "io         {} requests, {} reads ({}), {} writes ({}), {} syncs",
        Count(io.requests),
        Count(io.reads),
        Bytes(io.read_bytes),
        Count(io.writes),
        Bytes(io.written_bytes),
        Count(io.syncs)
    )?;
    Ok(())
}

fn write_keyspaces(keyspaces: &[KeyspaceStats], out: &mut impl Write) -> Result<()> {
    let header =
        ["keyspace", "engine", "file", "entries", "on disk", "memory", "flushes", "compactions"];
    let mut table = Figure::new(&header, 3);
    for keyspace in keyspaces {
        table.row(vec![
            keyspace.name.clone(),
            keyspace.engine.to_string(),
            keyspace.layer.to_string(),
            Count(keyspace.entries).to_string(),
            Bytes(keyspace.disk_bytes).to_string(),
            Bytes(keyspace.memory_bytes).to_string(),
            Count(keyspace.flushes).to_string(),
            Count(keyspace.compactions).to_string(),
        ]);
    }
    writeln!(out)?;
    Ok(table.write(out)?)
}

/// Those that are not the default, if there are any.
fn write_options(keyspaces: &[KeyspaceInfo], out: &mut impl Write) -> Result<()> {
    let mut table = Figure::new(&["keyspace", "options"], 2);
    let chosen = |info: &&KeyspaceInfo| !info.options.chosen().is_empty();
    let mut keyspaces = keyspaces.iter().filter(chosen).peekable();
    if keyspaces.peek().is_none() {
        return Ok(());
    }
    for info in keyspaces {
        table.row(vec![info.name.clone(), options::as_text(&info.options)]);
    }
    writeln!(out)?;
    Ok(table.write(out)?)
}

fn write_levels(keyspaces: &[KeyspaceStats], out: &mut impl Write) -> Result<()> {
    let header = ["keyspace", "level", "runs", "tables", "entries", "range tombstones", "bytes"];
    let mut table = Figure::new(&header, 1);
    for keyspace in keyspaces {
        for level in &keyspace.levels {
            table.row(vec![
                keyspace.name.clone(),
                level.level.to_string(),
                Count(level.runs).to_string(),
                Count(level.tables).to_string(),
                Count(level.entries).to_string(),
                Count(level.range_tombstones).to_string(),
                Bytes(level.bytes).to_string(),
            ]);
        }
    }
    writeln!(out)?;
    Ok(table.write(out)?)
}

fn write_values(keyspaces: &[KeyspaceStats], out: &mut impl Write) -> Result<()> {
    let mut table = Figure::new(&["keyspace", "value files", "bytes", "garbage"], 1);
    let mut apart = keyspaces.iter().filter(|keyspace| keyspace.values.files > 0).peekable();
    if apart.peek().is_none() {
        return Ok(());
    }
    for keyspace in apart {
        table.row(vec![
            keyspace.name.clone(),
            Count(keyspace.values.files).to_string(),
            Bytes(keyspace.values.bytes).to_string(),
            Bytes(keyspace.values.garbage).to_string(),
        ]);
    }
    writeln!(out)?;
    Ok(table.write(out)?)
}

fn write_trees(keyspaces: &[KeyspaceStats], out: &mut impl Write) -> Result<()> {
    let header = [
        "keyspace",
        "page",
        "levels",
        "records",
        "leaf nodes",
        "inner nodes",
        "overflow pages",
        "free pages",
    ];
    let mut table = Figure::new(&header, 1);
    let trees = keyspaces.iter().filter_map(|keyspace| Some((&keyspace.name, keyspace.tree?)));
    let mut trees = trees.peekable();
    if trees.peek().is_none() {
        return Ok(());
    }
    for (name, tree) in trees {
        table.row(vec![
            name.clone(),
            Bytes(tree.page_size).to_string(),
            tree.levels.to_string(),
            Count(tree.records).to_string(),
            Count(tree.leaves).to_string(),
            Count(tree.inner_nodes).to_string(),
            Count(tree.overflow_pages).to_string(),
            Count(tree.free_pages).to_string(),
        ]);
    }
    writeln!(out)?;
    Ok(table.write(out)?)
}

fn write_skips(keyspaces: &[KeyspaceStats], out: &mut impl Write) -> Result<()> {
    let header = ["keyspace", "step unit", "levels", "records", "blocks", "runs", "run entries"];
    let mut table = Figure::new(&header, 1);
    let skips = keyspaces.iter().filter_map(|keyspace| Some((&keyspace.name, keyspace.skip?)));
    let mut skips = skips.peekable();
    if skips.peek().is_none() {
        return Ok(());
    }
    for (name, skip) in skips {
        table.row(vec![
            name.clone(),
            skip.step_unit.to_string(),
            skip.levels.to_string(),
            Count(skip.records).to_string(),
            Count(skip.blocks).to_string(),
            Count(skip.runs).to_string(),
            Count(skip.run_entries).to_string(),
        ]);
    }
    writeln!(out)?;
    Ok(table.write(out)?)
}
