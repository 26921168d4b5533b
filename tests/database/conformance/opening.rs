//! Opening: what is taken for a database, what is refused, and that a refusal changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use turbidite::vfs::{Access, Errno, Fs, MemoryFs, PathKind, PowerCut};
use turbidite::{
    Database, Durability, EngineKind, Error, ErrorKind, KeyspaceOptions, Layer, RecoveryMode,
    Result,
};

use crate::setup::{ENGINES, NAME, Setup, contents, files_below, layers, options};

fn kind(result: Result<Database>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn a_file_is_not_a_database_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    std::fs::write(&path, "my notes").unwrap();
    assert_eq!(kind(Database::open(&path)), Some(ErrorKind::NotADatabase));
    let reading = Database::builder(&path).read_only(true);
    assert_eq!(kind(reading.open()), Some(ErrorKind::NotADatabase));
    assert_eq!(files_below(dir.path()), BTreeMap::from([(path, b"my notes".to_vec())]));
}

#[test]
fn a_foreign_directory_stays_as_it_is() {
    for names in [&["photo.jpg"][..], &["log/000001.log"], &["lock", "keyspaces/1/000001.table"]] {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        let before = files_below(dir.path());
        for read_only in [false, true] {
            let builder = Database::builder(dir.path()).read_only(read_only);
            let error = builder.open().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotADatabase, "{names:?}");
            assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
        }
        assert_eq!(files_below(dir.path()), before);
    }
}

#[test]
fn nothing_is_created_unless_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_path_buf(), dir.path().join("absent")] {
        let builder = || Database::builder(&path);
        assert_eq!(kind(builder().create(false).open()), Some(ErrorKind::NotADatabase));
        assert_eq!(kind(builder().read_only(true).open()), Some(ErrorKind::NotADatabase));
        assert_eq!(files_below(dir.path()).len(), 0);
        assert!(!dir.path().join("absent").exists());
    }
    // An empty directory is a place for a database, and so are missing ones.
    Database::open(dir.path()).unwrap().close().unwrap();
    Database::builder(dir.path()).create(false).open().unwrap().close().unwrap();
    let deep = tempfile::tempdir().unwrap();
    Database::open(deep.path().join("a/b/c")).unwrap().close().unwrap();
}

#[test]
fn an_interrupted_creation_is_taken_up_again() {
    // Wherever the power fails during the first opening, the next one works.
    let fs = MemoryFs::traced();
    let path = PathBuf::from("/test.db");
    let open = |fs: MemoryFs| Database::builder(&path).file_system(Arc::new(fs)).open();
    open(fs.clone()).unwrap().close().unwrap();
    for at in 0..=fs.operations() {
        for cut in [PowerCut::KeepAll, PowerCut::DropUnsynced, PowerCut::Random(at as u64)] {
            let opened = open(fs.image(at, cut));
            let database = opened.unwrap_or_else(|error| panic!("{at}, {cut:?}: {error}"));
            let keyspace = database.keyspace(NAME, KeyspaceOptions::lsm()).unwrap();
            keyspace.put("k", "v").unwrap();
        }
    }
}

#[test]
fn a_new_database_and_the_way_to_it_survive_a_power_cut() {
    let fs = Arc::new(MemoryFs::traced());
    let open = |fs: Arc<MemoryFs>| {
        let builder = Database::builder("/new/way/to/test.db").file_system(fs);
        builder.durability(Durability::Sync).open().unwrap()
    };
    let database = open(Arc::clone(&fs));
    database.keyspace(NAME, KeyspaceOptions::lsm()).unwrap().put("k", "v").unwrap();
    let after = open(Arc::new(fs.image(fs.operations(), PowerCut::DropUnsynced)));
    assert_eq!(after.open_keyspace(NAME).unwrap().get("k").unwrap().unwrap(), "v");
}

