//! Opening a database, once for all engines:
//!
//! 1. See what is at the path; refuse what is not a database of ours. Nothing has been changed so far.
//! 2. Take the lock. Create the catalog if the database is new.
//! 3. Read the catalog, and check the whole log.
//! 4. Open each engine where it has persisted. So far nothing has been changed, and only what has been found
//!    whole is changed from here on.
//! 5. Sync the log, or look at its end again, then replay from it what engines have not persisted.
//! 6. Go on with the log where it ended; if it ended in a torn tail, in a new segment that names the end, so
//!    that the tail can never be taken for more than it is.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::{Seqno, Visibility};
use crate::budget::{Budget, PageMemory};
use crate::builder::DatabaseOptions;
use crate::cache::{BlockCache, OpenFiles};
use crate::catalog::{self, Catalog};
use crate::commit::{Committer, Logged, Target, take_logged};
use crate::contract::{Background, Context, Host};
use crate::engine;
use crate::error::{Error, Result};
use crate::events::{Events, Observer};
use crate::housekeeper::Bell;
use crate::log::{LOG_VERSION, Log, ReadSegment, Recovered, Segment, Segments, Writer, Writes};
use crate::memtable::LARGEST_BATCH;
use crate::options::{KeyspaceOptions, RecoveryMode};
use crate::planted::{Bug, planted};
use crate::reducer::Reducers;
use crate::stats::RecoveryReport;
use crate::sync::{Mutex, MutexGuard};
use crate::throttle::Throttle;
use crate::vfs::{
    Access, BatchReader, Fs, Layer, LayeredFs, LockGuard, PROBE, PageCacheStats, PathKind,
    remove_leftover, remove_remade,
};
use crate::workers::Workers;

const LOCK: &str = "lock";
const LOG: &str = "log";
const KEYSPACES: &str = "keyspaces";

/// What the engines of a database share.
pub(crate) struct Shared {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) path: PathBuf,
    pub(crate) database: u64,
    pub(crate) budget: Arc<Budget>,
    pub(crate) log_files: Files,
    /// Those of keyspaces that are being opened, by id.
    files: Mutex<BTreeMap<u32, Files>>,
    pub(crate) blocks: Arc<BlockCache>,
    pub(crate) open_files: Arc<OpenFiles>,
    pub(crate) reader: Arc<BatchReader>,
    pub(crate) visibility: Arc<Visibility>,
    pub(crate) background: Arc<Background>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) reducers: Reducers,
    pub(crate) events: Arc<Events>,
    pub(crate) read_only: bool,
    /// There until the database is closed, and then as long as somebody reads what is lent from its files.
    lock: Weak<LockGuard>,
}

/// How the files of a keyspace, or those of the log, are reached: they share a page cache.
pub(crate) struct Files {
    fs: Arc<LayeredFs>,
    memory: Mutex<PageMemory>,
}

impl Files {
    /// Files on `fs` that are to be reached through `layer`.
    fn new(fs: &Arc<dyn Fs>, budget: &Arc<Budget>, layer: Layer) -> Result<Self> {
        layer.check()?;
        let memory = Mutex::new(PageMemory::new(budget, layer.page_cache_bytes())?);
        Ok(Self { fs: Arc::new(LayeredFs::new(Arc::clone(fs))), memory })
    }

    /// Takes the memory of `layer` in place of that of the layer before, whose bytes are given.
    pub(crate) fn reserve(&self, layer: Layer) -> Result<usize> {
        self.resize(layer.page_cache_bytes())
    }

    /// Lets go of a page cache that is not one for `layer`.
    pub(crate) fn keep_only(&self, layer: Layer) {
        self.fs.keep_only(layer);
    }

    /// What their page cache has done.
    pub(crate) fn page_cache_stats(&self) -> PageCacheStats {
        self.fs.page_cache_stats()
    }

    /// What they hold back is not written any more: see [`LayeredFs::revoke`].
    pub(crate) fn revoke(&self) {
        self.fs.revoke();
    }

    /// Takes `bytes` of memory; gives what was taken before.
    pub(crate) fn resize(&self, bytes: usize) -> Result<usize> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let before = memory.bytes();
        memory.resize(bytes).map(|()| before)
    }
}

