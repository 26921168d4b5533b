//! Writing a sorted file, from front to back.
//!
//! Blocks and blocks of links follow each other: one of links comes when it is full, right behind the blocks that it leads
//! to. So what is in memory while a file of any size is written is one block of each kind, and the links to blocks of links. If the keys
//! of those are so long that they would take much of what they lead to, the file goes without them: its largest level is 2 then.

use std::sync::Arc;

use super::block::BlockBuilder;
use super::footer::Footer;
use super::links::Target;
use crate::base::key::common_prefix_len;
use crate::base::{Kind, Trailer, varint};
use crate::error::{Error, Result};
use crate::vfs::{Appender, File};

/// What a block takes, if it has more than one record; and what the places of blocks are multiples of, where that costs
/// little.
pub(super) const BLOCK: usize = 4096;
/// A block may begin where it has less than a whole one's room, but not less than this.
const LEAST_ROOM: usize = 1024;
/// Zeros that may follow a block, so that the next one begins at a multiple of the size.
const MOST_PADDING: usize = 512;

/// Keys in the top of a file, which is in memory whenever the file is open, take so many bytes,
const MOST_TOP_KEYS: usize = 1 << 20;
/// or up to this part of the blocks of links that they lead to.
const TOP_SHARE: usize = 8;

/// What a file is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// Every so many-th record of a block has a link, and every so many-th link one of the level above.
    pub(super) step_unit: u32,
    /// 0: no links. 1: links in blocks. 2: keys in the links to blocks. 3: in those to blocks of links too. From there on
    /// levels in memory.
    pub(super) max_level: u32,
    /// Whether records have trailers of their own.
    pub(super) has_trailers: bool,
}

impl Shape {
    /// Whether links of this level have keys, by which a search finds its way.
    pub(super) fn has(&self, level: u32) -> bool {
        self.max_level >= level
    }

    /// The step inside blocks.
    pub(super) fn block_step(&self) -> u32 {
        if self.has(1) { self.step_unit } else { 0 }
    }
}

/// Writes a file.
#[derive(Debug)]
pub(super) struct Writer {
    out: Appender,
    identity: u64,
    shape: Shape,
    block: BlockBuilder,
    /// The key that leads to the block, and its number of records in front.
    first_key: Vec<u8>,
    first_trailer: Trailer,
    first_record: u64,
    /// The last key of all.
    last_key: Vec<u8>,
    links: BlockBuilder,
    /// What leads to the block of links.
    links_first: Option<(Vec<u8>, Trailer, Target)>,
    top: BlockBuilder,
    footer: Footer,
    buffer: Vec<u8>,
    value: Vec<u8>,
}

impl Writer {
    /// A file that is written through a buffer of so many bytes.
    pub(super) fn new(
        file: Arc<dyn File>,
        identity: u64,
        shape: Shape,
        buffer_bytes: usize,
    ) -> Self {
        let step = shape.block_step();
        Self {
            out: Appender::new(file, buffer_bytes),
            identity,
            shape,
            block: BlockBuilder::new(step, shape.has_trailers),
            first_key: Vec::new(),
            first_trailer: Trailer::OLDEST,
            first_record: 0,
            last_key: Vec::new(),
            links: BlockBuilder::new(step, shape.has_trailers),
            links_first: None,
            top: BlockBuilder::new(step, shape.has_trailers),
            footer: Footer::new(shape),
            buffer: Vec::new(),
            value: Vec::new(),
        }
    }

    /// How many records there are.
    pub(super) fn records(&self) -> u64 {
        self.footer.records
    }

