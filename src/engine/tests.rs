//! What engines have in common, each by itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, Weak, mpsc};
use std::thread;
use std::time::Duration;

use super::*;
use crate::base::{Kind, Seqno, Visibility};
use crate::contract::testing::{Log, context};
use crate::contract::{Background, Host, Write};
use crate::error::Error;
use crate::vfs::MemoryFs;

/// So often the keyspace is emptied.
const CLEARS: usize = 12;

/// The host of a keyspace that is emptied again whenever the log is synced; something is loaded before, if the engine takes loads.
struct Restless {
    fs: MemoryFs,
    options: KeyspaceOptions,
    keyspace: OnceLock<(Weak<dyn Engine>, Arc<Visibility>)>,
    writes: Mutex<Writes>,
    /// What was seen whenever something had persisted.
    seen: Mutex<Vec<Seen>>,
}

/// What the log would have.
struct Writes {
    last: Seqno,
    /// What is to be found again of loads, by their numbers.
    loads: BTreeMap<Seqno, Vec<u8>>,
    /// How many clears are still to come.
    left: usize,
}

#[derive(Debug)]
struct Seen {
    persisted: Seqno,
    oldest: Option<Seqno>,
    /// What comes of a kill at that moment.
    replayed: Result<()>,
}

impl Restless {
    fn engine(&self) -> (Arc<dyn Engine>, &Visibility) {
        let (engine, visibility) = self.keyspace.get().unwrap();
        (engine.upgrade().unwrap(), visibility)
    }

    /// Opens the keyspace as a kill would leave it, and replays what it has not persisted.
    fn replay(&self) -> Result<()> {
        let context = context(Arc::new(self.fs.fork()), Arc::<Log>::default());
        let (visibility, background) =
            (Arc::clone(&context.visibility), Arc::clone(&context.background));
        let engine = open(&self.options, context)?;
        engine.make_writable()?;
        let writes = self.writes.lock().unwrap();
        let replayed = (engine.persisted() + 1..=writes.last).try_for_each(|seqno| {
            visibility.publish(seqno - 1);
            match writes.loads.get(&seqno) {
                Some(load) => engine.replay_load(seqno, load),
                None => engine.as_clear().map(|clear| clear.clear(seqno - 1, seqno)),
            }
        });
        visibility.publish(writes.last);
        let ended = replayed.and_then(|()| engine.end_replay());
        engine.stop();
        background.flush.stop();
        background.compaction.stop();
        ended
    }
}

impl Host for Restless {
    fn sync_log(&self, _: Seqno) -> Result<()> {
        let (engine, visibility) = self.engine();
        let mut writes = self.writes.lock().unwrap();
        if writes.left == 0 {
            return Ok(());
        }
        let mut next = writes.last + 1;
        if let Ok(mut load) = engine.load() {
            load.push(b"loaded", b"value")?;
            load.finish()?;
            writes.loads.insert(next, load.describe());
            load.install(next - 1, next);
            visibility.publish(next);
            next += 1;
        }
        engine.as_clear()?.clear(next - 1, next);
        visibility.publish(next);
        writes.last = next;
        writes.left -= 1;
        Ok(())
    }

    fn persisted(&self) {
        let (engine, _) = self.engine();
        let (persisted, oldest) = (engine.persisted(), engine.oldest_unpersisted());
        self.seen.lock().unwrap().push(Seen { persisted, oldest, replayed: self.replay() });
    }

    fn trouble(&self, _: Option<Error>) {}

    fn poison(&self, error: &Error) {
        panic!("{error}");
    }

    fn check_poison(&self) -> Result<()> {
        Ok(())
    }
}

/// A keyspace that was cleared, and is so many times more, with its host.
fn restless(
    options: &KeyspaceOptions,
    clears: usize,
) -> (Arc<dyn Engine>, Arc<Restless>, Arc<Background>) {
    let fs = MemoryFs::new();
    let host = Arc::new(Restless {
        fs: fs.clone(),
        options: options.clone(),
        keyspace: OnceLock::new(),
        writes: Mutex::new(Writes { last: 2, loads: BTreeMap::new(), left: clears }),
        seen: Mutex::default(),
    });
    let context = context(Arc::new(fs), Arc::clone(&host) as _);
    let (visibility, background) =
        (Arc::clone(&context.visibility), Arc::clone(&context.background));
    let engine = create(options, context).unwrap();
    host.keyspace.get_or_init(|| (Arc::downgrade(&engine), Arc::clone(&visibility)));
    engine.apply(&Write { seqno: 1, kind: Kind::Put, key: b"key", value: b"value" });
    visibility.publish(2);
    engine.as_clear().unwrap().clear(1, 2);
    (engine, host, background)
}

/// Each takes effect at once, and a sync takes its time: what comes meanwhile must not keep the log for ever.
#[test]
fn clears_that_keep_coming_are_persisted() {
    for options in [KeyspaceOptions::lsm(), KeyspaceOptions::skip(), KeyspaceOptions::btree()] {
        let kind = options.engine;
        let (engine, host, background) = restless(&options, CLEARS);
        engine.settle().unwrap();
        let last = host.writes.lock().unwrap().last;
        assert_eq!((engine.persisted(), engine.oldest_unpersisted()), (last, None), "{kind}");
        let seen = std::mem::take(&mut *host.seen.lock().unwrap());
        assert_eq!(seen.len(), CLEARS + 1, "{kind}");
        for (before, after) in seen.iter().zip(&seen[1..]) {
            assert!(before.persisted < after.persisted, "{kind}: {seen:?}");
            assert_eq!(before.oldest, Some(before.persisted + 1), "{kind}: {seen:?}");
        }
        assert!(seen.iter().all(|seen| seen.replayed.is_ok()), "{kind}: {seen:?}");
        engine.stop();
        background.flush.stop();
        background.compaction.stop();
    }
}

/// There may be no end of them.
#[test]
fn who_persists_or_compacts_does_not_wait_for_clears_that_come_later() {
    for options in [KeyspaceOptions::lsm(), KeyspaceOptions::skip(), KeyspaceOptions::btree()] {
        let kind = options.engine;
        let (engine, host, background) = restless(&options, usize::MAX);
        let (sender, done) = mpsc::channel();
        let waiting = Arc::clone(&engine);
        let waiting = thread::spawn(move || {
            waiting.synchronize(&|| Ok(())).unwrap();
            sender.send("synchronize").unwrap();
            waiting.compact().unwrap();
            sender.send("compact").unwrap();
        });
        let is_done = [(); 2].map(|()| done.recv_timeout(Duration::from_secs(60)));
        host.writes.lock().unwrap().left = 0;
        waiting.join().unwrap();
        assert_eq!(is_done, [Ok("synchronize"), Ok("compact")], "{kind}");
        engine.settle().unwrap();
        engine.stop();
        background.flush.stop();
        background.compaction.stop();
    }
}
