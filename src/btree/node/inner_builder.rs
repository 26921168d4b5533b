//! Builds inner nodes; their bytes are drawn in [`node`](super).
//!
//! As in a [`LeafBuilder`](super::LeafBuilder), more may be staged than a page has room for. Where a node is split,
//! a separator moves up to the parent:
//!
//! ```text
//! while !inner.is_one_page() && let Some(at) = inner.balance_point() {
//!     inner.finish_split(at, out, separator);
//! }
//! inner.finish(out);
//! ```
//!
//! Each node made so has one page, or no more than two separators, which need more.

use super::Pointer;
use super::staging::Staging;

/// The children of an inner node being built, and what separates them. Its memory is used again for the next node.
#[derive(Debug)]
pub(crate) struct InnerBuilder {
    staging: Staging,
    level: u8,
    /// The child left of the first separator.
    low: Option<Pointer>,
}

impl InnerBuilder {
    /// A builder without children for nodes of this level, at least 1, for a file with pages of this size in
    /// bytes: a power of two from 4 to 64 KiB.
    pub(crate) fn new(page_size: usize, level: u8) -> Self {
        debug_assert_ne!(level, 0, "level 0 is that of leaves");
        Self { staging: Staging::new(page_size), level, low: None }
    }

    /// How many separators are staged.
    pub(crate) fn len(&self) -> usize {
        self.staging.len()
    }

    /// How many children are staged: none, or one more than separators.
    pub(crate) fn children(&self) -> usize {
        self.len() + usize::from(self.low.is_some())
    }

    /// Child `index` of those staged, counted from the left.
    pub(crate) fn child(&self, index: usize) -> Pointer {
        let child = match index {
            0 => self.low,
            _ => self.child_of(index - 1),
        };
        child.expect("a staged child")
    }

    /// The child right of separator `index`.
    fn child_of(&self, index: usize) -> Option<Pointer> {
        let front = self.staging.front(index).try_into().ok()?;
        Pointer::from_bits(u64::from_le_bytes(front))
    }

    /// Separator `index` of those staged.
    pub(crate) fn separator(&self, index: usize) -> &[u8] {
        self.staging.key(index)
    }

    /// Forgets all children.
    pub(crate) fn clear(&mut self) {
        self.staging.clear();
        self.low = None;
    }

    /// The bytes a node of all children takes, or a few more. Cheap.
    pub(crate) fn used(&self) -> usize {
        self.staging.used()
    }

    /// Whether all children make a node of one page.
    pub(crate) fn is_one_page(&self) -> bool {
        self.staging.is_one_page()
    }

    /// Adds the first child.
    pub(crate) fn push_first(&mut self, child: Pointer) {
        debug_assert_eq!(self.children(), 0, "only the first child has no separator");
        self.low = Some(child);
    }

    /// Adds a child that is not the first, and the separator left of it. Separators ascend strictly.
    pub(crate) fn push(&mut self, separator: &[u8], child: Pointer) {
        debug_assert!(self.low.is_some(), "the first child has no separator");
        self.staging.push(&child.bits().to_le_bytes(), separator, &[]);
    }

    /// Which separator moves up in a [split](Self::finish_split), so that the two nodes take about the same, and
    /// the left one has one page or a single separator. `None` if there are fewer than three separators: each
    /// node keeps at least one.
    pub(crate) fn balance_point(&self) -> Option<usize> {
        let most = self.len().checked_sub(2).filter(|&most| most > 0)?;
        Some(self.staging.balance_point(most))
    }

    /// The same, so that the left node is as full as one page can be.
    pub(crate) fn full_point(&self) -> Option<usize> {
        let most = self.len().checked_sub(2).filter(|&most| most > 0)?;
        Some(self.staging.full_point(most))
    }

    /// Appends a node of all children, at least one, to `out`, which [`seal`](super::seal) makes fit for its
    /// place, and forgets them. Returns its number of pages.
    ///
    /// # Panics
    /// If they take more than 512 KiB, as separators of one page and one more of any size never do; or if there
    /// is no child.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) -> usize {
        let pages = self.write(self.len(), out);
        self.clear();
        pages
    }

    /// The same for the children left of separator `at`, which is put into `separator`, in place of what is there:
    /// it moves up. The children right of it stay.
    pub(crate) fn finish_split(
        &mut self,
        at: usize,
        out: &mut Vec<u8>,
        separator: &mut Vec<u8>,
    ) -> usize {
        let pages = self.write(at, out);
        separator.clear();
        separator.extend_from_slice(self.separator(at));
        self.low = self.child_of(at);
        self.staging.remove_first(at + 1);
        pages
    }

    fn write(&self, separators: usize, out: &mut Vec<u8>) -> usize {
        let low = self.low.expect("an inner node has a child").bits();
        self.staging.write(separators, self.level, low, out)
    }
}
