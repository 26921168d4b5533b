//! The file of pages as it is read: nodes and overflow values, checked when they come from disk, and cached.
//!
//! A layer that lends its bytes needs no cache: a bit for each page says whether it has been checked since it was
//! last written. Other layers' nodes are kept in a block cache once they are checked: the database's, or one of
//! the keyspace's own if it has a bound of its own.
//!
//! An overflow value lies in consecutive pages:
//! ```text
//! checksum u32 of the rest, bound to (identity of the keyspace, offset) | zero u32 | generation u64 | value
//! ```
//! Thread safety: any thread may read. Whoever writes a page sees to it that nobody reads it: pages in use are never
//! written. [`forget`](PageFile::forget) is called before a page is written anew.

use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::ahead::Ahead;
use super::in_use::InUse;
use super::kept::Kept;
use super::node::{self, Pointer};
use crate::base::prefetch::prefetch;
use crate::base::{Slice, View, checksum, room};
use crate::cache::{BlockCache, FileBlocks};
use crate::error::{Error, Result};
use crate::planted::{Bug, planted};
use crate::vfs::{File, LockGuard, ReadRequest};

/// Bytes in front of an overflow value.
pub(super) const OVERFLOW_HEADER: usize = 16;
/// What the processor reads at once.
const LINE: usize = 64;
/// The pages of the first chunk of what is known page by page; each further chunk doubles all there is.
const FIRST_CHUNK: u64 = 1 << 10;
const CHUNKS: usize = 31;

/// An open file of pages.
pub(super) struct PageFile {
    pub(super) file: Arc<dyn File>,
    /// The same file as it is written.
    pub(super) out: Arc<dyn File>,
    path: PathBuf,
    identity: u64,
    page_size: usize,
    /// Whether nodes are copied out of what the file gives: its views show what is written to their pages later, and
    /// hold on to the frames of a page cache.
    copies: bool,
    cache: Arc<BlockCache>,
    cached: Chunks<Arc<FileBlocks>>,
    /// Which pages have begun a node that passed the check since they were last written, a bit each. Read again, its
    /// checksum is checked, unless the file lends its bytes: those have not gone.
    checked: Chunks<Box<[AtomicU64]>>,
    /// Memory for inner nodes that trees keep beside the cache.
    pub(super) kept: Kept,
    /// The database's lock.
    lock: Option<Weak<LockGuard>>,
    /// How many times a node was asked for.
    requests: AtomicU64,
    /// How many times it had to be read from the file.
    reads: AtomicU64,
}

/// The bytes of a node.
pub(super) enum Node<'a> {
    /// A part of the file, whose pages may be used again when the tree is gone.
    Lent(&'a [u8]),
    /// From the cache, or just read.
    Own(View),
}

impl Deref for Node<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Own(view) => view,
        }
    }
}

/// All bytes of a file, and what keeps others from changing it for as long as they are read.
pub(super) struct Lent {
    view: View,
    _lock: Option<Arc<LockGuard>>,
}

impl Deref for Lent {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.view
    }
}

/// Something for each page, which grows as the file does, without a lock for those who read.
struct Chunks<T>([OnceLock<T>; CHUNKS]);

impl<T> Chunks<T> {
    fn new() -> Self {
        Self([const { OnceLock::new() }; CHUNKS])
    }

    /// The chunk that `page` is in, how many pages it has, and which one of them it is.
    #[inline]
    fn place(page: u64) -> (usize, u64, u64) {
        let chunk = (page / FIRST_CHUNK + 1).ilog2() as usize;
        let len = FIRST_CHUNK << chunk;
        (chunk, len, page - (len - FIRST_CHUNK))
    }

    #[inline]
    fn get(&self, page: u64) -> Option<(&T, usize)> {
        let (chunk, _, at) = Self::place(page);
        Some((self.0[chunk].get()?, at as usize))
    }

    /// The same, made if need be, and if it can be.
    fn get_or_make(&self, page: u64, make: impl FnOnce(usize) -> Option<T>) -> Option<(&T, usize)> {
        let (chunk, len, at) = Self::place(page);
        let place = &self.0[chunk];
        if place.get().is_none() {
            // Somebody else may have been first.
            let _ = place.set(make(len as usize)?);
        }
        Some((place.get()?, at as usize))
    }

    fn made(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(OnceLock::get)
    }
}

