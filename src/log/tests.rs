//! The log written and recovered: segments, torn tails, damage, recycled files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::record::{self, RecordKind};
use super::segment::{self, SEGMENT_HEADER};
use super::{AppendError, Log, Segments, Writer};
use crate::base::{Seqno, varint};
use crate::error::{Error, ErrorKind, Result};
use crate::options::RecoveryMode;
use crate::vfs::{
    Access, Dir, Effect, Errno, Fault, FaultFs, File, Fs, IoStats, Layer, LayeredFs, LockGuard,
    MemoryFs, Operation, PathKind,
};

const DIR: &str = "/log";
const DATABASE: u64 = 7;
/// Two records of this size fill the first segment.
const LARGE: usize = 50_000;

struct Setup {
    layer: Layer,
    fs: MemoryFs,
    segments: Arc<Segments>,
    writer: Writer,
}

fn segments(fs: &MemoryFs, layer: Layer, next: u64) -> Arc<Segments> {
    let fs = Arc::new(LayeredFs::new(Arc::new(fs.clone())));
    Arc::new(Segments::new(fs, DIR.into(), DATABASE, layer, 0, next))
}

/// Runs a test over a new log on every layer, with blocks smaller and larger than its records.
fn everywhere(test: impl Fn(Setup)) {
    for layer in Layer::ALL {
        let layer = layer.with_page_cache_pages(8).unwrap_or(layer);
        for size in [512, 4096, 32768] {
            let layer = layer.with_block_size(size).unwrap_or(layer);
            eprintln!("{layer:?}");
            test(Setup::new(layer));
        }
    }
}

fn path(number: u64) -> PathBuf {
    segment::path(DIR.as_ref(), number)
}

fn recover(fs: &MemoryFs, floor: u64, mode: RecoveryMode) -> Result<Log> {
    Log::open(fs, DIR.as_ref(), DATABASE, floor, mode, |_| true)
}

/// What the log holds: the numbers and bodies of its writes.
fn writes(fs: &dyn Fs, log: &Log) -> Vec<(Seqno, Vec<u8>)> {
    let mut writes = Vec::new();
    log.replay(fs, |record| {
        writes.push((record.first, record.body.to_vec()));
        Ok(())
    })
    .unwrap();
    writes
}

fn body(seqno: Seqno, len: usize) -> Vec<u8> {
    vec![seqno as u8 | 1; len]
}

fn expected(numbers: impl IntoIterator<Item = Seqno>, len: usize) -> Vec<(Seqno, Vec<u8>)> {
    numbers.into_iter().map(|seqno| (seqno, body(seqno, len))).collect()
}

impl Setup {
    fn new(layer: Layer) -> Self {
        let fs = MemoryFs::new();
        fs.create_dir(DIR.as_ref()).unwrap();
        let segments = segments(&fs, layer, 1);
        let writer = Writer::start(Arc::clone(&segments)).unwrap().with_tail();
        Self { layer, fs, segments, writer }
    }

    /// Writes large records, each in a segment of its own, until the files of segments are used again. The last one's number.
    fn fill_recycled(&mut self) -> Seqno {
        let mut last = 0;
        // That is once they have all grown to the same size.
        while self.writer.segment().number < 12 {
            last += 1;
            self.append([last], LARGE);
            self.sync();
            self.segments.release(self.writer.first_in_use());
        }
        last
    }

    fn append(&mut self, numbers: impl IntoIterator<Item = Seqno>, len: usize) {
        for seqno in numbers {
            self.writer.append(seqno, 1, &[&body(seqno, len)]).unwrap();
        }
    }

    fn sync(&mut self) {
        let point = self.writer.sync_point().unwrap();
        point.run().unwrap();
        self.writer.synced(&point).unwrap();
    }

