//! How the catalog has the options of an LSM-tree.
//!
//! ```text
//! options   := present u16 as varint: bit i is set if field i is there, then those fields
//! 0 memtable         kind u8: 1 tagged, 2 skip list, 3 vector, 4 hashed skip lists, 5 hashed linked lists; of 4 and 5,
//!                    prefix
//! 1 filter           kind u8: 1 none, 2 Bloom, 3 blocked Bloom, 4 ribbon
//! 2 filter bits      count, bits of each level
//! 3 key file         kind u8: 1 none, 2 filter, 3 keys, 4 both
//! 4 compression      count, of each level: kind u8: 1 none, 2 LZ4, 3 Snappy, 4 Zstandard, 5 the same with a
//!                    dictionary; of 4 and 5, level
//! 5 data block size  bytes
//! 6 table size       bytes
//! 7 separate values  bytes of the shortest value; 0: none are separated
//! 8 policy           kind u8: 1 levelled, size ratio; 2 tiered, runs; 3 lazy levelled, runs; 4 fifo, bytes; 5 levels:
//!                    count, of each: kind u8 (1 tiering by count, 2 by bytes, 3 levelling by count, 4 by bytes), limit
//! 9 point index      0: none, 1: always
//! ```
//! Integers without a width are varints.

use crate::base::varint;
use crate::options::{
    Compression, FilterKind, KeyFile, Level, LevelLimit, LsmOptions, MemtableKind, Policy,
};

use super::take_u32;

pub(super) fn put(out: &mut Vec<u8>, options: &LsmOptions) {
    let LsmOptions {
        memtable,
        filter,
        filter_bits,
        key_file,
        point_index,
        compression,
        data_block_size,
        table_size,
        separate_values,
        policy,
    } = options;
    let mut fields = Fields::default();
    fields.add(memtable.as_ref(), |out, &kind| match kind {
        MemtableKind::Tagged => out.push(1),
        MemtableKind::Skiplist => out.push(2),
        MemtableKind::Vector => out.push(3),
        MemtableKind::HashSkiplist { prefix } => pair(out, 4, u64::from(prefix)),
        MemtableKind::HashLinklist { prefix } => pair(out, 5, u64::from(prefix)),
    });
    fields.add(filter.as_ref(), |out, kind| {
        out.push(match kind {
            FilterKind::None => 1,
            FilterKind::Bloom => 2,
            FilterKind::BlockedBloom => 3,
            FilterKind::Ribbon => 4,
        });
    });
    fields.add(filter_bits.as_ref(), |out, bits| {
        list(out, bits, |out, &bits| varint::put(out, u64::from(bits)));
    });
    fields.add(key_file.as_ref(), |out, kept| {
        out.push(match kept {
            KeyFile::None => 1,
            KeyFile::Filter => 2,
            KeyFile::Keys => 3,
            KeyFile::KeysAndFilter => 4,
        });
    });
    fields.add(compression.as_ref(), |out, levels| list(out, levels, put_compression));
    fields.add(data_block_size.as_ref(), |out, &bytes| varint::put(out, u64::from(bytes)));
    fields.add(table_size.as_ref(), |out, &bytes| varint::put(out, bytes));
    fields.add(separate_values.as_ref(), |out, &bytes| varint::put(out, u64::from(bytes)));
    fields.add(policy.as_ref(), put_policy);
    fields.add(point_index.as_ref(), |out, &wanted| out.push(u8::from(wanted)));
    varint::put(out, fields.present);
    out.extend_from_slice(&fields.bytes);
}

