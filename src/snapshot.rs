//! Snapshots: the state of all keyspaces at one moment.

use std::ops::RangeBounds;
use std::sync::Arc;

use crate::base::{Bounds, Slice};
use crate::cursor::{Cursor, Range};
use crate::database::Handle;
use crate::error::{Error, Result};
use crate::keyspace::{Held, Keyspace};

/// The state of all keyspaces at the moment it was taken. It never sees a part of a batch.
///
/// Cheap to clone. While it lives, what it sees is kept on disk even if it is overwritten or deleted. A
/// keyspace made after the snapshot is empty in it.
#[derive(Clone)]
pub struct Snapshot {
    held: Held,
}

impl Snapshot {
    pub(crate) fn new(database: Arc<Handle>) -> Self {
        Self { held: Held::new(&database) }
    }

    /// The value of `key` in `keyspace`.
    ///
    /// # Errors
    /// `Invalid` if the keyspace is another database's; those of [`Keyspace::get`].
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.check(keyspace)?;
        keyspace.get_at(key.as_ref(), self.held.point())
    }

    /// All values of `key` in `keyspace`, as [`Keyspace::get_all`] gives them.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_all(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Vec<Slice>> {
        self.check(keyspace)?;
        keyspace.get_all_at(key.as_ref(), self.held.point())
    }

    /// Whether `key` has a value in `keyspace`. Errors as [`get`](Self::get).
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(keyspace, key)?.is_some())
    }

    /// The values of several keys, in the order of the keys. Cost and errors as those of
    /// [`Keyspace::multi_get`], and `Invalid` if the keyspace is another database's.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Slice>>> {
        self.check(keyspace)?;
        keyspace.multi_get_at(keys, self.held.point())
    }

    /// All keys of `keyspace` and their values; in order, unless it has none.
    pub fn iter(&self, keyspace: &Keyspace) -> Range {
        self.range_in(keyspace, Bounds::ALL)
    }

    /// The keys in `range` and their values, in order. As [`Keyspace::range`] in a hash keyspace.
    pub fn range<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Range {
        self.range_in(keyspace, Bounds::new(range))
    }

    /// The keys that start with `prefix` and their values, in order. As [`Keyspace::prefix`] in a hash keyspace.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Range {
        self.range_in(keyspace, Bounds::prefix(prefix.as_ref()))
    }

    /// A cursor over the keys of `keyspace`.
    ///
    /// # Errors
    /// `Invalid` if the keyspace is another database's; `Unsupported` in a hash keyspace; `Closed`.
    pub fn cursor(&self, keyspace: &Keyspace) -> Result<Cursor> {
        self.check(keyspace)?;
        keyspace.cursor_at(self.held.point())
    }

    /// The number of keys of `keyspace`. Cost: reads all of them. Errors as [`get`](Self::get).
    pub fn count(&self, keyspace: &Keyspace) -> Result<u64> {
        self.check(keyspace)?;
        keyspace.count_at(self.held.point())
    }

    /// The record at `position` of `keyspace`, a skip keyspace. Cost as that of [`Keyspace::nth`].
    ///
    /// # Errors
    /// `Invalid` if the keyspace is another database's; those of [`Keyspace::nth`].
    pub fn nth(&self, keyspace: &Keyspace, position: u64) -> Result<Option<(Slice, Slice)>> {
        self.check(keyspace)?;
        keyspace.nth_at(position, self.held.point())
    }

    /// How many records of `keyspace`, a skip keyspace, have a key below `key`. Cost and errors as [`nth`](Self::nth).
    ///
    /// # Errors
    /// Those of [`nth`](Self::nth).
    pub fn rank(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<u64> {
        self.check(keyspace)?;
        keyspace.rank_at(key.as_ref(), self.held.point())
    }

    fn range_in(&self, keyspace: &Keyspace, bounds: Bounds) -> Range {
        match self.check(keyspace) {
            Ok(()) => keyspace.range_in(bounds, self.held.clone()),
            Err(error) => Range::failed(error),
        }
    }

    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        check_same(self.held.database(), keyspace)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({:?})", self.held.point())
    }
}

/// An error if the keyspace belongs to another database.
pub(crate) fn check_same(database: &Arc<Handle>, keyspace: &Keyspace) -> Result<()> {
    if Arc::ptr_eq(database, keyspace.database()) {
        return Ok(());
    }
    let name = keyspace.name();
    Err(Error::Invalid(format!(
        "keyspace {name:?} belongs to another database (or another handle)"
    )))
}
