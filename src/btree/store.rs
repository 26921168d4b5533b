//! The B+ tree engine: writes go to a memtable, which a checkpoint merges into the tree in the file.
//!
//! Readers see the memtables first, then the tree. A checkpoint (see [`writer`](super::writer)) goes on in the
//! background: it makes a new tree that shares with the last one what no write concerns, so readers keep the tree they
//! have. With the log, a large checkpoint is made in steps: each is a checkpoint of its own whose tree has a part of the
//! changes, so that the pages of the last step are free for the next one, and the file needs little more room than the
//! data. Replaying the log from where the keyspace has persisted makes such a tree whole again.
//!
//! Snapshots: a tree is as of one write. Those that are seen by snapshots while a checkpoint goes past them are made
//! on the way, and stay until their snapshots are gone.
//!
//! Thread safety. Readers load one pointer to a [`State`] and never wait. The commit path alone applies writes and
//! freezes memtables. The file is written by who holds `writer`: the flush thread, or one who compacts or closes. Order of
//! locks: `writer`, `reached`, then `swap`, which is held over no I/O.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::changes::{self, Changes};
use super::cursor::TreeCursor;
use super::file::PageFile;
use super::kept::Kept;
use super::meta::Meta;
use super::node::Pointer;
use super::rewrite::{Source, Which};
use super::root::Root;
use super::verify::{self, Subject};
use super::writer::{self, Writer};
use crate::base::{Kind, ReadPoint, Seqno, Slice, Trailer};
use crate::budget::PageMemory;
use crate::cache::BlockCache;
use crate::contract::{Clear, Context, Engine, Write};
use crate::error::{Error, Result};
use crate::events::JobKind;
use crate::iter::{Either, Merge, OrderedCursor, Visible};
use crate::jobs::{Jobs, Status, Work};
use crate::memtable::{Frozen, MemtableCursor, Memtables};
use crate::options::{EngineKind, MemtableKind, TreeOptions};
use crate::planted::{Bug, planted};
use crate::stats::{KeyspaceStats, TreeStats, VerifyReport};
use crate::sync::{Mutex, MutexGuard, much};
use crate::vfs::{Access, Layer};

/// A step of a checkpoint takes at least so many bytes of pages, the second in simulations, or this share of the file.
const STEP_BYTES: (u64, u64) = (if cfg!(test) { 256 << 10 } else { 16 << 20 }, 16 << 10);
const STEP_SHARE: u64 = 16;
/// Inner nodes are kept beside a keyspace's own cache in this share of that.
const KEPT_SHARE_OF_OWN: u32 = 2;
/// The share of the file that may be free when all has been written anew.
const LEFT_SHARE: u64 = 64;
/// The share that may be holes which values find no room in, and how many pages may be in any case: the list of free pages
/// leaves some with each checkpoint.
const HOLES_SHARE: u64 = 16;
const HOLES: u64 = 16;
/// Such holes are closed in so many parts of the file, one after the other; then, if there are values too long for that, in one,
/// for which the file grows to its double meanwhile.
const PARTS: [u64; 2] = [8, 1];
/// How long those wait who look again and again.
const A_MOMENT: Duration = Duration::from_millis(1);
/// So long are readers waited for at the end.
const MOMENTS: u32 = 100;

/// How many pages the file has.
struct PageCounts {
    end: u64,
    /// In use, or read by trees that are still held.
    used: u64,
    /// Those that only such trees have.
    pinned: u64,
}

/// What readers hold.
#[derive(Clone)]
struct State {
    memtables: Memtables,
    root: Arc<Root>,
    /// What snapshots see, oldest first.
    older: Vec<Older>,
    /// What the file holds, and how many of its pages nobody uses.
    meta: Meta,
    unused: u64,
    /// The number of the last clear; 0 if there was none.
    cleared: Seqno,
    /// One that the file does not have yet. Until it does, `root` is a tree without records that is nowhere else.
    clearing: Option<Clearing>,
}

/// A tree that snapshots see.
#[derive(Clone)]
struct Older {
    root: Arc<Root>,
    /// What is in front of it, if a clear took that away with it.
    memtables: Option<Memtables>,
}

