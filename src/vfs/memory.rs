//! A deterministic file system in memory, with power cuts.
//!
//! A *traced* file system remembers every mutating operation in order. After a workload ran once, a test
//! can ask for the [image](MemoryFs::image) that a power loss at any moment of it may leave behind: a
//! new, independent file system on which recovery is then tried. `trace` holds the model of the disk.
//!
//! Thread safety: one lock for the names, one for each file's content, one for what is lent of it, one for the trace; taken in the
//! order names, trace, content, lent. A change and its record in the trace are one step, so that the trace has
//! the order in which changes became visible.

mod content;
mod lent;
mod names;
mod trace;

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use self::content::Content;
use self::lent::Areas;
use self::names::{Entry, FIRST_NODE, NameChange, Names, NodeId};
use self::trace::{DataChange, Image, Replay, Step, Trace};
use super::aligned::AlignedBuf;
use super::counters::{FileCounters, IoStats, Registry};
use super::layer::Raw;
use super::{Access, Dir, Errno, File, Fs, Hint, Layer, LockGuard, PathKind, View, direct, range};
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard, RwLock};

/// What a power loss leaves of the operations that were not synced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PowerCut {
    /// Everything: not the power failed, but the process was killed.
    KeepAll,
    /// Nothing.
    DropUnsynced,
    /// Only the k-th of them, counted from 0, and the changes of names that must come before it.
    KeepOnly(usize),
    /// All but the k-th of them, counted from 0, and the changes of names that must come behind it.
    DropOnly(usize),
    /// Only the k-th of them, and no change of names before it.
    KeepAlone(usize),
    /// All but the k-th of them, and all changes of names behind it.
    DropAlone(usize),
    /// A random part, the same for the same seed, with names of a directory in their order or each by itself. Writes may be torn at sectors of 512 bytes,
    /// or all of them at pages of 4 KiB, each kept or dropped; one that is dropped behind the file's end may read back as zeros. The last write always is.
    Random(u64),
}

/// A file system in memory. Clones are the same file system; [`fork`](Self::fork) makes another.
///
/// Hints are ignored. It offers [`Layer::Mmap`], which lends views that show what is written later, as maps do; [`Layer::Positional`];
/// and [`Layer::Direct`], which takes whole blocks only. A file system that
/// [`traced`](Self::traced) made remembers what was done to it, at the cost of the bytes written.
#[derive(Clone, Debug, Default)]
pub struct MemoryFs(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    tree: Mutex<Tree>,
    trace: Option<Mutex<Trace>>,
    space: Arc<Space>,
    read_only: AtomicBool,
    refuses_direct: AtomicBool,
    /// Which sync fails, of a file or a directory.
    losing: Mutex<Option<LostSync>>,
    /// How many did.
    lost_syncs: AtomicU64,
    locks: Mutex<HashMap<NodeId, Holders>>,
    registry: Registry,
}

#[derive(Debug)]
struct Tree {
    names: Names,
    files: HashMap<NodeId, Arc<Node>>,
    next: NodeId,
}

impl Default for Tree {
    fn default() -> Self {
        Self { names: Names::default(), files: HashMap::new(), next: FIRST_NODE }
    }
}

/// A file, for as long as it has a name or a handle.
#[derive(Debug)]
struct Node {
    id: NodeId,
    content: RwLock<Content>,
    lent: Mutex<Areas>,
    space: Arc<Space>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let content = self.content.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.space.used.fetch_sub(content.len(), Relaxed);
    }
}

/// The sum of the lengths of all files, and its limit.
#[derive(Debug)]
struct Space {
    used: AtomicU64,
    quota: AtomicU64,
}

impl Default for Space {
    fn default() -> Self {
        Self { used: AtomicU64::new(0), quota: AtomicU64::new(u64::MAX) }
    }
}

impl Space {
    /// What is left of the limit, if there is one.
    fn free(&self) -> Option<u64> {
        let quota = self.quota.load(Relaxed);
        (quota < u64::MAX).then(|| quota.saturating_sub(self.used.load(Relaxed)))
    }

