//! Merges in the background and in callers' threads: what keeps runs from piling up.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::error::ErrorKind;
use crate::options::{MAX_VALUE_LEN, MIN_MEMORY_BUDGET};
use crate::vfs::MemoryFs;
use crate::{Database, Keyspace, KeyspaceOptions, Reducer};

/// More than may wait for a merge.
const MANY_RUNS: usize = 12;

/// A database in memory, and a keyspace in it with a reducer, which is `function` if it is a custom one.
fn start(
    reducer: Reducer,
    function: impl Fn(&[u8], &[&[u8]]) -> Vec<u8> + Send + Sync + 'static,
) -> (Database, Keyspace) {
    let builder = Database::builder("/db").file_system(Arc::new(MemoryFs::new()));
    let builder = builder.memory_budget(MIN_MEMORY_BUDGET).reducer("custom", function);
    let database = builder.open().unwrap();
    let keyspace = database.keyspace("main", KeyspaceOptions::skip().reducer(reducer)).unwrap();
    (database, keyspace)
}

fn custom() -> Reducer {
    Reducer::Custom("custom".into())
}

/// Makes a run of what is in memory.
fn spill(database: &Database, keyspace: &Keyspace) {
    let engine = &keyspace.target().engine;
    engine.cut(database.stats().last_seqno);
    engine.persist().unwrap();
}

fn runs(keyspace: &Keyspace) -> u64 {
    keyspace.stats().skip.unwrap().runs
}

/// Waits until there are few runs, without doing anything about it.
fn wait_for_few_runs(keyspace: &Keyspace) {
    let start = Instant::now();
    while runs(keyspace) > 8 {
        assert!(start.elapsed() < Duration::from_secs(60), "{} runs stay", runs(keyspace));
        thread::sleep(Duration::from_millis(1));
    }
}

/// A function that says when it is called and waits until it may go on.
fn gate(entered: Sender<()>, leave: Receiver<()>) -> impl Fn(&[u8], &[&[u8]]) -> Vec<u8> {
    let leave = Mutex::new(leave);
    move |_, values| {
        entered.send(()).unwrap();
        leave.lock().unwrap_or_else(PoisonError::into_inner).recv().unwrap();
        values.concat()
    }
}

#[test]
fn runs_that_come_during_a_long_merge_are_merged_after_it() {
    let (entered, has_entered) = channel();
    let (go, leave) = channel();
    let (database, keyspace) = start(custom(), gate(entered, leave));
    // A file too large to be merged with memtables directly.
    (0..8).for_each(|number| keyspace.put(format!("large {number}"), vec![0; 1 << 20]).unwrap());
    keyspace.persist().unwrap();
    for value in ["a", "b"] {
        keyspace.put("key", value).unwrap();
        spill(&database, &keyspace);
    }
    thread::scope(|scope| {
        let merge = scope.spawn(|| keyspace.persist());
        has_entered.recv().unwrap();
        for number in 0..MANY_RUNS {
            keyspace.put(format!("meanwhile {number}"), "v").unwrap();
            spill(&database, &keyspace);
        }
        assert!(runs(&keyspace) as usize >= MANY_RUNS);
        go.send(()).unwrap();
        merge.join().unwrap().unwrap();
    });
    wait_for_few_runs(&keyspace);
    assert_eq!(&*keyspace.get("key").unwrap().unwrap(), b"ab");
}

#[test]
fn values_that_become_too_large_keep_nobody_from_writing() {
    let (database, keyspace) = start(custom(), |_, _| vec![0; MAX_VALUE_LEN + 1]);
    for number in 0..2 * MANY_RUNS {
        keyspace.put("key", "v").unwrap();
        keyspace.put(format!("other {number:02}"), "v").unwrap();
        spill(&database, &keyspace);
    }
    wait_for_few_runs(&keyspace);
    keyspace.target().engine.settle().unwrap();
    assert_eq!(keyspace.get("key").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(keyspace.persist().unwrap_err().kind(), ErrorKind::Invalid);
    keyspace.delete("key").unwrap();
    keyspace.persist().unwrap();
    assert_eq!((runs(&keyspace), keyspace.count().unwrap()), (0, 2 * MANY_RUNS as u64));
}

#[test]
fn values_in_memory_that_become_too_large_keep_nobody_from_writing() {
    let (database, keyspace) = start(custom(), |_, _| vec![0; MAX_VALUE_LEN + 1]);
    ["v", "w"].iter().for_each(|value| keyspace.put("key", value).unwrap());
    // There is no file: it would become the base.
    spill(&database, &keyspace);
    assert_eq!(runs(&keyspace), 1);
    assert_eq!(keyspace.get("key").unwrap_err().kind(), ErrorKind::Invalid);
    keyspace.put("other", "v").unwrap();
    keyspace.delete("key").unwrap();
    keyspace.persist().unwrap();
    assert_eq!((runs(&keyspace), keyspace.count().unwrap()), (0, 1));
}

#[test]
fn many_values_of_one_key_become_one() {
    const COUNT: i64 = 5000;
    for reducer in [Reducer::First, Reducer::Sum, Reducer::Concat] {
        let (database, keyspace) = start(reducer.clone(), |_, _| Vec::new());
        for number in 1..=COUNT {
            keyspace.put("key", number.to_be_bytes()).unwrap();
            if number % 2000 == 0 {
                spill(&database, &keyspace);
            }
        }
        let before = keyspace.get("key").unwrap().unwrap();
        keyspace.persist().unwrap();
        let after = keyspace.get("key").unwrap().unwrap();
        let all = (1..=COUNT).flat_map(i64::to_be_bytes).collect();
        let expected = match reducer {
            Reducer::First => 1_i64.to_be_bytes().to_vec(),
            Reducer::Sum => (COUNT * (COUNT + 1) / 2).to_be_bytes().to_vec(),
            _ => all,
        };
        assert_eq!((&*before, &*after), (&expected[..], &expected[..]), "{reducer}");
    }
}
