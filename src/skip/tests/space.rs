//! How much disk and memory it takes.

use std::sync::Arc;

use super::files::{shape, sorted, stretched};
use super::merges::{figures, open};
use super::*;
use crate::KeyspaceOptions;
use crate::base::rng::Rng;
use crate::iter::EntryCursor;
use crate::skip::merge::at_once;
use crate::vfs::{Fs, MemoryFs};

/// What is written goes to runs of a 64th of the whole, of which there may be 32; they are merged with the base when they
/// have half of its size, at last, and others of up to half may have come meanwhile. A merge writes all of it once more, and
/// until its inputs have been removed writers may bring runs of another half.
#[test]
fn a_long_load_takes_less_than_four_times_the_disk() {
    let memory = MemoryFs::new();
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let db = open(&fs);
    let keyspace = db.keyspace("main", KeyspaceOptions::skip().log(false)).unwrap();
    let keys = 6400_u64;
    let value = |round: u64| vec![round as u8; 100];
    keyspace.load_sorted((0..keys).map(|key| (key.to_be_bytes(), value(0)))).unwrap();
    keyspace.compact().unwrap();
    let whole = keyspace.stats().disk_bytes;
    // Besides, there are the log, the catalog and the manifest.
    let others: usize = memory.files().iter().map(|(_, bytes)| bytes.len()).sum();
    let others = others as u64 - whole;
    memory.quota(Some(others + 4 * whole));
    let mut rng = Rng::new(1);
    for round in 1..=300 {
        let first = rng.next() % (keys / 64);
        let records = (0..100).map(|at| ((first + 63 * at).to_be_bytes(), value(round)));
        keyspace.load_sorted(records).unwrap();
        assert!(keyspace.target().engine.trouble().is_none());
    }
    db.settle().unwrap();
    assert!(figures(&keyspace).merges > 10);
    assert_eq!(keyspace.iter().count() as u64, keys);
    keyspace.compact().unwrap();
    assert!(keyspace.stats().disk_bytes <= whole + whole / 10);
}

#[test]
fn a_walk_in_runs_reads_no_more_at_once() {
    let entries = sorted(stretched(900), true);
    let bytes = write(&entries, shape(4, 12, true));
    for most_links in [0, usize::MAX] {
        let whole = Whole::new(bytes.clone(), false);
        let file = open_file(whole.clone(), Reach { lends: false, cache: 0, most_links }).unwrap();
        for at_once in [6_000, 16 << 10, 100 << 10] {
            whole.take_most();
            let mut cursor = file.cursor(Some(at_once));
            cursor.seek_to_first().unwrap();
            let mut count = 0;
            while cursor.is_valid() {
                count += 1;
                cursor.next().unwrap();
            }
            assert_eq!(count, entries.len());
            let most = whole.take_most();
            assert!(most <= at_once && most > at_once / 2, "{most} of {at_once}");
        }
    }
}

#[test]
fn buffers_of_a_merge_share_what_there_is_for_them() {
    for budget in [8_usize << 20, 64 << 20, 1 << 30, 64 << 30] {
        for inputs in [1_usize, 2, 9, 33] {
            let at_once = at_once(budget, inputs);
            let least = (inputs + 1) * (16 << 10);
            assert!((inputs + 1) * at_once <= least.max(budget / 16));
            assert!((16 << 10..=1 << 20).contains(&at_once));
        }
    }
}
