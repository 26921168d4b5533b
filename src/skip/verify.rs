//! Checking a whole sorted file: every checksum, that records are in order and links lead to them, that blocks follow each
//! other without a gap, and that the footer's counts are right. All of that is read anew, the end of the file as well, which an open
//! file has in memory.

use super::block::Damage;
use super::file::SortedFile;
use super::links::Target;
use crate::base::key::compare;
use crate::base::{Kind, Trailer, View};
use crate::error::Result;

/// The bytes read at once.
const RUN: u64 = 1 << 20;

/// What has been seen of a file.
struct Audit<'a> {
    file: &'a SortedFile,
    run: Option<(u64, View)>,
    records: u64,
    tombstones: u64,
    bytes: u64,
    blocks: u64,
    /// Where the next block must begin.
    end: u64,
    last: Option<(Vec<u8>, Trailer)>,
}

/// Reads all of a file and checks it. The first fault found is the error. Nothing is cached.
pub(super) fn verify(file: &SortedFile) -> Result<()> {
    file.check_end()?;
    let mut audit = Audit {
        file,
        run: None,
        records: 0,
        tombstones: 0,
        bytes: 0,
        blocks: 0,
        end: 0,
        last: None,
    };
    for (number, above) in file.link_blocks().iter().enumerate() {
        audit.links(number, above)?;
    }
    audit.finish()
}

impl Audit<'_> {
    /// The bytes at `target`, read anew.
    fn read(&mut self, target: &Target) -> Result<View> {
        let held = |run: &Option<(u64, View)>| {
            let (first, view) = run.as_ref()?;
            let start = usize::try_from(target.offset.checked_sub(*first)?).ok()?;
            let end = start.checked_add(target.len as usize)?;
            (end <= view.len()).then(|| view.slice(start..end))
        };
        if let Some(view) = held(&self.run) {
            return Ok(view);
        }
        let end = (target.offset + RUN).min(self.file.len()).max(target.range().end);
        self.run = Some((target.offset, self.file.view(target.offset..end)?));
        let damaged = || self.file.damaged(Damage("a block reaches out of the file"), target);
        held(&self.run).ok_or_else(damaged)
    }

    /// Checks a block of links, and the blocks it leads to.
    fn links(&mut self, number: usize, above: &Target) -> Result<()> {
        let links = self.read(above)?;
        self.file.check(&links, above.offset)?;
        let block = self.file.parse(&links, above.offset)?;
        self.file.damage(block.check_whole(), above)?;
        if above.block != self.blocks || above.record != self.records || block.len() == 0 {
            return Err(self.file.damaged(Damage("links are not counted right"), above));
        }
        let above_link = self.file.link_to_links(number);
        let mut place = block.start();
        while !block.is_end(place) {
            let link = self.file.damage(block.record(place), above)?;
            let target = self.file.target(block.bytes(link.value()), number, place.index)?;
            let key = [block.prefix, link.suffix].concat();
            let own = self.file.footer.shape.has(2).then_some((&key[..], link.trailer));
            let above_link = above_link.as_ref().map(|(key, trailer)| (&key[..], *trailer));
            let first = above_link.filter(|_| place.index == 0);
            self.block(&target, own.into_iter().chain(first))?;
            place = link.next;
        }
        if above.offset != self.end {
            return Err(self.file.damaged(Damage("bytes of the file belong to no block"), above));
        }
        self.end = above.range().end;
        Ok(())
    }

    /// Checks a block that `links` lead to.
    fn block<'a>(
        &mut self,
        target: &Target,
        mut links: impl Iterator<Item = (&'a [u8], Trailer)>,
    ) -> Result<()> {
        let file = self.file;
        let damaged = |what| Err(file.damaged(Damage(what), target));
        let bytes = self.read(target)?;
        file.check(&bytes, target.offset)?;
        let block = file.parse(&bytes, target.offset)?;
        file.damage(block.check_whole(), target)?;
        if block.has_trailers() != file.footer.shape.has_trailers {
            return damaged("a block is of another kind than the file");
        }
        if target.offset != self.end || target.record != self.records || block.len() == 0 {
            return damaged("a link leads to another block");
        }
        // What leads to a block is behind all in front of it, and not behind what is in it.
        let first = file.damage(block.first(), target)?;
        let leads_here = |link| {
            let is_behind =
                |(last, trailer): &(Vec<u8>, Trailer)| compare((last, *trailer), link).is_lt();
            self.last.as_ref().is_none_or(is_behind) && compare(link, (&first.0, first.1)).is_le()
        };
        if !links.all(leads_here) {
            return damaged("a link's key does not lead to its block");
        }
        let mut place = block.start();
        let mut key = block.prefix.to_vec();
        while !block.is_end(place) {
            let record = file.damage(block.record(place), target)?;
            key.truncate(block.prefix.len());
            key.extend_from_slice(record.suffix);
            if let Some((last, trailer)) = &self.last
                && compare((last, *trailer), (&key, record.trailer)).is_ge()
            {
                return damaged("records are out of order");
            }
            self.records += 1;
            self.tombstones += u64::from(record.trailer.kind() == Kind::Delete);
            self.bytes += (key.len() + record.value().len()) as u64;
            self.last = Some((key.clone(), record.trailer));
            place = record.next;
        }
        self.blocks += 1;
        self.end = target.range().end;
        Ok(())
    }

    fn finish(self) -> Result<()> {
        let footer = &self.file.footer;
        let counted = (self.records, self.tombstones, self.bytes, self.blocks, self.end);
        let told = (footer.records, footer.tombstones, footer.bytes, footer.blocks, footer.top);
        let end = Target { offset: footer.top, len: footer.top_len, record: 0, block: 0 };
        match counted == told {
            true => Ok(()),
            false => {
                Err(self.file.damaged(Damage("the footer does not tell what the file holds"), &end))
            }
        }
    }
}