/// A clear that the file does not have yet.
#[derive(Clone, Copy)]
struct Clearing {
    seqno: Seqno,
    /// The first write that had not been persisted before it.
    oldest: Seqno,
}

impl State {
    /// The tree that a reader at `seqno` sees, and what memtables come before it.
    #[inline]
    fn tree_at(&self, seqno: Seqno) -> (&Arc<Root>, Option<&Memtables>) {
        if seqno >= self.root.seqno {
            return (&self.root, Some(&self.memtables));
        }
        let behind = self.older.partition_point(|older| older.root.seqno <= seqno);
        match behind.checked_sub(1).map(|at| &self.older[at]) {
            Some(older) => (&older.root, older.memtables.as_ref()),
            // Only states that are held are read, and those are kept.
            None => (&self.root, Some(&self.memtables)),
        }
    }

    /// The first write that the file does not have.
    fn oldest_unpersisted(&self) -> Option<Seqno> {
        let clearing = self.clearing.map(|clearing| clearing.oldest);
        clearing.into_iter().chain(self.memtables.oldest()).min()
    }

    /// The number up to which something has been cut that the file does not have; 0 if nothing has.
    fn cut_up_to(&self) -> Seqno {
        let clearing = self.clearing.map(|clearing| clearing.seqno);
        let frozen = self.memtables.frozen.first().map(|frozen| frozen.last);
        clearing.into_iter().chain(frozen).max().unwrap_or(0)
    }

    /// The same for what is due first.
    fn due(&self) -> Seqno {
        let frozen = self.memtables.oldest_frozen().map(|frozen| frozen.last);
        self.clearing.map(|clearing| clearing.seqno).or(frozen).unwrap_or(0)
    }

    /// Takes away all there is, as the write `seqno`, and goes on with `memtables`, which are empty. What was there stays
    /// for readers below that number.
    fn clear(&mut self, seqno: Seqno, memtables: Memtables) {
        let oldest = self.oldest_unpersisted().unwrap_or(seqno);
        let memtables = std::mem::replace(&mut self.memtables, memtables);
        memtables.set_flushed();
        let root = Root::empty(seqno, Arc::clone(&self.root.file));
        let root = std::mem::replace(&mut self.root, root);
        self.older.push(Older { root, memtables: Some(memtables) });
        self.cleared = seqno;
        self.clearing = Some(Clearing { seqno, oldest });
    }
}

type PartCursor = Either<MemtableCursor, TreeCursor>;

/// A keyspace kept in a B+ tree.
pub(crate) struct Store {
    context: Context,
    jobs: Jobs,
    state: ArcSwap<State>,
    swap: Mutex<()>,
    writer: Mutex<Writer>,
    /// The layer, and the memory of the keyspace's own cache.
    reached: Mutex<Reached>,
    persisted: AtomicU64,
    reach: AtomicU64,
    flushes: AtomicU64,
    compactions: AtomicU64,
    this: Weak<Self>,
}

/// How the file is reached.
struct Reached {
    layer: Layer,
    most_cached: Option<u32>,
    memory: PageMemory,
}

impl Store {
    /// Makes the file of a new, empty tree in the keyspace's directory, which is made anew if an interrupted
    /// creation has left one.
    pub(crate) fn create(context: Context, options: TreeOptions) -> Result<Arc<Self>> {
        // Where there is no memory for the cache, nothing is made.
        let memory = memory_for(&context, options)?;
        let (fs, dir) = (&*context.fs, &context.dir);
        context.make_directory()?;
        let page_size = options.page_size() as usize;
        writer::create(fs, dir, context.layer, context.identity, page_size)?;
        fs.sync_dir(dir)?;
        Self::open_with(context, options, memory)
    }

    /// Opens a tree where it has persisted. Changes nothing.
    pub(crate) fn open(context: Context, options: TreeOptions) -> Result<Arc<Self>> {
        let memory = memory_for(&context, options)?;
        Self::open_with(context, options, memory)
    }

