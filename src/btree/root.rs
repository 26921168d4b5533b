//! One state of the tree, and reading it.
//!
//! Thread safety: never changed; any thread reads. Its pages are not written while it lives.

use std::sync::{Arc, OnceLock};

use super::file::{Node, PageFile};
use super::meta::Top;
use super::node::{Inner, Leaf, Pointer, Stored};
use crate::base::{Seqno, Slice, View};
use crate::error::Result;
use crate::vfs::{BatchReader, ReadRequest};

/// So many keys are looked up together: their nodes are held in memory at the same time.
const TOGETHER: usize = 256;

/// A tree of nodes, as of one write.
pub(super) struct Root {
    /// Counts the trees there have been since the file was opened.
    pub(super) version: u64,
    /// The last write that counts for it.
    pub(super) seqno: Seqno,
    pub(super) top: Option<Top>,
    pub(super) file: Arc<PageFile>,
    /// All of the file, if it lends its bytes.
    lent: Option<View>,
    /// The root node, once it has been read.
    top_node: OnceLock<View>,
}

impl Root {
    /// The tree of `top` in a file of `pages` pages.
    pub(super) fn new(
        version: u64,
        seqno: Seqno,
        top: Option<Top>,
        file: Arc<PageFile>,
        pages: u64,
    ) -> Result<Arc<Self>> {
        let lent = file.lend(pages)?;
        Ok(Arc::new(Self { version, seqno, top, file, lent, top_node: OnceLock::new() }))
    }

