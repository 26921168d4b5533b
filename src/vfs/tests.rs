//! One suite over all file layers: they must behave alike.

use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use proptest::prelude::*;

use super::short_calls::ShortFs;
use super::*;
use crate::error::{Error, ErrorKind as Kind};

/// A file system, a layer of it, and a directory to work in.
struct Place {
    fs: Arc<dyn Fs>,
    layer: Layer,
    root: PathBuf,
    /// Removed with this; none in memory.
    _dir: Option<tempfile::TempDir>,
}

impl Place {
    fn on_disk(fs: Arc<dyn Fs>, layer: Layer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_path_buf();
        Self { fs, layer, root, _dir: Some(dir) }
    }

    fn in_memory(fs: Arc<dyn Fs>, layer: Layer) -> Self {
        let root = PathBuf::from("/db");
        fs.create_dir(&root).unwrap();
        Self { fs, layer, root, _dir: None }
    }

    /// Whether the file system has the layer; says so if not.
    fn is_offered(&self) -> bool {
        match self.fs.create(&self.path("probe"), self.layer) {
            Err(error) if error.kind() == Kind::Unsupported => {
                eprintln!("left out: {error}");
                false
            }
            created => {
                drop(created.unwrap());
                self.fs.remove(&self.path("probe")).unwrap();
                true
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn create(&self, name: &str) -> Arc<dyn File> {
        self.fs.create(&self.path(name), self.layer).unwrap()
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.fs.open(&self.path(name), access, self.layer)
    }
}

fn disk() -> Arc<dyn Fs> {
    Arc::new(DiskFs::new())
}

fn memory() -> Arc<dyn Fs> {
    Arc::new(MemoryFs::new())
}

fn faulty(inner: Arc<dyn Fs>) -> Arc<dyn Fs> {
    Arc::new(FaultFs::new(inner))
}

fn short() -> Arc<dyn Fs> {
    Arc::new(ShortFs::default())
}

fn layered(inner: Arc<dyn Fs>) -> Arc<dyn Fs> {
    Arc::new(LayeredFs::new(inner))
}

/// All layers, with blocks that are smaller and larger than what tests write, and with few pages.
fn layers() -> impl Iterator<Item = Layer> {
    let sized = |layer: Layer| {
        let sizes: &[u32] = if layer.block_size().is_some() { &[512, 4096, 65536] } else { &[0] };
        sizes.iter().map(move |&size| {
            let layer = layer.with_block_size(size).unwrap_or(layer);
            layer.with_page_cache_pages(8).unwrap_or(layer)
        })
    };
    Layer::ALL.into_iter().flat_map(sized)
}

/// Runs a test over every layer, naming the one that failed.
fn everywhere(test: impl Fn(&Place)) {
    let traced: Arc<dyn Fs> = Arc::new(MemoryFs::traced());
    let mut places = vec![
        ("disk", Place::on_disk(disk(), Layer::Positional)),
        ("disk", Place::on_disk(disk(), Layer::Mmap)),
        ("memory", Place::in_memory(memory(), Layer::default())),
        ("traced memory", Place::in_memory(traced, Layer::default())),
        ("fault", Place::in_memory(faulty(memory()), Layer::default())),
        ("fault over disk", Place::on_disk(faulty(disk()), Layer::Mmap)),
        ("short calls", Place::on_disk(short(), Layer::Positional)),
    ];
    for layer in layers() {
        places.push(("layers over disk", Place::on_disk(layered(disk()), layer)));
        places.push(("layers over short calls", Place::on_disk(layered(short()), layer)));
        places.push(("layers over memory", Place::in_memory(layered(memory()), layer)));
        let place = Place::in_memory(layered(faulty(memory())), layer);
        places.push(("layers over fault", place));
    }
    for (name, place) in places {
        eprintln!("{name}, {:?}", place.layer);
        if place.is_offered() {
            test(&place);
        }
    }
}

fn io_kind<T>(result: Result<T>) -> ErrorKind {
    match result.err().expect("an error") {
        Error::Io { source, .. } => source.kind(),
        other => panic!("not an I/O error: {other}"),
    }
}

fn content(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn writes_are_read_and_viewed() {
    everywhere(|place| {
        let file = place.create("a");
        assert!(file.is_empty().unwrap());
        file.write_at(0, b"hello").unwrap();
        file.write_at(10, b"world").unwrap();
        assert_eq!(content(&*file), b"hello\0\0\0\0\0world");
        assert_eq!(&*file.view(3..12).unwrap(), b"lo\0\0\0\0\0wo");
        file.write_vectored_at(15, &[IoSlice::new(b"!"), IoSlice::new(b""), IoSlice::new(b"?!")])
            .unwrap();
        assert_eq!(&*file.view(10..18).unwrap(), b"world!?!");
        file.sync().unwrap();
        let again = place.open("a", Access::Read).unwrap();
        assert_eq!(&*again.view(0..18).unwrap(), &content(&*file)[..]);
        assert_eq!(again.path(), place.path("a"));
    });
}

#[test]
fn nothing_is_read_behind_the_end() {
    everywhere(|place| {
        let file = place.create("a");
        file.write_at(0, &[1; 5000]).unwrap();
        for range in [0..5001, 4999..5001, 5000..5001, 9000..9001, 0..u64::MAX / 2, 5000..1 << 40] {
            assert_eq!(io_kind(file.view(range)), ErrorKind::UnexpectedEof);
        }
        assert_eq!(io_kind(file.read_at(4999, &mut [0; 2])), ErrorKind::UnexpectedEof);
        #[expect(clippy::reversed_empty_ranges, reason = "what is to be refused")]
        let reversed = 10..5;
        assert_eq!(io_kind(file.view(reversed)), ErrorKind::InvalidInput);
        assert_eq!(file.view(7..7).unwrap().len(), 0);
        assert_eq!(file.view(9000..9000).unwrap().len(), 0);
        file.read_at(9000, &mut []).unwrap();
        file.write_at(9000, &[]).unwrap();
        assert_eq!(file.len().unwrap(), 5000);
        assert_eq!(&*file.view(4999..5000).unwrap(), [1]);
    });
}

#[test]
fn an_empty_file_has_an_empty_view() {
    everywhere(|place| {
        let file = place.create("a");
        assert_eq!(file.view(0..0).unwrap().len(), 0);
        assert_eq!(io_kind(file.view(0..1)), ErrorKind::UnexpectedEof);
        file.advise(0..100, Hint::Random);
        file.allocate(0).unwrap();
        file.truncate(0).unwrap();
        assert!(file.is_empty().unwrap());
    });
}

#[test]
fn lengths_change_as_asked() {
    everywhere(|place| {
        let file = place.create("a");
        file.write_at(0, &[9; 10_000]).unwrap();
        file.allocate(5000).unwrap();
        assert_eq!(content(&*file), [9; 10_000]);
        file.allocate(20_000).unwrap();
        file.advise(0..20_000, Hint::WillWrite);
        file.advise(0..u64::MAX, Hint::WillWrite);
        assert_eq!(file.len().unwrap(), 20_000);
        assert_eq!(&*file.view(9999..10_002).unwrap(), [9, 0, 0]);
        file.write_at(19_998, b"ab").unwrap();
        file.write_at(19_999, b"bcd").unwrap();
        file.write_vectored_at(10_000, &[IoSlice::new(b"x"), IoSlice::new(b"yz")]).unwrap();
        assert_eq!(&*file.view(9999..10_004).unwrap(), b"\x09xyz\0");
        assert_eq!(&*file.view(19_998..20_002).unwrap(), b"abcd");
        file.truncate(100).unwrap();
        assert_eq!(io_kind(file.view(99..101)), ErrorKind::UnexpectedEof);
        file.write_at(200, b"z").unwrap();
        let mut expected = vec![9; 100];
        expected.resize(200, 0);
        expected.push(b'z');
        assert_eq!(content(&*file), expected);
        file.truncate(300).unwrap();
        expected.resize(300, 0);
        assert_eq!(&*file.view(0..300).unwrap(), expected);
    });
}

#[test]
fn hints_change_nothing() {
    everywhere(|place| {
        let file = place.create("a");
        let bytes: Vec<u8> = (0..50_000_u32).map(|i| i as u8).collect();
        file.write_at(0, &bytes).unwrap();
        let view = file.view(0..50_000).unwrap();
        for hint in
            [Hint::Random, Hint::Sequential, Hint::WillNeed, Hint::WillWrite, Hint::DontNeed]
        {
            file.advise(1000..40_000, hint);
            file.advise(0..1 << 60, hint);
            file.advise(1 << 40..1 << 41, hint);
            assert_eq!(*view, bytes);
            assert_eq!(content(&*file), bytes);
        }
    });
}

#[test]
fn a_read_handle_refuses_writes() {
    everywhere(|place| {
        place.create("a").write_at(0, b"kept").unwrap();
        let file = place.open("a", Access::Read).unwrap();
        assert_eq!(file.write_at(0, b"x").unwrap_err().kind(), Kind::Io);
        assert_eq!(file.write_vectored_at(0, &[IoSlice::new(b"x")]).unwrap_err().kind(), Kind::Io);
        assert_eq!(file.truncate(0).unwrap_err().kind(), Kind::Io);
        assert_eq!(file.allocate(10).unwrap_err().kind(), Kind::Io);
        assert_eq!(&*file.view(0..4).unwrap(), b"kept");
    });
}

#[test]
fn names_come_and_go() {
    everywhere(|place| {
        let Place { fs, layer, .. } = place;
        let path = |name| place.path(name);
        place.create("b").write_at(0, b"b").unwrap();
        place.create("a").write_at(0, b"a").unwrap();
        fs.create_dir(&path("sub/deep")).unwrap();
        fs.create_dir(&path("sub/deep")).unwrap();
        assert_eq!(fs.list(&place.root).unwrap(), ["a", "b", "sub"]);
        assert_eq!(fs.kind(&path("a")).unwrap(), Some(PathKind::File { len: 1 }));
        assert_eq!(fs.kind(&path("sub")).unwrap(), Some(PathKind::Directory));
        assert_eq!(fs.kind(&path("none")).unwrap(), None);
        assert_eq!(fs.kind(&path("a/none")).unwrap(), None);

        assert_eq!(io_kind(fs.create(&path("a"), *layer)), ErrorKind::AlreadyExists);
        assert_eq!(io_kind(fs.create(&path("none/a"), *layer)), ErrorKind::NotFound);
        assert_eq!(io_kind(place.open("none", Access::Read)), ErrorKind::NotFound);
        assert_eq!(io_kind(place.open("sub", Access::Read)), ErrorKind::IsADirectory);
        assert_eq!(io_kind(fs.remove(&path("none"))), ErrorKind::NotFound);
        assert_eq!(io_kind(fs.rename(&path("none"), &path("a"))), ErrorKind::NotFound);
        assert_eq!(io_kind(fs.list(&path("none"))), ErrorKind::NotFound);
        assert_eq!(io_kind(fs.sync_dir(&path("none"))), ErrorKind::NotFound);
        assert_eq!(io_kind(fs.remove_dir(&path("sub"))), ErrorKind::DirectoryNotEmpty);
        assert_eq!(io_kind(fs.remove_dir(&path("a"))), ErrorKind::NotADirectory);
        fs.create_dir(&path("a")).unwrap_err();

        fs.rename(&path("a"), &path("b")).unwrap();
        fs.rename(&path("b"), &path("b")).unwrap();
        assert_eq!(content(&*place.open("b", Access::Read).unwrap()), b"a");
        fs.rename(&path("b"), &path("sub/c")).unwrap();
        fs.sync_dir(&path("sub")).unwrap();
        assert_eq!(io_kind(fs.open_dir(&path("none")).map(drop)), ErrorKind::NotFound);
        let opened = fs.open_dir(&path("sub")).unwrap();
        (0..2).for_each(|_| opened.sync().unwrap());
        fs.sync_dir(&place.root).unwrap();
        assert_eq!(fs.list(&path("sub")).unwrap(), ["c", "deep"]);
        remove_leftover(&**fs, &path("sub/c")).unwrap();
        remove_leftover(&**fs, &path("sub/c")).expect("somebody else may have removed it");
        assert_eq!(io_kind(remove_leftover(&**fs, &path("sub"))), ErrorKind::IsADirectory);
        fs.remove_dir(&path("sub/deep")).unwrap();
        fs.remove_dir(&path("sub")).unwrap();
        assert_eq!(fs.list(&place.root).unwrap(), Vec::<String>::new());
    });
}

#[test]
fn a_view_outlives_its_file() {
    everywhere(|place| {
        let file = place.create("a");
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i * 7) as u8).collect();
        file.write_at(0, &bytes).unwrap();
        let view = file.view(10..90_000).unwrap();
        file.write_at(100_000, b"more").unwrap();
        let tail = file.view(99_999..100_004).unwrap();
        place.fs.remove(&place.path("a")).unwrap();
        let part = view.slice(100..200);
        drop(file);
        assert_eq!(*view, bytes[10..90_000]);
        drop(view);
        assert_eq!(*part, bytes[110..210]);
        assert_eq!(tail[1..], *b"more");
    });
}

#[test]
fn the_lock_keeps_others_out() {
    everywhere(|place| {
        let path = place.path("lock");
        let lock = |access| place.fs.lock(&path, access);
        let nobody = lock(Access::Read).unwrap();
        assert_eq!(place.fs.kind(&path).unwrap(), None);
        assert_eq!(lock(Access::Write).err().unwrap().kind(), Kind::Locked);
        drop(nobody);
        let owner = lock(Access::Write).unwrap();
        for access in [Access::Read, Access::Write] {
            match lock(access) {
                Err(Error::Locked { path }) => assert_eq!(path, place.root),
                other => panic!("{:?}", other.err()),
            }
        }
        drop(owner);
        let readers = (lock(Access::Read).unwrap(), lock(Access::Read).unwrap());
        assert_eq!(lock(Access::Write).err().unwrap().kind(), Kind::Locked);
        drop(readers.0);
        assert_eq!(lock(Access::Write).err().unwrap().kind(), Kind::Locked);
        drop(readers.1);
        lock(Access::Write).unwrap();
    });
}

#[test]
fn everything_is_counted() {
    everywhere(|place| {
        let before = place.fs.stats();
        let file = place.create("a");
        file.allocate(4096).unwrap();
        file.write_at(0, &[1; 100]).unwrap();
        file.write_vectored_at(5000, &[IoSlice::new(&[1; 30]), IoSlice::new(&[1; 20])]).unwrap();
        file.view(0..60).unwrap();
        file.read_at(0, &mut [0; 70]).unwrap();
        file.sync().unwrap();
        let stats = file.stats();
        let lent = place.layer == Layer::Mmap;
        let expected = IoStats {
            requests: 2,
            reads: if lent { 1 } else { 2 },
            read_bytes: if lent { 70 } else { 130 },
            writes: 2,
            written_bytes: 150,
            syncs: 1,
        };
        if place.layer.block_size().is_none() {
            assert_eq!(stats, expected);
        } else {
            // Whole blocks are moved, and those at the edges are read first.
            assert_eq!(stats.syncs, 1);
            assert!(stats.writes >= 1 && stats.written_bytes >= 150, "{stats:?}");
            let is_cached = place.layer.page_cache_pages().is_some();
            assert!(is_cached || (stats.reads >= 2 && stats.read_bytes >= 130), "{stats:?}");
        }
        let expected = stats;
        assert_eq!(place.fs.stats() - before, expected);
        drop(file);
        assert_eq!(place.fs.stats() - before, expected);
    });
}

#[test]
fn offsets_beyond_4_gib() {
    everywhere(|place| {
        let file = place.create("a");
        let far = (5 << 30) + 3;
        file.write_at(far, b"far away").unwrap();
        assert_eq!(file.len().unwrap(), far + 8);
        assert_eq!(&*file.view(far..far + 8).unwrap(), b"far away");
        file.write_vectored_at(far + 8, &[IoSlice::new(b" and"), IoSlice::new(b" on")]).unwrap();
        let mut bytes = [1; 17];
        file.read_at(far - 2, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0far away and on");
        file.truncate(far + 3).unwrap();
        assert_eq!(io_kind(file.view(far..far + 4)), ErrorKind::UnexpectedEof);
        assert_eq!(&*file.view(far..far + 3).unwrap(), b"far");
    });
}

#[test]
fn one_file_serves_many_threads() {
    everywhere(|place| {
        let file = place.create("a");
        file.allocate(64 << 10).unwrap();
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let file = &file;
                scope.spawn(move || {
                    for i in 0..100 {
                        let at = thread * 40_000 + i * 400;
                        file.write_at(at, &[thread as u8 + 1; 400]).unwrap();
                        assert_eq!(*file.view(at..at + 400).unwrap(), [thread as u8 + 1; 400]);
                    }
                });
            }
        });
        let expected: Vec<u8> = (0..160_000).map(|i| (i / 40_000) as u8 + 1).collect();
        assert_eq!(content(&*file), expected);
    });
}

