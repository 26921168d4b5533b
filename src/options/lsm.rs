//! What an LSM-tree is made of: each layer is a choice.
//!
//! What is written into tables (filter, compression, sizes) concerns tables that are written from now on; those there
//! are say themselves what they are. So all of it may change each time a keyspace is opened, but for the policy: the
//! levels that it fills are no other's.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::codec::Codec;
use crate::error::{Error, Result};

/// What an LSM-tree keeps its newest entries in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum MemtableKind {
    /// Entries as they come, found by tags of their hashes, and put in order when a cursor or a flush asks for it:
    /// writes are close to an append, reads of single keys cost one probe.
    #[default]
    Tagged,
    /// A skip list (Pugh, 1990), as in LevelDB and RocksDB: always in order; a write searches its place.
    Skiplist,
    /// Entries as they come, sorted when they are first read, as RocksDB's `vector`: for loads without reads.
    Vector,
    /// A hash table of skip lists, one for all keys with the same first `prefix` bytes, as in RocksDB. Walks over more
    /// than one prefix sort first.
    HashSkiplist {
        /// The bytes of a key that choose its list.
        prefix: u32,
    },
    /// A hash table of sorted linked lists, one for all keys with the same first `prefix` bytes, as in RocksDB: for few
    /// keys to a prefix. Walks over more than one prefix sort first.
    HashLinklist {
        /// The bytes of a key that choose its list.
        prefix: u32,
    },
}

/// The prefix of memtables that are told none, in bytes.
const DEFAULT_PREFIX: u32 = 8;

impl fmt::Display for MemtableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tagged => f.write_str("tagged"),
            Self::Skiplist => f.write_str("skiplist"),
            Self::Vector => f.write_str("vector"),
            Self::HashSkiplist { prefix } => write!(f, "hash-skiplist:{prefix}"),
            Self::HashLinklist { prefix } => write!(f, "hash-linklist:{prefix}"),
        }
    }
}

impl FromStr for MemtableKind {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let (name, prefix) = split(text);
        let kind = match name {
            "tagged" => Self::Tagged,
            "skiplist" => Self::Skiplist,
            "vector" => Self::Vector,
            "hash-skiplist" | "hash-linklist" => {
                let prefix = prefix.map_or(Ok(DEFAULT_PREFIX), number)?;
                return Ok(match name {
                    "hash-skiplist" => Self::HashSkiplist { prefix },
                    _ => Self::HashLinklist { prefix },
                });
            }
            _ => {
                return Err(Error::Invalid(format!(
                    "unknown memtable {text:?}: one of tagged, skiplist, vector, hash-skiplist:PREFIX, \
                     hash-linklist:PREFIX"
                )));
            }
        };
        without(text, prefix, kind)
    }
}

/// What says of most keys that are not in a table that they are not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum FilterKind {
    /// Nothing: a get looks into each table whose range has the key.
    None,
    /// A Bloom filter (Bloom, 1970): the fewest false answers for its bits among Bloom filters; as many cache misses as
    /// probes.
    Bloom,
    /// A Bloom filter in lines of 64 bytes (Putze et al., 2007): one cache miss, a few more false answers.
    #[default]
    BlockedBloom,
    /// A ribbon filter (Dillinger and Walzer, 2021): about 30 % smaller for the same false answers, slower to build
    /// and to ask.
    Ribbon,
}

impl fmt::Display for FilterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Bloom => "bloom",
            Self::BlockedBloom => "blocked-bloom",
            Self::Ribbon => "ribbon",
        })
    }
}

impl FromStr for FilterKind {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(Self::None),
            "bloom" => Ok(Self::Bloom),
            "blocked-bloom" => Ok(Self::BlockedBloom),
            "ribbon" => Ok(Self::Ribbon),
            _ => Err(Error::Invalid(format!(
                "unknown filter {name:?}: one of none, bloom, blocked-bloom, ribbon"
            ))),
        }
    }
}

/// What of a table stays in memory while it is open, besides blocks in the cache: the *key file* of LSM-KV. What does
/// not stay is read when it is needed, through the block cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum KeyFile {
    /// Nothing but where blocks are: the least memory, the slowest reads.
    None,
    /// The filter: keys that are not there cost no read.
    Filter,
    /// What leads from a key to its block.
    Keys,
    /// Both.
    #[default]
    KeysAndFilter,
}

impl fmt::Display for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Filter => "filter",
            Self::Keys => "keys",
            Self::KeysAndFilter => "keys+filter",
        })
    }
}

