//! Segments: the data of the keyspace. A segment is filled in memory, sealed, written to a file once, and
//! removed as a whole.
//!
//! `NNNNNN.data`, `NNNNNN` being the segment's number, which no other one gets while a manifest names it:
//! ```text
//! offset  size
//!      0     8  magic "TBD-HSH\n"
//!      8     4  format version
//!     12     4  zero
//!     16     8  identity of the keyspace
//!     24     8  number of the segment
//!     32     8  length of the file
//!     40    20  zero
//!     60     4  checksum of bytes 0..60, bound to (identity of the segment, 0)
//!     64        records
//! ```
//! Thread safety: any thread may read. The file is removed when the segment has been given up and the last
//! reader that holds it is gone.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use arc_swap::ArcSwapOption;

use super::index::{Address, Entry};
use super::memory::{Busy, MemorySegment};
use super::record::{FRONT_UNITS, Front, UNIT};
use crate::base::prefetch::prefetch;
use crate::base::{Seqno, Slice, Trailer, View, checksum, hash};
use crate::cache::{Closable, OpenFiles, Place};
use crate::error::{Error, Result};
use crate::planted::{Bug, planted};
use crate::sync::{Mutex, MutexGuard};
use crate::vfs::{
    Access, Appender, File, Fs, Hint, Layer, ReadRequest, open_needed, remove_obsolete,
};

const MAGIC: [u8; 8] = *b"TBD-HSH\n";
const FORMAT_VERSION: u32 = 1;
/// Bytes of a segment's header.
pub(crate) const HEADER: usize = 64;
/// Units of a segment's header.
pub(crate) const HEADER_UNITS: usize = HEADER / UNIT;
/// Units of a slot: 1 MiB. A segment takes whole slots of the address space, one behind the other.
pub(crate) const SLOT_UNITS: usize = (1 << 20) / UNIT;
/// Segments are written in pieces of this many bytes.
const BUFFER: usize = 1 << 20;
/// What the processor reads at once.
const LINE: usize = 64;
/// So many lines of a record are asked for ahead.
const LINES: usize = 8;
/// What looking after an open file costs in memory, about.
const OPEN_FILE_BYTES: usize = 1 << 10;

/// Where a keyspace's segments live and how they are reached.
pub(crate) struct Home {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) layer: Mutex<Layer>,
    /// Of the keyspace.
    pub(crate) identity: u64,
    pub(crate) open_files: Arc<OpenFiles>,
}

impl Home {
    /// The path of segment `id`.
    pub(crate) fn path(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{id:06}.data"))
    }

    /// What the checksums of file `id` are bound to.
    pub(crate) fn identity_of(&self, id: u64) -> u64 {
        hash::file_identity(self.identity, id)
    }

    /// How files are written. Page faults of a mapping would hold up those of the writer's memory: what is going to
    /// be mapped for reading is written by calls.
    pub(crate) fn layer_for_writing(&self) -> Layer {
        self.layer().for_writing()
    }