    /// The last key that was added, if there is one.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        (self.records() > 0).then_some(&self.last_key)
    }

    /// Adds a record, which must come behind all that are there.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        if self.block.len() > 0 && self.block.len_with(key, value.len()) > self.room() {
            self.end_block()?;
        }
        if self.block.len() == 0 {
            self.begin_block(key, trailer);
        }
        self.block.push(key, trailer, value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.footer.records += 1;
        self.footer.tombstones += u64::from(trailer.kind() == Kind::Delete);
        self.footer.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// How many bytes the block that begins here is meant to take.
    #[inline]
    fn room(&self) -> usize {
        let left = BLOCK - self.out.position() as usize % BLOCK;
        if left < LEAST_ROOM { left + BLOCK } else { left }
    }

    /// Remembers what leads to the block: the shortest key that is behind all before it, or all of the first one's if
    /// others of that key are in front.
    fn begin_block(&mut self, key: &[u8], trailer: Trailer) {
        let len = match self.records() == 0 || self.last_key == key {
            true => key.len(),
            false => (common_prefix_len(&self.last_key, key) + 1).min(key.len()),
        };
        let key = if self.shape.has(2) { &key[..len] } else { &[] };
        self.first_key.clear();
        self.first_key.extend_from_slice(key);
        self.first_trailer = if self.shape.has(2) { trailer } else { Trailer::new(0, Kind::Put) };
        self.first_record = self.records();
    }

    fn end_block(&mut self) -> Result<()> {
        let room = self.room();
        let target = self.append(Which::Block, room)?;
        let target = Target { record: self.first_record, block: self.footer.blocks, ..target };
        self.footer.blocks += 1;
        self.value.clear();
        [target.offset, u64::from(target.len), target.record]
            .into_iter()
            .for_each(|number| varint::put(&mut self.value, number));
        if self.links.len() == 0 {
            self.links_first = Some((self.first_key.clone(), self.first_trailer, target));
        }
        self.links.push(&self.first_key, self.first_trailer, &self.value);
        // One more of its kind would not fit in.
        if self.links.len_with(&self.first_key, self.value.len()) > BLOCK {
            self.end_links()?;
        }
        Ok(())
    }

    fn end_links(&mut self) -> Result<()> {
        let Some((key, trailer, first)) = self.links_first.take() else { return Ok(()) };
        let target = self.append(Which::Links, 0)?;
        self.footer.link_blocks += 1;
        let mut value = Vec::new();
        [target.offset, u64::from(target.len), first.record, first.block]
            .into_iter()
            .for_each(|number| varint::put(&mut value, number));
        let none = Trailer::new(0, Kind::Put);
        match self.footer.shape.has(3) {
            true => self.top.push(&key, trailer, &value),
            false => self.top.push(&[], none, &value),
        }
        let keys = self.top.key_bytes();
        if keys > MOST_TOP_KEYS && keys > self.top.len() * BLOCK / TOP_SHARE {
            self.top.forget_keys(none);
            self.footer.shape.max_level = 2;
        }
        Ok(())
    }

    /// Appends a block, with zeros behind it up to `room` bytes if those are few.
    fn append(&mut self, which: Which, room: usize) -> Result<Target> {
        let offset = self.out.position();
        let builder = match which {
            Which::Block => &mut self.block,
            Which::Links => &mut self.links,
            Which::Top => &mut self.top,
        };
        builder.finish(self.identity, offset, room, MOST_PADDING, &mut self.buffer);
        // It takes more blocks of links than there will be on any device to make the top so long.
        let len = u32::try_from(self.buffer.len()).map_err(|_| {
            Error::Unsupported("what leads to the blocks of a sorted file is 4 GiB long".into())
        })?;
        self.out.append(&self.buffer)?;
        Ok(Target { offset, len, record: 0, block: 0 })
    }

    /// Writes what is left, and makes the file safe from power loss. Gives it, its length and what is in it.
    pub(super) fn finish(mut self) -> Result<(Arc<dyn File>, u64, Footer)> {
        if self.block.len() > 0 {
            self.end_block()?;
        }
        self.end_links()?;
        let top = self.append(Which::Top, 0)?;
        (self.footer.top, self.footer.top_len) = (top.offset, top.len);
        let footer = self.footer.encode(self.identity, self.out.position());
        self.out.append(&footer)?;
        let len = self.out.position();
        Ok((self.out.finish()?, len, self.footer))
    }
}

#[derive(Clone, Copy)]
enum Which {
    Block,
    Links,
    Top,
}
