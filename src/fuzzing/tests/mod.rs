//! The corpus and changed copies of it, given to all entry points.

mod allocations;
mod alone;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::*;
use crate::base::rng::Rng;
use crate::filter::FilterBuilder;
use crate::lsm::table::fuzzing::seeds as tables;
use crate::options::FilterKind;
use crate::sync::message;
use allocations::most_during;
use alone::is_alone;

/// Set to write the seeds.
const REGENERATE: &str = "TURBIDITE_WRITE_TESTDATA";
/// Set to try so many times as many changed copies.
const TIMES: &str = "TURBIDITE_FUZZ_TIMES";
/// Set to try no other target.
const ONLY: &str = "TURBIDITE_FUZZ_TARGET";
/// How many changed copies of each input are tried.
const CHANGES: usize = 300;
/// The same for inputs that take long, each of all inputs together.
const SLOW_CHANGES: usize = 600;
const DATABASES: usize = 100;
/// Targets that are not of the library: what their crates read is tried there.
const OTHERS: [&str; 1] = ["records"];
/// The most bytes of all inputs.
const MOST_BYTES: usize = 300 << 10;
/// The most memory that there may be at a time, whatever the input is,
const MEMORY: usize = 256 << 10;
/// and for each byte of it.
const MEMORY_FOR_A_BYTE: usize = 100;
/// The same for compressed blocks, which are no larger than this,
const BLOCK_MEMORY: usize = 17 << 20;
/// and for whole databases, whose budget is this, and of which two threads may have such a block each.
const DATABASE_MEMORY: usize = crate::MIN_MEMORY_BUDGET + 2 * BLOCK_MEMORY;

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
    /// How many changed copies are tried.
    changes: Changes,
    /// The most memory that there may be at a time, whatever the input is.
    memory: usize,
}

enum Changes {
    OfEach(usize),
    OfAll(usize),
}

impl Target {
    fn slow(self, changes: usize) -> Self {
        Self { changes: Changes::OfAll(changes), ..self }
    }

    fn changes_of_each(&self, inputs: usize) -> usize {
        let times = std::env::var(TIMES).map_or(1, |times| times.parse().expect("a number"));
        times
            * match self.changes {
                Changes::OfEach(changes) => changes,
                Changes::OfAll(changes) => changes.div_ceil(inputs),
            }
    }
}

macro_rules! targets {
    ($($name:ident: $seeds:expr),* $(,)?) => {
        vec![$(Target {
            name: stringify!($name),
            run: $name,
            seeds: $seeds,
            changes: Changes::OfEach(CHANGES),
            memory: MEMORY,
        }),*]
    };
}

fn targets() -> Vec<Target> {
    let writes = commit::fuzzing::seeds::writes();
    let bodies: Vec<&[u8]> = writes.iter().map(|body| &body[..]).collect();
    let mut targets = targets![
        table_block: tables::blocks(),
        table_packed_block: tables::packed_blocks(),
        table_index: tables::indexes(),
        table_points: tables::point_indexes(),
        table_ranges: tables::range_tombstones(),
        table_properties: tables::properties(),
        table_footer: tables::footers(),
        filter: filters(),
        lsm_manifest: lsm::version::fuzzing::seeds::manifests(),
        log_writes: writes.clone(),
        log_load: [lsm::fuzzing::seeds::loads(), skip::fuzzing::seeds::loads()].concat(),
        catalog: catalog::fuzzing::seeds::catalogs(),
        hash_manifest: hash::fuzzing::seeds::manifests(),
        hash_record: hash::fuzzing::seeds::records(),
        btree_meta: btree::fuzzing::seeds::metas(),
        btree_node: btree::fuzzing::seeds::nodes(),
        btree_free_list: btree::fuzzing::seeds::free_lists(),
        skip_manifest: skip::fuzzing::seeds::manifests(),
        skip_block: skip::fuzzing::seeds::blocks(),
        skip_footer: skip::fuzzing::seeds::footers(),
        typed_key: typed::fuzzing::seeds::keys(),
        typed_value: typed::fuzzing::seeds::values(),
        status: status::fuzzing::seeds::statuses(),
        options: options::seeds(),
    ];
    let slow = targets![
        value_file: lsm::values::fuzzing::seeds::values(),
        log_segment: log::fuzzing::seeds::segments(&bodies),
        log_tail: log::fuzzing::seeds::tails(&bodies),
        edit_log: log::fuzzing::seeds::edit_logs(),
        hash_segment: hash::fuzzing::seeds::records(),
        hash_checkpoint: hash::fuzzing::seeds::checkpoints(),
        skip_file: skip::fuzzing::seeds::files(),
        table_file: tables::files(),
        btree_file: btree::fuzzing::seeds::files(),
    ];
    targets.extend(slow.into_iter().map(|target| target.slow(SLOW_CHANGES)));
    let databases = targets![database: database::seeds()];
    targets.extend(databases.into_iter().map(|target| target.slow(DATABASES)));
    for target in &mut targets {
        match target.name {
            "table_packed_block" | "table_file" => target.memory = BLOCK_MEMORY,
            "database" => target.memory = DATABASE_MEMORY,
            _ => {}
        }
    }
    targets
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
        match number % 7 {
            0 => bytes.insert(at, byte),
            1 => bytes.truncate(at),
            _ if at == bytes.len() => bytes.push(byte),
            2 => _ = bytes.remove(at),
            3 => bytes[at] ^= 1 << (number >> 8 & 7),
            4 => bytes[at] = byte,
            // A number of several bytes.
            5 => {
                let end = bytes.len().min(at + (number >> 16) as usize % 8);
                bytes[at..end].fill(byte);
            }
            // The end says where everything is.
            _ => {
                let near_end = bytes.len() - 1 - (number >> 16) as usize % bytes.len().min(16);
                bytes[near_end] = byte;
            }
        }
    }
    bytes
}

