//! A database and its model, and how each operation is done to both.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use turbidite::vfs::{DiskFs, Fs, MemoryFs, PathKind, PowerCut};
use turbidite::{
    Cursor, Database, Durability, EngineKind, Error, ErrorKind, Keyspace, Layer, MIN_MEMORY_BUDGET,
    Range, Reducer, Slice, Snapshot,
};

use super::clients::{self, CLIENTS, Client};
use super::history::{History, Map, Record, Value, Values, agrees, records};
use super::left::Left;
use super::operation::{
    Bounds, COMMON, Change, ENGINES, KEYSPACES, Key, LOGGED, OfQueue, Operation, Write,
};
use super::queue::Queue;
use super::standing::Standing;
use crate::Dice;
use crate::choices::{self, is_ordered};
use crate::history::PATH;
use crate::setting::Setting;
use crate::threads::{Work, together};

/// Bytes of the larger values of a relay: each fills a segment of the log, which has 1 MiB with the smallest memory budget.
const RELAYED: usize = 1 << 20;
/// How many times a keyspace without the log is persisted meanwhile, each of which has the log asked.
const CALLS: usize = 5;
/// How many writes a fill makes.
const FILL: usize = 64;
/// How many keys there are for small writes and reads.
const MIXED: usize = 200;
/// So many bytes are in front of the longest of these.
const LONG: usize = 1000;
/// The pattern of a range that is read from the front to the end.
const FORWARD: u8 = u8::MAX;
/// Snapshots beyond this many are not taken.
const MOST_SNAPSHOTS: usize = 6;
/// Readers beyond this many are not kept.
const MOST_READERS: usize = 4;
/// Handles of so many closed databases are kept.
const MOST_LEFT: usize = 3;

/// Where a database lies, and what it is opened with.
struct Place {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    /// Engines and files, and what options are drawn with for all the life of the keyspaces.
    setting: Setting,
    /// What options of the database are drawn with,
    seed: u64,
    /// and how many times they were.
    openings: u64,
}

impl Place {
    fn in_memory(fs: &MemoryFs, setting: Setting, seed: u64) -> Self {
        Self { fs: Arc::new(fs.clone()), path: PATH.into(), setting, seed, openings: 0 }
    }

    /// Opens the database. A process that somebody starts meanwhile has the lock too from its fork until it is another
    /// program: that is waited for. Readers that are `left` must have it, and are dropped then.
    fn open(&mut self, mut left: Option<&mut Left>) -> Database {
        for _ in 0..500 {
            let builder = Database::builder(&self.path)
                .file_system(Arc::clone(&self.fs))
                .memory_budget(MIN_MEMORY_BUDGET)
                .log_layer(choices::layer(self.setting, "log", self.openings));
            match choices::database(builder, self.seed, self.openings).open() {
                Err(Error::Locked { .. }) => match left.take() {
                    Some(left) => left.drop_readers(),
                    None => std::thread::sleep(Duration::from_millis(2)),
                },
                opened => {
                    assert!(left.is_none(), "readers that are lent bytes of a tree keep the lock");
                    self.openings += 1;
                    return opened.unwrap();
                }
            }
        }
        panic!("the database stays locked")
    }
}

/// What a history led to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Reads and writes that were made beside the model.
    pub(super) operations: u64,
    /// Those of them that are single gets, puts and deletions of a few keys,
    pub(super) mixed: u64,
    /// and those that several threads made at the same time.
    pub(super) by_clients: u64,
    /// Memtables that became tables.
    pub(super) flushes: u64,
    /// Compactions.
    pub(super) compactions: u64,
    /// How often the database was closed, or crashed, and opened again,
    pub(super) reopenings: u64,
    /// and how often handles of it were kept then, and used when it was open again.
    pub(super) late: u64,
    /// How often the process was killed,
    pub(super) kills: u64,
    /// and the power was cut.
    pub(super) power_cuts: u64,
}

struct Open {
    database: Database,
    keyspaces: [Keyspace; KEYSPACES],
    /// One that lets go of what is oldest, if there are LSM-trees.
    queue: Option<Keyspace>,
    /// Which of them lend readers bytes that the next owner changes, so that readers keep the lock.
    lending: [bool; KEYSPACES],
}

impl Open {
    /// Opens the database for the `opening`th time, with other options. What is `left` keeps the lock.
    fn new(place: &mut Place, opening: u64, left: Option<&mut Left>) -> Self {
        let database = place.open(left);
        let Setting { seed, engines, .. } = place.setting;
        let mut lending = [false; KEYSPACES];
        let keyspaces = std::array::from_fn(|index| {
            let engine = engines.or(ENGINES[index]);
            let options = choices::options(engine, choices::mix(seed, index), opening);
            let options = match reducer_of(place.setting, index) {
                Reducer::Last => options,
                other => options.reducer(other),
            };
            let name = format!("keyspace {index}");
            let layer = choices::layer(place.setting, &name, opening);
            lending[index] = engine == EngineKind::Btree && layer == Layer::Mmap;
            database.keyspace(&name, options.layer(layer).log(index < LOGGED)).unwrap()
        });
        let queue = Queue::open(&database, place.setting, opening);
        Self { database, keyspaces, queue, lending }
    }
}