    /// Takes the space for a file to go from `old` to `new` bytes, or gives it back.
    fn resize(&self, old: u64, new: u64) -> io::Result<()> {
        let quota = self.quota.load(Relaxed);
        let changed = self.used.fetch_update(Relaxed, Relaxed, |used| {
            let total = (used - old).checked_add(new)?;
            (new <= old || total <= quota).then_some(total)
        });
        changed.map(drop).map_err(|_| io::ErrorKind::StorageFull.into())
    }
}

/// A sync that fails, and loses what was to be synced.
#[derive(Debug)]
struct LostSync {
    of: Synced,
    /// So many others come before it.
    after: u64,
    errno: Errno,
}

/// What is to be synced.
#[derive(Debug)]
enum Synced {
    /// A file with this in its name.
    File(String),
    /// The names of a directory.
    Names,
}

/// Who holds a lock.
#[derive(Debug)]
enum Holders {
    One,
    Sharing(usize),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryFs {
    /// An empty file system.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty file system that remembers what is done to it.
    #[must_use]
    pub fn traced() -> Self {
        Self::tracing(Replay::of(&Image::default()))
    }

    /// Traced, with what readers see in that state.
    fn tracing(disk: Replay) -> Self {
        Self::with(disk.visible().clone(), Some(disk))
    }

    /// With this image, and traced from the state of the disk on, if there is one.
    fn with(mut image: Image, disk: Option<Replay>) -> Self {
        image.forget_unreachable();
        let space = Arc::new(Space::default());
        let numbers = image.names.numbers().map(|number| number + 1);
        let next = disk.as_ref().map(Replay::free_number).into_iter().chain(numbers).max();
        let next = next.unwrap_or(FIRST_NODE).max(FIRST_NODE);
        let mut tree = Tree { names: image.names.clone(), files: HashMap::new(), next };
        for (&id, content) in &image.files {
            space.used.fetch_add(content.len(), Relaxed);
            let content = RwLock::new(content.clone());
            let node = Node { id, content, lent: Mutex::default(), space: Arc::clone(&space) };
            tree.files.insert(id, Arc::new(node));
        }
        let trace = disk.map(|disk| Mutex::new(Trace::new(disk)));
        Self(Arc::new(Shared { tree: Mutex::new(tree), trace, space, ..Shared::default() }))
    }

    /// How many operations were traced so far.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.0.trace.as_ref().map_or(0, |trace| locked(trace).len())
    }

    /// How many of the first `at` operations were not safe from a power loss just after them. Panics if
    /// the file system is not traced or `at` is more than [`operations`](Self::operations).
    #[must_use]
    pub fn unsynced(&self, at: usize) -> usize {
        self.expect_trace().replay(at).unsynced()
    }

    /// Whether the k-th of those, counted from 0, is a change of names. Panics as [`unsynced`](Self::unsynced) does.
    #[must_use]
    pub fn is_name(&self, at: usize, k: usize) -> bool {
        self.expect_trace().replay(at).is_name(k)
    }

    /// A new file system, not traced, with what may be on the disk if the power fails just after the first
    /// `at` operations. Cheap if `at` grows from call to call. Panics as [`unsynced`](Self::unsynced) does.
    #[must_use]
    pub fn image(&self, at: usize, cut: PowerCut) -> Self {
        let image = self.expect_trace().replay(at).image(cut);
        Self::with(image, None)
    }

    /// Like [`image`](Self::image), but traced from here on, so that a recovery can itself be cut off. What was not synced before a
    /// kill, [`KeepAll`](PowerCut::KeepAll), is not synced after it: a power cut during the recovery may lose it, unless that has
    /// synced it.
    #[must_use]
    pub fn image_traced(&self, at: usize, cut: PowerCut) -> Self {
        let disk = self.expect_trace().replay(at).after(cut);
        Self::tracing(disk)
    }

