//! Pointers to nodes and to overflow values.

/// Consecutive pages of the file, as a checkpoint wrote them.
///
/// ```text
/// bits 0..40   the first page
/// bits 40..48  how many follow it
/// bits 48..64  tag: the low bits of the generation that the pages were written with
/// ```
/// The tag finds out pages that were not written when they should have been: they still have what an earlier
/// checkpoint wrote there, with a checksum that is right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pointer(u64);

const PAGE_BITS: u32 = 40;
const COUNT_BITS: u32 = 8;

impl Pointer {
    /// The first page that a pointer may lead to: those before it belong to the file itself.
    pub(crate) const FIRST_PAGE: u64 = 2;
    /// There are fewer pages in a file.
    pub(crate) const MAX_PAGE: u64 = 1 << PAGE_BITS;
    /// The most pages one pointer can name.
    pub(crate) const MAX_PAGES: u64 = 1 << COUNT_BITS;

    /// A pointer to `pages` pages from `page` on, written by checkpoint `generation`.
    ///
    /// # Panics
    /// If there is no such pointer.
    pub(crate) fn new(page: u64, pages: u64, generation: u64) -> Self {
        assert!((1..=Self::MAX_PAGES).contains(&pages), "a pointer to {pages} pages");
        assert!(page < Self::MAX_PAGE, "page {page}");
        let bits = generation << (PAGE_BITS + COUNT_BITS) | (pages - 1) << PAGE_BITS | page;
        Self::from_bits(bits).expect("pages that a file can have")
    }

    /// A pointer read from a file; `None` if it leads to pages that cannot be a node's.
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let pointer = Self(bits);
        let end = pointer.page() + pointer.pages();
        (pointer.page() >= Self::FIRST_PAGE && end <= Self::MAX_PAGE).then_some(pointer)
    }

    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The first page.
    #[inline]
    pub(crate) fn page(self) -> u64 {
        self.0 & ((1 << PAGE_BITS) - 1)
    }

    /// How many pages, at least one.
    #[inline]
    pub(crate) fn pages(self) -> u64 {
        (self.0 >> PAGE_BITS & (Self::MAX_PAGES - 1)) + 1
    }

    /// Whether what was written by checkpoint `generation` is what it leads to.
    #[inline]
    pub(crate) fn is_of(self, generation: u64) -> bool {
        self.0 >> (PAGE_BITS + COUNT_BITS) == generation & 0xffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_impossible_pages_are_refused() {
        for (page, pages) in [(2, 1), (2, 1 << 8), ((1 << 40) - 1, 1), (123_456_789, 200)] {
            for generation in [0, 1, 0xffff, 0x1_0000, u64::MAX] {
                let pointer = Pointer::new(page, pages, generation);
                assert_eq!((pointer.page(), pointer.pages()), (page, pages));
                assert_eq!(Pointer::from_bits(pointer.bits()), Some(pointer));
                assert!(pointer.is_of(generation) && !pointer.is_of(generation.wrapping_add(1)));
            }
        }
        for bits in [0, 1, 1 << 40, 1 << 40 | 1, 2 << 40 | ((1 << 40) - 2), 1 << 48] {
            assert_eq!(Pointer::from_bits(bits), None, "{bits:#x}");
        }
    }
}