/// What becomes of several values of a key in this keyspace.
fn reducer_of(Setting { seed, engines, .. }: Setting, keyspace: usize) -> Reducer {
    match engines.or(ENGINES[keyspace]) {
        EngineKind::Skip => choices::any_reducer(choices::mix(seed, keyspace)),
        _ => Reducer::Last,
    }
}

/// A snapshot, and what it sees: of the keyspaces, and of the queue, if there is one.
struct Old {
    snapshot: Snapshot,
    maps: [Map; KEYSPACES],
    queue: Option<std::ops::Range<u64>>,
}

/// A database and its model.
pub(super) struct World {
    place: Place,
    /// Set if the database is in memory, where crashes can be played.
    memory: Option<MemoryFs>,
    /// `None` only while it is being reopened.
    open: Option<Open>,
    snapshots: Vec<Old>,
    /// Readers of the open database, the oldest first.
    readers: Vec<Standing>,
    /// Handles of databases that were closed, the oldest first.
    left: Vec<Left>,
    logged: History<LOGGED>,
    unlogged: [History<1>; KEYSPACES - LOGGED],
    queue: Queue,
    writes: u64,
    figures: Figures,
}

impl World {
    /// A new database, in memory or in a directory.
    pub(super) fn new(setting: Setting, dir: Option<&Path>) -> Self {
        let memory = dir.is_none().then(MemoryFs::traced);
        let mut place = match (&memory, dir) {
            (Some(fs), _) => Place::in_memory(fs, setting, setting.seed),
            (None, dir) => {
                let path = dir.expect("it is not in memory").join("test.db");
                let fs = Arc::new(DiskFs::new());
                Place { fs, path, setting, seed: setting.seed, openings: 0 }
            }
        };
        let open = Some(Open::new(&mut place, 0, None));
        let (logged, unlogged) = new_histories(setting);
        Self {
            place,
            memory,
            open,
            snapshots: Vec::new(),
            readers: Vec::new(),
            left: Vec::new(),
            logged,
            unlogged,
            queue: Queue::default(),
            writes: 0,
            figures: Figures::default(),
        }
    }

    fn open(&self) -> &Open {
        self.open.as_ref().expect("the database is open")
    }

    fn keyspace(&self, index: usize) -> &Keyspace {
        &self.open().keyspaces[index]
    }

    fn engine(&self, keyspace: usize) -> EngineKind {
        self.place.setting.engines.or(ENGINES[keyspace])
    }

    fn model(&self, keyspace: usize) -> &Map {
        match keyspace.checked_sub(LOGGED) {
            Some(unlogged) => &self.unlogged[unlogged].now()[0],
            None => &self.logged.now()[keyspace],
        }
    }

