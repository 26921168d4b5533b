//! Damaged and hostile files: an error or right answers for the first, no panic for the second. A file that passes
//! `verify` reads like the sorted vector that a walk over it gives.

use std::path::Path;

use proptest::prelude::*;

use super::files::{check_points, check_positions, check_together, probes, shape, sorted};
use super::rig::Rig;
use super::*;
use crate::base::key::compare;
use crate::base::{checksum, hash, varint};
use crate::contract::Engine;
use crate::contract::testing::{Log, context};
use crate::error::ErrorKind;
use crate::iter::{EntryCursor, sample};
use crate::options::KeyspaceOptions;
use crate::reducer::Reducer;
use crate::skip::block::BlockBuilder;
use crate::skip::footer::Footer;
use crate::skip::merge::{Input, Order, Purpose};
use crate::skip::part::{Home, Name, Part, PartMeta};
use crate::skip::positions::Positions;
use crate::skip::reduce::Reduce;
use crate::skip::store::Store;
use crate::skip::verify::verify;
use crate::stats::VerifyReport;
use crate::vfs::{
    Access, BatchReader, Effect, Errno, Fault, FaultFs, Fs, Layer, MemoryFs, Operation,
};

/// A link as it is written: what it leads to are numbers.
#[derive(Clone, Debug)]
struct Link {
    key: Vec<u8>,
    trailer: Trailer,
    numbers: Vec<u64>,
}

/// Changes the links of a block of links, given its number, or those to blocks of links.
type BendLinks = Box<dyn Fn(Option<usize>, &mut Vec<Link>)>;

/// What a file is made of, in short blocks, so that a small file has many.
struct Plan {
    entries: Vec<Entry>,
    shape: Shape,
    bend_links: BendLinks,
    bend_footer: Box<dyn Fn(&mut Footer)>,
}

/// Appends a block of these records, which may be in any order: the builder's must not. Gives where it is.
fn append(out: &mut Vec<u8>, shape: Shape, records: impl IntoIterator<Item = Entry>) -> (u64, u64) {
    let (mut links, mut keys, mut values, mut count) = (Vec::new(), Vec::new(), Vec::new(), 0_u32);
    for (key, trailer, value) in records {
        if count > 0 && shape.block_step() > 0 && count.is_multiple_of(shape.block_step()) {
            links.extend_from_slice(&(keys.len() as u16).to_le_bytes());
            links.extend_from_slice(&(values.len() as u16).to_le_bytes());
        }
        [key.len(), value.len()].into_iter().for_each(|len| varint::put(&mut keys, len as u64));
        if shape.has_trailers {
            keys.extend_from_slice(&trailer.bits().to_le_bytes());
        }
        keys.extend_from_slice(&key);
        values.extend_from_slice(&value);
        count += 1;
    }
    let values_at = 24 + links.len() + keys.len();
    let len = values_at + values.len();
    let mut bytes = vec![0; 4];
    [len, count as usize, values_at, len]
        .into_iter()
        .for_each(|number| bytes.extend_from_slice(&(number as u32).to_le_bytes()));
    bytes.extend_from_slice(&[0, 0, u8::from(shape.has_trailers), shape.block_step() as u8]);
    [links, keys, values].into_iter().for_each(|part| bytes.extend_from_slice(&part));
    let sum = checksum::bound(IDENTITY, out.len() as u64, &bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&bytes);
    ((out.len() - len) as u64, len as u64)
}

fn record(link: Link) -> Entry {
    let mut value = Vec::new();
    link.numbers.iter().for_each(|&number| varint::put(&mut value, number));
    (link.key, link.trailer, value)
}

impl Plan {
    fn new(entries: Vec<Entry>, shape: Shape) -> Self {
        Self { entries, shape, bend_links: Box::new(|_, _| ()), bend_footer: Box::new(|_| ()) }
    }

