//! Typed writes in batches.

use super::buffer::Buffer;
use super::key::{EncodeKey, KeyCodec, KeyWriter};
use super::key_range::KeyRange;
use super::keyspace::TypedKeyspace;
use super::prefix::KeyPrefix;
use super::record;
use super::value::{EncodeValue, ValueCodec};
use crate::batch::Batch;

impl Batch {
    /// Adds: give `key` of `keyspace` the value `value`. What is wrong with it is told by [`commit`](Self::commit): also
    /// if the value cannot be encoded, which is `Invalid`.
    ///
    /// ```
    /// # fn main() -> turbidite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = turbidite::Database::open(dir.path().join("my.db"))?;
    /// # use turbidite::KeyspaceOptions;
    /// let users = db.typed_keyspace::<u64, String>("users", KeyspaceOptions::lsm())?;
    /// let by_name = db.typed_keyspace::<(String, u64), ()>("users by name", KeyspaceOptions::lsm())?;
    /// let mut batch = db.batch();
    /// batch.put_typed(&users, 1, "Ada").put_typed(&by_name, ("Ada", 1), ());
    /// batch.commit()?;
    /// # Ok(()) }
    /// ```
    pub fn put_typed<K: KeyCodec, V: ValueCodec>(
        &mut self,
        keyspace: &TypedKeyspace<K, V>,
        key: impl EncodeKey<K>,
        value: impl EncodeValue<V>,
    ) -> &mut Self {
        let (mut key_out, mut value_out) = (KeyWriter::new(), Buffer::new());
        match value.encoded(&mut value_out) {
            Ok(value) => _ = self.put(keyspace.inner(), key.encoded(&mut key_out), value),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Adds: remove `key` of `keyspace`.
    pub fn delete_typed<K: KeyCodec, V: ValueCodec>(
        &mut self,
        keyspace: &TypedKeyspace<K, V>,
        key: impl EncodeKey<K>,
    ) -> &mut Self {
        self.delete(keyspace.inner(), key.encoded(&mut KeyWriter::new()))
    }

    /// Adds: remove all keys of `keyspace` that are in `range`, as [`delete_range`](Self::delete_range).
    pub fn delete_range_typed<K: KeyCodec, V: ValueCodec>(
        &mut self,
        keyspace: &TypedKeyspace<K, V>,
        range: impl KeyRange<K>,
    ) -> &mut Self {
        self.delete_range(keyspace.inner(), range.encoded())
    }

    /// Adds: remove all keys of `keyspace` that begin with `prefix`, as [`delete_prefix`](Self::delete_prefix).
    pub fn delete_prefix_typed<K: KeyCodec, V: ValueCodec>(
        &mut self,
        keyspace: &TypedKeyspace<K, V>,
        prefix: impl KeyPrefix<K>,
    ) -> &mut Self {
        self.delete_prefix(keyspace.inner(), record::prefix(prefix))
    }
}