/// An error if files in `dir` cannot be reached through `layer`: found out with a file that is gone afterwards.
/// A full disk does not tell.
pub(crate) fn probe(fs: &Arc<dyn Fs>, dir: &Path, layer: Layer) -> Result<()> {
    let (Layer::Direct { block_size } | Layer::DirectCache { block_size, .. }) = layer else {
        return Ok(());
    };
    let (path, direct) = (dir.join(PROBE), Layer::Direct { block_size });
    let fs = LayeredFs::new(Arc::clone(fs));
    // One that a crash left behind will do.
    let file = match fs.kind(&path)? {
        Some(_) => fs.open(&path, Access::Write, direct),
        None => fs.create(&path, direct),
    };
    let is_there = file.is_ok();
    let probed = file.and_then(|file| file.write_at(0, &vec![0; block_size as usize]));
    if is_there {
        fs.remove(&path)?;
    }
    match probed {
        Err(Error::NoSpace { .. }) => Ok(()),
        probed => probed,
    }
}

/// What the engines see of the database around them.
struct EngineHost {
    keyspace: u32,
    committer: Arc<Committer>,
    bell: Arc<Bell>,
}

impl Host for EngineHost {
    fn sync_log(&self, seqno: Seqno) -> Result<()> {
        if planted(Bug::FlushAheadOfLog) {
            return Ok(());
        }
        self.committer.sync(seqno)
    }

    fn persisted(&self) {
        self.bell.release_log();
    }

    fn trouble(&self, trouble: Option<Error>) {
        self.bell.set_trouble(self.keyspace, trouble);
    }

    fn poison(&self, error: &Error) {
        self.committer.poison(error);
    }

    fn check_poison(&self) -> Result<()> {
        self.committer.check_poison()
    }
}

impl Shared {
    fn new(
        options: &DatabaseOptions,
        database: u64,
        budget: Arc<Budget>,
        log_files: Files,
        lock: &Arc<LockGuard>,
    ) -> Result<Self> {
        let blocks = Arc::new(BlockCache::new(0));
        let open_files = OpenFiles::new(Arc::clone(&budget), Arc::clone(&blocks))
            .bounded(options.open_files, options.block_cache.unwrap_or(usize::MAX));
        open_files.rebalance();
        let visibility = Arc::<Visibility>::default();
        let committer = Arc::new(Committer::new(Arc::clone(&visibility), Arc::clone(&budget)));
        let workers = |name, threads| {
            let committer = Arc::clone(&committer);
            // Who only reads has nothing done in the background.
            let threads = if options.read_only { 0 } else { threads };
            Workers::start(name, threads, move |panic| {
                log::error!("a background thread panicked: {panic}");
                let cause = format!("a background thread panicked: {panic}").into();
                committer.poison(&Error::Poisoned { cause });
            })
        };
        let background = Background {
            flush: workers("turbidite-flush", 1)?,
            compaction: workers("turbidite-compact", options.background_threads)?,
            compaction_threads: options.background_threads,
            compaction_lock: options.compaction_lock,
            throttle: Arc::new(Throttle::new(options.background_rate)),
        };
        Ok(Self {
            fs: Arc::clone(&options.fs),
            path: options.path.clone(),
            database,
            open_files: Arc::new(open_files),
            blocks,
            reader: Arc::new(BatchReader::new(BatchReader::DEPTH)),
            budget,
            log_files,
            files: Mutex::default(),
            visibility,
            background: Arc::new(background),
            committer,
            bell: Arc::new(Bell::new(options.log_flush_interval)),
            reducers: options.reducers.clone(),
            events: Arc::new(Events::new(options.listeners.clone())),
            read_only: options.read_only,
            lock: Arc::downgrade(lock),
        })
    }

