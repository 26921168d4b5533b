//! The skip engine: writes go to a memtable; full ones are spilled as sorted runs; persisting merges all into one sorted
//! file.
//!
//! ```text
//! writes -> active memtable -> frozen memtables -> runs, newest first -> sorted file, the base
//!                     freeze               spill                 merge
//! ```
//! Readers see all of that at any time. A run is written by the flush thread, and with it the keyspace has persisted: the
//! log is not needed that far. When there are [many](super::policy) runs, some are merged into one in the background. The
//! base is made of all of them when somebody asks for it, with [`synchronize`](Engine::synchronize), or when the runs
//! together are about as large.
//!
//! Snapshots: a run has every version while there may be snapshots between its writes. A merge keeps one state only, the
//! last. Where a snapshot sees an earlier one, the files that were merged stay, under `older`, until it is gone.
//!
//! A file is written under a number that is new, synced, and then named by the manifest, which is one atomic step: a crash
//! leaves the files of before, and at most files nobody names, which the next opening removes. What was loaded is named by
//! the log before: replaying puts it in its place again.
//!
//! Thread safety. Readers load one pointer to a [`State`] and never wait. The commit path alone applies writes and freezes
//! memtables. Order of locks: `manifest`, which is held over the manifest's syncs, then `swap`, which is held over no I/O.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use arc_swap::ArcSwap;

use super::load::{Loaded, SortedLoad};
use super::manifest::{Contents, Manifest};
use super::merge::{Input, Order, Progress, Purpose, at_once};
use super::part::{Home, Part, PartMeta};
use super::policy;
use super::positions::{Located, Positions};
use super::reduce::Reduce;
use super::reduced::Reduced;
use super::verify;
use super::writer::Shape;
use crate::base::{Kind, ReadPoint, Seqno, Slice, Trailer};
use crate::contract::{Clear, Context, Engine, Load, Write};
use crate::error::{Error, ErrorKind, Result};
use crate::events::{Job, JobKind};
use crate::iter::{Merge, OrderedCursor, Visible};
use crate::jobs::{Jobs, Status, Work};
use crate::log::AppendError;
use crate::memtable::{Frozen, Memtables};
use crate::options::{EngineKind, MemtableKind, SkipOptions};
use crate::planted::{Bug, planted};
use crate::reducer::Reducer;
use crate::stats::{KeyspaceStats, SkipStats, VerifyReport};
use crate::sync::{Mutex, MutexGuard};
use crate::throttle::Valve;
use crate::vfs::{Layer, remove_leftover};

/// Files of up to so many times the size of a memtable are merged with memtables directly.
const SMALL: u64 = 4;

/// The files of one state.
#[derive(Clone, Default)]
struct Files {
    /// Newest first.
    runs: Vec<Arc<Part>>,
    base: Option<Arc<Part>>,
}

/// Files that were merged, for snapshots that see a state in between; or what was there before a clear.
#[derive(Clone)]
struct Older {
    /// For readers from this number on
    from: Seqno,
    /// and before this one.
    to: Seqno,
    /// Those in front of the files, if it is all there was.
    memtables: Option<Memtables>,
    files: Files,
}

/// A clear that the manifest does not have yet.
#[derive(Clone)]
struct Clearing {
    seqno: Seqno,
    /// The first write that had not been persisted before it.
    oldest: Seqno,
    /// The files there were, those of loads that the manifest does not name among them.
    files: Files,
}

/// What readers hold.
#[derive(Clone)]
struct State {
    memtables: Memtables,
    files: Files,
    /// In the order they were merged. The first one that is for a reader has all that he sees.
    older: Vec<Older>,
    /// The number of the last clear; 0 if there was none.
    cleared: Seqno,
    clearing: Option<Clearing>,
    /// The number up to which the last merge of all files went that left none; 0 if there was none.
    emptied: Seqno,
}

impl Files {
    /// All of them, newest first.
    fn all(&self) -> impl Iterator<Item = &Arc<Part>> {
        self.runs.iter().chain(&self.base)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Arc<Part>> {
        self.runs.iter_mut().chain(&mut self.base)
    }

    /// Adds a run where it belongs.
    fn add_run(&mut self, run: &Arc<Part>) {
        let at = self.runs.partition_point(|newer| newer.meta.to > run.meta.to);
        self.runs.insert(at, Arc::clone(run));
    }

    /// Removes files.
    fn remove(&mut self, ids: &[u64]) {
        self.runs.retain(|run| !ids.contains(&run.meta.id));
        self.base.take_if(|base| ids.contains(&base.meta.id));
    }

    /// What the manifest says when all up to `persisted` is in files.
    fn metas(&self, persisted: Seqno) -> Vec<PartMeta> {
        self.all().map(|part| part.meta).filter(|meta| meta.to <= persisted).collect()
    }

    /// The newest entry of `key` up to `seqno`, given what is known of newer ones.
    fn newest(
        &self,
        key: &[u8],
        seqno: Seqno,
        mut found: Option<(Trailer, Slice)>,
    ) -> Result<Option<(Trailer, Slice)>> {
        for part in self.all() {
            let known = found.as_ref().map_or(0, |(trailer, _)| trailer.seqno());
            if part.meta.to <= known {
                break;
            }
            if let Some(other) = part.sorted.get(key, seqno)?
                && other.0.seqno() > known
            {
                found = Some(other);
            }
        }
        Ok(found)
    }
}

impl State {
    /// What a reader at `seqno` looks into.
    #[inline]
    fn at(&self, seqno: Seqno) -> (Option<&Memtables>, &Files) {
        match self.older.iter().find(|older| older.from <= seqno && seqno < older.to) {
            None => (Some(&self.memtables), &self.files),
            Some(older) => (older.memtables.as_ref(), &older.files),
        }
    }

    fn basis(&self) -> Basis {
        Basis { files: self.files.clone(), cleared: self.cleared, emptied: self.emptied }
    }

    /// Whether all that a reader at `seqno` sees has been kept for another one.
    fn is_served(&self, seqno: Seqno) -> bool {
        self.older.iter().any(|older| older.from <= seqno && seqno < older.to)
    }

