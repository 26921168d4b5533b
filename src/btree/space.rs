//! The pages of the file that nobody uses, and those that will be free.
//!
//! A page that a checkpoint gives up is still read by the trees before it, as far as they are not older than the page. It becomes free
//! when the checkpoint is safe from power loss and the last of those trees is gone; until then it is *pending*. What has been taken
//! and given up since the last checkpoint is undone if the checkpoint fails.
//!
//! How old pages are is noted only while somebody reads a tree that is not the newest, and not of pages that were there before: those
//! count as old as can be. So a tree that is read for long keeps about what it has, however often all is written anew meanwhile.
//!
//! On disk the list of free pages has those that are pending too: after opening nobody reads the trees before.
//! ```text
//! list := runs, ascending
//! run  := pages between the last run's end and this one (varint), pages of the run - 1 (varint)
//! ```
//! Zeros may follow: no run is so near to the one before.
//!
//! Free pages are taken lowest first, so that data gathers at the file's front and its end can be cut off. Of runs of
//! several pages the first ones are looked at; if all are too short, the smallest one that is long enough is taken. While a part
//! of the file is being emptied, none is taken before where the file ended then.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use super::in_use::InUse;
use super::node::Pointer;
use crate::base::varint;
use crate::planted::{Bug, planted};

/// So many runs are looked at for one that is long enough.
const LOOKED_AT: usize = 64;

/// Pages that were given up. Trees from the version `born` on and below `version` read them.
#[derive(Clone, Copy)]
struct Given {
    page: u64,
    count: u64,
    born: u64,
    version: u64,
}

/// The versions that pages are of, while it is noted.
#[derive(Default)]
struct Births {
    /// The version before the first one that is noted; `None` while none is.
    before: Option<u64>,
    /// By page: how far behind that the first tree is that has it, or 0 if it may be older.
    of_pages: Vec<u32>,
}

impl Births {
    /// Whether to take note from now on, `version` being the newest tree.
    fn note(&mut self, is_needed: bool, version: u64) {
        match (is_needed, self.before) {
            (true, None) => self.before = Some(version),
            (false, Some(_)) => *self = Self::default(),
            _ => {}
        }
    }

    /// Pages are taken for the tree of `version`.
    fn add(&mut self, page: u64, count: u64, version: u64) {
        let Some(before) = self.before else { return };
        let (page, end) = (page as usize, (page + count) as usize);
        if self.of_pages.len() < end {
            self.of_pages.resize(end, 0);
        }
        // What does not fit counts as older than it is.
        let distance = u32::try_from(version - before).unwrap_or(u32::MAX);
        self.of_pages[page..end].fill(distance);
    }

    /// The first version that may have the first of `pages`, and of how many behind it that is so, too.
    fn of(&self, pages: Range<u64>) -> (u64, u64) {
        let distance = |page: u64| self.of_pages.get(page as usize).copied().unwrap_or(0);
        let count = pages.end - pages.start;
        let Some(before) = self.before else { return (0, count) };
        let first = distance(pages.start);
        let alike = pages.take_while(|&page| distance(page) == first).count() as u64;
        (if first > 0 { before + u64::from(first) } else { 0 }, alike)
    }
}

/// Which pages are free.
pub(super) struct Space {
    /// The pages of the file.
    end: u64,
    /// Before this page none is taken.
    floor: u64,
    /// Runs of free pages: first page, number of pages. No two touch.
    free: BTreeMap<u64, u64>,
    /// Those of several pages: number of pages, first page.
    by_len: BTreeSet<(u64, u64)>,
    /// By the version of the newest tree that was read and has them when that was looked at last; the largest number if it was not yet.
    pending: BTreeMap<u64, Vec<Given>>,
    births: Births,
    /// Taken since the last checkpoint: runs, and how many pages they have, which is asked with each change. Where free pages
    /// lie apart, each one is a run.
    taken: Vec<(u64, u64)>,
    taken_pages: u64,
    /// Where the file ended then.
    last_end: u64,
    /// Given up since then.
    given: Vec<Given>,
}

/// In place of the version of a tree: it has not been looked for.
const UNKNOWN: u64 = u64::MAX;

impl Space {
    /// A file of `end` pages, of which `free` are free.
    pub(super) fn new(end: u64, free: BTreeMap<u64, u64>) -> Self {
        let (taken, given, pending) = (Vec::new(), Vec::new(), BTreeMap::new());
        let several = free.iter().filter(|(_, count)| **count > 1);
        let by_len = several.map(|(&page, &count)| (count, page)).collect();
        Self {
            end,
            floor: 0,
            free,
            by_len,
            pending,
            births: Births::default(),
            taken,
            taken_pages: 0,
            last_end: end,
            given,
        }
    }

    /// From now on, takes no page before `floor`.
    pub(super) fn take_from(&mut self, floor: u64) {
        self.floor = floor;
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
        self.free() + self.will_be_free().map(|(_, count)| count).sum::<u64>()
    }

