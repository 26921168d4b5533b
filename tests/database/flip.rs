//! Damage to every byte of every file of a small database: an error or the right answer, never a wrong one, a
//! panic or a hang; and what cannot be opened is left as it is.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use turbidite::vfs::{MemoryFs, PowerCut};
use turbidite::{Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Layer, RecoveryMode};

use crate::history::{self, Change, Dice, Fingerprint, History, Model, PARTS};
use crate::setup::is_ordered;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Files up to this size are damaged at every byte, larger ones at both ends of what is used and here and
/// there between them.
const SMALL: usize = 6000;
/// A case that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a segment's header.
const SEGMENT_HEADER: usize = 64;
/// Bytes of the values that have pages of their own in a B+ tree.
const LARGE_VALUE: usize = 5000;
/// The most bytes that a mark takes at the end of the log.
const MARK: usize = 54;
/// Bytes of a page of the B+ trees.
const PAGE: usize = 4096;
/// What a meta page of a B+ tree says, and where it confirms the other one.
const META: std::ops::Range<usize> = 0..124;
const CONFIRMATION: std::ops::Range<usize> = 512..524;

/// A small database and what it holds.
struct Sample {
    fs: MemoryFs,
    model: Model,
}

fn put(db: &Database, model: &mut Model, changes: &[Change]) {
    history::commit(db, changes, Durability::Sync).unwrap();
    model.apply(changes);
}

fn small_changes(dice: &mut Dice, keyspaces: &[&'static str], first: usize) -> Vec<Change> {
    let mut changes = Vec::new();
    for number in first..first + 8 {
        for &keyspace in keyspaces {
            let key = format!("key {number:03}").into_bytes();
            let value = (dice.roll(5) > 0).then(|| dice.bytes(16));
            changes.push((keyspace, key, value));
        }
    }
    changes
}

/// Leaves below a root, and values in pages of their own.
fn tree_changes(dice: &mut Dice, keyspace: &'static str, first: usize) -> Vec<Change> {
    let small = (0..40).map(|number| (format!("leaf {number:02}"), 200));
    let large = (first..first + 2).map(|number| (format!("value {number}"), LARGE_VALUE));
    small.chain(large).map(|(key, len)| (keyspace, key.into(), Some(dice.bytes(len)))).collect()
}

/// Values that a keyspace keeps apart from their keys, and some of them overwritten until they are garbage.
fn put_values_apart(db: &Database, model: &mut Model, dice: &mut Dice) {
    let keyspace = db.open_keyspace("unlogged").unwrap();
    for numbers in [0..10_usize, 0..2, 1..3, 2..4, 3..5] {
        let change = |number| {
            ("unlogged", format!("long {number}").into_bytes(), Some(dice.bytes(100 + number)))
        };
        let changes: Vec<Change> = numbers.map(change).collect();
        put(db, model, &changes);
        keyspace.persist().unwrap();
    }
    db.settle().unwrap();
    let values = keyspace.stats().values;
    assert!(values.garbage > 0 && values.files > 1, "{values:?}");
}

/// A database with tables on two levels, range tombstones among them, values apart from them, hash segments and a checkpoint, trees with free pages, sorted files with skip
/// links and runs behind them, edits in catalog and manifests, two segments of the log in use and one prepared. Closed, or
/// as it is while it is open.
fn sample(closed: bool) -> Sample {
    let fs = MemoryFs::new();
    let db = history::open(&fs).unwrap();
    let (mut model, mut dice) = (Model::default(), Dice::new(5));
    for (name, ..) in history::KEYSPACES {
        history::create(&db, name, 0).unwrap();
    }
    let persist = |name: &str| db.open_keyspace(name).unwrap().persist().unwrap();
    put(&db, &mut model, &small_changes(&mut dice, &["alpha", "beta"], 0));
    db.open_keyspace("alpha").unwrap().compact().unwrap();
    put_values_apart(&db, &mut model, &mut dice);
    // Twice overwritten, so that there are dead records in segments, and tombstones.
    put(&db, &mut model, &small_changes(&mut dice, &["beta", "loose"], 3));
    db.open_keyspace("beta").unwrap().compact().unwrap();
    // Tables of one tree need not be made of the same.
    history::create(&db, "alpha", 1).unwrap();
    put(&db, &mut model, &small_changes(&mut dice, &["alpha", "unlogged", "beta", "loose"], 4));
    put(
        &db,
        &mut model,
        &["alpha", "unlogged"].map(|name| history::deletion_of_all(name, "key 00")),
    );
    persist("beta");
    persist("loose");
    put(&db, &mut model, &small_changes(&mut dice, &["beta", "loose"], 6));
    for (name, first) in [("gamma", 0), ("stray", 0), ("gamma", 1)] {
        put(&db, &mut model, &tree_changes(&mut dice, name, first));
        persist(name);
    }
    put(&db, &mut model, &small_changes(&mut dice, &["gamma", "stray"], 6));
    // A sorted file with several blocks and levels of links, and a run that is not merged into it.
    for name in ["delta", "apart"] {
        put(&db, &mut model, &tree_changes(&mut dice, name, 0));
        db.open_keyspace(name).unwrap().compact().unwrap();
        put(&db, &mut model, &small_changes(&mut dice, &[name], 4));
    }
    for name in ["beta", "loose", "alpha", "unlogged", "gamma", "stray", "delta", "apart"] {
        persist(name);
    }
    put(&db, &mut model, &small_changes(&mut dice, &["alpha", "beta"], 10));
    for number in 0..2 {
        let key = format!("large {number}").into_bytes();
        put(&db, &mut model, &[("alpha", key, Some(dice.bytes(70_000)))]);
    }
    put(&db, &mut model, &small_changes(&mut dice, &["beta", "alpha", "gamma", "delta"], 20));
    if closed {
        db.close().unwrap();
        return Sample { fs, model };
    }
    // The segment that is being prepared in the background must not be half done.
    std::thread::sleep(Duration::from_millis(50));
    Sample { fs: fs.fork(), model }
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap()
}

fn is_log(path: &Path) -> bool {
    name_of(path).ends_with(".log")
}

/// Whether it is what repeats the newest bytes of the log: if nothing is missing, nothing was lost with it.
fn is_tail(path: &Path) -> bool {
    name_of(path) == "tail.log"
}

fn is_tree(path: &Path) -> bool {
    name_of(path) == "tree"
}

/// The number of a keyspace of the sample.
fn id_of(name: &str) -> usize {
    history::KEYSPACES.iter().position(|known| known.0 == name).unwrap() + 1
}

/// What the tree at `path` holds: that of the logged keyspace was made first.
fn map_of_tree<'a>(path: &Path, model: &'a Model) -> &'a Map {
    let is_of = |name| path.ends_with(format!("keyspaces/{}/tree", id_of(name)));
    ["gamma", "stray"].into_iter().find(|name| is_of(name)).map(|name| &model.maps[name]).unwrap()
}

