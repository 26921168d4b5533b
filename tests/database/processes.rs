//! What a process does with itself while a database is open: it goes to another directory, or divides in two.
//!
//! Both are done by this test binary, started again as a child.

use std::path::Path;
use std::process::Command;

use turbidite::{Database, ErrorKind, Keyspace, KeyspaceOptions, Layer};

use crate::setup::{ENGINES, files_below, options};

/// Tells the child the directory to work in.
const CHILD: &str = "TURBIDITE_PROCESS_CHILD";

/// Runs a test of this file as the child.
fn run(test: &str, dir: &Path) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("processes::{test}"), "--nocapture"])
        .env(CHILD, dir)
        .status()
        .unwrap();
    assert!(status.success(), "{test}: {status}");
}

fn fill(keyspace: &Keyspace, round: u8) {
    for number in 0..2000_u32 {
        keyspace.put(number.to_be_bytes(), vec![round; 1000]).unwrap();
    }
}

fn check(path: &Path, round: u8) {
    let database = Database::open(path).unwrap();
    let report = database.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    for engine in ENGINES {
        let keyspace = database.open_keyspace(&engine.to_string()).unwrap();
        assert_eq!(
            keyspace.iter().filter(|entry| entry.as_ref().unwrap().1[0] == round).count(),
            2000
        );
    }
}

fn open(path: &str) -> (Database, Vec<Keyspace>) {
    let database = Database::builder(path).memory_budget(8 << 20).open().unwrap();
    let keyspace = |engine: turbidite::EngineKind| {
        let options: KeyspaceOptions = options(engine);
        database.keyspace(&engine.to_string(), options).unwrap()
    };
    let keyspaces = ENGINES.map(keyspace).into();
    (database, keyspaces)
}

#[test]
fn child_that_goes_elsewhere() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    std::env::set_current_dir(Path::new(&dir).join("here")).unwrap();
    let (database, keyspaces) = open("my.db");
    keyspaces.iter().for_each(|keyspace| fill(keyspace, 1));
    std::env::set_current_dir("../there").unwrap();
    keyspaces.iter().for_each(|keyspace| fill(keyspace, 2));
    keyspaces.iter().for_each(|keyspace| keyspace.compact().unwrap());
    assert_eq!(database.path(), Path::new(&dir).join("here/my.db"));
    drop(keyspaces);
    database.close().unwrap();
}

#[test]
fn a_relative_path_leads_to_the_same_place_from_elsewhere() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    ["here", "there"].iter().for_each(|name| std::fs::create_dir(root.join(name)).unwrap());
    let there = root.join("there/my.db");
    let (database, keyspaces) = open(there.to_str().unwrap());
    keyspaces.iter().for_each(|keyspace| fill(keyspace, 3));
    drop(keyspaces);
    database.close().unwrap();
    let before = files_below(&there);
    run("child_that_goes_elsewhere", &root);
    assert!(files_below(&there) == before, "another database was changed");
    check(&there, 3);
    check(&root.join("here/my.db"), 2);
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

/// Runs `work` in a process that is forked from this one.
fn in_a_fork(work: impl FnOnce()) {
    // SAFETY: the new process has this thread alone. It takes no lock that another one may have held, as it does no more than to let
    // go of handles, which is what is tried, and then ends without running anything else.
    let process = unsafe { fork() };
    assert!(process >= 0, "{}", std::io::Error::last_os_error());
    if process == 0 {
        work();
        // SAFETY: it ends the process.
        unsafe { _exit(0) };
    }
    let mut status = -1;
    // SAFETY: `status` is there to be written to.
    let waited = unsafe { waitpid(process, &raw mut status, 0) };
    assert_eq!((waited, status), (process, 0));
}

#[test]
fn child_that_forks() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let path = Path::new(&dir).join("db");
    let (database, keyspaces) = open(path.to_str().unwrap());
    keyspaces.iter().for_each(|keyspace| fill(keyspace, 1));
    database.persist().unwrap();
    // Iterators that alone need files which a compaction has made needless.
    let mut ranges: Vec<_> = keyspaces.iter().map(Keyspace::iter).collect();
    ranges.iter_mut().for_each(|range| drop(range.next().unwrap().unwrap()));
    keyspaces.iter().for_each(|keyspace| fill(keyspace, 3));
    keyspaces.iter().for_each(|keyspace| keyspace.compact().unwrap());
    database.settle().unwrap();
    // Log segments come and go.
    let names = || files_below(&path.join("keyspaces")).into_keys().collect::<Vec<_>>();
    let before = names();
    let mut handles = Some((database, keyspaces, ranges));
    in_a_fork(|| drop(handles.take()));
    let (database, keyspaces, ranges) = handles.unwrap();
    assert_eq!(names(), before);
    for range in ranges {
        assert_eq!(range.map(Result::unwrap).filter(|(_, value)| value[0] == 1).count(), 1999);
    }
    // It has neither ended the database nor taken its lock away.
    let refused = Database::open(&path).unwrap_err();
    assert_eq!(refused.kind(), turbidite::ErrorKind::Locked);
    keyspaces.iter().for_each(|keyspace| fill(keyspace, 2));
    database.persist().unwrap();
    in_a_fork(|| assert!(database.clone().close().is_err()));
    drop(keyspaces);
    database.close().unwrap();
    check(&path, 2);
    // A cursor over what is mapped keeps the lock of a database that is closed. The lock is this process's, too.
    let (database, keyspaces) = open(path.to_str().unwrap());
    let mapped = KeyspaceOptions::btree().layer(Layer::Mmap);
    let mapped = database.keyspace("mapped", mapped).unwrap();
    fill(&mapped, 4);
    mapped.persist().unwrap();
    let mut cursor = mapped.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    drop((mapped, keyspaces));
    database.close().unwrap();
    let mut cursor = Some(cursor);
    let is_locked = || Database::open(&path).is_err_and(|error| error.kind() == ErrorKind::Locked);
    assert!(is_locked());
    in_a_fork(|| drop(cursor.take()));
    assert!(is_locked());
    drop(cursor);
    check(&path, 2);
}

#[test]
fn a_forked_process_lets_go_of_a_database_without_touching_it() {
    if std::env::var(CHILD).is_ok() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    run("child_that_forks", dir.path());
}
