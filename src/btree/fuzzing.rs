//! What fuzzers do with the parts of the file of a B+ tree.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::cursor::TreeCursor;
use super::file::PageFile;
use super::kept::Kept;
use super::meta::{FreeList, Meta};
use super::node::{self, Inner, Leaf, Pointer, Stored};
use super::root::Root;
use super::space::Space;
use super::verify::{Subject, verify};
use super::{meta, writer};
use crate::base::Trailer;
use crate::cache::BlockCache;
use crate::error::{Error, Result};
use crate::iter::EntryCursor;
use crate::options::MAX_KEY_LEN;
use crate::stats::VerifyReport;
use crate::vfs::{Access, BatchReader, Layer, MemoryFs};

const IDENTITY: u64 = 7;
const PAGE: usize = 4096;
/// The most pages that a file has here.
const MOST_PAGES: u64 = 1 << 20;
/// Keys that are looked for in a whole tree.
const KEYS: [&[u8]; 5] = [b"", b"record 17", b"record 17x", b"value 1", b"\xff\xff\xff"];
/// The most records that are walked over in one: pages that lead to the same ones have no end that is soon reached.
const STEPS: usize = 1 << 10;

/// The front of the file: both meta pages, with zeros between them, as [`unfolded`] makes of the input.
pub(crate) fn meta(bytes: &[u8]) {
    let file = unfolded(bytes);
    let read = |offset: u64, len: usize| {
        let bytes = file.get(offset as usize..).and_then(|rest| rest.get(..len));
        bytes.map(<[u8]>::to_vec).ok_or_else(|| Error::corruption(Path::new("tree"), offset, "cut"))
    };
    let Some(identity) = file.get(16..).and_then(|rest| rest.first_chunk()) else { return };
    let identity = u64::from_le_bytes(*identity);
    for len in [file.len() as u64, 1 << 40] {
        let Ok((page_size, meta)) = meta::find(Path::new("tree"), identity, len, read) else {
            continue;
        };
        assert!(meta.pages <= len / page_size as u64 && meta.page() < 2);
        let (at, confirmed) = meta::confirmation(&meta, identity, page_size);
        assert!(at + (confirmed.len() as u64) < 2 * page_size as u64);
        let again = meta.encode(identity, page_size);
        assert!(again.len() <= PAGE);
    }
}

/// Halves of the input at the front of two pages.
fn unfolded(bytes: &[u8]) -> Vec<u8> {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut file = first[..first.len().min(PAGE)].to_vec();
    file.resize(PAGE, 0);
    file.extend_from_slice(&second[..second.len().min(PAGE)]);
    file.resize(2 * PAGE, 0);
    file
}

/// A node, with zeros up to the end of its last page.
pub(crate) fn node(bytes: &[u8]) {
    let mut node = bytes.to_vec();
    node.resize(bytes.len().next_multiple_of(PAGE), 0);
    match node::check(&node, IDENTITY, PAGE as u64, PAGE) {
        Err(_) => {}
        Ok(0) => leaf(&node),
        Ok(_) => inner(&node),
    }
}

fn leaf(node: &[u8]) {
    let leaf = Leaf::new(node);
    assert!(leaf.used() <= node.len());
    let mut key = Vec::new();
    for index in 0..leaf.len() {
        leaf.key_into(index, &mut key);
        assert!(key.len() <= MAX_KEY_LEN && key.starts_with(leaf.prefix()));
        assert_eq!((leaf.find(&key), leaf.lower_bound(&key)), (Some(index), index));
        assert!(leaf.key_is(index, &key));
        match leaf.value(index) {
            Stored::Inline(value) => assert_eq!(&node[leaf.parts(index).payload], value),
            Stored::Overflow { at, .. } => assert!(at.page() >= Pointer::FIRST_PAGE),
        }
        key.push(0);
        assert!(leaf.find(&key).is_none_or(|found| found == index + 1));
    }
}

fn inner(node: &[u8]) {
    let inner = Inner::new(node);
    let mut key = Vec::new();
    for index in 0..=inner.len() {
        assert!(inner.child(index).page() >= Pointer::FIRST_PAGE);
        if index < inner.len() {
            inner.separator_into(index, &mut key);
            assert_eq!(inner.child_for(&key), index + 1);
        }
    }
    assert!(inner.child_for(b"") <= inner.len());
}

