//! Panics in what a program gives to a database: reducers, records that are loaded, codecs, and in
//! [`file_system`] the file system.
//!
//! A panic that meets nothing half done goes to the caller and changes nothing. Any other one poisons: reads go on, writes
//! are refused. Nothing hangs, and nothing that was acknowledged is lost. What a listener may do is in `events.rs`.

mod file_system;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use turbidite::typed::{
    Buffer, DecodeError, EncodeKey, EncodeValue, KeyCodec, KeyReader, KeyWriter, ValueCodec,
};
use turbidite::vfs::MemoryFs;
use turbidite::{
    Database, EngineKind, ErrorKind, Keyspace, KeyspaceOptions, Reducer, Result, Slice,
};

use crate::setup::{NAME, options};

const PATH: &str = "/data/panics.db";
/// Nothing that is tried here takes so long if it does not hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether `work` ends by a panic; what it gives otherwise.
fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Does `work`, which may not hang, in a thread of its own.
fn watched(what: &str, work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        done.send(()).unwrap_or_default();
    });
    match is_done.recv_timeout(PATIENCE) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// A database whose reducer `fragile` puts values one behind the other, and panics while it is told to.
#[derive(Clone, Default)]
struct Fragile {
    fs: MemoryFs,
    panics: Arc<AtomicBool>,
}

impl Fragile {
    fn set(&self, panics: bool) {
        self.panics.store(panics, Ordering::SeqCst);
    }

    fn open(&self, logged: bool) -> (Database, Keyspace) {
        let panics = Arc::clone(&self.panics);
        let reducer = move |_: &[u8], values: &[&[u8]]| {
            assert!(!panics.load(Ordering::SeqCst), "the reducer panics on purpose");
            values.concat()
        };
        let db = Database::builder(PATH)
            .file_system(Arc::new(self.fs.clone()))
            .memory_budget(8 << 20)
            .reducer("fragile", reducer)
            .open()
            .unwrap();
        let custom = options(EngineKind::Skip).reducer(Reducer::Custom("fragile".into()));
        let keyspace = db.keyspace(NAME, custom.log(logged)).unwrap();
        (db, keyspace)
    }

    /// The same database is opened after it was poisoned: `expected` is there, and all goes on.
    fn check_reopened(&self, logged: bool, expected: &[(&str, &str)]) {
        self.set(false);
        let (db, keyspace) = self.open(logged);
        for (key, value) in expected {
            assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(value.as_bytes()), "{key}");
        }
        keyspace.put("it", "goes on").unwrap();
        keyspace.compact().unwrap();
        assert_eq!(keyspace.count().unwrap(), expected.len() as u64 + 1);
        assert!(db.verify().unwrap().problems.is_empty());
        db.close().unwrap();
    }
}

fn put_all(keyspace: &Keyspace, records: &[(&str, &str)]) {
    records.iter().for_each(|(key, value)| keyspace.put(key, value).unwrap());
}

fn is_poisoned<T>(result: Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Poisoned)
}

/// Reads go on, whatever would write is refused at once, and closing says why.
fn check_poisoned(db: Database, keyspace: &Keyspace, readable: (&str, &str)) {
    assert!(is_poisoned(keyspace.put("late", "refused")));
    assert!(is_poisoned(keyspace.persist()));
    assert!(is_poisoned(keyspace.compact()));
    assert!(is_poisoned(db.persist()));
    assert!(is_poisoned(db.keyspace("another", KeyspaceOptions::lsm())));
    assert!(is_poisoned(keyspace.load_sorted([("late", "refused")])));
    // Nobody waits for work that is not done any more.
    let _ = db.settle();
    assert!(db.status().is_poisoned);
    assert_eq!(keyspace.get(readable.0).unwrap().as_deref(), Some(readable.1.as_bytes()));
    assert!(is_poisoned(db.close()));
}