    fn open_with(context: Context, options: TreeOptions, memory: PageMemory) -> Result<Arc<Self>> {
        let access = if context.read_only { Access::Read } else { Access::Write };
        let (fs, dir, layer) = (&*context.fs, &context.dir, context.layer);
        let (file, page_size, meta) = writer::open(fs, dir, access, layer, context.identity)?;
        if page_size != options.page_size() as usize {
            let what = format!(
                "the file has pages of {page_size} bytes, and the catalog says {}",
                options.page_size()
            );
            return Err(Error::corruption(&writer::path(dir), 12, what));
        }
        let most_cached = options.max_cached_pages;
        let (blocks, kept) = cache_for(&context, page_size, most_cached);
        let path = writer::path(dir);
        let out = writer::out(fs, dir, access, layer, &file)?;
        let file = PageFile::new(file, out, &path, context.identity, page_size, blocks, kept);
        let file = Arc::new(file.locked_by(&context.lock));
        let (writer, root) = Writer::new(file, meta, Arc::clone(&context.host))?;
        let memtables = Memtables::new(MemtableKind::default(), &context.budget);
        let unused = writer.space().unused();
        let (older, cleared, clearing) = (Vec::new(), 0, None);
        let state = State { memtables, root, older, meta, unused, cleared, clearing };
        Ok(Arc::new_cyclic(|this| Self {
            jobs: Jobs::new(&context),
            state: ArcSwap::from_pointee(state),
            swap: Mutex::new(()),
            writer: Mutex::new(writer),
            reached: Mutex::new(Reached { layer, most_cached, memory }),
            persisted: AtomicU64::new(meta.persisted),
            reach: AtomicU64::new(meta.reach),
            flushes: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            this: Weak::clone(this),
            context,
        }))
    }

    // ---- state ----

    /// Replaces the state by what `change` makes of it.
    fn change_state(&self, change: impl FnOnce(&mut State)) {
        let swap = lock(&self.swap);
        let mut next = State::clone(&self.state.load());
        change(&mut next);
        let before = self.state.swap(Arc::new(next));
        drop(swap);
        drop(before);
    }

    /// The same, and lets go of trees that no snapshot sees any more.
    fn change_and_let_go(&self, change: impl FnOnce(&mut State)) {
        self.change_state(|state| {
            change(state);
            self.forget_older(state);
        });
    }

    /// Lets go of trees that no snapshot sees any more.
    fn forget_older(&self, state: &mut State) {
        let State { root, older, .. } = state;
        let ends: Vec<_> =
            older.iter().skip(1).map(|older| older.root.seqno).chain([root.seqno]).collect();
        let mut ends = ends.into_iter();
        let mut held = self.context.visibility.held();
        // Until a clear is published, anybody may become a reader of what was before it.
        let published = held.published();
        older.retain(|older| {
            let end = ends.next().unwrap_or(older.root.seqno);
            published < end || held.awaits(older.root.seqno, end)
        });
    }

    /// Who reads from now on is told that the database is closed. What is lent of the file keeps the database's lock: only those who
    /// are in the middle of reading have any of it then.
    fn close_trees(&self) {
        let swap = lock(&self.swap);
        let mut next = State::clone(&self.state.load());
        next.root = self.for_readers(&next.root);
        next.older.clear();
        let before = self.state.swap(Arc::new(next));
        drop(swap);
        // Calls that are under way end soon, but for those that read all there is.
        for _ in 0..MOMENTS {
            if Arc::strong_count(&before) == 1 {
                break;
            }
            crate::sync::thread::sleep(A_MOMENT);
        }
    }

    /// A tree that has been made, for readers. When the engine has stopped there are none: what is lent is not kept for them.
    fn for_readers(&self, root: &Arc<Root>) -> Arc<Root> {
        match self.jobs.is_stopping() {
            true => Root::closed(root.seqno, Arc::clone(&root.file)),
            false => Arc::clone(root),
        }
    }

    fn freeze(&self, last: Seqno) {
        let kind = MemtableKind::default();
        let next = self.state.load().memtables.next(kind, &self.context.budget);
        let Some(next) = next else { return };
        self.change_state(|state| state.memtables.freeze(next, last));
        self.schedule_flush();
    }

    // ---- background ----

    fn schedule_flush(&self) {
        self.jobs.schedule(Work::Flush, &self.this, Self::flush_one);
    }

