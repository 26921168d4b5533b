//! The record: what every log of the library is made of.
//!
//! ```text
//! offset  size
//!      0     4  checksum: CRC-32C bound to (identity, offset of the record), over all that follows
//!      4     4  length of the payload
//!      8     8  identity of the file's present life
//!     16     8  sequence number << 8 | kind
//!     24     n  payload
//! ```
//! All numbers are little-endian. A record is valid only at the offset and in the file it was written
//! for.

use crate::base::{Seqno, checksum, key::MAX_SEQNO};
use crate::planted::{Bug, planted};

/// Bytes in front of the payload.
pub(crate) const HEADER: usize = 24;
/// What claims to be records, and is not, may cover a file so many times.
const MOST_CLAIMS: usize = 16;
/// The largest payload.
pub(crate) const MAX_PAYLOAD: u64 = u32::MAX as u64;

/// What a record is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// The writes of one batch; or one edit.
    Write = 1,
    /// Nothing but the news of what has been synced.
    Mark = 2,
    /// The first record of a segment: which segment comes before it.
    Link = 3,
    /// The first record of an edit log: the whole state before the edits.
    Snapshot = 4,
}

impl RecordKind {
    fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Write),
            2 => Some(Self::Mark),
            3 => Some(Self::Link),
            4 => Some(Self::Snapshot),
            _ => None,
        }
    }
}

/// A valid record as it lies in its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) seqno: Seqno,
    pub(crate) payload: &'a [u8],
}

impl Record<'_> {
    /// The bytes it takes in the file.
    pub(crate) fn len(&self) -> usize {
        HEADER + self.payload.len()
    }
}

/// Appends the room for a record's header; the payload follows, then [`seal`].
pub(crate) fn begin(buffer: &mut Vec<u8>) -> usize {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; HEADER]);
    start
}

/// Fills in the header of the record that begins at `start` of `buffer` and ends with it. The record
/// will lie at `offset` of the file with `identity`.
pub(crate) fn seal(
    buffer: &mut [u8],
    start: usize,
    kind: RecordKind,
    seqno: Seqno,
    identity: u64,
    offset: u64,
) {
    debug_assert!(seqno <= MAX_SEQNO);
    let record = &mut buffer[start..];
    let length = (record.len() - HEADER) as u32;
    record[4..8].copy_from_slice(&length.to_le_bytes());
    record[8..16].copy_from_slice(&identity.to_le_bytes());
    record[16..24].copy_from_slice(&(seqno << 8 | kind as u64).to_le_bytes());
    let sum = checksum::bound(identity, offset, &record[4..]);
    record[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The record at `offset` of a file whose bytes are `file`; `None` if there is no valid one.
pub(crate) fn parse(file: &[u8], offset: usize, identity: u64) -> Option<Record<'_>> {
    parse_part(file.get(offset..)?, offset as u64, identity)
}

/// The same of a file of which `bytes` are those from `offset` on.
pub(crate) fn parse_part(bytes: &[u8], offset: u64, identity: u64) -> Option<Record<'_>> {
    let header: &[u8; HEADER] = bytes.first_chunk()?;
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    if word(8) != identity {
        return None;
    }
    let length = (word(0) >> 32) as usize;
    let record = bytes.get(..HEADER.checked_add(length)?)?;
    let sum = checksum::bound(identity, offset, &record[4..]);
    if !checksum::matches(word(0) as u32, sum) && !planted(Bug::IgnoreRecordChecksum) {
        return None;
    }
    let kind = RecordKind::from_u8(word(16) as u8)?;
    Some(Record { kind, seqno: word(16) >> 8, payload: &record[HEADER..] })
}

/// The length of the record whose header `bytes` begin with, if it claims to be one of the file with `identity`.
pub(super) fn len_of_part(bytes: &[u8], identity: u64) -> Option<usize> {
    let header: &[u8; HEADER] = bytes.first_chunk()?;
    (header[8..16] == identity.to_le_bytes()).then(|| claimed_len(header))
}

/// What lies behind the end of the valid records of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remains {
    /// Bytes from the end of the valid records to the end of the last trace of a record of this life; 0
    /// if there is none.
    pub(crate) bytes: u64,
    /// Whether there is a later valid record for which `proves` holds; or there are more traces than there is time for.
    pub(crate) proof: bool,
}

