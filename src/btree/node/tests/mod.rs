//! Nodes against sorted vectors, and against bytes that no builder makes.

mod hostile;
mod reading;

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::options::MAX_KEY_LEN;

const IDENTITY: u64 = 0x1234_5678_9abc;
const OFFSET: u64 = 3 << 20;
const GENERATION: u64 = 77;

/// A value that owns its bytes.
#[derive(Clone, PartialEq, Debug)]
enum Value {
    Inline(Vec<u8>),
    Overflow(Pointer, u64),
}

impl Value {
    fn stored(&self) -> Stored<'_> {
        match self {
            Self::Inline(bytes) => Stored::Inline(bytes),
            &Self::Overflow(at, len) => Stored::Overflow { at, len },
        }
    }
}

type Records = Vec<(Vec<u8>, Value)>;

/// Keys that are hard on heads and prefixes, and some that are as long as keys may be.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => vec(0u8..3, 0..12),
        20 => (0u32..5000).prop_map(|n| format!("user:{n:010}").into_bytes()),
        20 => vec(any::<u8>(), 16),
        10 => vec(any::<u8>(), 100..300),
        1 => (0u8..3, MAX_KEY_LEN - 3000..=MAX_KEY_LEN).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn pointer() -> impl Strategy<Value = Pointer> {
    (2..1u64 << 39, 1..=Pointer::MAX_PAGES, any::<u64>())
        .prop_map(|(page, pages, generation)| Pointer::new(page, pages, generation))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => vec(any::<u8>(), 0..150).prop_map(Value::Inline),
        1 => vec(any::<u8>(), 0..=1024).prop_map(Value::Inline),
        1 => (pointer(), 1025..1u64 << 30).prop_map(|(at, len)| Value::Overflow(at, len)),
    ]
}

fn page_size() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(4 << 10), 1 => Just(64 << 10)]
}

fn with_prefix<V>(prefix: &[u8], map: BTreeMap<Vec<u8>, V>) -> Vec<(Vec<u8>, V)> {
    let room = MAX_KEY_LEN - prefix.len();
    let keys = map.into_iter().filter(|(key, _)| key.len() <= room);
    keys.map(|(key, value)| ([prefix, &key].concat(), value)).collect()
}

fn records() -> impl Strategy<Value = Records> {
    (vec(any::<u8>(), 0..40), btree_map(key(), value(), 0..80))
        .prop_map(|(prefix, map)| with_prefix(&prefix, map))
}

/// Separators and the children right of them.
fn separators() -> impl Strategy<Value = Vec<(Vec<u8>, Pointer)>> {
    (vec(any::<u8>(), 0..40), btree_map(key(), pointer(), 0..200))
        .prop_map(|(prefix, map)| with_prefix(&prefix, map))
}

/// Keys around those given, and others.
fn probes<'a>(keys: impl Iterator<Item = &'a Vec<u8>>, others: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
    let mut probes: BTreeSet<_> = others.iter().cloned().collect();
    for key in keys {
        probes.insert(key.clone());
        probes.insert([key, &b"\0"[..]].concat());
        if let Some((&last, start)) = key.split_last() {
            probes.insert(start.to_vec());
            probes.insert([start, &[last.wrapping_sub(1)]].concat());
            probes.insert([start, &[last.wrapping_add(1)]].concat());
        }
    }
    probes
}

fn sealed(mut node: Vec<u8>) -> Vec<u8> {
    seal(&mut node, IDENTITY, OFFSET, GENERATION);
    node
}

/// A leaf of one builder, sealed.
fn leaf(page_size: usize, records: &Records) -> Vec<u8> {
    let mut builder = LeafBuilder::new(page_size);
    records.iter().for_each(|(key, value)| builder.push(key, value.stored()));
    let mut out = Vec::new();
    builder.finish(&mut out);
    sealed(out)
}

/// An inner node of one builder, sealed.
fn inner(page_size: usize, low: Pointer, separators: &[(Vec<u8>, Pointer)]) -> Vec<u8> {
    let mut builder = InnerBuilder::new(page_size, 1);
    builder.push_first(low);
    separators.iter().for_each(|(key, child)| builder.push(key, *child));
    let mut out = Vec::new();
    builder.finish(&mut out);
    sealed(out)
}
