//! From entries to what a reader sees when the values of a key are reduced: each key with what its
//! [operands](super::reduce) become; with each of them, in the order they were put, if all are kept.
//!
//! What the cursor shows is kept aside. The inner cursor stands next to the entries of the key shown: behind the last
//! of them when it was reached forward, in front of the first when it was reached backward, or outside where
//! there is nothing more on that side. Going on the other way moves it across by a seek.
//!
//! Operands are reduced when a value is asked for, and not before: who goes past a key, or only looks at it, has nothing to do with what
//! its values become.

use std::sync::Arc;

use super::reduce::Reduce;
use crate::base::{Kind, Seqno, Slice, Trailer};
use crate::error::Result;
use crate::iter::{EntryCursor, OrderedCursor};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Position {
    /// Nothing is shown.
    Outside,
    /// The inner cursor is behind all entries of the key shown.
    Behind,
    /// The inner cursor is in front of all entries of the key shown.
    InFront,
}

/// The keys visible at one sequence number, and what their values are reduced to. With the newest value of each,
/// [`Visible`](crate::iter::Visible) does the same at less cost.
///
/// Cost of a step: that of reading all entries of one key, whose operands are in memory together. What they become is
/// [fetched](OrderedCursor::fetch).
#[derive(Debug)]
pub(super) struct Reduced<C> {
    entries: C,
    at: Seqno,
    reduce: Arc<Reduce>,
    position: Position,
    key: Vec<u8>,
    /// The operands of the key, oldest first, or what they became; not empty unless outside.
    values: Vec<Slice>,
    /// Which of the key's records is shown.
    shown: usize,
}

impl<C: EntryCursor> Reduced<C> {
    pub(super) fn new(entries: C, at: Seqno, reduce: Arc<Reduce>) -> Self {
        let (key, values) = (Vec::new(), Vec::new());
        Self { entries, at, reduce, position: Position::Outside, key, values, shown: 0 }
    }

    /// All values of `key`: what [`seek`](OrderedCursor::seek) and [`fetch`](OrderedCursor::fetch) would bring if there were no other
    /// key.
    pub(super) fn values_of(mut self, key: &[u8]) -> Result<Vec<Slice>> {
        self.entries.seek(key, Trailer::visible_at(self.at))?;
        self.key.extend_from_slice(key);
        let mut operands = Vec::new();
        self.gather_forward(&mut operands)?;
        if operands.is_empty() { Ok(operands) } else { self.reduce.reduce(key, operands) }
    }

    /// Shows the first record of the first visible key from the inner position on.
    fn show_forward(&mut self) -> Result<()> {
        let mut operands = self.no_operands();
        while operands.is_empty() && self.entries.is_valid() {
            self.remember_key();
            self.gather_forward(&mut operands)?;
        }
        self.show(operands, Position::Behind);
        self.shown = 0;
        Ok(())
    }

    /// Shows the last record of the last visible key from the inner position back.
    fn show_backward(&mut self) -> Result<()> {
        let mut operands = self.no_operands();
        while operands.is_empty() && self.entries.is_valid() {
            self.remember_key();
            self.gather_backward(&mut operands)?;
        }
        self.show(operands, Position::InFront);
        self.shown = self.records().saturating_sub(1);
        Ok(())
    }

    /// Steps over the entries of the key and gathers its operands. The inner position is the newest of those that
    /// are to be looked at.
    fn gather_forward(&mut self, operands: &mut Vec<Slice>) -> Result<()> {
        let mut deleted = false;
        while self.is_on_key() {
            let trailer = self.entries.trailer();
            if trailer.seqno() <= self.at && !deleted {
                match trailer.kind() {
                    Kind::Put => operands.push(self.entries.value_slice()),
                    Kind::Delete => deleted = true,
                }
            }
            self.entries.next()?;
        }
        operands.reverse();
        Ok(())
    }

