//! Tests of values apart, with tables and value files in memory and no database around them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::reference::Reference;
use super::*;
use crate::base::{Kind, Seqno, Slice, Trailer, hash};
use crate::budget::Budget;
use crate::error::{Error, ErrorKind, Result};
use crate::iter::{EntryCursor, Merge, OrderedCursor, Visible};
use crate::lsm::compaction::merge::{Output, write_tables};
use crate::lsm::compaction::policy::Into;
use crate::lsm::compaction::retention::Retention;
use crate::lsm::cursor::{PartCursor, RunCursor};
use crate::lsm::state::State;
use crate::lsm::table::{ReadMode, TableBuilder, TableLimits, TableOptions};
use crate::lsm::version::{Home, Place, Run, TableFile, TableMeta, Version, sample};
use crate::memtable::Memtables;
use crate::options::MemtableKind;
use crate::stats::{ValueStats, VerifyReport};
use crate::vfs::{
    BatchReader, Effect, Errno, Fault, FaultFs, Fs, Layer, MemoryFs, Operation, Times,
};

const AT: Seqno = 1 << 40;
const LEVEL: usize = 3;

/// A key, its sequence number, and the value or a deletion.
type Write = (Vec<u8>, Seqno, Option<Vec<u8>>);

/// A run of one table.
fn run_of(table: &Arc<TableFile>) -> Run {
    Run::new(Place::merged(LEVEL), vec![Arc::clone(table)]).unwrap()
}

/// A tree of one level without a database.
struct Bed {
    memory: MemoryFs,
    faults: FaultFs,
    home: Arc<Home>,
    state: State,
    reader: Arc<BatchReader>,
    next_id: Cell<u64>,
    table_bytes: u64,
    file_bytes: u64,
}

impl Bed {
    fn new() -> Self {
        let memory = MemoryFs::new();
        let faults = FaultFs::new(Arc::new(memory.clone()));
        let home = sample::home_on(Arc::new(faults.clone()));
        let memtables = Memtables::new(MemtableKind::default(), &Arc::new(Budget::new(8 << 20)));
        let state = State::new(memtables, Version::default());
        let (reader, next_id) = (Arc::new(BatchReader::new(2)), Cell::new(1));
        Self { memory, faults, home, state, reader, next_id, table_bytes: 1000, file_bytes: 4000 }
    }

    fn version(&self) -> &Version {
        &self.state.version
    }

    fn stats(&self) -> ValueStats {
        self.version().values.stats()
    }

    fn take_id(&self) -> u64 {
        self.next_id.set(self.next_id.get() + 1);
        self.next_id.get() - 1
    }

    fn write(
        &self,
        cursor: &mut impl EntryCursor,
        sources: &ValueFiles,
        moves: Moves,
        shortest: Option<u32>,
    ) -> Result<Vec<Arc<TableFile>>> {
        self.write_over(false, cursor, sources, moves, shortest)
    }

    /// Writes tables, over older ones or not.
    fn write_over(
        &self,
        older: bool,
        cursor: &mut impl EntryCursor,
        sources: &ValueFiles,
        moves: Moves,
        shortest: Option<u32>,
    ) -> Result<Vec<Arc<TableFile>>> {
        let mut output = Output {
            valve: None,
            home: &self.home,
            options: &TableOptions::default(),
            limits: TableLimits { bytes: self.table_bytes, memory: usize::MAX },
            bounds: &[],
            soft_bounds: &[],
            end: None,
            next_id: &mut || self.take_id(),
            values: Placement::new(&self.home, sources, moves, shortest, self.file_bytes),
            aside: None,
            stopped: &|| false,
        };
        cursor.seek_to_first()?;
        let mut retention = Retention::new(vec![AT]);
        let written = write_tables(cursor, &mut retention, |_| !older, &mut output)?;
        Ok(written.expect("nobody stops it"))
    }