/// Looks behind `end`, where the valid records of `file` stop, for traces of later records of the same
/// life. Cost: one pass over the rest of the file, and a checksum for each trace found.
pub(crate) fn remains(
    file: &[u8],
    end: usize,
    identity: u64,
    mut proves: impl FnMut(&Record<'_>) -> bool,
) -> Remains {
    let mut found = Remains { bytes: 0, proof: false };
    let are_all = traces(file, end, identity, |offset, record| {
        let past = offset + record.map_or(HEADER, Record::len);
        found.proof |= record.is_some_and(&mut proves);
        found.bytes = found.bytes.max((past.min(file.len()) - end) as u64);
    });
    found.proof |= !are_all;
    found
}

/// Shows to `visit` what has the identity where records have it, from `from` on: the offset, and the record if it is valid.
///
/// False if it gave up: what claims to be records, and is not, covers the file many times over. No crash leaves that, and
/// somebody who made it could have every byte checked once for each other one.
pub(super) fn traces(
    file: &[u8],
    from: usize,
    identity: u64,
    mut visit: impl FnMut(usize, Option<&Record<'_>>),
) -> bool {
    let pattern = identity.to_le_bytes();
    let mut at = from;
    let mut patience = MOST_CLAIMS.saturating_mul(file.len());
    while let Some(next) = find(file.get(at + 8..).unwrap_or_default(), pattern) {
        let offset = at + next;
        let record = parse(file, offset, identity);
        if record.is_none() {
            let Some(left) = patience.checked_sub(claimed(file, offset)) else { return false };
            patience = left;
        }
        visit(offset, record.as_ref());
        at = offset + record.map_or(1, |record| record.len());
    }
    true
}

/// The bytes whose checksum is looked at for the record that may be at `offset`.
fn claimed(file: &[u8], offset: usize) -> usize {
    let header = file.get(offset..).and_then(|rest| rest.first_chunk());
    let claimed = header.map_or(0, claimed_len);
    if claimed <= file.len() - offset { claimed } else { 0 }
}

/// How long the record with this header says that it is.
fn claimed_len(header: &[u8; HEADER]) -> usize {
    let payload = header[4..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    HEADER.saturating_add(payload as usize)
}

/// Where `pattern` first occurs in `bytes`.
fn find(bytes: &[u8], pattern: [u8; 8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let candidate = from + find_byte(bytes.get(from..)?, pattern[0])?;
        if *bytes.get(candidate..)?.first_chunk::<8>()? == pattern {
            return Some(candidate);
        }
        from = candidate + 1;
    }
}

/// Where `wanted` first occurs in `bytes`. What a segment has behind its end is mostly zeros: they are passed over in runs, each looked at without
/// branches.
fn find_byte(bytes: &[u8], wanted: u8) -> Option<usize> {
    const RUN: usize = 64;
    let has_it = |run: &[u8]| run.iter().fold(false, |found, &byte| found | (byte == wanted));
    let run = bytes.chunks(RUN).position(has_it)? * RUN;
    let within = bytes[run..].iter().position(|&byte| byte == wanted)?;
    Some(run + within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_with(records: &[(Seqno, &[u8])], identity: u64) -> Vec<u8> {
        let mut file = vec![0; 10];
        for (seqno, payload) in records {
            let start = begin(&mut file);
            file.extend_from_slice(payload);
            seal(&mut file, start, RecordKind::Write, *seqno, identity, start as u64);
        }
        file
    }

    #[test]
    fn a_pattern_is_found_wherever_it_is() {
        let pattern = *b"identity";
        for at in 0..200 {
            let mut bytes = vec![0; 300];
            // Its first byte is in front of it, too.
            bytes[at / 2] = pattern[0];
            bytes[at..at + 8].copy_from_slice(&pattern);
            bytes[250] = pattern[0];
            assert_eq!(find(&bytes, pattern), Some(at));
            bytes[at + 7] = 0;
            assert_eq!(find(&bytes, pattern), None);
        }
        assert_eq!(find(&pattern[..7], pattern), None);
        assert_eq!(find(&pattern, pattern), Some(0));
    }

    #[test]
    fn round_trip_and_every_flip_is_seen() {
        let mut file = file_with(&[(7, b"payload")], 99);
        let record = parse(&file, 10, 99).expect("valid");
        assert_eq!((record.seqno, record.payload), (7, &b"payload"[..]));
        assert!(parse(&file, 10, 98).is_none());
        for at in 10..file.len() {
            for bit in 0..8 {
                file[at] ^= 1 << bit;
                assert!(parse(&file, 10, 99).is_none(), "flip of bit {bit} at {at}");
                file[at] ^= 1 << bit;
            }
        }
        for len in 0..file.len() {
            assert!(parse(&file[..len], 10, 99).is_none());
        }
        let moved: Vec<u8> = [&[0], &file[..]].concat();
        assert!(parse(&moved, 11, 99).is_none(), "a record at another offset is not valid");
    }

    #[test]
    fn claims_upon_claims_are_damage() {
        let claim = |file: &mut Vec<u8>, length: u32| {
            file.extend_from_slice(&[0, 0, 0, 0]);
            file.extend_from_slice(&length.to_le_bytes());
            file.extend_from_slice(&99_u64.to_le_bytes());
        };
        for (length, is_damage) in [(8, false), (1000, true), (u32::MAX, false)] {
            let mut file = Vec::new();
            (0..1000).for_each(|_| claim(&mut file, length));
            let seen = remains(&file, 0, 99, |_| true);
            assert_eq!(seen.proof, is_damage, "{length}");
            assert!(seen.bytes > 0);
        }
    }

    #[test]
    fn remains_are_found_behind_damage() {
        let mut file = file_with(&[(1, b"one"), (2, b"two"), (3, b"three")], 99);
        let second = 10 + HEADER + 3;
        assert_eq!(remains(&file, file.len(), 99, |_| true), Remains { bytes: 0, proof: false });
        file[second + HEADER] ^= 1;
        let seen = remains(&file, second, 99, |record| record.seqno == 3);
        assert_eq!(seen, Remains { bytes: (file.len() - second) as u64, proof: true });
        assert!(!remains(&file, second, 99, |record| record.seqno == 4).proof);
        assert_eq!(remains(&file, second, 98, |_| true).bytes, 0);
    }
}