    /// Goes on where `log` ends, as an opening does.
    fn resume(self, log: &Log) -> Self {
        let Self { layer, fs, .. } = self;
        log.sync(&fs, DIR.as_ref()).unwrap();
        let found = log.found();
        let segments = segments(&fs, layer, found.largest_number + 1);
        let (end, before) = found.chain.split_last().unwrap();
        let segment = segments.reopen(end.number, end.capacity).unwrap();
        let mut writer =
            Writer::resume(Arc::clone(&segments), segment, end.end, found.last).unwrap();
        let unpromised = before.iter().filter(|read| !read.is_promised).copied();
        writer.leave_word(&unpromised.collect::<Vec<_>>(), found.synced).unwrap();
        Self { layer, fs, segments, writer: writer.with_tail() }
    }

    /// Goes on behind what `log` found, in a new segment, with the number after `last`.
    fn go_on(self, log: &Log, last: Seqno) -> Self {
        let Self { layer, fs, .. } = self;
        log.sync(&fs, DIR.as_ref()).unwrap();
        let found = log.found();
        let segments = segments(&fs, layer, found.largest_number + 1);
        let end = *found.end();
        let segment = segments.reopen(end.number, end.capacity).unwrap();
        let before = found.last;
        let behind = Arc::clone(&segments);
        let writer = Writer::start_after(behind, segment.clone(), end.end, before, last).unwrap();
        segments.close(&segment, before);
        Self { layer, fs, segments, writer: writer.with_tail() }
    }
}

#[test]
fn records_in_several_segments_come_back_in_order() {
    everywhere(|mut log| {
        log.append(1..=40, LARGE);
        log.append([50, 70], LARGE);
        log.writer.flush().unwrap();
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        assert_eq!(writes(&log.fs, &found), expected((1..=40).chain([50, 70]), LARGE));
        assert_eq!((found.found().last, found.found().dropped_bytes), (70, 0));
        assert!(found.found().chain.len() > 3);
    });
}

#[test]
fn a_torn_tail_is_cut_off_and_stays_so() {
    everywhere(|mut log| {
        log.append(1..=3, 100);
        log.sync();
        log.append(4..=6, 100);
        log.writer.write_out().unwrap();
        let used = recover(&log.fs, 1, RecoveryMode::Strict).unwrap().found().end().end;
        log.fs.corrupt(&path(1), used - 1, 1).unwrap();
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        assert_eq!(writes(&log.fs, &found), expected(1..=5, 100));
        assert!(found.found().dropped_bytes > 0);

        let mut log = log.go_on(&found, 5);
        log.append(6..=7, 200);
        log.sync();
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        let all: Vec<_> = expected(1..=5, 100).into_iter().chain(expected(6..=7, 200)).collect();
        assert_eq!((writes(&log.fs, &found), found.found().dropped_bytes), (all, 0));
    });
}

#[test]
fn a_cut_segment_is_in_use_until_its_promise_is_written() {
    everywhere(|mut log| {
        log.append(1..=3, 100);
        log.writer.flush().unwrap();
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        let mut log = log.go_on(&found, 3);
        assert_eq!((log.writer.segment().number, log.writer.first_in_use()), (2, 1));
        log.sync();
        assert_eq!(log.writer.first_in_use(), 1, "nothing is to be promised yet");
        log.append([4], 100);
        let point = log.writer.sync_point().unwrap();
        point.run().unwrap();
        assert_eq!(log.writer.first_in_use(), 1, "the promise is still to be written");
        log.writer.synced(&point).unwrap();
        assert_eq!(log.writer.first_in_use(), 2);
        log.fs.remove(&path(2)).unwrap();
        let error = recover(&log.fs, 1, RecoveryMode::Strict).err().expect("the promise is broken");
        assert_eq!(error.kind(), ErrorKind::Corruption);
    });
}

#[test]
fn segments_are_in_use_until_a_sync_covers_their_successors() {
    everywhere(|mut log| {
        log.append(1..=20, LARGE);
        assert_eq!(log.writer.first_in_use(), 1);
        let point = log.writer.sync_point().unwrap();
        let covered = log.writer.segment().number;
        log.append(21..=40, LARGE);
        assert!(log.writer.segment().number > covered);
        point.run().unwrap();
        log.writer.synced(&point).unwrap();
        assert_eq!(log.writer.first_in_use(), covered);
        log.sync();
        assert_eq!(log.writer.first_in_use(), log.writer.segment().number);
    });
}

