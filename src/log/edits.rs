//! Edit logs: how the catalog and the engines keep their own small state.
//!
//! An edit log is a file that begins with a snapshot of the whole state and goes on with edits. An edit is
//! synced before the call returns; then the *watermark*, which lies at the front of the file and is written
//! over in place, is raised to its end. That is how recovery tells an edit that was torn by a crash (nobody
//! relied on it: dropped) from one that was damaged or cut off later (an error). When the edits outgrow the
//! snapshot, a new file with a new snapshot takes over in one atomic rename.
//!
//! A power loss may leave an earlier watermark, which says less and nothing false. What lies above it may be in
//! memory only, and after a failed sync the system may think it written: opening writes it again.
//!
//! ```text
//! NAME-000001:  header  watermark  snapshot  edit  edit ...
//! offset  size
//!      0     8  magic "TBD-EDT\n"
//!      8     4  format version: that of the edits, which each kind of edit log counts by itself
//!     12     4  zero
//!     16     8  identity of the database
//!     24     8  number of the file
//!     32    28  zero
//!     60     4  checksum of bytes 0..60, bound to (identity of the file, 0)
//!     64    32  the watermark: a record of kind `Mark` whose payload is the synced length of the file
//!     96        the snapshot
//! ```
//! The records are those of [`record`]; their sequence number counts the edits. The edits of a file are all of its version:
//! what an earlier release began is taken over by a new file with the first edit of a later version.
//!
//! Thread safety: one owner; callers bring their own lock.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::record::{self, RecordKind};
use super::writer::AppendError;
use crate::base::{checksum, hash};
use crate::error::{Error, Result};
use crate::planted::{Bug, planted};
use crate::sync::much;
use crate::vfs::{Access, File, Fs, Layer, change_names, is_too_many_open};

const MAGIC: [u8; 8] = *b"TBD-EDT\n";
const HEADER: usize = 64;
const WATERMARK: usize = record::HEADER + 8;
/// Where the snapshot begins.
const FRONT: usize = HEADER + WATERMARK;
/// No edit log will ever have had so many edits or files.
const MOST_EDITS: u64 = 1 << 55;
/// So many times a sync is tried again that finds too many files open, after this time.
const MOST_TRIES: usize = 100;
const A_MOMENT: Duration = Duration::from_millis(10);
/// A new snapshot is due when the file has more bytes than this and than four times the last snapshot.
const SMALLEST_ROLL: u64 = 64 << 10;

/// A kind of edit log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EditKind {
    /// What its files are called.
    pub(crate) name: &'static str,
    /// The version of the edits that are written; all from 1 on can be read.
    pub(crate) version: u32,
}

/// An edit log, open for writing.
#[derive(Debug)]
pub(crate) struct EditLog {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    kind: EditKind,
    /// The version of the edits in the file.
    version: u32,
    database: u64,
    number: u64,
    identity: u64,
    file: Arc<dyn File>,
    end: u64,
    edits: u64,
    snapshot_len: u64,
    /// The first error after which it is unknown what the file holds: nothing may follow it.
    failed: Option<Error>,
}

/// What an edit log holds.
#[derive(Debug)]
pub(crate) struct Edits {
    /// The identity of the database it belongs to.
    pub(crate) database: u64,
    /// The version of snapshot and edits.
    pub(crate) version: u32,
    pub(crate) snapshot: Vec<u8>,
    pub(crate) edits: Vec<Vec<u8>>,
    pub(crate) path: PathBuf,
    number: u64,
    /// The number of the last edit, those before the snapshot counted.
    count: u64,
    end: u64,
    torn: bool,
    /// Where what is not known to have been synced begins.
    synced: u64,
    unsynced: Vec<u8>,
}

impl EditLog {
    /// Creates the first file of an edit log in `dir`, synced, holding `snapshot`.
    pub(crate) fn create(
        fs: Arc<dyn Fs>,
        dir: &Path,
        kind: EditKind,
        database: u64,
        snapshot: &[u8],
    ) -> Result<Self> {
        Ok(Self::write_file(fs, dir, kind, database, 1, 0, snapshot)?)
    }

    /// Reads the newest file of an edit log; `None` if there is none. It is read twice: what one wrong read hides would be cut off, or written over,
    /// and who only reads would not see it. Changes nothing.
    pub(crate) fn read(fs: &dyn Fs, dir: &Path, kind: EditKind) -> Result<Option<Edits>> {
        let numbers = fs.list(dir)?;
        let Some(number) = numbers.iter().filter_map(|file| number_of(kind.name, file)).max()
        else {
            return Ok(None);
        };
        let path = path(dir, kind.name, number);
        let file = fs.open(&path, Access::Read, Layer::Positional)?;
        let read = || read_file(&path, &file.view(0..file.len()?)?, kind, number);
        let found = read()?;
        if !planted(Bug::TrustFirstLook) {
            let again = read()?;
            if (again.count, again.end) != (found.count, found.end) {
                let what = "what follows in the file could not be read a moment ago: open the database again";
                return Err(Error::corruption(&path, found.end.min(again.end), what));
            }
        }
        Ok(Some(found))
    }

