//! Reading all of a keyspace, in the order in which it lies in the segments.
//!
//! The segments there are and how far they reach are noted at the start, and each is read from front to back. A record
//! is given out if it is the version of its key that the scan sees. Versions that a scan sees are held: they are
//! not dropped, and their places are not used again. Nor is any record moved while there is a scan.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::index::{Address, Entry, Found as Candidates};
use super::segment::{Record, Records, Segment};
use super::store::{Store, lock};
use crate::base::hash::hash64;
use crate::base::{Kind, ReadPoint, Seqno, Slice};
use crate::error::Result;
use crate::iter::UnorderedCursor;

/// A walk over the keys that one state shows.
pub(super) struct Scan {
    store: Arc<Store>,
    seqno: Seqno,
    /// What is still to be read; the next one last.
    left: Vec<Records>,
}

impl Scan {
    /// A scan of what `seqno` shows, which is held for as long as the scan lives.
    pub(super) fn new(store: Arc<Store>, seqno: Seqno) -> Self {
        let left = {
            // Nothing is being moved.
            let _writer = lock(&store.writer);
            store.scans.fetch_add(1, Ordering::AcqRel);
            store.slots.load().segments().into_iter().rev().map(Records::new).collect()
        };
        Self { store, seqno, left }
    }

    /// Whether the record in `segment` at `address` is to be given out.
    fn shows(&self, segment: &Segment, address: Address, record: &Record) -> Result<bool> {
        let trailer = record.front.trailer;
        if trailer.seqno() > self.seqno || trailer.kind() == Kind::Delete {
            return Ok(false);
        }
        let hash = hash64(record.key());
        let mut found = Candidates::new();
        loop {
            let slots = self.store.slots.load();
            self.store.index.find(hash, &mut found);
            if !self.store.slots.is_current(&slots) {
                continue;
            }
            let here = |entry: &Entry| {
                entry.address() == address
                    && slots.segment(address).is_some_and(|there| there.id == segment.id)
            };
            // A place in memory may be another record's by now.
            if let [only] = found.as_slice()
                && here(only)
                && segment.file().is_some()
            {
                return Ok(true);
            }
            let point = ReadPoint::At(self.seqno);
            let newest = self.store.find_version(hash, record.key(), point)?;
            return Ok(newest.is_some_and(|(entry, newest, _)| here(&entry) && newest == trailer));
        }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        let is_last = self.store.scans.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && self.store.is_of_this_process() {
            // It may have kept records from being moved.
            self.store.schedule_upkeep();
        }
    }
}

impl UnorderedCursor for Scan {
    fn next(&mut self) -> Result<Option<(Slice, Slice)>> {
        while let Some(records) = self.left.last_mut() {
            let Some((at, record)) = records.next()? else {
                self.left.pop();
                continue;
            };
            let segment = Arc::clone(records.segment());
            if self.shows(&segment, segment.address(at), &record)? {
                return Ok(Some((Slice::from(record.key()), record.value())));
            }
        }
        Ok(None)
    }
}
