//! The database: a handle that opens keyspaces, makes batches and snapshots, and closes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use crate::base::{Seqno, Visibility, checksum};
use crate::batch::Batch;
use crate::builder::{DatabaseBuilder, DatabaseOptions};
use crate::catalog::{Catalog, Types};
use crate::commit::{Committer, Target};
use crate::contract::{Background, Engine};
use crate::engine;
use crate::error::{Error, Result};
use crate::events::UnderWay;
use crate::housekeeper::Housekeeper;
use crate::keyspace::{Keyspace, KeyspaceInfo, OpenKeyspace};
use crate::log::{AppendError, Log, Segments, segment_path};
use crate::open::{self, Opened, Shared};
use crate::options::{Durability, KeyspaceOptions, RecoveryMode, SkipOptions};
use crate::planted::{Bug, planted};
use crate::snapshot::Snapshot;
use crate::stats::{CacheStats, LogStats, MemoryStats, RecoveryReport, Stats, VerifyReport};
use crate::status::{JobStatus, Publisher, Status};
use crate::sync::{self, Mutex, MutexGuard, RwLock};
use crate::vfs::{IoStats, Layer, LockGuard, is_too_many_open};

/// The longest name of a keyspace, in bytes.
const MAX_NAME_LEN: usize = 255;
/// Keyspaces that keep more than this many times the budget's memtables in log segments are cut.
const LOG_PER_MEMTABLES: u64 = 2;

/// An open database.
///
/// Handles are cheap to clone and may be used from any thread. The database is closed by
/// [`close`](Self::close), or when its last handle ([`Keyspace`], [`Snapshot`], [`Batch`], iterators and
/// cursors count) is dropped.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Handle>,
}

/// What users of a database share; the last one to let go of it closes the database, and has it closed when
/// the drop returns, unless that is a listener, which the database would wait for. The housekeeper, which comes and goes, has no
/// part in it.
pub(crate) struct Handle(Arc<Inner>);

impl Deref for Handle {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            // A process that was forked has none of the threads, and all else is the other one's: nothing of it is touched.
            std::mem::forget(Arc::clone(&self.0));
            return;
        }
        if !self.is_in_background() {
            return self.0.close_at_last();
        }
        let inner = Arc::clone(&self.0);
        let close = checksum::carry_over(move || inner.close_at_last());
        let thread = sync::thread::Builder::new().name("turbidite-close".into()).spawn(close);
        if let Err(error) = thread {
            // What goes on in the background must not lose its lock.
            std::mem::forget(Arc::clone(&self.0));
            let path = self.shared.path.display();
            log::error!("{path} stays open: no thread to close it: {error}");
        }
    }
}

/// An open database.
pub(crate) struct Inner {
    shared: Shared,
    durability: Durability,
    catalog: Mutex<Catalog>,
    keyspaces: RwLock<BTreeMap<String, Arc<OpenKeyspace>>>,
    segments: Option<Arc<Segments>>,
    /// Held while the set of log segments is changed or must stand still.
    log_upkeep: Mutex<()>,
    housekeeper: OnceLock<Housekeeper>,
    publisher: OnceLock<Publisher>,
    lock: Mutex<Option<Arc<LockGuard>>>,
    report: RecoveryReport,
    closed: AtomicBool,
    /// The process that opened it.
    process: u32,
}

impl Database {
    /// Opens the database at `path` with default options, creating it if there is nothing.
    ///
    /// # Errors
    /// Those of [`DatabaseBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    /// Options for opening the database at `path`.
    pub fn builder(path: impl AsRef<Path>) -> DatabaseBuilder {
        DatabaseBuilder::new(path.as_ref())
    }

    pub(crate) fn open_with(options: DatabaseOptions) -> Result<Self> {
        let Opened { shared, catalog, targets, log, last, report, lock } = open::open(&options)?;
        let open = |(name, target): (String, Target)| {
            let files = shared.take_files(target.id);
            let info = info(&catalog, &name, target.id);
            (name, Arc::new(OpenKeyspace::new(info, target, files)))
        };
        let keyspaces = targets.into_iter().map(open).collect();
        let (segments, writer) = log.unzip();
        let inner = Arc::new(Handle(Arc::new(Inner {
            durability: options.durability,
            keyspaces: RwLock::new(keyspaces),
            catalog: Mutex::new(catalog),
            segments,
            log_upkeep: Mutex::new(()),
            housekeeper: OnceLock::new(),
            publisher: OnceLock::new(),
            lock: Mutex::new(Some(lock)),
            report,
            closed: AtomicBool::new(false),
            process: std::process::id(),
            shared,
        })));
        let bell = &inner.shared.bell;
        // Before anything may fail: what closes the database cuts its engines at the last number there is.
        inner.shared.committer.start(writer, last, Arc::clone(bell) as _)?;
        let has_log = inner.segments.is_some();
        let housekeeper = Housekeeper::start(Arc::clone(bell), Arc::downgrade(&inner.0), has_log)?;
        inner.housekeeper.get_or_init(|| housekeeper);
        if !inner.shared.read_only {
            inner.shared.bell.release_log();
        }
        if options.publish_status && !inner.shared.read_only {
            let database = Arc::downgrade(&inner.0);
            let collect = move || database.upgrade().map(|inner| inner.status());
            let Shared { fs, path, .. } = &inner.shared;
            let publisher = Publisher::start(fs, path, collect)?;
            inner.publisher.get_or_init(|| publisher);
        }
        Ok(Self { inner })
    }

