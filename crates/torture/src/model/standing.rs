//! Readers that stand in a keyspace of an open database while everything else goes on: they see what there was when they were made, however
//! long they stay.

use std::collections::BTreeSet;

use turbidite::{Cursor, Range};

use super::history::{Map, Record, records};
use super::operation::Key;
use crate::Dice;

/// A reader that takes no more steps than this at a time.
const STEPS: usize = 40;

enum Reader {
    /// The place of the cursor among all records, if it is at one.
    Cursor { cursor: Cursor, at: Option<usize> },
    /// What a range in no order has given, as places among all records.
    Range { range: Range, given: BTreeSet<usize> },
}

/// A reader, and what it sees.
pub(super) struct Standing {
    reader: Reader,
    model: Map,
}

impl Standing {
    /// A cursor that has not moved yet, over what `model` holds.
    pub(super) fn cursor(cursor: Cursor, model: Map) -> Self {
        Self { reader: Reader::Cursor { cursor, at: None }, model }
    }

    /// A range over all of it, in no order.
    pub(super) fn range(range: Range, model: Map) -> Self {
        Self { reader: Reader::Range { range, given: BTreeSet::new() }, model }
    }

    /// Moves it, and compares what it shows.
    pub(super) fn step(&mut self, dice: &mut Dice) {
        let list: Vec<(&Key, Record<'_>)> = records(&self.model).collect();
        for _ in 0..1 + dice.roll(STEPS) {
            match &mut self.reader {
                Reader::Cursor { cursor, at } => walk(cursor, at, &list, dice),
                Reader::Range { range, given } => go_on(range, given, &list),
            }
        }
    }
}

/// Moves a cursor, to a neighbour most of the time, and compares what it shows.
fn walk(cursor: &mut Cursor, at: &mut Option<usize>, list: &[(&Key, Record<'_>)], dice: &mut Dice) {
    let any = list.get(dice.roll(list.len().max(1)));
    let key = any.map_or(Key::new(), |(key, _)| (*key).clone());
    *at = match (dice.roll(12), *at) {
        (0..5, Some(at)) => {
            cursor.next().unwrap();
            Some(at + 1)
        }
        (5..9, Some(at)) => {
            cursor.prev().unwrap();
            at.checked_sub(1)
        }
        (9, _) => {
            cursor.seek_to_last().unwrap();
            list.len().checked_sub(1)
        }
        (10, _) => {
            cursor.seek_for_prev(&key).unwrap();
            list.partition_point(|(other, _)| **other <= key).checked_sub(1)
        }
        _ => {
            cursor.seek(&key).unwrap();
            Some(list.partition_point(|(other, _)| **other < key))
        }
    };
    match at.and_then(|at| list.get(at)) {
        Some((key, record)) => {
            assert!(cursor.is_valid() && cursor.key() == *key && record.is(cursor.value()));
        }
        None => {
            assert!(!cursor.is_valid(), "{:?} is behind the end", cursor.key());
            *at = None;
        }
    }
}

/// Takes one more record of a range, and looks whether it is one that has not come yet, or all have.
fn go_on(range: &mut Range, given: &mut BTreeSet<usize>, list: &[(&Key, Record<'_>)]) {
    let Some(item) = range.next() else {
        return assert_eq!(given.len(), list.len(), "a range ends before all have come");
    };
    let (key, value) = item.unwrap();
    let at = list.partition_point(|(other, _)| other[..] < key[..]);
    let is_there =
        list.get(at).is_some_and(|(other, record)| other[..] == key[..] && record.is(&value));
    assert!(is_there && given.insert(at), "{key:?} is not there, or comes twice");
}
