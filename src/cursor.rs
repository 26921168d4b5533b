//! Cursors and ranges: walking over the records of a keyspace.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use crate::base::{Bounds, Slice};
use crate::database::Handle;
use crate::error::{Error, Result};
use crate::iter::{OrderedCursor, UnorderedCursor};
use crate::keyspace::{Held, Keyspace};
use crate::planted::{Bug, planted};

/// A position among the records of a keyspace, as they were when the cursor was made, or outside of them.
///
/// A key has one record. Only in a skip keyspace with [`Reducer::KeepAll`](crate::Reducer::KeepAll) it has one for each of
/// its values: they follow each other in the order they were put, and a step goes from one to the next.
///
/// A new cursor is outside. Seeking where there is nothing, and stepping over either end, leaves it
/// outside; a step from outside stays there. After an error the cursor gives the same error again, and after a move that
/// ended by a panic, as of a reducer, it gives one, too.
pub struct Cursor {
    inner: Box<dyn OrderedCursor>,
    /// Whether it is on a record.
    is_valid: bool,
    /// Whether it is being moved. If it is before a move, the last one did not come to its end.
    is_moving: bool,
    failed: Option<Error>,
    database: Arc<Handle>,
}

impl Cursor {
    pub(crate) fn new(inner: Box<dyn OrderedCursor>, database: Arc<Handle>) -> Self {
        Self { inner, is_valid: false, is_moving: false, failed: None, database }
    }

    #[inline]
    fn go(&mut self, step: impl FnOnce(&mut dyn OrderedCursor) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.database.check_open()?;
        if self.is_moving {
            return Err(self.fail(not_moved()));
        }
        self.is_moving = true;
        self.is_valid = false;
        if let Err(error) = step(&mut *self.inner) {
            return Err(self.fail(error));
        }
        if let Err(error) = self.inner.fetch() {
            return Err(self.fail(error));
        }
        self.is_valid = self.inner.is_valid();
        self.is_moving = false;
        Ok(())
    }

    /// Keeps the error for the moves to come.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.failed = Some(error.clone());
        error
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
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.step(|cursor| cursor.next())
    }

    /// Moves to the record in front of this one.
    pub fn prev(&mut self) -> Result<()> {
        self.step(|cursor| cursor.prev())
    }

    #[inline]
    fn step(&mut self, step: impl FnOnce(&mut dyn OrderedCursor) -> Result<()>) -> Result<()> {
        let is_valid = self.is_valid;
        self.go(|cursor| if is_valid { step(cursor) } else { Ok(()) })
    }

    /// Whether the cursor is on a record.
    #[must_use]
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.is_valid
    }

    /// The key of the record the cursor is on. Panics outside.
    #[must_use]
    #[inline]
    pub fn key(&self) -> &[u8] {
        assert!(self.is_valid, "the cursor is on no record");
        self.inner.key()
    }

    /// Its value. Panics outside.
    #[must_use]
    #[inline]
    pub fn value(&self) -> &[u8] {
        assert!(self.is_valid, "the cursor is on no record");
        self.inner.value()
    }

    /// The same, lent for longer. Panics outside.
    pub(crate) fn value_slice(&self) -> Slice {
        assert!(self.is_valid, "the cursor is on no record");
        self.inner.value_slice()
    }
}

/// What stands where a panic has left it is not where it was to go.
#[cold]
fn not_moved() -> Error {
    Error::Invalid("its last move ended by a panic: begin with another cursor or range".into())
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("is_valid", &self.is_valid()).finish_non_exhaustive()
    }
}

/// The keys and values of a range, in order, from either end. Items are `Result`s; after an error the
/// iterator ends. After a panic in it, as of a reducer, what comes next is an error.
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
    /// Whether an item is being found. If it is before that, the last one was not found.
    is_moving: bool,
}

struct Source {
    keyspace: Keyspace,
    bounds: Bounds,
    held: Held,
}

impl Range {
    pub(crate) fn new(keyspace: Keyspace, bounds: Bounds, held: Held) -> Self {
        let source = Some(Source { keyspace, bounds, held });
        Self { source, failed: None, front: None, back: None, walk: None, is_moving: false }
    }

    /// A range whose only item is an error.
    pub(crate) fn failed(error: Error) -> Self {
        let (source, failed) = (None, Some(error));
        Self { source, failed, front: None, back: None, walk: None, is_moving: false }
    }

    /// Lets go of what it holds: there is no further item.
    fn end<T>(&mut self) -> Option<T> {
        self.source = None;
        (self.front, self.back, self.walk) = (None, None, None);
        None
    }

    /// The last item.
    #[cold]
    fn fail<I>(&mut self, error: Error) -> Option<Result<I>> {
        self.end::<()>();
        if planted(Bug::EndRangeAtError) {
            return None;
        }
        Some(Err(error))
    }

