//! Making the next tree, without the engine around it: any changes of any tree, in steps of any size, against a map.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::{Dice, Model};
use crate::base::{Kind, Seqno, Trailer};
use crate::btree::changes::Changes;
use crate::btree::cursor::TreeCursor;
use crate::btree::file::PageFile;
use crate::btree::kept::Kept;
use crate::btree::meta::{Counts, Top};
use crate::btree::node::Pointer;
use crate::btree::rewrite::{Rewritten, Source, Which};
use crate::btree::root::Root;
use crate::btree::verify::{Subject, verify};
use crate::btree::writer::{self, Writer};
use crate::budget::Budget;
use crate::cache::BlockCache;
use crate::contract::Host;
use crate::iter::OrderedCursor;
use crate::memtable::{self, MemtableCursor};
use crate::options::MemtableKind;
use crate::stats::VerifyReport;
use crate::vfs::{Access, Layer, MemoryFs};
use crate::{Error, Result};

const IDENTITY: u64 = 7;

/// A host that nothing is asked of.
struct Nobody;

impl Host for Nobody {
    fn sync_log(&self, _: Seqno) -> Result<()> {
        Ok(())
    }
    fn persisted(&self) {}
    fn trouble(&self, _: Option<Error>) {}
    fn poison(&self, _: &Error) {}
    fn check_poison(&self) -> Result<()> {
        Ok(())
    }
}

type Edits = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A file, its newest tree, and what that should have.
struct Tree {
    fs: MemoryFs,
    writer: Writer,
    root: Arc<Root>,
    model: Model,
    seqno: Seqno,
}

impl Tree {
    fn new(page_size: usize) -> Self {
        let fs = MemoryFs::new();
        writer::create(&fs, Path::new("/"), Layer::Positional, IDENTITY, page_size).unwrap();
        let (writer, root) = Self::open(&fs);
        Self { fs, writer, root, model: Model::new(), seqno: 0 }
    }

    fn open(fs: &MemoryFs) -> (Writer, Arc<Root>) {
        let (dir, layer) = (Path::new("/"), Layer::Positional);
        let (file, page_size, meta) =
            writer::open(fs, dir, Access::Write, layer, IDENTITY).unwrap();
        let cache = Arc::new(BlockCache::new(20 * page_size as u64));
        let file = PageFile::new(
            Arc::clone(&file),
            file,
            &writer::path(dir),
            IDENTITY,
            page_size,
            cache,
            Kept::of_its_own(0),
        );
        Writer::new(Arc::new(file), meta, Arc::new(Nobody)).unwrap()
    }

    fn reopen(&mut self) {
        self.fs = self.fs.fork();
        (self.writer, self.root) = Self::open(&self.fs);
    }

    /// Merges the edits, in steps that take so many pages.
    fn apply(&mut self, edits: &Edits, most_pages: u64) {
        let memtable = memtable::new(MemtableKind::default(), &Arc::new(Budget::new(8 << 20)));
        for (key, value) in edits {
            self.seqno += 1;
            let kind = if value.is_some() { Kind::Put } else { Kind::Delete };
            let trailer = Trailer::new(self.seqno, kind);
            memtable.insert(key, trailer, value.as_deref().unwrap_or_default());
            match value {
                Some(value) => drop(self.model.insert(key.clone(), value.clone())),
                None => drop(self.model.remove(key)),
            }
        }
        let after = self.root.seqno;
        let mut changes = Changes::new(memtable.cursor(), after, self.seqno).unwrap();
        loop {
            let counts = self.writer.meta().counts;
            let source = Source::Changes(&mut changes);
            let made =
                self.writer.rewrite(&self.root, counts, source, most_pages, &|| false).unwrap();
            let persisted = if made.is_complete { self.seqno } else { after };
            self.root = self.writer.commit(&made, persisted, self.seqno).unwrap();
            self.verify();
            if made.is_complete {
                break;
            }
        }
    }

    fn rewrite_leaves(&mut self, which: &Which, most_pages: u64) {
        let mut from = None;
        loop {
            let counts = self.writer.meta().counts;
            let source: Source<'_, MemtableCursor> = Source::Leaves { from: &mut from, which };
            let made =
                self.writer.rewrite(&self.root, counts, source, most_pages, &|| false).unwrap();
            self.root = self.writer.commit(&made, self.seqno, self.seqno).unwrap();
            self.verify();
            if made.is_complete {
                break;
            }
        }
    }

    fn verify(&self) {
        let root = Arc::clone(&self.root);
        let subject =
            Subject { root, meta: *self.writer.meta(), unused: self.writer.space().list() };
        let mut report = VerifyReport::default();
        verify(&subject, &mut report);
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }

    fn check(&self) {
        self.verify();
        expect(&self.root, &self.model);
        let counts = self.writer.meta().counts;
        assert_eq!(counts.records, self.model.len() as u64);
        if let Some(Top { level, .. }) = self.root.top {
            assert_eq!(level == 0, counts.inner == 0);
        }
    }
}

/// A tree has what the map has, both ways.
fn expect(root: &Arc<Root>, model: &Model) {
    let mut cursor = TreeCursor::new(Arc::clone(root));
    OrderedCursor::seek_to_first(&mut cursor).unwrap();
    for (key, value) in model {
        assert!(OrderedCursor::is_valid(&cursor) && OrderedCursor::key(&cursor) == key);
        assert!(OrderedCursor::value(&cursor) == value);
        assert!(root.get(key).unwrap().unwrap() == *value);
        OrderedCursor::next(&mut cursor).unwrap();
    }
    assert!(!OrderedCursor::is_valid(&cursor));
    OrderedCursor::seek_to_last(&mut cursor).unwrap();
    for (key, value) in model.iter().rev() {
        assert!(OrderedCursor::is_valid(&cursor) && OrderedCursor::key(&cursor) == key);
        assert!(OrderedCursor::value(&cursor) == value);
        OrderedCursor::prev(&mut cursor).unwrap();
    }
    assert!(!OrderedCursor::is_valid(&cursor));
}

/// Few keys that share much, many of them, or long ones.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0u32..3000).prop_map(|number| format!("{:05}", number * 7).into_bytes()),
        2 => proptest::collection::vec(0u8..3, 0..6),
        1 => (0u32..40, 200usize..3000).prop_map(|(number, len)| {
            let mut key = format!("0{number:02}").into_bytes();
            key.resize(len, b'k');
            key
        }),
        1 => (0u8..4, 60_000usize..65_536).prop_map(|(byte, len)| vec![byte * 20; len]),
    ]
}

fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        3 => Just(None),
        6 => (any::<u8>(), 0usize..200).prop_map(|(byte, len)| Some(vec![byte; len])),
        2 => (any::<u8>(), 900usize..1100).prop_map(|(byte, len)| Some(vec![byte; len])),
        1 => (any::<u8>(), 4000usize..20_000).prop_map(|(byte, len)| Some(vec![byte; len])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_changes_of_any_tree(
        rounds in proptest::collection::vec(
            (proptest::collection::btree_map(key(), value(), 0..400), 1u64..40, 0u8..10),
            1..8,
        ),
        large in any::<bool>(),
    ) {
        let mut tree = Tree::new(if large { 64 << 10 } else { 4096 });
        let mut held = None;
        for (edits, most_pages, what) in rounds {
            tree.apply(&edits, most_pages);
            tree.check();
            match what {
                0 => tree.rewrite_leaves(&Which::All, most_pages),
                5 => {
                    let used = tree.writer.used();
                    tree.rewrite_leaves(&Which::Behind(used), most_pages);
                }
                6 => {
                    // A part of the file, longer than all nodes and values, of which nothing is left in it.
                    let end = tree.writer.space().end();
                    let start = (end * most_pages / 40).min(end.saturating_sub(40));
                    let part = start..(start + end / 4 + 40).min(end);
                    tree.rewrite_leaves(&Which::In { pages: part.clone(), end }, u64::MAX);
                    held = None;
                    tree.writer.used();
                    let list = tree.writer.meta().free.map_or(0, |free| free.page);
                    for page in part.filter(|page| !tree.writer.space().is_free(*page)) {
                        prop_assert!(page < Pointer::FIRST_PAGE || page.abs_diff(list) < 20);
                    }
                }
                1 => tree.reopen(),
                2 => held = Some((Arc::clone(&tree.root), tree.model.clone())),
                3 => drop(tree.writer.cut_end(true).unwrap().map(|root| tree.root = root)),
                4 => held = None,
                _ => {}
            }
            tree.check();
            if let Some((root, model)) = &held {
                expect(root, model);
            }
        }
        let all: Edits = tree.model.keys().map(|key| (key.clone(), None)).collect();
        tree.apply(&all, u64::MAX);
        prop_assert!(tree.root.top.is_none());
        tree.check();
    }
}

/// Few pages are touched where few records are changed.
#[test]
fn what_is_not_concerned_is_shared() {
    let mut tree = Tree::new(4096);
    let key = |number: u32| number.to_be_bytes().to_vec();
    let all = (0..20_000).map(|number| (key(number), Some(vec![1; 100]))).collect();
    tree.apply(&all, u64::MAX);
    for round in 0..50 {
        let some = [(key(round * 397 + 5), Some(vec![2; 100])), (key(round * 211), None)];
        let before = tree.writer.space().end();
        tree.apply(&some.into_iter().collect(), u64::MAX);
        // Two ways down, the list of free pages, and what the last tree still has.
        assert!(tree.writer.space().end() <= before.max(600) + 20);
        assert!(tree.writer.space().unused() < 100);
    }
    tree.check();
}

