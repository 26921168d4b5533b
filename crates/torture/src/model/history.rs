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
    /// Eight bytes: the number, and behind it what follows from it and what no compression makes smaller.
    fn word(self, at: usize) -> [u8; 8] {
        if at == 0 {
            return self.number.to_le_bytes();
        }
        // The output function of SplitMix64.
        let mut word =
            (self.number << 32).wrapping_add(at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (word ^ (word >> 27)).to_le_bytes()
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len + 8);
        (0..self.len.div_ceil(8)).for_each(|at| bytes.extend(self.word(at)));
        bytes.truncate(self.len);
        bytes
    }

    pub(super) fn is(self, bytes: &[u8]) -> bool {
        let same = |(at, chunk): (usize, &[u8])| *chunk == self.word(at)[..chunk.len()];
        bytes.len() == self.len && bytes.chunks(8).enumerate().all(same)
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

/// A keyspace, a key, and what there was before it was changed.
type Undo = (usize, Vec<u8>, Option<Value>);

/// The states of keyspaces that recover together: the newest one, and how to go back from it.
#[derive(Debug)]
pub(super) struct History<const N: usize> {
    now: [Map; N],
    /// What leads from each state but the first to the one before it, oldest first.
    undo: Vec<Vec<Undo>>,
    /// States before this one are gone for good after a kill,
    written: usize,
    /// and before this one after a power cut.
    synced: usize,
    /// When each keyspace was last changed. To delete what is not there may be no write to it.
    touched: [usize; N],
}

impl<const N: usize> History<N> {
    pub(super) fn new() -> Self {
        let now = std::array::from_fn(|_| Map::new());
        Self { now, undo: Vec::new(), written: 0, synced: 0, touched: [0; N] }
    }

    pub(super) fn now(&self) -> &[Map; N] {
        &self.now
    }

    /// The number of the newest state.
    fn newest(&self) -> usize {
        self.undo.len()
    }

    /// Adds the state after writes that are committed together.
    pub(super) fn commit(&mut self, writes: &[(usize, Change<Value>)]) {
        let mut undo = Vec::new();
        for (keyspace, change) in writes {
            let map = &mut self.now[*keyspace];
            let before = undo.len();
            match change {
                Change::Put(key, value) => {
                    undo.push((*keyspace, key.clone(), map.insert(key.clone(), *value)));
                }
                Change::Delete(key) => {
                    undo.extend(map.remove(key).map(|old| (*keyspace, key.clone(), Some(old))));
                }
                Change::DeleteRange(bounds) => map.retain(|key, value| {
                    let is_kept = !bounds.contains(key);
                    if !is_kept {
                        undo.push((*keyspace, key.clone(), Some(*value)));
                    }
                    is_kept
                }),
            }
            if undo.len() > before {
                self.touched[*keyspace] = self.newest() + 1;
            }
        }
        self.undo.push(undo);
    }

    /// Adds the state after a keyspace was emptied.
    pub(super) fn clear(&mut self, keyspace: usize) {
        let all = std::mem::take(&mut self.now[keyspace]);
        let undo = all.into_iter().map(|(key, value)| (keyspace, key, Some(value)));
        self.undo.push(undo.collect());
        self.touched[keyspace] = self.newest();
    }

    /// Goes back to the state before.
    fn go_back(&mut self) {
        for (keyspace, key, value) in self.undo.pop().into_iter().flatten().rev() {
            match value {
                Some(value) => self.now[keyspace].insert(key, value),
                None => self.now[keyspace].remove(&key),
            };
        }
    }

    /// All up to now survives a kill.
    pub(super) fn write_out(&mut self) {
        self.written = self.newest();
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
        let (oldest, newest) = (if power_cut { self.synced } else { self.written }, self.newest());
        let matches = |state: &[Map; N]| state.iter().zip(read).all(|(a, b)| agrees(a.iter(), b));
        while !matches(&self.now) {
            assert!(
                self.newest() > oldest,
                "none of the states {oldest}..={newest} is what was recovered: {:?}",
                read.each_ref().map(Vec::len)
            );
            self.go_back();
        }
        self.touched = self.touched.map(|at| at.min(self.newest()));
        self.sync();
    }
}
