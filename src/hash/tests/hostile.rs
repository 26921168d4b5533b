//! Files that say what cannot be, with right checksums: an error or less than there was, but no panic, no hang, and no
//! value of another key.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::base::hash::{file_identity, hash64};
use crate::base::rng::Rng;
use crate::base::{Kind, Trailer, checksum};
use crate::budget::Budget;
use crate::cache::{BlockCache, OpenFiles};
use crate::hash::checkpoint::{Checkpoint, CheckpointWriter};
use crate::hash::index::{Address, Entry};
use crate::hash::manifest::{CheckpointMeta, Contents, Edit, Manifest};
use crate::hash::record::{Front, UNIT};
use crate::hash::segment::{HEADER_UNITS, Home};
use crate::vfs::{Fs, Layer, MemoryFs};
use crate::{Database, ErrorKind, Keyspace, KeyspaceOptions, Result, Slice};

const KEYS: u32 = 60;
const DIR: &str = "/db/keyspaces/1";
const OPTIONS: fn() -> KeyspaceOptions = || KeyspaceOptions::hash().log(false);

fn open(fs: &MemoryFs) -> Result<Database> {
    let fs = Arc::new(fs.clone());
    Database::builder("/db").file_system(fs).memory_budget(8 << 20).open()
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:04}").into_bytes()
}

/// Of any length, and beginning with the key.
fn value(number: u32) -> Vec<u8> {
    let mut value = key(number);
    let len = value.len() + [0, 7, 100, 3000][number as usize % 4];
    value.resize(len, number as u8);
    value
}

/// Two segments, with tombstones and what they supersede, and a checkpoint of the first or of both.
fn sample(closed: bool) -> MemoryFs {
    let fs = MemoryFs::new();
    let db = open(&fs).unwrap();
    let keyspace = db.keyspace("hash", OPTIONS()).unwrap();
    (0..KEYS).for_each(|number| keyspace.put(key(number), value(number)).unwrap());
    keyspace.compact().unwrap();
    (0..KEYS).step_by(5).for_each(|number| keyspace.delete(key(number)).unwrap());
    (0..KEYS).step_by(6).for_each(|number| keyspace.put(key(number), value(number)).unwrap());
    keyspace.persist().unwrap();
    if closed {
        db.close().unwrap();
        return fs;
    }
    fs.fork()
}

/// The files of the keyspace, to be forged.
struct Forger {
    fs: Arc<dyn Fs>,
    home: Home,
}

impl Forger {
    fn new(fs: &MemoryFs) -> Self {
        let data =
            fs.files().into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "data"));
        let header = data.expect("there is a segment").1;
        let identity = u64::from_le_bytes(header[16..24].try_into().unwrap());
        let fs: Arc<dyn Fs> = Arc::new(fs.clone());
        let budget = Arc::new(Budget::new(8 << 20));
        let home = Home {
            fs: Arc::clone(&fs),
            dir: PathBuf::from(DIR),
            layer: crate::sync::Mutex::new(Layer::Positional),
            identity,
            open_files: Arc::new(OpenFiles::new(budget, Arc::new(BlockCache::new(0)))),
        };
        Self { fs, home }
    }

    fn manifest(&self) -> Manifest {
        let mut manifest = Manifest::open(&*self.fs, Path::new(DIR), self.home.identity).unwrap();
        manifest.make_writable(&self.fs, Path::new(DIR)).unwrap();
        manifest
    }

    fn contents(&self) -> Contents {
        self.manifest().contents
    }

    fn entries(&self) -> Vec<(u64, Entry)> {
        let meta = self.contents().checkpoint.unwrap();
        let mut entries = Vec::new();
        let checkpoint = Checkpoint::open(&self.home, meta).unwrap();
        checkpoint.load(|hash, entry| entries.push((hash, entry))).unwrap();
        entries
    }

    fn record(&self, edit: Edit) {
        let mut manifest = self.manifest();
        let next_id = manifest.contents.next_id + 1;
        manifest.record(&Edit { persisted: manifest.contents.persisted, ..edit }, next_id).unwrap();
    }

    /// Makes a checkpoint of these entries the present one.
    fn checkpoint(&self, entries: &[(u64, Entry)]) {
        let contents = self.contents();
        let covers = contents.segments.keys().next_back().copied().unwrap();
        let id = contents.next_id;
        let mut out = CheckpointWriter::create(&self.home, id, covers, None).unwrap();
        entries.iter().for_each(|&(hash, entry)| out.add(hash, entry).unwrap());
        let checkpoint = Some(out.finish().unwrap());
        // The number has to be given out before it can be used.
        self.record(Edit::default());
        self.record(Edit { checkpoint, ..Edit::default() });
    }
}

