//! What fuzzers do with keys and values of typed keyspaces: what can be read is written and read again, and is the same.

use std::cmp::Reverse;
#[cfg(feature = "serde")]
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

#[cfg(feature = "serde")]
use super::Serde;
use super::{Buffer, Compressed, KeyCodec, KeyReader, KeyWriter, ValueCodec};
use crate::base::Slice;

/// A key of each of some types.
pub(crate) fn key(bytes: &[u8]) {
    key_of::<(String, i32)>(bytes);
    key_of::<(Vec<u8>, Option<String>, u64)>(bytes);
    key_of::<(Reverse<(String, bool)>, char, [u8; 3])>(bytes);
    key_of::<Option<Reverse<Vec<u8>>>>(bytes);
    key_of::<(f64, i128, ())>(bytes);
    key_of::<(Duration, Reverse<SystemTime>)>(bytes);
    key_of::<(IpAddr, Slice)>(bytes);
}

fn key_of<K: KeyCodec + Debug>(bytes: &[u8]) {
    let Ok(key) = KeyReader::read::<K>(bytes) else { return };
    let written = KeyWriter::of::<K>(&key);
    let again = KeyReader::read::<K>(written.as_ref()).expect("it was just written");
    // Not the keys themselves: what is not a number is not equal to itself.
    assert_eq!(KeyWriter::of::<K>(&again).as_ref(), written.as_ref(), "{key:?}");
}

/// A value of each of some types.
pub(crate) fn value(bytes: &[u8]) {
    value_of::<String>(bytes);
    value_of::<Option<u64>>(bytes);
    value_of::<[u8; 5]>(bytes);
    value_of::<bool>(bytes);
    value_of::<char>(bytes);
    value_of::<f32>(bytes);
    value_of::<Compressed<Vec<u8>>>(bytes);
    value_of::<Option<Compressed<Compressed<String>>>>(bytes);
    #[cfg(feature = "serde")]
    {
        value_of::<Serde<(u64, String, Option<Vec<i32>>)>>(bytes);
        value_of::<Serde<BTreeMap<String, Vec<(i64, f64)>>>>(bytes);
        value_of::<Serde<Vec<Result<Box<[u8]>, char>>>>(bytes);
        value_of::<Compressed<Serde<Vec<BTreeMap<u8, bool>>>>>(bytes);
    }
}

fn value_of<V: ValueCodec + Debug>(bytes: &[u8]) {
    let written = |value: &V| {
        let mut out = Buffer::new();
        value.encode(&mut out).map(|()| out.to_vec())
    };
    let Ok(value) = V::decode(Slice::from(bytes)) else { return };
    let once = written(&value).expect("it is no longer than a value may be");
    let again = V::decode(Slice::from(&once[..])).expect("it was just written");
    assert_eq!(written(&again).expect("likewise"), once, "{value:?}");
}

/// Keys and values as they are written, as a beginning for fuzzers.
#[cfg(test)]
pub(crate) mod seeds {
    use super::*;

    pub(crate) fn keys() -> Vec<Vec<u8>> {
        let bytes = |key: KeyWriter| key.as_ref().to_vec();
        vec![
            bytes(KeyWriter::of::<(String, i32)>(("Vienna", -44))),
            bytes(KeyWriter::of::<(Vec<u8>, Option<String>, u64)>(([0, 1, 0], Some("x"), 7))),
            bytes(KeyWriter::of::<(Reverse<(String, bool)>, char, [u8; 3])>((
                Reverse(("a\0b", true)),
                'ä',
                [1, 2, 3],
            ))),
            bytes(KeyWriter::of::<(f64, i128, ())>((-0.5, -7, ()))),
            bytes(KeyWriter::of::<(Duration, Reverse<SystemTime>)>((
                Duration::from_millis(1500),
                Reverse(SystemTime::UNIX_EPOCH),
            ))),
        ]
    }

    pub(crate) fn values() -> Vec<Vec<u8>> {
        fn bytes<V: ValueCodec>(value: V) -> Vec<u8> {
            let mut out = Buffer::new();
            value.encode(&mut out).unwrap();
            out.to_vec()
        }
        #[cfg(feature = "serde")]
        let serde = [
            bytes(Serde((300_u64, "text".to_owned(), Some(vec![-1, i32::MAX])))),
            bytes(Serde(BTreeMap::from([("a".to_owned(), vec![(-7_i64, 0.5_f64)])]))),
            bytes(Serde(vec![Ok(Box::<[u8]>::from([1, 2])), Err('ä')])),
            bytes(Compressed(Serde(vec![BTreeMap::from([(1_u8, true), (2, false)]); 50]))),
        ];
        #[cfg(not(feature = "serde"))]
        let serde = [];
        let plain = [
            bytes("text".to_owned()),
            bytes(Some(7_u64)),
            bytes(1.5_f32),
            bytes(Compressed(vec![7_u8; 300])),
            bytes(Some(Compressed(Compressed("to and fro, ".repeat(40))))),
        ];
        plain.into_iter().chain(serde).collect()
    }
}
