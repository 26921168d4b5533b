//! The seed of this run of the tests, and what is drawn with it.
//!
//! It is printed where it is used: a failed test shows it, and `TURBIDITE_OPTIONS_SEED` sets it.

use std::sync::OnceLock;
use std::time::SystemTime;

use turbidite::EngineKind;
pub(crate) use turbidite_torture::choices::{database, mix, options, policy, tree};

/// Sets the seed.
const VARIABLE: &str = "TURBIDITE_OPTIONS_SEED";

/// The seed of this run, told to whoever reads of a failed test.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    let seed = *SEED.get_or_init(|| match std::env::var(VARIABLE) {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => {
            let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            u64::from(time.subsec_nanos()) ^ u64::from(std::process::id()) << 32
        }
    });
    println!("options are drawn with {VARIABLE}={seed}");
    seed
}

#[test]
fn all_that_is_drawn_can_be_and_every_choice_is_met() {
    let mut met = std::collections::BTreeSet::new();
    let fs = std::sync::Arc::new(turbidite::vfs::MemoryFs::new());
    let database = turbidite::Database::builder("/db").file_system(fs).open().unwrap();
    for seed in 0..60 {
        for opening in 0..4 {
            let options = options(EngineKind::Lsm, seed, opening);
            let chosen = options.chosen().into_iter();
            let kind = |text: &str| text.split([':', ',']).next().unwrap().to_owned();
            met.extend(chosen.map(|(name, value)| format!("{name} {}", kind(&value))));
            database.keyspace(&seed.to_string(), options).unwrap();
        }
    }
    let expected = [
        "memtable skiplist",
        "memtable vector",
        "memtable hash-skiplist",
        "memtable hash-linklist",
        "filter none",
        "filter bloom",
        "filter ribbon",
        "key_file none",
        "key_file filter",
        "key_file keys",
        "point_index true",
        "point_index false",
        "compression lz4",
        "data_block_size 512",
        "table_size 65536",
        "separate_values 64",
        "policy levelled",
        "policy tiered",
        "policy lazy-levelled",
        "policy fifo",
        "policy tiering",
        "policy levelling",
    ];
    let missing: Vec<_> = expected.into_iter().filter(|name| !met.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?} of {met:?}");
}
