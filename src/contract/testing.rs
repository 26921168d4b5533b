//! What a test gives an engine that it has to itself, without a database around it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::{Background, Context, Host};
use crate::base::Seqno;
use crate::budget::Budget;
use crate::cache::{BlockCache, OpenFiles};
use crate::error::{Error, Result};
use crate::options::{CompactionLock, MIN_MEMORY_BUDGET};
use crate::reducer::Reducers;
use crate::throttle::Throttle;
use crate::vfs::{BatchReader, Fs, Layer};
use crate::workers::Workers;

/// Takes note of how far the log was to be synced.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) synced: AtomicU64,
}

impl Host for Log {
    fn sync_log(&self, seqno: Seqno) -> Result<()> {
        self.synced.fetch_max(seqno, Ordering::Relaxed);
        Ok(())
    }

    fn persisted(&self) {}

    fn trouble(&self, _: Option<Error>) {}

    fn poison(&self, error: &Error) {
        panic!("{error}");
    }

    fn check_poison(&self) -> Result<()> {
        Ok(())
    }
}

/// A thread of each kind. What one of them panics with is told to `on_panic`.
pub(crate) fn background(on_panic: fn(&str)) -> Background {
    let workers = |name| Workers::start(name, 1, on_panic).unwrap();
    Background {
        flush: workers("flush"),
        compaction: workers("upkeep"),
        compaction_threads: 1,
        compaction_lock: CompactionLock::default(),
        throttle: Arc::new(Throttle::new(None)),
    }
}

/// The place of a keyspace with the log, whose directory is not made yet.
pub(crate) fn context(fs: Arc<dyn Fs>, host: Arc<dyn Host>) -> Context {
    let budget = Arc::new(Budget::new(MIN_MEMORY_BUDGET));
    let blocks = Arc::new(BlockCache::new(1 << 20));
    Context {
        fs,
        dir: PathBuf::from("/keyspaces/1"),
        layer: Layer::Positional,
        identity: 5,
        open_files: Arc::new(OpenFiles::new(Arc::clone(&budget), Arc::clone(&blocks))),
        budget,
        blocks,
        reader: Arc::new(BatchReader::new(2)),
        visibility: Arc::default(),
        background: Arc::new(background(|panic| panic!("{panic}"))),
        host,
        observer: Default::default(),
        read_only: false,
        logged: true,
        reducers: Reducers::default(),
        lock: Weak::new(),
    }
}