    /// The file, with right checksums. Three records make a block, three blocks have their links together.
    fn bytes(&self) -> Vec<u8> {
        let (mut out, mut top, mut footer) = (Vec::new(), Vec::new(), Footer::new(self.shape));
        let has = |level| self.shape.has(level);
        let key = |key: &[u8], level| if has(level) { key.to_vec() } else { Vec::new() };
        for (number, group) in self.entries.chunks(9).enumerate() {
            let (mut links, first) = (Vec::new(), (footer.records, footer.blocks));
            for records in group.chunks(3) {
                let (offset, len) = append(&mut out, self.shape, records.iter().cloned());
                let trailer = if has(2) { records[0].1 } else { UNIFORM };
                let numbers = vec![offset, len, footer.records];
                links.push(Link { key: key(&records[0].0, 2), trailer, numbers });
                footer.blocks += 1;
                footer.records += records.len() as u64;
            }
            (self.bend_links)(Some(number), &mut links);
            let trailer = if has(3) { group[0].1 } else { UNIFORM };
            let (offset, len) = append(&mut out, self.shape, links.into_iter().map(record));
            let numbers = vec![offset, len, first.0, first.1];
            top.push(Link { key: key(&group[0].0, 3), trailer, numbers });
            footer.link_blocks += 1;
        }
        footer.tombstones =
            self.entries.iter().filter(|e| e.1.kind() == Kind::Delete).count() as u64;
        footer.bytes = self.entries.iter().map(|e| (e.0.len() + e.2.len()) as u64).sum();
        (self.bend_links)(None, &mut top);
        let (offset, len) = append(&mut out, self.shape, top.into_iter().map(record));
        (footer.top, footer.top_len) = (offset, len as u32);
        (self.bend_footer)(&mut footer);
        let footer = footer.encode(IDENTITY, out.len() as u64);
        out.extend_from_slice(&footer);
        out
    }
}

/// Few keys with several versions each, and values of some lengths.
fn some_entries(has_trailers: bool, count: u64) -> Vec<Entry> {
    let entry = |number: u64| {
        let kind = if number % 5 == 3 { Kind::Delete } else { Kind::Put };
        let key = match has_trailers {
            true => format!("key {:02}", number / 7),
            false => format!("key {number:02}"),
        };
        (key.into_bytes(), Trailer::new(number, kind), vec![number as u8; number as usize % 3 * 4])
    };
    sorted((1..=count).map(entry).collect(), has_trailers)
}

fn shapes() -> [Shape; 6] {
    [(2, 12, true), (3, 12, false), (2, 3, true), (2, 2, true), (4, 1, true), (2, 0, false)]
        .map(|(step_unit, max_level, has_trailers)| shape(step_unit, max_level, has_trailers))
}

/// All that a file has, walked over forward or backward.
fn scan(file: &Arc<SortedFile>, run: Option<u64>, is_forward: bool) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    let mut cursor = file.cursor(run);
    match is_forward {
        true => cursor.seek_to_first()?,
        false => cursor.seek_to_last()?,
    }
    while cursor.is_valid() {
        found.push((cursor.key().to_vec(), cursor.trailer(), cursor.value().to_vec()));
        match is_forward {
            true => cursor.next()?,
            false => cursor.prev()?,
        }
    }
    if !is_forward {
        found.reverse();
    }
    Ok(found)
}

fn expect_right<T: PartialEq + std::fmt::Debug>(found: Result<T>, right: T, what: &str) {
    match found {
        Ok(found) => assert_eq!(found, right, "{what}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{what}: {error}"),
    }
}

#[test]
fn a_plan_without_bends_is_whole() {
    for shape in shapes() {
        let entries = some_entries(shape.has_trailers, 40);
        let bytes = Plan::new(entries.clone(), shape).bytes();
        for reach in REACHES {
            let file = open(&bytes, reach).unwrap();
            assert_eq!((file.blocks(), file.link_blocks().len()), (14, 5));
            verify(&file).unwrap();
            assert_eq!(scan(&file, None, true).unwrap(), entries);
            check_points(&file, &entries, &probes(&entries));
        }
    }
}

