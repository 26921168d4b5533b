//! What fuzzers do with the files of a hash keyspace. Headers are put in front of what is given: they have to be those of
//! their files to the last bit.

use std::path::PathBuf;
use std::sync::Arc;

use super::checkpoint::{self, Checkpoint};
use super::index::{Address, Entry};
use super::manifest::{CheckpointMeta, Contents};
use super::record::{Front, UNIT};
use super::segment::{self, HEADER, HEADER_UNITS, Home, Records, Segment, SegmentMeta};
use crate::base::key::MAX_SEQNO;
use crate::base::varint;
use crate::budget::Budget;
use crate::cache::{BlockCache, OpenFiles};
use crate::sync::Mutex;
use crate::vfs::{Layer, MemoryFs};

const IDENTITY: u64 = 7;
/// The number of the file.
const ID: u64 = 1;
/// So many places are looked at where a record might be.
const PLACES: usize = 50;

fn home(fs: &MemoryFs, layer: Layer) -> Arc<Home> {
    let open_files = OpenFiles::new(Arc::new(Budget::new(8 << 20)), Arc::new(BlockCache::new(0)));
    Arc::new(Home {
        fs: Arc::new(fs.clone()),
        dir: PathBuf::from("/keyspace"),
        layer: Mutex::new(layer),
        identity: IDENTITY,
        open_files: Arc::new(open_files),
    })
}

/// A snapshot and edits of the manifest, each with its length in front.
pub(crate) fn manifest(mut bytes: &[u8]) {
    let mut contents = Contents::default();
    while let Some(edit) = varint::take_prefixed(&mut bytes) {
        if contents.apply(edit).is_none() {
            return;
        }
    }
    if !contents.is_possible() {
        return;
    }
    // What was read can be written.
    let mut again = Contents::default();
    assert!(again.apply(&contents.snapshot()).is_some() && again.is_possible());
    assert_eq!(again, contents);
}

/// The front of a record.
pub(crate) fn record(bytes: &[u8]) {
    let Some(front) = Front::parse(bytes) else { return };
    let lengths = front.lengths;
    assert_eq!(lengths.key_range().end, lengths.value_range().start);
    let len = lengths.units() * UNIT;
    assert!(lengths.value_range().end <= len && len < lengths.value_range().end + UNIT);
    let (units, count) = front.units();
    let written: Vec<u8> = units[..count].iter().flat_map(|unit| unit.to_le_bytes()).collect();
    assert_eq!(Front::parse(&written), Some(front));
}

/// The records of a segment.
pub(crate) fn records(bytes: &[u8]) {
    let units = HEADER_UNITS + bytes.len() / UNIT;
    let len = (units * UNIT) as u64;
    let meta = SegmentMeta { id: ID, base: 0, len, written: units as u64 };
    for layer in [Layer::Positional, Layer::Mmap] {
        let fs = MemoryFs::new();
        let home = home(&fs, layer);
        let file = [&segment::header(&home, ID, len)[..], bytes].concat();
        fs.write_file(&home.path(ID), &file[..len as usize]).expect("memory takes it");
        let segment = Segment::in_file(&meta, MAX_SEQNO, &home, Segment::figures_of(&meta));
        let mut records = Records::new(Arc::clone(&segment));
        let mut last = 0;
        while let Ok(Some((at, record))) = records.next() {
            assert!(at > last && at < units);
            last = at;
            let entry = |units| Entry::new(Address::new(0, at as u32), units, false);
            let units = record.front.lengths.units() as u32;
            assert!(segment.read(entry(units), record.key()).is_ok());
            let _ = segment.read(entry(1), record.key());
        }
        for at in 1..units.min(PLACES) {
            let entry = Entry::new(Address::new(0, at as u32), bytes.len() as u32 + 1, false);
            let _ = segment.read(entry, b"key");
        }
    }
}