    /// Where the database is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.shared.path
    }

    /// Opens the keyspace called `name`, creating it with `options` if there is none. It is there for good
    /// when the call returns.
    ///
    /// # Errors
    /// `Invalid` if the name is empty or longer than 255 bytes, if the keyspace exists with another engine
    /// or another choice about the log, the size of pages, or step unit, largest level or reducer, if the sizes of the file
    /// layer or of the engine are impossible, if it would be created with a reducer that is not registered, or if all page
    /// caches would take more than half of the memory budget; `Unsupported` if the file system does not offer the file
    /// layer; `ReadOnly` if it would have to be created; `Io`, `NoSpace`, `Poisoned`, `Closed`.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        self.keyspace_of(name, options, None)
    }

    /// The same, and its keys and values are to be of these types: they are noted when they are given first, and an
    /// error if they are other ones later.
    pub(crate) fn keyspace_of(
        &self,
        name: &str,
        options: KeyspaceOptions,
        types: Option<Types>,
    ) -> Result<Keyspace> {
        self.inner.check_open()?;
        let mut catalog = self.inner.catalog();
        // Closing takes this lock too, so that nothing is made once it is done.
        self.inner.check_open()?;
        let open = match self.inner.find(name) {
            Some(open) => {
                if let Some(types) = &types {
                    check_types(&catalog, &open, types)?;
                }
                self.inner.reconfigure(&mut catalog, &open, &options)?;
                open
            }
            None => self.inner.create_keyspace(&mut catalog, name, &options)?,
        };
        if let Some(types) = &types {
            self.inner.note_types(&mut catalog, &open, types)?;
        }
        Ok(Keyspace::new(Arc::clone(&self.inner), open))
    }

    /// Opens the keyspace called `name`, which must exist.
    ///
    /// # Errors
    /// `UnknownKeyspace`, `Closed`.
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.inner.check_open()?;
        let open = self.inner.find(name).ok_or_else(|| Error::UnknownKeyspace(name.to_owned()))?;
        Ok(Keyspace::new(Arc::clone(&self.inner), open))
    }

    /// The keyspaces there are, by name.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        self.inner.all().iter().map(|open| open.info()).collect()
    }

    /// An empty batch: writes, to any keyspaces, that take effect together or not at all.
    pub fn batch(&self) -> Batch {
        Batch::new(Arc::clone(&self.inner))
    }

    /// The state of all keyspaces at this moment, for reading. Cost: a lock held for an instant; while the
    /// snapshot lives, what it sees is kept on disk.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.inner))
    }

    /// Makes all writes committed so far survive power loss: syncs the log, and flushes the keyspaces that
    /// have none.
    ///
    /// # Errors
    /// `Io`, `NoSpace`, `Poisoned`, `Closed`, `ReadOnly`.
    pub fn persist(&self) -> Result<()> {
        self.inner.check_writable()?;
        self.inner.persist_unlogged()?;
        let last = self.inner.committer().pen()?.last();
        self.inner.committer().sync(last)
    }

    /// Hands all that is committed and still [buffered](Durability::Buffered) to the kernel, so that it survives the process
    /// being killed. Cost: one write to the log, or nothing if nothing is buffered.
    ///
    /// # Errors
    /// `Io`, after which the database is `Poisoned`; `Closed`, `ReadOnly`.
    pub fn flush_log(&self) -> Result<()> {
        self.inner.check_writable()?;
        self.inner.committer().write_out()
    }

    /// Waits until no flush or compaction is due.
    ///
    /// # Errors
    /// The error of background work that does not get on; `Closed`.
    pub fn settle(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.all().iter().try_for_each(|open| {
            open.target.engine.settle()?;
            // It may have been closed meanwhile.
            self.inner.check_open()
        })
    }

    /// Figures about the database. Cost: microseconds for each table.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// What the database is doing at this moment: its levels over the keys, what compactions work on, what waits. Cost:
    /// microseconds for each table.
    #[must_use]
    pub fn status(&self) -> Status {
        self.inner.status()
    }

    /// Reads the catalog, the log from its first needed segment on, all manifests, tables, segments, sorted files and trees, and
    /// checks all checksums, orders and counts. Cost: reads these files.
    ///
    /// # Errors
    /// Only if it cannot be run: `Io` when too many files are open, `Io` and `NoSpace` if what was written cannot be handed to the log's files, and `Closed`;
    /// what is wrong with the data is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.inner.verify()
    }

    /// What opening had to recover.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.inner.report
    }

    /// Closes the database: all writes are made to survive power loss, background work is stopped, the lock
    /// is released. Other handles give `Closed` from then on, or, to those who write, what they gave before, if that was `Poisoned` or `ReadOnly`.
    ///
    /// A cursor or iterator that stands in a B+ tree over mapped files shows bytes of the file: if there still is one, or a
    /// read that another thread is in the middle of, the lock is released when it is dropped.
    ///
    /// # Errors
    /// What kept the writes from being made durable; `Poisoned` if it was a panic, then or before. The database is closed all the
    /// same, and what is lost of it is what the durability of each write allows. `Invalid` from a [`Listener`](crate::Listener), which
    /// closing waits for.
    pub fn close(self) -> Result<()> {
        if self.inner.is_in_background() {
            return Err(Error::Invalid(
                "a listener cannot close the database, which would wait for it: drop the handle, or let another thread close".into(),
            ));
        }
        self.inner.shut_down()
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn committer(&self) -> &Committer {
        &self.shared.committer
    }

    pub(crate) fn visibility(&self) -> &Arc<Visibility> {
        &self.shared.visibility
    }

    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// An error if the database has been closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// An error if writes are not taken.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.shared.read_only {
            return Err(Error::ReadOnly { path: self.shared.path.clone() });
        }
        self.committer().check()
    }

    /// The catalog. If a panic has left it in the middle of a change, it is unknown what it says, and writes are refused.
    fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(|left| {
            let cause = "a panic in the middle of a change of the catalog".into();
            self.committer().poison(&Error::Poisoned { cause });
            left.into_inner()
        })
    }

    fn find(&self, name: &str) -> Option<Arc<OpenKeyspace>> {
        self.keyspaces.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn all(&self) -> Vec<Arc<OpenKeyspace>> {
        let keyspaces = self.keyspaces.read().unwrap_or_else(PoisonError::into_inner);
        keyspaces.values().cloned().collect()
    }

    /// Makes the engine of a keyspace under the catalog's next id, and adds the keyspace to the catalog.
    fn create_engine(
        &self,
        catalog: &mut Catalog,
        (id, name): (u32, &str),
        options: &KeyspaceOptions,
    ) -> Result<Arc<dyn Engine>> {
        let context = self.shared.context((id, name), options)?;
        let engine = engine::create(options, context)?;
        self.shared.sync_keyspaces()?;
        catalog.add(name, options).map_err(|error| self.failed_change(error))?;
        Ok(engine)
    }

    fn create_keyspace(
        &self,
        catalog: &mut Catalog,
        name: &str,
        options: &KeyspaceOptions,
    ) -> Result<Arc<OpenKeyspace>> {
        self.check_writable()?;
        if name.is_empty() || name.len() > MAX_NAME_LEN {
            return Err(Error::Invalid(format!(
                "a keyspace's name has 1 to {MAX_NAME_LEN} bytes; {name:?} has {}",
                name.len()
            )));
        }
        options.check_engine()?;
        self.shared.reducers.check_has(&options.skip.reducer())?;
        let layer = options.resolve_layer(Layer::default())?;
        open::probe(&self.shared.fs, &self.shared.path, layer)?;
        let id = catalog.next_id()?;
        let made = self.create_engine(catalog, (id, name), &options.resolved(layer));
        let engine = made.inspect_err(|_| self.shared.forget(id))?;
        let files = self.shared.take_files(id);
        let target = Target::new(id, options.logged, engine);
        let open = Arc::new(OpenKeyspace::new(info(catalog, name, id), target, files));
        let mut keyspaces = self.keyspaces.write().unwrap_or_else(PoisonError::into_inner);
        keyspaces.insert(name.to_owned(), Arc::clone(&open));
        Ok(open)
    }

    /// Checks that an existing keyspace is what the caller asks for, and makes it what may be changed.
    fn reconfigure(
        &self,
        catalog: &mut Catalog,
        open: &OpenKeyspace,
        wanted: &KeyspaceOptions,
    ) -> Result<()> {
        let info = open.info();
        if wanted.engine != info.engine || wanted.logged != info.logged {
            let log = |logged| if logged { "with the log" } else { "without the log" };
            return Err(Error::Invalid(format!(
                "keyspace {:?} was created as {} {}, and cannot be opened as {} {}",
                info.name,
                info.engine,
                log(info.logged),
                wanted.engine,
                log(wanted.logged)
            )));
        }
        wanted.check_engine()?;
        check_skip(&info.options.skip, &info.name, wanted)?;
        check_fixed(&info, wanted)?;
        let next = next_options(&info, wanted)?;
        self.change(catalog, open, (&info.options, &next))
    }

    /// Has a keyspace be made of the second options in place of the first. The engine goes first, because it may fail; then the
    /// catalog takes note. After an error, and after a crash in between, all is as it was: of several changes those may be made
    /// that the catalog had taken note of before it found no space for another one.
    fn change(
        &self,
        catalog: &mut Catalog,
        open: &OpenKeyspace,
        (is, next): (&KeyspaceOptions, &KeyspaceOptions),
    ) -> Result<()> {
        let id = open.target.id;
        let is_noted = self.shared.read_only || catalog.state.keyspaces[&id].options == *next;
        if is == next && is_noted {
            return Ok(());
        }
        if !is_noted {
            self.check_writable()?;
        }
        if let Some(layer) = next.layer
            && !self.shared.read_only
            && next.layer != is.layer
        {
            open::probe(&self.shared.fs, &self.shared.path, layer)?;
        }
        self.reach(open, is, next)?;
        if !is_noted && let Err(error) = self.note_options(catalog, id, next) {
            let noted = &catalog.state.keyspaces[&id].options;
            if let Err(error) = self.reach(open, next, noted) {
                log::warn!("a keyspace stays other than its catalog says: {error}");
            }
            return Err(error);
        }
        if next.lsm != is.lsm {
            open.target.engine.set_lsm_options(&next.lsm);
            open.note(|noted| noted.lsm = next.lsm.clone());
        }
        Ok(())
    }

    /// Has the engine reach and cache its files as the options `next` say in place of `is`. After an error it does as before. Page
    /// caches before and after take turns with their memory, of which the larger part is theirs meanwhile.
    fn reach(
        &self,
        open: &OpenKeyspace,
        is: &KeyspaceOptions,
        next: &KeyspaceOptions,
    ) -> Result<()> {
        let (engine, files) = (&open.target.engine, &open.files);
        let (before, after) = (is.layer.unwrap_or_default(), next.layer.unwrap_or_default());
        let pages = next.tree.max_cached_pages;
        files.resize(before.page_cache_bytes().max(after.page_cache_bytes()))?;
        let set_layer = |from, to| if from == to { Ok(()) } else { engine.set_layer(to) };
        let mut reached = set_layer(before, after);
        if reached.is_ok() && pages != is.tree.max_cached_pages {
            reached = engine.set_max_cached_pages(pages);
            match &reached {
                Ok(()) => open.note(|noted| noted.tree.max_cached_pages = pages),
                Err(_) => {
                    if let Err(error) = set_layer(after, before) {
                        log::warn!("a keyspace keeps a file layer that was to go: {error}");
                    }
                }
            }
        }
        // Whatever came of it, what is counted is what there is.
        files.keep_only(engine.layer());
        files.reserve(engine.layer())?;
        self.shared.budget.prepare_chunks();
        self.shared.open_files.rebalance();
        reached
    }

    /// Has the catalog say what a keyspace is made of, as far as that may be changed.
    fn note_options(&self, catalog: &mut Catalog, id: u32, next: &KeyspaceOptions) -> Result<()> {
        let noted = catalog.state.keyspaces[&id].options.clone();
        let mut noting = Ok(());
        if let Some(layer) = next.layer.filter(|_| next.layer != noted.layer) {
            noting = catalog.set_layer(id, layer);
        }
        if let Some(pages) = next.tree.max_cached_pages
            && next.tree != noted.tree
        {
            noting = noting.and_then(|()| catalog.set_max_cached_pages(id, pages));
        }
        if next.lsm != noted.lsm {
            noting = noting.and_then(|()| catalog.set_lsm(id, &next.lsm));
        }
        noting.map_err(|error| self.failed_change(error))
    }

    /// An error if the keyspace is known to have keys or values of other types.
    pub(crate) fn check_types(&self, open: &OpenKeyspace, types: &Types) -> Result<()> {
        check_types(&self.catalog(), open, types)
    }

    /// Notes the types of a keyspace that were found to be no other ones.
    fn note_types(&self, catalog: &mut Catalog, open: &OpenKeyspace, types: &Types) -> Result<()> {
        let id = open.target.id;
        if self.shared.read_only || catalog.state.keyspaces[&id].types.is_some() {
            return Ok(());
        }
        self.check_writable()?;
        catalog.set_types(id, types).map_err(|error| self.failed_change(error))
    }

    /// If a change of the catalog was not refused, it is unknown what that says.
    fn failed_change(&self, error: AppendError) -> Error {
        self.committer().failed_append(error)
    }

    // ---- persisting ----

    /// Cuts an engine between two batches, so that its `persist` covers all that is committed.
    pub(crate) fn cut(&self, target: &Target) -> Result<()> {
        let pen = self.committer().pen()?;
        target.engine.cut(pen.cut_at(target));
        Ok(())
    }

    fn persist_unlogged(&self) -> Result<()> {
        let unlogged: Vec<_> = self.all().into_iter().filter(|open| !open.target.logged).collect();
        unlogged.iter().try_for_each(|open| self.cut(&open.target))?;
        let persisted: Vec<_> = unlogged.iter().map(|open| open.target.engine.persist()).collect();
        persisted.into_iter().collect()
    }

    /// Whether this process opened it, and not one that it was forked from.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Whether the calling thread is in the middle of background work, as in a listener: what waits for that work would wait for itself.
    fn is_in_background(&self) -> bool {
        let Background { flush, compaction, .. } = &*self.shared.background;
        // Callers do such work, too.
        self.shared.events.is_telling() || flush.has_this_thread() || compaction.has_this_thread()
    }

    /// Closes the database if it is not closed.
    fn close_at_last(&self) {
        match self.shut_down() {
            Ok(()) | Err(Error::Closed) => {}
            Err(error) => log::error!("closing {}: {error}", self.shared.path.display()),
        }
    }

    fn shut_down(&self) -> Result<()> {
        if !self.is_of_this_process() {
            return Err(Error::Closed);
        }
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(Error::Closed);
        }
        let result = match self.shared.read_only {
            true => Ok(()),
            false => self.unless_it_panics(|| self.make_durable()),
        };
        self.committer().close();
        let keyspaces = self.all();
        keyspaces.iter().for_each(|open| open.target.engine.stop());
        self.shared.background.flush.stop();
        self.shared.background.compaction.stop();
        if let Some(housekeeper) = self.housekeeper.get() {
            housekeeper.stop();
        }
        if let Some(publisher) = self.publisher.get() {
            publisher.stop();
        }
        let ended = self.unless_it_panics(|| {
            self.committer().finish();
            if result.is_ok()
                && let Some(segments) = &self.segments
            {
                let _upkeep = lock(&self.log_upkeep);
                segments.remove_prepared();
            }
            Ok(())
        });
        let catalog = self.catalog();
        // From here on the files may be another one's. What somebody reads of them keeps its lock until then. There may be keyspaces
        // that were made meanwhile.
        self.shared.log_files.revoke();
        for open in self.all() {
            open.target.engine.stop();
            open.files.revoke();
        }
        lock(&self.lock).take();
        drop(catalog);
        result.and(ended)
    }

    /// A step of closing, which has to go on whatever happens: a panic becomes an error.
    fn unless_it_panics(&self, step: impl FnOnce() -> Result<()>) -> Result<()> {
        catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
            let cause = format!("closing panicked: {}", sync::message(&*panic)).into();
            Err(self.committer().poison(&Error::Poisoned { cause }))
        })
    }

    /// Takes no more writes, and makes those there are durable.
    fn make_durable(&self) -> Result<()> {
        self.committer().check()?;
        self.committer().close();
        // One may fail and the other not: both are tried.
        let unlogged = self.persist_unlogged();
        let last = self.committer().pen()?.last();
        self.committer().sync(last)?;
        unlogged?;
        for open in self.all() {
            let last = self.committer().pen()?.cut_at(&open.target);
            // All is durable already.
            if let Err(error) = open.target.engine.prepare_close(last) {
                log::warn!("{}: the next opening will take longer: {error}", open.info().name);
            }
        }
        Ok(())
    }

    // ---- housekeeping ----

    /// Prepares one of the log's next segments; whether there may be more to prepare.
    pub(crate) fn prepare_segment(&self) -> Result<bool> {
        let Some(segments) = &self.segments else { return Ok(false) };
        let _upkeep = lock(&self.log_upkeep);
        segments.prepare_spare()
    }

    /// Lets go of the log segments that no keyspace needs.
    pub(crate) fn release_log(&self) -> Result<()> {
        let Some(segments) = &self.segments else { return Ok(()) };
        let _upkeep = lock(&self.log_upkeep);
        self.committer().check()?;
        let current = match self.committer().pen()?.log() {
            Some(writer) => writer.segment().number,
            None => return Ok(()),
        };
        // Writes that come now go to the current segment or a later one.
        let keyspaces = self.all();
        let logged = || keyspaces.iter().filter(|open| open.target.logged);
        let oldest = logged().filter_map(|open| open.target.engine.oldest_unpersisted()).min();
        let oldest = oldest.filter(|_| !planted(Bug::ReuseLogTooSoon));
        let persisted = oldest.map_or(Seqno::MAX, |oldest| oldest - 1);
        let floor = segments.floor(persisted, current);
        let mut catalog = self.catalog();
        self.committer().check()?;
        if floor <= catalog.state.floor {
            return Ok(());
        }
        // The segment that becomes the first one needed must be there after a power loss.
        let last = self.committer().pen()?.last();
        self.committer().sync(last)?;
        // A segment that recovery cut keeps its place until writes behind it have been synced.
        let first_in_use = self.committer().pen()?.log().map_or(current, |log| log.first_in_use());
        let floor = floor.min(first_in_use);
        if floor <= catalog.state.floor {
            return Ok(());
        }
        let progress: Vec<_> =
            logged().map(|open| (open.target.id, open.target.engine.persisted())).collect();
        catalog.progress(floor, &progress).map_err(|error| self.failed_change(error))?;
        drop(catalog);
        segments.release(floor);
        Ok(())
    }

    /// Lets go of a state that was held for reading.
    pub(crate) fn release(&self, seqno: Seqno) {
        if self.visibility().release(seqno) {
            self.shared.bell.let_go();
        }
    }

    /// Has engines let go of what they keep for snapshots that are gone.
    pub(crate) fn let_go(&self) {
        self.all().iter().for_each(|open| open.target.engine.let_go());
    }

    /// Divides memory anew between writing and reading.
    pub(crate) fn rebalance_memory(&self) {
        self.shared.budget.prepare_chunks();
        self.shared.open_files.rebalance();
    }

    /// Cuts a keyspace if the memtables that are written to take too much together, and all that pin too much of the log,
    /// as idle ones do: there may be thousands.
    pub(crate) fn cut_if_needed(&self) -> Result<()> {
        let Some(segments) = &self.segments else { return Ok(()) };
        self.committer().check()?;
        let budget = &self.shared.budget;
        let keyspaces = self.all();
        let active: usize = keyspaces.iter().map(|open| open.target.engine.active_bytes()).sum();
        if active > budget.memtable {
            let largest = keyspaces.iter().max_by_key(|open| open.target.engine.active_bytes());
            largest.map_or(Ok(()), |open| self.cut(&open.target))?;
        }
        let most = LOG_PER_MEMTABLES * budget.memtables as u64;
        if let Some(last) = segments.too_long_unpersisted(most) {
            let pins = |open: &&Arc<OpenKeyspace>| {
                let Target { logged, engine, .. } = &open.target;
                *logged && engine.oldest_uncut().is_some_and(|oldest| oldest <= last)
            };
            keyspaces.iter().filter(pins).try_for_each(|open| self.cut(&open.target))?;
        }
        Ok(())
    }

    // ---- figures ----

    fn memory(&self) -> MemoryStats {
        let budget = &self.shared.budget;
        MemoryStats {
            budget: budget.total as u64,
            memtables: budget.memtables_used() as u64,
            block_cache: self.shared.blocks.memory(),
            tables: (self.shared.open_files.memory() + budget.nodes_used()) as u64,
            indexes: budget.indexes_used() as u64,
            page_caches: budget.page_caches() as u64,
        }
    }

    /// What all files have done.
    fn io(&self) -> IoStats {
        let all = self.shared.fs.stats();
        self.segments.as_ref().map_or(all, |log| log.without_tail(all))
    }

    fn status(&self) -> Status {
        let keyspaces: Vec<_> = self.all().iter().map(|open| open.status()).collect();
        let pressure = keyspaces.iter().map(|keyspace| keyspace.pressure).max().unwrap_or(0);
        let (io, events) = (self.io(), &self.shared.events);
        let now = events.now();
        let job = |job: UnderWay| JobStatus {
            number: job.number,
            keyspace: job.keyspace.to_string(),
            kind: job.kind,
            levels: job.levels,
            bytes: job.bytes,
            running_for: now.saturating_sub(job.start),
        };
        Status {
            process: std::process::id(),
            open_for: now,
            last_seqno: self.visibility().published(),
            taken_bytes: self.committer().taken_bytes(),
            read_bytes: io.read_bytes,
            written_bytes: io.written_bytes,
            pressure: pressure.max(self.committer().memory_pressure()),
            is_poisoned: self.committer().check().is_err(),
            memory: self.memory(),
            memtables_limit: self.shared.budget.memtables as u64,
            keyspaces,
            jobs: events.under_way().into_iter().map(job).collect(),
        }
    }

    fn stats(&self) -> Stats {
        let keyspaces: Vec<_> = self.all().iter().map(|open| open.stats()).collect();
        let page_cache =
            keyspaces.iter().fold(self.shared.log_files.page_cache_stats(), |sum, keyspace| {
                sum + keyspace.page_cache
            });
        let last_seqno = self.visibility().published();
        let files = open::files(&*self.shared.fs, &self.shared.path);
        let log: Vec<u64> = files.iter().filter(|file| file.is_log).map(|file| file.len).collect();
        Stats {
            io: self.io(),
            disk_bytes: files.iter().map(|file| file.len).sum(),
            keyspaces,
            log: LogStats {
                segments: log.len() as u64,
                bytes: log.iter().sum(),
                written_bytes: self.segments.as_ref().map_or(0, |log| log.written_bytes()),
            },
            memory: self.memory(),
            page_cache,
            block_cache: CacheStats {
                hits: self.shared.blocks.hits(),
                misses: self.shared.blocks.misses(),
            },
            last_seqno,
        }
    }

    fn verify(&self) -> Result<VerifyReport> {
        self.check_open()?;
        let mut report = VerifyReport::default();
        report.files += 1;
        let written = self.written_log()?;
        if let Err(problem) = self.verify_catalog_and_log(written, &mut report) {
            report.problems.push(problem);
        }
        self.check_verified(&report)?;
        if planted(Bug::VerifyPassesOverKeyspaces) {
            return Ok(report);
        }
        for open in self.all() {
            open.target.engine.verify(&mut report);
            self.check_verified(&report)?;
        }
        Ok(report)
    }

    /// An error if what verifying found says nothing of the data: they could not be read for want of open files, or the database
    /// was closed meanwhile, and its files may be another one's.
    fn check_verified(&self, report: &VerifyReport) -> Result<()> {
        self.check_open()?;
        let other = report.problems.iter().find(|problem| is_too_many_open(problem));
        other.map_or(Ok(()), |problem| Err(problem.clone()))
    }

    /// Reads the catalog and the log, which may grow meanwhile, and checks that all up to `written` is there, or, if nobody writes it,
    /// all that was synced.
    fn verify_catalog_and_log(
        &self,
        written: Option<Seqno>,
        report: &mut VerifyReport,
    ) -> Result<()> {
        let _upkeep = lock(&self.log_upkeep);
        let (fs, path) = (&*self.shared.fs, &self.shared.path);
        let found = {
            let _catalog = self.catalog();
            Catalog::read(fs, path)?
        };
        let found = found.ok_or_else(|| Error::corruption(path, 0, "the catalog is gone"))?;
        if found.state.floor == 0 {
            return Ok(());
        }
        let dir = path.join("log");
        let (database, floor) = (self.shared.database, found.state.floor);
        // What is being written behind `written` may look like damage, and must not be taken for it.
        let log = match written {
            Some(_) => Log::open_segments(fs, &dir, database, floor)?,
            None => Log::open(fs, &dir, database, floor, RecoveryMode::Strict, |_| true)?,
        };
        let (found, written) = (log.found(), written.unwrap_or(0));
        report.files += found.chain.len() as u64;
        report.bytes += found.chain.iter().map(|read| read.end).sum::<u64>();
        if found.last < written {
            let end = found.end();
            let what = format!("the log record of write number {} is unreadable", found.last + 1);
            return Err(Error::corruption(&segment_path(&dir, end.number), end.end, what));
        }
        Ok(())
    }

    /// Writes the log out. Gives the last number up to which all must be in its segments; `None` if nobody writes it.
    fn written_log(&self) -> Result<Option<Seqno>> {
        let committer = self.committer();
        let mut pen = committer.pen()?;
        let Some(writer) = pen.log() else { return Ok(None) };
        // Of a log in an unknown state nothing is touched.
        if committer.check_poison().is_err() {
            return Ok(Some(writer.synced_up_to()));
        }
        writer
            .write_out()
            .map_err(|error| committer.failed_append(AppendError::of_write(error)))?;
        Ok(Some(writer.last()))
    }
}