    /// Loads that the manifest does not name, newest first, if all up to `persisted` is in files that it does.
    fn loads(&self, persisted: Seqno) -> impl Iterator<Item = &Arc<Part>> {
        self.files.runs.iter().take_while(move |run| run.meta.to > persisted)
    }

    /// Takes away all there is, as the write `seqno`, and goes on with `memtables`, which are empty. What was there stays
    /// for readers below that number, if there may be any. `oldest` is the first write that is not persisted.
    fn clear(&mut self, seqno: Seqno, memtables: Memtables, oldest: Seqno, has_readers: bool) {
        let memtables = std::mem::replace(&mut self.memtables, memtables);
        let mut files = std::mem::take(&mut self.files);
        memtables.set_flushed();
        if has_readers {
            // It has what all see that no file in `older` is for: a merge of newer runs leaves those below it where they are.
            let (memtables, files) = (Some(memtables), files.clone());
            self.older.push(Older { from: self.cleared, to: seqno, memtables, files });
        }
        if let Some(earlier) = self.clearing.take() {
            files.runs.extend(earlier.files.runs);
            files.base = files.base.or(earlier.files.base);
        }
        self.cleared = seqno;
        self.clearing = Some(Clearing { seqno, oldest, files });
    }
}

/// What a merge begins with. Memtables are no part of it: it would keep them in memory until it ends.
struct Basis {
    files: Files,
    /// The numbers of the last clear before, and of what the last merge went to that left nothing.
    cleared: Seqno,
    emptied: Seqno,
}

/// What is to be merged.
struct Due {
    basis: Basis,
    runs: Vec<Arc<Part>>,
    with_base: bool,
}

/// A keyspace kept in a sorted file.
pub(crate) struct Store {
    context: Context,
    home: Arc<Home>,
    /// Of runs; what is particular to a file is added.
    shape: Shape,
    sums: bool,
    reduce: Arc<Reduce>,
    jobs: Jobs,
    state: ArcSwap<State>,
    swap: Mutex<()>,
    manifest: Mutex<Manifest>,
    /// Files that the manifest did not name when it was read, and that nobody has been found to need.
    leftovers: Mutex<BTreeSet<u64>>,
    persisted: AtomicU64,
    progress: Progress,
    flushes: AtomicU64,
    merges: AtomicU64,
    this: Weak<Self>,
}

impl Store {
    /// Makes the files of a new, empty keyspace in its directory, which is made anew if an interrupted
    /// creation has left one.
    pub(crate) fn create(context: Context, options: SkipOptions) -> Result<Arc<Self>> {
        let (fs, dir) = (&context.fs, &context.dir);
        context.make_directory()?;
        let manifest = Manifest::create(fs, dir, context.identity)?;
        Self::new(context, &options, manifest, BTreeSet::new())
    }

    /// Opens a keyspace where it has persisted, for reading until it is [made writable](Engine::make_writable).
    pub(crate) fn open(context: Context, options: SkipOptions) -> Result<Arc<Self>> {
        let (fs, dir) = (&*context.fs, &context.dir);
        let mut manifest = Manifest::open(fs, dir, context.identity)?;
        let mut leftovers = Home::ids(fs, dir)?;
        leftovers.iter().for_each(|&id| manifest.pass_over(id));
        manifest.contents.parts.iter().for_each(|part| _ = leftovers.remove(&part.id));
        Self::new(context, &options, manifest, leftovers)
    }

    fn new(
        context: Context,
        options: &SkipOptions,
        manifest: Manifest,
        leftovers: BTreeSet<u64>,
    ) -> Result<Arc<Self>> {
        let home = Arc::new(Home {
            fs: Arc::clone(&context.fs),
            dir: context.dir.clone(),
            identity: context.identity,
            layer: Mutex::new(context.layer),
            blocks: Arc::clone(&context.blocks),
            open_files: Arc::clone(&context.open_files),
            budget: Arc::clone(&context.budget),
        });
        let files = open_files(&manifest.contents, &home)?;
        let memtables = Memtables::new(MemtableKind::default(), &context.budget);
        let state =
            State { memtables, files, older: Vec::new(), cleared: 0, clearing: None, emptied: 0 };
        let reducer = options.reducer();
        let custom = match &reducer {
            Reducer::Custom(name) => context.reducers.get(name),
            _ => None,
        };
        let sums = reducer == Reducer::Sum;
        let reduce = Arc::new(Reduce::new(reducer, custom, &context.dir));
        Ok(Arc::new_cyclic(|this| Self {
            shape: Shape {
                step_unit: options.step_unit(),
                max_level: options.max_level(),
                has_trailers: true,
            },
            sums,
            reduce,
            jobs: Jobs::new(&context),
            state: ArcSwap::from_pointee(state),
            swap: Mutex::new(()),
            persisted: AtomicU64::new(manifest.contents.persisted),
            manifest: Mutex::new(manifest),
            leftovers: Mutex::new(leftovers),
            progress: Progress::default(),
            flushes: AtomicU64::new(0),
            merges: AtomicU64::new(0),
            this: Weak::clone(this),
            home,
            context,
        }))
    }

    // ---- state ----

    /// Replaces the state by what `change` makes of it. Under the commit lock that must have all that was there: no
    /// file is removed then.
    fn change_state(&self, change: impl FnOnce(&mut State)) {
        let swap = lock(&self.swap);
        let mut next = State::clone(&self.state.load());
        change(&mut next);
        let before = self.state.swap(Arc::new(next));
        drop(swap);
        // If it is the last to hold a file, that is removed from the disk.
        drop(before);
    }

    /// The same in the background, where files may go: lets go of those, too, that no snapshot sees any more.
    fn change_and_let_go(&self, change: impl FnOnce(&mut State)) {
        self.change_state(|state| {
            change(state);
            self.forget_older(state, |_| true);
        });
    }

    /// Lets go of what no snapshot sees any more, if it `may_go`.
    fn forget_older(&self, state: &mut State, may_go: impl Fn(&Older) -> bool) {
        let mut held = self.context.visibility.held();
        // Until a clear is published, anybody may become a reader of what was before it.
        let published = held.published();
        state.older.retain(|older| {
            published < older.to || held.awaits(older.from, older.to) || !may_go(older)
        });
    }

