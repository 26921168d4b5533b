//! What leads from a key to its block: the filter and the index, whether they stay in memory or not.
//!
//! What does not stay is checked when the table is opened, and used in place when it is needed: in the bytes that the file
//! lends, or else in the block cache, which has it behind the table's blocks and where it is checked again when it
//! enters. Where blocks are always stays: 4 bytes for each, or 8 in a table of 4 GiB.

use super::Table;
use super::footer::Part;
use super::index::Index;
use super::reader::filter_of;
use super::stored;
use crate::base::{Trailer, View};
use crate::error::Result;
use crate::options::KeyFile;

/// The places that a table has in the cache beside those of its blocks: for index and filter.
pub(super) const PLACES: usize = 2;

/// Whether the index stays.
pub(super) fn has_keys(kept: KeyFile) -> bool {
    matches!(kept, KeyFile::Keys | KeyFile::KeysAndFilter)
}

/// Whether the filter stays.
pub(super) fn has_filter(kept: KeyFile) -> bool {
    matches!(kept, KeyFile::Filter | KeyFile::KeysAndFilter)
}

impl Table {
    /// Whether a key with this hash is surely not here.
    #[inline]
    pub(super) fn denies(&self, hash: u64) -> Result<bool> {
        match &self.parts.filter {
            Some(filter) => Ok(!filter.may_contain(hash)),
            None if self.parts.footer.range(Part::Filter).is_empty() => Ok(false),
            None => self.denies_in_place(hash),
        }
    }

    /// The block that holds the first entry not before `(key, trailer)`; the number of blocks if all entries are before
    /// it. Walks over the whole index if that is not in memory.
    #[inline]
    pub(super) fn find_block(&self, key: &[u8], trailer: Trailer) -> Result<usize> {
        let index = &self.parts.index;
        if index.has_keys() { Ok(index.find(key, trailer)) } else { self.walk_to(key, trailer) }
    }

    /// What [`find_block`](Self::find_block) gives, if that is known without a read.
    pub(super) fn index_block(&self, key: &[u8], trailer: Trailer) -> Option<usize> {
        let index = &self.parts.index;
        index.has_keys().then(|| index.find(key, trailer))
    }

    fn denies_in_place(&self, hash: u64) -> Result<bool> {
        let part = self.part(Part::Filter)?;
        let filter = stored::content(&part)
            .and_then(|bytes| filter_of(bytes, self.parts.footer.version))
            .map_err(|damage| self.damaged_part(damage, Part::Filter))?;
        Ok(!filter.may_contain(hash))
    }

    fn walk_to(&self, key: &[u8], trailer: Trailer) -> Result<usize> {
        let part = self.part(Part::Index)?;
        let block = stored::content(&part)
            .and_then(|bytes| Index::find_in_place(bytes, key, trailer))
            .map_err(|damage| self.damaged_part(damage, Part::Index))?;
        Ok(block.min(self.parts.index.len()))
    }

    /// A part that is not in memory, as stored and checked.
    fn part(&self, part: Part) -> Result<View> {
        let range = self.parts.footer.range(part);
        if let Some(lent) = &self.lent {
            return Ok(lent.view(range));
        }
        let place = self.parts.index.len() + usize::from(part == Part::Filter);
        if let Some(stored) = self.cached.as_ref().and_then(|cached| cached.get(place)) {
            return Ok(stored);
        }
        let stored = self.file.with(|file| file.view(range.clone()))?;
        stored::check(&stored, self.identity, range.start)
            .map_err(|damage| self.damaged_part(damage, part))?;
        if let Some(cached) = &self.cached {
            cached.insert(place, &stored);
        }
        Ok(stored)
    }
}