/// All files but the lock, which holds nothing.
fn files(fs: &MemoryFs) -> BTreeMap<PathBuf, Vec<u8>> {
    fs.files().into_iter().filter(|(path, _)| name_of(path) != "lock").collect()
}

/// What came of opening and reading a damaged database.
#[derive(PartialEq, Eq, Debug)]
enum Outcome {
    /// Something was said.
    Reported,
    /// All answers were right and nothing was said.
    Unnoticed,
}

/// Opens and reads all of `fs`. Panics on a wrong answer, and if a failed opening has changed anything.
fn examine(fs: &MemoryFs, model: &Model) -> Outcome {
    let before = files(fs);
    let db = match history::open(fs) {
        Ok(db) => db,
        Err(_) => {
            assert!(files(fs) == before, "a failed opening has changed files");
            return Outcome::Reported;
        }
    };
    let mut errors = db.recovery().dropped_bytes as usize;
    for (name, expected) in &model.maps {
        let keyspace = db.open_keyspace(name).expect("the keyspace is missing");
        for (key, value) in expected {
            match keyspace.get(key) {
                Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "{name}, {key:?}"),
                Err(_) => errors += 1,
            }
        }
        errors += match is_ordered(keyspace.stats().engine) {
            true => read_in_order(&keyspace, expected),
            false => read_in_any_order(&keyspace, expected),
        };
    }
    errors += db.verify().unwrap().problems.len();
    if errors > 0 { Outcome::Reported } else { Outcome::Unnoticed }
}

