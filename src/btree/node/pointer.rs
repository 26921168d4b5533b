//! Pointers to nodes and to overflow values.

/// Consecutive pages of the file: the number of the first one in the low 48 bits, how many follow it in the
/// high 16.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pointer(u64);

const PAGE_BITS: u32 = 48;

impl Pointer {
    /// The first page that a pointer may lead to: those before it belong to the file itself.
    pub(crate) const FIRST_PAGE: u64 = 2;
    /// The most pages one pointer can name.
    pub(crate) const MAX_PAGES: u64 = 1 << (u64::BITS - PAGE_BITS);

    /// A pointer to `pages` pages from `page` on.
    ///
    /// # Panics
    /// If there is no such pointer.
    pub(crate) fn new(page: u64, pages: u64) -> Self {
        assert!((1..=Self::MAX_PAGES).contains(&pages), "a pointer to {pages} pages");
        assert!(page < 1 << PAGE_BITS, "page {page}");
        let bits = (pages - 1) << PAGE_BITS | page;
        Self::from_bits(bits).expect("pages that a file can have")
    }

    /// A pointer read from a file; `None` if it leads to pages that cannot be a node's.
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let pointer = Self(bits);
        let end = pointer.page() + pointer.pages();
        (pointer.page() >= Self::FIRST_PAGE && end <= 1 << PAGE_BITS).then_some(pointer)
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
        (self.0 >> PAGE_BITS) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_impossible_pages_are_refused() {
        for (page, pages) in [(2, 1), (2, 1 << 16), ((1 << 48) - 1, 1), (123_456_789, 300)] {
            let pointer = Pointer::new(page, pages);
            assert_eq!((pointer.page(), pointer.pages()), (page, pages));
            assert_eq!(Pointer::from_bits(pointer.bits()), Some(pointer));
        }
        for bits in [0, 1, 1 << 48, (1 << 48 | 1), (2 << 48) - 1, u64::MAX] {
            assert_eq!(Pointer::from_bits(bits), None, "{bits:#x}");
        }
    }
}