    /// How files are reached that are opened now.
    pub(crate) fn layer(&self) -> Layer {
        *self.layer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether older versions of a segment's keys are indexed in other segments: no, maybe, or they are looked for.
const RESOLVED: u8 = 0;
const UNRESOLVED: u8 = 1;
const RESOLVING: u8 = 2;

/// What keeps work on a segment off: nothing, a scan, damage, or states that are held. The number of the oldest one is added.
const BY_NOTHING: u64 = 0;
const BY_SCAN: u64 = 1;
const BY_DAMAGE: u64 = 2;
const BY_STATE: u64 = 3;

/// What may keep work on a segment off.
pub(crate) enum Obstacle {
    /// No record may be moved.
    Scan,
    /// Something cannot be read, and will not be until somebody mends it.
    Damage,
    /// States that are held have superseded versions: the oldest and the newest one of them.
    States(Seqno, Seqno),
}

/// What there is of that.
pub(crate) struct Obstacles {
    /// The states that are held, ascending.
    pub(crate) held: Vec<Seqno>,
    pub(crate) is_scanned: bool,
}

/// What is known of a segment's contents. Records are counted by what the index knows of their sizes, which may
/// be more than they take. It does not know those of large ones, which are counted as a slot each; what they take beyond that is
/// noted apart.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Units of all records.
    written: AtomicI64,
    /// Units of the records that are in the index.
    live: AtomicI64,
    /// What large records among them take beyond a slot, as far as that is known.
    written_beyond: AtomicI64,
    live_beyond: AtomicI64,
    /// The same for each large record that is indexed; none if nobody has looked yet.
    large: Mutex<HashMap<Address, Option<i64>>>,
    /// How many of those there are that nobody has looked at.
    unmeasured: AtomicUsize,
    /// Whether it may hold newer versions of keys whose older versions in other segments are still indexed.
    resolution: AtomicU8,
    /// What keeps it from being resolved: states that need what its records supersede.
    pub(crate) resolving: Block,
    /// What keeps it from being reclaimed: a scan, or states that need records of its own.
    pub(crate) reclaiming: Block,
    /// Whether all that was needed of it has been moved elsewhere.
    emptied: AtomicBool,
}

impl Figures {
    /// A record of so many units was written and indexed.
    pub(crate) fn added(&self, entry: Entry, units: usize) {
        let counted = size_of_entry(entry);
        self.written.fetch_add(counted, Ordering::Relaxed);
        self.live.fetch_add(counted, Ordering::Relaxed);
        if is_large(entry) {
            let beyond = units as i64 - counted;
            self.written_beyond.fetch_add(beyond, Ordering::Relaxed);
            self.live_beyond.fetch_add(beyond, Ordering::Relaxed);
            self.large().insert(entry.address(), Some(beyond));
        }
    }

    /// A record that was counted is indexed, or another one in its place, which is not large.
    pub(crate) fn indexed(&self, entry: Entry) {
        self.live.fetch_add(size_of_entry(entry), Ordering::Relaxed);
    }

    /// A record that was there at opening is indexed; of how many units, if it was read.
    pub(crate) fn opened(&self, entry: Entry, units: Option<usize>) {
        self.indexed(entry);
        if is_large(entry) {
            let beyond = units.map(|units| units as i64 - size_of_entry(entry));
            match beyond {
                Some(beyond) => _ = self.live_beyond.fetch_add(beyond, Ordering::Relaxed),
                None => _ = self.unmeasured.fetch_add(1, Ordering::Relaxed),
            }
            // A forged index may have a place twice.
            let before = self.large().insert(entry.address(), beyond);
            self.uncount_large(before);
        }
    }

    /// A record is not indexed any more.
    pub(crate) fn removed(&self, entry: Entry) {
        self.live.fetch_sub(size_of_entry(entry), Ordering::Relaxed);
        if is_large(entry) {
            let before = self.large().remove(&entry.address());
            self.uncount_large(before);
        }
    }

    /// Takes back what was counted for a large record, if there was one.
    fn uncount_large(&self, before: Option<Option<i64>>) {
        match before {
            Some(Some(beyond)) => _ = self.live_beyond.fetch_sub(beyond, Ordering::Relaxed),
            Some(None) => _ = self.unmeasured.fetch_sub(1, Ordering::Relaxed),
            None => {}
        }
    }

    /// Where the large records are that nobody has looked at.
    pub(crate) fn unmeasured(&self) -> Vec<Address> {
        let large = self.large();
        large.iter().filter(|(_, beyond)| beyond.is_none()).map(|(&address, _)| address).collect()
    }

