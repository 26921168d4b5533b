//! The model: all states that a group of keyspaces has been in, and which of them may be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

use turbidite::{Reducer, Slice};

use super::operation::{Change, Key};

/// A value, told by the number of the write that made it and its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Value {
    pub(super) number: u64,
    pub(super) len: usize,
}

impl Value {
    /// One of `len` bytes, if that is possible where values are reduced so: what is added up has eight.
    pub(super) fn fitting(number: u64, len: usize, reducer: &Reducer) -> Self {
        Self { number, len: if *reducer == Reducer::Sum { 8 } else { len } }
    }

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

/// What is shown of the values of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Show {
    /// There is one, or they are one behind the other.
    Joined,
    /// Each by itself.
    Each,
    /// Their sum.
    Sum,
}

/// What there is under a key: the values that count of those that were put, oldest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Values {
    counting: Vec<Value>,
    show: Show,
}

impl Values {
    /// What there is when `value` was put where there was `old`.
    pub(super) fn put(old: Option<Self>, value: Value, reducer: &Reducer) -> Self {
        let show = match reducer {
            Reducer::KeepAll => Show::Each,
            Reducer::Sum => Show::Sum,
            _ => Show::Joined,
        };
        let Some(mut old) = old else { return Self { counting: vec![value], show } };
        let is_larger = || value.bytes() > old.counting[0].bytes();
        match reducer {
            Reducer::First => {}
            Reducer::KeepAll | Reducer::Concat | Reducer::Sum => old.counting.push(value),
            Reducer::Custom(_) if !is_larger() => {}
            _ => old.counting = vec![value],
        }
        old
    }

    /// The records that are shown, in order.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let (parts, show) = (&self.counting[..], self.show);
        let each = if show == Show::Each { 1 } else { parts.len() };
        parts.chunks(each).map(move |parts| Record { parts, is_sum: show == Show::Sum })
    }

    /// What a get shows.
    pub(super) fn newest(&self) -> Record<'_> {
        self.records().last().expect("there is a value")
    }
}

/// A value as it is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    parts: &'a [Value],
    is_sum: bool,
}

impl Record<'_> {
    pub(super) fn is(self, bytes: &[u8]) -> bool {
        if self.is_sum {
            let number = |value: &Value| {
                i64::from_be_bytes(value.bytes().try_into().expect("numbers have 8 bytes"))
            };
            let sum = self.parts.iter().map(number).fold(0, i64::wrapping_add);
            return bytes == sum.to_be_bytes();
        }
        let mut rest = bytes;
        let are_there = self.parts.iter().all(|value| {
            let there = rest.split_off(..value.len);
            there.is_some_and(|there| value.is(there))
        });
        are_there && rest.is_empty()
    }
}

/// The state of one keyspace.
pub(super) type Map = BTreeMap<Key, Values>;

/// The records of some keys, which have several if all are kept.
pub(super) fn records<'a>(
    keys: impl IntoIterator<Item = (&'a Key, &'a Values)>,
) -> impl Iterator<Item = (&'a Key, Record<'a>)> {
    keys.into_iter().flat_map(|(key, values)| values.records().map(move |record| (key, record)))
}

/// Whether what was read is what the model holds.
pub(super) fn agrees<'a>(
    model: impl IntoIterator<Item = (&'a Key, &'a Values)>,
    read: &[(Slice, Slice)],
) -> bool {
    let mut read = read.iter();
    let mut is_next = |(key, record): (&Key, Record<'_>)| {
        read.next().is_some_and(|read| read.0 == *key && record.is(&read.1))
    };
    records(model).all(&mut is_next) && read.next().is_none()
}

/// The records of each key.
fn by_key(read: &[(Slice, Slice)]) -> BTreeMap<&[u8], &[(Slice, Slice)]> {
    read.chunk_by(|(a, _), (b, _)| a == b).map(|records| (&records[0].0[..], records)).collect()
}

/// A keyspace, a key, and what there was before it was changed.
type Undo = (usize, Key, Option<Values>);

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
    /// What becomes of several values of a key in each of them.
    reducers: [Reducer; N],
    /// When each keyspace was last changed. To delete what is not there may be no write to it.
    touched: [usize; N],
}

impl<const N: usize> History<N> {
    pub(super) fn new(reducers: [Reducer; N]) -> Self {
        let now = std::array::from_fn(|_| Map::new());
        Self { now, undo: Vec::new(), written: 0, synced: 0, reducers, touched: [0; N] }
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
                    let old = map.remove(key);
                    let new = Values::put(old.clone(), *value, &self.reducers[*keyspace]);
                    map.insert(key.clone(), new);
                    undo.push((*keyspace, key.clone(), old));
                }
                Change::Delete(key) => {
                    undo.extend(map.remove(key).map(|old| (*keyspace, key.clone(), Some(old))));
                }
                Change::DeleteRange(bounds) => map.retain(|key, value| {
                    let is_kept = !bounds.contains(key);
                    if !is_kept {
                        undo.push((*keyspace, key.clone(), Some(value.clone())));
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

    /// Goes back to the state before. Gives the keys that are changed, by their keyspaces.
    fn go_back(&mut self) -> Vec<(usize, Key)> {
        let undo = self.undo.pop().into_iter().flatten().rev();
        let undone = undo.map(|(keyspace, key, value)| {
            match value {
                Some(value) => self.now[keyspace].insert(key.clone(), value),
                None => self.now[keyspace].remove(&key),
            };
            (keyspace, key)
        });
        undone.collect()
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
        let there = read.each_ref().map(|read| by_key(read));
        let is_wrong = |now: &[Map; N], (at, key): &(usize, Key)| {
            let found = there[*at].get(&key[..]).copied().unwrap_or_default();
            let values = now[*at].get_key_value(key);
            !agrees(values, found)
        };
        let keys = (0..N).flat_map(|at| {
            let read = there[at].keys().map(|key| key.to_vec());
            self.now[at].keys().cloned().chain(read).map(move |key| (at, key))
        });
        // There may be many states, of which each differs in a few keys from the one before.
        let mut wrong: BTreeSet<_> = keys.filter(|key| is_wrong(&self.now, key)).collect();
        while !wrong.is_empty() {
            assert!(
                self.newest() > oldest,
                "none of the states {oldest}..={newest} is what was recovered: {:?}",
                read.each_ref().map(Vec::len)
            );
            for key in self.go_back() {
                let is_wrong = is_wrong(&self.now, &key);
                if is_wrong {
                    wrong.insert(key)
                } else {
                    wrong.remove(&key)
                };
            }
        }
        assert!(self.now.iter().zip(read).all(|(map, read)| agrees(map, read)), "in no order");
        self.touched = self.touched.map(|at| at.min(self.newest()));
        self.sync();
    }
}
