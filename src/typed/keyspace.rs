//! A keyspace with types for keys and values.

use std::fmt;
use std::marker::PhantomData;

use super::buffer::Buffer;
use super::cursor::TypedCursor;
use super::key::{EncodeKey, KeyCodec, KeyWriter};
use super::key_range::KeyRange;
use super::prefix::KeyPrefix;
use super::range::TypedRange;
use super::record;
use super::snapshot::TypedSnapshot;
use super::value::{EncodeValue, ValueCodec};
use crate::catalog::Types;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::options::{Durability, KeyspaceOptions};
use crate::snapshot::Snapshot;

/// The longest name of a type, in bytes.
const MAX_TYPE_NAME_LEN: usize = 4096;

/// A [`Keyspace`] whose keys are of type `K` and whose values are of type `V`. The module says which
/// [types](super#keys) there are, and how to add others.
///
/// Calls cost what those of the keyspace do, and encoding and decoding: keys and values of up to 64 bytes are encoded
/// without taking memory, and text and bytes, as whole keys or values, without a copy.
///
/// Reading is an error of kind [`Decode`](crate::ErrorKind::Decode) where bytes are not of the type; else errors are
/// those of the keyspace's call.
pub struct TypedKeyspace<K, V> {
    inner: Keyspace,
    types: PhantomData<fn() -> (K, V)>,
}

impl Database {
    /// Opens the keyspace called `name` with keys of type `K` and values of type `V`, creating it with `options` if there
    /// is none. The names of the types are noted if they have not been. Of a keyspace that was used without types, it is
    /// up to the caller that what is in it is of these.
    ///
    /// ```
    /// # fn main() -> turbidite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = turbidite::Database::open(dir.path().join("my.db"))?;
    /// use turbidite::{ErrorKind, KeyspaceOptions};
    ///
    /// let names = db.typed_keyspace::<u64, String>("names", KeyspaceOptions::lsm())?;
    /// names.put(1815, "Ada")?;
    /// assert_eq!(names.get(1815)?.as_deref(), Some("Ada"));
    ///
    /// let other = db.typed_keyspace::<u32, String>("names", KeyspaceOptions::lsm());
    /// assert_eq!(other.unwrap_err().kind(), ErrorKind::Invalid);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`keyspace`](Self::keyspace); `Invalid` if the keyspace is noted with other types, or the name of a type
    /// is longer than 4096 bytes.
    pub fn typed_keyspace<K: KeyCodec, V: ValueCodec>(
        &self,
        name: &str,
        options: KeyspaceOptions,
    ) -> Result<TypedKeyspace<K, V>> {
        let inner = self.keyspace_of(name, options, Some(types::<K, V>()?))?;
        Ok(TypedKeyspace { inner, types: PhantomData })
    }
}

impl Keyspace {
    /// This keyspace with keys of type `K` and values of type `V`. Notes nothing: see [`Database::typed_keyspace`].
    ///
    /// # Errors
    /// `Invalid` if the keyspace is noted with other types, or the name of a type is longer than 4096 bytes; `Closed`.
    pub fn typed<K: KeyCodec, V: ValueCodec>(&self) -> Result<TypedKeyspace<K, V>> {
        self.check_types(&types::<K, V>()?)?;
        Ok(TypedKeyspace { inner: self.clone(), types: PhantomData })
    }
}

fn types<K: KeyCodec, V: ValueCodec>() -> Result<Types> {
    let types = Types { key: K::name(), value: V::name() };
    match types.key.len().max(types.value.len()) {
        ..=MAX_TYPE_NAME_LEN => Ok(types),
        len => Err(Error::Invalid(format!(
            "a name of {len} bytes for a type of keys or values: {MAX_TYPE_NAME_LEN} are the most"
        ))),
    }
}

impl<K: KeyCodec, V: ValueCodec> TypedKeyspace<K, V> {
    /// The keyspace's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The keyspace without types: what it has more, as [`persist`](Keyspace::persist) and [`stats`](Keyspace::stats), and
    /// its bytes as they are.
    #[must_use]
    pub fn inner(&self) -> &Keyspace {
        &self.inner
    }

    /// This keyspace as it was when `snapshot` was taken.
    #[must_use]
    pub fn at<'a>(&'a self, snapshot: &'a Snapshot) -> TypedSnapshot<'a, K, V> {
        TypedSnapshot::new(self, snapshot)
    }

