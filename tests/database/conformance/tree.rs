//! What is particular to B+ trees: their sizes, their figures, and how their file grows and shrinks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use turbidite::vfs::MemoryFs;
use turbidite::{
    Database, EngineKind, ErrorKind, Keyspace, KeyspaceOptions, Layer, MIN_MEMORY_BUDGET, Result,
    TreeStats,
};

use crate::setup::{NAME, Setup, contents, options};

fn refused<T>(result: Result<T>, text: &str) {
    let error = result.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

fn tree(setup: Setup) -> Setup {
    setup.engine(EngineKind::Btree)
}

fn figures(keyspace: &Keyspace) -> TreeStats {
    keyspace.stats().tree.expect("it is a B+ tree")
}

/// Writes the records `numbers`, each of `len` bytes.
fn fill(keyspace: &Keyspace, numbers: impl Iterator<Item = u32>, len: usize) {
    for number in numbers {
        keyspace.put(number.to_be_bytes(), vec![number as u8; len]).unwrap();
    }
}

fn assert_filled(keyspace: &Keyspace, numbers: impl Iterator<Item = u32>, len: usize) {
    let found = contents(keyspace.iter());
    let mut count = 0;
    for number in numbers {
        let value = vec![number as u8; len];
        assert_eq!(found.get(&number.to_be_bytes()[..]), Some(&value), "{number}");
        assert_eq!(keyspace.get(number.to_be_bytes()).unwrap().as_deref(), Some(&value[..]));
        count += 1;
    }
    assert_eq!(found.len(), count);
}

fn assert_whole(database: &Database) {
    let problems = database.verify().unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn impossible_sizes_are_refused_before_anything_is_created() {
    let setup = Setup::memory();
    let database = setup.open();
    let before = setup.fs.list(&setup.path).unwrap();
    let open = |options| database.keyspace(NAME, options);
    for bytes in [0, 512, 1000, 2048, 5000, 128 << 10, u32::MAX] {
        let size = format!("a page of {bytes} bytes");
        refused(open(KeyspaceOptions::btree().page_size(bytes)), &size);
        refused(
            open(KeyspaceOptions::btree().page_size(bytes)),
            "a power of two from 4096 to 65536",
        );
    }
    refused(open(KeyspaceOptions::btree().max_cached_pages(0)), "at least one page");
    let most = MIN_MEMORY_BUDGET as u32 / 2 / 4096;
    let too_many = KeyspaceOptions::btree().max_cached_pages(most + 1);
    refused(open(too_many), "give fewer pages, or a budget of at least");
    refused(open(KeyspaceOptions::btree().max_cached_pages(u32::MAX)), "give fewer pages");
    for other in [KeyspaceOptions::lsm(), KeyspaceOptions::hash(), KeyspaceOptions::skip()] {
        refused(open(other.clone().page_size(4096)), "for B+ trees");
        refused(open(other.max_cached_pages(10)), "for B+ trees");
    }
    assert!(database.keyspaces().is_empty());
    assert_eq!(setup.fs.list(&setup.path).unwrap(), before);
    assert_eq!(database.stats().memory.page_caches, 0);
    open(KeyspaceOptions::btree().max_cached_pages(most)).unwrap();
}

#[test]
fn sizes_of_keyspaces_that_are_there_are_checked_too() {
    let setup = Setup::memory();
    let database = setup.open();
    let open = |name: &str, options| database.keyspace(name, options);
    for engine in [EngineKind::Lsm, EngineKind::Hash, EngineKind::Skip] {
        let name = engine.to_string();
        open(&name, options(engine)).unwrap();
        refused(open(&name, options(engine).page_size(4096)), "for B+ trees");
        refused(open(&name, options(engine).max_cached_pages(10)), "for B+ trees");
    }
    open("tree", KeyspaceOptions::btree().max_cached_pages(10)).unwrap();
    refused(open("tree", KeyspaceOptions::btree().page_size(1000)), "a power of two");
    refused(open("tree", KeyspaceOptions::btree().max_cached_pages(0)), "at least one page");
    let too_many = MIN_MEMORY_BUDGET as u32 / 2 / 4096 + 1;
    refused(open("tree", KeyspaceOptions::btree().max_cached_pages(too_many)), "give fewer pages");
    assert_eq!(database.stats().memory.page_caches, 10 * 4096);
}

#[test]
fn the_page_size_is_fixed_when_a_tree_is_created() {
    for (index, layer) in [Layer::Positional, Layer::Mmap].into_iter().cycle().take(5).enumerate() {
        let bytes = 4096 << index;
        let mut setup = tree(Setup::memory().layer(layer));
        setup.options = setup.options.page_size(bytes);
        let (database, keyspace) = setup.start();
        fill(&keyspace, 0..500, 700);
        keyspace.persist().unwrap();
        assert_eq!(figures(&keyspace).page_size, u64::from(bytes));
        let changed = |database: &Database, bytes| {
            let result = database.keyspace(NAME, KeyspaceOptions::btree().page_size(bytes));
            result.map(drop)
        };
        let other = if bytes == 4096 { 8192 } else { bytes / 2 };
        refused(changed(&database, other), "cannot be changed");
        changed(&database, bytes).unwrap();
        drop(keyspace);
        database.close().unwrap();
        let database = setup.open();
        refused(changed(&database, other), &format!("have {bytes} bytes"));
        // What is not asked for stays as it is.
        let keyspace = database.keyspace(NAME, KeyspaceOptions::btree()).unwrap();
        assert_eq!(figures(&keyspace).page_size, u64::from(bytes));
        assert_filled(&keyspace, 0..500, 700);
        assert_whole(&database);
    }
}

#[test]
fn the_number_of_cached_pages_is_remembered_and_may_be_changed() {
    let setup = tree(Setup::memory());
    let cached = |pages| KeyspaceOptions::btree().max_cached_pages(pages);
    let memory = |database: &Database| database.stats().memory.page_caches / 4096;
    let (database, keyspace) = setup.start();
    fill(&keyspace, 0..2000, 900);
    keyspace.persist().unwrap();
    assert_eq!(memory(&database), 0);
    // More than half of what there may be, twice: what there was is given back first.
    for pages in [600, 700, 1024, 650, 1] {
        database.keyspace(NAME, cached(pages)).unwrap();
        assert_eq!(memory(&database), u64::from(pages));
        assert_filled(&keyspace, 0..2000, 900);
    }
    drop(keyspace);
    database.close().unwrap();

    let database = setup.open();
    assert_eq!(memory(&database), 1);
    let keyspace = database.keyspace(NAME, cached(800)).unwrap();
    assert_eq!(memory(&database), 800);
    database.keyspace(NAME, KeyspaceOptions::btree()).unwrap();
    assert_eq!(memory(&database), 800);
    fill(&keyspace, 0..2000, 800);
    drop((keyspace, database));

    let database = setup.open();
    assert_eq!(memory(&database), 800);
    assert_filled(&database.open_keyspace(NAME).unwrap(), 0..2000, 800);
    assert_whole(&database);
}

#[test]
fn more_cached_pages_save_reads() {
    let setup = tree(Setup::memory().layer(Layer::Positional));
    let (database, keyspace) = setup.start();
    fill(&keyspace, 0..2000, 900);
    keyspace.persist().unwrap();
    let read_twice = |pages| {
        database.keyspace(NAME, KeyspaceOptions::btree().max_cached_pages(pages)).unwrap();
        for number in (0..2000_u32).chain(0..2000) {
            assert!(keyspace.contains(number.to_be_bytes()).unwrap());
        }
        let TreeStats { requests, hits, .. } = figures(&keyspace);
        assert!(requests >= 4000 && hits <= requests, "{requests} requests, {hits} hits");
        requests - hits
    };
    // Half of them are for inner nodes.
    let (few, many) = (read_twice(20), read_twice(1020));
    let nodes = figures(&keyspace).leaves + figures(&keyspace).inner_nodes;
    assert!(many <= nodes && few > 3 * nodes / 2, "{few} and {many} reads of {nodes} nodes");
}

#[test]
fn figures_tell_the_shape_of_the_tree() {
    for setup in Setup::all().into_iter().filter(|setup| setup.engine == EngineKind::Btree) {
        let (database, keyspace) = setup.start();
        let TreeStats { levels, records, leaves, free_pages, .. } = figures(&keyspace);
        assert_eq!((levels, records, leaves, free_pages), (0, 0, 0, 0), "{setup}");
        keyspace.put("one", "1").unwrap();
        assert_eq!(figures(&keyspace).records, 0, "{setup}: it is in no checkpoint yet");
        keyspace.persist().unwrap();
        let TreeStats { levels, records, leaves, inner_nodes, overflow_pages, .. } =
            figures(&keyspace);
        let shape = (levels, records, leaves, inner_nodes, overflow_pages);
        assert_eq!(shape, (1, 1, 1, 0, 0), "{setup}");
        fill(&keyspace, 0..1000, 500);
        // With what is in front of it, two pages and a bit.
        keyspace.put("large", vec![7; 8190]).unwrap();
        keyspace.persist().unwrap();
        let TreeStats { levels, records, leaves, inner_nodes, overflow_pages, .. } =
            figures(&keyspace);
        assert_eq!((levels, records, inner_nodes, overflow_pages), (2, 1002, 1, 3), "{setup}");
        assert!((125..300).contains(&leaves), "{setup}: {leaves} leaves");
        assert!(keyspace.stats().levels.is_empty());
        keyspace.delete("large").unwrap();
        keyspace.compact().unwrap();
        let after = figures(&keyspace);
        assert_eq!((after.records, after.overflow_pages), (1001, 0), "{setup}");
        assert!(after.leaves <= 150, "{setup}: {after:?}");
        assert_whole(&database);
        for number in 0..1000_u32 {
            keyspace.delete(number.to_be_bytes()).unwrap();
        }
        keyspace.delete("one").unwrap();
        keyspace.persist().unwrap();
        let TreeStats { levels, records, leaves, inner_nodes, .. } = figures(&keyspace);
        assert_eq!((levels, records, leaves, inner_nodes), (0, 0, 0, 0), "{setup}");
        assert_eq!(keyspace.count().unwrap(), 0, "{setup}");
        assert_whole(&database);
    }
    let setup = Setup::memory();
    let (_database, keyspace) = setup.start();
    assert_eq!(keyspace.stats().tree, None);
}

#[test]
fn a_tree_uses_its_space_again_and_gives_the_rest_back() {
    for layer in [Layer::Positional, Layer::Mmap] {
        let setup = tree(Setup::disk(layer));
        let (database, keyspace) = setup.start();
        let mut most = 0;
        for round in 0..12_u8 {
            for number in 0..1000_u32 {
                keyspace.put(number.to_be_bytes(), [round; 1000]).unwrap();
            }
            keyspace.persist().unwrap();
            most = most.max(keyspace.stats().disk_bytes);
        }
        // The data, a tree in between, and what is reserved ahead.
        assert!(most < 6 << 20, "{layer}: {most} bytes for 1 MiB");
        let snapshot = database.snapshot();
        for number in 10..1000_u32 {
            keyspace.delete(number.to_be_bytes()).unwrap();
        }
        keyspace.compact().unwrap();
        assert_eq!(snapshot.count(&keyspace).unwrap(), 1000, "{layer}");
        assert_eq!(keyspace.count().unwrap(), 10);
        drop(snapshot);
        keyspace.compact().unwrap();
        keyspace.compact().unwrap();
        assert!(keyspace.stats().disk_bytes < 100 << 10, "{layer}: {:?}", keyspace.stats());
        assert_whole(&database);
        drop(keyspace);
        database.close().unwrap();
        let (database, keyspace) = setup.start();
        assert_eq!(keyspace.count().unwrap(), 10);
        assert_whole(&database);
    }
}

#[test]
fn a_tree_that_is_read_only_is_not_changed() {
    let written = MemoryFs::new();
    let (_database, keyspace) = tree(Setup::on(Arc::new(written.clone()))).start();
    fill(&keyspace, 0..1000, 700);
    keyspace.persist().unwrap();
    fill(&keyspace, 1000..1100, 700);
    // As a kill leaves it.
    let fs = Arc::new(written.fork());
    let setup = tree(Setup::on(Arc::clone(&fs)));
    let before = fs.files();
    for layer in Layer::ALL {
        let layer = layer.with_page_cache_pages(64).unwrap_or(layer);
        let database = setup.builder().read_only(true).open().unwrap();
        let keyspace = database.keyspace(NAME, setup.options.clone().layer(layer)).unwrap();
        assert_eq!(keyspace.stats().layer, layer);
        assert_filled(&keyspace, 0..1100, 700);
        assert_eq!(figures(&keyspace).records, 1000);
        let cached = KeyspaceOptions::btree().max_cached_pages(100);
        let same = database.keyspace(NAME, cached).unwrap();
        assert_filled(&same, 0..1100, 700);
        assert_eq!(keyspace.compact().unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(keyspace.put("x", "y").unwrap_err().kind(), ErrorKind::ReadOnly);
        database.settle().unwrap();
        assert_whole(&database);
        drop((keyspace, same));
        database.close().unwrap();
        assert!(fs.files() == before, "{layer}");
    }
}

#[test]
fn the_layer_of_a_tree_changes_under_its_readers() {
    for cached in [None, Some(600)] {
        let mut setup = tree(Setup::memory());
        if let Some(pages) = cached {
            setup.options = setup.options.max_cached_pages(pages);
        }
        let (database, keyspace) = setup.start();
        fill(&keyspace, 0..1000, 900);
        keyspace.persist().unwrap();
        let snapshot = database.snapshot();
        let mut cursor = keyspace.cursor().unwrap();
        cursor.seek_to_first().unwrap();
        for layer in Layer::ALL.into_iter().chain(Layer::ALL) {
            let layer = layer.with_page_cache_pages(32).unwrap_or(layer);
            database.keyspace(NAME, KeyspaceOptions::btree().layer(layer)).unwrap();
            assert_eq!(keyspace.stats().layer, layer);
            fill(&keyspace, 0..1000, 800);
            keyspace.persist().unwrap();
            keyspace.compact().unwrap();
            assert_filled(&keyspace, 0..1000, 800);
        }
        let most = cached.map_or(0, u64::from) * 4096
            + database.keyspaces()[0].layer.page_cache_bytes() as u64;
        assert!(database.stats().memory.page_caches <= most);
        // What was there before is still there for those who had it.
        for number in 0..1000_u32 {
            assert_eq!(cursor.key(), number.to_be_bytes());
            assert_eq!(cursor.value(), vec![number as u8; 900]);
            cursor.next().unwrap();
        }
        assert!(!cursor.is_valid());
        assert!(snapshot.iter(&keyspace).all(|item| item.unwrap().1.len() == 900));
        drop((cursor, snapshot, keyspace));
        let layer = database.keyspaces()[0].layer;
        database.close().unwrap();
        let database = setup.open();
        let keyspace = database.open_keyspace(NAME).unwrap();
        assert_eq!(keyspace.stats().layer, layer);
        assert_filled(&keyspace, 0..1000, 800);
        assert_whole(&database);
    }
}

#[test]
fn a_tree_is_whole_whenever_it_is_verified() {
    for setup in [tree(Setup::memory()), tree(Setup::disk(Layer::Mmap))] {
        let (database, keyspace) = setup.start();
        fill(&keyspace, 0..4000, 900);
        keyspace.persist().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..60_u32 {
                    // Few leaves change, so that there is time for several trees while one is verified.
                    let numbers = (0..4000).step_by(400).map(|number| number + round);
                    fill(&keyspace, numbers, 900);
                    match round % 3 {
                        0 => keyspace.compact().unwrap(),
                        _ => keyspace.persist().unwrap(),
                    }
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                assert_whole(&database);
            }
        });
        assert_filled(&keyspace, 0..4000, 900);
    }
}
