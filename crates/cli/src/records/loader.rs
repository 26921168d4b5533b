//! Puts the pieces of a file into the database, in atomic batches.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use turbidite::{Batch, Database, Keyspace};
use turbidite_records::Ending;

use super::order::{Entry, Order};
use crate::failure::Result;

/// Gathers pieces and commits them.
///
/// Costs 16 to 40 bytes of memory for each record, to know the keys that occurred before.
pub(crate) struct Loader<'a> {
    database: &'a Database,
    records: Keyspace,
    order: Order,
    batch: Batch,
    batch_size: usize,
    pieces: u64,
    pending: usize,
    committed: u64,
    seen: Seen,
}

impl<'a> Loader<'a> {
    /// Starts to load into `records`, and forgets the order of an earlier import.
    pub(crate) fn new(
        database: &'a Database,
        records: Keyspace,
        order: Order,
        batch_size: usize,
    ) -> Result<Self> {
        order.clear(database, batch_size)?;
        Ok(Self {
            database,
            records,
            order,
            batch: database.batch(),
            batch_size,
            pieces: 0,
            pending: 0,
            committed: 0,
            seen: Seen::default(),
        })
    }

    /// How many records are committed.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// Adds text that is no record.
    pub(crate) fn verbatim(&mut self, text: &[u8]) {
        self.pieces += 1;
        self.order.put(&mut self.batch, self.pieces, Entry::Verbatim(text));
    }

    /// Whether the key occurred before; from now on it did.
    pub(crate) fn is_repeated(&mut self, key: &[u8]) -> bool {
        !self.seen.insert(key)
    }

    /// Adds a record with its line ending; commits when the batch is full.
    pub(crate) fn record(&mut self, key: &[u8], raw: &[u8]) -> Result<()> {
        let (value, ending) = Ending::cut(raw);
        self.pieces += 1;
        self.batch.put(&self.records, key, value);
        self.order.put(&mut self.batch, self.pieces, Entry::Record(key, ending));
        self.pending += 1;
        if self.pending < self.batch_size { Ok(()) } else { self.commit() }
    }

    /// Commits what was added so far.
    pub(crate) fn commit(&mut self) -> Result<()> {
        let records = std::mem::take(&mut self.pending) as u64;
        std::mem::replace(&mut self.batch, self.database.batch()).commit()?;
        self.committed += records;
        Ok(())
    }

    /// Commits the rest and says that the import is complete.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.order.put_complete(&mut self.batch);
        self.commit()
    }
}

/// A set of keys, kept as fingerprints of 128 bits under secret hash keys: two different keys are taken
/// for the same about once in 2^128 pairs.
#[derive(Default)]
struct Seen {
    hashers: [RandomState; 2],
    fingerprints: HashSet<[u64; 2]>,
}

impl Seen {
    /// Adds a key; false if it is there already.
    fn insert(&mut self, key: &[u8]) -> bool {
        self.fingerprints.insert(self.hashers.each_ref().map(|hasher| hasher.hash_one(key)))
    }
}
