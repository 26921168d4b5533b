//! What a choice of file layer may be, and what happens if it cannot be had.

use std::sync::Arc;

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, MemoryFs, Operation, Times};
use turbidite::{
    Database, EngineKind, ErrorKind, Keyspace, KeyspaceInfo, KeyspaceOptions, Layer,
    MIN_MEMORY_BUDGET, Result,
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
    let half = MIN_MEMORY_BUDGET / 2;
    let layer = |pages| Layer::BlockCache { block_size: 4096, pages };
    let bytes = |pages| layer(pages).page_cache_bytes();
    let most = |room: usize| (1..).take_while(|&pages| bytes(pages) <= room).last().unwrap();
    let cached = |pages| KeyspaceOptions::lsm().layer(layer(pages));
    let first = most(half) - 10;
    let second = most(half - bytes(first));
    let too_much = |result| refused(result, ErrorKind::Invalid, &MIN_MEMORY_BUDGET.to_string());
    let setup = Setup::memory();
    let log_layer = layer(most(half) + 1);
    too_much(setup.builder().log_layer(log_layer).open().map(drop));
    assert_eq!(setup.fs.kind(&setup.path).unwrap(), None);

    let database = setup.open();
    let open = |name: &str, options| database.keyspace(name, options).map(drop);
    open("one", cached(first)).unwrap();
    open("two", cached(second)).unwrap();
    too_much(open("three", cached(1)));
    too_much(open("two", cached(second + 1)));
    let layers: Vec<_> = database.keyspaces().into_iter().map(|info| info.layer).collect();
    assert_eq!(layers[1].page_cache_pages(), Some(second), "{layers:?}");
    assert_eq!(layers.len(), 2);
    open("one", KeyspaceOptions::lsm().layer(Layer::Positional)).unwrap();
    open("three", cached(first)).unwrap();
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

/// The index of a hash keyspace grows beside page caches that were there before; a keyspace that was made first is opened first.
#[test]
fn a_page_cache_has_room_again_beside_an_index_that_has_grown() {
    let half = MIN_MEMORY_BUDGET / 2;
    let layer = |pages| Layer::BlockCache { block_size: 4096, pages };
    let most = (1..).take_while(|&pages| layer(pages).page_cache_bytes() <= half).last().unwrap();
    let setup = Setup::memory();
    let database = setup.open();
    let keys = database.keyspace("keys", KeyspaceOptions::hash()).unwrap();
    let cached = KeyspaceOptions::lsm().layer(layer(most));
    database.keyspace("cached", cached).unwrap().put("key", "value").unwrap();
    for number in 0..15_000_u32 {
        keys.put(number.to_le_bytes(), "value").unwrap();
    }
    keys.persist().unwrap();
    let memory = database.stats().memory;
    let both = (memory.indexes + memory.page_caches) as usize;
    assert!(both > half + half / 64, "{memory:?}");
    database.close().unwrap();

    for is_last in [false, true] {
        drop(setup.builder().read_only(true).open().unwrap());
        let database = setup.open();
        assert_eq!(database.open_keyspace("keys").unwrap().count().unwrap(), 15_000);
        let cached = database.open_keyspace("cached").unwrap();
        assert_eq!(cached.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        let another = KeyspaceOptions::lsm().layer(layer(1));
        refused(database.keyspace("another", another), ErrorKind::Invalid, "indexes of");
        // All versions are indexed of what no checkpoint has, which may be more than is allowed.
        if !is_last {
            let keys = database.open_keyspace("keys").unwrap();
            (0..15_000_u32).for_each(|number| keys.put(number.to_le_bytes(), "again").unwrap());
            keys.persist().unwrap();
        }
    }
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
    assert_eq!(
        (stats.page_cache, stats.memory.page_caches),
        (used, layer.page_cache_bytes() as u64)
    );
    // What an earlier cache has done stays counted, and its memory is given back.
    database.keyspace(NAME, options(engine).layer(Layer::Positional)).unwrap();
    assert_eq!(keyspace.iter().count(), 1000);
    let stats = database.stats();
    assert!(stats.page_cache.written_pages >= used.written_pages);
    assert_eq!(stats.memory.page_caches, 0);
}

/// A keyspace of some engine that is about to be changed, over files that fail when they are told to.
struct Changing {
    fs: FaultFs,
    setup: Setup,
    database: Database,
    keyspace: Keyspace,
    is: KeyspaceInfo,
}

/// Nearly all that page caches may have.
const CACHED: Layer = Layer::BlockCache { block_size: 4096, pages: 950 };

impl Changing {
    fn new(options: KeyspaceOptions) -> Self {
        let memory = Arc::new(MemoryFs::new());
        let fs = FaultFs::new(memory);
        let mut setup = Setup::on(Arc::new(fs.clone()));
        setup.options = options;
        let (database, keyspace) = setup.start();
        for number in 0..400_u32 {
            keyspace.put(number.to_be_bytes(), [number as u8; 400]).unwrap();
        }
        keyspace.persist().unwrap();
        database.settle().unwrap();
        let is = made_of(&database);
        Self { fs, setup, database, keyspace, is }
    }

    fn arm(&self, operation: Operation, name: &str, errno: i32) {
        let fault = Fault::new(operation, Effect::Fail(Errno::Raw(errno)));
        let name_contains = name.to_owned();
        self.fs.arm(Fault { times: Times::Always, name_contains, ..fault });
    }

    /// Asks for what cannot be had.
    fn fail(&self, wanted: &KeyspaceOptions, kind: ErrorKind) {
        let taken = self.database.stats().memory.page_caches;
        let error = self.database.keyspace(NAME, wanted.clone()).err();
        let error = error.unwrap_or_else(|| panic!("{wanted:?} is had"));
        assert_eq!(error.kind(), kind, "{wanted:?}: {error}");
        self.check_unchanged(taken);
    }

    /// All is as it was when page caches had so much memory.
    fn check_unchanged(&self, taken: u64) {
        self.fs.disarm();
        assert_eq!(made_of(&self.database), self.is);
        assert_eq!(self.keyspace.stats().layer, self.is.layer);
        assert_eq!(self.database.stats().memory.page_caches, taken);
        self.check();
        if !self.database.status().is_poisoned {
            // What it has nobody else may have.
            let room = MIN_MEMORY_BUDGET as u64 / 2 - taken;
            let other = Layer::BlockCache { block_size: 4096, pages: (room / 4096) as u32 + 1 };
            let other = self.database.keyspace("other", KeyspaceOptions::lsm().layer(other));
            refused(other, ErrorKind::Invalid, "page caches");
        }
    }

    /// All is there, and goes by way of the page cache that is counted, if there is one.
    fn check(&self) {
        let before = self.database.stats().page_cache;
        let value = |number: u32| [number as u8; 400];
        for number in 0..400_u32 {
            let found = self.keyspace.get(number.to_be_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(&value(number)[..]));
        }
        assert!(self.database.verify().unwrap().problems.is_empty());
        if !self.database.status().is_poisoned {
            self.keyspace.put(7_u32.to_be_bytes(), value(7)).unwrap();
            self.keyspace.persist().unwrap();
            let is_cached = self.is.layer.page_cache_pages().is_some();
            assert_eq!(self.database.stats().page_cache != before, is_cached);
        }
    }

    /// Opens the database again, and finds the keyspace made of one of these.
    fn reopen(self, expected: &[&KeyspaceInfo]) -> Self {
        let Self { fs, setup, database, keyspace, .. } = self;
        drop((keyspace, database));
        let database = setup.open();
        let keyspace = database.open_keyspace(NAME).unwrap();
        let is = made_of(&database);
        assert!(expected.contains(&&is), "{is:?} is not among {expected:?}");
        let reopened = Self { fs, setup, database, keyspace, is };
        reopened.check();
        reopened
    }
}

/// What the keyspace is made of now.
fn made_of(database: &Database) -> KeyspaceInfo {
    database.keyspaces().into_iter().find(|info| info.name == NAME).unwrap()
}

#[test]
fn a_layer_that_cannot_be_had_leaves_all_as_it_was() {
    for engine in ENGINES {
        let changing = Changing::new(options(engine).layer(CACHED));
        let is = changing.is.clone();
        let others = [
            Layer::Mmap,
            Layer::Block { block_size: 512 },
            Layer::BlockCache { block_size: 512, pages: 70 },
            Layer::DirectCache { block_size: 4096, pages: 960 },
        ];
        for layer in others {
            let wanted = options(engine).layer(layer);
            // Others open their files when they need them.
            let files = match engine {
                EngineKind::Skip => ".sorted",
                EngineKind::Btree => "tree",
                _ => "",
            };
            if !files.is_empty() {
                for errno in [5, 24] {
                    changing.arm(Operation::Open, files, errno);
                    changing.fail(&wanted, ErrorKind::Io);
                }
            }
            if engine == EngineKind::Skip && layer == Layer::Mmap {
                // In the footer, which is read first, and by itself.
                let name_contains = files.to_owned();
                let flip = Fault::new(Operation::Read, Effect::Flip(200));
                changing.fs.arm(Fault { name_contains, ..flip });
                changing.fail(&wanted, ErrorKind::Corruption);
            }
            changing.arm(Operation::Write, "catalog", 28);
            changing.fail(&wanted, ErrorKind::NoSpace);
        }
        let changing = changing.reopen(&[&is]);
        let mapped = options(engine).layer(Layer::Mmap);
        changing.database.keyspace(NAME, mapped.clone()).unwrap();
        assert_eq!(changing.database.stats().memory.page_caches, 0);
        let next = made_of(&changing.database);
        assert_eq!(next.layer, Layer::Mmap);
        // And back, which makes the cache anew; but it is not known whether the catalog says so.
        let changing = changing.reopen(&[&next]);
        changing.arm(Operation::Write, "catalog", 5);
        changing.fail(&options(engine).layer(CACHED), ErrorKind::Io);
        assert!(changing.database.status().is_poisoned);
        changing.reopen(&[&next, &is]);
    }
}

#[test]
fn pages_that_cannot_be_cached_leave_all_as_it_was() {
    let tree = || options(EngineKind::Btree);
    let changing = Changing::new(tree().max_cached_pages(20).layer(CACHED));
    let is = changing.is.clone();
    let wanted = tree().max_cached_pages(24);
    changing.arm(Operation::Open, "tree", 24);
    changing.fail(&wanted, ErrorKind::Io);
    changing.arm(Operation::Write, "catalog", 28);
    changing.fail(&wanted, ErrorKind::NoSpace);
    // Of two changes none is made when the first or the second fails.
    let both = wanted.layer(Layer::Mmap);
    changing.arm(Operation::Write, "catalog", 28);
    changing.fail(&both, ErrorKind::NoSpace);
    let taken = changing.database.stats().memory.page_caches;
    let open = Fault::new(Operation::Open, Effect::Fail(Errno::Raw(24)));
    let open = Fault { name_contains: "tree".into(), ..open };
    let mut failed = 0;
    loop {
        changing.fs.arm(Fault { after: failed, ..open.clone() });
        match changing.database.keyspace(NAME, both.clone()) {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
        }
        changing.check_unchanged(taken);
        failed += 1;
    }
    assert!(failed >= 2);
    changing.fs.disarm();
    let next = made_of(&changing.database);
    assert_eq!(next.options, is.options.layer(Layer::Mmap).max_cached_pages(24));
    assert_eq!(changing.database.stats().memory.page_caches, 24 * 4096);
    changing.reopen(&[&next]);

    let lsm = || options(EngineKind::Lsm);
    let changing = Changing::new(lsm().layer(CACHED));
    let is = changing.is.clone();
    changing.arm(Operation::Write, "catalog", 28);
    changing.fail(&lsm().layer(Layer::Mmap).data_block_size(16 << 10), ErrorKind::NoSpace);
    changing.reopen(&[&is]);
}

#[test]
fn who_only_reads_may_change_options_to_and_fro() {
    for engine in [EngineKind::Btree, EngineKind::Lsm] {
        let with = |size| match engine {
            EngineKind::Btree => options(engine).max_cached_pages(size / 1024),
            _ => options(engine).data_block_size(size),
        };
        let Changing { setup, database, keyspace, .. } = Changing::new(with(8192));
        drop(keyspace);
        database.close().unwrap();
        let database = setup.builder().read_only(true).open().unwrap();
        let is = made_of(&database);
        let taken = database.stats().memory.page_caches;
        for _ in 0..2 {
            database.keyspace(NAME, with(16384).layer(Layer::Mmap)).unwrap();
            assert_ne!(made_of(&database), is, "{engine}");
            database.keyspace(NAME, with(8192).layer(Layer::Positional)).unwrap();
            assert_eq!(made_of(&database), is, "{engine}");
            assert_eq!(database.stats().memory.page_caches, taken);
        }
    }
}
