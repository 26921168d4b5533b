//! The one writer of the file: makes trees, and makes them what the file holds.
//!
//! A checkpoint, or one step of it:
//! 1. The new tree's nodes are written to pages that nobody uses, then the list of free pages.
//! 2. All of that is synced.
//! 3. The meta page that the last checkpoint did not write is written and synced: from here on the new tree counts.
//! 4. The other meta page confirms it. That is safe with the next sync.
//!
//! What fails before step 3 is undone. After a failure later it is unknown what the file holds: nothing is
//! written any more, and the database takes no more writes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use super::changes::Changes;
use super::file::{OVERFLOW_HEADER, PageFile};
use super::meta::{self, Counts, FreeList, MOST_GENERATIONS, Meta};
use super::node::Pointer;
use super::rewrite::{Pages, Rewrite, Rewritten, Source, overflow_pages};
use super::root::Root;
use super::space::Space;
use crate::base::Seqno;
use crate::contract::Host;
use crate::error::{Error, ErrorKind, Result};
use crate::iter::EntryCursor;
use crate::planted::{Bug, planted};
use crate::sync::much;
use crate::vfs::{Access, File, Fs, Layer, open_needed};

const NAME: &str = "tree";
/// Free pages at the end of the file are cut off when they are this share of it, and so many bytes, the second in simulations.
const CUT_SHARE: u64 = 8;
const CUT_BYTES: (u64, u64) = (if cfg!(test) { 64 << 10 } else { 16 << 20 }, 16 << 10);

/// The path of the file in a keyspace's directory.
pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Makes the file of a new, empty tree, safe from power loss but for its name.
pub(super) fn create(
    fs: &dyn Fs,
    dir: &Path,
    layer: Layer,
    identity: u64,
    page_size: usize,
) -> Result<()> {
    let file = fs.create(&path(dir), layer.for_writing())?;
    file.allocate(Pointer::FIRST_PAGE * page_size as u64)?;
    let meta = Meta::empty();
    write_meta(&*file, &meta, identity, page_size)?;
    confirm(&*file, &meta, identity, page_size)?;
    file.sync()
}

/// Opens the file, and gives what it holds.
pub(super) fn open(
    fs: &dyn Fs,
    dir: &Path,
    access: Access,
    layer: Layer,
    identity: u64,
) -> Result<(Arc<dyn File>, usize, Meta)> {
    let path = path(dir);
    let file = open_needed(fs, &path, access, layer)?;
    let (page_size, meta) = find_meta(&*file, &path, identity)?;
    Ok((file, page_size, meta))
}

/// What the meta pages of a file say: the size of a page, and what it holds.
fn find_meta(file: &dyn File, path: &Path, identity: u64) -> Result<(usize, Meta)> {
    let read = |offset: u64, len: usize| Ok(file.view(offset..offset + len as u64)?.to_vec());
    meta::find(path, identity, file.len()?, read)
}

/// The way by which the file is written that is read by way of `file`: page faults of a mapping would cost more than
/// calls.
pub(super) fn out(
    fs: &dyn Fs,
    dir: &Path,
    access: Access,
    layer: Layer,
    file: &Arc<dyn File>,
) -> Result<Arc<dyn File>> {
    match layer.for_writing() {
        same if same == layer => Ok(Arc::clone(file)),
        other => fs.open(&path(dir), access, other),
    }
}

fn write_meta(file: &dyn File, meta: &Meta, identity: u64, page_size: usize) -> Result<()> {
    let offset = meta.page() * page_size as u64;
    file.write_at(offset, &meta.encode(identity, page_size))?;
    file.sync()
}

fn confirm(file: &dyn File, meta: &Meta, identity: u64, page_size: usize) -> Result<()> {
    let (offset, bytes) = meta::confirmation(meta, identity, page_size);
    file.write_at(offset, &bytes)
}

/// The writer.
pub(super) struct Writer {
    file: Arc<PageFile>,
    host: Arc<dyn Host>,
    space: Space,
    /// Pages that are reserved on disk.
    reserved: u64,
    meta: Meta,
    /// The number of the checkpoint that comes next.
    generation: u64,
    /// The version of the last tree that was made.
    version: u64,
    /// Trees that may still be read, oldest first.
    roots: Vec<(u64, Weak<Root>)>,
    /// Set once it is unknown what the file holds.
    unknown: Option<Error>,
}

