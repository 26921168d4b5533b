//! One state of the tree, and reading it.
//!
//! Thread safety: never changed; any thread reads. Its pages are not written while it lives. They are those that were in use when it was made: nobody
//! comes to others by it, though its nodes may be made to lead there. What is lent of a file does not change so, nor does it go.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::ahead::Ahead;
use super::file::{Lent, Node, OVERFLOW_HEADER, PageFile};
use super::in_use::InUse;
use super::meta::Top;
use super::node::{self, Inner, Leaf, MAX_NODE_LEN, Parts, Pointer, Stored};
use super::space::Space;
use crate::base::{Seqno, Slice};
use crate::error::{Error, Result};
use crate::vfs::{BatchReader, ReadRequest};

/// So many keys are looked up together: their nodes are held in memory at the same time.
const TOGETHER: usize = 256;

/// A tree of nodes, as of one write.
pub(super) struct Root {
    /// The last write that counts for it.
    pub(super) seqno: Seqno,
    pub(super) top: Option<Top>,
    pub(super) file: Arc<PageFile>,
    /// The pages that it has.
    pages: InUse,
    /// All of the file, if it lends its bytes.
    lent: Option<Lent>,
    /// If not: the root node once it has been read, and with it inner nodes below.
    branch: OnceLock<Box<Branch>>,
    /// Bytes of inner nodes that are kept so.
    kept: AtomicUsize,
    /// Whether it stands for a tree that is not to be read any more.
    is_closed: bool,
}

/// An inner node that is kept in memory, and those below it that are: the way down needs no look into the cache.
struct Branch {
    /// A copy: who has it for long must not hold on to a frame of the cache, which counts it, too.
    node: Box<[u8]>,
    children: Box<[OnceLock<Box<Branch>>]>,
}

impl Branch {
    fn new(node: &[u8]) -> Box<Self> {
        let children = (0..=Inner::new(node).len()).map(|_| OnceLock::new()).collect();
        Box::new(Self { node: node[..node::used(node)].into(), children })
    }

    /// Bytes of memory that it takes to keep this node.
    fn memory(node: &[u8]) -> usize {
        let children = (Inner::new(node).len() + 1) * size_of::<OnceLock<Box<Self>>>();
        node::used(node) + children + size_of::<Self>()
    }
}

impl Root {
    /// The tree of `top`, which has just been made, or is that of a file which has just been opened, and has all that is not unused in `space`.
    pub(super) fn new(
        seqno: Seqno,
        top: Option<Top>,
        file: Arc<PageFile>,
        space: &Space,
    ) -> Result<Arc<Self>> {
        let lent = file.lend(space.end())?;
        let pages = space.in_use().map_err(|error| file.unreadable(error))?;
        let (branch, kept) = (OnceLock::new(), AtomicUsize::new(0));
        Ok(Arc::new(Self { seqno, top, file, pages, lent, branch, kept, is_closed: false }))
    }

    /// A tree without records, which reads nothing of the file.
    pub(super) fn empty(seqno: Seqno, file: Arc<PageFile>) -> Arc<Self> {
        Arc::new(Self::without_file(seqno, file, false))
    }

    /// One that tells its readers that the database is closed.
    pub(super) fn closed(seqno: Seqno, file: Arc<PageFile>) -> Arc<Self> {
        Arc::new(Self::without_file(seqno, file, true))
    }

    fn without_file(seqno: Seqno, file: Arc<PageFile>, is_closed: bool) -> Self {
        let (branch, kept) = (OnceLock::new(), AtomicUsize::new(0));
        let (pages, lent) = (InUse::default(), None);
        Self { seqno, top: None, file, pages, lent, branch, kept, is_closed }
    }

    /// Where a reader begins.
    #[inline]
    pub(super) fn top(&self) -> Result<Option<Top>> {
        if self.is_closed { Err(Error::Closed) } else { Ok(self.top) }
    }

    /// Bytes of memory that knowing its pages takes.
    pub(super) fn memory(&self) -> usize {
        self.pages.memory()
    }

    /// An error unless the tree has all of `count` pages from where `at` leads.
    #[inline]
    fn expect_own(&self, at: Pointer, count: u64) -> Result<()> {
        match self.pages.has_all(at.page(), count) {
            true => Ok(()),
            false => Err(self.file.damaged(at, "a pointer leads to pages that are not in use")),
        }
    }