    /// The flush job: one clear or checkpoint, then room for other keyspaces. A checkpoint of scattered writes takes longer than
    /// writers take for the next memtable.
    fn flush_one(&self) {
        let Some(running) = self.jobs.begin(Work::Flush) else { return };
        if running.persistently(|| self.flush_oldest()).is_some() {
            self.jobs.notify();
            self.context.host.persisted();
        }
        drop(running);
        if self.is_flush_due() && self.jobs.trouble_of(Work::Flush).is_none() {
            self.schedule_flush();
        }
    }

    fn is_flush_due(&self) -> bool {
        self.state.load().due() > 0
    }

    /// Brings the oldest of what the file does not have there.
    fn flush_oldest(&self) -> Result<()> {
        let state = self.state.load();
        let (clearing, cleared) = (state.clearing, state.cleared);
        let frozen = state.memtables.oldest_frozen().cloned();
        // A checkpoint gives up pages step by step, so nothing may hold on to the tree before it.
        drop(state);
        match (clearing, frozen) {
            (Some(clearing), _) => {
                let clear = || self.take_away(clearing.seqno);
                self.context.observer.observe(JobKind::Clear, clear)
            }
            (None, Some(frozen)) => {
                let flush = || self.checkpoint(&frozen, cleared);
                self.context.observer.observe(JobKind::Flush, flush)
            }
            (None, None) => Ok(()),
        }
    }