    /// What the engine of keyspace `id` is given.
    pub(crate) fn context(
        &self,
        (id, name): (u32, &str),
        options: &KeyspaceOptions,
    ) -> Result<Context> {
        let layer = options.layer.unwrap_or_default();
        let committer = Arc::clone(&self.committer);
        let files = Files::new(&self.fs, &self.budget, layer)?;
        let fs: Arc<LayeredFs> = Arc::clone(&files.fs);
        self.lock_files().insert(id, files);
        self.open_files.rebalance();
        Ok(Context {
            fs,
            dir: self.path.join(KEYSPACES).join(id.to_string()),
            layer,
            identity: crate::base::hash::file_identity(self.database, u64::from(id)),
            budget: Arc::clone(&self.budget),
            blocks: Arc::clone(&self.blocks),
            open_files: Arc::clone(&self.open_files),
            reader: Arc::clone(&self.reader),
            visibility: Arc::clone(&self.visibility),
            background: Arc::clone(&self.background),
            host: Arc::new(EngineHost { keyspace: id, committer, bell: Arc::clone(&self.bell) }),
            observer: Observer::new(name, &self.events),
            read_only: self.read_only,
            logged: options.logged,
            reducers: self.reducers.clone(),
            lock: Weak::clone(&self.lock),
        })
    }

    /// How the files of keyspace `id` are reached, for which [`context`](Self::context) was made: to be kept for as
    /// long as it is open.
    pub(crate) fn take_files(&self, id: u32) -> Files {
        self.lock_files().remove(&id).expect("they were made with the engine's context")
    }

    /// Lets go of what [`context`](Self::context) made, if it did, for a keyspace that could not be.
    pub(crate) fn forget(&self, id: u32) {
        self.lock_files().remove(&id);
        self.open_files.rebalance();
    }

    fn lock_files(&self) -> MutexGuard<'_, BTreeMap<u32, Files>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All directories of a database with these keyspaces.
    fn dirs(&self, ids: impl Iterator<Item = u32>) -> Vec<PathBuf> {
        let keyspaces = self.path.join(KEYSPACES);
        let of_keyspaces = ids.map(|id| keyspaces.join(id.to_string()));
        let mut dirs: Vec<_> = of_keyspaces.collect();
        dirs.extend([keyspaces, self.path.join(LOG), self.path.clone()]);
        dirs
    }

    /// Makes the directory of keyspace `id` durable in the one above it.
    pub(crate) fn sync_keyspaces(&self) -> Result<()> {
        if planted(Bug::SkipKeyspaceNamesSync) {
            return Ok(());
        }
        let keyspaces = self.path.join(KEYSPACES);
        self.fs.sync_dir(&keyspaces)?;
        self.fs.sync_dir(&self.path)
    }
}

/// A database that has been recovered.
pub(crate) struct Opened {
    pub(crate) shared: Shared,
    pub(crate) catalog: Catalog,
    /// The engine of each keyspace, by its name.
    pub(crate) targets: Vec<(String, Target)>,
    /// `None` when open for reading only.
    pub(crate) log: Option<(Arc<Segments>, Writer)>,
    pub(crate) last: Seqno,
    pub(crate) report: RecoveryReport,
    pub(crate) lock: Arc<LockGuard>,
}

