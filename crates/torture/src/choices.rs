//! What databases and keyspaces are made of, drawn at random, so that in time every choice meets every other.
//!
//! The same tree may be opened again and again with other options: but for the policy, which stays, they are drawn anew for each opening.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use turbidite::{
    CompactionLock, Compression, DatabaseBuilder, EngineKind, FilterKind, KeyFile, KeyspaceOptions,
    Layer, Level, LevelLimit, MemtableKind, Policy, RecoveryMode, Reducer,
};

use crate::{Dice, Setting, setting};

/// The engines.
pub const ENGINES: [EngineKind; 4] =
    [EngineKind::Lsm, EngineKind::Hash, EngineKind::Btree, EngineKind::Skip];

/// What a keyspace on this engine is made of when nothing is chosen.
///
/// # Panics
/// If it is none of [`ENGINES`].
#[must_use]
pub fn plain(engine: EngineKind) -> KeyspaceOptions {
    match engine {
        EngineKind::Lsm => KeyspaceOptions::lsm(),
        EngineKind::Hash => KeyspaceOptions::hash(),
        EngineKind::Btree => KeyspaceOptions::btree(),
        EngineKind::Skip => KeyspaceOptions::skip(),
        engine => panic!("{engine} is a new one"),
    }
}

/// Whether keyspaces on this engine have an order.
#[must_use]
pub fn is_ordered(engine: EngineKind) -> bool {
    engine != EngineKind::Hash
}

/// The seed of something that is known by `what` in all runs.
#[must_use]
pub fn mix(seed: u64, what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, what).hash(&mut hasher);
    hasher.finish()
}

fn dice(seed: u64, what: impl Hash) -> Dice {
    Dice::new(mix(seed, what))
}

fn pick<T: Clone>(dice: &mut Dice, all: &[T]) -> T {
    all[dice.roll(all.len())].clone()
}

/// What a keyspace on `engine` is made of when it is opened for the `opening`th time.
#[must_use]
pub fn options(engine: EngineKind, seed: u64, opening: u64) -> KeyspaceOptions {
    match engine {
        EngineKind::Lsm => tree(plain(engine), seed, opening),
        EngineKind::Btree => with_pages(plain(engine), seed, opening),
        EngineKind::Skip => with_links(plain(engine), seed),
        other => plain(other),
    }
}

/// The pages of a B+ tree, whose size stays as it is, and how many of them are in memory.
fn with_pages(options: KeyspaceOptions, seed: u64, opening: u64) -> KeyspaceOptions {
    let bytes = pick(&mut dice(seed, "pages"), &[4096, 4096, 8192, 32 << 10]);
    match dice(seed, ("cached pages", opening)).roll(4) {
        0 => options.page_size(bytes).max_cached_pages(1),
        1 => options.page_size(bytes).max_cached_pages(5),
        _ => options.page_size(bytes),
    }
}

/// The links of a skip keyspace, which stay as they are.
fn with_links(options: KeyspaceOptions, seed: u64) -> KeyspaceOptions {
    let dice = &mut dice(seed, "links");
    options.step_unit(pick(dice, &[2, 4, 16, 64])).max_level(pick(dice, &[0, 1, 2, 5, 12]))
}

/// What becomes of several values of one key of a skip keyspace, for all its life: of those that give one value again.
#[must_use]
pub fn reducer(seed: u64) -> Reducer {
    pick(&mut dice(seed, "reducer"), &[Reducer::Last, Reducer::First, Reducer::Concat])
}

/// The name of the reducer that is registered with [`database`].
const LARGEST: &str = "largest";

/// What becomes of several values of one key of a skip keyspace, for all its life: any of what there is.
#[must_use]
pub fn any_reducer(seed: u64) -> Reducer {
    use Reducer::{Concat, Custom, First, KeepAll, Last, Sum};
    pick(
        &mut dice(seed, "any reducer"),
        &[Last, Last, First, KeepAll, Concat, Sum, Custom(LARGEST.into())],
    )
}

/// The largest of some values, as bytes are compared.
fn largest(_key: &[u8], values: &[&[u8]]) -> Vec<u8> {
    values.iter().max().expect("there are several").to_vec()
}

/// The layer of the files of a keyspace, or of the log, when it is opened for the `opening`th time: that of the setting, and now and then
/// another one, or one with larger or smaller blocks and fewer pages in its cache.
#[must_use]
pub fn layer(setting: Setting, of: &str, opening: u64) -> Layer {
    let drawn = &mut dice(setting.seed, (of, "layer", opening));
    let layer = match drawn.roll(8) {
        0 => pick(drawn, &setting::layers()),
        _ => setting.layer,
    };
    let sizes = &mut dice(setting.seed, (of, "blocks", opening));
    let resized = |layer: Layer, bytes, pages| {
        let layer = layer.with_block_size(bytes).unwrap_or(layer);
        layer.with_page_cache_pages(pages).unwrap_or(layer)
    };
    match sizes.roll(8) {
        0 => resized(layer, 512, 20),
        1 => resized(layer, 16 << 10, 8),
        _ => layer,
    }
}