/// Reads all of a keyspace; gives the number of errors. Panics on a wrong answer.
fn read_in_any_order(keyspace: &Keyspace, expected: &Map) -> usize {
    let (mut errors, mut found) = (0, Map::new());
    for entry in keyspace.iter() {
        match entry {
            Ok((key, value)) => {
                let before = found.insert(key.to_vec(), value.to_vec());
                assert_eq!(before, None, "{key:?} comes twice");
            }
            Err(_) => errors += 1,
        }
    }
    match errors {
        0 => assert!(found == *expected, "it is not what was written"),
        _ => assert!(found.iter().all(|(key, value)| expected.get(key) == Some(value))),
    }
    let values = keyspace.multi_get(expected.keys());
    if let Ok(values) = &values {
        assert!(values.iter().map(Option::as_deref).eq(expected.values().map(|v| Some(&v[..]))));
    }
    errors + usize::from(values.is_err())
}

/// The same, forwards and backwards.
fn read_in_order(keyspace: &Keyspace, expected: &Map) -> usize {
    let (name, mut errors) = (keyspace.name(), 0);
    let mut wanted = expected.iter();
    let mut wanted_back = expected.iter().rev();
    for entry in keyspace.iter() {
        let Ok((key, value)) = entry else {
            errors += 1;
            wanted.by_ref().for_each(drop);
            break;
        };
        assert_eq!(wanted.next(), Some((&key.to_vec(), &value.to_vec())), "{name}, forwards");
    }
    assert_eq!(wanted.next(), None, "{name}: keys are missing");
    let mut cursor = keyspace.cursor().unwrap();
    let mut step = cursor.seek_to_last();
    while step.is_ok() && cursor.is_valid() {
        let found = (cursor.key().to_vec(), cursor.value().to_vec());
        assert_eq!(wanted_back.next(), Some((&found.0, &found.1)), "{name}, backwards");
        step = cursor.prev();
    }
    match step {
        Ok(()) => assert_eq!(wanted_back.next(), None, "{name}: keys are missing backwards"),
        Err(_) => errors += 1,
    }
    errors
}

/// Runs `check` on each case, on all processors; aborts if one of them hangs.
fn check_all<T: Send + Clone + std::fmt::Debug>(cases: Vec<T>, check: impl Fn(&T) + Sync) {
    let cases = Mutex::new(cases.into_iter());
    let failed = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get());
    let running: Vec<Mutex<Option<(Instant, T)>>> =
        (0..workers).map(|_| Mutex::default()).collect();
    let over = AtomicBool::new(false);
    let work = |slot: &Mutex<Option<(Instant, T)>>| {
        loop {
            let next = cases.lock().unwrap().next();
            let Some(case) = next else { return };
            *slot.lock().unwrap() = Some((Instant::now(), case.clone()));
            if catch_unwind(AssertUnwindSafe(|| check(&case))).is_err() {
                eprintln!("with {case:?}");
                assert!(failed.fetch_add(1, Ordering::Relaxed) < 20, "too many failures");
            }
            *slot.lock().unwrap() = None;
        }
    };
    let watch = || {
        while !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
            for slot in &running {
                if let Some((since, case)) = &*slot.lock().unwrap()
                    && since.elapsed() > PATIENCE
                {
                    eprintln!("hangs with {case:?}");
                    std::process::abort();
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(watch);
        let workers: Vec<_> = running.iter().map(|slot| scope.spawn(move || work(slot))).collect();
        let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(outcomes.iter().all(Result::is_ok));
    });
    assert_eq!(failed.into_inner(), 0);
}

/// How many bytes at the front of a file are in use: the rest is zeros.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
}

