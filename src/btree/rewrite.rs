//! Making the next tree: the nodes on the way to what changes are written anew, all others are shared.
//!
//! 1. The changes come in key order, and so the tree is walked from left to right. A subtree that no change concerns
//!    stays as it is.
//! 2. The records of a leaf that is concerned are merged with its changes into the builder of level 0, those of an
//!    inner node (its children, old and new) into the builder of its level.
//! 3. At the end of an old node its builder is cut: what it holds becomes nodes, whose pointers go to the builder of
//!    the level above. If there is less than a quarter of a page, or the next node is rewritten anyhow, the
//!    builder goes on with the next node of the same parent instead: so small nodes are merged, and where
//!    much changes, nodes are filled.
//! 4. What does not fit one page is split in the middle; at the right edge of the tree, and where the walk goes on
//!    with the next node, it is split where a page is full: ascending loads give full nodes.
//! 5. A walk may end early, when it has taken so many pages. What it leaves is a tree with some of the changes.
//!
//! A tree that others have written is not trusted: the keys of each node must be between the separators above it, and
//! so no walk is longer than the tree has nodes.
//!
//! New nodes are written in the order of their pages, in large pieces.

use std::ops::Range;

use super::ahead::Ahead;
use super::changes::Changes;
use super::file::{Node, OVERFLOW_HEADER, PageFile};
use super::meta::{Counts, Top};
use super::node::{Inner, InnerBuilder, Leaf, LeafBuilder, Pointer, Stored, largest_inline, seal};
use super::root::Root;
use super::space::Space;
use crate::base::checksum;
use crate::error::{Error, Result};
use crate::iter::EntryCursor;
use crate::sync::much;

/// A node with less than this share of a page is merged with its neighbour.
const SMALL: usize = 4;
/// Bytes of new nodes that are gathered before they are written.
const GATHERED: usize = 1 << 20;
/// The file grows by so many whole pages more than are needed, in bytes, the second in simulations, or by the 32nd part of what it is.
const GROWTH: (u64, u64) = (if cfg!(test) { 64 << 10 } else { 1 << 20 }, 16 << 10);
const GROWTH_SHARE: u64 = 32;

/// What makes a walk rewrite leaves.
pub(super) enum Source<'a, C> {
    /// Changes of a memtable.
    Changes(&'a mut Changes<C>),
    /// Leaves are rewritten as they are.
    Leaves {
        /// Those behind this key. Afterwards: up to where; `None` if to the end.
        from: &'a mut Option<Vec<u8>>,
        which: &'a Which,
    },
}

impl<C> Source<'_, C> {
    /// No page is to be taken before this one.
    pub(super) fn floor(&self) -> u64 {
        match self {
            Self::Leaves { which: Which::In { end, .. }, .. } => *end,
            _ => 0,
        }
    }
}

/// Which leaves are rewritten, and which values of pages of their own with them.
pub(super) enum Which {
    /// All leaves, and no such values.
    All,
    /// Those of which a part is not in the first so many pages of the file; values only if there is room for them further
    /// in front.
    Behind(u64),
    /// Those of which a part is in these pages, but for what has more pages than these: to where the file ends, or behind that.
    In { pages: Range<u64>, end: u64 },
}

impl Which {
    /// Whether what has `count` pages from `at` on is rewritten for where it lies.
    fn has(&self, at: u64, count: u64) -> bool {
        match self {
            Self::All => false,
            Self::Behind(behind) => at + count > *behind,
            Self::In { pages: Range { start, end }, .. } => {
                at < *end && at + count > *start && count <= end - start
            }
        }
    }
}

/// The pages of the file, as they are taken and written.
pub(super) struct Pages<'a> {
    pub(super) file: &'a PageFile,
    pub(super) space: &'a mut Space,
    /// Pages that have been reserved on disk.
    pub(super) reserved: &'a mut u64,
    pub(super) generation: u64,
    /// The version of the tree that is being made.
    pub(super) version: u64,
    gathered: Vec<(u64, Vec<u8>)>,
    gathered_bytes: usize,
}

