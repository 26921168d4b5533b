//! A file that is reached in whole blocks, whatever its caller asks for.
//!
//! A read is widened to whole blocks and made with one call; the view that is given is a part of what was
//! read. A write of whole blocks goes straight through. Of any other, the blocks at its edges are read,
//! changed and written back; one that is overwritten as a whole, or lies behind the end, is not read.
//!
//! Over a plain file the last block ends where the file does. A raw direct file takes whole blocks only: there
//! the last one is padded with zeros, so that for a while the file is longer than its bytes are. `len` is its
//! true length, which `flush`, `sync` and dropping the file restore.
//!
//! Thread safety and invariants:
//! - Writes of whole blocks below the end share `end`; all others, and what changes the length, hold it alone:
//!   two writers of different parts of a block do not lose each other's bytes. Readers take no lock.
//! - While `end` is [`End::True`] or [`End::Padded`], what the file has behind `len` is zeros.
//! - Only one handle at a time changes the file. What others did before is seen: a length is asked for anew
//!   when it is too short.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use super::aligned::{self, AlignedBuf};
use super::counters::IoStats;
use super::{File, Hint, RawRead, View, range};
use crate::error::{Error, Result};
use crate::planted::{Bug, planted};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Bytes that cannot go straight through are copied in pieces of this many: a multiple of every block size.
const PIECE: u64 = 1 << 20;

/// Whole blocks over another file.
#[derive(Debug)]
pub(super) struct BlockFile {
    inner: Arc<dyn File>,
    block: u64,
    /// Whether the inner file takes whole blocks in aligned memory only.
    is_raw: bool,
    /// The length that the caller knows.
    len: AtomicU64,
    end: RwLock<End>,
}

/// Where the inner file ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// At `len`.
    True,
    /// At the end of the block that `len` lies in.
    Padded,
    /// Nobody knows: a write there failed.
    Torn,
}

impl BlockFile {
    /// Reaches `inner` in blocks of `block` bytes, a power of two.
    pub(super) fn new(inner: Arc<dyn File>, block: u32) -> Result<Self> {
        let len = AtomicU64::new(inner.len()?);
        let is_raw = inner.alignment() > 1;
        Ok(Self { inner, block: u64::from(block), is_raw, len, end: RwLock::new(End::True) })
    }

