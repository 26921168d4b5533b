//! Databases in simulations: the same seed makes the same calls to the file system, with all background work.

use std::path::PathBuf;
use std::sync::Arc;

use turbidite::vfs::{MemoryFs, PowerCut};
use turbidite::{Database, KeyspaceOptions, simulation};

/// All files, with their bytes.
type Files = Vec<(PathBuf, Vec<u8>)>;

/// How many calls changed the files of a database in some writes, flushes and compactions, and the files at some of these calls.
fn database(seed: u64) -> (usize, Vec<Files>) {
    simulation::run(seed, || {
        let fs = MemoryFs::traced();
        let open = || {
            let builder = Database::builder("/db").memory_budget(8 << 20).background_threads(2);
            builder.file_system(Arc::new(fs.clone())).open().unwrap()
        };
        for round in 0..2_u32 {
            let db = open();
            let all = [
                db.keyspace("lsm", KeyspaceOptions::lsm()).unwrap(),
                db.keyspace("hash", KeyspaceOptions::hash()).unwrap(),
                db.keyspace("btree", KeyspaceOptions::btree()).unwrap(),
                db.keyspace("skip", KeyspaceOptions::skip()).unwrap(),
            ];
            for number in 0..600_u32 {
                for keyspace in &all {
                    let key = (number.wrapping_mul(0x9e37_79b1) % 500).to_be_bytes();
                    keyspace.put(key, vec![(number + round) as u8; 2000]).unwrap();
                }
            }
            all[0].compact().unwrap();
            all[1].persist().unwrap();
            drop(all);
            db.close().unwrap();
        }
        // What is on the disk at moments all over the trace has its order, too.
        let operations = fs.operations();
        let moments = (0..operations).step_by(operations / 16);
        let images = moments.map(|at| fs.image(at, PowerCut::DropUnsynced).files());
        (operations, images.chain([fs.files()]).collect())
    })
}

#[test]
fn a_seed_is_a_trace_of_a_whole_database() {
    let mut traces = Vec::new();
    for seed in 0..8 {
        let first = database(seed);
        assert!(first.0 > 100, "{} operations", first.0);
        assert!(first == database(seed), "another trace of seed {seed}");
        traces.push(first.0);
    }
    traces.dedup();
    assert!(traces.len() > 1, "{traces:?}");
}

/// The log lets go of segments that hold nothing which is not persisted, for which keyspaces are asked one after the other, while others
/// write.
#[test]
fn what_is_written_while_the_log_lets_go_of_segments_is_there_after_a_kill() {
    for seed in 0..400 {
        simulation::run(seed, || {
            let fs = MemoryFs::new();
            let open = |fs: MemoryFs| {
                let builder = Database::builder("/db").memory_budget(8 << 20);
                builder.file_system(Arc::new(fs)).open().unwrap()
            };
            let db = open(fs.clone());
            let all = ["first", "second", "third"]
                .map(|name| db.keyspace(name, KeyspaceOptions::hash()).unwrap());
            let mut written = 0_u32;
            let mut put = |at: usize, len: usize| {
                all[at].put(written.to_be_bytes(), vec![0; len]).unwrap();
                written += 1;
            };
            // When all is persisted the log is asked to let go. Meanwhile one keyspace fills a segment, and another one the next.
            (0..3).for_each(|at| put(at, 1));
            all.iter().for_each(|keyspace| keyspace.persist().unwrap());
            [0, 0, 2, 2, 2].into_iter().for_each(|at| put(at, 100_000));
            all[2].persist().unwrap();
            let left = open(fs.fork());
            let count = |info: turbidite::KeyspaceInfo| {
                left.open_keyspace(&info.name).unwrap().count().unwrap()
            };
            let there: u64 = left.keyspaces().into_iter().map(count).sum();
            assert_eq!(there, u64::from(written), "seed {seed}");
        });
    }
}