/// The records of a segment's file: where they begin, and how long they are.
fn records(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut at, mut records) = (HEADER_UNITS * UNIT, Vec::new());
    while at < bytes.len() {
        let len = Front::parse(&bytes[at..]).unwrap().lengths.units() * UNIT;
        records.push((at, len));
        at += len;
    }
    records
}

/// Gives the record at `at` the checksum of `len` bytes.
fn seal(home: &Home, id: u64, bytes: &mut [u8], at: usize, len: usize) {
    let len = len.min(bytes.len() - at);
    let sum =
        checksum::bound(file_identity(home.identity, id), at as u64, &bytes[at + 4..at + len]);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Runs `what` and gives up when it hangs.
fn in_time(what: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let running = std::thread::spawn(move || {
        what();
        done.send(()).unwrap();
    });
    match is_done.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => running.join().expect("it does not panic"),
    }
}

fn may_fail<T>(result: Result<T>) -> Option<T> {
    result.inspect_err(|error| assert_eq!(error.kind(), ErrorKind::Corruption, "{error}")).ok()
}

fn check_value(number: u32, found: Option<Slice>) {
    assert!(found.is_none_or(|found| *found == *value(number)), "key {number} has a wrong value");
}

fn read_all(db: &Database, keyspace: &Keyspace) {
    for number in 0..KEYS {
        may_fail(keyspace.get(key(number)))
            .into_iter()
            .for_each(|found| check_value(number, found));
    }
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    for values in may_fail(keyspace.multi_get(&keys))
        .into_iter()
        .chain(may_fail(db.snapshot().multi_get(keyspace, &keys)))
    {
        (0..KEYS).zip(values).for_each(|(number, found)| check_value(number, found));
    }
    let mut seen = BTreeSet::new();
    for (key, found) in keyspace.iter().map_while(may_fail) {
        assert!(
            found.starts_with(&key) && seen.insert(key),
            "a key comes twice or has a wrong value"
        );
    }
    may_fail(keyspace.count());
    assert!(
        db.verify().unwrap().problems.iter().all(|error| error.kind() == ErrorKind::Corruption)
    );
}

/// All that can be done to a database.
fn use_all(fs: MemoryFs) {
    in_time(move || {
        let Some(db) = may_fail(open(&fs)) else { return };
        let Some(keyspace) = may_fail(db.keyspace("hash", OPTIONS())) else { return };
        read_all(&db, &keyspace);
        may_fail(keyspace.compact());
        read_all(&db, &keyspace);
        for number in 0..KEYS {
            // A write may be refused because of what upkeep has found.
            may_fail(match number % 7 {
                0 => keyspace.delete(key(number)),
                _ => keyspace.put(key(number), value(number)),
            });
        }
        may_fail(keyspace.persist());
        may_fail(keyspace.compact());
        read_all(&db, &keyspace);
        may_fail(db.close());
    });
}

/// Another entry than `entry`, `other` being one of another record.
fn forge(rng: &mut Rng, hash: u64, entry: Entry, other: Entry) -> (u64, Entry) {
    let Some(units) = entry.units_at_most() else { return (hash, entry) };
    let at =
        |slot, unit, units: u32| Entry::new(Address::new(slot, unit), units, entry.is_tombstone());
    let (slot, unit) = (entry.address().slot(), entry.address().unit());
    match rng.next() % 9 {
        0 => (hash, at(7, 100, units)),
        1 => (hash, at((1 << 23) - 1, (1 << 17) - 1, units)),
        2 => (hash, at(slot, (1 << 17) - 1 - (rng.next() % 100) as u32, units)),
        3 => (hash, at(slot, (rng.next() % 9).max(1) as u32, units)),
        4 => {
            (hash, at(slot, (unit + 1 + (rng.next() % u64::from(units)) as u32) % (1 << 17), units))
        }
        5 => (hash, other),
        6 => (hash, at(slot, unit, [1, 2, 3, 100_000, u32::MAX][(rng.next() % 5) as usize])),
        7 => (hash, Entry::new(entry.address(), units, !entry.is_tombstone())),
        _ => (rng.next(), entry),
    }
}

