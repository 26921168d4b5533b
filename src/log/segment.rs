//! Segments: the files of the log, how they are named, prepared, recycled and dropped.
//!
//! A segment file is `NNNNNN.log`, `NNNNNN` being its number, which is never used again. It begins with
//!
//! ```text
//! offset  size
//!      0     8  magic "TBD-LOG\n"
//!      8     4  format version
//!     12     4  zero
//!     16     8  identity of the database
//!     24     8  number of the segment
//!     32     8  capacity: the length of the file
//!     40    20  zero
//!     60     4  checksum of bytes 0..60, bound to (identity of this life, 0)
//! ```
//! and is followed by records from byte 64 on. A segment is prepared whole before the writer needs it:
//! its space is reserved. Name, length and header are synced before the first record, the link, is written: where there is a
//! link, another length or a bad header is damage and never the work of a power loss. And a sync of what was written has nothing
//! more to do than with files that are open: a directory that cannot be synced, of which there may be as many open as there can
//! be, only keeps a segment from being made.
//!
//! Thread safety: [`Segments`] has a lock of its own, held over no I/O but directory operations.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::tail::{self, Tail};
use crate::base::{Seqno, checksum, hash};
use crate::error::{Error, Result};
use crate::planted::{Bug, planted};
use crate::sync::{Condvar, Mutex};
use crate::vfs::{Access, File, Fs, IoStats, Layer};

pub(crate) const MAGIC: [u8; 8] = *b"TBD-LOG\n";
/// Version 1 had no tail: who knows only that must not open a log whose end may be in one.
pub(crate) const FORMAT_VERSION: u32 = 2;
/// Bytes of a segment's header, and the offset of its first record.
pub(crate) const SEGMENT_HEADER: u64 = 64;
/// What a device writes whole or not at all.
const SECTOR: usize = 512;
/// The capacity of a database's first segment; each next one doubles it.
const SMALLEST: u64 = 128 << 10;
/// The capacity that segments may grow to: as much as a memtable takes, within these bounds.
const LARGEST: std::ops::RangeInclusive<u64> = (1 << 20)..=(16 << 20);
/// How many segments that are no longer needed are kept to be recycled.
const KEPT: usize = 4;
/// So far ahead segments are prepared, by how long the last one was written to: a device may be busy for as long.
const AHEAD: Duration = Duration::from_secs(1);
/// The most segments that are prepared ahead.
const MOST_SPARES: u32 = 4;

/// An open segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// What the records of its present life are bound to.
    pub(crate) identity: u64,
    pub(crate) capacity: u64,
    pub(crate) file: Arc<dyn File>,
}

/// A segment that is full, or was written before the database was opened.
#[derive(Debug)]
struct Closed {
    number: u64,
    capacity: u64,
    /// The last sequence number in it or before it.
    last: Seqno,
}

/// A segment that is about to be made.
#[derive(Debug)]
struct Plan {
    number: u64,
    capacity: u64,
    /// The file to make it of.
    recycled: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Oldest first.
    closed: Vec<Closed>,
    /// Prepared, the next first. Their numbers are above that of every segment the writer was given, or is being given:
    /// whoever plans a later one gives them up under the same lock, when none is being prepared.
    spares: VecDeque<Segment>,
    /// Whether a spare is being prepared.
    is_preparing: bool,
    /// How many spares there are to be,
    wanted: usize,
    /// and when the writer was given the last segment.
    taken: Option<Instant>,
    /// Number and capacity of files that may be overwritten.
    recyclable: Vec<(u64, u64)>,
    next_number: u64,
    current_capacity: u64,
    /// Files that are written to, or were a moment ago.
    files: Vec<Arc<dyn File>>,
    /// Bytes that were written to files that are closed.
    written_before: u64,
    tail: Option<Arc<dyn File>>,
}

