//! The manifest: the edit log that says which sorted files a keyspace is made of.
//!
//! ```text
//! edit, snapshot := persisted, next id, count, files from the newest on
//! file           := id, length, records, 1 if it is the base and 0 if a run, after, to
//! ```
//! All integers are varints. An edit replaces all that was there: files are few.
//!
//! Invariants: the files follow each other, each having the writes behind those of the next one; the base is the last.
//!
//! Thread safety: one owner, behind the store's manifest lock.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::part::PartMeta;
use crate::base::key::MAX_SEQNO;
use crate::base::{Seqno, varint};
use crate::error::{Error, Result};
use crate::log::edits::{EditKind, Edits};
use crate::log::{AppendError, EditLog};
use crate::vfs::Fs;

const KIND: EditKind = EditKind { name: "manifest", version: 1 };
/// No keyspace will ever have given out so many numbers of files.
const MOST_IDS: u64 = 1 << 56;

/// What the manifest holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Contents {
    /// All writes up to this number are in the files.
    pub(super) persisted: Seqno,
    /// Above the ids of all files there are.
    pub(super) next_id: u64,
    /// Newest first.
    pub(super) parts: Vec<PartMeta>,
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
pub(super) struct Manifest {
    log: Log,
    pub(super) contents: Contents,
    /// The next number that is given out.
    next_id: u64,
}

impl Manifest {
    /// Creates the manifest of an empty keyspace.
    pub(super) fn create(fs: &Arc<dyn Fs>, dir: &Path, identity: u64) -> Result<Self> {
        let contents = Contents { persisted: 0, next_id: 1, parts: Vec::new() };
        let log = EditLog::create(Arc::clone(fs), dir, KIND, identity, &contents.encode())?;
        Ok(Self { log: Log::Open(log), contents, next_id: 1 })
    }

    /// Reads the manifest. Changes nothing.
    pub(super) fn open(fs: &dyn Fs, dir: &Path, identity: u64) -> Result<Self> {
        let found = EditLog::read(fs, dir, KIND)?.ok_or_else(|| {
            Error::corruption(&dir.join(KIND.name), 0, "the keyspace's manifest is missing")
        })?;
        if found.database != identity {
            let what = "this manifest belongs to another database";
            return Err(Error::corruption(&found.path, 16, what));
        }
        let newest = found.edits.last().unwrap_or(&found.snapshot);
        let contents = Contents::decode(newest)
            .ok_or_else(|| Error::corruption(&found.path, 0, "an edit says what cannot be"))?;
        let next_id = contents.next_id;
        Ok(Self { log: Log::Read(found), contents, next_id })
    }

    /// Opens for changes what was read.
    pub(super) fn make_writable(&mut self, fs: &Arc<dyn Fs>, dir: &Path) -> Result<()> {
        if let Log::Read(found) = &self.log {
            self.log = Log::Open(EditLog::open(Arc::clone(fs), dir, KIND, found)?);
        }
        Ok(())
    }

    /// Gives out numbers above `id` only from now on.
    pub(super) fn pass_over(&mut self, id: u64) {
        self.next_id = self.next_id.max(id + 1);
    }

    /// A number for a new file.
    pub(super) fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Records which files there are, durable on return. If it is refused, nothing has changed: a forged manifest may leave no
    /// numbers for more files. After another error it is unknown whether the change will be there at the next opening.
    pub(super) fn record(
        &mut self,
        persisted: Seqno,
        parts: Vec<PartMeta>,
    ) -> Result<(), AppendError> {
        let Log::Open(log) = &mut self.log else {
            unreachable!("only a writable database changes its manifest")
        };
        if self.next_id > MOST_IDS {
            let what = "there are as many numbers as there can be";
            return Err(AppendError::Refused(Error::corruption(log.path(), 0, what)));
        }
        let next = Contents { persisted, next_id: self.next_id, parts };
        let bytes = next.encode();
        debug_assert_eq!(Contents::decode(&bytes).as_ref(), Some(&next));
        log.append(&bytes, || next.encode())?;
        self.contents = next;
        Ok(())
    }
}

