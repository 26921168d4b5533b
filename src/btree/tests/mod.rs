//! The engine as a whole, through the database, against a map.

mod faults;
mod hostile;
mod rewrite;
mod space;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::rng::Rng;
use crate::vfs::{DiskFs, Fs, Layer, MemoryFs};
use crate::{Database, Error, Keyspace, KeyspaceOptions, Slice, Snapshot};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Random numbers.
struct Dice(Rng);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0.next() % limit
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let seed = self.0.next();
        (0..len).map(|at| (seed.rotate_left(at as u32) ^ at) as u8).collect()
    }
}

fn open(fs: &MemoryFs) -> Database {
    let fs = Arc::new(fs.clone());
    Database::builder("/db").file_system(fs).memory_budget(8 << 20).open().unwrap()
}

fn keyspace(db: &Database) -> Keyspace {
    db.keyspace("tree", KeyspaceOptions::btree()).unwrap()
}

fn check_clean(db: &Database) {
    let report = db.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// What a walk gives is what the map has, in its order.
fn expect_same<'a>(
    found: impl Iterator<Item = Result<(Slice, Slice), Error>>,
    expected: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
) {
    let mut expected = expected;
    for item in found {
        let (key, value) = item.unwrap();
        let (wanted, data) = expected.next().expect("no more than there is");
        assert!(key == *wanted, "{key:?} in place of {:?}", Slice::from(&wanted[..]));
        assert!(value == *data, "the value of {key:?}: {} for {} bytes", value.len(), data.len());
    }
    assert_eq!(expected.next().map(|(key, _)| Slice::from(&key[..])), None);
}

fn check(keyspace: &Keyspace, model: &Model) {
    expect_same(keyspace.iter(), model.iter());
    assert_eq!(keyspace.count().unwrap(), model.len() as u64);
}

/// Keys of which many share what they begin with; some are long.
fn key_of(dice: &mut Dice, keys: u64) -> Vec<u8> {
    let number = dice.below(keys);
    let mut key = format!("{:02} key {number:06}", number % 7).into_bytes();
    match number % 50 {
        7 => key.resize(key.len() + (number % 1000) as usize, b'k'),
        8 if number < 500 => key.resize(60_000 + number as usize, b'l'),
        9 => key.truncate(2 + (number % 9) as usize),
        _ => {}
    }
    key
}

fn value_of(dice: &mut Dice) -> Vec<u8> {
    let len = match dice.below(400) {
        0 => dice.below(300 << 10),
        1..10 => dice.below(20_000),
        10..80 => dice.below(2),
        80..200 => 100,
        _ => dice.below(200),
    };
    dice.bytes(len)
}

struct World {
    fs: MemoryFs,
    db: Option<Database>,
    options: KeyspaceOptions,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    dice: Dice,
    keys: u64,
}

impl World {
    fn new(seed: u64, keys: u64, options: KeyspaceOptions) -> Self {
        let fs = MemoryFs::new();
        let db = Some(open(&fs));
        let (model, snapshots, dice) = (Model::new(), Vec::new(), Dice::new(seed));
        Self { fs, db, options, model, snapshots, dice, keys }
    }

    fn keyspace(&self) -> Keyspace {
        self.db.as_ref().unwrap().keyspace("tree", self.options.clone()).unwrap()
    }

    fn key(&mut self) -> Vec<u8> {
        key_of(&mut self.dice, self.keys)
    }