impl FromStr for KeyFile {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(Self::None),
            "filter" => Ok(Self::Filter),
            "keys" => Ok(Self::Keys),
            "keys+filter" => Ok(Self::KeysAndFilter),
            _ => Err(Error::Invalid(format!(
                "unknown key file {name:?}: one of none, filter, keys, keys+filter"
            ))),
        }
    }
}

/// How the blocks of a table are compressed. A block that would not get smaller by an eighth is stored as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4: fast both ways.
    Lz4,
    /// Snappy, with the feature `snappy`.
    Snappy,
    /// Zstandard, with the feature `zstd`: smaller, and slower to write.
    Zstd {
        /// From 1, the fastest, to 22, the smallest.
        level: u8,
        /// Whether each table has a dictionary, trained with its first blocks: for many small records alike.
        dictionary: bool,
    },
}

impl Compression {
    /// The method, if it is one.
    pub(crate) fn codec(self) -> Option<Codec> {
        match self {
            Self::None => None,
            Self::Lz4 => Some(Codec::Lz4),
            Self::Snappy => Some(Codec::Snappy),
            Self::Zstd { .. } => Some(Codec::Zstd),
        }
    }

    /// Whether it was compiled in: LZ4 always is, Snappy and Zstandard are with the features `snappy` and `zstd`.
    #[must_use]
    pub fn is_available(self) -> bool {
        self.codec().is_none_or(|codec| codec.check().is_ok())
    }
}

/// The level of Zstandard if none is told.
const DEFAULT_ZSTD_LEVEL: u8 = 3;

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Snappy => f.write_str("snappy"),
            Self::Zstd { level, dictionary: false } => write!(f, "zstd:{level}"),
            Self::Zstd { level, dictionary: true } => write!(f, "zstd-dict:{level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let (name, level) = split(text);
        let plain = match name {
            "none" => Self::None,
            "lz4" => Self::Lz4,
            "snappy" => Self::Snappy,
            "zstd" | "zstd-dict" => {
                let level = level.map_or(Ok(DEFAULT_ZSTD_LEVEL), number)?;
                return Ok(Self::Zstd { level, dictionary: name == "zstd-dict" });
            }
            _ => {
                return Err(Error::Invalid(format!(
                    "unknown compression {text:?}: one of none, lz4, snappy, zstd:LEVEL, zstd-dict:LEVEL"
                )));
            }
        };
        without(text, level, plain)
    }
}

/// How much a level may hold before it is merged into the next one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LevelLimit {
    /// So many runs of a tiered level, from 1 to 1000; so many tables of a levelled one, from 1 to 1,000,000.
    Count(u32),
    /// So many bytes, from 64 KiB on.
    Bytes(u64),
}

/// One level of an LSM-tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Level {
    /// Runs that may overlap, each as it came. When there are more than the limit says, all are merged into one run
    /// for the next level: little is written, more is read.
    Tiering(LevelLimit),
    /// One run. What comes is merged with what it overlaps, and tables that are too many move on: more is written, less
    /// is read.
    Levelling(LevelLimit),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, limit) = match self {
            Self::Tiering(limit) => ("tiering", limit),
            Self::Levelling(limit) => ("levelling", limit),
        };
        match limit {
            LevelLimit::Count(count) => write!(f, "{name}:{count}"),
            LevelLimit::Bytes(bytes) => write!(f, "{name}:{bytes}B"),
        }
    }
}

impl FromStr for Level {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::Invalid(format!(
                "a level of {text:?}: tiering:RUNS, levelling:TABLES, or bytes, as in tiering:8000000B"
            ))
        };
        let (name, limit) = text.trim().split_once(':').ok_or_else(wrong)?;
        let limit = match limit.strip_suffix('B') {
            Some(bytes) => LevelLimit::Bytes(bytes.parse().map_err(|_| wrong())?),
            None => LevelLimit::Count(limit.parse().map_err(|_| wrong())?),
        };
        match name {
            "tiering" => Ok(Self::Tiering(limit)),
            "levelling" => Ok(Self::Levelling(limit)),
            _ => Err(wrong()),
        }
    }
}