/// Where a file is damaged.
fn places(path: &Path, bytes: &[u8]) -> Vec<usize> {
    if is_tree(path) {
        return places_in_tree(bytes);
    }
    if bytes.len() <= SMALL {
        return (0..bytes.len()).collect();
    }
    let used = used(bytes);
    let ends = (0..800).chain(used.saturating_sub(600)..used + 40);
    let between = (800..bytes.len()).step_by(2503);
    let mut places: Vec<_> = ends.chain(between).filter(|&at| at < bytes.len()).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// The same for a B+ tree: the front and the end of each page, here and there between them, and behind all pages.
fn places_in_tree(bytes: &[u8]) -> Vec<usize> {
    let end = tree_end(bytes);
    let within = (0..130).chain((130..PAGE - 8).step_by(67)).chain(PAGE - 8..PAGE);
    let within: Vec<_> = within.chain(CONFIRMATION).collect();
    let inside = (0..end).step_by(PAGE).flat_map(|page| within.iter().map(move |at| page + at));
    inside.chain((end..bytes.len()).step_by(100_003)).collect()
}

fn number(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

/// Where the meta page that counts begins.
fn newest_meta(tree: &[u8]) -> usize {
    let generation = |page: usize| number(tree, page * PAGE + 24);
    if generation(0) > generation(1) { 0 } else { PAGE }
}

/// Where the pages of a tree end.
fn tree_end(tree: &[u8]) -> usize {
    number(tree, newest_meta(tree) + 64) * PAGE
}

/// Whether nothing depends on the byte at `at` of a tree's file: it is in a free page or behind all pages, behind what
/// a meta page or a large value says, or in the older meta page.
fn says_nothing_in_tree(tree: &[u8], at: usize, map: &Map) -> bool {
    let meta = newest_meta(tree);
    let (page, within) = (at / PAGE, at % PAGE);
    if page < 2 {
        let is_older = page * PAGE != meta;
        return (is_older || !META.contains(&within)) && !CONFIRMATION.contains(&within);
    }
    let (list, len) = (number(tree, meta + 72) * PAGE + 16, number(tree, meta + 80));
    let mut behind = 0;
    let is_free = tree[list..list + len].chunks(2).any(|run| {
        assert!(run[0] < 128 && run[1] < 128, "a number of one byte");
        let first = behind + usize::from(run[0]);
        behind = first + usize::from(run[1]) + 1;
        (first..behind).contains(&page)
    });
    let is_behind = |end: usize| (end..end.next_multiple_of(PAGE)).contains(&at);
    let large = map.values().filter(|value| value.len() == LARGE_VALUE);
    let mut ends = large.filter_map(|value| {
        tree.windows(value.len()).position(|found| found == value).map(|start| start + value.len())
    });
    at >= tree_end(tree) || is_free || is_behind(list + len) || ends.any(is_behind)
}

/// Whether nothing depends on the byte at `at` of a segment: it is in space that is not used, in a segment that
/// was only prepared, or in the last mark, which says no more than that all before it is there.
fn says_nothing(segment: &[u8], at: usize) -> bool {
    let used = used(segment);
    used <= SEGMENT_HEADER || at + MARK >= used
}

fn flip_everything(sample: &Sample) {
    let files = files(&sample.fs);
    let tables = [".table", ".values"];
    let others = [".log", "catalog-", "manifest-", ".data", ".index", "tree", ".sorted"];
    for kind in tables.into_iter().chain(others) {
        assert!(files.keys().any(|path| name_of(path).contains(kind)), "there is no {kind}");
    }
    let mut cases = Vec::new();
    for (path, bytes) in &files {
        for at in places(path, bytes) {
            let is_probed = is_log(path) || is_tree(path);
            let flips = if is_probed && bytes.len() > SMALL { 1 } else { 2 };
            let bits = [1 << (at % 8), 0xff].into_iter().take(flips);
            cases.extend(bits.map(|bit: u8| (path.clone(), at, bit)));
        }
    }
    println!("{} flips in {} files", cases.len(), files.len());
    check_all(cases, |(path, at, bit)| {
        let fs = sample.fs.fork();
        fs.corrupt(path, *at as u64, *bit).unwrap();
        // What a crash may leave behind is not cleared away either unless all can be read.
        for (name, leftover) in [
            ("alpha", "000999.table"),
            ("unlogged", "000999.values"),
            ("beta", "000999.data"),
            ("beta", "manifest-000002.tmp"),
            ("delta", "000999.sorted"),
        ] {
            let path = format!("{}/keyspaces/{}/{leftover}", history::PATH, id_of(name));
            fs.write_file(Path::new(&path), b"leftover").unwrap();
        }
        if examine(&fs, &sample.model) == Outcome::Unnoticed {
            let bytes = &files[path];
            let says_nothing = match is_tree(path) {
                true => says_nothing_in_tree(bytes, *at, map_of_tree(path, &sample.model)),
                false => is_tail(path) || is_log(path) && says_nothing(bytes, *at),
            };
            assert!(says_nothing, "nobody has noticed");
        }
    });
}

#[test]
fn every_flip_in_a_closed_database_is_noticed() {
    flip_everything(&sample(true));
}

#[test]
fn every_flip_in_a_database_that_was_not_closed_is_noticed() {
    flip_everything(&sample(false));
}

#[test]
fn files_that_are_cut_off_or_missing_are_noticed() {
    for sample in [sample(true), sample(false)] {
        let files = files(&sample.fs);
        let mut cases = Vec::new();
        for (path, bytes) in &files {
            let lengths = places(path, bytes).into_iter().step_by(5).chain([bytes.len() - 1]);
            cases.extend(lengths.map(|len| (path.clone(), Some(len))));
            cases.push((path.clone(), None));
        }
        check_all(cases, |(path, len)| {
            let fs = sample.fs.fork();
            match len {
                Some(len) => fs.write_file(path, &files[path][..*len]).unwrap(),
                None => turbidite::vfs::Fs::remove(&fs, path).unwrap(),
            }
            if examine(&fs, &sample.model) == Outcome::Unnoticed {
                let bytes = &files[path];
                let is_behind = is_tree(path) && len.is_some_and(|len| len >= tree_end(bytes));
                let is_empty = is_tail(path) || is_log(path) && used(bytes) <= SEGMENT_HEADER;
                assert!(is_behind || is_empty, "nobody has noticed");
            }
        });
    }
}

/// What distinguishes the kinds of files: the name without its number.
fn kind_of(path: &Path) -> String {
    name_of(path).chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[test]
fn files_in_the_wrong_place_are_noticed() {
    let (sample, other) = (sample(true), sample(true));
    let files = files(&sample.fs);
    let mut cases = Vec::new();
    for (path, bytes) in &files {
        if let Ok(foreign) = read(&other.fs, path) {
            cases.push(vec![(path.clone(), foreign)]);
        }
        for (partner, others) in files.range(path.clone()..).skip(1) {
            if kind_of(partner) == kind_of(path) {
                cases.push(vec![(path.clone(), others.clone()), (partner.clone(), bytes.clone())]);
            }
        }
    }
    assert!(cases.len() > 10);
    let cases: Vec<_> = cases.into_iter().map(Arc::new).map(Planted).collect();
    check_all(cases, |Planted(planted)| {
        let fs = sample.fs.fork();
        planted.iter().for_each(|(path, bytes)| fs.write_file(path, bytes).unwrap());
        if examine(&fs, &sample.model) == Outcome::Unnoticed {
            assert!(
                planted.iter().all(|(path, _)| used(&files[path]) <= SEGMENT_HEADER),
                "nobody has noticed"
            );
        }
    });
}

/// Files with other bytes than they had.
#[derive(Clone)]
struct Planted(Arc<Vec<(PathBuf, Vec<u8>)>>);

impl std::fmt::Debug for Planted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(path, _)| path)).finish()
    }
}

