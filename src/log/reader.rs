//! Recovery of the log.
//!
//! 1. Of every segment from the *floor* on (the first one needed, which the catalog knows) header and link
//!    are read. The floor itself must be there. There may be thousands of segments, and no more of them than
//!    one is open at a time.
//! 2. From the floor, valid records are handed out in order. Each must follow the one before it.
//! 3. Where they stop, the segment is looked for whose link names this segment and this very end. If there
//!    is one, reading goes on there.
//! 4. Otherwise the log ends here. What lies behind the end, here and in later segments, is either the
//!    remains of writes that were never synced (a torn tail), or the log is damaged: it is damaged exactly
//!    if a valid record behind the end says that something at or above the end had been synced. A torn tail
//!    is cut off and its bytes are reported; damage is an error, or cut off as well in tolerant recovery.
//!
//! A segment that was left for the next one ends with a *promise*, once the next one has been synced: a mark
//! that names a synced number which this segment does not reach. It is behind the segment's end, and so proves
//! damage if the next segment is missing, cut off or unreadable.
//!
//! What the [tail](super::tail) has of a segment is read as if it were there.
//!
//! An I/O error is never taken for the end of the log.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};

use super::record::{self, Record, RecordKind};
use super::segment::{self, Header, SEGMENT_HEADER};
use super::tail;
use crate::base::key::MAX_SEQNO;
use crate::base::{Seqno, varint};
use crate::error::{Error, Result};
use crate::options::RecoveryMode;
use crate::planted::{Bug, planted};
use crate::vfs::{Access, Fs, Layer, PROBE, View};

/// More than a segment's header and link take.
const FRONT: u64 = 512;

/// The writes of one record.
#[derive(Debug)]
pub(crate) struct Writes<'a> {
    /// The number of the first write.
    pub(crate) first: Seqno,
    pub(crate) count: u64,
    /// What [`append`](super::Writer::append) was given.
    pub(crate) body: &'a [u8],
}

/// A segment of the chain that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadSegment {
    pub(crate) number: u64,
    pub(crate) capacity: u64,
    /// Where its valid records end.
    pub(crate) end: u64,
    /// The last sequence number in it or before it.
    pub(crate) last: Seqno,
    /// The last one before it.
    before: Seqno,
    /// Where its last write ends; marks may follow.
    writes_end: u64,
    /// Whether a promise lies behind the end.
    pub(crate) is_promised: bool,
    /// The version of its format.
    pub(crate) version: u32,
}

/// What recovery found.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// The chain, oldest first; the last one is where the log ends.
    pub(crate) chain: Vec<ReadSegment>,
    /// Segment files outside the chain: number and length.
    pub(crate) unused: Vec<(u64, u64)>,
    /// Bytes from the end to the last trace of further records in the segment where the log ends.
    pub(crate) torn_bytes: u64,
    /// The last sequence number of the log.
    pub(crate) last: Seqno,
    /// Up to here the log says that it was synced.
    pub(crate) synced: Seqno,
    /// Bytes of records that are cut off.
    pub(crate) dropped_bytes: u64,
    /// The largest segment number that was ever given to a file that is there, by its name or by its header: a power loss may
    /// leave a recycled file with its new header, and records, under its old name.
    pub(crate) largest_number: u64,
}

impl Recovered {
    /// The segment where the log ends.
    pub(crate) fn end(&self) -> &ReadSegment {
        self.chain.last().expect("the chain has at least the floor")
    }
}

/// A segment whose front has been read.
struct Known {
    path: PathBuf,
    len: u64,
    capacity: u64,
    version: u32,
    link: Option<Link>,
    /// All of it, if the tail has a part.
    completed: Option<View>,
}

impl Known {
    /// A part of what its file has.
    fn view(&self, fs: &dyn Fs, range: Range<u64>) -> Result<View> {
        fs.open(&self.path, Access::Read, Layer::Positional)?.view(range)
    }
}

/// The segment that was read last, by its number: most logs have one, which is needed in each step.
#[derive(Default)]
struct LastRead(RefCell<Option<(u64, View)>>);

impl LastRead {
    /// All of segment `number`, in memory.
    fn bytes(&self, fs: &dyn Fs, number: u64, known: &Known) -> Result<View> {
        if let Some(bytes) = self.at_hand(number, known) {
            return Ok(bytes);
        }
        // No two are to be in memory.
        self.0.take();
        let bytes = known.view(fs, 0..known.len)?;
        self.0.replace(Some((number, bytes.clone())));
        Ok(bytes)
    }