/// The same for an LSM-tree of which `options` says something already.
#[must_use]
pub fn tree(options: KeyspaceOptions, seed: u64, opening: u64) -> KeyspaceOptions {
    let dice = &mut dice(seed, ("tree", opening));
    let (options, kept) = with_filters(options, dice);
    with_tables(options.key_file(kept), kept, dice).policy(policy(seed))
}

/// And what of tables stays in memory, which has filters only if there are some.
fn with_filters(options: KeyspaceOptions, dice: &mut Dice) -> (KeyspaceOptions, KeyFile) {
    let kinds = [FilterKind::Bloom, FilterKind::BlockedBloom, FilterKind::Ribbon];
    let without = [KeyFile::None, KeyFile::Keys];
    if dice.roll(5) == 0 {
        return (options.filter(FilterKind::None).filter_bits(&[0]), pick(dice, &without));
    }
    let all = [KeyFile::None, KeyFile::Filter, KeyFile::Keys, KeyFile::KeysAndFilter];
    let bits: Vec<u32> =
        (0..1 + dice.roll(3)).map(|_| pick(dice, &[0, 1, 5, 10, 17, 32])).collect();
    let kept = if bits.iter().all(|&bits| bits == 0) { &without[..] } else { &all };
    (options.filter(pick(dice, &kinds)).filter_bits(&bits), pick(dice, kept))
}

fn with_tables(options: KeyspaceOptions, kept: KeyFile, dice: &mut Dice) -> KeyspaceOptions {
    let has_keys = matches!(kept, KeyFile::Keys | KeyFile::KeysAndFilter);
    let options = match dice.roll(3) {
        0 if has_keys => options,
        roll => options.point_index(has_keys && roll == 1),
    };
    let prefix = 1 + dice.roll(8) as u32;
    let memtables = [
        MemtableKind::Tagged,
        MemtableKind::Skiplist,
        MemtableKind::Vector,
        MemtableKind::HashSkiplist { prefix },
        MemtableKind::HashLinklist { prefix },
    ];
    let compressions: Vec<Compression> = (0..1 + dice.roll(3)).map(|_| compression(dice)).collect();
    options
        .memtable(pick(dice, &memtables))
        .compression(&compressions)
        .data_block_size(pick(dice, &[512, 1000, 4096, 20_000, 1 << 16]))
        .table_size(pick(dice, &[64 << 10, 100_000, 1 << 20]))
        .separate_values(pick(dice, &[0, 0, 64, 1000, 4000]))
}

fn compression(dice: &mut Dice) -> Compression {
    let all = [
        Compression::None,
        Compression::Lz4,
        Compression::Snappy,
        Compression::Zstd { level: 1, dictionary: false },
        Compression::Zstd { level: 3, dictionary: true },
    ];
    // The same case has the same name whatever is compiled in.
    let drawn = pick(dice, &all);
    if drawn.is_available() { drawn } else { Compression::Lz4 }
}

/// The policy of a tree, which is the same for all its life. One that lets data go has room for all of them.
#[must_use]
pub fn policy(seed: u64) -> Policy {
    let dice = &mut dice(seed, "policy");
    let levels: Vec<Level> = (0..1 + dice.roll(3)).map(|_| level(dice)).collect();
    let runs = pick(dice, &[2, 4]);
    let all = [
        Policy::Levelled { size_ratio: pick(dice, &[2, 10]) },
        Policy::Tiered { runs },
        Policy::LazyLevelled { runs },
        Policy::Fifo { bytes: 1 << 40 },
        Policy::Levels(levels),
    ];
    pick(dice, &all)
}

fn level(dice: &mut Dice) -> Level {
    let count = LevelLimit::Count(1 + dice.roll(4) as u32);
    let bytes = LevelLimit::Bytes(pick(dice, &[64 << 10, 500_000]));
    let limit = pick(dice, &[count, bytes]);
    pick(dice, &[Level::Tiering(limit), Level::Levelling(limit)])
}

/// A database that is opened for the `opening`th time with the smallest budget: how its log is handed over, how many
/// files are open, what the block cache may take, and whether damage is tolerated, of which there is none.
pub fn database(builder: DatabaseBuilder, seed: u64, opening: u64) -> DatabaseBuilder {
    let builder = match dice(seed, ("recovery", opening)).roll(4) {
        0 => builder.recovery(RecoveryMode::Tolerant),
        _ => builder,
    };
    let dice = &mut dice(seed, ("database", opening));
    let locks = [CompactionLock::Database, CompactionLock::Range, CompactionLock::RangeLevel];
    let builder = builder
        .reducer(LARGEST, largest)
        .log_buffer(pick(dice, &[4 << 10, 30_000, 128 << 10, 256 << 10]))
        .open_files(pick(dice, &[16, 40, 512]))
        .block_cache(pick(dice, &[0, 50_000, 1 << 20, 8 << 20]))
        .background_threads(pick(dice, &[1, 2, 4]))
        .compaction_lock(pick(dice, &locks));
    let builder = match dice.roll(4) {
        0 => builder.background_rate(pick(dice, &[4 << 20, 64 << 20])),
        _ => builder,
    };
    match dice.roll(3) {
        0 => builder.manual_log_flush(),
        _ => builder.log_flush_interval(Duration::from_millis(pick(dice, &[1, 4, 50]))),
    }
}
