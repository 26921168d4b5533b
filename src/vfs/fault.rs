//! Faults on demand, over any file system.
//!
//! Each call through a [`FaultFs`] or one of its files is counted by its [`Operation`] and shown to the
//! armed [`Fault`]s; the first of them that is due has its effect. A test runs a workload once to learn how
//! many calls it makes, and then again with a fault at each of them.
//!
//! Thread safety: one lock over the armed faults; which of several threads meets a fault is as random as
//! their order.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::{Access, Dir, File, Fs, Hint, IoStats, Layer, LockGuard, PathKind, View};
use crate::base::rng::Rng;
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard, thread};

/// The calls that can be made to fail. Hints never fail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Opening a file or a directory that exists.
    Open,
    /// Creating a file or a directory.
    Create,
    /// Removing a file or a directory.
    Remove,
    /// Renaming; matches by either name.
    Rename,
    /// Listing a directory, or asking what a path leads to.
    List,
    /// Syncing a directory.
    SyncDir,
    /// Taking the lock.
    Lock,
    /// Asking for a file's length.
    Length,
    /// Reading or viewing.
    Read,
    /// Writing, of one part or several.
    Write,
    /// Setting a file's length.
    Truncate,
    /// Reserving space.
    Allocate,
    /// Syncing a file.
    Sync,
}

impl Operation {
    /// All operations, for tests that go through them.
    pub const ALL: [Self; 13] = [
        Self::Open,
        Self::Create,
        Self::Remove,
        Self::Rename,
        Self::List,
        Self::SyncDir,
        Self::Lock,
        Self::Length,
        Self::Read,
        Self::Write,
        Self::Truncate,
        Self::Allocate,
        Self::Sync,
    ];
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::Remove => "remove",
            Self::Rename => "rename",
            Self::List => "list",
            Self::SyncDir => "sync-dir",
            Self::Lock => "lock",
            Self::Length => "length",
            Self::Read => "read",
            Self::Write => "write",
            Self::Truncate => "truncate",
            Self::Allocate => "allocate",
            Self::Sync => "sync",
        })
    }
}

/// The error a fault gives, as the operating system would.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errno {
    /// By kind.
    Kind(io::ErrorKind),
    /// By the system's own number: 5 is EIO, 28 is ENOSPC.
    Raw(i32),
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::Kind(kind) => kind.into(),
            Errno::Raw(number) => Self::from_raw_os_error(number),
        }
    }
}

/// What a fault does to the call it meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// An error, and nothing was done.
    Fail(Errno),
    /// An error, although all was done.
    FailDone(Errno),
    /// An error after at most this many bytes were read or written, and of a sector that the file has already all or none: within a page the
    /// system copies whole writes, and a device writes whole sectors. On other calls, nothing was done.
    FailShort(usize, Errno),
    /// All is done, this much later.
    Delay(Duration),
    /// What is read has this bit turned over, or the one that is as far beyond a multiple of its length. On other calls, nothing. Like the
    /// three that follow it waits for another call where what is read is the same in spite of it, and does not count there.
    Flip(u64),
    /// The same, but so many bits before the last byte that is not zero ends: near the newest bytes of a file that only grows.
    FlipBack(u64),
    /// What is read is what lies so many bytes before, as from a block that was written to the wrong place; if nothing does, it is the
    /// right bytes. On other calls, nothing.
    Misplace(u64),
    /// What is read is what was there before it was last written, sector by sector, as from a disk that has forgotten a write; where nothing was
    /// written since this was armed, or since [`FaultFs::remember`], it is the right bytes. On other calls, nothing.
    Stale,
    /// A panic, and nothing was done.
    Panic,
}

/// Bytes of what a disk writes whole or not at all.
const SECTOR: u64 = 512;

/// What is said to who has too many files open: EMFILE.
const TOO_MANY: Errno = Errno::Raw(24);

/// How often a fault has its effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// On one call.
    Once,
    /// On every call from the first one on.
    Always,
    /// On one call in so many, from the first one on, in an order that a seed decides.
    OneIn {
        /// One is every call.
        calls: u64,
        /// The seed.
        seed: u64,
    },
}

/// A fault, to be armed with [`FaultFs::arm`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which calls it is about.
    pub operation: Operation,
    /// Only files and directories whose own name, without the path, contains this.
    pub name_contains: String,
    /// Only what is in or below this directory, or is it.
    pub within: PathBuf,
    /// How many matching calls pass unharmed first.
    pub after: u64,
    /// How often it has its effect.
    pub times: Times,
    /// What it does.
    pub effect: Effect,
}

impl Fault {
    /// A fault on the next call of this kind, on any file, once. Change the fields for another.
    #[must_use]
    pub fn new(operation: Operation, effect: Effect) -> Self {
        let (name_contains, within) = Default::default();
        Self { operation, name_contains, within, after: 0, times: Times::Once, effect }
    }

    fn matches(&self, operation: Operation, path: &Path) -> bool {
        self.operation == operation
            && path.starts_with(&self.within)
            && path.file_name().unwrap_or_default().to_string_lossy().contains(&self.name_contains)
    }
}

