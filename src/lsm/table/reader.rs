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
use super::properties::Properties;
use super::stored::{self, Unpacker};
use super::{Damage, ReadMode, TableCursor, key_file};
use crate::base::prefetch::prefetch_end;
use crate::base::{Seqno, Slice, Trailer, View};
use crate::cache::{BlockCache, FileBlocks};
use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::filter::{Filter, Lines};
use crate::options::KeyFile;
use crate::vfs::{File, Hint, ReadRequest};

/// The newest version of a key that is visible, tombstone or not, if there is one.
pub(crate) type Found = Option<(Trailer, Slice)>;

/// A table that is read.
#[derive(Debug)]
pub(crate) struct Table {
    pub(super) file: Arc<dyn File>,
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
    pub(super) properties: Properties,
    /// For blocks that are compressed.
    pub(super) unpacker: Option<Unpacker>,
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
        file: Arc<dyn File>,
        identity: u64,
        expected_len: u64,
        cache: Option<Arc<BlockCache>>,
        kept: KeyFile,
    ) -> Result<Self> {
        let parts = Parts::load(&*file, identity, expected_len, kept)?;
        file.advise(0..expected_len, Hint::Random);
        let lent = match file.lends() {
            true => Some(Lent::new(file.view(0..expected_len)?, parts.index.len())),
            false => None,
        };
        let cached = cache
            .filter(|_| lent.is_none() || parts.unpacker.is_some())
            .map(|cache| FileBlocks::new(cache, parts.index.len() + key_file::PLACES));
        Ok(Self { file, identity, parts, len: expected_len, cached, lent })
    }

    /// The newest version of `key` that was written up to `at`, tombstone or not. `hash` is
    /// [`hash64`](crate::base::hash::hash64) of the key. Reads at most one block.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], hash: u64, at: Seqno) -> Result<Found> {
        let Some(block) = self.block_for(key, hash, at)? else { return Ok(None) };
        match self.lent_plain(block) {
            Some(lent) => self.find_lent(lent, block, key, at),
            None => self.find_in(&self.read_cached(block)?, block, key, at),
        }
    }

    // ---- a get in steps, for those who make many at once ----

    /// The block that [`get`](Self::get) would look into; `None` if the key is surely not here.
    #[inline]
    pub(crate) fn block_for(&self, key: &[u8], hash: u64, at: Seqno) -> Result<Option<usize>> {
        if self.denies(hash)? {
            return Ok(None);
        }
        let block = self.find_block(key, Trailer::visible_at(at))?;
        Ok((block < self.parts.index.len()).then_some(block))
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
    pub(crate) fn prefetch_block(&self, block: usize) {
        match (&self.lent, &self.cached) {
            (Some(lent), _) if lent.is_plain(block) || self.cached.is_none() => {
                let range = self.parts.index.range(block);
                prefetch_end(&lent.bytes[range.start as usize..range.end as usize]);
            }
            (_, Some(cached)) => cached.prefetch_block(block),
            (_, None) => {}
        }
    }

    /// Looks for `key` in the block if that can be done without waiting for a device; else `None`.
    #[inline]
    pub(crate) fn try_find_in(&self, block: usize, key: &[u8], at: Seqno) -> Result<Option<Found>> {
        if let Some(lent) = self.lent_plain(block) {
            return self.find_lent(lent, block, key, at).map(Some);
        }
        if let Some(stored) = self.cached.as_ref().and_then(|cached| cached.get(block)) {
            return self.find_in(&stored, block, key, at).map(Some);
        }
        let range = self.parts.index.range(block);
        let stored = match &self.lent {
            Some(lent) => Some(lent.view(range)),
            None => self.file.try_view(range)?,
        };
        let Some(stored) = stored else { return Ok(None) };
        let stored = self.take_in(block, &stored)?;
        self.find_in(&stored, block, key, at).map(Some)
    }

    /// The read that brings in the block from a device.
    pub(crate) fn request(&self, block: usize) -> ReadRequest {
        ReadRequest { file: Arc::clone(&self.file), range: self.parts.index.range(block) }
    }

    /// Checks the block as it was read, gives it as it is when it is not compressed, and keeps that in the cache.
    pub(crate) fn take_in(&self, block: usize, stored: &View) -> Result<View> {
        let plain = self.admit(stored, block)?;
        let Some(cached) = &self.cached else { return Ok(plain) };
        let is_stored = plain.as_ptr() == stored.as_ptr();
        if !is_stored || self.lent.is_none() {
            cached.insert(block, if is_stored { self.keepable(&plain) } else { plain.clone() });
        }
        Ok(plain)
    }

    /// Bytes of the file as the cache may keep them: views of a page cache hold on to its frames.
    pub(super) fn keepable(&self, stored: &View) -> View {
        if self.file.shares() { View::from(stored.to_vec()) } else { stored.clone() }
    }

    /// Looks for `key` in the stored block.
    #[inline]
    pub(crate) fn find_in(
        &self,
        stored: &View,
        block: usize,
        key: &[u8],
        at: Seqno,
    ) -> Result<Found> {
        find_in(stored, 0..stored.len(), key, at).map_err(|damage| self.damaged(damage, block))
    }

    #[inline]
    fn find_lent(&self, lent: &Lent, block: usize, key: &[u8], at: Seqno) -> Result<Found> {
        let range = self.parts.index.range(block);
        let range = range.start as usize..range.end as usize;
        find_in(&lent.bytes, range, key, at).map_err(|damage| self.damaged(damage, block))
    }

    // ---- parts ----

    /// Asks ahead for the memory that [`get`](Self::get) will look at first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
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

    /// The bytes of memory kept for as long as the table is open: index and filter, as far as they stay, and what goes
    /// with them.
    pub(crate) fn memory(&self) -> usize {
        let Parts { footer: _, index, filter, properties, unpacker } = &self.parts;
        size_of::<Self>()
            + index.memory()
            + filter.as_ref().map_or(0, Filter::memory)
            + properties.smallest.len()
            + properties.largest.len()
            + unpacker.as_ref().map_or(0, Unpacker::memory)
            + self.lent.as_ref().map_or(0, |lent| size_of_val(&lent.plain[..]))
            + self.cached.as_ref().map_or(0, |cached| cached.memory())
    }

    /// The contents of a block of a file that lends its bytes; `None` if it does not. A compressed one comes from the cache
    /// and is kept there if it is to `stay`; else it is decompressed.
    pub(super) fn lent_block(&self, block: usize, stay: bool) -> Result<Option<View>> {
        let Some(lent) = &self.lent else { return Ok(None) };
        if stay && !lent.is_plain(block) {
            return self.block(block).map(Some);
        }
        let stored = lent.view(self.parts.index.range(block));
        let plain = if lent.is_plain(block) { stored } else { self.admit(&stored, block)? };
        self.content(plain, block).map(Some)
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
            None => self.file.view(range)?,
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
        kept: KeyFile,
    ) -> Result<Self> {
        let len = file.len()?;
        if len != expected_len {
            let what = format!("the table is {len} bytes long, not {expected_len}");
            return Err(Error::corruption(file.path(), len.min(expected_len), what));
        }
        let end = file.view(len.saturating_sub(Footer::LEN as u64)..len)?;
        let footer = Footer::decode(&end, file.path(), identity, len)?;
        let start = footer.range(Part::Index).start;
        let tail = file.view(start..footer.range(Part::Points).end)?;
        let parts = StoredParts { file, identity, footer, start, bytes: &tail };
        let properties =
            parts.take(Part::Properties, |bytes| Properties::decode(bytes, footer.version))?;
        let unpacker = match properties.codec {
            Some(codec) => Some(parts.unpacker(codec)?),
            None => None,
        };
        let mut index = parts.take(Part::Index, |bytes| Index::decode(bytes, start))?;
        if !key_file::has_keys(kept) {
            index.forget_keys();
        }
        let filter = match footer.range(Part::Filter).is_empty() {
            true => None,
            false => parts.take(Part::Filter, |bytes| {
                let filter = filter_of(bytes, footer.version)?;
                Ok(key_file::has_filter(kept).then(|| filter.kept()))
            })?,
        };
        Ok(Self { footer, index, filter, properties, unpacker })
    }
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

/// Searches the stored block in `range` of `view`.
#[inline]
fn find_in(view: &View, range: Range<usize>, key: &[u8], at: Seqno) -> Result<Found, Damage> {
    let start = range.start;
    let block = Block::parse(stored::content(&view[range])?)?;
    let Some(entry) = block.find(key, Trailer::visible_at(at))? else { return Ok(None) };
    let value = start + entry.value.start..start + entry.value.end;
    Ok(Some((entry.trailer, Slice::of_view(view, value))))
}
