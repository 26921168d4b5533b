//! A keyspace: a sorted map of its own inside the database.

use std::ops::RangeBounds;
use std::sync::{Arc, PoisonError};

use crate::base::{Bounds, Kind, ReadPoint, Slice, Span};
use crate::catalog::Types;
use crate::commit::{EncodedWrites, Target, Writes};
use crate::cursor::{Cursor, Range};
use crate::database::Handle;
use crate::error::{Error, Result};
use crate::open::Files;
use crate::options::{Durability, EngineKind, KeyspaceOptions, MAX_KEY_LEN, MAX_VALUE_LEN};
use crate::planted::{Bug, planted};
use crate::stats::KeyspaceStats;
use crate::status::KeyspaceStatus;
use crate::sync::{Mutex, MutexGuard};
use crate::vfs::Layer;

/// What a keyspace is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KeyspaceInfo {
    /// Its name.
    pub name: String,
    /// Its index structure.
    pub engine: EngineKind,
    /// How its files are reached.
    pub layer: Layer,
    /// Whether its writes go through the log.
    pub logged: bool,
    /// All of that, and what else was chosen for its engine, as it is now:
    /// [`Database::keyspace`](crate::Database::keyspace) makes another one like it of these.
    pub options: KeyspaceOptions,
}

/// A keyspace that is open.
pub(crate) struct OpenKeyspace {
    /// As it was when it was opened; layer and options may have changed since.
    opened: KeyspaceInfo,
    /// What it is made of now; the layer is the engine's.
    options: Mutex<KeyspaceOptions>,
    pub(crate) target: Target,
    pub(crate) files: Files,
}

impl OpenKeyspace {
    pub(crate) fn new(opened: KeyspaceInfo, target: Target, files: Files) -> Self {
        let options = Mutex::new(opened.options.clone());
        Self { opened, options, target, files }
    }

    pub(crate) fn info(&self) -> KeyspaceInfo {
        let layer = self.target.engine.layer();
        let mut options = KeyspaceOptions::clone(&self.options());
        options.layer = Some(layer);
        KeyspaceInfo { layer, options, ..self.opened.clone() }
    }

    /// Takes note of a change of what it is made of.
    pub(crate) fn note(&self, change: impl FnOnce(&mut KeyspaceOptions)) {
        change(&mut self.options());
    }

    fn options(&self) -> MutexGuard<'_, KeyspaceOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stats(&self) -> KeyspaceStats {
        let name = self.opened.name.clone();
        let page_cache = self.files.page_cache_stats();
        KeyspaceStats { name, page_cache, ..self.target.engine.stats() }
    }

    pub(crate) fn status(&self) -> KeyspaceStatus {
        let engine = &self.target.engine;
        let stats = engine.stats();
        KeyspaceStatus {
            name: self.opened.name.clone(),
            engine: self.opened.engine,
            disk_bytes: stats.disk_bytes,
            memory_bytes: stats.memory_bytes,
            flushes: stats.flushes,
            compactions: stats.compactions,
            work: stats.work,
            pressure: engine.pressure(),
            tree: engine.tree_status(),
        }
    }
}

/// A sorted map from keys to values, both any bytes: keys up to [64 KiB](crate::MAX_KEY_LEN), values up to
/// [1 GiB](crate::MAX_VALUE_LEN). An empty key and an empty value are as good as any other.
///
/// Handles are cheap to clone, may be used from any thread, and keep the database open. Reads never wait
/// for writers. What a single call reads is the state of one moment.
#[derive(Clone)]
pub struct Keyspace {
    database: Arc<Handle>,
    open: Arc<OpenKeyspace>,
}

impl Keyspace {
    pub(crate) fn new(database: Arc<Handle>, open: Arc<OpenKeyspace>) -> Self {
        Self { database, open }
    }

    pub(crate) fn database(&self) -> &Arc<Handle> {
        &self.database
    }

    pub(crate) fn target(&self) -> &Target {
        &self.open.target
    }

    /// An error if the keyspace is known to have keys or values of other types.
    pub(crate) fn check_types(&self, types: &Types) -> Result<()> {
        self.database.check_open()?;
        self.database.check_types(&self.open, types)
    }

