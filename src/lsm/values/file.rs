//! A value file as versions know it, and its open form.
//!
//! A value is read with one call and checked each time: against its checksum, and against the key it is read for. Where the
//! file lends its bytes, what readers get is a part of the mapping. Values never enter the block cache: the page caches
//! below, the kernel's or those of a file layer, have them already, and a few values would drive out blocks that lead to
//! hundreds of them.
//!
//! Thread safety: any thread may read; the file is opened at most once at a time. It is removed when it is obsolete and the
//! last version or reader that holds it is gone; values that were lent keep the mapping alive, not the name.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use arc_swap::ArcSwapOption;

use super::record::{self, Damage, FRONT, HEADER, Owner};
use super::reference::Reference;
use crate::base::{Slice, View};
use crate::cache::{Closable, Place};
use crate::error::{Error, Result};
use crate::lsm::version::Home;
use crate::sync::Mutex;
use crate::vfs::{Access, File, Hint, open_needed, remove_obsolete};

/// The bytes that verifying reads at once, if a value is not larger.
const RUN: u64 = 1 << 20;

/// A value file of some version.
#[derive(Debug)]
pub(crate) struct ValueFile {
    pub(super) id: u64,
    pub(super) len: u64,
    home: Arc<Home>,
    open: ArcSwapOption<OpenValues>,
    opening: Mutex<()>,
    used: AtomicBool,
    obsolete: AtomicBool,
}

/// A value file that is open.
#[derive(Debug)]
pub(super) struct OpenValues {
    pub(super) file: Arc<dyn File>,
    identity: u64,
    len: u64,
    _place: Place,
}

impl ValueFile {
    /// The file with this number, which was written with so many bytes.
    pub(crate) fn new(id: u64, len: u64, home: Arc<Home>) -> Arc<Self> {
        Arc::new(Self {
            id,
            len,
            home,
            open: ArcSwapOption::empty(),
            opening: Mutex::new(()),
            used: AtomicBool::new(false),
            obsolete: AtomicBool::new(false),
        })
    }

    /// The number in its name, which no table of the keyspace has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The file's length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of all its records.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.len.saturating_sub(HEADER as u64)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.home.values_path(self.id)
    }

    /// Gives the open file to `read`, opening it if need be.
    #[inline]
    pub(super) fn read<R>(
        self: &Arc<Self>,
        read: impl FnOnce(&Arc<OpenValues>) -> Result<R>,
    ) -> Result<R> {
        if let Some(open) = &*self.open.load() {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return read(open);
        }
        read(&self.open_now()?)
    }

    /// Closes the file; its next reader opens it anew. One that is just being opened is waited for.
    pub(crate) fn let_go(&self) {
        let _one = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        self.give_back();
    }

    /// Closes the file, which nobody is just opening.
    fn give_back(&self) {
        let memory = self.close();
        if memory > 0 {
            self.home.open_files.closed(memory);
        }
    }

    /// Says that no later version holds this file: it is removed with the last reader.
    pub(crate) fn set_obsolete(&self) {
        self.obsolete.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn open_now(self: &Arc<Self>) -> Result<Arc<OpenValues>> {
        let _one = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = self.open.load_full() {
            return Ok(open);
        }
        let home = &self.home;
        let file = open_needed(&*home.fs, &self.path(), Access::Read, home.layer())?;
        let (owner, place) = (home.values_owner(self.id), home.open_files.place());
        let open = Arc::new(OpenValues::new(file, owner, self.len, place)?);
        self.used.store(true, Ordering::Relaxed);
        let weak: Weak<Self> = Arc::downgrade(self);
        let show = || self.open.store(Some(Arc::clone(&open)));
        home.open_files.opened(weak, open.memory(), show);
        Ok(open)
    }
}

impl OpenValues {
    /// What `file` holds, which must be `len` bytes long.
    fn new(file: Arc<dyn File>, owner: Owner, len: u64, place: Place) -> Result<Self> {
        let found = file.len()?;
        if found != len {
            let what = format!("the value file is {found} bytes long, not {len}");
            return Err(Error::corruption(file.path(), found.min(len), what));
        }
        let header = file.view(0..len.min(HEADER as u64))?;
        record::check_header(&header, owner, file.path())?;
        file.advise(0..len, Hint::Random);
        Ok(Self { file, identity: owner.file, len, _place: place })
    }

