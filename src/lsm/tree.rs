//! The LSM-tree (O'Neil et al., 1996): writes go to a memtable, full memtables are flushed to sorted tables,
//! and tables are merged into deeper levels in the background.
//!
//! Thread safety. Readers load one pointer to a [`State`] and never wait. The commit path alone applies
//! writes and freezes memtables. Changes of the state are made under `swap`, which is held over no I/O;
//! changes of the version are recorded in the manifest first, under `manifest`, which only flushes and
//! compactions take. Order of locks: `manifest`, then `swap`; the lock of [`jobs`](crate::jobs) is taken alone.
//!
//! Invariants: `frozen` is flushed oldest first, so the persisted state is always that of one sequence
//! number; the log is safe up to that number before the manifest says so.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;

use super::compaction::merge::{Output, write_tables};
use super::compaction::policy::{self, Choice, Shape};
use super::compaction::retention::Retention;
use super::cursor::{PartCursor, RunCursor};
use super::state::State;
use super::table::{ReadMode, TableOptions};
use super::values::{self, Moves, Placement, References, ValueCursor, ValueFiles, verify_files};
use super::version::{
    Edit, Home, LEVELS, Manifest, TableFile, Version, check_files_exist, remove_leftovers,
};
use crate::base::{ReadPoint, Seqno, Slice, Trailer};
use crate::contract::{Context, Engine, Write};
use crate::error::{Error, ErrorKind, Result};
use crate::iter::{EntryCursor, Merge, OrderedCursor, Visible};
use crate::jobs::{Jobs, Status, Work};
use crate::memtable::{Frozen, Memtables};
use crate::options::{EngineKind, LsmOptions};
use crate::stats::{KeyspaceStats, LevelStats, VerifyReport};
use crate::vfs::Layer;

/// A keyspace kept in an LSM-tree.
pub(crate) struct Tree {
    context: Context,
    home: Arc<Home>,
    shape: Shape,
    options: ArcSwap<LsmOptions>,
    state: ArcSwap<State>,
    swap: Mutex<()>,
    manifest: Mutex<Manifest>,
    persisted: AtomicU64,
    jobs: Jobs,
    pressure: AtomicU32,
    flushes: AtomicU64,
    compactions: AtomicU64,
    this: Weak<Self>,
}

impl Tree {
    /// Makes the files of a new, empty tree in its directory, which is emptied first of what an interrupted
    /// creation left.
    pub(crate) fn create(context: Context, options: LsmOptions) -> Result<Arc<Self>> {
        options.check_compiled()?;
        let home = home(&context, &options);
        home.fs.create_dir(&home.dir)?;
        for name in home.fs.list(&home.dir)? {
            home.fs.remove(&home.dir.join(name))?;
        }
        let manifest = Manifest::create(&home, context.identity)?;
        Ok(Self::new(context, options, home, manifest, Version::default()))
    }

    /// Opens a tree where it has persisted, for reading until it is [made writable](Engine::make_writable).
    pub(crate) fn open(context: Context, options: LsmOptions) -> Result<Arc<Self>> {
        options.check_compiled()?;
        let home = home(&context, &options);
        let (manifest, version) = Manifest::open(&home, context.identity)?;
        check_files_exist(&home, &version)?;
        Ok(Self::new(context, options, home, manifest, version))
    }

    fn new(
        context: Context,
        options: LsmOptions,
        home: Arc<Home>,
        manifest: Manifest,
        version: Version,
    ) -> Arc<Self> {
        let budget = &context.budget;
        let base_bytes = (4 * budget.memtable as u64).max(1 << 20);
        let shape = Shape { base_bytes, table_bytes: (base_bytes / 8).clamp(256 << 10, 64 << 20) };
        let memtables = Memtables::new(options.memtable(), budget);
        let pressure = policy::pressure(&version);
        let state = State { memtables, version: Arc::new(version) };
        Arc::new_cyclic(|this| Self {
            persisted: AtomicU64::new(manifest.persisted()),
            home,
            shape,
            options: ArcSwap::from_pointee(options),
            state: ArcSwap::from_pointee(state),
            swap: Mutex::new(()),
            manifest: Mutex::new(manifest),
            jobs: Jobs::new(&context),
            pressure: AtomicU32::new(pressure),
            flushes: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            this: this.clone(),
            context,
        })
    }