#[test]
fn a_creation_is_not_built_on_a_name_whose_sync_has_failed() {
    for engine in ENGINES {
        // Whichever it was: what was taken for written is not on the disk unless it changes again.
        for after in 0.. {
            let fs = MemoryFs::traced();
            fs.lose_dir_sync_after(after, Errno::Raw(5));
            let open = |fs: &MemoryFs| {
                let builder = Database::builder("/new/way/to/test.db");
                builder.file_system(Arc::new(fs.clone())).durability(Durability::Sync).open()
            };
            let create = || -> Result<()> {
                let database = open(&fs)?;
                // With the same handle, or, where that does not write any more, the next one.
                let keyspace = || database.keyspace(NAME, options(engine));
                let keyspace = keyspace().or_else(|_| keyspace())?;
                keyspace.put("k", "v")
            };
            create().or_else(|_| create()).unwrap_or_else(|e| panic!("{engine}, {after}: {e}"));
            if fs.lost_syncs() == 0 {
                assert!(after > 5, "{after}");
                break;
            }
            let left = fs.image(fs.operations(), PowerCut::DropUnsynced);
            let found = open(&left).and_then(|database| database.open_keyspace(NAME)?.get("k"));
            let found = found.unwrap_or_else(|error| panic!("{engine}, {after}: {error}"));
            assert_eq!(found.as_deref(), Some(&b"v"[..]), "{engine}, {after}");
        }
    }
}

#[test]
fn engine_and_log_of_a_keyspace_are_fixed() {
    for setup in Setup::all() {
        let database = setup.open();
        let other = |logged| setup.options.clone().log(logged);
        let refused = |database: &Database| {
            for (name, options) in [
                ("with", other(false)),
                ("without", other(true)),
                ("with", setup.other()),
                ("without", setup.other().log(false)),
            ] {
                let error = database.keyspace(name, options).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert!(error.to_string().contains(name), "{error}");
            }
        };
        database.keyspace("with", other(true)).unwrap().put("k", "v").unwrap();
        database.keyspace("without", other(false)).unwrap().put("k", "v").unwrap();
        refused(&database);
        database.close().unwrap();
        let database = setup.open();
        refused(&database);
        for (name, logged) in [("with", true), ("without", false)] {
            assert_eq!(database.keyspace(name, other(logged)).unwrap().count().unwrap(), 1);
            let info = database.keyspaces().into_iter().find(|info| info.name == name).unwrap();
            assert_eq!((info.logged, info.engine), (logged, setup.engine), "{setup}");
        }
    }
}

#[test]
fn the_layer_may_change() {
    ENGINES.into_iter().for_each(change_the_layer);
}

fn change_the_layer(engine: EngineKind) {
    let setup = Setup::disk(Layer::Positional);
    let layers = layers();
    let last = *layers.last().unwrap();
    let mut count = 0;
    for (opening, &log_layer) in layers.iter().enumerate() {
        let database = setup.builder().log_layer(log_layer).open().unwrap();
        for &layer in &layers {
            let keyspace = database.keyspace(NAME, options(engine).layer(layer)).unwrap();
            keyspace.put(format!("{opening} {layer} {count}"), "v").unwrap();
            keyspace.persist().unwrap();
            count += 1;
            let found = contents(keyspace.iter()).len();
            assert_eq!(found, count, "{engine}, {layer}");
            assert_eq!(keyspace.stats().layer, layer);
            assert_eq!(database.keyspaces()[0].layer, layer);
        }
        database.close().unwrap();
        let database = setup.open();
        assert_eq!(database.keyspaces()[0].layer, last, "it is remembered");
        assert_eq!(database.open_keyspace(NAME).unwrap().stats().layer, last);
    }
}

#[test]
fn a_second_opener_of_the_process_is_locked_out() {
    for setup in Setup::all() {
        let (database, keyspace) = setup.start();
        keyspace.put("k", "v").unwrap();
        for read_only in [false, true] {
            let second = setup.builder().read_only(read_only).open();
            match second.unwrap_err() {
                Error::Locked { path } => assert_eq!(path, setup.path, "{setup}"),
                other => panic!("{setup}: {other:?}"),
            }
        }
        keyspace.put("k", "w").unwrap();
        database.close().unwrap();
        let readers = [(); 2].map(|()| setup.builder().read_only(true).open().unwrap());
        assert_eq!(kind(setup.builder().open()), Some(ErrorKind::Locked), "{setup}");
        for reader in readers {
            let keyspace = reader.open_keyspace(NAME).unwrap();
            assert_eq!(keyspace.get("k").unwrap().unwrap(), "w", "{setup}");
        }
        setup.open();
    }
}

