//! Batches over files that are never in memory, that fail, and that panic.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use proptest::prelude::*;

use super::super::{Access, DiskFs, Fs, Hint, IoStats, Layer, LayeredFs, MemoryFs, RawRead};
use super::*;
use crate::error::{Error, ErrorKind};

/// A file that has nothing in memory, and tells how it is read.
#[derive(Debug)]
struct ColdFile {
    inner: Arc<dyn File>,
    /// The ranges that were viewed.
    views: Mutex<Vec<Range<u64>>>,
    /// Reads of this byte fail.
    bad: Option<u64>,
    /// Reads of this byte panic.
    panics: Option<u64>,
    shares: bool,
    pause: Duration,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    raw: AtomicBool,
}

impl ColdFile {
    fn new(inner: Arc<dyn File>) -> Self {
        Self {
            inner,
            views: Mutex::default(),
            bad: None,
            panics: None,
            shares: false,
            pause: Duration::ZERO,
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            raw: AtomicBool::new(false),
        }
    }

    fn views(&self) -> Vec<Range<u64>> {
        let mut views = self.views.lock().unwrap().clone();
        views.sort_by_key(|range| range.start);
        views
    }
}

impl File for ColdFile {
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
    fn shares(&self) -> bool {
        self.shares
    }
    fn view(&self, range: Range<u64>) -> Result<View> {
        self.views.lock().unwrap().push(range.clone());
        let now = self.at_once.fetch_add(1, SeqCst) + 1;
        self.most_at_once.fetch_max(now, SeqCst);
        std::thread::sleep(self.pause);
        self.at_once.fetch_sub(1, SeqCst);
        assert!(!self.panics.is_some_and(|byte| range.contains(&byte)), "told to panic");
        match self.bad.filter(|byte| range.contains(byte)) {
            Some(byte) => Err(Error::corruption(self.path(), byte, "told to fail")),
            None => self.inner.view(range),
        }
    }
    fn try_view(&self, _: Range<u64>) -> Result<Option<View>> {
        Ok(None)
    }
    fn raw_read(&self, range: Range<u64>) -> Option<RawRead<'_>> {
        self.inner.raw_read(range).inspect(|_| self.raw.store(true, SeqCst))
    }
    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}

const LEN: u64 = 1 << 20;

