//! The hash engine: records in append-only segments, and an index in memory that knows where each is.
//!
//! The design is that of Bitcask (Sheehy and Smith, 2010) and of FASTER's mutable tail (Chandramouli et al., 2018):
//! writes go to a segment in memory, the tail, whose full predecessors are written to files in the background, each
//! with one sequential write; a get is one probe of the index and at most one read.
//!
//! Readers take no lock: they load the table of segments, probe the index, and read the record; what changed
//! meanwhile is noticed (see [`slots`](super::slots) and [`memory`](super::memory)), and they start again. One
//! writer at a time, the commit path or the reclaimer, changes the index and the tail under `writer`. Segments are
//! written by the flush thread alone. No lock but `files` is held over I/O.
//!
//! Order of locks: `files`, then `writer`, then `sealed`; the lock of [`jobs`](crate::jobs), then `sealed`.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use super::checkpoint::{self, Checkpoint};
use super::index::{Entry, Found as Candidates, Index, Version as Seen};
use super::manifest::{CheckpointMeta, Edit, Manifest};
use super::record::UNIT;
use super::scan::Scan;
use super::segment::{Found, Home, Records, Segment};
use super::slots::{CurrentSlots, MOST_SLOTS, Slots};
use super::upkeep::BYTES_PER_ENTRY;
use super::writer::{Place, Put, Sealed, Writer};
use crate::base::Kind;
use crate::base::hash::hash64;
use crate::base::{ReadPoint, Seqno, Slice, Trailer};
use crate::contract::{Context, Engine, Write};
use crate::error::{Error, ErrorKind, Result};
use crate::events::{Job, JobKind};
use crate::iter::{OrderedCursor, UnorderedCursor};
use crate::jobs::{Jobs, Status, Work};
use crate::log::AppendError;
use crate::options::EngineKind;
use crate::stats::{KeyspaceStats, VerifyReport};
use crate::sync::{Mutex, MutexGuard};
use crate::vfs::{Layer, PathKind, remove_leftover};

/// The units of a segment: half of what a memtable may take, within these bounds.
const SEGMENT_UNITS: std::ops::RangeInclusive<usize> = (1 << 20) / UNIT..=(64 << 20) / UNIT;
/// How long those wait who look again and again.
pub(super) const A_MOMENT: Duration = Duration::from_millis(1);
/// No writer may go on.
const STOP: u32 = 1000;

/// What may be done once all segments up to `after` are in files.
pub(super) struct Deferred {
    pub(super) after: u64,
    /// Segments that hold nothing any more.
    pub(super) emptied: Vec<Arc<Segment>>,
    pub(super) checkpoint: Option<CheckpointMeta>,
}

/// What the manifest lock guards.
pub(super) struct Files {
    pub(super) manifest: Manifest,
    pub(super) deferred: Vec<Deferred>,
    /// Set once it is unknown what the manifest on disk says: nothing may be changed on disk from then on.
    pub(super) unknown: Option<Error>,
}

impl Files {
    fn check_known(&self) -> Result<()> {
        self.unknown.clone().map_or(Ok(()), Err)
    }
}

/// A keyspace kept in a hash table.
pub(crate) struct Store {
    pub(super) context: Context,
    pub(super) home: Arc<Home>,
    pub(super) index: Index,
    pub(super) slots: CurrentSlots,
    pub(super) writer: Mutex<Writer>,
    pub(super) files: Mutex<Files>,
    sealed: Mutex<VecDeque<Sealed>>,
    persisted: AtomicU64,
    pub(super) jobs: Jobs,
    pub(super) upkeep: Mutex<super::upkeep::State>,
    /// How far writers are to be slowed down for upkeep to keep up.
    pub(super) pressure: AtomicU32,
    /// Bytes that the budget knows the index to take, and what upkeep remembers of it.
    charged: AtomicU64,
    charged_beside: AtomicU64,
    flushes: AtomicU64,
    pub(super) reclaimed: AtomicU64,
    /// How many scans there are. It rises under the writer lock: no record is moved while there is one.
    pub(super) scans: AtomicUsize,
    /// The process that opened it.
    process: u32,
    this: Weak<Self>,
}

impl Store {
    /// Makes the files of a new, empty keyspace in its directory, which is made anew if an interrupted
    /// creation has left one.
    pub(crate) fn create(context: Context) -> Result<Arc<Self>> {
        let home = home(&context);
        context.make_directory()?;
        let manifest = Manifest::create(&home.fs, &home.dir, context.identity)?;
        Ok(Self::new(context, home, manifest, 0))
    }

