//! Memtables alone, without log, commit path or files: what a put, a get and a walk take with each kind, in ns, and how
//! much memory an entry takes. `cargo bench --bench memtable -- [ENTRIES] [KIND...]`; one million of all kinds if not told.
//!
//! Keys have 16 bytes, values 100. Each 16 keys have the same first 8 bytes, which are the prefix of hashed kinds. Each
//! figure is the median of three memtables, each in new memory of the system.
//!
//! - *random*: keys come in any order; *ascending*: in order; *alike*: in any order, and all begin with the same 8 bytes, so
//!   that kinds which look at those first must look further; *hot*: one key, again and again.
//! - *get*: random keys that are there, or not, after a first one that may have to sort. *alike*: as above.
//! - *walk*: all entries in order, with keys that came at random: for the first time, with all that has to be done for it; and again.
//! - *seek*: to the first key of a prefix, and over 10 entries, in the middle of writing: each after 16 puts.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use budget::Budget;
use iter::EntryCursor;
use memtable::Memtable;
use options::MemtableKind;

/// The rooms that a memtable needs, from the library's sources: they are not public.
macro_rules! rooms {
    ($($path:literal $room:ident),* $(,)?) => {
        $(
            #[allow(
                dead_code, unused_imports, unused_macros, unreachable_pub,
                reason = "a part of each room is measured, and its tests run elsewhere"
            )]
            #[path = $path]
            mod $room;
        )*
    };
}

rooms! {
    "../src/base/mod.rs" base,
    "../src/budget.rs" budget,
    "../src/codec/mod.rs" codec,
    "../src/error.rs" error,
    "../src/iter/mod.rs" iter,
    "../src/memtable/mod.rs" memtable,
    "../src/options/lsm.rs" options,
    "../src/planted.rs" planted,
    "../src/sync/mod.rs" sync,
}

const ROUNDS: usize = 3;
const GROUP: u64 = 16;
const PREFIX: u32 = 8;
const MOST_GETS: u64 = 1_000_000;

type Key = [u8; 16];

/// The order that keys come in, and how they look.
#[derive(Clone, Copy)]
enum Keys {
    Random,
    Ascending,
    Alike,
    Hot,
}

impl Keys {
    /// Key `number` of `count`. Those from `count` on are others.
    fn key(self, number: u64, count: u64) -> Key {
        let mixed = |number: u64| base::rng::Rng::new(number).next();
        let two = |a: u64, b: u64| {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&a.to_be_bytes());
            key[8..].copy_from_slice(&b.to_be_bytes());
            key
        };
        match self {
            Self::Random => two(mixed(number % count.div_ceil(GROUP)), mixed(number)),
            Self::Ascending => two(number / GROUP * (u64::MAX / count.div_ceil(GROUP)), number),
            Self::Alike => two(0, mixed(number)),
            Self::Hot => two(0, 0),
        }
    }

    fn all(self, count: u64) -> Vec<Key> {
        (0..count).map(|number| self.key(number, count)).collect()
    }
}

fn table(kind: MemtableKind) -> Arc<dyn Memtable> {
    memtable::new(kind, &Arc::new(Budget::new(64 << 30)))
}

fn put(table: &dyn Memtable, number: usize, key: &Key) {
    let trailer = base::Trailer::new(number as u64 + 1, base::Kind::Put);
    table.insert(key, trailer, &[7; 100]);
}

fn filled(kind: MemtableKind, keys: &[Key]) -> Arc<dyn Memtable> {
    let table = table(kind);
    keys.iter().enumerate().for_each(|(number, key)| put(&*table, number, key));
    table
}

