//! A status on its way from one process to another.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::encoding::{decode, decode_body, encode};
use super::*;
use crate::vfs::{Access, Fs, Layer, MemoryFs};
use crate::{Database, ErrorKind, KeyspaceOptions};

pub(super) fn status() -> Status {
    let span = |smallest: &str, largest: &str| Span {
        smallest: smallest.into(),
        largest: largest.into(),
        tables: 2,
        bytes: 1 << 40,
    };
    let tree = LsmStatus {
        frozen: 2,
        frozen_bytes: 3 << 20,
        excess_runs: 1,
        debt_bytes: 4 << 20,
        is_due: true,
        levels: vec![LevelStatus { level: 3, runs: 2, spans: vec![span("a", "c"), span("", "z")] }],
        claims: vec![ClaimStatus { claim: 9, level: 3, smallest: vec![0], largest: vec![255; 64] }],
    };
    let keyspace = |tree: Option<LsmStatus>| KeyspaceStatus {
        name: "main".into(),
        engine: if tree.is_none() { EngineKind::Hash } else { EngineKind::Lsm },
        disk_bytes: 5,
        memory_bytes: 6,
        flushes: 7,
        compactions: 8,
        work: WorkStats {
            flushed_bytes: 9,
            compaction_read_bytes: 10,
            compaction_written_bytes: 11,
        },
        pressure: 12,
        tree,
    };
    let job = |levels| JobStatus {
        number: 13,
        keyspace: "main".into(),
        kind: JobKind::Merge,
        levels,
        bytes: 14,
        running_for: Duration::from_millis(15),
    };
    Status {
        process: 16,
        open_for: Duration::from_secs(17),
        last_seqno: u64::MAX,
        taken_bytes: 18,
        read_bytes: 19,
        written_bytes: 20,
        pressure: 1000,
        is_poisoned: true,
        memory: MemoryStats { budget: 21, memtables: 22, ..MemoryStats::default() },
        memtables_limit: 23,
        keyspaces: vec![keyspace(Some(tree)), keyspace(None)],
        jobs: vec![job(Some((1, 2))), job(None)],
    }
}

#[test]
fn a_status_round_trips_and_no_cut_or_flip_is_taken_for_one() {
    let status = status();
    let bytes = encode((1, 2), &status);
    assert_eq!(decode(&bytes), Some(((1, 2), status)));
    assert!((0..bytes.len()).all(|cut| decode(&bytes[..cut]).is_none()));
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode(&flipped), None, "bit {bit}");
    }
}

proptest! {
    #[test]
    fn whatever_the_bytes_say_decoding_ends(
        at in 0..400_usize,
        put in proptest::collection::vec(any::<u8>(), 0..12),
        noise in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        // What is behind the checksum, with some bytes replaced; and anything at all.
        let mut body = encode((1, 2), &status()).split_off(12);
        let at = at.min(body.len());
        let end = (at + put.len()).min(body.len());
        body.splice(at..end, put);
        if let Some((stamp, status)) = decode_body(&body) {
            prop_assert_eq!(decode(&encode(stamp, &status)), Some((stamp, status)));
        }
        decode_body(&noise);
        decode(&noise);
    }
}

#[test]
fn many_tables_become_few_spans_that_have_all() {
    let keys: Vec<_> = (0..5000_u32).map(|key| [key.to_be_bytes(), [7; 4]].concat()).collect();
    let tables: Vec<_> = keys.iter().map(|key| (3, &key[..4], &key[..])).collect();
    let found = spans(&tables);
    assert!((250..=512).contains(&found.len()));
    assert_eq!(found.iter().map(|span| span.tables).sum::<u64>(), 5000);
    assert_eq!(found.iter().map(|span| span.bytes).sum::<u64>(), 15_000);
    assert!(found.is_sorted_by(|a, b| a.largest < b.smallest));
    assert_eq!(spans(&[]), []);
    let long = [1; 1000];
    assert_eq!(spans(&[(1, &long, &long)])[0].largest.len(), 64);
}

const SOON: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);

fn open(fs: &MemoryFs, publish: bool) -> Database {
    let builder = Database::builder("/db").file_system(Arc::new(fs.clone()));
    builder.publish_status(publish).open().unwrap()
}

fn watch(fs: &MemoryFs) -> Watch {
    Database::builder("/db").file_system(Arc::new(fs.clone())).watch().unwrap()
}

/// The same of a database that nobody has opened since it was made.
fn watch_new(fs: &MemoryFs) -> Watch {
    open(fs, false).close().unwrap();
    watch(fs)
}

fn is_there(fs: &MemoryFs, name: &str) -> bool {
    fs.kind(&std::path::Path::new("/db").join(name)).unwrap().is_some()
}