impl State {
    /// The next segment, if it has been prepared and is long enough.
    fn take_spare(&mut self, need: u64) -> Option<Segment> {
        if self.spares.front()?.capacity < need {
            return None;
        }
        let spare = self.spares.pop_front();
        self.note_taken(crate::sync::now());
        spare
    }

    /// Takes note that the writer is given a segment.
    fn note_taken(&mut self, now: Instant) {
        let lasted = self.taken.replace(now).map_or(AHEAD, |taken| now - taken);
        let ahead = AHEAD.as_nanos().div_ceil(lasted.as_nanos().max(1));
        self.wanted = ahead.min(u128::from(MOST_SPARES)) as usize;
    }

    /// Closes the files that nobody writes to any more. Called before a file may be opened anew or removed.
    fn close_files(&mut self) {
        let Self { files, written_before, .. } = self;
        files.retain(|file| {
            let is_used = Arc::strong_count(file) > 1;
            *written_before += if is_used { 0 } else { file.stats().written_bytes };
            is_used
        });
    }
}

/// Takes note at its end, even by a panic, that no spare is being prepared.
struct Preparing<'a>(&'a Segments);

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        self.0.lock().is_preparing = false;
        self.0.prepared.notify_all();
    }
}

/// All segments of one database.
#[derive(Debug)]
pub(crate) struct Segments {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    database: u64,
    /// By which segments are written.
    layer: Layer,
    /// Whether the newest bytes go through a mapping, the tail.
    is_mapped: bool,
    /// The capacity that segments grow to.
    largest: u64,
    state: Mutex<State>,
    /// Told when a spare has been prepared, or could not be.
    prepared: Condvar,
    /// Bytes that only the tail has.
    in_tail: AtomicU64,
}

impl Segments {
    /// The segments of a database whose memtables take up to `memtable` bytes each.
    pub(crate) fn new(
        fs: Arc<dyn Fs>,
        dir: PathBuf,
        database: u64,
        layer: Layer,
        memtable: usize,
        next_number: u64,
    ) -> Self {
        let state = State { next_number, ..State::default() };
        let largest = (memtable as u64).clamp(*LARGEST.start(), *LARGEST.end());
        Self {
            fs,
            dir,
            database,
            layer: layer.for_writing(),
            is_mapped: layer == Layer::Mmap,
            largest,
            state: Mutex::new(state),
            prepared: Condvar::new(),
            in_tail: AtomicU64::new(0),
        }
    }

    /// The capacity of the segment after one of `current` bytes.
    fn next_capacity(&self, current: u64) -> u64 {
        (2 * current).clamp(SMALLEST, self.largest).next_multiple_of(self.block())
    }

    /// What the capacity of a segment is a multiple of, so that its last block is not a partial one: a file that
    /// is padded for a moment would be of the wrong length if the process were killed then.
    fn block(&self) -> u64 {
        self.layer.block_size().map_or(1, u64::from)
    }

    /// Opens segment `number` for writing where recovery left it.
    pub(crate) fn reopen(&self, number: u64, capacity: u64) -> Result<Segment> {
        let segment = self.open_left(number, capacity)?;
        segment.file.allocate(capacity)?;
        let mut state = self.lock();
        state.current_capacity = capacity;
        state.files.push(Arc::clone(&segment.file));
        drop(state);
        Ok(segment)
    }

    /// Opens a segment that others follow.
    pub(super) fn open_left(&self, number: u64, capacity: u64) -> Result<Segment> {
        let path = path(&self.dir, number);
        // It may have been made for another layer.
        let is_whole = capacity.is_multiple_of(self.block());
        let layer = if is_whole { self.layer } else { Layer::Positional };
        let file = self.fs.open(&path, Access::Write, layer)?;
        Ok(Segment { number, identity: identity(self.database, number), capacity, file })
    }

    /// Notes a segment that recovery read and that is still needed.
    pub(crate) fn add_closed(&self, number: u64, capacity: u64, last: Seqno) {
        let mut state = self.lock();
        state.closed.push(Closed { number, capacity, last });
        state.current_capacity = state.current_capacity.max(capacity.min(self.largest));
    }