/// The bytes that stand at `range` in every file of these tests.
fn expected(range: Range<u64>) -> Vec<u8> {
    range.map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

fn filled(fs: &dyn Fs, path: &Path) -> Arc<dyn File> {
    let file = fs.create(path, Layer::Positional).unwrap();
    file.write_at(0, &expected(0..LEN)).unwrap();
    file
}

fn in_memory() -> Arc<dyn File> {
    filled(&MemoryFs::new(), Path::new("file"))
}

fn requests(
    file: &Arc<ColdFile>,
    ranges: impl IntoIterator<Item = Range<u64>>,
) -> Vec<ReadRequest> {
    let file: Arc<dyn File> = Arc::clone(file) as _;
    let request = |range| ReadRequest { file: Arc::clone(&file), range };
    ranges.into_iter().map(request).collect()
}

fn check(requests: &[ReadRequest], answers: &[Result<View>]) {
    assert_eq!(requests.len(), answers.len());
    for (request, answer) in requests.iter().zip(answers) {
        assert_eq!(&**answer.as_ref().unwrap(), expected(request.range.clone()), "{request:?}");
    }
}

#[test]
fn neighbours_are_read_together() {
    let reader = BatchReader::new(4);
    let read = |ranges: &[(u64, u64)]| {
        let file = Arc::new(ColdFile::new(in_memory()));
        let requests = requests(&file, ranges.iter().map(|&(start, end)| start..end));
        check(&requests, &reader.read(&requests));
        file.views().into_iter().map(|range| (range.start, range.end)).collect::<Vec<_>>()
    };
    assert_eq!(read(&[]), []);
    assert_eq!(read(&[(5, 9)]), [(5, 9)]);
    assert_eq!(read(&[(4096, 8192), (0, 4096)]), [(0, 8192)], "touching");
    assert_eq!(read(&[(100, 300), (200, 250), (100, 300)]), [(100, 300)], "inside");
    assert_eq!(read(&[(8192, 9000), (0, 4096)]), [(0, 9000)], "with one block between");
    assert_eq!(read(&[(8193, 9000), (0, 4096)]), [(0, 4096), (8193, 9000)], "with more between");
    assert_eq!(read(&[(9, 9), (0, 5)]), [(0, 9)], "nothing is a neighbour too");
    let blocks: Vec<_> = (0..100).map(|block| (block * 4096, (block + 1) * 4096)).collect();
    let runs = [(0, 256 << 10), (256 << 10, 400 << 10)];
    assert_eq!(read(&blocks), runs, "up to the largest read");
    let large = (0, 700 << 10);
    assert_eq!(read(&[large, large, (8, 9)]), [large], "what is larger anyway");
}

/// What lies between may be written to meanwhile, and the memory of a page cache must not be read then.
#[test]
fn what_lies_between_is_not_read_out_of_shared_memory() {
    let reader = BatchReader::new(4);
    let file = Arc::new(ColdFile { shares: true, ..ColdFile::new(in_memory()) });
    let requests = requests(&file, [0..4096, 8192..12288, 12288..16384, 16385..16400]);
    check(&requests, &reader.read(&requests));
    assert_eq!(file.views(), [0..4096, 8192..16384, 16385..16400]);
}

#[test]
fn what_is_read_together_is_not_kept_together() {
    let reader = BatchReader::new(1);
    let file = Arc::new(ColdFile::new(in_memory()));
    let answers = reader.read(&requests(&file, [0..10, 10..20]));
    let [first, second] = &answers[..] else { panic!("two answers") };
    let (first, second) = (first.as_ref().unwrap(), second.as_ref().unwrap());
    assert_ne!(first.as_ptr_range().end, second.as_ptr(), "they are copies");
}

#[test]
fn files_are_kept_apart() {
    let reader = BatchReader::new(4);
    let files: Vec<_> = (0..3).map(|_| Arc::new(ColdFile::new(in_memory()))).collect();
    let starts = |file: u64| (0..20).map(move |i| (i * 7 % 20 * 3 + file) * 4096);
    let parts = (0..)
        .zip(&files)
        .map(|(number, file)| requests(file, starts(number).map(|start| start..start + 4096)));
    let requests: Vec<ReadRequest> = parts.flatten().collect();
    check(&requests, &reader.read(&requests));
    assert!(files.iter().all(|file| !file.views().is_empty()));
}

#[test]
fn reads_are_in_flight_together_and_threads_end() {
    let mut file = ColdFile::new(in_memory());
    file.pause = Duration::from_millis(20);
    let file = Arc::new(file);
    let reader = BatchReader::new(7);
    let requests = requests(&file, (0..16).map(|i| i * 60_000..i * 60_000 + 100));
    for _ in 0..3 {
        check(&requests, &reader.read(&requests));
    }
    let most = file.most_at_once.load(SeqCst);
    assert!((2..=8).contains(&most), "{most} at once");
    drop(requests);
    drop(reader);
    assert_eq!(Arc::strong_count(&file), 1, "nobody holds the file any longer");
}

#[test]
fn many_callers_share_the_threads() {
    let file = Arc::new(ColdFile::new(in_memory()));
    let reader = BatchReader::new(3);
    std::thread::scope(|scope| {
        for caller in 0..6_u64 {
            let (file, reader) = (&file, &reader);
            scope.spawn(move || {
                for round in 0..50 {
                    let start = |i: u64| (i * 37 + caller * 11 + round) % 100 * 9000;
                    let requests = requests(file, (0..20).map(|i| start(i)..start(i) + 50));
                    check(&requests, &reader.read(&requests));
                }
            });
        }
    });
}

#[test]
fn an_error_concerns_what_it_is_about() {
    let mut file = ColdFile::new(in_memory());
    file.bad = Some(5000);
    let file = Arc::new(file);
    let reader = BatchReader::new(4);
    #[expect(clippy::reversed_empty_ranges, reason = "what is to be refused")]
    let ranges =
        [0..4096, 4096..8192, 8192..9000, 500_000..500_010, LEN - 5..LEN + 1, 40..30, LEN - 5..LEN];
    let requests = requests(&file, ranges);
    let answers = reader.read(&requests);
    for at in [0, 2, 3, 6] {
        check(&requests[at..=at], &answers[at..=at]);
    }
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::Corruption);
    for at in [4, 5] {
        assert_eq!(answers[at].as_ref().unwrap_err().kind(), ErrorKind::Io);
    }
}