#[test]
fn every_flip_is_an_error_or_harmless() {
    for shape in &shapes()[..3] {
        let entries = some_entries(shape.has_trailers, 22);
        let whole = Plan::new(entries.clone(), *shape).bytes();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            for reach in REACHES {
                let what = format!("byte {at}, {reach:?}");
                let file = match open(&bytes, reach) {
                    Ok(file) => file,
                    Err(error) => {
                        let kinds = [ErrorKind::Corruption, ErrorKind::NewerFormat];
                        assert!(kinds.contains(&error.kind()), "{what}: {error}");
                        continue;
                    }
                };
                assert_eq!(verify(&file).unwrap_err().kind(), ErrorKind::Corruption, "{what}");
                for run in [None, Some(1 << 20)] {
                    expect_right(scan(&file, run, true), entries.clone(), &what);
                    expect_right(scan(&file, run, false), entries.clone(), &what);
                }
                let mut cursor = file.cursor(None);
                for (position, (key, trailer, value)) in entries.iter().enumerate() {
                    let get = file.get(key, trailer.seqno());
                    expect_right(get, Some((*trailer, value[..].into())), &what);
                    expect_right(file.rank(key, *trailer), position as u64, &what);
                    let moved = cursor.seek_to_record(position as u64);
                    expect_right(moved.map(|()| cursor.value().to_vec()), value.clone(), &what);
                }
            }
        }
    }
}

/// The next opening fails then, so that it is better known before.
#[test]
fn verify_finds_every_flip_that_comes_after_the_opening() {
    let entries = some_entries(true, 22);
    let whole = Plan::new(entries, shape(2, 12, true)).bytes();
    let fs = MemoryFs::new();
    let path = Path::new("/file");
    fs.write_file(path, &whole).unwrap();
    for layer in [Layer::Positional, Layer::Mmap] {
        let file = fs.open(path, Access::Read, layer).unwrap();
        let file = open_file(file, REACHES[0]).unwrap();
        for at in 0..whole.len() as u64 {
            verify(&file).unwrap();
            fs.corrupt(path, at, 1 << (at % 8)).unwrap();
            assert!(verify(&file).is_err(), "byte {at} of {}, {layer:?}", whole.len());
            fs.corrupt(path, at, 1 << (at % 8)).unwrap();
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    let whole = Plan::new(some_entries(true, 22), shape(2, 12, true)).bytes();
    for len in 0..whole.len() {
        for reach in REACHES {
            let cut = open(&whole[..len], reach).unwrap_err();
            assert_eq!(cut.kind(), ErrorKind::Corruption, "{len} bytes");
            let cache = Arc::new(BlockCache::new(0));
            let file = Handle::staying(Whole::new(whole[..len].to_vec(), reach.lends));
            let cut = SortedFile::open(file, IDENTITY, whole.len() as u64, SEQNO, &cache, NO_ROOM);
            assert_eq!(cut.unwrap_err().kind(), ErrorKind::Corruption, "{len} bytes");
        }
    }
}

/// Does all that can be done with a file: its answers may be wrong or errors, but must end.
fn exercise(file: &Arc<SortedFile>) {
    let reader = BatchReader::new(0);
    let keys: [&[u8]; 6] = [b"", b"key", b"key 01", b"key 03", b"key 9", b"\xff\xff"];
    for run in [None, Some(1), Some(1 << 20)] {
        let _ = (scan(file, run, true), scan(file, run, false));
    }
    for at in [0, 5, SEQNO, u64::MAX] {
        let _ = file.multi_get(&keys, at, &reader);
        for key in keys {
            let trailer = Trailer::visible_at(at);
            let _ = (file.get(key, at), file.rank(key, trailer), file.rank(key, Trailer::OLDEST));
            let mut cursor = file.cursor(None);
            let _ = cursor.seek(key, trailer);
            (0..5).take_while(|_| cursor.is_valid() && cursor.next().is_ok()).count();
            let _ = cursor.seek_before(key, trailer);
            (0..5).take_while(|_| cursor.is_valid() && cursor.prev().is_ok()).count();
        }
    }
    let mut cursor = file.cursor(None);
    for record in (0..file.footer.records.min(50)).chain([file.footer.records, u64::MAX]) {
        let _ = cursor.seek_to_record(record);
    }
}

/// Counts positions in a file under changes.
fn exercise_positions(bytes: &[u8], reducer: &Reducer, changes: &[sample::Entry]) {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
    let reduce = Reduce::new(reducer.clone(), None, Path::new("/keyspace"));
    let part = part(bytes, &rig::home(&fs));
    let positions = || Positions {
        base: part.as_deref(),
        changes: sample::Sorted::new(changes.to_vec()),
        reduce: &reduce,
        at: SEQNO,
    };
    for position in (0..50).chain([u64::MAX - 1, u64::MAX]) {
        let _ = positions().nth(position);
    }
    for key in [&b""[..], b"key 01", b"key 03", b"\xff"] {
        let _ = positions().rank(key);
    }
}

const NO_ROOM: Room = Room { links: 0, slots: 0 };

/// The file as a part of a keyspace, if it can be opened.
fn part(bytes: &[u8], home: &Arc<Home>) -> Option<Arc<Part>> {
    let (cache, len) = (Arc::new(BlockCache::new(0)), bytes.len() as u64);
    let file = Handle::staying(Whole::new(bytes.to_vec(), true));
    let sorted = SortedFile::open(file, IDENTITY, len, SEQNO, &cache, NO_ROOM).ok()?;
    let records = sorted.footer.records;
    let meta = PartMeta { id: 1, len, records, is_base: true, after: 0, to: SEQNO };
    Some(Part::new(meta, sorted, &Name::new(home, meta.id), home.layer()))
}

/// Merges a file with one that is whole. A base is whole then; a run may have versions twice that both had.
fn exercise_merges(bytes: &[u8], other: &[u8]) {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::new());
    let home = rig::home(&fs);
    let (Some(bent), Some(other)) = (part(bytes, &home), part(other, &home)) else { return };
    let reduce = Reduce::new(Reducer::Concat, None, Path::new("/keyspace"));
    for (id, purpose) in [(8, Purpose::Base), (9, Purpose::Run)] {
        let order = Order {
            valve: None,
            home: &home,
            reduce: &reduce,
            purpose,
            shape: shape(4, 12, true),
            id,
            after: 0,
            to: SEQNO,
            progress: None,
            stopped: &|| false,
        };
        let inputs = [&bent, &other].map(|part| Input::Right(part.sorted.cursor(Some(1 << 16))));
        match order.carry_out(inputs.into()) {
            Ok(made) if purpose == Purpose::Base => {
                made.iter().for_each(|made| verify(&made.sorted).unwrap());
            }
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                assert!(!fs.list(&home.dir).unwrap().contains(&format!("{id:06}.sorted")));
            }
        }
    }
}