    /// Opens for writing what [`read`](Self::read) found, and removes what an interrupted roll left.
    pub(crate) fn open(fs: Arc<dyn Fs>, dir: &Path, kind: EditKind, found: &Edits) -> Result<Self> {
        let name = kind.name;
        let file = fs.open(&found.path, Access::Write, Layer::Positional)?;
        if found.torn {
            file.truncate(found.end)?;
        }
        // Nothing may be built on what was read before it is safe.
        file.write_at(found.synced, &found.unsynced)?;
        let superseded = |file: &String| number_of(name, file).is_some_and(|it| it < found.number);
        if fs.list(dir)?.iter().any(superseded) {
            // The sync that was to make this file's name safe has not succeeded, or was not reached.
            match change_names(&*fs, &found.path.with_extension("tmp")) {
                // Where there is no room for a name, it is left out.
                Err(Error::NoSpace { .. }) => {}
                changed => changed?,
            }
        }
        if !planted(Bug::SkipEditsRecoverySync) {
            file.sync()?;
            fs.sync_dir(dir)?;
        }
        for file in fs.list(dir)? {
            let unfinished = file.strip_suffix(".tmp").and_then(|file| number_of(name, file));
            if unfinished.is_some() || superseded(&file) {
                fs.remove(&dir.join(file))?;
            }
        }
        let edits = Self {
            dir: dir.to_path_buf(),
            kind,
            version: found.version,
            database: found.database,
            number: found.number,
            identity: identity(name, found.database, found.number),
            file,
            end: found.end,
            edits: found.count,
            snapshot_len: found.snapshot.len() as u64,
            failed: None,
            fs,
        };
        edits.raise_watermark()?;
        Ok(edits)
    }

    /// The file that edits go to.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends an edit; it survives power loss when the call returns. `snapshot` gives the whole state
    /// with the edit, and is asked for when a new file is due.
    ///
    /// # Errors
    /// `Refused`: nothing was appended, and appending may be tried again. `Unknown`, or a panic: it is unknown whether the edit
    /// will be there when the log is read again, and every later call gives that error.
    pub(crate) fn append(
        &mut self,
        edit: &[u8],
        snapshot: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), AppendError> {
        if let Some(error) = &self.failed {
            return Err(AppendError::Unknown(error.clone()));
        }
        // If it ends by a panic, that is what it stays.
        self.failed = Some(Error::Poisoned { cause: "a panic in the middle of an edit".into() });
        let appended = self.try_append(edit, snapshot);
        self.failed = match &appended {
            Err(AppendError::Unknown(error)) => Some(error.clone()),
            Ok(()) | Err(AppendError::Refused(_)) => None,
        };
        appended
    }

    fn try_append(
        &mut self,
        edit: &[u8],
        snapshot: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), AppendError> {
        if self.edits.max(self.number) >= MOST_EDITS {
            let what = "the numbers of edits are used up".into();
            return Err(AppendError::Refused(Error::Invalid(what)));
        }
        let is_outdated = self.version < self.kind.version;
        if is_outdated || self.end > self.longest() {
            return self.roll(&snapshot());
        }
        let mut buffer = Vec::with_capacity(record::HEADER + edit.len());
        encode(&mut buffer, RecordKind::Write, self.edits + 1, self.identity, self.end, edit)
            .map_err(AppendError::Refused)?;
        if let Err(error) = self.file.write_at(self.end, &buffer) {
            // A part may be there, or all of it, and come back after a power loss: without it, it is as if nothing had been tried.
            let is_undone = self
                .file
                .truncate(self.end)
                .and_then(|()| if planted(Bug::SkipUndoSync) { Ok(()) } else { self.file.sync() });
            return Err(match is_undone {
                Ok(()) => AppendError::of_write(error),
                Err(_) => unknown(error),
            });
        }
        self.edits += 1;
        self.end += buffer.len() as u64;
        if planted(Bug::SkipEditSync) {
            return self.raise_watermark().map_err(unknown);
        }
        self.file.sync().and_then(|()| self.raise_watermark()).map_err(unknown)
    }

    /// A file that is longer is followed by another one, in simulations soon.
    fn longest(&self) -> u64 {
        much(SMALLEST_ROLL.max(4 * self.snapshot_len), 3 * self.snapshot_len)
    }

    /// Notes at the front of the file that all of it has been synced. What is there says less, and nothing false: it may stay where there is no space to
    /// write over it.
    fn raise_watermark(&self) -> Result<()> {
        let watermark = watermark(self.edits, self.identity, self.end)?;
        match self.file.write_at(HEADER as u64, &watermark) {
            Err(Error::NoSpace { .. }) => Ok(()),
            raised => raised,
        }
    }