    /// The writer. Where a panic has left it in the middle of something, it is unknown what the file holds.
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(|left| {
            let mut writer = left.into_inner();
            writer.left_by_a_panic();
            writer
        })
    }

    /// Makes the file hold a tree without records, as a clear left it.
    fn take_away(&self, seqno: Seqno) -> Result<()> {
        self.context.host.sync_log(seqno)?;
        let mut writer = self.writer();
        // Another one may have come meanwhile, and others may come for ever: what the file has is gone with this one, too.
        if self.state.load().clearing.is_none_or(|clearing| clearing.seqno < seqno) {
            return Ok(());
        }
        let root = writer.clear(seqno)?;
        self.reach.fetch_max(seqno, Ordering::Release);
        self.change_and_let_go(|state| {
            (state.meta, state.unused) = (*writer.meta(), writer.space().unused());
            if state.clearing.take_if(|clearing| clearing.seqno == seqno).is_some() {
                state.root = self.for_readers(&root);
            }
            if let Some(later) = &mut state.clearing {
                later.oldest = later.oldest.max(seqno + 1);
            }
        });
        self.persisted.fetch_max(seqno, Ordering::Release);
        self.cut_end_if_can(&mut writer);
        Ok(())
    }

    /// Merges a frozen memtable into the tree, if the last clear is still the one with the number `cleared`.
    fn checkpoint(&self, frozen: &Frozen, cleared: Seqno) -> Result<()> {
        let Frozen { memtable, last } = frozen;
        let last = *last;
        let visibility = &self.context.visibility;
        // Snapshots that are taken from then on see all of it.
        self.jobs.wait_published(visibility, last)?;
        self.context.host.sync_log(last)?;
        let mut writer = self.writer();
        let stop = || self.jobs.is_stopping();
        let state = self.state.load_full();
        if state.cleared != cleared {
            return Ok(());
        }
        let mut root = Arc::clone(&state.root);
        drop(state);
        let mut counts = writer.meta().counts;
        let mut older: Vec<Older> = Vec::new();
        let seen = |root: &Arc<Root>| Older { root: Arc::clone(root), memtables: None };
        let mut after = root.seqno;
        let mut held = visibility.held_between(after, last);
        if planted(Bug::TreeIgnoresSnapshots) {
            held.clear();
        }
        // Looking for each of them in all the memtable would take as many passes, though little may have been written between them.
        let changed = changes::are_between(memtable.cursor(), after, &held, &stop)?;
        for (&seqno, is_changed) in held.iter().zip(changed) {
            if is_changed {
                // Who is told to stop finds out in there, where what is half done is taken back.
                let mut changes = Changes::new(memtable.cursor(), after, seqno)?;
                root = writer.snapshot_root(&root, &mut counts, &mut changes, seqno, &stop)?;
                older.push(seen(&root));
                after = seqno;
            } else if older.is_empty() {
                older.push(seen(&root));
            }
        }
        let mut changes = Changes::new(memtable.cursor(), after, last)?;
        // Without the log, or with trees in between, all is done at once.
        let in_steps = self.context.logged && held.is_empty();
        let mut older = Some(older);
        loop {
            let most_pages = if in_steps { step(&writer) } else { u64::MAX };
            let source = Source::Changes(&mut changes);
            let made = writer.rewrite(&root, counts, source, most_pages, &stop)?;
            let counts_for_all = made.is_complete || planted(Bug::StepCountsForAll);
            let persisted = if counts_for_all { last } else { writer.meta().persisted };
            root = writer.commit(&made, persisted, last)?;
            counts = made.counts;
            self.reach.fetch_max(last, Ordering::Release);
            let is_installed = self.install(&writer, &root, |state| {
                state.older.extend(older.take().into_iter().flatten());
                if made.is_complete {
                    let is_this = |oldest: &mut Frozen| Arc::ptr_eq(&oldest.memtable, memtable);
                    state.memtables.frozen.pop_if(is_this);
                }
            });
            if !is_installed {
                return Ok(());
            }
            if made.is_complete {
                break;
            }
        }
        self.persisted.fetch_max(last, Ordering::Release);
        memtable.set_flushed();
        self.flushes.fetch_add(1, Ordering::Relaxed);
        drop(root);
        self.cut_end_if_can(&mut writer);
        Ok(())
    }

    /// Lets readers see the tree that the file holds now, and what else changes with it. False if a clear has come that
    /// the file does not have: they go on seeing what that left.
    fn install(&self, writer: &Writer, root: &Arc<Root>, change: impl FnOnce(&mut State)) -> bool {
        let mut is_installed = false;
        self.change_and_let_go(|state| {
            (state.meta, state.unused) = (*writer.meta(), writer.space().unused());
            is_installed = state.clearing.is_none();
            if is_installed {
                state.root = self.for_readers(root);
                change(state);
            }
        });
        is_installed
    }

    /// Cuts many free pages off the end of the file. What was made before must not be made again if that fails.
    fn cut_end_if_can(&self, writer: &mut Writer) {
        if let Err(error) = self.cut_end(writer, false) {
            log::warn!("cannot cut off what is free: {error}");
        }
    }

    /// Cuts free pages off the end of the file; with `all`, until that makes the file no shorter. The list of free pages
    /// does not hold up those before it: it is moved.
    fn cut_end(&self, writer: &mut Writer, all: bool) -> Result<()> {
        loop {
            let end = writer.space().end();
            if all && let Some(root) = writer.move_list_from_end()? {
                self.install(writer, &root, |_| {});
            }
            if let Some(root) = writer.cut_end(all)? {
                self.install(writer, &root, |_| {});
            }
            if !all || writer.space().end() >= end {
                return Ok(());
            }
        }
    }

    /// Writes all leaves anew, filled. Then moves to the front what lies behind as many pages as are needed, and if values of
    /// several pages find no room there, because what is free lies in too many places, makes room for them.
    fn rewrite_all(&self) -> Result<()> {
        // Trees that nobody sees any more hold no pages from here on.
        self.change_and_let_go(|_| {});
        self.rewrite_leaves(&Which::All)?;
        self.move_to_front()?;
        for parts in PARTS {
            match self.close_holes(parts) {
                // It is as short as it gets on a disk that is so full.
                Err(Error::NoSpace { .. }) => break,
                closed => closed?,
            }
        }
        self.compactions.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Moves to the front what lies behind as many pages as are needed, until that makes the file no shorter.
    fn move_to_front(&self) -> Result<()> {
        loop {
            let PageCounts { end, used, .. } = self.cut_and_count()?;
            if end - used <= end / LEFT_SHARE {
                return Ok(());
            }
            self.rewrite_leaves(&Which::Behind(used))?;
            if self.cut_and_count()?.end >= end - end / LEFT_SHARE {
                return Ok(());
            }
        }
    }

    /// While much of the file is holes, empties one of so many parts of it after the other, from the front on, by moving what is
    /// in it to the end, so that the part is one hole, and has what lies at the end moved there. Values longer than a part stay.
    fn close_holes(&self, parts: u64) -> Result<()> {
        let whole = self.cut_and_count()?.end;
        let part = whole.div_ceil(parts);
        for start in (Pointer::FIRST_PAGE..whole).step_by(part as usize) {
            let PageCounts { end, used, pinned } = self.cut_and_count()?;
            // What readers keep cannot be emptied: the file would only grow.
            if end - used <= (end / HOLES_SHARE).max(HOLES) || pinned > end / HOLES_SHARE {
                break;
            }
            let emptied = self.rewrite_leaves(&Which::In { pages: start..start + part, end });
            if !matches!(emptied, Ok(()) | Err(Error::NoSpace { .. })) {
                return emptied;
            }
            self.move_to_front()?;
            emptied?;
        }
        Ok(())
    }

    /// Cuts free pages off the end of the file, and counts what it has then.
    fn cut_and_count(&self) -> Result<PageCounts> {
        let mut writer = self.writer();
        self.cut_end(&mut writer, true)?;
        let used = writer.used();
        let space = writer.space();
        Ok(PageCounts { end: space.end(), used, pinned: space.unused() - space.free() })
    }

    /// Writes leaves anew. Checkpoints go on between the steps.
    fn rewrite_leaves(&self, which: &Which) -> Result<()> {
        let cleared = self.state.load().cleared;
        let stop = || self.jobs.is_stopping();
        let mut from = None;
        loop {
            self.let_flush_go_first()?;
            let mut writer = self.writer();
            let state = self.state.load_full();
            match state.clearing {
                None => {}
                // Clears may come for ever. This one has taken away what was to be written anew.
                Some(clearing) if clearing.seqno > cleared => return Ok(()),
                Some(_) => continue,
            }
            let root = Arc::clone(&state.root);
            drop(state);
            let most_pages = step(&writer);
            let Meta { counts, persisted, reach, .. } = *writer.meta();
            let source: Source<'_, MemtableCursor> = Source::Leaves { from: &mut from, which };
            let made = writer.rewrite(&root, counts, source, most_pages, &stop)?;
            let next = writer.commit(&made, persisted, reach)?;
            self.install(&writer, &next, |_| {});
            if made.is_complete {
                return Ok(());
            }
        }
    }

    /// Waits for the checkpoint of the memtable that is due, if it gets on; for a clear that the file does not have in any
    /// case.
    fn let_flush_go_first(&self) -> Result<()> {
        let due = self.state.load().due();
        while self.persisted() < due {
            if let Some(trouble) = self.jobs.trouble_of(Work::Flush) {
                match self.state.load().clearing {
                    Some(_) => return Err(trouble),
                    None => break,
                }
            }
            self.jobs.stop_if_told()?;
            self.jobs.wait_a_while(A_MOMENT);
        }
        Ok(())
    }

    /// The file, reached through `layer` and cached as is asked for.
    fn reopen(&self, layer: Layer, most_cached: Option<u32>) -> Result<()> {
        let mut writer = self.writer();
        let wanted = cached_bytes(writer.file().page_size(), most_cached);
        let before = lock(&self.reached).memory.bytes();
        lock(&self.reached).memory.resize(wanted.max(before))?;
        let reopened = self.reopen_file(&mut writer, layer, most_cached);
        let mut reached = lock(&self.reached);
        reached.memory.resize(if reopened.is_ok() { wanted } else { before })?;
        reopened?;
        (reached.layer, reached.most_cached) = (layer, most_cached);
        Ok(())
    }

    fn reopen_file(
        &self,
        writer: &mut Writer,
        layer: Layer,
        most_cached: Option<u32>,
    ) -> Result<()> {
        let access = if self.context.read_only { Access::Read } else { Access::Write };
        let old = Arc::clone(writer.file());
        if !self.context.read_only {
            writer.sync()?;
        }
        let path = writer::path(&self.context.dir);
        let fs = &*self.context.fs;
        let file = fs.open(&path, access, layer)?;
        let out = writer::out(fs, &self.context.dir, access, layer, &file)?;
        let (identity, page_size) = (old.identity(), old.page_size());
        let (blocks, kept) = cache_for(&self.context, page_size, most_cached);
        let file = PageFile::new(file, out, &path, identity, page_size, blocks, kept);
        let file = Arc::new(file.locked_by(&self.context.lock));
        let seqno = self.state.load().root.seqno;
        let root = writer.set_file(file, seqno)?;
        self.install(writer, &root, |_| {});
        Ok(())
    }
}