    fn expect_trace(&self) -> MutexGuard<'_, Trace> {
        locked(self.0.trace.as_ref().expect("the file system was made by `traced`"))
    }

    /// An independent copy as it is now, not traced, with no quota and nothing locked. Call it while
    /// nobody writes.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::with(self.snapshot(), None)
    }

    /// Like [`fork`](Self::fork), but traced from here on; all that is there now counts as synced.
    #[must_use]
    pub fn fork_traced(&self) -> Self {
        Self::tracing(Replay::of(&self.snapshot()))
    }

    fn snapshot(&self) -> Image {
        let tree = locked(&self.0.tree);
        let files = tree.files.iter().map(|(id, node)| (*id, node.read().clone())).collect();
        Image { names: tree.names.clone(), files }
    }

    /// Limits the sum of all files' lengths; beyond it writes give [`Error::NoSpace`] and change nothing.
    pub fn quota(&self, bytes: Option<u64>) {
        self.0.space.quota.store(bytes.unwrap_or(u64::MAX), Relaxed);
    }

    /// Makes every change an error of kind [`ReadOnlyFilesystem`](io::ErrorKind::ReadOnlyFilesystem).
    pub fn set_read_only(&self, read_only: bool) {
        self.0.read_only.store(read_only, Relaxed);
    }

    /// Makes [`Layer::Direct`] an error of kind [`Unsupported`](crate::ErrorKind::Unsupported), as on a file
    /// system without direct I/O.
    pub fn refuse_direct(&self, refuse: bool) {
        self.0.refuses_direct.store(refuse, Relaxed);
    }

    /// Lets the next sync of a file fail with `errno` whose name contains `name_contains`. As on a kernel that marks the
    /// pages clean, what was not synced then can be read but is on the disk in no image but
    /// [`KeepAll`](PowerCut::KeepAll), whatever later syncs say: the last change of the file, and about half of those before it. The others were
    /// written.
    pub fn lose_sync(&self, name_contains: &str, errno: Errno) {
        self.lose(Synced::File(name_contains.to_owned()), 0, errno);
    }

    /// The same of the sync of a file, whatever its name, that comes after so many others.
    pub fn lose_sync_after(&self, after: u64, errno: Errno) {
        self.lose(Synced::File(String::new()), after, errno);
    }

    /// Lets the sync of a directory fail with `errno` that comes after so many others. As on a file system without a journal, which marks the
    /// block clean, the changes of its names are on the disk in no image but [`KeepAll`](PowerCut::KeepAll), whatever later syncs say, until its
    /// names change again. A file system with a journal refuses all changes instead, as with [`set_read_only`](Self::set_read_only).
    pub fn lose_dir_sync_after(&self, after: u64, errno: Errno) {
        self.lose(Synced::Names, after, errno);
    }

    fn lose(&self, of: Synced, after: u64, errno: Errno) {
        *locked(&self.0.losing) = Some(LostSync { of, after, errno });
    }

    /// The sync that `other` was to lose and has not yet is lost here instead: this is what a crash has left of it.
    pub fn lose_sync_of(&self, other: &Self) {
        let lost = locked(&other.0.losing).take();
        *locked(&self.0.losing) = lost;
    }

    /// How many syncs were lost.
    #[must_use]
    pub fn lost_syncs(&self) -> u64 {
        self.0.lost_syncs.load(Relaxed)
    }

    /// Changes the byte at `offset` by exclusive or, behind the back of the trace: it is for file systems
    /// at rest. An error if the file has no such byte.
    pub fn corrupt(&self, path: &Path, offset: u64, xor: u8) -> Result<()> {
        let node = self.node(path)?;
        let mut content = node.content.write().unwrap_or_else(PoisonError::into_inner);
        if offset >= content.len() {
            return Err(range::ends_early(path, offset));
        }
        let mut byte = [0];
        content.read(offset, &mut byte);
        content.write(offset, &[byte[0] ^ xor]);
        locked(&node.lent).write(offset, &[byte[0] ^ xor]);
        Ok(())
    }

    /// All files with their bytes, sorted by path.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let tree = locked(&self.0.tree);
        let mut files: Vec<_> = tree.names.walk().into_iter().collect();
        files.sort_by(|a, b| a.0.cmp(&b.0));
        let content = |id| tree.files.get(&id).map_or(Vec::new(), |node| node.read().to_vec());
        files
            .into_iter()
            .filter_map(|(path, entry)| match entry {
                Entry::File(id) => Some((path, content(id))),
                Entry::Dir(_) => None,
            })
            .collect()
    }

    /// Plants a file with these bytes, replacing what was there, with the directories above it; all synced.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let dir = path.parent().unwrap_or(path);
        self.create_dir(dir)?;
        let file = match self.kind(path)? {
            Some(_) => self.open(path, Access::Write, Layer::default())?,
            None => self.create(path, Layer::default())?,
        };
        file.truncate(0)?;
        file.write_at(0, bytes)?;
        file.sync()?;
        dir.ancestors().try_for_each(|dir| self.sync_dir(dir))
    }

    fn node(&self, path: &Path) -> Result<Arc<Node>> {
        let tree = locked(&self.0.tree);
        tree.node(path).map_err(|source| Error::io("open", path, None, source))
    }

    /// Changes names under the lock, if the file system may be changed at all.
    fn change_names<T>(
        &self,
        operation: &'static str,
        path: &Path,
        change: impl FnOnce(&mut NameEditor<'_>) -> io::Result<T>,
    ) -> Result<T> {
        let failed = |source| Error::io(operation, path, None, source);
        self.0.check_writable().map_err(failed)?;
        let mut tree = locked(&self.0.tree);
        let trace = self.0.trace.as_ref().map(locked);
        change(&mut NameEditor { tree: &mut tree, trace, space: &self.0.space }).map_err(failed)
    }

    /// The block in which files are reached through `layer`, an error if they cannot be.
    fn block_of(&self, path: &Path, layer: Layer) -> Result<usize> {
        match layer.raw()? {
            Raw::Mmap | Raw::Positional => Ok(1),
            Raw::Direct { .. } if self.0.refuses_direct.load(Relaxed) => {
                Err(direct::not_offered(path))
            }
            Raw::Direct { block_size } => Ok(block_size as usize),
        }
    }

    fn handle(
        &self,
        node: Arc<Node>,
        path: &Path,
        access: Access,
        (layer, block): (Layer, usize),
    ) -> Arc<dyn File> {
        Arc::new(MemoryFile {
            fs: Arc::clone(&self.0),
            node,
            path: path.to_path_buf(),
            access,
            block,
            lends: layer == Layer::Mmap,
            counters: self.0.registry.open(),
        })
    }
}