fn read(fs: &MemoryFs, path: &Path) -> Result<Vec<u8>, ()> {
    fs.files().into_iter().find(|(other, _)| other == path).map(|(_, bytes)| bytes).ok_or(())
}

#[test]
fn a_catalog_from_the_databases_birth_is_refused() {
    let fs = MemoryFs::traced();
    let db = history::open(&fs).unwrap();
    let path = Path::new(history::PATH).join("catalog-000001");
    let images = (0..fs.operations()).map(|at| fs.image(at, PowerCut::KeepAll));
    let births: Vec<_> = images.filter_map(|image| read(&image, &path).ok()).collect();
    let (mut model, mut dice) = (Model::default(), Dice::new(6));
    history::create(&db, "alpha", 0).unwrap();
    put(&db, &mut model, &small_changes(&mut dice, &["alpha"], 0));
    db.close().unwrap();
    assert!(!births.is_empty());
    for birth in births {
        let aged = fs.fork();
        aged.write_file(&path, &birth).unwrap();
        assert_eq!(examine(&aged, &model), Outcome::Reported);
    }
}

#[test]
fn sectors_of_garbage_are_noticed() {
    let sample = sample(true);
    let files = files(&sample.fs);
    let mut cases = Vec::new();
    for (path, bytes) in files.iter().filter(|(path, _)| !is_log(path)) {
        for at in (0..bytes.len()).step_by(512) {
            cases.extend([true, false].map(|zeros| (path.clone(), at, zeros)));
        }
    }
    check_all(cases, |(path, at, zeros)| {
        let fs = sample.fs.fork();
        let mut bytes = files[path].clone();
        let end = bytes.len().min(at + 512);
        let garbage = if *zeros { vec![0; end - at] } else { Dice::new(9).bytes(end - at) };
        bytes[*at..end].copy_from_slice(&garbage);
        fs.write_file(path, &bytes).unwrap();
        if examine(&fs, &sample.model) == Outcome::Unnoticed {
            let mut changed = (*at..end).filter(|&at| bytes[at] != files[path][at]);
            // A confirmation that is missing is one that was never written.
            let is_missing = |at| *zeros && at < 2 * PAGE && CONFIRMATION.contains(&(at % PAGE));
            let says_nothing = is_tree(path) && {
                let map = map_of_tree(path, &sample.model);
                changed.all(|at| is_missing(at) || says_nothing_in_tree(&files[path], at, map))
            };
            assert!(says_nothing, "nobody has noticed");
        }
    });
}

