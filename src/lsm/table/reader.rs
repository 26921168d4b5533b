//! An open table: its index and filter in memory, its blocks in the file.
//!
//! A block is checked against its checksum whenever it is read from the file. Where the file lends its
//! bytes, reading costs nothing: the whole file is one view, a block is checked when it is first used,
//! and the cache is left to those who need it.
//!
//! Thread safety: all methods may be called from any thread at the same time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::block::Block;
use super::footer::Footer;
use super::index::Index;
use super::points::{Lookup, PointIndex, Position};
use super::properties::Properties;
use super::{Damage, ReadMode, TableCursor, stored};
use crate::base::prefetch::{prefetch, prefetch_end};
use crate::base::{Seqno, Slice, Trailer, View};
use crate::cache::{BlockCache, FileBlocks};
use crate::error::{Error, Result};
use crate::filter::Bloom;
use crate::vfs::{File, Hint, ReadRequest};

/// What the processor reads at once.
const LINE: usize = 64;

/// The newest version of a key that is visible, tombstone or not, if there is one.
pub(crate) type Found = Option<(Trailer, Slice)>;

/// A table that is read.
#[derive(Debug)]
pub(crate) struct Table {
    pub(super) file: Arc<dyn File>,
    pub(super) identity: u64,
    pub(super) parts: Parts,
    len: u64,
    cached: Option<Arc<FileBlocks>>,
    lent: Option<Lent>,
}

/// The parts of a table that are kept in memory.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) index: Index,
    pub(super) filter: Option<Bloom>,
    pub(super) properties: Properties,
    pub(super) points: Option<PointIndex>,
}

/// Where a key is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) block: usize,
    within: Within,
}

/// Where in its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Within {
    /// If the table has the key, its newest entry starts here.
    Start(usize),
    /// If the table has the key, its newest entry is somewhere in the block.
    Newest,
    /// If the table has an entry of the key that is visible, the newest of those is in the block.
    Any,
}

/// The bytes of a file that lends them, and which of its blocks were checked: one bit each.
#[derive(Debug)]
struct Lent {
    bytes: View,
    checked: Box<[AtomicU64]>,
}

impl Lent {
    /// Asks ahead for what a search in the block at `range` will look at.
    #[inline]
    fn prefetch(&self, range: Range<u64>, within: Within) {
        let block = &self.bytes[range.start as usize..range.end as usize];
        match within {
            Within::Start(start) if start < block.len() => {
                prefetch(&block[start]);
                prefetch(&block[block.len() - 1]);
                prefetch(&block[block.len().saturating_sub(LINE)]);
            }
            _ => prefetch_end(block),
        }
    }
}

impl Table {
    /// Opens the table in `file`, which must be exactly `expected_len` bytes long and have been written
    /// with this identity. Reads the index, the filter and the properties, checks them, and keeps them
    /// in memory. Blocks are cached in `cache`.
    pub(crate) fn open(
        file: Arc<dyn File>,
        identity: u64,
        expected_len: u64,
        cache: Option<Arc<BlockCache>>,
    ) -> Result<Self> {
        let parts = Parts::load(&*file, identity, expected_len)?;
        file.advise(0..expected_len, Hint::Random);
        let lent = if file.lends() {
            let words = parts.index.len().div_ceil(64);
            let checked = (0..words).map(|_| AtomicU64::new(0)).collect();
            Some(Lent { bytes: file.view(0..expected_len)?, checked })
        } else {
            None
        };
        let cached =
            cache.filter(|_| lent.is_none()).map(|cache| FileBlocks::new(cache, parts.index.len()));
        Ok(Self { file, identity, parts, len: expected_len, cached, lent })
    }