    // ---- state ----

    /// Replaces the state by what `change` makes of it.
    fn change_state(&self, change: impl FnOnce(&mut State)) {
        let _one = lock(&self.swap);
        let mut next = State::clone(&self.state.load());
        change(&mut next);
        self.pressure.store(policy::pressure(&next.version), Ordering::Relaxed);
        self.state.store(Arc::new(next));
    }

    /// Freezes the active memtable at `last` and starts a new one.
    fn freeze(&self, last: Seqno) {
        let kind = self.options.load().memtable();
        let next = self.state.load().memtables.next(kind, &self.context.budget);
        let Some(next) = next else { return };
        self.change_state(|state| state.memtables.freeze(next, last));
        self.schedule_flush();
    }

    // ---- background ----

    fn schedule_flush(&self) {
        self.jobs.schedule(Work::Flush, &self.this, Self::flush_one);
    }

    fn schedule_compaction(&self) {
        if self.due().is_some() {
            self.jobs.schedule(Work::Upkeep, &self.this, Self::compact_one);
        }
    }

    fn due(&self) -> Option<Choice> {
        let version = &self.state.load().version;
        policy::pick(version, &self.shape).or_else(|| values::due(version))
    }

    /// The flush job: one memtable, then room for other keyspaces.
    fn flush_one(&self) {
        let Some(flushing) = self.jobs.begin(Work::Flush) else { return };
        let frozen = self.state.load().memtables.oldest_frozen().cloned();
        if let Some(frozen) = frozen
            && flushing.persistently(|| self.flush(&frozen)).is_some()
        {
            self.jobs.notify();
            self.schedule_compaction();
            self.context.host.persisted();
        }
        drop(flushing);
        let is_due = !self.state.load().memtables.frozen.is_empty();
        if is_due && self.jobs.trouble_of(Work::Flush).is_none() {
            self.schedule_flush();
        }
    }

    /// The compaction job: one compaction, then room for other keyspaces.
    fn compact_one(&self) {
        let Some(compacting) = self.jobs.begin(Work::Upkeep) else { return };
        let finished = compacting.persistently(|| match self.due() {
            Some(choice) => self.compact_choice(&choice, Moves::Crowded),
            None => Ok(true),
        });
        drop(compacting);
        if finished == Some(true) {
            self.schedule_compaction();
        }
    }