/// Opens the database that `options` name.
pub(crate) fn open(options: &DatabaseOptions) -> Result<Opened> {
    let (fs, path) = (&options.fs, &options.path);
    let budget = Arc::new(Budget::new(options.memory_budget));
    // Without a writer the log is read by positional calls.
    let log_layer = if options.read_only { Layer::Positional } else { options.log_layer };
    let log_files = Files::new(fs, &budget, log_layer)?;
    let is_new = !is_database(options)?;
    if is_new {
        create_path(options)?;
    }
    let access = if options.read_only { Access::Read } else { Access::Write };
    let lock: Arc<LockGuard> = Arc::new(match planted(Bug::SkipLock) {
        true => Box::new(()),
        false => fs.lock(&path.join(LOCK), access)?,
    });
    if !is_new && !options.read_only {
        probe(fs, path, log_layer)?;
    }
    if is_new && Catalog::read(&**fs, path)?.is_none() {
        Catalog::create(Arc::clone(fs), path, Rng::entropy(), NO_LOG)?;
    }
    let found =
        Catalog::read(&**fs, path)?.ok_or_else(|| not_a_database(path, "its catalog is gone"))?;
    let shared = Shared::new(options, found.database(), budget, log_files, &lock)?;
    let log = match found.state.floor {
        NO_LOG => {
            check_unborn(&**fs, path, &found)?;
            None
        }
        floor => {
            let dir = path.join(LOG);
            let keyspaces = &found.state.keyspaces;
            let possible = |writes: &Writes<'_>| are_possible(writes, keyspaces);
            Some(Log::open(&**fs, &dir, shared.database, floor, options.recovery, possible)?)
        }
    };
    let targets = open_engines(&shared, &found.state)?;
    let logged = log.as_ref().map_or(0, |log| log.found().last);
    let needed = last_logged(&targets);
    if log.is_some()
        && let Some((name, target)) = targets.iter().find(|(_, target)| is_torn(target, logged))
    {
        let (persisted, reach) = (target.engine.persisted(), target.engine.reach());
        let what = format!(
            "the log ends with write number {logged}, but keyspace {name:?}, which has all up to number {persisted}, has \
             some of the writes up to number {reach}: without the rest of them it is no state that there ever was, and no \
             recovery goes on from it"
        );
        return Err(Error::corruption(&path.join(LOG), 0, what));
    }
    if log.is_some() && logged < needed && options.recovery == RecoveryMode::Strict {
        let what = format!(
            "the log ends with write number {logged}, but a keyspace has persisted up to number {needed}: a \
             part of the log is missing; tolerant recovery goes on without it"
        );
        return Err(Error::corruption(&path.join(LOG), 0, what));
    }
    let persisted = targets.iter().map(|(_, target)| target.engine.persisted()).max();
    if logged.max(needed).max(persisted.unwrap_or(0)) > MOST_WRITES {
        let what = "the last write has a number that not enough others can follow";
        return Err(Error::corruption(path, 0, what));
    }
    let largest = log.as_ref().map_or(0, |log| log.found().largest_number);
    if !options.read_only && largest >= MOST_SEGMENTS {
        let what = "a log segment has a number that none can follow";
        return Err(Error::corruption(&path.join(LOG), 0, what));
    }
    match recover(options, &shared, &targets, found, log) {
        Ok(Ready { catalog, log, last, report }) => {
            Ok(Opened { shared, catalog, targets, log, last, report, lock })
        }
        Err(error) => {
            // What replaying has set going must not outlive the lock.
            targets.iter().for_each(|(_, target)| target.engine.stop());
            shared.background.flush.stop();
            shared.background.compaction.stop();
            Err(error)
        }
    }
}

/// What steps 5 and 6 give.
struct Ready {
    catalog: Catalog,
    log: Option<(Arc<Segments>, Writer)>,
    last: Seqno,
    report: RecoveryReport,
}

/// Steps 5 and 6: from here on things are changed, unless the database is opened for reading only.
fn recover(
    options: &DatabaseOptions,
    shared: &Shared,
    targets: &[(String, Target)],
    found: catalog::Found,
    log: Option<Log>,
) -> Result<Ready> {
    let mut catalog = if options.read_only {
        found.read_only()
    } else {
        // Left behind by a crash.
        let dirs = shared.dirs(targets.iter().map(|(_, target)| target.id));
        dirs.into_iter().try_for_each(|dir| remove_leftover(&*shared.fs, &dir.join(PROBE)))?;
        let catalog = found.open(Arc::clone(&shared.fs), &shared.path)?;
        targets.iter().try_for_each(|(_, target)| target.engine.make_writable())?;
        catalog
    };
    let report = replay(shared, targets, log.as_ref())?;
    if !options.read_only {
        targets.iter().try_for_each(|(_, target)| target.engine.end_replay())?;
    }
    let logged = log.as_ref().map_or(0, |log| log.found().last).max(last_logged(targets));
    let persisted = targets.iter().map(|(_, target)| target.engine.persisted()).max();
    let last = logged.max(persisted.unwrap_or(0));
    let log = match options.read_only {
        true => None,
        false => Some(continue_log(options, shared, &mut catalog, log, logged)?),
    };
    Ok(Ready { catalog, log, last, report })
}

/// No database will ever have had so many writes: what follows them has a number, too.
const MOST_WRITES: Seqno = 1 << 55;
/// No log will ever have had so many segments.
const MOST_SEGMENTS: u64 = 1 << 56;
/// The floor of a database whose log has not been made yet.
const NO_LOG: u64 = 0;

/// An error if a database whose catalog says that it has never been used has been.
fn check_unborn(fs: &dyn Fs, path: &Path, found: &catalog::Found) -> Result<()> {
    let dir = path.join(LOG);
    let is_used = !found.state.keyspaces.is_empty()
        || fs.kind(&path.join(KEYSPACES))?.is_some()
        || (fs.kind(&dir)?.is_some() && Log::has_writes(fs, &dir, found.database())?);
    match is_used {
        true => Err(Error::corruption(path, 0, "its catalog is older than the rest of it")),
        false => Ok(()),
    }
}

