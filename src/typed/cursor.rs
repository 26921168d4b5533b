//! A cursor over typed records.

use std::fmt;
use std::marker::PhantomData;

use super::key::{EncodeKey, KeyCodec, KeyWriter};
use super::record;
use super::value::ValueCodec;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::keyspace::Keyspace;

/// A [`Cursor`] that takes and gives keys and values as their types.
pub struct TypedCursor<K, V> {
    inner: Cursor,
    keyspace: Keyspace,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: KeyCodec, V: ValueCodec> TypedCursor<K, V> {
    pub(super) fn new(keyspace: &Keyspace, inner: Cursor) -> Self {
        Self { inner, keyspace: keyspace.clone(), types: PhantomData }
    }

    /// Moves to the first record.
    ///
    /// # Errors
    /// Those of [`Cursor`]'s move; so for every move.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.inner.seek_to_first()
    }

    /// Moves to the last record.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.inner.seek_to_last()
    }

    /// Moves to the first record whose key is not below `key`, as [`Cursor::seek`].
    pub fn seek(&mut self, key: impl EncodeKey<K>) -> Result<()> {
        self.inner.seek(key.encoded(&mut KeyWriter::new()))
    }

    /// Moves to the last record whose key is not above `key`, as [`Cursor::seek_for_prev`].
    pub fn seek_for_prev(&mut self, key: impl EncodeKey<K>) -> Result<()> {
        self.inner.seek_for_prev(key.encoded(&mut KeyWriter::new()))
    }

    /// Moves to the next record.
    // As that of a cursor, it can turn back.
    #[expect(clippy::should_implement_trait, reason = "a cursor is not an iterator")]
    pub fn next(&mut self) -> Result<()> {
        self.inner.next()
    }

    /// Moves to the record in front of this one.
    pub fn prev(&mut self) -> Result<()> {
        self.inner.prev()
    }

    /// Whether the cursor is on a record.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// The key of the record the cursor is on. Panics outside.
    ///
    /// # Errors
    /// `Decode`, after which the cursor can be moved on.
    pub fn key(&self) -> Result<K> {
        record::key(&self.keyspace, self.inner.key())
    }

    /// Its value. Panics outside.
    ///
    /// # Errors
    /// As [`key`](Self::key).
    pub fn value(&self) -> Result<V> {
        record::value(&self.keyspace, self.inner.key(), self.inner.value_slice())
    }

    /// The record the cursor is on; `None` outside.
    ///
    /// # Errors
    /// As [`key`](Self::key).
    pub fn record(&self) -> Result<Option<(K, V)>> {
        if !self.is_valid() {
            return Ok(None);
        }
        Ok(Some((self.key()?, self.value()?)))
    }
}

impl<K, V> fmt::Debug for TypedCursor<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Typed{:?}", self.inner)
    }
}
