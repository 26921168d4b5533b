//! A cursor over the entries of a table.
//!
//! Where the file lends its bytes, the cursor walks over them and only tells what it will need next; blocks that are
//! compressed it decompresses for itself.
//! Elsewhere it reads *runs*, several neighbouring blocks with one call. A run is kept by the cursor
//! alone and never enters the cache, so that a scan does not drive out what others need.

use std::ops::Range;
use std::sync::Arc;

use super::block_cursor::BlockCursor;
use super::index::Index;
use super::reader::Used;
use super::{Damage, Table};
use crate::base::{Slice, Trailer, View};
use crate::error::Result;
use crate::iter::{Approach, EntryCursor, StoredBlock};
use crate::planted::{Bug, planted};
use crate::vfs::{Aside, Hint, Reading};

/// What a cursor is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadMode {
    /// Looking here and there: through the cache; reads ahead after two steps to a neighbouring block.
    Point,
    /// Reading all once, as a compaction does: not through the cache, and always ahead.
    Sequential,
}

/// A position in a table, or outside of it.
#[derive(Debug)]
pub(crate) struct TableCursor {
    table: Arc<Table>,
    block: BlockCursor,
    /// Which block `block` has.
    loaded: Option<usize>,
    /// What stands in the file of that block, if the cursor has it by itself.
    copy: Option<View>,
    /// What a seek that was [approached](EntryCursor::approach) has found out so far.
    target: Option<Target>,
    ahead: ReadAhead,
    run: Option<Run>,
    /// The blocks in front of this one were announced, if all are read.
    announced: usize,
    /// The thread that reads the next run while this one is walked over, if there is one and reads are slow.
    aside: Option<Arc<Aside>>,
    /// The next run, if it is being read.
    coming: Option<(Range<usize>, Reading)>,
}

/// The first entry that is not before what is looked for.
#[derive(Clone, Copy, Debug)]
struct Target {
    block: usize,
    /// Its number in its block, if it was found already.
    entry: Option<usize>,
}

/// Neighbouring blocks that were read, or announced, with one call.
#[derive(Debug)]
struct Run {
    blocks: Range<usize>,
    /// Where the first block starts in the file.
    start: u64,
    /// The bytes; `None` if the file lends them anyway.
    bytes: Option<View>,
}

impl TableCursor {
    pub(super) fn new(table: Arc<Table>, mode: ReadMode) -> Self {
        Self {
            table,
            block: BlockCursor::new(),
            loaded: None,
            copy: None,
            target: None,
            ahead: ReadAhead::new(mode),
            run: None,
            announced: 0,
            aside: None,
            coming: None,
        }
    }

    /// Reads at most about so many bytes at once.
    pub(crate) fn limit_runs(&mut self, most: u64) {
        self.ahead.limit(most);
    }

    /// Has the thread read ahead.
    pub(crate) fn read_aside(&mut self, aside: Option<Arc<Aside>>) {
        self.aside = aside;
    }

    pub(super) fn blocks(&self) -> usize {
        self.table.parts.index.len()
    }

    /// Makes `block` the loaded one; outside if there is no such block.
    fn load(&mut self, block: usize) -> Result<()> {
        if self.loaded == Some(block) {
            return Ok(());
        }
        self.leave();
        if block < self.blocks() {
            let bytes = self.fetch(block)?;
            self.block.set(bytes).map_err(|damage| self.table.damaged(damage, block))?;
            self.loaded = Some(block);
        }
        Ok(())
    }

    /// The contents of a block, from where they are cheapest.
    fn fetch(&mut self, block: usize) -> Result<View> {
        self.ahead.step(block);
        if let Some((bytes, copy)) = self.table.lent_block(block, self.ahead.use_of_block())? {
            self.copy = copy;
            if !self.run_has(block) {
                self.announce(block);
            }
            return Ok(bytes);
        }
        if !self.run_has(block) {
            if self.ahead.mode == ReadMode::Point {
                if !self.ahead.is_due() {
                    return self.table.block(block);
                }
                if let Some(bytes) = self.table.block_in_cache(block)? {
                    return Ok(bytes);
                }
            }
            self.read_run(block)?;
        }
        match &self.run {
            Some(Run { start, bytes: Some(bytes), .. }) => {
                self.table.block_in_run(bytes, *start, block)
            }
            _ => self.table.block(block),
        }
    }

