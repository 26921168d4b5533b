//! The right to read or write pages that are in no frame, and to put them into frames.
//!
//! Whoever misses a page claims it, together with the missing pages behind it that it wants too. Others that
//! miss one of them wait for the claim's flight. When the claim is dropped, its pages are published or
//! missing again, its unused frames are free, and the flight lands.
//!
//! Thread safety: a claim belongs to one thread.

use std::ops::Range;
use std::sync::Arc;

use super::backing::Backing;
use super::flight::Flight;
use super::frames::{Blank, Pin};
use super::policy::Victim;
use super::{Key, PageCache};

/// How many write-backs one search for frames makes beyond one for each frame, when others dirty pages as fast.
const MORE_WRITE_BACKS: usize = 16;

/// What came of wanting to claim a page.
pub(super) enum Claimed<'a> {
    /// It is in a frame: look again.
    Present,
    /// Somebody else claimed it.
    Elsewhere(Arc<Flight>),
    Mine(Claim<'a>),
}

/// A run of claimed pages.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    cache: &'a PageCache,
    file: u64,
    pages: Range<u64>,
    flight: Arc<Flight>,
    blanks: Vec<Blank<'a>>,
}

impl PageCache {
    /// Claims the first of `pages`, and those behind it up to one that is not missing.
    pub(super) fn claim(&self, file: u64, pages: Range<u64>) -> Claimed<'_> {
        let mut directory = self.directory();
        let flight = Arc::new(Flight::default());
        let mut end = pages.start;
        while end < pages.end {
            let key = Key { file, page: end };
            if self.table.find(&self.frames, key).is_some() {
                break;
            }
            if let Some(other) = directory.flights.get(&key) {
                if end == pages.start {
                    return Claimed::Elsewhere(Arc::clone(other));
                }
                break;
            }
            directory.flights.insert(key, Arc::clone(&flight));
            end += 1;
        }
        if end == pages.start {
            return Claimed::Present;
        }
        let pages = pages.start..end;
        Claimed::Mine(Claim { cache: self, file, pages, flight, blanks: Vec::new() })
    }
}

impl<'a> Claim<'a> {
    pub(super) fn pages(&self) -> Range<u64> {
        self.pages.clone()
    }

    /// Gets frames for the claimed pages, or for as many of the first of them as there are frames that
    /// nobody uses. Writes dirty pages back where it must. One that cannot be written back stays, and is no concern of who
    /// wants a frame: the error is for those who flush its file.
    pub(super) fn reserve(&mut self) {
        let wanted = (self.pages.end - self.pages.start) as usize;
        let mut write_backs = wanted + MORE_WRITE_BACKS;
        let mut directory = self.cache.directory();
        while self.blanks.len() < wanted {
            match directory.policy.victim(&self.cache.frames, &self.cache.table) {
                Victim::Blank { blank, evicted } => {
                    directory.evictions += u64::from(evicted);
                    self.blanks.push(blank);
                }
                Victim::Dirty(key) if write_backs > 0 => {
                    write_backs -= 1;
                    let backing = directory.files.get(&key.file).map(Arc::clone);
                    drop(directory);
                    let write_back =
                        |backing: Arc<Backing>| backing.write_back_around(self.cache, key.page);
                    let written = backing.map_or(Ok(()), write_back);
                    directory = self.cache.directory();
                    if let Err(error) = written {
                        log::debug!(
                            "a page stays in the cache, as it cannot be written back: {error}"
                        );
                        // More of them would fail, too: whatever is clean will do.
                        write_backs = 0;
                        directory.policy.pass_over(&self.cache.frames, &self.cache.table, key);
                    }
                }
                Victim::Dirty(_) | Victim::None => break,
            }
        }
    }

    /// The frames that were got, in the order of the pages they are for.
    pub(super) fn blanks(&mut self) -> &mut [Blank<'a>] {
        &mut self.blanks
    }

    /// Puts the pages into the frames, which were filled, and lets everybody see them.
    pub(super) fn publish(&mut self, is_dirty: bool) -> Vec<Pin<'a>> {
        let cache = self.cache;
        let mut directory = cache.directory();
        let publish = |(blank, page): (Blank<'a>, u64)| {
            let (index, key) = (blank.index(), Key { file: self.file, page });
            let pin = blank.publish(key, is_dirty);
            cache.table.insert(&cache.frames, index, key);
            directory.policy.admit(index, key);
            pin
        };
        self.blanks.drain(..).zip(self.pages.clone()).map(publish).collect()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut directory = self.cache.directory();
        for blank in self.blanks.drain(..) {
            directory.policy.free(blank.give_back());
        }
        for page in self.pages.clone() {
            directory.flights.remove(&Key { file: self.file, page });
        }
        drop(directory);
        self.flight.land();
    }
}
