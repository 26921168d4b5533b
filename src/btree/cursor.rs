//! Walking over a tree in key order, both ways.
//!
//! The cursor has a copy or a view of one leaf, and the path to it by pointers. It keeps the tree it walks over alive,
//! and so the pages of that.

use std::cmp::Ordering;
use std::sync::Arc;

use super::meta::Top;
use super::node::{Inner, Leaf, Pointer, Stored};
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
    leaf: Option<View>,
    index: usize,
    key: Vec<u8>,
    /// The value, if it is not in the leaf.
    overflow: Option<Slice>,
    is_valid: bool,
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
        let (path, key) = (Vec::new(), Vec::new());
        Self { root, path, leaf: None, index: 0, key, overflow: None, is_valid: false }
    }

    /// Goes down to a leaf from the node of `level` at `at`.
    fn descend(&mut self, mut at: Pointer, level: u8, down: Down<'_>) -> Result<()> {
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
        let view = self.root.leaf_to_keep(at)?;
        if Leaf::new(&view).is_empty() {
            return Err(self.root.file.damaged(at, "the leaf has no records"));
        }
        self.leaf = Some(view);
        Ok(())
    }

    /// Goes to a leaf from the root; false if there is none.
    fn start(&mut self, down: Down<'_>) -> Result<bool> {
        self.is_valid = false;
        self.path.clear();
        self.leaf = None;
        let Some(Top { at, level }) = self.root.top else { return Ok(false) };
        self.descend(at, level, down)?;
        Ok(true)
    }

    /// Goes to the leaf behind or in front of this one, whose last or first key is in `key`; false if there is none.
    fn step(&mut self, forward: bool) -> Result<bool> {
        self.leaf = None;
        let Some(top) = self.root.top else { return Ok(false) };
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
            drop(node);
            self.path.push((at, sibling));
            self.descend(next, level - 1, if forward { Down::First } else { Down::Last })?;
            return self.expect_order(next, forward).map(|()| true);
        }
        Ok(false)
    }

    /// An error unless all keys of this leaf are behind or in front of `key`: pointers of a damaged tree could lead to
    /// the same leaves again and again.
    fn expect_order(&self, at: Pointer, forward: bool) -> Result<()> {
        let Some(view) = &self.leaf else { return Ok(()) };
        let leaf = Leaf::new(view);
        let in_front = leaf.lower_bound(&self.key);
        let is_in_order = match forward {
            true => in_front == 0 && !leaf.key_is(0, &self.key),
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
    fn settle_forward(&mut self, index: usize) -> Result<()> {
        self.is_valid = false;
        let Some(view) = &self.leaf else { return Ok(()) };
        let leaf = Leaf::new(view);
        if index < leaf.len() {
            return self.stand_on(index);
        }
        leaf.key_into(leaf.len() - 1, &mut self.key);
        if self.step(true)? { self.stand_on(0) } else { Ok(()) }
    }

    /// Stands on the record in front of `end`, or on the last one of the leaf in front if there is none.
    fn settle_backward(&mut self, end: usize) -> Result<()> {
        self.is_valid = false;
        let Some(view) = &self.leaf else { return Ok(()) };
        if let Some(index) = end.checked_sub(1) {
            return self.stand_on(index);
        }
        Leaf::new(view).key_into(0, &mut self.key);
        if self.step(false)? { self.stand_on(self.len() - 1) } else { Ok(()) }
    }

    /// How many records the leaf has.
    fn len(&self) -> usize {
        self.leaf.as_ref().map_or(0, |view| Leaf::new(view).len())
    }

    #[inline]
    fn stand_on(&mut self, index: usize) -> Result<()> {
        let Some(view) = &self.leaf else { return Ok(()) };
        let leaf = Leaf::new(view);
        leaf.key_into(index, &mut self.key);
        self.overflow = match leaf.value(index) {
            Stored::Inline(_) => None,
            Stored::Overflow { at, len } => Some(self.root.file.overflow(at, len)?),
        };
        (self.index, self.is_valid) = (index, true);
        Ok(())
    }

    /// The index of the first record of the leaf that is not before `(key, trailer)`.
    fn bound(&self, key: &[u8], trailer: Trailer) -> usize {
        let Some(view) = &self.leaf else { return 0 };
        let leaf = Leaf::new(view);
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
        self.leaf.as_ref().map_or(&[], |view| &view[Leaf::new(view).value_range(self.index)])
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        if let Some(value) = &self.overflow {
            return value.clone();
        }
        let empty = || Slice::from(&[][..]);
        self.leaf.as_ref().map_or_else(empty, |view| {
            Slice::of_view(view, Leaf::new(view).value_range(self.index))
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
