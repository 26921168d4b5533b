//! The pages of the file that nobody uses, and those that will be free.
//!
//! A page that a checkpoint gives up is still read by the trees before it. It becomes free when the checkpoint is
//! safe from power loss and the last of those trees is gone; until then it is *pending*. What has been taken
//! and given up since the last checkpoint is undone if the checkpoint fails.
//!
//! On disk the list of free pages has those that are pending too: after opening nobody reads the trees before.
//! ```text
//! list := runs, ascending
//! run  := pages between the last run's end and this one (varint), pages of the run - 1 (varint)
//! ```
//! Zeros may follow: no run is so near to the one before.
//!
//! Free pages are taken lowest first, so that data gathers at the file's front and its end can be cut off. Of runs of
//! several pages the first ones are looked at; if all are too short, the smallest one that is long enough is taken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::node::Pointer;
use crate::base::varint;
use crate::planted::{Bug, planted};

/// So many runs are looked at for one that is long enough.
const LOOKED_AT: usize = 64;

/// Pages that were given up together.
struct Pending {
    /// Trees of versions below this one read them.
    version: u64,
    runs: Vec<(u64, u64)>,
}

/// Which pages are free.
pub(super) struct Space {
    /// The pages of the file.
    end: u64,
    /// Runs of free pages: first page, number of pages. No two touch.
    free: BTreeMap<u64, u64>,
    /// Those of several pages: number of pages, first page.
    by_len: BTreeSet<(u64, u64)>,
    pending: VecDeque<Pending>,
    /// Taken since the last checkpoint.
    taken: Vec<(u64, u64)>,
    /// Where the file ended then.
    last_end: u64,
    /// Given up since then, by the version of the tree that does without.
    given: Vec<Pending>,
}

impl Space {
    /// A file of `end` pages, of which `free` are free.
    pub(super) fn new(end: u64, free: BTreeMap<u64, u64>) -> Self {
        let (taken, given, pending) = (Vec::new(), Vec::new(), VecDeque::new());
        let several = free.iter().filter(|(_, count)| **count > 1);
        let by_len = several.map(|(&page, &count)| (count, page)).collect();
        Self { end, free, by_len, pending, taken, last_end: end, given }
    }

    /// The pages of the file.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// How many pages are free.
    pub(super) fn free(&self) -> u64 {
        self.free.values().sum()
    }

    pub(super) fn is_free(&self, page: u64) -> bool {
        let run = self.free.range(..=page).next_back();
        run.is_some_and(|(&at, &count)| page < at + count)
    }

    /// How many pages are free or will be.
    pub(super) fn unused(&self) -> u64 {
        let pending = self.pending.iter().chain(&self.given).flat_map(|pending| &pending.runs);
        self.free() + pending.map(|(_, count)| count).sum::<u64>()
    }

    /// Pages taken since the last checkpoint.
    pub(super) fn taken(&self) -> u64 {
        self.taken.iter().map(|(_, count)| count).sum()
    }

    /// Takes `count` pages in a row; the file may have to grow for them.
    pub(super) fn take(&mut self, count: u64) -> u64 {
        let page = match self.place(count) {
            Some(page) => {
                let len = self.remove_run(page);
                if len > count {
                    self.insert_run(page + count, len - count);
                }
                page
            }
            None => {
                // The last run may reach the end.
                let last = self.free.last_key_value().map(|(&at, &len)| (at, len));
                let page = match last {
                    Some((at, len)) if at + len == self.end => {
                        self.remove_run(at);
                        at
                    }
                    _ => self.end,
                };
                self.end = self.end.max(page + count);
                page
            }
        };
        match self.taken.last_mut() {
            Some((at, len)) if *at + *len == page => *len += count,
            _ => self.taken.push((page, count)),
        }
        page
    }

    /// Where `count` free pages in a row are that would be taken next.
    pub(super) fn place(&self, count: u64) -> Option<u64> {
        let first = self.free.iter().take(LOOKED_AT).find(|(_, len)| **len >= count);
        let smallest = || self.by_len.range((count, 0)..).next().map(|&(_, page)| page);
        first.map(|(&page, _)| page).or_else(smallest)
    }

