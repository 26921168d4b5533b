//! Checking a whole tree: that every node and value is whole, that keys are in order and where the separators above
//! say, that every page is used once or free, and that the counts are right.

use std::io;
use std::iter::repeat_n;
use std::sync::Arc;

use super::ahead::Ahead;
use super::file::PageFile;
use super::meta::{Counts, Meta};
use super::node::{Inner, Leaf, Pointer, Stored};
use super::rewrite::overflow_pages;
use super::root::Root;
use super::space::Space;
use crate::base::room;
use crate::error::{Error, Result};
use crate::stats::VerifyReport;

/// The tree that is checked, and what the file says of it.
pub(super) struct Subject {
    pub(super) root: Arc<Root>,
    pub(super) meta: Meta,
    /// The list of pages that are free or will be; `None` if there can be no such list.
    pub(super) unused: Option<Vec<u8>>,
}

/// Which pages have been met.
struct Pages {
    bits: Vec<u64>,
    end: u64,
}

impl Pages {
    fn new(end: u64) -> io::Result<Self> {
        Ok(Self { bits: room::collected(repeat_n(0, end.div_ceil(64) as usize))?, end })
    }

    /// Takes note of `count` pages from `page` on; false if there are no such pages or one was met before.
    fn meet(&mut self, page: u64, count: u64) -> bool {
        let end = page.checked_add(count).filter(|&end| end <= self.end);
        end.is_some_and(|end| {
            (page..end).all(|page| {
                let word = &mut self.bits[page as usize / 64];
                let bit = 1 << (page % 64);
                let is_new = *word & bit == 0;
                *word |= bit;
                is_new
            })
        })
    }

    /// The first page that was not met.
    fn first_missing(&self) -> Option<u64> {
        (0..self.end).find(|&page| self.bits[page as usize / 64] >> (page % 64) & 1 == 0)
    }
}

struct Walk<'a> {
    root: &'a Root,
    file: &'a PageFile,
    pages: Pages,
    counts: Counts,
    ahead: Ahead,
}

/// Checks everything and adds it to the report.
pub(super) fn verify(subject: &Subject, report: &mut VerifyReport) {
    let Subject { root, meta, unused } = subject;
    report.files += 1;
    report.bytes += root.file.offset(meta.pages);
    let file = &*root.file;
    let pages = match Pages::new(meta.pages) {
        Ok(pages) => pages,
        Err(error) => {
            report.problems.push(file.unreadable(error));
            return;
        }
    };
    let (counts, ahead) = (Counts::default(), Ahead::default());
    let mut walk = Walk { root, file, pages, counts, ahead };
    walk.pages.meet(0, Pointer::FIRST_PAGE);
    let walked = walk.run(meta, unused.as_deref());
    report.entries += walk.counts.records;
    report.problems.extend(walked.err());
}

impl Walk<'_> {
    fn run(&mut self, meta: &Meta, unused: Option<&[u8]>) -> Result<()> {
        if let Some(top) = meta.top {
            self.node(top.at, top.level, &[], None)?;
        }
        if self.counts != meta.counts {
            let what =
                format!("the tree has {:?}, and its meta page says {:?}", self.counts, meta.counts);
            return Err(Error::corruption(self.file.path(), 0, what));
        }
        let impossible =
            || Error::corruption(self.file.path(), 0, "the list of free pages is damaged");
        if let Some(free) = meta.free {
            let at = Pointer::new(free.page, 1, meta.generation);
            self.root.overflow(at, free.len)?;
            self.meet(at, overflow_pages(free.len, self.file.page_size()))?;
        }
        let unused = unused.and_then(|unused| Space::read_list(unused, meta.pages));
        for (page, count) in unused.ok_or_else(impossible)? {
            self.meet(Pointer::new(page, 1, 0), count)?;
        }
        match self.pages.first_missing() {
            None => Ok(()),
            Some(page) => {
                let at = Pointer::new(page, 1, 0);
                Err(self.file.damaged(at, "the page is neither in the tree nor free"))
            }
        }
    }

    fn meet(&mut self, at: Pointer, count: u64) -> Result<()> {
        match self.pages.meet(at.page(), count) {
            true => Ok(()),
            false => Err(self.file.damaged(at, "the page is used twice, or not one of the tree's")),
        }
    }

    /// Checks the node of `level` at `at` and what is below it; its keys are to be from `lower` on and below `upper`.
    fn node(&mut self, at: Pointer, level: u8, lower: &[u8], upper: Option<&[u8]>) -> Result<()> {
        self.meet(at, at.pages())?;
        let node = self.root.node_of_file_between(at, level, lower, upper, &mut self.ahead)?;
        if level == 0 {
            self.counts.leaves += 1;
            return self.leaf(Leaf::new(&node));
        }
        self.counts.inner += 1;
        let inner = Inner::new(&node);
        let (mut from, mut to) = (lower.to_vec(), Vec::new());
        for index in 0..=inner.len() {
            let is_last = index == inner.len();
            let below = if is_last {
                upper
            } else {
                inner.separator_into(index, &mut to);
                Some(&to[..])
            };
            self.node(inner.child(index), level - 1, &from, below)?;
            std::mem::swap(&mut from, &mut to);
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: Leaf<'_>) -> Result<()> {
        for index in 0..leaf.len() {
            if let Stored::Overflow { at, len } = leaf.value(index) {
                let count = overflow_pages(len, self.file.page_size());
                self.meet(at, count)?;
                self.root.overflow(at, len)?;
                self.counts.overflow_pages += count;
            }
        }
        self.counts.records += leaf.len() as u64;
        Ok(())
    }
}