    /// Writes a frozen memtable to a table of level 0 and installs it.
    fn flush(&self, frozen: &Frozen) -> Result<()> {
        let mut cursor = frozen.memtable.cursor();
        cursor.seek_to_first()?;
        let mut retention = Retention::new(self.context.visibility.retained());
        let none = ValueFiles::default();
        let values = self.placement(&none, Moves::Crowded);
        let tables = self.write(&mut cursor, &mut retention, |_| false, (0, u64::MAX), values)?;
        let Some(tables) = tables else { return Ok(()) };
        if let Err(error) = self.context.host.sync_log(frozen.last) {
            self.discard(&tables);
            return Err(error);
        }
        let added = tables.into_iter().map(|table| (0, table)).collect();
        self.install(Edit { persisted: frozen.last, removed: Vec::new(), added }, |state| {
            state.memtables.frozen.pop();
        })?;
        self.persisted.fetch_max(frozen.last, Ordering::Release);
        frozen.memtable.set_flushed();
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Runs a compaction and installs its result; false if told to stop.
    fn compact_choice(&self, choice: &Choice, moves: Moves) -> Result<bool> {
        let level = choice.output_level;
        let removed: Vec<u64> = choice.inputs.iter().map(|table| table.meta.id).collect();
        if choice.is_move {
            let added = choice.inputs.iter().map(|table| (level, Arc::clone(table))).collect();
            self.install(Edit { persisted: 0, removed, added }, |_| {})?;
            return Ok(true);
        }
        let version = Arc::clone(&self.state.load().version);
        // In level 0, where a table is rewritten, there may be older entries beside it.
        let is_deepest = |key: &[u8]| {
            level > 0 && (level + 1..LEVELS).all(|deeper| version.table_for(deeper, key).is_none())
        };
        let runs = runs(&choice.inputs);
        let at_once = self.context.budget.merge_buffer(runs.len()) as u64;
        let run = |tables| {
            let cursor = RunCursor::new(tables, ReadMode::Sequential);
            PartCursor::Right(cursor.in_runs_of(at_once))
        };
        let mut cursor = Merge::new(runs.into_iter().map(run).collect());
        cursor.seek_to_first()?;
        let mut retention = Retention::new(self.context.visibility.retained());
        let table_bytes = if level == 0 { u64::MAX } else { self.shape.table_bytes };
        let values = self.placement(&version.values, moves);
        let bounds = (level, table_bytes);
        let tables = self.write(&mut cursor, &mut retention, is_deepest, bounds, values)?;
        let Some(tables) = tables else { return Ok(false) };
        let added = tables.into_iter().map(|table| (level, table)).collect();
        self.install(Edit { persisted: 0, removed, added }, |_| {})?;
        choice.inputs.iter().for_each(|table| table.set_obsolete());
        self.compactions.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    fn write(
        &self,
        cursor: &mut impl EntryCursor,
        retention: &mut Retention,
        is_deepest: impl FnMut(&[u8]) -> bool,
        (level, table_bytes): (usize, u64),
        values: Placement<'_>,
    ) -> Result<Option<Vec<Arc<TableFile>>>> {
        let mut output = Output {
            home: &self.home,
            options: &self.table_options(level),
            table_bytes,
            next_id: &mut || lock(&self.manifest).take_id(),
            values,
            stopped: &|| self.jobs.is_stopping(),
        };
        write_tables(cursor, retention, is_deepest, &mut output)
    }

    /// How values are placed now by a job that meets references into `sources`.
    fn placement<'a>(&'a self, sources: &'a ValueFiles, moves: Moves) -> Placement<'a> {
        let shortest = self.options.load().separate_values();
        let file_bytes = (2 * self.context.budget.memtable as u64).clamp(1 << 20, 256 << 20);
        Placement::new(&self.home, sources, moves, shortest, file_bytes)
    }

    /// Removes tables that were written and will not be installed, and the value files that came with them.
    fn discard<'a>(&self, tables: impl IntoIterator<Item = &'a Arc<TableFile>>) {
        let version = Arc::clone(&self.state.load().version);
        for table in tables {
            table.set_obsolete();
            let files = table.values.iter().map(|share| &share.file);
            let new = files.filter(|file| version.values.file(file.id()).is_none());
            new.for_each(|file| file.set_obsolete());
        }
    }

    /// How tables of `level` are written now.
    fn table_options(&self, level: usize) -> TableOptions {
        let options = self.options.load();
        TableOptions {
            block_size: options.data_block_size() as usize,
            filter: options.filter(),
            filter_bits: options.filter_bits(level),
            compression: options.compression(level),
            points: options.point_index,
        }
    }

    /// Records a change of the version and lets readers see it. If there is no space for the record, nothing
    /// has changed, and the tables added are removed. If recording fails otherwise, it is unknown what is on
    /// disk: writes are refused from then on, and no file that either outcome needs is removed.
    fn install(&self, edit: Edit, change: impl FnOnce(&mut State)) -> Result<()> {
        let mut manifest = lock(&self.manifest);
        let version = self.state.load().version.with(&edit.removed, &edit.added);
        let version = version.ok_or_else(|| {
            Error::corruption(&self.home.dir, 0, "a compaction does not fit the tables there are")
        })?;
        if let Err(error) = manifest.record(&edit, &version) {
            if error.kind() == ErrorKind::NoSpace {
                let old = |id: &u64| edit.removed.contains(id);
                let added = edit.added.iter().map(|(_, table)| table);
                self.discard(added.filter(|table| !old(&table.meta.id)));
                return Err(error);
            }
            self.context.host.poison(&error);
            return Err(Error::Poisoned { cause: error.to_string().into() });
        }
        let gone = self.state.load().version.values.gone_from(&version.values);
        self.change_state(|state| {
            state.version = Arc::new(version);
            change(state);
        });
        gone.iter().for_each(|file| file.set_obsolete());
        Ok(())
    }
}

impl Engine for Tree {
    fn make_writable(&self) -> Result<()> {
        lock(&self.manifest).make_writable(&self.home)?;
        remove_leftovers(&self.home, &self.state.load().version)
    }

