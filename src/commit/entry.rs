//! How writes are encoded: in a batch, and as the body of a log record.
//!
//! ```text
//! write := kind u8 (0 tombstone, 1 put), keyspace id varint, key length varint, key,
//!          and for a put: value length varint, value
//! load  := 2 u8, keyspace id varint, length varint, what the engine says of it
//! clear := 3 u8, keyspace id varint
//! ```
//! A batch has writes only. What was loaded is not in the log: it is in files of the engine, which finds them by what it
//! said. A clear takes away all that was written to the keyspace before it.

use crate::base::{Kind, varint};

/// The kind of a load.
const LOAD: u8 = 2;
/// The kind of a clear.
const CLEAR: u8 = 3;

/// One decoded write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) keyspace: u32,
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    /// Empty for a tombstone.
    pub(crate) value: &'a [u8],
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
    let kind = Kind::from_u8(kind)?;
    let keyspace = varint::take(bytes)?.try_into().ok()?;
    let key = varint::take_prefixed(bytes)?;
    let value = if kind == Kind::Put { varint::take_prefixed(bytes)? } else { &[] };
    Some(Entry { keyspace, kind, key, value })
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
        let entry = Entry { keyspace: 7, kind: Kind::Delete, key: b"key", value: b"" };
        assert_eq!(write, Logged::Write(entry));
        assert!(rest.is_empty());
        assert_eq!(take_logged(&mut &[LOAD, 0xff, 0xff, 0xff, 0xff, 0xff, 0][..]), None);
        assert_eq!(take_logged(&mut &[4, 1, 0][..]), None);
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
    fn round_trip_and_cuts() {
        let mut bytes = Vec::new();
        put_head(&mut bytes, 300, Kind::Put, b"key", 5);
        bytes.extend_from_slice(b"value");
        let put = Entry { keyspace: 300, kind: Kind::Put, key: b"key", value: b"value" };
        for cut in 0..bytes.len() {
            assert_eq!(take(&mut &bytes[..cut]), None);
        }
        put_head(&mut bytes, 1, Kind::Delete, b"", 0);
        let rest = &mut &bytes[..];
        assert_eq!(take(rest), Some(put));
        assert_eq!(
            take(rest),
            Some(Entry { keyspace: 1, kind: Kind::Delete, key: b"", value: b"" })
        );
        assert!(rest.is_empty());
        assert_eq!(take(&mut &[9, 1, 0][..]), None);
    }
}