#[test]
fn entries_of_a_checkpoint_that_point_anywhere() {
    let sample = sample(true);
    for seed in 0..150 {
        let fs = sample.fork();
        let forger = Forger::new(&fs);
        let mut rng = Rng::new(seed);
        let mut entries = forger.entries();
        for _ in 0..1 + rng.next() % 8 {
            let at = rng.next() as usize % entries.len();
            let other = entries[rng.next() as usize % entries.len()].1;
            let (hash, entry) = entries[at];
            let forged = forge(&mut rng, hash, entry, other);
            match rng.next() % 2 {
                0 => entries[at] = forged,
                _ => entries.push(forged),
            }
        }
        forger.checkpoint(&entries);
        use_all(fs);
    }
}

#[test]
fn an_entry_under_the_hash_of_another_key_does_not_outlive_its_segment() {
    // The place of the segment must not be given to another one while the index has something there.
    let fs = sample(true);
    let forger = Forger::new(&fs);
    let mut entries = forger.entries();
    let victim = entries[0].1;
    entries.push((hash64(b"somebody else"), victim));
    forger.checkpoint(&entries);
    in_time(move || {
        let db = open(&fs).unwrap();
        let keyspace = db.keyspace("hash", OPTIONS()).unwrap();
        (0..KEYS).for_each(|number| keyspace.put(key(number), value(number)).unwrap());
        assert_eq!(keyspace.compact().unwrap_err().kind(), ErrorKind::Corruption);
        assert_eq!(db.verify().unwrap().problems[0].kind(), ErrorKind::Corruption);
        assert_eq!(keyspace.get("somebody else").unwrap(), None::<Slice>);
        may_fail(keyspace.put("somebody else", "v"));
        may_fail(keyspace.get("somebody else"));
    });
}

/// Forges the first units of a record.
fn forge_record(rng: &mut Rng, bytes: &mut [u8], last: u64) {
    let unit =
        |at: usize, bytes: &[u8]| u64::from_le_bytes(bytes[at..at + UNIT].try_into().unwrap());
    let shape = (unit(0, bytes) >> 32) as u32;
    let Some(trailer) = Trailer::from_bits(unit(UNIT, bytes)) else { return };
    let (mut new_shape, mut new_trailer) = (shape, trailer.bits());
    match rng.next() % 8 {
        0 => new_shape = shape | 0xff,
        1 => new_shape = shape | ((1 << 22) - 1) << 8,
        2 => new_shape = 1 << 31,
        3 => new_shape = shape ^ 1 << 30,
        4 => new_shape = rng.next() as u32,
        5 => new_trailer = Trailer::new(last + 1 + rng.next() % 3, trailer.kind()).bits(),
        6 => new_trailer = Trailer::new((1 << 56) - 1, Kind::Put).bits(),
        _ => new_trailer = rng.next(),
    }
    bytes[4..8].copy_from_slice(&new_shape.to_le_bytes());
    bytes[8..16].copy_from_slice(&new_trailer.to_le_bytes());
    if new_shape >> 31 == 1 && bytes.len() >= 3 * UNIT {
        let lengths = [u64::MAX, 1 << 40, 300, 65 << 10, 5 << 22][(rng.next() % 5) as usize];
        bytes[16..24].copy_from_slice(&lengths.to_le_bytes());
    }
}