    fn run_has(&self, block: usize) -> bool {
        self.run.as_ref().is_some_and(|run| run.blocks.contains(&block))
    }

    fn read_run(&mut self, block: usize) -> Result<()> {
        self.run = None;
        let blocks = self.ahead.plan(&self.table.parts.index, block);
        let range = self.table.parts.index.range_of(blocks.clone());
        let bytes = match self.coming.take().filter(|(coming, _)| *coming == blocks) {
            Some((_, reading)) => Some(reading.wait()?),
            None => Some(match &self.aside {
                Some(aside) => aside.read(&*self.table.file.file()?, range.clone())?,
                None => self.table.file.with(|file| file.view(range.clone()))?,
            }),
        };
        self.announce_behind(blocks.end);
        self.run = Some(Run { blocks, start: range.start, bytes });
        Ok(())
    }

    fn announce(&mut self, block: usize) {
        if self.ahead.is_due() {
            let blocks = self.ahead.plan(&self.table.parts.index, block);
            let start = self.table.parts.index.range(blocks.start).start;
            if blocks.end > self.announced {
                let new = blocks.start.max(self.announced)..blocks.end;
                self.table.advise(new, Hint::WillNeed);
            }
            self.announce_behind(blocks.end);
            self.run = Some(Run { blocks, start, bytes: None });
        }
    }

    /// Who reads all needs the next run, too: the device brings it in while this one is walked over.
    fn announce_behind(&mut self, next: usize) {
        if self.ahead.mode == ReadMode::Sequential && next < self.blocks() {
            let blocks = self.table.parts.index.run_from(next, self.ahead.bytes);
            self.announced = blocks.end;
            match &self.aside {
                Some(aside) if self.table.lent.is_none() && aside.reads_are_slow() => {
                    let range = self.table.parts.index.range_of(blocks.clone());
                    let file = self.table.file.file();
                    // Who comes to the run meets the error.
                    self.coming = file.ok().map(|file| (blocks, aside.begin_read(&file, range)));
                }
                _ => self.table.advise(blocks, Hint::WillNeed),
            }
        }
    }

    /// The block that is loaded, with what stands in the file: it was checked when it was loaded.
    fn stored_block(&self) -> Option<StoredBlock<'_>> {
        let range = self.table.parts.index.range(self.loaded?);
        let stored = match (&self.copy, &self.run) {
            (Some(copy), _) => copy.clone(),
            (None, Some(Run { start, bytes: Some(bytes), .. })) => {
                bytes.slice((range.start - start) as usize..(range.end - start) as usize)
            }
            _ => return None,
        };
        Some(StoredBlock { plain: self.block.bytes()?, stored, limit: None })
    }

    /// Is outside, without a block.
    fn leave(&mut self) {
        self.block.clear();
        (self.loaded, self.copy) = (None, None);
    }

    /// Gives the damage its place; the cursor is outside from then on.
    #[cold]
    fn fail(&mut self, damage: Damage) -> Result<()> {
        let error = self.table.damaged(damage, self.loaded.unwrap_or(0));
        self.leave();
        Err(error)
    }

    /// Steps inside the loaded block.
    #[inline]
    fn within(&mut self, step: impl FnOnce(&mut BlockCursor) -> Result<(), Damage>) -> Result<()> {
        match step(&mut self.block) {
            Ok(()) => Ok(()),
            Err(damage) => self.fail(damage),
        }
    }

    /// What a seek looks for, as far as it was found already, else the block alone.
    fn target(&mut self, key: &[u8], trailer: Trailer) -> Result<Target> {
        match self.target.take() {
            Some(target) => Ok(target),
            None => Ok(Target { block: self.table.find_block(key, trailer)?, entry: None }),
        }
    }

    fn enter_next_block(&mut self) -> Result<()> {
        match self.loaded {
            Some(block) => {
                self.load(block + 1)?;
                self.within(BlockCursor::seek_to_first)
            }
            None => Ok(()),
        }
    }

    fn enter_previous_block(&mut self) -> Result<()> {
        match self.loaded {
            Some(block) if block > 0 => {
                self.load(block - 1)?;
                self.within(BlockCursor::seek_to_last)?;
                if planted(Bug::SkipLastOfBlock) { self.within(BlockCursor::prev) } else { Ok(()) }
            }
            _ => {
                self.leave();
                Ok(())
            }
        }
    }
}

