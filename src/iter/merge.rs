//! Merging several sorted cursors into one.
//!
//! The cursor that is in front is remembered together with the runner-up. As long as the front one stays
//! ahead of the runner-up, a step costs one comparison however many there are; only when it falls behind
//! are all looked at. In an LSM-tree most entries come from one level, so runs are long: when the front cursor has stayed
//! ahead for some steps, it is asked how long it goes on so, and that many steps cost no comparison at all (as merge
//! sort gallops; Peters, timsort, 2002). The [marks](Mark) of all keys are kept here, so that few comparisons touch a key.

use std::cmp::Ordering;

use super::{Approach, EntryCursor, StoredBlock};
use crate::base::key::{Mark, compare};
use crate::base::{Slice, Trailer};
use crate::error::Result;
use crate::planted::{Bug, planted};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Backward,
}

/// The merge of cursors none of whose entries are equal in key and trailer.
#[derive(Debug)]
pub(crate) struct Merge<C> {
    cursors: Vec<C>,
    /// That of each cursor's key, as far as it is on an entry.
    marks: Vec<Mark>,
    front: Option<usize>,
    runner_up: Option<usize>,
    /// That of the runner-up's key.
    bound: Mark,
    direction: Direction,
    /// How many steps in a row the front cursor has stayed ahead.
    streak: u32,
    /// So many of its next entries are known to have keys below that of the runner-up; 0 backward.
    ahead: usize,
}

/// After so many steps in a row the front cursor is asked how long it stays ahead. Tests have it asked more often.
const STREAK: u32 = if cfg!(test) { 2 } else { 8 };

impl<C: EntryCursor> Merge<C> {
    pub(crate) fn new(cursors: Vec<C>) -> Self {
        let (marks, bound) = (vec![Mark::default(); cursors.len()], Mark::default());
        let (front, runner_up, direction) = (None, None, Direction::Forward);
        Self { cursors, marks, front, runner_up, bound, direction, streak: 0, ahead: 0 }
    }

    /// Notes the key that a cursor has come to.
    fn note(&mut self, cursor: usize) {
        if self.cursors[cursor].is_valid() {
            self.marks[cursor] = self.cursors[cursor].mark();
        }
    }

    /// Whether cursor `a` comes before cursor `b` in the present direction.
    #[inline]
    fn is_ahead(&self, a: usize, b: usize) -> bool {
        match (self.marks[a].order(&self.marks[b]), self.direction) {
            (Ordering::Equal, _) => self.is_ahead_by_key(a, b),
            (order, Direction::Forward) => order == Ordering::Less,
            (order, Direction::Backward) => order == Ordering::Greater,
        }
    }