    /// The newest version of `key` that was written up to `at`, tombstone or not. `hash` is
    /// [`hash64`](crate::base::hash::hash64) of the key. Reads at most one block, two if a newer version is in the way.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], hash: u64, at: Seqno) -> Result<Found> {
        match self.place_of(key, hash, at) {
            Some(place) => self.find_at(place, key, at),
            None => Ok(None),
        }
    }

    #[inline]
    fn find_at(&self, place: Place, key: &[u8], at: Seqno) -> Result<Found> {
        match &self.lent {
            Some(lent) => self.find_lent(lent, place, key, at),
            None => self.find_in(&self.read_cached(place.block)?, place, key, at),
        }
    }

    /// What [`get`](Self::get) gives, by way of the index alone.
    #[cold]
    fn search(&self, key: &[u8], at: Seqno) -> Result<Found> {
        self.place_by_index(key, at).map_or(Ok(None), |place| self.find_at(place, key, at))
    }

    // ---- a get in steps, for those who make many at once ----

    /// Where [`get`](Self::get) would look; `None` if the key is surely not here.
    #[inline]
    pub(crate) fn place_of(&self, key: &[u8], hash: u64, at: Seqno) -> Option<Place> {
        if self.parts.filter.as_ref().is_some_and(|filter| !filter.may_contain(hash)) {
            return None;
        }
        if let Some(points) = &self.parts.points {
            match points.find(hash) {
                Lookup::Absent => return None,
                Lookup::At(Position { block, start }) if block < self.parts.index.len() => {
                    let within = start.map_or(Within::Newest, Within::Start);
                    return Some(Place { block, within });
                }
                _ => {}
            }
        }
        self.place_by_index(key, at)
    }

    #[inline]
    fn place_by_index(&self, key: &[u8], at: Seqno) -> Option<Place> {
        let block = self.parts.index.find(key, Trailer::visible_at(at));
        (block < self.parts.index.len()).then_some(Place { block, within: Within::Any })
    }

    /// Asks ahead for the memory that [`prefetch_block`](Self::prefetch_block) looks at itself.
    #[inline]
    pub(crate) fn prefetch_slot(&self, block: usize) {
        if let Some(cached) = &self.cached {
            cached.prefetch(block);
        }
    }

    /// Asks ahead for the memory that a search in the block will look at, if the block is in memory.
    #[inline]
    pub(crate) fn prefetch_place(&self, place: Place) {
        match (&self.lent, &self.cached) {
            (Some(lent), _) => lent.prefetch(self.parts.index.range(place.block), place.within),
            (None, Some(cached)) => cached.prefetch_block(place.block),
            (None, None) => {}
        }
    }

    /// Looks for `key` in the block if that can be done without waiting for a device; else `None`.
    #[inline]
    pub(crate) fn try_find_at(&self, place: Place, key: &[u8], at: Seqno) -> Result<Option<Found>> {
        let block = place.block;
        if let Some(lent) = &self.lent {
            return self.find_lent(lent, place, key, at).map(Some);
        }
        if let Some(stored) = self.cached.as_ref().and_then(|cached| cached.get(block)) {
            return self.find_in(&stored, place, key, at).map(Some);
        }
        let Some(stored) = self.file.try_view(self.parts.index.range(block))? else {
            return Ok(None);
        };
        self.take_in(block, &stored)?;
        self.find_in(&stored, place, key, at).map(Some)
    }

    /// The read that brings in the block from a device.
    pub(crate) fn request(&self, block: usize) -> ReadRequest {
        ReadRequest { file: Arc::clone(&self.file), range: self.parts.index.range(block) }
    }

    /// Checks the block as it was read, and keeps it in the cache.
    pub(crate) fn take_in(&self, block: usize, stored: &View) -> Result<()> {
        self.check(stored, block)?;
        if let Some(cached) = &self.cached {
            // Views of a page cache hold on to its frames, which a cache must not.
            let kept = match self.file.shares() {
                true => View::from(stored.to_vec()),
                false => stored.clone(),
            };
            cached.insert(block, kept);
        }
        Ok(())
    }

    /// Looks for `key` in the stored block of the place.
    #[inline]
    pub(crate) fn find_in(
        &self,
        stored: &View,
        place: Place,
        key: &[u8],
        at: Seqno,
    ) -> Result<Found> {
        self.find(stored, 0..stored.len(), place, key, at)
    }

    #[inline]
    fn find_lent(&self, lent: &Lent, place: Place, key: &[u8], at: Seqno) -> Result<Found> {
        lent.prefetch(self.parts.index.range(place.block), place.within);
        let range = self.checked_range(lent, place.block)?;
        self.find(&lent.bytes, range, place, key, at)
    }

    /// Looks for `key` at a place; its stored block is `range` of `view`.
    #[inline]
    fn find(
        &self,
        view: &View,
        range: Range<usize>,
        place: Place,
        key: &[u8],
        at: Seqno,
    ) -> Result<Found> {
        let base = range.start;
        let in_block = || {
            let block = Block::parse(stored::content(&view[range])?)?;
            match place.within {
                Within::Start(start) => block.entry_of(key, start),
                Within::Newest | Within::Any => block.find(key, Trailer::visible_at(at)),
            }
        };
        let found = in_block().map_err(|damage| self.damaged(damage, place.block))?;
        match found {
            Some(entry) if entry.trailer.seqno() <= at => {
                let value = base + entry.value.start..base + entry.value.end;
                Ok(Some((entry.trailer, Slice::of_view(view, value))))
            }
            // An older version of the key may lie anywhere behind it.
            Some(_) => self.search(key, at),
            None if place.within == Within::Newest => self.search(key, at),
            None => Ok(None),
        }
    }

    // ---- parts ----

    /// Asks ahead for the memory that [`get`](Self::get) will look at first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(points) = &self.parts.points {
            points.prefetch(hash);
        }
        if let Some(filter) = &self.parts.filter {
            filter.prefetch(hash);
        }
    }

    /// A cursor over all entries.
    pub(crate) fn cursor(self: &Arc<Self>, mode: ReadMode) -> TableCursor {
        TableCursor::new(Arc::clone(self), mode)
    }

    /// What the table holds.
    pub(crate) fn properties(&self) -> &Properties {
        &self.parts.properties
    }

    /// The file's length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of memory kept for as long as the table is open: index, filter and what goes with them.
    pub(crate) fn memory(&self) -> usize {
        let Parts { index, filter, properties, points } = &self.parts;
        size_of::<Self>()
            + index.memory()
            + filter.as_ref().map_or(0, Bloom::memory)
            + points.as_ref().map_or(0, PointIndex::memory)
            + properties.smallest.len()
            + properties.largest.len()
            + self.lent.as_ref().map_or(0, |lent| size_of_val(&lent.checked[..]))
            + self.cached.as_ref().map_or(0, |cached| cached.memory())
    }

    /// The contents of a block of a file that lends its bytes; `None` if it does not.
    pub(super) fn lent_block(&self, block: usize) -> Result<Option<View>> {
        let Some(lent) = &self.lent else { return Ok(None) };
        let range = self.checked_range(lent, block)?;
        self.content(&lent.bytes, range, block).map(Some)
    }

    /// The contents of a block, from the cache or the file; kept in the cache.
    pub(super) fn block(&self, block: usize) -> Result<View> {
        let stored = self.read_cached(block)?;
        self.content(&stored, 0..stored.len(), block)
    }

    /// The contents of a block, if it is in the cache.
    pub(super) fn block_in_cache(&self, block: usize) -> Result<Option<View>> {
        let Some(stored) = self.cached.as_ref().and_then(|cached| cached.get(block)) else {
            return Ok(None);
        };
        self.content(&stored, 0..stored.len(), block).map(Some)
    }

    /// The contents of a block that is part of `run`, blocks read from the file at `start`.
    pub(super) fn block_in_run(&self, run: &View, start: u64, block: usize) -> Result<View> {
        let range = self.parts.index.range(block);
        let range = (range.start - start) as usize..(range.end - start) as usize;
        self.check(&run[range.clone()], block)?;
        self.content(run, range, block)
    }

    pub(super) fn damaged(&self, damage: Damage, block: usize) -> Error {
        damage.at(self.file.path(), self.parts.index.range(block).start)
    }

    /// The block as stored, from the cache or the file.
    #[inline]
    fn read_cached(&self, block: usize) -> Result<View> {
        if let Some(stored) = self.cached.as_ref().and_then(|cached| cached.get(block)) {
            return Ok(stored);
        }
        let stored = self.file.view(self.parts.index.range(block))?;
        self.take_in(block, &stored)?;
        Ok(stored)
    }

    /// Where a block is in the lent bytes, checked now if it was not before. Two threads may both check.
    #[inline]
    fn checked_range(&self, lent: &Lent, block: usize) -> Result<Range<usize>> {
        let range = self.parts.index.range(block);
        let range = range.start as usize..range.end as usize;
        let (word, bit) = (&lent.checked[block / 64], 1 << (block % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            self.check(&lent.bytes[range.clone()], block)?;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(range)
    }

    fn check(&self, stored: &[u8], block: usize) -> Result<()> {
        let offset = self.parts.index.range(block).start;
        stored::check(stored, self.identity, offset).map_err(|damage| self.damaged(damage, block))
    }

    /// The contents of the stored block in `range` of `view`.
    fn content(&self, view: &View, range: Range<usize>, block: usize) -> Result<View> {
        let content =
            stored::content(&view[range.clone()]).map_err(|damage| self.damaged(damage, block))?;
        Ok(view.slice(range.start..range.start + content.len()))
    }
}

impl Parts {
    /// Reads and checks all but the data blocks.
    pub(super) fn load(file: &dyn File, identity: u64, expected_len: u64) -> Result<Self> {
        let len = file.len()?;
        let footer_at = len.checked_sub(Footer::LEN as u64).filter(|_| len == expected_len);
        let Some(footer_at) = footer_at else {
            let what = format!("the table is {len} bytes long, not {expected_len}");
            return Err(Error::corruption(file.path(), len.min(expected_len), what));
        };
        let footer = file.view(footer_at..len)?;
        let Some(footer) = footer.first_chunk() else {
            return Err(Error::corruption(file.path(), footer_at, "the footer is cut off"));
        };
        let footer = Footer::decode(footer, file.path(), identity, footer_at)?;
        let tail = file.view(footer.data..footer_at)?;
        let mut parts = TailReader { file, identity, at: footer.data, rest: &tail };
        Ok(Self {
            index: parts.take(footer.index, |bytes| Index::decode(bytes, footer.data))?,
            filter: match footer.filter {
                0 => None,
                len => Some(parts.take(len, |bytes| {
                    Bloom::decode(bytes).ok_or(Damage("the filter is malformed"))
                })?),
            },
            properties: parts.take(footer.properties, Properties::decode)?,
            points: match footer.points {
                0 => None,
                len => Some(
                    parts.take_lent(&tail, len, |part| PointIndex::decode(part, file.lends()))?,
                ),
            },
        })
    }
}

/// Takes one part after the other off the bytes between the data and the footer.
struct TailReader<'a> {
    file: &'a dyn File,
    identity: u64,
    at: u64,
    rest: &'a [u8],
}

impl TailReader<'_> {
    /// Likewise, with a view of the part in `tail`, which all is taken from.
    fn take_lent<T>(
        &mut self,
        tail: &View,
        len: u64,
        decode: impl Fn(View) -> Result<T, Damage>,
    ) -> Result<T> {
        let start = tail.len() - self.rest.len();
        self.take(len, |content| decode(tail.slice(start..start + content.len())))
    }

    /// Checks and decodes the next part, `len` bytes as stored.
    fn take<T>(&mut self, len: u64, decode: impl Fn(&[u8]) -> Result<T, Damage>) -> Result<T> {
        let part = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let decoded = part.ok_or(Damage("a part is cut off")).and_then(|(stored, rest)| {
            self.rest = rest;
            stored::check(stored, self.identity, self.at)?;
            decode(stored::content(stored)?)
        });
        let decoded = decoded.map_err(|damage| damage.at(self.file.path(), self.at));
        self.at += len;
        decoded
    }
}