impl Shared {
    /// What this sync says, if it is of what is to be lost next, and so many others have come before it.
    fn lost_sync(&self, is_meant: impl FnOnce(&Synced) -> bool) -> Option<Errno> {
        let mut losing = locked(&self.losing);
        let lost = losing.as_mut().filter(|lost| is_meant(&lost.of))?;
        if lost.after > 0 {
            lost.after -= 1;
            return None;
        }
        self.lost_syncs.fetch_add(1, Relaxed);
        losing.take().map(|lost| lost.errno)
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.read_only.load(Relaxed) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(())
    }

    fn release(&self, node: NodeId) {
        let mut locks = locked(&self.locks);
        match locks.get_mut(&node) {
            Some(Holders::Sharing(count)) if *count > 1 => *count -= 1,
            _ => drop(locks.remove(&node)),
        }
    }
}

impl Tree {
    fn node(&self, path: &Path) -> io::Result<Arc<Node>> {
        match self.names.find(path)? {
            Entry::File(id) => self.files.get(&id).cloned().ok_or(io::ErrorKind::NotFound.into()),
            Entry::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }
}

impl Node {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Content> {
        self.content.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names, held for a change, and the trace it is recorded in.
struct NameEditor<'a> {
    tree: &'a mut Tree,
    trace: Option<MutexGuard<'a, Trace>>,
    space: &'a Arc<Space>,
}

impl NameEditor<'_> {
    fn apply(&mut self, change: NameChange) {
        self.tree.names.apply(&change);
        if let Some(trace) = &mut self.trace {
            trace.record(Step::Names(change));
        }
    }

