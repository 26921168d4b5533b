//! What a choice of file layer may be, and what happens if it cannot be had.

use std::sync::Arc;

use turbidite::vfs::MemoryFs;
use turbidite::{
    Database, EngineKind, ErrorKind, KeyspaceOptions, Layer, MIN_MEMORY_BUDGET, Result,
};

use crate::setup::{ENGINES, NAME, Setup, options};

const DIRECT: Layer = Layer::Direct { block_size: 4096 };

fn refused<T>(result: Result<T>, kind: ErrorKind, text: &str) {
    let error = result.err().expect("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

fn impossible() -> Vec<(Layer, &'static str)> {
    let mut layers = Vec::new();
    for block_size in [0, 256, 1000, 2 << 20] {
        layers.push((Layer::Block { block_size }, "a power of two from 512"));
        layers.push((Layer::Direct { block_size }, "a power of two from 512"));
        layers.push((Layer::DirectCache { block_size, pages: 1 }, "a power of two from 512"));
    }
    layers.push((Layer::BlockCache { block_size: 4096, pages: 0 }, "choose pos-block,"));
    layers
}

#[test]
fn impossible_sizes_are_refused_before_anything_is_created() {
    let setup = Setup::memory();
    for (layer, text) in impossible() {
        refused(setup.builder().log_layer(layer).open(), ErrorKind::Invalid, text);
        assert_eq!(setup.fs.kind(&setup.path).unwrap(), None);
    }
    let database = setup.open();
    let before = setup.fs.list(&setup.path).unwrap();
    for (layer, text) in impossible() {
        let options = KeyspaceOptions::lsm().layer(layer);
        refused(database.keyspace(NAME, options), ErrorKind::Invalid, text);
    }
    let blocks = KeyspaceOptions::lsm().block_size(4096);
    refused(database.keyspace(NAME, blocks.clone()), ErrorKind::Invalid, "pos has no blocks");
    let pages = KeyspaceOptions::lsm().page_cache_pages(4).layer(DIRECT);
    refused(database.keyspace(NAME, pages), ErrorKind::Invalid, "pos-direct has no page cache");
    assert!(database.keyspaces().is_empty());
    assert_eq!(setup.fs.list(&setup.path).unwrap(), before);
    // The sizes of a keyspace that is there can be changed by themselves.
    let keyspace = database.keyspace(NAME, blocks.clone().layer(DIRECT)).unwrap();
    database.keyspace(NAME, blocks.block_size(8192)).unwrap();
    assert_eq!(keyspace.stats().layer, Layer::Direct { block_size: 8192 });
    refused(
        database.keyspace(NAME, KeyspaceOptions::lsm().page_cache_pages(1)),
        ErrorKind::Invalid,
        "has no page cache",
    );
}

#[test]
fn a_file_system_without_direct_io_says_so_and_keeps_nothing() {
    let fs = Arc::new(MemoryFs::new());
    fs.refuse_direct(true);
    let setup = Setup::on(Arc::clone(&fs));
    let direct = || setup.builder().log_layer(DIRECT).open();
    refused(direct(), ErrorKind::Unsupported, "choose another file layer");
    assert_eq!(setup.fs.kind(&setup.path).unwrap(), None);
    assert!(fs.files().is_empty());

    let database = setup.open();
    let keyspace = || database.keyspace(NAME, KeyspaceOptions::lsm().layer(DIRECT));
    let before = fs.files();
    refused(keyspace(), ErrorKind::Unsupported, "no direct I/O");
    assert!(database.keyspaces().is_empty() && fs.files() == before);
    let there = database.keyspace(NAME, KeyspaceOptions::lsm()).unwrap();
    refused(keyspace(), ErrorKind::Unsupported, "no direct I/O");
    assert_eq!(there.stats().layer, Layer::Positional);
    drop(there);
    database.close().unwrap();

    let before = fs.files();
    refused(direct(), ErrorKind::Unsupported, "choose another file layer");
    assert!(fs.files() == before);
    fs.refuse_direct(false);
    let database = direct().unwrap();
    database.keyspace(NAME, KeyspaceOptions::lsm().layer(DIRECT)).unwrap().put("k", "v").unwrap();
    database.close().unwrap();
    let names: Vec<_> = fs.files().into_iter().map(|(path, _)| path).collect();
    assert!(names.iter().all(|path| !path.ends_with("probe")), "{names:?}");
}

#[test]
fn page_caches_have_at_most_half_of_the_budget_and_give_it_back() {
    let half = MIN_MEMORY_BUDGET as u32 / 2 / 4096;
    let cached =
        |pages| KeyspaceOptions::lsm().layer(Layer::BlockCache { block_size: 4096, pages });
    let too_much = |result| refused(result, ErrorKind::Invalid, &MIN_MEMORY_BUDGET.to_string());
    let setup = Setup::memory();
    let log_layer = Layer::BlockCache { block_size: 4096, pages: half + 1 };
    too_much(setup.builder().log_layer(log_layer).open().map(drop));
    assert_eq!(setup.fs.kind(&setup.path).unwrap(), None);

    let database = setup.open();
    let open = |name: &str, options| database.keyspace(name, options).map(drop);
    open("one", cached(half - 10)).unwrap();
    open("two", cached(10)).unwrap();
    too_much(open("three", cached(1)));
    too_much(open("two", cached(11)));
    let layers: Vec<_> = database.keyspaces().into_iter().map(|info| info.layer).collect();
    assert_eq!(layers[1].page_cache_pages(), Some(10), "{layers:?}");
    assert_eq!(layers.len(), 2);
    open("one", KeyspaceOptions::lsm().layer(Layer::Positional)).unwrap();
    open("three", cached(half - 10)).unwrap();
    database.close().unwrap();

    let smaller = |budget| {
        Database::builder(&setup.path).file_system(Arc::clone(&setup.fs)).memory_budget(budget)
    };
    let database = smaller(2 * MIN_MEMORY_BUDGET).open().unwrap();
    database.keyspace("one", cached(1)).unwrap();
    database.close().unwrap();
    too_much(smaller(MIN_MEMORY_BUDGET).open().map(drop));
    smaller(MIN_MEMORY_BUDGET + 8192).open().unwrap();
}

#[test]
fn a_database_moves_from_layer_to_layer() {
    ENGINES.into_iter().for_each(move_from_layer_to_layer);
}

fn move_from_layer_to_layer(engine: EngineKind) {
    let sized = |block_size| {
        let pages = (1 << 20) / block_size;
        [
            Layer::Block { block_size },
            Layer::DirectCache { block_size, pages },
            Layer::Direct { block_size },
            Layer::BlockCache { block_size, pages },
        ]
    };
    let layers: Vec<Layer> = [512, 1 << 20, 4096, 65536].into_iter().flat_map(sized).collect();
    let mut fs = Arc::new(MemoryFs::new());
    let mut count = 0;
    for (round, &layer) in layers.iter().cycle().take(2 * layers.len()).enumerate() {
        let mut setup = Setup::on(Arc::clone(&fs));
        setup.log_layer = layer;
        setup.options = options(engine).layer(layers[(round * 3 + 1) % layers.len()]);
        let (database, keyspace) = setup.start();
        assert_eq!(keyspace.count().unwrap(), count, "{layer:?}");
        assert_eq!(keyspace.iter().count() as u64, count, "{layer:?}");
        for number in 0..300 {
            keyspace.put(format!("{round} {number}"), vec![number as u8; 900]).unwrap();
            count += 1;
        }
        if round % 2 == 0 {
            keyspace.persist().unwrap();
        }
        assert!(database.verify().unwrap().problems.is_empty());
        // A copy as a kill would leave it.
        database.settle().unwrap();
        fs = Arc::new(fs.fork());
    }
}

#[test]
fn a_page_cache_is_counted_for_its_keyspace_and_survives_a_change() {
    ENGINES.into_iter().for_each(count_what_a_page_cache_does);
}

fn count_what_a_page_cache_does(engine: EngineKind) {
    let setup = Setup::memory();
    let database = setup.open();
    let layer = Layer::BlockCache { block_size: 4096, pages: 64 };
    let keyspace = database.keyspace(NAME, options(engine).layer(layer)).unwrap();
    let other = database.keyspace("other", KeyspaceOptions::lsm()).unwrap();
    for number in 0..1000_u32 {
        keyspace.put(number.to_be_bytes(), [1; 500]).unwrap();
        other.put(number.to_be_bytes(), [1; 500]).unwrap();
    }
    keyspace.persist().unwrap();
    other.persist().unwrap();
    for number in 0..1000_u32 {
        assert!(keyspace.contains(number.to_be_bytes()).unwrap());
    }
    let used = keyspace.stats().page_cache;
    assert!(used.requests > 0 && used.read_pages > 0 && used.written_pages > 100, "{used:?}");
    assert_eq!(other.stats().page_cache, turbidite::PageCacheStats::default());
    let stats = database.stats();
    assert_eq!((stats.page_cache, stats.memory.page_caches), (used, 64 * 4096));
    // What an earlier cache has done stays counted, and its memory is given back.
    database.keyspace(NAME, options(engine).layer(Layer::Positional)).unwrap();
    assert_eq!(keyspace.iter().count(), 1000);
    let stats = database.stats();
    assert!(stats.page_cache.written_pages >= used.written_pages);
    assert_eq!(stats.memory.page_caches, 0);
}