    fn is_ahead_by_key(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.cursors[a], &self.cursors[b]);
        let order = match planted(Bug::OlderVersionFirst) {
            true => compare((a.key(), b.trailer()), (b.key(), a.trailer())),
            false => compare((a.key(), a.trailer()), (b.key(), b.trailer())),
        };
        match self.direction {
            Direction::Forward => order == Ordering::Less,
            Direction::Backward => order == Ordering::Greater,
        }
    }

    /// Finds the front and the runner-up among all cursors, whose keys are noted.
    fn choose(&mut self, direction: Direction) {
        self.direction = direction;
        (self.streak, self.ahead) = (0, 0);
        let (mut front, mut runner_up) = (None, None);
        for i in 0..self.cursors.len() {
            if !self.cursors[i].is_valid() {
                continue;
            }
            if front.is_none_or(|front| self.is_ahead(i, front)) {
                (front, runner_up) = (Some(i), front);
            } else if runner_up.is_none_or(|runner_up| self.is_ahead(i, runner_up)) {
                runner_up = Some(i);
            }
        }
        (self.front, self.runner_up) = (front, runner_up);
        self.bound = runner_up.map(|runner_up| self.marks[runner_up]).unwrap_or_default();
    }

    /// Whether the front cursor, having moved, is still ahead. Its key is noted.
    #[inline]
    fn stays_ahead(&mut self, front: usize) -> bool {
        let cursor = &self.cursors[front];
        if !cursor.is_valid() {
            return false;
        }
        let mark = cursor.mark();
        self.marks[front] = mark;
        let Some(runner_up) = self.runner_up else { return true };
        match (mark.order(&self.bound), self.direction) {
            (Ordering::Equal, _) => self.is_ahead_by_key(front, runner_up),
            (order, Direction::Forward) => order == Ordering::Less,
            (order, Direction::Backward) => order == Ordering::Greater,
        }
    }

    /// Chooses anew if the front cursor, having moved, is no longer ahead.
    #[inline]
    fn moved(&mut self, front: usize) {
        if !self.stays_ahead(front) {
            self.choose(self.direction);
            return;
        }
        self.streak += 1;
        if self.streak >= STREAK {
            self.look_ahead(front);
        }
    }

    /// Finds out how long the front cursor stays ahead.
    fn look_ahead(&mut self, front: usize) {
        self.streak = 0;
        if self.direction == Direction::Forward {
            let limit = self.runner_up.map(|runner_up| self.cursors[runner_up].key());
            self.ahead = self.cursors[front].count_below(limit);
        }
    }

    /// Brings all cursors but the front one to the other side of it.
    fn turn(&mut self, front: usize, direction: Direction) -> Result<()> {
        let key = self.cursors[front].key().to_vec();
        let trailer = self.cursors[front].trailer();
        for (i, cursor) in self.cursors.iter_mut().enumerate() {
            if i != front {
                match direction {
                    Direction::Forward => cursor.seek(&key, trailer)?,
                    Direction::Backward => cursor.seek_before(&key, trailer)?,
                }
            }
        }
        self.direction = direction;
        self.runner_up = None;
        Ok(())
    }

    #[inline]
    fn step(&mut self, direction: Direction) -> Result<()> {
        self.step_by(direction, C::next)
    }

    /// Moves the front cursor on, forward as it came here.
    #[inline]
    fn step_on(&mut self) -> Result<()> {
        let front = self.front.take().expect("a step needs a position");
        self.cursors[front].next()?;
        self.front = Some(front);
        self.moved(front);
        Ok(())
    }

    /// Moves the front cursor on, forward with `next`.
    #[inline]
    fn step_by(
        &mut self,
        direction: Direction,
        next: impl FnOnce(&mut C) -> Result<()>,
    ) -> Result<()> {
        let front = self.front.expect("a step needs a position");
        let turned = self.direction != direction;
        self.ahead = 0;
        // Until the step is done there is no position, so that an error leaves none.
        self.front = None;
        if turned {
            self.turn(front, direction)?;
        }
        match direction {
            Direction::Forward => next(&mut self.cursors[front])?,
            Direction::Backward => self.cursors[front].prev()?,
        }
        if turned {
            (0..self.cursors.len()).for_each(|cursor| self.note(cursor));
            self.choose(direction);
        } else {
            self.front = Some(front);
            self.moved(front);
        }
        Ok(())
    }

    fn seek_all(
        &mut self,
        direction: Direction,
        mut seek: impl FnMut(&mut C) -> Result<()>,
    ) -> Result<()> {
        self.front = None;
        self.cursors.iter_mut().try_for_each(&mut seek)?;
        (0..self.cursors.len()).for_each(|cursor| self.note(cursor));
        self.choose(direction);
        Ok(())
    }

    /// Has all cursors wait together for what a seek looks at.
    fn approach_all(&mut self, key: &[u8], trailer: Trailer) {
        if self.cursors.len() > 1 {
            for part in Approach::ALL {
                self.cursors.iter_mut().for_each(|cursor| cursor.approach(part, key, trailer));
            }
        }
    }

    /// Which of the cursors is in front, by its place among those that are merged. Panics outside.
    pub(crate) fn front_place(&self) -> usize {
        self.front.expect("the cursor must be on an entry")
    }

    /// Moves the cursor in front, in the direction of the last move, by a seek that passes over some of its entries, and
    /// goes on with what is in front then.
    pub(crate) fn pass(&mut self, seek: impl FnOnce(&mut C) -> Result<()>) -> Result<()> {
        let front = self.front.take().expect("a step needs a position");
        seek(&mut self.cursors[front])?;
        self.note(front);
        self.choose(self.direction);
        Ok(())
    }

    #[inline]
    fn front(&self) -> &C {
        &self.cursors[self.front.expect("the cursor must be on an entry")]
    }
}

