//! Faults of the file system: errors at every call of a workload, and what each engine does when it cannot read or has no space.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, MemoryFs, Operation, PowerCut, Times};
use turbidite::{Database, Durability, EngineKind, ErrorKind, Layer, Slice};
use turbidite_torture::Setting;
use turbidite_torture::faults::{Effort, run};

use crate::{choices, history};

const EIO: Errno = Errno::Raw(5);

/// One case in so many of all errors at all calls.
fn fail_everywhere(layer: Layer, every: usize) {
    let report = run(Setting::new(choices::seed(), layer), Effort { every }, |_| true);
    let fired = report.faults_fired();
    println!("{layer}: {} runs, {fired} faults, {} calls", report.cases, report.operations);
    let told = report.violations.iter().take(20);
    let told: Vec<_> = told.map(|found| format!("{}: {}", found.case, found.problem)).collect();
    assert!(report.violations.is_empty(), "{}", told.join("\n"));
    assert!(fired > report.cases / 2, "{fired} of {}", report.cases);
}

#[test]
fn any_fault_loses_nothing_that_was_acknowledged() {
    fail_everywhere(Layer::Mmap, 10);
}

#[test]
fn any_fault_of_positional_files_loses_nothing_that_was_acknowledged() {
    fail_everywhere(Layer::Positional, 40);
}

#[test]
fn any_fault_of_files_in_blocks_loses_nothing_that_was_acknowledged() {
    fail_everywhere(Layer::BlockCache { block_size: 4096, pages: 16 }, 80);
    fail_everywhere(Layer::Direct { block_size: 4096 }, 80);
}

/// A keyspace of each engine.
const EACH_ENGINE: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

/// A database with some keys of a keyspace in its files and some in the log.
fn filled(fs: &MemoryFs, name: &str) -> Database {
    filled_by(|| history::open(fs).unwrap(), name)
}

/// The same, opened in this way.
fn filled_by(open: impl Fn() -> Database, name: &str) -> Database {
    let put = |db: &Database, numbers: Range<u32>| {
        let keyspace = db.keyspace(name, history::options(name)).unwrap();
        for number in numbers {
            keyspace.put(format!("{number:04}"), vec![number as u8; 2000]).unwrap();
        }
    };
    let db = open();
    put(&db, 0..31);
    // Afterwards no file has room in reserve.
    db.close().unwrap();
    let db = open();
    put(&db, 31..50);
    db
}

fn filled_keys(db: &Database, name: &str) -> usize {
    let keyspace = db.open_keyspace(name).unwrap();
    for number in 0..50 {
        let value = keyspace.get(format!("{number:04}")).unwrap().expect("it was acknowledged");
        assert_eq!(*value, vec![number as u8; 2000]);
    }
    keyspace
        .iter()
        .map(|entry| entry.map(drop))
        .collect::<turbidite::Result<Vec<_>>>()
        .unwrap()
        .len()
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    EACH_ENGINE.into_iter().for_each(fill_the_disk);
}

fn fill_the_disk(name: &str) {
    for room in [0, 100_000, 1_000_000] {
        let fs = MemoryFs::traced();
        let db = filled(&fs, name);
        let keyspace = db.open_keyspace(name).unwrap();
        let used: usize = fs.files().iter().map(|(_, bytes)| bytes.len()).sum();
        fs.quota(Some((used + room) as u64));
        let mut written = 0;
        let refused = loop {
            match keyspace.put(format!("more {written:06}"), vec![1; 30_000]) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 10_000, "the disk is never full");
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused:?}");
        assert_eq!(filled_keys(&db, name), 50 + written);

        // It opens on a full disk, too: after a kill, and with a torn tail.
        for cut in
            [PowerCut::KeepAll, PowerCut::DropUnsynced, PowerCut::Random(1), PowerCut::Random(2)]
        {
            let image = fs.image(fs.operations(), cut);
            image.quota(Some(0));
            let db = history::open(&image).unwrap_or_else(|error| panic!("{cut:?}: {error:?}"));
            if cut == PowerCut::KeepAll {
                assert_eq!(filled_keys(&db, name), 50 + written);
            }
        }

        fs.quota(None);
        keyspace.put("after", "there is space again").unwrap();
        keyspace.persist().unwrap();
        db.close().unwrap();
        let db = history::open(&fs).unwrap();
        assert_eq!(filled_keys(&db, name), 51 + written);
        assert!(db.verify().unwrap().problems.is_empty());
    }
}

