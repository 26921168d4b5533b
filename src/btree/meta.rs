//! The meta pages: which tree the file holds.
//!
//! Pages 0 and 1 of the file. A checkpoint writes the one that the last checkpoint did not write, so that there is
//! always a whole one; the larger generation counts.
//!
//! ```text
//! offset  size
//!      0     8  magic "TBD-TRE\n"
//!      8     4  format version
//!     12     4  bytes of a page
//!     16     8  identity of the keyspace
//!     24     8  generation: the number of the checkpoint; it is written to page `generation % 2`
//!     32     8  persisted: all writes up to this number are in the tree
//!     40     8  reach: no write above this number is in the tree
//!     48     8  pointer to the root; 0 if the tree is empty
//!     56     4  levels of the tree: 0 if it is empty, 1 if the root is a leaf
//!     60     4  zero
//!     64     8  pages of the file that are in use or free; what lies behind them means nothing
//!     72     8  first page of the list of free pages; 0 if there is none
//!     80     8  bytes of that list
//!     88     8  records
//!     96     8  leaves
//!    104     8  inner nodes
//!    112     8  pages of overflow values
//!    120     4  checksum of bytes 0..120, bound to (identity of the keyspace, offset of the page)
//!
//!    512     8  confirmed: the generation of the other meta page, once that is safe from power loss
//!    520     4  checksum of bytes 512..520, bound to (identity of the keyspace, their offset)
//! ```
//! A meta page that is not whole is one that was being written when the power failed, unless the other one has
//! confirmed it, or it is the only one: then it has been damaged, and the older tree must not be taken for the
//! newest. Both parts lie in sectors of their own, which are written whole or not at all; the confirmation is zeros
//! until it is first written.

use std::path::Path;

use super::file::OVERFLOW_HEADER;
use super::node::Pointer;
use crate::base::key::MAX_SEQNO;
use crate::base::{Seqno, checksum};
use crate::error::{Error, Result};
use crate::options::PAGE_SIZES;
use crate::planted::{Bug, planted};

const MAGIC: [u8; 8] = *b"TBD-TRE\n";
const FORMAT_VERSION: u32 = 1;
/// The bytes of a meta page that say something.
const LEN: usize = 124;
const SUM: usize = LEN - 4;
/// Where the confirmation is, and how long it is.
const CONFIRMED: usize = 512;
const CONFIRMED_LEN: usize = 12;
/// What is read of a meta page: less than the smallest page.
const READ: usize = CONFIRMED + CONFIRMED_LEN;
/// A tree has fewer levels: each has twice the nodes of the one above, and all together no more than there are pages.
const LEVELS: u8 = 64;

/// No tree will ever have had so many checkpoints.
pub(super) const MOST_GENERATIONS: u64 = 1 << 56;

/// How many nodes and records there are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Counts {
    pub(super) records: u64,
    pub(super) leaves: u64,
    pub(super) inner: u64,
    pub(super) overflow_pages: u64,
}

impl Counts {
    /// Whether a file of `pages` pages has room for them.
    fn are_possible(&self, pages: u64) -> bool {
        let Self { records, leaves, inner, overflow_pages } = *self;
        let most_records = pages.saturating_mul(u64::from(*PAGE_SIZES.end()));
        leaves.max(inner).max(overflow_pages) <= pages && records <= most_records
    }
}

/// A list of free pages: its first page and its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FreeList {
    pub(super) page: u64,
    pub(super) len: u64,
}

/// The root of a tree, and its level: 0 for a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Top {
    pub(super) at: Pointer,
    pub(super) level: u8,
}

/// What a checkpoint says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Meta {
    pub(super) generation: u64,
    pub(super) persisted: Seqno,
    pub(super) reach: Seqno,
    pub(super) top: Option<Top>,
    pub(super) pages: u64,
    pub(super) free: Option<FreeList>,
    pub(super) counts: Counts,
}

impl Meta {
    /// The meta of a new, empty tree.
    pub(super) fn empty() -> Self {
        Self {
            generation: 1,
            persisted: 0,
            reach: 0,
            top: None,
            pages: Pointer::FIRST_PAGE,
            free: None,
            counts: Counts::default(),
        }
    }

    /// The page it is written to.
    pub(super) fn page(&self) -> u64 {
        self.generation % 2
    }

