//! What fuzzers do with the catalog.

use super::State;
use crate::base::varint;

/// A snapshot and edits, each with its length in front.
pub(crate) fn catalog(mut bytes: &[u8]) {
    let mut state = State::default();
    let mut next = || varint::take_prefixed(&mut bytes);
    if next().and_then(|snapshot| state.read_snapshot(snapshot)).is_none() {
        return;
    }
    while let Some(edit) = next() {
        if state.apply(edit).is_none() {
            return;
        }
    }
    // What was read can be written.
    let mut again = State::default();
    assert!(again.read_snapshot(&state.snapshot()).is_some());
    assert_eq!(again, state);
}

/// Catalogs as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::super::{Types, create_edit, progress_edit, types_edit};
    use super::*;
    use crate::{Compression, KeyspaceOptions, Layer, Policy, Reducer};

    fn prefixed(parts: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        parts.iter().for_each(|part| varint::put_prefixed(&mut out, part));
        out
    }

    pub(crate) fn catalogs() -> Vec<Vec<u8>> {
        let blocks = Layer::BlockCache { block_size: 4096, pages: 100 };
        let lsm = KeyspaceOptions::lsm()
            .filter_bits(&[10, 8])
            .compression(&[Compression::None, Compression::Lz4])
            .policy("tiering:2,levelling:4000000B".parse::<Policy>().unwrap());
        let options = [
            KeyspaceOptions::lsm(),
            lsm,
            KeyspaceOptions::hash().layer(blocks).log(false),
            KeyspaceOptions::btree().page_size(8192).max_cached_pages(50),
            KeyspaceOptions::skip().reducer(Reducer::Custom("most".into())),
        ];
        let mut state = State { next_id: 1, floor: 1, ..State::default() };
        let mut edits = vec![state.snapshot()];
        for (id, options) in (1..).zip(&options) {
            edits.push(create_edit(id, &format!("keyspace {id}"), options));
        }
        edits.push(progress_edit(3, &[(1, 70), (3, 1 << 40)]));
        edits.push(types_edit(2, &Types { key: "(str, u64)".into(), value: "bytes".into() }));
        edits[1..].iter().for_each(|edit| state.apply(edit).unwrap());
        vec![prefixed(&edits), prefixed(&[state.snapshot()])]
    }
}
