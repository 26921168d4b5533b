//! Databases to test with: every engine over every layer, in memory and on disk, with and without the log.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use turbidite::vfs::{DiskFs, Fs, MemoryFs};
use turbidite::{
    Database, DatabaseBuilder, EngineKind, Error, Keyspace, KeyspaceOptions, Layer,
    MIN_MEMORY_BUDGET, Policy, Range,
};

pub(crate) use turbidite_torture::choices::{ENGINES, is_ordered, plain as options};
pub(crate) use turbidite_torture::model::assert_no_order;
pub(crate) use turbidite_torture::setting::layers as memory_layers;

use crate::choices;

/// The name of the keyspace that tests of a single one use.
pub(crate) const NAME: &str = "main";

/// A place for a database, and what to make of it there. Removed when dropped.
pub(crate) struct Setup {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) path: PathBuf,
    pub(crate) engine: EngineKind,
    pub(crate) options: KeyspaceOptions,
    pub(crate) log_layer: Layer,
    /// Set if database and LSM-tree are made of what is drawn.
    drawn: Option<Drawn>,
    label: String,
    _dir: Option<TempDir>,
}

/// A seed for options, and how many times the database was opened: they are others each time.
struct Drawn {
    seed: u64,
    openings: AtomicU64,
}

impl Setup {
    /// An LSM keyspace in memory.
    pub(crate) fn memory() -> Self {
        Self::on(Arc::new(MemoryFs::new()))
    }

    pub(crate) fn on(fs: Arc<impl Fs + 'static>) -> Self {
        let path = PathBuf::from("/data/test.db");
        let (engine, log_layer) = (EngineKind::Lsm, Layer::Mmap);
        let options = options(engine);
        let label = "memory".into();
        Self { fs, path, engine, options, log_layer, drawn: None, label, _dir: None }
    }

    /// An LSM keyspace on disk.
    pub(crate) fn disk(layer: Layer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut setup = Self::on(Arc::new(MemoryFs::new()));
        (setup.fs, setup.path) = (Arc::new(DiskFs::new()), dir.path().join("test.db"));
        (setup.label, setup._dir) = ("disk".into(), Some(dir));
        setup.layer(layer)
    }

    /// With another engine.
    pub(crate) fn engine(self, engine: EngineKind) -> Self {
        let label = format!("{}, {engine}", self.label);
        Self { engine, options: options(engine), label, ..self }.layer(self.log_layer)
    }

    /// With the keyspace's files and the log in this layer.
    pub(crate) fn layer(self, layer: Layer) -> Self {
        let label = format!("{}, {layer}", self.label);
        Self { options: self.options.layer(layer), log_layer: layer, label, ..self }
    }

    /// With options that are drawn with `seed`, anew each time the database is opened.
    pub(crate) fn drawn(self, seed: u64) -> Self {
        let label = format!("{}, options drawn with {seed}", self.label);
        Self { drawn: Some(Drawn { seed, openings: AtomicU64::new(0) }), label, ..self }
    }

    pub(crate) fn logged(self, logged: bool) -> Self {
        let log = if logged { "logged" } else { "no log" };
        Self { options: self.options.log(logged), label: format!("{}, {log}", self.label), ..self }
    }

    /// Every engine over every layer, in memory and on disk, there with or without the log in turn, and with
    /// it or without it the other way round in memory: both are met with every engine and layer.
    pub(crate) fn all() -> Vec<Self> {
        ENGINES.into_iter().flat_map(Self::all_of).collect()
    }

    /// Those of [`all`](Self::all) with an order.
    pub(crate) fn ordered() -> Vec<Self> {
        ENGINES.into_iter().filter(|&engine| is_ordered(engine)).flat_map(Self::all_of).collect()
    }

    fn all_of(engine: EngineKind) -> impl Iterator<Item = Self> {
        let in_memory = memory_layers().into_iter().enumerate();
        let in_memory = in_memory.map(|(at, layer)| (at, Self::memory().layer(layer)));
        let on_disk = layers().into_iter().enumerate();
        let on_disk = on_disk.map(|(at, layer)| (at + 1, Self::disk(layer)));
        let seed = choices::mix(choices::seed(), engine);
        in_memory.chain(on_disk).zip(0..).map(move |((at, setup), number)| {
            let setup = setup.engine(engine).logged(at % 2 == engine as usize % 2);
            setup.drawn(choices::mix(seed, number))
        })
    }

