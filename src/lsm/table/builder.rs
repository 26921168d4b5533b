//! Writes a table in one pass, front to back.
//!
//! 1. Entries gather in a block until the next one would not fit; a block has at least one entry.
//! 2. A full block is compressed, if that makes it smaller, sealed with its checksum and appended to the file. If there
//!    is to be a dictionary, the first blocks wait for it.
//!    A block of another table may be appended [whole](super::whole).
//! 3. The hash of every new user key is kept for the filter.
//! 4. At the end the index, the filter, the properties, the dictionary, the points, range tombstones and the footer follow, and
//!    the file is synced.

use std::mem;
use std::sync::Arc;

use super::block_builder::BlockBuilder;
use super::footer::{Footer, Part};
use super::index::IndexBuilder;
use super::packing::{Full, Packing};
use super::points::PointsBuilder;
use super::properties::Properties;
use super::whole::Whole;
use super::{ranges, stored};
use crate::base::{Fragments, Trailer, hash};
use crate::error::{Error, Result};
use crate::filter::FilterBuilder;
use crate::iter::StoredBlock;
use crate::options::{Compression, FilterKind};
use crate::vfs::{Appender, File};

/// The bytes gathered before they are written to the file.
const WRITE_BUFFER: usize = 256 << 10;

/// The most bytes of a key and its value together: what the lengths in a block can count, with room.
const MAX_ENTRY: usize = 2 << 30;

/// A point index takes at most this part of the records: it pays for those that are not tiny.
const POINTS_SHARE: u64 = 10;

/// The largest block size; more would only slow reads down.
const MAX_BLOCK_SIZE: usize = 16 << 20;

/// The entries of a block may be kept with keys of so many bytes, whatever the block size, until those are stripped of what they share,
const KEPT_WHOLE: usize = 256 << 10;

/// and of so many times the block size.
const KEPT_SHARE: usize = 4;

/// How tables are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TableOptions {
    /// The bytes of a block as stored if it is not compressed; at most 16 MiB. A block may be smaller, and larger if one entry is.
    pub(crate) block_size: usize,
    /// The kind of the filter.
    pub(crate) filter: FilterKind,
    /// The bits of the filter for each user key; 0 for no filter.
    pub(crate) filter_bits: u32,
    /// What is done with data blocks.
    pub(crate) compression: Compression,
    /// Whether there is a point index; `None`: if it is small beside the records.
    pub(crate) points: Option<bool>,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            block_size: 4096,
            filter: FilterKind::default(),
            filter_bits: 10,
            compression: Compression::None,
            points: None,
        }
    }
}

/// When a table is ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableLimits {
    /// When its file has about this many bytes;
    pub(crate) bytes: u64,
    /// or when what is kept of its keys until it is complete takes this much memory: that goes by their number, however
    /// small or well compressed they are.
    pub(crate) memory: usize,
}

/// A table that was written and synced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TableSummary {
    /// The file's length in bytes, to be given to [`Table::open`](super::Table::open).
    pub(crate) len: u64,
    /// What the table holds.
    pub(crate) properties: Properties,
}

/// Writes a table.
#[derive(Debug)]
pub(crate) struct TableBuilder {
    out: Appender,
    identity: u64,
    block_size: usize,
    /// A block is ended, too, when its entries take so many bytes with whole keys.
    most_kept: usize,
    block: BlockBuilder,
    packing: Packing,
    dictionary: Vec<u8>,
    /// Memory for the next block that is full.
    spare: Vec<u8>,
    /// Where entries of a block start; kept for its memory.
    starts: Vec<u32>,
    index: IndexBuilder,
    filter: FilterBuilder,
    points: PointsBuilder,
    wants_points: Option<bool>,
    ranges: Fragments,
    /// About the bytes of range tombstones that are still to be set.
    ranges_len: usize,
    properties: Properties,
    /// The last block, if it came as a whole, until the entry behind it is known.
    whole: Option<Behind>,
}

/// What the index waits to be told of a block that came as a whole.
#[derive(Debug)]
struct Behind {
    stored_len: usize,
    last: (Vec<u8>, Trailer),
}

/// How an entry stands to the one before it.
#[derive(PartialEq, Eq)]
enum Step {
    /// It has another user key.
    NewKey,
    /// It is an older version of the same user key.
    OlderVersion,
}

impl TableBuilder {
    /// A builder that writes to `file`, which must be new and empty. Checksums are bound to `identity`.
    ///
    /// # Errors
    /// `Unsupported` if the compression was not compiled in.
    pub(crate) fn new(file: Arc<dyn File>, identity: u64, options: &TableOptions) -> Result<Self> {
        let block_size = options.block_size.min(MAX_BLOCK_SIZE);
        Ok(Self {
            out: Appender::new(file, WRITE_BUFFER),
            identity,
            block_size,
            most_kept: (KEPT_SHARE * block_size).max(KEPT_WHOLE),
            block: BlockBuilder::default(),
            packing: Packing::new(options.compression)?,
            dictionary: Vec::new(),
            spare: Vec::new(),
            starts: Vec::new(),
            index: IndexBuilder::default(),
            filter: FilterBuilder::new(options.filter, options.filter_bits),
            points: PointsBuilder::default(),
            wants_points: options.points,
            ranges: Fragments::default(),
            ranges_len: 0,
            properties: Properties::default(),
            whole: None,
        })
    }