#[test]
fn pages_of_a_tree_that_were_not_written_are_noticed() {
    for (keyspace, writes) in [("gamma", 1), ("gamma", 3), ("stray", 2)] {
        let fs = MemoryFs::new();
        let db = history::open(&fs).unwrap();
        let (mut model, mut dice) = (Model::default(), Dice::new(10));
        history::create(&db, keyspace, 0).unwrap();
        let path = Path::new(history::PATH).join("keyspaces/1/tree");
        let mut checkpoint = |first| {
            put(&db, &mut model, &tree_changes(&mut dice, keyspace, first));
            db.open_keyspace(keyspace).unwrap().persist().unwrap();
            read(&fs, &path).unwrap()
        };
        let mut files: Vec<_> = (0..=writes).map(&mut checkpoint).collect();
        let newest = files.pop().unwrap();
        db.close().unwrap();
        let closed = read(&fs, &path).unwrap();
        let mut cases = Vec::new();
        for (number, older) in files.iter().enumerate() {
            let pages = (2 * PAGE..tree_end(&closed)).step_by(PAGE);
            let differs = |at: &usize| older[*at..at + PAGE] != closed[*at..at + PAGE];
            cases.extend(pages.filter(differs).map(|at| (number, at)));
        }
        assert!(cases.len() > 5 && newest[..2 * PAGE] != files[0][..2 * PAGE], "{cases:?}");
        check_all(cases, |&(number, at)| {
            let mut bytes = closed.clone();
            bytes[at..at + PAGE].copy_from_slice(&files[number][at..at + PAGE]);
            let fs = fs.fork();
            fs.write_file(&path, &bytes).unwrap();
            if examine(&fs, &model) == Outcome::Unnoticed {
                let map = &model.maps[keyspace];
                let mut changed = (at..at + PAGE).filter(|&at| bytes[at] != closed[at]);
                let says_nothing = changed.all(|at| says_nothing_in_tree(&closed, at, map));
                assert!(says_nothing, "nobody has noticed");
            }
        });
    }
}

/// Ten synced commits, then five that are not, all in the log's first segment; or those five in its tail, if the layer
/// maps files.
fn logged(layer: Layer) -> (MemoryFs, History) {
    let fs = MemoryFs::new();
    let db = history::builder(Arc::new(fs.clone())).log_layer(layer).open().unwrap();
    history::create(&db, "alpha", 0).unwrap();
    history::create(&db, "beta", 0).unwrap();
    let (mut history, mut dice) = (History::new(), Dice::new(8));
    for number in 0..15 {
        let changes = small_changes(&mut dice, &["alpha", "beta"], number);
        history.begin(0, &changes);
        let durability = if number < 10 { Durability::Sync } else { Durability::Os };
        history::commit(&db, &changes, durability).unwrap();
    }
    (fs.fork(), history)
}

/// What was cut off is reported, but for a last record that does not even look like one any more.
fn check_cut(left: usize, db: &Database) {
    assert!(left < 15);
    assert!(left == 14 || db.recovery().dropped_bytes > 0, "{left} commits are left");
}