/// An error if the keyspace is known to have keys or values of other types.
fn check_types(catalog: &Catalog, open: &OpenKeyspace, wanted: &Types) -> Result<()> {
    let entry = &catalog.state.keyspaces[&open.target.id];
    match &entry.types {
        Some(is) if is != wanted => Err(Error::Invalid(format!(
            "keyspace {:?} has keys of type {} and values of type {}, and cannot be opened with keys of type {} and \
             values of type {}",
            entry.name, is.key, is.value, wanted.key, wanted.value
        ))),
        _ => Ok(()),
    }
}

/// An error if anything about a skip keyspace is asked for to be other than it `is`.
fn check_skip(is: &SkipOptions, name: &str, wanted: &KeyspaceOptions) -> Result<()> {
    let wanted = &wanted.skip;
    let fixed = |what: &str, is: &dyn fmt::Display| {
        Err(Error::Invalid(format!(
            "keyspace {name:?} was created with the {what} {is}, and that cannot be changed"
        )))
    };
    if wanted.step_unit.is_some_and(|wanted| wanted != is.step_unit()) {
        return fixed("step unit", &is.step_unit());
    }
    if wanted.max_level.is_some_and(|wanted| wanted != is.max_level()) {
        return fixed("largest level", &is.max_level());
    }
    match &wanted.reducer {
        Some(wanted) if *wanted != is.reducer() => fixed("reducer", &is.reducer()),
        _ => Ok(()),
    }
}

