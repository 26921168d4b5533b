//! The writer: appends records to the segment under the pen.
//!
//! Records are put together in a buffer, so that a record or a group of them costs one write. With a [tail](super::tail),
//! that is a copy of memory: the buffer is a round of it, and goes to the segment when it is full. On a file with an alignment whole blocks are written: the last one
//! is padded with zeros, and stays in the buffer to be written again with what follows, so that no block is
//! ever read back. Its records are written again with the same bytes, and behind the end nothing of this life
//! of the segment can be overwritten. What is in the buffer is lost when the process is killed, what
//! was [flushed](Writer::flush) is not, and what a [`SyncPoint`] covers survives power loss once it ran
//! without error.
//!
//! Invariant: a segment that is still to get its promise is in `left`, also while a sync point runs, and none
//! from the first of them on may be released: see [`Writer::first_in_use`].
//!
//! Thread safety: one thread at a time (the commit lock); a [`SyncPoint`] is run outside of it.

use std::sync::Arc;

use super::reader::ReadSegment;
use super::record::{self, HEADER, MAX_PAYLOAD, RecordKind};
use super::segment::{SEGMENT_HEADER, Segment, Segments};
use super::tail::Tail;
use crate::base::{Seqno, varint};
use crate::error::{Error, Result};
use crate::options::DEFAULT_LOG_BUFFER;
use crate::planted::{Bug, planted};
use crate::vfs::File;

/// The most bytes that the fields in front of a record's body take.
const FIELDS: u64 = 30;
/// The most bytes that a record without a body takes. So much of each segment is kept for the promise.
const MARK: u64 = HEADER as u64 + FIELDS;
/// The most bytes that a link takes.
const LINK: u64 = MARK + 20;

/// Appends to the log.
#[derive(Debug)]
pub(crate) struct Writer {
    segments: Arc<Segments>,
    segment: Segment,
    buffer: Buffer,
    /// Whether the file may hold something back of what was written to it.
    unflushed: bool,
    tail: Option<Tail>,
    /// Buffered records are written out when they take this many bytes.
    most_buffered: usize,
    /// The last sequence number appended.
    last: Seqno,
    /// Up to here the log is known to be safe from power loss.
    synced: Seqno,
    /// Earlier segments, oldest first, whose promises have not been written yet.
    left: Vec<Left>,
}

/// Why a record, or an edit, was not appended.
#[derive(Clone, Debug)]
pub(crate) enum AppendError {
    /// The log is as it was: a later record may be appended.
    Refused(Error),
    /// It is unknown what the log holds now.
    Unknown(Error),
}

impl From<AppendError> for Error {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Refused(error) | AppendError::Unknown(error) => error,
        }
    }
}

impl AppendError {
    /// Of a write to the file: want of space leaves it as it was.
    pub(crate) fn of_write(error: Error) -> Self {
        match error {
            Error::NoSpace { .. } => Self::Refused(error),
            _ => Self::Unknown(error),
        }
    }
}

/// What was appended last.
#[derive(Debug)]
struct Buffer {
    /// Where the bytes lie in the segment: a multiple of the alignment.
    start: u64,
    bytes: Vec<u8>,
    /// How many of the bytes the kernel has already: those that the tail has, or, less than the alignment, the segment.
    written: usize,
    alignment: usize,
}

impl Buffer {
    /// Goes on at `end` of a file.
    fn at(file: &dyn File, end: u64) -> Result<Self> {
        let alignment = file.alignment();
        let written = (end % alignment as u64) as usize;
        let start = end - written as u64;
        let mut bytes = vec![0; written];
        if written > 0 {
            file.read_at(start, &mut bytes)?;
        }
        Ok(Self { start, bytes, written, alignment })
    }

