//! The manifest: the edit log that says which segments and which checkpoint a keyspace is made of.
//!
//! ```text
//! edit       := persisted, next id, removed count, removed ids, added count, added segments, checkpoint
//! segment    := id, first slot, length, written
//! checkpoint := 0, as it was; or 1, id, length, last segment it covers
//! snapshot   := an edit that adds everything
//! ```
//! All integers are varints. An edit is one atomic change.
//!
//! Thread safety: one owner, behind the store's manifest lock.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::segment::SegmentMeta;
use super::slots::MOST_SLOTS;
use crate::base::key::MAX_SEQNO;
use crate::base::{Seqno, varint};
use crate::error::{Error, Result};
use crate::log::edits::{EditKind, Edits};
use crate::log::{AppendError, EditLog};
use crate::vfs::Fs;

const KIND: EditKind = EditKind { name: "manifest", version: 1 };
/// No keyspace will ever have given out so many numbers of files.
const MOST_IDS: u64 = 1 << 56;

/// What the manifest says of the index's checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CheckpointMeta {
    pub(crate) id: u64,
    pub(crate) len: u64,
    /// It holds what is indexed of all segments up to this one.
    pub(crate) covers: u64,
}

/// One change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    /// All writes up to this number are in segments, once the edit is.
    pub(crate) persisted: Seqno,
    pub(crate) removed: Vec<u64>,
    pub(crate) added: Vec<SegmentMeta>,
    pub(crate) checkpoint: Option<CheckpointMeta>,
}

/// What the manifest holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Contents {
    pub(crate) persisted: Seqno,
    /// Above the ids of all files there are.
    pub(crate) next_id: u64,
    pub(crate) segments: BTreeMap<u64, SegmentMeta>,
    pub(crate) checkpoint: Option<CheckpointMeta>,
}

#[derive(Debug)]
enum Log {
    /// It was read, and may not be changed.
    Read(Edits),
    /// It takes edits.
    Open(EditLog),
}

/// The manifest of an open keyspace.
#[derive(Debug)]
pub(crate) struct Manifest {
    log: Log,
    pub(crate) contents: Contents,
}

impl Manifest {
    /// Creates the manifest of an empty keyspace.
    pub(crate) fn create(fs: &Arc<dyn Fs>, dir: &Path, identity: u64) -> Result<Self> {
        let contents = Contents::default();
        let log = EditLog::create(Arc::clone(fs), dir, KIND, identity, &contents.snapshot())?;
        Ok(Self { log: Log::Open(log), contents })
    }

    /// Reads the manifest. Changes nothing.
    pub(crate) fn open(fs: &dyn Fs, dir: &Path, identity: u64) -> Result<Self> {
        let found = EditLog::read(fs, dir, KIND)?.ok_or_else(|| {
            Error::corruption(&dir.join(KIND.name), 0, "the keyspace's manifest is missing")
        })?;
        let path = &found.path;
        if found.database != identity {
            return Err(Error::corruption(path, 16, "this manifest belongs to another database"));
        }
        let mut contents = Contents::default();
        for bytes in std::iter::once(&found.snapshot).chain(&found.edits) {
            contents
                .apply(bytes)
                .ok_or_else(|| Error::corruption(path, 0, "an edit says what cannot be"))?;
        }
        if !contents.is_possible() {
            return Err(Error::corruption(path, 0, "two segments are in one place"));
        }
        Ok(Self { log: Log::Read(found), contents })
    }

    /// Opens for changes what was read.
    pub(crate) fn make_writable(&mut self, fs: &Arc<dyn Fs>, dir: &Path) -> Result<()> {
        if let Log::Read(found) = &self.log {
            self.log = Log::Open(EditLog::open(Arc::clone(fs), dir, KIND, found)?);
        }
        Ok(())
    }

    /// Records a change, durable on return; ids below `next_id` are given out. If it is refused, nothing has
    /// changed: a forged manifest may leave no numbers for more files. After another error it is unknown whether the change will be there at the next opening.
    pub(crate) fn record(&mut self, edit: &Edit, next_id: u64) -> Result<(), AppendError> {
        let Log::Open(log) = &mut self.log else {
            unreachable!("only a writable database changes its manifest")
        };
        if next_id > MOST_IDS {
            let what = "there are as many numbers as there can be";
            return Err(AppendError::Refused(Error::corruption(log.path(), 0, what)));
        }
        let bytes = edit.encode(next_id);
        let mut next = self.contents.clone();
        next.apply(&bytes).expect("an edit made here is valid");
        log.append(&bytes, || next.snapshot())?;
        self.contents = next;
        Ok(())
    }
}

impl Edit {
    pub(super) fn encode(&self, next_id: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |number: u64| varint::put(&mut out, number);
        put(self.persisted);
        put(next_id);
        put(self.removed.len() as u64);
        self.removed.iter().for_each(|&id| put(id));
        put(self.added.len() as u64);
        for segment in &self.added {
            put(segment.id);
            put(u64::from(segment.base));
            put(segment.len);
            put(segment.written);
        }
        match self.checkpoint {
            None => put(0),
            Some(CheckpointMeta { id, len, covers }) => {
                [1, id, len, covers].into_iter().for_each(put);
            }
        }
        out
    }
}

impl Default for Contents {
    fn default() -> Self {
        Self { persisted: 0, next_id: 1, segments: BTreeMap::new(), checkpoint: None }
    }
}

impl Contents {
    pub(super) fn snapshot(&self) -> Vec<u8> {
        let edit = Edit {
            persisted: self.persisted,
            removed: Vec::new(),
            added: self.segments.values().copied().collect(),
            checkpoint: self.checkpoint,
        };
        edit.encode(self.next_id)
    }