    /// The keyspace's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.open.opened.name
    }

    /// Gives `key` the value `value`, with the database's durability. Cost: a log record and an insertion
    /// into memory; with [`Durability::Sync`](crate::Durability::Sync) a device sync, shared with other
    /// writers.
    ///
    /// # Errors
    /// `Invalid` if key or value is too large, or the value is not one for the keyspace's
    /// [reducer](crate::Reducer); `NoSpace`, after which nothing was written; `Io`, after which
    /// nothing was written or the database is `Poisoned`; what keeps background work from making room, as `Corruption`; `ReadOnly`, `Closed`.
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Put, key.as_ref(), value.as_ref(), self.database.durability())
    }

    /// Removes `key`; it is no error if it is not there. Cost and errors as [`put`](Self::put).
    #[inline]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Delete, key.as_ref(), &[], self.database.durability())
    }

    /// Like [`put`](Self::put), with a durability of its own.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.write(Kind::Put, key.as_ref(), value.as_ref(), durability)
    }

    /// Like [`delete`](Self::delete), with a durability of its own.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.write(Kind::Delete, key.as_ref(), &[], durability)
    }

    fn write(&self, kind: Kind, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        check_sizes(key, value)?;
        self.open.target.check(kind, key, value)?;
        self.database.check_writable()?;
        let writes = Writes::One { target: &self.open.target, kind, key, value };
        self.database.committer().commit(writes, durability)
    }

    /// Removes all keys in `range`, with the database's durability: one write that deletes every key there is in it, at a
    /// cost that does not depend on how many there are. In LSM-trees only. A range without any key, or whose end lies before
    /// its start, removes nothing, and then nothing is written. To remove all keys, [`clear`](Self::clear) is better: it gives
    /// their files back at once.
    ///
    /// ```
    /// # fn main() -> turbidite::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = turbidite::Database::open(dir.path().join("my.db"))?;
    /// # use turbidite::KeyspaceOptions;
    /// let readings = db.keyspace("readings", KeyspaceOptions::lsm())?;
    /// for day in ["2024-12-31", "2025-01-01", "2025-01-02"] {
    ///     readings.put(day, "21.5")?;
    /// }
    /// readings.delete_range(.."2025-01-01")?;
    /// assert_eq!(readings.count()?, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// Cost: a log record and an insertion into memory, some microseconds. It stays as a *range tombstone*, which takes about
    /// a kilobyte of memory until it is in a file, until compactions have brought it to the deepest data of its range: what it
    /// covers goes with them, tables that lie wholly in it without being read. While a keyspace has range tombstones a read takes
    /// one more search in each place that has some; ranges and cursors go past what is deleted without walking over all of it.
    ///
    /// # Errors
    /// `Unsupported` if the keyspace is no LSM-tree; `Invalid` if an end of the range is larger than a key may be; those of
    /// [`put`](Self::put).
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.delete_range_with(range, self.database.durability())
    }

    /// Like [`delete_range`](Self::delete_range), with a durability of its own.
    ///
    /// # Errors
    /// Those of [`delete_range`](Self::delete_range).
    pub fn delete_range_with<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        durability: Durability,
    ) -> Result<()> {
        self.delete_bounds(Bounds::new(range), durability)
    }

    /// Removes all keys that start with `prefix`, as [`delete_range`](Self::delete_range).
    ///
    /// # Errors
    /// Those of [`delete_range`](Self::delete_range).
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        self.delete_bounds(Bounds::prefix(prefix.as_ref()), self.database.durability())
    }

    fn delete_bounds(&self, bounds: Bounds, durability: Durability) -> Result<()> {
        let range = bounds.half_open();
        let target = &self.open.target;
        check_range(target, range.span())?;
        self.database.check_writable()?;
        if range.span().is_empty() {
            return Ok(());
        }
        let mut writes = EncodedWrites::default();
        writes.push_delete_range(target, range.span());
        self.database.committer().commit(Writes::Many(&writes), durability)
    }

    /// Empties the keyspace, with the database's durability: as by one write that deletes every key, at a cost that does
    /// not depend on how many there are. Snapshots, ranges and cursors from before go on seeing what was there; its files
    /// are removed in the background when the last of those is gone. What was in memtables stays in memory for them, beyond
    /// the memory budget: at most what was not in files yet, for each clear that they are from before. Not for hash keyspaces, whose keys are in one index in
    /// memory.
    ///
    /// # Errors
    /// `Unsupported` in a hash keyspace; `NoSpace`, after which nothing has changed; `Io`, after which nothing has changed or the database
    /// is `Poisoned`; `ReadOnly`, `Closed`.
    pub fn clear(&self) -> Result<()> {
        self.clear_with(self.database.durability())
    }

    /// Like [`clear`](Self::clear), with a durability of its own.
    ///
    /// # Errors
    /// Those of [`clear`](Self::clear).
    pub fn clear_with(&self, durability: Durability) -> Result<()> {
        self.database.check_writable()?;
        let target = &self.open.target;
        let engine = target.engine.as_clear()?;
        self.database.committer().commit_clear(target, engine, durability)
    }

    /// Writes many records whose keys ascend, straight into files of the keyspace's own, past log and memtable. Gives
    /// how many there were. LSM-trees and skip keyspaces can do it.
    ///
    /// The records become visible all at once, as one write that is newer than all before it: what becomes of a key that
    /// has a value already is what becomes of it by a put. When the call returns they survive power loss, also in a
    /// keyspace without the log. A crash before that leaves all of them or none, and never what was written after them
    /// without them.
    ///
    /// Cost: each record is written once, and again when files are merged; syncs at the end. In an LSM-tree the files go
    /// at once as deep as they may without meeting keys that are there, and are not merged above that. Where too many
    /// files wait to be merged, it waits first. Values stay with their keys, however long they are: an LSM-tree that
    /// [keeps them apart](crate::KeyspaceOptions::separate_values) moves them when it merges the files. Other writers go on meanwhile. Memory does not grow with the number of records.
    ///
    /// If `records` panics, the panic goes to the caller, and it is as if the call had not been made.
    ///
    /// # Errors
    /// `Unsupported` if the keyspace's engine has no such way; `Invalid` if a key is not above the one before it, or key
    /// or value is too large; `NoSpace`, `Io`, `Corruption`, `Poisoned`, `ReadOnly`, `Closed`. After an error none of the
    /// records is there, unless they had become visible before, or writes are refused from then on: then the next opening
    /// has all or none.
    pub fn load_sorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
    ) -> Result<u64> {
        self.load_results(records.into_iter().map(Ok))
    }

    /// The same, of records of which one may be an error, which the call gives then.
    pub(crate) fn load_results<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl Iterator<Item = Result<(K, V)>>,
    ) -> Result<u64> {
        self.database.check_writable()?;
        let target = &self.open.target;
        let mut load = target.engine.load()?;
        let mut count = 0;
        for record in records {
            let (key, value) = record?;
            let (key, value) = (key.as_ref(), value.as_ref());
            check_sizes(key, value)?;
            self.database.check_writable()?;
            load.push(key, value)?;
            count += 1;
        }
        if count > 0 {
            load.finish()?;
            self.database.committer().commit_load(target, &mut *load)?;
            if !planted(Bug::LoadReturnsEarly) {
                load.wait()?;
            }
        }
        Ok(count)
    }

    /// The value of `key`. Cost: memory only if the block it lies in is cached, else as a rule one read: one
    /// for each table that its filter does not rule out. A table that is not open is opened first. In a B+ tree
    /// a search in one node of each level, each of which may have to be read. In a hash keyspace a probe of memory,
    /// and as a rule at most one read.
    ///
    /// # Errors
    /// `Corruption` if what was to be read is damaged; `Io`, `Closed`.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.get_at(key.as_ref(), self.now())
    }

    /// All values of `key`, in the order they were put since it was last deleted, in a skip keyspace with
    /// [`Reducer::KeepAll`](crate::Reducer::KeepAll). Elsewhere what [`get`](Self::get) gives: one value or none. Cost: as
    /// `get`; all the values are in memory at once.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_all(&self, key: impl AsRef<[u8]>) -> Result<Vec<Slice>> {
        self.get_all_at(key.as_ref(), self.now())
    }

    /// Whether `key` has a value. Cost and errors as [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The values of several keys, in the order of the keys, all of the same moment. A key may come more
    /// than once. Cost: in memory less than as many calls of [`get`](Self::get), because the waits for
    /// memory overlap; blocks that have to be read from a device are read together, each once, so that a
    /// batch of 64 takes a fraction of the time. All keys, values and blocks read are in memory at once.
    ///
    /// # Errors
    /// Those of [`get`](Self::get), if any of the keys meets one.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Slice>>> {
        let held = Held::new(&self.database);
        self.multi_get_at(keys, held.point())
    }

    /// All keys and values of this moment; in order, unless the keyspace has none.
    pub fn iter(&self) -> Range {
        self.range_in(Bounds::ALL, Held::new(&self.database))
    }

    /// The keys in `range` and their values, in order, of this moment. `..` is everything, but
    /// [`iter`](Self::iter) needs no type for it. `Unsupported` in a hash keyspace, unless it is everything.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Range {
        self.range_in(Bounds::new(range), Held::new(&self.database))
    }

    /// The keys that start with `prefix` and their values, in order, of this moment. `Unsupported` in a hash keyspace,
    /// unless the prefix is empty.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        self.range_in(Bounds::prefix(prefix.as_ref()), Held::new(&self.database))
    }

    /// A cursor over the keys of this moment, which can be moved both ways and anywhere.
    ///
    /// # Errors
    /// `Unsupported` in a hash keyspace; `Closed`.
    pub fn cursor(&self) -> Result<Cursor> {
        self.cursor_at(self.now())
    }

    /// The number of keys; of all their values, where [a key may have several](crate::Reducer::KeepAll). Cost: reads all of
    /// them. A hash keyspace mostly knows it, once the work that writes leave to the background is done, and a skip
    /// keyspace when all of it is in its sorted file.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn count(&self) -> Result<u64> {
        self.count_at(self.now())
    }

    /// The record at `position` of a skip keyspace, counted from 0 in the order of the keys; `None` if there are not so
    /// many. Cost: one search in the sorted file, as in [`get`](Self::get), and two for each key in front that was written since
    /// the last merge, of which there are none after [`persist`](Self::persist).
    ///
    /// # Errors
    /// `Unsupported` in a keyspace with another engine; those of [`get`](Self::get).
    pub fn nth(&self, position: u64) -> Result<Option<(Slice, Slice)>> {
        self.nth_at(position, self.now())
    }

    /// How many records of a skip keyspace have a key below `key`, which itself need not be there: the position at which
    /// [`nth`](Self::nth) finds it or what comes behind it. Cost and errors as `nth`.
    ///
    /// # Errors
    /// Those of [`nth`](Self::nth).
    pub fn rank(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.rank_at(key.as_ref(), self.now())
    }

    /// Writes all that is in memory to the keyspace's own files, which survive power loss, and so frees the
    /// part of the log it needed. If it has the log, all that was committed before the last of these writes, to whatever
    /// keyspace that has it, survives with them. A skip keyspace merges them into its sorted file then: it reads and writes all of
    /// it.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Corruption`, `Poisoned`, `ReadOnly`, `Closed`; `Unsupported` in a skip keyspace whose reducer is not registered;
    /// `Invalid` in one in which values of a key become one that is too large: all is in its own files then, but not merged.
    pub fn persist(&self) -> Result<()> {
        self.database.check_writable()?;
        let cut = || self.database.cut(&self.open.target);
        self.open.target.engine.synchronize(&cut)
    }

    /// Persists, and rewrites the files into their most compact form: what was deleted or overwritten is
    /// gone from them, as far as no snapshot sees it. Cost: reads and writes the whole keyspace; needs disk
    /// space for a second copy of it meanwhile. A B+ tree is rewritten in steps and needs a part of that, unless
    /// most of it is a few values with holes between them. While an LSM-tree is compacted nothing else of it is: who writes several
    /// times the memory budget to it meanwhile is slowed down, and may have to wait until it is done.
    ///
    /// # Errors
    /// As [`persist`](Self::persist).
    pub fn compact(&self) -> Result<()> {
        self.database.check_writable()?;
        self.database.cut(&self.open.target)?;
        self.open.target.engine.compact()
    }

    /// Figures about the keyspace.
    #[must_use]
    pub fn stats(&self) -> KeyspaceStats {
        self.open.stats()
    }

    // ---- reading at a point ----

    fn now(&self) -> ReadPoint<'_> {
        ReadPoint::Latest(self.database.visibility())
    }

    #[inline]
    pub(crate) fn get_at(&self, key: &[u8], point: ReadPoint<'_>) -> Result<Option<Slice>> {
        self.database.check_open()?;
        let found = self.open.target.engine.get(key, point);
        if planted(Bug::GetTakesErrorForAbsence) && found.is_err() {
            return Ok(None);
        }
        found
    }

    pub(crate) fn get_all_at(&self, key: &[u8], point: ReadPoint<'_>) -> Result<Vec<Slice>> {
        self.database.check_open()?;
        self.open.target.engine.get_all(key, point)
    }

    pub(crate) fn nth_at(
        &self,
        position: u64,
        point: ReadPoint<'_>,
    ) -> Result<Option<(Slice, Slice)>> {
        self.database.check_open()?;
        self.open.target.engine.nth(position, point)
    }

    pub(crate) fn rank_at(&self, key: &[u8], point: ReadPoint<'_>) -> Result<u64> {
        self.database.check_open()?;
        self.open.target.engine.rank(key, point)
    }

    pub(crate) fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        point: ReadPoint<'_>,
    ) -> Result<Vec<Option<Slice>>> {
        self.database.check_open()?;
        let keys: Vec<K> = keys.into_iter().collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        self.open.target.engine.multi_get(&keys, point)
    }

    pub(crate) fn cursor_at(&self, point: ReadPoint<'_>) -> Result<Cursor> {
        self.database.check_open()?;
        let cursor = self.open.target.engine.cursor(point)?;
        Ok(Cursor::new(cursor, Arc::clone(&self.database)))
    }

    pub(crate) fn range_in(&self, bounds: Bounds, held: Held) -> Range {
        Range::new(self.clone(), bounds, held)
    }

    pub(crate) fn count_at(&self, point: ReadPoint<'_>) -> Result<u64> {
        self.database.check_open()?;
        let engine = &self.open.target.engine;
        if let ReadPoint::Latest(_) = point
            && let Some(count) = engine.count()
        {
            return Ok(count);
        }
        let held = Held::new(&self.database);
        let seqno = match point {
            ReadPoint::At(seqno) => seqno,
            ReadPoint::Latest(_) => held.seqno,
        };
        let mut scan = engine.scan(seqno)?;
        let mut count = 0;
        while scan.skip()? {
            count += 1;
            self.database.check_open()?;
        }
        Ok(count)
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({:?}, {})", self.name(), self.open.opened.engine)
    }
}

