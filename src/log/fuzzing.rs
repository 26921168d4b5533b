//! What fuzzers do with files of the log, and with edit logs: any bytes take the place of one, which is then recovered. It may be refused
//! and may have other writes; nobody may panic or go on for ever.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use super::edits::{self, EditKind};
use super::segment::{SEGMENT_HEADER, header, path};
use super::{EditLog, Log, Segments, Writer, tail};
use crate::base::View;
use crate::error::{ErrorKind, Result};
use crate::options::RecoveryMode;
use crate::vfs::{Access, Fs, Layer, MemoryFs};

const DIR: &str = "/log";
/// Of no catalog and no manifest.
const KIND: EditKind = EditKind { name: "state", version: 2 };
const DATABASE: u64 = 0x0123_4567_89ab_cdef;
/// Bytes of the segment that a tail completes.
const SEGMENT: usize = 1 << 10;

/// The number at byte `at`.
fn number(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|number| u64::from_le_bytes(*number))
}

/// A segment, whose header says which one it is. Shows what its records have to `visit`.
pub(crate) fn segment(bytes: &[u8], visit: impl FnMut(&[u8])) {
    let (Some(database), Some(number)) = (number(bytes, 16), number(bytes, 24)) else { return };
    let (fs, dir) = (MemoryFs::new(), Path::new(DIR));
    fs.write_file(&path(dir, number), bytes).expect("memory takes it");
    recovered(&fs, (database, number), bytes.len(), visit);
}

/// Recovers the log of a database from a segment on, once in each mode, which has no more bytes than that, and again what that has left.
fn recovered(
    fs: &MemoryFs,
    (database, number): (u64, u64),
    most_bytes: usize,
    mut visit: impl FnMut(&[u8]),
) {
    let dir = Path::new(DIR);
    for mode in [RecoveryMode::Strict, RecoveryMode::Tolerant] {
        let Ok(log) = Log::open(fs, dir, database, number, mode, |_| true) else { continue };
        let mut writes = 0;
        let seen = log.replay(fs, |write| {
            visit(write.body);
            writes += write.count;
            Ok(())
        });
        seen.expect("it has been read once");
        assert!(writes <= most_bytes as u64);
        assert!(log.found().end().end <= most_bytes as u64);
        log.sync(fs, dir).expect("memory takes it");
        let again = Log::open(fs, dir, database, number, mode, |_| true).expect("it was opened");
        assert_eq!(again.found().last, log.found().last);
    }
    let _ = Log::has_writes(fs, dir, database);
}

/// The tail of a log, with the segment that it is of if its header says the first one of the database here, in which nothing is written yet. It may be
/// shorter than one is. Shows what its records have to `visit`.
pub(crate) fn log_tail(bytes: &[u8], visit: impl FnMut(&[u8])) {
    let Some(database) = number(bytes, 16) else { return };
    let (fs, dir) = (MemoryFs::new(), Path::new(DIR));
    fs.write_file(&dir.join(tail::NAME), bytes).expect("memory takes it");
    if let Ok(Some(left)) = tail::Left::read(&fs, dir, database) {
        for len in [0, 64, 65, 100, SEGMENT] {
            let written = View::from(vec![0; len]);
            assert_eq!(left.complete(written).len(), len);
        }
    }
    fs.write_file(&path(dir, 1), &FIRST_SEGMENT).expect("memory takes it");
    recovered(&fs, (DATABASE, 1), SEGMENT, visit);
}

static FIRST_SEGMENT: LazyLock<Vec<u8>> =
    LazyLock::new(|| first_segment().expect("memory takes it"));

/// The first segment of a log without any writes, made short.
fn first_segment() -> Result<Vec<u8>> {
    let memory = MemoryFs::new();
    memory.create_dir(DIR.as_ref())?;
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let segments = Segments::new(fs, DIR.into(), DATABASE, Layer::Positional, 0, 1);
    Writer::start(Arc::new(segments))?;
    let file = memory.open(&path(DIR.as_ref(), 1), Access::Read, Layer::Positional)?;
    let mut bytes = vec![0; SEGMENT];
    file.read_at(0, &mut bytes)?;
    bytes[..SEGMENT_HEADER as usize].copy_from_slice(&header(DATABASE, 1, SEGMENT as u64));
    Ok(bytes)
}