    fn apply(&self, write: &Write<'_>) {
        let trailer = Trailer::new(write.seqno, write.kind);
        self.state.load().memtables.active.insert(write.key, trailer, write.value);
    }

    fn prefetch(&self, key: &[u8]) {
        self.state.load().memtables.active.prefetch(key);
    }

    fn end_batch(&self, last: Seqno) {
        let is_full = self.state.load().memtables.active.memory() >= self.context.budget.memtable;
        if is_full {
            self.freeze(last);
        }
    }

    fn cut(&self, last: Seqno) {
        self.freeze(last);
    }

    fn persist(&self) -> Result<()> {
        let Some(last) = self.state.load().memtables.frozen.first().map(|frozen| frozen.last)
        else {
            return Ok(());
        };
        self.jobs.forget_trouble(Work::Flush);
        self.schedule_flush();
        self.jobs.wait_until(|_| self.persisted() >= last, &[Work::Flush])
    }

    fn persisted(&self) -> Seqno {
        self.persisted.load(Ordering::Acquire)
    }

    fn oldest_unpersisted(&self) -> Option<Seqno> {
        self.state.load().memtables.oldest()
    }

    fn get(&self, key: &[u8], point: ReadPoint<'_>) -> Result<Option<Slice>> {
        let state = self.state.load();
        state.get(key, point.seqno())
    }

    fn multi_get(&self, keys: &[&[u8]], point: ReadPoint<'_>) -> Result<Vec<Option<Slice>>> {
        let state = self.state.load();
        state.multi_get(keys, point.seqno(), &self.context.reader)
    }

    fn cursor(&self, point: ReadPoint<'_>) -> Result<Box<dyn OrderedCursor>> {
        let state = self.state.load_full();
        let records = Visible::new(state.entries(), point.seqno());
        if state.version.values.is_empty() {
            return Ok(Box::new(records));
        }
        let (version, reader) = (Arc::clone(&state.version), Arc::clone(&self.context.reader));
        Ok(Box::new(ValueCursor::new(records, version, reader)))
    }

    fn pressure(&self) -> u32 {
        self.pressure.load(Ordering::Relaxed)
    }

    fn trouble(&self) -> Option<Error> {
        self.jobs.trouble()
    }

    fn compact(&self) -> Result<()> {
        self.persist()?;
        let compacting = self.jobs.take_over(Work::Upkeep, &[])?;
        let everything = policy::everything(&self.state.load().version);
        let compact = |choice: Choice| self.compact_choice(&choice, Moves::All);
        let finished = everything.map_or(Ok(true), compact);
        drop(compacting);
        // What became due meanwhile was not taken up.
        self.schedule_compaction();
        if finished? { Ok(()) } else { Err(Error::Closed) }
    }

    fn settle(&self) -> Result<()> {
        if self.context.read_only {
            return Ok(());
        }
        if !self.state.load().memtables.frozen.is_empty() {
            self.schedule_flush();
        }
        self.schedule_compaction();
        let settled = |jobs: &Status| {
            jobs.is_idle() && self.state.load().memtables.frozen.is_empty() && self.due().is_none()
        };
        self.jobs.wait_until(settled, &[Work::Flush, Work::Upkeep])
    }