    /// The end of what was appended.
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// How many bytes the kernel does not have yet.
    fn pending(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Whether there is nothing that the segment does not have.
    fn is_in_segment(&self) -> bool {
        if self.alignment > 1 { self.pending() == 0 } else { self.bytes.is_empty() }
    }

    /// Writes all to the segment, and keeps memory for `kept` bytes. After an error the buffer is what it was.
    fn write(&mut self, file: &dyn File, kept: usize) -> Result<()> {
        if self.alignment > 1 {
            return self.write_blocks(file, kept);
        }
        file.write_at(self.start, &self.bytes)?;
        self.written = 0;
        self.start += self.bytes.len() as u64;
        self.bytes.clear();
        self.bytes.shrink_to(kept);
        Ok(())
    }

    /// Writes whole blocks, and keeps the last one unless it is full.
    #[cold]
    fn write_blocks(&mut self, file: &dyn File, kept: usize) -> Result<()> {
        let len = self.bytes.len();
        self.bytes.resize(len.next_multiple_of(self.alignment), 0);
        let written = file.write_at(self.start, &self.bytes);
        self.bytes.truncate(len);
        written?;
        self.written = len % self.alignment;
        self.bytes.drain(..len - self.written);
        self.start += (len - self.written) as u64;
        self.bytes.shrink_to(self.alignment + kept);
        Ok(())
    }
}

/// A segment that the pen has left.
#[derive(Clone, Debug)]
struct Left {
    segment: Segment,
    /// Where its records end.
    end: u64,
    /// The last sequence number in it or before it.
    last: Seqno,
}

/// What has to be synced for all that was appended to be safe.
#[derive(Debug)]
pub(crate) struct SyncPoint {
    left: Vec<Left>,
    current: Arc<dyn File>,
    last: Seqno,
    synced: Seqno,
}

impl SyncPoint {
    /// Runs the syncs, oldest segment first. After an error nothing is known about what was to be synced.
    pub(crate) fn run(&self) -> Result<()> {
        if self.last == self.synced || planted(Bug::SkipLogSync) {
            return Ok(());
        }
        if !planted(Bug::SkipLeftSegmentSync) {
            self.left.iter().try_for_each(|left| left.segment.file.sync())?;
        }
        self.current.sync()
    }
}

impl Writer {
    /// Continues `segment` at `end`, where its valid records end and nothing of its life follows. All up
    /// to `last` must have been synced.
    pub(crate) fn resume(
        segments: Arc<Segments>,
        segment: Segment,
        end: u64,
        last: Seqno,
    ) -> Result<Self> {
        let buffer = Buffer::at(&*segment.file, end)?;
        Ok(Self {
            segments,
            segment,
            buffer,
            unflushed: false,
            tail: None,
            most_buffered: DEFAULT_LOG_BUFFER,
            last,
            synced: last,
            left: Vec::new(),
        })
    }

    /// Hands records to the kernel by a tail, if the log's layer maps files. Without room for one they go to the segment.
    pub(crate) fn with_tail(self) -> Self {
        let tail = self.segments.make_tail().unwrap_or_else(|error| {
            log::warn!("writing the log costs a call for each group of writes: {error}");
            None
        });
        Self { tail, ..self }
    }

    /// Holds back at most so many bytes of buffered records.
    pub(crate) fn with_buffer(self, most_buffered: usize) -> Self {
        Self { most_buffered, ..self }
    }

    /// Starts the first segment of a database.
    pub(crate) fn start(segments: Arc<Segments>) -> Result<Self> {
        Self::start_behind(segments, None, (0, 0), 0)
    }

    /// Starts a new segment behind `segment`, whose records end at `end` with number `before`. All up to
    /// `last` must have been synced, in the log or elsewhere: the log goes on with the number after it.
    pub(crate) fn start_after(
        segments: Arc<Segments>,
        segment: Segment,
        end: u64,
        before: Seqno,
        last: Seqno,
    ) -> Result<Self> {
        let link = (segment.number, end);
        Self::start_behind(segments, Some(Left { segment, end, last: before }), link, last)
    }

    /// The link is written and synced.
    fn start_behind(
        segments: Arc<Segments>,
        left: Option<Left>,
        link: (u64, u64),
        last: Seqno,
    ) -> Result<Self> {
        let segment = segments.take_next(LINK)?;
        let number = segment.number;
        let started = Self::start_in(Arc::clone(&segments), segment, left, link, last);
        if started.is_err() {
            // Its link may be there, and would be followed if another segment were started: want of space is no reason to try that.
            let removed = segments.remove_unused([number]);
            removed.map_err(|error| error.with_unknown_outcome("remove a segment of"))?;
        }
        started
    }

    fn start_in(
        segments: Arc<Segments>,
        segment: Segment,
        left: Option<Left>,
        link: (u64, u64),
        last: Seqno,
    ) -> Result<Self> {
        let mut writer = Self::resume(segments, segment, SEGMENT_HEADER, last)?;
        let before = left.as_ref().map_or(last, |left| left.last);
        writer.append_link(link, before);
        writer.left.extend(left);
        writer.write_out()?;
        // The segment is empty yet: nothing is to be promised of it in the one before.
        writer.segment.file.sync()?;
        Ok(writer)
    }

    /// The last sequence number appended.
    pub(crate) fn last(&self) -> Seqno {
        self.last
    }