#[test]
fn whoever_asks_is_answered_as_long_as_the_database_is_open() {
    let fs = MemoryFs::new();
    let nothing = Database::builder("/db").file_system(Arc::new(fs.clone())).watch();
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::NotADatabase);
    let db = open(&fs, true);
    std::thread::sleep(SOON);
    assert!(!is_there(&fs, STATUS), "nobody has asked");
    let keyspace = db.keyspace("main", KeyspaceOptions::lsm()).unwrap();
    keyspace.put("a", "1").unwrap();
    keyspace.put("b", "2").unwrap();
    keyspace.persist().unwrap();
    let (mut one, mut other) = (watch(&fs), watch(&fs));
    let first = one.ask(LONG).unwrap().unwrap();
    assert_eq!((first.process, first.last_seqno), (std::process::id(), 2));
    assert_eq!((first.taken_bytes, first.keyspaces[0].name.as_str()), (4, "main"));
    let levels = &first.keyspaces[0].tree.as_ref().unwrap().levels;
    assert_eq!((levels.len(), levels[0].tables()), (1, 1));
    assert_eq!(
        (&levels[0].spans[0].smallest[..], &levels[0].spans[0].largest[..]),
        (&b"a"[..], &b"b"[..])
    );
    for _ in 0..3 {
        let next = other.ask(LONG).unwrap().unwrap();
        assert!(next.open_for > first.open_for);
        assert!(one.ask(LONG).unwrap().is_some());
    }
    drop(other);
    db.close().unwrap();
    assert!(!is_there(&fs, STATUS) && !is_there(&fs, REQUEST));
    assert_eq!(one.ask(SOON).unwrap(), None, "it is closed");
    // Who watches before it is opened sees it then.
    let db = open(&fs, true);
    assert!(one.ask(LONG).unwrap().is_some());
    drop(one);
    assert!(!is_there(&fs, REQUEST));
    drop(db);
}

#[test]
fn who_looks_no_more_leaves_the_questions_of_others() {
    let fs = MemoryFs::new();
    let (mut one, mut other) = (watch_new(&fs), watch(&fs));
    assert_eq!((one.ask(SOON).unwrap(), other.ask(SOON).unwrap()), (None, None));
    drop(one);
    assert!(is_there(&fs, REQUEST), "it is the other one's");
    drop(other);
    assert!(!is_there(&fs, REQUEST));
}

#[test]
fn a_question_that_was_removed_is_asked_again() {
    let fs = MemoryFs::new();
    let mut watch = watch_new(&fs);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| watch.ask(LONG).unwrap());
        while !is_there(&fs, REQUEST) {
            std::thread::yield_now();
        }
        // That removes what is there of before.
        let db = open(&fs, true);
        assert!(asking.join().unwrap().is_some());
        drop(db);
    });
}

#[test]
fn nobody_answers_for_a_database_that_does_not_publish() {
    let fs = MemoryFs::new();
    let db = open(&fs, false);
    let mut watch = watch(&fs);
    assert_eq!(watch.ask(SOON).unwrap(), None);
    drop(db);
    let read_only = Database::builder("/db").file_system(Arc::new(fs.clone())).read_only(true);
    let db = read_only.publish_status(true).open().unwrap();
    assert_eq!(watch.ask(SOON).unwrap(), None);
    assert!(!is_there(&fs, STATUS));
    assert_eq!(db.status().keyspaces, []);
}

#[test]
fn what_a_killed_process_left_is_no_answer_and_in_nobodys_way() {
    let fs = MemoryFs::new();
    open(&fs, true).close().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = std::path::Path::new("/db").join(name);
        if fs.kind(&path).unwrap().is_some() {
            fs.remove(&path).unwrap();
        }
        fs.create(&path, Layer::Positional).unwrap().write_at(0, bytes).unwrap();
    };
    write(STATUS, &encode((1, 2), &status()));
    write("watch.status.tmp", b"unfinished");
    write(REQUEST, b"of somebody who is gone");
    let mut watch = watch(&fs);
    assert_eq!(watch.ask(SOON).unwrap(), None);
    // Neither is what cannot be read.
    write(STATUS, b"TBWATCH\x01 and so on");
    assert_eq!(watch.ask(SOON).unwrap(), None);
    write(REQUEST, &[b'x'; 10_000]);
    let db = open(&fs, true);
    assert!(watch.ask(LONG).unwrap().is_some());
    // A foreign request that is too long is none.
    drop(watch);
    write(REQUEST, &[b'x'; 10_000]);
    let file = fs.open("/db/watch.status".as_ref(), Access::Read, Layer::Positional).unwrap();
    let before = file.view(0..file.len().unwrap()).unwrap().to_vec();
    std::thread::sleep(SOON);
    let file = fs.open("/db/watch.status".as_ref(), Access::Read, Layer::Positional).unwrap();
    assert_eq!(file.view(0..file.len().unwrap()).unwrap().to_vec(), before);
    drop(db);
}

#[test]
fn a_tree_has_few_levels_in_their_order() {
    let with = |levels: &[u32]| {
        let mut status = status();
        let level = |&level: &u32| LevelStatus { level, runs: 1, spans: Vec::new() };
        let tree = LsmStatus { levels: levels.iter().map(level).collect(), ..LsmStatus::default() };
        status.keyspaces[0].tree = Some(tree);
        decode(&encode((1, 2), &status)).is_some()
    };
    assert!(with(&[]) && with(&[0, 1, 15]));
    assert!(!with(&[1, 0]) && !with(&[1, 1]) && !with(&(0..1000).collect::<Vec<_>>()));
}
