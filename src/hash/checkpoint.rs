//! Checkpoints of the index: what opening loads instead of reading all segments.
//!
//! `NNNNNN.index`:
//! ```text
//! offset  size
//!      0     8  magic "TBD-HIX\n"
//!      8     4  format version
//!     12     4  zero
//!     16     8  identity of the keyspace
//!     24     8  number of the file
//!     32     8  the last segment it covers
//!     40    20  zero
//!     60     4  checksum of bytes 0..60, bound to (identity of the file, 0)
//!     64        chunks
//! chunk := checksum u32 of the rest, bound to (identity of the file, offset of the chunk), up to 5900 entries
//! entry := bits 0..39 of the key's hash in 5 bytes, what the index knows of the record in 6 bytes
//! ```
//! It is written while writes go on, bucket by bucket. It holds what the index has of the segments it covers, all of
//! which were sealed when it was begun; what is written or moved meanwhile is in later segments, which opening
//! reads. It takes effect with an edit of the manifest that is made when all that was written until it was finished is
//! in files: what it leaves out because something newer superseded it is then not needed any more.

use std::path::PathBuf;
use std::sync::Arc;

use super::index::Entry;
use super::manifest::CheckpointMeta;
use super::segment::{HEADER, Home, check_header};
use crate::base::checksum;
use crate::error::{Error, Result};
use crate::planted::{Bug, planted};
use crate::throttle::Valve;
use crate::vfs::{Access, Appender, File, open_needed};

const MAGIC: [u8; 8] = *b"TBD-HIX\n";
const FORMAT_VERSION: u32 = 1;
/// Bytes of an entry.
pub(crate) const ENTRY: usize = 11;
const ENTRIES_IN_CHUNK: usize = 5900;
const SUM: usize = 4;
const CHUNK: usize = SUM + ENTRIES_IN_CHUNK * ENTRY;
/// The bits of a hash that are kept.
const HASH_BYTES: usize = 5;
const BUFFER: usize = 1 << 20;

/// The path of checkpoint `id`.
pub(crate) fn path(home: &Home, id: u64) -> PathBuf {
    home.dir.join(format!("{id:06}.index"))
}

/// Removes a checkpoint that is not needed any more.
pub(crate) fn remove(home: &Home, id: u64) {
    if let Err(error) = home.fs.remove(&path(home, id)) {
        log::warn!("a checkpoint that is not needed any more stays: {error}");
    }
}

/// The header of a checkpoint.
pub(super) fn header(home: &Home, id: u64, covers: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&home.identity.to_le_bytes());
    header[24..32].copy_from_slice(&id.to_le_bytes());
    header[32..40].copy_from_slice(&covers.to_le_bytes());
    let sum = checksum::bound(home.identity_of(id), 0, &header[..60]);
    header[60..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Writes a checkpoint.
pub(crate) struct CheckpointWriter {
    out: Appender,
    identity: u64,
    id: u64,
    covers: u64,
    chunk: Vec<u8>,
}

impl CheckpointWriter {
    /// A new file, which covers segments up to `covers`. Its writes wait for `valve`.
    pub(crate) fn create(
        home: &Home,
        id: u64,
        covers: u64,
        valve: Option<&Arc<Valve>>,
    ) -> Result<Self> {
        let file: Arc<dyn File> = home.fs.create(&path(home, id), home.layer_for_writing())?;
        let file = Valve::over_if(valve, file);
        let mut out = Appender::new(file, BUFFER);
        out.append(&header(home, id, covers))?;
        let identity = home.identity_of(id);
        Ok(Self { out, identity, id, covers, chunk: vec![0; SUM] })
    }

    /// Adds an entry; of its hash bits 0 to 39 count.
    pub(crate) fn add(&mut self, hash: u64, entry: Entry) -> Result<()> {
        self.chunk.extend_from_slice(&hash.to_le_bytes()[..HASH_BYTES]);
        self.chunk.extend_from_slice(&entry.packed().to_le_bytes()[..ENTRY - HASH_BYTES]);
        if self.chunk.len() == CHUNK { self.write_chunk() } else { Ok(()) }
    }

    fn write_chunk(&mut self) -> Result<()> {
        let sum = checksum::bound(self.identity, self.out.position(), &self.chunk[SUM..]);
        self.chunk[..SUM].copy_from_slice(&sum.to_le_bytes());
        self.out.append(&self.chunk)?;
        self.chunk.truncate(SUM);
        Ok(())
    }

    /// Writes the rest and makes the file safe from power loss.
    pub(crate) fn finish(mut self) -> Result<CheckpointMeta> {
        if planted(Bug::CheckpointLosesEntry) && self.chunk.len() > SUM + ENTRY {
            self.chunk.truncate(self.chunk.len() - ENTRY);
        }
        if self.chunk.len() > SUM {
            self.write_chunk()?;
        }
        let len = self.out.position();
        self.out.finish()?;
        Ok(CheckpointMeta { id: self.id, len, covers: self.covers })
    }
}

/// A checkpoint to be read.
pub(crate) struct Checkpoint {
    path: PathBuf,
    file: Arc<dyn File>,
    identity: u64,
    len: u64,
}

impl Checkpoint {
    /// Opens the file, and checks its length and its header.
    pub(crate) fn open(home: &Home, meta: CheckpointMeta) -> Result<Self> {
        let path = path(home, meta.id);
        let file = open_needed(&*home.fs, &path, Access::Read, home.layer())?;
        let len = file.len()?;
        if len != meta.len || len < HEADER as u64 {
            let what = format!("the checkpoint has {len} bytes and should have {}", meta.len);
            return Err(Error::corruption(&path, len.min(meta.len), what));
        }
        check_header(&path, &*file, &header(home, meta.id, meta.covers))?;
        Ok(Self { path, file, identity: home.identity_of(meta.id), len })
    }

    /// How many entries it has.
    pub(crate) fn entries(&self) -> u64 {
        let body = self.len - HEADER as u64;
        let (whole, rest) = (body / CHUNK as u64, body % CHUNK as u64);
        whole * ENTRIES_IN_CHUNK as u64 + rest.saturating_sub(SUM as u64) / ENTRY as u64
    }

    /// Reads it, checks it, and hands out its entries with bits 0 to 39 of their hashes.
    pub(crate) fn load(&self, mut visit: impl FnMut(u64, Entry)) -> Result<()> {
        let damaged = |offset: u64, what: &str| Error::corruption(&self.path, offset, what);
        let mut at = HEADER as u64;
        while at < self.len {
            let end = (at + CHUNK as u64).min(self.len);
            let chunk = self.file.view(at..end)?;
            let (sum, entries) = chunk.split_at_checked(SUM).unwrap_or((&chunk, &[]));
            let (entries, rest) = entries.as_chunks::<ENTRY>();
            let expected = checksum::bound(self.identity, at, chunk.get(SUM..).unwrap_or(&[]));
            let is_right = checksum::matches(sum, &expected.to_le_bytes()[..]);
            if !is_right || !rest.is_empty() || entries.is_empty() {
                return Err(damaged(at, "the checksum of a part of the index does not match"));
            }
            for bytes in entries {
                let (hash, entry) = bytes.split_at(HASH_BYTES);
                let entry = Entry::from_packed(number(entry))
                    .ok_or_else(|| damaged(at, "the index has an entry that cannot be"))?;
                visit(number(hash), entry);
            }
            at = end;
        }
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    number[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(number)
}