    fn step(&mut self) {
        let keyspace = self.keyspace();
        match self.dice.below(2000) {
            0..3 => keyspace.persist().unwrap(),
            3 => keyspace.compact().unwrap(),
            4 => self.reopen(),
            5..8 => self.snapshots.push((self.db.as_ref().unwrap().snapshot(), self.model.clone())),
            8..11 if !self.snapshots.is_empty() => self.look_at_a_snapshot(&keyspace),
            11..20 => self.look_at_a_range(&keyspace),
            20..30 => self.look_at_many(&keyspace),
            30..40 => self.commit_a_batch(&keyspace),
            40 => self.delete_a_range(&keyspace),
            41..400 => {
                let key = self.key();
                keyspace.delete(&key).unwrap();
                self.model.remove(&key);
            }
            400..900 => {
                let key = self.key();
                let found = keyspace.get(&key).unwrap();
                assert!(found.as_deref() == self.model.get(&key).map(|value| &value[..]));
            }
            _ => {
                let (key, value) = (self.key(), value_of(&mut self.dice));
                keyspace.put(&key, &value).unwrap();
                self.model.insert(key, value);
            }
        }
    }

    fn look_at_a_snapshot(&mut self, keyspace: &Keyspace) {
        let at = self.dice.below(self.snapshots.len() as u64) as usize;
        let (snapshot, model) = self.snapshots.swap_remove(at);
        expect_same(snapshot.iter(keyspace), model.iter());
        let keys: Vec<_> = (0..20).map(|_| self.key()).collect();
        for (key, value) in keys.iter().zip(snapshot.multi_get(keyspace, &keys).unwrap()) {
            let expected = model.get(key).map(|value| &value[..]);
            assert!(value.as_deref() == expected);
            assert!(snapshot.get(keyspace, key).unwrap().as_deref() == expected);
        }
        if self.dice.below(2) == 0 {
            self.snapshots.push((snapshot, model));
        }
    }

    fn look_at_a_range(&mut self, keyspace: &Keyspace) {
        let (mut from, mut to) = (self.key(), self.key());
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let range =
            || self.model.range::<[u8], _>((Bound::Included(&from[..]), Bound::Excluded(&to[..])));
        expect_same(keyspace.range(&from[..]..&to[..]).take(300), range().take(300));
        expect_same(keyspace.range(&from[..]..&to[..]).rev().take(300), range().rev().take(300));
        let mut cursor = keyspace.cursor().unwrap();
        cursor.seek(&from).unwrap();
        let mut expected = self.model.range(from.clone()..);
        for _ in 0..50 {
            let found = cursor.is_valid().then(|| cursor.key());
            assert!(found == expected.next().map(|(key, _)| &key[..]));
            cursor.next().unwrap();
        }
        cursor.seek_for_prev(&to).unwrap();
        let mut expected = self.model.range(..=to).rev();
        for _ in 0..50 {
            let found = cursor.is_valid().then(|| cursor.key());
            assert!(found == expected.next().map(|(key, _)| &key[..]));
            cursor.prev().unwrap();
        }
    }

    fn look_at_many(&mut self, keyspace: &Keyspace) {
        let keys: Vec<_> = (0..self.dice.below(400)).map(|_| self.key()).collect();
        let found = keyspace.multi_get(&keys).unwrap();
        for (key, value) in keys.iter().zip(found) {
            assert!(value.as_deref() == self.model.get(key).map(|value| &value[..]));
        }
    }

    fn commit_a_batch(&mut self, keyspace: &Keyspace) {
        let mut batch = self.db.as_ref().unwrap().batch();
        for _ in 0..self.dice.below(200) {
            let key = self.key();
            if self.dice.below(4) == 0 {
                batch.delete(keyspace, &key);
                self.model.remove(&key);
            } else {
                let value = value_of(&mut self.dice);
                batch.put(keyspace, &key, &value);
                self.model.insert(key, value);
            }
        }
        batch.commit().unwrap();
    }

    fn delete_a_range(&mut self, keyspace: &Keyspace) {
        let (from, most) = (self.key(), self.dice.below(1 + self.model.len() as u64));
        let range = self.model.range(from..).take(most as usize);
        let keys: Vec<_> = range.map(|(key, _)| key.clone()).collect();
        for key in keys {
            keyspace.delete(&key).unwrap();
            self.model.remove(&key);
        }
    }

