//! How writes are encoded: in a batch, and as the body of a log record.
//!
//! ```text
//! entry := kind u8, keyspace id varint, key length varint, key,
//!          and for a put: value length varint, value
//! ```

use crate::base::{Kind, varint};

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

#[cfg(test)]
mod tests {
    use super::*;

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