/// A file of a database.
pub(crate) struct DatabaseFile {
    pub(crate) len: u64,
    pub(crate) is_log: bool,
}

/// The files of the database at `path`. Files that come or go meanwhile may be missing.
pub(crate) fn files(fs: &dyn Fs, path: &Path) -> Vec<DatabaseFile> {
    let mut files = Vec::new();
    let mut add = |dir: &Path, is_log: bool| {
        for name in fs.list(dir).unwrap_or_default() {
            if let Ok(Some(PathKind::File { len })) = fs.kind(&dir.join(name)) {
                files.push(DatabaseFile { len, is_log });
            }
        }
    };
    add(path, false);
    add(&path.join(LOG), true);
    let keyspaces = path.join(KEYSPACES);
    fs.list(&keyspaces).unwrap_or_default().iter().for_each(|id| add(&keyspaces.join(id), false));
    files
}

/// An error unless the path that `options` name holds a database.
pub(crate) fn check_is_database(options: &DatabaseOptions) -> Result<()> {
    is_database(&DatabaseOptions { create: false, ..options.clone() }).map(drop)
}

/// Step 1: whether the path holds a database; an error if it holds anything else, or nothing and none may
/// be created.
fn is_database(options: &DatabaseOptions) -> Result<bool> {
    let (fs, path) = (&options.fs, &options.path);
    let may_create = options.create && !options.read_only;
    match fs.kind(path)? {
        Some(PathKind::File { .. }) => Err(not_a_database(path, "it is a file, not a directory")),
        None if may_create => Ok(false),
        None => Err(not_a_database(path, "there is nothing at this path")),
        Some(PathKind::Directory) => {
            let names = fs.list(path)?;
            if names.iter().any(|name| Catalog::is_file(name) && !name.ends_with(".tmp")) {
                return Ok(true);
            }
            // An interrupted creation leaves no more than these.
            let is_ours = |name: &str| [LOCK, PROBE].contains(&name) || Catalog::is_file(name);
            let foreign = names.iter().find(|name| !is_ours(name));
            match foreign {
                Some(name) => {
                    Err(not_a_database(path, &format!("it has no catalog, but holds {name:?}")))
                }
                None if may_create => Ok(false),
                None => Err(not_a_database(path, "the directory is empty")),
            }
        }
    }
}

fn not_a_database(path: &Path, what: &str) -> Error {
    Error::NotADatabase { path: path.to_path_buf(), what: what.to_owned() }
}

/// Makes the database's directory and those above it, safe from power loss. All of them are synced: an earlier
/// creation may have been interrupted. If the log's files could not be reached there as they shall be, it is not made; nor if a
/// sync fails, which another one behind it need not make good.
fn create_path(options: &DatabaseOptions) -> Result<()> {
    let (fs, path) = (&*options.fs, &options.path);
    // Those that are made here. What lies behind `..` may be there, and seem not to be as long as what is before that is not.
    let mut missing = Vec::new();
    let is_plain = !path.components().any(|part| part == Component::ParentDir);
    for dir in path.ancestors().filter(|dir| is_plain && !dir.as_os_str().is_empty()) {
        if fs.kind(dir)?.is_some() {
            break;
        }
        missing.push(dir);
    }
    // Who creates the same database at this moment probes it, too, and the lock is for one of us.
    let is_contested = |error: &Error| {
        let among = [io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists];
        matches!(error, Error::Io { source, .. } if among.contains(&source.kind()))
    };
    let make = || {
        fs.create_dir(path)?;
        let probed = probe(&options.fs, path, options.log_layer);
        probed.or_else(|error| if is_contested(&error) { Ok(()) } else { Err(error) })?;
        path.ancestors().skip(1).try_for_each(|dir| match sync_dir(fs, dir) {
            Err(Error::Io { source, .. }) if is_anothers(source.kind()) => Ok(()),
            result => result,
        })
    };
    make().inspect_err(|_| {
        let there = missing.iter().skip_while(|dir| matches!(fs.kind(dir), Ok(None)));
        if let Err(left) = there.into_iter().try_for_each(|dir| fs.remove_dir(dir)) {
            log::warn!("a directory that was made for the database stays behind: {left}");
        }
    })
}

