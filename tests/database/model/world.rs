//! A database and its model, and how each operation is done to both.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use turbidite::vfs::{MemoryFs, PowerCut};
use turbidite::{Cursor, Database, Durability, Keyspace, Layer, Range, Slice, Snapshot};

use super::history::{History, Map, Value, agrees};
use super::operation::{KEYSPACES, Key, Operation, UNLOGGED, Write};
use crate::setup::Setup;

/// How many writes a fill makes.
const FILL: usize = 64;
/// Snapshots beyond this many are not taken.
const MOST_SNAPSHOTS: usize = 6;

/// Where the database lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Memory,
    Mapped,
    Positional,
}

/// What a history led to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) flushes: u64,
    pub(super) compactions: u64,
    pub(super) reopenings: u64,
}

struct Open {
    database: Database,
    keyspaces: [Keyspace; KEYSPACES],
}

impl Open {
    fn new(setup: &Setup) -> Self {
        let database = setup.open();
        let keyspaces = std::array::from_fn(|index| {
            let options = setup.options.clone().log(index != UNLOGGED);
            database.keyspace(&format!("keyspace {index}"), options).unwrap()
        });
        Self { database, keyspaces }
    }
}

pub(super) struct World {
    setup: Setup,
    /// Set if the database is in memory, where crashes can be played.
    memory: Option<MemoryFs>,
    /// `None` only while it is being reopened.
    open: Option<Open>,
    snapshots: Vec<(Snapshot, [Map; KEYSPACES])>,
    logged: History<UNLOGGED>,
    unlogged: History<1>,
    writes: u64,
    figures: Figures,
}

impl World {
    pub(super) fn new(kind: Kind) -> Self {
        let memory = matches!(kind, Kind::Memory).then(MemoryFs::traced);
        let setup = match (kind, &memory) {
            (Kind::Mapped, _) => Setup::disk(Layer::Mmap),
            (_, Some(fs)) => Setup::on(Arc::new(fs.clone())),
            (_, None) => Setup::disk(Layer::Positional),
        };
        let open = Some(Open::new(&setup));
        let (logged, unlogged) = (History::new(), History::new());
        let figures = Figures::default();
        Self { setup, memory, open, snapshots: Vec::new(), logged, unlogged, writes: 0, figures }
    }

    fn open(&self) -> &Open {
        self.open.as_ref().expect("the database is open")
    }

    fn keyspace(&self, index: usize) -> &Keyspace {
        &self.open().keyspaces[index]
    }

    fn model(&self, keyspace: usize) -> &Map {
        match keyspace {
            UNLOGGED => &self.unlogged.now()[0],
            logged => &self.logged.now()[logged],
        }
    }