impl EntryCursor for TableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.target = None;
        self.load(0)?;
        self.within(BlockCursor::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.target = None;
        match self.blocks().checked_sub(1) {
            Some(last) => {
                self.load(last)?;
                self.within(BlockCursor::seek_to_last)
            }
            None => Ok(()),
        }
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let Target { block, entry } = self.target(key, trailer)?;
        self.load(block)?;
        self.within(|block| match entry {
            Some(entry) => block.seek_to(entry),
            None => block.seek(key, trailer),
        })?;
        if self.block.is_valid() { Ok(()) } else { self.enter_next_block() }
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        let Target { block, entry } = self.target(key, trailer)?;
        if block == self.blocks() {
            return self.seek_to_last();
        }
        self.load(block)?;
        self.within(|block| match entry {
            Some(entry) => block.seek_to_before(entry),
            None => block.seek_before(key, trailer),
        })?;
        if self.block.is_valid() { Ok(()) } else { self.enter_previous_block() }
    }

    fn approach(&mut self, part: Approach, key: &[u8], trailer: Trailer) {
        if part == Approach::Place {
            let block = self.table.index_block(key, trailer);
            self.target = block.map(|block| Target { block, entry: None });
        }
        let Some(Target { block, .. }) = self.target.filter(|target| target.block < self.blocks())
        else {
            return;
        };
        match part {
            Approach::Place => self.table.prefetch_slot(block),
            Approach::Memory => self.table.prefetch_block(block),
            // Who seeks meets the error.
            Approach::Entry => {
                if self.load(block).is_ok() {
                    let entry = self.block.find(key, trailer);
                    self.target = Some(Target { block, entry });
                }
            }
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.within(BlockCursor::next)?;
        if self.block.is_valid() { Ok(()) } else { self.enter_next_block() }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.within(BlockCursor::prev)?;
        if self.block.is_valid() { Ok(()) } else { self.enter_previous_block() }
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.block.is_valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.block.key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.block.trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.block.value()
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        self.block.value_slice()
    }

    fn count_below(&self, limit: Option<&[u8]>) -> usize {
        self.block.count_below(limit)
    }

    #[inline]
    fn block(&self) -> Option<StoredBlock<'_>> {
        if self.ahead.mode == ReadMode::Sequential && self.block.is_first() {
            self.stored_block()
        } else {
            None
        }
    }

    fn pass_block(&mut self) -> Result<()> {
        self.enter_next_block()
    }
}

/// Decides how much to read at once, from the steps taken so far.
#[derive(Debug)]
struct ReadAhead {
    mode: ReadMode,
    last: Option<usize>,
    /// Steps in a row to the block behind (positive) or in front (negative).
    streak: isize,
    /// The bytes of the next run; they double up to the most.
    bytes: u64,
    /// The bytes of the first run and the most bytes of one.
    sizes: Range<u64>,
}

impl ReadAhead {
    fn new(mode: ReadMode) -> Self {
        let sizes = match mode {
            ReadMode::Point => 16 << 10..128 << 10,
            ReadMode::Sequential => 256 << 10..1 << 20,
        };
        Self { mode, last: None, streak: 0, bytes: sizes.start, sizes }
    }

    fn limit(&mut self, most: u64) {
        self.sizes = self.sizes.start.min(most)..self.sizes.end.min(most);
        self.bytes = self.bytes.min(most);
    }

    /// Takes notice that `block` is wanted.
    fn step(&mut self, block: usize) {
        self.streak = match self.last {
            Some(last) if block == last + 1 => self.streak.max(0) + 1,
            Some(last) if block + 1 == last => self.streak.min(0) - 1,
            _ => 0,
        };
        if self.streak == 0 {
            self.bytes = self.sizes.start;
        }
        self.last = Some(block);
    }

    /// What is made of the block that is wanted now.
    fn use_of_block(&self) -> Used {
        match self.mode {
            ReadMode::Sequential => Used::InCopies,
            ReadMode::Point if self.is_due() => Used::Once,
            ReadMode::Point => Used::Again,
        }
    }

    fn is_due(&self) -> bool {
        self.mode == ReadMode::Sequential || self.streak.abs() >= 2
    }

    /// The blocks to read now that `block` is wanted.
    fn plan(&mut self, index: &Index, block: usize) -> Range<usize> {
        let bytes = self.bytes;
        self.bytes = (2 * bytes).min(self.sizes.end);
        if self.streak < 0 { index.run_up_to(block, bytes) } else { index.run_from(block, bytes) }
    }
}