/// Whether a directory that cannot be synced for this reason is none that was made here: it may not be opened, or its file system
/// has no such call, as that of an image that is only read or of an automounter. If that of the database has none either, it is
/// not forgiven there.
fn is_anothers(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(kind, PermissionDenied | InvalidInput | Unsupported)
}

/// Syncs a directory; the parent of a plain name is the current one.
fn sync_dir(fs: &dyn Fs, dir: &Path) -> Result<()> {
    fs.sync_dir(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })
}

/// Whether the writes of a log record can be decoded, are meant for keyspaces that exist, and are no more than one commit
/// may have: engines take what is replayed as they take what was checked when it was written.
fn are_possible(writes: &Writes<'_>, keyspaces: &BTreeMap<u32, catalog::Entry>) -> bool {
    let mut body = writes.body;
    let mut weight = 0;
    let are_all = (0..writes.count).all(|_| {
        let Some(entry) = take_logged(&mut body) else { return false };
        let has_room = match entry {
            Logged::Write(write) => {
                weight += write.change.weight();
                weight <= LARGEST_BATCH
            }
            Logged::Load { .. } | Logged::Clear { .. } => writes.count == 1,
        };
        has_room && keyspaces.contains_key(&entry.keyspace())
    });
    are_all && body.is_empty()
}

/// Step 4.
fn open_engines(shared: &Shared, catalog: &catalog::State) -> Result<Vec<(String, Target)>> {
    let mut targets = Vec::new();
    for (&id, entry) in &catalog.keyspaces {
        let named = |error| match error {
            Error::Invalid(what) => Error::Invalid(format!("keyspace {:?}: {what}", entry.name)),
            error => error,
        };
        let context = shared.context((id, &entry.name), &entry.options).map_err(named)?;
        let dir = context.dir.clone();
        let engine = engine::open(&entry.options, context).map_err(named)?;
        let persisted = engine.persisted();
        if persisted < entry.persisted {
            let what = format!(
                "keyspace {:?} has persisted writes up to number {persisted}, but the log was let go up to \
                 number {}: its files are older than the rest of the database",
                entry.name, entry.persisted
            );
            return Err(Error::corruption(&dir, 0, what));
        }
        targets.push((entry.name.clone(), Target::new(id, entry.options.logged, engine)));
    }
    shared.budget.opened();
    Ok(targets)
}

/// The last write to a logged keyspace that an engine has in its files. The log was synced further before.
fn last_logged(targets: &[(String, Target)]) -> Seqno {
    let logged = targets.iter().filter(|(_, target)| target.logged);
    logged.map(|(_, target)| target.engine.reach()).max().unwrap_or(0)
}

/// Whether a keyspace has some of the writes behind the end of the log, which is `logged`, and not all of them.
fn is_torn(target: &Target, logged: Seqno) -> bool {
    let reach = target.engine.reach();
    target.logged && target.engine.persisted() < reach && logged < reach
}