impl<'a> Pages<'a> {
    pub(super) fn new(
        file: &'a PageFile,
        space: &'a mut Space,
        reserved: &'a mut u64,
        generation: u64,
        version: u64,
    ) -> Self {
        let gathered = Vec::new();
        Self { file, space, reserved, generation, version, gathered, gathered_bytes: 0 }
    }

    /// Takes pages for a node, makes it fit for them, and has it written soon.
    fn add_node(&mut self, mut bytes: Vec<u8>, pages: usize, is_inner: bool) -> Result<Pointer> {
        let page = self.space.take(pages as u64, self.version);
        seal(&mut bytes, self.file.identity(), self.file.offset(page), self.generation);
        let at = Pointer::new(page, pages as u64, self.generation);
        self.file.forget(page, pages as u64);
        if is_inner && !self.file.file.lends() {
            // It is going to be needed.
            self.file.keep(at, &bytes);
        }
        self.gathered_bytes += bytes.len();
        self.gathered.push((page, bytes));
        if self.gathered_bytes >= GATHERED {
            self.write()?;
        }
        Ok(at)
    }

    /// Writes an overflow value, or a list of free pages; gives where it is.
    pub(super) fn add_overflow(&mut self, value: &[u8]) -> Result<Pointer> {
        let count = overflow_pages(value.len() as u64, self.file.page_size());
        let page = self.space.take(count, self.version);
        self.write_overflow(page, count, value)?;
        Ok(Pointer::new(page, 1, self.generation))
    }