/// A file system that passes all calls to another one, except where a fault is armed. Clones share their
/// faults and counts.
#[derive(Clone, Debug)]
pub struct FaultFs {
    inner: Arc<dyn Fs>,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Armed {
    fault: Fault,
    /// For those that have their effect on some calls.
    rng: Rng,
}

/// A fault that a call has met.
struct Met {
    effect: Effect,
    /// It itself, if it is not armed any more.
    used_up: Option<Armed>,
}

impl Armed {
    /// Counts a call that matches; gives the effect on it, if any.
    fn meet(&mut self) -> Option<Effect> {
        if self.fault.after > 0 {
            self.fault.after -= 1;
            return None;
        }
        let is_due = match self.fault.times {
            Times::Once | Times::Always => true,
            Times::OneIn { calls, .. } => self.rng.next().is_multiple_of(calls.max(1)),
        };
        is_due.then_some(self.fault.effect)
    }
}

#[derive(Debug, Default)]
struct Plan {
    armed: Mutex<Vec<Armed>>,
    /// How many calls met a fault, by the file or directory that they were about.
    fired: Mutex<BTreeMap<PathBuf, u64>>,
    calls: [AtomicU64; Operation::ALL.len()],
    /// How many files are open,
    open: AtomicU64,
    /// and how many may be, if that is limited.
    limit: Mutex<Option<u64>>,
    /// Whether what is written over is remembered,
    remembers: AtomicBool,
    /// for each file by its path.
    older: Mutex<BTreeMap<PathBuf, Arc<Older>>>,
}

/// Sectors of a file by their numbers.
type Sectors = BTreeMap<u64, [u8; SECTOR as usize]>;

/// What the sectors of a file held before they were last written.
#[derive(Debug, Default)]
struct Older(Mutex<Sectors>);

impl Older {
    fn sectors(&self) -> MutexGuard<'_, Sectors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what a range of a file holds, which is about to be written.
    fn remember(&self, file: &dyn File, range: Range<u64>) -> Result<()> {
        // A raw file gives whole blocks only, up to the end of the one that its end lies in.
        let block = file.alignment() as u64;
        let (unit, end) = (block.max(SECTOR), file.len()?.next_multiple_of(block));
        for start in (range.start / unit * unit..range.end).step_by(unit as usize) {
            let there = file.view(start.min(end)..(start + unit).min(end))?;
            for number in start / SECTOR..(start + unit) / SECTOR {
                let from = (number * SECTOR - start) as usize;
                let there = there.get(from..).unwrap_or(&[]);
                let there = &there[..there.len().min(SECTOR as usize)];
                let mut bytes = [0; SECTOR as usize];
                bytes[..there.len()].copy_from_slice(there);
                self.sectors().insert(number, bytes);
            }
        }
        Ok(())
    }

    /// Puts that over what was read at `offset`; gives whether it is something else.
    fn put_over(&self, offset: u64, read: &mut [u8]) -> bool {
        let mut is_other = false;
        for (&number, bytes) in self.sectors().range(offset / SECTOR..) {
            let start = number * SECTOR;
            if start >= offset + read.len() as u64 {
                break;
            }
            let skipped = offset.saturating_sub(start) as usize;
            let read = &mut read[start.saturating_sub(offset) as usize..];
            let older = &bytes[skipped..][..read.len().min(SECTOR as usize - skipped)];
            is_other |= read[..older.len()] != *older;
            read[..older.len()].copy_from_slice(older);
        }
        is_other
    }
}

impl Plan {
    fn armed(&self) -> MutexGuard<'_, Vec<Armed>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fired(&self) -> MutexGuard<'_, BTreeMap<PathBuf, u64>> {
        self.fired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call and gives the fault it meets, if any.
    fn meet(&self, operation: Operation, paths: &[&Path]) -> Option<Met> {
        self.calls[operation as usize].fetch_add(1, Relaxed);
        let mut armed = self.armed();
        let is_meant = |fault: &Fault| paths.iter().any(|path| fault.matches(operation, path));
        let mut found = None;
        for (number, armed) in armed.iter_mut().enumerate() {
            // Those that are due at one call take turns.
            if !is_meant(&armed.fault) || (armed.fault.after == 0 && found.is_some()) {
                continue;
            }
            let effect = armed.meet();
            found = found.or(effect.map(|effect| (number, effect)));
        }
        let (number, effect) = found?;
        let is_used_up = armed[number].fault.times == Times::Once;
        let used_up = is_used_up.then(|| armed.remove(number));
        *self.fired().entry(paths[0].into()).or_default() += 1;
        Some(Met { effect, used_up })
    }

    fn limit(&self) -> MutexGuard<'_, Option<u64>> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_older(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<Older>>> {
        self.older.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of the file at `path`.
    fn older(&self, path: &Path) -> Arc<Older> {
        Arc::clone(self.all_older().entry(path.into()).or_default())
    }

    /// What is remembered of the file at `from` is of that at `to`, or of none.
    fn moved(&self, from: &Path, to: Option<&Path>) {
        let mut older = self.all_older();
        if let (Some(moved), Some(to)) = (older.remove(from), to) {
            older.insert(to.into(), moved);
        }
    }

    /// Takes back that a fault had its effect on a read of `path`: nothing came of it, so that it is to have it on another call.
    fn was_harmless(&self, path: &Path, met: Option<Met>) {
        if let Some(fired) = self.fired().get_mut(path) {
            *fired -= 1;
        }
        if let Some(unused) = met.and_then(|met| met.used_up) {
            self.armed().insert(0, unused);
        }
    }

    /// Makes a call that is whole or not done at all.
    fn run<T>(&self, call: &Call<'_>, whole: impl FnOnce() -> Result<T>) -> Result<T> {
        self.run_bytes(call, whole, |_| Ok(()))
    }

    /// Makes a call that opens something, if only while it lasts.
    fn run_opening<T>(&self, call: &Call<'_>, whole: impl FnOnce() -> Result<T>) -> Result<T> {
        self.run(call, || {
            if self.limit().is_some_and(|most| self.open.load(Relaxed) >= most) {
                *self.fired().entry(call.paths[0].into()).or_default() += 1;
                return Err(call.error(TOO_MANY));
            }
            whole()
        })
    }

    /// Makes a call that moves bytes; `part` moves only the first so many of them.
    fn run_bytes<T>(
        &self,
        call: &Call<'_>,
        whole: impl FnOnce() -> Result<T>,
        part: impl FnOnce(usize) -> Result<()>,
    ) -> Result<T> {
        let met = self.meet(call.operation, &call.paths);
        call.make(met.map(|met| met.effect), whole, part)
    }
}

/// One call, for matching it and for its error.
struct Call<'a> {
    operation: Operation,
    verb: &'static str,
    paths: [&'a Path; 2],
    offset: Option<u64>,
}

impl<'a> Call<'a> {
    fn new(operation: Operation, verb: &'static str, path: &'a Path) -> Self {
        Self { operation, verb, paths: [path, path], offset: None }
    }