    /// The large record at `address` has been looked at: it takes so many units.
    pub(crate) fn measured(&self, address: Address, units: usize) {
        if let Some(beyond @ None) = self.large().get_mut(&address) {
            let units = units as i64 - SLOT_UNITS as i64;
            *beyond = Some(units);
            self.live_beyond.fetch_add(units, Ordering::Relaxed);
            self.unmeasured.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether all is known that there is to know.
    pub(crate) fn is_measured(&self) -> bool {
        self.unmeasured.load(Ordering::Relaxed) == 0
    }

    fn large(&self) -> MutexGuard<'_, HashMap<Address, Option<i64>>> {
        self.large.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Units of all records as they are counted.
    pub(crate) fn counted(&self) -> u64 {
        self.written.load(Ordering::Relaxed).max(0) as u64
    }

    /// The same of those that are in the index.
    pub(crate) fn counted_live(&self) -> u64 {
        self.live.load(Ordering::Relaxed).max(0) as u64
    }

    /// Units that all records take.
    pub(crate) fn written(&self) -> u64 {
        let beyond = self.written_beyond.load(Ordering::Relaxed);
        (self.written.load(Ordering::Relaxed) + beyond).max(0) as u64
    }

    /// The same of those that are in the index.
    pub(crate) fn live(&self) -> u64 {
        let beyond = self.live_beyond.load(Ordering::Relaxed);
        (self.live.load(Ordering::Relaxed) + beyond).max(0) as u64
    }

    /// Units of the records that are not in the index. None is known of as long as large records are not measured.
    pub(crate) fn dead(&self) -> u64 {
        if self.is_measured() { self.written().saturating_sub(self.live()) } else { 0 }
    }

    /// Whether no older versions of its keys are indexed in other segments.
    pub(crate) fn is_resolved(&self) -> bool {
        self.resolution.load(Ordering::Acquire) == RESOLVED
    }

    /// Whether there may be such versions that nobody is about to find.
    pub(crate) fn is_unresolved(&self) -> bool {
        self.resolution.load(Ordering::Acquire) == UNRESOLVED
    }

    pub(crate) fn set_unresolved(&self) {
        self.resolving.end();
        self.resolution.store(UNRESOLVED, Ordering::Release);
    }

    pub(crate) fn begin_resolving(&self) {
        self.resolution.store(RESOLVING, Ordering::Release);
    }

    /// All was found, unless there is more by now.
    pub(crate) fn end_resolving(&self) {
        let (from, to) = (RESOLVING, RESOLVED);
        let _ = self.resolution.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(crate) fn is_emptied(&self) -> bool {
        self.emptied.load(Ordering::Acquire)
    }

    pub(crate) fn set_emptied(&self) {
        self.emptied.store(true, Ordering::Release);
    }
}

/// What last kept a kind of work on a segment off.
#[derive(Debug, Default)]
pub(crate) struct Block {
    by: AtomicU64,
    /// The newest one of the states, if it is those.
    newest: AtomicU64,
}

impl Block {
    /// Takes note of what kept the work off.
    pub(crate) fn begin(&self, by: Obstacle) {
        let by = match by {
            Obstacle::Scan => BY_SCAN,
            Obstacle::Damage => BY_DAMAGE,
            Obstacle::States(oldest, newest) => {
                self.newest.store(newest, Ordering::Relaxed);
                oldest + BY_STATE
            }
        };
        self.by.store(by, Ordering::Release);
    }

    fn end(&self) {
        self.by.store(BY_NOTHING, Ordering::Relaxed);
    }

    /// What was damaged may have been mended.
    pub(crate) fn forget_damage(&self) {
        let (from, to) = (BY_DAMAGE, BY_NOTHING);
        let _ = self.by.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether it is still there: there is no use in trying before. Of states one that is gone is enough: they may have had
    /// different versions.
    pub(crate) fn stands(&self, obstacles: &Obstacles) -> bool {
        let is_held = |state: Seqno| obstacles.held.binary_search(&state).is_ok();
        match self.by.load(Ordering::Acquire) {
            BY_NOTHING => false,
            BY_SCAN => obstacles.is_scanned,
            BY_DAMAGE => true,
            state => is_held(state - BY_STATE) && is_held(self.newest.load(Ordering::Relaxed)),
        }
    }
}

/// What a record is counted as in [`Figures`], in units.
pub(crate) fn size_of_entry(entry: Entry) -> i64 {
    entry.units_at_most().map_or(SLOT_UNITS as i64, i64::from)
}

/// Whether the index does not know how large the record is.
fn is_large(entry: Entry) -> bool {
    entry.units_at_most().is_none()
}

/// What the manifest says of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentMeta {
    pub(crate) id: u64,
    /// Its first slot.
    pub(crate) base: u32,
    /// The length of its file, in bytes.
    pub(crate) len: u64,
    /// What [`Figures::counted`] was.
    pub(crate) written: u64,
}

impl SegmentMeta {
    /// How many slots the segment takes.
    pub(crate) fn slots(&self) -> usize {
        slots_for(self.len as usize / UNIT)
    }
}

/// How many slots `units` take.
pub(crate) fn slots_for(units: usize) -> usize {
    units.div_ceil(SLOT_UNITS)
}

/// A segment of the keyspace.
pub(crate) struct Segment {
    pub(crate) id: u64,
    /// Its first slot.
    pub(crate) base: u32,
    /// How many slots it takes.
    pub(crate) slots: usize,
    pub(crate) figures: Arc<Figures>,
    pub(crate) body: Body,
}

/// Where the records of a segment are.
pub(crate) enum Body {
    Memory(MemorySegment),
    File(SegmentFile),
}

/// What is at an address.
pub(crate) enum Found {
    /// A record of the key that was asked for.
    Version(Trailer, Slice),
    /// A record of another key.
    Other,
    /// It changed while it was read.
    Busy,
}

impl Segment {
    /// A new segment in memory.
    pub(crate) fn in_memory(id: u64, base: u32, slots: usize, memory: MemorySegment) -> Arc<Self> {
        let figures = Arc::default();
        Arc::new(Self { id, base, slots, figures, body: Body::Memory(memory) })
    }

    /// A segment whose file is there, and has no writes behind `last`.
    pub(crate) fn in_file(
        meta: &SegmentMeta,
        last: Seqno,
        home: &Arc<Home>,
        figures: Arc<Figures>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let file = SegmentFile {
                id: meta.id,
                len: meta.len,
                last,
                home: Arc::clone(home),
                open: ArcSwapOption::empty(),
                opening: Mutex::new(()),
                used: AtomicBool::new(false),
                obsolete: AtomicBool::new(false),
                segment: Weak::clone(this),
            };
            let body = Body::File(file);
            Self { id: meta.id, base: meta.base, slots: meta.slots(), figures, body }
        })
    }

    /// The figures of a segment that was read from the manifest: nothing is indexed yet.
    pub(crate) fn figures_of(meta: &SegmentMeta) -> Arc<Figures> {
        let figures = Figures::default();
        figures.written.store(meta.written as i64, Ordering::Relaxed);
        // All is records. What is counted is as much or more, but for large ones.
        let used = meta.len as i64 / UNIT as i64 - HEADER_UNITS as i64;
        let beyond = used.saturating_sub_unsigned(meta.written).max(0);
        figures.written_beyond.store(beyond, Ordering::Relaxed);
        Arc::new(figures)
    }

    pub(crate) fn memory(&self) -> Option<&MemorySegment> {
        match &self.body {
            Body::Memory(memory) => Some(memory),
            Body::File(_) => None,
        }
    }

    pub(crate) fn file(&self) -> Option<&SegmentFile> {
        match &self.body {
            Body::Memory(_) => None,
            Body::File(file) => Some(file),
        }
    }

    /// Units up to the end of the last record.
    pub(crate) fn used(&self) -> usize {
        match &self.body {
            Body::Memory(memory) => memory.used(),
            Body::File(file) => file.len as usize / UNIT,
        }
    }

    /// The address of the record that begins `at` units from the segment's start.
    pub(crate) fn address(&self, at: usize) -> Address {
        Address::new(self.base + (at / SLOT_UNITS) as u32, (at % SLOT_UNITS) as u32)
    }

    /// How many units from the segment's start `address` is.
    #[inline]
    pub(crate) fn offset(&self, address: Address) -> usize {
        (address.slot() - self.base) as usize * SLOT_UNITS + address.unit() as usize
    }

    /// Reads the record at the entry's address, if it is one of `key`.
    #[inline]
    pub(crate) fn read(&self, entry: Entry, key: &[u8]) -> Result<Found> {
        let at = self.offset(entry.address());
        match &self.body {
            Body::Memory(memory) => Ok(match memory.read(at, key) {
                Ok(Some((trailer, value))) => Found::Version(trailer, value),
                Ok(None) => Found::Other,
                Err(Busy) => Found::Busy,
            }),
            Body::File(file) => file.read(at, entry, key),
        }
    }

    /// The error for an index that has entries for the segment which are not those of its records.
    pub(crate) fn misindexed(&self) -> Error {
        let path = self.file().map_or_else(PathBuf::new, SegmentFile::path);
        Error::corruption(
            &path,
            0,
            "the index has other records of the segment than there are in it",
        )
    }

    /// Writes a sealed segment in memory to its file, synced. On an error no file is left.
    pub(crate) fn write_to_file(&self, home: &Home) -> Result<SegmentMeta> {
        let memory = self.memory().expect("it is in memory");
        let path = home.path(self.id);
        if home.fs.kind(&path)?.is_some() {
            // An earlier try left it, which no manifest names.
            home.fs.remove(&path)?;
        }
        let created = home.fs.create(&path, home.layer_for_writing());
        // A call that failed may have made the file all the same.
        let written = created.and_then(|file| write_records(memory, file, home, self.id));
        if let Err(error) = &written {
            let removed = home.fs.remove(&path);
            log::debug!("{error}; its file is removed: {removed:?}");
        }
        let len = written?;
        Ok(SegmentMeta { id: self.id, base: self.base, len, written: self.figures.counted() })
    }
}

/// The header of a segment's file.
pub(super) fn header(home: &Home, id: u64, len: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&home.identity.to_le_bytes());
    header[24..32].copy_from_slice(&id.to_le_bytes());
    header[32..40].copy_from_slice(&len.to_le_bytes());
    let sum = checksum::bound(home.identity_of(id), 0, &header[..60]);
    header[60..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// An error unless `file` begins with `expected`: a magic, a format version, and what is particular to the file.
pub(crate) fn check_header(path: &Path, file: &dyn File, expected: &[u8; HEADER]) -> Result<()> {
    let found = file.view(0..HEADER as u64)?;
    let version = |header: &[u8]| u32::from_le_bytes(header[8..12].try_into().expect("4 bytes"));
    let (version, supported) = (version(&found), version(expected));
    if found[..8] == expected[..8] && version > supported {
        return Err(Error::NewerFormat { file: path.to_path_buf(), found: version, supported });
    }
    if *found != *expected {
        return Err(Error::corruption(path, 0, "the file's header is not what it should be"));
    }
    Ok(())
}

fn write_records(memory: &MemorySegment, file: Arc<dyn File>, home: &Home, id: u64) -> Result<u64> {
    let identity = home.identity_of(id);
    let len = (memory.used() * UNIT) as u64;
    file.allocate(len)?;
    let mut out = Appender::new(file, BUFFER);
    out.append(&header(home, id, len))?;
    let mut at = HEADER_UNITS;
    let mut bytes = Vec::new();
    while at < memory.used() {
        let front = memory.front(at).expect("a sealed segment is full of records");
        let units = front.lengths.units();
        bytes.clear();
        bytes.reserve(units * UNIT);
        for word in at..at + units {
            bytes.extend_from_slice(&memory.word(word).to_le_bytes());
        }
        let sum = checksum::bound(identity, (at * UNIT) as u64, &bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        out.append(&bytes)?;
        at += units;
    }
    out.finish()?;
    Ok(len)
}

/// A segment's file.
pub(crate) struct SegmentFile {
    id: u64,
    pub(crate) len: u64,
    /// No record has a larger number. Who looks for the newest version could wait for ever for one that has.
    last: Seqno,
    home: Arc<Home>,
    open: ArcSwapOption<OpenSegment>,
    opening: Mutex<()>,
    used: AtomicBool,
    obsolete: AtomicBool,
    /// The segment that this is the file of.
    segment: Weak<Segment>,
}

struct OpenSegment {
    file: Arc<dyn File>,
    identity: u64,
    /// All of the file, if it lends its bytes.
    lent: Option<View>,
    _place: Place,
}

impl OpenSegment {
    #[inline]
    fn view(&self, start: usize, end: usize) -> Result<View> {
        match &self.lent {
            Some(lent) => Ok(lent.slice(start..end)),
            None => self.file.view(start as u64..end as u64),
        }
    }
}

/// A record read from a file, checked.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) front: Front,
    /// All of it.
    pub(crate) bytes: View,
}

impl Record {
    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[self.front.lengths.key_range()]
    }

    pub(crate) fn value(&self) -> Slice {
        Slice::of_view(&self.bytes, self.front.lengths.value_range())
    }

    /// What it is to somebody who looks for `key`.
    #[inline]
    fn judge(self, key: &[u8]) -> Found {
        if self.key() != key {
            return Found::Other;
        }
        let value = Slice::from_view(self.bytes, self.front.lengths.value_range());
        Found::Version(self.front.trailer, value)
    }
}

impl SegmentFile {
    pub(crate) fn path(&self) -> PathBuf {
        self.home.path(self.id)
    }