    fn install(&mut self, removed: &[Arc<TableFile>], added: Vec<Arc<TableFile>>) {
        let ids: Vec<u64> = removed.iter().map(|table| table.meta.id).collect();
        let added: Vec<_> = added.into_iter().map(|table| (Place::merged(LEVEL), table)).collect();
        let next = self.version().with(&ids, &added).expect("it fits");
        let gone = self.version().values.gone_from(&next.values);
        self.state.version = Arc::new(next);
        removed.iter().for_each(|table| table.set_obsolete());
        gone.iter().for_each(|file| file.set_obsolete());
    }

    fn tables(&self) -> Vec<Arc<TableFile>> {
        self.version().tables().cloned().collect()
    }

    /// Merges writes, newer than all there is, into the tables.
    fn merge(&mut self, writes: &[Write], moves: Moves, shortest: Option<u32>) -> Result<()> {
        let mut entries: Vec<sample_entry::Entry> = writes.iter().map(sample_entry::of).collect();
        entries.sort_by(|a, b| crate::base::key::compare(a.place(), b.place()));
        let (mut cursor, none) = (sample_entry::cursor(entries), ValueFiles::default());
        let flushed = self.write_over(true, &mut cursor, &none, moves, shortest)?;
        let inputs = self.tables();
        let version = Version::clone(self.version());
        let mut sources = version.values.clone();
        flushed.iter().for_each(|table| sources.add(&table.values).expect("they are new"));
        let run = |tables: &[_]| {
            let run = Run::new(Place::merged(LEVEL), tables.to_vec())?;
            Some(PartCursor::Right(RunCursor::new(run, ReadMode::Sequential)))
        };
        let mut cursor = Merge::new([run(&flushed), run(&inputs)].into_iter().flatten().collect());
        let merged = self.write(&mut cursor, &sources, moves, shortest);
        let merged = merged.map(|merged| self.install(&inputs, merged));
        // What was flushed was never in a version.
        for table in flushed {
            table.set_obsolete();
            let files = table.values.iter().map(|share| &share.file);
            let new = files.filter(|file| self.version().values.file(file.id()).is_none());
            new.for_each(|file| file.set_obsolete());
        }
        merged
    }

    /// Rewrites a table where it is.
    fn rewrite(
        &mut self,
        table: &Arc<TableFile>,
        moves: Moves,
        shortest: Option<u32>,
    ) -> Result<()> {
        let mut cursor = RunCursor::new(run_of(table), ReadMode::Sequential);
        let tables = self.write(&mut cursor, &self.version().values, moves, shortest)?;
        self.install(std::slice::from_ref(table), tables);
        Ok(())
    }

    fn settle(&mut self) -> usize {
        let mut steps = 0;
        while let Some(choice) = due(self.version(), |_| false) {
            assert_eq!((choice.level, choice.into, choice.inputs.len()), (LEVEL, Into::Its(0), 1));
            self.rewrite(&choice.inputs[0], Moves::Crowded, Some(64)).unwrap();
            steps += 1;
            assert!(steps < 1000, "it goes on for ever");
        }
        steps
    }

    fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        self.state.get(key, AT)
    }

    fn cursor(&self) -> ValueCursor<Merge<PartCursor>> {
        let records = Visible::new(self.state.entries(), AT);
        ValueCursor::new(records, Arc::clone(&self.state.version), Arc::clone(&self.reader))
    }

    /// Compares everything with the model, in every way it can be read.
    fn check(&self, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let mut cursor = self.cursor();
        cursor.seek_to_first().unwrap();
        for (key, value) in model {
            assert_eq!(self.get(key).unwrap().as_deref(), Some(&value[..]));
            cursor.fetch().unwrap();
            assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
            cursor.next().unwrap();
        }
        assert!(!cursor.is_valid());
        let keys: Vec<&[u8]> = model.keys().map(|key| &key[..]).collect();
        let found = self.state.multi_get(&keys, AT, &self.reader, 1 << 20).unwrap();
        assert!(found.iter().map(Option::as_deref).eq(model.values().map(|v| Some(&v[..]))));
        assert_eq!(self.problems(), Vec::<String>::new());
        // All files there are belong to the version.
        let version = self.version();
        let mut names: Vec<_> = version.tables().map(|table| table.path()).collect();
        names.extend(version.values.files().map(|file| file.path()));
        names.sort();
        let files: Vec<_> = self.memory.files().into_iter().map(|(path, _)| path).collect();
        assert_eq!(files, names);
    }

    fn problems(&self) -> Vec<String> {
        let mut report = VerifyReport::default();
        for table in self.version().tables() {
            let mut references = References::new(self.version(), table);
            let mut apart = |key: &[u8], bytes: &[u8]| references.check(key, bytes);
            let checked = table.table().and_then(|open| open.verify(&mut apart));
            report.problems.extend(checked.and_then(|()| references.finish()).err());
        }
        verify_files(&self.version().values, &mut report);
        report.problems.iter().map(ToString::to_string).collect()
    }

    /// Closes all files, so that they are opened anew.
    fn let_go(&self) {
        self.version().tables().for_each(|table| table.let_go());
        self.version().values.files().for_each(|file| file.let_go());
    }
}