/// The options, if bytes say what can be. Whether they may be together is not checked.
pub(super) fn take(bytes: &mut &[u8]) -> Option<LsmOptions> {
    let present = varint::take(bytes)?;
    if present >> 10 != 0 {
        return None;
    }
    let has = |field: u32| present >> field & 1 == 1;
    let mut options = LsmOptions::default();
    if has(0) {
        options.memtable = Some(match varint::take(bytes)? {
            1 => MemtableKind::Tagged,
            2 => MemtableKind::Skiplist,
            3 => MemtableKind::Vector,
            4 => MemtableKind::HashSkiplist { prefix: take_u32(bytes)? },
            5 => MemtableKind::HashLinklist { prefix: take_u32(bytes)? },
            _ => return None,
        });
    }
    if has(1) {
        options.filter = Some(match varint::take(bytes)? {
            1 => FilterKind::None,
            2 => FilterKind::Bloom,
            3 => FilterKind::BlockedBloom,
            4 => FilterKind::Ribbon,
            _ => return None,
        });
    }
    if has(2) {
        options.filter_bits = Some(take_list(bytes, take_u32)?);
    }
    if has(3) {
        options.key_file = Some(match varint::take(bytes)? {
            1 => KeyFile::None,
            2 => KeyFile::Filter,
            3 => KeyFile::Keys,
            4 => KeyFile::KeysAndFilter,
            _ => return None,
        });
    }
    if has(4) {
        options.compression = Some(take_list(bytes, take_compression)?);
    }
    if has(5) {
        options.data_block_size = Some(take_u32(bytes)?);
    }
    if has(6) {
        options.table_size = Some(varint::take(bytes)?);
    }
    if has(7) {
        options.separate_values = Some(take_u32(bytes)?);
    }
    if has(8) {
        options.policy = Some(take_policy(bytes)?);
    }
    if has(9) {
        options.point_index = Some(varint::take(bytes)? != 0);
    }
    Some(options)
}

/// Fields that are written one behind the other, and which of them are there.
#[derive(Default)]
struct Fields {
    present: u64,
    count: u32,
    bytes: Vec<u8>,
}

impl Fields {
    fn add<T>(&mut self, field: Option<&T>, put: impl FnOnce(&mut Vec<u8>, &T)) {
        if let Some(field) = field {
            self.present |= 1 << self.count;
            put(&mut self.bytes, field);
        }
        self.count += 1;
    }
}

fn put_compression(out: &mut Vec<u8>, compression: &Compression) {
    match *compression {
        Compression::None => out.push(1),
        Compression::Lz4 => out.push(2),
        Compression::Snappy => out.push(3),
        Compression::Zstd { level, dictionary: false } => pair(out, 4, u64::from(level)),
        Compression::Zstd { level, dictionary: true } => pair(out, 5, u64::from(level)),
    }
}

fn take_compression(bytes: &mut &[u8]) -> Option<Compression> {
    let kind = varint::take(bytes)?;
    let zstd = |bytes: &mut &[u8], dictionary| {
        Some(Compression::Zstd { level: u8::try_from(varint::take(bytes)?).ok()?, dictionary })
    };
    match kind {
        1 => Some(Compression::None),
        2 => Some(Compression::Lz4),
        3 => Some(Compression::Snappy),
        4 => zstd(bytes, false),
        5 => zstd(bytes, true),
        _ => None,
    }
}

fn put_policy(out: &mut Vec<u8>, policy: &Policy) {
    match policy {
        Policy::Levelled { size_ratio } => pair(out, 1, u64::from(*size_ratio)),
        Policy::Tiered { runs } => pair(out, 2, u64::from(*runs)),
        Policy::LazyLevelled { runs } => pair(out, 3, u64::from(*runs)),
        Policy::Fifo { bytes } => pair(out, 4, *bytes),
        Policy::Levels(levels) => {
            out.push(5);
            list(out, levels, |out, level| match *level {
                Level::Tiering(LevelLimit::Count(count)) => pair(out, 1, u64::from(count)),
                Level::Tiering(LevelLimit::Bytes(bytes)) => pair(out, 2, bytes),
                Level::Levelling(LevelLimit::Count(count)) => pair(out, 3, u64::from(count)),
                Level::Levelling(LevelLimit::Bytes(bytes)) => pair(out, 4, bytes),
            });
        }
    }
}

