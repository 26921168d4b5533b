//! Writers wait for memory only as long as something is being done to free it.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use turbidite::vfs::{Effect, Errno, Fault, FaultFs, Fs, MemoryFs, Operation, Times};
use turbidite::{Database, DatabaseBuilder, EngineKind, ErrorKind, MIN_MEMORY_BUDGET};

use crate::setup::{ENGINES, options};

/// More than have room in the smallest budget, if a keyspace takes the least that one can.
const MANY: usize = 100;

fn builder(fs: &(impl Fs + Clone + 'static)) -> DatabaseBuilder {
    Database::builder("/db").file_system(Arc::new(fs.clone())).memory_budget(MIN_MEMORY_BUDGET)
}

/// Fails if `work` is not done soon.
fn in_time(what: String, work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(300)).unwrap_or_else(|_| panic!("{what} hangs"));
}

fn name(number: usize) -> String {
    format!("{number:03}")
}

#[test]
fn many_keyspaces_with_little_in_each_stop_nobody() {
    for engine in ENGINES {
        in_time(format!("{engine}"), move || {
            let fs = MemoryFs::new();
            let database = builder(&fs).open().unwrap();
            for number in 0..MANY {
                let keyspace = database.keyspace(&name(number), options(engine)).unwrap();
                keyspace.put("key", "value").unwrap();
            }
            database.close().unwrap();
        });
    }
}

#[test]
fn many_keyspaces_with_little_in_each_are_replayed_with_little_memory() {
    for engine in ENGINES {
        in_time(format!("{engine}"), move || {
            let fs = MemoryFs::new();
            let database = builder(&fs).memory_budget(256 << 20).open().unwrap();
            for number in 0..MANY {
                let keyspace = database.keyspace(&name(number), options(engine)).unwrap();
                keyspace.put("key", "value").unwrap();
            }
            // The process is killed.
            let database = builder(&fs.fork()).open().unwrap();
            for number in 0..MANY {
                let keyspace = database.open_keyspace(&name(number)).unwrap();
                assert_eq!(keyspace.get("key").unwrap().unwrap(), "value");
            }
        });
    }
}

#[test]
fn iterators_that_stand_still_stop_nobody() {
    for engine in ENGINES {
        in_time(format!("{engine}"), move || {
            let database = builder(&MemoryFs::new()).open().unwrap();
            let keyspace = database.keyspace("main", options(engine)).unwrap();
            let mut standing = Vec::new();
            for number in 0..40_000_u32 {
                keyspace.put(number.to_be_bytes(), vec![number as u8; 500]).unwrap();
                if number % 700 == 699 && standing.len() < 20 {
                    let mut range = keyspace.iter();
                    range.next().unwrap().unwrap();
                    standing.push((number, range));
                }
            }
            for (number, range) in standing {
                assert_eq!(range.map(Result::unwrap).count() as u32, number, "{engine}");
            }
        });
    }
}

#[test]
fn a_keyspace_can_be_written_to_while_it_is_gone_through() {
    for engine in [EngineKind::Hash, EngineKind::Lsm] {
        in_time(format!("{engine}"), move || {
            let database = builder(&MemoryFs::new()).open().unwrap();
            let keyspace = database.keyspace("main", options(engine)).unwrap();
            let put = |number: u32, value: u8| {
                keyspace.put(number.to_be_bytes(), vec![value; 500]).unwrap();
            };
            (0..20_000).for_each(|number| put(number, 1));
            for (at, entry) in keyspace.iter().enumerate() {
                assert_eq!(entry.unwrap().1[0], 1);
                put(at as u32, 2);
            }
            assert!(keyspace.iter().all(|entry| entry.unwrap().1[0] == 2));
        });
    }
}

/// Tables that cannot be read keep a tree from being compacted, and nobody from writing who waits for memory.
#[test]
fn writers_wait_for_memory_whatever_else_fails() {
    in_time("a writer".into(), || {
        let faults = FaultFs::new(Arc::new(MemoryFs::new()));
        let database = builder(&faults).open().unwrap();
        let tree = database.keyspace("tree", options(EngineKind::Lsm)).unwrap();
        let unread = Fault::new(Operation::Read, Effect::Fail(Errno::Raw(5)));
        faults.arm(Fault { name_contains: ".table".into(), times: Times::Always, ..unread });
        for number in 0..8_u32 {
            tree.put(number.to_be_bytes(), "value").unwrap();
            tree.persist().unwrap();
        }
        assert_eq!(database.settle().unwrap_err().kind(), ErrorKind::Io);
        let slow = Fault::new(Operation::Write, Effect::Delay(Duration::from_millis(20)));
        faults.arm(Fault { name_contains: ".data".into(), times: Times::Always, ..slow });
        let table = database.keyspace("table", options(EngineKind::Hash)).unwrap();
        for number in 0..30_000_u32 {
            table.put(number.to_be_bytes(), [number as u8; 500]).unwrap();
        }
        tree.put("more", "value").unwrap();
    });
}
