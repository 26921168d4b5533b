//! Values kept apart from their keys in an LSM-tree: how much room they take, what keeps them, and what goes wrong.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, Fs, MemoryFs, Operation, Times};
use turbidite::{Database, ErrorKind, Keyspace, KeyspaceOptions, Slice, ValueStats};

use crate::history::Dice;
use crate::setup::{NAME, Setup, contents, memory_layers};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn apart(bytes: u32) -> KeyspaceOptions {
    KeyspaceOptions::lsm().separate_values(bytes)
}

/// A keyspace that keeps values of 100 bytes and more apart.
fn setup(fs: &(impl Fs + Clone + 'static)) -> Setup {
    with(fs, apart(100))
}

fn with(fs: &(impl Fs + Clone + 'static), options: KeyspaceOptions) -> Setup {
    let mut setup = Setup::on(Arc::new(fs.clone()));
    setup.options = options;
    setup
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

/// Puts `numbers`, each with a value of its own.
fn put(
    keyspace: &Keyspace,
    model: &mut Map,
    dice: &mut Dice,
    numbers: impl Iterator<Item = usize>,
    len: usize,
) {
    for number in numbers {
        let value = dice.bytes(8).repeat(len.div_ceil(8));
        keyspace.put(key(number), &value).unwrap();
        model.insert(key(number), value);
    }
}

fn check(keyspace: &Keyspace, model: &Map) {
    assert!(contents(keyspace.iter()) == *model);
    assert_eq!(keyspace.count().unwrap(), model.len() as u64);
    let keys = keyspace.iter().keys().map(|key| key.unwrap());
    assert!(keys.eq(model.keys()));
    let keys = keyspace.iter().keys().rev().map(|key| key.unwrap());
    assert!(keys.eq(model.keys().rev()));
    let back = keyspace.iter().rev().map(|item| item.unwrap());
    assert!(back.eq(model.iter().rev().map(|(k, v)| (Slice::from(&k[..]), Slice::from(&v[..])))));
    let found = keyspace.multi_get(model.keys()).unwrap();
    assert!(found.iter().map(Option::as_deref).eq(model.values().map(|value| Some(&value[..]))));
    for (key, value) in model.iter().step_by(7) {
        assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

fn verified(database: &Database) {
    let report = database.verify().unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
}

/// The value files there are.
fn value_files(fs: &MemoryFs) -> Vec<PathBuf> {
    let files = fs.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.extension().is_some_and(|kind| kind == "values")).collect()
}

fn values(keyspace: &Keyspace) -> ValueStats {
    keyspace.stats().values
}

#[test]
fn overwriting_for_long_takes_a_bounded_room() {
    let fs = MemoryFs::new();
    let setup = setup(&fs);
    let (database, keyspace) = setup.start();
    let (mut model, mut dice) = (Map::new(), Dice::new(1));
    const RECORDS: usize = 1500;
    const LEN: usize = 2000;
    put(&keyspace, &mut model, &mut dice, 0..RECORDS, LEN);
    let live = (RECORDS * LEN) as u64;
    for round in 0..12 {
        // All keys, a part of them, or a few again and again.
        let (count, among) = [(RECORDS, RECORDS), (RECORDS, 500), (2 * RECORDS, 30)][round % 3];
        let numbers: Vec<usize> = (0..count).map(|_| dice.roll(among)).collect();
        put(&keyspace, &mut model, &mut dice, numbers.into_iter(), LEN);
        keyspace.persist().unwrap();
        database.settle().unwrap();
        let stats = values(&keyspace);
        assert!(stats.garbage <= stats.bytes / 2, "round {round}: {stats:?}");
        let disk = keyspace.stats().disk_bytes;
        assert!(disk <= 3 * live, "round {round}: {disk} bytes for {live}, {stats:?}");
    }
    check(&keyspace, &model);
    verified(&database);
    keyspace.compact().unwrap();
    let stats = values(&keyspace);
    assert_eq!(stats.bytes, stats.files * 64 + (RECORDS * (LEN + 16)) as u64);
    assert_eq!((stats.garbage, value_files(&fs).len() as u64), (0, stats.files));
    check(&keyspace, &model);
    // All that is deleted goes.
    model.keys().for_each(|key| keyspace.delete(key).unwrap());
    keyspace.compact().unwrap();
    assert_eq!((values(&keyspace), value_files(&fs).len()), (ValueStats::default(), 0));
}

#[test]
fn values_are_written_once_and_references_move() {
    let fs = MemoryFs::new();
    let setup = setup(&fs);
    let (database, keyspace) = setup.start();
    let (mut model, mut dice) = (Map::new(), Dice::new(2));
    for round in 0..10 {
        put(&keyspace, &mut model, &mut dice, (0..200).map(|n| 10 * n + round), 1000);
        keyspace.persist().unwrap();
    }
    database.settle().unwrap();
    assert!(keyspace.stats().compactions > 0);
    let stats = values(&keyspace);
    assert_eq!((stats.garbage, stats.bytes), (0, stats.files * 64 + 2000 * 1016));
    let before = value_files(&fs);
    // Compactions of other keys leave them alone.
    for round in 0..8 {
        put(&keyspace, &mut model, &mut dice, (0..200).map(|n| 3000 + 10 * n + round), 50);
        keyspace.persist().unwrap();
    }
    database.settle().unwrap();
    assert_eq!(value_files(&fs), before);
    check(&keyspace, &model);
}

#[test]
fn the_options_may_change_each_time() {
    let fs = MemoryFs::new();
    let (mut model, mut dice) = (Map::new(), Dice::new(3));
    for (round, bytes) in [0, 100, 3000, 64, 0, 500, 0].into_iter().enumerate() {
        let (database, keyspace) = with(&fs, apart(bytes)).start();
        check(&keyspace, &model);
        for len in [20, 200, 2000] {
            let numbers: Vec<usize> = (0..80).map(|_| dice.roll(400)).collect();
            put(&keyspace, &mut model, &mut dice, numbers.into_iter(), len);
        }
        keyspace.persist().unwrap();
        check(&keyspace, &model);
        if round % 2 == 0 {
            keyspace.compact().unwrap();
            let long = model.values().filter(|value| bytes > 0 && value.len() >= bytes as usize);
            let records: usize = long.map(|value| value.len() + 16).sum();
            let stats = values(&keyspace);
            assert_eq!(stats.bytes, 64 * stats.files + records as u64, "{bytes}: {stats:?}");
            check(&keyspace, &model);
        }
        verified(&database);
        drop(keyspace);
        database.close().unwrap();
    }
}

#[test]
fn snapshots_cursors_and_ranges_keep_what_they_see() {
    for layer in memory_layers() {
        let fs = MemoryFs::new();
        let setup = setup(&fs).layer(layer);
        let (database, keyspace) = setup.start();
        let (mut model, mut dice) = (Map::new(), Dice::new(4));
        put(&keyspace, &mut model, &mut dice, 0..300, 500);
        keyspace.persist().unwrap();
        let (snapshot, old) = (database.snapshot(), model.clone());
        let mut cursor = keyspace.cursor().unwrap();
        cursor.seek(key(100)).unwrap();
        let mut range = keyspace.iter();
        let first = range.next().unwrap().unwrap();
        for _ in 0..3 {
            put(&keyspace, &mut model, &mut dice, 0..300, 500);
            keyspace.compact().unwrap();
        }
        assert_eq!(contents(snapshot.iter(&keyspace)), old, "{layer}");
        for number in 100..300 {
            assert_eq!((cursor.key(), cursor.value()), (&key(number)[..], &old[&key(number)][..]));
            cursor.next().unwrap();
        }
        assert_eq!(first.1, old[&key(0)]);
        assert!(contents(range).into_iter().eq(old.clone().into_iter().skip(1)));
        verified(&database);
        drop((cursor, snapshot));
        keyspace.compact().unwrap();
        check(&keyspace, &model);
        let stats = values(&keyspace);
        assert_eq!((stats.garbage, value_files(&fs).len() as u64), (0, stats.files), "{layer}");
        // Read-only, nothing is made or removed.
        drop(keyspace);
        database.close().unwrap();
        let before = fs.files();
        let database = setup.builder().read_only(true).open().unwrap();
        check(&database.open_keyspace(NAME).unwrap(), &model);
        verified(&database);
        database.close().unwrap();
        assert!(fs.files() == before);
    }
}

#[test]
fn the_layer_may_change_each_time() {
    let fs = MemoryFs::new();
    let (mut model, mut dice) = (Map::new(), Dice::new(5));
    for layer in memory_layers() {
        let (database, keyspace) = setup(&fs).layer(layer).start();
        check(&keyspace, &model);
        let numbers: Vec<usize> = (0..100).map(|_| dice.roll(300)).collect();
        put(&keyspace, &mut model, &mut dice, numbers.into_iter(), 700);
        keyspace.persist().unwrap();
        check(&keyspace, &model);
        drop(keyspace);
        database.close().unwrap();
    }
}

/// A database with values apart behind a file system with faults.
fn faulty() -> (MemoryFs, FaultFs, Database, Keyspace, Map) {
    let fs = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let (database, keyspace) = setup(&faults).start();
    let (mut model, mut dice) = (Map::new(), Dice::new(6));
    put(&keyspace, &mut model, &mut dice, 0..200, 500);
    keyspace.persist().unwrap();
    (fs, faults, database, keyspace, model)
}

fn fault(operation: Operation, errno: i32) -> Fault {
    let fault = Fault::new(operation, Effect::Fail(Errno::Raw(errno)));
    Fault { name_contains: ".values".into(), times: Times::Always, ..fault }
}

#[test]
fn who_wants_no_values_reads_none() {
    let (_, faults, database, keyspace, model) = faulty();
    drop(keyspace);
    // Opened anew, so that none is open.
    database.close().unwrap();
    let (_database, keyspace) = setup(&faults).start();
    faults.arm(fault(Operation::Read, 5));
    faults.arm(fault(Operation::Open, 5));
    assert_eq!(keyspace.count().unwrap(), 200);
    assert!(keyspace.iter().keys().map(|key| key.unwrap()).eq(model.keys()));
    assert!(keyspace.get(key(500)).unwrap().is_none());
    assert_eq!(keyspace.get(key(3)).unwrap_err().kind(), ErrorKind::Io);
    let mut items = keyspace.iter();
    assert_eq!(items.next().unwrap().unwrap_err().kind(), ErrorKind::Io);
    assert!(items.next().is_none());
    faults.disarm();
    check(&keyspace, &model);
}

#[test]
fn a_full_disk_leaves_nothing_behind_and_writing_goes_on_after_it() {
    for (operation, errno) in [
        (Operation::Create, 28),
        (Operation::Write, 28),
        (Operation::Write, 5),
        (Operation::Sync, 5),
    ] {
        let (fs, faults, database, keyspace, mut model) = faulty();
        let before = value_files(&fs);
        put(&keyspace, &mut model, &mut Dice::new(7), 100..300, 500);
        faults.arm(fault(operation, errno));
        let error = keyspace.persist().unwrap_err();
        assert_eq!(error.kind(), if errno == 28 { ErrorKind::NoSpace } else { ErrorKind::Io });
        check(&keyspace, &model);
        assert_eq!(keyspace.compact().unwrap_err().kind(), error.kind());
        assert_eq!(value_files(&fs), before, "{operation:?} {errno}");
        faults.disarm();
        keyspace.persist().unwrap();
        keyspace.compact().unwrap();
        check(&keyspace, &model);
        let stats = values(&keyspace);
        assert_eq!((stats.garbage, value_files(&fs).len() as u64), (0, stats.files));
        verified(&database);
    }
}

#[test]
fn a_value_that_cannot_be_read_stops_a_compaction_and_takes_nothing() {
    let (fs, faults, database, keyspace, model) = faulty();
    let before = value_files(&fs);
    faults.arm(fault(Operation::Read, 5));
    assert_eq!(keyspace.compact().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(value_files(&fs), before);
    faults.disarm();
    check(&keyspace, &model);
    keyspace.compact().unwrap();
    check(&keyspace, &model);
    verified(&database);
}

#[test]
fn what_a_crash_left_is_cleared_away_and_what_is_missing_is_told() {
    let fs = MemoryFs::new();
    let setup = setup(&fs);
    let (database, keyspace) = setup.start();
    let (mut model, mut dice) = (Map::new(), Dice::new(8));
    put(&keyspace, &mut model, &mut dice, 0..200, 500);
    keyspace.persist().unwrap();
    drop(keyspace);
    database.close().unwrap();
    let known = value_files(&fs);
    let leftover = known[0].with_file_name("000777.values");
    fs.write_file(&leftover, b"half a header").unwrap();
    // Reading alone leaves it where it is.
    drop(setup.builder().read_only(true).open().unwrap());
    assert_eq!(value_files(&fs).len(), known.len() + 1);
    let (database, keyspace) = setup.start();
    assert_eq!(value_files(&fs), known);
    check(&keyspace, &model);
    drop(keyspace);
    database.close().unwrap();
    fs.remove(&known[0]).unwrap();
    let before = fs.files();
    let error = setup.builder().open().unwrap_err();
    assert!(
        error.kind() == ErrorKind::Corruption && error.to_string().contains("missing"),
        "{error}"
    );
    assert!(fs.files() == before);
}

#[test]
fn a_keyspace_without_them_has_no_trace_of_them() {
    let fs = MemoryFs::new();
    let (database, keyspace) = with(&fs, KeyspaceOptions::lsm()).start();
    let (mut model, mut dice) = (Map::new(), Dice::new(9));
    put(&keyspace, &mut model, &mut dice, 0..50, 5000);
    keyspace.compact().unwrap();
    assert_eq!((values(&keyspace), value_files(&fs).len()), (ValueStats::default(), 0));
    check(&keyspace, &model);
    verified(&database);
}
