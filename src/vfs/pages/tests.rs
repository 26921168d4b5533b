//! Pages against a vector; how often the file below is called; what errors leave; many threads.

use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::vfs::{
    Access, Effect, Errno, Fault, FaultFs, File, Fs, Hint, IoStats, Layer, MemoryFs, Operation,
    Times, View,
};

const BLOCK: usize = 512;
const EIO: Errno = Errno::Raw(5);

/// A file that takes whole blocks only; a read may end where the file does.
#[derive(Debug)]
struct Blocks(Arc<dyn File>);

impl File for Blocks {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.0.truncate(len)
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.0.allocate(len)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset + buffer.len() as u64;
        assert!(offset.is_multiple_of(BLOCK as u64) && !buffer.is_empty());
        assert!(end.is_multiple_of(BLOCK as u64) || end == self.0.len().unwrap());
        self.0.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        assert!(offset.is_multiple_of(BLOCK as u64) && bytes.len().is_multiple_of(BLOCK));
        assert!(!bytes.is_empty());
        self.0.write_at(offset, bytes)
    }
    fn write_vectored_at(&self, _: u64, _: &[IoSlice<'_>]) -> Result<()> {
        panic!("parts are not aligned")
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn advise(&self, range: Range<u64>, hint: Hint) {
        self.0.advise(range, hint);
    }
    fn alignment(&self) -> usize {
        BLOCK
    }
    fn view(&self, _: Range<u64>) -> Result<View> {
        panic!("pages are read into frames")
    }
    fn stats(&self) -> IoStats {
        self.0.stats()
    }
}

/// A file of which one byte cannot be read.
#[derive(Debug)]
struct Bad {
    inner: Arc<dyn File>,
    byte: u64,
}

impl File for Bad {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.inner.truncate(len)
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.inner.allocate(len)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        // Long enough for others to wait for it.
        thread::yield_now();
        if (offset..offset + buffer.len() as u64).contains(&self.byte) {
            return Err(Error::io("read", self.path(), Some(offset), EIO.into()));
        }
        self.inner.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)
    }
    fn write_vectored_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<()> {
        self.inner.write_vectored_at(offset, parts)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn advise(&self, range: Range<u64>, hint: Hint) {
        self.inner.advise(range, hint);
    }
    fn view(&self, range: Range<u64>) -> Result<View> {
        self.inner.view(range)
    }
    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}

fn cache(pages: usize) -> Arc<PageCache> {
    PageCache::new(BLOCK, pages).unwrap()
}

fn create(fs: &dyn Fs, name: &str, cache: &Arc<PageCache>) -> PagedFile {
    let inner = fs.create(Path::new(name), Layer::default()).unwrap();
    PagedFile::new(Arc::new(Blocks(inner)), Arc::clone(cache)).unwrap()
}

fn open(fs: &dyn Fs, name: &str, cache: &Arc<PageCache>) -> PagedFile {
    let inner = fs.open(Path::new(name), Access::Write, Layer::default()).unwrap();
    PagedFile::new(Arc::new(Blocks(inner)), Arc::clone(cache)).unwrap()
}

/// A file of so many pages, each byte being its page's number, none of which is in the cache.
fn filled(fs: &dyn Fs, pages: usize, cache: &Arc<PageCache>) -> PagedFile {
    let file = create(fs, "a", cache);
    let bytes: Vec<u8> = (0..pages * BLOCK).map(|at| (at / BLOCK) as u8).collect();
    file.write_at(0, &bytes).unwrap();
    drop(file);
    open(fs, "a", cache)
}

fn view(file: &PagedFile, page: usize) -> Result<View> {
    let start = (page * BLOCK) as u64;
    file.view(start..start + BLOCK as u64)
}

