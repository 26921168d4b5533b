//! Which pages of the file a tree has: a bit for each.
//!
//! Readers of a tree are given these and no others, whatever its pointers say. What a tree has is neither written to nor cut off while somebody
//! holds the tree; what it does not have may be at any moment.

use std::io;
use std::iter::repeat_n;
use std::ops::Range;

use crate::base::room;

/// Pages of the file that are in use.
#[derive(Default)]
pub(super) struct InUse {
    words: Box<[u64]>,
    end: u64,
}

impl InUse {
    /// All of `end` pages but those of the `unused` runs: first page, number of pages. An error if there is no memory for them: a file
    /// without contents may be of any length.
    pub(super) fn all_but(end: u64, unused: impl Iterator<Item = (u64, u64)>) -> io::Result<Self> {
        let mut words = room::collected(repeat_n(u64::MAX, end.div_ceil(64) as usize))?;
        let whole = words.len() as u64 * 64;
        for (page, count) in unused.chain([(end, whole - end)]) {
            clear(&mut words, page..page.saturating_add(count).min(whole));
        }
        Ok(Self { words: words.into(), end })
    }

    /// Behind the last page that there is.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    #[inline]
    fn has(&self, page: u64) -> bool {
        self.words.get(page as usize / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// Whether it has all of `count` pages from `page` on, at least one.
    #[inline]
    pub(super) fn has_all(&self, page: u64, count: u64) -> bool {
        self.has(page) && (count == 1 || (page + 1..page + count).all(|page| self.has(page)))
    }

    /// Where the first of `pages` is that it does not have; else their end.
    pub(super) fn first_missing(&self, pages: Range<u64>) -> u64 {
        pages.clone().find(|&page| !self.has(page)).unwrap_or(pages.end)
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// Clears the bits of `pages`, which there are.
fn clear(words: &mut [u64], pages: Range<u64>) {
    let mut page = pages.start;
    while page < pages.end {
        let next = (page / 64 + 1) * 64;
        let count = next.min(pages.end) - page;
        words[page as usize / 64] &= !(u64::MAX >> (64 - count) << (page % 64));
        page = next;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_has_what_is_in_no_run(
            end in 0u64..300,
            unused in proptest::collection::vec((0u64..400, 0u64..200), 0..4),
        ) {
            let in_use = InUse::all_but(end, unused.iter().copied()).unwrap();
            let is_in_use = |page: u64| {
                page < end && !unused.iter().any(|&(at, count)| (at..at + count).contains(&page))
            };
            for page in 0..700 {
                prop_assert_eq!(in_use.has_all(page, 1), is_in_use(page), "page {}", page);
                let missing = (page..700).find(|&page| !is_in_use(page)).unwrap_or(700);
                prop_assert_eq!(in_use.first_missing(page..700), missing);
                prop_assert_eq!(in_use.has_all(page, 65), missing - page >= 65);
            }
        }
    }

    #[test]
    fn numbers_that_no_file_has_are_no_pages() {
        let in_use = InUse::all_but(100, [(90, u64::MAX), (1 << 40, 1 << 20)].into_iter()).unwrap();
        assert!(in_use.has_all(2, 88) && !in_use.has_all(2, 89) && !in_use.has_all(2, 1 << 18));
        assert!(!in_use.has_all((1 << 40) - 1, 1));
        assert!(!InUse::default().has_all(0, 1));
        assert!(
            InUse::all_but(1 << 62, std::iter::empty()).is_err(),
            "there is not so much memory"
        );
    }
}
