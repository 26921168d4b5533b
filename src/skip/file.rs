//! A sorted file that is read.
//!
//! Links to blocks of links are in memory as long as the file is open; those to blocks too, if there is memory for them.
//! Then a search reads one block; else a block of links as well, which lies right behind the blocks it leads to. A file that
//! was written with fewer levels is searched by bisecting what the missing links would lead to.
//!
//! A block is checked against its checksum when it is read from the file, and then kept in the block cache of the database, unless there
//! is no memory for what the cache knows of each block.
//! Where the file lends its bytes, a block is checked when it is first used.
//!
//! Its descriptor may be closed while nobody reads, and is opened again by the next one who does. What a file lends stays.
//!
//! Thread safety: any thread may read. The file is never written again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::block::{self, Block, Damage};
use super::cursor::FileCursor;
use super::footer::Footer;
use super::links::{Gathered, Links, Target};
use crate::base::key::compare;
use crate::base::prefetch::prefetch_at;
use crate::base::{Kind, Seqno, Slice, Trailer, View, varint, words};
use crate::cache::{BlockCache, FileBlocks, Handle};
use crate::error::{Error, ErrorKind, Result};
use crate::planted::{Bug, planted};
use crate::vfs::{BatchReader, File, Hint, ReadRequest};

/// A record of a key, if there is one that may be seen: what it counts as, and its value.
pub(super) type Found = Option<(Trailer, Slice)>;

/// So many keys are looked up together: their blocks are held in memory at the same time.
const TOGETHER: usize = 256;
/// So many lines of memory at the front of a block are asked for ahead: those with its keys.
const LINES_AHEAD: usize = 6;
/// The least bytes a block takes, and a record in it.
const LEAST_BLOCK: u64 = 24;
const LEAST_RECORD: u64 = 2;

/// How many bytes a file may keep of what it can do without.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Of links to blocks,
    pub(super) links: usize,
    /// and of places for cached blocks.
    pub(super) slots: usize,
}

/// An open sorted file.
#[derive(Debug)]
pub(super) struct SortedFile {
    file: Handle,
    identity: u64,
    pub(super) footer: Footer,
    len: u64,
    /// What records count as that have no trailers.
    pub(super) uniform: Trailer,
    /// Leads to blocks of links.
    top: Links,
    /// Leads to blocks.
    links: Option<Links>,
    cached: Option<Arc<FileBlocks>>,
    /// Whether blocks are copied out of what the file gives: its views hold on to frames of a page cache, which the block
    /// cache must not.
    copies: bool,
    lent: Option<Lent>,
    requests: AtomicU64,
    reads: AtomicU64,
}

/// The bytes of a file that lends them, and which of its blocks were checked: one bit each, blocks of links behind the
/// others.
#[derive(Debug)]
struct Lent {
    bytes: View,
    checked: Box<[AtomicU64]>,
}

/// The bytes of a block.
pub(super) enum Bytes<'a> {
    /// A part of the file, which lends it for as long as anybody wants.
    Lent(&'a View, Range<usize>),
    /// From the cache, or just read.
    Own(View),
}

impl Bytes<'_> {
    #[inline]
    pub(super) fn get(&self) -> &[u8] {
        match self {
            Self::Lent(view, range) => &view[range.clone()],
            Self::Own(view) => view,
        }
    }

    /// A part of the block that may be kept.
    #[inline]
    pub(super) fn slice(&self, part: Range<usize>) -> Slice {
        match self {
            Self::Lent(view, range) => {
                Slice::of_view(view, range.start + part.start..range.start + part.end)
            }
            Self::Own(view) => Slice::of_view(view, part),
        }
    }

    /// The block as a view that may be kept.
    pub(super) fn into_view(self) -> View {
        match self {
            Self::Lent(view, range) => view.slice(range),
            Self::Own(view) => view,
        }
    }
}

/// The block of links that was used last: who goes from block to block needs it again.
#[derive(Default)]
pub(super) struct LastLinks(Option<(usize, View)>);

