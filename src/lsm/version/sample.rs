//! Tables to test with that exist in name only: nothing here is ever opened.

use std::path::PathBuf;
use std::sync::Arc;

use super::Home;
#[cfg(test)]
use super::{TableFile, TableMeta};
#[cfg(test)]
use crate::base::Seqno;
use crate::budget::Budget;
use crate::cache::{BlockCache, OpenFiles};
use crate::sync::Mutex;
use crate::vfs::{Fs, Layer, MemoryFs};

/// The directory `/tree` of an empty file system in memory.
pub(crate) fn home() -> Arc<Home> {
    home_on(Arc::new(MemoryFs::new()))
}

/// The directory `/tree` of an empty file system.
pub(crate) fn home_on(fs: Arc<dyn Fs>) -> Arc<Home> {
    let dir = PathBuf::from("/tree");
    fs.create_dir(&dir).unwrap();
    let blocks = Arc::new(BlockCache::new(0));
    let open_files = Arc::new(OpenFiles::new(Arc::new(Budget::new(1 << 20)), Arc::clone(&blocks)));
    let layer = Mutex::new(Layer::Positional);
    let key_file = Mutex::default();
    Arc::new(Home { fs, dir, layer, key_file, identity: 7, blocks, open_files })
}

/// A table of `len` bytes with the keys from `smallest` to `largest`, all written at `seqno`.
#[cfg(test)]
pub(crate) fn table(
    home: &Arc<Home>,
    id: u64,
    (smallest, largest): (&[u8], &[u8]),
    len: u64,
    seqno: Seqno,
) -> Arc<TableFile> {
    let meta = TableMeta {
        id,
        len,
        entries: 2,
        tombstones: 1,
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
        smallest_seqno: seqno,
        largest_seqno: seqno,
        ranges: 0,
    };
    TableFile::new(meta, Arc::clone(home))
}