    /// Does an operation to the database and to the model, and compares.
    pub(super) fn run(&mut self, operation: &Operation) {
        self.figures.operations += match operation {
            Operation::Batch(writes, _) => writes.len().max(1) as u64,
            Operation::Fill { .. } => FILL as u64,
            Operation::Relay { count, .. } => (1 + count + CALLS) as u64,
            Operation::Mix { count, .. } => *count as u64,
            Operation::Clients { count, .. } => (CLIENTS * count) as u64,
            Operation::Get { keys, .. } => keys.len() as u64,
            Operation::Walk { steps, .. } => 1 + steps.len() as u64,
            Operation::Load { keys, .. } => keys.len() as u64,
            Operation::Push { count, .. } => *count,
            _ => 1,
        };
        match operation {
            Operation::Write(write) => self.write(std::slice::from_ref(write), None),
            Operation::Batch(writes, durability) => self.write(writes, Some(*durability)),
            Operation::Fill { keyspace, len } => self.fill(*keyspace, *len),
            Operation::Relay { keyspace, count, killed } => {
                self.relay(*keyspace, *count);
                if *killed {
                    self.crash(PowerCut::KeepAll);
                }
            }
            Operation::Mix { keyspace, seed, count } => self.mix(*keyspace, *seed, *count),
            Operation::Clients { keyspace, seed, count } => {
                self.clients(*keyspace, *seed, *count);
            }
            Operation::Get { keyspace, keys } => self.get(*keyspace, keys),
            Operation::Range { keyspace, bounds, pattern, old } => {
                self.range(*keyspace, bounds, *pattern, *old);
            }
            Operation::Prefix { keyspace, prefix, pattern } => {
                let range = self.keyspace(*keyspace).prefix(prefix);
                if !prefix.is_empty() && !is_ordered(self.engine(*keyspace)) {
                    return assert_no_order(self.keyspace(*keyspace));
                }
                let pattern = if is_ordered(self.engine(*keyspace)) { *pattern } else { FORWARD };
                let model = self.model(*keyspace).iter().filter(|(key, _)| key.starts_with(prefix));
                check_range(range, pattern, model.collect());
            }
            Operation::Walk { keyspace, .. } if !is_ordered(self.engine(*keyspace)) => {
                assert_no_order(self.keyspace(*keyspace));
            }
            Operation::Walk { keyspace, key, before, steps, old } => {
                let (model, cursor) = match self.old(*old) {
                    Some(Old { snapshot, maps, .. }) => {
                        (&maps[*keyspace], snapshot.cursor(self.keyspace(*keyspace)))
                    }
                    None => (self.model(*keyspace), self.keyspace(*keyspace).cursor()),
                };
                walk(cursor.unwrap(), model, key, *before, steps);
            }
            Operation::Clear(keyspace) => self.clear(*keyspace),
            Operation::Load { keyspace, keys, len } => self.load(*keyspace, keys, *len),
            Operation::TakeSnapshot => self.take_snapshot(),
            Operation::DropSnapshot(index) => {
                if *index < self.snapshots.len() {
                    self.snapshots.swap_remove(*index);
                }
            }
            Operation::Push { count, held } => {
                self.with_queue(|queue, keyspace| queue.push(keyspace, *count));
                if *held {
                    self.open().database.settle().unwrap();
                    self.take_snapshot();
                }
            }
            Operation::Queue(what) => self.queue(*what),
            Operation::Stand { keyspace, old } => self.stand(*keyspace, *old),
            Operation::Step(seed) => {
                let mut dice = Dice::new(*seed);
                self.readers.iter_mut().for_each(|reader| reader.step(&mut dice));
            }
            Operation::Settle => self.open().database.settle().unwrap(),
            Operation::Persist(keyspace) => {
                self.keyspace(*keyspace).persist().unwrap();
                self.persisted(*keyspace);
            }
            Operation::Compact(keyspace) => {
                self.keyspace(*keyspace).compact().unwrap();
                self.persisted(*keyspace);
            }
            Operation::FlushLog => {
                self.open().database.flush_log().unwrap();
                self.logged.write_out();
            }
            Operation::PersistAll => {
                self.open().database.persist().unwrap();
                self.all_is_synced();
            }
            Operation::Close => self.reopen(|open| open.database.close().unwrap()),
            Operation::CloseUnder(seed) => self.close_under(*seed),
            Operation::UseLeft(seed) => self.use_left(*seed),
            Operation::Drop => self.reopen(drop),
            Operation::Kill => self.crash(PowerCut::KeepAll),
            Operation::PowerCut(seed) => {
                self.crash(seed.map_or(PowerCut::DropUnsynced, PowerCut::Random));
            }
        }
    }

    // ---- writing ----