    /// Gives up `count` pages from `page` on, which the tree of `version` does without.
    pub(super) fn give(&mut self, page: u64, count: u64, version: u64) {
        if planted(Bug::ReusePagesEarly) {
            return self.free_run(page, count);
        }
        if self.given.last().is_none_or(|given| given.version != version) {
            self.given.push(Pending { version, runs: Vec::new() });
        }
        let runs = &mut self.given.last_mut().expect("it was just pushed").runs;
        match runs.last_mut() {
            Some((at, len)) if *at + *len == page => *len += count,
            _ => runs.push((page, count)),
        }
    }

    /// Gives up all pages that are in use, but for `kept`, which the tree of `version` does without.
    pub(super) fn give_all(&mut self, kept: Option<(u64, u64)>, version: u64) {
        let pending = self.pending.iter().chain(&self.given).flat_map(|pending| &pending.runs);
        let free = self.free.iter().map(|(&page, &count)| (page, count));
        let mut unused: Vec<_> = free.chain(pending.copied()).chain(kept).collect();
        unused.push((self.end, 0));
        unused.sort_unstable();
        let mut at = Pointer::FIRST_PAGE;
        for (page, count) in unused {
            if page > at {
                self.give(at, page - at, version);
            }
            at = at.max(page + count);
        }
    }

    /// The checkpoint is safe: what was given up for it is free when its readers are gone.
    pub(super) fn commit(&mut self) {
        self.taken.clear();
        self.last_end = self.end;
        self.pending.extend(self.given.drain(..));
    }

    /// The checkpoint failed: all is as it was after the last one.
    pub(super) fn roll_back(&mut self) {
        self.given.clear();
        for (page, count) in std::mem::take(&mut self.taken) {
            self.free_run(page, count);
        }
        if self.end < self.last_end {
            self.free_run(self.end, self.last_end - self.end);
        }
        self.cut_to(self.last_end);
    }

    /// Frees what only trees of versions below `oldest` read, `oldest` being the oldest one that is still read.
    pub(super) fn release(&mut self, oldest: u64) {
        while self.pending.front().is_some_and(|pending| pending.version <= oldest) {
            let Some(pending) = self.pending.pop_front() else { return };
            pending.runs.into_iter().for_each(|(page, count)| self.free_run(page, count));
        }
    }

    /// How many free pages the file ends with.
    pub(super) fn free_at_end(&self) -> u64 {
        let last = self.free.last_key_value();
        last.filter(|(page, count)| **page + **count == self.end).map_or(0, |(_, &count)| count)
    }

    /// Takes the free pages at the end of the file out of it, with the next checkpoint.
    pub(super) fn cut_end(&mut self) {
        if let Some((&page, &count)) = self.free.last_key_value()
            && page + count == self.end
        {
            self.remove_run(page);
            self.end = page;
        }
    }

    /// The list of all that is free or pending; `None` if something is that twice, or is no page of the file: then the
    /// tree that it was given up by is damaged.
    pub(super) fn list(&self) -> Option<Vec<u8>> {
        let pending = self.pending.iter().chain(&self.given).flat_map(|pending| &pending.runs);
        let free = self.free.iter().map(|(&page, &count)| (page, count));
        let mut runs: Vec<_> = free.chain(pending.copied()).collect();
        runs.sort_unstable();
        let mut bytes = Vec::new();
        let (mut end, mut at) = (0, 0);
        while at < runs.len() {
            let (page, mut count) = runs[at];
            at += 1;
            while at < runs.len() && runs[at].0 == page + count {
                count += runs[at].1;
                at += 1;
            }
            varint::put(&mut bytes, page.checked_sub(end)?);
            varint::put(&mut bytes, count - 1);
            end = page + count;
        }
        (end <= self.end).then_some(bytes)
    }

    /// The runs of a list in a file of `end` pages; `None` if there can be no such list.
    pub(super) fn read_list(mut bytes: &[u8], end: u64) -> Option<BTreeMap<u64, u64>> {
        let mut runs = BTreeMap::new();
        let mut last = 0;
        while bytes.iter().any(|&byte| byte != 0) {
            let page = varint::take(&mut bytes)?.checked_add(last)?;
            let count = varint::take(&mut bytes)?.checked_add(1)?;
            let is_new = page >= Pointer::FIRST_PAGE && (page > last || last == 0);
            last = page.checked_add(count).filter(|&last| is_new && last <= end)?;
            runs.insert(page, count);
        }
        Some(runs)
    }