    /// Opens a keyspace where it has persisted: loads the index's checkpoint, and indexes the segments behind it.
    /// Changes nothing.
    pub(crate) fn open(context: Context) -> Result<Arc<Self>> {
        let home = home(&context);
        let manifest = Manifest::open(&*home.fs, &home.dir, context.identity)?;
        check_files(&home, &manifest)?;
        let contents = manifest.contents.clone();
        let checkpoint =
            contents.checkpoint.map(|meta| Checkpoint::open(&home, meta)).transpose()?;
        // A file may claim to be of any length, and indexes grow.
        let most = context.budget.indexes_left() / BYTES_PER_ENTRY;
        let expected = checkpoint.as_ref().map_or(0, Checkpoint::entries).min(most as u64);
        let store = Self::new(context, home, manifest, expected);
        let covered = contents.checkpoint.map_or(0, |checkpoint| checkpoint.covers);
        let segments: Vec<_> = contents
            .segments
            .values()
            .map(|meta| {
                let figures = Segment::figures_of(meta);
                Segment::in_file(meta, contents.persisted, &store.home, figures)
            })
            .collect();
        store.slots.change(&[], &segments);
        let slots = store.slots.load();
        let mut writer = lock(&store.writer);
        if let Some(checkpoint) = checkpoint {
            checkpoint.load(|hash, entry| {
                // A segment that has gone since had nothing that was needed and is not in a later segment.
                if slots.segment(entry.address()).is_some_and(|segment| segment.id <= covered) {
                    writer.index.insert(&store.index, hash, entry);
                }
            })?;
        }
        for segment in segments.iter().filter(|segment| segment.id > covered) {
            let mut records = Records::new(Arc::clone(segment));
            while let Some((at, record)) = records.next()? {
                let units = record.front.lengths.units();
                let is_tombstone = record.front.trailer.kind() == Kind::Delete;
                let entry = Entry::new(segment.address(at), units as u32, is_tombstone);
                writer.index.insert(&store.index, hash64(record.key()), entry);
                segment.figures.opened(entry, Some(units));
            }
        }
        writer.look_at_opened(&store.index, &slots, covered);
        drop(writer);
        store.charge_index();
        Ok(store)
    }

    fn new(context: Context, home: Arc<Home>, manifest: Manifest, expected: u64) -> Arc<Self> {
        let (index, index_writer) = Index::new(expected);
        let units = context.budget.memtable / 2 / UNIT;
        let units = units.clamp(*SEGMENT_UNITS.start(), *SEGMENT_UNITS.end());
        let contents = &manifest.contents;
        let persisted = contents.persisted;
        let last_segment = contents.segments.keys().next_back().copied().unwrap_or(0);
        let writer = Writer::new(index_writer, units, contents.next_id, last_segment, persisted);
        Arc::new_cyclic(|this| Self {
            home,
            index,
            slots: CurrentSlots::new(),
            writer: Mutex::new(writer),
            files: Mutex::new(Files { manifest, deferred: Vec::new(), unknown: None }),
            sealed: Mutex::default(),
            persisted: AtomicU64::new(persisted),
            jobs: Jobs::new(&context),
            upkeep: Mutex::default(),
            pressure: AtomicU32::new(0),
            charged: AtomicU64::new(0),
            charged_beside: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
            scans: AtomicUsize::new(0),
            process: std::process::id(),
            this: Weak::clone(this),
            context,
        })
    }

