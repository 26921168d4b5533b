//! Reading ahead: leaves that are read one behind the other, and lie so in the file, are read in runs of pages.
//!
//! A checkpoint writes leaves in key order to the lowest free pages, so most neighbours are neighbours in the file, too. A
//! second leaf in a row begins a run.

use super::file::PageFile;
use super::in_use::InUse;
use super::node::Pointer;
use crate::base::View;
use crate::error::Result;

/// Bytes of a run.
const RUN: u64 = 64 << 10;

/// What one walk over leaves has read ahead.
#[derive(Default)]
pub(super) struct Ahead {
    /// The page behind the leaf that was read last.
    next: u64,
    /// The first page of a run, and its bytes.
    run: Option<(u64, View)>,
}

impl Ahead {
    /// The bytes of the leaf at `at`, not yet checked, of a tree that has `pages`.
    pub(super) fn read(&mut self, file: &PageFile, at: Pointer, pages: &InUse) -> Result<View> {
        let follows = at.page() == self.next;
        self.next = at.page() + at.pages();
        if let Some(bytes) = self.held(file, at) {
            return Ok(bytes);
        }
        let last = (at.page() + RUN / file.page_size() as u64).min(pages.end());
        if follows && last > at.page() + at.pages() {
            // What lies behind the leaf may not be readable, and need not be.
            self.run = file.read_pages(at.page()..last).ok().map(|run| (at.page(), run));
            if let Some(bytes) = self.held(file, at) {
                return Ok(bytes);
            }
        }
        file.read(at)
    }

    /// The bytes of the leaf at `at`, if they are in the run.
    fn held(&self, file: &PageFile, at: Pointer) -> Option<View> {
        let (first, run) = self.run.as_ref()?;
        let start = at.page().checked_sub(*first)? as usize * file.page_size();
        let end = start + at.pages() as usize * file.page_size();
        (end <= run.len()).then(|| run.slice(start..end))
    }
}