    /// Where the record that is referred to lies; an error if it would be outside.
    #[inline]
    pub(super) fn range(&self, reference: &Reference) -> Result<std::ops::Range<u64>> {
        match reference.end().filter(|&end| end <= self.len) {
            Some(end) => Ok(reference.offset..end),
            None => Err(self.damaged(
                Damage("a table refers to a value that is not in the file"),
                self.len.min(reference.offset),
            )),
        }
    }

    /// The value of a key with this hash.
    #[inline]
    pub(super) fn value(&self, reference: &Reference, hash: u64) -> Result<Slice> {
        let stored = self.file.view(self.range(reference)?)?;
        self.value_in(stored, reference, hash)
    }

    /// The value in its record, which was read from where the reference says.
    #[inline]
    pub(super) fn value_in(&self, stored: View, reference: &Reference, hash: u64) -> Result<Slice> {
        let damage = match record::check(&stored, self.identity, reference.offset) {
            Ok(found) if found == hash => {
                let end = stored.len();
                return Ok(Slice::from_view(stored, FRONT..end));
            }
            Ok(_) => Damage("a table refers to the value of another key"),
            Err(damage) => damage,
        };
        Err(self.damaged(damage, reference.offset))
    }

    /// Reads the whole file and checks every record.
    pub(super) fn verify(&self) -> Result<()> {
        let mut at = HEADER as u64;
        while at < self.len {
            let run = self.file.view(at..self.len.min(at + RUN))?;
            let whole = self.verify_run(&run, at)?;
            at += match whole {
                0 => self.verify_large(at)?,
                whole => whole,
            };
        }
        Ok(())
    }

    /// Checks the records that lie whole in `run`, read from `start`, and gives their bytes.
    fn verify_run(&self, run: &[u8], start: u64) -> Result<u64> {
        let mut done = 0;
        while let Some(front) = run[done..].first_chunk::<FRONT>() {
            let len = FRONT as u64 + record::len_of(front);
            let Some(bytes) = run[done..].get(..len as usize) else { break };
            let at = start + done as u64;
            record::check(bytes, self.identity, at).map_err(|damage| self.damaged(damage, at))?;
            done += bytes.len();
        }
        Ok(done as u64)
    }

    /// Checks one record that is larger than a run, and gives its bytes.
    fn verify_large(&self, at: u64) -> Result<u64> {
        let cut_off = || self.damaged(Damage("a record is cut off"), at);
        let behind = at.checked_add(FRONT as u64).filter(|&behind| behind <= self.len);
        let front = self.file.view(at..behind.ok_or_else(cut_off)?)?;
        let len = FRONT as u64 + record::len_of(front.first_chunk().ok_or_else(cut_off)?);
        let end = at.checked_add(len).filter(|&end| end <= self.len).ok_or_else(cut_off)?;
        let bytes = self.file.view(at..end)?;
        record::check(&bytes, self.identity, at).map_err(|damage| self.damaged(damage, at))?;
        Ok(len)
    }

    #[cold]
    fn damaged(&self, damage: Damage, offset: u64) -> Error {
        Error::corruption(self.file.path(), offset, damage.0)
    }

    /// The bytes of memory that it takes while it is open.
    fn memory(&self) -> usize {
        size_of::<Self>() + self.file.path().as_os_str().len()
    }
}

impl Home {
    /// Whose value file `id` is.
    pub(super) fn values_owner(&self, id: u64) -> Owner {
        Owner { keyspace: self.identity, id, file: self.identity_of(id) }
    }
}

impl Closable for ValueFile {
    fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    fn close(&self) -> usize {
        self.open.swap(None).map_or(0, |open| open.memory())
    }
}

impl Drop for ValueFile {
    fn drop(&mut self) {
        self.give_back();
        if self.obsolete.load(Ordering::Relaxed) {
            remove_obsolete(&*self.home.fs, &self.path());
        }
    }
}