/// Does all of it in every way; what passes `verify` must hang together. Gives what it has then.
fn try_out(bytes: &[u8], what: &str) -> Option<Vec<Entry>> {
    let mut scanned = None;
    for reach in REACHES {
        let Ok(file) = open(bytes, reach) else { continue };
        assert!(file.memory() <= 20 * bytes.len() + 1000, "{what}: {} bytes", file.memory());
        exercise(&file);
        if verify(&file).is_err() {
            continue;
        }
        let entries = scan(&file, None, true).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(scan(&file, None, false).unwrap(), entries, "{what}, {reach:?}");
        let probes = probes(&entries);
        check_points(&file, &entries, &probes);
        check_together(&file, &entries, &probes);
        check_positions(&file, &entries, 1);
        scanned = Some(entries);
    }
    scanned
}

/// The parts of a file, each with a checksum of its own: where they begin and end, and whether it is a block of records.
fn parts(bytes: &[u8]) -> Vec<(usize, usize, bool)> {
    let file = open(bytes, REACHES[0]).unwrap();
    let mut parts = Vec::new();
    for number in 0..file.blocks() {
        let range = file.target_of(number, &mut Default::default()).unwrap().range();
        parts.push((range.start as usize, range.end as usize, true));
    }
    for links in file.link_blocks() {
        parts.push((links.range().start as usize, links.range().end as usize, false));
    }
    parts.push((file.footer.top as usize, bytes.len() - Footer::LEN, false));
    parts.push((bytes.len() - Footer::LEN, bytes.len(), false));
    parts
}

