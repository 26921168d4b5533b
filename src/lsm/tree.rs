//! The LSM-tree (O'Neil et al., 1996): writes go to a memtable, full memtables are flushed to sorted tables,
//! and tables are merged into deeper levels in the background.
//!
//! Thread safety. Readers load one pointer to a [`State`] and never wait. The commit path alone applies
//! writes and freezes memtables. Changes of the state are made under `swap`, which is held over no I/O;
//! changes of the version are recorded in the manifest first, under `manifest`, which only flushes and
//! compactions take. Order of locks: `manifest`, then `swap`, then that of what is
//! [held](crate::base::Visibility); the lock of [`jobs`](crate::jobs) is taken alone.
//!
//! Invariants: `frozen` is flushed oldest first, so the persisted state is always that of one sequence
//! number; the log is safe up to that number before the manifest says so.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::compaction::claims::{Claim, Claims, Held, Wanted};
use super::compaction::merge::{Output, write_tables};
use super::compaction::policy::{self, Choice, Into, Policy, Shape, Work as Change};
use super::compaction::retention::Retention;
use super::load::{Loaded, SortedLoad};
use super::observed;
use super::ranges::Uncovered;
use super::read_trigger::ReadTrigger;
use super::state::{Basis, State};
use super::table::{TableLimits, TableOptions};
use super::values::{self, Moves, Placement, References, ValueCursor, ValueFiles, verify_files};
use super::version::{Edit, Home, Manifest, Place, Run, TableFile, Version, leftovers, misled_in};
use crate::base::{ReadPoint, Seqno, Slice, Span, Trailer};
use crate::contract::{Clear, Context, DeleteRange, Engine, Load, Write};
use crate::error::{Error, ErrorKind, Result};
use crate::events::{Job, JobKind, Observer};
use crate::iter::{EntryCursor, Merge, OrderedCursor, Visible};
use crate::jobs::{Jobs, Status, Work};
use crate::log::AppendError;
use crate::memtable::{Frozen, Memtables};
use crate::options::{EngineKind, LsmOptions};
use crate::planted::{Bug, planted};
use crate::stats::{KeyspaceStats, LevelStats, VerifyReport};
use crate::status::LsmStatus;
use crate::sync::{Mutex, MutexGuard};
use crate::vfs::{Aside, Layer, remove_leftover};

/// How long to wait for what takes next to no time.
const A_MOMENT: Duration = Duration::from_millis(1);

/// A keyspace kept in an LSM-tree.
pub(crate) struct Tree {
    pub(super) context: Context,
    home: Arc<Home>,
    policy: Box<dyn Policy>,
    options: ArcSwap<LsmOptions>,
    state: ArcSwap<State>,
    swap: Mutex<()>,
    manifest: Mutex<Manifest>,
    /// Files that the manifest did not name when it was read, and that nobody has been found to need.
    leftovers: Mutex<BTreeMap<PathBuf, u64>>,
    persisted: AtomicU64,
    jobs: Jobs,
    /// What compactions work on. A claim is given up when its result is installed.
    claims: Arc<Claims>,
    reading: Arc<ReadTrigger>,
    /// What readers are told who find an entry whose value is apart where none is.
    misled: Arc<Error>,
    pressure: AtomicU32,
    flushes: AtomicU64,
    compactions: AtomicU64,
    pub(super) this: Weak<Self>,
}

impl Tree {
    /// Makes the files of a new, empty tree in its directory, which is made anew if an interrupted
    /// creation has left one.
    pub(crate) fn create(context: Context, options: LsmOptions) -> Result<Arc<Self>> {
        options.check_compiled()?;
        let home = home(&context, &options);
        context.make_directory()?;
        let manifest = Manifest::create(&home, context.identity)?;
        Ok(Self::new(context, options, home, manifest, (Version::default(), BTreeMap::new())))
    }

    /// Opens a tree where it has persisted, for reading until it is [made writable](Engine::make_writable).
    pub(crate) fn open(context: Context, options: LsmOptions) -> Result<Arc<Self>> {
        options.check_compiled()?;
        let home = home(&context, &options);
        let (mut manifest, version) = Manifest::open(&home, context.identity)?;
        let leftovers = leftovers(&home, &version)?;
        leftovers.values().for_each(|&id| manifest.pass_over(id));
        Ok(Self::new(context, options, home, manifest, (version, leftovers)))
    }