#[test]
fn a_panic_goes_to_the_caller_and_no_further() {
    let mut file = ColdFile::new(in_memory());
    file.panics = Some(60_000);
    let file = Arc::new(file);
    let reader = BatchReader::new(2);
    let batch = |count| requests(&file, (0..count).map(|i| i * 30_000..i * 30_000 + 100));
    let read = std::panic::AssertUnwindSafe(|| reader.read(&batch(10)));
    std::panic::catch_unwind(read).expect_err("the panic of a read");
    check(&batch(2), &reader.read(&batch(2)));
}

#[test]
fn a_file_on_disk_is_read_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let disk = filled(&DiskFs::new(), &dir.path().join("file"));
    let file = Arc::new(ColdFile::new(Arc::clone(&disk)));
    let reader = BatchReader::new(4);
    // More than the depth, some of them merged; the last ones reach behind the end.
    let starts = (0..40).map(|i| i * 13 % 40 * 26_000);
    let ranges: Vec<_> =
        starts.flat_map(|start| [start..start + 700, start + 800..start + 900]).collect();
    let requests = requests(&file, ranges.into_iter().chain([LEN..LEN, LEN - 9..LEN + 9]));
    let mut answers = reader.read(&requests);
    assert_eq!(answers.pop().unwrap().unwrap_err().kind(), ErrorKind::Io);
    check(&requests[..requests.len() - 1], &answers);
    assert_eq!(file.raw.load(SeqCst), cfg!(feature = "io-uring"));
}

#[test]
fn what_the_page_cache_has_is_served_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = filled(&DiskFs::new(), &dir.path().join("file"));
    // Whether there is anything to be had at once is up to the file system.
    if let Some(view) = file.try_view(5000..9000).unwrap() {
        assert_eq!(&*view, expected(5000..9000));
    }
    assert!(file.try_view(LEN - 5..LEN + 5).unwrap().is_none(), "behind the end");
    assert!(file.try_view(u64::MAX - 5..u64::MAX).unwrap().is_none());
    assert!(file.try_view(0..2 << 20).unwrap().is_none(), "a length that nobody vouches for");
    assert!(file.try_view(LEN + 5..LEN + 5).unwrap().is_none_or(|view| view.is_empty()));
    let file: Arc<dyn File> = file;
    let request = |range| ReadRequest { file: Arc::clone(&file), range };
    let requests: Vec<_> = (0..50).map(|i| request(i * 20_000..i * 20_000 + 4096)).collect();
    check(&requests, &BatchReader::new(2).read(&requests));
}

#[test]
fn what_a_page_cache_lacks_is_served_at_once_from_below() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let is_at_hand = {
        let file = filled(&DiskFs::new(), &path);
        file.is_at_hand(5000..5100) && file.try_view(5000..5100).unwrap().is_some()
    };
    let open =
        |layer| LayeredFs::new(Arc::new(DiskFs::new())).open(&path, Access::Read, layer).unwrap();
    let pages = open(Layer::BlockCache { block_size: 1024, pages: 64 });
    for range in [5000..5100, 6000..9000, LEN - 9..LEN] {
        let found = pages.try_view(range.clone()).unwrap();
        // Whether there is anything to be had at once is up to the file system.
        assert_eq!(found.is_some(), is_at_hand, "{range:?}");
        assert!(found.is_none_or(|view| *view == *expected(range)));
    }
    assert!(pages.try_view(LEN - 5..LEN + 5).is_err(), "behind the end");
    if let Ok(direct) = LayeredFs::new(Arc::new(DiskFs::new())).open(
        &path,
        Access::Read,
        Layer::DirectCache { block_size: 4096, pages: 64 },
    ) {
        assert!(direct.try_view(5000..5100).unwrap().is_none(), "the device has to be asked");
    }
}

proptest! {
    #[test]
    fn any_ranges_give_their_bytes(
        ranges in proptest::collection::vec((0..LEN - 70_000, 0..70_000_u64), 0..40),
        depth in 0..5_usize,
    ) {
        let file = Arc::new(ColdFile::new(in_memory()));
        let requests = requests(&file, ranges.iter().map(|&(start, len)| start..start + len));
        check(&requests, &BatchReader::new(depth).read(&requests));
        prop_assert!(file.views().len() <= requests.len());
    }
}