    /// The node at `at`, which must be one of `level`.
    #[inline]
    pub(super) fn node(&self, at: Pointer, level: u8) -> Result<Node<'_>> {
        self.file.node(self.lent.as_ref(), at, level)
    }

    /// The same for those who read a tree from one end to the other: leaves are not cached for them.
    pub(super) fn node_past_cache(&self, at: Pointer, level: u8) -> Result<Node<'_>> {
        match (&self.lent, level) {
            (None, 0) => self.file.node_past_cache(at, level).map(Node::Own),
            _ => self.node(at, level),
        }
    }

    /// The same node, whose keys must be from `lower` on and below `upper`: so nobody who reads all of a damaged tree
    /// comes to one of its nodes by two ways.
    pub(super) fn node_between(
        &self,
        at: Pointer,
        level: u8,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<Node<'_>> {
        let node = self.node_past_cache(at, level)?;
        let (mut first, mut last) = (Vec::new(), Vec::new());
        let len = if level == 0 {
            let leaf = Leaf::new(&node);
            if leaf.is_empty() {
                return Err(self.file.damaged(at, "the leaf has no records"));
            }
            leaf.key_into(0, &mut first);
            leaf.key_into(leaf.len() - 1, &mut last);
            leaf.len()
        } else {
            let inner = Inner::new(&node);
            if inner.len() > 0 {
                inner.separator_into(0, &mut first);
                inner.separator_into(inner.len() - 1, &mut last);
            }
            inner.len()
        };
        let is_inside = *lower <= first[..] && upper.is_none_or(|upper| last[..] < *upper);
        if len > 0 && !is_inside {
            return Err(self.file.damaged(at, "the node has a key that belongs into another one"));
        }
        Ok(node)
    }

    /// The root node.
    #[inline]
    fn top_node(&self, top: Top) -> Result<Node<'_>> {
        if let Some(view) = self.top_node.get() {
            return Ok(Node::Held(view));
        }
        let node = self.node(top.at, top.level)?;
        if let Node::Own(view) = &node {
            return Ok(Node::Held(self.top_node.get_or_init(|| view.clone())));
        }
        Ok(node)
    }

    /// The value of `key`. Cost: a search in one node of each level.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        let Some(top) = self.top else { return Ok(None) };
        let mut node = self.top_node(top)?;
        for level in (0..top.level).rev() {
            let inner = Inner::new(&node);
            let child = inner.child(inner.child_for(key));
            node = self.node(child, level)?;
        }
        self.value_of(&node, key)
    }

    /// The values of `keys`, in their order. Nodes that have to be read are read together, level by level.
    pub(super) fn multi_get(
        &self,
        keys: &[&[u8]],
        reader: &BatchReader,
    ) -> Result<Vec<Option<Slice>>> {
        let Some(top) = self.top else { return Ok(vec![None; keys.len()]) };
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(TOGETHER) {
            let mut at = vec![top.at; keys.len()];
            for level in (1..=top.level).rev() {
                let nodes = self.nodes(&at, level, reader)?;
                for ((at, node), key) in at.iter_mut().zip(&nodes).zip(keys) {
                    let inner = Inner::new(node);
                    *at = inner.child(inner.child_for(key));
                }
            }
            let leaves = self.nodes(&at, 0, reader)?;
            for (leaf, key) in leaves.iter().zip(keys) {
                values.push(self.value_of(leaf, key)?);
            }
        }
        Ok(values)
    }

    /// The nodes at `at`, all of one level.
    fn nodes(&self, at: &[Pointer], level: u8, reader: &BatchReader) -> Result<Vec<Node<'_>>> {
        if self.lent.is_some() {
            at.iter().for_each(|&at| self.prefetch(at));
        } else {
            let mut missing: Vec<_> =
                at.iter().copied().filter(|&at| !self.file.is_cached(at)).collect();
            missing.sort_unstable_by_key(|at| at.page());
            missing.dedup();
            if missing.len() > 1 {
                return self.read_nodes(at, level, &missing, reader);
            }
        }
        at.iter().map(|&at| self.node(at, level)).collect()
    }

    /// The same if the `missing` ones, in the order of their pages, are not cached.
    fn read_nodes(
        &self,
        at: &[Pointer],
        level: u8,
        missing: &[Pointer],
        reader: &BatchReader,
    ) -> Result<Vec<Node<'_>>> {
        let requests: Vec<ReadRequest> = missing.iter().map(|&at| self.file.request(at)).collect();
        let views = reader.read(&requests);
        let mut read = Vec::with_capacity(missing.len());
        for (&at, view) in missing.iter().zip(views) {
            let view = view.map_err(|error| self.file.unread(at, error))?;
            read.push(self.file.admit(at, level, view)?);
        }
        let node = |at: Pointer| match missing.binary_search_by_key(&at.page(), |at| at.page()) {
            Ok(found) => Ok(Node::Own(read[found].clone())),
            Err(_) => self.node(at, level),
        };
        at.iter().map(|&at| node(at)).collect()
    }

    /// Asks ahead for what a search of the node at `at` looks at first.
    #[inline]
    fn prefetch(&self, at: Pointer) {
        if let Some(lent) = &self.lent
            && let Some(bytes) = lent.get(self.file.offset(at.page()) as usize..)
        {
            super::node::prefetch(&bytes[..bytes.len().min(self.file.page_size())]);
        }
    }

    #[inline]
    fn value_of(&self, node: &Node<'_>, key: &[u8]) -> Result<Option<Slice>> {
        let leaf = Leaf::new(node);
        let Some(index) = leaf.find(key) else { return Ok(None) };
        Ok(Some(match leaf.value(index) {
            Stored::Overflow { at, len } => self.file.overflow(at, len)?,
            Stored::Inline(bytes) => match node {
                // Its page may be used again while the value is still held.
                Node::Lent(_) => Slice::from(bytes),
                Node::Held(view) => Slice::of_view(view, leaf.value_range(index)),
                Node::Own(view) => Slice::of_view(view, leaf.value_range(index)),
            },
        }))
    }

    /// The leaf at `at`, to be kept for as long as somebody wants: a copy if the file lends its bytes.
    pub(super) fn leaf_to_keep(&self, at: Pointer) -> Result<View> {
        Ok(match self.node(at, 0)? {
            Node::Lent(bytes) => View::from(bytes[..Leaf::new(bytes).used()].to_vec()),
            Node::Held(view) => view.clone(),
            Node::Own(view) => view,
        })
    }
}