    fn new(
        context: Context,
        options: LsmOptions,
        home: Arc<Home>,
        manifest: Manifest,
        (version, leftovers): (Version, BTreeMap<PathBuf, u64>),
    ) -> Arc<Self> {
        let policy = policy::policy(&options.policy());
        let memtables = Memtables::new(options.memtable(), &context.budget);
        let shape = shape(&context, &options);
        let (pressure, debt) = policy::weigh(&*policy, &version, &shape);
        let state = State::new(memtables, version);
        let jobs = Jobs::new(&context).with_upkeep(context.background.compaction_threads);
        jobs.set_debt(debt);
        let on_due = |this: Weak<Self>| {
            move || this.upgrade().iter().for_each(|tree| tree.schedule_compaction())
        };
        let tree = Arc::new_cyclic(|this: &Weak<Self>| Self {
            persisted: AtomicU64::new(manifest.persisted()),
            misled: Arc::new(misled_in(&home.dir)),
            home,
            policy,
            options: ArcSwap::from_pointee(options),
            state: ArcSwap::from_pointee(state),
            swap: Mutex::new(()),
            manifest: Mutex::new(manifest),
            leftovers: Mutex::new(leftovers),
            jobs,
            claims: Claims::new(context.background.compaction_lock),
            reading: Arc::new(ReadTrigger::new(on_due(this.clone()))),
            pressure: AtomicU32::new(pressure),
            flushes: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            this: this.clone(),
            context,
        });
        tree.price_reading(&tree.state.load().version);
        tree
    }

    // ---- state ----

    /// Replaces the state by what `change` makes of it under the commit lock, where no file may be removed: it must have
    /// all that was there. Earlier states go that only take memory: clears may come faster than they are flushed.
    fn change_state(&self, change: impl FnOnce(&mut State)) {
        self.replace_state(change, |before| before.tables().next().is_none());
    }

    /// The same in the background, where files may go: all earlier states go that no snapshot sees any more.
    fn change_and_let_go(&self, change: impl FnOnce(&mut State)) {
        self.replace_state(change, |_| true);
    }

    fn replace_state(&self, change: impl FnOnce(&mut State), may_go: impl Fn(&State) -> bool) {
        let swap = lock(&self.swap);
        let mut next = State::clone(&self.state.load());
        // Nobody takes a snapshot until the next state is there: who reads in one goes on seeing what the other showed.
        let mut held = self.context.visibility.held();
        change(&mut next);
        next.earlier.forget(&mut held, may_go);
        let next = Arc::new(next);
        let before = self.state.swap(Arc::clone(&next));
        drop(held);
        let (pressure, debt) = policy::weigh(&*self.policy, &next.version, &self.shape());
        self.pressure.store(pressure, Ordering::Relaxed);
        self.jobs.set_debt(debt);
        if !Arc::ptr_eq(&before.version, &next.version) {
            self.price_reading(&next.version);
        }
        drop(swap);
        // If it is the last to hold a file, that is removed from the disk.
        drop(before);
    }

    /// Finds out what it would cost to merge level 0 for readers alone.
    fn price_reading(&self, version: &Version) {
        let shape = self.shape();
        let bytes = self.policy.for_readers(version, &shape).map(|choice| {
            let tables = choice.inputs.iter().map(|table| table.meta.len);
            tables.fold(shape.table_bytes, u64::saturating_add)
        });
        self.reading.set(version.level(0).len(), bytes);
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
        if self.is_compaction_due() {
            self.jobs.schedule(Work::Upkeep, &self.this, Self::compact_one);
        }
    }

    /// Whether a compaction is due that could begin now.
    pub(super) fn is_compaction_due(&self) -> bool {
        self.claims.see(|held| {
            let basis = self.present(held);
            self.due(&basis.version, held).is_some()
        })
    }

    /// The tables there are, and what is held of them.
    fn present(&self, held: &mut Held) -> Basis {
        let basis = self.state.load().basis();
        held.go_on_since(basis.cleared);
        basis
    }

    /// Whether nothing comes of what began with these tables, because a clear has taken them away.
    pub(super) fn is_in_vain(&self, since: &Basis) -> bool {
        self.state.load().cleared != since.cleared
    }

    /// What is due and not in the way of what is `held`.
    fn due(&self, version: &Version, held: &Held) -> Option<(Choice, Wanted)> {
        let shape = self.shape();
        policy::next(&*self.policy, version, &shape, held)
            .or_else(|| {
                // What is at work may change what there is to merge.
                if !self.reading.is_due() || !held.tables().is_empty() {
                    return None;
                }
                let choice = self.policy.for_readers(version, &shape)?;
                let wanted = Wanted::by(&choice, version);
                held.leaves_free(&wanted).then_some((choice, wanted))
            })
            .or_else(|| {
                let choice = values::due(version, |table| held.is_put_off(table))?;
                let wanted = Wanted::by(&choice, version);
                held.leaves_free(&wanted).then_some((choice, wanted))
            })
    }

    /// The next compaction, with the tables that it is about, and its claim.
    fn claim_compaction(&self) -> Option<((Basis, Choice), Claim)> {
        self.claims.claim(|held| {
            let basis = self.present(held);
            let (choice, wanted) = self.due(&basis.version, held)?;
            Some(((basis, choice), wanted))
        })
    }

    pub(super) fn shape(&self) -> Shape {
        shape(&self.context, &self.options.load())
    }

    /// The flush job: one clear, memtable or load, then room for other keyspaces.
    fn flush_one(&self) {
        let Some(flushing) = self.jobs.begin(Work::Flush) else { return };
        if flushing.persistently(|| self.flush_oldest()).is_some() {
            self.jobs.notify();
            self.schedule_compaction();
            self.context.host.persisted();
        }
        drop(flushing);
        if self.is_flush_due() && self.jobs.trouble_of(Work::Flush).is_none() {
            self.schedule_flush();
        }
    }