    /// Closes the database, or lets the process be killed.
    fn reopen(&mut self) {
        self.snapshots.clear();
        if self.dice.below(2) == 0 {
            self.db.take().unwrap().close().unwrap();
        } else {
            self.fs = self.fs.fork();
            self.db = None;
        }
        self.db = Some(open(&self.fs));
        self.check();
    }

    fn check(&self) {
        check(&self.keyspace(), &self.model);
        check_clean(self.db.as_ref().unwrap());
    }

    fn run(mut self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
        self.check();
        let keyspace = self.keyspace();
        for (snapshot, model) in &self.snapshots {
            expect_same(snapshot.iter(&keyspace), model.iter());
            expect_same(snapshot.iter(&keyspace).rev(), model.iter().rev());
        }
        self.snapshots.clear();
        keyspace.compact().unwrap();
        self.check();
        drop(keyspace);
        self.reopen();
    }
}

#[test]
fn it_does_what_a_map_does() {
    for (seed, keys) in [(1, 50), (2, 1000), (3, 10_000)] {
        World::new(seed, keys, KeyspaceOptions::btree()).run(20_000);
    }
}

#[test]
fn it_does_with_large_pages_and_few_of_them_cached() {
    World::new(4, 3000, KeyspaceOptions::btree().page_size(64 << 10)).run(8000);
    World::new(5, 3000, KeyspaceOptions::btree().max_cached_pages(16)).run(8000);
}

#[test]
fn it_does_without_the_log() {
    let mut world = World::new(6, 3000, KeyspaceOptions::btree().log(false));
    for _ in 0..10_000 {
        // What is killed without the log has lost something.
        if world.dice.below(3000) == 0 {
            world.snapshots.clear();
            world.db.take().unwrap().close().unwrap();
            world.db = Some(open(&world.fs));
            world.check();
        }
        match world.dice.below(10) {
            0 => {
                let keyspace = world.keyspace();
                world.commit_a_batch(&keyspace);
            }
            1 => {
                let keyspace = world.keyspace();
                world.look_at_a_range(&keyspace);
            }
            _ => {
                let (key, value) = (world.key(), value_of(&mut world.dice));
                world.keyspace().put(&key, &value).unwrap();
                world.model.insert(key, value);
            }
        }
    }
    world.check();
}

#[test]
fn it_does_through_every_layer() {
    let layers = [
        Layer::Mmap,
        Layer::Block { block_size: 16 << 10 },
        Layer::BlockCache { block_size: 4096, pages: 64 },
        Layer::BlockCache { block_size: 512, pages: 300 },
        Layer::DirectCache { block_size: 16 << 10, pages: 16 },
    ];
    for (seed, layer) in (7..).zip(layers) {
        World::new(seed, 1000, KeyspaceOptions::btree().layer(layer)).run(4000);
    }
}

/// What has been read stays what it was, whatever becomes of the pages it was read from.
#[test]
fn values_that_are_kept_do_not_change() {
    let layers = [
        Layer::Positional,
        Layer::Mmap,
        Layer::BlockCache { block_size: 4096, pages: 400 },
        Layer::DirectCache { block_size: 16 << 10, pages: 100 },
    ];
    for layer in layers {
        // Memory does not lend its bytes.
        let dir = tempfile::tempdir().unwrap();
        let (fs, path): (Arc<dyn Fs>, _) = match layer {
            Layer::Mmap => (Arc::new(DiskFs::default()), dir.path()),
            _ => (Arc::new(MemoryFs::new()), "/db".as_ref()),
        };
        let db = Database::builder(path).file_system(fs).memory_budget(8 << 20).open().unwrap();
        let keyspace = db.keyspace("tree", KeyspaceOptions::btree().layer(layer)).unwrap();
        let len = |number: u32| 100 + 3000 * usize::from(number.is_multiple_of(10));
        let fill = |round: u8| {
            for number in 0..1000u32 {
                keyspace.put(number.to_be_bytes(), vec![round; len(number)]).unwrap();
            }
            keyspace.persist().unwrap();
        };
        fill(0);
        let keys: Vec<_> = (0..1000u32).map(u32::to_be_bytes).collect();
        let mut kept: Vec<_> = keyspace.multi_get(&keys).unwrap().into_iter().flatten().collect();
        kept.extend(keys.iter().map(|key| keyspace.get(key).unwrap().unwrap()));
        kept.extend(keyspace.iter().map(|item| item.unwrap().1));
        assert_eq!(kept.len(), 3000);
        (1..6).for_each(fill);
        keyspace.compact().unwrap();
        for value in kept {
            assert!(value.iter().all(|&byte| byte == 0), "{layer}");
        }
    }
}

