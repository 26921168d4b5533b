//! Recovery of the log.
//!
//! 1. Every segment from the *floor* on (the first one needed, which the catalog knows) is opened and its
//!    header and link read. The floor itself must be there.
//! 2. From the floor, valid records are handed out in order. Each must follow the one before it.
//! 3. Where they stop, the segment is looked for whose link names this segment and this very end. If there
//!    is one, reading goes on there.
//! 4. Otherwise the log ends here. What lies behind the end, here and in later segments, is either the
//!    remains of writes that were never synced (a torn tail), or the log is damaged: it is damaged exactly
//!    if a valid record behind the end says that something at or above the end had been synced. A torn tail
//!    is cut off and its bytes are reported; damage is an error, or cut off as well in tolerant recovery.
//!
//! An I/O error is never taken for the end of the log.

use std::collections::BTreeMap;
use std::path::Path;

use super::record::{self, Record, RecordKind};
use super::segment::{self, Header, SEGMENT_HEADER};
use crate::base::{Seqno, varint};
use crate::error::{Error, Result};
use crate::options::RecoveryMode;
use crate::vfs::{Access, Fs, Layer, View};

/// The writes of one record.
#[derive(Debug)]
pub(crate) struct Writes<'a> {
    /// The number of the first write.
    pub(crate) first: Seqno,
    /// What [`append`](super::Writer::append) was given.
    pub(crate) body: &'a [u8],
}

/// A segment of the chain that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadSegment {
    pub(crate) number: u64,
    pub(crate) capacity: u64,
    /// The last sequence number in it or before it.
    pub(crate) last: Seqno,
}

/// What recovery found.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The chain, oldest first; the last one is where the log ends.
    pub(crate) chain: Vec<ReadSegment>,
    /// Segment files outside the chain: number and length.
    pub(crate) unused: Vec<(u64, u64)>,
    /// Where the valid records of the last segment end.
    pub(crate) end: u64,
    /// Whether traces of further records of that segment's life follow its end.
    pub(crate) torn: bool,
    /// The last sequence number of the log.
    pub(crate) last: Seqno,
    /// Records handed out.
    pub(crate) writes: u64,
    /// Bytes of records that were cut off.
    pub(crate) dropped_bytes: u64,
    /// The largest segment number there is.
    pub(crate) largest_number: u64,
}

struct Opened {
    bytes: View,
    capacity: u64,
    link: Option<Link>,
}