    /// The same into pages that have been taken.
    pub(super) fn write_overflow(&mut self, page: u64, count: u64, value: &[u8]) -> Result<()> {
        let offset = self.file.offset(page);
        let mut bytes = vec![0; count as usize * self.file.page_size()];
        bytes[8..16].copy_from_slice(&self.generation.to_le_bytes());
        bytes[OVERFLOW_HEADER..][..value.len()].copy_from_slice(value);
        let end = OVERFLOW_HEADER + value.len();
        let sum = checksum::bound(self.file.identity(), offset, &bytes[4..end]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        self.file.forget(page, count);
        self.reserve()?;
        self.file.out.write_at(offset, &bytes)
    }

    /// Gives up the pages of a node.
    fn give_node(&mut self, at: Pointer) {
        self.space.give(at.page(), at.pages(), self.version);
    }

    /// Gives up the pages of an overflow value of `len` bytes; gives how many they are.
    pub(super) fn give_overflow(&mut self, at: Pointer, len: u64) -> u64 {
        let count = overflow_pages(len, self.file.page_size());
        self.space.give(at.page(), count, self.version);
        count
    }

    /// Reserves room on disk for all pages there are now.
    fn reserve(&mut self) -> Result<()> {
        let end = self.space.end();
        if end > *self.reserved {
            let page_size = self.file.page_size() as u64;
            let least = much(GROWTH.0, GROWTH.1);
            let growth = (end / GROWTH_SHARE).max(least / page_size);
            // If there is no room for so much, there may be for what is needed.
            *self.reserved = match self.allocate(end + growth) {
                Ok(()) => end + growth,
                Err(_) => self.allocate(end).map(|()| end)?,
            };
        }
        Ok(())
    }

    /// Reserves room for the first `end` pages. If there is not so much, what was there is given back: others need the last of a full disk.
    fn allocate(&self, end: u64) -> Result<()> {
        let PageFile { file, out, .. } = self.file;
        let whole = self.file.offset(end).next_multiple_of(out.alignment() as u64);
        out.allocate(whole).inspect_err(|_| {
            if let Err(error) = file.truncate(self.file.offset(*self.reserved)) {
                log::warn!("{} stays longer than it need be: {error}", file.path().display());
            }
        })
    }

    /// Writes what has been gathered.
    pub(super) fn write(&mut self) -> Result<()> {
        self.reserve()?;
        self.gathered_bytes = 0;
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.sort_unstable_by_key(|(page, _)| *page);
        let mut run: Vec<u8> = Vec::new();
        let mut start = 0;
        for (page, bytes) in gathered {
            let offset = self.file.offset(page);
            if !run.is_empty() && start + run.len() as u64 != offset {
                self.file.out.write_at(start, &run)?;
                run.clear();
            }
            if run.is_empty() {
                start = offset;
            }
            run.extend_from_slice(&bytes);
        }
        if run.is_empty() { Ok(()) } else { self.file.out.write_at(start, &run) }
    }
}

/// How many pages an overflow value of `len` bytes takes.
pub(super) fn overflow_pages(len: u64, page_size: usize) -> u64 {
    (OVERFLOW_HEADER as u64 + len).div_ceil(page_size as u64)
}

/// A walk that makes the next tree.
pub(super) struct Rewrite<'a, 'p, C> {
    root: &'a Root,
    source: Source<'a, C>,
    pages: &'a mut Pages<'p>,
    /// The walk ends when so many pages have been taken.
    most_pages: u64,
    stopped: bool,
    leaf: LeafBuilder,
    /// Those of levels 1, 2, ..
    inner: Vec<InnerBuilder>,
    /// For each level: a key that is not above those in its builder and above those of the nodes before.
    lower: Vec<Vec<u8>>,
    counts: Counts,
    ahead: Ahead,
    stop: &'a dyn Fn() -> bool,
}

/// What a walk has made.
pub(super) struct Rewritten {
    pub(super) top: Option<Top>,
    pub(super) counts: Counts,
    /// Whether it has gone to the end.
    pub(super) is_complete: bool,
}

impl Rewritten {
    /// A tree without records.
    pub(super) const EMPTY: Self = Self {
        top: None,
        counts: Counts { records: 0, leaves: 0, inner: 0, overflow_pages: 0 },
        is_complete: true,
    };
}

impl<'a, 'p, C: EntryCursor> Rewrite<'a, 'p, C> {
    /// A walk over `root`, whose nodes and records are `counts`, that ends early when it has taken `most_pages`, and
    /// fails with `Closed` when `stop` says so.
    pub(super) fn new(
        root: &'a Root,
        counts: Counts,
        source: Source<'a, C>,
        pages: &'a mut Pages<'p>,
        most_pages: u64,
        stop: &'a dyn Fn() -> bool,
    ) -> Self {
        let leaf = LeafBuilder::new(pages.file.page_size());
        let most_pages = pages.space.taken().saturating_add(most_pages);
        let (inner, lower) = (Vec::new(), vec![Vec::new()]);
        let ahead = Ahead::default();
        Self {
            root,
            source,
            pages,
            most_pages,
            stopped: false,
            leaf,
            inner,
            lower,
            counts,
            ahead,
            stop,
        }
    }

    /// Makes the tree. All its nodes are written when this returns, and nothing is synced.
    pub(super) fn run(mut self) -> Result<Rewritten> {
        let mut level = 0;
        match self.root.top()? {
            None => self.merge_leaf(None, None)?,
            Some(top) => {
                level = top.level;
                self.node(top.at, top.level, &[], None)?;
            }
        }
        let top = self.finish(level)?;
        self.pages.write()?;
        let is_complete = !self.stopped;
        Ok(Rewritten { top, counts: self.counts, is_complete })
    }

    /// Makes nodes of all that builders hold, from `level` on, where the old root was; gives the new root.
    fn finish(&mut self, mut level: u8) -> Result<Option<Top>> {
        loop {
            if self.is_empty(level) {
                return Ok(None);
            }
            if level > 0 && self.builder(level).children() == 1 {
                // A root with one child is none.
                let at = self.builder(level).child(0);
                self.builder(level).clear();
                return Ok(Some(Top { at, level: level - 1 }));
            }
            let is_one = match level {
                0 => self.leaf.is_one_page() || self.leaf.len() == 1,
                _ => {
                    self.builder(level).is_one_page()
                        || self.builder(level).balance_point().is_none()
                }
            };
            if is_one && self.is_empty(level + 1) {
                let at = self.emit(level, None)?;
                return Ok(Some(Top { at, level }));
            }
            self.cut(level, false, true, true)?;
            level += 1;
        }
    }