impl PageFile {
    pub(super) fn new(
        file: Arc<dyn File>,
        out: Arc<dyn File>,
        path: &Path,
        identity: u64,
        page_size: usize,
        cache: Arc<BlockCache>,
        kept: Kept,
    ) -> Self {
        Self {
            copies: file.shares(),
            out,
            kept,
            lock: None,
            file,
            path: path.to_path_buf(),
            identity,
            page_size,
            cache,
            cached: Chunks::new(),
            checked: Chunks::new(),
            requests: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        }
    }

    /// The same file, which others change when this lock is gone: what it [lends](Self::lend) holds on to it.
    pub(super) fn locked_by(mut self, lock: &Weak<LockGuard>) -> Self {
        self.lock = Some(Weak::clone(lock));
        self
    }

    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    pub(super) fn page_size(&self) -> usize {
        self.page_size
    }

    /// Whether what is read is copied out of memory that is written to by others.
    pub(super) fn copies(&self) -> bool {
        self.copies
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a page begins.
    #[inline]
    pub(super) fn offset(&self, page: u64) -> u64 {
        page * self.page_size as u64
    }

    /// Nodes asked for, and nodes read from the file.
    pub(super) fn counters(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.reads.load(Ordering::Relaxed))
    }

    /// All bytes of a file of `pages` pages, if its layer lends them.
    ///
    /// # Errors
    /// `Closed` if the database is closed.
    pub(super) fn lend(&self, pages: u64) -> Result<Option<Lent>> {
        if !self.file.lends() {
            return Ok(None);
        }
        let lock =
            self.lock.as_ref().map(|lock| lock.upgrade().ok_or(Error::Closed)).transpose()?;
        let lock = lock.filter(|_| !planted(Bug::LendWithoutLock));
        Ok(Some(Lent { view: self.file.view(0..self.offset(pages))?, _lock: lock }))
    }