    fn is_flush_due(&self) -> bool {
        self.state.load().cut_up_to() > 0
    }

    /// Brings the oldest of what is not in tables that the manifest names there.
    fn flush_oldest(&self) -> Result<()> {
        let state = self.state.load_full();
        if let Some(clearing) = &state.clearing {
            let clear = || self.take_away(clearing.seqno);
            return self.context.observer.observe(JobKind::Clear, clear);
        }
        let load = state.loads.last();
        let frozen = state.memtables.frozen_before(load.map_or(Seqno::MAX, |load| load.seqno));
        match (frozen, load) {
            ([_, ..], _) => self.flush_observed(&state, frozen),
            ([], Some(load)) => self.take_in_observed(&state, load),
            ([], None) => Ok(()),
        }
    }

    /// The compaction job: one compaction, then room for other keyspaces.
    fn compact_one(&self) {
        let Some(compacting) = self.jobs.begin(Work::Upkeep) else { return };
        let finished = compacting.persistently(|| {
            let Some((claimed, claim)) = self.claim_compaction() else { return Ok(true) };
            // There may be another one that can be done beside it.
            self.schedule_compaction();
            let cleared = claimed.0.cleared;
            let seen =
                || self.claims.see(|held| (held.count_put_off(), self.present(held).cleared));
            let before = seen().0;
            match self.compact_claimed(claimed, claim, Moves::Crowded) {
                // What is damaged is put off, or a clear has taken it away: it is in nobody's way any more.
                Err(Error::Corruption { .. }) if seen().0 > before || seen().1 != cleared => {
                    Ok(true)
                }
                finished => finished,
            }
        });
        drop(compacting);
        if finished == Some(true) {
            self.schedule_compaction();
        }
    }

    /// Has the background leave alone what a compaction of `choice` has found damaged, until that is forgotten: the tables that the
    /// error is about, or all of them if it does not say which.
    pub(super) fn put_off(&self, since: &Basis, choice: &Choice, error: &Error) {
        let Error::Corruption { file, .. } = error else { return };
        if choice.work == Change::Drop {
            return;
        }
        let is_named = |table: &&Arc<TableFile>| {
            let mut values = table.values.iter().map(|share| share.file.path());
            table.path() == *file || values.any(|path| path == *file)
        };
        let named: Vec<_> = choice.inputs.iter().filter(is_named).collect();
        let ids = match named.is_empty() {
            true => choice.inputs.iter().map(|table| table.meta.id).collect::<Vec<_>>(),
            false => named.iter().map(|table| table.meta.id).collect(),
        };
        self.claims.see(|held| {
            if self.present(held).cleared == since.cleared {
                log::warn!("what is damaged is not compacted any more: {error}");
                held.put_off(ids, error);
            }
        });
    }

    /// The damage that keeps tables from being compacted.
    fn damage(&self) -> Option<Error> {
        self.claims.see(|held| {
            let basis = self.present(held);
            held.damage_in(&basis.version)
        })
    }

    /// The same, if there is nothing else that could be done, and nobody is at anything.
    fn damage_in_the_way(&self, is_idle: bool) -> Option<Error> {
        if is_idle && !self.is_compaction_due() { self.damage() } else { None }
    }

    /// Merges all there is, while nobody else compacts; false if told to stop.
    fn compact_everything(&self) -> Result<bool> {
        loop {
            let mut is_due = false;
            let claimed = self.claims.claim(|held| {
                let basis = self.present(held);
                let choice = self.policy.everything(&basis.version)?;
                is_due = true;
                let wanted = Wanted::by(&choice, &basis.version);
                Some(((basis, choice), wanted))
            });
            match claimed {
                Some((claimed, claim)) => return self.compact_claimed(claimed, claim, Moves::All),
                None if !is_due => return Ok(true),
                // A load is taking its place.
                None => self.jobs.stop_if_told()?,
            }
            self.jobs.wait_a_while(A_MOMENT);
        }
    }