/// Nanoseconds for each of `count` that `work` does.
fn timed(count: u64, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

/// The median of what all rounds measure, value by value.
fn median<const N: usize>(round: impl Fn() -> [f64; N]) -> [f64; N] {
    let rounds: Vec<_> = (0..ROUNDS).map(|_| round()).collect();
    std::array::from_fn(|at| {
        let mut values: Vec<_> = rounds.iter().map(|round| round[at]).collect();
        values.sort_by(f64::total_cmp);
        values[ROUNDS / 2]
    })
}

fn puts(kind: MemtableKind, keys: &[Key]) -> f64 {
    let [put] = median(|| {
        let start = Instant::now();
        let table = filled(kind, keys);
        let taken = start.elapsed();
        drop(table);
        [taken.as_secs_f64() * 1e9 / keys.len() as f64]
    });
    put
}

/// The first get, in ms, and then hits and misses.
fn gets(kind: MemtableKind, keys: Keys, count: u64) -> [f64; 3] {
    let table = filled(kind, &keys.all(count));
    let first = timed(1_000_000, || _ = black_box(table.get(&keys.key(0, count), count)));
    let gets = count.min(MOST_GETS);
    let mut rng = base::rng::Rng::new(1);
    let hits: Vec<_> = (0..gets).map(|_| keys.key(rng.next() % count, count)).collect();
    let misses: Vec<_> = (0..gets).map(|number| keys.key(count + number, count)).collect();
    let [hit, miss] = median(|| {
        [(&hits, true), (&misses, false)].map(|(keys, is_hit)| {
            timed(gets, || {
                keys.iter().for_each(|key| assert_eq!(table.get(key, count).is_some(), is_hit));
            })
        })
    });
    [first, hit, miss]
}

/// The first walk, and another; bytes for each entry before and behind.
fn walks(kind: MemtableKind, keys: &[Key]) -> [f64; 4] {
    median(|| {
        let table = filled(kind, keys);
        let bytes = || table.memory() as f64 / keys.len() as f64;
        let before = bytes();
        let walk = || {
            timed(keys.len() as u64, || {
                let mut cursor = table.cursor();
                let mut seen = 0;
                cursor.seek_to_first().expect("memory can be read");
                while cursor.is_valid() {
                    black_box((cursor.key(), cursor.trailer(), cursor.value().first()));
                    seen += 1;
                    cursor.next().expect("memory can be read");
                }
                assert_eq!(seen, keys.len());
            })
        };
        [walk(), walk(), before, bytes()]
    })
}

/// A seek and ten entries, after every 16 puts. The puts are counted, too: for each put.
fn seeks(kind: MemtableKind, keys: &[Key]) -> f64 {
    let [each] = median(|| {
        let table = table(kind);
        let mut rng = base::rng::Rng::new(1);
        [timed(keys.len() as u64, || {
            for (number, key) in keys.iter().enumerate() {
                put(&*table, number, key);
                if number.is_multiple_of(16) {
                    let mut cursor = table.cursor();
                    let start = &keys[rng.next() as usize % (number + 1)][..PREFIX as usize];
                    cursor.seek(start, base::Trailer::NEWEST).expect("memory can be read");
                    for _ in 0..10 {
                        if cursor.is_valid() {
                            black_box(cursor.value());
                            cursor.next().expect("memory can be read");
                        }
                    }
                }
            }
        })]
    });
    each
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let count = arguments.iter().find_map(|arg| arg.parse().ok()).unwrap_or(1_000_000);
    let mut kinds: Vec<MemtableKind> =
        arguments.iter().filter_map(|arg| arg.parse().ok()).collect();
    if kinds.is_empty() {
        kinds = vec![
            MemtableKind::Tagged,
            MemtableKind::Skiplist,
            MemtableKind::Vector,
            MemtableKind::HashSkiplist { prefix: PREFIX },
            MemtableKind::HashLinklist { prefix: PREFIX },
        ];
    }
    println!("{count} entries, keys of 16 bytes, values of 100; ns, but for bytes an entry");
    for kind in kinds {
        println!("{kind}");
        let random = Keys::Random.all(count);
        println!("  put, random                  {:8.0}", puts(kind, &random));
        println!("  put, ascending               {:8.0}", puts(kind, &Keys::Ascending.all(count)));
        println!("  put, alike                   {:8.0}", puts(kind, &Keys::Alike.all(count)));
        println!("  put, hot                     {:8.0}", puts(kind, &Keys::Hot.all(count)));
        let [first, hit, miss] = gets(kind, Keys::Random, count);
        println!("  get, the first, ms           {first:8.1}");
        println!("  get, hit                     {hit:8.0}");
        println!("  get, miss                    {miss:8.0}");
        let [_, hit, _] = gets(kind, Keys::Alike, count);
        println!("  get, hit, alike              {hit:8.0}");
        let [first, again, before, behind] = walks(kind, &random);
        println!("  walk, the first time         {first:8.0}");
        println!("  walk, again                  {again:8.0}");
        println!("  bytes, before and behind     {before:8.0} {behind:8.0}");
        println!("  16 puts, a seek: each put    {:8.0}", seeks(kind, &random));
    }
}