/// Step 5.
fn replay(
    shared: &Shared,
    targets: &[(String, Target)],
    log: Option<&Log>,
) -> Result<RecoveryReport> {
    let Some(log) = log else { return Ok(RecoveryReport::default()) };
    let dir = shared.path.join(LOG);
    match shared.read_only {
        true => log.look_again(&*shared.fs, &dir)?,
        false => log.sync(&*shared.fs, &dir)?,
    }
    let mut report =
        RecoveryReport { dropped_bytes: log.found().dropped_bytes, ..RecoveryReport::default() };
    // There may be thousands of keyspaces, and millions of records.
    let by_id: HashMap<u32, &Target> =
        targets.iter().map(|(_, target)| (target.id, target)).collect();
    let mut touched: Vec<&Target> = Vec::new();
    log.replay(&*shared.fs, |writes| {
        // Nobody reads yet; engines may drop what has been superseded, and wait until what they cut is published. That
        // takes in what all have persisted, and numbers of writes that no log has.
        shared.visibility.publish(writes.first - 1);
        make_room(shared, targets, writes.first - 1)?;
        let mut body = writes.body;
        touched.clear();
        let last = writes.first + writes.count - 1;
        for seqno in writes.first..writes.first + writes.count {
            let entry = take_logged(&mut body)
                .and_then(|entry| Some((*by_id.get(&entry.keyspace())?, entry)))
                .ok_or_else(|| {
                    let what = format!("write number {seqno} is not one that can be");
                    Error::corruption(&dir, 0, what)
                })?;
            let (target, entry) = entry;
            let persisted = target.engine.persisted() + u64::from(planted(Bug::ReplayTooLate));
            if seqno <= persisted.saturating_sub(planted(Bug::ReplayTooEarly).into()) {
                continue;
            }
            if touched.last().is_none_or(|last| last.id != target.id) {
                touched.push(target);
            }
            match entry {
                Logged::Write(write) => write.change.apply(&*target.engine, seqno)?,
                Logged::Load { described, .. } => target.engine.replay_load(seqno, described)?,
                Logged::Clear { .. } => target.engine.as_clear()?.clear(seqno - 1, seqno),
            }
        }
        if !touched.is_empty() {
            report.replayed_batches += 1;
            touched.sort_unstable_by_key(|target| target.id);
            touched.dedup_by_key(|target| target.id);
            touched.iter().for_each(|target| target.engine.end_batch(last));
        }
        shared.visibility.publish(last);
        Ok(())
    })?;
    Ok(report)
}