/// Set for the process that [`another_process_is_locked_out`] starts: the database to open.
const OTHER_PROCESS: &str = "TURBIDITE_TEST_OPEN";

#[test]
fn another_process_is_locked_out() {
    if let Some(path) = std::env::var_os(OTHER_PROCESS) {
        println!("[{:?}]", kind(Database::builder(path).create(false).open()));
        return;
    }
    let setup = Setup::disk(Layer::Mmap);
    let other_process = || {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "conformance::opening::another_process_is_locked_out", "--nocapture"])
            .env(OTHER_PROCESS, &setup.path)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let (database, keyspace) = setup.start();
    keyspace.put("k", "v").unwrap();
    assert!(other_process().contains("[Some(Locked)]"));
    keyspace.put("k", "w").unwrap();
    database.close().unwrap();
    assert!(other_process().contains("[None]"));
    assert_eq!(setup.start().1.get("k").unwrap().unwrap(), "w");
}

// ---- reading only ----

fn read_only(result: Result<()>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnly);
}

fn writes_are_refused(database: &Database) {
    let keyspace = database.open_keyspace(NAME).unwrap();
    read_only(keyspace.put("k", "v"));
    read_only(keyspace.delete("k"));
    read_only(keyspace.persist());
    read_only(keyspace.compact());
    read_only(database.persist());
    read_only(database.keyspace("new", KeyspaceOptions::lsm()).map(drop));
    let mut batch = database.batch();
    batch.put(&keyspace, "k", "v");
    read_only(batch.commit());
}

#[test]
fn a_reader_sees_everything_and_changes_nothing() {
    let cases =
        ENGINES.into_iter().flat_map(|engine| layers().into_iter().map(move |l| (engine, l)));
    for (engine, layer) in cases {
        let setup = Setup::disk(layer).engine(engine);
        let (database, keyspace) = setup.start();
        let other = setup.options.clone().log(false);
        let unlogged = database.keyspace("unlogged", other.clone()).unwrap();
        for number in 0..2000 {
            keyspace.put(format!("{number:05}"), vec![1; 500]).unwrap();
            unlogged.put(format!("{number:05}"), "v").unwrap();
        }
        keyspace.put("last", "in the log only").unwrap();
        drop((keyspace, unlogged));
        database.close().unwrap();
        let before = files_below(&setup.path);
        let reader = setup.builder().read_only(true).open().unwrap();
        writes_are_refused(&reader);
        let keyspace = setup.keyspace(&reader);
        assert_eq!(keyspace.count().unwrap(), 2001);
        assert_eq!(keyspace.get("last").unwrap().unwrap(), "in the log only");
        assert_eq!(reader.keyspace("unlogged", other).unwrap().count().unwrap(), 2000);
        reader.settle().unwrap();
        assert!(reader.verify().unwrap().problems.is_empty());
        assert_eq!(reader.stats().last_seqno, 4001);
        reader.close().unwrap();
        assert_eq!(files_below(&setup.path), before, "{setup}");
    }
}

#[test]
fn a_reader_of_a_killed_database_replays_in_memory() {
    ENGINES.into_iter().for_each(replay_in_memory);
}

/// No keyspace fills a memtable, all together fill more than there may be, and the numbers between their writes are in no
/// log.
#[test]
fn many_keyspaces_are_replayed_within_the_memory_there_is() {
    for engine in ENGINES {
        let fs = Arc::new(MemoryFs::traced());
        let writer = Setup::on(Arc::clone(&fs)).engine(engine);
        let database = writer.builder().memory_budget(512 << 20).open().unwrap();
        let open = |database: &Database, logged: bool, name: usize| {
            database.keyspace(&name.to_string(), options(engine).log(logged)).unwrap()
        };
        let keyspaces: Vec<_> = (0..12).map(|name| open(&database, true, name)).collect();
        let unlogged = open(&database, false, 12);
        for number in 0..6000_usize {
            unlogged.put("key", "value").unwrap();
            keyspaces[number % 12].put(format!("{number:05}"), vec![1; 1000]).unwrap();
        }
        let killed = fs.image(fs.operations(), PowerCut::KeepAll);
        let setup = Setup::on(Arc::new(killed)).engine(engine);
        let database = setup.open();
        for name in 0..12 {
            assert_eq!(open(&database, true, name).count().unwrap(), 500, "{setup}");
        }
    }
}