    fn new_id(&mut self) -> NodeId {
        self.tree.next += 1;
        self.tree.next - 1
    }

    fn create(&mut self, path: &Path) -> io::Result<Arc<Node>> {
        let (dir, name) = self.tree.names.find_parent(path)?;
        if self.tree.names.get(dir, &name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = self.new_id();
        let (content, lent) = (RwLock::default(), Mutex::default());
        let node = Arc::new(Node { id, content, lent, space: Arc::clone(self.space) });
        self.tree.files.insert(id, Arc::clone(&node));
        self.apply(NameChange::Link { dir, name, entry: Entry::File(id) });
        Ok(node)
    }

    fn create_dirs(&mut self, path: &Path) -> io::Result<()> {
        let mut above: Vec<_> = path.ancestors().collect();
        above.reverse();
        for path in above {
            match self.tree.names.find_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let (dir, name) = self.tree.names.find_parent(path)?;
                    let entry = Entry::Dir(self.new_id());
                    self.apply(NameChange::Link { dir, name, entry });
                }
                found => drop(found?),
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let node = self.tree.node(path)?;
        let (dir, name) = self.tree.names.find_parent(path)?;
        self.tree.files.remove(&node.id);
        self.apply(NameChange::Unlink { dir, name });
        Ok(())
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        let removed = self.tree.names.find_dir(path)?;
        let (dir, name) = self.tree.names.find_parent(path)?;
        if self.tree.names.entries(removed).next().is_some() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.apply(NameChange::Unlink { dir, name });
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let moved = self.tree.node(from)?;
        let (from, to) = (self.tree.names.find_parent(from)?, self.tree.names.find_parent(to)?);
        match self.tree.names.get(to.0, &to.1) {
            Some(Entry::Dir(_)) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Entry::File(id)) if id == moved.id => return Ok(()),
            Some(Entry::File(id)) => drop(self.tree.files.remove(&id)),
            None => {}
        }
        let entry = Entry::File(moved.id);
        self.apply(NameChange::Move { from, to, entry });
        Ok(())
    }
}

/// A directory of one.
struct MemoryDir {
    fs: MemoryFs,
    path: PathBuf,
}

impl Dir for MemoryDir {
    fn sync(&self) -> Result<()> {
        self.fs.sync_dir(&self.path)
    }
}

impl Fs for MemoryFs {
    fn open(&self, path: &Path, access: Access, layer: Layer) -> Result<Arc<dyn File>> {
        let node = self.node(path)?;
        let block = self.block_of(path, layer)?;
        if access == Access::Write {
            self.0.check_writable().map_err(|source| Error::io("open", path, None, source))?;
        }
        Ok(self.handle(node, path, access, (layer, block)))
    }