#[test]
fn a_reducer_that_panics_in_a_read_changes_nothing() {
    let fragile = Fragile::default();
    let (db, keyspace) = fragile.open(true);
    put_all(&keyspace, &[("a", "1"), ("b", "2"), ("a", "3"), ("b", "4"), ("c", "5")]);
    let (mut cursor, mut range) = (keyspace.cursor().unwrap(), keyspace.iter());
    fragile.set(true);
    assert!(caught(|| keyspace.get("a")).is_none());
    assert!(caught(|| keyspace.get_all("b")).is_none());
    assert!(caught(|| keyspace.multi_get(["c", "b"])).is_none());
    assert!(caught(|| keyspace.iter().rev().nth(1)).is_none());
    assert!(caught(|| cursor.seek_to_first()).is_none());
    assert!(caught(|| range.next()).is_none());
    fragile.set(false);
    // They do not end as if there were nothing more.
    assert_eq!(cursor.next().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(cursor.seek_to_first().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(range.next().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    assert!(range.next().is_none());
    assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"13"[..]));
    keyspace.put("a", "6").unwrap();
    keyspace.persist().unwrap();
    assert_eq!(keyspace.iter().count(), 3);
    drop(keyspace);
    db.close().unwrap();
    fragile.check_reopened(true, &[("a", "136"), ("b", "24"), ("c", "5")]);
}

#[test]
fn a_reducer_that_panics_in_a_call_that_merges_poisons() {
    let calls: [fn(&Keyspace) -> Result<()>; 2] = [Keyspace::persist, Keyspace::compact];
    for (call, logged) in calls.into_iter().zip([true, false]) {
        watched("a merge in a call", move || {
            let fragile = Fragile::default();
            let (db, keyspace) = fragile.open(logged);
            keyspace.put("kept", "1").unwrap();
            keyspace.persist().unwrap();
            if logged {
                put_all(&keyspace, &[("a", "2"), ("a", "3")]);
            } else {
                // What is not in files yet may be lost without the log.
                keyspace.put("a", "23").unwrap();
                keyspace.persist().unwrap();
                put_all(&keyspace, &[("kept", ""), ("kept", "")]);
                db.persist().unwrap();
            }
            fragile.set(true);
            assert!(caught(|| call(&keyspace)).is_none());
            fragile.set(false);
            check_poisoned(db, &keyspace, ("kept", "1"));
            drop(keyspace);
            fragile.check_reopened(logged, &[("kept", "1"), ("a", "23")]);
        });
    }
}

#[test]
fn a_reducer_that_panics_in_the_background_poisons() {
    for is_merge in [false, true] {
        watched("a merge in the background", move || merge_in_the_background(is_merge));
    }
}

/// Has the reducer panic when the first memtable is written to the base, or when runs are merged with it.
fn merge_in_the_background(is_merge: bool) {
    let fragile = Fragile::default();
    let (db, keyspace) = fragile.open(true);
    let value = "v".repeat(1000);
    // It never has two values, so that it is always read without the reducer.
    keyspace.put("kept", "1").unwrap();
    fragile.set(!is_merge);
    let mut puts = 0;
    let refused = loop {
        if keyspace.stats().flushes > 0 {
            fragile.set(true);
        }
        match keyspace.put(format!("{:02}", puts % 50), &value) {
            Ok(()) => puts += 1,
            Err(error) => break error,
        }
        assert!(puts < 200_000, "nothing is merged in the background");
    };
    assert_eq!(refused.kind(), ErrorKind::Poisoned);
    assert!(refused.to_string().contains("background work ended by a panic"), "{refused}");
    assert_eq!(keyspace.stats().flushes > 0, is_merge);
    check_poisoned(db, &keyspace, ("kept", "1"));
    drop(keyspace);
    // An opening that meets it again comes to an end, too.
    let (db, keyspace) = fragile.open(true);
    let _ = caught(|| keyspace.persist());
    let _ = db.settle();
    drop(keyspace);
    let _ = db.close();
    fragile.set(false);
    let (db, keyspace) = fragile.open(true);
    let mut bytes = 0;
    for number in 0..50 {
        let value = keyspace.get(format!("{number:02}")).unwrap();
        bytes += value.map_or(0, |value| value.len());
    }
    assert_eq!(bytes, 1000 * puts, "each value that was put is a part of one");
    keyspace.persist().unwrap();
    db.close().unwrap();
}

#[test]
fn records_that_panic_while_they_are_loaded_leave_nothing() {
    for engine in [EngineKind::Lsm, EngineKind::Skip] {
        for last in [0, 1, 20_000] {
            watched("a load", move || load_in_vain(engine, last));
        }
    }
}

fn load_in_vain(engine: EngineKind, last: usize) {
    let fs = MemoryFs::new();
    let open = || {
        let builder = Database::builder(PATH).memory_budget(8 << 20);
        let db = builder.file_system(Arc::new(fs.clone())).open().unwrap();
        let keyspace = db.keyspace(NAME, options(engine)).unwrap();
        (db, keyspace)
    };
    let (db, keyspace) = open();
    let record = |number: usize| (format!("key {number:06}"), vec![number as u8; 200]);
    keyspace.put("before", "1").unwrap();
    keyspace.persist().unwrap();
    let names = || {
        let of_keyspaces = |path: &std::path::Path| path.starts_with(format!("{PATH}/keyspaces"));
        let paths = fs.files().into_iter().map(|(path, _)| path);
        paths.filter(|path| of_keyspaces(path)).collect::<Vec<_>>()
    };
    let before = names();
    let broken = (0..).map(|number| {
        assert!(number < last, "the records panic on purpose");
        record(number)
    });
    assert!(caught(|| keyspace.load_sorted(broken)).is_none());
    assert_eq!(names(), before, "files stay behind");
    assert_eq!(keyspace.count().unwrap(), 1);
    // As if it had not been tried.
    keyspace.put("after", "2").unwrap();
    assert_eq!(keyspace.load_sorted((0..100).map(record)).unwrap(), 100);
    keyspace.compact().unwrap();
    drop(keyspace);
    db.close().unwrap();
    let (db, keyspace) = open();
    assert_eq!(keyspace.count().unwrap(), 102);
    assert!(db.verify().unwrap().problems.is_empty());
    db.close().unwrap();
}

/// A key or value that cannot be written if it is [`UNWRITABLE`], nor read if it is [`UNREADABLE`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moody(u8);

const UNWRITABLE: Moody = Moody(1);
const UNREADABLE: Moody = Moody(2);

impl Moody {
    fn read(byte: u8) -> Self {
        assert_ne!(byte, UNREADABLE.0, "the codec panics on purpose");
        Self(byte)
    }

    fn byte(&self) -> u8 {
        assert_ne!(*self, UNWRITABLE, "the codec panics on purpose");
        self.0
    }
}

impl EncodeKey<Self> for Moody {
    fn encode(&self, out: &mut KeyWriter) {
        out.last(self.byte());
    }
}

impl KeyCodec for Moody {
    fn name() -> String {
        "moody".into()
    }

    fn decode(from: &mut KeyReader<'_>) -> Result<Self, DecodeError> {
        from.last().map(Self::read)
    }
}

impl EncodeValue<Self> for Moody {
    fn encode(&self, out: &mut Buffer) -> Result<()> {
        EncodeValue::<u8>::encode(&self.byte(), out)
    }
}

impl ValueCodec for Moody {
    fn name() -> String {
        "moody".into()
    }

    fn decode(bytes: Slice) -> Result<Self, DecodeError> {
        <u8 as ValueCodec>::decode(bytes).map(Self::read)
    }
}

#[test]
fn a_codec_that_panics_changes_nothing() {
    for engine in [EngineKind::Lsm, EngineKind::Skip] {
        let fs = MemoryFs::new();
        let open = || {
            let builder = Database::builder(PATH).memory_budget(8 << 20);
            let db = builder.file_system(Arc::new(fs.clone())).open().unwrap();
            let keyspace = db.typed_keyspace::<Moody, Moody>(NAME, options(engine)).unwrap();
            (db, keyspace)
        };
        let (db, keyspace) = open();
        keyspace.put(Moody(0), Moody(7)).unwrap();
        keyspace.put(Moody(3), UNREADABLE).unwrap();
        keyspace.put(UNREADABLE, Moody(9)).unwrap();
        assert!(caught(|| keyspace.put(UNWRITABLE, Moody(7))).is_none());
        assert!(caught(|| keyspace.put(Moody(0), UNWRITABLE)).is_none());
        assert!(caught(|| keyspace.delete(UNWRITABLE)).is_none());
        let mut batch = db.batch();
        batch.put_typed(&keyspace, Moody(4), Moody(5));
        assert!(caught(|| _ = batch.put_typed(&keyspace, Moody(5), UNWRITABLE)).is_none());
        // The write that panicked is not in it.
        batch.commit().unwrap();
        let records = [(Moody(6), Moody(6)), (Moody(7), UNWRITABLE)];
        assert!(caught(|| keyspace.load_sorted(records.iter().map(|r| (&r.0, &r.1)))).is_none());
        assert!(caught(|| keyspace.get(Moody(3))).is_none());
        let mut range = keyspace.iter();
        assert_eq!(range.next().unwrap().unwrap(), (Moody(0), Moody(7)));
        assert!(caught(|| range.next()).is_none(), "the key cannot be read");
        assert!(caught(|| range.next()).is_none(), "the value cannot be read");
        assert_eq!(range.next().unwrap().unwrap(), (Moody(4), Moody(5)));
        assert!(range.next().is_none());
        drop((range, keyspace));
        db.close().unwrap();
        let (db, keyspace) = open();
        assert_eq!(keyspace.get(Moody(0)).unwrap(), Some(Moody(7)));
        assert_eq!(keyspace.inner().count().unwrap(), 4);
        drop(keyspace);
        db.close().unwrap();
    }
}