fn take_policy(bytes: &mut &[u8]) -> Option<Policy> {
    Some(match varint::take(bytes)? {
        1 => Policy::Levelled { size_ratio: take_u32(bytes)? },
        2 => Policy::Tiered { runs: take_u32(bytes)? },
        3 => Policy::LazyLevelled { runs: take_u32(bytes)? },
        4 => Policy::Fifo { bytes: varint::take(bytes)? },
        5 => Policy::Levels(take_list(bytes, |bytes| {
            Some(match varint::take(bytes)? {
                1 => Level::Tiering(LevelLimit::Count(take_u32(bytes)?)),
                2 => Level::Tiering(LevelLimit::Bytes(varint::take(bytes)?)),
                3 => Level::Levelling(LevelLimit::Count(take_u32(bytes)?)),
                4 => Level::Levelling(LevelLimit::Bytes(varint::take(bytes)?)),
                _ => return None,
            })
        })?),
        _ => return None,
    })
}

fn pair(out: &mut Vec<u8>, kind: u8, number: u64) {
    out.push(kind);
    varint::put(out, number);
}

fn list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    varint::put(out, list.len() as u64);
    list.iter().for_each(|item| put(out, item));
}

/// A list of not more items than there are bytes for.
fn take_list<T>(
    bytes: &mut &[u8],
    mut take: impl FnMut(&mut &[u8]) -> Option<T>,
) -> Option<Vec<T>> {
    let count = varint::take(bytes)?;
    (0..count).map(|_| take(bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> LsmOptions {
        LsmOptions {
            memtable: Some(MemtableKind::HashLinklist { prefix: 300 }),
            filter: Some(FilterKind::Ribbon),
            filter_bits: Some(vec![0, 7, 32]),
            key_file: Some(KeyFile::Filter),
            compression: Some(vec![
                Compression::None,
                Compression::Lz4,
                Compression::Snappy,
                Compression::Zstd { level: 3, dictionary: false },
                Compression::Zstd { level: 22, dictionary: true },
            ]),
            data_block_size: Some(8192),
            table_size: Some(5 << 30),
            separate_values: Some(1024),
            point_index: Some(true),
            policy: Some(Policy::Levels(vec![
                Level::Tiering(LevelLimit::Count(2)),
                Level::Tiering(LevelLimit::Bytes(1 << 40)),
                Level::Levelling(LevelLimit::Count(4)),
                Level::Levelling(LevelLimit::Bytes(70_000)),
            ])),
        }
    }

    fn there_and_back(options: &LsmOptions) {
        let mut bytes = Vec::new();
        put(&mut bytes, options);
        let mut rest = &bytes[..];
        assert_eq!(take(&mut rest).as_ref(), Some(options));
        assert!(rest.is_empty());
        for cut in 0..bytes.len() {
            assert_eq!(take(&mut &bytes[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn options_come_back_as_they_were() {
        there_and_back(&LsmOptions::default());
        there_and_back(&all());
        let some = LsmOptions { key_file: Some(KeyFile::None), ..LsmOptions::default() };
        there_and_back(&some);
        for policy in [
            Policy::Levelled { size_ratio: 10 },
            Policy::Tiered { runs: 4 },
            Policy::LazyLevelled { runs: 100 },
            Policy::Fifo { bytes: u64::MAX },
        ] {
            there_and_back(&LsmOptions { policy: Some(policy), ..all() });
        }
        for memtable in [MemtableKind::Tagged, MemtableKind::Skiplist, MemtableKind::Vector] {
            there_and_back(&LsmOptions { memtable: Some(memtable), ..all() });
        }
    }

    #[test]
    fn hostile_bytes_are_refused() {
        assert_eq!(take(&mut &[0x80, 8][..]), None, "a field that is not known");
        assert_eq!(
            take(&mut &[4, 255, 255, 255, 255, 15][..]),
            None,
            "a list longer than its bytes"
        );
        assert_eq!(take(&mut &[1, 9][..]), None);
    }
}
