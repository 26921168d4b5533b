//! Keys of a load, as bytes.

use turbidite_workload::{Operations, push_key};

use super::job::Keys;

/// Makes `key` the key that `number` stands for.
#[inline]
pub(super) fn push(key: &mut Vec<u8>, keys: Keys, number: u64) {
    key.clear();
    append(key, keys, number);
}

fn append(bytes: &mut Vec<u8>, keys: Keys, number: u64) {
    match keys {
        Keys::Digits(digits) => push_key(bytes, number, digits as usize),
        Keys::Binary => bytes.extend_from_slice(&number.to_be_bytes()),
    }
}

/// Operations with the keys that `numbers` stand for.
pub(super) fn operations<T: Copy>(
    keys: Keys,
    numbers: impl ExactSizeIterator<Item = u64>,
    payloads: Vec<T>,
) -> Operations<T> {
    Operations::with(numbers, keys.size(), payloads, |bytes, number| append(bytes, keys, number))
}