fn replay_in_memory(engine: EngineKind) {
    let fs = Arc::new(MemoryFs::traced());
    let writer = Setup::on(Arc::clone(&fs)).engine(engine);
    let database = writer.builder().memory_budget(512 << 20).open().unwrap();
    let keyspace = writer.keyspace(&database);
    for number in 0..3000_u32 {
        keyspace.put(format!("{number:05}"), vec![number as u8; 4000]).unwrap();
    }
    let killed = fs.image(fs.operations(), PowerCut::KeepAll);
    killed.set_read_only(true);
    let before = killed.files();
    let setup = Setup::on(Arc::new(killed.clone())).engine(engine);
    // The log is larger than the memtables of this reader's budget.
    let reader = setup.builder().read_only(true).open().unwrap();
    assert_eq!(reader.recovery().replayed_batches, 3000);
    writes_are_refused(&reader);
    let keyspace = reader.open_keyspace(NAME).unwrap();
    assert_eq!(keyspace.count().unwrap(), 3000);
    assert_eq!(keyspace.get("02999").unwrap().unwrap(), vec![2999_u32 as u8; 4000]);
    reader.settle().unwrap();
    assert!(reader.verify().unwrap().problems.is_empty());
    drop((keyspace, reader));
    assert_eq!(killed.files(), before);
    // A writer replays it too, within its budget.
    killed.set_read_only(false);
    let (database, keyspace) = setup.start();
    assert_eq!(keyspace.count().unwrap(), 3000);
    assert!(database.stats().memory.memtables <= setup_budget());
    assert!(keyspace.stats().flushes > 0);
}

fn setup_budget() -> u64 {
    turbidite::MIN_MEMORY_BUDGET as u64
}

#[test]
fn opening_for_writing_on_a_read_only_file_system_is_an_error() {
    let fs = Arc::new(MemoryFs::new());
    let setup = Setup::on(Arc::clone(&fs));
    setup.start().1.put("k", "v").unwrap();
    let before = fs.files();
    fs.set_read_only(true);
    assert_eq!(kind(setup.builder().open()), Some(ErrorKind::Io));
    let reader = setup.builder().read_only(true).open().unwrap();
    assert_eq!(reader.open_keyspace(NAME).unwrap().get("k").unwrap().unwrap(), "v");
    drop(reader);
    assert_eq!(fs.files(), before);
}

// ---- formats ----

/// What the checksums of a file are bound to.
fn identity(database: u64, number: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&[database.to_le_bytes(), number.to_le_bytes()].concat())
}

/// Gives a file with a header of 64 bytes another format version, with a right checksum.
fn set_version(bytes: &mut [u8], log_of_edits: Option<&str>, version: u32) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let salt = log_of_edits.map_or(0, |name| xxhash_rust::xxh3::xxh3_64(name.as_bytes()));
    let identity = identity(word(16) ^ salt, word(24));
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let place = [identity.to_le_bytes(), [0; 8]].concat();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&place), &bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn newer_formats_are_refused_and_stay_as_they_are() {
    let fs = Arc::new(MemoryFs::new());
    let setup = Setup::on(Arc::clone(&fs));
    setup.start().1.put("k", "v").unwrap();
    for (name, edits, version) in
        [("catalog-", Some("catalog"), 1), ("manifest-", Some("manifest"), 3), (".log", None, 2)]
    {
        let fork = fs.fork();
        let (path, mut bytes) = file_named(&fork, name);
        let original = bytes.clone();
        set_version(&mut bytes, edits, version);
        assert_eq!(bytes, original, "the checksum of {name} is made as the library makes it");
        set_version(&mut bytes, edits, version + 1);
        fork.write_file(&path, &bytes).unwrap();
        let before = fork.files();
        for (recovery, read_only) in [
            (RecoveryMode::Strict, false),
            (RecoveryMode::Tolerant, false),
            (RecoveryMode::Tolerant, true),
        ] {
            let builder = Setup::on(Arc::new(fork.clone())).builder();
            match builder.recovery(recovery).read_only(read_only).open() {
                Err(Error::NewerFormat { file, found, supported }) => {
                    assert_eq!((file, found, supported), (path.clone(), version + 1, version));
                }
                other => panic!("{name}: {other:?}"),
            }
            assert_eq!(fork.files(), before, "{name}");
        }
    }
}

