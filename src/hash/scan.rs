//! Reading all of a keyspace, in the order in which it lies in the segments.
//!
//! The segments there are and how far they reach are noted at the start, and each is read from front to back. A record
//! is given out if it is the version of its key that the scan sees. Versions that a scan sees are held: they are
//! not dropped, and their places are not used again. They may be moved, though, to the end of the tail: a record
//! that has been moved is given out in its new place if that lies within what the scan reads, and in its old place
//! otherwise.

use std::sync::Arc;

use super::index::{Address, Found as Candidates};
use super::segment::{Record, Records, Segment};
use super::store::{Look, Store, lock, look};
use crate::base::hash::hash64;
use crate::base::{Kind, Seqno, Slice};
use crate::error::Result;
use crate::iter::UnorderedCursor;

/// A walk over the keys that one state shows.
pub(super) struct Scan {
    store: Arc<Store>,
    seqno: Seqno,
    /// The segments and how far each reaches, in units; oldest first.
    limits: Vec<(u64, usize)>,
    /// What is still to be read; the next one last.
    left: Vec<Records>,
}

impl Scan {
    /// A scan of what `seqno` shows, which is held for as long as the scan lives.
    pub(super) fn new(store: Arc<Store>, seqno: Seqno) -> Self {
        let segments = {
            // Nothing is being moved, and nothing changes its place.
            let _writer = lock(&store.writer);
            store.slots.load().segments()
        };
        let limits = segments.iter().map(|segment| (segment.id, segment.used())).collect();
        let left = segments.into_iter().rev().map(Records::new).collect();
        Self { store, seqno, limits, left }
    }

    /// Whether the scan reads the place `address` of `segment`.
    fn reads(&self, segment: &Segment, address: Address) -> bool {
        let limit = self.limits.binary_search_by_key(&segment.id, |limit| limit.0);
        limit.is_ok_and(|index| segment.offset(address) < self.limits[index].1)
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
            found.clear();
            self.store.index.find(hash, &mut found);
            if !self.store.slots.is_current(&slots) {
                continue;
            }
            let here = |entry: &super::index::Entry| {
                entry.address() == address
                    && slots.segment(address).is_some_and(|there| there.id == segment.id)
            };
            if let [only] = found.as_slice()
                && here(only)
            {
                return Ok(true);
            }
            match look(&slots, found.as_slice(), record.key(), self.seqno)? {
                Look::Busy => std::hint::spin_loop(),
                Look::Version(entry, newest, _) if newest == trailer => {
                    let moved = slots.segment(entry.address());
                    return Ok(here(&entry)
                        || !moved.is_some_and(|moved| self.reads(moved, entry.address())));
                }
                Look::Version(..) | Look::OnlyNewer | Look::Nothing => return Ok(false),
            }
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