    fn known_len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn shared(&self) -> RwLockReadGuard<'_, End> {
        self.end.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, End> {
        self.end.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn floor(&self, offset: u64) -> u64 {
        offset & !(self.block - 1)
    }

    /// The end of the block that the byte before `offset` lies in.
    fn ceiling(&self, offset: u64) -> u64 {
        self.floor(offset.saturating_add(self.block - 1))
    }

    /// The range of whole blocks around `range`, the last of them cut off where the file ends if it may be. An
    /// error if the file ends before the range does.
    fn widened(&self, range: &Range<u64>) -> Result<Range<u64>> {
        let mut len = self.known_len();
        if range.end > len {
            len = self.len()?;
        }
        if range.end > len {
            return Err(range::ends_early(self.path(), range.start));
        }
        let end = self.ceiling(range.end);
        Ok(self.floor(range.start)..if self.is_raw { end } else { end.min(len) })
    }

    /// The blocks around `range`, and where in them it begins.
    fn read_around(&self, range: &Range<u64>) -> Result<(AlignedBuf, usize)> {
        let blocks = self.widened(range)?;
        let len = range::length(self.path(), &blocks)?;
        let mut buffer = AlignedBuf::try_zeroed(len)
            .map_err(|error| Error::io("read", self.path(), Some(blocks.start), error))?;
        self.inner.read_at(blocks.start, &mut buffer)?;
        Ok((buffer, (range.start - blocks.start) as usize))
    }

    /// Whether `memory` may be handed to the inner file for the range at `offset`.
    fn fits(&self, offset: u64, memory: &[u8], end: u64) -> bool {
        offset.is_multiple_of(self.block)
            && if self.is_raw {
                end.is_multiple_of(self.block) && aligned::is_aligned(memory, self.block as usize)
            } else {
                end.is_multiple_of(self.block) || end >= self.known_len()
            }
    }

    /// Writes all parts. The end is held by the caller, alone unless whole blocks below it are written.
    fn write(&self, offset: u64, parts: &[IoSlice<'_>], end: u64) -> Result<()> {
        if let [part] = parts
            && self.fits(offset, part, end)
        {
            return self.inner.write_at(offset, part);
        }
        let mut source = Source { parts, within: 0 };
        let mut at = offset;
        while at < end {
            let stop = end.min(self.floor(at) + PIECE);
            self.write_piece(at..stop, &mut source)?;
            at = stop;
        }
        Ok(())
    }

    /// Writes what the source has next to `range`, by way of a buffer.
    fn write_piece(&self, range: Range<u64>, source: &mut Source<'_>) -> Result<()> {
        let (len, start) = (self.known_len(), self.floor(range.start));
        let end = self.ceiling(range.end);
        let mut buffer = AlignedBuf::zeroed((end - start) as usize);
        let last = end - self.block;
        let loses_front = planted(Bug::LoseFrontOfBlock);
        let keeps_front = range.start > start && start < len && !loses_front;
        let keeps_back = range.end < end && range.end < len;
        if keeps_front || (keeps_back && last == start) {
            self.read_block(start, len, &mut buffer[..self.block as usize])?;
        }
        if keeps_back && last > start {
            self.read_block(last, len, &mut buffer[(last - start) as usize..])?;
        }
        source.fill(&mut buffer[(range.start - start) as usize..(range.end - start) as usize]);
        let whole = if self.is_raw { end } else { end.min(len.max(range.end)) };
        self.inner.write_at(start, &buffer[..(whole - start) as usize])
    }

    /// Reads the block at `start` of a file of `len` bytes.
    fn read_block(&self, start: u64, len: u64, buffer: &mut [u8]) -> Result<()> {
        let there = if self.is_raw { self.block } else { self.block.min(len - start) };
        self.inner.read_at(start, &mut buffer[..there as usize])
    }

    fn write_parts(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let Some(end) = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok()) else {
            let source = io::ErrorKind::FileTooLarge.into();
            return Err(Error::io("write", self.path(), Some(offset), source));
        };
        if len == 0 {
            return self.inner.write_at(0, &[]);
        }
        let is_whole = offset.is_multiple_of(self.block) && end.is_multiple_of(self.block);
        if is_whole {
            let _shared = self.shared();
            if end <= self.known_len() {
                return self.write(offset, parts, end);
            }
        }
        let mut inner_end = self.alone();
        if *inner_end == End::Torn {
            self.restore(&mut inner_end)?;
        }
        let touches_end = self.ceiling(end) > self.known_len();
        if let Err(error) = self.write(offset, parts, end) {
            if touches_end {
                *inner_end = End::Torn;
            }
            return Err(error);
        }
        if touches_end {
            let len = end.max(self.known_len());
            self.len.store(len, Ordering::Release);
            let is_padded = self.is_raw && !len.is_multiple_of(self.block);
            *inner_end = if is_padded { End::Padded } else { End::True };
        }
        Ok(())
    }

    /// Gives the inner file the length that the caller knows.
    fn restore(&self, end: &mut End) -> Result<()> {
        if *end != End::True {
            self.inner.truncate(self.known_len())?;
            *end = End::True;
        }
        Ok(())
    }

    /// The same, if there is anything to restore.
    fn restore_end(&self) -> Result<()> {
        match *self.shared() {
            End::True => return Ok(()),
            End::Padded | End::Torn => {}
        }
        self.restore(&mut self.alone())
    }
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        match self.restore_end() {
            // It may be somebody else's by now, who finds the padding.
            Ok(()) | Err(Error::Closed) => {}
            Err(error) => log::warn!("a file keeps the padding of its last block: {error}"),
        }
    }
}

/// Parts that are copied from, one behind the other.
struct Source<'a> {
    parts: &'a [IoSlice<'a>],
    /// How much of the first one is used up.
    within: usize,
}

