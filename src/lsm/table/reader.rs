//! An open table: its index and filter in memory, as far as they are to be, its blocks in the file.
//!
//! A block is checked against its checksum whenever it is read from the file, and then decompressed if it is
//! compressed: the cache has it plain. Where the file lends its bytes, reading costs nothing: the whole file is one
//! view, a plain block is checked when it is first used, and the cache is left to those who need it.
//!
//! Thread safety: all methods may be called from any thread at the same time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::block::Block;
use super::footer::{Footer, Part};
use super::index::Index;
use super::points::{Lookup, PointIndex, Position};
use super::properties::Properties;
use super::stored::{self, Unpacker};
use super::{Damage, ReadMode, TableCursor, key_file, ranges};
use crate::base::prefetch::{prefetch, prefetch_end};
use crate::base::{Fragments, Kind, Seqno, Slice, Trailer, View};
use crate::cache::{BlockCache, FileBlocks, Handle};
use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::filter::{Filter, Lines};
use crate::options::KeyFile;
use crate::planted::{Bug, planted};
use crate::vfs::{File, Hint, ReadRequest};

/// What the processor reads at once.
const LINE: usize = 64;

/// A value that is a smaller part of its block than this does not keep the block in memory for itself alone.
const SMALL_PART: usize = 8;

/// The newest version of a key that is visible, tombstone or not, if there is one.
pub(crate) type Found = Option<(Trailer, Slice)>;

/// A table that is read.
#[derive(Debug)]
pub(crate) struct Table {
    pub(super) file: Handle,
    pub(super) identity: u64,
    pub(super) parts: Parts,
    len: u64,
    /// Of a file that lends its bytes only if some of its blocks are compressed.
    pub(super) cached: Option<Arc<FileBlocks>>,
    pub(super) lent: Option<Lent>,
}

/// The parts of a table that are kept in memory, and where all are.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) footer: Footer,
    /// Without its keys if those are not kept.
    pub(super) index: Index,
    /// `None` if there is none, or it is not kept.
    pub(super) filter: Option<Filter<Lines>>,
    /// `None` if there is none, or it is not kept.
    pub(super) points: Option<PointIndex>,
    pub(super) properties: Properties,
    /// Range tombstones, if there are any.
    pub(super) ranges: Option<Arc<Fragments>>,
    /// For blocks that are compressed.
    pub(super) unpacker: Option<Unpacker>,
}

/// A value out of a block. It is copied if it is short beside the block, which was read for it alone, or is in no cache any more.
#[inline]
fn slice_of_block(block: &View, value: Range<usize>) -> Slice {
    if value.len() < block.len() / SMALL_PART && !block.is_shared() {
        Slice::from(&block[value])
    } else {
        Slice::of_view(block, value)
    }
}

/// What of a table is to stay in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) key_file: KeyFile,
    /// The most bytes that a point index may take, if keys stay: without it they are found by the index alone.
    pub(crate) points: usize,
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

/// What is made of a block of a file that lends its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Used {
    /// It is likely to be read again: if it is compressed, it comes from the cache and stays there.
    Again,
    /// It is walked over: if it is compressed, it is decompressed for that.
    Once,
    /// It gets into another file, with a new checksum: the old one is checked, however often it was before. What the bytes became
    /// since they were last read would count as right from then on.
    InCopies,
}

/// The bytes of a file that lends them, and which of its blocks were checked and are plain: one bit each.
#[derive(Debug)]
pub(super) struct Lent {
    bytes: View,
    plain: Box<[AtomicU64]>,
}

