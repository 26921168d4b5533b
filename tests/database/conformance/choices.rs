//! Options: what contradicts itself is refused and changes nothing, what is chosen stays over reopening, and what may
//! change changes.

#[cfg(target_os = "linux")]
use std::fs;
#[cfg(target_os = "linux")]
use std::path::{Path, PathBuf};
use std::time::Duration;

use turbidite::{
    Compression, Database, DatabaseBuilder, ErrorKind, FilterKind, KeyFile, KeyspaceInfo,
    KeyspaceOptions, Layer, Level, LevelLimit, MIN_MEMORY_BUDGET, MemtableKind, Policy, Reducer,
    Result,
};

use crate::setup::{ENGINES, NAME, Setup, options};

#[track_caller]
fn refused<T>(result: Result<T>, text: &str) {
    let error = result.err().expect("it should be refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains(text), "{error}: no {text:?}");
}

fn info(database: &Database, name: &str) -> KeyspaceInfo {
    database.keyspaces().into_iter().find(|info| info.name == name).expect("it is there")
}

/// What cannot be asked of an LSM-tree, with what the error says.
fn impossible() -> Vec<(KeyspaceOptions, &'static str)> {
    let lsm = KeyspaceOptions::lsm;
    let zstd = |level| [Compression::Zstd { level, dictionary: false }];
    let levels = |limit| Policy::Levels(vec![Level::Tiering(limit)]);
    vec![
        (lsm().filter(FilterKind::None).filter_bits(&[10]), "but the filter is none"),
        (lsm().filter(FilterKind::None).key_file(KeyFile::Filter), "choose keys or none"),
        (lsm().filter(FilterKind::None).key_file(KeyFile::KeysAndFilter), "choose keys or none"),
        (lsm().filter_bits(&[0, 0]).key_file(KeyFile::Filter), "no level has bits for them"),
        (lsm().point_index(true).key_file(KeyFile::None), "choose keys or keys+filter"),
        (lsm().point_index(true).key_file(KeyFile::Filter), "choose keys or keys+filter"),
        (lsm().filter_bits(&[33]), "from 0 to 32"),
        (lsm().filter_bits(&[]), "a list of 0 bits of filters"),
        (lsm().filter_bits(&[10; 16]), "there must be 1 to 15"),
        (lsm().memtable(MemtableKind::HashSkiplist { prefix: 0 }), "from 1 to 1024"),
        (lsm().memtable(MemtableKind::HashLinklist { prefix: 1025 }), "from 1 to 1024"),
        (lsm().compression(&[]), "a list of 0 compressions"),
        (lsm().compression(&[Compression::Lz4; 16]), "there must be 1 to 15"),
        (lsm().compression(&zstd(0)), "from 1 to 22"),
        (lsm().compression(&zstd(23)), "from 1 to 22"),
        (lsm().data_block_size(511), "from 512 to 1048576"),
        (lsm().data_block_size((1 << 20) + 1), "from 512 to 1048576"),
        (lsm().table_size((64 << 10) - 1), "from 65536 to 4294967296"),
        (lsm().table_size((4 << 30) + 1), "from 65536 to 4294967296"),
        (lsm().separate_values(63), "from 64 to"),
        (lsm().policy(Policy::Levelled { size_ratio: 1 }), "from 2 to 100"),
        (lsm().policy(Policy::Tiered { runs: 101 }), "from 2 to 100"),
        (lsm().policy(Policy::LazyLevelled { runs: 1 }), "from 2 to 100"),
        (lsm().policy(Policy::Fifo { bytes: 1 }), "a fifo of 1 bytes"),
        (lsm().policy(Policy::Levels(vec![])), "a list of 0 levels"),
        (lsm().policy(levels(LevelLimit::Count(0))), "from 1 to 1000"),
        (lsm().policy(levels(LevelLimit::Bytes(1000))), "from 65536 to"),
    ]
}

#[test]
fn what_contradicts_itself_is_refused_and_changes_nothing() {
    let setup = Setup::memory();
    let (database, keyspace) = setup.start();
    keyspace.put("k", "v").unwrap();
    let before = database.keyspaces();
    for (options, text) in impossible() {
        refused(database.keyspace("new", options.clone()), text);
        refused(database.keyspace(NAME, options), text);
        assert_eq!(database.keyspaces(), before);
    }
    drop(keyspace);
    database.close().unwrap();
    let database = setup.open();
    assert_eq!(database.keyspaces(), before);
    for (options, text) in impossible() {
        refused(database.keyspace(NAME, options), text);
    }
    assert_eq!(database.open_keyspace(NAME).unwrap().get("k").unwrap().unwrap(), "v");
}

#[test]
fn what_was_chosen_before_counts_for_what_contradicts() {
    let database = Setup::memory().open();
    let with = |options| database.keyspace(NAME, options).map(drop);
    with(KeyspaceOptions::lsm().filter_bits(&[10, 8])).unwrap();
    refused(with(KeyspaceOptions::lsm().filter(FilterKind::None)), "but the filter is none");
    with(KeyspaceOptions::lsm().filter(FilterKind::None).filter_bits(&[0])).unwrap();
    refused(with(KeyspaceOptions::lsm().filter_bits(&[5])), "but the filter is none");
    refused(with(KeyspaceOptions::lsm().key_file(KeyFile::Filter)), "choose keys or none");
    let chosen = [("filter", "none".to_owned()), ("filter_bits", "0".to_owned())];
    assert_eq!(info(&database, NAME).options.chosen(), chosen);
}

#[test]
fn other_engines_have_no_use_for_what_lsm_trees_are_made_of() {
    let database = Setup::memory().open();
    for engine in ENGINES.into_iter().skip(1) {
        let text = format!("are for LSM-trees, not for engine {engine}");
        for made in [
            options(engine).memtable(MemtableKind::Skiplist),
            options(engine).filter(FilterKind::Bloom),
            options(engine).filter_bits(&[10]),
            options(engine).key_file(KeyFile::Keys),
            options(engine).compression(&[Compression::Lz4]),
            options(engine).data_block_size(4096),
            options(engine).table_size(1 << 20),
            options(engine).separate_values(100),
            options(engine).policy(Policy::default()),
        ] {
            refused(database.keyspace("new", made), &text);
        }
    }
    assert_eq!(database.keyspaces(), []);
}

#[test]
fn choices_stay_and_change_over_reopening() {
    let setup = Setup::memory();
    let levels = || "tiering:2,levelling:4,levelling:8".parse::<Policy>().unwrap();
    let first = KeyspaceOptions::lsm()
        .memtable(MemtableKind::HashSkiplist { prefix: 3 })
        .filter(FilterKind::Ribbon)
        .filter_bits(&[10, 10, 6])
        .key_file(KeyFile::Filter)
        .compression(&[Compression::None, Compression::Lz4])
        .data_block_size(8192)
        .table_size(100_000)
        .separate_values(500)
        .policy(levels());
    let told = |database: &Database| -> String {
        let chosen = info(database, NAME).options.chosen().into_iter();
        chosen.map(|(name, value)| format!("{name} {value}\n")).collect()
    };
    let expected = "memtable hash-skiplist:3\nfilter ribbon\nfilter_bits 10,10,6\nkey_file filter\n\
                    compression none,lz4\ndata_block_size 8192\ntable_size 100000\nseparate_values 500\n\
                    policy tiering:2,levelling:4,levelling:8\n";
    let database = setup.open();
    database.keyspace(NAME, first.clone()).unwrap().put("one", [1; 600]).unwrap();
    assert_eq!(told(&database), expected);
    database.close().unwrap();

    // As it was, whether something is said of it or not.
    let database = setup.open();
    assert_eq!(told(&database), expected);
    for same in [first, KeyspaceOptions::lsm(), KeyspaceOptions::lsm().policy(levels())] {
        database.keyspace(NAME, same).unwrap();
        assert_eq!(told(&database), expected);
    }
    // What a keyspace tells makes another one like it.
    let like_it = info(&database, NAME).options;
    database.keyspace("copy", like_it.clone()).unwrap();
    assert_eq!(info(&database, "copy").options, like_it);

    // A part of it changes, at once and for good; but the policy.
    let change = KeyspaceOptions::lsm().memtable(MemtableKind::Vector).separate_values(0);
    let keyspace = database.keyspace(NAME, change.data_block_size(512)).unwrap();
    let changed = expected
        .replace("hash-skiplist:3", "vector")
        .replace("data_block_size 8192", "data_block_size 512")
        .replace("separate_values 500\n", "");
    assert_eq!(told(&database), changed);
    let other = KeyspaceOptions::lsm().policy(Policy::default());
    refused(database.keyspace(NAME, other), "tiering:2,levelling:4,levelling:8");
    keyspace.put("two", [2; 600]).unwrap();
    keyspace.compact().unwrap();
    drop(keyspace);
    database.close().unwrap();
    let database = setup.open();
    assert_eq!(told(&database), changed);
    let keyspace = database.open_keyspace(NAME).unwrap();
    assert_eq!(keyspace.get("one").unwrap().unwrap(), [1; 600]);
    assert_eq!(keyspace.get("two").unwrap().unwrap(), [2; 600]);
    drop((keyspace, database));

    // A reader has what it asks for, and changes nothing.
    let reader = setup.builder().read_only(true).open().unwrap();
    reader.keyspace(NAME, KeyspaceOptions::lsm().key_file(KeyFile::None)).unwrap();
    assert_eq!(told(&reader), changed.replace("key_file filter", "key_file none"));
    drop(reader);
    assert_eq!(told(&setup.open()), changed);
}

#[test]
fn other_engines_tell_what_they_are_made_of() {
    let setup = Setup::memory();
    let database = setup.open();
    let all = [
        ("tree", KeyspaceOptions::btree().page_size(8192).max_cached_pages(9)),
        ("skip", KeyspaceOptions::skip().step_unit(8).max_level(3).reducer(Reducer::Sum)),
        ("hash", KeyspaceOptions::hash().log(false)),
    ];
    for (name, options) in all.clone() {
        database.keyspace(name, options).unwrap();
    }
    database.close().unwrap();
    let database = setup.open();
    for (name, options) in &all {
        assert_eq!(info(&database, name).options.chosen(), options.chosen());
        database.keyspace(&format!("{name} again"), info(&database, name).options).unwrap();
    }
    database.keyspace("tree", KeyspaceOptions::btree().max_cached_pages(10)).unwrap();
    let chosen = KeyspaceOptions::btree().page_size(8192).max_cached_pages(10).chosen();
    assert_eq!(info(&database, "tree").options.chosen(), chosen);
}

#[test]
fn what_a_database_cannot_take_is_refused() {
    let setup = Setup::memory();
    let refused = |change: &dyn Fn(DatabaseBuilder) -> DatabaseBuilder, text| {
        refused(change(setup.builder()).open(), text);
        assert!(setup.fs.list("/data".as_ref()).is_err(), "nothing is created");
    };
    refused(&|builder| builder.open_files(0), "allow at least 16");
    refused(&|builder| builder.open_files(15), "15 open files are too few");
    refused(&|builder| builder.background_rate(65_535), "65535 bytes a second");
    refused(
        &|builder| builder.block_cache(MIN_MEMORY_BUDGET + 1),
        "larger than the memory budget of 8388608 bytes",
    );
    refused(&|builder| builder.log_buffer(4095), "from 4096 to 262144 bytes");
    refused(&|builder| builder.log_buffer((256 << 10) + 1), "a 32nd of the memory budget");
    for interval in [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(3601)] {
        refused(&|builder| builder.log_flush_interval(interval), "from 1ms to 3600s");
    }
    let least = setup.builder().open_files(16).block_cache(0).log_buffer(4096);
    least.log_flush_interval(Duration::from_millis(1)).open().unwrap().close().unwrap();
    let most = setup.builder().open_files(usize::MAX).block_cache(MIN_MEMORY_BUDGET);
    most.log_buffer(256 << 10).manual_log_flush().open().unwrap().close().unwrap();
}

#[test]
fn the_block_cache_has_the_bound_that_was_chosen() {
    let setup = Setup::memory();
    let fill = |database: &Database| {
        let keyspace = database.keyspace(NAME, KeyspaceOptions::lsm()).unwrap();
        (0..3000_u32).for_each(|number| keyspace.put(number.to_be_bytes(), [7; 1000]).unwrap());
        keyspace.compact().unwrap();
    };
    fill(&setup.open());
    let cached = |builder: DatabaseBuilder| {
        let database = builder.open().unwrap();
        let keyspace = database.open_keyspace(NAME).unwrap();
        for number in 0..3000_u32 {
            assert_eq!(keyspace.get(number.to_be_bytes()).unwrap().unwrap(), [7; 1000]);
        }
        database.stats().memory.block_cache
    };
    assert_eq!(cached(setup.builder().block_cache(0)), 0);
    let some = cached(setup.builder().block_cache(500_000));
    // With up to a slab of 128 KiB that is not full for each of the two lengths that blocks of a table have as a rule.
    assert!((400_000..=500_000 + (256 << 10)).contains(&some), "{some}");
    assert!(cached(setup.builder()) > 2_000_000);
}

/// How many of this process's descriptors lead to tables below `path`.
#[cfg(target_os = "linux")]
fn descriptors_of_tables(path: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let files = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let is_table = |file: &PathBuf| {
        file.starts_with(path) && file.extension().is_some_and(|kind| kind == "table")
    };
    files.filter(is_table).count()
}

#[cfg(target_os = "linux")]
#[test]
fn tables_let_go_of_descriptors_and_keep_what_they_have_in_memory() {
    for layer in [Layer::Mmap, Layer::Positional, Layer::Block { block_size: 4096 }] {
        let setup = Setup::disk(layer);
        let keys = || (0..6000_u32).map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes());
        let database = setup.open();
        let keyspace = database.keyspace(NAME, setup.options.clone().table_size(64 << 10)).unwrap();
        keys().for_each(|key| keyspace.put(key, [key[3]; 1000]).unwrap());
        keyspace.compact().unwrap();
        database.close().unwrap();
        let memory_of = |most: usize| {
            let database = setup.builder().open_files(most).open().unwrap();
            let keyspace = database.open_keyspace(NAME).unwrap();
            for _ in 0..2 {
                for key in keys() {
                    assert_eq!(keyspace.get(key).unwrap().unwrap(), [key[3]; 1000]);
                }
                assert_eq!(keyspace.iter().count(), 6000);
            }
            let stats = keyspace.stats();
            let tables = stats.levels.iter().map(|level| level.tables).sum::<u64>();
            assert!(tables > 80, "{tables} tables");
            let open = descriptors_of_tables(&setup.path);
            assert!(open <= most, "{open} of {tables} tables are open over {layer}");
            database.stats().memory.tables
        };
        let all = memory_of(512);
        assert_eq!(memory_of(16), all, "{layer}");
        assert!(all > 0, "{layer}");
    }
}

/// What others have put where a keyspace is to be made is not ours to remove; what a creation left that was cut off is.
#[test]
fn a_new_keyspace_takes_no_files_of_others_away() {
    for engine in ENGINES {
        let setup = Setup::memory();
        let database = setup.open();
        let dir = setup.path.join("keyspaces/1");
        setup.fs.create_dir(&dir).unwrap();
        let left = ["000007.table", "000001.data", "000001.sorted", "manifest-000001.tmp", "tree"];
        let foreign = dir.join("letter.txt");
        for path in left.iter().map(|name| dir.join(name)).chain([foreign.clone()]) {
            setup.fs.create(&path, Layer::Positional).unwrap();
        }
        let error = database.keyspace(NAME, options(engine)).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("letter.txt"), "{error}");
        assert_eq!(setup.fs.list(&dir).unwrap().len(), left.len() + 1, "something is removed");
        setup.fs.remove(&foreign).unwrap();
        database.keyspace(NAME, options(engine)).unwrap().put("key", "value").unwrap();
        assert!(!setup.fs.list(&dir).unwrap().contains(&left[0].to_string()), "{engine}");
        database.close().unwrap();
        assert_eq!(setup.open().open_keyspace(NAME).unwrap().count().unwrap(), 1);
    }
}
