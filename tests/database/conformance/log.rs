//! The log: how long it holds back what is buffered, what hands it over, and what a kill leaves of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use turbidite::vfs::MemoryFs;
use turbidite::{Database, DatabaseBuilder, Durability, Keyspace, Layer};

use crate::setup::{NAME, Setup, memory_layers};

/// The bytes of a value: more than goes around it in the log.
const VALUE: usize = 900;

struct Case {
    fs: Arc<MemoryFs>,
    layer: Layer,
    database: Database,
    keyspace: Keyspace,
    written: usize,
}

impl Case {
    fn new(layer: Layer, change: impl Fn(DatabaseBuilder) -> DatabaseBuilder) -> Self {
        let fs = Arc::new(MemoryFs::new());
        let setup = Setup::on(Arc::clone(&fs)).layer(layer);
        let database = change(setup.builder()).open().unwrap();
        let keyspace = setup.keyspace(&database);
        Self { fs, layer, database, keyspace, written: 0 }
    }

    fn put(&mut self, durability: Durability) {
        let key = format!("{:06}", self.written);
        self.keyspace.put_with(key, [self.written as u8; VALUE], durability).unwrap();
        self.written += 1;
    }

    /// How many writes are there if the process is killed now. They are the first ones.
    fn left(&self) -> usize {
        let setup = Setup::on(Arc::new(self.fs.fork())).layer(self.layer);
        let database = setup.open();
        let mut found = 0;
        for item in database.open_keyspace(NAME).unwrap().iter() {
            let (key, value) = item.unwrap();
            assert_eq!((&*key, value[0]), (format!("{found:06}").as_bytes(), found as u8));
            found += 1;
        }
        found
    }
}

#[test]
fn what_is_flushed_by_hand_waits_for_that() {
    for layer in memory_layers() {
        let mut case = Case::new(layer, DatabaseBuilder::manual_log_flush);
        (0..10).for_each(|_| case.put(Durability::Buffered));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(case.left(), 0, "{layer}");
        case.database.flush_log().unwrap();
        assert_eq!(case.left(), 10, "{layer}");
        case.database.flush_log().unwrap();
        case.put(Durability::Buffered);
        case.put(Durability::Os);
        assert_eq!(case.left(), 12, "{layer}: a later write brings those before it");
        case.put(Durability::Buffered);
        case.put(Durability::Sync);
        assert_eq!(case.left(), 14, "{layer}");
        case.put(Durability::Buffered);
        case.database.persist().unwrap();
        assert_eq!(case.left(), 15, "{layer}");
        case.put(Durability::Buffered);
        let database = case.database.clone();
        database.close().unwrap();
        assert_eq!(case.left(), 16, "{layer}: closing loses nothing");
        assert_eq!(case.database.flush_log().unwrap_err().kind(), turbidite::ErrorKind::Closed);
    }
}

#[test]
fn no_more_than_the_buffer_is_lost() {
    for layer in memory_layers() {
        for bytes in [4 << 10, 20_000, 128 << 10] {
            let change = |builder: DatabaseBuilder| builder.manual_log_flush().log_buffer(bytes);
            let mut case = Case::new(layer, change);
            let mut most = 0;
            for count in 0..400 {
                case.put(Durability::Buffered);
                if count % 7 == 0 {
                    most = most.max(case.written - case.left());
                }
            }
            assert!(most * VALUE <= bytes, "{layer}: {most} writes with {bytes} bytes");
            assert!(most * VALUE * 2 > bytes, "{layer}: {most} writes with {bytes} bytes");
        }
    }
}

#[test]
fn what_is_buffered_is_handed_over_in_time() {
    for (interval, at_least) in [(1, 0), (300, 200)] {
        let interval = Duration::from_millis(interval);
        let mut case = Case::new(Layer::Mmap, |builder| builder.log_flush_interval(interval));
        let start = Instant::now();
        case.put(Durability::Buffered);
        while case.left() == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "it is never handed over");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(start.elapsed() >= Duration::from_millis(at_least), "{:?}", start.elapsed());
    }
}

#[test]
fn what_is_written_to_the_log_is_counted() {
    for layer in memory_layers() {
        let mut case = Case::new(layer, |builder| builder);
        let before = case.database.stats();
        (0..400).for_each(|_| case.put(Durability::Os));
        let after = case.database.stats();
        let log = after.log.written_bytes - before.log.written_bytes;
        let all = after.io.written_bytes - before.io.written_bytes;
        // Nothing else writes. A segment may be made meanwhile, and some may wait in the tail.
        assert!(log >= 400 * VALUE as u64 && all.abs_diff(log) <= 70_000, "{layer}: {log}, {all}");
        case.keyspace.persist().unwrap();
        let later = case.database.stats();
        let (log, all) = (later.log.written_bytes, later.io.written_bytes);
        assert!(all - log >= 400 * VALUE as u64, "{layer}: {log} of {all}");
    }
}