#[test]
fn damage_below_what_was_synced_is_an_error() {
    everywhere(|mut log| {
        log.append(1..=20, LARGE);
        log.sync();
        log.append([21], LARGE);
        log.writer.flush().unwrap();
        for (number, at) in [(1, SEGMENT_HEADER), (1, 60_000), (2, SEGMENT_HEADER), (2, 60_000)] {
            let fs = log.fs.fork();
            fs.corrupt(&path(number), at, 1).unwrap();
            let error = recover(&fs, 1, RecoveryMode::Strict).err().expect("it is damaged");
            assert_eq!(error.kind(), ErrorKind::Corruption);
            if (number, at) != (1, SEGMENT_HEADER) {
                let found = recover(&fs, 1, RecoveryMode::Tolerant).unwrap();
                let left = found.found().last;
                assert!(left < 20 && found.found().dropped_bytes > 0);
                assert_eq!(writes(&fs, &found), expected(1..=left, LARGE));
            }
        }
    });
}

/// A kill leaves records that say of nothing that it is safe; the opening makes them so.
#[test]
fn damage_to_what_recovery_has_synced_is_an_error() {
    everywhere(|mut log| {
        log.append(1..=3, 100);
        log.writer.flush().unwrap();
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        let end = found.found().end().end;
        let log = log.resume(&found);
        log.writer.finish().unwrap();
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        assert_eq!((found.found().last, found.found().synced), (3, 3));
        // The second of three.
        log.fs.corrupt(&path(1), end - 180, 1).unwrap();
        let error = recover(&log.fs, 1, RecoveryMode::Strict).err().expect("it is damaged");
        assert_eq!(error.kind(), ErrorKind::Corruption);
    });
}

