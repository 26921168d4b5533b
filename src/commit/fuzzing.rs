//! What fuzzers do with the writes of a log record.

use super::entry::{self, Change, Logged};
use crate::options::MAX_KEY_LEN;

/// More than the longest key, of bytes that are no entries.
static BEHIND: [u8; MAX_KEY_LEN + 16] = [0xff; MAX_KEY_LEN + 16];

/// The body of a record, and the same where what it says of lengths meets as many bytes.
pub(crate) fn writes(bytes: &[u8]) {
    entries(bytes);
    entries(&[bytes, &BEHIND].concat());
}

/// All entries are read until one is not valid.
fn entries(mut bytes: &[u8]) {
    let all = bytes.as_ptr_range();
    while let Some(entry) = entry::take_logged(&mut bytes) {
        let parts = match entry {
            Logged::Write(entry) => match entry.change {
                Change::Key { key, value, .. } => {
                    assert!(key.len() <= MAX_KEY_LEN);
                    [key, value]
                }
                Change::DeleteRange(span) => {
                    let ends = [span.start, span.end.unwrap_or_default()];
                    assert!(span.end.is_none_or(|end| end > span.start));
                    assert!(ends.iter().all(|key| key.len() <= MAX_KEY_LEN + 1));
                    ends
                }
            },
            Logged::Load { described, .. } => [described, &[]],
            Logged::Clear { .. } => [&[][..]; 2],
        };
        let inside = |part: &[u8]| part.is_empty() || all.contains(&part.as_ptr());
        assert!(parts.into_iter().all(inside));
    }
}

/// Bodies as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::MAX_KEY_LEN;
    use super::entry;
    use crate::base::{Kind, Span, varint};

    pub(crate) fn writes() -> Vec<Vec<u8>> {
        let body = |write: fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            out
        };
        vec![
            body(|out| {
                entry::put_head(out, 1, Kind::Put, b"key", 5);
                out.extend_from_slice(b"value");
                entry::put_head(out, 300, Kind::Delete, b"", 0);
            }),
            body(|out| {
                entry::put_delete_range(out, 2, Span { start: b"a", end: Some(b"b") });
                entry::put_delete_range(out, 2, Span { start: b"", end: None });
            }),
            body(|out| entry::put_load(out, 3, b"where it is")),
            body(|out| entry::put_clear(out, 4)),
            // A key, and an end of a range, that are longer than any may be.
            body(|out| {
                out.extend_from_slice(&[Kind::Delete as u8, 1]);
                varint::put(out, MAX_KEY_LEN as u64 + 1);
            }),
            body(|out| {
                entry::put_delete_range(out, 2, Span { start: b"a", end: None });
                out.pop();
                varint::put(out, MAX_KEY_LEN as u64 + 3);
            }),
        ]
    }
}
