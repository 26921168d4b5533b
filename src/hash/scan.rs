//! Reading all of a keyspace, in the order in which it lies in the segments.
//!
//! The segments there are and how far they reach are noted at the start, and each is read from front to back. A record
//! is given out if it is the version of its key that the scan sees, in the place that the index had for it when the
//! scan began. Versions that a scan sees are held: they are not dropped, and their places are not used again. They may be
//! moved, though, to the end of the tail, which the scan does not read. There may be copies of them, too, where they
//! were before the scan began: those are told from the places they have left since by the notes that the writer takes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::index::{Address, Entry, Found as Candidates};
use super::segment::{Record, Records, Segment};
use super::store::{Look, Store, lock, look};
use crate::base::hash::hash64;
use crate::base::{Kind, Seqno, Slice};
use crate::error::Result;
use crate::iter::UnorderedCursor;

/// What a scan reads, and which records have left it since it began.
pub(super) struct Reach {
    /// The segments and how far each reaches, in units; oldest first.
    limits: Vec<(u64, usize)>,
    /// The segment that is being read; those before it have been.
    at: AtomicU64,
    /// The segments and units of records that were indexed there and have been moved.
    left: Mutex<HashSet<(u64, usize)>>,
}

impl Reach {
    fn new(segments: &[Arc<Segment>]) -> Arc<Self> {
        let limits = segments.iter().map(|segment| (segment.id, segment.used())).collect();
        Arc::new(Self { limits, at: AtomicU64::new(0), left: Mutex::default() })
    }

    /// The record that is indexed at `address` of `segment` is about to be indexed elsewhere. Under the writer lock.
    pub(super) fn moves(&self, segment: &Segment, address: Address) {
        let unit = segment.offset(address);
        let limit = self.limits.binary_search_by_key(&segment.id, |limit| limit.0);
        if limit.is_ok_and(|index| unit < self.limits[index].1)
            && self.at.load(Ordering::Relaxed) <= segment.id
        {
            lock(&self.left).insert((segment.id, unit));
        }
    }

    fn has_left(&self, segment: &Segment, address: Address) -> bool {
        lock(&self.left).contains(&(segment.id, segment.offset(address)))
    }
}

/// A walk over the keys that one state shows.
pub(super) struct Scan {
    store: Arc<Store>,
    seqno: Seqno,
    reach: Arc<Reach>,
    /// What is still to be read; the next one last.
    left: Vec<Records>,
}

impl Scan {
    /// A scan of what `seqno` shows, which is held for as long as the scan lives.
    pub(super) fn new(store: Arc<Store>, seqno: Seqno) -> Self {
        // Nothing is moved behind what the scan reads before it is known how far that reaches.
        let mut writer = lock(&store.writer);
        let segments = store.slots.load().segments();
        let reach = Reach::new(&segments);
        writer.watch(&reach);
        let left = segments.into_iter().rev().map(Records::new).collect();
        drop(writer);
        Self { store, seqno, reach, left }
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
            let here = |entry: &Entry| {
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
                    return Ok(here(&entry) || self.reach.has_left(segment, address));
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
            self.reach.at.store(segment.id, Ordering::Relaxed);
            if self.shows(&segment, segment.address(at), &record)? {
                return Ok(Some((Slice::from(record.key()), record.value())));
            }
        }
        Ok(None)
    }
}