    // ---- walking ----

    /// Rewrites the node of `level` at `at`, whose keys are not below `lower` and below `upper`.
    fn node(&mut self, at: Pointer, level: u8, lower: &[u8], upper: Option<&[u8]>) -> Result<()> {
        if (self.stop)() {
            return Err(Error::Closed);
        }
        let root = self.root;
        let node = root.node_between(at, level, lower, upper, &mut self.ahead)?;
        self.pages.give_node(at);
        if level == 0 {
            self.counts.leaves = self.less(self.counts.leaves, 1)?;
            return self.merge_leaf(Some(Leaf::new(&node)), upper);
        }
        self.counts.inner = self.less(self.counts.inner, 1)?;
        self.children(&node, level, lower, upper)
    }

    /// A count without what has just been found in the tree.
    fn less(&self, count: u64, found: u64) -> Result<u64> {
        let what = "the tree has more than its meta page says";
        count.checked_sub(found).ok_or_else(|| Error::corruption(self.pages.file.path(), 0, what))
    }

    fn children(
        &mut self,
        node: &Node<'_>,
        level: u8,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let inner = Inner::new(node);
        let (mut from, mut to, mut next) = (lower.to_vec(), Vec::new(), Vec::new());
        let bound = |index: usize, key: &mut Vec<u8>| {
            let is_inside = index < inner.len();
            if is_inside {
                inner.separator_into(index, key);
            }
            is_inside
        };
        for index in 0..=inner.len() {
            let is_last = !bound(index, &mut to);
            let below = if is_last { upper } else { Some(&to[..]) };
            let child = inner.child(index);
            if self.is_empty(level - 1) {
                if !self.concerns(below) || !self.is_to_move(child, level - 1)? {
                    self.add_child(level, &from, child)?;
                    std::mem::swap(&mut from, &mut to);
                    continue;
                }
                self.lower_of(level - 1).clone_from(&from);
            }
            self.node(child, level - 1, &from, below)?;
            let goes_on = !is_last && !self.moves_some() && {
                let below = if bound(index + 1, &mut next) { Some(&next[..]) } else { upper };
                self.concerns(below)
            };
            self.cut(level - 1, goes_on, is_last, below.is_none())?;
            std::mem::swap(&mut from, &mut to);
        }
        Ok(())
    }

    /// Whether something is to be changed below `upper`.
    fn concerns(&self, upper: Option<&[u8]>) -> bool {
        if self.stopped {
            return false;
        }
        match &self.source {
            Source::Changes(changes) => {
                changes.key().is_some_and(|key| upper.is_none_or(|upper| key < upper))
            }
            Source::Leaves { from, .. } => match (&**from, upper) {
                (Some(from), Some(upper)) => &from[..] < upper,
                _ => true,
            },
        }
    }

    /// Whether leaves are rewritten for where they lie.
    fn moves_some(&self) -> bool {
        matches!(self.source, Source::Leaves { which: Which::Behind(_) | Which::In { .. }, .. })
    }

    /// Whether the node of `level` at `at` is rewritten if there is something below it that may be.
    fn is_to_move(&self, at: Pointer, level: u8) -> Result<bool> {
        let Source::Leaves { which, .. } = &self.source else { return Ok(true) };
        if level > 0 || !self.moves_some() || which.has(at.page(), at.pages()) {
            return Ok(true);
        }
        if self.counts.overflow_pages == 0 {
            return Ok(false);
        }
        let node = self.root.node_past_cache(at, level, &mut Ahead::default())?;
        let leaf = Leaf::new(&node);
        Ok((0..leaf.len()).any(|index| self.value_to_move(leaf.value(index)).is_some()))
    }

