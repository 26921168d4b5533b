//! Bytes that change on the device after they were read and found whole.

use std::sync::Arc;

use turbidite::vfs::MemoryFs;
use turbidite::{Database, ErrorKind, Keyspace, Layer, MIN_MEMORY_BUDGET, Result};

use crate::history::Dice;
use crate::setup::{ENGINES, options};

const KEYS: u32 = 3000;

fn open(fs: &MemoryFs) -> Result<Database> {
    let builder = Database::builder("/db").file_system(Arc::new(fs.clone()));
    builder.memory_budget(MIN_MEMORY_BUDGET).open()
}

/// Puts every key that is a multiple of `step` and no multiple of `but`; with values that cannot be compressed.
fn put(keyspace: &Keyspace, dice: &mut Dice, step: u32, but: u32) -> Result<()> {
    for number in (0..KEYS).step_by(step as usize).filter(|number| number % but > 0) {
        keyspace.put(number.to_be_bytes(), dice.bytes(200))?;
    }
    keyspace.persist()
}

/// What a mapped file shows is checked when it is first used. It is checked again before it gets into another file, with a checksum
/// that says that it is right.
#[test]
fn what_has_changed_since_it_was_read_gets_into_no_other_file() {
    for engine in ENGINES {
        let (fs, mut dice) = (MemoryFs::new(), Dice::new(7));
        let database = open(&fs).unwrap();
        let keyspace = database.keyspace("main", options(engine).layer(Layer::Mmap)).unwrap();
        put(&keyspace, &mut dice, 1, u32::MAX).unwrap();
        keyspace.compact().unwrap();
        let needle = 1500_u32.to_be_bytes();
        let value = keyspace.get(needle).unwrap().unwrap();
        assert_eq!(keyspace.iter().map(Result::unwrap).count() as u32, KEYS - 1);
        let found = fs.files().into_iter().find_map(|(path, bytes)| {
            let at = bytes.windows(value.len()).position(|window| *window == *value)?;
            path.to_str()?.contains("keyspaces").then_some((path, at as u64))
        });
        let (path, at) = found.unwrap_or_else(|| panic!("{engine} has not written it"));
        let value = value.to_vec();
        fs.corrupt(&path, at + 100, 1).unwrap();
        assert!(!database.verify().unwrap().problems.is_empty(), "{engine}: verify finds nothing");
        // Neighbours of the record are written anew, and it with them.
        let written = put(&keyspace, &mut dice, 2, 1500).and_then(|()| keyspace.compact());
        assert!(written.is_err_and(|error| error.kind() == ErrorKind::Corruption), "{engine}");
        // Nothing has been checked yet by who opens it next.
        let opened = open(&fs.fork());
        match opened.and_then(|database| database.open_keyspace("main")?.get(needle)) {
            Ok(found) => assert_eq!(found.unwrap(), value, "{engine}: a wrong value is given"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{engine}"),
        }
    }
}

/// What has been read before, and is kept in memory, says nothing of the device.
#[test]
fn verify_reads_again_what_is_cached() {
    for engine in ENGINES {
        let (fs, mut dice) = (MemoryFs::new(), Dice::new(7));
        let database = open(&fs).unwrap();
        let keyspace = database.keyspace("main", options(engine).layer(Layer::Positional)).unwrap();
        put(&keyspace, &mut dice, 1, u32::MAX).unwrap();
        keyspace.compact().unwrap();
        let value = keyspace.get(1500_u32.to_be_bytes()).unwrap().unwrap();
        let files =
            fs.files().into_iter().filter(|(path, _)| path.to_str().unwrap().contains("keyspaces"));
        let found = files.into_iter().find_map(|(path, bytes)| {
            let at = bytes.windows(value.len()).position(|window| *window == *value)?;
            Some((path, at as u64))
        });
        let (path, at) = found.unwrap_or_else(|| panic!("{engine} has not written it"));
        fs.corrupt(&path, at + 100, 1).unwrap();
        assert!(!database.verify().unwrap().problems.is_empty(), "{engine}: verify finds nothing");
    }
}
