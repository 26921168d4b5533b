//! Entries in order: a skip list (Pugh, *Skip Lists: A Probabilistic Alternative to Balanced Trees*, 1990), which one
//! thread extends while any number read it.
//!
//! A node is an entry; the links of its levels are its tower, which lies between its header and its key, so that a search
//! meets one line of memory for each node that it goes to. Before the first entry stands a *head*, a tower as high as the
//! list has levels. A link has the first bytes of the key that it leads to:
//!
//! ```text
//! link := first four bytes of the key, as a number that orders like them (32 bits), place of the entry (32 bits)
//!         or all ones: there is no further entry in this level
//! ```
//! So a search looks at an entry only if it goes there, or if those bytes are the same as its own. Most links lead too far:
//! their entries stay untouched.
//!
//! A list whose keys are known to begin alike can skip so many bytes. It compares, and takes the bytes for its links from,
//! what comes behind them, and only then the bytes skipped. Among keys that begin alike that is the order of keys.
//!
//! A *splice* is where the last entry went in, in all levels. If the next one comes right behind, as ascending keys do, it
//! needs no search, and otherwise one from the level on in which they are still neighbours.
//!
//! Thread safety: one writer at a time, which callers see to. An entry is complete, with the links of its tower, before
//! release stores in the towers before it, from the lowest level up; readers load links with acquire. No link is taken
//! away, so a reader that has come to an entry finds all those behind it.

use std::cmp::Ordering as Order;

use super::arena::{Arena, Pen, Place};
use super::cursor::Way;
use super::entry::{Draft, Entry, Links, New};
use super::sync::{AtomicU64, Ordering};
use crate::base::Trailer;
use crate::base::key::head;
use crate::base::prefetch::prefetch_at;
use crate::base::rng::Rng;

/// The most levels of a list. Of the entries in a level, every other one is in the next too: a search goes to fewer entries than
/// with one in four, and each of them is a cache miss.
pub(super) const LEVELS: usize = if cfg!(loom) { 2 } else { 20 };
/// What the processor reads at once.
const LINE: usize = 64;

/// Where an entry lies, and how its key begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link(u64);

impl Link {
    /// To nothing. What comes before all entries is also found by this.
    pub(super) const NONE: Self = Self(u64::MAX);

    fn new(head: u32, place: Place) -> Self {
        Self(u64::from(head) << 32 | u64::from(place))
    }

    fn head(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn place(self) -> Option<Place> {
        (self != Self::NONE).then_some(self.0 as Place)
    }

    /// As it stands in a tower.
    pub(super) fn word(self) -> u64 {
        self.0
    }
}

/// What is searched for.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    head: u32,
    key: &'a [u8],
    trailer: Trailer,
}

/// In each level, the last entry before the one that came last, or that one itself, and the next one.
#[derive(Debug)]
pub(super) struct Splice {
    is_known: bool,
    before: [Link; LEVELS],
    behind: [Link; LEVELS],
}

impl Splice {
    /// It is not known where the last entry went in.
    pub(super) fn unknown() -> Self {
        Self { is_known: false, before: [Link::NONE; LEVELS], behind: [Link::NONE; LEVELS] }
    }
}

/// How many levels a new entry is in.
#[inline]
pub(super) fn height(rng: &mut Rng) -> usize {
    (1 + rng.next().trailing_zeros() as usize).min(LEVELS)
}

/// A list, as it is looked at.
#[derive(Clone, Copy)]
pub(super) struct List<'a> {
    pub(super) entries: &'a Arena,
    /// The first links of the levels, [`LEVELS`] at most.
    pub(super) head: &'a [AtomicU64],
    /// So many bytes of a key are compared last.
    pub(super) skip: usize,
}