    /// Adds an entry, which must be behind the last one. After an error other than
    /// [`Error::Invalid`] the builder is of no use.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        let step = self.step_to(key, trailer)?;
        if key.len() + value.len() > MAX_ENTRY {
            return Err(Error::Invalid("an entry is larger than 2 GiB".into()));
        }
        let is_full = self.block.len_after(key, trailer, value) + stored::TRAILER > self.block_size
            || self.block.kept_after(key, value) > self.most_kept;
        if !self.block.is_empty() && is_full {
            self.end_block(Some((key, trailer)))?;
        }
        if self.whole.is_some() {
            self.end_whole(Some((key, trailer)));
        }
        if step == Step::NewKey {
            self.add_key(key);
        }
        self.properties.count(key, trailer, value.len());
        self.block.add(key, trailer, value);
        Ok(())
    }

    /// Adds the entries of a block that begins with the next one, as they are stored, if that can be, and gives the last of
    /// them. They must be behind the last entry, and of other keys, and go as a whole only if all their keys are below `until`
    /// and all values shorter than `shortest`. The block being made is ended by that, unless it would become too small.
    pub(crate) fn add_block(
        &mut self,
        stored: &StoredBlock<'_>,
        until: Option<&[u8]>,
        shortest: usize,
    ) -> Result<Option<(Vec<u8>, Trailer)>> {
        let codec = stored::codec_of(&stored.stored);
        let is_large = |len: usize| 3 * (len + stored::TRAILER) >= 2 * self.block_size;
        let fits = is_large(stored.plain.len())
            && (self.block.is_empty() || is_large(self.block.len()))
            && self.packing.is_alike(codec);
        if !fits {
            return Ok(None);
        }
        let Some(whole) = Whole::look(stored, until, shortest) else { return Ok(None) };
        let is_too_large = stored.plain.len() + stored::TRAILER > self.block_size;
        if is_too_large && whole.entries.len() > 1 {
            return Ok(None);
        }
        if self.step_to(whole.first().0, whole.first().1)? == Step::OlderVersion {
            return Ok(None);
        }
        self.end_block(Some(whole.first()))?;
        self.end_whole(Some(whole.first()));
        self.count_whole(&whole);
        stored::rebind(&stored.stored, self.identity, self.out.position(), &mut self.spare);
        self.out.append(&self.spare)?;
        self.spare.clear();
        if codec.is_some() {
            self.properties.codec = codec;
        }
        let (key, trailer) = whole.last();
        let last = (key.to_vec(), trailer);
        self.whole = Some(Behind { stored_len: stored.stored.len(), last: last.clone() });
        Ok(Some(last))
    }

    /// Takes note of the entries of a block that comes as a whole.
    fn count_whole(&mut self, whole: &Whole) {
        if self.properties.entries == 0 {
            self.properties.begin(whole.first().0);
        }
        for (index, entry) in whole.entries.iter().enumerate() {
            self.add_hash(index, entry.hash);
            self.properties.count_next(entry.key_len, entry.trailer, entry.value_len);
        }
        self.starts.clear();
        self.starts.extend(whole.entries.iter().map(|entry| entry.start));
        self.points.end_block(&self.starts);
    }

    /// Tells the index of a block that came as a whole; `next` is the entry behind it.
    fn end_whole(&mut self, next: Option<(&[u8], Trailer)>) {
        if let Some(Behind { stored_len, last: (key, trailer) }) = self.whole.take() {
            self.index.add(stored_len, (&key, trailer), next);
        }
    }

    /// Takes note of a key for what finds it.
    #[inline]
    fn add_key(&mut self, key: &[u8]) {
        if self.filter.is_wanted() || self.wants_points != Some(false) {
            self.add_hash(self.block.count(), hash::hash64(key));
        }
    }

    /// The same of its hash, if the key's newest entry is the one with this index in its block.
    #[inline]
    fn add_hash(&mut self, index: usize, hash: u64) {
        if self.wants_points != Some(false) {
            self.points.add(index, hash);
        }
        if self.filter.is_wanted() {
            self.filter.add(hash);
        }
    }

    /// Counts range tombstones that will take about so many bytes, for [`is_full`](Self::is_full).
    pub(crate) fn expect_ranges(&mut self, bytes: usize) {
        self.ranges_len += bytes;
    }

    /// Has the table hold range tombstones.
    pub(crate) fn set_ranges(&mut self, fragments: Fragments) {
        self.ranges = fragments;
    }

    /// Whether the table is to be ended.
    #[inline]
    pub(crate) fn is_full(&self, limits: TableLimits) -> bool {
        self.estimated_len() >= limits.bytes || self.memory() >= limits.memory
    }

    /// The bytes of memory of what is kept of keys until the table is complete.
    fn memory(&self) -> usize {
        self.index.len() + self.filter.memory() + self.points.memory() + self.ranges_len
    }

    /// The file's length if it were finished now, in bytes; close, but not exact.
    pub(crate) fn estimated_len(&self) -> u64 {
        let rest = self.packing.waiting()
            + self.block.len()
            + self.index.len()
            + self.ranges_len
            + Footer::LEN;
        self.out.position() + rest as u64 + self.filter.encoded_len()
    }

    /// Writes what is left and syncs the file.
    pub(crate) fn finish(mut self) -> Result<TableSummary> {
        if let Some((largest, _)) = self.block.last() {
            self.properties.largest = largest.to_vec();
            self.end_block(None)?;
        } else if let Some(Behind { last: (largest, _), .. }) = &self.whole {
            self.properties.largest.clone_from(largest);
            self.end_whole(None);
        }
        self.properties.cover(&self.ranges);
        self.train()?;
        let data = self.out.position();
        let index = mem::take(&mut self.index).finish();
        if index.len() > u32::MAX as usize {
            return Err(Error::Invalid("the index of a table is larger than 4 GiB".into()));
        }
        let mut footer = Footer::new();
        footer.set(Part::Data, data);
        footer.set(Part::Index, self.write_part(index)?);
        if let Some(filter) = mem::take(&mut self.filter).finish() {
            footer.set(Part::Filter, self.write_part(filter)?);
        }
        footer.set(Part::Properties, self.write_part(self.properties.encode())?);
        if self.properties.codec.is_some() && !self.dictionary.is_empty() {
            let dictionary = mem::take(&mut self.dictionary);
            footer.set(Part::Dictionary, self.write_part(dictionary)?);
        }
        footer.set(Part::Points, self.write_points()?);
        if !self.ranges.is_empty() {
            let part = ranges::encode(&self.ranges);
            footer.set(Part::Ranges, self.write_part(part)?);
        }
        self.out.append(&footer.encode(self.identity))?;
        let len = self.out.position();
        self.out.finish()?;
        Ok(TableSummary { len, properties: self.properties })
    }

    /// Checks that an entry is behind the last one.
    #[inline]
    fn step_to(&self, key: &[u8], trailer: Trailer) -> Result<Step> {
        let whole = || self.whole.as_ref().map(|block| (&block.last.0[..], block.last.1));
        let Some((last, newer)) = self.block.last().or_else(whole) else { return Ok(Step::NewKey) };
        match last.cmp(key) {
            std::cmp::Ordering::Less => Ok(Step::NewKey),
            std::cmp::Ordering::Equal if trailer < newer => Ok(Step::OlderVersion),
            _ => Err(Error::Invalid("entries of a table are out of order".into())),
        }
    }

    /// Makes a block of the entries since the last one; `next` is the entry behind it.
    fn end_block(&mut self, next: Option<(&[u8], Trailer)>) -> Result<()> {
        let Some((key, trailer)) = self.block.last() else { return Ok(()) };
        let last = (key.to_vec(), trailer);
        let next = next.map(|(key, trailer)| (key.to_vec(), trailer));
        let mut block = mem::take(&mut self.spare);
        self.points.end_block(self.block.finish(&mut block));
        self.block.shrink(2 * self.block_size);
        if let Some(full) = self.packing.hold(Full { block, last, next }) {
            self.write_block(full)?;
        }
        if self.packing.is_due() { self.train() } else { Ok(()) }
    }

    /// Trains the dictionary, if there is to be one, and writes the blocks that waited for it.
    fn train(&mut self) -> Result<()> {
        let (dictionary, waiting) = self.packing.train()?;
        if !dictionary.is_empty() {
            self.dictionary = dictionary;
        }
        waiting.into_iter().try_for_each(|full| self.write_block(full))
    }

    fn write_block(&mut self, full: Full) -> Result<()> {
        let Full { mut block, last: (key, trailer), next } = full;
        let offset = self.out.position();
        let stored = match self.packing.pack(&block, self.identity, offset) {
            Some((packed, codec)) => {
                self.properties.codec = Some(codec);
                packed
            }
            None => {
                stored::seal(&mut block, self.identity, offset);
                &block
            }
        };
        self.out.append(stored)?;
        let next = next.as_ref().map(|(key, trailer)| (&key[..], *trailer));
        self.index.add(stored.len(), (&key, trailer), next);
        self.packing.shrink(2 * self.block_size);
        block.clear();
        block.shrink_to(2 * self.block_size);
        self.spare = block;
        Ok(())
    }

    /// Writes the point index, if it is wanted, or, where nothing is said, if it is small beside the records.
    fn write_points(&mut self) -> Result<u64> {
        let points = mem::take(&mut self.points);
        let records = self.properties.key_bytes + self.properties.value_bytes;
        let is_small = points.encoded_len() as u64 <= records / POINTS_SHARE;
        if !self.wants_points.unwrap_or(is_small) {
            return Ok(0);
        }
        points.build(self.out.position()).map_or(Ok(0), |part| self.write_part(part))
    }

    /// Appends a part and gives its stored length.
    fn write_part(&mut self, mut part: Vec<u8>) -> Result<u64> {
        stored::seal(&mut part, self.identity, self.out.position());
        self.out.append(&part)?;
        Ok(part.len() as u64)
    }
}