    fn at(self, offset: u64) -> Self {
        Self { offset: Some(offset), ..self }
    }

    /// Makes the call, with this effect on it.
    fn make<T>(
        &self,
        effect: Option<Effect>,
        whole: impl FnOnce() -> Result<T>,
        part: impl FnOnce(usize) -> Result<()>,
    ) -> Result<T> {
        match effect {
            None
            | Some(Effect::Flip(_) | Effect::FlipBack(_) | Effect::Misplace(_) | Effect::Stale) => {
                whole()
            }
            Some(Effect::Delay(time)) => {
                thread::sleep(time);
                whole()
            }
            Some(Effect::Fail(errno)) => Err(self.error(errno)),
            Some(Effect::FailDone(errno)) => whole().and(Err(self.error(errno))),
            Some(Effect::FailShort(bytes, errno)) => part(bytes).and(Err(self.error(errno))),
            Some(Effect::Panic) => {
                panic!("{} of {:?} panics on purpose", self.operation, self.paths[0])
            }
        }
    }

    fn error(&self, errno: Errno) -> Error {
        Error::io(self.verb, self.paths[0], self.offset, errno.into())
    }
}

impl FaultFs {
    /// A file system over `inner`, with no faults armed.
    #[must_use]
    pub fn new(inner: Arc<dyn Fs>) -> Self {
        Self { inner, plan: Arc::default() }
    }

    /// A file system over `inner`, what a crash has left of this one for example, that goes on with the armed faults, the counts, and what files
    /// held before they were last written, as if no write were lost. What was opened here meets no fault any more, and is no longer counted there:
    /// no file is open there yet, of as many as may be here.
    #[must_use]
    pub fn moved_to(&self, inner: Arc<dyn Fs>) -> Self {
        let (old, plan) = (&self.plan, Plan::default());
        *plan.armed() = std::mem::take(&mut *old.armed());
        *plan.fired() = old.fired().clone();
        *plan.limit() = *old.limit();
        // What is written here from now on is not written there.
        for (path, older) in &*old.all_older() {
            let sectors = older.sectors().clone();
            plan.all_older().insert(path.clone(), Arc::new(Older(Mutex::new(sectors))));
        }
        plan.remembers.store(old.remembers.load(Relaxed), Relaxed);
        for (calls, so_far) in plan.calls.iter().zip(&old.calls) {
            calls.store(so_far.load(Relaxed), Relaxed);
        }
        Self { inner, plan: Arc::new(plan) }
    }

    /// Arms a fault. If several are due at one call, the one armed first has its effect and the others wait.
    pub fn arm(&self, fault: Fault) {
        if fault.effect == Effect::Stale {
            self.remember();
        }
        let seed = if let Times::OneIn { seed, .. } = fault.times { seed } else { 0 };
        self.plan.armed().push(Armed { fault, rng: Rng::new(seed) });
    }

    /// Remembers from now on what is written over, as if a fault of [`Stale`](Effect::Stale) reads were armed already.
    pub fn remember(&self) {
        self.plan.remembers.store(true, Relaxed);
    }

    /// Forgets what such files held before they were last written, by their paths: until they are written again no read of them is
    /// [`Stale`](Effect::Stale).
    pub fn forget_older(&self, is_meant: impl Fn(&Path) -> bool) {
        let older = self.plan.all_older();
        let meant = older.iter().filter(|(path, _)| is_meant(path));
        meant.for_each(|(_, older)| older.sectors().clear());
    }

    /// Lets so many files be open at a time, or any number: beyond that opening or creating a file, opening, listing or syncing a directory and taking the
    /// lock fail with EMFILE, which counts as a fault. What is open already stays so, and
    /// threads that open files at the same moment may pass the limit.
    pub fn limit_open_files(&self, most: Option<u64>) {
        *self.plan.limit() = most;
    }

    /// How many files and directories are open, the lock not counted.
    #[must_use]
    pub fn open_files(&self) -> u64 {
        self.plan.open.load(Relaxed)
    }

    /// Forgets all armed faults.
    pub fn disarm(&self) {
        self.plan.armed().clear();
    }

    /// How many calls met a fault so far.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.fired_where(|_| true)
    }

