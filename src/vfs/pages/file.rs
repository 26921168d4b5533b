//! A file whose pages are kept in a page cache.
//!
//! Thread safety: as every file. Reading pages that are there takes no lock; everything else shares the file's
//! shape, which what changes the length holds alone.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::PageCache;
use super::backing::Backing;
use super::bounce::Bounce;
use super::claim::{Claim, Claimed};
use super::frames::Pin;
use crate::error::{Error, Result};
use crate::vfs::{Access, File, Hint, IoStats, View, range};

/// A file over another one, by way of a [`PageCache`]. Only whole blocks of the other file are read and
/// written, but that a read ends where the file does.
///
/// What was written is held back until [`flush`](File::flush), [`sync`](File::sync), a change of the length,
/// or until its place in the cache is needed. The other file may be longer than this one until it is flushed.
/// Nothing else may change the other file meanwhile. Dropping the file flushes it; an error of that is
/// logged, but for [`Error::Closed`].
///
/// A view inside one page pins the page and copies nothing. As with mapped files, what is viewed must not be
/// changed, and no two calls may write, or write and read, the same bytes at the same time.
#[derive(Debug)]
pub struct PagedFile {
    cache: Arc<PageCache>,
    backing: Arc<Backing>,
    access: Access,
    shift: u32,
}

/// What a claim was loaded into.
enum Loaded<'a> {
    /// A single page.
    Frame(Pin<'a>),
    /// Several, or one for which there was no frame.
    Run(Bounce),
}

impl PagedFile {
    /// Reads and writes `inner` by way of `cache`.
    ///
    /// # Errors
    /// Those of asking `inner` for its length.
    pub fn new(inner: Arc<dyn File>, cache: Arc<PageCache>) -> Result<Self> {
        let id = {
            let mut directory = cache.directory();
            directory.next_file += 1;
            directory.next_file
        };
        let backing = Arc::new(Backing::new(inner, id)?);
        cache.directory().files.insert(id, Arc::clone(&backing));
        let shift = cache.block_size().trailing_zeros();
        Ok(Self { cache, backing, access: Access::Write, shift })
    }

    /// The same file for `access`: the other file would refuse a write only when the page is written back.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    #[inline]
    fn block(&self) -> usize {
        1 << self.shift
    }

    /// The page that a byte lies in, and where.
    #[inline]
    fn locate(&self, offset: u64) -> (u64, usize) {
        (offset >> self.shift, offset as usize & (self.block() - 1))
    }

    /// The pages that `len` bytes at `offset` lie in.
    fn pages(&self, offset: u64, len: usize) -> Range<u64> {
        offset >> self.shift..(offset + len as u64).div_ceil(self.block() as u64)
    }

