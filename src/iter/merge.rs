//! Merging several sorted cursors into one.
//!
//! The cursor that is in front is remembered together with the runner-up. As long as the front one stays
//! ahead of the runner-up, a step costs one comparison however many there are; only when it falls behind
//! are all looked at. In an LSM-tree most entries come from one level, so runs are long.

use std::cmp::Ordering;

use super::EntryCursor;
use crate::base::key::compare;
use crate::base::{Slice, Trailer};
use crate::error::Result;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Backward,
}

/// The merge of cursors none of whose entries are equal in key and trailer.
#[derive(Debug)]
pub(crate) struct Merge<C> {
    cursors: Vec<C>,
    front: Option<usize>,
    runner_up: Option<usize>,
    direction: Direction,
}

impl<C: EntryCursor> Merge<C> {
    pub(crate) fn new(cursors: Vec<C>) -> Self {
        Self { cursors, front: None, runner_up: None, direction: Direction::Forward }
    }

    /// Whether cursor `a` comes before cursor `b` in the present direction.
    fn is_ahead(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.cursors[a], &self.cursors[b]);
        let order = compare((a.key(), a.trailer()), (b.key(), b.trailer()));
        match self.direction {
            Direction::Forward => order == Ordering::Less,
            Direction::Backward => order == Ordering::Greater,
        }
    }

    /// Finds the front and the runner-up among all cursors.
    fn choose(&mut self, direction: Direction) {
        self.direction = direction;
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
    }

    /// Chooses anew if the front cursor, having moved, is no longer ahead.
    #[inline]
    fn moved(&mut self, front: usize) {
        let ahead = self.cursors[front].is_valid()
            && self.runner_up.is_none_or(|runner_up| self.is_ahead(front, runner_up));
        if !ahead {
            self.choose(self.direction);
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

    fn step(&mut self, direction: Direction) -> Result<()> {
        let front = self.front.expect("a step needs a position");
        let turned = self.direction != direction;
        // Until the step is done there is no position, so that an error leaves none.
        self.front = None;
        if turned {
            self.turn(front, direction)?;
        }
        match direction {
            Direction::Forward => self.cursors[front].next()?,
            Direction::Backward => self.cursors[front].prev()?,
        }
        if turned {
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
        self.choose(direction);
        Ok(())
    }

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
        self.seek_all(Direction::Forward, |cursor| cursor.seek(key, trailer))
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.seek_all(Direction::Backward, |cursor| cursor.seek_before(key, trailer))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward)
    }

    fn is_valid(&self) -> bool {
        self.front.is_some()
    }

    fn key(&self) -> &[u8] {
        self.front().key()
    }

    fn trailer(&self) -> Trailer {
        self.front().trailer()
    }

    fn value(&self) -> &[u8] {
        self.front().value()
    }

    fn value_slice(&self) -> Slice {
        self.front().value_slice()
    }
}