/// How many pages a step takes.
fn step(writer: &Writer) -> u64 {
    let page_size = writer.file().page_size() as u64;
    let (usual, small) = STEP_BYTES;
    (much(usual, small) / page_size).max(writer.space().end() / STEP_SHARE).max(1)
}

/// The bytes of a keyspace's own cache.
fn cached_bytes(page_size: usize, most_cached: Option<u32>) -> usize {
    most_cached.map_or(0, |pages| pages as usize * page_size)
}

/// The memory for a keyspace's own cache.
fn memory_for(context: &Context, options: TreeOptions) -> Result<PageMemory> {
    let bytes = cached_bytes(options.page_size() as usize, options.max_cached_pages);
    PageMemory::new(&context.budget, bytes)
}

/// The cache of a keyspace: the database's, or one of its own. And memory for the inner nodes that are kept beside it.
fn cache_for(
    context: &Context,
    page_size: usize,
    most_cached: Option<u32>,
) -> (Arc<BlockCache>, Kept) {
    match most_cached {
        None => {
            let kept = Kept::shared(&context.budget, &context.open_files);
            (Arc::clone(&context.blocks), kept)
        }
        Some(pages) => {
            let kept = pages / KEPT_SHARE_OF_OWN;
            let cache = BlockCache::of_blocks(u64::from(pages - kept), page_size);
            (Arc::new(cache), Kept::of_its_own(kept as usize * page_size))
        }
    }
}