    fn roll(&mut self, snapshot: &[u8]) -> Result<(), AppendError> {
        let superseded = path(&self.dir, self.kind.name, self.number);
        let fs = Arc::clone(&self.fs);
        let (number, edits) = (self.number + 1, self.edits + 1);
        *self = Self::write_file(fs, &self.dir, self.kind, self.database, number, edits, snapshot)?;
        if let Err(error) = self.fs.remove(&superseded) {
            log::warn!("a superseded file stays behind: {error}");
        }
        Ok(())
    }

    /// Writes file `number` under a temporary name, syncs it and gives it its name. As long as it does not have that, nobody knows
    /// of it, whatever fails.
    fn write_file(
        fs: Arc<dyn Fs>,
        dir: &Path,
        kind: EditKind,
        database: u64,
        number: u64,
        edits: u64,
        snapshot: &[u8],
    ) -> Result<Self, AppendError> {
        let identity = identity(kind.name, database, number);
        let path = path(dir, kind.name, number);
        let unfinished = path.with_extension("tmp");
        let write = || -> Result<(Vec<u8>, Arc<dyn File>)> {
            if fs.kind(&unfinished)?.is_some() {
                fs.remove(&unfinished)?;
            }
            let mut bytes = header(kind.version, database, number, identity).to_vec();
            bytes.resize(FRONT, 0);
            encode(&mut bytes, RecordKind::Snapshot, edits, identity, FRONT as u64, snapshot)?;
            let watermark = watermark(edits, identity, bytes.len() as u64)?;
            bytes[HEADER..FRONT].copy_from_slice(&watermark);
            let file = fs.create(&unfinished, Layer::Positional)?;
            file.write_at(0, &bytes)?;
            if !planted(Bug::SkipSyncBeforeRename) {
                file.sync()?;
            }
            Ok((bytes, file))
        };
        let (bytes, created) = write().map_err(AppendError::Refused)?;
        // From the renaming on nothing must become unknown for want of a descriptor.
        let names = fs.open_dir(dir).map_err(AppendError::Refused)?;
        if let Err(error) = fs.rename(&unfinished, &path) {
            let has = |path| fs.kind(path).map(|kind| kind.is_some());
            let is_named = match planted(Bug::BelieveFailedRename) {
                true => Ok(false),
                false => has(&path),
            };
            match (AppendError::of_write(error.clone()), is_named, has(&unfinished)) {
                // There was space for the name all the same.
                (AppendError::Refused(_), Ok(true), Ok(false)) => {}
                (refused, Ok(false), _) => return Err(refused),
                _ => return Err(unknown(error)),
            }
        }
        if !planted(Bug::SkipSyncAfterRename) {
            patiently(|| names.sync()).map_err(unknown)?;
        }
        drop(names);
        // Opened anew for errors to name it as it is called now.
        let file = match fs.open(&path, Access::Write, Layer::Positional) {
            // If somebody has taken it away, what is written to it is lost.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Err(unknown(Error::io("open", &path, None, ErrorKind::NotFound.into())));
            }
            opened => opened.unwrap_or(created),
        };
        let (end, snapshot_len) = (bytes.len() as u64, snapshot.len() as u64);
        let dir = dir.to_path_buf();
        Ok(Self {
            fs,
            dir,
            kind,
            version: kind.version,
            database,
            number,
            identity,
            file,
            end,
            edits,
            snapshot_len,
            failed: None,
        })
    }
}

/// Tries again for a while as long as too many files are open: after a sync of the same names that has failed for somebody else, one is made anew.
fn patiently(sync: impl Fn() -> Result<()>) -> Result<()> {
    let mut tries = 0;
    loop {
        match sync() {
            Err(error) if is_too_many_open(&error) && tries < MOST_TRIES => {
                tries += 1;
                crate::sync::thread::sleep(A_MOMENT);
            }
            done => return done,
        }
    }
}

/// After which it is unknown what is on the disk: that there was no space does not say that nothing was written.
fn unknown(error: Error) -> AppendError {
    AppendError::Unknown(error.with_unknown_outcome("record a change in"))
}

fn encode(
    buffer: &mut Vec<u8>,
    kind: RecordKind,
    edits: u64,
    identity: u64,
    offset: u64,
    payload: &[u8],
) -> Result<()> {
    if payload.len() as u64 > record::MAX_PAYLOAD {
        return Err(Error::Invalid("the state of the store has outgrown its file format".into()));
    }
    let start = record::begin(buffer);
    buffer.extend_from_slice(payload);
    record::seal(buffer, start, kind, edits, identity, offset);
    Ok(())
}

/// The record that says that the file has been synced up to `end`.
fn watermark(edits: u64, identity: u64, end: u64) -> Result<Vec<u8>> {
    let mut buffer = Vec::with_capacity(WATERMARK);
    encode(&mut buffer, RecordKind::Mark, edits, identity, HEADER as u64, &end.to_le_bytes())?;
    Ok(buffer)
}

