//! Tests of the room: blocks, whole files, and the store they make up.

mod blocks;

use proptest::prelude::*;

use crate::base::{Kind, Trailer};

/// A key, its trailer and its value.
type Entry = (Vec<u8>, Trailer, Vec<u8>);

const IDENTITY: u64 = 0x1234_5678;
/// What records count as that have no trailers.
const UNIFORM: Trailer = Trailer::new(77, Kind::Put);

/// Keys that share long prefixes, are empty, or are prefixes of each other.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let bytes =
        proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(b'a'), Just(0xff)], 0..7);
    prop_oneof![
        bytes.clone(),
        bytes.clone().prop_map(|tail| [&b"a prefix of many keys "[..], &tail].concat()),
        bytes.prop_map(|tail| [&[b'p'; 500][..], &tail].concat()),
    ]
}