    /// The segment under the pen: number, capacity and file.
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Up to here the log is known to be safe from power loss.
    pub(crate) fn synced_up_to(&self) -> Seqno {
        self.synced
    }

    /// The number of the first segment that may still be written to. It and all later ones must stay.
    pub(crate) fn first_in_use(&self) -> u64 {
        self.left.first().map_or(self.segment.number, |left| left.segment.number)
    }

    /// Whether the segment under the pen is at least half full.
    pub(crate) fn is_half_full(&self) -> bool {
        2 * self.end() > self.segment.capacity
    }

    /// Appends a record of `count` writes, the first with number `first`, all above [`last`](Self::last).
    /// `body` is what the reader gets back. On an error nothing was appended.
    pub(crate) fn append(
        &mut self,
        first: Seqno,
        count: u64,
        body: &[&[u8]],
    ) -> std::result::Result<(), AppendError> {
        let length: u64 = body.iter().map(|part| part.len() as u64).sum();
        if length + FIELDS > MAX_PAYLOAD {
            return Err(AppendError::Refused(Error::Invalid(format!(
                "a batch of {length} bytes is larger than the limit of 4 GiB; split it"
            ))));
        }
        let need = MARK + length;
        if self.end() + need + MARK > self.segment.capacity {
            self.rotate(need)?;
        } else if self.buffer.pending() as u64 + need > self.most_buffered as u64 {
            self.flush().map_err(AppendError::of_write)?;
        }
        self.append_record(RecordKind::Write, first, count, body);
        self.last = first + count - 1;
        Ok(())
    }

    /// Hands all that was appended to the kernel.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<()> {
        if !self.unflushed && (self.buffer.pending() == 0 || self.note()) {
            return Ok(());
        }
        self.write_out()
    }

    /// Hands all that was appended to the kernel by way of the tail; false if that cannot be.
    #[inline]
    fn note(&mut self) -> bool {
        let Some(tail) = &mut self.tail else { return false };
        let Buffer { start, bytes, written, .. } = &mut self.buffer;
        match tail.note(&self.segment, *start, bytes, *written) {
            Ok(true) => {
                *written = bytes.len();
                self.segments.set_in_tail(bytes.len());
                true
            }
            Ok(false) => false,
            Err(error) => self.give_up_tail(&error),
        }
    }

    #[cold]
    fn give_up_tail(&mut self, error: &Error) -> bool {
        log::warn!("the log goes on without its tail: {error}");
        self.tail = None;
        false
    }

    /// Writes all that was appended to the segment.
    pub(crate) fn write_out(&mut self) -> Result<()> {
        if !self.buffer.is_in_segment() {
            self.buffer.write(&*self.segment.file, 2 * self.most_buffered)?;
            self.segments.set_in_tail(0);
            self.unflushed = true;
        }
        if self.unflushed {
            self.segment.file.flush()?;
            self.unflushed = false;
        }
        Ok(())
    }

    /// Lets go of the log, whose segments are synced.
    pub(crate) fn finish(mut self) -> Result<()> {
        let Some(tail) = self.tail.take() else { return self.flush() };
        self.write_out()?;
        drop(tail);
        self.segments.remove_tail()
    }

    /// Whether the buffer holds as much as may be lost when the process is killed.
    pub(crate) fn is_full(&self) -> bool {
        self.buffer.pending() >= self.most_buffered
    }

    /// Whether anything is only in the buffer, or in a page cache.
    pub(crate) fn is_buffered(&self) -> bool {
        self.buffer.pending() > 0 || self.unflushed
    }

    /// Writes all out, and tells what has to be synced for all of it to be safe.
    pub(crate) fn sync_point(&mut self) -> Result<SyncPoint> {
        self.write_out()?;
        // As long as nothing new is to be synced, nothing can be promised of it.
        let is_new = self.last > self.synced;
        let left = if is_new { self.left.clone() } else { Vec::new() };
        let current = Arc::clone(&self.segment.file);
        Ok(SyncPoint { left, current, last: self.last, synced: self.synced })
    }

    /// Takes note that `point` ran without error, and leaves a mark of it in the log.
    pub(crate) fn synced(&mut self, point: &SyncPoint) -> Result<()> {
        if point.last <= self.synced {
            return Ok(());
        }
        self.synced = point.last;
        point.left.iter().try_for_each(|left| unless_full(promise(left, point.last)))?;
        self.left.drain(..point.left.len());
        self.mark()
    }

