//! Reads a whole table and checks everything that is known of it.

use std::ops::Range;

use super::block::{Block, head};
use super::points::{Lookup, Position};
use super::properties::Properties;
use super::reader::{Kept, Parts};
use super::stored::{self, Unpacker};
use super::{Damage, Table};
use crate::base::key::compare;
use crate::base::{Trailer, hash};
use crate::error::Result;
use crate::options::KeyFile;

/// The bytes read at once.
const RUN: u64 = 1 << 20;

impl Table {
    /// Reads the whole file and checks every checksum, that entries are in order, inside and across
    /// blocks, that the index leads to each and the filter knows each, and that the properties are right.
    /// The first fault found is the error. Nothing is cached. `apart` is told the key of each entry whose value is
    /// apart, and what it has instead.
    pub(crate) fn verify(&self, apart: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let parts = {
            let all = Kept { key_file: KeyFile::KeysAndFilter, points: usize::MAX };
            Parts::load(&*self.file.file()?, self.identity, self.len(), all)?
        };
        let counted = Properties { codec: parts.properties.codec, ..Properties::default() };
        let mut audit = Audit { parts: &parts, counted, last: None, apart };
        let mut next = 0;
        while next < parts.index.len() {
            let run = parts.index.run_from(next, RUN);
            next = run.end;
            self.verify_run(&mut audit, run)?;
        }
        audit.finish().map_err(|damage| damage.at(self.file.path(), self.len()))
    }

    fn verify_run(&self, audit: &mut Audit<'_>, blocks: Range<usize>) -> Result<()> {
        let start = audit.parts.index.range(blocks.start).start;
        let range = audit.parts.index.range_of(blocks.clone());
        let bytes = self.file.with(|file| file.view(range))?;
        for block in blocks {
            let range = audit.parts.index.range(block);
            let stored = &bytes[(range.start - start) as usize..(range.end - start) as usize];
            stored::check(stored, self.identity, range.start)
                .and_then(|()| Unpacker::unpack(audit.parts.unpacker.as_ref(), stored))
                .and_then(|plain| {
                    audit.block(block, stored::content(plain.as_deref().unwrap_or(stored))?)
                })
                .map_err(|damage| damage.at(self.file.path(), range.start))?;
        }
        Ok(())
    }
}

/// What was seen of a table so far.
struct Audit<'a> {
    parts: &'a Parts,
    counted: Properties,
    /// The last entry.
    last: Option<(Vec<u8>, Trailer)>,
    apart: &'a mut dyn FnMut(&[u8], &[u8]),
}

impl Audit<'_> {
    fn block(&mut self, number: usize, bytes: &[u8]) -> Result<(), Damage> {
        let block = Block::parse(bytes)?;
        let mut end = 0;
        let mut key = block.prefix().to_vec();
        for index in 0..block.count() {
            let entry = block.entry(index)?;
            if block.start(index) != end || block.head(index) != head(entry.suffix) {
                return Err(Damage("a slot or head does not fit its entry"));
            }
            end = entry.value.end;
            key.truncate(block.prefix().len());
            key.extend_from_slice(entry.suffix);
            let is_newest = self.last.as_ref().is_none_or(|(last, _)| *last != key);
            self.entry(number, &key, entry.trailer)?;
            self.points(number, block.start(index), is_newest, &key)?;
            self.counted.count(&key, entry.trailer, entry.value.len());
            if entry.trailer.is_apart() {
                (self.apart)(&key, &bytes[entry.value]);
            }
        }
        if end != block.entries_len() {
            return Err(Damage("a block has bytes that belong to no entry"));
        }
        Ok(())
    }

    /// Checks an entry of block `number` against the one before it, the index and the filter.
    fn entry(&mut self, number: usize, key: &[u8], trailer: Trailer) -> Result<(), Damage> {
        let last = self.last.as_ref().map(|(key, trailer)| (&key[..], *trailer));
        if last.is_some_and(|last| compare(last, (key, trailer)).is_ge()) {
            return Err(Damage("entries are out of order"));
        }
        if self.parts.index.find(key, trailer) != number {
            return Err(Damage("the index leads to another block"));
        }
        let filter = self.parts.filter.as_ref();
        if filter.is_some_and(|filter| !filter.may_contain(hash::hash64(key))) {
            return Err(Damage("the filter does not know a key"));
        }
        match &mut self.last {
            Some((last, newer)) => {
                last.clear();
                last.extend_from_slice(key);
                *newer = trailer;
            }
            last => *last = Some((key.to_vec(), trailer)),
        }
        Ok(())
    }

    /// Checks that the points lead to the newest entry of each key.
    fn points(
        &self,
        block: usize,
        start: usize,
        is_newest: bool,
        key: &[u8],
    ) -> Result<(), Damage> {
        let Some(points) = self.parts.points.as_ref().filter(|_| is_newest) else { return Ok(()) };
        match points.find(hash::hash64(key)) {
            Lookup::At(Position { block: found, start: at })
                if found == block && at.is_none_or(|at| at == start) => {}
            Lookup::Unclear => {}
            _ => return Err(Damage("the points lead from a key to another place")),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), Damage> {
        if let Some((key, _)) = self.last {
            self.counted.largest = key;
        }
        if let Some(ranges) = &self.parts.ranges {
            self.counted.cover(ranges);
        }
        if self.counted != self.parts.properties {
            return Err(Damage("the properties do not tell what the table holds"));
        }
        Ok(())
    }
}