/// How much of the file is known to have been synced.
fn read_watermark(path: &Path, bytes: &[u8], identity: u64) -> Result<u64> {
    record::parse(bytes, HEADER, identity)
        .filter(|record| record.kind == RecordKind::Mark)
        .and_then(|record| Some(u64::from_le_bytes(record.payload.try_into().ok()?)))
        .ok_or_else(|| Error::corruption(path, HEADER as u64, "the watermark is damaged"))
}

fn read_file(path: &Path, bytes: &[u8], kind: EditKind, number: u64) -> Result<Edits> {
    let (version, database) = read_header(path, bytes, kind, number)?;
    let identity = identity(kind.name, database, number);
    let synced = read_watermark(path, bytes, identity)?;
    let first = record::parse(bytes, FRONT, identity)
        .filter(|record| record.kind == RecordKind::Snapshot)
        .ok_or_else(|| Error::corruption(path, FRONT as u64, "the snapshot is damaged"))?;
    let mut edits = Vec::new();
    let mut count = first.seqno;
    let mut end = FRONT + first.len();
    while let Some(record) = record::parse(bytes, end, identity) {
        if record.kind != RecordKind::Write || record.seqno != count + 1 {
            return Err(Error::corruption(path, end as u64, "an edit is missing before this one"));
        }
        edits.push(record.payload.to_vec());
        count += 1;
        end += record.len();
    }
    if count > MOST_EDITS {
        return Err(Error::corruption(path, FRONT as u64, "there cannot be so many edits"));
    }
    // Each edit is written after the one before it was synced: one behind the end proves damage too.
    let is_damaged = (end as u64) < synced || record::remains(bytes, end, identity, |_| true).proof;
    let synced = if planted(Bug::EndEditsAtDamage) { synced.min(end as u64) } else { synced };
    if is_damaged && !planted(Bug::EndEditsAtDamage) {
        return Err(Error::corruption(path, end as u64, "an edit is damaged"));
    }
    Ok(Edits {
        database,
        version,
        snapshot: first.payload.to_vec(),
        edits,
        path: path.to_path_buf(),
        number,
        count,
        end: end as u64,
        torn: end < bytes.len(),
        synced,
        unsynced: bytes[synced as usize..end].to_vec(),
    })
}