#[derive(Clone, Copy)]
struct Link {
    previous: u64,
    previous_end: u64,
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

/// Reads the log in `dir` from segment `floor` on.
pub(crate) fn recover(
    fs: &dyn Fs,
    dir: &Path,
    database: u64,
    floor: u64,
    mode: RecoveryMode,
    mut visit: impl FnMut(Writes<'_>) -> Result<()>,
) -> Result<Recovered> {
    let (segments, mut unused, largest_number) = open_segments(fs, dir, database, floor)?;
    let mut number = floor;
    let Some(link) = segments.get(&floor).and_then(|opened| opened.link) else {
        let what = "the log segment that the catalog names as the first one needed is missing or empty";
        return Err(Error::corruption(&segment::path(dir, floor), 0, what));
    };
    let mut last = link.last;
    let mut end = SEGMENT_HEADER + link.len;
    let mut chain = Vec::new();
    let mut writes = 0;
    loop {
        let opened = &segments[&number];
        let identity = segment::identity(database, number);
        while let Some(record) = record::parse(&opened.bytes, end as usize, identity) {
            let Some(fields) = fields(&record).filter(|fields| fields.previous == last) else { break };
            if record.kind == RecordKind::Write && fields.count > 0 {
                visit(Writes { first: record.seqno, body: fields.body })?;
                last = record.seqno + fields.count - 1;
                writes += 1;
            }
            end += record.len() as u64;
        }
        chain.push(ReadSegment { number, capacity: opened.capacity, last });
        let follows = |link: &Link| (link.previous, link.previous_end, link.last) == (number, end, last);
        let next = segments.range(number + 1..).find(|(_, other)| other.link.as_ref().is_some_and(follows));
        let Some((&next, other)) = next else { break };
        number = next;
        end = SEGMENT_HEADER + other.link.map_or(0, |link| link.len);
    }
    let proves = |record: &Record<'_>| fields(record).is_some_and(|fields| fields.synced > last);
    let behind =
        record::remains(&segments[&number].bytes, end as usize, segment::identity(database, number), proves);
    let mut dropped_bytes = behind.bytes;
    let mut proof = behind.proof;
    for (&later, opened) in segments.range(number + 1..) {
        let start = SEGMENT_HEADER as usize;
        let identity = segment::identity(database, later);
        let found = record::remains(&opened.bytes, start, identity, proves);
        dropped_bytes += found.bytes;
        proof |= found.proof;
    }
    let path = segment::path(dir, number);
    if proof && mode == RecoveryMode::Strict {
        return Err(Error::corruption(
            &path,
            end,
            format!(
                "a log record that had been synced is unreadable (writes up to number {last} are whole); \
                 tolerant recovery drops it and all that follows"
            ),
        ));
    }
    let in_chain = |number: &u64| chain.iter().any(|read| read.number == *number);
    unused.extend(
        segments
            .iter()
            .filter(|(number, _)| !in_chain(number))
            .map(|(&number, opened)| (number, opened.bytes.len() as u64)),
    );
    let torn = behind.bytes > 0;
    Ok(Recovered { chain, unused, end, torn, last, writes, dropped_bytes, largest_number })
}

type Opening = (BTreeMap<u64, Opened>, Vec<(u64, u64)>, u64);

/// Opens the segments from `floor` on; the others are listed with their length.
fn open_segments(fs: &dyn Fs, dir: &Path, database: u64, floor: u64) -> Result<Opening> {
    let mut segments = BTreeMap::new();
    let mut unused = Vec::new();
    let mut largest = floor;
    for number in fs.list(dir)?.iter().filter_map(|name| segment::number_of(name)) {
        largest = largest.max(number);
        let path = segment::path(dir, number);
        let file = fs.open(&path, Access::Read, Layer::Positional)?;
        let len = file.len()?;
        if number < floor {
            unused.push((number, len));
            continue;
        }
        let bytes = file.view(0..len)?;
        let identity = segment::identity(database, number);
        let link = record::parse(&bytes, SEGMENT_HEADER as usize, identity).and_then(|record| link(&record));
        let capacity = match segment::read_header(&path, &bytes, database, number)? {
            Header::Valid { capacity } if link.is_some() && len != capacity => {
                let what = format!("the log segment has {len} bytes and should have {capacity}");
                return Err(Error::corruption(&path, len.min(capacity), what));
            }
            Header::Valid { capacity } => capacity,
            // Header and link lie in one sector: they are written or lost together.
            Header::Damaged | Header::Unused if link.is_some() => {
                return Err(Error::corruption(&path, 0, "the header of the log segment is damaged"));
            }
            Header::Damaged | Header::Unused => len,
        };
        segments.insert(number, Opened { bytes, capacity, link });
    }
    Ok((segments, unused, largest))
}

fn fields<'a>(record: &Record<'a>) -> Option<Fields<'a>> {
    let mut body = record.payload;
    let before = record.seqno.checked_sub(1)?;
    let previous = before.checked_sub(varint::take(&mut body)?)?;
    let synced = before.checked_sub(varint::take(&mut body)?)?;
    // A write takes at least a byte, so that no count can carry the numbers past their limit.
    let count = varint::take(&mut body).filter(|&count| count <= body.len() as u64)?;
    Some(Fields { previous, synced, count, body })
}

fn link(record: &Record<'_>) -> Option<Link> {
    let Fields { previous: last, mut body, .. } =
        fields(record).filter(|_| record.kind == RecordKind::Link)?;
    let previous = varint::take(&mut body)?;
    let previous_end = varint::take(&mut body)?;
    Some(Link { previous, previous_end, last, len: record.len() as u64 })
}