/// The chunks of a checkpoint.
pub(crate) fn checkpoint(bytes: &[u8]) {
    let fs = MemoryFs::new();
    let home = home(&fs, Layer::Positional);
    let file = [&checkpoint::header(&home, ID, 0)[..], bytes].concat();
    fs.write_file(&checkpoint::path(&home, ID), &file).expect("memory takes it");
    let meta = CheckpointMeta { id: ID, len: (HEADER + bytes.len()) as u64, covers: 0 };
    let checkpoint = Checkpoint::open(&home, meta).expect("header and length are right");
    let mut entries = 0;
    let loaded = checkpoint.load(|hash, entry| {
        assert!(hash < 1 << 40 && entry.address() != Address::new(0, 0));
        entries += 1;
    });
    assert!(entries <= checkpoint.entries());
    assert!(loaded.is_err() || entries == checkpoint.entries());
}

/// Files as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::super::checkpoint::CheckpointWriter;
    use super::super::manifest::Edit;
    use super::super::memory::MemorySegment;
    use super::*;
    use crate::base::{Kind, Trailer};

    pub(crate) fn manifests() -> Vec<Vec<u8>> {
        let segment = |id, base, len| SegmentMeta { id, base, len, written: len / 2 };
        let checkpoint = Some(CheckpointMeta { id: 4, len: 1000, covers: 2 });
        let first = Edit {
            persisted: 70,
            added: vec![segment(1, 0, 64), segment(2, 1, 3 << 20)],
            ..Edit::default()
        };
        let second =
            Edit { persisted: 90, removed: vec![1], added: vec![segment(5, 0, 4096)], checkpoint };
        let seed = |edits: &[Edit]| {
            let mut out = Vec::new();
            for edit in edits {
                varint::put_prefixed(&mut out, &edit.encode(9));
            }
            out
        };
        vec![seed(&[]), seed(std::slice::from_ref(&first)), seed(&[first, second])]
    }

    /// Segments with their headers.
    fn segments() -> Vec<Vec<u8>> {
        let written = |records: &[(&[u8], &[u8])]| {
            let memory = MemorySegment::new(1 << 10, Arc::new(Budget::new(8 << 20)));
            for (seqno, (key, value)) in (1..).zip(records) {
                let kind = if value.is_empty() { Kind::Delete } else { Kind::Put };
                memory.append(Trailer::new(seqno, kind), key, value);
            }
            if records.len() > 2 {
                memory.mark_dead(HEADER_UNITS);
            }
            let fs = MemoryFs::new();
            let home = home(&fs, Layer::Positional);
            crate::vfs::Fs::create_dir(&fs, &home.dir).unwrap();
            let segment = Segment::in_memory(ID, 0, 1, memory);
            segment.write_to_file(&home).unwrap();
            fs.files().remove(0).1
        };
        vec![
            written(&[]),
            written(&[(b"key", b"value")]),
            written(&[(b"", b"v"), (b"a", b""), (&[b'k'; 300], &[b'v'; 70]), (b"z", &[0; 9])]),
        ]
    }

    pub(crate) fn records() -> Vec<Vec<u8>> {
        segments().into_iter().map(|segment| segment[HEADER..].to_vec()).collect()
    }

    pub(crate) fn checkpoints() -> Vec<Vec<u8>> {
        let written = |entries: u32| {
            let fs = MemoryFs::new();
            let home = home(&fs, Layer::Positional);
            crate::vfs::Fs::create_dir(&fs, &home.dir).unwrap();
            let mut out = CheckpointWriter::create(&home, ID, 0, None).unwrap();
            for number in 1..=entries {
                let entry = Entry::new(Address::new(number, 8 * number), 3, number % 2 == 1);
                out.add(u64::from(number) << 7, entry).unwrap();
            }
            out.finish().unwrap();
            fs.files().remove(0).1[HEADER..].to_vec()
        };
        vec![written(1), written(50)]
    }
}