/// Replaying must stay inside the memory budget too: cuts the engine that holds most, all up to `last` being
/// replayed, and waits. A reader has nowhere to put what it replays.
fn make_room(shared: &Shared, targets: &[(String, Target)], last: Seqno) -> Result<()> {
    let budget = &shared.budget;
    while !shared.read_only && budget.memtables_used() > budget.memtables {
        let engines = || targets.iter().map(|(_, target)| &target.engine);
        if let Some(trouble) = engines().find_map(|engine| engine.flush_trouble()) {
            return Err(trouble);
        }
        shared.committer.check()?;
        let active: usize = engines().map(|engine| engine.active_bytes()).sum();
        if active > budget.memtable {
            let largest = engines().max_by_key(|engine| engine.active_bytes());
            largest.into_iter().for_each(|engine| engine.cut(last));
        }
        crate::sync::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Step 6. The log goes on with the number after `last`, which is behind its end only where it was cut off below
/// what a keyspace had persisted.
fn continue_log(
    options: &DatabaseOptions,
    shared: &Shared,
    catalog: &mut Catalog,
    log: Option<Log>,
    last: Seqno,
) -> Result<(Arc<Segments>, Writer)> {
    let dir = shared.path.join(LOG);
    let fs: Arc<LayeredFs> = Arc::clone(&shared.log_files.fs);
    let next = log.as_ref().map_or(0, |log| log.found().largest_number) + 1;
    let layer = options.log_layer;
    let Some(log) = log else {
        if fs.kind(&dir)?.is_some() {
            for name in fs.list(&dir)? {
                fs.remove(&dir.join(name))?;
            }
            remove_remade(&*fs, &dir)?;
        }
        fs.create_dir(&dir)?;
        let segments =
            Arc::new(Segments::new(fs, dir, shared.database, layer, shared.budget.memtable, next));
        let writer = Writer::start(Arc::clone(&segments))?;
        shared.fs.sync_dir(&shared.path)?;
        catalog.progress(writer.segment().number, &[])?;
        return Ok((segments, writer.with_buffer(options.log_buffer).with_tail()));
    };
    let found = log.found();
    let segments =
        Arc::new(Segments::new(fs, dir, shared.database, layer, shared.budget.memtable, next));
    let (end, before) = found.chain.split_last().expect("the chain has at least the floor");
    for read in before {
        segments.add_closed(read.number, read.capacity, read.last);
    }
    let segment = segments.reopen(end.number, end.capacity)?;
    let is_old = end.version < LOG_VERSION;
    let mut unused = found.unused.clone();
    let mut writer = if found.dropped_bytes > 0 || last > found.last || is_old {
        leave_torn(&segments, segment, end, found, &mut unused, last)?
    } else {
        Writer::resume(Arc::clone(&segments), segment, end.end, last)?
    };
    let unpromised = before.iter().filter(|read| !read.is_promised).copied().collect::<Vec<_>>();
    // A new segment's link has left word already.
    let is_new = writer.segment().number != end.number;
    writer.leave_word(&unpromised, if is_new { last } else { found.synced })?;
    for (number, len) in unused {
        segments.add_recyclable(number, len);
    }
    segments.trim();
    // Who knows only the old format may open the database again, and would not look for a tail.
    let stays = is_old && writer.segment().number == end.number;
    let writer = if stays { writer } else { writer.with_tail() };
    Ok((segments, writer.with_buffer(options.log_buffer)))
}

/// Goes on behind a torn tail: in a new segment, or, if there is no space for one, in its place. If there is none, what is `unused`
/// is removed, as it takes space, and may have records that would be looked at again if the new ones were lost. The tail is wiped
/// out before it is written over, so that it can never be taken for records that follow the new ones. Numbers that are left out
/// need a new segment: only its link can tell.
fn leave_torn(
    segments: &Arc<Segments>,
    segment: Segment,
    end: &ReadSegment,
    found: &Recovered,
    unused: &mut Vec<(u64, u64)>,
    last: Seqno,
) -> Result<Writer> {
    let start =
        || Writer::start_after(Arc::clone(segments), segment.clone(), end.end, found.last, last);
    let mut started = start();
    if let Err(Error::NoSpace { .. }) = started
        && !unused.is_empty()
    {
        segments.remove_unused(unused.drain(..).map(|(number, _)| number))?;
        started = start();
    }
    match started {
        Err(Error::NoSpace { .. }) if last == found.last => {
            segments.wipe(&segment, end.end..end.end + found.torn_bytes)?;
            Writer::resume(Arc::clone(segments), segment, end.end, last)
        }
        Ok(writer) => {
            segments.close(&segment, end.last);
            Ok(writer)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Span;
    use crate::commit::{Change, put_clear, put_delete_range};
    use crate::error::ErrorKind;
    use crate::vfs::MemoryFs;

    /// Whether a record of the log may have these writes, to the only keyspace there is, which has the number 1.
    fn is_possible(count: u64, body: &[u8]) -> bool {
        let entry = catalog::Entry {
            name: "main".into(),
            options: KeyspaceOptions::lsm(),
            persisted: 0,
            types: None,
        };
        are_possible(&Writes { first: 1, count, body }, &BTreeMap::from([(1, entry)]))
    }

    #[test]
    fn no_record_of_the_log_has_more_than_a_batch() {
        let span = Span { start: b"", end: None };
        let most = LARGEST_BATCH / Change::DeleteRange(span).weight();
        let mut body = Vec::new();
        (0..most).for_each(|_| put_delete_range(&mut body, 1, span));
        assert!(is_possible(most as u64, &body));
        put_delete_range(&mut body, 1, span);
        assert!(!is_possible(most as u64 + 1, &body));
    }

    #[test]
    fn clears_and_loads_have_records_of_their_own() {
        let span = Span { start: b"", end: None };
        let mut body = Vec::new();
        put_clear(&mut body, 1);
        assert!(is_possible(1, &body) && !is_possible(2, &[&body[..], &body].concat()));
        put_delete_range(&mut body, 1, span);
        assert!(!is_possible(2, &body) && !is_possible(1, &body));
        body.clear();
        put_delete_range(&mut body, 2, span);
        assert!(!is_possible(1, &body), "there is no such keyspace");
    }

    #[test]
    fn a_number_that_no_log_segment_can_follow_is_damage() {
        let open = |fs: &MemoryFs| {
            let builder = crate::Database::builder("/db").file_system(Arc::new(fs.clone()));
            builder.open().and_then(crate::Database::close).map_err(|error| error.kind())
        };
        let fs = MemoryFs::new();
        assert_eq!(open(&fs), Ok(()));
        for number in [MOST_SEGMENTS, u64::MAX - 1, u64::MAX] {
            let fork = fs.fork();
            fork.write_file(&Path::new("/db/log").join(format!("{number}.log")), b"").unwrap();
            assert_eq!(open(&fork), Err(ErrorKind::Corruption), "{number}");
        }
        fs.write_file(&Path::new("/db/log").join(format!("{}.log", MOST_SEGMENTS - 1)), b"")
            .unwrap();
        assert_eq!(open(&fs), Ok(()));
    }
}