#[test]
fn no_byte_with_a_right_checksum_is_a_danger() {
    for shape in shapes() {
        let entries = some_entries(shape.has_trailers, 16);
        let whole = Plan::new(entries.clone(), shape).bytes();
        for (start, end, is_records) in parts(&whole) {
            let is_footer = end == whole.len();
            let sum_at = if is_footer { end - 4 } else { start };
            for at in (start..end).filter(|at| !(sum_at..sum_at + 4).contains(at)) {
                let bytes = [whole[at] ^ (1 << (at % 8)), 0, 0xff];
                let tried = if is_records { at % 3..at % 3 + 1 } else { 0..3 };
                for &byte in bytes[tried].iter().filter(|&&byte| byte != whole[at]) {
                    let mut bytes = whole.clone();
                    bytes[at] = byte;
                    let covered = if is_footer { start..end - 4 } else { start + 4..end };
                    let sum = checksum::bound(IDENTITY, start as u64, &bytes[covered]);
                    bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
                    let what = format!("{byte} at {at} in {start}..{end}, {shape:?}");
                    let found = try_out(&bytes, &what);
                    if let Some(found) = found.filter(|_| !is_records) {
                        assert_eq!(found, entries, "{what}");
                    }
                }
            }
        }
    }
}

/// A scan must not take longer because many links lead to one block.
#[test]
fn a_scan_gives_no_more_records_than_the_file_says() {
    for shape in shapes() {
        for step in [1, 2, 3] {
            let mut entries = some_entries(shape.has_trailers, 9);
            entries.iter_mut().for_each(|entry| entry.2 = vec![1; 200]);
            let mut plan = Plan::new(entries, shape);
            plan.bend_links = Box::new(move |number, links| {
                if number.is_some() {
                    let link = links.remove(0);
                    *links = (0..50).map(|_| link.clone()).collect();
                    (0..).zip(links).for_each(|(at, link)| link.numbers[2] = step * at);
                }
            });
            plan.bend_footer = Box::new(|footer| (footer.records, footer.blocks) = (50, 50));
            let bytes = plan.bytes();
            for reach in REACHES {
                let file = open(&bytes, reach).unwrap();
                for (run, is_forward) in [(None, true), (None, false), (Some(1 << 16), true)] {
                    let mut cursor = file.cursor(run);
                    let mut moved = match is_forward {
                        true => cursor.seek_to_first(),
                        false => cursor.seek_to_last(),
                    };
                    let mut given = 0;
                    while moved.is_ok() && cursor.is_valid() {
                        given += 1;
                        moved = if is_forward { cursor.next() } else { cursor.prev() };
                    }
                    let what = format!("{shape:?}, {reach:?}, {step}, {is_forward}");
                    assert!(given <= file.footer.records, "{what}: {given} records");
                    assert_eq!(moved.unwrap_err().kind(), ErrorKind::Corruption, "{what}");
                }
            }
        }
    }
}

/// Appends a block of links whose keys are all the same long prefix. Gives where it is.
fn append_long_links(out: &mut Vec<u8>, links: impl Iterator<Item = Vec<u64>>) -> (u64, u64) {
    let mut builder = BlockBuilder::new(4, false);
    for numbers in links {
        let link = Link { key: vec![b'p'; 65_535], trailer: UNIFORM, numbers };
        let (key, trailer, value) = record(link);
        builder.push(&key, trailer, &value);
    }
    let (offset, mut block) = (out.len() as u64, Vec::new());
    builder.finish(IDENTITY, offset, 0, 0, &mut block);
    out.extend_from_slice(&block);
    (offset, block.len() as u64)
}

/// What many links share must not take memory for each of them.
#[test]
fn a_long_prefix_of_many_links_takes_little_memory() {
    const COUNT: u64 = 500;
    for is_top in [false, true] {
        let (mut out, mut footer) = (vec![0; 64], Footer::new(shape(4, 12, false)));
        (footer.records, footer.blocks) = (COUNT, COUNT);
        let (top, len) = match is_top {
            true => append_long_links(&mut out, (0..COUNT).map(|at| vec![0, 24, at, at])),
            false => {
                let links = append_long_links(&mut out, (0..COUNT).map(|at| vec![0, 24, at]));
                let numbers = vec![links.0, links.1, 0, 0];
                let link = Link { key: Vec::new(), trailer: UNIFORM, numbers };
                append(&mut out, footer.shape, [record(link)])
            }
        };
        footer.link_blocks = if is_top { COUNT } else { 1 };
        (footer.top, footer.top_len) = (top, len as u32);
        let footer = footer.encode(IDENTITY, out.len() as u64);
        out.extend_from_slice(&footer);
        for reach in REACHES {
            let file = open(&out, reach).unwrap();
            assert!(file.memory() <= 3 * out.len(), "{} of {}", file.memory(), out.len());
            exercise(&file);
        }
    }
}