    fn freeze(&self, last: Seqno) {
        let kind = MemtableKind::default();
        let next = self.state.load().memtables.next(kind, &self.context.budget);
        let Some(next) = next else { return };
        self.change_state(|state| state.memtables.freeze(next, last));
        self.schedule_flush();
    }

    /// Records which files there are after `change`, and that all up to `persisted` is in them, if that changes too; then
    /// lets readers see it, with what `also` changes, given the files of before. Files that are there no more are obsolete.
    /// False if nothing has changed, because all has been taken away since the last clear was the one with the number `cleared`.
    ///
    /// If the record is refused, for want of space or open files, nothing has changed. If recording fails otherwise, it is unknown what is on
    /// disk: writes are refused from then on, and no file that either outcome needs is removed.
    fn install(
        &self,
        cleared: Seqno,
        persisted: Option<Seqno>,
        change: impl Fn(&mut Files),
        also: impl FnOnce(&mut State, Files),
    ) -> Result<bool> {
        let mut manifest = lock(&self.manifest);
        let persisted = persisted.unwrap_or(manifest.contents.persisted);
        let Basis { files: before, cleared: now, .. } = self.state.load().basis();
        if now != cleared {
            return Ok(false);
        }
        let mut files = before.clone();
        change(&mut files);
        let metas = files.metas(persisted);
        let gone = before.all().filter(|part| {
            part.meta.to <= persisted && metas.iter().all(|meta| meta.id != part.meta.id)
        });
        let gone: Vec<_> = gone.cloned().collect();
        self.record(&mut manifest, persisted, metas)?;
        self.change_and_let_go(|state| match &mut state.clearing {
            // It came while this was recorded: what is new goes with all the rest.
            Some(clearing) => change(&mut clearing.files),
            None => {
                let before = state.files.clone();
                change(&mut state.files);
                also(state, before);
            }
        });
        gone.iter().for_each(|part| part.set_obsolete());
        if let Err(error) = self.reopen_stale() {
            // They are read all the same, and the next change tries it again.
            log::warn!("files stay reached as before: {error}");
        }
        Ok(true)
    }

    /// Has those files reached by the present layer that were opened before there was that one. The manifest's lock is held:
    /// files come, but for loads, and go under it.
    fn reopen_stale(&self) -> Result<()> {
        let layer = self.home.layer();
        let files = self.state.load().files.clone();
        let stale = files.all().filter(|part| part.layer() != layer);
        let reopened = stale.map(|part| part.reopen()).collect::<Result<Vec<_>>>()?;
        if reopened.is_empty() {
            return Ok(());
        }
        self.change_state(|state| {
            for part in state.files.all_mut() {
                let again = reopened.iter().find(|again| again.meta.id == part.meta.id);
                again.into_iter().for_each(|again| *part = Arc::clone(again));
            }
        });
        Ok(())
    }

    /// Whether nothing comes of what began when the last clear was the one with this number: another one has come.
    fn is_in_vain(&self, cleared: Seqno) -> bool {
        self.state.load().cleared != cleared
    }

    fn record(
        &self,
        manifest: &mut Manifest,
        persisted: Seqno,
        metas: Vec<PartMeta>,
    ) -> Result<()> {
        manifest.record(persisted, metas).map_err(|error| match error {
            AppendError::Refused(error) => error,
            AppendError::Unknown(error) => {
                self.context.host.poison(&error);
                Error::Poisoned { cause: error.to_string().into() }
            }
        })?;
        self.persisted.store(persisted, Ordering::Release);
        Ok(())
    }

    /// Has the manifest say that a clear took away all there was.
    fn take_away(&self, seqno: Seqno) -> Result<()> {
        self.context.host.sync_log(seqno)?;
        let mut manifest = lock(&self.manifest);
        let clearing = self.state.load().clearing.clone();
        // Another one may have come meanwhile, and others may come for ever: what the manifest has is gone with this one, too.
        let Some(Clearing { files, .. }) = clearing.filter(|clearing| clearing.seqno >= seqno)
        else {
            return Ok(());
        };
        self.record(&mut manifest, seqno, Vec::new())?;
        // Later ones were loaded, and the log, which is not let go so far, has them.
        let gone: Vec<_> = files.all().filter(|part| part.meta.to <= seqno).collect();
        let ids: Vec<_> = gone.iter().map(|part| part.meta.id).collect();
        self.change_and_let_go(|state| {
            state.clearing.take_if(|clearing| clearing.seqno == seqno);
            if let Some(later) = &mut state.clearing {
                later.oldest = later.oldest.max(seqno + 1);
                later.files.remove(&ids);
            }
        });
        gone.iter().for_each(|part| part.set_obsolete());
        Ok(())
    }

    /// Waits until snapshots that are taken from then on see all up to `seqno`.
    fn wait_published(&self, seqno: Seqno) -> Result<()> {
        self.jobs.wait_published(&self.context.visibility, seqno)
    }

    // ---- spilling ----

    fn schedule_flush(&self) {
        self.jobs.schedule(Work::Flush, &self.this, Self::flush_one);
    }

    /// The flush job: one clear, memtable or load, then room for other keyspaces.
    fn flush_one(&self) {
        let Some(running) = self.jobs.begin(Work::Flush) else { return };
        if running.persistently(|| self.flush_oldest()).is_some() {
            self.jobs.notify();
            self.schedule_merge();
            self.context.host.persisted();
        }
        drop(running);
        if self.is_flush_due() && self.jobs.trouble_of(Work::Flush).is_none() {
            self.schedule_flush();
        }
    }

    fn is_flush_due(&self) -> bool {
        self.cut_up_to(&self.state.load()) > 0
    }

    /// The number up to which something has been cut that is not in named files; 0 if nothing has.
    fn cut_up_to(&self, state: &State) -> Seqno {
        let clearing = state.clearing.as_ref().map(|clearing| clearing.seqno);
        let frozen = state.memtables.frozen.first().map(|frozen| frozen.last);
        let load = state.loads(self.persisted()).next().map(|load| load.meta.to);
        clearing.into_iter().chain(frozen).chain(load).max().unwrap_or(0)
    }