    fn create(&self, path: &Path, layer: Layer) -> Result<Arc<dyn File>> {
        let block = self.block_of(path, layer)?;
        let node = self.change_names("create", path, |names| names.create(path))?;
        Ok(self.handle(node, path, Access::Write, (layer, block)))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.change_names("remove", path, |names| names.remove(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.change_names("rename", from, |names| names.rename(from, to))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        if self.kind(path)? == Some(PathKind::Directory) {
            return Ok(());
        }
        self.change_names("create", path, |names| names.create_dirs(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.change_names("remove", path, |names| names.remove_dir(path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let tree = locked(&self.0.tree);
        let found = tree.names.find_dir(dir);
        let found = found.map_err(|source| Error::io("list", dir, None, source))?;
        Ok(tree.names.entries(found).map(|(name, _)| name.clone()).collect())
    }

    fn kind(&self, path: &Path) -> Result<Option<PathKind>> {
        let tree = locked(&self.0.tree);
        Ok(match tree.names.find(path) {
            Ok(Entry::File(id)) => {
                let len = tree.files.get(&id).map_or(0, |node| node.read().len());
                Some(PathKind::File { len })
            }
            Ok(Entry::Dir(_)) => Some(PathKind::Directory),
            Err(_) => None,
        })
    }

    fn free_bytes(&self, _dir: &Path) -> Option<u64> {
        self.0.space.free()
    }

    fn open_dir(&self, dir: &Path) -> Result<Box<dyn Dir>> {
        let found = locked(&self.0.tree).names.find_dir(dir).map(drop);
        found.map_err(|source| Error::io("open", dir, None, source))?;
        Ok(Box::new(MemoryDir { fs: self.clone(), path: dir.to_path_buf() }))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let tree = locked(&self.0.tree);
        let found = tree.names.find_dir(dir);
        let failed = |source| Error::io("sync", dir, None, source);
        let found = found.map_err(failed)?;
        let lost = self.0.lost_sync(|of| matches!(of, Synced::Names));
        if let Some(trace) = &self.0.trace {
            let is_lost = lost.is_some();
            locked(trace).record(if is_lost { Step::SyncDirLost } else { Step::SyncDir }(found));
        }
        lost.map_or(Ok(()), |errno| Err(failed(errno.into())))
    }

    fn lock(&self, path: &Path, access: Access) -> Result<LockGuard> {
        let failed = |source| Error::io("lock", path, None, source);
        match (self.kind(path)?, access) {
            (_, Access::Read) => {}
            (None, Access::Write) => drop(self.create(path, Layer::default())?),
            (Some(_), Access::Write) => self.0.check_writable().map_err(failed)?,
        }
        // That of the directory stands for that of the file, which need not be there.
        let dir = path.parent().unwrap_or(path);
        let node = locked(&self.0.tree).names.find_dir(dir).map_err(failed)?;
        let mut locks = locked(&self.0.locks);
        match (locks.get_mut(&node), access) {
            (None, Access::Write) => drop(locks.insert(node, Holders::One)),
            (None, Access::Read) => drop(locks.insert(node, Holders::Sharing(1))),
            (Some(Holders::Sharing(count)), Access::Read) => *count += 1,
            (Some(_), _) => {
                return Err(Error::Locked { path: dir.to_path_buf() });
            }
        }
        Ok(Box::new(HeldLock { fs: Arc::clone(&self.0), node }))
    }

    fn stats(&self) -> IoStats {
        self.0.registry.total()
    }
}

/// A lock of this file system; gives it back when dropped.
struct HeldLock {
    fs: Arc<Shared>,
    node: NodeId,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.fs.release(self.node);
    }
}

/// An open file.
#[derive(Debug)]
struct MemoryFile {
    fs: Arc<Shared>,
    node: Arc<Node>,
    path: PathBuf,
    access: Access,
    /// What offsets and lengths must be multiples of.
    block: usize,
    /// Whether views show the file itself.
    lends: bool,
    counters: FileCounters,
}

impl MemoryFile {
    /// Changes the content, within the quota, and records the change. `resized` gives the new length.
    fn change(
        &self,
        operation: &'static str,
        offset: u64,
        resized: impl FnOnce(u64) -> Option<u64>,
        apply: impl FnOnce(&mut Content, &mut Areas),
        record: impl FnOnce() -> DataChange,
    ) -> Result<()> {
        let failed = |source| Error::io(operation, &self.path, Some(offset), source);
        if self.access == Access::Read {
            return Err(failed(rustix::io::Errno::BADF.into()));
        }
        self.fs.check_writable().map_err(failed)?;
        let mut trace = self.fs.trace.as_ref().map(locked);
        let mut content = self.node.content.write().unwrap_or_else(PoisonError::into_inner);
        let len = resized(content.len()).filter(|len| i64::try_from(*len).is_ok());
        let len = len.ok_or_else(|| failed(io::ErrorKind::FileTooLarge.into()))?;
        self.fs.space.resize(content.len(), len).map_err(failed)?;
        apply(&mut content, &mut locked(&self.node.lent));
        if let Some(trace) = &mut trace {
            trace.record(Step::Data(self.node.id, record()));
        }
        Ok(())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let content = self.node.read();
        let found = content.len().saturating_sub(offset).min(buffer.len() as u64) as usize;
        if !buffer.is_empty() && !direct::reaches(self.block, buffer.len(), found) {
            return Err(range::ends_early(&self.path, offset));
        }
        content.read(offset, buffer);
        self.counters.read(found);
        Ok(())
    }

    /// An error if whole blocks are asked for and this is something else.
    fn check(&self, operation: &'static str, offset: u64, bytes: &[u8]) -> Result<()> {
        match self.block {
            1 => Ok(()),
            block => direct::check_blocks(&self.path, operation, block, offset, bytes),
        }
    }

    /// What this sync says, if it is the one that [`MemoryFs::lose_sync`] asked to fail.
    fn lost_sync(&self) -> Option<Errno> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.fs.lost_sync(|of| matches!(of, Synced::File(part) if name.contains(part)))
    }
}

impl File for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        Ok(self.node.read().len())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.change(
            "truncate",
            len,
            |_| Some(len),
            |content, lent| {
                content.truncate(len);
                lent.truncate(len);
            },
            || DataChange::Truncate(len),
        )
    }

    /// Where there is no room for all of it, the file is as long as there is room for, as on file systems of the outside world.
    fn allocate(&self, len: u64) -> Result<()> {
        let allocate = |len: u64| {
            self.change(
                "allocate",
                len,
                |old| Some(old.max(len)),
                |content, _| content.extend(len),
                || DataChange::Allocate(len),
            )
        };
        allocate(len).inspect_err(|error| {
            let free = self.fs.space.free().filter(|_| matches!(error, Error::NoSpace { .. }));
            let end = self.node.read().len() + free.unwrap_or(0);
            if free.is_some() && end < len {
                // Unless others were faster.
                let _ = allocate(end);
            }
        })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check("read", offset, buffer)?;
        self.counters.requested();
        self.read(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check("write", offset, bytes)?;
        let end = offset.checked_add(bytes.len() as u64);
        self.change(
            "write",
            offset,
            |old| if bytes.is_empty() { Some(old) } else { Some(old.max(end?)) },
            |content, lent| {
                content.write(offset, bytes);
                lent.write(offset, bytes);
            },
            || DataChange::Write { offset, bytes: bytes.into() },
        )?;
        self.counters.wrote(bytes.len());
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.write_at(offset, &direct::gathered(parts))
    }

    fn sync(&self) -> Result<()> {
        let lost = self.lost_sync();
        if let Some(trace) = &self.fs.trace {
            let id = self.node.id;
            let step = if lost.is_some() { Step::SyncLost(id) } else { Step::Sync(id) };
            locked(trace).record(step);
        }
        if let Some(errno) = lost {
            return Err(Error::io("sync", &self.path, None, errno.into()));
        }
        self.counters.synced();
        Ok(())
    }

    fn advise(&self, _: Range<u64>, _: Hint) {}

    fn alignment(&self) -> usize {
        self.block
    }

    fn lends(&self) -> bool {
        self.lends
    }

    fn view(&self, range: Range<u64>) -> Result<View> {
        let len = range::length(&self.path, &range)?;
        self.counters.requested();
        if self.lends {
            let content = self.node.read();
            if len > 0 && range.end > content.len() {
                return Err(range::ends_early(&self.path, range.start));
            }
            return Ok(locked(&self.node.lent).view(&content, range.start, len));
        }
        let end = self.node.read().len().next_multiple_of(self.block as u64);
        if len > 0 && range.end > end {
            return Err(range::ends_early(&self.path, range.start));
        }
        let mut buffer = AlignedBuf::zeroed(len);
        self.check("read", range.start, &buffer)?;
        self.read(range.start, &mut buffer)?;
        Ok(buffer.into_view(0..len))
    }

    fn stats(&self) -> IoStats {
        self.counters.snapshot()
    }
}

#[cfg(test)]
mod tests;