    fn verify(&self, report: &mut VerifyReport) {
        let manifest = lock(&self.manifest);
        let checked = Manifest::open(&self.home, self.context.identity);
        drop(manifest);
        report.files += 1;
        if let Err(error) = checked {
            report.problems.push(error);
        }
        let state = self.state.load_full();
        for table in state.version.tables() {
            report.files += 1;
            report.bytes += table.meta.len;
            report.entries += table.meta.entries;
            let mut references = References::new(&state.version, table);
            let mut apart = |key: &[u8], bytes: &[u8]| references.check(key, bytes);
            let checked = table.table().and_then(|open| open.verify(&mut apart));
            if let Err(error) = checked.and_then(|()| references.finish()) {
                report.problems.push(error);
            }
        }
        verify_files(&state.version.values, report);
        report.entries += state.memtables.entries();
    }

    fn active_bytes(&self) -> usize {
        self.state.load().memtables.active_bytes()
    }

    fn stats(&self) -> KeyspaceStats {
        let state = self.state.load_full();
        let levels: Vec<LevelStats> = state
            .version
            .levels
            .iter()
            .enumerate()
            .filter(|(_, tables)| !tables.is_empty())
            .map(|(level, tables)| LevelStats {
                level: level as u32,
                tables: tables.len() as u64,
                bytes: tables.iter().map(|table| table.meta.len).sum(),
                entries: tables.iter().map(|table| table.meta.entries).sum(),
            })
            .collect();
        let values = state.version.values.stats();
        KeyspaceStats {
            entries: levels.iter().map(|level| level.entries).sum::<u64>()
                + state.memtables.entries(),
            disk_bytes: levels.iter().map(|level| level.bytes).sum::<u64>() + values.bytes,
            memory_bytes: state.memtables.memory() as u64,
            flushes: self.flushes.load(Ordering::Relaxed),
            compactions: self.compactions.load(Ordering::Relaxed),
            levels,
            values,
            ..KeyspaceStats::new(EngineKind::Lsm, self.home.layer())
        }
    }

    fn layer(&self) -> Layer {
        self.home.layer()
    }

    fn set_layer(&self, layer: Layer) -> Result<()> {
        *lock(&self.home.layer) = layer;
        let version = Arc::clone(&self.state.load().version);
        version.tables().for_each(|table| table.let_go());
        version.values.files().for_each(|file| file.let_go());
        Ok(())
    }

    fn set_lsm_options(&self, options: &LsmOptions) {
        self.options.store(Arc::new(options.clone()));
        let before = std::mem::replace(&mut *lock(&self.home.key_file), options.key_file());
        if before != options.key_file() {
            self.state.load().version.tables().for_each(|table| table.let_go());
        }
    }

    fn stop(&self) {
        self.jobs.stop();
    }
}

fn home(context: &Context, options: &LsmOptions) -> Arc<Home> {
    Arc::new(Home {
        fs: Arc::clone(&context.fs),
        dir: context.dir.clone(),
        layer: Mutex::new(context.layer),
        key_file: Mutex::new(options.key_file()),
        identity: context.identity,
        blocks: Arc::clone(&context.blocks),
        open_files: Arc::clone(&context.open_files),
    })
}

/// Groups tables into runs: those that follow one another without overlap become one.
fn runs(tables: &[Arc<TableFile>]) -> Vec<Vec<Arc<TableFile>>> {
    let mut sorted = tables.to_vec();
    sorted.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
    let mut runs: Vec<Vec<Arc<TableFile>>> = Vec::new();
    for table in sorted {
        let follows = |run: &&mut Vec<Arc<TableFile>>| {
            run.last().is_some_and(|last| last.meta.largest < table.meta.smallest)
        };
        match runs.iter_mut().find(follows) {
            Some(run) => run.push(table),
            None => runs.push(vec![table]),
        }
    }
    runs
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