    /// Leaves a mark of what is known to be safe, if there is room for one, in the segment and on the disk: where nothing is written over, what was
    /// allocated needs new space, too.
    fn mark(&mut self) -> Result<()> {
        if self.end() + 2 * MARK > self.segment.capacity {
            return Ok(());
        }
        self.append_record(RecordKind::Mark, self.last + 1, 0, &[]);
        // It stays in the buffer, to be written with what follows: it may be in the file although there was no space, and what the
        // next segment is linked to is the end of all that is there.
        unless_full(self.flush())
    }

    /// Leaves word of what recovery has made safe from power loss, so that damage to it is never taken for a torn tail: a promise in
    /// each of the segments in front that has none, `unpromised`, oldest first, and a mark if the log does not say more than that
    /// all up to `said` is safe. Nothing is lost if there is no space for it.
    pub(crate) fn leave_word(&mut self, unpromised: &[ReadSegment], said: Seqno) -> Result<()> {
        if planted(Bug::SaySafeNowhere) {
            return Ok(());
        }
        let mut waiting = Vec::new();
        for read in unpromised {
            let segment = self.segments.open_left(read.number, read.capacity)?;
            let left = Left { segment, end: read.end, last: read.last };
            if left.last < self.synced {
                unless_full(promise(&left, self.synced))?;
            } else {
                // Nothing is to be promised of what follows it yet.
                waiting.push(left);
            }
        }
        self.left.splice(..0, waiting);
        if said < self.synced { self.mark() } else { Ok(()) }
    }

    fn end(&self) -> u64 {
        self.buffer.end()
    }

    /// Leaves the segment for the next one.
    fn rotate(&mut self, need: u64) -> std::result::Result<(), AppendError> {
        self.write_out().map_err(AppendError::of_write)?;
        // So far nothing knows of the new one.
        let next = self.segments.take_next(LINK + need + MARK).map_err(AppendError::Refused)?;
        let buffer = Buffer::at(&*next.file, SEGMENT_HEADER).map_err(|error| {
            self.segments.add_recyclable(next.number, next.capacity);
            AppendError::Refused(error)
        })?;
        let (previous, end) = (self.segment.number, self.end());
        self.segments.close(&self.segment, self.last);
        let segment = std::mem::replace(&mut self.segment, next);
        self.left.push(Left { segment, end, last: self.last });
        self.buffer = buffer;
        self.append_link((previous, end), self.last);
        Ok(())
    }

    /// `before` is the last sequence number of the segment that the link names.
    fn append_link(&mut self, (number, end): (u64, u64), before: Seqno) {
        let mut body = Vec::with_capacity(20);
        varint::put(&mut body, number);
        varint::put(&mut body, end);
        self.append_record_after(before, RecordKind::Link, self.last + 1, 0, &[&body]);
    }

    fn append_record(&mut self, kind: RecordKind, first: Seqno, count: u64, body: &[&[u8]]) {
        self.append_record_after(self.last, kind, first, count, body);
    }

    fn append_record_after(
        &mut self,
        before: Seqno,
        kind: RecordKind,
        first: Seqno,
        count: u64,
        body: &[&[u8]],
    ) {
        let offset = self.end();
        let bytes = &mut self.buffer.bytes;
        let start = record::begin(bytes);
        put_fields(bytes, first, before, self.synced, count);
        for part in body {
            bytes.extend_from_slice(part);
        }
        record::seal(bytes, start, kind, first, self.segment.identity, offset);
    }
}

/// What only leaves word of something need not be done on a disk that is full.
fn unless_full(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::NoSpace { .. }) => Ok(()),
        done => done,
    }
}

/// Writes behind the end of a segment that the log goes on after it, synced up to `synced`: see the reader.
fn promise(left: &Left, synced: Seqno) -> Result<()> {
    let Left { segment, end, last } = left;
    // What recovery left behind may be full to the brim.
    if synced <= *last || end + MARK > segment.capacity {
        return Ok(());
    }
    let mut buffer = Vec::with_capacity(MARK as usize);
    let start = record::begin(&mut buffer);
    put_fields(&mut buffer, synced + 1, *last, synced, 0);
    record::seal(&mut buffer, start, RecordKind::Mark, synced + 1, segment.identity, *end);
    segment.file.write_at(*end, &buffer)?;
    segment.file.flush()
}

/// Appends the fields in front of a record's body: the last number before it and the last one synced, as
/// distances, and how many writes it has.
fn put_fields(buffer: &mut Vec<u8>, first: Seqno, last: Seqno, synced: Seqno, count: u64) {
    varint::put(buffer, first - 1 - last);
    varint::put(buffer, first - 1 - synced);
    varint::put(buffer, count);
}