/// What an LSM-tree merges, and when: fixed when the keyspace is created.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Policy {
    /// Tables gather in level 0 until they are worth merging, or seeks have come to them often enough; every other level is one run, `size_ratio` times
    /// as large as the one above it: least read, least space. There are no more levels than the data call for (Dong et al., CIDR 2017).
    Levelled {
        /// How many times larger each level is than the one above: 2 to 100.
        size_ratio: u32,
    },
    /// Each level has up to `runs` runs, which become one of the next level when there is one more: least written.
    Tiered {
        /// The most runs of a level: 2 to 100.
        runs: u32,
    },
    /// Tiered but for the last level, which is one run (Dayan and Idreos, SIGMOD 2018): nearly as little written as
    /// tiered, and nearly as little space as levelled.
    LazyLevelled {
        /// The most runs of a level: 2 to 100.
        runs: u32,
    },
    /// Nothing is merged. When tables, with the values kept apart from them, take more than so many bytes the oldest go, and what was in them is gone, but for
    /// snapshots that see it: for data of which only the newest count. Of tables that one flush has made, those with lower keys count as older, so that
    /// keys that ascend go in their order. A snapshot, or a range or cursor, that lives over a drop keeps what was in memory then, beside
    /// the budget: a memtable for each drop with one that began since the last. The newest table stays whatever its size, and
    /// [`compact`](crate::Keyspace::compact) merges nothing.
    Fifo {
        /// The bytes that tables and their values may take.
        bytes: u64,
    },
    /// Levels as they are listed, from the one that flushes go to, and one more without a limit behind them, which is a
    /// levelled one. At least one, at most 15.
    Levels(Vec<Level>),
}

impl Default for Policy {
    fn default() -> Self {
        Self::Levelled { size_ratio: 10 }
    }
}