/// An error if what is fixed when a B+ tree or an LSM-tree is created is asked for to be other than it is.
fn check_fixed(info: &KeyspaceInfo, wanted: &KeyspaceOptions) -> Result<()> {
    let (tree, lsm) = (&info.options.tree, &info.options.lsm);
    if wanted.tree.page_size.is_some_and(|wanted| wanted != tree.page_size()) {
        return Err(Error::Invalid(format!(
            "the pages of keyspace {:?} have {} bytes, and that cannot be changed",
            info.name,
            tree.page_size()
        )));
    }
    if wanted.lsm.policy.as_ref().is_some_and(|wanted| *wanted != lsm.policy()) {
        return Err(Error::Invalid(format!(
            "keyspace {:?} was created with the policy {}, and that cannot be changed: create another keyspace and \
             copy the records",
            info.name,
            lsm.policy()
        )));
    }
    Ok(())
}

/// What a keyspace is made of once it is what is `wanted`.
fn next_options(info: &KeyspaceInfo, wanted: &KeyspaceOptions) -> Result<KeyspaceOptions> {
    let mut next = info.options.clone();
    next.layer = Some(wanted.resolve_layer(info.layer)?);
    next.tree.max_cached_pages = wanted.tree.max_cached_pages.or(next.tree.max_cached_pages);
    next.lsm = wanted.lsm.over(&next.lsm);
    if next.lsm != info.options.lsm {
        next.lsm.check()?;
        next.lsm.check_compiled()?;
    }
    Ok(next)
}