/// A state that is held for reading until this is dropped.
pub(crate) struct Held {
    database: Arc<Handle>,
    seqno: u64,
}

impl Held {
    pub(crate) fn new(database: &Arc<Handle>) -> Self {
        Self { database: Arc::clone(database), seqno: database.visibility().hold() }
    }

    pub(crate) fn point(&self) -> ReadPoint<'static> {
        ReadPoint::At(self.seqno)
    }

    pub(crate) fn seqno(&self) -> u64 {
        self.seqno
    }

    pub(crate) fn database(&self) -> &Arc<Handle> {
        &self.database
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        self.database.visibility().hold_again(self.seqno);
        Self { database: Arc::clone(&self.database), seqno: self.seqno }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Another process's state is held by that one, and its locks may be for good.
        if self.database.is_of_this_process() {
            self.database.release(self.seqno);
        }
    }
}

/// An error if the keyspace cannot delete the keys of `span` by one write, or an end of it is larger than any key.
pub(crate) fn check_range(target: &Target, span: Span<'_>) -> Result<()> {
    target.engine.as_delete_range()?;
    // Behind the largest key comes one byte more.
    let ends = [span.start, span.end.unwrap_or_default()];
    let too_large = ends.into_iter().find(|key| key.len() > MAX_KEY_LEN + 1);
    too_large.map_or(Ok(()), |key| check_sizes(key, &[]))
}

/// An error if key or value is larger than can be stored.
pub(crate) fn check_sizes(key: &[u8], value: &[u8]) -> Result<()> {
    let (what, len, limit) = if key.len() > MAX_KEY_LEN {
        ("key", key.len(), MAX_KEY_LEN)
    } else if value.len() > MAX_VALUE_LEN {
        ("value", value.len(), MAX_VALUE_LEN)
    } else {
        return Ok(());
    };
    Err(Error::Invalid(format!("a {what} of {len} bytes is too large: the limit is {limit}")))
}