    /// Commits writes, as a batch if a durability is given.
    fn write(&mut self, writes: &[Write], durability: Option<Durability>) {
        let mut numbered = Vec::new();
        for (keyspace, change) in writes {
            self.writes += 1;
            let change = match change.clone() {
                Change::Put(key, len) => {
                    let reducer = reducer_of(self.place.setting, *keyspace);
                    Change::Put(key, Value::fitting(self.writes, len, &reducer))
                }
                Change::Delete(key) => Change::Delete(key),
                Change::DeleteRange(bounds) => Change::DeleteRange(bounds),
            };
            numbered.push((*keyspace, change));
        }
        let Open { database, keyspaces, .. } = self.open();
        let committed = match (durability, &numbered[..]) {
            (None, [(keyspace, change)]) => {
                let keyspace = &keyspaces[*keyspace];
                match change {
                    Change::Put(key, value) => keyspace.put(key, value.bytes()),
                    Change::Delete(key) => keyspace.delete(key),
                    Change::DeleteRange(bounds) => keyspace.delete_range(bounds.clone()),
                }
            }
            // A batch of one write now and then is that write.
            (Some(durability), [(keyspace, Change::Put(key, value))])
                if self.writes.is_multiple_of(2) =>
            {
                keyspaces[*keyspace].put_with(key, value.bytes(), durability)
            }
            (Some(durability), [(keyspace, Change::Delete(key))])
                if self.writes.is_multiple_of(2) =>
            {
                keyspaces[*keyspace].delete_with(key, durability)
            }
            _ => {
                let mut batch = database.batch().durability(durability.unwrap_or_default());
                for (keyspace, change) in &numbered {
                    let keyspace = &keyspaces[*keyspace];
                    match change {
                        Change::Put(key, value) => batch.put(keyspace, key, value.bytes()),
                        Change::Delete(key) => batch.delete(keyspace, key),
                        Change::DeleteRange(bounds) => batch.delete_range(keyspace, bounds.clone()),
                    };
                }
                batch.commit()
            }
        };
        let is_possible = |(keyspace, change): &(usize, Change<Value>)| {
            !matches!(change, Change::DeleteRange(_)) || self.engine(*keyspace) == EngineKind::Lsm
        };
        if numbered.iter().all(is_possible) {
            committed.unwrap();
            self.note(numbered, durability.unwrap_or_default());
        } else {
            assert_eq!(committed.unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }

    /// Tells the model of writes that are committed. Only those that go through the log carry their durability
    /// to the ones before them; an empty batch does so if it syncs.
    fn note(&mut self, mut writes: Vec<(usize, Change<Value>)>, durability: Durability) {
        // A range that cannot have any key is no write.
        writes.retain(|(_, change)| !is_nothing(change));
        let none = writes.is_empty();
        let (logged, unlogged): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(|(keyspace, ..)| *keyspace < LOGGED);
        for (at, history) in self.unlogged.iter_mut().enumerate() {
            let own = unlogged.iter().filter(|(keyspace, ..)| *keyspace == LOGGED + at);
            let own: Vec<_> = own.map(|(_, change)| (0, change.clone())).collect();
            if !own.is_empty() {
                history.commit(&own);
            }
        }
        if !logged.is_empty() {
            self.logged.commit(&logged);
        }
        match durability {
            Durability::Sync if none || !logged.is_empty() => self.logged.sync(),
            Durability::Os if !logged.is_empty() => self.logged.write_out(),
            _ => {}
        }
    }

    fn fill(&mut self, keyspace: usize, len: usize) {
        for number in 0..FILL {
            let key = format!("fill {:02}", (number * 37) % FILL).into_bytes();
            self.write(&[(keyspace, Change::Put(key, len))], None);
        }
    }

    fn relay(&mut self, then: usize, count: usize) {
        for keyspace in 0..LOGGED {
            self.keyspace(keyspace).persist().unwrap();
            self.persisted(keyspace);
        }
        let writes = [(0, 1)].into_iter().chain(vec![(then, RELAYED); count]);
        let writes: Vec<_> = writes.map(|(keyspace, len)| self.relayed(keyspace, len)).collect();
        let calls: Vec<_> = (0..CALLS).map(|_| self.relayed(LOGGED, 1)).collect();
        let put_all = |puts: &[(usize, Key, Value)], is_persisted: bool| {
            let puts: Vec<_> = puts
                .iter()
                .map(|(at, key, value)| (self.keyspace(*at).clone(), key.clone(), value.bytes()))
                .collect();
            let put = move |(keyspace, key, value): (Keyspace, Key, Vec<u8>)| {
                keyspace.put(key, value).unwrap();
                if is_persisted {
                    keyspace.persist().unwrap();
                }
            };
            Box::new(move || puts.into_iter().for_each(put)) as Work<()>
        };
        together(vec![put_all(&writes, false), put_all(&calls, true)], self.memory.is_some());
        for (keyspace, key, value) in writes.into_iter().chain(calls) {
            self.note(vec![(keyspace, Change::Put(key, value))], Durability::default());
        }
        self.persisted(LOGGED);
        self.open().database.flush_log().unwrap();
        self.logged.write_out();
    }

    /// A put of a relay, with a value of this length.
    fn relayed(&mut self, keyspace: usize, len: usize) -> (usize, Key, Value) {
        self.writes += 1;
        let reducer = reducer_of(self.place.setting, keyspace);
        (keyspace, b"relay".to_vec(), Value::fitting(self.writes, len, &reducer))
    }

    fn clients(&mut self, keyspace: usize, seed: u64, count: usize) {
        self.figures.by_clients += (CLIENTS * count) as u64;
        let works = (0..CLIENTS).map(|number| {
            let prefix = clients::prefix(number);
            let own = |(key, _): &(&Key, &Values)| key.starts_with(prefix.as_bytes());
            let map = self.model(keyspace).iter().filter(own);
            let client = Client {
                database: self.open().database.clone(),
                keyspace: self.keyspace(keyspace).clone(),
                is_ordered: is_ordered(self.engine(keyspace)),
                reducer: reducer_of(self.place.setting, keyspace),
                map: map.map(|(key, values)| (key.clone(), values.clone())).collect(),
                seed: choices::mix(seed, number),
                prefix,
            };
            let first = self.writes + 1 + (number * count) as u64;
            Box::new(move || client.run(first, count)) as Work<Vec<Change<Value>>>
        });
        let written = together(works.collect(), self.memory.is_some());
        self.writes += (CLIENTS * count) as u64;
        // In which order they wrote is not known, but it is when all is in files.
        for change in written.into_iter().flatten() {
            self.note(vec![(keyspace, change)], Durability::default());
        }
        self.keyspace(keyspace).persist().unwrap();
        self.persisted(keyspace);
    }

    fn mix(&mut self, keyspace: usize, seed: u64, count: usize) {
        self.figures.mixed += count as u64;
        let mut dice = Dice::new(seed);
        // With long keys a page has few of them, and a tree that has hundreds is high.
        let front = match seed % 16 {
            0 => vec![b'm'; LONG],
            1..6 => COMMON.to_vec(),
            _ => Vec::new(),
        };
        for _ in 0..count {
            let key = [&front, format!("mix {}", dice.roll(MIXED)).as_bytes()].concat();
            match dice.roll(10) {
                0..5 => {
                    let found = self.keyspace(keyspace).get(&key).unwrap();
                    assert_value(&key, found.as_ref(), self.model(keyspace).get(&key));
                }
                5..9 => {
                    let len = dice.roll(40);
                    self.write(&[(keyspace, Change::Put(key, len))], None);
                }
                _ => self.write(&[(keyspace, Change::Delete(key))], None),
            }
        }
    }

    fn clear(&mut self, keyspace: usize) {
        let cleared = self.keyspace(keyspace).clear();
        if self.engine(keyspace) == EngineKind::Hash {
            return assert_eq!(cleared.unwrap_err().kind(), ErrorKind::Unsupported);
        }
        cleared.unwrap();
        match keyspace.checked_sub(LOGGED) {
            Some(unlogged) => self.unlogged[unlogged].clear(0),
            None => {
                self.logged.clear(keyspace);
                self.logged.write_out();
            }
        }
    }

    fn load(&mut self, keyspace: usize, keys: &BTreeSet<Key>, len: usize) {
        let reducer = reducer_of(self.place.setting, keyspace);
        let values = (self.writes + 1..).map(|number| Value::fitting(number, len, &reducer));
        let numbered: Vec<_> = values.zip(keys).collect();
        let records = numbered.iter().map(|(value, key)| (key, value.bytes()));
        let loaded = self.keyspace(keyspace).load_sorted(records);
        if !matches!(self.engine(keyspace), EngineKind::Lsm | EngineKind::Skip) {
            return assert_eq!(loaded.unwrap_err().kind(), ErrorKind::Unsupported);
        }
        assert_eq!(loaded.unwrap(), keys.len() as u64);
        self.writes += keys.len() as u64;
        let writes = |at| -> Vec<_> {
            numbered.iter().map(|(value, key)| (at, Change::Put(Key::clone(key), *value))).collect()
        };
        match keyspace.checked_sub(LOGGED) {
            Some(unlogged) => self.unlogged[unlogged].commit(&writes(0)),
            None => self.logged.commit(&writes(keyspace)),
        }
        self.persisted(keyspace);
    }

    fn persisted(&mut self, keyspace: usize) {
        match keyspace.checked_sub(LOGGED) {
            Some(unlogged) => self.unlogged[unlogged].sync(),
            None => self.logged.persist(keyspace),
        }
    }

    fn all_is_synced(&mut self) {
        self.logged.sync();
        self.unlogged.iter_mut().for_each(History::sync);
        self.queue.is_persisted();
    }

    // ---- reading ----

    /// Does something with the queue, if there is one.
    fn with_queue(&mut self, what: impl FnOnce(&mut Queue, &Keyspace)) {
        if let Some(Open { queue: Some(keyspace), .. }) = &self.open {
            what(&mut self.queue, keyspace);
        }
    }

    fn queue(&mut self, call: OfQueue) {
        match call {
            OfQueue::Clear => self.with_queue(Queue::clear),
            OfQueue::Persist => self.with_queue(|queue, keyspace| {
                keyspace.persist().unwrap();
                queue.is_persisted();
            }),
            OfQueue::Compact => self.with_queue(|queue, keyspace| {
                keyspace.compact().unwrap();
                queue.is_persisted();
            }),
            OfQueue::Check => self.check_queue(),
        }
    }

    /// Checks what there is of the queue, and what snapshots see of it.
    fn check_queue(&mut self) {
        self.with_queue(Queue::check);
        for Old { snapshot, queue, .. } in &self.snapshots {
            if let (Some(keyspace), Some(seen)) = (&self.open().queue, queue) {
                Queue::check_seen(keyspace, snapshot, seen);
            }
        }
    }

    fn take_snapshot(&mut self) {
        if self.snapshots.len() == MOST_SNAPSHOTS {
            return;
        }
        let maps = std::array::from_fn(|keyspace| self.model(keyspace).clone());
        let Open { database, queue, .. } = self.open();
        let snapshot = database.snapshot();
        let queue = queue.as_ref().map(|queue| self.queue.seen_by(queue, &snapshot));
        self.snapshots.push(Old { snapshot, maps, queue });
    }

    fn old(&self, index: Option<usize>) -> Option<&Old> {
        self.snapshots.get(index?)
    }

    fn get(&self, keyspace: usize, keys: &[Key]) {
        let (reader, model) = (self.keyspace(keyspace), self.model(keyspace));
        let found = reader.multi_get(keys).unwrap();
        for (key, found) in keys.iter().zip(&found) {
            assert_value(key, found.as_ref(), model.get(key));
            assert_value(key, reader.get(key).unwrap().as_ref(), model.get(key));
            assert_eq!(reader.contains(key).unwrap(), model.contains_key(key), "{key:?}");
            assert_values(key, &reader.get_all(key).unwrap(), model.get(key));
            self.check_position(key, model, keyspace, reader.rank(key), |at| reader.nth(at));
        }
        for Old { snapshot, maps, .. } in &self.snapshots {
            let model = &maps[keyspace];
            let found = snapshot.multi_get(reader, keys).unwrap();
            for (key, found) in keys.iter().zip(&found) {
                assert_value(key, found.as_ref(), model.get(key));
                let found = snapshot.get(reader, key).unwrap();
                assert_value(key, found.as_ref(), model.get(key));
                let is_there = snapshot.contains(reader, key).unwrap();
                assert_eq!(is_there, model.contains_key(key), "{key:?}");
                assert_values(key, &snapshot.get_all(reader, key).unwrap(), model.get(key));
                let rank = snapshot.rank(reader, key);
                self.check_position(key, model, keyspace, rank, |at| snapshot.nth(reader, at));
            }
        }
    }

    /// Where a key is in the order of all, and what is found there.
    fn check_position(
        &self,
        key: &Key,
        model: &Map,
        keyspace: usize,
        rank: turbidite::Result<u64>,
        nth: impl Fn(u64) -> turbidite::Result<Option<(Slice, Slice)>>,
    ) {
        if self.engine(keyspace) != EngineKind::Skip {
            assert_eq!(rank.unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(nth(0).unwrap_err().kind(), ErrorKind::Unsupported);
            return;
        }
        let below = records(model.range(..key.clone())).count() as u64;
        assert_eq!(rank.unwrap(), below, "{key:?}");
        let there = nth(below).unwrap();
        let expected = records(model.range(key.clone()..)).next();
        let is_it = match (&there, expected) {
            (Some((key, value)), Some((expected, record))) => key == expected && record.is(value),
            (None, None) => true,
            _ => false,
        };
        assert!(is_it, "at {below} is {there:?}, and should be {expected:?}");
    }

    fn range(&self, keyspace: usize, bounds: &Bounds, pattern: u8, old: Option<usize>) {
        if !is_ordered(self.engine(keyspace)) {
            let model = self.old(old).map_or(self.model(keyspace), |old| &old.maps[keyspace]);
            let range = match self.old(old) {
                Some(Old { snapshot, .. }) => snapshot.iter(self.keyspace(keyspace)),
                None => self.keyspace(keyspace).iter(),
            };
            return check_range(range, FORWARD, model.iter().collect());
        }
        let (model, range) = match self.old(old) {
            Some(Old { snapshot, maps, .. }) => {
                (&maps[keyspace], snapshot.range(self.keyspace(keyspace), bounds.clone()))
            }
            None => (self.model(keyspace), self.keyspace(keyspace).range(bounds.clone())),
        };
        let expected = model.iter().filter(|(key, _)| bounds.contains(*key)).collect();
        check_range(range, pattern, expected);
    }

    /// Has one more reader stand in a keyspace.
    fn stand(&mut self, keyspace: usize, old: Option<usize>) {
        let handle = self.keyspace(keyspace);
        let reader = match (is_ordered(self.engine(keyspace)), self.old(old)) {
            (true, Some(Old { snapshot, maps, .. })) => {
                Standing::cursor(snapshot.cursor(handle).unwrap(), maps[keyspace].clone())
            }
            (true, None) => {
                Standing::cursor(handle.cursor().unwrap(), self.model(keyspace).clone())
            }
            (false, Some(Old { snapshot, maps, .. })) => {
                Standing::range(snapshot.iter(handle), maps[keyspace].clone())
            }
            (false, None) => Standing::range(handle.iter(), self.model(keyspace).clone()),
        };
        if self.readers.len() == MOST_READERS {
            self.readers.remove(0);
        }
        self.readers.push(reader);
    }

    /// All that a range over a whole keyspace gives.
    fn everything(&self, keyspace: usize, range: Range) -> Vec<(Slice, Slice)> {
        everything(range, is_ordered(self.engine(keyspace)))
    }

    /// Compares everything there is, and has the files checked.
    fn check_all(&mut self) {
        self.check_queue();
        for (index, keyspace) in self.open().keyspaces.iter().enumerate() {
            let model = self.model(index);
            let read = self.everything(index, keyspace.iter());
            assert!(agrees(model, &read), "keyspace {index}");
            let found = keyspace.multi_get(model.keys()).unwrap();
            for (at, ((key, values), found)) in model.iter().zip(&found).enumerate() {
                assert_value(key, found.as_ref(), Some(values));
                if at.is_multiple_of(7) {
                    assert_value(key, keyspace.get(key).unwrap().as_ref(), Some(values));
                }
            }
            assert_eq!(keyspace.count().unwrap(), records(model).count() as u64);
            for Old { snapshot, maps, .. } in &self.snapshots {
                let read = self.everything(index, snapshot.iter(keyspace));
                assert!(agrees(&maps[index], &read), "a snapshot of keyspace {index}");
                assert_eq!(snapshot.count(keyspace).unwrap(), read.len() as u64);
            }
        }
        let problems = self.open().database.verify().unwrap().problems;
        assert!(problems.is_empty(), "{problems:?}");
    }

    // ---- closing and crashing ----

    fn leave(&mut self) -> Open {
        self.check_all();
        let open = self.open.take().expect("the database is open");
        for keyspace in open.database.stats().keyspaces {
            self.figures.flushes += keyspace.flushes;
            self.figures.compactions += keyspace.compactions;
        }
        self.figures.reopenings += 1;
        self.snapshots.clear();
        self.readers.clear();
        open
    }

    fn reopen(&mut self, close: impl FnOnce(Open)) {
        close(self.leave());
        self.enter(false);
    }

    /// Opens the database after it was closed, when what was left last may keep its lock.
    fn enter(&mut self, is_locked: bool) {
        let left = self.left.last_mut().filter(|_| is_locked);
        self.open = Some(Open::new(&mut self.place, self.figures.reopenings, left));
        self.all_is_synced();
        self.check_all();
    }

    /// Closes the database while there are snapshots and readers of it, and keeps them and other handles. Now and then its files are
    /// removed then, and another one is made in its place.
    fn close_under(&mut self, seed: u64) {
        let dice = &mut Dice::new(seed);
        let lending = self.open().lending;
        for keyspace in (0..KEYSPACES).filter(|&keyspace| lending[keyspace]) {
            // Then what readers see is in the file.
            self.keyspace(keyspace).persist().unwrap();
            self.persisted(keyspace);
        }
        let snapshots = std::mem::take(&mut self.snapshots);
        let snapshots = snapshots.into_iter().map(|old| old.snapshot).collect();
        let Open { database, keyspaces, .. } = self.open();
        let mut left = Left::new(database.clone(), keyspaces.clone(), snapshots);
        let mut keeps_lock = false;
        for (index, keyspace) in keyspaces.iter().enumerate() {
            let is_ordered = is_ordered(self.engine(index));
            let readers = left.read(keyspace, self.model(index), is_ordered, dice);
            keeps_lock |= readers > 0 && lending[index];
        }
        // Now and then nothing but the readers needs what they see.
        for keyspace in 0..KEYSPACES {
            if dice.roll(2) == 0 {
                self.fill(keyspace, dice.roll(1000));
                self.keyspace(keyspace).compact().unwrap();
                self.persisted(keyspace);
            }
        }
        self.leave().database.close().unwrap();
        self.left.push(left);
        self.left.drain(..self.left.len().saturating_sub(MOST_LEFT));
        if !keeps_lock && dice.roll(4) == 0 {
            remove_all(&*self.place.fs, &self.place.path);
            (self.logged, self.unlogged) = new_histories(self.place.setting);
            self.queue = Queue::default();
        }
        self.enter(keeps_lock);
    }

    /// Uses handles of a database that was closed, and drops them, now and then.
    fn use_left(&mut self, seed: u64) {
        let mut dice = Dice::new(seed);
        if self.left.is_empty() {
            return;
        }
        let one = dice.roll(self.left.len());
        self.left[one].check(&mut dice);
        self.figures.late += 1;
        if dice.roll(3) == 0 {
            self.left.swap_remove(one);
        }
    }

    /// Opens what a crash at this moment leaves on the disk. On a real disk the crash is a drop.
    fn crash(&mut self, cut: PowerCut) {
        let Some(memory) = self.memory.clone() else { return self.reopen(drop) };
        let image = memory.image_traced(memory.operations(), cut);
        drop(self.leave());
        self.left.clear();
        let power_cut = cut != PowerCut::KeepAll;
        *if power_cut { &mut self.figures.power_cuts } else { &mut self.figures.kills } += 1;
        let opening = self.figures.reopenings;
        let setting = self.place.setting;
        self.place = Place::in_memory(&image, setting, choices::mix(setting.seed, opening));
        self.memory = Some(image);
        let open = Open::new(&mut self.place, opening, None);
        let read: [_; KEYSPACES] =
            std::array::from_fn(|at| self.everything(at, open.keyspaces[at].iter()));
        let [first, second, third, fourth, unlogged @ ..] = read;
        self.logged.recover(power_cut, &[first, second, third, fourth]);
        for (history, read) in self.unlogged.iter_mut().zip(unlogged) {
            history.recover(power_cut, &[read]);
        }
        self.open = Some(open);
        self.with_queue(Queue::recover);
        self.check_all();
    }

    /// A last comparison, here and after reopening.
    pub(super) fn finish(mut self) -> Figures {
        self.reopen(|open| open.database.close().unwrap());
        self.figures
    }
}

/// Removes a directory and all that is in it, for good.
///
/// # Panics
/// If something cannot be removed.
pub fn remove_all(fs: &dyn Fs, dir: &Path) {
    for name in fs.list(dir).unwrap() {
        let path = dir.join(name);
        match fs.kind(&path).unwrap() {
            Some(PathKind::Directory) => remove_all(fs, &path),
            _ => fs.remove(&path).unwrap(),
        }
    }
    fs.sync_dir(dir).unwrap();
    fs.remove_dir(dir).unwrap();
    fs.sync_dir(dir.parent().expect("it has one")).unwrap();
}

/// The histories of keyspaces in which nothing is yet.
fn new_histories(setting: Setting) -> (History<LOGGED>, [History<1>; KEYSPACES - LOGGED]) {
    let logged = History::new(std::array::from_fn(|at| reducer_of(setting, at)));
    let unlogged = std::array::from_fn(|at| History::new([reducer_of(setting, LOGGED + at)]));
    (logged, unlogged)
}

/// Whether it is a range in which no key can be.
fn is_nothing(change: &Change<Value>) -> bool {
    let Change::DeleteRange((from, to)) = change else { return false };
    let behind = |key: &Key| [&key[..], &[0]].concat();
    let start = match from {
        Bound::Unbounded => Key::new(),
        Bound::Included(key) => key.clone(),
        Bound::Excluded(key) => behind(key),
    };
    match to {
        Bound::Unbounded => false,
        Bound::Included(key) => behind(key) <= start,
        Bound::Excluded(key) => *key <= start,
    }
}

/// All that a range gives, in order, which it is given in if there is one.
pub(super) fn everything(range: Range, is_ordered: bool) -> Vec<(Slice, Slice)> {
    let mut items: Vec<_> = range.map(|item| item.unwrap()).collect();
    assert!(!is_ordered || items.is_sorted_by(|one, next| one.0 <= next.0), "in no order");
    // Several values of a key stay in their order.
    items.sort_by(|(one, _), (other, _)| one.cmp(other));
    items
}

pub(super) fn assert_value(key: &Key, found: Option<&Slice>, expected: Option<&Values>) {
    let same = match (found, expected) {
        (Some(found), Some(expected)) => expected.newest().is(found),
        (None, None) => true,
        _ => false,
    };
    assert!(same, "{key:?} is {found:?} and should be {expected:?}");
}

fn assert_values(key: &Key, found: &[Slice], expected: Option<&Values>) {
    let expected: Vec<_> = expected.into_iter().flat_map(Values::records).collect();
    let same = found.len() == expected.len()
        && expected.iter().zip(found).all(|(record, found)| record.is(found));
    assert!(same, "{key:?} is {found:?} and should be {expected:?}");
}

/// Takes items from the ends that the pattern says; one that is read from the front alone may be in any order.
fn check_range(mut range: Range, pattern: u8, expected: Vec<(&Key, &Values)>) {
    if pattern == FORWARD {
        return assert!(
            agrees(expected.iter().copied(), &everything(range, false)),
            "{expected:?}"
        );
    }
    let (mut front, mut back) = (Vec::new(), Vec::new());
    for step in 0_u32.. {
        let at_front = pattern >> (step % 8) & 1 == 1;
        let item = if at_front { range.next() } else { range.next_back() };
        let Some(item) = item else { break };
        if at_front { &mut front } else { &mut back }.push(item.unwrap());
    }
    assert!(range.next().is_none() && range.next_back().is_none());
    front.extend(back.into_iter().rev());
    assert!(agrees(expected.iter().copied(), &front), "{expected:?}\n{front:?}");
}

fn walk(mut cursor: Cursor, model: &Map, key: &Key, before: bool, steps: &[bool]) {
    let list: Vec<(&Key, Record<'_>)> = records(model).collect();
    let mut at = if before {
        cursor.seek_for_prev(key).unwrap();
        list.partition_point(|(other, _)| *other <= key).checked_sub(1)
    } else {
        cursor.seek(key).unwrap();
        Some(list.partition_point(|(other, _)| *other < key))
    };
    let check = |cursor: &Cursor, at: Option<usize>| match at.and_then(|at| list.get(at)) {
        Some((key, record)) => {
            assert!(cursor.is_valid() && cursor.key() == *key && record.is(cursor.value()));
        }
        None => assert!(!cursor.is_valid()),
    };
    check(&cursor, at);
    for &ahead in steps {
        if ahead { cursor.next() } else { cursor.prev() }.unwrap();
        at = match at.filter(|&at| at < list.len()) {
            Some(at) if ahead => Some(at + 1),
            Some(at) => at.checked_sub(1),
            None => None,
        };
        check(&cursor, at);
    }
}

/// Checks that all that needs an order says that there is none.
///
/// # Panics
/// If something does not.
pub fn assert_no_order(keyspace: &Keyspace) {
    let unsupported = |error: Option<Error>| {
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Unsupported));
    };
    unsupported(keyspace.cursor().err());
    for mut range in [keyspace.range("a".."b"), keyspace.range("a"..), keyspace.prefix("a")] {
        unsupported(range.next().and_then(|item| item.err()));
        assert!(range.next().is_none() && range.next_back().is_none(), "an error ends a range");
    }
    for mut range in [keyspace.range("a".."b"), keyspace.prefix("a"), keyspace.iter()] {
        unsupported(range.next_back().and_then(|item| item.err()));
    }
}