    pub(super) fn place(&self) -> Place<'_> {
        Place {
            index: &self.index,
            slots: &self.slots,
            budget: &self.context.budget,
            visibility: &self.context.visibility,
        }
    }

    /// Tells the budget how large the index is, and what is remembered of it.
    pub(super) fn charge_index(&self) {
        let remembered = lock(&self.upkeep).memory() as u64;
        let index = self.index.memory() as u64;
        for (charged, now) in [(&self.charged, index), (&self.charged_beside, remembered)] {
            let before = charged.swap(now, Ordering::Relaxed);
            self.context.budget.resize_index(before as usize, now as usize);
        }
    }

    /// Whether no more keys can be put. What the index has taken it keeps, so that places in it that are free count even if
    /// nothing is left in the budget.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.takes_no_more(self.context.budget.indexes_left_for_puts())
    }

    /// Whether no more keys can be deleted.
    fn is_full_for_deletes(&self) -> bool {
        self.takes_no_more(self.context.budget.indexes_left())
    }

    /// Whether an entry more makes the index larger, and `left` bytes are too few for that.
    #[inline]
    fn takes_no_more(&self, left: usize) -> bool {
        // The budget is told when a segment is full.
        if left > self.context.budget.memtable.max(*SEGMENT_UNITS.start() * UNIT) {
            return false;
        }
        let untold =
            self.index.memory().saturating_sub(self.charged.load(Ordering::Relaxed) as usize);
        untold >= left && self.index.entries() >= self.index.capacity()
    }

    /// Why the index has no room, unless work that is under way or due may make some.
    fn trouble_of_index(&self) -> Option<Error> {
        // The next put would do it, which waits.
        lock(&self.writer).drop_superseded(self.place());
        let is_full = self.is_full() && self.jobs.is_idle() && !self.may_make_room();
        // It may just have made some.
        if !is_full || !self.is_full() {
            self.schedule_upkeep();
            return None;
        }
        Some(Error::Invalid(format!(
            "the indexes of hash keyspaces take {} bytes, all that the memory budget of {} bytes has \
             for them: delete keys, or open the database with a larger memory_budget",
            self.context.budget.indexes_used(),
            self.context.budget.total
        )))
    }

    /// Whether there is something to do that may take entries out of the index.
    fn may_make_room(&self) -> bool {
        let has_checkpoint = |deferred: &Deferred| deferred.checkpoint.is_some();
        self.first_sealed().is_some()
            || lock(&self.writer).has_superseded()
            || lock(&self.files).deferred.iter().any(has_checkpoint)
            || self.is_upkeep_due()
    }

    // ---- reading ----

    /// The value of `key` at `point`.
    #[inline]
    pub(super) fn look_up(
        &self,
        hash: u64,
        key: &[u8],
        point: ReadPoint<'_>,
    ) -> Result<Option<Slice>> {
        let version = self.find_version(hash, key, point)?;
        Ok(version.filter(|(_, trailer, _)| trailer.kind() == Kind::Put).map(|(.., value)| value))
    }

    /// The newest version of `key` at `point`.
    ///
    /// What is judged is the set of entries that the index had at one moment: a record in memory counts only if
    /// its entry was still there after it was read, and one in a file stays what it is while the table of segments is
    /// held. Starts again for as long as that fails.
    pub(super) fn find_version(
        &self,
        hash: u64,
        key: &[u8],
        point: ReadPoint<'_>,
    ) -> Result<Option<Version>> {
        let mut found = Candidates::new();
        loop {
            let seqno = point.seqno();
            let slots = self.slots.load();
            let seen = self.index.find(hash, &mut found);
            let candidates = found.as_slice();
            if candidates.is_empty() {
                return Ok(None);
            }
            let look = match self.slots.is_current(&slots) {
                true => self.look(&slots, candidates, seen, key, seqno)?,
                false => None,
            };
            match look {
                // A write behind `seqno` may have had the one before it dropped, if it has been published since.
                Some(Look { newer, .. }) if newer > 0 && point.seqno() != seqno => {}
                Some(Look { best, .. }) => return Ok(best),
                None => std::hint::spin_loop(),
            }
        }
    }

    /// Looks for the newest version of `key` up to `seqno` among the candidates that were `seen`. Of two versions in
    /// different segments, the one in the segment with the larger number is newer: older ones are not read. `None` if a
    /// candidate in memory may have become something else before it was read.
    #[inline]
    fn look(
        &self,
        slots: &Slots,
        candidates: &[Entry],
        seen: Seen<'_>,
        key: &[u8],
        seqno: Seqno,
    ) -> Result<Option<Look>> {
        let segment = |entry: Entry| {
            let segment = slots.segment(entry.address());
            segment.ok_or_else(|| no_segment(&self.home))
        };
        let mut look = Look { best: None, newer: 0 };
        if let [entry] = *candidates {
            let segment = segment(entry)?;
            let is_read = look.take(entry, segment.read(entry, key)?, seqno);
            let is_valid = is_read && (segment.file().is_some() || seen.is_current());
            return Ok(is_valid.then_some(look));
        }
        let mut sorted = Vec::with_capacity(candidates.len());
        for &entry in candidates {
            sorted.push((segment(entry)?, entry));
        }
        sorted.sort_by_key(|(segment, _)| std::cmp::Reverse(segment.id));
        let mut best_segment = None;
        // Whether memory was read that is not known to be valid. Files, which are older, take longer to read.
        let mut in_memory = false;
        for (segment, entry) in sorted {
            if best_segment.is_some_and(|best| best != segment.id) {
                break;
            }
            if in_memory && segment.file().is_some() {
                if !seen.is_current() {
                    return Ok(None);
                }
                in_memory = false;
            }
            in_memory |= segment.memory().is_some();
            if !look.take(entry, segment.read(entry, key)?, seqno) {
                return Ok(None);
            }
            best_segment = look.best.as_ref().map(|_| segment.id);
        }
        Ok((!in_memory || seen.is_current()).then_some(look))
    }

    // ---- background ----

    fn schedule_flush(&self) {
        self.jobs.schedule(Work::Flush, &self.this, Self::flush_one);
    }

    /// Whether this process opened it, and not one that it was forked from, whose locks may be for good here.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Says how pressing upkeep is, and has what is due done.
    pub(super) fn schedule_upkeep(&self) {
        self.weigh();
        if self.is_upkeep_due() {
            self.jobs.schedule(Work::Upkeep, &self.this, Self::tend_once);
        }
    }

    /// The flush job: writes what was sealed together, then makes room for other keyspaces.
    fn flush_one(&self) {
        let Some(flushing) = self.jobs.begin(Work::Flush) else { return };
        let sealed = lock(&self.sealed).front().cloned();
        if let Some(sealed) = sealed
            && flushing.persistently(|| self.flush_observed(&sealed)).is_some()
        {
            // Those who wait want its memory.
            drop(sealed);
            self.jobs.notify();
            self.schedule_upkeep();
            self.context.host.persisted();
        }
        drop(flushing);
        if self.first_sealed().is_some() && self.jobs.trouble_of(Work::Flush).is_none() {
            self.schedule_flush();
        }
    }

    /// The upkeep job: one piece of work, then room for other keyspaces.
    fn tend_once(&self) {
        let Some(tending) = self.jobs.begin(Work::Upkeep) else { return };
        let tend = || self.context.observer.observe(JobKind::Upkeep, || self.tend());
        let finished = tending.persistently(tend);
        drop(tending);
        // What is damaged was put off.
        if finished.is_some() || self.damage().is_some() {
            self.schedule_upkeep();
        }
    }

    fn flush_observed(&self, sealed: &Sealed) -> Result<()> {
        let mut job = self.context.observer.begin(JobKind::Flush, Vec::new(), None);
        let flushed = self.flush(sealed, &mut job);
        job.end(flushed)
    }

    /// Writes sealed segments to files and installs these.
    fn flush(&self, sealed: &Sealed, job: &mut Job) -> Result<()> {
        // The files may be there, and needed.
        lock(&self.files).check_known()?;
        // The next put would do it, which may never come.
        lock(&self.writer).drop_superseded(self.place());
        let mut added = Vec::new();
        let written = sealed.segments.iter().try_for_each(|segment| {
            added.push(segment.write_to_file(&self.home)?);
            Ok(())
        });
        let written = written
            .and_then(|()| self.home.fs.sync_dir(&self.home.dir))
            .and_then(|()| self.context.host.sync_log(sealed.last));
        let remove = |ids: &mut dyn Iterator<Item = u64>| {
            for id in ids {
                if let Err(error) = self.home.fs.remove(&self.home.path(id)) {
                    log::debug!("a segment that is to be written again stays: {error}");
                }
            }
        };
        if let Err(error) = written {
            remove(&mut added.iter().map(|meta| meta.id));
            return Err(error);
        }
        let last = sealed.segments.last().map_or(0, |segment| segment.id);
        let files: Vec<_> = sealed
            .segments
            .iter()
            .zip(&added)
            .map(|(segment, meta)| {
                Segment::in_file(meta, sealed.last, &self.home, Arc::clone(&segment.figures))
            })
            .collect();
        job.wrote(added.iter().map(|meta| meta.len).sum());
        let edit = Edit { persisted: sealed.last, added, ..Edit::default() };
        if let Err(error) = self.install(edit, &sealed.segments, &files, last) {
            if error.kind() != ErrorKind::Poisoned {
                remove(&mut files.iter().map(|segment| segment.id));
            }
            return Err(error);
        }
        self.persisted.fetch_max(sealed.last, Ordering::Release);
        lock(&self.sealed).pop_front();
        job.done();
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Records a change in the manifest and lets readers see it: segments in files, and with it what was deferred until all segments
    /// up to `last` are in files. If the record is refused, for want of space or open files, nothing has changed. If recording fails otherwise, it is
    /// unknown what is on disk: writes are refused from then on, and no file that either outcome needs is removed.
    pub(super) fn install(
        &self,
        mut edit: Edit,
        in_memory: &[Arc<Segment>],
        in_files: &[Arc<Segment>],
        last: u64,
    ) -> Result<()> {
        let mut files = lock(&self.files);
        files.check_known()?;
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut files.deferred)
            .into_iter()
            .partition(|deferred| deferred.after <= last);
        let emptied: Vec<_> = due.iter().flat_map(|deferred| &deferred.emptied).cloned().collect();
        edit.removed.extend(emptied.iter().map(|segment| segment.id));
        edit.checkpoint = due.iter().filter_map(|deferred| deferred.checkpoint).next_back();
        if edit.removed.is_empty() && edit.added.is_empty() && edit.checkpoint.is_none() {
            files.deferred = later;
            return Ok(());
        }
        let old = files.manifest.contents.checkpoint;
        let next_id = lock(&self.writer).next_id;
        if let Err(error) = files.manifest.record(&edit, next_id) {
            files.deferred = due.into_iter().chain(later).collect();
            let AppendError::Unknown(error) = error else { return Err(error.into()) };
            self.context.host.poison(&error);
            files.unknown = Some(Error::Poisoned { cause: error.to_string().into() });
            return files.check_known();
        }
        files.deferred = later;
        let writer = lock(&self.writer);
        // A file may need fewer slots than the memory did.
        let replaced: Vec<_> = emptied.iter().chain(in_memory).cloned().collect();
        self.slots.change(&replaced, in_files);
        drop(writer);
        in_memory.iter().filter_map(|segment| segment.memory()).for_each(|old| old.set_flushed());
        for segment in &emptied {
            segment.file().into_iter().for_each(|file| file.set_obsolete());
        }
        let given_up = due.iter().filter_map(|deferred| deferred.checkpoint).chain(old);
        for checkpoint in
            given_up.filter(|given_up| Some(given_up.id) != edit.checkpoint.map(|c| c.id))
        {
            if edit.checkpoint.is_some() {
                checkpoint::remove(&self.home, checkpoint.id);
            }
        }
        Ok(())
    }

    // ---- sealing ----

    /// The first segment that is sealed and not in a file.
    pub(super) fn first_sealed(&self) -> Option<u64> {
        Some(lock(&self.sealed).front()?.segments.first()?.id)
    }

    /// Seals what `seal` takes from the writer, and has it written to files. Nothing is ever in neither place.
    pub(super) fn seal(&self, seal: impl FnOnce(&mut Writer) -> Option<Sealed>) {
        let mut writer = lock(&self.writer);
        let Some(sealed) = seal(&mut writer) else { return };
        lock(&self.sealed).push_back(sealed);
        drop(writer);
        self.charge_index();
        self.schedule_flush();
    }
}

