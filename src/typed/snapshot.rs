//! A typed keyspace as it was when a snapshot was taken.

use std::fmt;

use super::cursor::TypedCursor;
use super::key::{EncodeKey, KeyCodec, KeyWriter};
use super::key_range::KeyRange;
use super::keyspace::TypedKeyspace;
use super::prefix::KeyPrefix;
use super::range::TypedRange;
use super::record;
use super::value::ValueCodec;
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::snapshot::Snapshot;

/// A [`TypedKeyspace`] as it was when a [`Snapshot`] was taken: what [`TypedKeyspace::at`] gives. Its calls are those of the
/// keyspace; if that is another database's, they are errors of kind [`Invalid`](crate::ErrorKind::Invalid).
///
/// ```
/// # fn main() -> turbidite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = turbidite::Database::open(dir.path().join("my.db"))?;
/// # use turbidite::KeyspaceOptions;
/// let counts = db.typed_keyspace::<char, u64>("counts", KeyspaceOptions::hash())?;
/// counts.put('a', 1)?;
/// let before = db.snapshot();
/// counts.put('a', 2)?;
/// assert_eq!(counts.at(&before).get('a')?, Some(1));
/// # Ok(()) }
/// ```
pub struct TypedSnapshot<'a, K, V> {
    keyspace: &'a TypedKeyspace<K, V>,
    snapshot: &'a Snapshot,
}

impl<'a, K: KeyCodec, V: ValueCodec> TypedSnapshot<'a, K, V> {
    pub(super) fn new(keyspace: &'a TypedKeyspace<K, V>, snapshot: &'a Snapshot) -> Self {
        Self { keyspace, snapshot }
    }

    fn inner(&self) -> &'a Keyspace {
        self.keyspace.inner()
    }

    /// The value of `key`, as [`TypedKeyspace::get`].
    ///
    /// # Errors
    /// Those of [`TypedKeyspace::get`], and so with the other calls.
    #[inline]
    pub fn get(&self, key: impl EncodeKey<K>) -> Result<Option<V>> {
        let mut out = KeyWriter::new();
        let key = key.encoded(&mut out);
        let value = self.snapshot.get(self.inner(), key)?;
        value.map(|value| record::value(self.inner(), key, value)).transpose()
    }

    /// All values of `key`, as [`TypedKeyspace::get_all`].
    pub fn get_all(&self, key: impl EncodeKey<K>) -> Result<Vec<V>> {
        let mut out = KeyWriter::new();
        let key = key.encoded(&mut out);
        record::values(self.inner(), key, self.snapshot.get_all(self.inner(), key)?)
    }

    /// Whether `key` has a value, as [`TypedKeyspace::contains`].
    pub fn contains(&self, key: impl EncodeKey<K>) -> Result<bool> {
        self.snapshot.contains(self.inner(), key.encoded(&mut KeyWriter::new()))
    }

    /// The values of several keys, as [`TypedKeyspace::multi_get`].
    pub fn multi_get<Q: EncodeKey<K>>(
        &self,
        keys: impl IntoIterator<Item = Q>,
    ) -> Result<Vec<Option<V>>> {
        let keys: Vec<KeyWriter> = keys.into_iter().map(KeyWriter::of).collect();
        record::found(self.inner(), &keys, self.snapshot.multi_get(self.inner(), &keys)?)
    }

    /// All keys and values, as [`TypedKeyspace::iter`].
    pub fn iter(&self) -> TypedRange<K, V> {
        TypedRange::new(self.inner(), self.snapshot.iter(self.inner()))
    }

    /// The keys in `range` and their values, as [`TypedKeyspace::range`].
    pub fn range(&self, range: impl KeyRange<K>) -> TypedRange<K, V> {
        let range = self.snapshot.range(self.inner(), range.encoded());
        TypedRange::new(self.inner(), range)
    }

    /// The keys that begin with `prefix` and their values, as [`TypedKeyspace::prefix`].
    pub fn prefix(&self, prefix: impl KeyPrefix<K>) -> TypedRange<K, V> {
        let range = self.snapshot.prefix(self.inner(), record::prefix(prefix));
        TypedRange::new(self.inner(), range)
    }

    /// The first record, as [`TypedKeyspace::first`].
    pub fn first(&self) -> Result<Option<(K, V)>> {
        let mut cursor = self.cursor()?;
        cursor.seek_to_first()?;
        cursor.record()
    }

    /// The last record, as [`TypedKeyspace::last`].
    pub fn last(&self) -> Result<Option<(K, V)>> {
        let mut cursor = self.cursor()?;
        cursor.seek_to_last()?;
        cursor.record()
    }

    /// A cursor over the keys, as [`TypedKeyspace::cursor`].
    pub fn cursor(&self) -> Result<TypedCursor<K, V>> {
        Ok(TypedCursor::new(self.inner(), self.snapshot.cursor(self.inner())?))
    }

    /// The number of keys. Cost: reads all of them.
    pub fn count(&self) -> Result<u64> {
        self.snapshot.count(self.inner())
    }

    /// The record at `position`, as [`TypedKeyspace::nth`].
    pub fn nth(&self, position: u64) -> Result<Option<(K, V)>> {
        let record = self.snapshot.nth(self.inner(), position)?;
        record.map(|bytes| record::both(self.inner(), bytes)).transpose()
    }

    /// How many records have a key below `key`, as [`TypedKeyspace::rank`].
    pub fn rank(&self, key: impl EncodeKey<K>) -> Result<u64> {
        self.snapshot.rank(self.inner(), key.encoded(&mut KeyWriter::new()))
    }
}

impl<K, V> Clone for TypedSnapshot<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for TypedSnapshot<'_, K, V> {}

impl<K: KeyCodec, V: ValueCodec> fmt::Debug for TypedSnapshot<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}", self.keyspace, self.snapshot)
    }
}