    /// An error if the file ends before `len` bytes at `offset` do.
    #[inline]
    fn check_end(&self, offset: u64, len: usize) -> Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.backing.len() => Ok(()),
            _ => Err(range::ends_early(self.path(), offset)),
        }
    }

    /// Pins a page to use what lies `at` bytes into it, if it is there.
    #[inline]
    fn hit(&self, page: u64, at: usize) -> Option<Pin<'_>> {
        let pin = self.cache.pin(self.backing.key(page), at)?;
        if self.backing.is_new_use(page) {
            pin.touch();
        }
        Some(pin)
    }

    /// The same for a page that is there, unless it was driven out meanwhile: a look-up without the lock may miss it again and
    /// again.
    #[cold]
    fn hit_surely(&self, page: u64) -> Option<Pin<'_>> {
        self.cache.pin_surely(self.backing.key(page))
    }

    /// Fills the front of `buffer` as far as the pages are there; how many bytes that is.
    #[inline]
    fn read_present(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let (page, at) = self.locate(offset + done as u64);
            let Some(pin) = self.hit(page, at) else { break };
            let len = (self.block() - at).min(buffer.len() - done);
            pin.read(at, &mut buffer[done..done + len]);
            done += len;
        }
        done
    }

    /// Fills `buffer`, some page of which was missed.
    #[cold]
    fn read_missing(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let _shape = self.backing.share_shape();
        self.check_end(offset, buffer.len())?;
        let pages = self.pages(offset, buffer.len());
        let is_long = pages.end - pages.start > self.cache.long();
        let mut done = 0;
        while done < buffer.len() {
            done += self.read_present(offset + done as u64, &mut buffer[done..]);
            let (page, at) = self.locate(offset + done as u64);
            let rest = &mut buffer[done..];
            if rest.is_empty() {
                break;
            }
            let around = match is_long && at == 0 && rest.len() >= self.block() {
                true => self.read_around(page, rest)?,
                false => 0,
            };
            if around > 0 {
                done += around;
                continue;
            }
            // The last page of a long read is read on its own, by and by.
            let end = if is_long { page + 1 } else { pages.end };
            let Some(claim) = self.claim(page..end) else {
                if let Some(pin) = self.hit_surely(page) {
                    let len = (self.block() - at).min(rest.len());
                    pin.read(at, &mut rest[..len]);
                    done += len;
                }
                continue;
            };
            let run = (claim.pages().end - claim.pages().start) as usize * self.block();
            let len = (run - at).min(rest.len());
            match self.load(claim)? {
                Loaded::Frame(pin) => pin.read(at, &mut rest[..len]),
                Loaded::Run(bytes) => rest[..len].copy_from_slice(&bytes[at..at + len]),
            }
            done += len;
        }
        Ok(())
    }

    /// Reads the whole pages from `first` on that are missing, with one call past the cache; how many bytes.
    fn read_around(&self, first: u64, buffer: &mut [u8]) -> Result<usize> {
        let whole = (buffer.len() >> self.shift) as u64;
        let is_missing = |page: &u64| self.cache.pin_surely(self.backing.key(*page)).is_none();
        let run = (first..first + whole).take_while(is_missing).count() << self.shift;
        self.backing.read_pages(first, self.block(), &mut buffer[..run])?;
        Ok(run)
    }

    /// Claims the first of `pages` and the missing ones behind it. Otherwise waits until it is worth looking
    /// again: what others meet with is nothing to who waits.
    fn claim(&self, pages: Range<u64>) -> Option<Claim<'_>> {
        match self.cache.claim(self.backing.id, pages) {
            Claimed::Present => None,
            Claimed::Elsewhere(flight) => {
                flight.wait();
                None
            }
            Claimed::Mine(claim) => Some(claim),
        }
    }

    /// Reads claimed pages with one call, into frames as far as there are any.
    fn load<'a>(&self, mut claim: Claim<'a>) -> Result<Loaded<'a>> {
        let Range { start, end } = claim.pages();
        let (backing, block) = (&self.backing, self.block());
        claim.reserve();
        if let [blank] = claim.blanks()
            && end - start == 1
        {
            backing.read_pages(start, block, blank.bytes_mut())?;
            if let Some(pin) = claim.publish(false).pop() {
                return Ok(Loaded::Frame(pin));
            }
        }
        let mut bytes = Bounce::new((end - start) as usize * block);
        backing.read_pages(start, block, &mut bytes)?;
        for (blank, page) in claim.blanks().iter_mut().zip(bytes.chunks_exact(block)) {
            blank.bytes_mut().copy_from_slice(page);
        }
        claim.publish(false);
        Ok(Loaded::Run(bytes))
    }

    /// A view of bytes in a page that was missed.
    #[cold]
    fn view_missing(&self, page: u64, at: usize, len: usize) -> Result<View> {
        let _shape = self.backing.share_shape();
        self.check_end((page << self.shift) + at as u64, len)?;
        loop {
            if let Some(pin) = self.hit(page, at) {
                return Ok(pin.lend(at, len));
            }
            if let Some(claim) = self.claim(page..page + 1) {
                return Ok(match self.load(claim)? {
                    Loaded::Frame(pin) => pin.lend(at, len),
                    Loaded::Run(bytes) => View::from(bytes[at..at + len].to_vec()),
                });
            }
            if let Some(pin) = self.hit_surely(page) {
                return Ok(pin.lend(at, len));
            }
        }
    }

    /// Writes bytes to a file that nobody cuts off or lengthens meanwhile.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let pages = self.pages(offset, bytes.len());
        let is_long = pages.end - pages.start > self.cache.long();
        let (mut done, mut written) = (0, usize::MAX);
        while done < bytes.len() {
            let (page, at) = self.locate(offset + done as u64);
            let rest = &bytes[done..];
            let len = (self.block() - at).min(rest.len());
            // If nothing was written, somebody else has the page, or had it.
            let found = if written == 0 { self.hit_surely(page) } else { self.hit(page, at) };
            written = if let Some(pin) = found {
                let mut latch = pin.latch();
                latch.write(at, &rest[..len]);
                self.backing.mark_dirty(page, &latch);
                len
            } else if is_long && len == self.block() {
                self.write_around(page, rest)?
            } else {
                self.write_missing(page, at, &rest[..len])?
            };
            done += written;
            self.backing.extend(offset + done as u64);
        }
        Ok(())
    }

    /// Writes the whole pages from `first` on that are missing, with one call past the cache; how many bytes.
    fn write_around(&self, first: u64, bytes: &[u8]) -> Result<usize> {
        let whole = (bytes.len() >> self.shift) as u64;
        let Some(claim) = self.claim(first..first + whole) else { return Ok(0) };
        let run = (claim.pages().end - first) as usize * self.block();
        self.backing.write_pages(first, self.block(), &bytes[..run])?;
        Ok(run)
    }

    /// Writes to a page that was missed; how many bytes. What of the page is not overwritten is read first.
    fn write_missing(&self, page: u64, at: usize, bytes: &[u8]) -> Result<usize> {
        let Some(mut claim) = self.claim(page..page + 1) else { return Ok(0) };
        let (backing, block) = (&self.backing, self.block());
        let fill = |target: &mut [u8]| -> Result<()> {
            if bytes.len() < block {
                backing.read_pages(page, block, target)?;
            }
            target[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        claim.reserve();
        if let [blank] = claim.blanks() {
            fill(blank.bytes_mut())?;
            backing.note_dirty(page, blank.index());
            claim.publish(true);
        } else {
            let mut whole = Bounce::new(block);
            fill(&mut whole)?;
            backing.write_pages(page, block, &whole)?;
        }
        Ok(bytes.len())
    }

    /// Hands what the cache holds of the file to the kernel, and gives the file below its true length.
    pub fn flush(&self) -> Result<()> {
        self.backing.write_back(&self.cache)?;
        self.backing.trim()?;
        self.backing.inner.flush()
    }
}

impl Drop for PagedFile {
    fn drop(&mut self) {
        match PagedFile::flush(self) {
            // It may be somebody else's by now: what was needed of it was flushed before.
            Ok(()) | Err(Error::Closed) => {}
            Err(error) => log::error!("what was written to a closed file is lost: {error}"),
        }
        self.backing.forget_all(&self.cache);
        let mut directory = self.cache.directory();
        directory.files.remove(&self.backing.id);
        directory.closed = directory.closed + self.backing.tally.stats();
    }
}

impl File for PagedFile {
    fn path(&self) -> &Path {
        self.backing.inner.path()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.backing.len())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.backing.truncate(&self.cache, len)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.backing.allocate(len)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        self.check_end(offset, buffer.len())?;
        let done = self.read_present(offset, buffer);
        if done == buffer.len() {
            self.backing.tally.hit();
            return Ok(());
        }
        self.backing.tally.miss();
        self.read_missing(offset + done as u64, &mut buffer[done..])
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_vectored_at(offset, &[IoSlice::new(bytes)])
    }

    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let end = offset.checked_add(len as u64).filter(|end| i64::try_from(*end).is_ok());
        if len == 0 {
            return Ok(());
        }
        if self.access == Access::Read {
            let source = rustix::io::Errno::BADF.into();
            return Err(Error::io("write", self.path(), Some(offset), source));
        }
        if end.is_none() {
            let source = io::ErrorKind::FileTooLarge.into();
            return Err(Error::io("write", self.path(), Some(offset), source));
        }
        let _shape = self.backing.share_shape();
        if let [part] = parts {
            return self.write(offset, part);
        }
        if len <= self.cache.long() as usize * self.block() {
            // So that a page which several parts overwrite together is not read first.
            let parts: Vec<&[u8]> = parts.iter().map(|part| &**part).collect();
            return self.write(offset, &parts.concat());
        }
        let mut at = offset;
        for part in parts {
            self.write(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Self::flush(self)
    }

    fn sync(&self) -> Result<()> {
        Self::flush(self)?;
        self.backing.inner.sync()
    }

    fn advise(&self, range: Range<u64>, hint: Hint) {
        if hint == Hint::DontNeed {
            let end = range.end.min(self.backing.len());
            let pages = range.start.div_ceil(self.block() as u64)..end >> self.shift;
            self.cache.forget_clean(self.backing.id, pages.start, pages.end);
        }
        self.backing.inner.advise(range, hint);
    }

    fn alignment(&self) -> usize {
        self.block()
    }

    /// Views are lent from frames.
    fn shares(&self) -> bool {
        true
    }

    fn view(&self, range: Range<u64>) -> Result<View> {
        let len = range::length(self.path(), &range)?;
        if len == 0 {
            return Ok(View::from(Vec::new()));
        }
        self.check_end(range.start, len)?;
        let (page, at) = self.locate(range.start);
        if len > self.block() - at {
            let mut bytes = vec![0; len];
            self.read_at(range.start, &mut bytes)?;
            return Ok(View::from(bytes));
        }
        if let Some(pin) = self.hit(page, at) {
            self.backing.tally.hit();
            return Ok(pin.lend(at, len));
        }
        self.backing.tally.miss();
        self.view_missing(page, at, len)
    }

    fn try_view(&self, range: Range<u64>) -> Result<Option<View>> {
        let len = range::length(self.path(), &range)?;
        if len == 0 {
            return Ok(Some(View::from(Vec::new())));
        }
        self.check_end(range.start, len)?;
        let (page, at) = self.locate(range.start);
        if len <= self.block() - at
            && let Some(pin) = self.hit(page, at)
        {
            self.backing.tally.hit();
            return Ok(Some(pin.lend(at, len)));
        }
        let pages = self.pages(range.start, len);
        let is_there = |page| self.cache.pin_surely(self.backing.key(page)).is_some();
        let is_below = || {
            // What lies behind the file's end has not been read by anybody.
            let end = (pages.end << self.shift).min(self.backing.len());
            self.backing.inner.is_at_hand(pages.start << self.shift..end)
        };
        if pages.clone().all(is_there) || is_below() {
            self.view(range).map(Some)
        } else {
            Ok(None)
        }
    }

    fn stats(&self) -> IoStats {
        self.backing.inner.stats()
    }
}