    /// Brings the oldest of what is not in named files there.
    fn flush_oldest(&self) -> Result<()> {
        let state = self.state.load();
        if let Some(Clearing { seqno, .. }) = state.clearing {
            drop(state);
            let clear = || self.take_away(seqno);
            return self.context.observer.observe(JobKind::Clear, clear);
        }
        let frozen = state.memtables.oldest_frozen().cloned();
        let load = state.loads(self.persisted()).last().map(|load| load.meta.to);
        let (cleared, is_first) = (state.cleared, state.files.all().next().is_none());
        drop(state);
        match (frozen, load) {
            (frozen, Some(to)) if frozen.as_ref().is_none_or(|frozen| to <= frozen.last) => {
                let load = || {
                    self.context.host.sync_log(to)?;
                    self.install(cleared, Some(to), |_| {}, |_, _| {}).map(drop)
                };
                self.context.observer.observe(JobKind::Load, load)
            }
            (Some(frozen), _) => {
                let mut job = self.context.observer.begin(JobKind::Flush, Vec::new(), None);
                let spilled = self.spill(&frozen, (cleared, is_first), &mut job);
                job.end(spilled)
            }
            (None, _) => Ok(()),
        }
    }

    /// Writes a frozen memtable to a run, or to the base if it `is_first` of all files; in vain if the last clear is not the one with
    /// the number `cleared` any more.
    fn spill(
        &self,
        frozen: &Frozen,
        (cleared, is_first): (Seqno, bool),
        job: &mut Job,
    ) -> Result<()> {
        let Frozen { memtable, last } = frozen;
        let (last, after) = (*last, self.persisted());
        self.wait_published(last)?;
        let is_held = self.context.visibility.is_held_between(after, last);
        let purpose = match (is_held, is_first && self.reduce.is_ready()) {
            (true, _) => Purpose::ExactRun,
            (false, true) => Purpose::Base,
            (false, false) => Purpose::Run,
        };
        let write = |purpose| {
            let after = if purpose == Purpose::Base { 0 } else { after };
            let order = self.order(purpose, (after, last), cleared, (None, None));
            order(vec![Input::Left(memtable.cursor())])
        };
        let made = match write(purpose) {
            // Values that become too large must not keep memory from being written, or nobody could write any more, not even
            // what makes them smaller.
            Err(Error::Invalid(what)) if purpose == Purpose::Base => {
                log::warn!("{}: memory becomes no base: {what}", self.home.dir.display());
                write(Purpose::Run)
            }
            made => made,
        };
        if self.is_given_up(&made, cleared)? {
            return Ok(());
        }
        let made = made?;
        let installed = self.context.host.sync_log(last).and_then(|()| {
            let add = |files: &mut Files| match &made {
                Some(part) if part.meta.is_base => files.base = Some(Arc::clone(part)),
                Some(part) => files.add_run(part),
                None => {}
            };
            self.install(cleared, Some(last), add, |state, _| {
                let is_this = |oldest: &mut Frozen| Arc::ptr_eq(&oldest.memtable, memtable);
                state.memtables.frozen.pop_if(is_this);
            })
        });
        if !settle(installed, made.as_ref())? {
            return Ok(());
        }
        job.wrote(made.map_or(0, |part| part.meta.len));
        job.done();
        memtable.set_flushed();
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What carries out a merge of the writes above `after` and up to `to`. If another clear comes than the one with the number `cleared`,
    /// it is [given up](Self::is_given_up).
    fn order<'a>(
        &'a self,
        purpose: Purpose,
        (after, to): (Seqno, Seqno),
        cleared: Seqno,
        (progress, valve): (Option<&'a Progress>, Option<&'a Arc<Valve>>),
    ) -> impl Fn(Vec<Input>) -> Result<Option<Arc<Part>>> + 'a {
        move |inputs| {
            let order = Order {
                home: &self.home,
                reduce: &self.reduce,
                purpose,
                shape: self.shape,
                id: lock(&self.manifest).take_id(),
                after,
                to,
                progress,
                valve,
                stopped: &|| self.jobs.is_stopping() || self.is_in_vain(cleared),
            };
            order.carry_out(inputs)
        }
    }

    /// Whether a clear has taken away what a merge was about that has come to nothing, be it because of that or because of an error: what was wrong
    /// is gone.
    ///
    /// # Errors
    /// `Closed` if the engine stops.
    fn is_given_up(&self, made: &Result<Option<Arc<Part>>>, cleared: Seqno) -> Result<bool> {
        if matches!(made, Ok(_) | Err(Error::Poisoned { .. })) {
            return Ok(false);
        }
        self.jobs.stop_if_told()?;
        Ok(self.is_in_vain(cleared))
    }

    // ---- loading ----

    pub(super) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    pub(super) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// What files are made of.
    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// A number for a new file.
    pub(super) fn take_id(&self) -> u64 {
        lock(&self.manifest).take_id()
    }

    /// Waits while there are as many runs as there may be: a load brings one more, and is not slowed down otherwise.
    pub(super) fn wait_for_merges(&self) -> Result<()> {
        self.schedule_merge();
        if self.is_flush_due() && self.pressure() >= policy::STOP {
            // Runs that the manifest does not name yet are not merged.
            self.jobs.forget_trouble(Work::Flush);
            self.schedule_flush();
        }
        self.jobs.wait_until(|_| self.pressure() < policy::STOP, &[Work::Upkeep, Work::Flush])
    }

    /// Lets readers see a run that was loaded, in front of all up to `before`. Under the commit lock.
    pub(super) fn put_in_front(&self, before: Seqno, run: &Arc<Part>) {
        self.freeze(before);
        self.change_state(|state| state.files.add_run(run));
        self.schedule_flush();
    }

    /// Waits until all up to `seqno`, which is cut, is in the keyspace's own files.
    pub(super) fn wait_persisted(&self, seqno: Seqno) -> Result<()> {
        self.jobs.forget_trouble(Work::Flush);
        self.schedule_flush();
        self.jobs.wait_until(|_| self.persisted() >= seqno, &[Work::Flush])
    }