impl Source<'_> {
    /// Fills `target` with what comes next.
    fn fill(&mut self, mut target: &mut [u8]) {
        while !target.is_empty() {
            let rest = &self.parts[0][self.within..];
            let (front, back) = target.split_at_mut(rest.len().min(target.len()));
            front.copy_from_slice(&rest[..front.len()]);
            self.within += front.len();
            if self.within == self.parts[0].len() {
                (self.parts, self.within) = (&self.parts[1..], 0);
            }
            target = back;
        }
    }
}

impl File for BlockFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn len(&self) -> Result<u64> {
        let end = self.shared();
        if *end != End::True {
            return Ok(self.known_len());
        }
        let len = self.inner.len()?;
        self.len.store(len, Ordering::Release);
        Ok(len)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let mut end = self.alone();
        self.inner.truncate(len)?;
        self.len.store(len, Ordering::Release);
        *end = End::True;
        Ok(())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let mut end = self.alone();
        self.restore(&mut end)?;
        self.inner.allocate(len)?;
        self.len.store(self.inner.len()?, Ordering::Release);
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if buffer.is_empty() {
            return self.inner.read_at(0, buffer);
        }
        let Some(end) = offset.checked_add(buffer.len() as u64) else {
            return Err(range::ends_early(self.path(), offset));
        };
        if self.widened(&(offset..end))? == (offset..end) && self.fits(offset, buffer, end) {
            return self.inner.read_at(offset, buffer);
        }
        let mut at = offset;
        while at < end {
            let stop = end.min(self.floor(at) + PIECE);
            let (blocks, start) = self.read_around(&(at..stop))?;
            let (target, len) = ((at - offset) as usize, (stop - at) as usize);
            buffer[target..target + len].copy_from_slice(&blocks[start..start + len]);
            at = stop;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_parts(offset, &[IoSlice::new(bytes)])
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.write_parts(offset, parts)
    }

    fn flush(&self) -> Result<()> {
        self.restore_end()?;
        self.inner.flush()
    }

    fn sync(&self) -> Result<()> {
        self.restore_end()?;
        self.inner.sync()
    }

    fn advise(&self, range: Range<u64>, hint: Hint) {
        self.inner.advise(range, hint);
    }

    fn alignment(&self) -> usize {
        self.block as usize
    }

    fn view(&self, range: Range<u64>) -> Result<View> {
        let len = range::length(self.path(), &range)?;
        if len == 0 {
            return self.inner.view(0..0);
        }
        if self.is_raw {
            let (blocks, start) = self.read_around(&range)?;
            return Ok(blocks.into_view(start..start + len));
        }
        let blocks = self.widened(&range)?;
        let start = (range.start - blocks.start) as usize;
        Ok(self.inner.view(blocks)?.into_slice(start..start + len))
    }

    fn try_view(&self, range: Range<u64>) -> Result<Option<View>> {
        let len = range::length(self.path(), &range)?;
        if self.is_raw || len == 0 {
            return if len == 0 { self.inner.view(0..0).map(Some) } else { Ok(None) };
        }
        let blocks = self.widened(&range)?;
        let start = (range.start - blocks.start) as usize;
        let view = self.inner.try_view(blocks)?;
        Ok(view.map(|view| view.into_slice(start..start + len)))
    }

    fn is_at_hand(&self, range: Range<u64>) -> bool {
        let blocks = self.widened(&range);
        !self.is_raw && blocks.is_ok_and(|blocks| self.inner.is_at_hand(blocks))
    }

    fn raw_read(&self, range: Range<u64>) -> Option<RawRead<'_>> {
        let len = range::length(self.path(), &range).ok().filter(|&len| len > 0)?;
        let blocks = self.widened(&range).ok()?;
        let before = (range.start - blocks.start) as usize;
        let read = self.inner.raw_read(blocks)?;
        let start = read.part.start + before;
        Some(RawRead { part: start..start + len, ..read })
    }

    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}

#[cfg(test)]
mod tests;