#[test]
fn a_full_disk_stops_no_reader_and_flushes_resume() {
    EACH_ENGINE.into_iter().for_each(read_on_a_full_disk);
}

fn read_on_a_full_disk(name: &str) {
    let fs = MemoryFs::new();
    let db = filled(&fs, name);
    let keyspace = db.open_keyspace(name).unwrap();
    let used: usize = fs.files().iter().map(|(_, bytes)| bytes.len()).sum();
    fs.quota(Some(used as u64 + 10));
    let error = keyspace.persist().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
    assert_eq!(filled_keys(&db, name), 50);
    fs.quota(None);
    keyspace.compact().unwrap();
    assert_eq!(filled_keys(&db, name), 50);
    assert_eq!(keyspace.stats().levels.len(), if name == "alpha" { 1 } else { 0 });
}

#[test]
fn a_read_only_file_system_is_read_and_not_changed() {
    EACH_ENGINE.into_iter().for_each(read_what_is_read_only);
}

fn read_what_is_read_only(name: &str) {
    let fs = MemoryFs::new();
    drop(filled(&fs, name));
    fs.write_file(&Path::new(history::PATH).join("log/999999.log"), b"").unwrap();
    let before = fs.files();
    fs.set_read_only(true);
    let error = history::open(&fs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
    let db = history::builder(Arc::new(fs.clone())).read_only(true).open().unwrap();
    assert_eq!(filled_keys(&db, name), 50);
    let keyspace = db.open_keyspace(name).unwrap();
    assert_eq!(keyspace.put("x", "y").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(keyspace.persist().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(db.verify().unwrap().problems.is_empty());
    db.close().unwrap();
    assert_eq!(fs.files(), before);

    let nothing = MemoryFs::new();
    let opened = history::builder(Arc::new(nothing.clone())).read_only(true).open();
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::NotADatabase);
    assert!(nothing.files().is_empty());
}

/// What is in the names of the files that hold a keyspace's data.
fn data_files(name: &str) -> &'static str {
    let (_, engine, _) = history::KEYSPACES.into_iter().find(|known| known.0 == name).unwrap();
    match engine {
        EngineKind::Lsm => ".table",
        EngineKind::Hash => ".data",
        EngineKind::Btree => "tree",
        _ => ".sorted",
    }
}

fn read_fault(files: &str, times: Times) -> Fault {
    Fault { times, name_contains: files.into(), ..Fault::new(Operation::Read, Effect::Fail(EIO)) }
}

#[test]
fn a_cursor_that_failed_stays_failed() {
    ["alpha", "gamma", "delta"].into_iter().for_each(fail_a_cursor);
}

fn fail_a_cursor(name: &str) {
    let fs = MemoryFs::new();
    let db = filled(&fs, name);
    db.open_keyspace(name).unwrap().persist().unwrap();
    db.close().unwrap();
    let faulty = FaultFs::new(Arc::new(fs));
    let db = history::builder(Arc::new(faulty.clone())).open().unwrap();
    let keyspace = db.open_keyspace(name).unwrap();
    let mut cursor = keyspace.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    faulty.arm(read_fault(data_files(name), Times::Once));
    let error = loop {
        match cursor.next() {
            Ok(()) => assert!(cursor.is_valid(), "the walk ended although a read failed"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(!cursor.is_valid());
    assert_eq!(cursor.next().unwrap_err().to_string(), error.to_string());
    assert_eq!(cursor.seek_to_first().unwrap_err().to_string(), error.to_string());
    assert_eq!(filled_keys(&db, name), 50);
}

#[test]
fn a_compaction_that_cannot_read_keeps_its_inputs() {
    EACH_ENGINE.into_iter().for_each(compact_without_reading);
}

fn compact_without_reading(name: &str) {
    let fs = MemoryFs::new();
    drop(filled(&fs, name));
    let faulty = FaultFs::new(Arc::new(fs.clone()));
    let db = history::builder(Arc::new(faulty.clone())).open().unwrap();
    let keyspace = db.open_keyspace(name).unwrap();
    keyspace.persist().unwrap();
    let files = data_files(name);
    let tables = || -> BTreeSet<_> {
        let files_there = fs.files().into_iter();
        files_there.filter(|(path, _)| path.to_string_lossy().ends_with(files)).collect()
    };
    let inputs = tables();
    let is_skip = files == ".sorted";
    if is_skip {
        // Its file is as compact as can be until something changes.
        keyspace.put("0000", vec![0; 2000]).unwrap();
    }
    faulty.arm(read_fault(files, Times::Always));
    assert_eq!(keyspace.compact().unwrap_err().kind(), ErrorKind::Io);
    match is_skip {
        true => assert!(tables().is_superset(&inputs), "{name}"),
        false => assert!(tables() == inputs, "{name}"),
    }
    faulty.disarm();
    assert_eq!(filled_keys(&db, name), 50);
    keyspace.compact().unwrap();
    assert_eq!(filled_keys(&db, name), 50);
    assert!(tables().is_disjoint(&inputs), "{name}");
}

#[test]
fn an_opening_that_cannot_read_changes_nothing() {
    EACH_ENGINE.into_iter().for_each(open_without_reading);
}

fn open_without_reading(name: &str) {
    let fs = MemoryFs::new();
    drop(filled(&fs, name));
    let before = fs.files();
    let counted = FaultFs::new(Arc::new(fs.fork()));
    drop(history::builder(Arc::new(counted.clone())).read_only(true).open().unwrap());
    let reads = [Operation::Read, Operation::Open, Operation::List];
    for (operation, calls) in reads.map(|operation| (operation, counted.calls(operation))) {
        for after in 0..calls {
            let fork = fs.fork();
            let faulty = FaultFs::new(Arc::new(fork.clone()));
            let failing = Effect::Fail(Errno::Kind(io::ErrorKind::Other));
            faulty.arm(Fault { after, ..Fault::new(operation, failing) });
            match history::builder(Arc::new(faulty)).open() {
                Ok(db) => assert_eq!(filled_keys(&db, name), 50),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
                    assert_eq!(fork.files(), before, "{operation:?} {after}: {error:?}");
                }
            }
        }
    }
}

#[test]
fn who_only_reads_does_not_believe_one_wrong_read_either() {
    EACH_ENGINE.into_iter().for_each(read_wrongly);
}

/// Has each of the reads with which the database is opened show what there was before, or near its end what never was.
fn read_wrongly(name: &str) {
    let fs = MemoryFs::new();
    let writing = FaultFs::new(Arc::new(fs.clone()));
    writing.remember();
    let builder =
        |fs: &FaultFs| history::builder(Arc::new(fs.clone())).log_layer(Layer::Positional);
    let db = filled_by(|| builder(&writing).open().unwrap(), name);
    let keyspace = db.open_keyspace(name).unwrap();
    // Some of it is in the manifest, and some of it in the log, which does not say that it was synced.
    keyspace.persist().unwrap();
    for number in 40..50_u8 {
        keyspace.put(format!("{number:04}"), vec![number + 100; 2000]).unwrap();
    }
    let (mut refused, mut fired) = (0, 0);
    let effects = [0, 1000, 40_000].map(Effect::FlipBack).into_iter().chain([Effect::Stale]);
    for (effect, after) in effects.flat_map(|effect| (0..20).map(move |after| (effect, after))) {
        let read = writing.moved_to(Arc::new(fs.fork()));
        read.arm(Fault { after, ..Fault::new(Operation::Read, effect) });
        let opened = builder(&read).read_only(true).open();
        let all = opened.and_then(|db| db.open_keyspace(name)?.iter().collect());
        fired += read.fired();
        match all {
            Ok(all) => {
                let all: Vec<_> = all;
                let value = |number: u8| vec![number + if number < 40 { 0 } else { 100 }; 2000];
                let right = (0..50_u8).map(|number| (format!("{number:04}"), value(number)));
                let is_right = |(found, (key, value)): (&(Slice, Slice), (String, Vec<u8>))| {
                    *found.0 == *key.as_bytes() && *found.1 == *value
                };
                let are_right = all.len() == 50 && all.iter().zip(right).all(is_right);
                assert!(are_right, "{name}: {effect:?} of read {after}");
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error:?}");
                refused += 1;
            }
        }
    }
    assert!(fired > 10 && refused > 5, "{name}: {refused} of {fired}");
}

/// A segment that was to follow a torn tail, and is there with its link though there was said to be no space for it and for its removal, is not followed
/// in the place of another one.
#[test]
fn one_segment_follows_a_torn_tail() {
    let fs = MemoryFs::new();
    let db = history::builder(Arc::new(fs.clone())).log_layer(Layer::Positional).open().unwrap();
    let alpha = db.keyspace("alpha", history::options("alpha")).unwrap();
    // Segments that are not needed any more wait to be used again.
    for number in 0..40 {
        alpha.put(format!("{number:04}"), vec![number; 20_000]).unwrap();
    }
    alpha.persist().unwrap();
    for number in 40..50 {
        alpha.put(format!("{number:04}"), vec![number; 2000]).unwrap();
    }
    let fs = fs.fork();
    // The last record is torn.
    let value = vec![49; 2000];
    let has = |bytes: &[u8]| bytes.windows(2000).position(|part| part == value);
    let found = fs.files().into_iter().find_map(|(path, bytes)| Some((path, has(&bytes)?)));
    let (path, at) = found.expect("it is in the log");
    fs.corrupt(&path, at as u64 + 10, 1).unwrap();
    let no_space = Errno::Raw(28);
    // Not the tail.
    let is_log = |fault| Fault { name_contains: "00000".into(), ..fault };
    let mut both = 0;
    for after in 0..12 {
        let fork = fs.fork();
        let faulty = FaultFs::new(Arc::new(fork.clone()));
        let done = is_log(Fault::new(Operation::Write, Effect::FailDone(no_space)));
        faulty.arm(Fault { after, ..done });
        faulty.arm(is_log(Fault::new(Operation::Remove, Effect::Fail(no_space))));
        let open = |fs: Arc<dyn turbidite::vfs::Fs>| {
            history::builder(fs).log_layer(Layer::Positional).open()
        };
        let opened = open(Arc::new(faulty.clone()));
        both += usize::from(faulty.fired() == 2);
        faulty.disarm();
        let db = match opened {
            Ok(db) => db,
            Err(_) => open(Arc::new(fork.clone())).unwrap(),
        };
        let alpha = db.open_keyspace("alpha").unwrap();
        assert_eq!(alpha.count().unwrap(), 49, "write {after}");
        alpha.put_with("more", "of it", Durability::Sync).unwrap();
        let db = open(Arc::new(fork.fork())).unwrap_or_else(|error| panic!("{after}: {error:?}"));
        let more = db.open_keyspace("alpha").unwrap().get("more").unwrap();
        assert!(more.is_some(), "what was synced is lost: write {after}");
    }
    assert!(both > 0, "nothing was met");
}

#[test]
fn a_flush_that_finds_no_space_anywhere_is_done_again() {
    EACH_ENGINE.into_iter().for_each(flush_without_space);
}

fn flush_without_space(name: &str) {
    let bytes_of = |fs: &MemoryFs, is_counted: fn(&Path) -> bool| -> u64 {
        let files = fs.files().into_iter().filter(|(path, _)| is_counted(path));
        files.map(|(_, bytes)| bytes.len() as u64).sum()
    };
    // A segment of the log may be made ready at any time, or let go.
    let without_log = |path: &Path| path.extension().is_none_or(|extension| extension != "log");
    let fs = MemoryFs::new();
    let db = filled(&fs, name);
    let before = bytes_of(&fs, without_log);
    db.open_keyspace(name).unwrap().persist().unwrap();
    let needed = bytes_of(&fs, without_log) - before;
    let mut refused = 0;
    let rooms: Vec<u64> = match data_files(name) {
        // Its file grows by more than is needed, if there is room.
        "tree" => (0..80_000).step_by(997).collect(),
        // The last bytes needed are those of the manifest.
        _ => (0..needed).step_by(9973).chain(needed - 160..=needed).collect(),
    };
    for room in rooms {
        let fs = MemoryFs::new();
        let db = filled(&fs, name);
        let keyspace = db.open_keyspace(name).unwrap();
        fs.quota(Some(bytes_of(&fs, |_| true) + room));
        if let Err(error) = keyspace.persist() {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{room} of {needed}: {error:?}");
            refused += 1;
        }
        fs.quota(None);
        keyspace.put("after", "there is space again").unwrap();
        keyspace.persist().unwrap_or_else(|error| panic!("{room} of {needed}: {error:?}"));
        db.close().unwrap();
        let db = history::open(&fs).unwrap();
        assert_eq!(filled_keys(&db, name), 51);
        assert!(db.verify().unwrap().problems.is_empty());
    }
    assert!(refused > 10, "the quota hit {refused} times only");
}

#[test]
fn one_keyspace_without_space_does_not_hang_the_others() {
    let fs = MemoryFs::new();
    let db = history::open(&fs).unwrap();
    let keyspaces = ["unlogged", "loose", "stray", "apart"]
        .map(|name| db.keyspace(name, history::options(name)).unwrap());
    fs.quota(Some(0));
    let fill = |keyspace: &turbidite::Keyspace| {
        let outcome = (0..100_000_u32).find_map(|n| keyspace.put(n.to_le_bytes(), [1; 5000]).err());
        outcome.expect("memory is full at some point")
    };
    for keyspace in &keyspaces {
        assert_eq!(fill(keyspace).kind(), ErrorKind::NoSpace, "{}", keyspace.name());
    }
    fs.quota(None);
    for keyspace in &keyspaces {
        while keyspace.put("after", "there is space again").is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    db.close().unwrap();
}

#[test]
fn compact_does_not_wait_for_a_compaction_that_keeps_failing() {
    EACH_ENGINE.into_iter().for_each(compact_beside_one_that_fails);
}

fn compact_beside_one_that_fails(name: &str) {
    let fs = MemoryFs::new();
    drop(filled(&fs, name));
    let faulty = FaultFs::new(Arc::new(fs));
    let db = history::builder(Arc::new(faulty.clone())).open().unwrap();
    let keyspace = db.open_keyspace(name).unwrap();
    faulty.arm(read_fault(data_files(name), Times::Always));
    // Enough for work in the background, which cannot read.
    for round in 0..12 {
        keyspace.put("more", vec![round; 3000]).unwrap();
        if keyspace.persist().is_err() {
            break;
        }
    }
    let error = keyspace.compact().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{name}: {error:?}");
    faulty.disarm();
    keyspace.compact().unwrap_or_else(|error| panic!("{name}, repaired: {error:?}"));
    assert_eq!(filled_keys(&db, name), 51);
}
