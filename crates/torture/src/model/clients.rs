//! Threads that use one keyspace at the same time, each with keys of its own, of which it knows what they hold.

use turbidite::{Database, Keyspace, Reducer};

use super::history::{Map, Value, Values, agrees};
use super::operation::Change;
use super::world::{assert_value, everything};
use crate::Dice;

/// How many there are.
pub(super) const CLIENTS: usize = 3;
/// Keys of each.
const KEYS: usize = 20;
/// Bytes of the longest value.
const LONGEST: usize = 2000;

/// One of them.
pub(super) struct Client {
    pub(super) database: Database,
    pub(super) keyspace: Keyspace,
    pub(super) is_ordered: bool,
    pub(super) reducer: Reducer,
    /// What its keys begin with.
    pub(super) prefix: String,
    /// What they hold.
    pub(super) map: Map,
    pub(super) seed: u64,
}

/// What all keys of a client begin with.
pub(super) fn prefix(client: usize) -> String {
    format!("client {client} ")
}

impl Client {
    /// Writes and reads so many times, with values of the numbers from `first` on, and gives what was written, in order.
    pub(super) fn run(mut self, first: u64, count: usize) -> Vec<Change<Value>> {
        let mut dice = Dice::new(self.seed);
        let mut written = Vec::new();
        for number in (first..).take(count) {
            let key = format!("{}{}", self.prefix, dice.roll(KEYS)).into_bytes();
            match dice.roll(10) {
                0..4 => {
                    let value = Value::fitting(number, dice.roll(LONGEST), &self.reducer);
                    self.keyspace.put(&key, value.bytes()).unwrap();
                    let values = Values::put(self.map.remove(&key), value, &self.reducer);
                    self.map.insert(key.clone(), values);
                    written.push(Change::Put(key, value));
                }
                4 => {
                    self.keyspace.delete(&key).unwrap();
                    self.map.remove(&key);
                    written.push(Change::Delete(key));
                }
                5..8 => {
                    let found = self.keyspace.get(&key).unwrap();
                    assert_value(&key, found.as_ref(), self.map.get(&key));
                }
                8 => {
                    let snapshot = self.database.snapshot();
                    let found = snapshot.get(&self.keyspace, &key).unwrap();
                    assert_value(&key, found.as_ref(), self.map.get(&key));
                }
                _ => self.read_all(),
            }
        }
        self.read_all();
        written
    }

    /// Reads all of its keys, those of the others beside them.
    fn read_all(&self) {
        let range = match self.is_ordered {
            true => self.keyspace.prefix(&self.prefix),
            false => self.keyspace.iter(),
        };
        let mut read = everything(range, self.is_ordered);
        read.retain(|(key, _)| key.starts_with(self.prefix.as_bytes()));
        assert!(agrees(&self.map, &read), "{}: {read:?}", self.prefix);
    }
}