    /// A part of segment `number`.
    fn part(&self, fs: &dyn Fs, number: u64, known: &Known, range: Range<u64>) -> Result<View> {
        match self.at_hand(number, known) {
            Some(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            None => known.view(fs, range),
        }
    }

    fn at_hand(&self, number: u64, known: &Known) -> Option<View> {
        known.completed.clone().or_else(|| {
            self.0.borrow().as_ref().filter(|(last, _)| *last == number).map(|(_, all)| all.clone())
        })
    }
}

#[derive(Clone, Copy)]
struct Link {
    previous: u64,
    previous_end: u64,
    /// The last sequence number of the segment before it.
    previous_last: Seqno,
    /// The last sequence number before the next record; larger only behind a log that was cut off.
    last: Seqno,
    len: u64,
}

/// The fields in front of a record's body.
struct Fields<'a> {
    /// The last sequence number before the record.
    previous: Seqno,
    synced: Seqno,
    count: u64,
    body: &'a [u8],
}

/// The log of a database that is being opened.
pub(crate) struct Log {
    database: u64,
    /// From the floor on.
    segments: BTreeMap<u64, Known>,
    last_read: LastRead,
    found: Recovered,
}

impl Log {
    /// Reads and checks the log in `dir` from segment `floor` on, one segment in memory at a time and the one that the tail belongs to. Writes that
    /// are not `possible` are damage. Changes nothing.
    pub(crate) fn open(
        fs: &dyn Fs,
        dir: &Path,
        database: u64,
        floor: u64,
        mode: RecoveryMode,
        possible: impl Fn(&Writes<'_>) -> bool,
    ) -> Result<Self> {
        // Before the segments: what is written out meanwhile is in them.
        let tail = tail::Left::read(fs, dir, database)?;
        Self::open_with(fs, dir, (database, floor), mode, tail, possible)
    }

    /// The same of a log that is being written to, by its segments alone, which have all that was written out when this is called: what only the tail has is
    /// behind that, and what it has twice must not stand in for what is damaged.
    pub(crate) fn open_segments(
        fs: &dyn Fs,
        dir: &Path,
        database: u64,
        floor: u64,
    ) -> Result<Self> {
        Self::open_with(fs, dir, (database, floor), RecoveryMode::Tolerant, None, |_| true)
    }

    fn open_with(
        fs: &dyn Fs,
        dir: &Path,
        (database, floor): (u64, u64),
        mode: RecoveryMode,
        tail: Option<tail::Left>,
        possible: impl Fn(&Writes<'_>) -> bool,
    ) -> Result<Self> {
        let mut log = read_fronts(fs, dir, (database, floor), tail)?;
        log.follow_chain(fs, dir, floor, possible)?;
        log.judge_remains(fs, dir, mode)?;
        let chain = &log.found.chain;
        let outside = |number: &u64| chain.iter().all(|read| read.number != *number);
        let unused = log.segments.iter().filter(|(number, _)| outside(number));
        let unused: Vec<_> = unused.map(|(&number, known)| (number, known.len)).collect();
        log.found.unused.extend(unused);
        Ok(log)
    }

    /// Whether there are writes in any segment in `dir`, or anything but segments of this database.
    pub(crate) fn has_writes(fs: &dyn Fs, dir: &Path, database: u64) -> Result<bool> {
        let tail = tail::Left::read(fs, dir, database)?;
        let is_segment = |name: &&String| !tail::is_tail(name) && *name != PROBE;
        for name in fs.list(dir)?.iter().filter(is_segment) {
            let Some(number) = segment::number_of(name) else { return Ok(true) };
            let path = segment::path(dir, number);
            let file = fs.open(&path, Access::Read, Layer::Positional)?;
            let bytes = file.view(0..file.len()?)?;
            segment::read_header(&path, &bytes, database, number)?;
            let is_write = |record: &Record<'_>| record.kind == RecordKind::Write;
            let identity = segment::identity(database, number);
            let tail = tail.as_ref().filter(|tail| tail.is_of(identity));
            let bytes = tail.map_or(bytes.clone(), |tail| tail.complete(bytes));
            if record::remains(&bytes, SEGMENT_HEADER as usize, identity, is_write).proof {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What was found.
    pub(crate) fn found(&self) -> &Recovered {
        &self.found
    }

    /// Makes what was read safe from power loss: it may have been in memory only, and nothing may be
    /// built on it before it is safe. What is not known to have been synced is written again, because after
    /// a failed sync the system may think it written. The tail, which is not needed any more then, is removed.
    pub(crate) fn sync(&self, fs: &dyn Fs, dir: &Path) -> Result<()> {
        self.look_again(fs, dir)?;
        for read in &self.found.chain {
            let known = &self.segments[&read.number];
            let is_synced = read.before < self.found.synced
                && read.last <= self.found.synced
                && known.completed.is_none();
            // The marks behind the last write are never known to be synced, but the next link counts on them.
            let from = if is_synced { read.writes_end } else { 0 };
            if from < read.end {
                let bytes = self.last_read.part(fs, read.number, known, from..read.end)?;
                if !planted(Bug::RewriteUnchecked) && !self.are_whole(read, from, &bytes)? {
                    return Err(no_longer_whole(&known.path, from));
                }
                let file = fs.open(&known.path, Access::Write, Layer::Positional)?;
                file.write_at(from, &bytes)?;
                if !planted(Bug::SkipRecoverySync) {
                    file.sync()?;
                }
            }
        }
        tail::remove(fs, dir)?;
        fs.sync_dir(dir)
    }

    /// Whether the log still ends where it did when it was read first, or else an error. What could not be read then would be written over; or, where it is
    /// left, a later recovery would take it up again, in the place of what is written from now on; and who only reads would not see it.
    pub(crate) fn look_again(&self, fs: &dyn Fs, dir: &Path) -> Result<()> {
        if planted(Bug::TrustFirstLook) {
            return Ok(());
        }
        let &ReadSegment { number, end, last, .. } = self.found.end();
        let tail = tail::Left::read(fs, dir, self.database)?;
        let again = read_fronts(fs, dir, (self.database, number), tail)?;
        let goes_on = match again.segments.get(&number) {
            Some(known) => again.goes_on(fs, number, known, end, last)?,
            None => true,
        };
        if goes_on || following(&again.segments, number, end, last).is_some() {
            let what =
                "what follows in the log could not be read a moment ago: open the database again";
            return Err(Error::corruption(&segment::path(dir, number), end, what));
        }
        Ok(())
    }

    /// Whether a record at `end` of a segment follows the write `last`, as step 2 would take it.
    fn goes_on(
        &self,
        fs: &dyn Fs,
        number: u64,
        known: &Known,
        end: u64,
        last: Seqno,
    ) -> Result<bool> {
        let identity = segment::identity(self.database, number);
        let part = |len: usize| {
            let to = end.saturating_add(len as u64).min(known.len);
            self.last_read.part(fs, number, known, end.min(to)..to)
        };
        let Some(len) = record::len_of_part(&part(record::HEADER)?, identity) else {
            return Ok(false);
        };
        let bytes = part(len)?;
        let record = record::parse_part(&bytes, end, identity);
        let fields = record.as_ref().and_then(fields);
        Ok(fields.is_some_and(|fields| fields.previous == last && fields.synced <= last))
    }

    /// Whether these bytes of a segment, from `from` on, are as whole as they were when the log was read first. If not, they would take the place of the
    /// right ones when they are written again.
    fn are_whole(&self, read: &ReadSegment, from: u64, bytes: &[u8]) -> Result<bool> {
        let identity = segment::identity(self.database, read.number);
        let mut at = from;
        if from == 0 {
            let path = &self.segments[&read.number].path;
            let header = segment::read_header(path, bytes, self.database, read.number)?;
            if !matches!(header, Header::Valid { .. }) {
                return Ok(false);
            }
            at = SEGMENT_HEADER;
        }
        while at < read.end {
            let part = &bytes[(at - from) as usize..];
            let Some(record) = record::parse_part(part, at, identity) else { return Ok(false) };
            at += record.len() as u64;
        }
        Ok(at == read.end)
    }

    /// Hands out the writes of the log in order.
    pub(crate) fn replay(
        &self,
        fs: &dyn Fs,
        mut visit: impl FnMut(Writes<'_>) -> Result<()>,
    ) -> Result<()> {
        for read in &self.found.chain {
            let known = &self.segments[&read.number];
            let bytes = self.last_read.bytes(fs, read.number, known)?;
            let identity = segment::identity(self.database, read.number);
            let mut at = SEGMENT_HEADER;
            while at < read.end {
                let record = record::parse(&bytes, at as usize, identity);
                let Some((record, fields)) =
                    record.and_then(|record| Some((record, fields(&record)?)))
                else {
                    return Err(no_longer_whole(&known.path, at));
                };
                at += record.len() as u64;
                if fields.count > 0 {
                    visit(Writes { first: record.seqno, count: fields.count, body: fields.body })?;
                }
            }
        }
        Ok(())
    }

    /// Steps 1 to 3: finds where the log ends.
    fn follow_chain(
        &mut self,
        fs: &dyn Fs,
        dir: &Path,
        floor: u64,
        possible: impl Fn(&Writes<'_>) -> bool,
    ) -> Result<()> {
        let found = &mut self.found;
        let mut number = floor;
        let Some(link) = self.segments.get(&floor).and_then(|known| known.link) else {
            let what = "the log segment that the catalog names as the first one needed is missing or empty";
            return Err(Error::corruption(&segment::path(dir, floor), 0, what));
        };
        let mut last = link.last;
        let mut end = SEGMENT_HEADER + link.len;
        let mut before = link.last;
        loop {
            let known = &self.segments[&number];
            let bytes = self.last_read.bytes(fs, number, known)?;
            let identity = segment::identity(self.database, number);
            let (mut writes_end, mut is_promised) = (end, false);
            while let Some(record) = record::parse(&bytes, end as usize, identity) {
                let Some(fields) = fields(&record).filter(|fields| fields.previous == last) else {
                    break;
                };
                // One that says more was synced than has been read promises that another segment follows.
                is_promised = fields.synced > last;
                if is_promised {
                    break;
                }
                found.synced = found.synced.max(fields.synced);
                if fields.count > 0 {
                    let Fields { count, body, .. } = fields;
                    if !possible(&Writes { first: record.seqno, count, body }) {
                        let what = "the log has writes that cannot be: the catalog may be too old";
                        return Err(Error::corruption(&known.path, end, what));
                    }
                    last = record.seqno + fields.count - 1;
                    writes_end = end + record.len() as u64;
                }
                end += record.len() as u64;
            }
            let &Known { capacity, version, .. } = known;
            found.chain.push(ReadSegment {
                number,
                capacity,
                end,
                before,
                last,
                writes_end,
                is_promised,
                version,
            });
            let Some((next, link)) = following(&self.segments, number, end, last) else { break };
            number = next;
            end = SEGMENT_HEADER + link.len;
            (before, last) = (link.last, link.last);
        }
        found.last = last;
        Ok(())
    }

    /// Step 4: tells a torn tail from damage.
    fn judge_remains(&mut self, fs: &dyn Fs, dir: &Path, mode: RecoveryMode) -> Result<()> {
        let ReadSegment { number, end, last, .. } = *self.found.end();
        let proves =
            |record: &Record<'_>| fields(record).is_some_and(|fields| fields.synced > last);
        let mut proof = false;
        for (&later, known) in self.segments.range(number..) {
            let start = if later == number { end } else { SEGMENT_HEADER };
            let identity = segment::identity(self.database, later);
            let bytes = match self.last_read.bytes(fs, later, known) {
                // It was prepared, and the writer has recycled it since.
                Err(error) if later > number && is_missing(&error) => continue,
                bytes => bytes?,
            };
            let remains = record::remains(&bytes, start as usize, identity, proves);
            if later == number {
                self.found.torn_bytes = remains.bytes;
            }
            self.found.dropped_bytes += remains.bytes;
            proof |= remains.proof;
        }
        if proof && mode == RecoveryMode::Strict && !planted(Bug::CutOffDamagedLog) {
            let what = format!(
                "a log record that had been synced is unreadable (writes up to number {last} are \
                 whole); tolerant recovery drops it and all that follows"
            );
            return Err(Error::corruption(&segment::path(dir, number), end, what));
        }
        Ok(())
    }
}

/// Step 1: reads the fronts of the segments from `floor` on; the others are listed with their length.
fn read_fronts(
    fs: &dyn Fs,
    dir: &Path,
    (database, floor): (u64, u64),
    tail: Option<tail::Left>,
) -> Result<Log> {
    let mut segments = BTreeMap::new();
    let mut found = Recovered { largest_number: floor, ..Recovered::default() };
    for number in fs.list(dir)?.iter().filter_map(|name| segment::number_of(name)) {
        found.largest_number = found.largest_number.max(number);
        let path = segment::path(dir, number);
        let file = match fs.open(&path, Access::Read, Layer::Positional) {
            // The writer has recycled it since: it is not one that is needed.
            Err(error) if is_missing(&error) => continue,
            file => file?,
        };
        let len = file.len()?;
        let front = file.view(0..len.min(FRONT))?;
        found.largest_number =
            found.largest_number.max(segment::number_given(&front, database).unwrap_or(0));
        if number < floor {
            found.unused.push((number, len));
            continue;
        }
        let identity = segment::identity(database, number);
        let completed = match &tail {
            Some(tail) if tail.is_of(identity) => Some(tail.complete(file.view(0..len)?)),
            _ => None,
        };
        let bytes = match &completed {
            Some(bytes) => bytes.slice(0..len.min(FRONT) as usize),
            None => front,
        };
        let link = record::parse(&bytes, SEGMENT_HEADER as usize, identity)
            .and_then(|record| link(&record));
        let (capacity, version) = match segment::read_header(&path, &bytes, database, number)? {
            Header::Valid { capacity, .. } if link.is_some() && len != capacity => {
                let what = format!("the log segment has {len} bytes and should have {capacity}");
                return Err(Error::corruption(&path, len.min(capacity), what));
            }
            Header::Valid { capacity, version } => (capacity, version),
            // The header was synced before the link was written.
            Header::Damaged | Header::Unused if link.is_some() => {
                return Err(Error::corruption(
                    &path,
                    0,
                    "the header of the log segment is damaged",
                ));
            }
            Header::Damaged | Header::Unused => (len, 0),
        };
        segments.insert(number, Known { path, len, capacity, version, link, completed });
    }
    Ok(Log { database, segments, last_read: LastRead::default(), found })
}

/// Step 3: the segment that is linked to the end of segment `number`, whose last write is `last`.
fn following(
    segments: &BTreeMap<u64, Known>,
    number: u64,
    end: u64,
    last: Seqno,
) -> Option<(u64, Link)> {
    let follows =
        |link: &Link| (link.previous, link.previous_end, link.previous_last) == (number, end, last);
    let mut later = segments.range((Bound::Excluded(number), Bound::Unbounded));
    later.find_map(|(&number, known)| Some((number, known.link.filter(follows)?)))
}

/// The error of a segment that reads differently the second time.
fn no_longer_whole(segment: &Path, at: u64) -> Error {
    let what = "a log record that was whole a moment ago is not any more";
    Error::corruption(segment, at, what)
}

/// Whether a file is not there any more.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn fields<'a>(record: &Record<'a>) -> Option<Fields<'a>> {
    let mut body = record.payload;
    let before = record.seqno.checked_sub(1)?;
    let previous = before.checked_sub(varint::take(&mut body)?)?;
    let synced = before.checked_sub(varint::take(&mut body)?)?;
    // A write takes at least a byte, so that no count can carry the numbers past their limit.
    let count = varint::take(&mut body).filter(|&count| count <= body.len() as u64)?;
    (before + count <= MAX_SEQNO).then_some(Fields { previous, synced, count, body })
}

fn link(record: &Record<'_>) -> Option<Link> {
    let Fields { previous: previous_last, mut body, .. } =
        fields(record).filter(|_| record.kind == RecordKind::Link)?;
    let previous = varint::take(&mut body)?;
    let previous_end = varint::take(&mut body)?;
    let (last, len) = (record.seqno - 1, record.len() as u64);
    Some(Link { previous, previous_end, previous_last, last, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_has_numbers_above_the_last_one() {
        let count = |seqno, count: u8| {
            let payload = &[0, 0, count, b'w', b'w'];
            let record = Record { kind: RecordKind::Write, seqno, payload };
            fields(&record).map(|fields| fields.count)
        };
        assert_eq!((count(1, 2), count(MAX_SEQNO, 1)), (Some(2), Some(1)));
        assert_eq!((count(MAX_SEQNO, 2), count(1, 3), count(0, 1)), (None, None, None));
    }
}
