//! A status as bytes.
//!
//! ```text
//! file     := magic (8 bytes), checksum of the rest (4 bytes, little-endian), session, number, status
//! ```
//! Then every part in the order of its declaration in [`super`]: numbers as varints, durations in microseconds, text and keys
//! with their length in front, lists with their count, whether there is something as 0 or 1.
//!
//! The bytes are not trusted: whatever they are, decoding ends, and takes no more memory than they do, several times over.

use std::time::Duration;

use super::{ClaimStatus, JobStatus, KeyspaceStatus, LevelStatus, LsmStatus, Span, Status};
use crate::base::{checksum, varint};
use crate::events::JobKind;
use crate::options::EngineKind;
use crate::stats::{MemoryStats, WorkStats};

/// The first bytes; the last one is the version.
const MAGIC: [u8; 8] = *b"TBWATCH\x01";
/// What the checksum is bound to.
const IDENTITY: u64 = u64::from_le_bytes(MAGIC);

/// More levels than a tree has.
const MOST_LEVELS: usize = 64;

/// Who published a status, and which of theirs it is.
pub(super) type Stamp = (u64, u64);

/// The bytes of a file.
pub(super) fn encode(stamp: Stamp, status: &Status) -> Vec<u8> {
    let mut body = Writer(Vec::new());
    body.number(stamp.0);
    body.number(stamp.1);
    body.status(status);
    let sum = checksum::bound(IDENTITY, 0, &body.0);
    [&MAGIC[..], &sum.to_le_bytes(), &body.0].concat()
}

/// What a file says; `None` if it is not one of these.
pub(super) fn decode(bytes: &[u8]) -> Option<(Stamp, Status)> {
    let (sum, body) = bytes.strip_prefix(&MAGIC)?.split_first_chunk::<4>()?;
    if !checksum::matches(u32::from_le_bytes(*sum), checksum::bound(IDENTITY, 0, body)) {
        return None;
    }
    decode_body(body)
}