    /// Does an operation to the database and to the model, and compares.
    pub(super) fn run(&mut self, operation: &Operation) {
        match operation {
            Operation::Write(write) => self.write(std::slice::from_ref(write), None),
            Operation::Batch(writes, durability) => self.write(writes, Some(*durability)),
            Operation::Fill { keyspace, len } => self.fill(*keyspace, *len),
            Operation::Get { keyspace, keys } => self.get(*keyspace, keys),
            Operation::Range { keyspace, bounds, pattern, old } => {
                self.range(*keyspace, bounds, *pattern, *old);
            }
            Operation::Prefix { keyspace, prefix, pattern } => {
                let range = self.keyspace(*keyspace).prefix(prefix);
                let model = self.model(*keyspace).iter().filter(|(key, _)| key.starts_with(prefix));
                check_range(range, *pattern, model.collect());
            }
            Operation::Walk { keyspace, key, before, steps, old } => {
                let (model, cursor) = match self.old(*old) {
                    Some((snapshot, maps)) => {
                        (&maps[*keyspace], snapshot.cursor(self.keyspace(*keyspace)))
                    }
                    None => (self.model(*keyspace), self.keyspace(*keyspace).cursor()),
                };
                walk(cursor.unwrap(), model, key, *before, steps);
            }
            Operation::TakeSnapshot if self.snapshots.len() < MOST_SNAPSHOTS => {
                let maps = std::array::from_fn(|keyspace| self.model(keyspace).clone());
                self.snapshots.push((self.open().database.snapshot(), maps));
            }
            Operation::TakeSnapshot => {}
            Operation::DropSnapshot(index) => {
                if *index < self.snapshots.len() {
                    self.snapshots.swap_remove(*index);
                }
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
            Operation::PersistAll => {
                self.open().database.persist().unwrap();
                self.logged.sync();
                self.unlogged.sync();
            }
            Operation::Close => self.reopen(|open| open.database.close().unwrap()),
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
        for (keyspace, key, len) in writes {
            self.writes += 1;
            let value = len.map(|len| Value { number: self.writes, len });
            numbered.push((*keyspace, key.clone(), value));
        }
        let Open { database, keyspaces } = self.open();
        match (durability, &numbered[..]) {
            (None, [(keyspace, key, Some(value))]) => {
                keyspaces[*keyspace].put(key, value.bytes()).unwrap();
            }
            (None, [(keyspace, key, None)]) => keyspaces[*keyspace].delete(key).unwrap(),
            _ => {
                let mut batch = database.batch().durability(durability.unwrap_or_default());
                for (keyspace, key, value) in &numbered {
                    match value {
                        Some(value) => batch.put(&keyspaces[*keyspace], key, value.bytes()),
                        None => batch.delete(&keyspaces[*keyspace], key),
                    };
                }
                batch.commit().unwrap();
            }
        }
        self.note(numbered, durability.unwrap_or_default());
    }

    /// Tells the model of writes that are committed. Only those that go through the log carry their durability
    /// to the ones before them; an empty batch does so if it syncs.
    fn note(&mut self, writes: Vec<(usize, Key, Option<Value>)>, durability: Durability) {
        let none = writes.is_empty();
        let (unlogged, logged): (Vec<_>, Vec<_>) =
            writes.into_iter().partition(|(keyspace, ..)| *keyspace == UNLOGGED);
        let unlogged: Vec<_> =
            unlogged.into_iter().map(|(_, key, value)| (0, key, value)).collect();
        if !unlogged.is_empty() {
            self.unlogged.commit(&unlogged);
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
            self.write(&[(keyspace, key, Some(len))], None);
        }
    }

    fn persisted(&mut self, keyspace: usize) {
        match keyspace {
            UNLOGGED => self.unlogged.sync(),
            logged => self.logged.persist(logged),
        }
    }

    // ---- reading ----

    fn old(&self, index: Option<usize>) -> Option<&(Snapshot, [Map; KEYSPACES])> {
        self.snapshots.get(index?)
    }

    fn get(&self, keyspace: usize, keys: &[Key]) {
        let (reader, model) = (self.keyspace(keyspace), self.model(keyspace));
        let found = reader.multi_get(keys).unwrap();
        for (key, found) in keys.iter().zip(found) {
            assert_value(key, found.as_ref(), model.get(key));
            assert_value(key, reader.get(key).unwrap().as_ref(), model.get(key));
            for (snapshot, maps) in &self.snapshots {
                let found = snapshot.get(reader, key).unwrap();
                assert_value(key, found.as_ref(), maps[keyspace].get(key));
            }
        }
    }

    fn range(
        &self,
        keyspace: usize,
        bounds: &(Bound<Key>, Bound<Key>),
        pattern: u8,
        old: Option<usize>,
    ) {
        let (model, range) = match self.old(old) {
            Some((snapshot, maps)) => {
                (&maps[keyspace], snapshot.range(self.keyspace(keyspace), bounds.clone()))
            }
            None => (self.model(keyspace), self.keyspace(keyspace).range(bounds.clone())),
        };
        let expected = model.iter().filter(|(key, _)| bounds.contains(*key)).collect();
        check_range(range, pattern, expected);
    }

    /// Compares everything there is, and has the files checked.
    fn check_all(&self) {
        for (index, keyspace) in self.open().keyspaces.iter().enumerate() {
            let model = self.model(index);
            assert!(agrees(model.iter(), &everything(keyspace)), "keyspace {index}");
            assert_eq!(keyspace.count().unwrap(), model.len() as u64);
            for (snapshot, maps) in &self.snapshots {
                let read: Vec<_> = snapshot.iter(keyspace).map(|item| item.unwrap()).collect();
                assert!(agrees(maps[index].iter(), &read), "a snapshot of keyspace {index}");
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
        open
    }

    fn reopen(&mut self, close: impl FnOnce(Open)) {
        close(self.leave());
        self.open = Some(Open::new(&self.setup));
        self.logged.sync();
        self.unlogged.sync();
        self.check_all();
    }

    /// Opens what a crash at this moment leaves on the disk. On a real disk the crash is a drop.
    fn crash(&mut self, cut: PowerCut) {
        let Some(memory) = self.memory.clone() else { return self.reopen(drop) };
        let image = memory.image(memory.operations(), cut).fork_traced();
        drop(self.leave());
        self.setup = Setup::on(Arc::new(image.clone()));
        self.memory = Some(image);
        let open = Open::new(&self.setup);
        let [first, second, unlogged] = open.keyspaces.each_ref().map(everything);
        let power_cut = cut != PowerCut::KeepAll;
        self.logged.recover(power_cut, &[first, second]);
        self.unlogged.recover(power_cut, &[unlogged]);
        self.open = Some(open);
        self.check_all();
    }

    /// A last comparison, here and after reopening.
    pub(super) fn finish(mut self) -> Figures {
        self.reopen(|open| open.database.close().unwrap());
        self.figures
    }
}

fn everything(keyspace: &Keyspace) -> Vec<(Slice, Slice)> {
    keyspace.iter().map(|item| item.unwrap()).collect()
}

fn assert_value(key: &Key, found: Option<&Slice>, expected: Option<&Value>) {
    let same = match (found, expected) {
        (Some(found), Some(expected)) => expected.is(found),
        (None, None) => true,
        _ => false,
    };
    assert!(same, "{key:?} is {found:?} and should be {expected:?}");
}

fn check_range(mut range: Range, pattern: u8, expected: Vec<(&Key, &Value)>) {
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
    let list: Vec<(&Key, &Value)> = model.iter().collect();
    let mut at = if before {
        cursor.seek_for_prev(key).unwrap();
        list.partition_point(|(other, _)| *other <= key).checked_sub(1)
    } else {
        cursor.seek(key).unwrap();
        Some(list.partition_point(|(other, _)| *other < key))
    };
    let check = |cursor: &Cursor, at: Option<usize>| match at.and_then(|at| list.get(at)) {
        Some((key, value)) => {
            assert!(cursor.is_valid() && cursor.key() == *key && value.is(cursor.value()));
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
