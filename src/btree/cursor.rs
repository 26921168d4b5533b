//! Walking over a tree in key order, both ways.
//!
//! The cursor has one leaf, and the path to it by pointers. It keeps the tree it walks over alive, and so the pages of
//! that.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::ahead::Ahead;
use super::file::Node;
use super::meta::Top;
use super::node::{Inner, Leaf, Parts, Pointer, Stored};
use super::root::Root;
use crate::base::key::compare;
use crate::base::{Kind, Slice, Trailer, View};
use crate::error::Result;
use crate::iter::{EntryCursor, OrderedCursor};

/// What every record of a tree counts as: older than what is in memtables, and never a tombstone.
#[inline]
fn stored() -> Trailer {
    Trailer::new(0, Kind::Put)
}

/// A position in a tree.
pub(super) struct TreeCursor {
    root: Arc<Root>,
    /// Inner nodes from the root down to the leaf, and which child the way goes through.
    path: Vec<(Pointer, usize)>,
    leaf: Option<Held>,
    index: usize,
    /// Where in the leaf the record is.
    parts: Parts,
    /// The key; while the cursor is in one leaf, it begins with the prefix of that.
    key: Vec<u8>,
    prefix: usize,
    ahead: Ahead,
    /// The first or last key of the leaf that was left last.
    edge: Vec<u8>,
    /// The value, if it is not in the leaf.
    overflow: Option<Slice>,
    is_valid: bool,
}

/// The leaf a cursor is in.
enum Held {
    /// A part of the file, and a copy of it for those who want to keep values.
    Lent(Range<usize>, OnceCell<View>),
    Own(View),
}

impl Held {
    #[inline]
    fn bytes<'a>(&'a self, root: &'a Root) -> &'a [u8] {
        match self {
            Self::Lent(range, _) => root.lent(range.clone()),
            Self::Own(view) => view,
        }
    }

    /// The bytes as a view that may be kept for as long as somebody wants.
    #[inline]
    fn to_keep(&self, root: &Root) -> &View {
        match self {
            Self::Lent(_, copy) => copy.get_or_init(|| {
                let bytes = self.bytes(root);
                View::from(bytes[..Leaf::new(bytes).used()].to_vec())
            }),
            Self::Own(view) => view,
        }
    }
}

/// Which way to go down.
#[derive(Clone, Copy)]
enum Down<'a> {
    First,
    Last,
    To(&'a [u8]),
}

impl TreeCursor {
    pub(super) fn new(root: Arc<Root>) -> Self {
        Self {
            root,
            path: Vec::new(),
            leaf: None,
            index: 0,
            parts: Parts::default(),
            key: Vec::new(),
            prefix: 0,
            ahead: Ahead::default(),
            edge: Vec::new(),
            overflow: None,
            is_valid: false,
        }
    }

    /// Goes down to a leaf from the node of `level` at `at`.
    fn descend(
        &mut self,
        mut at: Pointer,
        level: u8,
        down: Down<'_>,
        past_cache: bool,
    ) -> Result<()> {
        for level in (1..=level).rev() {
            let node = self.root.node(at, level)?;
            let inner = Inner::new(&node);
            let child = match down {
                Down::First => 0,
                Down::Last => inner.len(),
                Down::To(key) => inner.child_for(key),
            };
            let next = inner.child(child);
            drop(node);
            self.path.push((at, child));
            at = next;
        }
        let root = &*self.root;
        let node = match past_cache {
            true => root.node_past_cache(at, 0, &mut self.ahead)?,
            false => root.node(at, 0)?,
        };
        let held = match node {
            Node::Lent(bytes) => {
                let start = root.file.offset(at.page()) as usize;
                Held::Lent(start..start + bytes.len(), OnceCell::new())
            }
            Node::Own(view) => Held::Own(view),
        };
        let leaf = Leaf::new(held.bytes(root));
        if leaf.len() == 0 {
            return Err(root.file.damaged(at, "the leaf has no records"));
        }
        let prefix = leaf.prefix();
        self.key.clear();
        self.key.extend_from_slice(prefix);
        self.prefix = prefix.len();
        self.leaf = Some(held);
        Ok(())
    }

