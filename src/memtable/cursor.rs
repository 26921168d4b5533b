//! A position in a memtable.
//!
//! Where it goes is the memtable's kind's business; where it is, is an entry, whose bytes it gives without asking the kind.
//!
//! Thread safety: it belongs to one thread at a time. The memtable may be written to beside it.

use super::entry::Entry;
use crate::base::{Slice, Trailer};
use crate::error::Result;
use crate::iter::EntryCursor;

/// Where to go.
#[derive(Clone, Copy)]
pub(super) enum Seek<'a> {
    First,
    Last,
    /// The first entry that is not before this one.
    NotBefore(&'a [u8], Trailer),
    /// The last entry before this one.
    Before(&'a [u8], Trailer),
}

/// Which way to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Forward,
    Backward,
}

/// What moves a cursor. It keeps the memtable alive.
pub(super) trait Steps: Send {
    fn seek(&mut self, to: Seek<'_>) -> Option<Entry<'_>>;
    /// To the entry beside the one that the last call gave.
    fn step(&mut self, way: Way) -> Option<Entry<'_>>;
    /// A slice of an entry's value.
    fn slice(&self, value: &[u8]) -> Slice;
}

/// A position in a memtable: the entries there are when it is placed by a seek; those added later may or may not show.
pub(crate) struct MemtableCursor {
    /// In the memory of the memtable that `steps` keeps alive.
    entry: Option<Entry<'static>>,
    steps: Box<dyn Steps>,
}

impl MemtableCursor {
    pub(super) fn new(steps: Box<dyn Steps>) -> Self {
        Self { entry: None, steps }
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.entry.expect("the cursor must be on an entry")
    }

    #[inline]
    fn go(&mut self, go: impl FnOnce(&mut dyn Steps) -> Option<Entry<'_>>) -> Result<()> {
        // SAFETY: the entry is used as long as `steps` is there, which keeps its memtable.
        self.entry = go(&mut *self.steps).map(|entry| unsafe { entry.for_long() });
        Ok(())
    }
}

impl EntryCursor for MemtableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.go(|steps| steps.seek(Seek::First))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.go(|steps| steps.seek(Seek::Last))
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.go(|steps| steps.seek(Seek::NotBefore(key, trailer)))
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.go(|steps| steps.seek(Seek::Before(key, trailer)))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.go(|steps| steps.step(Way::Forward))
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.go(|steps| steps.step(Way::Backward))
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.entry.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.entry().key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.entry().trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.entry().value()
    }

    fn value_slice(&self) -> Slice {
        self.steps.slice(self.value())
    }
}
