//! How writes are encoded: in a batch, and as the body of a log record.
//!
//! ```text
//! write := kind u8 (0 tombstone, 1 put), keyspace id varint, key length varint, key,
//!          and for a put: value length varint, value
//!        | 4 u8 (all keys of a range deleted), keyspace id varint, key length varint, first key,
//!          length + 1 varint of the key before which it ends, that key; or 0 if it has no end
//! load  := 2 u8, keyspace id varint, length varint, what the engine says of it
//! clear := 3 u8, keyspace id varint
//! ```
//! Keys and values are as long as they may be, and ends of ranges one byte longer at most. A batch has writes only. A range that is deleted ends behind its first key. What was loaded is not in the log: it is in files of the engine, which finds them by what it
//! said. A clear takes away all that was written to the keyspace before it.

use crate::base::{Kind, Seqno, Span, varint};
use crate::contract::{Engine, Write};
use crate::error::Result;
use crate::options::{MAX_KEY_LEN, MAX_VALUE_LEN};

/// The kind of a load.
const LOAD: u8 = 2;
/// The kind of a clear.
const CLEAR: u8 = 3;
/// The kind of a write that deletes a range of keys.
const DELETE_RANGE: u8 = 4;

/// What an entry takes in a memtable besides key and value, at most.
const ENTRY_WEIGHT: usize = 160;
/// What a range that is deleted takes there, about, besides its ends.
const RANGE_WEIGHT: usize = 1024;

/// One decoded write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) keyspace: u32,
    pub(crate) change: Change<'a>,
}

/// What a write does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change<'a> {
    /// To one key. The value is empty for a tombstone.
    Key { kind: Kind, key: &'a [u8], value: &'a [u8] },
    /// Deletes all keys of a range.
    DeleteRange(Span<'a>),
}

impl Change<'_> {
    /// The memory that it takes in a memtable, at most.
    pub(crate) fn weight(self) -> usize {
        match self {
            Self::Key { key, value, .. } => key.len() + value.len() + ENTRY_WEIGHT,
            Self::DeleteRange(Span { start, end }) => {
                start.len() + end.map_or(0, <[u8]>::len) + RANGE_WEIGHT
            }
        }
    }

    /// Whether nothing in it is longer than it may be: engines count on that.
    fn is_short_enough(self) -> bool {
        match self {
            Self::Key { key, value, .. } => {
                key.len() <= MAX_KEY_LEN && value.len() <= MAX_VALUE_LEN
            }
            // Behind the largest key comes one byte more.
            Self::DeleteRange(Span { start, end }) => {
                start.len().max(end.map_or(0, <[u8]>::len)) <= MAX_KEY_LEN + 1
            }
        }
    }

    /// Has an engine take it as the write `seqno`, between others of its batch.
    ///
    /// # Errors
    /// `Unsupported` if the engine takes no such writes.
    #[inline]
    pub(crate) fn apply(self, engine: &dyn Engine, seqno: Seqno) -> Result<()> {
        match self {
            Self::Key { kind, key, value } => engine.apply(&Write { seqno, kind, key, value }),
            Self::DeleteRange(span) => engine.as_delete_range()?.delete_range(span, seqno),
        }
        Ok(())
    }
}

/// Appends all of the entry that stands before the value.
pub(crate) fn put_head(out: &mut Vec<u8>, keyspace: u32, kind: Kind, key: &[u8], value_len: usize) {
    out.push(kind as u8);
    varint::put(out, u64::from(keyspace));
    varint::put_prefixed(out, key);
    if kind == Kind::Put {
        varint::put(out, value_len as u64);
    }
}

/// Reads the entry at the front of `bytes` and moves `bytes` past it; `None` if there is no valid one.
pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Option<Entry<'a>> {
    let (&kind, rest) = bytes.split_first()?;
    *bytes = rest;
    let keyspace = varint::take(bytes)?.try_into().ok()?;
    let key = varint::take_prefixed(bytes)?;
    let change = if kind == DELETE_RANGE {
        Change::DeleteRange(take_span(key, bytes)?)
    } else {
        let kind = Kind::from_u8(kind)?;
        let value = if kind == Kind::Put { varint::take_prefixed(bytes)? } else { &[] };
        Change::Key { kind, key, value }
    };
    change.is_short_enough().then_some(Entry { keyspace, change })
}