impl SortedFile {
    /// Opens what was written with this identity and is `len` bytes long. Records without trailers count as puts with
    /// number `seqno`. Links to blocks are kept in memory, and blocks are cached, if there is `room` for that.
    pub(super) fn open(
        handle: Handle,
        identity: u64,
        len: u64,
        seqno: Seqno,
        cache: &Arc<BlockCache>,
        room: Room,
    ) -> Result<Self> {
        let file = handle.file()?;
        let found = file.len()?;
        let at = len.checked_sub(Footer::LEN as u64).filter(|_| found == len);
        let Some(at) = at else {
            let what = format!("the file is {found} bytes long, not {len}");
            return Err(Error::corruption(file.path(), found.min(len), what));
        };
        let footer = read_footer(&*file, identity, at)?;
        let count = footer.blocks.saturating_add(footer.link_blocks);
        if count > len / LEAST_BLOCK || footer.records > len / LEAST_RECORD {
            let what = "there cannot be so many blocks or records";
            return Err(Error::corruption(file.path(), at, what));
        }
        let uniform = Trailer::new(seqno, Kind::Put);
        let top = read_top(&*file, identity, &footer, uniform)?;
        file.advise(0..len, Hint::Random);
        let lent = match file.lends() {
            true => {
                let checked = words::zeroed((count as usize).div_ceil(64));
                Some(Lent { bytes: file.view(0..len)?, checked })
            }
            false => None,
        };
        let is_cached = lent.is_none() && FileBlocks::memory_of(count as usize) <= room.slots;
        let cached = is_cached.then(|| FileBlocks::new(Arc::clone(cache), count as usize));
        let mut sorted = Self {
            copies: file.shares(),
            file: handle,
            identity,
            footer,
            len,
            uniform,
            top,
            links: None,
            cached,
            lent,
            requests: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        };
        sorted.links = match sorted.read_links(room.links) {
            // What is damaged shows when it is needed.
            Err(error) if error.kind() == ErrorKind::Corruption => None,
            links => links?,
        };
        Ok(sorted)
    }

    /// Reads all links to blocks; `None` if they would take more memory, or do not lead to one block after the other.
    fn read_links(&self, most: usize) -> Result<Option<Links>> {
        if self.footer.blocks as usize > most / size_of::<Target>() {
            return Ok(None);
        }
        let mut gathered = Gathered::default();
        for number in 0..self.top.len() {
            let bytes = self.view(self.top.targets()[number].range())?;
            self.check(&bytes, self.top.targets()[number].offset)?;
            let block = self.parse(&bytes, self.top.targets()[number].offset)?;
            let mut place = block.start();
            gathered.begin_block(block.prefix);
            for _ in 0..block.len() {
                let record = self.damage(block.record(place), &self.top.targets()[number])?;
                let target = self.target(block.bytes(record.value()), number, place.index)?;
                let is_next = match gathered.targets().last() {
                    None => target.record == 0 && target.block == 0,
                    Some(last) => target.record > last.record && target.block == last.block + 1,
                };
                if !is_next || !gathered.push(record.suffix, record.trailer, target) {
                    return Ok(None);
                }
                place = record.next;
            }
            if gathered.memory() > most {
                return Ok(None);
            }
        }
        if gathered.targets().len() as u64 != self.footer.blocks {
            return Ok(None);
        }
        let levels = self.footer.shape.max_level.saturating_sub(2);
        let links = gathered.finish(self.footer.shape.step_unit, levels);
        Ok(Some(links).filter(|links| links.memory() <= most))
    }

    /// A part of the file, as it is now.
    pub(super) fn view(&self, range: Range<u64>) -> Result<View> {
        self.file.with(|file| file.view(range))
    }

    /// Lets go of the descriptor, unless it was used since this was last called.
    pub(super) fn rest(&self) {
        self.file.rest();
    }