/// The same of what is behind the checksum.
pub(super) fn decode_body(body: &[u8]) -> Option<(Stamp, Status)> {
    let mut body = Reader(body);
    let stamp = (body.number()?, body.number()?);
    let status = body.status()?;
    body.0.is_empty().then_some((stamp, status))
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        varint::put(&mut self.0, number);
    }

    fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|&number| self.number(number));
    }

    fn duration(&mut self, duration: Duration) {
        self.number(duration.as_micros() as u64);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        varint::put_prefixed(&mut self.0, bytes);
    }

    fn list<T>(&mut self, list: &[T], each: fn(&mut Self, &T)) {
        self.number(list.len() as u64);
        list.iter().for_each(|item| each(self, item));
    }

    fn status(&mut self, status: &Status) {
        self.number(status.process.into());
        self.duration(status.open_for);
        let Status { last_seqno, taken_bytes, read_bytes, written_bytes, pressure, .. } = *status;
        self.numbers(&[last_seqno, taken_bytes, read_bytes, written_bytes, pressure.into()]);
        self.number(status.is_poisoned.into());
        let MemoryStats { budget, memtables, block_cache, tables, indexes, page_caches } =
            status.memory;
        self.numbers(&[budget, memtables, block_cache, tables, indexes, page_caches]);
        self.number(status.memtables_limit);
        self.list(&status.keyspaces, Self::keyspace);
        self.list(&status.jobs, Self::job);
    }

    fn keyspace(&mut self, keyspace: &KeyspaceStatus) {
        self.bytes(keyspace.name.as_bytes());
        self.bytes(keyspace.engine.to_string().as_bytes());
        let KeyspaceStatus { disk_bytes, memory_bytes, flushes, compactions, .. } = *keyspace;
        self.numbers(&[disk_bytes, memory_bytes, flushes, compactions]);
        let WorkStats { flushed_bytes, compaction_read_bytes, compaction_written_bytes } =
            keyspace.work;
        self.numbers(&[flushed_bytes, compaction_read_bytes, compaction_written_bytes]);
        self.number(keyspace.pressure.into());
        self.list(keyspace.tree.as_slice(), Self::tree);
    }

    fn tree(&mut self, tree: &LsmStatus) {
        let LsmStatus { frozen, frozen_bytes, excess_runs, debt_bytes, is_due, .. } = *tree;
        self.numbers(&[frozen, frozen_bytes, excess_runs, debt_bytes, is_due.into()]);
        self.list(&tree.levels, Self::level);
        self.list(&tree.claims, Self::claim);
    }

    fn level(&mut self, level: &LevelStatus) {
        self.numbers(&[level.level.into(), level.runs]);
        self.list(&level.spans, Self::span);
    }

    fn span(&mut self, span: &Span) {
        self.bytes(&span.smallest);
        self.bytes(&span.largest);
        self.numbers(&[span.tables, span.bytes]);
    }

    fn claim(&mut self, claim: &ClaimStatus) {
        self.numbers(&[claim.claim, claim.level.into()]);
        self.bytes(&claim.smallest);
        self.bytes(&claim.largest);
    }

    fn job(&mut self, job: &JobStatus) {
        self.number(job.number);
        self.bytes(job.keyspace.as_bytes());
        self.bytes(job.kind.name().as_bytes());
        self.list(job.levels.as_slice(), |out, levels| {
            out.numbers(&[levels.0.into(), levels.1.into()]);
        });
        self.number(job.bytes);
        self.duration(job.running_for);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        varint::take(&mut self.0)
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn duration(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_micros)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        varint::take_bytes(&mut self.0, len)
    }

    fn key(&mut self) -> Option<Vec<u8>> {
        self.bytes().map(<[u8]>::to_vec)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// Every item takes a byte at least, so the bytes bound their number.
    fn list<T>(&mut self, each: fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| each(self)).collect()
    }

    /// Something, or nothing.
    fn option<T>(&mut self, each: fn(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { each(self).map(Some) } else { Some(None) }
    }

    fn status(&mut self) -> Option<Status> {
        Some(Status {
            process: self.small()?,
            open_for: self.duration()?,
            last_seqno: self.number()?,
            taken_bytes: self.number()?,
            read_bytes: self.number()?,
            written_bytes: self.number()?,
            pressure: self.small()?,
            is_poisoned: self.flag()?,
            memory: MemoryStats {
                budget: self.number()?,
                memtables: self.number()?,
                block_cache: self.number()?,
                tables: self.number()?,
                indexes: self.number()?,
                page_caches: self.number()?,
            },
            memtables_limit: self.number()?,
            keyspaces: self.list(Self::keyspace)?,
            jobs: self.list(Self::job)?,
        })
    }

    fn keyspace(&mut self) -> Option<KeyspaceStatus> {
        Some(KeyspaceStatus {
            name: self.text()?.to_owned(),
            engine: self.text()?.parse::<EngineKind>().ok()?,
            disk_bytes: self.number()?,
            memory_bytes: self.number()?,
            flushes: self.number()?,
            compactions: self.number()?,
            work: WorkStats {
                flushed_bytes: self.number()?,
                compaction_read_bytes: self.number()?,
                compaction_written_bytes: self.number()?,
            },
            pressure: self.small()?,
            tree: self.option(Self::tree)?,
        })
    }

    fn tree(&mut self) -> Option<LsmStatus> {
        Some(LsmStatus {
            frozen: self.number()?,
            frozen_bytes: self.number()?,
            excess_runs: self.number()?,
            debt_bytes: self.number()?,
            is_due: self.flag()?,
            levels: self.list(Self::level).filter(|levels| are_levels(levels))?,
            claims: self.list(Self::claim)?,
        })
    }

    fn level(&mut self) -> Option<LevelStatus> {
        let (level, runs) = (self.small()?, self.number()?);
        Some(LevelStatus { level, runs, spans: self.list(Self::span)? })
    }

    fn span(&mut self) -> Option<Span> {
        let (smallest, largest) = (self.key()?, self.key()?);
        Some(Span { smallest, largest, tables: self.number()?, bytes: self.number()? })
    }

    fn claim(&mut self) -> Option<ClaimStatus> {
        let (claim, level) = (self.number()?, self.small()?);
        Some(ClaimStatus { claim, level, smallest: self.key()?, largest: self.key()? })
    }

    fn job(&mut self) -> Option<JobStatus> {
        Some(JobStatus {
            number: self.number()?,
            keyspace: self.text()?.to_owned(),
            kind: {
                let name = self.text()?;
                JobKind::ALL.into_iter().find(|kind| kind.name() == name)?
            },
            levels: self.option(|levels| Some((levels.small()?, levels.small()?)))?,
            bytes: self.number()?,
            running_for: self.duration()?,
        })
    }
}
/// Whether these may be the levels of a tree: not many, and in their order.
fn are_levels(levels: &[LevelStatus]) -> bool {
    levels.len() <= MOST_LEVELS && levels.is_sorted_by(|a, b| a.level < b.level)
}