/// An edit log, whose header says which file of it it is.
pub(crate) fn edit_log(bytes: &[u8]) {
    let Some(number) = number(bytes, 24) else { return };
    let (fs, dir) = (MemoryFs::new(), Path::new(DIR));
    fs.write_file(&edits::path(dir, KIND.name, number), bytes).expect("memory takes it");
    let fs: Arc<dyn Fs> = Arc::new(fs);
    let Ok(Some(found)) = EditLog::read(&*fs, dir, KIND) else { return };
    let size = found.snapshot.len() + found.edits.concat().len();
    assert!(size <= bytes.len());
    // What was read goes on.
    let append = || -> Result<()> {
        let mut log = EditLog::open(Arc::clone(&fs), dir, KIND, &found)?;
        log.append(b"one more", || b"all".to_vec())?;
        Ok(log.append(b"and another", || b"all".to_vec())?)
    };
    let appended = append();
    let again = EditLog::read(&*fs, dir, KIND).expect("whole").expect("it is there");
    match appended {
        Ok(()) => assert_eq!(again.edits.last().map(|edit| &edit[..]), Some(&b"and another"[..])),
        // There may be as many as there can be.
        Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
    }
}

/// Files as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::*;

    /// The length of a segment here.
    const CAPACITY: usize = 512;

    /// Writes records with these bodies, and gives all files.
    fn written(layer: Layer, bodies: &[&[u8]]) -> MemoryFs {
        let memory = MemoryFs::new();
        memory.create_dir(DIR.as_ref()).unwrap();
        let fs: Arc<dyn Fs> = Arc::new(memory.clone());
        let segments = Segments::new(fs, DIR.into(), DATABASE, layer, 0, 1);
        let mut writer = Writer::start(Arc::new(segments)).unwrap().with_tail();
        for (at, body) in bodies.iter().enumerate() {
            let first = writer.last() + 1;
            writer.append(first, 1 + at as u64 % 2, &[body]).unwrap();
            writer.flush().unwrap();
        }
        let files = memory.fork();
        writer.finish().unwrap();
        files
    }

    /// Segments with writes, made short.
    pub(crate) fn segments(bodies: &[&[u8]]) -> Vec<Vec<u8>> {
        let segment = |bodies: &[&[u8]]| {
            let fs = written(Layer::Positional, bodies);
            let file = fs.open(&path(DIR.as_ref(), 1), Access::Read, Layer::Positional).unwrap();
            let mut bytes = vec![0; CAPACITY];
            file.read_at(0, &mut bytes).unwrap();
            let header = header(DATABASE, 1, CAPACITY as u64);
            bytes[..SEGMENT_HEADER as usize].copy_from_slice(&header);
            bytes
        };
        (0..=bodies.len()).map(|count| segment(&bodies[..count])).collect()
    }

    /// Tails with a few records that have these bodies among them, cut off behind those.
    pub(crate) fn tails(bodies: &[&[u8]]) -> Vec<Vec<u8>> {
        let tail = |bodies: &[&[u8]]| {
            let fs = written(Layer::Mmap, bodies);
            let path = Path::new(DIR).join(tail::NAME);
            let file = fs.open(&path, Access::Read, Layer::Positional).unwrap();
            let mut bytes = vec![0; 400];
            file.read_at(0, &mut bytes).unwrap();
            bytes
        };
        let others = (1..=bodies.len()).map(|count| tail(&bodies[..count]));
        [tail(&[]), tail(&[b"one"]), tail(&[b"one", b"second", &[7; 100]])]
            .into_iter()
            .chain(others)
            .collect()
    }

    pub(crate) fn edit_logs() -> Vec<Vec<u8>> {
        let log = |version, edits: &[&[u8]]| {
            let fs = MemoryFs::new();
            fs.create_dir(DIR.as_ref()).unwrap();
            let files: Arc<dyn Fs> = Arc::new(fs.clone());
            let kind = EditKind { version, ..KIND };
            let mut log =
                EditLog::create(files, DIR.as_ref(), kind, DATABASE, b"snapshot").unwrap();
            edits.iter().for_each(|edit| log.append(edit, Vec::new).unwrap());
            fs.files().remove(0).1
        };
        vec![log(1, &[]), log(2, &[b"edit"]), log(2, &[b"", &[9; 100], b"third"])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_tail_has_is_recovered() {
        let tails = seeds::tails(&[b"body"]);
        let seen = |tail: &Vec<u8>| {
            let mut seen = 0;
            log_tail(tail, |_| seen += 1);
            seen
        };
        // Each record once in each mode: the first one has it written to the segment.
        assert_eq!(tails.iter().map(seen).collect::<Vec<_>>(), [0, 2, 6, 2]);
    }
}
