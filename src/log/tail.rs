//! The tail: the newest bytes of the log, in a small mapped file, so that handing a record to the kernel is a copy of
//! memory and segments are written with few large calls.
//!
//! The file `tail.log` is
//!
//! ```text
//! offset  size
//!      0    64  header
//!     64  64 Ki  bytes of a segment, from the offset that the header says on
//!  65600    64  the header again
//! ```
//! and its header
//!
//! ```text
//! offset  size
//!      0     8  magic "TBD-TAIL"
//!      8     4  format version
//!     12     4  zero
//!     16     8  identity of the database
//!     24     8  identity of the segment
//!     32     8  offset of the bytes in the segment
//!     40    20  zero
//!     60     4  checksum of bytes 0..60, bound to (identity of the database, 0)
//! ```
//!
//! It is filled in rounds. A round is in the segment before the next one is begun, so that what the file holds is either
//! there too or follows it. It outlives the process, not the system: it is never synced, and whoever syncs writes the
//! round to the segment first. So after a power loss it may hold any mixture of rounds. That is no harm: records are
//! bound to the segment and to their offset in it, and what the segment has itself counts. Recovery writes what it took
//! to the segments, then removes the tail and syncs the directory, before anything else is appended: so no tail has
//! records of a past that the log has left.
//!
//! Thread safety: as the [writer](super::Writer) it belongs to.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::record::{self, Record};
use super::segment::{SEGMENT_HEADER, Segment};
use crate::base::{View, checksum};
use crate::error::{Error, Result};
use crate::vfs::{Access, File, Fs, Hint, Layer, remove_leftover};

pub(super) const NAME: &str = "tail.log";
const MAGIC: [u8; 8] = *b"TBD-TAIL";
const FORMAT_VERSION: u32 = 1;
const HEADER: usize = 64;
/// How many bytes a round has.
const ROOM: usize = 64 << 10;
/// Where the second header is.
const SECOND: u64 = (HEADER + ROOM) as u64;

/// The tail under the pen.
#[derive(Debug)]
pub(super) struct Tail {
    file: Arc<dyn File>,
    database: u64,
}

impl Tail {
    /// Makes a new one; what was there must have been removed.
    pub(super) fn create(fs: &dyn Fs, dir: &Path, database: u64) -> Result<Self> {
        let file = fs.create(&path(dir), Layer::Mmap)?;
        let len = SECOND + HEADER as u64;
        if let Err(error) = file.allocate(len) {
            drop(file);
            remove(fs, dir)?;
            return Err(error);
        }
        file.advise(0..len, Hint::WillWrite);
        Ok(Self { file, database })
    }