impl Writer {
    /// The writer of a file that has just been opened, and the tree in it.
    pub(super) fn new(
        file: Arc<PageFile>,
        meta: Meta,
        host: Arc<dyn Host>,
    ) -> Result<(Self, Arc<Root>)> {
        let free = match meta.free {
            None => Some(std::collections::BTreeMap::new()),
            Some(FreeList { page, len }) => {
                let list = file.overflow(Pointer::new(page, 1, meta.generation), len)?;
                Space::read_list(&list, meta.pages)
            }
        };
        let free = free.ok_or_else(|| {
            let at = meta.free.map_or(0, |free| file.offset(free.page));
            Error::corruption(file.path(), at, "the list of free pages says what cannot be")
        })?;
        let space = Space::new(meta.pages, free);
        let mut writer = Self {
            host,
            space,
            reserved: meta.pages,
            generation: meta.generation + 1,
            meta,
            version: 0,
            roots: Vec::new(),
            unknown: None,
            file,
        };
        let root = writer.root(meta.top, meta.persisted)?;
        Ok((writer, root))
    }

    pub(super) fn meta(&self) -> &Meta {
        &self.meta
    }

    pub(super) fn space(&self) -> &Space {
        &self.space
    }

    /// A tree that has been made, as of `seqno`.
    fn root(&mut self, top: Option<meta::Top>, seqno: Seqno) -> Result<Arc<Root>> {
        let root = Root::new(seqno, top, Arc::clone(&self.file), &self.space)?;
        self.roots.push((self.version, Arc::downgrade(&root)));
        Ok(root)
    }

    /// An error if it is unknown what the file holds.
    pub(super) fn check_known(&self) -> Result<()> {
        self.unknown.clone().map_or(Ok(()), Err)
    }

    /// An error if the meta pages do not say what the file holds, as they have it now. That is not asked while it is unknown.
    pub(super) fn check_meta(&self) -> Result<()> {
        if self.unknown.is_some() {
            return Ok(());
        }
        let file = &*self.file;
        let found = find_meta(&*file.file, file.path(), file.identity())?;
        match found == (file.page_size(), self.meta) {
            true => Ok(()),
            false => {
                let at = file.offset(self.meta.page());
                Err(Error::corruption(
                    file.path(),
                    at,
                    "the newest meta page is not what was written there",
                ))
            }
        }
    }