    /// Says that no later state holds this segment: its file is removed with the last reader.
    pub(crate) fn set_obsolete(&self) {
        self.obsolete.store(true, Ordering::Relaxed);
    }

    /// Bytes that hold the record at `at`, if the index knows how long it is at most.
    #[inline]
    fn range(&self, at: usize, entry: Entry) -> Option<(usize, usize)> {
        let start = at * UNIT;
        let end = start + entry.units_at_most()? as usize * UNIT;
        Some((start, end.min(self.len as usize)))
    }

    #[inline]
    fn read(&self, at: usize, entry: Entry, key: &[u8]) -> Result<Found> {
        self.with_open(|open| {
            if let Some(lent) = &open.lent {
                let start = at * UNIT;
                let bytes = lent.get(start..).unwrap_or(&[]);
                // All of it is going to be read: its lines are asked for together.
                let most = entry.units_at_most().map_or(0, |units| units as usize * UNIT);
                let lines = bytes[..most.min(bytes.len())].chunks(LINE);
                lines.take(LINES).for_each(|line| prefetch(&line[0]));
                let front = self.whole(bytes, at)?;
                self.check(open, at, front, bytes)?;
                if bytes[front.lengths.key_range()] != *key {
                    return Ok(Found::Other);
                }
                let value = front.lengths.value_range();
                let value = Slice::of_view(lent, start + value.start..start + value.end);
                return Ok(Found::Version(front.trailer, value));
            }
            let record = match self.range(at, entry) {
                Some((start, end)) if start < end => {
                    self.record(open, at, open.view(start, end)?)?
                }
                _ => self.record_at(open, at)?,
            };
            Ok(record.judge(key))
        })
    }

