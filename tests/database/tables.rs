//! What tables are made of, chosen for a keyspace: filters, compression, and what of an open table stays in memory. All
//! give the same answers, on every file layer, and may change each time the keyspace is opened.

use std::collections::BTreeMap;

use turbidite::{Compression, ErrorKind, FilterKind, KeyFile, Keyspace, KeyspaceOptions};

use crate::setup::{Setup, layers};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const KEY_FILES: [KeyFile; 4] =
    [KeyFile::None, KeyFile::Filter, KeyFile::Keys, KeyFile::KeysAndFilter];

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// Puts every third record, from a different one in each round, into a table of its own.
fn write(keyspace: &Keyspace, map: &mut Map, round: u32) {
    for number in (round % 3..600).step_by(3) {
        let text =
            format!("{number} of round {round}, {}", "and more ".repeat(number as usize % 9));
        keyspace.put(key(2 * number), &text).unwrap();
        map.insert(key(2 * number), text.into_bytes());
    }
    keyspace.persist().unwrap();
}

/// Checks every key, as many that are not there, and walks both ways.
fn check(keyspace: &Keyspace, map: &Map) {
    let keys: Vec<Vec<u8>> = (0..1200).map(key).collect();
    for keys in keys.chunks(150) {
        for (key, found) in keys.iter().zip(keyspace.multi_get(keys).unwrap()) {
            assert_eq!(found.as_deref(), map.get(key).map(|value| &value[..]));
            let found = keyspace.get(key).unwrap();
            assert_eq!(found.as_deref(), map.get(key).map(|value| &value[..]));
        }
    }
    let owned = |item: turbidite::Result<(turbidite::Slice, turbidite::Slice)>| {
        let (key, value) = item.unwrap();
        (key.to_vec(), value.to_vec())
    };
    let found: Map = keyspace.iter().map(owned).collect();
    assert!(found == *map);
    let backward: Vec<_> = keyspace.iter().rev().map(owned).collect();
    assert!(backward.into_iter().rev().eq(found));
}

fn compressions() -> Vec<Compression> {
    vec![
        Compression::None,
        Compression::Lz4,
        #[cfg(feature = "snappy")]
        Compression::Snappy,
        #[cfg(feature = "zstd")]
        Compression::Zstd { level: 5, dictionary: false },
        #[cfg(feature = "zstd")]
        Compression::Zstd { level: 9, dictionary: true },
    ]
}

/// Other options each time the keyspace is opened, so that tables of all kinds stand side by side.
#[test]
fn tables_of_all_kinds_side_by_side() {
    let filters = [FilterKind::Bloom, FilterKind::Ribbon, FilterKind::BlockedBloom];
    for layer in layers() {
        let setup = Setup::disk(layer);
        let mut map = Map::new();
        for (round, compression) in (0u32..).zip(compressions()) {
            let at = round as usize;
            let options = KeyspaceOptions::lsm()
                .layer(layer)
                .filter(filters[at % 3])
                .filter_bits(&[3 + round, 9])
                .key_file(KEY_FILES[at % 4])
                .data_block_size(512 << (round % 4))
                .compression(&[compression, Compression::Lz4]);
            let database = setup.open();
            let keyspace = database.keyspace("tables", options.clone()).unwrap();
            check(&keyspace, &map);
            write(&keyspace, &mut map, round);
            check(&keyspace, &map);
            for kept in KEY_FILES {
                // Of tables that are open, too.
                let keyspace = database.keyspace("tables", options.clone().key_file(kept)).unwrap();
                check(&keyspace, &map);
            }
            let report = database.verify().unwrap();
            assert!(report.problems.is_empty(), "{report:?}");
            drop(keyspace);
            database.close().unwrap();
        }
        let database = setup.open();
        let keyspace = database.open_keyspace("tables").unwrap();
        keyspace.compact().unwrap();
        check(&keyspace, &map);
        let plain: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(keyspace.stats().disk_bytes < plain as u64 * 3 / 4, "compressed while merged");
    }
}

#[test]
fn what_was_not_compiled_in_is_refused_and_changes_nothing() {
    let absent = [
        #[cfg(not(feature = "snappy"))]
        (Compression::Snappy, "`snappy`"),
        #[cfg(not(feature = "zstd"))]
        (Compression::Zstd { level: 3, dictionary: false }, "`zstd`"),
    ];
    let absent: &[(Compression, &str)] = &absent;
    let setup = Setup::memory();
    let database = setup.open();
    let there = database.keyspace("there", KeyspaceOptions::lsm()).unwrap();
    for &(compression, feature) in absent {
        for name in ["there", "new"] {
            let wanted = KeyspaceOptions::lsm().compression(&[Compression::None, compression]);
            let error = database.keyspace(name, wanted).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(feature), "{error}");
        }
        assert!(database.open_keyspace("new").is_err());
    }
    there.put("key", "value").unwrap();
    there.persist().unwrap();
}
