//! What fuzzers do with value files. The header is put in front of what is given: it has to be that of its file to the
//! last bit.

use std::sync::Arc;

use super::ValueFile;
use super::record::{self, HEADER};
use super::reference::Reference;
use crate::base::varint;
use crate::lsm::version::sample;

/// The number of the file.
const ID: u64 = 9;

/// A reference with its length in front, then the records of the file.
pub(crate) fn values(mut bytes: &[u8]) {
    let Some(reference) = varint::take_prefixed(&mut bytes) else { return };
    let home = sample::home();
    let header = record::header(home.values_owner(ID));
    let file = home.fs.create(&home.values_path(ID), home.layer()).expect("there is none");
    file.write_at(0, &[&header[..], bytes].concat()).expect("memory takes it");
    let file = ValueFile::new(ID, (HEADER + bytes.len()) as u64, Arc::clone(&home));
    let _ = file.read(|open| open.verify());
    let Some(reference) = Reference::decode(reference) else { return };
    let value = file.read(|open| {
        let hash = open.file.view(open.range(&reference)?).map(|stored| {
            stored
                .get(8..)
                .and_then(|rest| rest.first_chunk())
                .map(|hash| u64::from_le_bytes(*hash))
        });
        open.value(&reference, hash?.unwrap_or(0))
    });
    assert!(value.is_err() || value.is_ok_and(|value| value.len() <= bytes.len()));
}

/// Files as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::super::writer::ValueWriter;
    use super::*;

    pub(crate) fn values() -> Vec<Vec<u8>> {
        let written = |values: &[&[u8]]| {
            let home = sample::home();
            let mut writer = ValueWriter::create(&home, ID, None).unwrap();
            let mut reference = Vec::new();
            for value in values {
                writer.append(b"key", value).unwrap().encode_into(&mut reference);
            }
            writer.finish(&home).unwrap();
            let file = home.fs.open(
                &home.values_path(ID),
                crate::vfs::Access::Read,
                crate::vfs::Layer::Positional,
            );
            let file = file.unwrap();
            let bytes = file.view(HEADER as u64..file.len().unwrap()).unwrap();
            let mut out = Vec::new();
            varint::put_prefixed(&mut out, &reference);
            [&out[..], &bytes].concat()
        };
        vec![written(&[]), written(&[b"value"]), written(&[b"", &[7; 200], b"the last one"])]
    }
}