    /// The runs that are pending, and those given up since the last checkpoint.
    fn will_be_free(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.pending.values().flatten().chain(&self.given);
        all.map(|given| (given.page, given.count))
    }

    /// The pages that are neither: those of a tree that has just been made, and of the list that its checkpoint wrote.
    pub(super) fn in_use(&self) -> io::Result<InUse> {
        let free = self.free.iter().map(|(&page, &count)| (page, count));
        InUse::all_but(self.end, free.chain(self.will_be_free()))
    }

    /// Pages taken since the last checkpoint.
    pub(super) fn taken(&self) -> u64 {
        self.taken_pages
    }

    /// Takes `count` pages in a row for the tree of `version`; the file may have to grow for them.
    pub(super) fn take(&mut self, count: u64, version: u64) -> u64 {
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
                    Some((at, len)) if at + len == self.end && at >= self.floor => {
                        self.remove_run(at);
                        // It may be long enough, and not among those that were looked at.
                        if len > count {
                            self.insert_run(at + count, len - count);
                        }
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
        self.taken_pages += count;
        self.births.add(page, count, version);
        page
    }

    /// Where `count` free pages in a row are that would be taken next.
    pub(super) fn place(&self, count: u64) -> Option<u64> {
        let mut first = self.free.range(self.floor..).take(LOOKED_AT);
        let first = first.find(|(_, len)| **len >= count);
        let smallest = || {
            let mut runs = self.by_len.range((count, 0)..).take(LOOKED_AT);
            runs.find(|(_, page)| *page >= self.floor).map(|&(_, page)| page)
        };
        first.map(|(&page, _)| page).or_else(smallest)
    }

    /// Gives up `count` pages from `page` on, which the tree of `version` does without.
    pub(super) fn give(&mut self, page: u64, count: u64, version: u64) {
        if planted(Bug::ReusePagesEarly) {
            return self.free_run(page, count);
        }
        let (mut page, end) = (page, page + count);
        while page < end {
            let (born, count) = self.births.of(page..end);
            let follows = |last: &&mut Given| {
                last.page + last.count == page && (last.born, last.version) == (born, version)
            };
            match self.given.last_mut().filter(follows) {
                Some(last) => last.count += count,
                None => self.given.push(Given { page, count, born, version }),
            }
            page += count;
        }
    }

    /// Gives up all pages that are in use, but for `kept`, which the tree of `version` does without.
    pub(super) fn give_all(&mut self, kept: Option<(u64, u64)>, version: u64) {
        let free = self.free.iter().map(|(&page, &count)| (page, count));
        let mut unused: Vec<_> = free.chain(self.will_be_free()).chain(kept).collect();
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
        self.taken_pages = 0;
        self.last_end = self.end;
        if !self.given.is_empty() {
            self.pending.entry(UNKNOWN).or_default().append(&mut self.given);
        }
    }

    /// The checkpoint failed: all is as it was after the last one.
    pub(super) fn roll_back(&mut self) {
        self.given.clear();
        self.taken_pages = 0;
        for (page, count) in std::mem::take(&mut self.taken) {
            self.free_run(page, count);
        }
        if self.end < self.last_end {
            self.free_run(self.end, self.last_end - self.end);
        }
        self.cut_to(self.last_end);
    }

    /// Frees what no tree has that is still read: their versions are `read`, ascending, and the newest one that there is has
    /// `version`. Cost: what was pending for trees that are not read any more.
    pub(super) fn release(&mut self, read: &[u64], version: u64) {
        let gone = |kept_for: &u64| read.binary_search(kept_for).is_err();
        let gone: Vec<u64> = self.pending.keys().copied().filter(gone).collect();
        let kept_for_gone: Vec<_> =
            gone.iter().flat_map(|gone| self.pending.remove(gone).unwrap_or_default()).collect();
        for given in kept_for_gone {
            let before = read.partition_point(|&read| read < given.version);
            match read[..before].last() {
                Some(&newest) if newest >= given.born => {
                    self.pending.entry(newest).or_default().push(given);
                }
                _ => self.free_run(given.page, given.count),
            }
        }
        self.births.note(read.iter().any(|&read| read < version), version);
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
        let free = self.free.iter().map(|(&page, &count)| (page, count));
        let mut runs: Vec<_> = free.chain(self.will_be_free()).collect();
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
        /// The first tree that has it, if that was noted, and the first one that does without.
        Taken(u64),
        Given(u64, u64),
    }

    impl Use {
        fn is_taken(self) -> bool {
            matches!(self, Self::Taken(_))
        }
    }

    proptest! {
        /// No page is ever given out that is in use or that a tree reads which is held, and none is lost.
        #[test]
        fn no_page_is_lost_or_given_out_twice(steps in proptest::collection::vec((0u8..15, 1u64..5), 1..300)) {
            let mut space = Space::new(2, BTreeMap::new());
            let mut pages = vec![Use::Taken(0); 2];
            let mut saved = pages.clone();
            // The newest tree is read, and those that somebody holds.
            let (mut version, mut held, mut is_noted) = (1, Vec::new(), false);
            // How many pages were taken since the last checkpoint.
            let mut taken = 0;
            for (step, count) in steps {
                match step {
                    0..5 => {
                        let lowest = space.floor.min(space.end());
                        let page = space.take(count, version + 1);
                        taken += count;
                        prop_assert!(page >= lowest);
                        pages.resize(pages.len().max(space.end() as usize), Use::Free);
                        for page in page..page + count {
                            prop_assert_eq!(pages[page as usize], Use::Free);
                            pages[page as usize] = Use::Taken(if is_noted { version + 1 } else { 0 });
                        }
                    }
                    5..9 => {
                        // What the last checkpoint has is given up for the next one.
                        let is_there = |page: &usize| saved[*page].is_taken() && pages[*page].is_taken();
                        let found = (2..saved.len()).filter(is_there).nth(count as usize - 1);
                        if let Some(page) = found
                            && let Use::Taken(born) = pages[page]
                        {
                            space.give(page as u64, 1, version + 1);
                            pages[page] = Use::Given(born, version + 1);
                        }
                    }
                    9 | 10 => {
                        version += 1;
                        space.commit();
                        taken = 0;
                        let read: Vec<u64> = held.iter().copied().chain([version]).collect();
                        space.release(&read, version);
                        let has = |born: u64, end: u64| read.iter().any(|read| (born..end).contains(read));
                        is_noted &= !held.is_empty();
                        for page in &mut pages {
                            match *page {
                                Use::Given(born, end) if !has(born, end) => *page = Use::Free,
                                Use::Taken(_) if !is_noted => *page = Use::Taken(0),
                                _ => {}
                            }
                        }
                        is_noted = !held.is_empty();
                        saved = pages.clone();
                    }
                    11 => {
                        space.roll_back();
                        taken = 0;
                        pages = saved.clone();
                    }
                    14 => space.take_from((count - 1) * 7),
                    12 => match count {
                        1 => held.clear(),
                        2 => drop((!held.is_empty()).then(|| held.remove(0))),
                        _ if held.last() != Some(&version) => held.push(version),
                        _ => {}
                    },
                    _ => {
                        space.commit();
                        taken = 0;
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
                prop_assert_eq!(space.taken(), taken);
                let unused = pages.iter().filter(|page| !page.is_taken()).count() as u64;
                prop_assert_eq!(space.unused(), unused);
                let in_use = space.in_use().unwrap();
                let is_right = |(page, used): (usize, &Use)| in_use.has_all(page as u64, 1) == used.is_taken();
                prop_assert!(pages.iter().enumerate().all(is_right));
                let free = pages.iter().filter(|&&page| page == Use::Free).count() as u64;
                prop_assert_eq!(space.free(), free);
                let listed = Space::read_list(&space.list().unwrap(), space.end()).unwrap();
                let listed: Vec<_> =
                    listed.iter().flat_map(|(&page, &count)| page..page + count).collect();
                let expected: Vec<_> =
                    (0..pages.len() as u64).filter(|&page| !pages[page as usize].is_taken()).collect();
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

    /// A checkpoint asks with each of its changes how many pages it has taken. Were the runs added up each time, it would
    /// look at twenty thousand million of them here.
    #[test]
    fn pages_that_lie_apart_are_counted_as_they_are_taken() {
        const COUNT: u64 = 200_000;
        let apart = (1..=COUNT).map(|at| (2 * at, 1)).collect();
        let mut space = Space::new(2 * COUNT + 2, apart);
        for taken in 1..=COUNT {
            assert_eq!(space.take(1, 1), 2 * taken);
            assert_eq!(space.taken(), taken);
        }
        assert_eq!(space.taken.len() as u64, COUNT, "no two are neighbours");
        space.roll_back();
        assert_eq!((space.taken(), space.free()), (0, COUNT));
    }

    /// The last run may be long enough and yet not among those that are looked at.
    #[test]
    fn the_rest_of_the_last_run_stays_free() {
        let before = (0..LOOKED_AT as u64).map(|at| (10 + 3 * at, 2));
        let behind = (0..LOOKED_AT as u64).map(|at| (300 + 2 * at, 1));
        let free = before.chain(behind).chain([(430, 5)]).collect();
        let mut space = Space::new(435, free);
        space.take_from(300);
        let free = space.free();
        assert_eq!(space.place(2), None);
        assert_eq!(space.take(2, 1), 430);
        assert_eq!((space.free(), space.end()), (free - 2, 435));
        assert!(space.is_free(432) && !space.is_free(431));
        space.roll_back();
        assert_eq!((space.free(), space.end()), (free, 435));
    }
}