/// What one link is changed to.
#[derive(Clone, Debug)]
enum Bend {
    Number(usize, u64),
    Add(usize, i64),
    Key(Vec<u8>),
    Trailer(u64),
    Drop,
    Twice,
    Swap,
}

fn bend() -> impl Strategy<Value = Bend> {
    let number = prop_oneof![0..40_u64, 0..2000_u64, any::<u64>()];
    prop_oneof![
        (0..4_usize, number).prop_map(|(which, number)| Bend::Number(which, number)),
        (0..4_usize, -3..4_i64).prop_map(|(which, more)| Bend::Add(which, more)),
        prop::sample::select(vec!["", "key 01", "key 03", "z"])
            .prop_map(|key| Bend::Key(key.into())),
        (0..30_u64).prop_map(Bend::Trailer),
        Just(Bend::Drop),
        Just(Bend::Twice),
        Just(Bend::Swap),
    ]
}

fn apply(links: &mut Vec<Link>, at: prop::sample::Index, bend: &Bend) {
    if links.is_empty() {
        return;
    }
    let at = at.index(links.len());
    let link = &mut links[at];
    match bend {
        Bend::Number(which, number) => {
            link.numbers.get_mut(*which).into_iter().for_each(|old| *old = *number);
        }
        Bend::Add(which, more) => {
            let old = link.numbers.get_mut(*which);
            old.into_iter().for_each(|old| *old = old.saturating_add_signed(*more));
        }
        Bend::Key(key) => link.key.clone_from(key),
        Bend::Trailer(seqno) => link.trailer = Trailer::new(*seqno, Kind::Put),
        Bend::Drop => drop(links.remove(at)),
        Bend::Twice => links.insert(at, links[at].clone()),
        Bend::Swap => links.rotate_left(at),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn links_may_lead_anywhere(
        which in 0..6_usize,
        bends in proptest::collection::vec(
            (0..6_usize, any::<prop::sample::Index>(), bend()), 1..4),
        footer in proptest::option::of((0..7_usize, prop_oneof![0..50_u64, any::<u64>()])),
    ) {
        let shape = shapes()[which];
        let entries = some_entries(shape.has_trailers, 40);
        let mut plan = Plan::new(entries.clone(), shape);
        let bent = bends.clone();
        plan.bend_links = Box::new(move |number, links| {
            let mine = bent.iter().filter(|(group, ..)| *group == number.unwrap_or(5));
            mine.for_each(|(_, at, bend)| apply(links, *at, bend));
        });
        plan.bend_footer = Box::new(move |bent| {
            let Some((which, number)) = footer else { return };
            let numbers = [
                &mut bent.records, &mut bent.tombstones, &mut bent.bytes, &mut bent.blocks, &mut bent.link_blocks,
                &mut bent.top,
            ];
            match numbers.into_iter().nth(which) {
                Some(old) => *old = number,
                None => bent.top_len = number as u32,
            }
        });
        let bytes = plan.bytes();
        if let Some(found) = try_out(&bytes, &format!("{bends:?} {footer:?}")) {
            prop_assert_eq!(found, entries);
        }
        exercise_positions(&bytes, &Reducer::KeepAll, &[]);
        exercise_merges(&bytes, &Plan::new(some_entries(shape.has_trailers, 20), shape).bytes());
    }

    #[test]
    fn records_may_be_in_any_order(
        which in 0..6_usize,
        keys in proptest::collection::vec((0..40_u64, 0..9_u64, any::<bool>()), 0..30),
        changes in sample::entries(0..20),
    ) {
        let shape = shapes()[which];
        let entry = |(key, seqno, is_put): (u64, u64, bool)| {
            let kind = if is_put || !shape.has_trailers { Kind::Put } else { Kind::Delete };
            let trailer = if shape.has_trailers { Trailer::new(seqno, kind) } else { UNIFORM };
            (format!("key {key:02}").into_bytes(), trailer, vec![1; seqno as usize])
        };
        let entries: Vec<Entry> = keys.into_iter().map(entry).collect();
        let in_order = entries.is_sorted_by(|a, b| compare((&a.0, a.1), (&b.0, b.1)).is_lt());
        let bytes = Plan::new(entries.clone(), shape).bytes();
        let found = try_out(&bytes, "any order");
        prop_assert_eq!(found, in_order.then_some(entries));
        for reducer in [Reducer::Last, Reducer::KeepAll] {
            exercise_positions(&bytes, &reducer, &changes);
        }
        exercise_merges(&bytes, &Plan::new(some_entries(shape.has_trailers, 20), shape).bytes());
    }
}

/// Files whose footers tell of as many bytes as can be told are merged like others.
#[test]
fn bytes_in_footers_are_not_believed() {
    let memory = MemoryFs::new();
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let rig = Rig::create(&fs);
    (1..=3).for_each(|seqno| rig.spill(seqno, "key"));
    let identity = rig.context.identity;
    drop(rig);
    let mut forged = 0;
    for (path, mut bytes) in memory.files() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(id) = name.strip_suffix(".sorted") else { continue };
        let identity = hash::file_identity(identity, id.parse().unwrap());
        let at = bytes.len() - Footer::LEN;
        let footer = bytes.last_chunk().unwrap();
        let footer = Footer::decode(footer, &path, identity, at as u64).unwrap();
        let footer = Footer { bytes: u64::MAX, ..footer };
        bytes[at..].copy_from_slice(&footer.encode(identity, at as u64));
        memory.write_file(&path, &bytes).unwrap();
        forged += 1;
    }
    assert_eq!(forged, 3);
    let rig = Rig::open(&fs);
    rig.store.synchronize(&|| Ok(())).unwrap();
    assert_eq!((rig.get("key", 3), rig.store.stats().skip.unwrap().runs), (Some(3), 0));
}