#[test]
fn records_that_cannot_be() {
    for (closed, seeds) in [(true, 0..150), (false, 150..300)] {
        let sample = sample(closed);
        for seed in seeds {
            let fs = sample.fork();
            let forger = Forger::new(&fs);
            let contents = forger.contents();
            let mut rng = Rng::new(seed);
            for &id in contents.segments.keys() {
                let path = forger.home.path(id);
                let mut bytes = fs.files().into_iter().find(|(other, _)| *other == path).unwrap().1;
                let records = records(&bytes);
                for _ in 0..1 + rng.next() % 3 {
                    let (at, len) = records[rng.next() as usize % records.len()];
                    forge_record(&mut rng, &mut bytes[at..at + len], contents.persisted);
                    let front = Front::parse(&bytes[at..]);
                    let len = front.map_or(len, |front| front.lengths.units() * UNIT);
                    seal(&forger.home, id, &mut bytes, at, len);
                }
                fs.write_file(&path, &bytes).unwrap();
            }
            use_all(fs);
        }
    }
}

#[test]
fn a_record_from_the_future_is_damage_and_is_not_waited_for() {
    let fs = sample(true);
    let forger = Forger::new(&fs);
    let contents = forger.contents();
    for &id in contents.segments.keys() {
        let path = forger.home.path(id);
        let mut bytes = fs.files().into_iter().find(|(other, _)| *other == path).unwrap().1;
        for (at, len) in records(&bytes) {
            let future = Trailer::new(contents.persisted + 1000, Kind::Put).bits();
            if bytes[at + 8] == Kind::Put as u8 {
                bytes[at + 8..at + 16].copy_from_slice(&future.to_le_bytes());
            }
            seal(&forger.home, id, &mut bytes, at, len);
        }
        fs.write_file(&path, &bytes).unwrap();
    }
    in_time(move || {
        let db = open(&fs).unwrap();
        let keyspace = db.keyspace("hash", OPTIONS()).unwrap();
        let error = keyspace.get(key(1)).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Corruption && error.to_string().contains("newer"),
            "{error}"
        );
        assert_eq!(keyspace.multi_get([key(1)]).unwrap_err().kind(), ErrorKind::Corruption);
        assert!(!db.verify().unwrap().problems.is_empty());
    });
}

#[test]
fn sizes_in_the_manifest_are_not_believed() {
    let fs = sample(true);
    let checkpoint = |len, covers| CheckpointMeta {
        id: Forger::new(&fs).contents().checkpoint.unwrap().id,
        len,
        covers,
    };
    let refused = |checkpoint| {
        let fs = fs.fork();
        Forger::new(&fs).record(Edit { checkpoint: Some(checkpoint), ..Edit::default() });
        assert_eq!(open(&fs).unwrap_err().kind(), ErrorKind::Corruption);
    };
    refused(checkpoint(u64::MAX, 1));
    refused(checkpoint(1 << 50, 1));
    refused(checkpoint(64, 1));
}

#[test]
fn two_hashes_of_one_large_record_are_no_reason_to_look_for_ever() {
    let fs = sample(true);
    let forger = Forger::new(&fs);
    let mut entries = forger.entries();
    let large = Entry::new(entries[0].1.address(), u32::MAX, false);
    entries[0].1 = large;
    entries.push((hash64(b"somebody else"), large));
    forger.checkpoint(&entries);
    in_time(move || {
        let db = open(&fs).unwrap();
        let keyspace = db.keyspace("hash", OPTIONS()).unwrap();
        may_fail(db.settle());
        may_fail(keyspace.compact());
        may_fail(db.close());
    });
}

#[test]
fn many_entries_of_one_hash_are_opened_in_time() {
    let fs = sample(true);
    let forger = Forger::new(&fs);
    let mut entries = forger.entries();
    // Every place of a slot, and each of them three times.
    for _ in 0..3 {
        let places = (HEADER_UNITS as u32..1 << 17).map(|unit| Address::new(0, unit));
        entries.extend(places.map(|place| (77, Entry::new(place, 1, true))));
    }
    forger.checkpoint(&entries);
    in_time(move || {
        let db = open(&fs).unwrap();
        let keyspace = db.keyspace("hash", OPTIONS()).unwrap();
        check_value(1, keyspace.get(key(1)).unwrap());
        assert!(keyspace.stats().entries < 2 << 17);
        may_fail(db.close());
    });
}