    /// The file's length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of memory that are kept for as long as it is open, without cached blocks.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>()
            + self.top.memory()
            + self.links.as_ref().map_or(0, Links::memory)
            + self.lent.as_ref().map_or(0, |lent| size_of_val(&lent.checked[..]))
            + self.cached.as_ref().map_or(0, |cached| cached.memory())
    }

    /// Levels of links, those inside blocks included.
    pub(super) fn levels(&self) -> u32 {
        let shape = self.footer.shape;
        let above = match &self.links {
            Some(links) => links.levels(),
            None => 1 + self.top.levels(),
        };
        shape.max_level.min(1 + above as u32)
    }

    /// How many blocks were asked for, and how many of them were read from the file.
    pub(super) fn counters(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.reads.load(Ordering::Relaxed))
    }

    /// How many blocks it has.
    pub(super) fn blocks(&self) -> usize {
        self.footer.blocks as usize
    }

    /// A cursor over all records. With `run` bytes it reads so many at once, past the cache.
    pub(super) fn cursor(self: &Arc<Self>, run: Option<u64>) -> FileCursor {
        FileCursor::new(Arc::clone(self), run)
    }

    // ---- searching ----

    /// The newest record of `key` that was written up to `at`. Cost: reads one block, and one of links if those are not
    /// in memory.
    #[inline]
    pub(super) fn get(&self, key: &[u8], at: Seqno) -> Result<Found> {
        let Some((number, target)) = self.find(key, Trailer::visible_at(at))? else {
            return Ok(None);
        };
        self.prefetch(&target);
        let bytes = self.block(number, &target)?;
        match self.search(&bytes, &target, key, at)? {
            Searched::Found(found) => Ok(found),
            // Versions of a key may go on in the block behind.
            Searched::Behind if number + 1 < self.blocks() => {
                let target = self.target_of(number + 1, &mut LastLinks::default())?;
                let bytes = self.block(number + 1, &target)?;
                match self.search(&bytes, &target, key, at)? {
                    Searched::Found(found) => Ok(found),
                    Searched::Behind => Ok(None),
                }
            }
            Searched::Behind => Ok(None),
        }
    }

    /// What [`get`](Self::get) gives for each of the keys. Blocks that have to be read are read together.
    pub(super) fn multi_get(
        &self,
        keys: &[&[u8]],
        at: Seqno,
        reader: &BatchReader,
    ) -> Result<Vec<Found>> {
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(TOGETHER) {
            self.get_together(keys, at, reader, &mut found)?;
        }
        Ok(found)
    }

    fn get_together(
        &self,
        keys: &[&[u8]],
        at: Seqno,
        reader: &BatchReader,
        found: &mut Vec<Found>,
    ) -> Result<()> {
        let mut targets = Vec::with_capacity(keys.len());
        for key in keys {
            let target = self.find(key, Trailer::visible_at(at))?;
            target.iter().for_each(|(_, target)| self.prefetch(target));
            targets.push(target);
        }
        let mut missing: Vec<_> = targets
            .iter()
            .flatten()
            .copied()
            .filter(|(number, _)| self.is_absent(*number))
            .collect();
        missing.sort_unstable_by_key(|(number, _)| *number);
        missing.dedup_by_key(|(number, _)| *number);
        let mut read = Vec::with_capacity(missing.len());
        if missing.len() > 1 {
            let file = self.file.file()?;
            let request = |(_, target): &(usize, Target)| ReadRequest {
                file: Arc::clone(&file),
                range: target.range(),
            };
            let requests: Vec<_> = missing.iter().map(request).collect();
            for ((number, target), view) in missing.iter().zip(reader.read(&requests)) {
                read.push(self.take_in(*number, target, view?)?);
            }
        }
        for (key, target) in keys.iter().zip(targets) {
            let Some((number, target)) = target else {
                found.push(None);
                continue;
            };
            let held = missing.binary_search_by_key(&number, |(number, _)| *number).ok();
            let searched = match held.and_then(|held| read.get(held)) {
                Some(view) => self.search(&Bytes::Own(view.clone()), &target, key, at)?,
                None => self.search(&self.block(number, &target)?, &target, key, at)?,
            };
            found.push(match searched {
                Searched::Found(found) => found,
                Searched::Behind => self.get(key, at)?,
            });
        }
        Ok(())
    }

    /// Looks for the newest record of `key` up to `at` in a block.
    #[inline]
    pub(super) fn search(
        &self,
        bytes: &Bytes<'_>,
        target: &Target,
        key: &[u8],
        at: Seqno,
    ) -> Result<Searched> {
        let block = self.parse(bytes.get(), target.offset)?;
        let place = self.damage(block.lower_bound(key, Trailer::visible_at(at)), target)?;
        if block.is_end(place) {
            return Ok(match self.footer.shape.has_trailers {
                true => Searched::Behind,
                false => Searched::Found(None),
            });
        }
        let record = self.damage(block.record(place), target)?;
        let (prefix, suffix) = key.split_at_checked(block.prefix.len()).unwrap_or((key, &[]));
        let is_it = prefix == block.prefix && suffix == record.suffix;
        Ok(Searched::Found(is_it.then(|| (record.trailer, bytes.slice(record.value())))))
    }

    /// How many records are in front of `(key, trailer)`. Cost: that of a get.
    pub(super) fn rank(&self, key: &[u8], trailer: Trailer) -> Result<u64> {
        let Some((number, target)) = self.find(key, trailer)? else { return Ok(0) };
        let bytes = self.block(number, &target)?;
        let block = self.parse(bytes.get(), target.offset)?;
        let place = self.damage(block.lower_bound(key, trailer), &target)?;
        Ok((target.record + place.index as u64).min(self.footer.records))
    }

    /// The last block that does not begin behind `(key, trailer)`, or the first one; `None` if there are no blocks.
    #[inline]
    pub(super) fn find(&self, key: &[u8], trailer: Trailer) -> Result<Option<(usize, Target)>> {
        if self.blocks() == 0 {
            return Ok(None);
        }
        // Without trailers there is one record of a key: a block that begins with it is not behind it.
        let trailer = if self.footer.shape.has_trailers { trailer } else { Trailer::OLDEST };
        if self.footer.shape.has(2)
            && let Some(links) = &self.links
        {
            let mut number = links.find(key, trailer);
            if planted(Bug::LinksOffByOne) {
                number = (number + 1).min(links.len() - 1);
            }
            return Ok(Some((number, links.targets()[number])));
        }
        self.find_by_reading(key, trailer).map(Some)
    }

    /// The same where links are not in memory, or have no keys.
    fn find_by_reading(&self, key: &[u8], trailer: Trailer) -> Result<(usize, Target)> {
        let shape = self.footer.shape;
        let mut last = LastLinks::default();
        if !shape.has(2) {
            let first = |number| {
                let target = self.target_of(number, &mut last)?;
                let bytes = self.block(number, &target)?;
                self.damage(self.parse(bytes.get(), target.offset)?.first(), &target)
            };
            let number = bisect(self.blocks(), (key, trailer), first)?;
            return Ok((number, self.target_of(number, &mut last)?));
        }
        let number = match shape.has(3) {
            true => self.top.find(key, trailer),
            false => bisect(self.top.len(), (key, trailer), |number| {
                let target = &self.top.targets()[number];
                let bytes = self.links_block(number)?;
                self.damage(self.parse(bytes.get(), target.offset)?.first(), target)
            })?,
        };
        let bytes = self.links_block(number)?;
        let target = &self.top.targets()[number];
        let block = self.parse(bytes.get(), target.offset)?;
        // The link in front of the first one behind the key.
        let behind = self.damage(block.lower_bound(key, trailer.just_older()), target)?;
        let index = behind.index.saturating_sub(1);
        let record =
            self.damage(block.place(index).and_then(|place| block.record(place)), target)?;
        let target = self.target(block.bytes(record.value()), number, index)?;
        Ok((target.block as usize, target))
    }

    /// The block that has record `record`; there must be such a record.
    pub(super) fn find_record(&self, record: u64) -> Result<(usize, Target)> {
        if let Some(links) = &self.links {
            let number = links.find_record(record);
            return Ok((number, links.targets()[number]));
        }
        let number = self.top.find_record(record);
        let target = &self.top.targets()[number];
        let bytes = self.links_block(number)?;
        let block = self.parse(bytes.get(), target.offset)?;
        let (mut from, mut to) = (0, block.len());
        let mut found = None;
        while from < to {
            let middle = from.midpoint(to);
            let place = self.damage(block.place(middle), target)?;
            let link = self.damage(block.record(place), target)?;
            let link = self.target(block.bytes(link.value()), number, middle)?;
            if link.record <= record {
                (found, from) = (Some(link), middle + 1);
            } else {
                to = middle;
            }
        }
        let found = found.ok_or_else(|| self.damaged(Damage("links lead nowhere"), target))?;
        Ok((found.block as usize, found))
    }

    /// Where block `number` is. `last` saves who goes from block to block reading links again.
    pub(super) fn target_of(&self, number: usize, last: &mut LastLinks) -> Result<Target> {
        if let Some(links) = &self.links {
            return Ok(links.targets()[number]);
        }
        let at = self.top.find_block(number as u64);
        if last.0.as_ref().is_none_or(|(held, _)| *held != at) {
            last.0 = Some((at, self.links_block(at)?.into_view()));
        }
        let target = &self.top.targets()[at];
        let (_, view) = last.0.as_ref().expect("it was just put there");
        let block = self.parse(view, target.offset)?;
        let index = (number as u64 - target.block) as usize;
        if index >= block.len() {
            return Err(self.damaged(Damage("links lead to fewer blocks than there are"), target));
        }
        let record =
            self.damage(block.place(index).and_then(|place| block.record(place)), target)?;
        self.target(block.bytes(record.value()), at, index)
    }

    // ---- blocks ----

    /// The bytes of block `number`, which is at `target`, checked.
    #[inline]
    pub(super) fn block(&self, number: usize, target: &Target) -> Result<Bytes<'_>> {
        self.bytes(number, target)
    }

    /// The block, if it is in memory. Is no use of it.
    pub(super) fn peek(&self, number: usize) -> Option<View> {
        self.cached.as_ref()?.peek(number)
    }

    /// Whether a read of block `number` would have to go to the file.
    #[inline]
    pub(super) fn is_absent(&self, number: usize) -> bool {
        self.lent.is_none() && self.cached.as_ref().is_none_or(|cached| !cached.contains(number))
    }

    /// Checks block `number` as it was read, and keeps it in the cache.
    pub(super) fn take_in(&self, number: usize, target: &Target, bytes: View) -> Result<View> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.check(&bytes, target.offset)?;
        let bytes = if self.copies { View::from(bytes.to_vec()) } else { bytes };
        if let Some(cached) = &self.cached {
            cached.insert(number, &bytes);
        }
        Ok(bytes)
    }

    /// Asks ahead for what a search of the block at `target` looks at first, if it is in memory.
    #[inline]
    pub(super) fn prefetch(&self, target: &Target) {
        if let Some(lent) = &self.lent {
            let start = lent.bytes.as_ptr().wrapping_add(target.offset as usize);
            for line in 0..LINES_AHEAD {
                prefetch_at(start.wrapping_add(64 * line));
            }
        }
    }

    /// All bytes, if the file lends them.
    pub(super) fn lends(&self) -> bool {
        self.lent.is_some()
    }

    fn links_block(&self, number: usize) -> Result<Bytes<'_>> {
        self.bytes(self.blocks() + number, &self.top.targets()[number])
    }

    #[inline]
    fn bytes(&self, slot: usize, target: &Target) -> Result<Bytes<'_>> {
        if let Some(lent) = &self.lent {
            let range = target.offset as usize..target.offset as usize + target.len as usize;
            let (word, bit) = (&lent.checked[slot / 64], 1 << (slot % 64));
            if word.load(Ordering::Relaxed) & bit == 0 && !planted(Bug::TrustLentBytes) {
                self.check(&lent.bytes[range.clone()], target.offset)?;
                word.fetch_or(bit, Ordering::Relaxed);
            }
            return Ok(Bytes::Lent(&lent.bytes, range));
        }
        if let Some(view) = self.cached.as_ref().and_then(|cached| cached.get(slot)) {
            self.requests.fetch_add(1, Ordering::Relaxed);
            return Ok(Bytes::Own(view));
        }
        self.take_in(slot, target, self.view(target.range())?).map(Bytes::Own)
    }

    /// An error unless the bytes of a block are what was written at `offset`.
    pub(super) fn check(&self, bytes: &[u8], offset: u64) -> Result<()> {
        block::check(bytes, self.identity, offset).map_err(|damage| self.at(damage, offset))
    }

    /// The block in bytes that were checked.
    #[inline]
    pub(super) fn parse<'a>(&self, bytes: &'a [u8], offset: u64) -> Result<Block<'a>> {
        Block::parse(bytes, self.uniform).map_err(|damage| self.at(damage, offset))
    }

    /// The target of link `index` of block of links `number`, read from its value.
    pub(super) fn target(&self, mut value: &[u8], number: usize, index: usize) -> Result<Target> {
        let above = &self.top.targets()[number];
        let bytes = &mut value;
        let mut take = || varint::take(bytes);
        let read = || {
            let (offset, len, record) = (take()?, take()?, take()?);
            let block = above.block.checked_add(index as u64)?;
            Some(Target { offset, len: len.try_into().ok()?, record, block })
        };
        let target = { read }().filter(|target| {
            target.block < self.footer.blocks
                && target.record >= above.record
                && target.record < self.footer.records
                && is_inside(target, above.offset)
        });
        target.ok_or_else(|| self.damaged(Damage("a link leads to no block"), above))
    }

    #[inline]
    pub(super) fn damage<T>(&self, found: Result<T, Damage>, target: &Target) -> Result<T> {
        found.map_err(|damage| self.damaged(damage, target))
    }

    #[cold]
    pub(super) fn damaged(&self, damage: Damage, target: &Target) -> Error {
        self.at(damage, target.offset)
    }

    #[cold]
    fn at(&self, damage: Damage, offset: u64) -> Error {
        Error::corruption(self.file.path(), offset, damage.0)
    }

    /// An error unless what the next opening will read first is what this one has in memory.
    pub(super) fn check_end(&self) -> Result<()> {
        let at = self.len - Footer::LEN as u64;
        let file = self.file.file()?;
        let footer = read_footer(&*file, self.identity, at)?;
        let changed = |offset| {
            Error::corruption(self.file.path(), offset, "it has changed since the file was opened")
        };
        if footer != self.footer {
            return Err(changed(at));
        }
        let top = read_top(&*file, self.identity, &footer, self.uniform)?;
        match top.targets() == self.top.targets() {
            true => Ok(()),
            false => Err(changed(footer.top)),
        }
    }

    /// Where blocks of links are.
    pub(super) fn link_blocks(&self) -> &[Target] {
        self.top.targets()
    }

    /// What leads to block of links `number`, if searches go by that.
    pub(super) fn link_to_links(&self, number: usize) -> Option<(Vec<u8>, Trailer)> {
        let shape = self.footer.shape;
        let (key, trailer) = self.top.link(number);
        // What is uniform is known only when a load is installed, after its links were read.
        shape.has(3).then_some((key, if shape.has_trailers { trailer } else { self.uniform }))
    }
}