impl<'a> List<'a> {
    #[inline]
    pub(super) fn target<'t>(&self, key: &'t [u8], trailer: Trailer) -> Target<'t> {
        Target { head: (head(behind(self.skip, key)) >> 32) as u32, key, trailer }
    }

    // ---- reading ----

    /// The first entry that is not before the target.
    #[inline]
    pub(super) fn not_before(&self, target: Target<'_>) -> Option<(Link, Entry<'a>)> {
        let mut found = Link::NONE;
        let start = (Link::NONE, self.head.len());
        self.descend(start, |link| self.is_before(link, target), |_, _, behind| found = behind);
        self.at(found)
    }

    /// The last entry before the target.
    pub(super) fn before(&self, target: Target<'_>) -> Option<(Link, Entry<'a>)> {
        self.last_that(|link| self.is_before(link, target))
    }

    pub(super) fn first(&self) -> Option<(Link, Entry<'a>)> {
        self.at(self.next(Link::NONE, 0))
    }

    pub(super) fn last(&self) -> Option<(Link, Entry<'a>)> {
        self.last_that(|link| link != Link::NONE)
    }

    /// The entry behind the one that `link` leads to.
    #[inline]
    fn after(&self, link: Link) -> Option<(Link, Entry<'a>)> {
        let next = self.at(self.next(link, 0))?;
        if let Some((_, ahead)) = self.at(self.next(next.0, 0)) {
            prefetch_at(ahead.start());
            prefetch_at(ahead.start().wrapping_add(LINE));
        }
        Some(next)
    }

    /// The entry beside the one that `link` leads to. Backward it is searched for.
    #[inline]
    pub(super) fn beside(&self, link: Link, way: Way) -> Option<(Link, Entry<'a>)> {
        match way {
            Way::Forward => self.after(link),
            Way::Backward => {
                let here = self.entry(link);
                self.before(self.target(here.key(), here.trailer()))
            }
        }
    }

    /// The entry that `link` leads to.
    #[inline]
    pub(super) fn entry(&self, link: Link) -> Entry<'a> {
        self.at(link).expect("the link leads to an entry").1
    }

    fn last_that(&self, is_before: impl Fn(Link) -> bool) -> Option<(Link, Entry<'a>)> {
        let mut found = Link::NONE;
        let start = (Link::NONE, self.head.len());
        self.descend(start, is_before, |_, before, _| found = before);
        self.at(found)
    }

    /// Goes down from a place in a level to the lowest one, along what `is_before` holds for. `note` is told, for each
    /// level below the first, where the search leaves it: behind which entry, and in front of which.
    #[inline]
    fn descend(
        &self,
        (mut before, level): (Link, usize),
        is_before: impl Fn(Link) -> bool,
        mut note: impl FnMut(usize, Link, Link),
    ) {
        let mut tower = self.tower(before);
        let mut behind = Link::NONE;
        for level in (0..level).rev() {
            loop {
                let link = Link(tower[level].load(Ordering::Acquire));
                // The level above led to the same one.
                if link == behind || !is_before(link) {
                    behind = link;
                    break;
                }
                tower = self.tower(link);
                before = link;
            }
            note(level, before, behind);
        }
    }

    #[inline]
    fn next(&self, link: Link, level: usize) -> Link {
        Link(self.tower(link)[level].load(Ordering::Acquire))
    }

    #[inline]
    fn is_before(&self, link: Link, target: Target<'_>) -> bool {
        match link.head().cmp(&target.head) {
            Order::Less => true,
            Order::Greater => false,
            Order::Equal => self.at(link).is_some_and(|(_, entry)| {
                let keys = self.compare_keys(entry.key(), target.key);
                keys.then_with(|| target.trailer.cmp(&entry.trailer())) == Order::Less
            }),
        }
    }

    #[inline]
    fn compare_keys(&self, a: &[u8], b: &[u8]) -> Order {
        if self.skip == 0 {
            return a.cmp(b);
        }
        behind(self.skip, a).cmp(behind(self.skip, b)).then_with(|| a.cmp(b))
    }

    #[inline]
    fn at(&self, link: Link) -> Option<(Link, Entry<'a>)> {
        // SAFETY: links come from towers, loaded with acquire; their entries were complete before they were stored.
        link.place().map(|place| (link, unsafe { Entry::at(self.entries, place) }))
    }

    /// The tower of the entry that `link` leads to, or the head.
    #[inline]
    fn tower(&self, link: Link) -> &'a [AtomicU64] {
        self.at(link).map_or(self.head, |(_, entry)| entry.tower())
    }

    // ---- writing ----

    /// Adds an entry in the lowest `height` levels, as far as the list has them. If a splice is known, it is the one of the
    /// last entry that was added.
    #[inline]
    pub(super) fn insert(&self, pen: &mut Pen, splice: &mut Splice, height: usize, new: New<'_>) {
        let target = self.target(new.key, new.trailer);
        self.find(target, splice);
        let height = height.min(self.head.len());
        let tower: [u64; LEVELS] = splice.behind.map(Link::word);
        let draft = Draft::new(self.entries, pen, &tower[..height], new);
        let link = Link::new(target.head, draft.finish(pen, Links::None));
        for (level, before) in splice.before[..height].iter_mut().enumerate() {
            self.tower(*before)[level].store(link.word(), Ordering::Release);
            *before = link;
        }
    }

    /// Moves the splice to the target.
    #[inline]
    fn find(&self, target: Target<'_>, splice: &mut Splice) {
        let fits = |&level: &usize| {
            let (before, behind) = (splice.before[level], splice.behind[level]);
            (before == Link::NONE || self.is_before(before, target))
                && !self.is_before(behind, target)
        };
        let levels = self.head.len();
        let level = (0..levels).find(|level| splice.is_known && fits(level)).unwrap_or(levels);
        let before = if level < levels { splice.before[level] } else { Link::NONE };
        self.descend(
            (before, level),
            |link| self.is_before(link, target),
            |level, before, behind| {
                splice.before[level] = before;
                splice.behind[level] = behind;
            },
        );
        splice.is_known = true;
    }
}

/// What comes behind the bytes of `key` that are skipped.
#[inline]
fn behind(skip: usize, key: &[u8]) -> &[u8] {
    &key[skip.min(key.len())..]
}