    /// Where a value is that is to be moved, and its bytes.
    fn value_to_move(&self, value: Stored<'_>) -> Option<(Pointer, u64)> {
        let (Source::Leaves { which, .. }, Stored::Overflow { at, len }) = (&self.source, value)
        else {
            return None;
        };
        let count = overflow_pages(len, self.pages.file.page_size());
        let has_place = || match which {
            Which::Behind(_) => {
                self.pages.space.place(count).is_some_and(|place| place < at.page())
            }
            Which::All | Which::In { .. } => true,
        };
        (which.has(at.page(), count) && has_place()).then_some((at, len))
    }

    /// Merges a leaf, if there is one, with the changes below `upper`.
    fn merge_leaf(&mut self, leaf: Option<Leaf<'_>>, upper: Option<&[u8]>) -> Result<()> {
        let mut index = 0;
        let mut key = Vec::new();
        loop {
            let old = leaf.filter(|leaf| index < leaf.len());
            if let Some(leaf) = &old {
                leaf.key_into(index, &mut key);
            }
            let is_due = self.concerns(upper)
                && match (&self.source, &old) {
                    (Source::Changes(changes), Some(_)) => {
                        changes.key().is_some_and(|changed| changed <= &key[..])
                    }
                    (Source::Changes(_), None) => true,
                    (Source::Leaves { .. }, _) => false,
                };
            match old {
                _ if is_due => {
                    let replaces = old.is_some() && self.change_key() == Some(&key[..]);
                    if let (true, Some(leaf)) = (replaces, old) {
                        self.drop_record(leaf.value(index))?;
                        index += 1;
                    }
                    self.apply_change()?;
                }
                Some(leaf) => {
                    self.push(&key, leaf.value(index))?;
                    index += 1;
                }
                None => break,
            }
        }
        if let Source::Leaves { from, .. } = &mut self.source
            && !self.stopped
        {
            **from = upper.map(<[u8]>::to_vec);
            self.stopped = upper.is_some() && self.pages.space.taken() >= self.most_pages;
        }
        Ok(())
    }

    fn change_key(&self) -> Option<&[u8]> {
        match &self.source {
            Source::Changes(changes) => changes.key(),
            Source::Leaves { .. } => None,
        }
    }

    fn drop_record(&mut self, value: Stored<'_>) -> Result<()> {
        self.counts.records = self.less(self.counts.records, 1)?;
        if let Stored::Overflow { at, len } = value {
            let count = self.pages.give_overflow(at, len);
            self.counts.overflow_pages = self.less(self.counts.overflow_pages, count)?;
        }
        Ok(())
    }

    /// Takes the next change into the builder, and goes to the one behind it.
    fn apply_change(&mut self) -> Result<()> {
        let Source::Changes(changes) = &mut self.source else { return Ok(()) };
        if let Some(value) = changes.value() {
            let key = changes.key().unwrap_or_default();
            let page_size = self.pages.file.page_size();
            let stored = if value.len() <= largest_inline(page_size) {
                Stored::Inline(value)
            } else {
                let at = self.pages.add_overflow(value)?;
                let len = value.len() as u64;
                self.counts.overflow_pages += overflow_pages(len, page_size);
                Stored::Overflow { at, len }
            };
            self.leaf.push(key, stored);
            self.counts.records += 1;
        }
        changes.next()?;
        self.stopped = changes.key().is_some() && self.pages.space.taken() >= self.most_pages;
        self.spill(0)
    }

    /// Takes a record into the builder as it is.
    fn push(&mut self, key: &[u8], value: Stored<'_>) -> Result<()> {
        let value = match self.value_to_move(value) {
            Some((at, len)) if !self.stopped => {
                let bytes = self.root.overflow(at, len)?;
                self.pages.give_overflow(at, len);
                Stored::Overflow { at: self.pages.add_overflow(&bytes)?, len }
            }
            _ => value,
        };
        self.leaf.push(key, value);
        self.spill(0)
    }

    // ---- building ----

    /// The builder of an inner level.
    fn builder(&mut self, level: u8) -> &mut InnerBuilder {
        while self.inner.len() < level as usize {
            let level = self.inner.len() as u8 + 1;
            self.inner.push(InnerBuilder::new(self.pages.file.page_size(), level));
        }
        &mut self.inner[level as usize - 1]
    }

