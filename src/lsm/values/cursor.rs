//! The records that a reader sees, with their values where they are kept apart.
//!
//! A value is read when it is [fetched](OrderedCursor::fetch), so that who walks over keys alone reads none. Behind two
//! fetches in a row, going forward, the cursor *runs ahead*: it takes some of the next records aside and reads their values
//! as one batch, each time more of them. They lie anywhere in any value file, so a batch at depth is what makes a scan fast.
//!
//! Invariants: if there are records aside, the first of them is the one shown, and the inner cursor stands behind the last.
//! What went wrong with a value aside, or in the step behind the last record aside, is told when that is reached.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::file::ValueFile;
use super::set::{Place, read_all};
use crate::base::{Slice, Trailer, hash};
use crate::error::{Error, Result};
use crate::iter::{EntryCursor, OrderedCursor, Visible};
use crate::lsm::version::Version;
use crate::vfs::{BatchReader, Hint};

/// How many records are taken aside: at first, and at most.
const RECORDS: Range<usize> = 4..128;
/// The most bytes of values that are read ahead, but for the first of them.
const BYTES: u64 = 1 << 20;
/// Values that are no further apart than this in a mapped file are announced together.
const GAP: u64 = 64 << 10;

/// A cursor over records, some of whose values are apart.
pub(crate) struct ValueCursor<C> {
    inner: Visible<C>,
    version: Arc<Version>,
    reader: Arc<BatchReader>,
    /// The value of the record that `inner` is on, once it was fetched.
    value: Option<Slice>,
    aside: VecDeque<Aside>,
    /// What the step behind the last record aside gave.
    failed: Option<Error>,
    /// How many records in a row were fetched and stepped over, forward.
    streak: usize,
    /// How many records are taken aside the next time.
    records: usize,
}

/// A record that was taken aside, and its value.
struct Aside {
    key: Vec<u8>,
    value: Result<Slice>,
}

/// A record that is being taken aside.
struct Gathered {
    key: Vec<u8>,
    trailer: Trailer,
    /// The value, or what leads to it.
    stored: Slice,
}

impl<C: EntryCursor + Send> ValueCursor<C> {
    /// `inner` shows entries of `version`.
    pub(crate) fn new(inner: Visible<C>, version: Arc<Version>, reader: Arc<BatchReader>) -> Self {
        let (value, aside, failed) = (None, VecDeque::new(), None);
        let records = RECORDS.start;
        Self { inner, version, reader, value, aside, failed, streak: 0, records }
    }

    /// Forgets what was read ahead and fetched, before the inner cursor moves.
    fn forget(&mut self) {
        self.value = None;
        self.aside.clear();
        self.failed = None;
        self.streak = 0;
        self.records = RECORDS.start;
    }