    /// Steps back over all entries of the key and gathers its operands.
    fn gather_backward(&mut self, operands: &mut Vec<Slice>) -> Result<()> {
        while self.is_on_key() {
            let trailer = self.entries.trailer();
            if trailer.seqno() <= self.at {
                match trailer.kind() {
                    Kind::Put => operands.push(self.entries.value_slice()),
                    Kind::Delete => operands.clear(),
                }
            }
            self.entries.prev()?;
        }
        Ok(())
    }

    /// Shows the key, if it has operands.
    fn show(&mut self, operands: Vec<Slice>, position: Position) {
        if !operands.is_empty() {
            self.position = position;
        }
        self.values = operands;
    }

    /// How many records the key has.
    fn records(&self) -> usize {
        match self.reduce.keeps_all() {
            true => self.values.len(),
            false => self.values.len().min(1),
        }
    }

    /// A place for operands, without what was in it.
    fn no_operands(&mut self) -> Vec<Slice> {
        let mut operands = std::mem::take(&mut self.values);
        operands.clear();
        operands
    }

    fn is_on_key(&self) -> bool {
        self.entries.is_valid() && self.entries.key() == self.key.as_slice()
    }

    fn remember_key(&mut self) {
        self.key.clear();
        self.key.extend_from_slice(self.entries.key());
    }

    /// Shows nothing until a move is done, so that an error leaves the cursor outside.
    fn leave(&mut self) -> Position {
        std::mem::replace(&mut self.position, Position::Outside)
    }
}