#[test]
fn readers_see_whole_values_and_every_key_while_all_moves() {
    let db = open(&MemoryFs::new());
    let keyspace = db.keyspace("tree", KeyspaceOptions::btree().max_cached_pages(16)).unwrap();
    let keys = 500u32;
    let value =
        |round: u32, number: u32| vec![(round ^ number) as u8; 60 + (round % 5 * 500) as usize];
    let put =
        |round, number: u32| keyspace.put(number.to_be_bytes(), value(round, number)).unwrap();
    (0..keys).for_each(|number| put(0, number));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (keyspace, done) = (&keyspace, &done);
            scope.spawn(move || {
                let mut dice = Dice::new(reader);
                while !done.load(Ordering::Relaxed) {
                    let number = dice.below(u64::from(keys)) as u32;
                    let found =
                        keyspace.get(number.to_be_bytes()).unwrap().expect("it is always there");
                    assert!(found.iter().all(|&byte| byte == found[0]) && found.len() >= 60);
                    if dice.below(200) == 0 {
                        assert_eq!(
                            keyspace.iter().rev().map(Result::unwrap).count(),
                            keys as usize
                        );
                    }
                }
            });
        }
        let mut dice = Dice::new(9);
        for round in 1..60_000 {
            put(round, dice.below(u64::from(keys)) as u32);
            match round % 10_000 {
                0 => keyspace.compact().unwrap(),
                5_000 => keyspace.persist().unwrap(),
                _ => {}
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    check_clean(&db);
}

/// A few keys are overwritten by batches as fast as it goes, while checkpoints go on. No reader may see a key go back,
/// or a batch in part.
#[test]
fn no_reader_sees_a_batch_in_part() {
    const KEYS: u64 = 50;
    let number = |value: Option<Slice>| {
        value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()))
    };
    let keys: Vec<_> = (0..KEYS).map(u64::to_be_bytes).collect();
    let db = open(&MemoryFs::new());
    let keyspace = keyspace(&db);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, keyspace, done, keys) = (&db, &keyspace, &done, &keys);
        let keep_moving = scope.spawn(move || {
            for round in 0.. {
                if done.load(Ordering::Acquire) {
                    break;
                }
                keyspace.persist().unwrap();
                if round % 4 == 0 {
                    keyspace.compact().unwrap();
                }
            }
        });
        let reader = scope.spawn(move || {
            let mut latest = 0;
            while !done.load(Ordering::Acquire) {
                for key in keys {
                    let now = number(keyspace.get(key).unwrap());
                    assert!(now >= latest, "from {latest} back to {now}");
                    latest = now;
                }
                let snapshot = db.snapshot();
                let together = snapshot.multi_get(keyspace, keys).unwrap();
                let first = number(together[0].clone());
                assert!(first >= latest, "from {latest} back to {first}");
                for (key, value) in keys.iter().zip(together) {
                    assert_eq!(number(value), first);
                    assert_eq!(number(snapshot.get(keyspace, key).unwrap()), first);
                }
                let scanned: Vec<_> = snapshot.iter(keyspace).map(|item| item.unwrap().1).collect();
                assert_eq!(scanned.len() as u64, if first == 0 { 0 } else { KEYS });
                assert!(scanned.iter().all(|value| value[..8] == first.to_le_bytes()));
                latest = first;
            }
        });
        for count in 1..=3000u64 {
            let mut batch = db.batch();
            for key in keys {
                batch.put(keyspace, key, [&count.to_le_bytes()[..], &[7; 300]].concat());
            }
            batch.commit().unwrap();
        }
        done.store(true, Ordering::Release);
        reader.join().unwrap();
        keep_moving.join().unwrap();
    });
    assert!(keys.iter().all(|key| number(keyspace.get(key).unwrap()) == 3000));
    check_clean(&db);
}