    /// Moves the front cursor on. Whether it is in the range then.
    #[inline]
    fn move_front(&mut self) -> Result<bool> {
        let Some(source) = &self.source else { return Ok(false) };
        source.held.database().check_open()?;
        let cursor = match &mut self.front {
            Some(cursor) => {
                cursor.next()?;
                cursor
            }
            None => self.front.insert(source.first()?),
        };
        let back = self.back.as_deref();
        Ok(cursor.is_valid()
            && source.bounds.holds_below(cursor.key())
            && !back.is_some_and(|back| have_met(&**cursor, back)))
    }

    #[inline]
    fn move_back(&mut self) -> Result<bool> {
        let Some(source) = &self.source else { return Ok(false) };
        source.held.database().check_open()?;
        let cursor = match &mut self.back {
            Some(cursor) => {
                cursor.prev()?;
                cursor
            }
            None => self.back.insert(source.last()?),
        };
        let front = self.front.as_deref();
        Ok(cursor.is_valid()
            && source.bounds.reaches(cursor.key())
            && !front.is_some_and(|front| have_met(front, &**cursor)))
    }

    /// Finds an item, unless the last one was not found.
    #[inline]
    fn find<I>(&mut self, item: impl FnOnce(&mut Self) -> Option<Result<I>>) -> Option<Result<I>> {
        let found = match std::mem::replace(&mut self.is_moving, true) {
            false => item(self),
            true => self.fail(not_moved()),
        };
        self.is_moving = false;
        found
    }

    #[inline]
    fn next_item<I: Item>(&mut self) -> Option<Result<I>> {
        self.find(Self::front_item)
    }

    #[inline]
    fn next_back_item<I: Item>(&mut self) -> Option<Result<I>> {
        self.find(Self::back_item)
    }

    #[inline]
    fn front_item<I: Item>(&mut self) -> Option<Result<I>> {
        if self.front.is_none() && !self.is_in_order() {
            return self.walked();
        }
        match self.move_front() {
            Ok(true) => {}
            Ok(false) => return self.end(),
            Err(error) => return self.fail(error),
        }
        let cursor = self.front.as_deref_mut()?;
        if let Err(error) = I::fetch(cursor) {
            return self.fail(error);
        }
        Some(Ok(I::at(cursor)))
    }

    #[inline]
    fn back_item<I: Item>(&mut self) -> Option<Result<I>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        match self.move_back() {
            Ok(true) => {}
            Ok(false) => return self.end(),
            Err(error) => return self.fail(error),
        }
        let cursor = self.back.as_deref_mut()?;
        if let Err(error) = I::fetch(cursor) {
            return self.fail(error);
        }
        Some(Ok(I::at(cursor)))
    }

    /// Whether a cursor gives what comes next. False if it is an error, or something in any order.
    fn is_in_order(&self) -> bool {
        let in_any_order = self.source.as_ref().is_some_and(Source::is_everything_in_any_order);
        self.failed.is_none() && !in_any_order
    }

    /// What comes next where no cursor gives it.
    fn walked<I: Item>(&mut self) -> Option<Result<I>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        match self.walk() {
            Ok(Some(record)) => Some(Ok(I::of(record))),
            Ok(None) => self.end(),
            Err(error) => self.fail(error),
        }
    }

    fn walk(&mut self) -> Result<Option<(Slice, Slice)>> {
        let Some(source) = &self.source else { return Ok(None) };
        source.held.database().check_open()?;
        let walk = match &mut self.walk {
            Some(walk) => walk,
            None => {
                let walk = source.keyspace.target().engine.scan(source.held.seqno())?;
                self.walk.insert(walk)
            }
        };
        walk.next()
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
        self.next_item()
    }
}

impl DoubleEndedIterator for Range {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_back_item()
    }
}

impl std::iter::FusedIterator for Range {}

impl Range {
    /// The keys alone, with what is left of the range. Where values are
    /// [kept apart](crate::KeyspaceOptions::separate_values), none of them is read, and those of a skip keyspace are not
    /// [reduced](crate::Reducer).
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
        self.0.next_item()
    }
}

impl DoubleEndedIterator for Keys {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back_item()
    }
}

impl std::iter::FusedIterator for Keys {}

/// What is wanted of a record.
trait Item: Sized {
    /// Brings in what is wanted of the record the cursor is on.
    fn fetch(cursor: &mut dyn OrderedCursor) -> Result<()>;
    /// That of the record the cursor is on.
    fn at(cursor: &dyn OrderedCursor) -> Self;
    /// That of a record which is here.
    fn of(record: (Slice, Slice)) -> Self;
}

/// Key and value.
impl Item for (Slice, Slice) {
    #[inline]
    fn fetch(cursor: &mut dyn OrderedCursor) -> Result<()> {
        cursor.fetch()
    }

    #[inline]
    fn at(cursor: &dyn OrderedCursor) -> Self {
        (Slice::from(cursor.key()), cursor.value_slice())
    }

    fn of(record: (Slice, Slice)) -> Self {
        record
    }
}

/// The key.
impl Item for Slice {
    #[inline]
    fn fetch(_: &mut dyn OrderedCursor) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn at(cursor: &dyn OrderedCursor) -> Self {
        Self::from(cursor.key())
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