impl<C: EntryCursor + Send> OrderedCursor for Reduced<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.leave();
        self.entries.seek_to_first()?;
        self.show_forward()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.leave();
        self.entries.seek_to_last()?;
        self.show_backward()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.leave();
        self.entries.seek(key, Trailer::visible_at(self.at))?;
        self.show_forward()
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.leave();
        self.entries.seek_before(key, Trailer::NEWEST)?;
        self.show_backward()
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.leave();
        self.entries.seek_before(key, Trailer::OLDEST)?;
        self.show_backward()
    }

    fn next(&mut self) -> Result<()> {
        if self.shown + 1 < self.records() {
            self.shown += 1;
            return Ok(());
        }
        match self.leave() {
            Position::Outside => return Ok(()),
            Position::Behind => {}
            Position::InFront => self.entries.seek(&self.key, Trailer::OLDEST)?,
        }
        self.show_forward()
    }

    fn prev(&mut self) -> Result<()> {
        if self.shown > 0 {
            self.shown -= 1;
            return Ok(());
        }
        match self.leave() {
            Position::Outside => return Ok(()),
            Position::InFront => {}
            Position::Behind => self.entries.seek_before(&self.key, Trailer::NEWEST)?,
        }
        self.show_backward()
    }

    fn is_valid(&self) -> bool {
        self.position != Position::Outside
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn index(&self) -> usize {
        self.shown
    }

    fn fetch(&mut self) -> Result<()> {
        if self.values.len() > self.records() {
            let position = self.leave();
            self.values = self.reduce.reduce(&self.key, std::mem::take(&mut self.values))?;
            self.position = position;
        }
        Ok(())
    }

    fn value(&self) -> &[u8] {
        &self.values[self.shown]
    }

    fn value_slice(&self) -> Slice {
        self.values[self.shown].clone()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::error::ErrorKind;
    use crate::iter::Merge;
    use crate::iter::sample::{self, Entry, Sorted};
    use crate::reducer::{ReduceFn, Reducer};

    type Values = Vec<Vec<u8>>;

    /// A reducer, and what it shows of operands; `None` for an error.
    struct Case {
        reducer: Reducer,
        custom: Option<Arc<ReduceFn>>,
        model: fn(&[Vec<u8>]) -> Option<Values>,
    }

    fn cases() -> Vec<Case> {
        let case = |reducer, model| Case { reducer, custom: None, model };
        let named = |name: &str, custom, model| Case {
            reducer: Reducer::Custom(name.into()),
            custom,
            model,
        };
        let largest = |_: &[u8], operands: &[&[u8]]| operands.iter().max().unwrap().to_vec();
        vec![
            case(Reducer::Last, |all| Some(vec![all.last()?.clone()])),
            case(Reducer::First, |all| Some(vec![all[0].clone()])),
            case(Reducer::KeepAll, |all| Some(all.to_vec())),
            case(Reducer::Concat, |all| Some(vec![all.concat()])),
            case(Reducer::Sum, |all| {
                let number = |value: &Vec<u8>| i64::from_be_bytes(value[..].try_into().unwrap());
                Some(vec![all.iter().map(number).sum::<i64>().to_be_bytes().to_vec()])
            }),
            named("largest", Some(Arc::new(largest)), |all| Some(vec![all.iter().max()?.clone()])),
            named("missing", None, |all| (all.len() == 1).then(|| all.to_vec())),
        ]
    }

    /// Entries whose values are numbers that do not lie in the order of the writes.
    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        sample::entries(0..40).prop_map(|mut entries| {
            for entry in entries.iter_mut().filter(|entry| entry.trailer.kind() == Kind::Put) {
                let number = entry.trailer.seqno() as i64 * 23 % 47 - 20;
                entry.value = number.to_be_bytes().to_vec();
            }
            entries
        })
    }

    /// What a reader at `at` sees, as a list of keys and values; `None` for a key whose values cannot be reduced.
    fn seen(entries: &[Entry], at: Seqno, case: &Case) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut oldest_first: Vec<_> =
            entries.iter().filter(|entry| entry.trailer.seqno() <= at).collect();
        oldest_first.sort_by_key(|entry| entry.trailer);
        let mut operands = BTreeMap::<&Vec<u8>, Values>::new();
        for entry in oldest_first {
            match entry.trailer.kind() {
                Kind::Put => operands.entry(&entry.key).or_default().push(entry.value.clone()),
                Kind::Delete => drop(operands.remove(&entry.key)),
            }
        }
        let shown = |(key, operands): (&Vec<u8>, Values)| match (case.model)(&operands) {
            Some(values) => values.into_iter().map(|value| (key.clone(), Some(value))).collect(),
            None => vec![(key.clone(), None)],
        };
        operands.into_iter().flat_map(shown).collect()
    }

    #[derive(Clone, Debug)]
    enum Step {
        First,
        Last,
        Seek(Vec<u8>),
        SeekBefore(Vec<u8>),
        SeekForPrev(Vec<u8>),
        Next,
        Prev,
    }

    /// Steps, and whether the value is asked for after each.
    fn steps() -> impl Strategy<Value = Vec<(Step, bool)>> {
        let step = prop_oneof![
            1 => Just(Step::First),
            1 => Just(Step::Last),
            2 => sample::keys().prop_map(Step::Seek),
            2 => sample::keys().prop_map(Step::SeekBefore),
            2 => sample::keys().prop_map(Step::SeekForPrev),
            6 => Just(Step::Next),
            6 => Just(Step::Prev),
        ];
        proptest::collection::vec((step, prop::bool::weighted(0.8)), 0..30)
    }

    fn take(cursor: &mut impl OrderedCursor, step: &Step) -> Result<()> {
        match step {
            Step::First => cursor.seek_to_first(),
            Step::Last => cursor.seek_to_last(),
            Step::Seek(key) => cursor.seek(key),
            Step::SeekBefore(key) => cursor.seek_before(key),
            Step::SeekForPrev(key) => cursor.seek_for_prev(key),
            Step::Next if cursor.is_valid() => cursor.next(),
            Step::Prev if cursor.is_valid() => cursor.prev(),
            Step::Next | Step::Prev => Ok(()),
        }
    }

    /// How many records of the list have a key below `key`.
    fn below(seen: &[(Vec<u8>, Option<Vec<u8>>)], key: &[u8]) -> usize {
        seen.partition_point(|(seen, _)| &seen[..] < key)
    }

    /// Where in the list of what is seen a step leads to from `place`.
    fn lead(
        seen: &[(Vec<u8>, Option<Vec<u8>>)],
        place: Option<usize>,
        step: &Step,
    ) -> Option<usize> {
        let below = |key: &Vec<u8>| below(seen, key);
        let place = match step {
            Step::First => 0,
            Step::Last => seen.len().checked_sub(1)?,
            Step::Seek(key) => below(key),
            Step::SeekBefore(key) => below(key).checked_sub(1)?,
            Step::SeekForPrev(key) => {
                seen.partition_point(|(seen, _)| seen <= key).checked_sub(1)?
            }
            Step::Next => place? + 1,
            Step::Prev => place?.checked_sub(1)?,
        };
        (place < seen.len()).then_some(place)
    }

    /// Takes the steps with each reducer and for each sequence number, and compares each place with the model.
    fn walk<C: EntryCursor + Send>(
        entries: &[Entry],
        steps: &[(Step, bool)],
        cursor: impl Fn() -> C,
    ) -> std::result::Result<(), TestCaseError> {
        for case in cases() {
            let dir = Path::new("/db/keyspaces/1");
            let reduce = Arc::new(Reduce::new(case.reducer.clone(), case.custom.clone(), dir));
            for at in 0..=entries.len() as u64 {
                let seen = seen(entries, at, &case);
                for (key, ..) in &seen {
                    let values = seen.iter().filter(|(other, _)| other == key);
                    let expected: Option<Values> = values.map(|(_, value)| value.clone()).collect();
                    let found = Reduced::new(cursor(), at, Arc::clone(&reduce)).values_of(key).ok();
                    let found =
                        found.map(|found| found.iter().map(|value| value.to_vec()).collect());
                    prop_assert_eq!(found, expected, "{:?} at {} with {:?}", key, at, reduce);
                }
                let mut reduced = Reduced::new(cursor(), at, Arc::clone(&reduce));
                let mut place = None;
                prop_assert!(!reduced.is_valid());
                for (step, fetches) in steps {
                    let about = format!("{step:?} at {at} with {reduce:?}");
                    let taken = take(&mut reduced, step);
                    prop_assert!(taken.is_ok(), "{about}: {taken:?}");
                    place = lead(&seen, place, step);
                    let fetched = fetches.then(|| reduced.fetch());
                    if let (Some((_, None)), Some(fetched)) =
                        (place.map(|place| &seen[place]), &fetched)
                    {
                        let error = fetched.as_ref().expect_err(&about);
                        prop_assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", about);
                        place = None;
                    } else {
                        prop_assert!(!matches!(fetched, Some(Err(_))), "{about}: {fetched:?}");
                    }
                    prop_assert_eq!(reduced.is_valid(), place.is_some(), "{}", about);
                    if let Some((key, value)) = place.map(|place| &seen[place]) {
                        prop_assert_eq!(reduced.key(), &key[..], "{}", about);
                        let index = place.map(|place| place - below(&seen, key));
                        prop_assert_eq!(Some(reduced.index()), index, "{}", about);
                        if *fetches {
                            prop_assert_eq!(Some(reduced.value()), value.as_deref(), "{}", about);
                            prop_assert_eq!(&*reduced.value_slice(), reduced.value());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn each_reader_sees_its_state(entries in entries(), steps in steps()) {
            walk(&entries, &steps, || Sorted::new(entries.clone()))?;
        }

        #[test]
        fn through_a_merge_too(entries in entries(), newer in 0..40_u64, steps in steps()) {
            let is_newer = |entry: &Entry| entry.trailer.seqno() > newer;
            let (above, below): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(is_newer);
            walk(&entries, &steps, || {
                Merge::new([above.clone(), below.clone()].map(Sorted::new).into())
            })?;
        }
    }
}