    pub(crate) fn is_ordered(&self) -> bool {
        is_ordered(self.engine)
    }

    /// Whether cursors show bytes of a file that is written to again: that of a B+ tree that is mapped.
    pub(crate) fn lends_what_changes(&self) -> bool {
        self.engine == EngineKind::Btree && self.log_layer == Layer::Mmap
    }

    /// How the keyspace is kept in shape, if it is an LSM-tree.
    pub(crate) fn policy(&self) -> Option<Policy> {
        let drawn = || {
            self.drawn.as_ref().map_or_else(Policy::default, |drawn| choices::policy(drawn.seed))
        };
        (self.engine == EngineKind::Lsm).then(drawn)
    }

    /// Whether compaction merges all there is: that policy for data that grow old never does.
    pub(crate) fn merges(&self) -> bool {
        !matches!(self.policy(), Some(Policy::Fifo { .. }))
    }

    /// What a second keyspace is made of: another engine, in the default layer, with the log.
    pub(crate) fn other(&self) -> KeyspaceOptions {
        let at = ENGINES.iter().position(|&engine| engine == self.engine);
        options(ENGINES[(at.map_or(0, |at| at + 1)) % ENGINES.len()])
    }

    pub(crate) fn builder(&self) -> DatabaseBuilder {
        let builder = Database::builder(&self.path)
            .file_system(Arc::clone(&self.fs))
            .memory_budget(MIN_MEMORY_BUDGET)
            .log_layer(self.log_layer);
        match &self.drawn {
            Some(Drawn { seed, openings }) => {
                choices::database(builder, *seed, openings.fetch_add(1, Ordering::Relaxed))
            }
            None => builder,
        }
    }

    /// Opens the database. A process that another test starts has the lock too from its fork until it is
    /// another program: that is waited for.
    pub(crate) fn open(&self) -> Database {
        for _ in 0..500 {
            match self.builder().open() {
                Err(Error::Locked { .. }) => std::thread::sleep(Duration::from_millis(2)),
                opened => return opened.unwrap(),
            }
        }
        panic!("{self}: the database stays locked")
    }

    pub(crate) fn keyspace(&self, database: &Database) -> Keyspace {
        let options = self.options.clone();
        let options = match &self.drawn {
            Some(Drawn { seed, openings }) if self.engine == EngineKind::Lsm => {
                choices::tree(options, *seed, openings.load(Ordering::Relaxed))
            }
            _ => options,
        };
        database.keyspace(NAME, options).unwrap()
    }

    pub(crate) fn start(&self) -> (Database, Keyspace) {
        let database = self.open();
        let keyspace = self.keyspace(&database);
        (database, keyspace)
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

/// Those that can be used on the disk that tests run on.
pub(crate) fn layers() -> Vec<Layer> {
    let direct = has_direct_io();
    let is_direct =
        |layer: &Layer| matches!(layer, Layer::Direct { .. } | Layer::DirectCache { .. });
    memory_layers().into_iter().filter(|layer| direct || !is_direct(layer)).collect()
}

/// All that a range gives, in any order. No key may come twice.
pub(crate) fn contents(range: Range) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut map = BTreeMap::new();
    for item in range {
        let (key, value) = item.unwrap();
        assert!(map.insert(key.to_vec(), value.to_vec()).is_none(), "{key:?} comes twice");
    }
    map
}

/// Whether the disk that tests run on has direct I/O; says so if not.
fn has_direct_io() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let layer = Layer::Direct { block_size: Layer::DEFAULT_BLOCK_SIZE };
    match DiskFs::new().create(&dir.path().join("probe"), layer) {
        Err(error) if error.kind() == turbidite::ErrorKind::Unsupported => {
            eprintln!("left out: {error}");
            false
        }
        file => file.is_ok(),
    }
}

/// All files below a directory of the operating system, with their bytes.
pub(crate) fn files_below(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
    files
}