/// Appends a write that deletes the keys of `span`.
pub(crate) fn put_delete_range(out: &mut Vec<u8>, keyspace: u32, span: Span<'_>) {
    out.push(DELETE_RANGE);
    varint::put(out, u64::from(keyspace));
    varint::put_prefixed(out, span.start);
    varint::put(out, span.end.map_or(0, |end| end.len() as u64 + 1));
    out.extend_from_slice(span.end.unwrap_or_default());
}

/// Reads the end of a range whose first key has been read.
fn take_span<'a>(start: &'a [u8], bytes: &mut &'a [u8]) -> Option<Span<'a>> {
    let end = match varint::take(bytes)?.checked_sub(1) {
        Some(len) => {
            let (end, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
            *bytes = rest;
            Some(end)
        }
        None => None,
    };
    Some(Span { start, end }).filter(|span| !span.is_empty())
}

/// What a log record has an entry for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Logged<'a> {
    Write(Entry<'a>),
    Load { keyspace: u32, described: &'a [u8] },
    Clear { keyspace: u32 },
}

impl Logged<'_> {
    pub(crate) fn keyspace(&self) -> u32 {
        match *self {
            Self::Write(Entry { keyspace, .. })
            | Self::Load { keyspace, .. }
            | Self::Clear { keyspace } => keyspace,
        }
    }
}

/// Appends the entry of a load.
pub(crate) fn put_load(out: &mut Vec<u8>, keyspace: u32, described: &[u8]) {
    out.push(LOAD);
    varint::put(out, u64::from(keyspace));
    varint::put_prefixed(out, described);
}

/// Appends the entry of a clear.
pub(crate) fn put_clear(out: &mut Vec<u8>, keyspace: u32) {
    out.push(CLEAR);
    varint::put(out, u64::from(keyspace));
}

/// Like [`take`], for what is in the log.
pub(crate) fn take_logged<'a>(bytes: &mut &'a [u8]) -> Option<Logged<'a>> {
    let Some((&kind @ (LOAD | CLEAR), rest)) = bytes.split_first() else {
        return take(bytes).map(Logged::Write);
    };
    *bytes = rest;
    let keyspace = varint::take(bytes)?.try_into().ok()?;
    Some(match kind {
        CLEAR => Logged::Clear { keyspace },
        _ => Logged::Load { keyspace, described: varint::take_prefixed(bytes)? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_in_the_log_and_in_no_batch() {
        let mut bytes = Vec::new();
        put_load(&mut bytes, 300, b"where");
        for cut in 0..bytes.len() {
            assert_eq!(take_logged(&mut &bytes[..cut]), None);
        }
        put_head(&mut bytes, 7, Kind::Delete, b"key", 0);
        assert_eq!(take(&mut &bytes[..]), None);
        let rest = &mut &bytes[..];
        assert_eq!(take_logged(rest), Some(Logged::Load { keyspace: 300, described: b"where" }));
        let write = take_logged(rest).unwrap();
        assert_eq!(write.keyspace(), 7);
        let change = Change::Key { kind: Kind::Delete, key: b"key", value: b"" };
        let entry = Entry { keyspace: 7, change };
        assert_eq!(write, Logged::Write(entry));
        assert!(rest.is_empty());
        assert_eq!(take_logged(&mut &[LOAD, 0xff, 0xff, 0xff, 0xff, 0xff, 0][..]), None);
        assert_eq!(take_logged(&mut &[5, 1, 0][..]), None);
    }

    #[test]
    fn clears_are_in_the_log_and_in_no_batch() {
        let mut bytes = Vec::new();
        put_clear(&mut bytes, 300);
        for cut in 0..bytes.len() {
            assert_eq!(take_logged(&mut &bytes[..cut]), None);
        }
        assert_eq!(take(&mut &bytes[..]), None);
        bytes.push(9);
        let rest = &mut &bytes[..];
        let clear = take_logged(rest).unwrap();
        assert_eq!((clear, clear.keyspace()), (Logged::Clear { keyspace: 300 }, 300));
        assert_eq!(*rest, [9]);
    }

    #[test]
    fn ranges_that_are_deleted_are_writes() {
        for (start, end) in [(&b"a"[..], Some(&b"b"[..])), (b"", None), (b"", Some(b"\0"))] {
            let mut bytes = Vec::new();
            let span = Span { start, end };
            put_delete_range(&mut bytes, 300, span);
            for cut in 0..bytes.len() {
                assert_eq!(take(&mut &bytes[..cut]), None);
            }
            bytes.push(9);
            let rest = &mut &bytes[..];
            let entry = Entry { keyspace: 300, change: Change::DeleteRange(span) };
            assert_eq!((take(rest), *rest), (Some(entry), &[9][..]));
            assert_eq!(take_logged(&mut &bytes[..]), Some(Logged::Write(entry)));
        }
        for (start, end) in [(&b"b"[..], &b"b"[..]), (b"b", b"a"), (b"", b"")] {
            let mut bytes = Vec::new();
            put_delete_range(&mut bytes, 300, Span { start, end: Some(end) });
            assert_eq!(take(&mut &bytes[..]), None, "there is nothing in it");
        }
        let too_long = [4, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(take(&mut &too_long[..]), None);
    }

    #[test]
    fn what_is_longer_than_it_may_be_is_no_write() {
        let is_taken = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            write(&mut bytes);
            take(&mut &bytes[..]).is_some()
        };
        for (len, is_valid) in [(MAX_KEY_LEN, true), (MAX_KEY_LEN + 1, false)] {
            let key = vec![b'k'; len];
            for (kind, value) in [(Kind::Put, &b"\0"[..]), (Kind::Delete, b"")] {
                let write = |out: &mut Vec<u8>| {
                    put_head(out, 1, kind, &key, value.len());
                    out.extend_from_slice(value);
                };
                assert_eq!(is_taken(&write), is_valid, "{kind:?} {len}");
            }
            let longer = [&key[..], b"k"].concat();
            let ranges = [(&b""[..], Some(&longer[..])), (&longer, None)];
            for (start, end) in ranges {
                let span = Span { start, end };
                assert_eq!(is_taken(&|out| put_delete_range(out, 1, span)), is_valid, "{len}");
            }
        }
        // Of zeros, so that the system has to give no memory for them.
        for (len, is_valid) in [(MAX_VALUE_LEN, true), (MAX_VALUE_LEN + 1, false)] {
            let mut head = Vec::new();
            put_head(&mut head, 1, Kind::Put, b"key", len);
            let mut bytes = vec![0; head.len() + len];
            bytes[..head.len()].copy_from_slice(&head);
            assert_eq!(take(&mut &bytes[..]).is_some(), is_valid, "{len}");
        }
    }

    #[test]
    fn round_trip_and_cuts() {
        let mut bytes = Vec::new();
        put_head(&mut bytes, 300, Kind::Put, b"key", 5);
        bytes.extend_from_slice(b"value");
        let change = Change::Key { kind: Kind::Put, key: b"key", value: b"value" };
        let put = Entry { keyspace: 300, change };
        for cut in 0..bytes.len() {
            assert_eq!(take(&mut &bytes[..cut]), None);
        }
        put_head(&mut bytes, 1, Kind::Delete, b"", 0);
        let rest = &mut &bytes[..];
        assert_eq!(take(rest), Some(put));
        let change = Change::Key { kind: Kind::Delete, key: b"", value: b"" };
        assert_eq!(take(rest), Some(Entry { keyspace: 1, change }));
        assert!(rest.is_empty());
        assert_eq!(take(&mut &[9, 1, 0][..]), None);
    }
}