    /// What has to be read for the record at the entry's address; `None` if it is to be read at once: the file
    /// lends its bytes, or its length is not known.
    pub(crate) fn request(&self, at: usize, entry: Entry) -> Result<Option<ReadRequest>> {
        self.with_open(|open| {
            let range =
                self.range(at, entry).filter(|(start, end)| start < end && open.lent.is_none());
            Ok(range.map(|(start, end)| ReadRequest {
                file: Arc::clone(&open.file),
                range: start as u64..end as u64,
            }))
        })
    }

    /// What [`read`](Self::read) makes of the bytes that were requested.
    pub(crate) fn judge(&self, at: usize, bytes: View, key: &[u8]) -> Result<Found> {
        Ok(self.with_open(|open| self.record(open, at, bytes))?.judge(key))
    }

    /// How many units the record at `at` says that it takes; none if it cannot. Its checksum is not looked at.
    pub(crate) fn units_at(&self, at: usize) -> Result<Option<usize>> {
        let (start, len) = (at * UNIT, self.len as usize);
        if start >= len {
            return Ok(None);
        }
        let end = (start + (FRONT_UNITS + 1) * UNIT).min(len);
        let front = self.with_open(|open| Ok(Front::parse(&open.view(start, end)?)))?;
        let units = front.map(|front| front.lengths.units());
        Ok(units.filter(|units| (at + units) * UNIT <= len))
    }