impl Engine for Store {
    fn make_writable(&self) -> Result<()> {
        let mut files = lock(&self.files);
        files.manifest.make_writable(&self.home.fs, &self.home.dir)?;
        let contents = &files.manifest.contents;
        let checkpoint =
            contents.checkpoint.map(|checkpoint| checkpoint::path(&self.home, checkpoint.id));
        let mut known: HashSet<_> =
            contents.segments.keys().map(|&id| self.home.path(id)).collect();
        known.extend(checkpoint);
        for name in self.home.fs.list(&self.home.dir)? {
            let path = self.home.dir.join(&name);
            if is_own(&name) && !known.contains(&path) {
                remove_leftover(&*self.home.fs, &path)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn apply(&self, write: &Write<'_>) {
        let hash = hash64(write.key);
        let trailer = Trailer::new(write.seqno, write.kind);
        let put = Put { hash, trailer, key: write.key, value: write.value };
        lock(&self.writer).put(self.place(), &put);
    }

    #[inline]
    fn apply_alone(&self, write: &Write<'_>) {
        let hash = hash64(write.key);
        let trailer = Trailer::new(write.seqno, write.kind);
        let put = Put { hash, trailer, key: write.key, value: write.value };
        self.seal(|writer| {
            writer.put(self.place(), &put);
            writer.end_batch(write.seqno)
        });
    }

    #[inline]
    fn prefetch(&self, key: &[u8]) {
        self.index.prefetch(hash64(key));
    }

    #[inline]
    fn end_batch(&self, last: Seqno) {
        self.seal(|writer| writer.end_batch(last));
    }

    fn cut(&self, last: Seqno) {
        self.seal(|writer| writer.seal(last));
    }

    fn persist(&self) -> Result<()> {
        // What upkeep moves meanwhile is sealed behind it and not waited for.
        let last = lock(&self.sealed).back().and_then(|sealed| Some(sealed.segments.last()?.id));
        let Some(last) = last else { return Ok(()) };
        self.jobs.forget_trouble(Work::Flush);
        self.schedule_flush();
        let done = |_: &Status| self.first_sealed().is_none_or(|first| first > last);
        self.jobs.wait_until(done, &[Work::Flush])
    }

    fn persisted(&self) -> Seqno {
        self.persisted.load(Ordering::Acquire)
    }

    fn oldest_unpersisted(&self) -> Option<Seqno> {
        let writer = lock(&self.writer);
        let sealed = lock(&self.sealed);
        sealed.iter().find_map(|sealed| sealed.oldest).or(writer.oldest())
    }

    fn oldest_uncut(&self) -> Option<Seqno> {
        lock(&self.writer).oldest()
    }

    #[inline]
    fn get(&self, key: &[u8], point: ReadPoint<'_>) -> Result<Option<Slice>> {
        self.look_up(hash64(key), key, point)
    }

    fn multi_get(&self, keys: &[&[u8]], point: ReadPoint<'_>) -> Result<Vec<Option<Slice>>> {
        self.look_up_many(keys, point)
    }

    fn cursor(&self, _: ReadPoint<'_>) -> Result<Box<dyn OrderedCursor>> {
        Err(Error::Unsupported(
            "a hash keyspace has no order: it has no cursors, ranges and prefixes; read all of it with `iter`"
                .into(),
        ))
    }

    fn scan(&self, seqno: Seqno) -> Result<Box<dyn UnorderedCursor>> {
        let this = self.this.upgrade().ok_or(Error::Closed)?;
        Ok(Box::new(Scan::new(this, seqno)))
    }

    fn count(&self) -> Option<u64> {
        let slots = self.slots.load();
        let mut writer = lock(&self.writer);
        let is_quiet = writer.is_quiet(self.place());
        let resolved = || slots.segments().iter().all(|segment| segment.figures.is_resolved());
        (is_quiet && self.slots.is_current(&slots) && resolved())
            .then(|| self.index.entries() - writer.tombstones)
    }

    fn pressure(&self) -> u32 {
        if self.is_full() || self.slots.is_nearly_full() {
            return STOP;
        }
        self.upkeep_pressure()
    }

    fn pressure_on_deletes(&self) -> u32 {
        if self.is_full_for_deletes() || self.slots.is_nearly_full_for_deletes() {
            return STOP;
        }
        self.upkeep_pressure()
    }

    fn trouble(&self) -> Option<Error> {
        self.jobs.trouble().or_else(|| {
            if self.is_full() {
                return self.trouble_of_index();
            }
            let full = self.slots.is_nearly_full();
            full.then(|| Error::Invalid(format!("a hash keyspace holds up to {MOST_SLOTS} MiB")))
        })
    }

    fn flush_trouble(&self) -> Option<Error> {
        self.jobs.trouble_of(Work::Flush)
    }

    fn compact(&self) -> Result<()> {
        self.persist()?;
        self.compact_all()
    }

    fn let_go(&self) {
        self.schedule_upkeep();
    }

    fn settle(&self) -> Result<()> {
        if self.context.read_only {
            return Ok(());
        }
        loop {
            let is_idle = self.jobs.is_idle();
            if let Some(trouble) = self.jobs.trouble() {
                return Err(trouble);
            }
            let is_flush_due = !lock(&self.sealed).is_empty();
            if is_idle && !is_flush_due && !self.is_upkeep_due() {
                return self.damage().map_or(Ok(()), Err);
            }
            self.jobs.stop_if_told()?;
            if is_flush_due {
                self.schedule_flush();
            }
            self.schedule_upkeep();
            self.jobs.wait_a_while(A_MOMENT);
        }
    }

    fn is_ordered(&self) -> bool {
        false
    }

    fn prepare_close(&self, last: Seqno) -> Result<()> {
        self.cut(last);
        self.persist()?;
        self.checkpoint_at_close()
    }

    fn verify(&self, report: &mut VerifyReport) {
        self.verify_files(report);
    }

    fn active_bytes(&self) -> usize {
        lock(&self.writer).unsealed_bytes()
    }

    fn stats(&self) -> KeyspaceStats {
        let segments = self.slots.load().segments();
        let files = segments.iter().filter_map(|segment| segment.file());
        let checkpoint = lock(&self.files).manifest.contents.checkpoint.map_or(0, |c| c.len);
        let memory = segments.iter().filter_map(|segment| segment.memory());
        KeyspaceStats {
            work: self.context.observer.stats(),
            entries: self.index.entries(),
            disk_bytes: files.map(|file| file.len).sum::<u64>() + checkpoint,
            memory_bytes: self.index.memory() as u64
                + memory.map(|memory| (memory.used() * UNIT) as u64).sum::<u64>(),
            flushes: self.flushes.load(Ordering::Relaxed),
            compactions: self.reclaimed.load(Ordering::Relaxed),
            ..KeyspaceStats::new(EngineKind::Hash, self.home.layer())
        }
    }

    fn layer(&self) -> Layer {
        self.home.layer()
    }

    fn set_layer(&self, layer: Layer) -> Result<()> {
        *lock(&self.home.layer) = layer;
        let segments = self.slots.load().segments();
        segments.iter().filter_map(|segment| segment.file()).for_each(|file| file.let_go());
        Ok(())
    }

    fn stop(&self) {
        self.jobs.stop();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let charged = *self.charged.get_mut() + *self.charged_beside.get_mut();
        self.context.budget.resize_index(charged as usize, 0);
    }
}

/// A version of a key: its entry, what it was, and its value.
pub(super) type Version = (Entry, Trailer, Slice);

/// What looking through candidates gives.
struct Look {
    /// The newest version of the key that may be seen.
    best: Option<Version>,
    /// The number of the newest version that may not; 0 if there is none.
    newer: Seqno,
}

impl Look {
    /// Takes in what was found at an entry's address; false if it changed while it was read.
    #[inline]
    fn take(&mut self, entry: Entry, found: Found, seqno: Seqno) -> bool {
        match found {
            Found::Busy => return false,
            Found::Other => {}
            Found::Version(trailer, _) if trailer.seqno() > seqno => {
                self.newer = self.newer.max(trailer.seqno());
            }
            Found::Version(trailer, value) => {
                if self.best.as_ref().is_none_or(|best| best.1.seqno() < trailer.seqno()) {
                    self.best = Some((entry, trailer, value));
                }
            }
        }
        true
    }
}

fn home(context: &Context) -> Arc<Home> {
    Arc::new(Home {
        fs: Arc::clone(&context.fs),
        dir: context.dir.clone(),
        layer: Mutex::new(context.layer),
        identity: context.identity,
        open_files: Arc::clone(&context.open_files),
    })
}

/// An error if a file that the manifest names is not there, or has another length.
fn check_files(home: &Home, manifest: &Manifest) -> Result<()> {
    let contents = &manifest.contents;
    let segments = contents.segments.values().map(|meta| (home.path(meta.id), meta.len));
    let checkpoint = contents.checkpoint.map(|meta| (checkpoint::path(home, meta.id), meta.len));
    for (path, expected) in segments.chain(checkpoint) {
        match home.fs.kind(&path)? {
            Some(PathKind::File { len }) if len == expected => {}
            Some(PathKind::File { len }) => {
                let what = format!("the file has {len} bytes and should have {expected}");
                return Err(Error::corruption(&path, len.min(expected), what));
            }
            _ => return Err(Error::corruption(&path, 0, "the file is missing")),
        }
    }
    Ok(())
}

fn no_segment(home: &Home) -> Error {
    Error::corruption(&home.dir, 0, "the index names a segment that is not there")
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
/// Whether a file is a segment or a checkpoint, by its name.
fn is_own(name: &str) -> bool {
    let number = name.strip_suffix(".data").or_else(|| name.strip_suffix(".index"));
    let is_number = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    number.is_some_and(is_number)
}
