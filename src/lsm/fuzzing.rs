//! What fuzzers do with what the log says of a sorted load into an LSM-tree.

use super::load::{decode, encode};
use super::table::TableSummary;

fn summary(len: u64) -> TableSummary {
    TableSummary { len, properties: Default::default() }
}

/// The tables of a load: what can be read is written and read again, and is the same.
pub(crate) fn load(bytes: &[u8]) {
    let Some(tables) = decode(bytes) else { return };
    assert!(2 * tables.len() < bytes.len(), "each takes two bytes at least, behind their count");
    let again: Vec<_> = tables.iter().map(|&(id, len)| (id, summary(len))).collect();
    assert_eq!(decode(&encode(&again)), Some(tables));
}

/// Loads as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::*;

    pub(crate) fn loads() -> Vec<Vec<u8>> {
        let tables = [(7, summary(4000)), (300, summary(1 << 40)), (301, summary(9))];
        vec![encode(&tables[..1]), encode(&tables)]
    }
}
