//! Cursors and ranges: walking over the records of a keyspace.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use crate::base::{Bounds, Slice};
use crate::database::Handle;
use crate::error::{Error, Result};
use crate::iter::{OrderedCursor, UnorderedCursor};
use crate::keyspace::{Held, Keyspace};

/// A position among the records of a keyspace, as they were when the cursor was made, or outside of them.
///
/// A key has one record. Only in a skip keyspace with [`Reducer::KeepAll`](crate::Reducer::KeepAll) it has one for each of
/// its values: they follow each other in the order they were put, and a step goes from one to the next.
///
/// A new cursor is outside. Seeking where there is nothing, and stepping over either end, leaves it
/// outside; a step from outside stays there. After an error the cursor gives the same error again.
pub struct Cursor {
    inner: Box<dyn OrderedCursor>,
    failed: Option<Error>,
    database: Arc<Handle>,
}

impl Cursor {
    pub(crate) fn new(inner: Box<dyn OrderedCursor>, database: Arc<Handle>) -> Self {
        Self { inner, failed: None, database }
    }

    fn go(&mut self, step: impl FnOnce(&mut dyn OrderedCursor) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.database.check_open()?;
        let moved = step(&mut *self.inner).and_then(|()| self.inner.fetch());
        moved.inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Moves to the first record.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`]; so for every move.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.go(|cursor| cursor.seek_to_first())
    }

    /// Moves to the last record.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.go(|cursor| cursor.seek_to_last())
    }

    /// Moves to the first record whose key is not below `key`: of several values, to the oldest.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.go(|cursor| cursor.seek(key.as_ref()))
    }

    /// Moves to the last record whose key is not above `key`: of several values, to the newest.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.go(|cursor| cursor.seek_for_prev(key.as_ref()))
    }

    /// Moves to the next record: of the next larger key, or the next value of this one.
    // A cursor is not an iterator: it lends key and value, and can turn back.
    #[expect(clippy::should_implement_trait, reason = "a cursor lends what it stands on")]
    pub fn next(&mut self) -> Result<()> {
        self.step(|cursor| cursor.next())
    }

    /// Moves to the record in front of this one.
    pub fn prev(&mut self) -> Result<()> {
        self.step(|cursor| cursor.prev())
    }

    fn step(&mut self, step: impl FnOnce(&mut dyn OrderedCursor) -> Result<()>) -> Result<()> {
        self.go(|cursor| if cursor.is_valid() { step(cursor) } else { Ok(()) })
    }

    /// Whether the cursor is on a record.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.failed.is_none() && self.inner.is_valid()
    }

    /// The key of the record the cursor is on. Panics outside.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        assert!(self.is_valid(), "the cursor is on no record");
        self.inner.key()
    }

    /// Its value. Panics outside.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        assert!(self.is_valid(), "the cursor is on no record");
        self.inner.value()
    }

    /// The same, lent for longer. Panics outside.
    pub(crate) fn value_slice(&self) -> Slice {
        assert!(self.is_valid(), "the cursor is on no record");
        self.inner.value_slice()
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("is_valid", &self.is_valid()).finish_non_exhaustive()
    }
}

/// The keys and values of a range, in order, from either end. Items are `Result`s; after an error the
/// iterator ends.
///
/// A key that has several values, as in a skip keyspace with [`Reducer::KeepAll`](crate::Reducer::KeepAll), comes with each
/// of them, in the order they were put. The ends may meet between two of them: each value is given once.
///
/// It shows one moment, however long it takes, and keeps on disk what it sees while it lives.
///
/// Over a keyspace without order only the range of everything can be iterated, from the front, and gives keys in
/// any order. What else is asked of it is an error of kind [`Unsupported`](crate::ErrorKind::Unsupported).
#[must_use = "a range reads nothing until it is iterated"]
pub struct Range {
    source: Option<Source>,
    failed: Option<Error>,
    front: Option<Box<dyn OrderedCursor>>,
    back: Option<Box<dyn OrderedCursor>>,
    /// Instead of the two where keys have no order.
    walk: Option<Box<dyn UnorderedCursor>>,
}

struct Source {
    keyspace: Keyspace,
    bounds: Bounds,
    held: Held,
}

impl Range {
    pub(crate) fn new(keyspace: Keyspace, bounds: Bounds, held: Held) -> Self {
        let source = Some(Source { keyspace, bounds, held });
        Self { source, failed: None, front: None, back: None, walk: None }
    }

    /// A range whose only item is an error.
    pub(crate) fn failed(error: Error) -> Self {
        Self { source: None, failed: Some(error), front: None, back: None, walk: None }
    }

    fn end<T>(&mut self) -> Option<T> {
        self.source = None;
        (self.front, self.back, self.walk) = (None, None, None);
        None
    }

    /// Moves the front cursor on and gives what it is on, if that is in the range.
    #[inline]
    fn step_front<I: Item>(&mut self) -> Result<Option<I>> {
        let Some(source) = &self.source else { return Ok(None) };
        source.held.database().check_open()?;
        if self.walk.is_none() && self.front.is_none() && source.is_everything_in_any_order() {
            self.walk = Some(source.keyspace.target().engine.scan(source.held.seqno())?);
        }
        if let Some(walk) = &mut self.walk {
            return Ok(walk.next()?.map(I::of));
        }
        let cursor = match &mut self.front {
            Some(cursor) => {
                cursor.next()?;
                cursor
            }
            None => self.front.insert(source.first()?),
        };
        if !cursor.is_valid() || !source.bounds.holds_below(cursor.key()) {
            return Ok(None);
        }
        if self.back.as_deref().is_some_and(|back| have_met(&**cursor, back)) {
            return Ok(None);
        }
        I::at(&mut **cursor).map(Some)
    }

    #[inline]
    fn step_back<I: Item>(&mut self) -> Result<Option<I>> {
        let Some(source) = &self.source else { return Ok(None) };
        source.held.database().check_open()?;
        let cursor = match &mut self.back {
            Some(cursor) => {
                cursor.prev()?;
                cursor
            }
            None => self.back.insert(source.last()?),
        };
        if !cursor.is_valid() || !source.bounds.reaches(cursor.key()) {
            return Ok(None);
        }
        if self.front.as_deref().is_some_and(|front| have_met(front, &**cursor)) {
            return Ok(None);
        }
        I::at(&mut **cursor).map(Some)
    }

    #[inline]
    fn item<I>(&mut self, step: impl FnOnce(&mut Self) -> Result<Option<I>>) -> Option<Result<I>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        match step(self) {
            Ok(Some(item)) => Some(Ok(item)),
            Ok(None) => self.end(),
            Err(error) => {
                self.end::<()>();
                Some(Err(error))
            }
        }
    }
}

impl Source {
    /// Whether the range is all of a keyspace without order.
    fn is_everything_in_any_order(&self) -> bool {
        !self.keyspace.target().engine.is_ordered() && self.bounds.is_everything()
    }

    /// A cursor on the first record that is not below the range.
    fn first(&self) -> Result<Box<dyn OrderedCursor>> {
        let mut cursor = self.keyspace.target().engine.cursor(self.held.point())?;
        match &self.bounds.lower {
            Bound::Unbounded => cursor.seek_to_first()?,
            Bound::Included(key) => cursor.seek(key)?,
            Bound::Excluded(key) => {
                cursor.seek(key)?;
                while cursor.is_valid() && cursor.key() == &key[..] {
                    cursor.next()?;
                }
            }
        }
        Ok(cursor)
    }

    /// A cursor on the last record that is not above the range.
    fn last(&self) -> Result<Box<dyn OrderedCursor>> {
        let mut cursor = self.keyspace.target().engine.cursor(self.held.point())?;
        match &self.bounds.upper {
            Bound::Unbounded => cursor.seek_to_last()?,
            Bound::Excluded(key) => cursor.seek_before(key)?,
            Bound::Included(key) => cursor.seek_for_prev(key)?,
        }
        Ok(cursor)
    }
}

/// Whether `front`, which came from the front, is where `back` is, or behind it: what one of them is on, the other has
/// given. Of a key's values both have the same, of one moment.
#[inline]
fn have_met(front: &dyn OrderedCursor, back: &dyn OrderedCursor) -> bool {
    front.is_valid()
        && back.is_valid()
        && match front.key().cmp(back.key()) {
            Ordering::Less => false,
            Ordering::Equal => front.index() >= back.index(),
            Ordering::Greater => true,
        }
}

impl Iterator for Range {
    type Item = Result<(Slice, Slice)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.item(Self::step_front)
    }
}

impl DoubleEndedIterator for Range {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.item(Self::step_back)
    }
}

impl std::iter::FusedIterator for Range {}

impl Range {
    /// The keys alone, with what is left of the range. Where values are
    /// [kept apart](crate::KeyspaceOptions::separate_values), none of them is read.
    pub fn keys(self) -> Keys {
        Keys(self)
    }
}

/// The keys of a range, in order, from either end. Else it is like a [`Range`].
#[must_use = "a range reads nothing until it is iterated"]
#[derive(Debug)]
pub struct Keys(Range);

impl Iterator for Keys {
    type Item = Result<Slice>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.item(Range::step_front)
    }
}

impl DoubleEndedIterator for Keys {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.item(Range::step_back)
    }
}

impl std::iter::FusedIterator for Keys {}

/// What is wanted of a record.
trait Item: Sized {
    /// That of the record the cursor is on.
    fn at(cursor: &mut dyn OrderedCursor) -> Result<Self>;
    /// That of a record which is here.
    fn of(record: (Slice, Slice)) -> Self;
}

/// Key and value.
impl Item for (Slice, Slice) {
    #[inline]
    fn at(cursor: &mut dyn OrderedCursor) -> Result<Self> {
        cursor.fetch()?;
        Ok((Slice::from(cursor.key()), cursor.value_slice()))
    }

    fn of(record: (Slice, Slice)) -> Self {
        record
    }
}

/// The key.
impl Item for Slice {
    #[inline]
    fn at(cursor: &mut dyn OrderedCursor) -> Result<Self> {
        Ok(Self::from(cursor.key()))
    }

    fn of((key, _): (Slice, Slice)) -> Self {
        key
    }
}

impl std::fmt::Debug for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bounds = self.source.as_ref().map(|source| &source.bounds);
        f.debug_struct("Range").field("bounds", &bounds).finish_non_exhaustive()
    }
}
