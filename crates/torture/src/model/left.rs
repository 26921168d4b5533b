//! Handles of a database that was closed while they were there: they are refused everything, what they show stays, and whatever becomes of
//! them changes nothing of the database that is opened next.

use turbidite::{
    Cursor, Database, Durability, ErrorKind, Keyspace, KeyspaceOptions, Range, Result, Slice,
    Snapshot,
};

use super::history::{Map, Values};
use super::operation::KEYSPACES;
use crate::Dice;

/// A range or cursor that stands in a keyspace.
enum Reader {
    Range { range: Range, is_ordered: bool },
    Cursor { cursor: Cursor, key: Vec<u8>, values: Values },
}

impl Reader {
    /// One that stands somewhere in a keyspace that is not empty.
    fn new(keyspace: &Keyspace, model: &Map, is_ordered: bool, dice: &mut Dice) -> Self {
        let at = dice.roll(model.len());
        if is_ordered && dice.roll(2) == 0 {
            let mut cursor = keyspace.cursor().unwrap();
            let (key, values) = model.iter().nth(at).expect("there are more");
            cursor.seek(key).unwrap();
            return Self::Cursor { cursor, key: key.clone(), values: values.clone() };
        }
        let mut range = keyspace.iter();
        range.by_ref().take(at + 1).for_each(|item| drop(item.unwrap()));
        Self::Range { range, is_ordered }
    }

    /// Checks that it shows what it did.
    fn check(&self) {
        if let Self::Cursor { cursor, key, values } = self {
            let mut records = values.records();
            assert!(cursor.is_valid() && cursor.key() == key);
            assert!(records.next().is_some_and(|first| first.is(cursor.value())));
        }
    }

    /// Checks that it cannot go on.
    fn step(self, dice: &mut Dice) {
        match self {
            Self::Range { mut range, is_ordered } => {
                let step = match is_ordered && dice.roll(2) == 0 {
                    true => range.next_back(),
                    false => range.next(),
                };
                closed(step.expect("a range that cannot go on says so"));
                assert!(range.next().is_none(), "an error ends a range");
            }
            Self::Cursor { mut cursor, key, .. } => closed(match dice.roll(4) {
                0 => cursor.next(),
                1 => cursor.prev(),
                2 => cursor.seek(key),
                _ => cursor.seek_to_first(),
            }),
        }
    }
}

/// Handles that are left.
pub(super) struct Left {
    database: Database,
    keyspaces: [Keyspace; KEYSPACES],
    snapshots: Vec<Snapshot>,
    readers: Vec<Reader>,
    /// What was read before.
    values: Vec<(Slice, Values)>,
}

impl Left {
    /// Handles of a database that is open.
    pub(super) fn new(
        database: Database,
        keyspaces: [Keyspace; KEYSPACES],
        snapshots: Vec<Snapshot>,
    ) -> Self {
        Self { database, keyspaces, snapshots, readers: Vec::new(), values: Vec::new() }
    }

    /// Reads a value of a keyspace, of which `model` is what it holds, and has some readers, if there is anything, stand in it: tells how many.
    pub(super) fn read(
        &mut self,
        keyspace: &Keyspace,
        model: &Map,
        is_ordered: bool,
        dice: &mut Dice,
    ) -> usize {
        let Some((key, values)) = model.iter().nth(dice.roll(model.len().max(1))) else { return 0 };
        let found = keyspace.get(key).unwrap().expect("the model has it");
        self.values.push((found, values.clone()));
        let readers = dice.roll(3);
        self.readers.extend((0..readers).map(|_| Reader::new(keyspace, model, is_ordered, dice)));
        readers
    }

    /// Lets go of its readers, which may lend bytes of files that the next owner writes.
    pub(super) fn drop_readers(&mut self) {
        self.readers.clear();
    }

    /// Checks that what was read before the database was closed is what it was, that nothing new is read, and that nothing is written. Readers that
    /// are told so are gone then.
    pub(super) fn check(&mut self, dice: &mut Dice) {
        assert!(self.values.iter().all(|(found, values)| values.newest().is(found)));
        self.readers.iter().for_each(Reader::check);
        let is_told = |_: &mut Reader| dice.roll(2) == 0;
        let told: Vec<_> = self.readers.extract_if(.., is_told).collect();
        told.into_iter().for_each(|reader| reader.step(dice));
        let keyspace = &self.keyspaces[dice.roll(KEYSPACES)];
        assert_closed(&self.database, keyspace);
        for snapshot in &self.snapshots {
            closed(snapshot.get(keyspace, "k"));
            closed(snapshot.count(keyspace));
            closed(snapshot.iter(keyspace).next().expect("an error"));
        }
    }
}

fn closed<T>(result: Result<T>) {
    assert_eq!(result.err().map(|error| error.kind()), Some(ErrorKind::Closed));
}

/// Checks that calls of handles of a database that is closed say so.
///
/// # Panics
/// If something does not.
pub fn assert_closed(database: &Database, keyspace: &Keyspace) {
    closed(keyspace.put("k", "8 bytes."));
    closed(keyspace.delete("k"));
    closed(keyspace.get("k"));
    closed(keyspace.get_all("k"));
    closed(keyspace.put_with("k", "8 bytes.", Durability::Sync));
    closed(keyspace.delete_with("k", Durability::Os));
    closed(keyspace.contains("k"));
    closed(keyspace.multi_get(["k"]));
    closed(keyspace.multi_get::<&str>([]));
    closed(keyspace.cursor());
    closed(keyspace.count());
    closed(keyspace.persist());
    closed(keyspace.compact());
    closed(keyspace.iter().next().expect("an error"));
    closed(keyspace.range("a".."z").next_back().expect("an error"));
    closed(keyspace.prefix("").next().expect("an error"));
    closed(database.keyspace("main", KeyspaceOptions::lsm()));
    closed(database.open_keyspace("main"));
    closed(database.persist());
    closed(database.flush_log());
    closed(database.settle());
    closed(database.verify());
    closed(database.clone().close());
    let mut batch = database.batch().durability(Durability::Sync);
    batch.put(keyspace, "k", "8 bytes.");
    closed(batch.commit());
    closed(database.batch().durability(Durability::Sync).commit());
}