    // ---- merging ----

    fn schedule_merge(&self) {
        let runs = self.state.load().files.runs.len();
        self.jobs.set_debt(policy::debt(runs));
        if self.due().is_some() {
            self.jobs.schedule(Work::Upkeep, &self.this, Self::merge_one);
        }
    }

    /// The merge job: one merge, then room for other keyspaces.
    fn merge_one(&self) {
        let Some(running) = self.jobs.begin(Work::Upkeep) else { return };
        let merged = running.persistently(|| {
            let Some(Due { basis, runs, with_base }) = self.due() else { return Ok(()) };
            match self.merge_parts(&basis, &[], &runs, with_base) {
                // Values that become too large must not keep runs from being merged, or nobody could write any more,
                // not even what makes them smaller.
                Err(Error::Invalid(what)) if with_base => {
                    log::warn!(
                        "{}: runs stay apart from the base: {what}",
                        self.home.dir.display()
                    );
                    self.merge_parts(&basis, &[], &runs, false)
                }
                merged => merged,
            }
        });
        drop(running);
        if merged.is_some() {
            self.schedule_merge();
        }
    }

    /// What is to be merged in the background.
    fn due(&self) -> Option<Due> {
        let (basis, mut runs) = self.written_runs();
        let bytes: Vec<_> = runs.iter().map(|run| run.meta.len).collect();
        let choice = policy::due(&bytes, basis.files.base.as_ref().map(|base| base.meta.len))?;
        runs.truncate(choice.runs);
        Some(Due { basis, runs, with_base: choice.with_base && self.reduce.is_ready() })
    }

    /// Runs that the manifest names, newest first, and the basis that they are of.
    fn written_runs(&self) -> (Basis, Vec<Arc<Part>>) {
        // A state that is loaded later has all that had been persisted: there is no gap between the runs.
        let persisted = self.persisted();
        let basis = self.state.load().basis();
        let runs = basis.files.runs.iter().filter(|run| run.meta.to <= persisted).cloned();
        let runs = runs.collect();
        (basis, runs)
    }

    /// Merges the newest memtables, runs, and the base of what there was. If it fails, or a clear comes meanwhile, nothing has changed.
    fn merge_parts(
        &self,
        basis: &Basis,
        frozen: &[Frozen],
        runs: &[Arc<Part>],
        with_base: bool,
    ) -> Result<()> {
        let Some(to) = newest(frozen, runs) else { return Ok(()) };
        let is_flush = runs.is_empty() && !(with_base && basis.files.base.is_some());
        let kind = if is_flush { JobKind::Flush } else { JobKind::Merge };
        let mut job = self.context.observer.begin(kind, Vec::new(), None);
        let merged = self.merge_up_to(to, basis, (frozen, runs), with_base, &mut job);
        job.end(merged)
    }

    /// The same; `to` is the last write in what is merged.
    fn merge_up_to(
        &self,
        to: Seqno,
        basis: &Basis,
        (frozen, runs): (&[Frozen], &[Arc<Part>]),
        with_base: bool,
        job: &mut Job,
    ) -> Result<()> {
        let Basis { files, cleared, emptied } = basis;
        let base = files.base.clone().filter(|_| with_base);
        let oldest = runs.last().map_or(0, |run| run.meta.after);
        let (after, from) = match with_base {
            // What was before a clear is kept by that; what was before the base, or before nothing was left, by the merge that
            // made it.
            true => (0, base.as_ref().map_or(*cleared.max(emptied), |base| base.meta.to)),
            false => (oldest, oldest),
        };
        self.wait_published(to)?;
        // Memtables, and loads that the manifest does not name yet.
        let persists = (to > self.persisted()).then_some(to);
        let parts: Vec<_> = runs.iter().chain(&base).collect();
        job.read(parts.iter().map(|part| part.meta.len).sum());
        let at_once = at_once(self.home.budget.total, parts.len()) as u64;
        let memtables = frozen.iter().map(|frozen| Input::Left(frozen.memtable.cursor()));
        let files = parts.iter().map(|part| Input::Right(part.sorted.cursor(Some(at_once))));
        // Forged files may have any.
        let bytes = parts.iter().map(|part| part.sorted.footer.bytes).fold(0, u64::saturating_add);
        self.progress.total.store(bytes, Ordering::Relaxed);
        let purpose = if with_base { Purpose::Base } else { Purpose::Run };
        // Writers may wait for memtables to be written.
        let valve = frozen.is_empty().then_some(self.jobs.valve());
        let merge = self.order(purpose, (after, to), *cleared, (Some(&self.progress), valve));
        let made = merge(memtables.chain(files).collect());
        self.progress.total.store(0, Ordering::Relaxed);
        self.progress.done.store(0, Ordering::Relaxed);
        if self.is_given_up(&made, *cleared)? {
            return Ok(());
        }
        let made = made?;
        let ids: Vec<_> = parts.iter().map(|part| part.meta.id).collect();
        let replace = |files: &mut Files| {
            files.remove(&ids);
            match &made {
                Some(part) if part.meta.is_base => files.base = Some(Arc::clone(part)),
                Some(part) => files.add_run(part),
                None => {}
            }
        };
        let is_merged = |other: &Frozen| {
            frozen.iter().any(|frozen| Arc::ptr_eq(&frozen.memtable, &other.memtable))
        };
        let logged = persists.map_or(Ok(()), |to| self.context.host.sync_log(to));
        let installed = logged.and_then(|()| {
            self.install(*cleared, persists, replace, |state, before| {
                state.memtables.frozen.retain(|other| !is_merged(other));
                // What an earlier merge has kept for a snapshot is all that it sees.
                let held = self.context.visibility.held_between(from, to);
                if !held.iter().all(|&seqno| state.is_served(seqno))
                    && !planted(Bug::MergeIgnoresSnapshots)
                {
                    state.older.push(Older { from, to, memtables: None, files: before });
                }
                if with_base && made.is_none() {
                    state.emptied = to;
                }
            })
        });
        if !settle(installed, made.as_ref())? {
            return Ok(());
        }
        job.wrote(made.as_ref().map_or(0, |part| part.meta.len));
        job.done();
        frozen.iter().for_each(|frozen| frozen.memtable.set_flushed());
        self.flushes.fetch_add(frozen.len() as u64, Ordering::Relaxed);
        self.merges.fetch_add(u64::from(!parts.is_empty()), Ordering::Relaxed);
        Ok(())
    }