    /// Notes a segment file whose content is not needed.
    pub(crate) fn add_recyclable(&self, number: u64, capacity: u64) {
        self.lock().recyclable.push((number, capacity));
    }

    /// Overwrites a part of a segment with zeros, synced.
    pub(crate) fn wipe(&self, segment: &Segment, range: Range<u64>) -> Result<()> {
        wipe(&*segment.file, range)
    }

    /// Removes segments that are not in use, for good.
    pub(crate) fn remove_unused(&self, numbers: impl IntoIterator<Item = u64>) -> Result<()> {
        for number in numbers {
            self.fs.remove(&path(&self.dir, number))?;
        }
        self.fs.sync_dir(&self.dir)
    }

    /// The next segment to write, with room for a record of `need` bytes. Takes the prepared one, waits for it if it is
    /// being prepared, or prepares one now.
    pub(crate) fn take_next(&self, need: u64) -> Result<Segment> {
        let need = need + SEGMENT_HEADER;
        let plan = {
            let mut state = self.lock();
            loop {
                if let Some(spare) = state.take_spare(need) {
                    state.current_capacity = spare.capacity.min(self.largest);
                    return Ok(spare);
                }
                if !state.is_preparing {
                    break;
                }
                state = self.prepared.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            // They keep their numbers, which would come too late behind the one planned now.
            let State { spares, recyclable, .. } = &mut *state;
            recyclable.extend(spares.drain(..).map(|spare| (spare.number, spare.capacity)));
            self.plan(&mut state, need)
        };
        let segment = self.prepare(plan)?;
        let mut state = self.lock();
        state.current_capacity = segment.capacity.min(self.largest);
        state.note_taken(crate::sync::now());
        Ok(segment)
    }

    /// Prepares a segment, if as many are not yet ahead of the present one as there should be: one, and more, if there are
    /// files to recycle, as the writer fills in a second. Gives whether there may be more to prepare. Meant for a background thread; a failure leaves things as they are and shows again when a segment is needed.
    pub(crate) fn prepare_spare(&self) -> Result<bool> {
        let Some(plan) = self.plan_spare() else { return Ok(false) };
        let _preparing = Preparing(self);
        let segment = self.prepare(plan)?;
        self.lock().spares.push_back(segment);
        Ok(true)
    }

    /// What is to be prepared now, if anything. It counts as being prepared from then on.
    fn plan_spare(&self) -> Option<Plan> {
        let mut state = self.lock();
        if state.is_preparing || state.spares.len() >= state.wanted.max(1) {
            return None;
        }
        // What is not made of a file that is there must not take what the disk has for others, even for a moment: it may be one
        // segment, and less than half of that.
        let capacity = self.capacity_of_next(&state);
        let is_there = state.recyclable.iter().any(|&(_, of)| of == capacity);
        let free = || self.fs.free_bytes(&self.dir);
        if !is_there && (!state.spares.is_empty() || free().is_some_and(|free| free < 2 * capacity))
        {
            return None;
        }
        let plan = self.plan(&mut state, 0);
        state.is_preparing = true;
        Some(plan)
    }

    /// Notes that the writer has left `segment`, whose last record (or the one before it) has `last`.
    pub(crate) fn close(&self, segment: &Segment, last: Seqno) {
        self.add_closed(segment.number, segment.capacity, last);
    }

    /// The number of the first segment needed when all up to `persisted` need no log. `current` was the segment under the pen
    /// before anybody was asked what is persisted: it is needed, and so are those that came after it, however much of them is
    /// persisted, as who was asked first may have been written to since.
    pub(crate) fn floor(&self, persisted: Seqno, current: u64) -> u64 {
        let state = self.lock();
        let needed = state.closed.iter().find(|closed| closed.last > persisted);
        let floor = needed.map_or(current, |closed| closed.number);
        if planted(Bug::PassCurrentSegment) { floor } else { floor.min(current) }
    }

    /// Lets go of all segments before `floor`: some are kept to be recycled, the others removed. A file
    /// that cannot be removed is left for the next opening.
    pub(crate) fn release(&self, floor: u64) {
        let mut state = self.lock();
        state.close_files();
        let keep = state.closed.partition_point(|closed| closed.number < floor);
        let freed: Vec<Closed> = state.closed.drain(..keep).collect();
        let wanted = self.next_capacity(state.current_capacity);
        for Closed { number, capacity, .. } in freed {
            self.keep_or_remove(&mut state, number, capacity, wanted);
        }
    }

    fn keep_or_remove(&self, state: &mut State, number: u64, capacity: u64, wanted: u64) {
        if capacity == wanted && state.recyclable.len() + state.spares.len() < KEPT {
            state.recyclable.push((number, capacity));
        } else {
            self.remove(number);
        }
    }

    /// Removes the files that could be recycled but have another size than the next segment will.
    pub(crate) fn trim(&self) {
        let mut state = self.lock();
        let wanted = self.next_capacity(state.current_capacity);
        let recyclable = std::mem::take(&mut state.recyclable);
        for (number, capacity) in recyclable {
            self.keep_or_remove(&mut state, number, capacity, wanted);
        }
    }

    /// Removes what was prepared for writes that will not come, as the database is being closed: it would take space, and be read by
    /// the next opening. A file that cannot be removed is left for that one.
    pub(crate) fn remove_prepared(&self) {
        let mut state = self.lock();
        let spares = state.spares.drain(..).map(|spare| spare.number).collect::<Vec<_>>();
        state.close_files();
        let recyclable = std::mem::take(&mut state.recyclable);
        for number in spares.into_iter().chain(recyclable.into_iter().map(|(number, _)| number)) {
            self.remove(number);
        }
    }

    fn remove(&self, number: u64) {
        if let Err(error) = self.fs.remove(&path(&self.dir, number)) {
            log::warn!("a log segment stays behind: {error}");
        }
    }

    /// Bytes written to segments so far, and those that wait for that in the tail.
    pub(crate) fn written_bytes(&self) -> u64 {
        let state = self.lock();
        let open = state.files.iter().map(|file| file.stats().written_bytes);
        state.written_before + open.sum::<u64>() + self.in_tail.load(Ordering::Relaxed)
    }

    /// Takes note of how many bytes only the tail has.
    #[inline]
    pub(super) fn set_in_tail(&self, bytes: usize) {
        self.in_tail.store(bytes as u64, Ordering::Relaxed);
    }

    /// Up to where all must be persisted for the segments that the writer has left to take no more than `most` bytes; `None` if they do not.
    pub(crate) fn too_long_unpersisted(&self, most: u64) -> Option<Seqno> {
        let state = self.lock();
        let mut pinned: u64 = state.closed.iter().map(|closed| closed.capacity).sum();
        let mut oldest = state.closed.iter();
        let mut last = None;
        while pinned > most {
            let closed = oldest.next()?;
            pinned -= closed.capacity;
            last = Some(closed.last);
        }
        last
    }

    /// The capacity of the segment after all that there are.
    fn capacity_of_next(&self, state: &State) -> u64 {
        let last = state.spares.back().map_or(state.current_capacity, |spare| spare.capacity);
        self.next_capacity(last.min(self.largest))
    }

    /// Chooses what the next segment will be, with room for `need` bytes, and uses up its number.
    fn plan(&self, state: &mut State, need: u64) -> Plan {
        state.close_files();
        let number = state.next_number;
        state.next_number += 1;
        let mut capacity = self.capacity_of_next(state);
        if need > capacity {
            capacity = need.next_multiple_of(self.block().max(4096));
        }
        let fit = state.recyclable.iter().position(|&(_, other)| other == capacity);
        let recycled = fit.map(|at| state.recyclable.swap_remove(at).0);
        Plan { number, capacity, recycled }
    }

    /// A tail for these segments, if their layer maps files.
    pub(super) fn make_tail(&self) -> Result<Option<Tail>> {
        if !self.is_mapped {
            return Ok(None);
        }
        self.remove_tail()?;
        let tail = Tail::create(&*self.fs, &self.dir, self.database)?;
        self.lock().tail = Some(Arc::clone(tail.file()));
        Ok(Some(tail))
    }

    /// What of `all` was done, if copies to the tail are no writes, and what waits there has been written to a segment.
    pub(crate) fn without_tail(&self, all: IoStats) -> IoStats {
        let Some(tail) = self.lock().tail.as_ref().map(|tail| tail.stats()) else { return all };
        let mut without = all - tail;
        without.written_bytes += self.in_tail.load(Ordering::Relaxed);
        without
    }

    /// Removes the tail: all it has is in the segments.
    pub(super) fn remove_tail(&self) -> Result<()> {
        tail::remove(&*self.fs, &self.dir)
    }

    fn sync_names(&self) -> Result<()> {
        if planted(Bug::SkipLogNamesSync) { Ok(()) } else { self.fs.sync_dir(&self.dir) }
    }

    /// Makes a segment: reserves its space (or takes a recyclable file), writes its header, makes both and its name safe
    /// from power loss.
    fn prepare(&self, Plan { number, capacity, recycled }: Plan) -> Result<Segment> {
        let path = path(&self.dir, number);
        let file = match recycled {
            Some(old) => {
                // Whatever its name is then, it can be recycled another time.
                let keep = |number| self.lock().recyclable.push((number, capacity));
                let before = self::path(&self.dir, old);
                let renamed = self.fs.rename(&before, &path);
                // It may have been renamed all the same. If it has neither name, somebody has taken it away.
                renamed.inspect_err(|_| {
                    let has = |path| matches!(self.fs.kind(path), Ok(Some(_)));
                    let named =
                        [(&before, old), (&path, number)].into_iter().find(|name| has(name.0));
                    named.into_iter().for_each(|(_, number)| keep(number));
                })?;
                let opened = self.fs.open(&path, Access::Write, self.layer);
                opened.inspect_err(|_| keep(number))?
            }
            None => self.fs.create(&path, self.layer)?,
        };
        let identity = identity(self.database, number);
        let prepared = file
            .allocate(capacity)
            .and_then(|()| file.write_at(0, &front(self.database, number, capacity)))
            .and_then(|()| file.sync())
            .and_then(|()| self.sync_names());
        if let Err(error) = prepared {
            drop(file);
            if let Err(left) = self.fs.remove(&path) {
                log::warn!("a half-made log segment stays behind: {left}");
            }
            return Err(error);
        }
        self.lock().files.push(Arc::clone(&file));
        Ok(Segment { number, identity, capacity, file })
    }

    fn lock(&self) -> crate::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wipe(file: &dyn File, range: Range<u64>) -> Result<()> {
    let zeros = [0; 4096];
    let mut at = range.start;
    while at < range.end {
        let part = (range.end - at).min(zeros.len() as u64);
        file.write_at(at, &zeros[..part as usize])?;
        at += part;
    }
    file.sync()
}

/// What the records of segment `number` are bound to.
pub(crate) fn identity(database: u64, number: u64) -> u64 {
    hash::file_identity(database, number)
}

/// The path of segment `number`.
pub(crate) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(name_of(number))
}

fn name_of(number: u64) -> String {
    format!("{number:06}.log")
}

/// The number in a segment's file name, if it is the name of that segment.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".log")?.parse().ok()?;
    (name == name_of(number)).then_some(number)
}