/// Maps are retired under copies in flight: none of them may touch pages that are gone.
#[test]
fn cutting_a_file_off_waits_for_copies() {
    const HALF: u64 = 256 << 10;
    let place = Place::on_disk(disk(), Layer::Mmap);
    let file = place.create("a");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                file.write_at(HALF, &[3; HALF as usize]).unwrap();
            }
        });
        scope.spawn(|| {
            let mut buffer = vec![0; HALF as usize];
            while !done.load(Relaxed) {
                // There is not always that much to read.
                drop(file.read_at(0, &mut buffer));
            }
        });
        for _ in 0..150 {
            file.allocate(2 * HALF).unwrap();
            file.view(0..10).unwrap();
            thread::yield_now();
            file.truncate(0).unwrap();
        }
        done.store(true, Relaxed);
    });
}

#[test]
fn an_appender_writes_what_it_was_given() {
    everywhere(|place| {
        for buffer in [0, 1, 7, 64, 4096] {
            let name = format!("a{buffer}");
            let mut appender = Appender::new(place.create(&name), buffer);
            let mut expected = Vec::new();
            for i in 0..200_usize {
                let bytes = vec![i as u8; i * 7 % 150];
                if i % 3 == 0 {
                    let (a, b) = bytes.split_at(bytes.len() / 2);
                    appender.append_parts(&[IoSlice::new(a), IoSlice::new(b)]).unwrap();
                } else {
                    appender.append(&bytes).unwrap();
                }
                expected.extend(bytes);
                assert_eq!(appender.position(), expected.len() as u64);
                if i % 50 == 0 {
                    appender.flush().unwrap();
                    let file = place.open(&name, Access::Read).unwrap();
                    let written = expected.len() - expected.len() % file.alignment();
                    assert_eq!(content(&*file), expected[..written]);
                }
            }
            let file = appender.finish().unwrap();
            assert_eq!(content(&*file), expected);
        }
    });
}

