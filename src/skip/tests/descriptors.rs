//! Descriptors: sorted files have no more of them than they may, and are read all the same.

use std::path::Path;

use crate::options::MIN_MEMORY_BUDGET;
use crate::{Database, Keyspace, KeyspaceOptions, Layer};

const MOST: usize = 16;

fn open(path: &Path) -> Database {
    let builder = Database::builder(path).memory_budget(MIN_MEMORY_BUDGET).block_cache(0);
    builder.open_files(MOST).open().unwrap()
}

/// How many of this process's descriptors lead to sorted files below `path`.
#[cfg(target_os = "linux")]
fn descriptors(path: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let files = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let is_sorted = |file: &std::path::PathBuf| {
        // The name of one that has been removed has a few words behind it.
        file.starts_with(path) && file.to_str().is_some_and(|file| file.contains(".sorted"))
    };
    files.filter(is_sorted).count()
}

/// Keyspaces that have a base and several runs each.
fn fill(db: &Database, layer: Layer) -> Vec<Keyspace> {
    let options = KeyspaceOptions::skip().layer(layer);
    let keyspace = |number: u8| {
        let keyspace = db.keyspace(&format!("{number}"), options.clone()).unwrap();
        for run in 0..8_u8 {
            keyspace.load_sorted((0..50).map(|key: u8| ([run, key], [number; 300]))).unwrap();
            if run == 0 {
                keyspace.persist().unwrap();
            }
        }
        keyspace
    };
    (0..6).map(keyspace).collect()
}

fn check(keyspaces: &[Keyspace]) {
    for keyspace in keyspaces {
        let number: u8 = keyspace.name().parse().unwrap();
        for run in 0..8 {
            let value = keyspace.get([run, 7]).unwrap().unwrap();
            assert_eq!(value, [number; 300]);
        }
        assert_eq!(keyspace.iter().filter(|item| item.is_ok()).count(), 400);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn sorted_files_let_go_of_their_descriptors() {
    for layer in [Layer::Positional, Layer::Mmap, Layer::Block { block_size: 4096 }] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let mut db = open(&path);
        let mut keyspaces = fill(&db, layer);
        for is_opened_again in [false, true] {
            if is_opened_again {
                keyspaces.clear();
                db.close().unwrap();
                db = open(&path);
                let open = |number: u8| db.open_keyspace(&format!("{number}")).unwrap();
                keyspaces = (0..6).map(open).collect();
            }
            for _ in 0..2 {
                check(&keyspaces);
                let open = descriptors(&path);
                assert!(open <= MOST, "{open} of 48 files are open over {layer}");
            }
            assert!(db.verify().unwrap().problems.is_empty());
        }
        keyspaces[0].persist().unwrap();
        check(&keyspaces);
        keyspaces.clear();
        db.close().unwrap();
        assert_eq!(descriptors(&path), 0);
    }
}

/// Who stands still in a file that is merged meanwhile goes on, though the file was closed.
#[test]
fn what_a_range_reads_stays_until_it_has_done_so() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let keyspaces = fill(&db, Layer::Positional);
    let mut range = keyspaces[0].iter();
    let mut next = || range.next().unwrap().unwrap();
    assert_eq!(next().0, [0, 0]);
    // Others need the descriptors.
    (0..3).for_each(|_| check(&keyspaces[1..]));
    for layer in [Layer::Positional, Layer::Mmap] {
        keyspaces[0].target().engine.set_layer(layer).unwrap();
        keyspaces[0].put("new", "value").unwrap();
        keyspaces[0].persist().unwrap();
        check(&keyspaces[1..]);
    }
    for number in 1..400_u16 {
        let (key, value) = next();
        assert_eq!(key, [(number / 50) as u8, (number % 50) as u8]);
        assert_eq!(value, [0; 300]);
    }
    assert!(range.next().is_none());
    drop(range);
    let files = || {
        let names = std::fs::read_dir(dir.path().join("keyspaces/1")).unwrap().flatten();
        names.filter(|file| file.file_name().to_str().unwrap().ends_with(".sorted")).count()
    };
    let start = std::time::Instant::now();
    while files() > 1 {
        assert!(start.elapsed().as_secs() < 10, "{} files stay", files());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
