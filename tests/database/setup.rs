//! Databases to test with: every file system and layer, with and without the log.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use turbidite::vfs::{DiskFs, Fs, MemoryFs};
use turbidite::{Database, DatabaseBuilder, Keyspace, KeyspaceOptions, Layer, MIN_MEMORY_BUDGET};

/// The name of the keyspace that tests of a single one use.
pub(crate) const NAME: &str = "main";

/// A place for a database, and what to make of it there. Removed when dropped.
pub(crate) struct Setup {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) path: PathBuf,
    pub(crate) options: KeyspaceOptions,
    label: String,
    _dir: Option<TempDir>,
}

impl Setup {
    pub(crate) fn memory() -> Self {
        Self::on(Arc::new(MemoryFs::new()))
    }

    pub(crate) fn on(fs: Arc<impl Fs + 'static>) -> Self {
        let path = PathBuf::from("/data/test.db");
        Self { fs, path, options: KeyspaceOptions::lsm(), label: "memory".into(), _dir: None }
    }

    pub(crate) fn disk(layer: Layer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            fs: Arc::new(DiskFs::new()),
            path: dir.path().join("test.db"),
            options: KeyspaceOptions::lsm().layer(layer),
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
            [Self::disk(Layer::Positional), Self::disk(Layer::Mmap), Self::memory()]
                .map(|setup| setup.logged(logged))
        })
    }

    pub(crate) fn builder(&self) -> DatabaseBuilder {
        Database::builder(&self.path)
            .file_system(Arc::clone(&self.fs))
            .memory_budget(MIN_MEMORY_BUDGET)
    }

    pub(crate) fn open(&self) -> Database {
        self.builder().open().unwrap()
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