/// Entries for the cursor that tests of merges use.
mod sample_entry {
    pub(super) use crate::iter::sample::Entry;
    use crate::iter::sample::Sorted;

    use super::{Kind, Trailer, Write};

    pub(super) fn of((key, seqno, value): &Write) -> Entry {
        let kind = if value.is_some() { Kind::Put } else { Kind::Delete };
        let value = value.clone().unwrap_or_default();
        Entry { key: key.clone(), trailer: Trailer::new(*seqno, kind), value }
    }

    pub(super) fn cursor(entries: Vec<Entry>) -> Sorted {
        Sorted::new(entries)
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number:04}").into_bytes()
}

/// A value that tells its number and length.
fn value(number: usize, len: usize) -> Vec<u8> {
    let mut value = vec![number as u8; len];
    let head = number.to_le_bytes();
    let len = len.min(head.len());
    value[..len].copy_from_slice(&head[..len]);
    value
}

/// Writes the keys of `numbers`, with values of `len` bytes, at sequence numbers from `seqno` on.
fn writes(
    numbers: impl Iterator<Item = usize>,
    len: usize,
    seqno: Seqno,
    model: &mut BTreeMap<Vec<u8>, Vec<u8>>,
) -> Vec<Write> {
    let write = |(at, number)| {
        let (key, value) = (key(number), value(number + at as usize, len));
        model.insert(key.clone(), value.clone());
        (key, seqno + at, Some(value))
    };
    (0..).zip(numbers).map(write).collect()
}

#[test]
fn long_values_go_apart_and_come_back() {
    let mut bed = Bed::new();
    let mut model = BTreeMap::new();
    let short = writes(0..50, 99, 1, &mut model);
    let long = writes(50..100, 100, 100, &mut model);
    bed.merge(&[short, long].concat(), Moves::Crowded, Some(100)).unwrap();
    let stats = bed.stats();
    assert_eq!((stats.bytes - 64 * stats.files, stats.garbage), (50 * 116, 0));
    assert!(stats.files >= 2, "files are ended: {stats:?}");
    bed.check(&model);
    // Nothing is due, and nothing moves.
    let before: Vec<u64> = bed.version().values.files().map(|file| file.id()).collect();
    assert!(due(bed.version(), |_| false).is_none());
    bed.merge(&[], Moves::Crowded, Some(100)).unwrap();
    let after: Vec<u64> = bed.version().values.files().map(|file| file.id()).collect();
    assert_eq!(before, after);
    bed.check(&model);
    // Longer ones only; none; all again.
    for (shortest, bytes) in [(Some(101), 0), (None, 0), (Some(99), 50 * 115 + 50 * 116)] {
        bed.merge(&[], Moves::Crowded, shortest).unwrap();
        let stats = bed.stats();
        assert_eq!((stats.bytes - 64 * stats.files, stats.garbage), (bytes, 0));
        bed.check(&model);
    }
}

