//! The model: all states that a group of keyspaces has been in, and which of them may be lost.

use std::collections::BTreeMap;
use std::ops::RangeBounds;

use turbidite::Slice;

use super::operation::Change;

/// A value, told by the number of the write that made it and its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Value {
    pub(super) number: u64,
    pub(super) len: usize,
}

impl Value {
    pub(super) fn bytes(self) -> Vec<u8> {
        self.number.to_le_bytes().into_iter().cycle().take(self.len).collect()
    }

    pub(super) fn is(self, bytes: &[u8]) -> bool {
        let number = self.number.to_le_bytes();
        let same = |chunk: &[u8]| chunk == &number[..chunk.len()];
        bytes.len() == self.len && bytes.chunks(number.len()).all(same)
    }
}

/// The state of one keyspace.
pub(super) type Map = BTreeMap<Vec<u8>, Value>;

/// Whether what was read is what the model holds.
pub(super) fn agrees<'a>(
    model: impl ExactSizeIterator<Item = (&'a Vec<u8>, &'a Value)>,
    read: &[(Slice, Slice)],
) -> bool {
    model.len() == read.len()
        && model.zip(read).all(|((key, value), read)| read.0 == *key && value.is(&read.1))
}

/// The states of keyspaces that recover together, oldest first.
#[derive(Debug)]
pub(super) struct History<const N: usize> {
    states: Vec<[Map; N]>,
    /// States before this one are gone for good after a kill,
    written: usize,
    /// and before this one after a power cut.
    synced: usize,
    /// When each keyspace was last changed. To delete what is not there may be no write to it.
    touched: [usize; N],
}

impl<const N: usize> History<N> {
    pub(super) fn new() -> Self {
        let states = vec![std::array::from_fn(|_| Map::new())];
        Self { states, written: 0, synced: 0, touched: [0; N] }
    }

    pub(super) fn now(&self) -> &[Map; N] {
        self.states.last().expect("there is always a state")
    }

    /// Adds the state after writes that are committed together.
    pub(super) fn commit(&mut self, writes: &[(usize, Change<Value>)]) {
        let mut next = self.now().clone();
        for (keyspace, change) in writes {
            let map = &mut next[*keyspace];
            let is_change = match change {
                Change::Put(key, value) => {
                    map.insert(key.clone(), *value);
                    true
                }
                Change::Delete(key) => map.remove(key).is_some(),
                Change::DeleteRange(bounds) => {
                    let before = map.len();
                    map.retain(|key, _| !bounds.contains(key));
                    map.len() < before
                }
            };
            if is_change {
                self.touched[*keyspace] = self.states.len();
            }
        }
        self.states.push(next);
    }

    /// Adds the state after a keyspace was emptied.
    pub(super) fn clear(&mut self, keyspace: usize) {
        let mut next = self.now().clone();
        next[keyspace].clear();
        self.touched[keyspace] = self.states.len();
        self.states.push(next);
    }

    /// All up to now survives a kill.
    pub(super) fn write_out(&mut self) {
        self.written = self.states.len() - 1;
    }

    /// All up to now survives a power cut.
    pub(super) fn sync(&mut self) {
        self.write_out();
        self.synced = self.written;
    }

    /// What was written to a keyspace survives a power cut, and so all that was written before it.
    pub(super) fn persist(&mut self, keyspace: usize) {
        self.synced = self.synced.max(self.touched[keyspace]);
        self.written = self.written.max(self.synced);
    }

    /// Finds the newest state that agrees with what is there after a crash, and goes on from it.
    pub(super) fn recover(&mut self, power_cut: bool, read: &[Vec<(Slice, Slice)>; N]) {
        let oldest = if power_cut { self.synced } else { self.written };
        let matches = |state: &[Map; N]| state.iter().zip(read).all(|(a, b)| agrees(a.iter(), b));
        let found = self.states[oldest..].iter().rposition(matches);
        let Some(found) = found else {
            panic!(
                "none of the states {oldest}..{} is what was recovered: {:?}",
                self.states.len(),
                read.each_ref().map(Vec::len)
            )
        };
        self.states.truncate(oldest + found + 1);
        self.touched = self.touched.map(|at| at.min(self.states.len() - 1));
        self.sync();
    }
}