    /// Takes the record shown and some behind it aside, with their values.
    fn run_ahead(&mut self) {
        let records = self.gather();
        self.records = (2 * self.records).min(RECORDS.end);
        let version = &*self.version;
        let places: Vec<Option<Result<Place<'_>>>> = records
            .iter()
            .map(|record| {
                let place =
                    || version.values.locate(&record.stored).ok_or_else(|| version.misled());
                record.trailer.is_apart().then(place)
            })
            .collect();
        let wanted: Vec<(Place<'_>, u64)> = records
            .iter()
            .zip(&places)
            .filter_map(|(record, place)| {
                let place = place.as_ref()?.as_ref().ok()?;
                Some((*place, hash::hash64(&record.key)))
            })
            .collect();
        announce(&wanted);
        let mut read = read_all(&wanted, &self.reader).into_iter();
        self.aside = records
            .into_iter()
            .zip(places)
            .map(|(Gathered { key, stored, .. }, place)| Aside {
                key,
                value: match place {
                    None => Ok(stored),
                    Some(Ok(_)) => read.next().expect("every place is answered"),
                    Some(Err(error)) => Err(error),
                },
            })
            .collect();
    }

    /// The record shown and some behind it; the inner cursor is behind the last of them then.
    fn gather(&mut self) -> Vec<Gathered> {
        let mut records = Vec::with_capacity(self.records);
        let mut bytes = 0_u64;
        while records.len() < self.records && bytes < BYTES && self.inner.is_valid() {
            let (key, trailer) = (self.inner.key().to_vec(), self.inner.trailer());
            let stored = self.inner.value_slice();
            let len = match self.version.values.locate(&stored).filter(|_| trailer.is_apart()) {
                Some(place) => place.record_len(),
                None => stored.len() as u64,
            };
            if !records.is_empty() && bytes.saturating_add(len) > BYTES {
                break;
            }
            bytes = bytes.saturating_add(len);
            records.push(Gathered { key, trailer, stored });
            if let Err(error) = self.inner.next() {
                self.failed = Some(error);
                break;
            }
        }
        records
    }
}

/// Tells of what is going to be read from mapped files, where reading is touching pages one after the other.
fn announce(places: &[(Place<'_>, u64)]) {
    let mut ranges: BTreeMap<u64, (&Arc<ValueFile>, Vec<Range<u64>>)> = BTreeMap::new();
    for (Place { file, reference }, _) in places {
        let (_, ranges) = ranges.entry(file.id).or_insert_with(|| (file, Vec::new()));
        ranges.extend(reference.end().map(|end| reference.offset..end.min(file.len)));
    }
    for (file, mut ranges) in ranges.into_values() {
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, before| {
            let near = next.start <= before.end.saturating_add(GAP);
            if near {
                before.end = before.end.max(next.end);
            }
            near
        });
        // An error is told when the value is read.
        let _ = file.read(|open| {
            if open.file.lends() {
                ranges.into_iter().for_each(|range| open.file.advise(range, Hint::WillNeed));
            }
            Ok(())
        });
    }
}

impl<C: EntryCursor + Send> OrderedCursor for ValueCursor<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.forget();
        self.inner.seek_to_first()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.forget();
        self.inner.seek_to_last()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.forget();
        self.inner.seek(key)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.forget();
        self.inner.seek_before(key)
    }

    fn next(&mut self) -> Result<()> {
        if self.aside.pop_front().is_some() {
            return match self.failed.take() {
                Some(error) if self.aside.is_empty() => Err(error),
                failed => {
                    self.failed = failed;
                    Ok(())
                }
            };
        }
        self.streak = if self.value.take().is_some() { self.streak + 1 } else { 0 };
        self.inner.next()
    }

    fn prev(&mut self) -> Result<()> {
        let shown = self.aside.pop_front();
        self.forget();
        match shown {
            Some(shown) => self.inner.seek_before(&shown.key),
            None => self.inner.prev(),
        }
    }

    fn is_valid(&self) -> bool {
        !self.aside.is_empty() || self.inner.is_valid()
    }

    fn key(&self) -> &[u8] {
        self.aside.front().map_or_else(|| self.inner.key(), |shown| &shown.key)
    }

    fn fetch(&mut self) -> Result<()> {
        let is_here = |this: &Self| !this.aside.is_empty() || this.value.is_some();
        if !is_here(self) && self.inner.is_valid() {
            if self.streak >= 2 {
                self.run_ahead();
            } else if self.inner.trailer().is_apart() {
                let place = self.version.values.locate(self.inner.value());
                let place = place.ok_or_else(|| self.version.misled())?;
                self.value = Some(place.read(hash::hash64(self.inner.key()))?);
            } else {
                self.value = Some(self.inner.value_slice());
            }
        }
        match self.aside.front() {
            Some(Aside { value: Err(error), .. }) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn value(&self) -> &[u8] {
        match (self.aside.front(), &self.value) {
            (Some(Aside { value: Ok(value), .. }), _) | (None, Some(value)) => value,
            _ => &[],
        }
    }

    fn value_slice(&self) -> Slice {
        match (self.aside.front(), &self.value) {
            (Some(Aside { value: Ok(value), .. }), _) | (None, Some(value)) => value.clone(),
            _ => Slice::from(&[][..]),
        }
    }
}

#[cfg(test)]
impl<C> ValueCursor<C> {
    /// How many records are aside.
    pub(super) fn ahead(&self) -> usize {
        self.aside.len()
    }
}
