//! Files that say what cannot be, with right checksums: an error or other data than there was, but no panic, no hang and
//! no more memory than the file is large.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::base::{checksum, varint};
use crate::btree::meta::{self, FreeList, Meta, Top, confirmation};
use crate::btree::node::{Inner, InnerBuilder, Leaf, LeafBuilder, Pointer, Stored, seal};
use crate::vfs::{Layer, MemoryFs};
use crate::{Database, Error, ErrorKind, KeyspaceOptions, Result};

const KEYS: u32 = 6000;
const PAGE: usize = 4096;
/// One that copies what is read, and one that lends it.
const LAYERS: [Layer; 2] = [Layer::Positional, Layer::Mmap];

fn open(fs: &MemoryFs) -> Result<Database> {
    let fs = Arc::new(fs.clone());
    Database::builder("/db").file_system(fs).memory_budget(8 << 20).open()
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// Three levels, some values of several pages, and some free pages.
fn sample() -> MemoryFs {
    let fs = MemoryFs::new();
    let db = open(&fs).unwrap();
    let keyspace = db.keyspace("tree", KeyspaceOptions::btree().log(false)).unwrap();
    for number in 0..KEYS {
        let len = if number % 500 == 3 { 9000 } else { 40 };
        let long = [key(number), vec![b'.'; 300]].concat();
        let key = if number % 3 == 0 { long } else { key(number) };
        keyspace.put(key, vec![number as u8; len]).unwrap();
    }
    keyspace.persist().unwrap();
    for number in (0..KEYS).step_by(100) {
        keyspace.delete(key(number + 1)).unwrap();
    }
    keyspace.persist().unwrap();
    assert_eq!(keyspace.stats().tree.unwrap().levels, 3);
    drop(keyspace);
    drop(db);
    fs
}

/// An inner node, taken apart.
#[derive(Clone)]
struct Parts {
    children: Vec<Pointer>,
    separators: Vec<Vec<u8>>,
}

/// The file of the keyspace, to be forged.
struct Forger {
    fs: MemoryFs,
    path: PathBuf,
    bytes: Vec<u8>,
    identity: u64,
    meta: Meta,
}

impl Forger {
    fn new(sample: &MemoryFs) -> Self {
        let fs = sample.fork();
        let files = fs.files().into_iter();
        let (path, bytes) = files
            .into_iter()
            .find(|(path, _)| path.file_name().is_some_and(|n| n == "tree"))
            .unwrap();
        let front = if bytes[..4] == [0; 4] { &bytes[PAGE..] } else { &bytes[..] };
        let identity = u64::from_le_bytes(front[16..24].try_into().unwrap());
        let read = |offset: u64, len: usize| Ok(bytes[offset as usize..][..len].to_vec());
        let (_, meta) = meta::find(&path, identity, bytes.len() as u64, read).unwrap();
        Self { fs, path, identity, meta, bytes }
    }

    fn offset(page: u64) -> usize {
        page as usize * PAGE
    }

    fn node(&self, at: Pointer) -> &[u8] {
        &self.bytes[Self::offset(at.page())..][..at.pages() as usize * PAGE]
    }

    fn top(&self) -> Top {
        self.meta.top.unwrap()
    }

    fn inner(&self, at: Pointer) -> Parts {
        let inner = Inner::new(self.node(at));
        let mut separators = vec![Vec::new(); inner.len()];
        (0..inner.len()).for_each(|index| inner.separator_into(index, &mut separators[index]));
        Parts { children: (0..=inner.len()).map(|index| inner.child(index)).collect(), separators }
    }

    /// Writes a node of any number of pages where one of `at` was, and gives the pointer to it.
    fn put(&mut self, at: Pointer, mut bytes: Vec<u8>) -> Pointer {
        let offset = Self::offset(at.page());
        seal(&mut bytes, self.identity, offset as u64, self.meta.generation);
        self.bytes[offset..offset + bytes.len()].copy_from_slice(&bytes);
        Pointer::new(at.page(), (bytes.len() / PAGE) as u64, self.meta.generation)
    }

    fn put_inner(&mut self, at: Pointer, level: u8, parts: &Parts) -> Pointer {
        let mut builder = InnerBuilder::new(PAGE, level);
        builder.push_first(parts.children[0]);
        for (separator, &child) in parts.separators.iter().zip(&parts.children[1..]) {
            builder.push(separator, child);
        }
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        self.put(at, bytes)
    }

    fn put_leaf(&mut self, at: Pointer, records: &[(Vec<u8>, Stored<'_>)]) -> Pointer {
        let mut builder = LeafBuilder::new(PAGE);
        records.iter().for_each(|(key, value)| builder.push(key, *value));
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        self.put(at, bytes)
    }

    /// Puts another root in place of the present one.
    fn set_root(&mut self, level: u8, parts: &Parts) {
        let at = self.put_inner(self.top().at, level, parts);
        self.meta.top = Some(Top { at, level });
    }

    /// Puts another one in place of the first node below the root.
    fn set_first_inner(&mut self, level: u8, parts: &Parts) {
        let mut root = self.inner(self.top().at);
        root.children[0] = self.put_inner(root.children[0], level, parts);
        self.set_root(2, &root);
    }

    /// Puts a leaf in place of the second one.
    fn set_leaf(&mut self, records: &[(Vec<u8>, Stored<'_>)]) {
        let mut first = self.inner(self.inner(self.top().at).children[0]);
        first.children[1] = self.put_leaf(first.children[1], records);
        self.set_first_inner(1, &first);
    }

    /// Makes the forged file that of the database.
    fn finish(mut self) -> MemoryFs {
        let meta = self.meta;
        let at = Self::offset(meta.page());
        let bytes = meta.encode(self.identity, PAGE);
        self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
        let (offset, bytes) = confirmation(&meta, self.identity, PAGE);
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        self.fs.write_file(&self.path, &self.bytes).unwrap();
        self.fs
    }
}

/// What comes of using a database: whether something was found to be wrong.
struct Outcome {
    reads: bool,
    verify: bool,
}

/// Uses the database in all ways. Panics of background threads show as errors.
fn use_it(fs: &MemoryFs, layer: Layer) -> Outcome {
    let mut outcome = Outcome { reads: false, verify: false };
    let mut note = |error: Option<Error>| {
        let Some(error) = error else { return };
        let is_known = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Poisoned);
        assert!(is_known && !error.to_string().contains("panic"), "{error:?}");
        outcome.reads = true;
    };
    let db = match open(fs) {
        Ok(db) => db,
        Err(error) => {
            note(Some(error));
            return Outcome { reads: true, verify: true };
        }
    };
    let options = KeyspaceOptions::btree().log(false).layer(layer);
    let keyspace = match db.keyspace("tree", options) {
        Ok(keyspace) => keyspace,
        Err(error) => {
            note(Some(error));
            return Outcome { reads: true, verify: true };
        }
    };
    outcome_of_verify(&db, &mut outcome.verify);
    let keys: Vec<_> = (0..KEYS).step_by(7).map(key).collect();
    for key in &keys {
        note(keyspace.get(key).err());
    }
    note(keyspace.multi_get(&keys).err());
    note(keyspace.iter().find_map(Result::err));
    note(keyspace.iter().rev().find_map(Result::err));
    note(keyspace.count().err());
    let mut cursor = keyspace.cursor().unwrap();
    for key in keys.iter().step_by(10) {
        note(cursor.seek(key).err());
        note(cursor.seek_for_prev(key).err());
        note(cursor.prev().err());
    }
    // These go on where they stand when all of it has been written anew.
    let mut standing: Vec<_> =
        (0..KEYS).step_by(1000).map(|from| keyspace.range(key(from)..)).collect();
    standing.iter_mut().for_each(|range| note(range.next().and_then(Result::err)));
    for number in 0..KEYS {
        if number % 5 == 0 {
            let _ = keyspace.put(key(number), [1; 100]);
        } else if number % 5 == 2 {
            let _ = keyspace.delete(key(number));
        }
    }
    note(keyspace.persist().err());
    note(keyspace.compact().err());
    standing.into_iter().for_each(|mut range| note(range.find_map(Result::err)));
    note(keyspace.iter().find_map(Result::err));
    for number in 0..KEYS {
        let _ = keyspace.delete(key(number));
    }
    note(keyspace.compact().err());
    note(keyspace.put("more", "of it").err());
    note(keyspace.persist().err());
    note(db.close().err());
    outcome
}

fn outcome_of_verify(db: &Database, found: &mut bool) {
    *found = !db.verify().unwrap().problems.is_empty();
}

/// The same in a while, or it hangs.
fn outcome(what: &str, fs: MemoryFs, layer: Layer) -> Outcome {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || done.send(use_it(&fs, layer)));
    match wait.recv_timeout(Duration::from_secs(60)) {
        Ok(outcome) => outcome,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().unwrap_err())
        }
    }
}

fn forge(what: &str, sample: &MemoryFs, change: impl FnOnce(&mut Forger)) {
    let mut forger = Forger::new(sample);
    change(&mut forger);
    let fs = forger.finish();
    for layer in LAYERS {
        let outcome = outcome(what, fs.fork(), layer);
        assert!(outcome.verify, "{what}, {layer}: verify finds nothing");
    }
}

#[test]
fn the_forger_changes_nothing_by_itself() {
    let sample = sample();
    let mut forger = Forger::new(&sample);
    let first = forger.inner(forger.inner(forger.top().at).children[0]);
    forger.set_first_inner(1, &first);
    let fs = forger.finish();
    for layer in LAYERS {
        let outcome = outcome("nothing", fs.fork(), layer);
        assert!(!outcome.verify && !outcome.reads, "{layer}");
    }
}

#[test]
fn inner_nodes_that_lead_astray() {
    let sample = sample();
    forge("a root that is its own child", &sample, |forger| {
        let mut root = forger.inner(forger.top().at);
        root.children[1] = Pointer::new(forger.top().at.page(), 1, forger.meta.generation);
        forger.set_root(2, &root);
    });
    forge("one child of all separators", &sample, |forger| {
        let mut root = forger.inner(forger.top().at);
        let same = root.children[0];
        root.children.fill(same);
        forger.set_root(2, &root);
    });
    forge("one leaf of all separators", &sample, |forger| {
        let mut first = forger.inner(forger.inner(forger.top().at).children[0]);
        let same = first.children[0];
        first.children.fill(same);
        forger.set_first_inner(1, &first);
    });
    forge("two children change places", &sample, |forger| {
        let mut first = forger.inner(forger.inner(forger.top().at).children[0]);
        first.children.swap(0, 2);
        forger.set_first_inner(1, &first);
    });
    forge("a child outside of the file", &sample, |forger| {
        let mut root = forger.inner(forger.top().at);
        root.children[1] = Pointer::new(1 << 39, 1, 1);
        forger.set_root(2, &root);
    });
    forge("a child behind the tree's pages", &sample, |forger| {
        let mut first = forger.inner(forger.inner(forger.top().at).children[0]);
        first.children[1] = Pointer::new(forger.meta.pages, 200, 1);
        forger.set_first_inner(1, &first);
    });
    forge("a child that is a meta page's neighbour and much more", &sample, |forger| {
        let mut first = forger.inner(forger.inner(forger.top().at).children[0]);
        first.children[1] = Pointer::new(2, 256, 1);
        forger.set_first_inner(1, &first);
    });
    forge("two pointers to one leaf, of which one is too short for it", &sample, |forger| {
        let page = forger.meta.pages;
        forger.meta.pages += 2;
        let len = forger.bytes.len().max(Forger::offset(page + 2));
        forger.bytes.resize(len, 0);
        let mut first = forger.inner(forger.inner(forger.top().at).children[0]);
        let long = [&first.separators[0][..], &[b'!'; 5000]].concat();
        let records = [(long, Stored::Inline(b"value"))];
        first.children[1] = forger.put_leaf(Pointer::new(page, 1, 1), &records);
        assert_eq!(first.children[1].pages(), 2);
        first.children[2] = Pointer::new(page, 1, forger.meta.generation);
        forger.set_first_inner(1, &first);
    });
    forge("a node of a wrong level", &sample, |forger| {
        let first = forger.inner(forger.inner(forger.top().at).children[0]);
        forger.set_first_inner(2, &first);
    });
    forge("a leaf for an inner node", &sample, |forger| {
        let mut root = forger.inner(forger.top().at);
        let leaf = forger.inner(root.children[0]).children[0];
        root.children[0] = leaf;
        forger.set_root(2, &root);
    });
    forge("a root of another level", &sample, |forger| {
        forger.meta.top = Some(Top { level: 1, ..forger.top() });
    });
    forge("separators that their children do not keep to", &sample, |forger| {
        let mut first = forger.inner(forger.inner(forger.top().at).children[0]);
        for separator in &mut first.separators {
            separator.truncate(4);
        }
        first.separators.dedup();
        first.children.truncate(first.separators.len() + 1);
        forger.set_first_inner(1, &first);
    });
    forge("a separator that is the one above", &sample, |forger| {
        let mut root = forger.inner(forger.top().at);
        let mut second = forger.inner(root.children[1]);
        second.separators[0].clone_from(&root.separators[0]);
        root.children[1] = forger.put_inner(root.children[1], 1, &second);
        forger.set_root(2, &root);
    });
    forge("a separator that is not between those above", &sample, |forger| {
        let mut first = forger.inner(forger.inner(forger.top().at).children[0]);
        *first.separators.last_mut().unwrap() = b"z".to_vec();
        forger.set_first_inner(1, &first);
    });
}

/// A chain of nodes of which each has two children, that are the same one: reading all of it would take for ever.
#[test]
fn ways_that_double_at_each_level() {
    let sample = sample();
    for is_empty in [false, true] {
        forge("a ladder", &sample, |forger| {
            let root = forger.inner(forger.top().at);
            let first = forger.inner(root.children[0]);
            let records: &[_] = &[(b"key 1".to_vec(), Stored::Inline(b""))];
            let records = if is_empty { &[] } else { records };
            let mut below = forger.put_leaf(first.children[0], records);
            let places: Vec<_> = first.children[1..].iter().filter(|at| at.pages() == 1).collect();
            for (level, place) in (1..60).zip(places.into_iter().cycle()) {
                let separators = vec![vec![b'k'; level as usize]];
                let parts = Parts { children: vec![below; 2], separators };
                if level as usize > first.children.len() - 3 {
                    break;
                }
                below = forger.put_inner(*place, level, &parts);
                forger.meta.top = Some(Top { at: below, level });
            }
        });
    }
}

#[test]
fn trees_of_too_many_levels() {
    let sample = sample();
    for level in [60, 200, 254] {
        forge("a high root", &sample, |forger| {
            let parts = forger.inner(forger.top().at);
            forger.set_root(level, &parts);
        });
    }
}

#[test]
fn leaves_that_lie() {
    let sample = sample();
    let stored = |at, len| Stored::Overflow { at, len };
    for (what, len) in [("a value of a gigabyte", 1 << 30), ("one of some pages", 50_000)] {
        forge(what, &sample, |forger| {
            let at = Pointer::new(forger.meta.pages - 1, 1, 1);
            forger.set_leaf(&[(key(20), stored(at, len))]);
        });
        forge(what, &sample, |forger| {
            forger.set_leaf(&[(key(20), stored(Pointer::new(1 << 39, 1, 1), len))]);
        });
        forge(what, &sample, |forger| {
            forger.set_leaf(&[(key(20), stored(forger.top().at, len))]);
        });
    }
    forge("a leaf without records", &sample, |forger| forger.set_leaf(&[]));
    forge("keys that belong elsewhere", &sample, |forger| {
        forger.set_leaf(&[
            (b"a".to_vec(), Stored::Inline(b"b")),
            (b"z".to_vec(), Stored::Inline(b"")),
        ]);
    });
    forge("two records with one value in other pages", &sample, |forger| {
        let page = forger.meta.pages - 1;
        let offset = Forger::offset(page);
        let mut bytes = vec![0; PAGE];
        bytes[8..16].copy_from_slice(&forger.meta.generation.to_le_bytes());
        let sum = checksum::bound(forger.identity, offset as u64, &bytes[4..16 + 2000]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        forger.bytes[offset..offset + PAGE].copy_from_slice(&bytes);
        let value = stored(Pointer::new(page, 1, forger.meta.generation), 2000);
        let mut first = forger.inner(forger.inner(forger.top().at).children[0]);
        let from = first.separators[0].clone();
        let next = [&from[..], b"!"].concat();
        first.children[1] = forger.put_leaf(first.children[1], &[(from, value), (next, value)]);
        forger.set_first_inner(1, &first);
    });
}

#[test]
fn counts_that_are_wrong() {
    let sample = sample();
    for count in [0, 1, u64::MAX] {
        forge("records", &sample, |forger| forger.meta.counts.records = count);
        forge("leaves", &sample, |forger| forger.meta.counts.leaves = count);
        forge("inner nodes", &sample, |forger| forger.meta.counts.inner = count);
        forge("pages of values", &sample, |forger| forger.meta.counts.overflow_pages = count);
    }
}

/// Puts a list of free pages into the file, where there was one.
fn set_free(forger: &mut Forger, list: &[u8]) {
    let page = forger.meta.free.unwrap().page;
    let offset = Forger::offset(page);
    let mut bytes = vec![0; PAGE];
    bytes[8..16].copy_from_slice(&forger.meta.generation.to_le_bytes());
    bytes[16..16 + list.len()].copy_from_slice(list);
    let sum = checksum::bound(forger.identity, offset as u64, &bytes[4..16 + list.len()]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    forger.bytes[offset..offset + PAGE].copy_from_slice(&bytes);
    forger.meta.free = Some(FreeList { page, len: list.len() as u64 });
}

/// The list of these runs: first page, number of pages.
fn list(runs: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut end = 0;
    for &(page, count) in runs {
        varint::put(&mut bytes, page.wrapping_sub(end));
        varint::put(&mut bytes, count - 1);
        end = page + count;
    }
    bytes
}

#[test]
fn lists_of_free_pages_that_lie() {
    let sample = sample();
    forge("all pages are free", &sample, |forger| {
        let pages = forger.meta.pages;
        set_free(forger, &list(&[(2, pages - 2)]));
    });
    forge("the root is free", &sample, |forger| {
        let page = forger.top().at.page();
        set_free(forger, &list(&[(page, 1)]));
    });
    forge("the last pages are free", &sample, |forger| {
        let pages = forger.meta.pages;
        set_free(forger, &list(&[(pages - 100, 100)]));
    });
    forge("pages behind the end are free", &sample, |forger| {
        let pages = forger.meta.pages;
        set_free(forger, &list(&[(pages - 1, 1 << 50)]));
    });
    forge("a run twice", &sample, |forger| set_free(forger, &list(&[(20, 5), (20, 5)])));
    forge("noise", &sample, |forger| set_free(forger, &[0xff; 300]));
    forge("the list itself is free", &sample, |forger| {
        let page = forger.meta.free.unwrap().page;
        set_free(forger, &list(&[(page, 1)]));
    });
    for len in [0, 1 << 20, 1 << 40, u64::MAX] {
        forge("a list of another length", &sample, |forger| {
            forger.meta.free.as_mut().unwrap().len = len;
        });
    }
    forge("a list somewhere else", &sample, |forger| {
        forger.meta.free.as_mut().unwrap().page = forger.top().at.page();
    });
}

/// A reader of a mapped file is lent pages that nobody writes to or cuts off while it reads: those in use. What is free, too, the next
/// checkpoint takes, and is lent to nobody.
#[test]
fn pages_that_are_in_use_and_free_are_not_lent() {
    let sample = sample();
    let forger = Forger::new(&sample);
    let [first, second, ..] = forger.inner(forger.top().at).children[..] else { panic!() };
    let leaf = forger.inner(first).children[1];
    let key_in = |leaf: Pointer, index: usize| {
        let mut key = Vec::new();
        Leaf::new(forger.node(leaf)).key_into(index, &mut key);
        key
    };
    let value = forger.inner(first).children.into_iter().find_map(|at| {
        let leaf = Leaf::new(forger.node(at));
        (0..leaf.len()).find_map(|index| match leaf.value(index) {
            Stored::Overflow { at: value, .. } => Some((value, key_in(at, index))),
            Stored::Inline(_) => None,
        })
    });
    let (value, key_of_value) = value.unwrap();
    let below_second = key_in(forger.inner(second).children[0], 0);
    let pages = forger.meta.pages;
    let (last, key_in_last) = forger
        .inner(first)
        .children
        .into_iter()
        .chain(forger.inner(second).children)
        .map(|leaf| (leaf.page(), key_in(leaf, 0)))
        .max()
        .unwrap();
    let cases = [
        ("a leaf", (leaf.page(), 1), key_in(leaf, 0)),
        ("an inner node", (second.page(), 1), below_second),
        ("the second page of a value", (value.page() + 1, 1), key_of_value),
        ("the end", (last, pages - last), key_in_last),
    ];
    for (what, run, key) in cases {
        let mut forger = Forger::new(&sample);
        set_free(&mut forger, &list(&[run]));
        let has_root = (run.0..run.0 + run.1).contains(&forger.top().at.page());
        let db = open(&forger.finish()).unwrap();
        let options = KeyspaceOptions::btree().log(false).layer(Layer::Mmap);
        let keyspace = db.keyspace("tree", options).unwrap();
        for round in 0..3 {
            let mut cursor = keyspace.cursor().unwrap();
            let errors = [
                cursor.seek(&key).err(),
                cursor.seek_for_prev(&key).err(),
                keyspace.get(&key).err(),
                keyspace.multi_get([&key]).err(),
                keyspace.iter().find_map(Result::err),
                keyspace.iter().rev().find_map(Result::err),
                keyspace.count().err(),
            ];
            for (error, call) in errors.into_iter().zip(1..) {
                let kind = error.map(|error| error.kind());
                assert_eq!(kind, Some(ErrorKind::Corruption), "{what}, round {round}, call {call}");
            }
            // In front of all others, so that the checkpoint takes the page and reads nothing that leads there.
            keyspace.put(format!("a {round}"), [1; 3000]).unwrap();
            let failed = keyspace.persist().err().map(|error| error.kind());
            assert_eq!(failed, has_root.then_some(ErrorKind::Corruption), "{what}");
        }
    }
}

#[test]
fn meta_pages_that_lie() {
    let sample = sample();
    forge("more pages than the file has", &sample, |forger| forger.meta.pages = 1 << 30);
    forge("as many as can be", &sample, |forger| forger.meta.pages = u64::MAX);
    forge("fewer than are used", &sample, |forger| {
        forger.meta.pages = forger.top().at.page() + 1;
        forger.meta.free = None;
    });
    forge("another page for the root", &sample, |forger| {
        let at = forger.inner(forger.top().at).children[0];
        forger.meta.top = Some(Top { at, level: 2 });
    });
    forge("no root", &sample, |forger| forger.meta.top = None);
}

/// A checkpoint that no opening would take is not made.
#[test]
fn the_last_generation_stays_the_last() {
    for below in 1..5 {
        let mut forger = Forger::new(&sample());
        forger.meta.generation = (1 << 56) - below;
        forger.meta.free = None;
        let at = forger.top().at;
        let root = forger.inner(at);
        forger.set_root(2, &root);
        let fs = forger.finish();
        let db = open(&fs).unwrap();
        let keyspace = db.open_keyspace("tree").unwrap();
        for round in 0..5u8 {
            let _ = keyspace.put("more", [round]);
            let _ = keyspace.persist();
            let db = open(&fs.fork()).unwrap();
            assert!(
                db.open_keyspace("tree").unwrap().get(key(1000)).unwrap().is_some(),
                "{below}, {round}"
            );
        }
    }
}
