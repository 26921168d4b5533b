//! The value files of a version, and how much of each is referred to.
//!
//! Thread safety: a set belongs to a version and does not change with it; a change makes a new one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::file::ValueFile;
use super::reference::Reference;
use crate::base::Slice;
use crate::error::Result;
use crate::planted::{Bug, planted};
use crate::stats::ValueStats;
use crate::vfs::{BatchReader, ReadRequest};

/// What a table refers to in one value file.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) file: Arc<ValueFile>,
    /// The bytes of the records referred to.
    pub(crate) bytes: u64,
}

/// The value files that tables refer to, by their numbers.
#[derive(Clone, Default, Debug)]
pub(crate) struct ValueFiles {
    files: BTreeMap<u64, Held>,
}

/// A value file that tables refer to.
#[derive(Clone, Debug)]
struct Held {
    file: Arc<ValueFile>,
    /// The bytes of the records that tables refer to.
    live: u64,
    tables: usize,
}

/// Where a value is, and the file it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(super) file: &'a Arc<ValueFile>,
    pub(super) reference: Reference,
}

impl ValueFiles {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// All of them.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<ValueFile>> {
        self.files.values().map(|held| &held.file)
    }

    /// The file with this number.
    pub(crate) fn file(&self, id: u64) -> Option<&Arc<ValueFile>> {
        self.files.get(&id).map(|held| &held.file)
    }

    /// Figures of all of them.
    pub(crate) fn stats(&self) -> ValueStats {
        self.garbage().fold(ValueStats::default(), |all, (file, garbage)| ValueStats {
            files: all.files + 1,
            bytes: all.bytes + file.len(),
            garbage: all.garbage + garbage,
        })
    }

    /// The bytes in each file that no table refers to.
    pub(crate) fn garbage(&self) -> impl Iterator<Item = (&Arc<ValueFile>, u64)> {
        self.files
            .values()
            .map(|held| (&held.file, held.file.record_bytes().saturating_sub(held.live)))
    }

    /// Where the value is that `reference`, the bytes of an entry whose value is apart, leads to. `None` if they cannot be
    /// of this version.
    #[inline]
    pub(crate) fn locate(&self, reference: &[u8]) -> Option<Place<'_>> {
        let reference = Reference::decode(reference)?;
        Some(Place { file: &self.files.get(&reference.file)?.file, reference })
    }

    /// Takes note of what a table refers to. `None` if a file of this number is another one.
    pub(crate) fn add(&mut self, shares: &[Share]) -> Option<()> {
        for Share { file, bytes } in shares {
            let held = self.files.entry(file.id).or_insert_with(|| Held {
                file: Arc::clone(file),
                live: 0,
                tables: 0,
            });
            if !Arc::ptr_eq(&held.file, file) {
                return None;
            }
            held.live = held.live.saturating_add(*bytes);
            held.tables += 1;
        }
        Some(())
    }

    /// Takes note that a table is gone.
    pub(crate) fn remove(&mut self, shares: &[Share]) {
        for Share { file, bytes } in shares {
            if let Some(held) = self.files.get_mut(&file.id) {
                held.live = held.live.saturating_sub(*bytes);
                let gone = 1 + usize::from(planted(Bug::RemoveValuesEarly));
                held.tables = held.tables.saturating_sub(gone);
            }
        }
    }

    /// Forgets the files that no table refers to. Called when all tables have been added and removed: a table may be moved.
    pub(crate) fn drop_unused(&mut self) {
        self.files.retain(|_, held| held.tables > 0);
    }

    /// The files that are not in `later`, a set that came of this one.
    pub(crate) fn gone_from(&self, later: &Self) -> Vec<Arc<ValueFile>> {
        let gone = |file: &&Arc<ValueFile>| later.file(file.id).is_none();
        self.files().filter(gone).cloned().collect()
    }
}

impl Place<'_> {
    /// The value there of a key with this hash.
    #[inline]
    pub(crate) fn read(&self, hash: u64) -> Result<Slice> {
        self.file.read(|open| open.value(&self.reference, hash))
    }

    /// The bytes of its record.
    pub(super) fn record_len(&self) -> u64 {
        self.reference.record_len()
    }
}

/// The values at `places`, each for a key with the hash beside it, read as one batch. An error concerns only those that need
/// the bytes it is about.
pub(crate) fn read_all(places: &[(Place<'_>, u64)], reader: &BatchReader) -> Vec<Result<Slice>> {
    let opened: Vec<_> = places
        .iter()
        .map(|(place, _)| {
            place.file.read(|open| Ok((Arc::clone(open), open.range(&place.reference)?)))
        })
        .collect();
    let requests: Vec<_> = opened
        .iter()
        .flatten()
        .map(|(open, range)| ReadRequest { file: Arc::clone(&open.file), range: range.clone() })
        .collect();
    let mut read = reader.read(&requests).into_iter();
    let values = opened.into_iter().zip(places).map(|(opened, (place, hash))| {
        let (open, _) = opened?;
        let stored = read.next().expect("every request is answered")?;
        open.value_in(stored, &place.reference, *hash)
    });
    values.collect()
}