#[test]
fn what_is_overwritten_is_garbage_and_goes_when_it_is_most() {
    let mut bed = Bed::new();
    let mut model = BTreeMap::new();
    bed.file_bytes = u64::MAX;
    bed.merge(&writes(0..100, 100, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    let first = bed.version().values.files().next().unwrap().id();
    // Half of it is still worth keeping.
    bed.merge(&writes(0..50, 100, 1000, &mut model), Moves::Crowded, Some(64)).unwrap();
    assert_eq!(bed.stats().garbage, 50 * 116);
    assert!(due(bed.version(), |_| false).is_none());
    bed.merge(&writes(50..51, 100, 2000, &mut model), Moves::Crowded, Some(64)).unwrap();
    assert_eq!(bed.stats().garbage, 51 * 116);
    bed.check(&model);
    // The next compaction that meets the others moves them.
    bed.merge(&[], Moves::Crowded, Some(64)).unwrap();
    assert_eq!(bed.stats().garbage, 0);
    assert!(bed.version().values.file(first).is_none());
    bed.check(&model);
    // All of it, whatever there is.
    bed.merge(&writes(0..10, 100, 3000, &mut model), Moves::Crowded, Some(64)).unwrap();
    assert_eq!(bed.stats().garbage, 10 * 116);
    bed.merge(&[], Moves::All, Some(64)).unwrap();
    assert_eq!(bed.stats(), ValueStats { files: 1, bytes: 64 + 100 * 116, garbage: 0 });
    bed.check(&model);
}

#[test]
fn files_whose_keys_no_compaction_meets_are_collected() {
    let mut bed = Bed::new();
    let mut model = BTreeMap::new();
    bed.file_bytes = 20_000;
    bed.merge(&writes(0..1000, 100, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    let tables = bed.version().tables().count();
    assert!(tables > 10, "{tables}");
    for round in 1..20 {
        // Other keys each time, spread over all tables.
        let numbers = (0..1000).filter(|number| (number * 7 + round * 13) % 10 < 3);
        let seqno = 10_000 * round as u64;
        bed.merge(&writes(numbers, 100, seqno, &mut model), Moves::Crowded, Some(64)).unwrap();
        bed.settle();
        let ValueStats { bytes, garbage, .. } = bed.stats();
        assert!(garbage <= bytes / 2, "{:?}", bed.stats());
    }
    bed.check(&model);
}

#[test]
fn one_table_is_rewritten_for_garbage_alone() {
    let mut bed = Bed::new();
    let mut model = BTreeMap::new();
    bed.file_bytes = u64::MAX;
    bed.merge(&writes(0..1000, 100, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    // Take most tables away, as another kind of compaction might.
    let tables = bed.tables();
    let (kept, gone) = tables.split_at(2);
    bed.install(gone, Vec::new());
    let first = &gone[0].meta.smallest;
    model.retain(|key, _| key < first);
    let live: u64 = kept.iter().map(|table| table.values[0].bytes).sum();
    assert_eq!(live, 116 * model.len() as u64);
    drop(tables);
    assert_eq!(bed.settle(), 2, "each of the tables that refer to the file");
    assert_eq!(bed.stats().garbage, 0);
    bed.check(&model);
}

#[test]
fn a_move_to_another_level_keeps_the_values() {
    let mut bed = Bed::new();
    let mut model = BTreeMap::new();
    bed.merge(&writes(0..10, 100, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    let table = bed.tables().remove(0);
    let next = bed
        .version()
        .with(&[table.meta.id], &[(Place::merged(LEVEL + 1), Arc::clone(&table))])
        .unwrap();
    assert!(bed.version().values.gone_from(&next.values).is_empty());
    assert_eq!(next.values.stats(), bed.stats());
    bed.state.version = Arc::new(next);
    bed.check(&model);
}

#[test]
fn what_fails_leaves_no_file_and_takes_none() {
    let mut bed = Bed::new();
    let mut model = BTreeMap::new();
    bed.merge(&writes(0..100, 100, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    for operation in [Operation::Create, Operation::Write, Operation::Sync, Operation::Read] {
        for after in 0..4 {
            let fault = Fault::new(operation, Effect::Fail(Errno::Raw(28)));
            let name_contains = ".values".into();
            bed.let_go();
            bed.faults.arm(Fault { after, name_contains, ..fault });
            let before = bed.faults.fired();
            let failed = bed.rewrite(&bed.tables()[0].clone(), Moves::All, Some(64));
            let fired = bed.faults.fired() > before;
            bed.faults.disarm();
            assert_eq!(failed.is_err(), fired, "{operation:?} {after}: {failed:?}");
            bed.check(&model);
        }
    }
}

#[test]
fn keys_alone_read_no_values() {
    let mut bed = Bed::new();
    let mut model = BTreeMap::new();
    bed.merge(&writes(0..100, 100, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    bed.let_go();
    let fault = Fault::new(Operation::Read, Effect::Fail(Errno::Raw(5)));
    let fault = Fault { name_contains: ".values".into(), times: Times::Always, ..fault };
    bed.faults.arm(fault.clone());
    let mut cursor = bed.cursor();
    cursor.seek_to_first().unwrap();
    for key in model.keys() {
        assert_eq!(cursor.key(), key);
        cursor.next().unwrap();
    }
    assert!(!cursor.is_valid());
    drop(cursor);
    // Nor does a compaction that moves references only.
    bed.merge(&[], Moves::Crowded, Some(64)).unwrap();
    assert_eq!(bed.get(&key(5)).unwrap_err().kind(), ErrorKind::Io);
    assert!(bed.merge(&[], Moves::All, Some(64)).is_err());
    bed.faults.disarm();
    bed.check(&model);
}

#[test]
fn a_scan_runs_ahead_and_tells_of_damage_when_it_is_reached() {
    let mut bed = Bed::new();
    let mut model = BTreeMap::new();
    bed.file_bytes = u64::MAX;
    bed.merge(&writes(0..100, 100, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    let path = bed.version().values.files().next().unwrap().path();
    let damaged = 40;
    bed.memory.corrupt(&path, 64 + 116 * damaged + 50, 1).unwrap();
    bed.let_go();
    let mut cursor = bed.cursor();
    cursor.seek_to_first().unwrap();
    let mut most = 0;
    for number in 0..damaged as usize {
        cursor.fetch().unwrap();
        assert_eq!(cursor.key(), key(number));
        most = most.max(cursor.ahead());
        cursor.next().unwrap();
    }
    assert!(most >= 16, "{most}");
    assert_eq!(cursor.fetch().unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(cursor.key(), key(damaged as usize));
    assert_eq!(cursor.value(), b"");
    // Backwards from behind it, too.
    cursor.seek(&key(damaged as usize + 1)).unwrap();
    cursor.fetch().unwrap();
    cursor.prev().unwrap();
    assert_eq!(cursor.fetch().unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(bed.problems().len(), 2, "the file's own, and the reference that leads there");
    let found = bed.state.multi_get(&[&key(1), &key(damaged as usize)], AT, &bed.reader, 1 << 20);
    assert_eq!(found.unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn every_flip_in_a_value_file_is_found() {
    let mut bed = Bed::new();
    let mut model = BTreeMap::new();
    bed.file_bytes = u64::MAX;
    bed.merge(&writes(0..6, 70, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    bed.merge(&writes(2..4, 70, 10, &mut model), Moves::Crowded, Some(64)).unwrap();
    assert_eq!(bed.stats().garbage, 2 * 86);
    let file = Arc::clone(bed.version().values.files().next().unwrap());
    for at in 0..file.len() {
        bed.memory.corrupt(&file.path(), at, 0x40).unwrap();
        bed.let_go();
        assert!(!bed.problems().is_empty(), "byte {at}");
        let number = at.checked_sub(64).map(|at| at / 86);
        let is_garbage = number.is_some_and(|number| (2..4).contains(&number));
        for (key, value) in &model {
            match bed.get(key) {
                Ok(found) => assert_eq!(found.as_deref(), Some(&value[..])),
                Err(error) => assert!(error.kind() == ErrorKind::Corruption && !is_garbage),
            }
        }
        bed.memory.corrupt(&file.path(), at, 0x40).unwrap();
    }
    bed.let_go();
    bed.check(&model);
    // A file that was cut off, or is another one.
    let (path, other) = (file.path(), bed.version().values.files().nth(1).unwrap().path());
    let bytes = |path: &Path| {
        bed.memory.files().into_iter().find(|(name, _)| name == path).expect("it is there").1
    };
    let whole = bytes(&path);
    let longer = [&whole[..], &[0]].concat();
    for bad in [&whole[..whole.len() - 1], &whole[..60], &[], &longer, &bytes(&other)] {
        bed.memory.write_file(&path, bad).unwrap();
        bed.let_go();
        assert_eq!(bed.get(&key(0)).unwrap_err().kind(), ErrorKind::Corruption);
        assert!(!bed.problems().is_empty());
    }
}

/// A version of one table with these entries as they are, beside what there is.
fn with_entries(bed: &Bed, entries: &[(Vec<u8>, Trailer, Vec<u8>)], values: Vec<Share>) -> State {
    let id = bed.take_id();
    let file = bed.home.create(id).unwrap();
    let identity = bed.home.identity_of(id);
    let mut builder = TableBuilder::new(file, identity, &TableOptions::default()).unwrap();
    for (key, trailer, value) in entries {
        builder.add(key, *trailer, value).unwrap();
    }
    let meta = TableMeta::new(id, builder.finish().unwrap());
    let table = TableFile::with_values(meta, values, Arc::clone(&bed.home));
    let version = Version::default().with(&[], &[(Place::merged(LEVEL), table)]).unwrap();
    State::new(bed.state.memtables.clone(), version)
}

#[test]
fn hostile_references_are_damage() {
    let mut bed = Bed::new();
    bed.file_bytes = u64::MAX;
    let mut model = BTreeMap::new();
    bed.merge(&writes(0..10, 100, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    let file = Arc::clone(bed.version().values.files().next().unwrap());
    let good = Reference { file: file.id(), offset: 64 + 116, len: 100 };
    let cases = [
        Reference { file: 99, ..good },
        Reference { offset: good.offset + 1, ..good },
        Reference { offset: good.offset + 116, ..good },
        Reference { offset: 64, ..good },
        Reference { offset: file.len(), ..good },
        Reference { offset: u64::MAX, ..good },
        Reference { offset: u64::MAX - 100, ..good },
        Reference { offset: file.len() - 115, ..good },
        Reference { len: 99, ..good },
        Reference { len: 101, ..good },
        Reference { len: 0, ..good },
        Reference { len: u32::MAX, ..good },
    ];
    let mut encoded: Vec<Vec<u8>> = cases
        .iter()
        .map(|case| {
            let mut bytes = Vec::new();
            case.encode_into(&mut bytes);
            bytes
        })
        .collect();
    encoded.extend([vec![], vec![0xff; 20], vec![1], vec![1, 2, 3], vec![1, 0x80, 1, 3, 0]]);
    let trailer = Trailer::new(7, Kind::Put).apart();
    for reference in encoded {
        let share = Share { file: Arc::clone(&file), bytes: 116 };
        let state = with_entries(&bed, &[(key(1), trailer, reference.clone())], vec![share]);
        let failed = |error: Option<Error>| {
            assert_eq!(
                error.map(|error| error.kind()),
                Some(ErrorKind::Corruption),
                "{reference:?}"
            );
        };
        failed(state.get(&key(1), AT).err());
        failed(state.multi_get(&[&key(1)], AT, &bed.reader, 1 << 20).err());
        let version = Arc::clone(&state.version);
        let records = Visible::new(state.entries(), AT);
        let mut cursor = ValueCursor::new(records, Arc::clone(&version), Arc::clone(&bed.reader));
        cursor.seek_to_first().unwrap();
        failed(cursor.fetch().err());
        cursor.seek_to_last().unwrap();
        failed(cursor.fetch().err());
        let table = version.tables().next().unwrap();
        let mut references = References::new(&version, table);
        references.check(&key(1), &reference);
        failed(references.finish().err());
        // A compaction stops as well, if it has to know.
        let mut cursor = RunCursor::new(run_of(table), ReadMode::Sequential);
        failed(bed.write(&mut cursor, &version.values, Moves::All, Some(64)).err());
        failed(bed.write(&mut cursor, &version.values, Moves::All, None).err());
    }
}

#[test]
fn the_manifest_must_tell_what_a_table_refers_to() {
    let mut bed = Bed::new();
    bed.file_bytes = u64::MAX;
    let mut model = BTreeMap::new();
    bed.merge(&writes(0..10, 100, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    let file = Arc::clone(bed.version().values.files().next().unwrap());
    let mut reference = Vec::new();
    Reference { file: file.id(), offset: 64 + 116, len: 100 }.encode_into(&mut reference);
    let entry = (key(1), Trailer::new(7, Kind::Put).apart(), reference);
    for (bytes, right) in [(116, true), (115, false), (117, false)] {
        let share = Share { file: Arc::clone(&file), bytes };
        let state = with_entries(&bed, std::slice::from_ref(&entry), vec![share]);
        assert_eq!(state.get(&key(1), AT).unwrap().as_deref(), Some(&model[&key(1)][..]));
        let mut references =
            References::new(&state.version, state.version.tables().next().unwrap());
        references.check(&entry.0, &entry.2);
        assert_eq!(references.finish().is_ok(), right);
    }
    let state = with_entries(&bed, &[entry], Vec::new());
    assert_eq!(state.get(&key(1), AT).unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn mapped_files_lend_values_that_outlive_them() {
    let mut bed = Bed::new();
    let dir = tempfile::tempdir().unwrap();
    let fs: Arc<dyn Fs> = Arc::new(crate::vfs::DiskFs::new());
    let home = Home {
        fs,
        dir: dir.path().to_path_buf(),
        layer: crate::sync::Mutex::new(Layer::Mmap),
        key_file: crate::sync::Mutex::default(),
        identity: bed.home.identity,
        blocks: Arc::clone(&bed.home.blocks),
        open_files: Arc::clone(&bed.home.open_files),
    };
    bed.home = Arc::new(home);
    let mut model = BTreeMap::new();
    bed.merge(&writes(0..100, 5000, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    let held: Vec<Slice> = model.keys().map(|key| bed.get(key).unwrap().unwrap()).collect();
    let place = |slice: &Slice| slice.as_ptr() as usize;
    let again = bed.get(&key(3)).unwrap().unwrap();
    assert_eq!(place(&held[3]), place(&again), "it is lent, not copied");
    let old = bed.version().values.files().map(|file| file.path()).collect::<Vec<_>>();
    bed.merge(&[], Moves::All, Some(64)).unwrap();
    for path in old {
        assert!(!path.exists(), "{path:?}");
    }
    assert!(held.iter().map(|slice| &slice[..]).eq(model.values().map(|value| &value[..])));
}

/// A step of a cursor.
#[derive(Clone, Debug)]
enum Step {
    First,
    Last,
    Seek(usize),
    SeekBefore(usize),
    Next,
    Prev,
    Fetch,
    /// So many records, forward, with their values.
    Scan(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        Just(Step::First),
        Just(Step::Last),
        (0..90_usize).prop_map(Step::Seek),
        (0..90_usize).prop_map(Step::SeekBefore),
        Just(Step::Next),
        Just(Step::Next),
        Just(Step::Prev),
        Just(Step::Fetch),
        (1..30_usize).prop_map(Step::Scan),
    ];
    proptest::collection::vec(step, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_cursor_goes_where_the_model_does(
        rounds in proptest::collection::vec(
            (proptest::collection::btree_map(0..80_usize, proptest::option::of(0..200_usize), 0..60), 0..4_u8),
            1..5,
        ),
        steps in steps(),
    ) {
        let mut bed = Bed::new();
        let mut model = BTreeMap::new();
        let mut seqno = 0;
        for (changes, kind) in rounds {
            let mut writes = Vec::new();
            for (number, len) in changes {
                seqno += 1;
                let value = len.map(|len| value(number + seqno as usize, len));
                match &value {
                    Some(value) => model.insert(key(number), value.clone()),
                    None => model.remove(&key(number)),
                };
                writes.push((key(number), seqno, value));
            }
            let shortest = [Some(64), Some(150), None, Some(100)][kind as usize];
            let moves = if kind == 3 { Moves::All } else { Moves::Crowded };
            bed.merge(&writes, moves, shortest).unwrap();
        }
        bed.check(&model);
        let list: Vec<(&Vec<u8>, &Vec<u8>)> = model.iter().collect();
        let mut cursor = bed.cursor();
        let mut at: Option<usize> = None;
        for step in steps {
            let inside = at.is_some_and(|at| at < list.len());
            let before = |number: usize| list.partition_point(|(other, _)| **other < key(number));
            match step {
                Step::First => { cursor.seek_to_first().unwrap(); at = Some(0); }
                Step::Last => { cursor.seek_to_last().unwrap(); at = list.len().checked_sub(1); }
                Step::Seek(number) => { cursor.seek(&key(number)).unwrap(); at = Some(before(number)); }
                Step::SeekBefore(number) => {
                    cursor.seek_before(&key(number)).unwrap();
                    at = before(number).checked_sub(1);
                }
                Step::Next if inside => { cursor.next().unwrap(); at = at.map(|at| at + 1); }
                Step::Prev if inside => { cursor.prev().unwrap(); at = at.and_then(|at| at.checked_sub(1)); }
                Step::Next | Step::Prev => {}
                Step::Fetch => {
                    cursor.fetch().unwrap();
                    if let Some((_, value)) = at.and_then(|at| list.get(at)) {
                        prop_assert_eq!(cursor.value(), &value[..]);
                        prop_assert_eq!(&*cursor.value_slice(), &value[..]);
                    }
                }
                Step::Scan(records) => for _ in 0..records {
                    let Some((_, value)) = at.and_then(|at| list.get(at)) else { break };
                    cursor.fetch().unwrap();
                    prop_assert_eq!(cursor.value(), &value[..]);
                    cursor.next().unwrap();
                    at = at.map(|at| at + 1);
                },
            }
            let shown = at.and_then(|at| list.get(at));
            prop_assert_eq!(cursor.is_valid(), shown.is_some());
            if let Some((key, _)) = shown {
                prop_assert_eq!(cursor.key(), &key[..]);
            }
        }
    }
}

#[test]
fn a_value_belongs_to_one_key() {
    let mut bed = Bed::new();
    let mut model = BTreeMap::new();
    bed.merge(&writes(0..3, 100, 1, &mut model), Moves::Crowded, Some(64)).unwrap();
    let file = Arc::clone(bed.version().values.files().next().unwrap());
    let mut bytes = Vec::new();
    Reference { file: file.id(), offset: 64, len: 100 }.encode_into(&mut bytes);
    let place = bed.version().values.locate(&bytes).unwrap();
    assert_eq!(&*place.read(hash::hash64(&key(0))).unwrap(), &model[&key(0)][..]);
    let error = place.read(hash::hash64(&key(1))).unwrap_err();
    assert!(error.to_string().contains("another key"), "{error}");
}

#[test]
fn a_table_refers_to_no_more_of_a_file_than_there_is() {
    let bed = Bed::new();
    let reference = Reference { file: 7, offset: record::HEADER as u64, len: 1000 };
    let len = reference.end().unwrap();
    let file = ValueFile::new(7, len, Arc::clone(&bed.home));
    let mut sources = ValueFiles::default();
    sources.add(&[Share { file, bytes: reference.record_len() }]).unwrap();
    let mut placement = Placement::new(&bed.home, &sources, Moves::Crowded, Some(64), 1 << 20);
    let mut stored = Vec::new();
    reference.encode_into(&mut stored);
    let trailer = Trailer::new(1, Kind::Put).apart();
    let mut place = |key: &[u8]| {
        let placed = placement.place(key, trailer, &stored, &mut || bed.take_id());
        placed.map(drop).map_err(|error| error.kind())
    };
    // The second key has the same record.
    assert_eq!(place(b"a"), Ok(()));
    assert_eq!(place(b"b"), Err(ErrorKind::Corruption));
}
