//! What fuzzers do with the writes of a log record.

use super::entry::{self, Change, Logged};

/// The body of a record: all entries are read until one is not valid.
pub(crate) fn writes(mut bytes: &[u8]) {
    let all = bytes.as_ptr_range();
    while let Some(entry) = entry::take_logged(&mut bytes) {
        let parts = match entry {
            Logged::Write(entry) => match entry.change {
                Change::Key { key, value, .. } => [key, value],
                Change::DeleteRange(span) => {
                    assert!(span.end.is_none_or(|end| end > span.start));
                    [span.start, span.end.unwrap_or_default()]
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
    use super::entry;
    use crate::base::{Kind, Span};

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
        ]
    }
}
