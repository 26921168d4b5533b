//! Batches: writes that take effect together or not at all.

use std::ops::RangeBounds;
use std::sync::Arc;

use crate::base::{Bounds, Kind};
use crate::commit::{Change, EncodedWrites, Writes};
use crate::database::Handle;
use crate::error::{Error, Result};
use crate::keyspace::{Keyspace, check_range, check_sizes};
use crate::memtable::LARGEST_BATCH;
use crate::options::Durability;
use crate::snapshot::check_same;

/// Writes to any keyspaces of a database that are committed as one: after a crash all of them are there or
/// none, and no reader sees a part of them. Writes to keyspaces [without the log](crate::KeyspaceOptions::log)
/// are the exception: after a crash they may be missing from a batch.
///
/// The writes of one batch take effect in the order they were added. A batch is held in memory until it is
/// committed, and may take about 2 GiB.
///
/// ```
/// # fn main() -> turbidite::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use turbidite::{Database, KeyspaceOptions};
/// let db = Database::open(dir.path().join("my.db"))?;
/// let users = db.keyspace("users", KeyspaceOptions::lsm())?;
/// let by_mail = db.keyspace("by mail", KeyspaceOptions::lsm())?;
/// let mut batch = db.batch();
/// batch.put(&users, "1", "Ada").put(&by_mail, "ada@example.org", "1");
/// batch.commit()?;
/// # Ok(()) }
/// ```
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch {
    database: Arc<Handle>,
    writes: EncodedWrites,
    weight: usize,
    durability: Durability,
    /// The first thing wrong with what was added; nothing is committed then.
    error: Option<Error>,
}

impl Batch {
    pub(crate) fn new(database: Arc<Handle>) -> Self {
        let durability = database.durability();
        Self { database, writes: EncodedWrites::default(), weight: 0, durability, error: None }
    }

    /// Adds: give `key` of `keyspace` the value `value`. What is wrong with it is told by
    /// [`commit`](Self::commit).
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.add(keyspace, Kind::Put, key.as_ref(), value.as_ref())
    }

    /// Adds: remove `key` of `keyspace`.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> &mut Self {
        self.add(keyspace, Kind::Delete, key.as_ref(), &[])
    }

    /// Adds: remove all keys of `keyspace` that are in `range`, of those that are there then: what the batch puts before this
    /// is removed, and what it puts behind it stays. See [`Keyspace::delete_range`]. A range without any key adds nothing. If
    /// the keyspace's engine cannot delete ranges, [`commit`](Self::commit) gives `Unsupported`, and writes nothing at all.
    pub fn delete_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> &mut Self {
        self.add_range(keyspace, Bounds::new(range))
    }

    /// Adds: remove all keys of `keyspace` that start with `prefix`, as [`delete_range`](Self::delete_range).
    pub fn delete_prefix(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> &mut Self {
        self.add_range(keyspace, Bounds::prefix(prefix.as_ref()))
    }

    fn add_range(&mut self, keyspace: &Keyspace, bounds: Bounds) -> &mut Self {
        if self.error.is_none() {
            let range = bounds.half_open();
            let span = range.span();
            let weight = self.weight + Change::DeleteRange(span).weight();
            let checked = check_same(&self.database, keyspace)
                .and_then(|()| check_range(keyspace.target(), span))
                .and_then(|()| check_weight(weight));
            match checked {
                Ok(()) if span.is_empty() => {}
                Ok(()) => {
                    self.weight = weight;
                    self.writes.push_delete_range(keyspace.target(), span);
                }
                Err(error) => self.error = Some(error),
            }
        }
        self
    }

    fn add(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) -> &mut Self {
        if self.error.is_none() {
            self.weight += Change::Key { kind, key, value }.weight();
            let checked = check_sizes(key, value)
                .and_then(|()| check_same(&self.database, keyspace))
                .and_then(|()| keyspace.target().check(kind, key, value));
            match checked.and_then(|()| check_weight(self.weight)) {
                Ok(()) => self.writes.push(keyspace.target(), kind, key, value),
                Err(error) => self.error = Some(error),
            }
        }
        self
    }

    /// Notes what is wrong with something that was to be added.
    pub(crate) fn refuse(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// What the batch must survive once it is committed. Default: the database's durability. It says nothing
    /// for keyspaces without a log.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The number of writes added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len() as usize
    }

    /// Whether no write was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Commits the writes. An empty batch with [`Durability::Sync`] makes all earlier writes survive power
    /// loss that are in the log; with another durability it does nothing.
    ///
    /// # Errors
    /// `Invalid` if a write that was added is too large, the batch is, a keyspace is another database's, or a value is not
    /// one for its keyspace's [reducer](crate::Reducer); `Unsupported` if a range is to be deleted of a keyspace whose engine
    /// cannot do it, after which nothing was written; those of [`Keyspace::put`]. After `Invalid` and `NoSpace` nothing was written.
    pub fn commit(self) -> Result<()> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.database.check_writable()?;
        let committer = self.database.committer();
        if self.writes.len() > 0 {
            return committer.commit(Writes::Many(&self.writes), self.durability);
        }
        if self.durability == Durability::Sync {
            let last = committer.pen()?.last();
            return committer.sync(last);
        }
        Ok(())
    }
}

fn check_weight(weight: usize) -> Result<()> {
    if weight <= LARGEST_BATCH {
        return Ok(());
    }
    Err(Error::Invalid("a batch may take at most about 2 GiB; split it".into()))
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} writes, {})", self.len(), self.durability)
    }
}
