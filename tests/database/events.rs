//! What the database tells of its background work: it agrees with its figures, and telling it harms nobody.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use turbidite::vfs::MemoryFs;
use turbidite::{
    Database, EngineKind, ErrorKind, Event, JobKind, KeyspaceOptions, KeyspaceStats, Listener,
    Outcome,
};

use crate::history::Dice;
use crate::setup::ENGINES;

/// Remembers what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<Event>>);

impl Listener for Told {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
    }
}

impl Told {
    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn options(engine: EngineKind) -> KeyspaceOptions {
    match engine {
        EngineKind::Lsm => KeyspaceOptions::lsm().table_size(64 << 10),
        EngineKind::Hash => KeyspaceOptions::hash(),
        EngineKind::Btree => KeyspaceOptions::btree(),
        _ => KeyspaceOptions::skip(),
    }
}

/// Puts random keys, of which many come twice.
fn fill(db: &Database, name: &str, options: KeyspaceOptions, puts: u64) {
    let keyspace = db.keyspace(name, options).unwrap();
    let mut dice = Dice::new(7);
    for _ in 0..puts {
        let key = dice.roll(20_000);
        keyspace.put(format!("{key:08}"), dice.bytes(200)).unwrap();
    }
}

/// Checks what a job says of itself.
fn check(event: &Event) {
    assert!(event.start <= event.end && event.together >= 1, "{event:?}");
    for side in [&event.inputs, &event.outputs] {
        assert!(side.is_sorted_by(|a, b| a.level < b.level), "{event:?}");
        assert!(side.iter().all(|range| range.smallest <= range.largest && range.tables > 0));
    }
    let bytes: u64 = event.inputs.iter().map(|range| range.bytes).sum();
    match event.kind {
        JobKind::Merge => assert_eq!(event.read_bytes, bytes),
        JobKind::Move => {
            assert_eq!(bytes, event.outputs[0].bytes);
            assert_eq!((event.read_bytes, event.written_bytes), (0, 0));
        }
        _ => assert!(event.inputs.is_empty()),
    }
    let around = |key: &[u8]| {
        event.inputs.iter().any(|range| &range.smallest[..] <= key && key <= &range.largest[..])
    };
    if event.kind.is_compaction() {
        assert!(event.outputs.iter().all(|range| around(&range.smallest)), "{event:?}");
    }
}

/// The jobs that are done of the kinds that figures count, their bytes, and the figures.
fn sums(events: &[Event], stats: &KeyspaceStats) -> ([u64; 5], [u64; 5]) {
    let sum = |is_counted: &dyn Fn(&Event) -> bool, figure: &dyn Fn(&Event) -> u64| {
        events.iter().filter(|event| is_counted(event)).map(figure).sum::<u64>()
    };
    let is_flush = |event: &Event| event.kind == JobKind::Flush;
    let is_merge = |event: &Event| event.kind == JobKind::Merge;
    let told = [
        sum(&is_flush, &|_| 1),
        sum(&is_merge, &|_| 1),
        sum(&is_flush, &|event| event.written_bytes),
        sum(&is_merge, &|event| event.read_bytes),
        sum(&is_merge, &|event| event.written_bytes),
    ];
    let work = &stats.work;
    let counted = [
        stats.flushes,
        stats.compactions,
        work.flushed_bytes,
        work.compaction_read_bytes,
        work.compaction_written_bytes,
    ];
    (told, counted)
}

#[test]
fn events_agree_with_figures() {
    let told = Arc::<Told>::default();
    let db = Database::builder("/db")
        .file_system(Arc::new(MemoryFs::new()))
        .memory_budget(8 << 20)
        .background_threads(2)
        .listener(Arc::clone(&told) as Arc<dyn Listener>)
        .open()
        .unwrap();
    for separate in [0, 100] {
        let name = format!("apart from {separate}");
        fill(&db, &name, options(EngineKind::Lsm).separate_values(separate), 40_000);
        let keyspace = db.open_keyspace(&name).unwrap();
        keyspace.load_sorted([("00000000x", "v"), ("99999999", "v")]).unwrap();
        keyspace.persist().unwrap();
        db.settle().unwrap();
        let events = told.take();
        let stats = keyspace.stats();
        events.iter().for_each(check);
        assert!(events.iter().all(|event| *event.keyspace == *name));
        assert!(events.iter().all(|event| matches!(event.outcome, Outcome::Done)));
        assert_eq!(events.iter().filter(|event| event.kind == JobKind::Load).count(), 1);
        let (told, counted) = sums(&events, &stats);
        assert_eq!(told, counted);
        assert!(told.iter().all(|&sum| sum > 0), "{told:?}: this test shows nothing");
    }
}

#[test]
fn every_engine_tells_of_its_flushes() {
    for engine in ENGINES {
        let told = Arc::<Told>::default();
        let db = Database::builder("/db")
            .file_system(Arc::new(MemoryFs::new()))
            .listener(Arc::clone(&told) as Arc<dyn Listener>)
            .open()
            .unwrap();
        fill(&db, "main", options(engine), 100);
        let keyspace = db.open_keyspace("main").unwrap();
        keyspace.persist().unwrap();
        if engine != EngineKind::Hash {
            keyspace.clear().unwrap();
            keyspace.persist().unwrap();
        }
        db.close().unwrap();
        let events = told.take();
        let count = |kind| events.iter().filter(|event| event.kind == kind).count();
        assert_eq!(count(JobKind::Flush), 1, "{engine}: {events:?}");
        assert_eq!(count(JobKind::Clear), usize::from(engine != EngineKind::Hash), "{engine}");
        let is_known = engine != EngineKind::Btree;
        let flush = events.iter().find(|event| event.kind == JobKind::Flush).unwrap();
        assert_eq!(flush.written_bytes > 0, is_known, "{engine}: {flush:?}");
    }
}

#[test]
fn a_listener_may_use_the_database_and_panic() {
    let slot = Arc::<Mutex<Option<Database>>>::default();
    let theirs = Arc::clone(&slot);
    let told = Arc::<Told>::default();
    let db = Database::builder("/db")
        .file_system(Arc::new(MemoryFs::new()))
        .memory_budget(8 << 20)
        .listener(Arc::new(move |event: &Event| {
            let db = theirs.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(db) = db.filter(|_| &*event.keyspace == "main") {
                let events = db.keyspace("events", KeyspaceOptions::lsm()).unwrap();
                events.put(event.number.to_be_bytes(), event.kind.name()).unwrap();
                assert!(
                    db.stats().disk_bytes > 0
                        && db.snapshot().get(&events, "no").unwrap().is_none()
                );
            }
            panic!("on purpose");
        }))
        .listener(Arc::clone(&told) as Arc<dyn Listener>)
        .open()
        .unwrap();
    *slot.lock().unwrap() = Some(db.clone());
    fill(&db, "main", options(EngineKind::Lsm), 20_000);
    let keyspace = db.open_keyspace("main").unwrap();
    keyspace.compact().unwrap();
    db.settle().unwrap();
    slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    let noted = db.open_keyspace("events").unwrap();
    let told = told.take();
    let of_main = told.iter().filter(|event| &*event.keyspace == "main").count();
    assert!(of_main > 2);
    assert_eq!(noted.count().unwrap(), of_main as u64);
    keyspace.put("it", "goes on").unwrap();
    db.close().unwrap();
}

/// A listener that has a weak handle, and may be the last to let go of the database when the program has.
#[test]
fn the_last_handle_may_be_dropped_by_a_listener() {
    for engine in ENGINES {
        let fs = MemoryFs::new();
        let handle: Arc<Mutex<Option<Database>>> = Arc::default();
        let (done, is_done) = channel();
        let (go, goes) = channel::<()>();
        let goes = Mutex::new(goes);
        let told = {
            let handle = Arc::clone(&handle);
            move |_: &Event| {
                let last = handle.lock().unwrap().take();
                if let Some(last) = last {
                    let refused = last.clone().close().unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
                    goes.lock().unwrap().recv().unwrap();
                    drop(last);
                    done.send(()).unwrap();
                }
            }
        };
        let builder = || Database::builder("/db").file_system(Arc::new(fs.clone()));
        let db = builder().listener(Arc::new(told)).open().unwrap();
        let keyspace = db.keyspace("main", options(engine).log(false)).unwrap();
        // Filled until something is written by itself, in the background.
        *handle.lock().unwrap() = Some(db);
        let value = vec![1; 100_000];
        let filled = (0_u32..).find(|key| {
            keyspace.put(key.to_be_bytes(), &value).unwrap();
            handle.lock().unwrap().is_none()
        });
        let filled = filled.unwrap();
        drop(keyspace);
        go.send(()).unwrap();
        is_done.recv_timeout(Duration::from_secs(60)).unwrap();
        let start = Instant::now();
        let again = loop {
            match builder().open() {
                Ok(again) => break again,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Locked, "{error}"),
            }
            assert!(start.elapsed() < Duration::from_secs(60), "it is still open");
            std::thread::sleep(Duration::from_millis(5));
        };
        let count = again.open_keyspace("main").unwrap().count().unwrap();
        assert_eq!(count, u64::from(filled) + 1, "{engine}");
    }
}

