//! Builds leaves; their bytes are drawn in [`node`](super).
//!
//! More records may be staged than a page has room for; the caller then takes nodes off the front:
//!
//! ```text
//! while !leaf.is_one_page() && let Some(at) = leaf.balance_point() {
//!     leaf.finish_split(at, out);
//! }
//! leaf.finish(out);
//! ```
//!
//! Each node made so has one page, or a single record that needs more.

use super::leaf::{LeafRecord, Stored};
use super::separator::shortest_separator;
use super::staging::Staging;
use crate::base::varint;
use crate::planted::{Bug, planted};

/// The records of a leaf being built. Its memory is used again for the next leaf.
#[derive(Debug)]
pub(crate) struct LeafBuilder {
    staging: Staging,
    /// The front of the record being pushed; kept for its memory.
    front: Vec<u8>,
}

impl LeafBuilder {
    /// A builder without records, for a file with pages of this size in bytes: a power of two from 4 to 64 KiB.
    pub(crate) fn new(page_size: usize) -> Self {
        Self { staging: Staging::new(page_size), front: Vec::new() }
    }

    /// How many records are staged.
    pub(crate) fn len(&self) -> usize {
        self.staging.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes a leaf of all records takes, or a few more. Cheap.
    pub(crate) fn used(&self) -> usize {
        self.staging.used()
    }

    /// Whether all records make a leaf of one page.
    pub(crate) fn is_one_page(&self) -> bool {
        self.staging.is_one_page()
    }

    /// Adds a record. Keys ascend strictly; a value that is longer than
    /// [`largest_inline`](super::largest_inline) should not be inline.
    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], value: Stored<'_>) {
        self.front.clear();
        varint::put(&mut self.front, LeafRecord::word(value));
        match value {
            Stored::Inline(bytes) => self.staging.push(&self.front, key, bytes),
            Stored::Overflow { at, .. } => {
                self.staging.push(&self.front, key, &at.bits().to_le_bytes());
            }
        }
    }

    /// Key `index` of those staged.
    pub(crate) fn key(&self, index: usize) -> &[u8] {
        self.staging.key(index)
    }

    /// The shortest separator between the first `at` records and the others; there must be both.
    pub(crate) fn separator(&self, at: usize) -> &[u8] {
        let (left, right) = (self.key(at - 1), self.key(at));
        &right[..shortest_separator(left, right)]
    }

    /// After how many records to [split](Self::finish_split), so that the two leaves take about the same, and the
    /// left one has one page or a single record. `None` if there are fewer than two records.
    pub(crate) fn balance_point(&self) -> Option<usize> {
        let most = self.len().checked_sub(1).filter(|&most| most > 0)?;
        Some(self.staging.balance_point(most))
    }

    /// The same, so that the left leaf is as full as one page can be.
    pub(crate) fn full_point(&self) -> Option<usize> {
        let most = self.len().checked_sub(1).filter(|&most| most > 0)?;
        Some(self.staging.full_point(most))
    }

    /// Appends a leaf of all records to `out`, which [`seal`](super::seal) makes fit for its place, and forgets
    /// them. Returns its number of pages.
    ///
    /// # Panics
    /// If they take more than 512 KiB, as records of one page and one more of any size never do.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> usize {
        self.finish_split(self.len(), out)
    }

    /// The same for the first `at` records only: the others stay.
    pub(crate) fn finish_split(&mut self, at: usize, out: &mut Vec<u8>) -> usize {
        let pages = self.staging.write(at, 0, 0, out);
        let lost = planted(Bug::SplitLosesRecord) && at + 1 < self.len();
        self.staging.remove_first(at + usize::from(lost));
        pages
    }
}