/// Lists of free pages of all lengths around those where one more page is needed for them.
#[test]
fn lists_of_free_pages_of_any_length_lose_no_page() {
    let mut tree = Tree::new(4096);
    let key = |number: u32| number.to_be_bytes().to_vec();
    // Each value has a page of its own; every second one that goes makes a run of two bytes in the list.
    let all = (0..6000).map(|number| (key(number), Some(vec![1; 2000]))).collect();
    tree.apply(&all, u64::MAX);
    let some = (0..3960).step_by(2).map(|number| (key(number), None)).collect();
    tree.apply(&some, u64::MAX);
    for number in (3960..4400).step_by(2) {
        tree.apply(&[(key(number), None)].into_iter().collect(), u64::MAX);
        if number % 50 == 0 {
            tree.reopen();
            tree.verify();
        }
    }
    tree.check();
}

/// A walk that fails, at whatever page, leaves the file as it was.
#[test]
fn a_walk_that_is_stopped_leaves_all_as_it_was() {
    let mut tree = Tree::new(4096);
    let mut dice = Dice::new(2);
    for round in 0..30u64 {
        let edits: Edits = (0..500)
            .map(|_| {
                let key = dice.below(5000).to_be_bytes().to_vec();
                (key, (dice.below(3) > 0).then(|| vec![round as u8; 300]))
            })
            .collect();
        let memtable = memtable::new(MemtableKind::default(), &Arc::new(Budget::new(8 << 20)));
        for (key, value) in &edits {
            let kind = if value.is_some() { Kind::Put } else { Kind::Delete };
            let trailer = Trailer::new(tree.seqno + 1, kind);
            memtable.insert(key, trailer, value.as_deref().unwrap_or_default());
        }
        let (end, unused) = (tree.writer.space().end(), tree.writer.space().list());
        let left = std::cell::Cell::new(round * 3);
        let stop = || left.replace(left.get().saturating_sub(1)) == 0;
        let mut changes = Changes::new(memtable.cursor(), tree.seqno, tree.seqno + 1).unwrap();
        let counts = tree.writer.meta().counts;
        let made =
            tree.writer.rewrite(&tree.root, counts, Source::Changes(&mut changes), u64::MAX, &stop);
        match made {
            Ok(made) => {
                tree.root = tree.writer.commit(&made, tree.seqno, tree.seqno + 1).unwrap();
            }
            Err(_) => {
                assert_eq!((tree.writer.space().end(), tree.writer.space().list()), (end, unused));
                tree.check();
            }
        }
        tree.apply(&edits, 50);
        tree.check();
    }
}

/// Whoever checks a tree reads its list of free pages, too, while the writer goes on.
#[test]
fn a_tree_that_is_held_stays_whole_with_its_list_of_free_pages() {
    let mut tree = Tree::new(4096);
    let key = |number: u32| number.to_be_bytes().to_vec();
    let all = (0..5000).map(|number| (key(number), Some(vec![1; 200]))).collect();
    tree.apply(&all, u64::MAX);
    let most = (1000..5000).map(|number| (key(number), None)).collect();
    tree.apply(&most, u64::MAX);
    let used = tree.writer.used();
    tree.rewrite_leaves(&Which::Behind(used), u64::MAX);
    let subject = Subject {
        root: Arc::clone(&tree.root),
        meta: *tree.writer.meta(),
        unused: tree.writer.space().list(),
    };
    tree.root = tree.writer.cut_end(true).unwrap().expect("its end is free");
    for number in 0..50 {
        tree.apply(&[(key(number * 20), Some(vec![2; 200]))].into_iter().collect(), u64::MAX);
    }
    let mut report = VerifyReport::default();
    verify(&subject, &mut report);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    tree.check();
}

/// After a crash between two steps, the log is replayed in pieces: what the last step put into the tree is still there
/// when the first piece has been merged.
#[test]
fn how_far_the_tree_reaches_is_not_forgotten() {
    let mut tree = Tree::new(4096);
    let made = Rewritten { top: None, counts: Counts::default(), is_complete: false };
    tree.writer.commit(&made, 0, 100).unwrap();
    tree.reopen();
    let made = Rewritten { is_complete: true, ..made };
    tree.writer.commit(&made, 50, 50).unwrap();
    assert_eq!((tree.writer.meta().persisted, tree.writer.meta().reach), (50, 100));
}