    /// Its bytes, to be written at the front of its page.
    pub(super) fn encode(&self, identity: u64, page_size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(CONFIRMED);
        let number = |bytes: &mut Vec<u8>, number: u64| bytes.extend(number.to_le_bytes());
        let short = |bytes: &mut Vec<u8>, number: u32| bytes.extend(number.to_le_bytes());
        bytes.extend(MAGIC);
        short(&mut bytes, FORMAT_VERSION);
        short(&mut bytes, page_size as u32);
        for word in [identity, self.generation, self.persisted, self.reach] {
            number(&mut bytes, word);
        }
        number(&mut bytes, self.top.map_or(0, |top| top.at.bits()));
        short(&mut bytes, self.top.map_or(0, |top| u32::from(top.level) + 1));
        short(&mut bytes, 0);
        number(&mut bytes, self.pages);
        number(&mut bytes, self.free.map_or(0, |free| free.page));
        number(&mut bytes, self.free.map_or(0, |free| free.len));
        let Counts { records, leaves, inner, overflow_pages } = self.counts;
        for word in [records, leaves, inner, overflow_pages] {
            number(&mut bytes, word);
        }
        let sum = checksum::bound(identity, self.page() * page_size as u64, &bytes);
        short(&mut bytes, sum);
        bytes.resize(CONFIRMED, 0);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let levels = u32::from_le_bytes(bytes[56..60].try_into().expect("4 bytes"));
        let top = match (number(48), levels) {
            (0, 0) => None,
            (bits, levels) => {
                let level = u8::try_from(levels.checked_sub(1)?).ok()?;
                Some(Top { at: Pointer::from_bits(bits)?, level })
            }
        };
        let free = match (number(72), number(80)) {
            (0, 0) => None,
            (page, len) => Some(FreeList { page, len }),
        };
        let counts = Counts {
            records: number(88),
            leaves: number(96),
            inner: number(104),
            overflow_pages: number(112),
        };
        Some(Self {
            generation: number(24),
            persisted: number(32),
            reach: number(40),
            top,
            pages: number(64),
            free,
            counts,
        })
    }

    fn is_possible(&self, page: u64, page_size: usize) -> bool {
        let inside = |page: u64| (Pointer::FIRST_PAGE..self.pages).contains(&page);
        let list_is_inside = |FreeList { page, len }: FreeList| {
            inside(page) && len <= (self.pages - page) * page_size as u64 - OVERFLOW_HEADER as u64
        };
        self.page() == page
            && (1..MOST_GENERATIONS).contains(&self.generation)
            && self.persisted <= self.reach
            && self.reach <= MAX_SEQNO
            && (Pointer::FIRST_PAGE..Pointer::MAX_PAGE).contains(&self.pages)
            && self.top.is_none_or(|top| inside(top.at.page()) && top.level < LEVELS)
            && self.free.is_none_or(list_is_inside)
            && self.counts.are_possible(self.pages)
    }
}

/// The bytes that confirm `meta`, and where in the file they go: into the page of the other one.
pub(super) fn confirmation(meta: &Meta, identity: u64, page_size: usize) -> (u64, Vec<u8>) {
    let offset = (1 - meta.page()) * page_size as u64 + CONFIRMED as u64;
    let mut bytes = meta.generation.to_le_bytes().to_vec();
    let sum = checksum::bound(identity, offset, &bytes);
    bytes.extend(sum.to_le_bytes());
    (offset, bytes)
}

/// What one meta page says.
enum Page {
    /// It is not whole.
    Broken,
    Whole(Meta),
}

/// The file's page size and newest meta. `read` gives bytes from an offset of the file on, which has `len` bytes.
pub(super) fn find(
    path: &Path,
    identity: u64,
    len: u64,
    read: impl Fn(u64, usize) -> Result<Vec<u8>>,
) -> Result<(usize, Meta)> {
    let damaged = |offset: u64, what: &str| Error::corruption(path, offset, what);
    if len < 2 * u64::from(*PAGE_SIZES.start()) {
        return Err(damaged(len, "the file is too short for its meta pages"));
    }
    let first = read(0, READ)?;
    let page_size = match page_size_of(path, &first, identity, 0)? {
        Some(page_size) => page_size,
        // The first page is not whole: the second one is where it would be with one of the possible sizes.
        None => {
            let mut size = *PAGE_SIZES.start() as usize;
            loop {
                if size > *PAGE_SIZES.end() as usize || len < 2 * size as u64 {
                    return Err(damaged(0, "no meta page is whole"));
                }
                let page = read(size as u64, READ)?;
                if page_size_of(path, &page, identity, size as u64)? == Some(size) {
                    break size;
                }
                size *= 2;
            }
        }
    };
    if len < 2 * page_size as u64 {
        return Err(damaged(len, "the file is too short for its meta pages"));
    }
    let second = read(page_size as u64, READ)?;
    let mut newest: Option<Meta> = None;
    let mut confirmed = 0;
    for (number, bytes) in [&first, &second].into_iter().enumerate() {
        let offset = number as u64 * page_size as u64;
        confirmed = confirmed.max(confirmed_by(path, bytes, identity, offset)?);
        let page = match page_size_of(path, bytes, identity, offset)? {
            None => Page::Broken,
            Some(size) if size != page_size => {
                return Err(damaged(
                    offset,
                    "the two meta pages do not agree on the size of a page",
                ));
            }
            Some(_) => {
                let meta = Meta::decode(bytes);
                match meta.filter(|meta| meta.is_possible(number as u64, page_size)) {
                    Some(meta) => Page::Whole(meta),
                    None => return Err(damaged(offset, "the meta page says what cannot be")),
                }
            }
        };
        if let Page::Whole(meta) = page
            && newest.is_none_or(|newest| newest.generation < meta.generation)
        {
            newest = Some(meta);
        }
    }
    let meta = newest.ok_or_else(|| damaged(0, "no meta page is whole"))?;
    if meta.generation < confirmed && !planted(Bug::IgnoreConfirmation) {
        let offset = (1 - meta.page()) * page_size as u64;
        return Err(damaged(offset, "the newest meta page is damaged"));
    }
    if len / (page_size as u64) < meta.pages {
        let what = format!("the file should have {} pages of {page_size} bytes", meta.pages);
        return Err(damaged(len, &what));
    }
    Ok((page_size, meta))
}