    fn lower_of(&mut self, level: u8) -> &mut Vec<u8> {
        while self.lower.len() <= level as usize {
            self.lower.push(Vec::new());
        }
        &mut self.lower[level as usize]
    }

    fn is_empty(&self, level: u8) -> bool {
        match level {
            0 => self.leaf.is_empty(),
            _ => self.inner.get(level as usize - 1).is_none_or(|builder| builder.children() == 0),
        }
    }

    fn used(&mut self, level: u8) -> usize {
        if level == 0 { self.leaf.used() } else { self.builder(level).used() }
    }

    /// Adds a child to the builder of `level`.
    fn add_child(&mut self, level: u8, separator: &[u8], child: Pointer) -> Result<()> {
        if self.is_empty(level) {
            self.lower_of(level).clear();
            self.lower_of(level).extend_from_slice(separator);
            self.builder(level).push_first(child);
        } else {
            self.builder(level).push(separator, child);
        }
        self.spill(level)
    }

    /// Makes full nodes of what a builder holds beyond two pages.
    fn spill(&mut self, level: u8) -> Result<()> {
        while self.used(level) > 2 * self.pages.file.page_size() {
            let Some(at) = self.full_point(level) else { return Ok(()) };
            self.emit_below(level, at)?;
        }
        Ok(())
    }

    /// The end of an old node: makes nodes of what the builder of its level holds. `goes_on`: the next node of the
    /// same parent is rewritten, too; `is_last`: there is none; `at_edge`: the node is the last one of its level.
    fn cut(&mut self, level: u8, goes_on: bool, is_last: bool, at_edge: bool) -> Result<()> {
        let page_size = self.pages.file.page_size();
        while !self.is_empty(level) {
            let used = self.used(level);
            if used <= page_size {
                if !is_last && (goes_on || used < page_size / SMALL) {
                    return Ok(());
                }
                return self.emit_below_all(level);
            }
            let at = match goes_on || at_edge {
                true => self.full_point(level),
                false => self.balance_point(level),
            };
            match at {
                Some(at) => self.emit_below(level, at)?,
                None => return self.emit_below_all(level),
            }
        }
        Ok(())
    }

    fn full_point(&mut self, level: u8) -> Option<usize> {
        if level == 0 { self.leaf.full_point() } else { self.builder(level).full_point() }
    }

    fn balance_point(&mut self, level: u8) -> Option<usize> {
        if level == 0 { self.leaf.balance_point() } else { self.builder(level).balance_point() }
    }

    /// Makes a node of all that the builder of `level` holds, a child of the level above.
    fn emit_below_all(&mut self, level: u8) -> Result<()> {
        let separator = self.lower_of(level).clone();
        let at = self.emit(level, None)?;
        self.add_child(level + 1, &separator, at)
    }

    /// The same for the part of it in front of `at`.
    fn emit_below(&mut self, level: u8, at: usize) -> Result<()> {
        let separator = self.lower_of(level).clone();
        let at = self.emit(level, Some(at))?;
        self.add_child(level + 1, &separator, at)
    }

    /// Makes a node of what the builder of `level` holds, or of the part of it in front of `at`.
    fn emit(&mut self, level: u8, at: Option<usize>) -> Result<Pointer> {
        let mut bytes = Vec::new();
        let mut next = Vec::new();
        let pages = match (level, at) {
            (0, None) => self.leaf.finish(&mut bytes),
            (0, Some(at)) => {
                next.extend_from_slice(self.leaf.separator(at));
                self.leaf.finish_split(at, &mut bytes)
            }
            (_, None) => self.builder(level).finish(&mut bytes),
            (_, Some(at)) => self.builder(level).finish_split(at, &mut bytes, &mut next),
        };
        *self.lower_of(level) = next;
        let count = if level == 0 { &mut self.counts.leaves } else { &mut self.counts.inner };
        *count += 1;
        self.pages.add_node(bytes, pages, level > 0)
    }
}