#[derive(Clone, Debug)]
enum Action {
    Write(u64, Vec<u8>),
    WriteParts(u64, Vec<Vec<u8>>),
    Truncate(u64),
    Allocate(u64),
    Read(u64, usize),
    View(u64, u64),
}

fn action() -> impl Strategy<Value = Action> {
    let at = 0..20_000_u64;
    let bytes = || prop::collection::vec(any::<u8>(), 0..3000);
    prop_oneof![
        4 => (at.clone(), bytes()).prop_map(|(at, bytes)| Action::Write(at, bytes)),
        2 => (at.clone(), prop::collection::vec(bytes(), 0..4))
            .prop_map(|(at, parts)| Action::WriteParts(at, parts)),
        1 => at.clone().prop_map(Action::Truncate),
        1 => at.clone().prop_map(Action::Allocate),
        3 => (at.clone(), 0..9000_usize).prop_map(|(at, len)| Action::Read(at, len)),
        3 => (at, 0..9000_u64).prop_map(|(at, len)| Action::View(at, len)),
    ]
}

/// Does one action on a file and on the model; both must agree.
fn act(file: &dyn File, model: &mut Vec<u8>, action: &Action) {
    let mut write = |at: u64, bytes: &[u8]| {
        let end = at as usize + bytes.len();
        if !bytes.is_empty() {
            model.resize(model.len().max(end), 0);
            model[at as usize..end].copy_from_slice(bytes);
        }
    };
    match action {
        Action::Write(at, bytes) => {
            file.write_at(*at, bytes).unwrap();
            write(*at, bytes);
        }
        Action::WriteParts(at, parts) => {
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            file.write_vectored_at(*at, &slices).unwrap();
            write(*at, &parts.concat());
        }
        Action::Truncate(len) => {
            file.truncate(*len).unwrap();
            model.resize(*len as usize, 0);
        }
        Action::Allocate(len) => {
            file.allocate(*len).unwrap();
            model.resize(model.len().max(*len as usize), 0);
        }
        Action::Read(at, len) => {
            let mut buffer = vec![0xee; *len];
            let read = file.read_at(*at, &mut buffer).ok().map(|()| &buffer[..]);
            assert_eq!(read, expected(model, *at, *len));
        }
        Action::View(at, len) => {
            let view = file.view(*at..at + len).ok();
            assert_eq!(view.as_deref(), expected(model, *at, *len as usize));
        }
    }
}

