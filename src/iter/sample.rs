//! A cursor over a vector, and entries to fill it with.

use std::cmp::Ordering;
use std::ops::Range;

use proptest::prelude::*;

use super::EntryCursor;
use crate::base::key::compare;
use crate::base::{Kind, Seqno, Slice, Trailer};
use crate::error::Result;

/// A stored entry. Its value names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) trailer: Trailer,
    pub(crate) value: Vec<u8>,
}

impl Entry {
    fn new(key: Vec<u8>, seqno: Seqno, kind: Kind) -> Self {
        let value = match kind {
            Kind::Put => format!("value {seqno}").into_bytes(),
            Kind::Delete => Vec::new(),
        };
        Self { key, trailer: Trailer::new(seqno, kind), value }
    }

    pub(crate) fn place(&self) -> (&[u8], Trailer) {
        (&self.key, self.trailer)
    }

    /// The entry that a cursor is on.
    pub(crate) fn at(cursor: &impl EntryCursor) -> Option<Self> {
        cursor.is_valid().then(|| {
            assert_eq!(&*cursor.value_slice(), cursor.value());
            let (key, value) = (cursor.key().to_vec(), cursor.value().to_vec());
            Self { key, trailer: cursor.trailer(), value }
        })
    }
}

/// Some keys: few, so that there are many versions of each. Marks tell all of them apart, or not.
pub(crate) fn keys() -> impl Strategy<Value = Vec<u8>> {
    let short = proptest::collection::vec(0..3_u8, 0..3);
    (prop_oneof![3 => Just(0), 1 => Just(15), 1 => Just(40)], short).prop_map(|(front, short)| {
        let mut key = vec![1; front];
        key.extend(short);
        key
    })
}

/// Sorted entries with the sequence numbers from 1 on.
pub(crate) fn entries(count: Range<usize>) -> impl Strategy<Value = Vec<Entry>> {
    let kinds = prop_oneof![Just(Kind::Put), Just(Kind::Delete)];
    proptest::collection::vec((keys(), kinds), count).prop_map(|writes| {
        let mut entries: Vec<_> =
            (1..).zip(writes).map(|(seqno, (key, kind))| Entry::new(key, seqno, kind)).collect();
        entries.sort_by(|a, b| compare(a.place(), b.place()));
        entries
    })
}

/// A cursor over sorted entries.
#[derive(Debug)]
pub(crate) struct Sorted {
    entries: Vec<Entry>,
    at: Option<usize>,
}

impl Sorted {
    pub(crate) fn new(entries: Vec<Entry>) -> Self {
        Self { entries, at: None }
    }

    /// How many entries are before a place.
    fn before(&self, key: &[u8], trailer: Trailer) -> usize {
        self.entries
            .partition_point(|entry| compare(entry.place(), (key, trailer)) == Ordering::Less)
    }

    fn go(&mut self, to: Option<usize>) -> Result<()> {
        self.at = to.filter(|&to| to < self.entries.len());
        Ok(())
    }

    fn here(&self) -> usize {
        self.at.expect("the cursor must be on an entry")
    }
}

impl EntryCursor for Sorted {
    fn seek_to_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.go(self.entries.len().checked_sub(1))
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.go(Some(self.before(key, trailer)))
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.go(self.before(key, trailer).checked_sub(1))
    }

    fn next(&mut self) -> Result<()> {
        self.go(Some(self.here() + 1))
    }

    fn prev(&mut self) -> Result<()> {
        self.go(self.here().checked_sub(1))
    }

    fn is_valid(&self) -> bool {
        self.at.is_some()
    }

    fn key(&self) -> &[u8] {
        &self.entries[self.here()].key
    }

    fn trailer(&self) -> Trailer {
        self.entries[self.here()].trailer
    }

    fn value(&self) -> &[u8] {
        &self.entries[self.here()].value
    }

    fn value_slice(&self) -> Slice {
        Slice::from(self.value())
    }

    /// Like a cursor that sees no further than its block, of four entries.
    fn count_below(&self, limit: Option<&[u8]>) -> usize {
        let block = self.entries.chunks(4).nth(self.here() / 4).unwrap_or_default();
        let rest = &block[self.here() % 4 + 1..];
        rest.partition_point(|entry| limit.is_none_or(|limit| &entry.key[..] < limit))
    }
}
