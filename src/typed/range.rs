//! A range of typed records.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;

use super::key::KeyCodec;
use super::record;
use super::value::ValueCodec;
use crate::base::Slice;
use crate::cursor::Range;
use crate::error::Result;
use crate::keyspace::Keyspace;

/// The keys and values of a range, in order, from either end: a [`Range`] that reads them as their types. Items are
/// `Result`s; after an error of the range the iterator ends. A record that cannot be read as its types is an error in its
/// place, and the ones behind it follow.
#[must_use = "a range reads nothing until it is iterated"]
pub struct TypedRange<K, V> {
    inner: Range,
    keyspace: Keyspace,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: KeyCodec, V: ValueCodec> TypedRange<K, V> {
    pub(super) fn new(keyspace: &Keyspace, inner: Range) -> Self {
        Self { inner, keyspace: keyspace.clone(), types: PhantomData }
    }

    #[inline]
    fn read(&self, item: Result<(Slice, Slice)>) -> Result<(K, V)> {
        record::both(&self.keyspace, item?)
    }
}

impl<K: KeyCodec, V: ValueCodec> Iterator for TypedRange<K, V> {
    type Item = Result<(K, V)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let item = self.inner.next()?;
        Some(self.read(item))
    }
}

impl<K: KeyCodec, V: ValueCodec> DoubleEndedIterator for TypedRange<K, V> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let item = self.inner.next_back()?;
        Some(self.read(item))
    }
}

impl<K: KeyCodec, V: ValueCodec> FusedIterator for TypedRange<K, V> {}

impl<K, V> fmt::Debug for TypedRange<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Typed{:?}", self.inner)
    }
}