/// The first sector of a new segment: its header, and zeros over the link of the file's earlier life.
pub(super) fn front(database: u64, number: u64, capacity: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    bytes[..SEGMENT_HEADER as usize].copy_from_slice(&header(database, number, capacity));
    bytes
}

/// The header of segment `number`.
pub(super) fn header(database: u64, number: u64, capacity: u64) -> [u8; SEGMENT_HEADER as usize] {
    let mut bytes = [0; SEGMENT_HEADER as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&database.to_le_bytes());
    bytes[24..32].copy_from_slice(&number.to_le_bytes());
    bytes[32..40].copy_from_slice(&capacity.to_le_bytes());
    let sum = checksum::bound(identity(database, number), 0, &bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// What a segment's header tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Header {
    /// It belongs to this segment.
    Valid {
        /// The length the file must have.
        capacity: u64,
        /// The version of its format.
        version: u32,
    },
    /// It is whole, but of an earlier life of the file, or was never written: nothing here was ever
    /// acknowledged as synced.
    Unused,
    /// It is damaged.
    Damaged,
}

/// The number that a header of this database gives its file, if it is one.
pub(crate) fn number_given(bytes: &[u8], database: u64) -> Option<u64> {
    let bytes = bytes.first_chunk::<{ SEGMENT_HEADER as usize }>()?;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    (is_header(bytes) && word(16) == database).then(|| word(24))
}

fn is_header(bytes: &[u8; SEGMENT_HEADER as usize]) -> bool {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let sum = u32::from_le_bytes(bytes[60..].try_into().expect("4 bytes"));
    let expected = checksum::bound(identity(word(16), word(24)), 0, &bytes[..60]);
    bytes[..8] == MAGIC && checksum::matches(sum, expected)
}

/// Reads the header of the file of segment `number`.
pub(crate) fn read_header(file: &Path, bytes: &[u8], database: u64, number: u64) -> Result<Header> {
    let Some(bytes) = bytes.first_chunk::<{ SEGMENT_HEADER as usize }>() else {
        return Ok(Header::Damaged);
    };
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(Header::Unused);
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    if !is_header(bytes) {
        return Ok(Header::Damaged);
    }
    let version = word(8) as u32;
    if version > FORMAT_VERSION {
        let file = file.to_path_buf();
        return Err(Error::NewerFormat { file, found: version, supported: FORMAT_VERSION });
    }
    if word(16) != database {
        return Err(Error::corruption(file, 16, "this log segment belongs to another database"));
    }
    Ok(if word(24) == number {
        Header::Valid { capacity: word(32), version }
    } else {
        Header::Unused
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Effect, Errno, Fault, FaultFs, MemoryFs, Operation};

    const DIR: &str = "/log";

    fn segments() -> Segments {
        let fs = Arc::new(MemoryFs::new());
        fs.create_dir(DIR.as_ref()).unwrap();
        Segments::new(fs, DIR.into(), 7, Layer::Positional, 0, 1)
    }

    #[test]
    fn a_spare_that_is_being_prepared_is_waited_for() {
        let segments = segments();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200).for_each(|_| _ = segments.prepare_spare().unwrap()));
            for number in 1..=200 {
                assert_eq!(segments.take_next(0).unwrap().number, number);
            }
        });
        assert!(segments.lock().recyclable.is_empty());
    }

    #[test]
    fn a_spare_does_not_take_the_last_of_a_disk() {
        let fs = Arc::new(MemoryFs::new());
        fs.create_dir(DIR.as_ref()).unwrap();
        let log =
            Segments::new(Arc::<MemoryFs>::clone(&fs), DIR.into(), 7, Layer::Positional, 0, 1);
        let capacity = log.next_capacity(0);
        fs.quota(Some(2 * capacity - 1));
        assert!(!log.prepare_spare().unwrap());
        // Who needs it has it.
        assert_eq!(log.take_next(0).unwrap().number, 1);
        let capacity = log.next_capacity(capacity);
        fs.quota(Some(capacity / 2 + 2 * capacity));
        assert!(log.prepare_spare().unwrap());
        assert_eq!(log.take_next(0).unwrap().number, 2);
    }

    #[test]
    fn no_segment_from_the_current_one_on_is_let_go() {
        let segments = segments();
        let taken: Vec<_> = (0..3).map(|_| segments.take_next(0).unwrap()).collect();
        segments.close(&taken[0], 10);
        assert_eq!([0, 9, 10, 15].map(|persisted| segments.floor(persisted, 2)), [1, 1, 2, 2]);
        // Whoever was asked before the second one was written to may need it by now.
        segments.close(&taken[1], 20);
        assert_eq!([0, 9, 10, 20].map(|persisted| segments.floor(persisted, 2)), [1, 1, 2, 2]);
        assert_eq!([19, 20].map(|persisted| segments.floor(persisted, 3)), [2, 3]);
    }

    #[test]
    fn what_pins_too_much_of_the_log_is_what_the_oldest_segments_hold() {
        let segments = segments();
        let taken: Vec<_> = (0..3).map(|_| segments.take_next(0).unwrap()).collect();
        taken.iter().zip([10, 20, 30]).for_each(|(segment, last)| segments.close(segment, last));
        let capacities: Vec<u64> = taken.iter().map(|segment| segment.capacity).collect();
        let all: u64 = capacities.iter().sum();
        let too_long = |most| segments.too_long_unpersisted(most);
        assert_eq!([too_long(all), too_long(all - 1)], [None, Some(10)]);
        assert_eq!(too_long(all - capacities[0]), Some(10));
        assert_eq!([too_long(all - capacities[0] - 1), too_long(0)], [Some(20), Some(30)]);
    }

    #[test]
    fn a_spare_that_cannot_be_prepared_keeps_nobody_waiting() {
        let faults = FaultFs::new(Arc::new(MemoryFs::new()));
        faults.create_dir(DIR.as_ref()).unwrap();
        let segments =
            Segments::new(Arc::new(faults.clone()), DIR.into(), 7, Layer::Positional, 0, 1);
        faults.arm(Fault::new(Operation::Sync, Effect::Fail(Errno::Raw(5))));
        assert!(segments.prepare_spare().is_err());
        assert_eq!(segments.take_next(0).unwrap().number, 2);
    }

    #[test]
    fn a_spare_that_is_too_small_is_given_up() {
        let segments = segments();
        assert!(segments.prepare_spare().unwrap());
        let segment = segments.take_next(SMALLEST).unwrap();
        assert_eq!((segment.number, segment.capacity), (2, SMALLEST + 4096));
        assert_eq!(segments.lock().recyclable, [(1, SMALLEST)]);
        assert!(segments.prepare_spare().unwrap());
        assert!(!segments.prepare_spare().unwrap());
        assert_eq!(segments.take_next(0).unwrap().number, 3);
    }

    #[test]
    fn who_fills_segments_fast_has_several_ahead() {
        let segments = segments();
        let start = Instant::now();
        let mut state = segments.lock();
        let mut at = |millis| {
            state.note_taken(start + Duration::from_millis(millis));
            state.wanted
        };
        // The first; after 5 s; 1 s; 300 ms; at once.
        assert_eq!([at(0), at(5000), at(6000), at(6300), at(6300)], [1, 1, 1, 4, 4]);
        assert_eq!(at(6700), 3);
        drop(state);
        let ahead = || {
            while segments.prepare_spare().unwrap() {}
            segments.lock().spares.iter().map(|spare| spare.number).collect::<Vec<_>>()
        };
        assert_eq!(ahead(), [1], "but of new files there is one");
        let taken: Vec<_> = (0..7).map(|_| segments.take_next(0).unwrap()).collect();
        taken.iter().for_each(|segment| segments.close(segment, segment.number));
        drop(taken);
        segments.release(u64::MAX);
        assert_eq!(segments.lock().recyclable.len(), 4);
        assert_eq!(ahead(), [8, 9, 10, 11]);
        assert!(segments.lock().recyclable.is_empty());
        // One that none has room for comes behind them all.
        let segment = segments.take_next(*LARGEST.start()).unwrap();
        assert_eq!((segment.number, segments.lock().recyclable.len()), (12, 4));
    }
}