fn content(file: &PagedFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

/// What the file below has, read past the cache.
fn below(fs: &dyn Fs, name: &str) -> Vec<u8> {
    let file = fs.open(Path::new(name), Access::Read, Layer::default()).unwrap();
    file.view(0..file.len().unwrap()).unwrap().to_vec()
}

/// What a memory budget is asked for before there is a cache.
#[test]
fn a_layer_tells_what_its_cache_takes() {
    for block_size in [512, 4096, 1 << 20] {
        for pages in [1, 2, 3, 8, 9, 100, 1000] {
            let made = PageCache::new(block_size as usize, pages as usize).unwrap();
            for layer in
                [Layer::BlockCache { block_size, pages }, Layer::DirectCache { block_size, pages }]
            {
                assert_eq!(layer.page_cache_bytes(), made.bytes(), "{pages} of {block_size}");
            }
        }
    }
}

#[test]
fn impossible_caches_are_refused() {
    for (block, pages) in [(0, 1), (256, 1), (1000, 1), (2 << 20, 1), (512, 0), (1 << 20, 1 << 45)]
    {
        assert_eq!(PageCache::new(block, pages).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let large = PageCache::new(4096, 1_000_000).unwrap();
    assert_eq!((large.block_size(), large.pages()), (4096, 1_000_000));
    assert!(large.bytes() > 4096 * 1_000_000);
}

#[test]
fn pages_are_found_however_many_have_one_place_in_the_table() {
    let (fs, pages) = (MemoryFs::new(), 6000);
    let cache = cache(64);
    let file = filled(&fs, pages + 20, &cache);
    // There are two chains for each frame.
    let id = cache.directory().next_file;
    let chain = |page: usize| Key { file: id, page: page as u64 }.hash() >> (u64::BITS - 7);
    let neighbours: Vec<usize> = (0..pages).filter(|&page| chain(page) == 5).take(40).collect();
    assert_eq!(neighbours.len(), 40, "more than a look-up without the lock follows");
    let bytes = |page: usize, len| -> Vec<u8> {
        (page * BLOCK..page * BLOCK + len).map(|at| (at / BLOCK) as u8).collect()
    };
    let (short, long) = (BLOCK + 1, 20 * BLOCK);
    assert!(long / BLOCK > cache.long() as usize);
    for round in 0..3 {
        for &page in &neighbours {
            assert_eq!(*view(&file, page).unwrap(), *bytes(page, BLOCK), "{round}");
        }
        for len in [short, long] {
            for &page in neighbours.iter().take(10) {
                let (at, expected) = ((page * BLOCK) as u64, bytes(page, len));
                let mut read = vec![0; len];
                file.read_at(at, &mut read).unwrap();
                assert_eq!(read, expected, "{round}");
                file.write_at(at, &expected).unwrap();
            }
        }
    }
    file.sync().unwrap();
    assert_eq!(below(&fs, "a"), content(&file));
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    WriteParts(usize, Vec<usize>),
    Append(usize),
    Read(usize, usize),
    View(usize, usize),
    DropViews,
    Truncate(usize),
    Allocate(usize),
    Flush,
    Sync,
    Forget(usize, usize),
    Reopen,
}

fn step(max: usize) -> impl Strategy<Value = Step> {
    let len = || prop_oneof![3 => 1..200usize, 2 => 1..3 * BLOCK, 1 => 1..max];
    prop_oneof![
        6 => (0..max, len()).prop_map(|(at, len)| Step::Write(at, len)),
        2 => (0..max, prop::collection::vec(0..BLOCK, 0..4))
            .prop_map(|(at, parts)| Step::WriteParts(at, parts)),
        4 => len().prop_map(Step::Append),
        8 => (0..max, len()).prop_map(|(at, len)| Step::Read(at, len)),
        8 => (0..max, len()).prop_map(|(at, len)| Step::View(at, len)),
        2 => Just(Step::DropViews),
        1 => (0..max).prop_map(Step::Truncate),
        1 => (0..max).prop_map(Step::Allocate),
        1 => Just(Step::Flush),
        1 => Just(Step::Sync),
        1 => (0..max, len()).prop_map(|(at, len)| Step::Forget(at, len)),
        1 => Just(Step::Reopen),
    ]
}

/// A paged file and what it should hold.
struct Pair {
    fs: MemoryFs,
    cache: Arc<PageCache>,
    file: Option<PagedFile>,
    model: Vec<u8>,
    views: Vec<(Range<usize>, View, Vec<u8>)>,
    fill: u8,
}

impl Pair {
    fn file(&self) -> &PagedFile {
        self.file.as_ref().unwrap()
    }

    /// Views of what is going to be changed are given up, as the law of files has it.
    fn give_up_views(&mut self, changed: Range<usize>) {
        self.views.retain(|(range, ..)| range.end <= changed.start || changed.end <= range.start);
    }

    fn write(&mut self, at: usize, parts: &[usize]) {
        self.fill = self.fill.wrapping_add(1);
        let len: usize = parts.iter().sum();
        self.give_up_views(at..at + len);
        let bytes: Vec<u8> = (0..len).map(|i| self.fill.wrapping_add(i as u8) | 1).collect();
        let mut rest = &bytes[..];
        let slices: Vec<_> = parts
            .iter()
            .map(|len| {
                let (part, back) = rest.split_at(*len);
                rest = back;
                IoSlice::new(part)
            })
            .collect();
        self.file().write_vectored_at(at as u64, &slices).unwrap();
        if len > 0 {
            let end = self.model.len().max(at + len);
            self.model.resize(end, 0);
            self.model[at..at + len].copy_from_slice(&bytes);
        }
    }

    fn range(&self, at: usize, len: usize) -> Range<usize> {
        let start = at.min(self.model.len());
        start..(start + len).min(self.model.len())
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Write(at, len) => self.write(*at, &[*len]),
            Step::WriteParts(at, parts) => self.write(*at, parts),
            Step::Append(len) => self.write(self.model.len(), &[*len]),
            Step::Read(at, len) => {
                let range = self.range(*at, *len);
                let mut bytes = vec![0xee; range.len()];
                self.file().read_at(range.start as u64, &mut bytes).unwrap();
                assert_eq!(bytes, self.model[range]);
            }
            Step::View(at, len) => {
                let range = self.range(*at, *len);
                let view = self.file().view(range.start as u64..range.end as u64).unwrap();
                let expected = self.model[range.clone()].to_vec();
                assert_eq!(*view, expected);
                self.views.push((range, view, expected));
            }
            Step::DropViews => self.views.truncate(1),
            Step::Truncate(len) => {
                self.give_up_views(*len..usize::MAX);
                self.file().truncate(*len as u64).unwrap();
                self.model.resize(*len, 0);
            }
            Step::Allocate(len) => {
                self.file().allocate(*len as u64).unwrap();
                self.model.resize(self.model.len().max(*len), 0);
            }
            Step::Flush => {
                self.file().flush().unwrap();
                assert_eq!(below(&self.fs, "a"), self.model);
            }
            Step::Sync => {
                self.file().sync().unwrap();
                assert_eq!(below(&self.fs, "a"), self.model);
            }
            Step::Forget(at, len) => {
                self.file().advise(*at as u64..(at + len) as u64, Hint::DontNeed);
            }
            Step::Reopen => {
                self.file = None;
                assert_eq!(below(&self.fs, "a"), self.model);
                self.file = Some(open(&self.fs, "a", &self.cache));
            }
        }
        assert_eq!(self.file().len().unwrap(), self.model.len() as u64);
        assert!(self.file().view(0..self.model.len() as u64 + 1).is_err());
        for (_, view, expected) in &self.views {
            assert_eq!(**view, *expected, "a view has changed");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn files_behave_like_vectors(
        pages in prop::sample::select(vec![1, 2, 7, 64]),
        steps in prop::collection::vec(step(40 * BLOCK), 1..80),
    ) {
        let (fs, cache) = (MemoryFs::new(), cache(pages));
        let file = Some(create(&fs, "a", &cache));
        let mut pair = Pair { fs, cache, file, model: Vec::new(), views: Vec::new(), fill: 0 };
        for step in &steps {
            pair.run(step);
        }
        assert_eq!(content(pair.file()), pair.model);
        pair.file = None;
        assert_eq!(below(&pair.fs, "a"), pair.model);
        for (_, view, expected) in &pair.views {
            assert_eq!(**view, *expected, "a view has changed after the file was closed");
        }
    }
}

#[test]
fn a_run_is_read_with_one_call() {
    let fs = MemoryFs::new();
    let cache = cache(64);
    let file = filled(&fs, 64, &cache);
    let before = (file.stats().reads, cache.stats());
    assert_eq!(file.view(0..16 * BLOCK as u64).unwrap()[15 * BLOCK], 15);
    assert_eq!(file.stats().reads - before.0, 1);
    let mut part = [0; 3 * BLOCK];
    file.read_at(100, &mut part).unwrap();
    view(&file, 15).unwrap();
    let since = cache.stats() - before.1;
    let expected = PageCacheStats { requests: 3, hits: 2, read_pages: 16, ..since };
    assert_eq!((since, file.stats().reads - before.0), (expected, 1));
    // Around a page that is there: two runs.
    view(&file, 20).unwrap();
    file.view(18 * BLOCK as u64..24 * BLOCK as u64).unwrap();
    assert_eq!(file.stats().reads - before.0, 4);
}

#[test]
fn neighbours_are_written_with_one_call() {
    let fs = MemoryFs::new();
    let cache = cache(64);
    let file = create(&fs, "a", &cache);
    for page in (0..16).rev() {
        file.write_at(page * BLOCK as u64, &[page as u8; BLOCK]).unwrap();
    }
    assert_eq!((file.stats().reads, file.stats().writes), (0, 0));
    file.flush().unwrap();
    assert_eq!((file.stats().reads, file.stats().writes), (0, 1));
    file.flush().unwrap();
    assert_eq!((file.stats().writes, cache.stats().written_pages), (1, 16));
    // Driving one of them out takes its neighbours along.
    for page in 0..16 {
        file.write_at(page * BLOCK as u64 + 7, b"x").unwrap();
    }
    let other = create(&fs, "b", &cache);
    for page in 0..64 {
        other.write_at(page * BLOCK as u64, &[1; BLOCK]).unwrap();
    }
    assert_eq!((file.stats().reads, file.stats().writes), (0, 2));
    assert!(cache.stats().evictions >= 16);
}

#[test]
fn only_what_is_kept_is_read_before_it_is_changed() {
    let fs = MemoryFs::new();
    let cache = cache(8);
    let file = filled(&fs, 4, &cache);
    file.write_at(BLOCK as u64, &[9; 2 * BLOCK]).unwrap();
    file.write_at(4 * BLOCK as u64 + 100, b"behind the end").unwrap();
    let parts = [IoSlice::new(&[3; 100]), IoSlice::new(&[4; BLOCK - 100])];
    file.write_vectored_at(0, &parts).unwrap();
    assert_eq!(file.stats().reads, 0);
    file.write_at(3 * BLOCK as u64 + 1, b"x").unwrap();
    assert_eq!(file.stats().reads, 1);
    file.sync().unwrap();
    assert_eq!(below(&fs, "a"), content(&file));
    assert_eq!(file.len().unwrap(), 4 * BLOCK as u64 + 114);
}

#[test]
fn long_reads_and_writes_go_around_and_see_what_is_dirty() {
    let fs = MemoryFs::new();
    let cache = cache(8);
    let file = filled(&fs, 40, &cache);
    file.write_at(20 * BLOCK as u64 + 5, b"dirty").unwrap();
    let before = file.stats().reads;
    let mut expected = below(&fs, "a");
    expected[20 * BLOCK + 5..][..5].copy_from_slice(b"dirty");
    assert_eq!(content(&file), expected);
    assert_eq!(file.stats().reads - before, 2, "one for each missing run");
    let writes = file.stats().writes;
    file.write_at(0, &[7; 40 * BLOCK]).unwrap();
    assert_eq!(file.stats().writes - writes, 2);
    assert_eq!(content(&file), [7; 40 * BLOCK]);
    file.flush().unwrap();
    assert_eq!(below(&fs, "a"), [7; 40 * BLOCK]);
}

#[test]
fn a_scan_drives_nothing_out_that_is_used() {
    let fs = MemoryFs::new();
    let cache = cache(100);
    let file = filled(&fs, 3000, &cache);
    let hot = 0..60;
    for _ in 0..3 {
        hot.clone().for_each(|page| drop(view(&file, page).unwrap()));
    }
    // Record by record: each page is used several times in a row.
    for record in 0..2900 * 4 {
        let start = (100 * BLOCK + record * (BLOCK / 4)) as u64;
        file.view(start..start + 100).unwrap();
    }
    let before = cache.stats();
    hot.clone().for_each(|page| assert_eq!(view(&file, page).unwrap()[0], page as u8));
    assert_eq!((cache.stats() - before).hits, 60);
}

#[test]
fn a_ghost_that_comes_back_stays() {
    let fs = MemoryFs::new();
    let cache = cache(20);
    let file = filled(&fs, 200, &cache);
    let scan = |pages: Range<usize>| pages.for_each(|page| drop(view(&file, page).unwrap()));
    scan(0..40);
    scan(10..15);
    scan(50..150);
    let before = cache.stats();
    scan(10..15);
    assert_eq!((cache.stats() - before).hits, 5);
}

#[test]
fn with_every_frame_pinned_files_still_work() {
    let fs = MemoryFs::new();
    for pages in [1, 3] {
        let cache = cache(pages);
        let name = pages.to_string();
        let file = create(&fs, &name, &cache);
        let mut expected: Vec<u8> = (0..10 * BLOCK).map(|at| (at / 100) as u8).collect();
        file.write_at(0, &expected).unwrap();
        file.flush().unwrap();
        let pins: Vec<View> = (0..pages).map(|page| view(&file, page).unwrap()).collect();
        assert_eq!(content(&file), expected);
        assert_eq!(*view(&file, 8).unwrap(), expected[8 * BLOCK..9 * BLOCK]);
        let writes = [(5 * BLOCK + 100, 50), (4 * BLOCK, BLOCK), (7 * BLOCK - 10, 3000)];
        for (at, len) in writes {
            file.write_at(at as u64, &vec![0xaa; len]).unwrap();
            expected.resize(expected.len().max(at + len), 0);
            expected[at..at + len].fill(0xaa);
        }
        assert_eq!(content(&file), expected);
        drop(file);
        assert_eq!(below(&fs, &name), expected);
        // The file is closed, its pages are still lent: they are used again only when they are not.
        let other = create(&fs, &format!("{name}-other"), &cache);
        other.write_at(0, &[1; 5 * BLOCK]).unwrap();
        assert_eq!(content(&other), [1; 5 * BLOCK]);
        for (page, pin) in pins.iter().enumerate() {
            assert_eq!(**pin, expected[page * BLOCK..(page + 1) * BLOCK]);
        }
        drop(pins);
        view(&other, 1).unwrap();
        let before = cache.stats();
        view(&other, 1).unwrap();
        assert_eq!((cache.stats() - before).hits, 1);
        drop((other, cache));
    }
}

#[test]
fn a_view_outlives_the_cache() {
    let fs = MemoryFs::new();
    let cache = cache(2);
    let file = filled(&fs, 4, &cache);
    let view = view(&file, 3).unwrap();
    drop((file, cache));
    assert_eq!(*view, [3; BLOCK]);
}

#[test]
fn a_failed_read_leaves_nothing() {
    let fs = FaultFs::new(Arc::new(MemoryFs::new()));
    let cache = cache(8);
    let file = filled(&fs, 8, &cache);
    fs.arm(Fault::new(Operation::Read, Effect::FailShort(100, EIO)));
    assert_eq!(view(&file, 3).unwrap_err().kind(), ErrorKind::Io);
    fs.arm(Fault::new(Operation::Read, Effect::FailShort(700, EIO)));
    assert_eq!(file.view(0..2 * BLOCK as u64).unwrap_err().kind(), ErrorKind::Io);
    fs.arm(Fault::new(Operation::Read, Effect::Fail(EIO)));
    assert_eq!(file.write_at(5, b"part of a page").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(fs.fired(), 3);
    for page in 0..8 {
        assert_eq!(*view(&file, page).unwrap(), [page as u8; BLOCK]);
    }
}

#[test]
fn a_page_that_cannot_be_written_back_stays_dirty() {
    let fs = FaultFs::new(Arc::new(MemoryFs::new()));
    let cache = cache(4);
    let file = filled(&fs, 8, &cache);
    (0..4).for_each(|page| file.write_at(page * BLOCK as u64, b"dirty").unwrap());
    fs.arm(Fault { times: Times::Always, ..Fault::new(Operation::Write, Effect::Fail(EIO)) });
    // Reading goes on: what is read finds no frame, or a clean one.
    (4..8).chain([5, 4]).for_each(|page| assert_eq!(view(&file, page).unwrap()[0], page as u8));
    let failed = fs.fired();
    assert_eq!(file.write_at(7 * BLOCK as u64, b"x").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(file.flush().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(file.truncate(3).unwrap_err().kind(), ErrorKind::Io);
    assert!(failed > 0 && failed <= 6, "{failed}");
    (0..4).for_each(|page| assert_eq!(&view(&file, page).unwrap()[..5], b"dirty"));
    fs.disarm();
    assert_eq!(view(&file, 6).unwrap()[0], 6);
    file.flush().unwrap();
    assert_eq!(below(&fs, "a"), content(&file));
    fs.arm(Fault::new(Operation::Sync, Effect::Fail(EIO)));
    assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Io);
    file.sync().unwrap();
}

#[test]
fn what_a_failed_write_leaves_behind_the_end_is_cut_off() {
    let fs = FaultFs::new(Arc::new(MemoryFs::new()));
    let cache = cache(8);
    let file = filled(&fs, 2, &cache);
    let before = content(&file);
    fs.arm(Fault::new(Operation::Write, Effect::FailShort(700, EIO)));
    let error = file.write_at(2 * BLOCK as u64, &[9; 4 * BLOCK]).unwrap_err();
    assert_eq!((error.kind(), fs.fired()), (ErrorKind::Io, 1));
    assert_eq!(below(&fs, "a").len(), 2 * BLOCK + 700);
    assert_eq!(content(&file), before);
    file.flush().unwrap();
    assert_eq!(below(&fs, "a"), before);
}

#[test]
fn what_a_failed_write_leaves_behind_the_end_is_not_what_is_allocated_there() {
    let fs = FaultFs::new(Arc::new(MemoryFs::new()));
    let cache = cache(8);
    let file = filled(&fs, 2, &cache);
    let before = content(&file);
    fs.arm(Fault::new(Operation::Write, Effect::FailShort(700, EIO)));
    file.write_at(2 * BLOCK as u64, &[9; 4 * BLOCK]).unwrap_err();
    file.allocate(4 * BLOCK as u64).unwrap();
    assert_eq!(content(&file), [before, vec![0; 2 * BLOCK]].concat());
}

#[test]
fn readers_of_a_page_share_one_read_and_others_pass() {
    let fs = FaultFs::new(Arc::new(MemoryFs::new()));
    let cache = cache(8);
    let file = filled(&fs, 8, &cache);
    view(&file, 5).unwrap();
    let reads = fs.calls(Operation::Read);
    fs.arm(Fault::new(Operation::Read, Effect::Delay(Duration::from_millis(100))));
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| view(&file, 3))).collect();
        while fs.calls(Operation::Read) == reads {
            thread::yield_now();
        }
        view(&file, 5).unwrap();
        view(&file, 6).unwrap();
        assert!(cache.pin(Key { page: 3, ..id(&cache) }, 0).is_none(), "the others did not wait");
        for reader in readers {
            assert_eq!(*reader.join().unwrap().unwrap(), [3; BLOCK]);
        }
    });
    assert_eq!(fs.calls(Operation::Read), reads + 2);
}

/// The first page of the only open file.
fn id(cache: &PageCache) -> Key {
    Key { file: *cache.directory().files.keys().next().unwrap(), page: 0 }
}

/// Somebody else's error may be that of another page, or of another call: each reader has its own.
#[test]
fn who_waits_for_a_failed_read_tries_for_themselves() {
    let memory = MemoryFs::new();
    let fs = FaultFs::new(Arc::new(memory));
    let cache = cache(8);
    let file = filled(&fs, 8, &cache);
    let wait = |claim: claim::Claim<'_>, outcomes: [(usize, Option<ErrorKind>); 3]| {
        thread::scope(|scope| {
            let file = &file;
            let readers = outcomes.map(|(page, _)| scope.spawn(move || view(file, page)));
            // The map has it twice, the claim once; each reader once when it waits.
            let key = Key { page: 2, ..id(&cache) };
            let flight = Arc::clone(&cache.directory().flights[&key]);
            while Arc::strong_count(&flight) < 1 + 3 + readers.len() {
                thread::yield_now();
            }
            drop(flight);
            drop(claim);
            for (reader, (page, error)) in readers.into_iter().zip(outcomes) {
                match (reader.join().unwrap(), error) {
                    (Ok(view), None) => assert_eq!(view[0], page as u8),
                    (outcome, error) => assert_eq!(outcome.err().map(|error| error.kind()), error),
                }
            }
        });
    };
    let claim = || match cache.claim(id(&cache).file, 2..4) {
        claim::Claimed::Mine(claim) => claim,
        _ => panic!("they are missing"),
    };
    wait(claim(), [(2, None), (3, None), (2, None)]);
    file.advise(0..u64::MAX, Hint::DontNeed);
    fs.arm(Fault { times: Times::Always, ..Fault::new(Operation::Read, Effect::Fail(EIO)) });
    wait(claim(), [(2, Some(ErrorKind::Io)), (3, Some(ErrorKind::Io)), (2, Some(ErrorKind::Io))]);
    fs.disarm();
    assert_eq!(view(&file, 3).unwrap()[0], 3);
}

/// A page that cannot be read fails those who want it, and not those who want its neighbour.
#[test]
fn a_bad_page_is_the_error_of_who_wants_it() {
    let fs = MemoryFs::new();
    let cache = cache(64);
    drop(filled(&fs, 64, &cache));
    let inner = fs.open(Path::new("a"), Access::Write, Layer::default()).unwrap();
    let bad = Arc::new(Bad { inner, byte: 5 * BLOCK as u64 });
    let file = PagedFile::new(bad, Arc::clone(&cache)).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            let file = &file;
            scope.spawn(move || {
                for _ in 0..300 {
                    let mut all = vec![0; 16 * BLOCK];
                    assert_eq!(file.read_at(0, &mut all).unwrap_err().kind(), ErrorKind::Io);
                    file.advise(0..u64::MAX, Hint::DontNeed);
                }
            });
            scope.spawn(move || {
                for _ in 0..300 {
                    assert_eq!(view(file, 6).unwrap()[0], 6);
                    file.advise(0..u64::MAX, Hint::DontNeed);
                }
            });
        }
    });
}