/// The file with `part` in its name, with its bytes.
fn file_named(fs: &MemoryFs, part: &str) -> (PathBuf, Vec<u8>) {
    let named = |path: &Path| path.file_name().unwrap().to_str().unwrap().contains(part);
    fs.files().into_iter().find(|(path, _)| named(path)).unwrap()
}

#[test]
fn a_newer_table_is_refused_when_it_is_read() {
    let fs = Arc::new(MemoryFs::new());
    let setup = Setup::on(Arc::clone(&fs));
    let (database, keyspace) = setup.start();
    keyspace.put("k", "v").unwrap();
    keyspace.persist().unwrap();
    database.close().unwrap();
    let tables = |(path, _): &(PathBuf, Vec<u8>)| {
        path.parent().unwrap().ends_with("keyspaces/1") && !path.to_str().unwrap().contains("manif")
    };
    let (path, mut bytes) = fs.files().into_iter().find(tables).unwrap();
    let version = bytes.len() - 12;
    bytes[version] = 4;
    fs.write_file(&path, &bytes).unwrap();
    let database = setup.open();
    let keyspace = database.open_keyspace(NAME).unwrap();
    assert_eq!(keyspace.get("k").unwrap_err().kind(), ErrorKind::NewerFormat);
    assert_eq!(keyspace.iter().next().unwrap().unwrap_err().kind(), ErrorKind::NewerFormat);
    assert_eq!(keyspace.count().unwrap_err().kind(), ErrorKind::NewerFormat);
    let problems = database.verify().unwrap().problems;
    assert_eq!(problems.iter().map(Error::kind).collect::<Vec<_>>(), [ErrorKind::NewerFormat]);
    keyspace.put("other", "v").unwrap();
    keyspace.persist().unwrap();
    drop(keyspace);
    drop(database);
    assert!(fs.files().contains(&(path, bytes)));
}

#[test]
fn newer_files_of_a_hash_keyspace_are_refused() {
    let fs = Arc::new(MemoryFs::new());
    let setup = Setup::on(Arc::clone(&fs)).engine(EngineKind::Hash);
    let (database, keyspace) = setup.start();
    keyspace.put("k", "v").unwrap();
    database.close().unwrap();
    drop(keyspace);
    for (name, version) in [(".index", 2), (".data", 2), (".data", 1 << 24)] {
        let fork = Arc::new(fs.fork());
        let (path, mut bytes) = file_named(&fork, name);
        let original = bytes.clone();
        set_version(&mut bytes, None, 1);
        assert_eq!(bytes, original, "the checksum of {name} is made as the library makes it");
        set_version(&mut bytes, None, version);
        fork.write_file(&path, &bytes).unwrap();
        let read = || Setup::on(Arc::clone(&fork)).open().open_keyspace(NAME)?.get("k");
        let error = match name {
            ".index" => kind(Setup::on(Arc::clone(&fork)).builder().open()),
            _ => read().err().map(|error| error.kind()),
        };
        assert_eq!(error, Some(ErrorKind::NewerFormat), "{name}");
        assert!(fork.files().contains(&(path, bytes)));
    }
}

#[test]
fn a_database_without_its_catalog_is_left_alone() {
    let fs = Arc::new(MemoryFs::new());
    let setup = Setup::on(Arc::clone(&fs));
    setup.start().1.put("k", "v").unwrap();
    let (catalog, bytes) = file_named(&fs, "catalog-");
    fs.remove(&catalog).unwrap();
    let before = fs.files();
    for durability in [Durability::Os, Durability::Sync] {
        let builder = setup.builder().durability(durability);
        assert_eq!(kind(builder.open()), Some(ErrorKind::NotADatabase));
    }
    assert_eq!(fs.files(), before);
    assert_eq!(fs.kind(&setup.path).unwrap(), Some(PathKind::Directory));
    fs.write_file(&catalog, &bytes).unwrap();
    let file = fs.open(&catalog, Access::Read, Layer::Positional).unwrap();
    assert_eq!(file.len().unwrap(), bytes.len() as u64);
    assert_eq!(setup.start().1.get("k").unwrap().unwrap(), "v");
}