    /// The node at `at`, which must be one of `level`. `lent` is what [`lend`](Self::lend) gave.
    #[inline]
    pub(super) fn node<'a>(
        &'a self,
        lent: Option<&'a Lent>,
        at: Pointer,
        level: u8,
    ) -> Result<Node<'a>> {
        let Some(lent) = lent else { return self.cached_node(at, level).map(Node::Own) };
        let start = at.page() as usize * self.page_size;
        let bytes =
            lent.get(start..).and_then(|rest| rest.get(..at.pages() as usize * self.page_size));
        let bytes = bytes.ok_or_else(|| self.outside(at))?;
        if self.is_checked(at.page()) || planted(Bug::TrustLentBytes) {
            self.expect_all(bytes, at)?;
            self.expect_generation(at, node::generation(bytes))?;
        } else {
            self.check(bytes, at)?;
        }
        self.expect_level(bytes, at, level)?;
        Ok(Node::Lent(bytes))
    }

    fn cached_node(&self, at: Pointer, level: u8) -> Result<View> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let view = match self.cached.get(at.page()).and_then(|(blocks, index)| blocks.get(index)) {
            Some(view) => view,
            None => return self.admit(at, level, self.read(at)?),
        };
        self.expect_level(&view, at, level)?;
        Ok(view)
    }

    /// The bytes of the node at `at`, not yet checked.
    pub(super) fn read(&self, at: Pointer) -> Result<View> {
        let pages = at.page()..at.page() + at.pages();
        self.read_pages(pages).map_err(|error| self.unread(at, error))
    }

    /// The bytes of `pages`, nobody else's, with one call.
    pub(super) fn read_pages(&self, pages: Range<u64>) -> Result<View> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let (start, end) = (self.offset(pages.start), self.offset(pages.end));
        if !self.copies {
            return self.file.view(start..end);
        }
        let mut bytes = vec![0; (end - start) as usize];
        self.file.read_at(start, &mut bytes)?;
        Ok(View::from(bytes))
    }

    /// Whether the node at `at` is cached.
    pub(super) fn is_cached(&self, at: Pointer) -> bool {
        self.cached.get(at.page()).is_some_and(|(blocks, index)| blocks.contains(index))
    }

    /// The error of a tree that cannot be read at all.
    pub(super) fn unreadable(&self, error: io::Error) -> Error {
        Error::io("read", &self.path, None, error)
    }

    /// The error for a node at `at` that could not be read.
    pub(super) fn unread(&self, at: Pointer, error: Error) -> Error {
        self.short(at, self.range(at).end, error)
    }

    /// Asks ahead for all of the node at `at`, if it is cached.
    pub(super) fn prefetch(&self, at: Pointer) {
        let cached = self.cached.get(at.page()).and_then(|(blocks, index)| blocks.peek(index));
        if let Some(view) = cached {
            view.chunks(LINE).for_each(|line| prefetch(&line[0]));
        }
    }

    /// What is to be read for the node at `at`, which counts as asked for and read.
    pub(super) fn request(&self, at: Pointer) -> ReadRequest {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        ReadRequest { file: Arc::clone(&self.file), range: self.range(at) }
    }

    /// Checks the bytes of the node at `at`, which have just been read and must be one of `level`, and caches them.
    pub(super) fn admit(&self, at: Pointer, level: u8, view: View) -> Result<View> {
        let view = if self.copies { View::from(view.to_vec()) } else { view };
        self.check(&view, at)?;
        self.expect_level(&view, at, level)?;
        self.keep(at, &view);
        Ok(view)
    }

    /// Caches a node that is whole, if there is memory for the places of so many pages.
    pub(super) fn keep(&self, at: Pointer, node: &[u8]) {
        let is_room = |len: &usize| FileBlocks::is_room_for(*len);
        let make = |len| {
            Some(len).filter(is_room).map(|len| FileBlocks::new(Arc::clone(&self.cache), len))
        };
        if let Some((blocks, index)) = self.cached.get_or_make(at.page(), make) {
            blocks.insert(index, node);
        }
    }

    /// `pages` from `page` on are going to be written anew: what is known of them counts no more.
    pub(super) fn forget(&self, page: u64, pages: u64) {
        if planted(Bug::StaleNodes) {
            return;
        }
        for page in page..page + pages {
            if let Some((blocks, index)) = self.cached.get(page) {
                blocks.remove(index);
            }
            if let Some((bits, index)) = self.checked.get(page) {
                bits[index / 64].fetch_and(!(1 << (index % 64)), Ordering::Relaxed);
            }
        }
    }

    /// The leaf at `at` in a tree that has `pages`, for those who read one leaf behind the other: it is not
    /// cached for them.
    pub(super) fn leaf_past_cache(
        &self,
        at: Pointer,
        pages: &InUse,
        ahead: &mut Ahead,
    ) -> Result<View> {
        let cached = self.cached.get(at.page()).and_then(|(blocks, index)| blocks.peek(index));
        let Some(view) = cached else { return self.read_anew(at, 0, pages, ahead) };
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.expect_level(&view, at, 0)?;
        Ok(view)
    }

    /// The node at `at`, which must be one of `level`, as the file has it now, whatever is cached; a leaf with those behind it.
    pub(super) fn read_anew(
        &self,
        at: Pointer,
        level: u8,
        pages: &InUse,
        ahead: &mut Ahead,
    ) -> Result<View> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let view = if level == 0 { ahead.read(self, at, pages)? } else { self.read(at)? };
        self.check(&view, at)?;
        self.expect_level(&view, at, level)?;
        Ok(view)
    }

    /// Reads and checks the overflow value of `len` bytes at `at`.
    pub(super) fn overflow(&self, at: Pointer, len: u64) -> Result<Slice> {
        let start = self.offset(at.page());
        let end = start + OVERFLOW_HEADER as u64 + len;
        let view = self.file.view(start..end).map_err(|error| self.short(at, end, error))?;
        let sum = checksum::bound(self.identity, start, &view[4..]);
        if !checksum::matches(&view[..4], sum.to_le_bytes()) || view[4..8] != [0; 4] {
            return Err(self.damaged(at, "a value's checksum is not that of its bytes"));
        }
        let generation = u64::from_le_bytes(view[8..16].try_into().expect("8 bytes"));
        self.expect_generation(at, generation)?;
        if self.copies {
            // Its pages may be used again while the value is still held.
            return Ok(Slice::from(view[OVERFLOW_HEADER..].to_vec()));
        }
        let range = OVERFLOW_HEADER..view.len();
        Ok(Slice::from_view(view, range))
    }

    /// An error that says what is wrong with the node or value at `at`.
    pub(super) fn damaged(&self, at: Pointer, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, self.offset(at.page()), what)
    }

    /// Bytes of memory that inner nodes take which trees keep, and looking after the cached pages, without these.
    pub(super) fn memory(&self) -> usize {
        let bits = self.checked.made().map(|bits| size_of_val(&**bits)).sum::<usize>();
        self.cached.made().map(|blocks| blocks.memory()).sum::<usize>() + bits + self.kept.used()
    }

    fn range(&self, at: Pointer) -> Range<u64> {
        self.offset(at.page())..self.offset(at.page() + at.pages())
    }

    fn check(&self, bytes: &[u8], at: Pointer) -> Result<()> {
        let offset = self.offset(at.page());
        let is_checked = self.is_checked(at.page());
        if !is_checked {
            let checked = node::check(bytes, self.identity, offset, self.page_size);
            checked.map_err(|what| self.damaged(at, what))?;
        } else {
            self.check_again(bytes, at)?;
        }
        self.expect_generation(at, node::generation(bytes))?;
        // Only now: nobody looks at these bytes again.
        if !is_checked {
            self.set_checked(at.page());
        }
        Ok(())
    }

    /// Checks the checksum of a node that may have been checked before, and that all of it is there.
    pub(super) fn check_again(&self, bytes: &[u8], at: Pointer) -> Result<()> {
        match node::is_whole(bytes, self.identity, self.offset(at.page())) {
            true => self.expect_all(bytes, at),
            false => Err(self.damaged(at, "the checksum of a node does not match")),
        }
    }

    /// An error unless `bytes` have all that is used of a node: it may have been checked for another pointer, with more pages.
    #[inline]
    fn expect_all(&self, bytes: &[u8], at: Pointer) -> Result<()> {
        match node::used(bytes) <= bytes.len() {
            true => Ok(()),
            false => Err(self.damaged(at, "a pointer has fewer pages than the node it leads to")),
        }
    }

    fn expect_generation(&self, at: Pointer, generation: u64) -> Result<()> {
        match at.is_of(generation) || planted(Bug::IgnoreGeneration) {
            true => Ok(()),
            false => Err(self.damaged(at, "the page is not the one that was written there last")),
        }
    }

    #[inline]
    fn expect_level(&self, bytes: &[u8], at: Pointer, level: u8) -> Result<()> {
        match node::level(bytes) == level {
            true => Ok(()),
            false => Err(self.damaged(at, format!("the node is not one of level {level}"))),
        }
    }

    #[inline]
    fn is_checked(&self, page: u64) -> bool {
        let bits = self.checked.get(page);
        bits.is_some_and(|(bits, at)| bits[at / 64].load(Ordering::Relaxed) >> (at % 64) & 1 == 1)
    }

    fn set_checked(&self, page: u64) {
        let make = |len: usize| {
            let bits = room::collected((0..len / 64).map(|_| AtomicU64::new(0)));
            bits.ok().map(Vec::into_boxed_slice)
        };
        if let Some((bits, at)) = self.checked.get_or_make(page, make) {
            bits[at / 64].fetch_or(1 << (at % 64), Ordering::Relaxed);
        }
    }

    fn outside(&self, at: Pointer) -> Error {
        self.damaged(at, "a pointer leads behind the end of the tree's pages")
    }

    /// What ends behind the end of the file is damage, not an error of reading.
    fn short(&self, at: Pointer, end: u64, error: Error) -> Error {
        match self.file.len() {
            Ok(len) if len < end => self.outside(at),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::{LeafBuilder, Stored};
    use super::*;
    use crate::error::ErrorKind;
    use crate::vfs::{Fs, Layer, MemoryFs};

    #[test]
    fn every_page_has_a_place_of_its_own() {
        let mut next = (0, 0);
        for page in 0..5 * FIRST_CHUNK {
            let (chunk, len, at) = Chunks::<()>::place(page);
            assert_eq!((chunk, at), next, "page {page}");
            next = if at + 1 == len { (chunk + 1, 0) } else { (chunk, at + 1) };
        }
        assert!(Chunks::<()>::place(Pointer::MAX_PAGE - 1).0 < CHUNKS);
    }

    /// Two pointers lead to one node whose checksum is right for both, though one of them has fewer pages.
    #[test]
    fn a_pointer_that_is_too_short_is_refused_whoever_came_first() {
        const PAGE: usize = 4096;
        let path = Path::new("/tree");
        let file = MemoryFs::new().create(path, Layer::Positional).unwrap();
        let (mut leaf, mut bytes) = (LeafBuilder::new(PAGE), Vec::new());
        leaf.push(&[b'k'; 5000], Stored::Inline(b"value"));
        assert_eq!(leaf.finish(&mut bytes), 2);
        node::seal(&mut bytes, 1, 2 * PAGE as u64, 1);
        file.write_at(2 * PAGE as u64, &bytes).unwrap();
        let (cache, kept) = (Arc::new(BlockCache::new(0)), Kept::of_its_own(0));
        let file = PageFile::new(Arc::clone(&file), file, path, 1, PAGE, cache, kept);
        let pages = InUse::all_but(4, std::iter::empty()).unwrap();
        let read = |count| {
            let at = Pointer::new(2, count, 1);
            checksum::mended(|| file.leaf_past_cache(at, &pages, &mut Ahead::default()).map(drop))
        };
        read(2).unwrap();
        assert_eq!(read(1).unwrap_err().kind(), ErrorKind::Corruption);
    }
}