    fn free_run(&mut self, mut page: u64, mut count: u64) {
        if let Some((&at, &len)) = self.free.range(..page).next_back()
            && at + len == page
        {
            self.remove_run(at);
            (page, count) = (at, len + count);
        }
        count += self.remove_run(page + count);
        self.insert_run(page, count);
    }

    fn insert_run(&mut self, page: u64, count: u64) {
        self.free.insert(page, count);
        if count > 1 {
            self.by_len.insert((count, page));
        }
    }

    /// Takes out the run that begins with `page`; how many pages it has.
    fn remove_run(&mut self, page: u64) -> u64 {
        let Some(count) = self.free.remove(&page) else { return 0 };
        self.by_len.remove(&(count, page));
        count
    }

    /// Cuts the file off at `end`; behind it, all is free.
    fn cut_to(&mut self, end: u64) {
        if let Some((&page, &count)) = self.free.last_key_value()
            && page + count > end
        {
            self.remove_run(page);
            if page < end {
                self.insert_run(page, end - page);
            }
        }
        self.end = end;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is known of a page by somebody who keeps a list.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Use {
        Free,
        Taken,
        Given(u64),
    }

    proptest! {
        /// No page is ever given out that is in use or that an older tree reads, and none is lost.
        #[test]
        fn no_page_is_lost_or_given_out_twice(steps in proptest::collection::vec((0u8..12, 1u64..5), 1..300)) {
            let mut space = Space::new(2, BTreeMap::new());
            let mut pages = vec![Use::Taken; 2];
            let mut saved = pages.clone();
            let (mut version, mut oldest) = (1, 1);
            for (step, count) in steps {
                match step {
                    0..5 => {
                        let page = space.take(count);
                        pages.resize(pages.len().max(space.end() as usize), Use::Free);
                        for page in page..page + count {
                            prop_assert_eq!(pages[page as usize], Use::Free);
                            pages[page as usize] = Use::Taken;
                        }
                    }
                    5..9 => {
                        // What the last checkpoint has is given up for the next one.
                        let found = (2..saved.len()).find(|&page| {
                            saved[page] == Use::Taken && pages[page] == Use::Taken
                        });
                        if let Some(page) = found {
                            space.give(page as u64, 1, version + 1);
                            pages[page] = Use::Given(version + 1);
                        }
                    }
                    9 => {
                        version += 1;
                        space.commit();
                        if count > 2 {
                            oldest = version;
                        }
                        space.release(oldest);
                        for page in &mut pages {
                            if matches!(*page, Use::Given(version) if version <= oldest) {
                                *page = Use::Free;
                            }
                        }
                        saved = pages.clone();
                    }
                    10 => {
                        space.roll_back();
                        pages = saved.clone();
                    }
                    _ => {
                        space.commit();
                        version += 1;
                        let last = space.end();
                        space.cut_end();
                        if count > 3 {
                            space.roll_back();
                            prop_assert_eq!(space.end(), last);
                            saved = pages.clone();
                            continue;
                        }
                        space.commit();
                        while pages.last() == Some(&Use::Free) {
                            pages.pop();
                        }
                        saved = pages.clone();
                    }
                }
                prop_assert_eq!(space.end() as usize, pages.len());
                let unused = pages.iter().filter(|&&page| page != Use::Taken).count() as u64;
                prop_assert_eq!(space.unused(), unused);
                let listed = Space::read_list(&space.list().unwrap(), space.end()).unwrap();
                let listed: Vec<_> =
                    listed.iter().flat_map(|(&page, &count)| page..page + count).collect();
                let expected: Vec<_> =
                    (0..pages.len() as u64).filter(|&page| pages[page as usize] != Use::Taken).collect();
                prop_assert_eq!(listed, expected);
            }
        }

        #[test]
        fn hostile_lists_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..30), end in 2u64..1000) {
            if let Some(runs) = Space::read_list(&bytes, end) {
                let mut last = 0;
                for (page, count) in runs {
                    prop_assert!(page >= 2 && (page > last || last == 0) && page + count <= end);
                    last = page + count;
                }
            }
        }
    }
}