#[test]
fn the_layer_and_the_cache_change_while_snapshots_are_held() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let keyspace = keyspace(&db);
    let mut snapshots = Vec::new();
    let mut layers = [
        Layer::Mmap,
        Layer::BlockCache { block_size: 4096, pages: 50 },
        Layer::Positional,
        Layer::Block { block_size: 512 },
    ]
    .into_iter()
    .cycle();
    for round in 0..12u8 {
        for number in 0..1000u32 {
            keyspace.put(number.to_be_bytes(), vec![round; 200]).unwrap();
        }
        keyspace.persist().unwrap();
        snapshots.push((round, db.snapshot()));
        let options = KeyspaceOptions::btree().layer(layers.next().unwrap());
        let pages = 16 + u32::from(round);
        db.keyspace("tree", options.max_cached_pages(pages)).unwrap();
        assert_eq!(keyspace.count().unwrap(), 1000);
        for (round, snapshot) in &snapshots {
            let mut values = snapshot.iter(&keyspace).map(|item| item.unwrap().1);
            assert!(values.all(|value| value == [*round; 200]));
        }
        check_clean(&db);
    }
    drop(snapshots);
    keyspace.compact().unwrap();
    db.close().unwrap();
    let db = open(&fs);
    check_clean(&db);
    assert_eq!(self::keyspace(&db).count().unwrap(), 1000);
}

#[test]
fn a_cache_that_fits_the_budget_is_not_counted_twice_when_it_is_made_anew() {
    let db = open(&MemoryFs::new());
    // Half of the budget is 4 MiB; the page cache of a layer takes from the same half.
    let options = |pages| KeyspaceOptions::btree().max_cached_pages(pages);
    let keyspace = db.keyspace("tree", options(700)).unwrap();
    keyspace.put("a", "b").unwrap();
    db.keyspace("tree", options(700).layer(Layer::Mmap)).unwrap();
    db.keyspace("tree", options(800).layer(Layer::Positional)).unwrap();
    assert!(db.keyspace("tree", options(1100)).is_err());
    db.keyspace("tree", options(800).layer(Layer::Block { block_size: 4096 })).unwrap();
    assert_eq!(keyspace.get("a").unwrap().unwrap(), *b"b");
}