fn expected(model: &[u8], at: u64, len: usize) -> Option<&[u8]> {
    if len == 0 { Some(&[]) } else { model.get(at as usize..at as usize + len) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_layer_agrees_with_a_vector(actions in prop::collection::vec(action(), 1..40)) {
        everywhere(|place| {
            let file = place.create("a");
            let mut model = Vec::new();
            for action in &actions {
                act(&*file, &mut model, action);
            }
            assert_eq!(content(&*file), model);
            assert_eq!(*file.view(0..model.len() as u64).unwrap(), model);
        });
    }
}

#[test]
fn a_relative_path_has_a_directory() {
    let fs = MemoryFs::new();
    fs.create(Path::new("a"), Layer::default()).unwrap();
    fs.create(Path::new("/b"), Layer::default()).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    assert_eq!(fs.list(Path::new("")).unwrap(), ["a"]);
    assert_eq!(fs.list(Path::new(".")).unwrap(), ["a"]);
    assert_eq!(fs.list(Path::new("/")).unwrap(), ["b"]);
}

#[test]
fn what_cannot_be_opened_is_not_created() {
    let path = Path::new("/a");
    let memory = MemoryFs::new();
    memory.refuse_direct(true);
    for fs in [layered(Arc::new(memory.clone())), layered(faulty(Arc::new(memory.clone())))] {
        for layer in [Layer::Direct { block_size: 4096 }, Layer::Direct { block_size: 512 }] {
            let error = fs.create(path, layer).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
            let text = error.to_string();
            assert!(
                text.starts_with("/a: ") && text.contains("choose another file layer"),
                "{text}"
            );
            assert_eq!(fs.kind(path).unwrap(), None);
        }
        fs.create(path, Layer::default()).unwrap();
        let error = fs.open(path, Access::Read, Layer::Direct { block_size: 512 }).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        fs.remove(path).unwrap();
    }
    let impossible = [
        Layer::Block { block_size: 1000 },
        Layer::Direct { block_size: 0 },
        Layer::Direct { block_size: 2 << 20 },
        Layer::BlockCache { block_size: 256, pages: 1 },
        Layer::DirectCache { block_size: 4096, pages: 0 },
    ];
    let dir = tempfile::tempdir().unwrap();
    for (fs, path) in
        [(layered(disk()), dir.path().join("a")), (layered(self::memory()), path.into())]
    {
        for layer in impossible {
            assert_eq!(fs.create(&path, layer).unwrap_err().kind(), Kind::Invalid);
            assert_eq!(fs.kind(&path).unwrap(), None);
        }
    }
    for fs in [disk(), self::memory()] {
        let path = dir.path().join("b");
        let error = fs.create(&path, Layer::Block { block_size: 4096 }).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert_eq!(fs.kind(&path).unwrap(), None);
    }
}

#[test]
fn raw_files_take_whole_blocks_only() {
    let layer = Layer::Direct { block_size: 4096 };
    for place in [Place::on_disk(disk(), layer), Place::in_memory(memory(), layer)] {
        if !place.is_offered() {
            continue;
        }
        let file = place.create("a");
        assert_eq!(file.alignment(), 4096);
        let mut block = aligned::AlignedBuf::zeroed(8192);
        block.fill(3);
        file.write_at(4096, &block).unwrap();
        for (at, from, to) in
            [(1, 0, 4096), (512, 0, 4096), (0, 0, 4095), (0, 1, 4097), (0, 512, 4608)]
        {
            assert_eq!(io_kind(file.write_at(at, &block[from..to])), ErrorKind::InvalidInput);
            assert_eq!(io_kind(file.read_at(at, &mut block[from..to])), ErrorKind::InvalidInput);
        }
        assert_eq!(io_kind(file.view(0..100)), ErrorKind::InvalidInput);
        file.truncate(5000).unwrap();
        file.read_at(4096, &mut block[..4096]).unwrap();
        assert!(block[..904].iter().all(|&byte| byte == 3));
        assert!(block[904..4096].iter().all(|&byte| byte == 0));
        assert_eq!(*file.view(4096..8192).unwrap(), block[..4096]);
        assert_eq!(io_kind(file.view(4096..12288)), ErrorKind::UnexpectedEof);
        assert_eq!(io_kind(file.read_at(4096, &mut block)), ErrorKind::UnexpectedEof);
        assert_eq!(file.len().unwrap(), 5000);
    }
}