    /// Applies an edit; `None` if it is not a valid one.
    pub(super) fn apply(&mut self, mut bytes: &[u8]) -> Option<()> {
        let bytes = &mut bytes;
        self.persisted = self.persisted.max(varint::take(bytes)?);
        self.next_id = self.next_id.max(varint::take(bytes)?);
        if self.next_id > MOST_IDS || self.persisted > MAX_SEQNO {
            return None;
        }
        for _ in 0..varint::take(bytes)? {
            self.segments.remove(&varint::take(bytes)?)?;
        }
        for _ in 0..varint::take(bytes)? {
            let segment = SegmentMeta {
                id: varint::take(bytes)?,
                base: varint::take(bytes)?.try_into().ok()?,
                len: varint::take(bytes)?,
                written: varint::take(bytes)?,
            };
            let end = (segment.base as usize).checked_add(segment.slots())?;
            let valid = segment.id < self.next_id
                && segment.len >= 64
                && segment.len.is_multiple_of(8)
                && segment.written <= segment.len;
            if !valid
                || end > MOST_SLOTS / 8 * 7
                || self.segments.insert(segment.id, segment).is_some()
            {
                return None;
            }
        }
        match varint::take(bytes)? {
            0 => {}
            1 => {
                let checkpoint = CheckpointMeta {
                    id: varint::take(bytes)?,
                    len: varint::take(bytes)?,
                    covers: varint::take(bytes)?,
                };
                if checkpoint.id >= self.next_id || checkpoint.covers >= self.next_id {
                    return None;
                }
                self.checkpoint = Some(checkpoint);
            }
            _ => return None,
        }
        bytes.is_empty().then_some(())
    }

    /// Whether no two segments share a slot.
    pub(super) fn is_possible(&self) -> bool {
        let mut places: Vec<_> = self
            .segments
            .values()
            .map(|segment| (segment.base as usize, segment.slots()))
            .collect();
        places.sort_unstable();
        places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::MemoryFs;

    fn segment(id: u64, base: u32) -> SegmentMeta {
        SegmentMeta { id, base, len: 3 << 19, written: 10 * id }
    }

    #[test]
    fn what_is_recorded_is_there_again() {
        let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
        let dir = Path::new("/k");
        fs.create_dir(dir).unwrap();
        let mut manifest = Manifest::create(&fs, dir, 7).unwrap();
        let first =
            Edit { persisted: 5, added: vec![segment(1, 0), segment(2, 2)], ..Edit::default() };
        manifest.record(&first, 3).unwrap();
        let checkpoint = Some(CheckpointMeta { id: 3, len: 100, covers: 2 });
        let second = Edit { removed: vec![1], added: vec![segment(4, 0)], checkpoint, ..first };
        manifest.record(&Edit { persisted: 4, ..second }, 9).unwrap();
        let mut again = Manifest::open(&*fs, dir, 7).unwrap();
        assert_eq!(again.contents, manifest.contents);
        assert_eq!((again.contents.persisted, again.contents.next_id), (5, 9));
        assert_eq!(again.contents.checkpoint, checkpoint);
        assert_eq!(again.contents.segments.keys().copied().collect::<Vec<_>>(), [2, 4]);
        again.make_writable(&fs, dir).unwrap();
        again.record(&Edit { removed: vec![2], ..Edit::default() }, 9).unwrap();
        assert!(Manifest::open(&*fs, dir, 8).is_err(), "of another database");
    }

    #[test]
    fn what_could_not_be_read_again_is_not_recorded() {
        let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
        let dir = Path::new("/k");
        fs.create_dir(dir).unwrap();
        let mut manifest = Manifest::create(&fs, dir, 7).unwrap();
        manifest.record(&Edit { persisted: 5, ..Edit::default() }, MOST_IDS).unwrap();
        let more = Edit { persisted: 6, added: vec![segment(MOST_IDS, 0)], ..Edit::default() };
        let error = manifest.record(&more, MOST_IDS + 1).unwrap_err();
        assert!(matches!(error, AppendError::Refused(Error::Corruption { .. })), "{error:?}");
        let again = Manifest::open(&*fs, dir, 7).unwrap();
        assert_eq!(again.contents, manifest.contents);
        assert_eq!(again.contents.persisted, 5);
    }

    #[test]
    fn impossible_edits_are_refused() {
        let edit = |added| Edit { added, ..Edit::default() }.encode(10);
        let apply = |bytes: &[u8]| Contents::default().apply(bytes);
        assert!(apply(&edit(vec![segment(1, 0)])).is_some());
        assert!(apply(&edit(vec![segment(10, 0)])).is_none(), "an id that was not given out");
        assert!(apply(&edit(vec![segment(1, 0), segment(1, 5)])).is_none());
        assert!(apply(&edit(vec![segment(1, MOST_SLOTS as u32 - 1)])).is_none());
        assert!(apply(&Edit { removed: vec![1], ..Edit::default() }.encode(10)).is_none());
        for (persisted, next_id) in [(MAX_SEQNO + 1, 10), (u64::MAX, 10), (1, MOST_IDS + 1)] {
            let bytes = Edit { persisted, ..Edit::default() }.encode(next_id);
            assert!(apply(&bytes).is_none(), "there could be no next number");
        }
        let mut contents = Contents::default();
        contents.apply(&edit(vec![segment(1, 0), segment(2, 1)])).unwrap();
        assert!(!contents.is_possible());
        let bytes = edit(vec![segment(1, 0)]);
        (0..bytes.len()).for_each(|cut| assert!(apply(&bytes[..cut]).is_none()));
    }
}