/// A list of free pages, behind the number of pages of the file as a `u32`.
pub(crate) fn free_list(bytes: &[u8]) {
    let Some((end, list)) = bytes.split_first_chunk() else { return };
    let end = u64::from(u32::from_le_bytes(*end)) % MOST_PAGES + Pointer::FIRST_PAGE;
    let Some(runs) = Space::read_list(list, end) else { return };
    let mut space = Space::new(end, runs.clone());
    assert!(space.free() <= end && space.list().is_some());
    let page = space.take(1, 2);
    assert!((Pointer::FIRST_PAGE..space.end()).contains(&page));
    space.take(3, 2);
    // A tree may give up what is free.
    for page in Pointer::FIRST_PAGE..end.min(20) {
        space.give(page, 1 + page % 3, 2);
    }
    let _ = (space.list(), space.unused());
    space.give_all(None, 3);
    let _ = space.list();
    space.roll_back();
    assert_eq!((space.end(), space.free()), (end, runs.values().sum()));
    space.cut_end();
    space.commit();
    space.release(&[2, 3], 3);
    space.release(&[], 3);
}

/// A whole file. Of each page the input has its length as a `u16`, and its bytes without the zeros at its end.
pub(crate) fn file(bytes: &[u8]) {
    verified(bytes);
}

/// Does with a tree what readers do, by several layers, and verifies it.
fn verified(bytes: &[u8]) -> Vec<VerifyReport> {
    let mut reports = Vec::new();
    let (mut file, mut rest) = (Vec::new(), bytes);
    while let Some((len, behind)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len)).min(PAGE).min(behind.len());
        let (page, behind) = behind.split_at(len);
        file.extend_from_slice(page);
        file.resize(file.len().next_multiple_of(PAGE), 0);
        rest = behind;
    }
    // The identity that one of its meta pages has is the right one.
    let identity_at = |page: usize| {
        let bytes = file.get(page * PAGE + 16..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes)).filter(|&identity| identity != 0)
    };
    let Some(identity) = identity_at(0).or_else(|| identity_at(1)) else { return reports };
    let (fs, dir) = (MemoryFs::new(), Path::new("/"));
    let path = writer::path(dir);
    fs.write_file(&path, &file).expect("memory takes it");
    for (layer, cache, most_kept) in
        [(Layer::Mmap, 0, 0), (Layer::Positional, 64 << 10, 64 << 10), (Layer::Positional, 0, 0)]
    {
        let opened = writer::open(&fs, dir, Access::Read, layer, identity);
        let Ok((file, page_size, meta)) = opened else { continue };
        let (out, cache) = (Arc::clone(&file), Arc::new(BlockCache::new(cache)));
        let kept = Kept::of_its_own(most_kept);
        let file = PageFile::new(file, out, &path, identity, page_size, cache, kept);
        let file = Arc::new(file);
        let space = space(&file, &meta);
        let unused = space.as_ref().and_then(Space::list);
        let space = space.unwrap_or_else(|| Space::new(meta.pages, BTreeMap::new()));
        let Ok(root) = Root::new(meta.persisted, meta.top, file, &space) else { continue };
        used(&root);
        let mut report = VerifyReport::default();
        verify(&Subject { root, meta, unused }, &mut report);
        reports.push(report);
    }
    reports
}

/// What the list of free pages says, if there can be such a list.
fn space(file: &PageFile, meta: &Meta) -> Option<Space> {
    let runs = match meta.free {
        None => BTreeMap::new(),
        Some(FreeList { page, len }) => {
            let at = Pointer::new(page, 1, meta.generation);
            Space::read_list(&file.overflow(at, len).ok()?, meta.pages)?
        }
    };
    Some(Space::new(meta.pages, runs))
}

/// Reads a tree in all ways.
fn used(root: &Arc<Root>) {
    for key in KEYS {
        let _ = root.get(key);
    }
    let _ = root.multi_get(&KEYS, &BatchReader::new(1));
    let mut cursor = TreeCursor::new(Arc::clone(root));
    if EntryCursor::seek_to_first(&mut cursor).is_ok() {
        walk(&mut cursor, EntryCursor::next);
    }
    if EntryCursor::seek_to_last(&mut cursor).is_ok() {
        walk(&mut cursor, EntryCursor::prev);
    }
    for key in KEYS {
        if EntryCursor::seek(&mut cursor, key, Trailer::NEWEST).is_ok() {
            walk(&mut cursor, EntryCursor::next);
        }
        if EntryCursor::seek_before(&mut cursor, key, Trailer::OLDEST).is_ok() {
            walk(&mut cursor, EntryCursor::prev);
        }
    }
}

fn walk(cursor: &mut TreeCursor, step: impl Fn(&mut TreeCursor) -> Result<()>) {
    for _ in 0..STEPS {
        if !EntryCursor::is_valid(cursor) {
            break;
        }
        assert!(EntryCursor::key(cursor).len() <= MAX_KEY_LEN);
        if step(cursor).is_err() {
            break;
        }
    }
}