/// What a search of one block gives.
pub(super) enum Searched {
    Found(Found),
    /// All records of the block are in front of what is looked for.
    Behind,
}

/// Whether a block lies in front of `end`.
fn is_inside(target: &Target, end: u64) -> bool {
    let last = target.offset.checked_add(u64::from(target.len));
    u64::from(target.len) >= LEAST_BLOCK && last.is_some_and(|last| last <= end)
}

/// The last of `count` places, at least one, whose first key is not behind `wanted`; 0 if all are.
fn bisect(
    count: usize,
    wanted: (&[u8], Trailer),
    mut first: impl FnMut(usize) -> Result<(Vec<u8>, Trailer)>,
) -> Result<usize> {
    let (mut from, mut to) = (0, count);
    while to - from > 1 {
        let middle = from.midpoint(to);
        let (key, trailer) = first(middle)?;
        match compare((&key, trailer), wanted).is_gt() {
            true => to = middle,
            false => from = middle,
        }
    }
    Ok(from)
}

/// Reads the footer, which is at `at`.
fn read_footer(file: &dyn File, identity: u64, at: u64) -> Result<Footer> {
    let footer = file.view(at..at + Footer::LEN as u64)?;
    let Some(bytes) = footer.first_chunk() else {
        return Err(Error::corruption(file.path(), at, "the footer is cut off"));
    };
    Footer::decode(bytes, file.path(), identity, at)
}

