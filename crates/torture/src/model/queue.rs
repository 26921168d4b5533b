//! A keyspace that lets go of what is oldest: a FIFO tree whose keys ascend. It holds the last of them, without a gap; how many they are depends on when
//! its tables are dropped, and what a snapshot sees stays.

use turbidite::{
    Database, EngineKind, Keyspace, KeyspaceOptions, Policy, Range, Reducer, Slice, Snapshot,
};

use super::history::Value;
use crate::choices;
use crate::setting::Setting;

/// The bytes that it may take: the least that can be asked for.
const BYTES: u64 = 1 << 20;
/// No value is as long.
const LONG: u64 = 20_000;

/// Numbers of records, which their keys are made of and their values follow from.
type Numbers = std::ops::Range<u64>;

/// What is known of the keyspace.
#[derive(Default)]
pub(super) struct Queue {
    /// What has been put, but for what was seen to be gone.
    there: Numbers,
    /// What is below this number has been in files.
    persisted: u64,
    /// What is below this number has been cleared,
    cleared: u64,
    /// and below this one for good.
    gone: u64,
}

impl Queue {
    /// Opens the keyspace for the `opening`th time, if there are LSM-trees.
    pub(super) fn open(database: &Database, setting: Setting, opening: u64) -> Option<Keyspace> {
        let engine = setting.engines.or(EngineKind::Lsm);
        (engine == EngineKind::Lsm).then(|| {
            let seed = choices::mix(setting.seed, "queue");
            let options: KeyspaceOptions = choices::options(engine, seed, opening)
                .policy(Policy::Fifo { bytes: BYTES })
                .layer(choices::layer(setting, "queue", opening))
                .log(seed.is_multiple_of(2));
            database.keyspace("queue", options).unwrap()
        })
    }

    /// Puts so many records behind the others.
    pub(super) fn push(&mut self, keyspace: &Keyspace, count: u64) {
        for number in self.there.end..self.there.end + count {
            keyspace.put(key(number), value(number).bytes()).unwrap();
        }
        self.there.end += count;
    }

    /// Takes all away at once.
    pub(super) fn clear(&mut self, keyspace: &Keyspace) {
        keyspace.clear().unwrap();
        self.there.start = self.there.end;
        self.cleared = self.there.end;
    }

    /// All of it is in files.
    pub(super) fn is_persisted(&mut self) {
        self.persisted = self.there.end;
        self.gone = self.cleared;
    }

    /// What a new snapshot sees.
    pub(super) fn seen_by(&self, keyspace: &Keyspace, snapshot: &Snapshot) -> Numbers {
        self.check_present(snapshot.iter(keyspace))
    }

    /// Checks that a snapshot sees what it saw first.
    pub(super) fn check_seen(keyspace: &Keyspace, snapshot: &Snapshot, seen: &Numbers) {
        let now = numbers(snapshot.iter(keyspace), seen.end);
        assert!(now == *seen, "a snapshot has {now:?} of the queue and had {seen:?}");
        for number in [seen.start, seen.start + (seen.end - seen.start) / 2, seen.end] {
            let found = snapshot.get(keyspace, key(number)).unwrap();
            assert!(is_right(number, found.as_ref(), seen), "{number} of {seen:?}: {found:?}");
        }
    }

    /// Checks what there is.
    pub(super) fn check(&mut self, keyspace: &Keyspace) {
        let there = self.check_present(keyspace.iter());
        // More may be gone by now.
        let count = keyspace.count().unwrap();
        let last = self.there.end.saturating_sub(1);
        let found = keyspace.get(key(last)).unwrap();
        assert!(count <= there.end - there.start, "{count} of {there:?}");
        assert!(is_right(last, found.as_ref(), &there), "{last} of {there:?}: {found:?}");
        self.there = there;
    }

    /// Checks that a range gives the last records, the very last among them; gives their numbers.
    fn check_present(&self, range: Range) -> Numbers {
        let (there, put) = (numbers(range, self.there.end), &self.there);
        assert!(there.end == put.end, "the last of the queue are missing: {there:?} of {put:?}");
        assert!(there.start >= put.start, "what was gone is there again: {there:?} of {put:?}");
        assert!(there.is_empty() == put.is_empty(), "nothing of {put:?} is there");
        there
    }

    /// Takes what a crash has left: nothing of what was in files is missing at the end. What had gone may be there again.
    pub(super) fn recover(&mut self, keyspace: &Keyspace) {
        let left = numbers(keyspace.iter(), self.there.end);
        let is_possible = (self.persisted..=self.there.end).contains(&left.end);
        let persisted = self.persisted;
        assert!(is_possible, "{left:?} of the queue is left, and {persisted} were in files");
        let may_be_empty = persisted <= self.there.start;
        assert!(may_be_empty || !left.is_empty(), "nothing is left of {:?}", self.there);
        assert!(left.start >= self.gone, "{left:?} is left, and was cleared up to {}", self.gone);
        if left.start < self.cleared {
            self.cleared = self.gone;
        }
        self.there = left;
        self.is_persisted();
    }
}

fn key(number: u64) -> String {
    format!("{number:012}")
}

fn value(number: u64) -> Value {
    let len = choices::mix(number, "length") % LONG;
    Value::fitting(number, len as usize, &Reducer::Last)
}

/// Whether that is what a get gives of a keyspace in which are those that are `there`.
fn is_right(number: u64, found: Option<&Slice>, there: &Numbers) -> bool {
    match found {
        Some(found) => there.contains(&number) && value(number).is(found),
        None => !there.contains(&number),
    }
}

/// The numbers of all records of a range, which must follow each other and have their values. None at all are none before `end`.
fn numbers(range: Range, end: u64) -> Numbers {
    let mut numbers: Option<Numbers> = None;
    for item in range {
        let (found, bytes) = item.unwrap();
        let next = match &numbers {
            Some(numbers) => numbers.end,
            None => std::str::from_utf8(&found).unwrap().parse().expect("keys are numbers"),
        };
        assert!(found == key(next).as_bytes(), "{found:?} follows {numbers:?} in the queue");
        assert!(value(next).is(&bytes), "{next} of the queue is wrong: {bytes:?}");
        numbers = Some(numbers.map_or(next, |numbers| numbers.start)..next + 1);
    }
    numbers.unwrap_or(end..end)
}