    /// Merges all runs with the base, until there are none but those that come meanwhile.
    fn merge_all(&self) -> Result<()> {
        let running = self.jobs.take_over(Work::Upkeep, &[Work::Upkeep])?;
        let (basis, runs) = self.written_runs();
        let merged = self.merge_parts(&basis, &[], &runs, true);
        drop(running);
        // Runs that came meanwhile found the job taken.
        self.schedule_merge();
        merged
    }

    /// Merges all there is at once, memtables too, which have no run made of them then.
    fn merge_at_once(&self, cut: &dyn Fn() -> Result<()>) -> Result<()> {
        let merging = self.jobs.take_over(Work::Upkeep, &[Work::Upkeep])?;
        let flushing = self.jobs.take_over(Work::Flush, &[Work::Flush]);
        let merged = flushing.and_then(|_flushing| self.merge_with_memtables(cut));
        drop(merging);
        // What came meanwhile, and what was due before if this has failed, found the jobs taken.
        self.schedule_merge();
        if self.is_flush_due() {
            self.schedule_flush();
        }
        self.context.host.persisted();
        merged
    }

    /// The same, for who has both jobs.
    fn merge_with_memtables(&self, cut: &dyn Fn() -> Result<()>) -> Result<()> {
        cut()?;
        let mut state = self.state.load_full();
        let last = self.cut_up_to(&state);
        // What comes behind a clear must not be in files before that is in the manifest.
        while state.clearing.is_some() {
            // They may come for ever. A later one has taken away what was to be merged.
            if self.persisted() >= last {
                return Ok(());
            }
            self.flush_oldest()?;
            state = self.state.load_full();
        }
        let (frozen, basis) = (state.memtables.frozen.clone(), state.basis());
        drop(state);
        let runs = &basis.files.runs;
        let to = newest(&frozen, runs).unwrap_or(0);
        // Only then is it known whether a snapshot sees a part of the memtables.
        self.wait_published(to)?;
        let is_held = self.context.visibility.is_held_between(self.persisted(), to);
        if frozen.is_empty() || !is_held {
            let merged = self.merge_parts(&basis, &frozen, runs, true);
            drop((frozen, basis));
            // If a clear came meanwhile, the merge was in vain, and nothing has persisted before that has. Values that become too
            // large keep files apart, but nothing from being persisted.
            if matches!(merged, Ok(()) | Err(Error::Invalid(_))) {
                self.flush_up_to(last)?;
            }
            return merged;
        }
        drop((frozen, basis));
        // What snapshots see in between stays in runs.
        self.flush_up_to(last)?;
        let (basis, runs) = self.written_runs();
        self.merge_parts(&basis, &[], &runs, true)
    }

    /// Brings what was cut up to `last` to named files, for who has the flush job.
    fn flush_up_to(&self, last: Seqno) -> Result<()> {
        while self.persisted() < last {
            self.flush_oldest()?;
        }
        Ok(())
    }

    /// Reads entries of what a reader at `seqno` looks into, newest parts first.
    fn inputs(memtables: Option<&Memtables>, files: &Files, with_base: bool) -> Vec<Input> {
        let memtables = memtables.into_iter().flat_map(Memtables::cursors).map(Input::Left);
        let runs = files.runs.iter().chain(files.base.as_ref().filter(|_| with_base));
        memtables.chain(runs.map(|part| Input::Right(part.sorted.cursor(None)))).collect()
    }

    /// All values that `key` has for a reader.
    fn values(&self, state: &State, key: &[u8], seqno: Seqno) -> Result<Vec<Slice>> {
        let (memtables, files) = state.at(seqno);
        let newest = memtables.and_then(|memtables| memtables.get(key, seqno));
        if self.reduce.only_newest() {
            let newest = files.newest(key, seqno, newest)?;
            return Ok(value_of(newest).into_iter().collect());
        }
        let mut is_changed = newest.is_some();
        for run in &files.runs {
            is_changed = is_changed || run.sorted.get(key, seqno)?.is_some();
        }
        if !is_changed && !self.reduce.keeps_all() {
            let base = files.base.as_ref();
            let found = base.map_or(Ok(None), |base| base.sorted.get(key, seqno))?;
            return Ok(value_of(found).into_iter().collect());
        }
        let entries = Merge::new(Self::inputs(memtables, files, true));
        Reduced::new(entries, seqno, Arc::clone(&self.reduce)).values_of(key)
    }
}

/// Opens the files that the manifest names.
fn open_files(contents: &Contents, home: &Arc<Home>) -> Result<Files> {
    let mut files = Files::default();
    for &meta in &contents.parts {
        let part = Part::open(meta, home)?;
        match meta.is_base {
            true => files.base = Some(part),
            false => files.runs.push(part),
        }
    }
    Ok(files)
}

/// The number up to which memtables and runs, newest first, have all writes.
fn newest(frozen: &[Frozen], runs: &[Arc<Part>]) -> Option<Seqno> {
    let frozen = frozen.first().map(|frozen| frozen.last);
    frozen.max(runs.first().map(|run| run.meta.to))
}

/// Whether a file that was made is installed. If it was made in vain it is removed, unless it is unknown whether the
/// manifest names it.
fn settle(installed: Result<bool>, made: Option<&Arc<Part>>) -> Result<bool> {
    let is_in_vain = match &installed {
        Ok(is_installed) => !is_installed,
        Err(error) => error.kind() != ErrorKind::Poisoned,
    };
    if is_in_vain {
        made.into_iter().for_each(|part| part.set_obsolete());
    }
    installed
}

fn value_of(found: Option<(Trailer, Slice)>) -> Option<Slice> {
    found.filter(|(trailer, _)| trailer.kind() == Kind::Put).map(|(_, value)| value)
}

impl Engine for Store {
    fn make_writable(&self) -> Result<()> {
        lock(&self.manifest).make_writable(&self.home.fs, &self.home.dir)?;
        self.schedule_merge();
        Ok(())
    }

