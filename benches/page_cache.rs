//! What a hit of the page cache costs beside a pread: `cargo bench --bench page_cache`.
//!
//! A file of 64 MiB lies in the kernel's page cache. Each round reads 128 bytes at random places in every way in
//! turn, and the medians over all rounds are printed, in nanoseconds for an operation. "Some pages" are read and
//! viewed again and again, so that they are in the processor's caches too.

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use turbidite::vfs::{Access, DiskFs, File, Fs, Layer, PageCache, PagedFile};

const FILE: usize = 64 << 20;
const BLOCK: usize = 4096;
/// What is read at once.
const LEN: usize = 128;
/// What fits the processor's caches.
const WARM: usize = 1 << 20;
const OPERATIONS: usize = 100_000;
const ROUNDS: usize = 11;

type Read<'a> = Box<dyn FnMut(u64) + 'a>;

/// A way of reading, the bytes at the front of the file that it reads from, and what it took.
struct Way<'a> {
    name: &'static str,
    span: usize,
    read: Read<'a>,
    rounds: Vec<f64>,
}

impl<'a> Way<'a> {
    fn new(name: &'static str, span: usize, read: impl FnMut(u64) + 'a) -> Self {
        Self { name, span, read: Box::new(read), rounds: Vec::new() }
    }

    /// Reads at the same places as every other way does in this round.
    fn run(&mut self, seed: u64) {
        let mut random = seed;
        let start = Instant::now();
        for _ in 0..OPERATIONS {
            // Xorshift (Marsaglia, 2003).
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let place = random % (self.span / LEN) as u64;
            (self.read)(place * LEN as u64);
        }
        self.rounds.push(start.elapsed().as_nanos() as f64 / OPERATIONS as f64);
    }

    fn median(&mut self) -> f64 {
        self.rounds.sort_by(f64::total_cmp);
        self.rounds[self.rounds.len() / 2]
    }
}

/// The file, by way of a cache with room for so many bytes of it.
fn paged(path: &std::path::Path, bytes: usize) -> PagedFile {
    let inner = DiskFs::new().open(path, Access::Read, Layer::Positional).unwrap();
    let cache = PageCache::new(BLOCK, bytes / BLOCK).unwrap();
    PagedFile::new(inner, cache).unwrap()
}

fn view(file: &PagedFile, at: u64) {
    black_box(file.view(at..at + LEN as u64).unwrap()[0]);
}

fn read(file: &PagedFile, at: u64) {
    let mut buffer = [0; LEN];
    file.read_at(at, &mut buffer).unwrap();
    black_box(buffer);
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, vec![7; FILE]).unwrap();
    let plain = fs::File::open(&path).unwrap();
    let (all, quarter) = (paged(&path, FILE), paged(&path, FILE / 4));
    for page in 0..FILE / BLOCK {
        view(&all, (page * BLOCK) as u64);
    }
    let pread = |at| {
        let mut buffer = [0; LEN];
        plain.read_exact_at(&mut buffer, at).unwrap();
        black_box(buffer);
    };
    let mut ways = [
        Way::new("pread", FILE, pread),
        Way::new("all cached, view", FILE, |at| view(&all, at)),
        Way::new("all cached, read_at", FILE, |at| read(&all, at)),
        Way::new("pread, some pages", WARM, pread),
        Way::new("all cached, view, some pages", WARM, |at| view(&all, at)),
        Way::new("all cached, read_at, some pages", WARM, |at| read(&all, at)),
        Way::new("a quarter cached, view", FILE, |at| view(&quarter, at)),
        Way::new("a quarter cached, read_at", FILE, |at| read(&quarter, at)),
    ];
    for round in 0..ROUNDS {
        let seed = 0x9e37_79b9 + round as u64;
        ways.iter_mut().for_each(|way| way.run(seed));
    }
    for way in &mut ways {
        let median = way.median();
        println!("{:<32} {median:>8.1} ns", way.name);
    }
}