    /// An error unless the tree has the pages of a node at `at`, and they are no more than a node can have.
    #[inline]
    fn expect_node(&self, at: Pointer) -> Result<()> {
        match at.pages() as usize * self.file.page_size() <= MAX_NODE_LEN {
            true => self.expect_own(at, at.pages()),
            false => Err(self.file.damaged(at, "a pointer has more pages than the largest node")),
        }
    }

    /// The node at `at`, which must be one of `level`.
    #[inline]
    pub(super) fn node(&self, at: Pointer, level: u8) -> Result<Node<'_>> {
        self.expect_node(at)?;
        self.file.node(self.lent.as_ref(), at, level)
    }

    /// The same for those who read a tree from one end to the other: leaves are not cached for them.
    pub(super) fn node_past_cache(
        &self,
        at: Pointer,
        level: u8,
        ahead: &mut Ahead,
    ) -> Result<Node<'_>> {
        match (&self.lent, level) {
            (None, 0) => {
                self.expect_node(at)?;
                self.file.leaf_past_cache(at, &self.pages, ahead).map(Node::Own)
            }
            _ => self.node(at, level),
        }
    }

    /// The same for those who want to know what the file has: nothing is cached for them, and nothing that is.
    fn node_of_file(&self, at: Pointer, level: u8, ahead: &mut Ahead) -> Result<Node<'_>> {
        if self.lent.is_some() {
            return self.node(at, level);
        }
        self.expect_node(at)?;
        self.file.read_anew(at, level, &self.pages, ahead).map(Node::Own)
    }

    /// The overflow value of `len` bytes at `at`.
    pub(super) fn overflow(&self, at: Pointer, len: u64) -> Result<Slice> {
        let bytes = OVERFLOW_HEADER as u64 + len;
        self.expect_own(at, bytes.div_ceil(self.file.page_size() as u64))?;
        self.file.overflow(at, len)
    }

    /// The node of [`node_past_cache`](Self::node_past_cache), whose keys must be from `lower` on and below `upper`: so nobody who reads all of
    /// a damaged tree comes to one of its nodes by two ways. It is checked though it was before, if it is lent: what its bytes became since
    /// then is to get into no other node.
    pub(super) fn node_between(
        &self,
        at: Pointer,
        level: u8,
        lower: &[u8],
        upper: Option<&[u8]>,
        ahead: &mut Ahead,
    ) -> Result<Node<'_>> {
        let node = self.node_past_cache(at, level, ahead)?;
        self.expect_between(node, at, level, lower, upper)
    }

    /// The same, read from the file whatever is cached of it.
    pub(super) fn node_of_file_between(
        &self,
        at: Pointer,
        level: u8,
        lower: &[u8],
        upper: Option<&[u8]>,
        ahead: &mut Ahead,
    ) -> Result<Node<'_>> {
        let node = self.node_of_file(at, level, ahead)?;
        self.expect_between(node, at, level, lower, upper)
    }

    fn expect_between<'a>(
        &self,
        node: Node<'a>,
        at: Pointer,
        level: u8,
        lower: &[u8],
        upper: Option<&[u8]>,
    ) -> Result<Node<'a>> {
        if let Node::Lent(bytes) = node {
            self.file.check_again(bytes, at)?;
        }
        let (mut first, mut last) = (Vec::new(), Vec::new());
        let len = if level == 0 {
            let leaf = Leaf::new(&node);
            if leaf.len() == 0 {
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
        // The child left of the first separator has a key, which is below it.
        let is_above = if level == 0 { *lower <= first[..] } else { *lower < first[..] };
        let is_inside = is_above && upper.is_none_or(|upper| last[..] < *upper);
        if len > 0 && !is_inside {
            return Err(self.file.damaged(at, "the node has a key that belongs into another one"));
        }
        Ok(node)
    }

    /// The value of `key`. Cost: a search in one node of each level.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        let Some(Top { at, level }) = self.top()? else { return Ok(None) };
        match self.lent.is_some() || level == 0 {
            true => self.get_below(at, level, key),
            false => self.get_by_branches(at, level, key),
        }
    }

    /// The value of `key` below the node of `level` at `at`.
    #[inline]
    fn get_below(&self, mut at: Pointer, level: u8, key: &[u8]) -> Result<Option<Slice>> {
        for level in (1..=level).rev() {
            let node = self.node(at, level)?;
            let inner = Inner::new(&node);
            at = inner.child(inner.child_for(key));
            self.prefetch(at);
        }
        self.value_of(self.node(at, 0)?, key)
    }

    /// The same by way of the inner nodes that are kept, as far as they go.
    #[inline]
    fn get_by_branches(&self, top: Pointer, level: u8, key: &[u8]) -> Result<Option<Slice>> {
        let Some(mut branch) = self.branch(&self.branch, top, level)? else {
            return self.get_below(top, level, key);
        };
        for level in (0..level).rev() {
            let inner = Inner::new(&branch.node);
            let index = inner.child_for(key);
            let child = inner.child(index);
            branch = match level {
                0 => return self.value_of(self.node(child, 0)?, key),
                _ => match self.branch(&branch.children[index], child, level)? {
                    Some(branch) => branch,
                    None => return self.get_below(child, level, key),
                },
            };
        }
        Ok(None)
    }

    /// The inner node of `level` at `at`, which is kept in `place`; `None` if there is no room for it.
    #[inline]
    fn branch<'a>(
        &self,
        place: &'a OnceLock<Box<Branch>>,
        at: Pointer,
        level: u8,
    ) -> Result<Option<&'a Branch>> {
        match place.get() {
            Some(branch) => Ok(Some(branch)),
            None => self.keep_branch(place, at, level),
        }
    }

    #[cold]
    fn keep_branch<'a>(
        &self,
        place: &'a OnceLock<Box<Branch>>,
        at: Pointer,
        level: u8,
    ) -> Result<Option<&'a Branch>> {
        // Most nodes take about a page. Where all is taken, each get comes here.
        if !self.file.kept.has_room(self.file.page_size()) {
            return Ok(None);
        }
        let node = self.node(at, level)?;
        let memory = Branch::memory(&node);
        if !self.file.kept.take(memory) {
            return Ok(None);
        }
        let mut is_new = false;
        let branch = place.get_or_init(|| {
            is_new = true;
            Branch::new(&node)
        });
        if is_new {
            self.kept.fetch_add(memory, Ordering::Relaxed);
        } else {
            self.file.kept.give(memory);
        }
        Ok(Some(branch))
    }

    /// The values of `keys`, in their order. Nodes that have to be read are read together, level by level.
    pub(super) fn multi_get(
        &self,
        keys: &[&[u8]],
        reader: &BatchReader,
    ) -> Result<Vec<Option<Slice>>> {
        let Some(top) = self.top()? else { return Ok(vec![None; keys.len()]) };
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
            for (leaf, key) in leaves.into_iter().zip(keys) {
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
        missing.iter().try_for_each(|&at| self.expect_node(at))?;
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

    /// A part of the file, which must be one that lends its bytes.
    #[inline]
    pub(super) fn lent(&self, range: Range<usize>) -> &[u8] {
        self.lent.as_ref().map_or(&[], |lent| &lent[range])
    }

    /// Asks ahead for all of the leaf at `at`, if it is in memory.
    pub(super) fn prefetch_leaf(&self, at: Pointer) {
        if self.lent.is_some() { self.prefetch(at) } else { self.file.prefetch(at) }
    }

    /// Asks ahead for what a search of the node at `at` looks at first.
    #[inline]
    pub(super) fn prefetch(&self, at: Pointer) {
        if let Some(lent) = &self.lent
            && let Some(bytes) = lent.get(self.file.offset(at.page()) as usize..)
        {
            node::prefetch(&bytes[..bytes.len().min(self.file.page_size())]);
        }
    }

    #[inline]
    fn value_of(&self, node: Node<'_>, key: &[u8]) -> Result<Option<Slice>> {
        let leaf = Leaf::new(&node);
        let Some(index) = leaf.find(key) else { return Ok(None) };
        let Parts { payload, is_inline, .. } = leaf.parts(index);
        if !is_inline && let Stored::Overflow { at, len } = leaf.value(index) {
            return self.overflow(at, len).map(Some);
        }
        Ok(Some(match node {
            // Its page may be used again while the value is still held.
            Node::Lent(bytes) => Slice::from(&bytes[payload]),
            Node::Own(view) => Slice::from_view(view, payload),
        }))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.file.kept.give(*self.kept.get_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::ahead::tests::Noted;
    use super::super::kept::Kept;
    use super::super::node::{InnerBuilder, LeafBuilder, seal};
    use super::*;
    use crate::cache::BlockCache;
    use crate::error::ErrorKind;
    use crate::vfs::{Fs, Layer, MemoryFs};

    /// A root in page 2 with the children `a`, which has the key "a", and `b`, in a file of 600 pages of which `free` are free.
    fn tree(
        page_size: usize,
        [a, b]: [Pointer; 2],
        free: &[(u64, u64)],
        shares: bool,
    ) -> (Arc<Noted>, Arc<Root>) {
        let path = Path::new("/tree");
        let inner = MemoryFs::new().create(path, Layer::Positional).unwrap();
        inner.allocate(600 * page_size as u64).unwrap();
        let put = |page: u64, bytes: &mut Vec<u8>| {
            let offset = page * page_size as u64;
            seal(bytes, 1, offset, 1);
            inner.write_at(offset, bytes).unwrap();
        };
        for (at, key) in [(a, b"a"), (b, b"b")] {
            let (mut leaf, mut bytes) = (LeafBuilder::new(page_size), Vec::new());
            leaf.push(key, Stored::Inline(b"value"));
            leaf.finish(&mut bytes);
            put(at.page(), &mut bytes);
        }
        let (mut top, mut bytes) = (InnerBuilder::new(page_size, 1), Vec::new());
        top.push_first(a);
        top.push(b"b", b);
        top.finish(&mut bytes);
        put(2, &mut bytes);
        let noted = Noted::new(&inner, shares);
        let (cache, file) = (Arc::new(BlockCache::new(0)), Arc::clone(&noted));
        let kept = Kept::of_its_own(0);
        let file = PageFile::new(file, inner, path, 1, page_size, cache, kept);
        let top = Some(Top { at: Pointer::new(2, 1, 1), level: 1 });
        let space = Space::new(600, free.iter().copied().collect());
        (noted, Root::new(1, top, Arc::new(file), &space).unwrap())
    }

    /// A checkpoint may be writing to the page between the leaves.
    #[test]
    fn leaves_that_are_read_together_are_copied_without_the_free_pages_between() {
        for (shares, expected) in
            [(false, [2..3, 3..6].to_vec()), (true, [2..3, 3..4, 5..6].to_vec())]
        {
            let leaves = [3, 5].map(|page| Pointer::new(page, 1, 1));
            let (noted, root) = tree(4096, leaves, &[(4, 1)], shares);
            let found = root.multi_get(&[b"a", b"b"], &BatchReader::new(1)).unwrap();
            assert!(found.iter().all(|value| value.as_deref() == Some(b"value")));
            let mut read = noted.read();
            read.sort_unstable_by_key(|pages| pages.start);
            read.dedup();
            assert_eq!(read, expected);
        }
    }

    /// A pointer may say that there is more, and many pointers that it is all there is.
    #[test]
    fn no_more_is_read_of_a_node_than_the_largest_has() {
        const MOST: u64 = (512 << 10) / 4096;
        let leaves = [3, 4].map(|page| Pointer::new(page, Pointer::MAX_PAGES, 1));
        let expect_refused = |read: &dyn Fn(&Root) -> Result<()>| {
            let (noted, root) = tree(64 << 10, leaves, &[], false);
            assert_eq!(read(&root).unwrap_err().kind(), ErrorKind::Corruption);
            assert!(
                noted.read().iter().all(|pages| pages.end - pages.start <= MOST),
                "{:?}",
                noted.read()
            );
        };
        expect_refused(&|root| root.get(b"a").map(drop));
        expect_refused(&|root| root.multi_get(&[b"a", b"b"], &BatchReader::new(1)).map(drop));
        let between = |root: &Root| {
            root.node_between(leaves[0], 0, b"", None, &mut Ahead::default()).map(drop)
        };
        expect_refused(&between);
    }
}