/// Reads what leads to blocks of links.
fn read_top(file: &dyn File, identity: u64, footer: &Footer, uniform: Trailer) -> Result<Links> {
    let damaged = |damage: Damage| Error::corruption(file.path(), footer.top, damage.0);
    let wrong = || damaged(Damage("what leads to blocks of links is malformed"));
    let bytes = file.view(footer.top..footer.top + u64::from(footer.top_len))?;
    block::check(&bytes, identity, footer.top).map_err(damaged)?;
    let block = Block::parse(&bytes, uniform).map_err(damaged)?;
    if block.len() as u64 != footer.link_blocks {
        return Err(wrong());
    }
    let mut gathered = Gathered::default();
    gathered.begin_block(block.prefix);
    let mut place = block.start();
    for _ in 0..block.len() {
        let record = block.record(place).map_err(damaged)?;
        let mut value = block.bytes(record.value());
        let mut take = || varint::take(&mut value);
        let read = || {
            let (offset, len) = (take()?, take()?.try_into().ok()?);
            Some(Target { offset, len, record: take()?, block: take()? })
        };
        let target = { read }().filter(|target| is_inside(target, footer.top)).ok_or_else(wrong)?;
        let is_in_order = match gathered.targets().last() {
            None => target.record == 0 && target.block == 0,
            Some(last) => target.record > last.record && target.block > last.block,
        };
        if !is_in_order || target.record >= footer.records || target.block >= footer.blocks {
            return Err(wrong());
        }
        if !gathered.push(record.suffix, record.trailer, target) {
            return Err(wrong());
        }
        place = record.next;
    }
    Ok(gathered.finish(footer.shape.step_unit, footer.shape.max_level.saturating_sub(3)))
}