impl Clear for Store {
    fn clear(&self, _before: Seqno, seqno: Seqno) {
        let memtables = Memtables::new(MemtableKind::default(), &self.context.budget);
        self.change_and_let_go(|state| {
            state.clear(seqno, memtables);
            if self.context.read_only {
                // It is read when all has been replayed, and not changed any more.
                state.older.clear();
            }
        });
        self.schedule_flush();
    }
}

impl Engine for Store {
    fn make_writable(&self) -> Result<()> {
        self.writer().make_safe()
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
        let last = self.state.load().cut_up_to();
        if last == 0 {
            return Ok(());
        }
        self.jobs.forget_trouble(Work::Flush);
        self.schedule_flush();
        self.jobs.wait_until(|_| self.persisted() >= last, &[Work::Flush])
    }

    fn persisted(&self) -> Seqno {
        self.persisted.load(Ordering::Acquire)
    }

    fn reach(&self) -> Seqno {
        self.reach.load(Ordering::Acquire)
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

    fn get(&self, key: &[u8], point: ReadPoint<'_>) -> Result<Option<Slice>> {
        let state = self.state.load();
        let seqno = point.seqno();
        let (root, memtables) = state.tree_at(seqno);
        if let Some((trailer, value)) = memtables.and_then(|newer| newer.get(key, seqno)) {
            return Ok((trailer.kind() == Kind::Put).then_some(value));
        }
        root.get(key)
    }

    fn multi_get(&self, keys: &[&[u8]], point: ReadPoint<'_>) -> Result<Vec<Option<Slice>>> {
        let state = self.state.load();
        let seqno = point.seqno();
        let (root, memtables) = state.tree_at(seqno);
        let newer = |key: &[u8]| memtables.and_then(|newer| newer.get(key, seqno));
        let mut values = vec![None; keys.len()];
        let (mut left, mut places) = (Vec::new(), Vec::new());
        for (place, key) in keys.iter().enumerate() {
            match newer(key) {
                Some((trailer, value)) => {
                    values[place] = (trailer.kind() == Kind::Put).then_some(value);
                }
                None => {
                    left.push(*key);
                    places.push(place);
                }
            }
        }
        for (place, value) in places.into_iter().zip(root.multi_get(&left, &self.context.reader)?) {
            values[place] = value;
        }
        Ok(values)
    }

    fn cursor(&self, point: ReadPoint<'_>) -> Result<Box<dyn OrderedCursor>> {
        let state = self.state.load();
        let seqno = point.seqno();
        let (root, memtables) = state.tree_at(seqno);
        let tree = TreeCursor::new(Arc::clone(root));
        let memtables = memtables.into_iter().flat_map(Memtables::cursors);
        let mut parts: Vec<_> = memtables.map(PartCursor::Left).collect();
        if parts.is_empty() {
            return Ok(Box::new(tree));
        }
        parts.push(PartCursor::Right(tree));
        Ok(Box::new(Visible::new(Merge::new(parts), seqno)))
    }

    fn pressure(&self) -> u32 {
        0
    }

    fn trouble(&self) -> Option<Error> {
        self.jobs.trouble()
    }

    fn flush_trouble(&self) -> Option<Error> {
        self.jobs.trouble_of(Work::Flush)
    }

    fn compact(&self) -> Result<()> {
        self.persist()?;
        // What failed before may succeed now.
        self.jobs.forget_trouble(Work::Upkeep);
        let running = self.jobs.take_over(Work::Upkeep, &[Work::Upkeep])?;
        let done = self.rewrite_all();
        drop(running);
        done
    }

    fn let_go(&self) {
        if !self.state.load().older.is_empty() {
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
        let settled = |jobs: &Status| jobs.is_idle() && !self.is_flush_due();
        self.jobs.wait_until(settled, &[Work::Flush, Work::Upkeep])
    }

    fn prepare_close(&self, last: Seqno) -> Result<()> {
        self.cut(last);
        self.persist()?;
        let mut writer = self.writer();
        self.cut_end(&mut writer, true)?;
        // What confirms the newest tree may still be in a page cache.
        writer.file().out.flush()
    }

    fn verify(&self, report: &mut VerifyReport) {
        let mut writer = self.writer();
        // Without the state, whose memtables would stay in memory until all has been read.
        let root = {
            let state = self.state.load();
            report.entries += state.memtables.entries();
            state.clearing.is_none().then(|| Arc::clone(&state.root))
        };
        let root = match root.map_or_else(|| writer.present(), Ok) {
            Ok(root) => root,
            Err(error) => return report.problems.push(error),
        };
        // Closing puts such a one in its place.
        if let Err(error) = root.top() {
            return report.problems.push(error);
        }
        report.problems.extend(writer.check_meta().err());
        let subject = Subject { root, meta: *writer.meta(), unused: writer.space().list() };
        drop(writer);
        verify::verify(&subject, report);
    }

    fn active_bytes(&self) -> usize {
        self.state.load().memtables.active_bytes()
    }

    fn stats(&self) -> KeyspaceStats {
        let state = self.state.load_full();
        let State { meta, unused, .. } = *state;
        let file = &state.root.file;
        let (requests, reads) = file.counters();
        let page_size = file.page_size() as u64;
        KeyspaceStats {
            entries: meta.counts.records + state.memtables.entries(),
            disk_bytes: file.file.len().unwrap_or(meta.pages * page_size),
            memory_bytes: (state.memtables.memory() + file.memory() + state.root.memory()) as u64,
            flushes: self.flushes.load(Ordering::Relaxed),
            compactions: self.compactions.load(Ordering::Relaxed),
            tree: Some(TreeStats {
                page_size,
                levels: meta.top.map_or(0, |top| u32::from(top.level) + 1),
                records: meta.counts.records,
                leaves: meta.counts.leaves,
                inner_nodes: meta.counts.inner,
                overflow_pages: meta.counts.overflow_pages,
                free_pages: unused,
                requests,
                hits: requests.saturating_sub(reads),
            }),
            ..KeyspaceStats::new(EngineKind::Btree, lock(&self.reached).layer)
        }
    }

    fn layer(&self) -> Layer {
        lock(&self.reached).layer
    }

    fn set_layer(&self, layer: Layer) -> Result<()> {
        let most_cached = lock(&self.reached).most_cached;
        self.reopen(layer, most_cached)
    }

    fn set_max_cached_pages(&self, pages: Option<u32>) -> Result<()> {
        let layer = self.layer();
        self.reopen(layer, pages)
    }

    fn stop(&self) {
        self.jobs.stop();
        self.close_trees();
    }
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
