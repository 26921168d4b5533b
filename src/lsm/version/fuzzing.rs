//! What fuzzers do with the manifest of an LSM-tree.

use super::manifest::Numbers;
use super::{LEVELS, Place, TableMeta, Version, sample};
use crate::base::varint;

/// The version of the format, then a snapshot and edits, each with its length in front.
pub(crate) fn manifest(bytes: &[u8]) {
    let Some((&format, mut bytes)) = bytes.split_first() else { return };
    let home = sample::home();
    let read = |numbers: &mut Numbers, bytes: &[u8], format, version: &Version| {
        let edit = numbers.decode(bytes, format, &home, version)?;
        version.with(&edit.removed, &edit.added)
    };
    let (mut numbers, mut version) = (Numbers::default(), Version::default());
    while let Some(edit) = varint::take_prefixed(&mut bytes) {
        let next = read(&mut numbers, edit, u32::from(format) % 4, &version);
        let Some(next) = next else { return };
        version = next;
    }
    if !version.is_countable() {
        return;
    }
    assert!(version.levels().all(|(level, runs)| level < LEVELS && !runs.is_empty()));
    let _ = (version.values.stats(), version.values.garbage().count());
    // What was read can be written.
    let snapshot = numbers.snapshot(&version);
    let again = read(&mut Numbers::default(), &snapshot, 3, &Version::default());
    assert_eq!(again.map(|again| metas(&again)), Some(metas(&version)));
}

fn metas(version: &Version) -> Vec<(Place, TableMeta)> {
    let tables = |run: &super::Run| {
        let place = run.place;
        run.tables().iter().map(move |table| (place, table.meta.clone())).collect::<Vec<_>>()
    };
    version.runs().iter().flat_map(tables).collect()
}

/// Manifests as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use std::sync::Arc;

    use super::super::TableFile;
    use super::super::manifest::encode;
    use super::*;
    use crate::lsm::values::{Share, ValueFile};

    pub(crate) fn manifests() -> Vec<Vec<u8>> {
        let home = sample::home();
        let place = |level, run| Place { level, run };
        let table = |id, keys, seqno| sample::table(&home, id, keys, 1000 * id, seqno);
        let with_values = |id| {
            let meta = TableMeta { ranges: 3, ..table(id, (b"f", b"g"), 7).meta.clone() };
            let file = ValueFile::new(9, 500, Arc::clone(&home));
            TableFile::with_values(meta, vec![Share { file, bytes: 300 }], Arc::clone(&home))
        };
        let numbers = Numbers { persisted: 100, next_id: 20 };
        let edits = [
            encode(numbers, &[], &[(place(0, 1), table(1, (b"a", b"k"), 5))]),
            encode(numbers, &[], &[(place(0, 2), with_values(2))]),
            encode(
                numbers,
                &[1],
                &[
                    (place(5, 0), table(3, (b"a", b"c"), 5)),
                    (place(5, 0), table(4, (b"d", b"k"), 5)),
                ],
            ),
        ];
        let seed = |edits: &[Vec<u8>]| {
            let mut out = vec![3];
            edits.iter().for_each(|edit| varint::put_prefixed(&mut out, edit));
            out
        };
        vec![seed(&[]), seed(&edits[..1]), seed(&edits)]
    }
}
