//! Committing a sorted load: what was written to an engine's own files beforehand becomes one write.
//!
//! It has a number like any other, and in the log an entry under it, by which the engine finds what was loaded when the log
//! is replayed. So a load is there after a crash if what was written before it is, like any write.

use super::{Committer, Target, entry};
use crate::contract::Load;
use crate::error::Result;
use crate::options::Durability;

impl Committer {
    /// Makes a load that is finished visible as the next write of `target`. After an error it is not visible; it was not
    /// installed either, unless it is unknown whether the log has it, and all writes are refused.
    pub(crate) fn commit_load(&self, target: &Target, load: &mut dyn Load) -> Result<()> {
        let mut pen = self.pen()?;
        self.check()?;
        let pen = &mut *pen;
        let before = pen.cut_at(target);
        let (seqno, _) = pen.next(1)?;
        if target.logged {
            let writer = pen.writer.as_mut().expect("a database that takes writes has a log");
            pen.head.clear();
            entry::put_load(&mut pen.head, target.id, &load.describe());
            let appended = writer.append(seqno, 1, &[&pen.head]);
            appended.map_err(|error| self.failed_append(error))?;
        }
        pen.last = seqno;
        // The log may have it from now on, whatever becomes of the group: the files must not go.
        load.install(before, seqno);
        // The engine has the log synced before it persists so far, and until then nothing is promised.
        self.write_group(pen, target.logged.then_some(Durability::Buffered))?;
        self.visibility.publish(seqno);
        self.keep_house(pen);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::{Housekeeping, Writes};
    use super::*;
    use crate::base::key::MAX_SEQNO;
    use crate::base::{Kind, ReadPoint, Seqno, Slice, Visibility};
    use crate::budget::Budget;
    use crate::commit::{Logged, take_logged};
    use crate::contract::{Engine, Write};
    use crate::error::{Error, ErrorKind};
    use crate::iter::OrderedCursor;
    use crate::log::{Log, Segments, Writer};
    use crate::options::{MIN_MEMORY_BUDGET, RecoveryMode};
    use crate::stats::{KeyspaceStats, VerifyReport};
    use crate::vfs::{Fs, Layer, LayeredFs, MemoryFs};

    /// What was done to engine and load.
    #[derive(Clone, Default)]
    struct Journal(Arc<Mutex<Vec<String>>>);

    impl Journal {
        fn note(&self, what: String) {
            self.0.lock().unwrap().push(what);
        }

        fn take(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    struct FakeLoad {
        journal: Journal,
        visibility: Arc<Visibility>,
    }

    impl Load for FakeLoad {
        fn push(&mut self, _key: &[u8], _value: &[u8]) -> Result<()> {
            unreachable!("it is finished")
        }

        fn finish(&mut self) -> Result<()> {
            unreachable!("it is finished")
        }

        fn describe(&self) -> Vec<u8> {
            b"where it is".to_vec()
        }

        fn install(&mut self, before: Seqno, seqno: Seqno) {
            assert!(self.visibility.published() < seqno, "nobody may see it yet");
            self.journal.note(format!("install {seqno} behind {before}"));
        }

        fn wait(&mut self) -> Result<()> {
            unreachable!("the commit path does not wait")
        }
    }

    /// An engine that takes note of writes and holds nothing.
    struct FakeEngine(Journal);

    impl Engine for FakeEngine {
        fn make_writable(&self) -> Result<()> {
            Ok(())
        }

        fn apply(&self, write: &Write<'_>) {
            self.0.note(format!("write {}", write.seqno));
        }

        fn end_batch(&self, _last: Seqno) {}

        fn cut(&self, _last: Seqno) {}

        fn persist(&self) -> Result<()> {
            Ok(())
        }

        fn persisted(&self) -> Seqno {
            0
        }

        fn oldest_unpersisted(&self) -> Option<Seqno> {
            None
        }

        fn oldest_uncut(&self) -> Option<Seqno> {
            None
        }

        fn get(&self, _key: &[u8], _point: ReadPoint<'_>) -> Result<Option<Slice>> {
            Ok(None)
        }

        fn cursor(&self, _point: ReadPoint<'_>) -> Result<Box<dyn OrderedCursor>> {
            Err(Error::Unsupported("it holds nothing".into()))
        }

        fn pressure(&self) -> u32 {
            0
        }

        fn trouble(&self) -> Option<Error> {
            None
        }

        fn flush_trouble(&self) -> Option<Error> {
            None
        }

        fn compact(&self) -> Result<()> {
            Ok(())
        }

        fn settle(&self) -> Result<()> {
            Ok(())
        }

        fn verify(&self, _report: &mut VerifyReport) {}

        fn active_bytes(&self) -> usize {
            0
        }

        fn stats(&self) -> KeyspaceStats {
            unreachable!("nobody asks for figures")
        }

        fn layer(&self) -> Layer {
            Layer::Positional
        }

        fn set_layer(&self, _layer: Layer) -> Result<()> {
            Ok(())
        }

        fn stop(&self) {}
    }

    struct Idle;

    impl Housekeeping for Idle {
        fn write_out_soon(&self) {}

        fn prepare_segment(&self) {}

        fn look_at_memory(&self) {}

        fn flush_trouble(&self) -> Option<Error> {
            None
        }
    }

    struct Setup {
        fs: MemoryFs,
        visibility: Arc<Visibility>,
        committer: Committer,
        journal: Journal,
    }

    impl Setup {
        /// A commit path with an empty log, whose next number is the one after `last`.
        fn new(last: Seqno) -> Self {
            let fs = MemoryFs::new();
            fs.create_dir("/log".as_ref()).unwrap();
            let layered = Arc::new(LayeredFs::new(Arc::new(fs.clone())));
            let segments = Segments::new(layered, "/log".into(), 7, Layer::Positional, 0, 1);
            let writer = Writer::start(Arc::new(segments)).unwrap();
            let (visibility, journal) = (Arc::<Visibility>::default(), Journal::default());
            let budget = Arc::new(Budget::new(MIN_MEMORY_BUDGET));
            let committer = Committer::new(Arc::clone(&visibility), budget);
            committer.start(Some(writer), last, Arc::new(Idle)).unwrap();
            Self { fs, visibility, committer, journal }
        }

        fn target(&self, id: u32, logged: bool) -> Target {
            Target::new(id, logged, Arc::new(FakeEngine(self.journal.clone())))
        }

        fn put(&self, target: &Target) {
            let writes = Writes::One { target, kind: Kind::Put, key: b"key", value: b"value" };
            self.committer.commit(writes, Durability::Os).unwrap();
        }

        fn load(&self, target: &Target) -> Result<()> {
            let (journal, visibility) = (self.journal.clone(), Arc::clone(&self.visibility));
            self.committer.commit_load(target, &mut FakeLoad { journal, visibility })
        }

        /// The numbers in the log, each with the keyspace of a load.
        fn logged(&self) -> Vec<(Seqno, Option<u32>)> {
            self.committer.write_out().unwrap();
            let (dir, mode) = ("/log".as_ref(), RecoveryMode::Strict);
            let log = Log::open(&self.fs, dir, 7, 1, mode, |_| true).unwrap();
            let mut found = Vec::new();
            let visit = |writes: crate::log::Writes<'_>| {
                assert_eq!(writes.count, 1);
                let entry = take_logged(&mut &writes.body[..]).unwrap();
                let load = match entry {
                    Logged::Write(_) | Logged::Clear { .. } => None,
                    Logged::Load { keyspace, described } => {
                        assert_eq!(described, b"where it is");
                        Some(keyspace)
                    }
                };
                found.push((writes.first, load));
                Ok(())
            };
            log.replay(&self.fs, visit).unwrap();
            found
        }
    }

    #[test]
    fn a_load_is_one_write_among_others() {
        let setup = Setup::new(0);
        let (logged, unlogged) = (setup.target(300, true), setup.target(2, false));
        setup.put(&logged);
        setup.put(&unlogged);
        setup.load(&logged).unwrap();
        assert_eq!(setup.visibility.published(), 3);
        assert_eq!(setup.committer.pen().unwrap().cut_at(&logged), 3, "the log has its number");
        setup.load(&unlogged).unwrap();
        setup.put(&logged);
        assert_eq!(setup.visibility.published(), 5);
        // Each is cut at the last number of its own kind.
        let expected =
            ["write 1", "write 2", "install 3 behind 1", "install 4 behind 3", "write 5"];
        assert_eq!(setup.journal.take(), expected);
        assert_eq!(setup.logged(), [(1, None), (3, Some(300)), (5, None)]);
    }

    #[test]
    fn the_log_is_synced_over_a_load() {
        let setup = Setup::new(0);
        setup.load(&setup.target(1, true)).unwrap();
        setup.committer.sync(1).unwrap();
        assert_eq!(setup.logged(), [(1, Some(1))]);
    }

    #[test]
    fn what_cannot_be_committed_is_not_installed() {
        let full = Setup::new(0);
        let target = full.target(1, true);
        full.fs.quota(Some(0));
        let refused = (0..1 << 20).find_map(|_| full.load(&target).err()).unwrap();
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        let installed = full.journal.take().len() as u64;
        assert_eq!(full.visibility.published(), installed);
        full.fs.quota(None);
        full.load(&target).unwrap();
        assert_eq!(full.visibility.published(), installed + 1, "the number was not used up");

        let used_up = Setup::new(MAX_SEQNO);
        let error = used_up.load(&used_up.target(1, false)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);

        let closed = Setup::new(0);
        closed.committer.close();
        assert_eq!(closed.load(&closed.target(1, true)).unwrap_err().kind(), ErrorKind::Closed);
        for setup in [used_up, closed] {
            assert_eq!(setup.journal.take(), [""; 0]);
        }
    }
}
