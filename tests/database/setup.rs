//! Databases to test with: every file system and layer, with and without the log.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use turbidite::vfs::{DiskFs, Fs, MemoryFs};
use turbidite::{
    Database, DatabaseBuilder, Error, Keyspace, KeyspaceOptions, Layer, MIN_MEMORY_BUDGET,
};

/// The name of the keyspace that tests of a single one use.
pub(crate) const NAME: &str = "main";

/// A place for a database, and what to make of it there. Removed when dropped.
pub(crate) struct Setup {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) path: PathBuf,
    pub(crate) options: KeyspaceOptions,
    pub(crate) log_layer: Layer,
    label: String,
    _dir: Option<TempDir>,
}

impl Setup {
    pub(crate) fn memory() -> Self {
        Self::on(Arc::new(MemoryFs::new()))
    }

    pub(crate) fn on(fs: Arc<impl Fs + 'static>) -> Self {
        let path = PathBuf::from("/data/test.db");
        let (options, log_layer) = (KeyspaceOptions::lsm(), Layer::Mmap);
        Self { fs, path, options, log_layer, label: "memory".into(), _dir: None }
    }

    /// On disk; what is in blocks has its log in blocks too.
    pub(crate) fn disk(layer: Layer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            fs: Arc::new(DiskFs::new()),
            path: dir.path().join("test.db"),
            options: KeyspaceOptions::lsm().layer(layer),
            log_layer: if layer.block_size().is_some() { layer } else { Layer::Mmap },
            label: format!("disk, {layer}"),
            _dir: Some(dir),
        }
    }

    pub(crate) fn logged(self, logged: bool) -> Self {
        let log = if logged { "logged" } else { "no log" };
        Self { options: self.options.log(logged), label: format!("{}, {log}", self.label), ..self }
    }

    /// Every file system and layer, with and without the log.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [true, false].into_iter().flat_map(|logged| {
            let disk = layers().into_iter().map(Self::disk);
            disk.chain([Self::memory()]).map(move |setup| setup.logged(logged))
        })
    }

    pub(crate) fn builder(&self) -> DatabaseBuilder {
        Database::builder(&self.path)
            .file_system(Arc::clone(&self.fs))
            .memory_budget(MIN_MEMORY_BUDGET)
            .log_layer(self.log_layer)
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
        database.keyspace(NAME, self.options.clone()).unwrap()
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

/// The layers that can be used on the disk that tests run on, with page caches that fit the smallest budget.
pub(crate) fn layers() -> Vec<Layer> {
    let small = |layer: Layer| layer.with_page_cache_pages(64).unwrap_or(layer);
    let direct = has_direct_io();
    let is_direct =
        |layer: &Layer| matches!(layer, Layer::Direct { .. } | Layer::DirectCache { .. });
    Layer::ALL.into_iter().map(small).filter(|layer| direct || !is_direct(layer)).collect()
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