    /// The record at `at`, of any length.
    fn record_at(&self, open: &OpenSegment, at: usize) -> Result<Record> {
        let start = at * UNIT;
        let end = (start + (FRONT_UNITS + 1) * UNIT).min(self.len as usize);
        if start + FRONT_UNITS * UNIT > end {
            return Err(self.damaged(at, "the index names a record behind the segment's end"));
        }
        self.record(open, at, open.view(start, end)?)
    }

    /// The record at `at`, which `bytes` begin with; they may be more or less than it.
    #[inline]
    fn record(&self, open: &OpenSegment, at: usize, bytes: View) -> Result<Record> {
        let front = Front::parse(&bytes);
        let Some(front) = front else { return Err(self.damaged(at, "there is no record")) };
        let len = front.lengths.units() * UNIT;
        let bytes = if bytes.len() >= len {
            bytes
        } else if at * UNIT + len <= self.len as usize {
            open.view(at * UNIT, at * UNIT + len)?
        } else {
            return Err(self.damaged(at, "a record reaches behind the segment's end"));
        };
        self.check(open, at, front, &bytes)?;
        Ok(Record { front, bytes })
    }

    /// The front of the record that `bytes` begin with, if it is whole in them.
    #[inline]
    fn whole(&self, bytes: &[u8], at: usize) -> Result<Front> {
        let front = Front::parse(bytes);
        front
            .filter(|front| front.lengths.units() * UNIT <= bytes.len())
            .ok_or_else(|| self.damaged(at, "there is no record"))
    }