#[test]
fn truncation_leaves_zeros_and_hints_free_pages() {
    let fs = MemoryFs::new();
    let cache = cache(8);
    let file = filled(&fs, 4, &cache);
    file.write_at(2 * BLOCK as u64, &[9; BLOCK]).unwrap();
    file.truncate(2 * BLOCK as u64 + 10).unwrap();
    file.write_at(3 * BLOCK as u64, b"!").unwrap();
    let mut expected = [[0; BLOCK], [1; BLOCK], [0; BLOCK]].concat();
    expected[2 * BLOCK..2 * BLOCK + 10].fill(9);
    expected.push(b'!');
    assert_eq!(content(&file), expected);
    file.advise(0..u64::MAX, Hint::DontNeed);
    let before = cache.stats();
    assert_eq!(content(&file), expected);
    assert_eq!((cache.stats() - before).hits, 0);
    assert_eq!((file.alignment(), file.lends()), (BLOCK, false));
}

#[test]
fn many_threads_write_and_read_parts_of_the_same_pages() {
    const PART: usize = 100;
    const PARTS: usize = 200;
    let fs = MemoryFs::new();
    for pages in [2, 16, 128] {
        let cache = cache(pages);
        let name = pages.to_string();
        let file = create(&fs, &name, &cache);
        file.write_at(0, &[0; PARTS * PART]).unwrap();
        let end = Instant::now() + Duration::from_millis(400);
        let stop = AtomicBool::new(false);
        let last: Vec<u8> = thread::scope(|scope| {
            let writers: Vec<_> = (0..4usize)
                .map(|thread| {
                    let file = &file;
                    scope.spawn(move || write_own_parts(file, thread, end, PART, PARTS))
                })
                .collect();
            // Another file of the same cache, and flushes, meanwhile.
            scope.spawn(|| {
                let other = create(&fs, &format!("{name}-other"), &cache);
                let mut page = 0;
                while !stop.load(Relaxed) {
                    page = (page + 7) % 50;
                    other.write_at(page * BLOCK as u64, &[page as u8; BLOCK]).unwrap();
                    assert_eq!(*view(&other, page as usize).unwrap(), [page as u8; BLOCK]);
                    if page == 0 {
                        file.flush().unwrap();
                        other.truncate(25 * BLOCK as u64).unwrap();
                    }
                }
            });
            let last = writers.into_iter().map(|writer| writer.join()).collect::<Vec<_>>();
            stop.store(true, Relaxed);
            last.into_iter().map(Result::unwrap).collect()
        });
        let expected: Vec<u8> = (0..PARTS).flat_map(|part| [last[part % 4]; PART]).collect();
        assert_eq!(content(&file), expected);
        drop(file);
        assert_eq!(below(&fs, &name), expected);
    }
}

/// Writes and reads every fourth part until `end`; what all of them hold at last.
fn write_own_parts(
    file: &PagedFile,
    thread: usize,
    end: Instant,
    part_len: usize,
    parts: usize,
) -> u8 {
    let mut value = 0u8;
    while Instant::now() < end {
        let next = value.wrapping_add(1);
        for part in (thread..parts).step_by(4) {
            let start = (part * part_len) as u64;
            let old = file.view(start..start + part_len as u64).unwrap();
            assert!(old.iter().all(|byte| *byte == value), "{old:?}");
            drop(old);
            file.write_at(start, &vec![next; part_len]).unwrap();
            let mut bytes = vec![0; part_len];
            file.read_at(start, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == next));
        }
        value = next;
    }
    value
}