    /// Makes the tree that `source` makes of `root`; ends early when it has taken `most_pages`. On an error nothing has
    /// changed since the last checkpoint.
    pub(super) fn rewrite<C: EntryCursor>(
        &mut self,
        root: &Root,
        counts: Counts,
        source: Source<'_, C>,
        most_pages: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<Rewritten> {
        self.check_known()?;
        self.release();
        self.space.take_from(source.floor());
        let mut pages = Pages::new(
            &self.file,
            &mut self.space,
            &mut self.reserved,
            self.generation,
            self.version + 1,
        );
        let made = Rewrite::new(root, counts, source, &mut pages, most_pages, stop).run();
        self.space.take_from(0);
        match made {
            Ok(made) => {
                self.version += 1;
                Ok(made)
            }
            Err(error) => {
                self.undo();
                Err(error)
            }
        }
    }

    /// Undoes what was done for a checkpoint that has failed. What it has written to pages must not pass for what the next one is going to
    /// write there: that has another number, for the same meta page.
    fn undo(&mut self) {
        self.space.roll_back();
        self.generation += 2;
    }

    /// Makes a tree without records what the file holds, as of `seqno`: all pages of the last one are given up. Errors are
    /// those of [`commit`](Self::commit).
    pub(super) fn clear(&mut self, seqno: Seqno) -> Result<Arc<Root>> {
        self.check_known()?;
        self.release();
        self.version += 1;
        let page_size = self.file.page_size();
        // That is given up when the next one is written.
        let list = self.meta.free.map(|free| (free.page, overflow_pages(free.len, page_size)));
        self.space.give_all(list, self.version);
        self.commit(&Rewritten::EMPTY, seqno, seqno)
    }

    /// The tree that the file holds.
    pub(super) fn present(&mut self) -> Result<Arc<Root>> {
        self.root(self.meta.top, self.meta.persisted)
    }

    /// The tree as of `seqno` for snapshots that see it: it is in no checkpoint.
    pub(super) fn snapshot_root<C: EntryCursor>(
        &mut self,
        root: &Root,
        counts: &mut Counts,
        changes: &mut Changes<C>,
        seqno: Seqno,
        stop: &dyn Fn() -> bool,
    ) -> Result<Arc<Root>> {
        let made = self.rewrite(root, *counts, Source::Changes(changes), u64::MAX, stop)?;
        *counts = made.counts;
        self.root(made.top, seqno).inspect_err(|_| self.undo())
    }

    /// Makes a tree that has been made what the file holds. On an error nothing has changed since the last checkpoint,
    /// or it is unknown what the file holds, and the host has been told.
    pub(super) fn commit(
        &mut self,
        made: &Rewritten,
        persisted: Seqno,
        reach: Seqno,
    ) -> Result<Arc<Root>> {
        self.check_known()?;
        // What an earlier step put there stays there.
        let reach = reach.max(self.meta.reach);
        let prepared = self.prepare(made, persisted, reach);
        let (meta, root) = match prepared {
            Ok(prepared) => prepared,
            Err((error, is_sync)) => {
                self.undo();
                return Err(if is_sync { self.poison(&error) } else { error });
            }
        };
        let (identity, page_size) = (self.file.identity(), self.file.page_size());
        let file = &*self.file.out;
        let written = write_meta(file, &meta, identity, page_size)
            .and_then(|()| confirm(file, &meta, identity, page_size));
        if let Err(error) = written {
            self.undo();
            return Err(self.poison(&error));
        }
        self.generation = meta.generation + 1;
        self.meta = meta;
        self.space.commit();
        Ok(root)
    }

    /// Makes what was read of the file safe from power loss, before anything is built on it. The meta page may be in memory
    /// only, and after a failed sync the system may think it written: it is written again. What it leads to was synced
    /// before it was written for the first time.
    pub(super) fn make_safe(&self) -> Result<()> {
        if planted(Bug::SkipTreeMakeSafe) {
            return Ok(());
        }
        let (identity, page_size) = (self.file.identity(), self.file.page_size());
        write_meta(&*self.file.out, &self.meta, identity, page_size)?;
        confirm(&*self.file.out, &self.meta, identity, page_size)
    }

    /// Steps 1 and 2, and the tree as it is going to be read; says of an error whether it is that of a sync.
    fn prepare(
        &mut self,
        made: &Rewritten,
        persisted: Seqno,
        reach: Seqno,
    ) -> Result<(Meta, Arc<Root>), (Error, bool)> {
        self.expect_a_next_one().map_err(|error| (error, false))?;
        let free = self.write_free_list().map_err(|error| (error, false))?;
        // What the file holds back finds room or not, before it is asked what is safe.
        self.file.out.flush().map_err(|error| (error, false))?;
        if !planted(Bug::MetaBeforePages) {
            self.file.out.sync().map_err(|error| (error, true))?;
        }
        let generation = self.generation;
        let pages = self.space.end();
        let Rewritten { top, counts, .. } = *made;
        let root = self.root(top, persisted).map_err(|error| (error, false))?;
        Ok((Meta { generation, persisted, reach, top, pages, free, counts }, root))
    }

    /// An error if no opening would take what is written with the next number.
    fn expect_a_next_one(&self) -> Result<()> {
        let what = "no checkpoint can follow the one that the meta page names";
        let is_possible = self.generation < MOST_GENERATIONS;
        is_possible.then_some(()).ok_or_else(|| Error::corruption(self.file.path(), 24, what))
    }

    fn write_free_list(&mut self) -> Result<Option<FreeList>> {
        let page_size = self.file.page_size();
        if let Some(old) = self.meta.free {
            self.space.give(old.page, overflow_pages(old.len, page_size), self.version);
        }
        let list = self.free_list()?;
        if list.is_empty() {
            return Ok(None);
        }
        // Taking pages for it changes one run of the list, or adds one.
        let count = overflow_pages(list.len() as u64 + 32, page_size);
        let page = self.space.take(count, self.version);
        let mut list = self.free_list()?;
        // Its length says how many pages it has.
        let least = (count as usize - 1) * page_size + 1;
        list.resize(list.len().max(least.saturating_sub(OVERFLOW_HEADER)), 0);
        let mut pages = Pages::new(
            &self.file,
            &mut self.space,
            &mut self.reserved,
            self.generation,
            self.version,
        );
        pages.write_overflow(page, count, &list)?;
        Ok(Some(FreeList { page, len: list.len() as u64 }))
    }

    fn free_list(&self) -> Result<Vec<u8>> {
        self.space.list().ok_or_else(|| {
            let what = "a page is used twice, or used and free, or not one of the tree's";
            Error::corruption(self.file.path(), 0, what)
        })
    }

    /// Frees pages that nobody reads any more.
    fn release(&mut self) {
        self.roots.retain(|(_, root)| root.strong_count() > 0);
        // What was read from them has been read before they are written anew.
        fence(Ordering::Acquire);
        let mut read: Vec<u64> = self.roots.iter().map(|(version, _)| *version).collect();
        read.dedup();
        self.space.release(&read, self.version);
    }

    /// How many pages are in use, or read by trees that are still held.
    pub(super) fn used(&mut self) -> u64 {
        self.release();
        self.space.end() - self.space.free()
    }

    /// Cuts free pages off the end of the file: all, or if they are many. `None` if there is nothing to cut.
    pub(super) fn cut_end(&mut self, all: bool) -> Result<Option<Arc<Root>>> {
        self.check_known()?;
        self.release();
        let page_size = self.file.page_size() as u64;
        let unused = self.space.free_at_end();
        let least = much(CUT_BYTES.0, CUT_BYTES.1);
        let are_many = unused >= self.space.end() / CUT_SHARE && unused * page_size >= least;
        let root = if unused > 0 && (all || are_many) {
            self.space.cut_end();
            Some(self.commit_same()?)
        } else {
            None
        };
        let end = self.space.end();
        if all || root.is_some() {
            self.cut_off(end);
        }
        Ok(root)
    }

    /// Moves the list of free pages to the front, if the file ends with it and free pages lie right before it. `None` if
    /// there is nothing to move.
    pub(super) fn move_list_from_end(&mut self) -> Result<Option<Arc<Root>>> {
        self.check_known()?;
        self.release();
        let Some(list) = self.meta.free else { return Ok(None) };
        let pages = overflow_pages(list.len, self.file.page_size());
        let ends_file = list.page + pages == self.space.end();
        let has_place = self.space.place(pages).is_some_and(|place| place < list.page);
        if !(ends_file && has_place && self.space.is_free(list.page - 1)) {
            return Ok(None);
        }
        self.commit_same().map(Some)
    }

    /// Makes the tree what the file holds once more, with another list of free pages.
    fn commit_same(&mut self) -> Result<Arc<Root>> {
        // The last list may still be read by those who have the tree of this version.
        self.version += 1;
        let Meta { top, counts, persisted, reach, .. } = self.meta;
        let same = Rewritten { top, counts, is_complete: true };
        self.commit(&same, persisted, reach)
    }

    /// Gives back what is reserved behind `end`. If that cannot be done now, it is done another time.
    fn cut_off(&mut self, end: u64) {
        let (file, len) = (&self.file.file, self.file.offset(end));
        if file.len().is_ok_and(|present| present <= len) {
            return;
        }
        match file.truncate(len) {
            Ok(()) => self.reserved = end,
            Err(error) => {
                log::warn!("{} stays longer than it need be: {error}", file.path().display())
            }
        }
    }

    /// Makes all that was written safe from power loss, before the file is reached in another way.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.check_known()?;
        self.file.out.flush()?;
        self.file.out.sync().map_err(|error| self.poison(&error))
    }

    fn poison(&mut self, error: &Error) -> Error {
        let error = match error.kind() {
            ErrorKind::Poisoned => error.clone(),
            _ => {
                self.host.poison(error);
                Error::Poisoned { cause: error.to_string().into() }
            }
        };
        self.unknown = Some(error.clone());
        error
    }

    /// Takes note of a panic while the writer was locked: nothing is written any more.
    pub(super) fn left_by_a_panic(&mut self) {
        if self.unknown.is_none() {
            let error = Error::Poisoned { cause: "a panic while a tree was written".into() };
            self.host.poison(&error);
            self.unknown = Some(error);
            self.undo();
        }
    }

    /// Goes on with `file`, which is the same one reached in another way.
    pub(super) fn set_file(&mut self, file: Arc<PageFile>, seqno: Seqno) -> Result<Arc<Root>> {
        let root = Root::new(seqno, self.meta.top, Arc::clone(&file), &self.space)?;
        self.roots.push((self.version, Arc::downgrade(&root)));
        self.file = file;
        Ok(root)
    }

    pub(super) fn file(&self) -> &Arc<PageFile> {
        &self.file
    }
}
