//! Damage to every file of a small database: an error or the right answer, never a wrong one, a panic or a hang; and what cannot
//! be opened is left as it is. And what recovery makes of damage to the log.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use turbidite::vfs::{MemoryFs, PowerCut};
use turbidite::{Database, Durability, ErrorKind, KeyspaceOptions, Layer, RecoveryMode};
use turbidite_torture::flip::places::{Meaning, Places, tree_end};
use turbidite_torture::flip::{Contents, Effort, Opening, Records, Verdict, examine, run};
use turbidite_torture::{Engines, Setting, workers};

use crate::history::{self, Change, Dice, Fingerprint, History, Model, PARTS};
use crate::{choices, setup};

/// Bytes of the values that have pages of their own in a B+ tree.
const LARGE_VALUE: usize = 5000;
/// Bytes of a page of the B+ trees.
const PAGE: usize = 4096;

/// Damages one bit in `every` of the files of a database, and more at their ends, and other things in between.
fn damage(setting: Setting, every: usize) {
    let report = run(setting, Effort { every }, |_| true);
    println!("{setting}: {} cases, {:?}", report.cases, report.counts);
    // The names are for `torture replay`, but here threads are in any order.
    let told = report.violations.iter().take(40);
    let told: Vec<_> = told.map(|found| format!("{}: {}", found.case, found.problem)).collect();
    assert!(
        report.violations.is_empty(),
        "damage was not noticed {} times:\n{}",
        report.violations.len(),
        told.join("\n")
    );
    let count = |verdict: &str| report.counts[verdict];
    assert!(count("refused") > 100 && count("found by verify") > 100 && count("harmless") > 0);
}

#[test]
fn damage_to_a_database_with_all_engines_is_noticed() {
    damage(Setting::new(choices::seed(), Layer::Mmap), 256);
}

#[test]
fn damage_to_a_database_with_one_engine_is_noticed() {
    let layers = setup::memory_layers();
    let first = choices::seed() as usize % layers.len();
    let layers = layers.into_iter().cycle().skip(first);
    for (engines, layer) in Engines::each().into_iter().zip(layers) {
        damage(Setting { engines, ..Setting::new(choices::seed(), layer) }, 1024);
    }
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

/// What a model has, to examine a database with.
fn contents(model: &Model) -> Contents {
    let records = |map: &BTreeMap<Vec<u8>, Vec<u8>>| {
        map.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect::<Records>()
    };
    model.maps.iter().map(|(name, map)| (name.to_string(), records(map))).collect()
}

/// How many bytes at the front of a file are in use: the rest is zeros.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1)
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
    let contents = contents(&model);
    for birth in births {
        let aged = fs.fork();
        aged.write_file(&path, &birth).unwrap();
        assert_eq!(examine(&aged, Layer::Mmap, &contents, Opening::Writing), Ok(Verdict::Refused));
    }
}

#[test]
fn pages_of_a_tree_that_were_not_written_are_noticed() {
    let layers = [Layer::Mmap, Layer::Positional];
    let cases = [("gamma", 1), ("gamma", 3), ("stray", 2)];
    for (layer, (keyspace, writes)) in
        layers.into_iter().flat_map(|layer| cases.map(|case| (layer, case)))
    {
        let fs = MemoryFs::new();
        let db = history::open(&fs).unwrap();
        let (mut model, mut dice) = (Model::default(), Dice::new(10));
        db.keyspace(keyspace, history::options(keyspace).layer(layer)).unwrap();
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
        let contents = contents(&model);
        let places = Places::of_tree(&closed, &contents[keyspace]);
        workers::each(cases.into_iter(), |(number, at)| {
            let mut bytes = closed.clone();
            bytes[at..at + PAGE].copy_from_slice(&files[number][at..at + PAGE]);
            let fs = fs.fork();
            fs.write_file(&path, &bytes).unwrap();
            if examine(&fs, Layer::Mmap, &contents, Opening::Writing).unwrap() == Verdict::Silent {
                let mut changed = (at..at + PAGE).filter(|&at| bytes[at] != closed[at]);
                let says_nothing = changed.all(|at| places.meaning(at) < Meaning::Needed);
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