    fn replay_load(&self, seqno: Seqno, described: &[u8]) -> Result<()> {
        let Some(loaded) = Loaded::decode(described) else {
            let what = "what the log says of a sorted load cannot be";
            return Err(Error::corruption(&self.home.dir, 0, what));
        };
        if !lock(&self.leftovers).remove(&loaded.id) {
            let what = "the file of a sorted load that the log has is missing";
            return Err(Error::corruption(&self.home.path(loaded.id), 0, what));
        }
        let run = Part::open(loaded.meta(seqno), &self.home)?;
        self.put_in_front(seqno - 1, &run);
        Ok(())
    }

    fn end_replay(&self) -> Result<()> {
        let leftovers = std::mem::take(&mut *lock(&self.leftovers));
        let remove = |&id| remove_leftover(&*self.home.fs, &self.home.path(id));
        leftovers.iter().try_for_each(remove)
    }

    fn checks_writes(&self) -> bool {
        self.sums
    }

    fn check_write(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if !self.sums || value.len() == 8 {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "a value of {} bytes, under a key of {}, cannot be added up: the keyspace's reducer is sum, whose values \
             have 8 bytes, as from i64::to_be_bytes",
            value.len(),
            key.len()
        )))
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
        match self.cut_up_to(&self.state.load()) {
            0 => Ok(()),
            last => self.wait_persisted(last),
        }
    }

    fn as_clear(&self) -> Result<&dyn Clear> {
        Ok(self)
    }

    fn load(&self) -> Result<Box<dyn Load>> {
        let store = self.this.upgrade().ok_or(Error::Closed)?;
        Ok(Box::new(SortedLoad::new(&store)?))
    }

    fn synchronize(&self, cut: &dyn Fn() -> Result<()>) -> Result<()> {
        self.jobs.forget_trouble(Work::Flush);
        self.jobs.forget_trouble(Work::Upkeep);
        self.let_go();
        let bytes: u64 = self.state.load().files.all().map(|part| part.meta.len).sum();
        if bytes <= SMALL * self.context.budget.memtable as u64 && self.reduce.is_ready() {
            return self.merge_at_once(cut);
        }
        // A merge takes long: memtables must not wait for it.
        cut()?;
        self.persist()?;
        self.merge_all()
    }

    fn persisted(&self) -> Seqno {
        self.persisted.load(Ordering::Acquire)
    }

    fn oldest_unpersisted(&self) -> Option<Seqno> {
        self.oldest_unpersisted_of(&self.state.load())
    }

    fn oldest_uncut(&self) -> Option<Seqno> {
        self.state.load().memtables.active.oldest()
    }

    fn get(&self, key: &[u8], point: ReadPoint<'_>) -> Result<Option<Slice>> {
        let state = self.state.load();
        let seqno = point.seqno();
        if self.reduce.shows_newest() {
            let (memtables, files) = state.at(seqno);
            let newest = memtables.and_then(|memtables| memtables.get(key, seqno));
            return files.newest(key, seqno, newest).map(value_of);
        }
        Ok(self.values(&state, key, seqno)?.pop())
    }

    fn multi_get(&self, keys: &[&[u8]], point: ReadPoint<'_>) -> Result<Vec<Option<Slice>>> {
        let state = self.state.load();
        let seqno = point.seqno();
        let (memtables, files) = state.at(seqno);
        let is_alone = files.runs.is_empty() && memtables.is_none_or(is_empty);
        let is_plain = self.reduce.shows_newest() || is_alone;
        if !is_plain {
            let value = |key: &&[u8]| Ok(self.values(&state, key, seqno)?.pop());
            return keys.iter().map(value).collect();
        }
        let mut found: Vec<_> = keys
            .iter()
            .map(|key| memtables.and_then(|memtables| memtables.get(key, seqno)))
            .collect();
        for part in files.all() {
            let is_open = |found: &Option<(Trailer, Slice)>| {
                found.as_ref().is_none_or(|(trailer, _)| trailer.seqno() < part.meta.to)
            };
            let places: Vec<_> = (0..keys.len()).filter(|&at| is_open(&found[at])).collect();
            let open: Vec<&[u8]> = places.iter().map(|&at| keys[at]).collect();
            let others = part.sorted.multi_get(&open, seqno, &self.context.reader)?;
            for (at, other) in places.into_iter().zip(others) {
                let newer = |known: &(Trailer, Slice)| {
                    other.as_ref().is_some_and(|(trailer, _)| trailer.seqno() > known.0.seqno())
                };
                if found[at].as_ref().is_none_or(newer) {
                    found[at] = other;
                }
            }
        }
        Ok(found.into_iter().map(value_of).collect())
    }

    fn get_all(&self, key: &[u8], point: ReadPoint<'_>) -> Result<Vec<Slice>> {
        let state = self.state.load();
        self.values(&state, key, point.seqno())
    }

    fn nth(&self, position: u64, point: ReadPoint<'_>) -> Result<Option<(Slice, Slice)>> {
        let state = self.state.load();
        let seqno = point.seqno();
        match self.positions(&state, seqno).nth(position)? {
            None => Ok(None),
            Some(Located::InBase(key, value)) => Ok(Some((key, value))),
            Some(Located::Changed(key, index)) => {
                let mut values = self.values(&state, &key, seqno)?;
                let index = index as usize;
                let value = (index < values.len()).then(|| values.swap_remove(index));
                Ok(value.map(|value| (Slice::from(&key[..]), value)))
            }
        }
    }

    fn rank(&self, key: &[u8], point: ReadPoint<'_>) -> Result<u64> {
        let state = self.state.load();
        self.positions(&state, point.seqno()).rank(key)
    }

    fn cursor(&self, point: ReadPoint<'_>) -> Result<Box<dyn OrderedCursor>> {
        let state = self.state.load();
        let seqno = point.seqno();
        let (memtables, files) = state.at(seqno);
        if let Some(base) = &files.base
            && files.runs.is_empty()
            && memtables.is_none_or(is_empty)
            && !self.reduce.keeps_all()
        {
            return Ok(Box::new(base.sorted.cursor(None)));
        }
        let entries = Merge::new(Self::inputs(memtables, files, true));
        Ok(match self.reduce.only_newest() {
            true => Box::new(Visible::new(entries, seqno)),
            false => Box::new(Reduced::new(entries, seqno, Arc::clone(&self.reduce))),
        })
    }

    fn count(&self) -> Option<u64> {
        let state = self.state.load();
        // Until then readers see what was before the last clear.
        let is_published = state.cleared <= self.context.visibility.published();
        let is_all_in_base = state.files.runs.is_empty() && is_empty(&state.memtables);
        let base = state.files.base.as_ref();
        (is_published && is_all_in_base).then(|| base.map_or(0, |base| base.meta.records))
    }

    fn pressure(&self) -> u32 {
        policy::pressure(self.state.load().files.runs.len())
    }

    fn trouble(&self) -> Option<Error> {
        self.jobs.trouble()
    }

    fn flush_trouble(&self) -> Option<Error> {
        self.jobs.trouble_of(Work::Flush)
    }

    fn compact(&self) -> Result<()> {
        self.synchronize(&|| Ok(()))
    }

    fn let_go(&self) {
        if !self.state.load().older.is_empty() {
            self.change_and_let_go(|_| ());
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
        self.schedule_merge();
        let settled =
            |jobs: &Status| jobs.is_idle() && !self.is_flush_due() && self.due().is_none();
        self.jobs.wait_until(settled, &[Work::Flush, Work::Upkeep])
    }

    fn verify(&self, report: &mut VerifyReport) {
        let manifest = lock(&self.manifest);
        let checked = Manifest::open(&*self.home.fs, &self.home.dir, self.context.identity);
        drop(manifest);
        report.files += 1;
        report.problems.extend(checked.err());
        // Without the state, whose memtables would stay in memory until all has been read.
        let files = {
            let state = self.state.load();
            report.entries += state.memtables.entries();
            state.files.clone()
        };
        for part in files.all() {
            report.files += 1;
            report.bytes += part.meta.len;
            report.entries += part.meta.records;
            report.problems.extend(verify::verify(&part.sorted).err());
        }
    }

    fn active_bytes(&self) -> usize {
        self.state.load().memtables.active_bytes()
    }

    fn stats(&self) -> KeyspaceStats {
        let state = self.state.load_full();
        let files = &state.files;
        let of_runs = |figure: fn(&Part) -> u64| files.runs.iter().map(|run| figure(run)).sum();
        let run_entries: u64 = of_runs(|run| run.meta.records);
        let base = files.base.as_ref().map(|base| &base.sorted);
        let (mut requests, mut reads) = (0, 0);
        for part in files.all() {
            let counted = part.sorted.counters();
            (requests, reads) = (requests + counted.0, reads + counted.1);
        }
        let records = base.map_or(0, |base| base.footer.records);
        let merges = self.merges.load(Ordering::Relaxed);
        let memory: usize = files.all().map(|part| part.memory()).sum();
        KeyspaceStats {
            entries: records + run_entries + state.memtables.entries(),
            disk_bytes: files.all().map(|part| part.meta.len).sum(),
            memory_bytes: (state.memtables.memory() + memory) as u64,
            flushes: self.flushes.load(Ordering::Relaxed),
            compactions: merges,
            work: self.context.observer.stats(),
            skip: Some(SkipStats {
                step_unit: self.shape.step_unit,
                levels: base.map_or(0, |base| base.levels()),
                records,
                blocks: base.map_or(0, |base| base.footer.blocks),
                runs: files.runs.len() as u64,
                run_entries,
                requests,
                hits: requests.saturating_sub(reads),
                merges,
                merge_done: self.progress.done.load(Ordering::Relaxed),
                merge_total: self.progress.total.load(Ordering::Relaxed),
            }),
            ..KeyspaceStats::new(EngineKind::Skip, self.home.layer())
        }
    }

    fn layer(&self) -> Layer {
        self.home.layer()
    }

    fn set_layer(&self, layer: Layer) -> Result<()> {
        let _files_stay = lock(&self.manifest);
        let before = std::mem::replace(&mut *lock(&self.home.layer), layer);
        // What is opened meanwhile by the layer of before follows when it is installed, a load when the manifest takes it.
        let reopened = self.reopen_stale();
        if reopened.is_err() {
            *lock(&self.home.layer) = before;
        }
        reopened
    }

    fn stop(&self) {
        self.jobs.stop();
    }
}