/// However many trees there are, and whoever is read first.
#[test]
fn inner_nodes_that_trees_keep_have_one_bound() {
    /// An 8th of what memtables leave.
    const MOST: u64 = (8 << 20) / 16 * 9 / 8;
    let db = open(&MemoryFs::new());
    let kept = || db.stats().memory.tables;
    let names: Vec<_> = (0..6).map(|number| format!("tree {number}")).collect();
    let key = |number: u32| format!("{:05}{}{}", number / 3, "k".repeat(900), number % 3);
    let open_all = |options: &KeyspaceOptions| -> Vec<Keyspace> {
        names.iter().map(|name| db.keyspace(name, options.clone()).unwrap()).collect()
    };
    let trees = open_all(&KeyspaceOptions::btree());
    for tree in &trees {
        (0..1500).for_each(|number| tree.put(key(number), "value").unwrap());
        tree.persist().unwrap();
    }
    let inner_nodes = |tree: &Keyspace| tree.stats().tree.unwrap().inner_nodes * 4096;
    assert!(trees.iter().map(inner_nodes).sum::<u64>() > 2 * MOST);
    let read = |tree: &Keyspace| {
        (0..1500).for_each(|number| assert!(tree.get(key(number)).unwrap().is_some()));
    };
    let booked = |tree: &Keyspace| {
        let before = (kept(), tree.stats().memory_bytes);
        read(tree);
        let now = (kept(), tree.stats().memory_bytes);
        assert_eq!(now.0 - before.0, now.1 - before.1, "the tree says that it has it");
        now.0
    };
    assert_eq!(kept(), 0);
    let first = booked(&trees[0]);
    assert!((MOST / 4..=MOST / 2).contains(&first), "no more than it leaves to others: {first}");
    for tree in &trees[1..5] {
        let before = kept();
        let after = booked(tree);
        assert!(after > before && after <= MOST, "{after}");
    }
    assert!(kept() > MOST / 2);
    // What is read again is there, and what finds no room is read nevertheless.
    let before = kept();
    trees[..5].iter().for_each(read);
    assert!((before..=MOST).contains(&kept()));
    // Trees that are gone keep nothing.
    let before = kept();
    trees[0].clear().unwrap();
    db.settle().unwrap();
    assert!(kept() <= before - first);
    open_all(&KeyspaceOptions::btree().layer(Layer::Mmap));
    trees[1..].iter().for_each(read);
    assert_eq!(kept(), 0, "what is lent is not kept");
    open_all(&KeyspaceOptions::btree().layer(Layer::Positional));
    trees[1..].iter().for_each(read);
    assert!(kept() > MOST / 2);
    // Cursors have the trees of before, with all that those keep.
    let cursors: Vec<_> = trees.iter().map(|tree| tree.cursor().unwrap()).collect();
    open_all(&KeyspaceOptions::btree().max_cached_pages(16));
    assert!(kept() > MOST / 2);
    drop(cursors);
    assert_eq!(kept(), 0);
    trees[1..].iter().for_each(read);
    assert_eq!(kept(), 0, "it is booked with their own caches");
}

/// Several who come to a node at once keep one of it.
#[test]
fn what_readers_keep_at_once_is_booked_once() {
    let db = open(&MemoryFs::new());
    let tree = keyspace(&db);
    let key = |number: u32| format!("{:05}{}{}", number / 3, "k".repeat(900), number % 3);
    (0..300).for_each(|number| tree.put(key(number), "value").unwrap());
    tree.persist().unwrap();
    let read = || (0..300).for_each(|number| assert!(tree.get(key(number)).unwrap().is_some()));
    let kept = || db.stats().memory.tables;
    read();
    let alone = kept();
    assert!(alone > 0);
    for _ in 0..20 {
        db.keyspace("tree", KeyspaceOptions::btree().layer(Layer::Mmap)).unwrap();
        assert_eq!(kept(), 0);
        db.keyspace("tree", KeyspaceOptions::btree().layer(Layer::Positional)).unwrap();
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(read))));
        assert_eq!(kept(), alone);
    }
}

/// What is known of the tree since it was opened says nothing of the page that the next opening reads.
#[test]
fn verify_reads_the_meta_page_again() {
    for layer in [Layer::Positional, Layer::Mmap] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let keyspace = db.keyspace("tree", KeyspaceOptions::btree().layer(layer)).unwrap();
        for round in 0..4u8 {
            keyspace.put("a", [round]).unwrap();
            keyspace.persist().unwrap();
            check_clean(&db);
            let is_tree = |path: &Path| path.file_name().is_some_and(|name| name == "tree");
            let (path, bytes) = fs.files().into_iter().find(|(path, _)| is_tree(path)).unwrap();
            let generation =
                |at: usize| u64::from_le_bytes(bytes[at + 24..at + 32].try_into().unwrap());
            let newest = if generation(0) > generation(4096) { 0 } else { 4096 };
            for at in [0, 40, 100, 120] {
                fs.corrupt(&path, newest + at, 1).unwrap();
                assert!(!db.verify().unwrap().problems.is_empty(), "{layer}: byte {at}");
                fs.corrupt(&path, newest + at, 1).unwrap();
            }
        }
    }
}