impl Contents {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |number: u64| varint::put(&mut out, number);
        put(self.persisted);
        put(self.next_id);
        put(self.parts.len() as u64);
        for part in &self.parts {
            let PartMeta { id, len, records, is_base, after, to } = *part;
            [id, len, records, u64::from(is_base), after, to].into_iter().for_each(&mut put);
        }
        out
    }

    /// What was encoded; `None` if it cannot be.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let (persisted, next_id) = (varint::take(bytes)?, varint::take(bytes)?);
        let mut parts: Vec<PartMeta> = Vec::new();
        let mut ids = HashSet::new();
        for _ in 0..varint::take(bytes)? {
            let part = PartMeta {
                id: varint::take(bytes)?,
                len: varint::take(bytes)?,
                records: varint::take(bytes)?,
                is_base: match varint::take(bytes)? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
                after: varint::take(bytes)?,
                to: varint::take(bytes)?,
            };
            let newest = parts.last().map_or(persisted, |newer| newer.after);
            let is_possible = part.id < next_id
                && part.after < part.to
                && part.to <= newest
                && ids.insert(part.id)
                && parts.last().is_none_or(|newer| !newer.is_base);
            if !is_possible || (part.is_base && part.after != 0) {
                return None;
            }
            parts.push(part);
        }
        let is_possible = bytes.is_empty() && next_id <= MOST_IDS && persisted <= MAX_SEQNO;
        is_possible.then_some(Self { persisted, next_id, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::MemoryFs;

    fn part(id: u64, is_base: bool, after: Seqno, to: Seqno) -> PartMeta {
        PartMeta { id, len: 1000 * id, records: 10 * id, is_base, after, to }
    }

    #[test]
    fn contents_round_trip_and_cuts_are_refused() {
        let parts = vec![part(7, false, 60, 90), part(2, false, 40, 50), part(5, true, 0, 40)];
        let contents = Contents { persisted: 95, next_id: 8, parts };
        let bytes = contents.encode();
        assert_eq!(Contents::decode(&bytes), Some(contents));
        (0..bytes.len()).for_each(|cut| assert_eq!(Contents::decode(&bytes[..cut]), None));
    }

    /// Looking for each number among all others takes hours.
    #[test]
    fn a_forged_manifest_of_many_files_is_read_in_time() {
        let count = 1_000_000;
        let mut parts: Vec<_> =
            (1..=count).rev().map(|number| part(number, false, number - 1, number)).collect();
        let contents = Contents { persisted: count, next_id: count + 1, parts: parts.clone() };
        assert_eq!(Contents::decode(&contents.encode()), Some(contents));
        parts[count as usize - 1].id = count;
        let twice = Contents { persisted: count, next_id: count + 1, parts };
        assert_eq!(Contents::decode(&twice.encode()), None);
    }

    #[test]
    fn what_could_not_be_read_again_is_not_recorded() {
        let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
        let dir = Path::new("/k");
        fs.create_dir(dir).unwrap();
        let mut manifest = Manifest::create(&fs, dir, 7).unwrap();
        manifest.pass_over(MOST_IDS - 1);
        manifest.record(5, Vec::new()).unwrap();
        let more = PartMeta { id: manifest.take_id(), ..part(1, true, 0, 6) };
        let error = manifest.record(6, vec![more]).unwrap_err();
        assert!(matches!(error, AppendError::Refused(Error::Corruption { .. })), "{error:?}");
        let again = Manifest::open(&*fs, dir, 7).unwrap();
        assert_eq!((&again.contents, again.contents.persisted), (&manifest.contents, 5));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for parts in [
            vec![part(8, true, 0, 40)],
            vec![part(1, true, 0, 99)],
            vec![part(1, true, 3, 40)],
            vec![part(1, false, 40, 40)],
            vec![part(1, false, 30, 50), part(2, true, 0, 40)],
            vec![part(1, false, 40, 50), part(1, true, 0, 40)],
            vec![part(1, true, 0, 40), part(2, false, 0, 0)],
            vec![part(2, true, 0, 40), part(1, true, 0, 30)],
        ] {
            let contents = Contents { persisted: 95, next_id: 8, parts };
            assert_eq!(Contents::decode(&contents.encode()), None, "{contents:?}");
        }
        for (persisted, next_id) in [(MAX_SEQNO + 1, 8), (95, MOST_IDS + 1)] {
            let contents = Contents { persisted, next_id, parts: Vec::new() };
            assert_eq!(Contents::decode(&contents.encode()), None, "{contents:?}");
        }
    }
}