impl Clear for Store {
    fn clear(&self, _before: Seqno, seqno: Seqno) {
        let memtables = Memtables::new(MemtableKind::default(), &self.context.budget);
        // What is replayed to be read only is read when all has been replayed, and not changed any more.
        let has_readers = !self.context.read_only;
        self.change_state(|state| {
            let oldest = self.oldest_unpersisted_of(state).unwrap_or(seqno);
            state.clear(seqno, memtables, oldest, has_readers);
            // Clears may come faster than they are flushed: what only takes memory need not wait for that.
            self.forget_older(state, |older| older.files.all().next().is_none());
        });
        self.schedule_flush();
    }
}

impl Store {
    /// The first write that is not in named files.
    fn oldest_unpersisted_of(&self, state: &State) -> Option<Seqno> {
        let clearing = state.clearing.as_ref().map(|clearing| clearing.oldest);
        let load = state.loads(self.persisted()).last().map(|load| load.meta.to);
        clearing.into_iter().chain(load).chain(state.memtables.oldest()).min()
    }

    fn positions<'a>(&'a self, state: &'a State, at: Seqno) -> Positions<'a, Merge<Input>> {
        let (memtables, files) = state.at(at);
        let changes = Merge::new(Self::inputs(memtables, files, false));
        Positions { base: files.base.as_deref(), changes, reduce: &self.reduce, at }
    }
}

fn is_empty(memtables: &Memtables) -> bool {
    memtables.entries() == 0
}

#[cfg(test)]
impl Store {
    /// What the next write goes to.
    pub(super) fn memtable(&self) -> Weak<dyn crate::memtable::Memtable> {
        Arc::downgrade(&self.state.load().memtables.active)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