    /// Checks the record that `bytes` begin with; `front` was read from them or from a part of them.
    #[inline]
    fn check(&self, open: &OpenSegment, at: usize, front: Front, bytes: &[u8]) -> Result<()> {
        let len = front.lengths.units() * UNIT;
        let sum = checksum::bound(open.identity, (at * UNIT) as u64, &bytes[4..len]);
        let is_whole = checksum::matches(&bytes[..4], sum.to_le_bytes());
        let is_whole = is_whole || planted(Bug::IgnoreHashChecksum);
        if !is_whole || Front::parse(bytes) != Some(front) {
            return Err(self.damaged(at, "the checksum of a record does not match"));
        }
        if front.trailer.seqno() > self.last {
            return Err(self.damaged(at, "a record is newer than all that was written"));
        }
        Ok(())
    }

    #[cold]
    fn damaged(&self, at: usize, what: &str) -> Error {
        Error::corruption(&self.path(), (at * UNIT) as u64, what)
    }

    #[inline]
    fn with_open<R>(&self, read: impl FnOnce(&OpenSegment) -> Result<R>) -> Result<R> {
        if let Some(open) = &*self.open.load() {
            if !self.used.load(Ordering::Relaxed) {
                self.used.store(true, Ordering::Relaxed);
            }
            return read(open);
        }
        read(&*self.open_now()?)
    }