/// Parts as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::super::meta::{Counts, FreeList, Meta, Top};
    use super::super::node::{InnerBuilder, LeafBuilder};
    use super::*;
    use crate::base::varint;
    use crate::database::Database;
    use crate::options::{KeyspaceOptions, MIN_MEMORY_BUDGET};

    pub(crate) fn metas() -> Vec<Vec<u8>> {
        let empty = Meta::empty();
        let counts = Counts { records: 900, leaves: 30, inner: 2, overflow_pages: 7 };
        let full = Meta {
            generation: 2,
            persisted: 70,
            reach: 90,
            top: Some(Top { at: Pointer::new(9, 1, 2), level: 1 }),
            pages: 50,
            free: Some(FreeList { page: 12, len: 40 }),
            counts,
        };
        let folded = |metas: &[Meta]| {
            let mut out = vec![0; 2 * 600];
            for meta in metas {
                let bytes = meta.encode(IDENTITY, PAGE);
                let at = 600 * meta.page() as usize;
                out[at..at + bytes.len()].copy_from_slice(&bytes);
                let (at, bytes) = meta::confirmation(meta, IDENTITY, PAGE);
                let at = 600 * (at as usize / PAGE) + at as usize % PAGE;
                out[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            out
        };
        vec![folded(&[empty]), folded(&[full]), folded(&[empty, full])]
    }

    /// What is in front of the zeros at the end.
    fn without_zeros(mut node: Vec<u8>) -> Vec<u8> {
        node::seal(&mut node, IDENTITY, PAGE as u64, 3);
        node.truncate(node.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1));
        node
    }

    pub(crate) fn nodes() -> Vec<Vec<u8>> {
        let leaf = |keys: &[&[u8]]| {
            let (mut builder, mut out) = (LeafBuilder::new(PAGE), Vec::new());
            for (at, key) in keys.iter().enumerate() {
                let overflow = Stored::Overflow { at: Pointer::new(40, 2, 3), len: 5000 };
                let value = Stored::Inline(&b"a value of some bytes"[..at * 3]);
                builder.push(key, if at == 3 { overflow } else { value });
            }
            builder.finish(&mut out);
            without_zeros(out)
        };
        let inner = |keys: &[&[u8]]| {
            let (mut builder, mut out) = (InnerBuilder::new(PAGE, 1), Vec::new());
            builder.push_first(Pointer::new(5, 1, 1));
            for (page, key) in (6..).zip(keys) {
                builder.push(key, Pointer::new(page, 1, 2));
            }
            builder.finish(&mut out);
            without_zeros(out)
        };
        let keys: [&[u8]; 6] =
            [b"record a", b"record ab", b"record b", b"record c0", b"record c1", b"record d"];
        let long = [[b'k'; 3000], [b'l'; 3000]];
        vec![
            leaf(&[]),
            leaf(&[b""]),
            leaf(&keys),
            leaf(&[&long[0], &long[1]]),
            inner(&[]),
            inner(&keys),
        ]
    }

    pub(crate) fn free_lists() -> Vec<Vec<u8>> {
        let list = |end: u32, runs: &[(u64, u64)]| {
            let mut out = end.to_le_bytes().to_vec();
            let mut last = 0;
            for (page, count) in runs {
                varint::put(&mut out, page - last);
                varint::put(&mut out, count - 1);
                last = page + count;
            }
            out
        };
        vec![list(10, &[]), list(30, &[(2, 1), (5, 3), (29, 3)]), list(1 << 19, &[(700, 1 << 18)])]
    }

    /// Files of trees of a database: empty ones, one of a leaf, and one with an inner node, long values and free pages.
    pub(crate) fn files() -> Vec<Vec<u8>> {
        [0, 30, 90].map(tree).into_iter().collect()
    }

    #[test]
    fn whole_trees_are_found_whole() {
        for file in files() {
            let reports = verified(&file);
            assert_eq!(reports.len(), 3);
            for VerifyReport { problems, .. } in reports {
                assert!(problems.is_empty(), "{problems:?}");
            }
        }
    }

    fn tree(records: usize) -> Vec<u8> {
        let fs = MemoryFs::new();
        let builder = Database::builder("/db").file_system(Arc::new(fs.clone()));
        let db = builder.memory_budget(MIN_MEMORY_BUDGET).open().expect("memory takes it");
        let tree = db
            .keyspace("tree", KeyspaceOptions::btree().page_size(PAGE as u32).log(false))
            .expect("it is new");
        for round in 0..2_usize {
            for number in 0..records {
                let value = vec![number as u8; 40 + round];
                tree.put(format!("record {number:02}"), value).expect("memory takes it");
            }
            if records > 50 {
                tree.put("value 1", vec![7; 5000]).expect("memory takes it");
            }
            tree.persist().expect("memory takes it");
        }
        let is_tree = |path: &Path| path.ends_with("tree");
        let (_, file) = fs.files().into_iter().find(|(path, _)| is_tree(path)).expect("made");
        db.close().expect("memory takes it");
        let mut folded = Vec::new();
        for page in file.chunks(PAGE) {
            let len = page.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
            folded.extend_from_slice(&(len as u16).to_le_bytes());
            folded.extend_from_slice(&page[..len]);
        }
        folded
    }
}