    /// Writes the oldest frozen memtables, newest first, to one run of level 0 and installs it: one table, if no size was
    /// chosen. If writing is slower than writers are, several have come meanwhile: together they cost fewer syncs, and what
    /// was overwritten among them is not written at all.
    pub(super) fn flush(&self, state: &State, frozen: &[Frozen], job: &mut Job) -> Result<()> {
        let Some(last) = frozen.first().map(|newest| newest.last) else { return Ok(()) };
        // Until then nobody knows who sees what of it: all would be kept, of many range tombstones each for each.
        self.jobs.wait_published(&self.context.visibility, last)?;
        let written = if planted(Bug::FlushNewestAlone) { &frozen[..1] } else { frozen };
        let memtables = || written.iter().map(|frozen| &frozen.memtable);
        let mut cursor = Merge::new(memtables().map(|memtable| memtable.cursor()).collect());
        cursor.seek_to_first()?;
        let ranges = memtables().filter_map(|memtable| memtable.ranges());
        let deleted: Vec<_> = ranges.flat_map(|ranges| ranges.tombstones()).collect();
        let mut retention =
            Retention::new(self.context.visibility.retained()).with_ranges(&deleted, |_, _| false);
        let none = ValueFiles::default();
        let values = self.placement(&none, Moves::Crowded);
        // Memtables bound what is kept of their keys.
        let bytes = self.options.load().table_size.unwrap_or(u64::MAX);
        let limits = TableLimits { bytes, memory: usize::MAX };
        let memory: usize = memtables().map(|memtable| memtable.memory()).sum();
        let mut output = Output {
            home: &self.home,
            options: &self.table_options(0),
            limits,
            bounds: &self.bounds(&state.version, memory as u64),
            soft_bounds: &[],
            end: None,
            next_id: &mut || self.take_id(),
            valve: None,
            values,
            // Each table is synced while the next one is made.
            aside: (frozen.len() > 1).then(|| Aside::new("turbidite-write")),
            stopped: &|| self.jobs.is_stopping(),
        };
        let tables = write_tables(&mut cursor, &mut retention, |_| false, &mut output);
        if let Err(error @ Error::Poisoned { .. }) = &tables {
            // It ended by a panic, though in the thread that writes for it.
            self.context.host.poison(error);
        }
        let Some(tables) = tables? else { return Ok(()) };
        let basis = state.basis();
        if let Err(error) = self.context.host.sync_log(last) {
            self.discard(&basis, &tables);
            return Err(error);
        }
        observed::wrote(job, &basis, 0, &tables);
        let place = self.place(0, Into::Newest);
        let added = tables.into_iter().map(|table| (place, table)).collect();
        let edit = Edit { persisted: last, removed: Vec::new(), added };
        let pop = |state: &mut State, _| state.memtables.forget_up_to(last);
        if self.install_written(&basis, edit, pop)? {
            job.done();
            self.persisted.fetch_max(last, Ordering::Release);
        }
        frozen.iter().for_each(|frozen| frozen.memtable.set_flushed());
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The keys at which tables of `bytes` in all end that come out of level 0, or go there.
    fn bounds(&self, version: &Version, bytes: u64) -> Vec<Vec<u8>> {
        let shape = self.shape();
        shape.thin_out(self.policy.bounds(version, &shape), bytes)
    }

    /// The keys at which tables end that are merged: if some come out of level 0, where its columns do, so that the next
    /// column that is compacted has no table in common with it.
    fn bounds_of(&self, version: &Version, choice: &Choice) -> Vec<Vec<u8>> {
        let flushed: Vec<_> = version.level(0).iter().flat_map(Run::tables).collect();
        let is_flushed = |input| flushed.iter().any(|table| Arc::ptr_eq(table, input));
        if choice.into != Into::Merged || !choice.inputs.iter().any(is_flushed) {
            return Vec::new();
        }
        let lens = choice.inputs.iter().map(|table| table.meta.len);
        self.bounds(version, lens.fold(0, u64::saturating_add))
    }

    /// Gives a load its place, as deep as it may go. If a compaction writes there, it goes to level 0, and is moved later.
    pub(super) fn take_in(&self, state: &State, load: &Loaded, job: &mut Job) -> Result<()> {
        self.context.host.sync_log(load.seqno)?;
        let taken_in = self.take_in_place(state, load, job);
        // What was due meanwhile may have been in its way.
        self.schedule_compaction();
        taken_in
    }

    fn take_in_place(&self, state: &State, load: &Loaded, job: &mut Job) -> Result<()> {
        let claimed = self.claims.claim(|held| {
            let basis = self.present(held);
            let tables = load.run.tables();
            let (level, into) = self.policy.place(&basis.version, tables, &self.shape());
            Some(((level, into), Wanted::place(level, tables)))
        });
        let (level, into) = claimed.as_ref().map_or((0, Into::Newest), |(found, _claim)| *found);
        let place = self.place(level, into);
        let added = load.run.tables().iter().map(|table| (place, Arc::clone(table))).collect();
        let edit = Edit { persisted: load.seqno, removed: Vec::new(), added };
        job.put(observed::range(level, load.run.tables()));
        if self.install(&state.basis(), edit, |state, _| _ = state.loads.pop())? {
            job.done();
            self.persisted.fetch_max(load.seqno, Ordering::Release);
        }
        Ok(())
    }

    /// Has the manifest say that a clear took away all there was.
    fn take_away(&self, seqno: Seqno) -> Result<()> {
        self.context.host.sync_log(seqno)?;
        let mut manifest = lock(&self.manifest);
        let clearing = self.state.load().clearing.clone();
        // Another one may have come meanwhile, and others may come for ever: what the manifest has is gone with this one, too.
        let Some(clearing) = clearing.filter(|clearing| clearing.seqno >= seqno) else {
            return Ok(());
        };
        let tables = clearing.version.tables().filter(|_| !planted(Bug::KeepCleared));
        let removed = tables.map(|table| table.meta.id).collect();
        let edit = Edit { persisted: seqno, removed, added: Vec::new() };
        self.record(&mut manifest, &edit, &Version::default())?;
        self.change_and_let_go(|state| state.set_cleared(seqno));
        self.persisted.fetch_max(seqno, Ordering::Release);
        if planted(Bug::KeepCleared) {
            return Ok(());
        }
        // Later ones are in the log, which is not let go so far.
        let loads = clearing.loads.iter().filter(|load| load.seqno <= seqno);
        let loaded = loads.flat_map(|load| load.run.tables());
        loaded.chain(clearing.version.tables()).for_each(|table| table.set_obsolete());
        clearing.version.values.files().for_each(|file| file.set_obsolete());
        Ok(())
    }

    /// The place of what goes `into` a run of a level.
    fn place(&self, level: usize, into: Into) -> Place {
        match into {
            Into::Merged => Place::merged(level),
            Into::Newest => Place { level, run: self.take_id() },
            Into::Its(run) => Place { level, run },
        }
    }

    /// Does what is due and installs the result, unless a clear has come meanwhile; false if told to stop.
    pub(super) fn compact_choice(
        &self,
        basis: &Basis,
        choice: &Choice,
        moves: Moves,
        job: &mut Job,
    ) -> Result<bool> {
        let place = self.place(choice.level, choice.into);
        let removed: Vec<u64> = choice.inputs.iter().map(|table| table.meta.id).collect();
        let is_installed = match choice.work {
            Change::Move if !self.are_packed_otherwise(&basis.version, choice) => {
                let added = choice.inputs.iter().map(|table| (place, Arc::clone(table))).collect();
                job.put(observed::range(choice.level, &choice.inputs));
                if self.install(basis, Edit { persisted: 0, removed, added }, |_, _| {})? {
                    job.done();
                }
                return Ok(true);
            }
            Change::Drop => self.drop_tables(basis, removed)?,
            Change::Move | Change::Merge => {
                let Some(tables) = self.write_anew(basis, choice, place, moves)? else {
                    return Ok(self.is_in_vain(basis));
                };
                observed::wrote(job, basis, choice.level, &tables);
                if planted(Bug::RemoveInputsEarly) {
                    choice.inputs.iter().for_each(|t| drop(self.home.fs.remove(&t.path())));
                }
                let added = tables.into_iter().map(|table| (place, table)).collect();
                self.install_written(basis, Edit { persisted: 0, removed, added }, |_, _| {})?
            }
        };
        // If a clear came first, the manifest names the inputs until it has that.
        if is_installed {
            job.done();
            choice.inputs.iter().for_each(|table| table.set_obsolete());
            self.compactions.fetch_add(1, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Whether the level that tables go to has another compression than those they come from.
    pub(super) fn are_packed_otherwise(&self, version: &Version, choice: &Choice) -> bool {
        let options = self.options.load();
        let wanted = options.compression(choice.level);
        let ids: HashSet<u64> = choice.inputs.iter().map(|table| table.meta.id).collect();
        let others =
            version.runs().iter().filter(|run| options.compression(run.place.level) != wanted);
        others.flat_map(Run::tables).any(|table| ids.contains(&table.meta.id))
    }

    /// Writes new tables for `place` of what is due; `None` if told to stop, or in vain.
    fn write_anew(
        &self,
        basis: &Basis,
        choice: &Choice,
        place: Place,
        moves: Moves,
    ) -> Result<Option<Vec<Arc<TableFile>>>> {
        // Between tables that could be moved there may be others: none of the new ones reaches from one to the next.
        let together = if choice.work == Change::Move { 1 } else { choice.inputs.len().max(1) };
        let bounds =
            if moves == Moves::All { Vec::new() } else { self.bounds_of(&basis.version, choice) };
        let mut tables = Vec::new();
        for inputs in choice.inputs.chunks(together) {
            match self.merge(basis, inputs, place, (moves, bounds.clone())) {
                Ok(Some(written)) => tables.extend(written),
                other => {
                    self.discard(basis, &tables);
                    return other;
                }
            }
        }
        Ok(Some(tables))
    }

    /// Drops tables, with all that is in them, for readers to come: those who see what has been written so far, and
    /// no more, go on seeing it for as long as they hold it. False if a clear came first.
    fn drop_tables(&self, basis: &Basis, removed: Vec<u64>) -> Result<bool> {
        let edit = Edit { persisted: 0, removed, added: Vec::new() };
        self.install(basis, edit, |state, version| {
            let before = State { version, ..state.clone() };
            // Not before: snapshots are taken while the manifest is written.
            let to = self.context.visibility.published() + 1;
            state.earlier.push(to, false, &before);
        })
    }

    /// A cursor over what is visible of `entries`, which are those of `state`.
    fn records(
        &self,
        state: &State,
        entries: impl EntryCursor + Send + 'static,
        at: Seqno,
    ) -> Box<dyn OrderedCursor> {
        let records = Visible::new(entries, at);
        if state.version.values.is_empty() {
            return Box::new(records.all_together(Arc::clone(&self.misled)));
        }
        let (version, reader) = (Arc::clone(&state.version), Arc::clone(&self.context.reader));
        Box::new(ValueCursor::new(records, version, reader))
    }

    /// How values are placed now by a job that meets references into `sources`.
    pub(super) fn placement<'a>(&'a self, sources: &'a ValueFiles, moves: Moves) -> Placement<'a> {
        let shortest = self.options.load().separate_values();
        let file_bytes = (2 * self.context.budget.memtable as u64).clamp(1 << 20, 256 << 20);
        Placement::new(&self.home, sources, moves, shortest, file_bytes)
    }

    /// Removes tables that were written since then and will not be installed, and the value files that came with them.
    /// The value files of before may be needed, also if a clear has come since.
    pub(super) fn discard<'a>(
        &self,
        since: &Basis,
        tables: impl IntoIterator<Item = &'a Arc<TableFile>>,
    ) {
        for table in tables {
            table.set_obsolete();
            let files = table.values.iter().map(|share| &share.file);
            let new = files.filter(|file| since.version.values.file(file.id()).is_none());
            new.for_each(|file| file.set_obsolete());
        }
    }

    // ---- loading ----

    pub(super) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    pub(super) fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    pub(super) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The bytes that upkeep will write until nothing is due, about.
    pub(super) fn debt(&self, version: &Version) -> u64 {
        self.policy.debt(version, &self.shape())
    }

    /// How many runs, or flushes, level 0 of a version has more than it may.
    pub(super) fn excess(&self, version: &Version) -> u64 {
        self.policy.excess(version, &self.shape())
    }

    pub(super) fn observer(&self) -> &Observer {
        &self.context.observer
    }

    pub(super) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// A number for a new table.
    pub(super) fn take_id(&self) -> u64 {
        lock(&self.manifest).take_id()
    }

    /// Waits while writers would have to: a load brings one more run, and is not slowed down otherwise.
    pub(super) fn wait_for_compactions(&self) -> Result<()> {
        self.schedule_compaction();
        let is_full = || self.pressure() >= policy::FULL;
        let stuck = |jobs: &Status| self.damage_in_the_way(jobs.is_idle());
        let ends = |jobs: &Status| !is_full() || stuck(jobs).is_some();
        self.jobs.wait_until(ends, &[Work::Upkeep])?;
        if is_full() { self.damage().map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// Lets readers see what was loaded, in front of all up to `before`. Under the commit lock.
    pub(super) fn put_in_front(&self, before: Seqno, load: Loaded) {
        self.freeze(before);
        self.change_state(|state| state.loads.insert(0, load));
        self.schedule_flush();
    }

    /// Waits until all up to `seqno`, which is cut, is in tables that the manifest names.
    pub(super) fn wait_persisted(&self, seqno: Seqno) -> Result<()> {
        self.jobs.forget_trouble(Work::Flush);
        self.schedule_flush();
        self.jobs.wait_until(|_| self.persisted() >= seqno, &[Work::Flush])
    }

    /// When tables that are merged or loaded are ended.
    pub(super) fn table_limits(&self) -> TableLimits {
        let threads = self.context.background.compaction_threads;
        let memory = self.context.budget.keys_of_a_table(threads);
        TableLimits { bytes: self.shape().table_bytes, memory }
    }

    /// How tables of `level` are written now.
    pub(super) fn table_options(&self, level: usize) -> TableOptions {
        let options = self.options.load();
        TableOptions {
            block_size: options.data_block_size() as usize,
            filter: options.filter(),
            filter_bits: options.filter_bits(level),
            compression: options.compression(level),
            points: options.point_index,
        }
    }

    /// Records a change of the version, which began with the tables `since`, and lets readers see it; `change` is
    /// given the version of before. False if nothing has changed because all has been taken away since then.
    fn install(
        &self,
        since: &Basis,
        edit: Edit,
        change: impl FnOnce(&mut State, Arc<Version>),
    ) -> Result<bool> {
        let mut manifest = lock(&self.manifest);
        let state = self.state.load_full();
        if state.cleared != since.cleared {
            return Ok(false);
        }
        let version = state.version.with(&edit.removed, &edit.added).map(Arc::new);
        let version = version.ok_or_else(|| {
            Error::corruption(&self.home.dir, 0, "a compaction does not fit the tables there are")
        })?;
        self.record(&mut manifest, &edit, &version)?;
        let gone = state.version.values.gone_from(&version.values);
        self.change_and_let_go(|state| match &mut state.clearing {
            // It came while this was recorded: what was added goes with all the rest.
            Some(clearing) => clearing.version = version,
            None => {
                let before = std::mem::replace(&mut state.version, version);
                change(state, before);
            }
        });
        gone.iter().for_each(|file| file.set_obsolete());
        Ok(true)
    }

    /// The same for an edit that adds tables which have just been written: they are removed if nothing has changed.
    fn install_written(
        &self,
        since: &Basis,
        edit: Edit,
        change: impl FnOnce(&mut State, Arc<Version>),
    ) -> Result<bool> {
        let written = edit.added.clone();
        let installed = self.install(since, edit, change);
        let is_in_vain = match &installed {
            Ok(is_installed) => !is_installed,
            Err(error) => error.kind() != ErrorKind::Poisoned,
        };
        if is_in_vain {
            self.discard(since, written.iter().map(|(_, table)| table));
        }
        installed
    }

    /// Has the manifest say where tables have moved. That it cannot is no harm: they are moved again.
    fn settle_moves(&self) -> Result<()> {
        let mut manifest = lock(&self.manifest);
        // This is no job that a stop waits for, and the file may be another one's after it.
        self.jobs.stop_if_told()?;
        let state = self.state.load_full();
        if state.clearing.is_some() {
            return Ok(());
        }
        match manifest.settle(&state.version) {
            Err(AppendError::Refused(_)) => Ok(()),
            settled => self.known(settled),
        }
    }

    /// Records a change, after which the manifest says `version`. If that is refused, for want of space or open files or because it could not be read
    /// again, nothing has changed. If recording fails otherwise, it is unknown what is on disk: writes are refused from then on, and no
    /// file that either outcome needs is removed: the error is `Poisoned`.
    fn record(&self, manifest: &mut Manifest, edit: &Edit, version: &Version) -> Result<()> {
        self.known(manifest.record(edit, version))
    }

    /// What came of recording; if it is unknown, writes are refused.
    fn known(&self, recorded: Result<(), AppendError>) -> Result<()> {
        recorded.map_err(|error| match error {
            AppendError::Refused(error) => error,
            AppendError::Unknown(error) => {
                self.context.host.poison(&error);
                Error::Poisoned { cause: error.to_string().into() }
            }
        })
    }
}

impl Clear for Tree {
    fn clear(&self, _before: Seqno, seqno: Seqno) {
        let memtables = Memtables::new(self.options.load().memtable(), &self.context.budget);
        // While the log is replayed nobody reads; what is replayed to be read only is not changed any more.
        let has_readers = !self.context.read_only;
        self.change_state(|state| state.clear(seqno, memtables, has_readers));
        self.schedule_flush();
    }
}

impl DeleteRange for Tree {
    fn delete_range(&self, span: Span<'_>, seqno: Seqno) {
        self.state.load().memtables.active.delete_range(span, seqno);
    }
}

impl Engine for Tree {
    fn make_writable(&self) -> Result<()> {
        lock(&self.manifest).make_writable(&self.home)
    }

    fn replay_load(&self, seqno: Seqno, described: &[u8]) -> Result<()> {
        let is_there = |id| lock(&self.leftovers).remove(&self.home.path(id)).is_some();
        let load = Loaded::open(seqno, described, &self.home, is_there)?;
        self.put_in_front(seqno - 1, load);
        Ok(())
    }

    fn end_replay(&self) -> Result<()> {
        let leftovers = std::mem::take(&mut *lock(&self.leftovers));
        leftovers.keys().try_for_each(|path| remove_leftover(&*self.home.fs, path))?;
        // If writers have to wait for it, no flush comes that would ask for it.
        self.schedule_compaction();
        Ok(())
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
        match self.state.load().cut_up_to() {
            0 => Ok(()),
            _ if planted(Bug::PersistEarly) => Ok(()),
            last => self.wait_persisted(last),
        }
    }

    fn persisted(&self) -> Seqno {
        self.persisted.load(Ordering::Acquire)
    }

    fn oldest_unpersisted(&self) -> Option<Seqno> {
        self.state.load().oldest_unpersisted()
    }

    fn oldest_uncut(&self) -> Option<Seqno> {
        self.state.load().memtables.active.oldest()
    }

    fn as_clear(&self) -> Result<&dyn Clear> {
        Ok(self)
    }

    fn as_delete_range(&self) -> Result<&dyn DeleteRange> {
        Ok(self)
    }

    fn prepare_close(&self, _last: Seqno) -> Result<()> {
        self.settle_moves()
    }

    fn load(&self) -> Result<Box<dyn Load>> {
        let tree = self.this.upgrade().ok_or(Error::Closed)?;
        Ok(Box::new(SortedLoad::new(tree)?))
    }

    fn get(&self, key: &[u8], point: ReadPoint<'_>) -> Result<Option<Slice>> {
        let state = self.state.load();
        let at = point.seqno();
        state.at(at).get(key, at)
    }

    fn multi_get(&self, keys: &[&[u8]], point: ReadPoint<'_>) -> Result<Vec<Option<Slice>>> {
        let state = self.state.load();
        let at = point.seqno();
        state.at(at).multi_get(keys, at, &self.context.reader, self.context.budget.batch_of_reads())
    }

    fn cursor(&self, point: ReadPoint<'_>) -> Result<Box<dyn OrderedCursor>> {
        let state = self.state.load();
        let at = point.seqno();
        let state = state.at(at);
        let (entries, ranges) = state.entries_and_ranges(at, &self.reading);
        Ok(match ranges.are_none() {
            true => self.records(state, entries, at),
            false => self.records(state, Uncovered::new(entries, ranges), at),
        })
    }

    fn pressure(&self) -> u32 {
        self.pressure.load(Ordering::Relaxed)
    }

    fn trouble(&self) -> Option<Error> {
        self.jobs.trouble().or_else(|| self.damage_in_the_way(self.jobs.is_idle()))
    }

    fn flush_trouble(&self) -> Option<Error> {
        self.jobs.trouble_of(Work::Flush)
    }

    fn compact(&self) -> Result<()> {
        self.persist()?;
        // What failed before may succeed now.
        self.jobs.forget_trouble(Work::Upkeep);
        let compacting = self.jobs.take_over(Work::Upkeep, &[Work::Upkeep]);
        // A job that came while this waited was not taken up.
        let compacting = compacting.inspect_err(|_| self.schedule_compaction())?;
        self.claims.see(Held::forget_damage);
        let finished = self.compact_everything();
        drop(compacting);
        // What became due meanwhile was not taken up.
        self.schedule_compaction();
        if finished? { self.settle_moves() } else { Err(Error::Closed) }
    }

    fn let_go(&self) {
        if !self.state.load().earlier.is_empty() {
            self.change_and_let_go(|_| {});
        }
    }

    fn settle(&self) -> Result<()> {
        if self.context.read_only {
            return Ok(());
        }
        self.let_go();
        if self.is_flush_due() {
            self.schedule_flush();
        }
        self.schedule_compaction();
        let settled =
            |jobs: &Status| jobs.is_idle() && !self.is_flush_due() && !self.is_compaction_due();
        self.jobs.wait_until(settled, &[Work::Flush, Work::Upkeep])?;
        self.damage().map_or(Ok(()), Err)?;
        self.settle_moves()
    }

    fn verify(&self, report: &mut VerifyReport) {
        let manifest = lock(&self.manifest);
        let checked = Manifest::open(&self.home, self.context.identity);
        drop(manifest);
        report.files += 1;
        if let Err(error) = checked {
            report.problems.push(error);
        }
        // Without the state, whose memtables would stay in memory until all has been read.
        let (version, tables) = {
            let state = self.state.load();
            report.entries += state.memtables.entries();
            (Arc::clone(&state.version), state.tables().cloned().collect::<Vec<_>>())
        };
        for table in &tables {
            report.files += 1;
            report.bytes += table.meta.len;
            report.entries += table.meta.entries;
            let mut references = References::new(&version, table);
            let mut apart = |key: &[u8], bytes: &[u8]| references.check(key, bytes);
            let checked = table.table().and_then(|open| open.verify(&mut apart));
            if let Err(error) = checked.and_then(|()| references.finish()) {
                report.problems.push(error);
            }
        }
        verify_files(&version.values, report);
    }

    fn active_bytes(&self) -> usize {
        self.state.load().memtables.active_bytes()
    }

    fn stats(&self) -> KeyspaceStats {
        let state = self.state.load_full();
        let of_level = |(level, runs): (usize, &[Run])| {
            let tables = || runs.iter().flat_map(Run::tables);
            LevelStats {
                level: level as u32,
                runs: runs.len() as u64,
                tables: tables().count() as u64,
                bytes: tables().map(|table| table.meta.len).sum(),
                entries: tables().map(|table| table.meta.entries).sum(),
                range_tombstones: tables().map(|table| table.meta.ranges).sum(),
            }
        };
        let levels: Vec<_> = state.version.levels().map(of_level).collect();
        let values = state.version.values.stats();
        KeyspaceStats {
            entries: levels.iter().map(|level| level.entries).sum::<u64>()
                + state.memtables.entries(),
            disk_bytes: levels.iter().map(|level| level.bytes).sum::<u64>() + values.bytes,
            memory_bytes: state.memtables.memory() as u64,
            flushes: self.flushes.load(Ordering::Relaxed),
            compactions: self.compactions.load(Ordering::Relaxed),
            work: self.observer().stats(),
            levels,
            values,
            ..KeyspaceStats::new(EngineKind::Lsm, self.home.layer())
        }
    }

    fn tree_status(&self) -> Option<LsmStatus> {
        Some(self.status())
    }

    fn layer(&self) -> Layer {
        self.home.layer()
    }

    fn set_layer(&self, layer: Layer) -> Result<()> {
        *lock(&self.home.layer) = layer;
        for state in self.state.load_full().with_earlier() {
            state.tables().for_each(|table| table.let_go());
            state.version.values.files().for_each(|file| file.let_go());
        }
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
        // Whoever is at the manifest is waited for.
        drop(lock(&self.manifest));
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

/// What the tree is shaped by.
fn shape(context: &Context, options: &LsmOptions) -> Shape {
    let flush_bytes = (context.budget.memtable as u64).max(256 << 10);
    let table_bytes = (flush_bytes / 2).clamp(256 << 10, 64 << 20);
    Shape {
        flush_bytes,
        // What level 0 has when it is merged: less would be written over and over, with little that is new.
        base_bytes: 8 * flush_bytes,
        table_bytes: options.table_size.unwrap_or(table_bytes),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