    #[cold]
    fn open_now(&self) -> Result<Arc<OpenSegment>> {
        let _one = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = self.open.load_full() {
            return Ok(open);
        }
        let open = Arc::new(self.open_file()?);
        self.used.store(true, Ordering::Relaxed);
        let weak: Weak<Segment> = Weak::clone(&self.segment);
        let show = || self.open.store(Some(Arc::clone(&open)));
        self.home.open_files.opened(weak, OPEN_FILE_BYTES, show);
        Ok(open)
    }

    fn close(&self) -> usize {
        self.open.swap(None).map_or(0, |_| OPEN_FILE_BYTES)
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

    /// Opens the file and checks its header.
    fn open_file(&self) -> Result<OpenSegment> {
        let path = self.path();
        let file = open_needed(&*self.home.fs, &path, Access::Read, self.home.layer())?;
        let len = file.len()?;
        if len != self.len || len < HEADER as u64 {
            let what = format!("the segment has {len} bytes and should have {}", self.len);
            return Err(Error::corruption(&path, len.min(self.len), what));
        }
        check_header(&path, &*file, &header(&self.home, self.id, len))?;
        let lent = if file.lends() { Some(file.view(0..len)?) } else { None };
        file.advise(0..len, Hint::Random);
        let identity = self.home.identity_of(self.id);
        Ok(OpenSegment { file, identity, lent, _place: self.home.open_files.place() })
    }
}

impl Closable for Segment {
    fn was_used(&self) -> bool {
        self.file().is_some_and(|file| file.used.swap(false, Ordering::Relaxed))
    }

    fn close(&self) -> usize {
        self.file().map_or(0, SegmentFile::close)
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        self.give_back();
        if self.obsolete.load(Ordering::Relaxed) {
            remove_obsolete(&*self.home.fs, &self.path());
        }
    }
}

/// Reads the records of a segment one after the other.
pub(crate) struct Records {
    segment: Arc<Segment>,
    /// Where the next record begins.
    at: usize,
    /// Where the last one ends.
    end: usize,
    /// What was read ahead of a file, and where it begins.
    ahead: Option<(usize, View)>,
}

impl Records {
    /// All records that are there now.
    pub(crate) fn new(segment: Arc<Segment>) -> Self {
        let end = segment.used();
        Self { segment, at: HEADER_UNITS, end, ahead: None }
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The record at `at` of a file, of which a large piece is read at once.
    fn read(ahead: &mut Option<(usize, View)>, file: &SegmentFile, at: usize) -> Result<Record> {
        file.with_open(|open| {
            let start = at * UNIT;
            if let Some((from, piece)) = ahead
                && let Some(rest) = piece.get(start - *from..)
                && Front::parse(rest)
                    .is_some_and(|front| front.lengths.units() * UNIT <= rest.len())
            {
                return file.record(open, at, piece.slice(start - *from..piece.len()));
            }
            let piece = open.view(start, (start + BUFFER).min(file.len as usize))?;
            let record = file.record(open, at, piece.clone());
            *ahead = Some((start, piece));
            record
        })
    }

    /// The next record that is not dead, and how many units from the segment's start it begins.
    pub(crate) fn next(&mut self) -> Result<Option<(usize, Record)>> {
        while self.at < self.end {
            let record = match &self.segment.body {
                Body::Memory(memory) => {
                    let (front, bytes) = memory.copy(self.at);
                    Record { front, bytes: View::from(bytes) }
                }
                Body::File(file) => Self::read(&mut self.ahead, file, self.at)?,
            };
            let at = self.at;
            self.at += record.front.lengths.units();
            if !record.front.is_dead {
                return Ok(Some((at, record)));
            }
        }
        Ok(None)
    }
}
