//! A store by itself, whose commit path and background threads are the test's.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use super::super::part::Home;
use super::super::store::Store;
use crate::base::{Kind, ReadPoint, Seqno, Visibility};
use crate::contract::testing::{Log, context};
use crate::contract::{Context, Engine, Write};
use crate::options::KeyspaceOptions;
use crate::reducer::Reducer;
use crate::vfs::Fs;
use crate::workers::Workers;

pub(super) struct Rig {
    pub(super) log: Arc<Log>,
    pub(super) context: Context,
    pub(super) store: Arc<Store>,
}

/// A place for sorted files.
pub(in crate::skip) fn home(fs: &Arc<dyn Fs>) -> Arc<Home> {
    let context = context(Arc::clone(fs), Arc::new(Log::default()));
    fs.create_dir(&context.dir).unwrap();
    Arc::new(Home {
        fs: context.fs,
        dir: context.dir,
        identity: context.identity,
        layer: crate::sync::Mutex::new(context.layer),
        blocks: context.blocks,
        open_files: context.open_files,
        budget: context.budget,
    })
}

impl Rig {
    /// A new store.
    pub(super) fn create(fs: &Arc<dyn Fs>) -> Self {
        let log = Arc::<Log>::default();
        let context = context(Arc::clone(fs), log.clone());
        let store = Store::create(context.clone(), KeyspaceOptions::skip().skip).unwrap();
        Self { log, context, store }
    }

    /// A new store whose values `function` reduces.
    pub(super) fn reducing(
        fs: &Arc<dyn Fs>,
        function: impl Fn(&[u8], &[&[u8]]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let log = Arc::<Log>::default();
        let mut context = context(Arc::clone(fs), log.clone());
        context.reducers.add("custom", Arc::new(function));
        let options = KeyspaceOptions::skip().reducer(Reducer::Custom("custom".into()));
        let store = Store::create(context.clone(), options.skip).unwrap();
        Self { log, context, store }
    }

    /// The store that is there, as a kill leaves it.
    pub(super) fn open(fs: &Arc<dyn Fs>) -> Self {
        let log = Arc::<Log>::default();
        let context = context(Arc::clone(fs), log.clone());
        let store = Store::open(context.clone(), KeyspaceOptions::skip().skip).unwrap();
        store.make_writable().unwrap();
        context.visibility.publish(store.persisted());
        Self { log, context, store }
    }

    pub(super) fn visibility(&self) -> &Visibility {
        &self.context.visibility
    }

    /// Puts a key whose value is its number, which is not published.
    pub(super) fn put(&self, seqno: Seqno, key: &str) {
        let value = seqno.to_be_bytes();
        let write = Write { seqno, kind: Kind::Put, key: key.as_bytes(), value: &value };
        self.store.apply_alone(&write);
    }

    /// Puts a key and makes a run of that.
    pub(super) fn spill(&self, seqno: Seqno, key: &str) {
        self.put(seqno, key);
        self.visibility().publish(seqno);
        self.store.cut(seqno);
        self.store.persist().unwrap();
    }

    /// The number of the write whose value a reader at `at` sees.
    pub(super) fn get(&self, key: &str, at: Seqno) -> Option<Seqno> {
        let value = self.store.get(key.as_bytes(), ReadPoint::At(at)).unwrap();
        value.map(|value| u64::from_be_bytes(value[..].try_into().unwrap()))
    }

    /// Keeps the flush thread busy for as long as what it gives lives.
    pub(super) fn hold_flushes(&self) -> Sender<()> {
        hold(&self.context.background.flush)
    }

    /// Keeps the thread busy that merges.
    pub(super) fn hold_merges(&self) -> Sender<()> {
        hold(&self.context.background.compaction)
    }
}

/// Returns when the thread is held: while the job waits, pressing ones go before it.
fn hold(workers: &Workers) -> Sender<()> {
    let (sender, receiver) = channel::<()>();
    let (begun, is_begun) = channel();
    workers.submit(&Arc::default(), move || {
        begun.send(()).unwrap_or_default();
        receiver.recv().unwrap_or_default();
    });
    is_begun.recv().unwrap();
    sender
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.store.stop();
        self.context.background.flush.stop();
        self.context.background.compaction.stop();
    }
}