    /// The same of calls that were about such files and directories, by their paths; a renaming is about the old name.
    pub fn fired_where(&self, is_meant: impl Fn(&Path) -> bool) -> u64 {
        self.plan.fired().iter().filter(|(path, _)| is_meant(path)).map(|(_, fired)| fired).sum()
    }

    /// How many calls of this kind were made so far, with or without a fault.
    #[must_use]
    pub fn calls(&self, operation: Operation) -> u64 {
        self.plan.calls[operation as usize].load(Relaxed)
    }

    fn wrap(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        let older = self.plan.older(inner.path());
        self.plan.open.fetch_add(1, Relaxed);
        Arc::new(FaultFile { inner, plan: Arc::clone(&self.plan), older })
    }
}

impl Fs for FaultFs {
    fn open(&self, path: &Path, access: Access, layer: Layer) -> Result<Arc<dyn File>> {
        let call = Call::new(Operation::Open, "open", path);
        let opened = self.plan.run_opening(&call, || self.inner.open(path, access, layer));
        opened.map(|file| self.wrap(file))
    }

    fn create(&self, path: &Path, layer: Layer) -> Result<Arc<dyn File>> {
        let call = Call::new(Operation::Create, "create", path);
        let created = self.plan.run_opening(&call, || self.inner.create(path, layer));
        created.map(|file| {
            self.plan.moved(path, None);
            self.wrap(file)
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.plan.run(&Call::new(Operation::Remove, "remove", path), || {
            self.inner.remove(path).inspect(|()| self.plan.moved(path, None))
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let call = Call { paths: [from, to], ..Call::new(Operation::Rename, "rename", from) };
        self.plan.run(&call, || {
            self.inner.rename(from, to).inspect(|()| self.plan.moved(from, Some(to)))
        })
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        let call = Call::new(Operation::Create, "create", path);
        self.plan.run(&call, || self.inner.create_dir(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let call = Call::new(Operation::Remove, "remove", path);
        self.plan.run(&call, || self.inner.remove_dir(path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.plan.run_opening(&Call::new(Operation::List, "list", dir), || self.inner.list(dir))
    }

    fn kind(&self, path: &Path) -> Result<Option<PathKind>> {
        self.plan.run(&Call::new(Operation::List, "look up", path), || self.inner.kind(path))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let call = Call::new(Operation::SyncDir, "sync", dir);
        self.plan.run_opening(&call, || self.inner.sync_dir(dir))
    }

    fn open_dir(&self, dir: &Path) -> Result<Box<dyn Dir>> {
        let call = Call::new(Operation::Open, "open", dir);
        let inner = self.plan.run_opening(&call, || self.inner.open_dir(dir))?;
        self.plan.open.fetch_add(1, Relaxed);
        Ok(Box::new(FaultDir { inner, plan: Arc::clone(&self.plan), path: dir.to_path_buf() }))
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn free_bytes(&self, dir: &Path) -> Option<u64> {
        self.inner.free_bytes(dir)
    }

    fn lock(&self, path: &Path, access: Access) -> Result<LockGuard> {
        let call = Call::new(Operation::Lock, "lock", path);
        self.plan.run_opening(&call, || self.inner.lock(path, access))
    }

    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}

/// An open directory whose syncs can meet faults.
struct FaultDir {
    inner: Box<dyn Dir>,
    plan: Arc<Plan>,
    path: PathBuf,
}

impl Dir for FaultDir {
    fn sync(&self) -> Result<()> {
        let call = Call::new(Operation::SyncDir, "sync", &self.path);
        self.plan.run(&call, || self.inner.sync())
    }
}

impl Drop for FaultDir {
    fn drop(&mut self) {
        self.plan.open.fetch_sub(1, Relaxed);
    }
}

/// An open file whose calls can meet faults.
struct FaultFile {
    inner: Arc<dyn File>,
    plan: Arc<Plan>,
    older: Arc<Older>,
}

impl fmt::Debug for FaultFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FaultFile").field(&self.inner).finish()
    }
}

impl Drop for FaultFile {
    fn drop(&mut self) {
        self.plan.open.fetch_sub(1, Relaxed);
    }
}

impl FaultFile {
    fn call(&self, operation: Operation, verb: &'static str) -> Call<'_> {
        Call::new(operation, verb, self.inner.path())
    }

    /// A view of a range, or one with a fault.
    fn viewed(
        &self,
        range: &Range<u64>,
        view: impl FnOnce(Range<u64>) -> Result<View>,
    ) -> Result<View> {
        let call = self.call(Operation::Read, "read").at(range.start);
        let met = self.plan.meet(call.operation, &call.paths);
        let effect = met.as_ref().map(|met| met.effect);
        let whole = || {
            let right = view(range.clone())?;
            if !is_damage(effect) {
                return Ok(right);
            }
            let mut bytes = right.to_vec();
            self.damage(met, range.start, &mut bytes)?;
            Ok(bytes.into())
        };
        call.make(effect, whole, |_| Ok(()))
    }

    /// Damages what was read at `offset`, if the fault is one that does, which is to have its effect on another call if that changes nothing.
    fn damage(&self, met: Option<Met>, offset: u64, read: &mut [u8]) -> Result<()> {
        let is_other = match met.as_ref().map(|met| met.effect) {
            Some(Effect::Flip(bit)) => flip(read, bit),
            Some(Effect::FlipBack(bit)) => flip_back(read, bit),
            Some(Effect::Misplace(by)) => match offset.checked_sub(by) {
                Some(from) => {
                    let misplaced = self.inner.view(from..from + read.len() as u64)?;
                    let is_other = read != &misplaced[..];
                    read.copy_from_slice(&misplaced);
                    is_other
                }
                None => false,
            },
            Some(Effect::Stale) => self.older.put_over(offset, read),
            _ => return Ok(()),
        };
        if !is_other {
            self.plan.was_harmless(self.inner.path(), met);
        }
        Ok(())
    }

    /// How many bytes are there of a write at `offset` that ended after so many of them.
    fn landed(&self, offset: u64, bytes: usize) -> Result<usize> {
        let (end, block) = (offset + bytes as u64, self.inner.alignment() as u64);
        let unit = if end < self.inner.len()? { block.max(SECTOR) } else { block };
        Ok((end / unit * unit).saturating_sub(offset) as usize)
    }

    /// Remembers what is about to be written over, if that is wanted.
    fn before_write(&self, offset: u64, len: u64) -> Result<()> {
        if self.plan.remembers.load(Relaxed) {
            self.older.remember(&*self.inner, offset..offset + len)?;
        }
        Ok(())
    }
}

/// Whether what is read is not what was written.
fn is_damage(effect: Option<Effect>) -> bool {
    use Effect::{Flip, FlipBack, Misplace, Stale};
    matches!(effect, Some(Flip(_) | FlipBack(_) | Misplace(_) | Stale))
}

/// Turns a bit over, if there is any.
fn flip(bytes: &mut [u8], bit: u64) -> bool {
    let Some(bit) = bit.checked_rem(8 * bytes.len() as u64) else { return false };
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    true
}

/// Turns a bit over, so many before the last byte that is not zero ends, if there is one.
fn flip_back(bytes: &mut [u8], bit: u64) -> bool {
    let Some(last) = bytes.iter().rposition(|&byte| byte != 0) else { return false };
    let bits = 8 * (last as u64 + 1);
    flip(bytes, bits - 1 - bit % bits)
}

impl File for FaultFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn len(&self) -> Result<u64> {
        self.plan.run(&self.call(Operation::Length, "look at"), || self.inner.len())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let call = self.call(Operation::Truncate, "truncate").at(len);
        self.plan.run(&call, || self.inner.truncate(len))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let call = self.call(Operation::Allocate, "allocate").at(len);
        self.plan.run(&call, || self.inner.allocate(len))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let call = self.call(Operation::Read, "read").at(offset);
        let met = self.plan.meet(call.operation, &call.paths);
        let effect = met.as_ref().map(|met| met.effect);
        // Only one of the two closures runs, but both need the buffer.
        let buffer = std::cell::Cell::new(buffer);
        call.make(
            effect,
            || {
                let buffer = buffer.take();
                self.inner.read_at(offset, buffer)?;
                self.damage(met, offset, buffer)
            },
            |bytes| {
                let buffer = buffer.take();
                let bytes = bytes.min(buffer.len());
                let whole = bytes - bytes % self.inner.alignment();
                self.inner.read_at(offset, &mut buffer[..whole])
            },
        )
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.before_write(offset, bytes.len() as u64)?;
        self.plan.run_bytes(
            &self.call(Operation::Write, "write").at(offset),
            || self.inner.write_at(offset, bytes),
            |landed| {
                let landed = self.landed(offset, landed.min(bytes.len()))?;
                self.inner.write_at(offset, &bytes[..landed])
            },
        )
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.before_write(offset, len as u64)?;
        self.plan.run_bytes(
            &self.call(Operation::Write, "write").at(offset),
            || self.inner.write_vectored_at(offset, parts),
            |landed| {
                let landed = self.landed(offset, landed.min(len))?;
                let bytes = parts.iter().flat_map(|part| part.iter().copied());
                self.inner.write_at(offset, &bytes.take(landed).collect::<Vec<_>>())
            },
        )
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn sync(&self) -> Result<()> {
        self.plan.run(&self.call(Operation::Sync, "sync"), || self.inner.sync())
    }

    fn advise(&self, range: Range<u64>, hint: Hint) {
        self.inner.advise(range, hint);
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn lends(&self) -> bool {
        self.inner.lends()
    }

    fn shares(&self) -> bool {
        self.inner.shares()
    }

    fn view(&self, range: Range<u64>) -> Result<View> {
        self.viewed(&range, |range| self.inner.view(range))
    }

    /// A view that is not served is no call: the one that is made instead is counted.
    fn try_view(&self, range: Range<u64>) -> Result<Option<View>> {
        match self.inner.try_view(range.clone()).transpose() {
            None => Ok(None),
            Some(answer) => self.viewed(&range, |_| answer).map(Some),
        }
    }

    fn is_at_hand(&self, range: Range<u64>) -> bool {
        self.inner.is_at_hand(range)
    }

    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::vfs::MemoryFs;
    use crate::vfs::aligned::AlignedBuf;

    const EIO: Errno = Errno::Raw(5);

    fn faulty() -> (FaultFs, Arc<dyn File>) {
        let fs = FaultFs::new(Arc::new(MemoryFs::new()));
        let file = fs.create(Path::new("log-1"), Layer::default()).unwrap();
        file.write_at(0, b"abcdef").unwrap();
        (fs, file)
    }

    fn bytes(file: &dyn File) -> Vec<u8> {
        file.view(0..file.len().unwrap()).unwrap().to_vec()
    }

    #[test]
    fn a_fault_hits_the_call_it_is_meant_for() {
        let (fs, log) = faulty();
        let table = fs.create(Path::new("table-1"), Layer::default()).unwrap();
        let no_space = Effect::Fail(Errno::Kind(io::ErrorKind::StorageFull));
        fs.arm(Fault {
            name_contains: "log".into(),
            after: 2,
            ..Fault::new(Operation::Write, no_space)
        });
        table.write_at(0, b"x").unwrap();
        log.write_at(0, b"1").unwrap();
        log.sync().unwrap();
        log.write_vectored_at(1, &[IoSlice::new(b"2")]).unwrap();
        assert_eq!(fs.fired(), 0);
        assert_eq!(log.write_at(2, b"3").unwrap_err().kind(), ErrorKind::NoSpace);
        log.write_at(3, b"4").unwrap();
        assert_eq!(bytes(&*log), b"12c4ef");
        assert_eq!((fs.fired(), fs.calls(Operation::Write), fs.calls(Operation::Sync)), (1, 6, 1));
    }

    #[test]
    fn faults_and_counts_go_on_with_what_a_crash_has_left() {
        let (fs, log) = faulty();
        fs.arm(Fault { after: 2, ..Fault::new(Operation::Write, Effect::Fail(EIO)) });
        log.write_at(0, b"1").unwrap();
        let left = MemoryFs::new();
        left.write_file(Path::new("log-1"), b"left").unwrap();
        let moved = fs.moved_to(Arc::new(left));
        for _ in 0..3 {
            log.write_at(1, b"2").unwrap();
        }
        let file = moved.open(Path::new("log-1"), Access::Write, Layer::default()).unwrap();
        file.write_at(0, b"L").unwrap();
        file.write_at(1, b"E").unwrap_err();
        assert_eq!((bytes(&*log), bytes(&*file)), (b"12cdef".to_vec(), b"Left".to_vec()));
        assert_eq!((fs.fired(), moved.fired()), (0, 1));
        assert_eq!((fs.calls(Operation::Write), moved.calls(Operation::Write)), (5, 4));
    }

    #[test]
    fn what_was_there_before_goes_along() {
        let (fs, log) = faulty();
        let times = Times::Always;
        fs.arm(Fault { times, ..Fault::new(Operation::Read, Effect::Stale) });
        log.write_at(0, b"ABC").unwrap();
        let left = MemoryFs::new();
        left.write_file(Path::new("log-1"), b"ABCdef").unwrap();
        let moved = fs.moved_to(Arc::new(left));
        // Nobody sees that any more.
        log.write_at(0, b"...").unwrap();
        let file = moved.open(Path::new("log-1"), Access::Write, Layer::default()).unwrap();
        assert_eq!((bytes(&*file), moved.fired()), (b"abcdef".to_vec(), 1));
        moved.forget_older(|path| path == Path::new("another"));
        assert_eq!(bytes(&*file), b"abcdef");
        moved.forget_older(|path| path == Path::new("log-1"));
        assert_eq!((bytes(&*file), moved.fired()), (b"ABCdef".to_vec(), 2));
    }

    #[test]
    fn always_is_until_disarmed() {
        let (fs, log) = faulty();
        let times = Times::Always;
        fs.arm(Fault { times, ..Fault::new(Operation::Read, Effect::Fail(EIO)) });
        for _ in 0..3 {
            let error = log.view(0..1).unwrap_err();
            assert_eq!(error.to_string(), log.read_at(0, &mut [0]).unwrap_err().to_string());
            assert!(error.to_string().starts_with("cannot read log-1 at byte 0: "), "{error}");
        }
        fs.disarm();
        log.view(0..1).unwrap();
        assert_eq!(fs.fired(), 6);
    }

    #[test]
    fn bytes_land_in_part_or_whole() {
        let (fs, log) = faulty();
        fs.arm(Fault::new(Operation::Write, Effect::FailShort(3, EIO)));
        log.write_at(5, b"1234").unwrap_err();
        assert_eq!(bytes(&*log), b"abcde123");
        fs.arm(Fault::new(Operation::Write, Effect::FailShort(4, EIO)));
        log.write_vectored_at(7, &[IoSlice::new(b"AB"), IoSlice::new(&[b'C'; 2000])]).unwrap_err();
        assert_eq!(bytes(&*log), b"abcde12ABCC");
        // Of a sector that is there all is written or nothing.
        fs.arm(Fault::new(Operation::Write, Effect::FailShort(4, EIO)));
        log.write_at(0, b"123456").unwrap_err();
        assert_eq!(bytes(&*log), b"abcde12ABCC");
        log.truncate(2000).unwrap();
        fs.arm(Fault::new(Operation::Write, Effect::FailShort(600, EIO)));
        log.write_at(4, &[b'x'; 1000]).unwrap_err();
        assert_eq!(bytes(&*log)[..4], *b"abcd");
        assert!(bytes(&*log)[4..512].iter().all(|&byte| byte == b'x'));
        assert!(bytes(&*log)[512..].iter().all(|&byte| byte == 0));
        log.truncate(6).unwrap();
        fs.arm(Fault::new(Operation::Write, Effect::FailDone(EIO)));
        log.write_at(0, b"whole!").unwrap_err();
        assert_eq!(bytes(&*log), b"whole!");
        fs.arm(Fault::new(Operation::Read, Effect::FailShort(2, EIO)));
        let mut buffer = *b"______";
        log.read_at(0, &mut buffer).unwrap_err();
        assert_eq!(&buffer, b"wh____");
    }

    #[test]
    fn what_is_read_may_be_damaged() {
        let (fs, log) = faulty();
        fs.arm(Fault::new(Operation::Read, Effect::Flip(5 * 8 + 1)));
        assert_eq!(bytes(&*log), b"abcded");
        fs.arm(Fault::new(Operation::Read, Effect::Flip(2 * 8)));
        let mut buffer = [0; 2];
        log.read_at(2, &mut buffer).unwrap();
        assert_eq!(&buffer, b"bd");
        log.write_at(6, &[0; 10]).unwrap();
        fs.arm(Fault::new(Operation::Read, Effect::FlipBack(7 + 6 * 8)));
        assert_eq!(*log.view(0..16).unwrap(), *b"abcdeg\0\0\0\0\0\0\0\0\0\0");
        fs.arm(Fault::new(Operation::Read, Effect::FlipBack(15)));
        // Where there is nothing, nothing is turned over.
        assert_eq!(*log.view(6..9).unwrap(), [0; 3]);
        assert_eq!(*log.view(3..9).unwrap(), *b"ddf\0\0\0");
        fs.arm(Fault::new(Operation::Read, Effect::Misplace(3)));
        assert_eq!(*log.view(4..6).unwrap(), *b"bc");
        fs.arm(Fault::new(Operation::Read, Effect::Misplace(3)));
        log.read_at(3, &mut buffer).unwrap();
        assert_eq!(&buffer, b"ab");
        assert_eq!(fs.fired(), 6);
    }

    #[test]
    fn damage_waits_for_a_read_that_it_changes() {
        let (fs, log) = faulty();
        log.write_at(3, b"abc").unwrap();
        fs.arm(Fault::new(Operation::Read, Effect::Misplace(3)));
        // Nothing lies so far before it, or the same.
        assert_eq!((bytes(&*log), fs.fired()), (b"abcabc".to_vec(), 0));
        assert_eq!((&*log.view(3..6).unwrap(), fs.fired()), (&b"abc"[..], 0));
        log.write_at(3, b"def").unwrap();
        assert_eq!((&*log.view(4..6).unwrap(), fs.fired()), (&b"bc"[..], 1));
        assert_eq!((bytes(&*log), fs.fired()), (b"abcdef".to_vec(), 1));
        fs.arm(Fault::new(Operation::Read, Effect::Flip(0)));
        assert_eq!((log.view(2..2).unwrap().len(), fs.fired()), (0, 1));
        assert_eq!((&*log.view(0..1).unwrap(), fs.fired()), (&b"`"[..], 2));
        let is_log = |path: &Path| path == Path::new("log-1");
        assert_eq!((fs.fired_where(is_log), fs.fired_where(|path| !is_log(path))), (2, 0));
    }

    #[test]
    fn what_is_read_may_be_what_was_there_before() {
        let (fs, log) = faulty();
        let arm = || fs.arm(Fault::new(Operation::Read, Effect::Stale));
        arm();
        // It was written before the fault was armed, which waits for something else.
        assert_eq!((bytes(&*log), fs.fired()), (b"abcdef".to_vec(), 0));
        log.write_at(2, b"CDE").unwrap();
        log.write_vectored_at(600, &[IoSlice::new(b"one "), IoSlice::new(b"two")]).unwrap();
        let mut buffer = [0; 4];
        log.read_at(1, &mut buffer).unwrap();
        assert_eq!((&buffer, fs.fired()), (b"bcde", 1));
        arm();
        let all = bytes(&*log);
        assert_eq!((&all[..6], &all[600..]), (&b"abcdef"[..], &[0; 7][..]));
        // Once more it is what was there before the last write.
        log.write_at(0, b"......").unwrap();
        fs.rename(Path::new("log-1"), Path::new("log-2")).unwrap();
        let renamed = fs.open(Path::new("log-2"), Access::Write, Layer::default()).unwrap();
        arm();
        assert_eq!(*renamed.view(0..7).unwrap(), *b"abCDEf\0");
        assert_eq!(bytes(&*log)[..7], *b"......\0");
        fs.remove(Path::new("log-2")).unwrap();
        let made = fs.create(Path::new("log-2"), Layer::default()).unwrap();
        made.write_at(0, b"new").unwrap();
        arm();
        assert_eq!(bytes(&*made), [0; 3]);
        assert_eq!(fs.fired(), 4);
    }

    #[test]
    fn a_call_that_panics_has_done_nothing() {
        let (fs, log) = faulty();
        fs.arm(Fault { after: 1, ..Fault::new(Operation::Write, Effect::Panic) });
        log.write_at(0, b"A").unwrap();
        let panics = || log.write_at(1, b"B");
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
        assert_eq!(crate::sync::message(&*panic), "write of \"log-1\" panics on purpose");
        assert_eq!((bytes(&*log), fs.fired()), (b"Abcdef".to_vec(), 1));
        log.write_at(1, b"B").unwrap();
    }

    #[test]
    fn a_raw_file_has_older_blocks() {
        let (fs, _) = faulty();
        let layer = Layer::Direct { block_size: 4096 };
        let file = fs.create(Path::new("raw"), layer).unwrap();
        let block = |byte: u8| {
            let mut block = AlignedBuf::zeroed(4096);
            block.fill(byte);
            block
        };
        fs.arm(Fault::new(Operation::Read, Effect::Stale));
        for byte in [1, 2] {
            file.write_at(4096, &block(byte)).unwrap();
        }
        file.truncate(5000).unwrap();
        file.write_at(4096, &block(3)).unwrap();
        let read = file.view(4096..8192).unwrap();
        assert_eq!((&read[..904], &read[904..]), (&[2; 904][..], &[0; 3192][..]));
        assert_eq!(*file.view(4096..8192).unwrap(), [3; 4096]);
    }

    #[test]
    fn some_calls_fail_as_the_seed_says() {
        let failed = |seed| {
            let (fs, log) = faulty();
            let times = Times::OneIn { calls: 4, seed };
            fs.arm(Fault { after: 10, times, ..Fault::new(Operation::Sync, Effect::Fail(EIO)) });
            (0..200).map(|_| log.sync().is_err()).collect::<Vec<_>>()
        };
        let first = failed(1);
        assert_eq!(first, failed(1));
        assert_ne!(first, failed(2));
        assert!(!first[..10].contains(&true));
        let count = first.iter().filter(|failed| **failed).count();
        assert!((20..80).contains(&count), "{count}");
    }

    #[test]
    fn faults_due_at_once_take_turns() {
        let (fs, log) = faulty();
        for errno in [5, 28] {
            fs.arm(Fault::new(Operation::Sync, Effect::Fail(Errno::Raw(errno))));
        }
        assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::NoSpace);
        fs.arm(Fault::new(Operation::Sync, Effect::Delay(Duration::from_millis(1))));
        log.sync().unwrap();
        assert_eq!((fs.fired(), fs.calls(Operation::Sync)), (3, 3));
    }

    #[test]
    fn no_more_files_are_open_than_may_be() {
        let (fs, log) = faulty();
        let (path, root) = (Path::new("log-1"), Path::new(""));
        let open = || fs.open(path, Access::Read, Layer::default());
        fs.limit_open_files(Some(2));
        let second = open().unwrap();
        assert_eq!(fs.open_files(), 2);
        let calls: [&dyn Fn() -> Result<()>; 6] = [
            &|| open().map(drop),
            &|| fs.create(Path::new("another"), Layer::default()).map(drop),
            &|| fs.list(root).map(drop),
            &|| fs.sync_dir(root),
            &|| fs.open_dir(root).map(drop),
            &|| fs.lock(path, Access::Write).map(drop),
        ];
        for call in calls {
            let error = call().unwrap_err();
            assert!(error.to_string().contains("os error 24"), "{error}");
        }
        assert_eq!((fs.fired(), fs.kind(Path::new("another")).unwrap()), (6, None));
        log.write_at(0, b"A").unwrap();
        fs.remove(path).unwrap();
        drop(second);
        calls[1]().unwrap();
        // What is open needs nothing more.
        let dir = fs.open_dir(root).unwrap();
        assert_eq!(fs.open_files(), 2);
        assert!(fs.sync_dir(root).is_err());
        dir.sync().unwrap();
        drop(dir);
        // What a crash has left begins with no file, and may have as many.
        let left = fs.moved_to(Arc::new(MemoryFs::new()));
        let files = [1, 2].map(|number: u8| {
            left.create(Path::new(&number.to_string()), Layer::default()).unwrap()
        });
        assert!(left.list(root).is_err());
        fs.limit_open_files(Some(1));
        assert!(fs.list(root).is_err());
        fs.limit_open_files(None);
        fs.list(root).unwrap();
        drop((log, files));
        assert_eq!((fs.open_files(), left.open_files()), (0, 0));
    }

    #[test]
    fn every_operation_can_fail() {
        let (fs, log) = faulty();
        let (path, other) = (Path::new("log-1"), Path::new("other"));
        let root = Path::new("");
        let dir = fs.open_dir(root).unwrap();
        let calls: [(Operation, &dyn Fn() -> Result<()>); 17] = [
            (Operation::Open, &|| fs.open(path, Access::Read, Layer::default()).map(drop)),
            (Operation::Open, &|| fs.open_dir(root).map(drop)),
            (Operation::SyncDir, &|| dir.sync()),
            (Operation::Create, &|| fs.create(other, Layer::default()).map(drop)),
            (Operation::Create, &|| fs.create_dir(other)),
            (Operation::Remove, &|| fs.remove(path)),
            (Operation::Remove, &|| fs.remove_dir(other)),
            (Operation::Rename, &|| fs.rename(other, path)),
            (Operation::List, &|| fs.list(root).map(drop)),
            (Operation::List, &|| fs.kind(path).map(drop)),
            (Operation::SyncDir, &|| fs.sync_dir(root)),
            (Operation::Lock, &|| fs.lock(other, Access::Write).map(drop)),
            (Operation::Read, &|| log.view(0..1).map(drop)),
            (Operation::Write, &|| log.write_at(0, b"x")),
            (Operation::Truncate, &|| log.truncate(0)),
            (Operation::Allocate, &|| log.allocate(100)),
            (Operation::Sync, &|| log.sync()),
        ];
        for (fired, (operation, call)) in calls.into_iter().enumerate() {
            let before = fs.calls(operation);
            fs.arm(Fault::new(operation, Effect::Fail(EIO)));
            assert_eq!(call().unwrap_err().kind(), ErrorKind::Io, "{operation:?}");
            assert_eq!((fs.fired(), fs.calls(operation)), (fired as u64 + 1, before + 1));
        }
        assert_eq!(bytes(&*log), b"abcdef");
        assert!(Operation::ALL.iter().all(|operation| fs.calls(*operation) > 0));
    }
}
