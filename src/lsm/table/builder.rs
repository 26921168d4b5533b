//! Writes a table in one pass, front to back.
//!
//! 1. Entries gather in a block until the next one would not fit; a block has at least one entry.
//! 2. A full block is sealed with its checksum and appended to the file. Its separator waits until the
//!    key behind it is known.
//! 3. The hash of every new user key is kept for the filter.
//! 4. At the end the index, the filter, the properties and the footer follow, and the file is synced.

use std::mem;
use std::sync::Arc;

use super::block_builder::BlockBuilder;
use super::footer::Footer;
use super::index::IndexBuilder;
use super::properties::Properties;
use super::stored;
use crate::base::{Trailer, hash};
use crate::error::{Error, Result};
use crate::filter::BloomBuilder;
use crate::vfs::{Appender, File};

/// The bytes gathered before they are written to the file.
const WRITE_BUFFER: usize = 256 << 10;

/// The most bytes of a key and its value together: what the lengths in a block can count, with room.
const MAX_ENTRY: usize = 2 << 30;

/// The largest block size; more would only slow reads down.
const MAX_BLOCK_SIZE: usize = 16 << 20;

/// How tables are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TableOptions {
    /// The bytes of a block as stored; at most 16 MiB. A block may be smaller, and larger if one entry is.
    pub(crate) block_size: usize,
    /// The bits of the filter for each user key; 0 for no filter.
    pub(crate) filter_bits_per_key: u32,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { block_size: 4096, filter_bits_per_key: 10 }
    }
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
    block: BlockBuilder,
    /// The block being sealed; kept for its memory.
    stored: Vec<u8>,
    /// The block written last, until its separator is known.
    written: Option<Written>,
    index: IndexBuilder,
    filter: BloomBuilder,
    properties: Properties,
}

/// A block that was written: the bytes it takes, and its last entry.
#[derive(Debug)]
struct Written {
    stored_len: usize,
    key: Vec<u8>,
    trailer: Trailer,
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
    pub(crate) fn new(file: Arc<dyn File>, identity: u64, options: &TableOptions) -> Self {
        Self {
            out: Appender::new(file, WRITE_BUFFER),
            identity,
            block_size: options.block_size.min(MAX_BLOCK_SIZE),
            block: BlockBuilder::default(),
            stored: Vec::new(),
            written: None,
            index: IndexBuilder::default(),
            filter: BloomBuilder::new(options.filter_bits_per_key),
            properties: Properties::default(),
        }
    }

    /// Adds an entry, which must be behind the last one. After an error other than
    /// [`Error::Invalid`] the builder is of no use.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        let step = self.step_to(key, trailer)?;
        if key.len() + value.len() > MAX_ENTRY {
            return Err(Error::Invalid("an entry is larger than 2 GiB".into()));
        }
        if !self.block.is_empty()
            && self.block.len_after(key, trailer, value) + stored::TRAILER > self.block_size
        {
            self.write_block()?;
        }
        if let Some(written) = self.written.take() {
            self.add_to_index(&written, Some((key, trailer)));
        }
        if step == Step::NewKey && self.filter.is_wanted() {
            self.filter.add(hash::hash64(key));
        }
        self.properties.count(key, trailer, value.len());
        self.block.add(key, trailer, value);
        Ok(())
    }

    /// The file's length if it were finished now, in bytes; close, but not exact.
    pub(crate) fn estimated_len(&self) -> u64 {
        let tail = self.index.len() + Footer::LEN;
        self.out.position() + self.block.len() as u64 + self.filter.encoded_len() + tail as u64
    }

    /// Writes what is left and syncs the file.
    pub(crate) fn finish(mut self) -> Result<TableSummary> {
        if !self.block.is_empty() {
            self.write_block()?;
        }
        if let Some(written) = self.written.take() {
            self.add_to_index(&written, None);
            self.properties.largest = written.key;
        }
        let data = self.out.position();
        let index = mem::take(&mut self.index).finish();
        if index.len() > u32::MAX as usize {
            return Err(Error::Invalid("the index of a table is larger than 4 GiB".into()));
        }
        let index = self.write_part(index)?;
        let filter = self.write_filter()?;
        let properties = self.write_part(self.properties.encode())?;
        let footer = Footer { data, index, filter, properties };
        self.out.append(&footer.encode(self.identity))?;
        let len = self.out.position();
        self.out.finish()?;
        Ok(TableSummary { len, properties: self.properties })
    }

    /// Checks that an entry is behind the last one.
    #[inline]
    fn step_to(&self, key: &[u8], trailer: Trailer) -> Result<Step> {
        let Some((last, newer)) = self.block.last() else { return Ok(Step::NewKey) };
        match last.cmp(key) {
            std::cmp::Ordering::Less => Ok(Step::NewKey),
            std::cmp::Ordering::Equal if trailer < newer => Ok(Step::OlderVersion),
            _ => Err(Error::Invalid("entries of a table are out of order".into())),
        }
    }

    fn write_block(&mut self) -> Result<()> {
        let Some((key, trailer)) = self.block.last() else { return Ok(()) };
        let key = key.to_vec();
        self.stored.clear();
        self.block.finish(&mut self.stored);
        stored::seal(&mut self.stored, self.identity, self.out.position());
        self.out.append(&self.stored)?;
        self.written = Some(Written { stored_len: self.stored.len(), key, trailer });
        self.stored.shrink_to(2 * self.block_size);
        self.block.shrink(2 * self.block_size);
        Ok(())
    }

    fn add_to_index(&mut self, written: &Written, next: Option<(&[u8], Trailer)>) {
        self.index.add(written.stored_len, (&written.key, written.trailer), next);
    }

    /// Appends a part and gives its stored length.
    fn write_part(&mut self, mut part: Vec<u8>) -> Result<u64> {
        stored::seal(&mut part, self.identity, self.out.position());
        self.out.append(&part)?;
        Ok(part.len() as u64)
    }

    fn write_filter(&mut self) -> Result<u64> {
        let Some(filter) = self.filter.build() else { return Ok(0) };
        let mut part = Vec::new();
        filter.encode(&mut part);
        drop(filter);
        self.write_part(part)
    }
}