#[test]
fn recovery_promises_what_follows_a_segment() {
    everywhere(|mut log| {
        log.append(1..=20, LARGE);
        log.writer.flush().unwrap();
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        let log = log.resume(&found);
        let last = log.writer.segment().number;
        assert_eq!(log.writer.first_in_use(), last);
        log.writer.finish().unwrap();
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        let (end, before) = found.found().chain.split_last().unwrap();
        assert!(before.len() > 1 && before.iter().all(|read| read.is_promised));
        assert!(!end.is_promised);
        for number in 2..=last {
            let fs = log.fs.fork();
            fs.remove(&path(number)).unwrap();
            let error = recover(&fs, 1, RecoveryMode::Strict).err().expect("it is missing");
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
    });
}

#[test]
fn a_segment_that_nothing_follows_yet_gets_its_promise_after_recovery_too() {
    everywhere(|mut log| {
        log.append(1..=3, 100);
        log.writer.flush().unwrap();
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        let log = log.go_on(&found, 3);
        // The process is killed when the second segment has its link.
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        let mut log = log.resume(&found);
        assert_eq!((log.writer.segment().number, log.writer.first_in_use()), (2, 1));
        log.append([4], 100);
        log.sync();
        assert_eq!(log.writer.first_in_use(), 2);
        log.fs.remove(&path(2)).unwrap();
        let error = recover(&log.fs, 1, RecoveryMode::Strict).err().expect("the promise is broken");
        assert_eq!(error.kind(), ErrorKind::Corruption);
    });
}

/// There is no number behind it, and it names itself as the one in front of it.
#[test]
fn the_segment_with_the_largest_number_there_is_ends_the_log() {
    let (number, capacity) = (u64::MAX, 4096);
    let fs = MemoryFs::new();
    let mut bytes = segment::front(DATABASE, number, capacity)[..SEGMENT_HEADER as usize].to_vec();
    let start = record::begin(&mut bytes);
    bytes.extend([0, 0, 0]);
    varint::put(&mut bytes, number);
    let end = bytes.len() as u64 + 1;
    varint::put(&mut bytes, end);
    let identity = segment::identity(DATABASE, number);
    record::seal(&mut bytes, start, RecordKind::Link, 1, identity, SEGMENT_HEADER);
    assert_eq!(bytes.len() as u64, end);
    bytes.resize(capacity as usize, 0);
    fs.write_file(&path(number), &bytes).unwrap();
    for mode in [RecoveryMode::Strict, RecoveryMode::Tolerant] {
        let found = recover(&fs, number, mode).unwrap();
        assert_eq!((found.found().chain.len(), found.found().end().end), (1, end));
    }
}

#[test]
fn numbers_left_out_behind_a_cut_are_told_by_the_link() {
    everywhere(|mut log| {
        log.append(1..=3, 100);
        log.sync();
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        let mut log = log.go_on(&found, 9);
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        assert_eq!((writes(&log.fs, &found), found.found().last), (expected(1..=3, 100), 9));
        log.append([10, 12], 100);
        log.sync();
        let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
        assert_eq!(writes(&log.fs, &found), expected((1..=3).chain([10, 12]), 100));
        // Also when it becomes the first one needed.
        let found = recover(&log.fs, 2, RecoveryMode::Strict).unwrap();
        assert_eq!((writes(&log.fs, &found), found.found().last), (expected([10, 12], 100), 12));
    });
}

#[test]
fn old_records_of_a_recycled_segment_are_never_taken() {
    everywhere(|mut log| {
        let last = log.fill_recycled();
        let names = log.fs.list(DIR.as_ref()).unwrap();
        assert!(names.len() < 8, "files are recycled: {names:?}");
        let floor = log.writer.segment().number;
        let bytes = log.fs.files().into_iter().find(|(file, _)| *file == path(floor)).unwrap().1;
        let end = bytes.len() - 100_000;
        assert!(bytes[end..].iter().any(|&byte| byte != 0), "an earlier life shows behind the end");
        let found = recover(&log.fs, floor, RecoveryMode::Strict).unwrap();
        assert_eq!((found.found().last, found.found().dropped_bytes), (last, 0));
        assert_eq!(writes(&log.fs, &found), expected([last], LARGE));
    });
}

#[test]
fn nothing_that_was_prepared_stays_when_the_log_is_left() {
    everywhere(|mut log| {
        let last = log.fill_recycled();
        while log.segments.prepare_spare().unwrap() {}
        let floor = log.writer.segment().number;
        log.writer.finish().unwrap();
        let left = || log.fs.list(DIR.as_ref()).unwrap();
        assert!(left().len() > 1, "a segment has been prepared");
        log.segments.remove_prepared();
        assert_eq!(left(), [format!("{floor:06}.log")]);
        let found = recover(&log.fs, floor, RecoveryMode::Strict).unwrap();
        assert_eq!((found.found().last, found.found().largest_number), (last, floor));
    });
}

#[test]
fn a_log_of_one_segment_is_read_once() {
    let mut log = Setup::new(Layer::Positional);
    log.append(1..=9, 1000);
    log.sync();
    let faults = FaultFs::new(Arc::new(log.fs.fork()));
    let found =
        Log::open(&faults, DIR.as_ref(), DATABASE, 1, RecoveryMode::Strict, |_| true).unwrap();
    found.sync(&faults, DIR.as_ref()).unwrap();
    assert_eq!(writes(&faults, &found), expected(1..=9, 1000));
    // Its front, and all of it; and once more its front, and what is at its end.
    assert_eq!(faults.calls(Operation::Read), 4);
}

/// What is read once more, to be written again, may be read wrongly the second time; and what is read wrongly the first time is not taken for the end of
/// the log, behind which other writes would come.
#[test]
fn what_is_read_wrongly_is_not_written_over_what_is_right() {
    let mut log = Setup::new(Layer::Positional);
    for last in [4, 8, 12] {
        log.append(last - 3..=last, LARGE);
        log.sync();
    }
    log.append(13..=20, LARGE);
    log.writer.flush().unwrap();
    let files = log.fs.files();
    // A new one each time: it must be readable whatever was read of it before.
    let recover_with = |mode, fault: Option<Fault>| {
        let fs = log.fs.fork();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        fault.into_iter().for_each(|fault| faults.arm(fault));
        let dir = DIR.as_ref();
        let found = Log::open(&faults, dir, DATABASE, 1, mode, |_| true);
        let synced = found.and_then(|found| found.sync(&faults, dir).map(|()| found.found().last));
        let names = |name: &Path| name.ends_with("tail.log");
        let left = fs.files().into_iter().filter(|(name, _)| !names(name)).collect::<Vec<_>>();
        let expected = files.iter().filter(|(name, _)| !names(name)).cloned().collect::<Vec<_>>();
        assert!(left == expected, "the log was changed");
        if synced.is_ok() {
            let found = recover(&fs, 1, RecoveryMode::Strict).unwrap();
            assert_eq!(found.found().last, 20);
        }
        (faults.calls(Operation::Read), synced)
    };
    // The last one is in the link of a segment.
    let effects = [
        Effect::Flip(300_001),
        Effect::Misplace(4096),
        Effect::Misplace(512),
        Effect::Flip(8 * (SEGMENT_HEADER + 10)),
    ];
    for mode in [RecoveryMode::Strict, RecoveryMode::Tolerant] {
        let (calls, synced) = recover_with(mode, None);
        assert_eq!(synced.unwrap(), 20);
        let mut told = 0;
        for (after, &effect) in
            (0..calls).flat_map(|n| effects.iter().map(move |effect| (n, effect)))
        {
            let fault = Fault { after, ..Fault::new(Operation::Read, effect) };
            match recover_with(mode, Some(fault)).1 {
                Ok(last) => assert_eq!(last, 20, "{mode:?}, {effect:?} after {after} calls"),
                Err(_) => told += 1,
            }
        }
        assert!(told > 0, "nothing was noticed in {calls} calls");
    }
}

/// A recycled file has its new header, and records, and power fails before its new name is safe: what it has must not come
/// back as records of the segment that is given that number next.
#[test]
fn a_number_that_only_a_header_has_is_not_given_again() {
    everywhere(|mut log| {
        log.fill_recycled();
        let lost = log.writer.segment().number;
        // As it is before the segment that is lost comes.
        let floor = lost - 1;
        let names = log.fs.list(DIR.as_ref()).unwrap();
        let old = (1..floor).find(|&old| !names.contains(&format!("{old:06}.log"))).unwrap();
        log.fs.rename(&path(lost), &path(old)).unwrap();
        let found = recover(&log.fs, floor, RecoveryMode::Tolerant).unwrap();
        assert_eq!(found.found().largest_number, lost);
    });
}

/// The log of one life is read and gone on with in the next, whatever layers the two use.
#[test]
fn lives_on_different_layers_follow_one_another() {
    let sizes = [512, 1 << 20, 4096, 65536];
    let blocks = sizes.map(|block_size| Layer::Block { block_size });
    let direct = sizes.map(|block_size| Layer::Direct { block_size });
    let layers = [&Layer::ALL[..], &blocks, &direct].concat();
    let mut log = Setup::new(layers[0]);
    let mut last = 0;
    for round in 0..5 * layers.len() {
        for len in [10, 5000, 300, 40_000] {
            last += 1;
            log.append([last], len);
            log.writer.flush().unwrap();
        }
        if round % 3 == 0 {
            log.sync();
        }
        // Killed: what the kernel has stays, and the file is not closed by the one that wrote it.
        let fs = log.fs.fork();
        let found = recover(&fs, 1, RecoveryMode::Strict).unwrap();
        assert_eq!((found.found().last, found.found().dropped_bytes), (last, 0));
        assert_eq!(writes(&fs, &found).len() as u64, last);
        found.sync(&fs, DIR.as_ref()).unwrap();
        let end = *found.found().end();
        let layer = layers[round * 5 % layers.len()];
        let segments = segments(&fs, layer, found.found().largest_number + 1);
        let segment = segments.reopen(end.number, end.capacity).unwrap();
        let writer = Writer::resume(Arc::clone(&segments), segment, end.end, last).unwrap();
        log = Setup { layer, fs, segments, writer: writer.with_tail() };
    }
}

/// Where the newest records are only in the tail: in the middle of a segment, and right behind its link.
#[test]
fn what_only_the_tail_has_is_read_and_brought_home() {
    let mut log = Setup::new(Layer::Mmap);
    let mut last = 0;
    let mut floor = 1;
    while floor < 4 {
        last += 1;
        log.append([last], 3000);
        log.writer.flush().unwrap();
        if log.writer.segment().number > floor || last == 5 {
            floor = log.writer.segment().number;
            let fs = log.fs.fork();
            let without = fs.fork();
            without.remove(&PathBuf::from(DIR).join("tail.log")).unwrap();
            let found = recover(&fs, 1, RecoveryMode::Strict).unwrap();
            assert_eq!((found.found().last, found.found().dropped_bytes), (last, 0));
            let left = recover(&without, 1, RecoveryMode::Strict).unwrap();
            assert!(left.found().last < last, "the tail had something");
            found.sync(&fs, DIR.as_ref()).unwrap();
            assert!(!fs.list(DIR.as_ref()).unwrap().contains(&"tail.log".to_owned()));
            let found = recover(&fs, 1, RecoveryMode::Strict).unwrap();
            assert_eq!(writes(&fs, &found), expected(1..=last, 3000));
        }
    }
    log.sync();
    log.writer.finish().unwrap();
    let found = recover(&log.fs, 1, RecoveryMode::Strict).unwrap();
    assert_eq!(writes(&log.fs, &found), expected(1..=last, 3000));
    assert!(log.fs.list(DIR.as_ref()).unwrap().iter().all(|name| name != "tail.log"));
}

/// Damage to the tail is told like damage to what was never synced: what is lost is reported, and the rest kept.
#[test]
fn a_damaged_tail_is_a_torn_one() {
    let mut log = Setup::new(Layer::Mmap);
    log.append(1..=3, 100);
    log.sync();
    log.append(4..=9, 100);
    log.writer.flush().unwrap();
    let tail = PathBuf::from(DIR).join("tail.log");
    let len = log.fs.files().into_iter().find(|(file, _)| *file == tail).unwrap().1.len();
    for at in 0..len as u64 {
        let fs = log.fs.fork();
        fs.corrupt(&tail, at, 0x10).unwrap();
        let found = recover(&fs, 1, RecoveryMode::Strict).unwrap();
        let last = found.found().last;
        assert_eq!(writes(&fs, &found), expected(1..=last, 100));
        assert!(last >= 3 && (last == 9 || last == 8 || found.found().dropped_bytes > 0), "{at}");
    }
}

#[test]
fn no_block_is_read_back_for_an_append() {
    for layer in [Layer::Block { block_size: 4096 }, Layer::Direct { block_size: 4096 }] {
        let faults = FaultFs::new(Arc::new(MemoryFs::new()));
        faults.create_dir(DIR.as_ref()).unwrap();
        let fs = Arc::new(LayeredFs::new(Arc::new(faults.clone())));
        let segments = Arc::new(Segments::new(fs, DIR.into(), DATABASE, layer, 0, 1));
        let mut writer = Writer::start(segments).unwrap();
        let (reads, writes) = (faults.calls(Operation::Read), faults.calls(Operation::Write));
        for seqno in 1..=200 {
            writer.append(seqno, 1, &[&body(seqno, 300)]).unwrap();
            writer.flush().unwrap();
        }
        assert_eq!(faults.calls(Operation::Read), reads);
        assert_eq!(faults.calls(Operation::Write), writes + 200);
    }
}

/// A page cache takes what is written to it, and may find no space for it when it is to hand it over: it has it still.
#[test]
fn what_a_page_cache_could_not_hand_over_is_handed_over_later() {
    for is_tried_again in [true, false] {
        let memory = MemoryFs::new();
        memory.create_dir(DIR.as_ref()).unwrap();
        let faults = FaultFs::new(Arc::new(memory.clone()));
        let fs = Arc::new(LayeredFs::new(Arc::new(faults.clone())));
        let layer = Layer::BlockCache { block_size: 4096, pages: 256 };
        let segments = Segments::new(fs, DIR.into(), DATABASE, layer, 0, 1);
        let mut writer = Writer::start(Arc::new(segments)).unwrap();
        writer.append(1, 1, &[&body(1, 100)]).unwrap();
        // It has no room in the first segment.
        let second = body(2, 4 * LARGE);
        faults.arm(Fault::new(Operation::Write, Effect::Fail(Errno::Raw(28))));
        let refused = writer.append(2, 1, &[&second]).unwrap_err();
        assert!(matches!(refused, AppendError::Refused(Error::NoSpace { .. })), "{refused:?}");
        assert!(writer.is_buffered());
        if is_tried_again {
            writer.append(2, 1, &[&second]).unwrap();
        }
        writer.flush().unwrap();
        assert!(!writer.is_buffered());
        let killed = memory.fork();
        let found = recover(&killed, 1, RecoveryMode::Strict).unwrap();
        let mut expected = expected([1], 100);
        expected.extend(is_tried_again.then_some((2, second)));
        assert!(writes(&killed, &found) == expected, "{is_tried_again}");
    }
}

/// A file system in memory that knows how many of its files are open.
#[derive(Debug)]
struct CountingFs {
    inner: MemoryFs,
    files: Mutex<Vec<Weak<dyn File>>>,
    most: AtomicUsize,
}

impl CountingFs {
    fn new(inner: MemoryFs) -> Self {
        Self { inner, files: Mutex::default(), most: AtomicUsize::new(0) }
    }

    fn count(&self, file: &Arc<dyn File>) {
        let mut files = self.files.lock().unwrap();
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(file));
        self.most.fetch_max(files.len(), Ordering::Relaxed);
    }

    /// The most files that were open at a time.
    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

impl Fs for CountingFs {
    fn open(&self, path: &Path, access: Access, layer: Layer) -> Result<Arc<dyn File>> {
        self.inner.open(path, access, layer).inspect(|file| self.count(file))
    }
    fn create(&self, path: &Path, layer: Layer) -> Result<Arc<dyn File>> {
        self.inner.create(path, layer).inspect(|file| self.count(file))
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.inner.create_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.inner.remove_dir(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.inner.list(dir)
    }
    fn kind(&self, path: &Path) -> Result<Option<PathKind>> {
        self.inner.kind(path)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.inner.sync_dir(dir)
    }
    fn open_dir(&self, dir: &Path) -> Result<Box<dyn Dir>> {
        self.inner.open_dir(dir)
    }
    fn lock(&self, path: &Path, access: Access) -> Result<LockGuard> {
        self.inner.lock(path, access)
    }
    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}

/// A process may have few files open, and a log many segments.
#[test]
fn a_long_log_is_read_with_few_open_files() {
    for layer in [Layer::Positional, Layer::Mmap] {
        let mut log = Setup::new(layer);
        let segments = 40;
        for last in 1.. {
            log.append([last], 900_000);
            if log.writer.segment().number == segments {
                break;
            }
        }
        log.append([log.writer.last() + 1], 10);
        log.writer.flush().unwrap();
        let fs = CountingFs::new(log.fs.fork());
        let mode = RecoveryMode::Strict;
        let found = Log::open(&fs, DIR.as_ref(), DATABASE, 1, mode, |_| true).unwrap();
        assert_eq!(found.found().chain.len() as u64, segments);
        found.sync(&fs, DIR.as_ref()).unwrap();
        assert_eq!(writes(&fs, &found).len() as u64, log.writer.last());
        assert!(fs.most() <= 2, "{layer:?}: {} files were open", fs.most());
    }
}
