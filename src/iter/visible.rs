//! From entries to what a reader sees: at most one value for each key, the newest the reader may see, and
//! nothing for a key whose newest entry is a tombstone.
//!
//! Forward, the inner cursor stands on the entry shown. Backward, versions come oldest first, so the inner
//! cursor stands in front of all versions of the key shown, and key and value are kept aside.

use std::sync::Arc;

use super::{EntryCursor, OrderedCursor};
use crate::base::key::{self, Mark};
use crate::base::{Kind, Seqno, Slice, Trailer};
use crate::error::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Position {
    Outside,
    /// The inner cursor is on the entry shown.
    OnEntry,
    /// The entry shown is in `key` and `value`.
    Aside,
}

/// The keys visible at one sequence number.
#[derive(Debug)]
pub(crate) struct Visible<C> {
    entries: C,
    at: Seqno,
    position: Position,
    /// That of the key remembered.
    mark: Mark,
    /// The key, where the mark does not say it all, or the entry is aside.
    key: Vec<u8>,
    /// Of the entry that is aside.
    trailer: Trailer,
    value: Slice,
    /// What an entry is whose value is apart, if nobody looks for that.
    misled: Option<Arc<Error>>,
}

impl<C: EntryCursor> Visible<C> {
    pub(crate) fn new(entries: C, at: Seqno) -> Self {
        let value = Slice::from(&[][..]);
        let (position, mark, key) = (Position::Outside, Mark::default(), Vec::new());
        let (trailer, misled) = (Trailer::OLDEST, None);
        Self { entries, at, position, mark, key, trailer, value, misled }
    }

    /// The same, where no value is apart: an entry that says so is the error `misled`.
    pub(crate) fn all_together(self, misled: Arc<Error>) -> Self {
        Self { misled: Some(misled), ..self }
    }

    #[cold]
    fn check_apart(&self) -> Result<()> {
        self.misled.as_ref().map_or(Ok(()), |misled| Err(Error::clone(misled)))
    }

    /// The number and kind of the entry shown.
    pub(crate) fn trailer(&self) -> Trailer {
        match self.position {
            Position::Aside => self.trailer,
            _ => self.entries.trailer(),
        }
    }

    /// Stops at the first visible key at or behind the inner position; with `passed`, versions of the key
    /// remembered are passed over.
    #[inline]
    fn settle_forward(&mut self, mut passed: bool) -> Result<()> {
        while self.entries.is_valid() {
            let trailer = self.entries.trailer();
            let hidden = trailer.seqno() > self.at || (passed && self.is_remembered());
            if !hidden {
                if trailer.is_plain_put() {
                    self.position = Position::OnEntry;
                    return Ok(());
                }
                if trailer.is_apart() {
                    self.check_apart()?;
                    self.position = Position::OnEntry;
                    return Ok(());
                }
                self.remember();
                passed = true;
            }
            self.entries.next()?;
        }
        Ok(())
    }

    /// Takes aside the last visible key at or in front of the inner position.
    fn settle_backward(&mut self) -> Result<()> {
        let mut newest = Kind::Delete;
        let mut on_key = false;
        while self.entries.is_valid() {
            let trailer = self.entries.trailer();
            if trailer.seqno() <= self.at {
                if on_key && !self.is_remembered() {
                    if newest == Kind::Put {
                        break;
                    }
                    on_key = false;
                }
                if !on_key {
                    self.remember_key();
                    on_key = true;
                }
                newest = trailer.kind();
                if newest == Kind::Put {
                    self.trailer = trailer;
                    self.value = self.entries.value_slice();
                }
            }
            self.entries.prev()?;
        }
        if on_key && newest == Kind::Put {
            if self.trailer.is_apart() {
                self.check_apart()?;
            }
            self.position = Position::Aside;
        }
        Ok(())
    }

    /// Remembers the key of the inner position, as far as it takes to know it again.
    #[inline]
    fn remember(&mut self) {
        self.mark = self.entries.mark();
        if !self.mark.is_whole() {
            key::copy(self.entries.key(), &mut self.key);
        }
    }

    /// Whether the inner position has the key remembered.
    #[inline]
    fn is_remembered(&self) -> bool {
        let mark = self.entries.mark();
        mark.is_same(&self.mark) && (mark.is_whole() || self.entries.key() == self.key.as_slice())
    }

    /// Remembers the key of the inner position, all of it.
    #[inline]
    fn remember_key(&mut self) {
        self.mark = self.entries.mark();
        key::copy(self.entries.key(), &mut self.key);
    }
}