    // ---- writing ----

    /// Gives `key` the value `value`, as [`Keyspace::put`].
    ///
    /// # Errors
    /// Those of [`Keyspace::put`]; `Invalid` if the value cannot be encoded.
    #[inline]
    pub fn put(&self, key: impl EncodeKey<K>, value: impl EncodeValue<V>) -> Result<()> {
        let (mut key_out, mut value_out) = (KeyWriter::new(), Buffer::new());
        self.inner.put(key.encoded(&mut key_out), value.encoded(&mut value_out)?)
    }

    /// Like [`put`](Self::put), with a durability of its own.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_with(
        &self,
        key: impl EncodeKey<K>,
        value: impl EncodeValue<V>,
        durability: Durability,
    ) -> Result<()> {
        let (mut key_out, mut value_out) = (KeyWriter::new(), Buffer::new());
        let value = value.encoded(&mut value_out)?;
        self.inner.put_with(key.encoded(&mut key_out), value, durability)
    }

    /// Removes `key`; it is no error if it is not there. As [`Keyspace::delete`].
    ///
    /// # Errors
    /// Those of [`Keyspace::delete`].
    #[inline]
    pub fn delete(&self, key: impl EncodeKey<K>) -> Result<()> {
        self.inner.delete(key.encoded(&mut KeyWriter::new()))
    }

    /// Like [`delete`](Self::delete), with a durability of its own.
    ///
    /// # Errors
    /// Those of [`delete`](Self::delete).
    pub fn delete_with(&self, key: impl EncodeKey<K>, durability: Durability) -> Result<()> {
        self.inner.delete_with(key.encoded(&mut KeyWriter::new()), durability)
    }

    /// Removes all keys in `range`, as [`Keyspace::delete_range`].
    ///
    /// # Errors
    /// Those of [`Keyspace::delete_range`].
    pub fn delete_range(&self, range: impl KeyRange<K>) -> Result<()> {
        self.inner.delete_range(range.encoded())
    }

    /// Like [`delete_range`](Self::delete_range), with a durability of its own.
    ///
    /// # Errors
    /// Those of [`delete_range`](Self::delete_range).
    pub fn delete_range_with(&self, range: impl KeyRange<K>, durability: Durability) -> Result<()> {
        self.inner.delete_range_with(range.encoded(), durability)
    }

    /// Removes all keys that begin with `prefix`, as [`Keyspace::delete_prefix`]; see [`prefix`](Self::prefix).
    ///
    /// # Errors
    /// Those of [`Keyspace::delete_prefix`].
    pub fn delete_prefix(&self, prefix: impl KeyPrefix<K>) -> Result<()> {
        self.inner.delete_prefix(record::prefix(prefix))
    }

    /// Writes many records whose keys ascend, as [`Keyspace::load_sorted`]. Gives how many there were.
    ///
    /// # Errors
    /// Those of [`Keyspace::load_sorted`]; `Invalid` if a value cannot be encoded. After an error none of the records is
    /// there, as with that call.
    pub fn load_sorted<Q: EncodeKey<K>, R: EncodeValue<V>>(
        &self,
        records: impl IntoIterator<Item = (Q, R)>,
    ) -> Result<u64> {
        self.inner.load_results(records.into_iter().map(|(key, value)| {
            let mut out = Buffer::new();
            value.encode(&mut out)?;
            Ok((KeyWriter::of(key), out))
        }))
    }

    // ---- reading ----

    /// The value of `key`, as [`Keyspace::get`].
    ///
    /// # Errors
    /// Those of [`Keyspace::get`]; `Decode`. So with all that read.
    #[inline]
    pub fn get(&self, key: impl EncodeKey<K>) -> Result<Option<V>> {
        let mut out = KeyWriter::new();
        let key = key.encoded(&mut out);
        self.inner.get(key)?.map(|value| record::value(&self.inner, key, value)).transpose()
    }

    /// All values of `key`, as [`Keyspace::get_all`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_all(&self, key: impl EncodeKey<K>) -> Result<Vec<V>> {
        let mut out = KeyWriter::new();
        let key = key.encoded(&mut out);
        record::values(&self.inner, key, self.inner.get_all(key)?)
    }

    /// Whether `key` has a value, as [`Keyspace::contains`].
    ///
    /// # Errors
    /// Those of [`Keyspace::contains`].
    pub fn contains(&self, key: impl EncodeKey<K>) -> Result<bool> {
        self.inner.contains(key.encoded(&mut KeyWriter::new()))
    }

    /// The values of several keys, in the order of the keys, all of the same moment. As [`Keyspace::multi_get`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get), if any of the keys meets one.
    pub fn multi_get<Q: EncodeKey<K>>(
        &self,
        keys: impl IntoIterator<Item = Q>,
    ) -> Result<Vec<Option<V>>> {
        let keys: Vec<KeyWriter> = keys.into_iter().map(KeyWriter::of).collect();
        record::found(&self.inner, &keys, self.inner.multi_get(&keys)?)
    }

    /// All keys and values of this moment; in order, unless the keyspace has none.
    pub fn iter(&self) -> TypedRange<K, V> {
        TypedRange::new(&self.inner, self.inner.iter())
    }

    /// The keys in `range` and their values, in order, of this moment. As [`Keyspace::range`].
    pub fn range(&self, range: impl KeyRange<K>) -> TypedRange<K, V> {
        TypedRange::new(&self.inner, self.inner.range(range.encoded()))
    }

    /// The keys that begin with `prefix` and their values, in order, of this moment: of tuples those with these first
    /// parts, of text and bytes those that start so. As [`Keyspace::prefix`].
    ///
    /// ```
    /// # fn main() -> turbidite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = turbidite::Database::open(dir.path().join("my.db"))?;
    /// # use turbidite::KeyspaceOptions;
    /// let orders = db.typed_keyspace::<(String, u16, u8), ()>("orders", KeyspaceOptions::lsm())?;
    /// for key in [("ada", 2024, 1), ("ada", 2024, 2), ("ada", 2025, 1), ("adam", 2024, 1)] {
    ///     orders.put(key, ())?;
    /// }
    /// assert_eq!(orders.prefix(("ada",)).count(), 3);
    /// assert_eq!(orders.prefix(("ada", 2024)).count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn prefix(&self, prefix: impl KeyPrefix<K>) -> TypedRange<K, V> {
        TypedRange::new(&self.inner, self.inner.prefix(record::prefix(prefix)))
    }

    /// The first record. Cost: that of a search.
    ///
    /// # Errors
    /// Those of [`get`](Self::get); `Unsupported` in a hash keyspace.
    pub fn first(&self) -> Result<Option<(K, V)>> {
        let mut cursor = self.cursor()?;
        cursor.seek_to_first()?;
        cursor.record()
    }

    /// The last record. Cost and errors as [`first`](Self::first).
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    pub fn last(&self) -> Result<Option<(K, V)>> {
        let mut cursor = self.cursor()?;
        cursor.seek_to_last()?;
        cursor.record()
    }

    /// A cursor over the keys of this moment, as [`Keyspace::cursor`].
    ///
    /// # Errors
    /// Those of [`Keyspace::cursor`].
    pub fn cursor(&self) -> Result<TypedCursor<K, V>> {
        Ok(TypedCursor::new(&self.inner, self.inner.cursor()?))
    }

    /// The number of keys, as [`Keyspace::count`].
    ///
    /// # Errors
    /// Those of [`Keyspace::count`].
    pub fn count(&self) -> Result<u64> {
        self.inner.count()
    }

    /// The record at `position`, as [`Keyspace::nth`].
    ///
    /// # Errors
    /// Those of [`Keyspace::nth`]; `Decode`.
    pub fn nth(&self, position: u64) -> Result<Option<(K, V)>> {
        self.inner.nth(position)?.map(|bytes| record::both(&self.inner, bytes)).transpose()
    }

    /// How many records have a key below `key`, as [`Keyspace::rank`].
    ///
    /// # Errors
    /// Those of [`Keyspace::rank`].
    pub fn rank(&self, key: impl EncodeKey<K>) -> Result<u64> {
        self.inner.rank(key.encoded(&mut KeyWriter::new()))
    }
}

impl<K, V> Clone for TypedKeyspace<K, V> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), types: PhantomData }
    }
}

impl<K: KeyCodec, V: ValueCodec> fmt::Debug for TypedKeyspace<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypedKeyspace({:?}, {} -> {})", self.name(), K::name(), V::name())
    }
}