#[test]
fn damage_below_what_was_synced_is_an_error_and_above_it_is_cut_off() {
    let (fs, history) = logged(Layer::Positional);
    let path = Path::new(history::PATH).join("log/000001.log");
    let bytes = read(&fs, &path).unwrap();
    let (mut errors, mut cuts) = (0, 0);
    for at in (100..used(&bytes)).step_by(7) {
        let damaged = fs.fork();
        damaged.corrupt(&path, at as u64, 0x40).unwrap();
        let tolerant = damaged.fork();
        match history::open(&damaged) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error:?}");
                errors += 1;
            }
            Ok(db) => {
                let state = Fingerprint::of(&db).unwrap();
                let [left, ..] = history.find(state, 0, [10, 0, 0, 0, 0]).unwrap();
                check_cut(left, &db);
                cuts += 1;
            }
        }
        let builder = history::builder(Arc::new(tolerant.clone()));
        let db = builder.recovery(RecoveryMode::Tolerant).open().unwrap();
        let state = Fingerprint::of(&db).unwrap();
        let [left, ..] = history.find(state, 0, [0; PARTS]).unwrap();
        check_cut(left, &db);
        // What tolerant recovery left is whole from now on.
        let more: [Change; 1] = [("alpha", b"more".to_vec(), Some(b"value".to_vec()))];
        history::commit(&db, &more, Durability::Sync).unwrap();
        let state = Fingerprint::of(&db).unwrap();
        db.close().unwrap();
        let db = history::open(&tolerant).unwrap();
        assert_eq!((Fingerprint::of(&db).unwrap(), db.recovery().dropped_bytes), (state, 0));
    }
    assert!(errors > 100 && cuts > 50, "{errors} errors and {cuts} cuts");
}

#[test]
fn damage_to_the_tail_of_the_log_is_cut_off() {
    let (fs, history) = logged(Layer::Mmap);
    let path = Path::new(history::PATH).join("log/tail.log");
    let bytes = read(&fs, &path).unwrap();
    let mut cuts = 0;
    for at in (0..bytes.len()).filter(|&at| at < 4096 || at % 1009 == 0) {
        let damaged = fs.fork();
        damaged.corrupt(&path, at as u64, 0x40).unwrap();
        let db = history::open(&damaged).unwrap();
        let state = Fingerprint::of(&db).unwrap();
        let [left, ..] = history.find(state, 0, [10, 0, 0, 0, 0]).unwrap();
        if left < 15 {
            check_cut(left, &db);
            cuts += 1;
        }
    }
    assert!(cuts > 100, "{cuts} cuts");
    turbidite::vfs::Fs::remove(&fs, &path).unwrap();
    let db = history::open(&fs).unwrap();
    let [left, ..] = history.find(Fingerprint::of(&db).unwrap(), 0, [10, 0, 0, 0, 0]).unwrap();
    assert_eq!(left, 10, "the tail had the others");
}

#[test]
fn tolerant_opening_goes_on_where_a_keyspace_has_persisted_past_the_damage() {
    let setup = MemoryFs::new();
    let db = history::open(&setup).unwrap();
    let options = KeyspaceOptions::lsm();
    let ahead = db.keyspace("ahead", options.clone()).unwrap();
    let behind = db.keyspace("behind", options).unwrap();
    for number in 0..100 {
        ahead.put(format!("{number:02}"), "v").unwrap();
        behind.put(format!("{number:02}"), "v").unwrap();
    }
    ahead.persist().unwrap();
    db.persist().unwrap();
    let last = db.stats().last_seqno;
    drop((ahead, behind, db));
    let path = Path::new(history::PATH).join("log/000001.log");
    let middle = used(&read(&setup, &path).unwrap()) / 2;
    setup.corrupt(&path, middle as u64, 1).unwrap();
    assert_eq!(history::open(&setup).unwrap_err().kind(), ErrorKind::Corruption);

    let counts = |db: &Database| {
        ["ahead", "behind"].map(|name| db.open_keyspace(name).unwrap().count().unwrap())
    };
    let tolerant = || history::builder(Arc::new(setup.clone())).recovery(RecoveryMode::Tolerant);
    let reader = tolerant().read_only(true).open().unwrap();
    let [100, left @ 1..100] = counts(&reader) else { panic!("{:?}", counts(&reader)) };
    drop(reader);
    let db = tolerant().open().unwrap();
    assert_eq!((counts(&db), db.stats().last_seqno), ([100, left], last));
    assert!(db.recovery().dropped_bytes > 0);
    assert_eq!(db.verify().unwrap().problems.len(), 0);
    drop(db);
    for round in 0..3 {
        let db = history::open(&setup).unwrap();
        assert_eq!((counts(&db), db.stats().last_seqno), ([100, left + round], last + round));
        assert_eq!(db.recovery().dropped_bytes, 0);
        db.open_keyspace("behind").unwrap().put(format!("more {round}"), "v").unwrap();
    }
}