    /// The leaf, if the cursor is in one.
    #[inline]
    fn leaf(&self) -> Option<Leaf<'_>> {
        Some(Leaf::new(self.leaf.as_ref()?.bytes(&self.root)))
    }

    /// How many records the leaf has.
    fn len(&self) -> usize {
        self.leaf().map_or(0, |leaf| leaf.len())
    }

    /// Goes to a leaf from the root; false if there is none.
    fn start(&mut self, down: Down<'_>) -> Result<bool> {
        self.is_valid = false;
        self.path.clear();
        self.leaf = None;
        let Some(Top { at, level }) = self.root.top()? else { return Ok(false) };
        self.descend(at, level, down, false)?;
        Ok(true)
    }

    /// Goes to the leaf behind or in front of this one, whose last or first key is in `edge`; false if there is none.
    fn step(&mut self, forward: bool) -> Result<bool> {
        self.leaf = None;
        let Some(top) = self.root.top()? else { return Ok(false) };
        while let Some((at, child)) = self.path.pop() {
            let level = top.level - self.path.len() as u8;
            let node = self.root.node(at, level)?;
            let inner = Inner::new(&node);
            let sibling = match forward {
                true => Some(child + 1).filter(|&next| next <= inner.len()),
                false => child.checked_sub(1),
            };
            let Some(sibling) = sibling else { continue };
            let next = inner.child(sibling);
            if level == 1 && forward && sibling < inner.len() {
                self.root.prefetch_leaf(inner.child(sibling + 1));
            }
            drop(node);
            self.path.push((at, sibling));
            let down = if forward { Down::First } else { Down::Last };
            // A walk from leaf to leaf drives nothing out of the cache.
            self.descend(next, level - 1, down, true)?;
            return self.expect_order(next, forward).map(|()| true);
        }
        Ok(false)
    }

    /// An error unless all keys of this leaf are behind or in front of the one at the edge of the last leaf: pointers of
    /// a damaged tree could lead to the same leaves again and again.
    fn expect_order(&self, at: Pointer, forward: bool) -> Result<()> {
        let Some(leaf) = self.leaf() else { return Ok(()) };
        let in_front = leaf.lower_bound(&self.edge);
        let is_in_order = match forward {
            true => in_front == 0 && !leaf.key_is(0, &self.edge),
            false => in_front == leaf.len(),
        };
        match is_in_order {
            true => Ok(()),
            false => {
                Err(self.root.file.damaged(at, "its keys are not those between its neighbours'"))
            }
        }
    }

    /// Stands on record `index`, or on the first one of the leaf behind if there is none.
    #[inline]
    fn settle_forward(&mut self, index: usize) -> Result<()> {
        self.is_valid = false;
        if self.stand_on(index)? { Ok(()) } else { self.enter_neighbour(true) }
    }

    /// Stands on the record in front of `end`, or on the last one of the leaf in front if there is none.
    fn settle_backward(&mut self, end: usize) -> Result<()> {
        self.is_valid = false;
        match end.checked_sub(1) {
            Some(index) => self.stand_on(index).map(drop),
            None => self.enter_neighbour(false),
        }
    }

    /// Stands on the first record of the leaf behind, or on the last one of the leaf in front, if there is such a leaf.
    fn enter_neighbour(&mut self, forward: bool) -> Result<()> {
        let Some(held) = &self.leaf else { return Ok(()) };
        let leaf = Leaf::new(held.bytes(&self.root));
        leaf.key_into(if forward { leaf.len() - 1 } else { 0 }, &mut self.edge);
        if self.step(forward)? {
            let index = if forward { 0 } else { self.len() - 1 };
            self.stand_on(index)?;
        }
        Ok(())
    }

    /// Stands on record `index` of the leaf; false if there is none.
    #[inline]
    fn stand_on(&mut self, index: usize) -> Result<bool> {
        let Some(held) = &self.leaf else { return Ok(false) };
        let bytes = held.bytes(&self.root);
        let leaf = Leaf::new(bytes);
        if index >= leaf.len() {
            return Ok(false);
        }
        let parts = leaf.parts(index);
        self.key.truncate(self.prefix);
        self.key.extend_from_slice(&bytes[parts.suffix.clone()]);
        self.overflow = None;
        if !parts.is_inline
            && let Stored::Overflow { at, len } = leaf.value(index)
        {
            self.overflow = Some(self.root.overflow(at, len)?);
        }
        self.parts = parts;
        (self.index, self.is_valid) = (index, true);
        Ok(true)
    }

    /// The index of the first record of the leaf that is not before `(key, trailer)`.
    fn bound(&self, key: &[u8], trailer: Trailer) -> usize {
        let Some(leaf) = self.leaf() else { return 0 };
        let index = leaf.lower_bound(key);
        let is_before = index < leaf.len()
            && leaf.key_is(index, key)
            && compare((key, stored()), (key, trailer)) == Ordering::Less;
        index + usize::from(is_before)
    }
}

impl EntryCursor for TreeCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        if self.start(Down::First)? { self.settle_forward(0) } else { Ok(()) }
    }

    fn seek_to_last(&mut self) -> Result<()> {
        if !self.start(Down::Last)? {
            return Ok(());
        }
        self.settle_backward(self.len())
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        if !self.start(Down::To(key))? {
            return Ok(());
        }
        self.settle_forward(self.bound(key, trailer))
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        if !self.start(Down::To(key))? {
            return Ok(());
        }
        self.settle_backward(self.bound(key, trailer))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.settle_forward(self.index + 1)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.settle_backward(self.index)
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.is_valid
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        stored()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        if let Some(value) = &self.overflow {
            return value;
        }
        let held = self.leaf.as_ref();
        held.map_or(&[], |held| &held.bytes(&self.root)[self.parts.payload.clone()])
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        if let Some(value) = &self.overflow {
            return value.clone();
        }
        let value = EntryCursor::value(self);
        Slice::inline(value).unwrap_or_else(|| match &self.leaf {
            Some(held) => Slice::of_view(held.to_keep(&self.root), self.parts.payload.clone()),
            None => Slice::from(value),
        })
    }
}

/// All records of a tree are visible to those who read it.
impl OrderedCursor for TreeCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        EntryCursor::seek_to_first(self)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        EntryCursor::seek_to_last(self)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        EntryCursor::seek(self, key, Trailer::NEWEST)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        EntryCursor::seek_before(self, key, Trailer::NEWEST)
    }

    fn next(&mut self) -> Result<()> {
        if self.is_valid { EntryCursor::next(self) } else { Ok(()) }
    }

    fn prev(&mut self) -> Result<()> {
        if self.is_valid { EntryCursor::prev(self) } else { Ok(()) }
    }

    fn is_valid(&self) -> bool {
        self.is_valid
    }

    fn key(&self) -> &[u8] {
        EntryCursor::key(self)
    }

    fn value(&self) -> &[u8] {
        EntryCursor::value(self)
    }

    fn value_slice(&self) -> Slice {
        EntryCursor::value_slice(self)
    }
}