fn info(catalog: &Catalog, name: &str, id: u32) -> KeyspaceInfo {
    let options = &catalog.state.keyspaces[&id].options;
    KeyspaceInfo {
        name: name.to_owned(),
        engine: options.engine,
        layer: options.layer.unwrap_or_default(),
        logged: options.logged,
        options: options.clone(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::base::{Kind, Slice};
    use crate::commit::EncodedWrites;
    use crate::cursor::Range;
    use crate::error::ErrorKind;
    use crate::housekeeper::tests::without_threads;
    use crate::log::segment::SEGMENT_HEADER;
    use crate::options::{EngineKind, MAX_KEY_LEN};
    use crate::vfs::{
        Effect, Errno, Fault, FaultFs, Fs, Layer, MemoryFs, Operation, PowerCut, Times,
    };

    fn open(fs: &MemoryFs) -> Database {
        Database::builder("/db").file_system(Arc::new(fs.fork())).open().unwrap()
    }

    #[test]
    fn a_clean_close_leaves_no_log_segments_without_writes() {
        let fs = MemoryFs::new();
        for round in 0..3 {
            let db = crate::Database::builder("/db").file_system(Arc::new(fs.clone()));
            let db = db.log_layer(Layer::Positional).open().unwrap();
            let keyspace = db.keyspace("all", KeyspaceOptions::lsm()).unwrap();
            // Several segments are filled, and those that follow prepared.
            for key in 0..64_u8 {
                keyspace.put([round, key], vec![key; 64 << 10]).unwrap();
                while key % 16 == 0 && db.inner.prepare_segment().unwrap() {}
            }
            drop(keyspace);
            db.close().unwrap();
            let log = PathBuf::from("/db/log");
            for (path, bytes) in fs.files().iter().filter(|(path, _)| path.starts_with(&log)) {
                let first = &bytes[SEGMENT_HEADER as usize..][..64];
                assert!(first.iter().any(|&byte| byte != 0), "{path:?} has no writes");
            }
        }
    }

    #[test]
    fn a_torn_segment_stays_until_its_promise_is_written() {
        let fs = Arc::new(MemoryFs::new());
        let builder = Database::builder("/db").log_layer(Layer::Positional);
        let db = builder.file_system(Arc::<MemoryFs>::clone(&fs)).open().unwrap();
        let keyspace = db.keyspace("main", KeyspaceOptions::lsm()).unwrap();
        keyspace.put("synced", "v").unwrap();
        db.persist().unwrap();
        let torn: PathBuf = "/db/log/000001.log".into();
        keyspace.put("torn", "v").unwrap();
        db.inner.committer().write_out().unwrap();
        let fs = fs.fork();
        drop((keyspace, db));
        let bytes = fs.files().into_iter().find(|(path, _)| *path == torn).unwrap().1;
        let end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        fs.corrupt(&torn, end as u64, 1).unwrap();

        let db = open(&fs);
        assert!(db.recovery().dropped_bytes > 0);
        let keyspace = db.open_keyspace("main").unwrap();
        keyspace.persist().unwrap();
        let is_there = || db.inner.shared.fs.kind(&torn).unwrap().is_some();
        db.inner.release_log().unwrap();
        assert!(is_there(), "its promise is still to be written");
        keyspace.put("more", "v").unwrap();
        db.persist().unwrap();
        keyspace.persist().unwrap();
        db.inner.release_log().unwrap();
        assert!(!is_there());
    }

    /// Has the thread for flushes wait until the guard is dropped.
    fn block_flushes(db: &Database) -> mpsc::Sender<()> {
        let (guard, wait) = mpsc::channel::<()>();
        db.inner.shared.background.flush.submit(&Arc::default(), move || _ = wait.recv());
        guard
    }

    /// Where there are several memtables, another thread writes for the flush.
    #[test]
    fn a_panic_beside_a_flush_poisons() {
        for operation in [Operation::Write, Operation::Sync] {
            let faults = FaultFs::new(Arc::new(MemoryFs::new()));
            let builder = Database::builder("/db").file_system(Arc::new(faults.clone()));
            let db = builder.open().unwrap();
            let keyspace = db.keyspace("main", KeyspaceOptions::lsm()).unwrap();
            let guard = block_flushes(&db);
            for key in ["a", "b"] {
                keyspace.put(key, "v").unwrap();
                db.inner.cut(keyspace.target()).unwrap();
            }
            let panic = Fault::new(operation, Effect::Panic);
            faults.arm(Fault { name_contains: ".table".into(), ..panic });
            drop(guard);
            let is_poisoned = |done: Result<()>| done.unwrap_err().kind() == ErrorKind::Poisoned;
            assert!(is_poisoned(keyspace.persist()));
            assert_eq!(faults.fired(), 1);
            assert!(is_poisoned(keyspace.put("c", "v")));
            assert_eq!(keyspace.get("b").unwrap().unwrap(), "v");
            assert!(is_poisoned(db.close()));
        }
    }

    /// Those that take loads, and what their files are called.
    fn loaded_engines() -> [(KeyspaceOptions, &'static str); 2] {
        [(KeyspaceOptions::skip(), "sorted"), (KeyspaceOptions::lsm(), "table")]
    }

    /// A keyspace with a load that has not been persisted, and is not before the guard is dropped.
    fn with_pending_load(db: &Database, options: KeyspaceOptions) -> (Keyspace, mpsc::Sender<()>) {
        let keyspace = db.keyspace("main", options).unwrap();
        let guard = block_flushes(db);
        keyspace.put("before", "v").unwrap();
        load(db, keyspace.target());
        (keyspace, guard)
    }

    /// A load that is not waited for.
    fn load(db: &Database, target: &Target) {
        let mut load = target.engine.load().unwrap();
        load.push(b"loaded", b"v").unwrap();
        load.finish().unwrap();
        db.inner.committer().commit_load(target, &mut *load).unwrap();
    }

    fn keys(range: Range) -> Vec<String> {
        let key = |(key, _): (Slice, Slice)| String::from_utf8(key.to_vec()).unwrap();
        range.map(|item| key(item.unwrap())).collect()
    }

    #[test]
    fn recovery_puts_loads_back_in_their_place() {
        for (options, extension) in loaded_engines() {
            check_recovery_of_loads(options, extension);
        }
    }

    fn check_recovery_of_loads(options: KeyspaceOptions, extension: &str) {
        let fs = MemoryFs::new();
        let db = Database::builder("/db").file_system(Arc::new(fs.clone())).open().unwrap();
        let (keyspace, guard) = with_pending_load(&db, options);
        keyspace.put("behind", "v").unwrap();
        db.inner.committer().write_out().unwrap();
        let killed = fs.fork();
        let name = &format!("/db/keyspaces/1/000001.{extension}");
        let foreign = &format!("000007.{extension}");
        let is_there = |fs: &MemoryFs| fs.kind(name.as_ref()).unwrap().is_some();
        assert!(is_there(&killed));
        killed.write_file(&Path::new("/db/keyspaces/1").join(foreign), b"begun").unwrap();
        let expected = ["before", "behind", "loaded"];
        for read_only in [true, false] {
            let builder = Database::builder("/db").file_system(Arc::new(killed.fork()));
            let replayed = builder.read_only(read_only).open().unwrap();
            assert_eq!((replayed.recovery().replayed_batches, replayed.stats().last_seqno), (3, 3));
            let found = replayed.open_keyspace("main").unwrap();
            assert_eq!(keys(found.iter()), expected);
            if !read_only {
                let names = replayed.inner.shared.fs.list("/db/keyspaces/1".as_ref()).unwrap();
                assert!(!names.contains(foreign), "nobody needed it");
                found.persist().unwrap();
                assert_eq!(found.target().engine.persisted(), 3);
                assert_eq!(keys(found.iter()), expected);
            }
        }
        // What the log has must be there, and be what it says.
        for (damaged, what) in [(killed.fork(), "missing"), (killed.fork(), "bytes long")] {
            match what {
                "missing" => damaged.remove(name.as_ref()).unwrap(),
                _ => damaged.write_file(name.as_ref(), b"short").unwrap(),
            }
            let builder = Database::builder("/db").file_system(Arc::new(damaged));
            let error = builder.open().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
        // When it has been persisted, the log is passed over.
        drop(guard);
        keyspace.persist().unwrap();
        let persisted = open(&fs);
        assert_eq!((persisted.recovery().replayed_batches, persisted.stats().last_seqno), (0, 3));
        assert_eq!(keys(persisted.open_keyspace("main").unwrap().iter()), expected);
    }

    #[test]
    fn persisting_takes_in_loads_that_are_pending() {
        for (options, _) in loaded_engines() {
            for writes in [false, true] {
                check_persisting_of_loads(options.clone(), writes, false);
                check_persisting_of_loads(options.clone(), writes, true);
            }
        }
    }

    fn check_persisting_of_loads(options: KeyspaceOptions, writes: bool, holds: bool) {
        let fs = MemoryFs::traced();
        let db = Database::builder("/db").file_system(Arc::new(fs.clone())).open().unwrap();
        let flushes = options.engine == EngineKind::Lsm;
        let keyspace = db.keyspace("main", options).unwrap();
        keyspace.put("first", "v").unwrap();
        keyspace.persist().unwrap();
        let mut guard = Some(block_flushes(&db));
        let mut expected = vec!["first", "loaded"];
        if writes {
            keyspace.put("before", "v").unwrap();
            expected.insert(0, "before");
        }
        let snapshot = holds.then(|| db.snapshot());
        load(&db, keyspace.target());
        // A skip keyspace does not wait for its flushes.
        guard.take_if(|_| flushes);
        keyspace.persist().unwrap();
        assert_eq!(keyspace.target().engine.persisted(), db.stats().last_seqno);
        assert_eq!(keys(keyspace.iter()), expected);
        if let Some(snapshot) = snapshot {
            expected.pop();
            assert_eq!(keys(snapshot.iter(&keyspace)), expected);
            expected.push("loaded");
        }
        let image = fs.image(fs.operations(), PowerCut::DropUnsynced);
        assert_eq!(keys(open(&image).open_keyspace("main").unwrap().iter()), expected);
    }

    #[test]
    fn a_load_of_an_engine_that_takes_none_cannot_be() {
        let fs = MemoryFs::new();
        let db = Database::builder("/db").file_system(Arc::new(fs.clone())).open().unwrap();
        let (keyspace, _guard) = with_pending_load(&db, KeyspaceOptions::skip());
        let other = db.keyspace("other", KeyspaceOptions::hash()).unwrap();
        let id = other.target().id;
        let wrong = Target::new(id, true, Arc::clone(&keyspace.target().engine));
        load(&db, &wrong);
        db.inner.committer().write_out().unwrap();
        let fork = Arc::new(fs.fork());
        let error = Database::builder("/db").file_system(fork).open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }

    #[test]
    fn a_load_of_a_keyspace_that_is_not_there_cannot_be() {
        let fs = Arc::new(MemoryFs::new());
        let db = Database::builder("/db").file_system(Arc::<MemoryFs>::clone(&fs)).open().unwrap();
        let (keyspace, _guard) = with_pending_load(&db, KeyspaceOptions::skip());
        let unknown = Target::new(9, true, Arc::clone(&keyspace.target().engine));
        load(&db, &unknown);
        db.inner.committer().write_out().unwrap();
        let fork = Arc::new(fs.fork());
        let error = Database::builder("/db").file_system(fork).open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }

    #[test]
    fn other_engines_are_not_loaded() {
        let fs = MemoryFs::new();
        let db = open(&fs);
        for options in [KeyspaceOptions::hash(), KeyspaceOptions::btree()] {
            let keyspace = db.keyspace(&options.engine.to_string(), options).unwrap();
            let error = keyspace.load_sorted([("key", "value")]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    }

    const ENGINES: [EngineKind; 4] =
        [EngineKind::Lsm, EngineKind::Hash, EngineKind::Btree, EngineKind::Skip];

    fn options(engine: EngineKind) -> KeyspaceOptions {
        match engine {
            EngineKind::Lsm => KeyspaceOptions::lsm(),
            EngineKind::Hash => KeyspaceOptions::hash(),
            EngineKind::Btree => KeyspaceOptions::btree(),
            EngineKind::Skip => KeyspaceOptions::skip(),
        }
    }

    /// Fails if `work` is not done soon.
    fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || done.send(work()));
        is_done.recv_timeout(Duration::from_secs(120)).expect("it hangs")
    }

    /// A commit that fails in the middle has numbers that are never published. Whoever had looked before whether the database is
    /// poisoned cuts behind them.
    #[test]
    fn nobody_waits_for_writes_that_failed() {
        for (engine, logged) in ENGINES.into_iter().flat_map(|of| [(of, true), (of, false)]) {
            let faults = FaultFs::new(Arc::new(MemoryFs::new()));
            let builder = Database::builder("/db").log_layer(Layer::Positional);
            let db = builder.file_system(Arc::new(faults.clone())).open().unwrap();
            let keyspace = db.keyspace("main", options(engine).log(logged)).unwrap();
            let other = db.keyspace("other", KeyspaceOptions::lsm()).unwrap();
            keyspace.put("there", "v").unwrap();
            db.flush_log().unwrap();
            let fault = Fault::new(Operation::Write, Effect::Fail(Errno::Raw(5)));
            faults.arm(Fault { name_contains: ".log".into(), ..fault });
            let mut batch = db.batch();
            batch.put(&keyspace, "lost", "v");
            batch.put(&other, "lost", "v");
            assert_eq!(
                batch.durability(Durability::Os).commit().unwrap_err().kind(),
                ErrorKind::Io
            );
            let (inner, open) = (Arc::clone(&db.inner), keyspace.clone());
            let synchronized = in_time(move || {
                let target = open.target();
                target.engine.synchronize(&|| inner.cut(target))
            });
            assert_eq!(synchronized.unwrap_err().kind(), ErrorKind::Poisoned, "{engine}");
            let inner = Arc::clone(&db.inner);
            let persisted = in_time(move || inner.persist_unlogged()).map_err(|error| error.kind());
            assert_eq!(persisted.is_err(), !logged, "{engine}");
            let closed = in_time(move || db.close());
            assert_eq!(closed.unwrap_err().kind(), ErrorKind::Poisoned, "{engine}");
        }
    }

    /// Appends a record to the log that nobody checked, and hands it to the kernel. Its writes are nowhere else.
    fn forge(db: &Database, count: u64, body: &[u8]) {
        let mut pen = db.inner.committer().pen().unwrap();
        let first = pen.last() + 1;
        let log = pen.log().unwrap();
        log.append(first, count, &[body]).unwrap();
        log.write_out().unwrap();
        // What closes the database waits for the last number of the log.
        db.inner.visibility().publish(first + count - 1);
    }

    /// Checksums are no secret: with the right ones, too, the log must not have what nobody could write.
    #[test]
    fn a_log_with_keys_that_are_too_long_is_refused_and_left_as_it_is() {
        for (engine, len) in ENGINES
            .into_iter()
            .flat_map(|of| [MAX_KEY_LEN, MAX_KEY_LEN + 1, 1_200_000].map(|len| (of, len)))
        {
            let fs = MemoryFs::new();
            let db = Database::builder("/db").file_system(Arc::new(fs.clone())).open().unwrap();
            let keyspace = db.keyspace("main", options(engine)).unwrap();
            keyspace.put("there", "v").unwrap();
            let mut writes = EncodedWrites::default();
            writes.push(keyspace.target(), Kind::Put, &vec![b'k'; len], b"value");
            forge(&db, 1, &writes.logged);
            let killed = fs.fork();
            let before = killed.files();
            let again = Database::builder("/db").file_system(Arc::new(killed.clone())).open();
            if len <= MAX_KEY_LEN {
                let found = again.unwrap().open_keyspace("main").unwrap();
                assert_eq!(found.count().unwrap(), 2, "{engine}");
                continue;
            }
            assert_eq!(again.unwrap_err().kind(), ErrorKind::Corruption, "{engine} {len}");
            assert!(killed.files() == before, "{engine} {len}");
        }
    }

    /// A new file of the catalog is due from time to time.
    #[test]
    fn a_catalog_that_cannot_be_written_anew_poisons_nothing() {
        let fs = MemoryFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let db = Database::builder("/db").file_system(Arc::new(faults.clone())).open().unwrap();
        let choose = |round: u32| {
            db.keyspace("main", KeyspaceOptions::lsm().data_block_size(4096 << (round % 2)))
        };
        let keyspace = choose(0).unwrap();
        let fault = Fault::new(Operation::Create, Effect::Fail(Errno::Raw(24)));
        faults.arm(Fault { name_contains: "catalog".into(), ..fault });
        let refused = (1..10_000).find_map(|round| choose(round).err()).expect("one is due");
        assert_eq!(refused.kind(), ErrorKind::Io, "{refused}");
        (0..2).for_each(|round| _ = choose(round).unwrap());
        keyspace.put("key", "value").unwrap();
        db.flush_log().unwrap();
        assert_eq!(open(&fs).open_keyspace("main").unwrap().count().unwrap(), 1);
    }

    #[test]
    fn that_too_many_files_are_open_is_no_damage() {
        let fs = MemoryFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let db = Database::builder("/db").file_system(Arc::new(faults.clone())).open().unwrap();
        let keyspace = db.keyspace("main", KeyspaceOptions::lsm()).unwrap();
        keyspace.put("key", "v").unwrap();
        for name in ["catalog", ".log", "manifest"] {
            for errno in [23, 24] {
                let fault = Fault::new(Operation::Open, Effect::Fail(Errno::Raw(errno)));
                faults.arm(Fault { name_contains: name.into(), ..fault });
                assert_eq!(db.verify().unwrap_err().kind(), ErrorKind::Io, "{name}");
            }
            // What cannot be read is a problem that the data have.
            let fault = Fault::new(Operation::Read, Effect::Fail(Errno::Raw(5)));
            faults.arm(Fault { name_contains: name.into(), ..fault });
            assert_eq!(db.verify().unwrap().problems.len(), 1, "{name}");
        }
        assert!(db.verify().unwrap().problems.is_empty());
    }

    #[test]
    fn an_opening_that_gets_no_threads_changes_nothing() {
        for engine in ENGINES {
            let fs = MemoryFs::new();
            let db = Database::builder("/db").file_system(Arc::new(fs.clone())).open().unwrap();
            let keyspace = db.keyspace("main", options(engine)).unwrap();
            for key in 0..8_u8 {
                keyspace.put([key], vec![key; 64 << 10]).unwrap();
            }
            keyspace.persist().unwrap();
            db.inner.release_log().unwrap();
            let noted = db.inner.catalog().state.keyspaces[&keyspace.target().id].persisted;
            assert!(noted >= 8, "{noted}");
            keyspace.put("behind", "v").unwrap();
            db.flush_log().unwrap();
            let killed = fs.fork();
            for _ in 0..3 {
                let builder = Database::builder("/db").file_system(Arc::new(killed.clone()));
                let refused = without_threads(|| builder.open()).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Io, "{refused}");
            }
            let again = open(&killed);
            assert_eq!(again.open_keyspace("main").unwrap().count().unwrap(), 9, "{engine}");
        }
    }

    /// An open file too many, or whatever else keeps a new segment from being made, changes nothing of the log.
    #[test]
    fn writing_goes_on_after_a_segment_could_not_be_made() {
        let fs = MemoryFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let db = Database::builder("/db").file_system(Arc::new(faults.clone())).open().unwrap();
        let keyspace = db.keyspace("main", KeyspaceOptions::lsm()).unwrap();
        let (mut written, mut refused) = (0, 0);
        let too_many = Errno::Raw(24);
        for (operation, name, effect) in [
            (Operation::Create, ".log", Effect::Fail(too_many)),
            (Operation::Open, ".log", Effect::Fail(too_many)),
            (Operation::Rename, ".log", Effect::Fail(too_many)),
            (Operation::Rename, ".log", Effect::FailDone(Errno::Raw(5))),
            (Operation::Allocate, ".log", Effect::Fail(too_many)),
            (Operation::SyncDir, "log", Effect::Fail(too_many)),
        ] {
            // Those that were prepared are used up; then there is none to be had.
            let fault = Fault::new(operation, effect);
            faults.arm(Fault { name_contains: name.into(), times: Times::Always, ..fault });
            for key in 0..40_u32 {
                let (bytes, value) = (key.to_be_bytes(), vec![operation as u8; 200_000]);
                match keyspace.put_with(bytes, &value, Durability::Sync) {
                    Ok(()) => written = written.max(key + 1),
                    Err(Error::Io { .. }) => {
                        refused += 1;
                        let found = keyspace.get(bytes).unwrap();
                        assert!(found.is_none_or(|found| *found != value[..]), "{operation}");
                    }
                    Err(error) => panic!("{operation}: {error}"),
                }
            }
            faults.disarm();
            keyspace.put("after", "v").unwrap();
            keyspace.persist().unwrap();
            db.inner.release_log().unwrap();
        }
        assert!(written > 0 && refused > 0, "{written} {refused}");
        db.flush_log().unwrap();
        let again = open(&fs);
        let keys = again.open_keyspace("main").unwrap().count().unwrap();
        assert_eq!(keys, u64::from(written) + 1);
    }
}