impl<C: EntryCursor + Send> OrderedCursor for Visible<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.position = Position::Outside;
        self.entries.seek_to_first()?;
        self.settle_forward(false)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.position = Position::Outside;
        self.entries.seek_to_last()?;
        self.settle_backward()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.position = Position::Outside;
        self.entries.seek(key, Trailer::visible_at(self.at))?;
        self.settle_forward(false)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.position = Position::Outside;
        self.entries.seek_before(key, Trailer::NEWEST)?;
        self.settle_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let position = std::mem::replace(&mut self.position, Position::Outside);
        match position {
            Position::OnEntry => {
                self.remember();
                self.entries.next()?;
            }
            Position::Aside => self.entries.seek(&self.key, Trailer::OLDEST)?,
            Position::Outside => return Ok(()),
        }
        self.settle_forward(true)
    }

    fn prev(&mut self) -> Result<()> {
        let position = std::mem::replace(&mut self.position, Position::Outside);
        match position {
            Position::OnEntry => {
                self.remember_key();
                self.entries.seek_before(&self.key, Trailer::NEWEST)?;
            }
            Position::Aside => {}
            Position::Outside => return Ok(()),
        }
        self.settle_backward()
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.position != Position::Outside
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self.position {
            Position::Aside => &self.key,
            _ => self.entries.key(),
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match self.position {
            Position::Aside => &self.value,
            _ => self.entries.value(),
        }
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        match self.position {
            Position::Aside => self.value.clone(),
            _ => self.entries.value_slice(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use proptest::prelude::*;

    use super::super::Merge;
    use super::super::sample::{self, Entry, Sorted};
    use super::*;

    /// What a reader at `at` sees.
    fn seen(entries: &[Entry], at: Seqno) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut oldest_first: Vec<_> =
            entries.iter().filter(|entry| entry.trailer.seqno() <= at).collect();
        oldest_first.sort_by_key(|entry| entry.trailer);
        let mut seen = BTreeMap::new();
        for entry in oldest_first {
            match entry.trailer.kind() {
                Kind::Put => seen.insert(entry.key.clone(), entry.value.clone()),
                Kind::Delete => seen.remove(&entry.key),
            };
        }
        seen
    }

    #[derive(Clone, Debug)]
    enum Step {
        First,
        Last,
        Seek(Vec<u8>),
        SeekBefore(Vec<u8>),
        Next,
        Prev,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            1 => Just(Step::First),
            1 => Just(Step::Last),
            2 => sample::keys().prop_map(Step::Seek),
            2 => sample::keys().prop_map(Step::SeekBefore),
            6 => Just(Step::Next),
            6 => Just(Step::Prev),
        ];
        proptest::collection::vec(step, 0..30)
    }

    fn take(cursor: &mut impl OrderedCursor, step: &Step) {
        let done = match step {
            Step::First => cursor.seek_to_first(),
            Step::Last => cursor.seek_to_last(),
            Step::Seek(key) => cursor.seek(key),
            Step::SeekBefore(key) => cursor.seek_before(key),
            Step::Next if cursor.is_valid() => cursor.next(),
            Step::Prev if cursor.is_valid() => cursor.prev(),
            Step::Next | Step::Prev => Ok(()),
        };
        done.unwrap();
    }

    /// The key a step leads to from `key`.
    fn lead(
        seen: &BTreeMap<Vec<u8>, Vec<u8>>,
        key: Option<Vec<u8>>,
        step: &Step,
    ) -> Option<Vec<u8>> {
        let behind =
            |from: Bound<&Vec<u8>>| seen.range::<Vec<u8>, _>((from, Bound::Unbounded)).next();
        let before = |key| seen.range::<Vec<u8>, _>(..key).next_back();
        let found = match step {
            Step::First => seen.first_key_value(),
            Step::Last => seen.last_key_value(),
            Step::Seek(key) => behind(Bound::Included(key)),
            Step::SeekBefore(key) => before(key.clone()),
            Step::Next => behind(Bound::Excluded(&key?)),
            Step::Prev => before(key?),
        };
        found.map(|(key, _)| key.clone())
    }

    /// Takes the steps and compares each place with the model, for each sequence number.
    fn walk<C: EntryCursor + Send>(
        entries: &[Entry],
        steps: &[Step],
        cursor: impl Fn() -> C,
    ) -> std::result::Result<(), TestCaseError> {
        for at in 0..=entries.len() as u64 {
            let seen = seen(entries, at);
            let mut visible = Visible::new(cursor(), at);
            let mut key = None;
            prop_assert!(!visible.is_valid());
            for step in steps {
                take(&mut visible, step);
                key = lead(&seen, key, step);
                prop_assert_eq!(visible.is_valid(), key.is_some(), "{:?} at {}", step, at);
                if let Some(key) = &key {
                    prop_assert_eq!(visible.key(), &key[..], "{:?} at {}", step, at);
                    prop_assert_eq!(visible.value(), &seen[key][..], "{:?} at {}", step, at);
                    prop_assert_eq!(&*visible.value_slice(), visible.value());
                }
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn each_reader_sees_its_state(entries in sample::entries(0..40), steps in steps()) {
            walk(&entries, &steps, || Sorted::new(entries.clone()))?;
        }

        #[test]
        fn through_a_merge_too(
            entries in sample::entries(0..40),
            newer in 0..40_u64,
            steps in steps(),
        ) {
            let is_newer = |entry: &Entry| entry.trailer.seqno() > newer;
            let (above, below): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(is_newer);
            walk(&entries, &steps, || {
                Merge::new([above.clone(), below.clone()].map(Sorted::new).into())
            })?;
        }
    }
}
