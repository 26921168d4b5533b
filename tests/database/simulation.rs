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

/// In half of them manifests are begun anew after few edits, and a checkpoint of a B+ tree of some pages has several steps, each with syncs
/// of its own.
#[test]
fn little_is_much_in_half_of_them() {
    let mut operations_of = [vec![], vec![]];
    for seed in 0..12 {
        let (is_first, operations) = simulation::run(seed, || {
            let fs = MemoryFs::traced();
            let builder = Database::builder("/db").memory_budget(8 << 20);
            let db = builder.file_system(Arc::new(fs.clone())).open().unwrap();
            let lsm = db.keyspace("lsm", KeyspaceOptions::lsm()).unwrap();
            for number in 0..20_u32 {
                lsm.put(number.to_be_bytes(), b"value").unwrap();
                lsm.persist().unwrap();
            }
            let btree = db.keyspace("btree", KeyspaceOptions::btree()).unwrap();
            (0..60_u32).for_each(|key| btree.put(key.to_be_bytes(), vec![0; 1000]).unwrap());
            let before = fs.operations();
            btree.persist().unwrap();
            let operations = fs.operations() - before;
            let is_first = |(path, _): &(PathBuf, Vec<u8>)| path.ends_with("manifest-000001");
            (fs.files().iter().any(is_first), operations)
        });
        assert_eq!(is_first, !simulation::is_small(seed), "{seed}");
        operations_of[usize::from(is_first)].push(operations);
    }
    let [small, usual] = &operations_of;
    let (fewest, most) = (small.iter().min().unwrap(), usual.iter().max().unwrap());
    assert!(fewest > most, "{operations_of:?}");
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

/// Upkeep that is under way when a keyspace is compacted may have moved tombstones behind all that was persisted.
#[test]
fn compact_forgets_all_tombstones_of_a_hash_keyspace() {
    for seed in 0..150 {
        simulation::run(seed, || {
            let builder = Database::builder("/db").memory_budget(8 << 20);
            let db = builder.file_system(Arc::new(MemoryFs::new())).open().unwrap();
            let keyspace = db.keyspace("hash", KeyspaceOptions::hash()).unwrap();
            for round in 0..4_u8 {
                (0..200_u32).for_each(|key| keyspace.put(key.to_be_bytes(), [round; 500]).unwrap());
                keyspace.persist().unwrap();
            }
            (0..199_u32).for_each(|key| keyspace.delete(key.to_be_bytes()).unwrap());
            keyspace.compact().unwrap();
            assert_eq!(keyspace.stats().entries, 1, "{seed}");
        });
    }
}