impl<C: EntryCursor> EntryCursor for Merge<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.seek_all(Direction::Forward, C::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.seek_all(Direction::Backward, C::seek_to_last)
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.approach_all(key, trailer);
        self.seek_all(Direction::Forward, |cursor| cursor.seek(key, trailer))
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.approach_all(key, trailer);
        self.seek_all(Direction::Backward, |cursor| cursor.seek_before(key, trailer))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.ahead == 0 {
            return match self.direction {
                Direction::Forward => self.step_on(),
                Direction::Backward => self.step(Direction::Forward),
            };
        }
        let front = self.front.take().expect("a step needs a position");
        self.cursors[front].next()?;
        self.marks[front] = self.cursors[front].mark();
        self.front = Some(front);
        self.ahead -= 1;
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward)
    }

    #[inline]
    fn is_valid(&self) -> bool {
        self.front.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.front().key()
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.front().trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.front().value()
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        self.front().value_slice()
    }

    #[inline]
    fn mark(&self) -> Mark {
        self.marks[self.front.expect("the cursor must be on an entry")]
    }

    #[inline]
    fn block(&self) -> Option<StoredBlock<'_>> {
        let block = self.front().block()?;
        if self.direction == Direction::Backward {
            return None;
        }
        let limit = self.runner_up.map(|runner_up| self.cursors[runner_up].key());
        Some(StoredBlock { limit, ..block })
    }

    fn pass_block(&mut self) -> Result<()> {
        self.step_by(Direction::Forward, C::pass_block)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample::{self, Entry, Sorted};
    use super::*;
    use crate::base::Seqno;

    #[derive(Clone, Debug)]
    enum Step {
        First,
        Last,
        Seek(Vec<u8>, Seqno),
        SeekBefore(Vec<u8>, Seqno),
        Next,
        Prev,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            1 => Just(Step::First),
            1 => Just(Step::Last),
            2 => (sample::keys(), 0..70_u64).prop_map(|(key, seqno)| Step::Seek(key, seqno)),
            2 => (sample::keys(), 0..70_u64).prop_map(|(key, seqno)| Step::SeekBefore(key, seqno)),
            8 => Just(Step::Next),
            8 => Just(Step::Prev),
        ];
        proptest::collection::vec(step, 0..80)
    }

    /// Takes a step that can be taken.
    fn take(cursor: &mut impl EntryCursor, step: &Step) {
        let done = match step {
            Step::First => cursor.seek_to_first(),
            Step::Last => cursor.seek_to_last(),
            Step::Seek(key, seqno) => cursor.seek(key, Trailer::visible_at(*seqno)),
            Step::SeekBefore(key, seqno) => cursor.seek_before(key, Trailer::visible_at(*seqno)),
            Step::Next if cursor.is_valid() => cursor.next(),
            Step::Prev if cursor.is_valid() => cursor.prev(),
            Step::Next | Step::Prev => Ok(()),
        };
        done.unwrap();
    }

    /// The merge of entries that are dealt out as `places` says, in runs of some of them.
    fn merge(entries: &[Entry], places: &[(usize, usize)], count: usize) -> Merge<Sorted> {
        let mut parts = vec![Vec::new(); count];
        let places =
            places.iter().cycle().flat_map(|&(place, run)| std::iter::repeat_n(place, run));
        for (entry, place) in entries.iter().zip(places) {
            parts[place % count].push(entry.clone());
        }
        Merge::new(parts.into_iter().map(Sorted::new).collect())
    }

    #[test]
    fn nothing_merged_is_nothing() {
        let mut merge = Merge::<Sorted>::new(Vec::new());
        for step in [Step::First, Step::Last, Step::Seek(Vec::new(), 1), Step::Next] {
            take(&mut merge, &step);
            assert!(!merge.is_valid());
        }
    }

    proptest! {
        #[test]
        fn a_merge_is_like_one_sorted_cursor(
            entries in sample::entries(0..60),
            places in proptest::collection::vec((any::<usize>(), 1..12_usize), 1..60),
            count in 1..6_usize,
            steps in steps(),
        ) {
            let mut merge = merge(&entries, &places, count);
            let mut model = Sorted::new(entries);
            prop_assert!(!merge.is_valid());
            for step in &steps {
                take(&mut merge, step);
                take(&mut model, step);
                prop_assert_eq!(Entry::at(&merge), Entry::at(&model), "{:?}", step);
            }
        }

        #[test]
        fn both_ways_lead_past_every_entry(
            entries in sample::entries(0..60),
            places in proptest::collection::vec((any::<usize>(), 1..12_usize), 1..60),
            count in 1..6_usize,
        ) {
            let mut merge = merge(&entries, &places, count);
            merge.seek_to_first().unwrap();
            for entry in &entries {
                prop_assert_eq!(Entry::at(&merge), Some(entry.clone()));
                merge.next().unwrap();
            }
            prop_assert!(!merge.is_valid());
            merge.seek_to_last().unwrap();
            for entry in entries.iter().rev() {
                prop_assert_eq!(Entry::at(&merge), Some(entry.clone()));
                merge.prev().unwrap();
            }
            prop_assert!(!merge.is_valid());
        }
    }
}