impl Lent {
    fn new(bytes: View, blocks: usize) -> Self {
        Self { bytes, plain: (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

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

    pub(super) fn view(&self, range: Range<u64>) -> View {
        self.bytes.slice(range.start as usize..range.end as usize)
    }

    /// Whether the block was checked and is plain.
    #[inline]
    fn is_plain(&self, block: usize) -> bool {
        self.plain[block / 64].load(Ordering::Relaxed) >> (block % 64) & 1 == 1
    }

    /// Notes that the block is plain. Two threads may both find out.
    fn note_plain(&self, block: usize) {
        self.plain[block / 64].fetch_or(1 << (block % 64), Ordering::Relaxed);
    }
}

impl Table {
    /// Opens the table in `file`, which must be exactly `expected_len` bytes long and have been written
    /// with this identity. Reads all but the data blocks, checks it, and keeps of index and filter what is to be
    /// `kept` in memory. Blocks are cached in `cache`, and what is not kept.
    ///
    /// # Errors
    /// `Unsupported` if it is compressed in a way that was not compiled in.
    pub(crate) fn open(
        file: Handle,
        identity: u64,
        expected_len: u64,
        cache: Option<Arc<BlockCache>>,
        kept: Kept,
    ) -> Result<Self> {
        let open = file.file()?;
        let parts = Parts::load(&*open, identity, expected_len, kept)?;
        open.advise(0..expected_len, Hint::Random);
        let lent = match open.lends() {
            true => Some(Lent::new(open.view(0..expected_len)?, parts.index.len())),
            false => None,
        };
        let cached = cache
            .filter(|_| lent.is_none() || parts.unpacker.is_some())
            .map(|cache| FileBlocks::new(cache, parts.index.len() + key_file::PLACES));
        Ok(Self { file, identity, parts, len: expected_len, cached, lent })
    }

    /// The newest version of `key` that was written up to `at`, tombstone or not. `hash` is
    /// [`hash64`](crate::base::hash::hash64) of the key. Reads at most one block, two if a newer version is in the way.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], hash: u64, at: Seqno) -> Result<Found> {
        let found = match self.place_of(key, hash, at)? {
            Some(place) => self.find_at(place, key, at)?,
            None => None,
        };
        Ok(unless_deleted(found, self.deleted(key, at)))
    }

    /// Lets go of the file if it was not read lately, until the next read of it. What the file lends stays, and so does all
    /// that is in memory.
    pub(crate) fn rest(&self) {
        self.file.rest();
    }

    /// The newest range tombstone that covers `key` and was written up to `at`; 0 if there is none.
    #[inline]
    pub(crate) fn deleted(&self, key: &[u8], at: Seqno) -> Seqno {
        if planted(Bug::GetIgnoresRanges) {
            return 0;
        }
        self.parts.ranges.as_ref().map_or(0, |ranges| ranges.newest(key, at))
    }

    /// The range tombstones, if there are any.
    pub(crate) fn ranges(&self) -> Option<&Arc<Fragments>> {
        self.parts.ranges.as_ref()
    }

    #[inline]
    fn find_at(&self, place: Place, key: &[u8], at: Seqno) -> Result<Found> {
        match self.lent_plain(place.block) {
            Some(lent) => self.find_lent(lent, place, key, at),
            None => self.find_in(&self.read_cached(place.block)?, place, key, at),
        }
    }

    /// What [`get`](Self::get) gives, by way of the index alone.
    #[cold]
    fn search(&self, key: &[u8], at: Seqno) -> Result<Found> {
        self.place_by_index(key, at)?.map_or(Ok(None), |place| self.find_at(place, key, at))
    }

    // ---- a get in steps, for those who make many at once ----

    /// Where [`get`](Self::get) would look; `None` if the key is surely not here.
    #[inline]
    pub(crate) fn place_of(&self, key: &[u8], hash: u64, at: Seqno) -> Result<Option<Place>> {
        if self.denies(hash)? {
            return Ok(None);
        }
        if let Some(points) = &self.parts.points {
            match points.find(hash) {
                Lookup::Absent => return Ok(None),
                Lookup::At(Position { block, start }) if block < self.parts.index.len() => {
                    let within = start.map_or(Within::Newest, Within::Start);
                    return Ok(Some(Place { block, within }));
                }
                _ => {}
            }
        }
        self.place_by_index(key, at)
    }

    #[inline]
    fn place_by_index(&self, key: &[u8], at: Seqno) -> Result<Option<Place>> {
        let block = self.find_block(key, Trailer::visible_at(at))?;
        Ok((block < self.parts.index.len()).then_some(Place { block, within: Within::Any }))
    }

    /// Asks ahead for the memory that [`prefetch_place`](Self::prefetch_place) looks at itself.
    #[inline]
    pub(crate) fn prefetch_slot(&self, block: usize) {
        if let Some(cached) = &self.cached {
            cached.prefetch(block);
        }
    }

    /// Asks ahead for the memory that a search in the block will look at, if the block is in memory.
    #[inline]
    pub(crate) fn prefetch_block(&self, block: usize) {
        self.prefetch_place(Place { block, within: Within::Any });
    }

    /// The same for a search at a place.
    #[inline]
    pub(crate) fn prefetch_place(&self, place: Place) {
        let block = place.block;
        match (&self.lent, &self.cached) {
            (Some(lent), _) if lent.is_plain(block) || self.cached.is_none() => {
                lent.prefetch(self.parts.index.range(block), place.within);
            }
            (_, Some(cached)) => cached.prefetch_block(block),
            (_, None) => {}
        }
    }

    /// Looks for `key` in the block if that can be done without waiting for a device; else `None`.
    #[inline]
    pub(crate) fn try_find_at(&self, place: Place, key: &[u8], at: Seqno) -> Result<Option<Found>> {
        let block = place.block;
        if let Some(lent) = self.lent_plain(block) {
            return self.find_lent(lent, place, key, at).map(Some);
        }
        if let Some(stored) = self.cached.as_ref().and_then(|cached| cached.get(block)) {
            return self.find_in(&stored, place, key, at).map(Some);
        }
        let range = self.parts.index.range(block);
        let stored = match &self.lent {
            Some(lent) => Some(lent.view(range)),
            None => self.file.with(|file| file.try_view(range))?,
        };
        let Some(stored) = stored else { return Ok(None) };
        let stored = self.take_in(block, &stored)?;
        self.find_in(&stored, place, key, at).map(Some)
    }

    /// The read that brings in the block from a device.
    pub(crate) fn request(&self, block: usize) -> Result<ReadRequest> {
        Ok(ReadRequest { file: self.file.file()?, range: self.parts.index.range(block) })
    }

    /// Tells the system how these blocks are going to be used.
    pub(super) fn advise(&self, blocks: Range<usize>, hint: Hint) {
        let range = self.parts.index.range_of(blocks);
        let told = self.file.with(|file| {
            file.advise(range, hint);
            Ok(())
        });
        // A hint that nobody hears is a hint ignored; who reads meets the error.
        drop(told);
    }

    /// Checks the block as it was read, gives it as it is when it is not compressed, and keeps that in the cache.
    pub(crate) fn take_in(&self, block: usize, stored: &View) -> Result<View> {
        let plain = self.admit(stored, block)?;
        let Some(cached) = &self.cached else { return Ok(plain) };
        let is_stored = plain.as_ptr() == stored.as_ptr();
        if !is_stored || self.lent.is_none() {
            cached.insert(block, &plain);
        }
        Ok(plain)
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
        self.find((stored, 0..stored.len()), slice_of_block, place, key, at)
    }

    #[inline]
    fn find_lent(&self, lent: &Lent, place: Place, key: &[u8], at: Seqno) -> Result<Found> {
        let range = self.parts.index.range(place.block);
        lent.prefetch(range.clone(), place.within);
        let range = range.start as usize..range.end as usize;
        self.find((&lent.bytes, range), Slice::of_view, place, key, at)
    }

    /// Looks for `key` at a place; its stored block is `range` of `view`. `slice` gives the value, a range of it.
    #[inline]
    fn find(
        &self,
        (view, range): (&View, Range<usize>),
        slice: impl FnOnce(&View, Range<usize>) -> Slice,
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
                Ok(Some((entry.trailer, slice(view, value))))
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

    /// Keys behind about every `bytes` bytes of entries, each with the bytes from the last one up to it. None if keys are
    /// not kept in memory.
    pub(crate) fn samples(&self, bytes: u64) -> Vec<(Vec<u8>, u64)> {
        self.parts.index.samples(bytes)
    }

    /// What the table holds.
    pub(crate) fn properties(&self) -> &Properties {
        &self.parts.properties
    }

    /// The file's length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of memory kept for as long as the table is open: index and filter, as far as they stay, and what goes
    /// with them.
    pub(crate) fn memory(&self) -> usize {
        let Parts { footer: _, index, filter, points, properties, ranges, unpacker } = &self.parts;
        size_of::<Self>()
            + index.memory()
            + filter.as_ref().map_or(0, Filter::memory)
            + points.as_ref().map_or(0, PointIndex::memory)
            + properties.smallest.len()
            + properties.largest.len()
            + ranges.as_ref().map_or(0, |ranges| ranges.memory() + ranges.key_bytes())
            + unpacker.as_ref().map_or(0, Unpacker::memory)
            + self.lent.as_ref().map_or(0, |lent| size_of_val(&lent.plain[..]))
            + self.cached.as_ref().map_or(0, |cached| cached.memory())
    }

    /// The contents of a block of a file that lends its bytes, and, for copies, what stands in the file; `None` if it does not lend them.
    pub(super) fn lent_block(
        &self,
        block: usize,
        used: Used,
    ) -> Result<Option<(View, Option<View>)>> {
        let Some(lent) = &self.lent else { return Ok(None) };
        if used == Used::Again && !lent.is_plain(block) {
            return Ok(Some((self.block(block)?, None)));
        }
        if block + 1 < self.parts.index.len() {
            // What a scan needs of the next block before it comes to an entry.
            lent.prefetch(self.parts.index.range(block + 1), Within::Any);
        }
        let stored = lent.view(self.parts.index.range(block));
        // It may be long until it is copied: what is checked is what is copied then.
        let copy = (used == Used::InCopies).then(|| View::from(stored.to_vec()));
        let plain = match &copy {
            Some(copy) => self.admit(copy, block)?,
            None if lent.is_plain(block) => stored,
            None => self.admit(&stored, block)?,
        };
        Ok(Some((self.content(plain, block)?, copy)))
    }

    /// The contents of a block, from the cache or the file; kept in the cache.
    pub(super) fn block(&self, block: usize) -> Result<View> {
        self.content(self.read_cached(block)?, block)
    }

    /// The contents of a block, if it is in the cache.
    pub(super) fn block_in_cache(&self, block: usize) -> Result<Option<View>> {
        let Some(stored) = self.cached.as_ref().and_then(|cached| cached.get(block)) else {
            return Ok(None);
        };
        self.content(stored, block).map(Some)
    }

    /// The contents of a block that is part of `run`, blocks read from the file at `start`.
    pub(super) fn block_in_run(&self, run: &View, start: u64, block: usize) -> Result<View> {
        let range = self.parts.index.range(block);
        let stored = run.slice((range.start - start) as usize..(range.end - start) as usize);
        self.content(self.admit(&stored, block)?, block)
    }

    pub(super) fn damaged(&self, damage: Damage, block: usize) -> Error {
        damage.at(self.file.path(), self.parts.index.range(block).start)
    }

    #[cold]
    pub(super) fn damaged_part(&self, damage: Damage, part: Part) -> Error {
        damage.at(self.file.path(), self.parts.footer.range(part).start)
    }

    /// The block as it is when it is not compressed, from the cache or the file.
    #[inline]
    fn read_cached(&self, block: usize) -> Result<View> {
        if let Some(stored) = self.cached.as_ref().and_then(|cached| cached.get(block)) {
            return Ok(stored);
        }
        let range = self.parts.index.range(block);
        let stored = match &self.lent {
            Some(lent) => lent.view(range),
            None => self.file.with(|file| file.view(range))?,
        };
        self.take_in(block, &stored)
    }

    /// What the file lends, if the block is there to be used in place.
    #[inline]
    fn lent_plain(&self, block: usize) -> Option<&Lent> {
        self.lent.as_ref().filter(|lent| lent.is_plain(block))
    }

    /// Checks the block as it stands in the file, and gives it as it is when it is not compressed.
    fn admit(&self, stored: &View, block: usize) -> Result<View> {
        let offset = self.parts.index.range(block).start;
        let plain = stored::check(stored, self.identity, offset)
            .and_then(|()| Unpacker::unpack(self.parts.unpacker.as_ref(), stored))
            .map_err(|damage| self.damaged(damage, block))?;
        if let Some(plain) = plain {
            return Ok(plain.into());
        }
        if let Some(lent) = &self.lent {
            lent.note_plain(block);
        }
        Ok(stored.clone())
    }

    /// The contents of a block that is not compressed.
    fn content(&self, stored: View, block: usize) -> Result<View> {
        let len = stored::content(&stored).map_err(|damage| self.damaged(damage, block))?.len();
        Ok(stored.into_slice(0..len))
    }
}

impl Parts {
    /// Reads and checks all but the data blocks, and keeps of index and filter what is to be `kept`.
    pub(super) fn load(
        file: &dyn File,
        identity: u64,
        expected_len: u64,
        kept: Kept,
    ) -> Result<Self> {
        is_of_length(file, expected_len)?;
        let len = expected_len;
        let end = file.view(len.saturating_sub(Footer::LEN as u64)..len)?;
        let footer = Footer::decode(&end, file.path(), identity, len)?;
        let start = footer.range(Part::Index).start;
        let tail = file.view(start..footer.range(Part::Points).start)?;
        let parts = StoredParts { file, identity, footer, start, bytes: &tail };
        let properties =
            parts.take(Part::Properties, |bytes| Properties::decode(bytes, footer.version))?;
        let unpacker = match properties.codec {
            Some(codec) => Some(parts.unpacker(codec)?),
            None => None,
        };
        let mut index = parts.take(Part::Index, |bytes| Index::decode(bytes, start))?;
        if !key_file::has_keys(kept.key_file) {
            index.forget_keys();
        }
        let filter = match footer.range(Part::Filter).is_empty() {
            true => None,
            false => parts.take(Part::Filter, |bytes| {
                let filter = filter_of(bytes, footer.version)?;
                Ok(key_file::has_filter(kept.key_file).then(|| filter.kept()))
            })?,
        };
        let points = match key_file::has_keys(kept.key_file) {
            true => points_of(file, identity, &footer, kept.points)?,
            false => None,
        };
        let ranges = ranges_of(file, identity, &footer, &properties)?;
        Ok(Self { footer, index, filter, points, properties, ranges, unpacker })
    }
}

/// An error if the file of a table is not `expected` bytes long.
pub(crate) fn is_of_length(file: &dyn File, expected: u64) -> Result<()> {
    let len = file.len()?;
    if len == expected {
        return Ok(());
    }
    let what = format!("the table is {len} bytes long, not {expected}");
    Err(Error::corruption(file.path(), len.min(expected), what))
}

/// The range tombstones, if there are any.
fn ranges_of(
    file: &dyn File,
    identity: u64,
    footer: &Footer,
    properties: &Properties,
) -> Result<Option<Arc<Fragments>>> {
    let range = footer.range(Part::Ranges);
    let content = |stored: View| {
        stored::check(&stored, identity, range.start)?;
        ranges::decode(stored::content(&stored)?)
    };
    let fragments = match range.is_empty() {
        true => Ok(Fragments::default()),
        false => content(file.view(range.clone())?),
    };
    let fitting = fragments.and_then(|fragments| match properties.fits(&fragments) {
        true => Ok((!fragments.is_empty()).then(|| Arc::new(fragments))),
        false => Err(Damage("the range tombstones are not those that the properties tell of")),
    });
    fitting.map_err(|damage| damage.at(file.path(), range.start))
}

/// What was found of a key whose newest range tombstone is `deleted`; 0 if there is none.
#[inline]
pub(crate) fn unless_deleted(found: Found, deleted: Seqno) -> Found {
    match found {
        Some((trailer, value)) if trailer.seqno() >= deleted => Some((trailer, value)),
        _ if deleted > 0 => Some((Trailer::new(deleted, Kind::Delete), Slice::from(&[][..]))),
        _ => None,
    }
}

/// The point index, if there is one and it takes at most `most` bytes of memory.
fn points_of(
    file: &dyn File,
    identity: u64,
    footer: &Footer,
    most: usize,
) -> Result<Option<PointIndex>> {
    let range = footer.range(Part::Points);
    if range.is_empty() || (!file.lends() && range.end - range.start > most as u64) {
        return Ok(None);
    }
    let stored = file.view(range.clone())?;
    let content = |stored: View| {
        stored::check(&stored, identity, range.start)?;
        let len = stored::content(&stored)?.len();
        PointIndex::decode(stored.into_slice(0..len), file.lends())
    };
    content(stored).map(Some).map_err(|damage| damage.at(file.path(), range.start))
}

/// The filter in the bytes of its part.
pub(super) fn filter_of(bytes: &[u8], version: u32) -> Result<Filter<&[u8]>, Damage> {
    let filter = if version == 1 { Filter::of_version_1(bytes) } else { Filter::of(bytes) };
    filter.ok_or(Damage("the filter is malformed"))
}

/// The parts of a table between its data and its footer.
struct StoredParts<'a> {
    file: &'a dyn File,
    identity: u64,
    footer: Footer,
    /// Where the bytes start in the file.
    start: u64,
    bytes: &'a [u8],
}

impl StoredParts<'_> {
    /// Checks and decodes a part.
    fn take<T>(&self, part: Part, decode: impl FnOnce(&[u8]) -> Result<T, Damage>) -> Result<T> {
        let range = self.footer.range(part);
        let stored = (range.start - self.start) as usize..(range.end - self.start) as usize;
        let stored = self.bytes.get(stored).ok_or(Damage("a part is cut off"));
        stored
            .and_then(|stored| {
                stored::check(stored, self.identity, range.start)?;
                decode(stored::content(stored)?)
            })
            .map_err(|damage| damage.at(self.file.path(), range.start))
    }
}

impl StoredParts<'_> {
    /// What decompresses blocks.
    fn unpacker(&self, codec: Codec) -> Result<Unpacker> {
        let path = self.file.path();
        codec.check().map_err(|error| match error {
            Error::Unsupported(what) => {
                Error::Unsupported(format!("{} cannot be read: {what}", path.display()))
            }
            error => error,
        })?;
        let range = self.footer.range(Part::Dictionary);
        let unpacker = match range.is_empty() {
            true => Unpacker::new(codec, &[])?,
            false => self.take(Part::Dictionary, |bytes| Ok(Unpacker::new(codec, bytes)))??,
        };
        unpacker.ok_or_else(|| Damage("the dictionary is malformed").at(path, range.start))
    }
}
