//! What fuzzers do with the parts of the file of a B+ tree.

use std::path::Path;

use super::meta;
use super::node::{self, Inner, Leaf, Pointer, Stored};
use super::space::Space;
use crate::error::Error;
use crate::options::MAX_KEY_LEN;

const IDENTITY: u64 = 7;
const PAGE: usize = 4096;
/// The most pages that a file has here.
const MOST_PAGES: u64 = 1 << 20;

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

/// Parts as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::super::meta::{Counts, FreeList, Meta, Top};
    use super::super::node::{InnerBuilder, LeafBuilder};
    use super::*;
    use crate::base::varint;

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
}