fn header(version: u32, database: u64, number: u64, identity: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[16..24].copy_from_slice(&database.to_le_bytes());
    bytes[24..32].copy_from_slice(&number.to_le_bytes());
    let sum = checksum::bound(identity, 0, &bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Checks the header and gives the version of the edits and the identity of the database.
fn read_header(path: &Path, bytes: &[u8], kind: EditKind, number: u64) -> Result<(u32, u64)> {
    let header: &[u8; HEADER] = bytes
        .first_chunk()
        .ok_or_else(|| Error::corruption(path, bytes.len() as u64, "the file is cut off"))?;
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    let sum = u32::from_le_bytes(header[60..].try_into().expect("4 bytes"));
    let database = word(16);
    let expected = checksum::bound(identity(kind.name, database, number), 0, &header[..60]);
    let is_it = word(24) == number && number <= MOST_EDITS;
    if header[..8] != MAGIC || !is_it || !checksum::matches(sum, expected) {
        return Err(Error::corruption(path, 0, "the header is damaged"));
    }
    let version = word(8) as u32;
    if version > kind.version {
        let file = path.to_path_buf();
        return Err(Error::NewerFormat { file, found: version, supported: kind.version });
    }
    Ok((version, database))
}

/// What the records of a file are bound to: other files of the same database get other identities.
fn identity(name: &str, database: u64, number: u64) -> u64 {
    hash::file_identity(database ^ hash::hash64(name.as_bytes()), number)
}

/// The path of a file of the edit log `name`.
pub(super) fn path(dir: &Path, name: &str, number: u64) -> PathBuf {
    dir.join(format!("{name}-{number:06}"))
}

/// The number in the name of a file of the edit log `name`.
pub(crate) fn number_of(name: &str, file: &str) -> Option<u64> {
    let digits = file.strip_prefix(name)?.strip_prefix('-')?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::vfs::{Effect, Errno, Fault, FaultFs, MemoryFs, Operation, PowerCut};

    const KIND: EditKind = EditKind { name: "state", version: 1 };

    fn dir() -> &'static Path {
        Path::new("/db")
    }

    fn created(fs: &MemoryFs) -> EditLog {
        fs.create_dir(dir()).unwrap();
        EditLog::create(Arc::new(fs.clone()), dir(), KIND, 7, b"first").unwrap()
    }

    fn reopened(fs: &MemoryFs) -> (Edits, EditLog) {
        let found = EditLog::read(fs, dir(), KIND).unwrap().unwrap();
        let log = EditLog::open(Arc::new(fs.clone()), dir(), KIND, &found).unwrap();
        (found, log)
    }

    #[test]
    fn what_is_read_wrongly_once_is_not_believed() {
        for after in 0..2 {
            let fs = MemoryFs::new();
            drop(created(&fs));
            let faults = FaultFs::new(Arc::new(fs.clone()));
            let read = || EditLog::read(&faults, dir(), KIND).map(Option::unwrap);
            let open = |found: &Edits| EditLog::open(Arc::new(faults.clone()), dir(), KIND, found);
            let mut log = open(&read().unwrap()).unwrap();
            faults.arm(Fault { after, ..Fault::new(Operation::Read, Effect::Stale) });
            // Over several sectors, of which the last ones are written once.
            let edit = vec![2; 2000];
            log.append(&edit, Vec::new).unwrap();
            drop(log);
            let files = fs.files();
            assert_eq!(read().unwrap_err().kind(), ErrorKind::Corruption);
            assert_eq!(faults.fired(), 1);
            assert!(fs.files() == files);
            assert_eq!(read().unwrap().edits, [edit]);
            open(&read().unwrap()).unwrap();
        }
    }

    /// Who is told that there was no space removes what the edit speaks of.
    #[test]
    fn what_was_refused_does_not_come_back() {
        for (operation, name, is_whole) in [
            (Operation::Write, "", true),
            (Operation::Write, "", false),
            (Operation::Rename, ".tmp", true),
        ] {
            let fs = MemoryFs::traced();
            fs.create_dir(dir()).unwrap();
            fs.sync_dir(Path::new("/")).unwrap();
            let faults = FaultFs::new(Arc::new(fs.clone()));
            let mut log =
                EditLog::create(Arc::new(faults.clone()), dir(), KIND, 7, b"first").unwrap();
            let (mut refused, mut fired) = (0, 0);
            for number in 0..80_usize {
                let no_space = Errno::Raw(28);
                let effect = match is_whole {
                    true => Effect::FailDone(no_space),
                    false => Effect::FailShort(500, no_space),
                };
                let name_contains = name.into();
                faults.arm(Fault { name_contains, ..Fault::new(operation, effect) });
                let edits = |number: usize| [number as u8; 1000];
                let appended = log.append(&edits(number), || edits(number).to_vec());
                fired += faults.fired();
                faults.disarm();
                let kept = match appended {
                    Ok(()) => number,
                    Err(AppendError::Refused(_)) => number.wrapping_sub(1),
                    Err(error) => panic!("{operation}: {error:?}"),
                };
                let at = fs.operations();
                let mut cuts = vec![PowerCut::KeepAll, PowerCut::DropUnsynced];
                for single in 0..fs.unsynced(at) {
                    cuts.extend([PowerCut::KeepAlone(single), PowerCut::DropAlone(single)]);
                }
                for cut in cuts {
                    let found = EditLog::read(&fs.image(at, cut), dir(), KIND).unwrap().unwrap();
                    let is_kept = match kept {
                        usize::MAX => found.edits.is_empty(),
                        kept => *found.edits.last().unwrap_or(&found.snapshot) == edits(kept),
                    };
                    assert!(is_kept, "{operation} {number} {cut:?}");
                }
                if appended.is_err() {
                    refused += 1;
                    log.append(&edits(number), || edits(number).to_vec()).unwrap();
                }
            }
            assert!(fired > 0 && log.number > 1, "{operation}");
            // What has its name is there, and all that is written can be taken back.
            assert_eq!(refused > 0, operation == Operation::Write, "{operation}");
        }
    }

    #[test]
    fn what_cannot_be_taken_back_or_looked_for_is_unknown() {
        let (no_space, broken) = (Errno::Raw(28), Errno::Raw(5));
        let done = |operation| Fault::new(operation, Effect::FailDone(no_space));
        let fails = |operation| Fault::new(operation, Effect::Fail(broken));
        let at_roll = |fault| Fault { name_contains: ".tmp".into(), ..fault };
        let not_done = Fault::new(Operation::Rename, Effect::Fail(no_space));
        for (faults, is_unknown) in [
            (vec![done(Operation::Write), fails(Operation::Truncate)], true),
            (vec![done(Operation::Write), fails(Operation::Sync)], true),
            (vec![done(Operation::Write)], false),
            // Before the renaming it is looked whether there is an unfinished file.
            (vec![done(Operation::Rename), Fault { after: 1, ..fails(Operation::List) }], true),
            (vec![not_done.clone(), Fault { after: 1, ..fails(Operation::List) }], true),
            (vec![not_done], false),
        ] {
            let fs = MemoryFs::new();
            fs.create_dir(dir()).unwrap();
            let faulty = FaultFs::new(Arc::new(fs.clone()));
            let mut log =
                EditLog::create(Arc::new(faulty.clone()), dir(), KIND, 7, b"first").unwrap();
            if faults[0].operation == Operation::Rename {
                while log.end <= log.longest() {
                    log.append(&[1; 1000], Vec::new).unwrap();
                }
            }
            let number = log.number;
            let all = faults.len() as u64;
            let is_write = faults[0].operation == Operation::Write;
            faults.into_iter().for_each(|fault| {
                faulty.arm(if is_write || fault.operation == Operation::List {
                    fault
                } else {
                    at_roll(fault)
                });
            });
            let error = log.append(b"edit", || b"all".to_vec()).unwrap_err();
            assert_eq!(faulty.fired(), all, "{error:?}");
            assert_eq!(matches!(error, AppendError::Unknown(_)), is_unknown, "{error:?}");
            let of_unknown = Error::from(error).kind();
            assert_eq!(of_unknown == ErrorKind::NoSpace, !is_unknown);
            let again = log.append(b"edit", || b"all".to_vec());
            assert_eq!(again.is_err(), is_unknown);
            if !is_unknown {
                let (found, _) = reopened(&fs);
                let last = found.edits.last().unwrap_or(&found.snapshot);
                assert!(last == b"edit" || last == b"all", "{last:?}");
                assert_eq!(log.number > number, !is_write);
            }
        }
    }

    #[test]
    fn edits_go_on_after_new_files_and_reopenings() {
        let fs = MemoryFs::new();
        let mut log = created(&fs);
        let mut since_snapshot = 0;
        for number in 0..200_u32 {
            let mut rolled = false;
            let edit = [number as u8; 1000];
            let snapshot = || {
                rolled = true;
                number.to_le_bytes().to_vec()
            };
            log.append(&edit, snapshot).unwrap();
            since_snapshot = if rolled { 0 } else { since_snapshot + 1 };
            if number % 7 == 0 {
                let found;
                (found, log) = reopened(&fs);
                assert_eq!(found.edits.len(), since_snapshot);
                assert!(found.edits.iter().next_back().is_none_or(|last| *last == edit));
            }
        }
        assert!(log.number > 2, "there were no new files");
        assert_eq!(fs.list(dir()).unwrap().len(), 1, "superseded files stay behind");
    }

    #[test]
    fn a_new_version_begins_with_a_file_of_its_own() {
        let fs = MemoryFs::new();
        created(&fs).append(b"old", Vec::new).unwrap();
        let newer = EditKind { version: 2, ..KIND };
        let found = EditLog::read(&fs, dir(), newer).unwrap().unwrap();
        assert_eq!((found.version, &found.edits), (1, &vec![b"old".to_vec()]));
        let mut log = EditLog::open(Arc::new(fs.clone()), dir(), newer, &found).unwrap();
        assert_eq!(EditLog::read(&fs, dir(), KIND).unwrap().unwrap().version, 1, "nothing is new");
        log.append(b"new", || b"all of it".to_vec()).unwrap();
        log.append(b"newer", Vec::new).unwrap();
        let found = EditLog::read(&fs, dir(), newer).unwrap().unwrap();
        assert_eq!((found.version, &found.snapshot[..]), (2, &b"all of it"[..]));
        assert_eq!(found.edits, [b"newer"]);
        let error = EditLog::read(&fs, dir(), KIND).unwrap_err();
        assert!(matches!(error, Error::NewerFormat { found: 2, supported: 1, .. }), "{error}");
    }

    /// The last edit or snapshot, which are numbers here.
    fn last(found: &Edits) -> usize {
        let bytes = found.edits.last().unwrap_or(&found.snapshot);
        usize::from_le_bytes(*bytes.first_chunk().unwrap())
    }

    #[test]
    fn what_no_edit_and_no_file_can_follow_is_damage() {
        let refused = |number: u64, edits: u64| {
            let fs = MemoryFs::new();
            fs.create_dir(dir()).unwrap();
            let files: Arc<dyn Fs> = Arc::new(fs.clone());
            EditLog::write_file(files, dir(), KIND, 7, number, edits, b"all").unwrap();
            EditLog::read(&fs, dir(), KIND).map_err(|error| error.kind()).err()
        };
        assert_eq!(refused(MOST_EDITS, MOST_EDITS), None);
        assert_eq!(refused(MOST_EDITS + 1, 0), Some(ErrorKind::Corruption));
        assert_eq!(refused(u64::MAX, 0), Some(ErrorKind::Corruption));
        assert_eq!(refused(1, MOST_EDITS + 1), Some(ErrorKind::Corruption));
    }

    #[test]
    fn what_is_written_last_can_be_read() {
        for (number, edits) in [(1, MOST_EDITS - 2), (MOST_EDITS, 1)] {
            let fs = MemoryFs::new();
            fs.create_dir(dir()).unwrap();
            let files: Arc<dyn Fs> = Arc::new(fs.clone());
            let log = EditLog::write_file(files, dir(), KIND, 7, number, edits, b"all");
            let mut log = log.unwrap();
            let refused = (0..).find_map(|_| log.append(b"one", Vec::new).err()).unwrap();
            assert_eq!(Error::from(refused).kind(), ErrorKind::Invalid);
            let found = EditLog::read(&fs, dir(), KIND).unwrap().unwrap();
            assert_eq!(found.edits.len(), if number == 1 { 2 } else { 0 });
        }
    }

    #[test]
    fn edits_go_on_in_a_new_file_that_could_not_be_opened_anew() {
        let too_many = 24;
        for (operation, errno, times) in [
            (Operation::Open, 5, 1),
            (Operation::Open, too_many, 1),
            (Operation::SyncDir, too_many, 1),
            (Operation::SyncDir, too_many, 3),
        ] {
            let fs = MemoryFs::new();
            fs.create_dir(dir()).unwrap();
            let faults = FaultFs::new(Arc::new(fs.clone()));
            let mut log =
                EditLog::create(Arc::new(faults.clone()), dir(), KIND, 7, b"first").unwrap();
            let fault = |operation, errno| Fault::new(operation, Effect::Fail(Errno::Raw(errno)));
            let opening = |errno| {
                let name_contains = KIND.name.into();
                Fault { name_contains, ..fault(Operation::Open, errno) }
            };
            for _ in 0..times {
                faults.arm(match operation {
                    Operation::Open => opening(errno),
                    _ => fault(operation, errno),
                });
            }
            if (operation, times) == (Operation::SyncDir, 3) {
                faults.arm(opening(too_many));
            }
            for number in 0..200_usize {
                let edit = [number as u8; 1000];
                log.append(&edit, || edit.to_vec()).unwrap();
                let found = EditLog::read(&fs, dir(), KIND).unwrap().unwrap();
                assert_eq!(found.edits.last().unwrap_or(&found.snapshot), &edit, "{errno}");
            }
            let wanted = if times == 3 { 4 } else { times };
            assert!(log.number > 2 && faults.fired() == wanted, "{operation} {}", faults.fired());
            reopened(&fs);
        }
    }

    /// However few may be open: nothing is renamed before all that is needed is open.
    #[test]
    fn too_many_open_files_make_nothing_unknown() {
        for (room, is_enough) in [(0, false), (1, false), (2, true), (3, true)] {
            let fs = MemoryFs::new();
            fs.create_dir(dir()).unwrap();
            let faults = FaultFs::new(Arc::new(fs.clone()));
            let mut log =
                EditLog::create(Arc::new(faults.clone()), dir(), KIND, 7, b"first").unwrap();
            let mut refused = 0;
            for number in 0..200_usize {
                let edit = [number as u8; 1000];
                faults.limit_open_files(Some(faults.open_files() + room));
                while let Err(error) = log.append(&edit, || edit.to_vec()) {
                    assert!(matches!(error, AppendError::Refused(_)), "{room}: {error:?}");
                    faults.limit_open_files(None);
                    refused += 1;
                }
                let found = EditLog::read(&fs, dir(), KIND).unwrap().unwrap();
                assert_eq!(found.edits.last().unwrap_or(&found.snapshot), &edit, "{room}");
            }
            assert_eq!(refused == 0, is_enough, "{room}: {refused}");
            assert!(log.number > 2);
            reopened(&fs);
        }
    }

    #[test]
    fn an_edit_is_done_though_there_is_no_space_to_note_that_it_was_synced() {
        let fs = MemoryFs::new();
        fs.create_dir(dir()).unwrap();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let mut log = EditLog::create(Arc::new(faults.clone()), dir(), KIND, 7, b"first").unwrap();
        for number in 0..20_u8 {
            let fault = Fault::new(Operation::Write, Effect::Fail(Errno::Raw(28)));
            faults.arm(Fault { after: 1, ..fault });
            log.append(&[number], Vec::new).unwrap();
            assert_eq!(faults.fired(), u64::from(number) + 1);
            let found = EditLog::read(&fs, dir(), KIND).unwrap().unwrap();
            assert_eq!(found.edits.last(), Some(&vec![number]));
        }
        log.append(b"last", Vec::new).unwrap();
        assert_eq!(reopened(&fs).0.edits.len(), 21);
    }

    #[test]
    fn edits_go_on_after_a_new_file_could_not_be_made() {
        for operation in [Operation::Create, Operation::Write, Operation::Sync] {
            let fs = MemoryFs::new();
            fs.create_dir(dir()).unwrap();
            let faults = FaultFs::new(Arc::new(fs.clone()));
            let mut log =
                EditLog::create(Arc::new(faults.clone()), dir(), KIND, 7, b"first").unwrap();
            for errno in [5, 24, 28] {
                let fault = Fault::new(operation, Effect::Fail(Errno::Raw(errno)));
                faults.arm(Fault { name_contains: ".tmp".into(), ..fault });
            }
            let mut refused = 0;
            for number in 0..100_usize {
                let edit = [number as u8; 1000];
                while let Err(error) = log.append(&edit, || edit.to_vec()) {
                    assert!(matches!(error, AppendError::Refused(_)), "{operation}: {error:?}");
                    refused += 1;
                }
                let found = EditLog::read(&fs, dir(), KIND).unwrap().unwrap();
                assert_eq!(found.edits.last().unwrap_or(&found.snapshot), &edit, "{operation}");
            }
            assert_eq!((refused, log.number), (3, 2), "{operation}");
            reopened(&fs);
            assert_eq!(fs.list(dir()).unwrap().len(), 1, "{operation}");
        }
    }

    #[test]
    fn no_power_cut_loses_an_edit() {
        let fs = MemoryFs::traced();
        fs.create_dir(dir()).unwrap();
        let snapshot = |number: usize| number.to_le_bytes().repeat(100);
        let mut log = EditLog::create(Arc::new(fs.clone()), dir(), KIND, 7, &snapshot(0)).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        let mut safe = vec![fs.operations()];
        for number in 1..60_usize {
            log.append(&number.to_le_bytes().repeat(500), || snapshot(number)).unwrap();
            safe.push(fs.operations());
        }
        assert!(log.number > 1, "there was no new file");
        for at in safe[0]..=fs.operations() {
            let acknowledged = safe.partition_point(|&when| when <= at) - 1;
            let mut cuts = vec![PowerCut::KeepAll, PowerCut::DropUnsynced];
            for single in 0..fs.unsynced(at) {
                cuts.extend([PowerCut::KeepOnly(single), PowerCut::DropOnly(single)]);
            }
            cuts.extend((0..4).map(|seed| PowerCut::Random(seed + 10 * at as u64)));
            for cut in cuts {
                let image = fs.image(at, cut);
                let (found, mut log) = reopened(&image);
                let recovered = last(&found);
                assert!(recovered == acknowledged || recovered == acknowledged + 1, "{cut:?}");
                log.append(&77_usize.to_le_bytes(), || snapshot(77)).unwrap();
                assert_eq!(last(&reopened(&image).0), 77);
            }
        }
    }

    #[test]
    fn what_follows_a_new_file_whose_name_was_lost_is_safe() {
        let fs = MemoryFs::traced();
        fs.create_dir(dir()).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        fs.lose_dir_sync_after(1, Errno::Raw(5));
        let numbers = |number: usize| number.to_le_bytes().repeat(500);
        let mut log = EditLog::create(Arc::new(fs.clone()), dir(), KIND, 7, &numbers(0)).unwrap();
        let append = |number| log.append(&numbers(number), || numbers(number)).err();
        let unknown = (1..100).find_map(append).unwrap();
        assert!(matches!(unknown, AppendError::Unknown(_)), "{unknown:?}");
        assert_eq!((fs.lost_syncs(), fs.list(dir()).unwrap().len()), (1, 2));
        // Who opens it sees the new file.
        let (found, mut log) = reopened(&fs);
        assert_eq!((found.number, log.number), (2, 2));
        log.append(&numbers(1000), Vec::new).unwrap();
        let at = fs.operations();
        let mut cuts = vec![PowerCut::KeepAll, PowerCut::DropUnsynced];
        for single in 0..fs.unsynced(at) {
            cuts.extend([PowerCut::KeepAlone(single), PowerCut::DropAlone(single)]);
        }
        cuts.extend((0..20).map(PowerCut::Random));
        for cut in cuts {
            let found = EditLog::read(&fs.image(at, cut), dir(), KIND).unwrap();
            assert_eq!(found.map(|found| last(&found)), Some(1000), "{cut:?}");
        }
    }

    #[test]
    fn only_what_was_not_synced_may_be_missing() {
        let fs = MemoryFs::new();
        let mut log = created(&fs);
        log.append(b"one", Vec::new).unwrap();
        log.append(b"two", Vec::new).unwrap();
        let path = path(dir(), KIND.name, 1);
        let bytes = fs.files().remove(0).1;
        for len in 0..bytes.len() {
            let fork = fs.fork();
            fork.write_file(&path, &bytes[..len]).unwrap();
            EditLog::read(&fork, dir(), KIND).unwrap_err();
        }
        for at in 0..bytes.len() {
            let fork = fs.fork();
            fork.corrupt(&path, at as u64, 0x10).unwrap();
            EditLog::read(&fork, dir(), KIND).unwrap_err();
        }
        // An edit that is torn behind the watermark is cut off.
        let file = fs.open(&path, Access::Write, Layer::Positional).unwrap();
        file.write_at(bytes.len() as u64, &bytes[FRONT..FRONT + 20]).unwrap();
        let (found, _) = reopened(&fs);
        assert_eq!(found.edits, [b"one", b"two"]);
        assert_eq!(fs.files().remove(0).1, bytes);
    }
}