/// The memory that an input takes, or what is wrong with what comes of it.
fn taken(target: &Target, input: &[u8]) -> Result<usize, String> {
    let mut memory = 0;
    let work = || memory = most_during(|| (target.run)(input));
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| message(&*panic).to_owned())?;
    match memory > target.memory + MEMORY_FOR_A_BYTE * input.len() {
        true => Err(format!("{memory} bytes of memory")),
        false => Ok(memory),
    }
}

#[test]
fn inputs_and_changed_ones_do_no_harm() {
    if !is_alone("inputs_and_changed_ones_do_no_harm") {
        return;
    }
    let mut harmful = BTreeMap::new();
    let only = std::env::var(ONLY);
    let is_wanted = |target: &Target| only.as_ref().is_ok_and(|only| only == target.name);
    for target in targets().into_iter().filter(|target| only.is_err() || is_wanted(target)) {
        let Target { name, seeds, .. } = &target;
        if std::env::var_os(REGENERATE).is_some() {
            write(name, seeds);
        }
        let mut inputs = inputs(name);
        assert!(!inputs.is_empty(), "{name} has no inputs");
        inputs.extend(
            seeds.iter().filter(|seed| !inputs.contains(seed)).cloned().collect::<Vec<_>>(),
        );
        let mut rng = Rng::new(1);
        let changes = target.changes_of_each(inputs.len());
        let mut most = 0;
        for input in &inputs {
            let copies = std::iter::repeat_with(|| changed(input, &mut rng)).take(changes);
            for input in std::iter::once(input.clone()).chain(copies) {
                match taken(&target, &input) {
                    Ok(memory) => most = most.max(memory),
                    Err(harm) => _ = harmful.entry((*name, harm)).or_insert(input),
                }
            }
        }
        let (count, runs) = (inputs.len(), inputs.len() * (changes + 1));
        println!(
            "{name}: {runs} runs, of {count} inputs and {changes} changed copies of each; at most {most} bytes of memory"
        );
    }
    for ((name, harm), input) in &harmful {
        println!("{name}: {harm}\n    b\"{}\"", input.escape_ascii());
    }
    assert!(harmful.is_empty(), "{} kinds of harm are listed above", harmful.len());
}

#[test]
fn the_corpus_is_small_and_every_target_is_listed() {
    let targets = targets();
    let names = targets.iter().map(|target| target.name).chain(OTHERS);
    let names: BTreeSet<_> = names.map(str::to_owned).collect();
    let listed = |dir: &str| -> Vec<PathBuf> {
        let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(dir));
        files.expect("it is there").map(|file| file.expect("listed").path()).collect()
    };
    let stems = |dir| -> BTreeSet<String> {
        let stem = |path: &PathBuf| path.file_stem()?.to_str().map(str::to_owned);
        listed(dir).iter().filter_map(stem).collect()
    };
    assert_eq!(stems("fuzz_targets"), names);
    assert_eq!(stems("corpus"), names);
    let manifest = include_str!("../../../fuzz/Cargo.toml");
    let readme = include_str!("../../../fuzz/README.md");
    for name in &names {
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name}");
        assert!(readme.contains(&format!("`{name}`")), "{name}");
    }
    let bytes: usize = names.iter().flat_map(|name| inputs(name)).map(|input| input.len()).sum();
    assert!(bytes < MOST_BYTES, "{bytes} bytes");
}