/// The page size that a meta page names; `None` if the page is not whole.
fn page_size_of(path: &Path, bytes: &[u8], identity: u64, offset: u64) -> Result<Option<usize>> {
    let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    if bytes[..8] == MAGIC && short(8) > FORMAT_VERSION {
        let file = path.to_path_buf();
        return Err(Error::NewerFormat { file, found: short(8), supported: FORMAT_VERSION });
    }
    let is_whole = bytes[..8] == MAGIC
        && short(8) == FORMAT_VERSION
        && bytes[16..24] == identity.to_le_bytes()
        && checksum::matches(short(SUM), checksum::bound(identity, offset, &bytes[..SUM]));
    let size = short(12);
    let is_possible = size.is_power_of_two() && PAGE_SIZES.contains(&size);
    Ok((is_whole && is_possible).then_some(size as usize))
}

/// The generation that the page at `offset` confirms; 0 if none.
fn confirmed_by(path: &Path, bytes: &[u8], identity: u64, offset: u64) -> Result<u64> {
    let part = &bytes[CONFIRMED..CONFIRMED + CONFIRMED_LEN];
    if part.iter().all(|&byte| byte == 0) {
        return Ok(0);
    }
    let at = offset + CONFIRMED as u64;
    let (number, sum) = part.split_at(8);
    if !checksum::matches(sum, &checksum::bound(identity, at, number).to_le_bytes()[..]) {
        return Err(Error::corruption(path, at, "the confirmation of a meta page is damaged"));
    }
    Ok(u64::from_le_bytes(number.try_into().expect("8 bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_nothing_can_follow_are_damage() {
        const PAGE: usize = 4096;
        let is_found = |meta: Meta| {
            let mut file = vec![0; 2 * PAGE];
            let bytes = meta.encode(7, PAGE);
            let at = meta.page() as usize * PAGE;
            file[at..at + bytes.len()].copy_from_slice(&bytes);
            let read = |offset: u64, len| Ok(file[offset as usize..offset as usize + len].to_vec());
            find(Path::new("tree"), 7, file.len() as u64, read).is_ok()
        };
        let empty = Meta::empty();
        let last = Meta { persisted: MAX_SEQNO, reach: MAX_SEQNO, ..empty };
        assert!(is_found(empty) && is_found(last));
        assert!(is_found(Meta { generation: MOST_GENERATIONS - 1, ..empty }));
        assert!(!is_found(Meta { reach: MAX_SEQNO + 1, ..last }));
        for generation in [MOST_GENERATIONS, u64::MAX] {
            assert!(!is_found(Meta { generation, ..empty }));
        }
    }

    #[test]
    fn a_free_list_that_ends_behind_the_tree_is_damage() {
        const PAGE: usize = 4096;
        let is_possible = |page, len| {
            let free = Some(FreeList { page, len });
            Meta { pages: 9, free, ..Meta::empty() }.is_possible(1, PAGE)
        };
        let most = (2 * PAGE - OVERFLOW_HEADER) as u64;
        assert!(is_possible(7, 0) && is_possible(7, most));
        for len in [most + 1, u64::MAX - 2 * PAGE as u64, u64::MAX] {
            assert!(!is_possible(7, len), "{len} bytes");
        }
        assert!(!is_possible(9, 1));
    }
}