    pub(super) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Takes what is new of `round`, the bytes of `segment` from `start` on, of which it has the first `noted`. False if
    /// there is no room for them.
    #[inline]
    pub(super) fn note(
        &mut self,
        segment: &Segment,
        start: u64,
        round: &[u8],
        noted: usize,
    ) -> Result<bool> {
        if round.len() > ROOM {
            return Ok(false);
        }
        if noted == 0 {
            let header = Header { database: self.database, segment: segment.identity, start };
            let bytes = header.bytes();
            self.file.write_at(0, &bytes)?;
            self.file.write_at(SECOND, &bytes)?;
        }
        self.file.write_at((HEADER + noted) as u64, &round[noted..])?;
        Ok(true)
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Whether a file of the log's directory is the tail.
pub(super) fn is_tail(name: &str) -> bool {
    name == NAME
}

/// Removes the tail, if there is one: all it has is in the segments.
pub(super) fn remove(fs: &dyn Fs, dir: &Path) -> Result<()> {
    remove_leftover(fs, &path(dir))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    database: u64,
    segment: u64,
    start: u64,
}

impl Header {
    fn bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.database.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.segment.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.start.to_le_bytes());
        let sum = checksum::bound(self.database, 0, &bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The header in `bytes`, if it is whole.
    fn read(path: &Path, bytes: &[u8], database: u64) -> Result<Option<Self>> {
        let Some(bytes) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let sum = checksum::bound(word(16), 0, &bytes[..60]);
        if bytes[..8] != MAGIC || !checksum::matches((word(56) >> 32) as u32, sum) {
            return Ok(None);
        }
        if word(16) != database {
            let what = "this tail of a log belongs to another database";
            return Err(Error::corruption(path, 16, what));
        }
        let found = word(8) as u32;
        if found > FORMAT_VERSION {
            let file = path.to_path_buf();
            return Err(Error::NewerFormat { file, found, supported: FORMAT_VERSION });
        }
        Ok(Some(Self { database, segment: word(24), start: word(32) }))
    }
}

/// A tail as it was left.
#[derive(Debug)]
pub(super) struct Left {
    header: Header,
    bytes: Vec<u8>,
}

impl Left {
    /// Reads the tail in `dir`; `None` if there is none, or one without a whole header.
    pub(super) fn read(fs: &dyn Fs, dir: &Path, database: u64) -> Result<Option<Self>> {
        let path = path(dir);
        let file = match fs.open(&path, Access::Read, Layer::Positional) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            file => file?,
        };
        let len = file.len()?.min(SECOND + HEADER as u64);
        let mut bytes = vec![0; len as usize];
        file.read_at(0, &mut bytes)?;
        // If they differ, the process was killed between them, or one is damaged: the first one is then newer or damaged.
        let headers = [&bytes[..], bytes.get(SECOND as usize..).unwrap_or_default()];
        let whole = headers.into_iter().map(|header| Header::read(&path, header, database));
        let Some(header) = whole.collect::<Result<Vec<_>>>()?.into_iter().flatten().next() else {
            return Ok(None);
        };
        bytes.truncate(SECOND as usize);
        bytes.drain(..HEADER);
        Ok(Some(Self { header, bytes }))
    }

    /// Whether it is of the segment with `identity`.
    pub(super) fn is_of(&self, identity: u64) -> bool {
        self.header.segment == identity
    }

    /// The bytes of its segment, whose file has `written`, with the records that only the tail has. Nothing else of it
    /// counts: between them there may be remains of other rounds.
    pub(super) fn complete(&self, written: View) -> View {
        let Header { segment: identity, start, .. } = self.header;
        if start < SEGMENT_HEADER || start >= written.len() as u64 {
            return written;
        }
        let start = start as usize;
        let len = self.bytes.len().min(written.len() - start);
        let mut bytes = written.to_vec();
        // Records are valid only at their offset in the segment.
        let mut shown = written[..start].to_vec();
        shown.extend_from_slice(&self.bytes[..len]);
        record::traces(&shown, start, identity, |offset, record| {
            let range = offset..offset + record.map_or(0, Record::len);
            if record::parse(&written, offset, identity).is_none() {
                bytes[range.clone()].copy_from_slice(&shown[range]);
            }
        });
        bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::MemoryFs;

    const DIR: &str = "/log";

    fn left(fs: &MemoryFs) -> Option<Left> {
        Left::read(fs, DIR.as_ref(), 7).unwrap()
    }

    fn round(records: &[&[u8]], identity: u64, start: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for body in records {
            let at = record::begin(&mut bytes);
            bytes.extend_from_slice(body);
            let offset = start + at as u64;
            record::seal(&mut bytes, at, record::RecordKind::Write, 1, identity, offset);
        }
        bytes
    }

    #[test]
    fn it_completes_the_segment_it_belongs_to_and_no_other() {
        let fs = MemoryFs::new();
        fs.create_dir(DIR.as_ref()).unwrap();
        assert!(left(&fs).is_none());
        let mut tail = Tail::create(&fs, DIR.as_ref(), 7).unwrap();
        assert!(left(&fs).is_none(), "nothing was noted");
        let file = fs.create(&Path::new(DIR).join("000001.log"), Layer::Positional).unwrap();
        let segment = Segment { number: 1, identity: 9, capacity: 1000, file };
        let bytes = round(&[b"one", b"two"], 9, 100);
        assert!(tail.note(&segment, 100, &bytes[..27], 0).unwrap());
        assert!(tail.note(&segment, 100, &bytes, 27).unwrap());
        assert!(!tail.note(&segment, 100, &vec![0; ROOM + 1], 27).unwrap());

        let written = || View::from(vec![5; 1000]);
        let found = left(&fs).unwrap();
        let whole = found.complete(written());
        assert_eq!(whole[100..100 + bytes.len()], bytes);
        assert!(whole[..100].iter().chain(&whole[100 + bytes.len()..]).all(|&byte| byte == 5));
        assert!(found.is_of(9) && !found.is_of(8));
        // What does not fit any more is left out.
        assert_eq!(found.complete(written().slice(0..130))[100..127], bytes[..27]);
        assert_eq!(found.complete(written().slice(0..99)).len(), 99);
        let error = Left::read(&fs, DIR.as_ref(), 8).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Corruption);

        // Behind damage records are still seen, so that recovery can tell what is lost.
        let path = path(DIR.as_ref());
        fs.corrupt(&path, 64 + 26, 1).unwrap();
        let damaged = left(&fs).unwrap().complete(written());
        assert_eq!(damaged[127..100 + bytes.len()], bytes[27..]);
        // Either header is enough.
        fs.corrupt(&path, 33, 1).unwrap();
        assert!(left(&fs).is_some());
        fs.corrupt(&path, SECOND + 61, 1).unwrap();
        assert!(left(&fs).is_none());
        remove(&fs, DIR.as_ref()).unwrap();
        remove(&fs, DIR.as_ref()).unwrap();
    }

    #[test]
    fn what_the_segment_has_is_not_overwritten_by_remains() {
        let fs = MemoryFs::new();
        fs.create_dir(DIR.as_ref()).unwrap();
        let mut tail = Tail::create(&fs, DIR.as_ref(), 7).unwrap();
        let file = fs.create(&Path::new(DIR).join("000001.log"), Layer::Positional).unwrap();
        let segment = Segment { number: 1, identity: 9, capacity: 1000, file };
        let bytes = round(&[b"one", b"two", b"three"], 9, 100);
        assert!(tail.note(&segment, 100, &bytes, 0).unwrap());
        // A sector of another round came between.
        fs.corrupt(&path(DIR.as_ref()), 64 + 30, 0xff).unwrap();
        let mut written = vec![0; 1000];
        written[100..100 + bytes.len()].copy_from_slice(&bytes);
        assert_eq!(*left(&fs).unwrap().complete(View::from(written.clone())), *written);
    }

    /// A mark in the tail has been overwritten in the segment by the record that came next.
    #[test]
    fn a_longer_record_of_the_segment_at_the_same_place_stays() {
        let fs = MemoryFs::new();
        fs.create_dir(DIR.as_ref()).unwrap();
        let mut tail = Tail::create(&fs, DIR.as_ref(), 7).unwrap();
        let file = fs.create(&Path::new(DIR).join("000001.log"), Layer::Positional).unwrap();
        let segment = Segment { number: 1, identity: 9, capacity: 1000, file };
        assert!(tail.note(&segment, 100, &round(&[b"mark"], 9, 100), 0).unwrap());
        let longer = round(&[&[1; 800]], 9, 100);
        let mut written = vec![0; 1000];
        written[100..100 + longer.len()].copy_from_slice(&longer);
        assert_eq!(*left(&fs).unwrap().complete(View::from(written.clone())), *written);
    }

    #[test]
    fn a_newer_format_is_refused() {
        let fs = MemoryFs::new();
        fs.create_dir(DIR.as_ref()).unwrap();
        let mut header = Header { database: 7, segment: 9, start: 64 }.bytes();
        header[8] += 1;
        let sum = checksum::bound(7, 0, &header[..60]);
        header[60..].copy_from_slice(&sum.to_le_bytes());
        fs.write_file(&path(DIR.as_ref()), &header).unwrap();
        let error = Left::read(&fs, DIR.as_ref(), 7).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::NewerFormat);
    }

    #[test]
    fn a_former_round_adds_nothing() {
        let fs = MemoryFs::new();
        fs.create_dir(DIR.as_ref()).unwrap();
        let mut tail = Tail::create(&fs, DIR.as_ref(), 7).unwrap();
        let file = fs.create(&Path::new(DIR).join("000001.log"), Layer::Positional).unwrap();
        let segment = Segment { number: 1, identity: 9, capacity: 1000, file };
        let first = round(&[b"one", b"two", b"three"], 9, 100);
        assert!(tail.note(&segment, 100, &first, 0).unwrap());
        let second = round(&[b"four"], 9, 500);
        assert!(tail.note(&segment, 500, &second, 0).unwrap());
        let whole = left(&fs).unwrap().complete(View::from(vec![5; 1000]));
        assert_eq!(whole[500..500 + second.len()], second);
        assert!(whole[500 + second.len()..].iter().all(|&byte| byte == 5));
    }
}