#[test]
fn verify_reads_the_manifest() {
    let memory = MemoryFs::new();
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let rig = Rig::create(&fs);
    rig.spill(1, "key");
    let check = |has_problems: bool| {
        let mut report = VerifyReport::default();
        rig.store.verify(&mut report);
        assert_eq!((report.files, !report.problems.is_empty()), (2, has_problems), "{report:?}");
    };
    check(false);
    let is_manifest = |path: &Path| path.to_str().unwrap().contains("manifest");
    let (path, bytes) = memory.files().into_iter().find(|(path, _)| is_manifest(path)).unwrap();
    for at in [0, bytes.len() as u64 / 2] {
        memory.corrupt(&path, at, 1).unwrap();
        check(true);
        memory.corrupt(&path, at, 1).unwrap();
        check(false);
    }
}

/// A file that is opened without its links, because of an error that is soon over, would be without them for as long as it lives.
#[test]
fn errors_of_the_system_are_not_taken_for_damaged_links() {
    let memory = MemoryFs::new();
    let fs: Arc<dyn Fs> = Arc::new(memory.clone());
    let rig = Rig::create(&fs);
    rig.spill(1, "key");
    drop(rig);
    let faults = FaultFs::new(Arc::new(memory));
    let context = context(Arc::new(faults.clone()), Arc::new(Log::default()));
    let open = || Store::open(context.clone(), KeyspaceOptions::skip().skip);
    let broken = Fault::new(Operation::Read, Effect::Fail(Errno::Raw(5)));
    for after in 0.. {
        let before = faults.fired();
        faults.arm(Fault { name_contains: ".sorted".into(), after, ..broken.clone() });
        let opened = open();
        faults.disarm();
        if faults.fired() == before {
            assert!(opened.is_ok() && after >= 3, "there are {after} reads");
            break;
        }
        assert_eq!(opened.err().map(|error| error.kind()), Some(ErrorKind::Io), "read {after}");
    }
}