/// The runs of a level if a policy is told none.
const DEFAULT_RUNS: u32 = 4;

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Levelled { size_ratio } => write!(f, "levelled:{size_ratio}"),
            Self::Tiered { runs } => write!(f, "tiered:{runs}"),
            Self::LazyLevelled { runs } => write!(f, "lazy-levelled:{runs}"),
            Self::Fifo { bytes } => write!(f, "fifo:{bytes}"),
            Self::Levels(levels) => {
                for (at, level) in levels.iter().enumerate() {
                    write!(f, "{}{level}", if at == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for Policy {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let (name, value) = split(text);
        match (name, value) {
            ("levelled", None) => Ok(Self::default()),
            ("levelled", Some(ratio)) => Ok(Self::Levelled { size_ratio: number(ratio)? }),
            ("tiered", runs) => Ok(Self::Tiered { runs: runs.map_or(Ok(DEFAULT_RUNS), number)? }),
            ("lazy-levelled", runs) => {
                Ok(Self::LazyLevelled { runs: runs.map_or(Ok(DEFAULT_RUNS), number)? })
            }
            ("fifo", Some(bytes)) => Ok(Self::Fifo { bytes: number(bytes)? }),
            ("tiering" | "levelling", _) => {
                text.split(',').map(str::parse).collect::<Result<_>>().map(Self::Levels)
            }
            _ => Err(Error::Invalid(format!(
                "unknown policy {text:?}: one of levelled:RATIO, tiered:RUNS, lazy-levelled:RUNS, fifo:BYTES, or \
                 levels like tiering:2,levelling:4"
            ))),
        }
    }
}

/// What is asked of an LSM-tree. `None`: as it is; for a new keyspace, the default.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct LsmOptions {
    pub(crate) memtable: Option<MemtableKind>,
    pub(crate) filter: Option<FilterKind>,
    pub(crate) filter_bits: Option<Vec<u32>>,
    pub(crate) key_file: Option<KeyFile>,
    pub(crate) point_index: Option<bool>,
    pub(crate) compression: Option<Vec<Compression>>,
    pub(crate) data_block_size: Option<u32>,
    pub(crate) table_size: Option<u64>,
    /// Zero: values stay with their keys.
    pub(crate) separate_values: Option<u32>,
    pub(crate) policy: Option<Policy>,
}

/// The sizes that data blocks may have, in bytes.
pub(crate) const DATA_BLOCK_SIZES: RangeInclusive<u32> = 512..=1 << 20;
/// The sizes that tables may have, in bytes.
pub(crate) const TABLE_SIZES: RangeInclusive<u64> = 64 << 10..=4 << 30;
/// The bits that a filter may have for each key.
pub(crate) const FILTER_BITS: RangeInclusive<u32> = 0..=32;
/// The most levels that have something said about them.
pub(crate) const MAX_LISTED_LEVELS: usize = 15;
/// The bytes of the shortest value that may be separated.
pub(crate) const MIN_SEPARATED: u32 = 64;

impl LsmOptions {
    pub(crate) fn memtable(&self) -> MemtableKind {
        self.memtable.unwrap_or_default()
    }

    pub(crate) fn filter(&self) -> FilterKind {
        self.filter.unwrap_or_default()
    }

    /// The bits of a filter for each key of a table in `level`.
    pub(crate) fn filter_bits(&self, level: usize) -> u32 {
        self.filter_bits.as_ref().map_or(10, |bits| of_level(bits, level))
    }

    pub(crate) fn key_file(&self) -> KeyFile {
        self.key_file.unwrap_or_default()
    }

    /// How a table in `level` is compressed.
    pub(crate) fn compression(&self, level: usize) -> Compression {
        self.compression.as_ref().map_or(Compression::None, |all| of_level(all, level))
    }

    /// The bytes of a data block.
    pub(crate) fn data_block_size(&self) -> u32 {
        self.data_block_size.unwrap_or(4096)
    }

    /// Values of so many bytes and more are kept apart; `None`: none are.
    pub(crate) fn separate_values(&self) -> Option<u32> {
        self.separate_values.filter(|&bytes| bytes > 0)
    }

    /// The policy; that of all trees from before there were others, if none is named.
    pub(crate) fn policy(&self) -> Policy {
        self.policy.clone().unwrap_or(Policy::Levelled { size_ratio: 10 })
    }

    /// What is not the default, by the names that users know, as it is written.
    pub(super) fn chosen(&self) -> Vec<(&'static str, String)> {
        let default = Self::default();
        let bits = self.filter_bits.as_deref().filter(|bits| **bits != [default.filter_bits(0)]);
        let codecs = self.compression.as_deref().filter(|all| **all != [default.compression(0)]);
        let named = [
            ("memtable", other(self.memtable(), default.memtable())),
            ("filter", other(self.filter(), default.filter())),
            ("filter_bits", bits.map(listed)),
            ("key_file", other(self.key_file(), default.key_file())),
            ("point_index", self.point_index.map(|wanted| wanted.to_string())),
            ("compression", codecs.map(listed)),
            ("data_block_size", other(self.data_block_size(), default.data_block_size())),
            ("table_size", self.table_size.map(|bytes| bytes.to_string())),
            ("separate_values", self.separate_values().map(|bytes| bytes.to_string())),
            ("policy", other(self.policy(), default.policy())),
        ];
        named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// These options where they say something, else `before`.
    pub(crate) fn over(&self, before: &Self) -> Self {
        let wanted = self.clone();
        Self {
            memtable: wanted.memtable.or(before.memtable),
            filter: wanted.filter.or(before.filter),
            filter_bits: wanted.filter_bits.or_else(|| before.filter_bits.clone()),
            key_file: wanted.key_file.or(before.key_file),
            point_index: wanted.point_index.or(before.point_index),
            compression: wanted.compression.or_else(|| before.compression.clone()),
            data_block_size: wanted.data_block_size.or(before.data_block_size),
            table_size: wanted.table_size.or(before.table_size),
            separate_values: wanted.separate_values.or(before.separate_values),
            policy: wanted.policy.or_else(|| before.policy.clone()),
        }
    }

    /// An error if tables are to be compressed in a way that was not compiled in.
    ///
    /// # Errors
    /// `Unsupported`, with the name of the feature.
    pub(crate) fn check_compiled(&self) -> Result<()> {
        let wanted = self.compression.iter().flatten().filter_map(|wanted| wanted.codec());
        wanted.into_iter().try_for_each(Codec::check)
    }

    /// An error if they cannot be, or contradict each other.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_memtable()?;
        self.check_filter()?;
        self.check_points()?;
        self.check_tables()?;
        check_policy(&self.policy())
    }

    fn check_memtable(&self) -> Result<()> {
        match self.memtable() {
            MemtableKind::HashSkiplist { prefix } | MemtableKind::HashLinklist { prefix } => {
                within("memtable's prefix", u64::from(prefix), 1..=1024, "bytes")
            }
            _ => Ok(()),
        }
    }

    fn check_filter(&self) -> Result<()> {
        let listed = self.filter_bits.as_deref().unwrap_or(&[10]);
        check_list("bits of filters", listed.len())?;
        for &bits in listed {
            let (start, end) = (u64::from(*FILTER_BITS.start()), u64::from(*FILTER_BITS.end()));
            within("filter", u64::from(bits), start..=end, "bits for each key")?;
        }
        let has_none = self.filter() == FilterKind::None;
        if has_none && self.filter_bits.as_ref().is_some_and(|bits| bits.iter().any(|&b| b > 0)) {
            return contradiction("there are bits for a filter, but the filter is none");
        }
        match self.key_file {
            Some(kept @ (KeyFile::Filter | KeyFile::KeysAndFilter)) if has_none => {
                contradiction(&format!(
                    "the key file {kept} keeps filters in memory, but the filter is none: choose keys or none"
                ))
            }
            Some(kept @ (KeyFile::Filter | KeyFile::KeysAndFilter))
                if listed.iter().all(|&bits| bits == 0) =>
            {
                contradiction(&format!(
                    "the key file {kept} keeps filters in memory, but no level has bits for them: choose keys or none"
                ))
            }
            _ => Ok(()),
        }
    }

    fn check_points(&self) -> Result<()> {
        match self.key_file() {
            kept @ (KeyFile::None | KeyFile::Filter) if self.point_index == Some(true) => {
                contradiction(&format!(
                    "a point index stays in memory with the keys, but the key file is {kept}: choose keys or keys+filter"
                ))
            }
            _ => Ok(()),
        }
    }

    fn check_tables(&self) -> Result<()> {
        let (start, end) =
            (u64::from(*DATA_BLOCK_SIZES.start()), u64::from(*DATA_BLOCK_SIZES.end()));
        within("data block", u64::from(self.data_block_size()), start..=end, "bytes")?;
        if let Some(bytes) = self.table_size {
            within("table", bytes, TABLE_SIZES, "bytes")?;
        }
        if let Some(bytes) = self.separate_values() {
            within(
                "shortest value kept apart",
                u64::from(bytes),
                u64::from(MIN_SEPARATED)..=1 << 30,
                "bytes",
            )?;
        }
        let listed = self.compression.as_deref().unwrap_or(&[Compression::None]);
        check_list("compressions", listed.len())?;
        listed.iter().try_for_each(|&compression| match compression {
            Compression::Zstd { level, .. } => {
                within("level of zstd", u64::from(level), 1..=22, "")
            }
            _ => Ok(()),
        })
    }
}

fn check_policy(policy: &Policy) -> Result<()> {
    match policy {
        Policy::Levelled { size_ratio } => {
            within("size ratio", u64::from(*size_ratio), 2..=100, "")
        }
        Policy::Tiered { runs } | Policy::LazyLevelled { runs } => {
            within("tiered level", u64::from(*runs), 2..=100, "runs")
        }
        Policy::Fifo { bytes } => within("fifo", *bytes, 1 << 20..=1 << 60, "bytes"),
        Policy::Levels(levels) => {
            check_list("levels", levels.len())?;
            levels.iter().try_for_each(|level| match *level {
                Level::Tiering(LevelLimit::Count(runs)) => {
                    within("tiered level", u64::from(runs), 1..=1000, "runs")
                }
                Level::Levelling(LevelLimit::Count(tables)) => {
                    within("levelled level", u64::from(tables), 1..=1_000_000, "tables")
                }
                Level::Tiering(LevelLimit::Bytes(bytes))
                | Level::Levelling(LevelLimit::Bytes(bytes)) => {
                    within("level", bytes, 64 << 10..=1 << 60, "bytes")
                }
            })
        }
    }
}

/// `value` as it is written, if it is not the default.
fn other<T: PartialEq + fmt::Display>(value: T, default: T) -> Option<String> {
    (value != default).then(|| value.to_string())
}

/// A list as it is written.
fn listed<T: fmt::Display>(list: &[T]) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// What a list says of a level: its last entry counts for all deeper ones.
fn of_level<T: Copy>(list: &[T], level: usize) -> T {
    list[level.min(list.len() - 1)]
}

fn check_list(what: &str, len: usize) -> Result<()> {
    match len {
        1..=MAX_LISTED_LEVELS => Ok(()),
        _ => Err(Error::Invalid(format!(
            "a list of {len} {what}: there must be 1 to {MAX_LISTED_LEVELS}, one for each level from level 0"
        ))),
    }
}

fn within(what: &str, given: u64, limits: RangeInclusive<u64>, unit: &str) -> Result<()> {
    if limits.contains(&given) {
        return Ok(());
    }
    let (start, end, gap) = (limits.start(), limits.end(), if unit.is_empty() { "" } else { " " });
    Err(Error::Invalid(format!("a {what} of {given}{gap}{unit}: it must be from {start} to {end}")))
}

fn contradiction(what: &str) -> Result<()> {
    Err(Error::Invalid(format!("options that contradict each other: {what}")))
}

/// A name and what stands behind a colon.
fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)))
}

fn number<T: FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::Invalid(format!("{text:?} is not a number that can be here")))
}

/// `value`, unless something stands behind its name.
fn without<T>(text: &str, behind: Option<&str>, value: T) -> Result<T> {
    match behind {
        None => Ok(value),
        Some(_) => Err(Error::Invalid(format!("{text:?}: nothing goes behind this name"))),
    }
}