#[test]
fn a_listener_in_a_callers_thread_cannot_close_either() {
    let fs = MemoryFs::new();
    let handle: Arc<Mutex<Option<Database>>> = Arc::default();
    let closed = Arc::new(Mutex::new(Vec::new()));
    let told = {
        let (handle, closed) = (Arc::clone(&handle), Arc::clone(&closed));
        move |_: &Event| {
            let database = handle.lock().unwrap().clone();
            let result = database.map(|database| database.close().map_err(|error| error.kind()));
            closed.lock().unwrap().extend(result);
        }
    };
    let builder = Database::builder("/db").listener(Arc::new(told));
    let db = builder.file_system(Arc::new(fs)).open().unwrap();
    for engine in ENGINES {
        let keyspace = db.keyspace(&engine.to_string(), options(engine)).unwrap();
        for round in 0..3_u8 {
            keyspace.put("key", [round; 100]).unwrap();
            keyspace.persist().unwrap();
        }
        *handle.lock().unwrap() = Some(db.clone());
        keyspace.put("key", "last").unwrap();
        keyspace.compact().unwrap();
        handle.lock().unwrap().take();
    }
    let closed = closed.lock().unwrap();
    assert!(closed.len() >= ENGINES.len(), "{closed:?}");
    assert!(closed.iter().all(|result| *result == Err(ErrorKind::Invalid)), "{closed:?}");
}
