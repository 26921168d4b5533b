//! Entry points for the fuzz targets in `fuzz/`, one for each part of a table. They are compiled for fuzzers and for
//! tests only: the tests give them the inputs in `fuzz/corpus`, and these with random changes, on every run.
//!
//! Thread safety: functions without state.

use crate::filter::Filter;
use crate::lsm::table::fuzzing;

/// A data block of a table.
pub fn table_block(bytes: &[u8]) {
    fuzzing::block(bytes);
}

/// The index of a table, behind the bytes that its data blocks take, as a `u64`.
pub fn table_index(bytes: &[u8]) {
    fuzzing::index(bytes);
}

/// The point index of a table, behind the hash of a key, as a `u64`.
pub fn table_points(bytes: &[u8]) {
    fuzzing::points(bytes);
}

/// The range tombstones of a table.
pub fn table_ranges(bytes: &[u8]) {
    fuzzing::range_tombstones(bytes);
}

/// The footer of a table.
pub fn table_footer(bytes: &[u8]) {
    fuzzing::footer(bytes);
}

/// A filter, behind the hash of a key, as a `u64`.
pub fn filter(bytes: &[u8]) {
    let Some((hash, bytes)) = bytes.split_first_chunk() else { return };
    for filter in [Filter::of(bytes), Filter::of_version_1(bytes)].into_iter().flatten() {
        asked(&filter, u64::from_le_bytes(*hash));
        let kept = filter.kept();
        assert!(kept.memory() <= bytes.len() + 1000);
        asked(&kept, u64::from_le_bytes(*hash));
    }
}

/// Asks a filter for keys.
fn asked<B: AsRef<[u8]>>(filter: &Filter<B>, hash: u64) {
    for hash in [hash, !hash, hash.rotate_left(32), 0, u64::MAX] {
        filter.prefetch(hash);
        let answer = filter.may_contain(hash);
        assert_eq!(filter.may_contain(hash), answer);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::base::rng::Rng;
    use crate::filter::FilterBuilder;
    use crate::lsm::table::fuzzing::seeds;
    use crate::options::FilterKind;

    /// Set to write the seeds.
    const REGENERATE: &str = "TURBIDITE_WRITE_TESTDATA";
    /// How many changed copies of each input are tried.
    const CHANGES: usize = 300;

    fn corpus(target: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
    }

    fn filters() -> Vec<Vec<u8>> {
        let mut filters = Vec::new();
        let hash = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let filter = |kind, bits, keys: u64| {
            let mut builder = FilterBuilder::new(kind, bits);
            (0..keys).for_each(|key| builder.add(hash(key)));
            let bytes = builder.finish().expect("bits are asked for");
            [hash(keys / 2).to_le_bytes().to_vec(), bytes].concat()
        };
        for kind in [FilterKind::Bloom, FilterKind::BlockedBloom, FilterKind::Ribbon] {
            for keys in [0, 1, 30, 300] {
                filters.extend([1, 10, 20].map(|bits| filter(kind, bits, keys)));
            }
        }
        filters
    }

    struct Target {
        name: &'static str,
        run: fn(&[u8]),
        /// What the present code writes.
        seeds: Vec<Vec<u8>>,
    }

    fn targets() -> [Target; 6] {
        [
            Target { name: "table_block", run: table_block, seeds: seeds::blocks() },
            Target { name: "table_index", run: table_index, seeds: seeds::indexes() },
            Target { name: "table_points", run: table_points, seeds: seeds::point_indexes() },
            Target { name: "table_ranges", run: table_ranges, seeds: seeds::range_tombstones() },
            Target { name: "table_footer", run: table_footer, seeds: seeds::footers() },
            Target { name: "filter", run: filter, seeds: filters() },
        ]
    }

    fn write(target: &str, seeds: &[Vec<u8>]) {
        fs::create_dir_all(corpus(target)).expect("made");
        for (number, seed) in seeds.iter().enumerate() {
            let path = corpus(target).join(format!("seed-{number:02}"));
            fs::write(path, seed).expect("written");
        }
    }

    fn inputs(target: &str) -> Vec<Vec<u8>> {
        let files = fs::read_dir(corpus(target)).expect("the corpus is there");
        let mut paths: Vec<_> = files.map(|file| file.expect("listed").path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).expect("read")).collect()
    }

    /// A copy with a few bytes changed, put in or taken out.
    fn changed(input: &[u8], rng: &mut Rng) -> Vec<u8> {
        const TELLING: [u8; 8] = [0, 1, 2, 4, 0x7f, 0x80, 0xfe, 0xff];
        let mut bytes = input.to_vec();
        for _ in 0..1 + rng.next() % 4 {
            let (number, at) = (rng.next(), rng.next() as usize % (bytes.len() + 1));
            let byte = TELLING[(number >> 8) as usize % TELLING.len()];
            match number % 6 {
                0 => bytes.insert(at, byte),
                1 => bytes.truncate(at),
                _ if at == bytes.len() => bytes.push(byte),
                2 => _ = bytes.remove(at),
                3 => bytes[at] ^= 1 << (number >> 8 & 7),
                4 => bytes[at] = byte,
                // The end says where everything is.
                _ => {
                    let near_end = bytes.len() - 1 - (number >> 16) as usize % bytes.len().min(16);
                    bytes[near_end] = byte;
                }
            }
        }
        bytes
    }

    #[test]
    fn inputs_and_changed_ones_do_no_harm() {
        for Target { name, run, seeds } in targets() {
            if std::env::var_os(REGENERATE).is_some() {
                write(name, &seeds);
            }
            let inputs = inputs(name);
            assert!(!inputs.is_empty(), "{name} has no inputs");
            let mut rng = Rng::new(1);
            for input in inputs.iter().chain(&seeds) {
                run(input);
                (0..CHANGES).for_each(|_| run(&changed(input, &mut rng)));
            }
        }
    }
}
